"""NOT PRIVATE: the protocol of the experiments of Alparslan, Yıldırım & Birbil (2023).

It is here to see whether their tables can be reproduced, and for nothing else. It lets the data
decide what must be public, and has the sensitivity of another neighbourhood than it claims:

- covariates are centred and divided by their standard deviations, the target is centred and divided
  by its largest absolute value, all from the data, test rows included;
- the bounds ‖X‖ and ‖Y‖ are the largest norms of the training rows;
- Δ_sz = √(‖X‖⁴ + ‖X‖²‖Y‖²) and Δ_ss = √(‖X‖⁴ + ‖X‖²‖Y‖² + ‖Y‖⁴) hold for adding or removing a row,
  while the paper's neighbours differ by replacing one;
- delta = 1/n.

There is no intercept. noisewise's samplers have one, so it is tied to zero by its prior, together
with the means of the covariates; sums are taken for not released (or for drowned in noise, where a
method wants all of them). What remains is the paper's model: X'X is Wishart with n degrees of
freedom.

What the paper leaves open is settled by the authors' public code (sinanyildirim/
Bayesian_DP_dist_LR): the first 80% of the rows train, in the file's order, and holders have
consecutive shares; prior a = 20, b = 1/2, κ = d + 1, Λ = V'V with V standard normal. The prior
covariance of theta is C = b/(a - 1) I in the paper and in the code's first version, and its inverse
in the last one; only the first gives the paper's numbers. Their noise multiplier has √ε u where
Balle & Wang (2018) have √(εu): less than half of the noise that (1, 1/n) needs.

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778. Balle & Wang (2018), arXiv:1805.06530. Wang (2018),
arXiv:1803.02596.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, NormalInverseGammaIndependent
from noisewise.core.calibration import gaussian_noise_multiplier
from noisewise.core.errors import RequestError
from studies.alparslan2023.data import training_rows, with_noise

Multiplier = Literal["right", "theirs"]
DROWNED = 1e6  # standard deviation of noise on sums that are not released
TIED = 1e8  # prior precision that holds a parameter at 0
SHAPE, SCALE = 20.0, 0.5  # of the inverse gamma prior of the error variance
FAILURE = 0.05  # of adaSSP's bounds


class Task(NamedTuple):
    """Training and test rows, all that a run needs."""

    x: FloatArray  # (n, k)
    y: FloatArray  # (n,)
    x_test: FloatArray
    y_test: FloatArray


def normalise(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The paper's covariates and target, from the data. NOT PRIVATE."""
    x, y = rows[:, :-1], rows[:, -1]
    y = y - y.mean()
    return (x - x.mean(axis=0)) / x.std(axis=0, ddof=1), y / np.abs(y).max()


def paper_task(rows: FloatArray) -> Task:
    """The paper's split: the first 80% of the rows train. NOT PRIVATE."""
    x, y = normalise(rows)
    n = training_rows(len(y))
    return Task(x[:n], y[:n], x[n:], y[n:])


# --- noise ----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def noise_multiplier(epsilon: Fraction, delta: Fraction, which: Multiplier) -> float:
    """Standard deviation of the noise for sensitivity one."""
    if which == "right":
        return gaussian_noise_multiplier(epsilon, delta)
    if which == "theirs":
        return their_noise_multiplier(float(epsilon), float(delta))
    raise RequestError(f"multiplier: {which!r} is unknown; use right or theirs")


def their_noise_multiplier(epsilon: float, delta: float) -> float:
    """What the authors' file computes: too small, see the top of this module. NOT PRIVATE."""
    from scipy.optimize import brentq
    from scipy.special import ndtr

    def excess(u: float, sign: float) -> float:
        first = ndtr(sign * math.sqrt(epsilon) * u)
        return float(first - math.exp(epsilon) * ndtr(-math.sqrt(epsilon * (u + 2))) - delta)

    threshold = float(ndtr(0.0) - math.exp(epsilon) * ndtr(-2 * math.sqrt(epsilon)))
    sign = 1.0 if delta >= threshold else -1.0
    high = 1.0
    while excess(0.0, sign) * excess(high, sign) > 0:
        high += 1.0
    u = float(brentq(excess, 0.0, high, args=(sign,), xtol=1e-12))
    return (math.sqrt(1 + u / 2) - sign * math.sqrt(u / 2)) / math.sqrt(2 * epsilon)


