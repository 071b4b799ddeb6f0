"""What a mechanism costs, and the guarantee that was asked for.

Events are frozen data that say nothing of what the mechanism saw. A claim is the guarantee in the
words of whoever has to defend it.

`noisewise.core.composition` tells what a set of events adds up to; `noisewise.core.calibration`
turns a guarantee into a noise scale. An event of unknown type is an error, never free.
"""

from __future__ import annotations

import math
import numbers
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisewise.core.errors import RequestError

# Bounds on what a number may be, so that a hostile file costs neither time nor memory.
_LARGEST_EXPONENT = 400
_LARGEST_BITS = 4096
_LARGEST_TEXT = 2600
_LARGEST_DEPTH = 8

# Public limits of what can be asked for, claimed or set as a cap. Far beyond what makes sense, and
# well within what a float64 can show.
LARGEST_LOSS = 10**6
MAX_EPSILON = 100  # of a claim
LEAST_LOSS = Fraction(1, 10**9)
LEAST_DELTA = Fraction(1, 10**300)

_NUMBER = re.compile(
    r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?", re.ASCII
)
_RATIO = re.compile(r"[0-9]+/[0-9]*[1-9][0-9]*", re.ASCII)

Amount = int | float | str | Fraction | Decimal


def as_fraction(value: Amount, name: str) -> Fraction:
    """Return the exact rational number that somebody who wrote `value` meant.

    A float stands for its shortest decimal form: 0.1 is one tenth, not the binary number nearest
    to it, so that three charges of 0.1 fit a cap of 0.3. Text is a decimal ("0.1", "1e-6") or a
    ratio ("1/3"); an error calls the value by its `name`.
    """
    if isinstance(value, bool):
        raise _unusable(name, value)
    if isinstance(value, numbers.Integral):
        result = Fraction(int(value))
    elif isinstance(value, Fraction):
        result = value
    elif isinstance(value, float):
        # A subclass such as numpy's float64 has a repr that isn't a number.
        result = _parsed(float.__repr__(value + 0.0), value, name)
    elif isinstance(value, str | Decimal):
        result = _parsed(str(value).strip(), value, name)
    else:
        raise _unusable(name, value)
    if result < 0 or not _compact(result):
        raise _unusable(name, value)
    return result


def as_loss(value: Amount, name: str) -> Fraction:
    """Return an epsilon or rho that can be asked for or be a cap: `as_fraction` within limits."""
    result = as_fraction(value, name)
    if not LEAST_LOSS <= result <= LARGEST_LOSS:
        raise RequestError(
            f"{name} = {_short(result)} is out of range; give a number from "
            f"{float(LEAST_LOSS):g} to {LARGEST_LOSS:,}. Common choices are between 0.1 and 10"
        )
    return result


def as_delta(value: Amount, name: str = "delta") -> Fraction:
    """Return a delta that can be asked for or be part of a cap: `as_fraction` within limits."""
    result = as_fraction(value, name)
    if result != 0 and not LEAST_DELTA <= result < 1:
        raise RequestError(
            f"{name} = {_short(result)} is out of range; give 0, or a probability from "
            f"{float(LEAST_DELTA):g} to below 1. It should be well below 1 / (number of people), "
            "such as 1e-6"
        )
    return result


def _short(value: Fraction) -> str:
    """Show a number that may be beyond floats."""
    return f"{(Decimal(value.numerator) / Decimal(value.denominator)).normalize():.6g}"


def _parsed(text: str, value: object, name: str) -> Fraction:
    if len(text) > _LARGEST_TEXT:
        raise _unusable(name, value)
    match = _NUMBER.fullmatch(text)
    if match:
        exponent = match["exponent"] or "0"
        # The number of characters first: the exponent itself may have thousands of digits.
        if len(exponent) > 4 or abs(int(exponent)) > _LARGEST_EXPONENT:
            raise _unusable(name, value)
    elif not _RATIO.fullmatch(text):
        raise _unusable(name, value)
    return Fraction(text)


