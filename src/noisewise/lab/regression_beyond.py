"""Simulated regressions that break what a noise-aware posterior assumes, one thing at a time.

Methods assume normal covariates, rows that were not clipped, and truths drawn from their prior.
Here covariates are uniform, binary or skewed, rows are really clipped to [-1, 1], or truths come
from another prior than the one that methods are given. Everything else stays as it is in
`regression`, so that what is lost is lost to that one thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from noisewise.core.errors import RequestError
from noisewise.lab.non_private import gram
from noisewise.lab.regression import (
    Case,
    SimulatedRegression,
    draw_covariate_law,
    draw_regression,
    noise_scales,
)

Law = Literal["normal", "uniform", "binary", "skewed"]
LAWS = ("normal", "uniform", "binary", "skewed")


@dataclass(frozen=True, eq=False)
class BeyondRegression:
    """A regression with another law of rows or of truths than methods are told.

    Parameters
    ----------
    given : SimulatedRegression
        What methods are told: priors, n, epsilon and noise.
    label : str
        What tables call this departure.
    law : {"normal", "uniform", "binary", "skewed"}
        Of the covariates; their mean and covariance are drawn as methods assume. Columns are
        mixed to get that covariance, so only the first has the law in its purity.
    spread : float
        Covariates and errors are this many times as wide, coefficients as they are.
    clip : bool
        Whether rows are clipped to [-1, 1] before they are summed.
    truth : NIGPrior, optional
        Where truths come from; that of `given` by default.
    truth_covariates : NIWPrior, optional
        Where the mean and covariance of normal covariates come from.
    """

    given: SimulatedRegression
    label: str
    law: Law = "normal"
    spread: float = 1.0
    clip: bool = False
    truth: NIGPrior | None = None
    truth_covariates: NIWPrior | None = None

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise RequestError(f"law: {self.law!r} is unknown; use one of {', '.join(LAWS)}")

    @property
    def prior(self) -> NIGPrior:
        """What methods are told."""
        return self.given.prior

    @property
    def covariates(self) -> NIWPrior:
        """What methods are told."""
        return self.given.covariates

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the entries of `Case.truth`."""
        return self.given.parameters

    def factors(self) -> dict[str, Any]:
        """For tables."""
        return {**self.given.factors(), "departure": self.label}

    def describe(self) -> dict[str, Any]:
        """Everything that decides the law of a simulation, as plain data."""
        truth, covariates = self.truth, self.truth_covariates
        return {
            **self.given.describe(),
            "departure": self.label,
            "law": f"{self.law}, standardised",
            "spread": self.spread,
            "clip": self.clip,
            "truth": None
            if truth is None
            else [truth.mu0.tolist(), truth.Lam0.tolist(), truth.a0, truth.b0],
            "truth_covariates": None
            if covariates is None
            else [covariates.m.tolist(), covariates.lam, covariates.Psi.tolist(), covariates.nu],
        }

    def rows(
        self, theta: FloatArray, sigma2: float, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """x (n, k) and y (n,) as they are, before clipping."""
        x = self.spread * self._covariates(rng)
        error = self.spread * np.sqrt(sigma2) * rng.standard_normal(self.given.n)
        return x, theta[0] + x @ theta[1:] + error

    def simulate(self, rng: np.random.Generator) -> Case:
        """As `SimulatedRegression.simulate`, from rows of another law."""
        model = self.given
        theta, sigma2 = draw_regression(self.truth or model.prior, rng)
        x, y = self.rows(theta, sigma2, rng)
        if self.clip:
            x, y = np.clip(x, -1.0, 1.0), np.clip(y, -1.0, 1.0)
        A = gram(x, y)
        whole = noise_scales(model.k, model.epsilon, model.delta, model.layout, False)
        released = model.release(A, whole, rng)
        truth = np.append(theta, sigma2 * self.spread**2)
        if not model.fourth:
            return Case(truth, A, released, None, None)
        half = noise_scales(model.k, model.epsilon, model.delta, model.layout, True)
        return Case(
            truth, A, released, model.release(A, half, rng), model.release_fourth(x, half, rng)
        )

    def _covariates(self, rng: np.random.Generator) -> FloatArray:
        """Rows with the mean and covariance that were drawn, whatever their law."""
        n, k = self.given.n, self.given.k
        mu, T = draw_covariate_law(self.truth_covariates or self.covariates, rng)
        if self.law == "uniform":
            z = np.sqrt(3.0) * rng.uniform(-1, 1, (n, k))
        elif self.law == "binary":  # with a probability of its own for every column
            p = rng.uniform(0.1, 0.9, k)
            z = ((rng.uniform(size=(n, k)) < p) - p) / np.sqrt(p * (1 - p))
        elif self.law == "skewed":  # exponential: skewness 2
            z = rng.exponential(size=(n, k)) - 1.0
        else:
            z = rng.standard_normal((n, k))
        return np.asarray(mu + z @ np.linalg.cholesky(T).T)
