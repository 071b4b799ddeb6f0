"""PostgreSQL: sums pushed down into the server, or rows streamed out of it.

Everything happens in one read-only transaction that is rolled back: one statement reads the rows,
so they are all of one moment, and nothing is left behind, neither data nor a setting. On a
connection of the caller's that is in a transaction already, it is a savepoint of that.

What is known of a table without its rows comes from the server's catalogue and its own parser: a
query is prepared, and neither planned nor run. So names of columns can't be anybody's cells.

**Nobody else's code runs with the holder's rights**, and none changes what is summed. Whoever may
create functions in a schema of the search path can give them the names of built-in ones, with types
that fit better. A read-only transaction doesn't help: a function can still take advisory locks,
send notices, sleep, or read whatever the role may read. What holds, and why:

1. The first statement of the transaction reads which schemas are on the role's own path. It calls
   one function and one operator, both with their schema. The second sets the path to
   ``pg_catalog, pg_temp`` for the transaction. Temporary schemas are never searched for functions
   and operators, and stand last for tables and types. So a bare name means the server's own object
   from there on, in a `query` too.
2. The SQL that sums or streams names the schema of every function, operator and type (`pushdown`),
   and is called with exactly the types that the built-in functions take. In pg_catalog itself only
   superusers can create anything, unless they granted that; `_BUILT_IN` looks for it.
3. A table is found in the schemas of (1), and is from then on its schema and its name. Once the
   server has parsed the statement, and so locked what the name means, the name's number is compared
   with what was found: another table that took the name meanwhile is noticed.
4. Names don't help against code that is part of a table. It is looked for in the catalogue, in
   every relation that the parser locked for the statement and in all that inherit from them: views
   (their rules run functions, and put rows together in any way), row-level security, foreign
   tables, columns that are computed when they are read, casts of a column's type, and functions in
   indexes, statistics, checks and partition keys, which the *planner* calls if their arguments
   are constants. Any of that is refused unless somebody attests it. Functions of superusers count
   as the server's own: a superuser can read everything anyway. The server is told as well to refuse
   views, foreign tables and policies (`_GUARDS`), at the moment when the statement runs.

What is left: functions that a superuser made, event triggers on logins (superusers only), and an
index that the table's owner creates between the look at the catalogue and the statement.

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

# The path comes first: with it the conversion to client_encoding is looked up.
# jit: compiled expressions start with many rows, so the test, which has few, would not see them.
# extra_float_digits: before version 12, doubles lost digits in text without it.
# client_min_messages: a function of the holder's may put values into notices.
# row_security: with off, policies would be an error without words of ours.
_SETTINGS = """
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL jit = off;
SET LOCAL extra_float_digits = 3;
SET LOCAL standard_conforming_strings = on;
SET LOCAL client_encoding = 'UTF8';
SET LOCAL client_min_messages = 'error';
SET LOCAL row_security = on
"""

# Runs with the role's own path: nothing in it may be a bare name.
_PATH = """
SELECT n.oid FROM pg_catalog.pg_namespace AS n
WHERE n.nspname OPERATOR(pg_catalog.=) ANY (pg_catalog.current_schemas(true))
"""

# All that follows runs with the path of `_SETTINGS`.
_TABLES = """
SELECT c.oid, n.nspname::text, c.relname::text,
       has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND ((c.relname::text = %(name)s AND n.oid = ANY(%(path)s))
       OR n.nspname || '.' || c.relname = %(name)s)
