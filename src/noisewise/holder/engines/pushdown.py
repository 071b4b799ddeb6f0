"""The value map and all sums as one SQL query, in DuckDB's dialect.

The query has one step for every step of `noisewise.holder.rows.values`:

    raw    doubles, or positions among the declared levels, from whatever the columns hold
    grid   integers on the row grid, and whether a value was missing without a fill
    ball   (only for the ball) features scaled down
    sums   SUM of products of BIGINTs, which is a HUGEINT and exact

Products are written as the Gram matrix has them, so that DuckDB computes a common factor once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from noisewise.core.schema import Category, Column
from noisewise.core.statistics import Monomial, Summed
from noisewise.holder.engines.base import Kind, level_numbers
from noisewise.holder.rows.plan import check_row_count
from noisewise.holder.rows.sums import SumPlan, Sums
from noisewise.holder.rows.values import (
    BALL_MARGIN,
    GridColumn,
    RowGrid,
    fill_code,
    missing_value_error,
)

Row = Sequence[int | bool | None]


class SumQuery:
    """One query for all statistics of a plan.

    Parameters
    ----------
    plan : SumPlan
    kinds : sequence of Kind
        What the sources hold, in the order of the design; already checked against the schema.
    columns : sequence of str
        SQL expressions for the sources, such as quoted column names.
    table : str
        What goes after FROM.
    """

    def __init__(
        self, plan: SumPlan, kinds: Sequence[Kind], columns: Sequence[str], table: str
    ) -> None:
        self._plan = plan
        self._kinds = kinds
        self._columns = columns
        self._table = table
        self._grids = [
            RowGrid.of(plan.design, plan.geometry, statistic.degree)
            for statistic in plan.statistics
        ]
        self._declared = [plan.design.schema.columns[name] for name in plan.design.sources]

    @property
    def text(self) -> str:
        """The query. Its single row is read by `result`."""
        steps = [f"raw AS (SELECT {self._raw()} FROM {self._table})"]
        steps.append(f"grid AS (SELECT {self._grid()} FROM raw)")
        last = "grid"
        if self._grids[0].radius is not None:
            steps.append(f"factors AS (SELECT *, {self._factors()} FROM grid)")
            steps.append(f"ball AS (SELECT {self._ball()} FROM factors)")
            last = "ball"
        return f"WITH {', '.join(steps)} SELECT {self._sums()} FROM {last}"

    def result(self, row: Row) -> Sums:
        """Read the query's row; missing values without a fill are an error."""
        count = int(row[0] or 0)
        check_row_count(count)
        sources = len(self._declared)
        for source, missing in enumerate(row[1 : sources + 1]):
            if missing:
                raise missing_value_error(self._plan.schema, self._plan.sources[source])
        totals = iter(row[sources + 1 :])
        values: dict[str, tuple[int, ...]] = {}
        for statistic, grid in zip(self._plan.statistics, self._grids, strict=True):
            # The constant was left out of the products: it is put back here.
            sums = {m: int(next(totals) or 0) for m in _distinct(statistic)}
            values[statistic.name] = tuple(
                (sums[_varying(m)] if any(m) else count) * grid.one ** m.count(0)
                for m in statistic.entries
            )
        return Sums(count, values)

    def _raw(self) -> str:
        parts = zip(self._columns, self._declared, self._kinds, strict=True)
        return ", ".join(f"{_raw(*part)} AS v{source}" for source, part in enumerate(parts))

    def _grid(self) -> str:
        design = self._plan.design
        fills = [fill_code(design.schema, name) for name in design.sources]
        out = []
        for source, (name, column) in enumerate(zip(design.sources, self._declared, strict=True)):
            missing = _missing(f"v{source}", isinstance(column, Category))
            out.append(f"{'false' if name in design.schema.fill else missing} AS m{source}")
        for part, grid in enumerate(self._grids):
            for j, place in enumerate(grid.columns, start=1):
                out.append(f"{_on_grid(place, grid, fills[place.source])} AS w{part}_{j}")
        return ", ".join(out)

    def _factors(self) -> str:
        out = []
        for part, grid in enumerate(self._grids):
            assert grid.radius is not None
            square = " + ".join(f"w{part}_{j} * w{part}_{j}" for j in range(1, len(grid.columns)))
            root = f"sqrt(CAST({square} AS DOUBLE))"
            factor = f"({double(grid.radius)} / {root}) * {double(BALL_MARGIN)}"
            out.append(
                f"CASE WHEN {square} > {grid.radius**2} THEN {factor} ELSE {double(1)} END "
                f"AS f{part}"
            )
        return ", ".join(out)

    def _ball(self) -> str:
        out = [f"m{source}" for source in range(len(self._declared))]
        for part, grid in enumerate(self._grids):
            last = len(grid.columns)
            out += [
                f"CAST(trunc(CAST(w{part}_{j} AS DOUBLE) * f{part}) AS BIGINT) AS w{part}_{j}"
                for j in range(1, last)
            ]
            out.append(f"w{part}_{last}")
        return ", ".join(out)

    def _sums(self) -> str:
        out = ["count(*)"]
        out += [f"bool_or(m{source})" for source in range(len(self._declared))]
        for part, statistic in enumerate(self._plan.statistics):
            out += [f"sum({_product(part, m)})" for m in _distinct(statistic)]
        return ", ".join(out)


