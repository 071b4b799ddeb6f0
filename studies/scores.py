"""Logistic and Poisson regressions by private rounds: coverage, error, and a control that fails.

Rows are simulated with known coefficients, go through all rounds as at a holder's at (1, 1e-6), and
are fitted with two chains of 400 draws, else by the defaults. The control takes the same last round
for noiseless. Real tables are published again and again as they are; there the maximum likelihood
estimate from all rows stands for the truth, which intervals hold more often than they claim,
because it varies less than the truth does. Or as many rows are drawn from them with replacement, as
from a population whose truth that estimate is. Errors and widths are in standard errors of that
estimate. The noise of a Release takes no seed, so a second run differs by that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.glm.fit import fit_glm
from noisewise.analyst.posterior.glm import GlmPosterior
from noisewise.core.design import Family
from noisewise.core.kinds.glm import GlmRelease
from noisewise.core.kinds.rounds import is_number
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.glm import GlmRequest, make_glm_request
from studies.report import Grid, seed_of
from studies.tables import Row, as_markdown
from studies.trials import Record

NAME = "scores"
TRIALS, QUICK_TRIALS = 60, 3
LEVELS = (0.5, 0.8, 0.95)


class Setting(NamedTuple):
    """One cell.

    Parameters
    ----------
    x : str
        What the covariates are like: normal, correlated, skewed (lognormal), yes_no (every other
        one is a category); or a real table, rand or fair, or rows drawn from it (rand_drawn).
    n, k : int
        Rows and covariates of simulated tables.
    rare : bool
        Whether 5% have the event, else about 40%.
    family : {"logistic", "poisson"}
    bound : int
        Of counts. They have a mean of about 1.7 with 3 covariates, and 2.3 with 5.
    """

    x: str
    n: int = 0
    k: int = 0
    rare: bool = False
    family: Family = "logistic"
    bound: int = 5


GRID = (
    Setting("normal", 2000, 1),
    Setting("normal", 2000, 5),
    Setting("normal", 2000, 11),
    Setting("normal", 5000, 5),
    Setting("normal", 20_000, 5),
    Setting("correlated", 20_000, 5),
    Setting("skewed", 20_000, 5),
    Setting("yes_no", 20_000, 5),
    Setting("normal", 5000, 5, rare=True),
    Setting("normal", 20_000, 5, rare=True),
    Setting("normal", 20_000, 11),
    Setting("normal", 100_000, 1),
    Setting("normal", 100_000, 5),
    Setting("skewed", 100_000, 11, rare=True),
    Setting("normal", 5000, 3, family="poisson"),
    Setting("normal", 20_000, 3, family="poisson", bound=15),
    Setting("yes_no", 20_000, 5, family="poisson"),
    Setting("rand"),
    Setting("fair"),
    Setting("rand_drawn"),
    Setting("fair_drawn"),
)
QUICK_GRID = (GRID[0], Setting("normal", 5000, 3, family="poisson"))


class Table(NamedTuple):
    """Columns as an engine gives them, their schema, and the same as a regression sees them."""

    columns: dict[str, Any]
    schema: Schema
    x: FloatArray  # (n, d), with the constant
    y: FloatArray  # (n,)
    truth: FloatArray | None  # (d,), of simulated tables and rows drawn from real ones


_RARE = {"normal": -3.55, "skewed": -3.9}  # 5% have the event, of 5 and of 11 covariates


def simulated(setting: Setting, rng: np.random.Generator) -> Table:
    """A table with known coefficients."""
    n, k = setting.n, setting.k
    x = rng.standard_normal((n, k))
    if setting.x == "correlated":
        x = np.sqrt(0.4) * x + np.sqrt(0.6) * rng.standard_normal((n, 1))
    elif setting.x == "skewed":
        x = np.exp(0.8 * x) - np.exp(0.32)
    columns: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    for j in range(k):
        columns[f"x{j}"], declared[f"x{j}"] = x[:, j], Number(-20, 20)
        if setting.x == "yes_no" and j % 2 == 0:
            x[:, j] = x[:, j] > 0.5
            columns[f"x{j}"], declared[f"x{j}"] = x[:, j].astype(np.int32), _yes_or_no()
    slopes = 0.6 * (-1.0) ** np.arange(k) / np.sqrt(max(1.0, k / 4))
    intercept = _RARE[setting.x] if setting.rare else 0.0 if setting.family == "poisson" else -0.5
    eta = intercept + x @ slopes
    if setting.family == "logistic":
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(np.int32)
        columns["y"], declared["y"] = y, _yes_or_no()
    else:
        y = rng.poisson(np.exp(eta))
        columns["y"], declared["y"] = y.astype(np.float64), Number(0, setting.bound)
    matrix = np.column_stack([np.ones(n), x])
    schema = Schema("simulated", declared)
    return Table(columns, schema, matrix, y.astype(np.float64), np.append(intercept, slopes))


def _yes_or_no() -> Category:
    return Category(("no", "yes"), "no")


# By column, its public bounds.
_RAND = {"lncoins": (0, 4.62), "physlm": (0, 1), "disea": (0, 60), "lpi": (-1, 8), "fmde": (0, 9)}
_FAIR = {
    "rate_marriage": (1, 5),
    "age": (15, 60),
    "yrs_married": (0, 40),
    "children": (0, 8),
    "religious": (1, 4),
    "educ": (8, 22),
}


def real(name: str, rng: np.random.Generator) -> Table:
    """RAND, more than two visits to a doctor; or Fair, any affair."""
    from statsmodels import datasets

    if name.startswith("rand"):
        found, bounds = datasets.randhie.load_pandas().data, _RAND
        y = found["mdvis"].to_numpy() > 2
    else:
        found, bounds = datasets.fair.load_pandas().data, _FAIR
        y = found["affairs"].to_numpy() > 0
    columns: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    for column, (low, high) in bounds.items():
        columns[column] = np.clip(found[column].to_numpy(dtype=np.float64), low, high)
        declared[column] = Number(low, high)
    matrix = np.column_stack([np.ones(len(y)), *columns.values()])
    columns["y"], declared["y"] = y.astype(np.int32), _yes_or_no()
    table = Table(columns, Schema(name, declared), matrix, y.astype(np.float64), None)
    if not name.endswith("_drawn"):
        return table
    rows = rng.integers(0, len(y), len(y))
    drawn = {column: values[rows] for column, values in columns.items()}
    truth, _ = most_likely(table, "logistic")
    return Table(drawn, table.schema, matrix[rows], table.y[rows], truth)


def released(request: GlmRequest, columns: dict[str, Any]) -> GlmRelease:
    """Through all rounds as `publish` goes, without a ledger."""

    def sums(plan: Any) -> Any:
        accumulator = plan.accumulator()
        accumulator.add([columns[name] for name in plan.sources])
        return accumulator.result()

    first = sums(request.plan())
    drawn: GlmRelease | str = request.begin(first.n, first)
    kept: list[str] = []
    while isinstance(drawn, str):
        kept.append(drawn)
        step = request.next_step(kept)
        drawn = request.draw(kept, step, sums(request.step_plan(step)))
    return drawn


def most_likely(table: Table, family: Family) -> tuple[FloatArray, FloatArray]:
    """The maximum likelihood estimate from the rows, and its standard errors."""
    mean: Callable[[FloatArray], FloatArray]
    if family == "logistic":
        mean = lambda eta: 1 / (1 + np.exp(-eta))  # noqa: E731
    else:
        mean = lambda eta: np.exp(np.minimum(eta, 30.0))  # noqa: E731
    beta = np.zeros(table.x.shape[1])
    for _ in range(50):
        expected = mean(table.x @ beta)
        slope = expected * (1 - expected) if family == "logistic" else expected
        information = (table.x.T * slope) @ table.x
        step = np.linalg.solve(information, table.x.T @ (table.y - expected))
        beta = beta + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    return beta, np.sqrt(np.linalg.inv(information).diagonal())


def as_if_noiseless(release: GlmRelease, posterior: GlmPosterior) -> tuple[FloatArray, FloatArray]:
    """Estimates and standard errors from the last round, in original units."""
    last, K = release.last, release.shape.map(is_number(release.design.covariates))
    information = last.within_noise()
    to_original = posterior.columns.theta_to_original(K).T
    centre = to_original @ (last.theta + np.linalg.solve(information, last.score))
    covariance = to_original @ np.linalg.inv(information) @ to_original.T
    return centre, np.sqrt(covariance.diagonal())


def trial(setting: Setting, number: int) -> Record:
    """One table, published and fitted."""
    rng = np.random.default_rng(seed_of(NAME, *map(str, setting), number))
    table = simulated(setting, rng) if setting.n else real(setting.x, rng)
    features = [name for name in table.schema.columns if name != "y"]
    request = make_glm_request(
        table.schema, family=setting.family, target="y", features=features, epsilon=1, delta="1e-6"
    )
    release = released(request, table.columns)
    start = time.process_time()
    posterior = fit_glm(release, chains=2, draws=400, seed=number)
    seconds = time.process_time() - start
    best, se = most_likely(table, setting.family)
    truth = best if table.truth is None else table.truth
    names = posterior.names
    ends = np.array([[posterior.interval(name, level) for name in names] for level in LEVELS])
    rows = posterior.summary().rows
    middle = np.array([rows[name].median for name in names])
    centre, own = as_if_noiseless(release, posterior)
    return {
        "trial": number,
        "seconds": seconds,
        "looks": len(release.looks),
        "held": ((ends[..., 0] < truth) & (truth < ends[..., 1])).tolist(),
        "control": (np.abs(centre - truth) < 1.96 * own).tolist(),
        "width": ((ends[-1, :, 1] - ends[-1, :, 0]) / (3.92 * se)).tolist(),
        "error": ((middle - best) / se).tolist(),
        "effective": min(row.ess for row in rows.values()),
        "warned": bool(posterior.warnings),
    }


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line of the table."""
    rare = ", 5%" if setting.rare else ""
    rare += f", up to {setting.bound}" if setting.family == "poisson" else ""
    size = f", n = {setting.n:,}, k = {setting.k}{rare}" if setting.n else ""
    row: Row = {"cell": f"{setting.family}, {setting.x}{size}", "trials": len(records)}
    held = np.array([one["held"] for one in records])
    for level, share in zip(LEVELS, held.mean(axis=(0, 2)), strict=True):
        row[f"held_{level:g}"] = round(float(share), 3)
    row["least_held"] = round(float(held[:, -1].mean(axis=0).min()), 3)
    row["control"] = round(float(np.mean([one["control"] for one in records])), 3)
    row["width"] = round(float(np.median([one["width"] for one in records])), 2)
    row["rmse"] = round(float(np.sqrt(np.mean(np.square([one["error"] for one in records])))), 2)
    row["effective"] = round(min(one["effective"] for one in records))
    row["warned"] = sum(bool(one["warned"]) for one in records)
    row["seconds"] = round(float(np.median([one["seconds"] for one in records])), 1)
    return row


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell."""
    lines = []
    for row in rows:
        held = ", ".join(f"{100 * row[f'held_{level:g}']:.0f}" for level in LEVELS)
        shown = f"{held}% ({100 * row['least_held']:.0f}%)", f"{100 * row['control']:.0f}%"
        run = row["effective"], row["warned"], f"{row['seconds']:g}"
        lines.append(
            (row["cell"], row["trials"], *shown, f"{row['width']:g}, {row['rmse']:g}", *run)
        )
    return as_markdown(
        "cell | trials | truth held at 50, 80, 95% (least coefficient) | without the noise's part "
        "| width, RMSE | least effective draws | warned | seconds",
        lines,
    )


EXPERIMENT = Grid(
    NAME, GRID, QUICK_GRID, trial, lambda _: TRIALS, QUICK_TRIALS, row_of, markdown
).report("Coverage and error of logistic and Poisson regressions by private rounds, and a control")
