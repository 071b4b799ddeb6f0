"""What the fitted model would have released: against simulation, with what it must notice."""

from __future__ import annotations

import numpy as np

from noisewise.analyst.regression.agreement import replicate

from .test_agreement import parameters, released, rows


def test_mean_and_spread_are_those_of_simulated_releases():
    """2,000 simulated Releases: means within 5 standard errors, spreads within 10%."""
    rng = np.random.default_rng(11)
    n, scale, trials = 400, 3.0, 2000
    values = []
    for _ in range(trials):
        w = rows(rng, n)
        noise = rng.laplace(0, scale, (4, 4))
        values.append(w.T @ w + np.triu(noise) + np.triu(noise, 1).T)
    values = np.stack(values)
    found = replicate(released(rows(rng, n), scale), *parameters(3))
    upper = np.triu_indices(4)
    keep = found.spread[upper] > 0
    error = values.std(axis=0)[upper][keep] / np.sqrt(trials)
    away = (values.mean(axis=0) - found.expected)[upper][keep] / error
    assert np.abs(away).max() < 5
    ratio = values.std(axis=0)[upper][keep] / found.spread[upper][keep]
    np.testing.assert_allclose(ratio, 1.0, atol=0.1)


def test_released_values_are_ordinary_under_the_right_model_only():
    rng = np.random.default_rng(12)
    below = np.array(
        [replicate(released(rows(rng, 400)), *parameters(1)).below[0, 1] for _ in range(400)]
    )
    # A probability integral transform of 400 values: its mean has the standard error 0.0144.
    assert abs(below.mean() - 0.5) < 5 * 0.0144
    assert 0.2 < below.std() < 0.37
    w = rows(rng, 400)
    w[:, 1] *= 3  # other units
    assert replicate(released(w), *parameters(1)).below[1, 1] > 0.999


def test_uncertain_parameters_widen_the_spread():
    theta, sigma2, mu, T = parameters(200)
    certain = replicate(released(rows(np.random.default_rng(1), 400)), theta, sigma2, mu, T)
    moved = mu + np.random.default_rng(2).normal(0, 0.1, mu.shape)
    torn = replicate(released(rows(np.random.default_rng(1), 400)), theta, sigma2, moved, T)
    assert torn.spread[0, 1] > 1.5 * certain.spread[0, 1]


def test_people_outside_the_bounds_are_counted():
    rng = np.random.default_rng(13)
    simulated = np.mean(np.abs(rows(rng, 200_000)) > 1, axis=0)
    found = replicate(released(rows(rng, 400)), *parameters(2)).outside
    np.testing.assert_allclose(found[1:], simulated[1:], atol=0.006)
    assert found[0] == 0
