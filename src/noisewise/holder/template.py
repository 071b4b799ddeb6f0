"""A schema to fill in: names and types of a file's columns, and nothing of their content."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import yaml

from noisewise.core.errors import DataError, RequestError

_HEAD = """\
# What is public about this table. Fill in every bound and every list of levels from public
# knowledge (a law, a physical range, a code book), never from the data. Delete unused columns.
"""


def schema_template(path: Path, dataset: str, *, table: str | None = None) -> str:
    """YAML text with one line a column; bounds and levels are left empty."""
    lines = [_HEAD, f"dataset: {_quoted(dataset)}", "columns:"]
    for name, kind in column_kinds(path, table=table):
        key = _quoted(name)
        if kind == "number":
            lines.append(f"  {key}: {{type: number, lower: , upper: }}")
        elif kind == "category":
            lines.append(f"  {key}: {{type: category, levels: [], reference: }}")
        else:
            lines.append(f"  # {key}: dates and other types are not supported; derive a number")
    lines += [
        "neighbours: replace_one        # or add_remove_one: then the number of rows is private",
        "max_rows_per_unit: 1           # how many rows one person may own",
        "missing: error                 # or public fill values, such as {age: 40}",
        "# A number without known bounds, for block summaries: {type: number, unbounded: true}",
    ]
    return "\n".join(lines) + "\n"


def column_kinds(path: Path, *, table: str | None = None) -> list[tuple[str, str]]:
    """Column names with 'number', 'category' or 'other', in the file's order."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise DataError(f"data: there is no file {path}; check the path")
    if suffix in (".duckdb", ".db"):
        return _duckdb_kinds(path, table)
    import pyarrow as pa

    try:
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            fields = list(pq.read_schema(path))
        elif suffix in (".csv", ".txt"):
            fields = list(_csv_head(path).schema)
        else:
            raise RequestError(f"data: {path.name} is neither .csv, .parquet nor .duckdb")
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError):
        # The original message may quote rows.
        raise DataError(f"data: {path} cannot be read as a {suffix[1:]} file") from None
    return [(field.name, _arrow_kind(field.type)) for field in fields]


def _csv_head(path: Path) -> Any:
    """The header and some hundred rows, enough to tell numbers from text."""
    import pyarrow.csv as pa_csv

    with path.open("rb") as file:
        head = b"".join(file.readline(1_000_000) for _ in range(500))
    # One thread: there is nothing to gain, and none is left running when the process ends.
    options = pa_csv.ReadOptions(use_threads=False)
    return pa_csv.read_csv(io.BytesIO(head), read_options=options)


def _arrow_kind(kind: Any) -> str:
    import pyarrow.types as t

    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_null(kind):
        return "number"
    if t.is_dictionary(kind) or t.is_boolean(kind):
        return "category"
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return "category"
    return "other"


def _duckdb_kinds(path: Path, table: str | None) -> list[tuple[str, str]]:
    if table is None:
        raise RequestError("table: name the table of the DuckDB file with --table")
    import duckdb

    quoted = '"' + table.replace('"', '""') + '"'
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            rows = connection.execute(f"DESCRIBE {quoted}").fetchall()
    except duckdb.Error:
        raise DataError(f"data: {path} has no readable table {table!r}") from None
    numeric = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "REAL")
    kinds = []
    for name, kind, *_ in rows:
        if any(word in kind for word in numeric) and "[" not in kind:
            kinds.append((name, "number"))
        else:
            text = kind in ("VARCHAR", "BOOLEAN") or kind.startswith("ENUM")
            kinds.append((name, "category" if text else "other"))
    return kinds


def _quoted(name: str) -> str:
    """The name as YAML, quoted where it must be."""
    from noisewise.core.plain_yaml import parse_yaml

    try:
        plain = parse_yaml(f"{name}: 1") == {name: 1} and parse_yaml(name) == name
    except Exception:
        plain = False
    if plain:
        return name
    return yaml.dump(name, default_style='"', allow_unicode=True, width=10_000).strip()
