"""What every engine offers, and how errors of foreign libraries are kept from quoting data."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from noisewise.core.errors import DataError, NoisewiseError, RequestError
from noisewise.core.schema import Category, Column
from noisewise.holder.rows import Plan, Progress

Answer = TypeVar("Answer")
Result = TypeVar("Result")


class Source(Protocol):
    """A table that can be summed exactly. Opening one reads no rows."""

    @property
    def description(self) -> str:
        """Where the rows are and how they will be read, such as "people.parquet (streaming)"."""

    def column_names(self) -> list[str]:
        """The table's columns in order.

        They come from the data: the first line of a file without a header is somebody's row. Look
        names up in this list, but do not show it.
        """

    def row_count(self) -> int | None:
        """The number of rows if it is known without reading them, for a progress bar."""

    def check(self, plan: Plan[Any]) -> None:
        """Refuse a plan that is known to fail without reading a row.

        A stored type may be none for ids, and workers may lack something.
        """

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        """Read the rows once and accumulate them; `progress` is told how many are done."""


def sealed(
    call: Callable[[], Result], message: str | Callable[[Exception], str], *kinds: type[Exception]
) -> Result:
    """Call, and replace a foreign library's error by a `DataError` that cannot quote data.

    Parsers and databases quote the offending value in their messages. The new error is raised
    after the handler has been left, so the old one is not even attached to it as context. A message
    that is a function makes it from the error, and must not quote that. Errors of these `kinds` are
    replaced; noisewise's own pass.
    """
    try:
        return call()
    except NoisewiseError:
        raise
    except kinds as error:
        text = message if isinstance(message, str) else message(error)
    except BaseException as error:
        # A crash within Polars is no Exception, and quotes data all the same.
        if type(error).__name__ != "PanicException":
            raise
        text = message if isinstance(message, str) else message(RuntimeError())
    raise DataError(text)


def positions(names: list[str], wanted: tuple[str, ...]) -> list[int]:
    """Where the wanted columns are; every one must be there exactly once."""
    found = []
    for name in wanted:
        count = names.count(name)
        if count == 0:
            raise DataError(
                f"data: there is no column {name!r}; rename the column in the data, or correct "
                "the schema (upper and lower case matter; a CSV file needs a header line)"
            )
        if count > 1:
            raise DataError(f"data: there are several columns {name!r}; rename or drop all but one")
        found.append(names.index(name))
    return found


# ---------------------------------------------------------------------------------------------
# What a stored column may hold, and which of it fits a declared number or category. Engines know
# many types; for the value map only a few kinds matter. Whether a column fits its declaration
# follows from its type alone, before any row is read.


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
    elif kind is Kind.TRUTH and isinstance(column, Category):
        if {"true", "false"} & set(column.levels):
            return
        wanted, remedy = "one of the declared levels", "declare the levels 'true' and 'false'"
    if remedy:
        raise DataError(f"column {name!r} holds {kind.value}, not {wanted}; {remedy}")


def check_id_kind(name: str, kind: Kind, *, floating: bool = False) -> None:
    """Raise a `DataError` if a column of this kind can't say whose row it is."""
    if floating or kind in (Kind.TRUTH, Kind.TIME, Kind.OTHER):
        held = "floating-point numbers" if floating else kind.value
        raise DataError(
            f"column {name!r} holds {held}, which can't tell people apart; ids are whole numbers "
            "or text (pandas turns whole numbers into fractions where some are missing)"
        )


class Columns(NamedTuple):
    """What a table holds by the types of its own catalogue, before any row is read."""

    names: list[str]
    types: list[str]  # the catalogue's names for them
    kinds: list[Kind]

    def check_ids(self, plan: Plan[Any]) -> None:
        """Refuse a column of ids that can't tell people apart."""
        if plan.schema.unit_column is not None:
            (index,) = positions(self.names, (plan.schema.unit_column,))
            floating = self.types[index] in ("float", "double", "float4", "float8")
            check_id_kind(plan.schema.unit_column, self.kinds[index], floating=floating)

    def checked(self, plan: Plan[Any]) -> list[int]:
        """Where the plan's sources are; refuses what cannot be what was declared."""
        indices = positions(self.names, plan.sources)
        self.check_ids(plan)
        for name, index in zip(plan.sources, indices, strict=True):
            if name != plan.schema.unit_column:
                check_kind(name, plan.schema.columns[name], self.kinds[index])
        return indices


class InDatabase(ABC):
    """A source whose rows are in a database, with a catalogue that says what they hold.

    Open rows have `columns`, a `Columns`. Unless somebody answers for them by name, they also have
    `statement`, what was read of a query, and `concern`, what only a person can answer for in
    reading them (such as "table: it is a view").
    """

    @abstractmethod
    def _reading(self, call: Callable[[Any], Answer], plan: Plan[Any] | None = None) -> Answer:
        """Call this with the rows open, of which a plan's sources are enough; errors are sealed."""

    @abstractmethod
    def _sum(self, rows: Any, plan: Plan[Result], progress: Progress | None) -> Result:
        """Sum open rows."""

    def column_names(self) -> list[str]:
        return self._reading(lambda rows: list(rows.columns.names))

    def column_kinds(self) -> list[tuple[str, Kind]]:
        """Names and kinds, for a schema to fill in. Reads no rows."""
        return self._reading(
            lambda rows: list(zip(rows.columns.names, rows.columns.kinds, strict=True))
        )

    def row_count(self) -> int | None:
        """Not asked for: to count the rows of a view may take as long as to sum them."""
        return None

    def check(self, plan: Plan[Any]) -> None:
        """Ids by the types in the catalogue, and whether the schema allows a query."""
        self._reading(lambda rows: _check_rows(rows, plan))

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        """Sum in one query, or batch by batch."""

        def read(rows: Any) -> Result:
            _check_rows(rows, plan)
            return self._sum(rows, plan, progress)

        return self._reading(read, plan)


def _check_rows(rows: Any, plan: Plan[Any]) -> None:
    if rows.concern:
        raise RequestError(unattested(rows.concern))
    rows.columns.check_ids(plan)
    if rows.statement is not None:
        rows.statement.check(plan.schema)


def unattested(concern: str) -> str:
    """The message where only a person can answer for what reading a table does."""
    return (
        f"{concern}. Name a plain table, or let somebody who knows what it does answer for it by "
        "name: --query-attested-by NAME (in Python query_attested_by=), which the ledger keeps"
    )


def missing_id_error(name: str) -> DataError:
    """The error for a row without an id; says nothing about how many, or where."""
    return DataError(
        f"column {name!r} has missing ids; every row needs the id of its person (rows are never "
        "dropped)"
    )


def level_numbers(column: Category) -> list[float]:
    """The levels as numbers, for columns that hold numbers; NaN where a level is none."""
    return [_number(level) for level in column.levels]


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
