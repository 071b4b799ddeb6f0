"""Mechanisms that are broken on purpose: negative controls for audits. Never publish with them.

Each looks like a sound mechanism from outside (same claim, same stated scale, `verify` passes) and
draws its noise wrongly, as a mistake in the code would. They can be put into the whole path from
rows to a Release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from noisewise.core.errors import RequestError
from noisewise.core.statistic import FourthMoments
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.mechanisms.laplace import LaplaceMechanism

if TYPE_CHECKING:
    from noisewise.core.privacy import Event
    from noisewise.holder.request import Request

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
    if isinstance(mechanism, GaussianMechanism):
        return replace(mechanism, scale=mechanism.scale * numerator // denominator)
    return replace(mechanism, epsilon=mechanism.epsilon * denominator / numerator)
