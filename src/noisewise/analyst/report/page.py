"""The report: sections in the order in which a reader asks."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..._version import __version__
from ...core.design import INTERCEPT
from ...core.errors import RequestError
from ..arguments import probability
from ..posterior import SIGMA2, Posterior
from ..posterior_file import check_folder
from ..summary import Summary, central_interval
from . import charts, words
from .checks import checks_section
from .markup import Content, Markup, join, tag
from .numbers import percent, rounded, short
from .released import released_section
from .tables import section, table

FloatArray = NDArray[np.float64]
# No script, no fetching: even if a name slipped through the escaping, it could do nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_TOP_FINDINGS = 8
_LISTED = 6


def write_report(
    posterior: Posterior, path: str | Path, *, level: float = 0.95, title: str | None = None
) -> None:
    """Write one self-contained HTML page about a posterior.

    Parameters
    ----------
    posterior : Posterior
    path : path
        Ends in .html or .htm.
    level : float
        Of credible intervals.
    title : str, optional
        Heading of the page; the model in words by default.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise RequestError(f"out: {path} must end in .html; the report is a web page")
    check_folder(path)
    text = render(posterior, level=level, title=title)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the file system refused"
        raise RequestError(f"out: cannot write {path}: {reason}") from None


def render(posterior: Posterior, *, level: float = 0.95, title: str | None = None) -> str:
    """The page as text; see `write_report`."""
    level = probability("level", level)
    columns = posterior.columns
    heading = title or f"{columns.target}, explained by {_listed(columns.features)}"
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    summary = posterior.summary(level)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"noisewise {__version__}"),
        tag("title", heading),
        Markup(f"<style>{style}</style>"),
    )
    body = tag(
        "body",
        tag("header", tag("h1", heading), tag("p", _standfirst(posterior), class_="lead")),
        tag(
            "main",
            _findings(posterior, level),
            _coefficients(posterior, summary, level),
            _forest(posterior, level),
            _price(posterior),
            released_section(posterior),
            _model(posterior),
            checks_section(posterior, summary),
            _limits(posterior),
        ),
        _footer(posterior),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence; beyond a handful only their number."""
    shown = list(names[:_LISTED])
    if len(names) > _LISTED:
        shown.append(f"{len(names) - _LISTED} more")
    return ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1]


def _standfirst(posterior: Posterior) -> str:
    info = posterior.info
    count = len(info.n)
    rows = [n for n in info.n if n is not None]
    people = f" of {sum(rows):,} rows" if rows and len(rows) == count else ""
    claims = set(info.claims)
    at = f", published at {claims.pop()}" if len(claims) == 1 else ""
    files_ = "one released file" if count == 1 else f"{count} released files"
    aware = "accounts for" if info.noise_aware else "ignores"
    return (
        f"A linear regression from {files_}{people}{at}. Nobody who made this page saw a single "
        f"row. What was released carries noise that protects people; this analysis {aware} it."
    )


def _findings(posterior: Posterior, level: float) -> Markup:
    """The slopes in sentences, the surest first, after whatever must be known beforehand."""

    def sureness(name: str) -> float:
        above = words.chance_above_zero(posterior.draws(name))
        return -max(above, 1 - above)

    columns = sorted(posterior.columns.covariates, key=lambda column: sureness(column.name))
    items = [
        tag("li", words.finding(posterior, column, level)) for column in columns[:_TOP_FINDINGS]
    ]
    rest = len(columns) - len(items)
    more = tag("p", f"The table below has {rest} more.") if rest > 0 else None
    return section("findings", "What it says", _cautions(posterior), tag("ul", *items), more)


def _cautions(posterior: Posterior) -> Markup | None:
    given = list(posterior.info.warnings)
    if not posterior.info.noise_aware and not given:
        given = ["this method ignores the privacy noise, wholly or in part: don't use its numbers."]
    if not given:
        return None
    items = [tag("li", warning[:1].upper() + warning[1:]) for warning in given]
    return tag(
        "aside",
        tag("h3", "Before you use these numbers", id="cautions"),
        tag("ul", *items),
        class_="caution",
        aria_labelledby="cautions",
    )


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
            f"{rounded(row.lower, row.sd)} to {rounded(row.upper, row.sd)}",
            "" if name == SIGMA2 else percent(words.chance_above_zero(posterior.draws(name))),
        ]
        if compared is not None:
            naive = compared.rows[name]
            ends = (rounded(x, naive.naive_sd) for x in (naive.naive_lower, naive.naive_upper))
            shown += [" to ".join(ends), short(naive.sd_ratio, 2)]
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
    key = [tag("span", "noise-aware", class_="key aware")] if posterior.info.noise_aware else []
    if both or not posterior.info.noise_aware:
        key.insert(0, tag("span", "naive: ignores the noise", class_="key naive"))
    return section(
        "forest",
        "How sure, with and without the noise",
        tag(
            "p",
            f"Lines are {percent(level)} intervals, their thick parts hold half of the "
            "probability, dots are means, and the dotted line is zero. Every coefficient has its "
            "own scale.",
        ),
        tag("p", *key, class_="keys"),
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
            f"coefficient times each of {_listed(columns.names[1:])}, plus an error. The true sums "
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


def _limits(posterior: Posterior) -> Markup:
    items = [tag("li", tag("strong", name), " ", told) for name, told in words.limits(posterior)]
    return section("limits", "What it cannot say", tag("ul", *items))


def _footer(posterior: Posterior) -> Markup:
    digests = join(*(tag("li", tag("code", digest)) for digest in posterior.info.digests))
    return tag(
        "footer",
        tag("p", f"Made by noisewise {__version__} from files with these digests:"),
        tag("ul", digests, class_="digests"),
    )
