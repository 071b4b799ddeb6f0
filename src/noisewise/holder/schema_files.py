"""A file and its schema: one to fill in, maybe from a code book, and whether the file fits it.

The schema to fill in has names and types of the file's columns, and nothing of their content. The
check is the private rehearsal of a release: it publishes and spends nothing.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

import yaml

from noisewise.core.errors import DataError, RequestError
from noisewise.core.schema import MAX_LABEL, Schema, level_text
from noisewise.core.yaml_files import PlainYamlError, parse_yaml
from noisewise.holder.engines import is_server, open_source
from noisewise.holder.engines.base import Kind
from noisewise.holder.publish import with_total
from noisewise.holder.rows.rehearsal import ReadAll

_HEAD = """\
# What is public about this table. Fill in every bound and every list of levels from public
# knowledge (a law, a physical range, a code book), never from the data. Delete unused columns.
"""

_FROM_CODEBOOK = """\
# What is filled in is from the code book. Make sure that its ranges and levels are valid ones by
# declaration, and not what was observed.
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
_INDEX = re.compile(r"__index_level_\d+__")


def schema_template(
    data: str | Path,
    dataset: str,
    *,
    table: str | None = None,
    unit: str | None = None,
    codebook: Mapping[str, Entry] | None = None,
) -> str:
    """YAML text with one line a column; bounds and levels are left empty.

    `unit` names the column with people's ids, if there is one. What a code book declares
    (`read_codebook`) is filled in.
    """
    lines = [_HEAD, f"dataset: {_quoted(dataset)}", "columns:"]
    if codebook is not None:
        lines.insert(1, _FROM_CODEBOOK)
    kinds = column_kinds(data, table=table)
    if unit is not None and unit not in [name for name, _ in kinds]:
        raise DataError(f"unit: there is no column {unit!r}; name the column with people's ids")
    for name, kind in kinds:
        if name == unit:
            continue
        key = _quoted(name)
        if kind in ("number", "category"):
            lines.append(f"  {key}: {{{_declaration(kind, entry_of(codebook or {}, name))}}}")
        else:
            lines.append(f"  # {key}: dates and other types are not supported; derive a number")
    lines += [
        "neighbours: replace_one        # or add_remove_one: then the number of rows is private",
        "max_rows_per_unit: 1           # how many rows one person may own. With ids, instead:\n"
        "# unit: {column: person_id}    # a person's rows are averaged, however many"
        if unit is None
        else f"unit: {{column: {_quoted(unit)}}}  # whose row it is; a person's rows are averaged",
        "missing: error                 # or public fill values, such as {age: 40}",
        "# A number without known bounds, for block summaries: {type: number, unbounded: true}",
    ]
    return "\n".join(lines) + "\n"


def _declaration(kind: str, entry: Entry | None) -> str:
    """What stands between the braces of a column, as far as a code book tells it."""
    entry = entry or Entry()
    words = [
        f"{key}: {_quoted(text[:MAX_LABEL], inside=True)}"
        for key, text in (("label", entry.label), ("unit_of_measure", entry.unit_of_measure))
        if text.isprintable() and text
    ]
    if kind == "category" or len(entry.levels) > 1:
        levels = ", ".join(_quoted(level, inside=True) for level in entry.levels)
        first = _quoted(entry.reference or entry.levels[0], inside=True) if entry.levels else ""
        told = ["type: category", f"levels: [{levels}]", f"reference: {first}"]
    else:
        bounds = {"lower": entry.lower, "upper": entry.upper}
        shown = {key: "" if end is None else f"{end:.17g}" for key, end in bounds.items()}
        told = ["type: number", *(f"{key}: {end}" for key, end in shown.items())]
    return ", ".join([*told, *words])


