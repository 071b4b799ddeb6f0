"""PostgreSQL beyond the conformance suite: the dialect's test, queries, secrets, transactions."""

from __future__ import annotations

import json
import logging
import math
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from noisewise.core.errors import DataError, RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source, pushdown
from noisewise.holder.engines import postgres as engine
from noisewise.holder.engines.base import Kind
from noisewise.holder.engines.duckdb import _private_instance
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.schema_files import check_data, schema_template

from .. import postgres
from ..conformance.test_engines import (
    CANARY,
    CASES,
    assert_exact,
    assert_silent,
    one_column,
    reference,
    simple_plan,
)
from ..ledgers import ledger_for
from . import test_partition as partitions
from . import test_rounds_release as rounds

pytestmark = pytest.mark.skipif(
    not postgres.is_running(), reason=f"no PostgreSQL server: {postgres._server()[1]}"
)

SECRET = "hunter2-7351"


def sql(statement):
    with postgres.connect() as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else None


# ---------------------------------------------------------------------------------------------
# The test of a dialect. Negative controls: each way in which a database is known to differ.


class RoundsHalfToEven(pushdown._PostgreSQL):
    def on_grid(self, value, centre, scale, one):
        half = f" OPERATOR(pg_catalog.+) {self.double(0.5)}"
        right = super().on_grid(value, centre, scale, one)
        assert half in right
        return right.replace(half, "").replace("floor", "round")


class CastsWithoutFloor(pushdown._PostgreSQL):
    def on_grid(self, value, centre, scale, one):
        return super().on_grid(value, centre, scale, one).replace("pg_catalog.floor", "")


class Overflows(pushdown._PostgreSQL):
    on_grid = pushdown._DuckDB.on_grid


class Underflows(pushdown._PostgreSQL):
    def on_grid(self, value, centre, scale, one):
        right, zero = super().on_grid(value, centre, scale, one), f"THEN {self.integer(0)} "
        assert zero in right
        return right.replace(zero, f"AND false {zero}")


class OverlooksNaN(pushdown._PostgreSQL):
    def is_nan(self, value):
        return "false"


class IgnoresCase(pushdown._PostgreSQL):
    def text_key(self, column):
        return super().text_key(f"lower({column})")


class FloatSums(pushdown._PostgreSQL):
    def total(self, product):
        return f"CAST(CAST(sum(CAST({product} AS real)) AS bigint) AS text)"


class StrictBall(pushdown._PostgreSQL):
    """Rounds where the ball's features are cut off."""

    def step(self, columns, table):
        return super().step(columns.replace("trunc(", "round("), table)


BROKEN = [
    RoundsHalfToEven,
    CastsWithoutFloor,
    Overflows,
    Underflows,
    OverlooksNaN,
    IgnoresCase,
    FloatSums,
    StrictBall,
]


def test_the_server_passes():
    with postgres.connect() as connection:
        assert engine._is_trusted(connection)


@pytest.mark.parametrize("dialect", BROKEN)
def test_a_dialect_that_differs_is_streamed_and_says_so(dialect, monkeypatch):
    monkeypatch.setattr(pushdown, "POSTGRESQL", dialect())
    case = CASES["edges"]()
    source = open_source(postgres.server_url(), table=postgres.put(case.table))
    pushed = []
    monkeypatch.setattr(pushdown, "sum_in_database", lambda *a: pushed.append(a))
    with pytest.warns(UserWarning, match="summed here"):
        found = source.sums(case.plan())
    assert not pushed
    plan, rows = case.plan(), case.table.to_pylist()
    wanted = reference(rows, plan.design, plan.geometry, plan.statistics[0])
    assert found.values["second_moments"] == wanted


def test_duckdb_is_tested_too():
    with _private_instance() as connection:

        def run(query):
            return connection.execute(query).fetchall()

        assert pushdown.agrees_with_numpy(pushdown.DUCKDB, run)
        wrong = type("Wrong", (pushdown._DuckDB,), {"is_nan": lambda _self, _value: "false"})
        assert not pushdown.agrees_with_numpy(wrong(), run)


