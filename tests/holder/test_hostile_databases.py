"""What others define in a database has no part in what is summed, and none of their code runs.

The attacks themselves are in `studies.mended.databases`, and `tests/studies/test_mended.py` carries
them out. Here is what shows that they would be noticed: each protection alone, and none at all.
"""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import psycopg
import pytest

from noisewise.core.errors import DataError, RequestError
from noisewise.core.schema import Number
from noisewise.holder.engines import duckdb as duckdb_engine
from noisewise.holder.engines import open_source, pushdown
from noisewise.holder.engines import postgres as engine
from noisewise.holder.engines.base import Columns, Kind
from studies.mended import databases as attacks

from .. import postgres
from ..conformance.test_engines import CASES, simple_plan

KINDS = [Kind.TEXT, Kind.TRUTH, Kind.NUMBER, Kind.DECIMAL, Kind.NUMBER]
NAMES = list(attacks.PEOPLE)
HELD = Columns(NAMES, ["text", "bool", "float8", "numeric", "float8"], KINDS)

needs_postgres = pytest.mark.skipif(
    not postgres.is_running(), reason=f"no PostgreSQL server: {postgres._server()[1]}"
)


class BarePostgreSQL(pushdown._PostgreSQL):
    """Names as they were: the path decides what they mean."""

    def call(self, function, *arguments):
        return f"{function}({', '.join(arguments)})"

    def infix(self, left, operator, right):
        return f"({left} {operator} {right})"


class BareDuckDB(pushdown._DuckDB):
    def call(self, function, *arguments):
        if function.startswith('"'):  # an operator
            return f"({arguments[0]} {function[1:-1]} {arguments[1]})"
        return f"{function}({', '.join(arguments)})"


def query_of(case, dialect, table="public.people"):
    """The text of the query that sums this case."""
    plan = case.plan() if hasattr(case, "plan") else case
    columns = [f"c{i}" for i in range(len(plan.sources))]
    kinds = KINDS if plan.sources == tuple(NAMES) else [Kind.NUMBER] * len(columns)
    return pushdown.SumQuery(plan, kinds, columns, table, dialect)


def texts(dialect):
    """Queries with everything that can be in one: levels, gaps, the ball, decimals."""
    plans = [attacks.plan(), attacks.plan(fill={"x": 0.5, "g": "a"})]
    out = [query_of(plan, dialect, pushdown.numbered("public.people", HELD)) for plan in plans]
    ball = CASES["ball 0.9"]()
    numbers = {name: column for name, column in ball.columns.items() if isinstance(column, Number)}
    ball.columns, ball.fill = numbers, {}
    own = Columns(list(numbers), ["float8"] * len(numbers), [Kind.NUMBER] * len(numbers))
    out.append(query_of(ball, dialect, pushdown.numbered("public.numbers", own)))
    return [text for query in out for text in (query.text, query.text_of_rows)]


def caught(database, connection):
    """Whether mallory's code has run in this session."""
    pid = connection.info.backend_pid
    query = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {pid}"
    return database.run("holder", query) != [(0,)]


# ---------------------------------------------------------------------------------------------
# PostgreSQL


@pytest.fixture(scope="module")
def database():
    """Every name is in public once more, which is first on the victim's path."""
    with attacks.attacked() as database:
        numbers = ", ".join(f"x{i} pg_catalog.float8" for i in range(5))
        database.run("holder", f"CREATE TABLE public.numbers ({numbers})")
        database.run("holder", "GRANT SELECT ON public.numbers TO victim")
        database.run("mallory", *attacks.overloads("public"))
        first = f"IN DATABASE {database.name} SET search_path = public, pg_catalog"
        database.run("holder", f"ALTER ROLE victim {first}")
        yield database


@pytest.fixture
def no_pin(monkeypatch):
    left = engine._SETTINGS.replace("SET LOCAL search_path = pg_catalog, pg_temp;", "")
    assert left != engine._SETTINGS
    monkeypatch.setattr(engine, "_SETTINGS", left)


