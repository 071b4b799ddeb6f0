"""A linear change of coordinates that takes apart what several holders have in common.

Holders that are relative to the reference (`kernels`) have F_j = F_0 K_j. Entry by entry,
and near K_j = I, with e_j ~ (0, 1/n_j) the deviations of the holders from their population,

    K_j = I + e_j - e_0                  all share e_0: equally correlated
    noise tells about F_0 + s K_j        its mean over holders is known, F_0 alone is not

so that the coordinates of one entry are correlated by 1/2 with each other and by up to -2/3 with
the reference, at any number of columns. NUTS then takes steps for the narrow directions and
trajectories for the wide ones; and with so many half-wide ones its U-turn criterion is met by
chance, after two to eight times as many steps as are good for anything (measured, ten columns and
five holders). A sampler therefore sees y::

    x_j = y_j + g_j Σ_l h_l y_l          the root of the covariance diag(v) + v_0 1 1', v = 1/n
    x_0 = y_0 - Σ_j m_j x_j              y_0 is their mean, weighted by what noise leaves of each

The map is linear and constant, so that the posterior of x is the same for any g, h and m, and a
poor guess of them costs time only. Where no holder is relative it is the identity.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.categories import FREE
from noisewise.analyst.regression.exact.factor import is_relative, partial_row
from noisewise.analyst.regression.exact.kernels import Arrays
from noisewise.analyst.regression.exact.start import information_of_entries

_VAGUE = 4.0  # information of the prior on an entry of F, as in `rough`


class Pooling(NamedTuple):
    """The map, for the coordinates of relative holders one by one."""

    place: IntArray  # (size,), in x
    entry: IntArray  # (size,), which entry of K_j it is: those of one entry go together
    reference: IntArray  # (size,), place in x of the same entry of the reference, or -1
    g: FloatArray  # (size,)
    h: FloatArray  # (size,)
    m: FloatArray  # (size,)
    sums: FloatArray  # (entries,), scratch space


def pooling(arrays: Arrays) -> Pooling:
    """The map for the given holders. Its scratch space belongs to one thread."""
    J, P, _ = arrays.values.shape
    lower = np.tril(np.ones((P, P), dtype=np.bool_))
    free = lower & (arrays.known == FREE)
    places = np.full((J, P, P), -1)
    places[free] = np.arange(free.sum())
    n = np.maximum(arrays.n, 1.0)
    weight = _noise_information(arrays, n, places[0])
    weight /= weight.sum(axis=0) + _VAGUE
    slope = _slope(arrays, places[0])
    rows = []
    for a in range(1, P):
        for b in range(a + 1):
            those = [
                j
                for j in range(J)
                if is_relative(arrays.relative[j], a, b, P) and places[j, a, b] >= 0
            ]
            if not those:
                continue
            place, reference = places[those, a, b], places[0, a, b]
            unit = arrays.scale[place]
            total = float(n[those].sum())
            share = np.sqrt(n[those] / total)  # Σ share² = 1
            size = 1.0 / (unit * np.sqrt(n[those]))  # of e_j in units of x_j
            m = np.zeros(len(those))
            if reference >= 0:
                m = slope[a, b] * weight[those, a, b] * unit / arrays.scale[reference]
            grow = math.sqrt(1.0 + total / n[0]) - 1.0
            for i, at in enumerate(place):
                rows.append(
                    (at, a * P + b, reference, grow * size[i] * share[i], share[i] / size[i], m[i])
                )
    if not np.isfinite(rows).all():
        rows = []  # statistics beyond all reason
    table = np.array(rows).reshape(len(rows), 6)
    place, entry, reference = np.ascontiguousarray(table[:, :3].T, dtype=np.int64)
    g, h, m = np.ascontiguousarray(table[:, 3:].T)
    return Pooling(place, entry, reference, g, h, m, np.zeros(P * P if rows else 0))


def _factor_of_reference(arrays: Arrays, places: IntArray) -> FloatArray:
    """F of the reference at the centre of its coordinates, roughly; 0 for entries that are known.

    The size of y's row is left out, which narrows what noise hides.
    """
    F = np.eye(len(places))
    for a in range(1, len(F)):
        free = places[a, : a + 1] >= 0
        F[a, : a + 1][free] = arrays.centre[places[a, : a + 1][free]]
        F[a, a] = math.exp(min(F[a, a], 300.0)) if free[a] else 1.0
        if arrays.partial[0, a]:
            partial_row(F, a, places[a] < 0, math.log(F[a, a]), 0.0)
    return F


def _slope(arrays: Arrays, places: IntArray) -> FloatArray:
    """By how much a coordinate of F_j moves with that of K_j, F_0 held fixed."""
    F = _factor_of_reference(arrays, places)
    slope = np.repeat(F.diagonal()[:, None], len(F), axis=1)  # F_ab = F_aa K_ab + ...
    for a in range(1, len(F)):
        slope[a, a] = 1.0  # of the logarithm
        if arrays.partial[0, a]:
            length2 = float((F[a, 1 : a + 1] ** 2).sum())
            slope[a, 1:a] = F[a, a] / math.sqrt(length2)  # roughly, of partial correlations
            slope[a, a] = F[a, a] ** 2 / length2  # of the log length
    return slope


def _noise_information(arrays: Arrays, n: FloatArray, places: IntArray) -> FloatArray:
    """Of each entry of F in each holder's noise, the other entries held fixed; shape (J, P, P)."""
    # The map only has to be roughly right: a bound keeps squares of absurd precisions finite.
    precision = np.minimum(arrays.precision * n[:, None, None], 1e60)
    weight = precision**2 / np.where(arrays.laplace, 2.0, 1.0)[:, None, None]
    F = _factor_of_reference(arrays, places)
    maps = [None] * len(n)
    if len(arrays.maps):  # F is in the reference's own coordinates
        maps = [K @ np.linalg.inv(arrays.maps[0]) for K in arrays.maps]
    information = np.stack(
        [information_of_entries(own, F, K) for own, K in zip(weight, maps, strict=True)]
    )
    P = len(places)
    for j in range(1, len(n)):
        for a in range(P):
            for b in range(a + 1):
                if not is_relative(arrays.relative[j], a, b, P):
                    information[j, a, b] = 0.0  # it doesn't tell about F_0
    return np.asarray(np.minimum(information, 1e300))


