"""What a row costs where categories have many levels: processor time of the sums, in memory.

Two numbers, a target and one or two categories, in batches of 65,536 rows. A design that this
version of noisewise refuses is left out.

    python benchmarks/levels.py
"""

from __future__ import annotations

import time

import numpy as np

from noisewise.core.design import Box, Design
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.rows.sums import SumPlan

ROWS, BATCH = 262_144, 65_536


def microseconds(levels: tuple[int, ...]) -> float:
    """Of one row, the best of three passes."""
    categories = {
        f"c{i}": Category(tuple(f"level {j}" for j in range(size)), "level 0")
        for i, size in enumerate(levels)
    }
    columns = {"a": Number(0, 1), "b": Number(0, 1), **categories, "y": Number(0, 1)}
    design = Design(Schema("people", columns), tuple(columns)[:-1], "y")
    rng = np.random.default_rng(1)
    table = [
        rng.integers(0, levels[int(name[1:])], ROWS).astype(np.int32)
        if name in categories
        else rng.random(ROWS)
        for name in columns
    ]
    best = np.inf
    for _ in range(3):
        sums = SumPlan(design, Box(), (SecondMoments(design),)).accumulator()
        start = time.process_time()
        for first in range(0, ROWS, BATCH):
            sums.add([column[first : first + BATCH] for column in table])
        best = min(best, time.process_time() - start)
    return 1e6 * best / ROWS


if __name__ == "__main__":
    for levels in ((20,), (50,), (390,), (1000,), (200, 190)):
        what = " and ".join(map(str, levels))
        try:
            print(f"{what:>12} levels: {microseconds(levels):.3f} microseconds a row", flush=True)
        except RequestError as error:
            print(f"{what:>12} levels: refused ({error})")
