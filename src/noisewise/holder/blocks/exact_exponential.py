"""Enclosures of exp(-s) and its powers by integers, rounded outwards.

A number x in [0, 1] is enclosed by two integers: low ≤ 2**bits x ≤ high. All arithmetic is on
Python's integers, floors below and ceilings above, so an enclosure is never wrong, only wide.
"""

from __future__ import annotations

from fractions import Fraction


def exponential(s: Fraction, bits: int) -> tuple[int, int]:
    """Enclose exp(-s), s ≥ 0.

    With h halvings t = s / 2**h ≤ 1. e**t is enclosed by its series, whose terms are positive: the
    terms from k on add up to at most t**k/k! (1 + 1/2 + 1/4 + …) once k ≥ 2. Then 1/e**t is squared
    h times.
    """
    if s < 0:
        raise ValueError("s must not be negative")
    halvings = max(0, (s.numerator // s.denominator).bit_length())
    t = s / 2**halvings
    one = 1 << bits
    low = high = 0
    term_low = term_high = one
    k = 0
    while term_high > 1:
        low, high = low + term_low, high + term_high
        k += 1
        term_low = term_low * t.numerator // (t.denominator * k)
        term_high = -(-term_high * t.numerator // (t.denominator * k))
    high += 2 * term_high
    low, high = one * one // high, min(one, -(-one * one // low))
    for _ in range(halvings):
        low, high = low * low >> bits, -(-high * high >> bits)
    return low, high


def powers(q: tuple[int, int], count: int, bits: int) -> tuple[list[int], list[int]]:
    """Enclose q**0, ..., q**(count - 1)."""
    low, high = 1 << bits, 1 << bits
    lows, highs = [low], [high]
    for _ in range(count - 1):
        low, high = low * q[0] >> bits, -(-high * q[1] >> bits)
        lows.append(low)
        highs.append(high)
    return lows, highs
