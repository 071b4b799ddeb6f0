"""The rounds of a Release: noisy moments in coordinates that earlier rounds have found.

They belong to a regression's Release, whose second moments are the first measurement, in the public
bounds (`core.kinds.regression`). `core.rounds` says what they are for and why they are private;
here they are written, read as untrusted input, and turned into what a likelihood takes:

    U = M A M' + noise,   A = Σ ww' of w = (1, design columns),

with M and the noise's precision from `Round.observed`. Rows that were far out have been shrunk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from noisewise.core.calibration import discreteness_slack
from noisewise.core.composition import satisfies
from noisewise.core.design import Design, Monomial
from noisewise.core.document import (
    MAX_INTEGER,
    MAX_SCALE,
    fail,
    integer,
    integers,
    items,
    take,
)
from noisewise.core.privacy import Claim, GaussianEvent, float_up
from noisewise.core.rounds.estimate import Observed
from noisewise.core.rounds.plan import MOST_ROUNDS, Explored
from noisewise.core.rounds.residuals import DIRECTION_BITS, LARGEST_DIRECTION
from noisewise.core.rounds.tail import EDGES, FORMER_EDGES, Edges, TailFit, grid_edges
from noisewise.core.rounds.transform import Floats, Shape, Transform
from noisewise.core.statistics import SecondMoments
from noisewise.core.statistics.ball_moments import (
    COUNT_ONE,
    LARGEST_SQUARE,
    PRODUCT_ONE,
    count_sensitivity,
    gram_sensitivity,
    longest_square,
)

# Off the diagonal, noise of this scale is still fine enough to be accounted for as continuous.
SMALLEST_SCALE = 1 << 21
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
# Of the target in residuals divided by their sd, which is at most a few half-widths.
_LEAST_SLOPE = 1e-3


def is_number(design: Design) -> list[bool]:
    """For every design column, whether it is a number or an indicator."""
    return [not column.is_indicator for column in design.columns]


def gram_entries(design: Design, shape: Shape) -> tuple[Monomial, ...]:
    """The entries of a round's Gram matrix that get noise, in the order of its values.

    Indices are into u: all design columns, or the numbers alone in a shape without a weight.
    """
    if shape.weight:
        return SecondMoments(design).entries
    pairs = combinations_with_replacement(range(design.number_of_numbers + 1), 2)
    replaces = design.schema.neighbours == "replace_one"
    return tuple(pair for pair in pairs if not (replaces and pair == (0, 0)))


@dataclass(frozen=True)
class Round:
    """Noisy Gram matrices of one shape, as integers in units of 2**-20."""

    shape: Shape
    # One matrix, of all rows; or two while exploring, of rows inside the ball and of rows that were
    # shrunk onto it. In the order of `gram_entries`.
    values: tuple[tuple[int, ...], ...]
    # Scales of discrete Gaussian noise on the diagonal and off it (1/√2 of the first)
    scale: int
    off_diagonal_scale: int
    sensitivity: int  # of all matrices together, off-diagonal entries counted √2-fold

    def to_json(self) -> dict[str, Any]:
        """Plain structure for the Release file."""
        return {
            **shape_to_json(self.shape),
            "noise": _noise_json(self.scale, self.off_diagonal_scale),
            "sensitivity": self.sensitivity,
            "values": [list(matrix) for matrix in self.values],
        }

    @classmethod
    def from_json(cls, document: Any) -> Round:
        """Read what `to_json` wrote, as far as it can be checked without the design."""
        *shape, noise, sensitivity, values = take(
            document, "a round", (*_SHAPE, "noise", "sensitivity", "values")
        )
        scale, off_diagonal = _noise(noise)
        return cls(
            _shape(*shape),
            tuple(integers(matrix, "values") for matrix in items(values, "values")),
            scale,
            off_diagonal,
            integer(sensitivity, "sensitivity", 1, MAX_INTEGER),
        )

    def check(self, design: Design, matrices: int) -> None:
        """Refuse a round that doesn't fit the design, or states too small a sensitivity."""
        problem = self.shape.transform.problem(design.number_of_numbers)
        if problem is not None:
            fail(problem)
        entries = len(gram_entries(design, self.shape))
        if [len(matrix) for matrix in self.values] != [entries] * matrices:
            fail(f"a round must have {matrices} times {entries} values")
        groups = len(design.category_sizes) if self.shape.weight else 0
        longest = longest_square(self.shape.constant, self.shape.weight, groups, self.shape.radius)
        if longest > LARGEST_SQUARE * PRODUCT_ONE:
            fail("the ball of a round is so large that its sums could overflow")
        if self.sensitivity < gram_sensitivity(design.schema, longest):
            fail("the sensitivity of a round is smaller than one unit's influence on it")
        _check_scales(self.scale, self.off_diagonal_scale)

    @property
    def noise(self) -> tuple[int, int, int, int]:
        """Sensitivity, scale, smallest scale and number of entries, for `spent`."""
        entries = sum(map(len, self.values))
        return self.sensitivity, self.scale, self.off_diagonal_scale, entries

    def matrices(self, design: Design) -> list[Floats]:
        """The noisy Gram matrices in units of 1, (p, p), 0 where nothing was published."""
        places = np.array(gram_entries(design, self.shape)).T
        size = 1 + (len(design.columns) if self.shape.weight else design.number_of_numbers)
        found = []
        for values in self.values:
            matrix = np.zeros((size, size))
            matrix[places[0], places[1]] = np.array(values, dtype=np.float64) / PRODUCT_ONE
            matrix[places[1], places[0]] = matrix[places[0], places[1]]
            found.append(matrix)
        return found

    def observed(self, design: Design) -> Observed:
        """What the round says about the moments of w = (1, design columns)."""
        total = sum(self.matrices(design)[1:], self.matrices(design)[0])
        a, b = np.array(gram_entries(design, self.shape)).T
        scale = np.where(a == b, self.scale, self.off_diagonal_scale) / PRODUCT_ONE
        precision = np.zeros_like(total)
        precision[a, b] = 1 / (len(self.values) * scale**2)
        precision[b, a] = precision[a, b]
        return Observed(self.shape.map(is_number(design)), total, precision)

    def explored(self, design: Design) -> Explored:
        """An exploring round as the plan of rounds takes it."""
        inside, outside = self.matrices(design)
        return Explored(self.shape, inside, outside, self.scale / PRODUCT_ONE)


