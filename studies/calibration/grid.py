"""The calibration study that is committed: the paper's design, and what lies beyond it.

- the paper's design: n = 10, 100, 1000 and epsilon = .01, .1, 1, 10 (`bs2019`);
- Gibbs-SS-Prior where its own assumption holds: rows are independent draws of a known law;
- many rows: n = 100,000;
- more covariates: d = 5 and d = 11 with Laplace and Gaussian noise, under a broader prior;
- one cell of that broader prior with d = 2 and 1000 trials, where a former study had a p-value of
  .005 for `exact`.

The paper's cell n = 100, epsilon = .1 has 1000 trials too: after 300, 95% intervals of the
intercept had covered 91.3%, so 700 fresh ones were added.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from studies.bs2019.fig3 import METHODS as PAPER_METHODS
from studies.bs2019.fig3 import QUICK_METHODS, ROWS, figure_cells, paper_model
from studies.calibration.trial import Cell
from studies.experiments import Experiment, Results
from studies.regression import SimulatedRegression
from studies.tables import Row

CORE = ("non_private", "naive", "exact", "gibbs_update")
_CORE_METHODS = tuple(method for method in PAPER_METHODS if method.name in CORE)
_DELTA = 1e-6


def broad_model(
    k: int,
    n: int,
    epsilon: float,
    *,
    delta: float = 0.0,
    layout: Literal["upper", "isometric"] = "upper",
) -> SimulatedRegression:
    """Error variance .2 on average, slopes and intercept of variance .4, covariates of 1/6."""
    return SimulatedRegression(
        NIGPrior(np.zeros(k + 1), 0.5 * np.eye(k + 1), 3.0, 0.4),
        NIWPrior(np.zeros(k), 1.0, (k + 2) / 6 * np.eye(k), 2.0 * k + 3.0),
        "broad",
        n,
        epsilon,
        delta,
        layout,
    )


def _higher(d: int) -> list[Cell]:
    n, k = 10_000, d - 1
    models = {
        "laplace-eps1": broad_model(k, n, 1.0),
        "gaussian-eps1": broad_model(k, n, 1.0, delta=_DELTA),
        "laplace-eps0.1": broad_model(k, n, 0.1),
        "isometric-eps0.1": broad_model(k, n, 0.1, delta=_DELTA, layout="isometric"),
    }
    return [
        Cell(f"d{d}-n{n}-{name}", model, _CORE_METHODS, ranked=200 if d < 8 else 100)
        for name, model in models.items()
    ]


def cells(quick: bool) -> list[Cell]:
    """All cells in order of importance."""
    if quick:
        small = Cell(
            "quick-d5", broad_model(4, 1000, 1.0, delta=_DELTA), QUICK_METHODS[:4], 20, ranked=50
        )
        return [*figure_cells(quick)[:2], small]
    settle = Cell("d2-n100-laplace-eps10-broad", broad_model(1, 100, 10.0), _CORE_METHODS, 1000)
    paper = [
        cell.with_trials(1000) if cell.name == "d2-n100-laplace-eps0.1" else cell
        for cell in figure_cells(False)
    ]
    many_rows = [
        Cell(
            f"d2-n100000-laplace-eps{epsilon:g}",
            paper_model(100_000, epsilon, fourth=False),
            _CORE_METHODS,
        )
        for epsilon in (0.01, 0.1, 1.0)
    ]
    own_right = [
        Cell(
            f"d2-n{n}-laplace-eps{epsilon:g}-independent",
            paper_model(n, epsilon, independent_rows=True, fourth=False),
            tuple(m for m in PAPER_METHODS if m.name in ("non_private", "gibbs_prior")),
        )
        for n in (10, 100, 1000)
        for epsilon in (0.1, 1.0)
    ]
    return [*paper[:4], settle, *paper[4:], *many_rows, *_higher(5), *own_right, *_higher(11)]


def draw(cells: Sequence[Cell], results: Results, rows: Sequence[Row], out: Path) -> list[Path]:
    """Rank plots: one picture for the paper's design, one for what lies beyond."""
    from studies.figures import draw_ecdf_differences

    paper = [cell for cell in cells if _is_of_the_paper(cell)]
    beyond = [cell for cell in cells if not _is_of_the_paper(cell)]
    paths = []
    for name, chosen in (("paper", paper), ("beyond", beyond)):
        if chosen:
            path = out / f"calibration-ranks-{name}.png"
            draw_ecdf_differences(chosen, results, path)
            paths.append(path)
    return paths


def _is_of_the_paper(cell: Cell) -> bool:
    factors = cell.model.factors()
    return factors["prior"] == "paper" and factors["rows"] == "shared" and factors["n"] in ROWS


EXPERIMENT = Experiment(
    "calibration",
    "Ranks, coverage and discrepancy of every method: the paper's design, many rows, d = 5 and 11",
    cells,
    draw,
)
