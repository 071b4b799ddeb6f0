"""Triangular matrices for `normal_x`, compiled: what `gibbs_linalg` has not, or not for this size.

As there, inner loops run along rows, and blocks of four rows share their loads. With ten to twenty
columns that is two to three times as fast as a row at a time: sums of so few terms wait for
themselves.
"""

from __future__ import annotations

from noisewise.analyst.samplers.given_s_compiled import compiled


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
        r0, r1 = 1.0 / L[b, b], 1.0 / L[b + 1, b + 1]
        r2, r3 = 1.0 / L[b + 2, b + 2], 1.0 / L[b + 3, b + 3]
        v01 = -L[b + 1, b] * r0 * r1
        v12 = -L[b + 2, b + 1] * r1 * r2
        v23 = -L[b + 3, b + 2] * r2 * r3
        v02 = -(L[b + 2, b] * r0 + L[b + 2, b + 1] * v01) * r2
        v13 = -(L[b + 3, b + 1] * r1 + L[b + 3, b + 2] * v12) * r3
        v03 = -(L[b + 3, b] * r0 + L[b + 3, b + 1] * v01 + L[b + 3, b + 2] * v02) * r3
        V[b, b], V[b, b + 1], V[b, b + 2], V[b, b + 3] = r0, v01, v02, v03
        V[b + 1, b], V[b + 1, b + 1], V[b + 1, b + 2], V[b + 1, b + 3] = 0.0, r1, v12, v13
        V[b + 2, b], V[b + 2, b + 1], V[b + 2, b + 2], V[b + 2, b + 3] = 0.0, 0.0, r2, v23
        V[b + 3, b], V[b + 3, b + 1], V[b + 3, b + 2], V[b + 3, b + 3] = 0.0, 0.0, 0.0, r3
        for i in range(b + 4, size):
            t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
            for c in range(b, i):
                v = L[i, c]
                t0 += v * V[b, c]
                t1 += v * V[b + 1, c]
                t2 += v * V[b + 2, c]
                t3 += v * V[b + 3, c]
            inverse = -1.0 / L[i, i]
            V[b, i], V[b + 1, i] = t0 * inverse, t1 * inverse
            V[b + 2, i], V[b + 3, i] = t2 * inverse, t3 * inverse
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
def gram_of_upper(V, out, size):  # type: ignore[no-untyped-def]
    """Lower triangle of out <- V V' for V of `invert_transposed`."""
    a = 0
    while a + 4 <= size:
        for b in range(a + 4):
            t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
            for c in range(a, size):
                v = V[b, c]
                t0 += V[a, c] * v
                t1 += V[a + 1, c] * v
                t2 += V[a + 2, c] * v
                t3 += V[a + 3, c] * v
            out[a, b], out[a + 1, b], out[a + 2, b], out[a + 3, b] = t0, t1, t2, t3
        a += 4
    for r in range(a, size):
        for b in range(r + 1):
            total = 0.0
            for c in range(r, size):
                total += V[r, c] * V[b, c]
            out[r, b] = total


@compiled
def multiply_lower(L, B, out, size):  # type: ignore[no-untyped-def]
    """Lower triangle of out <- L B for lower triangular L and B, B in both triangles.

    That is, B[b, c] = B[c, b], so that its columns are rows. L must be zero above the diagonal.
    """
    a = 0
    while a + 4 <= size:
        for b in range(a + 4):
            t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
            for c in range(b, a + 4):
                v = B[b, c]
                t0 += L[a, c] * v
                t1 += L[a + 1, c] * v
                t2 += L[a + 2, c] * v
                t3 += L[a + 3, c] * v
            out[a, b], out[a + 1, b], out[a + 2, b], out[a + 3, b] = t0, t1, t2, t3
        a += 4
    for r in range(a, size):
        for b in range(r + 1):
            total = 0.0
            for c in range(b, r + 1):
                total += L[r, c] * B[b, c]
            out[r, b] = total


@compiled
def square_of_lower(L, out, size):  # type: ignore[no-untyped-def]
    """Lower triangle of out <- L L'."""
    a = 0
    while a + 4 <= size:
        for b in range(a + 4):
            t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
            for c in range(b + 1):
                v = L[b, c]
                t0 += L[a, c] * v
                t1 += L[a + 1, c] * v
                t2 += L[a + 2, c] * v
                t3 += L[a + 3, c] * v
            out[a, b], out[a + 1, b], out[a + 2, b], out[a + 3, b] = t0, t1, t2, t3
        a += 4
    for r in range(a, size):
        for b in range(r + 1):
            total = 0.0
            for c in range(b + 1):
                total += L[r, c] * L[b, c]
            out[r, b] = total


@compiled
def copy_lower(A, out, size):  # type: ignore[no-untyped-def]
    """Lower triangle of out <- that of A."""
    for a in range(size):
        for b in range(a + 1):
            out[a, b] = A[a, b]
