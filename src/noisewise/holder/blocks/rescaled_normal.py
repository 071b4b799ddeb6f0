"""rescaled_normal: block probabilities, averaged (Amitai & Reiter 2018, section 2.1).

**What a block contributes.** ψ = p = T_ν((b - m)/√v) on a grid of 2**-20; 1/2 without a regression.

**Claim.** The K sums over all blocks of all r partitions have L1 sensitivity r K m (in units of ψ)
for a unit of m rows, under either neighbour relation.

**Proof.** As for `sign`: at most r m terms of each sum change, each within [0, 1], clipped as
integers. ∎

So the mean over M blocks needs noise of scale 1/(M ε). The paper prints ε/M, which spends 1/ε.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from noisewise.core.kinds.summary.mechanisms import RescaledNormal
from noisewise.holder.blocks.grid import Integers
from noisewise.holder.blocks.probabilities import probabilities
from noisewise.holder.blocks.regressions import Fits


def terms(mechanism: RescaledNormal, fits: Fits, positions: Mapping[str, int]) -> Integers:
    """ψ of every block and question; shape (blocks, questions)."""
    columns = []
    for question in mechanism.questions:
        p = probabilities(fits, positions[question.coefficient], question.threshold)
        columns.append(np.rint(np.where(fits.valid, p, 0.5) * 2.0**mechanism.fraction_bits))
    return np.stack(columns, axis=1).astype(np.int64)
