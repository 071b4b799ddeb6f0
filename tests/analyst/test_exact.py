"""The `exact` method against oracles that share none of its code, and its calibration."""

from __future__ import annotations

import json
import math
import sys
import tomllib
from pathlib import Path

import arviz as az
import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.regression import nuts
from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.observation import Observation, observe
from noisewise.analyst.regression.priors import (
    HierarchicalNIWPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError
from tests.releases import EXAMPLES, example_request, release_of

ORACLES = Path(__file__).parents[1] / "data" / "oracles" / "open.json"
PROBABILITIES = (0.05, 0.5, 0.95)


def second_moments(n, sums, scale, family):
    """An Observation from the sums (x, y, xx, xy, yy)."""
    x, y, xx, xy, yy = sums
    scales = np.full((3, 3), float(scale))
    scales[0, 0] = 0.0
    return Observation(n, np.array([[n, x, y], [x, xx, xy], [y, xy, yy]]), scales, family)


def private_moments(noisy_n, sums, scale, family):
    """An Observation whose number of rows is private."""
    x, y, xx, xy, yy = sums
    values = np.array([[noisy_n, x, y], [x, xx, xy], [y, xy, yy]])
    return Observation.with_private_n(values, np.full((3, 3), float(scale)), family)


def l1_sensitivity(p):
    """Of the second moments of (1, x, y) on [-1, 1]^p if neighbours replace a row."""
    return p * (p + 1) / 2 + p + p / (2 * (p + 1))


def noisy_gram(rng, n, k, epsilon):
    """Laplace release of rows in [-1, 1]."""
    x = np.clip(rng.normal(0, 0.4, (n, k)), -1, 1)
    y = np.clip(0.2 + x @ np.full(k, 0.4 / math.sqrt(k)) + rng.normal(0, 0.25, n), -1, 1)
    w = np.column_stack([np.ones(n), x, y])
    scale = np.full((k + 2, k + 2), l1_sensitivity(k + 1) / epsilon)
    scale[0, 0] = 0.0
    noisy = np.triu(w.T @ w) + np.triu(rng.laplace(0, scale))
    noisy += np.triu(noisy, 1).T
    noisy[0, 0] = n
    return Observation(n, noisy, scale, "laplace")


def columns(draws):
    """theta_0, theta_1, sigma2, each of shape (chains, draws)."""
    return (draws.theta[..., 0], draws.theta[..., 1], draws.sigma2)


def mean_error(values, importance_ess):
    """Standard error of a difference of means: our chains against an importance sample."""
    ours = float(az.ess({"values": values}, method="mean")["values"])
    return values.std() * math.sqrt(1.0 / ours + 1.0 / importance_ess)


def assert_agrees(values, mean, sd, quantiles, importance_ess):
    """Mean, sd and quantiles agree within Monte Carlo errors of both sides."""
    assert abs(values.mean() - mean) < 4 * mean_error(values, importance_ess)
    squares = (values - mean) ** 2
    assert abs(squares.mean() - sd**2) < 4 * mean_error(squares, importance_ess)
    for probability, expected in zip(PROBABILITIES, quantiles, strict=True):
        below = (values < expected).astype(float)
        assert abs(below.mean() - probability) < 4 * mean_error(below, importance_ess)


@pytest.mark.parametrize("name", ["laplace_n10", "gaussian_n20"])
def test_shared_oracles(name):
    (case,) = (case for case in json.loads(ORACLES.read_text()) if case["name"] == name)
    given = case["prior"]
    draws = exact.sample(
        [
            second_moments(*holder)
            for holder in zip(
                case["n"], case["observed"], case["scale"], case["noise"], strict=True
            )
        ],
        NIGPrior(given["mu0"], np.diag(given["Lam0"]), given["a0"], given["b0"]),
        NIWPrior([given["m"]], given["lam"], [[given["Psi"]]], given["nu"]),
        draws=10_000,
        seed=1,
    )
    for i, values in enumerate(columns(draws)):
        assert_agrees(
            values,
            case["mean"][i],
            case["sd"][i],
            case["q05_q50_q95"][i],
            case["importance_ess"],
        )


# --- our own oracle: importance sampling on individual records ------------------------------------


def importance_sample(rng, observations, prior, covariates, simulations):
    """Parameters from the prior, records given them, weights from the noise (k = 1).

    A private n is a whole number with a flat prior from 3 on, drawn given its noisy value alone.
    Returns theta, sigma2 and the n of the last holder.
    """
    sigma2 = prior.b0 / rng.gamma(prior.a0, size=simulations)
    if isinstance(prior, NIGPrior):
        root = np.linalg.cholesky(np.linalg.inv(prior.Lam0))
        theta = prior.mu0 + np.sqrt(sigma2)[:, None] * rng.normal(size=(simulations, 2)) @ root.T
    else:
        root = np.linalg.cholesky(prior.V0)
        theta = prior.mu0 + rng.normal(size=(simulations, 2)) @ root.T
    if isinstance(covariates, NIWPrior):
        psi = covariates.Psi[0, 0]
    else:
        psi = rng.gamma(covariates.shape, 1.0 / covariates.rate[0], simulations)
    T = psi / 2 / rng.gamma(covariates.nu / 2, size=simulations)
    mu = covariates.m[0] + np.sqrt(T / covariates.lam) * rng.normal(size=simulations)
    logs = np.zeros(simulations)
    for observation in observations:
        law = stats.laplace if observation.family == "laplace" else stats.norm
        n = np.full(simulations, observation.n)
        if observation.n_is_private:
            possible = np.arange(3, 33)
            chance = law.pdf(observation.values[0, 0], possible, observation.scale[0, 0])
            n = rng.choice(possible, simulations, p=chance / chance.sum())
        there = np.arange(n.max()) < n[:, None]
        x = mu[:, None] + np.sqrt(T)[:, None] * rng.normal(size=there.shape)
        y = theta[:, :1] + theta[:, 1:] * x
        y += np.sqrt(sigma2)[:, None] * rng.normal(size=y.shape)
        x, y = x * there, y * there
        sums = (x.sum(1), y.sum(1), (x * x).sum(1), (x * y).sum(1), (y * y).sum(1))
        for entry, values in zip(((0, 1), (0, 2), (1, 1), (1, 2), (2, 2)), sums, strict=True):
            logs += law.logpdf(observation.values[entry], values, observation.scale[entry])
    weights = np.exp(logs - logs.max())
    return np.column_stack([theta, sigma2, n]), weights / weights.sum()


def weighted(values, weights):
    """Mean, sd and quantiles of a weighted sample."""
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order])
    mean = weights @ values
    quantiles = values[order][np.searchsorted(cumulated, PROBABILITIES)]
    return mean, math.sqrt(weights @ (values - mean) ** 2), quantiles


