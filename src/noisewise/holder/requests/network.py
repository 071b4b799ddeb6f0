"""A request for a network: graph, mechanism and cost, decided before any row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisewise.core.design import MAX_ROWS, names_of
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import (
    CONTENTS,
    MAX_DRAWS,
    Content,
    MechanismName,
    NetworkRelease,
    TableDraws,
)
from noisewise.core.privacy import Amount, Claim, Event, as_delta, as_fraction, fraction_text
from noisewise.core.schema import Category, Schema
from noisewise.holder.networks.counts import (
    CountPlan,
    FamilyCounts,
    LaplaceCounts,
    NetworkMechanism,
)
from noisewise.holder.networks.fourier import FourierParities
from noisewise.holder.networks.learned import LearnedGraph, counted_families
from noisewise.holder.networks.map import plan_grid_map, plan_tempered_map
from noisewise.holder.networks.posterior_sample import plan_posterior_sample
from noisewise.holder.requests.base import Publishable, check_delta, check_draws, given_epsilon

MAP_KINDS = ("counts", "tempered", "grid")
MAX_OMEGA = Fraction(49, 100)
_SAMPLED = ("draws", "omega", "temper")
# Which options each mechanism knows, so that one that would have no effect is refused.
OPTIONS: dict[tuple[str, str | None], tuple[str, ...]] = {
    ("laplace", None): (),
    ("fourier", None): ("stealth",),
    ("posterior_sample", None): _SAMPLED,
    ("map", "counts"): (),
    ("map", "tempered"): ("omega",),
    ("map", "grid"): ("omega", "points"),
    ("learn", None): (),
}
LEARN = "learn"  # in place of a graph


@dataclass(frozen=True, kw_only=True)
class NetworkRequest(Publishable[NetworkRelease]):
    """What a holder asks to publish of a network. Use `make_network_request`."""

    network: Network  # without edges where the graph is to be learned
    mechanism: MechanismName  # laplace, fourier, posterior_sample, map, learn
    kind: str | None  # of the MAP estimate
    concentration: Mapping[str, Fraction]  # Dirichlet concentration of a node's cells; for draws
    options: Mapping[str, Any]  # what the mechanism takes, in exact text where it is a number

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.planned

    @property
    def schema(self) -> Schema:
        return self.network.schema

    @property
    def sources(self) -> tuple[str, ...]:
        return self.network.nodes

    @cached_property
    def planned(self) -> NetworkMechanism:
        about = self.network, self.epsilon
        words = {"concentration": self.concentration, **self.options}
        if self.mechanism == LEARN:
            return LearnedGraph(*about, self.claim.delta)
        if self.mechanism == "fourier":
            return FourierParities(*about, **self.options)
        if self.mechanism == "posterior_sample":
            return plan_posterior_sample(*about, **{"draws": 1, **words})
        if self.kind == "tempered":
            return plan_tempered_map(*about, **words)
        if self.kind == "grid":
            return plan_grid_map(*about, **words)
        return LaplaceCounts(*about)

    @property
    def event(self) -> Event:
        return self.planned.event()

    def verify(self) -> None:
        self.planned.verify()

    def plan(self) -> CountPlan:
        """Count all families in one pass; of a graph that is to be learned, all that may be."""
        learns = self.mechanism == LEARN
        return CountPlan(self.network, counted_families(self.network) if learns else None)

    def release(self, n: int, result: FamilyCounts) -> NetworkRelease:
        if isinstance(self.planned, LearnedGraph):
            network, content = self.planned.choose_and_draw(result)
            return self._written(n, content, network)
        return self._written(n, self.planned.draw(result))

    def longest(self) -> int:
        """With the longest integer of its range for every value; see `NetworkMechanism.longest`."""
        content = self.planned.longest()
        if isinstance(self.planned, LearnedGraph):
            written = self._written(MAX_ROWS, content, self.planned.largest())
            return self._bytes(written) + self.planned.more_bytes()
        one = self._bytes(self._written(MAX_ROWS, content))
        draws: int = self.options.get("draws", 1)
        if draws == 1:
            return one
        assert isinstance(content, TableDraws)
        two = replace(content, draws=2 * content.draws)
        return one + (draws - 1) * (self._bytes(self._written(MAX_ROWS, two)) - one)

    def _written(self, n: int, content: Content, graph: Network | None = None) -> NetworkRelease:
        network = self.network if graph is None else graph
        return NetworkRelease(
            network=network, mechanism=self.mechanism, content=content, **self._signed(n)
        )

    def to_json(self) -> dict[str, Any]:
        options = {
            name: fraction_text(value) if isinstance(value, Fraction) else value
            for name, value in self.options.items()
        }
        return {
            **super().to_json(),
            "request": "network",
            "parents": self.network.to_json(),
            "mechanism": self.mechanism,
            "kind": self.kind,
            "options": options,
            "concentration": {n: fraction_text(c) for n, c in self.concentration.items()},
        }

    @property
    def summary(self) -> str:
        """The first few nodes, and the mechanism."""
        nodes = self.network.nodes
        shown = ", ".join(nodes[:4]) + (", …" if len(nodes) > 4 else "")
        what = self.mechanism if self.kind is None else f"{self.mechanism} ({self.kind})"
        what = "graph learned" if what == LEARN else what
        return f"network of {len(nodes)} nodes ({shown}), {what}"


def make_network_request(
    schema: Schema,
    *,
    network: Any,
    epsilon: Amount | None,
    delta: Amount | None = None,
    features: Sequence[str] | None = None,
    mechanism: str = "laplace",
    kind: str | None = None,
    draws: int | None = None,
    omega: Amount | None = None,
    temper: Amount | None = None,
    points: int | None = None,
    stealth: float | None = None,
    concentration: Amount | Mapping[str, Amount] = 1,
    label: str = "",
    batch: str | None = None,
    series: str | None = None,
) -> NetworkRequest:
    """Check the words of a request and fill in the defaults.

    Parameters
    ----------
    schema : Schema
        Declares every node as a category.
    network : Network, mapping, list of pairs, graph, or "learn"
        See `Network.make`. ``"learn"``: chosen from the rows, see `LearnedGraph`.
    features : sequence of str, optional
        Where the graph is learned, its columns; every column of the schema unless given.
    epsilon : number or exact text
        Privacy loss.
    delta : number or exact text, optional
        Where the graph is learned: counts have Gaussian noise, unless columns are so few that
        Laplace noise is less. Without it, and of all other mechanisms, the claim is pure.
    mechanism : {"laplace", "fourier", "posterior_sample", "map"}
    kind : {"counts", "tempered", "grid"}, optional
        Of the MAP estimate: from noisy counts (default), or drawn by an exponential mechanism on
        the whole range or on a grid of `points` values.
    draws : int, optional
        Number of posterior draws; 1 unless given. Twice as many cost half of the epsilon each.
    omega : number, optional
        Splits of tables stay within [omega, 1 - omega].
    temper : number, optional
        Power of the likelihood for posterior draws; omega then follows from epsilon.
    points : int, optional
    stealth : float, optional
        For fourier, the probability with which no incremented count is negative.
    concentration : number or mapping from nodes to numbers
        Dirichlet prior of the draws, for each cell; at least 1.
    label, batch, series : str, optional
        As in `Publishable`.
    """
    loss = given_epsilon(epsilon)
    claim = Claim(loss, as_delta(0 if delta is None else delta))
    check_delta(claim)
    learns = isinstance(network, str) and network == LEARN
    if claim.delta and not learns:
        raise RequestError(
            "delta: only a graph that is learned has Gaussian noise; every other network Release "
            "is purely private, so leave delta out"
        )
    if learns and mechanism in ("laplace", LEARN):
        mechanism, network = LEARN, learnable(schema, features)
    elif learns:
        raise RequestError(
            f"mechanism: a graph is learned with noisy counts, not with {mechanism}; leave it out"
        )
    elif features is not None:
        raise RequestError("features: the graph names its columns; leave them out")
    if mechanism not in CONTENTS or (mechanism == LEARN) != learns:
        raise RequestError(
            f"mechanism: {mechanism!r} is unknown; use laplace, fourier, posterior_sample or map"
        )
    if kind is None and mechanism == "map":
        kind = "counts"
    if kind is not None and (mechanism != "map" or kind not in MAP_KINDS):
        raise RequestError(
            f"kind: {kind!r} does not go with {mechanism}; map takes counts, tempered or grid"
        )
    made = Network.make(schema, network.parents if isinstance(network, Network) else network)
    if claim.delta and not LearnedGraph(made, loss, claim.delta).needs_delta:
        claim = Claim(loss)
    given = {"draws": draws, "omega": omega, "temper": temper, "points": points, "stealth": stealth}
    return NetworkRequest(
        network=made,
        claim=claim,
        mechanism=mechanism,  # type: ignore[arg-type]
        kind=kind,
        concentration=_concentrations(made, concentration),
        options=_options(mechanism, kind, given),
        label=label,
        batch=batch,
        series=series,
    )


def learnable(schema: Schema, features: Sequence[str] | None) -> Network:
    """The columns among which a graph is learned, without edges."""
    columns = tuple(schema.columns) if features is None else names_of(features)
    for name in columns:
        if name in schema.columns and not isinstance(schema.columns[name], Category):
            raise RequestError(
                f"features: {name!r} is a number, and a graph is learned among categories; name "
                "the categories as features, or declare bands of it as levels"
            )
    return Network.make(schema, dict.fromkeys(columns, ()))


def _options(mechanism: str, kind: str | None, given: dict[str, Any]) -> dict[str, Any]:
    known = OPTIONS[mechanism, kind]
    options: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name not in known:
            what = mechanism if kind is None else f"{mechanism} ({kind})"
            raise RequestError(f"{name}: has no effect on {what}; leave it out")
        options[name] = as_fraction(value, name) if name in ("omega", "temper") else value
    if "omega" in options and "temper" in options:
        raise RequestError("temper: follows from omega and epsilon; give one of the two")
    if not 0 < options.get("omega", Fraction(1, 4)) <= MAX_OMEGA:
        raise RequestError(
            f"omega: expected a number between 0 and 1/2 (at most {float(MAX_OMEGA)}, or all "
            f"tables would be uniform), got {given['omega']}"
        )
    if not 0 < options.get("temper", Fraction(1)) <= 1:
        raise RequestError(f"temper: expected a number above 0, at most 1, got {given['temper']}")
    check_draws(options.get("draws", 1), MAX_DRAWS)
    share = options.get("stealth", 0.5)
    if isinstance(share, bool) or not isinstance(share, float) or not 0 < share <= 0.99:
        raise RequestError(f"stealth: expected a probability up to 0.99, got {share!r}")
    return options


def _concentrations(network: Network, given: Amount | Mapping[str, Amount]) -> dict[str, Fraction]:
    by_node = given if isinstance(given, Mapping) else {}
    for name in by_node:
        if name not in network.nodes:
            raise RequestError(f"concentration: {str(name)[:60]!r} is no node of the network")
    found = {}
    for node in network.nodes:
        value = by_node.get(node, 1) if isinstance(given, Mapping) else given
        found[node] = as_fraction(value, "concentration")
        if not 1 <= found[node] <= 10**6:
            raise RequestError(
                f"concentration: expected a number from 1 to a million for {node!r}, got {value}; "
                "below 1 the prior has no mode to draw around"
            )
    return found
