"""What the public knows about a table: columns with bounds or levels, and who is protected.

Everything in a Schema is public by declaration. Bounds and levels are never read from the data:
a bound that is the data's own maximum *is* somebody's value. So an error may quote what was given.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from noisewise.core.errors import SchemaError

Neighbours = Literal["replace_one", "add_remove_one"]
NEIGHBOUR_RELATIONS: tuple[Neighbours, ...] = ("replace_one", "add_remove_one")

MAX_COLUMNS = 2_000
MAX_LEVELS = 1_000
MAX_NAME = 200
MAX_LABEL = 120  # characters of a label or a unit of measure
MAX_ROWS_PER_UNIT = 1_000_000
_ALL_ROWS = "all rows"  # by a column of ids, in `Schema.unit`
ID_TYPES = ("text", "integer")
# Half-widths of bounds. A float64 holds the square of any ratio of two of them, which variances of
# coefficients need, with room for what is computed on the way.
_NARROWEST, _WIDEST = 1e-60, 1e60
_MOST_SAID = 20  # faults that one error lists

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Number:
    """A numeric column with public bounds; values outside are clipped to them."""

    lower: float
    upper: float

    @property
    def centre(self) -> float:
        """Midpoint of the bounds (halved before adding, so that it cannot overflow)."""
        return self.lower / 2 + self.upper / 2

    @property
    def half_width(self) -> float:
        """Half the distance between the bounds."""
        return self.upper / 2 - self.lower / 2


@dataclass(frozen=True)
class Unbounded:
    """A numeric column without known bounds, for summaries that need none (block summaries).

    Numbers have to be written down in some way, so values beyond 2**30 units (a thousand million)
    count as that. The unit is public: the order of magnitude that the column is measured in.
    """

    unit: float = 1.0

    @property
    def centre(self) -> float:
        """Zero, as for a column with symmetric bounds."""
        return 0.0

    @property
    def half_width(self) -> float:
        """Where values saturate."""
        return 2.0**30 * self.unit


@dataclass(frozen=True)
class Category:
    """A categorical column with public levels; the reference level gets no indicator."""

    levels: tuple[str, ...]
    reference: str

    @property
    def indicated(self) -> tuple[str, ...]:
        """The levels that get an indicator column, in declared order."""
        return tuple(level for level in self.levels if level != self.reference)


Column = Number | Category | Unbounded
_WORDS = ("label", "unit_of_measure")  # the fields of `Words`, in order


@dataclass(frozen=True)
class Words:
    """What people call a column, and what it is measured in; either may be empty.

    They are for reports, pictures and tables. Two declarations that differ in words alone are the
    same declaration, so columns themselves don't have them.
    """

    label: str = ""
    unit_of_measure: str = ""

    def to_dict(self) -> dict[str, str]:
        """What is given of it, as it stands beside the bounds or levels."""
        return {key: text for key, text in vars(self).items() if text}


def level_text(value: Any) -> str | None:
    """The text by which a level is known, or None if `value` cannot be a level.

    Numbers and truth values may be levels too; 1 and "1" are the same level.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    return None


