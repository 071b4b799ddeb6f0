"""DuckDB: sums pushed down into the database, for databases, Parquet, CSV and tables in memory.

Files are read by a private, in-memory DuckDB instance; databases are attached to it read-only. The
value map and the sums run there as one query (`pushdown`). A connection or relation that the caller
owns is only read from: DuckDB streams its rows, and they are summed here, as those of files.

**No macro changes what is summed.** A database file may define macros with the names of built-in
functions and operators, and in its own catalog (``USE``) they come first. So a file is attached
without becoming the default, its tables are named with catalog and schema, and the SQL that sums
says `system.main` of every function (`pushdown`), where nobody can create anything. Types can't be
shadowed: DuckDB refuses a type with the name of a built-in one. A generated column or a view may
still call a macro: such tables are refused unless somebody answers for them by name. If somebody
does for a query, it runs with the file as default, as it was written; the sums around it call
functions by their whole names. The test of `pushdown` runs every time, in the instance and with the
path of the sums themselves.

From a connection of the caller's come bare columns and casts, which call no function, and what is
asked of its catalogue has whole names as well. Its views are refused like a file's. Temporary views
and relations are the caller's own code, as a data frame is: what they compute is not looked into.

There is a reason why those are not summed by a query. It is right only if DuckDB does not trust the
statistics in Parquet files: by the Parquet specification minimum and maximum leave out NaN, DuckDB
concludes that there is none (https://github.com/duckdb/duckdb/issues/25521), and `isnan` is
"optimised" to false. The optimiser's use of statistics is therefore turned off, and that setting
belongs to a whole instance: it is not ours to change in somebody else's. Raw columns are not
affected.

Very wide designs are streamed as well (thousands of sums a row are work for BLAS, not for SQL), and
so is everything that is not a sum of products of columns (`pushdown.can_be_pushed_down`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from noisewise.core.errors import DataError, RequestError
from noisewise.core.temporary import private_folder
from noisewise.holder.engines import pushdown
from noisewise.holder.engines.base import (
    Answer,
    Columns,
    InDatabase,
    Kind,
    Result,
    positions,
    sealed,
)
from noisewise.holder.engines.batches import batch_rows, column_readers, sum_batches
from noisewise.holder.engines.files import CsvSource, ParquetSource
from noisewise.holder.engines.frame import FrameSource
from noisewise.holder.engines.statements import Statement
from noisewise.holder.engines.statements import duckdb as statements
from noisewise.holder.rows import Plan, Progress

_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint", "float", "double"), Kind.NUMBER),
    **dict.fromkeys(("utinyint", "usmallint", "uinteger", "ubigint"), Kind.NUMBER),
    **dict.fromkeys(("decimal", "hugeint", "uhugeint", "bignum", "varint"), Kind.DECIMAL),
    "boolean": Kind.TRUTH,
    "varchar": Kind.TEXT,
    "enum": Kind.TEXT,
    "null": Kind.NOTHING,
}


@dataclass(frozen=True)
class _Rows:
    """Rows that DuckDB can read."""

    relation: Any
    # What the holder calls the columns. The relation's own names may differ: for DuckDB "x" and "X"
    # are the same, and it renames one of them.
    names: list[str]
    # Where the relation lives and what it is in SQL; None if it is not ours to query
    connection: Any = None
    table: str | None = None
    statement: Statement | None = None  # of a query, unless somebody answers for it
    concern: str = ""  # what only a person can answer for, unless somebody does

    @property
    def columns(self) -> Columns:
        types = [str(one.id) for one in self.relation.types]
        return Columns(self.names, types, [kind_of_type(one) for one in types])


class _DuckDBSource(InDatabase):
    """What the sources in this file share; each says in `_open` where its rows are."""

    description: str

    def _reading(self, call: Callable[[_Rows], Answer], plan: Plan[Any] | None = None) -> Answer:
        def read() -> Answer:
            with self._open(plan) as rows:
                return call(rows)

        kinds = (duckdb.Error, pa.ArrowException, OSError)
        return sealed(read, lambda error: self._failure(error, plan), *kinds)

    def _sum(self, rows: _Rows, plan: Plan[Result], progress: Progress | None) -> Result:
        held = rows.columns
        indices = held.checked(plan)
        if (
            rows.table is None
            or not pushdown.can_be_pushed_down(plan)
            or not _is_trusted(rows.connection)
        ):
            return _streamed(rows, plan, indices, progress)
        run = rows.connection.execute
        about = held, indices, rows.table, pushdown.DUCKDB
        sums: Result = pushdown.sum_in_database(plan, *about, run, progress)
        return sums

    @abstractmethod
    def _open(self, plan: Plan[Any] | None) -> AbstractContextManager[_Rows]:
        """Open the rows. Given a plan, its sources are enough."""

    def _failure(self, error: Exception, plan: Plan[Any] | None = None) -> str:
        return f"data: DuckDB cannot read {self.description}; it may be damaged, or in use"


class ParquetInDuckDB(_DuckDBSource):
    """A Parquet file, read by DuckDB."""

    def __init__(self, path: Path) -> None:
        if set("*?[") & set(str(path.absolute())):
            raise RequestError(
                "data: DuckDB takes *, ? and [ in a path for wildcards; use engine='stream'"
            )
        self._path = path
        self.description = f"{path.name} (DuckDB)"

    def row_count(self) -> int | None:
        return ParquetSource(self._path).row_count()

    @contextmanager
    def _open(self, plan: Plan[Any] | None) -> Iterator[_Rows]:
        names = self._check(plan)
        # By default, folders with names such as a=1 would become columns.
        path = pushdown.text(str(self._path.absolute()))
        table = f"read_parquet({path}, hive_partitioning=false)"
        with _private_instance() as connection:
            yield _Rows(connection.sql(f"SELECT * FROM {table}"), names, connection, table)

    def _check(self, plan: Plan[Any] | None) -> list[str]:
        """The columns' names, after a check of their types as Arrow sees them.

        Some types exist in Arrow's notes to the file only; DuckDB takes durations for integers.
        """
        with ParquetSource(self._path).open() as file:
            schema = file.schema_arrow
        if plan is not None:
            indices = positions(schema.names, plan.sources)
            types = [schema.field(index).type for index in indices]
            column_readers(plan, types)
            if any(pa.types.is_decimal256(kind) for kind in types):
                raise DataError(
                    "data: DuckDB has no decimal numbers of more than 38 digits; use "
                    "engine='stream'"
                )
        return list(schema.names)


class DatabaseSource(_DuckDBSource):
    """A table, view or query of a DuckDB database file, which is opened read-only."""

    def __init__(
        self,
        path: Path,
        *,
        table: str | None = None,
        query: str | None = None,
        attested_by: str | None = None,
    ) -> None:
        self._path = path
        self._table = table
        self._query = query
        self._attested_by = attested_by
        self.description = f"{path.name} (DuckDB)"

    @contextmanager
    def _open(self, plan: Plan[Any] | None) -> Iterator[_Rows]:
        with _private_instance() as connection:
            statement, concern = None, ""
            path = pushdown.text(str(self._path.absolute()))
            connection.execute(f"ATTACH {path} AS holder (READ_ONLY, TYPE duckdb)")
            # The names of a query's columns are looked up before anything is charged, and those of
            # another file may be cells: read_csv(..., skip=7, header=true).
            if self._query is not None or self._attested_by is None:
                connection.execute("SET enable_external_access = false")
            if self._query is None:
                entry = _known_table(connection, self._table)
                table, concern = entry.sql, "" if self._attested_by else entry.concern
                query = f"SELECT * FROM {table}"
            else:
                if self._attested_by is not None:
                    connection.execute("USE holder")
                query, statement = _checked(connection, self._query, self._attested_by)
                table = f"({query}\n)"  # the query may end in a comment
            relation = connection.sql(query)
            names = list(relation.columns)
            yield _Rows(relation, names, connection, table, statement, concern)

    def _failure(self, error: Exception, plan: Plan[Any] | None = None) -> str:
        if type(error).__name__ == "PermissionException":
            return (
                "query: it reads other files, which could tell about their rows before anything is "
                "charged; put them into a table of the database, or name a view of them as table"
            )
        if type(error).__name__ in ("CatalogException", "BinderException", "ParserException"):
            return (
                f"data: {self._path.name} cannot answer that table or query; check its names and "
                "its grammar in DuckDB itself"
            )
        if type(error).__name__ in ("ConversionException", "OutOfRangeException"):
            return (
                f"data: the query failed on the rows of {self._path.name} (a cast or a number out "
                "of range); mend the query"
            )
        return (
            f"data: {self._path.name} cannot be read as a DuckDB database; it may be damaged, of "
            "another kind, or open elsewhere (then pass the open connection)"
        )


class ArrowInDuckDB(_DuckDBSource):
    """A CSV file or a table in memory, handed to DuckDB as Arrow."""

    def __init__(self, source: CsvSource | FrameSource) -> None:
        self._source = source
        self.description = f"{source.description.rpartition(' (')[0]} (DuckDB)"

    def column_names(self) -> list[str]:
        return self._source.column_names()

    def row_count(self) -> int | None:
        return self._source.row_count()

    def check(self, plan: Plan[Any]) -> None:
        self._source.check(plan)

    @contextmanager
    def _open(self, plan: Plan[Any] | None) -> Iterator[_Rows]:
        assert plan is not None
        with self._source.arrow(plan) as rows, _private_instance() as connection:
            connection.register("noisewise_rows", rows)
            relation = connection.sql("SELECT * FROM noisewise_rows")
            yield _Rows(relation, list(plan.sources), connection, "noisewise_rows")

    def _failure(self, error: Exception, plan: Plan[Any] | None = None) -> str:
        assert plan is not None
        return self._source.explain(plan, error)


class LentSource(_DuckDBSource):
    """A relation of the caller's, or a table or query on a connection of the caller's."""

    def __init__(
        self,
        lent: Any,
        *,
        table: str | None = None,
        query: str | None = None,
        attested_by: str | None = None,
    ) -> None:
        self._lent = lent
        self._table = table
        self._query = query
        self._attested_by = attested_by
        self.description = "DuckDB connection" if table or query else "DuckDB relation"

    @contextmanager
    def _open(self, plan: Plan[Any] | None) -> Iterator[_Rows]:
        relation, statement, concern = self._lent, None, ""
        if self._query is not None:
            query, statement = _checked(self._lent, self._query, self._attested_by)
            relation = self._lent.sql(query)
        elif self._table is not None:
            entry = _visible_table(self._lent, self._table)
            relation = self._lent.sql(f"SELECT * FROM {entry.sql}")
            concern = "" if self._attested_by else entry.concern
        yield _Rows(relation, list(relation.columns), statement=statement, concern=concern)

    def _failure(self, error: Exception, plan: Plan[Any] | None = None) -> str:
        return f"data: the {self.description} cannot be read; try the same query in DuckDB itself"


@contextmanager
def _private_instance() -> Iterator[Any]:
    # No extensions from the network, and no Python variables taken for tables. What a query sorts
    # may be more than memory holds: it goes to a folder of our own, not to the working directory.
    with private_folder() as folder:
        config: dict[str, Any] = {
            "autoinstall_known_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": str(folder),
        }
        with duckdb.connect(":memory:", config=config) as connection:
            connection.execute("SET disabled_optimizers = 'statistics_propagation'")
            yield connection


def _is_trusted(connection: Any) -> bool:
    """Whether the instance passes the test."""
    trusted = pushdown.agrees_with_numpy(
        pushdown.DUCKDB, lambda query: connection.execute(query).fetchall()
    )
    if not trusted:
        pushdown.warn_of_streaming("version of DuckDB")
    return trusted


def _streamed(
    rows: _Rows, plan: Plan[Result], indices: list[int], progress: Progress | None
) -> Result:
    kinds = [rows.columns.kinds[index] for index in indices]
    own_names = [str(rows.relation.columns[index]) for index in indices]
    folded = [str(name).casefold() for name in rows.relation.columns]
    if any(folded.count(name.casefold()) > 1 for name in own_names):
        raise DataError(
            "data: two columns have names that differ in upper and lower case only, which DuckDB "
            "cannot tell apart; rename one of them"
        )
    selected = []
    for index, (name, kind) in enumerate(zip(own_names, kinds, strict=True)):
        value = pushdown.identifier(name)
        if plan.sources[index] == plan.schema.unit_column and kind is not Kind.NUMBER:
            value = f"CAST({value} AS VARCHAR)"
        elif kind is Kind.DECIMAL:
            value = pushdown.DUCKDB.number(value, kind)
        selected.append(f"{value} AS c{index}")
    relation = rows.relation.project(", ".join(selected))
    # The name before DuckDB 1.5 was fetch_record_batch.
    stream = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    reader = stream(batch_rows(plan))
    return sum_batches(plan, reader, column_readers(plan, reader.schema.types), progress)


def kind_of_type(duckdb_type: str) -> Kind:
    """Classify a type by DuckDB's name for it."""
    if duckdb_type.startswith(("date", "time", "interval")):
        return Kind.TIME
    return _KINDS.get(duckdb_type, Kind.OTHER)


