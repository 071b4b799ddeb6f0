"""The draw of a holder's latent statistics given everything else, compiled.

**The draw of A_j.** By the central limit theorem A_j ~ N(nE[ww'], nCov[ww']) on its unique
entries; noise is normal given omega2; so the conditional is normal, restricted to the set V of
positive definite matrices (which is also u > z'S⁻¹z). It is drawn by *perturb and solve*: with
s ~ N(nE, nCov) and r = released - s - noise, the draw is s + nCov (nCov + Omega)⁻¹ r. That needs
one system of equations, no inverse of Cov or Omega, and takes exact entries (Omega = 0) and entries
that were not released without special cases.

**Why rejection keeps the target right.** Draws outside V are rejected and drawn again, at most
`tries` times; then one step of elliptical slice sampling from the current A_j, with fresh normal
variables, replaces the draw. Let pi be the normal law restricted to V and p its probability of V,
both given everything but A_j. The kernel is then

    A' ~ (1 - (1 - p)^tries) pi + (1 - p)^tries K(A, .)

where K is the elliptical slice kernel, which leaves pi invariant. The weights depend on what is
conditioned on but *not on the current A_j*, so the mixture leaves pi invariant too, whatever
`tries` is. Three things would break this: a starting A_j outside V (so `init` makes it valid);
letting the number of tries depend on the current A_j; and reusing a rejected proposal as the slice
sampler's normal variable, for given its rejection it is no longer normal. Keeping A_j as it is
would also be right (K the identity), but a chain near the boundary would freeze. Projecting a
draw on V, as the paper does, is not: it puts atoms on the boundary.

Four ways to solve the equations, for normal covariates:

- dense: a Cholesky factor of nCov + Omega, O(P^6). Best for few columns, and the only one for
  covariates that are given by their fourth moments;
- eigen: Gaussian noise in the isometric layout is a multiple of the identity, so that the system
  is diagonal in G's eigenbasis up to a term of rank one, O(P^3);
- cg_jacobi, cg_eigen: conjugate gradients with one of two preconditioners, O(P^3) an iteration.

References
----------
Papandreou & Yuille (2010), Gaussian sampling by local perturbations, NeurIPS. Murray, Adams &
MacKay (2010), Elliptical slice sampling, AISTATS.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.models.moments import normal_covariance
from noisewise.analyst.samplers.gibbs_linalg import (
    FASTMATH,
    cholesky,
    congruence,
    congruence_lower,
    congruence_transposed,
    copy,
    eigen,
    fill,
    inner,
    quadratic_form,
    solve_lower,
    solve_lower_transposed,
)
from noisewise.analyst.samplers.gibbs_random import fill_normal, laplace_variance, uniform

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)

DENSE, EIGEN, CG_JACOBI, CG_EIGEN = 0, 1, 2, 3

_MAX_CG = 1000
_MAX_SHRINK = 60


class Holders(NamedTuple):
    """The observations, in the form the compiled functions take."""

    n: FloatArray  # (J,)
    laplace: NDArray[np.bool_]  # (J,)
    values: FloatArray  # (J, P, P)
    scale: FloatArray  # (J, P, P), 0: known, inf: not released
    mode: IndexArray  # (J,)
    observed: IndexArray  # (J, q), positions of the released entries among the unique ones
    n_observed: IndexArray  # (J,)
    complete: NDArray[np.bool_]  # (J,), every entry released
    isometric: FloatArray  # (J,), noise variance in the isometric layout, where mode is EIGEN
    rows: IndexArray  # (q,), row of each unique entry
    columns: IndexArray  # (q,)


class Fixed(NamedTuple):
    """Covariate moments that do not change, for `gibbs_prior` and `gibbs_noisy`."""

    eta: FloatArray  # (d, d)
    xi: FloatArray  # (qv, qv)
    root: FloatArray  # (qv, qv), root root' = xi
    eta_root: FloatArray  # (d, d), lower triangular root of eta
    positions_v: IndexArray  # (d, d)
    positions_w: IndexArray  # (P, P)


class Work(NamedTuple):
    """Scratch space of one thread."""

    rng: NDArray[np.uint64]  # (4,)
    counts: IndexArray  # (3,), the iteration's Info
    F: FloatArray  # (P, P), lower triangular, FF' = G
    G: FloatArray  # (P, P), E[ww']
    m: FloatArray  # (P,), E[w]
    squares: FloatArray  # (6, P, P)
    vectors: FloatArray  # (2, P)
    C: FloatArray  # (q, q), covariance of the released entries, then its factor
    covariance: FloatArray  # (q, q), Cov[ww'] with fixed covariate moments
    once: FloatArray  # (qv, d)
    x: FloatArray  # (q,)
    g: FloatArray  # (q,)


class Large(NamedTuple):
    """Scratch space of one thread for the solvers of large problems.

    Small problems are given None instead. The compiled functions then have no trace of these
    solvers, which cuts the time of compilation by half.
    """

    V: FloatArray  # (P, P), eigenvectors of G in rows
    values: FloatArray  # (P,), eigenvalues of G
    squares: FloatArray  # (7, P, P)
    vectors: FloatArray  # (4, P)


# --- compiled: noise ------------------------------------------------------------------------------


@_jit
def draw_noise_variances(rng, holders, A, omega2):  # type: ignore[no-untyped-def]
    """omega2_j | A_j for the holders with Laplace noise (Algorithm 1, line 6)."""
    P = A.shape[1]
    for j in range(A.shape[0]):
        if not holders.laplace[j]:
            continue
        for a in range(P):
            for b in range(a, P):
                scale = holders.scale[j, a, b]
                if 0.0 < scale < np.inf:
                    q = abs(holders.values[j, a, b] - A[j, a, b]) / scale
                    omega2[j, a, b] = scale * scale * laplace_variance(rng, q)
                    omega2[j, b, a] = omega2[j, a, b]


# --- compiled: the latent statistics --------------------------------------------------------------


@_jit
def _draw_clt_normal(rng, n, work, out):  # type: ignore[no-untyped-def]
    """A ~ N(nG, nCov) for normal x: nG + sqrt(n) F H F', H symmetric with H_00 = 0.

    H has variance 2 on the diagonal and 1 off it. With F = [m, L] this is
    sqrt(n) (L H L' + m h' + h m'), whose covariance is 2n (GYG - (m'Ym) mm') as an operator.
    """
    P = out.shape[0]
    H, scratch = work.squares[0], work.squares[1]
    root = math.sqrt(n)
    H[0, 0] = 0.0
    for a in range(1, P):
        fill_normal(rng, H[a], a + 1)
        H[a, a] *= math.sqrt(2.0)
        for b in range(a):
            H[b, a] = H[a, b]
    congruence_lower(work.F, H, out, scratch, P)
    for a in range(P):
        for b in range(P):
            out[a, b] = n * work.G[a, b] + root * out[a, b]


@_jit
def _draw_clt_fixed(rng, n, fixed, theta, sigma2, work, out):  # type: ignore[no-untyped-def]
    """A ~ N(nE, nCov) for covariates with fixed moments.

    With e = y - v'theta the sums of vv', ve and e² are uncorrelated, so they are drawn
    separately: vv' ~ (n eta, n xi), ve ~ (0, n sigma2 eta), e² ~ (n sigma2, 2 n sigma2²). Then
    z = S theta + v'e and u = theta'S theta + 2 theta'v'e + e'e are linear in them.
    """
    d = theta.size
    root = math.sqrt(n)
    size = fixed.root.shape[0]
    fill_normal(rng, work.g, size)
    for i in range(d):
        for j in range(i, d):
            position = fixed.positions_v[i, j]
            total = 0.0
            if position >= 0:
                for c in range(size):
                    total += fixed.root[position, c] * work.g[c]
            out[i, j] = n * fixed.eta[i, j] + root * total
            out[j, i] = out[i, j]
    out[0, 0] = n
    fill_normal(rng, work.g, d + 1)
    scale = math.sqrt(n * sigma2)
    u = n * sigma2 + math.sqrt(2.0 * n) * sigma2 * work.g[d]
    for i in range(d):
        ve = 0.0
        for b in range(i + 1):
            ve += scale * fixed.eta_root[i, b] * work.g[b]
        fitted = 0.0
        for b in range(d):
            fitted += out[i, b] * theta[b]
        out[i, d] = fitted + ve
        out[d, i] = out[i, d]
        u += theta[i] * (fitted + 2.0 * ve)
    out[d, d] = u


@_jit
def _factor_dense(n, j, holders, fixed, omega2, work):  # type: ignore[no-untyped-def]
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


@_jit
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


@_jit
def _solve_dense(n, j, holders, fixed, omega2, S, R, work, out):  # type: ignore[no-untyped-def]
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


@_jit
def decompose(work, large):  # type: ignore[no-untyped-def]
    """Eigen-decomposition of G for the solvers that want it."""
    P = work.G.shape[0]
    scratch = work.squares[1]
    copy(work.G, scratch)
    v = large.vectors
    return eigen(scratch, large.V, large.values, v[1], v[2], v[3], P)


@_jit
def _rotate_mean(work, large):  # type: ignore[no-untyped-def]
    """E[w] in the eigenbasis, into large.vectors[0]."""
    P = work.m.size
    for i in range(P):
        total = 0.0
        for c in range(P):
            total += large.V[i, c] * work.m[c]
        large.vectors[0, i] = total


@_jit
def _solve_eigen(n, variance, S, R, work, large, out):  # type: ignore[no-untyped-def]
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


@_jit
def _solve_cg(n, by_eigen, scale, omega2, S, R, tolerance, work, large, out):  # type: ignore[no-untyped-def]
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


@_jit
def is_valid(A, scratch):  # type: ignore[no-untyped-def]
    """Whether A is positive definite: S is, and u > z'S⁻¹z."""
    P = A.shape[0]
    for a in range(P):
        for b in range(a + 1):
            scratch[a, b] = A[a, b]
    return cholesky(scratch, P)