@dataclass(frozen=True)
class Tail:
    """Noisy counts of far rows in the last round's coordinates, in units of 2**-32.

    The bins start at `edges`, in units of q, and the last one is open.
    """

    transform: Transform
    values: tuple[int, ...]
    scale: int
    sensitivity: int
    edges: Edges = EDGES

    def to_json(self) -> dict[str, Any]:
        """Plain structure for the Release file; the edges are for other readers."""
        return {
            "transform": self.transform.to_json(),
            "edges": list(grid_edges(len(self.transform), self.edges)),
            "noise": {"family": "discrete_gaussian", "scale": self.scale},
            "sensitivity": self.sensitivity,
            "values": list(self.values),
        }

    @classmethod
    def from_json(cls, document: Any) -> Tail:
        """Read what `to_json` wrote, as far as it can be checked without the design."""
        transform, edges, noise, sensitivity, values = take(
            document, "the tail", ("transform", "edges", "noise", "sensitivity", "values")
        )
        family, scale = take(noise, "noise", ("family", "scale"))
        if family != "discrete_gaussian":
            fail("the tail must have discrete Gaussian noise")
        read = transform_from_json(transform)
        for known in (EDGES, FORMER_EDGES):
            if edges == list(grid_edges(len(read), known)):
                break
        else:
            fail("the tail has other edges than this software knows")
        return cls(
            read,
            integers(values, "values"),
            integer(scale, "noise scale", SMALLEST_SCALE, MAX_SCALE),
            integer(sensitivity, "sensitivity", 1, MAX_INTEGER),
            known,
        )

    def check(self, design: Design) -> None:
        """Refuse a tail that doesn't fit the design, or states too small a sensitivity."""
        problem = self.transform.problem(design.number_of_numbers)
        if problem is not None:
            fail(problem)
        if len(self.values) != len(self.edges):
            fail(f"the tail must have {len(self.edges)} values")
        if self.sensitivity < count_sensitivity(design.schema):
            fail("the sensitivity of the tail is smaller than one unit's influence on it")

    @property
    def noise(self) -> tuple[int, int, int, int]:
        """Sensitivity, scale, smallest scale and number of entries, for `spent`."""
        return self.sensitivity, self.scale, self.scale, len(self.values)

    @property
    def counted(self) -> tuple[list[float], float]:
        """The noisy counts and the sd of their noise, in rows."""
        return [value / COUNT_ONE for value in self.values], self.scale / COUNT_ONE


