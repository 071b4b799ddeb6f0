"""Do intervals hold the truth when blocks fit models that aren't lines?

Rows are simulated from each model with a fixed coefficient, published by `noisewise.publish` with
the real noise, and the interval of the coefficient is asked for the truth. `all rows` is the same
model fitted by statsmodels without privacy: what there is to reach, and the unit of biases and
widths. The negative control takes the released numbers for exact (`noise_aware=False`).

Sizes are the smallest that `mean` accepts at epsilon = 2, so noise is at its largest there.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import noisewise as nw
from noisewise._arrays import FloatArray
from studies.report import Options, Report, kept_trials, published, seed_of, write_both
from studies.tables import Row, as_markdown, read_table
from studies.trials import Record

NAME = "block-models"
LEVEL, Z = 0.9, 1.6448536269514722
ROWS, EPSILON = 13_000, 2.0
TRIALS, QUICK_TRIALS = 60, 3
# Of what takes long, and of what 60 left open
OWN_TRIALS = {"cox": 8, "logistic": 180, "quantile": 180}
METHODS = ("all rows", "mean", "noise ignored")

Generator = np.random.Generator


class Case(NamedTuple):
    """A target given x, its true coefficient, and how all rows are fitted."""

    target: Callable[[Generator, FloatArray], FloatArray]
    truth: float
    fit: Callable[[FloatArray, FloatArray], Any]
    column: nw.Number | nw.Unbounded = nw.Unbounded(1.0)


def _logistic(rng: Generator, x: FloatArray) -> FloatArray:
    return (rng.random(x.size) < 1 / (1 + np.exp(0.5 - 0.8 * x))).astype(np.float64)


def _rare(rng: Generator, x: FloatArray) -> FloatArray:
    """One in fifteen: a half of a block has three or four."""
    return (rng.random(x.size) < 1 / (1 + np.exp(3 - 0.8 * x))).astype(np.float64)


def _poisson(rng: Generator, x: FloatArray) -> FloatArray:
    return rng.poisson(np.exp(0.5 + 0.4 * x)).astype(np.float64)


def _skewed(rng: Generator, x: FloatArray) -> FloatArray:
    """Errors whose median is zero, and not their mean."""
    return 1 + 2 * x + rng.exponential(size=x.size) - math.log(2)


def _heavy(rng: Generator, x: FloatArray) -> FloatArray:
    return 1 + 2 * x + rng.standard_t(3, size=x.size)


def _times(rng: Generator, x: FloatArray) -> FloatArray:
    """Negative where the event wasn't seen, which is so for about a third."""
    event, end = rng.exponential(np.exp(-0.7 * x)), rng.exponential(2.0, size=x.size)
    return np.where(event <= end, event, -end)


def _by(name: str) -> Callable[[FloatArray, FloatArray], Any]:
    """Fit all rows by statsmodels."""

    def fit(x: FloatArray, y: FloatArray) -> Any:
        import statsmodels.api as sm

        X = sm.add_constant(x)
        if name == "logistic":
            return sm.GLM(y, X, family=sm.families.Binomial()).fit()
        if name == "poisson":
            return sm.GLM(y, X, family=sm.families.Poisson()).fit()
        if name == "quantile":
            return sm.QuantReg(y, X).fit(q=0.5)
        if name == "huber":
            return sm.RLM(y, X, M=sm.robust.norms.HuberT()).fit()
        return sm.PHReg(np.abs(y), x, status=(y > 0).astype(int), ties="efron").fit(disp=0)

    return fit


CASES: Mapping[str, Case] = {
    "logistic": Case(_logistic, 0.8, _by("logistic"), nw.Number(0, 1)),
    "logistic, rare": Case(_rare, 0.8, _by("logistic"), nw.Number(0, 1)),
    "poisson": Case(_poisson, 0.4, _by("poisson")),
    "quantile": Case(_skewed, 2.0, _by("quantile")),
    "huber": Case(_heavy, 2.0, _by("huber")),
    "cox": Case(_times, 0.7, _by("cox")),
}


