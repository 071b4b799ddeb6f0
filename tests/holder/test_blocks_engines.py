"""Every engine gives blocks the same rows: with blocks fixed by content, the same integers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from noisewise.core.design import Design
from noisewise.core.errors import DataError
from noisewise.core.schema import Category, Number, Schema, Unbounded
from tests.conformance.test_engines import READERS
from tests.holder.test_blocks_sums import FixedPlan

SCHEMA = Schema(
    "d",
    {
        "x": Unbounded(0.5),
        "age": Number(18, 90),
        "region": Category(("north", "süd", "east"), "north"),
        "y": Unbounded(10.0),
    },
    fill={"age": 40.0, "region": "east", "x": -1.5},
)
PLAN = FixedPlan(Design(SCHEMA, ("x", "age", "region"), "y"), 5, 3)


def table(rows=400):
    rng = np.random.default_rng(17)
    x = rng.standard_cauchy(rows) * 1e3
    x[:4] = 1e300, -1e300, 0.1, -0.0
    age = [None if i % 17 == 0 else float(v) for i, v in enumerate(rng.uniform(10, 100, rows))]
    region = [("north", "süd", "east", "nowhere")[i % 4] for i in range(rows)]
    return pa.table(
        {
            "x": pa.array([None if i % 13 == 5 else float(v) for i, v in enumerate(x)]),
            "age": pa.array(age, type=pa.float64()),
            "region": pa.array(region),
            "y": pa.array(rng.normal(0, 100, rows)),
        }
    )


def codes(column):
    levels = list(SCHEMA.columns["region"].levels)
    return np.array([levels.index(v) if v in levels else -1 for v in column], dtype=np.int32)


@pytest.fixture(scope="module")
def expected():
    rows = table()
    accumulator = PLAN.accumulator()
    numbers = {
        name: np.array([np.nan if v is None else v for v in rows[name].to_pylist()])
        for name in ("x", "age", "y")
    }
    accumulator.add([numbers["x"], numbers["age"], codes(rows["region"].to_pylist()), numbers["y"]])
    return accumulator.result()


# Spark's workers don't have the tests' own plan; see `test_joined` and `test_spark`.
@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "spark"])
def test_the_same_integers_from_every_engine(reader, expected, tmp_path):
    found = READERS[reader](table(), tmp_path).sums(PLAN)
    assert found.n == expected.n == 400
    assert np.array_equal(found.limbs, expected.limbs)


@pytest.mark.parametrize("reader", ["arrow", "polars", "parquet", "csv", "duckdb-parquet"])
def test_missing_values_without_a_fill_are_an_error_in_every_engine(reader, tmp_path):
    plan = FixedPlan(Design(Schema("d", dict(SCHEMA.columns)), ("x", "age", "region"), "y"), 5, 3)
    with pytest.raises(DataError, match="has missing values"):
        READERS[reader](table(), tmp_path).sums(plan)


def test_a_shuffled_file_has_the_same_integers(expected, tmp_path):
    rows = table()
    shuffled = rows.take(np.random.default_rng(3).permutation(rows.num_rows))
    found = READERS["parquet"](shuffled, tmp_path).sums(PLAN)
    assert np.array_equal(found.limbs, expected.limbs)
