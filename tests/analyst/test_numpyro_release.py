"""A Release dropped into NumPyro models: the likelihood it adds, and a model of a user's own."""

from __future__ import annotations

import math
import subprocess
import sys

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density
from scipy import stats

from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.numpyro_release import observe_release, observe_statistics
from noisewise.analyst.regression.observation import Observation, observe
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from noisewise.core.errors import RequestError
from tests.releases import EXAMPLES, example_request, release_of


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def awkward_observation(family):
    """Three covariates: one entry public, two not released, every scale different."""
    rng = np.random.default_rng(5)
    values, scale = rng.normal(0, 9, (5, 5)), rng.uniform(0.5, 7, (5, 5))
    scale[1, 2], scale[1, 3], scale[4, 4] = 0.0, np.inf, np.inf
    values[0, 0], scale[0, 0], values[1, 2] = 6, 0.0, 0.0
    values, scale = (
        np.triu(m) + np.triu(m, 1).T for m in (values, np.where(np.isinf(scale), -1, scale))
    )
    return Observation(6, values, np.where(scale < 0, np.inf, scale), family)


# --- the likelihood -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
def test_every_released_entry_counts_once(double, family):
    observation = awkward_observation(family)
    rows = np.random.default_rng(1).normal(size=(6, 4))
    w = np.column_stack([np.ones(6), rows])
    law = stats.laplace if family == "laplace" else stats.norm
    expected, counted = 0.0, 0
    for a in range(5):
        for b in range(a, 5):
            if (a, b) in ((0, 0), (1, 2), (1, 3), (4, 4)):
                continue
            expected += law.logpdf(
                observation.values[a, b], w[:, a] @ w[:, b], observation.scale[a, b]
            )
            counted += 1
    assert counted == 11
    found, _ = log_density(observe_release, (observation, rows), {}, {})
    assert float(found) == pytest.approx(expected, rel=1e-12)
    found, _ = log_density(observe_statistics, (observation, w.T @ w), {}, {})
    assert float(found) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("example", ["laplace", "gaussian", "isometric"])
def test_a_release_stands_for_its_own_columns(double, example):
    release = release_of(example_request(**EXAMPLES[example]), n=50)
    _, (observation,) = observe([release])
    rows = np.random.default_rng(2).uniform(-1, 1, (50, observation.k + 1))
    whole, _ = log_density(observe_release, (release, rows), {}, {})
    parts, _ = log_density(observe_release, (observation, rows), {}, {})
    assert float(whole) == float(parts)
    assert np.isfinite(whole)
    # Another regression from the same Release has other statistics.
    _, (other,) = observe([release], target="age", features=["income"])
    assert other.k == 1
    log_density(observe_release, (other, rows[:, :2]), {}, {})


def test_the_site_has_a_name_and_can_be_predicted(double):
    observation = awkward_observation("gaussian")

    def model():
        rows = numpyro.sample("rows", dist.Normal().expand([6, 4]).to_event(2))
        observe_release(observation, rows, name="holder_1")

    sites = trace(seed(model, 0)).get_trace()
    assert sites["holder_1"]["is_observed"]
    predicted = trace(seed(numpyro.handlers.uncondition(model), 0)).get_trace()
    assert predicted["holder_1"]["value"].shape == (11,)
    assert not np.array_equal(predicted["holder_1"]["value"], sites["holder_1"]["value"])


def test_precision_is_left_alone_and_too_little_of_it_is_refused():
    n = 10_000_000
    scale = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    values = np.array([[n, 1e6, 1e6], [1e6, 4e6, 1e6], [1e6, 1e6, 4e6]])
    observation = Observation(n, values, scale, "laplace")
    before = jax.config.jax_enable_x64
    if before:
        pytest.skip("the program already runs with 64 bits")
    with pytest.raises(RequestError, match="enable_x64"):
        log_density(observe_statistics, (observation, jnp.asarray(values)), {}, {})
    # The same release with more noise is fine in 32 bits.
    wide = Observation(n, values, scale * 1000, "laplace")
    found, _ = log_density(observe_statistics, (wide, jnp.asarray(values)), {}, {})
    assert found.dtype == np.float32
    assert float(found) == pytest.approx(-5 * math.log(2000), rel=1e-5)
    assert jax.config.jax_enable_x64 == before


def test_a_private_number_of_rows_is_one_more_statistic(double):
    values, scale = np.full((3, 3), 9.0), np.full((3, 3), 2.0)
    observation = Observation.with_private_n(values, scale, "laplace")
    A = np.full((3, 3), 4.0)
    found, _ = log_density(observe_statistics, (observation, A), {}, {})
    assert float(found) == pytest.approx(6 * stats.laplace.logpdf(9, 4, 2))
    with pytest.raises(RequestError, match="observe_statistics"):
        log_density(observe_release, (observation, np.zeros((9, 2))), {}, {})


