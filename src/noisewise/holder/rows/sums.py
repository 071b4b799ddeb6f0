"""Exact sums over rows: the same integers from every engine, in any order, on any machine.

Rows on the grid are integers. `SumAccumulator` keeps them as doubles and multiplies blocks of them
with BLAS, because that is where machines are fast, and still the sums are exact. A product of two
entries of a Gram matrix is at most 2**32 in size (two 16-bit values, or two products of two 8-bit
values), and a block has at most 2**14 rows, so every partial sum is an integer of at most
2**46 < 2**53: a double holds it exactly, and no order of summation, no blocking and no fused
multiply-add can change it. Blocks are then added up in 64-bit integers. With at most 2**30 rows
the total is at most 2**62.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Design, Geometry
from noisewise.core.schema import Category, Schema
from noisewise.core.statistics import FourthMoments, Summed
from noisewise.holder.rows import (
    Accumulator,
    Codes,
    Floats,
    Integers,
    ReadsDesign,
    check_row_count,
    flat,
)
from noisewise.holder.rows.levels import Narrow
from noisewise.holder.rows.units import averaged
from noisewise.holder.rows.values import DesignRows, RowGrid, filled, missing_value_error

# BLAS libraries start threads of their own for products above some size, and on a busy machine
# these threads wait for each other: a block took a hundred times as long. As measured, OpenBLAS
# keeps to one thread up to m * n * k = 2**18, and for a single narrow tile beyond that. So Gram
# matrices are computed in tiles of 16 x 16, from at most 2**10 rows if there are several tiles.
_TILE = 16
_MAX_BLOCK_ROWS_TILED = 1 << 10

# A block of rows should stay in a core's own cache through all passes over it. (Half of this made
# summing in memory take 1.15 times as long: each pass is a call.)
_BLOCK_BYTES = 1 << 21
_MAX_BLOCK_ROWS = 1 << 14
_MIN_BLOCK_ROWS = 1 << 7


@dataclass(frozen=True)
class SumPlan(ReadsDesign):
    """What to sum: the statistics of one design, with rows forced into one geometry."""

    design: Design
    geometry: Geometry
    statistics: tuple[Summed, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistics", tuple(self.statistics))
        names = [statistic.name for statistic in self.statistics]
        if not names or len(set(names)) < len(names):
            raise ValueError("statistics: give at least one, and each of them once")
        if not all(isinstance(statistic, Summed) for statistic in self.statistics):
            raise ValueError("statistics: only sums over rows; others are computed from those")
        if any(statistic.design != self.design for statistic in self.statistics):
            raise ValueError("statistics: all of them must be of the plan's design")

    def accumulator(self) -> Accumulator[Sums]:
        return averaged(self.design, SumAccumulator(self))


@dataclass(frozen=True)
class Sums:
    """The exact statistics of the rows. They are as private as the rows: never log or show them."""

    n: int = field(repr=False)  # the number of rows
    # By a statistic's name, its sums in the order of `Statistic.entries`, in units of 2**-32
    values: Mapping[str, tuple[int, ...]] = field(repr=False)


class SumAccumulator:
    """Adds up blocks of rows for all statistics of a plan, in one pass.

    Where rows are averaged first it takes means, one column for every column of the design.
    """

    def __init__(self, plan: SumPlan) -> None:
        self.n = 0
        self._plan = plan
        self._of_means = plan.design.schema.unit_column is not None
        self._parts = tuple(
            (_FourthMomentsPart if isinstance(one, FourthMoments) else _SecondMomentsPart)(
                plan, one
            )
            for one in plan.statistics
        )
        self._rows = DesignRows(plan.design, self._parts[0].grid.columns)
        width = max(part.width for part in self._parts)
        most = _MAX_BLOCK_ROWS if width <= _TILE else _MAX_BLOCK_ROWS_TILED
        self._block = max(_MIN_BLOCK_ROWS, min(most, _BLOCK_BYTES // (8 * width)))
        for part in self._parts:
            part.allocate(self._block)
        # The last statistic rounds in place, so that less has to fit into the cache.
        self._centred = self._parts[-1].w[1:]

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        rows = len(columns[0])
        check_row_count(self.n + rows)
        # Values far out of bounds may overflow on their way to a bound; NaN is dealt with below.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, rows, self._block):
                self._add_block([column[start : start + self._block] for column in columns])
        self.n += rows

    def result(self) -> Sums:
        pairs = zip(self._plan.statistics, self._parts, strict=True)
        return Sums(
            self.n, {statistic.name: tuple(part.values().tolist()) for statistic, part in pairs}
        )

    def state(self) -> Integers:
        return flat(self.n, *(part.values() for part in self._parts))

    def join(self, state: Integers) -> None:
        check_row_count(self.n + int(state[0]))
        self.n += int(state[0])
        start = 1
        for statistic, part in zip(self._plan.statistics, self._parts, strict=True):
            part.join(state[start : start + len(statistic.entries)])
            start += len(statistic.entries)

    def _add_block(self, columns: list[Floats | Codes]) -> None:
        centred: Any = columns  # means are
        if not self._of_means:
            centred = self._centred[:, : len(columns[0])]
            self._rows.fill(columns, centred)
        for part in self._parts:
            part.add(centred, columns, self._plan.design)


class _SecondMomentsPart:
    """The Gram matrix of w = (1, x, y) on the 16-bit grid; its upper triangle, to be precise.

    Categories with many levels are summed level by level, if this is the only part.
    """

    def __init__(self, plan: SumPlan, statistic: Summed) -> None:
        grid = RowGrid.of(plan.design, plan.geometry, statistic.degree)
        alone = [other.degree for other in plan.statistics] == [2]
        averaged_rows = plan.design.schema.unit_column is not None
        narrow = Narrow(plan.design, grid.columns, allowed=alone and not averaged_rows)
        self._narrow = narrow
        self.grid = replace(grid, columns=narrow.columns)
        self.width = self._gram_size(len(narrow.columns))
        self._gram = np.zeros((self.width, self.width))
        # The Gram matrix, and behind it sums by level.
        by_level = narrow.size - narrow.width**2
        self.total = np.zeros(self.width**2 + by_level, dtype=np.int64)
        self._matrix = self.total[: self.width**2].reshape(self._gram.shape)
        self._picks = self._positions(statistic)

    def allocate(self, rows: int) -> None:
        self.w = np.empty((len(self.grid.columns) + 1, rows))
        self.w[0] = self.grid.one

    def add(
        self, centred: Iterable[Floats], columns: Sequence[Floats | Codes], design: Design
    ) -> None:
        w = self.w[:, : len(columns[0])]
        self.grid.round_block(centred, out=w[1:])
        self._multiply(w)
        # The sum of a column of clipped values is NaN exactly if one of them is. Most blocks have
        # none, so this is cheaper than to look for them first.
        missing = np.flatnonzero(np.isnan(self._column_sums(w)))
        if len(missing):
            self._fill(w, missing, design)
            self._multiply(w)
        self._matrix += self._gram.astype(np.int64)
        self._narrow.add_levels(self.total, w, columns)

    def values(self) -> Integers:
        return np.asarray(self.total[self._picks])

    def join(self, values: Integers) -> None:
        self.total[self._picks] += values  # every entry has a place of its own

    def _multiply(self, w: Floats) -> None:
        """Put the sums of products of all pairs of factors into the Gram matrix's upper tiles."""
        self.grid.shrink_block(w[1:-1])
        factors, gram = self._factors(w), self._gram
        for i in range(0, self.width, _TILE):
            for j in range(i, self.width, _TILE):
                left, right = factors[i : i + _TILE], factors[j : j + _TILE]
                np.matmul(left, right.T, out=gram[i : i + _TILE, j : j + _TILE])

    def _fill(self, w: Floats, missing: npt.NDArray[np.intp], design: Design) -> None:
        for j in missing:
            column = self.grid.columns[j]
            if column.fill is None:
                raise missing_value_error(design.schema, design.sources[column.source])
            w[j + 1][np.isnan(w[j + 1])] = column.fill

    def _column_sums(self, w: Floats) -> Floats:
        """The sums of the design's columns in the latest block, up to a factor."""
        return np.asarray(self._gram[0, 1:])

    def _gram_size(self, p: int) -> int:
        return p + 1

    def _factors(self, w: Floats) -> Floats:
        """The monomials whose products, two at a time, are the statistic's entries."""
        return w

    def _positions(self, statistic: Summed) -> npt.NDArray[np.intp]:
        return self._narrow.positions(*np.array(statistic.entries, dtype=np.intp).T)