def test_values_are_rounded_once_a_row():
    """Without a fence the server would copy the map of a value into every sum that it is in."""
    plan = simple_plan({"x": Number(0, 1), "z": Number(0, 2), "y": Number(0, 1)})
    name = postgres.put(pa.table({"x": [0.1] * 4, "z": [0.1] * 4, "y": [0.1] * 4}))
    kinds = [Kind.NUMBER] * 3
    text = pushdown.SumQuery(plan, kinds, ["x", "z", "y"], name, pushdown.POSTGRESQL).text
    sql("""
        CREATE SEQUENCE IF NOT EXISTS calls;
        CREATE OR REPLACE FUNCTION counted_floor(x float8) RETURNS float8 LANGUAGE plpgsql
        IMMUTABLE AS $$ BEGIN PERFORM nextval('calls'); RETURN floor(x); END $$
    """)

    def calls(query):
        ((before,),) = sql("SELECT nextval('calls')")
        sql(query.replace("pg_catalog.floor(", "public.counted_floor("))
        ((after,),) = sql("SELECT nextval('calls')")
        return after - before - 1

    assert calls(text) == 4 * 3
    assert calls(text.replace(" OFFSET 0", "")) == 4 * (3 + 3 * 4)


# ---------------------------------------------------------------------------------------------
# Types and tables


def test_numeric_values_beyond_doubles():
    texts = ["1e400", "-1e400", "1e-400", "-1e-400", "NaN", "Infinity", "-Infinity", "0.1"]
    largest = 2**1024 - 2**970
    texts += [str(largest), str(largest - 1), "2.4703282292062328e-324", "2.4703282292062327e-324"]
    listed = ", ".join(f"({i}, CAST('{text}' AS numeric), 0.5)" for i, text in enumerate(texts))
    query = f"SELECT x, x AS g, y FROM (VALUES {listed}) AS v(i, x, y)"
    columns = {
        "x": Number(-1, 1),
        "g": Category(("0", "0.1", "5e-324", "1.7976931348623157e308"), "0"),
        "y": Number(0, 1),
    }
    plan = simple_plan(columns, {"x": 0.25, "g": "0.1"})
    rows = [{"x": float(Decimal(t)), "g": float(Decimal(t)), "y": 0.5} for t in texts]
    for how in ("auto", "stream"):
        assert_exact(open_source(postgres.server_url(), engine=how, **attested(query)), plan, rows)


def test_types_that_only_postgresql_has():
    sql("CREATE COLLATION IF NOT EXISTS folded (provider = icu, locale = 'und-u-ks-level1', "
        "deterministic = false)")  # fmt: skip
    sql("DO $$ BEGIN CREATE TYPE mood AS ENUM ('b', 'a'); EXCEPTION WHEN duplicate_object "
        "THEN NULL; END $$")  # fmt: skip
    sql("DROP DOMAIN IF EXISTS share CASCADE; CREATE DOMAIN share AS real CHECK (value <= 2)")
    query = """SELECT * FROM (VALUES
        ('a'::public.mood, 'A' COLLATE public.folded, 'x'::char(5), 0.1::public.share, 1::smallint),
        ('b'::public.mood, 'a' COLLATE public.folded, 'yy'::char(5), 2::public.share, 0::smallint)
    ) AS v(m, f, c, x, y)"""
    columns = {
        "m": Category(("a", "b"), "b"),
        "f": Category(("a", "A"), "a"),
        "c": Category(("x", "yy"), "x"),
        "x": Number(0, 1),
        "y": Number(0, 1),
    }
    rows = [
        {"m": "a", "f": "A", "c": "x", "x": float(np.float32(0.1)), "y": 1},
        {"m": "b", "f": "a", "c": "yy", "x": 2.0, "y": 0},
    ]
    for how in ("auto", "stream"):
        source = open_source(postgres.server_url(), engine=how, **attested(query))
        assert_exact(source, simple_plan(columns), rows)


def test_ids_of_the_databases_own_types():
    """UUIDs, and numbers that are written in two ways."""
    query = """SELECT id, x, y FROM (VALUES
        ('00000000-0000-0000-0000-000000000001'::uuid, 1.0::numeric, 0.5::float8, 0.5::float8),
        ('00000000-0000-0000-0000-000000000001'::uuid, 1.00::numeric, 0.1, 0.5),
        ('00000000-0000-0000-0000-000000000002'::uuid, 2::numeric, 0.3, 0.5)
    ) AS v(u, d, x, y), LATERAL (SELECT {} AS id) AS l"""
    schema = Schema("d", {"x": Number(0, 1), "y": Number(0, 1)}, unit_column="id")
    plan = make_request(schema, target="y", features=["x"], epsilon=1).plan()
    rows = [{"id": i, "x": x, "y": 0.5} for i, x in ((1, 0.5), (1, 0.1), (2, 0.3))]
    for column in ("u", "d"):
        source = open_source(postgres.server_url(), **attested(query.format(column)))
        source.check(plan)
        assert_exact(source, plan, rows)


