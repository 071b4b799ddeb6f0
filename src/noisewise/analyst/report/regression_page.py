"""The page about a regression: sections in the order in which a reader asks."""

from __future__ import annotations

import math
from shlex import quote

from noisewise._arrays import FloatArray
from noisewise.analyst.posterior.numbers import Summary, central_interval
from noisewise.analyst.posterior.regression import SIGMA2, Posterior
from noisewise.analyst.report import charts, words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import percent, rounded, short
from noisewise.analyst.report.regression_checks import checks_section
from noisewise.analyst.report.regression_released import released_section
from noisewise.analyst.report.sections import (
    Contents,
    findings_section,
    key,
    lead,
    limits_section,
    listed,
    reproduce_section,
)
from noisewise.analyst.report.tables import section, table
from noisewise.core.design import INTERCEPT, DesignColumn

_BERNSTEIN = (
    "Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, "
    "arXiv:1910.13153."
)
_ALPARSLAN = (
    "Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear "
    "regression with MCMC, arXiv:2301.13778."
)


def contents(posterior: Posterior, level: float) -> Contents:
    """Everything the page says about a regression."""
    info, columns = posterior.info, posterior.columns
    summary = posterior.summary(level)
    aware = "accounts for it" if info.noise_aware else f"ignores {info.ignores or 'it'}"
    return Contents(
        f"{columns.target}, explained by {listed(columns.features)}",
        lead(
            "A linear regression",
            info.n,
            info.claims,
            f"What was released carries noise that protects people; this analysis {aware}.",
        ),
        (
            _findings(posterior, level),
            _coefficients(posterior, summary, level),
            _forest(posterior, level),
            _price(posterior),
            released_section(posterior),
            _model(posterior),
            checks_section(posterior, summary),
            limits_section(_limits(posterior)),
            _reproduce(posterior, level),
        ),
    )


def _findings(posterior: Posterior, level: float) -> Markup:
    """The slopes in sentences, the surest first, after whatever must be known beforehand."""

    def sureness(name: str) -> float:
        above = words.chance_above_zero(posterior.draws(name))
        return -max(above, 1 - above)

    columns = sorted(posterior.columns.covariates, key=lambda column: sureness(column.name))
    told = [_finding(posterior, column, level) for column in columns]
    return findings_section(_cautions(posterior), told)


def _finding(posterior: Posterior, column: DesignColumn, level: float) -> str:
    draws, columns = posterior.draws(column.name), posterior.columns
    found = words.Estimate(
        float(draws.mean()),
        float(draws.std()),
        *posterior.interval(column.name, level),
        words.chance_above_zero(draws),
    )
    return words.finding(column, columns.schema, columns.target, found, level)


def _cautions(posterior: Posterior) -> list[str]:
    given = list(posterior.info.warnings)
    if not posterior.info.noise_aware and not given:
        given = ["this method ignores the privacy noise, wholly or in part: don't use its numbers."]
    return given


def _coefficients(posterior: Posterior, summary: Summary, level: float) -> Markup:
    compared = None if posterior.naive is None else posterior.comparison(level)
    size = percent(level)
    head = ["", "estimate", f"{size} interval", "above zero"]
    if compared is not None:
        head += [f"naive {size} interval", "times the naive sd"]
    body: list[list[Content]] = []
    for name, row in summary.rows.items():
        shown: list[Content] = [
            _named(name),
            rounded(row.mean, row.sd),
            "taken for known"
            if row.is_fixed
            else f"{rounded(row.lower, row.sd)} to {rounded(row.upper, row.sd)}",
            "" if name == SIGMA2 else percent(words.chance_above_zero(posterior.draws(name))),
        ]
        if compared is not None:
            naive = compared.rows[name]
            ends = (rounded(x, naive.naive_sd) for x in (naive.naive_lower, naive.naive_upper))
            shown += [" to ".join(ends), "" if row.is_fixed else short(naive.sd_ratio, 2)]
        body.append(shown)
    note = (
        "The estimate is the posterior mean, in original units. An interval holds the true value "
        f"with probability {size}, given model, prior and what was released. "
    )
    if compared is not None:
        note += (
            "The naive interval is what one gets by taking the noisy sums for the true ones. It is "
            "shown as a warning, not as an alternative."
        )
    return section(
        "coefficients",
        "Coefficients",
        tag("p", note),
        table(f"Coefficients of the regression for {posterior.columns.target}", head, body),
    )


def _named(name: str) -> str:
    return "error variance" if name == SIGMA2 else name


