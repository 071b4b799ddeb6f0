"""What may be declared about one column: public bounds, public levels, or the lack of bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Number:
    """A numeric column with public bounds; values outside are clipped to them."""

    lower: float
    upper: float

    @property
    def centre(self) -> float:
        """Midpoint of the bounds (halved before adding, so that it cannot overflow)."""
        return self.lower / 2 + self.upper / 2

    @property
    def half_width(self) -> float:
        """Half the distance between the bounds."""
        return self.upper / 2 - self.lower / 2


@dataclass(frozen=True)
class Unbounded:
    """A numeric column without known bounds, for summaries that need none (block summaries).

    Numbers have to be written down in some way, so values beyond 2**30 units (a thousand million)
    count as that. The unit is public: the order of magnitude that the column is measured in.
    """

    unit: float = 1.0

    @property
    def centre(self) -> float:
        """Zero, as for a column with symmetric bounds."""
        return 0.0

    @property
    def half_width(self) -> float:
        """Where values saturate."""
        return 2.0**30 * self.unit


@dataclass(frozen=True)
class Category:
    """A categorical column with public levels; the reference level gets no indicator."""

    levels: tuple[str, ...]
    reference: str

    @property
    def indicated(self) -> tuple[str, ...]:
        """The levels that get an indicator column, in declared order."""
        return tuple(level for level in self.levels if level != self.reference)


Column = Number | Category | Unbounded


def level_text(value: Any) -> str | None:
    """The text by which a level is known, or None if `value` cannot be a level.

    Numbers and truth values may be levels too; 1 and "1" are the same level.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    return None
