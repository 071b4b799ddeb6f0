"""What was released of blocks, at what privacy, and which regression a block fits."""

from __future__ import annotations

from noisewise.analyst.report import words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import short
from noisewise.analyst.report.sections import promises
from noisewise.analyst.report.tables import facts, section, table
from noisewise.core.summary import (
    ClippedMean,
    Fisher,
    LocationScale,
    RescaledNormal,
    Sign,
    Stouffer,
)
from noisewise.core.summary_posterior import Conjugate, Flat, GPrior
from noisewise.core.summary_release import MedianNoise, SummaryRelease

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
