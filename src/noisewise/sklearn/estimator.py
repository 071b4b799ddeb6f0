"""What all estimators have in common: they publish a Release in `fit` and learn from it alone."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from noisewise._arrays import FloatArray
from noisewise.core.errors import BudgetError, NoisewiseError, RequestError
from noisewise.core.privacy import as_delta, as_loss
from noisewise.core.schema import Category, Column, Neighbours, Number, level_text
from noisewise.core.temporary import private_folder
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.base import Publishable

TARGET = "target"

Result = TypeVar("Result")

# What scikit-learn says about shapes, names and kinds of values without quoting any.
_SAFE = re.compile(
    r"Found (array with|input variables with)|Input (X |y )?contains |X has \d|y should be a 1d|"
    r"y cannot be None|The feature names should match|Feature names |Sparse data was passed|"
    r"Unknown label type: \w+[.]|.* requires y to be passed"
)
# What quotes values, with other words for it.
_REWORDED = {
    "Expected 2D array": "X: expected a 2D array. Reshape your data either using "
    "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it "
    "contains a single sample.",
    "Complex data not supported": "Complex data not supported; give real numbers",
    "float() argument must be": "X, y: every cell as an argument must be a string that reads as "
    "a number, or a number",
}
_OTHERWISE = (
    "X, y: a value cannot be converted; give plain numbers, and levels as text, whole numbers or "
    "true/false values, with a Category in bounds for each feature that has levels (the value is "
    "not shown: a log file is a release too)"
)


@dataclass(kw_only=True, eq=False, repr=False)
class ReleaseEstimator(BaseEstimator):
    """An estimator whose every number comes from a differentially private Release.

    Fields are parameters: scikit-learn reads the constructor that `dataclass` makes of them.
    """

    epsilon: Any = None
    neighbours: Neighbours = "replace_one"
    max_rows_per_unit: int = 1
    ledger: str | os.PathLike[str] | None = None
    cap: Any = None
    dataset: str = "data"
    label: str = ""
    method: str = "auto"
    prior: Any = None
    chains: int = 4
    draws: int = 1000
    random_state: Any = None

    def _require_target(self, y: Any) -> None:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )

    def _inference(self) -> dict[str, Any]:
        """How to infer, as both the check before publishing and the fit after it take it."""
        return {"method": self.method, "chains": self.chains, "draws": self.draws}

    def _seed(self) -> int:
        """The sampler's seed; the privacy noise takes none."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _names(self, width: int) -> list[str]:
        """Names of the features that `fit` has seen, or x0, x1, ... if they had none."""
        given = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(width)] if given is None else [str(name) for name in given]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # the privacy noise is fresh in every fit
        return tags


class BoundedFeatures(ReleaseEstimator):
    """An estimator whose features are numbers between public bounds, or categories."""

    bounds: Any

    def _features(
        self, X: Any, y: Any = None, *, reset: bool, numeric: bool = True
    ) -> dict[str, Any]:
        """Columns of X by name, after scikit-learn's checks; `numeric` says what y is."""
        if self._has_categories():
            validate_data(self, X, skip_check_array=True, reset=reset)
            if getattr(self, "feature_names_in_", None) is None:
                raise RequestError("X: a category needs a data frame, whose columns have names")
            return {str(name): np.asarray(X[name]) for name in self.feature_names_in_}
        if reset:
            if hasattr(X, "columns"):  # what isn't declared is said before its values are read
                declared_columns(self.bounds, [str(name) for name in X.columns])
            X, _ = validate_data(
                self, X, y, dtype=np.float64, ensure_min_samples=2, y_numeric=numeric, reset=True
            )
        else:
            X = validate_data(self, X, dtype=np.float64, reset=False)
        return {name: X[:, i] for i, name in enumerate(self._names(X.shape[1]))}

    def _has_categories(self) -> bool:
        given = self.bounds
        values = given.values() if hasattr(given, "values") and callable(given.values) else given
        if values is None or isinstance(values, str | Number | Category | np.ndarray):
            return isinstance(values, Category)
        return any(isinstance(value, Category) for value in values)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = self._has_categories()
        return tags


class ReleaseClassifier(ClassifierMixin, ReleaseEstimator):
    """An estimator of public classes."""

    classes_: NDArray[Any]

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every class, shape (n_samples, n_classes)."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of every row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithm of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))


def without_cells(check: Callable[[], Result]) -> Result:
    """Call a check of scikit-learn's; its error, if it raises one, can't quote a value.

    The new error is of the same kind, and is raised after the handler has been left, so that the
    old one is not attached to it.
    """
    try:
        return check()
    except NoisewiseError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        words = str(error)
        kind = TypeError if isinstance(error, TypeError) else ValueError
    if not _SAFE.match(words):
        words = next((new for old, new in _REWORDED.items() if words.startswith(old)), _OTHERWISE)
    raise kind(words)


def target_name(features: Container[str]) -> str:
    """A name for the target that no feature has."""
    name = TARGET
    while name in features:
        name += "_"
    return name


