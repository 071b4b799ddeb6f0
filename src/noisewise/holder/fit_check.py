"""Does a file fit its schema? For the holder's eyes; publishes and spends nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..core.design import Design
from ..core.errors import DataError
from ..core.geometry import Box
from ..core.schema import Number, Schema
from ..core.statistic import SecondMoments
from .engines import open_source
from .publish import with_total
from .sums import SumPlan

# Few enough to stay below the limit on design columns, many enough that most files take one pass.
_COLUMNS_AT_A_TIME = 50


def check_data(
    schema: Schema,
    data: Path,
    *,
    table: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> None:
    """Read every declared column once, as a release would, and discard the sums.

    Raises
    ------
    DataError
        For a column that is absent, of the wrong type, or has missing values or undeclared levels
        and no fill value. Says which column, and nothing about its rows.
    """
    source = open_source(data, table=table)
    names = source.column_names()
    for name in schema.columns:
        if name not in names:
            raise DataError(
                f"data: there is no column {name!r}; delete it from the schema, or rename it"
            )
    numbers = [name for name, column in schema.columns.items() if isinstance(column, Number)]
    if not numbers or len(schema.columns) < 2:
        raise DataError("data: the schema needs a numeric target and at least one more column")
    target = numbers[0]
    others = [name for name in schema.columns if name != target]
    for start in range(0, len(others), _COLUMNS_AT_A_TIME):
        features = tuple(others[start : start + _COLUMNS_AT_A_TIME])
        design = Design(schema.restricted_to((*features, target)), features, target)
        source.sums(SumPlan(design, Box(), (SecondMoments(design),)), with_total(source, progress))