def column_kinds(data: str | Path, *, table: str | None = None) -> list[tuple[str, str]]:
    """Column names with 'number', 'category' or 'other', in the table's order."""
    path = Path(data)
    suffix = path.suffix.lower()
    if not is_server(data) and not path.is_file():
        raise DataError(f"data: there is no file {path}; check the path")
    if is_server(data) or suffix in (".duckdb", ".db"):
        source: Any = open_source(data, table=table)
        kinds = [(name, _declared_as(kind)) for name, kind in source.column_kinds()]
        if not is_server(data):  # names in a server's catalogue are nobody's row
            _check_names(path, [name for name, _ in kinds])
        return kinds
    import pyarrow as pa

    repeated = False
    try:
        if suffix in (".parquet", ".pq"):
            import pyarrow.parquet as pq

            # pandas writes its index as a column, under a name that nobody gave it.
            fields = [f for f in pq.read_schema(path) if not _INDEX.fullmatch(f.name)]
        elif suffix in (".csv", ".txt"):
            head = _csv_head(path)
            fields = list(head.schema)
            # The name of a text column is one of its values if there is no header.
            repeated = any(
                _arrow_kind(field.type) == "category" and field.name in head.column(i).to_pylist()
                for i, field in enumerate(fields)
            )
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

    from noisewise.holder.engines.batches import kind_of

    return "category" if t.is_dictionary(kind) else _declared_as(kind_of(kind))


def _declared_as(kind: Kind) -> str:
    if kind.numeric or kind is Kind.NOTHING:
        return "number"
    return "category" if kind in (Kind.TEXT, Kind.TRUTH) else "other"


def _quoted(name: str, *, inside: bool = False) -> str:
    """The name as YAML, quoted where it must be; also for the inside of braces and brackets."""
    try:
        plain = parse_yaml(f"{name}: 1") == {name: 1} and parse_yaml(name) == name
        plain = plain and not (inside and parse_yaml(f"[{name}]") != [name])
    except Exception:
        plain = False
    if plain:
        return name
    return yaml.dump(name, default_style='"', allow_unicode=True, width=10_000).strip()


# --- does a file fit its schema? ------------------------------------------------------------------


