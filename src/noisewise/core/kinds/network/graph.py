"""A discrete Bayesian network: which categories depend on which, all of it public.

The graph is declared by whoever asks, or chosen from the rows by a private mechanism
(`holder.networks.learned`) and published. Every node is a category with public levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise._arrays import FloatArray
from noisewise.core.design import names_of
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Schema

MAX_FAMILY_CELLS = 1 << 20
MAX_CELLS = 1 << 21


@dataclass(frozen=True)
class Network:
    """A directed acyclic graph over categorical columns.

    A table of a node (counts, probabilities, concentrations) is an array of `shape(node)` in C
    order: one axis for every parent, in the order in which they were given, and the node's own
    levels last. The codes along an axis are positions in the declared levels.

    Parameters
    ----------
    schema : Schema
        Declares every node as a category. Columns that are not nodes are dropped.
    parents : mapping of str to tuple of str
        The parents of every node; an empty tuple for a root. Use `make` for other spellings.
    """

    schema: Schema
    parents: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        if self.schema.unit_column is not None:
            raise RequestError(
                "unit: a network counts rows, and the mean of one person's rows has no level to "
                "count; declare 'max_rows_per_unit' in place of 'unit' (for a data set without "
                "charges under another unit)"
            )
        parents = _checked_parents(self.schema, self.parents)
        nodes = tuple(name for name in self.schema.columns if name in parents)
        object.__setattr__(self, "schema", self.schema.restricted_to(nodes))
        object.__setattr__(self, "parents", {node: parents[node] for node in nodes})
        _check_sizes(self)
        _ = self.order  # raises where there is a cycle

    @classmethod
    def make(cls, schema: Schema, edges: Any) -> Network:
        """A network from any usual description of a graph.

        Parameters
        ----------
        schema : Schema
        edges : mapping, sequence of pairs, or graph
            A mapping from every node to its parents (columns that are only ever parents may be
            left out), a list of (parent, child) pairs, or an object with ``edges()`` and
            ``nodes``, such as a networkx or pgmpy graph.
        """
        if isinstance(edges, Mapping):
            return cls(schema, _from_mapping(edges))
        if callable(getattr(edges, "edges", None)):
            nodes = getattr(edges, "nodes", ())
            return cls(schema, _from_pairs(edges.edges(), nodes() if callable(nodes) else nodes))
        if isinstance(edges, Iterable) and not isinstance(edges, str | bytes):
            return cls(schema, _from_pairs(edges, ()))
        raise RequestError(
            f"network: expected a mapping from nodes to their parents, a list of (parent, child) "
            f"pairs or a graph, got {type(edges).__name__}"
        )

    @classmethod
    def naive_bayes(
        cls, schema: Schema, target: str, features: Sequence[str] | None = None
    ) -> Network:
        """The network in which `target` is the only parent of every feature.

        Parameters
        ----------
        schema : Schema
        target : str
        features : sequence of str, optional
            Every other column of the schema unless given.
        """
        if features is None:
            features = [name for name in schema.columns if name != target]
        features = names_of(features)
        if target in features:
            raise RequestError(f"features: {target!r} is the target too; take it out")
        _no_repeats("features", list(features))
        return cls(schema, {target: (), **dict.fromkeys(features, (target,))})

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, in the schema's order."""
        return tuple(self.parents)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Every (parent, child) pair."""
        return tuple((parent, node) for node in self.nodes for parent in self.parents[node])

    def levels(self, node: str) -> tuple[str, ...]:
        """The public levels of a node, in declared order."""
        column = self.schema.columns[self._known(node)]
        assert isinstance(column, Category)
        return column.levels

    def arity(self, node: str) -> int:
        """Number of levels of a node."""
        return len(self.levels(node))

    def family(self, node: str) -> tuple[str, ...]:
        """The parents of a node, then the node itself: the axes of its tables."""
        return (*self.parents[self._known(node)], node)

    def shape(self, node: str) -> tuple[int, ...]:
        """Shape of a node's tables: the parents' arities, then its own."""
        return tuple(self.arity(name) for name in self.family(node))

    def cells(self, node: str) -> int:
        """Number of cells of a node's table."""
        return math.prod(self.shape(node))

    def configurations(self, node: str) -> int:
        """Number of joint levels of a node's parents: 1 for a root."""
        return self.cells(node) // self.arity(node)

    @property
    def total_cells(self) -> int:
        """Number of cells of all tables together."""
        return sum(self.cells(node) for node in self.nodes)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The nodes with every parent before its children, otherwise in declared order."""
        waiting = {node: set(parents) for node, parents in self.parents.items()}
        order: list[str] = []
        while waiting:
            ready = [node for node, parents in waiting.items() if not parents]
            if not ready:
                raise RequestError(
                    f"network: the edges form a cycle through {_cycle(waiting)}; a Bayesian "
                    "network has none, remove one of these edges"
                )
            for node in ready:
                del waiting[node]
            for parents in waiting.values():
                parents.difference_update(ready)
            order.extend(ready)
        return tuple(order)

    def to_json(self) -> dict[str, list[str]]:
        """The graph as a plain structure; the schema is written separately."""
        return {node: list(parents) for node, parents in self.parents.items()}

    def _known(self, node: str) -> str:
        if node not in self.parents:
            shown = ", ".join(self.nodes[:20])
            raise RequestError(f"node: {node!r} is not in the network; its nodes are {shown}")
        return node


# --- spellings of a graph -------------------------------------------------------------------------


def _from_mapping(edges: Mapping[Any, Any]) -> dict[str, tuple[str, ...]]:
    parents: dict[str, tuple[str, ...]] = {}
    for node, given in edges.items():
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise RequestError(
                f"network: the parents of {node!r} must be a list of column names, got "
                f"{str(given)[:60]!r}; write an empty list for a root"
            )
        parents[_name(node)] = tuple(given)
    for given in list(parents.values()):
        for parent in given:
            parents.setdefault(_name(parent), ())
    return parents


def _from_pairs(pairs: Iterable[Any], nodes: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    parents: dict[str, tuple[str, ...]] = {_name(node): () for node in nodes}
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) < 2:
            raise RequestError(
                f"network: expected (parent, child) pairs, got {str(pair)[:60]!r}; a column "
                "without edges needs the mapping from nodes to parents"
            )
        parent, child = _name(pair[0]), _name(pair[1])
        parents.setdefault(parent, ())
        parents[child] = (*parents.get(child, ()), parent)
    return parents


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise RequestError(f"network: a node is a column's name, got {str(value)[:60]!r}")
    return value


# --- checks ---------------------------------------------------------------------------------------


def _checked_parents(schema: Schema, given: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping) or not given:
        raise RequestError("network: there are no nodes; name at least one column")
    parents = {node: tuple(names) for node, names in given.items()}
    declared = ", ".join(list(schema.columns)[:20])
    for node, names in parents.items():
        for name in (node, *names):
            if not isinstance(name, str) or name not in schema.columns:
                raise RequestError(
                    f"network: {str(name)[:60]!r} is not declared in the schema; declared are: "
                    f"{declared}"
                )
            if name not in parents:
                raise RequestError(
                    f"network: {name!r} is a parent of {node!r} but no node itself; add it with an "
                    "empty list of parents"
                )
            if not isinstance(schema.columns[name], Category):
                raise RequestError(
                    f"network: {name!r} is a number, and a node must be a category; declare bands "
                    "of it as levels, and cut the column into them"
                )
        if node in names:
            raise RequestError(f"network: {node!r} is its own parent; take it out of its parents")
        _no_repeats(f"network: parents of {node!r}", list(names))
    return parents


def _no_repeats(where: str, names: list[str]) -> None:
    if len(set(names)) == len(names):
        return
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"{where}: {name!r} is given twice; give it once")


def _check_sizes(network: Network) -> None:
    for node in network.nodes:
        if network.cells(node) > MAX_FAMILY_CELLS:
            raise RequestError(
                f"network: the table of {node!r} has {network.cells(node):,} cells, at most "
                f"{MAX_FAMILY_CELLS:,} are supported; use fewer parents, or merge levels"
            )
    if network.total_cells > MAX_CELLS:
        raise RequestError(
            f"network: the tables have {network.total_cells:,} cells together, at most "
            f"{MAX_CELLS:,} are supported; use fewer parents, or merge levels"
        )


def _cycle(waiting: Mapping[str, set[str]]) -> str:
    """One cycle among nodes that all have a parent left, as text."""
    path = [next(iter(waiting))]
    while True:
        parent = min(waiting[path[-1]])
        if parent in path:
            cycle = [*path[path.index(parent) :], parent]
            return " -> ".join(reversed(cycle))
        path.append(parent)


# --- parities of binary digits --------------------------------------------------------------------


MAX_FAMILY_BITS = 16
MAX_PARITIES = 1 << 19

Positions = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Parities:
    """The downward closure of a network's families, in its canonical order.

    Families are in the order of `network.nodes`; within a family, its subsets of bits as binary
    numbers in increasing order, the first parent's digits leading and the node's own last. A subset
    that an earlier family has is not listed again, and the empty set is not listed.

    A level is written as a binary number (its position among the declared levels), so a record is a
    string of bits. A set of bits γ splits the records into those with an even and those with an odd
    number of ones in γ; the number of odd ones is the *parity count* Q_γ, and S_γ = n - 2 Q_γ is
    the Walsh-Fourier coefficient of the full contingency table, which is never built. For binary
    nodes these are the coefficients of Zhang, Rubinstein & Dimitrakakis (2016, section on the
    Fourier domain); for more levels the Walsh functions of the digits serve as contrasts.

    The table of a family J with b bits follows from the coefficients of its subsets,

        count(a) = 2^-b Σ_{γ ⊆ J} (-1)^|γ ∩ a| S_γ,

    so it is enough to know Q_γ for all subsets of all families: the *downward closure*. Tables of
    families that overlap agree about every marginal that they have in common.

    (The paper prints the closure of the parents alone; to rebuild a node's table its own bits must
    belong to it. With the empty set, naive Bayes on d binary features has the 2d + 2 members that
    the paper counts in its experiments.)
    """

    network: Network

    def __post_init__(self) -> None:
        for node in self.network.nodes:
            if self.family_bits(node) > MAX_FAMILY_BITS:
                raise RequestError(
                    f"network: the family of {node!r} has {self.family_bits(node)} binary digits, "
                    f"at most {MAX_FAMILY_BITS} are supported by the fourier mechanism; use the "
                    "laplace mechanism, fewer parents, or fewer levels"
                )
        if sum(1 << self.family_bits(node) for node in self.network.nodes) > 2 * MAX_PARITIES:
            raise RequestError(
                "network: its families have too many parities for the fourier mechanism; use the "
                "laplace mechanism, fewer parents, or fewer levels"
            )

    def bits(self, node: str) -> int:
        """Number of binary digits of a node's levels."""
        return (self.network.arity(node) - 1).bit_length()

    def family_bits(self, node: str) -> int:
        """Number of binary digits of a node and its parents."""
        return sum(self.bits(name) for name in self.network.family(node))

    def padded_shape(self, node: str) -> tuple[int, ...]:
        """Shape of a family's table with every arity raised to a power of two."""
        return tuple(1 << self.bits(name) for name in self.network.family(node))

    def __len__(self) -> int:
        return len(self._closure[0])

    @property
    def sets(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """Every listed set, as (node, digits) pairs; bit 0 is a level's last binary digit."""
        return self._closure[0]

    def positions(self, node: str) -> Positions:
        """Where a family's 2^b - 1 non-empty subsets are in the list, in the order of binary
        numbers.
        """
        return self._closure[1][node]

    @cached_property
    def _closure(self) -> tuple[tuple[tuple[tuple[str, int], ...], ...], dict[str, Positions]]:
        number = {node: i for i, node in enumerate(self.network.nodes)}
        known: dict[tuple[tuple[str, int], ...], int] = {}
        places: dict[str, Positions] = {}
        for node in self.network.nodes:
            family = self.network.family(node)
            masks = np.unravel_index(
                np.arange(1, 1 << self.family_bits(node)), self.padded_shape(node)
            )
            axes = sorted(range(len(family)), key=lambda axis: number[family[axis]])
            names = [family[axis] for axis in axes]
            columns = [masks[axis].tolist() for axis in axes]
            found = []
            for digits in zip(*columns, strict=True):
                key = tuple((name, d) for name, d in zip(names, digits, strict=True) if d)
                found.append(known.setdefault(key, len(known)))
            places[node] = np.array(found, dtype=np.intp)
        return tuple(known), places

    # -----------------------------------------------------------------------------------------

    def parity_counts(self, node: str, table: Any) -> npt.NDArray[np.int64]:
        """Q_γ for every non-empty subset γ of a family's bits, from its exact count table."""
        counts = np.asarray(table, dtype=np.int64)
        padded = np.zeros(self.padded_shape(node), dtype=np.int64)
        padded[tuple(slice(size) for size in counts.shape)] = counts
        coefficients = walsh_hadamard(padded.ravel())
        return np.asarray((coefficients[0] - coefficients[1:]) // 2)

    def table(self, node: str, total: float, parity_counts: Sequence[float] | Any) -> FloatArray:
        """A family's count table from n and the parity counts of all listed sets.

        `total` is n, or its noisy value.
        """
        odd = np.asarray(parity_counts, dtype=np.float64)[self.positions(node)]
        coefficients = np.concatenate([[total], total - 2 * odd])
        padded = walsh_hadamard(coefficients) / len(coefficients)
        used = tuple(slice(size) for size in self.network.shape(node))
        return np.asarray(padded.reshape(self.padded_shape(node))[used])


def walsh_hadamard(values: Any) -> Any:
    """Σ_a (-1)^|γ ∩ a| values[..., a] for every γ along the last axis, whose length is 2^b.

    Integers stay integers, exactly.
    """
    result = np.array(values)
    length = result.shape[-1]
    leading = result.shape[:-1]
    step = 1
    while step < length:
        pairs = result.reshape(*leading, -1, 2, step)
        even, odd = pairs[..., 0, :].copy(), pairs[..., 1, :].copy()
        pairs[..., 0, :] = even + odd
        pairs[..., 1, :] = even - odd
        step *= 2
    return result


# --- tables as splits -----------------------------------------------------------------------------


Split = tuple[int, int, int]


@cache
def splits(arity: int) -> tuple[Split, ...]:
    """Probabilities of r levels as r - 1 splits: what posterior samples are drawn in.

    A row of a conditional table is split in two, again and again: the root split divides the
    levels into a first half and a second half, each half is divided in turn, down to single
    levels. A split is one number v, the probability of its first half given that the level is in
    either; the probability of a level is the product along its path. For two levels there is one
    split, and v is the probability of the first level.

    Why splits: if the row has a Dirichlet prior then its splits are independent Betas, before and
    after seeing counts, and each may be truncated to [ω, 1 - ω] by itself. They can be sampled
    exactly one by one, where a Dirichlet truncated as a whole cannot. A record touches at most
    ⌈log2 r⌉ splits of one row.

    Of (start, middle, stop), levels start..middle-1 are the first half, middle..stop-1 the second.
    Each split comes before the splits of its halves.
    """

    def divide(start: int, stop: int) -> list[Split]:
        if stop - start == 1:
            return []
        middle = start + (stop - start + 1) // 2
        return [(start, middle, stop), *divide(start, middle), *divide(middle, stop)]

    return tuple(divide(0, arity))


def depth(arity: int) -> int:
    """The largest number of splits on the path to a level: ⌈log2 arity⌉."""
    return (arity - 1).bit_length()


def rows_of_splits(values: npt.ArrayLike, arity: int) -> FloatArray:
    """Probabilities of the levels from the split values.

    The values, (..., arity - 1), are first-half probabilities in the order of `splits`.
    """
    v = np.asarray(values, dtype=np.float64)
    rows = np.ones((*v.shape[:-1], arity))
    for position, (start, middle, stop) in enumerate(splits(arity)):
        rows[..., start:middle] *= v[..., position, None]
        rows[..., middle:stop] *= 1 - v[..., position, None]
    return rows


def split_totals(table: npt.ArrayLike, arity: int) -> tuple[npt.NDArray, npt.NDArray]:  # type: ignore[type-arg]
    """For every split, the totals of its first and its second half."""
    t = np.asarray(table)
    halves = [
        (t[..., start:middle].sum(axis=-1), t[..., middle:stop].sum(axis=-1))
        for start, middle, stop in splits(arity)
    ]
    first, second = zip(*halves, strict=True)
    return np.stack(first, axis=-1), np.stack(second, axis=-1)


def total_depth(network: Network) -> int:
    """The most splits that one record touches, over all nodes."""
    return sum(depth(network.arity(node)) for node in network.nodes)
