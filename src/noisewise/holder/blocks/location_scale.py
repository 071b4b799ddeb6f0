"""location_scale: two private medians for a coefficient, from which all else follows.

**What a block contributes.** Its posterior mean m to the location. To the scale, with the flat
posterior, log(|m - location| / (Φ⁻¹(3/4) √M)), where `location` is the median that was just drawn:
the median of |m - location| is Φ⁻¹(3/4) standard deviations of an estimate from one block, √M times
those of one from all rows. What the estimates themselves say holds for heavy-tailed errors and
unequal variances too, where the blocks' own √v does not. With another posterior a block's v may
hold prior information that its estimate's spread doesn't show, so there it is log √(v / M). Each
number becomes a cell of a public base law (`CauchyBase`).

Without a regression a block has no opinion on the location, and must not pull it anywhere: it
counts with the first cell or the last, by turns in the order of blocks, which balances. (One and
the same cell for all would: if some per cent of the blocks lack a rare level and count with zero,
the median of all is many posterior standard deviations from that of the others.) For the scale it
counts with the last cell: the fewer blocks know, the wider is the posterior, by at least as much as
fewer blocks are noisier. All these cells are fixed before any row is seen.

**Claim.** With ε_l for each location and ε_s for each scale, all K coefficients together are
K (ε_l + ε_s)-differentially private.

**Proof.** Given the location, which is published, the number that a block contributes to the scale
is a function of that block alone, like m itself. So each median is ε-differentially private
(`median`), the second for every value of the first, and epsilons of pure mechanisms add under
adaptive composition. ∎

The median of the locations has the law of a normal variable with Laplace noise about the estimate
from all rows, and the scale tells how wide the posterior is; the analyst combines the two. A bad
median is one with too little budget for its number of blocks: where ε M is too small the base law
shows through, and the request is refused (`choice`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from noisewise.core.kinds.summary.mechanisms import CELLS, CauchyBase, LocationScale
from noisewise.core.kinds.summary.release import MedianNoise
from noisewise.holder.blocks.median import draw_median, median_rate
from noisewise.holder.blocks.regressions import Fits
from noisewise.holder.rows import Floats, Integers

_LAST = CELLS - 1
_LOG_QUARTILE = np.log(0.6744897501960817)  # of Φ⁻¹(3/4)


def cells_of(values: Floats, base: CauchyBase) -> Integers:
    """The cells that these values are in: ⌊F(x) 2**52⌋ with F the base law's CDF."""
    with np.errstate(over="ignore"):
        share = 0.5 + np.arctan((values - base.centre) / base.scale) / np.pi
    cells = np.floor(share * CELLS)
    return np.clip(cells, 0.0, CELLS - 1.0).astype(np.int64)


def terms(
    mechanism: LocationScale,
    fits: Fits,
    positions: Mapping[str, int],
    blocks: int,
    locations: Sequence[float] | None = None,
) -> Integers:
    """Cells of every block: location and log scale of the first item, then of the next.

    `locations` are the published ones, if the scales come from the spread about them.
    """
    columns = []
    for i, item in enumerate(mechanism.items):
        k = positions[item.coefficient]
        located = cells_of(fits.mean[:, k], item.location)
        columns.append(np.where(fits.valid, located, by_turns(len(located))))
        if locations is None:
            values = log_width(fits.variance[:, k], blocks)
        else:
            values = log_spread(fits.mean[:, k], locations[i], blocks)
        columns.append(np.where(fits.valid, cells_of(values, item.log_scale), _LAST))
    return np.stack(columns, axis=1)


def draw(
    mechanism: LocationScale,
    fits: Fits,
    positions: Mapping[str, int],
    blocks: int,
    noise: MedianNoise,
    partitions: int,
    *,
    by_spread: bool,
) -> tuple[int, ...]:
    """The published cells: one private median for each column of `terms`, locations first."""
    rates = [
        median_rate(epsilon, partitions, noise.sensitivity)
        for epsilon in (noise.location_epsilon, noise.scale_epsilon)
    ]
    cells = terms(mechanism, fits, positions, blocks)
    where = [draw_median(column, rates[0]) for column in cells.T[::2]]
    if by_spread:
        pairs = zip(mechanism.items, where, strict=True)
        centres = [item.location.value(cell) for item, cell in pairs]
        cells = terms(mechanism, fits, positions, blocks, centres)
    widths = [draw_median(column, rates[1]) for column in cells.T[1::2]]
    return tuple(cell for pair in zip(where, widths, strict=True) for cell in pair)


def log_spread(means: Floats, location: float, blocks: int) -> Floats:
    """log(|m - location| / (Φ⁻¹(3/4) √M)); minus infinity, the first cell, at the location."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.asarray(np.log(np.abs(means - location)) - _LOG_QUARTILE - 0.5 * np.log(blocks))


def log_width(variances: Floats, blocks: int) -> Floats:
    """log √(v / M)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(0.5 * np.log(variances / blocks))


def by_turns(count: int) -> Integers:
    """The first cell and the last in turn: for blocks that have no opinion."""
    return np.where(np.arange(count) % 2 == 0, 0, _LAST)
