"""Elements of a page: HTML that is safe by construction, tables, and charts as inline SVG.

Text becomes markup through `tag` only, which escapes it. Names of columns, levels and data sets
come with a Release from somebody else. They may be ``<script>`` or hold characters that reverse the
direction of writing; here they are text.

In charts positions along the page are percentages and sizes are pixels, with no viewBox: a chart
grows and shrinks with its column while its letters stay as large as the text around it, on a phone
as well as on paper. Every chart is an image with a text that says what it shows.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from noisewise.analyst.report.words import listed, short, ticks
from noisewise.core.kinds.network.graph import Network

VOID = frozenset({"br", "circle", "line", "meta", "path", "rect", "wbr"})


class Markup(str):
    """Finished markup; every other text is escaped when it is put into a tag."""

    __slots__ = ()


Content = str | int | None


def text(value: Content) -> Markup:
    """Escaped text. Control and direction-changing characters are shown, not obeyed."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup()
    return Markup(escape("".join(map(_visible, str(value))), quote=True))


def _visible(character: str) -> str:
    """Controls, invisible format characters and half surrogates become a symbol.

    The two joiners stay: Persian and Indian names are spelt with them.
    """
    if character in "\u200c\u200d":
        return character
    if character == "\n":
        return " "
    kind = unicodedata.category(character)
    return "\N{REPLACEMENT CHARACTER}" if kind in ("Cc", "Cf", "Cs", "Zl", "Zp") else character


def tag(name: str, /, *children: Content, **attributes: Content) -> Markup:
    """An element. A trailing underscore goes and others become hyphens: ``class_``, ``aria_label``.

    Attributes that are None are left out.
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{words}/>")
    return Markup(f"<{name}{words}>{''.join(map(text, children))}</{name}>")


def breakable(name: str) -> Markup:
    """A name that may go on in a new line after an underscore, where there is no room for it."""
    first, *rest = name.split("_")
    return join(first, *(join("_", tag("wbr"), part) for part in rest))


def join(*parts: Content) -> Markup:
    """Elements and texts one after another."""
    return Markup("".join(map(text, parts)))


# --- sections and tables that read well on a phone and to a screen reader ---------------------
#
# On narrow screens the style sheet turns a row into a card, with the column's name before each
# cell. Browsers drop the meaning of table elements that are laid out otherwise, so roles are spelt
# out.


def section(name: str, title: str, *children: Content) -> Markup:
    """A part of the page with a heading that names it. Plain text becomes a paragraph."""
    heading = tag("h2", title, id=f"{name}-title")
    parts = [tag("p", child) if type(child) is str else child for child in children]
    return tag("section", heading, *parts, id=name, aria_labelledby=f"{name}-title")


def _room(cell: Content) -> str | None:
    """Intervals and numbers stay on one line where there is room."""
    return "short" if len(str(cell)) <= 24 else None


def table(caption: str, head: Sequence[str], body: Sequence[Sequence[Content]]) -> Markup:
    """A table whose first column names the rows."""
    empty = tag("td", role="cell", class_="corner")
    headers = [tag("th", k, scope="col", role="columnheader") if k else empty for k in head]
    rows = []
    for first, *rest in body:
        cells = [
            empty
            if cell == ""
            else tag("td", cell, role="cell", data_label=label, class_=_room(cell))
            for label, cell in zip(head[1:], rest, strict=True)
        ]
        name = tag("th", breakable(str(first)), scope="row", role="rowheader")
        rows.append(tag("tr", name, *cells, role="row"))
    top = tag("thead", tag("tr", *headers, role="row"), role="rowgroup")
    return _table(caption, rows, top)


def _table(caption: str, rows: Sequence[Markup], top: Markup | None = None) -> Markup:
    body = tag("tbody", *rows, role="rowgroup")
    return tag("table", tag("caption", caption), top, body, role="table")


def facts(caption: str, known: Sequence[tuple[str, Content]]) -> Markup:
    """A table of what is known about one thing, a line each."""
    rows = []
    for name, value in known:
        head = tag("th", name, scope="row", role="rowheader")
        rows.append(tag("tr", head, tag("td", value, role="cell", class_="fact"), role="row"))
    return _table(caption, rows)


def figure(caption: str, chart: Markup) -> Markup:
    """A chart with its caption."""
    return tag("figure", tag("figcaption", caption), chart)


# --- charts ------------------------------------------------------------------------------------


_LINE = 24  # pixels from one interval to the next
_EDGE = 3.0  # per cent kept free on either side


class Bar(NamedTuple):
    """An interval to draw: its ends, the middle half, the mean, and how it looks."""

    label: str
    style: str  # a class of the style sheet: aware or naive
    lower: float
    inner_lower: float
    mean: float
    inner_upper: float
    upper: float
    outer: tuple[float, float] | None = None  # a wider interval around it, drawn as a thin line

    @property
    def reach(self) -> tuple[float, float]:
        """The ends of the widest interval."""
        return self.outer or (self.lower, self.upper)


class Line(NamedTuple):
    """A probability with its name: a bar as this analysis sees it, and others to compare."""

    name: str
    bars: Sequence[Bar]


def plain(label: str, style: str, low: float, middle: float, high: float) -> Bar:
    """An interval of which only the ends and a middle are known."""
    return Bar(label, style, low, middle, middle, middle, high)


def point(label: str, style: str, value: float) -> Bar:
    """A number that has no interval."""
    return plain(label, style, value, value, value)


class _Axis(NamedTuple):
    low: float
    high: float

    def at(self, value: float) -> str:
        """A value's place, in per cent of the width."""
        inside = 100 - 2 * _EDGE
        place = _EDGE + inside * (value - self.low) / (self.high - self.low)
        return f"{min(max(place, 0.0), 100.0):.2f}%"


