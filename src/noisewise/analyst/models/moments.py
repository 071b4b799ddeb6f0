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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.priors import NIWPrior
from noisewise.core.errors import ReleaseError, RequestError

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_FASTMATH)


# --- entries --------------------------------------------------------------------------------------


def unique_entries(size: int) -> tuple[IndexArray, IndexArray]:
    """Row and column of each unique entry of a size by size Gram matrix, without (0, 0)."""
    rows, columns = np.triu_indices(size)
    return rows[1:].astype(np.int64), columns[1:].astype(np.int64)


def entry_positions(size: int) -> IndexArray:
    """Position of entry (a, b) in the order of `unique_entries`, shape (size, size); (0, 0): -1."""
    rows, columns = unique_entries(size)
    positions = np.full((size, size), -1, dtype=np.int64)
    positions[rows, columns] = positions[columns, rows] = np.arange(rows.size)
    return positions


# --- compiled: normal covariates ------------------------------------------------------------------


@_jit
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


@_jit
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


@_jit
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


@_jit
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


# --- moments of the covariates --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CovariateMoments:
    """Second and fourth moments of v = (1, x), population values for one row.

    Parameters
    ----------
    eta : array, shape (d, d)
        E[vv'], with eta[0, 0] = 1.
    xi : array, shape (q, q)
        Covariance of the q = d (d + 1) / 2 - 1 unique entries of vv', in the order of
        `unique_entries`. It may be singular (the square of an indicator is the indicator).
    """

    eta: FloatArray
    xi: FloatArray

    def __post_init__(self) -> None:
        eta = np.array(self.eta, dtype=np.float64)
        xi = np.array(self.xi, dtype=np.float64)
        if eta.ndim != 2 or eta.shape[0] != eta.shape[1] or eta.size == 0:
            raise RequestError(f"eta must be a square matrix over (1, x); got shape {eta.shape}")
        q = eta.shape[0] * (eta.shape[0] + 1) // 2 - 1
        if xi.shape != (q, q):
            raise RequestError(
                f"xi must be {q} by {q}, one row for each unique entry of vv' but (0, 0); got "
                f"shape {xi.shape}"
            )
        for name, matrix in (("eta", eta), ("xi", xi)):
            if not np.isfinite(matrix).all():
                raise RequestError(
                    f"{name} must have finite entries: the covariate law needs fourth moments"
                )
            tolerance = 1e-8 * max(1.0, float(np.abs(matrix).max(initial=0.0)))
            if not np.allclose(matrix, matrix.T, rtol=0.0, atol=tolerance):
                raise RequestError(f"{name} must be symmetric")
            if matrix.size and np.linalg.eigvalsh(matrix)[0] < -tolerance:
                raise RequestError(
                    f"{name} must be positive semi-definite; its smallest eigenvalue is "
                    f"{np.linalg.eigvalsh(matrix)[0]:.3g}"
                )
        if abs(eta[0, 0] - 1.0) > 1e-12:
            raise RequestError(f"eta[0, 0] is the constant 1; got {eta[0, 0]}")
        eta.setflags(write=False)
        xi.setflags(write=False)
        object.__setattr__(self, "eta", eta)
        object.__setattr__(self, "xi", xi)

    @property
    def k(self) -> int:
        """Number of covariates."""
        return len(self.eta) - 1

    @classmethod
    def normal(cls, mu: FloatArray, T: FloatArray) -> CovariateMoments:
        """x ~ N(mu, T), in closed form."""
        return cls._elliptical(np.asarray(mu, float), np.asarray(T, float), 1.0)

    @classmethod
    def from_niw(cls, covariates: NIWPrior) -> CovariateMoments:
        """Moments of one row under a normal inverse Wishart prior: a multivariate t law.

        x has nu - k + 1 degrees of freedom. This is for rows that are independent draws of that
        law. Rows that share an unknown mu and T are what `gibbs_update` is for.
        """
        k = covariates.k
        degrees = covariates.nu - k + 1.0
        if degrees <= 4.0:
            raise RequestError(
                f"a normal inverse Wishart prior with nu = {covariates.nu} has no fourth moments: "
                f"they need nu > k + 3 = {k + 3}. Use more degrees of freedom, or gibbs_update, "
                "which does not need them"
            )
        scale = covariates.Psi * (covariates.lam + 1.0) / (covariates.lam * degrees)
        variance = scale * degrees / (degrees - 2.0)
        return cls._elliptical(covariates.m, variance, (degrees - 2.0) / (degrees - 4.0))

    @classmethod
    def _elliptical(cls, mu: FloatArray, T: FloatArray, kurtosis: float) -> CovariateMoments:
        """Mean mu, covariance T, E[c_a c_b c_c c_e] = kurtosis (T_ab T_ce + ...), c = x - mu."""
        k = mu.size
        if T.shape != (k, k):
            raise RequestError(f"T must be {k} by {k}; got shape {T.shape}")
        m = np.concatenate([[1.0], mu])
        C = np.zeros((k + 1, k + 1))
        C[1:, 1:] = T
        rows, columns = unique_entries(k + 1)
        a, b = rows[:, None], columns[:, None]
        c, e = rows[None, :], columns[None, :]
        # Products of centred pairs, then the terms with one centred factor from each pair.
        xi = kurtosis * (C[a, c] * C[b, e] + C[a, e] * C[b, c]) + (kurtosis - 1) * C[a, b] * C[c, e]
        xi += m[a] * m[c] * C[b, e] + m[a] * m[e] * C[b, c]
        xi += m[b] * m[c] * C[a, e] + m[b] * m[e] * C[a, c]
        return cls(C + np.outer(m, m), xi)

    @classmethod
    def from_draws(cls, x: FloatArray) -> CovariateMoments:
        """Monte Carlo moments from draws of the covariate prior, shape (draws, k)."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim != 2 or x.shape[0] < 2 or not np.isfinite(x).all():
            raise RequestError(
                "x must hold at least 2 draws of finite covariates, shape (draws, k); got shape "
                f"{x.shape}"
            )
        v = np.column_stack([np.ones(len(x)), x])
        rows, columns = unique_entries(v.shape[1])
        t = v[:, rows] * v[:, columns]
        return cls(v.T @ v / len(x), np.atleast_2d(np.cov(t, rowvar=False, bias=True)))

    @classmethod
    def from_prior(
        cls,
        draw: Callable[[np.random.Generator, int], FloatArray],
        *,
        size: int = 200_000,
        seed: int = 0,
    ) -> CovariateMoments:
        """Monte Carlo moments of a covariate prior given as ``draw(rng, size) -> (size, k)``."""
        return cls.from_draws(draw(np.random.default_rng(seed), size))


def statistic_moments(
    moments: CovariateMoments, theta: FloatArray, sigma2: float
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of one row's unique entries of ww', shapes (q,) and (q, q)."""
    theta = np.asarray(theta, dtype=np.float64)
    d = moments.k + 1
    if theta.shape != (d,):
        raise RequestError(f"theta must have shape ({d},); got {theta.shape}")
    rows, columns = unique_entries(d + 1)
    G = np.empty((d + 1, d + 1))
    general_mean(moments.eta, theta, sigma2, G)
    covariance = np.zeros((rows.size, rows.size))
    once, twice = np.empty((len(moments.xi), d)), np.empty(len(moments.xi))
    general_covariance(
        moments.eta, moments.xi, entry_positions(d), entry_positions(d + 1),
        theta, sigma2, once, twice, covariance,
    )  # fmt: skip
    return G[rows, columns], covariance


