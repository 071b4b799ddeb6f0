"""Figure 4 of Bernstein & Sheldon (2019): predictions on real data, drinking and cirrhosis.

46 states' consumption of wine and deaths by cirrhosis, split at random into 36 rows that are
released and 10 whose deaths are predicted, 100 times. What counts is how often central 50% and 90%
predictive intervals hold the truth. As in the paper, both columns are scaled by their own smallest
and largest value ("not differentially private, but standard"; a real schema's bounds are public),
and theta, sigma2 ~ NIG([0, 1], diag(.25, .25), 20, .5) on [0, 1], intercept first here.

What differs from the paper: noise is calibrated to the tight sensitivity on [-1, 1]; `gibbs_noisy`
gets its fourth moments from a release that has half of the budget, where the authors' code hands
it exact ones; `exact` and `gibbs_update` are added, with the default prior of the covariate; and
the covariate is wine (the file has liquor too, and the paper says "drinking rate").

The file ``cirrhosis.csv`` (a header, then wine, liquor, cirrhosis) is looked for where
those of `alparslan2023.data` are. The project holds no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import ModelColumns, Observation
from noisewise.analyst.regression.original_units import regression_to_unit
from noisewise.analyst.regression.papers.moments import FourthMomentObservation
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from noisewise.core.errors import RequestError
from noisewise.core.schema import Number, Schema
from studies.alparslan2023.data import VARIABLE, data_folder
from studies.bs2019 import fig3 as bs2019
from studies.calibration.trial import Cell, Record, spread_ranks
from studies.experiments import DataAbsentError, Experiment, Results
from studies.methods import Sampler
from studies.regression import SimulatedRegression, gram, noise_scales
from studies.tables import Row, as_markdown, short
from studies.uniformity import coverage

FILE = "cirrhosis.csv"
TRAINING, TEST = 36, 10
EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
LEVELS = (0.5, 0.9)


@lru_cache(maxsize=1)
def unit_rows() -> FloatArray:
    """Wine and cirrhosis on [-1, 1], shape (46, 2)."""
    path = data_folder() / FILE
    if not path.exists():
        raise DataAbsentError(
            f"experiment: bs2019-fig4 needs {FILE}, which is not in {data_folder()}; set "
            f"{VARIABLE} to the folder that holds it"
        )
    rows = np.loadtxt(path, delimiter=",", skiprows=1)
    if rows.shape != (TRAINING + TEST, 3):
        raise RequestError(f"data: {FILE} must have 46 rows of wine, liquor and cirrhosis")
    chosen = rows[:, [0, 2]]
    low, high = chosen.min(axis=0), chosen.max(axis=0)
    return np.asarray(2 * (chosen - low) / (high - low) - 1, dtype=np.float64)


class Split(NamedTuple):
    """36 rows released, 10 to be predicted; the fields of a `regression.Case`, and x of the 10."""

    truth: FloatArray  # (10,)
    x: FloatArray  # (10,)
    A: FloatArray
    released: Observation
    released_halved: Observation
    fourth: FourthMomentObservation


@dataclass(frozen=True)
class Cirrhosis:
    """The data and the mechanism; a `Model` of calibration studies."""

    epsilon: float

    @property
    def prior(self) -> NIGPrior:
        """The paper's on [0, 1], brought to unit scale."""
        schema = Schema("states", {"wine": Number(0, 1), "cirrhosis": Number(0, 1)})
        columns = ModelColumns(schema, ("wine",), "cirrhosis")
        paper = NIGPrior(np.array([0.0, 1.0]), 0.25 * np.eye(2), 20.0, 0.5)
        prior = regression_to_unit(paper, columns)
        assert isinstance(prior, NIGPrior)
        return prior

    @property
    def covariates(self) -> NIWPrior:
        """The default."""
        return NIWPrior.weakly_informative(1)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The test points, in order."""
        return tuple(f"test_{number}" for number in range(1, TEST + 1))

    def factors(self) -> dict[str, Any]:
        """For tables."""
        return {"n": TRAINING, "mechanism": "laplace", "epsilon": self.epsilon}

    def describe(self) -> dict[str, Any]:
        """Everything that decides a split and its noise."""
        return {**self.factors(), "data": FILE, "test": TEST}

    def simulate(self, rng: np.random.Generator) -> Split:
        """Split at random, and release the training rows."""
        rows = unit_rows()[rng.permutation(TRAINING + TEST)]
        train, test = rows[:TRAINING], rows[TRAINING:]
        # The releases of a simulated regression, on real rows.
        model = SimulatedRegression(
            self.prior, self.covariates, "cirrhosis", TRAINING, self.epsilon, fourth=True
        )
        A = gram(train[:, :1], train[:, 1])
        whole = noise_scales(1, self.epsilon, 0.0, "upper", False)
        half = noise_scales(1, self.epsilon, 0.0, "upper", True)
        return Split(
            test[:, 1],
            test[:, 0],
            A,
            model.release(A, whole, rng),
            model.release(A, half, rng),
            model.release_fourth(train[:, :1], half, rng),
        )


@dataclass(frozen=True)
class Predictive:
    """Draws of the test points by one of the methods."""

    sampler: Sampler

    @property
    def name(self) -> str:
        """That of the method."""
        return self.sampler.name

    @property
    def independent(self) -> bool:
        """That of the method."""
        return self.sampler.independent

    def describe(self) -> dict[str, Any]:
        """Everything that decides the draws."""
        return self.sampler.describe()

    def sample(self, model: Cirrhosis, case: Split, seed: int, longer: int = 1) -> FloatArray:
        """Draws, shape (chains, draws, 10)."""
        drawn = self.sampler.sample(model, case, seed, longer)  # type: ignore[arg-type]
        rng = np.random.default_rng([seed, 4])
        line = drawn[..., :1] + drawn[..., 1:2] * case.x
        return np.asarray(line + np.sqrt(drawn[..., 2:]) * rng.standard_normal(line.shape))


# Chains are as long as for figure 3. `gibbs_prior` would have to be told the covariate's law.
METHODS = (
    Sampler("non_private", draws=400),
    Sampler("naive", draws=400),
    *(s for s in bs2019.METHODS if not s.independent and s.name != "gibbs_prior"),
)
QUICK_METHODS = (
    Sampler("non_private", draws=100),
    Sampler("naive", draws=100),
    Sampler("exact", chains=1, draws=200, tune=200),
    Sampler("gibbs_noisy", chains=1, draws=1000, tune=200),
)


def cells(quick: bool) -> list[Cell]:
    """One for each epsilon."""
    unit_rows()  # say that the file is missing before anything is run
    if quick:
        methods = tuple(Predictive(sampler) for sampler in QUICK_METHODS)
        return [
            Cell(f"quick-cirrhosis-eps{e:g}", Cirrhosis(e), methods, trials=10, ranked=50)
            for e in (0.01, 0.1, 1.0)
        ]
    methods = tuple(Predictive(sampler) for sampler in METHODS)
    return [Cell(f"cirrhosis-eps{e:g}", Cirrhosis(e), methods, trials=100) for e in EPSILONS]


def summarise(cell: Cell, records: Sequence[Record]) -> list[Row]:
    """Coverage over all test points of all splits.

    Points of one split share their training rows, so the error is taken over splits.
    """
    rows: list[Row] = []
    for method in cell.methods:
        u = spread_ranks(records, method.name)
        failed = len(records) - len(u)
        row: Row = {
            "cell": cell.name,
            **cell.model.factors(),
            "method": method.name,
            "splits": len(u),
            "failed": failed,
        }
        for level in LEVELS if len(u) else ():
            by_split = (np.abs(u - 0.5) < level / 2).mean(axis=1)
            percent = round(100 * level)
            row[f"coverage_{percent}"] = short(coverage(u, level))
            row[f"coverage_{percent}_error"] = float(
                f"{by_split.std(ddof=1) / len(u) ** 0.5:.2g}" if len(u) > 1 else "nan"
            )
        rows.append(row)
    return rows


def readable(rows: Sequence[Row]) -> str:
    """Markdown: a line an epsilon, a column a method, coverage of 50% and 90% intervals."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        here = {row["method"]: row for row in rows if row["epsilon"] == epsilon}
        entries = [
            f"{here[m].get('coverage_50', float('nan')):.3f}, "
            f"{here[m].get('coverage_90', float('nan')):.3f}"
            for m in methods
        ]
        lines.append((f"{epsilon:g}", *entries))
    return as_markdown(" | ".join(("epsilon", *methods)), lines)


