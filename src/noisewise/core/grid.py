"""The grids on which rows and statistics are integers.

A statistic of degree m is a sum of products of m row values. Rows are rounded to ``32 / m`` binary
digits after the point, so every product is an integer in units of 2**-32, whatever the degree, and
at most 2**32 in size. With at most 2**30 rows every sum is at most 2**62: it fits a signed 64-bit
integer with one bit to spare, so overflow is impossible.

Sixteen bits (degree 2) round a value by at most 7.6e-6 of its column's half-width. Rounding can
move a mean by that much and no more, which stays below a posterior standard deviation until n is
of the order of 1e10.
"""

STATISTIC_BITS = 32
STATISTIC_ONE = 1 << STATISTIC_BITS
MAX_ROWS = 1 << 30


def row_bits(degree: int) -> int:
    """Binary digits after the point of a row's values, for a statistic of this degree."""
    if degree not in (1, 2, 4):
        raise ValueError(f"degree {degree} does not divide the {STATISTIC_BITS}-bit grid evenly")
    return STATISTIC_BITS // degree
