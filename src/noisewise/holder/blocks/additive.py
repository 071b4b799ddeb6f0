"""Mechanisms that add up a bounded number ψ of every block, each with its proof.

The sums over all blocks of all r partitions get discrete Laplace noise. b is the threshold that a
question names, m and √v are location and scale of the block's posterior, ν its degrees of freedom.

Each function returns ψ of every block, shape (blocks,), for one entry, about coefficient `k`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from noisewise.core.kinds.summary.mechanisms import (
    Additive,
    ClippedMean,
    Fisher,
    QuantileItem,
    Question,
    RescaledNormal,
    Sign,
    Stouffer,
    entries_of,
)
from noisewise.holder.blocks.regressions import Fits
from noisewise.holder.rows import Floats


def sign_terms(mechanism: Sign, fits: Fits, k: int, asked: Question) -> Floats:
    """On which side of the threshold is each block's estimate?

    **What a block contributes.** ψ = sign(b - m), an integer in {-1, 0, 1}; 0 without a regression.

    **Claim.** The K sums over all blocks of all r partitions have L1 sensitivity 2 r K m for a unit
    of m rows, under either neighbour relation; with discrete Laplace noise of that scale over ε
    they are ε-differentially private (`noisewise.holder.mechanisms.laplace`).

    **Proof.** Given the assignment, a row is in one block of each partition (`draw_blocks`), and ψ
    depends on one block's rows only, so at most r m terms of each of the K sums change, each by at
    most 2. Replacing a row can turn an estimate from one side to the other, and so can adding one,
    so the bound is the same and cannot be improved: one record far out on the line through the
    others' means does it. ∎

    It needs no variance, and no bounded ψ of the same range has less noise relative to its signal.
    The r partitions cost nothing: r times the sum, r times the sensitivity, and the error of having
    drawn one partition rather than another is averaged out.
    """
    return np.where(fits.valid, np.sign(asked.threshold - fits.mean[:, k]), 0.0)


def stouffer_terms(mechanism: Stouffer, fits: Fits, k: int, asked: Question) -> Floats:
    """Normal scores of the block probabilities, clipped.

    **What a block contributes.** ψ = Φ⁻¹(p) clipped to ±c, on a grid of 2**-20; 0 without a
    regression. Here p = T_ν((b - m)/√v).

    **Claim.** The K sums over all blocks of all r partitions have L1 sensitivity 2 c r K m (on the
    grid, with c rounded up) for a unit of m rows, under either neighbour relation.

    **Proof.** As for `sign`: at most r m terms of each sum change, each within [-c, c]. Terms are
    clipped after rounding, as integers, so no rounding can leave the interval. ∎

    Compared with `sign` it uses how far an estimate is from the threshold, which is more efficient
    without noise and needs more noise. One partition is enough: near zero the clipped score is
    nearly linear, and linear scores average to the same number in every partition.
    """
    scores = normal_scores(fits, k, asked.threshold)
    return np.where(fits.valid, np.clip(scores, -mechanism.clip, mechanism.clip), 0.0)


def rescaled_normal_terms(mechanism: RescaledNormal, fits: Fits, k: int, asked: Question) -> Floats:
    """Block probabilities, averaged (Amitai & Reiter 2018, section 2.1).

    **What a block contributes.** ψ = p = T_ν((b - m)/√v) on a grid of 2**-20; 1/2 without a
    regression.

    **Claim.** The K sums over all blocks of all r partitions have L1 sensitivity r K m (in units of
    ψ) for a unit of m rows, under either neighbour relation.

    **Proof.** As for `sign`: at most r m terms of each sum change, each within [0, 1], clipped as
    integers. ∎

    So the mean over M blocks needs noise of scale 1/(M ε). The paper prints ε/M, which spends 1/ε.
    """
    return np.where(fits.valid, probabilities(fits, k, asked.threshold), 0.5)


def fisher_terms(mechanism: Fisher, fits: Fits, k: int, asked: Question) -> Floats:
    """Logarithms of block probabilities, summed (Amitai & Reiter 2018, section 2.2).

    **What a block contributes.** ψ = -2 log max(p, p*), p = T_ν((b - m)/√v), on a grid of 2**-20;
    2 (1 - p*) without a regression, the mean of ψ for uniform p, so that such blocks speak for
    neither side.

    **Claim.** The K sums over all blocks of all r partitions have L1 sensitivity -2 log(p*) r K m
    (on the grid, rounded up) for a unit of m rows, under either neighbour relation.

    **Proof.** As for `sign`: at most r m terms of each sum change, each within [0, -2 log p*],
    clipped as integers. ∎

    The paper divides this sensitivity by M, as if the sum were a mean. With that noise the privacy
    loss is M times what is claimed; `studies.amitai2018.not_private` keeps it as a negative
    control.
    """
    score = -2 * np.log(np.maximum(probabilities(fits, k, asked.threshold), mechanism.p_star))
    return np.where(fits.valid, score, 2 * (1 - mechanism.p_star))


def clipped_mean_terms(mechanism: ClippedMean, fits: Fits, k: int, asked: QuantileItem) -> Floats:
    """Block quantiles between public bounds, averaged (Amitai & Reiter 2018, section 4).

    **What a block contributes.** The p-quantile Q = m + √v T_ν⁻¹(p) of the posterior with the
    likelihood to the power M, which is as narrow as that of all rows, clipped to public bounds and
    mapped to ψ = (Q - lower)/(upper - lower) on a grid of 2**-20; 1/2 without a regression.

    **Claim.** The K sums over all blocks of all r partitions have L1 sensitivity r K m (in units of
    ψ) for a unit of m rows, under either neighbour relation.

    **Proof.** As for `sign`: at most r m terms of each sum change, each within [0, 1], clipped as
    integers. ∎

    Noise is proportional to the width of the bounds, and bounds that are known without looking at
    the data are usually hundreds of posterior standard deviations apart. `location_scale` needs
    none.
    """
    from scipy.special import stdtrit

    with np.errstate(over="ignore", invalid="ignore"):
        reach = stdtrit(fits.full_freedom, asked.probability) * np.sqrt(fits.full_variance[:, k])
        quantile = np.clip(fits.mean[:, k] + reach, asked.lower, asked.upper)
        share = (quantile - asked.lower) / (asked.upper - asked.lower)
    return np.where(fits.valid & np.isfinite(share), share, 0.5)


# ---------------------------------------------------------------------------------------------
# A block's posterior probability that a coefficient is below a number, for all blocks at once


def standardised(fits: Fits, coefficient: int, threshold: float) -> Floats:
    """z = (b - m)/√v for every block; a posterior without width gives ±∞, or 0 at b itself."""
    distance = threshold - fits.mean[:, coefficient]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = distance / np.sqrt(fits.variance[:, coefficient])
    return np.asarray(np.where(distance == 0, 0.0, z))


def probabilities(fits: Fits, coefficient: int, threshold: float) -> Floats:
    """p = T_ν(z) for every block."""
    from scipy.special import stdtr

    return np.asarray(stdtr(fits.freedom, standardised(fits, coefficient, threshold)))


def normal_scores(fits: Fits, coefficient: int, threshold: float) -> Floats:
    """Φ⁻¹(T_ν(z)) for every block, from the lower tail, where doubles are dense."""
    from scipy.special import ndtri, stdtr

    z = standardised(fits, coefficient, threshold)
    size = -ndtri(stdtr(fits.freedom, -np.abs(z)))
    return np.asarray(np.copysign(size, z))


# --- all mechanisms by the type of their public description ---------------------------------------

_TERMS: Mapping[type[Any], Callable[[Any, Fits, int, Any], Floats]] = {
    Sign: sign_terms,
    Stouffer: stouffer_terms,
    RescaledNormal: rescaled_normal_terms,
    Fisher: fisher_terms,
    ClippedMean: clipped_mean_terms,
}


def exact_values(mechanism: Additive, fits: Fits, positions: Mapping[str, int]) -> tuple[int, ...]:
    """The sums of ψ over all blocks of all partitions, without noise: as private as the rows.

    Terms are clipped once they are integers, so that the sensitivity holds whatever a mechanism's
    arithmetic did.
    """
    psi, values = _TERMS[type(mechanism)], []
    for entry in entries_of(mechanism):
        terms = psi(mechanism, fits, positions[entry.coefficient], entry)
        on_grid = np.rint(terms * 2.0**mechanism.fraction_bits).astype(np.int64)
        values.append(int(np.clip(on_grid, mechanism.low, mechanism.high).sum()))
    return tuple(values)
