"""Does a file fit its schema? The private rehearsal of a release: publishes and spends nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from noisewise.core.errors import DataError
from noisewise.core.schema import Category, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.publish import with_total
from noisewise.holder.rows.plan import Codes, Floats
from noisewise.holder.rows.values import fill_codes, filled_codes, filled_numbers


@dataclass(frozen=True)
class _ReadAll:
    """Read every declared column, and keep nothing."""

    schema: Schema

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.schema.columns)

    def accumulator(self) -> _Reader:
        return _Reader(self)


class _Reader:
    def __init__(self, plan: _ReadAll) -> None:
        self.n = 0
        self._plan = plan
        self._fill_codes = fill_codes(plan.schema, plan.sources)

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        schema = self._plan.schema
        for name, fill, values in zip(self._plan.sources, self._fill_codes, columns, strict=True):
            if isinstance(schema.columns[name], Category):
                filled_codes(values, schema, name, fill)
            else:
                filled_numbers(values, schema, name)
        self.n += len(columns[0])

    def merge(self, other: _Reader) -> None:
        self.n += other.n

    def result(self) -> int:
        return self.n


def check_data(
    schema: Schema,
    data: Path,
    *,
    engine: str = "auto",
    table: str | None = None,
    query: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> int:
    """Read every declared column once, as a release would, and discard what was read.

    Returns
    -------
    int
        The number of rows, which is for the holder only.

    Raises
    ------
    DataError
        For a column that is absent, of the wrong type, or has missing values or undeclared levels
        and no fill value; and for no rows where their number is public. Says which column, and
        nothing about its rows.
    """
    source = open_source(data, engine=engine, table=table, query=query)
    names = source.column_names()
    for name in schema.columns:
        if name not in names:
            raise DataError(
                f"data: there is no column {name!r}; delete it from the schema, or rename it"
            )
    n = source.sums(_ReadAll(schema), with_total(source, progress))
    if n == 0 and schema.n_is_public:
        raise DataError("data: there are no rows")
    return n
