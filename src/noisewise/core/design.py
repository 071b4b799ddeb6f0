"""From declared columns to the columns of a regression, on unit scale.

A numeric column becomes one design column on [-1, 1] (centred maps need up to 3.8 times less noise
on second moments than [0, 1] does). A category becomes one 0/1 indicator for every level but the
reference. At most one indicator of a category is 1 in any row; the sensitivities use that. A term
of a formula (`core.terms`) becomes one design column or several, computed from the row's columns.

Rows and statistics are integers on a grid. A statistic of degree m is a sum of products of m row
values. Rows are rounded to ``32 / m`` binary digits after the point, so every product is an integer
in units of 2**-32, whatever the degree, and at most 2**32 in size. With at most 2**30 rows every
sum is at most 2**62, which fits a signed 64-bit integer: overflow is impossible.

Sixteen bits (degree 2) round a value by at most 7.6e-6 of its column's half-width. That moves a
mean by no more, which stays below a posterior standard deviation until n is about 1e10.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.core.terms.term import DesignColumn, Term, read_term

__all__ = ["DesignColumn"]

# A product of entries of a row w = (1, x, y): sorted indices into w.
Monomial = tuple[int, ...]

# What the target is: any number, yes or no (a category with two levels), or a count from 0 on.
Family = Literal["linear", "logistic", "poisson"]

INTERCEPT = "intercept"
RESERVED = (INTERCEPT, "sigma2")
MAX_DESIGN_COLUMNS = 1_200
MAX_VARYING = 400  # of a row: numbers and categories, however many levels these have
MOST_COUNT = 1 << 12  # with a higher bound on a count, noise is all that is left


@dataclass(frozen=True)
class Design:
    """The regression whose statistics are released: features in order, then the target.

    The columns of a row are w = (1, x_1, ..., x_k, y); index 0 is the constant. A feature is a
    declared column or else the canonical text of a term, and so is the target.
    """

    schema: Schema
    features: tuple[str, ...]
    target: str
    family: Family = "linear"

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", names_of(self.features))
        _check(self.schema, self.features, self.target, self.family)
        if len(self.columns) > MAX_DESIGN_COLUMNS:
            raise RequestError(
                f"features: they expand to {len(self.columns)} columns, at most "
                f"{MAX_DESIGN_COLUMNS} are supported; merge levels or drop features"
            )
        varying = self.number_of_numbers + len(self.category_sizes)
        if varying > MAX_VARYING:
            raise RequestError(
                f"features: they are {varying} numbers and categories, at most {MAX_VARYING} are "
                "supported; drop features"
            )
        times = Counter(column.name for column in self.columns)
        for name in times:
            if times[name] > 1 or name in RESERVED:
                raise RequestError(
                    f"features: the design column name {name!r} is "
                    f"{'reserved' if name in RESERVED else 'produced twice'}; rename the column"
                )

    @cached_property
    def columns(self) -> tuple[DesignColumn, ...]:
        """The p non-constant design columns; the target is the last one."""
        return tuple(c for name in self.regressed for c in _expand(name, self.schema))

    @property
    def regressed(self) -> tuple[str, ...]:
        """Features and target, in order: declared columns and terms."""
        return (*self.features, self.target)

    @property
    def covariates(self) -> Covariates:
        """The same features without the target."""
        return Covariates(self.schema, self.features, self.target, self.family)

    @cached_property
    def terms(self) -> dict[str, Term]:
        """Those that are not declared columns."""
        return {
            name: read_term(name, self.schema)
            for name in self.regressed
            if name not in self.schema.columns
        }

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The table columns that are read, each once, in the order in which they are needed."""
        names = (*self.features, self.target)
        return tuple(
            dict.fromkeys(source for name in names for source in columns_of(name, self.schema))
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of w's entries, the constant first."""
        return (INTERCEPT, *(column.name for column in self.columns))

    def called(self, name: str) -> str:
        """What people call a column or one of w's entries; its name, if the schema has no words.

        With the level of a category or the unit of measure of a number, where there is one.
        """
        sources = {column.name: column for column in self.columns}
        column = sources.get(name)
        source = name if column is None else column.source
        if source not in self.schema.words:
            return name
        label, unit = self.schema.label(source), self.schema.unit_of_measure(source)
        if column is not None and column.level is not None:
            return f"{label}: {column.level}"
        return f"{label} ({unit})" if unit else label

    def glossary(self) -> list[str]:
        """What columns mean, for the end of a table that has them by name."""
        known = [name for name in self.sources if name in self.schema.words]
        return [f"{name}: {self.called(name)}" for name in known]

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The numeric columns without bounds: their sums cannot be published."""
        kinds = self.schema.columns
        return tuple(name for name in self.sources if isinstance(kinds[name], Unbounded))

    # Two views of the same columns. Where all that is known of a row is used (the box), columns
    # are in groups or single. In rounds, what is not an indicator is a number like others.

    @property
    def number_of_numbers(self) -> int:
        """How many design columns are not indicators (the target is one of them)."""
        return sum(not column.is_indicator for column in self.columns)

    @property
    def category_sizes(self) -> tuple[int, ...]:
        """For every group of indicators, how many they are."""
        return tuple(
            len(group) for group in self._groups.values() if self.columns[group[0]].is_indicator
        )

    @cached_property
    def _groups(self) -> dict[tuple[str, ...], list[int]]:
        """Positions of the columns of every group."""
        found: dict[tuple[str, ...], list[int]] = {}
        for position, column in enumerate(self.columns):
            if column.group is not None:
                found.setdefault(column.group, []).append(position)
        return found

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Sizes of the groups, whose columns on unit scale have sizes that add up to at most 1.

        Those of one column are indicators; any other single column is a number (`core.terms`).
        """
        return tuple(map(len, self._groups.values()))

    @property
    def signed_groups(self) -> int:
        """How many groups have columns that can be below 0."""
        return sum(self.columns[group[0]].signed for group in self._groups.values())

    @property
    def single_columns(self) -> int:
        """How many design columns are in no group; each ranges over [-1, 1]."""
        return len(self.columns) - sum(self.group_sizes)


@dataclass(frozen=True)
class Covariates(Design):
    """The features of a regression alone: w = (1, x).

    The target is read with them: if a value of it is missing, the first pass should say so.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", names_of(self.features))

    @property
    def regressed(self) -> tuple[str, ...]:
        return self.features


def names_of(features: Sequence[str]) -> tuple[str, ...]:
    """The names, unless they are a text, whose letters would be taken for names."""
    if isinstance(features, str):
        raise RequestError(f"features: expected a list of column names, got the text {features!r}")
    return tuple(features)


def columns_of(name: str, schema: Schema) -> tuple[str, ...]:
    """The table columns that a feature is made of."""
    return (name,) if name in schema.columns else read_term(name, schema).columns


def _expand(name: str, schema: Schema) -> list[DesignColumn]:
    column = schema.columns.get(name)
    if column is None:
        return read_term(name, schema).design_columns(schema)
    if isinstance(column, Number | Unbounded):
        return [DesignColumn(name, name, None, column.centre, column.half_width)]
    return [
        DesignColumn(
            f"{name}[{level}]",
            name,
            level,
            0.0,
            1.0,
            group=("column", name),
            cell=((("column", name), level),),
            is_indicator=True,
        )
        for level in column.indicated
    ]


def _check(schema: Schema, features: Sequence[str], target: str, family: Family) -> None:
    if not features:
        raise RequestError("features: none given; name at least one declared column")
    for name in (*features, target):
        _check_known(schema, name, "target" if name == target else "features")
    for name in features:
        if features.count(name) > 1:
            raise RequestError(f"features: {name!r} is given twice; give it once")
    if target in features:
        raise RequestError(f"features: {target!r} is the target too; take it out of the features")
    explained = columns_of(target, schema)
    for name in features:
        if set(explained) & set(columns_of(name, schema)):
            raise RequestError(
                f"features: {name!r} is made of {explained[0]!r}, as the target is; take it out"
            )
    if family != "linear":
        _check_outcome(schema, target, family)
        return
    if isinstance(schema.columns.get(target), Category):
        raise RequestError(
            f"target: {target!r} is a category; a linear regression needs a numeric target "
            "(of yes or no take family logistic, or declare a 0/1 column as a number with lower 0 "
            "and upper 1)"
        )
    column, *more = _expand(target, schema)
    if more or column.group is not None:
        raise RequestError(f"target: {target!r} is not one number; choose a column or a number")


def _check_outcome(schema: Schema, target: str, family: Family) -> None:
    """A yes/no target is a category with two levels; a count is a number from 0 to its bound."""
    column = schema.columns.get(target)
    if family == "logistic":
        if not isinstance(column, Category) or len(column.levels) != 2:
            raise RequestError(
                f"target: {target!r} is not a category with two levels, which a logistic "
                "regression needs; declare it so, with the level that is no event as its reference "
                "(of more levels, make a column of one of them against the others)"
            )
    elif (
        not isinstance(column, Number)
        or column.lower != 0
        or column.upper not in range(1, MOST_COUNT + 1)
    ):
        raise RequestError(
            f"target: {target!r} is not a count, which a Poisson regression needs; declare it as a "
            f"number with lower 0 and a whole upper bound of at most {MOST_COUNT}"
        )


def _check_known(schema: Schema, name: str, where: str) -> None:
    """A declared column, or a term of such."""
    if name in schema.columns:
        return
    if not isinstance(name, str) or not set(name) & set("(:`"):
        declared = ", ".join(list(schema.columns)[:20])
        raise RequestError(
            f"{where}: {name!r} is not declared in the schema; declared are: {declared}"
        )
    read_term(name, schema)


# --- the set that every row is forced into. It decides the sensitivity ----------------------------


@dataclass(frozen=True)
class Box:
    """Every column stays within its own bounds; nothing else is done to a row."""

    kind = "box"


@dataclass(frozen=True)
class Ball:
    """The features x of a row satisfy ‖x‖₂ <= radius; longer rows are scaled down onto the ball.

    The target keeps its own interval |y| <= 1. Scaling changes a row's indicators too.
    """

    radius: float
    kind = "ball"

    def __post_init__(self) -> None:
        value = self.radius
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not 2**-8 <= value <= 64:
            raise RequestError(
                f"radius: expected a number from {2**-8} to 64 on unit scale, got {value!r}; the "
                "box's own corner is at the square root of the number of features"
            )
        object.__setattr__(self, "radius", float(value))

    def grid_radius(self, bits: int) -> int:
        """The radius in units of 2**-bits, rounded down: what rows are really forced into."""
        return math.floor(self.radius * (1 << bits))


Geometry = Box | Ball


def geometry_to_dict(geometry: Geometry) -> dict[str, Any]:
    """Plain structure for the Release file."""
    if isinstance(geometry, Ball):
        return {"kind": "ball", "radius": geometry.radius}
    return {"kind": "box"}


# --- the grid on which rows and statistics are integers -------------------------------------------


STATISTIC_BITS = 32
STATISTIC_ONE = 1 << STATISTIC_BITS
MAX_ROWS = 1 << 30


def row_bits(degree: int) -> int:
    """Binary digits after the point of a row's values, for a statistic of this degree."""
    if degree not in (1, 2, 4):
        raise ValueError(f"degree {degree} does not divide the {STATISTIC_BITS}-bit grid evenly")
    return STATISTIC_BITS // degree
