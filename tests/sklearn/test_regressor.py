"""The regressor in the manner of scikit-learn: its contract, and what makes it different."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn", minversion="1.6", reason="the extra sklearn is not installed")

from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import noisewise as nw
from noisewise.core.errors import BudgetError, RequestError, SchemaError
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.sklearn import PrivateBayesianRegressor

QUICK = {"chains": 2, "draws": 100, "random_state": 0}

# Checks that ask for what privacy forbids. All of them fit twice and want the same predictions.
NEEDS_EQUAL_FITS = {
    "check_fit_idempotent": "the privacy noise is fresh in every fit",
    "check_regressor_data_not_an_array": "compares two fits, of an array and of a list",
    "check_regressors_int": "compares two fits, of integers and of floats",
    "check_supervised_y_2d": "compares two fits, of y and of y as a column",
}
SKIPPED = {
    "check_pipeline_consistency": "skipped for estimators that say they are not deterministic",
    "check_array_api_input": "only where arrays of other libraries are switched on",
}


def people(n=4000, seed=1):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.uniform(18, 90, n), "bmi": rng.uniform(15, 50, n)})
    income = 20_000 + 500 * table["age"] + 300 * table["bmi"] + 5_000 * rng.standard_normal(n)
    return table, income


def model(**changes):
    words = {
        "epsilon": 5,
        "bounds": {"age": (18, 90), "bmi": (15, 50)},
        "y_bounds": (0, 100_000),
        **QUICK,
    }
    return PrivateBayesianRegressor(**{**words, **changes})


def test_the_estimator_checks_pass_without_noise(monkeypatch):
    """With the noise taken away, every check passes: what fails otherwise fails for the noise.

    They look at the estimator's manners, which no method of `fit` changes; naive is the quickest.
    """
    monkeypatch.setattr(LaplaceMechanism, "add_noise", lambda self, sums: tuple(sums))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = check_estimator(
            PrivateBayesianRegressor(
                epsilon=100,
                bounds=(-3, 3),
                y_bounds=(-3, 3),
                method="naive",
                draws=50,
                random_state=0,
            ),
            on_skip=None,
            on_fail="raise",
        )
    names = {outcome["check_name"] for outcome in outcomes}
    assert len(names) > 35
    assert set(NEEDS_EQUAL_FITS) <= names
    skipped = {o["check_name"] for o in outcomes if o["status"] == "skipped"}
    assert skipped <= set(SKIPPED)


def test_two_fits_differ_even_with_a_seed():
    """The reason for the list above, and the point of it: no seed reaches the noise."""
    X, y = people(500)
    first, second = model().fit(X, y), model().fit(X, y)
    assert first.release_.second_moments.values != second.release_.second_moments.values
    assert not np.allclose(first.coef_, second.coef_)


def test_it_learns_and_knows_its_error():
    X, y = people()
    fitted = model().fit(X, y)
    assert fitted.n_features_in_ == 2
    assert list(fitted.feature_names_in_) == ["age", "bmi"]
    assert np.all(np.abs(fitted.coef_ - [500, 300]) < 6 * fitted.coef_std_)
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, fitted.predict(X))
    assert fitted.score(X, y) > 0.5
    held = np.mean(np.abs(y - mean) < 1.96 * std)
    assert 0.9 < held < 0.99  # 95% up to the noise in coefficients, far above Monte Carlo error
    assert np.mean(np.abs(y - mean) < 1.96 * std / 3) < 0.9  # negative control


def test_predictions_are_those_of_the_posterior():
    X, y = people(500)
    fitted = model().fit(X, y)
    mean, std = fitted.predict(X[:20], return_std=True)
    expected = fitted.posterior_.predict(X[:20], seed=0)
    np.testing.assert_allclose(mean, expected.estimate, rtol=1e-9)
    np.testing.assert_allclose(std, expected.spread, rtol=1e-9)


def test_parameters_clone_and_pickle():
    first = model(prior=nw.CoefficientPrior({"age": (0, 1000)}))
    second = clone(first)
    assert second.get_params()["bounds"] == first.get_params()["bounds"]
    assert set(first.set_params(epsilon=2).get_params()) >= {"epsilon", "bounds", "y_bounds"}
    X, y = people(300)
    fitted = second.fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_privacy_arguments_are_keywords_only():
    with pytest.raises(TypeError, match="positional"):
        PrivateBayesianRegressor(1.0)


def test_pipelines_and_cross_validation():
    X, y = people(900)
    plain = make_pipeline(FunctionTransformer(np.asarray), model(bounds=[(18, 90), (15, 50)]))
    assert plain.fit(X, y).predict(X[:5]).shape == (5,)
    _, std = plain.predict(X[:5], return_std=True)
    assert (std > 0).all()
    assert len(cross_val_score(model(method="naive"), X, y, cv=3)) == 3


def test_categories_come_with_declared_levels():
    rng = np.random.default_rng(2)
    region = rng.choice(["north", "south"], 3000)
    X = pd.DataFrame({"age": rng.uniform(18, 90, 3000), "region": region})
    y = 10_000 + 400 * X["age"] + 20_000 * (region == "south")
    bounds = {"age": (18, 90), "region": nw.Category(("north", "south"), "north")}
    fitted = model(bounds=bounds).fit(X, y)
    assert fitted.coef_.shape == (2,)
    assert abs(fitted.coef_[1] - 20_000) < 6 * fitted.coef_std_[1]
    assert fitted.predict(X[:3]).shape == (3,)
    with pytest.raises(RequestError, match="data frame"):
        model(bounds=bounds).fit(X.to_numpy(), y)
    unknown = X[:3].assign(region="west")
    with pytest.raises(RequestError, match="its levels are north, south"):
        fitted.predict(unknown)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"bounds": None}, RequestError, "bounds: none given.*never taken from the data"),
        ({"y_bounds": None}, RequestError, "y_bounds: none given"),
        ({"bounds": {"age": (18, 90)}}, RequestError, "none for 'bmi'"),
        ({"bounds": {"age": (0, 1), "bmi": (0, 1), "x": (0, 1)}}, RequestError, "'x' is not a"),
        ({"bounds": [(0, 1)]}, RequestError, "1 given for 2 features"),
        ({"bounds": "wide"}, RequestError, "bounds: expected pairs.*'wide'"),
        ({"bounds": [(0, 1), 5]}, RequestError, "bounds of 'bmi': expected a pair.*got 5"),
        ({"y_bounds": (5, 1)}, SchemaError, "target"),
        ({"epsilon": None}, RequestError, "epsilon: not given"),
        ({"epsilon": -1}, RequestError, "epsilon = -1 .*give a positive"),
        ({"ledger": object()}, RequestError, "ledger: expected the path"),
    ],
)
def test_mistakes_are_named(changes, error, message):
    X, y = people(50)
    with pytest.raises(error, match=message):
        model(**changes).fit(X, y)


def test_rounds_find_narrow_data():
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"age": rng.normal(70, 1, 20_000), "bmi": rng.normal(30, 1, 20_000)})
    y = 20_000 + 500 * table["age"] + 300 * table["bmi"] + 1_000 * rng.standard_normal(20_000)
    words = {"epsilon": 1, "delta": "1e-6"}
    one, several = (model(**words, rounds=rounds).fit(table, y) for rounds in (1, None))
    assert one.release_.rounds is None
    assert several.release_.rounds is not None
    assert np.all(several.coef_std_ < 0.2 * one.coef_std_)
    assert np.all(np.abs(several.coef_ - [500, 300]) < 6 * several.coef_std_)


def test_feature_names_must_match():
    X, y = people(300)
    fitted = model().fit(X, y)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(X[["bmi", "age"]])
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict(X.assign(age=np.nan))


def test_a_ledger_keeps_count(tmp_path):
    X, y = people(300)
    path = tmp_path / "budget.db"
    with nw.Ledger(path) as ledger:
        ledger.set_cap("data", 5, 0)
    fitted = model(ledger=path).fit(X, y)
    with pytest.warns(UserWarning, match="were not read; give a new label"):
        again = model(ledger=path).fit(X + 1, y)
    assert again.release_.digest == fitted.release_.digest
    with pytest.raises(BudgetError, match="5"):
        model(ledger=path, label="new rows").fit(X, y)


def test_a_ledger_needs_a_cap_which_may_be_an_argument(tmp_path):
    X, y = people(300)
    path = tmp_path / "budget.db"
    with pytest.raises(BudgetError, match="There is no ledger"):
        model(ledger=path).fit(X, y)
    with pytest.raises(RequestError, match="cap"):
        model(cap=5).fit(X, y)
    for wrong in ("1e400", 0, (1, 2, 3), (5, 1), "much"):
        with pytest.raises(RequestError, match="cap"):
            model(ledger=path, cap=wrong).fit(X, y)
    assert not path.exists()
    model(ledger=path, cap="5").fit(X, y)
    with nw.Ledger(path) as ledger:
        (account,) = ledger.accounts()
    assert (account.cap_epsilon, account.cap_delta, account.spent_epsilon) == (5, 0, 5)
    for other in (6, (5, "1e-5")):
        with pytest.raises(BudgetError, match="another cap for data set 'data', epsilon=5"):
            model(ledger=path, cap=other, label="more").fit(X, y)
    with pytest.raises(BudgetError, match="remaining"):
        model(ledger=path, cap=5, label="more").fit(X, y)
    with pytest.raises(BudgetError, match="It holds 'data'"):
        model(ledger=path, dataset="dta").fit(X, y)
    with pytest.raises(BudgetError, match="easily taken for it"):
        model(ledger=path, dataset="dta", cap=5).fit(X, y)
    model(ledger=path, dataset="patients", delta=1e-6, cap=(6, 1e-5)).fit(X, y)


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "magic"},
        {"method": "gibbs_update", "rounds": "auto", "delta": "1e-6"},
        {"chains": 0},
        {"draws": 1.5},
        {"prior": "flat"},
    ],
)
def test_a_wrong_word_costs_nothing(wrong, tmp_path):
    X, y = people(300)
    path = tmp_path / "budget.db"
    with nw.Ledger(path) as ledger:
        ledger.set_cap("data", 5, 0)
    with pytest.raises(RequestError, match=next(iter(wrong))):
        model(ledger=path, **wrong).fit(X, y)
    with nw.Ledger(path) as ledger:
        assert ledger.accounts()[0].spent_epsilon == 0


def test_a_target_called_target():
    X, y = people(300)
    names = {"age": "target", "bmi": "target_"}
    bounds = {"target": (18, 90), "target_": (15, 50)}
    fitted = model(bounds=bounds).fit(X.rename(columns=names), y)
    assert fitted.release_.design.target == "target__"


# --- terms ----------------------------------------------------------------------------------------


def curved(n=4000, seed=3):
    """A curve in age, and another slope of it in the south; the formula's names are the truth's."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(18, 90, n),
            "region": rng.choice(["n", "s"], n),
            "unused": rng.uniform(0, 1, n),
        }
    )
    c, south = table["age"] - 54, table["region"] == "s"
    y = 30 + 0.2 * c - 0.02 * c**2 + 5 * south + 0.3 * c * south + rng.standard_normal(n)
    return table, y