# --- compiled -------------------------------------------------------------------------------------


@compiled
def from_pooled(
    y: FloatArray,
    x: FloatArray,
    place: IntArray,
    entry: IntArray,
    reference: IntArray,
    g: FloatArray,
    h: FloatArray,
    m: FloatArray,
    sums: FloatArray,
) -> Any:
    """x from y."""
    for i in range(y.size):
        x[i] = y[i]
    for i in range(sums.size):
        sums[i] = 0.0
    for i in range(place.size):
        sums[entry[i]] += h[i] * y[place[i]]
    for i in range(place.size):
        x[place[i]] += g[i] * sums[entry[i]]
        if reference[i] >= 0:
            x[reference[i]] -= m[i] * x[place[i]]


@compiled
def gradient_to_pooled(
    grad: FloatArray,
    place: IntArray,
    entry: IntArray,
    reference: IntArray,
    g: FloatArray,
    h: FloatArray,
    m: FloatArray,
    sums: FloatArray,
) -> Any:
    """The gradient by y from that by x, in place."""
    for i in range(sums.size):
        sums[i] = 0.0
    for i in range(place.size):
        if reference[i] >= 0:
            grad[place[i]] -= m[i] * grad[reference[i]]
        sums[entry[i]] += g[i] * grad[place[i]]
    for i in range(place.size):
        grad[place[i]] += h[i] * sums[entry[i]]


def to_pooled(x: FloatArray, pooled: Pooling) -> FloatArray:
    """y from x."""
    y = np.array(x)
    place, entry, reference, g, h, m, sums = pooled
    inner = reference >= 0
    np.add.at(y, reference[inner], m[inner] * x[place[inner]])
    grow = np.bincount(entry, g * h, sums.size)
    total = np.bincount(entry, h * x[place], sums.size) / (1.0 + grow)
    y[place] -= g * total[entry]
    return y
