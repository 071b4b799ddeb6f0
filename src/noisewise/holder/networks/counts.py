"""Family counts: how many rows have each joint level of a node and its parents; noise on them.

Counts are integers by nature, so every engine and every order of rows gives the same ones.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from noisewise.core.document import MAX_INTEGER
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import (
    TABLE_BITS,
    Content,
    NoisyCounts,
    l1_sensitivity,
    one_is_enough,
)
from noisewise.core.noise import DiscreteLaplace
from noisewise.core.privacy import Event, PureEvent, float_up
from noisewise.core.schema import Schema
from noisewise.holder.mechanisms import randomness
from noisewise.holder.mechanisms.laplace import verify_laplace
from noisewise.holder.rows import Codes, Floats, Integers, check_row_count, flat
from noisewise.holder.rows.values import filled

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FamilyCounts:
    """The exact counts. They are as private as the rows: never log or show them."""

    n: int = field(repr=False)  # the number of rows
    # By node, of `network.shape(node)`; or by the columns of each table (`CountPlan.families`)
    tables: Mapping[Any, Table] = field(repr=False)


@dataclass(frozen=True)
class CountPlan:
    """Count all families of a network."""

    network: Network
    # Other tables than those of the network's families, by the key that each will have
    families: Mapping[Any, tuple[str, ...]] | None = None

    @property
    def schema(self) -> Schema:
        return self.network.schema

    @property
    def sources(self) -> tuple[str, ...]:
        return self.network.nodes

    def accumulator(self) -> CountAccumulator:
        return CountAccumulator(self)


class CountAccumulator:
    """Counts all families, block by block."""

    def __init__(self, plan: CountPlan) -> None:
        self.n = 0
        network = plan.network
        self._plan = plan
        position = {name: i for i, name in enumerate(plan.sources)}
        wanted = plan.families or {node: network.family(node) for node in network.nodes}
        self._shape = {key: tuple(map(network.arity, names)) for key, names in wanted.items()}
        self._families = {
            key: [(position[name], network.arity(name)) for name in names]
            for key, names in wanted.items()
        }
        self._counts = {key: np.zeros(math.prod(s), np.int64) for key, s in self._shape.items()}

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        """Add rows; a missing value takes its public fill value, or is an error."""
        rows = len(columns[0])
        check_row_count(self.n + rows)
        schema, sources = self._plan.schema, self._plan.sources
        codes = [
            filled(column, schema, name) for column, name in zip(columns, sources, strict=True)
        ]
        for node, family in self._families.items():
            counts = self._counts[node]
            counts += np.bincount(_cell_numbers(codes, family), minlength=len(counts))
        self.n += rows

    def state(self) -> Integers:
        return flat(self.n, *self._counts.values())

    def join(self, state: Integers) -> None:
        check_row_count(self.n + int(state[0]))
        self.n += int(state[0])
        start = 1
        for node, counts in self._counts.items():
            self._counts[node] = counts + state[start : start + len(counts)]
            start += len(counts)

    def result(self) -> FamilyCounts:
        tables = {key: c.reshape(self._shape[key]).copy() for key, c in self._counts.items()}
        return FamilyCounts(self.n, tables)


def _cell_numbers(codes: Sequence[Codes], family: Sequence[tuple[int, int]]) -> Codes:
    """The C-order index of every row's cell. A family has at most 2**20 cells: 32 bits will do."""
    cells = codes[family[0][0]]
    for position, arity in family[1:]:
        cells = cells * np.int32(arity) + codes[position]
    return cells


# --- what every mechanism makes of them, and which records a unit can change ----------------------


class NetworkMechanism(Protocol):
    """Planned from public quantities only; `draw` is where counts become publishable."""

    def event(self) -> Event:
        """The privacy claim: what this mechanism costs."""

    def verify(self) -> None:
        """Check the claim by other means than it was planned by; raise if it does not hold."""

    def describe(self) -> dict[str, Any]:
        """What a dry run shows."""

    def draw(self, counts: FamilyCounts) -> Content:
        """Fresh noise, or fresh draws. Takes no seed."""

    def longest(self) -> Content:
        """What `draw` returns, with the longest integer of its range for every drawn one.

        Of several draws it holds one. Nothing is drawn, and no data is involved.
        """


