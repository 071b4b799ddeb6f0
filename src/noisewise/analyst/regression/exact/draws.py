"""Exact draws of what was integrated out, given the latent statistics."""

from __future__ import annotations

import math
from typing import Any

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.exact.factor import SHARED_BUFFERS, total_statistics
from noisewise.analyst.regression.exact.holders import pooled_factor
from noisewise.analyst.regression.exact.prior import (
    KEEPS_SIGMA2,
    SIZE_AT,
    factor_covariates,
    factor_regression,
    log_precisions,
    log_residual_variance,
)


@compiled
def conjugate_draws(
    x: FloatArray,
    normal: FloatArray,
    gamma: FloatArray,
    normal_mu: FloatArray,
    normal_T: FloatArray,
    chi: FloatArray,
    n: FloatArray,
    values: FloatArray,
    known: IntArray,
    relative: IntArray,
    partial: BoolArray,
    E0: FloatArray,
    B0: FloatArray,
    psi_rate: FloatArray,
    scalars: FloatArray,
    centre: FloatArray,
    scale: FloatArray,
    maps: FloatArray,
    work: FloatArray,
    theta: FloatArray,
    sigma2: FloatArray,
    mean: FloatArray,
    mu: FloatArray,
    T: FloatArray,
) -> Any:
    """One draw of (theta, sigma2, mu, T) given each row of x, by conjugacy, and mu_n into `mean`.

    theta | sigma2 ~ N(mu_n, sigma2 Lam_n⁻¹), sigma2 ~ IG(a_n, b_n) and T ~ IW(nu_n, Psi_n),
    mu | T ~ N(m_n, T / (lam + N)). The random numbers come from outside: `normal` (draws, d)
    standard, `gamma` (draws,) of shape a_n, `normal_mu` (draws, k) standard, `normal_T`
    (draws, k, k) standard below the diagonal, `chi` (draws, k) with nu_n - i degrees of freedom in
    column i. If `mu` has no rows, mu and T are not drawn.
    """
    P = values.shape[1]
    d = P - 1
    keeps_sigma2 = scalars[KEEPS_SIGMA2] > 0.0
    A, E, B, C = work[0], work[1], work[2], work[3]
    psi, k = work[5, 0, : psi_rate.size], P - 2
    for i in range(x.shape[0]):
        end = total_statistics(
            x[i], n, known, values, relative, partial, scalars[SIZE_AT], centre, scale, maps, work
        )
        t = 1.0
        if keeps_sigma2:
            coordinate = centre[end] + scale[end] * x[i, end]
            t = math.exp(-coordinate - log_residual_variance(work[SHARED_BUFFERS]))
            end += 1
        if psi_rate.size > 0 and mu.shape[0] > 0:
            shift = work[9, psi_rate.size]
            log_precisions(work[SHARED_BUFFERS], psi_rate, work[9], shift)
            for c in range(psi_rate.size):
                psi[c] = math.exp(centre[end + c] + scale[end + c] * x[i, end + c] - shift[c])
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
        # E's factor is [[sqrt(lam + N), 0], [., L]] with Psi_n = L L'.
        factor_covariates(A, E0, psi, E)
        _draw_covariance(E[1:, 1:], normal_T[i], chi[i], C, T[i])
        for a in range(k):
            total = E[a + 1, 0]
            for b in range(k):
                total += C[a, b] * normal_mu[i, b]
            mu[i, a] = total / E[0, 0]


@compiled
def pooled_factors(
    x: FloatArray,
    n: FloatArray,
    values: FloatArray,
    known: IntArray,
    relative: IntArray,
    partial: BoolArray,
    size_at: float,
    centre: FloatArray,
    scale: FloatArray,
    maps: FloatArray,
    work: FloatArray,
    out: FloatArray,
) -> Any:
    """`holders.pooled_factor` at each row of x into the lower triangles of `out`."""
    for i in range(x.shape[0]):
        total_statistics(
            x[i], n, known, values, relative, partial, size_at, centre, scale, maps, work
        )
        pooled_factor(n.size, work)
        for a in range(out.shape[1]):
            for b in range(a + 1):
                out[i, a, b] = work[10, a, b]


@compiled
def _draw_covariance(
    L: FloatArray, normal_T: FloatArray, chi: FloatArray, C: FloatArray, T: FloatArray
) -> Any:
    """T = C C' given the factor L of Psi_n.

    C = L Q⁻ᵀ, Q the Bartlett factor of a Wishart(nu_n, I) draw: row a of C solves C_a Q' = L_a.
    """
    k = chi.size
    for a in range(k):
        for b in range(k):
            total = L[a, b] if b <= a else 0.0
            for c in range(b):
                total -= C[a, c] * normal_T[b, c]
            C[a, b] = total / chi[b]
    for a in range(k):
        for b in range(a + 1):
            total = 0.0
            for c in range(k):
                total += C[a, c] * C[b, c]
            T[a, b] = total
            T[b, a] = total
