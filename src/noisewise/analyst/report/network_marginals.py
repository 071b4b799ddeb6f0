"""What a network says first: how common every level of some nodes is, whatever the others are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noisewise.analyst.posterior.network import NetworkPosterior
from noisewise.analyst.report import charts, words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.network_contrasts import contrasts, sentence
from noisewise.analyst.report.network_tables import compares, plug_in_means, summable
from noisewise.analyst.report.numbers import percent, rounded
from noisewise.analyst.report.sections import cautions, key
from noisewise.analyst.report.tables import section, table

if TYPE_CHECKING:
    from noisewise.analyst.network.queries import Answer

_MOST_NODES = 12
_MOST_SENTENCES = 8
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
    """The first section: what must be known beforehand, dependences, then levels."""
    found = list(_marginals(posterior, level))
    sentences = [sentence(contrast, level) for contrast in contrasts(posterior)]
    first = [_cautions(posterior), *_surest(sentences)]
    if not found:
        return section("findings", "What it says", *first, tag("p", _TOO_LARGE))
    aware, comparing = posterior.info.noise_aware, compares(posterior)
    size = percent(level)
    rows = [row for marginal in found for row in _rows(posterior, marginal)]
    head = ["", "probability", f"{size} interval"] + (["ignoring the noise"] if comparing else [])
    told = "; ".join(f"{row[0]} {row[1]} ({row[2]})" for row in rows[:8])
    return section(
        "findings",
        "What it says",
        *first,
        tag("h3", "How common each level is"),
        tag("p", _note(posterior, len(found), level)),
        table("Probability of each level", head, rows),
        key(aware, comparing or not aware, "plug-in"),
        tag(
            "figure",
            tag("figcaption", f"Probability, from 0 to 1, with {size} intervals"),
            charts.probabilities(
                [line for marginal in found for line in _lines(posterior, marginal)],
                f"Probabilities with {size} intervals: {told}.",
            ),
        ),
    )


_TOO_LARGE = (
    "How common each level is does not fit here: nodes have too many levels, or it would take "
    "long to compute. NetworkPosterior.marginal in Python answers it."
)


def _surest(sentences: Sequence[str]) -> list[Markup]:
    """What the surest arrows amount to."""
    if not sentences:
        return []
    shown = [tag("li", told) for told in sentences[:_MOST_SENTENCES]]
    rest = len(sentences) - len(shown)
    more = [tag("p", f"The tables below have {rest:,} more dependences.")] if rest else []
    return [tag("ul", *shown), *more]


def _cautions(posterior: NetworkPosterior) -> Markup | None:
    given = list(posterior.info.warnings)
    if not posterior.info.noise_aware and not given:
        given = ["this method ignores the privacy noise: don't use its numbers."]
    return cautions(given)


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


def _lines(posterior: NetworkPosterior, marginal: Marginal) -> Iterator[charts.Line]:
    answer, levels = marginal.answer, posterior.network.levels(marginal.node)
    inner = np.quantile(answer.draws, [0.25, 0.75], axis=0)
    style = "aware" if posterior.info.noise_aware else "naive"
    for k in range(1 if len(levels) == 2 else 0, len(levels)):
        ends = float(answer.lower[k]), float(answer.upper[k])
        middle = float(inner[0, k]), float(answer.mean[k]), float(inner[1, k])
        bars = [charts.Bar(style, style, ends[0], *middle, ends[1])]
        if marginal.plug_in is not None:
            bars.insert(0, charts.point("naive", "naive", float(marginal.plug_in[k])))
        yield charts.Line(f"{marginal.node} = {levels[k]}", bars)