def longest_draw(network: Network, lowest: int) -> tuple[Mapping[str, tuple[int, ...]]]:
    """One draw of tables with every split at 1 - ω, than which none has more digits."""
    top = (1 << TABLE_BITS) - lowest
    splits = {
        node: network.configurations(node) * (network.arity(node) - 1) for node in network.nodes
    }
    return ({node: (top,) * number for node, number in splits.items()},)


# --- discrete Laplace noise, and the counts that update the posterior of every table with it ------


@dataclass(frozen=True)
class LaplaceNoise(ABC):
    """Independent discrete Laplace noise of scale Δ/ε on every published integer."""

    network: Network
    epsilon: Fraction

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """Δ, in records."""

    @cached_property
    def scale(self) -> float:
        """The smallest double that is at least Δ/ε."""
        return float_up(self.sensitivity / self.epsilon)

    def event(self) -> PureEvent:
        return PureEvent(self.epsilon)

    def verify(self) -> None:
        """OpenDP's map of Δ must be at most ε (rounded up to a double)."""
        verify_laplace(self.scale, self.sensitivity, self.epsilon)

    def _noise(self) -> dict[str, Any]:
        return {
            "sensitivity": self.sensitivity,
            "noise": "discrete_laplace",
            "scale": self.scale,
            "standard_deviation": DiscreteLaplace(self.scale).variance ** 0.5,
        }

    def _drawn(self, exact: Sequence[int]) -> tuple[int, ...]:
        return randomness.invoke(randomness.laplace_measurement(self.scale), exact)


@dataclass(frozen=True)
class LaplaceCounts(LaplaceNoise):
    """Independent discrete Laplace noise of scale s ≥ Δ/ε on every count.

    **Claim.** ε-differential privacy.

    **Proof.** A record is in exactly one cell of every family's table. Adding or removing one
    changes one count of each table by 1, so Δ = |I| for |I| nodes. Replacing one changes at most
    two counts of each table by 1, so Δ = 2|I|; where n is public and a node is a binary root, only
    one of its two counts is published (the other is n minus it, which is post-processing), and
    that changes by at most 1. Two records that differ in every column are in different cells of
    every family, so Δ is attained. A unit with r records changes r times as much at most. The
    discrete Laplace law has P(z)/P(z + c) ≤ exp(|c|/s) for integers, and so has the product over
    all published counts with ‖c‖₁ ≤ Δ: exp(Δ/s) ≤ e^ε. ∎

    Roots with three levels or more publish all their counts: leaving one out would not lower Δ.

    References
    ----------
    Zhang, Rubinstein & Dimitrakakis (2016), "On the differential privacy of Bayesian inference",
    Algorithm 1, with integer noise.
    """

    @cached_property
    def sensitivity(self) -> int:
        return l1_sensitivity(self.network)

    @property
    def sizes(self) -> dict[str, int]:
        """How many counts of every node are published."""
        cells, alone = self.network.cells, self._one
        return {node: 1 if alone(node) else cells(node) for node in self.network.nodes}

    def describe(self) -> dict[str, Any]:
        return {"counts": sum(self.sizes.values()), **self._noise()}

    def draw(self, counts: FamilyCounts) -> NoisyCounts:
        exact: list[int] = []
        for node in self.network.nodes:
            cells = counts.tables[node].ravel().tolist()
            exact.extend(cells[1:] if self._one(node) else cells)
        noisy = iter(self._drawn(exact))
        values = {node: tuple(islice(noisy, size)) for node, size in self.sizes.items()}
        return NoisyCounts(values, self.scale, self.sensitivity)

    def longest(self) -> NoisyCounts:
        values = {node: (-MAX_INTEGER - 1,) * size for node, size in self.sizes.items()}
        return NoisyCounts(values, self.scale, self.sensitivity)

    def _one(self, node: str) -> bool:
        return one_is_enough(self.network, self.network.schema.n_is_public, node)
