"""Rows go into blocks at random, and are summed there exactly, in one pass.

Memory does not grow with the number of rows: 8 bytes for each limb of each block, and 2**13 rows at
a time on their way through. Compiled code loads when rows come.

**The value map**: how a table's value becomes an integer of at most 59 bits.

number with bounds
    t = rint((x - centre) * s) with s = 2**50 / half_width, clipped to ±2**50.
number without bounds
    t = rint(x * s) with s = 2**29 / unit, clipped to ±2**59: values saturate at 2**30 units.
indicator of a level
    1 where the value is that level, else 0.
missing
    The schema's fill value takes its place, through the same map; without one it is a `DataError`.

Infinities end on the bounds. The statistics of a block are exact sums of these integers, so the
finest rounding is all that the map loses: 2**-51 of a half-width, or 2**-30 of a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Design
from noisewise.core.schema import Category, Unbounded
from noisewise.holder.mechanisms import randomness
from noisewise.holder.rows import Codes, Floats, Integers, ReadsDesign, check_row_count, flat
from noisewise.holder.rows.values import filled

BOUNDED_BITS = 50
UNBOUNDED_BITS = 59
UNIT_BITS = 29


@dataclass(frozen=True)
class BlockColumn:
    """How one design column becomes an integer: x ≈ centre + step * t."""

    source: int  # position among the design's sources
    code: int | None  # for an indicator, the position of its level among the declared levels
    centre: float
    scale: float
    limit: int  # the largest |t|

    @property
    def step(self) -> float:
        """What one integer step is worth in the table's units."""
        return 1 / self.scale


class BlockGrid:
    """The value map of one design; the target is the last column."""

    def __init__(self, design: Design) -> None:
        self._schema = design.schema
        self._sources = design.sources
        self.columns = tuple(_columns(design))

    def integers(self, columns: Sequence[Floats | Codes]) -> Integers:
        """All rows on the grid; shape (rows, columns)."""
        named = zip(columns, self._sources, strict=True)
        complete = [filled(values, self._schema, name) for values, name in named]
        result = np.empty((len(columns[0]), len(self.columns)), dtype=np.int64)
        for k, column in enumerate(self.columns):
            values = complete[column.source]
            if column.code is not None:
                result[:, k] = values == column.code
                continue
            # Values far out of range may overflow on their way to the limit.
            with np.errstate(over="ignore"):
                on_grid = np.rint((values - column.centre) * column.scale)
            result[:, k] = np.clip(on_grid, -float(column.limit), float(column.limit))
        return result


def _columns(design: Design) -> list[BlockColumn]:
    positions = {name: position for position, name in enumerate(design.sources)}
    columns = []
    for column in design.columns:
        declared = design.schema.columns[column.source]
        source = positions[column.source]
        if isinstance(declared, Category):
            assert column.level is not None
            code = declared.levels.index(column.level)
            columns.append(BlockColumn(source, code, 0.0, 1.0, 1))
        elif isinstance(declared, Unbounded):
            scale = 2.0**UNIT_BITS / declared.unit
            columns.append(BlockColumn(source, None, 0.0, scale, 1 << UNBOUNDED_BITS))
        else:
            scale = 2.0**BOUNDED_BITS / column.half_width
            columns.append(BlockColumn(source, None, column.centre, scale, 1 << BOUNDED_BITS))
    return columns


# --- blocks of rows, and their sums ---------------------------------------------------------------

LIMB_BITS = 44
CARRY_EVERY = 1 << 18
_PASS_ROWS = 1 << 13

Blocks = npt.NDArray[np.uint32]


