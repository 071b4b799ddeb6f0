"""Numbers as text: exact where they are kept, and rounded towards caution where they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Inexact
from fractions import Fraction


def exact(value: Fraction) -> str:
    """Return the number as text that reads back as the same number."""
    # Not core.privacy.fraction_text, which is as exact but writes a delta of 1e-10 in full: people
    # read these in refusals and in the audit trail.
    return _short(value, 12, ROUND_FLOOR, lossless=True) or str(value)


def up(value: Fraction | float, digits: int = 6) -> str:
    """Return what is spent or needed, never less than it is."""
    return "infinity" if value == math.inf else _rounded(Fraction(value), digits, ROUND_CEILING)


def down(value: Fraction, digits: int = 6) -> str:
    """Return what is left, never more than it is."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: Fraction, digits: int, rounding: str) -> str:
    """Return short decimals as they are, and long ones rounded to so many digits."""
    return (
        _short(value, 12, rounding, lossless=True)
        or _short(value, digits, rounding, lossless=False)
        or ""
    )


def _short(value: Fraction, digits: int, rounding: str, *, lossless: bool) -> str | None:
    """Return `value` as a decimal of so many digits, or None if it must be exact and isn't."""
    context = Context(prec=digits, rounding=rounding)
    numerator, denominator = Decimal(value.numerator), Decimal(value.denominator)
    decimal = context.divide(numerator, denominator)
    if lossless and context.flags[Inexact]:
        return None
    decimal = decimal.normalize(context)
    small_or_huge = decimal != 0 and not -5 <= decimal.adjusted() < 12
    return str(decimal).lower() if small_or_huge else format(decimal, "f")


def optional(value: Fraction | None, text: Callable[[Fraction], str]) -> str | None:
    """Return the text of a number that may be missing."""
    return None if value is None else text(value)
