"""How many blocks and partitions, how to divide the budget, and what accuracy to expect.

From public quantities only, before anything is spent.

**Blocks.** The noise on a mean over M blocks is 1/M of a block's range, so more blocks mean less
noise, until the sampling error of M estimates, which more blocks don't change, outweighs it: there
κ = ε √M matters. Blocks need rows, though: with fewer than 30, or 15 a coefficient, regressions are
often degenerate (100, or 30 a coefficient, with models that aren't lines). Hence

    M = min(max(⌈C/ε²⌉, 100), ⌊n / max(30, 15 K)⌋),

K the coefficients and ε the budget of one entry, divided by the rows that a unit may own. Beyond
C = 1000 nothing is gained (κ ≈ 30); for `mean`, whose range is wider than that of a sign, beyond
5000. With κ below 4 the noise drowns the answer, and the request warns.

**Skewness.** Signs and medians of blocks are off by γM/6√n standard errors, γ being the skewness of
one row's influence on the coefficient, and so is everything that takes a block's posterior for
symmetric. With these, M is at most √n, too (or what a private median needs, if that is more), which
leaves γ/6: little for mild skewness, and too much for strong one. The mean of the estimates
(`mean`) has no such bias and is the default wherever ε M is enough for it.

**Partitions.** They cost no privacy, only time. A median or a sign forgets how far an estimate is
from the threshold, so the chance of one partition is most of what they lose, and 30 partitions
average it out. Nearly linear ψ (`stouffer`, `rescaled_normal`, `fisher`) are the same in all
partitions up to a few per cent; one does.

**Medians.** The scale needs less than the location: ε_s = max(ε/10, 80/M), the rest for the
location, which needs ε_l M ≥ 80. Below that the base law shows through: cells beyond all blocks
weigh exp(-εM/4) of those in the middle, but there are many more of them. With εM = 50 two or four
draws of a thousand are wild (a scale off by any factor), with 80 about three of a million.

**Means.** Location and median distance only say where to clip, and a wild one makes the answer
wide, seldom wrong; but then it is useless, and the epsilon is spent. ε_l = max(ε/20, 80/M) and
ε_s = max(ε/20, 60/M) make that rare: the location's cells are even in the coefficient (with a base
law that is 300 times as wide as the blocks' estimates it is wild twice in 100,000 draws), and those
of distances are even in its logarithm (too large 1 to 5 times in 100,000, too small 2 to 5 times in
a million; the analyst is warned of either). The range ends where c = 6.5 standard deviations would
be if distances were normal, at c/Φ⁻¹(3/4) medians: at 5.5 and 4.8 true ones for blocks of 30 rows
with exponential and lognormal covariates and skewed errors, where clipping moves the mean by .01
and .18 standard errors if M = 1000. What is left goes to the sums, which need ε M ≥ 120: their
noise is 2c/(ε√M) standard errors.

**Accuracy.** Let z be the z-score of the threshold given all rows, so that the exact answer is
Φ(z). Block estimates in their own units are then N(z/√M, 1), up to the condition that they average
to z/√M. With ψ = μ + A ξ + rest at z = 0, the mean over all blocks has expectation E ψ(ξ + z/√M),
variance (v - A²)/(r M) given z, and Laplace noise on top; the analyst reads it as
F_NL(± (mean - μ); √((A² + (v - A²)/r)/M), noise scale).

The expected error is integrated over grids of quantiles of all these laws, for thresholds -3 to
3 standard errors away from the true coefficient (so z has a standard normal part). Real blocks have
few rows and their errors are not normal: this is an optimist's number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from noisewise.core import normal_laplace
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import (
    LINE,
    MAX_BLOCKS,
    MAX_REGRESSIONS,
    Asking,
    ClippedMean,
    Fisher,
    Model,
    RescaledNormal,
    Sign,
    Stouffer,
)
from noisewise.holder.blocks.sums import limb_count
from noisewise.holder.rows import Floats

WEAK_KAPPA = 4.0
MEMORY_AIM = 1 << 30
MEMORY_LIMIT = 1 << 32
REPEATED = ("sign", "location_scale", "clipped_mean", "mean")
UNSKEWED = ("mean", "clipped_mean")  # averages of estimates, which skewness does not bias
SCALE_RANKS, LOCATION_RANKS = 80, 80
RANGE_RANKS = (80, 60)  # of the location and the median distance of `mean`
SUM_RANKS = 120
TAIL = 0.5  # of the distances: their median, which is as far from either end as can be
CLIP_AT = 6.5  # standard deviations of normal estimates
USEFUL, USEFUL_FOR_MEAN = 1000, 5000


def least_rows(coefficients: int, model: Model = LINE) -> int:
    """Rows that a block should have; its halves are fitted, too, by models other than a line."""
    if model.is_least_squares:
        return max(30, 15 * coefficients)
    return max(100, 30 * coefficients)


def default_blocks(
    mechanism: str, rows: int, epsilon: Fraction, coefficients: int, model: Model = LINE
) -> int:
    """M for a public number of rows.

    `epsilon` is that of one entry, divided by the rows that a unit may own, and `coefficients`
    their number with the intercept.
    """
    useful = USEFUL_FOR_MEAN if mechanism == "mean" else USEFUL
    most = rows if mechanism in UNSKEWED else math.isqrt(rows)
    if mechanism == "location_scale":
        most = max(most, math.ceil((SCALE_RANKS + LOCATION_RANKS) / epsilon))
    least = least_rows(coefficients, model)
    return min(_blocks(useful, rows, epsilon, least), max(2, most))


def former_blocks(rows: int, epsilon: Fraction, coefficients: int) -> int:
    """M as it was before skewness was looked at: what the same words once meant."""
    return _blocks(USEFUL, rows, epsilon, least_rows(coefficients))


def _blocks(useful: int, rows: int, epsilon: Fraction, least: int) -> int:
    affordable = rows // least
    if affordable < 2:
        raise RequestError(
            f"rows: {rows:,} rows are too few for blocks of {least}; block "
            "summaries need thousands of rows, so use `noisewise release` with public bounds"
        )
    return min(max(100, math.ceil(useful / epsilon**2)), affordable, MAX_BLOCKS)


def default_partitions(mechanism: str, blocks: int, coefficients: int) -> int:
    """r, with less than a gigabyte of sums."""
    if mechanism not in REPEATED:
        return 1
    halves = 2 if mechanism == "mean" else 1
    bytes_each = 8 * halves * blocks * limb_count(coefficients)
    return max(1, min(30, MEMORY_AIM // bytes_each, MAX_REGRESSIONS // blocks))


def kappa(epsilon: Fraction, blocks: int) -> float:
    """ε √M: how far the signal is above the noise."""
    return float(epsilon) * math.sqrt(blocks)


def best_clip(kappa: float) -> float:
    """The c of `stouffer` that minimises v/A² - 1 + 8 c²/(A² κ²), to two digits.

    That is the variance of the answer beyond what sampling all rows has, in its own units: from
    clipping, and from Laplace noise of scale 2c/(Mε).
    """
    kappa = max(kappa, 1e-6)  # below, only the noise counts; its square must not vanish

    def cost(c: float) -> float:
        inside = math.erf(c / math.sqrt(2))
        density = math.exp(-0.5 * c * c) / math.sqrt(2 * math.pi)
        variance = inside - 2 * c * density + c * c * (1 - inside)
        return float((variance + 8 * c * c / kappa**2) / inside**2)

    return min((k / 100 for k in range(5, 401)), key=cost)


def median_epsilons(
    epsilon: Fraction, blocks: int, rows_per_unit: int, coefficients: int
) -> tuple[Fraction, Fraction]:
    """ε_l and ε_s of one coefficient, or a refusal.

    `epsilon` is for this coefficient; the number of `coefficients` decides how many rows a block
    needs.
    """
    scale = max(epsilon / 10, Fraction(SCALE_RANKS * rows_per_unit, blocks))
    location = epsilon - scale
    if location * blocks < LOCATION_RANKS * rows_per_unit:
        needed = math.ceil((SCALE_RANKS + LOCATION_RANKS) * rows_per_unit / epsilon)
        raise RequestError(
            f"epsilon: {float(epsilon):g} for each coefficient is too little for private medians "
            f"of {blocks:,} blocks; that takes {needed:,} blocks (and so at least "
            f"{least_rows(coefficients) * needed:,} rows), more epsilon, or fewer coefficients"
        )
    return location, scale


class MeanShares(NamedTuple):
    """How `mean` divides the epsilon of one coefficient, and where it clips."""

    location: Fraction
    distance: Fraction
    sums: Fraction
    tail: float
    reach: float


def mean_affordable(epsilon: Fraction, blocks: int) -> bool:
    """Whether `mean` has enough; epsilon is of one coefficient and one row of a unit."""
    return epsilon * blocks >= sum(RANGE_RANKS) + SUM_RANKS


def mean_shares(epsilon: Fraction, blocks: int, rows_per_unit: int) -> MeanShares:
    """The shares of one coefficient's epsilon, or a refusal."""
    from statistics import NormalDist

    each = Fraction(rows_per_unit, blocks)
    if not mean_affordable(epsilon / rows_per_unit, blocks):
        needed = math.ceil((sum(RANGE_RANKS) + SUM_RANKS) * rows_per_unit / epsilon)
        raise RequestError(
            f"epsilon: {float(epsilon):g} for each coefficient is too little for the mean of "
            f"{blocks:,} blocks; that takes {needed:,} blocks, more epsilon, or fewer coefficients"
        )
    location, distance = (max(epsilon / 20, ranks * each) for ranks in RANGE_RANKS)
    # A short number in the Release; where it clips is free.
    reach = round(CLIP_AT / NormalDist().inv_cdf(1 - TAIL / 2), 3)
    return MeanShares(location, distance, epsilon - location - distance, TAIL, reach)


