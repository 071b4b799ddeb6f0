"""The page about a regression: sections in the order in which a reader asks."""

from __future__ import annotations

import math
from shlex import quote

import numpy as np

from noisewise.analyst.posterior.numbers import R2, SIGMA, SIGMA2, Summary, median_and_spread
from noisewise.analyst.posterior.regression import Holders, Posterior, reach_in_words
from noisewise.analyst.regression.cautions import CONTRADICTION
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.analyst.report import page, widgets, words
from noisewise.analyst.report.widgets import Content, Markup, figure, section, table, tag
from noisewise.analyst.report.words import percent, rounded, short
from noisewise.core.design import INTERCEPT
from noisewise.core.terms.expressions import name_text

_BERNSTEIN = (
    "Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, "
    "arXiv:1910.13153."
)
_ALPARSLAN = (
    "Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear "
    "regression with MCMC, arXiv:2301.13778."
)


def contents(posterior: Posterior, level: float) -> page.Contents:
    """Everything the page says about a regression."""
    info, columns = posterior.info, posterior.columns
    summary = posterior.summary(level)
    aware = "accounts for it" if info.noise_aware else f"ignores {info.ignores or 'it'}"
    noise = f"What was released carries noise that protects people; this analysis {aware}."
    return page.Contents(
        words.heading(columns.schema, columns.target, columns.features),
        page.lead("A linear regression", info.n, info.claims, noise, columns.schema.counted),
        (
            _findings(posterior, level),
            page.forest_section(posterior, columns.names[1:], level),
            *([] if posterior.holders is None else [_holders(posterior, posterior.holders, level)]),
            _price(posterior),
            _checks(posterior, summary),
            _coefficients(posterior, summary, level),
            _released(posterior),
            _model(posterior),
            page.limits_section(_limits(posterior)),
            _reproduce(posterior, level),
        ),
    )


def _findings(posterior: Posterior, level: float) -> Markup:
    """The slopes in sentences, the surest first."""
    columns, info = posterior.columns, posterior.info
    slopes = columns.covariates
    whole = posterior.theta_all_rows
    found = {
        c.name: words.Estimate.of(
            posterior.draws(c.name), level, None if whole is None else whole[..., i]
        )
        for i, c in enumerate(slopes, 1)
    }
    told = words.findings(slopes, columns.schema, columns.target, found, level)
    about = words.comparing(columns.schema, columns.target, level)
    reach = " ".join(reach_in_words(info, columns.schema.counted)[:1])
    return page.findings_section(info.warnings, told, info.noise_aware, f"{about} {reach}".strip())


def _holders(posterior: Posterior, holders: Holders, level: float) -> Markup:
    """Where coefficients vary by holder: how far apart they are, and each holder's own."""
    size, figures, told = percent(level), [], []
    for i, name in enumerate(posterior.columns.names[1:], 1):
        called, own = posterior.called(name), holders.theta[..., i].reshape(-1, len(holders.names))
        spread = words.Estimate.of(posterior.draws(posterior.spreads[i]), level)
        order = np.argsort(np.median(own, axis=0))
        low, high = int(order[0]), int(order[-1])
        apart = words.chance_above_zero(own[:, high] - own[:, low])
        ends = words.between(spread.low, spread.high, spread.sd)
        told.append(
            f"“{called}”: coefficients of holders have a standard deviation of about "
            f"{rounded(spread.centre, spread.sd)} ({ends}). "
            f"That of {holders.names[high]} is the highest and that of {holders.names[low]} the "
            f"lowest; that the first is above the second has probability {percent(apart)}."
        )
        found, inner = (posterior.forest(name, share) for share in (level, 0.5))
        bars, said = page.bars_of(found, inner, "aware")
        described = f"{size} intervals of {called} by holder: {said}."
        figures.append(figure(called, widgets.forest(bars, described)))
    return section(
        "holders",
        "How holders differ",
        "Every holder has coefficients of its own, and they are learnt together: a holder whose "
        "file says little is drawn towards the common ones, as far as the others agree. Brackets "
        f"hold the true value with probability {size}.",
        *page.sentences(told, "The charts show {} more."),
        "“Common” is the mean over all holders that there might be; “another holder” is where the "
        "coefficient of one who is not among these would be.",
        *figures,
    )


