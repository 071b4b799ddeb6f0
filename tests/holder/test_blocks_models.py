"""Blocks that fit other models than a line, and functions of the holder's own."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize

import noisewise as nw
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import Model
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.holder.blocks import models
from noisewise.holder.blocks.sums import BlockGrid
from noisewise.holder.requests.summary import BlockFunction, make_summary_request

from ..ledgers import ledger_for

COLUMNS = {
    "x": Unbounded(),
    "group": Category(("a", "b"), "a"),
    "y": Number(0, 1),
    "count": Number(0, 100),
    "time": Unbounded(),
    "sick": Category(("no", "yes"), "no"),
    "grade": Category(("low", "mid", "high"), "low"),
}


def table(n=4_000, seed=3):
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=n), rng.integers(0, 2, n)
    line = -0.5 + 0.8 * x + 0.4 * group
    time = rng.exponential(np.exp(-0.8 * x))
    return {
        "x": x,
        "group": np.array(["a", "b"])[group],
        "y": (rng.random(n) < 1 / (1 + np.exp(-line))).astype(float),
        "count": rng.poisson(np.exp(0.5 * line)).astype(float),
        "time": np.where(rng.random(n) < 0.7, time, -time),
    }


TARGETS = {
    "logistic": "y",
    "poisson": "count",
    "quantile": "time",
    "quantile:0.9": "time",
    "huber": "time",
    "cox": "time",
}


def request(model, target="y", **words):
    given = {"features": ["x", "group"], "coefficients": ["x"], "epsilon": 1, "blocks": 400}
    schema = Schema("d", COLUMNS)
    return make_summary_request(schema, target=target, model=model, **{**given, **words})


def rows_of(asked, data):
    accumulator = asked.plan().accumulator()
    codes = (np.asarray(data["group"]) == "b").astype(np.int32)
    accumulator.add([np.asarray(data["x"], float), codes, np.asarray(data[asked.design.target])])
    return accumulator.result()


def fits_of(asked, data, halves, monkeypatch):
    """Fits with rows in given halves of blocks, by their place in the sorted table."""
    monkeypatch.setattr(models, "draw_blocks", lambda n, r, m: np.asarray(halves)[None, :])
    return asked.fits(rows_of(asked, data), None)


def climbed(model, X, y):
    """The largest log likelihood with half of the log determinant of the information."""

    def loss(b):
        eta = X @ b
        if model == "logistic":
            likelihood, p = y @ eta - np.logaddexp(0, eta).sum(), 1 / (1 + np.exp(-eta))
            weight = p * (1 - p)
        else:
            weight = np.exp(eta)
            likelihood = y @ eta - weight.sum()
        return -likelihood - np.linalg.slogdet(X.T @ (weight[:, None] * X))[1] / 2

    found = scipy.optimize.minimize(loss, np.zeros(X.shape[1]), method="BFGS", tol=1e-10)
    return found.x


def direct(model, data):
    """The same fits by statsmodels' formulas, or by climbing a penalised likelihood."""
    if model in ("logistic", "poisson"):
        X = np.column_stack([np.ones(len(data["x"])), data["x"], data["group"] == "b"])
        return climbed(model, X, np.asarray(data[TARGETS[model]]))
    import pandas as pd
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    frame = pd.DataFrame({**data, "seen": (data["time"] > 0).astype(int)})
    names = ["Intercept", "x", "group[T.b]"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if model.startswith("quantile"):
            share = float(model.partition(":")[2] or 0.5)
            return smf.quantreg("time ~ x + group", frame).fit(q=share).params[names]
        if model == "huber":
            return smf.rlm("time ~ x + group", frame).fit().params[names]
        X = np.column_stack([frame.x, frame.group == "b"]).astype(float)
        return sm.PHReg(frame.time.abs(), X, status=frame.seen, ties="efron").fit().params


@pytest.mark.parametrize("model", TARGETS)
def test_a_block_fits_what_statsmodels_fits(model, monkeypatch):
    data = table(600)
    asked = request(model, TARGETS[model], mechanism="sign", coefficients=(), blocks=2,
                    questions=["x < 0"])  # fmt: skip
    # All rows in one half: the other has no estimate, so nothing is extrapolated.
    fits = fits_of(asked, data, np.zeros(600, int), monkeypatch)
    expected = np.asarray(direct(model, data))
    assert fits.valid.tolist() == [True, False]
    np.testing.assert_allclose(fits.mean[0], expected, rtol=2e-3, atol=2e-3)
    assert fits.mean.shape[1] == len(asked.coefficients) == len(expected)


def test_halves_take_away_the_bias_of_small_blocks(monkeypatch):
    """The mean of squares of means is off by σ²/k; extrapolated it isn't."""
    rng = np.random.default_rng(1)
    n, blocks = 40_000, 2_000
    data = {**table(n), "x": rng.normal(size=n)}
    function = BlockFunction("squared mean", ["square"], lambda block: [block["x"].mean() ** 2])
    asked = request(function, coefficients=["square"], blocks=blocks)
    fits = asked.fits(rows_of(asked, data), None)
    error = fits.mean.std() / np.sqrt(blocks)
    assert abs(fits.mean.mean()) < 5 * error
    assert 10 * error < 1 / 20  # σ²/k would be seen


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_what_a_function_raises_stays_in_its_block(error):
    def leaves(block):
        raise error("secret")

    asked = request(BlockFunction("leaves", ["one"], leaves), coefficients=["one"], blocks=2000)
    fits = asked.fits(rows_of(asked, table(400)), None)
    assert not fits.valid.any()


def test_the_order_of_rows_changes_nothing(monkeypatch):
    data = table(500)
    order = np.random.default_rng(0).permutation(500)
    mixed = {name: values[order] for name, values in data.items()}
    halves = np.random.default_rng(1).integers(0, 8, 500)
    asked = request("logistic", mechanism="sign", coefficients=(), questions=["x < 0"], blocks=4)
    one = fits_of(asked, data, halves, monkeypatch)
    other = fits_of(asked, mixed, halves, monkeypatch)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.valid, other.valid)


