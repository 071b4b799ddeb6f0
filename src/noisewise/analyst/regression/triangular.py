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
    """Overwrite the lower triangle of A by its Cholesky factor; False if A is not positive."""
    for i in range(size):
        for j in range(i):
            total = A[i, j]
            for c in range(j):
                total -= A[i, c] * A[j, c]
            A[i, j] = total / A[j, j]
        total = A[i, i]
        for c in range(i):
            total -= A[i, c] * A[i, c]
        if not (total > 0.0 and total < np.inf):
            return False
        A[i, i] = math.sqrt(total)
    return True


@compiled
def invert_triangle(R: FloatArray, size: int, W: FloatArray) -> Any:
    """W = R⁻¹ for lower triangular R."""
    for i in range(size):
        for b in range(i):
            W[i, b] = 0.0
        for c in range(i):
            r = R[i, c]
            for b in range(c + 1):
                W[i, b] -= r * W[c, b]
        inverse = 1.0 / R[i, i]
        for b in range(i):
            W[i, b] *= inverse
        W[i, i] = inverse


@compiled
def relative_factor(R: FloatArray, F: FloatArray, K: FloatArray) -> Any:
    """K = R⁻¹ F for lower triangular R and F."""
    for a in range(R.shape[0]):
        for b in range(a + 1):
            K[a, b] = F[a, b]
        for c in range(a):
            r = R[a, c]
            for b in range(c + 1):
                K[a, b] -= r * K[c, b]
        inverse = 1.0 / R[a, a]
        for b in range(a + 1):
            K[a, b] *= inverse


@compiled
def triangle_product(R: FloatArray, K: FloatArray, F: FloatArray) -> Any:
    """F = R K for lower triangular R and K."""
    for a in range(R.shape[0]):
        for b in range(a + 1):
            total = 0.0
            for c in range(b, a + 1):
                total += R[a, c] * K[c, b]
            F[a, b] = total


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
