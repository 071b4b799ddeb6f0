"""The system of equations in the draw of a holder's latent statistics, compiled.

Perturb and solve (`gibbs_statistics`) needs s + nCov (nCov + Omega)⁻¹ r for one r. Four ways, for
normal covariates:

- dense: a Cholesky factor of nCov + Omega, O(P^6). Best for few columns, and the only one for
  covariates that are given by their fourth moments;
- eigen: Gaussian noise in the isometric layout is a multiple of the identity, so that the system
  is diagonal in G's eigenbasis up to a term of rank one, O(P^3);
- cg_jacobi, cg_eigen: conjugate gradients with one of two preconditioners, O(P^3) an iteration.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_eigen import eigen
from noisewise.analyst.regression.papers.gibbs_linalg import (
    congruence,
    congruence_transposed,
    copy,
    fill,
    inner,
    quadratic_form,
)
from noisewise.analyst.regression.papers.gibbs_triangular import (
    cholesky,
    solve_lower,
    solve_lower_transposed,
)
from noisewise.analyst.regression.papers.moments_formulas import normal_covariance

_MAX_CG = 1000


@compiled
def factor_dense(n, j, holders, fixed, omega2, work):  # type: ignore[no-untyped-def]
    """Factor the covariance nCov + Omega of the released values."""
    size = holders.n_observed[j]
    which = holders.observed[j]
    C = work.C
    if fixed is None:
        normal_covariance(work.G, work.m, holders.rows, holders.columns, which, size, n, C)
    else:
        for i in range(size):
            for c in range(i + 1):
                C[i, c] = n * work.covariance[which[i], which[c]]
    for i in range(size):
        C[i, i] += omega2[holders.rows[which[i]], holders.columns[which[i]]]
    return cholesky(C, size)


@compiled
def _apply_covariance(n, Y, work, out):  # type: ignore[no-untyped-def]
    """out <- 2n (GYG - (m'Ym) mm'): nCov applied to <Y, ww'>, normal x."""
    P = Y.shape[0]
    m = work.m
    congruence(work.G, Y, out, work.squares[1], P)
    middle = quadratic_form(m, Y, P)
    for a in range(P):
        for b in range(a + 1):
            out[a, b] = 2.0 * n * (out[a, b] - middle * m[a] * m[b])
            out[b, a] = out[a, b]


@compiled
def solve_dense(n, j, holders, fixed, omega2, S, R, work, out):  # type: ignore[no-untyped-def]
    """out <- S + nCov (nCov + Omega)⁻¹ R with the factor that `factor_dense` left."""
    P = S.shape[0]
    size = holders.n_observed[j]
    which = holders.observed[j]
    x = work.x
    for i in range(size):
        x[i] = R[holders.rows[which[i]], holders.columns[which[i]]]
    solve_lower(work.C, x, size)
    solve_lower_transposed(work.C, x, size)
    if not holders.complete[j]:
        if fixed is None:
            Y = work.squares[0]
            fill(Y, 0.0)
            for i in range(size):
                a, b = holders.rows[which[i]], holders.columns[which[i]]
                Y[a, b] += 0.5 * x[i]
                Y[b, a] += 0.5 * x[i]
            _apply_covariance(n, Y, work, out)
            for a in range(P):
                for b in range(P):
                    out[a, b] += S[a, b]
        else:
            for r in range(holders.rows.size):
                total = 0.0
                for i in range(size):
                    total += work.covariance[r, which[i]] * x[i]
                a, b = holders.rows[r], holders.columns[r]
                out[a, b] = S[a, b] + n * total
                out[b, a] = out[a, b]
    # For released entries s + nCov x = s + r - Omega x, which is exact where Omega = 0.
    for i in range(size):
        a, b = holders.rows[which[i]], holders.columns[which[i]]
        out[a, b] = S[a, b] + R[a, b] - omega2[a, b] * x[i]
        out[b, a] = out[a, b]
    out[0, 0] = n


@compiled
def decompose(work, large):  # type: ignore[no-untyped-def]
    """Eigen-decomposition of G for the solvers that want it."""
    P = work.G.shape[0]
    scratch = work.squares[1]
    copy(work.G, scratch)
    return eigen(scratch, large.V, large.values, large.vectors[1:], P)


@compiled
def _rotate_mean(work, large):  # type: ignore[no-untyped-def]
    """E[w] in the eigenbasis, into large.vectors[0]."""
    P = work.m.size
    for i in range(P):
        total = 0.0
        for c in range(P):
            total += large.V[i, c] * work.m[c]
        large.vectors[0, i] = total


@compiled
def solve_eigen(n, variance, S, R, work, large, out):  # type: ignore[no-untyped-def]
    """Isometric Gaussian noise: nCov + variance is diagonal in G's eigenbasis but for mm'.

    In svec coordinates nCov is Y -> 2n (GYG - (m'Ym) mm') and the noise is a multiple of the
    identity. Divide by 2n lambda_i lambda_j + variance in the eigenbasis; Sherman-Morrison does
    the rest. O(P^3).
    """
    P = S.shape[0]
    V, values, rotated = large.V, large.values, large.vectors[0]
    X, scratch = large.squares[0], work.squares[1]
    congruence(V, R, X, scratch, P)
    _rotate_mean(work, large)
    along = 0.0
    norm = 0.0
    for i in range(P):
        for c in range(P):
            inverse = 1.0 / (2.0 * n * values[i] * values[c] + variance)
            vv = rotated[i] * rotated[c]
            X[i, c] *= inverse
            along += vv * X[i, c]
            norm += vv * vv * inverse
    factor = 2.0 * n * along / (1.0 - 2.0 * n * norm)
    for i in range(P):
        for c in range(P):
            inverse = 1.0 / (2.0 * n * values[i] * values[c] + variance)
            X[i, c] += factor * rotated[i] * rotated[c] * inverse
    congruence_transposed(V, X, out, scratch, P)
    for a in range(P):
        for b in range(P):
            out[a, b] = S[a, b] + R[a, b] - variance * out[a, b]
    out[0, 0] = n


@compiled
def solve_cg(n, by_eigen, scale, omega2, S, R, tolerance, work, large, out):  # type: ignore[no-untyped-def]
    """Preconditioned conjugate gradients, O(P^3) an iteration; returns their number.

    The unknown is a symmetric Y that stands for the functional <Y, ww'>. Half of an off-diagonal
    coefficient sits in each triangle, so that its noise term is 2 omega2. Two preconditioners:

    - the diagonal of nCov + Omega, best where noise dominates;
    - `by_eigen`: nCov plus isometric noise, without the rank-one term, which is diagonal in G's
      eigenbasis (the iteration runs in that basis). Best where Cov dominates or noise is normal;
      for complete releases only. The constant (0, 0) gets a fictitious noise: it has no covariance
      with anything and its residual is 0, so it stays 0.
    """
    P = S.shape[0]
    G, m, V, values, rotated = work.G, work.m, large.V, large.values, large.vectors[0]
    scratch, squares = work.squares[1], large.squares
    Y, r, z, p = squares[0], squares[1], squares[2], squares[3]
    q, inverse, noise = squares[4], squares[5], squares[6]
    logs = 0.0
    count = 0
    for a in range(P):
        for b in range(P):
            off = 1.0 if a == b else 2.0
            released = scale[a, b] < np.inf and a + b > 0
            noise[a, b] = off * omega2[a, b] if released else 0.0
            if by_eigen:
                if noise[a, b] > 0.0:
                    logs += math.log(noise[a, b])
                    count += 1
            else:
                sampling = G[a, a] * G[b, b] + G[a, b] * G[a, b] - 2.0 * (m[a] * m[b]) ** 2
                inverse[a, b] = 1.0 / (off * n * sampling + noise[a, b]) if released else 0.0
                r[a, b] = R[a, b]
    typical = math.exp(logs / count) if count > 0 else 0.0
    if by_eigen:
        noise[0, 0] = typical
        _rotate_mean(work, large)
        for a in range(P):
            for b in range(P):
                inverse[a, b] = 1.0 / (2.0 * n * values[a] * values[b] + typical)
        congruence(V, R, r, scratch, P)
    for a in range(P):
        for b in range(P):
            Y[a, b] = 0.0
            z[a, b] = inverse[a, b] * r[a, b]
            p[a, b] = z[a, b]
    size = inner(r, z, P)
    goal = tolerance * tolerance * size
    iterations = 0
    while size > goal and iterations < _MAX_CG:
        iterations += 1
        step = 0.0
        if by_eigen:
            congruence_transposed(V, p, out, scratch, P)
            for a in range(P):
                for b in range(P):
                    out[a, b] *= noise[a, b]
            congruence(V, out, q, scratch, P)
            middle = 2.0 * n * quadratic_form(rotated, p, P)
            for a in range(P):
                for b in range(P):
                    q[a, b] += 2.0 * n * values[a] * values[b] * p[a, b]
                    q[a, b] -= middle * rotated[a] * rotated[b]
                    step += p[a, b] * q[a, b]
        else:
            _apply_covariance(n, p, work, q)
            for a in range(P):
                for b in range(P):
                    q[a, b] = (q[a, b] + noise[a, b] * p[a, b]) if inverse[a, b] > 0.0 else 0.0
                    step += p[a, b] * q[a, b]
        step = size / step
        new = 0.0
        for a in range(P):
            for b in range(P):
                Y[a, b] += step * p[a, b]
                r[a, b] -= step * q[a, b]
                z[a, b] = inverse[a, b] * r[a, b]
                new += r[a, b] * z[a, b]
        ratio = new / size
        size = new
        for a in range(P):
            for b in range(P):
                p[a, b] = z[a, b] + ratio * p[a, b]
    if by_eigen:
        congruence_transposed(V, Y, q, scratch, P)
        for a in range(P):
            for b in range(P):
                out[a, b] = S[a, b] + R[a, b] - noise[a, b] * q[a, b]
    else:
        _apply_covariance(n, Y, work, out)
        for a in range(P):
            for b in range(P):
                if inverse[a, b] > 0.0:
                    out[a, b] = S[a, b] + R[a, b] - noise[a, b] * Y[a, b]
                else:
                    out[a, b] += S[a, b]
    out[0, 0] = n
    return iterations
