"""The smallest eigenvalue λ_min(S) of S = Σ vv', v = (1, x), and its sensitivity.

Notation. M is the largest |v|² that the box or ball allows, R the ball's radius (|x| ≤ R).

**Add or remove a row.** S' = S + vv'. Let u be a unit eigenvector of S for λ_min(S). Then

    0 ≤ λ_min(S') - λ_min(S) ≤ u'S'u - u'Su = (v·u)² ≤ |v|² ≤ M,                              (1)

the left side because vv' is positive semidefinite.

**Replace a row.** S = S₀ + ww' becomes S' = S₀ + vv'. By (1) both smallest eigenvalues are at least
λ_min(S₀), and at most λ_min(S₀) + M, so they differ by at most M: replacing costs no more than
adding, unlike the entries of S, because a row can only ever raise λ_min.

**M is attained** by both relations, if there are two numeric features or more, or one and no
category. Let v have all numbers and one indicator of every category at 1, so |v|² = M. The rows of
the box that are orthogonal to v span the complement of v: 1 + Σx_j = 0 with all categories at
reference or at other levels gives every direction but those of v's own indicators, and one of these
together with Σx_j = -2 gives the rest. Take as S₀ so many copies of such rows that its second
smallest eigenvalue is M or more. Then λ_min(S₀) = 0, λ_min(S₀ + vv') = M, and w is any of the rows
already there. With categories and fewer than two numeric features M is a bound that need not be
attained: searches found 0.99 M (one number, one category), 0.6 M (two categories, no number) and
0.5 M (one category alone).

**Balls of radius below 1** are narrower. Any two rows have v·w ≥ 1 - R² > 0. Writing S₀ = WW' with
the rows as columns of W, W'W has positive entries only, so its leading eigenvector c has (Perron),
and S₀'s own, Wc, is a positive combination of rows: up to a factor it is a t = (1, z) with |z| ≤ R.
u in (1) may be chosen orthogonal to t, hence, with v = (1, x), |x| = r, |z| = s and x·z ≥ -rs,

    (v·u)² ≤ |v|² - (v·t)²/|t|² ≤ 1 + r² - (1 - rs)²/(1 + s²) = (r + s)²/(1 + s²).

This grows with r, and with s too as long as rs < 1; at r = s = R it is 4R²/(1 + R²) ≤ 1 + R².
(Without a row S₀ = 0, and S₀ + vv' has the eigenvalue 0 like S₀.) It is the supremum: many rows
(1, -x), and for the other directions many more that differ from it by little. For R ≥ 1 and two
numeric features 1 + R² is attained as above, as far as the box allows.

**Rounding.** The value is ⌊λ_min / g⌋ with g = 2**-16, in units of g. If two eigenvalues differ by
at most Δ then b ≤ a + ⌈Δ/g⌉g, so ⌊b/g⌋ ≤ ⌊a/g⌋ + ⌈Δ/g⌉: they differ by at most ⌈Δ/g⌉. For a box Δ
is a whole number and a multiple of g, and the rounding costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from noisewise.core.design import STATISTIC_BITS, Ball, Design, Geometry, Monomial, row_bits
from noisewise.core.statistics.second_moments import SecondMoments

STEP_BITS = 16
STEP = 1 << (STATISTIC_BITS - STEP_BITS)  # g in units of 2**-32


@dataclass(frozen=True)
class SmallestEigenvalue:
    """λ_min(S) of S = Σ vv', v = (1, x) on unit scale: how well the features tell rows apart.

    One number, computed from the second moments rather than summed. Its value is rounded down to a
    multiple of 2**-16. adaSSP (Wang 2018) chooses its ridge by it. The target takes no part.
    """

    design: Design
    name = "smallest_eigenvalue"
    degree = 2
    entries: tuple[Monomial, ...] = field(default=((),), init=False, repr=False)

    @property
    def size(self) -> int:
        """Number of rows and columns of S."""
        return len(self.design.columns)  # the constant takes the target's place

    def largest_square(self, geometry: Geometry) -> Fraction:
        """The largest possible |v|²: 1, one for every numeric feature, and one for every group.

        At most one indicator of a category is 1, and the sizes of the columns of any group (shares
        of levels, B-splines) add up to at most 1, so that their squares do. In a ball it is at
        most 1 + R².
        """
        design = self.design
        box = Fraction(design.single_columns + len(design.group_sizes))
        radius = self.radius(geometry)
        return box if radius is None else min(box, 1 + radius**2)

    def radius(self, geometry: Geometry) -> Fraction | None:
        """The ball's radius as it is on the rows' grid; None for a box."""
        if not isinstance(geometry, Ball):
            return None
        bits = row_bits(self.degree)
        return Fraction(geometry.grid_radius(bits), 1 << bits)


def sensitivity(statistic: SmallestEigenvalue, geometry: Geometry) -> Fraction:
    """Largest change by one row of the rounded value, on unit scale: a multiple of 2**-16."""
    bound = statistic.largest_square(geometry)
    radius = statistic.radius(geometry)
    if radius is not None and radius < 1:
        bound = min(bound, 4 * radius**2 / (1 + radius**2))
    return Fraction(math.ceil(bound * (1 << STEP_BITS)), 1 << STEP_BITS)


# --- the value itself, without any rounding error -------------------------------------------------
#
# What gets noise must be an integer whose sensitivity is proved. The result of a floating-point
# routine has no proved sensitivity: two neighbouring data sets could be moved apart by rounding,
# and two machines could disagree. Here floating point only says where to look. Every comparison
# that decides the result is made in whole numbers of unlimited size, so the result is a function of
# the matrix alone.

MAX_SIZE = 100  # about ten seconds; the cost grows with the fifth power

Matrix = Sequence[Sequence[int]]


def value(statistic: SmallestEigenvalue, n: int, second_moments: tuple[int, ...]) -> int:
    """⌊λ_min(S)⌋ on the coarse grid, in units of 2**-32, from the exact sums.

    `second_moments` are the sums of `SecondMoments` of the same design, in the order of its
    entries.
    """
    entries = SecondMoments(statistic.design).with_public(n, second_moments)
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
