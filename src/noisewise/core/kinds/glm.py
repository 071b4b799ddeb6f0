"""The Release of a logistic or Poisson regression: scores and information in rounds.

Looks at the covariates come first and find coordinates (`core.rounds`). Newton rounds in these
coordinates follow, each with score and information at a theta that earlier ones have found
(`core.rounds.newton`, `core.statistics.scores`). One Gaussian event covers all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, Self

import numpy as np

from noisewise.core import document as read
from noisewise.core.design import Design, Family
from noisewise.core.document import Received, RegressionRelease, check_n, fail
from noisewise.core.kinds.rounds import (
    SMALLEST_SCALE,
    Round,
    check_spent,
    shape_from_json,
    shape_to_json,
)
from noisewise.core.privacy import GaussianEvent
from noisewise.core.rounds.newton import LARGEST_THETA, SHARES, THETA_BITS, RowLaw, Scored
from noisewise.core.rounds.plan import MOST_ROUNDS
from noisewise.core.rounds.transform import Shape
from noisewise.core.statistics.ball_moments import (
    LARGEST_SQUARE,
    PRODUCT_ONE,
    ROW_BITS,
    longest_square,
)
from noisewise.core.statistics.scores import (
    SCORE_ONE,
    information_scale,
    outcome_of,
    score_sensitivity,
)

FAMILIES = ("logistic", "poisson")


def longest_of(design: Design, shape: Shape) -> int:
    """N of a Newton round, in units of 2**-20."""
    groups = len(design.covariates.category_sizes)
    return longest_square(shape.constant, shape.weight, groups, shape.radius)


def information_entries(size: int) -> list[tuple[int, int]]:
    """Of a (size, size) information matrix, in the order of its values."""
    return list(combinations_with_replacement(range(size), 2))


@dataclass(frozen=True)
class Newton:
    """Noisy score and information at one theta, as integers."""

    theta: tuple[int, ...]  # in units of 2**-16, one entry for each of u
    score: tuple[int, ...]  # in units of 2**-26
    information: tuple[int, ...]  # the upper triangle, row by row, in units of 2**-20
    scale: int  # of the discrete Gaussian noise on the score
    # On the information: on its diagonal, and off it (1/√2 of the first)
    information_scale: int
    off_diagonal_scale: int
    sensitivity: int  # of both together, in units of the score; see `core.statistics.scores`

    def to_json(self) -> dict[str, Any]:
        return {
            "theta": list(self.theta),
            "noise": {
                "family": "discrete_gaussian",
                "scale": self.scale,
                "information_scale": self.information_scale,
                "off_diagonal_scale": self.off_diagonal_scale,
            },
            "sensitivity": self.sensitivity,
            "score": list(self.score),
            "information": list(self.information),
        }

    @classmethod
    def from_json(cls, document: Any) -> Newton:
        """Read what `to_json` wrote, as far as it can be checked without the design."""
        theta, noise, sensitivity, score, information = read.take(
            document, "a Newton round", ("theta", "noise", "sensitivity", "score", "information")
        )
        family, scale, on_diagonal, off_diagonal = read.take(
            noise, "noise", ("family", "scale", "information_scale", "off_diagonal_scale")
        )
        if family != "discrete_gaussian":
            fail("a Newton round must have discrete Gaussian noise")
        return cls(
            read.integers(theta, "theta", LARGEST_THETA),
            read.integers(score, "score", read.MAX_INTEGER),
            read.integers(information, "information", read.MAX_INTEGER),
            read.integer(scale, "noise scale", SMALLEST_SCALE, read.MAX_SCALE),
            read.integer(on_diagonal, "information_scale", SMALLEST_SCALE, read.MAX_SCALE),
            read.integer(off_diagonal, "off_diagonal_scale", SMALLEST_SCALE // 2, read.MAX_SCALE),
            read.integer(sensitivity, "sensitivity", 1, read.MAX_INTEGER),
        )

    def check(self, design: Design, shape: Shape) -> None:
        """Refuse a round that doesn't fit the design, or states too small a sensitivity."""
        size, law = len(design.columns), outcome_of(design)
        if len(self.theta) != size or len(self.score) != size:
            fail(f"theta and score must have {size} entries")
        if len(self.information) != size * (size + 1) // 2:
            fail(f"information must have {size * (size + 1) // 2} entries")
        longest = longest_of(design, shape)
        if self.sensitivity < score_sensitivity(design.schema, law, longest):
            fail("the sensitivity of a Newton round is smaller than one unit's influence on it")
        if self.information_scale < information_scale(design.schema, law, longest, self.scale):
            fail("the noise on the information is too small beside that on the score")
        if 2 * self.off_diagonal_scale**2 < self.information_scale**2:
            fail("off_diagonal_scale is smaller than information_scale / sqrt(2)")

    @property
    def noise(self) -> tuple[int, int, int, int]:
        """Sensitivity, scale, smallest scale and number of entries, for `spent`."""
        smallest = min(self.scale, self.off_diagonal_scale)
        return self.sensitivity, self.scale, smallest, len(self.score) + len(self.information)

    def scored(self, bound: int) -> Scored:
        """The round in units of 1: of a count, and not of its `bound`."""
        size = len(self.theta)
        matrix = np.zeros((size, size))
        a, b = np.array(information_entries(size)).T
        score, information = bound / SCORE_ONE, bound / PRODUCT_ONE
        matrix[a, b] = matrix[b, a] = np.array(self.information, dtype=np.float64) * information
        return Scored(
            np.array(self.theta, dtype=np.float64) / (1 << THETA_BITS),
            np.array(self.score, dtype=np.float64) * score,
            matrix,
            self.scale * score,
            self.information_scale * information,
        )


