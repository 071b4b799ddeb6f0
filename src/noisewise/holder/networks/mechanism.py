"""What every mechanism for networks offers, and which records a unit can change."""

from __future__ import annotations

from typing import Any, Protocol

from noisewise.core.network_content import Content
from noisewise.core.privacy import PureEvent
from noisewise.core.schema import Schema
from noisewise.holder.networks.counts import FamilyCounts


class NetworkMechanism(Protocol):
    """Planned from public quantities only; `draw` is where counts become publishable."""

    def event(self) -> PureEvent:
        """The privacy claim: what this mechanism costs."""

    def verify(self) -> None:
        """Check the claim by other means than it was planned by; raise if it does not hold."""

    def describe(self) -> dict[str, Any]:
        """What a dry run shows."""

    def draw(self, counts: FamilyCounts) -> Content:
        """Fresh noise, or fresh draws. Takes no seed."""


def records_changed(schema: Schema) -> int:
    """How often one unit can add or take away a record."""
    return schema.records_changed
