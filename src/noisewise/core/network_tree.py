"""Probabilities of r levels as r - 1 splits: the parameters that posterior samples are drawn in.

A row of a conditional table is split in two, again and again: the root split divides the levels
into a first half and a second half, each half is divided in turn, down to single levels. A split
is one number v, the probability of its first half given that the level is in either; the
probability of a level is the product along its path. For two levels there is one split, and v is
the probability of the first level.

Why splits: if the row has a Dirichlet prior then its splits are independent Betas, before and
after seeing counts, and each may be truncated to [ω, 1 - ω] by itself. They can be sampled exactly
one by one, where a Dirichlet truncated as a whole cannot. A record touches at most ⌈log2 r⌉
splits of one row.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Split = tuple[int, int, int]


@cache
def splits(arity: int) -> tuple[Split, ...]:
    """The splits of `arity` levels as (start, middle, stop): levels start..middle-1 are the first
    half, middle..stop-1 the second. Each comes before the splits of its halves.
    """

    def divide(start: int, stop: int) -> list[Split]:
        if stop - start == 1:
            return []
        middle = start + (stop - start + 1) // 2
        return [(start, middle, stop), *divide(start, middle), *divide(middle, stop)]

    return tuple(divide(0, arity))


def depth(arity: int) -> int:
    """The largest number of splits on the path to a level: ⌈log2 arity⌉."""
    return (arity - 1).bit_length()


def rows_of_splits(values: npt.ArrayLike, arity: int) -> Floats:
    """Probabilities of the levels from the split values.

    Parameters
    ----------
    values : array_like (..., arity - 1)
        First-half probabilities, in the order of `splits`.
    arity : int

    Returns
    -------
    ndarray (..., arity)
    """
    v = np.asarray(values, dtype=np.float64)
    rows = np.ones((*v.shape[:-1], arity))
    for position, (start, middle, stop) in enumerate(splits(arity)):
        rows[..., start:middle] *= v[..., position, None]
        rows[..., middle:stop] *= 1 - v[..., position, None]
    return rows


def split_totals(table: npt.ArrayLike, arity: int) -> tuple[npt.NDArray, npt.NDArray]:  # type: ignore[type-arg]
    """For every split, the totals of its first and its second half.

    Parameters
    ----------
    table : array_like (..., arity)

    Returns
    -------
    two ndarrays (..., arity - 1), of the table's type
    """
    t = np.asarray(table)
    halves = [
        (t[..., start:middle].sum(axis=-1), t[..., middle:stop].sum(axis=-1))
        for start, middle, stop in splits(arity)
    ]
    first, second = zip(*halves, strict=True)
    return np.stack(first, axis=-1), np.stack(second, axis=-1)
