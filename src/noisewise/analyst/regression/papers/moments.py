"""Mean and covariance of the sufficient statistics, for the central limit theorem of Gibbs-SS.

One row contributes t = ww', w = (1, x, y), to the statistics A = Σ ww', whose law the methods of
Bernstein & Sheldon (2019) approximate by N(n E[t], n Cov[t]), given the coefficients theta, the
error variance sigma2 and moments of the covariates x. Here are those moments, and what a holder
released of them.

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
from typing import Literal, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray, IntArray, Rng
from noisewise._compiled import compiled
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.core.errors import ReleaseError, RequestError

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
        eta, xi = np.array(self.eta, dtype=np.float64), np.array(self.xi, dtype=np.float64)
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
            smallest = np.linalg.eigvalsh(matrix)[0] if matrix.size else 0.0
            if smallest < -tolerance:
                raise RequestError(
                    f"{name} must be positive semi-definite; its smallest eigenvalue is "
                    f"{smallest:.3g}"
                )
            matrix.setflags(write=False)
            object.__setattr__(self, name, matrix)
        if abs(eta[0, 0] - 1.0) > 1e-12:
            raise RequestError(f"eta[0, 0] is the constant 1; got {eta[0, 0]}")

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
        """Moments of rows that are independent draws of a normal inverse Wishart prior's t law.

        It has nu - k + 1 degrees of freedom. (`gibbs_update` is for rows with one unknown mu, T.)
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
        c, e = unique_entries(k + 1)
        a, b = c[:, None], e[:, None]
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
        cls, draw: Callable[[Rng, int], FloatArray], *, size: int = 200_000, seed: int = 0
    ) -> CovariateMoments:
        """Monte Carlo moments of a covariate prior given as ``draw(rng, size) -> (size, k)``."""
        return cls.from_draws(draw(np.random.default_rng(seed), size))


# --- compiled: moments of one row's ww' -----------------------------------------------------------


class Law(NamedTuple):
    """Moments of the covariates that do not change, in the form the compiled functions take."""

    eta: FloatArray  # (d, d)
    xi: FloatArray  # (qv, qv)
    root: FloatArray  # (qv, qv), root root' = xi
    eta_root: FloatArray  # (d, d), lower triangular root of eta
    positions: IntArray  # (d, d), `entry_positions`
    rows: IntArray  # (q,), `unique_entries` of ww'
    columns: IntArray  # (q,)


def prepare_moments(moments: CovariateMoments) -> Law:
    """Put moments into arrays."""
    d = moments.k + 1
    values, vectors = np.linalg.eigh(moments.xi) if d > 1 else (np.zeros(0), np.zeros((0, 0)))
    # A trace more than eta, so that a singular one (dummy columns that add up to 1) has a factor.
    jitter = 1e-12 * np.trace(moments.eta) * np.eye(d)
    return Law(
        np.array(moments.eta),
        np.array(moments.xi),
        np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0))),
        np.linalg.cholesky(moments.eta + jitter),
        entry_positions(d),
        *unique_entries(d + 1),
    )


