"""Released sums of all monomials of degree 1 to 4 in the covariates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

from noisewise._arrays import FloatArray, IntArray
from noisewise.core.errors import ReleaseError


def fourth_monomials(k: int) -> tuple[tuple[int, int, int, int], ...]:
    """All monomials of degree 1 to 4 in x, as sorted index quadruples into v = (1, x).

    The order is that of a Release (`noisewise.core.statistic.FourthMoments`).
    """
    quadruples = combinations_with_replacement(range(k + 1), 4)
    return tuple((a, b, c, e) for a, b, c, e in quadruples)[1:]


@dataclass(frozen=True, eq=False)
class FourthMomentObservation:
    """One holder's noisy sums of all monomials of degree 1 to 4 in the covariates.

    Parameters
    ----------
    n : int
        Number of rows. Public.
    k : int
        Number of covariates.
    values : array, shape (number of monomials,)
        Noisy sums over the rows, in the order of `fourth_monomials`.
    scale : float
        Noise scale of each: b of the Laplace law or the standard deviation of the normal one.
    family : {"laplace", "gaussian"}
    """

    n: int
    k: int
    values: FloatArray
    scale: float
    family: Literal["laplace", "gaussian"]

    def __post_init__(self) -> None:
        count = math.comb(self.k + 4, 4) - 1
        values = np.array(self.values, dtype=np.float64)
        if isinstance(self.n, bool) or int(self.n) != self.n or self.n < 1:
            raise ReleaseError(f"n must be a whole number of rows, at least 1; got {self.n!r}")
        if values.shape != (count,) or not np.isfinite(values).all():
            raise ReleaseError(
                f"values must be {count} finite sums, one for each monomial of degree 1 to 4 in "
                f"{self.k} covariates; got shape {values.shape}"
            )
        if not (np.isfinite(self.scale) and self.scale >= 0):
            raise ReleaseError(f"scale must be finite and at least 0; got {self.scale!r}")
        if self.family not in ("laplace", "gaussian"):
            raise ReleaseError(f"noise family must be 'laplace' or 'gaussian'; got {self.family!r}")
        values.setflags(write=False)
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "scale", float(self.scale))
        object.__setattr__(self, "values", values)


def monomial_positions(k: int) -> IntArray:
    """Where the product of two entries of vech(vv') is among the monomials; the constant: -1.

    Shape (q + 1, q + 1), over (0, 0) first and then `unique_entries`.
    """
    where = {monomial: i for i, monomial in enumerate(fourth_monomials(k))}
    pairs = list(combinations_with_replacement(range(k + 1), 2))
    return np.array(
        [[where.get(_sorted4(first + second), -1) for second in pairs] for first in pairs],
        dtype=np.int64,
    )


def _sorted4(indices: tuple[int, ...]) -> tuple[int, int, int, int]:
    a, b, c, e = sorted(indices)
    return a, b, c, e
