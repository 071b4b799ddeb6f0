"""The value map and all sums as one SQL query, and the test that a database must pass to run it.

The query has one step for every step of `noisewise.holder.rows.values`:

    keys   doubles, or what levels are compared with: the bytes of text, true or false
    codes  (only with categories) their positions among the declared levels
    grid   integers on the row grid, and whether a value was missing without a fill
    ball   (only for the ball) features scaled down
    sums   exact SUMs of products of BIGINTs

How that is said to a database is its `Dialect`'s matter. Products are written as the Gram matrix
has them, so that DuckDB computes a common factor once.

**Nothing in the query can be redefined.** Databases let their users define functions, operators and
types, also ones with the names of built-in ones, and what a bare name means depends on a path of
schemas. So no function or operator is called by its bare name: `Dialect.call` and `Dialect.infix`
say whose it is. What is left is grammar (CASE, CAST, COALESCE, IS NULL, AND, GREATEST and LEAST in
PostgreSQL, comparisons in DuckDB), which nobody can redefine.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np

from noisewise.core.design import Ball, Box, Design
from noisewise.core.schema import Category, Column, Number, Schema
from noisewise.core.statistics import Monomial, SecondMoments, Summed
from noisewise.holder.engines.base import Columns, Kind, level_numbers
from noisewise.holder.rows import Plan, Progress, check_row_count
from noisewise.holder.rows.sums import SumPlan, Sums
from noisewise.holder.rows.values import (
    BALL_MARGIN,
    GridColumn,
    RowGrid,
    fill_code,
    missing_value_error,
)

# Beyond about this many sums, streaming to BLAS is the faster way.
PUSHDOWN_LIMIT = 400

Row = Sequence[int | bool | str | None]


class SumQuery:
    """One query for all statistics of a plan.

    `kinds` are what the sources hold, already checked against the schema, and `columns` SQL
    expressions for them, such as quoted names, both in the order of the design; `table` is what
    goes after FROM.
    """

    def __init__(
        self,
        plan: SumPlan,
        kinds: Sequence[Kind],
        columns: Sequence[str],
        table: str,
        dialect: Dialect,
    ) -> None:
        self._plan = plan
        self._sql = dialect
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
        steps, last = self._steps()
        return f"{steps} SELECT {self._sums()} FROM {last}"

    @property
    def text_of_rows(self) -> str:
        """Instead, the integers of every row, one column for each of every grid: for the test."""
        steps, last = self._steps()
        names = [f"w{part}_{j}" for part, grid in enumerate(self._grids) for j in _places(grid)]
        return f"{steps} SELECT {', '.join(names)} FROM {last}"

    def _steps(self) -> tuple[str, str]:
        """All steps but the last, and the name of what they make."""
        step = self._sql.step
        steps = [f"keys AS ({step(self._keys(), self._table)})"]
        last = "keys"
        if any(isinstance(column, Category) for column in self._declared):
            steps.append(f"codes AS ({step(self._codes(), last)})")
            last = "codes"
        steps.append(f"grid AS ({step(self._grid(), last)})")
        last = "grid"
        if self._grids[0].radius is not None:
            steps.append(f"factors AS ({step('*, ' + self._factors(), 'grid')})")
            steps.append(f"ball AS ({step(self._ball(), 'factors')})")
            last = "ball"
        return f"WITH {', '.join(steps)}", last

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

    def _keys(self) -> str:
        parts = zip(self._columns, self._declared, self._kinds, strict=True)
        return ", ".join(
            f"{_key(*part, self._sql)} AS v{source}" for source, part in enumerate(parts)
        )

    def _codes(self) -> str:
        parts = zip(self._declared, self._kinds, strict=True)
        return ", ".join(
            f"{_code(f'v{source}', *part, self._sql)} AS v{source}"
            for source, part in enumerate(parts)
        )

    def _grid(self) -> str:
        design = self._plan.design
        fills = [fill_code(design.schema, name) for name in design.sources]
        out = []
        for source, (name, column) in enumerate(zip(design.sources, self._declared, strict=True)):
            missing = _missing(f"v{source}", isinstance(column, Category), self._sql)
            out.append(f"{'false' if name in design.schema.fill else missing} AS m{source}")
        for part, grid in enumerate(self._grids):
            for j, place in zip(_places(grid), grid.columns, strict=True):
                value = _on_grid(place, grid, fills[place.source], self._sql)
                out.append(f"{value} AS w{part}_{j}")
        return ", ".join(out)

    def _factors(self) -> str:
        out, sql = [], self._sql
        for part, grid in enumerate(self._grids):
            assert grid.radius is not None
            names = [f"w{part}_{j}" for j in _places(grid)[:-1]]
            square = _chain(sql, "+", [sql.infix(name, "*", name) for name in names])
            root = sql.call("sqrt", f"CAST({square} AS {sql.double_type})")
            shrunk = sql.infix(sql.double(grid.radius), "/", root)
            factor = sql.infix(shrunk, "*", sql.double(BALL_MARGIN))
            too_far = sql.infix(square, ">", sql.integer(grid.radius**2))
            out.append(f"CASE WHEN {too_far} THEN {factor} ELSE {sql.double(1)} END AS f{part}")
        return ", ".join(out)

    def _ball(self) -> str:
        out, sql = [f"m{source}" for source in range(len(self._declared))], self._sql
        for part, grid in enumerate(self._grids):
            *features, target = (f"w{part}_{j}" for j in _places(grid))
            for name in features:
                product = sql.infix(f"CAST({name} AS {sql.double_type})", "*", f"f{part}")
                shrunk = sql.call("trunc", product)
                out.append(f"CAST({shrunk} AS {sql.integer_type}) AS {name}")
            out.append(target)
        return ", ".join(out)

    def _sums(self) -> str:
        out, sql = [self._sql.call("count", "*")], self._sql
        out += [sql.call("bool_or", f"m{source}") for source in range(len(self._declared))]
        for part, statistic in enumerate(self._plan.statistics):
            out += [sql.total(_product(part, m, sql)) for m in _distinct(statistic)]
        return ", ".join(out)


def can_be_pushed_down(plan: Plan[Any]) -> bool:
    """Whether a plan is sums of products of columns, and not too many of them.

    Terms of formulas, block summaries and counts are not, nor are means over the rows of a unit,
    which `holder.rows.units` takes for every engine.
    """
    if not isinstance(plan, SumPlan) or plan.design.terms or plan.schema.unit_column is not None:
        return False
    return sum(len(statistic.entries) for statistic in plan.statistics) <= PUSHDOWN_LIMIT


def sum_in_database(
    plan: Any,
    held: Columns,
    indices: Sequence[int],
    table: str,
    dialect: Dialect,
    execute: Callable[[str], Any],
    progress: Progress | None,
) -> Any:
    """The sums of the columns at these places, which no name from the table gets into."""
    kinds = [held.kinds[index] for index in indices]
    columns = [f"c{index}" for index in indices]
    query = SumQuery(plan, kinds, columns, numbered(table, held), dialect)
    sums = query.result(execute(query.text).fetchone())
    if progress is not None:
        progress(sums.n)
    return sums


def numbered(table: str, held: Columns) -> str:
    """The table with its columns by position: c0, c1 and so on."""
    return f"{table} AS t({', '.join(f'c{index}' for index in range(len(held.names)))})"


def warn_of_streaming(database: str) -> None:
    """Say that a database failed the test below."""
    warnings.warn(
        f"data: this {database} computes other integers than NumPy from test values, so the rows "
        "are read from it and summed here; the result is the same",
        stacklevel=2,
    )


def _places(grid: RowGrid) -> range:
    """The numbers of a grid's columns; 0 is the constant's."""
    return range(1, len(grid.columns) + 1)


def _key(column: str, declared: Column, kind: Kind, sql: Dialect) -> str:
    if not isinstance(declared, Category) or kind.numeric:
        return sql.number(column, kind)
    return sql.text_key(column) if kind is Kind.TEXT else column


def _code(key: str, declared: Column, kind: Kind, sql: Dialect) -> str:
    if not isinstance(declared, Category):
        return key
    if kind is Kind.NOTHING:
        return f"CAST(NULL AS {sql.integer_type})"
    if kind is Kind.TEXT:
        levels = [sql.level_key(level) for level in declared.levels]
    elif kind is Kind.TRUTH:
        levels = [level if level in ("true", "false") else "" for level in declared.levels]
    else:
        numbers = level_numbers(declared)
        levels = ["" if math.isnan(number) else sql.double(number) for number in numbers]
    whens = " ".join(
        f"WHEN {sql.infix(key, '=', level)} THEN {sql.integer(code)}"
        for code, level in enumerate(levels)
        if level
    )
    return f"CASE {whens} END"


def _missing(value: str, is_category: bool, sql: Dialect) -> str:
    return f"{value} IS NULL" if is_category else f"({value} IS NULL OR {sql.is_nan(value)})"


def _on_grid(place: GridColumn, grid: RowGrid, fill_code: int | None, sql: Dialect) -> str:
    value, one = f"v{place.source}", grid.one
    if place.code is not None:
        if fill_code is not None:
            value = f"coalesce({value}, {sql.integer(fill_code)})"
        is_level = sql.infix(value, "=", sql.integer(place.code))
        return f"CASE WHEN {is_level} THEN {sql.integer(one)} ELSE {sql.integer(0)} END"
    rounded = sql.on_grid(value, place.centre, place.scale, one)
    if place.fill is None:
        return rounded
    missing = _missing(value, False, sql)
    return f"CASE WHEN {missing} THEN {sql.integer(place.fill)} ELSE {rounded} END"


def _varying(monomial: Monomial) -> Monomial:
    return tuple(index for index in monomial if index)


def _distinct(statistic: Summed) -> list[Monomial]:
    """The statistic's monomials without the constant's powers, each once."""
    return list(dict.fromkeys(v for m in statistic.entries if (v := _varying(m))))


def _product(part: int, monomial: Monomial, sql: Dialect) -> str:
    factors = [f"w{part}_{index}" for index in monomial]
    pairs = [_chain(sql, "*", factors[start : start + 2]) for start in range(0, len(factors), 2)]
    return _chain(sql, "*", pairs)


def _chain(sql: Dialect, operator: str, values: Sequence[str]) -> str:
    """All values joined by an operator, from the left."""
    return reduce(lambda left, right: sql.infix(left, operator, right), values)


# ---------------------------------------------------------------------------------------------
# The test: awkward values, public ones of our own, through the very query that rows go through

_BOUNDS = ((-1.0, 1.0), (-3.0, 4.7), (-1e-60, 2e-59), (-1e60, 1e60), (0.0, 200_000.0))
_LEVELS = ("a", "A", "é", "日本", "o'neil", "back\\slash")
_WORDS = ("a", "A", "é", "e\u0301", "a ", "", "日本", "o'neil", "back\\slash", None)


def agrees_with_numpy(dialect: Dialect, run: Callable[[str], Sequence[Sequence[Any]]]) -> bool:
    """Whether a database computes the same integers as NumPy. Reads no row of anybody.

    `run` takes a query and returns all its rows.

    Notes
    -----
    Every row's integers are compared, and the sums. Among the values are NULL, NaN, infinities, the
    largest and smallest doubles, and for each of several bounds the ends, the doubles next to them,
    and values half-way between two integers. Both the box and the ball are tried.
    """
    words, values = _test_values()
    listed = ", ".join(
        f"({', '.join(_cell(value, dialect) for value in row)})"
        for row in zip(words, *values, strict=True)
    )
    names = [f"c{index}" for index in range(1 + len(_BOUNDS))]
    table = f"(VALUES {listed}) AS t({', '.join(names)})"
    kinds = [Kind.TEXT, *(Kind.NUMBER for _ in _BOUNDS)]
    for geometry in (Box(), Ball(0.9)):
        plan, by_row, sums = by_numpy(geometry)
        query = SumQuery(plan, kinds, names, table, dialect)
        try:
            found = sorted([int(value) for value in row] for row in run(query.text_of_rows))
            (found_sums,) = run(query.text)
            if found != by_row or query.result(found_sums) != sums:
                return False
        except (TypeError, ValueError):  # NULL or a fraction where an integer has to be
            return False
    return True


def _test_values() -> tuple[list[str | None], list[list[float | None]]]:
    values = [_awkward(*bounds) for bounds in _BOUNDS]
    return [_WORDS[i % len(_WORDS)] for i in range(len(values[0]))], values


@cache
def by_numpy(geometry: Box | Ball) -> tuple[SumPlan, list[list[int]], Sums]:
    """What is asked in the test; the integers of its rows, sorted; and their sums."""
    plan = _test_plan(geometry)
    words, values = _test_values()
    codes = np.array([_LEVELS.index(w) if w in _LEVELS else -1 for w in words], dtype=np.int32)
    columns = [codes, *(np.array([math.nan if v is None else v for v in some]) for some in values)]

    def sums(rows: slice) -> Sums:
        accumulator = plan.accumulator()
        accumulator.add([column[rows] for column in columns])
        return accumulator.result()

    by_row = [_integers(plan, sums(slice(row, row + 1))) for row in range(len(words))]
    return plan, sorted(by_row), sums(slice(None))


def _test_plan(geometry: Box | Ball) -> SumPlan:
    numbers = {f"x{i}": Number(*bounds) for i, bounds in enumerate(_BOUNDS)}
    fill = {name: column.upper / 4 for name, column in numbers.items()}
    declared: dict[str, Column] = {"g": Category(_LEVELS, "a"), **numbers}
    schema = Schema("self-test", declared, "add_remove_one", fill={"g": "é", **fill})
    *features, target = declared
    design = Design(schema, tuple(features), target)
    return SumPlan(design, geometry, (SecondMoments(design),))


def _integers(plan: SumPlan, sums: Sums) -> list[int]:
    """From the sums over a single row, the integers of that row."""
    (statistic,) = plan.statistics
    values = dict(zip(statistic.entries, sums.values[statistic.name], strict=True))
    grid = RowGrid.of(plan.design, plan.geometry, statistic.degree)
    return [values[0, j] // grid.one for j in _places(grid)]


def _awkward(lower: float, upper: float) -> list[float | None]:
    centre, half_width = lower / 2 + upper / 2, upper / 2 - lower / 2
    middles = [centre + half_width * (k + 0.5) / 2**16 for k in (-65536, -4, -1, 0, 1, 2, 65535)]
    points = [lower, upper, centre, 2 * lower - upper, 2 * upper - lower, *middles]
    around = [
        math.nextafter(point, end) for point in points for end in (-math.inf, point, math.inf)
    ]
    extreme = [math.inf, 1.7976931348623157e308, 5e-324, 2.3e-308, 0.0, 0.1]
    return [None, math.nan, *around, *extreme, *(-value for value in extreme)]


def _cell(value: float | str | None, dialect: Dialect) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return f"CAST({text(value)} AS {dialect.text_type})"
    return dialect.double(value)


# --- what a database must provide -----------------------------------------------------------------


class Dialect(ABC):
    """The SQL of one database: a dozen pieces. All methods take and return SQL expressions.

    A further database is one more class, and a source that runs the query. No dialect is taken at
    its word: `agrees_with_numpy` sends it awkward values, and a database that fails is streamed.
    Where databases differ, and what they all must do here:

    missing values
        Are found before anything is clipped. `greatest` and `least` drop NULL, and for PostgreSQL
        NaN is the largest number, so that clipping would make a bound of a missing value.
    overflow and underflow
        Become infinity and 0, as in NumPy. PostgreSQL raises an error, so its values are compared
        with the ends of the range first.
    doubles to integers
        Are rounded down by `floor`, and then cast: casts of fractions go to the nearest even
        integer in one database and towards 0 in another.
    text
        Is compared as bytes, because a collation may ignore case or accents.
    steps
        Are fenced off where an optimiser would copy an expression into each of its uses: in
        PostgreSQL a value would be rounded again for every sum that it is in.

    names
        Mean the database's own functions, operators and types, whatever its users define.

    CASE, CAST, COALESCE, `floor`, `trunc`, `sqrt` and `bool_or` are taken for granted.
    """

    # The types of IEEE 754 doubles, on which -, *, +, / and sqrt are correctly rounded, of integers
    # of 64 bits, and of text
    double_type: str
    integer_type: str
    text_type: str

    @abstractmethod
    def call(self, function: str, *arguments: str) -> str:
        """A call of the database's own function of this name."""

    @abstractmethod
    def infix(self, left: str, operator: str, right: str) -> str:
        """The database's own operator of this name (+, -, *, /, =, <, >, <=, >=) between these."""

    def integer(self, value: int) -> str:
        """A literal of `integer_type`."""
        return f"CAST({value} AS {self.integer_type})"

    def double(self, value: float) -> str:
        """A literal that is read back as exactly this double."""
        return f"CAST('{float(value)!r}' AS {self.double_type})"

    @abstractmethod
    def number(self, column: str, kind: Kind) -> str:
        """A column of this kind as a double, rounded to nearest; NULL stays NULL."""

    @abstractmethod
    def text_key(self, column: str) -> str:
        """A column of text as something that is equal exactly where the UTF-8 bytes are."""

    @abstractmethod
    def level_key(self, level: str) -> str:
        """A literal text, to be compared with a `text_key`."""

    @abstractmethod
    def is_nan(self, value: str) -> str:
        """Whether a double is NaN."""

    @abstractmethod
    def on_grid(self, value: str, centre: float, scale: float, one: int) -> str:
        """``floor((value - centre) * scale + 0.5)``, clipped to ±one, as a BIGINT.

        `value` is the name of a double. Never an error, whatever it holds.
        """

    @abstractmethod
    def total(self, product: str) -> str:
        """The exact sum of up to 2**30 BIGINTs of up to 2**32, as something that int() reads."""

    @abstractmethod
    def step(self, columns: str, table: str) -> str:
        """``SELECT columns FROM table`` whose columns are computed once a row, and not more."""


