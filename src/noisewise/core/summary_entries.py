"""What block summaries can be asked: questions, quantiles, and locations with their base laws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from noisewise.core.errors import RequestError

CELL_BITS = 52
CELLS = 1 << CELL_BITS


@dataclass(frozen=True)
class Question:
    """How probable is it that a coefficient is below a number?"""

    coefficient: str
    threshold: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", finite(self.threshold, "threshold"))

    def __str__(self) -> str:
        return f"{self.coefficient} < {self.threshold:g}"


@dataclass(frozen=True)
class QuantileItem:
    """A posterior quantile of a coefficient that is known to lie between two public numbers."""

    coefficient: str
    probability: float
    lower: float
    upper: float

    def __post_init__(self) -> None:
        for name in ("probability", "lower", "upper"):
            object.__setattr__(self, name, finite(getattr(self, name), name))
        if not 0 < self.probability < 1:
            raise RequestError(
                f"probability: {self.probability:g} is not between 0 and 1, such as 0.05 or 0.5"
            )
        if not 0 < self.upper - self.lower < math.inf:
            raise RequestError(
                f"bounds of {self.coefficient!r}: lower ({self.lower:g}) must be below upper "
                f"({self.upper:g})"
            )
        size = max(abs(self.lower), abs(self.upper))
        if size > 1e150 or self.upper - self.lower < 1e-150:
            raise RequestError(
                f"bounds of {self.coefficient!r}: {self.lower:g} and {self.upper:g} must be "
                "numbers of ordinary size, and not the same to 150 digits"
            )

    def __str__(self) -> str:
        return f"quantile {self.probability:g} of {self.coefficient}"

    def value(self, fraction: float) -> float:
        """The coefficient that a mean of ψ stands for."""
        return self.lower + fraction * (self.upper - self.lower)


@dataclass(frozen=True)
class CauchyBase:
    """The public base law of a median: where it might be, before any row is seen.

    The real line is divided into 2**52 cells of equal probability. It costs little to be wrong: a
    median k scales away from the centre is found as well as if log(k²) fewer blocks counted.
    """

    centre: float
    scale: float

    def __post_init__(self) -> None:
        for name in ("centre", "scale"):
            object.__setattr__(self, name, finite(getattr(self, name), f"base {name}"))
        if not 1e-150 < self.scale < 1e150 or abs(self.centre) > 1e150:
            raise RequestError(
                f"base: scale = {self.scale:g} must be a positive number of ordinary size"
            )

    def value(self, cell: int) -> float:
        """The number in the middle of a cell (in probability)."""
        middle = cell + 0.5 - CELLS / 2
        if abs(middle) <= CELLS / 4:
            return self.centre + self.scale * math.tan(math.pi * middle / CELLS)
        # The distance to the end is exact; in the tails the tangent of the middle would not be.
        rest = CELLS / 2 - abs(middle)
        return self.centre + math.copysign(self.scale, middle) / math.tan(math.pi * rest / CELLS)


@dataclass(frozen=True)
class LocationItem:
    """A coefficient whose median and scale are published.

    Parameters
    ----------
    location : CauchyBase
        Base law of the median over blocks of the posterior mean m_j.
    log_scale : CauchyBase
        Base law of the median over blocks of the log scale (see `LocationScale`).
    """

    coefficient: str
    location: CauchyBase
    log_scale: CauchyBase

    def __str__(self) -> str:
        return self.coefficient


def finite(value: Any, name: str) -> float:
    """A finite number, or an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{name}: expected a number, got {str(value)[:40]!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RequestError(f"{name}: expected a finite number, got {number}")
    return number + 0.0
