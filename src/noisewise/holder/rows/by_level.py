"""Sums by the level of a public column, in one pass: what `holder.partition` publishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisewise.core.schema import Category, Schema
from noisewise.holder.rows.plan import Accumulator, Codes, Floats, Integers, flat
from noisewise.holder.rows.sums import SumPlan, Sums
from noisewise.holder.rows.values import filled


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
        """A new, empty one."""
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
        """Add rows; see `Accumulator.add`."""
        codes = filled(columns[-1], self._plan.schema, self._plan.column)
        for code, part in enumerate(self._parts):
            mine = np.flatnonzero(codes == code)
            if len(mine):
                part.add([column[mine] for column in columns[:-1]])
        self.n += len(codes)

    def state(self) -> Integers:
        """See `Accumulator.state`."""
        return flat(self.n, *(part.state() for part in self._parts))

    def join(self, state: Integers) -> None:
        """See `Accumulator.join`."""
        self.n += int(state[0])
        for part, own in zip(self._parts, np.split(state[1:], len(self._parts)), strict=True):
            part.join(own)

    def result(self) -> tuple[Sums, ...]:
        """The sums of every level, in order."""
        return tuple(part.result() for part in self._parts)
