"""Exact sums of a round: rows in its coordinates, in its ball, and how far out they are.

The value map goes on where `rows.values` ends, on a grid of 24 binary digits, for the numbers t of
a row (all columns that are no indicators, terms among them) and the integers A, b, s of the round's
transform, in double precision and in this order:

coordinates
    z_i = floor((Σ_j A_ij t_j + b_i) · 2**-s_i + 0.5).
length
    l = Σ_i z_i², added up from the first coordinate to the last.
ball
    If l > R² then f = (R / √l) (1 - 2**-40) and z_i = trunc(z_i f).
residuals
    For the integers a of a direction: e = Σ_j a_j u_j · 2**-26, clipped to [-64, 64];
    v_j = trunc(u_j e); then v, all of it, goes into a ball of radius K as z does above.
indicators
    ceil(w s · 2**-24 - 0.5) for the weight w and an indicator s of 0 or 2**24: 0 or w. In averaged
    rows (`rows.units`), where t are means, s is a level's share; halves are rounded down.

**The same integers everywhere.** Every partial sum of A t + b, in whatever order BLAS takes it, is
an integer of at most 2**52 (`core.rounds.transform`), so it is exact. A power of two changes no
digit, and adding 1/2 to a number below 2**52 / 2**s, of which s digits are behind the point, is
exact too (s ≥ 1), as floor is. Lengths of far rows are rounded, always in the same way: the order
is fixed and every step is one IEEE operation on a whole vector. Of residuals, |a_j| ≤ 2**22 and
|u_j| ≤ 2**16, so with at most 2**11 columns Σ_j a_j u_j is an integer below 2**53 in any order.

**The ball is never left.** *No row is taken for one inside by mistake.* If the computed l is at
most R² < 2**33, then so is every computed square and partial sum, because all are non-negative.
They are integers, and a result that was rounded to below 2**53 was an integer below 2**53: nothing
was rounded, and l is exact. *Shrunk rows end inside.* Let u = 2**-53. With at most 400 coordinates
the computed l is at least |z|² (1 - u)^401, its root at least |z| (1 - u)^202, and the other three
operations overstate by at most (1 + u)³. So before it is cut off, the size of a coordinate is at
most |z_i| (R/|z|) (1 + u)³ (1 - u)^-202 (1 - 2**-40) < |z_i| R/|z|, because 206 u < 2**-45. Cutting
off only shrinks, and summing the squares gives |z|² < R² in exact integers. ∎ For v and K it is the
same, with up to 1,201 entries: 1,211 u < 2**-42 is still less than what 2**-40 pays for.

**Shares keep within their weight.** Let s_1, s_2, … be shares of one category, Σ s ≤ 1, and n_a the
rounded w s_a. *Claim.* Σ n_a² ≤ w². *Proof.* Let m of the n_a be above 0. If m ≤ 1 it is n_a ≤ w.
If not, n_a < w s_a + 1/2, so S = Σ n_a < w + m/2; and w s_a > 1/2 for all m, so w > m/2. The sum of
m squares of positive integers with sum S is largest with all but one at 1: (S - m + 1)² + m - 1.
For m = 2, S ≤ w and that is (w - 1)² + 1 ≤ w². For m = 3, S ≤ w + 1 and it is (w - 1)² + 2 ≤ w²,
because w ≥ 2. For m ≥ 4 let d = m/2 - 1 ≥ 1. It is less than (w - d)² + 2d + 1, which is
w² - 2wd + (d + 1)² ≤ w², because w > d + 1 and 2d ≥ d + 1. ∎ (w s is at most 2**40: all is exact.)

**Gram matrices.** Entries of u are at most √N in size, with N ≤ 2**32 the largest |u|² (`core.
statistics.ball_moments`). A product is at most 2**32 and a block has at most 2**13 rows, so partial
sums are at most 2**45 and exact, as in `rows.sums`; with 2**30 rows the total is at most 2**62.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Covariates, Design
from noisewise.core.rounds.residuals import DIRECTION_BITS, LARGEST_DIRECTION
from noisewise.core.rounds.tail import grid_edges
from noisewise.core.rounds.transform import GRID_BITS, Shape, Transform
from noisewise.core.statistics.ball_moments import (
    LARGEST_SQUARE,
    PRODUCT_ONE,
    ROW_BITS,
    longest_square,
)
from noisewise.holder.rows import (
    Accumulator,
    Codes,
    Floats,
    Integers,
    ReadsDesign,
    check_row_count,
    flat,
)
from noisewise.holder.rows.levels import Narrow
from noisewise.holder.rows.same_rows import MODULUS, RowCheck
from noisewise.holder.rows.units import averaged
from noisewise.holder.rows.values import MEAN_BITS, DesignRows, RowGrid, filled

MARGIN = 1 - 2**-40  # pays for the roundings of the shrinking; see the proof above
LARGEST_RESIDUAL = 64.0

_TILE = 16  # of Gram matrices, and the work of a product that BLAS does in one thread: `rows.sums`
_ALONE = 1 << 18
_MOST_ROWS, _FEWEST_ROWS = 1 << 13, 1 << 5


@dataclass(frozen=True)
class BallSums:
    """Exact Gram matrices of u, as private as the rows: never log or show them.

    Parameters
    ----------
    n : int
        The number of rows.
    inside, outside : (p, p) integer arrays
        Upper triangles: of rows that were in the ball, and of rows that were shrunk onto it.
    """

    n: int = field(repr=False)
    inside: npt.NDArray[np.int64] = field(repr=False)
    outside: npt.NDArray[np.int64] = field(repr=False)
    check: int | None = field(default=None, repr=False)  # `rows.same_rows`, if it was asked for


@dataclass(frozen=True)
class TailCounts:
    """Exact counts of far rows, as private as the rows."""

    n: int = field(repr=False)
    counts: tuple[int, ...] = field(repr=False)
    check: int | None = field(default=None, repr=False)


@dataclass(frozen=True)
class BallPlan(ReadsDesign):
    """Sum the Gram matrices of one shape."""

    design: Design
    shape: Shape
    hash_keys: tuple[int, ...] = field(default=(), repr=False)  # of a check (`rows.same_rows`)

    def __post_init__(self) -> None:
        shape, groups = self.shape, len(self.design.category_sizes)
        longest = longest_square(shape.constant, shape.weight, groups, shape.radius)
        if longest > LARGEST_SQUARE * PRODUCT_ONE:
            raise ValueError("shape: so large a ball could overflow 64-bit sums")
        check_transform(self.design, shape.transform)

    def accumulator(self) -> Accumulator[BallSums]:
        """A new, empty one."""
        return averaged(self.design, BallAccumulator(self))


@dataclass(frozen=True)
class TailPlan(ReadsDesign):
    """Count far rows in the coordinates of one transform."""

    design: Design
    transform: Transform
    hash_keys: tuple[int, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_transform(self.design, self.transform)

    def accumulator(self) -> Accumulator[TailCounts]:
        """A new, empty one."""
        return averaged(self.design, TailAccumulator(self))


@dataclass(frozen=True)
class ResidualPlan(ReadsDesign):
    """Sum the Gram matrix of residuals times rows; see `core.rounds.residuals`.

    Parameters
    ----------
    design : Design
    shape : Shape
        Of the rows u.
    direction : tuple of int
        In units of 2**-16, one for every entry of u.
    radius : int
        In units of 2**-10.
    """

    design: Design
    shape: Shape
    direction: tuple[int, ...]
    radius: int
    hash_keys: tuple[int, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        BallPlan(self.design, self.shape)  # checks the shape
        if len(self.direction) != len(self.design.names):
            raise ValueError("direction: expected one entry for every design column")
        if self.design.category_sizes and not self.shape.weight:
            raise ValueError("shape: residuals need the categories")
        if max(map(abs, self.direction)) > LARGEST_DIRECTION or self.radius > 1 << 16:
            raise ValueError("direction or radius: so large that sums could overflow")

    def accumulator(self) -> Accumulator[BallSums]:
        """A new, empty one."""
        return averaged(self.design, ResidualAccumulator(self))


def check_transform(design: Design, transform: Transform) -> None:
    """Refuse integers that are no transform of the design's numbers."""
    problem = transform.problem(design.number_of_numbers)
    if problem is not None:
        raise ValueError(problem)