@pytest.mark.parametrize("case", ["conjugate", "independent_hierarchical"])
def test_two_holders_against_individual_records(case):
    """Different n and mechanisms; coordinates of the second relative to the first or not."""
    rng = np.random.default_rng(31)
    observations = [
        second_moments(12, (3.0, 4.5, 1.8, 2.2, 5.0), 2.5, "laplace"),
        second_moments(8, (-1.0, 2.0, 4.4, 0.9, 2.1), 2.0, "gaussian"),
    ]
    prior, covariates = {
        "conjugate": (
            NIGPrior([0.0, 0.0], np.diag([0.8, 0.8]), 3.0, 0.5),
            NIWPrior([0.0], 1.0, [[0.8]], 5.0),
        ),
        "independent_hierarchical": (
            NormalInverseGammaIndependent([0.1, 0.0], np.diag([0.3, 0.4]), 3.0, 0.5),
            HierarchicalNIWPrior([0.0], 1.0, [0.8], 5.0),
        ),
    }[case]
    parameters, weights = importance_sample(rng, observations, prior, covariates, 600_000)
    importance_ess = 1.0 / (weights**2).sum()
    assert importance_ess > 10_000
    oracle = [weighted(values, weights) for values in parameters.T[:3]]
    for relative in (False, True):
        posterior = CollapsedPosterior(observations, prior, covariates, relative=relative)
        draws = exact.sample_posterior(posterior, draws=5000, seed=2)
        for values, (mean, sd, quantiles) in zip(columns(draws), oracle, strict=True):
            assert_agrees(values, mean, sd, quantiles, importance_ess)


