"""Log density of all holders' statistics under the priors, with its derivatives.

One regression for all of them, and one law of the covariates whose mean they share or not. What is
integrated out, and how, is in `collapsed_prior`; here it is added up over holders.
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
)
from noisewise.analyst.regression.exact.prior import (
    A0,
    KEEPS_SIGMA2,
    LAM,
    MEANS,
    NU,
    SHAPE,
    covariate_prior,
    regression_prior,
    start_scatter,
    take_mean,
)
from noisewise.analyst.regression.triangular import (
    add_gram,
    cholesky,
    invert_triangle,
    mirror,
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
def _own_means(
    J: int,
    private: bool,
    psi: FloatArray,
    E0: FloatArray,
    scalars: FloatArray,
    psi_bar: FloatArray,
    work: FloatArray,
) -> Any:
    """The same where holders have means of their own (`collapsed_prior`).

    With H = -nu_n Psi_n⁻¹ / 2 and dlogp = tr(H dPsi_n), the derivative is H by every A_j,xx,
    -2 H v_j / (lam + n_j) by A_j,x0, and v_j' H v_j / (lam + n_j)² by A_j,00.
    """
    A, C, W, G, H, rows = work[0], work[1], work[3], work[4], work[7], work[8]
    N, nu, lam, k = A[0, 0], scalars[NU], scalars[LAM], E0.shape[0] - 1
    v = rows[2]
    start_scatter(A, E0, psi, float(J), C)
    for j in range(J):
        take_mean(work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j], E0, v, C)
    if not cholesky(C, k):
        return -np.inf
    half_log_det = 0.0
    for a in range(k):
        half_log_det += math.log(C[a, a])
        for b in range(a + 1):
            H[a, b] = 0.0
    invert_triangle(C, k, W)
    add_gram(W, k, -0.5 * (nu + N), H)
    mirror(H, k)
    logp, by_rows = -(nu + N) * half_log_det, -half_log_det
    if private:
        logp += log_covariance(N, k, nu)
        by_rows += log_covariance_slope(N, k, nu)
    for c in range(psi.size):
        psi_bar[c] += psi[c] * H[c, c]
    for a in range(k):
        for b in range(a + 1):
            G[a + 1, b + 1] += H[a, b]
    for j in range(J):
        base = SHARED_BUFFERS + BUFFERS_PER_HOLDER * j
        F, force = work[base], work[base + 2]
        weight = take_mean(F, E0, v, C)  # C is of no more use; v is
        square = 0.0
        for a in range(k):
            image = 0.0
            for b in range(k):
                image += H[a, b] * v[b]
            square += v[a] * image
            force[a + 1, 0] -= 2.0 * image / weight
        force[0, 0] += square / (weight * weight)
        force[0, 1] += by_rows
        if private:
            logp += log_mean(F[0, 1], k, lam)
            force[0, 1] += log_mean_slope(F[0, 1], k, lam)
    return logp


@compiled
def log_prior(
    J: int,
    private: bool,
    psi_rate: FloatArray,
    E0: FloatArray,
    B0: FloatArray,
    scalars: FloatArray,
    extra: FloatArray,
    extra_bar: FloatArray,
    work: FloatArray,
) -> Any:
    """Log density of all A_j under the priors.

    Its derivative by the sum of the A_j goes to G; what is a holder's own is added to its force,
    and what its number of rows does by other ways than A_j is kept in force[0, 1]. `extra` are the
    coordinates that the priors add, `extra_bar` their derivatives.
    """
    A, B, W, G, rows = work[0], work[2], work[3], work[4], work[8]
    keeps_sigma2 = scalars[KEEPS_SIGMA2] > 0.0
    log_sigma2 = extra[0] if keeps_sigma2 else 0.0
    logp, by_rows, by_sigma2 = regression_prior(A, B0, scalars, log_sigma2, B, W, rows[0], G)
    if private:
        logp += log_regression(A[0, 0], scalars[A0], keeps_sigma2)
        by_rows += log_regression_slope(A[0, 0], scalars[A0], keeps_sigma2)
    for j in range(J):
        work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j + 2, 0, 1] = by_rows
    first_psi = 0
    if keeps_sigma2:
        extra_bar[0] = by_sigma2
        first_psi = 1
    psi, psi_bar = work[5, 0, : psi_rate.size], extra_bar[first_psi:]
    power = 0.5 * scalars[NU] + scalars[SHAPE]
    for c in range(psi_rate.size):
        psi[c] = math.exp(extra[first_psi + c])
        logp += power * extra[first_psi + c] - psi_rate[c] * psi[c]
        psi_bar[c] = power - psi_rate[c] * psi[c]
    if scalars[MEANS] > 1.0:
        return logp + _own_means(J, private, psi, E0, scalars, psi_bar, work)
    return logp + _shared_mean(J, private, psi, E0, scalars, psi_bar, work)
