"""What a stored column may hold, and which of it fits a declared number or category.

Engines know many types; for the value map only a few kinds matter. Whether a column fits its
declaration follows from its type alone, before any row is read.
"""

from __future__ import annotations

import math
import re
from enum import Enum

from noisewise.core.errors import DataError
from noisewise.core.schema import Category, Column


class Kind(Enum):
    """The kinds of stored columns, with the words for an error message."""

    NUMBER = "numbers"  # a cast to double is correctly rounded in every engine
    DECIMAL = "decimal numbers"  # casts differ between engines: they go through text instead
    TRUTH = "true/false values"
    TEXT = "text"
    NOTHING = "no values at all"  # a column whose type is "null"
    TIME = "dates or times"
    OTHER = "values of a type that cannot be used"

    @property
    def numeric(self) -> bool:
        """Whether values are compared as numbers."""
        return self in (Kind.NUMBER, Kind.DECIMAL)


def check_kind(name: str, column: Column, kind: Kind) -> None:
    """Raise a `DataError` if a column of this kind cannot be what was declared."""
    remedy = ""
    if kind in (Kind.TIME, Kind.OTHER):
        wanted = "a number or a category"
        remedy = "convert it to a number with public bounds, or to text"
    elif not isinstance(column, Category) and kind is Kind.TEXT:
        wanted, remedy = "a number", "convert it to numbers, or declare it as a category"
    elif isinstance(column, Category) and kind.numeric:
        _check_numeric_levels(name, column)
    elif kind is Kind.TRUTH and isinstance(column, Category) and not _truths(column):
        wanted, remedy = "one of the declared levels", "declare the levels 'true' and 'false'"
    if remedy:
        raise DataError(f"column {name!r} holds {kind.value}, not {wanted}; {remedy}")


def level_numbers(column: Category) -> list[float]:
    """The levels as numbers, for columns that hold numbers; NaN where a level is none."""
    return [_number(level) for level in column.levels]


def _truths(column: Category) -> set[str]:
    return {"true", "false"} & set(column.levels)


def _number(level: str) -> float:
    # Narrower than Python's float(), which takes '1_000', ' 1 ' and 'infinity' too.
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", level):
        return math.nan
    value = float(level)
    return value if math.isfinite(value) else math.nan


def _check_numeric_levels(name: str, column: Category) -> None:
    seen: dict[float, str] = {}
    for level, value in zip(column.levels, level_numbers(column), strict=True):
        if value in seen:
            # Two indicators could then be 1 in the same row, which the sensitivity rules out.
            raise DataError(
                f"column {name!r} holds numbers, and its levels {seen[value]!r} and {level!r} are "
                "the same number; declare one of them, or convert the column to text"
            )
        if not math.isnan(value):
            seen[value] = level
    if not seen:
        raise DataError(
            f"column {name!r} holds numbers, but none of its declared levels is one; declare the "
            "numbers as levels, or convert the column to text"
        )
