"""location_scale: two private medians for a coefficient, from which all else follows.

**What a block contributes.** Its posterior mean m, and log √(v / M), where √(v / M) is how wide the
posterior of all rows would be. Each becomes a cell of a public base law (`CauchyBase`), which is a
function of the block's value alone; without a regression it is the cell in the middle.

**Claim.** With ε_l for each location and ε_s for each scale, all K coefficients together are
K (ε_l + ε_s)-differentially private.

**Proof.** Each median is ε-differentially private (`median`), and epsilons add. ∎

The median of the locations has the law of a normal variable with Laplace noise about the estimate
from all rows, and the scale tells how wide the posterior is; the analyst combines the two. A bad
median is one with too little budget for its number of blocks: with ε M below 60 for the location or
50 for the scale the base law shows through, and the request is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...core.summary import CELLS, CauchyBase, LocationScale
from ...core.summary_release import MedianNoise
from ..plan import Floats
from .grid import Integers
from .median import draw_median, median_rate
from .regressions import Fits

_MIDDLE = CELLS // 2


def cells_of(values: Floats, base: CauchyBase) -> Integers:
    """The cells that these values are in: ⌊F(x) 2**52⌋ with F the base law's CDF."""
    with np.errstate(over="ignore"):
        share = 0.5 + np.arctan((values - base.centre) / base.scale) / np.pi
    cells = np.floor(share * CELLS)
    return np.clip(cells, 0.0, CELLS - 1.0).astype(np.int64)


def terms(
    mechanism: LocationScale, fits: Fits, positions: Mapping[str, int], blocks: int
) -> Integers:
    """Cells of every block: location and log scale of the first item, then of the next."""
    columns = []
    for item in mechanism.items:
        k = positions[item.coefficient]
        with np.errstate(divide="ignore"):
            log_scale = 0.5 * np.log(fits.variance[:, k] / blocks)
        for values, base in ((fits.mean[:, k], item.location), (log_scale, item.log_scale)):
            columns.append(np.where(fits.valid, cells_of(values, base), _MIDDLE))
    return np.stack(columns, axis=1)


def draw(cells: Integers, noise: MedianNoise, partitions: int) -> tuple[int, ...]:
    """The published cells: one private median for each column."""
    rates = [
        median_rate(epsilon, partitions, noise.sensitivity)
        for epsilon in (noise.location_epsilon, noise.scale_epsilon)
    ]
    return tuple(draw_median(column, rates[i % 2]) for i, column in enumerate(cells.T))
