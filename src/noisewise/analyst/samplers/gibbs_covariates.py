"""The conjugate draw of the covariates' mean and covariance given the statistics, compiled."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.models.moments_compiled import compiled
from noisewise.analyst.priors import CovariatePrior, NIWPrior
from noisewise.analyst.samplers.gibbs_linalg import cholesky, invert_lower, right_solve_lower
from noisewise.analyst.samplers.gibbs_random import chi, fill_normal, gamma
from noisewise.core.errors import RequestError

FloatArray = NDArray[np.float64]


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
    E, R, g = work.squares[0], work.squares[1], work.vectors[0]
    for a in range(k + 1):
        for b in range(a + 1):
            E[a, b] = prior.bordered[a, b] + total[a, b]
            if b > 0:
                E[a, b] += Psi[a - 1, b - 1]
    if not cholesky(E, k + 1):
        return
    n = total[0, 0]
    for a in range(k):
        fill_normal(rng, R[a], a)
        R[a, a] = chi(rng, prior.nu + n - k + 1.0 + a)
        for b in range(a + 1):
            L[a, b] = E[a + 1, b + 1]
    right_solve_lower(L, R, k)
    fill_normal(rng, g, k)
    inverse = 1.0 / math.sqrt(prior.lam + n)
    for a in range(k):
        value = E[a + 1, 0]
        for b in range(a + 1):
            value += L[a, b] * g[b]
        mu[a] = value * inverse
    if prior.rate.size > 0:
        invert_lower(L, R, k)
        for b in range(k):
            precision = 0.0
            for a in range(b, k):
                precision += R[a, b] * R[a, b]
            Psi[b, b] = gamma(rng, prior.shape + 0.5 * prior.nu) / (prior.rate[b] + 0.5 * precision)
