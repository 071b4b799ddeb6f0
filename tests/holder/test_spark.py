"""Spark beyond the conformance suite, on two workers: what they need, what fails, what is said."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.errors import DataError, RequestError
from noisewise.core.kinds import load_release
from noisewise.core.schema import Number, Schema
from noisewise.core.yaml_files import write_schema
from noisewise.holder.engines import open_source
from noisewise.holder.engines import spark as engine
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request
from noisewise.holder.requests.summary import make_summary_request

from .. import spark
from ..conformance.test_engines import (
    CANARY,
    CASES,
    assert_exact,
    assert_silent,
    numbers,
    one_column,
    plan_of,
    simple_plan,
    with_ids,
    with_target,
)
from ..ledgers import ledger_for
from . import test_joined as joined

pytestmark = pytest.mark.skipif(bool(spark.why_not()), reason=f"no Spark: {spark.why_not()}")

NEEDLESS = ["opendp", "dp_accounting", "mpmath", "formulaic", "narwhals", "duckdb", "arviz"]
NEEDLESS += ["matplotlib", "typer", "noisewise.holder.ledger", "noisewise.holder.publish"]
NEEDLESS += ["noisewise.holder.requests", "noisewise.analyst"]


@pytest.fixture(autouse=True, scope="module")
def cluster():
    return spark.session(cluster=True)


@pytest.fixture(scope="module")
def many():
    """Rows in six partitions, and their sums."""
    rng = np.random.default_rng(2)
    columns = {f"x{j}": numbers(rng.normal(0, 1, 60_000)) for j in range(3)}
    case = with_target(columns, {name: Number(-2, 2) for name in columns})
    frame = spark.frame(case.table).repartition(6).cache()
    frame.count()
    return frame, case.plan(), open_source(case.table).sums(case.plan())


# ---------------------------------------------------------------------------------------------
# The same integers


@pytest.mark.parametrize("asked", joined.PLANS)
def test_every_plan_is_summed_on_the_workers(asked):
    plan, table = asked()
    joined.assert_same(open_source(spark.frame(table)).sums(plan), open_source(table).sums(plan))


def test_people_of_many_partitions_are_averaged_once():
    """Rows of a person are on both workers, and there are more people than partitions."""
    case = CASES["levels in a ball"]()
    table = with_ids(case, "long", people=7)
    source = open_source(spark.frame(table).repartition(5))
    assert_exact(source, case.plan(ids="who is it"), table.to_pylist())


@pytest.fixture
def partitions_apart():
    """Spark joins small partitions, and what is wrong with several could not be seen."""
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "16"}
    before = {name: spark.session().conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.session().conf.set(name, value)
    yield
    for name, value in before.items():
        spark.session().conf.set(name, value)


def spelled(people=40):
    """Every person in four spellings."""
    ids = [one for k in range(people) for one in (f"{k}", f"{k:03}", f"+{k}", f"{k}.0 ")]
    values = np.random.default_rng(1).normal(size=(2, len(ids)))
    return pa.table({"x": values[0], "y": values[1], "id": ids})


@pytest.mark.parametrize("breaks_it", [False, True])
def test_spellings_of_one_id_are_brought_together(breaks_it, partitions_apart, monkeypatch):
    columns = {"x": Number(-1, 1), "y": Number(-1, 1)}
    read = {"unit_column": "id", "unit_type": "integer", "unit_fold": True}
    plan = plan_of(Schema("d", columns, "add_remove_one", **read), ["x"], "y")
    rows = [{**row, "id": int(float(row["id"]))} for row in spelled().to_pylist()]
    source = open_source(spark.frame(spelled()))
    if breaks_it:  # moved by the ids as they are written: one person is in several partitions
        monkeypatch.setattr(engine, "spelling_of", lambda schema: {})
        assert source.sums(plan).n > 40
    else:
        assert_exact(source, plan, rows)


def test_wide_sums_are_joined_before_the_driver_gets_them(monkeypatch):
    monkeypatch.setattr(engine, "_LARGE", 0)
    monkeypatch.setattr(engine, "_JOINING_TASKS", 3)
    case = CASES["ball 0.9"]()
    got = []
    join = engine._join
    monkeypatch.setattr(engine, "_join", lambda total, rows: (got.extend(rows), join(total, rows)))
    frame = spark.frame(case.table).repartition(9)
    assert open_source(frame).sums(case.plan()) == open_source(case.table).sums(case.plan())
    assert sorted(part for part, _, _ in got) == list(range(9))
    assert 0 < sum(state is not None for _, _, state in got) <= 3


def test_two_workers_took_part_and_loaded_only_what_they_need(cluster, many):
    """After all the plans above: the workers' Pythons are kept, with all that they have loaded."""
    frame, plan, expected = many
    assert open_source(frame).sums(plan) == expected

    def loaded(batches, names=tuple(NEEDLESS)):
        for _ in batches:
            pass
        time.sleep(0.5)  # so that the other worker takes the other task
        found = sorted(name for name in names if name in sys.modules)
        noisewise = sum(name.startswith("noisewise") for name in sys.modules)
        told = {"pid": [os.getpid()], "loaded": [json.dumps(found)], "own": [noisewise]}
        yield pa.RecordBatch.from_pydict(told)

    rows = cluster.range(0, 2, 1, 2).mapInArrow(loaded, "pid long, loaded string, own long")
    rows = rows.collect()
    assert len({row.pid for row in rows}) == 2
    assert all(row.own > 10 for row in rows)
    assert {row.loaded for row in rows} == {"[]"}


