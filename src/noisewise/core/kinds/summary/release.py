"""The Release of block summaries: noisy integers about regressions within blocks of rows.

Like `Release` it is a JSON document with a closed set of types, and whoever reads one treats it as
untrusted input. It tells how many blocks and partitions there were, never who was in which block.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Self

from noisewise.core import document as read
from noisewise.core.composition import satisfies
from noisewise.core.design import Design
from noisewise.core.document import Read, Received, RegressionRelease, check_n, fail
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    LINE,
    MAX_BLOCKS,
    MAX_PARTITIONS,
    MAX_REGRESSIONS,
    BlockPosterior,
    CauchyBase,
    ClippedMean,
    Conjugate,
    Fisher,
    Flat,
    GPrior,
    LocationScale,
    Mean,
    Model,
    RescaledNormal,
    Sign,
    Stouffer,
    SummaryMechanism,
    coefficients_of,
    entries_of,
    sensitivity_of,
    values_each,
)
from noisewise.core.privacy import PureEvent, fraction_text
from noisewise.core.terms.term import MAX_TERM

MIN_MEDIAN_EPSILON = Fraction(1, 10**9)  # a median of all the blocks there may be needs 1e-4


@dataclass(frozen=True)
class SummedNoise:
    """Discrete Laplace noise on every value."""

    scale: int  # in grid units
    sensitivity: int  # L1 sensitivity of all values together, in grid units
    family: ClassVar[str] = "discrete_laplace"

    def to_json(self) -> dict[str, Any]:
        return {"family": self.family, "scale": self.scale, "sensitivity": self.sensitivity}


@dataclass(frozen=True)
class MedianNoise:
    """The exponential mechanism: P(cell) ∝ exp(-ε d / (2 Δ)), d the blocks between it and half."""

    # For each coefficient's location, and for each one's scale
    location_epsilon: Fraction
    scale_epsilon: Fraction
    sensitivity: int  # Δ: by how many blocks (of one partition) one unit can move a rank
    family: ClassVar[str] = "exponential"

    def to_json(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "location_epsilon": fraction_text(self.location_epsilon),
            "scale_epsilon": fraction_text(self.scale_epsilon),
            "sensitivity": self.sensitivity,
        }


@dataclass(frozen=True)
class MeanNoise:
    """Of `mean`: how its ranges are drawn, and the noise on its sums."""

    medians: MedianNoise  # `scale_epsilon` is that of each quantile of distances (now their median)
    sums: SummedNoise
    family: ClassVar[str] = "exponential_then_laplace"

    def to_json(self) -> dict[str, Any]:
        parts = {"medians": self.medians.to_json(), "sums": self.sums.to_json()}
        return {"family": self.family, **parts}


SummaryNoise = SummedNoise | MedianNoise | MeanNoise


@dataclass(frozen=True)
class SummaryRelease(RegressionRelease):
    """Block summaries with everything needed to interpret them."""

    # Schema (restricted to the columns that were read), features and target. The coefficients are
    # `coefficients`: the intercept, features, and indicators of levels.
    design: Design
    blocks: int  # M
    partitions: int  # r
    mechanism: SummaryMechanism  # what the values are; see `mechanisms`
    posterior: BlockPosterior
    values: tuple[int, ...]  # in the order of the mechanism's entries
    noise: SummaryNoise
    model: Model = LINE  # what a block computes; least squares, if the document doesn't say

    FORMAT = "noisewise-summary-release"
    FORMAT_VERSION = 1
    KEYS = (
        *("features", "target", "coefficients", "n", "blocks", "partitions"),
        *("mechanism", "posterior", "noise", "values"),
    )
    OPTIONAL = ("model",)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of all that a block estimates; of a regression, the intercept first."""
        return self.model.coefficients(self.design)

    def mean(self, index: int) -> float:
        """The noisy mean over all r M blocks that one value stands for, if it is a sum."""
        return self.values[index] * self._step

    @property
    def mean_noise_scale(self) -> float:
        """The scale of the Laplace noise on `mean`."""
        noise = self.noise.sums if isinstance(self.noise, MeanNoise) else self.noise
        assert isinstance(noise, SummedNoise)
        return noise.scale * self._step

    @property
    def _step(self) -> float:
        assert not isinstance(self.mechanism, LocationScale)
        return 2.0**-self.mechanism.fraction_bits / (self.blocks * self.partitions)

    def _content(self) -> dict[str, Any]:
        return {
            "features": list(self.design.features),
            "target": self.design.target,
            "coefficients": list(self.coefficients),
            "n": self.n,
            "blocks": self.blocks,
            "partitions": self.partitions,
            "mechanism": self.mechanism.to_json(),
            "posterior": self.posterior.to_json(),
            **({} if self.model.is_least_squares else {"model": self.model.to_json()}),
            "noise": self.noise.to_json(),
            "values": list(self.values),
        }

    @classmethod
    def _read(cls, document: Received) -> Self:
        model = _model(document["model"]) if "model" in document else LINE
        design = document.design_of(
            model.family(document.schema, read.text(document["target"], "target", MAX_TERM))
        )
        if design.terms:
            fail("a block summary has columns only, no terms")
        names = read.texts(document["coefficients"], "coefficients", read.MAX_DESIGN_NAME)
        if names != model.coefficients(design):
            fail("coefficients do not follow from the schema, the features and the model")
        return cls(
            design=design,
            blocks=read.integer(document["blocks"], "blocks", 1, MAX_BLOCKS),
            partitions=read.integer(document["partitions"], "partitions", 1, MAX_PARTITIONS),
            mechanism=mechanism_from_json(document["mechanism"]),
            posterior=posterior_from_json(document["posterior"]),
            model=model,
            values=read.integers(document["values"], "values"),
            noise=_noise(document["noise"]),
            **document.common,
        )


