"""sign: on which side of the threshold is each block's estimate?

**What a block contributes.** ψ = sign(b - m), an integer in {-1, 0, 1}; 0 without a regression.

**Claim.** The K sums over all blocks of all r partitions have L1 sensitivity 2 r K m for a unit of
m rows, under either neighbour relation; with discrete Laplace noise of that scale over ε they are
ε-differentially private (`noisewise.holder.mechanisms.laplace`).

**Proof.** Given the assignment, a row is in one block of each partition (`assignment`), and ψ
depends on one block's rows only, so at most r m terms of each of the K sums change, each by at most
2. Replacing a row can turn an estimate from one side to the other, and so can adding one, so the
bound is the same and cannot be improved: one record far out on the line through the others' means
does it. ∎

It needs no variance, and no bounded ψ of the same range has less noise relative to its signal. The
r partitions cost nothing: r times the sum, r times the sensitivity, and the error of having drawn
one partition rather than another is averaged out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from noisewise.core.kinds.summary.mechanisms import Sign
from noisewise.holder.blocks.grid import Integers
from noisewise.holder.blocks.regressions import Fits


def terms(mechanism: Sign, fits: Fits, positions: Mapping[str, int]) -> Integers:
    """ψ of every block and question; shape (blocks, questions)."""
    columns = [
        np.where(fits.valid, np.sign(q.threshold - fits.mean[:, positions[q.coefficient]]), 0)
        for q in mechanism.questions
    ]
    return np.stack(columns, axis=1).astype(np.int64)
