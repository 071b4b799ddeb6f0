"""What to sum within blocks, and what comes of it. Compiled code loads when rows come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noisewise.core.design import Design
from noisewise.holder.blocks.grid import Integers
from noisewise.holder.plan import ReadsDesign

if TYPE_CHECKING:
    from noisewise.holder.blocks.sums import BlockAccumulator


def limb_count(columns: int) -> int:
    """Limbs of one block: its rows, two for each column, three for each product of two."""
    return 1 + 2 * columns + 3 * (columns * (columns + 1) // 2)


@dataclass(frozen=True)
class BlockPlan(ReadsDesign):
    """What to sum: all products of two columns of a design, within every block.

    Parameters
    ----------
    design : Design
    blocks, partitions : int
        M and r.
    """

    design: Design
    blocks: int
    partitions: int

    def accumulator(self) -> BlockAccumulator:
        """A new, empty accumulator."""
        from noisewise.holder.blocks.sums import BlockAccumulator

        return BlockAccumulator(self)

    @property
    def memory(self) -> int:
        """Bytes that one accumulator needs for its sums."""
        return 8 * self.blocks * self.partitions * limb_count(len(self.design.columns))


@dataclass(frozen=True)
class BlockSums:
    """The exact sums of every block. They are as private as the rows: never log or show them.

    Parameters
    ----------
    n : int
        The number of rows.
    limbs : (partitions, M, limb_count) array of int64
        For each block its rows, the sums of its columns and those of their products, as
        `kernel.carry` leaves them.
    """

    n: int = field(repr=False)
    limbs: Integers = field(repr=False)
