"""The Release of a Bayesian network: noisy counts, noisy parity counts, or sampled tables.

Everything random in it is an integer. `NoisyCounts` and `NoisyParities` carry the law of their
noise, so that an analyst can allow for it; `TableDraws` carry the law that they were drawn from.
`LearnedCounts` are noisy counts of a graph that was chosen from the rows; where the claim has a
delta, their noise is Gaussian (`GaussianCounts`).

A strict JSON document like the regression Release, read as untrusted input: `from_text` checks
everything it can check and raises one ReleaseError otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from noisewise._arrays import FloatArray
from noisewise.core import document as read
from noisewise.core.calibration import SMALLEST_GAUSSIAN_SCALE, discreteness_slack
from noisewise.core.composition import leaves_of, satisfies
from noisewise.core.document import BaseRelease, Received, check_n, fail, pure_event
from noisewise.core.kinds.network.graph import Network, Parities, rows_of_splits, total_depth
from noisewise.core.noise import DiscreteLaplace, Gaussian
from noisewise.core.privacy import (
    GaussianEvent,
    PureEvent,
    fraction_text,
    precise,
    to_fraction,
    to_precise,
)
from noisewise.core.schema import Schema

TABLE_BITS = 24
NOISE_BITS = 24  # of the fractions of a record in which Gaussian noise on counts is drawn
MAX_DRAWS = 10_000


class _Noisy:
    """Integers with independent discrete Laplace noise, all of one scale."""

    scale: float
    sensitivity: int

    @property
    def noise(self) -> DiscreteLaplace:
        """The law of the noise on every measured value."""
        return DiscreteLaplace(self.scale)

    def _noise_to_json(self) -> dict[str, Any]:
        noise = {"family": "discrete_laplace", "scale": self.scale}
        return {"noise": noise, "sensitivity": self.sensitivity}


@dataclass(frozen=True)
class NoisyCounts(_Noisy):
    """The counts of every family's cells, each with independent discrete Laplace noise.

    Where n is public, one count of a binary root is enough, since the other is n minus it: only
    that of its second level is measured, and the noise of the two is then the same number with
    opposite signs.
    """

    # For every node its measured noisy counts, in C order of `network.shape`
    values: Mapping[str, tuple[int, ...]]
    scale: float  # scale of the discrete Laplace noise, in records; exact as a binary fraction
    sensitivity: int  # L1 sensitivity of all values together
    kind = "counts"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            **self._noise_to_json(),
            "values": {node: list(values) for node, values in self.values.items()},
        }


@dataclass(frozen=True)
class GaussianCounts:
    """The counts of tables' cells, each with independent Gaussian noise, rounded to whole records.

    The noise is discrete Gaussian in steps of 2**-24 of a record. Rounding the sum afterwards
    costs nothing, and since counts are whole it is the noise that is rounded.
    """

    values: Mapping[str, tuple[int, ...]]  # for every node its measured noisy counts
    scale: float  # standard deviation of the noise in records, a whole number of steps
    sensitivity: int  # squared L2 sensitivity of all values together
    kind = "gaussian_counts"

    @property
    def noise(self) -> Gaussian:
        """The law of the noise on every measured value, but for rounding."""
        return Gaussian(self.scale)

    @property
    def steps(self) -> int:
        """The scale in steps of the grid, rounded down."""
        return math.floor(Fraction(self.scale) * (1 << NOISE_BITS))

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "noise": {"family": "rounded_gaussian", "scale": self.scale, "bits": NOISE_BITS},
            "squared_sensitivity": self.sensitivity,
            "values": {node: list(values) for node, values in self.values.items()},
        }


@dataclass(frozen=True)
class NoisyParities(_Noisy):
    """Parity counts over the downward closure, each with independent discrete Laplace noise."""

    # Noisy Q_γ in the order of `Parities.sets`; where n is private, a noisy n comes first
    values: tuple[int, ...]
    scale: float
    sensitivity: int
    # What to add to every cell of every table so that none is negative with probability `stealth`,
    # whatever the data. Found by simulating the noise alone. For those who plug the counts in;
    # somebody who models the noise leaves it out.
    increment: float
    stealth: float
    kind = "parities"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            **self._noise_to_json(),
            "increment": self.increment,
            "stealth": self.stealth,
            "values": list(self.values),
        }


@dataclass(frozen=True)
class TableDraws:
    """Conditional tables drawn at random, as splits on a grid of 2**24 steps (`splits`)."""

    # For every draw and node the numerators m of its splits v = m / 2**24, in C order of (parents'
    # levels, split)
    draws: tuple[Mapping[str, tuple[int, ...]], ...]
    # ``posterior``: P(m) ∝ m^(a-1+τ c) (2^24-m)^(b-1+τ d) for a split with counts c, d and prior
    # Beta(a, b). ``grid``: the exponential mechanism on `points` equidistant values, with the
    # posterior probability as score and the exponent `temper`.
    law: str
    lowest: int  # numerator of ω: splits are within [ω, 1 - ω]
    temper: Fraction  # τ, or the factor of the score
    concentration: Mapping[str, Fraction]  # Dirichlet concentration of every cell of a node
    points: int | None = None
    kind = "draws"

    @property
    def omega(self) -> float:
        """The smallest value that a split may have."""
        return self.lowest / (1 << TABLE_BITS)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "law": self.law,
            "fraction_bits": TABLE_BITS,
            "lowest": self.lowest,
            "temper": fraction_text(self.temper),
            "concentration": {n: fraction_text(c) for n, c in self.concentration.items()},
            "points": self.points,
            "draws": [{n: list(v) for n, v in draw.items()} for draw in self.draws],
        }


CountsPart = NoisyCounts | GaussianCounts


@dataclass(frozen=True)
class LearnedCounts:
    """Counts of a network whose graph was chosen from the rows, privately: first a tree.

    Every node but the first has one node as its first parent, and some have a second one, which is
    next to the first parent in the tree. Three groups of tables are measured, each with noise of
    its own, and none is left out: they are evidence about each other.
    """

    # Of every node, how many rows have each level; of a binary node where n is public the second
    # only
    levels: CountsPart
    pairs: CountsPart  # of every node with a parent, the table of its first parent and itself
    triples: CountsPart  # of every node with two parents, the table of both and itself
    # Epsilon that the choice of the graph cost, the noise aside: all its steps added up
    choice: Fraction
    kind = "learned_counts"

    @property
    def parts(self) -> dict[str, CountsPart]:
        """The groups of tables, by name."""
        return {"levels": self.levels, "pairs": self.pairs, "triples": self.triples}

    @property
    def is_gaussian(self) -> bool:
        return isinstance(self.levels, GaussianCounts)

    @property
    def noise(self) -> DiscreteLaplace | Gaussian:
        """The law of the noise on the tables of pairs; on those of levels, where there are none."""
        return (self.pairs if self.pairs.values else self.levels).noise

    def to_json(self) -> dict[str, Any]:
        parts = {name: part.to_json() for name, part in self.parts.items()}
        return {"kind": self.kind, "choice": fraction_text(self.choice), **parts}


Content = NoisyCounts | NoisyParities | TableDraws | LearnedCounts


# --- the Release ----------------------------------------------------------------------------------

MechanismName = Literal["laplace", "fourier", "posterior_sample", "map", "learn"]

# What each mechanism publishes. A MAP estimate is a draw of an exponential mechanism, or is
# computed from noisy counts.
CONTENTS: dict[str, tuple[type[Content], ...]] = {
    "laplace": (NoisyCounts,),
    "fourier": (NoisyParities,),
    "posterior_sample": (TableDraws,),
    "map": (TableDraws, NoisyCounts),
    "learn": (LearnedCounts,),
}
MAX_PARENTS_LEARNED = 2


@dataclass(frozen=True)
class NetworkRelease(BaseRelease):
    """Private statistics of a network, with everything needed to interpret them."""

    network: Network  # the graph; its schema is restricted to the nodes
    # ``learn``: the graph was chosen from the rows, and what that cost is part of the claim, which
    # may then have a delta; all others are pure
    mechanism: MechanismName
    content: Content

    FORMAT = "noisewise-network-release"
    FORMAT_VERSION = 1
    KEYS = ("parents", "n", "mechanism", "result")

    def __post_init__(self) -> None:
        _check(self)

    @property
    def schema(self) -> Schema:
        return self.network.schema

    @property
    def has_counts(self) -> bool:
        """Whether `counts` works: noisy counts or parities, not draws."""
        return not isinstance(self.content, TableDraws)

    @property
    def noise(self) -> DiscreteLaplace | Gaussian:
        """The law of the noise on every measured count or parity count."""
        if isinstance(self.content, TableDraws):
            fail("its tables were drawn at random; no noise was added to counts")
        return self.content.noise

    def counts(self, node: str) -> FloatArray:
        """The noisy counts of a node's cells, of `network.shape(node)`. They may be negative.

        From parity counts they are rebuilt, and their noise is correlated: see `parities`.
        """
        shape = self.network.shape(node)
        if isinstance(self.content, LearnedCounts):
            return self.measured_tables(node)[-1][1].reshape(shape)
        if isinstance(self.content, NoisyCounts):
            values = self.content.values[node]
            if self._one_is_enough(node):
                assert self.n is not None
                values = (self.n - values[0], values[0])
            return np.array(values, dtype=np.float64).reshape(shape)
        if isinstance(self.content, NoisyParities):
            values = self.content.values
            if self.n is not None:
                return self.parities.table(node, self.n, values)
            return self.parities.table(node, values[0], values[1:])
        return fail("its tables were drawn at random; it holds no counts")

    def measured_tables(
        self, node: str
    ) -> list[
        tuple[tuple[str, ...], FloatArray, npt.NDArray[np.bool_], DiscreteLaplace | Gaussian]
    ]:
        """Of a learned graph, every table that was measured for a node, the family's last.

        For each its columns, its noisy counts, which of them have noise of their own, and the
        noise's law.
        """
        if not isinstance(self.content, LearnedCounts):
            fail("only of a learned graph several tables of a node were measured")
        found = []
        for group, families in learned_families(self.network).items():
            if node in families:
                part = self.content.parts[group]
                values, own = part.values[node], np.ones(len(part.values[node]), dtype=bool)
                if group == "levels" and one_level_is_enough(self.network, node):
                    assert self.n is not None
                    values, own = (self.n - values[0], values[0]), np.array([False, True])
                shape = tuple(self.network.arity(name) for name in families[node])
                table = np.array(values, dtype=np.float64).reshape(shape)
                found.append((families[node], table, own.reshape(shape), part.noise))
        return found

    def measured(self, node: str) -> npt.NDArray[np.bool_]:
        """Which counts of a node have noise of their own (with noisy counts, not parities).

        All of them, but for a binary root where n is public: its first count is n minus its
        second.
        """
        if not isinstance(self.content, NoisyCounts):
            fail("only noisy counts have noise of their own in every cell")
        mask = np.ones(self.network.shape(node), dtype=bool)
        if self._one_is_enough(node):
            mask[0] = False
        return mask

    @cached_property
    def parities(self) -> Parities:
        """The index sets of the parity counts, in the order of `content.values`."""
        return Parities(self.network)

    @property
    def draws(self) -> int:
        """Number of draws; 0 where counts are published."""
        return len(self.content.draws) if isinstance(self.content, TableDraws) else 0

    def tables(self, draw: int = 0) -> dict[str, FloatArray]:
        """The conditional probability tables of one draw, by node, of `network.shape(node)`."""
        if not isinstance(self.content, TableDraws):
            fail("it holds counts, not tables; fit it to get tables")
        found = {}
        for node in self.network.nodes:
            arity = self.network.arity(node)
            shape = (*self.network.shape(node)[:-1], arity - 1)
            v = np.array(self.content.draws[draw][node]).reshape(shape) / (1 << TABLE_BITS)
            found[node] = rows_of_splits(v, arity)
        return found

    def _one_is_enough(self, node: str) -> bool:
        return one_is_enough(self.network, self.n is not None, node)

    def _content(self) -> dict[str, Any]:
        return {
            "parents": self.network.to_json(),
            "n": self.n,
            "mechanism": self.mechanism,
            "result": self.content.to_json(),
        }

    @classmethod
    def _read(cls, document: Received) -> Self:
        parents = document["parents"]
        if not isinstance(parents, dict):
            fail("parents must be an object with a list for every node")
        schema = document.schema
        network = Network.make(schema, parents)
        if tuple(network.schema.columns) != tuple(schema.columns):
            fail("the schema has columns that are no nodes")
        return cls(
            network=network,
            mechanism=read.text(document["mechanism"], "mechanism"),  # type: ignore[arg-type]
            content=content_from_json(document["result"]),
            **document.common,
        )


# --- reading --------------------------------------------------------------------------------------


def content_from_json(document: Any) -> Content:
    """Read what `to_json` wrote; raises ReleaseError where it is something else."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == NoisyCounts.kind:
        keys: tuple[str, ...] = ("kind", "noise", "sensitivity", "values")
        _, noise, sensitivity, values = read.take(document, "result", keys)
        return NoisyCounts(_by_node(values), _scale(noise), _sensitivity(sensitivity))
    if kind == NoisyParities.kind:
        keys = ("kind", "noise", "sensitivity", "increment", "stealth", "values")
        _, noise, sensitivity, increment, stealth, values = read.take(document, "result", keys)
        numbers = read.real(increment, "increment"), read.real(stealth, "stealth")
        noisy = read.integers(values, "values"), _scale(noise), _sensitivity(sensitivity)
        return NoisyParities(*noisy, *numbers)
    if kind == TableDraws.kind:
        return _draws(document)
    if kind == LearnedCounts.kind:
        groups = ("levels", "pairs", "triples")
        _, choice, *given = read.take(document, "result", ("kind", "choice", *groups))
        levels, pairs, triples = map(_part, given)
        return LearnedCounts(levels, pairs, triples, read.fraction(choice, "choice"))
    return fail("the result must be counts, parities or draws")


