"""Mechanisms that are broken on purpose: negative controls for audits. Never publish with them.

Each looks like a sound mechanism from outside (same claim, same stated scale, `verify` passes) and
draws its noise wrongly, as a mistake in the code would. They can be put into the whole path from
rows to a Release.

Each has the claim of a sound mechanism and breaks it in a way that looks harmless. The first two
are in the literature: trimming by clamping, and drawing again until nothing is negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Protocol

from noisewise.core.errors import RequestError
from noisewise.core.statistics import FourthMoments
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.mechanisms.laplace import LaplaceMechanism

if TYPE_CHECKING:
    from noisewise.core.privacy import Event
    from noisewise.holder.requests.regression import Request
from fractions import Fraction
from typing import Any

from noisewise.core.kinds.network.release import TABLE_BITS, NoisyCounts, NoisyParities, TableDraws
from noisewise.core.privacy import PureEvent
from noisewise.holder.draws import RegressionSample
from noisewise.holder.networks.counts import FamilyCounts, LaplaceCounts
from noisewise.holder.networks.fourier import FourierParities
from noisewise.holder.networks.map import GridMap
from noisewise.holder.networks.posterior_sample import PosteriorSample, split_samplers
from noisewise.holder.requests.glm import GlmRequest
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.holder.rows.sums import Sums

Sound = LaplaceMechanism | GaussianMechanism


class AddsNoise(Protocol):
    """Whatever turns exact sums into what is published."""

    def add_noise(self, sums: Sequence[int]) -> tuple[int, ...]:
        """The sums, with noise or what passes for it."""


@dataclass(frozen=True)
class BrokenMechanism:
    """Claims what `claimed` claims, but its noise comes from `drawn`."""

    claimed: Sound
    drawn: AddsNoise

    @property
    def family(self) -> str:
        """As claimed."""
        return self.claimed.family

    @property
    def sensitivity(self) -> int:
        """As claimed."""
        return self.claimed.sensitivity

    @property
    def scale(self) -> int:
        """As claimed."""
        return self.claimed.scale

    @property
    def off_diagonal_scale(self) -> int:
        """As claimed."""
        return self.claimed.off_diagonal_scale

    def event(self) -> Event:
        """As claimed."""
        return self.claimed.event()

    def verify(self) -> None:
        """Verify the claim, which is not what is drawn."""
        self.claimed.verify()

    def add_noise(self, sums: Sequence[int]) -> tuple[int, ...]:
        """The sums with noise that doesn't support the claim."""
        return self.drawn.add_noise(sums)


class NoNoise:
    """Passes the exact sums on."""

    def add_noise(self, sums: Sequence[int]) -> tuple[int, ...]:
        """The sums as they are."""
        return tuple(sums)


def with_mechanisms(request: Request, *mechanisms: BrokenMechanism | Sound) -> Request:
    """The same request, claims and all, with other mechanisms at work."""
    broken = replace(request)
    # `mechanisms` is a cached property; this is its cache.
    broken.__dict__["mechanisms"] = mechanisms
    return broken


def fourth_moments_without_noise(request: Request) -> Request:
    """The second moments get their noise, the fourth moments are passed on exactly.

    The authors' code of Bernstein & Sheldon (2019) does this for Gibbs-SS-Noisy.
    """
    if request.fourth_share is None:
        raise RequestError("request: expected one with fourth moments")
    planned = zip(request.statistics, request.mechanisms, strict=True)
    mechanisms = []
    for statistic, mechanism in planned:
        assert isinstance(mechanism, Sound)
        exact = isinstance(statistic, FourthMoments)
        mechanisms.append(BrokenMechanism(mechanism, NoNoise()) if exact else mechanism)
    return with_mechanisms(request, *mechanisms)


def noise_scale_halved(mechanism: Sound) -> BrokenMechanism:
    """The noise is half as large as claimed."""
    return BrokenMechanism(mechanism, _with_scale(mechanism, 1, 2))


