"""Dense linear algebra for the compiled samplers, on buffers that the caller owns.

Loops are written out instead of calling BLAS and LAPACK: matrices are small (at most about a
hundred rows), nothing is allocated, and chains run in threads of their own, where a BLAS with
threads of its own fights them (an eigen-decomposition of a 101 by 101 matrix took 34 ms instead
of 1.1 ms with two BLAS threads on two cores). All inner loops run along rows; blocks of four or
eight rows share their loads. Symmetric results are written into both triangles.
"""

from __future__ import annotations

from noisewise.analyst.regression.exact.triangular import mirror
from noisewise.analyst.regression.papers.gibbs_compiled import compiled, inlined


@inlined
def product(x, y, count):  # type: ignore[no-untyped-def]
    """Inner product of the first `count` entries."""
    total = 0.0
    for c in range(count):
        total += x[c] * y[c]
    return total


@inlined
def four_products(A, a, x, first, count):  # type: ignore[no-untyped-def]
    """Inner products of x with `count` entries from `first` on of rows a, ..., a + 3 of A."""
    stop = first + count
    A0, A1 = A[a, first:stop], A[a + 1, first:stop]
    A2, A3 = A[a + 2, first:stop], A[a + 3, first:stop]
    t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
    for c in range(count):
        v = x[c]
        t0 += A0[c] * v
        t1 += A1[c] * v
        t2 += A2[c] * v
        t3 += A3[c] * v
    return t0, t1, t2, t3


@compiled
def copy(A, out):  # type: ignore[no-untyped-def]
    """out <- A for arrays of one shape. A slice assignment would compile its error message."""
    source, target = A.reshape(-1), out.reshape(-1)
    for i in range(source.size):
        target[i] = source[i]


@compiled
def fill(out, value):  # type: ignore[no-untyped-def]
    """Set all entries of a contiguous array."""
    target = out.reshape(-1)
    for i in range(target.size):
        target[i] = value


@compiled
def multiply(A, B, out, size):  # type: ignore[no-untyped-def]
    """out <- A B."""
    for i in range(size):
        for j in range(size):
            out[i, j] = 0.0
        c = 0
        while c + 8 <= size:
            a0, a1, a2, a3 = A[i, c], A[i, c + 1], A[i, c + 2], A[i, c + 3]
            a4, a5, a6, a7 = A[i, c + 4], A[i, c + 5], A[i, c + 6], A[i, c + 7]
            for j in range(size):
                out[i, j] += (
                    a0 * B[c, j]
                    + a1 * B[c + 1, j]
                    + a2 * B[c + 2, j]
                    + a3 * B[c + 3, j]
                    + a4 * B[c + 4, j]
                    + a5 * B[c + 5, j]
                    + a6 * B[c + 6, j]
                    + a7 * B[c + 7, j]
                )
            c += 8
        while c < size:
            a = A[i, c]
            for j in range(size):
                out[i, j] += a * B[c, j]
            c += 1


@compiled
def _rows_by_rows(A, B, out, size, triangular):  # type: ignore[no-untyped-def]
    """out <- A B', known to be symmetric; B lower triangular if `triangular`."""
    first = size % 4
    for r in range(first):
        for j in range(r + 1):
            out[r, j] = product(A[r], B[j], j + 1 if triangular else size)
    for i in range(first, size, 4):
        for j in range(i + 4):
            reach = j + 1 if triangular else size
            t0, t1, t2, t3 = four_products(A, i, B[j], 0, reach)
            out[i, j], out[i + 1, j], out[i + 2, j], out[i + 3, j] = t0, t1, t2, t3
    mirror(out, size)


@compiled
def congruence(A, Y, out, scratch, size):  # type: ignore[no-untyped-def]
    """out <- A Y A' for symmetric Y."""
    multiply(A, Y, scratch, size)
    _rows_by_rows(scratch, A, out, size, False)


@compiled
def congruence_transposed(A, Y, out, scratch, size):  # type: ignore[no-untyped-def]
    """out <- A' Y A for symmetric Y."""
    multiply(Y, A, scratch, size)
    for i in range(size):
        for j in range(i + 1):
            out[i, j] = 0.0
        c = 0
        while c + 8 <= size:
            a0, a1, a2, a3 = A[c, i], A[c + 1, i], A[c + 2, i], A[c + 3, i]
            a4, a5, a6, a7 = A[c + 4, i], A[c + 5, i], A[c + 6, i], A[c + 7, i]
            for j in range(i + 1):
                out[i, j] += (
                    a0 * scratch[c, j]
                    + a1 * scratch[c + 1, j]
                    + a2 * scratch[c + 2, j]
                    + a3 * scratch[c + 3, j]
                    + a4 * scratch[c + 4, j]
                    + a5 * scratch[c + 5, j]
                    + a6 * scratch[c + 6, j]
                    + a7 * scratch[c + 7, j]
                )
            c += 8
        while c < size:
            a = A[c, i]
            for j in range(i + 1):
                out[i, j] += a * scratch[c, j]
            c += 1
    mirror(out, size)


@compiled
def congruence_lower(F, H, out, scratch, size):  # type: ignore[no-untyped-def]
    """out <- F H F' for lower triangular F and symmetric H."""
    for i in range(size):
        for j in range(size):
            scratch[i, j] = 0.0
        c = 0
        while c + 4 <= i + 1:
            f0, f1, f2, f3 = F[i, c], F[i, c + 1], F[i, c + 2], F[i, c + 3]
            for j in range(size):
                scratch[i, j] += (
                    f0 * H[c, j] + f1 * H[c + 1, j] + f2 * H[c + 2, j] + f3 * H[c + 3, j]
                )
            c += 4
        while c <= i:
            f = F[i, c]
            for j in range(size):
                scratch[i, j] += f * H[c, j]
            c += 1
    _rows_by_rows(scratch, F, out, size, True)


@compiled
def inner(A, B, size):  # type: ignore[no-untyped-def]
    """Frobenius inner product."""
    total = 0.0
    for i in range(size):
        for j in range(size):
            total += A[i, j] * B[i, j]
    return total


@compiled
def quadratic_form(m, Y, size):  # type: ignore[no-untyped-def]
    """m' Y m."""
    total = 0.0
    for i in range(size):
        row = 0.0
        for j in range(size):
            row += Y[i, j] * m[j]
        total += m[i] * row
    return total