@dataclass(frozen=True)
class Schema:
    """The public description of one data set.

    Parameters
    ----------
    dataset : str
        The name under which the ledger keeps this data set's budget.
    columns : mapping of str to Number, Category or Unbounded
    neighbours : {"replace_one", "add_remove_one"}
        What one unit may change. Under ``replace_one`` the number of rows is public and up to
        ``max_rows_per_unit`` rows may take any other value; under ``add_remove_one`` up to that
        many rows may appear or disappear, and the number of rows itself is private.
    max_rows_per_unit : int
        How many rows one person (or household, or firm) may own. A promise of the holder's: the
        sensitivity is multiplied by it.
    fill : mapping of str to float or str
        Public constants that stand in for missing values. A missing value in a column without one
        is an error; rows are never dropped, because who is dropped depends on the data.
    unit_column : str or None
        The column that says whose row it is. The rows of one unit are then averaged into one
        (`holder.rows.units`), whoever has however many: a unit is all rows with one id, and every
        "row" of a Release, the n among them, is a unit. The ids themselves are never published.
    words : mapping of str to Words
        What people call the columns, where that is declared.
    unit_type : {"text", "integer"}
        With "integer", ids in text that are spellings of one whole number are one id.
    unit_fold : bool
        Whether ids in text that differ in letter case, in blanks at their ends or in the form of
        their Unicode alone are one id. `holder.rows.units` has both rules.
    """

    dataset: str
    columns: Mapping[str, Column]
    neighbours: Neighbours = "replace_one"
    max_rows_per_unit: int = 1
    fill: Mapping[str, float | str] = field(default_factory=dict)
    unit_column: str | None = None
    words: Mapping[str, Words] = field(default_factory=dict)
    unit_type: Literal["text", "integer"] = "text"
    unit_fold: bool = False

    def __post_init__(self) -> None:
        """Re-validate through the one parser, so that Python and YAML obey the same rules."""
        checked = parse_schema(self.to_dict())
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, document: Any) -> Schema:
        """Build from the plain structure that YAML and JSON share."""
        return cls(**parse_schema(document))

    def to_dict(self) -> dict[str, Any]:
        """The plain structure that `from_dict` reads; key order is for human eyes."""
        columns: dict[str, Any] = {}
        if not isinstance(self.columns, Mapping):
            raise SchemaError("columns: expected a mapping from column names to declarations")
        for name, column in self.columns.items():
            if isinstance(column, Number):
                columns[name] = {"type": "number", "lower": column.lower, "upper": column.upper}
            elif isinstance(column, Unbounded):
                columns[name] = {"type": "number", "unbounded": True, "unit": column.unit}
            elif isinstance(column, Category):
                columns[name] = {
                    "type": "category",
                    "levels": list(column.levels),
                    "reference": column.reference,
                }
            else:
                columns[name] = column
        for name, words in self.words.items():
            if name not in columns or not isinstance(words, Words):
                raise SchemaError(f"words: {_shown(name)} is not a declared column with its Words")
            columns[name] = {**columns[name], **words.to_dict()}
        unit: dict[str, Any] = {"column": self.unit_column}
        unit |= {} if self.unit_type == "text" else {"type": self.unit_type}
        unit |= {} if self.unit_fold is False else {"fold": self.unit_fold}
        return {
            "dataset": self.dataset,
            "columns": columns,
            "neighbours": self.neighbours,
            "max_rows_per_unit": self.max_rows_per_unit,
            "missing": dict(self.fill) if self.fill else "error",
            # Only where given, so that requests from before it existed keep their identity.
            **({"unit": unit} if unit != {"column": None} else {}),
        }

    def restricted_to(self, names: tuple[str, ...]) -> Schema:
        """The same schema with only these columns: what a Release needs to carry."""
        return replace(
            self,
            columns={name: self.columns[name] for name in names},
            fill={name: self.fill[name] for name in names if name in self.fill},
            words={name: self.words[name] for name in names if name in self.words},
        )

    def to_identity(self) -> dict[str, Any]:
        """`to_dict` without words: what decides whether two requests are the same.

        Whoever mends a label must not pay for the same Release again.
        """
        return replace(self, words={}).to_dict()

    def label(self, name: str) -> str:
        """What people call a column; its name, unless a label is declared."""
        return self.words.get(name, Words()).label or name

    def unit_of_measure(self, name: str) -> str:
        """What a column is measured in; empty if that is not declared."""
        return self.words.get(name, Words()).unit_of_measure

    @property
    def n_is_public(self) -> bool:
        """Whether the number of rows may be known: nobody's being there changes it."""
        return self.neighbours == "replace_one"

    @property
    def records_changed(self) -> int:
        """How often one unit can add or take away a record.

        Replacing a record takes one away and adds one: 2. A unit owns up to `max_rows_per_unit`.
        """
        sides = 2 if self.neighbours == "replace_one" else 1
        return sides * self.max_rows_per_unit

    @property
    def unit(self) -> str:
        """Who is protected, as one word: budgets under different units do not add up."""
        if self.unit_column is not None:
            # What is merged stands before the column, whose name may be anything.
            read = ["integer"] * (self.unit_type == "integer") + ["folded"] * self.unit_fold
            ids = f" ({', '.join(read)} ids)" if read else ""
            return f"{self.neighbours}/{_ALL_ROWS}{ids} by {self.unit_column}"
        return f"{self.neighbours}/{self.max_rows_per_unit}"

    @property
    def counted(self) -> str:
        """What n counts, in a word."""
        return "rows" if self.unit_column is None else "people"