@dataclass(frozen=True)
class Residuals:
    """A noisy Gram matrix of residuals times rows, as integers in units of 2**-20.

    Parameters
    ----------
    direction : tuple of int
        One for every entry of the last round's u, in units of 2**-16: e = a·u.
    radius : int
        Of the ball for e u, in units of 2**-10.
    values : tuple of int
        The upper triangle, row by row.
    scale, off_diagonal_scale, sensitivity : int
        As in `Round`.
    """

    direction: tuple[int, ...]
    radius: int
    values: tuple[int, ...]
    scale: int
    off_diagonal_scale: int
    sensitivity: int

    def to_json(self) -> dict[str, Any]:
        """Plain structure for the Release file."""
        return {
            "direction": list(self.direction),
            "radius": self.radius,
            "noise": _noise_json(self.scale, self.off_diagonal_scale),
            "sensitivity": self.sensitivity,
            "values": list(self.values),
        }

    @classmethod
    def from_json(cls, document: Any) -> Residuals:
        """Read what `to_json` wrote, as far as it can be checked without the design."""
        direction, radius, noise, sensitivity, values = take(
            document, "residuals", ("direction", "radius", "noise", "sensitivity", "values")
        )
        return cls(
            integers(direction, "direction", LARGEST_DIRECTION),
            integer(radius, "radius", 1, 1 << 16),
            integers(values, "values"),
            *_noise(noise),
            integer(sensitivity, "sensitivity", 1, MAX_INTEGER),
        )

    def check(self, design: Design, last: Shape) -> None:
        """Refuse what doesn't fit the design, or states too small a sensitivity."""
        size = len(design.names)
        if len(self.direction) != size:
            fail("the direction of residuals must have one entry for every column")
        to_columns = last.map(is_number(design)).T
        if not abs((to_columns @ self.unit_direction)[-1]) > _LEAST_SLOPE:
            fail("the direction of residuals must be one in which the target counts")
        if len(self.values) != len(triangle(size)):
            fail(f"residuals must have {len(triangle(size))} values")
        if self.sensitivity < gram_sensitivity(design.schema, self.radius**2):
            fail("the sensitivity of residuals is smaller than one unit's influence on them")
        _check_scales(self.scale, self.off_diagonal_scale)

    @property
    def noise(self) -> tuple[int, int, int, int]:
        """Sensitivity, scale, smallest scale and number of entries, for `spent`."""
        return self.sensitivity, self.scale, self.off_diagonal_scale, len(self.values)

    @property
    def unit_direction(self) -> Floats:
        """a in units of 1."""
        return np.array(self.direction, dtype=np.float64) / (1 << DIRECTION_BITS)

    def matrix(self) -> Floats:
        """The noisy Gram matrix in units of 1."""
        size = len(self.direction)
        a, b = np.array(triangle(size)).T
        found = np.zeros((size, size))
        found[a, b] = found[b, a] = np.array(self.values, dtype=np.float64) / PRODUCT_ONE
        return found


