"""A rehearsal of reading: every declared column, as a release would, and nothing is kept.

It stands apart because workers of Spark load what a plan is made of, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.core.errors import DataError
from noisewise.core.schema import Schema
from noisewise.holder.rows import Integers, flat
from noisewise.holder.rows.units import Shelves, in_blocks
from noisewise.holder.rows.values import filled


@dataclass(frozen=True)
class ReadAll:
    """Read every declared column, and count rows, or people where rows have ids."""

    schema: Schema
    ids_only: bool = False  # read no other column

    @property
    def columns(self) -> tuple[str, ...]:
        """The declared columns that are read."""
        return () if self.ids_only else tuple(self.schema.columns)

    @property
    def sources(self) -> tuple[str, ...]:
        """These, and ids if any."""
        ids = self.schema.unit_column
        return (*self.columns, *(() if ids is None else (ids,)))

    def accumulator(self) -> RehearsalAccumulator:
        return RehearsalAccumulator(self)


class RehearsalAccumulator:
    """Looks for missing values and undeclared levels, and counts."""

    def __init__(self, plan: ReadAll) -> None:
        self.n = 0
        self._elsewhere = 0
        self._plan = plan
        self._problems: dict[str, str] = {}  # by column: all of them are told at once
        self._people = None if plan.schema.unit_column is None else Shelves(0)

    def add(self, columns: Sequence[Any]) -> None:
        for name, values in zip(self._plan.columns, columns, strict=False):
            try:
                filled(values, self._plan.schema, name)
            except DataError as error:
                self._problems[name] = str(error)
        if self._people is not None:
            for _, ids in in_blocks(columns[-1]):
                self._people.add(ids, np.empty((0, len(ids)), dtype=np.int32))
        self.n += len(columns[-1])

    def result(self) -> int:
        """The number of rows, or of people."""
        if self._problems:
            raise DataError("\n".join(self._problems[name] for name in sorted(self._problems)))
        if self._people is None:
            return self.n + self._elsewhere
        found = self._people.averages(np.empty(0, dtype=np.bool_))  # of columns there are none
        return sum(len(rows) for _, rows in found) + self._elsewhere

    def state(self) -> Integers:
        return flat(self.result())

    def join(self, state: Integers) -> None:
        self._elsewhere += int(state[0])
