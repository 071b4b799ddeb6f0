"""Exact sums of products over the rows of every block, in integer limbs of 44 bits.

A row's values are integers of at most 59 bits and a sign (see `BlockGrid`), so a product of two has
up to 118 bits, and 64-bit integers hold neither it nor its sum. It is cut into three limbs,

    P = L0 + 2**44 L1 + 2**88 L2,    0 ≤ L0 < 2**44,  0 ≤ L1 < 2**44 + 2**17,  |L2| ≤ 2**30,

which are summed independently; a value itself is cut into two. Integer sums do not depend on the
order of the rows, nor on who adds them: two blocks with the same rows have the same limbs after
`carry`. (Sums of doubles would tell something about the order, and an analyst who can make a
regression tie with a threshold could read it off.)

**No overflow.** Let the limbs below the top one be carried after at most 2**18 rows. A carried limb
is below 2**44, so in between it stays below (2**18 + 1)(2**44 + 2**17) < 2**63. The top limb of a
product takes up to 2**30 in size from each row and nearly nothing from carries: at most 2**61 from
2**30 rows.

**The product.** With a = 2**30 a1 + a0, 0 ≤ a0 < 2**30, hence |a1| ≤ 2**29, and the same for b,

    ab = 2**60 a1 b1 + 2**30 (a1 b0 + a0 b1) + a0 b0 = 2**60 high + low,
    low  = a0 b0 + 2**30 (middle mod 2**30)         in [0, 2**61),
    high = a1 b1 + floor(middle / 2**30)            |high| ≤ 2**58 + 2**31,

where |middle| ≤ 2**60. Every number here fits 64 bits, and shifts of negative integers round down.
"""

from __future__ import annotations

from typing import Any

from noisewise._compiled import compiled_in_order

_LIMB = (1 << 44) - 1
_HALF = (1 << 30) - 1
_HIGH = (1 << 28) - 1


@compiled_in_order
def split_rows(values: Any, limbs: Any) -> None:
    """Cut all rows' values and products into limbs.

    `limbs`, (rows, limb_count), receives 1, the values, and the products of columns a ≤ b, row by
    row of the triangle.
    """
    rows, columns = values.shape
    for i in range(rows):
        limbs[i, 0] = 1
        at = 1
        for a in range(columns):
            value = values[i, a]
            limbs[i, at] = value & _LIMB
            limbs[i, at + 1] = value >> 44
            at += 2
        for a in range(columns):
            left = values[i, a]
            a0 = left & _HALF
            a1 = left >> 30
            for b in range(a, columns):
                right = values[i, b]
                b0 = right & _HALF
                b1 = right >> 30
                middle = a1 * b0 + a0 * b1
                low = a0 * b0 + ((middle & _HALF) << 30)
                high = a1 * b1 + (middle >> 30)
                limbs[i, at] = low & _LIMB
                limbs[i, at + 1] = (low >> 44) + ((high & _HIGH) << 16)
                limbs[i, at + 2] = high >> 28
                at += 3


@compiled_in_order
def add_rows(limbs: Any, blocks: Any, total: Any) -> None:
    """Add rows to their blocks, partition by partition.

    `limbs` are (rows, limb_count), `blocks`, (partitions, rows), says the block of every row in
    every partition, and `total` is (partitions, M, limb_count).
    """
    partitions, rows = blocks.shape
    width = limbs.shape[1]
    for r in range(partitions):
        for i in range(rows):
            block = blocks[r, i]
            for k in range(width):
                total[r, block, k] += limbs[i, k]


@compiled_in_order
def carry(total: Any, columns: int) -> None:
    """Bring all limbs but the top ones into [0, 2**44)."""
    partitions, blocks, width = total.shape
    first_product = 1 + 2 * columns
    for r in range(partitions):
        for j in range(blocks):
            for k in range(1, first_product, 2):
                total[r, j, k + 1] += total[r, j, k] >> 44
                total[r, j, k] &= _LIMB
            for k in range(first_product, width, 3):
                total[r, j, k + 1] += total[r, j, k] >> 44
                total[r, j, k] &= _LIMB
                total[r, j, k + 2] += total[r, j, k + 1] >> 44
                total[r, j, k + 1] &= _LIMB


# ---------------------------------------------------------------------------------------------
# Numbers of 106 bits as sums of two doubles: enough to centre exact sums without losing digits. The
# textbook algorithms of Dekker (1971) and Knuth, for finite numbers below 1e290. They rely on every
# operation being rounded on its own.

_SPLIT = 134217729.0  # 2**27 + 1


@compiled_in_order
def two_sum(a: float, b: float) -> Any:
    """a + b as a rounded sum and its exact error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@compiled_in_order
def two_product(a: float, b: float) -> Any:
    """a * b as a rounded product and its exact error."""
    product = a * b
    scaled = _SPLIT * a
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = _SPLIT * b
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


@compiled_in_order
def multiply(a: float, a_rest: float, b: float, b_rest: float) -> Any:
    """The product of two double-doubles."""
    product, error = two_product(a, b)
    return two_sum(product, error + (a * b_rest + a_rest * b))


@compiled_in_order
def subtract(a: float, a_rest: float, b: float, b_rest: float) -> Any:
    """The difference of two double-doubles, to 106 bits of the larger one."""
    total, error = two_sum(a, -b)
    rest, rest_error = two_sum(a_rest, -b_rest)
    total, error = two_sum(total, error + rest)
    return two_sum(total, error + rest_error)


@compiled_in_order
def from_two_limbs(low: int, high: int) -> Any:
    """low + 2**44 high, for 0 ≤ low < 2**44 and |high| < 2**53."""
    return two_sum(float(high) * 2.0**44, float(low))


@compiled_in_order
def from_three_limbs(low: int, middle: int, high: int) -> Any:
    """low + 2**44 middle + 2**88 high, for limbs as `carry` leaves them.

    The top limb may have up to 62 bits, so it is cut into two doubles first.
    """
    top = (high >> 31) << 31
    total, rest = two_sum(float(top) * 2.0**88, float(high - top) * 2.0**88)
    tail = float(middle) * 2.0**44
    total, error = two_sum(total, tail)
    rest += error
    total, rest = two_sum(total, rest)
    return two_sum(total, rest + float(low))
