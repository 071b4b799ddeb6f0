"""Triangular matrices for the compiled samplers, on buffers that the caller owns.

Loops are written out for the reasons in `gibbs_linalg`. They run along rows, and blocks of four
rows share their loads: with ten to twenty columns that is two to three times as fast as a row at a
time, because sums of so few terms wait for themselves. Rows that are no block of four come where
rows are shortest. A loop that doesn't begin with a row's first entry runs from zero over a part of
the row: Numba allows for negative indices, and vectorises no loop that begins elsewhere.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise.analyst.regression.exact.triangular import mirror
from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_linalg import four_products, product


@compiled
def cholesky(A, size):  # type: ignore[no-untyped-def]
    """Overwrite the lower triangle of A by its Cholesky factor; False if A is not positive."""
    for i in range(size % 4):
        for j in range(i):
            A[i, j] = (A[i, j] - product(A[i], A[j], j)) / A[j, j]
        pivot = A[i, i] - product(A[i], A[i], i)
        if not (pivot > 0.0 and pivot < np.inf):
            return False
        A[i, i] = math.sqrt(pivot)
    for b in range(size % 4, size, 4):
        for j in range(b):
            t0, t1, t2, t3 = four_products(A, b, A[j], 0, j)
            inverse = 1.0 / A[j, j]
            A[b, j] = (A[b, j] - t0) * inverse
            A[b + 1, j] = (A[b + 1, j] - t1) * inverse
            A[b + 2, j] = (A[b + 2, j] - t2) * inverse
            A[b + 3, j] = (A[b + 3, j] - t3) * inverse
        if not _cholesky_of_block(A[b], A[b + 1], A[b + 2], A[b + 3], b):
            return False
    return True


@compiled
def _cholesky_of_block(A0, A1, A2, A3, b):  # type: ignore[no-untyped-def]
    """The four by four block on the diagonal, once the columns before b are done."""
    s00, s10, s20, s30, s11 = 0.0, 0.0, 0.0, 0.0, 0.0
    s21, s31, s22, s32, s33 = 0.0, 0.0, 0.0, 0.0, 0.0
    for c in range(b):
        a0, a1, a2, a3 = A0[c], A1[c], A2[c], A3[c]
        s00 += a0 * a0
        s10 += a1 * a0
        s20 += a2 * a0
        s30 += a3 * a0
        s11 += a1 * a1
        s21 += a2 * a1
        s31 += a3 * a1
        s22 += a2 * a2
        s32 += a3 * a2
        s33 += a3 * a3
    # Pivots first, and then all roots: a root takes as long as a dozen products, and four of them
    # that don't wait for each other as long as one.
    p0, u10, u20, u30 = A0[b] - s00, A1[b] - s10, A2[b] - s20, A3[b] - s30
    inverse = 1.0 / p0
    m10, m20, m30 = u10 * inverse, u20 * inverse, u30 * inverse
    p1 = A1[b + 1] - s11 - u10 * m10
    u21, u31 = A2[b + 1] - s21 - u20 * m10, A3[b + 1] - s31 - u30 * m10
    inverse = 1.0 / p1
    m21, m31 = u21 * inverse, u31 * inverse
    p2 = A2[b + 2] - s22 - u20 * m20 - u21 * m21
    u32 = A3[b + 2] - s32 - u30 * m20 - u31 * m21
    p3 = A3[b + 3] - s33 - u30 * m30 - u31 * m31 - u32 * u32 / p2
    if not (p0 > 0.0 and p1 > 0.0 and p2 > 0.0 and p3 > 0.0 and p0 + p1 + p2 + p3 < np.inf):
        return False
    l00, l11, l22 = math.sqrt(p0), math.sqrt(p1), math.sqrt(p2)
    A0[b] = l00
    A1[b], A1[b + 1] = u10 / l00, l11
    A2[b], A2[b + 1], A2[b + 2] = u20 / l00, u21 / l11, l22
    A3[b], A3[b + 1], A3[b + 2], A3[b + 3] = u30 / l00, u31 / l11, u32 / l22, math.sqrt(p3)
    return True


@compiled
def solve_lower(L, x, size):  # type: ignore[no-untyped-def]
    """x <- L⁻¹ x."""
    for i in range(size % 4):
        x[i] = (x[i] - product(L[i], x, i)) / L[i, i]
    for i in range(size % 4, size, 4):
        t0, t1, t2, t3 = four_products(L, i, x, 0, i)
        r0, r1, r2, r3 = (
            1.0 / L[i, i], 1.0 / L[i + 1, i + 1], 1.0 / L[i + 2, i + 2], 1.0 / L[i + 3, i + 3]
        )  # fmt: skip
        x0 = (x[i] - t0) * r0
        x1 = (x[i + 1] - t1 - L[i + 1, i] * x0) * r1
        x2 = (x[i + 2] - t2 - L[i + 2, i] * x0 - L[i + 2, i + 1] * x1) * r2
        t3 += L[i + 3, i] * x0 + L[i + 3, i + 1] * x1 + L[i + 3, i + 2] * x2
        x[i], x[i + 1], x[i + 2], x[i + 3] = x0, x1, x2, (x[i + 3] - t3) * r3


@compiled
def solve_lower_transposed(L, x, size):  # type: ignore[no-untyped-def]
    """x <- L⁻ᵀ x."""
    for i in range(size - 1, -1, -1):
        value = x[i] / L[i, i]
        x[i] = value
        for c in range(i):
            x[c] -= value * L[i, c]


@compiled
def solve_two(L, x, y, size):  # type: ignore[no-untyped-def]
    """x <- L⁻¹ x and y <- L⁻¹ y."""
    i = 0
    while i + 4 <= size:
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        y0, y1, y2, y3 = y[i], y[i + 1], y[i + 2], y[i + 3]
        for c in range(i):
            u, v = x[c], y[c]
            x0 -= L[i, c] * u
            y0 -= L[i, c] * v
            x1 -= L[i + 1, c] * u
            y1 -= L[i + 1, c] * v
            x2 -= L[i + 2, c] * u
            y2 -= L[i + 2, c] * v
            x3 -= L[i + 3, c] * u
            y3 -= L[i + 3, c] * v
        inverse = 1.0 / L[i, i]
        x0 *= inverse
        y0 *= inverse
        inverse = 1.0 / L[i + 1, i + 1]
        x1 = (x1 - L[i + 1, i] * x0) * inverse
        y1 = (y1 - L[i + 1, i] * y0) * inverse
        inverse = 1.0 / L[i + 2, i + 2]
        x2 = (x2 - L[i + 2, i] * x0 - L[i + 2, i + 1] * x1) * inverse
        y2 = (y2 - L[i + 2, i] * y0 - L[i + 2, i + 1] * y1) * inverse
        inverse = 1.0 / L[i + 3, i + 3]
        x3 = (x3 - L[i + 3, i] * x0 - L[i + 3, i + 1] * x1 - L[i + 3, i + 2] * x2) * inverse
        y3 = (y3 - L[i + 3, i] * y0 - L[i + 3, i + 1] * y1 - L[i + 3, i + 2] * y2) * inverse
        x[i], x[i + 1], x[i + 2], x[i + 3] = x0, x1, x2, x3
        y[i], y[i + 1], y[i + 2], y[i + 3] = y0, y1, y2, y3
        i += 4
    for r in range(i, size):
        x0, y0 = x[r], y[r]
        for c in range(r):
            x0 -= L[r, c] * x[c]
            y0 -= L[r, c] * y[c]
        inverse = 1.0 / L[r, r]
        x[r], y[r] = x0 * inverse, y0 * inverse


@compiled
def invert_transposed(L, V, size):  # type: ignore[no-untyped-def]
    """V <- L⁻ᵀ, upper triangular; nothing is written below the blocks on its diagonal."""
    b = 0
    while b + 4 <= size:
        V0, V1, V2, V3 = V[b, b:size], V[b + 1, b:size], V[b + 2, b:size], V[b + 3, b:size]
        _invert_block(L[b : b + 4, b : b + 4], V0, V1, V2, V3)
        for i in range(4, size - b):
            row = L[b + i, b:size]
            t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
            for c in range(i):
                v = row[c]
                t0 += v * V0[c]
                t1 += v * V1[c]
                t2 += v * V2[c]
                t3 += v * V3[c]
            inverse = -1.0 / row[i]
            V0[i], V1[i], V2[i], V3[i] = t0 * inverse, t1 * inverse, t2 * inverse, t3 * inverse
        b += 4
    for r in range(b, size):
        for c in range(b, r):
            V[r, c] = 0.0
        V[r, r] = 1.0 / L[r, r]
        for i in range(r + 1, size):
            total = 0.0
            for c in range(r, i):
                total += L[i, c] * V[r, c]
            V[r, i] = -total / L[i, i]


@compiled
def _invert_block(L, V0, V1, V2, V3):  # type: ignore[no-untyped-def]
    """The first four entries of four rows of L⁻ᵀ, L four by four."""
    r0, r1, r2, r3 = 1.0 / L[0, 0], 1.0 / L[1, 1], 1.0 / L[2, 2], 1.0 / L[3, 3]
    v01 = -L[1, 0] * r0 * r1
    v12 = -L[2, 1] * r1 * r2
    v23 = -L[3, 2] * r2 * r3
    v02 = -(L[2, 0] * r0 + L[2, 1] * v01) * r2
    v13 = -(L[3, 1] * r1 + L[3, 2] * v12) * r3
    v03 = -(L[3, 0] * r0 + L[3, 1] * v01 + L[3, 2] * v02) * r3
    V0[0], V0[1], V0[2], V0[3] = r0, v01, v02, v03
    V1[0], V1[1], V1[2], V1[3] = 0.0, r1, v12, v13
    V2[0], V2[1], V2[2], V2[3] = 0.0, 0.0, r2, v23
    V3[0], V3[1], V3[2], V3[3] = 0.0, 0.0, 0.0, r3


@compiled
def gram_of_lower(W, out, size):  # type: ignore[no-untyped-def]
    """out <- W'W for lower triangular W."""
    for a in range(size):
        for b in range(a + 1):
            out[a, b] = 0.0
    for i in range(size):
        for a in range(i + 1):
            weight = W[i, a]
            for b in range(a + 1):
                out[a, b] += weight * W[i, b]
    mirror(out, size)