@dataclass(frozen=True)
class GlmRelease(RegressionRelease):
    """Noisy scores and information with everything needed to interpret them."""

    design: Design  # of family logistic or poisson
    # At the covariates' numbers alone: the first in their bounds, of one matrix, then exploring
    # rounds, of two. None if there are no numbers.
    looks: tuple[Round, ...]
    shape: Shape  # of all Newton rounds
    newton: tuple[Newton, ...]  # the last one has most of the budget

    FORMAT = "noisewise-glm-release"
    FORMAT_VERSION = 1
    KEYS = ("features", "target", "family", "design_columns", "n", "looks", "shape", "newton")

    def __post_init__(self) -> None:
        _check(self)

    @property
    def family(self) -> Family:
        """The law of the target."""
        return self.design.family

    @property
    def last(self) -> Scored:
        """The last Newton round, in units of 1."""
        return self.newton[-1].scored(outcome_of(self.design).bound)

    @property
    def row_law(self) -> RowLaw:
        """What rows are like in the coordinates of the Newton rounds, if they are normal."""
        law = outcome_of(self.design)
        return RowLaw.of(
            law, self.newton[0].scored(law.bound), self.shape.constant / (1 << ROW_BITS)
        )

    @property
    def weighted_rows(self) -> tuple[float, float]:
        """Σ ω, how many rows count (far ones less than 1), and the sd of its noise.

        The first Newton round has a theta without slopes, so every row has the same slope there:
        its information is that public number times Σ ω uu', and the first entry of u is public.
        """
        first, law = self.newton[0], outcome_of(self.design)
        constant = self.shape.constant / (1 << ROW_BITS)
        slope = law.slope_at(first.theta[0] / (1 << THETA_BITS) * constant)
        unit = PRODUCT_ONE * constant**2 * slope
        return first.information[0] / unit, first.information_scale / unit

    def _content(self) -> dict[str, Any]:
        return {
            "features": list(self.design.features),
            "target": self.design.target,
            "family": self.family,
            "design_columns": list(self.design.names),
            "n": self.n,
            "looks": [one.to_json() for one in self.looks],
            "shape": shape_to_json(self.shape),
            "newton": [one.to_json() for one in self.newton],
        }

    @classmethod
    def _read(cls, document: Received) -> Self:
        return cls(
            design=document.design,
            looks=tuple(Round.from_json(one) for one in read.items(document["looks"], "looks")),
            shape=shape_from_json(document["shape"]),
            newton=tuple(Newton.from_json(one) for one in read.items(document["newton"], "newton")),
            **document.common,
        )


def _check(release: GlmRelease) -> None:
    design, event = release.design, release.event
    covariates = design.covariates
    if design.family not in FAMILIES:
        fail("family must be logistic or poisson")
    if design.unbounded:
        fail(f"column {design.unbounded[0]!r} has no bounds, so its sums cannot be private")
    if design.schema.unit_column is not None:
        fail("scores are of rows, and this schema averages them")
    check_n(release)
    if len(release.looks) > MOST_ROUNDS or not 1 <= len(release.newton) <= MOST_NEWTON:
        fail(f"there must be at most {MOST_ROUNDS} looks and 1 to {MOST_NEWTON} Newton rounds")
    if bool(release.looks) != bool(covariates.number_of_numbers):
        fail("there must be looks at the covariates exactly if they have numbers")
    for place, one in enumerate(release.looks):
        one.check(covariates, 1 if place == 0 else 2)
        if one.shape.weight:
            fail("looks at the covariates have no categories")
    shape = release.shape
    problem = shape.transform.problem(covariates.number_of_numbers)
    if problem is not None:
        fail(problem)
    if bool(shape.weight) != bool(covariates.category_sizes):
        fail("Newton rounds must have the categories")
    if longest_of(design, shape) > LARGEST_SQUARE * PRODUCT_ONE:
        fail("the ball of the Newton rounds is too large")
    for step in release.newton:
        step.check(design, shape)
    if any(release.newton[0].theta[1:]):
        fail("the first Newton round must be at a theta without slopes")
    if not isinstance(event, GaussianEvent):
        fail("rounds have one Gaussian event for all together")
    check_spent(noises(release.looks, release.newton), event, release.claim)


MOST_NEWTON = len(SHARES)


def noises(looks: Sequence[Round], newton: Sequence[Newton]) -> list[tuple[int, int, int, int]]:
    """Of everything drawn, for `spent`."""
    return [*(one.noise for one in looks), *(one.noise for one in newton)]
