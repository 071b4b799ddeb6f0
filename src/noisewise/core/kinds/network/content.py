"""What a network Release can hold: noisy counts, noisy parity counts, or sampled tables.

Everything random in them is an integer. `NoisyCounts` and `NoisyParities` carry the law of their
noise, so that an analyst can allow for it; `TableDraws` carry the law that they were drawn from.
`LearnedCounts` are noisy counts of a graph that was chosen from the rows; where the claim has a
delta, their noise is Gaussian (`GaussianCounts`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise._arrays import FloatArray
from noisewise.core.document import fail
from noisewise.core.kinds.network.graph import Network, Parities
from noisewise.core.noise import DiscreteLaplace, Gaussian
from noisewise.core.privacy import fraction_text, precise, to_fraction, to_precise

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
        return {
            "noise": {"family": "discrete_laplace", "scale": self.scale},
            "sensitivity": self.sensitivity,
        }


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
        """Plain structure."""
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
        """Plain structure."""
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
        """Plain structure."""
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
        """Plain structure."""
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
        """Whether the noise is Gaussian."""
        return isinstance(self.levels, GaussianCounts)

    @property
    def noise(self) -> DiscreteLaplace | Gaussian:
        """The law of the noise on the tables of pairs; on those of levels, where there are none."""
        return (self.pairs if self.pairs.values else self.levels).noise

    def to_json(self) -> dict[str, Any]:
        """Plain structure."""
        parts = {name: part.to_json() for name, part in self.parts.items()}
        return {"kind": self.kind, "choice": fraction_text(self.choice), **parts}


Content = NoisyCounts | NoisyParities | TableDraws | LearnedCounts


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


def total_depth(network: Network) -> int:
    """The most splits that one record touches, over all nodes."""
    return sum(depth(network.arity(node)) for node in network.nodes)


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
