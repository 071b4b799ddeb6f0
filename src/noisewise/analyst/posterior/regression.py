"""The posterior of a linear regression: draws in original units, and questions to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability, seed_or_none
from noisewise.analyst.model_columns import ModelColumns
from noisewise.analyst.posterior.base import BasePosterior, Fit, rows_in_words
from noisewise.analyst.posterior.file import arrays, tuples
from noisewise.analyst.posterior.numbers import (
    SIGMA2,
    Comparison,
    Row,
    Summary,
    central_interval,
    comparison_row,
    median_and_spread,
    row_of,
    statement_probability,
)
from noisewise.analyst.posterior.plots import AWARE, NAIVE
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.schema import Schema

if TYPE_CHECKING:
    import arviz as az

_CONDITIONAL = "theta_given_statistics"
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
    """

    prior: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    prior_words: str = ""
    prior_pull: Mapping[str, float] = field(default_factory=dict)
    prior_error_sd: tuple[float, float] | None = None
    noise: tuple[str, ...] = ()
    ignores: str = ""


class Naive(NamedTuple):
    """Draws of the naive posterior of the same Releases, in original units."""

    theta: FloatArray  # (draws, d)
    sigma2: FloatArray  # (draws,)


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


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(BasePosterior):
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
        have released (`expected_j` and the like, see `models.replication`).
    naive : Naive, optional
        What ignoring the noise would have given, for comparison.
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

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before trusting the numbers."""
        return self.info.warnings

    @property
    def names(self) -> tuple[str, ...]:
        """Parameter names: intercept, covariates, sigma2."""
        return (*self.columns.names, SIGMA2)

    def draws(self, name: str) -> FloatArray:
        """Draws of one parameter, shape (chains, draws)."""
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
        if name not in self.columns.names:
            raise RequestError(f"{name!r} is not a parameter; there are {', '.join(self.names)}")
        return theta[..., self.columns.names.index(name)]

    # --- questions about parameters --------------------------------------------------------------

    def summary(self, level: float = 0.95) -> Summary:
        """Median, spread, central credible interval, R-hat and effective draws."""
        return Summary({name: row_of(self.draws(name), level) for name in self.names}, level)

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """Central credible interval of one parameter."""
        return central_interval(self.draws(name), level)

    def prob(self, statement: str) -> float:
        """Posterior probability of a statement such as ``"bmi > 0"`` or ``"age < bmi"``."""
        return statement_probability(statement, self.names, self.draws)

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

    # --- predictions -----------------------------------------------------------------------------

    def predict(
        self, new: Any, level: float = 0.95, *, seed: int | None = None, target: str | None = None
    ) -> Prediction:
        """Predictive distribution of the target for new rows, in original units.

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
        level = probability("level", level)
        check_target(target, self.columns.target)
        rng = np.random.default_rng(seed_or_none(seed))
        rows = self.columns.design_matrix(new)
        theta = self.theta.reshape(-1, self.theta.shape[-1])
        sigma2 = self.sigma2.reshape(-1)
        found = np.empty((5, len(rows)))
        points = [0.5, *ndtr([-1.0, 1.0]), (1 - level) / 2, (1 + level) / 2]
        for start in range(0, len(rows), _BATCH):
            part = slice(start, start + _BATCH)
            centre = theta @ rows[part].T
            drawn = centre + np.sqrt(sigma2)[:, None] * rng.standard_normal(centre.shape)
            found[0, part] = np.median(centre, axis=0)
            found[1:, part] = np.quantile(drawn, points[1:], axis=0)
        estimate, below, above, lower, upper = found
        return Prediction(estimate, 0.5 * (above - below), lower, upper)

    def predictive_draws(self, new: Any, seed: int | None = None) -> FloatArray:
        """One draw of every new row's target a posterior draw, shape (chains, draws, rows)."""
        centre = self.theta @ self.columns.design_matrix(new).T
        error = np.random.default_rng(seed_or_none(seed)).standard_normal(centre.shape)
        return np.asarray(centre + np.sqrt(self.sigma2)[..., None] * error)

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
        hidden = self.conditional_mean.reshape(-1, self.theta.shape[-1]).var(axis=0)
        total = self.theta.reshape(-1, self.theta.shape[-1]).var(axis=0)
        share = np.minimum(hidden / total, 1.0)
        return dict(zip(self.columns.names, share.tolist(), strict=True))

    def naive_summary(self, level: float = 0.95) -> dict[str, dict[str, float]]:
        """Median, spread and interval of every parameter in the naive posterior."""
        rows = {}
        for name in self.names:
            draws = self.naive_draws(name)
            median, spread = median_and_spread(draws)
            low, high = central_interval(draws, level)
            rows[name] = {"median": median, "spread": spread, "lower": low, "upper": high}
        return rows

    def comparison(self, level: float = 0.95) -> Comparison:
        """What the naive posterior claims, what this one says, and what privacy cost."""
        share = {} if self.conditional_mean is None else self.privacy_share()
        aware = self.info.noise_aware
        return Comparison(
            {
                name: comparison_row(
                    self.naive_draws(name), self.draws(name), share.get(name, np.nan), level
                )
                for name in self.names
            },
            level,
            self.info.method,
            "" if aware else self.info.ignores or "some of the privacy noise",
        )

    # --- for people ------------------------------------------------------------------------------

    def describe(self, level: float = 0.95) -> str:
        """Where the numbers come from, the coefficients, and what the naive posterior claims."""
        info = self.info
        lines = [f"{self.columns.target} ~ {' + '.join(self.columns.features)}"]
        lines.append(f"Method {info.method}: {info.reason}")
        for n, claim in zip(info.n, info.claims, strict=True):
            counted = rows_in_words(n, self.columns.schema.counted)
            lines.append(f"Release of {counted} at {claim}.")
        if info.prior_words:
            lines.append(f"Prior: {info.prior_words}")
        else:
            prior = (f"{name} {mean:.3g} ± {sd:.3g}" for name, (mean, sd) in info.prior.items())
            lines.append(f"Prior mean ± sd: {', '.join(prior)}")
        if info.prior_error_sd is not None:
            low, high = info.prior_error_sd
            lines.append(
                f"Prior of the error's sd: from {low:.3g} to {high:.3g} with probability 0.9"
            )
        lines.append(str(self.summary(level)))
        if self.naive is not None:
            lines.append(
                f"\nBeside the naive posterior, which ignores the privacy noise:\n"
                f"{self.comparison(level)}"
            )
        return "\n".join(lines)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """The summary with where it comes from, as plain data."""
        info = self.info
        return {
            "summary": self.summary(level).to_dict(),
            "level": level,
            "target": self.columns.target,
            "features": list(self.columns.features),
            "method": info.method,
            "noise_aware": info.noise_aware,
            "n": list(info.n),
            "claims": list(info.claims),
            "prior_error_sd": info.prior_error_sd,
            "prior": {name: {"mean": mean, "sd": sd} for name, (mean, sd) in info.prior.items()},
            "prior_words": info.prior_words,
            "prior_pull": dict(info.prior_pull),
            "privacy_share": None if self.conditional_mean is None else self.privacy_share(),
            "naive": None if self.naive is None else self.naive_summary(level),
            "warnings": list(info.warnings),
        }

    @property
    def _what(self) -> str:
        return "a regression"

    @property
    def heading(self) -> str:
        """The model, and at what privacy its data were published."""
        return f"Regression for {self.columns.target}{self.info.published_at}"

    def shown(self, names: Sequence[str] | None = None) -> list[str]:
        """Parameters to draw: all slopes, or those that are named."""
        for name in names or ():
            self.draws(name)
        return list(self.columns.names[1:] if names is None else names)

    def curves(self, name: str) -> dict[str, FloatArray]:
        """Draws of one parameter, the naive ones first."""
        info = self.info
        if info.method == "naive":
            return {NAIVE: self.draws(name)}
        own = {AWARE if info.noise_aware else f"{info.method} (not noise-aware)": self.draws(name)}
        return own if self.naive is None else {NAIVE: self.naive_draws(name), **own}

    # --- files -----------------------------------------------------------------------------------

    def to_arviz(self, new: Any = None, seed: int | None = None) -> az.InferenceData:
        """The draws as an ArviZ container: posterior, sample_stats, observed_data, naive.

        With `new` rows there is a group posterior_predictive too.
        """
        import arviz as az

        drawn: dict[str, Any] = {"theta": self.theta, SIGMA2: self.sigma2}
        if self.conditional_mean is not None:
            drawn[_CONDITIONAL] = self.conditional_mean
        coords = {"coefficient": list(self.columns.names)}
        predicted = None
        if new is not None:
            predicted = {self.columns.target: self.predictive_draws(new, seed)}
        data = az.from_dict(
            posterior=drawn,
            sample_stats=dict(self.sample_stats) or None,
            posterior_predictive=predicted,
            observed_data={k: np.asarray(v) for k, v in self.observed.items()} or None,
            coords=coords,
            dims={name: ["coefficient"] for name in drawn if name != SIGMA2},
        )
        if self.naive is not None:
            naive = {name: draws[None] for name, draws in self.naive._asdict().items()}
            dims = {"theta": ["coefficient"]}
            group = az.dict_to_dataset(naive, coords=coords, dims=dims)
            data.add_groups({"naive": group}, warn_on_custom_groups=False)
        return data

    def document(self) -> dict[str, Any]:
        """The model and how it was fitted."""
        return {
            "schema": self.columns.schema.to_dict(),
            "features": list(self.columns.features),
            "target": self.columns.target,
            "info": asdict(self.info),
        }

    @classmethod
    def from_arviz(cls, data: az.InferenceData, document: dict[str, Any]) -> Posterior:
        """Read back what `to_arviz` and `document` gave."""
        schema, features = Schema.from_dict(document["schema"]), tuple(document["features"])
        columns = ModelColumns(schema, features, document["target"])
        info = tuples(document["info"])
        info["prior"] = {name: (pair[0], pair[1]) for name, pair in info["prior"].items()}
        drawn, groups = arrays(data.posterior), set(data.groups())
        theta, sigma2 = drawn["theta"], drawn[SIGMA2]
        if theta.shape[-1] != len(columns.names) or theta.shape[:2] != sigma2.shape:
            raise ReleaseError("the draws do not fit the model")
        naive = None
        if "naive" in groups:
            naive = Naive(**{name: values[0] for name, values in arrays(data["naive"]).items()})
        return cls(
            columns,
            theta,
            sigma2,
            FitInfo(**info),
            drawn.get(_CONDITIONAL),
            arrays(data.sample_stats) if "sample_stats" in groups else {},
            arrays(data.observed_data) if "observed_data" in groups else {},
            naive,
        )
