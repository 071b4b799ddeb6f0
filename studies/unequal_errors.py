"""Errors that differ in spread, or have long tails: coverage with and without published residuals.

Rows are drawn, published in rounds by `publish` and fitted by `fit` under its defaults; once as it
is, and once without the residuals of the same Release, which is what a posterior with errors of
one spread says. Beside them least squares on the same rows without noise, with the usual standard
errors and with those of White (1980). Rows of the RAND experiment are drawn with replacement, and
the truth is least squares on all of them. The noise of a Release takes no seed, so a second run
differs by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.fit import fit
from noisewise.core.schema import Number, Schema
from noisewise.holder.requests.regression import make_request
from studies.honesty.cells import REAL
from studies.report import Grid, published, seed_of
from studies.tables import Row, as_markdown
from studies.trials import Record

NAME = "unequal-errors"
SLOPES = np.array([1.0, -0.5, 0.0, 0.3])
DELTA = "1e-7"
WAYS = ("usual", "white", "one spread", "residuals", "all rows")


class Setting(NamedTuple):
    """One cell."""

    errors: str
    n: int
    epsilon: str


GRID = (
    Setting("equal", 100_000, "1"),
    Setting("equal", 100_000, "3"),
    Setting("unequal", 100_000, "1"),
    Setting("unequal", 100_000, "3"),
    Setting("unequal", 1_000_000, "1"),
    Setting("skewed", 100_000, "1"),
    Setting("skewed", 100_000, "3"),
    Setting("skewed", 1_000_000, "1"),
    Setting("randhie", 100_000, "3"),
    Setting("randhie", 1_000_000, "1"),
)
QUICK_GRID = (Setting("unequal", 100_000, "3"),)
TRIALS, QUICK_TRIALS = 60, 3


def draw(errors: str, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, Any]:
    """Rows with the target last, the slopes, and public bounds."""
    if errors in REAL:
        read, bounds = REAL[errors]
        rows = np.asarray(read(), dtype=np.float64)
        rows = np.clip(rows, *np.transpose(bounds))
        return rows[rng.integers(len(rows), size=n)], least_squares(rows)[0][1:], bounds
    x = 0.7 * (rng.standard_normal((n, 1)) + rng.standard_normal((n, len(SLOPES))))
    spread = {"unequal": np.sqrt(0.2 + x[:, 0] ** 2), "skewed": np.exp(0.6 * x[:, 0])}
    noise = rng.standard_exponential(n) - 1 if errors == "skewed" else rng.standard_normal(n)
    y = 1.0 + x @ SLOPES + spread.get(errors, 1.0) * noise
    # Wide enough for every row: what bounds clip is another matter (`calibration-beyond`).
    widest = 150 if errors == "skewed" else 25
    return np.column_stack([x, y]), SLOPES, [(-6, 6)] * len(SLOPES) + [(-widest, widest)]


def least_squares(rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Coefficients, their usual standard errors, and White's."""
    x, y = np.column_stack([np.ones(len(rows)), rows[:, :-1]]), rows[:, -1]
    inverse = np.linalg.inv(x.T @ x)
    theta = inverse @ (x.T @ y)
    residual = y - x @ theta
    usual = np.sqrt(residual @ residual / len(y) * inverse.diagonal())
    meat = (x.T * residual**2) @ x
    return theta, usual, np.sqrt((inverse @ meat @ inverse).diagonal())


def trial(setting: Setting, number: int) -> Record:
    """One set of rows, published and fitted."""
    rng = np.random.default_rng(seed_of(NAME, *setting, number))
    rows, truth, bounds = draw(setting.errors, setting.n, rng)
    names = [*(f"x{j}" for j in range(1, len(bounds))), "y"]
    schema = Schema("rows", {c: Number(*b) for c, b in zip(names, bounds, strict=True)})
    words = {"epsilon": setting.epsilon, "delta": DELTA}
    request = make_request(schema, target="y", features=names[:-1], **words)
    release = published(request, dict(zip(names, rows.T, strict=True)))
    assert release.rounds is not None
    plain = replace(release, rounds=replace(release.rounds, residuals=None))
    theta, *errors = least_squares(rows)
    record: Record = {"trial": number, "published": release.rounds.residuals is not None}
    ends = {
        way: (theta[1:] - 1.96 * se[1:], theta[1:] + 1.96 * se[1:])
        for way, se in zip(WAYS[:2], errors, strict=True)
    }
    for way, given in zip(WAYS[2:4], (plain, release), strict=True):
        posterior = fit(given, seed=number, chains=2, draws=500)
        ends[way] = np.transpose([posterior.interval(name, 0.95) for name in names[:-1]])
    whole = [posterior.all_rows().rows[name] for name in names[:-1]]
    ends["all rows"] = np.transpose([(row.lower, row.upper) for row in whole])
    for way, (low, high) in ends.items():
        record[way] = {
            "held": ((low < truth) & (truth < high)).tolist(),
            "width": ((high - low) / (3.92 * errors[1][1:])).tolist(),
        }
    record["warned"] = len(posterior.warnings)
    return record


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line of the table."""
    row: Row = setting._asdict() | {"trials": len(records)}
    row["with_residuals"] = sum(record["published"] for record in records)
    for way in WAYS:
        held = np.array([record[way]["held"] for record in records])
        width = np.array([record[way]["width"] for record in records])
        row[f"{way}: held"] = round(float(held.mean()), 3)
        row[f"{way}: least"] = round(float(held.mean(axis=0).min()), 3)
        row[f"{way}: width"] = round(float(width.mean()), 2)
    row["warned"] = sum(record["warned"] > 0 for record in records)
    return row


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell."""
    lines = []
    for row in rows:
        ways = [
            f"{100 * row[f'{way}: held']:.0f}%, {100 * row[f'{way}: least']:.0f}%, "
            f"{row[f'{way}: width']:g}"
            for way in WAYS
        ]
        trials = f"{row['trials']} ({row['with_residuals']})"
        n = f"{row['n']:,}"
        lines.append((row["errors"], n, row["epsilon"], trials, *ways, row["warned"]))
    return as_markdown(
        "errors | rows | epsilon | Releases (with residuals) | least squares: usual | White's "
        "| noisewise, one spread | noisewise, residuals | the same for all rows | warned",
        lines,
    )


EXPERIMENT = Grid(
    NAME,
    GRID,
    QUICK_GRID,
    trial,
    lambda _: TRIALS,
    QUICK_TRIALS,
    row_of,
    markdown,
    {"delta": DELTA},
).report("Coverage where errors differ in spread or have long tails, with residuals and without")
