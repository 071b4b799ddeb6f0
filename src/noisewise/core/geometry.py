"""The set that every row is forced into, on unit scale. It decides the sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from noisewise.core.errors import RequestError


@dataclass(frozen=True)
class Box:
    """Every column stays within its own bounds; nothing else is done to a row."""

    kind = "box"


@dataclass(frozen=True)
class Ball:
    """The features x of a row satisfy ‖x‖₂ <= radius; longer rows are scaled down onto the ball.

    The target keeps its own interval |y| <= 1. Scaling changes a row's indicators too.
    """

    radius: float
    kind = "ball"

    def __post_init__(self) -> None:
        value = self.radius
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not 2**-8 <= value <= 64:
            raise RequestError(
                f"radius: expected a number from {2**-8} to 64 on unit scale, got {value!r}; the "
                "box's own corner is at the square root of the number of features"
            )
        object.__setattr__(self, "radius", float(value))

    def grid_radius(self, bits: int) -> int:
        """The radius in units of 2**-bits, rounded down: what rows are really forced into."""
        return math.floor(self.radius * (1 << bits))


Geometry = Box | Ball


def geometry_to_dict(geometry: Geometry) -> dict[str, Any]:
    """Plain structure for the Release file."""
    if isinstance(geometry, Ball):
        return {"kind": "ball", "radius": geometry.radius}
    return {"kind": "box"}
