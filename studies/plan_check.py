"""Whether plans come true: predicted against realised posterior widths.

For every cell of a grid of n, number of covariates, epsilon and mechanism, the same possible truths
that the plan averages over are made real: sums are drawn from their exact law at each truth, noise
is added as a Release would have it, and `exact` draws from the posterior. The plan sees none of
that. Compared are the geometric means over truths of posterior standard deviations.

A second grid has rows in balls and many covariates. Rows in a ball aren't normal, whatever the
plan and the analyst's model take them for: there the rows themselves are drawn and forced. A third
has Releases in rounds, which are published and fitted as users would, by defaults alone. The plan
is told means and spreads, and the rows have them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.core.schema import Number, Schema
from noisewise.planning.plan import MECHANISMS, Planner
from studies.regression import draw_gram
from studies.report import Options, Report, kept_trials, published, write_both
from studies.tables import Row, as_markdown, short
from studies.trials import Record

SEED = 20261116


class Setting(NamedTuple):
    """One cell of the grid."""

    k: int
    n: int
    mechanism: str
    epsilon: float
    radius: float | None = None

    @property
    def noise(self) -> str:
        """What tables call the mechanism."""
        return self.mechanism if self.radius is None else f"ball of {self.radius:g}"


GRID = tuple(
    Setting(k, n, mechanism, epsilon)
    for k in (1, 3, 6)
    for n in (300, 3000, 30_000)
    for mechanism in ("laplace", "gaussian")
    for epsilon in (0.1, 1.0, 10.0)
)
QUICK_GRID = tuple(
    Setting(k, n, mechanism, epsilon)
    for k, n, mechanism, epsilon in (
        (1, 300, "laplace", 1.0),
        (1, 3000, "gaussian", 0.1),
        (3, 3000, "laplace", 1.0),
        (3, 30_000, "gaussian", 1.0),
    )
)
BEYOND_GRID = (
    *(
        Setting(k, n, "ball", epsilon, radius)
        for k, radius in ((1, 0.5), (3, 1.0), (10, 1.0), (10, 2.0))
        for n, epsilon in ((3000, 1.0), (30_000, 1.0), (30_000, 10.0))
    ),
    *(
        Setting(k, n, mechanism, 1.0)
        for k in (45, 70)
        for n in (30_000, 300_000)
        for mechanism in ("laplace", "gaussian")
    ),
    Setting(45, 300_000, "ball", 1.0, 2.0),
)
QUICK_BEYOND_GRID = (
    Setting(1, 3000, "ball", 1.0, 0.5),
    Setting(3, 3000, "ball", 1.0, 1.0),
    Setting(10, 30_000, "ball", 1.0, 1.0),
)
ROUNDS_GRID = tuple(
    Setting(k, n, "rounds", epsilon)
    for k in (1, 3, 6)
    for n, epsilon in ((3000, 1.0), (10_000, 0.3), (30_000, 1.0), (30_000, 3.0))
)
QUICK_ROUNDS_GRID = (Setting(1, 3000, "rounds", 1.0), Setting(3, 30_000, "rounds", 1.0))
EXPECTED = (0.2, 0.15)  # mean and sd of every column with rounds, within bounds from -1 to 1
TRUTHS = {1: 40, 3: 20}  # by number of covariates: each coefficient counts
LEAST_TRUTHS = 10
QUICK_TRUTHS = 12


class Found(NamedTuple):
    """Posterior sds on unit scale at every truth, shape (truths, d) each."""

    predicted: FloatArray
    realised: FloatArray


def planner_for(setting: Setting, truths: int) -> Planner:
    """A plan on a schema whose original units are the unit scale."""
    features = tuple(f"x{j}" for j in range(1, setting.k + 1))
    schema = Schema("planned", {name: Number(-1, 1) for name in (*features, "y")})
    expect = dict.fromkeys(schema.columns, EXPECTED) if setting.mechanism == "rounds" else None
    words: dict[str, Any] = {"seed": SEED, "radius": setting.radius, "expect": expect}
    return Planner(schema, "y", features, setting.n, truths=truths, **words)


def check(setting: Setting, *, truths: int | None = None, draws: int = 300) -> Found:
    """Predict and realise one cell."""
    truths = TRUTHS.get(setting.k, LEAST_TRUTHS) if truths is None else truths
    planner = planner_for(setting, truths)
    predicted, _ = planner.sds(setting.mechanism, setting.epsilon)
    # The cell's place in the grid, so that cells have different data.
    place = (setting.k, setting.n, list(MECHANISMS).index(setting.mechanism))
    ball = [] if setting.radius is None else [round(1000 * setting.radius)]
    rng = np.random.default_rng([SEED, *place, round(1000 * setting.epsilon), *ball])
    way = realise_in_rounds if setting.mechanism == "rounds" else realise
    realised = [way(setting, planner, i, rng, draws=draws) for i in range(truths)]
    return Found(predicted, np.array(realised))


def realise(
    setting: Setting, planner: Planner, i: int, rng: np.random.Generator, *, draws: int
) -> FloatArray:
    """Posterior sds, shape (d,), of a fit to a Release of the i-th truth."""
    from noisewise.analyst.regression.exact import sampler as exact

    A = _sums(planner, i, rng)
    sd = planner.noise.sd(setting.mechanism, setting.epsilon)
    laplace = MECHANISMS[setting.mechanism]["mechanism"] == "laplace"
    scale = sd / np.sqrt(2.0) if laplace else sd
    draw = rng.laplace if laplace else rng.normal
    noise = np.triu(draw(0.0, np.where(scale > 0, scale, 1.0)) * (scale > 0))
    seen = Observation(
        setting.n, A + noise + np.triu(noise, 1).T, scale, "laplace" if laplace else "gaussian"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        drawn = exact.sample(
            [seen],
            planner.prior,
            planner.covariates,
            chains=1,
            draws=draws,
            tune=250,
            seed=int(rng.integers(2**31)),
            cores=1,
            keep_covariates=False,
        )
    return np.asarray(drawn.theta.reshape(-1, setting.k + 1).std(axis=0, ddof=1))


def realise_in_rounds(
    setting: Setting, planner: Planner, i: int, rng: np.random.Generator, *, draws: int
) -> FloatArray:
    """The same by `publish` and `fit` with their defaults."""
    import noisewise as nw

    truth, columns = planner.truths, planner.columns
    x = rng.multivariate_normal(truth.mu[i], truth.T[i], setting.n)
    error = np.sqrt(truth.sigma2[i]) * rng.standard_normal(setting.n)
    rows = {name: x[:, j] for j, name in enumerate(columns.features)}
    rows["y"] = truth.theta[i, 0] + x @ truth.theta[i, 1:] + error
    words = {"target": "y", "features": columns.features, "epsilon": setting.epsilon}
    request = nw.make_request(columns.schema, **words, delta=planner.noise.delta)
    posterior = nw.fit(
        published(request, rows), seed=int(rng.integers(2**31)), chains=2, draws=draws
    )
    return np.asarray(posterior.theta.reshape(-1, setting.k + 1).std(axis=0, ddof=1))


def _sums(planner: Planner, i: int, rng: np.random.Generator) -> FloatArray:
    """A = Σ ww' of rows of the i-th truth."""
    truth = planner.truths
    theta, sigma2 = truth.theta[i], float(truth.sigma2[i])
    if planner.noise.radius is None:
        return draw_gram(rng, planner.n, truth.mu[i], truth.T[i], theta, sigma2)
    x = planner.laws[i].draw(rng, planner.n)
    y = theta[0] + x @ theta[1:] + np.sqrt(sigma2) * rng.standard_normal(planner.n)
    w = np.column_stack([np.ones(planner.n), x, y])
    return np.asarray(w.T @ w)


