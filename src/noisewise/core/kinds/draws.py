"""The Release of a linear regression's posterior draws: coefficients on a grid within a ball.

Nothing else is published. What the draws cost follows from public numbers alone: the ball that
rows are forced into, the ball that coefficients stay in, and the known variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from noisewise.core import document as read
from noisewise.core.design import Ball, Design, Geometry, geometry_to_dict, row_bits
from noisewise.core.document import BaseRelease, Received, check_n, fail, pure_event
from noisewise.core.privacy import fraction_text
from noisewise.core.schema import Schema

COEFFICIENT_BITS = 32
MAX_DRAWS = 10_000

_ROOT_BITS = 64


@dataclass(frozen=True)
class RegressionLaw:
    """The posterior that is drawn from, on unit scale. All of it is public.

    Coefficients θ (the intercept first) of y on (1, x) have density
    ∝ exp(-λ‖θ‖²/2 - τ Σ (y - θ·(1, x))²/2σ²) at the points ρg/2³², g integers with ‖g‖ ≤ 2³².
    """

    design: Design
    geometry: Geometry  # what rows are forced into
    radius: Fraction  # ρ, the largest norm of θ
    variance: Fraction  # σ², the known variance of the target given the features
    prior_precision: Fraction  # λ
    temper: Fraction  # τ, from above 0 to 1

    def __post_init__(self) -> None:
        if self.design.terms:
            fail("a Release of draws has columns only, no terms")
        if self.design.unbounded:
            fail("a column without bounds has no place in a regression on unit scale")
        for name in ("radius", "variance"):
            if not Fraction(1, 10**6) <= getattr(self, name) <= 10**6:
                fail(f"{name} must be between 1e-6 and 1e6 on unit scale")
        if not 0 <= self.prior_precision <= 10**12:
            fail("prior_precision must be between 0 and 1e12 on unit scale")
        if not 0 < self.temper <= 1:
            fail("temper must be above 0 and at most 1")

    @cached_property
    def longest_row(self) -> Fraction:
        """Square of the largest norm of (1, x)."""
        numbers = self.design.single_columns - 1  # the target is one of them
        box = Fraction(1 + numbers + len(self.design.group_sizes))
        if not isinstance(self.geometry, Ball):
            return box
        bits = row_bits(2)
        return min(box, 1 + Fraction(self.geometry.grid_radius(bits), 1 << bits) ** 2)

    @cached_property
    def reach(self) -> Fraction:
        """T, the largest |θ·(1, x)|, rounded up: Cauchy and Schwarz."""
        squared = self.radius**2 * self.longest_row
        scaled = squared * (1 << (2 * _ROOT_BITS))
        return Fraction(isqrt(scaled.numerator // scaled.denominator) + 1, 1 << _ROOT_BITS)

    @property
    def cost_of_one(self) -> Fraction:
        """ε of adding or removing one record, for one draw; see `RegressionSample` for the proof.

        (y - t)² with |y| ≤ 1 and |t| ≤ T ranges over at most (1 + T)² where t can reach y, and
        over (|y| + T)² - (|y| - T)² ≤ 4T where it cannot (T ≤ 1 and |y| ≥ T, largest at |y| = 1).
        """
        spread = 4 * self.reach if self.reach <= 1 else (1 + self.reach) ** 2
        return self.temper * spread / (2 * self.variance)

    def cost(self, draws: int) -> Fraction:
        """ε of so many independent draws, for whatever a unit may change."""
        return draws * self.design.schema.records_changed * self.cost_of_one

    def to_json(self) -> dict[str, Any]:
        return {
            "geometry": geometry_to_dict(self.geometry),
            "fraction_bits": COEFFICIENT_BITS,
            "radius": fraction_text(self.radius),
            "variance": fraction_text(self.variance),
            "prior_precision": fraction_text(self.prior_precision),
            "temper": fraction_text(self.temper),
        }


@dataclass(frozen=True)
class RegressionSampleRelease(BaseRelease):
    """Posterior draws of a regression's coefficients."""

    law: RegressionLaw
    # For every draw the integers g of its coefficients, the intercept first
    draws: tuple[tuple[int, ...], ...]

    FORMAT = "noisewise-regression-sample-release"
    FORMAT_VERSION = 1
    KEYS = ("features", "target", "n", "law", "draws")

    def __post_init__(self) -> None:
        _check(self)

    @property
    def design(self) -> Design:
        return self.law.design

    @property
    def schema(self) -> Schema:
        return self.design.schema

    def coefficients(self) -> npt.NDArray[np.float64]:
        """The draws on unit scale, of shape (draws, 1 + design columns of the features)."""
        unit = float(self.law.radius) / (1 << COEFFICIENT_BITS)
        return np.array(self.draws, dtype=np.float64) * unit

    def _content(self) -> dict[str, Any]:
        return {
            "features": list(self.design.features),
            "target": self.design.target,
            "n": self.n,
            "law": self.law.to_json(),
            "draws": [list(draw) for draw in self.draws],
        }

    @classmethod
    def _read(cls, document: Received) -> Self:
        draws = document["draws"]
        if not isinstance(draws, list) or not all(isinstance(draw, list) for draw in draws):
            fail("draws must be lists of whole numbers")
        one = 1 << COEFFICIENT_BITS
        return cls(
            law=_law(document["law"], document.design),
            draws=tuple(
                tuple(read.integer(g, "a coefficient", -one, one) for g in d) for d in draws
            ),
            **document.common,
        )


def _check(release: RegressionSampleRelease) -> None:
    check_n(release)
    if not 1 <= len(release.draws) <= MAX_DRAWS:
        fail(f"there must be 1 to {MAX_DRAWS} draws")
    for draw in release.draws:
        if len(draw) != len(release.design.columns):
            fail(f"a draw has {len(draw)} coefficients, expected {len(release.design.columns)}")
        if sum(g * g for g in draw) > 1 << (2 * COEFFICIENT_BITS):
            fail("a draw is outside the ball")
    event = pure_event(release, "posterior draws make a pure claim")
    if release.law.cost(len(release.draws)) > event.epsilon:
        fail("the draws follow the data more closely than the privacy event allows")


def _law(document: Any, design: Design) -> RegressionLaw:
    names = ("radius", "variance", "prior_precision", "temper")
    geometry, bits, *numbers = read.take(document, "law", ("geometry", "fraction_bits", *names))
    read.integer(bits, "fraction_bits", COEFFICIENT_BITS, COEFFICIENT_BITS)
    values = (read.fraction(value, name) for name, value in zip(names, numbers, strict=True))
    return RegressionLaw(design, read.geometry_from_json(geometry), *values)