@needs_postgres
def test_without_protection_the_attack_works(database, no_pin, monkeypatch):
    monkeypatch.setattr(pushdown, "POSTGRESQL", BarePostgreSQL())
    assert any("mallory" in said for said in database.attempt(table="public.people"))


@needs_postgres
def test_the_path_alone_protects(database, monkeypatch):
    monkeypatch.setattr(pushdown, "POSTGRESQL", BarePostgreSQL())
    assert set(database.attempt(table="public.people")) == {"right"}


@needs_postgres
@pytest.mark.parametrize("dialect", [pushdown.POSTGRESQL, BarePostgreSQL()])
def test_names_alone_protect(database, dialect, monkeypatch):
    """On the hostile path, without our settings: pushed down, and streamed."""
    monkeypatch.setattr(pushdown, "POSTGRESQL", dialect)
    plan = attacks.plan()
    with psycopg.connect(database.address("victim")) as connection:
        rows = engine._Rows(connection, "public.people", HELD)
        try:
            engine._run(connection, engine._PATH)
            agrees = pushdown.agrees_with_numpy(
                dialect, lambda query: engine._run(connection, query).fetchall()
            )
            run = pushdown.sum_in_database(
                plan, HELD, range(5), rows.table, dialect, connection.execute, None
            )
            found = [run, engine._streamed(rows, plan, range(5), None)]
            sound = agrees and found == [open_source(attacks.PEOPLE).sums(plan)] * 2
        except psycopg.Error:
            sound = False
        safe = sound and not caught(database, connection)
    assert safe == (not isinstance(dialect, BarePostgreSQL))


@needs_postgres
@pytest.mark.parametrize("dialect", [pushdown.POSTGRESQL, BarePostgreSQL()])
def test_the_server_resolves_every_name_to_its_own(database, dialect):
    """By what it notes of a view: objects that came with the server are not noted."""
    noted = []
    for number, text in enumerate(texts(dialect)):
        name = f"public.v{number}"
        with psycopg.connect(database.address("victim")) as connection:
            width = len(connection.execute(text).description)
        columns = ", ".join(f"c{i}" for i in range(width))
        noted += database.run(
            "holder",
            "SET search_path = public, pg_catalog",
            f"CREATE VIEW {name} ({columns}) AS {text}",
            "SET search_path = pg_catalog, pg_temp",
            "SELECT d.refclassid::regclass::text FROM pg_depend AS d "
            "JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid "
            f"WHERE r.ev_class = '{name}'::regclass AND d.refobjid <> r.ev_class",
        )
        database.run("holder", f"DROP VIEW {name}")
    kinds = {kind for (kind,) in noted}
    if isinstance(dialect, BarePostgreSQL):
        assert {"pg_class", "pg_proc", "pg_operator"} <= kinds
    else:
        assert kinds == {"pg_class"}  # the table


@needs_postgres
def test_a_query_says_how_tables_are_written(database):
    for query in ("SELECT * FROM people", "SELECT caught() AS x FROM public.people"):
        with pytest.raises(DataError, match="write your own ones with their schema"):
            open_source(database.address("victim"), query=query).column_names()


@needs_postgres
def test_a_table_that_is_replaced_meanwhile_is_noticed(monkeypatch):
    with attacks.attacked() as database:
        described = engine._described

        def meanwhile(*arguments):
            database.run(
                "holder",
                "ALTER TABLE public.people RENAME TO old",
                "CREATE VIEW public.people AS SELECT * FROM public.old",
                "GRANT SELECT ON public.people TO victim",
            )
            monkeypatch.setattr(engine, "_described", described)
            return described(*arguments)

        monkeypatch.setattr(engine, "_described", meanwhile)
        with pytest.raises(DataError, match="took its name"):
            open_source(database.address("victim"), table="people").column_names()


