"""What released medians say of coefficients: intervals, with and without the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import charts, words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import percent, rounded
from noisewise.analyst.report.sections import findings_section, key
from noisewise.analyst.report.tables import section, table
from noisewise.analyst.summaries import answers
from noisewise.core.design import DesignColumn
from noisewise.core.normal_laplace import variance
from noisewise.core.summary import LocationScale

MOST_FIGURES = 30


def median_sections(posterior: SummaryPosterior, level: float) -> Sequence[Markup]:
    """Sentences, the table, pictures, and what privacy cost."""
    release = posterior.release
    assert isinstance(release.mechanism, LocationScale)
    names = [item.coefficient for item in release.mechanism.items]
    found = {name: _estimate(posterior, name, level) for name in names}
    columns = {column.name: column for column in release.design.columns}
    surest = sorted(
        (name for name in names if name in columns),
        key=lambda name: -max(found[name].above, 1 - found[name].above),
    )
    told = [_finding(posterior, columns[name], found[name], level) for name in surest]
    size = percent(level)
    rows: list[list[Content]] = []
    for name in names:
        low, high = posterior.interval(name, level, noise_aware=False)
        rows.append(
            [
                name,
                rounded(found[name].centre, found[name].sd),
                words.between(found[name].low, found[name].high, found[name].sd),
                words.chance(found[name].above),
                words.between(low, high, found[name].sd),
                words.chance(1 - posterior.prob(name, "<", 0, noise_aware=False)),
            ]
        )
    return (
        findings_section(posterior.warnings, told),
        section(
            "answers",
            "Coefficients",
            tag(
                "p",
                "The estimate is the released median, in original units. An interval holds the "
                f"true value with probability {size}, given what was released and a flat prior. "
                "The columns that ignore the noise take the released median for the true one. "
                "They are shown as a warning, not as an alternative.",
            ),
            table(
                f"Coefficients of the regression for {release.design.target}",
                [
                    "",
                    "estimate",
                    f"{size} interval",
                    "above zero",
                    f"{size} interval, ignoring the noise",
                    "above zero, ignoring the noise",
                ],
                rows,
            ),
        ),
        _forest(posterior, names, level),
        _price(posterior),
    )


def _estimate(posterior: SummaryPosterior, name: str, level: float) -> words.Estimate:
    centre = posterior.quantile(name, 0.5)
    low, high = posterior.interval(name, level)
    # About a standard deviation of a normal law; enough to know how many digits are worth showing.
    sd = (posterior.quantile(name, 0.84) - posterior.quantile(name, 0.16)) / 2
    return words.Estimate(centre, sd, low, high, 1 - posterior.prob(name, "<", 0))


def _finding(
    posterior: SummaryPosterior, column: DesignColumn, found: words.Estimate, level: float
) -> str:
    design = posterior.release.design
    return words.finding(column, design.schema, design.target, found, level)


def _forest(posterior: SummaryPosterior, names: Sequence[str], level: float) -> Markup:
    """Every coefficient's intervals on an axis of its own, because units differ."""
    figures = []
    for name in names[:MOST_FIGURES]:
        bars = [_bar(posterior, name, level, aware) for aware in (False, True)]
        if not all(math.isfinite(end) for bar in bars for end in (bar.lower, bar.upper)):
            continue  # a wild draw of the scale: the table says that there is no answer
        told = "; ".join(
            f"{bar.label} {words.between(bar.lower, bar.upper, bar.upper - bar.lower)}"
            for bar in bars
        )
        description = f"{percent(level)} intervals of {name}: {told}."
        figures.append(tag("figure", tag("figcaption", name), charts.intervals(bars, description)))
    return section(
        "forest",
        "How sure, with and without the noise",
        tag(
            "p",
            f"Lines are {percent(level)} intervals, their thick parts hold half of the "
            "probability, dots are medians, and the dotted line is zero. Every coefficient has its "
            "own scale.",
        ),
        key(),
        *figures,
    )


def _bar(posterior: SummaryPosterior, name: str, level: float, aware: bool) -> charts.Bar:
    low, high = posterior.interval(name, level, noise_aware=aware)
    inner = posterior.interval(name, 0.5, noise_aware=aware)
    style = "aware" if aware else "naive"
    label = "noise-aware" if aware else "ignoring the noise"
    return charts.Bar(label, style, low, inner[0], posterior.quantile(name, 0.5), inner[1], high)


def _price(posterior: SummaryPosterior) -> Markup:
    law = answers.median(posterior.release, 0).law
    share = 1 - variance(law.s, 0.0) / variance(*law)
    return section(
        "price",
        "What privacy cost",
        tag(
            "p",
            f"Of each coefficient's uncertainty (its posterior variance) {percent(share)} is there "
            f"only because of the noise: {words.price(share)}. The rest comes from the limited "
            "number of rows and from fitting them in blocks. The number is the same for all "
            "coefficients, since it follows from epsilon and the number of blocks.",
        ),
    )
