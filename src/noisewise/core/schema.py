"""What the public knows about a table: columns with bounds or levels, and who is protected.

Everything in a Schema is public by declaration. Bounds and levels are never read from the data:
a bound that is the data's own maximum *is* somebody's value. So an error may quote what was given.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from noisewise.core.errors import SchemaError

Neighbours = Literal["replace_one", "add_remove_one"]
NEIGHBOUR_RELATIONS = ("replace_one", "add_remove_one")

MAX_COLUMNS = 2_000
MAX_LEVELS = 1_000
MAX_NAME = 200
MAX_ROWS_PER_UNIT = 1_000_000
_ALL_ROWS = "all rows by "  # the column of ids, in `Schema.unit`
# Half-widths of bounds. A float64 holds the square of any ratio of two of them, which variances of
# coefficients need, with room for what is computed on the way.
_NARROWEST, _WIDEST = 1e-60, 1e60


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
    """

    dataset: str
    columns: Mapping[str, Column]
    neighbours: Neighbours = "replace_one"
    max_rows_per_unit: int = 1
    fill: Mapping[str, float | str] = field(default_factory=dict)
    unit_column: str | None = None

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
        return {
            "dataset": self.dataset,
            "columns": columns,
            "neighbours": self.neighbours,
            "max_rows_per_unit": self.max_rows_per_unit,
            "missing": dict(self.fill) if self.fill else "error",
            # Only where given, so that requests from before it existed keep their identity.
            **({} if self.unit_column is None else {"unit": {"column": self.unit_column}}),
        }

    def restricted_to(self, names: tuple[str, ...]) -> Schema:
        """The same schema with only these columns: what a Release needs to carry."""
        return Schema(
            dataset=self.dataset,
            columns={name: self.columns[name] for name in names},
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
            fill={name: self.fill[name] for name in names if name in self.fill},
            unit_column=self.unit_column,
        )

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
            return f"{self.neighbours}/{_ALL_ROWS}{self.unit_column}"
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
    for key in document:
        if key not in known:
            raise SchemaError(
                f"schema: unknown key {_shown(key)}; the keys are {', '.join(sorted(known))}"
            )
    for key in ("dataset", "columns"):
        if key not in document:
            raise SchemaError(f"schema: '{key}' is missing; add it")
    # Two spellings that look alike must not be two budgets.
    dataset = unicodedata.normalize("NFC", _name(document["dataset"], "dataset"))
    columns = _parse_columns(document["columns"])
    neighbours = document.get("neighbours", "replace_one")
    if not isinstance(neighbours, str) or neighbours not in NEIGHBOUR_RELATIONS:
        raise SchemaError(
            f"neighbours: {_shown(neighbours)} is not a neighbour relation; "
            f"use {' or '.join(NEIGHBOUR_RELATIONS)}"
        )
    rows = _parse_rows_per_unit(document.get("max_rows_per_unit", 1))
    return {
        "dataset": dataset,
        "columns": columns,
        "neighbours": neighbours,
        "max_rows_per_unit": rows,
        "fill": _parse_missing(document.get("missing", "error"), columns),
        "unit_column": _parse_unit(document["unit"], columns, rows) if "unit" in document else None,
    }


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


def _parse_unit(value: Any, columns: Mapping[str, Column], rows: int) -> str:
    if not isinstance(value, Mapping) or set(value) != {"column"}:
        raise SchemaError(
            "unit: expected the column that says whose row it is, such as "
            f"'unit: {{column: person_id}}', got {_shown(value)}"
        )
    name = _name(value["column"], "unit: column")
    if name in columns:
        raise SchemaError(
            f"unit: {_shown(name)} is a declared column too; ids are never published, so take it "
            "out of the columns"
        )
    if rows != 1:
        raise SchemaError(
            "unit: the rows of one person are averaged, however many there are; leave "
            "max_rows_per_unit out (it is for data without ids)"
        )
    return name


def _parse_columns(value: Any) -> dict[str, Column]:
    if not isinstance(value, Mapping) or not value:
        raise SchemaError(
            "columns: expected at least one column, such as "
            "'age: {type: number, lower: 18, upper: 90}'"
        )
    if len(value) > MAX_COLUMNS:
        raise SchemaError(f"columns: {len(value)} columns, at most {MAX_COLUMNS} are supported")
    return {_name(name, "columns"): _parse_column(name, spec) for name, spec in value.items()}


def _parse_column(name: str, spec: Any) -> Column:
    where = f"column '{name}'"
    if not isinstance(spec, Mapping):
        raise SchemaError(
            f"{where}: expected 'type: number' with 'lower' and 'upper', or 'type: category' with "
            f"'levels' and 'reference', got {_shown(spec)}"
        )
    kind = spec.get("type")
    if kind == "number":
        return _parse_unbounded(where, spec) if "unbounded" in spec else _parse_number(where, spec)
    if kind == "category":
        return _parse_category(where, spec)
    raise SchemaError(f"{where}: type must be 'number' or 'category', got {_shown(kind)}")


def _parse_number(where: str, spec: Mapping[Any, Any]) -> Number:
    _only_keys(where, spec, {"type", "lower", "upper"})
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
                f"{where}: unknown key {_shown(key)}; expected {', '.join(sorted(known))}"
            )


def _bound(where: str, spec: Mapping[Any, Any], key: str) -> float:
    value = spec.get(key)
    if value is None:
        raise SchemaError(
            f"{where}: the {key} bound is missing; write a bound that is known without looking at "
            "the data (a legal limit, a physical range, a coding convention)"
        )
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
