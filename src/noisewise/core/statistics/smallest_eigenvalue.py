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
from dataclasses import dataclass, field
from fractions import Fraction

from noisewise.core.design import STATISTIC_BITS, Ball, Design, Geometry, Monomial, row_bits

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
