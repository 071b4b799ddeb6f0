"""The page about a Bayesian network: what is how common, on what it depends, and how sure.

A large network has more probabilities than anybody reads at once. Each table is folded behind its
name unless there are few of them, and a page has as many as it can carry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.common_cautions import BAD_RHAT
from noisewise.analyst.network.layout import Floats, normalised
from noisewise.analyst.posterior.network import NetworkPosterior, Table
from noisewise.analyst.posterior.numbers import central_interval
from noisewise.analyst.report import page, widgets, words
from noisewise.analyst.report.widgets import Markup, figure, section, table, tag
from noisewise.analyst.report.words import percent, rounded, short
from noisewise.core.noise import DiscreteLaplace

if TYPE_CHECKING:
    from noisewise.analyst.network.queries import Answer

_ZHANG = (
    "Zhang, Rubinstein & Dimitrakakis (2016), On the differential privacy of Bayesian inference, "
    "arXiv:1512.06992."
)
_MOST_LEVELS = 12  # of a node that are listed
_MOST_SHARES = 12
_MOST_NODES = 200  # that are listed


def contents(posterior: NetworkPosterior, level: float) -> page.Contents:
    """Everything the page says about a network."""
    info, named = posterior.info, words.listed(posterior.nodes)
    if released_as_tables(posterior):
        noise = "The tables were drawn at random before they were released, to protect people."
    else:
        does = "accounts for" if info.noise_aware else "ignores"
        noise = f"What was released carries noise that protects people; this analysis {does} it."
    linked = bool(posterior.network.edges)
    return page.Contents(
        f"How {named} depend on each other" if linked else f"The distribution of {named}",
        page.lead("A Bayesian network", info.n, info.claims, noise),
        (
            marginals_section(posterior, level),
            _graph(posterior),
            tables_section(posterior, level),
            _price(posterior),
            _released(posterior),
            _model(posterior),
            _checks(posterior),
            page.limits_section(_limits(posterior)),
            _reproduce(posterior, level),
        ),
    )


def _graph(posterior: NetworkPosterior) -> Markup:
    network = posterior.network
    rows = [
        [
            node,
            words.listed(network.levels(node), _MOST_LEVELS),
            words.listed(network.parents[node], 20) if network.parents[node] else "nothing",
            f"{network.cells(node):,}",
        ]
        for node in network.nodes[:_MOST_NODES]
    ]
    left, caption = (
        len(network.nodes) - len(rows),
        "Arrows go from a node to those that depend on it",
    )
    large = len(network.nodes) > widgets.MOST_NODES
    return section(
        "graph",
        "The network",
        "Which columns depend on which was declared by whoever asked for the release. It was "
        "not learned from the rows, and an arrow is no claim of cause and effect.",
        f"A graph of {len(network.nodes):,} nodes is too large to be drawn."
        if large
        else figure(caption, widgets.drawing(network)),
        table("Nodes", ["", "levels", "depends on", "probabilities in its table"], rows),
        f"{left:,} more nodes are not listed." if left else None,
    )


# --- what it cost and where it comes from -----------------------------------------------------


def _price(posterior: NetworkPosterior) -> Markup:
    if posterior.given_counts is None:
        return page.price_section(
            f"The method {posterior.info.method} cannot tell how much of the uncertainty is due to "
            "the privacy noise; the method joint can, where counts were released."
        )
    share = {node: float(np.mean(posterior.privacy_share(node))) for node in posterior.nodes}
    largest = sorted(share, key=lambda node: -share[node])[:_MOST_SHARES]
    which = "" if len(largest) == len(share) else f" The {len(largest)} largest are shown."
    return page.price_section(
        "The share of the uncertainty (the posterior variance) that is there only because the true "
        "counts are hidden by noise, averaged over the probabilities of each table. The rest comes "
        f"from the limited number of rows and from the prior, and would remain without any "
        f"privacy.{which}",
        {node: share[node] for node in largest},
    )


def _checks(posterior: NetworkPosterior) -> Markup:
    if released_as_tables(posterior):
        count = posterior.theta.shape[1]
        said = (
            f"Nothing was simulated here: the draws are the {count:,} that the holder released. "
            "Intervals are quantiles of these draws."
        )
    else:
        chains, draws, _ = posterior.theta.shape
        lines = words.convergence(chains, draws, *_settled(posterior, ~posterior.decided))
        if decided(posterior):
            rhat, _ = _settled(posterior, posterior.decided)
            rough = f" The runs differ on some of them (R-hat up to {rhat:.2f}): rough intervals."
            lines.append(
                "This is without the probabilities that the prior decides, which have a star."
                + (rough if rhat > BAD_RHAT else "")
            )
        said = " ".join(lines)
    return section("checks", "Can the numbers be trusted?", said)


def _settled(posterior: NetworkPosterior, cells: NDArray[np.bool_]) -> tuple[float, float]:
    """The largest R-hat of these probabilities, and the least effective draws of the worst ones."""
    from noisewise.analyst.network.fit import settled

    found = settled(posterior, cells) if posterior.theta.shape[1] >= 4 else None
    return (math.nan, math.nan) if found is None else (found.rhat, found.ess)


def _limits(posterior: NetworkPosterior) -> Sequence[tuple[str, str]]:
    many, total = decided(posterior), posterior.layout.cells
    prior = (
        f"The prior decides {many:,} of the {total:,} probabilities: their rows have too few "
        "records under this noise, or they are too small to be told from 0. They are marked with a "
        "star, and another prior would give them other intervals."
    )
    if posterior.prior is None or not posterior.info.noise_aware:
        prior = (
            "A table with many probabilities and few rows learns little: its intervals are then "
            "nearly as wide as the prior's."
        )
    elif not many:
        prior = (
            f"The prior decides none of the {total:,} probabilities: the rows of all tables "
            "have enough records under this noise."
        )
    return [
        (
            "Associations, not causes.",
            "An arrow says that a probability depends on something. It does not say what would "
            "happen if somebody changed it.",
        ),
        (
            "The graph is taken for granted.",
            "Dependences that it leaves out were not measured, so none of that was checked.",
        ),
        ("The prior counts.", prior),
        words.HOLDER_IS_TRUSTED,
        words.MAY_BE_PUBLISHED,
    ]


def _reproduce(posterior: NetworkPosterior, level: float) -> Markup:
    info, (chains, draws, _) = posterior.info, posterior.theta.shape
    drawn = released_as_tables(posterior)
    fit = f"--method {info.method}" + ("" if drawn else f" --chains {chains} --draws {draws}")
    return page.reproduce_section(info.digests, level, _ZHANG, fit, not drawn, info.seed)


# --- what was released of a network, at what privacy, and what the model adds to it -----------


_PUBLISHED = {
    "laplace": "counts of rows in every cell of every table, each with noise of its own",
    "fourier": "parity counts, each with noise, from which the counts of all tables follow",
    "posterior_sample": "tables drawn at random from a tempered posterior",
    "map": "tables near the most probable ones, drawn at random or made of noisy counts",
    "learn": "a graph chosen from the rows at random, near the best, and noisy counts of its "
    "tables, of its pairs and of single nodes",
}


def released_as_tables(posterior: NetworkPosterior) -> bool:
    """Whether tables were released, not counts: there is then nothing to compare with."""
    return posterior.plugin is None


def _released(posterior: NetworkPosterior) -> Markup:
    """Files with their privacy, the mechanisms and the promise in words."""
    info, schema = posterior.info, posterior.network.schema
    # Only the first file's unit is known of posteriors from earlier versions.
    known = info if info.units else replace(info, units=(schema.unit, *[""] * (len(info.n) - 1)))
    more = {
        "mechanism": [f"{m}: {_PUBLISHED[m]}" if m in _PUBLISHED else m for m in info.mechanisms],
        "noise": [_noise(posterior, number) for number in range(len(info.n))],
    }
    return section(
        "released",
        "What was released",
        "For every node, what the rows say about its levels given those of the nodes that it "
        "depends on, and nothing else. Whatever is random in it was drawn once, by the holder "
        "of the rows.",
        page.files_table(known, schema, more, alone=True),
        *page.promises(info.claims),
    )


def _noise(posterior: NetworkPosterior, number: int) -> str:
    info = posterior.info
    if not info.noise_scales:
        drawn = released_as_tables(posterior)
        return "none; tables were drawn" if drawn else "not stated in this file"
    of = " of a pair" if info.mechanisms[number] == "learn" else ""
    law, sd = "Gaussian", info.noise_scales[number]
    if not (info.gaussian and info.gaussian[number]):
        law, sd = "discrete Laplace", math.sqrt(DiscreteLaplace(sd).variance)
    return f"{law} with sd {short(sd, 3)} on each count{of}"


def _model(posterior: NetworkPosterior) -> Markup:
    """How rows come about, what was believed beforehand, and how it was fitted."""
    info = posterior.info
    prior = "The prior of the tables is not stated in this file."
    if released_as_tables(posterior):
        prior = "The prior of the tables is the holder's."
    elif info.learned:
        prior = (
            "Beforehand every row of a table may be dominated by one level, and has a Dirichlet "
            "law given that. What it is like is the same for all rows of the table, and is "
            "inferred together with everything else: rows and tables that can be seen tell how "
            "skewed the others may be."
        )
    elif info.concentration:
        low, high = min(info.concentration), max(info.concentration)
        size = short(low) if low == high else f"{short(low)} to {short(high)}"
        even = " (every distribution is equally probable beforehand)" if low == high == 1 else ""
        prior = (
            "Beforehand every row of a table has a Dirichlet law, independently of the others, "
            f"with concentration {size} for every level{even}."
        )
    hidden = (
        " The true counts behind the released ones are unknown quantities too, inferred together "
        "with the tables."
        if info.noise_aware
        else ""
    )
    return section(
        "model",
        "Model and prior",
        "A row draws the level of each node from the row of its table that belongs to the "
        f"levels of the nodes it depends on.{hidden} {prior}",
        f"Method {info.method} ({info.algorithm}): {info.reason}.",
    )


# --- every probability beside what ignoring the noise would say -----------------------------------


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
            " A star marks what the prior decides: rows with too few records under this noise, and "
            "probabilities too small to be told from 0, of which the data say only that they are "
            "small."
        )
    told += " Pictures leave out the first of two levels, since the other tells it."
    if not unfolded:
        told += " Choose a node to unfold its table."
    aware = posterior.info.noise_aware
    return section(
        "tables",
        "The tables",
        told,
        page.key(aware, compares(posterior) or not aware, "plug-in"),
        *(_node(posterior, node, level, unfolded) for node in shown),
        _left_out(left) if left else None,
    )


def decided(posterior: NetworkPosterior) -> int:
    """How many probabilities the prior decides, as far as the file tells."""
    return int(posterior.decided.sum())


def _chosen(posterior: NetworkPosterior) -> tuple[list[str], list[str]]:
    """Nodes whose tables fit on the page, and the others."""
    network, letters, shown = posterior.network, 0, []
    for node in network.nodes:
        name = sum(len(n) + max(map(len, network.levels(n))) for n in network.family(node))
        cost = network.cells(node) * (_LETTERS_OF_A_ROW + name)
        if network.cells(node) <= _MOST_OF_ONE and letters + cost <= _MOST_LETTERS:
            shown.append(node)
            letters += cost
    return shown, [node for node in network.nodes if node not in shown]


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
    rows, parents = [], network.parents[node]
    stars = posterior.prior_decides(node) if decided(posterior) else None
    for place in np.ndindex(*network.shape(node)):
        *given, level_here = _levels(posterior, node, place)
        conditions = [f"{n} = {k}" for n, k in zip(parents, given, strict=True)]
        name = f"{level_here} if {', '.join(conditions)}" if given else level_here
        star = " *" if stars is not None and stars[place] else ""
        row = [name + star, *_cell(found, place)]
        row += _cell(plug, place) if plug is not None else []
        row += [percent(float(share[place]))] if share is not None else []
        rows.append(row)
    title = f"{node}, given {words.listed(parents, 20)}" if parents else node
    return tag(
        "details",
        tag("summary", title),
        table(f"Probabilities of {title}", head, rows),
        _picture(posterior, node, found, plug, title) if len(rows) <= _DRAWN else None,
        open="open" if unfolded else None,
    )


def _cell(found: Table | Answer, place: Any) -> list[str]:
    """A probability and its interval."""
    mean, sd, low, high = (
        float(x[place]) for x in (found.mean, found.sd, found.lower, found.upper)
    )
    return [rounded(mean, sd), words.between(low, high, sd)]


def _levels(posterior: NetworkPosterior, node: str, place: tuple[int, ...]) -> list[str]:
    """Of an entry of a node's table: the parents' levels, then its own."""
    network = posterior.network
    return [network.levels(name)[k] for name, k in zip(network.family(node), place, strict=True)]


def _picture(
    posterior: NetworkPosterior, node: str, found: Table, plug: Table | None, title: str
) -> Markup:
    draws = posterior.draws(node)
    draws = draws.reshape(-1, *draws.shape[2:])
    inner = np.quantile(draws, [0.25, 0.75], axis=0)
    lines = []
    for place in np.ndindex(*posterior.network.shape(node)):
        *given, own = _levels(posterior, node, place)
        if posterior.network.arity(node) == 2 and place[-1] == 0:
            continue  # of two levels, the second tells the first
        bars = [_bar(posterior, found, place, inner)]
        if plug is not None:
            low, mean, high = (float(x[place]) for x in (plug.lower, plug.mean, plug.upper))
            bars.insert(0, widgets.plain("naive", "naive", low, mean, high))
        # The caption has the parents' names, in the same order.
        lines.append(widgets.Line(f"{own} if {', '.join(given)}" if given else own, bars))
    told = f"Intervals of {len(lines)} probabilities of {title}; the table has the numbers."
    return figure(title, widgets.probabilities(lines, told))


def _bar(posterior: NetworkPosterior, found: Table | Answer, place: Any, inner: Any) -> widgets.Bar:
    """A probability of this posterior, whose middle half is between the `inner` ones."""
    style = "aware" if posterior.info.noise_aware else "naive"
    ends = (found.lower, inner[0], found.mean, inner[1], found.upper)
    low, inner_low, mean, inner_high, high = (float(x[place]) for x in ends)
    return widgets.Bar(style, style, low, inner_low, mean, inner_high, high)


# --- what each arrow of a network amounts to, in a sentence -----------------------------------
#
# For an arrow from a parent to a child: which level of the child differs most between two levels of
# the parent, whatever the other nodes are, and how sure that is.


_MOST_ARROWS = 60
_MOST_CELLS = 256  # of the joint table of parent and child


class Contrast(NamedTuple):
    """A level of the child under two levels of its parent."""

    event: str  # such as "cough = yes"
    given: str  # "smoker = yes"
    otherwise: str  # "smoker = no"
    more: float  # posterior mean of P(event | given)
    less: float  # of P(event | otherwise)
    difference: Floats  # (draws,), the first minus the second; its mean is not negative

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
        level, other = (f"{parent} = {network.levels(parent)[i]}" for i in (high, low))
        more, less = float(mean[high, k]), float(mean[low, k])
        event = f"{child} = {network.levels(child)[k]}"
        yield Contrast(event, level, other, more, less, given[:, high, k] - given[:, low, k])


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


_MOST_MARGINS = 12
_MOST_OF_MARGIN = 12  # of such a node


class Marginal(NamedTuple):
    """A node's distribution."""

    node: str
    answer: Answer  # one entry a level
    plug_in: Any  # (levels,), what ignoring the noise would say