def trial(model: str, number: int) -> Record:
    """Ends of the intervals by every method, on one table."""
    case = CASES[model]
    rng = np.random.default_rng(seed_of(NAME, model, number))
    x = rng.standard_normal(ROWS)
    y = case.target(rng, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = case.fit(x, y)
    estimate, error = float(fitted.params[-1]), float(fitted.bse[-1])
    schema = nw.Schema("rows", {"x": nw.Unbounded(1.0), "y": case.column})
    request = nw.make_summary_request(
        schema,
        target="y",
        features=["x"],
        coefficients=["x"],
        model=model.partition(",")[0],
        epsilon=EPSILON,
        rows=ROWS,
    )
    posterior: Any = nw.fit(published(request, {"x": x, "y": y}))
    return {
        "trial": number,
        "blocks": request.blocks,
        "all rows": [estimate - Z * error, estimate + Z * error],
        "mean": list(posterior.interval("x", LEVEL)),
        "noise ignored": list(posterior.interval("x", LEVEL, noise_aware=False)),
    }


def table_of(results: Mapping[str, Sequence[Record]]) -> list[Row]:
    """A line a model and method."""
    rows: list[Row] = []
    for model, records in results.items():
        truth = CASES[model].truth
        unit = float(np.std([sum(record["all rows"]) / 2 for record in records], ddof=1))
        for method in METHODS:
            low, high = np.array([record[method] for record in records]).T
            rows.append(
                {
                    "model": model,
                    "truth": truth,
                    "n": ROWS,
                    "epsilon": EPSILON,
                    "blocks": records[0]["blocks"] if method != METHODS[0] else "",
                    "method": method,
                    "trials": len(records),
                    "held": round(float(np.mean((low <= truth) & (truth <= high))), 4),
                    "held_error": round(math.sqrt(LEVEL * (1 - LEVEL) / len(records)), 4),
                    "bias": round(float(np.median((low + high) / 2) - truth) / unit, 3),
                    "width": round(float(np.median(high - low)) / (2 * Z * unit), 3),
                }
            )
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """Coverage, and bias and width in brackets."""
    above = (
        f"How often {LEVEL:.0%} intervals held the coefficient, with Monte Carlo standard errors; "
        "in brackets the median error and width, in standard deviations and widths of a fit of all "
        f"rows. n = {ROWS:,}, epsilon = {EPSILON:g}, {rows[1]['blocks']} blocks.\n\n"
    )
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        here = {row["method"]: row for row in rows if row["model"] == model}
        shown = [f"{r['held']:.3f} ({r['bias']:+.2f}, {r['width']:.2f})" for r in here.values()]
        mean = here["mean"]
        error = f"{mean['held_error']:.3f}"
        lines.append((model, f"{mean['truth']:g}", mean["trials"], error, *shown))
    head = " | ".join(("model", "coefficient", "trials", "error", *METHODS))
    return as_markdown(head, lines, above)


def write(out: Path, options: Options) -> list[Path]:
    """Run what is missing, and write the table.

    With ``model`` given, only that runs; lines of others stay as they are in `out`.
    """
    cases = list(CASES)[:2] if options.quick else list(CASES)
    table = out / f"{NAME}.csv"
    before: list[Row] = []
    if "model" in options.settings:
        cases = [model for model in CASES if model == options.settings["model"]]
        before = read_table(table) if table.exists() else []
    results = {
        model: kept_trials(
            f"{NAME}-{model}",
            partial(trial, model),
            options.runs or (QUICK_TRIALS if options.quick else OWN_TRIALS.get(model, TRIALS)),
            {"model": model},
            out,
            options,
        )
        for model in cases
    }
    rows = table_of(results) + [row for row in before if row["model"] not in results]
    rows.sort(key=lambda row: list(CASES).index(row["model"]))
    return write_both(rows, markdown, NAME, out)


EXPERIMENT = Report(
    NAME,
    "Intervals from blocks that fit logistic, Poisson, quantile, Huber and Cox models.",
    write,
    settings=("model",),
)