def check_data(
    schema: Schema,
    data: str | Path,
    *,
    engine: str = "auto",
    table: str | None = None,
    query: str | None = None,
    query_attested_by: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> int:
    """Read every declared column once, as a release would, and discard what was read.

    Returns the number of rows, or of people where the schema names a unit column, for the holder
    only. A DataError names a column that is absent, of the wrong type, or has missing values or
    undeclared levels and no fill value, and says nothing about its rows; there is one for no rows,
    too, where their number is public.
    """
    read = {"table": table, "query": query, "query_attested_by": query_attested_by}
    source = open_source(data, engine=engine, **read)
    names = source.column_names()
    for name in ReadAll(schema).sources:
        if name not in names:
            raise DataError(
                f"data: there is no column {name!r}; delete it from the schema, or rename it"
            )
    source.check(ReadAll(schema))
    n = source.sums(ReadAll(schema), with_total(source, progress))
    if n == 0 and schema.n_is_public:
        raise DataError("data: there are no rows")
    return n


def merged_ids(
    schema: Schema,
    data: str | Path,
    people: int,
    *,
    engine: str = "auto",
    table: str | None = None,
    query: str | None = None,
    query_attested_by: str | None = None,
) -> dict[str, int]:
    """How many ids another rule would make one with another id, for the holder only.

    A person who is spelled in two ways counts twice, and is protected half as well. `people` is
    what `check_data` returns. Returns numbers above 0 by what would have to be written into the
    schema's `unit`; nothing where no rule would merge any. They are exact, and as private as rows.
    """

    def merged_by(**rule: Any) -> int | None:
        source = open_source(
            data, engine=engine, table=table, query=query, query_attested_by=query_attested_by
        )
        try:
            return people - source.sums(ReadAll(replace(schema, **rule), ids_only=True))
        except DataError:  # an id that is blank, and with this rule missing: it can't be used
            return None

    rules: dict[str, dict[str, Any]] = {}
    if schema.unit_type == "text":
        rules["type: integer"] = {"unit_type": "integer"}
    if not schema.unit_fold:
        rules["fold: true"] = {"unit_fold": True}
    if not rules or (together := merged_by(unit_type="integer", unit_fold=True)) == 0:
        return {}
    found = {words: merged_by(**rule) for words, rule in rules.items()} if len(rules) > 1 else {}
    found[" and ".join(rules)] = together
    return {words: count for words, count in found.items() if count}


# --- what a code book declares of columns: valid ranges, levels, labels and units -----------------
#
# Three kinds of files are read: YAML, CSV, and the XML of DDI Codebook (2.x). Only what is declared
# counts. DDI has observed minima and maxima too (`sumStat`), which are somebody's values, and some
# programs copy them into the valid range: a range that equals them is left out, and so is a
# category without a label, which may be nothing but a value that was seen.
#
# A code book comes from elsewhere. XML is read without entities, and nothing is fetched.

MAX_BYTES = 50_000_000
MAX_DEPTH = 100  # of XML elements
CSV_COLUMNS = ("name", "min", "max", "levels", "reference", "label", "unit_of_measure")
_OTHER_NAMES = {"lower": "min", "upper": "max"}  # as a schema calls them


@dataclass(frozen=True)
class Entry:
    """What a code book declares of one column; what it leaves out is None or empty."""

    # Ends of the declared valid range
    lower: float | None = None
    upper: float | None = None
    levels: tuple[str, ...] = ()
    reference: str = ""  # one of the levels, or empty
    label: str = ""
    unit_of_measure: str = ""


def read_codebook(path: Path) -> dict[str, Entry]:
    """The declarations of a code book, by the name of the column; its ending says what it is."""
    readers = {".yaml": _from_yaml, ".yml": _from_yaml, ".csv": _from_csv, ".xml": _from_ddi}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        _fail(path, "ends in none of .yaml, .csv and .xml (DDI)")
    try:
        if path.stat().st_size > MAX_BYTES:
            _fail(path, f"is larger than {MAX_BYTES:,} bytes")
        data = path.read_bytes()
        return reader(data)
    except OSError as error:
        _fail(path, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        _fail(path, "is not UTF-8 text")
    except (_CodebookError, PlainYamlError) as error:
        _fail(path, str(error))


class _CodebookError(Exception):
    """What is wrong with a code book."""


def _fail(path: Path, reason: str) -> NoReturn:
    raise RequestError(f"codebook: {path} {reason}")


def entry_of(book: Mapping[str, Entry], name: str) -> Entry | None:
    """The entry of a column: by its name, or by the only one that differs in case alone."""
    if name in book:
        return book[name]
    alike = [entry for known, entry in book.items() if known.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


# --- YAML and CSV ------------------------------------------------------------------------------


def _from_yaml(data: bytes) -> dict[str, Entry]:
    """A mapping from names to declarations, or one that has it under `columns`."""
    found = parse_yaml(data.decode("utf-8"))
    if isinstance(found, Mapping) and isinstance(found.get("columns"), Mapping):
        found = found["columns"]
    if not isinstance(found, Mapping) or not all(isinstance(v, Mapping) for v in found.values()):
        raise _CodebookError(
            "has no declarations; write lines such as 'age: {min: 18, max: 90, label: Age}'"
        )
    return {str(name): _entry(str(name), given) for name, given in found.items()}


def _from_csv(data: bytes) -> dict[str, Entry]:
    """One line a column; levels are separated by | or, without any of these, by semicolons."""
    try:
        lines = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig")), strict=True))
    except csv.Error as error:
        raise _CodebookError(f"is not a CSV file: {error}") from None
    if not lines or "name" not in lines[0]:
        raise _CodebookError(f"needs a first line with columns of {', '.join(CSV_COLUMNS)}")
    book: dict[str, Entry] = {}
    for line in lines:
        name = (line["name"] or "").strip()
        given: dict[str, Any] = {
            key: value.strip()
            for key, value in line.items()
            if key in CSV_COLUMNS[1:] and isinstance(value, str) and value.strip()
        }
        if "levels" in given:
            mark = "|" if "|" in given["levels"] else ";"
            given["levels"] = [level.strip() for level in given["levels"].split(mark)]
        if not name or name in book:
            raise _CodebookError(f"has an empty name, or a name twice: {name[:60]!r}")
        book[name] = _entry(name, given)
    return book


def _entry(name: str, given: Mapping[Any, Any]) -> Entry:
    known = {_OTHER_NAMES.get(key, key): value for key, value in given.items() if value is not None}
    levels = known.get("levels", [])
    texts = [level_text(level) for level in levels] if isinstance(levels, list) else [None]
    if not all(texts):
        raise _CodebookError(f"has levels of {name[:60]!r} that are no list of short texts")
    reference = level_text(known.get("reference", ""))
    return Entry(
        lower=_number(name, known.get("min")),
        upper=_number(name, known.get("max")),
        levels=tuple(str(text) for text in texts),
        reference=reference or "",
        label=_line(known.get("label", "")),
        unit_of_measure=_line(known.get("unit_of_measure", "")),
    )


def _number(name: str, given: Any) -> float | None:
    if given is None:
        return None
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        raise _CodebookError(f"has a bound of {name[:60]!r} that is no number") from None


def _line(given: Any) -> str:
    """Words on one line."""
    return " ".join(str(given).split())


# --- DDI ---------------------------------------------------------------------------------------


def _from_ddi(data: bytes) -> dict[str, Entry]:
    root = _parse_xml(data)
    if root.tag != "codeBook":
        raise _CodebookError(
            f"is XML of another kind ({root.tag[:40]!r}); DDI Codebook 2.x begins with <codeBook>"
        )
    book: dict[str, Entry] = {}
    for variable in root.iter("var"):
        name = variable.get("name", "").strip()
        if not name or name in book:
            raise _CodebookError(f"has a variable without a name, or a name twice: {name[:60]!r}")
        book[name] = _variable(name, variable)
    return book


def _variable(name: str, variable: ElementTree.Element) -> Entry:
    lower, upper = _valid_range(name, variable)
    levels, unlabelled = [], False
    for category in variable.iterfind("catgry"):
        value, label = category.findtext("catValu", "").strip(), category.findtext("labl", "")
        if category.get("missing", "N").upper() == "Y" or not value:
            continue
        unlabelled |= not label.strip()
        levels.append(value)
    whole = lower is None or upper is None or len(levels) >= upper - lower + 1
    return Entry(
        lower,
        upper,
        tuple(dict.fromkeys(levels)) if len(levels) > 1 and whole and not unlabelled else (),
        label=_line(variable.findtext("labl", "")),
        unit_of_measure=_line(variable.get("measUnit", "")),
    )


def _valid_range(name: str, variable: ElementTree.Element) -> tuple[float | None, float | None]:
    """The declared ends, unless they are the observed ones."""
    ranges = list(variable.iterfind("valrng/range"))
    if len(ranges) != 1:
        return None, None
    ends = [
        _number(name, ranges[0].get(key) or ranges[0].get(f"{key}Exclusive"))
        for key in ("min", "max")
    ]
    observed = {
        statistic.get("type"): _line(statistic.text or "")
        for statistic in variable.iterfind("sumStat")
    }
    for place, key in enumerate(("min", "max")):
        if ends[place] is not None and observed.get(key):
            seen = _number(name, observed[key])
            if seen == ends[place]:
                ends[place] = None
    return ends[0], ends[1]


def _parse_xml(data: bytes) -> ElementTree.Element:
    """An element tree without namespaces; entities are refused and nothing is fetched."""
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate(namespace_separator=" ")
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise _CodebookError("is nested too deeply")
        builder.start(name.rpartition(" ")[2], attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name.rpartition(" ")[2])

    def refuse(*_: Any) -> NoReturn:
        raise _CodebookError("declares or uses XML entities; save it without them")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(data, True)
        return builder.close()
    except expat.ExpatError as error:
        raise _CodebookError(f"is not well-formed XML: {error}") from None
