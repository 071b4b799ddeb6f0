"""A term: factors that are multiplied, each a number, a category or a spline of public knots.

A factor makes one or more parts: a number itself, a category one 0/1 indicator for every level but
the reference, a spline its basis functions. A term such as ``age:region`` has one design column for
every choice of a part from each factor: their product.

**Scale.** A product of numbers is mapped from its bounds to [-1, 1] as any number is, and so is one
with the only indicator of a category. A product with one of several indicators or B-splines keeps
its zero: it is divided by the largest size that its numbers can have. So on unit scale, for every
choice of parts of the other factors,

    the columns of all choices of indicators and B-splines have sizes that add up to at most 1, (1)

because a category has at most one indicator that is 1, B-splines add up to at most 1 (see
`expressions`), a product of sums is the sum of all products, and numbers are at most 1 in size.
Such columns are a *group*. `core.statistics` uses (1), and it holds for the integers that are
summed: columns of a group with B-splines are cut off towards 0, not rounded to the nearest integer,
so the integers add up to at most ONE (1 + 2**-40) < ONE + 1, hence to ONE. Other groups have one
column that is not 0.

**Cells.** A column with indicators is 0 outside their levels. Products of indicators that belong to
other levels of one category, as region[a] and region[b]:sex[f] do, are 0 in every row, and public.
So are the products of age:region[a] and age:region[b]. These are published with noise all the same:
that they are 0 lowers no sensitivity, and to an analyst it was worth nothing (in 90 Releases each
of `score ~ dose*region`, `python -m studies run terms`, epsilon 1, intervals were 38 times as wide
as those of least squares with noise on the zeros and without).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise, product
from math import prod
from typing import Any, Protocol

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Schema, level_text
from noisewise.core.terms.expressions import (
    FUNCTIONS,
    Expression,
    Interval,
    b_spline,
    bounds_of,
    called,
    name_text,
    natural_spline,
    natural_spline_bounds,
    number,
    number_text,
    parsed,
    product_of,
)

MAX_TERM = 400  # characters
MAX_FACTORS = 4
MAX_KNOTS = 50
MAX_COLUMNS = 400
MAX_DEGREE = 5


Cell = tuple[tuple[str, str], str]


@dataclass(frozen=True)
class DesignColumn:
    """One column of the design: `unit = (original - centre) / half_width`."""

    name: str
    source: str  # the feature that it comes from: a column of the table, or a term
    level: str | None  # of a category, or of a `cut`
    centre: float
    half_width: float
    # What it shares with the other columns of its group, and with no others; see (1) above
    group: tuple[str, ...] | None = None
    # Where it is not 0. A factor is a pair, so that a column may have any name.
    cell: tuple[Cell, ...] = ()
    signed: bool = False  # of a column in a group: whether it can be below 0
    # Whether it is 0 or 1 in every row, and at most one column of its group is 1
    is_indicator: bool = False
    cut_off: bool = False  # whether it is cut off towards 0 on the grid


@dataclass(frozen=True)
class Part:
    """One of the columns that a factor makes."""

    label: str
    bounds: Interval  # (low, high)
    cell: Cell | None = None  # of an indicator
    share: bool = False  # whether it is one of several that are at least 0 and add up to at most 1


class Factor(Protocol):
    """What terms are products of."""

    @property
    def text(self) -> str:
        """Canonical text."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The table columns that it reads."""

    def parts(self, schema: Schema) -> list[Part]:
        """What it makes, with bounds; refuses what has none."""

    def values(self, schema: Schema, table: Mapping[str, Any]) -> list[FloatArray]:
        """The parts' values in every row; categories are positions among their levels."""


# --- factors --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arithmetic:
    """A number: a column, or an expression."""

    expression: Expression

    @property
    def text(self) -> str:
        """Canonical; what is no function of its own stands in I()."""
        alone = self.expression.op == "column" or self.expression.op in FUNCTIONS
        return self.expression.text if alone else f"I({self.expression.text})"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.expression.columns

    def parts(self, schema: Schema) -> list[Part]:
        return [Part(self.text, self.expression.interval(schema))]

    def values(self, schema: Schema, table: Mapping[str, Any]) -> list[FloatArray]:
        return [self.expression.values(table)]


