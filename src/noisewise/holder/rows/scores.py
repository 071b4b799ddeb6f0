"""Exact sums of a Newton round: scores and information of rows, at a public theta.

The value map goes on where `rows.rounds` has z, as integers in double precision, in this order:

row
    u = (c, w·e, z), with every indicator e of 0 or 1, z as it is.
predictor
    η = Σ_j theta_j u_j · 2**-26, added up from the first entry to the last; clipped to [-16, 16];
    its knot is floor(η · 2**10 + 0.5).
length
    l = Σ_j u_j², added up from the first entry to the last.
ball
    If l > N then f = (√N / √l) (1 - 2**-40), v_j = trunc(u_j f) and ρ = trunc((y - m) f); else
    v = u and ρ = y - m, with y and m(η) integers in units of 2**-16.
information
    h_j = trunc(v_j g · 2**-16) with g the root of the slope at η.

Summed are ρ v_j and the Gram matrix of h. Of a category with many levels u, v and h have one entry
in place of all indicators, as in `rows.levels`: all the others are 0, which added changes nothing,
and sums are by level.

**The same integers everywhere.** Every step is one IEEE operation on a whole vector, in a fixed
order, and no sum is left to BLAS but those of products of integers, which are exact: |v_j| ≤ √N ≤
2**16 and |ρ| ≤ 2**16 give products of at most 2**32, and with blocks of 2**13 rows sums of at most
2**45. With 2**30 rows the totals are at most 2**62.

**The ball is never left.** f is the √ω of `core.statistics.scores`, whose (1) asks for |v|² ≤ N,
|ρ| ≤ |y - m| and |h|² ≤ m'|v|². The first is proved as in `rows.rounds`, with all of u in place of
z and √N in place of R: √N is rounded once more, and 2**-40 pays for that as well. Cutting off only
shrinks, f is below 1 where rows are far, and g² is at most the slope: so the others hold. ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Design
from noisewise.core.kinds.glm import longest_of
from noisewise.core.rounds.newton import THETA_BITS
from noisewise.core.rounds.transform import GRID_BITS, Shape
from noisewise.core.statistics.ball_moments import LARGEST_SQUARE, PRODUCT_ONE, ROW_BITS
from noisewise.core.statistics.scores import (
    KNOT_BITS,
    LARGEST_PREDICTOR,
    OUTCOME_BITS,
    OUTCOME_ONE,
    outcome_of,
)
from noisewise.holder.rows import Accumulator, Codes, Floats, Integers, ReadsDesign
from noisewise.holder.rows.levels import Narrow
from noisewise.holder.rows.rounds import MARGIN, Coordinates, check_transform, gram_of
from noisewise.holder.rows.values import MEAN_BITS, RowGrid


@dataclass(frozen=True)
class ScoreSums:
    """Exact sums, as private as the rows: never log or show them."""

    n: int = field(repr=False)  # the number of rows
    score: npt.NDArray[np.int64] = field(repr=False)  # in units of 2**-26
    information: npt.NDArray[np.int64] = field(repr=False)  # an upper triangle, in units of 2**-20
    check: int | None = field(default=None, repr=False)  # `rows.same_rows`, if it was asked for


@dataclass(frozen=True)
class ScorePlan(ReadsDesign):
    """Sum score and information at a theta."""

    design: Design
    shape: Shape  # with a weight if there are categories; its radius is that of the ball for z
    theta: tuple[int, ...]  # in units of 2**-16, one for every entry of u
    hash_keys: tuple[int, ...] = field(default=(), repr=False)  # of a check (`rows.same_rows`)

    def __post_init__(self) -> None:
        if longest_of(self.design, self.shape) > LARGEST_SQUARE * PRODUCT_ONE:
            raise ValueError("shape: so large a ball could overflow 64-bit sums")
        check_transform(self.design.covariates, self.shape.transform)
        if len(self.theta) != len(self.design.columns):
            raise ValueError("theta: expected one entry for the constant and each covariate")
        if self.design.schema.unit_column is not None:
            raise ValueError("design: scores of averaged rows have no meaning")

    def accumulator(self) -> Accumulator[ScoreSums]:
        return ScoreAccumulator(self)


class ScoreAccumulator(Coordinates):
    """Adds up scores and information."""

    def __init__(self, plan: ScorePlan) -> None:
        super().__init__(plan.design, plan.shape.transform, plan.hash_keys)
        self._shape = plan.shape
        self._longest = float(longest_of(plan.design, plan.shape))
        outcome = outcome_of(plan.design)
        self._mean = outcome.mean.astype(np.float64)
        self._root = outcome.root * 2.0**-OUTCOME_BITS
        self._is_event = plan.design.columns[-1].is_indicator
        grid = RowGrid.with_bits(plan.design, GRID_BITS)
        self._entries = Narrow(plan.design, grid.columns[:-1])
        # By the row of a narrow block: for a category, one of each by the codes of its levels.
        # Where a value is the reference the row is 0, so that it may have any.
        self._where = self._entries.by_row(np.arange(len(plan.theta)))
        self._thetas = self._entries.by_row(np.array(plan.theta) * 2.0 ** -(THETA_BITS + ROW_BITS))
        self.score = np.zeros(len(plan.theta), dtype=np.int64)
        self.information = np.zeros(self._entries.size, dtype=np.int64)

    def result(self) -> ScoreSums:
        information = self._entries.triangle(self.information)
        return ScoreSums(self.n, self.score.copy(), information, self.check)

    @property
    def _sums(self) -> tuple[Integers, ...]:
        return self.score, self.information

    def _add_block(
        self, z: Floats, lengths: Floats, centred: Floats, block: list[Floats | Codes]
    ) -> None:
        u = np.empty((self._entries.width, z.shape[1]))
        u[0] = self._shape.constant
        place = dict(zip(self._numbers, z, strict=True))
        for i, row in enumerate(u[1:]):
            if i in place:
                row[:] = place[i]
            else:
                np.multiply(centred[i], self._shape.weight, out=row)
        codes = self._entries.codes(block)
        eta, square = np.zeros(z.shape[1]), np.zeros(z.shape[1])
        for i, (row, theta) in enumerate(zip(u, self._thetas, strict=True)):
            eta += row * (theta[codes[i]] if i in codes else theta)
            square += row * row
        np.maximum(eta, -LARGEST_PREDICTOR, out=eta)
        np.minimum(eta, LARGEST_PREDICTOR, out=eta)
        eta *= 2.0**KNOT_BITS
        eta += 0.5
        knot = np.floor(eta).astype(np.intp) + (LARGEST_PREDICTOR << KNOT_BITS)
        residual = self._outcome(centred[-1]) - self._mean[knot]
        far = np.flatnonzero(square > self._longest)
        if len(far):
            factor = (math.sqrt(self._longest) / np.sqrt(square[far])) * MARGIN
            u[:, far] = np.trunc(u[:, far] * factor)
            residual[far] = np.trunc(residual[far] * factor)
        for i, (row, where) in enumerate(zip(u, self._where, strict=True)):
            if i in codes:
                np.add.at(self.score, where[codes[i]], (row * residual).astype(np.int64))
            else:
                self.score[where] += int(row @ residual)
        h = np.trunc(u * self._root[knot])
        self.information[: self._entries.width**2] += gram_of(h).ravel()
        self._entries.add_levels(self.information, h, block)

    def _outcome(self, target: Floats) -> Floats:
        """The target in units of 2**-16 of its bound."""
        if self._is_event:
            return target * OUTCOME_ONE
        column = self._grid.columns[-1]
        unit = 2.0 ** (OUTCOME_BITS - 1)
        y = np.floor(target * (column.scale * unit * 2.0**-MEAN_BITS) + 0.5)
        return np.asarray(np.minimum(np.maximum(y, -unit), unit) + unit)
