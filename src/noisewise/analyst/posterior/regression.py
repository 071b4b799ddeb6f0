"""The result of inference: draws in original units, with what is needed to judge them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability, seed_or_none
from noisewise.analyst.model_columns import ModelColumns
from noisewise.analyst.posterior.numbers import (
    Comparison,
    Row,
    Summary,
    central_interval,
    comparison_row,
    row_of,
)
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    import arviz as az

SIGMA2 = "sigma2"
_BATCH = 256  # rows that are predicted at a time, which bounds memory


@dataclass(frozen=True)
class FitInfo:
    """How a posterior came about.

    Parameters
    ----------
    method : str
    reason : str
        Why this method: the user's choice, or what `auto` saw.
    noise_aware : bool
        Whether the posterior accounts for all of the privacy noise.
    n : tuple of int or None
        Rows behind each Release; None where the number is private.
    claims : tuple of str
        The privacy claim of each Release, in words.
    digests : tuple of str
    warnings : tuple of str
        What a reader must know before trusting the numbers, in plain words.
    prior : mapping of str to (mean, sd)
        Prior of every coefficient, in original units (of a conjugate prior, given the error
        variance in the middle of its own).
    prior_error_sd : (low, high)
        Where the prior has the error's standard deviation with probability 0.9.
    datasets : tuple of str
    units : tuple of str
        Who is protected, such as ``"replace_one/1"``.
    noise : tuple of {"laplace", "gaussian"}
    ignores : str
        Which part of the privacy noise the method doesn't account for, in words; empty if none.
    """

    method: str
    reason: str
    noise_aware: bool
    n: tuple[int | None, ...] = ()
    claims: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    prior: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    prior_error_sd: tuple[float, float] | None = None
    datasets: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
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
    mean, sd, lower, upper : array, shape (rows,)
        Of a new person's target, error variance included.
    """

    mean: FloatArray
    sd: FloatArray
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class Posterior:
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

    columns: ModelColumns
    theta: FloatArray
    sigma2: FloatArray
    info: FitInfo
    conditional_mean: FloatArray | None = None
    sample_stats: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    observed: Mapping[str, FloatArray] = field(default_factory=dict)
    naive: Naive | None = None

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
        """Mean, sd, central credible interval, R-hat and bulk effective sample size."""
        return Summary({name: row_of(self.draws(name), level) for name in self.names}, level)

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """Central credible interval of one parameter."""
        return central_interval(self.draws(name), level)

    def prob(self, statement: str) -> float:
        """Posterior probability of a statement such as ``"bmi > 0"`` or ``"age < bmi"``."""
        match = re.fullmatch(r"\s*(.+?)\s*(<=|>=|<|>)\s*(.+?)\s*", statement)
        if match is None:
            raise RequestError(f"prob: {statement!r} is not of the form 'name > 0'")
        left, sign, right = match.groups()
        sides = [self._side(left), self._side(right)]
        holds = sides[0] < sides[1] if "<" in sign else sides[0] > sides[1]
        return float(np.mean(holds))

    def _side(self, text: str) -> FloatArray:
        if text in self.names:
            return self.draws(text)
        try:
            number = float(text)
        except ValueError:
            number = np.nan
        if np.isnan(number):
            raise RequestError(
                f"prob: {text!r} is neither a parameter ({', '.join(self.names)}) nor a number; "
                "compare two of them, as in 'age > 0'"
            )
        return np.array(number)

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

    def predict(self, new: Any, interval: float = 0.95, seed: int | None = None) -> Prediction:
        """Predictive distribution of the target for new rows, in original units.

        Parameters
        ----------
        new : mapping or data frame with one column per feature
            Categories as their levels.
        interval : float
            Level of the central predictive interval.
        seed : int, optional
            Of the draws of the error term; intervals are quantiles of one draw a posterior draw.
        """
        interval = probability("interval", interval)
        rng = np.random.default_rng(seed_or_none(seed))
        rows = self.columns.design_matrix(new)
        theta = self.theta.reshape(-1, self.theta.shape[-1])
        sigma2 = self.sigma2.reshape(-1)
        mean, sd, lower, upper = (np.empty(len(rows)) for _ in range(4))
        for start in range(0, len(rows), _BATCH):
            part = slice(start, start + _BATCH)
            centre = theta @ rows[part].T
            mean[part] = centre.mean(axis=0)
            sd[part] = np.sqrt(centre.var(axis=0) + sigma2.mean())
            drawn = centre + np.sqrt(sigma2)[:, None] * rng.standard_normal(centre.shape)
            quantiles = np.quantile(drawn, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
            lower[part], upper[part] = quantiles
        return Prediction(mean, sd, lower, upper)

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
        """Mean, sd and interval of every parameter in the naive posterior."""
        rows = {}
        for name in self.names:
            draws = self.naive_draws(name)
            low, high = central_interval(draws, level)
            rows[name] = {
                "mean": float(draws.mean()),
                "sd": float(draws.std(ddof=1)),
                "lower": low,
                "upper": high,
            }
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

    # --- files -----------------------------------------------------------------------------------

    def to_arviz(self, new: Any = None, seed: int | None = None) -> az.InferenceData:
        """The draws as an ArviZ container: posterior, sample_stats, observed_data, naive.

        With `new` rows there is a group posterior_predictive too.
        """
        from noisewise.analyst.posterior.file import to_arviz

        return to_arviz(self, None if new is None else self.predictive_draws(new, seed))

    def save(self, path: str | Path) -> None:
        """Write a netCDF file that `load_posterior` and ArviZ read."""
        from noisewise.analyst.posterior.file import save

        save(self, path)

    def report(self, path: str | Path, *, level: float = 0.95, title: str | None = None) -> None:
        """Write one self-contained HTML page; see `noisewise.analyst.report`."""
        from noisewise.analyst.report import write_report

        write_report(self, path, level=level, title=title)
