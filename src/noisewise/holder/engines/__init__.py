"""Engines: from a table, wherever it is, to exact integer sums. All of them give the same ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast, get_args

from noisewise.core.errors import RequestError
from noisewise.holder.engines.base import Source

__all__ = ["Engine", "Source", "is_server", "open_source", "start_spark_session", "where_rows_are"]

Engine = Literal["auto", "memory", "stream", "duckdb", "postgres", "spark"]

_ACCEPTED = (
    "a path to a .parquet, .csv, .duckdb or .db file, the address of a PostgreSQL server "
    "(postgresql://...), a table or path of Spark (spark:...), a data frame (pandas, Polars, "
    "Arrow, Spark), a dict of arrays, a NumPy structured array, a DuckDB connection or relation, "
    "or a psycopg connection"
)
_FILES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".duckdb": "db", ".db": "db"}
_NO_TABLES = "table, query: only databases and connections have tables"


def open_source(
    data: Any,
    *,
    engine: Engine | str = "auto",
    table: str | None = None,
    query: str | None = None,
    query_attested_by: str | None = None,
) -> Source:
    """Find the engine for a table. Reads no rows.

    A path ends in .parquet, .csv, .duckdb or .db; the address of a PostgreSQL server begins with
    postgresql://; a table or path that Spark reads begins with spark:. Connections are DuckDB's or
    psycopg's, relations DuckDB's, data frames also Spark's. From a database `table` names a table
    or view, and `query` is a single SELECT; a file with only one table needs neither. Each row of
    a query's result must depend on the rows of one unit alone (`engines.statements`), unless
    somebody answers for it by name (`query_attested_by`).

    ``auto`` streams Parquet and CSV files through Arrow and NumPy, which is faster than DuckDB and
    keeps memory constant (`benchmarks/release.py` measures both); it leaves databases and Spark to
    themselves, and sums data frames in memory. ``stream`` reads the rows of a PostgreSQL server in
    place of summing them there.
    """
    if engine not in get_args(Engine):
        raise RequestError(
            f"engine: {engine!r} is not an engine; use one of {', '.join(get_args(Engine))}"
        )
    if table is not None and query is not None:
        raise RequestError("table, query: give one of them, not both")
    named = query is not None or table is not None or is_server(data)
    if query_attested_by is not None and not named:
        raise RequestError("query_attested_by: there is no query or table to answer for")
    if query_attested_by is not None and not query_attested_by.strip():
        raise RequestError("query_attested_by: it is empty; give the name of who answers for it")
    if type(data).__module__.partition(".")[0] == "narwhals":
        data = data.to_native()  # it has an engine of its own, perhaps
    if _is_spark(data):
        _only(engine, ("auto", "spark"), "a table of Spark")
        if table is not None or query is not None:
            raise RequestError(
                "table, query: the name of Spark's table comes after spark:; give a query a name "
                "by CREATE VIEW, or give its frame from Python"
            )
        return _open_spark(data, query_attested_by)
    if is_server(data) or _is_psycopg(data):
        _only(engine, ("auto", "postgres", "stream"), "a PostgreSQL server")
        return _open_server(data, table, query, query_attested_by, stream=engine == "stream")
    if isinstance(data, str | PathLike):
        return _open_file(Path(data), cast("Engine", engine), table, query, query_attested_by)
    if _is_duckdb(data, "DuckDBPyConnection"):
        _only(engine, ("auto", "duckdb"), "a DuckDB connection")
        if table is None and query is None:
            raise RequestError("table: name the table or view of the connection, or give a query")
        from noisewise.holder.engines.duckdb import LentSource

        return LentSource(data, table=table, query=query, attested_by=query_attested_by)
    if table is not None or query is not None:
        raise RequestError(_NO_TABLES)
    if _is_duckdb(data, "DuckDBPyRelation"):
        _only(engine, ("auto", "duckdb"), "a DuckDB relation")
        from noisewise.holder.engines.duckdb import LentSource

        return LentSource(data)
    from noisewise.holder.engines.frame import FrameSource, is_frame

    if not is_frame(data):
        raise RequestError(f"data: cannot read a {type(data).__name__}; give {_ACCEPTED}")
    _only(engine, ("auto", "memory", "duckdb"), "a table in memory")
    return _in_duckdb(FrameSource(data)) if engine == "duckdb" else FrameSource(data)


def is_server(data: Any) -> bool:
    """Whether `data` is the address of a server, and no path here. It may hold a password."""
    known = ("postgresql://", "postgres://", "spark:")
    return isinstance(data, str) and data.casefold().startswith(known)


def _is_spark(data: Any) -> bool:
    """Whether `data` is a frame of Spark, or a text that begins with spark:."""
    if isinstance(data, str):
        return data.startswith("spark:")
    bases = [(base.__name__, base.__module__.split(".")[:2]) for base in type(data).__mro__]
    return ("DataFrame", ["pyspark", "sql"]) in bases


def _open_spark(data: Any, attested_by: str | None) -> Source:
    _check_pyspark()
    from noisewise.holder.engines.spark import SparkSource

    return SparkSource(data, attested_by=attested_by)


def start_spark_session(settings: Mapping[str, str]) -> None:
    """Start Spark with these settings, for data that begin with spark:."""
    _check_pyspark()
    from noisewise.holder.engines.spark import start_session

    start_session(settings)


def _check_pyspark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise RequestError(
            "data: Spark needs pyspark; install it by pip install 'noisewise[spark]'"
        ) from None


def _open_server(
    data: Any, table: str | None, query: str | None, attested_by: str | None, *, stream: bool
) -> Source:
    if table is None and query is None:
        raise RequestError("table: name the table or view of the server, or give a query")
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise RequestError(
            "data: PostgreSQL needs psycopg; install it by pip install 'noisewise[postgres]'"
        ) from None
    from noisewise.holder.engines.postgres import PostgresSource

    return PostgresSource(data, table=table, query=query, attested_by=attested_by, stream=stream)


def _is_psycopg(data: Any) -> bool:
    """Whether `data` is an open connection of psycopg 3, without importing that."""
    bases = [(base.__name__, base.__module__.partition(".")[0]) for base in type(data).__mro__]
    return ("Connection", "psycopg") in bases


def _open_file(
    path: Path, engine: Engine, table: str | None, query: str | None, attested_by: str | None
) -> Source:
    kind = _FILES.get(path.suffix.lower())
    if kind is None:
        # It may be meant as an address, with a password in it.
        name = "this" if set("@=:") & set(str(path)) else path.name
        raise RequestError(f"data: {name} is of no known kind of file; give {_ACCEPTED}")
    if not path.is_file():
        raise RequestError(f"data: there is no file {path}; check the path")
    if kind == "db":
        _only(engine, ("auto", "duckdb"), "a DuckDB database")
        from noisewise.holder.engines.duckdb import DatabaseSource

        return DatabaseSource(path, table=table, query=query, attested_by=attested_by)
    if table is not None or query is not None:
        raise RequestError(_NO_TABLES)
    _only(engine, ("auto", "stream", "duckdb"), f"a {path.suffix} file")
    from noisewise.holder.engines.files import CsvSource, ParquetSource

    if kind == "csv":
        return _in_duckdb(CsvSource(path)) if engine == "duckdb" else CsvSource(path)
    if engine == "duckdb":
        from noisewise.holder.engines.duckdb import ParquetInDuckDB

        return ParquetInDuckDB(path)
    return ParquetSource(path)


def _in_duckdb(source: Any) -> Source:
    from noisewise.holder.engines.duckdb import ArrowInDuckDB

    return ArrowInDuckDB(source)


def _is_duckdb(data: Any, kind: str) -> bool:
    """Whether `data` is one of DuckDB's; without importing it for data that is not."""
    return type(data).__name__ == kind and "duckdb" in type(data).__module__


