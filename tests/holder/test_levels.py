"""Sums by level are the integers that indicators give, and take no longer with more levels."""

from __future__ import annotations

import time

import numpy as np
import pytest

from noisewise.core.design import Ball, Box, Design
from noisewise.core.errors import RequestError
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.rows import levels as levels_module
from noisewise.holder.rows.levels import Narrow
from noisewise.holder.rows.rounds import BallPlan, ResidualPlan, TailPlan
from noisewise.holder.rows.scores import ScorePlan
from noisewise.holder.rows.sums import SumPlan
from noisewise.holder.rows.values import RowGrid

TRANSFORM = Transform.of(np.array([[0.2, 0.05], [0.02, 0.3]]), np.array([-0.3, 0.1]))


ONE_NUMBER = Transform.of(np.array([[0.2]]), np.array([-0.3]))


def design(*sizes, neighbours="replace_one"):
    columns = {"x": Number(-1, 1)}
    for j, size in enumerate(sizes):
        names = tuple(f"{i}" for i in range(size))
        columns[f"g{j}"] = Category(names, names[size // 2])
    columns["y"] = Number(0, 1)
    schema = Schema("d", columns, neighbours, fill={"x": 0.5, "g0": "1"})
    return Design(schema, tuple(columns)[:-1], "y")


def table(sizes, n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, n)
    x[::50] = np.nan
    codes = [rng.integers(-(j == 0), size, n).astype(np.int32) for j, size in enumerate(sizes)]
    return [x, *codes, rng.uniform(-0.1, 1.1, n)]


PLANS = {
    "box": lambda made: SumPlan(made, Box(), (SecondMoments(made),)),
    "ball": lambda made: SumPlan(made, Ball(1.2), (SecondMoments(made),)),
    "small ball": lambda made: SumPlan(made, Ball(0.02), (SecondMoments(made),)),
    "round": lambda made: BallPlan(made, Shape(TRANSFORM, 1280, 3000, 500)),
    "all far": lambda made: BallPlan(made, Shape(TRANSFORM, 1280, 3000, 1)),
    "numbers alone": lambda made: BallPlan(made, Shape(TRANSFORM, 1280, 0, 500)),
    "tail": lambda made: TailPlan(made, TRANSFORM),
    "residuals": lambda made: residuals(made, 60_000),
    "residuals, far": lambda made: residuals(made, 900),
    "newton": lambda made: newton(made, 1700),
    "newton, far": lambda made: newton(made, 1),
}


def residuals(made, radius):
    direction = np.random.default_rng(4).integers(-(2**17), 2**17, len(made.names))
    shape = Shape(TRANSFORM, 1280, 3000, 500)
    return ResidualPlan(made, shape, tuple(direction.tolist()), radius)


def newton(made, radius):
    """A round of a Poisson regression of the same columns."""
    made = Design(made.schema, made.features, made.target, "poisson")
    theta = np.random.default_rng(3).integers(-(2**17), 2**17, len(made.columns))
    shape = Shape(ONE_NUMBER, 1280, 900, radius)
    return ScorePlan(made, shape, tuple(theta.tolist()))


def numbers_of(result):
    """All integers of a result, and how many rows."""
    parts = vars(result).copy()
    parts.update(parts.pop("values", {}))
    return {name: np.array(part).tolist() for name, part in parts.items()}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("sizes", [(30,), (12, 3, 9), (2, 40, 3)])
def test_sums_by_level_are_those_of_indicators(plan, sizes, monkeypatch):
    made, rows = design(*sizes, neighbours="add_remove_one"), table(sizes, 3000)
    columns = RowGrid.with_bits(made, 16).columns
    assert len(Narrow(made, columns).columns) < len(columns)
    whole = PLANS[plan](made).accumulator()
    whole.add(rows)
    parts = PLANS[plan](made).accumulator()
    for piece in zip(*(np.split(column, [1, 7, 1500]) for column in rows), strict=True):
        one = PLANS[plan](made).accumulator()
        one.add(list(piece))
        parts.join(one.state())
    monkeypatch.setattr(levels_module, "MANY", 10**9)
    assert Narrow(made, columns).columns == columns
    dense = PLANS[plan](made).accumulator()
    dense.add(rows)
    assert numbers_of(whole.result()) == numbers_of(dense.result()) == numbers_of(parts.result())


@pytest.mark.parametrize("plan", ["box", "round", "newton"])
def test_a_row_takes_no_longer_with_a_thousand_levels(plan):
    """It took 170 times as long with indicators. Processor time, the best of three turns each."""

    def seconds(size):
        accumulator = PLANS[plan](design(size)).accumulator()
        rows = table((size,), 20_000)
        best = np.inf
        for _ in range(3):
            start = time.process_time()
            accumulator.add(rows)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(1000) < 10 * seconds(20)


def test_what_a_design_may_have():
    made = design(1000, 150)
    assert len(made.columns) == 1150
    # Of 1151 columns with the constant: no two levels of one category, and n is public.
    zeros = 999 * 998 // 2 + 149 * 148 // 2
    assert len(SecondMoments(made).entries) == 1151 * 1152 // 2 - zeros - 1
    with pytest.raises(RequestError, match="1201 columns, at most 1200"):
        design(1000, 201)
    names = [f"x{j}" for j in range(401)]
    with pytest.raises(RequestError, match="401 numbers and categories, at most 400"):
        Design(Schema("d", dict.fromkeys(names, Number(0, 1))), tuple(names[1:]), "x0")
