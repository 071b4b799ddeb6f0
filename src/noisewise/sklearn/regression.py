"""Linear and logistic regression; every number comes from a differentially private Release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import chains_and_draws
from noisewise.analyst.fit import fit as fit_releases
from noisewise.analyst.glm.fit import MAX_DRAWS, METHOD, fit_glm
from noisewise.analyst.posterior.numbers import median_and_spread
from noisewise.analyst.posterior.regression import Prediction
from noisewise.analyst.regression.fit import check_fit
from noisewise.analyst.regression.original_units import CoefficientPrior
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Column, Number, Schema, level_text
from noisewise.holder.requests.glm import make_glm_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.sklearn.estimator import (
    BoundedFeatures,
    ReleaseClassifier,
    column_of,
    declared_columns,
    labels_of,
    released,
    target_name,
    texts_of,
    without_cells,
)

UNITS = "person id"  # what a Release calls the column of ids


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateBayesianRegressor(RegressorMixin, BoundedFeatures):
    """Bayesian linear regression under differential privacy, noise included in the uncertainty.

    `fit` publishes a Release of the rows (clipped to public bounds, summed exactly, noise added)
    and learns from that Release alone, so the fitted estimator, its coefficients and its
    predictions may be published like the Release itself.

    Parameters
    ----------
    epsilon, delta, rho : number or exact text
        The privacy guarantee of one `fit`: epsilon (pure), epsilon and delta, or rho (zCDP).
    bounds : pair, sequence of pairs, or mapping of name to pair, Number or Category
        Public bounds of the features; one pair holds for all. Never inferred. A `Category` needs
        a data frame.
    y_bounds : pair
        Public bounds of the target.
    formula : str, optional
        The features, as they stand to the right of ``~``: ``"age*region + log1p(income)"``, of the
        columns of X (x0, x1, ... of an array). By default all columns as they are. Columns that the
        formula leaves out are not read, but need bounds as all others do.
    mechanism, radius, rounds
        See `make_request`. With delta or rho, rounds find the data's own scale.
    neighbours, max_rows_per_unit
        Who is protected; see `Schema`.
    ledger : path, optional
        Where the budget is kept, under the name `dataset`. Without one, nothing keeps count: every
        `fit` costs its epsilon again, and so does every fold of a cross-validation.
    cap : number, exact text, or pair of them, optional
        The most that all fits under `ledger` may ever cost together: epsilon, or (epsilon, delta).
        Sets the cap of `dataset` if it has none, and must agree with it otherwise. Without it, the
        cap must have been set (`Ledger.set_cap`).
    dataset, label : str
        With a ledger, an equal request returns the stored Release and does not read the rows
        again; a new `label` says that they are new.
    method, prior, chains, draws
        See `noisewise.fit`.
    random_state : int, RandomState or None
        Of the sampler on the analyst's side. The privacy noise takes no seed, so two fits differ.

    Attributes
    ----------
    release_ : Release
        All that is left of the rows.
    posterior_ : Posterior
        Draws, intervals, the share of uncertainty due to privacy, the naive posterior.
    coef_ : array, shape (n_coefficients,)
        Posterior means; one for a number, one for each level but the reference for a category.
        `posterior_.columns.names` has their names, the intercept first.
    intercept_ : float
    coef_std_ : array, shape (n_coefficients,)
        Posterior standard deviations.
    sigma_ : float
        Posterior mean of the error's standard deviation.
    n_features_in_ : int
    feature_names_in_ : array, shape (n_features_in_,)
        If the features have names.

    Notes
    -----
    Only this estimator is private. A step before it that learns from the rows, such as
    `StandardScaler`, is not, and what it has learnt reaches the result; use steps that learn
    nothing (`FunctionTransformer`, encoders with declared categories).

    Weights of samples are refused: a weight would multiply a person's influence, and with it the
    sensitivity.

    Examples
    --------
    >>> import numpy as np
    >>> from noisewise.sklearn import PrivateBayesianRegressor
    >>> rng = np.random.default_rng(1)
    >>> age = rng.uniform(18, 90, (5000, 1))
    >>> income = 20_000 + 500 * age[:, 0] + 5_000 * rng.standard_normal(5000)
    >>> model = PrivateBayesianRegressor(epsilon=1, bounds=[(18, 90)], y_bounds=(0, 100_000))
    >>> mean, std = model.fit(age, income).predict([[40.0]], return_std=True)
    >>> bool(abs(mean[0] - 40_000) < 5 * std[0])
    True
    """

    bounds: Any = None
    y_bounds: Any = None
    formula: str | None = None
    mechanism: str | None = None
    radius: float | None = None
    rounds: int | str | None = None
    delta: Any = None
    rho: Any = None

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:
        """Publish a Release of the rows, and learn from it.

        Parameters
        ----------
        X : array or data frame, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        units : array, shape (n_samples,), optional
            Whose row each is, as whole numbers or text. The rows of one person are then averaged
            (`Schema.unit_column`); ids are never published.
        """
        self._require_target(y)
        table, columns = without_cells(lambda: self._table(X, y))
        ids = None if units is None else UNITS
        table |= {} if ids is None else {ids: units}
        *features, target = columns
        request = make_request(
            Schema(self.dataset, columns, self.neighbours, self.max_rows_per_unit, unit_column=ids),
            **_model(self.formula, features, target),
            epsilon=self.epsilon,
            delta=self.delta,
            rho=self.rho,
            mechanism=self.mechanism,
            radius=self.radius,
            rounds=self.rounds,
            label=self.label,
        )
        seed = self._seed()
        # All words are checked before anything is published: afterwards the budget is spent.
        in_rounds = isinstance(request, RoundsRequest)
        check_fit(request.design, prior=self.prior, rounds=in_rounds, **self._inference())
        self.release_ = released(request, table, self.ledger, self.cap)
        self.posterior_ = fit_releases(
            self.release_, prior=self.prior, seed=seed, **self._inference()
        )
        middle, spread = _medians_and_spreads(self.posterior_.theta)
        self.intercept_ = middle[0]
        self.coef_ = np.array(middle[1:])
        self.coef_std_ = np.array(spread[1:])
        self.sigma_ = float(np.median(np.sqrt(self.posterior_.sigma2)))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the target of new rows, as they are: values outside the bounds aren't clipped.

        Parameters
        ----------
        X : array or data frame, shape (n_samples, n_features)
        return_std : bool
            Also return the standard deviation of each prediction: error, sampling and privacy.

        Returns
        -------
        estimate : array, shape (n_samples,)
            Medians over the posterior: where noise hides how much a feature varies, there is no
            mean.
        std : array, shape (n_samples,)
            If asked for. Half the width of the central 68% interval: one sd of a normal law.
        """
        check_is_fitted(self)
        table = without_cells(lambda: self._features(X, reset=False))
        found = self.posterior_.predict(table, seed=0)
        return (found.estimate, found.spread) if return_std else found.estimate

    def _table(self, X: Any, y: Any) -> tuple[dict[str, Any], dict[str, Column]]:
        """The rows by name, and what is public about them, the target last."""
        table = self._features(X, y, reset=True)
        columns = declared_columns(self.bounds, list(table))
        if self.y_bounds is None:
            raise RequestError(
                "y_bounds: none given; say between which limits the target is publicly known to "
                "be, such as y_bounds=(0, 200_000). They are never taken from the data"
            )
        declared = column_of(self.y_bounds, "y_bounds")
        if not isinstance(declared, Number):
            raise RequestError("y_bounds: the target must be a number; give a pair (lower, upper)")
        target = target_name(table)
        values = column_or_1d(y, warn=True, dtype=np.float64)
        return table | {target: values}, columns | {target: declared}