class _FourthMomentsPart(_SecondMomentsPart):
    """The Gram matrix of all products v_a v_b of v = (1, x), on the 8-bit grid.

    It holds every monomial of degree four, most of them several times; each is picked once.
    """

    def allocate(self, rows: int) -> None:
        super().allocate(rows)
        self._products = np.empty((self.width, rows))

    def _column_sums(self, w: Floats) -> Floats:
        return np.asarray(np.add.reduce(w[1:], axis=1))  # the target is not in the Gram matrix

    def _gram_size(self, p: int) -> int:
        return p * (p + 1) // 2  # pairs a <= b of the constant and the p - 1 features

    def _factors(self, w: Floats) -> Floats:
        v = w[:-1]
        products = self._products[:, : w.shape[1]]
        start = 0
        for a in range(len(v)):
            stop = start + len(v) - a
            np.multiply(v[a], v[a:], out=products[start:stop])
            start = stop
        return products

    def _positions(self, statistic: Summed) -> npt.NDArray[np.intp]:
        indices = range(len(self.grid.columns))
        pairs = list(combinations_with_replacement(indices, 2))
        position = np.zeros((len(indices), len(indices)), dtype=np.intp)
        position[tuple(np.array(pairs).T)] = np.arange(len(pairs))
        a, b, c, d = np.array(statistic.entries, dtype=np.intp).T
        return np.asarray(position[a, b] * self.width + position[c, d])


# --- by the level of a public column, for `holder.partition` ---------------------------------


@dataclass(frozen=True)
class PartitionPlan:
    """Sums by level."""

    each: SumPlan
    column: str
    schema: Schema

    @property
    def sources(self) -> tuple[str, ...]:
        """The table columns to read, the one that parts them last."""
        return (*self.each.sources, self.column)

    def accumulator(self) -> PartitionAccumulator:
        return PartitionAccumulator(self)


class PartitionAccumulator:
    """Hands every row to the accumulator of its level."""

    def __init__(self, plan: PartitionPlan) -> None:
        self.n = 0
        self._plan = plan
        column = plan.schema.columns[plan.column]
        assert isinstance(column, Category)
        self._parts: list[Accumulator[Sums]] = [plan.each.accumulator() for _ in column.levels]

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        codes = filled(columns[-1], self._plan.schema, self._plan.column)
        for code, part in enumerate(self._parts):
            mine = np.flatnonzero(codes == code)
            if len(mine):
                part.add([column[mine] for column in columns[:-1]])
        self.n += len(codes)

    def state(self) -> Integers:
        return flat(self.n, *(part.state() for part in self._parts))

    def join(self, state: Integers) -> None:
        self.n += int(state[0])
        for part, own in zip(self._parts, np.split(state[1:], len(self._parts)), strict=True):
            part.join(own)

    def result(self) -> tuple[Sums, ...]:
        return tuple(part.result() for part in self._parts)