# --- a model of a user's own ----------------------------------------------------------------------


@pytest.mark.long
def test_a_user_model_agrees_with_exact():
    """Nothing in the model is from noisewise but the Release."""
    rng = np.random.default_rng(14)
    n = 20
    x = rng.normal(0.1, 0.4, n)
    w = np.column_stack([np.ones(n), x, 0.2 + 0.5 * x + rng.normal(0, 0.25, n)])
    noisy = np.triu(w.T @ w + rng.laplace(0, 2.0, (3, 3)))
    noisy[0, 0] = n
    scale = np.array([[0.0, 2.0, 2.0], [2.0, 2.0, 2.0], [2.0, 2.0, 2.0]])
    observation = Observation(n, noisy + np.triu(noisy, 1).T, scale, "laplace")

    def model():
        sigma2 = numpyro.sample("sigma2", dist.InverseGamma(3.0, 0.4))
        theta = numpyro.sample(
            "theta", dist.Normal(0.0, jnp.sqrt(sigma2 / 0.5)).expand([2]).to_event(1)
        )
        variance = numpyro.sample("variance", dist.InverseGamma(2.5, 0.25))
        mean = numpyro.sample("mean", dist.Normal(0.0, jnp.sqrt(variance)))
        with numpyro.plate("records", n):
            x = mean + jnp.sqrt(variance) * numpyro.sample("g", dist.Normal())
            y = theta[0] + theta[1] * x + jnp.sqrt(sigma2) * numpyro.sample("e", dist.Normal())
        observe_release(observation, jnp.column_stack([x, y]))

    mcmc = MCMC(NUTS(model), num_warmup=700, num_samples=4000, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(3))
    found = mcmc.get_samples(group_by_chain=True)
    reference = exact.sample(
        [observation],
        NIGPrior([0.0, 0.0], np.diag([0.5, 0.5]), 3.0, 0.4),
        NIWPrior([0.0], 1.0, [[0.5]], 5.0),
        draws=4000,
        seed=1,
    )
    for ours, theirs in (
        (found["theta"][..., 0], reference.theta[..., 0]),
        (found["theta"][..., 1], reference.theta[..., 1]),
        (found["sigma2"], reference.sigma2),
    ):
        for power in (1, 2):
            a, b = np.asarray(ours, float) ** power, theirs**power
            ess = [float(az.ess({"v": v}, method="mean")["v"]) for v in (a, b)]
            error = math.sqrt(a.var() / ess[0] + b.var() / ess[1])
            assert abs(a.mean() - b.mean()) < 5 * error
            assert error < 0.1 * a.std()  # the comparison has power


def test_coefficients_go_back_to_original_units():
    release = release_of(example_request(features=["age"]))
    columns, _ = observe([release])
    theta = jnp.asarray([[0.2, 0.5]])
    age, income = np.array([18.0, 90.0]), 100_000 + 100_000 * (0.2 + 0.5 * np.array([-1.0, 1.0]))
    original = columns.theta_to_original(theta)
    np.testing.assert_allclose(original[0, 0] + original[0, 1] * age, income, rtol=1e-5)


# --- errors ---------------------------------------------------------------------------------------


def test_wrong_shapes_and_types_are_named(double):
    observation = awkward_observation("laplace")
    with pytest.raises(RequestError, match=r"rows: expected shape \(6, 4\).*got \(4, 6\)"):
        log_density(observe_release, (observation, np.zeros((4, 6))), {}, {})
    with pytest.raises(RequestError, match=r"A: expected shape \(5, 5\).*got \(4, 4\)"):
        log_density(observe_statistics, (observation, np.zeros((4, 4))), {}, {})
    with pytest.raises(RequestError, match="got list; several holders take one call each"):
        log_density(observe_release, ([observation], np.zeros((6, 4))), {}, {})


def test_without_numpyro_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    observation = awkward_observation("laplace")
    for call, argument in ((observe_release, np.zeros((6, 4))), (observe_statistics, np.eye(5))):
        with pytest.raises(RequestError, match=r"pip install 'noisewise\[numpyro\]'"):
            call(observation, argument)


def test_modules_load_without_numpyro():
    code = (
        "import sys; sys.modules.update(numpyro=None, jax=None)\n"
        "import noisewise.analyst.regression.numpyro_release\n"
        "import noisewise.analyst.regression.records\n"
        "import noisewise.analyst.regression.records"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
