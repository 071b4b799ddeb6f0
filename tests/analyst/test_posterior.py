"""The way back to original units, and what a Posterior answers."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.posterior.file import load_posterior
from noisewise.analyst.posterior.regression import FitInfo, Naive, Posterior
from noisewise.analyst.regression.observation import ModelColumns, observe
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.schema import Category, Number, Schema

from ..releases import COLUMNS, example_request, release_of

SCHEMA = Schema("people", COLUMNS)


@pytest.fixture
def columns():
    return ModelColumns(SCHEMA, ("age", "region"), "income")


def made(columns, seed=1, chains=4, draws=500):
    """A posterior with known moments."""
    rng = np.random.default_rng(seed)
    theta = rng.normal([1.0, 2.0, -3.0, 0.0], [1.0, 0.5, 2.0, 1.0], (chains, draws, 4))
    sigma2 = rng.gamma(20.0, 5.0, (chains, draws))
    prior = {"age": (0.0, 2.0)}
    info = FitInfo(
        method="made",
        reason="for a test",
        noise_aware=True,
        n=(100, None),
        claims=("epsilon = 1", "epsilon = 1"),
        digests=("sha256:0", "sha256:1"),
        warnings=("beware",),
        prior=prior,
    )
    stats = {"diverging": np.zeros((chains, draws), bool)}
    naive = Naive(rng.normal([1.0, 2.0, -3.0, 0.0], 0.25, (800, 4)), rng.gamma(100.0, 1.0, 800))
    observed = {"values_1": np.eye(5)}
    return Posterior(columns, theta, sigma2, info, theta * 0.6, stats, observed, naive)


def test_original_units_by_a_regression_done_twice(columns):
    """Least squares on unit scale, mapped back, is least squares on the original scale."""
    rng = np.random.default_rng(2)
    table = {
        "age": rng.uniform(18, 90, 300),
        "region": rng.choice(["north", "süd", "east"], 300),
        "income": rng.uniform(0, 200_000, 300),
    }
    rows = columns.design_matrix(table)
    original, *_ = np.linalg.lstsq(rows, table["income"], rcond=None)
    unit_rows = rows.copy()
    unit_rows[:, 1] = (table["age"] - 54) / 36
    unit_target = (table["income"] - 100_000) / 100_000
    unit, *_ = np.linalg.lstsq(unit_rows, unit_target, rcond=None)
    assert columns.theta_to_original(unit) == pytest.approx(original, rel=1e-9)
    residual_unit = np.var(unit_target - unit_rows @ unit)
    residual = np.var(table["income"] - rows @ original)
    assert columns.sigma2_to_original(residual_unit) == pytest.approx(residual, rel=1e-9)


def test_summary_interval_and_probabilities(columns):
    posterior = made(columns)
    row = posterior.summary(0.9).rows["age"]
    assert row.mean == pytest.approx(2.0, abs=0.05)
    assert row.sd == pytest.approx(0.5, rel=0.1)
    assert (row.lower, row.upper) == pytest.approx((2 - 0.82, 2 + 0.82), abs=0.1)
    assert row.rhat < 1.02
    assert row.ess > 1000
    assert posterior.interval("age", 0.9) == (row.lower, row.upper)
    assert posterior.prob("age > 2") == pytest.approx(0.5, abs=0.05)
    assert posterior.prob("age<2") == pytest.approx(1 - posterior.prob("age >= 2"))
    assert posterior.prob("region[süd] < age") > 0.95
    contrast = posterior.contrast({"age": 1, "region[süd]": -1})
    assert contrast.mean == pytest.approx(5.0, abs=0.15)
    text = str(posterior.summary())
    assert all(name in text for name in (*columns.names, "sigma2", "95%"))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda p: p.prob("age"), "true or false is wanted: compare it, as in 'age > 0'"),
        (lambda p: p.prob("wage > 0"), "wage"),
        (lambda p: p.interval("wage"), "wage"),
        (lambda p: p.interval("age", 95), "0.95"),
        (lambda p: p.contrast({}), "weights"),
        (lambda p: p.contrast(["age"]), "weights"),
        (lambda p: p.contrast({"age": "x"}), "not a number"),
        (lambda p: p.prob("age > nan"), "number"),
        (lambda p: p.predict({"age": [40], "region": ["east"]}, seed=-2), "seed"),
        (lambda p: p.predict({"age": [40]}), "region"),
        (lambda p: p.predict({"age": [40], "region": ["west"]}), "row 1 of column 'region'"),
        (lambda p: p.predict({"age": ["x"], "region": ["east"]}), "age"),
        (lambda p: p.predict({"age": [np.nan], "region": ["east"]}), "age"),
        (lambda p: p.predict({"age": [1, 2], "region": ["east"]}), "length"),
    ],
)
def test_questions_that_make_no_sense(columns, call, word):
    with pytest.raises(RequestError, match=word):
        call(made(columns))


def test_prediction_includes_the_error(columns):
    posterior = made(columns)
    result = posterior.predict({"age": [40, 40], "region": ["north", "süd"]}, seed=3)
    assert result.estimate == pytest.approx([81.0, 78.0], rel=0.03)
    expected = np.sqrt(1 + (40 * 0.5) ** 2 + 100)
    assert result.spread[0] == pytest.approx(expected, rel=0.05)
    assert (result.upper - result.lower)[0] == pytest.approx(2 * 1.96 * expected, rel=0.07)


def test_privacy_share_is_a_ratio_of_variances(columns):
    share = made(columns).privacy_share()
    assert share["age"] == pytest.approx(0.36, rel=1e-6)


def test_comparison_with_the_naive_posterior(columns):
    posterior = made(columns)
    comparison = posterior.comparison(0.9)
    row = comparison.rows["age"]
    assert row.width_ratio == pytest.approx(2.0, rel=0.1)
    assert row.privacy_share == pytest.approx(0.36, rel=1e-6)
    assert (row.lower, row.upper) == posterior.interval("age", 0.9)
    assert row.naive_upper - row.naive_lower == pytest.approx(2 * 1.645 * 0.25, rel=0.1)
    assert np.isnan(comparison.rows["sigma2"].privacy_share)
    assert "36%" in str(comparison)
    assert posterior.naive_summary(0.9)["age"]["lower"] == row.naive_lower
    assert set(comparison.to_dict()) == {*posterior.names, "sigma"}


def test_nothing_to_compare_with(columns):
    bare = Posterior(columns, made(columns).theta, made(columns).sigma2, made(columns).info)
    with pytest.raises(RequestError, match="naive"):
        bare.naive_draws("age")


def test_posterior_predictive_draws(columns):
    posterior = made(columns)
    new = {"age": [40, 50], "region": ["north", "süd"]}
    drawn = posterior.predictive_draws(new, seed=3)
    assert drawn.shape == (4, 500, 2)
    predicted = posterior.predict(new, seed=4)
    assert drawn.mean(axis=(0, 1)) == pytest.approx(predicted.estimate, abs=5 * 25 / 2000**0.5)
    assert drawn.std(axis=(0, 1)) == pytest.approx(predicted.spread, rel=0.1)
    data = posterior.to_arviz(new, seed=3)
    np.testing.assert_array_equal(data.posterior_predictive["income"].to_numpy(), drawn)


def test_round_trip_through_netcdf(columns, tmp_path):
    posterior = made(columns)
    path = tmp_path / "post.nc"
    posterior.save(path)
    loaded = load_posterior(path)
    assert loaded.columns == posterior.columns
    assert loaded.info == posterior.info
    np.testing.assert_array_equal(loaded.theta, posterior.theta)
    np.testing.assert_array_equal(loaded.sigma2, posterior.sigma2)
    np.testing.assert_array_equal(loaded.conditional_mean, posterior.conditional_mean)
    assert set(loaded.sample_stats) == {"diverging"}
    assert set(loaded.observed) == {"values_1"}
    np.testing.assert_array_equal(loaded.naive.theta, posterior.naive.theta)
    np.testing.assert_array_equal(loaded.naive.sigma2, posterior.naive.sigma2)


def test_files_that_are_no_posterior(tmp_path):
    path = tmp_path / "post.nc"
    with pytest.raises(ReleaseError, match="no such file"):
        load_posterior(path)
    path.write_bytes(b"CDF\x01 not really")
    with pytest.raises(ReleaseError, match="not a posterior"):
        load_posterior(path)


# --- picking columns out of Releases --------------------------------------------------------------


def test_observations_are_the_released_entries():
    request = example_request(delta=1e-6, radius=1.25)
    values = [(i + 1) << 32 for i in range(13)]
    columns, [seen] = observe([release_of(request, values=values)])
    assert columns.names == ("intercept", "age", "region[süd]", "region[east]")
    assert seen.family == "gaussian"
    assert seen.n == seen.values[0, 0] == 1000
    assert seen.values[2, 3] == 0  # two levels of one category never meet
    assert (seen.scale[0, 0], seen.scale[2, 3]) == (0, 0)
    assert seen.values[0, 1] == 1.0
    assert seen.values[4, 4] == 13.0
    assert seen.scale[1, 1] == pytest.approx(seen.scale[0, 1] * np.sqrt(2), rel=1e-6)


def test_any_released_column_may_be_the_target():
    release = release_of(example_request(), values=[(i + 1) << 32 for i in range(13)])
    _, [everything] = observe([release])
    columns, [seen] = observe([release], target="age", features=["income"])
    assert (columns.names, columns.target) == (("intercept", "income"), "age")
    order = [0, 4, 1]
    np.testing.assert_array_equal(seen.values, everything.values[np.ix_(order, order)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"target": "wage"}, "wage"),
        ({"target": "region"}, "category"),
        ({"features": ["wage"]}, "wage"),
        ({"features": []}, "none given"),
        ({"features": "age"}, "list"),
        ({"features": ["income"]}, "target too"),
    ],
)
def test_choices_that_make_no_sense(words, message):
    with pytest.raises(RequestError, match=message):
        observe([release_of(example_request())], **words)


def test_holders_must_agree_on_the_scale():
    other = {**COLUMNS, "age": Number(0, 100)}
    from noisewise.holder.requests.regression import make_request

    strange = make_request(
        Schema("people", other), target="income", features=["age", "region"], epsilon=1
    )
    releases = [release_of(example_request()), release_of(strange)]
    with pytest.raises(ReleaseError, match="differently"):
        observe(releases)
    assert len(observe(releases, features=["region"])[1]) == 2
    assert observe([release_of(example_request("add_remove_one"))])[1][0].n_is_private


def test_levels_may_be_numbers():
    schema = Schema("d", {"g": Category(("1", "2"), "1"), "y": Number(0, 1)})
    rows = ModelColumns(schema, ("g",), "y").design_matrix({"g": np.array([1, 2, 2])})
    assert rows.tolist() == [[1, 0], [1, 1], [1, 1]]
