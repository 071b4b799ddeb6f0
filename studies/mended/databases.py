"""Databases in which others define what names mean.

Whoever may create a function in a schema that the holder's role searches ran code with the holder's
rights, and saw rows without a right to read them. The author of a DuckDB file with two macros took
clipping away, so that one row decided. Both pass a test of the database's arithmetic, because the
functions behave.

On PostgreSQL the attacker, mallory, may create objects but read nothing of the holder's; every
function of theirs takes an advisory lock, which is seen afterwards. In DuckDB it is the author of
the file. What must come out is the sums of the same rows in memory, or a refusal.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewise.core.errors import DataError, RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.requests.regression import make_request
from studies.mended import Scenario, Unavailable

# The last value of each but the levels is far out of bounds.
PEOPLE: dict[str, list[Any]] = {
    "g": ["a", "b", "a", "b"],
    "b": [True, False, False, True],
    "x": [0.5, -0.25, 1.0, 3e4],
    "z": [0.5, 0.75, -1.0, -3e4],
    "y": [0.0, 0.25, -1.0, 3e4],
}


def plan(**more: Any) -> Any:
    """What is asked: a regression with two categories and two numbers."""
    columns: dict[str, Any] = {
        "g": Category(("a", "b"), "b"),
        "b": Category(("true", "false"), "false"),
        **{name: Number(-1, 1) for name in "xzy"},
    }
    schema = Schema("people", columns, "add_remove_one", **more)
    return make_request(schema, target="y", features=["g", "b", "x", "z"], epsilon=1).plan()


def outcome(source: Callable[[], Any], asked: Any = None) -> str:
    """What comes of asking a source: "right", "refused", or what is wrong.

    A warning counts as wrong, too: the database then failed the test of its arithmetic.
    """
    asked = asked or plan()
    right = open_source(PEOPLE).sums(asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            opened = source()
            opened.column_names()
            opened.check(asked)
            found = opened.sums(asked)
        except (DataError, RequestError):
            return "refused"
        except UserWarning as warning:
            return f"the test of the database's arithmetic failed: {warning}"
    return "right" if found == right else f"other sums, of {found.n} rows"


# ---------------------------------------------------------------------------------------------
# PostgreSQL

_numbers = itertools.count()
_LOCK = 4711
_PERFORM = f"PERFORM pg_catalog.pg_advisory_lock({_LOCK}, 1);"

SET_UP = """
CREATE TABLE public.people (g text, b bool, x float8, z numeric, y float8);
INSERT INTO public.people VALUES ('a', true, 0.5, 0.5, 0), ('b', false, -0.25, 0.75, 0.25),
    ('a', false, 1, -1, -1), ('b', true, 30000, -30000, 30000);
GRANT CREATE ON SCHEMA public TO mallory;
GRANT SELECT ON public.people TO victim;
"""


@dataclass
class Attacked:
    """A database of its own on a real server."""

    url: str
    name: str

    def address(self, role: str) -> str:
        """Where a role reaches it."""
        return self.url.replace("/postgres?", f"/{self.name}?").replace("holder@", f"{role}@")

    def run(self, role: str, *statements: str) -> list[tuple[Any, ...]]:
        """Execute as a role, each statement by itself; the rows of the last."""
        import psycopg

        with psycopg.connect(self.address(role), autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def attempt(self, asked: Any = None, **options: Any) -> list[str]:
        """What comes of it by address, on a connection that is lent, and streamed."""
        import psycopg

        outcomes = [outcome(lambda: open_source(self.address("victim"), **options), asked)]
        for engine in ("postgres", "stream"):
            with psycopg.connect(self.address("victim")) as lent:
                said = outcome(lambda e=engine: open_source(lent, engine=e, **options), asked)
                # A session keeps these locks also after its transaction was rolled back.
                ((locks,),) = self.run(
                    "holder",
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
                    f"AND classid = {_LOCK} AND pid = {lent.info.backend_pid}",
                )
            outcomes.append("mallory's code ran with the holder's rights" if locks else said)
        return outcomes


@contextmanager
def attacked(*set_up: str) -> Iterator[Attacked]:
    """Make a database with people in it, and remove it afterwards."""
    try:
        from tests import postgres
    except ImportError:
        raise Unavailable("the tests, which start PostgreSQL, are not here") from None
    url, why = postgres._server()
    if not url:
        raise Unavailable(f"no PostgreSQL server: {why}")
    database = Attacked(url, f"attacked{next(_numbers)}")
    server = Attacked(url, "postgres")
    for role in ("victim", "mallory"):
        with contextlib.suppress(Exception):  # it is there already
            server.run("holder", f"CREATE ROLE {role} LOGIN")
    server.run("holder", f"CREATE DATABASE {database.name}")
    try:
        database.run("holder", SET_UP, f"GRANT CREATE ON DATABASE {database.name} TO mallory")
        database.run("holder", *set_up)
        yield database
    finally:
        server.run("holder", f"DROP DATABASE {database.name} WITH (FORCE)")


def function(name: str, takes: str, gives: str, value: str, kind: str = "VOLATILE") -> str:
    """A function of mallory's: it takes the lock, and returns a value."""
    body = f"BEGIN {_PERFORM} RETURN {value}; END"
    return f"CREATE FUNCTION {name}({takes}) RETURNS {gives} LANGUAGE plpgsql {kind} AS $${body}$$"


