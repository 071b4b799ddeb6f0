"""Combining rules of synthetic sets: against the law that they were derived from."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.pool import pool
from noisewise.core.errors import RequestError


def simulated(rng, trials, sets, posterior_variance, sampling_variance):
    """Truth and posterior mean differ by N(0, V); sets scatter with V + u around that mean."""
    centre = np.sqrt(posterior_variance) * rng.standard_normal(trials)
    true = np.zeros(trials)
    spread = np.sqrt(posterior_variance + sampling_variance)
    estimates = centre + spread * rng.standard_normal((sets, trials))
    return true, estimates, np.full((sets, trials), sampling_variance)


@pytest.mark.parametrize(("v", "u", "sets"), [(3.0, 1.0, 20), (4.0, 0.1, 5), (1.0, 0.3, 50)])
def test_pooled_intervals_hold_what_they_say(v, u, sets):
    """And one set alone does not, nor do the rules for imputed data."""
    trials = 20_000
    true, q, within = simulated(np.random.default_rng(1), trials, sets, v, u)
    found = pool(q, within, rows=1000, n=1000, level=0.9)
    covered = np.mean((found.lower <= true) & (true <= found.upper))
    error = np.sqrt(0.09 / trials)
    assert abs(covered - 0.9) < 0.012 + 4 * error  # the t law is an approximation
    alone = np.mean(np.abs(q[0] - true) <= 1.645 * np.sqrt(within[0]))
    assert alone < 0.75
    if u == 1.0:
        imputed = within.mean(axis=0) + (1 + 1 / sets) * q.var(axis=0, ddof=1)
        too_wide = np.mean(np.abs(q.mean(axis=0) - true) <= 1.645 * np.sqrt(imputed))
        assert too_wide > 0.95


def test_without_privacy_noise_the_bound_makes_intervals_a_little_wide():
    """V = u k / n: there the least that T may be is what it is, so that it errs upwards only."""
    true, q, within = simulated(np.random.default_rng(2), 20_000, 20, 1.0, 1.0)
    found = pool(q, within, rows=1000, n=1000, level=0.9)
    covered = np.mean((found.lower <= true) & (true <= found.upper))
    assert 0.9 < covered < 0.96


def test_where_sets_differ_too_little_the_true_rows_decide():
    q, u = np.array([1.0, 1.0, 1.0]), np.array([0.04, 0.04, 0.04])
    found = pool(q, u, rows=1000, n=500, level=0.9)
    assert found.sd == pytest.approx(np.sqrt(0.08))
    assert "hardly more" in found.warnings[0]
    with pytest.raises(RequestError, match="say the number n of true rows"):
        pool(q, u, rows=1000)


@pytest.mark.parametrize(
    ("estimates", "variances", "message"),
    [
        ([1.0], [1.0], "at least two sets"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], "the same shape"),
        ([1.0, np.nan], [1.0, 1.0], "estimates: expected finite numbers"),
        ([1.0, 2.0], [1.0, -1.0], "squared standard errors"),
        (["a", "b"], [1.0, 1.0], "estimates: expected finite numbers"),
    ],
)
def test_what_cannot_be_pooled(estimates, variances, message):
    with pytest.raises(RequestError, match=message):
        pool(estimates, variances, rows=100, n=100)