def marginals_section(posterior: NetworkPosterior, level: float) -> Markup:
    """The first section: dependences, what to be careful about, then levels."""
    found = list(_marginals(posterior, level))
    told = [sentence(contrast, level) for contrast in contrasts(posterior)]
    aware, comparing = posterior.info.noise_aware, compares(posterior)
    listed = page.sentences(told, "The tables below have {} more dependences.")
    first = page.with_cautions(listed, posterior.info.warnings, aware)
    if not found:
        return section("findings", "What it says", *first, _TOO_LARGE)
    size = percent(level)
    rows = [row for marginal in found for row in _rows(posterior, marginal)]
    head = ["", "probability", f"{size} interval"] + (["ignoring the noise"] if comparing else [])
    shown = "; ".join(f"{row[0]} {row[1]} ({row[2]})" for row in rows[:8])
    picture = widgets.probabilities(
        [line for marginal in found for line in _lines(posterior, marginal)],
        f"Probabilities with {size} intervals: {shown}.",
    )
    return section(
        "findings",
        "What it says",
        *first,
        tag("h3", "How common each level is"),
        tag("p", _note(posterior, len(found), level)),
        table("Probability of each level", head, rows),
        page.key(aware, comparing or not aware, "plug-in"),
        figure(f"Probability, from 0 to 1, with {size} intervals", picture),
    )


