"""fisher: logarithms of block probabilities, summed (Amitai & Reiter 2018, section 2.2).

**What a block contributes.** ψ = -2 log max(p, p*), p = T_ν((b - m)/√v), on a grid of 2**-20;
2 (1 - p*) without a regression, the mean of ψ for uniform p, so that such blocks speak for neither
side.

**Claim.** The K sums over all blocks of all r partitions have L1 sensitivity -2 log(p*) r K m (on
the grid, rounded up) for a unit of m rows, under either neighbour relation.

**Proof.** As for `sign`: at most r m terms of each sum change, each within [0, -2 log p*], clipped
as integers. ∎

The paper divides this sensitivity by M, as if the sum were a mean. With that noise the privacy loss
is M times what is claimed; `studies.amitai2018.not_private` keeps it as a negative control.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from noisewise.core.kinds.summary.mechanisms import Fisher
from noisewise.holder.blocks.grid import Integers
from noisewise.holder.blocks.probabilities import probabilities
from noisewise.holder.blocks.regressions import Fits


def terms(mechanism: Fisher, fits: Fits, positions: Mapping[str, int]) -> Integers:
    """ψ of every block and question; shape (blocks, questions)."""
    columns = []
    for question in mechanism.questions:
        p = probabilities(fits, positions[question.coefficient], question.threshold)
        score = -2 * np.log(np.maximum(p, mechanism.p_star))
        kept = np.where(fits.valid, score, 2 * (1 - mechanism.p_star))
        columns.append(np.rint(kept * 2.0**mechanism.fraction_bits))
    return np.stack(columns, axis=1).astype(np.int64)
