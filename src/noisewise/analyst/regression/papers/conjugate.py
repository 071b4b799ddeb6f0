"""Conjugate laws: the regression and the covariates given exact second moments A = Σ ww'."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.papers.sampling import (
    bartlett,
    factor,
    inverse_lower,
    solve_upper,
)
from noisewise.analyst.regression.priors import (
    CovariatePrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    RegressionPrior,
)
from noisewise.core.errors import RequestError

# --- the whole posterior, in NumPy ----------------------------------------------------------------


class NIG(NamedTuple):
    """Parameters of theta | sigma2 ~ N(mu, sigma2 Lam⁻¹), sigma2 ~ IG(a, b)."""

    mu: FloatArray
    Lam: FloatArray
    a: float
    b: float


def update(prior: NIGPrior, A: FloatArray, n: int) -> NIG:
    """The posterior given A = Σ ww', w = (1, x, y), over n rows.

    Lam_n = Lam0 + S, mu_n = Lam_n⁻¹(Lam0 mu0 + z), a_n = a0 + n/2 and
    b_n = b0 + (u + mu0'Lam0 mu0 - mu_n'Lam_n mu_n)/2, where S, z, u are the blocks of A.
    """
    S, z, u = A[:-1, :-1], A[:-1, -1], A[-1, -1]
    Lam = prior.Lam0 + S
    shift = prior.Lam0 @ prior.mu0 + z
    mu = np.asarray(np.linalg.solve(Lam, shift), dtype=np.float64)
    b = prior.b0 + 0.5 * float(u + prior.mu0 @ prior.Lam0 @ prior.mu0 - mu @ shift)
    return NIG(mu, Lam, prior.a0 + n / 2, b)


def matched(prior: RegressionPrior) -> NIGPrior:
    """A conjugate prior as wide as the given one, at the error variance b0 / a0."""
    if isinstance(prior, NIGPrior):
        return prior
    typical = prior.b0 / prior.a0
    precision = np.asarray(typical * np.linalg.inv(prior.V0), dtype=np.float64)
    return NIGPrior(prior.mu0, (precision + precision.T) / 2, prior.a0, prior.b0)


def draw(
    posterior: NIG, rng: np.random.Generator, size: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Independent draws of theta (…, d) and sigma2 (…)."""
    sigma2 = posterior.b / rng.standard_gamma(posterior.a, size)
    root = np.linalg.cholesky(posterior.Lam)
    normal = rng.standard_normal((*size, len(posterior.mu)))
    # Lam = root root', so root'⁻¹ normal has covariance Lam⁻¹.
    scaled = np.linalg.solve(root.T, normal.reshape(-1, len(posterior.mu)).T).T
    theta = posterior.mu + np.sqrt(sigma2)[..., None] * scaled.reshape(normal.shape)
    return theta, sigma2


# --- the regression given the statistics ----------------------------------------------------------


class Regression(NamedTuple):
    """A prior of (theta, sigma2), in the form the compiled functions take."""

    mu0: FloatArray  # (d,)
    precision: FloatArray  # (d, d), of theta; in units of 1 / sigma2 unless `independent`
    bordered: FloatArray  # (P, P), [[precision, precision mu0], [., mu0' precision mu0]]
    a0: float
    b0: float
    independent: bool  # theta and sigma2 a priori independent


def prepare_regression(prior: RegressionPrior, k: int) -> Regression:
    """Check the prior of the regression and put it into arrays."""
    if prior.k != k:
        raise RequestError(f"prior is for {prior.k} covariates, the statistics are for {k}")
    independent = isinstance(prior, NormalInverseGammaIndependent)
    precision = (
        np.linalg.inv(prior.V0) if isinstance(prior, NormalInverseGammaIndependent) else prior.Lam0
    )
    bordered = np.empty((k + 2, k + 2))
    bordered[:-1, :-1] = precision
    bordered[:-1, -1] = bordered[-1, :-1] = precision @ prior.mu0
    bordered[-1, -1] = prior.mu0 @ precision @ prior.mu0
    return Regression(
        np.array(prior.mu0), np.array(precision), bordered, prior.a0, prior.b0, independent
    )


def conditional_mean(prior: Regression, total: FloatArray, sigma2: FloatArray) -> FloatArray:
    """E[theta | statistics], and sigma2 if the prior is independent, for any number of draws.

    total : (..., P, P), the statistics of all holders together; sigma2 : (...).
    """
    weight = 1.0 / sigma2[..., None, None] if prior.independent else 1.0
    B = prior.bordered + weight * total
    solved = np.linalg.solve(B[..., :-1, :-1], B[..., :-1, -1:])
    return np.asarray(solved[..., 0], dtype=np.float64)


def starting_regression(A: FloatArray, prior: Regression) -> tuple[FloatArray, float]:
    """Centre of theta and sigma2 given starting statistics (J, P, P)."""
    total = A.sum(axis=0)
    root = np.linalg.cholesky(total + prior.bordered)
    theta = np.linalg.solve(root[:-1, :-1].T, root[-1, :-1])
    return theta, float((prior.b0 + 0.5 * root[-1, -1] ** 2) / (prior.a0 + 0.5 * total[0, 0]))


