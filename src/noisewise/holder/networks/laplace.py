"""Discrete Laplace noise on the counts that update the posterior of every table."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisewise.core.document import MAX_INTEGER
from noisewise.core.kinds.network.content import NoisyCounts, l1_sensitivity, one_is_enough
from noisewise.core.kinds.network.graph import Network
from noisewise.core.noise import DiscreteLaplace
from noisewise.core.precision import float_up
from noisewise.core.privacy import PureEvent
from noisewise.holder.mechanisms import randomness
from noisewise.holder.networks.counts import FamilyCounts


@dataclass(frozen=True)
class LaplaceCounts:
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

    Parameters
    ----------
    network : Network
    epsilon : Fraction

    References
    ----------
    Zhang, Rubinstein & Dimitrakakis (2016), "On the differential privacy of Bayesian inference",
    Algorithm 1, with integer noise.
    """

    network: Network
    epsilon: Fraction

    @cached_property
    def sensitivity(self) -> int:
        """Δ, in records."""
        return l1_sensitivity(self.network)

    @cached_property
    def scale(self) -> float:
        """The smallest double that is at least Δ/ε."""
        return float_up(self.sensitivity / self.epsilon)

    def event(self) -> PureEvent:
        """ε-differential privacy."""
        return PureEvent(self.epsilon)

    def verify(self) -> None:
        """OpenDP's map of Δ must be at most ε (rounded up to a double)."""
        verify_scale(self.scale, self.sensitivity, self.epsilon)

    def describe(self) -> dict[str, Any]:
        """Number of counts, sensitivity and noise."""
        published = sum(
            1 if self._one(node) else self.network.cells(node) for node in self.network.nodes
        )
        return {
            "counts": published,
            "sensitivity": self.sensitivity,
            "noise": "discrete_laplace",
            "scale": self.scale,
            "standard_deviation": DiscreteLaplace(self.scale).variance ** 0.5,
        }

    def draw(self, counts: FamilyCounts) -> NoisyCounts:
        """The counts with fresh noise, all in one call."""
        exact: list[int] = []
        ends = []
        for node in self.network.nodes:
            cells = counts.tables[node].ravel().tolist()
            exact.extend(cells[1:] if self._one(node) else cells)
            ends.append(len(exact))
        noisy = randomness.invoke(randomness.laplace_measurement(self.scale), exact)
        starts = [0, *ends[:-1]]
        values = {
            node: noisy[start:end]
            for node, start, end in zip(self.network.nodes, starts, ends, strict=True)
        }
        return NoisyCounts(values, self.scale, self.sensitivity)

    def longest(self) -> NoisyCounts:
        """With the longest of 64-bit integers."""
        sizes = {n: 1 if self._one(n) else self.network.cells(n) for n in self.network.nodes}
        values = {node: (-MAX_INTEGER - 1,) * size for node, size in sizes.items()}
        return NoisyCounts(values, self.scale, self.sensitivity)

    def _one(self, node: str) -> bool:
        return one_is_enough(self.network, n_is_public(self.network), node)


def n_is_public(network: Network) -> bool:
    """Whether the number of rows may be known."""
    return network.schema.n_is_public


def verify_scale(scale: float, sensitivity: int, epsilon: Fraction) -> None:
    """OpenDP's own map must grant the claim."""
    spent = randomness.laplace_measurement(scale).map(sensitivity)
    if not spent <= float_up(epsilon):
        raise AssertionError(f"OpenDP charges {spent} for a claim of {float(epsilon)}")