@pytest.mark.parametrize(
    ("private_family", "case"), [("laplace", "independent"), ("gaussian", "conjugate")]
)
def test_a_private_n_against_individual_records(private_family, case):
    """A holder with a public n and one with a private n, noisy by a fifth of its size."""
    rng = np.random.default_rng(32)
    public_family = {"laplace": "gaussian", "gaussian": "laplace"}[private_family]
    observations = [
        second_moments(10, (-1.0, 2.0, 4.4, 0.9, 2.1), 2.0, public_family),
        private_moments(9.3, (3.0, 4.5, 1.8, 2.2, 5.0), 2.0, private_family),
    ]
    prior, covariates = {
        "conjugate": (
            NIGPrior([0.0, 0.0], np.diag([0.8, 0.8]), 3.0, 0.5),
            NIWPrior([0.0], 1.0, [[0.8]], 5.0),
        ),
        "independent": (
            NormalInverseGammaIndependent([0.1, 0.0], np.diag([0.3, 0.4]), 3.0, 0.5),
            HierarchicalNIWPrior([0.0], 1.0, [0.8], 5.0),
        ),
    }[case]
    parameters, weights = importance_sample(rng, observations, prior, covariates, 300_000)
    importance_ess = 1.0 / (weights**2).sum()
    assert importance_ess > 3000
    oracle = [weighted(values, weights) for values in parameters.T]
    for relative in (False, True):
        posterior = CollapsedPosterior(observations, prior, covariates, relative=relative)
        draws = exact.sample_posterior(posterior, draws=5000, seed=2)
        for values, (mean, sd, quantiles) in zip(columns(draws), oracle, strict=False):
            assert_agrees(values, mean, sd, quantiles, importance_ess)
        rows = posterior.rows(draws.x)[..., 1]
        np.testing.assert_allclose(posterior.statistics(draws.x[:, 0])[:, 1, 0, 0], rows[:, 0])
        mean, sd, _ = oracle[3]
        assert abs(rows.mean() - mean) < 4 * mean_error(rows, importance_ess)
        squares = (rows - mean) ** 2
        assert abs(squares.mean() - sd**2) < 4 * mean_error(squares, importance_ess)
        # What the released n alone says is something else: the sums bear on n too.
        assert abs(rows.mean() - 9.3) > 4 * mean_error(rows, importance_ess)
        for whole in (7, 9, 12):
            below = (rows < whole + 0.5).astype(float)
            expected = weights @ (parameters[:, 3] <= whole)
            assert abs(below.mean() - expected) < 4 * mean_error(below, importance_ess)


# --- limits ---------------------------------------------------------------------------------------


def test_tiny_noise_gives_the_conjugate_posterior_of_the_true_statistics():
    rng = np.random.default_rng(8)
    k, sizes = 3, (40, 60)
    prior, covariates = NIGPrior.weakly_informative(k), NIWPrior.weakly_informative(k)
    observations, total = [], 0.0
    for n, family in zip(sizes, ("laplace", "gaussian"), strict=True):
        w = np.column_stack([np.ones(n), rng.normal(0.1, 0.4, (n, k + 1))])
        w[:, -1] += w[:, 1] - 0.5 * w[:, 2]
        gram = w.T @ w
        scale = np.full(gram.shape, 1e-4)
        scale[0, 0] = 0.0
        noisy = np.triu(gram) + np.triu(rng.normal(0, scale))
        noisy += np.triu(noisy, 1).T
        noisy[0, 0] = n
        observations.append(Observation(n, noisy, scale, family))
        total = total + gram
    draws = exact.sample(observations, prior, covariates, seed=4)
    Lam_n = prior.Lam0 + total[:-1, :-1]
    mu_n = np.linalg.solve(Lam_n, total[:-1, -1])
    a_n = prior.a0 + sum(sizes) / 2
    b_n = prior.b0 + (total[-1, -1] - mu_n @ Lam_n @ mu_n) / 2
    sd = np.sqrt(b_n / a_n * np.linalg.inv(Lam_n).diagonal())
    for i in range(k + 1):
        values = draws.theta[..., i]
        assert stats.kstest(values.ravel()[::2], stats.t(2 * a_n, mu_n[i], sd[i]).cdf).pvalue > 1e-4
    assert stats.kstest(draws.sigma2.ravel()[::2], stats.invgamma(a_n, scale=b_n).cdf).pvalue > 1e-4
    np.testing.assert_allclose(
        draws.conditional_mean, np.broadcast_to(mu_n, draws.theta.shape), atol=1e-3
    )


