"""A naive Bayes classifier whose every number comes from a differentially private Release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from noisewise._arrays import FloatArray
from noisewise.analyst.network.fit import check_fit, fit_network
from noisewise.analyst.network.queries import Classification
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Schema, level_text
from noisewise.holder.requests.network import make_network_request
from noisewise.sklearn.estimator import (
    TARGET,
    ReleaseClassifier,
    by_feature,
    labels_of,
    released,
    target_name,
    texts_of,
    without_cells,
)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateNaiveBayes(ReleaseClassifier):
    """Naive Bayes on categories under differential privacy, noise included in the uncertainty.

    `fit` publishes a Release of the counts of every feature by class and learns from that Release
    alone, so the fitted estimator and its predictions may be published like the Release itself.

    Parameters
    ----------
    epsilon : number or exact text
        The privacy guarantee of one `fit`.
    levels : sequence of levels, sequence of sequences, or mapping of name to sequence
        Public levels of the features; one flat sequence holds for all. Never inferred: which
        values occur is private.
    classes : sequence
        Public classes, in the order of `predict_proba`.
    mechanism : {"laplace", "fourier", "posterior_sample", "map"}
        See `make_network_request`.
    method : {"auto", "joint", "per_table", "plugin"}
        See `fit_network`; ``plugin`` ignores the noise.
    prior : float or mapping
        Dirichlet concentrations. The mapping's names are those of features, or ``"target"``.
    neighbours, max_rows_per_unit
        Who is protected; see `Schema`.
    ledger, cap, dataset, label
        As of `PrivateBayesianRegressor`.
    chains, draws : int
    random_state : int, RandomState or None
        Of the sampler on the analyst's side. The privacy noise takes no seed, so two fits differ.

    Attributes
    ----------
    release_ : NetworkRelease
        All that is left of the rows.
    posterior_ : NetworkPosterior
        Tables with intervals, queries, synthetic rows.
    classes_ : array, shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : array, shape (n_features_in_,)
        If the features have names.

    Notes
    -----
    Only this estimator is private, and takes no weights; see `PrivateBayesianRegressor`. A step
    before it that learns from the rows is not, such as `KBinsDiscretizer`, or `OrdinalEncoder`
    without declared categories.

    Examples
    --------
    >>> import numpy as np
    >>> from noisewise.sklearn import PrivateNaiveBayes
    >>> rng = np.random.default_rng(1)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = (rng.random((2000, 3)) < np.where(y[:, None] == 1, 0.8, 0.3)).astype(int)
    >>> model = PrivateNaiveBayes(epsilon=1, levels=[0, 1], classes=[0, 1], random_state=1)
    >>> bool(model.fit(X, y).score(X, y) > 0.7)
    True
    """

    levels: Any = None
    classes: Any = None
    mechanism: str = "laplace"
    draws: int = 500

    def fit(self, X: Any, y: Any) -> Self:
        """Publish a Release of the rows, and learn from it.

        Parameters
        ----------
        X : array or data frame, shape (n_samples, n_features)
            Levels: text, whole numbers or truth values.
        y : array, shape (n_samples,)
        """
        self._require_target(y)
        table = without_cells(lambda: self._features(X, reset=True))
        labels = without_cells(lambda: labels_of(X, y))
        target = target_name(table)
        declared = _declared(self.levels, list(table))
        self.classes_ = self._public_classes()
        # The target comes first: it is the parent, and parents are declared before children.
        columns = {target: _category(self.classes_, "classes"), **declared}
        schema = Schema(self.dataset, columns, self.neighbours, self.max_rows_per_unit)
        request = make_network_request(
            schema,
            network=Network.naive_bayes(schema, target, list(table)),
            epsilon=self.epsilon,
            mechanism=self.mechanism,
            label=self.label,
        )
        prior = self.prior
        if isinstance(prior, Mapping) and target != TARGET and TARGET not in table:
            prior = {target if name == TARGET else name: value for name, value in prior.items()}
        # All words are checked before anything is published: afterwards the budget is spent.
        check_fit(
            request.network,
            request.mechanism,
            has_counts=request.mechanism != "posterior_sample",
            prior=prior,
            **self._inference(),
        )
        seed = self._seed()
        rows = without_cells(lambda: _rows({**table, target: labels}))
        self.release_ = released(request, rows, self.ledger, self.cap)
        self.target_ = target
        self.posterior_ = fit_network(self.release_, prior=prior, seed=seed, **self._inference())
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Posterior predictive probability of every class, shape (n_samples, n_classes)."""
        return self.predict_uncertain(X).probability

    def predict_uncertain(self, X: Any, level: float = 0.9) -> Classification:
        """Probabilities with their standard deviations and intervals over the posterior.

        A wide interval says that the Release doesn't determine the probability: more rows or more
        epsilon would.

        Parameters
        ----------
        X : array or data frame, shape (n_samples, n_features)
        level : float
        """
        check_is_fitted(self)
        rows = without_cells(lambda: _rows(self._features(X, reset=False)))
        return self.posterior_.predict(rows, level, target=self.target_)

    def _public_classes(self) -> NDArray[Any]:
        given = self.classes
        if given is None or isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
            raise RequestError(
                "classes: none given; list the classes that are publicly known to be possible, "
                "such as classes=['ill', 'well']. They are never taken from the data"
            )
        return np.asarray(given)

    def _features(self, X: Any, *, reset: bool) -> dict[str, NDArray[Any]]:
        """Columns of X by name, after scikit-learn's checks."""
        if hasattr(X, "columns"):
            validate_data(self, X, skip_check_array=True, reset=reset)
        else:
            X = validate_data(self, X, dtype=None, reset=reset)
        if hasattr(X, "columns"):
            names = getattr(self, "feature_names_in_", X.columns)
            return {str(name): np.asarray(X[name]) for name in names}
        return {name: X[:, i] for i, name in enumerate(self._names(X.shape[1]))}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.allow_nan = False
        return tags


def _declared(levels: Any, names: list[str]) -> dict[str, Category]:
    """Categories of the features."""
    if levels is None or isinstance(levels, str):
        raise RequestError(
            "levels: none given; list the values that every feature is publicly known to have, "
            "such as levels=[0, 1] for all, or levels={'smoker': ['no', 'yes'], ...}. They are "
            "never taken from the data"
        )
    flat = not isinstance(levels, Mapping) and not any(
        isinstance(item, Sequence | np.ndarray) and not isinstance(item, str) for item in levels
    )
    return by_feature("levels", levels, names, flat, _category)


def _category(given: Any, where: str) -> Category:
    texts = [level_text(value) for value in np.atleast_1d(np.array(given, dtype=object)).tolist()]
    if len(texts) < 2 or None in texts:
        raise RequestError(
            f"{where}: expected at least two values (text, numbers or true/false), got "
            f"{str(given)[:60]}"
        )
    return Category(tuple(str(text) for text in texts), str(texts[0]))


def _rows(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: texts_of(values) for name, values in table.items()}