def test_blocks_without_an_estimate(monkeypatch):
    """A missing level, one class, too few rows: marked, never raised."""
    asked = request("logistic", mechanism="sign", coefficients=(), questions=["x < 0"], blocks=2)
    n = 60
    x = np.linspace(-1, 1, n)
    group = np.array(["a", "b"] * (n // 2))
    cases = {
        "one class": {"x": x, "group": group, "y": np.ones(n)},
        "missing level": {"x": x, "group": np.array(["a"] * n), "y": (np.sin(9 * x) > 0) * 1.0},
        "few": {"x": x[:3], "group": group[:3], "y": np.array([0.0, 1.0, 0.0])},
    }
    for name, data in cases.items():
        fits = fits_of(asked, data, np.zeros(len(data["x"]), int), monkeypatch)
        assert not fits.valid.any(), name
    fine = {"x": x, "group": group, "y": (np.sin(9 * x) > 0) * 1.0}
    assert fits_of(asked, fine, np.zeros(n, int), monkeypatch).valid.tolist() == [True, False]


@pytest.mark.parametrize("model", ["logistic", "poisson"])
def test_separated_rows_have_a_finite_estimate(model):
    """All of a level have no event: the likelihood alone has no maximum."""
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(60), rng.normal(size=60), np.arange(60) % 2])
    y = ((np.sin(9 * X[:, 1]) > 0) & (X[:, 2] == 0)).astype(float)
    found = models.penalised(X, y, binary=model == "logistic")
    np.testing.assert_allclose(found, climbed(model, X, y), atol=1e-3)
    assert -6 < found[2] < -2  # statsmodels would stop at -20 and more


@pytest.mark.parametrize("model", ["logistic", "poisson"])
@pytest.mark.parametrize("event", [0.0, 1.0])
def test_a_level_with_one_member_has_an_estimate(model, event):
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(60), rng.normal(size=60), np.arange(60) == 7])
    y = (np.sin(9 * X[:, 1]) > 0).astype(float)
    y[7] = event
    found = models.penalised(X, y, binary=model == "logistic")
    np.testing.assert_allclose(found, climbed(model, X, y), atol=2e-3)