class HalfNoiseRounds(RoundsRequest):
    """Rounds in which every draw has half of the noise that its Release states."""

    def noise(self, sensitivity: int, square: Fraction, off_diagonal: tuple[bool, ...]) -> Any:
        """As claimed, but half of it is drawn."""
        return noise_scale_halved(super().noise(sensitivity, square, off_diagonal))


class HalfNoiseScores(GlmRequest):
    """Looks and Newton rounds in which every draw has half of the noise that is stated."""

    def noise(self, sensitivity: int, square: Fraction, off_diagonal: tuple[bool, ...]) -> Any:
        """As claimed, but half of it is drawn."""
        return noise_scale_halved(super().noise(sensitivity, square, off_diagonal))

    def _mechanisms(self, longest: int, square: Fraction) -> Any:
        score, information = super()._mechanisms(longest, square)
        return score, noise_scale_halved(information)


def add_remove_passed_off_as_replace_one(request: Request) -> BrokenMechanism:
    """The noise is calibrated for one row more or less, but the claim is for replacing a row.

    How far that falls short depends on the norm: by √2 for Gaussian noise in the isometric layout,
    hardly for Laplace noise on centred columns.
    """
    if request.design.schema.neighbours != "replace_one":
        raise RequestError("request: expected neighbours 'replace_one'")
    schema = replace(request.design.schema, neighbours="add_remove_one")
    other = replace(request, design=replace(request.design, schema=schema))
    claimed, lesser = request.mechanisms[0], other.mechanisms[0]
    assert isinstance(claimed, Sound)
    return BrokenMechanism(claimed, _with_scale(claimed, lesser.sensitivity, claimed.sensitivity))


class NoiseDrawnOnce:
    """The noise of the first release is used again for every later one.

    One release is as private as ever. Two releases of different sums differ by exactly what the
    sums differ by, without any noise.
    """

    def __init__(self, mechanism: Sound) -> None:
        self._mechanism = mechanism
        self._noise: tuple[int, ...] | None = None

    def add_noise(self, sums: Sequence[int]) -> tuple[int, ...]:
        """The sums with the one noise vector."""
        if self._noise is None:
            self._noise = self._mechanism.add_noise([0] * len(sums))
        return tuple(value + noise for value, noise in zip(sums, self._noise, strict=True))


def _with_scale(mechanism: Sound, numerator: int, denominator: int) -> Sound:
    """The same mechanism with its noise scale multiplied by a ratio, up to rounding."""
    if "scale" in {one.name for one in fields(mechanism)}:
        return replace(mechanism, scale=mechanism.scale * numerator // denominator)
    return replace(mechanism, epsilon=mechanism.epsilon * denominator / numerator)


# --- networks -------------------------------------------------------------------------------------


class _AsClaimed:
    """A mechanism for networks that is what it claims to be in everything but what it draws."""

    claimed: Any

    def event(self) -> PureEvent:
        """As claimed."""
        return self.claimed.event()

    def verify(self) -> None:
        """Verify the claim, which is not what is drawn."""
        self.claimed.verify()

    def describe(self) -> dict[str, Any]:
        """As claimed."""
        return self.claimed.describe()


@dataclass(frozen=True)
class ClampingSampler(_AsClaimed):
    """Draws from the whole posterior, and clamps what is outside [ω, 1-ω] to its ends.

    The probability of an end point is then a tail of the posterior, and a record changes a tail
    by far more than its own likelihood ratio: with three records of one kind and ω = 0.4, a draw at
    the far end is seven times as likely if one of them changes, where the claim allows 2.25.
    """

    claimed: PosteriorSample

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
class RetryUntilNonNegative(_AsClaimed):
    """Draws noise again until no cell is negative, at the price of one draw.

    What is kept has the law of the noise given that it was kept, and the probability of being
    kept depends on the data: the loss is up to 2ε.
    """

    claimed: FourierParities

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
