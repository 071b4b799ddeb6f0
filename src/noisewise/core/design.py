"""From declared columns to the columns of a regression, on unit scale.

A numeric column becomes one design column on [-1, 1] (centred maps need up to 3.8 times less noise
on second moments than [0, 1] does). A category becomes one 0/1 indicator for every level but the
reference. At most one indicator of a category is 1 in any row; the sensitivities use that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema, Unbounded

INTERCEPT = "intercept"
RESERVED = (INTERCEPT, "sigma2")
MAX_DESIGN_COLUMNS = 400


@dataclass(frozen=True)
class DesignColumn:
    """One column of the design: `unit = (original - centre) / half_width`."""

    name: str
    source: str
    level: str | None
    centre: float
    half_width: float

    @property
    def is_indicator(self) -> bool:
        """Whether this is the 0/1 indicator of a level."""
        return self.level is not None


@dataclass(frozen=True)
class Design:
    """The regression whose statistics are released: features in order, then the target.

    The columns of a row are w = (1, x_1, ..., x_k, y); index 0 is the constant.
    """

    schema: Schema
    features: tuple[str, ...]
    target: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        _check(self.schema, self.features, self.target)
        if len(self.columns) > MAX_DESIGN_COLUMNS:
            raise RequestError(
                f"features: they expand to {len(self.columns)} columns, at most "
                f"{MAX_DESIGN_COLUMNS} are supported; merge levels or drop features"
            )
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1 or name in RESERVED:
                raise RequestError(
                    f"features: the design column name {name!r} is "
                    f"{'reserved' if name in RESERVED else 'produced twice'}; rename the column"
                )

    @cached_property
    def columns(self) -> tuple[DesignColumn, ...]:
        """The p non-constant design columns; the target is the last one."""
        return tuple(c for name in self.sources for c in _expand(name, self.schema))

    @property
    def sources(self) -> tuple[str, ...]:
        """The table columns that are read, in order."""
        return (*self.features, self.target)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of w's entries, the constant first."""
        return (INTERCEPT, *(column.name for column in self.columns))

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The numeric columns without bounds: their sums cannot be published."""
        kinds = self.schema.columns
        return tuple(name for name in self.sources if isinstance(kinds[name], Unbounded))

    @property
    def number_of_numbers(self) -> int:
        """How many design columns range over [-1, 1] (the target is one of them)."""
        return sum(not column.is_indicator for column in self.columns)

    @property
    def category_sizes(self) -> tuple[int, ...]:
        """For every categorical feature, its number of indicators."""
        kinds = (self.schema.columns[name] for name in self.features)
        return tuple(len(kind.indicated) for kind in kinds if isinstance(kind, Category))


def _expand(name: str, schema: Schema) -> list[DesignColumn]:
    column = schema.columns[name]
    if isinstance(column, Number | Unbounded):
        return [DesignColumn(name, name, None, column.centre, column.half_width)]
    return [DesignColumn(f"{name}[{level}]", name, level, 0.0, 1.0) for level in column.indicated]


def _check(schema: Schema, features: Sequence[str], target: str) -> None:
    declared = ", ".join(list(schema.columns)[:20])
    if not features:
        raise RequestError("features: none given; name at least one declared column")
    for name in (*features, target):
        if name not in schema.columns:
            raise RequestError(
                f"{'target' if name == target else 'features'}: {name!r} is not declared in the "
                f"schema; declared are: {declared}"
            )
    for name in features:
        if features.count(name) > 1:
            raise RequestError(f"features: {name!r} is given twice; give it once")
    if target in features:
        raise RequestError(f"features: {target!r} is the target too; take it out of the features")
    if not isinstance(schema.columns[target], Number | Unbounded):
        raise RequestError(
            f"target: {target!r} is a category; a linear regression needs a numeric target "
            "(declare a 0/1 column as a number with lower 0 and upper 1)"
        )
