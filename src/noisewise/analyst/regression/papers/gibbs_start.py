"""Where the chains of the Gibbs samplers start."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.gibbs_regression import prepare_regression
from noisewise.analyst.regression.priors import CovariatePrior, NIWPrior, RegressionPrior
from noisewise.core.errors import ReleaseError


def rough_population(observations: Sequence[Observation]) -> FloatArray:
    """A possible E[ww'] near the released values: only for starting points and choices of solver.

    Entry by entry the precision-weighted mean of the released A_j / n_j and of a guess that suits
    columns in [-1, 1]; then the covariance of (x, y) is made positive definite.
    """
    P = observations[0].k + 2
    guess = np.diag(np.full(P, 0.3))
    guess[0, 0] = 1.0
    weight = np.full((P, P), 4.0)
    total = weight * guess
    for observation in observations:
        own = 1.0 / ((observation.sd / observation.n) ** 2 + 0.3 / observation.n)
        total = total + own * observation.values / observation.n
        weight = weight + own
    return _possible(total / weight, 0.3 * float(np.sqrt(np.mean(1.0 / weight))))


def _possible(G: FloatArray, floor: float) -> FloatArray:
    mean = G[0, 1:]
    values, vectors = np.linalg.eigh(G[1:, 1:] - np.outer(mean, mean))
    values = np.maximum(values, max(min(floor, 0.1), 1e-3 * float(values[-1]), 1e-9))
    result = np.empty_like(G)
    result[0, 0] = 1.0
    result[0, 1:] = result[1:, 0] = mean
    result[1:, 1:] = (vectors * values) @ vectors.T + np.outer(mean, mean)
    return result


def _with_known_entries(G: FloatArray, observation: Observation) -> FloatArray:
    """G with the entries that are known exactly, moved towards a diagonal matrix if need be."""
    known = observation.scale == 0
    known[0, 0] = False
    if not known.any():
        return G
    diagonal = np.diag(np.diag(G))
    for step in np.linspace(0.0, 1.0, 11):
        mixed: FloatArray = (1 - step) * G + step * diagonal
        mixed[known] = observation.values[known] / observation.n
        if np.linalg.eigvalsh(mixed)[0] > 0:
            return mixed
    raise ReleaseError(
        "entries that are known exactly contradict each other: no possible statistics have them "
        "(a covariance beyond its variances)"
    )


def starting_statistics(
    observations: Sequence[Observation], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Valid, dispersed latent A_j, and noise variances; each (J, P, P).

    Chains start from releases with fresh noise added to them, so that they start further apart
    than the posterior is wide.
    """
    shaken = []
    for o in observations:
        noise = rng.laplace(size=o.values.shape) * math.sqrt(0.5)
        noise = np.triu(noise) + np.triu(noise, 1).T
        sd = np.where(np.isfinite(o.sd), o.sd, 0.0)
        shaken.append(Observation(o.n, o.values + sd * noise, o.scale, o.family))
    G = rough_population(shaken)
    A = np.stack([o.n * _with_known_entries(G, o) for o in observations])
    omega2 = np.stack([np.where(np.isfinite(o.sd), o.sd, 0.0) ** 2 for o in observations])
    return A, omega2


def starting_regression(A: FloatArray, prior: RegressionPrior) -> tuple[FloatArray, FloatArray]:
    """Centre of theta and sigma2 given the starting statistics."""
    total = A.sum(axis=0)
    arrays = prepare_regression(prior, total.shape[0] - 2)
    factor = np.linalg.cholesky(total + arrays.bordered)
    theta = np.linalg.solve(factor[:-1, :-1].T, factor[-1, :-1])
    sigma2 = (prior.b0 + 0.5 * factor[-1, -1] ** 2) / (prior.a0 + 0.5 * total[0, 0])
    return theta, np.array(sigma2)


def starting_scale(covariates: CovariatePrior, variance: FloatArray) -> FloatArray:
    """Psi, (k, k): the prior's, or where that has it unknown one that expects `variance`, (k,)."""
    if isinstance(covariates, NIWPrior):
        return np.array(covariates.Psi)
    expected = max(covariates.nu - covariates.k - 1.0, 1.0)
    return np.diag(expected * np.maximum(variance, 1e-6))
