"""Network mechanisms that are broken on purpose: negative controls. Never publish with them.

Each has the claim of a sound mechanism and breaks it in a way that looks harmless. The first two
are in the literature: trimming by clamping, and drawing again until nothing is negative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from noisewise.core.network_content import TABLE_BITS, NoisyCounts, NoisyParities, TableDraws
from noisewise.core.privacy import PureEvent
from noisewise.holder.networks.counts import FamilyCounts
from noisewise.holder.networks.fourier import FourierParities
from noisewise.holder.networks.laplace import LaplaceCounts
from noisewise.holder.networks.map import GridMap
from noisewise.holder.networks.posterior_sample import PosteriorSample, split_samplers
from noisewise.holder.networks.regression import RegressionSample
from noisewise.holder.sums import Sums


@dataclass(frozen=True)
class ClampingSampler:
    """Draws from the whole posterior, and clamps what is outside [ω, 1-ω] to its ends.

    The probability of an end point is then a tail of the posterior, and a record changes a tail
    by far more than its own likelihood ratio: with three records of one kind and ω = 0.4, a draw at
    the far end is seven times as likely if one of them changes, where the claim allows 2.25.
    """

    claimed: PosteriorSample

    def event(self) -> PureEvent:
        """As claimed."""
        return self.claimed.event()

    def verify(self) -> None:
        """Verify the claim, which is not what is drawn."""
        self.claimed.verify()

    def describe(self) -> dict[str, Any]:
        """As claimed."""
        return self.claimed.describe()

    def draw(self, counts: FamilyCounts) -> TableDraws:
        """Clamped draws."""
        claimed = self.claimed
        low, high = claimed.lowest, (1 << TABLE_BITS) - claimed.lowest
        draws: list[dict[str, tuple[int, ...]]] = [{} for _ in range(claimed.draws)]
        for node in claimed.network.nodes:
            concentration = claimed.concentration[node]
            given = (claimed.network, node, counts, claimed.temper, concentration)
            samplers = split_samplers(*given, 1)
            for draw in draws:
                draw[node] = tuple(min(max(s.draw(), low), high) for s in samplers)
        return TableDraws(tuple(draws), "posterior", low, claimed.temper, claimed.concentration)


@dataclass(frozen=True)
class RetryUntilNonNegative:
    """Draws noise again until no cell is negative, at the price of one draw.

    What is kept has the law of the noise given that it was kept, and the probability of being
    kept depends on the data: the loss is up to 2ε.
    """

    claimed: FourierParities

    def event(self) -> PureEvent:
        """As claimed."""
        return self.claimed.event()

    def verify(self) -> None:
        """Verify the claim, which is not what is drawn."""
        self.claimed.verify()

    def describe(self) -> dict[str, Any]:
        """As claimed."""
        return self.claimed.describe()

    def draw(self, counts: FamilyCounts) -> NoisyParities:
        """The first draw without a negative cell."""
        while True:
            content = self.claimed.draw(counts)
            if self.keeps(content, counts.n):
                return content

    def keeps(self, content: NoisyParities, n: int) -> bool:
        """Whether no cell of any table is negative."""
        parities = self.claimed.parities
        return all(
            parities.table(node, n, content.values).min() >= 0
            for node in self.claimed.network.nodes
        )


@dataclass(frozen=True)
class CountsWithHalfTheNoise:
    """Claims the noise of `claimed`, and draws half of it."""

    claimed: LaplaceCounts

    def draw(self, counts: FamilyCounts) -> NoisyCounts:
        """Counts with too little noise."""
        drawn = replace(self.claimed, epsilon=2 * self.claimed.epsilon).draw(counts)
        return NoisyCounts(drawn.values, self.claimed.scale, self.claimed.sensitivity)


@dataclass(frozen=True)
class GridWithoutSensitivity:
    """The exponential mechanism of `claimed`, without dividing by the sensitivity of its score."""

    claimed: GridMap

    def draw(self, counts: FamilyCounts) -> TableDraws:
        """A draw that follows the score more closely than it may."""
        factor = self.claimed.sensitivity * 20
        return replace(self.claimed, epsilon=self.claimed.epsilon * factor).draw(counts)


@dataclass(frozen=True)
class UntemperedRegression:
    """Claims the cost of a tempered posterior, and draws from the plain one."""

    claimed: RegressionSample

    def draw(self, sums: Sums) -> tuple[tuple[int, ...], ...]:
        """Draws that follow the data more closely than they may."""
        plain = replace(self.claimed.law, temper=Fraction(1))
        return replace(self.claimed, law=plain).draw(sums)
