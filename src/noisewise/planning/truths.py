"""Truths that are possible before anything is known: the prior, confined to the public bounds.

A weakly informative prior is meant to be outvoted by data, and as a forecast it is too wide: most
of its draws put rows far beyond their bounds. Rows are within [-1, 1] on unit scale, so no second
moment is above 1, and truths that contradict that are left out:

- covariances T of the covariates come from their prior; a column whose variance is above 1/2 is
  scaled down to that;
- each mean comes from its prior given T, confined to where mean² + variance <= 1;
- coefficients and error variance come from theirs, confined to where E[y²] <= 1.

Where a request forces rows into a ball, E|x|² is at most its radius², and the same is done with
that: the prior expects the variances of all columns to add up to half of it at most, a T beyond
that half is scaled down, and so is a mean that is too long. Some rows are outside the ball all the
same. What matters is the law of the rows after the holder has forced them, which has no formula:
rows are simulated and forced, and mu and T are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, RegressionPrior
from noisewise.core.errors import RequestError

LARGEST_VARIANCE = 0.5
_MOST_TRIES = 5000
_ROWS_A_COLUMN = 100  # simulated: each eigenvalue of T then comes within a tenth or two


class Truths(NamedTuple):
    """m possible truths on unit scale."""

    theta: FloatArray  # (m, d)
    sigma2: FloatArray  # (m,)
    mu: FloatArray  # (m, k)
    T: FloatArray  # (m, k, k)

    def part(self, which: slice) -> Truths:
        """Some of them."""
        return Truths(self.theta[which], self.sigma2[which], self.mu[which], self.T[which])


def covariate_prior(k: int, radius: float | None) -> NIWPrior:
    """The prior that `fit` has by default for a Release of k covariates, in a ball or not."""
    return NIWPrior.weakly_informative(k) if radius is None else NIWPrior.in_ball(k, radius)


def with_levels(
    truths: Truths, groups: Sequence[Sequence[int]], rng: np.random.Generator
) -> Truths:
    """The truths with indicators that are those of categories, each given by its columns of x.

    Shares of levels are Dirichlet(2), and levels have nothing to do with other columns.
    """
    mu, T = truths.mu.copy(), truths.T.copy()
    for group in groups:
        shares = rng.dirichlet(np.full(len(group) + 1, 2.0), len(mu))[:, 1:]
        T[:, group, :] = T[:, :, group] = 0.0
        for i, share in enumerate(shares):
            mu[i, group] = share
            T[i][np.ix_(group, group)] = np.diag(share) - np.outer(share, share)
    return truths._replace(mu=mu, T=T)


def moved(
    truths: Truths, mean: FloatArray, sd: FloatArray, target: tuple[float, float] | None
) -> Truths:
    """The truths with known means and spreads; correlations and what is explained stay as drawn.

    Mean and sd, (k,), are of the covariates on unit scale; NaN leaves a column as drawn. `target`
    has those of y.
    """
    theta, sigma2, mu, T = truths
    drawn = np.sqrt(np.einsum("mii->mi", T))
    ratio = np.where(np.isnan(sd), 1.0, sd / drawn)
    slopes = theta[:, 1:] / ratio
    middle = theta[:, 0] + np.einsum("mi,mi->m", theta[:, 1:], mu)
    T = T * ratio[:, :, None] * ratio[:, None, :]
    mu = np.where(np.isnan(mean), mu, mean)
    if target is not None:
        spread = np.sqrt(np.einsum("mi,mij,mj->m", slopes, T, slopes) + sigma2)
        factor = target[1] / spread
        slopes, sigma2 = slopes * factor[:, None], sigma2 * factor**2
        middle = np.full_like(middle, target[0])
    intercept = middle - np.einsum("mi,mi->m", slopes, mu)
    return Truths(np.column_stack([intercept, slopes]), sigma2, mu, T)


class RowLaw(NamedTuple):
    """Normal rows of covariates, scaled down where they are outside a ball."""

    mu: FloatArray  # (k,)
    T: FloatArray  # (k, k)
    radius: float | None

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Rows, shape (count, k)."""
        root = np.linalg.cholesky(self.T)
        x = self.mu + rng.standard_normal((count, len(self.mu))) @ root.T
        if self.radius is not None:
            x *= np.minimum(1.0, self.radius / np.linalg.norm(x, axis=1, keepdims=True))
        return np.asarray(x)

    def moments(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the rows."""
        if self.radius is None:
            return self.mu, self.T
        x = self.draw(rng, max(2000, _ROWS_A_COLUMN * len(self.mu)))
        return x.mean(axis=0), np.cov(x.T, ddof=0).reshape(self.T.shape)


def draw_truths(
    prior: RegressionPrior,
    covariates: NIWPrior,
    count: int,
    rng: np.random.Generator,
    radius: float | None = None,
) -> tuple[Truths, list[RowLaw]]:
    """Draw truths from both priors, confined to the unit box, and to a ball if there is one.

    The laws say what rows of each of them may be like; their mean and covariance are mu and T.
    """
    found = [_one(prior, covariates, radius, rng) for _ in range(count)]
    theta, sigma2, mu, T = (np.array([one[part] for one, _ in found]) for part in range(4))
    return Truths(theta, sigma2, mu, T), [law for _, law in found]


def _one(
    prior: RegressionPrior, covariates: NIWPrior, radius: float | None, rng: np.random.Generator
) -> tuple[tuple[FloatArray, float, FloatArray, FloatArray], RowLaw]:
    law = _row_law(covariates, radius, rng)
    mu, T = law.moments(rng)
    S = np.empty((len(mu) + 1, len(mu) + 1))
    S[0, 0], S[0, 1:], S[1:, 0] = 1.0, mu, mu
    S[1:, 1:] = T + np.outer(mu, mu)
    sigma2 = prior.b0 / rng.standard_gamma(prior.a0, _MOST_TRIES)
    theta = _coefficients(prior, sigma2, rng)
    square = np.einsum("mi,mi->m", theta @ S, theta) + sigma2
    possible = np.flatnonzero(square <= 1)
    if not len(possible):
        raise RequestError(
            "prior: hardly any of its draws keeps the target within its bounds; widen the "
            "target's bounds or state a prior that fits them"
        )
    return (theta[possible[0]], float(sigma2[possible[0]]), mu, T), law


def _row_law(covariates: NIWPrior, radius: float | None, rng: np.random.Generator) -> RowLaw:
    _, T = draw_covariate_law(covariates, rng)
    shrink = np.minimum(1.0, np.sqrt(LARGEST_VARIANCE / T.diagonal()))
    T = T * np.outer(shrink, shrink)
    if radius is not None:
        T = T * min(1.0, LARGEST_VARIANCE * radius**2 / T.trace())
    mu = _confined_normal(
        covariates.m, np.sqrt(T.diagonal() / covariates.lam), np.sqrt(1 - T.diagonal()), rng
    )
    if radius is not None:
        mu = mu * min(1.0, np.sqrt((radius**2 - T.trace()) / (mu @ mu)))
    return RowLaw(mu, T, radius)


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


def draw_covariate_law(prior: NIWPrior, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw (mu, T) from the prior, by Bartlett's decomposition of the Wishart matrix T⁻¹."""
    k = prior.k
    # T⁻¹ ~ W(Psi⁻¹, nu): with Psi = CC' and BB' ~ W(I, nu), T = (C B⁻')(C B⁻')'.
    B = bartlett(rng, prior.nu, k)
    root = np.linalg.solve(B, np.linalg.cholesky(prior.Psi).T).T
    T = root @ root.T
    return prior.m + root @ rng.standard_normal(k) / np.sqrt(prior.lam), T


def bartlett(rng: np.random.Generator, degrees: float, k: int) -> FloatArray:
    """Lower triangular B with BB' ~ W(I_k, degrees)."""
    B = np.tril(rng.standard_normal((k, k)), -1)
    B[np.diag_indices(k)] = np.sqrt(rng.chisquare(degrees - np.arange(k)))
    return B