def intervals(bars: Sequence[Bar], description: str) -> Markup:
    """Intervals of one parameter above each other, on their own axis, with zero marked if near."""
    axis, bottom = _around(bars), _LINE * len(bars) + 8
    drawn = [_scale(axis, bottom)]
    if axis.low < 0 < axis.high:
        drawn.append(_zero(axis, bottom))
    for number, bar in enumerate(bars):
        drawn.append(_interval(axis, bar, _LINE * number + _LINE // 2 + 2))
    return svg(bottom + 24, description, *drawn)


def probabilities(lines: Sequence[Line], description: str) -> Markup:
    """Intervals or points of probabilities, on one axis from 0 to 1, each below its name."""
    return _named(_Axis(0.0, 1.0), lines, description)


def forest(bars: Sequence[Bar], description: str) -> Markup:
    """Intervals that share an axis, each below its own name, with zero marked if near."""
    return _named(_around(bars), [Line(bar.label, [bar]) for bar in bars], description)


def _named(axis: _Axis, lines: Sequence[Line], description: str) -> Markup:
    top, drawn = 0, []
    for line in lines:
        drawn.append(tag("text", cut(line.name, 38), x="0", y=top + 14, class_="name"))
        for number, bar in enumerate(line.bars):
            drawn.append(_interval(axis, bar, top + 27 + 14 * number))
        top += 26 + 14 * len(line.bars)
    bottom = top + 8
    grid = [_upright(axis.at(x), 0, bottom, "grid") for x in ticks(axis.low, axis.high)]
    if axis.low < 0 < axis.high:
        grid.append(_zero(axis, bottom))
    return svg(bottom + 24, description, *grid, _scale(axis, bottom), *drawn)


def _around(bars: Sequence[Bar]) -> _Axis:
    """An axis that holds all bars, and zero unless that would only squeeze the picture."""
    low = min(bar.reach[0] for bar in bars)
    high = max(bar.reach[1] for bar in bars)
    span = high - low or abs(high) or 1.0
    low, high = low - 0.05 * span, high + 0.05 * span
    if low - span < 0 < high + span:
        low, high = min(low, -0.05 * span), max(high, 0.05 * span)
    return _Axis(low, high)


def _zero(axis: _Axis, bottom: int) -> Markup:
    return _upright(axis.at(0.0), 0, bottom, "zero")


def _upright(x: str, top: int, bottom: int, style: str) -> Markup:
    return tag("line", class_=style, x1=x, x2=x, y1=top, y2=bottom)


def _level(left: str, right: str, y: int, style: str | None = None) -> Markup:
    return tag("line", class_=style, x1=left, x2=right, y1=y, y2=y)


def _interval(axis: _Axis, bar: Bar, y: int) -> Markup:
    dot = tag("circle", cx=axis.at(bar.mean), cy=y, r="4")
    if bar.lower == bar.upper:
        return tag("g", dot, class_=bar.style)
    low, high = axis.at(bar.lower), axis.at(bar.upper)
    ends = (_upright(end, y - 5, y + 5, "end") for end in (low, high))
    inner = _level(axis.at(bar.inner_lower), axis.at(bar.inner_upper), y, "inner")
    thin = None
    if bar.outer is not None:
        thin = _level(axis.at(bar.outer[0]), axis.at(bar.outer[1]), y, "thin")
    return tag("g", thin, _level(low, high, y), inner, *ends, dot, class_=bar.style)


def _scale(axis: _Axis, bottom: int) -> Markup:
    parts = [_level("0", "100%", bottom, "axis")]
    for value in ticks(axis.low, axis.high):
        place = axis.at(value)
        share = (value - axis.low) / (axis.high - axis.low)
        anchor = "start" if share < 0.08 else "end" if share > 0.92 else "middle"
        parts.append(_upright(place, bottom, bottom + 4, "axis"))
        parts.append(tag("text", short(value), x=place, y=bottom + 18, text_anchor=anchor))
    return join(*parts)


def shares(rows: Sequence[tuple[str, float, str]], description: str) -> Markup:
    """Horizontal bars of shares from 0 to 1, each with its name and its value in words."""
    drawn = []
    for number, (name, share, words) in enumerate(rows):
        top = 44 * number
        drawn.append(tag("text", cut(name), x="0", y=top + 14, class_="name"))
        drawn.append(tag("text", words, x="100%", y=top + 14, text_anchor="end"))
        widths = {"track": "100%", "share": f"{100 * min(max(share, 0.0), 1.0):.2f}%"}
        for style, width in widths.items():
            drawn.append(tag("rect", class_=style, x="0", y=top + 20, width=width, height="12"))
    return svg(44 * len(rows), description, *drawn)


def strip(groups: Sequence[tuple[str, Sequence[float]]], description: str) -> Markup:
    """Standardised deviations as dots, one line a group; the band holds what is usual (±2)."""
    reach = max([4.0, *(abs(z) for _, values in groups for z in values)]) * 1.05
    axis, bottom = _Axis(-reach, reach), 46 * len(groups)
    wide = f"{(100 - 2 * _EDGE) * 2 / reach:.2f}%"
    band = tag("rect", class_="usual", x=axis.at(-2.0), y="0", width=wide, height=bottom)
    drawn = [band, _upright("50%", 0, bottom, "zero"), _scale(axis, bottom)]
    for number, (name, values) in enumerate(groups):
        middle = 46 * number + 30
        drawn.append(tag("text", name, x="0", y=46 * number + 14, class_="name"))
        for place, offset in _spread(values, 2 * reach / 60):
            centre = axis.at(place)
            drawn.append(tag("circle", class_="dot", cx=centre, cy=middle + offset, r="3.5"))
    return svg(bottom + 24, description, *drawn)


def _spread(values: Sequence[float], width: float) -> list[tuple[float, int]]:
    """Dots that would hide each other step aside, up and down by turns; at most five a place."""
    cells = groupby(sorted(values), lambda value: math.floor(value / width))
    steps = (0, -1, 1, -2, 2)
    return [(x, 5 * step) for _, cell in cells for x, step in zip(cell, steps, strict=False)]


def cut(name: str, most: int = 28) -> str:
    """A name that leaves room beside it on a phone; the tables have it in full."""
    room = float(most)
    for place, letter in enumerate(name):
        room -= _width(letter)
        if room < 0:
            return name[: max(place - 1, 0)] + "…"
    return name


def _width(letter: str) -> float:
    """Roughly how many ordinary letters are as wide as this one."""
    if letter in "MWmw@%—" or unicodedata.east_asian_width(letter) in "WF":
        return 2.0
    return 1.4 if letter.isupper() else 1.0


def svg(height: int, description: str, *drawn: Markup, style: str = "chart") -> Markup:
    """An image as wide as its column, with a text for those who don't see it."""
    picture = tag("title", description), tag("g", *drawn, aria_hidden="true")
    words = {"class_": style, "role": "img", "aria_label": description}
    return tag("svg", *picture, **words, width="100%", height=height)


# --- a network drawn as a list of its nodes with arcs from parents to children ----------------
#
# One node a line: names stay as large as the text around them, on a phone as well as with fifty
# nodes, where boxes beside each other would not. Parents are above their children, so every arc
# goes down; it leaves a node below its dot and ends in an arrow at its child's.


MOST_NODES = 100  # beyond them nobody can follow an arc
_NODE_LINE = 28  # pixels from one node to the next
_TOLD = 12


def drawing(network: Network) -> Markup:
    """The graph, with a text that names its edges."""
    order = family_order(network)
    place = {node: number for number, node in enumerate(order)}
    reach = max((place[b] - place[a] for a, b in network.edges), default=0)
    gutter = min(40 + 9 * reach, 130) if network.edges else 10
    arcs = [_arc(place[a], place[b], gutter, reach) for a, b in network.edges]
    lines = [_node(node, number, gutter) for node, number in place.items()]
    height = _NODE_LINE * len(order)
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
    return _NODE_LINE * number + _NODE_LINE // 2
