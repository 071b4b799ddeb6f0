"""Truths from the scale-free prior: their ranks among the draws are uniform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from noisewise.analyst.regression.exact import sampler
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import ScaleFreeCovariates, ScaleFreePrior

TRIALS, CONTROLS, K, N = 120, 40, 2, 400


def half_t(rng, degrees, scale):
    return scale * abs(rng.standard_t(degrees))


def variances(rng):
    """Standard deviations of what is explained and what is left; R² has one of two laws."""
    c = special.beta(0.5, 0.5) / special.beta(0.5, 0.5 * K)
    while True:
        omega, sigma = half_t(rng, 4, 0.5), half_t(rng, 4, 0.5)
        left = sigma**2 / (sigma**2 + omega**2)
        if rng.uniform() * (1.0 + c) < 1.0 + c * left ** (0.5 * (K - 1)):
            return omega, sigma


def simulated(rng):
    """Truth from the prior (slopes, ln sigma2) and the Gram matrix of N rows.

    Means are flat in the prior. They come from a law that is wide beside what a Release leaves
    open about them, which makes no visible difference.
    """
    covariates = ScaleFreeCovariates.default(K)
    psi = rng.gamma(covariates.shape, 1.0 / covariates.rate)
    T = np.atleast_2d(stats.invwishart.rvs(covariates.nu, np.diag(psi), random_state=rng))
    x = rng.normal(0.0, 0.3, K) + rng.multivariate_normal(np.zeros(K), T, N)
    omega, sigma = variances(rng)
    S = np.cov(x.T, ddof=0).reshape(K, K)
    slopes = omega / np.sqrt(K) * np.linalg.solve(np.linalg.cholesky(S).T, rng.normal(size=K))
    y = rng.normal(0.0, 0.3) + (x - x.mean(axis=0)) @ slopes + sigma * rng.standard_normal(N)
    w = np.column_stack([np.ones(N), x, y])
    return np.array([*slopes, np.log(sigma**2)]), w.T @ w


@pytest.fixture(scope="module")
def ranks():
    """Of the truths among the draws, (trials, K + 1) each: right noise, and a third of it."""
    rng = np.random.default_rng(20261117)
    found = [np.empty((trials, K + 1)) for trials in (TRIALS, CONTROLS)]
    for trial in range(TRIALS):
        truth, A = simulated(rng)
        noise = np.tril(rng.laplace(0.0, 4.0, A.shape))
        noise[0, 0] = 0.0
        values = A + noise + np.tril(noise, -1).T
        for i, believed in enumerate((4.0, 4.0 / 3.0) if trial < CONTROLS else (4.0,)):
            scale = np.full(A.shape, believed)
            scale[0, 0] = 0.0
            seen = Observation(N, values, scale, "laplace")
            drawn = sampler.sample(
                [seen],
                ScaleFreePrior(K),
                ScaleFreeCovariates.default(K),
                chains=1,
                draws=400,
                seed=trial,
                keep_covariates=False,
            )
            theta = drawn.theta[0, ::4, 1:]
            draws = np.column_stack([theta, np.log(drawn.sigma2[0, ::4])])
            found[i][trial] = (draws < truth).mean(axis=0)
    return found


@pytest.mark.slow
def test_ranks_are_uniform_and_with_wrong_noise_they_are_not(ranks):
    # Ranks among 100 thinned draws are rounded; a hundredth is far below what 120 trials can see.
    right, wrong = ([stats.kstest(values, "uniform").pvalue for values in of.T] for of in ranks)
    assert min(right) > 0.001
    held = [(np.abs(of - 0.5) < 0.45).mean(axis=0) for of in ranks]
    assert (held[0] > 0.9 - 4 * np.sqrt(0.09 / TRIALS)).all()
    assert min(wrong) < 1e-6 or held[1].min() < 0.75
