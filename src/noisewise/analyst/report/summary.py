"""The page about block summaries: what a Release says of coefficients, noise included.

What a page has depends on the mechanism: probabilities of the statements that were asked, medians
with intervals, or released quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import words
from noisewise.analyst.report.markup import Content, Markup, facts, section, table, tag
from noisewise.analyst.report.page import (
    Contents,
    lead,
    limits_section,
    promises,
    reproduce_section,
)
from noisewise.analyst.report.summary_answers import (
    median_sections,
    quantile_sections,
    question_sections,
)
from noisewise.analyst.report.words import short
from noisewise.analyst.summaries.answers import (
    ENOUGH_BLOCKS,
    ENOUGH_KAPPA,
    MEDIAN_NEEDS,
    SCALE_NEEDS,
    rank_epsilon,
    rows_needed,
)
from noisewise.core.kinds.summary.mechanisms import (
    ClippedMean,
    Conjugate,
    Fisher,
    Flat,
    GPrior,
    LocationScale,
    RescaledNormal,
    Sign,
    Stouffer,
)
from noisewise.core.kinds.summary.release import MedianNoise, SummaryRelease


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
        f"{design.target}, explained by {words.listed(design.features)}",
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


# --- what was released of blocks, at what privacy, and which regression a block fits ----------


_PUBLISHED: dict[type, str] = {
    Sign: "in how many blocks the estimate is below each number that was asked",
    Stouffer: "the blocks' normal scores for each statement that was asked, clipped and summed",
    RescaledNormal: "the sum of the blocks' probabilities of each statement that was asked",
    Fisher: "the sum of the logarithms of the blocks' probabilities of each statement",
    ClippedMean: "means of the blocks' posterior quantiles, clipped to public bounds",
    LocationScale: "for each coefficient medians of the blocks' estimates and of their spread",
}


def released_section(release: SummaryRelease) -> Markup:
    """The file with its privacy, the promise in words, and the columns that were read."""
    schema = release.design.schema
    claim = str(release.claim)
    known: list[tuple[str, Content]] = [
        ("data set", schema.dataset),
        ("rows", "private" if release.n is None else f"{release.n:,}"),
        ("blocks", _blocks(release)),
        ("mechanism", f"{release.mechanism.name}: {_PUBLISHED[type(release.mechanism)]}"),
        ("privacy", f"{claim} (pure differential privacy)"),
        ("noise", _noise(release)),
        ("protects", words.unit_in_words(schema.unit)),
    ]
    if release.label:
        known.append(("label", release.label))
    if release.software:
        known.append(("made by", release.software))
    columns: list[list[Content]] = [
        [
            name,
            "target" if name == release.design.target else "feature",
            words.declared_in_words(schema, name),
        ]
        for name in (release.design.target, *release.design.features)
    ]
    return section(
        "released",
        "What was released",
        tag(
            "p",
            "The rows were put into blocks at random, every block got a regression of its own, and "
            "one noisy aggregate over all blocks was released for each answer, and nothing else. "
            "Who was in which block is not in the file.",
        ),
        facts("The released file", known),
        *promises([claim]),
        table("Columns", ["", "role", "public bounds or levels"], columns),
    )


def _blocks(release: SummaryRelease) -> str:
    times = f", formed {release.partitions:,} times over" if release.partitions > 1 else ""
    rows = "" if release.n is None else f" of about {release.n / release.blocks:,.0f} rows"
    return f"{release.blocks:,}{rows}{times}"


def _noise(release: SummaryRelease) -> str:
    if isinstance(release.noise, MedianNoise):
        location, scale = release.noise.location_epsilon, release.noise.scale_epsilon
        return (
            "medians drawn at random by the exponential mechanism, with epsilon = "
            f"{short(float(location))} for each location and {short(float(scale))} for each scale"
        )
    mechanism = release.mechanism
    assert not isinstance(mechanism, LocationScale)
    step = 2.0**-mechanism.fraction_bits
    reach = f"{short(mechanism.low * step)} to {short(mechanism.high * step)}"
    return (
        f"Laplace with scale {short(release.mean_noise_scale, 3)} on each average over all blocks, "
        f"of numbers from {reach}"
    )


def model_section(release: SummaryRelease) -> Markup:
    """Which regression, with which prior, and how answers are made of aggregates."""
    design = release.design
    return section(
        "model",
        "Model and prior",
        tag(
            "p",
            f"In every block a linear regression of {design.target} on "
            f"{len(design.features):,} feature{'s' if len(design.features) > 1 else ''}, with "
            f"{len(release.coefficients):,} coefficients, the intercept among them; "
            f"{_prior(release)}. Blocks without a regression count with a fixed number, so that "
            "not even how many there are is told.",
        ),
        tag(
            "p",
            f"What was released is, up to the noise, {_aggregate(release)} over many blocks, hence "
            "nearly normal. A probability or an interval follows from the law of a normal variable "
            "plus the noise that was added, with a flat prior for the coefficient.",
        ),
    )


def _aggregate(release: SummaryRelease) -> str:
    return "a median" if isinstance(release.mechanism, LocationScale) else "an average"


def _prior(release: SummaryRelease) -> str:
    posterior = release.posterior
    if isinstance(posterior, Flat):
        return "the block's own prior is flat"
    if isinstance(posterior, GPrior):
        g = "the number of rows" if posterior.g == "n" else f"g = {short(float(posterior.g))}"
        return f"the block's own prior is Zellner's g prior about zero, with {g}"
    assert isinstance(posterior, Conjugate)
    return "the block's own prior is normal-inverse-gamma, as the file states"


# --- whether block summaries can be trusted: public numbers beside what is wanted of them -----


def checks_section(release: SummaryRelease) -> Markup:
    """What `summaries.cautions` looks at; where less is there than wanted, the page warns first."""
    epsilon, blocks = rank_epsilon(release), release.blocks
    rows: list[list[Content]] = [
        [
            "epsilon of one answer times the root of the number of blocks",
            short(epsilon * math.sqrt(blocks), 3),
            f"at least {short(ENOUGH_KAPPA)}",
            "or the noise drowns what the blocks say",
        ]
    ]
    if release.n is not None:
        rows.append(
            [
                "rows a block, about",
                f"{release.n / blocks:,.0f}",
                f"at least {rows_needed(len(release.coefficients)):,}",
                "or the blocks' regressions are rough",
            ]
        )
    rows.append(
        [
            "blocks",
            f"{blocks:,}",
            f"at least {ENOUGH_BLOCKS}",
            "or they are too few for the central limit theorem",
        ]
    )
    if isinstance(release.noise, MedianNoise):
        scale = float(release.noise.scale_epsilon) / release.noise.sensitivity
        parts = (("location", epsilon, MEDIAN_NEEDS), ("scale", scale, SCALE_NEEDS))
        rows += [
            [
                f"epsilon of each {name} times the number of blocks",
                short(share * blocks, 3),
                f"at least {needs}",
                f"or the {name} may be far off",
            ]
            for name, share, needs in parts
        ]
    return section(
        "checks",
        "Can the numbers be trusted?",
        tag(
            "p",
            "Whether the approximations hold can be judged from public numbers. A warning at the "
            "top says where one of them is less than what is wanted.",
        ),
        table("What the answers rest on", ["", "here", "wanted", "why"], rows),
    )
