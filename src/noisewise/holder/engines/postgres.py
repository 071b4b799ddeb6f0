"""PostgreSQL: sums pushed down into the server, or rows streamed out of it.

Everything happens in one read-only transaction that is rolled back: one statement reads the rows,
so they are all of one moment, and nothing is left behind, neither data nor a setting. On a
connection of the caller's that is in a transaction already, it is a savepoint of that.

What is known of a table without its rows comes from the server's catalogue and its own parser: a
query is prepared, and neither planned nor run. So names of columns can't be anybody's cells.

Messages of the server are never passed on. They quote values, and those of a failed connection may
quote parts of the address, where passwords are. The address itself is kept by the source alone.

Streaming is by COPY, whose text Arrow parses: the server writes the shortest digits that are read
back as the same double. It is for what can't be pushed down (`pushdown.can_be_pushed_down`), for a
server that fails the test, and for who asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.rows import tuple_row

from noisewise.core.errors import DataError, RequestError
from noisewise.core.schema import Category
from noisewise.holder.engines import pushdown
from noisewise.holder.engines.base import Answer, Columns, InDatabase, Kind, Result, sealed
from noisewise.holder.engines.batches import batch_rows, column_readers, sum_batches
from noisewise.holder.engines.statements import Statement
from noisewise.holder.engines.statements import postgres as statements
from noisewise.holder.rows import Plan, Progress

# jit: compiled expressions start with many rows, so the test, which has few, would not see them.
# extra_float_digits: before version 12, doubles lost digits in text without it.
# client_min_messages: a function of the holder's may put values into notices.
_SETTINGS = """
SET LOCAL jit = off;
SET LOCAL extra_float_digits = 3;
SET LOCAL standard_conforming_strings = on;
SET LOCAL client_encoding = 'UTF8';
SET LOCAL client_min_messages = 'error'
"""

_TABLES = """
SELECT n.nspname::text, c.relname::text,
       has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND ((c.relname::text = %(name)s AND pg_table_is_visible(c.oid))
       OR n.nspname || '.' || c.relname = %(name)s)
"""

_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8"), Kind.NUMBER),
    "numeric": Kind.DECIMAL,
    "bool": Kind.TRUTH,
}
# The server's own categories: strings and enumerations; dates and times, and spans of time. The
# blanks at the end of a char(n) are no part of it: the cast to text drops them.
_CATEGORIES = {"S": Kind.TEXT, "E": Kind.TEXT, "D": Kind.TIME, "T": Kind.TIME}

_TYPES = """
SELECT oid, typname::text, CASE WHEN typname = 'uuid' THEN 'S' ELSE typcategory::text END
FROM pg_catalog.pg_type WHERE oid = ANY(%s)
"""


@dataclass(frozen=True)
class _Rows:
    """Rows that the server can read."""

    connection: Any
    table: str
    columns: Columns
    statement: Statement | None = None  # of a query, unless somebody answers for it


class _RefusedError(Exception):
    """The server could not prepare a statement."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__()
        self.sqlstate = sqlstate