def triangle(size: int) -> tuple[Monomial, ...]:
    """The entries of an upper triangle, row by row."""
    return tuple(combinations_with_replacement(range(size), 2))


@dataclass(frozen=True)
class Rounds:
    """All rounds after the first measurement."""

    explored: tuple[Round, ...]  # of the numbers alone, inside and outside the ball
    tail: Tail | None  # None where the last round clips nothing
    last: Round  # of all design columns, with most of the budget
    residuals: Residuals | None = None  # None where there are too few rows to see their spread
    reach_of: str | None = None  # the digest of the Release whose map and radius these are

    def to_json(self) -> dict[str, Any]:
        """Plain structure for the Release file."""
        return {
            "explored": [one.to_json() for one in self.explored],
            "tail": None if self.tail is None else self.tail.to_json(),
            "last": self.last.to_json(),
            **({} if self.residuals is None else {"residuals": self.residuals.to_json()}),
            **({} if self.reach_of is None else {"reach_of": self.reach_of}),
        }

    @classmethod
    def from_json(cls, document: Any) -> Rounds:
        """Read what `to_json` wrote, as far as it can be checked without the design."""
        given = document if isinstance(document, dict) else {}
        further = [key for key in ("residuals", "reach_of") if key in given]
        explored, tail, last, *others = take(
            document, "rounds", ("explored", "tail", "last", *further)
        )
        known = dict(zip(further, others, strict=True))
        reach_of = known.get("reach_of")
        if "reach_of" in known and not (isinstance(reach_of, str) and _DIGEST.fullmatch(reach_of)):
            fail("reach_of must be the digest of a Release")
        return cls(
            tuple(Round.from_json(one) for one in items(explored, "explored")),
            None if tail is None else Tail.from_json(tail),
            Round.from_json(last),
            Residuals.from_json(known["residuals"]) if "residuals" in known else None,
            reach_of,
        )

    def check(self, design: Design) -> None:
        """Refuse rounds that don't fit the design, or each other."""
        if len(self.explored) + 2 > MOST_ROUNDS:
            fail(f"there must be at most {MOST_ROUNDS} rounds")
        for one in self.explored:
            one.check(design, 2)
            if one.shape.weight:
                fail("exploring rounds have no categories")
        self.last.check(design, 1)
        if bool(self.last.shape.weight) != bool(design.category_sizes):
            fail("the last round must have the categories")
        if self.tail is not None:
            self.tail.check(design)
            if self.tail.transform != self.last.shape.transform:
                fail("the tail must be in the last round's coordinates")
        elif self.explored:
            fail("rounds that explore must have a tail")
        if self.reach_of is not None and (self.explored or self.tail is None):
            fail("rounds with the reach of another Release do not explore, and have a tail")
        if self.residuals is not None:
            self.residuals.check(design, self.last.shape)

    @property
    def noises(self) -> list[tuple[int, int, int, int]]:
        """Of everything drawn, for `spent`."""
        drawn = (*self.explored, self.tail, self.last, self.residuals)
        return [one.noise for one in drawn if one is not None]

    def fit(self, design: Design, n: float) -> tuple[TailFit, int] | None:
        """The fitted tail and the index of the last radius in it; None if no row can be beyond."""
        if self.tail is None:
            return None
        edges = np.array(grid_edges(design.number_of_numbers, self.tail.edges), dtype=np.float64)
        index = int(np.argmin(np.abs(np.sqrt(edges) - self.last.shape.radius)))
        fitted = TailFit.of(
            *self.tail.counted,
            n,
            design.schema.max_rows_per_unit,
            design.number_of_numbers,
            self.tail.edges,
            self.tail.transform.farthest(),
        )
        return fitted, index

    def rows_beyond(self, design: Design, n: float) -> tuple[float, float]:
        """A 95% interval of how many rows the last round has moved onto its ball.

        From the noisy counts of the bins beyond it that the bounds allow, whose noise is normal.
        Where their sum may be that of no row, a normal law cut off at 0 gives the upper end.
        """
        fitted = self.fit(design, n)
        if fitted is None or self.tail is None:
            return 0.0, 0.0
        counts, sd = self.tail.counted
        edges = np.array(self.tail.edges) * design.number_of_numbers
        inside = edges < self.tail.transform.farthest()
        inside[: fitted[1]] = False
        total, noise = float(np.array(counts)[inside].sum()), sd * float(np.sqrt(inside.sum()))
        if not noise:
            return 0.0, 0.0
        reach = -float(ndtri(0.025)) * noise
        if total > reach:
            return total - reach, min(total + reach, n)
        return 0.0, min(total - noise * float(ndtri(0.05 * ndtr(total / noise))), n)


