"""Simulated rows cut into blocks, many times over: estimates of one slope in every block.

Compiled and in floating point, for studies. What a holder does with real rows is in
`noisewise.holder.blocks`, exact and with secret random numbers; here a counter-based generator
(SplitMix64) makes the assignment repeatable. As there, every row is put into one of M blocks
independently and uniformly, so block sizes vary. One random number of a row and partition serves
every M of a study, which makes the comparison between them a paired one.

The columns of a row are w = (1, x_1, ..., x_p, y), and the slope of interest is the last one. With
Σww' = LL' (Cholesky), its estimate is L_yp/L_pp, the last diagonal entry of (X'X)⁻¹ is 1/L_pp² and
the residual sum of squares L_yy²; nothing else is needed of a block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from noisewise._arrays import FloatArray


class Fits(NamedTuple):
    """The slope of interest in every block; all of shape (partitions, M).

    Blocks without a regression have a NaN estimate.
    """

    estimate: FloatArray
    d: FloatArray  # diagonal entry of (X'X)⁻¹
    rss: FloatArray
    n: FloatArray
    explained: FloatArray  # y'Hy, which Zellner's prior needs
    columns: int  # coefficients, the intercept included

    @property
    def blocks(self) -> int:
        """M."""
        return int(self.estimate.shape[1])

    def first(self) -> Fits:
        """The first partition only."""
        return Fits(*(array[:1] for array in self[:5]), self.columns)


def fit_blocks(rows: FloatArray, blocks: Sequence[int], partitions: int, seed: int) -> list[Fits]:
    """Fits of the last slope for every number of blocks, with common random assignments.

    Parameters
    ----------
    rows : array, shape (n, p + 1)
        x_1, ..., x_p, y.
    blocks : sequence of int
    partitions, seed : int
    """
    sizes = sorted(set(blocks), reverse=True)
    # ⌊uM⌋ is ⌊u kM⌋ // k: blocks that are unions of smaller ones are added up from these.
    finest = [M for M in sizes if not any(L > M and L % M == 0 for L in sizes)]
    parents = [next(i for i, L in enumerate(finest) if L % M == 0) for M in sizes]
    K = rows.shape[1] + 1
    out = np.empty((5, partitions, sum(sizes)))
    _fit_partitions(
        np.ascontiguousarray(rows),
        np.empty((sum(finest), K * (K + 1) // 2)),
        np.array(finest, dtype=np.int64),
        np.array(sizes, dtype=np.int64),
        np.array(parents, dtype=np.int64),
        np.uint64(seed),
        out,
    )
    ends = np.concatenate([[0], np.cumsum(sizes)])
    found = {
        M: Fits(*(np.ascontiguousarray(part[:, a:b]) for part in out), rows.shape[1])
        for M, a, b in zip(sizes, ends[:-1], ends[1:], strict=True)
    }
    return [found[M] for M in blocks]


def fit_all(rows: FloatArray) -> Fits:
    """The same from all rows at once: one block."""
    return fit_blocks(rows, [1], 1, 0)[0]


@njit(cache=True, nogil=True)
def _fit_partitions(rows, sums, finest, sizes, parents, seed, out):
    """Sum the products of each block, partition by partition, and fit."""
    K = rows.shape[1] + 1
    gram, total = np.empty((K, K)), np.empty(sums.shape[1])
    starts = np.zeros(len(finest) + 1, dtype=np.int64)
    starts[1:] = np.cumsum(finest)
    for k in range(out.shape[1]):
        sums[:] = 0.0
        if K == 3:
            _add_pairs(rows, sums, finest, seed, k)
        else:
            _add_rows(rows, sums, finest, seed, k)
        at = 0
        for m in range(len(sizes)):
            parent = parents[m]
            share = finest[parent] // sizes[m]
            for j in range(sizes[m]):
                first = starts[parent] + j * share
                total[:] = 0.0
                for i in range(first, first + share):
                    total += sums[i]
                _fit(total, gram, out[:, k, at])
                at += 1


@njit(cache=True, nogil=True)
def _add_rows(rows, sums, finest, seed, k):
    """Add the products w_a w_b, a ≤ b, of every row to its blocks."""
    n, width = rows.shape
    K = width + 1
    w, products = np.ones(K), np.empty(K * (K + 1) // 2)
    for i in range(n):
        w[1:] = rows[i]
        c = 0
        for a in range(K):
            for b in range(a, K):
                products[c] = w[a] * w[b]
                c += 1
        u = _mix(seed, np.uint64(k) * np.uint64(n) + np.uint64(i)) >> np.uint64(32)
        start = 0
        for m in range(len(finest)):
            j = start + np.int64((u * np.uint64(finest[m])) >> np.uint64(32))
            for c in range(len(products)):
                sums[j, c] += products[c]
            start += finest[m]


@njit(cache=True, nogil=True)
def _add_pairs(rows, sums, finest, seed, k):
    """`_add_rows` for one covariate, unrolled: three times as fast."""
    n = len(rows)
    for i in range(n):
        x, y = rows[i, 0], rows[i, 1]
        u = _mix(seed, np.uint64(k) * np.uint64(n) + np.uint64(i)) >> np.uint64(32)
        start = 0
        for m in range(len(finest)):
            j = start + np.int64((u * np.uint64(finest[m])) >> np.uint64(32))
            sums[j, 0] += 1.0
            sums[j, 1] += x
            sums[j, 2] += y
            sums[j, 3] += x * x
            sums[j, 4] += x * y
            sums[j, 5] += y * y
            start += finest[m]


@njit(cache=True, nogil=True)
def _mix(seed, counter):
    """SplitMix64 of a counter (Steele, Lea & Flood 2014)."""
    z = seed + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _fit(sums, gram, out):
    K = gram.shape[0]
    c = 0
    for a in range(K):
        for b in range(a, K):
            gram[b, a] = sums[c]
            c += 1
    total = gram[K - 1, K - 1]
    good = sums[0] > K - 1
    for a in range(K):  # Cholesky, in place
        for b in range(a):
            gram[a, a] -= gram[a, b] ** 2
        if gram[a, a] <= 0 and a < K - 1:
            good = False
        gram[a, a] = math.sqrt(max(gram[a, a], 1e-300))
        for b in range(a + 1, K):
            for k in range(a):
                gram[b, a] -= gram[b, k] * gram[a, k]
            gram[b, a] /= gram[a, a]
    pivot = gram[K - 2, K - 2]
    out[0] = gram[K - 1, K - 2] / pivot if good else np.nan
    out[1] = 1 / pivot**2
    out[2] = gram[K - 1, K - 1] ** 2
    out[3] = sums[0]
    out[4] = total - out[2]
