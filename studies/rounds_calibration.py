"""Ranks of truths from the prior, through real Releases in rounds.

Coefficients and error variance are drawn from the prior that `fit` is given, rows from the model,
in columns that fill a small and tilted part of their bounds, and `publish` makes Releases of them.
A right posterior ranks truths uniformly. `naive`, which takes the noisy sums for exact ones, is the
negative control. Covariates have a law of their own in each trial, not one from their prior, which
has no proper mean: what is tested is the regression. The noise takes no seed, so a second run
differs by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.fit import fit_regression
from noisewise.analyst.regression.priors import NormalInverseGammaIndependent
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Number, Schema
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request
from studies.report import Options, Report, kept_trials, seed_of, write_both
from studies.tables import Row
from studies.trials import Record
from studies.uniformity import coverage, coverage_test, outside_band, spread_rank, thin
from studies.uniformity import uniformity_test as uniform

NAME = "calibration-rounds"
RANKED = 100
SHAPE, SCALE = 4.0, 0.03  # of the prior of the error variance: sds of about .1 of the half-width


class Setting(NamedTuple):
    """One cell: numbers of columns (the target is one), of rows of each holder, of holders."""

    q: int
    n: int
    holders: int = 1


GRID = (
    Setting(3, 1_000),
    Setting(3, 10_000),
    Setting(3, 100_000),
    Setting(5, 10_000),
    Setting(5, 100_000),
    Setting(12, 30_000),
    Setting(12, 100_000),
    Setting(3, 5_000, 3),
)
QUICK_GRID = GRID[1:2]
TRIALS, QUICK_TRIALS = 300, 3


def prior_of(k: int) -> NormalInverseGammaIndependent:
    """Slopes that explain about as much as the error leaves, however many there are."""
    variance = np.full(k + 1, 0.5 / k)
    variance[0] = 0.04
    return NormalInverseGammaIndependent(np.zeros(k + 1), np.diag(variance), SHAPE, SCALE)


def released(x: FloatArray, y: FloatArray, folder: Path, name: str) -> Release:
    """What a holder with these rows publishes at (1, 1e-6), in rounds if there are enough rows."""
    columns = {f"x{j}": x[:, j] for j in range(x.shape[1])} | {"y": y}
    schema = Schema(name, {column: Number(-1, 1) for column in columns})
    request = make_request(
        schema, target="y", features=list(columns)[:-1], epsilon=1, delta="1e-6", rounds="auto"
    )
    path = folder / f"{name}.db"
    with Ledger(path) as ledger:
        ledger.set_cap(name, 1, "1e-6")
    return publish(request, columns, ledger=path).release


def trial(setting: Setting, number: int) -> Record:
    """Ranks of the intercept, a slope and the error variance, by `fit` and by `naive`."""
    rng = np.random.default_rng(seed_of(NAME, *map(str, setting), number))
    k = setting.q - 1
    prior = prior_of(k)
    theta = rng.multivariate_normal(prior.mu0, prior.V0)
    sigma2 = SCALE / rng.gamma(SHAPE)
    mean, sd = rng.uniform(-0.3, 0.3, k), np.exp(rng.uniform(np.log(0.03), np.log(0.15), k))
    loading = rng.uniform(-0.9, 0.9, k)  # on what columns have in common
    given = []
    with TemporaryDirectory() as folder:
        for j in range(setting.holders):
            own = rng.standard_normal((setting.n, k)) * np.sqrt(1 - loading**2)
            x = mean + sd * (own + loading * rng.standard_normal((setting.n, 1)))
            y = theta[0] + x @ theta[1:] + np.sqrt(sigma2) * rng.standard_normal(setting.n)
            given.append(released(x, y, Path(folder), f"people{j}"))
    posterior = fit_regression(given, prior=prior, seed=number, draws=300)
    truths = {"intercept": theta[0], "x0": theta[1], "sigma2": sigma2}
    ranks = {
        "fit": {
            name: spread_rank(truth, thin(posterior.draws(name), RANKED), rng)
            for name, truth in truths.items()
        },
        "naive": {
            name: spread_rank(truth, posterior.naive_draws(name)[:: 4000 // RANKED], rng)
            for name, truth in truths.items()
        },
    }
    rows = posterior.summary().rows
    return {
        "trial": number,
        **ranks,
        "effective": min(row.ess for row in rows.values()),
        "rounds": [0 if one.rounds is None else len(one.rounds.explored) + 2 for one in given],
        "warned": bool(posterior.warnings),
    }


def rows_of(setting: Setting, records: Sequence[Record]) -> list[Row]:
    """A line a method and parameter."""
    found = []
    for method in ("fit", "naive"):
        for name in ("intercept", "x0", "sigma2"):
            u = np.array([record[method][name] for record in records])
            found.append(
                {
                    **setting._asdict(),
                    "rounds": float(np.mean([record["rounds"] for record in records])),
                    "method": method,
                    "parameter": "slope" if name == "x0" else name,
                    "trials": len(u),
                    "p_value": float(f"{uniform(u).p_value:.3g}"),
                    "outside_band": int(outside_band(u)),
                    "coverage_95": round(coverage(u, 0.95), 3),
                    "coverage_95_p": float(f"{coverage_test(u, 0.95):.3g}"),
                    "least_effective": round(min(record["effective"] for record in records)),
                    "warned": round(float(np.mean([r["warned"] for r in records])), 2),
                }
            )
    return found


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell: p-value of uniform ranks and coverage of 95% intervals, by parameter."""
    lines = [
        "| columns | rows | holders | rounds | trials | intercept | slope | sigma2 "
        "| naive: intercept | slope | sigma2 |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for i in range(0, len(rows), 6):
        of = rows[i : i + 6]
        cells = [f"{one['p_value']:.2g}, {one['coverage_95']:.2f}" for one in of]
        one = of[0]
        lines.append(
            f"| {one['q']} | {one['n']:,} | {one['holders']} | {one['rounds']:.1f} "
            f"| {one['trials']} | {' | '.join(cells)} |"
        )
    return "\n".join(lines) + "\n"


def write(out: Path, options: Options) -> list[Path]:
    """The table, as CSV and Markdown."""
    rows: list[Row] = []
    for setting in QUICK_GRID if options.quick else GRID:
        records = kept_trials(
            "-".join([NAME, *map(str, setting)]),
            partial(trial, setting),
            options.runs or (QUICK_TRIALS if options.quick else TRIALS),
            {"setting": list(setting), "ranked": RANKED},
            out,
            options,
        )
        rows += rows_of(setting, records)
        write_both(rows, markdown, NAME, out)
    return write_both(rows, markdown, NAME, out)


EXPERIMENT = Report(
    NAME, "Ranks of truths from the prior, through real Releases in rounds, and naively", write
)
