"""The moves of `fixed_s` that account for the noise on the released X'X, compiled.

The covariance of the residuals then depends on theta. theta is still proposed from a normal law,
that of equation (12) with the additional covariance fixed at the closed form's theta, and accepted
with the ratio of the true density to that law's.
"""

from __future__ import annotations

import math

from noisewise.analyst.random_numbers import uniform
from noisewise.analyst.regression.papers.gibbs_linalg import copy
from noisewise.analyst.regression.papers.gibbs_triangular import cholesky, solve_lower
from noisewise.analyst.regression.papers.given_s import log_prior, propose_sigma2, propose_theta
from noisewise.analyst.regression.papers.given_s_compiled import compiled


@compiled
def log_density(holders, fixed, j, theta, sigma2, work):  # type: ignore[no-untyped-def]
    """ln p(ẑ_j, û_j | S̃_j, theta, sigma2) with the noise of S̃_j in the covariance."""
    d = theta.size
    M, e = work.squares[1], work.vectors[2]
    w, S, variance = holders.w[j], fixed.S[j], fixed.S_variance[j]
    quadratic, spread = 0.0, 0.0
    for a in range(d):
        image, K_theta, own = 0.0, 0.0, 0.0
        for b in range(d):
            image += S[a, b] * theta[b]
            own += variance[a, b] * theta[b] * theta[b]
            if b != a:
                K = variance[a, b] * theta[a] * theta[b]
                K_theta += K * theta[b]
                if b < a:
                    M[a, b] = w[a] * w[b] * (sigma2 * S[a, b] + K)
        K_theta += own * theta[a]
        M[a, a] = 1.0 + w[a] * w[a] * (sigma2 * S[a, a] + own)
        M[d, a] = w[a] * (2.0 * sigma2 * image + K_theta)
        e[a] = holders.z[j, a] - w[a] * image
        quadratic += theta[a] * image
        spread += theta[a] * K_theta
    size = d
    if holders.has_u[j]:
        n = holders.n[j]
        M[d, d] = holders.u_variance[j] + sigma2 * (4.0 * quadratic + 2.0 * n * sigma2) + spread
        e[d] = holders.u[j] - quadratic - n * sigma2
        size = d + 1
    if not cholesky(M, size):
        return -math.inf
    solve_lower(M, e, size)
    value = 0.0
    for a in range(size):
        value -= math.log(M[a, a]) + 0.5 * e[a] * e[a]
    return value


@compiled
def _excess(holders, fixed, theta, sigma2, work):  # type: ignore[no-untyped-def]
    """ln of the true density over that of the proposals."""
    J, d = fixed.z.shape
    value = 0.0
    for j in range(J):
        value += log_density(holders, fixed, j, theta, sigma2, work)
        for i in range(d):
            e = work.r[j, i]
            for a in range(d):
                e -= work.H[j, i, a] * theta[a]
            value += 0.5 * e * e
    return value


@compiled
def move_theta_with_noise(  # type: ignore[no-untyped-def]
    rng, holders, fixed, sigma2, prior, theta, beta, work
):  # fmt: skip
    """Move theta in place; returns 1 if accepted."""
    d = theta.size
    Q, m, new = work.squares[0], work.vectors[0], work.vectors[1][:d]
    if not propose_theta(rng, work.H, work.r, sigma2, prior, theta, beta, Q, m, new):
        return 0
    ratio = _excess(holders, fixed, new, sigma2, work)
    ratio -= _excess(holders, fixed, theta, sigma2, work)
    if math.log(uniform(rng)) < ratio:
        copy(new, theta)
        return 1
    return 0


@compiled
def move_sigma2_with_noise(rng, holders, fixed, prior, state, work):  # type: ignore[no-untyped-def]
    """Move sigma2 in place; returns 1 if accepted."""
    J, d = fixed.z.shape
    theta, sigma2 = state.theta, state.sigma2[()]
    new = propose_sigma2(rng, sigma2, math.exp(state.log_steps[1]))
    ratio = log_prior(theta, new, prior, work.vectors[0], d)
    ratio -= log_prior(theta, sigma2, prior, work.vectors[0], d)
    for j in range(J):
        ratio += log_density(holders, fixed, j, theta, new, work)
        ratio -= log_density(holders, fixed, j, theta, sigma2, work)
    if math.log(uniform(rng)) < ratio:
        state.sigma2[()] = new
        return 1
    return 0