def _part(document: Any) -> CountsPart:
    """A group of a learned graph's counts."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != GaussianCounts.kind:
        part = content_from_json(document)
        return part if isinstance(part, NoisyCounts) else fail("levels and tables must be counts")
    keys = ("kind", "noise", "squared_sensitivity", "values")
    _, noise, squared, values = read.take(document, "result", keys)
    family, scale, bits = read.take(noise, "noise", ("family", "scale", "bits"))
    read.integer(bits, "bits", NOISE_BITS, NOISE_BITS)
    if family != "rounded_gaussian":
        fail("the noise family must be rounded_gaussian")
    return GaussianCounts(_by_node(values), _between(scale), _sensitivity(squared))


def _draws(document: Any) -> TableDraws:
    names = ("law", "fraction_bits", "lowest", "temper", "concentration", "points", "draws")
    _, law, bits, lowest, temper, concentration, points, draws = read.take(
        document, "result", ("kind", *names)
    )
    read.integer(bits, "fraction_bits", TABLE_BITS, TABLE_BITS)
    if not isinstance(draws, list) or not isinstance(concentration, dict):
        fail("draws must be a list, and concentration an object")
    nodes = read.texts(list(concentration), "concentration")
    return TableDraws(
        draws=tuple(_by_node(draw) for draw in draws),
        law=read.text(law, "law"),
        lowest=read.integer(lowest, "lowest", 1, (1 << TABLE_BITS) - 1),
        temper=read.fraction(temper, "temper"),
        concentration={node: read.fraction(concentration[node], "concentration") for node in nodes},
        points=None if points is None else read.integer(points, "points", 2, 10_000),
    )


def _by_node(value: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, dict):
        fail("values must be an object with a list for every node")
    return {
        read.text(node, "a node"): read.integers(each, "values") for node, each in value.items()
    }


def _scale(noise: Any) -> float:
    family, scale = read.take(noise, "noise", ("family", "scale"))
    if family != "discrete_laplace":
        fail("the noise family must be discrete_laplace")
    return _between(scale)


def _between(scale: Any) -> float:
    number = read.real(scale, "noise scale")
    if not 2.0**-10 <= number <= 2.0**56:
        fail("the noise scale must be between 2**-10 and 2**56")
    return number


def _sensitivity(value: Any) -> int:
    return read.integer(value, "sensitivity", 1, read.MAX_INTEGER)


# --- checks that hold however a Release was made --------------------------------------------------


def _check(release: NetworkRelease) -> None:
    network, content = release.network, release.content
    if release.mechanism not in CONTENTS:
        fail("the mechanism must be laplace, fourier, posterior_sample, map or learn")
    if not isinstance(content, CONTENTS[release.mechanism]):
        fail(f"the mechanism {release.mechanism} does not publish {content.kind}")
    check_n(release)
    if isinstance(content, NoisyCounts):
        check_nodes(network, content.values)
        for node in network.nodes:
            alone = one_is_enough(network, release.n is not None, node)
            expected = 1 if alone else network.cells(node)
            if len(content.values[node]) != expected:
                fail(f"node {node!r} has {len(content.values[node])} counts, expected {expected}")
    elif isinstance(content, NoisyParities):
        expected = len(release.parities) + (release.n is None)
        if len(content.values) != expected:
            fail(f"there are {len(content.values)} parity counts, expected {expected}")
    elif isinstance(content, LearnedCounts):
        _check_learned(network, content)
    else:
        check_draws(network, content)
    _check_privacy(release)


def _check_learned(network: Network, content: LearnedCounts) -> None:
    """The graph is one that may be chosen, and every table has its counts."""
    if sum(not parents for parents in network.parents.values()) != 1:
        fail("a graph that is learned is connected: one node has no parents")
    first = {node: parents[:1] for node, parents in network.parents.items()}
    for node, parents in network.parents.items():
        if len(parents) > MAX_PARENTS_LEARNED:
            fail(f"node {node!r} has more parents than are learned")
        for second in parents[1:]:
            if first[parents[0]] != (second,) and first[second] != first[node]:
                fail(f"the second parent of {node!r} is not next to the first")
    for group, families in learned_families(network).items():
        values = content.parts[group].values
        if set(values) != set(families):
            fail(f"there must be {group} for every node that has them, and for nothing else")
        for node, family in families.items():
            expected = math.prod(network.arity(name) for name in family)
            if group == "levels" and one_level_is_enough(network, node):
                expected = 1
            if len(values[node]) != expected:
                fail(f"node {node!r} has {len(values[node])} {group}, expected {expected}")


def _check_privacy(release: NetworkRelease) -> None:
    """The event must follow from the noise or the draws, and the claim from the event."""
    if isinstance(release.content, LearnedCounts) and release.content.is_gaussian:
        _check_gaussian(release, release.content)
        return
    event = pure_event(release, "every mechanism for networks makes a pure claim")
    content = release.content
    if isinstance(content, TableDraws):
        if cost_of_draws(release.network, content) > event.epsilon:
            fail("the draws follow the data more closely than the privacy event allows")
        return
    if isinstance(content, LearnedCounts):
        least_of = learned_sensitivities(release.network)
        if any(part.sensitivity < least_of[name] for name, part in content.parts.items()):
            fail("the sensitivity is smaller than one unit's influence on these counts")
        if cost_of_learning(content) > event.epsilon:
            fail("the noise and the choice are too close to the data for the privacy event")
        return
    exact = isinstance(content, NoisyCounts)
    least = l1_sensitivity(release.network) if exact else least_parity_sensitivity(release.parities)
    if content.sensitivity < least:
        fail("the sensitivity is smaller than one unit's influence on these counts")
    if Fraction(content.scale) * event.epsilon < content.sensitivity:
        fail("the noise is too small for the privacy event")


def _check_gaussian(release: NetworkRelease, content: LearnedCounts) -> None:
    """Choices within the event's pure parts, noise within its one Gaussian part."""
    events = list(leaves_of([release.event]))
    gaussian = [event for event in events if isinstance(event, GaussianEvent)]
    if len(gaussian) != 1:
        fail("Gaussian counts have one Gaussian event for all together")
    if content.choice > sum(e.epsilon for e in events if isinstance(e, PureEvent)):
        fail("the choice is too close to the data for the privacy event")
    squares, slack = Fraction(0), Fraction(0)
    for name, least in learned_squares(release.network).items():
        part = content.parts[name]
        if not isinstance(part, GaussianCounts):
            fail("all counts must have noise of the same family")
        if part.sensitivity < least:
            fail("the sensitivity is smaller than one unit's influence on these counts")
        if part.values:
            if part.steps < SMALLEST_GAUSSIAN_SCALE:
                fail("the noise is too small to be accounted for")
            squares += part.sensitivity / Fraction(part.scale) ** 2
            entries = sum(len(values) for values in part.values.values())
            slack += Fraction(discreteness_slack(entries, part.steps))
    if squares * Fraction(gaussian[0].noise_multiplier) ** 2 > 1 or slack > gaussian[0].slack:
        fail("the noise and the choice are too close to the data for the privacy event")
    if not satisfies([release.event], release.claim):
        fail("the privacy claim does not follow from the event")


