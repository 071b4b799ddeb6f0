"""What every page has, whatever was fitted: its contents, and the sections they share."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

from noisewise._version import __version__
from noisewise.analyst.report import words
from noisewise.analyst.report.markup import Content, Markup, section, table, tag

_TOP_FINDINGS = 8


class Contents(NamedTuple):
    """What a page says: its heading, the paragraph below it, and its sections in order."""

    heading: str
    lead: str
    sections: Sequence[Markup]


def lead(what: str, rows: Sequence[int | None], claims: Sequence[str], noise: str) -> str:
    """The paragraph below the heading: what was fitted to how much, at what privacy.

    Parameters
    ----------
    what : str
        Such as "A linear regression".
    rows : sequence of int or None
        Rows behind each file.
    claims : sequence of str
    noise : str
        What carries noise and what the analysis does about it, as a sentence.
    """
    count = len(rows)
    public = [n for n in rows if n is not None]
    people = f" of {sum(public):,} rows" if public and len(public) == count else ""
    at = f", published at {claims[0]}" if len(set(claims)) == 1 else ""
    files = "one released file" if count == 1 else f"{count} released files"
    return f"{what} from {files}{people}{at}. Nobody who made this page saw a single row. {noise}"


def cautions(given: Sequence[str]) -> Markup | None:
    """What the analyst's code warns of, before any number."""
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


def findings_section(warnings: Sequence[str], told: Sequence[str]) -> Markup:
    """Sentences, the surest first, after whatever must be known beforehand."""
    items = [tag("li", sentence) for sentence in told[:_TOP_FINDINGS]]
    rest = len(told) - len(items)
    return section(
        "findings",
        "What it says",
        cautions(warnings),
        tag("ul", *items) if items else None,
        tag("p", f"The table below has {rest:,} more.") if rest else None,
    )


def promises(claims: Sequence[str]) -> list[Markup]:
    """What each privacy claim promises to one person, and what several files add up to."""
    said = []
    for claim in dict.fromkeys(claims):
        told = words.claim_in_words(claim)
        if told:
            said.append(tag("p", tag("strong", f"{claim}. "), told))
    if len(claims) > 1:
        said.append(
            tag(
                "p",
                "Each file protects the people in it. For people who are in several of them the "
                "promises add up, as the holders' ledgers say.",
            )
        )
    return said


def key(aware: bool = True, naive: bool = True, label: str = "naive") -> Markup:
    """Which colour of a chart is which."""
    shown = []
    if naive:
        shown.append(tag("span", f"{label}: ignores the noise", class_="key naive"))
    if aware:
        shown.append(tag("span", "noise-aware", class_="key aware"))
    return tag("p", *shown, class_="keys")


def limits_section(items: Sequence[tuple[str, str]]) -> Markup:
    """What the analysis cannot say, each with a short name."""
    told = [tag("li", tag("strong", name), " ", why) for name, why in items]
    return section("limits", "What it cannot say", tag("ul", *told))


def reproduce_section(
    commands: Sequence[str], note: str, digests: Sequence[str], references: Sequence[str]
) -> Markup:
    """How to get these numbers again, and what to cite.

    Parameters
    ----------
    commands : sequence of str
        For a shell; names in them are quoted.
    note : str
        What the commands leave open.
    digests : sequence of str
    references : sequence of str
        Papers behind the method.
    """
    made = ", ".join(
        [f"noisewise {__version__}", f"Python {platform.python_version()}"]
        + [f"{name} {version(name)}" for name in ("numpy", "scipy")]
    )
    files: list[list[Content]] = [
        [f"file {number}", tag("code", digest)] for number, digest in enumerate(digests, 1)
    ]
    return section(
        "reproduce",
        "Reproduce and cite",
        tag("p", "Anybody who has the released files gets these numbers by:"),
        *(tag("pre", tag("code", command)) for command in commands),
        tag("p", note),
        tag("p", f"This page was made by {made}."),
        table("Released files, by the digest of their contents", ["", "SHA-256 digest"], files),
        tag(
            "p",
            f"Cite the files by their digests, and noisewise {__version__}. The method rests on:",
        ),
        tag("ul", *(tag("li", reference) for reference in references)),
    )
