"""A discrete Bayesian network: which categories depend on which, all of it public.

The graph is declared by whoever asks, or chosen from the rows by a private mechanism
(`holder.networks.learned`) and published. Every node is a category with public levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
