"""The value map by itself: bounds, rounding, missing values, and that the ball is never left."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core.design import Ball, Box, Design
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.rows.values import (
    BALL_MARGIN,
    RowGrid,
    fill_code,
    grid_value,
    missing_value_error,
)

SCHEMA = Schema(
    "d",
    {
        "x": Number(-3, 4.7),
        "g": Category(("a", "b", "c"), "b"),
        "y": Number(0, 10),
    },
    fill={"x": 1.5, "g": "c"},
)
DESIGN = Design(SCHEMA, ("x", "g"), "y")


def test_columns_of_the_grid():
    grid = RowGrid.of(DESIGN, Box(), 2)
    assert grid.one == 2**16
    assert [(c.source, c.code) for c in grid.columns] == [(0, None), (1, 0), (1, 2), (2, None)]
    assert grid.columns[0].fill == grid_value(1.5, *_map(grid, 0), 2**16)
    assert [c.fill for c in grid.columns[1:]] == [None, None, None]
    assert [fill_code(SCHEMA, name) for name in DESIGN.sources] == [None, 2, None]
    assert RowGrid.of(DESIGN, Ball(1.7), 4).radius == math.floor(1.7 * 256)


def _map(grid, j):
    return grid.columns[j].centre, grid.columns[j].scale


def rounded(degree, values):
    """One column of numbers through `round_block`, as the other columns stay at zero."""
    grid = RowGrid.of(DESIGN, Box(), degree)
    centred = np.zeros((4, len(values)))
    with np.errstate(over="ignore"):
        centred[0] = np.array(values) - grid.columns[0].centre
        grid.round_block(centred, out=centred)
    return grid, centred[0]


@pytest.mark.parametrize("degree", [2, 4])
@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
@settings(max_examples=100, deadline=None)
def test_blocks_and_single_values_agree(degree, values):
    grid, found = rounded(degree, values)
    for x, t in zip(values, found, strict=True):
        exact = (x - grid.columns[0].centre) * grid.columns[0].scale + 0.5
        if math.isfinite(exact):
            assert t == grid_value(x, *_map(grid, 0), grid.one)
        else:
            assert t == math.copysign(grid.one, exact)


@pytest.mark.parametrize("degree", [2, 4])
def test_rounding_is_to_the_nearest_grid_point(degree):
    values = np.random.default_rng(1).uniform(-3, 4.7, 2000)
    grid, found = rounded(degree, values)
    centre, half_width = Fraction(-3.0) / 2 + Fraction(4.7) / 2, Fraction(4.7) / 2 + Fraction(1.5)
    slack = Fraction(1, 2) + Fraction(1, 2**30)  # the roundings of the doubles on the way
    for x, t in zip(values, found, strict=True):
        unit = (Fraction(float(x)) - centre) / half_width
        assert abs(Fraction(int(t)) - unit * grid.one) <= slack


@pytest.mark.parametrize("degree", [2, 4])
def test_bounds_are_attained_and_never_passed(degree):
    beyond = [-3, 4.7, -3.0000001, 4.7000001, -1e300, 1e308, -math.inf, math.inf]
    grid, found = rounded(degree, beyond)
    assert (np.abs(found) == grid.one).all()
    assert (np.sign(found) == [-1, 1] * 4).all()


def test_missing_values_stay_visible():
    _, found = rounded(2, [math.nan, 0.0])
    assert np.isnan(found).tolist() == [True, False]


def test_an_indicator_is_zero_or_one_on_every_grid():
    for degree in (2, 4):
        grid = RowGrid.of(DESIGN, Box(), degree)
        block = np.zeros((4, 2))
        block[1] = [0, 1]
        grid.round_block(block, out=block)
        assert block[1].tolist() == [0, grid.one]


def longest(features, radius, margin=BALL_MARGIN):
    """The largest squared length after shrinking, in exact integers."""
    out = features.astype(float)
    if margin == BALL_MARGIN:
        RowGrid(16, (), radius).shrink_block(out)
    else:
        squares = (out * out).sum(0)
        far = squares > radius * radius
        out[:, far] = np.trunc(out[:, far] * (radius / np.sqrt(squares[far]) * margin))
    return max(sum(int(x) ** 2 for x in column) for column in out.T)


def awkward_rows(radius, k, rng):
    """Rows just outside the ball, at corners, along axes, and Pythagorean ones."""
    one = 2**16
    rows = [rng.integers(-one, one + 1, k) for _ in range(400)]
    rows += [np.full(k, one), np.full(k, -one), np.eye(k, dtype=int)[0] * one]
    for _ in range(400):
        direction = rng.normal(size=k)
        near = np.rint(direction / np.linalg.norm(direction) * radius)
        rows.append(np.clip(near + rng.integers(-1, 2, k), -one, one).astype(int))
    triple = np.zeros(k, dtype=int)
    triple[:2] = 3 * (one // 5), 4 * (one // 5)
    return np.array([*rows, triple]).T


@pytest.mark.parametrize("k", [2, 3, 20])
def test_the_ball_is_never_left(k):
    rng = np.random.default_rng(k)
    for radius in (1, 2, 255, 256, 4097, 46341, 65535, 65536, 92681, 4 * 65536):
        assert longest(awkward_rows(radius, k, rng), radius) <= radius**2


def test_a_factor_that_is_too_large_leaves_the_ball():
    """The negative control: the search above finds a margin on the wrong side."""
    rng = np.random.default_rng(2)
    rows = awkward_rows(65536, 3, rng)
    assert longest(rows, 46341, margin=1 + 2**-12) > 46341**2


def test_rows_inside_the_ball_do_not_change():
    rng = np.random.default_rng(3)
    inside = np.rint(rng.uniform(-1, 1, (5, 300)) * 65536 / math.sqrt(5))
    shrunk = inside.copy()
    RowGrid(16, (), 65536).shrink_block(shrunk)
    assert (shrunk == inside).all()


def test_shrinking_keeps_the_direction():
    """A row comes out as far as the grid allows: at most one unit shorter in every feature."""
    rng = np.random.default_rng(4)
    rows = rng.integers(-65536, 65537, (4, 500)).astype(float)
    length = np.sqrt((rows**2).sum(0))
    radius = 30000
    shrunk = rows.copy()
    RowGrid(16, (), radius).shrink_block(shrunk)
    ideal = rows * np.minimum(1, radius / length)
    assert (np.abs(shrunk) <= np.abs(ideal) + 1e-6).all()
    assert (np.abs(ideal) - np.abs(shrunk) < 1 + 1e-6).all()


def test_the_margin_pays_for_four_roundings():
    u = Fraction(1, 2**53)
    assert Fraction(BALL_MARGIN) == 1 - 8 * u
    assert (1 + u) ** 3 / (1 - u) * Fraction(BALL_MARGIN) < 1


def test_errors_name_the_column_and_the_remedy():
    for name in DESIGN.sources:
        message = str(missing_value_error(SCHEMA, name))
        assert f"column '{name}'" in message
        assert "fill" in message