def overloads(schema: str) -> list[str]:
    """Everything that SQL of ours or of the catalogue's calls, once more in a schema."""
    functions = [
        ("convert_to", "text, text", "bytea", "pg_catalog.convert_to($1, $2::name)"),
        ("convert_to", "text, name", "bytea", "pg_catalog.convert_to($1, $2)"),
        *((name, "float8", "float8", "$1 * 1000") for name in ("floor", "sqrt", "trunc")),
        *((name, "numeric", "numeric", "$1") for name in ("abs", "trim_scale")),
        ("current_schemas", "bool", "name[]", "'{public}'::name[]"),
        ("row_security_active", "oid", "bool", "false"),
        ("pg_table_is_visible", "oid", "bool", "true"),
        ("has_schema_privilege", "oid, text", "bool", "true"),
        ("has_any_column_privilege", "oid, text", "bool", "true"),
        ("set_config", "text, text, bool", "text", "'public'"),
        ("pg_backend_pid", "", "int", "1"),
    ]
    out = [function(f"{schema}.{name}", *rest) for name, *rest in functions]
    pairs = [
        *(("float8", "float8", sign) for sign in "+-*/<>="),
        *(("int8", "int8", sign) for sign in ("+", "*", "<", ">", "=", ">=")),
        *(("numeric", "numeric", sign) for sign in ("<", ">", "=", "<=", ">=")),
        *((kind, kind, "=") for kind in ("bytea", "bool", "name", "oid", "text", '"char"')),
        ("name", "text", "="),
        ("text", "text", "||"),
        ("name", "text", "||"),
    ]
    for number, (left, right, sign) in enumerate(pairs):
        gives = "bool" if sign in ("<", ">", "=", "<=", ">=") else left
        gives = "text" if sign == "||" else gives
        value = f"($1 OPERATOR(pg_catalog.{sign}) $2)"
        out.append(function(f"{schema}.op{number}", f"{left}, {right}", gives, value))
        out.append(
            f"CREATE OPERATOR {schema}.{sign} "
            f"(FUNCTION = {schema}.op{number}, LEFTARG = {left}, RIGHTARG = {right})"
        )
    aggregates = [
        ("count(*)", "int8", "int8", "5"),
        ("sum(int8)", "numeric", "numeric, int8", "0"),
        ("bool_or(bool)", "bool", "bool, bool", "false"),
    ]
    for number, (name, state, takes, first) in enumerate(aggregates):
        out.append(function(f"{schema}.step{number}", takes, state, "$1"))
        out.append(
            f"CREATE AGGREGATE {schema}.{name} "
            f"(SFUNC = {schema}.step{number}, STYPE = {state}, INITCOND = '{first}')"
        )
    out.append(function(f"{schema}.caught", "", "bool", "true"))
    for name in ("float8", "int8", "int4", "text", "bytea", "numeric", "name", "oid", "regclass"):
        out.append(f"CREATE DOMAIN {schema}.{name} AS pg_catalog.{name} CHECK ({schema}.caught())")
    return [*out, f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC"] if schema != "public" else out


def better_match(_folder: Path) -> str | None:
    """The one that worked: ``convert_to(text, text)`` in public, before PostgreSQL 15's default."""
    with attacked() as database:
        value = "pg_catalog.convert_to($1, $2::name)"
        database.run("mallory", function("public.convert_to", "text, text", "bytea", value))
        return _broken(database.attempt(table="people"))


def every_name(_folder: Path) -> str | None:
    """All functions, operators, aggregates and types, before the built-in ones on the path."""
    with attacked() as database:
        database.run("mallory", *overloads("public"))
        path = f"ALTER ROLE victim IN DATABASE {database.name} SET search_path = public, pg_catalog"
        database.run("holder", path)
        query = "SELECT lower(g) AS g, b, x + 0 AS x, z, y FROM public.people WHERE x = x"
        asked = database.attempt(table="people"), database.attempt(query=query)
        return _broken([said for outcomes in asked for said in outcomes])


def schema_of_the_role(_folder: Path) -> str | None:
    """A schema with the name of the role is first on everybody's path."""
    with attacked() as database:
        database.run("mallory", "CREATE SCHEMA victim", *overloads("victim"))
        path = (
            f'ALTER ROLE victim IN DATABASE {database.name} SET search_path = "$user", pg_catalog, '
            "public"
        )
        database.run("holder", path)
        return _broken(database.attempt(table="people"))


def table_of_the_same_name(_folder: Path) -> str | None:
    """A table and a view that hide the holder's, in a schema that comes first."""
    told = []
    for made in ("TABLE victim.people AS SELECT", "VIEW victim.people AS SELECT victim.caught(),"):
        with attacked() as database:
            columns = "'a' AS g, true AS b, 0.5 AS x, 0.5 AS z, 0.5 AS y"
            caught = function("victim.caught", "", "bool", "true")
            database.run("mallory", "CREATE SCHEMA victim", caught, f"CREATE {made} {columns}")
            database.run(
                "mallory",
                "GRANT USAGE ON SCHEMA victim TO PUBLIC",
                "GRANT SELECT ON victim.people TO PUBLIC",
            )
            told += database.attempt(table="people")
            told += database.attempt(table="public.people")
    return _broken(told, ["refused"] * 3 + ["right"] * 3 + ["refused"] * 3 + ["right"] * 3)


# What mallory makes of a table of their own, which the holder is to release: statements, and what
# must come of it. `caught` is the function, and `lower` one that fits indexes.
OWN_TABLES: dict[str, tuple[list[str], str]] = {
    "view": (["CREATE VIEW mallory.t AS SELECT * FROM mallory.rows WHERE mallory.caught()"], ""),
    "view of a view": (
        [
            "CREATE VIEW mallory.inner AS SELECT * FROM mallory.rows WHERE mallory.caught()",
            "CREATE VIEW mallory.t AS SELECT * FROM mallory.inner",
        ],
        "",
    ),
    "subquery in a view": (
        [
            "CREATE VIEW mallory.t AS SELECT g, b, (SELECT max(x) FROM mallory.rows) AS x, z, y "
            "FROM mallory.rows"
        ],
        "",
    ),
    "set-returning function": (
        [
            "CREATE VIEW mallory.t AS SELECT r.* FROM mallory.rows AS r, "
            "LATERAL (SELECT mallory.caught() OFFSET 0) AS s"
        ],
        "",
    ),
    "policy": (
        [
            "CREATE TABLE mallory.t AS SELECT * FROM mallory.rows",
            "ALTER TABLE mallory.t ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY p ON mallory.t USING (mallory.caught())",
        ],
        "",
    ),
    "enumeration with a cast": (
        [
            "CREATE TYPE mallory.word AS ENUM ('a', 'b')",
            function("mallory.read", "mallory.word", "text", "'a'", "IMMUTABLE"),
            "CREATE CAST (mallory.word AS text) WITH FUNCTION mallory.read AS IMPLICIT",
            "CREATE TABLE mallory.t AS SELECT g::mallory.word AS g, b, x, z, y FROM mallory.rows",
        ],
        "",
    ),
    "a type called float8": (
        [
            "CREATE TYPE mallory.float8 AS (x pg_catalog.float8)",
            function("mallory.read", "mallory.float8", "pg_catalog.float8", "0.5", "IMMUTABLE"),
            "CREATE CAST (mallory.float8 AS pg_catalog.float8) WITH FUNCTION mallory.read",
            "CREATE TABLE mallory.t AS SELECT g, b, ROW(x)::mallory.float8 AS x, z, y "
            "FROM mallory.rows",
        ],
        "",
    ),
    "index": (
        [
            "CREATE TABLE mallory.t AS SELECT * FROM mallory.rows",
            "CREATE INDEX ON mallory.t ((mallory.number(1) + x))",
        ],
        "",
    ),
    "condition of an index": (
        [
            "CREATE TABLE mallory.t AS SELECT * FROM mallory.rows",
            "CREATE INDEX ON mallory.t (x) WHERE mallory.number(1) = 1",
        ],
        "",
    ),
    "operator of an index": (
        [
            "CREATE OPERATOR mallory.@@@ (FUNCTION = mallory.number, RIGHTARG = int)",
            "CREATE TABLE mallory.t AS SELECT * FROM mallory.rows",
            "CREATE INDEX ON mallory.t (((OPERATOR(mallory.@@@) 1) + x))",
        ],
        "",
    ),
    "statistics": (
        [
            "CREATE TABLE mallory.t AS SELECT * FROM mallory.rows",
            "CREATE STATISTICS mallory.s ON (mallory.number(1) + x), y FROM mallory.t",
            "ANALYZE mallory.t",
        ],
        "",
    ),
    "partitions": (
        [
            "CREATE TABLE mallory.t (g text, b bool, x float8, z numeric, y float8) "
            "PARTITION BY RANGE ((mallory.number(1) + x))",
            "CREATE TABLE mallory.part PARTITION OF mallory.t DEFAULT",
            "INSERT INTO mallory.t SELECT * FROM mallory.rows",
        ],
        "",
    ),
    "check": (
        [
            "CREATE TABLE mallory.t (g text, b bool, x float8, z numeric, y float8, "
            "CHECK (mallory.number(1) = 1))",
            "INSERT INTO mallory.t SELECT * FROM mallory.rows",
        ],
        "",
    ),
    "child with an index": (
        [
            "CREATE TABLE mallory.t (g text, b bool, x float8, z numeric, y float8)",
            "CREATE TABLE mallory.child () INHERITS (mallory.t)",
            "INSERT INTO mallory.child SELECT * FROM mallory.rows",
            "CREATE INDEX ON mallory.child ((mallory.number(1) + x))",
        ],
        "",
    ),
    # These run nothing when they are read, and are as good as any table.
    "domain": (
        [
            "CREATE DOMAIN mallory.share AS float8 CHECK (mallory.caught())",
            "CREATE TABLE mallory.t AS SELECT g, b, x::mallory.share AS x, z, y FROM mallory.rows",
        ],
        "right",
    ),
    "default, trigger, stored column": (
        [
            "CREATE TABLE mallory.t (g text DEFAULT mallory.caught()::text, b bool, x float8, "
            "z numeric, y float8, w float8 GENERATED ALWAYS AS (mallory.number(1)) STORED)",
            "INSERT INTO mallory.t SELECT * FROM mallory.rows",
            "CREATE FUNCTION mallory.fire() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {_PERFORM} RETURN NULL; END $$",
            "CREATE TRIGGER fires AFTER UPDATE ON mallory.t EXECUTE FUNCTION mallory.fire()",
        ],
        "right",
    ),
    "materialized view": (
        [
            "CREATE MATERIALIZED VIEW mallory.t AS "
            "SELECT * FROM mallory.rows WHERE mallory.caught()",
        ],
        "right",
    ),
}


def own_table(name: str) -> Scenario:
    """The holder is asked to release what belongs to mallory."""
    made, wanted = OWN_TABLES[name]

    def carry_out(_folder: Path) -> str | None:
        with attacked() as database:
            database.run(
                "mallory",
                "CREATE SCHEMA mallory",
                "GRANT USAGE ON SCHEMA mallory TO PUBLIC",
                "CREATE TABLE mallory.rows (g text, b bool, x float8, z numeric, y float8)",
                "INSERT INTO mallory.rows VALUES ('a', true, 0.5, 0.5, 0), "
                "('b', false, -0.25, 0.75, 0.25), ('a', false, 1, -1, -1), "
                "('b', true, 30000, -30000, 30000)",
                function("mallory.caught", "", "bool", "true"),
                function("mallory.number", "int", "int", "$1", "IMMUTABLE"),
                *made,
                "GRANT SELECT ON ALL TABLES IN SCHEMA mallory TO PUBLIC",
            )
            told = database.attempt(table="mallory.t")
            if wanted != "right":
                told += database.attempt(query="SELECT * FROM mallory.t")
            return _broken(told, [wanted or "refused"] * len(told))

    return carry_out


def foreign_partition(_folder: Path) -> str | None:
    """A partition whose rows another server sends."""
    columns = "(g text, b bool, x float8, z numeric, y float8)"
    made = (
        "CREATE FOREIGN DATA WRAPPER nothing",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing",
        f"CREATE TABLE public.parted {columns} PARTITION BY LIST (g)",
        "CREATE FOREIGN TABLE public.part PARTITION OF public.parted DEFAULT SERVER elsewhere",
        f"CREATE FOREIGN TABLE public.alone {columns} SERVER elsewhere",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO victim",
    )
    with attacked(*made) as database:
        told = [*database.attempt(table="parted"), *database.attempt(table="alone")]
        return _broken(told, ["refused"] * len(told))


def _broken(told: Sequence[str], wanted: Sequence[str] | None = None) -> str | None:
    wanted = wanted or ["right"] * len(told)
    wrong = [said for said, right in zip(told, wanted, strict=True) if said != right]
    return None if not wrong else f"PostgreSQL: {'; '.join(dict.fromkeys(wrong))}"


# ---------------------------------------------------------------------------------------------
# DuckDB

_COLUMNS = "g VARCHAR, b BOOLEAN, x DOUBLE, z DECIMAL(18, 3), y DOUBLE"
_ROWS = (
    "('a', true, 0.5, 0.5, 0), ('b', false, -0.25, 0.75, 0.25), ('a', false, 1, -1, -1), "
    "('b', true, 30000, -30000, 30000)"
)
# Names, and a macro of as many arguments that takes away what the function does
MACROS = {
    **dict.fromkeys(("least", "greatest", "+", "-", "*", "/"), "(a, b) AS a"),
    **dict.fromkeys(("floor", "trunc", "sqrt", "encode", "sum"), "(a) AS a"),
    **dict.fromkeys(("isnan", "bool_or"), "(a) AS false"),
    "count": "() AS 5",
    "count_star": "() AS 5",
}
_HIDING = (
    "CREATE MACRO duckdb_tables() AS TABLE SELECT 1 AS nothing WHERE false",
    "CREATE MACRO duckdb_views() AS TABLE SELECT 1 AS nothing WHERE false",
    "CREATE MACRO duckdb_functions() AS TABLE SELECT 1 AS nothing WHERE false",
    "CREATE MACRO current_schema() AS 'elsewhere'",
    "CREATE MACRO current_database() AS 'elsewhere'",
)


def macros(where: str = "") -> list[str]:
    """Statements that define all of them, temporary ones or in a schema."""
    kind, schema = ("TEMP MACRO", "") if where == "temp" else ("MACRO", where and f"{where}.")
    return [f'CREATE {kind} {schema}"{name}"{rest}' for name, rest in MACROS.items()]


def called(text: str) -> set[str]:
    """The functions that SQL of ours calls in DuckDB."""
    return {name.strip('"') for name in re.findall(r'system\.main\.("[^"]+"|\w+)\(', text)}


def duckdb_file(folder: Path, *statements: str) -> Path:
    """A file with the people in it, and whatever its author adds."""
    import duckdb

    path = folder / f"people{next(_numbers)}.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE people ({_COLUMNS})")
        connection.execute(f"INSERT INTO people VALUES {_ROWS}")
        for statement in statements:
            connection.execute(statement)
    return path


