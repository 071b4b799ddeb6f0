"""The naive Bayes classifier in the manner of scikit-learn."""

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
from noisewise.core.errors import BudgetError, DataError, RequestError
from noisewise.sklearn import PrivateNaiveBayes

QUICK = {"chains": 2, "draws": 50, "random_state": 0}

# Checks that ask for what privacy or categories forbid, with the reasons.
NOT_MEANT = {
    "check_fit_idempotent": "the privacy noise is fresh in every fit",
    "check_classifier_data_not_an_array": "compares two fits",
    "check_supervised_y_2d": "compares two fits",
    "check_classifiers_train": "wants continuous data told apart that a cut at zero cannot",
    "check_classifiers_one_label": "a class is one of at least two that are declared",
    "check_classifiers_one_label_sample_weights": "weights of samples are refused",
}


class Coarse(PrivateNaiveBayes):
    """For the checks only: cuts any numbers at zero, and takes the classes from the labels."""

    def fit(self, X, y):
        self._seen = None if y is None else np.unique(np.asarray(y))
        return super().fit(X, y)

    def _public_classes(self):
        seen = self._seen.tolist()
        return np.asarray(seen if len(seen) > 1 else [*seen, "another"])

    def _features(self, X, *, reset):
        table = super()._features(X, reset=reset)
        return {name: (np.asarray(v, dtype=float) > 0).astype(int) for name, v in table.items()}


def people(n=3000, seed=1):
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.4
    table = pd.DataFrame(
        {
            "smoker": np.where(rng.random(n) < np.where(ill, 0.7, 0.2), "yes", "no"),
            "age": np.where(ill, rng.choice([0, 1, 2], n), rng.choice([0, 0, 1], n)),
        }
    )
    return table, np.where(ill, "ill", "well")


def model(**changes):
    words = {
        "epsilon": 5,
        "levels": {"smoker": ["no", "yes"], "age": [0, 1, 2]},
        "classes": ["ill", "well"],
        **QUICK,
    }
    return PrivateNaiveBayes(**{**words, **changes})


def test_the_estimator_checks_that_make_sense_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = check_estimator(
            Coarse(epsilon=100, levels=[0, 1], classes=[0, 1], method="plugin", random_state=0),
            on_skip=None,
            on_fail=None,
        )
    failed = {o["check_name"] for o in outcomes if o["status"] == "failed"}
    assert failed <= set(NOT_MEANT), failed - set(NOT_MEANT)
    assert sum(o["status"] == "passed" for o in outcomes) > 35


def test_it_learns_and_knows_its_uncertainty():
    X, y = people()
    fitted = model().fit(X, y)
    assert fitted.score(X, y) > 0.65
    assert list(fitted.classes_) == ["ill", "well"]
    found = fitted.predict_uncertain(X[:50], level=0.9)
    np.testing.assert_allclose(found.probability.sum(axis=1), 1)
    assert (found.lower <= found.upper).all()
    assert ((found.lower <= found.probability) & (found.probability <= found.upper)).mean() > 0.95
    noisy = model(epsilon=0.05).fit(X, y).predict_uncertain(X[:50])
    assert noisy.sd.mean() > 3 * found.sd.mean()  # less budget, less certainty


def test_two_fits_differ_even_with_a_seed():
    X, y = people(300)
    first, second = model(method="plugin").fit(X, y), model(method="plugin").fit(X, y)
    assert first.release_.content.values != second.release_.content.values


def test_parameters_clone_pickle_and_pipelines():
    X, y = people(400)
    fitted = clone(model(method="plugin")).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    pipe = make_pipeline(FunctionTransformer(), model(method="plugin"))
    assert pipe.fit(X, y).predict_proba(X[:5]).shape == (5, 2)
    assert len(cross_val_score(model(method="plugin"), X, y, cv=3)) == 3
    with pytest.raises(TypeError, match="positional"):
        PrivateNaiveBayes(1.0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"levels": None}, RequestError, "levels: none given.*never taken from the data"),
        ({"classes": None}, RequestError, "classes: none given"),
        ({"levels": {"age": [0, 1]}}, RequestError, "none for 'smoker'"),
        ({"levels": {"smoker": [0, 1], "age": [0, 1], "z": [0, 1]}}, RequestError, "'z' is not"),
        ({"levels": [[0, 1]]}, RequestError, "1 given for 2 features"),
        ({"classes": ["ill"]}, RequestError, "classes: expected at least two"),
        ({"epsilon": None}, RequestError, "epsilon"),
        ({"ledger": object()}, RequestError, "ledger: expected the path"),
        ({"classes": ["ill", "dead"]}, DataError, "not among its declared levels"),
    ],
)
def test_mistakes_are_named(changes, error, message):
    X, y = people(50)
    with pytest.raises(error, match=message):
        model(**changes).fit(X, y)


def test_a_ledger_keeps_count(tmp_path):
    X, y = people(300)
    path = tmp_path / "budget.db"
    with nw.Ledger(path) as ledger:
        ledger.set_cap("data", 5, 0)
    fitted = model(ledger=path, method="plugin").fit(X, y)
    with pytest.warns(UserWarning, match="were not read; give a new label"):
        again = model(ledger=path, method="plugin").fit(X, y)
    assert again.release_.digest == fitted.release_.digest
    with pytest.raises(BudgetError, match="5"):
        model(ledger=path, label="new rows").fit(X, y)


def test_a_cap_is_an_argument(tmp_path):
    X, y = people(300)
    path = tmp_path / "budget.db"
    model(ledger=path, cap=5, method="plugin").fit(X, y)
    with pytest.raises(BudgetError, match="another cap"):
        model(ledger=path, cap=6, label="more").fit(X, y)


def test_a_feature_called_target():
    X, y = people(300)
    levels = {"target": ["no", "yes"], "age": [0, 1, 2]}
    fitted = model(levels=levels, method="plugin").fit(X.rename(columns={"smoker": "target"}), y)
    assert fitted.target_ == "target_"


@pytest.mark.parametrize(
    "words",
    [
        {"method": "magic"},
        {"draws": 1},
        {"chains": 0},
        {"prior": -1},
        {"prior": {"stranger": 1}},
        {"random_state": "today"},
        {"mechanism": "fourier", "method": "exact"},
        {"mechanism": "posterior_sample", "method": "joint"},
    ],
    ids=str,
)
def test_wrong_words_cost_nothing(tmp_path, words):
    ledger = tmp_path / "budget.db"
    given = {"epsilon": 1, "levels": [0, 1], "classes": [0, 1], "ledger": ledger, **QUICK}
    with pytest.raises((RequestError, ValueError)):
        PrivateNaiveBayes(**{**given, **words}).fit([[0], [1]], [0, 1])
    assert not ledger.exists()


def test_no_warning_tells_how_many_classes_there_are():
    model = PrivateNaiveBayes(epsilon=1, levels=[0, 1], classes=list(range(30)), **QUICK)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(np.arange(25)[:, None] % 2, np.arange(25))
    assert not [warning for warning in caught if "unique classes" in str(warning.message)]
