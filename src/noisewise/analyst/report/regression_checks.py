"""The section on checks: does the model fit what was released, and has the simulation settled."""

from __future__ import annotations

import math

import numpy as np

from noisewise.analyst.posterior import Posterior
from noisewise.analyst.regression.cautions import CONTRADICTION
from noisewise.analyst.report import charts, words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import percent, rounded, short
from noisewise.analyst.report.tables import section, table
from noisewise.analyst.summary import Summary
from noisewise.core.schema import Number

FEW_OUTSIDE = 0.05
_MOST_FILES = 30


def checks_section(posterior: Posterior, summary: Summary) -> Markup:
    """Predictive check, bounds and convergence."""
    rhat = max((row.rhat for row in summary.rows.values()), default=math.nan)
    ess = min((row.ess for row in summary.rows.values()), default=math.nan)
    diverging = posterior.sample_stats.get("diverging")
    chains, draws = posterior.sigma2.shape
    said = words.convergence(chains, draws, rhat, ess, diverging)
    return section(
        "checks",
        "Can the numbers be trusted?",
        tag("h3", "Does the model fit what was released?"),
        *_predictive(posterior),
        tag("h3", "Has the simulation settled?"),
        tag("p", " ".join(said)),
    )


def _predictive(posterior: Posterior) -> list[Markup]:
    numbers = [
        j for j in range(1, len(posterior.info.n) + 1) if f"expected_{j}" in posterior.observed
    ]
    if not numbers:
        return [
            tag(
                "p",
                f"The method {posterior.info.method} keeps no draws of the covariates' law, so it "
                "cannot tell what the fitted model would have released. The method exact can.",
            )
        ]
    groups = [(f"file {j}", deviations(posterior, j)) for j in numbers[:_MOST_FILES]]
    furthest = max(float(np.max(np.abs(values))) for _, values in groups)
    count = sum(len(values) for _, values in groups)
    verdict = (
        "All are where the fitted model expects them."
        if furthest <= 3
        else "The furthest is unusual, but not impossible."
        if furthest <= CONTRADICTION
        else "That contradicts the fitted model: check that all holders measure the same thing in "
        "the same units."
    )
    told = (
        f"{count:,} released sums beside what the fitted model would have released (a posterior "
        f"predictive check): the furthest is {short(furthest, 2)} standard deviations away. "
    )
    lesson = (
        " With one file this check is easy to pass, because the model has as many parameters as "
        "there are sums; it finds broken files, not wrong models."
        if len(posterior.info.n) == 1
        else " It finds files that contradict each other, not models that are wrong for all."
    )
    return [
        tag("p", told, verdict, lesson),
        tag(
            "figure",
            tag("figcaption", "Released minus expected, in standard deviations"),
            charts.strip(groups, f"{told}{verdict} The band marks two standard deviations."),
        ),
        *_means(posterior, numbers),
        *_bounds(posterior, numbers[0]),
    ]


def deviations(posterior: Posterior, number: int) -> list[float]:
    """Released minus expected over its spread, for every noisy entry of a Release."""
    observed = posterior.observed
    upper = np.triu_indices(len(observed[f"values_{number}"]))
    spread = observed[f"spread_{number}"][upper]
    away = observed[f"values_{number}"][upper] - observed[f"expected_{number}"][upper]
    return [float(z) for z in away[spread > 0] / spread[spread > 0]]


def _means(posterior: Posterior, numbers: list[int]) -> list[Markup]:
    """Column means as released and as expected, in original units; for one file only."""
    if len(numbers) != 1:
        return []
    [j] = numbers
    rows: list[list[Content]] = []
    names = (*posterior.columns.names, posterior.columns.target)
    units = {c.name: (c.centre, c.half_width) for c in posterior.columns.design.columns}
    n = max(1.0, float(posterior.observed[f"values_{j}"][0, 0]))
    for i, name in enumerate(names[1:], 1):
        centre, width = units[name]
        released, expected, spread = (
            float(posterior.observed[f"{what}_{j}"][0, i])
            for what in ("values", "expected", "spread")
        )
        if not spread > 0:
            continue
        sd = width * spread / n
        ends = (centre + width * (expected + z * spread) / n for z in (-2, 2))
        rows.append(
            [
                name,
                rounded(centre + width * released / n, sd),
                " to ".join(rounded(end, sd) for end in ends),
            ]
        )
    if not rows:
        return []
    return [
        table("Column means, in original units", ["", "released (noisy)", "expected"], rows),
    ]


def _bounds(posterior: Posterior, number: int) -> list[Markup]:
    """Whether the model puts people where the public bounds say that nobody is."""
    names = (*posterior.columns.names, posterior.columns.target)
    outside = dict(zip(names, posterior.observed[f"outside_{number}"], strict=True))
    target = posterior.columns.target
    declared = posterior.columns.schema.columns[target]
    share = float(outside[target])
    if not isinstance(declared, Number):
        return []
    bounds = f"{short(declared.lower, 7)} to {short(declared.upper, 7)}"
    verdict = (
        "Predictions for single people are therefore rough: expect ranges that reach beyond what "
        "is possible. Averages and coefficients suffer far less."
        if share > FEW_OUTSIDE
        else "That is little: predictions for single people mostly stay within what is possible."
    )
    told = (
        f"The public bounds of {target} are {bounds}. With a normal error, the fitted model puts "
        f"{percent(share)} of people outside them. {verdict}"
    )
    return [tag("p", told)]
