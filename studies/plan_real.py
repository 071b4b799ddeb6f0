"""Whether the range of a plan holds real widths: six real data sets, spreads known and not.

Each is published with Laplace noise and in rounds, at epsilon = 1, and fitted, all by defaults. The
plan knows the schema and the number of rows, and in a second run means and standard deviations of
the numbers too. Bounds are what a code book or a scale allows, in round numbers. The factors of
`planning.plan.WIDER` were chosen by six of them; the others were looked at afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import noisewise as nw
from noisewise.core.schema import Category, Column, Number
from studies.honesty.cells import REAL
from studies.report import Options, Report, kept_trials, published, write_both
from studies.tables import Row, as_markdown, short
from studies.trials import Record

Table = dict[str, Any]
EPSILON, DELTA = 1.0, 1e-6
RELEASES = 2  # of each data set and mechanism


class Data(NamedTuple):
    """A regression of the last column on the others."""

    columns: dict[str, Column]
    read: Callable[[], Table]
    chosen_by: bool = True


def _of_honesty(name: str, chosen_by: bool = True) -> Data:
    read, bounds = REAL[name]
    names = [*(f"x{j}" for j in range(1, len(bounds))), "y"]
    columns: dict[str, Column] = {
        column: Number(*pair) for column, pair in zip(names, bounds, strict=True)
    }
    return Data(columns, lambda: dict(zip(names, read().T, strict=True)), chosen_by)


def _of_statsmodels(name: str, columns: dict[str, Column]) -> Data:
    def read() -> Table:
        from importlib import import_module

        table = import_module(f"statsmodels.datasets.{name}").load_pandas().data
        return {column: table[column].to_numpy(float) for column in columns}

    return Data(columns, read)


def _births() -> Table:
    import pandas as pd
    from statsmodels.treatment import tests

    folder = Path(next(iter(tests.__path__)))
    table = pd.read_csv(folder / "results" / "cataneo2.csv")
    found: Table = {name: table[name].to_numpy(float) for name in ("mage", "medu", "nprenatal")}
    smokes = table["mbsmoke"].to_numpy(str)
    return {**found, "mbsmoke": smokes, "bweight": table["bweight"].to_numpy(float)}


def _people() -> Table:
    """Averages of everybody's years in RAND's experiment."""
    import pandas as pd
    from statsmodels.datasets import randhie

    table = pd.read_csv(Path(randhie.__file__).parent / "src" / "randhie.csv")
    names = {"logc": "coinsurance", "physlm": "limitation", "disea": "diseases", "mdvis": "visits"}
    mean = table.groupby("zper")[list(names)].mean()
    return {name: mean[column].to_numpy() for column, name in names.items()}


DATA = {
    "power": _of_honesty("power"),
    "bike": _of_honesty("bike"),
    "people of randhie": Data(
        {"coinsurance": Number(0, 4.62), "limitation": Number(0, 1), "diseases": Number(0, 60),
         "visits": Number(0, 30)},
        _people,
    ),
    "affairs": _of_statsmodels(
        "fair",
        {"rate_marriage": Number(1, 5), "age": Number(15, 60), "yrs_married": Number(0, 40),
         "children": Number(0, 10), "religious": Number(1, 4), "affairs": Number(0, 60)},
    ),
    "voters": _of_statsmodels(
        "anes96",
        {"PID": Number(0, 6), "age": Number(18, 100), "educ": Number(1, 7),
         "income": Number(1, 24), "selfLR": Number(1, 7)},
    ),
    "births": Data(
        {"mage": Number(12, 50), "medu": Number(0, 20), "nprenatal": Number(0, 40),
         "mbsmoke": Category(("nonsmoker", "smoker"), "nonsmoker"), "bweight": Number(500, 6000)},
        _births,
    ),
    "diabetes": _of_honesty("diabetes", chosen_by=False),
    "years of randhie": _of_honesty("randhie", chosen_by=False),
    "cirrhosis": _of_honesty("cirrhosis", chosen_by=False),
}  # fmt: skip
MECHANISMS = ("laplace", "rounds")
CELLS = tuple((name, mechanism) for name in DATA for mechanism in MECHANISMS)


def realise(name: str, mechanism: str, releases: int = RELEASES) -> Record:
    """Half-widths of 95% intervals, one list a coefficient, with what the two plans say."""
    data = DATA[name]
    rows, names = data.read(), list(data.columns)
    n = len(next(iter(rows.values())))
    schema = nw.Schema("real", data.columns)
    asked: dict[str, Any] = {"target": names[-1], "features": names[:-1], "epsilon": EPSILON}
    delta = None if mechanism == "laplace" else DELTA
    found: dict[str, list[float]] = {}
    for seed in range(releases):
        request = nw.make_request(schema, **asked, delta=delta)
        posterior = nw.fit(published(request, rows), seed=seed, chains=2, draws=400)
        for coefficient in posterior.columns.names:
            low, high = posterior.interval(coefficient)
            found.setdefault(coefficient, []).append((high - low) / 2)
    numbers = {key: one for key, one in data.columns.items() if isinstance(one, Number)}
    clipped = {key: np.clip(rows[key], one.lower, one.upper) for key, one in numbers.items()}
    known = {key: (float(x.mean()), float(x.std())) for key, x in clipped.items()}
    plans: dict[str, dict[str, list[float]]] = {}
    for called, expect in (("unknown", None), ("known", known)):
        words = {"n": n, "mechanism": mechanism, "delta": DELTA, "expect": expect}
        made = nw.plan(schema, **asked, **words)
        plans[called] = {
            row.name: [row.half_width_low, row.half_width, row.half_width_high] for row in made.rows
        }
    return {"realised": found, "plans": plans, "n": n}


def row_of(cell: tuple[str, str], record: Record) -> Row:
    """How many half-widths are within the plan's range, and how far its middle is off."""
    name, mechanism = cell
    row: Row = {"data": name, "n": record["n"], "mechanism": mechanism,
                "chosen_by": int(DATA[name].chosen_by)}  # fmt: skip
    for called, plan in record["plans"].items():
        pairs = [(x, plan[key]) for key, widths in record["realised"].items() for x in widths]
        row[f"{called}_of"] = len(pairs)
        row[f"{called}_within"] = sum(low <= x <= high for x, (low, _, high) in pairs)
        ratio = np.exp(np.mean([np.log(x / middle) for x, (_, middle, _) in pairs]))
        row[f"{called}_ratio"] = short(ratio, 3)
        width = np.exp(np.mean([np.log(high / low) for _, (low, _, high) in pairs]))
        row[f"{called}_range"] = short(width, 3)
    return row


