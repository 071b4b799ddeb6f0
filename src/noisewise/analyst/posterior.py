"""The result of inference: draws in original units, with what is needed to judge them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from ..core.errors import NoisewiseError, ReleaseError, RequestError
from ..core.schema import Schema
from .model_columns import ModelColumns

if TYPE_CHECKING:
    import arviz as az

FloatArray = NDArray[np.float64]
SIGMA2 = "sigma2"
FORMAT = "noisewise-posterior"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class FitInfo:
    """How a posterior came about.

    Parameters
    ----------
    method : str
    reason : str
        Why this method: the user's choice, or what `auto` saw.
    noise_aware : bool
        Whether the posterior accounts for the privacy noise.
    n : tuple of int
        Rows behind each Release.
    claims : tuple of str
        The privacy claim of each Release, in words.
    digests : tuple of str
    warnings : tuple of str
        What a reader must know before trusting the numbers, in plain words.
    """

    method: str
    reason: str
    noise_aware: bool
    n: tuple[int, ...] = ()
    claims: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of a summary."""

    mean: float
    sd: float
    lower: float
    upper: float
    rhat: float
    ess: float


@dataclass(frozen=True)
class Summary:
    """Posterior mean, sd, central credible interval and convergence, in original units."""

    rows: Mapping[str, Row]
    level: float

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers, for JSON and data frames."""
        return {name: vars(row).copy() for name, row in self.rows.items()}

    def __str__(self) -> str:
        percent = f"{100 * self.level:g}%"
        width = max(9, *(len(name) for name in self.rows))
        head = f"{'':{width}} {'mean':>12} {'sd':>12} {percent + ' interval':^25} {'rhat':>6} ess"
        lines = [head]
        for name, row in self.rows.items():
            interval = f"{row.lower:>12.5g} {row.upper:>12.5g}"
            lines.append(
                f"{name:{width}} {row.mean:>12.5g} {row.sd:>12.5g} {interval} {row.rhat:>6.3f}"
                f" {row.ess:.0f}"
            )
        return "\n".join(lines)


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
        The noisy statistics on unit scale, and their noise scales.
    """

    columns: ModelColumns
    theta: FloatArray
    sigma2: FloatArray
    info: FitInfo
    conditional_mean: FloatArray | None = None
    sample_stats: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    observed: Mapping[str, FloatArray] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Parameter names: intercept, covariates, sigma2."""
        return (*self.columns.names, SIGMA2)

    def draws(self, name: str) -> FloatArray:
        """Draws of one parameter, shape (chains, draws)."""
        if name == SIGMA2:
            return self.sigma2
        if name not in self.columns.names:
            raise RequestError(f"{name!r} is not a parameter; there are {', '.join(self.names)}")
        return self.theta[..., self.columns.names.index(name)]

    def summary(self, level: float = 0.95) -> Summary:
        """Mean, sd, central credible interval, R-hat and bulk effective sample size."""
        _check_level(level)
        return Summary({name: _row(self.draws(name), level) for name in self.names}, level)

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """Central credible interval of one parameter."""
        _check_level(level)
        lower, upper = np.quantile(self.draws(name), [(1 - level) / 2, (1 + level) / 2])
        return float(lower), float(upper)

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
            return np.array(float(text))
        except ValueError:
            raise RequestError(
                f"prob: {text!r} is neither a parameter ({', '.join(self.names)}) nor a number"
            ) from None

    def contrast(self, weights: Mapping[str, float], level: float = 0.95) -> Row:
        """Summary of a weighted sum of parameters, such as ``{"fair": 1, "good": -1}``."""
        if not weights:
            raise RequestError("contrast: give at least one parameter with its weight")
        _check_level(level)
        combined = sum(weight * self.draws(name) for name, weight in weights.items())
        return _row(np.asarray(combined), level)

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
        _check_level(interval)
        rows = self.columns.design_matrix(new)
        theta = self.theta.reshape(-1, self.theta.shape[-1])
        sigma2 = self.sigma2.reshape(-1)
        rng = np.random.default_rng(seed)
        mean, sd, lower, upper = (np.empty(len(rows)) for _ in range(4))
        for start in range(0, len(rows), 256):  # bounds memory for large tables
            part = slice(start, start + 256)
            centre = theta @ rows[part].T
            mean[part] = centre.mean(axis=0)
            sd[part] = np.sqrt(centre.var(axis=0) + sigma2.mean())
            drawn = centre + np.sqrt(sigma2)[:, None] * rng.standard_normal(centre.shape)
            quantiles = np.quantile(drawn, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
            lower[part], upper[part] = quantiles
        return Prediction(mean, sd, lower, upper)

    def privacy_share(self) -> dict[str, float]:
        """For every coefficient, the share of its posterior variance that privacy noise caused.

        Var θ = E Var(θ|A) + Var E(θ|A), A the true statistics. A reader of A would be left with
        the first term only (on average); the second is there because A is hidden by noise.
        """
        if self.conditional_mean is None:
            raise RequestError(
                f"privacy_share: method {self.info.method!r} does not account for the noise, so "
                "it cannot tell what privacy cost; use a noise-aware method"
            )
        hidden = self.conditional_mean.reshape(-1, self.theta.shape[-1]).var(axis=0)
        total = self.theta.reshape(-1, self.theta.shape[-1]).var(axis=0)
        share = np.minimum(hidden / total, 1.0)
        return dict(zip(self.columns.names, share.tolist(), strict=True))

    # --- files ---------------------------------------------------------------------------------

    def to_arviz(self) -> az.InferenceData:
        """The draws as an ArviZ container with groups posterior, sample_stats, observed_data."""
        import arviz as az

        posterior: dict[str, Any] = {"theta": self.theta, SIGMA2: self.sigma2}
        dims = {"theta": ["coefficient"]}
        if self.conditional_mean is not None:
            posterior["theta_given_statistics"] = self.conditional_mean
            dims["theta_given_statistics"] = ["coefficient"]
        return az.from_dict(
            posterior=posterior,
            sample_stats=dict(self.sample_stats) or None,
            observed_data={k: np.asarray(v) for k, v in self.observed.items()} or None,
            coords={"coefficient": list(self.columns.names)},
            dims=dims,
            attrs={"noisewise": json.dumps(self._document())},
        )

    def _document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "software": f"noisewise {__version__}",
            "schema": self.columns.schema.to_dict(),
            "features": list(self.columns.features),
            "target": self.columns.target,
            "info": {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self.info).items()},
        }

    def save(self, path: str | Path) -> None:
        """Write a netCDF file that `load_posterior` and ArviZ read."""
        self.to_arviz().to_netcdf(str(path))


def load_posterior(path: str | Path) -> Posterior:
    """Read what `Posterior.save` wrote.

    Raises
    ------
    ReleaseError
        If the file isn't a posterior of noisewise, or is damaged.
    """
    import arviz as az

    if not Path(path).is_file():
        raise ReleaseError(f"{path}: there is no such file")
    try:
        with closing(az.from_netcdf(str(path))) as data:
            document = json.loads(data.attrs["noisewise"])
            if (document["format"], document["format_version"]) != (FORMAT, FORMAT_VERSION):
                raise ValueError
            columns = ModelColumns(
                Schema.from_dict(document["schema"]),
                tuple(document["features"]),
                document["target"],
            )
            info = FitInfo(**_tuples(document["info"]))
            group = data.posterior
            theta, sigma2 = group["theta"].to_numpy(), group[SIGMA2].to_numpy()
            conditional = (
                group["theta_given_statistics"].to_numpy()
                if "theta_given_statistics" in group
                else None
            )
            groups = set(data.groups())
            stats = _arrays(data.sample_stats) if "sample_stats" in groups else {}
            observed = _arrays(data.observed_data) if "observed_data" in groups else {}
    except NoisewiseError:
        raise
    except Exception:
        # netCDF readers raise many kinds of errors on damaged files; none of them helps a user.
        raise ReleaseError(f"{path}: not a posterior file of noisewise, or damaged") from None
    if theta.shape[-1] != len(columns.names) or theta.shape[:2] != sigma2.shape:
        raise ReleaseError(f"{path}: the draws do not fit the model")
    return Posterior(columns, theta, sigma2, info, conditional, stats, observed)


def _arrays(group: Any) -> dict[str, NDArray[Any]]:
    return {name: group[name].to_numpy() for name in group.data_vars}


def _row(draws: FloatArray, level: float) -> Row:
    import arviz as az

    lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    several = draws.shape[0] > 1 and draws.shape[1] >= 4
    return Row(
        mean=float(draws.mean()),
        sd=float(draws.std(ddof=1)),
        lower=float(lower),
        upper=float(upper),
        rhat=float(az.rhat(draws)) if several else float("nan"),
        ess=float(az.ess(draws)) if draws.shape[1] >= 4 else float("nan"),
    )


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise RequestError(f"level: expected a probability such as 0.95, got {level!r}")


def _tuples(words: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where FitInfo has tuples."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in words.items()}
