"""What released medians say of coefficients: intervals, with and without the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import charts, words
from noisewise.analyst.report.markup import Content, Markup, section, table, tag
from noisewise.analyst.report.page import findings_section, key
from noisewise.analyst.report.words import percent, rounded, short
from noisewise.analyst.summaries import answers
from noisewise.core.design import DesignColumn
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import ClippedMean, LocationScale, QuantileItem
from noisewise.core.normal_laplace import variance

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


# --- what block summaries answer to questions: how probable each statement is -----------------


def question_sections(posterior: SummaryPosterior) -> Sequence[Markup]:
    """Sentences, then every probability beside what ignoring the noise would say."""
    questions = answers.asking(posterior.release).questions
    aware = [posterior.prob(q.coefficient, "<", q.threshold) for q in questions]
    naive = [posterior.prob(q.coefficient, "<", q.threshold, noise_aware=False) for q in questions]
    surest = sorted(range(len(questions)), key=lambda i: -abs(aware[i] - 0.5))
    told = [
        _verdict(questions[i].coefficient, short(questions[i].threshold), aware[i]) for i in surest
    ]
    rows: list[list[Content]] = [
        [str(question), words.chance(p), words.chance(q)]
        for question, p, q in zip(questions, aware, naive, strict=True)
    ]
    shown = list(zip(questions, aware, naive, strict=True))[:MOST_FIGURES]
    lines = [
        charts.Line(
            str(question),
            (charts.point("naive", "naive", q), charts.point("noise-aware", "aware", p)),
        )
        for question, p, q in shown
    ]
    said = "; ".join(
        f"{question} {words.chance(p)}, ignoring the noise {words.chance(q)}"
        for question, p, q in shown[:8]
    )
    return (
        findings_section(posterior.warnings, told),
        section(
            "answers",
            "How sure, with and without the noise",
            tag(
                "p",
                "Probabilities that a coefficient is below a number, given what was released and "
                "with a flat prior, in original units. The last column is what one gets by taking "
                "the noisy number for the true one. It is shown as a warning, not as an "
                "alternative.",
            ),
            table(
                "Probability of each statement that was asked",
                ["", "probability", "ignoring the noise"],
                rows,
            ),
            key(),
            tag(
                "figure",
                tag("figcaption", "Probability, from 0 to 1"),
                charts.probabilities(lines, f"Probabilities of statements: {said}."),
            ),
        ),
    )


def _verdict(coefficient: str, threshold: str, below: float) -> str:
    side, chance = ("below", below) if below >= 0.5 else ("above", 1 - below)
    if chance >= words.SURE:
        verdict = f"is {side} {threshold}"
    elif chance >= words.LIKELY:
        verdict = f"is probably {side} {threshold}"
    else:
        return (
            f"{coefficient}: whether it is below or above {threshold} is undecided (probability "
            f"that it is {side}: {words.chance(chance)})."
        )
    return f"{coefficient} {verdict} (probability {words.chance(chance)})."


# --- what released quantiles say of coefficients: they themselves, and intervals between two --


def quantile_sections(posterior: SummaryPosterior, mechanism: ClippedMean) -> Sequence[Markup]:
    """Intervals where both ends were released, and every released quantile with its noise."""
    lines = posterior.summary().rows.values()
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