def labels_of(X: Any, y: Any) -> NDArray[Any]:
    """The classes of the rows, after scikit-learn's checks."""
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    with warnings.catch_warnings():
        # How many different classes there are is private, so no warning may tell.
        warnings.simplefilter("ignore", UserWarning)
        check_classification_targets(labels)
    check_consistent_length(X, labels)
    return np.asarray(labels)


def texts_of(values: Any) -> list[str | None]:
    """Levels as texts; what can't be one is missing, which the holder's engine refuses."""
    known: dict[Any, str | None] = {}
    texts = []
    for value in np.asarray(values).tolist():
        key = (type(value), value)
        if key not in known:
            known[key] = level_text(value)
        texts.append(known[key])
    return texts


# --- from the bounds that the estimator is given to a public schema -------------------------------


def declared_columns(bounds: Any, names: Sequence[str]) -> dict[str, Column]:
    """What is public about every feature."""
    if bounds is None:
        raise RequestError(
            "bounds: none given; say what is publicly known, such as bounds={'age': (18, 90)} or "
            "[(18, 90), ...]. They are never taken from the data: a maximum is somebody's value"
        )
    listed = isinstance(bounds, Mapping | Sequence | np.ndarray) and not isinstance(bounds, str)
    if not listed:
        raise RequestError(f"bounds: expected pairs (lower, upper) or a mapping, got {bounds!r}")
    return by_feature("bounds", bounds, names, _is_pair(bounds), column_of)


def by_feature(
    argument: str,
    given: Any,
    names: Sequence[str],
    for_all: bool,
    declare: Callable[[Any, str], Result],
) -> dict[str, Result]:
    """A declaration of every feature, from one for all, one for each in order, or a mapping."""
    if for_all:
        return dict.fromkeys(names, declare(given, argument))
    if not isinstance(given, Mapping):
        if len(given) != len(names):
            raise RequestError(
                f"{argument}: {len(given)} given for {len(names)} features; give one for all, or "
                "one for each"
            )
        given = dict(zip(names, given, strict=True))
    missing = [name for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    if missing or unknown:
        what = f"none for {missing[0]!r}" if missing else f"{unknown[0]!r} is not a feature"
        raise RequestError(f"{argument}: {what}; the features are {', '.join(names[:20])}")
    return {name: declare(given[name], f"{argument} of {name!r}") for name in names}


def column_of(given: Any, where: str) -> Column:
    """One column's declaration, from a pair or as it is."""
    if isinstance(given, Number | Category):
        return given
    if not _is_pair(given):
        raise RequestError(f"{where}: expected a pair (lower, upper), got {given!r}")
    return Number(float(given[0]), float(given[1]))


def _is_pair(given: Any) -> bool:
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence | np.ndarray):
        return False
    numbers = (int, float, np.integer, np.floating)
    return len(given) == 2 and all(
        isinstance(end, numbers) and not isinstance(end, bool) for end in given
    )


# --- how an estimator publishes its rows: into the holder's ledger, or one of its own -------------


def released(
    request: Publishable[Any],
    table: dict[str, Any],
    ledger: str | os.PathLike[str] | None,
    cap: Any = None,
) -> Any:
    """The Release of these rows.

    Without a ledger the request is paid from a budget of its own, which ends with it. `cap` is
    epsilon, or epsilon and delta: the cap in the ledger, set if there is none.
    """
    price = request.charge()
    if ledger is None:
        if cap is not None:
            raise RequestError("cap: belongs to a ledger, and none is given; give ledger= as well")
        with private_folder() as folder, Ledger(folder / "budget.db") as own:
            own.set_cap(price.dataset, price.epsilon, price.delta)
            return publish(request, table, ledger=own).release
    if not isinstance(ledger, str | os.PathLike):
        raise RequestError(
            f"ledger: expected the path of the budget file, got a {type(ledger).__name__}; clones "
            "of an estimator cannot share an open one"
        )
    with Ledger(ledger) as budget:
        if cap is not None:
            _agree(budget, price.dataset, cap)
        published = publish(request, table, ledger=budget)
    if published.repeated:
        warnings.warn(
            "an equal request had been published before: its stored Release is used at no cost, "
            "and these rows were not read; give a new label if they are new",
            UserWarning,
            stacklevel=3,
        )
    return published.release


def _agree(ledger: Ledger, dataset: str, cap: Any) -> None:
    """Set the cap of a data set that has none; refuse to change one."""
    given = cap if isinstance(cap, tuple | list) else (cap, 0)
    if len(given) != 2:
        raise RequestError("cap: expected epsilon, or a pair of epsilon and delta")
    epsilon, delta = as_loss(given[0], "cap"), as_delta(given[1], "delta of the cap")
    for account in ledger.accounts():
        if account.dataset == dataset and account.cap_epsilon is not None:
            if (account.cap_epsilon, account.cap_delta) != (epsilon, delta):
                raise BudgetError(
                    f"cap: the ledger holds another cap for data set {dataset!r}, epsilon="
                    f"{float(min(account.cap_epsilon, Fraction(10**6))):g} and delta="
                    f"{float(account.cap_delta or 0):g}; leave cap out to keep it, or change it by "
                    "Ledger.set_cap"
                )
            return
    ledger.set_cap(dataset, epsilon, delta)
