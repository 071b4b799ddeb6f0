"""The Release of a Bayesian network: noisy counts, noisy parities, or sampled tables.

A strict JSON document like the regression Release, read as untrusted input: `from_text` checks
everything it can check and raises one ReleaseError otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from noisewise._arrays import FloatArray
from noisewise.core.calibration import SMALLEST_GAUSSIAN_SCALE, discreteness_slack
from noisewise.core.composition import leaves_of, satisfies
from noisewise.core.document import (
    MAX_INTEGER,
    BaseRelease,
    Received,
    check_n,
    fail,
    integer,
    pure_event,
    real,
    take,
    text,
    texts,
)
from noisewise.core.kinds.network.content import (
    NOISE_BITS,
    TABLE_BITS,
    Content,
    CountsPart,
    GaussianCounts,
    LearnedCounts,
    NoisyCounts,
    NoisyParities,
    TableDraws,
    check_draws,
    check_nodes,
    l1_sensitivity,
    learned_families,
    learned_sensitivities,
    learned_squares,
    least_parity_sensitivity,
    log_odds,
    one_is_enough,
    one_level_is_enough,
    rows_of_splits,
    score_change,
    total_depth,
)
from noisewise.core.kinds.network.graph import Network, Parities
from noisewise.core.noise import DiscreteLaplace, Gaussian
from noisewise.core.privacy import GaussianEvent, PureEvent, as_fraction
from noisewise.core.schema import Schema

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
        """The declared nodes, and who is protected."""
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
            mechanism=text(document["mechanism"], "mechanism"),  # type: ignore[arg-type]
            content=content_from_json(document["result"]),
            **document.common,
        )


# --- reading --------------------------------------------------------------------------------------


def content_from_json(document: Any) -> Content:
    """Read what `to_json` wrote; raises ReleaseError where it is something else."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == NoisyCounts.kind:
        _, noise, sensitivity, values = take(
            document, "result", ("kind", "noise", "sensitivity", "values")
        )
        return NoisyCounts(_by_node(values), _scale(noise), _sensitivity(sensitivity))
    if kind == NoisyParities.kind:
        keys = ("kind", "noise", "sensitivity", "increment", "stealth", "values")
        _, noise, sensitivity, increment, stealth, values = take(document, "result", keys)
        return NoisyParities(
            values=_integers(values),
            scale=_scale(noise),
            sensitivity=_sensitivity(sensitivity),
            increment=real(increment, "increment"),
            stealth=real(stealth, "stealth"),
        )
    if kind == TableDraws.kind:
        return _draws(document)
    if kind == LearnedCounts.kind:
        groups = ("levels", "pairs", "triples")
        _, choice, *given = take(document, "result", ("kind", "choice", *groups))
        levels, pairs, triples = map(_part, given)
        return LearnedCounts(levels, pairs, triples, _fraction(choice, "choice"))
    return fail("the result must be counts, parities or draws")


def _part(document: Any) -> CountsPart:
    """A group of a learned graph's counts."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != GaussianCounts.kind:
        part = content_from_json(document)
        return part if isinstance(part, NoisyCounts) else fail("levels and tables must be counts")
    keys = ("kind", "noise", "squared_sensitivity", "values")
    _, noise, squared, values = take(document, "result", keys)
    family, scale, bits = take(noise, "noise", ("family", "scale", "bits"))
    integer(bits, "bits", NOISE_BITS, NOISE_BITS)
    if family != "rounded_gaussian":
        fail("the noise family must be rounded_gaussian")
    return GaussianCounts(_by_node(values), _between(scale), _sensitivity(squared))


def _draws(document: Any) -> TableDraws:
    keys = (
        *("kind", "law", "fraction_bits", "lowest", "temper", "concentration", "points"),
        "draws",
    )
    _, law, bits, lowest, temper, concentration, points, draws = take(document, "result", keys)
    integer(bits, "fraction_bits", TABLE_BITS, TABLE_BITS)
    if not isinstance(draws, list) or not isinstance(concentration, dict):
        fail("draws must be a list, and concentration an object")
    names = texts(list(concentration), "concentration")
    return TableDraws(
        draws=tuple(_by_node(draw) for draw in draws),
        law=text(law, "law"),
        lowest=integer(lowest, "lowest", 1, (1 << TABLE_BITS) - 1),
        temper=_fraction(temper, "temper"),
        concentration={name: _fraction(concentration[name], "concentration") for name in names},
        points=None if points is None else integer(points, "points", 2, 10_000),
    )


def _fraction(value: Any, where: str) -> Fraction:
    if not isinstance(value, str):
        fail(f"{where} must be a number written as text")
    return as_fraction(value, where)


def _by_node(value: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, dict):
        fail("values must be an object with a list for every node")
    return {text(node, "a node"): _integers(values) for node, values in value.items()}


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        fail("values must be lists of whole numbers")
    return tuple(integer(v, "every value", -MAX_INTEGER - 1, MAX_INTEGER) for v in value)


def _scale(noise: Any) -> float:
    family, scale = take(noise, "noise", ("family", "scale"))
    if family != "discrete_laplace":
        fail("the noise family must be discrete_laplace")
    return _between(scale)


def _between(scale: Any) -> float:
    number = real(scale, "noise scale")
    if not 2.0**-10 <= number <= 2.0**56:
        fail("the noise scale must be between 2**-10 and 2**56")
    return number


def _sensitivity(value: Any) -> int:
    return integer(value, "sensitivity", 1, MAX_INTEGER)


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
