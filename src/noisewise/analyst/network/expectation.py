"""Probabilities of parents' levels under the network, by summing forwards.

Nodes are added in topological order to a table over a frontier, and summed out when no later node
needs them. It is exact, and affordable when the frontier stays small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.analyst.network.layout import Floats, Layout

MAX_FRONTIER = 1 << 12


@dataclass(frozen=True)
class Step:
    """Add a node to the frontier, then keep some of it."""

    node: int
    before: tuple[int, ...]
    keep: tuple[int, ...]


def plan(layout: Layout, wanted: tuple[int, ...]) -> list[Step] | None:
    """How to get the table over `wanted`; None where a frontier would be too large."""
    needed = set(wanted)
    for i in range(len(layout.nodes) - 1, -1, -1):
        if i in needed:
            needed |= set(layout.parents[i])
    steps: list[Step] = []
    frontier: tuple[int, ...] = ()
    ancestors = sorted(needed)
    for position, i in enumerate(ancestors):
        later = set(wanted).union(*(layout.parents[j] for j in ancestors[position + 1 :]))
        if layout.size((*frontier, i)) > MAX_FRONTIER:
            return None
        keep = tuple(j for j in (*frontier, i) if j in later)
        steps.append(Step(i, frontier, keep))
        frontier = keep
    return steps


def probabilities(layout: Layout, steps: list[Step], theta: Floats) -> Floats:
    """The table over the last step's `keep`, sorted by number, from all tables' cells."""
    table = np.ones(())
    einsum: Any = np.einsum  # its stubs don't know lists of axes
    for step in steps:
        own = theta[layout.part(step.node)].reshape(layout.shape(layout.families[step.node]))
        table = einsum(
            table, list(step.before), own, list(layout.families[step.node]), list(step.keep)
        )
    return table
