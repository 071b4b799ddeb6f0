"""The page about a Bayesian network: what is how common, on what it depends, and how sure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noisewise.analyst.posterior.network import NetworkPosterior
from noisewise.analyst.report import widgets, words
from noisewise.analyst.report.network_answers import (
    decided,
    marginals_section,
    tables_section,
)
from noisewise.analyst.report.page import (
    Contents,
    lead,
    limits_section,
    price_section,
    promises,
    reproduce_section,
    rows_in_words,
)
from noisewise.analyst.report.widgets import Content, Markup, facts, figure, section, table, tag
from noisewise.analyst.report.words import short
from noisewise.core.noise import DiscreteLaplace

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
        f"How {words.listed(posterior.nodes)} depend on each other"
        if posterior.network.edges
        else f"The distribution of {words.listed(posterior.nodes)}",
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
            words.listed(network.levels(node), _MOST_LEVELS),
            words.listed(network.parents[node], 20) if network.parents[node] else "nothing",
            f"{network.cells(node):,}",
        ]
        for node in network.nodes[:_MOST_NODES]
    ]
    left = len(network.nodes) - len(rows)
    picture: Content
    if len(network.nodes) > widgets.MOST_NODES:
        picture = tag("p", f"A graph of {len(network.nodes):,} nodes is too large to be drawn.")
    else:
        caption = "Arrows go from a node to those that depend on it"
        picture = figure(caption, widgets.drawing(network))
    return section(
        "graph",
        "The network",
        "Which columns depend on which was declared by whoever asked for the release. It was "
        "not learned from the rows, and an arrow is no claim of cause and effect.",
        picture,
        table("Nodes", ["", "levels", "depends on", "probabilities in its table"], rows),
        tag("p", f"{left:,} more nodes are not listed.") if left else None,
    )


# --- what it cost and where it comes from -----------------------------------------------------


def _price(posterior: NetworkPosterior) -> Markup:
    if posterior.given_counts is None:
        return price_section(
            f"The method {posterior.info.method} cannot tell how much of the uncertainty is due to "
            "the privacy noise; the method joint can, where counts were released."
        )
    share = {node: float(np.mean(posterior.privacy_share(node))) for node in posterior.nodes}
    largest = sorted(share, key=lambda node: -share[node])[:_MOST_SHARES]
    which = "" if len(largest) == len(share) else f" The {len(largest)} largest are shown."
    return price_section(
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
        said = " ".join(words.convergence(chains, draws, *_settled(posterior)))
    return section("checks", "Can the numbers be trusted?", said)


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
        ("The prior counts.", _prior_counts(posterior)),
        words.HOLDER_IS_TRUSTED,
        words.MAY_BE_PUBLISHED,
    ]


def _prior_counts(posterior: NetworkPosterior) -> str:
    if posterior.prior is None or not posterior.info.noise_aware:
        return (
            "A table with many probabilities and few rows learns little: its intervals are then "
            "nearly as wide as the prior's."
        )
    many, total = decided(posterior), posterior.layout.cells
    if not many:
        return (
            f"Of none of the {total:,} probabilities is more than half of the prior's variance "
            "left: the data decide."
        )
    return (
        f"Of {many:,} of the {total:,} probabilities more than half of the prior's variance is "
        "left; they are marked with a star. Another prior would give them other intervals."
    )


def _reproduce(posterior: NetworkPosterior, level: float) -> Markup:
    chains, draws, _ = posterior.theta.shape
    drawn = released_as_tables(posterior)
    sizes = "" if drawn else f" --chains {chains} --draws {draws}"
    return reproduce_section(
        posterior.info.digests,
        level,
        "Zhang, Rubinstein & Dimitrakakis (2016), On the differential privacy of Bayesian "
        "inference, arXiv:1512.06992.",
        f"--method {posterior.info.method}{sizes}",
        random=not drawn,
        seed=posterior.info.seed,
    )


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


def released_section(posterior: NetworkPosterior) -> Markup:
    """Files with their privacy, the mechanisms and the promise in words."""
    info = posterior.info
    return section(
        "released",
        "What was released",
        "For every node, what the rows say about its levels given those of the nodes that it "
        "depends on, and nothing else. Whatever is random in it was drawn once, by the holder "
        "of the rows.",
        _files(posterior),
        *promises(info.claims),
    )


def _files(posterior: NetworkPosterior) -> Markup:
    """One line a file; of a single one, a line for each thing that is known of it."""
    head = ["", "data set", "rows", "privacy", "mechanism", "noise", "protects"]
    files = [_file(posterior, number) for number in range(len(posterior.info.n))]
    if len(files) == 1:
        return facts("The released file", list(zip(head[1:], files[0][1:], strict=True)))
    return table("Released files", head, files)


def _file(posterior: NetworkPosterior, number: int) -> list[Content]:
    info, schema = posterior.info, posterior.network.schema
    return [
        f"file {number + 1}",
        info.datasets[number] if info.datasets else schema.dataset,
        rows_in_words(info.n[number]),
        info.claims[number],
        _mechanism(info.mechanisms[number]),
        _noise(posterior, number) if info.noise_scales else _unknown(posterior),
        # Only the first file's unit is known of posteriors from earlier versions.
        words.unit_in_words(
            info.units[number] if info.units else schema.unit if number == 0 else ""
        ),
    ]


def _mechanism(name: str) -> str:
    return f"{name}: {_PUBLISHED[name]}" if name in _PUBLISHED else name


def _noise(posterior: NetworkPosterior, number: int) -> str:
    info = posterior.info
    of = " of a pair" if info.mechanisms[number] == "learn" else ""
    scale = info.noise_scales[number]
    if info.gaussian and info.gaussian[number]:
        return f"Gaussian with sd {short(scale, 3)} on each count{of}"
    sd = math.sqrt(DiscreteLaplace(scale).variance)
    return f"discrete Laplace with sd {short(sd, 3)} on each count{of}"


def _unknown(posterior: NetworkPosterior) -> str:
    return "none; tables were drawn" if released_as_tables(posterior) else "not stated in this file"


def model_section(posterior: NetworkPosterior) -> Markup:
    """How rows come about, what was believed beforehand, and how it was fitted."""
    info = posterior.info
    prior = "The prior of the tables is not stated in this file."
    if released_as_tables(posterior):
        prior = "The prior of the tables is the holder's."
    elif info.learned:
        low, high = min(info.concentration), max(info.concentration)
        prior = (
            "Beforehand every row of a table has a Dirichlet law whose concentrations are the same "
            "for all rows of the table, and are inferred together with everything else: rows and "
            "tables that can be seen tell how skewed the others may be. Concentrations between "
            f"{short(low)} and {short(high)} came up."
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
