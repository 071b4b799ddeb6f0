"""How well chains agree, and how many independent draws they are worth.

Rank-normalised split R-hat, and effective draws of the middle, of the tails and of a mean: Vehtari,
Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization, folding, and localization, Bayesian
Analysis 16, 667-718. The numbers are ArviZ's, whose import alone takes longer than a small fit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray


def rhat(draws: FloatArray) -> float:
    """Of draws (chains, draws): the larger one of those for location and for scale."""
    halves = _halves(draws)
    return max(_rhat(_scores(halves)), _rhat(_scores(np.abs(halves - np.median(halves)))))


def effective_draws(draws: FloatArray) -> float:
    """Effective draws (chains, draws) of the middle or of the ends, whichever are fewer."""
    low, high = np.quantile(draws, [0.05, 0.95])
    return min(effective_in_bulk(draws), *(effective_for_mean(draws <= q) for q in (low, high)))


def effective_in_bulk(draws: FloatArray) -> float:
    """Of draws (chains, draws), for where the middle is."""
    return _effective(_scores(_halves(draws)))


def effective_for_mean(draws: NDArray[Any]) -> float:
    """Of draws (chains, draws), for their mean."""
    return _effective(_halves(np.asarray(draws, dtype=np.float64)))


def _halves(draws: FloatArray) -> FloatArray:
    """Each chain as two; of an odd number the draw in the middle is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _scores(draws: FloatArray) -> FloatArray:
    """Normal scores of the ranks, with the mean rank where draws are equal."""
    from scipy.special import ndtri

    _, which, counts = np.unique(draws, return_inverse=True, return_counts=True)
    rank = np.cumsum(counts) - (counts - 1) / 2
    scores: FloatArray = ndtri((rank - 0.375) / (draws.size + 0.25))[which].reshape(draws.shape)
    return scores


def _rhat(draws: FloatArray) -> float:
    length = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean()
    between = length * draws.mean(axis=1).var(ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sqrt((between / within + length - 1) / length))


def _effective(draws: FloatArray) -> float:
    """From autocorrelations, added up by Geyer's initial monotone sequence of pairs."""
    chains, length = draws.shape
    if np.ptp(draws) < 1e-15:
        return float(draws.size)
    means = draws.mean(axis=1)
    spectrum = np.fft.rfft(draws - means[:, None], n=1 << (2 * length - 1).bit_length())
    power = (spectrum * spectrum.conj()).real.mean(axis=0)
    covariance = np.fft.irfft(power)[:length] / length
    total = covariance[0] + (means.var(ddof=1) if chains > 1 else 0.0)
    correlation = 1 - (covariance[0] * length / (length - 1) - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    last = max((length - 3) // 2, 0)
    if not (pairs[:last] > 0).all():
        last = int(np.argmin(pairs[:last] > 0))
    time = 2 * np.minimum.accumulate(pairs[:last]).sum() - 1 + max(correlation[2 * last], 0.0)
    return float(draws.size / max(time, 1 / math.log10(draws.size)))
