"""How many blocks and partitions, and how to divide the budget. From public quantities only.

**Blocks.** The noise on a mean over M blocks is 1/M of a block's range, so more blocks mean less
noise, until the sampling error of M estimates, which more blocks don't change, outweighs it: there
κ = ε √M matters, and beyond κ ≈ 30 (M = 1000/ε²) nothing is gained. Blocks need rows, though: with
fewer than 30, or 15 a coefficient, regressions are skewed and often degenerate. Hence

    M = min(max(⌈1000/ε²⌉, 100), ⌊n / max(30, 15 K)⌋),

K the coefficients and ε the budget of one entry, divided by the rows that a unit may own. With κ
below 4 the noise drowns the answer, and the request warns.

**Partitions.** They cost no privacy, only time. A median or a sign forgets how far an estimate is
from the threshold, so the chance of one partition is most of what they lose, and 30 partitions
average it out. Nearly linear ψ (`stouffer`, `rescaled_normal`, `fisher`) are the same in all
partitions up to a few per cent; one does.

**Medians.** The scale needs less than the location: ε_s = max(ε/10, 80/M), the rest for the
location, which needs ε_l M ≥ 80. Below that the base law shows through: cells beyond all blocks
weigh exp(-εM/4) of those in the middle, but there are many more of them. With εM = 50 two or four
draws of a thousand are wild (a scale off by any factor, so false certainty or none), with 60 up to
four of ten thousand, with 80 about three of a million.
"""

from __future__ import annotations

import math
from fractions import Fraction

from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import MAX_BLOCKS, MAX_REGRESSIONS
from noisewise.holder.blocks.plan import limb_count

WEAK_KAPPA = 4.0
MEMORY_AIM = 1 << 30
MEMORY_LIMIT = 1 << 32
REPEATED = ("sign", "location_scale", "clipped_mean")
SCALE_RANKS, LOCATION_RANKS = 80, 80


def least_rows(coefficients: int) -> int:
    """Rows that a block should have."""
    return max(30, 15 * coefficients)


def default_blocks(rows: int, epsilon: Fraction, coefficients: int) -> int:
    """M for a public number of rows.

    Parameters
    ----------
    rows : int
    epsilon : Fraction
        Of one entry, divided by the rows that a unit may own.
    coefficients : int
        The intercept included.
    """
    affordable = rows // least_rows(coefficients)
    if affordable < 2:
        raise RequestError(
            f"rows: {rows:,} rows are too few for blocks of {least_rows(coefficients)}; block "
            "summaries need thousands of rows, so use `noisewise release` with public bounds"
        )
    useful = max(100, math.ceil(1000 / epsilon**2))
    return min(useful, affordable, MAX_BLOCKS)


def default_partitions(mechanism: str, blocks: int, coefficients: int) -> int:
    """r, with less than a gigabyte of sums."""
    if mechanism not in REPEATED:
        return 1
    bytes_each = 8 * blocks * limb_count(coefficients)
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

    Parameters
    ----------
    epsilon : Fraction
        For this coefficient.
    blocks, rows_per_unit : int
    coefficients : int
        Of the regression: they decide how many rows a block needs.
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