def draw(cells: Sequence[Cell], results: Results, rows: Sequence[Row], out: Path) -> list[Path]:
    """Coverage against epsilon, a panel a level."""
    from studies.figures import canvas, style

    figure = canvas(8, 3.4)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, level in zip(axes, LEVELS, strict=True):
        key = f"coverage_{round(100 * level)}"
        axis.axhline(level, color="0.6", linewidth=1)
        for method in dict.fromkeys(row["method"] for row in rows):
            points = sorted((r["epsilon"], r) for r in rows if r["method"] == method and key in r)
            axis.errorbar(
                [epsilon for epsilon, _ in points],
                [row[key] for _, row in points],
                yerr=[2 * row[f"{key}_error"] for _, row in points],
                label=method,
                **style(method),
            )
        axis.set(xscale="log", xlabel="epsilon", title=f"{100 * level:g}% predictive intervals")
    axes[0].set(ylim=(0, 1.02), ylabel="coverage")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
    path = out / "bs2019-fig4.png"
    figure.savefig(path, dpi=110)
    return [path]


EXPERIMENT = Experiment(
    "bs2019-fig4",
    "Figure 4 of Bernstein & Sheldon (2019): predictive coverage on the cirrhosis data",
    cells,
    draw,
    summarise,
    readable,
)
