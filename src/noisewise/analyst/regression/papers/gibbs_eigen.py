"""Eigen-decomposition of a symmetric matrix for the compiled Gibbs kernels, without allocation.

Householder reduction, then implicit QL: the classical pair of EISPACK, with the vectors in rows so
that every rotation runs along memory. Matrices of a hundred rows do not fit into the first-level
cache, so each pass over one does as much as possible: a reflection is applied and the next one's
product taken at once. Rotations wait for their angles rather than for memory: putting several into
one pass gained nothing.

References
----------
Martin, Reinsch & Wilkinson (1968), Householder's tridiagonalization of a symmetric matrix,
Numerische Mathematik 11, doi:10.1007/BF02161841. Dubrulle, Martin & Wilkinson (1968), The implicit
QL algorithm, Numerische Mathematik 12, doi:10.1007/BF02165404.
"""

from __future__ import annotations

import math

from noisewise.analyst.regression.papers.gibbs_compiled import compiled

_EPSILON = 2.3e-16
_QL_SWEEPS = 60


@compiled
def eigen(A, V, values, work, size):  # type: ignore[no-untyped-def]
    """Eigen-decomposition A = V' diag(values) V of symmetric A (destroyed); eigenvectors are rows.

    `work` has shape (3, size) or more. False if QL does not converge.
    """
    _tridiagonalise(A, values, work, size)
    _accumulate(A, V, work[1], size)
    return _implicit_ql(values, work[0], V, size)


@compiled
def _reflector(A, k, d, e, size):  # type: ignore[no-untyped-def]
    """The reflection that clears row k right of its neighbour: its vector there, tau on A_kk."""
    d[k] = A[k, k]
    alpha = A[k, k + 1]
    square = 0.0
    for j in range(k + 2, size):
        square += A[k, j] * A[k, j]
    if square == 0.0:
        e[k] = alpha
        A[k, k] = 0.0
        A[k, k + 1] = 1.0
        return 0.0
    norm = math.sqrt(alpha * alpha + square)
    beta = -norm if alpha > 0.0 else norm
    tau = (beta - alpha) / beta
    scale = 1.0 / (alpha - beta)
    e[k] = beta
    for j in range(k + 2, size):
        A[k, j] *= scale
    A[k, k + 1] = 1.0
    A[k, k] = tau
    return tau


@compiled
def _tridiagonalise(A, d, work, size):  # type: ignore[no-untyped-def]
    """Diagonals into d and work[0]; row k of A keeps the k-th reflection."""
    e, w, p = work[0], work[1], work[2]
    if size > 2:
        tau = _reflector(A, 0, d, e, size)
        for i in range(1, size):
            total = 0.0
            for j in range(1, size):
                total += A[i, j] * A[0, j]
            p[i] = tau * total
    for k in range(size - 2):
        tau = A[k, k]
        overlap = 0.0
        for i in range(k + 1, size):
            overlap += p[i] * A[k, i]
        half = 0.5 * tau * overlap
        for i in range(k + 1, size):
            w[i] = p[i] - half * A[k, i]
        # A -= v w' + w v': the next row first, which gives the next reflection; the other rows
        # are then updated and multiplied by it in one pass.
        i = k + 1
        x0, y0 = A[k, i], w[i]
        for j in range(k + 1, size):
            A[i, j] -= x0 * w[j] + y0 * A[k, j]
        following = _reflector(A, i, d, e, size) if k < size - 3 else 0.0
        n = k + 1
        i = k + 2
        while i + 4 <= size:
            x0, x1, x2, x3 = A[k, i], A[k, i + 1], A[k, i + 2], A[k, i + 3]
            y0, y1, y2, y3 = w[i], w[i + 1], w[i + 2], w[i + 3]
            t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
            for j in range(k + 2, size):
                a = w[j]
                b = A[k, j]
                x = A[n, j]
                a0 = A[i, j] - (x0 * a + y0 * b)
                a1 = A[i + 1, j] - (x1 * a + y1 * b)
                a2 = A[i + 2, j] - (x2 * a + y2 * b)
                a3 = A[i + 3, j] - (x3 * a + y3 * b)
                A[i, j] = a0
                A[i + 1, j] = a1
                A[i + 2, j] = a2
                A[i + 3, j] = a3
                t0 += a0 * x
                t1 += a1 * x
                t2 += a2 * x
                t3 += a3 * x
            p[i], p[i + 1] = following * t0, following * t1
            p[i + 2], p[i + 3] = following * t2, following * t3
            i += 4
        while i < size:
            x0, y0 = A[k, i], w[i]
            t0 = 0.0
            for j in range(k + 2, size):
                a0 = A[i, j] - (x0 * w[j] + y0 * A[k, j])
                A[i, j] = a0
                t0 += a0 * A[n, j]
            p[i] = following * t0
            i += 1
    if size > 1:
        d[size - 2] = A[size - 2, size - 2]
        e[size - 2] = A[size - 2, size - 1]
    d[size - 1] = A[size - 1, size - 1]
    e[size - 1] = 0.0


