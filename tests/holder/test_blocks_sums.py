"""Exact sums within blocks: against Python's integers, in any order, from any engine's pieces."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.core.design import Design
from noisewise.core.errors import DataError
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.holder.blocks import sums as block_sums
from noisewise.holder.blocks.limbs import carry, split_rows
from noisewise.holder.blocks.sums import (
    CARRY_EVERY,
    BlockAccumulator,
    BlockGrid,
    BlockPlan,
    draw_blocks,
    exact_sum,
    limb_count,
)

SCHEMA = Schema(
    "people",
    {
        "x": Unbounded(0.5),
        "age": Number(18, 90),
        "region": Category(("north", "south", "east"), "north"),
        "y": Unbounded(1000.0),
    },
    fill={"age": 40.0, "region": "east"},
)
DESIGN = Design(SCHEMA, ("x", "age", "region"), "y")


def by_content(partitions, blocks):
    """An assignment that a row's values decide: never private, but the same in any order."""

    class Fixed(BlockAccumulator):
        def _assign(self, values):
            mixed = np.zeros(len(values), dtype=np.uint64)
            for column in values.T:
                mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
            drawn = [
                ((mixed * np.uint64(2 * r + 1)) >> np.uint64(33)) % np.uint64(blocks)
                for r in range(partitions)
            ]
            return np.array(drawn, dtype=np.uint32)

    return Fixed


class FixedPlan(BlockPlan):
    def accumulator(self):
        return by_content(self.partitions, self.blocks)(self)


