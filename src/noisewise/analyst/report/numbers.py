"""Numbers as people read them: as many digits as the uncertainty leaves, and a real minus sign."""

from __future__ import annotations

import math

MINUS = "\N{MINUS SIGN}"


def rounded(value: float, spread: float) -> str:
    """A number with two digits of its spread: 1.8363 with a spread of 0.06 is 1.836.

    Parameters
    ----------
    value : float
    spread : float
        A standard deviation or the width of an interval; 0 or NaN asks for four digits.
    """
    if not math.isfinite(value):
        return "not available"
    if not (math.isfinite(spread) and spread > 0):
        return short(value)
    places = 1 - math.floor(math.log10(spread))
    if not -6 < places < 7:
        return short(value)
    shown = round(value, places)
    return signed(f"{shown:,.{max(places, 0)}f}")


def short(value: float, digits: int = 4) -> str:
    """A number with a few significant digits, without an exponent where that is readable."""
    if not math.isfinite(value):
        return "not available"
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        return signed(f"{value:.{digits}g}")
    if value == 0:
        return "0"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    plain = f"{value:,.{places}f}"
    return signed(plain.rstrip("0").rstrip(".") if "." in plain else plain)


def percent(share: float) -> str:
    """A share in per cent, with a decimal near the ends; never 0% or 100% unless it is."""
    if not math.isfinite(share):
        return "not available"
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1:
        return ">99.9%"
    near_an_end = 0 < share < 0.0095 or 0.9905 < share < 1
    return f"{100 * share:.{1 if near_an_end else 0}f}%"


def signed(plain: str) -> str:
    """With a typographic minus; minus nothing is nothing."""
    if plain.startswith("-"):
        return MINUS + plain[1:] if any(c in "123456789" for c in plain) else plain[1:]
    return plain


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from low to high, at most about `most` of them."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [step * i for i in range(first, last + 1)]