def _only(engine: str, engines: tuple[str, ...], what: str) -> None:
    if engine not in engines:
        raise RequestError(f"engine: {what} is read by {' or '.join(engines)}, not by {engine!r}")


# --- which rows a charge was made for -------------------------------------------------------------


def where_rows_are(
    data: Any, *, table: str | None = None, query: str | None = None
) -> dict[str, Any]:
    """Describe a source for the ledger: where it is, and of a file its size and when it changed.

    Nothing is opened. Users and passwords of addresses are left out. Tables in memory have no name,
    and neither have connections to DuckDB: any of them is described like any other.
    """
    found: dict[str, Any] = {"data": _place(data), "table": table, "query": query}
    if isinstance(data, str | PathLike) and not is_server(data):
        with suppress(OSError):
            status = os.stat(data)
            changed = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
            found |= {"bytes": status.st_size, "changed": changed}
    return {key: value for key, value in found.items() if value is not None}


def _place(data: Any) -> str:
    if isinstance(data, str) and data.startswith("spark:"):
        return "spark:" + data.removeprefix("spark:").rpartition("@")[2]
    if is_server(data):
        return _server(data)
    if isinstance(data, str | PathLike):
        return os.path.realpath(data)
    if _is_psycopg(data):
        return _server(data.info.dsn)
    if _is_duckdb(data, "DuckDBPyConnection") or _is_duckdb(data, "DuckDBPyRelation"):
        return "a DuckDB connection"
    return "a frame of Spark" if _is_spark(data) else "a table in memory"


def _server(address: str) -> str:
    """Host, port and database. All else may be a secret, or changes nothing about the rows."""
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return "a PostgreSQL server"
    try:
        parts = conninfo_to_dict(address)
    except Error:
        return "a PostgreSQL server"
    names = ("service", "host", "hostaddr", "port", "dbname")
    shown = [f"{name}={parts[name]}" for name in names if parts.get(name)]
    return " ".join(["PostgreSQL", *shown])