def _checked(connection: Any, query: str, attested_by: str | None) -> tuple[str, Statement | None]:
    """The query to run, and what was read of it; as it is if somebody answers for it."""
    if attested_by is not None:
        return _single_select(connection, query), None
    statement = statements.read(query, lambda sql: list(connection.sql(sql).fetchall()))
    return statement.sql, statement


def _single_select(connection: Any, query: str) -> str:
    """The query without its final semicolon; a single SELECT, so that nothing is changed."""

    def statements(text: str) -> list[Any] | None:
        try:
            return [statement.type for statement in connection.extract_statements(text)]
        except (duckdb.Error, TypeError, UnicodeError):  # the latter for half characters
            return None

    select = [duckdb.StatementType.SELECT]
    if statements(query) != select:
        raise RequestError("query: expected a single SELECT statement")
    for end, character in enumerate(query):
        # A semicolon inside a text or a comment leaves something that cannot be parsed.
        if character == ";" and statements(query[:end]) == select and statements(query[end:]) == []:
            return query[:end]
    return query


@dataclass(frozen=True)
class _Entry:
    """A table or view of a catalogue."""

    path: tuple[str, str, str]  # catalog, schema and name
    concern: str  # what only a person can answer for, or nothing

    @property
    def sql(self) -> str:
        return ".".join(pushdown.identifier(part) for part in self.path)