def _coefficients(posterior: Posterior, summary: Summary, level: float) -> Markup:
    compared = None if posterior.naive is None else posterior.comparison(level)
    size = percent(level)
    head = ["", "estimate", f"{size} interval", "above zero"]
    if summary.has_all_rows:
        head.insert(3, "all rows")
    if compared is not None:
        head += [f"naive {size} interval", "times as wide"]
    body: list[list[Content]] = []
    others = {SIGMA2: "error variance", SIGMA: "error sd", R2: "explained share of variance (R²)"}
    for spread, of in zip(posterior.spreads, posterior.columns.names, strict=False):
        others[spread] = f"{posterior.called(of)}, spread between holders"
    labels = {name: others[name] for name in (SIGMA2, *posterior.derived)}
    for name, row in summary.rows.items():
        shown: list[Content] = [
            labels.get(name, posterior.called(name)),
            rounded(row.median, row.spread),
            "taken for known" if row.is_fixed else words.between(row.lower, row.upper, row.spread),
            "" if name in labels else percent(words.chance_above_zero(posterior.draws(name))),
        ]
        if summary.has_all_rows:
            known = math.isfinite(row.all_rows_lower)
            ends = (row.all_rows_lower, row.all_rows_upper, row.spread)
            shown.insert(3, words.between(*ends) if known else "")
        if compared is not None and name not in compared.rows:
            shown += ["", ""]
        elif compared is not None:
            naive = compared.rows[name]
            shown += [
                words.between(naive.naive_lower, naive.naive_upper, naive.naive_spread),
                "" if row.is_fixed else short(naive.width_ratio, 2),
            ]
        body.append(shown)
    note = (
        "The estimate is the posterior median, in original units. An interval holds the true value "
        f"with probability {size}, given model, prior and what was released. "
    )
    if summary.has_all_rows:
        note += (
            "Estimates and intervals are of the regression within reach, in which the rows "
            "farthest out were pulled in; so is the error variance. “All rows” allows for what "
            "these rows may change, under a model of them that privacy cannot check. "
        )
    if R2 in posterior.derived:
        note += (
            f"R² is the share of the variance of {posterior.columns.target} that the regression "
            "explains among the people whose rows were summed. "
        )
    if compared is not None:
        note += (
            "The naive interval is what one gets by taking the noisy sums for the true ones. It is "
            "shown as a warning, not as an alternative."
        )
    return section(
        "coefficients",
        "Coefficients",
        note,
        table(f"Coefficients of the regression for {posterior.columns.target}", head, body),
    )


def _price(posterior: Posterior) -> Markup:
    if posterior.conditional_mean is None:
        return page.price_section(
            f"The method {posterior.info.method} cannot tell how much of the uncertainty is due to "
            "the privacy noise; the method exact can."
        )
    share = posterior.privacy_share()
    worst = max((name for name in share if name != INTERCEPT), key=share.__getitem__)
    return page.price_section(
        "The share of each coefficient's uncertainty (its posterior variance) that is there only "
        "because the true sums are hidden by noise. The rest comes from the limited number of rows "
        f"and from the prior, and would remain without any privacy. For "
        f"“{posterior.called(worst)}” it is {percent(share[worst])}: {words.price(share[worst])}.",
        {posterior.called(name): value for name, value in share.items()},
    )


def _model(posterior: Posterior) -> Markup:
    info, columns = posterior.info, posterior.columns
    body = []
    for name, (mean, sd) in info.prior.items():
        spread = median_and_spread(posterior.draws(name))[1]
        ratio = spread / sd if sd > 0 else math.nan
        body.append([name, short(mean), short(sd, 3), percent(min(ratio, 1.0))])
    error = ""
    if info.prior_error_sd is not None:
        ends = " to ".join(short(end, 3) for end in info.prior_error_sd)
        error = f"The standard deviation of the error is from {ends} with prior probability 90%."
    head = ["", "prior mean", "prior sd", "posterior sd, share of the prior's"]
    pulls = [[name, percent(pull)] for name, pull in info.prior_pull.items()]
    return section(
        "model",
        "Model and prior",
        f"A linear regression with normal errors: {columns.target} is the intercept, plus a "
        f"coefficient times each of {words.listed(columns.names[1:])}, plus an error. The true "
        "sums behind the released ones are unknown quantities too, inferred together with the "
        "coefficients.",
        f"Method {info.method}: {info.reason}.",
        f"Prior: {info.prior_words}" if info.prior_words else None,
        table("Prior of every coefficient, in original units", head, body) if body else None,
        table("What another prior would change", ["", "change of the interval's width"], pulls)
        if pulls
        else None,
        error or None,
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
            "The noisier the file, the more the prior decides. The section on the model says what "
            "it expects, and how far another one moves the answers.",
        ),
        words.HOLDER_IS_TRUSTED,
        words.MAY_BE_PUBLISHED,
    ]


def _chosen(columns: ModelColumns) -> str:
    """The model as `noisewise fit` takes it."""
    if not columns.design.terms:
        return f"--target {quote(columns.target)} --features {quote(','.join(columns.features))}"
    known = columns.schema.columns
    *terms, target = (name_text(n) if n in known else n for n in columns.design.regressed)
    return f"--formula {quote(f'{target} ~ ' + ' + '.join(terms))}"


def _reproduce(posterior: Posterior, level: float) -> Markup:
    info, (chains, draws) = posterior.info, posterior.sigma2.shape
    chosen = _chosen(posterior.columns)
    fit = f"--method {info.method} {chosen} --chains {chains} --draws {draws}"
    reference = _ALPARSLAN if info.method == "normal_x" else _BERNSTEIN
    return page.reproduce_section(info.digests, level, reference, fit, True, info.seed)


