"""How many data sets have given family counts: a product of factorials of tables.

The joint posterior of family counts C needs h(C), the number of data sets of n rows whose family
tables are C. Fill the columns in topological order. Given the columns of its parents P, node i's
column can be filled in Π_pa M(pa)! / Π_x C(pa, x)! ways that give the table C_i. Were all P-tables
fixed by what was filled before, h would be the product of these numbers over nodes. This is so
whenever the parents of every node lie in one earlier family.

Where they don't, it must be multiplied by the chance R_i that the parents' joint table comes out as
M_i, given the tables that were filled before. Let K be the subsets of P that lie in an earlier
family (every single parent does). With w(S) = n! / Π N_S! the number of ways to fill a table over
S, and counting numbers c(P) = 1, c(S) = -Σ_{T ⊋ S} c(T) for S in K,

    R_i ∝ Π_S w(S)^c(S) · exp(Σ_pa M_i(pa) · u_i(pa)),   u_i = log q_P + Σ_S c(S) log q_S,

where q are the network's own probabilities of the parents' levels. For two parents without a common
ancestor u_i = 0 and this is the hypergeometric law of a table with known margins, exactly.

*Exact*: when the families have a junction tree ("acyclic" below: naive Bayes, trees, polytrees,
every network without unmarried parents) u drops out, and h is the product over families divided by
that over separators. *Approximate*: with loops R_i
has the right centre but its spread is that of a table with fixed margins, a little too wide when
more is known, and M_i doesn't teach anything about the nodes above (u_i is computed from the
current counts and then held fixed for a while). The approximation disappears as noise does: the
posterior of the tables given the counts is exact in any case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from noisewise.analyst.network.layout import Floats, Integers, Layout, row_sums

Names = tuple[int, ...]
MAX_UNMARRIED = 8  # parents whose subsets are enumerated


@dataclass(frozen=True)
class Entropy:
    """log h(C) = Σ_S kappa(S) Σ_cells log N_S! + Σ_i Σ M_i u_i.

    Parameters
    ----------
    kappa : dict of tuple to int
        Exponents that are not zero, by sorted node numbers.
    expected : dict of int to dict of tuple to int
        For every node whose u_i is needed, the counting numbers c(S).
    free : tuple of int
        Nodes for which R_i was left out: their parents' joint table has a flat prior.
    acyclic : bool
        Whether the formula is exact.
    """

    kappa: dict[Names, int]
    expected: dict[int, dict[Names, int]]
    free: tuple[int, ...]
    acyclic: bool


def entropy_of(layout: Layout, affordable: Sequence[bool]) -> Entropy:
    """The formula for a network.

    Parameters
    ----------
    layout : Layout
    affordable : sequence of bool
        For every node, whether its parents' probabilities under the network can be computed.
    """
    if is_acyclic(layout.families):
        return Entropy(_junction_tree(layout.families), {}, (), True)
    kappa: defaultdict[Names, int] = defaultdict(int)
    expected: dict[int, dict[Names, int]] = {}
    free: list[int] = []
    for i, parents in enumerate(layout.parents):
        kappa[layout.families[i]] -= 1
        kappa[parents] += 1
        earlier = [set(layout.families[j]) for j in range(i)]
        if len(parents) < 2 or any(family.issuperset(parents) for family in earlier):
            continue
        if len(parents) > MAX_UNMARRIED or not affordable[i]:
            free.append(i)
            continue
        numbers = _counting_numbers(parents, earlier)
        for names, c in numbers.items():
            kappa[names] -= c
        expected[i] = numbers
    return Entropy({k: v for k, v in kappa.items() if v}, expected, tuple(free), False)


def _junction_tree(families: Sequence[Names]) -> dict[Names, int]:
    """Exponents of the largest families (-1) and of the separators between them (+1 each time).

    A spanning tree whose separators have the greatest total size is a junction tree (Jensen &
    Jensen 1994), and h = Π w(families) / Π w(separators).
    """
    sets = [set(family) for family in families]
    largest = [f for f, members in zip(families, sets, strict=True) if not _within(members, sets)]
    kappa: defaultdict[Names, int] = defaultdict(int)
    kappa[largest[0]] -= 1
    # Every waiting family with the most that it shares with one that was joined.
    waiting = [(set(family), set(family) & set(largest[0])) for family in largest[1:]]
    while waiting:
        place = max(range(len(waiting)), key=lambda k: len(waiting[k][1]))
        nearest, shared = waiting.pop(place)
        kappa[tuple(sorted(nearest))] -= 1
        kappa[tuple(sorted(shared))] += 1
        waiting = [(new, max(most, new & nearest, key=len)) for new, most in waiting]
    kappa[()] += 1  # the first family alone: n! / Π C!
    return {names: power for names, power in kappa.items() if power}


def _within(members: set[int], sets: Sequence[set[int]]) -> bool:
    return any(members < other for other in sets)


def _counting_numbers(parents: Names, earlier: list[set[int]]) -> dict[Names, int]:
    numbers = {parents: 1}
    for size in range(len(parents) - 1, -1, -1):
        for names in combinations(parents, size):
            if any(family.issuperset(names) for family in earlier):
                larger = (c for other, c in numbers.items() if set(names) < set(other))
                numbers[names] = -sum(larger)
    return {names: c for names, c in numbers.items() if c}


def is_acyclic(families: Sequence[Names]) -> bool:
    """Whether the families have a junction tree: reduction of Graham (1979), Yu & Ozsoyoglu."""
    edges = {k: set(family) for k, family in enumerate(families)}
    holding: defaultdict[int, set[int]] = defaultdict(set)  # which edges have a node
    for k, edge in edges.items():
        for v in edge:
            holding[v].add(k)
    waiting = list(edges)
    while waiting:
        k = waiting.pop()
        if k not in edges:
            continue
        edge = edges[k]
        edge.difference_update([v for v in edge if len(holding[v]) == 1])
        if edge:
            rarest = min(edge, key=lambda v: len(holding[v]))
            covered = any(k != m and edge <= edges[m] for m in holding[rarest])
        else:
            covered = len(edges) > 1
        if covered:  # it goes, and a node that only one other edge has can go next
            del edges[k]
            for v in edge:
                holding[v].discard(k)
                if len(holding[v]) == 1:
                    waiting.extend(holding[v])
    return len(edges) <= 1


# --- probabilities of parents' levels under the network, by summing forwards ------------------
#
# Nodes are added in topological order to a table over a frontier, and summed out when no later node
# needs them. It is exact, and affordable when the frontier stays small.


MAX_FRONTIER = 1 << 12


@dataclass(frozen=True)
class Step:
    """Add a node to the frontier, then keep some of it."""

    node: int
    before: tuple[int, ...]
    keep: tuple[int, ...]


def plan(layout: Layout, wanted: tuple[int, ...]) -> list[Step] | None:
    """How to get the table over `wanted`; None where a frontier would be too large."""
    needed = set(wanted)
    for i in range(len(layout.nodes) - 1, -1, -1):
        if i in needed:
            needed |= set(layout.parents[i])
    steps: list[Step] = []
    frontier: tuple[int, ...] = ()
    ancestors = sorted(needed)
    for position, i in enumerate(ancestors):
        later = set(wanted).union(*(layout.parents[j] for j in ancestors[position + 1 :]))
        if layout.size((*frontier, i)) > MAX_FRONTIER:
            return None
        keep = tuple(j for j in (*frontier, i) if j in later)
        steps.append(Step(i, frontier, keep))
        frontier = keep
    return steps


def probabilities(layout: Layout, steps: list[Step], theta: Floats) -> Floats:
    """The table over the last step's `keep`, sorted by number, from all tables' cells."""
    table = np.ones(())
    einsum: Any = np.einsum  # its stubs don't know lists of axes
    for step in steps:
        own = theta[layout.part(step.node)].reshape(layout.shape(layout.families[step.node]))
        table = einsum(
            table, list(step.before), own, list(layout.families[step.node]), list(step.keep)
        )
    return table


# --- where loops make the centre of a parents' table depend on the rest of the network ---------


TINY = 1e-300


class Slopes:
    """The u_i of `entropy`, as a slope for every cell of every region.

    Parameters
    ----------
    layout : Layout
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        plans = [plan(layout, parents) for parents in layout.parents]
        self.entropy: Entropy = entropy_of(layout, [steps is not None for steps in plans])
        self._plans: dict[int, list[Step]] = {
            i: steps for i in self.entropy.expected if (steps := plans[i]) is not None
        }

    @property
    def needed(self) -> bool:
        """Whether any slope depends on the counts."""
        return bool(self._plans)

    def fill(self, out: Floats, names: list[Names], start: Integers, counts: Floats) -> None:
        """Write slopes for the network whose tables are the proportions of smoothed `counts`.

        Parameters
        ----------
        out : array, shape (cells of all regions,)
        names, start
            The regions and their first cells.
        counts : array, shape (layout.cells,)
            Family counts plus concentrations.
        """
        theta = counts / row_sums(self.layout, counts)
        for i, steps in self._plans.items():
            parents = self.layout.parents[i]
            joint = probabilities(self.layout, steps, theta)
            slope = np.zeros(joint.shape)
            for subset, c in self.entropy.expected[i].items():
                away = tuple(k for k, j in enumerate(parents) if j not in subset)
                margin = joint.sum(axis=away, keepdims=True) if away else joint
                slope = slope + c * np.log(np.maximum(margin, TINY))
            first = int(start[names.index(parents)])
            out[first : first + slope.size] = slope.reshape(-1)