def _medians_and_spreads(theta: FloatArray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of every coefficient, from draws of shape (..., d)."""
    draws = theta.reshape(-1, theta.shape[-1])
    middle, spread = zip(*(median_and_spread(column) for column in draws.T), strict=True)
    return middle, spread


def _model(formula: str | None, features: list[str], target: str) -> dict[str, Any]:
    """What to regress on what, as `make_request` takes it."""
    if formula is None:
        return {"target": target, "features": features}
    if not isinstance(formula, str) or "~" in formula:
        raise RequestError(
            "formula: expected what stands to the right of '~', such as 'age + I(age**2)'; the "
            "target is y (for a logarithm of it give log(y), and its bounds)"
        )
    return {"formula": f"{target} ~ {formula}"}


# --- logistic regression --------------------------------------------------------------------------


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
        chains_and_draws(self.chains, self.draws, MAX_DRAWS)
        if self.method not in ("auto", METHOD):
            raise RequestError(f"method: {self.method!r} is unknown; use auto")
        if self.prior is not None and not isinstance(self.prior, CoefficientPrior):
            kind = type(self.prior).__name__
            raise RequestError(f"prior: expected a CoefficientPrior, got {kind}")
        rows = without_cells(lambda: {**table, target: texts_of(labels)})
        self.release_ = released(request, rows, self.ledger, self.cap)
        self.posterior_ = fit_glm(self.release_, prior=self.prior, seed=seed, **self._inference())
        middle, spread = _medians_and_spreads(self.posterior_.theta)
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
