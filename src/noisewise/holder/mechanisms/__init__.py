"""Mechanisms: secure noise on finished integers, with the privacy claim beside the code.

A mechanism is planned from public quantities only. `event` is its claim, `verify` checks the claim
against OpenDP's own privacy map, and `add_noise` is the only place where sums become publishable.
None takes a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noisewise.core.privacy import Event


class Mechanism(Protocol):
    """What every mechanism offers."""

    @property
    def family(self) -> str:
        """Name of the noise family, as Releases spell it."""

    @property
    def sensitivity(self) -> int:
        """The sensitivity that the noise was calibrated for, in grid units."""

    @property
    def scale(self) -> int:
        """Noise scale of (diagonal) entries, in grid units."""

    @property
    def off_diagonal_scale(self) -> int:
        """Noise scale of off-diagonal entries; equal to `scale` in the upper layout."""

    def event(self) -> Event:
        """The privacy claim: what this mechanism costs."""

    def verify(self) -> None:
        """Check the claim against OpenDP's map; raise if it is not supported."""

    def add_noise(self, sums: Sequence[int]) -> tuple[int, ...]:
        """The sums with fresh noise."""