def averages(unit: str) -> bool:
    """Whether a text such as `Schema.unit` says that all rows with one id are averaged."""
    return unit.partition("/")[2].startswith(_ALL_ROWS)


# ---------------------------------------------------------------------------------------------
# Reading: one path for YAML, JSON and Python, with errors that name the column and the remedy


def parse_schema(document: Any) -> dict[str, Any]:
    """The checked fields of a Schema, from the plain structure that `Schema.to_dict` makes."""
    if not isinstance(document, Mapping):
        raise SchemaError(
            f"schema: expected a mapping with 'dataset' and 'columns', got {_shown(document)}"
        )
    known = {"dataset", "columns", "neighbours", "max_rows_per_unit", "missing", "unit"}
    faults = [
        f"schema: unknown key {_shown(key)}; the keys are {', '.join(sorted(known))}"
        for key in document
        if key not in known
    ]
    needed = ("dataset", "columns")
    faults += [f"schema: '{key}' is missing; add it" for key in needed if key not in document]
    dataset = _tried(faults, _parse_dataset, document.get("dataset", "?"))
    found = _parse_columns(document["columns"], faults) if "columns" in document else {}
    columns = {name: column for name, (column, _) in found.items()}
    neighbours = _tried(faults, _parse_neighbours, document.get("neighbours", "replace_one"))
    rows = _tried(faults, _parse_rows_per_unit, document.get("max_rows_per_unit", 1))
    unit: tuple[str, str, bool] | None = None
    if "unit" in document:
        unit = _tried(faults, _parse_unit, document["unit"], document.get("columns"), rows)
    column, kind, fold = unit or (None, "text", False)
    # A fill value for a column that is wrong itself says nothing new.
    fill = {} if faults else _parse_missing(document.get("missing", "error"), columns)
    _raise_all(faults)
    return {
        "dataset": dataset,
        "columns": columns,
        "neighbours": neighbours,
        "max_rows_per_unit": rows,
        "fill": fill,
        "unit_column": column,
        "unit_type": kind,
        "unit_fold": fold,
        "words": {name: words for name, (_, words) in found.items() if words != Words()},
    }


def _tried(faults: list[str], parse: Callable[..., Parsed], *given: Any) -> Parsed | None:
    """What was parsed, or None after noting what is wrong with it."""
    try:
        return parse(*given)
    except SchemaError as error:
        faults.append(str(error))
        return None


def _raise_all(faults: list[str]) -> None:
    """Everything that is wrong in one error, and every remedy once."""
    if not faults:
        return
    if len(faults) == 1:
        raise SchemaError(faults[0])
    lines, known = [], set()
    for fault in faults[:_MOST_SAID]:
        what, _, remedy = fault.partition("; ")
        lines.append(f"- {what if remedy in known else fault}")
        known.add(remedy)
    if len(faults) > _MOST_SAID:
        lines.append(f"- and {len(faults) - _MOST_SAID} more")
    raise SchemaError("\n".join([f"schema: {len(faults)} things to mend:", *lines]))


def _parse_dataset(value: Any) -> str:
    # Two spellings that look alike must not be two budgets.
    return unicodedata.normalize("NFC", _name(value, "dataset"))


def _parse_neighbours(value: Any) -> Neighbours:
    for known in NEIGHBOUR_RELATIONS:
        if isinstance(value, str) and value == known:
            return known
    raise SchemaError(
        f"neighbours: {_shown(value)} is not a neighbour relation; "
        f"use {' or '.join(NEIGHBOUR_RELATIONS)}"
    )


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME:
        raise SchemaError(
            f"{where}: a name must be text of 1 to {MAX_NAME} characters, got {_shown(value)}; "
            "put quotes round a name that looks like a number"
        )
    if not value.isprintable():
        raise SchemaError(f"{where}: the name {_shown(value)} has characters that cannot be shown")
    return value


