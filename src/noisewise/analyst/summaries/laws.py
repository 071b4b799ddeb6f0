"""Laws of what blocks release, one a mechanism: P(β ≤ b), quantiles and intervals from it.

The first four mechanisms release averages over blocks, the others locations and quantiles.

**Repeated partitions**

How much r repeated partitions narrow an average over blocks.

Let ξ_j be the standardised estimate of block j at b = β, standard normal, and ψ(ξ_j) what the block
contributes, with variance v and A = Cov(ψ(ξ), ξ). The full data's z-score is Σ_j ξ_j/√M whatever
the partition, so that ψ = E ψ + A ξ + R, R uncorrelated with ξ, splits the average of one partition
into A z/√M, the same for all partitions, and the average of R, of variance (v - A²)/M.

In two partitions drawn independently, two blocks share about n/M² rows, so their ξ have
correlation 1/M, and R has no linear part: Cov(R, R') is at most of order 1/M² for each of the M²
pairs, hence of relative order 1/M for the sums. Up to that order the R of r partitions average out
like r independent ones, and the average of all of them has M times the variance

    v_r = A² + (v - A²)/r.

`tests/analyst/test_summaries.py` compares it with partitions of rows.

**sign**

Average of sign(b - β̂_j): how many blocks have their estimate below b.

At b = β the sign is ±1 with equal probabilities as long as β̂_j has median β: v = 1. (It has if
the errors' law is symmetric. With skewness γ it is γM/6√n standard errors off, so that √n/M should
be large.) Its covariance with ξ is A = E|ξ| = √(2/π). No block needs a standard error, so
heteroscedastic errors are accounted for without a word. Released is the average plus noise;
reported is the probability that what sampling and noise add to zero falls below it,

    P(β ≤ b) = F_NL(average; √(v_r/M), noise).

**stouffer**

Average of clipped z-scores, clip(Φ⁻¹(p_j), ±c), after Stouffer's way of combining tests.

At b = β the p_j are uniform and w = Φ⁻¹(p_j) is standard normal. With a = 2Φ(c) - 1,

    A = E[ξ clip(ξ)] = P(|ξ| < c) = a,
    v = E[clip(ξ)²] = a - 2cφ(c) + c²(1 - a),

the first by Stein's identity (A = E ψ'), the second from ∫_{-c}^{c} x²φ = a - 2cφ(c). Reported is
F_NL(average; √(v_r/M), noise).

**rescaled_normal**

Average of the blocks' own probabilities p_j = P(β ≤ b | block j), with the right noise.

At b = β the p_j are uniform: mean 1/2, v = 1/12, and A = E φ(ξ) = 1/(2√π). Reported is

    P(β ≤ b) = F_NL(average - 1/2; √(v_r/M), noise).

`rescaled_normal_plug_in` is the paper's equation 2.10 with its multiplier corrected. Given the full
data's z-score, ξ_j is N(z/√M, 1 - 1/M), so that E p̄ = E Φ(ξ_j) = Φ(z/√M / √(2 - 1/M)): the z-score
is √(2M - 1) Φ⁻¹(p̄), not √M Φ⁻¹(p̄). It ignores the noise, which may even push the average out of
(0, 1) with probability exp(-Mε/2)/2 on either side at z = 0; it is then 0 or 1.

**fisher**

Average of clipped -2 log p_j, after Fisher's way of combining tests, with the right noise.

Each block contributes ψ(ξ) = min(-2 log Φ(ξ), -2 log p*); large averages speak for β > b. Reported
is the probability that the reference law, sampling and clipping and noise included, exceeds the
released average.

The reference law without the noise has known mean, variance and third cumulant, and is taken to be
the shifted gamma law with these (Pearson's type III): exact for r = 1 and p* → 0, where sums of
-2 log p_j are gamma; `tests/analyst/test_summaries.py` bounds the error elsewhere. With
ψ = μ + Aξ + R as above, the sum over M blocks, averaged over r partitions, has

    variance   M (A² + (v - A²)/r),
    κ₃         M (3A² E[ξ²R] + 3A E[ξR²]/r + E[R³]/r²).

The first term of κ₃ stays because Σξ_j²R_j moves with z², which all partitions share; the others
average out like variances and third cumulants of independent variables.

**location_scale**

A private median of the blocks' estimates and one of their scales: every b, every quantile.

The location is the median of β̂_j; the scale is the full data's posterior standard deviation, from
the median of |β̂_j - location| (with the flat posterior) or of √(v_j/M); all by the exponential
mechanism. In units of that standard deviation,

- the average over partitions of the median of M normal variables of standard deviation √M has
  variance v_r/A² of `sign`, which is 1 + (π/2 - 1)/r: a median is where the average of signs is
  zero, and moves by the inverse of its slope;
- the mechanism draws a rank in error by Laplace(2/ε_l) of M blocks, since the utility is minus the
  distance in ranks and has sensitivity 1; around the median there are Mφ(0)/√M blocks a unit, so
  that is Laplace(2/(ε_l φ(0) √M)).

Hence P(β ≤ b) = F_NL((b - location)/scale; √(1 + (π/2 - 1)/r), 2/(ε_l φ(0) √M)), and quantiles are
location + scale F_NL⁻¹(p), which never cross. The scale is taken at face value: its own error, some
per cent at ε_s M = 80, is not in the law.

**mean**

The mean of the blocks' estimates within a range, and their mean distance from its middle.

With u_j = (β̂_j - c)/h clipped to ±1, c and h being the range's middle and half-width, both
released are averages of u and of |u| over blocks. The estimate is c + h ū. If the range is wide, ū
is the mean of M estimates, nearly normal by the central limit theorem whatever the law of one, and
its standard deviation follows from their mean distance: √(π/2) h |u|‾ /√M, exact for normal
estimates (a little less than the true one for heavy tails, 8% for exponential ones, and more than
it where blocks lack an estimate). Hence P(β ≤ b) = F_NL(b - c - hū; √(π/2) h |u|‾/√M, h λ), λ
being the Laplace scale on ū. Repeated partitions make it a little conservative.

**clipped_mean**

Average over blocks of clipped posterior quantiles, with public bounds.

Each block gives its p-quantile of the posterior with the likelihood to the power M, which is as
wide as that of all rows, clipped to public bounds. With ends so wide that they clip nothing the
average is the full posterior's quantile Q(p) up to terms of order 1/n_j (Li, Srivastava & Dunson
2017), and released is Q(p) + Laplace(noise).

`clipped_mean_interval` accounts for the noise. Say β ~ N(m, σ²) is the full posterior and two
quantiles m + σ z_1 and m + σ z_2 are released with noise. Their difference estimates σ, and given σ
the location is a released number minus σ z plus Laplace noise, so that β - released + σ z is
N(0, σ²) + Laplace(noise), and the end that leaves p below itself is released - σ z + F_NL⁻¹(p).

References
----------
Amitai & Reiter (2018), doi:10.29012/jpc.686, sections 2.1 (rescaled_normal), 2.2 (fisher) and 4.
Stouffer, Suchman, DeVinney, Star & Williams (1949), The American Soldier, volume 1. Li, Srivastava
& Dunson (2017), doi:10.1093/biomet/asx033.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core import normal_laplace

_Z = NormalDist().inv_cdf
_REACH = 12.0  # of grids for expectations over a normal variable
_FINE, _COARSE = 24001, 4001


class Law(NamedTuple):
    """First moments of what one block contributes, at b = β."""

    mean: float
    variance: float
    slope: float  # A = Cov(ψ(ξ), ξ), which is also E ψ'(ξ): what the average moves when b does

    def spread(self, partitions: int) -> float:
        """v_r, M times the variance of the average over M blocks and r partitions."""
        common = self.slope**2
        return common + (self.variance - common) / partitions

    def below(self, average: Any, blocks: int, partitions: int, noise: float) -> FloatArray:
        """P(β ≤ b) from noisy averages that are nearly normal.

        `average` are released sums divided by the number of blocks of all partitions, and `noise`
        is the Laplace scale in the same units.
        """
        s = math.sqrt(self.spread(partitions) / blocks)
        return normal_laplace.cdf(np.asarray(average, dtype=np.float64) - self.mean, s, noise)


SIGN_LAW = Law(mean=0.0, variance=1.0, slope=math.sqrt(2 / math.pi))
RESCALED_NORMAL_LAW = Law(mean=0.5, variance=1 / 12, slope=1 / (2 * math.sqrt(math.pi)))


def stouffer_law(clip: float) -> Law:
    """Moments of one block's clipped z-score."""
    inside = math.erf(clip / math.sqrt(2))
    density = math.exp(-0.5 * clip * clip) / math.sqrt(2 * math.pi)
    return Law(0.0, inside - 2 * clip * density + clip * clip * (1 - inside), inside)


