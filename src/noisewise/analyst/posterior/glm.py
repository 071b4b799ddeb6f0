"""The posterior of a logistic or Poisson regression: draws of its coefficients, and questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from noisewise._arrays import FloatArray
from noisewise.analyst.posterior.base import Fit, typed
from noisewise.analyst.posterior.file import Arrays, Groups, dataset, shaped
from noisewise.analyst.posterior.numbers import Summary, round_step, row_of
from noisewise.analyst.posterior.plots import AWARE, Effect
from noisewise.analyst.posterior.regression import FittedCoefficients, Prediction
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number
from noisewise.core.terms.term import DesignColumn

_NODES = np.linspace(-5.0, 5.0, 51)  # for means over a normal law
_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()


@dataclass(frozen=True, eq=False, repr=False)
class GlmPosterior(FittedCoefficients):
    """Draws of the coefficients of a linear predictor, in original units.

    Parameters
    ----------
    columns : ModelColumns
        Of family logistic or poisson.
    theta : array, shape (chains, draws, d)
        The intercept first: log odds, or logarithms of rates.
    slope : array, shape (chains, draws)
        How much the probability, or the expected count, changes with the linear predictor, on
        average over the rows behind the Releases.
    centre, covariance : array, shape (d,) and (d, d)
        Of these rows, as (1, covariates) in original units: noisy, and used to tell how the average
        slope bends over a difference that is not small.
    info : Fit
    """

    kind, _what = "glm", "a logistic or Poisson regression"

    columns: ModelColumns
    theta: FloatArray
    slope: FloatArray
    centre: FloatArray
    covariance: FloatArray
    info: Fit

    def with_warnings(self, warnings: Sequence[str]) -> GlmPosterior:
        """The same with these warnings."""
        return replace(self, info=replace(self.info, warnings=tuple(warnings)))

    @property
    def stand_alone(self) -> tuple[DesignColumn, ...]:
        """Design columns in which rows may differ and be alike in all others."""
        terms = self.columns.design.terms
        shared = {*terms, *(name for term in terms.values() for name in term.columns)}
        return tuple(c for c in self.columns.covariates if c.source not in shared)

    @property
    def event(self) -> str:
        """What the probabilities or rates are of, such as "ill = yes"."""
        column = self.columns.schema.columns[self.columns.target]
        if isinstance(column, Category):
            return f"{self.columns.target} = {column.indicated[0]}"
        return self.columns.target

    @property
    def predictor(self) -> str:
        """What coefficients add up to, such as "log odds of ill = yes"."""
        what = "log odds of" if self.columns.family == "logistic" else "log rate of"
        return f"{what} {self.event}"

    @property
    def ratio(self) -> str:
        """What the exponential of a slope is."""
        return "odds ratio" if self.columns.family == "logistic" else "rate ratio"

    # --- questions -------------------------------------------------------------------------------

    def ratios(self, level: float = 0.95, *, steps: Mapping[str, float] | None = None) -> Summary:
        """The same of odds or rate ratios: of one more of a number, or of a level beside another.

        How much the odds of the event, or the rate, are multiplied by. With `steps`, by so many
        more of a number instead of one.
        """
        rows = {}
        for name in self.names[1:]:
            logarithm = self.draws(name) * (steps or {}).get(name, 1.0)
            rows[name] = row_of(np.exp(np.clip(logarithm, -700.0, 700.0)), level)
        return Summary(rows, level)

    @property
    def steps(self) -> dict[str, float]:
        """Of numbers that stand alone, differences worth talking about, if they aren't 1."""
        declared = {c.name: self.columns.schema.columns[c.source] for c in self.stand_alone}
        found = {n: round_step(one) for n, one in declared.items() if isinstance(one, Number)}
        return {name: step for name, step in found.items() if step != 1.0}

    def average_effects(self, level: float = 0.95) -> Summary:
        """How much the probability, or the expected count, changes on average over the rows.

        For a level, if all rows had it rather than the reference. For a number, what a small
        change does, for one more of it: the coefficient times the average slope. Terms, and columns
        that are in terms, are left out: nothing differs in one of these alone.
        """
        rows = {}
        for column in self.stand_alone:
            change = self.draws(column.name) * self.slope
            draws = self.average_change(column.name) if column.is_indicator else change
            rows[column.name] = row_of(draws, level)
        return Summary(rows, level)

    def average_change(self, name: str, step: float = 1.0) -> FloatArray:
        """Draws of what a difference does on average over the rows, shape (chains, draws).

        Parameters
        ----------
        name : str
            Of a slope. If it is of a level, rows with it are compared with rows at the reference.
        step : float
            Of a number: rows that have half of it more are compared with rows that have half of it
            less.

        Notes
        -----
        For a small difference it is the coefficient times the average slope. By how much a larger
        one does more or less than that follows from how the linear predictor varies among the rows,
        which is taken for normal.
        """
        place = self.names.index(name) if name in self.names[1:] else 0
        if not place:
            raise RequestError(f"{name!r} is not a slope; there are {', '.join(self.names[1:])}")
        column = self.columns.covariates[place - 1]
        theta = self.theta.reshape(-1, len(self.names))
        others, difference = theta.copy(), theta[:, place] * step
        start = -difference / 2
        if column.is_indicator:
            group = [c.source == column.source for c in self.columns.covariates]
            others[:, 1:][:, group] = 0.0
            difference, start = theta[:, place], np.zeros(len(theta))
        middle, spread = self._predictor(others)
        middle += start
        change = self._over_rows(middle + difference, spread) - self._over_rows(middle, spread)
        slope = self._over_rows(*self._predictor(theta), slope=True)
        ratio = change / np.maximum(slope, 1e-300)
        change = ratio.reshape(self.slope.shape) * self.slope
        return change if self.columns.family == "poisson" else np.clip(change, -1.0, 1.0)

    def _predictor(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and sd of the linear predictor among the rows, for each of (N, d) draws."""
        square = np.einsum("ni,ij,nj->n", theta, self.covariance, theta)
        return theta @ self.centre, np.sqrt(np.maximum(square, 0.0))

    def _over_rows(
        self, middle: FloatArray, spread: FloatArray, *, slope: bool = False
    ) -> FloatArray:
        """E m(η) or E m'(η) for normal η, for each of N middles and spreads."""
        if self.columns.family == "poisson":
            return np.exp(np.clip(middle + spread**2 / 2, -300.0, 300.0))
        total = np.zeros(len(middle))
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            mean = expit(middle + spread * node)
            total += weight * (mean * (1 - mean) if slope else mean)
        return total

    def predict(
        self, new: Any, level: float = 0.95, *, seed: int | None = None, target: str | None = None
    ) -> Prediction:
        """Probability of the event, or expected count, for new rows.

        Intervals are of this probability or expectation, not of what will happen to one person.

        Parameters
        ----------
        new : mapping or data frame with one column per feature
            Categories as their levels.
        level : float
        seed : int, optional
            Nothing is drawn; taken as all posteriors take it.
        target : str, optional
            The regression's own; it has no other.
        """

        def outcomes(predictor: FloatArray) -> tuple[FloatArray, FloatArray]:
            logistic = self.columns.family == "logistic"
            mean = expit(predictor) if logistic else np.exp(np.minimum(predictor, 700.0))
            return mean, mean

        return self._predicted(new, level, target, self.theta, outcomes)

    def effect(self, feature: str) -> Effect:
        """How the linear predictor changes with a feature, the others as they are."""
        return super().effect(feature)._replace(target=self.predictor)

    # --- for people ------------------------------------------------------------------------------

    def describe(self, level: float = 0.95) -> str:
        """Where the numbers come from, the coefficients, ratios and average effects."""
        lines, logistic = self._origin_lines(self.predictor), self.columns.family == "logistic"
        ratios, steps = self.ratios(level, steps=self.steps).rows, self.steps
        told = {f"{n} +{steps[n]:g}" if n in steps else n: row for n, row in ratios.items()}
        lines += [str(self.summary(level)), "", f"As {self.ratio}s:", str(Summary(told, level)), ""]
        if self.stand_alone:
            changed = "probability of the event" if logistic else "expected count"
            lines += [f"Change of the {changed}, on average over the rows:"]
            lines += [str(self.average_effects(level))]
        return "\n".join([*lines, *self.columns.design.glossary()])

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """The summary with where it comes from, as plain data."""
        return {
            "summary": self.summary(level).to_dict(),
            f"{self.ratio}s".replace(" ", "_"): self.ratios(level).to_dict(),
            "average_effects": self.average_effects(level).to_dict(),
            "level": level,
            "family": self.columns.family,
            "target": self.columns.target,
            "event": self.event,
            "features": list(self.columns.features),
            **self._origin(),
        }

    @property
    def heading(self) -> str:
        """The model, and at what privacy its data were published."""
        name = "Logistic" if self.columns.family == "logistic" else "Poisson"
        return f"{name} regression for {self.event}{self.info.published_at}"

    def called(self, name: str) -> str:
        """What people call a coefficient or a feature."""
        return name if name == self.predictor else super().called(name)

    def curves(self, name: str) -> dict[str, FloatArray]:
        """Draws of one coefficient."""
        return {AWARE: self.draws(name)}

    # --- files -----------------------------------------------------------------------------------

    def groups(self, *, auxiliary: bool = True) -> Groups:
        """The draws."""
        drawn = {"theta": self.theta, "slope": self.slope}
        coords = {"coefficient": list(self.names)}
        return Groups(posterior=dataset(drawn, coords, {"theta": ["coefficient"]}))

    def document(self) -> dict[str, Any]:
        """The model and how it was fitted."""
        return {
            **super().document(),
            "family": self.columns.family,
            "centre": self.centre.tolist(),
            "covariance": self.covariance.tolist(),
        }

    @classmethod
    def from_groups(cls, data: Arrays, document: dict[str, Any]) -> GlmPosterior:
        """Read back what `groups` and `document` gave."""
        columns, drawn = cls._columns_of(document), data["posterior"]
        size = len(columns.names)
        theta = shaped(drawn.get("theta"), None, None, size)
        slope = shaped(drawn.get("slope"), *theta.shape[:2])
        centre = typed(document["centre"], tuple[float, ...], "centre")
        covariance = typed(document["covariance"], tuple[tuple[float, ...], ...], "covariance")
        return cls(
            columns,
            theta,
            slope,
            shaped(np.array(centre, float), size),
            shaped(np.array(covariance, float), size, size),
            Fit.read(document["info"]),
        )
