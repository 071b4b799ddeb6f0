"""A graph chosen from the rows, and counts of its tables: one charge, one pass over the rows.

In this order, each step knowing what the ones before it published:

1. the levels of every column are counted, with noise;
2. a tree is chosen, one edge after the other: of the pairs that join two parts of it, that whose
   table is farthest (in L1) from what the noisy levels say under independence;
3. the table of every edge is counted, with noise;
4. some nodes get a second parent, next to the first one in the tree: where the pair's table is
   farthest from what the noisy tables of the two edges between them say, less what the noise on the
   larger table would cost. It stops where that is no gain. Where tables are large for the number
   of rows, steps 4 and 5 are left out and their epsilon goes to 2 and 3;
5. the tables of nodes with two parents are counted, with noise.

So every node's parents are in the family of an earlier node, and the posterior of all tables
(`analyst.network.counts`) is exact. With a delta the noise on counts is Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.core.calibration import (
    SMALLEST_GAUSSIAN_SCALE,
    discreteness_slack,
    gaussian_noise_multiplier,
)
from noisewise.core.composition import satisfies, within
from noisewise.core.document import MAX_INTEGER
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import MAX_CELLS, Network
from noisewise.core.kinds.network.release import (
    NOISE_BITS,
    CountsPart,
    GaussianCounts,
    LearnedCounts,
    NoisyCounts,
    learned_families,
    learned_sensitivities,
    learned_squares,
    one_level_is_enough,
)
from noisewise.core.privacy import (
    Claim,
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
    ceil_sqrt,
    float_down,
    float_up,
    fraction_text,
)
from noisewise.holder.mechanisms import randomness
from noisewise.holder.mechanisms.laplace import verify_laplace
from noisewise.holder.networks.counts import FamilyCounts

Pair = tuple[str, str]
Parents = dict[str, tuple[str, ...]]
MAX_TRIPLES = 3000  # tables of three columns that are counted in one pass: of up to 27 columns
WORTH = Fraction(1, 6)  # of the rows: how much noise on a typical table of three columns may be


STEP = 1 << NOISE_BITS  # in which Gaussian noise is drawn, of one record
# Of the discreteness of three groups of counts, at their largest and with the least noise.
SLACK = 3 * discreteness_slack(MAX_CELLS, SMALLEST_GAUSSIAN_SCALE)


class Shares(NamedTuple):
    """Of epsilon, or with a delta of μ², what each step takes."""

    levels: Fraction
    tree: Fraction
    pairs: Fraction
    second: Fraction
    triples: Fraction


TWO_PARENTS = Shares(*(Fraction(k, 20) for k in (4, 4, 5, 2, 5)))
ONE_PARENT = Shares(*(Fraction(k, 20) for k in (4, 5, 11, 0, 0)))
GAUSSIAN = Shares(*(Fraction(k, 20) for k in (3, 4, 8, 1, 4)))
NO_CHOICE = Shares(*(Fraction(k, 20) for k in (4, 0, 16, 0, 0)))  # two columns have one tree
ALONE = Shares(*map(Fraction, (1, 0, 0, 0, 0)))
_NONE = Fraction(0)


def counted_families(network: Network) -> dict[Any, tuple[str, ...]]:
    """The tables that are counted: all pairs and, where they aren't too many, all triples."""
    nodes = network.nodes
    pairs = list(combinations(nodes, 2))
    triples = list(combinations(nodes, 3)) if math.comb(len(nodes), 3) <= MAX_TRIPLES else []
    sizes = [math.prod(map(network.arity, names)) for names in (*pairs, *triples)]
    if sum(sizes[: len(pairs)]) > MAX_CELLS:
        raise RequestError(
            f"graph: the tables of all pairs of columns have more than {MAX_CELLS:,} cells; name "
            "fewer columns with --features, merge levels, or declare the graph"
        )
    fit = sum(sizes) <= MAX_CELLS
    tables = [*((node,) for node in nodes), *pairs, *(triples if fit else ())]
    return {names: names for names in tables}