@compiled
def gram_of_upper(V, out, size):  # type: ignore[no-untyped-def]
    """Lower triangle of out <- V V' for V of `invert_transposed`."""
    a = 0
    while a + 4 <= size:
        for b in range(a + 4):
            t0, t1, t2, t3 = four_products(V, a, V[b, a:size], a, size - a)
            out[a, b], out[a + 1, b], out[a + 2, b], out[a + 3, b] = t0, t1, t2, t3
        a += 4
    for r in range(a, size):
        for b in range(r + 1):
            out[r, b] = product(V[r, r:size], V[b, r:size], size - r)


@compiled
def square_of_lower(L, out, size):  # type: ignore[no-untyped-def]
    """Lower triangle of out <- L L'."""
    first = size % 4
    for r in range(first):
        for b in range(r + 1):
            out[r, b] = product(L[r], L[b], b + 1)
    for a in range(first, size, 4):
        for b in range(a + 4):
            t0, t1, t2, t3 = four_products(L, a, L[b], 0, b + 1)
            out[a, b], out[a + 1, b], out[a + 2, b], out[a + 3, b] = t0, t1, t2, t3


@compiled
def multiply_lower(L, B, out, size):  # type: ignore[no-untyped-def]
    """Lower triangle of out <- L B for lower triangular L and B, B given as its transpose.

    `B` is read on and above the diagonal only, so that columns are rows. L must be zero above it;
    out may be L.
    """
    first = size % 4
    for r in range(first):
        for b in range(r + 1):
            out[r, b] = product(L[r, b:size], B[b, b:size], r + 1 - b)
    for a in range(first, size, 4):
        for b in range(a + 4):
            t0, t1, t2, t3 = four_products(L, a, B[b, b:size], b, a + 4 - b)
            out[a, b], out[a + 1, b], out[a + 2, b], out[a + 3, b] = t0, t1, t2, t3


@compiled
def copy_lower(A, out, size):  # type: ignore[no-untyped-def]
    """Lower triangle of out <- that of A."""
    for a in range(size):
        for b in range(a + 1):
            out[a, b] = A[a, b]