def normal_statistic_moments(
    mu: FloatArray, T: FloatArray, theta: FloatArray, sigma2: float
) -> tuple[FloatArray, FloatArray]:
    """`statistic_moments` for x ~ N(mu, T), by the closed form."""
    mu, theta = np.asarray(mu, dtype=np.float64), np.asarray(theta, dtype=np.float64)
    P = mu.size + 2
    F, G = np.zeros((P, P)), np.empty((P, P))
    L = np.linalg.cholesky(np.asarray(T, dtype=np.float64)) if mu.size else np.zeros((0, 0))
    normal_factor(theta, sigma2, mu, L, F, G)
    rows, columns = unique_entries(P)
    covariance = np.zeros((rows.size, rows.size))
    every = np.arange(rows.size)
    normal_covariance(G, F[:, 0].copy(), rows, columns, every, rows.size, 1.0, covariance)
    return G[rows, columns], covariance + np.tril(covariance, -1).T


# --- released fourth moments ----------------------------------------------------------------------


def fourth_monomials(k: int) -> tuple[tuple[int, int, int, int], ...]:
    """All monomials of degree 1 to 4 in x, as sorted index quadruples into v = (1, x).

    The order is that of a Release (`noisewise.core.statistic.FourthMoments`).
    """
    quadruples = combinations_with_replacement(range(k + 1), 4)
    return tuple((a, b, c, e) for a, b, c, e in quadruples)[1:]


