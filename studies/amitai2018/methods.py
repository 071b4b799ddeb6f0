"""Every way to a private P(slope ≤ b) from blocks: the paper's, the paper's repaired, and ours.

All are given the same blocks of the same rows. Noise comes from a seeded generator, because this is
a study of simulated rows; its laws are those of the mechanisms.

==================== ==============================================================================
normal_printed       NOT PRIVATE. Equation 2.10: mean of p_j, noise of scale ε/M, multiplier √M
fisher_printed       NOT PRIVATE. Equation 2.13: sum of -2 log p_j, noise of scale -2 log p*/(Mε)
normal_right_noise   the paper's, with the noise that ε takes: 1/(Mε)
fisher_right_noise   the paper's, with the noise that ε takes: -2 log p*/ε
normal_flat          normal_right_noise with the flat block posterior instead of the paper's
fisher_flat          fisher_right_noise with the flat block posterior instead of the paper's
plug_in              `rescaled_normal` with the right multiplier √(2M - 1), noise ignored
rescaled_normal      the same average, with a report that knows of the noise
fisher               `fisher` with p* = 0.2, noise-aware
stouffer             `stouffer` with the clip that suits M and ε, noise-aware
sign                 `sign` over 30 partitions, noise-aware: the default
location_scale       one release for all b, over 30 partitions, noise-aware; scale by spread
==================== ==============================================================================

The paper's block posterior is normal with Zellner's g equal to the rows of the block, which counts
the prior M times; ours is flat.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.summaries import laws
from studies.amitai2018 import not_private as paper
from studies.amitai2018.blocks import Fits

PRINTED = ("normal_printed", "fisher_printed")
REPAIRED = ("normal_right_noise", "fisher_right_noise", "normal_flat", "fisher_flat")
OURS = ("plug_in", "rescaled_normal", "fisher", "stouffer", "sign", "location_scale")
METHODS = (*PRINTED, *REPAIRED, *OURS)
PAPER_P_STAR, P_STAR = 0.001, 0.2
_KNOTS = 2001


def recommended_blocks(n: int, epsilon: float, covariates: int) -> int:
    """min(⌈1000/ε²⌉, ⌊n/max(30, 15(p + 1))⌋); for ε = ∞ as for ε = 1."""
    wanted = 1000 if math.isinf(epsilon) else math.ceil(1000 / epsilon**2)
    return min(wanted, n // max(30, 15 * (covariates + 1)))


# --- posteriors -----------------------------------------------------------------------------------


def zellner_z(fits: Fits, b: FloatArray) -> FloatArray:
    """(b - m)/√v of the paper's posterior, g = the rows of the fit, σ² at its mode.

    Shape (len(b), blocks), of the first partition; equations 3.1 and 3.2.
    """
    estimate, d, rss, n, explained = (array[0] for array in fits[:5])
    shrink = n / (n + 1)
    sigma2 = (rss + (1 - shrink) * explained) / (n + 2)
    return np.asarray((b[:, None] - shrink * estimate) / np.sqrt(shrink * sigma2 * d))


def flat_scores(fits: Fits, b: FloatArray) -> FloatArray:
    """Φ⁻¹(p_j) under the flat posterior, of the first partition; 0 where there is no regression."""
    estimate, d, rss, n = (array[0] for array in fits[:4])
    nu = np.maximum(n - fits.columns, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = normal_score((b[:, None] - estimate) / np.sqrt(d * rss / nu), nu)
    return np.where(np.isfinite(score), score, 0.0)


def normal_score(t: FloatArray, nu: FloatArray) -> FloatArray:
    """Φ⁻¹(T_ν(t)), by Hill's expansion: within 1e-4 in probability from ν = 3 on, 1e-6 from 10.

    References
    ----------
    Hill (1970), Algorithm 395: Student's t-distribution, doi:10.1145/355598.362775.
    """
    a = nu - 0.5
    b = 48 * a * a
    w2 = a * np.log1p(t * t / nu)
    w = np.copysign(np.sqrt(w2), t)
    last = (((4 * w2 + 33) * w2 + 240) * w2 + 855) / (10 * b * (b + 0.8 * w2 * w2 + 100))
    return np.asarray(w * (1 + (w2 + 3) / b - last))


def flat_probabilities(fits: Fits, b: FloatArray) -> FloatArray:
    """p_j under the flat posterior, of the first partition; 1/2 where there is no regression."""
    from scipy.special import ndtr

    return np.asarray(ndtr(flat_scores(fits, b)))


def sign_average(estimates: FloatArray, b: FloatArray) -> FloatArray:
    """Average of sign(b - β̂_j) over blocks; `estimates` sorted, NaN (no regression) last."""
    there = estimates[: np.searchsorted(estimates, np.nan)]
    below = np.searchsorted(there, b, "left") + np.searchsorted(there, b, "right")
    return np.asarray((below - len(there)) / len(estimates))


# --- the methods ----------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """What the methods take from one data set and one number of blocks, for all b."""

    M: int
    partitions: int
    paper_p: FloatArray  # (b, M)
    flat_p: FloatArray  # (b, M)
    scores: FloatArray  # Φ⁻¹ of flat_p
    signs: FloatArray  # (b,)
    estimates: FloatArray  # of all partitions, sorted
    log_scales: FloatArray  # log √(v_j/M), for comparison


def prepare(fits: Fits, b: FloatArray) -> Blocks:
    """Everything that does not depend on ε."""
    from scipy.special import ndtr

    first = fits.first()
    scores = flat_scores(first, b)
    estimates = np.sort(fits.estimate, axis=None)
    nu = np.maximum(fits.n - fits.columns, 1.0)
    return Blocks(
        fits.blocks,
        len(fits.estimate),
        np.asarray(ndtr(np.nan_to_num(zellner_z(first, b)))),
        np.asarray(ndtr(scores)),
        scores,
        sign_average(estimates, b),
        estimates,
        0.5 * np.log(fits.d * fits.rss / nu / fits.blocks).ravel(),
    )


def answers(
    blocks: Blocks, b: FloatArray, epsilon: float, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """P(slope ≤ b) by every method, each b a release of its own (but for location_scale)."""
    M, r = blocks.M, blocks.partitions
    root = math.sqrt(M)
    out: dict[str, FloatArray] = {}
    for name, scale, p in (
        ("normal_printed", paper.rescaled_normal_printed_scale(M, epsilon), blocks.paper_p),
        ("normal_right_noise", paper.rescaled_normal_right_scale(M, epsilon), blocks.paper_p),
        ("normal_flat", paper.rescaled_normal_right_scale(M, epsilon), blocks.flat_p),
    ):
        mean = paper.rescaled_normal_statistic(p, scale, rng)
        out[name] = paper.rescaled_normal_probability(mean, root)
    for name, scale, p in (
        ("fisher_printed", paper.fisher_printed_scale(M, epsilon, PAPER_P_STAR), blocks.paper_p),
        ("fisher_right_noise", paper.fisher_right_scale(epsilon, PAPER_P_STAR), blocks.paper_p),
        ("fisher_flat", paper.fisher_right_scale(epsilon, PAPER_P_STAR), blocks.flat_p),
    ):
        total = paper.fisher_statistic(p, PAPER_P_STAR, scale, rng)
        out[name] = fisher_probability(total / M, PAPER_P_STAR, M, scale / M)
    noise = 1 / (M * epsilon)
    mean = blocks.flat_p.mean(axis=1) + laplace(noise, len(b), rng)
    out["plug_in"] = laws.rescaled_normal_plug_in(mean, M)
    out["rescaled_normal"] = laws.RESCALED_NORMAL_LAW.below(mean, M, 1, noise)
    limit = -2 * math.log(P_STAR)
    mean = -2 * np.log(np.maximum(blocks.flat_p, P_STAR)).mean(axis=1)
    noise = limit / (M * epsilon)
    mean = mean + laplace(noise, len(b), rng)
    out["fisher"] = fisher_probability(mean, P_STAR, M, noise)
    c = stouffer_clip(M, epsilon)
    noise = 2 * c / (M * epsilon)
    mean = np.clip(blocks.scores, -c, c).mean(axis=1) + laplace(noise, len(b), rng)
    out["stouffer"] = laws.stouffer_law(c).below(mean, M, 1, noise)
    noise, drawn = sign_noise(r, epsilon, len(b), rng)
    out["sign"] = laws.SIGN_LAW.below(blocks.signs + drawn / (r * M), M, r, noise / (r * M))
    found = location_and_scale(blocks, epsilon, rng)
    if found is not None:
        out["location_scale"] = laws.median_probability(b, *found)
    return out


def laplace(scale: float, size: int, rng: np.random.Generator) -> FloatArray:
    """Laplace noise; none for scale 0."""
    return rng.laplace(0.0, scale, size) if scale > 0 else np.zeros(size)


def sign_noise(
    partitions: int, epsilon: float, size: int, rng: np.random.Generator
) -> tuple[float, FloatArray]:
    """Scale and draws of the discrete Laplace noise on sums of signs."""
    if math.isinf(epsilon):
        return 0.0, np.zeros(size)
    scale = math.ceil(2 * partitions / epsilon)
    stop = -math.expm1(-1 / scale)
    drawn = rng.geometric(stop, size) - rng.geometric(stop, size)
    return float(scale), drawn.astype(np.float64)


@lru_cache(maxsize=512)
def stouffer_clip(blocks: int, epsilon: float) -> float:
    """The c that minimises v/A² - 1 + 8c²/(A²κ²), κ = ε√M: variance and noise, relatively."""
    c = np.linspace(0.05, 5, 991)
    found = [laws.stouffer_law(float(value)) for value in c]
    noise = 8 * c**2 / (epsilon**2 * blocks)
    cost = (np.array([law.variance for law in found]) + noise) / np.array(
        [law.slope**2 for law in found]
    )
    return float(c[np.argmin(cost)])


def fisher_probability(average: FloatArray, p_star: float, M: int, noise: float) -> FloatArray:
    """The report of `fisher`, interpolated between knots because there are many."""
    if noise == 0:
        return laws.fisher(average, p_star, M, 1, 0.0)
    knots, values = _fisher_knots(p_star, M, noise)
    return np.interp(average, knots, values)


@lru_cache(maxsize=512)
def _fisher_knots(p_star: float, M: int, noise: float) -> tuple[FloatArray, FloatArray]:
    law = laws.fisher_moments(p_star).law
    reach = 9 * math.sqrt(law.variance / M) + 20 * noise
    knots = law.mean + reach * np.linspace(-1, 1, _KNOTS) ** 3  # denser in the middle
    return knots, laws.fisher(knots, p_star, M, 1, noise)


# --- medians by the exponential mechanism ---------------------------------------------------------

LOCATION_BASE, LOG_SCALE_BASE = (0.0, 1.0), (-5.0, 3.0)  # centre and scale of Cauchy laws
QUARTILE = 0.6744897501960817  # Φ⁻¹(3/4)


def location_and_scale(
    blocks: Blocks, epsilon: float, rng: np.random.Generator, *, by_spread: bool = True
) -> tuple[float, float, laws.Reference] | None:
    """Private medians and the law around them; None where the budget is too small for any.

    The scale comes from the spread of the estimates about the drawn location, as with the flat
    posterior in `noisewise.holder.blocks.location_scale`, or from the blocks' own v.
    """
    M, r = blocks.M, blocks.partitions
    for_scale = max(0.1 * epsilon, 80 / M)
    for_location = epsilon if math.isinf(epsilon) else epsilon - for_scale
    if for_location * M < 80:
        return None
    location = private_median(blocks.estimates, r, for_location, LOCATION_BASE, rng)
    log_scales = blocks.log_scales
    if by_spread:
        with np.errstate(divide="ignore"):
            log_scales = np.log(np.abs(blocks.estimates - location) / QUARTILE / math.sqrt(M))
    log_scale = private_median(log_scales, r, for_scale, LOG_SCALE_BASE, rng)
    return location, math.exp(log_scale), laws.median_law(M, r, for_location)


def private_median(
    values: FloatArray,
    partitions: int,
    epsilon: float,
    base: tuple[float, float],
    rng: np.random.Generator,
) -> float:
    """A draw with density ∝ base × exp(-ε |rank - half|/(2r)), rank among all partitions.

    Only the ranks near the middle have weight; the others together have less than e⁻⁶⁰ of the
    middle's for equal base masses, and are left out here (never where a release is drawn).
    Infinite ε gives the median itself.
    """
    if math.isinf(epsilon):
        return float(np.nanmedian(values))
    half = values.size / 2
    reach = math.ceil(2 * 60 * partitions / epsilon)
    low, high = max(0, math.floor(half) - reach), min(values.size, math.ceil(half) + reach)
    centre, scale = base
    middle = np.sort(np.partition(values, (low, high - 1))[low:high])
    units = 0.5 + np.arctan((middle - centre) / scale) / np.pi
    ends = np.concatenate([[0.0], units, [1.0]])
    rank = low + np.arange(len(ends) - 1)
    with np.errstate(divide="ignore"):
        weight = np.log(np.diff(ends)) - epsilon * np.abs(rank - half) / (2 * partitions)
    k = int(np.argmax(weight + rng.gumbel(size=len(weight))))
    unit = rng.uniform(ends[k], ends[k + 1])
    return centre + scale * math.tan(math.pi * (unit - 0.5))
