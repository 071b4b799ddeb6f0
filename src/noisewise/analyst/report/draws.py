"""The page about released draws of a regression: the draws, and why they say little."""

from __future__ import annotations

from noisewise.analyst.posterior.draws import ENOUGH, DrawsPosterior
from noisewise.analyst.report import page, widgets, words
from noisewise.analyst.report.widgets import Content, Markup, facts, figure, section, table
from noisewise.analyst.report.words import percent, rounded, short

_ZHANG = (
    "Zhang, Rubinstein & Dimitrakakis (2016), On the differential privacy of Bayesian inference, "
    "AAAI."
)


def contents(posterior: DrawsPosterior, level: float) -> page.Contents:
    """Everything the page says about released draws."""
    release, design, count = posterior.release, posterior.release.design, len(posterior.theta)
    what = f"{count:,} posterior draw{'s' if count > 1 else ''} of a linear regression"
    noise = "The draws protect people because they are few and come from a weakened posterior."
    about = words.comparing(design.schema, design.target, level)
    return page.Contents(
        words.heading(design.schema, design.target, design.features),
        page.lead(what, [release.n], [str(release.claim)], noise),
        (
            page.findings_section(posterior.warnings, _findings(posterior, level), about=about),
            _coefficients(posterior, level),
            _released(posterior),
            page.limits_section(_LIMITS),
            page.reproduce_section([release.digest], level, _ZHANG),
        ),
    )


def _findings(posterior: DrawsPosterior, level: float) -> list[str]:
    if len(posterior.theta) < ENOUGH:
        return ["So few draws do not say how sure anything is; the table has what they say."]
    columns, found = posterior.columns, {}
    for name, row in posterior.summary(level).rows.items():
        above = words.chance_above_zero(posterior.draws(name))
        found[name] = words.Estimate(row.mean, row.sd, row.lower, row.upper, above)
    return words.findings(columns.covariates, columns.schema, columns.target, found, level)


def _coefficients(posterior: DrawsPosterior, level: float) -> Markup:
    size, rows = percent(level), posterior.summary(level).rows
    enough = len(posterior.theta) >= ENOUGH
    head = ["", "mean of the draws", "sd"] + ([f"{size} interval"] if enough else [])
    body: list[list[Content]] = []
    for name, row in rows.items():
        shown: list[Content] = [posterior.called(name), rounded(row.mean, row.sd), short(row.sd, 3)]
        body.append([*shown, words.between(row.lower, row.upper, row.sd)] if enough else shown)
    figures = []
    for name in posterior.names[1:]:
        [(label, bar)] = posterior.bars(name, level).items()
        drawn = widgets.plain(label, "aware", bar.low, bar.centre, bar.high)
        told = f"{name}: {label} from {short(bar.low)} to {short(bar.high)}."
        figures.append(figure(posterior.called(name), widgets.intervals([drawn], told)))
    return section(
        "coefficients",
        "Coefficients",
        "In original units. Every coefficient has its own scale, with a line at zero.",
        table(f"Coefficients of the regression for {posterior.columns.target}", head, body),
        *figures,
    )


def _released(posterior: DrawsPosterior) -> Markup:
    release, schema = posterior.release, posterior.columns.schema
    claim = str(release.claim)
    known: list[tuple[str, Content]] = [
        ("data set", schema.dataset),
        ("rows", page.rows_in_words(release.n)),
        ("draws", f"{len(posterior.theta):,}"),
        ("power of the likelihood", short(float(release.law.temper), 3)),
        ("privacy", claim),
        ("protects", words.unit_in_words(schema.unit)),
    ]
    return section(
        "released",
        "What was released",
        "Coefficients drawn at random by the holder, from the posterior with a weakened "
        "likelihood and within a ball, and nothing else.",
        facts("The released file", known),
        *page.promises([claim]),
    )


_LIMITS = [
    words.NO_CAUSES,
    (
        "Few draws of a wider law.",
        "They are from the holder's weakened posterior, which is wider than the posterior and "
        "closer to the prior; neither can be undone. A release of statistics says more for the "
        "same privacy.",
    ),
    words.HOLDER_IS_TRUSTED,
    words.MAY_BE_PUBLISHED,
]
