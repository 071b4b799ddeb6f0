"""What every page has, whatever was fitted: its contents, and the sections they share."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

from noisewise._version import __version__
from noisewise.analyst.common_cautions import forbids
from noisewise.analyst.posterior.base import BasePosterior, Fit
from noisewise.analyst.posterior.plots import AWARE, Interval
from noisewise.analyst.report import widgets, words
from noisewise.analyst.report.widgets import Content, Markup, facts, figure, section, table, tag
from noisewise.analyst.report.words import percent
from noisewise.core.schema import Schema

_TOP_FINDINGS = 8


class Contents(NamedTuple):
    """What a page says: its heading, the paragraph below it, and its sections in order."""

    heading: str
    lead: str
    sections: Sequence[Markup]


def lead(
    what: str, rows: Sequence[int | None], claims: Sequence[str], noise: str, counted: str = "rows"
) -> str:
    """The paragraph below the heading: what was fitted to how much, at what privacy.

    `what` is such as "A linear regression", `rows` are those behind each file, `noise` says what
    carries noise and what was done about it, and `counted` is `Schema.counted`.
    """
    count = len(rows)
    public = [n for n in rows if n is not None]
    people = f" of {sum(public):,} {counted}" if public and len(public) == count else ""
    at = f", published at {claims[0]}" if len(set(claims)) == 1 else ""
    files = "one released file" if count == 1 else f"{count} released files"
    return f"{what} from {files}{people}{at}. Nobody who made this page saw a single row. {noise}"


# --- what it says ------------------------------------------------------------------------------


def cautions(given: Sequence[str], noise_aware: bool = True) -> Markup | None:
    """What the analyst's code warns of."""
    if not given and not noise_aware:
        given = ["this method ignores the privacy noise, wholly or in part: don't use its numbers."]
    if not given:
        return None
    items = [tag("li", warning[:1].upper() + warning[1:]) for warning in given]
    heading = tag("h3", "Before you use these numbers", id="cautions")
    attributes = {"class_": "caution", "aria_labelledby": "cautions"}
    return tag("aside", heading, tag("ul", *items), **attributes)


def sentences(told: Sequence[str], rest: str) -> list[Markup]:
    """The first few of them as a list, and how many more there are of what `rest` names."""
    items = [tag("li", sentence) for sentence in told[:_TOP_FINDINGS]]
    more = len(told) - len(items)
    shown = [tag("ul", *items)] if items else []
    return [*shown, tag("p", rest.format(f"{more:,}"))] if more else shown


def findings_section(
    warnings: Sequence[str], told: Sequence[str], noise_aware: bool = True, about: str | None = None
) -> Markup:
    """Sentences, the surest first, with `about` before them, which says what is compared."""
    found = [about, *sentences(told, "The table below has {} more.")]
    return section("findings", "What it says", *with_cautions(found, warnings, noise_aware))


def with_cautions(
    found: Sequence[Content], warnings: Sequence[str], noise_aware: bool
) -> list[Content]:
    """Findings, and below them what to be careful about; above them, if it forbids their use."""
    warned = cautions(warnings, noise_aware)
    if not noise_aware or any(forbids(warning) for warning in warnings):
        return [warned, *found]
    return [*found, warned]


def key(aware: bool = True, naive: bool = True, label: str = "naive") -> Markup:
    """Which colour of a chart is which."""
    ignoring = tag("span", f"{label}: ignores the noise", class_="key naive") if naive else None
    own = tag("span", "noise-aware", class_="key aware") if aware else None
    return tag("p", ignoring, own, class_="keys")


def forest_section(posterior: BasePosterior, names: Iterable[str], level: float) -> Markup:
    """Every coefficient's intervals on an axis of its own, because units differ."""
    figures, styles, thin = [], set(), False
    for name in names:
        bars, told = bars_of(posterior.bars(name, level), posterior.bars(name, 0.5))
        if not all(math.isfinite(end) for bar in bars for end in (bar.lower, bar.upper)):
            continue  # a wild draw of the scale: the table says that there is no answer
        own = bars[-1]
        zero = "inside" if own.lower < 0 < own.upper else "outside"
        said = f"{percent(level)} intervals of {name}: {told}. Zero lies {zero} the {own.label} "
        figures.append(figure(posterior.called(name), widgets.intervals(bars, said + "interval.")))
        styles |= {bar.style for bar in bars}
        thin = thin or any(bar.outer is not None for bar in bars)
    return section(
        "forest",
        "How sure" + (", with and without the noise" if "naive" in styles else ""),
        f"Lines are {percent(level)} intervals, their thick parts hold half of the "
        "probability, dots are medians, and the dotted line is zero. Every coefficient has its "
        "own scale."
        + (" Thin lines are intervals for all rows, the farthest ones among them." if thin else ""),
        key("aware" in styles, "naive" in styles),
        *figures,
    )