class PostgresSource(InDatabase):
    """A table, view or query of a PostgreSQL server.

    `where` is the server's address, postgresql://..., or an open connection, which stays open. A
    table or view is one of the search path, or has its schema before a point. `stream` reads the
    rows in place of summing them where they are.
    """

    def __init__(
        self,
        where: Any,
        *,
        table: str | None = None,
        query: str | None = None,
        attested_by: str | None = None,
        stream: bool = False,
    ) -> None:
        self._where = where
        self._table = table
        self._query = query
        self._attested_by = attested_by
        self._stream = stream
        self.description = f"PostgreSQL ({'streaming' if stream else 'in the database'})"

    def _sum(self, rows: _Rows, plan: Plan[Result], progress: Progress | None) -> Result:
        indices = rows.columns.checked(plan)
        if self._stream or not (pushdown.can_be_pushed_down(plan) and _is_trusted(rows.connection)):
            return _streamed(rows, plan, indices, progress)
        about = rows.columns, indices, rows.table, pushdown.POSTGRESQL
        run = partial(_run, rows.connection)
        sums: Result = pushdown.sum_in_database(plan, *about, run, progress)
        return sums

    def _reading(self, call: Callable[[_Rows], Answer], plan: Plan[Any] | None = None) -> Answer:
        def read() -> Answer:
            with self._open() as rows:
                return call(rows)

        kinds = (psycopg.Error, _RefusedError, pa.ArrowException, OSError, UnicodeError)
        return sealed(read, _failure, *kinds)

    @contextmanager
    def _open(self) -> Iterator[_Rows]:
        with self._connected() as connection, _read_only(connection):
            statement = None
            if self._query is not None:
                query = _single_select(connection, self._query)
                if self._attested_by is None:
                    statement = statements.read(query, connection, partial(_run, connection))
                table = f"({query}\n)"  # it may end in a comment
            else:
                assert self._table is not None
                table = _known_table(connection, self._table)
            names, types = _described(connection, f"SELECT * FROM {table} AS t")
            rows = _run(connection, _TYPES, (list(set(types)),))
            labels = {int(oid): (name, category) for oid, name, category in rows}
            known = [labels[oid] for oid in types]
            kinds = [_CATEGORIES.get(cat) or _KINDS.get(name, Kind.OTHER) for name, cat in known]
            columns = Columns(names, [name for name, _ in known], kinds)
            yield _Rows(connection, table, columns, statement)

    def _connected(self) -> Any:
        if not isinstance(self._where, str):
            return nullcontext(self._where)
        return psycopg.connect(self._where, autocommit=True, fallback_application_name="noisewise")


@contextmanager
def _read_only(connection: Any) -> Iterator[None]:
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    with connection.transaction(force_rollback=True):
        isolation = "ISOLATION LEVEL REPEATABLE READ, " if idle else ""
        _run(connection, f"SET TRANSACTION {isolation}READ ONLY; {_SETTINGS}")
        yield


def _run(connection: Any, statement: str, values: Any = None) -> Any:
    """Execute, whatever cursors and rows the connection's owner likes."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    # Without `prepare` a statement that is seen often would be kept in the session.
    return cursor.execute(statement, values, prepare=False)


def _is_trusted(connection: Any) -> bool:
    """Whether the server passes the test. An error in it is a failure of it."""
    try:
        with connection.transaction(force_rollback=True):
            trusted = pushdown.agrees_with_numpy(
                pushdown.POSTGRESQL, lambda query: _run(connection, query).fetchall()
            )
    except psycopg.Error:
        if connection.closed:
            raise
        trusted = False
    if not trusted:
        pushdown.warn_of_streaming("PostgreSQL server")
    return trusted


def _streamed(
    rows: _Rows, plan: Plan[Result], indices: Sequence[int], progress: Progress | None
) -> Result:
    selected, types = [], {}
    for place, (name, index) in enumerate(zip(plan.sources, indices, strict=True)):
        column, kind = f"c{index}", rows.columns.kinds[index]
        is_id = name == plan.schema.unit_column
        if is_id and kind is Kind.NUMBER:
            value, arrow = f"CAST({column} AS bigint)", pa.int64()
        elif is_id and kind is Kind.DECIMAL:
            # 1.0 and 1.00 are one id.
            value, arrow = f"CAST(trim_scale({column}) AS text)", pa.string()
        elif kind is Kind.TEXT or (
            kind is Kind.TRUTH and isinstance(plan.schema.columns[name], Category)
        ):
            value, arrow = f"CAST({column} AS text)", pa.string()  # true and false in words
        else:
            value, arrow = pushdown.POSTGRESQL.number(column, kind), pa.float64()
        selected.append(value)
        types[f"c{place}"] = arrow
    query = f"SELECT {', '.join(selected)} FROM {pushdown.numbered(rows.table, rows.columns)}"
    readers = column_readers(plan, list(types.values()))
    statement = f"COPY ({query}) TO STDOUT (FORMAT csv)"
    # After an error it is ended here: the transaction can't end while rows are under way.
    with psycopg.Cursor(rows.connection).copy(statement) as lines:
        return sum_batches(plan, _batches(iter(lines), types, batch_rows(plan)), readers, progress)


def _batches(lines: Any, types: dict[str, Any], most: int) -> Iterator[Any]:
    """Record batches of up to so many rows. The server sends every row as a message of its own."""
    parse = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    # NULL is nothing at all; text that is empty comes in quotes.
    convert = pa_csv.ConvertOptions(
        column_types=types,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    while block := [bytes(line) for line in islice(lines, most)]:
        joined = b"".join(block)
        read = pa_csv.ReadOptions(
            use_threads=False, block_size=len(joined) + 1, column_names=list(types)
        )
        table = pa_csv.read_csv(
            pa.BufferReader(joined), read_options=read, parse_options=parse, convert_options=convert
        )
        if table.num_rows != len(block):
            raise DataError("data: the PostgreSQL server sent rows that cannot be told apart")
        yield from table.to_batches()


# --- what is known without reading rows -----------------------------------------------------------


def _described(connection: Any, statement: str) -> tuple[list[str], list[int]]:
    """Names and types of a statement's columns. It is parsed, and neither planned nor run."""
    server = connection.pgconn
    calls = (server.prepare, statement.encode()), (server.describe_prepared,)
    for call, *arguments in calls:
        result = call(b"", *arguments)
        if result.status != ExecStatus.COMMAND_OK:
            state = result.error_field(DiagnosticField.SQLSTATE)
            raise _RefusedError(None if state is None else state.decode())
    if result.nparams:
        raise RequestError("query: expected a single SELECT statement, without parameters like $1")
    columns = range(result.nfields)
    return [result.fname(i).decode() for i in columns], [result.ftype(i) for i in columns]


