"""Family counts: how many rows have each joint level of a node and its parents, in one pass.

Counts are integers by nature, so every engine and every order of rows gives the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from noisewise.core.kinds.network.content import TABLE_BITS, Content
from noisewise.core.kinds.network.graph import Network
from noisewise.core.privacy import Event
from noisewise.core.schema import Schema
from noisewise.holder.rows import Codes, Floats, Integers, check_row_count, flat
from noisewise.holder.rows.values import filled

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FamilyCounts:
    """The exact counts. They are as private as the rows: never log or show them."""

    n: int = field(repr=False)  # the number of rows
    # By node, of `network.shape(node)`; or by the columns of each table (`CountPlan.families`)
    tables: Mapping[Any, Table] = field(repr=False)


@dataclass(frozen=True)
class CountPlan:
    """Count all families of a network."""

    network: Network
    # Other tables than those of the network's families, by the key that each will have
    families: Mapping[Any, tuple[str, ...]] | None = None

    @property
    def schema(self) -> Schema:
        """Declares the nodes."""
        return self.network.schema

    @property
    def sources(self) -> tuple[str, ...]:
        """The table columns to read: the nodes."""
        return self.network.nodes

    def accumulator(self) -> CountAccumulator:
        """A new, empty accumulator."""
        return CountAccumulator(self)


class CountAccumulator:
    """Counts all families, block by block."""

    def __init__(self, plan: CountPlan) -> None:
        self.n = 0
        network = plan.network
        self._plan = plan
        position = {name: i for i, name in enumerate(plan.sources)}
        wanted = plan.families or {node: network.family(node) for node in network.nodes}
        self._shape = {key: tuple(map(network.arity, names)) for key, names in wanted.items()}
        self._families = {
            key: [(position[name], network.arity(name)) for name in names]
            for key, names in wanted.items()
        }
        self._counts = {key: np.zeros(math.prod(s), np.int64) for key, s in self._shape.items()}

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        """Add rows; a missing value takes its public fill value, or is an error."""
        rows = len(columns[0])
        check_row_count(self.n + rows)
        schema, sources = self._plan.schema, self._plan.sources
        codes = [
            filled(column, schema, name) for column, name in zip(columns, sources, strict=True)
        ]
        for node, family in self._families.items():
            counts = self._counts[node]
            counts += np.bincount(_cell_numbers(codes, family), minlength=len(counts))
        self.n += rows

    def state(self) -> Integers:
        """See `Accumulator.state`."""
        return flat(self.n, *self._counts.values())

    def join(self, state: Integers) -> None:
        """See `Accumulator.join`."""
        check_row_count(self.n + int(state[0]))
        self.n += int(state[0])
        start = 1
        for node, counts in self._counts.items():
            self._counts[node] = counts + state[start : start + len(counts)]
            start += len(counts)

    def result(self) -> FamilyCounts:
        """The counts so far."""
        tables = {key: c.reshape(self._shape[key]).copy() for key, c in self._counts.items()}
        return FamilyCounts(self.n, tables)


def _cell_numbers(codes: Sequence[Codes], family: Sequence[tuple[int, int]]) -> Codes:
    """The C-order index of every row's cell. A family has at most 2**20 cells: 32 bits will do."""
    cells = codes[family[0][0]]
    for position, arity in family[1:]:
        cells = cells * np.int32(arity) + codes[position]
    return cells


# --- what every mechanism makes of them, and which records a unit can change ----------------------


class NetworkMechanism(Protocol):
    """Planned from public quantities only; `draw` is where counts become publishable."""

    def event(self) -> Event:
        """The privacy claim: what this mechanism costs."""

    def verify(self) -> None:
        """Check the claim by other means than it was planned by; raise if it does not hold."""

    def describe(self) -> dict[str, Any]:
        """What a dry run shows."""

    def draw(self, counts: FamilyCounts) -> Content:
        """Fresh noise, or fresh draws. Takes no seed."""

    def longest(self) -> Content:
        """What `draw` returns, with the longest integer of its range for every drawn one.

        Of several draws it holds one. Nothing is drawn, and no data is involved.
        """


def longest_draw(network: Network, lowest: int) -> tuple[Mapping[str, tuple[int, ...]]]:
    """One draw of tables with every split at 1 - ω, than which none has more digits."""
    top = (1 << TABLE_BITS) - lowest
    splits = {
        node: network.configurations(node) * (network.arity(node) - 1) for node in network.nodes
    }
    return ({node: (top,) * number for node, number in splits.items()},)