def _parse_rows_per_unit(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ROWS_PER_UNIT:
        raise SchemaError(
            f"max_rows_per_unit: expected a whole number from 1 to {MAX_ROWS_PER_UNIT}, "
            f"got {_shown(value)}"
        )
    return value


def _parse_unit(value: Any, columns: Any, rows: int | None) -> tuple[str, str, bool]:
    known = {"column", "type", "fold"}
    if not isinstance(value, Mapping) or "column" not in value or set(value) - known:
        raise SchemaError(
            "unit: expected the column that says whose row it is, such as "
            f"'unit: {{column: person_id}}', and perhaps type and fold, got {_shown(value)}"
        )
    kind, fold = value.get("type", "text"), value.get("fold", False)
    if not isinstance(kind, str) or kind not in ID_TYPES:
        raise SchemaError(
            f"unit: type must be 'integer' (01, +1 and 1.0 are 1) or 'text', got {_shown(kind)}"
        )
    if not isinstance(fold, bool):
        raise SchemaError(
            "unit: fold is true (letter case and blanks at the ends don't matter) or false, got "
            f"{_shown(fold)}"
        )
    name = _name(value["column"], "unit: column")
    if isinstance(columns, Mapping) and name in columns:
        raise SchemaError(
            f"unit: {_shown(name)} is a declared column too; ids are never published, so take it "
            "out of the columns"
        )
    if rows not in (1, None):
        raise SchemaError(
            "unit: the rows of one person are averaged, however many there are; leave "
            "max_rows_per_unit out (it is for data without ids)"
        )
    return name, kind, fold


def _parse_columns(value: Any, faults: list[str]) -> dict[str, tuple[Column, Words]]:
    if not isinstance(value, Mapping) or not value:
        faults.append(
            "columns: expected at least one column, such as "
            "'age: {type: number, lower: 18, upper: 90}'"
        )
        return {}
    if len(value) > MAX_COLUMNS:
        faults.append(f"columns: {len(value)} columns, at most {MAX_COLUMNS} are supported")
        return {}
    found = {}
    for name, spec in value.items():
        parsed = _tried(faults, _parse_column, name, spec)
        if parsed is not None:
            found[name] = parsed
    return found


def _parse_column(name: Any, spec: Any) -> tuple[Column, Words]:
    where = f"column '{_name(name, 'columns')}'"
    if not isinstance(spec, Mapping):
        raise SchemaError(
            f"{where}: expected 'type: number' with 'lower' and 'upper', or 'type: category' with "
            f"'levels' and 'reference', got {_shown(spec)}"
        )
    words = Words(*(_word(where, spec, key) for key in _WORDS))
    rest = {key: value for key, value in spec.items() if key not in _WORDS}
    kind = rest.get("type")
    if kind == "number":
        parse = _parse_unbounded if "unbounded" in rest else _parse_number
        return parse(where, rest), words
    if kind == "category":
        return _parse_category(where, rest), words
    raise SchemaError(f"{where}: type must be 'number' or 'category', got {_shown(kind)}")


def _word(where: str, spec: Mapping[Any, Any], key: str) -> str:
    """A label or a unit of measure: public words, on one line."""
    value = spec.get(key, "")
    if not isinstance(value, str) or len(value) > MAX_LABEL or not value.isprintable():
        raise SchemaError(
            f"{where}: {key} must be printable text of at most {MAX_LABEL} characters, got "
            f"{_shown(value)}"
        )
    return value.strip()


def _parse_number(where: str, spec: Mapping[Any, Any]) -> Number:
    _only_keys(where, spec, {"type", "lower", "upper"})
    absent = [key for key in ("lower", "upper") if spec.get(key) is None]
    if absent:
        bounds = " bound is" if len(absent) == 1 else " bounds are"
        raise SchemaError(
            f"{where}: the {' and '.join(absent)}{bounds} missing; write a bound that is known "
            "without looking at the data (a legal limit, a physical range, a coding convention)"
        )
    lower, upper = _bound(where, spec, "lower"), _bound(where, spec, "upper")
    if not lower < upper:
        remedy = (
            "a column that never varies carries no information, leave it out"
            if lower == upper
            else "swap them"
        )
        raise SchemaError(f"{where}: lower ({lower:g}) must be below upper ({upper:g}); {remedy}")
    number = Number(lower, upper)
    # The unit scale divides by the half-width; a float64 cannot tell such values apart.
    if not number.half_width > 1e-9 * abs(number.centre):
        raise SchemaError(
            f"{where}: the bounds {lower!r} and {upper!r} are too close together to be told "
            "apart in double precision; subtract a public constant from the column first"
        )
    if not _NARROWEST <= number.half_width <= _WIDEST:
        kind = "too close together" if number.half_width < _NARROWEST else "too far apart"
        raise SchemaError(
            f"{where}: the bounds {lower!r} and {upper!r} are {kind} to compute with; give the "
            "column in another unit"
        )
    return number


def _parse_unbounded(where: str, spec: Mapping[Any, Any]) -> Unbounded:
    _only_keys(where, spec, {"type", "unbounded", "unit"})
    if spec["unbounded"] is not True:
        raise SchemaError(
            f"{where}: unbounded is true or left out, got {_shown(spec['unbounded'])}; a column "
            "with bounds has 'lower' and 'upper'"
        )
    unit = _bound(where, {"unit": spec.get("unit", 1.0)}, "unit")
    if not 1e-200 <= unit <= 1e200:
        raise SchemaError(f"{where}: unit must be a positive size such as 0.001, got {unit:g}")
    return Unbounded(unit)


def _only_keys(where: str, spec: Mapping[Any, Any], known: set[str]) -> None:
    for key in spec:
        if key not in known:
            raise SchemaError(
                f"{where}: unknown key {_shown(key)}; expected "
                f"{', '.join(sorted({*known, *_WORDS}))}"
            )


def _bound(where: str, spec: Mapping[Any, Any], key: str) -> float:
    value = spec.get(key)
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.inf
    if isinstance(value, bool) or not math.isfinite(number):
        raise SchemaError(f"{where}: {key} must be a finite number, got {_shown(value)}")
    return number


def _parse_category(where: str, spec: Mapping[Any, Any]) -> Category:
    _only_keys(where, spec, {"type", "levels", "reference"})
    raw = spec.get("levels")
    if not isinstance(raw, list | tuple) or not raw:
        raise SchemaError(
            f"{where}: levels must be a list of the values that are publicly known to be possible, "
            f"got {_shown(raw)}"
        )
    if not 2 <= len(raw) <= MAX_LEVELS:
        raise SchemaError(
            f"{where}: {len(raw)} level(s) given; between 2 and {MAX_LEVELS} are needed"
        )
    levels = []
    for value in raw:
        text = level_text(value)
        if text is None or not text or len(text) > MAX_NAME or not text.isprintable():
            raise SchemaError(
                f"{where}: the level {_shown(value)} is not a short text, a number or true/false"
            )
        if text in levels:
            raise SchemaError(f"{where}: the level {text!r} is listed twice; list it once")
        levels.append(text)
    reference = level_text(spec.get("reference"))
    if reference is None:
        raise SchemaError(
            f"{where}: no reference level; add 'reference: {levels[0]}' (the level that the "
            "others are compared with)"
        )
    if reference not in levels:
        raise SchemaError(
            f"{where}: the reference {_shown(reference)} is not among the levels "
            f"{_shown(levels)}; choose one of them"
        )
    return Category(tuple(levels), reference)


def _parse_missing(value: Any, columns: Mapping[str, Column]) -> dict[str, float | str]:
    if value == "error":
        return {}
    if not isinstance(value, Mapping):
        raise SchemaError(
            f"missing: expected 'error' or a public fill value per column "
            f"(missing: {{age: 40}}), got {_shown(value)}"
        )
    fill: dict[str, float | str] = {}
    for name, given in value.items():
        if name not in columns:
            raise SchemaError(f"missing: {_shown(name)} is not a declared column")
        column = columns[name]
        where = f"missing: column '{name}'"
        if isinstance(column, Category):
            text = level_text(given)
            if text not in column.levels or text is None:
                raise SchemaError(
                    f"{where}: the fill value {_shown(given)} is not one of its levels "
                    f"{_shown(list(column.levels))}"
                )
            fill[name] = text
        else:
            number = _bound(where, {"fill": given}, "fill")
            if isinstance(column, Number) and not column.lower <= number <= column.upper:
                raise SchemaError(
                    f"{where}: the fill value {number:g} is outside the bounds "
                    f"{column.lower:g} to {column.upper:g}"
                )
            fill[name] = number
    return fill


def _shown(value: Any) -> str:
    """A short, safe rendering of what was given (schemas are public, so quoting is fine)."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