def limb_count(columns: int) -> int:
    """Limbs of one block: its rows, two for each column, three for each product of two."""
    return 1 + 2 * columns + 3 * (columns * (columns + 1) // 2)


@dataclass(frozen=True)
class BlockPlan(ReadsDesign):
    """What to sum: all products of two columns of a design, within every block."""

    design: Design
    # M and r
    blocks: int
    partitions: int

    def accumulator(self) -> BlockAccumulator:
        return BlockAccumulator(self)

    @property
    def memory(self) -> int:
        """Bytes that one accumulator needs for its sums."""
        return 8 * self.blocks * self.partitions * limb_count(len(self.design.columns))


@dataclass(frozen=True)
class BlockSums:
    """The exact sums of every block. They are as private as the rows: never log or show them."""

    n: int = field(repr=False)  # the number of rows
    # (partitions, M, limb_count), for each block its rows, the sums of its columns and those of
    # their products, as `limbs.carry` leaves them
    limbs: Integers = field(repr=False)


def draw_blocks(rows: int, partitions: int, blocks: int) -> Blocks:
    """Blocks for new rows, drawn for each row and partition anew; shape (partitions, rows).

    **Claim.** Let F be a function of the r M blocks (each a set of rows, in no order) such that for
    all contents that differ in at most m blocks of each partition F's output laws are ε-close. Then
    the whole procedure, assignment included, is ε-differentially private for a unit of m rows, for
    `replace_one` and for `add_remove_one`, *for tables without order*.

    **Proof.** Each row draws its r blocks independently of everything, by the same law. Hence the
    law of the blocks' contents depends on the table only as on a multiset of rows: permuting rows
    permutes independent draws of equal laws. Take two neighbouring tables. Under `replace_one` pair
    up their rows so that all but m pairs are equal (sorting a table anew after a replacement
    changes nothing, because order does not matter). Give both rows of a pair the same draws: both
    tables then have the right law of contents, and given the draws they differ in at most m blocks
    of each partition, namely those that the m unequal pairs are in. Under `add_remove_one` do the
    same with the common rows; the m others are in at most m blocks of each partition. So P(output |
    draws) is ε-close for every outcome of the draws, and averaging over them keeps that. ∎

    The draws stay secret, and rows do not keep blocks by position. A public seed by position would
    be private for ordered tables only: in a file that is sorted by a sensitive value, replacing one
    record moves others to new positions, hence to new blocks, and any number of blocks may change.

    The law itself is free. A block is drawn as ⌊u M / 2**32⌋ from 32 random bits u, which is
    uniform up to M / 2**32.
    """
    words = np.frombuffer(randomness.octets(4 * rows * partitions), dtype=np.uint32)
    drawn = (words.astype(np.uint64) * np.uint64(blocks)) >> np.uint64(32)
    return drawn.astype(np.uint32).reshape(partitions, rows)


class BlockAccumulator:
    """Puts rows into blocks at random, and adds them up there."""

    def __init__(self, plan: BlockPlan) -> None:
        self.n = 0
        self._plan = plan
        self._grid = BlockGrid(plan.design)
        self._columns = len(self._grid.columns)
        width = limb_count(self._columns)
        self._total = np.zeros((plan.partitions, plan.blocks, width), dtype=np.int64)
        self._limbs = np.empty((_PASS_ROWS, width), dtype=np.int64)
        self._since_carry = 0

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        rows = len(columns[0])
        check_row_count(self.n + rows)
        for start in range(0, rows, _PASS_ROWS):
            self._add([column[start : start + _PASS_ROWS] for column in columns])
        self.n += rows

    def result(self) -> BlockSums:
        self._carry()
        return BlockSums(self.n, self._total)

    def state(self) -> Integers:
        """See `Accumulator.state`. Every accumulator has drawn blocks for its own rows."""
        self._carry()
        return flat(self.n, self._total)

    def join(self, state: Integers) -> None:
        check_row_count(self.n + int(state[0]))
        self._carry()
        self.n += int(state[0])
        self._total += state[1:].reshape(self._total.shape)
        self._carry()

    def _add(self, columns: Sequence[Floats | Codes]) -> None:
        from noisewise.holder.blocks.limbs import add_rows, split_rows

        values = self._grid.integers(columns)
        rows = len(values)
        if self._since_carry + rows > CARRY_EVERY:
            self._carry()
        split_rows(values, self._limbs[:rows])
        add_rows(self._limbs[:rows], self._assign(values), self._total)
        self._since_carry += rows

    def _assign(self, values: Integers) -> Blocks:
        """Blocks for these rows, of which only the number counts."""
        return draw_blocks(len(values), self._plan.partitions, self._plan.blocks)

    def _carry(self) -> None:
        from noisewise.holder.blocks.limbs import carry

        carry(self._total, self._columns)
        self._since_carry = 0


def exact_sum(limbs: Sequence[int]) -> int:
    """The number that two or three limbs stand for."""
    return sum(int(limb) << (LIMB_BITS * place) for place, limb in enumerate(limbs))


# --- all rows, for models, which need more of a block than sums -----------------------------------


@dataclass(frozen=True)
class RowPlan(ReadsDesign):
    """Read all rows and keep them: models need more of a block than sums."""

    design: Design
    memory = 0  # of sums: there are none

    def accumulator(self) -> RowAccumulator:
        return RowAccumulator(self)


@dataclass(frozen=True)
class KeptRows:
    """All rows on the grid of the value map; the target is the last column."""

    n: int = field(repr=False)
    values: Integers = field(repr=False)  # (n, columns)


class RowAccumulator:
    """Keeps rows as integers."""

    def __init__(self, plan: RowPlan) -> None:
        self.n = 0
        self._grid = BlockGrid(plan.design)
        self._parts: list[Integers] = []

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        check_row_count(self.n + len(columns[0]))
        self._parts.append(self._grid.integers(columns))
        self.n += len(columns[0])

    def state(self) -> Integers:
        """See `Accumulator.state`. These integers are the rows themselves."""
        return flat(self.n, *self._parts)

    def join(self, state: Integers) -> None:
        check_row_count(self.n + int(state[0]))
        self.n += int(state[0])
        self._parts.append(state[1:].reshape(-1, len(self._grid.columns)))

    def result(self) -> KeptRows:
        """All rows so far, in the order of their integers."""
        empty = np.empty((0, len(self._grid.columns)), dtype=np.int64)
        values = np.concatenate([empty, *self._parts])
        return KeptRows(self.n, values[np.lexsort(values.T)])
