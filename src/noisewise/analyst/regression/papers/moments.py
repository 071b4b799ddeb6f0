"""Moments of the covariates, and of the sufficient statistics of the regression on them.

The formulas are in `moments_formulas`, released fourth moments in `moments_fourth`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.papers.moments_formulas import (
    entry_positions,
    general_covariance,
    general_mean,
    normal_covariance,
    normal_factor,
    unique_entries,
)
from noisewise.analyst.regression.papers.moments_fourth import (
    FourthMomentObservation,
    fourth_monomials,
    monomial_positions,
)
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.core.errors import RequestError

__all__ = [
    "CovariateMoments",
    "FourthMomentObservation",
    "fourth_monomials",
    "normal_statistic_moments",
    "released_moments",
    "statistic_moments",
    "unique_entries",
]


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
