"""Second moments of rows in a ball, and counts of rows far out: what a round sums.

A round sees a row as integers u = (c, w·e, z): a constant, the indicators e of G categories times a
weight (or none of them, while the rounds still look for the numbers' own scale), and the numbers in
public coordinates, shrunk into the ball |z| ≤ R (`holder.rows.rounds` proves that it is never
left). At most one indicator of a category is 1, so every row has

    |u|² ≤ N = c² + G w² + R².                                                                 (1)

Shares of levels, in averaged rows, have Σ s² ≤ (Σ s)² ≤ 1, and `holder.rows.rounds` shows that w·s
in whole numbers still has Σ (w·s)² ≤ w²: (1) holds for them too.

**One Gram matrix.** A row adds uu'. Off-diagonal entries count √2-fold (isometric layout), so the
norm of a change is a Frobenius norm; entries that are public are left out, which only lowers it.

*Add or remove a row.* ‖uu'‖ = |u|² ≤ N, attained on the sphere with every category off its
reference.

*Replace a row.* ‖uu' - vv'‖² = |u|⁴ + |v|⁴ - 2(u·v)² ≤ 2N². Attained by two rows of full length at
right angles, which exist if R ≥ c and there are two numbers or more: with other levels in every
category, z·z' = -c².

**Inside and outside apart.** While exploring, a round publishes two Gram matrices: of the rows that
were in the ball, and of those that were shrunk onto it. A row is in one of them. If both rows of a
replacement are in the same one, the bound is the one above; if not, the squared change is
|u|⁴ + |v|⁴ ≤ 2N². So it costs no more than one matrix. How many rows are inside is private: where
rows are replaced the entries (0, 0) are left out of both, because only their sum is public.

**Counts.** A histogram of how far out rows are changes by 1 in one bin if a row is added or
removed, and by at most 1 in two bins if a row is replaced: 1 and √2.

**Several rows of a unit** move at most so many times as far (triangle inequality); equal rows
attain it.

Units: row values are integers in units of 2**-10, products of two in units of 2**-20, counts in
units of 2**-32. The last is finer than a count needs; noise on so fine a grid is as good as
continuous, and is accounted for as such (`core.calibration.discreteness_slack`).
"""

from __future__ import annotations

from noisewise.core.privacy import ceil_sqrt
from noisewise.core.schema import Schema

ROW_BITS = 10  # of values in a round's coordinates
PRODUCT_ONE = 1 << (2 * ROW_BITS)
COUNT_ONE = 1 << 32
# With at most 2**30 rows every sum of products stays at or below 2**62.
LARGEST_SQUARE = 1 << 12  # of |u|, in units of 1


def longest_square(constant: int, weight: int, categories: int, radius: int) -> int:
    """N of (1), the largest |u|² of a row, in units of 2**-20."""
    return constant**2 + categories * weight**2 + radius**2


def gram_sensitivity(schema: Schema, longest: int) -> int:
    """Largest change of one or two Gram matrices by one unit, in units of 2**-20, rounded up."""
    return schema.max_rows_per_unit * _by_relation(schema, longest)


def count_sensitivity(schema: Schema) -> int:
    """Largest change of a histogram by one unit, in units of 2**-32, rounded up."""
    return schema.max_rows_per_unit * _by_relation(schema, COUNT_ONE)


def _by_relation(schema: Schema, one_row: int) -> int:
    """√2 times as much where rows are replaced."""
    return one_row if schema.neighbours == "add_remove_one" else ceil_sqrt(2 * one_row**2)