def row_of(setting: Setting, found: Found) -> Row:
    """One line of the table: geometric means, their ratio, and its error over truths."""
    row: Row = {
        "d": setting.k + 1,
        "n": setting.n,
        "mechanism": setting.noise,
        "epsilon": setting.epsilon,
        "truths": len(found.realised),
    }
    groups = {"intercept": slice(0, 1), "slopes": slice(1, None)}
    for name, columns in groups.items():
        predicted = np.log(found.predicted[:, columns]).mean(axis=1)
        realised = np.log(found.realised[:, columns]).mean(axis=1)
        ratios = np.exp(np.log(found.predicted[:, columns] / found.realised[:, columns]))
        difference = predicted - realised
        error = difference.std(ddof=1) / len(difference) ** 0.5
        row[f"{name}_predicted"] = short(np.exp(predicted.mean()))
        row[f"{name}_realised"] = short(np.exp(realised.mean()))
        row[f"{name}_ratio"] = short(np.exp(difference.mean()))
        row[f"{name}_ratio_error"] = short(np.exp(difference.mean()) * error)
        row[f"{name}_within_15"] = short(np.mean(np.abs(ratios - 1) <= 0.15))
    return row


def write(out: Path, options: Options) -> list[Path]:
    """The table, as CSV and Markdown."""
    return _write(out, options, "plan-check", QUICK_GRID if options.quick else GRID)


