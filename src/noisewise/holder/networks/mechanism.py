"""What every mechanism for networks offers, and which records a unit can change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from noisewise.core.kinds.network.content import TABLE_BITS, Content
from noisewise.core.kinds.network.graph import Network
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


def records_changed(schema: Schema) -> int:
    """How often one unit can add or take away a record."""
    return schema.records_changed
