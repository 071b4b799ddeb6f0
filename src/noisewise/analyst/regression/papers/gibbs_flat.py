"""The statistics given theta and the releases, with a flat prior on the covariates' part of them.

Write S = Σ vv', v = (1, x), c = Σ v e and q = Σ e² with e = y - v'theta, so that z = S theta + c
and u = theta'S theta + 2 theta'c + q. Two steps, each of which leaves the joint law of
`gibbs_noisy_aware` invariant.

**(c, q) | S.** Independence Metropolis from the normal approximation of q.

**S | c, q.** Given omega2, c, q and theta, the releases are linear in S with normal noise, so their
conditional for S is normal: a diagonal (the noise of S) and d + 1 further observations (z and u).
What is not normal, v(S) = |S|^(-1/2) (q - c'S⁻¹c)^((n-d)/2 - 1) on positive definite S, is left to
the Metropolis ratio. Proposals mean + r (S - mean) + sqrt(1 - r²) noise, which leave the normal
factor invariant (preconditioned Crank-Nicolson), are made for r = 0 (a new S), 0.8 and 0.98, so
that some are accepted in every regime.

References
----------
Cotter, Roberts, Stuart & White (2013), MCMC methods for functions, Statistical Science 28(3),
doi:10.1214/13-STS421.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.random_numbers import fill_normal, laplace_variance, uniform
from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_triangular import (
    cholesky,
    solve_lower,
    solve_lower_transposed,
)

PERSISTENCE = (0.0, 0.8, 0.98)
_HUGE = 1e30  # noise variance that stands for "not released"


class Fourth(NamedTuple):
    """Degree 1 and 2 of the released fourth moments, in the form the compiled functions take."""

    values: FloatArray  # (J, qv), in the order of S's unique entries
    scale: FloatArray  # (J,), inf: the holder released no fourth moments
    laplace: NDArray[np.bool_]  # (J,)
    rows: NDArray[np.int64]  # (qv,)
    columns: NDArray[np.int64]  # (qv,)


class Buffers(NamedTuple):
    """Scratch space of one thread."""

    L: FloatArray  # (d, d), factor of S
    L_new: FloatArray  # (d, d)
    C: FloatArray  # (P, P)
    mean: FloatArray  # (qv,)
    variance: FloatArray  # (qv,)
    S_mean: FloatArray  # (qv,)
    S_new: FloatArray  # (qv,)
    g: FloatArray  # (max(qv, P),)
    c: FloatArray  # (d,)
    x: FloatArray  # (P,)
    w: FloatArray  # (P,)
    r: FloatArray  # (P,)


def make_buffers(P: int) -> Buffers:
    """Scratch space for P columns."""
    d, size = P - 1, P * (P - 1) // 2 - 1
    return Buffers(
        L=np.zeros((d, d)), L_new=np.zeros((d, d)), C=np.zeros((P, P)), mean=np.zeros(size),
        variance=np.zeros(size), S_mean=np.zeros(size), S_new=np.zeros(size),
        g=np.zeros(max(size, P)), c=np.zeros(d), x=np.zeros(P), w=np.zeros(P), r=np.zeros(P),
    )  # fmt: skip


@compiled
def draw_fourth_variances(rng, fourth, A, omega2):  # type: ignore[no-untyped-def]
    """omega2_j | S_j of the fourth moments, for the holders with Laplace noise."""
    for j in range(A.shape[0]):
        scale = fourth.scale[j]
        if fourth.laplace[j] and 0.0 < scale < np.inf:
            for e in range(fourth.rows.size):
                gap = abs(fourth.values[j, e] - A[j, fourth.rows[e], fourth.columns[e]])
                omega2[j, e] = scale * scale * laplace_variance(rng, gap / scale)


@compiled
def _factor_leading(A, L):  # type: ignore[no-untyped-def]
    for a in range(L.shape[0]):
        for b in range(a + 1):
            L[a, b] = A[a, b]
    return cholesky(L, L.shape[0])


@compiled
def _noise_of_y(scale, omega2, a):  # type: ignore[no-untyped-def]
    d = scale.shape[0] - 1
    return omega2[a, d] if scale[a, d] < np.inf else _HUGE


@compiled
def draw_y(rng, n, values, scale, omega2, theta, sigma2, A, buffers):  # type: ignore[no-untyped-def]
    """(z, u) | S, theta, sigma2 and the releases: one independence Metropolis step. 1 if it moved.

    Proposed as if q were N(n sigma2, 2 n sigma2²), independent of c, so that (z, u) is normal;
    accepted by the ratio of q's true density to that normal one.
    """
    d = theta.size
    L, C, g, x, w = buffers.L, buffers.C, buffers.g, buffers.x, buffers.w
    if not _factor_leading(A, L):
        return 0
    # Row sums S theta into w, and the covariance of (z, u) plus noise into C.
    fitted = 0.0
    for a in range(d):
        total = 0.0
        for b in range(d):
            total += A[a, b] * theta[b]
            if b <= a:
                C[a, b] = sigma2 * A[a, b]
        C[a, a] += _noise_of_y(scale, omega2, a)
        w[a] = total
        fitted += theta[a] * total
        C[d, a] = 2.0 * sigma2 * total
    spread = 2.0 * n * sigma2 * sigma2
    C[d, d] = 4.0 * sigma2 * fitted + spread + _noise_of_y(scale, omega2, d)
    if not cholesky(C, d + 1):
        return 0
    # A draw of (c, q), then of the release it would give, then the solution for the difference.
    fill_normal(rng, g, d + 1)
    q = n * sigma2 + math.sqrt(spread) * g[d]
    c = buffers.c
    across = 0.0
    for a in range(d):
        total = 0.0
        for b in range(a + 1):
            total += L[a, b] * g[b]
        c[a] = math.sqrt(sigma2) * total
        across += theta[a] * c[a]
    fill_normal(rng, g, d + 1)
    for a in range(d):
        x[a] = values[a, d] - w[a] - c[a] - math.sqrt(_noise_of_y(scale, omega2, a)) * g[a]
    x[d] = values[d, d] - fitted - 2.0 * across - q
    x[d] -= math.sqrt(_noise_of_y(scale, omega2, d)) * g[d]
    solve_lower(C, x, d + 1)
    solve_lower_transposed(C, x, d + 1)
    # Cov(c, (z, u)) = sigma2 (S, 2 S theta), Cov(q, (z, u)) = (0, 2 n sigma2²).
    for a in range(d):
        total = 2.0 * w[a] * x[d]
        for b in range(d):
            total += A[a, b] * x[b]
        c[a] += sigma2 * total
    q += spread * x[d]
    old_q = A[d, d] - fitted
    for a in range(d):
        g[a] = A[a, d] - w[a]
        old_q -= 2.0 * theta[a] * g[a]
    ratio = _q_weight(n, d, q, c, sigma2, L, x) - _q_weight(n, d, old_q, g, sigma2, L, x)
    if not math.log(uniform(rng)) < ratio:
        return 0
    u = fitted + q
    for a in range(d):
        A[a, d] = w[a] + c[a]
        A[d, a] = A[a, d]
        u += 2.0 * theta[a] * c[a]
    A[d, d] = u
    return 1


@compiled
def _residual(q, c, L, x):  # type: ignore[no-untyped-def]
    """q - c'S⁻¹c."""
    d = c.size
    for a in range(d):
        x[a] = c[a]
    solve_lower(L, x, d)
    for a in range(d):
        q -= x[a] * x[a]
    return q


