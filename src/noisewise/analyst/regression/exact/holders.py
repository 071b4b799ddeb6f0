"""Log density of all holders' statistics under the priors, with its derivatives.

One regression for all of them, and one law of the covariates or one for each. What is integrated
out, and how, is in `prior` and `own_laws`; here it is added up over holders.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.exact.factor import BUFFERS_PER_HOLDER, SHARED_BUFFERS
from noisewise.analyst.regression.exact.normalisers import (
    log_covariance,
    log_covariance_slope,
    log_mean,
    log_mean_slope,
    log_regression,
    log_regression_slope,
    log_scale_free,
    log_scale_free_slope,
)
from noisewise.analyst.regression.exact.own_laws import log_own_laws
from noisewise.analyst.regression.exact.prior import (
    A0,
    HALF_T,
    INDICATORS,
    KEEPS_SIGMA2,
    LAM,
    NU,
    OWN_LAWS,
    PSI_POWER,
    SCALE_FREE,
    covariate_prior,
    regression_prior,
    scale_free_regression,
)
from noisewise.analyst.regression.triangular import (
    add_gram,
    cholesky,
    gram_entry,
    invert_triangle,
    relative_factor,
    triangle_product,
)


@compiled
def _shared_mean(
    J: int,
    private: bool,
    psi: FloatArray,
    E0: FloatArray,
    scalars: FloatArray,
    psi_bar: FloatArray,
    work: FloatArray,
) -> Any:
    """Log density of all rows' covariates, where holders share their mean; see `log_prior`."""
    A, E, W, G, pull = work[0], work[1], work[3], work[4], work[7]
    N, nu, lam, k = A[0, 0], scalars[NU], scalars[LAM], E0.shape[0] - 1
    for a in range(k + 1):
        for b in range(a + 1):
            pull[a, b] = 0.0
    logp, by_rows = covariate_prior(A, E0, psi, nu, E, W, pull)
    if private:
        logp += log_covariance(N, k, nu) + log_mean(N, k, lam)
        by_rows += log_covariance_slope(N, k, nu) + log_mean_slope(N, k, lam)
    for c in range(psi.size):
        psi_bar[c] += psi[c] * pull[c + 1, c + 1]
    for a in range(k + 1):
        for b in range(a + 1):
            G[a, b] += pull[a, b]
    for j in range(J):
        work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j + 2, 0, 1] += by_rows
    return logp


@compiled
def pooled_factor(J: int, work: FloatArray) -> Any:
    """Cholesky factor C of the sum of the A_j; False if there is none.

    A_j = n_j F_j F_j' and F_j = R K_j with R the reference's factor, so C = R M, M the Cholesky
    factor of Σ n_j K_j K_j', which is well conditioned where the A_j are not: a column that the
    others nearly explain keeps the digits of what they leave of it.
    """
    R, C, M, K = work[SHARED_BUFFERS], work[10], work[11], work[6]
    P = R.shape[0]
    for a in range(P):
        for b in range(a + 1):
            M[a, b] = 0.0
    if J == 1:
        root = math.sqrt(R[0, 1])
        for a in range(P):
            M[a, a] = root
            for b in range(a + 1):
                C[a, b] = root * R[a, b]
        return True
    for j in range(J):
        F = work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j]
        relative_factor(R, F, K)
        for a in range(P):
            for b in range(a + 1):
                M[a, b] += F[0, 1] * gram_entry(K, a, b)
    if not cholesky(M, P):
        return False
    triangle_product(R, M, C)
    return True


