"""Sums of parts of a table, joined as integers, are those of the whole: for every plan."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from noisewise.core.design import Design
from noisewise.core.errors import DataError
from noisewise.core.schema import Category, Schema, Unbounded
from noisewise.holder import rows as plan_module
from noisewise.holder.blocks.sums import BlockPlan, RowPlan
from noisewise.holder.engines.batches import column_readers
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.rows.rehearsal import ReadAll
from noisewise.holder.rows.rounds import BallPlan, TailPlan

from ..conformance.test_engines import (
    TERMS_FORMULA,
    Ball,
    ball_case,
    level_case,
    null_case,
    plan_of,
    read_formula,
    terms_case,
    with_ids,
)
from . import test_glm_rows as scores_of
from . import test_partition as partitions
from . import test_rounds_rows as rounds


def regression():
    case = level_case(Ball(1.25))
    return case.plan(fourth=True), case.table


def averaged():
    case = null_case()
    return case.plan("add_remove_one", ids="who is it"), with_ids(case, "words", people=60)


def terms():
    table, schema = terms_case()
    target, features = read_formula(TERMS_FORMULA, schema)
    return plan_of(schema, features, target), table


def round_table(n=3000):
    age, region, hours, income = rounds.table(n)
    words = np.array(["n", "s", "w", None], dtype=object)[region]
    columns = {"age": age, "region": pa.array(words.tolist()), "hours": hours, "income": income}
    return pa.table(columns)


def in_ball():
    return BallPlan(rounds.DESIGN, rounds.SHAPES[1]), round_table()


def tail():
    return TailPlan(rounds.DESIGN, rounds.transform()), round_table()


def scores():
    rng = np.random.default_rng(8)
    columns = {"x": rng.normal(5, 3, 2000), "z": rng.normal(0, 0.6, 2000)}
    columns |= {"g": rng.choice(["a", "b", "c"], 2000), "ill": rng.choice(["no", "yes"], 2000)}
    return scores_of.plan("ill", "logistic"), pa.table(columns)


def counts():
    rng = np.random.default_rng(6)
    table = pa.table({"g": rng.choice(["a", "b"], 3000), "h": rng.choice(["u", "v", "w"], 3000)})
    columns = {"g": Category(("a", "b"), "a"), "h": Category(("u", "v", "w"), "u")}
    asked = make_network_request(Schema("d", columns), network={"g": [], "h": ["g"]}, epsilon=1)
    return asked.plan(), table


def by_level():
    rows = partitions.people()
    table = pa.table({name: pa.array(values.tolist()) for name, values in rows.items()})
    return partitions.partition().plan(), table


def unbounded():
    design = Design(Schema("d", {"x": Unbounded(0.5), "y": Unbounded(10.0)}), ("x",), "y")
    rng = np.random.default_rng(7)
    return design, pa.table({"x": rng.standard_cauchy(900) * 1e9, "y": rng.normal(0, 100, 900)})


def one_block():
    design, table = unbounded()
    return BlockPlan(design, 1, 1), table  # a single block: there is no chance in it


def kept_rows():
    design, table = unbounded()
    return RowPlan(design), table


def rehearsal():
    plan, table = averaged()
    return ReadAll(plan.schema), table


PLANS = [
    regression,
    averaged,
    terms,
    in_ball,
    tail,
    scores,
    counts,
    by_level,
    one_block,
    kept_rows,
    rehearsal,
]


def summed(plan, table):
    accumulator = plan.accumulator()
    for batch in table.combine_chunks().select(plan.sources).to_batches(max_chunksize=700):
        readers = column_readers(plan, batch.schema.types)
        accumulator.add([read(column) for read, column in zip(readers, batch, strict=True)])
    return accumulator


def assert_same(one, other):
    """Results of any plan."""
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
        return
    values = vars(one) if hasattr(one, "__dict__") else {"": one}
    theirs = vars(other) if hasattr(other, "__dict__") else {"": other}
    assert values.keys() == theirs.keys()
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(next(iter(value.values())), np.ndarray):
            assert all(np.array_equal(value[key], theirs[name][key]) for key in value)
        else:
            assert np.array_equal(value, theirs[name])


@pytest.mark.parametrize("asked", PLANS)
def test_parts_are_joined_to_the_whole(asked):
    plan, table = asked()
    whole = summed(plan, table).result()
    whose = np.random.default_rng(2).integers(0, 3, table.num_rows)
    ids = plan.schema.unit_column
    if ids is not None:  # rows of one person stay together
        whose = np.array([hash(one) % 3 for one in table[ids].to_pylist()])
    parts = [table.filter(pa.array(whose == number)) for number in range(3)]
    total = plan.accumulator()
    for part in (*parts, table.slice(0, 0)):
        state = summed(plan, part).state()
        assert state.dtype == np.int64
        total.join(state)
    assert_same(total.result(), whole)
    # A part less, or twice, is something else: the comparison can fail.
    with pytest.raises(AssertionError):
        assert_same(summed(plan, parts[0]).result(), whole)


def test_too_many_rows_are_refused_when_parts_are_joined(monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_ROWS", 79)
    plan = ball_case(1).plan()
    half = summed(plan, ball_case(1).table.slice(0, 40)).state()
    total = plan.accumulator()
    total.join(half)
    with pytest.raises(DataError, match="more than"):
        total.join(half)