def _parses(connection: Any, statement: str) -> bool:
    try:
        with connection.transaction(force_rollback=True):
            _described(connection, statement)
    except _RefusedError as error:
        if error.sqlstate is None:
            raise
        return False
    return True


def _single_select(connection: Any, query: str) -> str:
    """The query without its final semicolon; a single SELECT, so that nothing is changed.

    The server's own parser decides. What it can prepare is one statement, and what it can prepare
    in brackets as well is one that returns rows and changes nothing.
    """
    refusal = RequestError("query: expected a single SELECT statement")
    if "\0" in query:
        raise refusal
    try:
        with connection.transaction(force_rollback=True):
            names, _ = _described(connection, query)
    except UnicodeError:
        raise refusal from None
    except _RefusedError as error:
        if error.sqlstate != "42601":  # of grammar, or several statements
            raise
        names = []
    if not names:
        raise refusal
    # Behind the semicolon that ends it there are comments at most, which may hold others. With
    # that semicolon in brackets nothing parses, so the first that does, from the end, is right.
    ends = [len(query), *(i for i in reversed(range(len(query))) if query[i] == ";")]
    for end in ends:
        if _parses(connection, f"SELECT * FROM ({query[:end]}\n) AS t"):
            return query[:end]
    raise refusal


def _known_table(connection: Any, wanted: str) -> str:
    try:
        found = _run(connection, _TABLES, {"name": wanted}).fetchall()
    except UnicodeError:
        found = []
    if not found:
        raise DataError(
            "table: the server has no table or view of this name in the search path; check the "
            "name (upper and lower case matter), or write schema.table"
        )
    if len(found) > 1:
        raise RequestError("table: the server has two tables of this name; give a query instead")
    ((schema, name, allowed),) = found
    if not allowed:
        raise DataError("table: the role may not read it; GRANT SELECT on it first")
    return f"{pushdown.identifier(schema)}.{pushdown.identifier(name)}"


def _failure(error: Exception) -> str:
    """In words of our own: the server's may quote rows, and those about addresses passwords."""
    state = getattr(error, "sqlstate", None) or ""
    if state.startswith("28"):
        return "data: the PostgreSQL server refused the user or the password"
    if state == "3D000":
        return "data: the PostgreSQL server has no such database; check the address"
    if state == "42501":
        return "data: the role may not read all of this; GRANT SELECT on it first"
    if state.startswith("42"):
        return (
            "data: the PostgreSQL server cannot answer that query; check its names and its grammar "
            "in psql"
        )
    if state.startswith("22"):
        return (
            "data: the query failed on the rows in PostgreSQL (a cast or a number out of range); "
            "mend the query"
        )
    if state == "57014":
        return "data: the PostgreSQL server stopped the query, by hand or by a time limit"
    if state == "25P02":
        return "data: the connection's transaction has failed before; roll it back first"
    return (
        "data: the PostgreSQL server cannot be reached or read; check the address with psql, and "
        "the server's own log"
    )
