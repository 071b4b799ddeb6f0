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

References
----------
Papandreou & Yuille (2010), Gaussian sampling by local perturbations, NeurIPS. Murray, Adams &
MacKay (2010), Elliptical slice sampling, AISTATS.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise.analyst.random_numbers import fill_normal, laplace_variance, uniform
from noisewise.analyst.regression.papers.gibbs_arrays import CG_EIGEN, DENSE, EIGEN
from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_linalg import congruence_lower, copy
from noisewise.analyst.regression.papers.gibbs_solvers import (
    factor_dense,
    solve_cg,
    solve_dense,
    solve_eigen,
)
from noisewise.analyst.regression.papers.gibbs_triangular import cholesky

_MAX_SHRINK = 60


# --- noise ----------------------------------------------------------------------------------------


@compiled
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


# --- the latent statistics ------------------------------------------------------------------------


@compiled
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


@compiled
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


@compiled
def is_valid(A, scratch):  # type: ignore[no-untyped-def]
    """Whether A is positive definite: S is, and u > z'S⁻¹z."""
    P = A.shape[0]
    for a in range(P):
        for b in range(a + 1):
            scratch[a, b] = A[a, b]
    return cholesky(scratch, P)


@compiled
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
    if mode == DENSE and not factor_dense(n, j, holders, fixed, omega2, work):
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
            solve_dense(n, j, holders, fixed, omega2, S, R, work, out)
        elif large is not None:
            if mode == EIGEN:
                solve_eigen(n, holders.isometric[j], S, R, work, large, out)
            else:
                iterations += solve_cg(
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
