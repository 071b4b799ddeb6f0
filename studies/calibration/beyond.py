"""Calibration beyond the papers' comfort: what becomes of it when an assumption fails.

Two settings of two covariates and Laplace noise: `noisy`, where privacy noise makes most of the
posterior's width (n = 1000, epsilon = 1), and, for some of the departures, `clear`, where it makes
little (n = 20,000, epsilon = 10):

- covariates that are uniform, binary or skewed, with means and covariances as assumed;
- rows that are really clipped, a little (3% of x, 2% of y) and a lot (14% of x, 6% of y);
- truths from another prior than methods have: coefficients twice as large, errors twice as large,
  covariates with a third of the expected spread.

`non_private` has the exact sums and the same prior. Where it is off too, the reason isn't privacy.

Methods assume normal covariates, rows that were not clipped, and truths drawn from their prior.
Here covariates are uniform, binary or skewed, rows are really clipped to [-1, 1], or truths come
from another prior than the one that methods are given. Everything else stays as it is in
`regression`, so that what is lost is lost to that one thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from noisewise.core.errors import RequestError
from noisewise.planning.truths import draw_covariate_law
from studies.calibration.trial import Cell
from studies.experiments import Experiment, Results
from studies.methods import Sampler
from studies.regression import Case, SimulatedRegression, draw_regression, gram, noise_scales
from studies.tables import Row

SETTINGS = {"noisy": (1000, 1.0), "clear": (20_000, 10.0)}
TRIALS = {"noisy": 200, "clear": 150}
MORE = {"beyond-noisy-skewed": 600}  # p = .0006 for a slope after 200, so 400 fresh ones were added
ALSO_CLEAR = ("none", "binary", "skewed", "clipped", "clipped-much")
METHODS = (
    Sampler("non_private", draws=100),
    Sampler("naive", draws=100),
    Sampler("exact", chains=1, draws=400, tune=300),
)
QUICK_METHODS = (
    Sampler("non_private", draws=50),
    Sampler("naive", draws=50),
    Sampler("exact", chains=1, draws=150, tune=200),
)
K = 2


def given_model(n: int, epsilon: float) -> SimulatedRegression:
    """Coefficients of sd .32, errors of sd .2 or so, covariates of sd .4: rows near the box."""
    return SimulatedRegression(
        NIGPrior(np.zeros(K + 1), 0.4 * np.eye(K + 1), 10.0, 0.36),
        NIWPrior(np.zeros(K), 5.0, 0.16 * 10 * np.eye(K), K + 1.0 + 10.0),
        "beyond",
        n,
        epsilon,
    )


def departures(given: SimulatedRegression) -> dict[str, BeyondRegression]:
    """By name, in the order of the table."""
    prior, covariates = given.prior, given.covariates

    def model(label: str, **changes: Any) -> BeyondRegression:
        return BeyondRegression(given, label, **changes)

    return {
        "none": model("none"),
        "uniform": model("uniform x", law="uniform"),
        "binary": model("binary x", law="binary"),
        "skewed": model("skewed x", law="skewed"),
        "clipped": model("clipped a little", clip=True),
        "clipped-much": model("clipped a lot", clip=True, spread=1.6),
        "large-coefficients": model(
            "coefficients twice as large",
            truth=NIGPrior(prior.mu0, prior.Lam0 / 4, prior.a0, prior.b0),
        ),
        "large-errors": model(
            "errors twice as large",
            truth=NIGPrior(prior.mu0, prior.Lam0 * 4, prior.a0, prior.b0 * 4),
        ),
        "small-covariates": model(
            "x with a third of its spread",
            truth_covariates=NIWPrior(
                covariates.m, covariates.lam, covariates.Psi / 9, covariates.nu
            ),
        ),
    }


def cells(quick: bool) -> list[Cell]:
    """Every departure where noise is large, some where it is small."""
    found = []
    for setting, (n, epsilon) in SETTINGS.items():
        if quick and setting == "clear":
            continue
        for name, model in departures(given_model(n, epsilon)).items():
            if quick and name not in ("none", "binary", "clipped-much"):
                continue
            if setting == "clear" and name not in ALSO_CLEAR:
                continue
            cell_name = f"{'quick-' if quick else ''}beyond-{setting}-{name}"
            found.append(
                Cell(cell_name, model, QUICK_METHODS, 20, 50)
                if quick
                else Cell(cell_name, model, METHODS, MORE.get(cell_name, TRIALS[setting]), 100)
            )
    return found


def draw(cells: Sequence[Cell], results: Results, rows: Sequence[Row], out: Path) -> list[Path]:
    """Rank plots."""
    from studies.figures import draw_ecdf_differences

    path = out / "calibration-beyond.png"
    draw_ecdf_differences(cells, results, path)
    return [path]


EXPERIMENT = Experiment(
    "calibration-beyond",
    "Calibration when an assumption fails: other covariates, clipped rows, another prior",
    cells,
    draw,
)


# --- the simulation -------------------------------------------------------------------------------


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
