"""The page about a logistic or Poisson regression: what it says in percent, ratios, limits."""

from __future__ import annotations

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.posterior.glm import GlmPosterior
from noisewise.analyst.report import page, words
from noisewise.analyst.report.widgets import Content, Markup, section, table
from noisewise.analyst.report.words import percent, rounded, short
from noisewise.core.terms.term import DesignColumn

_REFERENCE = (
    "Cantoni & Ronchetti (2001), Robust inference for generalized linear models, "
    "doi:10.1198/016214501753209004 (rows that count less); Murray, Adams & MacKay (2010), "
    "Elliptical slice sampling, arXiv:1001.0175."
)


def contents(posterior: GlmPosterior, level: float) -> page.Contents:
    """Everything the page says about a logistic or Poisson regression."""
    info, columns = posterior.info, posterior.columns
    name = "A logistic" if columns.family == "logistic" else "A Poisson"
    noise = "What was released carries noise that protects people; this analysis accounts for it."
    fit = "--method auto"
    return page.Contents(
        words.heading(columns.schema, columns.target, columns.features),
        page.lead(f"{name} regression", info.n, info.claims, noise),
        (
            _findings(posterior, level),
            page.forest_section(posterior, columns.names[1:], level),
            _coefficients(posterior, level),
            _released(posterior),
            page.limits_section(_limits(posterior)),
            page.reproduce_section(info.digests, level, _REFERENCE, fit, True, info.seed),
        ),
    )


def _findings(posterior: GlmPosterior, level: float) -> Markup:
    """The slopes in sentences, the surest first."""
    averages = ""
    if posterior.columns.family == "logistic":
        averages = "Differences are averages over the people whose rows were summed. "
    about = (
        f"{posterior.event}: people are compared who differ in one feature and are alike in the "
        f"others. {averages}Brackets hold the true difference with probability {percent(level)}."
    )
    found = [(column, posterior.draws(column.name)) for column in posterior.columns.covariates]
    found.sort(key=lambda pair: -_sure(pair[1]))
    told = [_finding(posterior, column, draws, level) for column, draws in found]
    return page.findings_section(posterior.info.warnings, told, about=about)


def _sure(draws: FloatArray) -> float:
    above = words.chance_above_zero(draws)
    return max(above, 1 - above)


def _finding(posterior: GlmPosterior, column: DesignColumn, draws: FloatArray, level: float) -> str:
    """What one slope says: percentage points of the event's probability, or percent of a rate.

    A term of a formula, or a column that is in one, says little by itself: its number is told.
    """
    compared = words.compared(column, posterior.columns.schema)
    if compared is None or column not in posterior.stand_alone:
        own = words.Estimate.of(draws, level)
        return (
            f"The coefficient of {column.name} is {words.between(own.low, own.high, own.sd)} with "
            f"probability {percent(level)}."
        )
    step, where = compared.step, compared.where or f"For {compared.who}, "
    than = compared.than.replace(" than ", " than for ")
    sure = _sure(draws)
    probably = "" if sure >= words.SURE else "probably "
    if posterior.columns.family == "logistic":
        found = words.Estimate.of(100 * posterior.average_change(column.name, step), level)
        more, less, unit = "more likely", "less likely", " percentage points"
        start, what = "it is", f" that {_event(posterior)}"
    else:
        found = words.Estimate.of(100 * np.expm1(np.clip(step * draws, -50.0, 50.0)), level)
        more, less, unit = "higher", "lower", "%"
        start, what = f"the rate of {posterior.event} is", ""
    if sure < words.LIKELY:
        return (
            f"{where}it is undecided whether {start} {more} or {less}{what}{than}: the difference "
            f"is between {short(found.low, 2)} and {short(found.high, 2)}{unit}."
        )
    up = found.centre >= 0
    low, high = (found.low, found.high) if up else (-found.high, -found.low)
    size = f"about {short(abs(found.centre), 2)}{unit} {more if up else less}"
    return f"{where}{start} {probably}{size} ({short(low, 2)} to {short(high, 2)}){what}{than}."


def _event(posterior: GlmPosterior) -> str:
    """Such as "ill is yes"."""
    schema, target = posterior.columns.schema, posterior.columns.target
    return f"{schema.label(target)} is {posterior.event.rpartition(' = ')[2]}"


def _coefficients(posterior: GlmPosterior, level: float) -> Markup:
    size, ratio = percent(level), posterior.ratio
    steps = posterior.steps
    ratios = posterior.ratios(level, steps=steps).rows
    head = ["", "estimate", f"{size} interval", "above zero", ratio, f"{size} interval"]
    body: list[list[Content]] = []
    for name, row in posterior.summary(level).rows.items():
        shown: list[Content] = [
            posterior.called(name),
            rounded(row.median, row.spread),
            words.between(row.lower, row.upper, row.spread),
            percent(words.chance_above_zero(posterior.draws(name))),
        ]
        if name in ratios:
            own = ratios[name]
            more = f" for {short(steps[name])} more" if name in steps else ""
            shown.append(rounded(own.median, own.spread) + more)
            shown.append(words.between(own.lower, own.upper, own.spread))
        else:
            shown += ["", ""]
        body.append(shown)
    logarithm = "log odds" if posterior.columns.family == "logistic" else "logarithm of the rate"
    return section(
        "coefficients",
        "Coefficients",
        f"The estimate is the posterior median, of the {logarithm}, for one more of a number or a "
        f"level beside the reference. The {ratio} says by how much the "
        f"{'odds are' if ratio == 'odds ratio' else 'rate is'} multiplied.",
        table(f"Coefficients of the regression for {posterior.event}", head, body),
    )


def _released(posterior: GlmPosterior) -> Markup:
    info, columns = posterior.info, posterior.columns
    return section(
        "released",
        "What was released",
        "Noisy sums of scores and of information, in rounds: each says where the next one looks. "
        "The last one has most of the privacy budget, and is the one that is used.",
        page.files_table(info, columns.schema, {}),
        page.columns_table(columns.schema, columns.target, columns.features),
        *page.promises(info.claims),
    )


def _limits(posterior: GlmPosterior) -> list[tuple[str, str]]:
    law = "yes or no" if posterior.columns.family == "logistic" else "counts"
    return [
        words.NO_CAUSES,
        (
            "Rows that are far out count less.",
            "If the model holds, that costs precision only. If it doesn't, the numbers describe "
            "people in the middle better than people at the ends.",
        ),
        (
            "Near a point.",
            f"The likelihood of {law} is known near the point at which the last round looked. A "
            "warning says if the coefficients are far from it.",
        ),
        words.HOLDER_IS_TRUSTED,
        words.MAY_BE_PUBLISHED,
    ]