@compiled
def _q_weight(n, d, q, c, sigma2, L, x):  # type: ignore[no-untyped-def]
    """Log ratio of the density of q | c to N(n sigma2, 2 n sigma2²)."""
    rho = _residual(q, c[:d], L, x)
    if not rho > 0.0:
        return -np.inf
    normal = (q - n * sigma2) ** 2 / (4.0 * n * sigma2 * sigma2)
    return (0.5 * (n - d) - 1.0) * math.log(rho) - 0.5 * rho / sigma2 + normal


@compiled
def _s_weight(n, d, q, c, L, x):  # type: ignore[no-untyped-def]
    """Log of |S|^(-1/2) (q - c'S⁻¹c)^((n-d)/2 - 1)."""
    rho = _residual(q, c, L, x)
    if not rho > 0.0:
        return -np.inf
    log_determinant = 0.0
    for a in range(d):
        log_determinant += math.log(L[a, a])
    return (0.5 * (n - d) - 1.0) * math.log(rho) - log_determinant


@compiled
def _condition_s(n, values, scale, omega2, theta, q, fourth, perturb, rng, buffers, out):  # type: ignore[no-untyped-def]
    """S | c, q, theta and the releases, were it normal: a draw, or the mean if perturb = 0.

    buffers.C holds the factor of the covariance of the released (z, u) given c and q.
    """
    d = theta.size
    x, g, r, c = buffers.x, buffers.g, buffers.r, buffers.c
    size = fourth.rows.size
    fill_normal(rng, g, size)
    for a in range(d + 1):
        x[a] = 0.0
    x[0] = n * theta[0]
    x[d] = n * theta[0] * theta[0]
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        out[e] = buffers.mean[e] + perturb * math.sqrt(buffers.variance[e]) * g[e]
        x[a] += out[e] * theta[b]
        x[d] += out[e] * theta[a] * theta[b]
        if a != b:
            x[b] += out[e] * theta[a]
            x[d] += out[e] * theta[a] * theta[b]
    fill_normal(rng, r, d + 1)
    across = 0.0
    for a in range(d):
        across += theta[a] * c[a]
        noise = math.sqrt(_noise_of_y(scale, omega2, a))
        x[a] = values[a, d] - x[a] - c[a] - perturb * noise * r[a]
    noise = math.sqrt(_noise_of_y(scale, omega2, d))
    x[d] = values[d, d] - x[d] - 2.0 * across - q - perturb * noise * r[d]
    solve_lower(buffers.C, x, d + 1)
    solve_lower_transposed(buffers.C, x, d + 1)
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        along = theta[b] * x[a] + theta[a] * theta[b] * x[d]
        if a != b:
            along += theta[a] * x[b] + theta[a] * theta[b] * x[d]
        out[e] += buffers.variance[e] * along


