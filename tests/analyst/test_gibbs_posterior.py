"""The posteriors of the gibbs_* methods, against oracles that share nothing with them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import gibbs
from noisewise.analyst.regression.papers.moments import (
    CovariateMoments,
    fourth_monomials,
    released_moments,
)
from noisewise.analyst.regression.priors import (
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)

from .gibbs_problems import (
    collapsed_importance_sampling,
    defaults,
    error_of_mean,
    flatten,
    fourth_release,
    problem,
    release,
    rows,
)

ORACLES = Path(__file__).parents[1] / "data" / "oracles" / "open.json"

# --- importance sampling --------------------------------------------------------------------------


def oracle_cases():
    return json.loads(ORACLES.read_text("utf-8"))


@pytest.mark.parametrize("interweave", [False, True])
@pytest.mark.parametrize("case", oracle_cases(), ids=lambda case: case["name"])
def test_importance_sampling_oracles(case, interweave):
    """n = 10 and 20, one covariate: within the bias that the central limit theorem makes there.

    Stated bias: posterior standard deviations up to 6% too large for theta and 15% for sigma2,
    means off by at most 0.03 (theta) and 0.15 (sigma2) standard deviations, without interweaving;
    a third of that with it.
    """
    p = case["prior"]
    observations = []
    for n, family, scale, (x, y, xx, xy, yy) in zip(
        case["n"], case["noise"], case["scale"], case["observed"], strict=True
    ):
        scales = np.full((3, 3), scale)
        scales[0, 0] = 0.0
        values = np.array([[n, x, y], [x, xx, xy], [y, xy, yy]])
        observations.append(Observation(n, values, scales, family))
    prior = NIGPrior(p["mu0"], np.diag(p["Lam0"]), p["a0"], p["b0"])
    covariates = NIWPrior([p["m"]], p["lam"], [[p["Psi"]]], p["nu"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        draws = gibbs.sample(
            observations, prior, covariates, chains=2, draws=40_000, tune=500, seed=1,
            interweave=interweave,
        )  # fmt: skip
    x = flatten(draws)
    sd = np.array(case["sd"])
    error = np.hypot(error_of_mean(draws), case["mcse_mean"])
    bias = np.array([0.03, 0.03, 0.15]) if not interweave else np.array([0.012, 0.012, 0.05])
    assert (np.abs(x.mean(axis=0) - case["mean"]) < 4 * error + bias * sd).all()
    inflation = np.array([1.08, 1.08, 1.17]) if not interweave else np.array([1.04, 1.045, 1.07])
    ratio = x.std(axis=0) / sd
    assert (ratio < inflation).all()
    assert (ratio > 0.985).all()


@pytest.mark.long
def test_two_holders_with_different_rows_and_mechanisms():
    """J = 2 against importance sampling, n = 50 and 90: little is left of the CLT's bias."""
    rng = np.random.default_rng(3)
    law = (0.2, 0.3, [0.3, 0.8], 0.2)
    observations = [
        release(rows(rng, 50, *law), 2.0, "laplace", rng),
        release(rows(rng, 90, *law), 4.0, "gaussian", rng),
    ]
    prior = NIGPrior([0.0, 0.0], np.diag([0.5, 0.5]), 3.0, 0.4)
    covariates = NIWPrior([0.0], 1.0, [[0.5]], 5.0)
    mean, sd, effective = collapsed_importance_sampling(
        observations, prior, covariates, 400_000, seed=4
    )
    assert effective > 4000
    draws = gibbs.sample(observations, prior, covariates, chains=2, draws=40_000, seed=5)
    x = flatten(draws)
    error = np.hypot(error_of_mean(draws), sd / np.sqrt(effective))
    assert (np.abs(x.mean(axis=0) - mean) < 4 * error + 0.02 * sd).all()
    np.testing.assert_allclose(x.std(axis=0), sd, rtol=0.07)
    # Negative control: one holder less is another posterior.
    alone, alone_sd, _ = collapsed_importance_sampling(
        observations[:1], prior, covariates, 400_000, seed=4
    )
    assert (np.abs(x.mean(axis=0) - alone) > 0.3 * sd).any() or (alone_sd > 1.2 * sd).any()


