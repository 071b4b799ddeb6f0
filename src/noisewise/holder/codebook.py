"""What a code book declares of columns: valid ranges, levels, labels and units.

Three kinds of files are read: YAML, CSV, and the XML of DDI Codebook (2.x). Only what is declared
counts. DDI has observed minima and maxima too (`sumStat`), which are somebody's values, and some
programs copy them into the valid range: a range that equals them is left out, and so is a category
without a label, which may be nothing but a value that was seen.

A code book comes from elsewhere. XML is read without entities, and nothing is fetched.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from noisewise.core.errors import RequestError
from noisewise.core.schema import level_text
from noisewise.core.yaml_files import PlainYamlError, parse_yaml

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