def identifier(name: str) -> str:
    """A quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A quoted text literal."""
    return "'" + value.replace("'", "''") + "'"


class _DuckDB(Dialect):
    double_type = "DOUBLE"
    integer_type = "BIGINT"
    text_type = "VARCHAR"

    def call(self, function: str, *arguments: str) -> str:
        return f"system.main.{function}({', '.join(arguments)})"

    def infix(self, left: str, operator: str, right: str) -> str:
        # Arithmetic is a function's, and a macro may be called "+". Comparisons are grammar.
        if operator in ("+", "-", "*", "/"):
            return self.call(identifier(operator), left, right)
        return f"({left} {operator} {right})"

    def number(self, column: str, kind: Kind) -> str:
        if kind is Kind.DECIMAL:
            # DuckDB's own cast of 128-bit numbers is not always to the nearest double (2.0.0 gets
            # -9981837153484694::DECIMAL(38,0) wrong); text is parsed correctly.
            column = f"CAST({column} AS VARCHAR)"
        return f"CAST({column} AS DOUBLE)"

    def text_key(self, column: str) -> str:
        return self.call("encode", f"CAST({column} AS VARCHAR)")

    def level_key(self, level: str) -> str:
        return self.call("encode", text(level))

    def is_nan(self, value: str) -> str:
        return self.call("isnan", value)

    def on_grid(self, value: str, centre: float, scale: float, one: int) -> str:
        moved = self.infix(value, "-", self.double(centre))
        scaled = self.infix(moved, "*", self.double(scale))
        floor = self.call("floor", self.infix(scaled, "+", self.double(0.5)))
        clipped = self.call("greatest", floor, self.double(-one))
        return f"CAST({self.call('least', clipped, self.double(one))} AS BIGINT)"

    def total(self, product: str) -> str:
        return self.call("sum", product)  # a HUGEINT

    def step(self, columns: str, table: str) -> str:
        return f"SELECT {columns} FROM {table}"