def test_rare_events_do_not_move_the_mean_over_blocks():
    """Blocks of 100 rows, halves without events of a level; by likelihood alone it is .4 to 3 off.

    Which rows are together is drawn at random; the mean over blocks has an sd of .03 by that.
    """
    rng = np.random.default_rng(4)
    n = 20_000
    group = rng.random(n) < 0.3
    y = (rng.random(n) < np.where(group, 0.2, 0.06)).astype(float)
    data = {"x": rng.normal(size=n), "group": np.where(group, "b", "a"), "y": y}
    asked = request("logistic", coefficients=["group[b]"], blocks=200)
    fits = asked.fits(rows_of(asked, data), None)
    assert fits.valid.mean() > 0.95
    odds = [np.mean(y[group == own]) for own in (True, False)]
    whole = np.log(odds[0] / (1 - odds[0])) - np.log(odds[1] / (1 - odds[1]))
    estimates = fits.mean[:, 2]
    assert abs(estimates.mean() - whole) < 0.15
    assert estimates.std() < 1.5


@pytest.mark.parametrize(
    "function",
    [lambda _: [np.nan], lambda _: [np.inf], lambda _: [1.0, 2.0], lambda _: 1 / 0, lambda _: "x"],
)
def test_an_own_function_that_fails_is_a_block_without_an_estimate(function, capsys):
    asked = request(BlockFunction("f", ["f"], function), coefficients=["f"])
    assert not asked.fits(rows_of(asked, table(800)), None).valid.any()
    assert capsys.readouterr() == ("", "")


def test_from_rows_to_an_answer(tmp_path):
    data = table(60_000)
    ledger = ledger_for(tmp_path / "budget.db", "d", epsilon=100)
    asked = request("logistic", epsilon=4, blocks=None, rows=60_000)
    released = nw.publish(asked, data, ledger=ledger).release
    assert released.model == Model("logistic")
    assert nw.SummaryRelease.from_text(released.to_text()) == released
    posterior = nw.fit(released)
    low, high = posterior.interval("x", 1 - 1e-6)
    assert low < 0.8 < high
    assert high - low < 0.4
    assert "logistic" in posterior.describe()
    table_ = posterior.verify(["x > 0", "0.5 < x < 1.1", "x < 0"])
    assert [row["verdict"] for row in table_.rows.values()] == ["holds", "holds", "fails"]


def test_a_category_of_two_levels_is_yes_or_no(tmp_path):
    data = table(8_000)
    data["sick"] = np.where(data["y"] > 0, "yes", "no")
    asked = request("logistic", target="sick", blocks=160)
    values = rows_of(asked, {**data, "sick": (data["y"] > 0).astype(np.int64)}).values
    columns = BlockGrid(asked.design).columns
    X, y = np.split(values * [c.step for c in columns] + [c.centre for c in columns], [-1], axis=1)
    found = models._fit_of(asked.model, asked.design, None)(X, y[:, 0])
    own = np.column_stack([np.ones(len(X)), data["x"], data["group"] == "b"])
    expected = models.penalised(own, data["y"], binary=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    ledger = ledger_for(tmp_path / "budget.db", "d", epsilon=100)
    released = nw.publish(asked, data, ledger=ledger).release
    assert nw.SummaryRelease.from_text(released.to_text()) == released
    posterior = nw.fit(released)
    assert "target sick" in posterior.describe()
    posterior.report(tmp_path / "report.html")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"model": "huber", "target": "sick"}, "take model logistic"),
        ({"model": "logistic", "target": "grade"}, "not a category with two levels"),
        ({"model": "probit"}, "unknown; there are least_squares"),
        ({"model": "quantile:2"}, "not between 0 and 1"),
        ({"model": "logistic:2"}, "unknown"),
        ({"model": "logistic", "target": "time"}, "needs bounds"),
        ({"model": "cox", "target": "time", "coefficients": ["intercept"]}, "not one of"),
        ({"model": "logistic", "mechanism": "stouffer", "coefficients": (),
          "questions": ["x < 0"]}, "estimates only"),
        ({"model": "poisson", "batch": "a", "series": "b"}, "series"),
        ({"model": "poisson", "rows": 150, "blocks": None}, "too few"),
    ],
)  # fmt: skip
def test_refusals(words, message):
    with pytest.raises(RequestError, match=message):
        request(**words)


def test_least_squares_keeps_its_key_and_models_have_their_own():
    words = {"target": "time", "features": ["x"], "coefficients": ["x"]}
    keys = {
        request(model, **words).key
        for model in ("least_squares", "huber", "quantile", "quantile:0.9")
    }
    assert len(keys) == 4
    assert "model" not in request("least_squares", **words).to_json()