def number_of_sums(plan: SumPlan) -> int:
    """How many sums a query for this plan computes."""
    return sum(len(statistic.entries) for statistic in plan.statistics)


def raw_double(column: str, kind: Kind) -> str:
    """SQL for a number as a double, rounded to nearest."""
    if kind is Kind.DECIMAL:
        # DuckDB's own cast of 128-bit numbers is not always to the nearest double (2.0.0 gets
        # -9981837153484694::DECIMAL(38,0) wrong); text is parsed correctly.
        column = f"CAST({column} AS VARCHAR)"
    return f"CAST({column} AS DOUBLE)"


def double(value: float) -> str:
    """A literal that DuckDB reads back as exactly this double."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def identifier(name: str) -> str:
    """A quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A quoted text literal."""
    return "'" + value.replace("'", "''") + "'"


def _raw(column: str, declared: Column, kind: Kind) -> str:
    if not isinstance(declared, Category):
        return raw_double(column, kind)
    if kind is Kind.NOTHING:
        return "CAST(NULL AS INTEGER)"
    if kind is Kind.TEXT:
        # Bytes, because text compares by the column's collation, which may ignore case.
        column = f"encode(CAST({column} AS VARCHAR))"
        levels = [f"encode({text(level)})" for level in declared.levels]
    elif kind is Kind.TRUTH:
        levels = [level if level in ("true", "false") else "" for level in declared.levels]
    else:
        column = raw_double(column, kind)
        numbers = level_numbers(declared)
        levels = ["" if isnan(number) else double(number) for number in numbers]
    whens = " ".join(f"WHEN {level} THEN {code}" for code, level in enumerate(levels) if level)
    return f"CASE {column} {whens} END"


def _missing(value: str, is_category: bool) -> str:
    return f"{value} IS NULL" if is_category else f"({value} IS NULL OR isnan({value}))"


def _on_grid(place: GridColumn, grid: RowGrid, fill_code: int | None) -> str:
    value, one = f"v{place.source}", grid.one
    if place.code is not None:
        if fill_code is not None:
            value = f"coalesce({value}, {fill_code})"
        return f"CASE WHEN {value} = {place.code} THEN {one}::BIGINT ELSE 0::BIGINT END"
    rounded = f"floor(({value} - {double(place.centre)}) * {double(place.scale)} + {double(0.5)})"
    clipped = f"CAST(least(greatest({rounded}, {double(-one)}), {double(one)}) AS BIGINT)"
    if place.fill is None:
        return clipped
    return f"CASE WHEN {_missing(value, False)} THEN {place.fill}::BIGINT ELSE {clipped} END"


def _varying(monomial: Monomial) -> Monomial:
    return tuple(index for index in monomial if index)


def _distinct(statistic: Summed) -> list[Monomial]:
    """The statistic's monomials without the constant's powers, each once."""
    return list(dict.fromkeys(v for m in statistic.entries if (v := _varying(m))))


def _product(part: int, monomial: Monomial) -> str:
    factors = [f"w{part}_{index}" for index in monomial]
    pairs = [" * ".join(factors[start : start + 2]) for start in range(0, len(factors), 2)]
    return " * ".join(f"({pair})" for pair in pairs)