"""

_NUMBER = "SELECT to_regclass(%s)::oid::int8"

_LOCKED = """
SELECT DISTINCT l.relation FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_database AS d ON d.oid = l.database AND d.datname = current_database()
WHERE l.locktype = 'relation' AND l.pid = pg_backend_pid()
"""
_FIRST_OF_USERS = 16_384  # objects with smaller numbers came with the server

# Nothing in pg_catalog belongs to somebody who is no superuser.
_BUILT_IN = """
WITH made(owner) AS (
    SELECT proowner FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
    UNION
    SELECT oprowner FROM pg_catalog.pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
    UNION
    SELECT typowner FROM pg_catalog.pg_type WHERE typnamespace = 'pg_catalog'::regnamespace
)
SELECT NOT EXISTS (
    SELECT FROM made LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = made.owner
    WHERE r.rolsuper IS NOT TRUE
)
"""

# What reading these relations, with columns of these types, may run or let in; in the order of
# `_CONCERNS`.
_FACTS = """
WITH RECURSIVE used(oid) AS (
    SELECT unnest(%(relations)s::oid[])
    UNION
    SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN used ON used.oid = i.inhparent
), parts(class, oid) AS (
    SELECT 'pg_catalog.pg_class'::regclass, used.oid FROM used
    UNION ALL
    SELECT 'pg_catalog.pg_class'::regclass, i.indexrelid
    FROM pg_catalog.pg_index AS i JOIN used ON used.oid = i.indrelid
    UNION ALL
    SELECT 'pg_catalog.pg_constraint'::regclass, k.oid
    FROM pg_catalog.pg_constraint AS k JOIN used ON used.oid = k.conrelid
    UNION ALL
    SELECT 'pg_catalog.pg_statistic_ext'::regclass, s.oid
    FROM pg_catalog.pg_statistic_ext AS s JOIN used ON used.oid = s.stxrelid
), types(oid) AS (
    (SELECT unnest(%(types)s::oid[])
     UNION
     SELECT a.atttypid FROM pg_catalog.pg_attribute AS a JOIN used ON used.oid = a.attrelid)
    UNION
    SELECT inner_type.oid
    FROM pg_catalog.pg_type AS t JOIN types ON types.oid = t.oid CROSS JOIN LATERAL (
        SELECT t.typbasetype UNION SELECT t.typelem UNION
        SELECT a.atttypid FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = t.typrelid
    ) AS inner_type(oid)
), called(oid) AS (
    SELECT coalesce(o.oprcode::oid, d.refobjid)
    FROM pg_catalog.pg_depend AS d
    JOIN parts ON parts.class = d.classid AND parts.oid = d.objid
    LEFT JOIN pg_catalog.pg_operator AS o
        ON d.refclassid = 'pg_catalog.pg_operator'::regclass AND o.oid = d.refobjid
    WHERE d.refclassid IN ('pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass)
    UNION
    SELECT k.castfunc FROM pg_catalog.pg_cast AS k JOIN types ON types.oid = k.castsource
), kinds(kind) AS (
    SELECT coalesce(c.relkind, '?')
    FROM used LEFT JOIN pg_catalog.pg_class AS c ON c.oid = used.oid
)
SELECT EXISTS (SELECT FROM kinds WHERE kind = 'v'),
       EXISTS (SELECT FROM kinds WHERE kind = 'f'),
       EXISTS (SELECT FROM used WHERE row_security_active(used.oid)),
       EXISTS (SELECT FROM pg_catalog.pg_attribute AS a JOIN used ON used.oid = a.attrelid
               WHERE a.attgenerated = 'v'),
       EXISTS (SELECT FROM called JOIN pg_catalog.pg_proc AS p ON p.oid = called.oid
               LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner
               WHERE r.rolsuper IS NOT TRUE),
       EXISTS (SELECT FROM kinds WHERE kind NOT IN ('r', 'p', 'm', 'v', 'f'))
"""

_CONCERNS = (
    "a view, which runs functions with the rights of your role, and may put one person into many "
    "rows",
    "a foreign table, or one with a foreign partition, whose rows come from elsewhere",
    "a table with row-level security, whose policies run functions with the rights of your role",
    "a table with columns that are computed whenever they are read",
    "a table whose indexes, checks, partitions or types call functions with the rights of your "
    "role, and somebody who is no superuser can change these",
    "something that is no table, or a table that has just been made",
)

# The second line is for servers that have it, from the minor versions of August 2024 on.
_GUARDS = """
SET LOCAL row_security = off;
SELECT set_config(name, 'view, foreign-table', true) FROM pg_catalog.pg_settings
WHERE name = 'restrict_nonsystem_relation_kind'
"""

_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8"), Kind.NUMBER),
    "numeric": Kind.DECIMAL,
    "bool": Kind.TRUTH,
}
# The server's own categories: strings and enumerations; dates and times, and spans of time. The
# blanks at the end of a char(n) are no part of it: the cast to text drops them.
_CATEGORIES = {"S": Kind.TEXT, "E": Kind.TEXT, "D": Kind.TIME, "T": Kind.TIME}

# Of the users' own types only the category counts: anybody may call one float8.
_TYPES = f"""
SELECT oid, CASE WHEN oid < {_FIRST_OF_USERS} THEN typname::text END,
       CASE WHEN oid = 'pg_catalog.uuid'::regtype THEN 'S' ELSE typcategory::text END
FROM pg_catalog.pg_type WHERE oid = ANY(%s)
"""


@dataclass(frozen=True)
class _Rows:
    """Rows that the server can read."""

    connection: Any
    table: str
    columns: Columns
    statement: Statement | None = None  # of a query, unless somebody answers for it
    concern: str = ""  # what only a person can answer for, unless somebody does


class _RefusedError(Exception):
    """The server could not prepare a statement."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__()
        self.sqlstate = sqlstate


class PostgresSource(InDatabase):
    """A table, view or query of a PostgreSQL server.

    `where` is the server's address, postgresql://..., or an open connection, which stays open. A
    table or view is one of the search path, or has its schema before a point. `stream` reads the
    rows in place of summing them where they are. `attested_by` is who answers for a view or query.
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
        return sealed(read, partial(_failure, is_query=self._query is not None), *kinds)

    @contextmanager
    def _open(self) -> Iterator[_Rows]:
        with self._connected() as connection, _read_only(connection) as path:
            _check_built_ins(connection)
            statement, oid, concern = None, None, ""
            if self._query is not None:
                query = _single_select(connection, self._query)
                if self._attested_by is None:
                    statement = statements.read(query, connection, partial(_run, connection))
                table = f"({query}\n)"  # it may end in a comment
            else:
                assert self._table is not None
                table, oid = _known_table(connection, self._table, path)
            names, types = _described(connection, f"SELECT * FROM {table} AS t")
            relations = _relations(connection, table, oid)
            rows = _run(connection, _TYPES, (list(set(types)),))
            labels = {int(oid): (name or "", category) for oid, name, category in rows}
            known = [labels[oid] for oid in types]
            kinds = [_CATEGORIES.get(cat) or _KINDS.get(name, Kind.OTHER) for name, cat in known]
            if self._attested_by is None:
                what = "table: it is" if self._query is None else "query: it reads"
                concern = _concern(connection, what, relations, types)
                _run(connection, _GUARDS)
            columns = Columns(names, [name for name, _ in known], kinds)
            yield _Rows(connection, table, columns, statement, concern)

    def _connected(self) -> Any:
        if not isinstance(self._where, str):
            return nullcontext(self._where)
        return psycopg.connect(self._where, autocommit=True, fallback_application_name="noisewise")


@contextmanager
def _read_only(connection: Any) -> Iterator[list[int]]:
    """A transaction with a path of our own; gives the schemas of the role's path."""
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    with connection.transaction(force_rollback=True):
        isolation = "ISOLATION LEVEL REPEATABLE READ, " if idle else ""
        _run(connection, f"SET TRANSACTION {isolation}READ ONLY")
        path = [int(oid) for (oid,) in _run(connection, _PATH)]
        _run(connection, _SETTINGS)
        yield path


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
    selected, types, sql = [], {}, pushdown.POSTGRESQL
    for place, (name, index) in enumerate(zip(plan.sources, indices, strict=True)):
        column, kind = f"c{index}", rows.columns.kinds[index]
        is_id = name == plan.schema.unit_column
        if is_id and kind is Kind.NUMBER:
            value, arrow = f"CAST({column} AS {sql.integer_type})", pa.int64()
        elif is_id and kind is Kind.DECIMAL:
            # 1.0 and 1.00 are one id.
            value = f"CAST({sql.call('trim_scale', column)} AS {sql.text_type})"
            arrow = pa.string()
        elif kind is Kind.TEXT or (
            kind is Kind.TRUTH and isinstance(plan.schema.columns[name], Category)
        ):
            # True and false in words
            value, arrow = f"CAST({column} AS {sql.text_type})", pa.string()
        else:
            value, arrow = sql.number(column, kind), pa.float64()
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


def _known_table(connection: Any, wanted: str, path: list[int]) -> tuple[str, int]:
    """The table as it is written in SQL, with its schema, and its number."""
    try:
        found = _run(connection, _TABLES, {"name": wanted, "path": path}).fetchall()
    except UnicodeError:
        found = []
    if not found:
        raise DataError(
            "table: the server has no table or view of this name in the search path; check the "
            "name (upper and lower case matter), or write schema.table"
        )
    if len(found) > 1:
        raise RequestError(
            "table: several schemas of the search path have a table of this name; write "
            "schema.table, or give a query"
        )
    ((oid, schema, name, allowed),) = found
    if not allowed:
        raise DataError("table: the role may not read it; GRANT SELECT on it first")
    return f"{pushdown.identifier(schema)}.{pushdown.identifier(name)}", int(oid)


# --- whether anybody else's code would run --------------------------------------------------------


def _check_built_ins(connection: Any) -> None:
    ((sound,),) = _run(connection, _BUILT_IN)
    if not sound:
        raise DataError(
            "data: pg_catalog, the PostgreSQL server's own schema, has functions, operators or "
            "types that belong to somebody who is no superuser; let its administrator remove them"
        )


def _relations(connection: Any, table: str, oid: int | None) -> list[int]:
    """What the statement that was described last reads: this table, or all that a query names.

    The server locks what a statement reads when it parses it, through views, and until the
    transaction ends. So a name means from there on what it meant to the statement. (On a connection
    that is in a transaction already, more may be locked than a query reads.)
    """
    if oid is None:
        locked = [int(oid) for (oid,) in _run(connection, _LOCKED)]
        return [oid for oid in locked if oid >= _FIRST_OF_USERS]
    ((now,),) = _run(connection, _NUMBER, (table,))
    if now != oid:
        raise DataError(
            "table: another one took its name at this moment; look at it, and run again"
        )
    return [oid]


def _concern(connection: Any, what: str, relations: list[int], types: list[int]) -> str:
    """What only a person can answer for in these relations and types of columns, or nothing."""
    values = {"relations": relations, "types": list(set(types))}
    (facts,) = _run(connection, _FACTS, values)
    found = (text for holds, text in zip(facts, _CONCERNS, strict=True) if holds)
    return next((f"{what} {text}" for text in found), "")


def _failure(error: Exception, *, is_query: bool) -> str:
    """In words of our own: the server's may quote rows, and those about addresses passwords."""
    state = getattr(error, "sqlstate", None) or ""
    if state.startswith("28"):
        return "data: the PostgreSQL server refused the user or the password"
    if state == "3D000":
        return "data: the PostgreSQL server has no such database; check the address"
    if state == "42501":
        return "data: the role may not read all of this; GRANT SELECT on it first"
    if is_query and state in ("42P01", "42704", "42883"):
        return (
            "query: it names a table, type or function that the PostgreSQL server doesn't find; "
            "write your own ones with their schema, such as public.people (only the server's "
            "built-in ones are found without)"
        )
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
