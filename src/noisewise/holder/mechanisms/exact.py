"""Exact random draws: integer and interval arithmetic on the system's random numbers, no seeds.

Two ideas suffice. A rational probability is met exactly by integers (`randomness.below`). Any
other probability p is met by comparing it with a uniform number of which only some binary digits
are drawn: with an interval for p that is narrow enough, those digits nearly always decide; where
they don't, more digits are drawn and the interval is narrowed. Nothing is rounded.

The intervals come from Python's `decimal`, whose `exp` and `ln` are correctly rounded.

How long a draw takes depends on the data, as with every rejection sampler: who can time the holder
learns something that the claim doesn't cover. For tables it is a matter of microseconds, for a
regression whose coefficients are pressed against their ball one of seconds.

References
----------
Canonne, Kamath & Steinke (2020), "The discrete Gaussian for differential privacy".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
)
from fractions import Fraction
from math import floor, isqrt

from noisewise.holder.mechanisms import randomness

# Lower and upper bounds, as a function of the number of digits; they must close in on the values.
Bounds = Callable[[int], Sequence[tuple[Decimal, Decimal]]]

_FIRST_BITS = 64
FIRST_DIGITS = 40  # what bounds are asked for first


def bernoulli(p: Fraction) -> bool:
    """True with probability p."""
    return randomness.below(p.denominator) < p.numerator


def bernoulli_exp(gamma: Fraction) -> bool:
    """True with probability exp(-gamma), for gamma ≥ 0 (Canonne, Kamath & Steinke, Algorithm 1).

    For gamma ≤ 1 the number of successes of Bernoulli(gamma/1), Bernoulli(gamma/2), … before the
    first failure is even with probability 1 - gamma + gamma²/2 - … = exp(-gamma).
    """
    if gamma < 0:
        raise ValueError("gamma must not be negative")
    while gamma > 1:
        if not bernoulli_exp(Fraction(1)):
            return False
        gamma -= 1
    k = 1
    while bernoulli(gamma / k):
        k += 1
    return k % 2 == 1


def discrete_laplace(scale: int) -> int:
    """An integer z with probability ∝ exp(-|z|/scale) (the same, Algorithm 2, for whole scales)."""
    while True:
        u = randomness.below(scale)
        if not bernoulli_exp(Fraction(u, scale)):
            continue
        v = 0
        while bernoulli_exp(Fraction(1)):
            v += 1
        size = u + scale * v
        negative = bool(randomness.bits(1))
        if size or not negative:
            return -size if negative else size


def discrete_gaussian(variance: Fraction, centre: Fraction) -> int:
    """An integer z with probability ∝ exp(-(z - centre)²/(2 variance)).

    As Canonne, Kamath & Steinke's Algorithm 3, for any rational centre. With c the centre's
    distance from the nearest integer (|c| ≤ 1/2), propose y from a discrete Laplace of whole scale
    t and accept it with probability exp(f(y) - max f), where f(y) = -(y - c)²/2v + |y|/t is the
    logarithm of target over proposal. On each side of 0, f is a parabola with its top at
    ±v/t + c, so its largest value over the integers is at 0 or next to one of the two tops.
    """
    nearest = round(centre)
    c = centre - nearest
    # About √variance, from whole numbers; any t would be right, this one is quick.
    t = 1 + isqrt(variance.numerator // variance.denominator)

    def ratio(y: int) -> Fraction:
        return Fraction(abs(y), t) - (y - c) ** 2 / (2 * variance)

    right, left = floor(c + variance / t), floor(c - variance / t)
    largest = max(ratio(y) for y in (0, max(0, right), right + 1, left, min(0, left + 1)))
    while True:
        y = discrete_laplace(t)
        if bernoulli_exp(largest - ratio(y)):
            return nearest + y


def decimals(digits: int, rounding: str = ROUND_HALF_EVEN) -> Context:
    """Decimal arithmetic with so many digits and no limit on exponents that could matter."""
    return Context(prec=digits, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX)


def choose(bounds: Bounds) -> int:
    """An index with probability proportional to the weight that `bounds` encloses.

    Inversion: U uniform on [0, 1), of which some binary digits are known, is in cell k if
    Σ_{i<k} w_i ≤ U Σ w < Σ_{i≤k} w_i. Decided where it holds for all weights within the bounds
    and all further digits of U; otherwise both are refined.
    """
    bits, digits = _FIRST_BITS, FIRST_DIGITS
    u = randomness.bits(bits)
    while True:
        intervals = bounds(digits)
        down = decimals(digits + 40, ROUND_FLOOR)
        up = decimals(digits + 40, ROUND_CEILING)
        below_low = below_high = Decimal(0)
        sums = []
        for low, high in intervals:
            below_low, below_high = down.add(below_low, low), up.add(below_high, high)
            sums.append((below_low, below_high))
        total_low, total_high = sums[-1]
        one = Decimal(1 << bits)
        low_end = down.divide(down.multiply(Decimal(u), total_low), one)
        high_end = up.divide(up.multiply(Decimal(u + 1), total_high), one)
        start_high = Decimal(0)
        for index, (sum_low, sum_high) in enumerate(sums):
            if start_high <= low_end and high_end <= sum_low:
                return index
            start_high = sum_high
        u = (u << _FIRST_BITS) | randomness.bits(_FIRST_BITS)
        bits += _FIRST_BITS
        digits *= 2
