"""Features between public bounds: what the regressor and the classifier take alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Column, Number
from noisewise.sklearn.estimator import ReleaseEstimator


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


# --- from the bounds that the estimator is given to a public schema -------------------------------


def declared_columns(bounds: Any, names: Sequence[str]) -> dict[str, Column]:
    """What is public about every feature.

    Parameters
    ----------
    bounds : pair, sequence of pairs, or mapping of name to pair, Number or Category
        One pair (lower, upper) holds for all features.
    names : sequence of str
        Names of the features, in order.
    """
    if bounds is None:
        raise RequestError(
            "bounds: none given; say what is publicly known, such as bounds={'age': (18, 90)} or "
            "[(18, 90), ...]. They are never taken from the data: a maximum is somebody's value"
        )
    if isinstance(bounds, Mapping):
        missing = [name for name in names if name not in bounds]
        if missing:
            raise RequestError(
                f"bounds: there are none for {missing[0]!r}; the features are {', '.join(names)}"
            )
        unknown = [name for name in bounds if name not in names]
        if unknown:
            raise RequestError(
                f"bounds: {unknown[0]!r} is not a feature; the features are {', '.join(names)}"
            )
        return {name: column_of(bounds[name], f"bounds of {name!r}") for name in names}
    if _is_pair(bounds):
        return dict.fromkeys(names, column_of(bounds, "bounds"))
    if isinstance(bounds, str) or not isinstance(bounds, Sequence | np.ndarray):
        raise RequestError(f"bounds: expected pairs (lower, upper) or a mapping, got {bounds!r}")
    if len(bounds) != len(names):
        raise RequestError(
            f"bounds: {len(bounds)} given for {len(names)} features; give a pair for each"
        )
    return {
        name: column_of(given, f"bounds of {name!r}")
        for name, given in zip(names, bounds, strict=True)
    }


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