def _entries(connection: Any) -> list[_Entry]:
    """All tables and views that aren't DuckDB's own."""
    columns = "internal, temporary, sql, database_name, schema_name"
    tables = f"SELECT false, {columns}, table_name FROM system.main.duckdb_tables()"
    views = f"SELECT true, {columns}, view_name FROM system.main.duckdb_views()"
    # Not by `execute`, which would take the place of a result that the owner is reading.
    rows = [*connection.sql(tables).fetchall(), *connection.sql(views).fetchall()]
    return [
        _Entry(tuple(path), _concern(is_view and not is_temporary, str(sql)))
        for is_view, is_internal, is_temporary, sql, *path in rows
        if not is_internal
    ]


def _concern(is_view: bool, sql: str) -> str:
    """Of a table that was made by this SQL. (The words may stand in a name or a default, too.)"""
    if is_view:
        return "table: it is a view, which may put one person into many rows"
    if "GENERATED ALWAYS" in sql.upper():
        return "table: it has generated columns, which may call macros when they are read"
    return ""


def _known_table(connection: Any, wanted: str | None) -> _Entry:
    """The file's table or view of this name, or the only one."""
    entries = [one for one in _entries(connection) if one.path[:2] == ("holder", "main")]
    if wanted is None:
        if len(entries) != 1:
            raise RequestError(
                "table: the database has not exactly one table; name one, or a query"
            )
        return entries[0]
    named = _named(entries, wanted)
    if not named:
        raise DataError("table: the database has no table or view of this name; check the name")
    return named[0]


def _visible_table(connection: Any, wanted: str) -> _Entry:
    """The table or view that a connection means by this name: a temporary one, or of its schema."""
    ((catalog, schema),) = connection.sql(
        "SELECT system.main.current_database(), system.main.current_schema()"
    ).fetchall()
    named = _named(_entries(connection), wanted)
    for place in (("temp", "main"), (catalog, schema)):
        for entry in named:
            if entry.path[:2] == place:
                return entry
    raise DataError(
        "table: the connection has no table or view of this name in its current schema; check the "
        "name, or register the object first"
    )


def _named(entries: list[_Entry], wanted: str) -> list[_Entry]:
    return [one for one in entries if one.path[2].casefold() == wanted.casefold()]
