"""The page about block summaries: what a Release says of coefficients, noise included.

What a page has depends on the mechanism: probabilities of the statements that were asked, medians
with intervals, or released quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import words
from noisewise.analyst.report.markup import Markup
from noisewise.analyst.report.sections import (
    Contents,
    lead,
    limits_section,
    listed,
    reproduce_section,
)
from noisewise.analyst.report.summary_checks import checks_section
from noisewise.analyst.report.summary_medians import median_sections
from noisewise.analyst.report.summary_quantiles import quantile_sections
from noisewise.analyst.report.summary_questions import question_sections
from noisewise.analyst.report.summary_released import model_section, released_section
from noisewise.core.summary import ClippedMean, LocationScale


def contents(posterior: SummaryPosterior, level: float) -> Contents:
    """Everything the page says about block summaries."""
    release = posterior.release
    design = release.design
    parts: Sequence[Markup]
    if isinstance(release.mechanism, LocationScale):
        parts = median_sections(posterior, level)
    elif isinstance(release.mechanism, ClippedMean):
        parts = quantile_sections(posterior, release.mechanism)
    else:
        parts = question_sections(posterior)
    return Contents(
        f"{design.target}, explained by {listed(design.features)}",
        lead(
            "Answers about a linear regression",
            [release.n],
            [str(release.claim)],
            "It was fitted within blocks of rows, and only a noisy aggregate over "
            f"{release.blocks:,} blocks was released; this analysis accounts for the noise.",
        ),
        (
            *parts,
            released_section(release),
            model_section(release),
            checks_section(release),
            limits_section(_limits(posterior)),
            _reproduce(posterior, level),
        ),
    )


def _limits(posterior: SummaryPosterior) -> list[tuple[str, str]]:
    release = posterior.release
    said = [
        words.NO_CAUSES,
        (
            "A flat prior.",
            "Block summaries have no other. Who knows more beforehand can narrow the answers.",
        ),
        (
            "The regression that the blocks fit.",
            "Straight lines only: curves and outliers were not looked for. With few rows a block, "
            "each block's regression is rough.",
        ),
        (
            "Only what was asked.",
            "Other thresholds, coefficients or intervals need another release, which costs more "
            "privacy."
            if not isinstance(release.mechanism, LocationScale)
            else "Coefficients that were not asked for need another release, which costs more "
            "privacy. Every threshold and every interval of those above is free.",
        ),
    ]
    if isinstance(release.mechanism, LocationScale):
        said.append(
            (
                "The scale is taken at face value.",
                "The width of an interval rests on a second private median, whose own error is not "
                "in the interval.",
            )
        )
    return [*said, words.HOLDER_IS_TRUSTED, words.MAY_BE_PUBLISHED]


def _reproduce(posterior: SummaryPosterior, level: float) -> Markup:
    return reproduce_section(
        [
            f"noisewise show release.json --level {level:g}",
            f"noisewise report release.json --level {level:g}",
        ],
        "Nothing is random in it: the same file always gives the same numbers.",
        [posterior.release.digest],
        [
            "Amitai & Reiter (2018), Differentially private posterior summaries for linear "
            "regression coefficients, doi:10.29012/jpc.686."
        ],
    )
