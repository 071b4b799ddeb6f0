"""The value map: how a table's value becomes an integer. This is its only definition.

Every engine evaluates the following, in double precision and in this order. The row grid of a
statistic of degree m has ``bits = row_bits(m)`` binary digits after the point; ONE = 2**bits.

number
    With c the column's centre and s = ONE / half_width, both doubles that are computed once, here,
    and handed to every engine::

        t = floor((x - c) * s + 0.5),   then clipped to [-ONE, ONE],   then an integer.

    Clipping comes last, on the grid, so the bound holds by construction, whatever the roundings
    before it did; infinities end on the bounds.
indicator of a level
    ONE where the value is that level, else 0.
term of a formula
    The numbers that it is made of are clipped to their bounds, in doubles, after missing values
    were filled. `core.terms` makes an x of them, and the map of a number takes it to the grid, with
    the centre and the half-width of the term. A column of a group with B-splines is cut off,
    t = trunc(x * s), in place of rounded, so that the integers of a row's group add up to at most
    ONE in size (`core.terms.term`).
missing
    NULL, NaN, or a category's value that was not declared. The schema's fill value takes its
    place, through the same map; without one it is a `DataError`. Missing values must be found
    *before* the clipping: some databases clip NULL and NaN onto a bound.
ball
    Let q = Σ x_j² over the features (an exact integer) and R = floor(radius * ONE). If q > R² then
    every feature is scaled down::

        f = (R / sqrt(q)) * (1 - 2**-50),   x_j = trunc(x_j * f).

constant
    w_0 = ONE.
average
    Only where the schema names a unit column. Rows go onto a grid of 24 digits first and are
    averaged there (`holder.rows.units`); a mean t then takes the place of the value. Numbers become
    floor(t * 2**(bits - 24) + 0.5), shares of levels and other columns of a group
    trunc(t * 2**(bits - 24)).

**All engines agree bit for bit.** Every step is one IEEE 754 operation (-, *, +, /, sqrt are
correctly rounded; floor, trunc and the clipping are exact). NumPy and DuckDB evaluate each of them
as a separate pass over a vector, PostgreSQL by a call of its own, so a compiler has no chance to
fuse two of them or to change their order; and databases are tested for it (`engines.pushdown`).
`grouping.on_grid`, for rows that are averaged, is one loop, compiled without leave to do either.
Flushing subnormals to zero would change nothing either: adding 0.5 hides them. Terms are computed
here, by NumPy, for every engine: databases hand over the columns of a design with terms batch by
batch. `core.terms.expressions` says why batches of other lengths give the same values.

**The ball is never left.** Let u = 2**-53. The computed root is at least √q (1 - u), and the other
three operations overstate by at most a factor (1 + u) each, so before truncation

    |x_j'| ≤ |x_j| (R / √q) (1 + u)³ / (1 - u) (1 - 8u) < |x_j| R / √q,

because (1 + u)³ / (1 - u) < 1 + 5u and (1 + 5u)(1 - 8u) < 1. Truncation only shrinks. Summing the
squares gives ‖x'‖² < R² in exact integers. (1 - 2**-50 = 1 - 8u is a double.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisewise.core.design import Ball, Design, Geometry, row_bits
from noisewise.core.errors import DataError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.rows import Codes, Floats

# Pays for the four roundings of the ball's scaling; see the proof above.
BALL_MARGIN = 1 - 2**-50

MEAN_BITS = 24  # of means over the rows of a unit

_FEW_ROWS = 1 << 13  # of so many, all columns of a block fit a cache: fewer calls are faster


@dataclass(frozen=True)
class GridColumn:
    """How one design column gets onto the grid."""

    source: int  # position among `Design.sources`
    code: int | None  # for an indicator, the position of its level among the declared levels
    # The c and s of the value map; an indicator's raw value is 0 or 1, with c = 0 and s = ONE
    centre: float
    scale: float
    fill: int | None  # the grid value that stands in for a missing number
    # The term, and which of its columns; then there is no `source`
    term: tuple[str, int] | None = None
    # Whether it is cut off towards 0 in place of rounded: columns of a group with B-splines, and
    # means of any group, so that their sizes never add up to more than 1
    cut_off: bool = False
    but: bool = False  # whether it is 1 for every level but that of `code` (`rows.levels`)


@dataclass(frozen=True)
class RowGrid:
    """The value map of one design for statistics of one degree."""

    bits: int
    columns: tuple[GridColumn, ...]
    radius: int | None

    @classmethod
    def of(cls, design: Design, geometry: Geometry, degree: int) -> RowGrid:
        """The map that `design` and `geometry` ask for, on the grid for this degree."""
        bits = row_bits(degree)
        radius = geometry.grid_radius(bits) if isinstance(geometry, Ball) else None
        if design.schema.unit_column is not None:
            return cls.of_means(design, bits, radius)
        return cls.with_bits(design, bits, radius)

    @classmethod
    def of_means(cls, design: Design, bits: int, radius: int | None = None) -> RowGrid:
        """From means on the grid of `MEAN_BITS`, one for every design column, to `bits`."""
        scale = 2.0 ** (bits - MEAN_BITS)
        columns = (
            GridColumn(i, None, 0.0, scale, None, cut_off=column.group is not None)
            for i, column in enumerate(design.columns)
        )
        return cls(bits, tuple(columns), radius)

    @classmethod
    def with_bits(cls, design: Design, bits: int, radius: int | None = None) -> RowGrid:
        """The map of `design` on a grid with so many binary digits."""
        positions = {name: position for position, name in enumerate(design.sources)}
        columns = []
        seen: Counter[str] = Counter()
        for column in design.columns:
            scale = 2**bits / column.half_width
            code = fill = None
            if column.source in design.terms:
                term = (column.source, seen[column.source])
                seen[column.source] += 1
                columns.append(
                    GridColumn(-1, None, column.centre, scale, None, term, column.cut_off)
                )
                continue
            declared = design.schema.columns[column.source]
            if isinstance(declared, Category):
                assert column.level is not None
                code = declared.levels.index(column.level)
            elif column.source in design.schema.fill:
                value = float(design.schema.fill[column.source])
                fill = grid_value(value, column.centre, scale, 2**bits)
            columns.append(GridColumn(positions[column.source], code, column.centre, scale, fill))
        return cls(bits, tuple(columns), radius)

    @property
    def one(self) -> int:
        """The integer that stands for 1."""
        return 1 << self.bits

    @cached_property
    def _by_column(self) -> tuple[Floats, Any]:
        """Scales, (p, 1), and which columns are cut off."""
        scales = np.array([column.scale for column in self.columns]).reshape(-1, 1)
        return scales, np.flatnonzero([column.cut_off for column in self.columns])

    def round_block(self, centred: Iterable[Floats], out: Floats) -> None:
        """Round a block of centred values to the grid, and clip.

        `centred` is ``x - c`` for every design column, (p, rows), NaN where a number is missing;
        `out` receives integers (as doubles), NaN likewise.
        """
        one = float(self.one)
        if out.shape[1] <= _FEW_ROWS and isinstance(centred, np.ndarray):
            scales, cut_off = self._by_column
            np.multiply(centred, scales, out=out)
            if len(cut_off):
                out[cut_off] = np.trunc(out[cut_off]) - 0.5  # so that the next steps leave them
            np.add(out, 0.5, out=out)
            np.floor(out, out=out)
            np.clip(out, -one, one, out=out)
            return
        # Column by column, so that a column stays in the innermost cache through all steps.
        for values, column, row in zip(centred, self.columns, out, strict=True):
            np.multiply(values, column.scale, out=row)
            if column.cut_off:
                np.trunc(row, out=row)
            else:
                np.add(row, 0.5, out=row)
                np.floor(row, out=row)
            np.clip(row, -one, one, out=row)  # in one pass; NaN stays as it is

    def shrink_block(self, features: Floats) -> None:
        """Scale rows that are outside the ball onto it, in place; features is (k, rows).

        Rows with a NaN are left alone, and so are rows that have been shrunk already.
        """
        if self.radius is None:
            return
        squares = np.einsum("jr,jr->r", features, features)
        outside = squares > self.radius * self.radius
        if not outside.any():
            return
        factor = np.ones_like(squares)  # multiplying by 1 and truncating changes no integer
        factor[outside] = (self.radius / np.sqrt(squares[outside])) * BALL_MARGIN
        np.multiply(features, factor, out=features)
        np.trunc(features, out=features)


class DesignRows:
    """From blocks of table columns to blocks of centred design columns, which are then rounded.

    `columns` may be those of any of the design's grids: they differ in their scale alone.
    """

    def __init__(self, design: Design, columns: Sequence[GridColumn]) -> None:
        self._design = design
        self._columns = columns
        kinds = design.schema.columns
        self._is_category = [isinstance(kinds[name], Category) for name in design.sources]

    def fill(self, block: list[Floats | Codes], out: Floats) -> None:
        """Write ``x - c``, or 0 and 1 of indicators, into a (p, rows) array.

        `block` has one array for every source. Missing categories are filled, and missing numbers
        where terms are; elsewhere they stay NaN, and `RowGrid.fill` of a column tells what they
        become.
        """
        design = self._design
        for source, name in enumerate(design.sources):
            if self._is_category[source] or design.terms:
                block[source] = filled(block[source], design.schema, name)
        computed = self._terms(block)
        for row, column in zip(out, self._columns, strict=True):
            if column.term is not None:
                name, position = column.term
                np.subtract(computed[name][position], column.centre, out=row)
            elif column.code is None:
                np.subtract(block[column.source], column.centre, out=row)
            else:
                compare = np.not_equal if column.but else np.equal
                compare(block[column.source], column.code, out=row)

    def _terms(self, block: list[Floats | Codes]) -> dict[str, list[Floats]]:
        design = self._design
        if not design.terms:
            return {}
        table: dict[str, Any] = {}
        for name, values in zip(design.sources, block, strict=True):
            declared = design.schema.columns[name]
            if isinstance(declared, Number):
                table[name] = np.minimum(np.maximum(values, declared.lower), declared.upper)
            else:
                table[name] = values
        return {
            name: [
                np.broadcast_to(part, block[0].shape)
                for part in term.confined(design.schema, table)
            ]
            for name, term in design.terms.items()
        }


def grid_value(x: float, centre: float, scale: float, one: int) -> int:
    """The map of one number, for constants such as fill values."""
    return max(-one, min(one, math.floor((x - centre) * scale + 0.5)))


# --- missing values: a public fill value takes their place, or they are an error. Never dropped ---


def fill_code(schema: Schema, name: str) -> int | None:
    """The code that stands in for a category's missing values, if there is one."""
    column, fill = schema.columns[name], schema.fill.get(name)
    if isinstance(column, Category) and isinstance(fill, str):
        return column.levels.index(fill)
    return None


def filled(values: Floats | Codes, schema: Schema, name: str) -> Any:
    """A column's values (or codes) with the fill value where they are missing."""
    is_category = isinstance(schema.columns[name], Category)
    missing = values < 0 if is_category else np.isnan(values)
    if not missing.any():
        return values
    if name not in schema.fill:
        raise missing_value_error(schema, name)
    if is_category:
        code = fill_code(schema, name)
        assert code is not None  # the schema's fill values are levels
        return np.where(missing, np.int32(code), values)
    return np.where(missing, float(schema.fill[name]), values)


def missing_value_error(schema: Schema, name: str) -> DataError:
    """The error for a missing value without a fill; says nothing about how many, or where."""
    # The first remedy completes a pending charge; with another schema it is another request.
    if not isinstance(schema.columns[name], Category):
        problem = "has missing values; complete the data, or give"
    else:
        problem = (
            "has missing values or values that are not among its declared levels; complete or "
            "correct the data, or declare every level that is publicly known to occur, or give"
        )
    return DataError(
        f"column {name!r} {problem} a public fill value for it under 'missing:' in the schema, "
        "which makes it another request (rows are never dropped)"
    )