@_jit
def draw_statistics(  # type: ignore[no-untyped-def]
    rng, j, holders, fixed, large, theta, sigma2, A, omega2, tries, tolerance, work
):
    """A_j | everything else, in place. Returns (rejected, exhausted, solver iterations).

    Attempts 0, ..., tries - 1 are draws that may be accepted. If none is valid, the next gives the
    normal variables of an elliptical slice step, and the last one the mean of the normal law.
    """
    P = A.shape[0]
    n = holders.n[j]
    scratch, S, R = work.squares[1], work.squares[2], work.squares[3]
    candidate, mean = work.squares[4], work.squares[5]
    mode = holders.mode[j]
    if mode == DENSE and not _factor_dense(n, j, holders, fixed, omega2, work):
        return 0, 1, 0  # keeps A_j: right, because this did not depend on A_j
    iterations = 0
    for attempt in range(tries + 2):
        perturb = 1.0 if attempt <= tries else 0.0
        out = candidate if attempt <= tries else mean
        if perturb == 0.0:
            for a in range(P):
                for b in range(P):
                    S[a, b] = n * work.G[a, b]
        elif fixed is None:
            _draw_clt_normal(rng, n, work, S)
        else:
            _draw_clt_fixed(rng, n, fixed, theta, sigma2, work, S)
        R[0, 0] = 0.0
        for a in range(1, P):
            fill_normal(rng, R[a], a + 1)
            for b in range(a + 1):
                noise = perturb * math.sqrt(omega2[a, b]) * R[a, b]
                R[a, b] = 0.0
                if holders.scale[j, a, b] < np.inf:
                    R[a, b] = holders.values[j, a, b] - S[a, b] - noise
                R[b, a] = R[a, b]
        if mode == DENSE:
            _solve_dense(n, j, holders, fixed, omega2, S, R, work, out)
        elif large is not None:
            if mode == EIGEN:
                _solve_eigen(n, holders.isometric[j], S, R, work, large, out)
            else:
                iterations += _solve_cg(
                    n, mode == CG_EIGEN, holders.scale[j], omega2, S, R, tolerance, work, large, out
                )
        if attempt < tries and is_valid(candidate, scratch):
            copy(candidate, A)
            return attempt, 0, iterations
    # Elliptical slice sampling: A' = mean + (A - mean) cos + (draw - mean) sin.
    angle = 2.0 * math.pi * uniform(rng)
    low, high = angle - 2.0 * math.pi, angle
    for _ in range(_MAX_SHRINK):
        cosine, sine = math.cos(angle), math.sin(angle)
        for a in range(P):
            for b in range(P):
                S[a, b] = (
                    mean[a, b]
                    + (A[a, b] - mean[a, b]) * cosine
                    + (candidate[a, b] - mean[a, b]) * sine
                )
        if is_valid(S, scratch):
            copy(S, A)
            break
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * uniform(rng)
    return tries, 1, iterations