@compiled
def normal_factor(
    theta: FloatArray, sigma2: float, mu: FloatArray, L: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """F lower triangular and G = FF' = E[ww'] for x ~ N(mu, LL'). The mean of w is F[:, 0]."""
    k = mu.size
    F = np.zeros((k + 2, k + 2))
    F[0, 0] = 1.0
    F[1 : k + 1, 0] = mu
    F[1 : k + 1, 1 : k + 1] = L
    F[k + 1, 0] = theta[0] + theta[1:] @ mu
    F[k + 1, 1 : k + 1] = theta[1:] @ L
    F[k + 1, k + 1] = math.sqrt(sigma2)
    return F, F @ np.ascontiguousarray(F.T)


@compiled
def known_moments(law: Law, theta: FloatArray, sigma2: float) -> tuple[FloatArray, FloatArray]:
    """G = E[ww'], (P, P), and the covariance (q, q) of its unique entries, from moments of v.

    With y = v'theta + e the unique entries of ww' are B t + r: B is a matrix that depends on theta
    alone, t are the unique entries of vv', and r is 0 for v_i v_j, e v_i for v_i y and
    2 e v'theta + e² for y². t and r are uncorrelated, so that the covariance is B xi B' plus that
    of r. That is all lines of the formulas above at once.
    """
    d, size = theta.size, law.rows.size
    eta, positions = law.eta, law.positions
    image = eta @ theta
    square = theta @ image
    G = np.zeros((d + 1, d + 1))
    G[:d, :d] = eta
    G[:d, d] = G[d, :d] = image
    G[d, d] = square + sigma2
    B = np.zeros((size, law.xi.shape[0]))
    for r in range(size):
        a, b = law.rows[r], law.columns[r]
        for i in range(d):
            for j in range(d):
                left = theta[i] if a == d else (1.0 if i == a else 0.0)
                right = theta[j] if b == d else (1.0 if j == b else 0.0)
                if positions[i, j] >= 0:
                    B[r, positions[i, j]] += left * right
    C = B @ law.xi @ np.ascontiguousarray(B.T)
    for r in range(size):
        for s in range(size):
            if law.columns[r] == d and law.columns[s] == d:  # products with y
                a, c = law.rows[r], law.rows[s]
                if a == d and c == d:
                    C[r, s] += 4.0 * sigma2 * square + 2.0 * sigma2 * sigma2
                elif a == d or c == d:
                    C[r, s] += 2.0 * sigma2 * image[min(a, c)]
                else:
                    C[r, s] += sigma2 * eta[a, c]
    return G, C


@compiled
def draw_known_sums(rng: Rng, law: Law, n: float, theta: FloatArray, sigma2: float) -> FloatArray:
    """A ~ N(nE, nCov) for covariates with known moments, (P, P).

    With e = y - v'theta the sums of vv', ve and e² are uncorrelated, so they are drawn apart:
    vv' ~ (n eta, n xi), ve ~ (0, n sigma2 eta), e² ~ (n sigma2, 2 n sigma2²). Then
    z = S theta + v'e and u = theta'S theta + 2 theta'v'e + e'e are linear in them.
    """
    d = theta.size
    A = np.zeros((d + 1, d + 1))
    t = law.root @ rng.standard_normal(law.root.shape[0])
    for i in range(d):
        for j in range(d):
            A[i, j] = n * law.eta[i, j]
            if law.positions[i, j] >= 0:
                A[i, j] += math.sqrt(n) * t[law.positions[i, j]]
    errors = math.sqrt(n * sigma2) * (law.eta_root @ rng.standard_normal(d))
    squares = n * sigma2 + math.sqrt(2.0 * n) * sigma2 * rng.standard_normal()
    image = A[:d, :d].copy() @ theta
    A[:d, d] = A[d, :d] = image + errors
    A[d, d] = squares + theta @ (image + 2.0 * errors)
    return A


# --- released fourth moments ----------------------------------------------------------------------


def fourth_monomials(k: int) -> tuple[tuple[int, ...], ...]:
    """All monomials of degree 1 to 4 in x, as sorted index quadruples into v = (1, x).

    The order is that of a Release (`noisewise.core.statistics.FourthMoments`).
    """
    return tuple(combinations_with_replacement(range(k + 1), 4))[1:]


@dataclass(frozen=True, eq=False)
class FourthMomentObservation:
    """One holder's noisy sums of all monomials of degree 1 to 4 in the covariates."""

    n: int  # number of rows; public
    k: int  # number of covariates
    # (number of monomials,), noisy sums over the rows, in the order of `fourth_monomials`
    values: FloatArray
    # Noise scale of each: b of the Laplace law or the standard deviation of the normal one
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


def monomial_positions(k: int) -> IntArray:
    """Where the product of two entries of vech(vv') is among the monomials; the constant: -1.

    Shape (q + 1, q + 1), over (0, 0) first and then `unique_entries`.
    """
    where = {monomial: i for i, monomial in enumerate(fourth_monomials(k))}
    pairs = list(combinations_with_replacement(range(k + 1), 2))
    return np.array(
        [[where.get(tuple(sorted(one + other)), -1) for other in pairs] for one in pairs],
        dtype=np.int64,
    )


def released_moments(
    released: Sequence[FourthMomentObservation], *, floor: float = 1e-4
) -> CovariateMoments:
    """Population moments by plugging in released sums, pooled over holders, made possible.

    Noise can make eta or xi indefinite. Their eigenvalues are then raised to `floor` times the
    largest one (for eta: those of the covariance of x). Otherwise noise is ignored.
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
