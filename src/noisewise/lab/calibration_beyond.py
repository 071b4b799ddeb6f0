"""Calibration beyond the papers' comfort: what becomes of it when an assumption fails.

Two settings of two covariates and Laplace noise: `noisy`, where privacy noise makes most of the
posterior's width (n = 1000, epsilon = 1), and, for some of the departures, `clear`, where it makes
little (n = 20,000, epsilon = 10):

- covariates that are uniform, binary or skewed, with means and covariances as assumed;
- rows that are really clipped, a little (3% of x, 2% of y) and a lot (14% of x, 6% of y);
- truths from another prior than methods have: coefficients twice as large, errors twice as large,
  covariates with a third of the expected spread.

`non_private` has the exact sums and the same prior. Where it is off too, the reason isn't privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from noisewise.lab.calibration import Cell
from noisewise.lab.experiments import Experiment, Results
from noisewise.lab.methods import Sampler
from noisewise.lab.regression import SimulatedRegression
from noisewise.lab.regression_beyond import BeyondRegression
from noisewise.lab.table import Row

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
    from noisewise.lab.figures import draw_ecdf_differences

    path = out / "calibration-beyond.png"
    draw_ecdf_differences(cells, results, path)
    return [path]


EXPERIMENT = Experiment(
    "calibration-beyond",
    "Calibration when an assumption fails: other covariates, clipped rows, another prior",
    cells,
    draw,
)
