"""Exact draws of one split: an integer m with P(m) ∝ m^a (M - m)^b and lowest ≤ m ≤ M - lowest.

That is a Beta(a + 1, b + 1) on a grid of M = 2**24 steps, truncated and renormalised. The weight is
log-concave in m and has its mode at M a/(a + b), so on a range of m on one side of the mode it is
largest at the end nearer to the mode. A draw proposes from a staircase above the weight (ranges,
with the weight at that end, rounded up, as an integer) and accepts m with probability
weight(m) / stair(m). The law of accepted m is exact, whatever the stairs; they only decide how
often one is accepted.

Weights are relative to the one next to the mode. Doubles are used where they can decide: they
assume that the system's `log` and `exp` are right to 40 of their 53 bits, and the bounds below
allow for it. What doubles cannot decide is decided by `decimal`, with as many digits as it takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import cached_property

from noisewise.core.kinds.network.content import TABLE_BITS
from noisewise.holder.mechanisms import randomness
from noisewise.holder.mechanisms.exact import decimals

ONE = 1 << TABLE_BITS

# Where the stairs are, in units of the weight's width: this accepts about four draws in five.
_STEPS = (0.4, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 7.0, 12.0, 24.0)
_STAIR_BITS = 64
_TRUSTED = 2.0**-40
_SMALLEST_LOG = -700.0  # below, doubles lose their precision


@dataclass(frozen=True)
class SplitSampler:
    """Draws of one split; see the module's notes."""

    # Exponents, not negative
    a: Fraction
    b: Fraction
    lowest: int  # from 1 to M/2 - 1

    def __post_init__(self) -> None:
        if self.a < 0 or self.b < 0:
            raise ValueError("the exponents of a split must not be negative")
        if not 1 <= self.lowest < ONE // 2:
            raise ValueError("lowest must be from 1 to below one half")

    def draw(self) -> int:
        """One draw."""
        stairs, total = self._stairs
        while True:
            place = randomness.below(total)
            for start, stop, height in stairs:
                mass = (stop - start + 1) * height
                if place < mass:
                    break
                place -= mass
            m = start + place // height
            if self._accepts(m, height):
                return m

    @cached_property
    def _reference(self) -> int:
        """The grid point at or below the mode, within the limits."""
        highest = ONE - self.lowest
        if self.a + self.b == 0:
            return ONE // 2
        mode = math.floor(ONE * self.a / (self.a + self.b))
        return max(self.lowest, min(highest, mode))

    @cached_property
    def _stairs(self) -> tuple[tuple[tuple[int, int, int], ...], int]:
        """Ranges (start, stop, height) that cover the grid, nearest to the mode first."""
        reference = self._reference
        width = self._width()
        ranges = []
        lower = [reference, *(reference - max(1, round(width * step)) for step in _STEPS)]
        upper = [reference + 1, *(reference + 1 + max(1, round(width * s)) for s in _STEPS)]
        for near, far in zip(lower, [*lower[1:], self.lowest - 1], strict=True):
            start = max(far + 1, self.lowest)
            if start <= near:
                ranges.append((start, near, near))
        highest = ONE - self.lowest
        for near, far in zip(upper, [*upper[1:], highest + 1], strict=True):
            stop = min(far - 1, highest)
            if near <= stop:
                ranges.append((near, stop, near))
        stairs = []
        for start, stop, nearest in ranges:
            _, high = self.quick_log_ratio(nearest)
            height = math.ceil(math.ldexp(math.exp(high) * (1 + 4 * _TRUSTED), _STAIR_BITS)) + 1
            stairs.append((start, stop, height))
        stairs.sort(key=lambda stair: -(stair[1] - stair[0] + 1) * stair[2])
        return tuple(stairs), sum((stop - start + 1) * height for start, stop, height in stairs)

    def _width(self) -> float:
        """How far the weight reaches from its mode: a guess, on which only the speed depends."""
        a, b, m = float(self.a), float(self.b), float(self._reference)
        curvature = a / m**2 + b / (ONE - m) ** 2
        slope = abs(a / m - b / (ONE - m))
        return 1 / (math.sqrt(curvature) + slope + 1 / ONE)

    # --- weights ----------------------------------------------------------------------------------

    @cached_property
    def _floats(self) -> tuple[float, float, float, float]:
        r = self._reference
        return float(self.a), float(self.b), math.log(r), math.log(ONE - r)

    def quick_log_ratio(self, m: int) -> tuple[float, float]:
        """Bounds of log(weight(m) / weight(reference)) by doubles.

        A logarithm of at most 2**24 is below 17, so each of the four is off by at most 17 · 2^-40,
        and the two differences by 2^-34.9 together; all further rounding is far below the 2^-34
        that is allowed for.
        """
        if self.a + self.b > 1 << 24:
            low, high = (float(bound) for bound in self.log_ratio(m, 40))
            room = 2.0**-50 * max(abs(low), abs(high), 1)
            return low - room, high + room
        a, b, log_first, log_second = self._floats
        value = a * (math.log(m) - log_first) + b * (math.log(ONE - m) - log_second)
        room = (a + b + 1) * 2.0**-34
        return value - room, value + room

    def log_ratio(self, m: int, digits: int) -> tuple[Decimal, Decimal]:
        """Bounds of log(weight(m) / weight(reference)) by decimals.

        A logarithm here is below 17 and correctly rounded, so it is off by at most 10^(2-digits);
        so are the differences and the exponents' relative errors times them. With a + b added up,
        10^(5-digits) times (a + b + 1) is more than all of these together.
        """
        context = decimals(digits)
        total = Decimal(0)
        for exponent, x, r in (
            (self.a, m, self._reference),
            (self.b, ONE - m, ONE - self._reference),
        ):
            factor = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
            change = context.subtract(context.ln(Decimal(x)), context.ln(Decimal(r)))
            total = context.add(total, context.multiply(factor, change))
        room = Decimal(math.ceil(self.a + self.b) + 1).scaleb(5 - digits)
        return context.subtract(total, room + room), context.add(total, room + room)

    def weight(self, m: int, digits: int) -> tuple[Decimal, Decimal]:
        """Bounds of weight(m) / weight(reference) by decimals."""
        context = decimals(digits)
        low, high = self.log_ratio(m, digits)
        room = Decimal(1).scaleb(3 - digits)
        return (
            context.multiply(context.exp(low), context.subtract(Decimal(1), room)),
            context.multiply(context.exp(high), context.add(Decimal(1), room)),
        )

    def _accepts(self, m: int, height: int) -> bool:
        """True with probability weight(m) / (height / 2**64)."""
        bits = 64
        u = randomness.bits(bits)
        low, high = self.quick_log_ratio(m)
        if low > _SMALLEST_LOG:
            # u height < weight 2^128, by doubles with room for their errors.
            scaled = math.ldexp(float(height), -_STAIR_BITS)
            if (u + 1) / 2.0**bits * scaled * (1 + 8 * _TRUSTED) <= math.exp(low):
                return True
            if u / 2.0**bits * scaled * (1 - 8 * _TRUSTED) >= math.exp(high):
                return False
        digits = 40
        while True:
            weight_low, weight_high = self.weight(m, digits)
            one = Decimal(1 << (bits + _STAIR_BITS))
            if Decimal((u + 1) * height) <= decimals(digits, ROUND_FLOOR).multiply(weight_low, one):
                return True
            if Decimal(u * height) >= decimals(digits, ROUND_CEILING).multiply(weight_high, one):
                return False
            u = (u << 64) | randomness.bits(64)
            bits += 64
            digits *= 2
