"""Arithmetic that decides about privacy: 80 digits, and rounding in a known direction."""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import Any

from noisewise.core.errors import RequestError

DIGITS = 80
# Relative error allowed for an 80-digit evaluation. Where it is relied on, arguments are so
# bounded that the true error, conversions and thousands of additions included, is below 1e-61.
MARGIN = Fraction(1, 10**60)

_local = threading.local()


def precise() -> Any:
    """Return this thread's 80-digit mpmath context; the global one belongs to the user."""
    if not hasattr(_local, "context"):
        import mpmath

        _local.context = mpmath.MPContext()
        _local.context.dps = DIGITS
    return _local.context


def to_precise(value: Fraction) -> Any:
    """Convert a rational number to 80 digits (relative error 1e-80)."""
    mp = precise()
    return mp.mpf(value.numerator) / mp.mpf(value.denominator)


def to_fraction(value: Any) -> Fraction:
    """Convert a finite mpmath number to the rational number it is."""
    size = Fraction(abs(int(value.man))) * Fraction(2) ** int(value.exp)
    return size if value >= 0 else -size


def float_up(value: Fraction) -> float:
    """Return the smallest float64 that is not below `value`; infinity past the largest."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -1.7976931348623157e308
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def float_down(value: Fraction) -> float:
    """Return the largest float64 that is not above `value`."""
    return -float_up(-value)


def check_whole(value: int, name: str) -> None:
    """Refuse floats, which need not be what they look like, and anything below 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{name} = {value!r} must be an integer of at least 1")
