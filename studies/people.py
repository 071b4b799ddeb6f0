"""People with several rows: whether intervals hold the truth about people, and what ids are worth.

**Coverage.** People have 1 to 10 rows, which go together: x and the error of y have a part that is
the person's own, and most of a person's rows have the same level. The truth is the regression that
made the rows. They are published by `publish` with ids, so that every person is averaged, and
fitted by `fit` under its defaults. The same rows without ids, with a unit of ten rows, say what
that is worth, and what a model does that takes ten rows of one person for ten people.

**RAND's experiment.** 20,190 years of 5,912 people, up to five of each, published with ids and with
a unit of five rows.

The noise of a Release takes no seed, so a second run differs by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.fit import fit
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Category, Column, Number, Schema
from noisewise.holder.requests.regression import make_request
from studies.report import Grid, Options, Report, published, seed_of
from studies.tables import Row, as_markdown, short
from studies.trials import Record

NAME = "people"
THETA = {"x": 0.8, "z": -0.3, "g[s]": 0.5, "g[w]": -0.4}
MOST_ROWS = 10
LEVELS = ("n", "s", "w")
COLUMNS: dict[str, Column] = {
    "x": Number(-5, 5),
    "z": Number(-5, 5),
    "g": Category(LEVELS, "n"),
    "y": Number(-10, 10),
}
WAYS: dict[str, dict[str, Any]] = {
    "Laplace": {},
    "Gaussian": {"delta": "1e-6", "rounds": 1},
    "rounds": {"delta": "1e-6", "rounds": "auto"},
}


class Setting(NamedTuple):
    """One cell."""

    way: str
    neighbours: str
    people: int
    epsilon: float


GRID = (
    Setting("Laplace", "replace_one", 5_000, 2.0),
    Setting("Gaussian", "add_remove_one", 5_000, 2.0),
    Setting("rounds", "replace_one", 10_000, 2.0),
    Setting("rounds", "add_remove_one", 40_000, 4.0),
)
TRIALS, QUICK_TRIALS = 120, 2
COMPARED = 30  # trials of a cell are published without ids, too


def table(people: int, rng: np.random.Generator) -> dict[str, Any]:
    """Rows in no order."""
    who = np.repeat(np.arange(people), rng.integers(1, MOST_ROWS + 1, people))
    rng.shuffle(who)
    n = len(who)
    x, z = (0.7 * rng.normal(size=people)[who] + 0.7 * rng.normal(size=n) for _ in range(2))
    usual = rng.choice(len(LEVELS), people, p=[0.5, 0.3, 0.2])[who]
    level = np.where(rng.random(n) < 0.7, usual, rng.integers(len(LEVELS), size=n))
    error = rng.normal(size=people)[who] + rng.normal(size=n)
    slopes = list(THETA.values())
    y = slopes[0] * x + slopes[1] * z + np.array([0.0, *slopes[2:]])[level] + error
    return {"x": x, "z": z, "g": np.array(LEVELS)[level], "y": y, "who": who}


def released(schema: Schema, rows: dict[str, Any], way: str, epsilon: float) -> Release:
    """What the holder publishes."""
    *features, target = schema.columns
    request = make_request(schema, target=target, features=features, epsilon=epsilon, **WAYS[way])
    found: Release = published(request, rows)
    return found


def trial(setting: Setting, number: int) -> Record:
    """One set of rows, published with ids, and some of them without."""
    rng = np.random.default_rng(seed_of(NAME, *map(str, setting), number))
    rows = table(setting.people, rng)
    schemas = {"ids": Schema(NAME, COLUMNS, setting.neighbours, unit_column="who")}
    if number < COMPARED:
        schemas["rows"] = Schema(NAME, COLUMNS, setting.neighbours, MOST_ROWS)
    record: Record = {"trial": number}
    truth = np.array(list(THETA.values()))
    for what, schema in schemas.items():
        release = released(schema, rows, setting.way, setting.epsilon)
        posterior = fit(release, seed=number, chains=4, draws=500)
        ends = np.array([posterior.interval(name) for name in THETA])
        record[what] = {
            "held": ((ends[:, 0] < truth) & (truth < ends[:, 1])).tolist(),
            "width": (ends[:, 1] - ends[:, 0]).tolist(),
            "noise_share": [posterior.privacy_share()[name] for name in THETA],
        }
    return record


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line of the table."""
    of = [record["ids"] for record in records]
    rows = [record["rows"] for record in records if "rows" in record]
    held = np.array([one["held"] for one in of])
    by_release = held.mean(axis=1)
    width = np.median([one["width"] for one in of], axis=0)
    return {
        **setting._asdict(),
        "releases": len(of),
        "held": round(float(held.mean()), 3),
        "held_error": round(float(by_release.std(ddof=1) / len(of) ** 0.5), 3),
        "noise_share": round(float(np.median([one["noise_share"] for one in of])), 2),
        "rows_held": round(float(np.mean([one["held"] for one in rows])), 3),
        "rows_releases": len(rows),
        "width_ratio": round(
            float(np.median(np.median([one["width"] for one in rows], axis=0) / width)), 2
        ),
    }


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell."""
    return as_markdown(
        "noise | neighbours | people | epsilon | Releases with ids | truth held at 95% | share "
        "of the variance from noise | without ids: held, of how many | width without ids over with",
        (
            (
                *(row["way"], row["neighbours"], f"{row['people']:,}", f"{row['epsilon']:g}"),
                *(row["releases"], f"{100 * row['held']:.1f} ± {100 * row['held_error']:.1f}%"),
                f"{row['noise_share']:g}",
                f"{100 * row['rows_held']:.0f}%, {row['rows_releases']}",
                f"{row['width_ratio']:g}",
            )
            for row in rows
        ),
    )


# ---------------------------------------------------------------------------------------------
# RAND's experiment

RAND: dict[str, Column] = {
    "coinsurance": Number(0, 4.62),
    "limitation": Number(0, 1),
    "diseases": Number(0, 60),
    "visits": Number(0, 30),
}
RAND_TRIALS, RAND_QUICK_TRIALS = 5, 1


class Way(NamedTuple):
    """What RAND's rows are published with."""

    way: str