@needs_postgres
@pytest.mark.parametrize("made", ["view", "policy"])
def test_the_server_itself_refuses_what_the_catalogue_overlooked(made, monkeypatch):
    """As if the look at the catalogue had come a moment too early."""
    monkeypatch.setattr(engine, "_concern", lambda *_: "")
    statements = {
        "view": ["CREATE VIEW public.t AS SELECT * FROM public.people WHERE public.caught()"],
        "policy": [
            "CREATE TABLE public.t AS SELECT * FROM public.people",
            "ALTER TABLE public.t ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY p ON public.t USING (public.caught())",
        ],
    }
    with attacks.attacked() as database:
        setting = "SELECT name FROM pg_settings WHERE name = 'restrict_nonsystem_relation_kind'"
        if made == "view" and not database.run("holder", setting):
            pytest.skip("this PostgreSQL can't be told to refuse views")
        function = attacks.function("public.caught", "", "bool", "true")
        grant = "GRANT SELECT ON ALL TABLES IN SCHEMA public TO victim"
        database.run("holder", function, *statements[made], grant)
        assert set(database.attempt(table="t")) == {"refused"}
        monkeypatch.setattr(engine, "_GUARDS", "SELECT 1")
        assert any("mallory" in said for said in database.attempt(table="t"))


@needs_postgres
def test_what_a_superuser_made_is_the_servers_own():
    """Or nobody could use an index of an extension."""
    with attacks.attacked() as database:
        database.run(
            "holder",
            "CREATE FUNCTION public.one() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
            "CREATE INDEX ON public.people ((public.one() + x))",
            "CREATE TYPE public.word AS ENUM ('a', 'b')",
            "ALTER TABLE public.people ALTER g TYPE public.word USING g::public.word",
        )
        assert set(database.attempt(table="people")) == {"right"}
        database.run("holder", "ALTER FUNCTION public.one() OWNER TO mallory")
        assert set(database.attempt(table="people")) == {"refused"}


@needs_postgres
def test_the_servers_own_schema_belongs_to_superusers():
    with attacks.attacked() as database:
        grant = "GRANT CREATE ON SCHEMA pg_catalog TO mallory"
        made = attacks.function("pg_catalog.convert_to", "text, text", "bytea", "NULL")
        database.run("holder", "SET allow_system_table_mods = on", grant)
        assert set(database.attempt(table="people")) == {"right"}
        database.run("mallory", made)
        with pytest.raises(DataError, match="pg_catalog"):
            open_source(database.address("victim"), table="people").column_names()


@needs_postgres
def test_somebody_can_answer_for_a_view():
    with attacks.attacked() as database:
        database.run(
            "holder",
            "CREATE VIEW public.adults AS SELECT * FROM public.people",
            "GRANT SELECT ON public.adults TO victim",
        )
        where = database.address("victim")
        refused = open_source(where, table="adults")
        assert refused.column_names() == NAMES  # which no attestation is needed for
        for ask in (refused.check, refused.sums):
            with pytest.raises(RequestError, match=r"it is a view.*--query-attested-by NAME"):
                ask(attacks.plan())
        told = database.attempt(table="adults", query_attested_by="A. Person")
        assert set(told) == {"right"}


@needs_postgres
def test_functions_of_an_attested_view_run_with_our_path():
    """So mallory can't come in through the bare names in the body of somebody else's function."""
    with attacks.attacked() as database:
        database.run("mallory", *attacks.overloads("public"))
        body = "'SELECT floor($1) < 1000000'"
        first = f"IN DATABASE {database.name} SET search_path = public, pg_catalog"
        database.run(
            "holder",
            f"ALTER ROLE victim {first}",
            "CREATE FUNCTION public.known(pg_catalog.float8) RETURNS bool LANGUAGE sql AS " + body,
            "CREATE VIEW public.adults AS SELECT * FROM public.people WHERE public.known(x)",
            "GRANT SELECT ON public.adults TO victim",
        )
        told = database.attempt(table="public.adults", query_attested_by="A. Person")
        assert set(told) == {"right"}
        with psycopg.connect(database.address("victim")) as connection:  # and with its own path
            connection.execute("SELECT * FROM public.adults")
            assert caught(database, connection)