def rescaled_normal_plug_in(average: Any, blocks: int) -> FloatArray:
    """Φ(√(2M - 1) Φ⁻¹(average)), which takes the noisy average at face value."""
    from scipy.special import ndtr, ndtri

    inside = np.clip(np.asarray(average, dtype=np.float64), 0.0, 1.0)
    return np.asarray(ndtr(math.sqrt(2 * blocks - 1) * ndtri(inside)))


# --- fisher -----------------------------------------------------------------------------------


class FisherMoments(NamedTuple):
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
def fisher_moments(p_star: float) -> FisherMoments:
    """Moments of min(-2 log p, -2 log p*), p uniform."""
    from scipy.special import log_ndtr

    xi, weight = _normal_grid(_FINE)
    value = np.minimum(-2 * log_ndtr(xi), -2 * math.log(p_star))
    mean, slope = float(weight @ value), float(weight @ (value * xi))
    rest = value - mean - slope * xi
    variance = float(weight @ (value - mean) ** 2)
    higher = (float(weight @ product) for product in (xi**2 * rest, xi * rest**2, rest**3))
    return FisherMoments(Law(mean, variance, slope), *higher)


def fisher(average: Any, p_star: float, blocks: int, partitions: int, noise: float) -> FloatArray:
    """P(β ≤ b) from noisy averages of min(-2 log p_j, -2 log p*); the rest as for `Law.below`."""
    found = fisher_moments(p_star)
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


