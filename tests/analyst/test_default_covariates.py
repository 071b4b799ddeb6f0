"""The covariates' prior of a fit that is given none knows the ball that rows were forced into."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from noisewise.analyst.fit import fit
from noisewise.analyst.regression.observation import observe
from noisewise.analyst.regression.original_units import default_covariates
from noisewise.analyst.regression.priors import (
    NIWPrior,
    NormalInverseGammaIndependent,
    ScaleFreeCovariates,
)
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.errors import RequestError
from noisewise.core.schema import Number, Schema
from noisewise.holder.requests.regression import make_request

from ..releases import example_request, release_of


def request_for(k, radius, **changes):
    features = [f"x{j}" for j in range(1, k + 1)]
    schema = Schema("people", {name: Number(-1, 1) for name in (*features, "y")})
    words = {"target": "y", "features": features, "epsilon": 1, "delta": "1e-6", "rounds": 1}
    words |= changes
    return make_request(schema, radius=radius, **words)


def release_in(k, radius, **changes):
    return release_of(request_for(k, radius, **changes))


def default_for(*releases, method="gibbs_update", **model):
    columns, _ = observe(releases, **model)
    return default_covariates(columns, releases, method)


def expected_variances(prior):
    """The diagonal of the prior mean of T."""
    return np.diag(prior.Psi) / (prior.nu - prior.k - 1)


def same(a, b):
    return all(np.array_equal(getattr(a, part), getattr(b, part)) for part in vars(a))


# --- which prior ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "radius"), [(1, 0.25), (10, 0.5), (10, 1.0)])
def test_variances_in_a_small_ball_add_up_to_half_of_its_square(k, radius):
    prior = NIWPrior.in_ball(k, radius)
    assert expected_variances(prior) == pytest.approx(np.full(k, radius**2 / 2 / k))
    assert prior.nu == NIWPrior.weakly_informative(k).nu
    assert same(default_for(release_in(k, radius)), prior)


def test_a_large_ball_changes_nothing():
    assert same(NIWPrior.in_ball(10, 64.0), NIWPrior.weakly_informative(10))
    assert same(default_for(release_in(10, 64.0)), NIWPrior.weakly_informative(10))


@pytest.mark.parametrize("radius", [0, -1.0, float("nan"), float("inf")])
def test_a_radius_is_positive(radius):
    with pytest.raises(RequestError, match="radius"):
        NIWPrior.in_ball(3, radius)


def test_scaling_multiplies_variances_and_keeps_correlations():
    given = NIWPrior(np.zeros(2), 1.0, np.array([[2.0, 0.6], [0.6, 1.0]]), 7.0)
    scaled = given.scaled(np.array([0.25, 1.0]))
    assert np.diag(scaled.Psi) == pytest.approx([0.5, 1.0])
    assert scaled.Psi[0, 1] == pytest.approx(0.3)


def test_without_a_ball_the_prior_is_as_ever():
    box = release_of(example_request())
    assert same(default_for(box), NIWPrior.weakly_informative(3))
    assert same(default_for(box, method="gibbs_prior"), NIWPrior.with_fourth_moments(3))


def test_one_release_without_a_ball_says_that_rows_may_fill_the_bounds():
    prior = default_for(release_in(4, 0.5), release_in(4, None))
    assert same(prior, NIWPrior.weakly_informative(4))


def test_the_largest_of_several_balls_counts():
    for order in ((0.5, 0.25), (0.25, 0.5)):
        prior = default_for(*(release_in(4, radius) for radius in order))
        assert same(prior, NIWPrior.in_ball(4, 0.5))


def test_a_part_of_the_features_shares_the_ball_with_the_others():
    prior = default_for(release_in(10, 0.5), features=["x2", "x7"])
    assert expected_variances(prior) == pytest.approx(np.full(2, 0.5**2 / 2 / 10))


def test_the_released_target_is_outside_the_ball():
    prior = default_for(release_in(4, 0.5), target="x1", features=["y", "x3"])
    assert expected_variances(prior) == pytest.approx([0.2, 0.5**2 / 2 / 4])


def test_indicators_share_the_ball():
    prior = default_for(release_of(example_request(delta=1e-6, radius=0.5)))
    assert expected_variances(prior) == pytest.approx(np.full(3, 0.5**2 / 2 / 3))


@pytest.mark.parametrize("method", ["auto", "exact"])
def test_the_scale_free_prior_knows_the_ball_too(method):
    box = default_for(release_in(4, None), method=method)
    assert pytest.approx(np.full(4, 0.5)) == box.A
    assert box.nu == 4
    ball = default_for(release_in(4, 0.5), method=method)
    share = 0.5**2 / 2 / 4 / 0.2  # of the variance, as for the others
    assert pytest.approx(np.full(4, 0.5 * np.sqrt(share))) == ball.A
    both = default_for(release_in(4, 0.5), release_in(4, None), method=method)
    assert pytest.approx(box.A) == both.A


def test_gibbs_prior_keeps_its_fourth_moments():
    prior = default_for(release_in(4, 0.5), method="gibbs_prior")
    assert prior.nu == NIWPrior.with_fourth_moments(4).nu
    assert expected_variances(prior) == pytest.approx(np.full(4, 0.5**2 / 2 / 4))


# --- what it does in a fit ------------------------------------------------------------------------


def simulated(request, slopes, n, rng):
    """A Release of n rows that fill the request's ball, with Gaussian noise from `rng`."""
    k, radius = len(slopes), request.geometry.radius
    x = rng.normal(0, radius / np.sqrt(2 * k), (n, k))
    x *= np.minimum(1, radius / np.linalg.norm(x, axis=1, keepdims=True))
    w = np.column_stack([np.ones(n), x, x @ slopes + 0.2 * rng.standard_normal(n)])
    sums = w.T @ w
    _, (empty,) = observe([release_of(request, n)])  # for the scale of the noise
    noisy = sums + empty.scale * rng.standard_normal(sums.shape)
    values = [round(noisy[entry] * STATISTIC_ONE) for entry in request.statistics[0].entries]
    return release_of(request, n, values)