# --- reading --------------------------------------------------------------------------------------


_MECHANISMS: dict[Any, type[SummaryMechanism]] = {
    kind.name: kind
    for kind in (Sign, Stouffer, RescaledNormal, Fisher, ClippedMean, LocationScale, Mean)
}
_POSTERIORS: dict[Any, type[BlockPosterior]] = {
    kind.kind: kind for kind in (Flat, GPrior, Conjugate)
}


def mechanism_from_json(document: Any) -> SummaryMechanism:
    """Read what a mechanism's `to_json` wrote."""
    name = document.get("name") if isinstance(document, dict) else None
    if not isinstance(name, str) or name not in _MECHANISMS:
        fail("the mechanism is unknown here")
    return _object(_MECHANISMS[name], document, name, "name")


def posterior_from_json(document: Any) -> BlockPosterior:
    """Read what a block posterior's `to_json` wrote."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in _POSTERIORS:
        fail("the block posterior is unknown here")
    return _object(_POSTERIORS[kind], document, "posterior", "kind")


def _object(kind: type[Read], document: Any, where: str, *tag: str) -> Read:
    """One of this kind, from an object with its fields and the tag that says which kind it is."""
    names = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
    values = read.take(document, where, (*tag, *names))[len(tag) :]
    return kind(*(_field(kind, *pair) for pair in zip(names, values, strict=True)))


def _field(kind: Any, name: str, value: Any) -> Any:
    if name in ("questions", "items"):
        where = "a question" if name == "questions" else "an item"
        return tuple(_object(kind.entry, one, where) for one in read.items(value, name))
    if name in ("location", "log_scale"):
        return _object(CauchyBase, value, "a base law")
    if name in ("mean", "precision"):  # of a conjugate prior
        return tuple(read.real(one, name) for one in read.items(value, name))
    if name == "coefficient":
        return read.text(value, name, read.MAX_DESIGN_NAME)
    return value if (name, value) == ("g", "n") else read.real(value, name)


def _model(document: Any) -> Model:
    more = ("estimates",) if isinstance(document, dict) and "estimates" in document else ()
    name, *estimates = read.take(document, "model", ("name", *more))
    found = Model(
        read.text(name, "model"), *(read.texts(names, "estimates") for names in estimates)
    )
    if found.is_least_squares:
        fail("a model of least squares goes without saying")
    return found


def _noise(document: Any) -> SummaryNoise:
    family = document.get("family") if isinstance(document, dict) else None
    if family == SummedNoise.family:
        _, scale, sensitivity = read.take(document, "noise", ("family", "scale", "sensitivity"))
        return SummedNoise(
            read.integer(scale, "noise scale", 1, read.MAX_SCALE),
            read.integer(sensitivity, "sensitivity", 1, read.MAX_INTEGER),
        )
    if family == MeanNoise.family:
        _, medians, sums = read.take(document, "noise", ("family", "medians", "sums"))
        parts = _noise(medians), _noise(sums)
        if not isinstance(parts[0], MedianNoise) or not isinstance(parts[1], SummedNoise):
            fail("the noise of a mean has medians and sums")
        return MeanNoise(parts[0], parts[1])
    if family != MedianNoise.family:
        fail("unknown noise family")
    keys = ("family", "location_epsilon", "scale_epsilon", "sensitivity")
    _, location, scale, sensitivity = read.take(document, "noise", keys)
    return MedianNoise(
        read.fraction(location, "location_epsilon"),
        read.fraction(scale, "scale_epsilon"),
        read.integer(sensitivity, "sensitivity", 1, read.MAX_INTEGER),
    )


# --- checks that hold however a Release was made --------------------------------------------------


def _check(release: SummaryRelease) -> None:
    check_n(release)
    if release.blocks * release.partitions > MAX_REGRESSIONS:
        fail(f"more than {MAX_REGRESSIONS:,} blocks in all partitions together")
    for name in coefficients_of(release.mechanism):
        if name not in release.coefficients:
            fail(f"{name[:40]!r} is not a coefficient of the regression")
    if release.schema.unit_column is not None:
        fail("block summaries are not made of averaged rows")
    release.posterior.check(len(release.design.columns), release.schema.n_is_public)
    if not release.model.is_least_squares and not (
        isinstance(release.posterior, Flat)
        and isinstance(release.mechanism, Mean | Sign | LocationScale)
    ):
        fail("blocks that fit another model than a line have estimates only")
    each = values_each(release.mechanism)
    expected = each * len(entries_of(release.mechanism))
    if len(release.values) != expected:
        fail(f"{len(release.values)} values, expected {expected}")
    if isinstance(release.mechanism, LocationScale | Mean):
        cells = (*release.values[::each], *release.values[1::each])
        if not all(0 <= value < CELLS for value in cells):
            fail(f"every location and scale must be a cell from 0 to {CELLS - 1}")
    _check_privacy(release)


def _check_privacy(release: SummaryRelease) -> None:
    """The noise must be large enough for the event, and the claim follow from the event."""
    event, noise, mechanism = release.event, release.noise, release.mechanism
    rows = release.schema.max_rows_per_unit
    if not isinstance(event, PureEvent) or not release.claim.is_pure:
        fail("block summaries have a pure privacy event and a pure claim")
    left = event.epsilon
    if isinstance(mechanism, LocationScale | Mean):
        medians = noise.medians if isinstance(noise, MeanNoise) else noise
        if not isinstance(medians, MedianNoise) or medians.sensitivity != rows:
            fail(f"{mechanism.name} is drawn by the exponential mechanism, one rank a row")
        if min(medians.location_epsilon, medians.scale_epsilon) < MIN_MEDIAN_EPSILON:
            fail("every median needs a positive epsilon that is not next to nothing")
        left -= len(mechanism.items) * (medians.location_epsilon + medians.scale_epsilon)
    consistent = left >= 0
    if isinstance(noise, MeanNoise) != isinstance(mechanism, Mean):
        fail(f"{mechanism.name} has another kind of noise")
    if not isinstance(mechanism, LocationScale):
        sums = noise.sums if isinstance(noise, MeanNoise) else noise
        if not isinstance(sums, SummedNoise):
            fail(f"{mechanism.name} has discrete Laplace noise")
        if sums.sensitivity != sensitivity_of(mechanism, release.partitions, rows):
            fail("the sensitivity does not follow from the mechanism")
        consistent = sums.scale * left >= sums.sensitivity
    if not consistent:
        fail("the noise is too small for the privacy event")
    if not satisfies([event], release.claim):
        fail("the privacy claim does not follow from the event")