def _compact(value: Fraction) -> bool:
    return max(value.numerator.bit_length(), value.denominator.bit_length()) <= _LARGEST_BITS


def _unusable(name: str, value: object) -> RequestError:
    try:
        shown = repr(value)[:60]
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        shown = "a number with thousands of digits"
    sign = "a" if name in ("epsilon", "rho") else "zero or a"  # nobody gets privacy for nothing
    return RequestError(
        f"{name} = {shown} is not a number that can be used here; give {sign} "
        f"positive finite number, such as 0.1, '1e-6' or '1/3'"
    )


@dataclass(frozen=True)
class PureEvent:
    """Any epsilon-differentially private mechanism, such as discrete Laplace noise."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Fraction):
            raise RequestError(
                f"epsilon = {self.epsilon!r} must be a Fraction; convert with as_fraction"
            )
        if not _compact(self.epsilon) or self.epsilon > LARGEST_LOSS:
            raise _unusable("epsilon", self.epsilon)
        if self.epsilon <= 0:
            raise RequestError(f"epsilon = {self.epsilon} must be positive")


@dataclass(frozen=True)
class GaussianEvent:
    """Gaussian noise, on the integers if `slack` is positive."""

    noise_multiplier: float  # standard deviation divided by the L2 sensitivity, rounded down
    slack: float = 0.0  # epsilon for the noise being discrete; see `discreteness_slack`

    def __post_init__(self) -> None:
        if type(self.noise_multiplier) is not float or not 0 < self.noise_multiplier < math.inf:
            raise RequestError(
                f"noise_multiplier = {self.noise_multiplier!r} must be a positive, finite float"
            )
        if type(self.slack) is not float or not 0 <= self.slack < 1:
            raise RequestError(f"slack = {self.slack!r} must be a float from 0 to below 1")


@dataclass(frozen=True)
class ComposedEvent:
    """Several events, all of which happened to the same people."""

    events: tuple[PureEvent | GaussianEvent | ComposedEvent, ...]

    def __post_init__(self) -> None:
        known = PureEvent | GaussianEvent | ComposedEvent
        if not isinstance(self.events, tuple) or not self.events:
            raise RequestError(f"events = {self.events!r} must be a tuple with at least one event")
        for event in self.events:
            if not isinstance(event, known):
                raise RequestError(f"events: {event!r} is not a privacy event")
        if self.depth > _LARGEST_DEPTH:
            raise RequestError(f"events are nested more than {_LARGEST_DEPTH} deep; flatten them")

    @cached_property
    def depth(self) -> int:
        """Number of composed events inside one another, itself included."""
        return 1 + max(e.depth if isinstance(e, ComposedEvent) else 0 for e in self.events)


Event = PureEvent | GaussianEvent | ComposedEvent


def event_to_json(event: Event) -> dict[str, Any]:
    """Describe an event in JSON types; `event_from_json` gives back an equal event."""
    if isinstance(event, PureEvent):
        return {"type": "pure", "epsilon": str(event.epsilon)}
    if isinstance(event, GaussianEvent):
        return {
            "type": "gaussian",
            "noise_multiplier": event.noise_multiplier,
            "slack": event.slack,
        }
    if isinstance(event, ComposedEvent):
        return {"type": "composed", "events": [event_to_json(e) for e in event.events]}
    raise RequestError(f"event: {event!r} is not a privacy event")


_FIELDS = {
    "pure": {"type", "epsilon"},
    "gaussian": {"type", "noise_multiplier", "slack"},
    "composed": {"type", "events"},
}


def event_from_json(obj: object, depth: int = 0) -> Event:
    """Read an event; anything but the exact form of a known event is an error."""
    if not isinstance(obj, Mapping):
        raise RequestError(f"privacy event: expected an object, got {type(obj).__name__}")
    kind = obj.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise RequestError(
            f"privacy event: unknown type {str(kind)[:60]!r}; known are {', '.join(_FIELDS)}. A "
            "newer version of noisewise may know it"
        )
    if set(obj) != _FIELDS[kind]:
        raise RequestError(
            f"privacy event of type {kind!r}: expected exactly the fields "
            f"{', '.join(sorted(_FIELDS[kind]))}, got {', '.join(sorted(map(str, obj)))[:200]}"
        )
    if kind == "pure":
        if not isinstance(obj["epsilon"], str):
            raise RequestError("privacy event: epsilon must be a string such as '1/10'")
        return PureEvent(as_fraction(obj["epsilon"], "epsilon"))
    if kind == "gaussian":
        return GaussianEvent(
            _read_float(obj["noise_multiplier"], "noise_multiplier"),
            _read_float(obj["slack"], "slack"),
        )
    events = obj["events"]
    if not isinstance(events, list | tuple) or depth >= _LARGEST_DEPTH:
        raise RequestError(
            f"privacy event: events must be a list, nested at most {_LARGEST_DEPTH} deep"
        )
    return ComposedEvent(tuple(event_from_json(e, depth + 1) for e in events))


def _read_float(value: object, name: str) -> float:
    # A JSON writer may print 4.0 as 4, hence integers.
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53:
        return float(value)
    raise RequestError(f"privacy event: {name} must be a number, got {type(value).__name__}")


# --- what was asked for ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """Either (epsilon, delta)-differential privacy, or rho-zero-concentrated privacy.

    Exactly one of `epsilon` and `rho` is given. delta = 0 is pure differential privacy.
    """

    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise RequestError("epsilon: give either epsilon (with or without delta) or rho")
        for name in ("epsilon", "rho"):
            if getattr(self, name) is not None:
                value = as_loss(getattr(self, name), name)
                if value > MAX_EPSILON:
                    raise RequestError(
                        f"{name}: expected a number above 0 and at most {MAX_EPSILON}, got "
                        f"{float(value):g}; common choices are between 0.1 and 10"
                    )
                object.__setattr__(self, name, value)
        object.__setattr__(self, "delta", as_delta(self.delta))
        if self.rho is not None and self.delta != 0:
            raise RequestError("delta: rho-zCDP has no delta; leave it out")

    @property
    def is_pure(self) -> bool:
        """Whether this is pure epsilon-differential privacy."""
        return self.rho is None and self.delta == 0

    def to_json(self) -> dict[str, str]:
        """Exact decimal text (fractions where a decimal would not end)."""
        if self.rho is not None:
            return {"rho": fraction_text(self.rho)}
        assert self.epsilon is not None
        return {"epsilon": fraction_text(self.epsilon), "delta": fraction_text(self.delta)}

    @classmethod
    def from_json(cls, document: Any) -> Claim:
        """Read what `to_json` wrote."""
        if not isinstance(document, dict) or set(document) not in ({"rho"}, {"epsilon", "delta"}):
            raise RequestError("privacy claim: expected 'epsilon' and 'delta', or 'rho'")
        if not all(isinstance(value, str) for value in document.values()):
            raise RequestError("privacy claim: numbers must be written as text")
        return cls(**document)

    def __str__(self) -> str:
        if self.rho is not None:
            return f"rho = {float(self.rho):g} (zCDP)"
        assert self.epsilon is not None
        delta = f", delta = {float(self.delta):g}" if self.delta else ""
        return f"epsilon = {float(self.epsilon):g}{delta}"


def fraction_text(value: Fraction) -> str:
    """Shortest exact text: a decimal where it terminates, else p/q; `as_fraction` reads both."""
    places = next((k for k in range(41) if 10**k % value.denominator == 0), None)
    if places is None:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


# --- arithmetic that decides about privacy: 80 digits, and rounding in a known direction ----------


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


def ceil_sqrt(value: Fraction | int) -> int:
    """Return the smallest integer, zero or positive, whose square is at least `value`."""
    ceiling = math.ceil(value)
    return math.isqrt(ceiling - 1) + 1 if ceiling > 0 else 0


def check_whole(value: int, name: str) -> None:
    """Refuse floats, which need not be what they look like, and anything below 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{name} = {value!r} must be an integer of at least 1")
