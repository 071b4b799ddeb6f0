"""What accuracy to expect, before anything is spent: from M, r and the noise, and from no row.

Let z be the z-score of the threshold given all rows, so that the exact answer is Φ(z). Block
estimates in their own units are then N(z/√M, 1), up to the condition that they average to z/√M.
With ψ = μ + A ξ + rest at z = 0, the mean over all blocks has expectation E ψ(ξ + z/√M), variance
(v - A²)/(r M) given z, and Laplace noise on top; the analyst reads it as
F_NL(± (mean - μ); √((A² + (v - A²)/r)/M), noise scale).

The expected error is integrated over grids of quantiles of all these laws, for thresholds -3 to
3 standard errors away from the true coefficient (so z has a standard normal part). Real blocks have
few rows and their errors are not normal: this is an optimist's number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from noisewise.core import normal_laplace
from noisewise.core.kinds.summary.mechanisms import (
    Asking,
    ClippedMean,
    Fisher,
    RescaledNormal,
    Sign,
    Stouffer,
)
from noisewise.holder.plan import Floats

ALWAYS_HALF = 0.41  # the same error for an answer of 1/2, whatever the data
_LEVELS = (np.arange(49) + 0.5) / 49


@dataclass(frozen=True)
class BlockLaw:
    """μ, v and A of one mechanism's ψ for standard normal estimates."""

    mean: float
    variance: float
    slope: float


def probability_error(mechanism: Asking, blocks: int, partitions: int, noise: float) -> float:
    """Root mean square error of the answer against the exact posterior probability.

    Parameters
    ----------
    mechanism : Asking
    blocks, partitions : int
    noise : float
        Laplace scale on the mean of ψ over all blocks.
    """
    psi = _psi(mechanism)
    xi, weight = _normal_grid()
    values = psi(xi)
    mean, slope = float(weight @ values), float(weight @ (values * xi))
    law = BlockLaw(mean, float(weight @ (values - mean) ** 2), slope)
    rest = max(law.variance - law.slope**2, 0.0) / partitions
    spread = math.sqrt((law.slope**2 + rest) / blocks)
    errors = _normal_quantiles() * math.sqrt(rest / blocks)
    direction = math.copysign(1.0, law.slope)
    squares = []
    for z in _z_scores():
        centre = float(weight @ psi(xi + z / math.sqrt(blocks))) - law.mean
        seen = centre + errors[:, None] + noise * _laplace_quantiles()[None, :]
        answers = normal_laplace.cdf(direction * seen, spread, noise)
        squares.append(np.mean((answers - _phi(float(z))) ** 2))
    return float(np.sqrt(np.mean(squares)))


def median_error(blocks: int, partitions: int, epsilon: float) -> float:
    """The same for `location_scale`; `epsilon` is the location's, for one row of a unit."""
    rest = (math.pi / 2 - 1) / partitions
    noise = 2 * math.sqrt(2 * math.pi) / (epsilon * math.sqrt(blocks))
    away = _normal_quantiles()[:, None] * math.sqrt(rest) + noise * _laplace_quantiles()[None, :]
    squares = [
        np.mean((normal_laplace.cdf(z - away, math.sqrt(1 + rest), noise) - _phi(float(z))) ** 2)
        for z in _z_scores()
    ]
    return float(np.sqrt(np.mean(squares)))


def quantile_noise(mechanism: ClippedMean, noise: float) -> list[float]:
    """Standard deviation of the noise on every quantile, in the coefficient's own units."""
    return [math.sqrt(2) * noise * (item.upper - item.lower) for item in mechanism.items]


def _psi(mechanism: Asking) -> Callable[[Floats], Floats]:
    from scipy.special import log_ndtr, ndtr

    if isinstance(mechanism, Sign):
        # A mean over the steps of the grid, because a jump between two points is not integrated.
        return lambda x: np.clip(x / 0.002, -1.0, 1.0)
    if isinstance(mechanism, Stouffer):
        return lambda x: np.clip(x, -mechanism.clip, mechanism.clip)
    if isinstance(mechanism, RescaledNormal):
        return lambda x: np.asarray(ndtr(x))
    assert isinstance(mechanism, Fisher)
    return lambda x: np.minimum(-2 * log_ndtr(x), -2 * math.log(mechanism.p_star))


def _z_scores() -> Floats:
    """Thresholds from -3 to 3, each seen by five data sets."""
    from scipy.special import ndtri

    return np.asarray(
        np.add.outer(np.linspace(-3, 3, 13), ndtri([0.1, 0.3, 0.5, 0.7, 0.9])).ravel()
    )


def _normal_grid() -> tuple[Floats, Floats]:
    xi = np.linspace(-9, 9, 9_001)
    weight = np.exp(-0.5 * xi * xi)
    return xi, weight / weight.sum()


def _normal_quantiles() -> Floats:
    from scipy.special import ndtri

    return np.asarray(ndtri(_LEVELS))


def _laplace_quantiles() -> Floats:
    low = np.log(2 * np.minimum(_LEVELS, 1 - _LEVELS))
    return np.asarray(np.where(_LEVELS < 0.5, low, -low))


def _phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))