class Coordinates(ABC):
    """From table columns to blocks of z."""

    def __init__(
        self, design: Design, transform: Transform, hash_keys: tuple[int, ...] = ()
    ) -> None:
        self.n = 0
        self._design = design
        self._row_check = RowCheck(design, hash_keys) if hash_keys else None
        self._checked = np.zeros(1, dtype=np.int64)
        self._of_means = design.schema.unit_column is not None
        self._grid = RowGrid.with_bits(design, GRID_BITS)
        self._narrow = Narrow(design, self._grid.columns, allowed=not self._of_means)
        self._grid = replace(self._grid, columns=self._narrow.columns)
        self._rows = DesignRows(design, self._grid.columns)
        # The numbers that the transform is about: of a regression with rounds on its covariates
        # alone the target, the last column, is none of them.
        columns = design.columns[: -1 if design.family != "linear" else None]
        if isinstance(design, Covariates):
            columns = design.columns
        rows = self._narrow.rows[1:] - 1
        self._numbers = [int(rows[i]) for i, c in enumerate(columns) if not c.is_indicator]
        q = len(self._numbers)
        self._matrix = np.array(transform.matrix, dtype=np.float64).reshape(q, q)
        self._offset = np.array(transform.offset, dtype=np.float64)[:, None]
        self._step = 2.0 ** -np.array(transform.shift, dtype=np.float64)[:, None]
        self._block = max(_FEWEST_ROWS, min(_MOST_ROWS, _ALONE // max(q, 1) ** 2))

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        """Add rows; see `Accumulator.add`."""
        rows = len(columns[0])
        check_row_count(self.n + rows)
        # Values far out of bounds may overflow on their way to a bound.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, rows, self._block):
                block = [column[start : start + self._block] for column in columns]
                centred = np.empty((len(self._grid.columns), len(block[0])))
                if self._of_means:
                    centred[:] = block
                else:
                    block = [
                        filled(values, self._design.schema, name)
                        for values, name in zip(block, self._design.sources, strict=True)
                    ]
                    self._rows.fill(block, centred)
                if self._row_check is not None:
                    self._checked += self._row_check.of(centred, block)
                z = self._in_coordinates(centred)
                lengths = np.zeros(z.shape[1])
                for row in z:
                    lengths += row * row
                self._add_block(z, lengths, centred, block)
        self.n += rows

    @property
    @abstractmethod
    def _sums(self) -> tuple[Integers, ...]:
        """All that is added up, beside the number of rows."""

    @property
    def check(self) -> int | None:
        """The check of all rows, if it was asked for."""
        return None if self._row_check is None else int(self._checked[0]) % MODULUS

    def state(self) -> Integers:
        """See `Accumulator.state`."""
        return flat(self.n, self._checked, *self._sums)

    def join(self, state: Integers) -> None:
        """See `Accumulator.join`."""
        check_row_count(self.n + int(state[0]))
        self.n += int(state[0])
        all_sums = (self._checked, *self._sums)
        ends = np.cumsum([sums.size for sums in all_sums])
        for own, more in zip(all_sums, np.split(state[1:], ends[:-1]), strict=True):
            np.add(own, more, out=own)

    def _in_coordinates(self, centred: Floats) -> Floats:
        """A new (q, rows) array of integers."""
        t = centred
        if not self._of_means:
            t = np.empty_like(centred)
            self._grid.round_block(centred, out=t)
        z: Floats = self._matrix @ t[self._numbers]
        z += self._offset
        z *= self._step
        z += 0.5
        return np.floor(z, out=z)

    @abstractmethod
    def _add_block(
        self, z: Floats, lengths: Floats, centred: Floats, block: list[Floats | Codes]
    ) -> None:
        """Add a block of rows: their z, |z|², narrow design columns, and table columns, filled.

        Indicators are 0 or 1 there; all columns are means on the grid where rows are averaged.
        """


class BallAccumulator(Coordinates):
    """Adds up the Gram matrices of a shape."""

    def __init__(self, plan: BallPlan | ResidualPlan) -> None:
        super().__init__(plan.design, plan.shape.transform, plan.hash_keys)
        self._shape = plan.shape
        with_indicators = plan.shape.weight > 0
        self._places = self._numbers if not with_indicators else range(len(self._grid.columns))
        self._size = len(self._places) + 1
        by_level = self._narrow.size - self._narrow.width**2 if with_indicators else 0
        self.inside = np.zeros(self._size**2 + by_level, dtype=np.int64)
        self.outside = np.zeros_like(self.inside)

    def result(self) -> BallSums:
        """The sums so far."""
        inside, outside = self._triangle(self.inside), self._triangle(self.outside)
        return BallSums(self.n, inside, outside, self.check)

    def _triangle(self, sums: Integers) -> Integers:
        if self._shape.weight > 0:
            return self._narrow.triangle(sums)
        return np.triu(sums.reshape(self._size, self._size))

    @property
    def _sums(self) -> tuple[Integers, ...]:
        return self.inside, self.outside

    def _add_block(
        self, z: Floats, lengths: Floats, centred: Floats, block: list[Floats | Codes]
    ) -> None:
        is_far = shrink(z, lengths, self._shape.radius)
        u = self._rows_of(z, centred)
        if not is_far.any():
            self._add_to(self.inside, u, block)
            return
        for sums, rows in (
            (self.inside, np.flatnonzero(~is_far)),
            (self.outside, np.flatnonzero(is_far)),
        ):
            self._add_to(sums, np.ascontiguousarray(u[:, rows]), [c[rows] for c in block])

    def _rows_of(self, z: Floats, centred: Floats) -> Floats:
        """u of rows whose z is in the ball."""
        u = np.empty((self._size, z.shape[1]))
        u[0] = self._shape.constant
        place = dict(zip(self._numbers, z, strict=True))
        for row, i in zip(u[1:], self._places, strict=True):
            if i in place:
                row[:] = place[i]
            elif self._of_means:
                np.multiply(centred[i], self._shape.weight * 2.0**-MEAN_BITS, out=row)
                np.ceil(np.subtract(row, 0.5, out=row), out=row)
            else:
                np.multiply(centred[i], self._shape.weight, out=row)
        return u

    def _add_to(self, sums: Integers, u: Floats, block: list[Floats | Codes]) -> None:
        sums[: self._size**2] += gram_of(u).ravel()
        if self._shape.weight > 0:
            self._narrow.add_levels(sums, u, block)


class ResidualAccumulator(BallAccumulator):
    """Adds up the Gram matrix of residuals times rows, all of it in `inside`."""

    def __init__(self, plan: ResidualPlan) -> None:
        super().__init__(plan)
        # By the row of a narrow block: for a category, one of each by the codes of its levels.
        self._direction = self._narrow.by_row(np.array(plan.direction, dtype=np.float64))
        self._radius = plan.radius

    def _add_block(
        self, z: Floats, lengths: Floats, centred: Floats, block: list[Floats | Codes]
    ) -> None:
        shrink(z, lengths, self._shape.radius)
        u = self._rows_of(z, centred)
        residual, codes = np.zeros(u.shape[1]), self._narrow.codes(block)
        for i, (row, a) in enumerate(zip(u, self._direction, strict=True)):
            residual += row * (a[codes[i]] if i in codes else a)
        residual *= 2.0 ** -(DIRECTION_BITS + ROW_BITS)
        np.clip(residual, -LARGEST_RESIDUAL, LARGEST_RESIDUAL, out=residual)
        v = np.trunc(u * residual, out=u)
        lengths = np.zeros(v.shape[1])
        for row in v:
            lengths += row * row
        shrink(v, lengths, self._radius)
        self._add_to(self.inside, v, block)


class TailAccumulator(Coordinates):
    """Counts rows by their length, in the bins of `core.rounds.tail.EDGES`."""

    def __init__(self, plan: TailPlan) -> None:
        super().__init__(plan.design, plan.transform, plan.hash_keys)
        self._edges = np.array(grid_edges(plan.design.number_of_numbers), dtype=np.float64)
        self.counts = np.zeros(len(self._edges) + 1, dtype=np.int64)

    def result(self) -> TailCounts:
        """The counts so far; rows at or below the first edge are in no bin."""
        return TailCounts(self.n, tuple(self.counts[1:].tolist()), self.check)

    @property
    def _sums(self) -> tuple[Integers, ...]:
        return (self.counts,)

    def _add_block(
        self, z: Floats, lengths: Floats, centred: Floats, block: list[Floats | Codes]
    ) -> None:
        self.counts += np.bincount(
            np.searchsorted(self._edges, lengths, side="left"), minlength=len(self.counts)
        )


def shrink(z: Floats, lengths: Floats, radius: int) -> npt.NDArray[np.bool_]:
    """Shrink columns of z that are longer than the radius onto the ball; returns which they are."""
    is_far = lengths > float(radius**2)
    if is_far.any():
        factor = (radius / np.sqrt(lengths[is_far])) * MARGIN
        z[:, is_far] = np.trunc(z[:, is_far] * factor)
    return np.asarray(is_far)


def gram_of(u: Floats) -> npt.NDArray[np.int64]:
    """The upper tiles of uu', exact."""
    size = len(u)
    gram = np.zeros((size, size))
    step = max(1, u.shape[1]) if size <= _TILE else _ALONE // _TILE**2
    for start in range(0, u.shape[1], step):
        part = u[:, start : start + step]
        for i in range(0, size, _TILE):
            for j in range(i, size, _TILE):
                gram[i : i + _TILE, j : j + _TILE] += part[i : i + _TILE] @ part[j : j + _TILE].T
    return gram.astype(np.int64)