def bars_of(
    found: Mapping[str, Interval], inner: Mapping[str, Interval], style: str | None = None
) -> tuple[list[widgets.Bar], str]:
    """Intervals as bars, with those that hold half of the probability inside; and in words.

    Without a `style`, what is labelled so accounts for the noise and all others don't.
    """
    bars = [
        widgets.Bar(
            label.partition(" (")[0] if style is None else label,
            style or ("aware" if label == AWARE else "naive"),
            *(bar.low, inner[label].low, bar.centre, inner[label].high, bar.high),
            bar.outer,
        )
        for label, bar in found.items()
    ]
    said = [f"{b.label} {words.between(b.lower, b.upper, b.upper - b.lower)}" for b in bars]
    said += [
        f"of all rows {words.between(*b.outer, b.outer[1] - b.outer[0])}"
        for b in bars
        if b.outer is not None
    ]
    return bars, "; ".join(said)


def price_section(told: str, share: Mapping[str, float] | None = None) -> Markup:
    """What privacy cost in words, and as shares of the variance where they are known."""
    rows = [(name, value, percent(value)) for name, value in (share or {}).items()]
    listed = ", ".join(f"{name} {shown}" for name, _, shown in rows)
    description = f"Share of the variance due to privacy: {listed}."
    picture = tag("figure", widgets.shares(rows, description)) if rows else None
    return section("price", "What privacy cost", told, picture)


# --- where it comes from -----------------------------------------------------------------------


def rows_in_words(n: int | None) -> str:
    """The number of rows behind a file."""
    return "private" if n is None else f"{n:,}"


def files_table(
    info: Fit, schema: Schema, more: Mapping[str, Sequence[str]], *, alone: bool = False
) -> Markup:
    """One line a file, with `more` columns; if `alone`, a line for each fact on a single one.

    Posteriors from earlier versions don't know data sets and units: they are then the schema's.
    """
    count = len(info.n)
    columns: dict[str, Sequence[Content]] = {
        "": [f"file {number}" for number in range(1, count + 1)],
        "data set": info.datasets or [schema.dataset] * count,
        "rows": [rows_in_words(n) for n in info.n],
        "privacy": info.claims,
        **more,
        "protects": [words.unit_in_words(unit) for unit in info.units or [schema.unit] * count],
    }
    if alone and count == 1:
        return facts("The released file", [(k, v[0]) for k, v in columns.items() if k])
    return table("Released files", list(columns), list(zip(*columns.values(), strict=True)))


def promises(claims: Sequence[str]) -> list[Markup]:
    """What each privacy claim promises to one person, and what several files add up to."""
    known = {claim: words.claim_in_words(claim) for claim in claims}
    said = [tag("p", tag("strong", f"{claim}. "), told) for claim, told in known.items() if told]
    several = (
        "Each file protects the people in it. For people who are in several of them the promises "
        "add up, as the holders' ledgers say."
    )
    return [*said, tag("p", several)] if len(claims) > 1 else said


def columns_table(schema: Schema, target: str, features: Sequence[str]) -> Markup:
    """The columns of a regression with their public bounds or levels."""
    roles = {target: "target"} | dict.fromkeys(features, "feature")
    rows = [
        [schema.label(k), role, words.declared_in_words(schema, k)] for k, role in roles.items()
    ]
    return table("Columns", ["", "role", "public bounds or levels"], rows)


def limits_section(items: Sequence[tuple[str, str]]) -> Markup:
    """What the analysis cannot say, each with a short name."""
    told = [tag("li", tag("strong", name), " ", why) for name, why in items]
    return section("limits", "What it cannot say", tag("ul", *told))


def reproduce_section(
    digests: Sequence[str],
    level: float,
    reference: str,
    fit: str = "",
    random: bool = False,
    seed: int | None = None,
) -> Markup:
    """How to get these numbers again, and what to cite.

    `digests` are those of the released files, `reference` is the paper behind the method, `fit`
    what `noisewise fit` was told, for a shell (empty where a Release is read as it is), and
    `random` says that the fit was a simulation, with this `seed`.
    """
    commands = [f"noisewise {verb} release.json --level {level:g}" for verb in ("show", "report")]
    if fit:
        given = "release.json" if len(digests) == 1 else "FOLDER_OF_RELEASES"
        fit += "" if seed is None or not random else f" --seed {seed}"
        fitted = f"noisewise fit {given} {fit} --out post.nc"
        commands = [fitted, f"noisewise report post.nc --level {level:g}"]
    note = "Nothing is random in it: the same file always gives the same numbers."
    if random:
        note = (
            "The simulation was fitted without a --seed: numbers agree up to its error."
            if seed is None
            else "With its --seed and the same versions, the simulation gives the same numbers; "
            "otherwise they agree up to its error."
        ) + " A prior other than the default has to be given again with --prior."
    made = f"noisewise {__version__}, Python {platform.python_version()}, "
    made += ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    files = [[f"file {number}", tag("code", digest)] for number, digest in enumerate(digests, 1)]
    return section(
        "reproduce",
        "Reproduce and cite",
        "Anybody who has the released files gets these numbers by:",
        *(tag("pre", tag("code", command)) for command in commands),
        note,
        f"This page was made by {made}.",
        table("Released files, by the digest of their contents", ["", "SHA-256 digest"], files),
        f"Cite the files by their digests, and noisewise {__version__}. The method rests on:",
        tag("ul", tag("li", reference)),
    )