def test_a_prior_that_is_given_is_taken_as_it_is():
    rng = np.random.default_rng(4)
    release = simulated(request_for(3, 0.5), rng.normal(0, 0.4, 3), 3000, rng)
    words = {"seed": 1, "chains": 1, "draws": 50}
    default = fit(release, **words).theta
    inside = ScaleFreeCovariates(0.5 * np.sqrt(np.full(3, 0.5**2 / 2 / 3 / 0.2)), 3.0)
    ball = fit(release, covariate_prior=inside, **words).theta
    box = fit(release, covariate_prior=ScaleFreeCovariates.default(3), **words).theta
    np.testing.assert_array_equal(default, ball)
    assert not np.array_equal(default, box)


@pytest.mark.long
def test_intervals_of_slopes_in_a_small_ball_hold_the_truth():
    """A prior that expects more than the ball can hold is the negative control."""
    k, fits = 10, 20
    request, rng = request_for(k, 0.5), np.random.default_rng(20261116)
    held = {"default": [], "box": []}
    box = {
        "prior": NormalInverseGammaIndependent.weakly_informative(k),
        "covariate_prior": NIWPrior.weakly_informative(k),
    }
    priors = {"default": {}, "box": box}
    for number in range(fits):
        slopes = rng.normal(0, np.sqrt(0.5 / k), k)  # as the prior of slopes has it
        release = simulated(request, slopes, 3000, rng)
        for name, given in priors.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                words = {"seed": number, "chains": 1, "draws": 400}
                posterior = fit(release, **given, **words)
            for j, slope in enumerate(slopes, 1):
                low, high = posterior.interval(f"x{j}")
                held[name].append(low <= slope <= high)
    assert np.mean(held["default"]) > 0.95 - 4 * np.sqrt(0.95 * 0.05 / (k * fits))
    assert np.mean(held["box"]) < 0.85