# --- medians and quantiles ----------------------------------------------------------------------


class Reference(NamedTuple):
    """The law of (β - location)/scale: normal with this standard deviation, plus Laplace noise."""

    s: float
    noise: float


def median_law(blocks: int, partitions: int, epsilon_location: float) -> Reference:
    """Sampling and noise, in units of the full data's posterior standard deviation."""
    density = 1 / math.sqrt(2 * math.pi)
    noise = 2 / (epsilon_location * density * math.sqrt(blocks))
    return Reference(math.sqrt(1 + (math.pi / 2 - 1) / partitions), noise)


def median_probability(b: Any, location: Any, scale: Any, law: Reference) -> FloatArray:
    """P(β ≤ b)."""
    with np.errstate(over="ignore", divide="ignore"):  # a wild scale, or hardly any epsilon
        away = (np.asarray(b, dtype=np.float64) - location) / scale
        return normal_laplace.cdf(away, *law)


def median_quantile(p: Any, location: Any, scale: Any, law: Reference) -> FloatArray:
    """The p-quantile of β."""
    with np.errstate(over="ignore", divide="ignore"):
        return np.asarray(location + scale * normal_laplace.ppf(p, *law))


def posterior_sd(low: float, high: float, p_low: float, p_high: float) -> float:
    """σ from two released quantiles; zero where the noise has turned them round."""
    return max(0.0, (high - low) / (_Z(p_high) - _Z(p_low)))


def clipped_mean_interval(
    low: float, high: float, p_low: float, p_high: float, noise: float
) -> tuple[float, float]:
    """The ends that leave `p_low` below and `1 - p_high` above, noise included.

    Where the noise has turned even these round, the smaller one comes first.
    """
    sd = posterior_sd(low, high, p_low, p_high)
    ends = (
        released - sd * _Z(p) + float(normal_laplace.ppf(p, sd, noise))
        for released, p in ((low, p_low), (high, p_high))
    )
    first, second = sorted(ends)
    return first, second