@compiled
def draw_regression(
    rng: np.random.Generator,
    prior: Regression,
    total: FloatArray,
    theta: FloatArray,
    sigma2: float,
) -> tuple[FloatArray, float]:
    """theta, sigma2 | the sum of all statistics; as they were if that cannot be factored.

    The factor of B = prior + A has all parameters of the conjugate law in it: its leading block is
    that of Lam_n, its last row (Lam_n^(1/2) mu_n)', and the square of its last entry is 2 b_n. With
    an independent prior these are two Gibbs steps, theta | sigma2 and sigma2 | theta.
    """
    d = prior.mu0.size
    B = prior.bordered + (total / sigma2 if prior.independent else total)
    if not prior.independent:
        B[d, d] += 2.0 * prior.b0
    L, proper = factor(B)
    if not proper:
        return theta, sigma2
    shape, spread = prior.a0 + 0.5 * total[0, 0], 1.0
    if not prior.independent:
        sigma2 = 0.5 * L[d, d] ** 2 / rng.standard_gamma(shape)
        spread = math.sqrt(sigma2)
    new = solve_upper(L[:d, :d], L[d, :d] + spread * rng.standard_normal(d))
    if prior.independent:
        squares = total[d, d] - 2.0 * (total[d, :d] @ new)
        for a in range(d):
            squares += new[a] * (total[a, :d] @ new)
        sigma2 = (prior.b0 + 0.5 * max(squares, 0.0)) / rng.standard_gamma(shape)
    return new, sigma2


# --- the covariates given the statistics ----------------------------------------------------------


class Covariates(NamedTuple):
    """The prior of mu and T, in the form the compiled functions take."""

    m: FloatArray  # (k,)
    lam: float
    nu: float
    bordered: FloatArray  # (d, d), lam (1, m)(1, m)'
    shape: float  # of the gamma laws of Psi's diagonal
    rate: FloatArray  # (k,) their rates, or (0,) if Psi is fixed


def prepare_covariates(prior: CovariatePrior, k: int) -> Covariates:
    """Check the prior of the covariates and put it into arrays."""
    if prior.k != k:
        raise RequestError(f"covariates is for {prior.k} covariates, the statistics are for {k}")
    mean = np.concatenate([[1.0], prior.m])
    return Covariates(
        m=np.array(prior.m),
        lam=prior.lam,
        nu=prior.nu,
        bordered=prior.lam * np.outer(mean, mean),
        shape=0.0 if isinstance(prior, NIWPrior) else prior.shape,
        rate=np.zeros(0) if isinstance(prior, NIWPrior) else np.array(prior.rate),
    )


def starting_scale(covariates: CovariatePrior, variance: FloatArray) -> FloatArray:
    """Psi, (k, k): the prior's, or where that has it unknown one that expects `variance`, (k,)."""
    if isinstance(covariates, NIWPrior):
        return np.array(covariates.Psi)
    expected = max(covariates.nu - covariates.k - 1.0, 1.0)
    return np.diag(expected * np.maximum(variance, 1e-6))


@compiled
def draw_covariates(
    rng: np.random.Generator,
    prior: Covariates,
    total: FloatArray,
    mu: FloatArray,
    L: FloatArray,
    Psi: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """mu, the factor L of T, and Psi | the sum of all statistics; as they were if it has no factor.

    The factor of prior + A[:d, :d] has sqrt(lam_n) (1, m_n) in its first column and the factor C
    of Psi_n in the rest. With R lower triangular, R_ii ~ chi(nu_n - k + 1 + i) and normal below,
    R'R is Wishart(nu_n, I), so that L = C R⁻¹ is the lower triangular factor of an inverse Wishart
    T directly. Given T, psi_j ~ Gamma(shape + nu / 2, rate_j + (T⁻¹)_jj / 2).
    """
    k, n = mu.size, total[0, 0]
    E = prior.bordered + total[: k + 1, : k + 1]
    E[1:, 1:] += Psi
    C, proper = factor(E)
    if not proper:
        return mu, L, Psi
    R = bartlett(rng, prior.nu + n - k + 1.0, 1.0, k)
    L, mu = np.zeros((k, k)), np.zeros(k)
    normal = rng.standard_normal(k)
    for a in range(k):
        L[a] = solve_upper(R, C[a + 1, 1:])
        mu[a] = (C[a + 1, 0] + L[a] @ normal) / math.sqrt(prior.lam + n)
    if prior.rate.size > 0:
        K = inverse_lower(L)
        Psi = np.zeros((k, k))
        for b in range(k):
            rate = prior.rate[b] + 0.5 * np.sum(K[:, b] ** 2)
            Psi[b, b] = rng.standard_gamma(prior.shape + 0.5 * prior.nu) / rate
    return mu, L, Psi