@needs_postgres
@pytest.mark.parametrize("setting", ["on", "off"])
def test_policies_are_refused_in_words_whatever_the_role_has_set(setting):
    with attacks.attacked() as database:
        database.run(
            "holder",
            "ALTER TABLE public.people ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY p ON public.people USING (true)",
            f"ALTER ROLE victim IN DATABASE {database.name} SET row_security = {setting}",
        )
        with pytest.raises(RequestError, match="row-level security"):
            open_source(database.address("victim"), table="people").check(attacks.plan())
        told = database.attempt(table="people", query_attested_by="A. Person")
        assert set(told) == {"right"}
        # The owner and superusers aren't subject to it.
        assert attacks.outcome(lambda: open_source(database.address("holder"), table="people"))


@needs_postgres
def test_a_name_in_several_schemas_of_the_path_is_not_guessed():
    with attacks.attacked() as database:
        database.run(
            "holder",
            "CREATE SCHEMA clinic",
            "CREATE TABLE clinic.people (x float8)",
            "GRANT USAGE ON SCHEMA clinic TO victim",
            "GRANT SELECT ON clinic.people TO victim",
            f"ALTER ROLE victim IN DATABASE {database.name} SET search_path = public, clinic",
        )
        with pytest.raises(RequestError, match="several schemas of the search path"):
            open_source(database.address("victim"), table="people").column_names()
        source = open_source(database.address("victim"), table="clinic.people")
        assert source.column_names() == ["x"]


