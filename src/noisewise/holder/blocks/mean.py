"""mean: the mean of the blocks' estimates, within a range that is found privately.

**Why a mean.** A block of k rows has an estimate whose skewness is γ/√k, γ being that of one row's
influence. Its median is off its mean by γ/6k of a row's standard deviation, which is γM/6√n
standard errors of the estimate from all rows: signs and medians of blocks are biased by an amount
that more rows and more blocks together don't mend. The mean is not. It needs a range, since its
sensitivity is the range's width, and clipping brings back a part of the skewness, 2cφ(c) of the
median's bias if the range ends at c standard deviations: 3% at c = 3, next to nothing at 6. (Tails
that are heavier than normal ones lose more.)

**What a block contributes.** Its estimate m, with the bias of small blocks taken away by its two
halves (`regressions.fit_with_halves`, `models`). First to a rough location c, the private median
of all m. Then |m - c| to the range's half-width h = reach times a private median of distances.
Then, with a = round(2**20 (m - c)/h) clipped to ±2**20, the pair (a, |a|) to two sums with discrete
Laplace noise. A block without an estimate counts with the first cell or the last, by turns, in the
location and the distance (as in `location_scale`), and with the pair (0, 2**19) in the sums.

**Claim.** With ε_l for each location, ε_s for each distance and noise of scale s on all sums, all K
coefficients together are K (ε_l + ε_s) + K r m 2**21 / s differentially private for a unit of m
rows.

**Proof.** Locations and distances are private by `median`, the second for every value of the
first. Given both, which are published, the pair of a block is a function of that block alone, and
at most r m blocks change. For two pairs with |a|, |b| ≤ 2**20 the L1 distance is
|a - b| + ||a| - |b|| = 2 |a - b| ≤ 2 max(|a|, |b|) where a and b have the same sign, and
|a| + |b| + ||a| - |b|| = 2 max(|a|, |b|) where they don't; from (0, 2**19) to a pair it is
|a| + ||a| - 2**19| ≤ 2**20 + 2**19. So it is at most 2**21: the sum of |a|, which tells how wide
the answer is, costs nothing on top of that of a. Epsilons of pure mechanisms add under adaptive
composition. ∎

**A wild draw** costs accuracy. Where ε M is small, a location or a distance may come
from the base law. A location far out makes all distances as large, hence a range that holds all
blocks; a distance that is too large does too. The noise is then as wide as the range. A
distance that is too small clips all blocks, and only |a| shows it. The analyst is told both, and
warns (`analyst.summaries.answers`); `choice` has the chances.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from noisewise.core.kinds.summary.mechanisms import FRACTION_BITS, Mean
from noisewise.core.kinds.summary.release import MedianNoise
from noisewise.holder.blocks.location_scale import by_turns, cells_of
from noisewise.holder.blocks.median import draw_median, median_rate
from noisewise.holder.blocks.regressions import Fits, Flags
from noisewise.holder.rows import Floats, Integers

ABSENT = 1 << (FRACTION_BITS - 1)  # in the sum of sizes, for a block without an estimate


def location_cells(mechanism: Mean, fits: Fits, index: int, k: int) -> Integers:
    """Cells of every block's estimate of coefficient `k`, the item at `index`."""
    found = cells_of(fits.mean[:, k], mechanism.items[index].location)
    return np.where(fits.valid, found, by_turns(len(found)))


def distance_cells(mechanism: Mean, fits: Fits, index: int, k: int, centre: float) -> Integers:
    """Cells of the logarithms of distances from the published location."""
    with np.errstate(divide="ignore", over="ignore"):
        distances = np.log(np.abs(fits.mean[:, k] - centre))
    found = cells_of(distances, mechanism.items[index].log_scale)
    return np.where(fits.valid, found, by_turns(len(found)))


def pairs(means: Floats, valid: Flags, centre: float, half: float) -> tuple[Integers, Integers]:
    """(a, |a|) of every block, clipped as integers whatever the arithmetic did."""
    most = 1 << FRACTION_BITS
    with np.errstate(over="ignore", invalid="ignore"):
        share = np.clip((means - centre) / half, -1.0, 1.0)
    known = valid & np.isfinite(share)
    a = np.rint(np.where(known, share, 0.0) * most).astype(np.int64)
    return a, np.where(known, np.abs(a), ABSENT)


def draw_ranges(
    mechanism: Mean, fits: Fits, positions: Mapping[str, int], noise: MedianNoise, partitions: int
) -> list[tuple[int, int]]:
    """The two cells of every coefficient's range."""
    rates = [
        median_rate(epsilon, partitions, noise.sensitivity)
        for epsilon in (noise.location_epsilon, noise.scale_epsilon)
    ]
    found = []
    for index, item in enumerate(mechanism.items):
        k = positions[item.coefficient]
        where = draw_median(location_cells(mechanism, fits, index, k), rates[0])
        distances = distance_cells(mechanism, fits, index, k, item.location.value(where))
        found.append((where, draw_median(distances, rates[1], 1 - mechanism.tail)))
    return found


def exact_sums(
    mechanism: Mean, fits: Fits, positions: Mapping[str, int], ranges: list[tuple[int, int]]
) -> tuple[int, ...]:
    """Σa and Σ|a| of every coefficient, without noise: as private as the rows."""
    sums: list[int] = []
    for index, item in enumerate(mechanism.items):
        bounds = mechanism.range_of(index, *ranges[index])
        found = pairs(fits.mean[:, positions[item.coefficient]], fits.valid, *bounds)
        sums += (int(part.sum()) for part in found)
    return tuple(sums)
