"""The sums of a round are the same integers however the rows arrive, and say what they should."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.core.design import Design
from noisewise.core.errors import DataError
from noisewise.core.rounds.transform import LARGEST_ROW, Shape, Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics.ball_moments import PRODUCT_ONE
from noisewise.holder.rows.rounds import BallPlan, ResidualPlan, TailPlan

SCHEMA = Schema(
    "people",
    {
        "age": Number(18, 90),
        "region": Category(("n", "s", "w"), "n"),
        "income": Number(0, 200_000),
        "hours": Number(0, 80),
    },
    fill={"age": 40.0, "region": "s"},
)
DESIGN = Design(SCHEMA, ("age", "region", "hours"), "income")
IS_NUMBER = [not column.is_indicator for column in DESIGN.columns]


def table(n=3000, seed=1):
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 9, n)
    hours = rng.normal(38, 4, n)
    income = 800 * age + rng.normal(0, 4000, n)
    age[rng.random(n) < 0.01] = np.nan
    region = rng.integers(-1, 3, n).astype(np.int32)
    return [age, region, hours, income]


def transform():
    spread = np.array([[0.2, 0.05, 0.1], [0.0, 0.1, 0.0], [0.02, 0.0, 0.3]])
    return Transform.of(spread, np.array([-0.3, 0.0, -0.6]))


def summed(plan, columns, cuts=()):
    accumulator = plan.accumulator()
    for piece in zip(*(np.split(column, cuts) for column in columns), strict=True):
        accumulator.add(list(piece))
    return accumulator.result()


SHAPES = [
    Shape(transform(), 1280, 0, 2500),
    Shape(transform(), 1280, 3000, 3500),
    Shape(Transform.box(3), 1280, 2000, 1774),
]


DIRECTION = (3000, -20_000, 1000, -70_000, 65_536, 120_000)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cuts", [(1, 2, 3), (1000, 1001), (8, 2999)])
def test_pieces_and_order_do_not_matter(shape, cuts):
    plan, columns = BallPlan(DESIGN, shape), table()
    whole = summed(plan, columns)
    order = np.random.default_rng(2).permutation(len(columns[0]))
    pieces = summed(plan, [column[order] for column in columns], cuts)
    assert whole.n == pieces.n == 3000
    assert (whole.inside == pieces.inside).all()
    assert (whole.outside == pieces.outside).all()
    counts = TailPlan(DESIGN, shape.transform)
    assert summed(counts, columns).counts == summed(counts, columns, cuts).counts
    if shape.weight:
        residuals = ResidualPlan(DESIGN, shape, DIRECTION, 9000)
        pieces = summed(residuals, [column[order] for column in columns], cuts)
        assert (summed(residuals, columns).inside == pieces.inside).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sums_are_those_of_the_map(shape):
    """Against floats: map, shrink, multiply. The integers differ by their rounding only."""
    age, region, hours, income = table()
    age = np.where(np.isnan(age), 40.0, age)
    region = np.where(region < 0, 1, region)
    w = np.array(
        [
            np.ones(len(age)),
            np.clip((age - 54) / 36, -1, 1),
            region == 1,
            region == 2,
            np.clip((hours - 40) / 40, -1, 1),
            np.clip((income - 1e5) / 1e5, -1, 1),
        ]
    )
    to_round = shape.map(IS_NUMBER)
    u = to_round @ w
    numbers = [j for j, is_number in enumerate([False, *IS_NUMBER]) if is_number]
    rows = numbers if shape.weight else list(range(1, len(u)))
    length = np.linalg.norm(u[rows], axis=0)
    u[rows] *= np.minimum(1, shape.radius / 1024 / np.maximum(length, 1e-9))
    result = summed(BallPlan(DESIGN, shape), table())
    gram = (result.inside + result.outside) / PRODUCT_ONE
    assert np.allclose(gram, np.triu(u @ u.T), atol=4.0)  # of thousands, rounded to 1/1024 a row


@pytest.mark.parametrize("radius", [2000, 65_536])
def test_residuals_are_those_of_the_map(radius):
    """Row by row in Python's integers, from rows as the last round has them."""
    shape, columns = SHAPES[1], table(200)
    plan = ResidualPlan(DESIGN, shape, DIRECTION, radius)
    whole, shrunk = np.zeros((6, 6)), 0
    for one in zip(*columns, strict=True):
        row = [np.array([value]) for value in one]
        sums = summed(BallPlan(DESIGN, shape), row)
        gram = sums.inside + sums.outside
        u = [int(entry) // shape.constant for entry in gram[0]]
        residual = sum(a * b for a, b in zip(DIRECTION, u, strict=True)) / 2**26
        v = [int(np.trunc(entry * np.clip(residual, -64, 64))) for entry in u]
        length = sum(entry**2 for entry in v)
        added = summed(plan, row).inside
        if length <= radius**2:
            assert (added == np.triu(np.outer(v, v))).all()
        else:
            shrunk += 1
            assert radius**2 * 0.99 < np.trace(added) < radius**2
        whole += added
    assert (summed(plan, columns).inside == whole).all()
    assert (shrunk > 0) == (radius == 2000)


def test_wide_designs_and_long_blocks():
    rng = np.random.default_rng(3)
    names = [f"x{j}" for j in range(40)]
    design = Design(
        Schema("wide", {name: Number(-1, 1) for name in names}), tuple(names[:-1]), "x39"
    )
    columns = [rng.uniform(-1, 1, 2500) for _ in names]
    shape = Shape(Transform.of(rng.normal(size=(40, 40)), np.zeros(40)), 1280, 0, 6000)
    whole = summed(BallPlan(design, shape), columns)
    pieces = summed(BallPlan(design, shape), columns, (7, 1234))
    assert (whole.inside == pieces.inside).all()
    assert (whole.outside == pieces.outside).all()
    assert whole.outside.any()


def test_missing_values_without_a_fill_are_an_error():
    columns = table()
    columns[2][5] = np.nan
    for plan in (BallPlan(DESIGN, SHAPES[0]), TailPlan(DESIGN, transform())):
        with pytest.raises(DataError, match="column 'hours' has missing values"):
            summed(plan, columns)


def test_plans_that_could_overflow_or_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="overflow"):
        BallPlan(DESIGN, Shape(transform(), 1280, 0, 1 << 17))
    with pytest.raises(ValueError, match="overflow"):
        ResidualPlan(DESIGN, SHAPES[1], (1 << 23, *DIRECTION[1:]), 3000)
    with pytest.raises(ValueError, match="one entry for every"):
        ResidualPlan(DESIGN, SHAPES[1], DIRECTION[1:], 3000)
    with pytest.raises(ValueError, match="number of rows"):
        TailPlan(DESIGN, Transform.box(2))
    good = Transform.box(3)
    rows = ((LARGEST_ROW, 1, 0), *good.matrix[1:])
    with pytest.raises(ValueError, match="adds up to more"):
        TailPlan(DESIGN, Transform(rows, good.offset, good.shift))
    with pytest.raises(ValueError, match="inverted"):
        TailPlan(DESIGN, Transform((good.matrix[0],) * 3, good.offset, good.shift))
    with pytest.raises(ValueError, match="shift"):
        TailPlan(DESIGN, Transform(good.matrix, good.offset, (0, 1, 1)))
    with pytest.raises(ValueError, match="offset"):
        TailPlan(DESIGN, Transform(good.matrix, (1 << 60, 0, 0), good.shift))
