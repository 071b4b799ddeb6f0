"""What the public knows about a table: columns with bounds or levels, and who is protected.

Everything in a Schema is public by declaration. Bounds and levels are never read from the data:
a bound that is the data's own maximum *is* somebody's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from noisewise.core.columns import Category, Column, Number, Unbounded, level_text
from noisewise.core.errors import SchemaError
from noisewise.core.schema_parsing import MAX_NAME, parse_schema

__all__ = ["MAX_NAME", "Category", "Column", "Number", "Schema", "Unbounded", "level_text"]

Neighbours = Literal["replace_one", "add_remove_one"]


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
    """

    dataset: str
    columns: Mapping[str, Column]
    neighbours: Neighbours = "replace_one"
    max_rows_per_unit: int = 1
    fill: Mapping[str, float | str] = field(default_factory=dict)

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
        }

    def restricted_to(self, names: tuple[str, ...]) -> Schema:
        """The same schema with only these columns: what a Release needs to carry."""
        return Schema(
            dataset=self.dataset,
            columns={name: self.columns[name] for name in names},
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
            fill={name: self.fill[name] for name in names if name in self.fill},
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
        return f"{self.neighbours}/{self.max_rows_per_unit}"
