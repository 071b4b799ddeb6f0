"""Calibration of the methods for several holders: what the fast ones lose.

Truth from the prior, J holders with equal numbers of rows, Gaussian noise as the holder's own code
plans it, the prior of `calibration_grid.broad_model`. One of the methods, `fixed_s_fast`, takes an
estimate of the error variance for known, so that only its coefficients can be judged: the ranks of
sigma2 in its lines mean nothing.

Rows are not clipped, and noise is calibrated for rows in [-1, 1]; see `studies.regression`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.planning.truths import draw_covariate_law
from studies.alparslan2023.data import with_noise
from studies.calibration.grid import broad_model
from studies.calibration.trial import Cell
from studies.experiments import Experiment, Results
from studies.figures import canvas, style
from studies.methods import ChainMethod, Pair
from studies.regression import (
    SimulatedRegression,
    draw_gram,
    draw_regression,
    noise_scales,
    sample_non_private,
)
from studies.tables import Row
from studies.uniformity import LEVELS

NAME = "calibration-distributed"
DELTA = 1e-6


class DistributedCase(NamedTuple):
    """One simulated federation."""

    truth: FloatArray  # (d + 1,), theta and sigma2
    A: FloatArray  # (P, P), exact sums over all holders
    released: list[Observation]


@dataclass(frozen=True, eq=False)
class Federation:
    """J holders with n rows each, which share one law.

    Parameters
    ----------
    one : SimulatedRegression
        A holder: priors, its number of rows and its mechanism.
    J : int
    """

    one: SimulatedRegression
    J: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the entries of the truth."""
        return self.one.parameters

    def factors(self) -> dict[str, Any]:
        """What varies from cell to cell, for tables."""
        return {"J": self.J, **self.one.factors()}

    def describe(self) -> dict[str, Any]:
        """Everything that decides the law of a simulation."""
        return {"J": self.J, **self.one.describe()}

    def means(self, rng: np.random.Generator, mu: FloatArray, T: FloatArray) -> FloatArray:
        """The covariates' mean at each holder, shape (J, k)."""
        return np.tile(mu, (self.J, 1))

    def simulate(self, rng: np.random.Generator) -> DistributedCase:
        """Parameters from the prior, each holder's sums from the model, noise."""
        one = self.one
        theta, sigma2 = draw_regression(one.prior, rng)
        mu, T = draw_covariate_law(one.covariates, rng)
        scales = noise_scales(one.k, one.epsilon, one.delta, one.layout, False)
        total = np.zeros((one.k + 2, one.k + 2))
        released = []
        for mean in self.means(rng, mu, T):
            A = draw_gram(rng, one.n, mean, T, theta, sigma2)
            scale = np.where(np.eye(len(A), dtype=bool), scales.diagonal, scales.off_diagonal)
            scale[0, 0] = 0.0
            released.append(Observation(one.n, with_noise(A, scale, rng), scale, "gaussian"))
            total += A
        return DistributedCase(np.append(theta, sigma2), total, released)


@dataclass(frozen=True)
class FederatedSampler(ChainMethod):
    """One of noisewise's methods for several holders.

    Parameters
    ----------
    name, chains, draws, tune
        As for every `ChainMethod`.
    thin : int
        Iterations for each draw; `normal_x` only.
    """

    thin: int = 1

    without_chains = ("non_private", "fixed_s_fast")

    @property
    def runners(self) -> Mapping[str, Callable[..., Pair]]:
        """Functions that draw, by name of the method."""
        return RUNNERS

    def sample(
        self, model: Federation, case: DistributedCase, seed: int, longer: int = 1
    ) -> FloatArray:
        """Draws of (theta, sigma2), shape (chains, draws, d + 1)."""
        thin = {"thin": self.thin} if self.name == "normal_x" else {}
        return self.run(model.one, case, self.options(seed, longer) | thin)


def _non_private(one: SimulatedRegression, case: DistributedCase, options: dict[str, Any]) -> Pair:
    return sample_non_private(case.A, one.prior, draws=options["draws"], seed=options["seed"])


def _exact(one: SimulatedRegression, case: DistributedCase, options: dict[str, Any]) -> Pair:
    from noisewise.analyst.regression.exact import sampler as exact

    drawn = exact.sample(case.released, one.prior, one.covariates, keep_covariates=False, **options)
    return drawn.theta, drawn.sigma2


def _gibbs(one: SimulatedRegression, case: DistributedCase, options: dict[str, Any]) -> Pair:
    from noisewise.analyst.regression.papers import gibbs

    drawn = gibbs.sample(case.released, one.prior, one.covariates, **options)
    return drawn.theta, drawn.sigma2


def _normal_x(one: SimulatedRegression, case: DistributedCase, options: dict[str, Any]) -> Pair:
    from noisewise.analyst.regression.papers import alparslan

    drawn = alparslan.sample(case.released, one.prior, one.covariates, **options)
    return drawn.theta, drawn.sigma2


