"""Exact draws of what was integrated out, given the latent statistics."""

from __future__ import annotations

import math

from noisewise.analyst.models.collapsed_factor import (
    BUFFERS_PER_HOLDER,
    SHARED_BUFFERS,
    total_statistics,
)
from noisewise.analyst.models.collapsed_prior import (
    KEEPS_SIGMA2,
    factor_covariates,
    factor_regression,
    log_residual_variance,
    log_variance,
)
from noisewise.analyst.models.compiled import compiled
from noisewise.analyst.models.triangular import gram_entry


@compiled
def conjugate_draws(  # type: ignore[no-untyped-def]
    x, normal, gamma, normal_mu, normal_T, chi, n, values, known, relative, polar,
    E0, B0, psi_rate, scalars, centre, scale, work, theta, sigma2, mean, mu, T,
):  # fmt: skip
    """One draw of (theta, sigma2, mu, T) given each row of x, by conjugacy, and mu_n into `mean`.

    theta | sigma2 ~ N(mu_n, sigma2 Lam_n⁻¹), sigma2 ~ IG(a_n, b_n) and T ~ IW(nu_n, Psi_n),
    mu | T ~ N(m_n, T / (lam + N)). The random numbers come from outside: `normal` (draws, d)
    standard and `gamma` (draws,) of shape a_n; for each of L laws of the covariates `normal_mu`
    (draws, L, k) standard, `normal_T` (draws, L, k, k) standard below the diagonal, `chi`
    (draws, L, k) with nu_n - i degrees of freedom in column i. If `mu` has no rows, mu and T are
    not drawn.
    """
    P = values.shape[1]
    d = P - 1
    keeps_sigma2 = scalars[KEEPS_SIGMA2] > 0.0
    A, B, own = work[0], work[2], work[4]
    psi = work[5, 0, : psi_rate.size]
    for i in range(x.shape[0]):
        end = total_statistics(x[i], n, known, values, relative, polar, centre, scale, work)
        t = 1.0
        if keeps_sigma2:
            coordinate = centre[end] + scale[end] * x[i, end]
            t = math.exp(-coordinate - log_residual_variance(work[SHARED_BUFFERS]))
            end += 1
        for c in range(psi_rate.size):
            psi[c] = math.exp(
                centre[end + c]
                + scale[end + c] * x[i, end + c]
                + log_variance(work[SHARED_BUFFERS], c + 1)
            )
        factor_regression(A, B0, t, B)
        if keeps_sigma2:
            sigma2[i] = 1.0 / t
            sd = 1.0
        else:
            sigma2[i] = 0.5 * B[d, d] * B[d, d] / gamma[i]
            sd = math.sqrt(sigma2[i])
        # mean = R⁻ᵀ R⁻¹ z and theta = mean + sd R⁻ᵀ normal.
        for a in range(d - 1, -1, -1):
            total, total_mean = B[d, a] + sd * normal[i, a], B[d, a]
            for b in range(a + 1, d):
                total -= B[b, a] * theta[i, b]
                total_mean -= B[b, a] * mean[i, b]
            theta[i, a] = total / B[a, a]
            mean[i, a] = total_mean / B[a, a]
        if i >= mu.shape[0]:
            continue
        laws = mu.shape[1]
        for j in range(laws):
            total = A
            if laws > 1:
                total, F = own, work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j]
                for a in range(d):
                    for b in range(a + 1):
                        total[a, b] = F[0, 1] * gram_entry(F, a, b)
            factor_covariates(total, E0, psi, work[1])
            _draw_law(
                work[1], normal_mu[i, j], normal_T[i, j], chi[i, j], work[3], mu[i, j], T[i, j]
            )


@compiled
def _draw_law(E, normal_mu, normal_T, chi, C, mu, T):  # type: ignore[no-untyped-def]
    """mu and T given the factor E.

    It is [[sqrt(lam + N), 0], [., L]] with Psi_n = L L'. T = C C' with C = L Q⁻ᵀ, Q the Bartlett
    factor of a Wishart(nu_n, I) draw: row a of C solves C_a Q' = L_a.
    """
    k = mu.size
    for a in range(k):
        for b in range(k):
            total = E[a + 1, b + 1] if b <= a else 0.0
            for c in range(b):
                total -= C[a, c] * normal_T[b, c]
            C[a, b] = total / chi[b]
    for a in range(k):
        total = 0.0
        for b in range(k):
            total += C[a, b] * normal_mu[b]
        mu[a] = (E[a + 1, 0] + total) / E[0, 0]
        for b in range(a + 1):
            total = 0.0
            for c in range(k):
                total += C[a, c] * C[b, c]
            T[a, b] = total
            T[b, a] = total
