"""The privacy guarantee that was asked for, in the words of whoever has to defend it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.core.privacy import as_delta, as_loss

MAX_EPSILON = 100


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
        if not isinstance(document, dict) or set(document) not in (
            {"rho"},
            {"epsilon", "delta"},
        ):
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
    two_five = value.denominator
    places = 0
    for prime in (2, 5):
        count = 0
        while two_five % prime == 0:
            two_five //= prime
            count += 1
        places = max(places, count)
    if two_five != 1 or places > 40:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)
