"""Three holders who publish in rounds, or some of them: coverage and width through the real path.

Rows are simulated, published by `publish` at (1, 1e-6) and fitted by `fit` under its defaults.
Slopes and error are fixed; holders' people are alike, differ by a few standard deviations, or are
far apart (up to 60 of the narrowest holder's). The same rows published without rounds say what
rounds are worth. The noise of a Release takes no seed, so a second run differs by that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.fit import fit
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.regression import make_request
from studies.report import Grid, published, seed_of
from studies.tables import Row, as_markdown, short
from studies.trials import Record

NAME = "holders-in-rounds"
SIZES = (8_000, 5_000, 3_000)
THETA = np.array([20.0, 1.5, -0.7, 0.0, 3.0])  # intercept, dose, weight, two levels
ERROR_SD = 4.0
LEVELS = (0.5, 0.8, 0.95)
FEATURES = ("dose", "weight", "region")
SCHEMA = Schema(
    "people",
    {
        "dose": Number(0, 100),
        "weight": Number(0, 200),
        "region": Category(("n", "s", "w"), "n"),
        "score": Number(-200, 400),
    },
)
# By holder: shift of the dose, its spread, and how weight goes with it.
PEOPLE = {
    "alike": ((0.0, 1.5, 1.6),) * 3,
    "differ": ((0.0, 1.5, 1.6), (5.0, 3.0, 0.5), (-6.0, 1.0, -1.0)),
    "far": ((0.0, 1.5, 1.6), (15.0, 6.0, 0.0), (-30.0, 0.5, -2.0)),
}


class Setting(NamedTuple):
    """One cell."""

    people: str
    rounds: tuple[bool, bool, bool]  # by holder
    method: str


GRID = (
    Setting("alike", (True, True, True), "auto"),
    Setting("alike", (True, True, True), "exact"),
    Setting("alike", (True, False, True), "auto"),
    Setting("differ", (True, True, True), "auto"),
    Setting("differ", (False, True, True), "auto"),
    Setting("far", (True, True, True), "auto"),
)
QUICK_GRID = GRID[3:4]
TRIALS, QUICK_TRIALS = 20, 3
COMPARED = 2  # of the trials of a cell are published without rounds, too


def table(people: tuple[float, float, float], n: int, rng: np.random.Generator) -> dict[str, Any]:
    """The rows of one holder."""
    shift, spread, slope = people
    dose = rng.normal(70 + shift, spread, n)
    weight = 40 + slope * (dose - 70) + rng.normal(0, spread, n)
    region = rng.choice(["n", "s", "w"], p=[0.6, 0.35, 0.05], size=n)
    rows = {"dose": dose, "weight": weight, "region": region}
    score = design(rows) @ THETA + rng.normal(0, ERROR_SD, n)
    return rows | {"score": score}


def design(rows: dict[str, Any]) -> FloatArray:
    """The design matrix in original units."""
    known = [np.ones(len(rows["dose"])), rows["dose"], rows["weight"]]
    return np.column_stack([*known, *(1.0 * (rows["region"] == level) for level in "sw")])


def released(rows: dict[str, Any], *, rounds: bool) -> Release:
    """What a holder publishes."""
    words = {"rounds": "auto" if rounds else 1}
    request = make_request(
        SCHEMA, target="score", features=FEATURES, epsilon=1, delta="1e-6", **words
    )
    found: Release = published(request, rows)
    return found


def trial(setting: Setting, number: int) -> Record:
    """One set of rows, published with and without rounds."""
    rng = np.random.default_rng(seed_of(NAME, *map(str, setting), number))
    tables = [table(p, n, rng) for p, n in zip(PEOPLE[setting.people], SIZES, strict=True)]
    x = np.concatenate([design(rows) for rows in tables])
    y = np.concatenate([rows["score"] for rows in tables])
    ols, rss, _, _ = np.linalg.lstsq(x, y, rcond=None)
    se = np.sqrt(np.linalg.inv(x.T @ x).diagonal() * rss[0] / len(y))
    record: Record = {"trial": number}
    ways = {"rounds": setting.rounds, "none": (False,) * 3}
    if number >= COMPARED:
        del ways["none"]
    for what, rounds in ways.items():
        given = [released(rows, rounds=own) for rows, own in zip(tables, rounds, strict=True)]
        start = time.process_time()
        posterior = fit(given, method=setting.method, seed=number, chains=4, draws=500)
        names = posterior.columns.names
        ends = np.array([[posterior.interval(name, level) for name in names] for level in LEVELS])
        rows = posterior.summary().rows
        middle = np.array([rows[name].median for name in names])
        record[what] = {
            "seconds": time.process_time() - start,
            "held": ((ends[..., 0] < THETA) & (ends[..., 1] > THETA))[:, 1:].tolist(),
            "held_ols": ((ends[-1, :, 0] < ols) & (ols < ends[-1, :, 1]))[1:].tolist(),
            "width": ((ends[-1, :, 1] - ends[-1, :, 0]) / (3.92 * se))[1:].tolist(),
            "error": ((middle - ols) / se)[1:].tolist(),
            "effective": min(row.ess for row in rows.values()),
            "divergences": float(np.mean(posterior.sample_stats.get("diverging", 0.0))),
            "contradiction": any("contradict" in text for text in posterior.warnings),
        }
    return record


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line of the table."""
    of = [record["rounds"] for record in records]
    before = [record["none"] for record in records[:COMPARED]]
    row: Row = {
        "people": setting.people,
        "rounds": "".join("r" if own else "-" for own in setting.rounds),
        "method": setting.method,
        "trials": len(records),
    }
    held = np.array([one["held"] for one in of]).mean(axis=(0, 2))
    row |= {f"held_{level:g}": round(float(h), 3) for level, h in zip(LEVELS, held, strict=True)}
    row["held_ols"] = round(float(np.mean([one["held_ols"] for one in of])), 3)
    row["none_held"] = round(float(np.mean([one["held"][-1] for one in before])), 3)
    for name, found in (("", of), ("none_", before)):
        row[f"{name}width"] = round(float(np.median([one["width"] for one in found])), 2)
        errors = np.array([one["error"] for one in found])
        row[f"{name}rmse"] = round(float(np.sqrt((errors**2).mean())), 2)
    row["effective"] = round(float(np.median([one["effective"] for one in of])))
    row["least_effective"] = round(min(one["effective"] for one in of))
    row["divergences"] = short(np.mean([one["divergences"] for one in of]), 2)
    row["seconds"] = round(float(np.median([one["seconds"] for one in of])), 1)
    row["none_seconds"] = round(float(np.median([one["seconds"] for one in before])), 1)
    row["contradiction"] = sum(bool(one["contradiction"]) for one in of)
    return row


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell."""
    return as_markdown(
        "people | rounds | method | trials | truth held at 50, 80, 95% | rows' least squares "
        "held at 95% | width, RMSE | without rounds: held, width, RMSE | effective draws: "
        "median, least; divergences | seconds, without rounds",
        (
            (
                *(row[name] for name in ("people", "rounds", "method", "trials")),
                ", ".join(f"{100 * row[f'held_{level:g}']:.0f}" for level in LEVELS) + "%",
                f"{100 * row['held_ols']:.0f}%",
                f"{row['width']:g}, {row['rmse']:g}",
                f"{100 * row['none_held']:.0f}%, {row['none_width']:g}, {row['none_rmse']:g}",
                f"{row['effective']}, {row['least_effective']}; {100 * row['divergences']:.2g}%",
                f"{row['seconds']:g}, {row['none_seconds']:g}",
            )
            for row in rows
        ),
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
    {"sizes": list(SIZES)},
).report(
    "Coverage and width when several holders publish in rounds of their own, or some of them do"
)
