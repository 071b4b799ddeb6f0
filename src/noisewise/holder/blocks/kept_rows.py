"""All rows, as integers: for models, which need more of a block than sums.

A file of its own, because whoever reads rows needs nothing that fits models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from noisewise.core.design import Design
from noisewise.holder.blocks.sums import BlockGrid
from noisewise.holder.rows.plan import (
    Codes,
    Floats,
    Integers,
    ReadsDesign,
    check_row_count,
    flat,
)


@dataclass(frozen=True)
class RowPlan(ReadsDesign):
    """Read all rows and keep them: models need more of a block than sums."""

    design: Design
    memory = 0  # of sums: there are none

    def accumulator(self) -> RowAccumulator:
        """A new, empty accumulator."""
        return RowAccumulator(self)


@dataclass(frozen=True)
class KeptRows:
    """All rows on the grid of the value map; the target is the last column.

    Parameters
    ----------
    n : int
    values : (n, columns) array of int64
    """

    n: int = field(repr=False)
    values: Integers = field(repr=False)


class RowAccumulator:
    """Keeps rows as integers."""

    def __init__(self, plan: RowPlan) -> None:
        self.n = 0
        self._grid = BlockGrid(plan.design)
        self._parts: list[Integers] = []

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        """Add rows; see `noisewise.holder.rows.plan.Accumulator`."""
        check_row_count(self.n + len(columns[0]))
        self._parts.append(self._grid.integers(columns))
        self.n += len(columns[0])

    def state(self) -> Integers:
        """See `Accumulator.state`. These integers are the rows themselves."""
        return flat(self.n, *self._parts)

    def join(self, state: Integers) -> None:
        """See `Accumulator.join`."""
        check_row_count(self.n + int(state[0]))
        self.n += int(state[0])
        self._parts.append(state[1:].reshape(-1, len(self._grid.columns)))

    def result(self) -> KeptRows:
        """All rows so far, in the order of their integers."""
        empty = np.empty((0, len(self._grid.columns)), dtype=np.int64)
        values = np.concatenate([empty, *self._parts])
        return KeptRows(self.n, values[np.lexsort(values.T)])