def markdown(rows: Sequence[Row]) -> str:
    """A line a data set and mechanism, and sums."""
    lines = []
    for row in rows:
        cells = [row["data"], f"{row['n']:,}", row["mechanism"]]
        for called in ("unknown", "known"):
            cells.append(f"{row[f'{called}_within']} of {row[f'{called}_of']}")
            cells += [f"{row[f'{called}_ratio']:.2g}", f"{row[f'{called}_range']:.2g}"]
        lines.append(cells)
    for chosen, what in ((1, "the six"), (0, "the others")):
        for mechanism in MECHANISMS:
            some = [r for r in rows if r["chosen_by"] == chosen and r["mechanism"] == mechanism]
            cells = [f"**{what}**", "", mechanism]
            for called in ("unknown", "known"):
                within, of = (sum(r[f"{called}_{w}"] for r in some) for w in ("within", "of"))
                cells += [f"{within} of {of} ({100 * within / max(of, 1):.0f}%)", "", ""]
            lines.append(cells)
    head = "spreads {0}: within | realised over planned | highest over lowest of the range"
    both = f"{head.format('unknown')} | {head.format('known')}"
    return as_markdown(f"data | n | mechanism | {both}", lines)


def write(out: Path, options: Options) -> list[Path]:
    """The table, as CSV and Markdown."""
    cells = CELLS[2:4] if options.quick else CELLS
    releases = options.runs or RELEASES
    records = kept_trials(
        "plan-real",
        partial(_trial, cells, releases),
        len(cells),
        {"cells": [list(cell) for cell in cells], "releases": releases},
        out,
        options,
    )
    rows = [row_of(cell, record) for cell, record in zip(cells, records, strict=True)]
    return write_both(rows, markdown, "plan-real", out)


def _trial(cells: Sequence[tuple[str, str]], releases: int, number: int) -> Record:
    return {"trial": number, **realise(*cells[number], releases)}


EXPERIMENT = Report(
    "plan-real", "Whether the range of `noisewise plan` holds the widths of real data", write
)
