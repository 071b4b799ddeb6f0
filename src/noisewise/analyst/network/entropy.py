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
that over separators. *Approximate*: with loops R_i has the right centre but its spread is that of a
table with fixed margins, a little too wide when more is known, and M_i doesn't teach anything about
the nodes above (u_i is computed from the current counts and then held fixed for a while). The
approximation disappears as noise does: the posterior of the tables given the counts is exact in any
case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from noisewise.analyst.network.layout import Floats, Integers, Layout, normalised
from noisewise.analyst.network.queries import Summation

Names = tuple[int, ...]
MAX_UNMARRIED = 8  # parents whose subsets are enumerated
MAX_SUMMED = 1 << 12  # cells of a table on the way to the probabilities of parents' levels
TINY = 1e-300


@dataclass(frozen=True)
class Entropy:
    """log h(C) = Σ_S kappa(S) Σ_cells log N_S! + Σ_i Σ M_i u_i."""

    kappa: dict[Names, int]  # exponents that are not zero, by sorted node numbers
    expected: dict[int, dict[Names, int]]  # for every node whose u_i is needed, its c(S)
    # Nodes for which R_i was left out: their parents' joint table has a flat prior
    free: tuple[int, ...]
    acyclic: bool  # whether the formula is exact


def entropy_of(layout: Layout, affordable: Callable[[int], bool]) -> Entropy:
    """The formula; `affordable` says whether probabilities of a node's parents can be computed."""
    tree = junction_tree(layout.families)
    if tree is not None:
        return Entropy(tree, {}, (), True)
    kappa: defaultdict[Names, int] = defaultdict(int)
    expected: dict[int, dict[Names, int]] = {}
    free: list[int] = []
    for i, parents in enumerate(layout.parents):
        kappa[layout.families[i]] -= 1
        kappa[parents] += 1
        earlier = [set(layout.families[j]) for j in range(i)]
        if len(parents) < 2 or any(family.issuperset(parents) for family in earlier):
            continue
        if len(parents) > MAX_UNMARRIED or not affordable(i):
            free.append(i)
            continue
        numbers = _counting_numbers(parents, earlier)
        for names, c in numbers.items():
            kappa[names] -= c
        expected[i] = numbers
    return Entropy({k: v for k, v in kappa.items() if v}, expected, tuple(free), False)


def junction_tree(families: Sequence[Names]) -> dict[Names, int] | None:
    """Exponents of the largest families (-1) and of the separators between them (+1 each time).

    h = Π w(families) / Π w(separators). A spanning tree whose separators have the greatest total
    size is a junction tree if there is any (Jensen & Jensen 1994). In a tree every node is in at
    most one separator less than in families, and in a junction tree in exactly one less.
    """
    sets = [set(family) for family in families]
    largest = [members for members in sets if not any(members < other for other in sets)]
    kappa: defaultdict[Names, int] = defaultdict(int)
    kappa[()] += 1  # the first family alone: n! / Π C!
    kappa[tuple(sorted(largest[0]))] -= 1
    # Every waiting family with the most that it shares with one that was joined.
    waiting = [(members, members & largest[0]) for members in largest[1:]]
    excess = len(largest[0])
    while waiting:
        place = max(range(len(waiting)), key=lambda k: len(waiting[k][1]))
        nearest, shared = waiting.pop(place)
        kappa[tuple(sorted(nearest))] -= 1
        kappa[tuple(sorted(shared))] += 1
        excess += len(nearest) - len(shared)
        waiting = [(new, max(most, new & nearest, key=len)) for new, most in waiting]
    if excess > len(set().union(*sets)):
        return None
    return {names: power for names, power in kappa.items() if power}


def _counting_numbers(parents: Names, earlier: list[set[int]]) -> dict[Names, int]:
    numbers = {parents: 1}
    for size in range(len(parents) - 1, -1, -1):
        for names in combinations(parents, size):
            if any(family.issuperset(names) for family in earlier):
                larger = (c for other, c in numbers.items() if set(names) < set(other))
                numbers[names] = -sum(larger)
    return {names: c for names, c in numbers.items() if c}


# --- where loops make the centre of a parents' table depend on the rest of the network ---------


class Slopes:
    """The u_i of `entropy`, as a slope for every cell of every region."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._sums: dict[int, Summation] = {}
        self.entropy = entropy_of(layout, self._can_sum)

    def _can_sum(self, i: int) -> bool:
        found = Summation(self.layout, self.layout.parents[i])
        if found.largest <= MAX_SUMMED:
            self._sums[i] = found
        return i in self._sums

    @property
    def needed(self) -> bool:
        """Whether any slope depends on the counts."""
        return bool(self._sums)

    def fill(self, out: Floats, names: list[Names], start: Integers, counts: Floats) -> None:
        """Write slopes for the network whose tables are the proportions of smoothed `counts`.

        `out` has the cells of all regions; `names` and `start` are the regions and their first
        cells; `counts`, shape (layout.cells,), are family counts plus concentrations.
        """
        theta = normalised(counts, self.layout)[None]
        for i, summation in self._sums.items():
            parents = self.layout.parents[i]
            joint = summation.of(theta)[0]
            slope = np.zeros(joint.shape)
            for subset, c in self.entropy.expected[i].items():
                away = tuple(k for k, j in enumerate(parents) if j not in subset)
                margin = joint.sum(axis=away, keepdims=True) if away else joint
                slope = slope + c * np.log(np.maximum(margin, TINY))
            first = int(start[names.index(parents)])
            out[first : first + slope.size] = slope.reshape(-1)
