"""A request for block summaries: everything that is decided before any row is read.

All of it is public, and all of it goes into the Release but for who was in which block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.core.design import MAX_ROWS, Design
from noisewise.core.document import MAX_INTEGER
from noisewise.core.errors import DataError, RequestError
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    LEAST_SQUARES,
    LINE,
    LOGARITHMIC,
    MAX_BLOCKS,
    MAX_PARTITIONS,
    MAX_REGRESSIONS,
    BlockPosterior,
    CauchyBase,
    ClippedMean,
    Fisher,
    Flat,
    LocationItem,
    LocationScale,
    Mean,
    Model,
    QuantileItem,
    Question,
    RescaledNormal,
    Sign,
    Stouffer,
    SummaryMechanism,
    coefficients_of,
    entries_of,
    sensitivity_of,
    values_each,
)
from noisewise.core.kinds.summary.release import (
    MeanNoise,
    MedianNoise,
    SummaryNoise,
    SummaryRelease,
    SummedNoise,
)
from noisewise.core.privacy import Amount, Claim, PureEvent
from noisewise.core.schema import Category, Schema, Unbounded
from noisewise.holder.blocks import choice
from noisewise.holder.blocks.sums import BlockGrid, BlockPlan, BlockSums, KeptRows, RowPlan
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.holder.requests import base
from noisewise.holder.requests.base import AboutRegression

if TYPE_CHECKING:
    from noisewise.holder.blocks.regressions import Fits


@dataclass(frozen=True)
class BlockFunction:
    """A function of the holder's own that every block computes from its rows.

    Parameters
    ----------
    name : str
        What it is called in the Release. The ledger takes equal names for the same function.
    estimates : sequence of str
        Names of the numbers that it returns.
    function : callable
        From a dict of a block's columns (arrays by name; indicators of levels as "column[level]")
        to as many numbers. It must depend on nothing else and keep no state; what it raises counts
        as a block without an estimate. It runs as it is, with your rights.
    """

    name: str
    estimates: Sequence[str]
    function: Callable[[Mapping[str, Any]], Sequence[float]] = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.estimates, str) or not self.estimates or not callable(self.function):
            raise RequestError("model: a function needs a list of what it returns, and a callable")
        object.__setattr__(self, "estimates", tuple(self.estimates))


@dataclass(frozen=True, kw_only=True)
class SummaryRequest(AboutRegression[SummaryRelease]):
    """What a holder asks to publish about the regressions of blocks."""

    mechanism: SummaryMechanism
    posterior: BlockPosterior
    blocks: int  # M
    partitions: int  # r
    rows: int | None = None  # the public number, if it was given; the data must have as many
    model: Model = LINE  # what a block computes
    # Of a model of the holder's own
    function: BlockFunction | None = field(default=None, compare=False, repr=False)
    # What the same words meant when signs and medians of more blocks were the default
    former: SummaryRequest | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_summary_request(self)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of what a block estimates."""
        return self.model.coefficients(self.design)

    @property
    def entry_epsilon(self) -> Fraction:
        """Epsilon of one entry for one row of a unit: what the accuracy depends on."""
        entries = len(entries_of(self.mechanism))
        return self.epsilon / (entries * self.schema.max_rows_per_unit)

    @property
    def kappa(self) -> float:
        """ε √M; below 4 the noise drowns the answer."""
        return choice.kappa(self.entry_epsilon, self.blocks)

    @cached_property
    def laplace(self) -> LaplaceMechanism:
        """The noise on sums over blocks."""
        assert not isinstance(self.mechanism, LocationScale)
        rows = self.schema.max_rows_per_unit
        sensitivity = sensitivity_of(self.mechanism, self.partitions, rows)
        if isinstance(self.mechanism, Mean):
            return LaplaceMechanism(sensitivity, len(self.mechanism.items) * self._shares.sums)
        return LaplaceMechanism(sensitivity, self.epsilon)

    @property
    def _shares(self) -> choice.MeanShares:
        each = self.epsilon / len(entries_of(self.mechanism))
        return choice.mean_shares(each, self.blocks, self.schema.max_rows_per_unit)

    @cached_property
    def noise(self) -> SummaryNoise:
        rows = self.schema.max_rows_per_unit
        if not isinstance(self.mechanism, LocationScale):
            sums = SummedNoise(self.laplace.scale, self.laplace.sensitivity)
            if not isinstance(self.mechanism, Mean):
                return sums
            return MeanNoise(MedianNoise(self._shares.location, self._shares.distance, rows), sums)
        each = self.epsilon / len(self.mechanism.items)
        size = len(self.design.columns)
        return MedianNoise(*choice.median_epsilons(each, self.blocks, rows, size), rows)

    @property
    def event(self) -> PureEvent:
        return PureEvent(self.epsilon)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before the budget is spent."""
        found = []
        if self.kappa < choice.WEAK_KAPPA:
            found.append(
                f"epsilon: epsilon * sqrt(blocks) is {self.kappa:.2g} for each answer, below "
                f"{choice.WEAK_KAPPA:g}: the noise will drown it. Ask fewer questions, spend more "
                "epsilon, or use more blocks if there are rows for them"
            )
        least = choice.least_rows(len(self.design.columns), self.model)
        if self.rows is not None and self.rows < least * self.blocks:
            found.append(
                f"blocks: {self.blocks:,} are about {self.rows // self.blocks} rows each; with "
                f"fewer than {least} their regressions are skewed or do not exist"
            )
        return tuple(found)

    def verify(self) -> None:
        """OpenDP must agree with the noise; all epsilons must add up to the claim.

        And models need linear algebra that can run in one thread, which is known at no cost.
        """
        if not self.model.is_least_squares and self.function is None:
            from noisewise.holder.blocks.models import one_thread

            with one_thread():
                pass
        noise = self.noise
        if not isinstance(noise, MedianNoise):
            self.laplace.verify()
        if isinstance(noise, SummedNoise):
            return
        medians = noise.medians if isinstance(noise, MeanNoise) else noise
        each = medians.location_epsilon + medians.scale_epsilon
        if isinstance(noise, MeanNoise):
            each += self._shares.sums
        if len(entries_of(self.mechanism)) * each > self.epsilon:
            raise AssertionError("medians and sums cost more than the claim")

    def plan(self) -> BlockPlan | RowPlan:
        if not self.model.is_least_squares:
            return RowPlan(self.design)
        halves = 2 if isinstance(self.mechanism, Mean) else 1
        return BlockPlan(self.design, halves * self.blocks, self.partitions)

    def release(self, n: int, result: BlockSums | KeptRows) -> SummaryRelease:
        """Fit the blocks and draw the noise; the only place where it is drawn."""
        with np.errstate(all="ignore"):  # a warning about some block would be about its rows
            values = self._noisy_values(result, self.public_n(n))
        return self._written(n, values)

    def longest(self) -> int:
        """With the longest of 64-bit integers, or with the last cell, for every value."""
        longest = [-MAX_INTEGER - 1] * values_each(self.mechanism)
        if isinstance(self.mechanism, LocationScale | Mean):
            longest[:2] = [CELLS - 1] * 2
        values = tuple(longest) * len(entries_of(self.mechanism))
        return self._bytes(self._written(MAX_ROWS, values))

    def check_rows(self, n: int) -> None:
        """Refuse also another number than was declared."""
        super().check_rows(n)
        if self.rows not in (None, self.public_n(n)):
            raise DataError(
                f"rows: {self.rows:,} were declared and the data have {n:,}; give the right "
                "number (it decides how many blocks there are)"
            )

    def _written(self, n: int, values: tuple[int, ...]) -> SummaryRelease:
        return SummaryRelease(
            design=self.design,
            blocks=self.blocks,
            partitions=self.partitions,
            mechanism=self.mechanism,
            posterior=self.posterior,
            model=self.model,
            values=values,
            noise=self.noise,
            **self._signed(n),
        )

    def fits(self, result: BlockSums | KeptRows, n: int | None) -> Fits:
        """What all blocks estimate: as private as the rows."""
        from noisewise.holder.blocks.models import fit_models
        from noisewise.holder.blocks.regressions import fit_blocks, fit_with_halves

        if isinstance(result, BlockSums):
            if isinstance(self.mechanism, Mean):
                return fit_with_halves(result, BlockGrid(self.design), self.posterior)
            return fit_blocks(result, BlockGrid(self.design), self.posterior, self.blocks, n)
        function = None if self.function is None else self.function.function
        sizes = (self.blocks, self.partitions)
        return fit_models(result, self.design, self.model, function, *sizes)

    def _noisy_values(self, result: BlockSums | KeptRows, n: int | None) -> tuple[int, ...]:
        from noisewise.holder.blocks import additive, location_scale, mean

        mechanism, noise = self.mechanism, self.noise
        positions = {name: k for k, name in enumerate(self.coefficients)}
        about = self.fits(result, n), positions
        if isinstance(mechanism, Mean):
            assert isinstance(noise, MeanNoise)
            # Ranges first, then the sums of what is within them.
            ranges = mean.draw_ranges(mechanism, *about, noise.medians, self.partitions)
            sums = self.laplace.add_noise(mean.exact_sums(mechanism, *about, ranges))
            found = zip(ranges, sums[::2], sums[1::2], strict=True)
            return tuple(value for cells, *both in found for value in (*cells, *both))
        if isinstance(mechanism, LocationScale):
            assert isinstance(noise, MedianNoise)
            flat = isinstance(self.posterior, Flat)
            return location_scale.draw(
                mechanism, *about, self.blocks, noise, self.partitions, by_spread=flat
            )
        return self.laplace.add_noise(additive.exact_values(mechanism, *about))

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "kind": "summary",
            "mechanism": self.mechanism.to_json(),
            "posterior": self.posterior.to_json(),
            "blocks": self.blocks,
            "partitions": self.partitions,
            **({} if self.model.is_least_squares else {"model": self.model.to_json()}),
        }

    @property
    def summary(self) -> str:
        """The regression, the mechanism, and the first few of its answers."""
        entries = [str(entry) for entry in entries_of(self.mechanism)]
        asked = ", ".join(entries[:4]) + (f" and {len(entries) - 4} more" if entries[4:] else "")
        model = "" if self.model.is_least_squares else f" ({self.model.name})"
        return f"{self.formula}{model}, {self.mechanism.name}: {asked}"


def make_summary_request(
    schema: Schema,
    *,
    target: str,
    features: Sequence[str],
    epsilon: Amount | None = None,
    mechanism: str | None = None,
    questions: Sequence[str | tuple[str, float] | Question] = (),
    coefficients: Sequence[str] = (),
    quantiles: Sequence[float] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    bases: Mapping[str, tuple[float, float]] | None = None,
    rows: int | None = None,
    blocks: int | None = None,
    partitions: int | None = None,
    posterior: BlockPosterior | None = None,
    model: str | BlockFunction = LEAST_SQUARES,
    clip: float | None = None,
    p_star: float | None = None,
    label: str = "",
    batch: str | None = None,
    series: str | None = None,
) -> SummaryRequest:
    """Check the words of a request and fill in the defaults.

    Parameters
    ----------
    schema : Schema
        Numeric columns may be `Unbounded`.
    target : str
    features : sequence of str
    epsilon : number or exact text
        Pure differential privacy; all answers together.
    mechanism : str, optional
        ``mean`` is the default wherever epsilon times the number of blocks is enough for it. Else,
        and by name, with questions ``sign``, ``stouffer``, ``rescaled_normal`` or ``fisher``; with
        coefficients ``location_scale``, or ``clipped_mean`` if quantiles are given too.
    questions : sequence
        Such as "x1 < 0" or ("x1", 0.0); where `mean` can be afforded also "0 < x1 < 2". A Release
        by `mean` answers every question about the coefficients that they name.
    coefficients : sequence of str
        Whose location and scale, or quantiles, are published.
    quantiles : sequence of float
        Probabilities, for ``clipped_mean``.
    bounds : mapping of str to (lower, upper)
        Public bounds of coefficients, for ``clipped_mean``.
    bases : mapping of str to (centre, scale)
        Where a coefficient might be, for ``mean`` and ``location_scale``. Default: zero, with the
        scale of the target's unit over the feature's.
    rows : int, optional
        The number of rows, where it is public (``replace_one``): decides `blocks`.
    blocks, partitions : int, optional
        M and r. Under ``add_remove_one`` the number of rows is private, so M must be given.
    posterior : Flat, GPrior or Conjugate, optional
    model : str or BlockFunction
        What a block fits: ``least_squares``, ``logistic``, ``poisson``, ``quantile`` (or
        ``quantile:0.9``), ``huber``, ``cox``, or a function of your own.
    clip, p_star : float, optional
        Of ``stouffer`` and ``fisher``.
    label, batch, series : str, optional
        As in `Publishable`.
    """
    spent = base.given_epsilon(epsilon)
    claim = Claim(spent)
    own = model if isinstance(model, BlockFunction) else None
    fitted = Model(own.name, tuple(own.estimates)) if own is not None else Model(str(model))
    family = fitted.family(schema, target)
    if family == "linear" and isinstance(schema.columns.get(target), Category):
        raise RequestError(
            f"target: {target!r} is a category, and blocks that fit {fitted.name} need a number; "
            "of two levels take model logistic, or make a column of 0 and 1 and declare it with "
            "lower 0 and upper 1"
        )
    design = base.restricted_design(schema, features, target, family)
    base.check_no_terms(design, "a block summary")
    known = fitted.coefficients(design)
    usual = _name(mechanism, bool(questions), bool(coefficients), bool(quantiles))
    given = {
        "questions": questions or None,
        "coefficients": coefficients or None,
        "quantiles": quantiles or None,
        "bounds": bounds,
        "bases": bases,
        "clip": clip,
        "p_star": p_star,
    }
    given = {word: value for word, value in given.items() if value is not None}
    _check_use(usual, known, given)
    size = len(design.columns)
    fit = Flat() if posterior is None else posterior

    def entries_of_kind(name: str) -> Sequence[Any]:
        if name in (LocationScale.name, Mean.name):
            about = coefficients or tuple(dict.fromkeys(map(_coefficient_in, questions)))
            _check_use(name, known, {**given, "coefficients": about})
            return _bases(design, fitted, about, bases or {})
        if name == ClippedMean.name:
            return _items(coefficients, quantiles, bounds or {})
        return [question_of(question) for question in questions]

    def each_of(entries: Sequence[Any]) -> Fraction:
        return spent / (len(entries) * schema.max_rows_per_unit)

    def number_of_blocks(name: str, each: Fraction, former: bool = False) -> int:
        M = blocks
        if M is None and former:
            M = choice.former_blocks(_public_rows(schema, rows), each, size)
        elif M is None:
            M = choice.default_blocks(name, _public_rows(schema, rows), each, size, fitted)
        return _whole("blocks", M, 2, MAX_BLOCKS)

    def made(name: str, former: bool) -> SummaryRequest:
        entries = entries_of_kind(name)
        each = each_of(entries)
        M, r = number_of_blocks(name, each, former), partitions
        if r is None:
            r = choice.default_partitions(name, M, size) if fitted.is_least_squares else 1
        return SummaryRequest(
            design=design,
            claim=claim,
            mechanism=_mechanism(name, tuple(entries), M, each, schema, clip, p_star),
            posterior=fit,
            blocks=M,
            partitions=_whole("partitions", r, 1, MAX_PARTITIONS),
            rows=None if rows is None else _public_rows(schema, rows),
            model=fitted,
            function=own,
            label=label,
            batch=batch,
            series=series,
        )

    def mean_is_affordable() -> bool:
        each = each_of(entries_of_kind(Mean.name))
        return choice.mean_affordable(each, number_of_blocks(Mean.name, each))

    by_default = mechanism is None and usual in (Sign.name, LocationScale.name)
    best = by_default and isinstance(fit, Flat) and mean_is_affordable()
    request = made(Mean.name if best else usual, False)
    try:
        changed = usual != Mean.name and fitted.is_least_squares
        former = made(usual, True) if changed else None
    except RequestError:  # then nobody can have asked for it
        former = None
    if former is None or former.key == request.key:
        return request
    return replace(request, former=former)


def _public_rows(schema: Schema, rows: int | None) -> int:
    if not schema.n_is_public:
        raise RequestError(
            "blocks: the number of rows is private under add_remove_one and cannot decide how many "
            "blocks there are; give blocks (about one for 30 rows that you expect), and no rows"
        )
    if rows is None:
        raise RequestError(
            "rows: not given; say how many rows there are (the number is public under replace_one) "
            "or give blocks"
        )
    return _whole("rows", rows, 1, 1 << 30)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(
            f"{name}: expected a whole number from {low:,} to {high:,}, got {value!r}"
        )
    return value


# --- what makes a request impossible, found before anything is charged or read --------------------


def check_summary_request(request: SummaryRequest) -> None:
    """Refuse what cannot be published, whatever the rows; the error says what to do."""
    if request.schema.unit_column is not None:
        raise RequestError(
            "unit: block summaries put rows into blocks, and can't average those of one person "
            "yet; declare 'max_rows_per_unit' in place of 'unit' (for a data set without charges "
            "under another unit)"
        )
    if not request.claim.is_pure:
        raise RequestError("delta: block summaries are purely private; leave delta and rho out")
    names = request.coefficients
    if not request.model.is_least_squares:
        _check_model(request)
    for name in coefficients_of(request.mechanism):
        if name not in names:
            raise RequestError(
                f"coefficient: {name!r} is not one of the regression's: {', '.join(names)}"
            )
    request.posterior.check(len(request.design.columns), request.schema.n_is_public)
    if isinstance(request.mechanism, Mean) and not isinstance(request.posterior, Flat):
        raise RequestError(
            "posterior: the mean of blocks takes its width from their spread, which knows no "
            "prior; use the flat posterior, or another mechanism"
        )
    if request.blocks * request.partitions > MAX_REGRESSIONS:
        raise RequestError(
            f"partitions: {request.partitions} times {request.blocks:,} blocks are more than "
            f"{MAX_REGRESSIONS:,} regressions; use fewer partitions"
        )
    if request.plan().memory > choice.MEMORY_LIMIT:
        raise RequestError(
            f"blocks: the sums of {request.blocks:,} blocks x {request.partitions} partitions with "
            f"{len(names)} coefficients need {request.plan().memory / 1e9:.1f} GB; use fewer"
        )
    if not isinstance(request.noise, MedianNoise):
        base.check_scale(request.laplace.scale)


def _check_model(request: SummaryRequest) -> None:
    """Refuse what only least squares has: a posterior within a block, and sums to compare."""
    name = request.model.name
    if not isinstance(request.mechanism, Mean | Sign | LocationScale):
        raise RequestError(f"mechanism: blocks that fit {name} have estimates only: use mean")
    if not isinstance(request.posterior, Flat):
        raise RequestError(f"posterior: blocks that fit {name} have none; leave it out")
    if request.series is not None:
        raise RequestError(
            f"series: batches are compared by sums over rows, which {name} doesn't make; leave "
            "batch and series out, and the costs add up"
        )
    if not request.model.estimates and find_spec("statsmodels") is None:
        raise RequestError(
            f"model: {name} is fitted by statsmodels, which is not installed: pip install "
            "'noisewise[models]'"
        )
    if bool(request.model.estimates) != (request.function is not None):
        raise RequestError("model: an own function and the names of its estimates go together")
    target = request.schema.columns[request.design.target]
    if name == "logistic" and isinstance(target, Unbounded):
        raise RequestError(
            f"model: logistic needs bounds of {request.design.target!r}, such as lower: 0 and "
            "upper: 1; what is above the middle counts as 1"
        )


# ---------------------------------------------------------------------------------------------
# From words to a mechanism: questions such as "x1 < 0", defaults, and refusals with the remedy

ASKING = ("sign", "stouffer", "rescaled_normal", "fisher")
ALL = ("mean", *ASKING, "location_scale", "clipped_mean")
DEFAULT_P_STAR = 0.2
LOG_SCALE_WIDTH = 3.0
_STATEMENT = re.compile(r"\s*(.+?)\s*(<=|>=|<|>)\s*([^<>=]+?)\s*")
_BETWEEN = re.compile(r"\s*([-+.\deE]+)\s*(<=?)\s*(.+?)\s*(<=?)\s*([-+.\deE]+)\s*")


# Which mechanisms have a use for which words.
TAKERS: dict[str, tuple[str, ...]] = {
    "questions": ("mean", *ASKING),
    "coefficients": ("mean", "location_scale", "clipped_mean"),
    "quantiles": ("clipped_mean",),
    "bounds": ("clipped_mean",),
    "bases": ("mean", "location_scale"),
    "clip": ("stouffer",),
    "p_star": ("fisher",),
}


def _check_use(name: str, known: Sequence[str], given: Mapping[str, Any]) -> None:
    """Refuse words that the mechanism has no use for, and none where it needs some."""
    for word in given:
        if name not in TAKERS[word]:
            raise RequestError(
                f"{word}: the mechanism {name} has no use for it; it is for "
                f"{' and '.join(TAKERS[word])}"
            )
    if name in ASKING:
        if "questions" not in given:
            raise RequestError(f"questions: none given; {name} answers some, such as 'x1 < 0'")
        return
    coefficients = given.get("coefficients", ())
    if name == Mean.name and not coefficients and "questions" in given:
        return  # about the coefficients that the questions name
    if isinstance(coefficients, str):
        raise RequestError(f"coefficients: expected a list of names, got {coefficients!r}")
    if not coefficients:
        raise RequestError(f"coefficients: none given; choose from {', '.join(known)}")
    for coefficient in coefficients:
        if coefficient not in known:
            raise RequestError(
                f"coefficients: {coefficient!r} is not one of the regression's: {', '.join(known)}"
            )


def _mechanism(
    name: str,
    entries: tuple[Any, ...],
    blocks: int,
    each: Fraction,
    schema: Schema,
    clip: float | None,
    p_star: float | None,
) -> SummaryMechanism:
    """The mechanism for M blocks, with this epsilon for each answer and row of a unit."""
    plain: tuple[type[Sign | RescaledNormal | ClippedMean], ...] = Sign, RescaledNormal, ClippedMean
    for kind in plain:
        if name == kind.name:
            return kind(entries)
    if name == Stouffer.name:
        kappa = choice.kappa(each, blocks)
        return Stouffer(entries, choice.best_clip(kappa) if clip is None else clip)
    if name == Fisher.name:
        return Fisher(entries, DEFAULT_P_STAR if p_star is None else p_star)
    # Estimates of 30 rows are √30 times narrower than the data, a posterior of all rows √n times.
    is_mean = name == Mean.name
    narrower = 0.5 * math.log(30 if is_mean else 30 * blocks)
    items = tuple(
        LocationItem(
            coefficient, location, CauchyBase(math.log(location.scale) - narrower, LOG_SCALE_WIDTH)
        )
        for coefficient, location in entries
    )
    if not is_mean:
        return LocationScale(items)
    rows = schema.max_rows_per_unit
    shares = choice.mean_shares(each * rows, blocks, rows)
    return Mean(items, shares.tail, shares.reach)


def _coefficient_in(given: Any) -> str:
    """What a question is about; for `mean`, which answers every one, also "0 < x1 < 2"."""
    between = _BETWEEN.fullmatch(given) if isinstance(given, str) else None
    return question_of(given).coefficient if between is None else between[3]


def question_of(given: Any) -> Question:
    """A question from text, a pair or a Question; "x > 0" has the same answer as "x < 0"."""
    if isinstance(given, Question):
        return given
    if isinstance(given, str):
        if _BETWEEN.fullmatch(given):
            raise RequestError(
                f"questions: {given!r} has two ends, and only the mechanism mean answers that; it "
                "needs more epsilon or more rows than there are, so ask for one end"
            )
        match = _STATEMENT.fullmatch(given)
        if match is None:
            raise RequestError(f"questions: {given!r} is not a question such as 'x1 < 0'")
        name, _, right = match.groups()
        try:
            return Question(name, float(right))
        except ValueError:
            raise RequestError(f"questions: {right!r} in {given!r} is not a number") from None
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str):
        return Question(given[0], given[1])
    raise RequestError(f"questions: {str(given)[:60]!r} is not a question such as 'x1 < 0'")


def _name(mechanism: str | None, questions: bool, coefficients: bool, quantiles: bool) -> str:
    if mechanism is None:
        if questions and coefficients:
            raise RequestError(
                "questions: a release either answers questions or describes coefficients; one that "
                "describes coefficients (location_scale) answers all questions about them"
            )
        if not coefficients:
            return "sign"
        return "clipped_mean" if quantiles else "location_scale"
    if mechanism not in ALL:
        raise RequestError(f"mechanism: {mechanism!r} is unknown; there are {', '.join(ALL)}")
    return mechanism


def _items(
    coefficients: Sequence[str],
    quantiles: Sequence[float],
    bounds: Mapping[str, tuple[float, float]],
) -> list[QuantileItem]:
    if not quantiles:
        raise RequestError("quantiles: none given; clipped_mean publishes some, such as 0.05, 0.95")
    for name in bounds:
        if name not in coefficients:
            raise RequestError(f"bounds: {name!r} is not among the coefficients asked for")
    found = []
    for coefficient in coefficients:
        if coefficient not in bounds:
            raise RequestError(
                f"bounds: clipped_mean needs public bounds of {coefficient!r}; without any, use "
                "location_scale"
            )
        found += [QuantileItem(coefficient, p, *bounds[coefficient]) for p in quantiles]
    return found


def _bases(
    design: Design,
    model: Model,
    coefficients: Sequence[str],
    bases: Mapping[str, tuple[float, float]],
) -> list[tuple[str, CauchyBase]]:
    """Where each coefficient might be."""
    for name in bases:
        if name not in coefficients:
            raise RequestError(f"bases: {name!r} is not among the coefficients asked for")
    target = design.columns[-1]
    found = []
    for coefficient in coefficients:
        scale, centre = _size(design, -1), target.centre
        if model.name in LOGARITHMIC:
            scale, centre = 1.0, 0.0
        for k, column in enumerate(design.columns[:-1]):
            if column.name == coefficient:
                scale, centre = scale / _size(design, k), 0.0
        found.append((coefficient, CauchyBase(*bases.get(coefficient, (centre, scale)))))
    return found


def _size(design: Design, k: int) -> float:
    """The order of magnitude of a column: its unit, or half the distance between its bounds."""
    column = design.columns[k]
    declared = design.schema.columns[column.source]
    return declared.unit if isinstance(declared, Unbounded) else column.half_width
