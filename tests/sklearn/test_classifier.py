"""The logistic regression in the manner of scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn", minversion="1.6", reason="the extra sklearn is not installed")

from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

import noisewise as nw
from noisewise.core.errors import BudgetError, DataError, RequestError
from noisewise.sklearn import PrivateBayesianClassifier

QUICK = {"chains": 2, "draws": 100, "random_state": 0}


def people(n=8000, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal([45, 25], [12, 4], (n, 2))
    eta = -1 + 0.06 * (X[:, 0] - 45) - 0.1 * (X[:, 1] - 25)
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), "ill", "well")


def model(**changes):
    words = {"epsilon": 4, "bounds": [(0, 110), (10, 60)], "classes": ["well", "ill"], **QUICK}
    return PrivateBayesianClassifier(**{**words, **changes})


def test_it_agrees_with_the_estimate_without_privacy():
    X, y = people()
    fitted = model().fit(X, y)
    plain = LogisticRegression(C=1e6, max_iter=1000).fit(X, y == "ill")
    assert fitted.coef_.shape == plain.coef_.shape == (1, 2)
    assert fitted.coef_ == pytest.approx(plain.coef_, abs=5 * fitted.coef_std_.max())
    assert fitted.score(X, y) > plain.score(X, y == "ill") - 0.03
    assert list(fitted.classes_) == ["well", "ill"]


def test_probabilities_and_their_intervals():
    X, y = people()
    fitted = model().fit(X, y)
    proba = fitted.predict_proba(X[:5])
    assert proba.sum(axis=1) == pytest.approx(np.ones(5))
    found = fitted.predict_uncertain(X[:5])
    assert np.all((found.lower < proba[:, 1]) & (proba[:, 1] < found.upper))
    assert np.sign(fitted.decision_function(X[:5])) == pytest.approx(np.sign(proba[:, 1] - 0.5))
    assert np.exp(fitted.predict_log_proba(X[:5])) == pytest.approx(proba)


def test_categories_and_names_of_a_data_frame():
    X, y = people()
    frame = pd.DataFrame(X, columns=["age", "bmi"])
    frame["region"] = np.where(np.arange(len(X)) % 2, "north", "south")
    bounds = {
        "age": (0, 110),
        "bmi": (10, 60),
        "region": nw.Category(("north", "south"), "north"),
    }
    fitted = model(bounds=bounds).fit(frame, y)
    assert fitted.posterior_.names == ("intercept", "age", "bmi", "region[south]")
    assert fitted.predict(frame[:3]).shape == (3,)


def test_scikit_learn_can_clone_and_cross_validate():
    X, y = people(2000)
    again = clone(model(epsilon=3))
    assert again.get_params()["epsilon"] == 3
    assert cross_val_score(model(epsilon=20), X, y, cv=2).mean() > 0.6


def test_a_ledger_counts_every_fit(tmp_path):
    X, y = people(2000)
    words = {"ledger": tmp_path / "budget.db", "cap": (5, "1e-5")}
    model(**words).fit(X, y)
    with pytest.raises(BudgetError):
        model(**words, label="again").fit(X, y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": None}, "classes"),
        ({"classes": ["a"]}, "classes"),
        ({"classes": ["a", "a"]}, "classes"),
        ({"bounds": None}, "bounds"),
        ({"method": "exact"}, "method"),
        ({"prior": 3}, "prior"),
        ({"epsilon": None}, "epsilon"),
    ],
)
def test_wrong_words_cost_nothing(changes, message, tmp_path):
    X, y = people(500)
    with nw.Ledger(tmp_path / "budget.db") as ledger:
        ledger.set_cap("data", 10, "1e-5")
    with pytest.raises(RequestError, match=message):
        model(**changes, ledger=tmp_path / "budget.db").fit(X, y)
    with nw.Ledger(tmp_path / "budget.db") as ledger:
        assert all(account.spent_epsilon == 0 for account in ledger.accounts())


def test_a_class_that_was_not_declared():
    X, y = people(500)
    with pytest.raises(DataError):
        model().fit(X, np.where(np.arange(500) == 3, "dead", y))
