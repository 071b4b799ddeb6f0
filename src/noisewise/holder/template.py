"""A schema to fill in: names and types of a file's columns, and nothing of their content."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from noisewise.core.errors import DataError, RequestError

_HEAD = """\
# What is public about this table. Fill in every bound and every list of levels from public
# knowledge (a law, a physical range, a code book), never from the data. Delete unused columns.
"""

# What a column is hardly called, but a cell may well hold: the first line is then somebody's row.
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[.]?"
_CELL = re.compile(
    r"[-+(]?\s*[$€£¥]?\s*[-+]?[\d.,'_ ]*\d[\d.,'_ ]*\s*[%$€£¥)]?"  # numbers, money, shares
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?|\d{4}[-/]\d{1,2}|\d{1,2}:\d{2}\b.*"
    rf"|\d{{1,2}}[. -]*{_MONTH}[ -]*(\d{{2,4}})?|{_MONTH}[ -]*\d{{1,2}}(,? *\d{{4}})?"
    r"|[^@\s]+@[^@\s]+[.][^@\s]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # e-mail, UUID
    r"|true|false|nan?|n/a|null|none|[-+]?inf(inity)?|",
    re.IGNORECASE,
)


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
        kinds = _duckdb_kinds(path, table)
        _check_names(path, [name for name, _ in kinds])
        return kinds
    import pyarrow as pa

    repeated = False
    try:
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            fields = list(pq.read_schema(path))
        elif suffix in (".csv", ".txt"):
            head = _csv_head(path)
            fields = list(head.schema)
            repeated = any(_holds_its_name(head, i) for i in range(len(fields)))
        else:
            raise RequestError(f"data: {path.name} is neither .csv, .parquet nor .duckdb")
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError):
        # The original message may quote rows.
        raise DataError(f"data: {path} cannot be read as a {suffix[1:]} file") from None
    _check_names(path, [field.name for field in fields], repeated)
    return [(field.name, _arrow_kind(field.type)) for field in fields]


def _check_names(path: Path, names: Sequence[str], repeated: bool = False) -> None:
    """Refuse names that look like somebody's row; the message does not show them."""
    stripped = [name.strip() for name in names]
    looks_like_cells = any(_CELL.fullmatch(name) or _is_number(name) for name in stripped)
    if not (looks_like_cells or repeated or len(set(stripped)) < len(stripped)):
        return
    raise DataError(
        f"data: {path.name} seems to have no header: some of its column names are empty, given "
        "twice, numbers, dates, or values of their own column, so they may be the first person's. "
        "Nothing was written. Put a line with the names of the columns before the first row, such "
        "as age,region,income; a column that is really called 2020 needs a name like y2020"
    )


def _holds_its_name(table: Any, index: int) -> bool:
    """Whether the name of a text column is one of its values, as it is without a header."""
    column, name = table.column(index), table.schema.field(index).name
    return _arrow_kind(column.type) == "category" and name in column.to_pylist()


def _is_number(text: str) -> bool:
    try:
        float(text)  # more generous than the pattern: other alphabets have digits too
    except ValueError:
        return False
    return True


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
    from noisewise.core.yaml_files import parse_yaml

    try:
        plain = parse_yaml(f"{name}: 1") == {name: 1} and parse_yaml(name) == name
    except Exception:
        plain = False
    if plain:
        return name
    return yaml.dump(name, default_style='"', allow_unicode=True, width=10_000).strip()
