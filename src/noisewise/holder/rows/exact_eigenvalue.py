"""The smallest eigenvalue of an integer matrix, rounded down, without any rounding error.

What gets noise must be an integer whose sensitivity is proved. The result of a floating-point
routine has no proved sensitivity: two neighbouring data sets could be moved apart by rounding, and
two machines could disagree. Here floating point only says where to look. Every comparison that
decides the result is made in whole numbers of unlimited size, so the result is a function of the
matrix alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from noisewise.core.design import STATISTIC_ONE
from noisewise.core.statistics import SecondMoments, SmallestEigenvalue
from noisewise.core.statistics.smallest_eigenvalue import STEP

MAX_SIZE = 100  # about ten seconds; the cost grows with the fifth power

Matrix = Sequence[Sequence[int]]


def value(statistic: SmallestEigenvalue, n: int, second_moments: tuple[int, ...]) -> int:
    """⌊λ_min(S)⌋ on the coarse grid, in units of 2**-32, from the exact sums.

    `second_moments` are the sums of `SecondMoments` of the same design, in the order of its
    entries.
    """
    moments = SecondMoments(statistic.design)
    entries: Mapping[tuple[int, ...], int] = {
        **{entry: known * STATISTIC_ONE for entry, known in moments.public_values(n).items()},
        **dict(zip(moments.entries, second_moments, strict=True)),
    }
    size = range(statistic.size)
    gram = [[int(entries[min(i, j), max(i, j)]) for j in size] for i in size]
    return smallest_eigenvalue_floor(gram, STEP) * STEP


def smallest_eigenvalue_floor(matrix: Matrix, step: int) -> int:
    """The largest m with m * step <= λ_min, for a symmetric positive semidefinite matrix.

    λ_min ≥ t exactly if matrix - t I is positive semidefinite, which `is_positive_semidefinite`
    decides exactly. m is found by doubling steps from a guess, then by bisection. With a good
    guess that is two decisions; with a bad one it takes longer, and gives the same m.
    """

    def reached(m: int) -> bool:
        return is_positive_semidefinite(
            [[x - m * step * (i == j) for j, x in enumerate(row)] for i, row in enumerate(matrix)]
        )

    # Zero is reached, because the matrix is positive semidefinite. More than the smallest diagonal
    # entry is not, because λ_min ≤ e_i' S e_i. What is reached stays below what is not.
    low, high = 0, min(row[i] for i, row in enumerate(matrix)) // step + 1
    probe, stride, from_below, from_above = _guess(matrix) // step, 1, False, False
    while high - low > 1:
        probe = min(max(probe, low + 1), high - 1)
        if reached(probe):
            low, from_below = probe, True
        else:
            high, from_above = probe, True
        if from_below and from_above:
            probe = (low + high) // 2
        else:
            probe = low + stride if from_below else high - stride
            stride *= 2
    return low


def is_positive_semidefinite(matrix: Matrix) -> bool:
    """Decide by fraction-free symmetric elimination (Bareiss 1968), in whole numbers.

    **Claim.** True exactly if x'Mx ≥ 0 for all x.

    **Proof.** Let I be the indices of the pivots so far, all of them positive, and p the last one
    (1 at the start). After them, entry (i, j) of what is left is the minor det M[I∪i, I∪j]
    (Sylvester's identity, which also says that the divisions leave no remainder), and p is
    det M[I, I] > 0. So what is left is p times the Schur complement of M[I, I] in the rows that
    are left, and M is positive semidefinite exactly if it is. Consider a diagonal entry a of it.
    If a < 0, it is not. If a = 0 and an entry b of its row is not 0, it is not: the 2 by 2 minor is
    -b². If a = 0 and its row is 0, row and column may be dropped. If a > 0, it is the next pivot.
    Rows run out after d steps; nothing is positive semidefinite. ∎

    **Cost.** d³/6 steps of two multiplications and a division, with integers of up to d·(b + log d)
    bits for entries of b bits: about d⁵ on the whole. (The lower triangle is all that is used.)

    References
    ----------
    Bareiss (1968), Sylvester's identity and multistep integer-preserving Gaussian elimination,
        doi:10.1090/S0025-5718-1968-0226829-0.
    """
    left = [list(row[: i + 1]) for i, row in enumerate(matrix)]  # lower triangle
    previous = 1
    while left:
        # The last row is the pivot: what is left then stays a lower triangle.
        *column, pivot = left.pop()
        if pivot < 0:
            return False
        if pivot == 0:
            if any(column):
                return False
            continue
        for i, row in enumerate(left):
            factor = column[i]
            for j in range(i + 1):
                row[j] = (row[j] * pivot - factor * column[j]) // previous
        previous = pivot
    return True


def _guess(matrix: Matrix) -> int:
    """A floating-point estimate of λ_min. Nothing but speed depends on it."""
    try:
        found = float(np.linalg.eigvalsh(np.array(matrix, dtype=np.float64))[0])
    except np.linalg.LinAlgError:
        return 0
    return int(found) if np.isfinite(found) else 0