@dataclass(frozen=True)
class Levels:
    """A category that the schema declares."""

    name: str

    @property
    def text(self) -> str:
        return name_text(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def parts(self, schema: Schema) -> list[Part]:
        """An indicator for every level but the reference."""
        declared = schema.columns[self.name]
        assert isinstance(declared, Category)
        return [
            Part(f"{self.name}[{level}]", (0.0, 1.0), (("column", self.name), level))
            for level in declared.indicated
        ]

    def values(self, schema: Schema, table: Mapping[str, Any]) -> list[FloatArray]:
        declared = schema.columns[self.name]
        assert isinstance(declared, Category)
        codes = np.asarray(table[self.name])
        return [
            (codes == declared.levels.index(level)).astype(np.float64)
            for level in declared.indicated
        ]


@dataclass(frozen=True)
class OfKnots:
    """What is made of one numeric column and public points within its bounds."""

    name: str
    points: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def _written(self, function: str, word: str, more: str = "") -> str:
        points = ", ".join(map(number_text, self.points)) + ("," if len(self.points) == 1 else "")
        return f"{function}({name_text(self.name)}, {word}=({points}){more})"

    def _bounds(self, schema: Schema) -> Interval:
        low, high = bounds_of(self.name, schema)
        if not all(low < point < high for point in self.points):
            raise RequestError(
                f"formula: {self.text}: the points must be within the public bounds of "  # type: ignore[attr-defined]
                f"{self.name!r}, {number_text(low)} to {number_text(high)}"
            )
        return low, high


@dataclass(frozen=True)
class Cut(OfKnots):
    """A category of intervals: from one break up to, but not including, the next."""

    @property
    def text(self) -> str:
        """Canonical: inner breaks only."""
        return self._written("cut", "breaks")

    def parts(self, schema: Schema) -> list[Part]:
        """An indicator for every interval but the lowest."""
        ends = [number_text(end) for end in (*self.points, self._bounds(schema)[1])]
        levels = [f"{low} to {high}" for low, high in pairwise(ends)]
        return [
            Part(f"{self.text}[{level}]", (0.0, 1.0), (("cut", self.text), level))
            for level in levels
        ]

    def values(self, schema: Schema, table: Mapping[str, Any]) -> list[FloatArray]:
        x = np.asarray(table[self.name], dtype=np.float64)
        place = np.searchsorted(np.array(self.points), x, side="right")
        return [(place == k).astype(np.float64) for k in range(1, len(self.points) + 1)]


@dataclass(frozen=True)
class BSpline(OfKnots):
    """B-splines with these inner knots."""

    degree: int = 3

    @property
    def text(self) -> str:
        """Canonical: the degree only if it isn't 3."""
        more = "" if self.degree == 3 else f", degree={self.degree}"
        return self._written("bs", "knots", more)

    def parts(self, schema: Schema) -> list[Part]:
        """The basis functions but the first."""
        self._bounds(schema)
        count = len(self.points) + self.degree
        return [Part(f"{self.text}[{k}]", (0.0, 1.0), share=True) for k in range(1, count + 1)]

    def values(self, schema: Schema, table: Mapping[str, Any]) -> list[FloatArray]:
        x = np.asarray(table[self.name], dtype=np.float64)
        return b_spline(x, self._bounds(schema), self.points, self.degree)


@dataclass(frozen=True)
class NaturalSpline(OfKnots):
    """Cardinal natural cubic splines with these inner knots."""

    @property
    def text(self) -> str:
        return self._written("ns", "knots")

    def parts(self, schema: Schema) -> list[Part]:
        """A number for every knot but the lower bound."""
        ends = self._bounds(schema)
        names = [number_text(point) for point in (*self.points, ends[1])]
        bounds = natural_spline_bounds(ends, self.points)
        return [Part(f"{self.text}[{name}]", own) for name, own in zip(names, bounds, strict=True)]

    def values(self, schema: Schema, table: Mapping[str, Any]) -> list[FloatArray]:
        x = np.asarray(table[self.name], dtype=np.float64)
        return natural_spline(x, self._bounds(schema), self.points)


# --- terms ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """A product of factors."""

    factors: tuple[Factor, ...]

    @classmethod
    def of(cls, factors: Sequence[Factor]) -> Term:
        """In canonical order, each factor once."""
        found = {factor.text: factor for factor in factors}
        if len(found) > MAX_FACTORS:
            raise RequestError(f"formula: an interaction has at most {MAX_FACTORS} factors")
        term = cls(tuple(found[text] for text in sorted(found)))
        if len(term.text) > MAX_TERM:
            raise RequestError(
                f"formula: a term is longer than {MAX_TERM} characters: {term.text[:60]}..."
            )
        return term

    @property
    def text(self) -> str:
        """Canonical: by it the term is known."""
        return ":".join(factor.text for factor in self.factors)

    @property
    def column(self) -> str | None:
        """The table column that the term just is, if it is one."""
        if len(self.factors) > 1:
            return None
        factor = self.factors[0]
        if isinstance(factor, Levels):
            return factor.name
        if isinstance(factor, Arithmetic) and factor.expression.op == "column":
            return str(factor.expression.value)
        return None

    @property
    def feature(self) -> str:
        """What a design calls it: the column's own name, or the term's text."""
        return self.text if self.column is None else self.column

    @property
    def columns(self) -> tuple[str, ...]:
        """The table columns that it reads, each once."""
        return tuple(dict.fromkeys(name for factor in self.factors for name in factor.columns))

    def design_columns(self, schema: Schema) -> list[DesignColumn]:
        """One for every choice of parts."""
        if not self.columns:
            raise RequestError(f"formula: {self.text}: it has no column, so it is a constant")
        parts = [factor.parts(schema) for factor in self.factors]
        if prod(map(len, parts)) > MAX_COLUMNS:
            raise RequestError(
                f"formula: {self.text} expands to {prod(map(len, parts))} columns, at most "
                f"{MAX_COLUMNS} are supported; merge levels"
            )
        grouped = [len(made) for made in parts if made[0].cell is not None or made[0].share]
        return [self._column(choice, prod(grouped)) for choice in product(*parts)]

    def _column(self, choice: Sequence[Part], members: int) -> DesignColumn:
        """One choice; its group, if there is one, has so many members."""
        name = ":".join(part.label for part in choice)
        numbers = [part for part in choice if part.cell is None and not part.share]
        low, high = reduce(product_of, (part.bounds for part in numbers), (1.0, 1.0))
        if numbers and members == 1:
            if len(numbers) < len(choice):  # times 0 or 1
                low, high = min(low, 0.0), max(high, 0.0)
            centre, half = low / 2 + high / 2, high / 2 - low / 2
            self._check_width(name, centre, half)
            return DesignColumn(name, self.text, None, centre, half)
        half = max(-low, high)
        self._check_width(name, 0.0, half)
        cell = tuple(part.cell for part in choice if part.cell is not None)
        return DesignColumn(
            name,
            self.text,
            cell[0][1] if len(choice) == 1 and cell else None,
            0.0,
            half,
            group=("term", self.text, *(part.label for part in numbers)),
            cell=cell,
            signed=low < 0,
            is_indicator=len(cell) == len(choice),
            cut_off=any(part.share for part in choice),
        )

    def _check_width(self, name: str, centre: float, half: float) -> None:
        # As for bounds of columns (`core.schema`).
        if not half > 1e-9 * abs(centre):
            raise RequestError(f"formula: {name} is constant within the bounds; leave it out")
        if not 1e-60 <= half <= 1e60:
            raise RequestError(
                f"formula: {name} has values too small or too large to compute with; give its "
                "columns other units"
            )

    def values(self, schema: Schema, table: Mapping[str, Any]) -> list[FloatArray]:
        """Of every design column in every row, in original units.

        The table has numbers as doubles, categories as positions among their declared levels.
        """
        values = [factor.values(schema, table) for factor in self.factors]
        return [reduce(np.multiply, choice) for choice in product(*values)]

    def confined(self, schema: Schema, table: Mapping[str, Any]) -> list[FloatArray]:
        """The same of rows within the bounds: every number is kept within its interval.

        Whatever floating point made of an expression, NaN included, a number is within its bounds,
        and in products with shares and indicators the sizes of a group add up to at most its
        half-width, but for the roundings of shares and of one product for each factor.
        """
        values = []
        for factor in self.factors:
            made = zip(factor.parts(schema), factor.values(schema, table), strict=True)
            values.append([_kept_within(part, of_rows) for part, of_rows in made])
        return [reduce(np.multiply, choice) for choice in product(*values)]


def _kept_within(part: Part, values: FloatArray) -> FloatArray:
    if part.cell is not None or part.share:
        return values
    low, high = part.bounds
    return np.asarray(np.fmin(np.fmax(values, low), high))  # NaN becomes `low`


# --- reading --------------------------------------------------------------------------------------

_QUOTED = re.compile(r"`([^`]*)`")


def read_term(text: str, schema: Schema) -> Term:
    """The term that a canonical text is; refuses any other spelling, and plain columns."""
    term = _read(text, _Key(schema))
    if term.column is not None:
        raise RequestError(f"features: {text!r} is a column; give its own name, {term.column!r}")
    if term.text != text:
        raise RequestError(f"features: {text!r} is not how that term is written; use {term.text!r}")
    return term


class _Key:
    """A schema in a cache: equal if it declares the same."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._known = tuple(schema.columns.items())

    def __hash__(self) -> int:
        return hash(self._known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._known == other._known


@lru_cache(maxsize=4096)
def _read(text: str, key: _Key) -> Term:
    if len(text) > MAX_TERM:
        raise RequestError(f"features: a term has at most {MAX_TERM} characters")
    quoted = _QUOTED.findall(text)
    pieces = iter(quoted)
    factors = [
        re.sub("``", lambda _: f"`{next(pieces)}`", part)
        for part in _QUOTED.sub("``", text).split(":")
    ]
    return Term.of([read_factor(factor, key.schema) for factor in factors])


def read_factor(text: str, schema: Schema) -> Factor:
    """The factor that a text is, in any spelling that formulas allow."""
    stand_in = "quoted_"
    while stand_in in text:
        stand_in += "_"
    quoted = _QUOTED.findall(text)
    names = {f"{stand_in}{i}": name for i, name in enumerate(quoted)}
    fresh = iter(names)
    try:
        tree = ast.parse(_QUOTED.sub(lambda _: next(fresh), text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RequestError(f"formula: {text[:60]!r} cannot be read as a term") from None
    if isinstance(tree, ast.Call) and (name := called(tree)) not in (*FUNCTIONS, "I"):
        return _call(name, tree, names, schema)
    expression = parsed(tree, names)
    if expression.op == "column":
        return plain_factor(str(expression.value), schema)
    return Arithmetic(expression)


def plain_factor(name: str, schema: Schema) -> Factor:
    """A column of the table as a factor."""
    if isinstance(schema.columns.get(name), Category):
        return Levels(name)
    bounds_of(name, schema)  # it is declared, and has bounds
    return Arithmetic(Expression("column", value=name))


# What is well known elsewhere and looks at the data: the remedy.
_KNOTS = "give its inner knots, such as {}(age, knots=(30, 50)): public points, as bounds are"
_LOOKS = {
    **dict.fromkeys(
        ("scale", "center", "standardize", "zscore"),
        "subtract and divide by public numbers instead, such as I((age - 50)/10)",
    ),
    "poly": "write the powers instead, such as I(age - 50) + I((age - 50)**2)",
    **dict.fromkeys(("cr", "cs", "cc", "te", "s"), _KNOTS.format("ns")),
    **dict.fromkeys(("qcut", "ntile"), "use cut with public breaks: cut(age, breaks=(40, 65))"),
    "lag": "put the earlier value into a column of its own",
    "rank": "use cut with public breaks, or a spline with public knots",
}
_KNOWN = ", ".join((*FUNCTIONS, "I", "C", "cut", "bs", "ns"))


def _call(name: str, tree: ast.Call, names: Mapping[str, str], schema: Schema) -> Factor:
    if name in _LOOKS:
        raise RequestError(
            f"formula: {name} looks at the data, which nobody has paid for; {_LOOKS[name]}"
        )
    if name not in _WORDS:
        raise RequestError(
            f"formula: there is no function {name}; there are {_KNOWN}. Compute anything else "
            "before publishing, as a column with public bounds"
        )
    if len(tree.args) < 1 or not isinstance(tree.args[0], ast.Name):
        raise RequestError(f"formula: {name} takes a column as its first argument")
    column = names.get(tree.args[0].id, tree.args[0].id)
    given: dict[str, ast.expr] = {}
    if len(tree.args) > 1:
        if len(tree.args) > 2 or name == "C":
            raise RequestError(f"formula: {name}: name its arguments, such as {_EXAMPLES[name]}")
        given[_WORDS[name][0]] = tree.args[1]
    for keyword in tree.keywords:
        if keyword.arg is None or keyword.arg in given:
            raise RequestError(f"formula: {name}: an argument is given twice or has no name")
        given[keyword.arg] = keyword.value
    if "df" in given:
        raise RequestError(
            f"formula: {name}(df=...) puts its knots where the data are, which nobody has paid "
            f"for; {_KNOTS.format(name)}"
        )
    for word in given:
        if word not in _WORDS[name]:
            raise RequestError(
                f"formula: {name} takes no argument {word!r} here; write {_EXAMPLES[name]}"
            )
    if name == "C":
        return _levels(column, given, schema)
    degree = number(given["degree"]) if "degree" in given else 3.0
    if degree not in range(1, MAX_DEGREE + 1):
        raise RequestError(f"formula: bs: degree is a whole number from 1 to {MAX_DEGREE}")
    points = _points(name, given)
    if name == "bs":
        return BSpline(column, points, int(degree))
    if name == "ns":
        return NaturalSpline(column, points)
    ends = bounds_of(column, schema)
    inner = tuple(point for point in points if point not in ends)
    if not inner:
        raise RequestError(f"formula: cut({column}): no break is within the bounds of {column!r}")
    return Cut(column, inner)


_EXAMPLES = {
    "C": "C(region, levels=['north', 'south'])",
    "cut": "cut(age, breaks=(40, 65))",
    "bs": "bs(age, knots=(30, 50))",
    "ns": "ns(age, knots=(30, 50))",
}
# What each takes beside the column: its points (or levels) first.
_WORDS = {"C": ("levels",), "cut": ("breaks",), "bs": ("knots", "degree"), "ns": ("knots",)}


def _points(name: str, given: Mapping[str, ast.expr]) -> tuple[float, ...]:
    word = _WORDS[name][0]
    if word not in given:
        raise RequestError(
            f"formula: {name} needs public {word}, such as {_EXAMPLES[name]}; they may not be "
            "found in the data"
        )
    node = given[word]
    if not isinstance(node, ast.Tuple | ast.List):
        raise RequestError(f"formula: {name}: {word} must be a list such as {_EXAMPLES[name]}")
    points = tuple(number(item) for item in node.elts)
    if not 1 <= len(points) <= MAX_KNOTS:
        raise RequestError(f"formula: {name}: give 1 to {MAX_KNOTS} {word}")
    if any(b <= a for a, b in pairwise(points)):
        raise RequestError(f"formula: {name}: {word} must increase")
    return points


def _levels(column: str, given: Mapping[str, ast.expr], schema: Schema) -> Factor:
    declared = schema.columns.get(column)
    if not isinstance(declared, Category):
        bounds_of(column, schema)  # it is declared
        raise RequestError(
            f"formula: C({column}): the schema declares a number, without public levels; declare "
            f"it as a category with levels, or use cut({column}, breaks=(...))"
        )
    if "levels" in given:
        node = given["levels"]
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        texts = [
            level_text(item.value) if isinstance(item, ast.Constant) else None for item in items
        ]
        if set(texts) != set(declared.levels) or len(texts) != len(declared.levels):
            raise RequestError(
                f"formula: C({column}): its levels are those that the schema declares, "
                f"{', '.join(declared.levels)}; change the schema, or leave levels out"
            )
    return Levels(column)
