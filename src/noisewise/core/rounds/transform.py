"""The public map of a round: from numbers on the bounds' own scale to the round's coordinates.

In real numbers z = L⁻¹(x - m). What is published and used are integers: the numbers t on a grid
with t = 2**24 at the upper bound, and for every coordinate i

    z_i = floor((Σ_j A_ij t_j + b_i) / 2**s_i + 1/2)      in units of 2**-10.

These integers *are* the transform: rounding L⁻¹ to them is no error, because everybody computes
with what was published. With Σ_j |A_ij| ≤ 2**27 and |b_i| ≤ 2**51 every partial sum is at most
2**52 in size, an integer that a double holds exactly. The largest entries of a row have more than
2**27 / q units, so directions are met to eight digits even where columns nearly cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from noisewise.core.statistics.ball_moments import ROW_BITS

Floats = npt.NDArray[np.float64]

GRID_BITS = 24
LARGEST_ROW = 1 << 27
LARGEST_OFFSET = 1 << 51
LEAST_SHIFT, LARGEST_SHIFT = 1, 50
# No direction is made finer than 32 grid steps: there the rounding of rows would show.
_FINEST, _COARSEST = 2.0 ** (5 - GRID_BITS), 2.0
_MOST_CORNERS = 12  # numbers, for `farthest`


@dataclass(frozen=True)
class Transform:
    """The integers A, b and s above, one row and one entry for each of q numbers."""

    matrix: tuple[tuple[int, ...], ...]
    offset: tuple[int, ...]
    shift: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def of(cls, spread: Floats, centre: Floats) -> Transform:
        """Round a wanted spread L, (q, q), and centre m, (q,), on the scale of the bounds.

        The centre is moved into the bounds, and directions that are too fine are widened.
        """
        left, sizes, right = np.linalg.svd(spread)
        sizes = np.clip(sizes, _FINEST, _COARSEST)
        inverse = (right.T / sizes) @ left.T
        centre = np.clip(centre, -1.0, 1.0)
        matrix, offset, shift = [], [], []
        for row in inverse:
            # z in units of 2**-10 is row · t · 2**(10 - 24); all of it times 2**s is rounded.
            unit = float(np.abs(row).sum()) * 2.0 ** (ROW_BITS - GRID_BITS)
            bits = int(np.clip(np.floor(np.log2(LARGEST_ROW / unit)), LEAST_SHIFT, LARGEST_SHIFT))
            scaled = row * 2.0 ** (ROW_BITS - GRID_BITS + bits)
            entries = np.trunc(scaled)  # towards 0: the sum of sizes stays within its limit
            matrix.append(tuple(int(entry) for entry in entries))
            offset.append(-round(float(entries @ centre) * 2.0**GRID_BITS))
            shift.append(bits)
        return cls(tuple(matrix), tuple(offset), tuple(shift))

    @classmethod
    def box(cls, numbers: int) -> Transform:
        """The bounds' own coordinates."""
        return cls.of(np.eye(numbers), np.zeros(numbers))

    def problem(self, numbers: int) -> str | None:
        """Why these integers, from an untrusted file, are no transform of so many numbers."""
        if not len(self.matrix) == len(self.offset) == len(self.shift) == numbers:
            return "a transform has another number of rows than there are numbers"
        if any(len(row) != numbers for row in self.matrix):
            return "the matrix of a transform must be square"
        if any(sum(map(abs, row)) > LARGEST_ROW for row in self.matrix):
            return f"a row of a transform adds up to more than {LARGEST_ROW}"
        if any(abs(b) > LARGEST_OFFSET for b in self.offset):
            return f"an offset of a transform is larger than {LARGEST_OFFSET}"
        if any(not LEAST_SHIFT <= s <= LARGEST_SHIFT for s in self.shift):
            return f"a shift must be from {LEAST_SHIFT} to {LARGEST_SHIFT}"
        if numbers == 0:
            return None
        rows = np.array(self.matrix, dtype=np.float64)
        sizes = np.linalg.norm(rows, axis=1)
        if not sizes.all() or np.linalg.cond(rows / sizes[:, None]) > 1e9:
            return "the matrix of a transform cannot be inverted"
        return None

    def map(self) -> Floats:
        """The (q + 1, q + 1) matrix that takes (1, x) to (1, z), both in units of 1."""
        scale = 2.0 ** -(np.array(self.shift, dtype=np.float64) + ROW_BITS)
        full = np.zeros((len(self) + 1, len(self) + 1))
        full[0, 0] = 1.0
        full[1:, 0] = np.array(self.offset, dtype=np.float64) * scale
        full[1:, 1:] = np.array(self.matrix, dtype=np.float64) * (scale * 2.0**GRID_BITS)[:, None]
        return full

    def farthest(self) -> float:
        """At least the largest |z|² of numbers within the bounds, and with few numbers just that.

        It is at a corner of the box; with many numbers every z_i is taken at a corner of its own.
        """
        full = self.map()
        offset, matrix = full[1:, 0], full[1:, 1:]
        if len(self) > _MOST_CORNERS:
            return float(np.sum((np.abs(matrix).sum(axis=1) + np.abs(offset)) ** 2))
        corners = np.array(list(product((-1.0, 1.0), repeat=len(self)))).reshape(-1, len(self))
        return float(np.max(np.sum((corners @ matrix.T + offset) ** 2, axis=1), initial=0.0))

    def spread_and_centre(self) -> tuple[Floats, Floats]:
        """L, (q, q), and m, (q,), of the integers."""
        full = self.map()
        spread = np.asarray(np.linalg.inv(full[1:, 1:]), dtype=np.float64)
        return spread, -spread @ full[1:, 0]

    def to_json(self) -> dict[str, list[int] | list[list[int]]]:
        """Plain structure for the Release file."""
        return {
            "matrix": [list(row) for row in self.matrix],
            "offset": list(self.offset),
            "shift": list(self.shift),
        }


@dataclass(frozen=True)
class Shape:
    """What a round makes of a row: u = (c, w · indicators, z) with |z| ≤ R, as integers.

    Parameters
    ----------
    transform : Transform
        Of the design's numbers, in their order.
    constant, weight, radius : int
        c, w and R in units of 2**-10. With weight 0 the indicators are left out of u.
    """

    transform: Transform
    constant: int
    weight: int
    radius: int

    def map(self, is_number: Sequence[bool]) -> Floats:
        """The matrix that takes a design's w = (1, columns) to u, in units of 1.

        Parameters
        ----------
        is_number : sequence of bool
            For every design column, whether it is a number or an indicator.

        Returns
        -------
        (p, P) array
            P = 1 + number of design columns; p = P, or q + 1 without the indicators.
        """
        numbers = [0, *(1 + np.flatnonzero(is_number))]
        indicators = 1 + np.flatnonzero(~np.asarray(is_number, dtype=bool))
        full = np.zeros((len(is_number) + 1, len(is_number) + 1))
        full[np.ix_(numbers, numbers)] = self.transform.map()
        full[0, 0] = self.constant / (1 << ROW_BITS)
        full[indicators, indicators] = self.weight / (1 << ROW_BITS)
        return full if self.weight else full[numbers]
