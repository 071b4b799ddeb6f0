"""Formulas with terms: coverage and width through the real path.

Rows are simulated, published by `publish` with a formula and fitted by `fit` under its defaults.
The coefficients are fixed, and the formula is the true one. Terms are tied to each other (a column
and its interaction, the functions of a spline), so their joint law is far from the normal one that
method `exact` assumes of covariates: what that does to intervals is measured here. The noise of a
Release takes no seed, so a second run differs by that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from noisewise.analyst.fit import fit
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request
from studies.report import Options, Report, kept_trials, seed_of, write_both
from studies.tables import Row
from studies.trials import Record

NAME = "terms"
ROWS = 20_000
LEVELS = (0.5, 0.8, 0.95)
ERROR_SD = 4.0
SCHEMA = Schema(
    "people",
    {
        "age": Number(18, 90),
        "income": Number(0, 100_000),
        "dose": Number(0, 10),
        "region": Category(("n", "s", "w"), "n"),
        "score": Number(-40, 80),
    },
)


class Model(NamedTuple):
    """A formula and its coefficients, the intercept first."""

    formula: str
    theta: tuple[float, ...]


MODELS = {
    "interaction": Model("score ~ dose*region", (10.0, 1.5, 0.0, 3.0, -1.0, 0.5)),
    "spline": Model(
        "score ~ bs(age, knots=(35, 60)) + log1p(income)",
        (10.0, 3.0, -4.0, 0.0, 6.0, -2.0, 1.0),
    ),
    "square": Model("score ~ I(age - 54) + I((age - 54)**2)", (10.0, 0.1, -0.005)),
}
WAYS: dict[str, dict[str, Any]] = {
    "laplace": {"epsilon": 4},
    "rounds": {"epsilon": 1, "delta": "1e-6", "rounds": "auto"},
}


class Setting(NamedTuple):
    """One cell."""

    model: str
    way: str


GRID = (
    Setting("interaction", "laplace"),
    Setting("interaction", "rounds"),
    Setting("spline", "laplace"),
    Setting("spline", "rounds"),
    Setting("square", "laplace"),
)
QUICK_GRID = GRID[:1]
TRIALS, QUICK_TRIALS = 100, 3


def table(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """People: ages in the middle of the bounds, incomes with a long tail."""
    return {
        "age": np.clip(rng.normal(50, 17, n), 18, 90),
        "income": np.exp(rng.normal(9.5, 0.8, n)),
        "dose": rng.beta(2, 2, n) * 10,
        "region": rng.choice(["n", "s", "w"], p=[0.5, 0.3, 0.2], size=n),
    }


def trial(setting: Setting, number: int) -> Record:
    """One set of rows, published and fitted."""
    model, words = MODELS[setting.model], WAYS[setting.way]
    rng = np.random.default_rng(seed_of(NAME, *setting, number))
    request = make_request(SCHEMA, formula=model.formula, **words)
    design = request.design
    columns = ModelColumns(design.schema, design.features, design.target)
    rows = table(ROWS, rng)
    x, theta = columns.design_matrix(rows), np.array(model.theta)
    rows["score"] = x @ theta + rng.normal(0, ERROR_SD, ROWS)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "budget.db"
        with Ledger(path) as ledger:
            ledger.set_cap(SCHEMA.dataset, 4, "1e-6")
        release = publish(request, rows, ledger=path).release
    start = time.process_time()
    posterior = fit(release, seed=number, chains=4, draws=500)
    names = posterior.columns.names
    ends = np.array([[posterior.interval(name, level) for name in names] for level in LEVELS])
    se = ERROR_SD * np.sqrt(np.linalg.inv(x.T @ x).diagonal())
    return {
        "trial": number,
        "seconds": time.process_time() - start,
        "held": ((ends[..., 0] < theta) & (ends[..., 1] > theta))[:, 1:].tolist(),
        "width": ((ends[-1, :, 1] - ends[-1, :, 0]) / (3.92 * se))[1:].tolist(),
        "effective": min(row.ess for row in posterior.summary().rows.values()),
        "warned": bool(posterior.warnings),
    }


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line of the table."""
    held = np.array([record["held"] for record in records])  # (trials, levels, slopes)
    each = held[:, -1].mean(axis=1)
    row: Row = {"model": setting.model, "way": setting.way, "trials": len(records)}
    means = held.mean(axis=(0, 2))
    row |= {f"held_{level:g}": round(float(h), 3) for level, h in zip(LEVELS, means, strict=True)}
    row["error"] = round(float(each.std(ddof=1) / np.sqrt(len(each))), 3)
    row["least_held"] = round(float(held[:, -1].mean(axis=0).min()), 3)
    row["width"] = round(float(np.median([record["width"] for record in records])), 2)
    row["effective"] = round(float(np.median([record["effective"] for record in records])))
    row["warned"] = sum(record["warned"] for record in records)
    row["seconds"] = round(float(np.median([record["seconds"] for record in records])), 1)
    return row


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell."""
    lines = [
        "| formula | noise | Releases | truth held at 50, 80, 95% (± of the last) | least of a "
        "coefficient | width | warned | effective draws, seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        held = ", ".join(f"{100 * row[f'held_{level:g}']:.0f}" for level in LEVELS)
        lines.append(
            f"| `{MODELS[row['model']].formula}` | {row['way']} | {row['trials']} | {held}% "
            f"(±{100 * row['error']:.1f}) | {100 * row['least_held']:.0f}% | {row['width']:g} "
            f"| {row['warned']} | {row['effective']}, {row['seconds']:g} |"
        )
    return "\n".join(lines) + "\n"


def write(out: Path, options: Options) -> list[Path]:
    """The table, as CSV and Markdown."""
    rows = []
    for setting in QUICK_GRID if options.quick else GRID:
        model = MODELS[setting.model]
        records = kept_trials(
            "-".join([NAME, *setting]),
            partial(trial, setting),
            options.runs or (QUICK_TRIALS if options.quick else TRIALS),
            {"formula": model.formula, "theta": list(model.theta), "way": setting.way},
            out,
            options,
        )
        rows.append(row_of(setting, records))
    return write_both(rows, markdown, NAME, out)


EXPERIMENT = Report(
    NAME, "Coverage and width of regressions with interactions, splines and powers", write
)
