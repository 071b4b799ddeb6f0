"""Scores and information: the same integers, whichever engine reads the rows."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

from noisewise.core.design import Design
from noisewise.core.errors import DataError
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.rows.scores import ScorePlan

COLUMNS = {
    "x": Number(0, 10),
    "z": Number(-1, 1),
    "g": Category(("a", "b", "c"), "a"),
    "ill": Category(("no", "yes"), "no"),
    "visits": Number(0, 9),
}
SPREAD, CENTRE = np.array([[0.3, 0.0], [0.1, 0.2]]), np.array([0.1, 0.0])
SHAPE = Shape(Transform.of(SPREAD, CENTRE), 1280, 900, 1700)
THETA = (20_000, -30_000, 50_000, 7_000, -9_000)


def plan(target, family, **changes):
    schema = Schema("people", {**COLUMNS}, **changes)
    return ScorePlan(Design(schema, ("x", "z", "g"), target, family), SHAPE, THETA)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(1)
    n = 5000
    return pd.DataFrame(
        {
            "x": rng.normal(5, 3, n),
            "z": rng.normal(0, 0.6, n),
            "g": rng.choice(["a", "b", "c"], n),
            "ill": rng.choice(["no", "yes"], n),
            "visits": rng.poisson(3, n),
        }
    )


@pytest.mark.parametrize(("target", "family"), [("ill", "logistic"), ("visits", "poisson")])
def test_engines_agree(people, target, family, tmp_path):
    people.to_csv(tmp_path / "people.csv", index=False)
    people.to_parquet(tmp_path / "people.parquet")
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.register("given", people)
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
    sources = [
        open_source(people, engine="auto", table=None, query=None),
        open_source(tmp_path / "people.csv", engine="auto", table=None, query=None),
        open_source(tmp_path / "people.parquet", engine="stream", table=None, query=None),
        open_source(tmp_path / "people.parquet", engine="duckdb", table=None, query=None),
        open_source(tmp_path / "people.duckdb", engine="auto", table="people", query=None),
    ]
    first, *others = [source.sums(plan(target, family)) for source in sources]
    assert first.n == len(people)
    assert np.all(first.information[0] != 0)
    for found in others:
        assert found.n == first.n
        assert np.array_equal(found.score, first.score)
        assert np.array_equal(found.information, first.information)


def test_missing_outcomes_are_an_error_or_filled(people):
    holes = people.assign(ill=people["ill"].where(people.index != 7))
    source = open_source(holes, engine="auto", table=None, query=None)
    with pytest.raises(DataError, match="'ill'"):
        source.sums(plan("ill", "logistic"))
    filled = source.sums(plan("ill", "logistic", fill={"ill": "no"}))
    instead = people.assign(ill=people["ill"].where(people.index != 7, "no"))
    expected = open_source(instead, engine="auto", table=None, query=None)
    assert np.array_equal(filled.score, expected.sums(plan("ill", "logistic")).score)


def test_plans_that_make_no_sense():
    design = plan("ill", "logistic").design
    with pytest.raises(ValueError, match="theta"):
        ScorePlan(design, SHAPE, THETA[:3])
    with pytest.raises(ValueError, match="ball"):
        ScorePlan(design, Shape(SHAPE.transform, 1280, 900, 1 << 17), THETA)
    with pytest.raises(ValueError, match="transform"):
        ScorePlan(design, Shape(Transform.box(3), 1280, 900, 1700), THETA)
    with pytest.raises(ValueError, match="averaged"):
        ScorePlan(plan("ill", "logistic", unit_column="id").design, SHAPE, THETA)
