"""The accumulator that engines fill: exact sums of all blocks of all partitions, in one pass.

Memory does not grow with the number of rows: 8 bytes for each limb of each block, and 2**13 rows at
a time on their way through.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisewise.holder.blocks.assignment import Blocks, draw_blocks
from noisewise.holder.blocks.grid import BlockGrid, Integers
from noisewise.holder.blocks.kernel import CARRY_EVERY, LIMB_BITS, add_rows, carry, split_rows
from noisewise.holder.blocks.plan import BlockPlan, BlockSums, limb_count
from noisewise.holder.plan import Codes, Floats
from noisewise.holder.sums import check_row_count

_PASS_ROWS = 1 << 13


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
        """Add rows; see `noisewise.holder.plan.Accumulator`."""
        rows = len(columns[0])
        check_row_count(self.n + rows)
        for start in range(0, rows, _PASS_ROWS):
            self._add([column[start : start + _PASS_ROWS] for column in columns])
        self.n += rows

    def merge(self, other: BlockAccumulator) -> None:
        """Add the rows that another accumulator of the same plan has seen."""
        check_row_count(self.n + other.n)
        self._carry()
        other._carry()
        self._total += other._total
        self._carry()
        self.n += other.n

    def result(self) -> BlockSums:
        """The sums so far."""
        self._carry()
        return BlockSums(self.n, self._total)

    def _add(self, columns: Sequence[Floats | Codes]) -> None:
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
        carry(self._total, self._columns)
        self._since_carry = 0


def exact_sum(limbs: Sequence[int]) -> int:
    """The number that two or three limbs stand for."""
    return sum(int(limb) << (LIMB_BITS * place) for place, limb in enumerate(limbs))