def spent(noises: Sequence[tuple[int, int, int, int]]) -> tuple[Fraction, float]:
    """Σ (sensitivity / scale)², exactly, and the slacks of discreteness together, rounded up.

    Parameters
    ----------
    noises : sequence of (sensitivity, scale, smallest scale, number of entries)
    """
    squares = sum((Fraction(d, s) ** 2 for d, s, _, _ in noises), Fraction(0))
    slack = sum(Fraction(discreteness_slack(m, least)) for _, _, least, m in noises)
    return squares, float_up(Fraction(slack))


def check_spent(
    noises: Sequence[tuple[int, int, int, int]], event: GaussianEvent, claim: Claim
) -> None:
    """All noise together must be no less than the event's, and the claim follow from that."""
    squares, slack = spent(noises)
    if squares * Fraction(event.noise_multiplier) ** 2 > 1 or slack > event.slack:
        fail("the noise of all rounds together is too small for the privacy event")
    if not satisfies([event], claim):
        fail("the privacy claim does not follow from the event")


# ---------------------------------------------------------------------------------------------
# Reading


_SHAPE = ("transform", "constant", "weight", "radius")


def shape_to_json(shape: Shape) -> dict[str, Any]:
    """Plain structure for the Release file."""
    return {
        "transform": shape.transform.to_json(),
        "constant": shape.constant,
        "weight": shape.weight,
        "radius": shape.radius,
    }


def shape_from_json(document: Any) -> Shape:
    """Read what `shape_to_json` wrote, as far as it can be checked without the design."""
    return _shape(*take(document, "shape", _SHAPE))


def _shape(transform: Any, constant: Any, weight: Any, radius: Any) -> Shape:
    most = 1 << 16  # √LARGEST_SQUARE in units of 2**-10; the longest row is checked later
    return Shape(
        transform_from_json(transform),
        integer(constant, "constant", 1, most),
        integer(weight, "weight", 0, most),
        integer(radius, "radius", 1, most),
    )


def transform_from_json(document: Any) -> Transform:
    """Read what `Transform.to_json` wrote, as far as it can be checked without the design."""
    matrix, offset, shift = take(document, "a transform", ("matrix", "offset", "shift"))
    return Transform(
        tuple(integers(row, "matrix") for row in items(matrix, "matrix")),
        integers(offset, "offset"),
        integers(shift, "shift"),
    )


def _noise_json(scale: int, off_diagonal: int) -> dict[str, Any]:
    return {"family": "discrete_gaussian", "scale": scale, "off_diagonal_scale": off_diagonal}


def _check_scales(scale: int, off_diagonal: int) -> None:
    if not 1 <= Fraction(2 * off_diagonal**2, scale**2) <= 1 + Fraction(1, 10**5):
        fail("off_diagonal_scale of a round is not scale / sqrt(2)")


def _noise(document: Any) -> tuple[int, int]:
    family, scale, off_diagonal = take(document, "noise", ("family", "scale", "off_diagonal_scale"))
    if family != "discrete_gaussian":
        fail("a round must have discrete Gaussian noise")
    least = SMALLEST_SCALE
    return (
        integer(scale, "noise scale", least, MAX_SCALE),
        integer(off_diagonal, "off_diagonal_scale", least // 2, MAX_SCALE),
    )
