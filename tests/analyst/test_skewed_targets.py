"""A target that mean and spread show to be skewed has a wider interval of sigma2, no other has."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.fit import fit
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.residuals import gamma_excess
from noisewise.core.schema import Number, Schema
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

from ..ledgers import ledger_for

SIZE = {"chains": 2, "draws": 2000, "seed": 3}
N = 20_000


def seen(values, noise=0.0):
    """Sums of (1, y), y on unit scale, with normal noise of this sd that happens to be 0."""
    w = np.column_stack([np.ones(len(values)), values])
    scale = np.full((2, 2), noise)
    scale[0, 0] = 0.0
    A = w.T @ w
    return Observation(len(values), (A + A.T) / 2, scale, "gaussian")


def gamma(c, mean=0.1, n=400_000):
    """Values above -1, `mean` from it on average, with standard deviation c mean."""
    return np.random.default_rng(1).gamma(c**-2, mean * c**2, n) - 1.0


@pytest.mark.parametrize("c", [1.2, 2.0])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_gamma_law_is_recognised_from_either_bound(c, side):
    y = side * gamma(c, 0.02)
    actual = np.mean((y - y.mean()) ** 4) / y.var() ** 2 - 3.0
    assert gamma_excess(seen(y)) == pytest.approx(6 * c**2, rel=0.02)
    assert gamma_excess(seen(y)) == pytest.approx(actual, rel=0.15)


@pytest.mark.parametrize("share", [0.3, 0.1, 0.02])
def test_little_more_than_the_bounds_allow(share):
    """Yes/no values have the longest tail that their bounds allow, and the gamma law a longer one.

    The limit on the kurtosis is (1 - share) / share, and theirs is at most 1 below it.
    """
    y = np.where(np.arange(100_000) < share * 100_000, 1.0, -1.0)
    actual = np.mean((y - y.mean()) ** 4) / y.var() ** 2 - 3.0
    assert 6 * (1 - share) / share > actual + 10
    assert gamma_excess(seen(y)) == pytest.approx(max(actual, 0.0), abs=1.0)


def test_others_are_left_alone():
    rng = np.random.default_rng(2)
    for y in (
        rng.normal(0.1, 0.3, 10_000),
        rng.normal(0.6, 0.2, 10_000),
        rng.uniform(-1, 1, 10_000),
        rng.beta(0.5, 0.5, 10_000) * 2 - 1,
        gamma(0.9),
    ):
        assert gamma_excess(seen(y)) == 0.0


def test_noise_that_hides_the_spread_decides_nothing():
    y = gamma(1.5, n=5_000)
    assert gamma_excess(seen(y)) > 10.0
    assert gamma_excess(seen(y, noise=200.0)) == 0.0


def published(y, tmp_path):
    x = np.random.default_rng(4).uniform(-1, 1, N)
    schema = Schema("people", {"x": Number(-1, 1), "y": Number(-1, 1)})
    request = make_request(schema, target="y", features=["x"], epsilon=100, rounds=1)
    ledger = ledger_for(tmp_path / "budget.db")
    return publish(request, {"x": x, "y": y}, ledger=ledger).release


def test_sigma2_is_as_uncertain_as_the_law_says(tmp_path, monkeypatch):
    y = np.minimum(gamma(1.5, 0.04, N), 1.0)
    release = published(y, tmp_path)
    posterior = fit(release, **SIZE)
    assert "y is skewed" in posterior.info.reason
    kappa = np.mean((y - y.mean()) ** 4) / y.var() ** 2
    assert np.log(posterior.sigma2).std() == pytest.approx(np.sqrt((kappa - 1) / N), rel=0.2)
    monkeypatch.setattr("noisewise.analyst.regression.fit.with_skewed_target", lambda d, *_: d)
    plain = fit(release, **SIZE)
    assert (plain.theta == posterior.theta).all()
    assert np.log(plain.sigma2).std() < 0.5 * np.log(posterior.sigma2).std()


def test_a_normal_target_has_the_same_draws(tmp_path, monkeypatch):
    release = published(np.random.default_rng(5).normal(0.1, 0.3, N).clip(-1, 1), tmp_path)
    posterior = fit(release, **SIZE)
    assert "skewed" not in posterior.info.reason
    monkeypatch.setattr("noisewise.analyst.regression.fit.with_skewed_target", lambda d, *_: d)
    assert (fit(release, **SIZE).sigma2 == posterior.sigma2).all()
