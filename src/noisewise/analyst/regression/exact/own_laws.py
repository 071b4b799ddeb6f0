"""Holders whose people differ: each holder's covariates have a normal law of their own.

::

    x in holder j     ~ N(mu_j, T_j)
    mu_j | T_j        ~ N(m, T_j / lam)
    T_j               ~ IW(nu, nu T)                     so that E[T_j⁻¹] = T⁻¹
    (m, T)            ~ the prior of a common law (`priors`), psi integrated out
    s = 1 / sqrt(lam)               ~ half-t(4, 1)       sd of means between, in sds within, holders
    t = 1 / sqrt(2 (nu - k + 1))    ~ half-t(4, 1/2)     sd of log standard deviations

s and t are learnt from the Releases. At s = t = 0 there is one law for all, and far out the holders
have nothing in common but the regression. Given m, T, s and t, all mu_j and T_j integrate out in
closed form. With H = [[1, 0], [m, U]], T = U U', V = H⁻¹ F_j the holder's factor relative to it, v
the first column of V and V_x the others, c = n lam / (n + lam), and
B = I + (n V_x V_x' + c v v') / nu, holder j has::

    k/2 ln(lam / (lam + n)) + ln Gamma_k((nu+n)/2) / Gamma_k(nu/2) - n k/2 ln(pi nu)
      - n ln|U| - (nu+n)/2 ln|B|

Coordinates
-----------
H = H_0 Z, where H_0 is the mean of the holders' F_j, weighted by rows: lower triangular with a
positive diagonal, as they are. Given all F_j and for many rows, Z is the identity up to errors of
size 1 / sqrt(Σ c_j) in its first column and 1 / sqrt(Σ n_j nu / (n_j + nu)) in the others. In units
of these (so that s and t don't pinch it) its entries are the coordinates, the diagonal as a
logarithm. s and t are sinh of theirs, which may be negative: the density is even and smooth there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.exact.factor import BUFFERS_PER_HOLDER, SHARED_BUFFERS
from noisewise.analyst.regression.exact.normalisers import log_multigamma, log_multigamma_slope
from noisewise.analyst.regression.exact.prior import (
    NU,
    PSI_POWER,
    log_precisions,
    log_precisions_adjoint,
)
from noisewise.analyst.regression.triangular import add_gram, cholesky, invert_triangle, mirror

MEANS_SCALE, SPREADS_SCALE = 1.0, 0.5  # of the half-t laws of s and t
FLOOR = 1e-6  # added to s² and t²: a difference of a thousandth of a sd is none

_LOG_PI = math.log(math.pi)


def coordinates(k: int) -> int:
    """How many coordinates m, T, s and t have."""
    return 2 + k * (k + 3) // 2


@compiled
def _log_t(z: float, scale: float) -> Any:
    """Log density of z, sinh(z) having the t law with 4 degrees of freedom; its slope, sinh(z).

    Without the constant.
    """
    value = math.sinh(z)
    ratio = value * value / (4.0 * scale * scale)
    if not ratio < 1e30:
        return -np.inf, 0.0, value
    slope = math.tanh(z) - 5.0 * value * math.cosh(z) / (4.0 * scale * scale * (1.0 + ratio))
    return math.log(math.cosh(z)) - 2.5 * math.log1p(ratio), slope, value


@compiled
def between(s: float, t: float, k: int) -> Any:
    """lam and nu."""
    return 1.0 / (s * s + FLOOR), k - 1.0 + 0.5 / (t * t + FLOOR)


@compiled
def _read(
    y: FloatArray, n: FloatArray, lam: float, nu: float, k: int, Z: FloatArray, slopes: FloatArray
) -> Any:
    """Z from the coordinates y (s and t first); log Jacobian of its entries.

    `slopes` gets the two units, and the derivatives of their logarithms by lam and by nu.
    """
    means, spreads, by_lam, by_nu = 0.0, 1.0, 0.0, 0.0
    for j in range(n.size):
        c, e = n[j] * lam / (n[j] + lam), n[j] * nu / (n[j] + nu)
        means += c
        spreads += e
        by_lam += (c / lam) ** 2
        by_nu += (e / nu) ** 2
    slopes[0], slopes[1] = 1.0 / math.sqrt(means), 1.0 / math.sqrt(spreads)
    slopes[2], slopes[3] = -0.5 * by_lam / means, -0.5 * by_nu / spreads
    cursor = 2
    Z[0, 0] = 1.0
    for a in range(1, k + 1):
        for b in range(a + 1):
            Z[a, b] = y[cursor] * (slopes[0] if b == 0 else slopes[1])
            cursor += 1
        if not abs(Z[a, a]) < 300.0:
            return -np.inf
        Z[a, a] = math.exp(Z[a, a])
    return k * math.log(slopes[0]) + 0.5 * k * (k + 1) * math.log(slopes[1])


@compiled
def common_law(
    y: FloatArray, n: FloatArray, lam: float, nu: float, k: int, work: FloatArray
) -> Any:
    """H into work[15] by way of Z (13) and H_0 (14); log Jacobian of its entries by y."""
    Z, H0, H = work[13], work[14], work[15]
    logp = _read(y, n, lam, nu, k, Z, work[19].reshape(work[19].size))
    total = n.sum()
    for a in range(k + 1):
        for b in range(a + 1):
            H0[a, b] = 0.0
    for j in range(n.size):
        F = work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j]
        for a in range(k + 1):
            for b in range(a + 1):
                H0[a, b] += n[j] / total * F[a, b]
    for a in range(k + 1):
        for b in range(a + 1):
            H[a, b] = 0.0
            for c in range(b, a + 1):
                H[a, b] += H0[a, c] * Z[c, b]
        logp += a * math.log(H0[a, a])
    return logp


@compiled
def _hyperprior(
    k: int,
    psi_rate: FloatArray,
    E0: FloatArray,
    scalars: FloatArray,
    H: FloatArray,
    Hbar: FloatArray,
    work: FloatArray,
) -> Any:
    """Log density of (m, ln diag U, U below it); its derivative into Hbar, which it clears."""
    Q, W, rows = work[1], work[3], work[18]
    lam0 = E0[0, 0]
    logp = 0.0
    for a in range(k + 1):
        for b in range(a + 1):
            Hbar[a, b] = 0.0
    for a in range(1, k + 1):
        power = 1.0 - scalars[NU] - a - (1.0 if lam0 > 0.0 else 0.0)
        logp += power * math.log(H[a, a])
        Hbar[a, a] += power / H[a, a]
    if psi_rate.size > 0:
        power = -scalars[PSI_POWER]
        values, bar = rows[1], rows[0]
        log_precisions(H, psi_rate, Q, values)
        for c in range(k):
            logp += power * values[c]
            bar[c] = power
        log_precisions_adjoint(Q, psi_rate, values, bar, W, Hbar)
    else:
        # -tr(Psi Q'Q) / 2 with Q = U⁻¹ has the derivative Q'Q Psi Q', lower triangle.
        invert_triangle(H[1:, 1:], k, Q)
        for a in range(k):
            for b in range(k):
                W[a, b] = 0.0
                for c in range(b + 1):
                    W[a, b] += E0[a + 1, c + 1] * Q[b, c]  # Psi Q'
        for a in range(k):
            for b in range(k):
                rows[1, b] = 0.0
                for c in range(a + 1):
                    rows[1, b] += Q[a, c] * W[c, b]  # row a of Q Psi Q'
            logp -= 0.5 * rows[1, a]
            for c in range(a + 1):
                for b in range(c + 1):
                    Hbar[c + 1, b + 1] += Q[a, c] * rows[1, b]
    if lam0 > 0.0:
        # r = U⁻¹ (m - m0), and U⁻ᵀ r
        r, image = rows[1], rows[0]
        for a in range(k):
            total = H[a + 1, 0] - E0[a + 1, 0]
            for b in range(a):
                total -= H[a + 1, b + 1] * r[b]
            r[a] = total / H[a + 1, a + 1]
            logp -= 0.5 * lam0 * r[a] * r[a]
        for a in range(k - 1, -1, -1):
            total = r[a]
            for b in range(a + 1, k):
                total -= H[b + 1, a + 1] * image[b]
            image[a] = total / H[a + 1, a + 1]
            Hbar[a + 1, 0] -= lam0 * image[a]
            for b in range(a + 1):
                Hbar[a + 1, b + 1] += lam0 * image[a] * r[b]
    return logp


@compiled
def log_own_laws(
    y: FloatArray,
    ybar: FloatArray,
    rows: FloatArray,
    psi_rate: FloatArray,
    E0: FloatArray,
    scalars: FloatArray,
    work: FloatArray,
) -> Any:
    """Log density of all holders' covariates and of the coordinates y; derivatives by y into ybar.

    `rows` are rough numbers of rows, for the coordinates. What is due to F_j goes to the holder's
    fourth buffer (`own_law_adjoint`), what is due to n_j at given F_j is added to force[0, 1].
    """
    J, k = rows.size, E0.shape[0] - 1
    V, B, P, W = work[6], work[2], work[1], work[3]
    Z, H0, H, Hbar, Zbar, H0bar = work[13], work[14], work[15], work[16], work[17], work[18]
    slopes = work[19].reshape(work[19].size)  # four numbers
    logp, by_s, s = _log_t(y[0], MEANS_SCALE)
    prior, by_t, t = _log_t(y[1], SPREADS_SCALE)
    logp += prior
    if not logp > -np.inf:
        return -np.inf
    lam, nu = between(s, t, k)
    logp += common_law(y, rows, lam, nu, k, work)
    if not logp > -np.inf:
        return -np.inf
    logp += _hyperprior(k, psi_rate, E0, scalars, H, Hbar, work)
    log_U = 0.0
    for a in range(1, k + 1):
        log_U += math.log(H[a, a])
    # The units of Z's entries depend on lam and nu.
    by_lam, by_nu = k * slopes[2], 0.5 * k * (k + 1) * slopes[3]
    gamma, gamma_slope = log_multigamma(0.5 * nu, k), 0.5 * log_multigamma_slope(0.5 * nu, k)
    log_unit = 0.5 * k * (_LOG_PI + math.log(nu))
    for j in range(J):
        base = SHARED_BUFFERS + BUFFERS_PER_HOLDER * j
        F, force, Wj = work[base], work[base + 2], work[base + 3]
        n = F[0, 1]
        c = n * lam / (n + lam)
        for a in range(k + 1):
            for b in range(a + 1):
                total = F[a, b]
                for i in range(b, a):
                    total -= H[a, i] * V[i, b]
                V[a, b] = total / H[a, a]
        for a in range(k):
            for b in range(a + 1):
                total = 0.0
                for i in range(1, b + 2):
                    total += V[a + 1, i] * V[b + 1, i]
                B[a, b] = (n * total + c * V[a + 1, 0] * V[b + 1, 0]) / nu
                P[a, b] = 0.0
            B[a, a] += 1.0
        if not cholesky(B, k):
            return -np.inf
        half_log_det = 0.0
        for a in range(k):
            half_log_det += math.log(B[a, a])
        invert_triangle(B, k, W)
        add_gram(W, k, 1.0, P)
        mirror(P, k)
        h = 0.5 * (nu + n) / nu
        # The adjoint of V, into Wj: -2 h n P V_x and -2 h c P v.
        within, means, trace = 0.0, 0.0, 0.0
        for a in range(1, k + 1):
            trace += P[a - 1, a - 1]
            for b in range(a + 1):
                total = 0.0
                for i in range(max(b, 1), k + 1):
                    total += P[a - 1, i - 1] * V[i, b]
                if b == 0:
                    means += total * V[a, 0]
                else:
                    within += total * V[a, b]
                Wj[a, b] = -2.0 * h * (c if b == 0 else n) * total
        logp += 0.5 * k * math.log(lam / (lam + n)) - n * (log_U + log_unit)
        logp += log_multigamma(0.5 * (nu + n), k) - gamma - (nu + n) * half_log_det
        rising = 0.5 * log_multigamma_slope(0.5 * (nu + n), k)
        by_lam += 0.5 * k * n / (lam * (lam + n)) - h * means * (n / (n + lam)) ** 2
        by_nu += rising - gamma_slope - 0.5 * k * n / nu - half_log_det + h * (k - trace)
        force[0, 1] += rising - 0.5 * k / (lam + n) - log_unit - log_U - half_log_det
        force[0, 1] -= h * (within + means * (lam / (n + lam)) ** 2)
        # Wj <- H⁻ᵀ Vbar, lower triangle; Hbar -= Wj V'.
        for b in range(k + 1):
            for a in range(k, max(b, 1) - 1, -1):
                total = Wj[a, b]
                for i in range(a + 1, k + 1):
                    total -= H[i, a] * Wj[i, b]
                Wj[a, b] = total / H[a, a]
        for a in range(1, k + 1):
            for b in range(a + 1):
                for i in range(b + 1):
                    Hbar[a, b] -= Wj[a, i] * V[b, i]
            Hbar[a, a] -= n / H[a, a]
    # H = H0 Z
    cursor = 2
    for a in range(1, k + 1):
        for b in range(a + 1):
            total = 0.0
            for i in range(a, k + 1):
                total += H0[i, a] * Hbar[i, b]
            Zbar[a, b] = total
            total = 0.0
            for i in range(b + 1):
                total += Hbar[a, i] * Z[b, i]
            H0bar[a, b] = total
            unit = slopes[0] if b == 0 else slopes[1]
            ybar[cursor] = Zbar[a, b] * unit * (Z[a, a] if a == b else 1.0)
            if b == 0:
                by_lam += ybar[cursor] * y[cursor] * slopes[2]
            else:
                by_nu += ybar[cursor] * y[cursor] * slopes[3]
            cursor += 1
        H0bar[a, a] += a / H0[a, a]
    ybar[0] = by_s - by_lam * 2.0 * s * lam * lam * math.cosh(y[0])
    ybar[1] = by_t - by_nu * t * math.cosh(y[1]) / (t * t + FLOOR) ** 2
    return logp


@compiled
def own_law_adjoint(j: int, rows: FloatArray, Fbar: FloatArray, work: FloatArray) -> Any:
    """Add to Fbar what `log_own_laws` found to be due to F_j."""
    k = Fbar.shape[0] - 2
    Wj, H0bar = work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j + 3], work[18]
    share = rows[j] / rows.sum()
    for a in range(1, k + 1):
        for b in range(a + 1):
            Fbar[a, b] += Wj[a, b] + share * H0bar[a, b]


# --- not compiled ---------------------------------------------------------------------------------


def log_constant(k: int, lam0: float, nu0: float, psi_power: float) -> float:
    """What log density leaves out beside the prior's own constants (`density`).

    The t laws of s and t; 2^k of T = U U', and powers of 2 and pi of the normal inverse Wishart law
    of (m, T), which a common law's integral takes with it; Gamma(psi_power) of each psi.
    """
    t4 = math.lgamma(2.5) - math.lgamma(2.0) - 0.5 * math.log(4.0 * math.pi)
    total = 2.0 * t4 - math.log(MEANS_SCALE * SPREADS_SCALE) + k * math.log(2.0)
    total -= 0.5 * nu0 * k * math.log(2.0)
    if lam0 > 0.0:
        total -= 0.5 * k * math.log(2.0 * math.pi)
    if psi_power > 0.0:
        total += k * math.lgamma(psi_power)
    return total


def draw_own_laws(
    rng: np.random.Generator,
    m: FloatArray,
    T: FloatArray,
    lam: FloatArray,
    nu: FloatArray,
    statistics: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Draw mu_j and T_j given the common law and the latent statistics (draws, J, P, P).

    T_j ~ IW(nu + n, nu T + S_j + c (xbar_j - m)(xbar_j - m)') and
    mu_j | T_j ~ N((lam m + n xbar_j) / (lam + n), T_j / (lam + n)).

    Returns
    -------
    mu, T : arrays, shapes (draws, J, k) and (draws, J, k, k)
    """
    draws, J, k = *statistics.shape[:2], m.shape[1]
    n = statistics[:, :, 0, 0]
    lam, nu = lam[:, None], nu[:, None]
    xbar = statistics[:, :, 0, 1:-1] / n[:, :, None]
    away = xbar - m[:, None]
    scatter = statistics[:, :, 1:-1, 1:-1] - n[..., None, None] * _outer(xbar)
    Psi = (nu[..., None, None] * T[:, None]) + scatter
    Psi = Psi + (n * lam / (n + lam))[..., None, None] * _outer(away)
    # T_j = C C' with C = L Q⁻ᵀ, Psi = L L' and Q the Bartlett factor of a Wishart(nu + n, I) draw.
    Q = np.tril(rng.standard_normal((draws, J, k, k)), -1)
    degrees = (nu + n)[..., None] - np.arange(k)
    Q[..., range(k), range(k)] = np.sqrt(rng.chisquare(degrees))
    L = np.linalg.cholesky(Psi)
    C = np.swapaxes(np.linalg.solve(Q, np.swapaxes(L, -1, -2)), -1, -2)
    step = (C @ rng.standard_normal((draws, J, k, 1)))[..., 0]
    centre = xbar - (lam / (lam + n))[..., None] * away
    return centre + step / np.sqrt(lam + n)[..., None], C @ np.swapaxes(C, -1, -2)


def _outer(v: FloatArray) -> FloatArray:
    return np.asarray(v[..., :, None] * v[..., None, :])