def test_tables_of_all_sorts():
    sql("""
        DROP SCHEMA IF EXISTS "my.schema" CASCADE; CREATE SCHEMA "my.schema";
        CREATE TABLE "my.schema"."a.b" (x float8, y float8) PARTITION BY RANGE (y);
        CREATE TABLE "my.schema".part PARTITION OF "my.schema"."a.b" FOR VALUES FROM (0) TO (9);
        INSERT INTO "my.schema"."a.b" VALUES (0.5, 1);
        CREATE VIEW "my.schema".seen AS SELECT * FROM "my.schema"."a.b";
        CREATE MATERIALIZED VIEW "my.schema".kept AS SELECT * FROM "my.schema"."a.b";
    """)
    for name in ("my.schema.a.b", "my.schema.part", "my.schema.seen", "my.schema.kept"):
        answers = "somebody" if name == "my.schema.seen" else None
        source = open_source(postgres.server_url(), table=name, query_attested_by=answers)
        assert source.column_names() == ["x", "y"]
        assert source.row_count() is None
        assert_exact(source, simple_plan(), [{"x": 0.5, "y": 1}])
    for name in ("a.b", "seen", "MY.SCHEMA.seen", "my.schema.a", "nothing", "\udcff", "a\0"):
        with pytest.raises(DataError):
            open_source(postgres.server_url(), table=name).column_names()


def test_everything_else_is_streamed_to_the_same_result():
    """Counts of networks, and many rows in many batches."""
    rng = np.random.default_rng(6)
    table = pa.table({"g": rng.choice(["a", "b"], 3000), "h": rng.choice(["u", "v", "w"], 3000)})
    columns = {"g": Category(("a", "b"), "a"), "h": Category(("u", "v", "w"), "u")}
    request = make_network_request(Schema("d", columns), network={"g": [], "h": ["g"]}, epsilon=1)
    source = open_source(postgres.server_url(), table=postgres.put(table))
    seen = []
    found = source.sums(request.plan(), seen.append)
    expected = open_source(table).sums(request.plan())
    assert seen[-1] == found.n == 3000
    assert all((found.tables[node] == expected.tables[node]).all() for node in columns)


def test_partitions_and_rounds_are_streamed_to_the_same_result():
    rows = partitions.people()
    table = pa.table({name: pa.array(values.tolist()) for name, values in rows.items()})
    source = open_source(postgres.server_url(), table=postgres.put(table))
    plan = partitions.partition().plan()
    assert source.sums(plan) == open_source(table).sums(plan)

    request, data = rounds.asked(), pa.table(rounds.table(3000))
    source = open_source(postgres.server_url(), table=postgres.put(data))
    sums = source.sums(request.plan())
    assert sums == open_source(data).sums(request.plan())
    step = request.next_step([request.begin(sums.n, sums)])
    here, there = (one.sums(request.step_plan(step)) for one in (open_source(data), source))
    for name, value in vars(here).items():
        assert np.array_equal(value, vars(there)[name])


# ---------------------------------------------------------------------------------------------
# Queries


