"""stouffer: normal scores of the block probabilities, clipped.

**What a block contributes.** ψ = Φ⁻¹(p) clipped to ±c, on a grid of 2**-20; 0 without a regression.
Here p = T_ν((b - m)/√v).

**Claim.** The K sums over all blocks of all r partitions have L1 sensitivity 2 c r K m (on the
grid, with c rounded up) for a unit of m rows, under either neighbour relation.

**Proof.** As for `sign`: at most r m terms of each sum change, each within [-c, c]. Terms are
clipped after rounding, as integers, so no rounding can leave the interval. ∎

Compared with `sign` it uses how far an estimate is from the threshold, which is more efficient
without noise and needs more noise. One partition is enough: near zero the clipped score is nearly
linear, and linear scores average to the same number in every partition.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from noisewise.core.kinds.summary.mechanisms import Stouffer
from noisewise.holder.blocks.grid import Integers
from noisewise.holder.blocks.probabilities import normal_scores
from noisewise.holder.blocks.regressions import Fits


def terms(mechanism: Stouffer, fits: Fits, positions: Mapping[str, int]) -> Integers:
    """ψ of every block and question; shape (blocks, questions)."""
    columns = []
    for question in mechanism.questions:
        scores = normal_scores(fits, positions[question.coefficient], question.threshold)
        clipped = np.clip(scores, -mechanism.clip, mechanism.clip)
        on_grid = np.rint(clipped * 2.0**mechanism.fraction_bits)
        columns.append(np.where(fits.valid, on_grid, 0))
    return np.stack(columns, axis=1).astype(np.int64)