def write_beyond(out: Path, options: Options) -> list[Path]:
    """The same for balls and many covariates."""
    grid = QUICK_BEYOND_GRID if options.quick else BEYOND_GRID
    return _write(out, options, "plan-check-beyond", grid)


def write_rounds(out: Path, options: Options) -> list[Path]:
    """The same for Releases in rounds."""
    grid = QUICK_ROUNDS_GRID if options.quick else ROUNDS_GRID
    return _write(out, options, "plan-check-rounds", grid)


def _write(out: Path, options: Options, name: str, grid: Sequence[Setting]) -> list[Path]:
    truths = options.runs or (QUICK_TRUTHS if options.quick else None)
    records = kept_trials(
        f"{name}-{truths}" if truths else name,
        partial(_trial, grid, truths),
        len(grid),
        {"grid": [list(setting) for setting in grid], "truths": truths},
        out,
        options,
    )
    rows = [
        row_of(setting, Found(np.array(record["predicted"]), np.array(record["realised"])))
        for setting, record in zip(grid, records, strict=True)
    ]
    return write_both(rows, markdown, name, out)


def _trial(grid: Sequence[Setting], truths: int | None, number: int) -> Record:
    found = check(grid[number], truths=truths)
    return {
        "trial": number,
        "predicted": found.predicted.tolist(),
        "realised": found.realised.tolist(),
    }


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell: predicted and realised sd, and their ratio."""
    lines = []
    for row in rows:
        entries = [row["d"], f"{row['n']:,}", row["mechanism"], f"{row['epsilon']:g}"]
        for name in ("slopes", "intercept"):
            entries += [f"{row[f'{name}_predicted']:.3g}", f"{row[f'{name}_realised']:.3g}"]
            entries.append(f"{row[f'{name}_ratio']:.2f} ± {row[f'{name}_ratio_error']:.2f}")
        lines.append(entries)
    return as_markdown(
        "d | n | mechanism | epsilon | slopes: predicted | realised | ratio | "
        "intercept: predicted | realised | ratio",
        lines,
    )


EXPERIMENT = Report(
    "plan-check",
    "Whether `noisewise plan` comes true: predicted against realised posterior widths",
    write,
)
BEYOND = Report(
    "plan-check-beyond", "The same for rows in balls and for many coefficients", write_beyond
)
ROUNDS = Report(
    "plan-check-rounds",
    "The same for Releases in rounds, published and fitted by defaults",
    write_rounds,
)
EXPERIMENTS = (EXPERIMENT, BEYOND, ROUNDS)
