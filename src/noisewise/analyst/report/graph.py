"""A network drawn as a list of its nodes with arcs from parents to children.

One node a line: names stay as large as the text around them, on a phone as well as with fifty
nodes, where boxes beside each other would not. Parents are above their children, so every arc goes
down; it leaves a node below its dot and ends in an arrow at its child's.
"""

from __future__ import annotations

import math

from noisewise.analyst.report.charts import cut, svg
from noisewise.analyst.report.markup import Markup, join, tag
from noisewise.analyst.report.sections import listed
from noisewise.core.network import Network

MOST_NODES = 100  # beyond them nobody can follow an arc
_LINE = 28  # pixels from one node to the next
_TOLD = 12


def drawing(network: Network) -> Markup:
    """The graph, with a text that names its edges."""
    order = family_order(network)
    place = {node: number for number, node in enumerate(order)}
    reach = max((place[b] - place[a] for a, b in network.edges), default=0)
    gutter = min(40 + 9 * reach, 130) if network.edges else 10
    arcs = [_arc(place[a], place[b], gutter, reach) for a, b in network.edges]
    lines = [_node(node, number, gutter) for node, number in place.items()]
    height = _LINE * len(order)
    return svg(height, description(network), join(*arcs), *lines, style="chart graph")


def description(network: Network) -> str:
    """The graph in words; the table beside it has every edge."""
    nodes, edges = len(network.nodes), len(network.edges)
    start = f"Graph of {nodes:,} node{'s' if nodes > 1 else ''} and {edges:,} arrow"
    if not edges:
        return f"{start}s: {listed(network.nodes, _TOLD)} are independent of each other."
    told = listed([f"{a} to {b}" for a, b in network.edges], _TOLD)
    return f"{start}{'s' if edges > 1 else ''}: {told}."


def family_order(network: Network) -> list[str]:
    """Parents before children, and children soon after their last parent: arcs are then short."""
    place: dict[str, int] = {}
    waiting = list(network.nodes)
    while waiting:
        ready = [node for node in waiting if all(p in place for p in network.parents[node])]
        # The earliest declared of those whose last parent is the latest; roots come last of all.
        latest = {n: max((place[p] for p in network.parents[n]), default=-1) for n in ready}
        best = max(ready, key=latest.__getitem__)
        place[best] = len(place)
        waiting.remove(best)
    return list(place)


def _arc(parent: int, child: int, gutter: int, reach: int) -> Markup:
    """From below the parent's dot to the child's, the further out to the left the more it spans."""
    start, end = _middle(parent) + 3, _middle(child) - 2
    wide = math.sqrt((child - parent - 1) / max(reach - 1, 1))
    away = 20 + (gutter - 26) * wide
    left = gutter - away / 0.75  # a Bézier curve goes three quarters as far as its control points
    curve = f"M{gutter} {start}C{left:.0f} {start} {left:.0f} {end} {gutter - 9} {end}"
    tip = f"M{gutter - 10} {end - 4}L{gutter - 3} {end}L{gutter - 10} {end + 4}z"
    return join(tag("path", class_="arc", d=curve), tag("path", class_="tip", d=tip))


def _node(name: str, number: int, gutter: int) -> Markup:
    y = _middle(number)
    return join(
        tag("circle", class_="node", cx=gutter, cy=y, r="4"),
        tag("text", cut(name, 22), x=gutter + 12, y=y + 4, class_="name"),
    )


def _middle(number: int) -> int:
    return _LINE * number + _LINE // 2
