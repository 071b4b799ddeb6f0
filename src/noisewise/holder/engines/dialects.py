"""What a database must provide to sum rows where they are: a `Dialect`, a dozen pieces of SQL.

`pushdown.SumQuery` writes the value map of `holder.rows.values` with these pieces. A further
database is one more class here, and a source that runs the query. No dialect is taken at its word:
`pushdown.agrees_with_numpy` sends it awkward values, and a database that fails is streamed.

Where databases differ, and what they all must do here:

missing values
    Are found before anything is clipped. `greatest` and `least` drop NULL, and for PostgreSQL NaN
    is the largest number, so that clipping would make a bound of a missing value.
overflow and underflow
    Become infinity and 0, as in NumPy. PostgreSQL raises an error, so its values are compared with
    the ends of the range first.
doubles to integers
    Are rounded down by `floor`, and then cast: casts of fractions go to the nearest even integer in
    one database and towards 0 in another.
text
    Is compared as bytes, because a collation may ignore case or accents.
steps
    Are fenced off where an optimiser would copy an expression into each of its uses: in PostgreSQL
    a value would be rounded again for every sum that it is in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from noisewise.holder.engines.base import Kind


class Dialect(ABC):
    """The SQL of one database. All methods take and return SQL expressions.

    Attributes
    ----------
    double_type : str
        The type of IEEE 754 doubles, on which -, *, +, / and sqrt are correctly rounded. BIGINT,
        CASE, `floor`, `trunc`, `sqrt`, `coalesce` and `bool_or` are taken for granted.
    """

    double_type: str

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

    def number(self, column: str, kind: Kind) -> str:
        if kind is Kind.DECIMAL:
            # DuckDB's own cast of 128-bit numbers is not always to the nearest double (2.0.0 gets
            # -9981837153484694::DECIMAL(38,0) wrong); text is parsed correctly.
            column = f"CAST({column} AS VARCHAR)"
        return f"CAST({column} AS DOUBLE)"

    def text_key(self, column: str) -> str:
        return f"encode(CAST({column} AS VARCHAR))"

    def level_key(self, level: str) -> str:
        return f"encode({text(level)})"

    def is_nan(self, value: str) -> str:
        return f"isnan({value})"

    def on_grid(self, value: str, centre: float, scale: float, one: int) -> str:
        moved = f"({value} - {self.double(centre)}) * {self.double(scale)} + {self.double(0.5)}"
        clipped = f"least(greatest(floor({moved}), {self.double(-one)}), {self.double(one)})"
        return f"CAST({clipped} AS BIGINT)"

    def total(self, product: str) -> str:
        return f"sum({product})"  # a HUGEINT

    def step(self, columns: str, table: str) -> str:
        return f"SELECT {columns} FROM {table}"


class _PostgreSQL(Dialect):
    double_type = "double precision"

    # The smallest decimal number that rounds to infinity, and the largest that rounds to 0: half
    # a step beyond the last double, and half of the first. Ties go to even ones, which these are.
    _TO_INFINITY = str(2**1024 - 2**970)
    _TO_ZERO = "0." + str(5**1075).zfill(1075)  # 2**-1075

    def number(self, column: str, kind: Kind) -> str:
        if kind is Kind.TRUTH:
            column = f"CAST({column} AS integer)"
        cast = f"CAST({column} AS {self.double_type})"
        if kind is not Kind.DECIMAL:
            return cast
        # The cast goes through text and is correctly rounded, but for doubles that don't exist it
        # is an error. For `numeric`, too, NaN is the largest number.
        return (
            f"CASE WHEN {column} = 'NaN' THEN {cast} "
            f"WHEN {column} >= {self._TO_INFINITY} THEN {self.double(float('inf'))} "
            f"WHEN {column} <= -{self._TO_INFINITY} THEN {self.double(float('-inf'))} "
            f"WHEN abs({column}) <= {self._TO_ZERO} THEN {self.double(0)} ELSE {cast} END"
        )

    def text_key(self, column: str) -> str:
        return f"convert_to(CAST({column} AS text), 'UTF8')"

    def level_key(self, level: str) -> str:
        # In hexadecimal digits it is right in any encoding, and may hold what text may not.
        return f"CAST('\\x{level.encode().hex()}' AS bytea)"

    def is_nan(self, value: str) -> str:
        return f"{value} = {self.double(float('nan'))}"

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
        v, lit = value, self.double
        moved = f"({v} - {lit(centre)}) * {lit(scale)} + {lit(0.5)}"
        # Neither NULL nor NaN comes this far: they are found before, and an error or filled.
        clipped = f"least(greatest(CAST(floor({moved}) AS bigint), {-one}), {one})"
        return (
            f"CASE WHEN {v} > {lit(centre + width)} THEN {one} "
            f"WHEN {v} < {lit(centre - width)} THEN {-one} "
            f"WHEN {v} > {lit(centre - step)} AND {v} < {lit(centre + step)} THEN 0 "
            f"ELSE {clipped} END"
        )

    def total(self, product: str) -> str:
        return f"CAST(sum({product}) AS text)"  # of a `numeric`: bigints are added up in 128 bits

    def step(self, columns: str, table: str) -> str:
        # OFFSET 0 fences as MATERIALIZED does, and writes no row to a temporary file of the
        # server's; and several processes may still share the work.
        return f"SELECT {columns} FROM {table} OFFSET 0"


DUCKDB: Dialect = _DuckDB()
POSTGRESQL: Dialect = _PostgreSQL()