@pytest.mark.long
@pytest.mark.parametrize("with_fourth", [False, True])
def test_noisy_aware_has_no_clt_bias(with_fourth):
    """gibbs_noisy_aware is a proper Gibbs sampler: right at n = 10, flat prior on S (item 28)."""
    rng = np.random.default_rng(6)
    w = rows(rng, 10, 0.2, 0.3, [0.3, 0.8], 0.2)
    o = release(w, 1.0, "laplace" if with_fourth else "gaussian", rng)
    prior = NIGPrior([0.0, 0.0], np.diag([0.5, 0.5]), 3.0, 0.4)
    fourth = None
    combined = o
    if with_fourth:
        o = release(w, 1.0, "gaussian", rng)
        fourth = fourth_release(w, 1.5, "gaussian", rng)
        # Two normal observations of an entry of S are one with the weighted mean.
        values, scale = o.values.copy(), o.scale.copy()
        where = {m: i for i, m in enumerate(fourth_monomials(1))}
        for a, b in ((0, 1), (1, 1)):
            second = fourth.values[where[0, 0, a, b]]
            weights = np.array([1.0, 1.5**-2])
            mixed = weights @ [values[a, b], second] / weights.sum()
            values[a, b] = values[b, a] = mixed
            scale[a, b] = scale[b, a] = 1 / np.sqrt(weights.sum())
        combined = Observation(o.n, values, scale, "gaussian")
    mean, sd, effective = collapsed_importance_sampling([combined], prior, None, 400_000, seed=7)
    assert effective > 4000
    draws = gibbs.sample([o], prior, [fourth], chains=2, draws=40_000, seed=8, interweave=True)
    x = flatten(draws)
    error = np.hypot(error_of_mean(draws), sd / np.sqrt(effective))
    assert (np.abs(x.mean(axis=0) - mean) < 4 * error).all()
    np.testing.assert_allclose(x.std(axis=0), sd, rtol=0.05)


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("method", ["update", "prior", "noisy", "aware"])
def test_tiny_noise_gives_the_conjugate_posterior(family, method):
    rng = np.random.default_rng(9)
    k, n = 2, 300
    mu, T = np.array([0.1, -0.2]), np.array([[0.3, 0.1], [0.1, 0.2]])
    w = rows(rng, n, mu, T, [0.3, 0.8, -0.5], 0.2)
    o = release(w, 1e-3, family, rng)
    prior, covariates = defaults(k)
    options = {"chains": 2, "draws": 4000, "tune": 100, "seed": 10}
    fourth = [fourth_release(w, 1e-3, family, rng)]
    if method == "update":
        draws = gibbs.sample([o], prior, covariates, **options)
    elif method == "prior":
        draws = gibbs.sample([o], prior, CovariateMoments.normal(mu, T), **options)
    elif method == "noisy":
        draws = gibbs.sample([o], prior, released_moments(fourth), **options)
    else:
        draws = gibbs.sample([o], prior, fourth, **options)
    A = w.T @ w
    Lam = prior.Lam0 + A[:3, :3]
    mean = np.linalg.solve(Lam, prior.Lam0 @ prior.mu0 + A[:3, 3])
    a = prior.a0 + n / 2
    b = prior.b0 + 0.5 * (A[3, 3] - mean @ Lam @ mean)
    for i in range(3):
        law = stats.t(2 * a, loc=mean[i], scale=np.sqrt(b / a * np.linalg.inv(Lam)[i, i]))
        assert stats.kstest(draws.theta[..., i].ravel(), law.cdf).pvalue > 1e-3
    law = stats.invgamma(a, scale=b)
    assert stats.kstest(draws.sigma2.ravel(), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("k", [0, 1])
def test_interweaving_leaves_the_posterior_alone_and_mixes(k):
    """Much noise: plain Gibbs hardly moves, interweaving does; both agree where both converge."""
    o = problem(k, n=2000, scale=40.0, seed=12)
    prior, covariates = defaults(k)
    plain, woven = (
        gibbs.sample(
            [o], prior, covariates, chains=4, draws=draws, tune=3000, seed=13, interweave=interweave
        )
        for interweave, draws in ((False, 30_000), (True, 6000))
    )
    error = np.hypot(error_of_mean(plain), error_of_mean(woven))
    gap = np.abs(flatten(plain).mean(axis=0) - flatten(woven).mean(axis=0))
    assert (gap < 4.5 * error).all()
    # Variance of the mean times the number of draws: the woven chain needs far fewer.
    cost = [error_of_mean(draws)[-2] ** 2 * draws.theta.shape[1] for draws in (plain, woven)]
    assert cost[0] > 8 * cost[1]


def test_independent_prior_and_unknown_scales():
    """The other priors give nearly the same posterior where data dominate."""
    o = problem(2, n=3000, scale=2.0)
    prior, covariates = defaults(2)
    options = {"chains": 2, "draws": 4000, "seed": 14}
    base = flatten(gibbs.sample([o], prior, covariates, **options))
    flat = NormalInverseGammaIndependent(np.zeros(3), np.eye(3), 2.0, 0.1)
    other = gibbs.sample([o], flat, HuangWandPrior.weakly_informative(2), **options)
    gap = np.abs(flatten(other).mean(axis=0) - base.mean(axis=0)) / base.std(axis=0)
    assert gap.max() < 0.15
    np.testing.assert_allclose(flatten(other).std(axis=0), base.std(axis=0), rtol=0.1)


# --- calibration ----------------------------------------------------------------------------------


@pytest.mark.long
def test_simulation_based_calibration():
    """n = 100, Laplace noise: ranks of the truth are uniform. The naive posterior's are not."""
    prior = NIGPrior([0.0, 0.0], np.diag([1.0, 1.0]), 5.0, 1.0)
    covariates = NIWPrior([0.0], 1.0, [[1.5]], 8.0)
    rng = np.random.default_rng(17)
    trials, quantiles, naive = 300, [], []
    for trial in range(trials):
        sigma2 = prior.b0 / rng.gamma(prior.a0)
        theta = np.sqrt(sigma2) * rng.standard_normal(2)
        T = 1.5 / rng.chisquare(8)
        mu = np.sqrt(T) * rng.standard_normal()
        o = release(rows(rng, 100, mu, T, theta, sigma2), 6.0, "laplace", rng)
        truth = np.array([*theta, sigma2])
        draws = gibbs.sample(
            [o], prior, covariates, chains=1, draws=600, tune=200, seed=trial, cores=1
        )
        quantiles.append((flatten(draws) < truth).mean(axis=0))
        # Naive: the released values as if they were exact, made possible.
        values, vectors = np.linalg.eigh(o.values)
        A = (vectors * np.maximum(values, 1e-3 * o.n)) @ vectors.T
        Lam = prior.Lam0 + A[:2, :2]
        mean = np.linalg.solve(Lam, A[:2, 2])
        a, b = prior.a0 + 50, prior.b0 + 0.5 * (A[2, 2] - mean @ Lam @ mean)
        spread = np.sqrt(b / a * np.diag(np.linalg.inv(Lam)))
        naive.append(
            [*stats.t(2 * a, mean, spread).cdf(theta), stats.invgamma(a, scale=b).cdf(sigma2)]
        )
    p = [stats.kstest(u, "uniform").pvalue for u in np.array(quantiles).T]
    assert min(p) > 1e-3
    assert max(stats.kstest(u, "uniform").pvalue for u in np.array(naive).T) < 1e-6
