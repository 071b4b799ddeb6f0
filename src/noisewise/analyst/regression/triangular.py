"""Dense linear algebra on preallocated buffers, lower triangles only.

Loops run along rows, in O(size³), without BLAS and without allocation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled


@compiled
def cholesky(A: FloatArray, size: int) -> Any:
    """Overwrite the lower triangle of A by its Cholesky factor; False if A is not positive.

    By columns: their entries don't wait for each other.
    """
    for j in range(size):
        total = A[j, j]
        for c in range(j):
            total -= A[j, c] * A[j, c]
        if not (total > 0.0 and total < np.inf):
            return False
        A[j, j] = math.sqrt(total)
        inverse = 1.0 / A[j, j]
        for i in range(j + 1, size):
            total = A[i, j]
            for c in range(j):
                total -= A[i, c] * A[j, c]
            A[i, j] = total * inverse
    return True


@compiled
def add_rows(
    weights: FloatArray, K: FloatArray, start: int, stop: int, size: int, out: FloatArray
) -> Any:
    """Add Σ weights_c K_c over rows start <= c < stop of lower triangular K to `out`, up to `size`.

    Two rows at a time, which halves the visits to `out`.
    """
    for c in range(start, stop - 1, 2):
        first, second = weights[c], weights[c + 1]
        common = min(c + 1, size)
        for b in range(common):
            out[b] += first * K[c, b] + second * K[c + 1, b]
        if c + 1 < size:
            out[c + 1] += second * K[c + 1, c + 1]
    if (stop - start) % 2:
        last = weights[stop - 1]
        for b in range(min(stop, size)):
            out[b] += last * K[stop - 1, b]


@compiled
def invert_triangle(R: FloatArray, size: int, W: FloatArray) -> Any:
    """W = R⁻¹ for lower triangular R."""
    for i in range(size):
        row = W[i]
        for b in range(i):
            row[b] = 0.0
        add_rows(R[i], W, 0, i, i, row)
        inverse = 1.0 / R[i, i]
        for b in range(i):
            row[b] *= -inverse
        row[i] = inverse


@compiled
def relative_factor(R: FloatArray, F: FloatArray, K: FloatArray) -> Any:
    """K = R⁻¹ F for lower triangular R and F."""
    for a in range(R.shape[0]):
        row = K[a]
        for b in range(a + 1):
            row[b] = -F[a, b]
        add_rows(R[a], K, 0, a, a, row)
        inverse = -1.0 / R[a, a]
        for b in range(a + 1):
            row[b] *= inverse


@compiled
def triangle_product(R: FloatArray, K: FloatArray, F: FloatArray) -> Any:
    """F = R K for lower triangular R and K."""
    for a in range(R.shape[0]):
        row = F[a]
        for b in range(a + 1):
            row[b] = 0.0
        add_rows(R[a], K, 0, a + 1, a + 1, row)


@compiled
def add_gram(W: FloatArray, size: int, factor: float, out: FloatArray) -> Any:
    """out += factor W'W for lower triangular W (lower triangle of out)."""
    for i in range(size):
        for a in range(i + 1):
            weight = factor * W[i, a]
            for b in range(a + 1):
                out[a, b] += weight * W[i, b]


@compiled
def gram_entry(F: FloatArray, a: int, b: int) -> Any:
    """(F F')_ab for lower triangular F and b <= a."""
    total = 0.0
    for c in range(b + 1):
        total += F[a, c] * F[b, c]
    return total


@compiled
def mirror(A: FloatArray, size: int) -> Any:
    """Copy the lower triangle to the upper one."""
    for a in range(size):
        for b in range(a):
            A[b, a] = A[a, b]


@compiled
def trace(G: FloatArray, A: FloatArray) -> Any:
    """tr(G A) from lower triangles."""
    total = 0.0
    for a in range(A.shape[0]):
        for b in range(a):
            total += 2.0 * G[a, b] * A[a, b]
        total += G[a, a] * A[a, a]
    return total