def check_draws(network: Network, content: TableDraws) -> None:
    """Refuse draws that are not what they say."""
    top = (1 << TABLE_BITS) - content.lowest
    if not content.draws or len(content.draws) > MAX_DRAWS:
        fail(f"there must be 1 to {MAX_DRAWS} draws")
    if not content.lowest < top:
        fail("lowest must be below one half")
    if content.law not in ("posterior", "grid") or (content.law == "grid") != bool(content.points):
        fail("the law of the draws must be posterior, or grid with its number of points")
    if not content.temper > 0:
        fail("temper must be above 0: draws that do not follow the data at all are not published")
    if not all(1 <= value <= 10**6 for value in content.concentration.values()):
        fail("every concentration must be from 1 to a million")
    if set(content.concentration) != set(network.nodes):
        fail("there must be one concentration for every node")
    for draw in content.draws:
        check_nodes(network, draw)
        for node in network.nodes:
            expected = network.configurations(node) * (network.arity(node) - 1)
            if len(draw[node]) != expected:
                fail(f"node {node!r} has {len(draw[node])} splits, expected {expected}")
            if not all(content.lowest <= value <= top for value in draw[node]):
                fail(f"node {node!r} has a split outside its limits")


def check_nodes(network: Network, values: Mapping[str, Any]) -> None:
    """There must be values for every node, and for nothing else."""
    if set(values) != set(network.nodes):
        fail("there must be values for every node of the network and nothing else")


