"""Reads what a network Release holds from JSON, as untrusted input."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from noisewise.core.document import MAX_INTEGER, fail, integer, real, take, text, texts
from noisewise.core.network_content import (
    TABLE_BITS,
    Content,
    NoisyCounts,
    NoisyParities,
    TableDraws,
)
from noisewise.core.privacy import as_fraction


def content_from_json(document: Any) -> Content:
    """Read what `to_json` wrote; raises ReleaseError where it is something else."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == NoisyCounts.kind:
        _, noise, sensitivity, values = take(
            document, "result", ("kind", "noise", "sensitivity", "values")
        )
        return NoisyCounts(_by_node(values), _scale(noise), _sensitivity(sensitivity))
    if kind == NoisyParities.kind:
        keys = ("kind", "noise", "sensitivity", "increment", "stealth", "values")
        _, noise, sensitivity, increment, stealth, values = take(document, "result", keys)
        return NoisyParities(
            values=_integers(values),
            scale=_scale(noise),
            sensitivity=_sensitivity(sensitivity),
            increment=real(increment, "increment"),
            stealth=real(stealth, "stealth"),
        )
    if kind == TableDraws.kind:
        return _draws(document)
    return fail("the result must be counts, parities or draws")


def _draws(document: Any) -> TableDraws:
    keys = (
        *("kind", "law", "fraction_bits", "lowest", "temper", "concentration", "points"),
        "draws",
    )
    _, law, bits, lowest, temper, concentration, points, draws = take(document, "result", keys)
    integer(bits, "fraction_bits", TABLE_BITS, TABLE_BITS)
    if not isinstance(draws, list) or not isinstance(concentration, dict):
        fail("draws must be a list, and concentration an object")
    names = texts(list(concentration), "concentration")
    return TableDraws(
        draws=tuple(_by_node(draw) for draw in draws),
        law=text(law, "law"),
        lowest=integer(lowest, "lowest", 1, (1 << TABLE_BITS) - 1),
        temper=_fraction(temper, "temper"),
        concentration={name: _fraction(concentration[name], "concentration") for name in names},
        points=None if points is None else integer(points, "points", 2, 10_000),
    )


def _fraction(value: Any, where: str) -> Fraction:
    if not isinstance(value, str):
        fail(f"{where} must be a number written as text")
    return as_fraction(value, where)


def _by_node(value: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, dict):
        fail("values must be an object with a list for every node")
    return {text(node, "a node"): _integers(values) for node, values in value.items()}


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        fail("values must be lists of whole numbers")
    return tuple(integer(v, "every value", -MAX_INTEGER - 1, MAX_INTEGER) for v in value)


def _scale(noise: Any) -> float:
    family, scale = take(noise, "noise", ("family", "scale"))
    if family != "discrete_laplace":
        fail("the noise family must be discrete_laplace")
    number = real(scale, "noise scale")
    if not 2.0**-10 <= number <= 2.0**56:
        fail("the noise scale must be between 2**-10 and 2**56")
    return number


def _sensitivity(value: Any) -> int:
    return integer(value, "sensitivity", 1, MAX_INTEGER)
