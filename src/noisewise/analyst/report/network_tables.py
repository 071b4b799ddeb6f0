"""The conditional tables of a network: every probability beside what ignoring the noise would say.

A large network has more probabilities than anybody reads at once. Each table is folded behind its
name unless there are few of them, and a page has as many as it can carry.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from noisewise.analyst.network.layout import Floats, row_sums
from noisewise.analyst.posterior.network import NetworkPosterior, Table
from noisewise.analyst.report import charts, words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import percent, rounded
from noisewise.analyst.report.sections import key, listed
from noisewise.analyst.report.tables import section, table

_OPEN = 40  # probabilities up to which all tables are unfolded
_DRAWN = 24  # of one table up to which there is a picture of it
_MOST_OF_ONE = 256
_MOST_LETTERS = 2_500_000  # of all tables on a page, about
_MOST_WORK = 1 << 25  # cells of a table times draws, of one question
_LETTERS_OF_A_ROW = 1_200  # with its picture, names not counted


def compares(posterior: NetworkPosterior) -> bool:
    """Whether there is a plug-in posterior to be warned of, other than the one on the page."""
    return posterior.plugin is not None and posterior.info.noise_aware


def summable(posterior: NetworkPosterior, numbers: list[int]) -> bool:
    """Whether the joint distribution of these nodes follows by summation, and quickly.

    Elsewhere rows would be simulated, which adds error, or a page would take minutes.
    """
    from noisewise.analyst.network.queries import MAX_TABLE, largest_table

    largest = largest_table(posterior.layout, numbers)
    return largest <= MAX_TABLE and largest * len(posterior.flat) <= _MOST_WORK


def plug_in_means(posterior: NetworkPosterior) -> Floats:
    """Mean tables of the plug-in posterior, shape (cells,)."""
    assert posterior.plugin is not None
    return posterior.plugin / row_sums(posterior.layout, posterior.plugin)


def tables_section(posterior: NetworkPosterior, level: float) -> Markup:
    """Every table with its intervals, as far as the page can carry them."""
    shown, left = _chosen(posterior)
    size = percent(level)
    unfolded = posterior.network.total_cells <= _OPEN
    told = (
        f"For every node the probability of each of its levels, given those of the nodes it "
        f"depends on, with {size} intervals."
    )
    if compares(posterior):
        told += (
            " The plug-in columns are what one gets by taking the noisy counts, negative ones as "
            "zero, for the true ones. They are shown as a warning, not as an alternative."
        )
    told += " Pictures leave out the first of two levels, since the other tells it."
    if not unfolded:
        told += " Choose a node to unfold its table."
    aware = posterior.info.noise_aware
    return section(
        "tables",
        "The tables",
        tag("p", told),
        key(aware, compares(posterior) or not aware, "plug-in"),
        *(_node(posterior, node, level, unfolded) for node in shown),
        _left_out(left) if left else None,
    )


def _chosen(posterior: NetworkPosterior) -> tuple[list[str], list[str]]:
    """Nodes whose tables fit on the page, and the others."""
    network, letters = posterior.network, 0
    shown, left = [], []
    for node in network.nodes:
        family = network.family(node)
        name = sum(len(n) + max(map(len, network.levels(n))) for n in family)
        cost = network.cells(node) * (_LETTERS_OF_A_ROW + name)
        if network.cells(node) > _MOST_OF_ONE or letters + cost > _MOST_LETTERS:
            left.append(node)
        else:
            shown.append(node)
            letters += cost
    return shown, left


def _left_out(left: list[str]) -> Markup:
    tables = "table does" if len(left) == 1 else "tables do"
    return tag(
        "p",
        f"{len(left):,} {tables} not fit on this page: {listed(left)}. ",
        tag("code", "noisewise show post.nc --json"),
        " prints everything.",
    )


def _node(posterior: NetworkPosterior, node: str, level: float, unfolded: bool) -> Markup:
    network, size = posterior.network, percent(level)
    found = posterior.table(node, level)
    plug = posterior.plugin_table(node, level) if compares(posterior) else None
    share = None if posterior.given_counts is None else posterior.privacy_share(node)
    head = ["", "probability", f"{size} interval"]
    head += ["plug-in", f"plug-in {size} interval"] if plug is not None else []
    head += ["due to privacy"] if share is not None else []
    rows: list[list[Content]] = []
    for place, name in _entries(posterior, node):
        sd = float(found.sd[place])
        row: list[Content] = [name, *_numbers(found, place, sd)]
        if plug is not None:
            row += _numbers(plug, place, float(plug.sd[place]))
        if share is not None:
            row.append(percent(float(share[place])))
        rows.append(row)
    parents = network.parents[node]
    title = f"{node}, given {listed(parents, 20)}" if parents else node
    return tag(
        "details",
        tag("summary", title),
        table(f"Probabilities of {title}", head, rows),
        _picture(posterior, node, found, plug, title) if len(rows) <= _DRAWN else None,
        open="open" if unfolded else None,
    )


def _numbers(found: Table, place: tuple[int, ...], sd: float) -> list[Content]:
    low, high = float(found.lower[place]), float(found.upper[place])
    return [rounded(float(found.mean[place]), sd), words.between(low, high, sd)]


def _entries(posterior: NetworkPosterior, node: str) -> Iterator[tuple[tuple[int, ...], str]]:
    """Places in a node's table, each in words."""
    network = posterior.network
    parents = network.parents[node]
    for place in np.ndindex(*network.shape(node)):
        given = ", ".join(
            f"{name} = {network.levels(name)[k]}"
            for name, k in zip(parents, place[:-1], strict=True)
        )
        level = network.levels(node)[place[-1]]
        yield place, f"{level} if {given}" if given else level


def _drawn_places(posterior: NetworkPosterior, node: str) -> Iterator[tuple[int, ...]]:
    """Places in a table that are worth drawing: of two levels, the second tells the first."""
    two = posterior.network.arity(node) == 2
    for place in np.ndindex(*posterior.network.shape(node)):
        if not two or place[-1] == 1:
            yield place


def _short_name(posterior: NetworkPosterior, node: str, place: tuple[int, ...]) -> str:
    """An entry without the parents' names, which the picture's caption has in the same order."""
    network = posterior.network
    levels = [network.levels(name)[k] for name, k in zip(network.family(node), place, strict=True)]
    return f"{levels[-1]} if {', '.join(levels[:-1])}" if len(levels) > 1 else levels[-1]


def _picture(
    posterior: NetworkPosterior, node: str, found: Table, plug: Table | None, title: str
) -> Markup:
    draws = posterior.draws(node)
    draws = draws.reshape(-1, *draws.shape[2:])
    inner = np.quantile(draws, [0.25, 0.75], axis=0)
    style = "aware" if posterior.info.noise_aware else "naive"
    lines = []
    for place in _drawn_places(posterior, node):
        bars = [_bar(style, found, place, float(inner[0][place]), float(inner[1][place]))]
        if plug is not None:
            mean = float(plug.mean[place])
            bars.insert(0, _bar("naive", plug, place, mean, mean))
        lines.append(charts.Line(_short_name(posterior, node, place), bars))
    told = f"Intervals of {len(lines)} probabilities of {title}; the table has the numbers."
    return tag("figure", tag("figcaption", title), charts.probabilities(lines, told))


def _bar(
    style: str, found: Table, place: tuple[int, ...], inner_low: float, inner_high: float
) -> charts.Bar:
    low, mean, high = (float(x[place]) for x in (found.lower, found.mean, found.upper))
    return charts.Bar(style, style, low, inner_low, mean, inner_high, high)