@dataclass(frozen=True)
class LearnedGraph:
    """Noisy counts of a graph that noisy maxima of scores have chosen.

    **Claim.** ε-differential privacy; with a delta, (ε, δ)-differential privacy.

    **Proof.** Steps 1 to 5 (above) compose: each is private whatever the ones before it published,
    and the shares of ε that they take are fixed, or depend on what was published, and add up to at
    most ε in any case.

    *Counts (1, 3, 5).* A record is in one cell of every table. So one that is added or removed
    changes k tables by k in L1, and one that is replaced by 2k; a unit with r records r times as
    much. Where n is public, of the levels of a binary node one is counted, which replacing a record
    changes by 1. Discrete Laplace noise of scale s costs Δ/s (`LaplaceCounts`).

    *Choices (2, 4).* The candidates of a choice follow from what was published and chosen before.
    The score of one is an integer, u = Σ |count - reference| - penalty over the cells of one table,
    where reference and penalty are integers that follow from what was published (how they are
    computed is of no concern). A unit that adds or takes away R records (`records_changed`)
    changes the table's counts by at most R in L1, hence u by at most R. Every candidate gets
    independent noise Z ≥ 0 with P(Z ≥ t + 1) = q P(Z ≥ t), q = exp(-1/s), and the largest u + Z is
    chosen, of equal ones the first. Fix the noise of all candidates but c: then c is chosen
    if and only if Z_c ≥ t for an integer t, the least with which it wins. With a neighbour's data
    no u + Z of another changes by more than R, nor does c's own u, so the least that is
    needed there is at most t + 2R. And P(Z ≥ max(t + 2R, 0)) ≥ q^(2R) P(Z ≥ max(t, 0)). So the
    choice of c has at least exp(-2R/s) of its probability with the neighbour's data: a choice costs
    2R/s. At most as many choices are made as their share of ε was divided by. ∎

    Z is discrete Laplace noise of scale s, drawn again as often as it is negative: P(Z = z) ∝ q^z.

    *With a delta.* A unit's r records that are added or removed change a table's counts by at most
    r in one direction, so by r² in squared L2; replaced ones by r² in either direction. That is r
    times the L1 sensitivity, for all tables and for single levels of binary nodes alike
    (`learned_squares`). Gaussian noise of scale σ on k tables is then μ-Gaussian private with
    μ² = Δ₂²/σ² (Dong, Roth & Su 2022), but for its being discrete (`discreteness_slack`); rounding
    to whole records comes afterwards. The event is that of so many choices at so much
    epsilon each, and of one Gaussian with the sum of all groups' μ². Which steps follow the first
    one depends on what it published, but the epsilon of every choice and the sum of μ² that are
    left to the others don't, so that whatever it published what follows is dominated by the same
    event, some of it unspent where second parents aren't looked for. `core.composition` proves the
    claim from the event. ∎

    References
    ----------
    McKenna, Miklau & Sheldon (2021), "Winning the NIST contest", for the scores of step 2 and
    McKenna, Mullins, Sheldon & Miklau (2022), "AIM", for those of step 4; the noise is that of
    McKenna & Sheldon (2020), "Permute-and-flip", on integers.
    """

    network: Network  # the columns, without edges
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    @property
    def needs_delta(self) -> bool:
        """Whether counts have less noise with the delta than without: by public numbers.

        Laplace noise grows with the number of columns and Gaussian noise with its root.
        """
        pure = replace(self, delta=_NONE)
        group = "pairs" if self._edges else "levels"
        gaussian, laplace = (
            planned._scale(group, self.star, getattr(planned._most, group))
            for planned in (self, pure)
        )
        return gaussian**2 < 2 * laplace**2

    @property
    def star(self) -> Network:
        """One of the trees, all of which have as many tables: the first node is every parent."""
        first, *others = self.network.nodes
        return Network(self.network.schema, {first: (), **dict.fromkeys(others, (first,))})

    @cached_property
    def second_parents(self) -> int:
        """How many nodes may get a second parent: at most half of those that can."""
        several = any(len(names) == 3 for names in counted_families(self.network))
        return max(1, (len(self.network.nodes) - 2) // 2) if several else 0

    @cached_property
    def budget(self) -> Fraction:
        """What shares are of: ε, or with a delta the μ² that choices and counts have together.

        Choices may cost more than a Gaussian of the same μ², so it is found by trying: as many
        thousandths as the claim allows of what a single Gaussian would have.
        """
        if not self.delta:
            return self.epsilon
        most = 1 / Fraction(gaussian_noise_multiplier(self.epsilon, self.delta)) ** 2
        low, high = 0, 4001  # pure events may cost less, too
        while high - low > 1:
            middle = (low + high) // 2
            fits = within([self._event(most * middle / 1000)], self.epsilon, self.delta)
            low, high = (middle, high) if fits else (low, middle)
        if low == 0:
            raise RequestError(
                f"epsilon: {float(self.epsilon):g} with delta = {float(self.delta):g} is too "
                "little for a graph to be learned; ask for more epsilon, or declare the graph"
            )
        return most * low / 1000

    def event(self) -> Event:
        """ε-differential privacy; or every choice, and one Gaussian for all counts."""
        return self._event(self.budget) if self.delta else PureEvent(self.epsilon)

    def _event(self, budget: Fraction) -> ComposedEvent:
        most = self._most
        choices: list[PureEvent | GaussianEvent | ComposedEvent] = []
        for share, times in ((most.tree, self._edges), (most.second, self.second_parents)):
            if share:
                choices += [PureEvent(_root(share * budget / times))] * times
        counts = (most.levels + most.pairs + most.triples) * budget
        return ComposedEvent((*choices, GaussianEvent(float_down(_root(1 / counts)), SLACK)))

    def verify(self) -> None:
        """OpenDP's maps of what is published and of what is chosen must be at most their shares.

        A choice has the ratio of noise on 2R, exp(-2R/s), so it is checked as that.
        """
        most, changed, star = self.second_parents, self._changed, self.star
        squares = learned_squares(star) | {"triples": self._rows * changed * most}
        sums = learned_sensitivities(star) | {"triples": changed * most}
        for shares in {self._shares(rows) for rows in (1, MAX_INTEGER)}:
            if sum(shares) > 1:
                raise AssertionError(f"the shares of the budget add up to {sum(shares)}")
            for share, times in ((shares.tree, self._edges), (shares.second, most)):
                if share:
                    each = self._each(share, times)
                    verify_laplace(float_up(2 * changed / each), 2 * changed, each)
            for group in ("levels", "pairs", "triples"):
                share = getattr(shares, group)
                if share and self.delta:
                    steps = _steps(squares[group] / (share * self.budget))
                    spent = randomness.gaussian_measurement(steps).map(
                        STEP * math.sqrt(squares[group])
                    )
                    if not spent <= float(share * self.budget / 2) * (1 + 1e-12):
                        raise AssertionError(f"OpenDP charges rho = {spent} for {group}")
                elif share:
                    each = share * self.epsilon
                    verify_laplace(float_up(sums[group] / each), sums[group], each)
        if not satisfies([self.event()], Claim(self.epsilon, self.delta)):
            raise AssertionError("the claim does not follow from the event")

    def describe(self) -> dict[str, Any]:
        """What each step costs, and the noise on the counts of levels."""
        most, costs = self._most, dict[str, Any]()
        choices = ((most.tree, self._edges, "edge"), (most.second, self.second_parents, "second"))
        if self.delta:
            costs["noise"] = "gaussian"
            for share, times, name in choices:
                if share:
                    costs[f"epsilon_of_each_{name}"] = round(float(self._each(share, times)), 6)
        else:
            shares = most._asdict().items()
            costs = {f"epsilon_of_{k}": fraction_text(v * self.epsilon) for k, v in shares if v}
        return {
            "columns": len(self.network.nodes),
            "most_second_parents": self.second_parents,
            **costs,
            "scale_of_levels": self._scale("levels", self.network, most.levels),
        }

    def scales(self, graph: Network, rows: int) -> dict[str, float]:
        """The noise of a graph's groups of tables, if there are so many rows."""
        shares = self._shares(rows)
        groups = (("levels", shares.levels), ("pairs", shares.pairs), ("triples", shares.triples))
        tables = learned_families(graph)
        return {g: self._scale(g, graph, share) for g, share in groups if share and tables[g]}

    def draw(self, counts: FamilyCounts) -> LearnedCounts:
        """The counts alone; see `choose_and_draw`."""
        return self.choose_and_draw(counts)[1]

    def choose_and_draw(self, counts: FamilyCounts) -> tuple[Network, LearnedCounts]:
        """Fresh noise and fresh choices: the graph, and the counts of its tables."""
        empty = self.network
        levels = self._measured("levels", empty, self._most.levels, counts)
        margins = _margins(empty, levels, counts.n)
        # About how many rows there are, by what was published
        about = float(max(1, round(np.mean([margin.sum() for margin in margins.values()]))))
        total = float(counts.n) if empty.schema.n_is_public else about
        shares = self._shares(round(total))
        parents: Parents = dict.fromkeys(empty.nodes, ())
        if self._edges > 1:
            scores = independence_scores(empty, counts, margins, total)
            parents = rooted(empty, self._tree(scores, shares.tree))
        elif self._edges == 1:
            parents = rooted(empty, [(empty.nodes[0], empty.nodes[1])])
        tree = Network(empty.schema, parents)
        pairs = self._measured("pairs", tree, shares.pairs, counts)
        if shares.second:
            gains = second_parent_gains(tree, counts, pairs, total, self._typical(shares.triples))
            parents = self._second(tree, gains, shares.second)
        final = Network(empty.schema, parents)
        triples = self._measured("triples", final, shares.triples, counts)
        steps = ((shares.tree, self._edges), (shares.second, self.second_parents))
        choice = sum((times * self._each(share, times) for share, times in steps if share), _NONE)
        return final, LearnedCounts(levels, pairs, triples, choice)

    def longest(self) -> LearnedCounts:
        """Of the tree that `largest` makes, with the longest of 64-bit integers."""
        tree = self.largest()
        parts = []
        for group, families in learned_families(tree).items():
            cells = {v: math.prod(map(tree.arity, names)) for v, names in families.items()}
            for node in cells if group == "levels" else ():
                if one_level_is_enough(tree, node):
                    cells[node] = 1
            values = {node: (-MAX_INTEGER - 1,) * size for node, size in cells.items()}
            # As long as any text of a scale, and so large that its cost is next to nothing.
            parts.append(self._part(group, tree, values, 2.0**56 / 1.1))
        levels, pairs, triples = parts
        most = self._most
        if self.delta:
            choice = self._edges * self._each(most.tree, self._edges) if most.tree else _NONE
        else:
            choice = self.epsilon * (ONE_PARENT.tree + Fraction(1, 10**9))
        return LearnedCounts(levels, pairs, triples, choice)

    def largest(self) -> Network:
        """A tree whose tables of pairs have no fewer cells than those of any other."""
        network, arity = self.network, self.network.arity
        weight = {(a, b): arity(a) * arity(b) for a, b in combinations(network.nodes, 2)}
        edges = spanning(network, weight, lambda sizes: sizes.index(max(sizes)))
        return Network(network.schema, rooted(network, edges))

    def more_bytes(self) -> int:
        """What the text of any graph may have beyond that of `largest`: names and triples.

        Every node names at most two parents and its triples once more; a JSON text has at most
        twelve bytes for a character of a name. An integer has 20 digits and a sign at most, and a
        comma, a space or a line with its indentation around it.
        """
        network = self.network
        name = 12 * max(len(node) for node in network.nodes) + 40
        cells = math.prod(sorted(map(network.arity, network.nodes))[-3:])
        return 3 * name * len(network.nodes) + 40 * cells * self.second_parents + 200

    # -----------------------------------------------------------------------------------------

    @property
    def _edges(self) -> int:
        return len(self.network.nodes) - 1

    @property
    def _changed(self) -> int:
        return self.network.schema.records_changed

    @property
    def _rows(self) -> int:
        return self.network.schema.max_rows_per_unit

    @property
    def _most(self) -> Shares:
        """The shares where rows are many; no choice is made that isn't made then."""
        if self._edges < 2:
            return (ALONE, NO_CHOICE)[self._edges]
        if self.delta:
            rest = GAUSSIAN.pairs + GAUSSIAN.second + GAUSSIAN.triples
            one = GAUSSIAN._replace(pairs=rest, second=_NONE, triples=_NONE)
            return GAUSSIAN if self.second_parents else one
        return TWO_PARENTS if self.second_parents else ONE_PARENT

    def _shares(self, rows: int) -> Shares:
        """By how many columns there are, and whether tables of three are worth their noise.

        The share of levels doesn't depend on it, because they are counted before `rows` is known;
        with a delta, nor does anything but how the μ² of tables is divided.
        """
        most = self._most
        if not most.triples:
            return most
        sizes = [self.network.arity(node) for node in self.network.nodes]
        typical = math.exp(sum(map(math.log, sizes)) / len(sizes))
        noise = noise_on_pair(typical, typical, typical, self._typical(most.triples))
        if noise <= WORTH * rows:
            return most
        both = most.pairs + most.triples
        return most._replace(pairs=both, second=_NONE, triples=_NONE) if self.delta else ONE_PARENT

    def _each(self, share: Fraction, times: int) -> Fraction:
        """Epsilon of one of so many choices."""
        return _root(share * self.budget / times) if self.delta else share * self.epsilon / times

    def _scale(self, group: str, network: Network, share: Fraction) -> float:
        if self.delta:
            return _steps(learned_squares(network)[group] / (share * self.budget)) / STEP
        return float_up(learned_sensitivities(network)[group] / (share * self.epsilon))

    def _typical(self, share: Fraction) -> float:
        """E|sum of y noisy counts|/√y of triples, if so many have second parents as may."""
        changed = self._changed * self.second_parents
        if self.delta:
            return 0.8 * math.sqrt(self._rows * changed / (share * self.budget))
        return 1.1 * float(changed / (share * self.epsilon))

    def _part(
        self, group: str, network: Network, values: Mapping[str, tuple[int, ...]], scale: float
    ) -> CountsPart:
        if self.delta:
            return GaussianCounts(values, scale, learned_squares(network)[group])
        return NoisyCounts(values, scale, learned_sensitivities(network)[group])

    def _noise(self, exact: Sequence[int], scale: float) -> tuple[int, ...]:
        """Counts with noise, whole ones."""
        if not self.delta:
            return randomness.invoke(randomness.laplace_measurement(scale), exact)
        measurement = randomness.gaussian_measurement(round(scale * STEP))
        fine = randomness.invoke(measurement, [STEP * count for count in exact])
        return tuple((value + STEP // 2) // STEP for value in fine)

    def _measured(
        self, group: str, network: Network, share: Fraction, counts: FamilyCounts
    ) -> CountsPart:
        families = learned_families(network)[group]
        if not families:
            return self._part("levels", network, {}, 1.0)
        scale = self._scale(group, network, share)
        exact: list[int] = []
        sizes = {}
        for node, family in families.items():
            cells = counted(network, counts, family).ravel().tolist()
            if group == "levels" and one_level_is_enough(network, node):
                cells = cells[1:]
            sizes[node] = len(cells)
            exact.extend(cells)
        noisy = iter(self._noise(exact, scale))
        values = {node: tuple(islice(noisy, size)) for node, size in sizes.items()}
        return self._part(group, network, values, scale)

    # --- choices ----------------------------------------------------------------------------------

    def _tree(self, scores: Mapping[Pair, int], share: Fraction) -> list[Pair]:
        scale = float_up(2 * self._changed / self._each(share, self._edges))
        return spanning(self.network, scores, lambda values: noisy_maximum(values, scale))

    def _second(
        self, tree: Network, gains: Mapping[tuple[str, str], int], share: Fraction
    ) -> Parents:
        """Nodes one after the other, with the parent that each gets; or no more of them."""
        most = self.second_parents
        scale = float_up(2 * self._changed / self._each(share, most))
        parents: Parents = {node: tuple(given) for node, given in tree.parents.items()}
        for _ in range(most):
            left = [(z, x) for z, x in gains if len(parents[x]) == 1]
            chosen = noisy_maximum([*(gains[pair] for pair in left), 0], scale)
            if chosen == len(left):
                break
            z, x = left[chosen]
            parents[x] = (*parents[x], z)
        return parents


def noisy_maximum(scores: Sequence[int], scale: float) -> int:
    """The place of the largest score with one-sided noise; the proof is at `LearnedGraph`."""
    measurement = randomness.laplace_measurement(scale)
    noise = list(randomness.invoke(measurement, [0] * len(scores)))
    while negative := [k for k, z in enumerate(noise) if z < 0]:
        again = randomness.invoke(measurement, [0] * len(negative))
        for k, z in zip(negative, again, strict=True):
            noise[k] = z
    noisy = [u + z for u, z in zip(scores, noise, strict=True)]
    return noisy.index(max(noisy))


def spanning(
    network: Network, scores: Mapping[Pair, int], choose: Callable[[Sequence[int]], int]
) -> list[Pair]:
    """Edges of a tree, chosen one after the other among those that join two parts of it."""
    part = {node: node for node in network.nodes}
    edges: list[Pair] = []
    while len(edges) < len(network.nodes) - 1:
        left = [(a, b) for a, b in scores if part[a] != part[b]]
        a, b = left[choose([scores[pair] for pair in left])]
        edges.append((a, b))
        old, new = part[a], part[b]
        part = {node: new if own == old else own for node, own in part.items()}
    return edges


def rooted(network: Network, edges: Sequence[Pair]) -> Parents:
    """The parents of every node, if the first node is the root."""
    beside: dict[str, list[str]] = {node: [] for node in network.nodes}
    for a, b in edges:
        beside[a].append(b)
        beside[b].append(a)
    parents: Parents = {network.nodes[0]: ()}
    waiting = [network.nodes[0]]
    while waiting:
        node = waiting.pop()
        for other in beside[node]:
            if other not in parents:
                parents[other] = (node,)
                waiting.append(other)
    return parents


# --- scores: integers, from exact counts and from what is published -------------------------------


def counted(network: Network, counts: FamilyCounts, names: Sequence[str]) -> NDArray[np.int64]:
    """The exact table of these columns, in this order; tables are counted in declared order."""
    place = {node: k for k, node in enumerate(network.nodes)}
    key = tuple(sorted(names, key=place.__getitem__))
    return np.asarray(np.transpose(counts.tables[key], [key.index(n) for n in names]))


def _margins(network: Network, levels: CountsPart, n: int) -> dict[str, FloatArray]:
    """What was published about levels, both counts of a binary node."""
    found = {}
    for node, values in levels.values.items():
        both = (n - values[0], values[0]) if one_level_is_enough(network, node) else values
        found[node] = np.maximum(np.array(both, dtype=np.float64), 0.5)
    return found


def distance(table: NDArray[np.int64], reference: FloatArray) -> int:
    """Σ |count - reference| with a reference that is rounded to integers."""
    whole = np.rint(np.clip(reference, 0, 2.0**52)).astype(np.int64)
    return int(np.abs(table - whole).sum())


def independence_scores(
    network: Network, counts: FamilyCounts, margins: Mapping[str, FloatArray], total: float
) -> dict[Pair, int]:
    """How far each pair's table is from independence, as far as noisy levels tell."""
    share = {node: margin / margin.sum() for node, margin in margins.items()}
    return {
        (a, b): distance(counted(network, counts, (a, b)), total * np.outer(share[a], share[b]))
        for a, b in combinations(network.nodes, 2)
    }


def noise_on_pair(x: float, y: float, z: float, typical: float) -> float:
    """About how much noise, in L1, a table of x, y and z leaves on the pair of x and z.

    Each of its cells is a sum of y noisy ones, whose absolute value is `typical` times sqrt(y): of
    Laplace noise about 1.1 times its scale, and of Gaussian noise .8 times its.
    """
    return x * z * math.sqrt(y) * typical


def _root(square: Fraction) -> Fraction:
    """A square root, rounded down to a multiple of 2**-60."""
    return Fraction(math.isqrt(math.floor(square * 4**60)), 2**60)


def _steps(variance: Fraction) -> int:
    """The least scale in steps of the noise's grid whose square is at least this many records."""
    steps = ceil_sqrt(variance * STEP**2)
    if steps > 1 << 53:
        raise RequestError(
            "epsilon: so small that the noise would not fit the integers of a Release and no "
            "analyst could learn anything; ask for more epsilon, or protect fewer rows per unit"
        )
    return max(steps, SMALLEST_GAUSSIAN_SCALE)


def second_parent_gains(
    tree: Network, counts: FamilyCounts, pairs: CountsPart, total: float, typical: float
) -> dict[Pair, int]:
    """For every (second parent, node): how far the tree is from their pair, less the noise's cost.

    The first parent y of a node x is between them: z is y's own parent, or an earlier child of y.
    Given y, the tree takes x and z to be independent.
    """
    arity, order = tree.arity, tree.order
    given = {}  # P(x | y) and, the other way round, P(y | x), from noisy tables
    for x, values in pairs.values.items():
        y = tree.parents[x][0]
        table = np.maximum(np.array(values, dtype=np.float64).reshape(arity(y), arity(x)), 0.5)
        given[y, x], given[x, y] = table, table.T
    gains = {}
    for place, x in enumerate(order):
        for y in tree.parents[x]:
            for z in order[:place]:
                if (y,) != tree.parents[z] and (z,) != tree.parents[y]:
                    continue
                first, second = given[y, x], given[y, z]
                weight = total * first.sum(axis=1, keepdims=True) / first.sum()
                left = weight * first / first.sum(axis=1, keepdims=True)
                reference = left.T @ (second / second.sum(axis=1, keepdims=True))
                cost = noise_on_pair(arity(x), arity(y), arity(z), typical)
                gains[z, x] = distance(counted(tree, counts, (x, z)), reference) - math.ceil(cost)
    return gains
