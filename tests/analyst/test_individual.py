"""The `individual` method against oracles that share none of its code, and against `exact`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import arviz as az
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

from noisewise.analyst.regression import records
from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import (
    HierarchicalNIWPrior,
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)
from noisewise.analyst.regression.records import caveats, noise_log_density
from noisewise.core.errors import RequestError

ORACLES = Path(__file__).parents[1] / "data" / "oracles" / "open.json"
PROBABILITIES = (0.05, 0.5, 0.95)
ENTRIES = ((0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


def second_moments(n, sums, scale, family):
    """An Observation from the sums (x, y, xx, xy, yy) with one scale or five."""
    values, scales = np.zeros((3, 3)), np.zeros((3, 3))
    values[0, 0] = n
    for (a, b), value, size in zip(ENTRIES, sums, np.broadcast_to(scale, 5), strict=True):
        values[a, b] = values[b, a] = value
        scales[a, b] = scales[b, a] = size
    return Observation(n, values, scales, family)


def columns(draws):
    """theta_0, theta_1, sigma2, each of shape (chains, draws)."""
    return (draws.theta[..., 0], draws.theta[..., 1], draws.sigma2)


def mean_error(values, other_ess):
    """Standard error of a difference of means: our chains against another sample."""
    ours = float(az.ess({"values": values}, method="mean")["values"])
    return values.std() * math.sqrt(1.0 / ours + 1.0 / other_ess)


def assert_agrees(values, mean, sd, quantiles, other_ess):
    """Mean, sd and quantiles agree within five Monte Carlo errors of both sides."""
    assert mean_error(values, other_ess) < 0.05 * sd  # the comparison has power
    assert abs(values.mean() - mean) < 5 * mean_error(values, other_ess)
    squares = (values - mean) ** 2
    assert abs(squares.mean() - sd**2) < 5 * mean_error(squares, other_ess)
    for probability, expected in zip(PROBABILITIES, quantiles, strict=True):
        below = (values < expected).astype(float)
        assert abs(below.mean() - probability) < 5 * mean_error(below, other_ess)


# --- oracles --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["laplace_n10", pytest.param("gaussian_n20", marks=pytest.mark.long)]
)
def test_shared_oracles(name):
    (case,) = (case for case in json.loads(ORACLES.read_text()) if case["name"] == name)
    given = case["prior"]
    draws = records.sample(
        [
            second_moments(*holder)
            for holder in zip(
                case["n"], case["observed"], case["scale"], case["noise"], strict=True
            )
        ],
        NIGPrior(given["mu0"], np.diag(given["Lam0"]), given["a0"], given["b0"]),
        NIWPrior([given["m"]], given["lam"], [[given["Psi"]]], given["nu"]),
        draws=1000,
        seed=1,
    )
    assert draws.info.diverging.mean() < 0.01
    for i, values in enumerate(columns(draws)):
        assert_agrees(
            values, case["mean"][i], case["sd"][i], case["q05_q50_q95"][i], case["importance_ess"]
        )


def importance_sample(rng, observation, prior, clip, draw_x, simulations):
    """Parameters from the prior, records given them, weights from the noise (k = 1)."""
    sigma2 = prior.b0 / rng.gamma(prior.a0, size=simulations)
    theta = prior.mu0 + rng.normal(size=(simulations, 2)) * np.sqrt(prior.V0.diagonal())
    x = draw_x((simulations, observation.n))
    y = theta[:, :1] + theta[:, 1:] * x + np.sqrt(sigma2)[:, None] * rng.normal(size=x.shape)
    if clip:
        x, y = np.clip(x, -1, 1), np.clip(y, -1, 1)
    sums = (x.sum(1), y.sum(1), (x * x).sum(1), (x * y).sum(1), (y * y).sum(1))
    law = stats.laplace if observation.family == "laplace" else stats.norm
    logs = np.zeros(simulations)
    for entry, values in zip(ENTRIES, sums, strict=True):
        if 0 < observation.scale[entry] < np.inf:
            logs += law.logpdf(observation.values[entry], values, observation.scale[entry])
    weights = np.exp(logs - logs.max())
    return np.column_stack([theta, sigma2]), weights / weights.sum()


def wide_normal(n, k):
    return 0.8 * numpyro.sample("x", dist.Normal().expand([n, k]).to_event(2))


@pytest.mark.long
@pytest.mark.parametrize("case", ["uniform", "clipped"])
def test_laws_that_exact_does_not_have(case):
    """Uniform covariates with a sum that was not released; normal rows clipped before summing."""
    rng = np.random.default_rng(17)
    prior = NormalInverseGammaIndependent([0.1, 0.0], np.diag([0.5, 0.6]), 2.5, 0.4)
    if case == "uniform":
        scale = [1.5, 1.5, 1.5, 1.5, np.inf]
        observation = second_moments(10, (2.0, 4.5, 4.1, 3.2, 0.0), scale, "laplace")
        law, clip, draw_x = records.uniform, False, lambda shape: rng.uniform(-1, 1, shape)
    else:
        observation = second_moments(10, (-1.0, 6.0, 5.4, 1.9, 7.0), 1.5, "gaussian")
        law, clip, draw_x = wide_normal, True, lambda shape: rng.normal(0, 0.8, shape)
    draws = records.sample([observation], prior, law, clip=clip, draws=1000, seed=2)
    parameters, weights = importance_sample(rng, observation, prior, clip, draw_x, 300_000)
    ess = 1.0 / (weights**2).sum()
    assert ess > 10_000
    for values, known in zip(columns(draws), parameters.T, strict=True):
        order = np.argsort(known)
        mean = weights @ known
        quantiles = known[order][np.searchsorted(np.cumsum(weights[order]), PROBABILITIES)]
        assert_agrees(values, mean, math.sqrt(weights @ (known - mean) ** 2), quantiles, ess)
    if case == "clipped":
        # Negative control: the test would notice a model that forgets the clipping.
        parameters, weights = importance_sample(rng, observation, prior, False, draw_x, 500_000)
        error = mean_error(draws.sigma2, 1.0 / (weights**2).sum())
        assert abs(draws.sigma2.mean() - weights @ parameters[:, 2]) > 5 * error


@pytest.mark.long
def test_agreement_with_exact():
    """Two covariates, two holders with different mechanisms, a sum that was not released."""
    rng = np.random.default_rng(23)
    prior = NIGPrior([0.1, 0.0, 0.0], [[0.8, 0.0, 0.0], [0.0, 0.9, 0.3], [0.0, 0.3, 0.7]], 3.0, 0.5)
    covariates = NIWPrior([0.1, -0.1], 2.0, [[1.0, 0.6], [0.6, 1.5]], 6.0)
    observations = []
    for n, family in ((25, "laplace"), (15, "gaussian")):
        x = rng.normal(0.1, 0.4, (n, 2))
        w = np.column_stack([np.ones(n), x, 0.2 + x.sum(1) + rng.normal(0, 0.25, n)])
        scale = np.full((4, 4), 2.0)
        scale[0, 0], scale[0, 1], scale[1, 0] = 0.0, np.inf, np.inf
        noise = rng.laplace if family == "laplace" else rng.normal
        noisy = np.triu(w.T @ w + noise(0, 2.0, (4, 4)))
        noisy[0, 0] = n
        observations.append(Observation(n, noisy + np.triu(noisy, 1).T, scale, family))
    ours = records.sample(observations, prior, covariates, draws=1000, seed=5)
    theirs = exact.sample(observations, prior, covariates, draws=4000, seed=6)
    for field in ("theta", "conditional_mean"):
        for a, b in zip(
            np.moveaxis(getattr(ours, field), -1, 0),
            np.moveaxis(getattr(theirs, field), -1, 0),
            strict=True,
        ):
            ess = float(az.ess({"values": b}, method="mean")["values"])
            assert_agrees(a, b.mean(), b.std(), np.quantile(b, PROBABILITIES), ess)
    ess = float(az.ess({"values": theirs.sigma2}, method="mean")["values"])
    quantiles = np.quantile(theirs.sigma2, PROBABILITIES)
    assert_agrees(ours.sigma2, theirs.sigma2.mean(), theirs.sigma2.std(), quantiles, ess)


# --- parts ----------------------------------------------------------------------------------------


def sites(law, n, k, **values):
    """The sites of a law at given values, what it returns, and its log density."""
    with jax.enable_x64(True):
        fixed = handlers.substitute(law, values)
        x = fixed(n, k)
        density, found = log_density(law, (n, k), {}, values)
    return {name: site for name, site in found.items() if site["type"] == "sample"}, x, density


@pytest.mark.long
def test_bounded_laws():
    g = np.random.default_rng(4).normal(size=(5, 2))
    _, x, _ = sites(records.uniform, 5, 2, covariate_records=g)
    np.testing.assert_allclose(x, 2 * stats.norm.cdf(g) - 1, rtol=1e-9)
    x = np.random.default_rng(5).uniform(-0.9, 0.9, (5, 2))
    loc, scale = np.array([0.2, -0.4]), np.array([0.5, 1.1])
    _, same, density = sites(
        records.truncated_normal, 5, 2,
        covariate_records=x, covariate_loc=loc, covariate_scale=scale,
    )  # fmt: skip
    expected = stats.truncnorm.logpdf(x, (-1 - loc) / scale, (1 - loc) / scale, loc, scale).sum()
    expected += 2 * math.log(0.5) + stats.halfnorm.logpdf(scale).sum()
    np.testing.assert_array_equal(same, x)
    assert float(density) == pytest.approx(expected)
    a, b = np.array([1.5, 3.0]), np.array([2.0, 0.7])
    _, mapped, density = sites(
        records.beta, 5, 2, covariate_records=(x + 1) / 2, covariate_a=a, covariate_b=b
    )
    expected = stats.beta.logpdf((x + 1) / 2, a, b).sum()
    expected += stats.gamma.logpdf([a, b], 2).sum()
    np.testing.assert_allclose(mapped, x, rtol=1e-12)
    assert float(density) == pytest.approx(expected)


def test_the_hierarchical_normal_law():
    prior = HierarchicalNIWPrior([0.3, -0.2], 4.0, [0.8, 1.2], 7.0, shape=2.5)
    g = np.random.default_rng(6).normal(size=(5, 2))
    psi, squares, below, centre = np.array([0.7, 1.4]), np.array([5.0, 8.0]), [0.6], [0.5, -1.0]
    found, x, _ = sites(
        records.normal(prior), 5, 2,
        covariate_psi=psi, covariate_squares=squares, covariate_below=np.array(below),
        covariate_centre=np.array(centre), covariate_records=g,
    )  # fmt: skip
    with jax.enable_x64(True):
        law = found["covariate_psi"]["fn"]
        np.testing.assert_allclose(law.mean, prior.psi)
        np.testing.assert_allclose(law.variance, prior.psi**2 / 2.5)
        np.testing.assert_allclose(found["covariate_squares"]["fn"].mean, [7.0, 6.0])
    B = np.array([[math.sqrt(5.0), 0.0], [0.6, math.sqrt(8.0)]])
    M = np.diag(np.sqrt(psi)) @ np.linalg.inv(B).T
    np.testing.assert_allclose(x, prior.m + (np.array(centre) / 2 + g) @ M.T, rtol=1e-9)


def test_energy_is_exact_and_only_the_force_is_rounded():
    observation = second_moments(10, (1.0, 2.0, 3.0, 1.5, 4.0), 2.0, "laplace")
    A = observation.values + np.array([[0, 9.0, 0.1], [9.0, -9.0, 0.0], [0.1, 0.0, -0.1]])
    with jax.enable_x64(True):
        value, force = jax.value_and_grad(lambda A: noise_log_density(observation, A, 0.5))(
            jax.numpy.asarray(A)
        )
    assert float(value) == pytest.approx(-(9 + 0.1 + 9 + 0 + 0.1) / 2)
    np.testing.assert_allclose(force, [[0, -0.5, -0.05], [0, 0.5, 0.0], [0, 0, 0.05]], atol=1e-12)


def test_what_the_model_leaves_out_is_said():
    plain = second_moments(10, (1.0, 2.0, 3.0, 1.5, 4.0), 2.0, "laplace")
    public = second_moments(10, (1.0, 2.0, 3.0, 0.0, 4.0), [2.0, 2.0, 2.0, 0.0, 2.0], "laplace")
    assert caveats([plain]) == ()
    (message,) = caveats([plain, public])
    assert "known exactly" in message


# --- the sampler ----------------------------------------------------------------------------------


@pytest.mark.long
def test_seeds_cores_progress_and_precision():
    """A Huang-Wand prior, a public entry, two blocks of draws and a rest."""
    observation = second_moments(12, (1.0, 2.0, 3.0, 0.0, 4.0), [2, 2, 2, 0, 2], "laplace")
    prior, covariates = NIGPrior.weakly_informative(1), HuangWandPrior.weakly_informative(1)
    seen, before = [], jax.config.jax_enable_x64
    settings = {"chains": 3, "draws": 30, "tune": 90, "seed": 5}
    first = records.sample(
        [observation], prior, covariates, cores=1,
        progress=lambda done, total: seen.append((done, total)), **settings,
    )  # fmt: skip
    again = records.sample([observation], prior, covariates, cores=3, **settings)
    np.testing.assert_array_equal(first.theta, again.theta)
    np.testing.assert_array_equal(first.info.energy, again.info.energy)
    assert not np.array_equal(first.theta[0], first.theta[1])
    assert first.theta.shape == first.conditional_mean.shape == (3, 30, 2)
    assert first.theta.dtype == np.float64
    assert first.statistics.shape == (3, 30, 3, 3)
    assert all(part.shape == (3, 30) for part in first.info)
    assert max(seen) == seen[-1] == (360, 360)
    assert len(seen) == 9
    assert jax.config.jax_enable_x64 == before


# --- errors ---------------------------------------------------------------------------------------


def coins(n, k):
    return numpyro.sample("coins", dist.Bernoulli(0.5).expand([n, k]).to_event(2))


def wrong_shape(n, k):
    return numpyro.sample("x", dist.Normal().expand([n]).to_event(1))


PRIVATE_N = Observation.with_private_n(np.full((3, 3), 9.0), np.full((3, 3), 2.0), "laplace")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draws": 0}, "draws must be at least 1"),
        ({"covariates": coins}, "site 'coins' is discrete"),
        ({"covariates": wrong_shape}, r"shape \(n, k\) = \(12, 1\).*got \(12,\)"),
        ({"covariates": "normal"}, "covariates: expected.*got str"),
        ({"covariates": NIWPrior.weakly_informative(2)}, "is for 2, but the model has 1"),
        ({"prior": NIGPrior.weakly_informative(2)}, "is for 2 covariates, but the model has 1"),
        ({"observations": []}, "at least one holder"),
        ({"observations": [PRIVATE_N]}, "number of rows is private"),
        ({"max_records": 11}, "12 rows; use method exact"),
    ],
)
def test_nonsense_is_refused(changes, message):
    arguments = {
        "observations": [second_moments(12, (1.0, 2.0, 3.0, 1.0, 4.0), 2.0, "laplace")],
        "prior": NIGPrior.weakly_informative(1),
        "covariates": NIWPrior.weakly_informative(1),
        **changes,
    }
    with pytest.raises(RequestError, match=message):
        records.sample(**arguments)


def test_without_numpyro_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(RequestError, match=r"pip install 'noisewise\[numpyro\]'"):
        records.sample([], NIGPrior.weakly_informative(1), NIWPrior.weakly_informative(1))
