"""Is a set of probability transforms uniform? Ranks, Kolmogorov-Smirnov, coverage, bands.

If truth and data come from the model and `draws` are independent draws of the posterior, the
rank of the truth among them is uniform on 0, ..., L. Spread over its cell of width 1/(L + 1), it
is uniform on [0, 1] for every L, so trials with different numbers of draws can be put together.

References
----------
Cook, Gelman & Rubin (2006), doi:10.1198/106186006X136976. Talts, Betancourt, Simpson, Vehtari &
Gelman (2018), Validating Bayesian inference algorithms with simulation-based calibration,
arXiv:1804.06788. Säilynoja, Bürkner & Vehtari (2022), Graphical test for discrete uniformity and
its applications, doi:10.1007/s11222-022-10090-6.
Gretton, Borgwardt, Rasch, Schölkopf & Smola (2012), A kernel two-sample test, JMLR 13, 723-773.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import stats

from noisewise._arrays import FloatArray

LEVELS = (0.5, 0.8, 0.9, 0.95)


def effective_size(draws: FloatArray) -> float:
    """Effective number of independent draws of one parameter, (chains, draws), at most all."""
    import arviz

    if not np.isfinite(draws).all():
        raise ArithmeticError("draws are not finite")
    if np.ptp(draws) == 0:
        return 1.0
    size = float(arviz.ess(np.ascontiguousarray(draws), method="bulk"))
    return min(size, float(draws.size)) if np.isfinite(size) else 1.0


def thin(draws: FloatArray, count: int) -> FloatArray:
    """`count` draws evenly spaced over all chains, (chains, draws, ...) -> (count, ...)."""
    flat = draws.reshape(-1, *draws.shape[2:])
    if count >= len(flat):
        return flat
    return flat[(2 * np.arange(count) + 1) * len(flat) // (2 * count)]


def spread_rank(truth: float, draws: FloatArray, rng: np.random.Generator) -> float:
    """Rank of the truth among L draws, spread uniformly over its cell of [0, 1]."""
    return (int((draws < truth).sum()) + rng.uniform()) / (len(draws) + 1)


class Uniformity(NamedTuple):
    """The Kolmogorov-Smirnov test of uniformity."""

    ks: float  # largest distance between the empirical distribution function and the diagonal
    ks_error: float  # its standard error over trials, by bootstrap
    p_value: float  # exact for the number of trials


def uniformity_test(u: FloatArray, *, resamples: int = 200) -> Uniformity:
    """Test the hypothesis that `u` is uniform on [0, 1]."""
    result = stats.kstest(u, "uniform")
    rng = np.random.default_rng(len(u))  # the bootstrap's own; no outcome depends on it
    again = rng.choice(u, (resamples, len(u)))
    error = float(np.std([_distance(sample) for sample in again]))
    return Uniformity(float(result.statistic), error, float(result.pvalue))


def _distance(u: FloatArray) -> float:
    u, steps = np.sort(u), np.arange(len(u) + 1) / len(u)
    return float(max((steps[1:] - u).max(), (u - steps[:-1]).max()))


def coverage(u: FloatArray, level: float) -> float:
    """Share of trials whose central interval of this level holds the truth.

    Read off the spread ranks: under calibration its expectation is `level` however many draws
    there are, where an interval between sample quantiles of few draws would cover less.
    """
    return float(np.mean(np.abs(np.asarray(u) - 0.5) < level / 2))


def coverage_test(u: FloatArray, level: float) -> float:
    """Exact two-sided p-value of the hypothesis that intervals cover at this level.

    The Kolmogorov-Smirnov test hardly looks at the ends of the distribution; this one does.
    """
    covered = int((np.abs(np.asarray(u) - 0.5) < level / 2).sum())
    return float(stats.binomtest(covered, len(u), level).pvalue)


class Band(NamedTuple):
    """Simultaneous band for an empirical distribution function minus the diagonal."""

    z: FloatArray
    low: FloatArray
    high: FloatArray


@lru_cache(maxsize=64)
def ecdf_band(
    trials: int, *, level: float = 0.95, points: int = 100, simulations: int = 4000
) -> Band:
    """Band that holds the whole curve of `trials` uniform numbers with probability `level`.

    At each point the count below it is binomial. Pointwise intervals of level 1 - gamma are
    widened until they hold jointly: gamma is the quantile of the smallest pointwise p-value over
    simulated uniform samples (Säilynoja et al. 2022, section 2.2).
    """
    z = np.arange(1, points) / points
    rng = np.random.default_rng(trials)
    gamma = np.empty(simulations)
    for i in range(simulations):
        counts = np.searchsorted(np.sort(rng.uniform(size=trials)), z, side="right")
        below = stats.binom.cdf(counts, trials, z)
        above = stats.binom.sf(counts - 1, trials, z)
        gamma[i] = 2 * np.minimum(below, above).min()
    pointwise = float(np.quantile(gamma, 1 - level))
    low = stats.binom.ppf(pointwise / 2, trials, z) / trials - z
    high = stats.binom.isf(pointwise / 2, trials, z) / trials - z
    return Band(z, low, high)


def outside_band(u: FloatArray, *, level: float = 0.95) -> bool:
    """Whether the empirical distribution function leaves its simultaneous band."""
    band = ecdf_band(len(u), level=level)
    curve = np.searchsorted(np.sort(u), band.z, side="right") / len(u) - band.z
    return bool(((curve < band.low - 1e-12) | (curve > band.high + 1e-12)).any())


# --- maximum mean discrepancy ---------------------------------------------------------------------


_MEDIAN_FROM = 500  # draws that the median distance is taken from


def mmd2_unbiased(p: FloatArray, q: FloatArray, *, batch: int = 1000) -> float:
    """Unbiased estimate of the squared discrepancy; it can be negative when both laws agree.

    The kernel is exp(-|a - b|² / 2h²) on coordinates divided by their pooled standard deviation,
    h the median distance between pooled draws.

    Parameters
    ----------
    p, q : array, shapes (m, D) and (m', D)
        Independent draws, at least two of each.
    batch : int
        Rows of the kernel matrix that are in memory at a time.

    Returns
    -------
    float
    """
    pooled = np.concatenate([p, q])
    spread = pooled.std(axis=0)
    spread[spread == 0] = 1.0
    p, q, pooled = p / spread, q / spread, pooled / spread
    step = max(1, len(pooled) // _MEDIAN_FROM)
    some = pooled[::step]
    distances = _squared_distances(some, some)[np.triu_indices(len(some), 1)]
    width = max(float(np.median(distances)), 1e-300)
    within_p = (_kernel_sum(p, p, width, batch) - len(p)) / (len(p) * (len(p) - 1))
    within_q = (_kernel_sum(q, q, width, batch) - len(q)) / (len(q) * (len(q) - 1))
    return within_p + within_q - 2 * _kernel_sum(p, q, width, batch) / (len(p) * len(q))


def _kernel_sum(a: FloatArray, b: FloatArray, width: float, batch: int) -> float:
    return sum(
        float(np.exp(-_squared_distances(a[i : i + batch], b) / (2 * width)).sum())
        for i in range(0, len(a), batch)
    )


def _squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.maximum(squares, 0.0), dtype=np.float64)
