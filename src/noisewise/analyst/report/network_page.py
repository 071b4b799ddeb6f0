"""The page about a Bayesian network: what is how common, on what it depends, and how sure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noisewise.analyst.posterior.network import NetworkPosterior
from noisewise.analyst.report import charts, graph, words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.network_marginals import marginals_section
from noisewise.analyst.report.network_released import (
    model_section,
    released_as_tables,
    released_section,
)
from noisewise.analyst.report.network_tables import tables_section
from noisewise.analyst.report.numbers import percent
from noisewise.analyst.report.sections import (
    Contents,
    lead,
    limits_section,
    listed,
    reproduce_section,
)
from noisewise.analyst.report.tables import section, table

_MOST_LEVELS = 12  # of a node that are listed
_MOST_SHARES = 12
_MOST_NODES = 200  # that are listed


def contents(posterior: NetworkPosterior, level: float) -> Contents:
    """Everything the page says about a network."""
    info = posterior.info
    if released_as_tables(posterior):
        noise = "The tables were drawn at random before they were released, to protect people."
    else:
        does = "accounts for" if info.noise_aware else "ignores"
        noise = f"What was released carries noise that protects people; this analysis {does} it."
    return Contents(
        f"How {listed(posterior.nodes)} depend on each other"
        if posterior.network.edges
        else f"The distribution of {listed(posterior.nodes)}",
        lead("A Bayesian network", info.n, info.claims, noise),
        (
            marginals_section(posterior, level),
            _graph(posterior),
            tables_section(posterior, level),
            _price(posterior),
            released_section(posterior),
            model_section(posterior),
            _checks(posterior),
            limits_section(_limits(posterior)),
            _reproduce(posterior, level),
        ),
    )


def _graph(posterior: NetworkPosterior) -> Markup:
    network = posterior.network
    rows: list[list[Content]] = [
        [
            node,
            listed(network.levels(node), _MOST_LEVELS),
            listed(network.parents[node], 20) if network.parents[node] else "nothing",
            f"{network.cells(node):,}",
        ]
        for node in network.nodes[:_MOST_NODES]
    ]
    left = len(network.nodes) - len(rows)
    picture: Content
    if len(network.nodes) > graph.MOST_NODES:
        picture = tag("p", f"A graph of {len(network.nodes):,} nodes is too large to be drawn.")
    else:
        picture = tag(
            "figure",
            tag("figcaption", "Arrows go from a node to those that depend on it"),
            graph.drawing(network),
        )
    return section(
        "graph",
        "The network",
        tag(
            "p",
            "Which columns depend on which was declared by whoever asked for the release. It was "
            "not learned from the rows, and an arrow is no claim of cause and effect.",
        ),
        picture,
        table("Nodes", ["", "levels", "depends on", "probabilities in its table"], rows),
        tag("p", f"{left:,} more nodes are not listed.") if left else None,
    )


# --- what it cost and where it comes from --------------------------------------------------------


def _price(posterior: NetworkPosterior) -> Markup:
    title = "What privacy cost"
    if posterior.given_counts is None:
        reason = (
            f"The method {posterior.info.method} cannot tell how much of the uncertainty is due to "
            "the privacy noise; the method joint can, where counts were released."
        )
        return section("price", title, tag("p", reason))
    share = {node: float(np.mean(posterior.privacy_share(node))) for node in posterior.nodes}
    largest = sorted(share, key=lambda node: -share[node])[:_MOST_SHARES]
    rows = [(node, share[node], percent(share[node])) for node in largest]
    told = ", ".join(f"{name} {shown}" for name, _, shown in rows)
    which = "" if len(largest) == len(share) else f" The {len(largest)} largest are shown."
    return section(
        "price",
        title,
        tag(
            "p",
            "The share of the uncertainty (the posterior variance) that is there only because the "
            "true counts are hidden by noise, averaged over the probabilities of each table. The "
            "rest comes from the limited number of rows and from the prior, and would remain "
            f"without any privacy.{which}",
        ),
        tag("figure", charts.shares(rows, f"Share of the variance due to privacy: {told}.")),
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
        said = " ".join(words.convergence(chains, draws, *_settled(posterior)))
    return section("checks", "Can the numbers be trusted?", tag("p", said))


def _settled(posterior: NetworkPosterior) -> tuple[float, float]:
    """The largest R-hat of all probabilities, and the least effective draws of the worst ones."""
    from noisewise.analyst.network.fit import LOOKED_AT, split_rhat
    from noisewise.analyst.posterior.numbers import row_of

    if posterior.theta.shape[1] < 4:
        return math.nan, math.nan
    rhat = split_rhat(posterior.theta)
    worst = np.argsort(rhat)[-LOOKED_AT:]
    found = [row_of(posterior.theta[:, :, cell], 0.9).ess for cell in worst]
    return float(rhat.max()), min((e for e in found if not math.isnan(e)), default=math.nan)


def _limits(posterior: NetworkPosterior) -> Sequence[tuple[str, str]]:
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
        (
            "The prior counts.",
            "A table with many probabilities and few rows learns little: its intervals are then "
            "nearly as wide as the prior's.",
        ),
        words.HOLDER_IS_TRUSTED,
        words.MAY_BE_PUBLISHED,
    ]


def _reproduce(posterior: NetworkPosterior, level: float) -> Markup:
    info = posterior.info
    chains, draws, _ = posterior.theta.shape
    files = "release.json" if len(info.n) == 1 else "FOLDER_OF_RELEASES"
    drawn = released_as_tables(posterior)
    sizes = "" if drawn else f" --chains {chains} --draws {draws}"
    note = (
        "Nothing is random in it: the same file always gives the same numbers."
        if drawn
        else "The simulation is random: without the --seed that was given when it was fitted, "
        "numbers agree up to its error. A prior other than the default has to be given again with "
        "--prior."
    )
    return reproduce_section(
        [
            f"noisewise fit {files} --method {info.method}{sizes} --out post.nc",
            f"noisewise report post.nc --level {level:g}",
        ],
        note,
        info.digests,
        [
            "Zhang, Rubinstein & Dimitrakakis (2016), On the differential privacy of Bayesian "
            "inference, arXiv:1512.06992."
        ],
    )
