"""Average of clipped -2 log p_j, after Fisher's way of combining tests, with the right noise.

Each block contributes ψ(ξ) = min(-2 log Φ(ξ), -2 log p*); large averages speak for β > b. Reported
is the probability that the reference law, sampling and clipping and noise included, exceeds the
released average.

The reference law without the noise has known mean, variance and third cumulant, and is taken to be
the shifted gamma law with these (Pearson's type III): exact for r = 1 and p* → 0, where sums of
-2 log p_j are gamma; `tests/analyst/test_summaries.py` bounds the error elsewhere. With
ψ = μ + Aξ + R as in `partitions`, the sum over M blocks, averaged over r partitions, has

    variance   M (A² + (v - A²)/r),
    κ₃         M (3A² E[ξ²R] + 3A E[ξR²]/r + E[R³]/r²).

The first term of κ₃ stays because Σξ_j²R_j moves with z², which all partitions share; the others
average out like variances and third cumulants of independent variables.

References
----------
Amitai & Reiter (2018), doi:10.29012/jpc.686, section 2.2.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.summaries.partitions import Law

_REACH = 12.0  # of grids for expectations over a normal variable
_FINE, _COARSE = 24001, 4001


class Moments(NamedTuple):
    """Of one block's ψ = μ + Aξ + R, at b = β."""

    law: Law
    ssr: float  # E[ξ²R]
    srr: float  # E[ξR²]
    rrr: float  # E[R³]

    def skewness(self, blocks: int, partitions: int) -> float:
        """Skewness of the average over M blocks and r partitions."""
        A, r = self.law.slope, partitions
        third = 3 * A**2 * self.ssr + 3 * A * self.srr / r + self.rrr / r**2
        return third / math.sqrt(self.law.spread(r) ** 3 * blocks)


@lru_cache(maxsize=64)
def moments(p_star: float) -> Moments:
    """Moments of min(-2 log p, -2 log p*), p uniform."""
    from scipy.special import log_ndtr

    xi, weight = _normal_grid(_FINE)
    value = np.minimum(-2 * log_ndtr(xi), -2 * math.log(p_star))
    mean, slope = float(weight @ value), float(weight @ (value * xi))
    rest = value - mean - slope * xi
    variance = float(weight @ (value - mean) ** 2)
    higher = (float(weight @ product) for product in (xi**2 * rest, xi * rest**2, rest**3))
    return Moments(Law(mean, variance, slope), *higher)


def probability(
    average: Any, p_star: float, blocks: int, partitions: int, noise: float
) -> FloatArray:
    """P(β ≤ b) from noisy averages of min(-2 log p_j, -2 log p*); the rest as for `sign`."""
    found = moments(p_star)
    away = np.asarray(average, dtype=np.float64) - found.law.mean
    s = math.sqrt(found.law.spread(partitions) / blocks)
    skewness = found.skewness(blocks, partitions)
    if noise == 0:
        return _pearson_iii_exceeds(away / s, skewness)
    xi, weight = _normal_grid(_COARSE)
    reference = s * _pearson_iii(xi, skewness)
    flat = np.atleast_1d(away).ravel()
    out = np.empty(len(flat))
    for i, x in enumerate(flat):
        out[i] = weight @ _laplace_exceeds(x - reference, noise)
    return np.asarray(np.clip(out, 0.0, 1.0).reshape(away.shape))


@lru_cache(maxsize=2)
def _normal_grid(points: int) -> tuple[FloatArray, FloatArray]:
    """Points and weights of the trapezoidal rule against the normal density."""
    xi = np.linspace(-_REACH, _REACH, points)
    weight = np.exp(-0.5 * xi * xi)
    return xi, weight / weight.sum()


def _pearson_iii(xi: FloatArray, skewness: float) -> FloatArray:
    """Quantiles of the standardised gamma law with this skewness at the levels Φ(xi)."""
    from scipy.special import gammainccinv, gammaincinv, ndtr

    if abs(skewness) < 1e-6:
        return xi
    if skewness < 0:
        return -_pearson_iii(-xi, -skewness)
    shape = 4 / skewness**2
    low = gammaincinv(shape, ndtr(np.minimum(xi, 0.0)))
    high = gammainccinv(shape, ndtr(-np.maximum(xi, 0.0)))
    return np.asarray((np.where(xi < 0, low, high) - shape) / math.sqrt(shape))


def _pearson_iii_exceeds(x: FloatArray, skewness: float) -> FloatArray:
    """P(the standardised gamma law with this skewness > x)."""
    from scipy.special import gammaincc, ndtr

    if abs(skewness) < 1e-6:
        return np.asarray(ndtr(-x))
    if skewness < 0:
        return 1 - _pearson_iii_exceeds(-x, -skewness)
    shape = 4 / skewness**2
    return np.asarray(gammaincc(shape, np.maximum(shape + math.sqrt(shape) * x, 0.0)))


def _laplace_exceeds(x: FloatArray, noise: float) -> FloatArray:
    """P(Laplace(noise) > x)."""
    tail = 0.5 * np.exp(-np.abs(x) / noise)
    return np.where(x > 0, tail, 1 - tail)
