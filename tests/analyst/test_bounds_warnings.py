"""A warning where bounds cut through the fitted law: rows may have been clipped."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import noisewise as nw

from ..ledgers import ledger_for
from ..releases import release_of

SCHEMA = nw.Schema("people", {"x": nw.Number(-1, 1), "y": nw.Number(-1, 1)})


def posterior_of(x, y, tmp_path, epsilon=20, schema=SCHEMA, features=("x",)):
    table = {"x": x, "y": y}
    request = nw.make_request(schema, target="y", features=list(features), epsilon=epsilon)
    release = nw.publish(request, table, ledger=ledger_for(tmp_path / "ledger.db")).release
    return nw.fit(release, seed=1, chains=2, draws=200)


def told(posterior):
    return [text for text in posterior.info.warnings if "beyond the bounds" in text]


def rows(spread, n=4000):
    rng = np.random.default_rng(3)
    x = spread * rng.standard_normal(n)
    return x, 0.4 * x + 0.2 * rng.standard_normal(n)


def test_clipped_rows_are_suspected(tmp_path):
    (text,) = told(posterior_of(*rows(1.0), tmp_path))
    assert "x (" in text
    assert "ask the holder" in text


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
