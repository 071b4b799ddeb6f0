"""An eye for holders that contradict each other."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.regression.agreement import discrepancy, second_moments
from noisewise.analyst.regression.observation import Observation


def parameters(m):
    T = np.array([[0.3, 0.1], [0.1, 0.2]])
    return (
        np.tile([0.2, 0.5, -0.4], (m, 1)),
        np.full(m, 0.09),
        np.tile([0.1, -0.3], (m, 1)),
        np.tile(T, (m, 1, 1)),
    )


def rows(rng, n):
    theta, sigma2, mu, T = (values[0] for values in parameters(1))
    x = rng.multivariate_normal(mu, T, n)
    y = theta[0] + x @ theta[1:] + np.sqrt(sigma2) * rng.standard_normal(n)
    return np.column_stack([np.ones(n), x, y])


def released(w, scale=3.0, family="laplace"):
    scales = np.full((w.shape[1],) * 2, scale)
    scales[0, 0] = 0.0
    return Observation(len(w), w.T @ w, scales, family)


def test_moments_of_rows():
    w = rows(np.random.default_rng(1), 400_000)
    np.testing.assert_allclose(second_moments(*parameters(3))[1], w.T @ w / len(w), atol=0.006)


def test_the_right_model_is_about_one_sd_away():
    """Over many data sets the squares average one, entry by entry: the variances are right."""
    rng = np.random.default_rng(2)
    away = np.stack(
        [
            discrepancy(released(rows(rng, 400), scale=1e-9, family="gaussian"), *parameters(1))
            for _ in range(2000)
        ]
    )
    mean_squares = (away**2).mean(axis=0)
    mean_squares[0, 0] = 1.0
    np.testing.assert_allclose(mean_squares, 1.0, atol=0.2)


def test_other_units_are_far_away():
    w = rows(np.random.default_rng(3), 400)
    assert discrepancy(released(w), *parameters(100)).max() < 4.5
    w[:, 1] *= 10
    assert discrepancy(released(w), *parameters(100)).max() > 20


def test_a_wide_posterior_does_not_excuse_a_contradiction():
    """Draws between two holders that disagree are far from both."""
    theta, sigma2, mu, T = parameters(400)
    theta[:, 1] = np.linspace(-0.5, 0.5, 400)  # one holder says 0.5, the other -0.5
    away = discrepancy(released(rows(np.random.default_rng(4), 5000)), theta, sigma2, mu, T)
    assert away.max() > 6


def test_unreleased_entries_say_nothing():
    scale = np.full((4, 4), np.inf)
    scale[0, 0] = 0.0
    values = np.zeros((4, 4))
    values[0, 0] = 50
    seen = Observation(50, values, scale, "gaussian")
    assert not discrepancy(seen, *parameters(100)).any()


@pytest.mark.parametrize("n", [1, 3])
def test_a_private_n_may_be_rough(n):
    values, scale = np.full((4, 4), 0.1), np.full((4, 4), 5.0)
    values[0, 0] = n
    seen = Observation.with_private_n(values, scale, "laplace")
    assert np.isfinite(discrepancy(seen, *parameters(10))).all()