# --- what counts cost -----------------------------------------------------------------------------


def one_is_enough(network: Network, n_is_public: bool, node: str) -> bool:
    """Whether one count of this node tells the other: a binary root where n is public."""
    return n_is_public and network.shape(node) == (2,)


def l1_sensitivity(network: Network) -> int:
    """Δ of all noisy counts together; the proof is at `holder.networks.LaplaceCounts`."""
    rows = network.schema.max_rows_per_unit
    if network.schema.neighbours != "replace_one":
        return rows * len(network.nodes)
    return rows * sum(1 if one_is_enough(network, True, node) else 2 for node in network.nodes)


def one_level_is_enough(network: Network, node: str) -> bool:
    """Whether one count of levels tells the other: a binary node where n is public."""
    return network.schema.n_is_public and network.arity(node) == 2


def learned_families(network: Network) -> dict[str, dict[str, tuple[str, ...]]]:
    """By group of `LearnedCounts` and node, the columns of every table that is measured."""
    given = network.parents
    return {
        "levels": {node: (node,) for node in network.nodes},
        "pairs": {node: (given[node][0], node) for node in network.nodes if given[node]},
        "triples": {node: (*p, node) for node, p in given.items() if len(p) == 2},
    }


def learned_sensitivities(network: Network) -> dict[str, int]:
    """Δ of every group of `LearnedCounts`; the proof is at `holder.networks.LearnedGraph`."""
    schema, tables = network.schema, learned_families(network)
    fewer = sum(one_level_is_enough(network, node) for node in network.nodes)
    return {
        group: schema.records_changed * len(families)
        - (fewer * schema.max_rows_per_unit if group == "levels" else 0)
        for group, families in tables.items()
    }