@pytest.mark.parametrize("asked", [joined.regression, joined.averaged, joined.terms])
def test_a_worker_runs_where_everything_else_is_missing(asked, tmp_path):
    """In a Python in which the other modules can't be imported at all."""
    from pyspark import cloudpickle

    missing = [*NEEDLESS, "yaml", "sqlite3", *(["numba"] if asked is not joined.averaged else [])]

    plan, table = asked()
    (tmp_path / "work").write_bytes(cloudpickle.dumps(partial(engine.add_up, plan, "x")))
    pq.write_table(table.select(plan.sources), tmp_path / "rows.parquet")
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing}))
import pickle, pyarrow.parquet as pq
with open("work", "rb") as file:
    work = pickle.load(file)
import noisewise.holder.engines.spark as engine
engine.__version__ = "x"
(found,) = work(iter(pq.read_table("rows.parquet").to_batches()))
assert not found["problem"][0].as_py(), found
sys.stdout.buffer.write(found["state"][0].as_py())
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    assert np.array_equal(np.frombuffer(done.stdout, "<i8"), joined.summed(plan, table).state())


# ---------------------------------------------------------------------------------------------
# Failures: no row twice, and no value in what is said


def tried_again(how, folder):
    """Rows as they are; in the first attempt at partition 1, half of them and a failure."""

    def run(batches):  # inside another function, so that workers get its code
        from pyspark import TaskContext

        context = TaskContext.get()
        first = context.partitionId() == 1 and not os.path.exists(f"{folder}/attempt")
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if first:
                with open(f"{folder}/attempt", "w"):
                    pass
                if how == "an error":
                    raise RuntimeError("broken on purpose")
                # The executor: Java, the parent of the parent of Pythons.
                with open(f"/proc/{os.getppid()}/stat") as file:
                    os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
                time.sleep(60)
            yield batch.slice(batch.num_rows // 2)
        with open(f"{folder}/done-{context.partitionId()}-{context.taskAttemptId()}", "w"):
            pass

    return run


@pytest.mark.parametrize("how", ["an error", "a kill"])
def test_what_is_tried_again_is_counted_once(how, many, tmp_path):
    """A task fails, or its executor is killed, with half of the rows summed."""
    frame, plan, expected = many
    again = frame.mapInArrow(tried_again(how, tmp_path), frame.schema)
    assert open_source(again).sums(plan) == expected
    assert (tmp_path / "attempt").exists()
    assert {path.name.split("-")[1] for path in tmp_path.glob("done-*")} == set("012345")


def test_a_partition_that_comes_twice_is_refused():
    plan = simple_plan()
    state = joined.summed(plan, one_column([0.5])).state().tobytes()
    total = plan.accumulator()
    engine._join(total, [(0, "", state), (1, "", state)])
    assert total.result().n == 2
    with pytest.raises(DataError, match="twice"):
        engine._join(plan.accumulator(), [(0, "", state), (0, "", state)])
    # Spark never returns both results of a task that it has started twice, and starts none twice on
    # one machine, so that there is no such test here.
    # Nor is it hidden where partial sums are joined on the way.
    batches = [engine._partial(part, "", state) for part in (3, 3)]
    rows = [row for batch in engine.join_states(plan, iter(batches)) for row in batch.to_pylist()]
    with pytest.raises(DataError, match="twice"):
        engine._join(plan.accumulator(), [tuple(row.values()) for row in rows])


def test_data_that_do_not_fit_are_told_once_and_without_a_value(capfd):
    frame = spark.frame(one_column([float(CANARY), math.nan, 0.5]))
    with pytest.raises(DataError, match="'x' has missing values") as caught:
        open_source(frame).sums(simple_plan())
    assert_silent(caught.value)
    told = "".join(capfd.readouterr())
    assert CANARY not in told
    assert "Exception" not in told  # no task has failed


def test_an_error_of_another_library_in_a_worker_is_replaced():
    def rows():
        yield pa.RecordBatch.from_pydict({"x": [0.5], "y": [0.5]})
        raise pa.ArrowInvalid(f"cannot convert {CANARY}")

    with pytest.raises(RuntimeError, match="could not add up") as caught:
        list(engine.add_up(simple_plan(), engine.__version__, rows()))
    assert_silent(caught.value)


def test_an_error_of_spark_is_replaced(cluster):
    """Spark quotes the value that it cannot convert."""
    frame = cluster.sql(f"SELECT CAST(concat('{CANARY}', 'z', id) AS DOUBLE) AS x, 0.5D AS y "
                        "FROM range(3)")  # fmt: skip
    with pytest.raises(DataError, match="Spark could not") as caught:
        open_source(frame).sums(simple_plan())
    assert_silent(caught.value)


# ---------------------------------------------------------------------------------------------
# From a frame, a table or a path to a Release


def people(tmp_path, n=300):
    rng = np.random.default_rng(5)
    age = rng.uniform(18, 90, n)
    table = pa.table({"age": age, "income": 1000 * age + rng.normal(0, 5000, n)})
    schema = simple_plan({"age": Number(18, 90), "income": Number(0, 100_000)}).schema
    write_schema(schema, tmp_path / "schema.yaml")
    return table, schema


def test_a_release_of_a_frame(tmp_path):
    table, schema = people(tmp_path)
    request = make_request(schema, target="income", features=["age"], epsilon=5)
    ledger = ledger_for(tmp_path / "budget.db", "d")
    seen = []
    found = publish(
        request, spark.frame(table), ledger=ledger, progress=lambda *told: seen.append(told)
    )
    assert found.release.n == 300
    assert seen == [(300, None)]
    exact = np.array(open_source(table).sums(request.plan()).values["second_moments"])
    scale = found.release.second_moments.scale
    assert np.abs(np.array(found.release.second_moments.values) - exact).max() < 40 * scale


def test_workers_that_differ_are_found_before_anything_is_charged(tmp_path, monkeypatch):
    table, schema = people(tmp_path)
    request = make_request(schema, target="income", features=["age"], epsilon=5)
    ledger = ledger_for(tmp_path / "budget.db", "d")
    for name, value, message in (
        ("__version__", "0.0.9", "and the driver 0.0.9"),
        ("_fingerprint", lambda: b"other", "other integers"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(engine, name, value)
            with pytest.raises(RequestError, match=message):
                publish(request, spark.frame(table), ledger=ledger)
    with Ledger(ledger) as opened:
        assert not opened.accounts()[0].charges


@pytest.mark.parametrize("what", ["ids", "blocks"])
def test_workers_without_numba_are_found_before_anything_is_charged(what, tmp_path, monkeypatch):
    table, schema = people(tmp_path, 1000)
    if what == "ids":
        schema = replace(schema, unit_column="who")
        table = table.append_column("who", pa.array(range(len(table))))
        request = make_request(schema, target="income", features=["age"], epsilon=5)
    else:
        request = make_summary_request(
            schema, target="income", features=["age"], coefficients=["age"], epsilon=5, rows=1000
        )
    look_around = engine.look_around

    def without_numba(plan, version, batches):  # in here, so that workers get its code
        import noisewise.holder.rows as package

        kept = sys.modules.copy()
        for name in ("noisewise.holder.rows.grouping", "noisewise.holder.blocks.limbs"):
            sys.modules.pop(name, None)
        vars(package).pop("grouping", None)
        sys.modules["numba"] = None
        yield from look_around(plan, version, batches)
        sys.modules.pop("numba")
        sys.modules.update(kept)

    ledger = ledger_for(tmp_path / "budget.db", "d")
    with monkeypatch.context() as changed:
        changed.setattr(engine, "look_around", without_numba)
        with pytest.raises(RequestError, match="can't import numba"):
            publish(request, spark.frame(table), ledger=ledger)
    with Ledger(ledger) as opened:
        assert not opened.accounts()[0].charges
    open_source(spark.frame(table)).check(request.plan())  # as they are, they will do


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_commands(cluster, tmp_path):
    table, _ = people(tmp_path)
    pq.write_table(table, tmp_path / "people.parquet")
    spark.frame(table).createOrReplaceTempView("people_of_spark")
    release = ["release", "--schema", tmp_path / "schema.yaml", "--target", "income"]
    release += ["--features", "age", "--ledger", ledger_for(tmp_path / "budget.db", "d")]
    for number, data in enumerate((f"spark:{tmp_path}/people.parquet", "spark:people_of_spark")):
        out = tmp_path / f"{number}.json"
        asked = [*release, "--data", data, "--epsilon", number + 1, "--out", out]
        done = run(*asked, "--spark-config", "spark.sql.shuffle.partitions=2")
        assert done.exit_code == 0, done.output
        assert load_release(out).n == 300
    done = run("schema", "new", "spark:people_of_spark", "--out", tmp_path / "new.yaml")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "new.yaml").read_text()
    assert "dataset: people_of_spark" in text
    assert "age: {type: number" in text
    done = run("schema", "check", tmp_path / "schema.yaml", "--data", "spark:people_of_spark")
    assert "300 rows" in done.output


@pytest.mark.parametrize(
    ("data", "words", "message"),
    [
        ("spark:nowhere", [], "no such table"),
        ("spark:/nowhere/people.parquet", [], "no such table"),
        ("spark:people.csv", [], "guess the types"),
        ("spark:people", ["--table", "t"], "CREATE VIEW"),
        ("spark:people", ["--engine", "duckdb"], "not by 'duckdb'"),
        ("spark:people", ["--spark-config", "spark.master"], "NAME=VALUE"),
        ("people.parquet", ["--spark-config", "spark.master=local"], "only --data spark:"),
    ],
)
def test_what_is_refused_before_anything_is_charged(data, words, message, tmp_path):
    people(tmp_path)
    ledger = ledger_for(tmp_path / "budget.db", "d")
    asked = ["--schema", tmp_path / "schema.yaml", "--target", "income", "--features", "age"]
    asked += ["--epsilon", 1, "--ledger", ledger, "--out", tmp_path / "out.json"]
    done = run("release", "--data", data, *asked, *words)
    assert done.exit_code != 0
    assert message in " ".join((str(done.exception) + done.output).split())
    with Ledger(ledger) as opened:
        assert not opened.accounts()[0].charges


def test_a_frame_without_an_end_is_refused(cluster):
    frame = cluster.readStream.format("rate").load()
    with pytest.raises(RequestError, match="streaming"):
        open_source(frame)


# ---------------------------------------------------------------------------------------------
# What others define


def test_functions_of_the_session_have_no_part_in_sums(cluster, tmp_path):
    """With the names of Spark's own: they are called where SQL calls them, and nowhere else."""
    case = CASES["many levels"]()
    table = with_ids(case, "text")
    pq.write_table(table, tmp_path / "rows.parquet")
    other = cluster.newSession()
    other.conf.set("spark.sql.functionResolution.sessionOrder", "first")  # as it always was once
    for name in ("abs", "hash", "coalesce", "isnan", "least", "floor", "sum", "count", "if"):
        other.udf.register(name, lambda *_: 7, "bigint")
    assert other.sql("SELECT abs(-1), hash('a')").first() == (7, 7)
    frame = other.read.parquet(str(tmp_path / "rows.parquet"))
    assert_exact(open_source(frame), case.plan(ids="who is it"), table.to_pylist())


def test_a_view_of_the_catalogue_needs_somebody_who_answers_for_it(cluster):
    cluster.sql("CREATE TABLE rows USING parquet AS SELECT 0.5D AS x, 0.5D AS y")
    cluster.sql("CREATE VIEW repeated AS SELECT (SELECT max(x) FROM rows) AS x, y FROM rows")
    cluster.sql("CREATE TEMPORARY VIEW own AS SELECT * FROM rows")
    try:
        refused = open_source("spark:repeated")
        assert refused.column_names() == ["x", "y"]
        for ask in (refused.check, refused.sums):
            with pytest.raises(RequestError, match=r"it is a view.*--query-attested-by NAME"):
                ask(simple_plan())
        attested = open_source("spark:repeated", query_attested_by="A. Person")
        for source in (attested, open_source("spark:rows"), open_source("spark:own")):
            source.check(simple_plan())
            assert_exact(source, simple_plan(), [{"x": 0.5, "y": 0.5}])
    finally:
        cluster.sql("DROP VIEW own")
        cluster.sql("DROP VIEW repeated")
        cluster.sql("DROP TABLE rows")
