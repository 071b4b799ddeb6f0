"""Missing values: a public fill value takes their place, or they are an error. Never dropped."""

from __future__ import annotations

import numpy as np

from noisewise.core.errors import DataError
from noisewise.core.schema import Category, Schema
from noisewise.holder.plan import Codes, Floats


def fill_codes(schema: Schema, sources: tuple[str, ...]) -> tuple[int | None, ...]:
    """For every source, the code that stands in for a category's missing values."""
    codes: list[int | None] = []
    for name in sources:
        column, fill = schema.columns[name], schema.fill.get(name)
        if isinstance(column, Category) and isinstance(fill, str):
            codes.append(column.levels.index(fill))
        else:
            codes.append(None)
    return tuple(codes)


def filled_codes(codes: Floats | Codes, schema: Schema, name: str, fill: int | None) -> Codes:
    """A category's codes with the fill value's code where they are missing."""
    missing = codes < 0
    if not missing.any():
        return codes  # type: ignore[return-value]
    if fill is None:
        raise missing_value_error(schema, name)
    filled: Codes = np.where(missing, np.int32(fill), codes)
    return filled


def filled_numbers(values: Floats | Codes, schema: Schema, name: str) -> Floats:
    """A number's values with the fill value where they are missing."""
    missing = np.isnan(values)
    if not missing.any():
        return values  # type: ignore[return-value]
    fill = schema.fill.get(name)
    if fill is None:
        raise missing_value_error(schema, name)
    filled: Floats = np.where(missing, float(fill), values)
    return filled


def missing_value_error(schema: Schema, name: str) -> DataError:
    """The error for a missing value without a fill; says nothing about how many, or where."""
    if not isinstance(schema.columns[name], Category):
        problem = "has missing values; give"
    else:
        problem = (
            "has missing values or values that are not among its declared levels; declare every "
            "level that is publicly known to occur, give"
        )
    return DataError(
        f"column {name!r} {problem} a public fill value for it under 'missing:' in the "
        "schema, or complete the data (rows are never dropped)"
    )
