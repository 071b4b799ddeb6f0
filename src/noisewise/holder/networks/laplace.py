"""Discrete Laplace noise, and the counts that update the posterior of every table with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any

from noisewise.core.document import MAX_INTEGER
from noisewise.core.kinds.network.content import NoisyCounts, l1_sensitivity, one_is_enough
from noisewise.core.kinds.network.graph import Network
from noisewise.core.noise import DiscreteLaplace
from noisewise.core.privacy import PureEvent, float_up
from noisewise.holder.mechanisms import randomness
from noisewise.holder.mechanisms.laplace import verify_laplace
from noisewise.holder.networks.counts import FamilyCounts


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
        """ε-differential privacy."""
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
        """Δ, in records."""
        return l1_sensitivity(self.network)

    @property
    def sizes(self) -> dict[str, int]:
        """How many counts of every node are published."""
        cells, alone = self.network.cells, self._one
        return {node: 1 if alone(node) else cells(node) for node in self.network.nodes}

    def describe(self) -> dict[str, Any]:
        """Number of counts, sensitivity and noise."""
        return {"counts": sum(self.sizes.values()), **self._noise()}

    def draw(self, counts: FamilyCounts) -> NoisyCounts:
        """The counts with fresh noise, all in one call."""
        exact: list[int] = []
        for node in self.network.nodes:
            cells = counts.tables[node].ravel().tolist()
            exact.extend(cells[1:] if self._one(node) else cells)
        noisy = iter(self._drawn(exact))
        values = {node: tuple(islice(noisy, size)) for node, size in self.sizes.items()}
        return NoisyCounts(values, self.scale, self.sensitivity)

    def longest(self) -> NoisyCounts:
        """With the longest of 64-bit integers."""
        values = {node: (-MAX_INTEGER - 1,) * size for node, size in self.sizes.items()}
        return NoisyCounts(values, self.scale, self.sensitivity)

    def _one(self, node: str) -> bool:
        return one_is_enough(self.network, self.network.schema.n_is_public, node)
