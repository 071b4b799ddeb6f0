"""A logistic regression whose every number comes from a differentially private Release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import chains_and_draws
from noisewise.analyst.glm.fit import MAX_DRAWS, METHOD, fit_glm
from noisewise.analyst.posterior.numbers import median_and_spread
from noisewise.analyst.posterior.regression import Prediction
from noisewise.analyst.regression.original_units import CoefficientPrior
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Schema, level_text
from noisewise.holder.requests.glm import make_glm_request
from noisewise.sklearn.estimator import (
    BoundedFeatures,
    ReleaseClassifier,
    declared_columns,
    labels_of,
    released,
    target_name,
    texts_of,
    without_cells,
)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateBayesianClassifier(ReleaseClassifier, BoundedFeatures):
    """Bayesian logistic regression under differential privacy, noise included in the uncertainty.

    `fit` publishes a Release of scores and information in rounds and learns from it alone, so the
    fitted estimator and its predictions may be published like the Release itself.

    Parameters
    ----------
    epsilon, delta, rho : number or exact text
        The privacy guarantee of one `fit`: epsilon and delta (1e-6 by default), or rho (zCDP).
    bounds : pair, sequence of pairs, or mapping of name to pair, Number or Category
        Public bounds of the features; one pair holds for all. Never inferred. A `Category` needs
        a data frame.
    classes : pair
        The two public classes; the second is the event.
    neighbours, max_rows_per_unit
        Who is protected; see `Schema`.
    ledger, cap, dataset, label
        As of `PrivateBayesianRegressor`.
    method, prior, chains, draws
        See `noisewise.analyst.glm.fit.fit_glm`.
    random_state : int, RandomState or None
        Of the sampler on the analyst's side. The privacy noise takes no seed, so two fits differ.

    Attributes
    ----------
    release_ : GlmRelease
        All that is left of the rows.
    posterior_ : GlmPosterior
        Draws, intervals, odds ratios.
    classes_ : array, shape (2,)
    coef_ : array, shape (1, n_coefficients)
        Posterior medians of the log odds; one for a number, one for each level but the reference.
    intercept_ : array, shape (1,)
    coef_std_ : array, shape (1, n_coefficients)
    n_features_in_ : int
    feature_names_in_ : array, shape (n_features_in_,)
        If the features have names.

    Notes
    -----
    Only this estimator is private, and takes no weights; see `PrivateBayesianRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from noisewise.sklearn import PrivateBayesianClassifier
    >>> rng = np.random.default_rng(1)
    >>> age = rng.uniform(18, 90, (5000, 1))
    >>> ill = rng.random(5000) < 1 / (1 + np.exp(4 - 0.07 * age[:, 0]))
    >>> model = PrivateBayesianClassifier(epsilon=1, bounds=[(18, 90)], classes=[False, True])
    >>> model.fit(age, ill).predict([[20.0], [85.0]])
    array([False,  True])
    """

    bounds: Any = None
    classes: Any = None
    delta: Any = None
    rho: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Publish a Release of the rows, and learn from it.

        Parameters
        ----------
        X : array or data frame, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        """
        self._require_target(y)
        labels = without_cells(lambda: labels_of(X, y))
        table = without_cells(lambda: self._features(X, labels, reset=True, numeric=False))
        self.classes_, declared = self._public_classes()
        target = target_name(table)
        columns = {**declared_columns(self.bounds, list(table)), target: declared}
        schema = Schema(self.dataset, columns, self.neighbours, self.max_rows_per_unit)
        request = make_glm_request(
            schema,
            family="logistic",
            target=target,
            features=list(table),
            epsilon=self.epsilon,
            delta=self.delta,
            rho=self.rho,
            label=self.label,
        )
        seed = self._seed()
        # All words are checked before anything is published: afterwards the budget is spent.
        self._check_inference()
        rows = without_cells(lambda: {**table, target: texts_of(labels)})
        self.release_ = released(request, rows, self.ledger, self.cap)
        self.posterior_ = fit_glm(self.release_, prior=self.prior, seed=seed, **self._inference())
        draws = self.posterior_.theta.reshape(-1, self.posterior_.theta.shape[-1])
        middle, spread = zip(*(median_and_spread(column) for column in draws.T), strict=True)
        self.intercept_ = np.array(middle[:1])
        self.coef_ = np.array([middle[1:]])
        self.coef_std_ = np.array([spread[1:]])
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of both classes, shape (n_samples, 2): medians over the posterior."""
        event = self.predict_uncertain(X).estimate
        return np.column_stack([1 - event, event])

    def decision_function(self, X: Any) -> FloatArray:
        """Log odds of the second class."""
        event = self.predict_proba(X)[:, 1]
        return np.asarray(np.log(event) - np.log1p(-event))

    def predict_uncertain(self, X: Any, level: float = 0.95) -> Prediction:
        """The event's probability for each row, with intervals of this level.

        Parameters
        ----------
        X : array or data frame, shape (n_samples, n_features)
        level : float
        """
        check_is_fitted(self)
        table = without_cells(lambda: self._features(X, reset=False))
        return self.posterior_.predict(table, level)

    def _public_classes(self) -> tuple[NDArray[Any], Category]:
        given = self.classes
        listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        if not listed or len(given) != 2:
            raise RequestError(
                "classes: expected the two classes that are publicly known to be possible, the "
                "event last, such as classes=['well', 'ill']. They are never taken from the data"
            )
        found = np.asarray(given)
        texts = [level_text(value) for value in found.tolist()]
        if None in texts or texts[0] == texts[1]:
            raise RequestError("classes: expected two different texts, numbers or truth values")
        return found, Category((str(texts[0]), str(texts[1])), str(texts[0]))

    def _check_inference(self) -> None:
        chains_and_draws(self.chains, self.draws, MAX_DRAWS)
        if self.method not in ("auto", METHOD):
            raise RequestError(f"method: {self.method!r} is unknown; use auto")
        if self.prior is not None and not isinstance(self.prior, CoefficientPrior):
            raise RequestError(
                f"prior: expected a CoefficientPrior, got {type(self.prior).__name__}"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