def test_statistics_that_are_all_public_leave_nothing_latent():
    rng = np.random.default_rng(9)
    w = np.column_stack([np.ones(30), rng.normal(0, 0.5, (30, 2))])
    gram = w.T @ w
    gram[0, 0] = 30
    public = Observation(30, (gram + gram.T) / 2, np.zeros((3, 3)), "gaussian")
    prior, covariates = NIGPrior.weakly_informative(1), NIWPrior.weakly_informative(1)
    alone = exact.sample([public], prior, covariates, seed=1)
    assert alone.x.shape == (4, 1000, 0)
    mean = np.linalg.solve(prior.Lam0 + gram[:2, :2], gram[:2, 2])
    np.testing.assert_allclose(alone.conditional_mean[0, 0], mean, rtol=1e-6)
    # A holder with hopeless noise adds nothing.
    noise = np.full((3, 3), 1e4)
    noise[0, 0] = 0.0
    hopeless = Observation(30, np.where(noise, 5e3, 30), noise, "laplace")
    both = exact.sample([public, hopeless], prior, covariates, seed=1)
    error = both.theta.std((0, 1)) / 20
    assert (abs(both.theta.mean((0, 1)) - alone.theta.mean((0, 1))) < 4 * error).all()


def test_contradictory_public_entries_are_an_error():
    values = np.array([[20.0, 1.0, 1.0], [1.0, 2.0, 50.0], [1.0, 50.0, 3.0]])
    scale = np.zeros((3, 3))
    with pytest.raises(ReleaseError, match="contradict"):
        exact.sample(
            [Observation(20, values, scale, "gaussian")],
            NIGPrior.weakly_informative(1),
            NIWPrior.weakly_informative(1),
        )


@pytest.mark.parametrize("name", ["chains", "draws", "tune"])
def test_nonsense_counts_are_refused(name):
    observation = noisy_gram(np.random.default_rng(0), 50, 1, 1.0)
    with pytest.raises(RequestError, match=name):
        exact.sample(
            [observation],
            NIGPrior.weakly_informative(1),
            NIWPrior.weakly_informative(1),
            **{name: 0},
        )


@pytest.mark.parametrize("example", ["laplace", "gaussian", "isometric"])
def test_a_release_of_a_private_n_reaches_the_posterior(example):
    """From an add/remove Release to draws; n is as uncertain as its noise, and so is its effect."""
    request = example_request("add_remove_one", **EXAMPLES[example])
    n = 20_000
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.uniform(-1, 1, n), np.eye(3)[rng.integers(3, size=n)][:, :2]])
    w = np.column_stack([np.ones(n), x, 0.4 * x[:, 0] - 0.2 * x[:, 1] + rng.normal(0, 0.2, n)])
    gram = w.T @ w
    release = release_of(
        request, values=[round(gram[entry] * 2**32) for entry in request.statistics[0].entries]
    )
    _, [seen] = observe([release])
    assert seen.n_is_private
    assert seen.n == n
    assert seen.values[0, 0] == n
    assert (seen.scale[0, 0], seen.scale[2, 3]) == (seen.scale[1, 1], 0.0)
    posterior = CollapsedPosterior(
        [seen],
        NormalInverseGammaIndependent.weakly_informative(3),
        NIWPrior.weakly_informative(3),
    )
    draws = exact.sample_posterior(posterior, seed=1)
    assert az.rhat({"theta": draws.theta})["theta"].max() < 1.02
    assert abs(draws.theta.mean((0, 1)) - [0.0, 0.4, -0.2, 0.0]).max() < 0.02
    rows = posterior.rows(draws.x)
    assert abs(rows.mean() - n) < rows.std()
    assert 0.5 < rows.std() / seen.sd[0, 0] < 1.2