def _file_outcomes(path: Path, **options: Any) -> list[str]:
    averaged = plan(unit_column="x") if options.get("averaged") else plan()
    return [outcome(lambda: open_source(path, **options), averaged)]


def file_with_macros(folder: Path) -> str | None:
    """Macros for everything that our SQL calls; in a second schema, too."""
    path = duckdb_file(folder, *macros(), *_HIDING, "CREATE SCHEMA s", *macros("s"))
    query = "SELECT g, b, least(x, 99999) AS x, z, y + 0 AS y FROM people"
    told = _file_outcomes(path, table="people") + _file_outcomes(path)
    told += _file_outcomes(path, query=query)
    attested = "SELECT g, b, x, z, y FROM people"
    told += _file_outcomes(path, query=attested, query_attested_by="somebody")
    return _wrong(told, ["right"] * 4)


def file_with_views(folder: Path) -> str | None:
    """Views and generated columns that call macros, or repeat one person in all rows."""
    repeat = "(SELECT max(x) FROM people)"
    path = duckdb_file(
        folder,
        *macros(),
        *_HIDING,
        "CREATE VIEW clipped AS SELECT g, b, least(x, 1) AS x, z, y FROM people",
        f"CREATE VIEW repeated AS SELECT g, b, {repeat} AS x, z, y FROM people",
        "CREATE MACRO mine(a) AS a",
        "CREATE TABLE made (g VARCHAR, b BOOLEAN, w DOUBLE, z DOUBLE, y DOUBLE, "
        "x DOUBLE GENERATED ALWAYS AS (mine(w)))",
    )
    told = []
    for name in ("clipped", "repeated", "made"):
        told += _file_outcomes(path, table=name)
        told += _file_outcomes(path, query=f"SELECT g, b, x, z, y FROM {name}")
    return _wrong(told, ["refused"] * len(told))


