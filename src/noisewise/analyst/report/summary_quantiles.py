"""What released quantiles say of coefficients: they themselves, and intervals between two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import charts, words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import percent, rounded, short
from noisewise.analyst.report.sections import findings_section, key
from noisewise.analyst.report.tables import section, table
from noisewise.core.errors import RequestError
from noisewise.core.summary import ClippedMean, QuantileItem

MOST_FIGURES = 30


def quantile_sections(posterior: SummaryPosterior, mechanism: ClippedMean) -> Sequence[Markup]:
    """Intervals where both ends were released, and every released quantile with its noise."""
    lines = posterior.summary().rows
    released: list[list[Content]] = [
        [
            line["coefficient"],
            short(line["p"]),
            rounded(line["quantile"], line["noise_sd"]),
            short(line["noise_sd"], 3),
        ]
        for line in lines
    ]
    found: list[list[Content]] = []
    told, figures = [], []
    for name, level in _pairs(posterior, mechanism.items):
        aware = posterior.interval(name, level)
        naive = posterior.interval(name, level, noise_aware=False)
        spread = (aware[1] - aware[0]) / 4
        said = words.between(*aware, spread)
        ignoring = words.between(*naive, spread)
        found.append([name, percent(level), said, ignoring])
        told.append(f"{name} is from {said} with probability {percent(level)}.")
        bars = [_plain_bar("naive", naive), _plain_bar("aware", aware)]
        description = f"{percent(level)} interval of {name}: {said}; ignoring the noise {ignoring}."
        figures.append(
            tag(
                "figure",
                tag("figcaption", f"{name}, {percent(level)}"),
                charts.intervals(bars, description),
            )
        )
    if not told:
        told = [
            "No two released quantiles are the ends of an interval, so that noise and sampling "
            "cannot be told apart: read the table with the noise's standard deviation in mind."
        ]
    head = ["", "probability", "interval", "ignoring the noise"]
    return (
        findings_section(posterior.warnings, told),
        section(
            "answers",
            "How sure, with and without the noise",
            tag(
                "p",
                "Quantiles of the posterior as they were released, in original units, each with "
                "the standard deviation of its noise. The intervals between two of them account "
                "for the noise; the last column takes the released quantiles for the true ones. "
                "It is shown as a warning, not as an alternative.",
            ),
            table("Intervals", head, found) if found else None,
            table("Released quantiles", ["", "quantile", "released", "sd of the noise"], released),
            *([key(), *figures[:MOST_FIGURES]] if figures else []),
        ),
    )


def _pairs(
    posterior: SummaryPosterior, items: Sequence[QuantileItem]
) -> Iterator[tuple[str, float]]:
    """Coefficients and levels of which both ends were released."""
    for item in items:
        if item.probability >= 0.5:
            continue
        level = 1 - 2 * item.probability
        try:
            posterior.interval(item.coefficient, level)
        except RequestError:  # the other end is not there
            continue
        yield item.coefficient, level


def _plain_bar(style: str, ends: tuple[float, float]) -> charts.Bar:
    """An interval of which only the ends are known."""
    middle = ends[0] / 2 + ends[1] / 2
    return charts.Bar(style, style, ends[0], middle, middle, middle, ends[1])