def attested(query):
    """A query that somebody answers for, so that it runs whatever it is."""
    return {"query": query, "query_attested_by": "the tests"}


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE q",
        "SELECT * FROM public.q; DROP TABLE q",
        "SELECT * FROM public.q; SELECT * FROM public.q",
        "",
        "-- nothing",
        "SELECT",
        "COPY q TO STDOUT",
        "DELETE FROM public.q RETURNING x, y",
        "WITH gone AS (DELETE FROM public.q RETURNING x, y) SELECT * FROM gone",
        "SELECT * INTO public.other FROM public.q",
        "EXPLAIN SELECT * FROM public.q",
        "SELECT * FROM public.q) AS t, (SELECT 1",
        "SELECT $1::float8 AS x, 1.0 AS y",
        "SELECT * FROM public.q -- \udcff",
        "SELECT * FROM public.q\0",
    ],
)
@pytest.mark.parametrize("more", [{}, {"query_attested_by": "the tests"}])
def test_only_a_single_select_is_taken(query, more):
    sql("CREATE TABLE IF NOT EXISTS q (x float8, y float8)")
    with pytest.raises(RequestError, match="single SELECT"):
        open_source(postgres.server_url(), **more, query=query).column_names()
    assert sql("SELECT to_regclass('q') IS NOT NULL, to_regclass('other') IS NULL") == [(True,) * 2]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 0.5 AS x, 1 AS y",
        "SELECT 0.5 AS x, 1 AS y;",
        "SELECT 0.5 AS x, 1 AS y;; -- ; all",
        "SELECT 0.5 AS x, 1 AS y -- ;",
        "SELECT 0.25 -- ;\n + 0.25 AS x, 1 AS y; /* ; */ ;",
        "SELECT 0.5 AS x, 1 AS y WHERE ';' <> '; '",
        "WITH a AS (SELECT 0.5 AS x) SELECT x, 1 AS y FROM a ORDER BY x LIMIT 9;",
        "SELECT x, y FROM (VALUES (0.5, 1)) AS v(x, y)",
        "SELECT '100%' AS \"%s\", 0.5 AS x, 1 AS y",
    ],
)
def test_queries_may_end_as_they_like(query):
    for how in ("auto", "stream"):
        source = open_source(postgres.server_url(), engine=how, **attested(query))
        assert_exact(source, simple_plan(), [{"x": 0.5, "y": 1}])


def test_nothing_is_changed_even_by_a_function():
    sql("""
        DROP TABLE IF EXISTS diary CASCADE; CREATE TABLE diary (x float8);
        CREATE OR REPLACE FUNCTION note() RETURNS float8 LANGUAGE sql VOLATILE
        AS 'INSERT INTO public.diary VALUES (1) RETURNING x';
    """)
    for where in (postgres.server_url(), postgres.shared()):
        with pytest.raises(DataError, match="cannot be reached or read"):
            open_source(where, **attested("SELECT public.note() AS x, 0.5 AS y")).sums(
                simple_plan()
            )
    assert sql("SELECT count(*) FROM diary") == [(0,)]


def test_columns_of_the_same_name_are_refused():
    sql("CREATE TABLE IF NOT EXISTS q (x float8, y float8)")
    query = "SELECT x, x / 2 AS x, y FROM public.q"
    for how in ({"query": query}, attested(query)):
        with pytest.raises(DataError, match="several columns"):
            open_source(postgres.server_url(), **how).sums(simple_plan())


# ---------------------------------------------------------------------------------------------
# Transactions


def test_rows_are_of_one_moment(monkeypatch):
    """A row that is committed after the first look is not seen, nor is one in between."""
    name = postgres.put(one_column([0.5, 0.25]))
    trusted = engine._is_trusted

    def meanwhile(connection):
        sql(f"INSERT INTO {name} VALUES (1, 1)")
        return trusted(connection)

    monkeypatch.setattr(engine, "_is_trusted", meanwhile)
    rows = [{"x": 0.5, "y": 0.5}, {"x": 0.25, "y": 0.5}]
    assert_exact(open_source(postgres.server_url(), table=name), simple_plan(), rows)
    assert sql(f"SELECT count(*) FROM {name}") == [(3,)]