# --- the sampler ----------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_draws_on_any_number_of_cores():
    observations = [noisy_gram(np.random.default_rng(j), 100, 2, 1.0) for j in range(2)]
    prior, covariates = NIGPrior.weakly_informative(2), NIWPrior.weakly_informative(2)
    seen = []
    runs = [
        exact.sample(
            observations, prior, covariates, chains=3, draws=50, tune=100, seed=5, cores=cores,
            progress=lambda done, total: seen.append((done, total)),
        )
        for cores in (1, 2, 3)
    ]  # fmt: skip
    for other in runs[1:]:
        for left, right in zip(runs[0][:-1], other[:-1], strict=True):
            np.testing.assert_array_equal(left, right)
    assert not np.array_equal(runs[0].theta[0], runs[0].theta[1])
    different = exact.sample(observations, prior, covariates, chains=3, draws=50, tune=100, seed=6)
    assert not np.array_equal(runs[0].theta, different.theta)
    assert max(seen) == (450, 450)


@pytest.mark.parametrize("k", [1, 9])
@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_chains_mix_at_low_and_at_high_noise(k, epsilon):
    """At epsilon = 0.1 plain Gibbs has less than one effective draw in a thousand."""
    observation = noisy_gram(np.random.default_rng(12), 10_000, k, epsilon)
    draws = exact.sample(
        [observation], NIGPrior.weakly_informative(k), NIWPrior.weakly_informative(k), seed=3
    )
    values = {"theta": draws.theta, "sigma2": draws.sigma2}
    ess, rhat = az.ess(values), az.rhat(values)
    assert min(float(ess["theta"].min()), float(ess["sigma2"])) > 400
    assert max(float(rhat["theta"].max()), float(rhat["sigma2"])) < 1.01
    assert not draws.info.diverging.any()


# --- calibration ----------------------------------------------------------------------------------

TRIALS = 200


def naive_rank(rng, observation, prior, truth):
    """Where the truth lies in the posterior that takes the noisy statistics at face value."""
    values, vectors = np.linalg.eigh(observation.values)
    A = (vectors * np.maximum(values, 1e-6)) @ vectors.T
    Lam_n = prior.Lam0 + A[:2, :2]
    mu_n = np.linalg.solve(Lam_n, prior.Lam0 @ prior.mu0 + A[:2, 2])
    a_n = prior.a0 + observation.n / 2
    b_n = prior.b0 + (A[2, 2] + prior.mu0 @ prior.Lam0 @ prior.mu0 - mu_n @ Lam_n @ mu_n) / 2
    sd = np.sqrt(b_n / a_n * np.linalg.inv(Lam_n).diagonal())
    theta = stats.t.cdf(truth[:2], 2 * a_n, mu_n, sd)
    return np.append(theta, stats.invgamma.cdf(truth[2], a_n, scale=b_n))


@pytest.mark.slow
def test_simulation_based_calibration():
    """Ranks of the truth are uniform for `exact`, and far from it for the naive posterior."""
    rng = np.random.default_rng(2024)
    n = 10
    prior = NIGPrior([0.0, 0.0], np.diag([0.5, 0.5]), 3.0, 0.4)
    covariates = NIWPrior([0.0], 1.0, [[0.5]], 5.0)
    scale = l1_sensitivity(2)
    ours, naive = np.empty((TRIALS, 3)), np.empty((TRIALS, 3))
    for trial in range(TRIALS):
        sigma2 = prior.b0 / rng.gamma(prior.a0)
        theta = rng.normal(0, np.sqrt(sigma2 / prior.Lam0.diagonal()))
        T = covariates.Psi[0, 0] / 2 / rng.gamma(covariates.nu / 2)
        x = rng.normal(rng.normal(0, math.sqrt(T)), math.sqrt(T), n)
        y = theta[0] + theta[1] * x + rng.normal(0, math.sqrt(sigma2), n)
        sums = np.array([x.sum(), y.sum(), x @ x, x @ y, y @ y]) + rng.laplace(0, scale, 5)
        truth = np.append(theta, sigma2)
        observation = second_moments(n, sums, scale, "laplace")
        draws = exact.sample(
            [observation], prior, covariates, chains=1, draws=600, tune=300, seed=trial
        )
        thinned = np.column_stack([values[0, ::6] for values in columns(draws)])
        ours[trial] = ((thinned < truth).sum(0) + rng.uniform(size=3)) / (len(thinned) + 1)
        naive[trial] = naive_rank(rng, observation, prior, truth)
    for i in range(3):
        assert stats.kstest(ours[:, i], "uniform").pvalue > 0.001
    assert min(stats.kstest(naive[:, i], "uniform").pvalue for i in range(3)) < 1e-6