def _forest(posterior: Posterior, level: float) -> Markup:
    """Every slope's intervals on an axis of its own, because units differ."""
    both = posterior.naive is not None
    figures = []
    for name in posterior.columns.names[1:]:
        aware = posterior.draws(name)
        style = "aware" if posterior.info.noise_aware else "naive"
        label = "noise-aware" if posterior.info.noise_aware else posterior.info.method
        bars = [_bar(label, style, aware, level)]
        if both:
            bars.insert(0, _bar("naive", "naive", posterior.naive_draws(name), level))
        told = "; ".join(
            f"{bar.label} {rounded(bar.lower, bar.upper - bar.lower)} to "
            f"{rounded(bar.upper, bar.upper - bar.lower)}"
            for bar in bars
        )
        zero = "Zero lies inside" if bars[-1].lower < 0 < bars[-1].upper else "Zero lies outside"
        description = f"{percent(level)} intervals of {name}: {told}. {zero} the {label} interval."
        figures.append(tag("figure", tag("figcaption", name), charts.intervals(bars, description)))
    noise_aware = posterior.info.noise_aware
    return section(
        "forest",
        "How sure, with and without the noise",
        tag(
            "p",
            f"Lines are {percent(level)} intervals, their thick parts hold half of the "
            "probability, dots are means, and the dotted line is zero. Every coefficient has its "
            "own scale.",
        ),
        key(noise_aware, both or not noise_aware),
        *figures,
    )


def _bar(label: str, style: str, draws: FloatArray, level: float) -> charts.Bar:
    low, high = central_interval(draws, level)
    inner = central_interval(draws, 0.5)
    return charts.Bar(label, style, low, inner[0], float(draws.mean()), inner[1], high)


def _price(posterior: Posterior) -> Markup:
    title = "What privacy cost"
    if posterior.conditional_mean is None:
        reason = (
            f"The method {posterior.info.method} cannot tell how much of the uncertainty is due to "
            "the privacy noise; the method exact can."
        )
        return section("price", title, tag("p", reason))
    share = posterior.privacy_share()
    rows = [(name, value, percent(value)) for name, value in share.items()]
    slopes = {name: value for name, value in share.items() if name != INTERCEPT}
    worst = max(slopes, key=lambda name: slopes[name])
    told = ", ".join(f"{name} {shown}" for name, _, shown in rows)
    return section(
        "price",
        title,
        tag(
            "p",
            "The share of each coefficient's uncertainty (its posterior variance) that is there "
            "only because the true sums are hidden by noise. The rest comes from the limited "
            "number of rows and from the prior, and would remain without any privacy. For "
            f"{worst} it is {percent(slopes[worst])}: {words.price(slopes[worst])}.",
        ),
        tag("figure", charts.shares(rows, f"Share of the variance due to privacy: {told}.")),
    )


def _model(posterior: Posterior) -> Markup:
    info, columns = posterior.info, posterior.columns
    body: list[list[Content]] = []
    for name, (mean, sd) in info.prior.items():
        ratio = float(posterior.draws(name).std()) / sd if sd > 0 else math.nan
        body.append([name, short(mean), short(sd, 3), percent(min(ratio, 1.0))])
    error = None
    if info.prior_error_sd is not None:
        low, high = info.prior_error_sd
        error = tag(
            "p",
            "The standard deviation of the error is from "
            f"{short(low, 3)} to {short(high, 3)} with prior probability 90%.",
        )
    return section(
        "model",
        "Model and prior",
        tag(
            "p",
            f"A linear regression with normal errors: {columns.target} is the intercept, plus a "
            f"coefficient times each of {listed(columns.names[1:])}, plus an error. The true sums "
            "behind the released ones are unknown quantities too, inferred together with the "
            "coefficients.",
        ),
        tag("p", f"Method {info.method}: {info.reason}."),
        table(
            "Prior of every coefficient, in original units",
            ["", "prior mean", "prior sd", "posterior sd, share of the prior's"],
            body,
        ),
        error,
    )


def _limits(posterior: Posterior) -> list[tuple[str, str]]:
    target = posterior.columns.target
    return [
        words.NO_CAUSES,
        (
            "Straight lines only.",
            "The file that was released holds sums of squares and products. They cannot show "
            "curves, outliers or errors that are larger for some people than for others, so none "
            "of that was checked.",
        ),
        (
            "Values were clipped to their public bounds before they were summed.",
            f"The analysis is of the clipped values of {target} and of the features.",
        ),
        (
            "The prior counts.",
            "The noisier the file, the more the prior decides. Compare its width with that of the "
            "posterior in the table, and see what another prior changes.",
        ),
        words.HOLDER_IS_TRUSTED,
        words.MAY_BE_PUBLISHED,
    ]


def _reproduce(posterior: Posterior, level: float) -> Markup:
    info, columns = posterior.info, posterior.columns
    chains, draws = posterior.sigma2.shape
    files = "release.json" if len(info.n) == 1 else "FOLDER_OF_RELEASES"
    return reproduce_section(
        [
            f"noisewise fit {files} --method {info.method} --target {quote(columns.target)} "
            f"--features {quote(','.join(columns.features))} --chains {chains} --draws {draws} "
            "--out post.nc",
            f"noisewise report post.nc --level {level:g}",
        ],
        "The simulation is random: without the --seed that was given when it was fitted, numbers "
        "agree up to its error. A prior other than the default has to be given again with --prior.",
        info.digests,
        [_ALPARSLAN if info.method == "normal_x" else _BERNSTEIN],
    )
