"""The posterior of a linear regression: draws in original units, and questions to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability, seed_or_none
from noisewise.analyst.posterior.base import (
    ALL_ROWS,
    WITHIN_REACH,
    BasePosterior,
    Fit,
    FittedPosterior,
    rows_in_words,
    typed,
)
from noisewise.analyst.posterior.file import Arrays, Groups, dataset, shaped
from noisewise.analyst.posterior.numbers import (
    R2,
    SIGMA,
    SIGMA2,
    Comparison,
    Row,
    Summary,
    central_interval,
    comparison_row,
    median_and_spread,
    row_of,
)
from noisewise.analyst.posterior.plots import AWARE, COMMON, NAIVE, NEW, Effect, Interval
from noisewise.analyst.posterior.statements import statement_probability
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.core.document import text, texts
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.schema import Category, Schema
from noisewise.core.terms.term import MAX_TERM

if TYPE_CHECKING:
    import arviz as az

_CONDITIONAL = "theta_given_statistics"
_ALL_ROWS = "theta_all_rows"
BETWEEN = "{} between holders"  # what a spread is called
_GRID = 61  # values of a feature in a picture of its effect
_BATCH = 256  # rows that are predicted at a time, which bounds memory


@dataclass(frozen=True, kw_only=True)
class FitInfo(Fit):
    """How the posterior of a regression came about; see `Fit` for what all have.

    Parameters
    ----------
    prior : mapping of str to (mean, sd)
        Prior of every coefficient, in original units (of a conjugate prior, given the error
        variance in the middle of its own); empty where the prior has no such numbers.
    prior_words : str
        What the prior expects, where `prior` is empty.
    prior_pull : mapping of str to float
        By slope, by how much the width of its 95% interval changes under a second prior, as a
        share of that width. Empty where the method can't tell.
    prior_error_sd : (low, high)
        Where the prior has the error's standard deviation with probability 0.9.
    noise : tuple of {"laplace", "gaussian"}
    ignores : str
        Which part of the privacy noise the method doesn't account for, in words; empty if none.
    beyond_reach : tuple of (low, high)
        Of each Release, a 95% interval of how many rows were moved within its reach.
    reach_of : tuple of str
        Of each Release, the digest of the one whose reach it has; empty if it chose its own.
    """

    prior: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    prior_words: str = ""
    prior_pull: Mapping[str, float] = field(default_factory=dict)
    prior_error_sd: tuple[float, float] | None = None
    noise: tuple[str, ...] = ()
    ignores: str = ""
    beyond_reach: tuple[tuple[float, float], ...] = ()
    reach_of: tuple[str, ...] = ()

    _EACH_OR_NONE = (*Fit._EACH_OR_NONE, "beyond_reach", "reach_of")


class Naive(NamedTuple):
    """Draws of the naive posterior of the same Releases, in original units."""

    theta: FloatArray  # (draws, d)
    sigma2: FloatArray  # (draws,)


@dataclass(frozen=True, eq=False)
class Holders:
    """Draws of each holder's coefficients and error variance, and of the spreads between holders.

    Coefficients of holders are normal about the common ones. Their spreads, standard deviations,
    are independent; that of the intercept is meant at the average person, not at zeros.
    """

    AXES: ClassVar = {  # in a file, besides chain and draw
        "holders_theta": ["holder", "coefficient"],
        "holders_sigma2": ["holder"],
        "holders_spread": ["coefficient"],
    }

    names: tuple[str, ...]  # what each holder is called: its file, or its number
    theta: FloatArray  # (chains, draws, J, d)
    sigma2: FloatArray  # (chains, draws, J)
    spread: FloatArray  # (chains, draws, d)
    average: FloatArray  # (k,), covariates of the average person, roughly
    # (d,), scale of the prior of each spread, a half-t law with 4 degrees of freedom
    expected: FloatArray

    def in_original_units(self, columns: ModelColumns) -> Holders:
        """The same, from unit scale."""
        factors = columns.theta_to_original(np.eye(self.theta.shape[-1]))
        factors = factors - columns.theta_to_original(np.zeros(self.theta.shape[-1]))
        widths = np.array([column.half_width for column in columns.covariates])
        centres = np.array([column.centre for column in columns.covariates])
        return replace(
            self,
            theta=columns.theta_to_original(self.theta),
            sigma2=columns.sigma2_to_original(self.sigma2),
            spread=self.spread * factors.diagonal(),
            average=centres + widths * self.average,
            expected=self.expected * factors.diagonal(),
        )

    def new_holder(self, rng: np.random.Generator, theta: FloatArray) -> FloatArray:
        """Coefficients of a holder who is not among these, one draw a draw of the common ones."""
        away = self.spread * rng.standard_normal(self.spread.shape)
        away[..., 0] -= away[..., 1:] @ self.average
        return theta + away

    def to_arrays(self) -> dict[str, FloatArray]:
        """Draws by name, for a file."""
        return {name: getattr(self, name.removeprefix("holders_")) for name in self.AXES}

    def document(self) -> dict[str, Any]:
        """What is no draw, for a file."""
        return {
            "names": list(self.names),
            "average": self.average.tolist(),
            "expected": self.expected.tolist(),
        }

    @classmethod
    def read(cls, drawn: Mapping[str, Any], document: dict[str, Any]) -> Holders:
        """Read back what `to_arrays` and `document` gave."""
        names = typed(document["names"], tuple[str, ...], "holders")
        chains, draws, size = drawn["theta"].shape
        lengths = {"holder": len(names), "coefficient": size}
        axes = {name: [lengths[axis] for axis in axes] for name, axes in cls.AXES.items()}
        numbers = (("average", size - 1), ("expected", size))
        return cls(
            names,
            *(shaped(drawn.get(name), chains, draws, *rest) for name, rest in axes.items()),
            *(
                shaped(np.array(typed(document[name], tuple[float, ...], name), float), length)
                for name, length in numbers
            ),
        )


def _observed(read: Mapping[str, FloatArray], size: int) -> dict[str, FloatArray]:
    """What a file says of each Release: matrices, and one vector."""
    for name, values in read.items():
        shaped(values, *[size] * (1 if name.startswith("outside") else 2), finite=False)
    for number in (name.removeprefix("expected") for name in read if name.startswith("expected")):
        # The report compares these.
        names = ("values", "expected", "spread", "below", "outside")
        compared = [read[f"{name}{number}"] for name in names]
        released, expected, spread, *_ = compared
        with np.errstate(over="ignore", invalid="ignore"):
            away = (released - expected)[spread > 0] / spread[spread > 0]
        if not away.size or not all(np.isfinite(x).all() for x in (away, *compared)):
            raise ReleaseError("the released sums are not all finite numbers")
    return dict(read)


@dataclass(frozen=True)
class Prediction:
    """The predictive distribution for new rows.

    Parameters
    ----------
    estimate : array, shape (rows,)
        The middle: the median over draws.
    spread, lower, upper : array, shape (rows,), or None
        Of a new person's target, error variance included; None where that was not released. The
        spread is half the width of the central 68% interval: one sd, if the law is normal.
    """

    estimate: FloatArray
    spread: FloatArray | None = None
    lower: FloatArray | None = None
    upper: FloatArray | None = None

    def lines(self) -> list[list[str]]:
        """A head and one line a row, for a CSV file."""
        known = {name: values for name, values in vars(self).items() if values is not None}
        numbers = zip(*known.values(), strict=True)
        return [list(known), *([f"{value:.8g}" for value in line] for line in numbers)]


def check_target(given: str | None, target: str) -> None:
    """A regression predicts its own target only."""
    if given not in (None, target):
        raise RequestError(
            f"target: this regression predicts {target!r}; fit the Release again with "
            f"target={given!r}, or leave it out"
        )


def _values_of(column: Any) -> tuple[list[Any], int]:
    """Values over the range of a column, or its levels, the reference first; where others stand."""
    if isinstance(column, Category):
        return [column.reference, *(one for one in column.levels if one != column.reference)], 0
    return np.linspace(column.lower, column.upper, _GRID).tolist(), _GRID // 2


def reach_in_words(info: FitInfo, counted: str) -> list[str]:
    """What an estimate within reach is about; nothing where no row can have been moved."""
    if info.estimand != WITHIN_REACH:
        return []
    numbers = []
    for n, (low, high) in zip(info.n, info.beyond_reach, strict=True):
        about = f"{low:,.0f}" if round(low) == round(high) else f"{low:,.0f} to {high:,.0f}"
        numbers.append(about if n is None else f"{about} of {n:,}")
    several, taken = len(numbers) > 1, sorted({one for one in info.reach_of if one})
    files = "Each of these Releases" if several else "This Release"
    chose = f"{files} chose, from noisy looks,"
    another = "another Release draws another line"
    if several:
        another += ", and each holder has one of its own"
    if taken and all(info.reach_of):
        chose = f"{files} took over, from {' and '.join(one[:19] for one in taken)},"
        another = "Releases with the same reach can be compared"
    said = (
        f"Within reach: {chose} how far from the centre a row counts in "
        f"full. Farther {counted} (about {'; '.join(numbers)}) were pulled in, all numbers "
        f"together. Intervals are for the regression of these {counted}; {another}."
    )
    model = (
        'The column "all rows" allows for what the far ones may change, under a model that privacy '
        "cannot check."
    )
    return [said] if info.method == "exact_varying" else [said, model]


class Coefficients(BasePosterior):
    """What posteriors of regressions share, whatever their targets are."""

    _what = "a regression"
    columns: ModelColumns
    theta: FloatArray  # (..., d), in original units, the intercept first

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, the intercept first."""
        return self.columns.names

    def draws(self, name: str) -> FloatArray:
        """Draws of one parameter, of the shape of `theta` without its last axis."""
        if name not in self.names:
            raise RequestError(f"{name!r} is not a parameter; there are {', '.join(self.names)}")
        return self.theta[..., self.names.index(name)]

    def parameter_draws(self) -> dict[str, FloatArray]:
        """Draws of all parameters by name, each of shape (chains, draws)."""
        return {name: self.draws(name) for name in self.all_names}

    @property
    def all_names(self) -> tuple[str, ...]:
        """All that there are draws of."""
        return self.names

    def prob(self, statement: str) -> float:
        """Posterior probability of a statement about parameters.

        Such as ``"bmi > 0"``, ``"age < bmi"``, ``"-0.1 < age < 0.1"``, ``"a > 0 and b > 0"``,
        ``"2 * a - b > 0"`` or ``"abs(age) < 0.1"``. Names with signs or spaces that could be read
        in two ways stand between backticks; see `statements`.
        """
        return statement_probability(statement, self.all_names, self.draws)

    @property
    def features(self) -> tuple[str, ...]:
        """What may have an effect: columns of the table, in whatever terms they are."""
        return self.columns.sources

    def effect(self, feature: str) -> Effect:
        """How the expected target changes with a feature, the others as they are.

        Rows that differ in the feature alone are compared with the first of them, at the lower
        bound of a number or the reference of a category, so that where the others stand doesn't
        matter, but in interactions: there numbers are at the middle of their bounds and categories
        at their reference.
        """
        columns = self.columns
        if feature not in columns.sources:
            raise RequestError(
                f"names: {feature!r} is not a feature; there are {', '.join(columns.sources)}"
            )
        values = {name: _values_of(columns.schema.columns[name]) for name in columns.sources}
        at = values[feature][0]
        rows = {name: [own[place]] * len(at) for name, (own, place) in values.items()}
        matrix = columns.design_matrix(rows | {feature: at})
        theta = self.theta.reshape(-1, self.theta.shape[-1])
        return Effect(feature, columns.target, at, theta @ (matrix - matrix[0]).T)

    def called(self, name: str) -> str:
        """What people call a coefficient or a feature."""
        return self.columns.design.called(name)

    def shown(self, names: Sequence[str] | None = None) -> list[str]:
        """Parameters to draw: all slopes, or those that are named."""
        for name in names or ():
            self.draws(name)
        return list(self.columns.names[1:] if names is None else names)


