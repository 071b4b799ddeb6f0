"""Mean and covariance of the sufficient statistics, for the central limit theorem of Gibbs-SS.

One row contributes t = ww', w = (1, x, y), to the statistics A = Σ ww'. The methods of Bernstein &
Sheldon (2019) approximate the law of A by N(n E[t], n Cov[t]), given the coefficients theta, the
error variance sigma2 and moments of the covariates x. This file has those moments.

Only entries that vary and occur once count: the upper triangle without (0, 0), row by row. With
duplicates (the paper's vec(xx')) the covariance is singular, and each duplicate squares a factor
of the likelihood.

Write v = (1, x), d = k + 1, y = v'theta + e with e ~ N(0, sigma2) independent of x,
eta = E[vv'] and xi_ij,kl = Cov(v_i v_j, v_k v_l). Then (Bernstein & Sheldon 2019, Appendix A.2)::

    E[v_i y]            = Σ_j theta_j eta_ij
    E[y²]               = sigma2 + Σ_ij theta_i theta_j eta_ij
    Cov(v_i v_j, v_k y) = Σ_l theta_l xi_ij,kl
    Cov(v_i v_j, y²)    = Σ_kl theta_k theta_l xi_ij,kl
    Cov(v_i y, v_j y)   = sigma2 eta_ij + Σ_kl theta_k theta_l xi_ik,jl
    Cov(v_i y, y²)      = Σ_jkl theta_j theta_k theta_l xi_ij,kl + 2 sigma2 Σ_j theta_j eta_ij
    Var(y²)             = 2 sigma2² + Σ_ijkl theta_i theta_j theta_k theta_l xi_ij,kl
                          + 4 sigma2 Σ_ij theta_i theta_j eta_ij

The paper's main text has xi_ij,kl in the fifth line. That is wrong: E[v_i v_j (v'theta)²] -
E[v_i v'theta] E[v_j v'theta] pairs i with k and j with l. The appendix is right.

If x is normal then w is normal given theta and sigma2, up to its constant first entry. With
G = E[ww'] and m = E[w], Isserlis' theorem for w - m gives::

    Cov(w_a w_b, w_c w_e) = G_ac G_be + G_ae G_bc - 2 m_a m_b m_c m_e

and G = FF' with F = [[1, 0, 0], [mu, L, 0], [m_y, theta_x'L, sigma]], where T = LL' is the
covariance of x: no fourth-order tensor and no factorisation is needed.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS,
arXiv:1910.13153. Isserlis (1918), Biometrika 12, doi:10.1093/biomet/12.1-2.134.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise._arrays import IntArray
from noisewise.analyst.regression.papers.gibbs_compiled import compiled

# --- entries --------------------------------------------------------------------------------------


def unique_entries(size: int) -> tuple[IntArray, IntArray]:
    """Row and column of each unique entry of a size by size Gram matrix, without (0, 0)."""
    rows, columns = np.triu_indices(size)
    return rows[1:].astype(np.int64), columns[1:].astype(np.int64)


def entry_positions(size: int) -> IntArray:
    """Position of entry (a, b) in the order of `unique_entries`, shape (size, size); (0, 0): -1."""
    rows, columns = unique_entries(size)
    positions = np.full((size, size), -1, dtype=np.int64)
    positions[rows, columns] = positions[columns, rows] = np.arange(rows.size)
    return positions


# --- compiled: normal covariates ------------------------------------------------------------------


@compiled
def normal_factor(theta, sigma2, mu, L, F, G):  # type: ignore[no-untyped-def]
    """F lower triangular and G = FF' = E[ww'] for x ~ N(mu, LL'). The mean of w is F[:, 0].

    Shapes: theta (d,), mu (k,), L (k, k), F and G (k + 2, k + 2).
    """
    k = mu.size
    y = k + 1
    F[0, 0] = 1.0
    mean = theta[0]
    for a in range(k):
        F[a + 1, 0] = mu[a]
        mean += theta[a + 1] * mu[a]
        for b in range(a + 1):
            F[a + 1, b + 1] = L[a, b]
    F[y, 0] = mean
    for b in range(k):
        F[y, b + 1] = 0.0
    for a in range(k):
        for b in range(a + 1):
            F[y, b + 1] += theta[a + 1] * L[a, b]
    F[y, y] = math.sqrt(sigma2)
    for a in range(y + 1):
        for b in range(a + 1):
            total = 0.0
            for c in range(b + 1):
                total += F[a, c] * F[b, c]
            G[a, b] = total
            G[b, a] = total


@compiled
def normal_covariance(G, m, rows, columns, which, size, factor, out):  # type: ignore[no-untyped-def]
    """Lower triangle of factor * Cov of the entries which[:size] of ww', for normal x.

    `rows` and `columns` come from `unique_entries`, `m` is E[w] and G is E[ww'].
    """
    for i in range(size):
        a, b = rows[which[i]], columns[which[i]]
        twice = 2.0 * m[a] * m[b]
        for j in range(i + 1):
            c, e = rows[which[j]], columns[which[j]]
            out[i, j] = factor * (G[a, c] * G[b, e] + G[a, e] * G[b, c] - twice * m[c] * m[e])


# --- compiled: any covariates, by their moments ---------------------------------------------------


@compiled
def general_mean(eta, theta, sigma2, G):  # type: ignore[no-untyped-def]
    """G = E[ww'], shape (d + 1, d + 1), from eta = E[vv']."""
    d = theta.size
    square = sigma2
    for a in range(d):
        total = 0.0
        for b in range(d):
            G[a, b] = eta[a, b]
            total += theta[b] * eta[a, b]
        G[a, d] = total
        G[d, a] = total
        square += theta[a] * total
    G[d, d] = square


@compiled
def general_covariance(  # type: ignore[no-untyped-def]
    eta, xi, positions_v, positions_w, theta, sigma2, once, twice, out
):
    """Covariance of the unique entries of ww', shape (q, q), from the moments of v = (1, x).

    `xi` is the covariance of the unique entries of vv'; `positions_v` and `positions_w` come from
    `entry_positions` for d and d + 1. `once`, shape (len(xi), d), and `twice`, shape (len(xi),),
    are scratch space for xi contracted with theta once and twice. O(d^4), the size of the result.
    """
    d = theta.size
    for i in range(d):
        for j in range(i, d):
            ij = positions_v[i, j]
            if ij < 0:
                continue
            total = 0.0
            for k in range(d):
                inner = 0.0
                for c in range(d):
                    kl = positions_v[k, c]
                    if kl >= 0:
                        inner += theta[c] * xi[ij, kl]
                once[ij, k] = inner
                total += theta[k] * inner
            twice[ij] = total
    # vv' with itself, with vy and with y².
    for i in range(d):
        for j in range(i, d):
            ij = positions_v[i, j]
            if ij < 0:
                continue
            row = positions_w[i, j]
            for k in range(d):
                for c in range(k, d):
                    kl = positions_v[k, c]
                    if kl >= 0:
                        out[row, positions_w[k, c]] = xi[ij, kl]
                column = positions_w[k, d]
                out[row, column] = once[ij, k]
                out[column, row] = once[ij, k]
            column = positions_w[d, d]
            out[row, column] = twice[ij]
            out[column, row] = twice[ij]
    # vy with itself and with y²; y² with itself.
    square = positions_w[d, d]
    total_square = 2.0 * sigma2 * sigma2
    for i in range(d):
        row = positions_w[i, d]
        for j in range(d):
            total = sigma2 * eta[i, j]
            for k in range(d):
                ik = positions_v[i, k]
                if ik >= 0:
                    total += theta[k] * once[ik, j]
            out[row, positions_w[j, d]] = total
        total = 0.0
        linear = 0.0
        for j in range(d):
            ij = positions_v[i, j]
            if ij >= 0:
                total += theta[j] * twice[ij]
            linear += theta[j] * eta[i, j]
        out[row, square] = total + 2.0 * sigma2 * linear
        out[square, row] = out[row, square]
        total_square += theta[i] * (total + 4.0 * sigma2 * linear)
    out[square, square] = total_square
