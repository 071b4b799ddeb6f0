"""Truths that are possible before anything is known: the prior, confined to the public bounds.

A weakly informative prior is meant to be outvoted by data, and as a forecast it is too wide: most
of its draws put rows far beyond their bounds. Rows are within [-1, 1] on unit scale, so no second
moment is above 1, and truths that contradict that are left out:

- covariances T of the covariates come from their prior; a column whose variance is above 1/2 is
  scaled down to that;
- each mean comes from its prior given T, confined to where mean² + variance <= 1;
- coefficients and error variance come from theirs, confined to where E[y²] <= 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..analyst.priors import NIGPrior, NIWPrior, RegressionPrior
from ..core.errors import RequestError
from .regression import draw_covariate_law

FloatArray = NDArray[np.float64]
LARGEST_VARIANCE = 0.5
_MOST_TRIES = 5000


class Truths(NamedTuple):
    """m possible truths on unit scale."""

    theta: FloatArray  # (m, d)
    sigma2: FloatArray  # (m,)
    mu: FloatArray  # (m, k)
    T: FloatArray  # (m, k, k)

    def part(self, which: slice) -> Truths:
        """Some of them."""
        return Truths(self.theta[which], self.sigma2[which], self.mu[which], self.T[which])


def draw_truths(
    prior: RegressionPrior, covariates: NIWPrior, count: int, rng: np.random.Generator
) -> Truths:
    """Draw truths from both priors, confined to the unit box."""
    found = [_one(prior, covariates, rng) for _ in range(count)]
    theta, sigma2, mu, T = (np.array(part) for part in zip(*found, strict=True))
    return Truths(theta, sigma2, mu, T)


def _one(
    prior: RegressionPrior, covariates: NIWPrior, rng: np.random.Generator
) -> tuple[FloatArray, float, FloatArray, FloatArray]:
    _, T = draw_covariate_law(covariates, rng)
    shrink = np.minimum(1.0, np.sqrt(LARGEST_VARIANCE / T.diagonal()))
    T = T * np.outer(shrink, shrink)
    mu = _confined_normal(
        covariates.m,
        np.sqrt(T.diagonal() / covariates.lam),
        np.sqrt(1 - T.diagonal()),
        rng,
    )
    S = np.empty((len(mu) + 1, len(mu) + 1))
    S[0, 0], S[0, 1:], S[1:, 0] = 1.0, mu, mu
    S[1:, 1:] = T + np.outer(mu, mu)
    sigma2 = prior.b0 / rng.standard_gamma(prior.a0, _MOST_TRIES)
    theta = _coefficients(prior, sigma2, rng)
    square = np.einsum("mi,ij,mj->m", theta, S, theta) + sigma2
    possible = np.flatnonzero(square <= 1)
    if not len(possible):
        raise RequestError(
            "prior: hardly any of its draws keeps the target within its bounds; widen the "
            "target's bounds or state a prior that fits them"
        )
    return theta[possible[0]], float(sigma2[possible[0]]), mu, T


def _coefficients(
    prior: RegressionPrior, sigma2: FloatArray, rng: np.random.Generator
) -> FloatArray:
    normal = rng.standard_normal((len(sigma2), prior.k + 1))
    if isinstance(prior, NIGPrior):
        root = np.linalg.cholesky(np.linalg.inv(prior.Lam0))
        return np.asarray(prior.mu0 + np.sqrt(sigma2)[:, None] * normal @ root.T)
    return np.asarray(prior.mu0 + normal @ np.linalg.cholesky(prior.V0).T)


def _confined_normal(
    mean: FloatArray, sd: FloatArray, reach: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Normal draws confined to [-reach, reach], by inversion."""
    low, high = ndtr((-reach - mean) / sd), ndtr((reach - mean) / sd)
    inside = mean + sd * ndtri(rng.uniform(low, high))
    return np.asarray(np.clip(inside, -reach, reach), dtype=np.float64)
