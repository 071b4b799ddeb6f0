"""Imagined releases: right moments, and an eye for holders that contradict each other."""

from __future__ import annotations

import numpy as np

from noisewise.analyst.models.replicates import discrepancy, draw_statistics
from noisewise.analyst.observation import Observation


def parameters(m):
    T = np.array([[0.3, 0.1], [0.1, 0.2]])
    return (
        np.tile([0.2, 0.5, -0.4], (m, 1)),
        np.full(m, 0.09),
        np.tile([0.1, -0.3], (m, 1)),
        np.tile(T, (m, 1, 1)),
    )


def rows(rng, m, n):
    theta, sigma2, mu, T = (values[0] for values in parameters(1))
    x = rng.multivariate_normal(mu, T, (m, n))
    y = theta[0] + x @ theta[1:] + np.sqrt(sigma2) * rng.standard_normal((m, n))
    return np.concatenate([np.ones((m, n, 1)), x, y[..., None]], axis=2)


def test_sums_are_drawn_with_the_moments_of_summed_rows():
    rng = np.random.default_rng(1)
    m, n = 40_000, 7
    drawn = draw_statistics(rng, n, *parameters(m))
    w = rows(rng, m, n)
    summed = w.transpose(0, 2, 1) @ w
    upper = np.triu_indices(4)
    a, b = drawn[:, *upper], summed[:, *upper]
    error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / m)
    assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 5 * error + 1e-9).all()
    ratio = a[:, 1:].var(axis=0) / b[:, 1:].var(axis=0)
    assert (np.abs(ratio - 1) < 0.12).all()
    # A determinant has no CLT to hide behind: products of chi-squares.
    logs = [np.linalg.slogdet(x)[1] for x in (drawn, summed)]
    assert abs(logs[0].mean() - logs[1].mean()) < 5 * np.sqrt((logs[0].var() + logs[1].var()) / m)


def test_discrepancy_is_small_for_the_right_model_and_large_for_another():
    rng = np.random.default_rng(2)
    n = 400
    w = rows(rng, 1, n)[0]
    scale = np.full((4, 4), 3.0)
    scale[0, 0] = 0.0
    right = Observation(n, w.T @ w, scale, "laplace")
    away = discrepancy(rng, right, *parameters(2000))
    assert away[0, 0] == 0
    assert np.abs(away).max() < 4.5
    w[:, 1] *= 10  # other units
    wrong = Observation(n, w.T @ w, scale, "laplace")
    assert np.abs(discrepancy(rng, wrong, *parameters(2000))).max() > 20


def test_unreleased_entries_say_nothing():
    scale = np.full((4, 4), np.inf)
    scale[0, 0] = 0.0
    values = np.zeros((4, 4))
    values[0, 0] = 50
    seen = Observation(50, values, scale, "gaussian")
    assert not discrepancy(np.random.default_rng(3), seen, *parameters(100)).any()