@compiled
def draw_s(  # type: ignore[no-untyped-def]
    rng, n, values, scale, omega2, theta, A, j, fourth, omega2_fourth, buffers
):
    """S | c, q, theta and the releases, by Metropolis steps; returns how many were accepted."""
    d = theta.size
    size = fourth.rows.size
    L, L_new, C, c, x = buffers.L, buffers.L_new, buffers.C, buffers.c, buffers.x
    mean, variance = buffers.mean, buffers.variance
    # The two observations of each entry of S, put together.
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        if scale[a, b] == 0.0:
            mean[e] = values[a, b]
            variance[e] = 0.0
            continue
        weight = 1.0 / omega2[a, b] if scale[a, b] < np.inf else 0.0
        total = weight * values[a, b]
        if fourth.scale[j] < np.inf:
            weight += 1.0 / omega2_fourth[e]
            total += fourth.values[j, e] / omega2_fourth[e]
        mean[e] = total / weight
        variance[e] = 1.0 / weight
    # c and q, which stay fixed.
    q = A[d, d]
    for a in range(d):
        total = 0.0
        for b in range(d):
            total += A[a, b] * theta[b]
        c[a] = A[a, d] - total
        q -= theta[a] * (total + 2.0 * c[a])
    # Covariance of the released (z, u) given c and q.
    for a in range(d + 1):
        for b in range(a):
            C[a, b] = 0.0
        C[a, a] = _noise_of_y(scale, omega2, a)
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        v = variance[e]
        both = theta[a] * theta[b]
        if a == b:
            C[a, a] += v * both
            C[d, a] += v * theta[a] * both
            C[d, d] += v * both * both
        else:
            C[a, a] += v * theta[b] * theta[b]
            C[b, b] += v * theta[a] * theta[a]
            C[b, a] += v * both
            C[d, a] += 2.0 * v * theta[b] * both
            C[d, b] += 2.0 * v * theta[a] * both
            C[d, d] += 4.0 * v * both * both
    if not cholesky(C, d + 1):
        return 0
    _condition_s(n, values, scale, omega2, theta, q, fourth, 0.0, rng, buffers, buffers.S_mean)
    if not _factor_leading(A, L):
        return 0
    old = _s_weight(n, d, q, c, L, x)
    accepted = 0
    for r in PERSISTENCE:
        _condition_s(n, values, scale, omega2, theta, q, fourth, 1.0, rng, buffers, buffers.S_new)
        spread = math.sqrt(1.0 - r * r)
        L_new[0, 0] = n
        for e in range(size):
            a, b = fourth.rows[e], fourth.columns[e]
            middle = buffers.S_mean[e]
            value = middle + r * (A[a, b] - middle) + spread * (buffers.S_new[e] - middle)
            buffers.S_new[e] = value
            L_new[b, a] = value
        new = _s_weight(n, d, q, c, L_new, x) if cholesky(L_new, d) else -np.inf
        if math.log(uniform(rng)) < new - old:
            accepted += 1
            old = new
            for e in range(size):
                a, b = fourth.rows[e], fourth.columns[e]
                A[a, b] = buffers.S_new[e]
                A[b, a] = buffers.S_new[e]
    u = q
    for a in range(d):
        total = 0.0
        for b in range(d):
            total += A[a, b] * theta[b]
        A[a, d] = total + c[a]
        A[d, a] = A[a, d]
        u += theta[a] * (total + 2.0 * c[a])
    A[d, d] = u
    return accepted
