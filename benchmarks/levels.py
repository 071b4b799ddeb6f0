"""What a row costs where categories have many levels: processor time of the sums, in memory.

Two numbers, a target and one or two categories, in batches of 65,536 rows: second moments, a Newton
round of a logistic regression, and second moments of people who have four rows each. A design that
this version of noisewise refuses is left out.

    python benchmarks/levels.py
    python benchmarks/levels.py --fit       what the default fit of such a Release takes
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import noisewise as nw
from noisewise.core.design import Box, Design
from noisewise.core.errors import RequestError
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.rows.scores import ScorePlan
from noisewise.holder.rows.sums import SumPlan

ROWS, BATCH = 262_144, 65_536
SHAPE = Shape(Transform.of(np.diag([0.3, 0.2]), np.zeros(2)), 1280, 900, 1700)
WHATS = ("moments", "newton round", "people")


def plan(what: str, levels: tuple[int, ...]) -> SumPlan | ScorePlan:
    columns = {"a": Number(0, 1), "b": Number(0, 1)}
    for i, size in enumerate(levels):
        columns[f"c{i}"] = Category(tuple(f"level {j}" for j in range(size)), "level 0")
    columns["y"] = Category(("no", "yes"), "no") if what == "newton round" else Number(0, 1)
    schema = Schema("people", columns, unit_column="id" if what == "people" else None)
    family = "logistic" if what == "newton round" else "linear"
    design = Design(schema, tuple(columns)[:-1], "y", family)
    if what == "newton round":
        rng = np.random.default_rng(0)
        return ScorePlan(
            design, SHAPE, tuple(rng.integers(-(2**16), 2**16, len(design.columns)).tolist())
        )
    return SumPlan(design, Box(), (SecondMoments(design),))


def microseconds(what: str, levels: tuple[int, ...], rows: int) -> float:
    """Of one row, the best of three passes."""
    rng = np.random.default_rng(1)
    table = [
        rng.random(rows),
        rng.random(rows),
        *(rng.integers(0, size, rows).astype(np.int32) for size in levels),
    ]
    asked = plan(what, levels)
    table.append(
        rng.integers(0, 2, rows).astype(np.int32)
        if asked.design.family == "logistic"
        else rng.random(rows)
    )
    if what == "people":
        table.append(pa.array(rng.integers(0, rows // 4, rows)))
    best = np.inf
    for _ in range(3):
        sums = asked.accumulator()
        start = time.process_time()
        for first in range(0, rows, BATCH):
            sums.add([column[first : first + BATCH] for column in table])
        sums.result()
        best = min(best, time.process_time() - start)
    return 1e6 * best / rows


def fit_seconds(levels: int, rows: int = 200_000) -> float:
    """Of a default fit: two numbers and a category, at epsilon 2."""
    rng = np.random.default_rng(1)
    names = tuple(f"level {j}" for j in range(levels))
    code, a, b = rng.integers(0, levels, rows), rng.random(rows), rng.random(rows)
    y = 0.3 + 0.2 * a - 0.1 * b + 0.1 * rng.normal(size=levels)[code] + 0.1 * rng.normal(size=rows)
    columns = {"a": Number(0, 1), "b": Number(0, 1), "c": Category(names, names[0])}
    schema = Schema("people", {**columns, "y": Number(0, 1)})
    request = nw.make_request(schema, target="y", features=["a", "b", "c"], epsilon=2)
    table = {"a": a, "b": b, "c": np.array(names)[code], "y": y}
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "budget.db"
        nw.Ledger(ledger).set_cap("people", epsilon=2)
        release = nw.publish(request, table, ledger=ledger).release
    start = time.process_time()
    nw.fit(release, seed=1)
    return time.process_time() - start


if __name__ == "__main__":
    if "--fit" in sys.argv:
        for levels in (3, 10, 20, 30, 50, 100):
            print(f"{levels:>4} levels: {fit_seconds(levels):.1f} s of processor time", flush=True)
        raise SystemExit
    for what in WHATS:
        for levels in ((20,), (50,), (390,), (1000,), (200, 190)):
            label = f"{what:>12}, {' and '.join(map(str, levels)):>11} levels"
            rows = ROWS if what == "moments" else ROWS // 4
            try:
                print(
                    f"{label}: {microseconds(what, levels, rows):.2f} microseconds a row",
                    flush=True,
                )
            except RequestError as error:
                print(f"{label}: refused ({error})")
