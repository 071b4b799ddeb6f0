"""Real tables that nobody chose: what intervals promise, and how often it holds.

The battery is a folder of public tables (Parquet) with `formulas.json`: regressions whose targets
and features were drawn at random, so that many are bent, skewed, unequal or senseless, as first
looks at data are. Each has a `group`: regressions on near-copies of a table share it, and standard
errors of shares are clustered by it. Bounds are rounded outwards by a rule, as from a code book.
The folder is not part of the repository: `../shared/battery`, or that of NOISEWISE_LAB_DATA.

Rows are fixed, so the truth is what the same rows give without noise, and a right 95% interval
holds it in 95% of the Releases or more: it allows for sampling, of which there is none. In settings
with `rows` a Release is made from so many rows, drawn at random from a table with 50,000 or more,
and the truth is that of the whole table (moved by this Release's map): there 95% means 95%.

A fit that fails counts as one that holds nothing. It is *quiet* if it warns of nothing.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import noisewise as nw
from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Column, Number, Schema
from noisewise.holder.requests.regression import make_request
from studies.report import Grid, published
from studies.tables import Row, as_markdown
from studies.trials import Record

NAME = "battery"
LARGE = 50_000  # rows of a table that stands for a population
SEEDS, QUICK_TRIALS = 10, 6
DELTA = "1e-6"


class Setting(NamedTuple):
    """One line of the table."""

    family: str
    epsilon: str
    rows: int = 0  # drawn from a large table; 0: all rows, of every table


GRID = (
    *(Setting("linear", epsilon) for epsilon in ("0.3", "1", "3")),
    *(Setting("linear", "1", rows) for rows in (1_000, 1_500, 5_000)),
)
QUICK_GRID = (Setting("linear", "1"),)


# --- the tables -----------------------------------------------------------------------------------


def folder() -> Path:
    """Where the battery is."""
    places = [Path(__file__).parents[2] / "shared" / "battery"]
    if given := os.environ.get("NOISEWISE_LAB_DATA"):
        places = [Path(given), Path(given) / "battery", *places]
    for place in places:
        if (place / "formulas.json").is_file():
            return place
    raise RequestError(
        "battery: its tables are not here; they are public tables with formulas.json in a folder "
        "of their own, which NOISEWISE_LAB_DATA names"
    )


@cache
def formulas(family: str) -> tuple[dict[str, Any], ...]:
    """The regressions of a family, in the order of the file."""
    known = json.loads((folder() / "formulas.json").read_text(encoding="utf-8"))
    return tuple(known[family])


@cache
def large(family: str) -> tuple[dict[str, Any], ...]:
    """Those on tables that are large enough for a population."""
    return tuple(one for one in formulas(family) if len(read(one).rows["y"]) >= LARGE)


class Table(NamedTuple):
    """The complete rows of one regression, with public bounds."""

    columns: dict[str, Column]
    rows: dict[str, Any]

    def taken(self, some: Any) -> dict[str, Any]:
        """Some of the rows."""
        return {name: values[some] for name, values in self.rows.items()}


def read(formula: dict[str, Any]) -> Table:
    """Its columns by short names: x0, x1, … for numbers, c0, … for categories, y."""
    import pandas as pd

    categories = formula.get("categories", [])
    wanted = [*formula["numbers"], *categories, formula["target"]]
    frame = pd.read_parquet(
        folder() / f"{formula['table']}.parquet", columns=list(dict.fromkeys(wanted))
    )
    frame = frame.dropna()
    numbers = [*formula["numbers"], formula["target"]]
    complete = np.isfinite(frame[numbers].astype(float).to_numpy()).all(axis=1)
    frame = frame[complete]
    columns: dict[str, Column] = {}
    rows: dict[str, Any] = {}
    for i, name in enumerate(formula["numbers"]):
        rows[f"x{i}"] = frame[name].to_numpy(dtype=float)
        columns[f"x{i}"] = Number(*bounds(rows[f"x{i}"]))
    for i, name in enumerate(categories):
        rows[f"c{i}"], columns[f"c{i}"] = _category(frame[name])
    rows["y"] = frame[formula["target"]].to_numpy(dtype=float)
    columns["y"] = Number(*bounds(rows["y"]))
    return Table(columns, rows)


def _category(values: Any) -> tuple[Any, Category]:
    texts = values.astype(str).to_numpy()
    levels = tuple(sorted(set(texts)))
    return texts, Category(levels, levels[0])


def bounds(values: FloatArray) -> tuple[float, float]:
    """The range, rounded outwards by one to two steps of its order of magnitude; 0 stays an end."""
    low, high = float(values.min()), float(values.max())
    step = 10.0 ** np.floor(np.log10(high - low))
    start, stop = np.floor(low / step) * step - step, np.ceil(high / step) * step + step
    return (max(float(start), 0.0) if low >= 0 else float(start)), float(stop)


# --- one Release ----------------------------------------------------------------------------------


def trial(setting: Setting, number: int) -> Record:
    """One regression of the battery, published and fitted."""
    known = large(setting.family) if setting.rows else formulas(setting.family)
    formula = known[number % len(known)]
    record: Record = {
        "trial": number,
        "group": formula["group"],
        "table": formula["table"],
        "target": formula["target"],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return record | _linear(setting, formula, number)
        except Exception as error:
            return record | {"failed": f"{type(error).__name__}: {error}"[:300]}


def _request_words(setting: Setting, table: Table, number: int) -> dict[str, Any]:
    return {
        "target": "y",
        "features": [name for name in table.columns if name != "y"],
        "epsilon": setting.epsilon,
        "delta": DELTA,
        "label": str(number),
    }


def _linear(setting: Setting, formula: dict[str, Any], number: int) -> Record:
    table = read(formula)
    rows = table.rows
    if setting.rows:
        rng = np.random.default_rng(number)
        rows = table.taken(rng.choice(len(rows["y"]), setting.rows, replace=False))
    schema = Schema("battery", table.columns)
    release = published(make_request(schema, **_request_words(setting, table, number)), rows)
    moved = nw.within_reach(release, table.rows)
    reach, _, sigma2 = least_squares(moved.to_numpy())
    indicators = [c.name for c in release.design.columns if c.is_indicator]
    whole = moved.copy()
    for name in moved.columns:
        if name not in indicators:
            whole[name] = table.rows[name]
    everything, error, _ = least_squares(whole.to_numpy())
    # In a population the unit is the standard error of as many rows as were published.
    error = error * np.sqrt(len(table.rows["y"]) / len(rows["y"]))
    posterior = nw.fit(release, seed=number, chains=2, draws=400)
    found = posterior.summary()
    spread = found.rows["sigma2"]
    return {
        "sigma2": bool(spread.lower <= sigma2 <= spread.upper),
        "rounds": release.rounds is not None,
        **_judged(posterior, list(moved.columns[:-1]), reach, everything, error),
    }


def least_squares(rows: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Slopes on the last column, their standard errors, and the error variance."""
    x, y = np.column_stack([np.ones(len(rows)), rows[:, :-1]]), rows[:, -1]
    theta = np.linalg.lstsq(x, y, rcond=None)[0]
    residual = y - x @ theta
    sigma2 = float(residual @ residual / (len(x) - x.shape[1]))
    return theta[1:], np.sqrt(sigma2 * np.diag(np.linalg.pinv(x.T @ x)))[1:], sigma2


