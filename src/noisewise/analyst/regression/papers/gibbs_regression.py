"""The conjugate draw of the regression given the latent statistics, compiled."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.random_numbers import fill_normal, gamma
from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_linalg import copy, fill
from noisewise.analyst.regression.papers.gibbs_triangular import cholesky, solve_lower_transposed
from noisewise.analyst.regression.priors import NormalInverseGammaIndependent, RegressionPrior
from noisewise.core.errors import RequestError


class Regression(NamedTuple):
    """A prior of (theta, sigma2), in the form the compiled functions take."""

    mu0: FloatArray  # (d,)
    precision: FloatArray  # (d, d), of theta; in units of 1 / sigma2 unless `independent`
    bordered: FloatArray  # (P, P), [[precision, precision mu0], [., mu0' precision mu0]]
    a0: float
    b0: float
    independent: bool  # theta and sigma2 a priori independent
    diagonal: bool  # the precision is diagonal


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
        mu0=np.array(prior.mu0),
        precision=np.array(precision),
        bordered=bordered,
        a0=float(prior.a0),
        b0=float(prior.b0),
        independent=independent,
        diagonal=bool((precision == np.diag(np.diag(precision))).all()),
    )


@compiled
def pool(A, out):  # type: ignore[no-untyped-def]
    """Sum of all holders' statistics."""
    fill(out, 0.0)
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            for b in range(A.shape[1]):
                out[a, b] += A[j, a, b]


@compiled
def _factor_regression(total, prior, sigma2, B):  # type: ignore[no-untyped-def]
    """Factor B = prior + A, which has all parameters of the conjugate law in it.

    The leading block is the factor of Lambda_n, the last row is (Lambda_n^(1/2) mu_n)', and the
    square of the last entry is 2 b_n.
    """
    d = total.shape[0] - 1
    weight = 1.0 / sigma2 if prior.independent else 1.0
    for a in range(d + 1):
        for b in range(a + 1):
            B[a, b] = prior.bordered[a, b] + weight * total[a, b]
    if not prior.independent:
        B[d, d] += 2.0 * prior.b0
    return cholesky(B, d + 1)


@compiled
def draw_regression(rng, total, prior, theta, sigma2, work):  # type: ignore[no-untyped-def]
    """theta, sigma2 | pooled statistics, in place; left alone if those cannot be factored."""
    d = theta.size
    B, g = work.squares[0], work.vectors[0]
    if not _factor_regression(total, prior, sigma2[()], B):
        return
    a_n = prior.a0 + 0.5 * total[0, 0]
    spread = 1.0
    if not prior.independent:
        sigma2[()] = 0.5 * B[d, d] * B[d, d] / gamma(rng, a_n)
        spread = math.sqrt(sigma2[()])
    fill_normal(rng, g, d)
    for a in range(d):
        theta[a] = B[d, a] + spread * g[a]
    solve_lower_transposed(B, theta, d)
    if prior.independent:
        square = total[d, d]
        for a in range(d):
            row = -2.0 * total[a, d]
            for b in range(d):
                row += total[a, b] * theta[b]
            square += theta[a] * row
        sigma2[()] = (prior.b0 + 0.5 * max(square, 0.0)) / gamma(rng, a_n)


@compiled
def store_draw(row, A, regression, theta, sigma2, store, work):  # type: ignore[no-untyped-def]
    """Put one draw into row `row` of the store, where it is not negative (warm-up)."""
    if row < 0:
        return
    copy(theta, store.theta[row])
    store.sigma2[row] = sigma2[()]
    store.rejected[row] = work.counts[0]
    store.exhausted[row] = work.counts[1]
    store.solver_iterations[row] = work.counts[2]
    if store.conditional_mean.size > 0:
        total, B, d = work.squares[2], work.squares[0], theta.size
        mean = store.conditional_mean[row]
        pool(A, total)
        _factor_regression(total, regression, sigma2[()], B)
        for a in range(d):
            mean[a] = B[d, a]
        solve_lower_transposed(B, mean, d)
    kept = store.statistics.shape[0]
    if kept > 0:
        every = store.theta.shape[0] // kept
        if row % every == 0 and row // every < kept:
            copy(A, store.statistics[row // every])
