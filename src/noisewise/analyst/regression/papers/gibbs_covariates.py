"""The conjugate draw of the covariates' mean and covariance given the statistics, compiled."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.random_numbers import fill_bartlett, fill_normal, gamma
from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_linalg import product
from noisewise.analyst.regression.papers.gibbs_triangular import (
    cholesky,
    invert_transposed,
    multiply_lower,
)
from noisewise.analyst.regression.priors import CovariatePrior, NIWPrior
from noisewise.core.errors import RequestError


class Covariates(NamedTuple):
    """The prior of mu and T, in the form the compiled functions take."""

    m: FloatArray  # (k,)
    lam: float
    nu: float
    bordered: FloatArray  # (d, d), lam (1, m)(1, m)'
    shape: float  # of the gamma laws of Psi's diagonal
    rate: FloatArray  # (k,) their rates, or (0,) if Psi is fixed
    diagonal: bool  # Psi is diagonal


def prepare_covariates(prior: CovariatePrior, k: int) -> Covariates:
    """Check the prior of the covariates and put it into arrays."""
    if prior.k != k:
        raise RequestError(f"covariates is for {prior.k} covariates, the statistics are for {k}")
    mean = np.concatenate([[1.0], prior.m])
    return Covariates(
        m=np.array(prior.m),
        lam=float(prior.lam),
        nu=float(prior.nu),
        bordered=prior.lam * np.outer(mean, mean),
        shape=0.0 if isinstance(prior, NIWPrior) else float(prior.shape),
        rate=np.zeros(0) if isinstance(prior, NIWPrior) else np.array(prior.rate),
        diagonal=not isinstance(prior, NIWPrior)
        or bool((prior.Psi == np.diag(np.diag(prior.Psi))).all()),
    )


@compiled
def draw_covariates(rng, total, prior, mu, L, Psi, work):  # type: ignore[no-untyped-def]
    """mu, T (and Psi) | pooled statistics, in place; left alone if those cannot be factored.

    The factor of prior + A[:d, :d] has sqrt(lam_n) (1, m_n) in its first column and the factor C
    of Psi_n in the rest. With R lower triangular, R_ii ~ chi(nu_n - k + 1 + i) and normal below,
    R'R is Wishart(nu_n, I), so that L = C R⁻¹ is the lower triangular factor of an inverse Wishart
    T directly. Given T, psi_j ~ Gamma(shape + nu / 2, rate_j + (T⁻¹)_jj / 2).
    """
    k = mu.size
    E, R, V, g = work.squares[0], work.squares[1], work.squares[3], work.vectors[0]
    for a in range(k + 1):
        for b in range(a + 1):
            E[a, b] = prior.bordered[a, b] + total[a, b]
    for a in range(k):
        row = E[a + 1, 1:]
        for b in range(a + 1):
            row[b] += Psi[a, b]
    if not cholesky(E, k + 1):
        return
    n = total[0, 0]
    fill_bartlett(rng, R, prior.nu + n - k + 1.0, 1.0, k, V.reshape(-1))
    for a in range(k):
        row = E[a + 1, 1:]
        for b in range(a + 1):
            L[a, b] = row[b]
    invert_transposed(R, V, k)
    multiply_lower(L, V, L, k)
    fill_normal(rng, g, k)
    inverse = 1.0 / math.sqrt(prior.lam + n)
    for a in range(k):
        value = E[a + 1, 0]
        for b in range(a + 1):
            value += L[a, b] * g[b]
        mu[a] = value * inverse
    if prior.rate.size > 0:
        invert_transposed(L, V, k)
        for b in range(k):
            precision = product(V[b, b:], V[b, b:], k - b)
            Psi[b, b] = gamma(rng, prior.shape + 0.5 * prior.nu) / (prior.rate[b] + 0.5 * precision)