def _judged(
    posterior: Any, names: Sequence[str], reach: FloatArray, whole: FloatArray, error: FloatArray
) -> Record:
    """Whether intervals hold, and how wide they are in standard errors."""
    near, far = posterior.summary().rows, posterior.all_rows().rows
    low, high, middle = (
        np.array([getattr(near[name], end) for name in names])
        for end in ("lower", "upper", "median")
    )
    far_low, far_high = (
        np.array([getattr(far[name], end) for name in names]) for end in ("lower", "upper")
    )
    return {
        "held": ((low <= reach) & (reach <= high)).tolist(),
        "held_all": ((far_low <= whole) & (whole <= far_high)).tolist(),
        "width": ((high - low) / error).round(3).tolist(),
        "width_all": ((far_high - far_low) / error).round(3).tolist(),
        "shift": ((reach - whole) / error).round(3).tolist(),
        "error": ((middle - reach) / error).round(3).tolist(),
        "warnings": [text[:80] for text in posterior.warnings],
    }


# --- the table ------------------------------------------------------------------------------------


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line."""
    good = [one for one in records if "failed" not in one]
    row: Row = setting._asdict() | {"fits": len(records), "failed": len(records) - len(good)}
    for what in ("held", "held_all"):
        share, error = clustered(records, what)
        row |= {what: round(share, 4), f"{what} ±": round(error, 4)}
    quiet = [one for one in good if not one["warnings"]]
    row["quiet"] = round(len(quiet) / max(len(good), 1), 3)
    row["held, quiet"] = round(clustered(quiet, "held")[0], 4)
    row["sigma2"] = round(float(np.mean([one.get("sigma2", False) for one in records])), 4)
    width, width_all, shift, error = (
        np.abs(np.concatenate([one[what] for one in good]))
        for what in ("width", "width_all", "shift", "error")
    )
    row |= {
        "error": round(float(np.median(error)), 2),
        "width": round(float(np.median(width)), 2),
        "shift": round(float(np.median(shift)), 3),
        "shift 90%": round(float(np.quantile(shift, 0.9)), 2),
        "wider": round(float(np.median(width_all / width)), 2),
        "wider 90%": round(float(np.quantile(width_all / width, 0.9)), 2),
    }
    return row


def clustered(records: Sequence[Record], what: str) -> tuple[float, float]:
    """A share of slopes, and its standard error with regressions of one group together."""
    held = [np.array(one.get(what, [False]), dtype=float) for one in records]
    if not held:
        return float("nan"), float("nan")
    together = np.concatenate(held)
    share = float(together.mean())
    away: dict[str, float] = {}
    for one, own in zip(records, held, strict=True):
        away[one["group"]] = away.get(one["group"], 0.0) + float((own - share).sum())
    return share, float(np.sqrt(np.sum(np.square(list(away.values()))))) / len(together)


def markdown(rows: Sequence[Row]) -> str:
    """A line a setting."""
    lines = []
    for row in rows:
        kind = f"{row['family']}, {row['rows']:,} rows" if row["rows"] else row["family"]
        held, held_all = (
            f"{100 * row[what]:.1f} ± {100 * row[f'{what} ±']:.1f}%"
            for what in ("held", "held_all")
        )
        sigma2 = f"{100 * row['sigma2']:.1f}%"
        lines.append(
            (
                kind,
                row["epsilon"],
                f"{row['fits']:,} ({row['failed']})",
                held,
                f"{100 * row['held, quiet']:.1f}% ({100 * row['quiet']:.0f}%)",
                sigma2,
                f"{row['error']:g}, {row['width']:g}",
                f"{row['shift']:g}, {row['shift 90%']:g}",
                held_all,
                f"{row['wider']:g}, {row['wider 90%']:g}",
            )
        )
    return as_markdown(
        "regressions | epsilon | fits (failed) | within reach held | held where quiet (quiet) "
        "| sigma2 held | error, width | shift from all rows: median, 90% | all rows held "
        "| times as wide: median, 90%",
        lines,
    )


EXPERIMENT = Grid(
    NAME,
    GRID,
    QUICK_GRID,
    trial,
    lambda setting: SEEDS * len((large if setting.rows else formulas)(setting.family)),
    QUICK_TRIALS,
    row_of,
    markdown,
    {"delta": DELTA},
).report("Real tables that nobody chose: linear regressions within reach and of all rows")
