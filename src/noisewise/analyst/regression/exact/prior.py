"""The conjugate priors with their parameters integrated out: log density of the statistics.

With E = [[lam, lam m'], [lam m, Psi + lam m m']] + A[:d, :d] and B = [[Lam0, Lam0 mu0],
[., 2 b0 + mu0' Lam0 mu0]] + A one has ln|Psi_n| = ln|E| - ln(lam + N), Lam_n = B[:d, :d] and
2 b_n = |B| / |Lam_n|, so that two Cholesky factorisations do everything.

Under the scale-free prior theta is integrated out of the rows' density at given sigma² = e^s and
omega² = e^u, in closed form, and those two by quadrature. With RSS what least squares leaves of y,
ESS what it explains, and tau² = N omega² / k + sigma²,

    -(N-1)/2 s - RSS / (2 sigma²) - k/2 ln(tau² / sigma²) - ESS / (2 tau²)
        + h(s) + h(u) + lean(R²),

where h is the log density of the half-t law's logarithm. Nodes of s are counted from ln(RSS / N):
given N rows sigma² is known to about sqrt(2/N), whatever else is not. In t, with N omega² / k =
sigma² sinh² t, tau is sigma cosh t, and all but one exponential of the integrand is a constant of
the node.

The regression is that of all holders, and B has the sum of their statistics. E has it too where
they share one law of the covariates; laws of their own are in `own_laws`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.triangular import add_gram, cholesky, invert_triangle, trace

# Places in the array of scalars. CONSTANT collects all that depends on nothing latent; SMOOTHING is
# that of the Laplace law's kinks, in units of the noise scale; OWN_LAWS says that holders have laws
# of the covariates of their own.
# A flat mean has LAM = 0, and NU is then smaller by one where there is one law for all. PSI_POWER
# is that of psi in its own law and that of T together. SCALE_FREE says that the regression has that
# prior, HALF_T is 4 times the squared scale of its half-t laws, SIZE_AT the place of the coordinate
# ln g (`kernels`), 0 for none. The first INDICATORS covariates have a law of their own.
(
    CONSTANT,
    NU,
    LAM,
    KEEPS_SIGMA2,
    A0,
    B0_SIGMA2,
    SMOOTHING,
    PSI_POWER,
    OWN_LAWS,
    SCALE_FREE,
    HALF_T,
    SIZE_AT,
    INDICATORS,
    SCALARS,
) = range(14)
# Of the sums over variances: terms that are left out, as logarithms and as shares.
_NEGLIGIBLE = 34.0
_SMALL = 1e-14


@compiled
def log_precisions(F: FloatArray, rate: FloatArray, Q: FloatArray, out: FloatArray) -> Any:
    """ln(rate_c + T^cc / 2) into `out`, T the covariates' covariance of a holder with factor F.

    That is the log rate of psi_c given T, from which ln psi_c is counted. Leaves the inverse of the
    covariates' part of F in Q.
    """
    k = rate.size
    invert_triangle(F[1:, 1:], k, Q)
    for c in range(k):
        total = 0.0
        for a in range(c, k):
            total += Q[a, c] * Q[a, c]
        out[c] = math.log(rate[c] + 0.5 * total)


@compiled
def log_precisions_adjoint(
    Q: FloatArray,
    rate: FloatArray,
    values: FloatArray,
    bar: FloatArray,
    W: FloatArray,
    Fbar: FloatArray,
) -> Any:
    """Reverse of `log_precisions`: adds to Fbar. `bar` are derivatives by its `values`.

    With Q = F⁻¹, Qbar_ac = bar_c Q_ac / (rate_c + T^cc / 2) and Fbar = -Q' Qbar Q', of which the
    lower triangle counts. `values` are overwritten.
    """
    k = rate.size
    for c in range(k):
        values[c] = bar[c] * math.exp(-values[c])
    for a in range(k):  # W = Qbar Q', symmetric
        for b in range(a + 1):
            total = 0.0
            for c in range(b + 1):
                total += values[c] * Q[a, c] * Q[b, c]
            W[a, b] = total
    for a in range(k):
        for c in range(a, k):
            q = Q[c, a]
            for b in range(a + 1):
                Fbar[a + 1, b + 1] -= q * W[c, b]


@compiled
def log_residual_variance(F: FloatArray) -> Any:
    """Log of what is left of the variance of y, the last column, given the others."""
    return 2.0 * math.log(F[F.shape[0] - 1, F.shape[0] - 1])


@compiled
def factor_covariates(A: FloatArray, E0: FloatArray, psi: FloatArray, E: FloatArray) -> Any:
    """Cholesky factor of E = E0 + A, psi on its diagonal; False if A is impossible."""
    d = E0.shape[0]
    for a in range(d):
        for b in range(a + 1):
            E[a, b] = E0[a, b] + A[a, b]
    for c in range(psi.size):
        E[c + 1, c + 1] += psi[c]
    return cholesky(E, d)


@compiled
def factor_regression(A: FloatArray, B0: FloatArray, t: float, B: FloatArray) -> Any:
    """Cholesky factor of B = B0 + t A; False if A is impossible."""
    P = A.shape[0]
    for a in range(P):
        for b in range(a + 1):
            B[a, b] = B0[a, b] + t * A[a, b]
    return cholesky(B, P)


@compiled
def covariate_prior(
    A: FloatArray,
    E0: FloatArray,
    psi: FloatArray,
    nu: float,
    E: FloatArray,
    W: FloatArray,
    G: FloatArray,
) -> Any:
    """Log marginal density of rows' covariates given their A; adds its derivative to G.

    That is dlogp = tr(G dA), lower triangle. Also returns the derivative by the number of rows
    n = A_00 in the exponents, which comes on top of that by A_00. The normalisers are left to the
    caller, and so is the prior of psi.
    """
    d = E0.shape[0]
    nu_n = nu + A[0, 0]
    if not factor_covariates(A, E0, psi, E):
        return -np.inf, 0.0
    half_log_det = 0.0  # of Psi_n: E's first pivot is lam + n
    for a in range(1, d):
        half_log_det += math.log(E[a, a])
    slope = 0.5 * nu_n / (E[0, 0] * E[0, 0]) - half_log_det
    invert_triangle(E, d, W)
    add_gram(W, d, -0.5 * nu_n, G)
    return -nu_n * half_log_det, slope


@compiled
def regression_prior(
    A: FloatArray,
    B0: FloatArray,
    scalars: FloatArray,
    log_sigma2: float,
    B: FloatArray,
    W: FloatArray,
    v: FloatArray,
    G: FloatArray,
) -> Any:
    """Log marginal density of rows' targets given A and the covariates; its derivative into G.

    As in `covariate_prior`; the derivative by ln sigma2, where it is kept, is the third result.
    The normaliser is left to the caller.
    """
    P = A.shape[0]
    d = P - 1
    keeps_sigma2 = scalars[KEEPS_SIGMA2] > 0.0
    a_n, b0 = scalars[A0] + 0.5 * A[0, 0], scalars[B0_SIGMA2]
    t = math.exp(-log_sigma2)
    if not factor_regression(A, B0, t, B):
        return -np.inf, 0.0, 0.0
    logp = 0.0
    for a in range(d):
        logp -= math.log(B[a, a])
    schur = B[d, d] * B[d, d]
    if keeps_sigma2:
        log_b = log_sigma2
        logp -= 0.5 * schur + b0 * t
        weight = 0.5 * t
    else:
        log_b = math.log(0.5 * schur)
        weight = a_n / schur
    logp -= a_n * log_b
    for a in range(P):
        for b in range(a + 1):
            G[a, b] = 0.0
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
    by_sigma2 = b0 * t - a_n - trace(G, A) if keeps_sigma2 else 0.0
    return logp, -0.5 * log_b, by_sigma2


@compiled
def mode(E: float, q: float, k: int) -> Any:
    """t where the integrand over t (`scale_free_integral`) is largest.

    With c = cosh² t its log has the slope tanh t (E / c - (k - 1) - 5 q c / (1 - q + q c)).
    """
    a, b, right = q * (k + 4.0), E * q - (k - 1.0) * (1.0 - q), E * (1.0 - q)
    root = math.sqrt(max(b * b + 4.0 * a * right, 0.0))
    c = (b + root) / (2.0 * a) if b > 0.0 else 2.0 * right / (root - b)
    return math.acosh(math.sqrt(c)) if c > 1.0 else 0.0


@compiled
def scale_free_integral(
    rss: float,
    ess: float,
    N: float,
    k: int,
    half_t: float,
    sigma_nodes: FloatArray,
    omega_nodes: FloatArray,
) -> Any:
    """Log of the integral over sigma² and omega², and its derivatives by RSS, ESS and N.

    `sigma_nodes` (2, .) has ln(sigma² N / RSS) and log weights. omega is counted in units of
    sigma sqrt(k / N), as sinh t, so that tau² = sigma² cosh² t: `omega_nodes` (3, .) has the log
    weights with all that depends on t alone, sech² t and sinh² t (`scale_free`). The sum over t
    starts where its terms are largest and goes both ways until they are small beside it. The
    derivatives are those of the sum.
    """
    base = math.log(rss / N)
    step = math.asinh(math.sqrt(omega_nodes[2, 1]))
    last = omega_nodes.shape[1] - 1
    best = -np.inf
    total = by_log_rss = by_ess = by_rows = 0.0
    for i in range(sigma_nodes.shape[1]):
        x = sigma_nodes[0, i]
        s = base + x
        sigma2 = math.exp(s)
        q, E = sigma2 * max(k, 1) / (N * half_t), ess / sigma2
        peak = int(min(mode(E, q, k) / step + 0.5, last))
        top = omega_nodes[0, peak] - 0.5 * E * omega_nodes[1, peak]
        value = sigma_nodes[1, i] - 0.5 * ((N - 2.0) * s + N * math.exp(-x)) + top
        value += 0.5 * s - 2.5 * math.log1p(sigma2 / half_t)
        bend = 1.0 + q * omega_nodes[2, peak]
        if value - 2.5 * math.log(bend) < best - _NEGLIGIBLE:
            continue
        weight = shrunk = cut = 0.0
        for way in (-1, 1):
            j = peak if way < 0 else peak + 1
            while j >= 0 and j <= last:
                ratio = q * omega_nodes[2, j]
                bend = 1.0 + ratio
                term = math.exp(omega_nodes[0, j] - 0.5 * E * omega_nodes[1, j] - top)
                term /= bend * bend * math.sqrt(bend)
                weight += term
                shrunk += term * omega_nodes[1, j]
                cut += term * ratio / bend
                if term < _SMALL * weight:
                    break
                j += way
        if value > best:
            shrink = math.exp(best - value)
            total, by_log_rss, by_ess, by_rows = (
                total * shrink, by_log_rss * shrink, by_ess * shrink, by_rows * shrink
            )  # fmt: skip
            best = value
        share = math.exp(value - best)
        ratio = sigma2 / half_t
        slope = 0.5 - 2.5 * ratio / (1.0 + ratio) - 0.5 * (N - 2.0)
        by_s = share * (slope * weight + 0.5 * E * shrunk - 2.5 * cut)
        total += share * weight
        by_log_rss += by_s
        by_ess -= share * 0.5 * shrunk / sigma2
        by_rows -= share * 0.5 * weight * (s + math.exp(-x))
        by_rows += (share * (2.5 * cut - 0.5 * weight) - by_s) / N
    logp = best + math.log(total) - 0.5 * math.log(N)
    return logp, by_log_rss / (total * rss), by_ess / total, by_rows / total


@compiled
def scale_free_regression(
    N: float,
    C: FloatArray,
    slopes: FloatArray,
    half_t: float,
    sigma_nodes: FloatArray,
    omega_nodes: FloatArray,
    row: FloatArray,
    S: FloatArray,
) -> Any:
    """Log density of rows' targets under the scale-free prior, and its derivative by rows.

    C is the Cholesky factor of all rows' A. Where the prior's centre is 0, RSS = C_dd² and
    ESS = Σ_b C_db². Elsewhere y is counted from what the slopes at the centre (`slopes[1:d]`)
    predict: with D = [[I, 0], [-slopes, 1]] the factor of D A D' is D C, and differs in the last
    row. The derivative by A is added to S, dlogp = tr(S C⁻¹ dA C⁻ᵀ); it is the same S for both,
    since (DC)⁻¹ D dA D' (DC)⁻ᵀ = C⁻¹ dA C⁻ᵀ. `row` is scratch space.
    """
    d = C.shape[0] - 1
    rss, ess = C[d, d] * C[d, d], 0.0
    row[d] = C[d, d]
    for b in range(1, d):
        row[b] = C[d, b]
        for a in range(b, d):
            row[b] -= slopes[a] * C[a, b]
        ess += row[b] * row[b]
    logp, by_rss, by_ess, by_rows = scale_free_integral(
        rss, ess, N, d - 1, half_t, sigma_nodes, omega_nodes
    )
    for a in range(1, d + 1):
        for b in range(1, a + 1):
            S[a, b] += by_ess * row[a] * row[b]
    S[d, d] += (by_rss - by_ess) * rss
    return logp, by_rows
