"""What was released of a network, at what privacy, and what the model adds to it."""

from __future__ import annotations

import math

from noisewise.analyst.posterior.network import NetworkPosterior
from noisewise.analyst.report import words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import short
from noisewise.analyst.report.sections import promises
from noisewise.analyst.report.tables import facts, section, table
from noisewise.core.noise import DiscreteLaplace

_PUBLISHED = {
    "laplace": "counts of rows in every cell of every table, each with noise of its own",
    "fourier": "parity counts, each with noise, from which the counts of all tables follow",
    "posterior_sample": "tables drawn at random from a tempered posterior",
    "map": "tables near the most probable ones, drawn at random or made of noisy counts",
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
        tag(
            "p",
            "For every node, what the rows say about its levels given those of the nodes that it "
            "depends on, and nothing else. Whatever is random in it was drawn once, by the holder "
            "of the rows.",
        ),
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
    n = info.n[number]
    return [
        f"file {number + 1}",
        info.datasets[number] if info.datasets else schema.dataset,
        "private" if n is None else f"{n:,}",
        info.claims[number],
        _mechanism(info.mechanisms[number]),
        _noise(info.noise_scales[number]) if info.noise_scales else _unknown(posterior),
        # Only the first file's unit is known of posteriors from earlier versions.
        words.unit_in_words(
            info.units[number] if info.units else schema.unit if number == 0 else ""
        ),
    ]


def _mechanism(name: str) -> str:
    return f"{name}: {_PUBLISHED[name]}" if name in _PUBLISHED else name


def _noise(scale: float) -> str:
    sd = math.sqrt(DiscreteLaplace(scale).variance)
    return f"discrete Laplace with sd {short(sd, 3)} on each count"


def _unknown(posterior: NetworkPosterior) -> str:
    return "none; tables were drawn" if released_as_tables(posterior) else "not stated in this file"


def model_section(posterior: NetworkPosterior) -> Markup:
    """How rows come about, what was believed beforehand, and how it was fitted."""
    info = posterior.info
    prior = "The prior of the tables is not stated in this file."
    if released_as_tables(posterior):
        prior = "The prior of the tables is the holder's."
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
        tag(
            "p",
            "A row draws the level of each node from the row of its table that belongs to the "
            f"levels of the nodes it depends on.{hidden} {prior}",
        ),
        tag("p", f"Method {info.method} ({info.algorithm}): {info.reason}."),
    )
