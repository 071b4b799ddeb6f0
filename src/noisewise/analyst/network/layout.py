"""A network as arrays: nodes are numbers in topological order, tables are ranges of cells.

Inside this room the axes of every table are sorted by topological number. A node comes after its
parents, so its own axis is still the last one, and rows (one a configuration of the parents) are
contiguous. `Layout.inward` and `Layout.outward` translate from and to the declared order of
parents, which everything outside uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Where the tables of a network are."""

    network: Network

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Nodes in topological order: number i is nodes[i]."""
        return self.network.order

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of every node."""
        return {node: i for i, node in enumerate(self.nodes)}

    def find(self, name: str, where: str = "") -> int:
        """The number of a node that a user names; `where` begins what is said if there is none."""
        if name not in self.number:
            shown = ", ".join(self.network.nodes[:20])
            raise RequestError(f"{where}{name!r} is not a node; the nodes are {shown}")
        return self.number[name]

    @cached_property
    def arity(self) -> Integers:
        """Levels of every node."""
        return np.array([self.network.arity(node) for node in self.nodes], dtype=np.int64)

    @cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Sorted parents of every node, by number."""
        return tuple(
            tuple(sorted(self.number[name] for name in self.network.parents[node]))
            for node in self.nodes
        )

    @cached_property
    def families(self) -> tuple[tuple[int, ...], ...]:
        """Sorted parents, then the node."""
        return tuple((*parents, i) for i, parents in enumerate(self.parents))

    @cached_property
    def offsets(self) -> Integers:
        """Where the cells of each node's table begin, with the end of the last: shape (d + 1,)."""
        sizes = [self.size(family) for family in self.families]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def cells(self) -> int:
        """Cells of all tables together."""
        return int(self.offsets[-1])

    def size(self, names: Iterable[int]) -> int:
        """Cells of a table over these nodes."""
        return math.prod(int(self.arity[j]) for j in names)

    def shape(self, names: Sequence[int]) -> tuple[int, ...]:
        """Shape of a table over these nodes."""
        return tuple(int(self.arity[j]) for j in names)

    def part(self, i: int) -> slice:
        """The cells of node i."""
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def axes(self, i: int) -> list[int]:
        """For every sorted axis of node i, which axis it has outside."""
        outside = [self.number[name] for name in self.network.family(self.nodes[i])]
        return [outside.index(j) for j in self.families[i]]

    def inward(self, i: int, table: Any) -> NDArray[Any]:
        """Cells of node i in the order used here, from a table in the declared order."""
        return np.ascontiguousarray(np.transpose(np.asarray(table), self.axes(i))).reshape(-1)

    def outward(self, i: int, cells: NDArray[Any]) -> NDArray[Any]:
        """A table in the declared order, from cells; leading axes (chains, draws) are kept."""
        lead = cells.shape[:-1]
        table = cells.reshape(*lead, *self.shape(self.families[i]))
        back = np.argsort(self.axes(i))
        return np.ascontiguousarray(
            np.transpose(table, [*range(len(lead)), *(len(lead) + back).tolist()])
        )

    @cached_property
    def row_start(self) -> Integers:
        """First cell of the row to which every cell belongs, shape (cells,)."""
        cell = np.arange(self.cells)
        for i in range(len(self.nodes)):
            part = self.part(i)
            cell[part] -= (cell[part] - part.start) % int(self.arity[i])
        return cell

    @cached_property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        """Stride of every axis of every family's table, in cells."""
        return tuple(strides_of(self.shape(family)) for family in self.families)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a C-ordered table, in cells."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def row_sums(layout: Layout, cells: Floats) -> Floats:
    """For every cell the sum over its row; leading axes are kept."""
    starts = np.unique(layout.row_start)
    sums = np.add.reduceat(cells, starts, axis=-1)
    lengths = np.diff(np.append(starts, layout.cells))
    return np.asarray(np.repeat(sums, lengths, axis=-1))


def normalised(cells: Floats, layout: Layout) -> Floats:
    """Rows that add up to one; a row of zeros (all gammas underflowed) becomes uniform."""
    uniform = 1.0 / row_sums(layout, np.ones(layout.cells))
    total = row_sums(layout, cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, cells / total, uniform)