@compiled
def pooled_adjoint(
    j: int, J: int, S: FloatArray, V: FloatArray, W: FloatArray, Fbar: FloatArray, work: FloatArray
) -> Any:
    """Add to Fbar_j what is due to S, dlogp = tr(S C⁻¹ dA C⁻ᵀ); return what is due to n_j.

    dA = n (dF F' + F dF') + F F' dn, so that Fbar = 2 n C⁻ᵀ S V with V = C⁻¹ F = M⁻¹ R⁻¹ F, and
    tr(S V V') is the derivative by n. C⁻ᵀ is applied last: what is near zero stays exact.
    """
    R, C, M = work[SHARED_BUFFERS], work[10], work[11]
    F = work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j]
    P, n = F.shape[0], F[0, 1]
    if J == 1:
        for a in range(P):
            for b in range(a + 1):
                V[a, b] = 0.0
            V[a, a] = 1.0 / M[a, a]
    else:
        relative_factor(R, F, W)
        relative_factor(M, W, V)
    by_rows = 0.0
    for a in range(P - 1, -1, -1):  # row a of S V, then of C⁻ᵀ S V from the bottom up
        if J == 1:  # V is diagonal
            for b in range(a + 1):
                W[a, b] = S[a, b] * V[b, b]
        else:
            for b in range(a + 1):
                W[a, b] = 0.0
            for c in range(P):
                s = S[a, c] if c <= a else S[c, a]
                for b in range(min(a, c) + 1):
                    W[a, b] += s * V[c, b]
        for b in range(a + 1):
            by_rows += W[a, b] * V[a, b]
            W[a, b] *= 2.0 * n
        for c in range(a + 1, P):
            above = C[c, a]
            for b in range(a + 1):
                W[a, b] -= above * W[c, b]
        inverse = 1.0 / C[a, a]
        for b in range(a + 1):
            W[a, b] *= inverse
            Fbar[a, b] += W[a, b]
    return by_rows


@compiled
def _flat_mean(
    J: int,
    private: bool,
    psi: FloatArray,
    scalars: FloatArray,
    psi_bar: FloatArray,
    work: FloatArray,
) -> Any:
    """`_shared_mean` for a flat mean, from the Cholesky factor C of the sum of the A_j.

    Beyond its first column C is the factor L of the covariates' scatter, and with Q = L⁻¹ and
    I + Q Psi Q' = B B' one has |Psi + L L'| = |L|² |B|². Its derivative is added to S
    (`pooled_adjoint`): no digit is lost where columns are narrow or correlated.

    The law of the first `tied` covariates, indicators, is divided out: nu is smaller by the number
    of the others in it, and its determinant is that of the leading blocks of L and B.
    """
    Q, B, W, C, S = work[1], work[2], work[3], work[10], work[12]
    N, k, tied = work[0, 0, 0], psi.size, int(scalars[INDICATORS])
    nu_n = scalars[NU] + N
    others = k - tied
    if J == 1:  # C is sqrt(N) times the reference, whose inverse `log_precisions` has left
        root = 1.0 / math.sqrt(N)
        for a in range(k):
            for c in range(a + 1):
                Q[a, c] = root * work[9, a, c]
    else:
        invert_triangle(C[1:, 1:], k, Q)
    for a in range(k):
        for c in range(a + 1):
            W[a, c] = Q[a, c] * psi[c]
        for b in range(a + 1):
            total = 0.0
            for c in range(b + 1):
                total += W[a, c] * Q[b, c]
            B[a, b] = total
        B[a, a] += 1.0
    if not cholesky(B, k):
        return -np.inf
    half_log_det, tied_log_det = 0.0, 0.0
    for a in range(k):
        if a == tied:
            tied_log_det = half_log_det
        half_log_det += math.log(C[a + 1, a + 1] * B[a, a])
    if tied == k:
        tied_log_det = half_log_det
    relative_factor(B[:k, :k], Q, W)  # W = B⁻¹ Q, and (Psi + L L')⁻¹ = W' W
    for c in range(k):
        total = 0.0
        for a in range(c, k):
            total += (others if a < tied else nu_n) * W[a, c] * W[a, c]
        psi_bar[c] -= 0.5 * psi[c] * total
    invert_triangle(B, k, W)
    add_gram(W, k, -0.5 * nu_n, S[1:, 1:])
    add_gram(W, tied, 0.5 * (nu_n - others), S[1:, 1:])
    logp = -nu_n * half_log_det + (nu_n - others) * tied_log_det
    by_rows = tied_log_det - half_log_det
    if private:
        nu = scalars[NU]
        logp += log_covariance(N, k, nu) + log_mean(N, others, 0.0)
        logp -= log_covariance(N, tied, nu - others)
        by_rows += log_covariance_slope(N, k, nu) + log_mean_slope(N, others, 0.0)
        by_rows -= log_covariance_slope(N, tied, nu - others)
    for j in range(J):
        work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j + 2, 0, 1] += by_rows
    return logp


