"""The conditional tables of a network: every probability beside what ignoring the noise would say.

A large network has more probabilities than anybody reads at once. Each table is folded behind its
name unless there are few of them, and a page has as many as it can carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noisewise.analyst.network.layout import Floats, normalised
from noisewise.analyst.posterior.network import NetworkPosterior, Table
from noisewise.analyst.posterior.numbers import central_interval
from noisewise.analyst.report import widgets, words
from noisewise.analyst.report.page import key, sentences, with_cautions
from noisewise.analyst.report.widgets import Content, Markup, figure, section, table, tag
from noisewise.analyst.report.words import percent, rounded

if TYPE_CHECKING:
    from noisewise.analyst.network.queries import Answer


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
    from noisewise.analyst.network.queries import MAX_TABLE, Summation

    largest = Summation(posterior.layout, numbers).largest
    return largest <= MAX_TABLE and largest * len(posterior.flat) <= _MOST_WORK


def plug_in_means(posterior: NetworkPosterior) -> Floats:
    """Mean tables of the plug-in posterior, shape (cells,)."""
    assert posterior.plugin is not None
    return normalised(posterior.plugin, posterior.layout)


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
    if decided(posterior):
        told += (
            " A star marks what the prior decides: more than half of the prior's variance is left, "
            "so the interval says little about the data."
        )
    told += " Pictures leave out the first of two levels, since the other tells it."
    if not unfolded:
        told += " Choose a node to unfold its table."
    aware = posterior.info.noise_aware
    return section(
        "tables",
        "The tables",
        told,
        key(aware, compares(posterior) or not aware, "plug-in"),
        *(_node(posterior, node, level, unfolded) for node in shown),
        _left_out(left) if left else None,
    )


def decided(posterior: NetworkPosterior) -> int:
    """How many probabilities the prior decides, as far as the file tells."""
    if posterior.prior is None or not posterior.info.noise_aware:
        return 0
    return sum(int(posterior.prior_decides(node).sum()) for node in posterior.nodes)


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
        f"{len(left):,} {tables} not fit on this page: {words.listed(left)}. ",
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
    stars = posterior.prior_decides(node) if decided(posterior) else None
    for place, name in _entries(posterior, node):
        sd = float(found.sd[place])
        star = " *" if stars is not None and stars[place] else ""
        row: list[Content] = [name + star, *_numbers(found, place, sd)]
        if plug is not None:
            row += _numbers(plug, place, float(plug.sd[place]))
        if share is not None:
            row.append(percent(float(share[place])))
        rows.append(row)
    parents = network.parents[node]
    title = f"{node}, given {words.listed(parents, 20)}" if parents else node
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
        lines.append(widgets.Line(_short_name(posterior, node, place), bars))
    told = f"Intervals of {len(lines)} probabilities of {title}; the table has the numbers."
    return figure(title, widgets.probabilities(lines, told))


def _bar(
    style: str, found: Table, place: tuple[int, ...], inner_low: float, inner_high: float
) -> widgets.Bar:
    low, mean, high = (float(x[place]) for x in (found.lower, found.mean, found.upper))
    return widgets.Bar(style, style, low, inner_low, mean, inner_high, high)


# --- what each arrow of a network amounts to, in a sentence -----------------------------------
#
# For an arrow from a parent to a child: which level of the child differs most between two levels of
# the parent, whatever the other nodes are, and how sure that is.


_MOST_ARROWS = 60
_MOST_CELLS = 256  # of the joint table of parent and child


class Contrast(NamedTuple):
    """A level of the child under two levels of its parent.

    Parameters
    ----------
    event, given, otherwise : str
        Such as "cough = yes", "smoker = yes" and "smoker = no".
    more, less : float
        Posterior means of P(event | given) and P(event | otherwise).
    difference : array, shape (draws,)
        The first minus the second; its mean is not negative.
    """

    event: str
    given: str
    otherwise: str
    more: float
    less: float
    difference: Floats

    @property
    def chance(self) -> float:
        """Probability that the difference is positive."""
        return words.chance_above_zero(self.difference)


def contrasts(posterior: NetworkPosterior) -> list[Contrast]:
    """One for every arrow that can be summed over, the surest first."""
    found = list(_contrasts(posterior))
    return sorted(found, key=lambda c: (-c.chance, c.less - c.more))


def _contrasts(posterior: NetworkPosterior) -> Iterator[Contrast]:
    from noisewise.analyst.network.queries import joint_probabilities

    network, layout = posterior.network, posterior.layout
    for parent, child in network.edges[:_MOST_ARROWS]:
        pair = [layout.number[parent], layout.number[child]]
        if layout.size(pair) > _MOST_CELLS or not summable(posterior, pair):
            continue
        joint = joint_probabilities(layout, posterior.flat, pair, {})
        assert joint is not None  # it was summable
        total = joint.sum(axis=2, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            given = np.where(total > 0, joint / total, 1.0 / joint.shape[2])
        mean = given.mean(axis=0)
        # Of two levels of the child, the second tells the first.
        start = 1 if mean.shape[1] == 2 else 0
        spread = np.ptp(mean[:, start:], axis=0)
        k = start + int(np.argmax(spread))
        high, low = int(np.argmax(mean[:, k])), int(np.argmin(mean[:, k]))
        levels = network.levels(parent)
        yield Contrast(
            f"{child} = {network.levels(child)[k]}",
            f"{parent} = {levels[high]}",
            f"{parent} = {levels[low]}",
            float(mean[high, k]),
            float(mean[low, k]),
            given[:, high, k] - given[:, low, k],
        )


def sentence(found: Contrast, level: float) -> str:
    """A contrast with its interval, and how sure it is."""
    sd = float(found.difference.std())
    low, high = central_interval(found.difference, level)
    size = f"{percent(level)} interval of the difference {words.between(low, high, sd)}"
    more, less = rounded(found.more, sd), rounded(found.less, sd)
    if found.chance < words.LIKELY:
        return (
            f"Whether {found.event} is more common with {found.given} ({more}) or with "
            f"{found.otherwise} ({less}) is undecided ({size})."
        )
    verdict = "is" if found.chance >= words.SURE else "is probably"
    return (
        f"{found.event} {verdict} more common with {found.given} ({more}) than with "
        f"{found.otherwise} ({less}; {size}; probability that it is more common: "
        f"{percent(found.chance)})."
    )


# --- what a network says first: how common every level of some nodes is, whatever the others ar


_MOST_NODES = 12
_MOST_LEVELS = 12  # of such a node


class Marginal(NamedTuple):
    """A node's distribution.

    Parameters
    ----------
    node : str
    answer : Answer
        One entry a level.
    plug_in : array, shape (levels,), or None
        What ignoring the noise would say.
    """

    node: str
    answer: Answer
    plug_in: Any


def marginals_section(posterior: NetworkPosterior, level: float) -> Markup:
    """The first section: dependences, what to be careful about, then levels."""
    found = list(_marginals(posterior, level))
    told = [sentence(contrast, level) for contrast in contrasts(posterior)]
    first = with_cautions(
        sentences(told, "The tables below have {} more dependences."),
        posterior.info.warnings,
        posterior.info.noise_aware,
    )
    if not found:
        return section("findings", "What it says", *first, _TOO_LARGE)
    aware, comparing = posterior.info.noise_aware, compares(posterior)
    size = percent(level)
    rows = [row for marginal in found for row in _rows(posterior, marginal)]
    head = ["", "probability", f"{size} interval"] + (["ignoring the noise"] if comparing else [])
    shown = "; ".join(f"{row[0]} {row[1]} ({row[2]})" for row in rows[:8])
    return section(
        "findings",
        "What it says",
        *first,
        tag("h3", "How common each level is"),
        tag("p", _note(posterior, len(found), level)),
        table("Probability of each level", head, rows),
        key(aware, comparing or not aware, "plug-in"),
        figure(
            f"Probability, from 0 to 1, with {size} intervals",
            widgets.probabilities(
                [line for marginal in found for line in _lines(posterior, marginal)],
                f"Probabilities with {size} intervals: {shown}.",
            ),
        ),
    )


_TOO_LARGE = (
    "How common each level is does not fit here: nodes have too many levels, or it would take "
    "long to compute. NetworkPosterior.marginal in Python answers it."
)


def _note(posterior: NetworkPosterior, count: int, level: float) -> str:
    every = count == len(posterior.nodes)
    which = "every node" if every else f"{count} of the {len(posterior.nodes):,} nodes"
    others = (
        ""
        if every
        else " NetworkPosterior.marginal in Python answers for any of them, or several together."
    )
    ignoring = (
        " The last column is what one gets by taking the noisy counts for the true ones. It is "
        "shown as a warning, not as an alternative."
        if compares(posterior)
        else ""
    )
    return (
        f"For {which}, whatever the levels of the others are.{others} An interval holds the true "
        f"probability with probability {percent(level)}, given model, prior and what was "
        f"released.{ignoring} The picture leaves out the first of two levels, since the other "
        "tells it."
    )


def _marginals(posterior: NetworkPosterior, level: float) -> Iterator[Marginal]:
    """The first few nodes whose distribution follows by summation."""
    from noisewise.analyst.network.queries import joint_probabilities

    means = plug_in_means(posterior)[None] if compares(posterior) else None
    count = 0
    for node in posterior.nodes:
        number = [posterior.layout.number[node]]
        if count == _MOST_NODES or posterior.network.arity(node) > _MOST_LEVELS:
            continue
        if not summable(posterior, number):
            continue
        plug_in = None
        if means is not None:
            # Tables of the plug-in posterior are independent and each enters once, so that the
            # mean of their product is the product of their means.
            plug_in = joint_probabilities(posterior.layout, means, number, {})
        count += 1
        yield Marginal(
            node, posterior.marginal(node, level=level), None if plug_in is None else plug_in[0]
        )


def _rows(posterior: NetworkPosterior, marginal: Marginal) -> Iterator[list[Content]]:
    answer = marginal.answer
    for k, name in enumerate(posterior.network.levels(marginal.node)):
        sd = float(answer.sd[k])
        row: list[Content] = [
            f"{marginal.node} = {name}",
            rounded(float(answer.mean[k]), sd),
            words.between(float(answer.lower[k]), float(answer.upper[k]), sd),
        ]
        yield row if marginal.plug_in is None else [*row, rounded(float(marginal.plug_in[k]), sd)]


def _lines(posterior: NetworkPosterior, marginal: Marginal) -> Iterator[widgets.Line]:
    answer, levels = marginal.answer, posterior.network.levels(marginal.node)
    inner = np.quantile(answer.draws, [0.25, 0.75], axis=0)
    style = "aware" if posterior.info.noise_aware else "naive"
    for k in range(1 if len(levels) == 2 else 0, len(levels)):
        ends = float(answer.lower[k]), float(answer.upper[k])
        middle = float(inner[0, k]), float(answer.mean[k]), float(inner[1, k])
        bars = [widgets.Bar(style, style, ends[0], *middle, ends[1])]
        if marginal.plug_in is not None:
            bars.insert(0, widgets.point("naive", "naive", float(marginal.plug_in[k])))
        yield widgets.Line(f"{marginal.node} = {levels[k]}", bars)