def rand_rows() -> dict[str, Any]:
    """As `examples/rand_health.py` has them."""
    import pandas as pd
    from statsmodels.datasets import randhie

    found = randhie.load_pandas().data
    source = pd.read_csv(Path(randhie.__file__).parent / "src" / "randhie.csv")
    columns = ("lncoins", "physlm", "disea", "mdvis")
    rows: dict[str, Any] = {n: found[c].to_numpy() for n, c in zip(RAND, columns, strict=True)}
    return {**rows, "who": source["zper"].to_numpy()}


def rand_trial(setting: Way, number: int) -> Record:
    """Published with ids, and with a unit of five rows."""
    rows, record = rand_rows(), Record({"trial": number})
    for what, schema in (
        ("ids", Schema("rand", RAND, unit_column="who")),
        ("rows", Schema("rand", RAND, max_rows_per_unit=5)),
    ):
        release = released(schema, rows, setting.way, 1.0)
        posterior = fit(release, seed=number, chains=4, draws=500)
        ends = np.array([posterior.interval(name) for name in list(RAND)[:-1]])
        record[what] = {
            "n": release.n,
            # The first of several rounds says little about the noise of all.
            "noise": None if release.rounds else release.second_moments.scale / STATISTIC_ONE,
            "width": (ends[:, 1] - ends[:, 0]).tolist(),
        }
    return record


def rand_row(setting: Way, records: Sequence[Record]) -> Row:
    """One line of the second table."""
    ids, rows = ([record[what] for record in records] for what in ("ids", "rows"))
    noise = None
    if ids[0]["noise"] is not None:
        noise = round(rows[0]["noise"] / rows[0]["n"] * ids[0]["n"] / ids[0]["noise"], 3)

    def widths(of: Sequence[Any]) -> FloatArray:
        found: FloatArray = np.median([one["width"] for one in of], axis=0)
        return found

    return {
        "way": setting.way,
        "releases": len(records),
        "people": ids[0]["n"],
        "rows": rows[0]["n"],
        "noise_ratio": noise,
        "width_ratio": round(float(np.median(widths(rows) / widths(ids))), 2),
        **{
            f"width_{name}": short(value, 3) for name, value in zip(RAND, widths(ids), strict=False)
        },
    }


def rand_markdown(rows: Sequence[Row]) -> str:
    """A line a kind of noise."""
    names = list(RAND)[:-1]
    lines = []
    for row in rows:
        widths = ", ".join(f"{row[f'width_{name}']:g}" for name in names)
        size, ratio = f"{row['people']:,}, {row['rows']:,}", f"{row['width_ratio']:g}"
        lines.append((row["way"], row["releases"], size, row["noise_ratio"] or "", ratio, widths))
    return as_markdown(
        "noise | Releases each | people, rows | noise on a mean: five rows over ids | width of "
        "95% intervals: five rows over ids | widths with ids: " + ", ".join(names),
        lines,
    )


EVERYBODY = Grid(
    NAME,
    GRID,
    GRID[:1],
    trial,
    lambda _: TRIALS,
    QUICK_TRIALS,
    row_of,
    markdown,
    {"most_rows": MOST_ROWS},
)
OF_RAND = Grid(
    f"{NAME}-rand",
    [Way(way) for way in WAYS],
    [Way("Laplace")],
    rand_trial,
    lambda _: RAND_TRIALS,
    RAND_QUICK_TRIALS,
    rand_row,
    rand_markdown,
    {"columns": list(RAND)},
)


def write(out: Path, options: Options) -> list[Path]:
    """Both tables; `--trials` is of the first."""
    return [*EVERYBODY.write(out, options), *OF_RAND.write(out, options._replace(runs=None))]


EXPERIMENT = Report(
    NAME,
    "Coverage for people with 1 to 10 rows whose rows are averaged, and what ids are worth",
    write,
)