@compiled
def log_prior(
    rows: FloatArray,
    private: bool,
    psi_rate: FloatArray,
    E0: FloatArray,
    B0: FloatArray,
    scalars: FloatArray,
    sigma_nodes: FloatArray,
    omega_nodes: FloatArray,
    extra: FloatArray,
    extra_bar: FloatArray,
    work: FloatArray,
) -> Any:
    """Log density of all A_j under the priors.

    Its derivative by the sum of the A_j goes to G, or to S (`pooled_adjoint`); what is a holder's
    own is added to its force, and what its number of rows does by other ways than A_j is kept in
    force[0, 1]. `extra` are the coordinates that the priors add, `extra_bar` their derivatives.
    `rows` are rough numbers of rows, for the coordinates of `own_laws`.
    """
    J = rows.size
    A, B, W, G, scratch = work[0], work[2], work[3], work[4], work[8]
    own_laws = scalars[OWN_LAWS] > 0.0
    flat = scalars[LAM] == 0.0 and not own_laws
    if (flat or scalars[SCALE_FREE] > 0.0) and not pooled_factor(J, work):
        return -np.inf
    work[12, :] = 0.0
    keeps_sigma2 = scalars[KEEPS_SIGMA2] > 0.0
    log_sigma2 = extra[0] if keeps_sigma2 else 0.0
    by_sigma2 = 0.0
    if scalars[SCALE_FREE] > 0.0:
        G[:] = 0.0
        logp, by_rows = scale_free_regression(
            A[0, 0],
            work[10],
            B0[-1],
            scalars[HALF_T],
            sigma_nodes,
            omega_nodes,
            scratch[0],
            work[12],
        )
        if private:
            logp += log_scale_free(A[0, 0])
            by_rows += log_scale_free_slope(A[0, 0])
    else:
        logp, by_rows, by_sigma2 = regression_prior(A, B0, scalars, log_sigma2, B, W, scratch[0], G)
        if private:
            logp += log_regression(A[0, 0], scalars[A0], keeps_sigma2)
            by_rows += log_regression_slope(A[0, 0], scalars[A0], keeps_sigma2)
    for j in range(J):
        work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j + 2, 0, 1] = by_rows
    first_psi = 0
    if keeps_sigma2:
        extra_bar[0] = by_sigma2
        first_psi = 1
    if own_laws:
        return logp + log_own_laws(
            extra[first_psi:], extra_bar[first_psi:], rows, psi_rate, E0, scalars, work
        )
    psi, psi_bar = work[5, 0, : psi_rate.size], extra_bar[first_psi:]
    others = psi_rate.size - scalars[INDICATORS]
    for c in range(psi_rate.size):
        power = scalars[PSI_POWER]
        if c < scalars[INDICATORS]:
            power -= 0.5 * (scalars[NU] + 1.0 - others)
        psi[c] = math.exp(extra[first_psi + c])
        logp += power * extra[first_psi + c] - psi_rate[c] * psi[c]
        psi_bar[c] = power - psi_rate[c] * psi[c]
    if flat:
        return logp + _flat_mean(J, private, psi, scalars, psi_bar, work)
    return logp + _shared_mean(J, private, psi, E0, scalars, psi_bar, work)
