"""A warning where rows may have been clipped, and slopes before clipping would be elsewhere."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import ndtr

import noisewise as nw
from noisewise.analyst.regression.cautions import may_clip, slopes_before_clipping

from ..ledgers import ledger_for
from ..releases import release_of

SCHEMA = nw.Schema("people", {"x": nw.Number(-1, 1), "y": nw.Number(-1, 1)})


def posterior_of(x, y, tmp_path, epsilon=20, schema=SCHEMA, features=("x",)):
    table = {"x": x, "y": y}
    tmp_path.mkdir(exist_ok=True)
    request = nw.make_request(schema, target="y", features=list(features), epsilon=epsilon)
    release = nw.publish(request, table, ledger=ledger_for(tmp_path / "ledger.db")).release
    return nw.fit(release, seed=1, chains=2, draws=200)


def told(posterior):
    return [text for text in posterior.info.warnings if "if values were clipped" in text]


def rows(spread, n=4000):
    rng = np.random.default_rng(3)
    x = spread * rng.standard_normal(n)
    return x, 0.4 * x + 0.2 * rng.standard_normal(n)


def test_clipped_rows_are_suspected(tmp_path):
    (text,) = told(posterior_of(*rows(1.0), tmp_path))
    assert "bounds of x (" in text
    assert "Ask the holder" in text


@pytest.mark.parametrize("law", ["narrow", "uniform"])
def test_rows_within_their_bounds_are_not(tmp_path, law):
    x, y = rows(0.3)
    if law == "uniform":
        rng = np.random.default_rng(4)
        x = rng.uniform(-1, 1, len(x))
        y = 0.3 * x + 0.2 * rng.standard_normal(len(x))
    assert not told(posterior_of(x, y, tmp_path))


def test_where_noise_hides_the_spread_nothing_is_said(tmp_path):
    assert not told(posterior_of(*rows(0.3, n=200), tmp_path, epsilon=0.1))


def test_indicators_are_never_suspected(tmp_path):
    columns = {"x": nw.Category(("a", "b"), "a"), "y": nw.Number(-1, 1)}
    x = np.array(["a", "b"] * 2000)
    y = 0.1 * np.random.default_rng(5).standard_normal(4000)
    assert not told(posterior_of(x, y, tmp_path, schema=nw.Schema("people", columns)))


@pytest.mark.parametrize("kind", ["yes or no", "0 or 1", "steps", "amounts"])
def test_columns_that_end_where_their_bounds_are_by_nature_are_not_suspected(tmp_path, kind):
    rng = np.random.default_rng(6)
    x, bounds = {
        "yes or no": (rng.choice([-1.0, 1.0], p=[0.7, 0.3], size=4000), (-1, 1)),
        "0 or 1": (rng.choice([0.0, 1.0], p=[0.5, 0.5], size=4000), (0, 1)),
        "steps": (rng.choice([1.0, 2.0, 3.0, 4.0], p=[0.6, 0.2, 0.1, 0.1], size=4000), (1, 4)),
        "amounts": (np.minimum(rng.exponential(10.0, 4000), 100.0), (0, 100)),
    }[kind]
    y = 0.3 * (x - x.mean()) / x.std() + 0.1 * rng.standard_normal(len(x))
    schema = nw.Schema("people", {"x": nw.Number(*bounds), "y": nw.Number(-2, 2)})
    posterior = posterior_of(x, y, tmp_path, schema=schema)
    # The fitted law does reach beyond a bound, and the slope is sure: it would be named otherwise.
    assert posterior.observed["outside_1"][1] > 0.1
    assert posterior.draws("x").mean() / posterior.draws("x").std() > 20
    assert not told(posterior)


def test_clipping_that_no_slope_would_notice_is_not_mentioned(tmp_path):
    x, y = rows(1.0)
    rng = np.random.default_rng(7)
    noise = 0.3 * rng.standard_normal(len(y))
    assert told(posterior_of(x, y, tmp_path / "sure"))
    assert not told(posterior_of(x, noise, tmp_path / "none"))


def test_bounds_of_nature():
    found = may_clip(np.array([[0.0, 5.0], [1.0, 5.0], [-1.0, 1.0], [-3.0, 0.0]]))
    np.testing.assert_array_equal(found, [[0, 1], [0, 1], [1, 1], [1, 0]])


def clipped_moments(bounds, n=400_000):
    """Of correlated x1 and x2 of which only the first counts, and y; clipped at these sds."""
    rng = np.random.default_rng(8)
    x1 = rng.standard_normal(n)
    x2 = 0.7 * x1 + np.sqrt(0.51) * rng.standard_normal(n)
    y = 0.6 * x1 + 0.5 * rng.standard_normal(n)
    columns = [
        np.clip(0.1 * value if bound is None else value / bound, -1.0, 1.0)
        for value, bound in zip((x1, x2, y), bounds, strict=True)
    ]
    units = np.array([0.1 if bound is None else 1.0 / bound for bound in bounds])
    return np.mean(columns, axis=1), np.cov(columns), units[:2] / units[2]


@pytest.mark.parametrize("bounds", [(1.0, None, None), (None, None, 1.2), (1.0, 1.0, 1.2)])
def test_slopes_before_clipping(bounds):
    """Clipping x1 gives x2 a slope of its own, which is undone; so is a smaller y."""
    mean, covariance, units = clipped_moments(bounds)
    before, cut = slopes_before_clipping(mean, covariance, np.ones((3, 2), dtype=bool))
    now = np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
    for share, bound, sd in zip(cut, bounds, (1.0, 1.0, np.sqrt(0.61)), strict=True):
        expected = 0.0 if bound is None else float(2 * ndtr(-bound / sd))
        assert share == pytest.approx(expected, abs=0.01)
    # Exact for one clipped column, where Monte Carlo leaves errors of 0.0011; terms of third order
    # in correlations are left out of two.
    close = 0.006 if sum(bound is not None for bound in bounds) == 1 else 0.1
    np.testing.assert_allclose(before * units, [0.6, 0.0], atol=close)
    assert np.abs(now * units - [0.6, 0.0]).max() > 0.1 * 0.6  # and it would have been noticed


def test_moments_that_no_clipped_bell_has_are_left_alone():
    mean, covariance = np.array([0.6, 0.0]), np.array([[0.63, 0.1], [0.1, 0.1]])
    before, cut = slopes_before_clipping(mean, covariance, np.ones((2, 2), dtype=bool))
    assert not cut.any()
    np.testing.assert_allclose(before, [0.1 / 0.63])


@pytest.mark.parametrize("wide", [1e-60, 1e60])
@pytest.mark.parametrize("target", [1e-60, 1e60])
def test_the_narrowest_and_widest_bounds_can_be_computed_with(wide, target):
    schema = nw.Schema("people", {"x": nw.Number(-wide, wide), "y": nw.Number(-target, target)})
    request = nw.make_request(schema, target="y", features=["x"], epsilon=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        posterior = nw.fit(release_of(request), seed=1, chains=2, draws=100)
        assert np.isfinite([row.sd for row in posterior.summary().rows.values()]).all()
        assert np.isfinite(posterior.predict({"x": [wide]}).spread).all()