class FittedCoefficients(Coefficients, FittedPosterior):
    """What posteriors of regressions share that were simulated."""

    def summary(self, level: float = 0.95) -> Summary:
        """Median, spread, central credible interval, R-hat and effective draws."""
        return Summary({name: row_of(self.draws(name), level) for name in self.all_names}, level)

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """Central credible interval of one parameter."""
        return central_interval(self.draws(name), level)

    def _predicted(
        self,
        new: Any,
        level: float,
        target: str | None,
        theta: FloatArray,
        outcomes: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    ) -> Prediction:
        """Of new rows, from coefficients of shape (..., d).

        `outcomes` takes linear predictors, (draws, rows), to what is expected and what intervals
        are of.
        """
        level = probability("level", level)
        check_target(target, self.columns.target)
        rows = self.columns.design_matrix(new)
        theta = theta.reshape(-1, theta.shape[-1])
        points = [*ndtr([-1.0, 1.0]), (1 - level) / 2, (1 + level) / 2]
        found = np.empty((5, len(rows)))
        for start in range(0, len(rows), _BATCH):
            part = slice(start, start + _BATCH)
            expected, seen = outcomes(theta @ rows[part].T)
            found[0, part] = np.median(expected, axis=0)
            found[1:, part] = np.quantile(seen, points, axis=0)
        estimate, below, above, lower, upper = found
        return Prediction(estimate, 0.5 * (above - below), lower, upper)

    def _origin_lines(self, target: str) -> list[str]:
        """The model, the method and the Releases, for a terminal."""
        info, schema = self.info, self.columns.schema
        releases = [
            f"Release of {rows_in_words(n, schema.counted)} at {claim}."
            for n, claim in zip(info.n, info.claims, strict=True)
        ]
        formula = f"{target} ~ {' + '.join(self.columns.features)}"
        return [formula, f"Method {info.method}: {info.reason}", *releases]

    def document(self) -> dict[str, Any]:
        """The model and how it was fitted."""
        return {
            "schema": self.columns.schema.to_dict(),
            "features": list(self.columns.features),
            "target": self.columns.target,
            "info": asdict(self.info),
        }

    @staticmethod
    def _columns_of(document: dict[str, Any]) -> ModelColumns:
        features = texts(document["features"], "features", MAX_TERM)
        target = text(document["target"], "target", MAX_TERM)
        family: Any = text(document.get("family", "linear"), "family")  # checked by the design
        return ModelColumns(Schema.from_dict(document["schema"]), features, target, family)


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(FittedCoefficients):
    """Draws of the coefficients and the error variance, in original units.

    Parameters
    ----------
    columns : ModelColumns
    theta : array, shape (chains, draws, d)
        The intercept first.
    sigma2 : array, shape (chains, draws)
    info : FitInfo
    conditional_mean : array, shape (chains, draws, d), optional
        E[theta | latent statistics] at each draw: what a reader of the true statistics would
        believe. Its variance over draws is the part of the posterior variance due to privacy.
    sample_stats : mapping of str to array, shape (chains, draws)
    observed : mapping of str to array
        The noisy statistics on unit scale, and their noise scales; where the method can tell, how
        far they are from what the fitted model expects (`discrepancy_j`, in sds), and what it would
        have released (`expected_j` and the like, see `plausibility`).
    naive : Naive, optional
        What ignoring the noise would have given, for comparison.
    r2 : array, shape (chains, draws), optional
        At each draw, the variance of the linear predictor over that plus sigma2. The predictor
        varies as the covariates do among the rows behind all Releases together, by the latent
        statistics of the draw. None where a method draws none of these (naive, normal_x and the
        fixed_s methods), and for files from before there was R2.
    holders : Holders, optional
        What each holder has of its own, where coefficients vary by holder. theta are then the
        common coefficients, about which those of holders are, and sigma2 is the mean over all rows.
    theta_all_rows : array, shape (chains, draws, d), optional
        Coefficients of the regression of all rows, where the Release has moved far rows within its
        reach; see `all_rows`. None where no row was moved, and in files from before there were any.
    """

    kind = "regression"

    columns: ModelColumns
    theta: FloatArray
    sigma2: FloatArray
    info: FitInfo
    conditional_mean: FloatArray | None = None
    sample_stats: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    observed: Mapping[str, FloatArray] = field(default_factory=dict)
    naive: Naive | None = None
    r2: FloatArray | None = None
    holders: Holders | None = None
    theta_all_rows: FloatArray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Parameter names: intercept, covariates, sigma2."""
        return (*self.columns.names, SIGMA2)

    @property
    def derived(self) -> tuple[str, ...]:
        """What follows from the parameters: sigma, and R2 where it is known; spreads of holders.

        A column of that name goes before.
        """
        known = (SIGMA,) if self.r2 is None else (SIGMA, R2)
        return tuple(name for name in (*known, *self.spreads) if name not in self.columns.names)

    @property
    def spreads(self) -> tuple[str, ...]:
        """Names of the spreads between holders, where coefficients vary; the intercept's first."""
        names = () if self.holders is None else self.columns.names
        return tuple(map(BETWEEN.format, names))

    @property
    def all_names(self) -> tuple[str, ...]:
        """`names` and `derived`: all that there are draws of."""
        return (*self.names, *self.derived)

    def draws(self, name: str) -> FloatArray:
        """Draws of one parameter, or of sigma or R2, shape (chains, draws)."""
        if name == R2 and name in self.derived and self.r2 is not None:
            return self.r2
        if self.holders is not None and name in self.spreads:
            return self.holders.spread[..., self.spreads.index(name)]
        return self._pick(name, self.theta, self.sigma2)

    def naive_draws(self, name: str) -> FloatArray:
        """Draws of one parameter from the naive posterior, shape (draws,)."""
        if self.naive is None:
            raise RequestError(
                f"there is no naive posterior to compare with: method {self.info.method!r}"
            )
        return self._pick(name, *self.naive)

    def _pick(self, name: str, theta: FloatArray, sigma2: FloatArray) -> FloatArray:
        if name == SIGMA2:
            return sigma2
        if name == SIGMA and name in self.derived:
            return np.sqrt(sigma2)
        if name not in self.columns.names:
            there = ", ".join(self.all_names)
            raise RequestError(f"{name!r} is not a parameter; there are {there}")
        return theta[..., self.columns.names.index(name)]

    def parameter_draws(self) -> dict[str, FloatArray]:
        """Draws of all parameters, sigma and R2 by name, each of shape (chains, draws).

        Where coefficients vary by holder, those of each as well, such as ``"age of a.json"``.
        """
        found = super().parameter_draws()
        if self.holders is not None:
            for j, holder in enumerate(self.holders.names):
                for i, name in enumerate(self.columns.names):
                    found[f"{name} of {holder}"] = self.holders.theta[:, :, j, i]
        return found

    # --- questions about parameters --------------------------------------------------------------

    def all_rows(self, level: float = 0.95) -> Summary:
        """Median, spread and interval of the regression of all rows within their bounds.

        A Release in rounds moves far rows within its reach, and `summary` is about the rows as
        they counted. What few far rows would change is what privacy hides, so these intervals
        are wider, by a model of such rows that privacy cannot check (`regression.far_rows`).
        Without rounds no row was moved, and this is what `summary` says.
        """
        theta = self._theta_of_all_rows()
        rows = zip(self.columns.names, np.moveaxis(theta, -1, 0), strict=True)
        return Summary({name: row_of(draws, level) for name, draws in rows}, level)

    def summary(self, level: float = 0.95) -> Summary:
        """Median, spread, central credible interval, R-hat and effective draws.

        Where the Release has moved far rows within its reach, coefficients have the interval for
        all rows beside theirs; see `all_rows`.
        """
        plain = super().summary(level)
        if self.theta_all_rows is None:
            return plain
        rows = dict(plain.rows)
        for name, row in self.all_rows(level).rows.items():
            ends = {"all_rows_lower": row.lower, "all_rows_upper": row.upper}
            rows[name] = replace(rows[name], **ends)
        return Summary(rows, level)

    def bars(self, name: str, level: float) -> dict[str, Interval]:
        """Intervals by label; the one for all rows is around the posterior's own."""
        found = super().bars(name, level)
        if self.theta_all_rows is not None and name in self.columns.names:
            label, own = list(found.items())[-1]
            draws = self.theta_all_rows[..., self.columns.names.index(name)]
            found[label] = own._replace(outer=central_interval(draws, level))
        return found

    def _theta_of_all_rows(self) -> FloatArray:
        if self.theta_all_rows is not None:
            return self.theta_all_rows
        if self.info.estimand == WITHIN_REACH:
            raise RequestError(
                "all_rows: there is no such statement where coefficients vary by holder; fit "
                "the Releases of one holder, or without varying"
            )
        if self.info.estimand != ALL_ROWS:
            raise RequestError(
                "all_rows: this posterior was fitted before there was such a statement; fit its "
                "Releases again"
            )
        return self.theta

    def contrast(self, weights: Mapping[str, float], level: float = 0.95) -> Row:
        """Summary of a weighted sum of parameters, such as ``{"fair": 1, "good": -1}``."""
        if not isinstance(weights, Mapping) or not weights:
            raise RequestError('contrast: give parameters with their weights, such as {"age": 1}')
        combined = np.zeros_like(self.sigma2)
        for name, weight in weights.items():
            if isinstance(weight, str) or not np.isfinite(weight):
                raise RequestError(f"contrast: the weight of {name!r} is not a number: {weight!r}")
            combined = combined + weight * self.draws(name)
        return row_of(combined, level)

    # --- holders ---------------------------------------------------------------------------------

    def of_holder(self, name: str) -> Posterior:
        """The posterior of one holder's own coefficients, where they vary by holder."""
        holders = self._own(name)
        j, info = holders.names.index(name), self.info
        each = ("n", "claims", "digests", "datasets", "units", "signatures", "noise")
        known: dict[str, Any] = {
            key: (value[j],) for key in each if len(value := getattr(info, key)) > j
        }
        return replace(
            self,
            theta=holders.theta[:, :, j],
            sigma2=holders.sigma2[..., j],
            info=replace(info, **known, reason=f"{info.reason}; of {name} alone"),
            conditional_mean=None,
            observed={},
            holders=None,
        )

    def holder_summaries(self, level: float = 0.95) -> dict[str, Summary]:
        """Each holder's own coefficients, where they vary by holder."""
        theta, found = np.moveaxis(self._own().theta, (2, 3), (0, 1)), {}
        for holder, own in zip(self._own().names, theta, strict=True):
            rows = zip(self.columns.names, own, strict=True)
            found[holder] = Summary({name: row_of(draws, level) for name, draws in rows}, level)
        return found

    def _own(self, name: str | None = None) -> Holders:
        if self.holders is None:
            raise RequestError(
                "holder: all holders have one regression here; fit again with varying=True "
                "(--varying)"
            )
        if name is not None and name not in self.holders.names:
            there = ", ".join(self.holders.names)
            raise RequestError(f"holder: {name!r} is unknown; there are {there}")
        return self.holders

    def forest(self, name: str, level: float) -> dict[str, Interval]:
        """Intervals of one coefficient: each holder's, the common one, and a new holder's."""
        holders, names = self._own(), self.columns.names
        if name not in names:
            there = ", ".join(names)
            raise RequestError(f"names: {name!r} is not a coefficient; there are {there}")
        at = names.index(name)
        new = holders.new_holder(np.random.default_rng(0), self.theta)  # a picture needs no seed
        found = {holder: holders.theta[:, :, j, at] for j, holder in enumerate(holders.names)}
        found |= {COMMON: self.theta[..., at], NEW: new[..., at]}
        return {label: Interval.of(draws, level) for label, draws in found.items()}

    # --- predictions -----------------------------------------------------------------------------

    def predict(
        self, new: Any, level: float = 0.95, *, seed: int | None = None, target: str | None = None
    ) -> Prediction:
        """Predictive distribution of the target for new rows, in original units.

        Where coefficients vary by holder, of people of a holder who is not among these; for people
        of one who is, use `of_holder`.

        Parameters
        ----------
        new : mapping or data frame with one column per feature
            Categories as their levels.
        level : float
            Of the central predictive interval.
        seed : int, optional
            Of the draws of the error term; intervals are quantiles of one draw a posterior draw.
        target : str, optional
            The regression's own; it has no other.
        """
        rng, theta = self._of_new_people(seed)
        sd = np.sqrt(self.sigma2.reshape(-1, 1))

        def outcomes(centre: FloatArray) -> tuple[FloatArray, FloatArray]:
            return centre, centre + sd * rng.standard_normal(centre.shape)

        return self._predicted(new, level, target, theta, outcomes)

    def predictive_draws(self, new: Any, seed: int | None = None) -> FloatArray:
        """One draw of every new row's target a posterior draw, shape (chains, draws, rows)."""
        rng, theta = self._of_new_people(seed)
        centre = theta @ self.columns.design_matrix(new).T
        error = rng.standard_normal(centre.shape)
        return np.asarray(centre + np.sqrt(self.sigma2)[..., None] * error)

    def _of_new_people(self, seed: int | None) -> tuple[np.random.Generator, FloatArray]:
        rng = np.random.default_rng(seed_or_none(seed))
        return rng, self.theta if self.holders is None else self.holders.new_holder(rng, self.theta)

    # --- the price of privacy --------------------------------------------------------------------

    def privacy_share(self) -> dict[str, float]:
        """For every coefficient, the share of its posterior variance that privacy noise caused.

        Var θ = E Var(θ|A) + Var E(θ|A), A the true statistics. A reader of A would be left with
        the first term only (on average); the second is there because A is hidden by noise.
        """
        if self.conditional_mean is None:
            why = "keeps no draws of the statistics behind the noise"
            if not self.info.noise_aware:
                why = f"does not account for {self.info.ignores or 'all of the noise'}"
            raise RequestError(
                f"privacy_share: method {self.info.method!r} {why}, so it cannot tell what privacy "
                "cost; use exact"
            )
        drawn = (x.reshape(-1, x.shape[-1]) for x in (self.conditional_mean, self.theta))
        hidden, total = (draws.var(axis=0) for draws in drawn)
        share = np.minimum(hidden / total, 1.0)
        return dict(zip(self.columns.names, share.tolist(), strict=True))

    @property
    def _with_naive(self) -> tuple[str, ...]:
        """What the naive posterior has draws of."""
        return tuple(name for name in self.all_names if name != R2 or name in self.names)

    def naive_summary(self, level: float = 0.95) -> dict[str, dict[str, float]]:
        """Median, spread and interval of every parameter in the naive posterior."""
        rows, names = {}, ("median", "spread", "lower", "upper")
        for name in self._with_naive:
            draws = self.naive_draws(name)
            found = (*median_and_spread(draws), *central_interval(draws, level))
            rows[name] = dict(zip(names, found, strict=True))
        return rows

    def comparison(self, level: float = 0.95) -> Comparison:
        """What the naive posterior claims, what this one says, and what privacy cost."""
        share = {} if self.conditional_mean is None else self.privacy_share()
        ignores = "" if self.info.noise_aware else self.info.ignores or "some of the privacy noise"
        rows = {}
        for name in self._with_naive:
            naive, own = self.naive_draws(name), self.draws(name)
            rows[name] = comparison_row(naive, own, share.get(name, np.nan), level)
        return Comparison(rows, level, self.info.method, ignores)

    # --- for people ------------------------------------------------------------------------------

    def describe(self, level: float = 0.95) -> str:
        """Where the numbers come from, the coefficients, and what the naive posterior claims."""
        info = self.info
        lines = self._origin_lines(self.columns.target)
        if info.prior_words:
            lines.append(f"Prior: {info.prior_words}")
        else:
            prior = (f"{name} {mean:.3g} ± {sd:.3g}" for name, (mean, sd) in info.prior.items())
            lines.append(f"Prior mean ± sd: {', '.join(prior)}")
        if info.prior_error_sd is not None:
            ends = "from {:.3g} to {:.3g}".format(*info.prior_error_sd)
            lines.append(f"Prior of the error's sd: {ends} with probability 0.9")
        lines.append(str(self.summary(level)))
        lines += reach_in_words(info, self.columns.schema.counted)
        if self.holders is not None:
            lines.append("\nEach holder's own coefficients:")
            for holder, summary in self.holder_summaries(level).items():
                lines.append(f"{holder}\n{summary}")
        lines += self.columns.design.glossary()
        if self.naive is not None:
            lines.append("\nBeside the naive posterior, which ignores the privacy noise:")
            lines.append(str(self.comparison(level)))
        return "\n".join(lines)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """The summary with where it comes from, as plain data."""
        info = self.info
        return {
            "summary": self.summary(level).to_dict(),
            "level": level,
            "target": self.columns.target,
            "features": list(self.columns.features),
            **self._origin(),
            "beyond_reach": [list(ends) for ends in info.beyond_reach],
            "prior_error_sd": info.prior_error_sd,
            "prior": {name: {"mean": mean, "sd": sd} for name, (mean, sd) in info.prior.items()},
            "prior_words": info.prior_words,
            "prior_pull": dict(info.prior_pull),
            "privacy_share": None if self.conditional_mean is None else self.privacy_share(),
            "naive": None if self.naive is None else self.naive_summary(level),
            "holders": None
            if self.holders is None
            else {name: s.to_dict() for name, s in self.holder_summaries(level).items()},
        }

    @property
    def heading(self) -> str:
        """The model, and at what privacy its data were published."""
        return f"Regression for {self.columns.target}{self.info.published_at}"

    def curves(self, name: str) -> dict[str, FloatArray]:
        """Draws of one parameter, the naive ones first."""
        info = self.info
        if info.method == "naive":
            return {NAIVE: self.draws(name)}
        own = {AWARE if info.noise_aware else f"{info.method} (not noise-aware)": self.draws(name)}
        if self.naive is None or name not in self._with_naive:
            return own
        return {NAIVE: self.naive_draws(name), **own}

    # --- files -----------------------------------------------------------------------------------

    def to_arviz(
        self, new: Any = None, seed: int | None = None, *, auxiliary: bool = True
    ) -> az.InferenceData:
        """The draws as an ArviZ container: posterior, sample_stats, observed_data, naive.

        With `new` rows there is a group posterior_predictive too. Without `auxiliary` there are
        the parameters and R2 only, and no naive draws and no E[theta | statistics] besides.
        """
        groups = self.groups(auxiliary=auxiliary)
        if new is not None:
            predicted = {self.columns.target: self.predictive_draws(new, seed)}
            groups["posterior_predictive"] = dataset(predicted)
        return groups.to_arviz()

    def groups(self, *, auxiliary: bool = True) -> Groups:
        """The same without new rows."""
        drawn: dict[str, Any] = {"theta": self.theta, SIGMA2: self.sigma2}
        if self.r2 is not None:
            drawn[R2] = self.r2
        if auxiliary and self.conditional_mean is not None:
            drawn[_CONDITIONAL] = self.conditional_mean
        if auxiliary and self.theta_all_rows is not None:
            drawn[_ALL_ROWS] = self.theta_all_rows
        coords = {"coefficient": list(self.columns.names)}
        dims = {name: ["coefficient"] for name in drawn if name not in (SIGMA2, R2)}
        if self.holders is not None:
            coords["holder"] = list(self.holders.names)
            drawn |= self.holders.to_arrays()
            dims |= Holders.AXES
        groups = Groups(posterior=dataset(drawn, coords, dims))
        if self.sample_stats:
            groups["sample_stats"] = dataset(self.sample_stats)
        if self.observed:
            groups["observed_data"] = dataset(self.observed, leading=())
        if auxiliary and self.naive is not None:
            naive = {name: draws[None] for name, draws in self.naive._asdict().items()}
            groups["naive"] = dataset(naive, coords, dims)
        return groups

    def document(self) -> dict[str, Any]:
        """The model and how it was fitted."""
        own = {} if self.holders is None else {"holders": self.holders.document()}
        return {**super().document(), **own}

    @classmethod
    def from_groups(cls, data: Arrays, document: dict[str, Any]) -> Posterior:
        """Read back what `groups` and `document` gave."""
        columns, drawn = cls._columns_of(document), data["posterior"]
        size = len(columns.names)
        theta = shaped(drawn.get("theta"), None, None, size)
        draws = theta.shape[:2]
        stats, naive = data.get("sample_stats", {}), data.get("naive", {})
        return cls(
            columns,
            theta,
            shaped(drawn.get(SIGMA2), *draws),
            FitInfo.read(document["info"]),
            shaped(drawn[_CONDITIONAL], *draws, size) if _CONDITIONAL in drawn else None,
            {name: shaped(values, *draws, finite=False) for name, values in stats.items()},
            _observed(data.get("observed_data", {}), size + 1),
            Naive(
                shaped(naive.get("theta"), 1, None, size)[0],
                shaped(naive.get(SIGMA2), 1, None)[0],
            )
            if naive
            else None,
            shaped(drawn[R2], *draws) if R2 in drawn else None,
            Holders.read(drawn, document["holders"]) if "holders" in document else None,
            shaped(drawn[_ALL_ROWS], *draws, size) if _ALL_ROWS in drawn else None,
        )