@pytest.mark.parametrize("how", ["auto", "stream"])
def test_a_lent_connection_stays_as_it_was(how):
    import psycopg
    from psycopg.pq import TransactionStatus
    from psycopg.rows import dict_row

    name = postgres.put(one_column([0.5]))
    settings = "SELECT name, setting FROM pg_settings WHERE source <> 'default' ORDER BY name"
    with psycopg.connect(postgres.server_url(), row_factory=dict_row) as connection:
        source = open_source(connection, table=name, engine=how)
        before = connection.execute(settings).fetchall()
        connection.rollback()
        assert_exact(source, simple_plan(), [{"x": 0.5, "y": 0.5}])
        assert connection.info.transaction_status == TransactionStatus.IDLE
        # Inside the owner's transaction: what it has written is seen, and it goes on.
        connection.execute(f"INSERT INTO {name} VALUES (0.25, 0.5)")
        assert_exact(source, simple_plan(), [{"x": x, "y": 0.5} for x in (0.5, 0.25)])
        with pytest.raises(DataError, match="no column"):
            source.sums(simple_plan({"absent": Number(0, 1), "y": Number(0, 1)}))
        broken = f"SELECT 1 / (x - x) AS x, y FROM public.{name}"
        with pytest.raises(DataError, match="failed on the rows"):
            open_source(connection, engine=how, **attested(broken)).sums(simple_plan())
        connection.execute(f"INSERT INTO {name} VALUES (0.75, 0.5)")
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        connection.commit()
        assert connection.execute(settings).fetchall() == before
        assert not connection.execute("SELECT * FROM pg_prepared_statements").fetchall()
    assert sql(f"SELECT count(*) FROM {name}") == [(3,)]


def test_an_error_in_the_middle_of_a_stream(monkeypatch):
    """The server is still sending rows when it is found that they don't fit."""
    monkeypatch.setattr("noisewise.holder.engines.batches._MAX_BATCH_ROWS", 1 << 10)
    query = "SELECT nullif(i, 2000) / 1e5 AS x, 0.5 AS y FROM generate_series(1, 200000) AS i"
    source = open_source(postgres.shared(), engine="stream", **attested(query))
    with pytest.raises(DataError, match="'x' has missing values"):
        source.sums(simple_plan())
    assert postgres.shared().execute("SELECT 1").fetchall() == [(1,)]


# ---------------------------------------------------------------------------------------------
# Secrets: cells and passwords


