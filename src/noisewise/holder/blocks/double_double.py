"""Numbers of 106 bits as sums of two doubles: enough to centre exact sums without losing digits.

The textbook algorithms of Dekker (1971) and Knuth, for finite numbers below 1e290. They rely on
every operation being rounded on its own.
"""

from __future__ import annotations

from typing import Any

from noisewise._compiled import compiled_in_order

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
    """low + 2**44 middle + 2**88 high, for limbs as `kernel.carry` leaves them.

    The top limb may have up to 62 bits, so it is cut into two doubles first.
    """
    top = (high >> 31) << 31
    total, rest = two_sum(float(top) * 2.0**88, float(high - top) * 2.0**88)
    tail = float(middle) * 2.0**44
    total, error = two_sum(total, tail)
    rest += error
    total, rest = two_sum(total, rest)
    return two_sum(total, rest + float(low))