def test_a_formula_names_terms_of_the_columns():
    X, y = curved()
    bounds = {"age": (18, 90), "region": nw.Category(("n", "s"), "n"), "unused": (0, 1)}
    words = {"bounds": bounds, "y_bounds": (-20, 80), "epsilon": 50}
    fitted = model(formula="I(age - 54)*region + I((age - 54)**2)", **words).fit(X, y)
    truth = {
        "I(age - 54)": 0.2,
        "region[s]": 5,
        "I((age - 54)**2)": -0.02,
        "I(age - 54):region[s]": 0.3,
    }
    names = fitted.posterior_.columns.names
    assert set(names[1:]) == set(truth)
    for name, found, std in zip(names[1:], fitted.coef_, fitted.coef_std_, strict=True):
        assert abs(found - truth[name]) < 6 * std, name
    # Predictions take the columns of X and compute the terms; a straight line misses the curve.
    new = X.iloc[:200]
    assert np.abs(fitted.predict(new) - y[:200]).mean() < 2
    straight = model(**words).fit(X, y)
    assert np.abs(straight.predict(new) - y[:200]).mean() > 4
    assert clone(fitted).formula == fitted.formula


def test_a_formula_of_an_array_has_numbered_names():
    X, y = curved()
    words = {"bounds": (18, 90), "y_bounds": (-20, 80), "epsilon": 50}
    fitted = model(formula="bs(x0, knots=(50,), degree=2)", **words)
    assert fitted.fit(X[["age"]].to_numpy(), y).coef_.shape == (3,)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ age", "right of '~'"),
        (7, "right of '~'"),
        ("scale(age)", "looks at the data"),
        ("nobody", "not declared"),
        ("age + target", "target"),
        ("age + bs(age, knots=(50,))", "cannot be told apart"),
    ],
)
def test_a_formula_that_makes_no_sense_costs_nothing(formula, words, tmp_path):
    X, y = people(200)
    with pytest.raises(RequestError, match=words):
        model(formula=formula, ledger=tmp_path / "budget.db", cap=10).fit(X, y)
    assert not (tmp_path / "budget.db").exists()
