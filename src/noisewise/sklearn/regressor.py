"""A linear regressor whose every number comes from a differentially private Release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from noisewise._arrays import FloatArray
from noisewise.analyst.fit import fit as fit_releases
from noisewise.analyst.posterior.numbers import median_and_spread
from noisewise.analyst.regression.fit import check_fit
from noisewise.core.errors import RequestError
from noisewise.core.schema import Column, Number, Schema
from noisewise.holder.requests.regression import make_request
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.sklearn.estimator import (
    BoundedFeatures,
    column_of,
    declared_columns,
    released,
    target_name,
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
        ids = None
        if units is not None:
            ids = UNITS
            table |= {ids: units}
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
        theta = self._theta()
        middle, spread = zip(*(median_and_spread(draws) for draws in theta.T), strict=True)
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

    def _theta(self) -> FloatArray:
        draws: FloatArray = self.posterior_.theta
        return draws.reshape(-1, draws.shape[-1])

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


# --- what to regress on what ---------------------------------------------------------------------


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