@dataclass(frozen=True)
class Mechanism:
    """The paper's Gaussian mechanism. NOT PRIVATE: its bounds come from the data.

    Parameters
    ----------
    bound_x, bound_y : float
        Largest norms of rows.
    epsilon, delta : Fraction
    which : {"right", "theirs"}
        The noise multiplier.
    """

    bound_x: float
    bound_y: float
    epsilon: Fraction
    delta: Fraction
    which: Multiplier = "right"

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray, epsilon: Fraction, which: Multiplier) -> Mechanism:
        """With bounds and delta = 1/n from the rows, as in the paper."""
        largest = float(np.sqrt((x**2).sum(axis=1).max()))
        return cls(largest, float(np.abs(y).max()), epsilon, Fraction(1, len(y)), which)

    @property
    def sd_sz(self) -> float:
        """Noise on X'X and X'y, add or remove a row."""
        square = self.bound_x**4 + (self.bound_x * self.bound_y) ** 2
        return self.multiplier() * math.sqrt(square)

    @property
    def sd_ss(self) -> float:
        """Noise on X'X, X'y and y'y, add or remove a row."""
        square = self.bound_x**4 + (self.bound_x * self.bound_y) ** 2 + self.bound_y**4
        return self.multiplier() * math.sqrt(square)

    def multiplier(self, share: Fraction = Fraction(1)) -> float:
        """The multiplier for a share of epsilon and delta."""
        return noise_multiplier(self.epsilon * share, self.delta * share, self.which)


# --- releases, on which noisewise's methods can be run --------------------------------------------


def release(
    grams: Sequence[FloatArray], sd: float, with_y_squares: bool, rng: np.random.Generator
) -> list[Observation]:
    """Noisy X'X and X'y (and y'y) of each holder, without an intercept."""
    observations = []
    for A in grams:
        scale = np.full(A.shape, sd)
        scale[0, 1:] = scale[1:, 0] = DROWNED
        scale[0, 0] = 0.0
        if not with_y_squares:
            scale[-1, -1] = np.inf
        values = with_noise(A, scale, rng)
        values[0, 1:] = values[1:, 0] = 0.0
        observations.append(Observation(round(float(A[0, 0])), values, scale, "gaussian"))
    return observations


class Priors(NamedTuple):
    """The paper's priors, with everything about the intercept tied to zero."""

    regression: NormalInverseGammaIndependent
    conjugate: NIGPrior  # of MCMC-B&S: C is a precision in units of 1 / sigma2 there
    covariates: NIWPrior


def paper_priors(
    Lam: FloatArray,
    variance: float = SCALE / (SHAPE - 1),
    *,
    shape: float = SHAPE,
    scale: float = SCALE,
    conjugate_precision: float = SCALE / (SHAPE - 1),
) -> Priors:
    """The paper's priors for d covariates, Λ = `Lam` (d, d), theta ~ N(0, `variance` I).

    MCMC-B&S has theta ~ N(0, sigma2 / `conjugate_precision` I) given sigma2.
    """
    d = len(Lam)
    V0 = np.diag(np.append(1.0 / TIED, np.full(d, variance)))
    Lam0 = np.diag(np.append(TIED, np.full(d, conjugate_precision)))
    return Priors(
        NormalInverseGammaIndependent(np.zeros(d + 1), V0, shape, scale),
        NIGPrior(np.zeros(d + 1), Lam0, shape, scale),
        NIWPrior(np.zeros(d), TIED, Lam, d + 1.0),
    )


def random_scale_matrix(d: int, rng: np.random.Generator) -> FloatArray:
    """Λ = V'V, V standard normal."""
    V = rng.standard_normal((d, d))
    return np.asarray(V.T @ V, dtype=np.float64)


def paper_ada_ssp(
    grams: Sequence[FloatArray], mechanism: Mechanism, rng: np.random.Generator
) -> FloatArray:
    """adaSSP for J holders, appendix C.2 as the authors' code has it: theta without intercept.

    A third of epsilon and delta each for X'X, X'y and the smallest eigenvalue. The appendix
    subtracts ln(6/δ) σ v where Wang (2018) and the code have ln(6/δ) σ.
    """
    d = len(grams[0]) - 2
    S_all, z_all, penalty = np.zeros((d, d)), np.zeros(d), 0.0
    level = math.log(6 / float(mechanism.delta))
    sigma = mechanism.bound_x**2 / float(mechanism.epsilon / 3)
    third = mechanism.multiplier(Fraction(1, 3))
    for A in grams:
        S, z = A[1:-1, 1:-1], A[1:-1, -1]
        lowest = float(np.linalg.eigvalsh(S)[0])
        lowest = max(lowest + math.sqrt(level) * sigma * rng.standard_normal() - level * sigma, 0.0)
        width = sigma * math.sqrt(d * level * math.log(2 * d**2 / FAILURE))
        penalty += max(0.0, width - lowest)
        S_all = S_all + with_noise(S, np.full(S.shape, third * mechanism.bound_x**2), rng)
        noise = third * mechanism.bound_x * mechanism.bound_y * rng.standard_normal(d)
        z_all = z_all + z + noise
    theta = np.linalg.solve(S_all + penalty * np.eye(d), z_all)
    return np.asarray(theta, dtype=np.float64)