# --- the section on what was released for a regression, and at what privacy -------------------


def _released(posterior: Posterior) -> Markup:
    """Files with their privacy, the promise in words, and the columns with their bounds."""
    info, columns = posterior.info, posterior.columns
    noise = [_noise(posterior, number) for number in range(len(info.n))]
    return section(
        "released",
        "What was released",
        "Noisy sums of squares and products of the columns below, mapped from their public "
        "bounds to the range from −1 to 1, and nothing else. The noise was drawn once, "
        "by the holder of the rows.",
        f"What is estimated: {info.estimand}." if info.estimand else None,
        page.files_table(info, columns.schema, {"noise": noise}),
        *page.promises(info.claims),
        page.columns_table(columns.schema, columns.target, columns.features),
    )


def _noise(posterior: Posterior, number: int) -> str:
    """The noise beside what it hides: a sum of numbers of which each is at most one."""
    info = posterior.info
    family = info.noise[number] if info.noise else ""
    called = family.capitalize() if family in ("laplace", "gaussian") else ""
    scale = posterior.observed.get(f"scale_{number + 1}", np.empty(0))
    noisy = scale[(scale > 0) & np.isfinite(scale)]
    if noisy.size == 0:
        return called
    sd = float(np.max(noisy)) * (2**0.5 if family == "laplace" else 1.0)
    rows = info.n[number]
    per_row = f", {short(sd / rows, 2)} a row" if rows else ""
    return f"{called} with sd {short(sd, 3)} on each sum{per_row}".strip()


# --- the section on checks: does the model fit what was released, and has the simulation settle


FEW_OUTSIDE = 0.05
_MOST_FILES = 30


def _checks(posterior: Posterior, summary: Summary) -> Markup:
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
        return [tag("p", _not_shown(posterior))]
    alone = len(posterior.info.n) == 1
    groups = [(f"file {j}", deviations(posterior, j)) for j in numbers[:_MOST_FILES]]
    furthest = max(float(np.max(np.abs(values))) for _, values in groups)
    count = sum(len(values) for _, values in groups)
    verdict = (
        "All are where the fitted model expects them."
        if furthest <= 3
        else "The furthest is unusual, but not impossible."
        if furthest <= CONTRADICTION
        else "That is far: the columns' laws are then far from normal."
        if alone
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
        if alone
        else " It finds files that contradict each other, not models that are wrong for all."
    )
    return [
        tag("p", told, verdict, lesson),
        figure(
            "Released minus expected, in standard deviations",
            widgets.strip(groups, f"{told}{verdict} The band marks two standard deviations."),
        ),
        *_means(posterior, numbers),
        *_bounds(posterior, numbers[0]),
    ]


def _not_shown(posterior: Posterior) -> str:
    """Why there is no predictive check."""
    if "of the rounds" in posterior.info.reason:
        contradicting = " Files that contradict the others are named among the warnings."
        return (
            "Sums of rounds are of mixtures of the columns, so they are not shown one by one "
            "beside what the fitted model would have released."
        ) + (contradicting if len(posterior.info.n) > 1 else "")
    if posterior.holders is not None:
        return (
            "Each holder has a regression and a law of the features of its own, so files cannot "
            "contradict each other. How far apart holders are is shown above."
        )
    if "groups of like noise" in posterior.info.reason:
        return "So many Releases were added up in groups, so they are not judged one by one."
    return (
        f"The method {posterior.info.method} keeps no draws of the covariates' law, so it "
        "cannot tell what the fitted model would have released. The method exact can."
    )


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
    rows, observed = [], posterior.observed
    names = (*posterior.columns.names, posterior.columns.target)
    units = {c.name: (c.centre, c.half_width) for c in posterior.columns.design.columns}
    found = [observed[f"{what}_{numbers[0]}"][0] for what in ("values", "expected", "spread")]
    n = max(1.0, float(found[0][0]))
    for i, name in enumerate(names[1:], 1):
        centre, width = units[name]
        released, expected, spread = (float(row[i]) for row in found)
        if spread > 0:
            sd = width * spread / n
            ends = (centre + width * (expected + z * spread) / n for z in (-2, 2))
            shown = rounded(centre + width * released / n, sd)
            rows.append([name, shown, " to ".join(rounded(end, sd) for end in ends)])
    head = ["", "released (noisy)", "expected"]
    return [table("Column means, in original units", head, rows)] if rows else []


def _bounds(posterior: Posterior, number: int) -> list[Markup]:
    """Whether the model puts people where the public bounds say that nobody is."""
    target, column = posterior.columns.target, posterior.columns.design.columns[-1]
    share = float(posterior.observed[f"outside_{number}"][-1])  # the target comes last
    ends = (column.centre - column.half_width, column.centre + column.half_width)
    bounds = " to ".join(short(end, 7) for end in ends)
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
