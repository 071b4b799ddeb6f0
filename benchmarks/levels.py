"""What a row costs where categories have many levels: processor time of the sums, in memory.

Two numbers, a target and one or two categories, in batches of 65,536 rows: second moments, a Newton
round of a logistic regression, and second moments of people who have four rows each. A design that
this version of noisewise refuses is left out.

    python benchmarks/levels.py
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

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


if __name__ == "__main__":
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