def learned_squares(network: Network) -> dict[str, int]:
    """Δ₂² of every group of `LearnedCounts`; the proof is at `holder.networks.LearnedGraph`."""
    rows = network.schema.max_rows_per_unit
    return {group: rows * change for group, change in learned_sensitivities(network).items()}


def least_parity_sensitivity(parities: Parities) -> int:
    """What `holder.networks.FourierParities` has as Δ, or less: every set is odd for half of all d.

    So the average number of odd sets over all differences d is half of the sets, and the largest is
    no less. It is quick, for readers; the holder finds the largest itself.
    """
    schema = parities.network.schema
    private = schema.neighbours != "replace_one"
    return schema.max_rows_per_unit * ((len(parities) + 1) // 2 + private)


# --- what draws cost ------------------------------------------------------------------------------


def log_odds(lowest: int) -> Fraction:
    """log((1 - ω)/ω) for ω = lowest / 2**24, rounded up.

    It is computed to 80 digits; adding 1e-60 covers the error.
    """
    value = precise().log(to_precise(Fraction((1 << TABLE_BITS) - lowest, lowest)))
    return to_fraction(value) + Fraction(1, 10**60)


def score_change(lowest: int) -> Fraction:
    """tanh(L/4) for L = log((1 - ω)/ω), rounded up: how far one record moves a score on a grid."""
    value = precise().tanh(to_precise(log_odds(lowest)) / 4)
    return to_fraction(value) + Fraction(1, 10**60)


def cost_of_learning(content: LearnedCounts) -> Fraction:
    """Epsilon of the choice and of every group of counts that is there, added up."""
    there = [part for part in content.parts.values() if part.values]
    assert not content.is_gaussian
    return content.choice + sum(part.sensitivity / Fraction(part.scale) for part in there)


def cost_of_draws(network: Network, content: TableDraws) -> Fraction:
    """Epsilon of k draws: k τ R D log((1-ω)/ω), or 2k η R D tanh(log((1-ω)/ω)/4) on a grid.

    D is the number of splits that one record touches and R how often a unit can add or take away a
    record. The proofs are beside the mechanisms, in `holder.networks`.
    """
    touched = network.schema.records_changed * total_depth(network) * len(content.draws)
    grid = content.law == "grid"
    change = 2 * score_change(content.lowest) if grid else log_odds(content.lowest)
    return content.temper * touched * change