def _fixed_s(aware: bool) -> Callable[[SimulatedRegression, DistributedCase, dict[str, Any]], Pair]:
    def run(one: SimulatedRegression, case: DistributedCase, options: dict[str, Any]) -> Pair:
        from noisewise.analyst.regression.papers import alparslan

        drawn = alparslan.sample(case.released, one.prior, account_for_s=aware, **options)
        return drawn.theta, drawn.sigma2

    return run


def _fixed_s_fast(one: SimulatedRegression, case: DistributedCase, options: dict[str, Any]) -> Pair:
    from noisewise.analyst.regression.papers import alparslan

    drawn = alparslan.sample_closed_form(
        case.released, one.prior, chains=1, draws=options["draws"], seed=options["seed"]
    )
    return drawn.theta, drawn.sigma2


RUNNERS: dict[str, Callable[[SimulatedRegression, DistributedCase, dict[str, Any]], Pair]] = {
    "non_private": _non_private,
    "exact": _exact,
    "bs_distributed": _gibbs,
    "normal_x": _normal_x,
    "fixed_s": _fixed_s(False),
    "fixed_s_aware": _fixed_s(True),
    "fixed_s_fast": _fixed_s_fast,
}
METHODS = (
    FederatedSampler("non_private", draws=100),
    FederatedSampler("exact", draws=300, tune=250),
    FederatedSampler("bs_distributed", draws=1500, tune=500),
    FederatedSampler("normal_x", draws=3000, tune=1000),
    FederatedSampler("fixed_s", draws=1500, tune=500),
    FederatedSampler("fixed_s_aware", draws=2000, tune=500),
    FederatedSampler("fixed_s_fast", draws=100),
)
QUICK_METHODS = (
    FederatedSampler("non_private", draws=50),
    FederatedSampler("exact", draws=120, tune=150),
    FederatedSampler("bs_distributed", draws=600, tune=200),
    FederatedSampler("normal_x", draws=1000, tune=500),
    FederatedSampler("fixed_s", draws=500, tune=200),
    FederatedSampler("fixed_s_aware", draws=500, tune=200),
    FederatedSampler("fixed_s_fast", draws=50),
)


def federation(J: int, d: int, n: int, epsilon: float) -> Federation:
    """J holders with n rows each, d coefficients with the intercept."""
    return Federation(broad_model(d - 1, n, epsilon, delta=DELTA), J)


def cells(quick: bool) -> list[Cell]:
    """d = 2 with moderate and with much noise, then d = 5; few rows, so that noise matters.

    With d = 5 `normal_x` needs 220,000 iterations for a hundred effective draws and more.
    """
    if quick:
        return [
            Cell(f"quick-J{J}", federation(J, 2, 300, 1.0), QUICK_METHODS, 10, ranked=40)
            for J in (1, 5)
        ]
    longer = FederatedSampler("normal_x", draws=5000, tune=20_000, thin=40)
    larger = tuple(longer if method.name == "normal_x" else method for method in METHODS)
    points = [(2, 300, 1.0, METHODS), (2, 1000, 0.1, METHODS), (5, 1000, 1.0, larger)]
    return [
        Cell(f"J{J}-d{d}-n{n}-eps{e:g}", federation(J, d, n, e), methods, 300, ranked=60)
        for d, n, e, methods in points
        for J in (1, 5, 10)
    ]


def draw(
    cells: Sequence[Cell], results: Results, rows: Sequence[Row], out: Path, name: str = NAME
) -> list[Path]:
    """Coverage of intervals for slopes against their level, a panel for each cell."""
    wide = min(3, len(cells))
    tall = -(-len(cells) // wide)
    figure = canvas(3.2 * wide, 2.9 * tall + 0.6)
    axes = figure.subplots(tall, wide, squeeze=False, sharex=True, sharey=True)
    methods = list(dict.fromkeys(method.name for cell in cells for method in cell.methods))
    for axis, cell in zip(axes.flat, cells, strict=False):
        axis.plot([0.5, 1], [0.5, 1], color="0.7", linewidth=0.8)
        for method in methods:
            group = [
                row
                for row in rows
                if (row["cell"], row["method"]) == (cell.name, method)
                and str(row["parameter"]).startswith("slope")
            ]
            if group:
                columns = [f"coverage_{round(100 * level)}" for level in LEVELS]
                means = [float(np.mean([row[column] for row in group])) for column in columns]
                axis.plot(LEVELS, means, **style(method))
        axis.set_title(cell.name, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("level of the interval", fontsize=8)
    for line in axes:
        line[0].set_ylabel("coverage of slopes", fontsize=8)
    handles = [axes[0, 0].plot([], [], label=m, **style(m))[0] for m in methods]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    path = out / f"{name}.png"
    figure.savefig(path, dpi=110)
    return [path]


EXPERIMENT = Experiment(
    NAME,
    "Ranks and coverage for J = 1, 5, 10 holders: exact, bs_distributed, normal_x, fixed_s",
    cells,
    draw,
)
