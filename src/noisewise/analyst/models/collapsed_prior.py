"""The conjugate priors with their parameters integrated out: log density of the total statistics.

With E = [[lam, lam m'], [lam m, Psi + lam m m']] + A[:d, :d] and B = [[Lam0, Lam0 mu0],
[., 2 b0 + mu0' Lam0 mu0]] + A one has ln|Psi_n| = ln|E| - ln(lam + N), Lam_n = B[:d, :d] and
2 b_n = |B| / |Lam_n|, so that two Cholesky factorisations do everything.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise.analyst.models.compiled import compiled
from noisewise.analyst.models.triangular import add_gram, cholesky, invert_triangle, trace

# Places in the array of scalars. CONSTANT collects all that depends on nothing latent; SMOOTHING is
# that of the Laplace law's kinks, in units of the noise scale.
CONSTANT, NU, LAM, KEEPS_SIGMA2, A0, B0_SIGMA2, SMOOTHING, SHAPE, SCALARS = range(9)


@compiled
def log_variance(F, a):  # type: ignore[no-untyped-def]
    """Log variance of column a of a holder with factor F."""
    total = 0.0
    for b in range(1, a + 1):
        total += F[a, b] * F[a, b]
    return math.log(total)


@compiled
def log_residual_variance(F):  # type: ignore[no-untyped-def]
    """Log of what is left of the variance of y, the last column, given the others."""
    return 2.0 * math.log(F[F.shape[0] - 1, F.shape[0] - 1])


@compiled
def prior_matrices(A, E0, B0, psi, t, E, B):  # type: ignore[no-untyped-def]
    """Cholesky factors of E and B (see the module) into E and B; False if A is impossible."""
    P = A.shape[0]
    for a in range(P):
        for b in range(a + 1):
            B[a, b] = B0[a, b] + t * A[a, b]
            if a < P - 1:
                E[a, b] = E0[a, b] + A[a, b]
    for c in range(psi.size):
        E[c + 1, c + 1] += psi[c]
    return cholesky(E, P - 1) and cholesky(B, P)


@compiled
def collapsed_prior(  # type: ignore[no-untyped-def]
    A, E0, B0, psi_rate, scalars, extra, extra_bar, E, B, W, v, psi, G
):
    """Log marginal density of the rows given their A, and G with dlogp = tr(G dA), lower triangle.

    `extra` are the coordinates that the priors add: ln sigma2 if it is kept, ln psi if Psi is not
    fixed; their derivatives go to `extra_bar`. Also returns the derivative by the number of rows N
    in the exponents, which comes on top of that by A_00 = N. `log_marginal` is left to the caller.
    """
    P = A.shape[0]
    d = P - 1
    keeps_sigma2 = scalars[KEEPS_SIGMA2] > 0.0
    nu_n, a_n, b0 = scalars[NU] + A[0, 0], scalars[A0] + 0.5 * A[0, 0], scalars[B0_SIGMA2]
    psi_power = 0.5 * scalars[NU] + scalars[SHAPE]
    first_psi = 1 if keeps_sigma2 else 0
    log_sigma2 = extra[0] if keeps_sigma2 else 0.0
    t = math.exp(-log_sigma2)
    logp = 0.0
    for c in range(psi_rate.size):
        psi[c] = math.exp(extra[first_psi + c])
        logp += psi_power * extra[first_psi + c] - psi_rate[c] * psi[c]
    if not prior_matrices(A, E0, B0, psi[: psi_rate.size], t, E, B):
        return -np.inf, 0.0
    half_log_det = 0.0  # of Psi_n: E's first pivot is lam + N
    for a in range(1, d):
        half_log_det += math.log(E[a, a])
        logp -= math.log(B[a, a])
    logp -= nu_n * half_log_det + math.log(B[0, 0])
    slope = 0.5 * nu_n / (E[0, 0] * E[0, 0]) - half_log_det
    schur = B[d, d] * B[d, d]
    if keeps_sigma2:
        log_b = log_sigma2
        logp -= 0.5 * schur + b0 * t
        weight = 0.5 * t
    else:
        log_b = math.log(0.5 * schur)
        weight = a_n / schur
    logp -= a_n * log_b
    slope -= 0.5 * log_b
    for a in range(P):
        for b in range(a + 1):
            G[a, b] = 0.0
    invert_triangle(E, d, W)
    add_gram(W, d, -0.5 * nu_n, G)
    for c in range(psi_rate.size):
        extra_bar[first_psi + c] = psi[c] * (G[c + 1, c + 1] - psi_rate[c]) + psi_power
    if keeps_sigma2:
        extra_bar[0] = b0 * t - a_n + trace(G, A)
    invert_triangle(B, d, W)
    add_gram(W, d, -0.5 * t, G)
    # v = (-mu_n, 1): the last row of B's factor is (R⁻¹ z)', and mu_n = R⁻ᵀ R⁻¹ z.
    for b in range(d):
        v[b] = 0.0
    for a in range(d):
        r = B[d, a]
        for b in range(a + 1):
            v[b] -= r * W[a, b]
    v[d] = 1.0
    for a in range(P):
        scaled = weight * v[a]
        for b in range(a + 1):
            G[a, b] -= scaled * v[b]
    if keeps_sigma2:
        extra_bar[0] -= trace(G, A)
    return logp, slope
