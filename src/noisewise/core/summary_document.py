"""Reading the mechanism and the posterior of a summary Release, which are untrusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noisewise.core.document import MAX_DESIGN_NAME, fail, real, take, text
from noisewise.core.summary import (
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
from noisewise.core.summary_posterior import BlockPosterior, Conjugate, Flat, GPrior


def mechanism_from_json(document: Any) -> SummaryMechanism:
    """Read what a mechanism's `to_json` wrote."""
    name = document.get("name") if isinstance(document, dict) else None
    readers: dict[Any, Callable[[Any], SummaryMechanism]] = {
        Sign.name: lambda d: Sign(_questions(take(d, "sign", ("name", "questions"))[1])),
        Stouffer.name: _stouffer,
        RescaledNormal.name: lambda d: RescaledNormal(
            _questions(take(d, "rescaled_normal", ("name", "questions"))[1])
        ),
        Fisher.name: _fisher,
        ClippedMean.name: _clipped_mean,
        LocationScale.name: _location_scale,
    }
    if not isinstance(name, str) or name not in readers:
        fail("the mechanism is unknown here")
    return readers[name](document)


def _questions(document: Any) -> tuple[Question, ...]:
    found = []
    for item in _list(document, "questions"):
        coefficient, threshold = take(item, "a question", ("coefficient", "threshold"))
        found.append(Question(_name(coefficient), real(threshold, "threshold")))
    return tuple(found)


def _stouffer(document: Any) -> Stouffer:
    _, questions, clip = take(document, "stouffer", ("name", "questions", "clip"))
    return Stouffer(_questions(questions), real(clip, "clip"))


def _fisher(document: Any) -> Fisher:
    _, questions, p_star = take(document, "fisher", ("name", "questions", "p_star"))
    return Fisher(_questions(questions), real(p_star, "p_star"))


def _clipped_mean(document: Any) -> ClippedMean:
    found = []
    keys = ("coefficient", "probability", "lower", "upper")
    for item in _list(take(document, "clipped_mean", ("name", "items"))[1], "items"):
        coefficient, *numbers = take(item, "an item", keys)
        named = zip(numbers, keys[1:], strict=True)
        found.append(QuantileItem(_name(coefficient), *(real(*n) for n in named)))
    return ClippedMean(tuple(found))


def _location_scale(document: Any) -> LocationScale:
    found = []
    for item in _list(take(document, "location_scale", ("name", "items"))[1], "items"):
        keys = ("coefficient", "location", "log_scale")
        coefficient, location, log_scale = take(item, "an item", keys)
        found.append(LocationItem(_name(coefficient), _base(location), _base(log_scale)))
    return LocationScale(tuple(found))


def _base(document: Any) -> CauchyBase:
    centre, scale = take(document, "a base law", ("centre", "scale"))
    return CauchyBase(real(centre, "centre"), real(scale, "scale"))


def posterior_from_json(document: Any) -> BlockPosterior:
    """Read what a block posterior's `to_json` wrote."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == Flat.kind:
        take(document, "posterior", ("kind",))
        return Flat()
    if kind == GPrior.kind:
        _, g = take(document, "posterior", ("kind", "g"))
        return GPrior("n" if g == "n" else real(g, "g"))
    if kind != Conjugate.kind:
        fail("the block posterior is unknown here")
    keys = ("kind", "mean", "precision", "shape", "rate")
    _, mean, precision, shape, rate = take(document, "posterior", keys)
    return Conjugate(
        tuple(real(v, "mean") for v in _list(mean, "mean")),
        tuple(real(v, "precision") for v in _list(precision, "precision")),
        real(shape, "shape"),
        real(rate, "rate"),
    )


def _name(value: Any) -> str:
    return text(value, "coefficient", MAX_DESIGN_NAME)


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        fail(f"{where} must be a list")
    return value