# --- what accuracy to expect ----------------------------------------------------------------------

ALWAYS_HALF = 0.41  # the same error for an answer of 1/2, whatever the data
_LEVELS = (np.arange(49) + 0.5) / 49


def probability_error(mechanism: Asking, blocks: int, partitions: int, noise: float) -> float:
    """Root mean square error of the answer against the exact posterior probability.

    `noise` is the Laplace scale on the mean of ψ over all blocks.
    """
    psi = _psi(mechanism)
    xi = np.linspace(-9, 9, 9_001)  # of a standard normal variable
    weight = np.exp(-0.5 * xi * xi)
    weight /= weight.sum()
    values = psi(xi)
    mean, slope = float(weight @ values), float(weight @ (values * xi))  # μ and A
    variance = float(weight @ (values - mean) ** 2)
    rest = max(variance - slope**2, 0.0) / partitions
    away = _normal_quantiles()[:, None] * math.sqrt(rest / blocks) + noise * _laplace_quantiles()

    def seen(z: float) -> Floats:
        centre = float(weight @ psi(xi + z / math.sqrt(blocks))) - mean
        return np.asarray(np.copysign(1.0, slope) * (centre + away))

    return _root_mean_square(seen, math.sqrt((slope**2 + rest) / blocks), noise)


def median_error(blocks: int, partitions: int, epsilon: float) -> float:
    """The same for `location_scale`; `epsilon` is the location's, for one row of a unit."""
    rest = (math.pi / 2 - 1) / partitions
    noise = 2 * math.sqrt(2 * math.pi) / (epsilon * math.sqrt(blocks))
    away = _normal_quantiles()[:, None] * math.sqrt(rest) + noise * _laplace_quantiles()
    return _root_mean_square(lambda z: z - away, math.sqrt(1 + rest), noise)


def mean_error(blocks: int, epsilon: float) -> float:
    """The same for `mean`; `epsilon` is that of the sums, for one row of a unit."""
    noise = 2 * CLIP_AT / (epsilon * math.sqrt(blocks))
    away = noise * _laplace_quantiles()
    return _root_mean_square(lambda z: z - away, 1.0, noise)


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


def _root_mean_square(seen: Callable[[float], Floats], spread: float, noise: float) -> float:
    """Of F_NL(seen) - Φ(z), over `_z_scores`."""
    squares = [
        np.mean((normal_laplace.cdf(seen(z), spread, noise) - 0.5 * math.erfc(-z / 2**0.5)) ** 2)
        for z in _z_scores().tolist()
    ]
    return float(np.sqrt(np.mean(squares)))


def _normal_quantiles() -> Floats:
    from scipy.special import ndtri

    return np.asarray(ndtri(_LEVELS))


def _laplace_quantiles() -> Floats:
    low = np.log(2 * np.minimum(_LEVELS, 1 - _LEVELS))
    return np.asarray(np.where(_LEVELS < 0.5, low, -low))