class _PostgreSQL(Dialect):
    double_type = "pg_catalog.float8"
    integer_type = "pg_catalog.int8"
    text_type = "pg_catalog.text"

    # All functions that `call` is asked for, here and where rows are streamed, by the types that
    # they are called with: nothing fits these better than a function of exactly these types.
    functions = (
        "abs(numeric)",
        "bool_or(boolean)",
        "convert_to(text, name)",
        "count()",
        "floor(double precision)",
        "sqrt(double precision)",
        "sum(bigint)",
        "trim_scale(numeric)",
        "trunc(double precision)",
    )

    # The smallest decimal number that rounds to infinity, and the largest that rounds to 0: half
    # a step beyond the last double, and half of the first. Ties go to even ones, which these are.
    _TO_INFINITY = str(2**1024 - 2**970)
    _TO_ZERO = "0." + str(5**1075).zfill(1075)  # 2**-1075

    def call(self, function: str, *arguments: str) -> str:
        return f"pg_catalog.{function}({', '.join(arguments)})"

    def infix(self, left: str, operator: str, right: str) -> str:
        return f"({left} OPERATOR(pg_catalog.{operator}) {right})"

    def number(self, column: str, kind: Kind) -> str:
        if kind is Kind.TRUTH:
            column = f"CAST({column} AS pg_catalog.int4)"
        cast = f"CAST({column} AS {self.double_type})"
        if kind is not Kind.DECIMAL:
            return cast
        # The cast goes through text and is correctly rounded, but for doubles that don't exist it
        # is an error. For `numeric`, too, NaN is the largest number.
        nan = self.infix(column, "=", "CAST('NaN' AS pg_catalog.numeric)")
        high = self.infix(column, ">=", self._TO_INFINITY)
        low = self.infix(column, "<=", f"(-{self._TO_INFINITY})")
        zero = self.infix(self.call("abs", column), "<=", self._TO_ZERO)
        return (
            f"CASE WHEN {nan} THEN {cast} WHEN {high} THEN {self.double(float('inf'))} "
            f"WHEN {low} THEN {self.double(float('-inf'))} "
            f"WHEN {zero} THEN {self.double(0)} ELSE {cast} END"
        )

    def text_key(self, column: str) -> str:
        name = "CAST('UTF8' AS pg_catalog.name)"
        return self.call("convert_to", f"CAST({column} AS {self.text_type})", name)

    def level_key(self, level: str) -> str:
        # In hexadecimal digits it is right in any encoding, and may hold what text may not.
        return f"CAST('\\x{level.encode().hex()}' AS pg_catalog.bytea)"

    def is_nan(self, value: str) -> str:
        return self.infix(value, "=", self.double(float("nan")))

    def on_grid(self, value: str, centre: float, scale: float, one: int) -> str:
        """Comparisons that keep overflow and underflow away, and change no result.

        Let m be the map, c the centre, and h = one / scale. The steps of m are monotone, and so are
        their roundings. A double above the one nearest to c + 2h is above c + 2h itself, and there
        m is at least m(c + 2h), which is clipped to one. A double strictly between the ones nearest
        to c - h / (8 one) and c + h / (8 one) is between these two, and m is 0 as at both of them.
        Elsewhere v - c is 0 or at least half of that eighth of a grid step, and at most about 2h:
        nothing overflows, and no product becomes 0.
        """
        width, step = 2 * one / scale, 0.125 / scale
        v, lit, infix, whole = value, self.double, self.infix, self.integer
        scaled = infix(infix(v, "-", lit(centre)), "*", lit(scale))
        floor = self.call("floor", infix(scaled, "+", lit(0.5)))
        above, below = infix(v, ">", lit(centre + width)), infix(v, "<", lit(centre - width))
        near = f"{infix(v, '>', lit(centre - step))} AND {infix(v, '<', lit(centre + step))}"
        # Neither NULL nor NaN comes this far: they are found before, and an error or filled.
        floor = f"CAST({floor} AS {self.integer_type})"
        clipped = f"least(greatest({floor}, {whole(-one)}), {whole(one)})"
        return (
            f"CASE WHEN {above} THEN {whole(one)} WHEN {below} THEN {whole(-one)} "
            f"WHEN {near} THEN {whole(0)} ELSE {clipped} END"
        )

    def total(self, product: str) -> str:
        # Of a `numeric`: bigints are added up in 128 bits.
        return f"CAST({self.call('sum', product)} AS {self.text_type})"

    def step(self, columns: str, table: str) -> str:
        # OFFSET 0 fences as MATERIALIZED does, and writes no row to a temporary file of the
        # server's; and several processes may still share the work.
        return f"SELECT {columns} FROM {table} OFFSET 0"


DUCKDB: Dialect = _DuckDB()
POSTGRESQL = _PostgreSQL()