@dataclass(frozen=True, eq=False)
class FourthMomentObservation:
    """One holder's noisy sums of all monomials of degree 1 to 4 in the covariates.

    Parameters
    ----------
    n : int
        Number of rows. Public.
    k : int
        Number of covariates.
    values : array, shape (number of monomials,)
        Noisy sums over the rows, in the order of `fourth_monomials`.
    scale : float
        Noise scale of each: b of the Laplace law or the standard deviation of the normal one.
    family : {"laplace", "gaussian"}
    """

    n: int
    k: int
    values: FloatArray
    scale: float
    family: Literal["laplace", "gaussian"]

    def __post_init__(self) -> None:
        count = math.comb(self.k + 4, 4) - 1
        values = np.array(self.values, dtype=np.float64)
        if isinstance(self.n, bool) or int(self.n) != self.n or self.n < 1:
            raise ReleaseError(f"n must be a whole number of rows, at least 1; got {self.n!r}")
        if values.shape != (count,) or not np.isfinite(values).all():
            raise ReleaseError(
                f"values must be {count} finite sums, one for each monomial of degree 1 to 4 in "
                f"{self.k} covariates; got shape {values.shape}"
            )
        if not (np.isfinite(self.scale) and self.scale >= 0):
            raise ReleaseError(f"scale must be finite and at least 0; got {self.scale!r}")
        if self.family not in ("laplace", "gaussian"):
            raise ReleaseError(f"noise family must be 'laplace' or 'gaussian'; got {self.family!r}")
        values.setflags(write=False)
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "scale", float(self.scale))
        object.__setattr__(self, "values", values)


def monomial_positions(k: int) -> IndexArray:
    """Where the product of two entries of vech(vv') is among the monomials; the constant: -1.

    Shape (q + 1, q + 1), over (0, 0) first and then `unique_entries`.
    """
    where = {monomial: i for i, monomial in enumerate(fourth_monomials(k))}
    pairs = list(combinations_with_replacement(range(k + 1), 2))
    return np.array(
        [[where.get(_sorted4(first + second), -1) for second in pairs] for first in pairs],
        dtype=np.int64,
    )


def _sorted4(indices: tuple[int, ...]) -> tuple[int, int, int, int]:
    a, b, c, e = sorted(indices)
    return a, b, c, e


def released_moments(
    released: Sequence[FourthMomentObservation], *, floor: float = 1e-4
) -> CovariateMoments:
    """Population moments by plugging in released sums, pooled over holders, made possible.

    Noise can make eta or xi indefinite. Their eigenvalues are then raised to `floor` times the
    largest one (for eta: those of the covariance of x). The noise itself is ignored, as in
    Gibbs-SS-Noisy of the paper; `gibbs_noisy_aware` models it.
    """
    if not released:
        raise RequestError("gibbs_noisy needs at least one holder's released fourth moments")
    k = released[0].k
    if any(observation.k != k for observation in released):
        raise RequestError("all holders must release fourth moments of the same covariates")
    rows = sum(observation.n for observation in released)
    total = np.sum([observation.values for observation in released], axis=0) / rows
    where = monomial_positions(k)
    M = np.where(where < 0, 1.0, total[where])
    eta = np.empty((k + 1, k + 1))
    first, second = np.triu_indices(k + 1)
    eta[first, second] = eta[second, first] = M[0]
    mean = eta[0, 1:]
    eta[1:, 1:] = _raise_eigenvalues(eta[1:, 1:] - np.outer(mean, mean), floor)
    eta[1:, 1:] += np.outer(mean, mean)
    t = M[0, 1:]
    return CovariateMoments(eta, _raise_eigenvalues(M[1:, 1:] - np.outer(t, t), floor))


def _raise_eigenvalues(matrix: FloatArray, floor: float) -> FloatArray:
    if matrix.size == 0:
        return matrix
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, floor * max(float(np.abs(values).max()), 1e-12))
    repaired: FloatArray = (vectors * values) @ vectors.T
    return 0.5 * (repaired + repaired.T)
