"""Levels that a user gives, as codes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.network.layout import Layout
from noisewise.core.errors import RequestError
from noisewise.core.schema import level_text

MISSING = -1


def evidence_codes(
    layout: Layout, given: Mapping[str, Any], taken: Sequence[str], where: str = "given"
) -> dict[int, int]:
    """Node numbers with the codes of their levels."""
    if not isinstance(given, Mapping):
        raise RequestError('given: expected nodes with their levels, such as {"smoker": "no"}')
    found = {}
    for name, level in given.items():
        if name not in layout.number:
            shown = ", ".join(layout.network.nodes[:20])
            raise RequestError(f"{where}: {name!r} is not a node; the nodes are {shown}")
        if name in taken:
            raise RequestError(f"given: {name!r} is asked about; it can't be given too")
        found[layout.number[name]] = _code(layout, name, level)
    return found


def _code(layout: Layout, name: str, level: Any) -> int:
    if isinstance(level, np.generic):
        level = level.item()
    levels = layout.network.levels(name)
    text = level_text(level)
    if text not in levels:
        shown = ", ".join(levels[:10])
        raise RequestError(f"{name}: {str(level)[:40]!r} is not one of its levels: {shown}")
    return levels.index(text)


def codes_of_rows(layout: Layout, new: Any, skip: str) -> NDArray[np.int64]:
    """Codes of rows, shape (rows, nodes by number); -1 where a value is missing.

    Columns that are no nodes are ignored, and so is the column `skip`.
    """
    names = list(new.columns) if hasattr(new, "columns") else list(new)
    known = [name for name in names if name in layout.number and name != skip]
    if not known:
        raise RequestError(
            "new: expected a mapping or data frame with a column for every node that is known; "
            f"the nodes are {', '.join(layout.network.nodes[:20])}"
        )
    columns = {name: _values(new[name]) for name in known}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise RequestError("new: all columns must have the same length")
    codes = np.full((lengths.pop(), len(layout.nodes)), MISSING, dtype=np.int64)
    for name, values in columns.items():
        codes[:, layout.number[name]] = _column(layout, name, values)
    return codes


def _values(column: Any) -> list[Any]:
    listed = column.tolist() if hasattr(column, "tolist") else list(column)
    return listed if isinstance(listed, list) else [listed]


def _column(layout: Layout, name: str, values: list[Any]) -> list[int]:
    known: dict[Any, int] = {}
    codes = []
    for value in values:
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            codes.append(MISSING)
            continue
        # 1, 1.0 and True are equal keys but different levels, hence the type.
        key = (type(value), value)
        if key not in known:
            known[key] = _code(layout, name, value)
        codes.append(known[key])
    return codes