_TOO_LARGE = (
    "How common each level is does not fit here: nodes have too many levels, or it would take "
    "long to compute. NetworkPosterior.marginal in Python answers it."
)


def _note(posterior: NetworkPosterior, count: int, level: float) -> str:
    which, others, ignoring = "every node", "", ""
    if count < len(posterior.nodes):
        which = f"{count} of the {len(posterior.nodes):,} nodes"
        others = (
            " NetworkPosterior.marginal in Python answers for any of them, or several together."
        )
    if compares(posterior):
        ignoring = (
            " The last column is what one gets by taking the noisy counts for the true ones. It is "
            "shown as a warning, not as an alternative."
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

    few = (n for n in posterior.nodes if posterior.network.arity(n) <= _MOST_OF_MARGIN)
    numbers = ((node, [posterior.layout.number[node]]) for node in few)
    fit_here = ((node, number) for node, number in numbers if summable(posterior, number))
    for node, number in islice(fit_here, _MOST_MARGINS):
        plug_in = None
        if compares(posterior):
            # Tables of the plug-in posterior are independent and each enters once, so that the
            # mean of their product is the product of their means.
            means = plug_in_means(posterior)[None]
            found = joint_probabilities(posterior.layout, means, number, {})
            assert found is not None  # it was summable
            plug_in = found[0]
        yield Marginal(node, posterior.marginal(node, level=level), plug_in)


def _rows(posterior: NetworkPosterior, marginal: Marginal) -> Iterator[list[str]]:
    for k, name in enumerate(posterior.network.levels(marginal.node)):
        row = [f"{marginal.node} = {name}", *_cell(marginal.answer, k)]
        if marginal.plug_in is not None:
            row.append(rounded(float(marginal.plug_in[k]), float(marginal.answer.sd[k])))
        yield row


def _lines(posterior: NetworkPosterior, marginal: Marginal) -> Iterator[widgets.Line]:
    answer, levels = marginal.answer, posterior.network.levels(marginal.node)
    inner = np.quantile(answer.draws, [0.25, 0.75], axis=0)
    for k in range(1 if len(levels) == 2 else 0, len(levels)):
        bars = [_bar(posterior, answer, k, inner)]
        if marginal.plug_in is not None:
            bars.insert(0, widgets.point("naive", "naive", float(marginal.plug_in[k])))
        yield widgets.Line(f"{marginal.node} = {levels[k]}", bars)