def table(rows, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.standard_cauchy(rows) * 10.0 ** rng.integers(-3, 12, rows)
    age = rng.uniform(0, 120, rows)
    age[rng.random(rows) < 0.1] = np.nan
    region = rng.integers(-1, 3, rows).astype(np.int32)
    y = rng.normal(0, 1e5, rows)
    x[:3] = np.inf, -np.inf, 0.0
    return [x, age, region, y]


def python_integers(columns):
    """The value map, written out again."""
    x, age, region, y = columns
    rows = []
    for i in range(len(x)):
        a = 40.0 if np.isnan(age[i]) else age[i]
        code = 2 if region[i] < 0 else region[i]
        numbers = []
        for value, centre, scale, limit in (
            (x[i], 0.0, 2**29 / 0.5, 2**59),
            (a, 54.0, 2**50 / 36.0, 2**50),
            (None, 0, 0, 0),
            (y[i], 0.0, 2**29 / 1000.0, 2**59),
        ):
            if value is None:
                numbers += [int(code == 1), int(code == 2)]
                continue
            t = (float(value) - centre) * scale
            numbers.append(limit if t > limit else -limit if t < -limit else round(t))
        rows.append(numbers)
    return rows


def test_sums_are_those_of_python_integers():
    columns = table(700)
    plan = FixedPlan(DESIGN, 7, 3)
    accumulator = plan.accumulator()
    accumulator.add(columns)
    limbs = accumulator.result().limbs
    rows = python_integers(columns)
    assert BlockGrid(DESIGN).integers(columns).tolist() == rows
    blocks = accumulator._assign(np.array(rows, dtype=np.int64))
    size = len(rows[0])
    for r in range(3):
        for j in range(7):
            inside = [row for row, block in zip(rows, blocks[r], strict=True) if block == j]
            found = limbs[r, j].tolist()
            assert found[0] == len(inside)
            at = 1
            for a in range(size):
                assert exact_sum(found[at : at + 2]) == sum(row[a] for row in inside)
                at += 2
            for a in range(size):
                for b in range(a, size):
                    assert exact_sum(found[at : at + 3]) == sum(row[a] * row[b] for row in inside)
                    at += 3
            assert at == limb_count(size)


def test_order_and_pieces_do_not_matter():
    columns = table(30_000)
    plan = FixedPlan(DESIGN, 11, 2)
    whole = plan.accumulator()
    whole.add(columns)
    rng = np.random.default_rng(3)
    order = rng.permutation(30_000)
    cuts = np.sort(rng.integers(0, 30_000, 9))
    pieces = plan.accumulator()
    for piece in np.split(order, cuts):
        pieces.add([column[piece] for column in columns])
    assert pieces.n == whole.n == 30_000
    assert np.array_equal(pieces.result().limbs, whole.result().limbs)
    # The control: sums of doubles depend on the order (not `sum`, which since Python 3.12 carries
    # the rounding errors along).
    assert np.cumsum(columns[3])[-1] != np.cumsum(columns[3][order])[-1]


@pytest.mark.parametrize("a", [2**59, -(2**59), 2**59 - 1, -1, 0, 1, 2**30, -(2**30) - 1, 12345])
def test_limbs_at_the_edges(a):
    for b in (2**59, -(2**59), 2**44 - 1, -(2**44), 3, 0):
        limbs = np.empty((1, limb_count(2)), dtype=np.int64)
        split_rows(np.array([[a, b]], dtype=np.int64), limbs)
        row = limbs[0].tolist()
        assert exact_sum(row[1:3]) == a
        assert exact_sum(row[3:5]) == b
        assert [exact_sum(row[k : k + 3]) for k in (5, 8, 11)] == [a * a, a * b, b * b]
        for k in (5, 8, 11):
            assert 0 <= row[k] < 2**44
            assert 0 <= row[k + 1] < 2**44 + 2**17
            assert abs(row[k + 2]) <= 2**30 + 4


def test_as_many_rows_as_there_may_be_do_not_overflow():
    """2**18 worst rows between carries, 2**30 in all: by the limbs of one row, multiplied."""
    for a in (2**59, -(2**59)):
        limbs = np.empty((1, limb_count(1)), dtype=np.int64)
        split_rows(np.array([[a]], dtype=np.int64), limbs)
        total = np.zeros((1, 1, limb_count(1)), dtype=np.int64)
        for _ in range(2**12):
            total += limbs * CARRY_EVERY
            carry(total, 1)
        found = total[0, 0].tolist()
        assert found[0] == 2**30
        assert exact_sum(found[1:3]) == a * 2**30
        assert exact_sum(found[3:6]) == a * a * 2**30


def test_a_carry_in_the_middle_changes_nothing(monkeypatch):
    columns = table(5_000)
    plan = FixedPlan(DESIGN, 3, 2)
    expected = plan.accumulator()
    expected.add(columns)
    monkeypatch.setattr(block_sums, "CARRY_EVERY", 700)
    monkeypatch.setattr(block_sums, "_PASS_ROWS", 501)
    often = plan.accumulator()
    often.add(columns)
    assert np.array_equal(often.result().limbs, expected.result().limbs)


def test_missing_without_a_fill_is_an_error():
    schema = Schema("people", {"x": Unbounded(), "y": Unbounded()})
    accumulator = BlockPlan(Design(schema, ("x",), "y"), 5, 2).accumulator()
    with pytest.raises(DataError, match="column 'x' has missing values"):
        accumulator.add([np.array([1.0, np.nan]), np.array([1.0, 2.0])])


def test_every_row_is_in_one_block_of_each_partition():
    columns = table(4_000)
    accumulator = BlockPlan(DESIGN, 13, 5).accumulator()
    accumulator.add(columns)
    result = accumulator.result()
    assert result.n == 4_000
    assert (result.limbs[:, :, 0].sum(axis=1) == 4_000).all()
    assert "4000" not in repr(result)


def test_blocks_are_uniform_and_partitions_independent():
    rows, blocks = 200_000, 10
    drawn = draw_blocks(rows, 2, blocks)
    assert drawn.shape == (2, rows)
    assert drawn.max() == blocks - 1
    joint = np.bincount(drawn[0] * blocks + drawn[1], minlength=blocks**2)
    chi2 = ((joint - rows / blocks**2) ** 2 / (rows / blocks**2)).sum()
    assert chi2 < 99 + 7 * np.sqrt(2 * 99)  # seven standard deviations: one in 1e10
    order = np.bincount(drawn[0, :-1] * blocks + drawn[0, 1:], minlength=blocks**2)
    assert ((order - rows / 100) ** 2 / (rows / 100)).sum() < 99 + 7 * np.sqrt(2 * 99)
    biased = np.minimum(drawn[0], blocks - 2)  # the control
    counts = np.bincount(biased, minlength=blocks)
    assert ((counts - rows / blocks) ** 2 / (rows / blocks)).sum() > 1_000
