"""Bayes-fixedS-fast: the covariates' second moments and sigma2 fixed, theta normal in closed form.

    theta ~ N(m, V),  V⁻¹ = prior + Σ_j S̃_j (sigma2 S̃_j + D_j)⁻¹ S̃_j,
    m = V (prior mean's share + Σ_j S̃_j (sigma2 S̃_j + D_j)⁻¹ ẑ_j)

with S̃_j the possible Gram matrix of the design nearest to the released one, D_j the variances of
the noise on ẑ_j = X'y, and sigma2 an estimate.

**What it knows:** the spread of the errors about the regression, and the noise on the released X'y.
**What it ignores:** the noise on the released X'X, which biases slopes towards zero and makes
intervals too narrow, the more so the more noise there is; that sigma2 is an estimate; that S̃ was
moved to be possible. It is therefore not noise-aware. The larger a holder's n beside the noise, the
less this matters.

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778, algorithm 3. Their estimate of sigma2, the bound of y divided by
three, is dimensionally a standard deviation; ours starts from its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import check_counts
from noisewise.analyst.regression.observation import Observation, named
from noisewise.analyst.regression.papers.gibbs_regression import Regression, prepare_regression
from noisewise.analyst.regression.papers.given_s import Holders, prepare_holders
from noisewise.analyst.regression.papers.projection import project_gram
from noisewise.analyst.regression.priors import RegressionPrior
from noisewise.core.errors import RequestError

WITHOUT_Y_SQUARES = 1.0 / 9.0  # y lies in [-1, 1]: three standard deviations to the bound
SMALLEST, LARGEST = 1e-4, 1.0  # errors of 0.5% of the bounds' width; nothing in [-1, 1] has more
_STEPS = 5


class Moments(NamedTuple):
    """The normal posterior of theta, and the error variance that it takes for known."""

    mean: FloatArray  # (d,)
    covariance: FloatArray  # (d, d)
    sigma2: float


class Draws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d), independent
    sigma2: FloatArray  # (chains, draws), one number throughout
    conditional_mean: None
    info: Moments


def fixed_moments(observations: Sequence[Observation], holders: Holders, method: str) -> FloatArray:
    """S̃_j of every holder, (J, d, d): the possible Gram matrix of its design nearest to Ŝ_j."""
    for name, seen in named(observations):
        if not np.isfinite(seen.scale[:-1, :-1]).all():
            raise RequestError(
                f"method: {method}: {name} did not release all second moments of the "
                "covariates, which the method fixes at their released values; use exact"
            )
    return np.stack([project_gram(S, int(n)) for S, n in zip(holders.S, holders.n, strict=True)])


def posterior_moments(
    holders: Holders, S: FloatArray, prior: Regression, sigma2: float
) -> tuple[FloatArray, FloatArray]:
    """Mean (d,) and covariance (d, d) of theta at a given sigma2: equation (12)."""
    weight = 1.0 if prior.independent else 1.0 / sigma2
    precision, shift = weight * prior.precision, weight * prior.bordered[:-1, -1]
    for S_j, w, z in zip(S, holders.w, holders.z, strict=True):
        M = sigma2 * S_j * np.outer(w, w) + np.eye(w.size)
        solved = np.linalg.solve(M, np.column_stack([w[:, None] * S_j, z]))
        precision = precision + (w[:, None] * S_j).T @ solved[:, :-1]
        shift = shift + (w[:, None] * S_j).T @ solved[:, -1]
    covariance: FloatArray = np.linalg.inv(0.5 * (precision + precision.T)).astype(np.float64)
    return covariance @ shift, covariance


def moments(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    sigma2: float | None = None,
    method: str = "fixed_s_fast",
) -> Moments:
    """The closed form, with sigma2 as given or estimated from the Releases.

    The estimate is the pooled residual sum of squares (û - 2 theta'ẑ + theta'S̃ theta) / n at the
    closed form's theta, from 1/9 on by a few fixed-point steps. It is kept above the standard
    deviation that the noise on û and ẑ gives it, since it can't tell a smaller error variance from
    none. Without y'y there is no estimate, and it stays at 1/9.
    """
    holders = prepare_holders(observations, method)
    regression = prepare_regression(prior, observations[0].k)
    S = fixed_moments(observations, holders, method)
    if sigma2 is not None:
        if not 0 < sigma2 < np.inf:
            raise RequestError(f"sigma2 must be a positive finite number; got {sigma2!r}")
        return Moments(*posterior_moments(holders, S, regression, sigma2), float(sigma2))
    value = WITHOUT_Y_SQUARES
    use = holders.has_u & (holders.w > 0).all(axis=1)
    for _ in range(_STEPS if use.any() else 0):
        theta, _ = posterior_moments(holders, S, regression, value)
        n = holders.n[use].sum()
        w, z = holders.w[use], holders.z[use]
        squares = (
            holders.u[use] - 2.0 * (z / w) @ theta + np.einsum("jab,a,b", S[use], theta, theta)
        )
        noise = holders.u_variance[use].sum() + 4.0 * ((theta / w) ** 2).sum()
        floor = max(SMALLEST, float(np.sqrt(noise)) / n)
        value = float(np.clip(squares.sum() / n, min(floor, LARGEST), LARGEST))
    return Moments(*posterior_moments(holders, S, regression, value), value)


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    sigma2: float | None = None,
) -> Draws:
    """Independent draws from the closed form; what it ignores is said at the top of this file.

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns, with Gaussian noise and a public n.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression; that of sigma2 is not used.
    chains, draws : int
    seed : int, optional
        The same seed gives the same draws.
    sigma2 : float, optional
        The error variance. Default: estimated, see `moments`.

    Returns
    -------
    Draws
    """
    check_counts(chains=chains, draws=draws)
    found = moments(observations, prior, sigma2=sigma2)
    root = np.linalg.cholesky(found.covariance)
    normal = np.stack(
        [
            np.random.default_rng(stream).standard_normal((draws, found.mean.size))
            for stream in np.random.SeedSequence(seed).spawn(chains)
        ]
    )
    constant = np.full((chains, draws), found.sigma2)
    return Draws(found.mean + normal @ root.T, constant, None, found)
