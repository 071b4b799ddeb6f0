"""The gibbs_* methods as programs: reproducible, pure, clear about trouble."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

from noisewise.analyst.chains import generators
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import gibbs
from noisewise.analyst.regression.papers.moments import (
    CovariateMoments,
    FourthMomentObservation,
    released_moments,
)
from noisewise.core.errors import ReleaseError, RequestError

from .gibbs_problems import defaults, fourth_release, problem, release, rows

# --- running --------------------------------------------------------------------------------------


def methods():
    rng = np.random.default_rng(18)
    w = rows(rng, 200, 0.1, 0.3, [0.2, 0.5], 0.1)
    observations = [release(w, 3.0, "laplace", rng), release(w, 3.0, "gaussian", rng)]
    fourth = [fourth_release(w, 5.0, "laplace", rng), None]
    prior, covariates = defaults(1)
    moments = CovariateMoments.normal(np.array([0.1]), np.array([[0.3]]))
    return {
        "update": (observations, prior, covariates),
        "prior": (observations, prior, moments),
        "aware": (observations, prior, fourth),
    }


@pytest.mark.parametrize("name", list(methods()))
def test_draws_depend_on_the_seed_and_nothing_else(name):
    arguments = methods()[name]
    options = {"chains": 3, "draws": 700, "tune": 50}
    one = gibbs.sample(*arguments, seed=1, cores=1, **options)
    three = gibbs.sample(*arguments, seed=1, cores=3, **options)
    np.testing.assert_array_equal(one.theta, three.theta)
    np.testing.assert_array_equal(one.sigma2, three.sigma2)
    np.testing.assert_array_equal(one.info.rejected, three.info.rejected)
    assert not np.array_equal(one.theta, gibbs.sample(*arguments, seed=2, **options).theta)
    assert len(np.unique(one.sigma2[:, -1])) == 3  # chains differ
    fewer = gibbs.sample(*arguments, seed=1, chains=2, draws=100, tune=50)
    np.testing.assert_array_equal(fewer.theta, one.theta[:2, :100])


@pytest.mark.parametrize("name", list(methods()))
def test_steps_are_pure(name):
    """(rng, state) -> (state, info): no hidden state, nothing changed in place."""
    observations, prior, third = methods()[name]
    model = gibbs.build_model(observations, prior, third)
    state = gibbs.init(np.random.default_rng(3), observations, prior, third)
    copies = [np.array(field) for field in state]
    first, trace = gibbs.run(np.random.default_rng(4), model, state, 0, 1)
    gibbs.run(np.random.default_rng(5), model, first, 0, 1)
    again, same = gibbs.run(np.random.default_rng(4), model, state, 0, 1)
    for before, field in zip(copies, state, strict=True):
        np.testing.assert_array_equal(before, field)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(trace.counts, same.counts)
    assert not np.array_equal(first.theta, state.theta)
    # Step by step is the same chain as many steps at once.
    draws = gibbs.sample(observations, prior, third, chains=1, draws=3, tune=0, seed=3)
    (rng,) = generators(3, 1)
    state = gibbs.init(rng, observations, prior, third)
    for t in range(3):
        state, _ = gibbs.run(rng, model, state, t, 1)
        np.testing.assert_allclose(draws.theta[0, t], state.theta, rtol=1e-9)


def test_rejections_are_counted():
    with pytest.warns(UserWarning, match="below n = 12"):
        few = gibbs.sample(
            [problem(1, n=8, scale=1.0)], *defaults(1), chains=1, draws=2000, seed=1, tries=3
        )
    assert few.info.rejected.mean() > 0.05
    assert few.info.exhausted.sum() > 0
    assert (few.info.rejected[few.info.exhausted > 0] >= 3).all()
    assert "no possible statistics" in gibbs.trouble(few.info)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many = gibbs.sample([problem(1)], *defaults(1), chains=1, draws=500, seed=1)
    assert many.info.exhausted.sum() == 0
    assert gibbs.trouble(many.info) == ()


def test_progress_is_reported():
    seen = []
    gibbs.sample(
        [problem(1)], *defaults(1), chains=2, draws=900, tune=300, seed=1,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[-1] == (2400, 2400)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_impossible_releases_give_a_posterior_all_the_same():
    """Noise can make a sum of squares negative; the posterior is then wide, not broken."""
    values = np.array([[50.0, 300.0, -80.0], [300.0, -400.0, 90.0], [-80.0, 90.0, -200.0]])
    scale = np.full((3, 3), 100.0)
    scale[0, 0] = 0.0
    for family in ("laplace", "gaussian"):
        draws = gibbs.sample(
            [Observation(50, values, scale, family)], *defaults(1), chains=2, draws=2000, seed=1
        )
        assert np.isfinite(draws.theta).all()
        assert np.isfinite(draws.sigma2).all()
        assert draws.theta.std() > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chains": 0}, "chains must be"),
        ({"draws": 0}, "draws must be"),
        ({"tune": -1}, "tune must be"),
        ({"tries": 0}, "tries must be"),
        ({"cores": 0}, "cores must be"),
    ],
)
def test_senseless_requests_are_refused(change, message):
    with pytest.raises(RequestError, match=message):
        gibbs.sample([problem(1)], *defaults(1), **change)


def test_what_does_not_fit_together_is_refused():
    prior, covariates = defaults(1)
    with pytest.raises(RequestError, match="at least one holder"):
        gibbs.sample([], prior, covariates)
    with pytest.raises(RequestError, match="same columns"):
        gibbs.sample([problem(1), problem(2)], prior, covariates)
    with pytest.raises(RequestError, match="prior is for 2"):
        gibbs.sample([problem(1)], defaults(2)[0], covariates)
    with pytest.raises(RequestError, match="covariates is for 2"):
        gibbs.sample([problem(1)], prior, defaults(2)[1])
    with pytest.raises(RequestError, match="too small"):
        gibbs.sample([problem(1, n=2)], prior, covariates)
    with pytest.raises(RequestError, match="at least one holder's released fourth"):
        released_moments([])
    with pytest.raises(RequestError, match="one entry for each holder"):
        gibbs.sample([problem(1)], prior, [])
    other = FourthMomentObservation(7, 1, np.zeros(4), 1.0, "laplace")
    with pytest.raises(RequestError, match="same rows"):
        gibbs.sample([problem(1)], prior, [other])


def test_entries_known_exactly():
    """Public entries stay what they are; if they contradict each other, that is an error."""
    o = problem(2)
    prior, covariates = defaults(2)

    def with_known(value):
        values, scale = o.values.copy(), o.scale.copy()
        values[1, 2] = values[2, 1] = value
        scale[1, 2] = scale[2, 1] = scale[1, 1] = scale[2, 2] = 0.0
        values[1, 1] = values[2, 2] = 60.0
        return Observation(o.n, values, scale, o.family)

    draws = gibbs.sample(
        [with_known(5.0)], prior, covariates, chains=1, draws=300, seed=1, keep_statistics=True
    )
    np.testing.assert_allclose(draws.statistics[..., 1, 2], 5.0, atol=1e-9)
    np.testing.assert_allclose(draws.statistics[..., 1, 1], 60.0, atol=1e-9)
    assert draws.statistics[..., 3, 3].std() > 0
    with pytest.raises(ReleaseError, match="contradict"):
        gibbs.sample([with_known(61.0)], prior, covariates)


def test_the_wing_loads_no_compiler_by_itself():
    code = "import sys, noisewise.analyst; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_conditional_mean_and_statistics_are_kept():
    o = problem(2)
    prior, covariates = defaults(2)
    draws = gibbs.sample(
        [o, o], prior, covariates, chains=1, draws=50, seed=16,
        keep_conditional_mean=True, keep_statistics=True, keep_covariates=True,
    )  # fmt: skip
    assert draws.statistics.shape == (1, 50, 2, 4, 4)
    assert (np.linalg.eigvalsh(draws.statistics) > 0).all()
    total = draws.statistics.sum(axis=2)
    shift = total[..., :3, 3] + prior.Lam0 @ prior.mu0
    mean = np.linalg.solve(prior.Lam0 + total[..., :3, :3], shift[..., None])[..., 0]
    np.testing.assert_allclose(draws.conditional_mean, mean, rtol=1e-8)
    assert (np.linalg.eigvalsh(draws.T) > 0).all()