@compiled
def _accumulate(A, V, v, size):  # type: ignore[no-untyped-def]
    """V <- the product of the reflections in A's rows."""
    for i in range(size):
        for j in range(size):
            V[i, j] = 0.0
        V[i, i] = 1.0
    for k in range(size - 3, -1, -1):
        tau = A[k, k]
        if tau == 0.0:
            continue
        for j in range(k + 1, size):
            v[j] = A[k, j]
        # Row k + 1 is still that of the identity matrix.
        for j in range(k + 1, size):
            V[k + 1, j] -= tau * v[j]
        i = k + 2
        while i + 4 <= size:
            t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
            for j in range(k + 2, size):
                x = v[j]
                t0 += V[i, j] * x
                t1 += V[i + 1, j] * x
                t2 += V[i + 2, j] * x
                t3 += V[i + 3, j] * x
            t0, t1, t2, t3 = tau * t0, tau * t1, tau * t2, tau * t3
            for j in range(k + 1, size):
                x = v[j]
                V[i, j] -= t0 * x
                V[i + 1, j] -= t1 * x
                V[i + 2, j] -= t2 * x
                V[i + 3, j] -= t3 * x
            i += 4
        while i < size:
            t0 = 0.0
            for j in range(k + 2, size):
                t0 += V[i, j] * v[j]
            t0 *= tau
            for j in range(k + 1, size):
                V[i, j] -= t0 * v[j]
            i += 1


@compiled
def _implicit_ql(d, e, V, size):  # type: ignore[no-untyped-def]
    for low in range(size):
        sweeps = 0
        while True:
            high = low
            while high < size - 1 and abs(e[high]) > _EPSILON * (abs(d[high]) + abs(d[high + 1])):
                high += 1
            if high == low:
                break
            sweeps += 1
            if sweeps > _QL_SWEEPS:
                return False
            g = (d[low + 1] - d[low]) / (2.0 * e[low])
            r = math.sqrt(g * g + 1.0)
            g = d[high] - d[low] + e[low] / (g + (r if g >= 0.0 else -r))
            s, c, p = 1.0, 1.0, 0.0
            split = False
            for i in range(high - 1, low - 1, -1):
                f = s * e[i]
                b = c * e[i]
                r = math.sqrt(f * f + g * g)
                e[i + 1] = r
                if r == 0.0:  # the matrix fell apart: start over on the smaller block
                    d[i + 1] -= p
                    e[high] = 0.0
                    split = True
                    break
                s = f / r
                c = g / r
                g = d[i + 1] - p
                r = (d[i] - g) * s + 2.0 * c * b
                p = s * r
                d[i + 1] = g + p
                g = c * r - b
                for j in range(size):
                    x = V[i + 1, j]
                    y = V[i, j]
                    V[i + 1, j] = s * y + c * x
                    V[i, j] = c * y - s * x
            if not split:
                d[low] -= p
                e[low] = g
                e[high] = 0.0
    return True