def lent_connection(folder: Path) -> str | None:
    """The same file, opened by the holder and lent; and macros in the session itself."""
    import duckdb

    repeat = "(SELECT max(x) FROM people)"
    told, wanted = [], []
    view = f"CREATE VIEW repeated AS SELECT g, b, {repeat} AS x, z, y FROM people"
    path = duckdb_file(folder, *macros(), *_HIDING, view)
    for more in ((), macros("temp")):
        with duckdb.connect(str(path), read_only=True) as lent:
            for statement in more:
                lent.execute(statement)
            query = "SELECT g, b, least(x, 99999) AS x, z, y + 0 AS y FROM people"
            for options in ({"table": "people"}, {"query": query}):
                told.append(outcome(lambda o=options, c=lent: open_source(c, **o)))
                wanted.append("right")
            told.append(outcome(lambda c=lent: open_source(c.sql("SELECT * FROM people"))))
            told.append(outcome(lambda c=lent: open_source(c, table="repeated")))
            wanted += ["right", "refused"]
    return _wrong(told, wanted)


def _wrong(told: Sequence[str], wanted: Sequence[str]) -> str | None:
    wrong = [said for said, right in zip(told, wanted, strict=True) if said != right]
    return None if not wrong else f"DuckDB: {'; '.join(dict.fromkeys(wrong))}"


SCENARIOS: dict[str, Scenario] = {
    "PostgreSQL: an overload that fits better": better_match,
    "PostgreSQL: every name once more, first on the path": every_name,
    "PostgreSQL: the schema of the role's name": schema_of_the_role,
    "PostgreSQL: a table that hides another": table_of_the_same_name,
    "PostgreSQL: a foreign partition": foreign_partition,
    **{f"PostgreSQL: mallory's table, {name}": own_table(name) for name in OWN_TABLES},
    "DuckDB: macros for all that is called": file_with_macros,
    "DuckDB: views and generated columns": file_with_views,
    "DuckDB: a lent connection with macros": lent_connection,
}