@pytest.mark.parametrize("how", ["auto", "stream"])
@pytest.mark.parametrize(
    "column",
    [
        "CAST(t || 'z' AS float8)",
        "CAST(t AS int)",
        "1 / (CAST(t AS float8) - CAST(t AS float8))",
        "CAST(t AS float8) * 1e308",
        "public.shout(t)",
    ],
)
def test_a_query_that_fails_while_running_quotes_no_cell(column, how, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    sql("""CREATE OR REPLACE FUNCTION shout(t text) RETURNS float8 LANGUAGE plpgsql AS $$
        BEGIN RAISE WARNING 'it is %', t; RAISE EXCEPTION 'it is %', t USING DETAIL = t; END $$""")
    name = postgres.put(pa.table({"t": [CANARY]}))
    source = open_source(
        postgres.server_url(),
        engine=how,
        **attested(f"SELECT {column} AS x, 0.5 AS y FROM public.{name}"),
    )
    assert source.column_names() == ["x", "y"]
    with pytest.raises(DataError) as caught:
        source.sums(simple_plan())
    assert_silent(caught.value)
    out, err = capfd.readouterr()
    assert CANARY not in out + err + caplog.text


def people():
    return pa.table({"x": [0.5, 0.25, 1.0], "y": [1.0, 0.0, 0.5]})


def request():
    columns = {"x": Number(0, 1), "y": Number(0, 1)}
    return make_request(Schema("people", columns), target="y", features=["x"], epsilon=1)


def with_password(url):
    return url.replace("holder@", f"holder:{SECRET}@")


def test_the_password_is_kept_nowhere(tmp_path):
    name, book = postgres.put(people()), ledger_for(tmp_path / "budget.db")
    url = with_password(postgres.server_url())
    assert SECRET in url
    publish(request(), url, table=name, ledger=book, out=tmp_path / "release.json", purpose="why")
    for path in tmp_path.rglob("*"):
        assert SECRET.encode() not in path.read_bytes()
    source = open_source(url, table=name)
    assert SECRET not in repr(source) + source.description


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://holder:{SECRET}@127.0.0.1:1/postgres",
        f"postgresql://holder:{SECRET}@/postgres?host=/nowhere",
        f"postgresql://holder:{SECRET}@/postgres?passwort={SECRET}",
        f"postgresql://holder:{SECRET}:{SECRET}@[::1/{SECRET}",
        f"POSTGRESQL://holder:{SECRET}@host",
        "postgresql://holder@/absent",
    ],
)
def test_a_server_that_cannot_be_reached_costs_nothing(url, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    if url.endswith("/absent"):
        url = postgres.server_url().replace("/postgres?", "/absent?")
    with Ledger(ledger_for(tmp_path / "budget.db")) as book:
        with pytest.raises(DataError) as caught:
            publish(request(), url, table="t", ledger=book)
        assert_silent(caught.value, SECRET)
        assert SECRET not in caplog.text
        assert not book.accounts()[0].charges


def test_what_can_be_known_before_costs_nothing(tmp_path):
    url, name = postgres.server_url(), postgres.put(people())
    sql(f"""
        DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN;
        DROP SCHEMA IF EXISTS hidden CASCADE; CREATE SCHEMA hidden;
        CREATE TABLE hidden.t (x float8, y float8); REVOKE ALL ON {name} FROM PUBLIC;
    """)
    as_guest = url.replace("holder@", "guest@")
    with Ledger(ledger_for(tmp_path / "budget.db")) as book:
        for where, how in (
            (url, {"table": "absent"}),
            (url, {"query": "SELECT 1 AS x"}),
            (url, {"query": "SELECT nonsense(1) AS x, 2 AS y"}),
            (url, {"query": f"DELETE FROM public.{name}"}),
            (as_guest, {"table": name}),
            (as_guest, {"table": "hidden.t"}),
        ):
            with pytest.raises((DataError, RequestError)):
                publish(request(), where, ledger=book, **how)
        assert not book.accounts()[0].charges
        # After that a row might have been read: the charge stays, and the repaired data use it.
        query = f"SELECT 1 / (x - x) AS x, y FROM public.{name}"
        with pytest.raises(DataError, match="stays pending"):
            publish(request(), url, query=query, ledger=book)
        assert [one.status for one in book.accounts()[0].charges] == ["pending"]


def test_without_psycopg(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(RequestError, match=r"noisewise\[postgres\]"):
        open_source("postgresql://holder@/db", table="t")


# ---------------------------------------------------------------------------------------------
# The command line


def test_the_command_line(tmp_path, capfd, monkeypatch):
    from noisewise.cli.main import app
    from noisewise.core.kinds import load_release

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            app(list(words))
        assert ended.value.code in (0, None)
        out, err = capfd.readouterr()
        assert SECRET not in out + err
        return out + err

    monkeypatch.chdir(tmp_path)
    table = pa.table({"x": [0.5, 0.25, 1.0], "g": ["a", "b", "a"], "y": [1.0, 0.0, 0.5]})
    name = postgres.put(table, "People")
    where = ("--data", with_password(postgres.server_url()), "--table", name)
    assert "postgresql://..." in run(
        "schema", "new", where[1], "--table", name, "--out", "new.yaml"
    )
    text = (tmp_path / "new.yaml").read_text()
    assert "dataset: People" in text
    assert "g: {type: category" in text
    (tmp_path / "schema.yaml").write_text(
        "dataset: people\ncolumns:\n  x: {type: number, lower: 0, upper: 1}\n"
        "  g: {type: category, levels: [a, b], reference: a}\n"
        "  y: {type: number, lower: 0, upper: 1}\nneighbours: replace_one\n"
    )
    assert "fits the schema" in run("schema", "check", "schema.yaml", *where)
    run("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "9")
    asked = ("--schema", "schema.yaml", "--ledger", "budget.db", "--epsilon", "1")
    asked += ("--target", "y", "--features", "x,g")
    assert "Dry run" in run("release", *where, *asked, "--dry-run")
    run("release", *where, *asked, "--out", "release.json")
    assert load_release("release.json").n == 3
    query = ("--query", 'SELECT * FROM public."People";', "--engine", "postgres")
    run("release", *where[:2], *query, *asked, "--out", "other.json")
    shown = json.loads(run("ledger", "show", "--ledger", "budget.db", "--json"))
    assert len(shown["datasets"][0]["charges"]) == 2


def test_schema_files_take_addresses():
    name = postgres.put(people())
    schema = Schema("d", {"x": Number(0, 1), "y": Number(0, 1)})
    assert check_data(schema, postgres.server_url(), table=name) == 3
    with pytest.raises(RequestError, match="name the table"):
        schema_template(postgres.server_url(), "d")
    bad = postgres.put(one_column([0.5, math.nan]))
    with pytest.raises(DataError, match="missing values"):
        check_data(schema, postgres.server_url(), table=bad)
