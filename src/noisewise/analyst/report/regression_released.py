"""The section on what was released for a regression, and at what privacy."""

from __future__ import annotations

import numpy as np

from noisewise.analyst.posterior.regression import Posterior
from noisewise.analyst.report import words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import short
from noisewise.analyst.report.sections import promises
from noisewise.analyst.report.tables import section, table

_NOISE = {"laplace": "Laplace", "gaussian": "Gaussian"}


def released_section(posterior: Posterior) -> Markup:
    """Files with their privacy, the promise in words, and the columns with their bounds."""
    info = posterior.info
    return section(
        "released",
        "What was released",
        tag(
            "p",
            "Noisy sums of squares and products of the columns below, mapped from their public "
            "bounds to the range from −1 to 1, and nothing else. The noise was drawn once, "
            "by the holder of the rows.",
        ),
        table(
            "Released files",
            ["", "data set", "rows", "privacy", "noise", "protects"],
            [_file(posterior, number) for number in range(len(info.n))],
        ),
        *promises(info.claims),
        table("Columns", ["", "role", "public bounds or levels"], _columns(posterior)),
    )


def _file(posterior: Posterior, number: int) -> list[Content]:
    info = posterior.info
    n = info.n[number]
    dataset = info.datasets[number] if info.datasets else posterior.columns.schema.dataset
    unit = info.units[number] if info.units else posterior.columns.schema.unit
    family = _NOISE.get(info.noise[number], "") if info.noise else ""
    return [
        f"file {number + 1}",
        dataset,
        "private" if n is None else f"{n:,}",
        info.claims[number],
        f"{family} {_size(posterior, number + 1)}".strip(),
        words.unit_in_words(unit),
    ]


def _size(posterior: Posterior, number: int) -> str:
    """The noise beside what it hides: a sum of numbers of which each is at most one."""
    scale = posterior.observed.get(f"scale_{number}")
    if scale is None:
        return ""
    noisy = scale[(scale > 0) & np.isfinite(scale)]
    if noisy.size == 0:
        return ""
    family = posterior.info.noise[number - 1] if posterior.info.noise else ""
    sd = float(np.max(noisy)) * (2**0.5 if family == "laplace" else 1.0)
    rows = posterior.info.n[number - 1]
    per_row = f", {short(sd / rows, 2)} a row" if rows else ""
    return f"with sd {short(sd, 3)} on each sum{per_row}"


def _columns(posterior: Posterior) -> list[list[Content]]:
    columns = posterior.columns
    return [
        [
            name,
            "target" if name == columns.target else "feature",
            words.declared_in_words(columns.schema, name),
        ]
        for name in (columns.target, *columns.features)
    ]
