"""From words to a mechanism: questions such as "x1 < 0", defaults, and refusals with the remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noisewise.core.design import Design
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import (
    CauchyBase,
    ClippedMean,
    Fisher,
    LocationItem,
    LocationScale,
    QuantileItem,
    Question,
    RescaledNormal,
    Sign,
    Stouffer,
    SummaryMechanism,
)
from noisewise.core.schema import Unbounded
from noisewise.holder.blocks import choice

ASKING = ("sign", "stouffer", "rescaled_normal", "fisher")
ALL = (*ASKING, "location_scale", "clipped_mean")
DEFAULT_P_STAR = 0.2
LOG_SCALE_WIDTH = 3.0
_STATEMENT = re.compile(r"\s*(.+?)\s*(<=|>=|<|>)\s*([^<>=]+?)\s*")


@dataclass(frozen=True)
class Words:
    """A mechanism but for what depends on the number of blocks."""

    name: str
    questions: tuple[Question, ...]
    items: tuple[QuantileItem, ...]
    bases: tuple[tuple[str, float, float], ...]
    clip: float | None
    p_star: float | None

    @property
    def entries(self) -> int:
        """How many answers share the budget."""
        return len(self.questions) + len(self.items) + len(self.bases)

    def build(self, blocks: int, kappa: float) -> SummaryMechanism:
        """The mechanism for M blocks, with κ = ε √M for each answer."""
        if self.name == Sign.name:
            return Sign(self.questions)
        if self.name == Stouffer.name:
            clip = choice.best_clip(kappa) if self.clip is None else self.clip
            return Stouffer(self.questions, clip)
        if self.name == RescaledNormal.name:
            return RescaledNormal(self.questions)
        if self.name == Fisher.name:
            return Fisher(self.questions, DEFAULT_P_STAR if self.p_star is None else self.p_star)
        if self.name == ClippedMean.name:
            return ClippedMean(self.items)
        found = []
        for coefficient, centre, scale in self.bases:
            # A posterior is about √n narrower than the data, and there are 30 rows a block.
            narrow = math.log(scale) - 0.5 * math.log(30 * blocks)
            log_scale = CauchyBase(narrow, LOG_SCALE_WIDTH)
            found.append(LocationItem(coefficient, CauchyBase(centre, scale), log_scale))
        return LocationScale(tuple(found))


def mechanism_of(
    design: Design,
    mechanism: str | None,
    *,
    questions: Sequence[Any] = (),
    coefficients: Sequence[str] = (),
    quantiles: Sequence[float] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    bases: Mapping[str, tuple[float, float]] | None = None,
    clip: float | None = None,
    p_star: float | None = None,
) -> Words:
    """Check what was asked for; see `make_summary_request`."""
    name = _name(mechanism, bool(questions), bool(coefficients), bool(quantiles))
    given = {
        "questions": (bool(questions), ASKING),
        "coefficients": (bool(coefficients), ("location_scale", "clipped_mean")),
        "quantiles": (bool(quantiles), ("clipped_mean",)),
        "bounds": (bounds is not None, ("clipped_mean",)),
        "bases": (bases is not None, ("location_scale",)),
        "clip": (clip is not None, ("stouffer",)),
        "p_star": (p_star is not None, ("fisher",)),
    }
    for argument, (is_given, takers) in given.items():
        if is_given and name not in takers:
            raise RequestError(
                f"{argument}: the mechanism {name} has no use for it; it is for "
                f"{' and '.join(takers)}"
            )
    if isinstance(coefficients, str):
        raise RequestError(f"coefficients: expected a list of names, got {coefficients!r}")
    if name in ASKING and not questions:
        raise RequestError(f"questions: none given; {name} answers some, such as 'x1 < 0'")
    if name not in ASKING and not coefficients:
        raise RequestError(f"coefficients: none given; choose from {', '.join(design.names[:-1])}")
    for coefficient in coefficients:
        if coefficient not in design.names[:-1]:
            raise RequestError(
                f"coefficients: {coefficient!r} is not one of the regression's: "
                f"{', '.join(design.names[:-1])}"
            )
    asked = tuple(question_of(question) for question in questions)
    items = _items(coefficients, quantiles, bounds or {}) if name == "clipped_mean" else ()
    laws = _bases(design, coefficients, bases or {}) if name == "location_scale" else ()
    return Words(name, asked, items, laws, clip, p_star)


def question_of(given: Any) -> Question:
    """A question from text, a pair or a Question; "x > 0" has the same answer as "x < 0"."""
    if isinstance(given, Question):
        return given
    if isinstance(given, str):
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
) -> tuple[QuantileItem, ...]:
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
    return tuple(found)


def _bases(
    design: Design, coefficients: Sequence[str], bases: Mapping[str, tuple[float, float]]
) -> tuple[tuple[str, float, float], ...]:
    for name in bases:
        if name not in coefficients:
            raise RequestError(f"bases: {name!r} is not among the coefficients asked for")
    target = design.columns[-1]
    found = []
    for coefficient in coefficients:
        scale, centre = _size(design, -1), target.centre
        for k, column in enumerate(design.columns[:-1]):
            if column.name == coefficient:
                scale, centre = scale / _size(design, k), 0.0
        base = CauchyBase(*bases.get(coefficient, (centre, scale)))
        found.append((coefficient, base.centre, base.scale))
    return tuple(found)


def _size(design: Design, k: int) -> float:
    """The order of magnitude of a column: its unit, or half the distance between its bounds."""
    column = design.columns[k]
    declared = design.schema.columns[column.source]
    return declared.unit if isinstance(declared, Unbounded) else column.half_width