@needs_postgres
def test_the_role_of_the_documentation():
    """Its statements as they are printed, and then the attack, also by SQL that isn't ours."""
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
    recipe = re.search(r"```text\n(CREATE ROLE.*?)```", page, re.DOTALL)[1]
    assert "CREATE ROLE" in recipe
    with attacks.attacked() as database:
        database.run(
            "holder",
            "CREATE SCHEMA clinic",
            "CREATE TABLE clinic.people AS SELECT * FROM public.people",
        )
        database.run("mallory", *attacks.overloads("public"))
        role = f"reader_of_{database.name}"
        recipe = recipe.replace("noisewise", role).replace(
            "DATABASE clinic", f"DATABASE {database.name}"
        )
        lines = [line.partition("--")[0] for line in recipe.splitlines()]
        statements = [part for part in "".join(lines).split(";") if part.strip()]
        database.run("holder", *statements)
        try:
            where = database.address(role)
            assert attacks.outcome(lambda: open_source(where, table="clinic.people")) == "right"
            with psycopg.connect(where, autocommit=True) as connection:
                own = "SELECT count(*) FROM clinic.people WHERE convert_to(g, 'UTF8') = 'a'"
                assert connection.execute(own).fetchall() == [(2,)]
                assert not caught(database, connection)
                for forbidden in (
                    "SELECT * FROM public.people",
                    "INSERT INTO clinic.people DEFAULT VALUES",
                    "CREATE TEMP TABLE t (x int)",
                    "CREATE TABLE public.t (x int)",
                    "SELECT lo_export(1, '/tmp/out')",
                    "COPY clinic.people TO PROGRAM 'true'",
                ):
                    with pytest.raises(psycopg.Error):
                        connection.execute(forbidden)
        finally:
            database.run("holder", f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# ---------------------------------------------------------------------------------------------
# DuckDB


def test_the_macros_of_the_attack_are_all_that_is_called():
    """Whatever the query will call one day, the attack has a macro for it."""
    called = set().union(*(attacks.called(text) for text in texts(pushdown.DUCKDB)))
    assert called == set(attacks.MACROS) - {"count_star"}  # the name of count(*) inside


@pytest.mark.parametrize("dialect", [pushdown.DUCKDB, BareDuckDB()])
def test_whole_names_protect_in_the_files_own_catalog(dialect, tmp_path):
    """As it was: with the file as default catalog."""
    path = attacks.duckdb_file(tmp_path, *attacks.macros())
    plan = attacks.plan()
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH {pushdown.text(str(path))} AS holder (READ_ONLY)")
        connection.execute("USE holder")
        about = plan, HELD, range(5), "holder.main.people", dialect, connection.execute, None
        try:
            sound = pushdown.sum_in_database(*about) == open_source(attacks.PEOPLE).sums(plan)
        except duckdb.Error:
            sound = False
    assert sound == (not isinstance(dialect, BareDuckDB))


def test_without_the_default_catalog_bare_names_are_safe_too(tmp_path, monkeypatch):
    monkeypatch.setattr(pushdown, "DUCKDB", BareDuckDB())
    path = attacks.duckdb_file(tmp_path, *attacks.macros())
    assert attacks.outcome(lambda: open_source(path, table="people")) == "right"
    attested = {"query": "SELECT g, b, x, z, y FROM people", "query_attested_by": "somebody"}
    assert attacks.outcome(lambda: open_source(path, **attested)) != "right"  # as its default


def test_the_test_looks_at_the_instance_that_sums(tmp_path, monkeypatch):
    """And not at another one, from which it could differ by what a file brings along."""
    tested, summed = [], []
    is_trusted, sum_in_database = duckdb_engine._is_trusted, pushdown.sum_in_database
    monkeypatch.setattr(
        duckdb_engine, "_is_trusted", lambda own: (tested.append(own), is_trusted(own))[1]
    )
    monkeypatch.setattr(
        pushdown,
        "sum_in_database",
        lambda *about: (summed.append(about[5].__self__), sum_in_database(*about))[1],
    )
    path = attacks.duckdb_file(tmp_path)
    for _ in range(2):
        assert attacks.outcome(lambda: open_source(path)) == "right"
    assert len(tested) == len(summed) == 2
    assert all(one is other for one, other in zip(tested, summed, strict=True))


def test_duckdb_refuses_types_with_the_names_of_its_own():
    """Casts are grammar, and what they name can't be taken by anybody."""
    with duckdb.connect() as connection:
        dialect = pushdown.DUCKDB
        for name in (dialect.double_type, dialect.integer_type, dialect.text_type):
            with pytest.raises(duckdb.CatalogException, match="already exists"):
                connection.execute(f"CREATE TYPE {name} AS ENUM ('a')")


def test_somebody_can_answer_for_a_view_of_a_file(tmp_path):
    path = attacks.duckdb_file(tmp_path, "CREATE VIEW v AS SELECT * FROM people")
    refused = open_source(path, table="v")
    assert refused.column_names() == NAMES
    for ask in (refused.check, refused.sums):
        with pytest.raises(RequestError, match=r"it is a view.*--query-attested-by NAME"):
            ask(attacks.plan())
    attested = {"table": "v", "query_attested_by": "A. Person"}
    assert attacks.outcome(lambda: open_source(path, **attested)) == "right"
    with duckdb.connect(str(path), read_only=True) as lent:
        assert attacks.outcome(lambda: open_source(lent, **attested)) == "right"
        assert attacks.outcome(lambda: open_source(lent, table="v")) == "refused"


def test_a_lent_connection_takes_no_variable_of_ours_for_a_table():
    """DuckDB looks for data frames among the variables of whoever calls it."""
    with duckdb.connect() as lent:
        for name in ("relation", "entry", "lent", "self"):
            with pytest.raises(DataError, match="no table or view of this name"):
                open_source(lent, table=name).column_names()


def test_a_lent_connections_own_schema_and_its_temporary_tables():
    with duckdb.connect() as lent:
        lent.execute("CREATE SCHEMA s; CREATE TABLE s.t (x DOUBLE, y DOUBLE)")
        lent.execute("INSERT INTO s.t VALUES (0.5, 0.5)")
        with pytest.raises(DataError, match="in its current schema"):
            open_source(lent, table="t").column_names()
        lent.execute("USE s")
        assert open_source(lent, table="T").sums(simple_plan()).n == 1
        lent.execute("CREATE TEMP TABLE t AS SELECT 0.5 AS x, 0.5 AS y FROM range(3)")
        assert open_source(lent, table="t").sums(simple_plan()).n == 3