@pytest.mark.long
def test_simulation_based_calibration_with_a_private_n():
    """As above, and n's own rank, down to the fewest rows that the model knows.

    Data are kept by what is released (a noisy n below 15). That leaves the posterior as it is, and
    makes the upper end of the range of n, which the flat prior does not have, immaterial.
    """
    rng = np.random.default_rng(2025)
    prior = NIGPrior([0.0, 0.0], np.diag([0.5, 0.5]), 3.0, 0.4)
    covariates = NIWPrior([0.0], 1.0, [[0.5]], 5.0)
    scale = 2.0
    ours, naive = np.empty((TRIALS, 4)), np.empty((TRIALS, 3))
    for trial in range(TRIALS):
        noisy_n = math.inf
        while noisy_n > 15.0:
            n = rng.integers(3, 50)
            noisy_n = n + rng.laplace(0, scale)
        sigma2 = prior.b0 / rng.gamma(prior.a0)
        theta = rng.normal(0, np.sqrt(sigma2 / prior.Lam0.diagonal()))
        T = covariates.Psi[0, 0] / 2 / rng.gamma(covariates.nu / 2)
        x = rng.normal(rng.normal(0, math.sqrt(T)), math.sqrt(T), n)
        y = theta[0] + theta[1] * x + rng.normal(0, math.sqrt(sigma2), n)
        sums = np.array([x.sum(), y.sum(), x @ x, x @ y, y @ y]) + rng.laplace(0, scale, 5)
        # A whole number's share of the real line, so that its rank is uniform too.
        truth = np.concatenate([theta, [sigma2, n + rng.uniform(-0.5, 0.5)]])
        observation = private_moments(noisy_n, sums, scale, "laplace")
        posterior = CollapsedPosterior([observation], prior, covariates)
        draws = exact.sample_posterior(posterior, chains=1, draws=600, tune=300, seed=trial)
        thinned = np.column_stack(
            [values[0, ::6] for values in (*columns(draws), posterior.rows(draws.x)[..., 0])]
        )
        ours[trial] = ((thinned < truth).sum(0) + rng.uniform(size=4)) / (len(thinned) + 1)
        naive[trial] = naive_rank(rng, observation, prior, truth[:3])
    for i in range(4):
        assert stats.kstest(ours[:, i], "uniform").pvalue > 0.001
    assert min(stats.kstest(naive[:, i], "uniform").pvalue for i in range(3)) < 1e-6


# --- the engine -----------------------------------------------------------------------------------


def test_the_engine_is_the_one_that_pyproject_installs():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert nuts.NUTPIE in project["project"]["dependencies"]


@pytest.mark.parametrize("broken", ["missing", "renamed", "more arguments", "absent"])
def test_another_engine_is_refused_with_what_to_install(monkeypatch, broken):
    from nutpie import _lib
    from nutpie.compile_pymc import CompiledPyMCModel

    if broken == "missing":
        monkeypatch.delattr(_lib, "ExpandFunc")
    elif broken == "renamed":
        monkeypatch.setattr(_lib, "LogpFunc", lambda pointer, user_data_ptr, keep_alive: None)
    elif broken == "more arguments":
        monkeypatch.setattr(CompiledPyMCModel, "_make_sampler", lambda self, settings, more: None)
    else:
        monkeypatch.setitem(sys.modules, "nutpie", None)
    nuts.nutpie_engine.cache_clear()
    with pytest.raises(NoisewiseError, match="pip install 'nutpie>="):
        nuts.nutpie_engine()
