"""What a query may be: each row of its result depends on the rows of one unit alone.

`tests/property/test_statements.py` tries random statements on neighbouring tables.
"""

from __future__ import annotations

import json
from functools import partial

import duckdb
import pytest

from noisewise.cli.main import app
from noisewise.core.errors import LedgerError, RequestError
from noisewise.core.schema import Number, Schema
from noisewise.holder.audit_sheet import audit_sheet, sheet_markdown
from noisewise.holder.engines import open_source
from noisewise.holder.engines.statements import _REFUSALS, ROW_WISE, Statement
from noisewise.holder.engines.statements import duckdb as in_duckdb
from noisewise.holder.ledger import Ledger
from noisewise.holder.partition import Partition, publish_partition
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

from .. import postgres
from ..ledgers import ledger_for

XY = {"x": Number(0, 10), "y": Number(0, 10)}
BY_ID = Schema("d", XY, "add_remove_one", unit_column="id")

TABLES = """
CREATE TABLE people (id INTEGER, x DOUBLE PRECISION, g VARCHAR, d DATE, n NUMERIC(10, 2));
CREATE TABLE visits (id INTEGER, y DOUBLE PRECISION, word VARCHAR, code BIGINT);
CREATE VIEW seen AS SELECT * FROM people;
INSERT INTO people VALUES (1, 2.5, 'AbC', '2020-01-31', 1.25), (2, NULL, 'x', NULL, 7),
    (2, 9, 'Ax', '1999-12-01', NULL), (3, 0, NULL, '2000-02-29', 0);
INSERT INTO visits VALUES (1, 3, 'a', 1), (1, 4, 'b', 2), (3, 9, 'a', 3), (NULL, 1, 'a', 4);
"""

# What both engines take, with what Statement.check looks at
TAKEN = {
    "SELECT * FROM {}people": (False, 0),
    "SELECT id, x * 2 + 1 AS y, -x AS z, x / 3 AS q, 1.50 AS k, 1e2 AS e, 'a''b' AS t, NULL AS u, "
    "TRUE AS w FROM {}people AS p WHERE x BETWEEN 1 AND 3 AND g LIKE 'A%' AND NOT g IN ('q', 'r') "
    "AND p.id IS NOT NULL OR x <> 9 AND n IS DISTINCT FROM 4": (True, 0),
    "SELECT id, CASE g WHEN 'x' THEN 1 WHEN 'y' THEN 2 END AS g, CASE WHEN x > 1 THEN 0 ELSE 1 END "
    "AS b, coalesce(x, 0) AS c, nullif(id, 1) AS n, greatest(id, 2) AS i FROM {}people": (False, 0),
    "SELECT CAST(id AS DOUBLE PRECISION) AS a, id::DECIMAL(10, 2) AS b, CAST(id AS VARCHAR) AS t, "
    "d::TIMESTAMP AS s FROM {}people": (False, 0),
    "SELECT extract(year FROM d) AS y, date_part('month', d) AS m, round(n, 1) AS r, trim(g) AS t, "
    "substring(g FROM 1 FOR 1) AS s, lower(g) AS l, g || 'z' AS c, d - DATE '2020-01-01' AS days, "
    "sqrt(abs(x)) AS f FROM {}people": (False, 0),
    "SELECT p.id, p.x, v.y FROM {}people AS p JOIN {}visits AS v ON p.id = v.id": (True, 1),
    "SELECT id, x, y FROM {}people LEFT JOIN {}visits USING (id)": (False, 1),
    "SELECT p.id, a.y, b.y AS other FROM {}people AS p LEFT JOIN {}visits AS a ON a.id = p.id "
    "LEFT JOIN {}visits AS b ON a.id = b.id": (False, 2),
    "SELECT id, x FROM {}people WHERE (id) NOT IN (7) -- and nothing else; SELECT 1": (True, 0),
}

# What no engine takes, with a word of the message
REFUSED = {
    "SELECT (SELECT max(x) FROM {}people) AS x, x AS y FROM {}people": "a subquery",
    "SELECT x AS y, (SELECT max(q.x) FROM {}people AS q WHERE q.id = p.id) AS x FROM {}people AS p":
        "a subquery",
    "SELECT x, x AS y FROM {}people WHERE id IN (SELECT id FROM {}visits)": "a subquery",
    "SELECT x, x AS y FROM {}people WHERE EXISTS (SELECT 1 FROM {}visits)": "a subquery",
    "SELECT x, x AS y FROM (SELECT x FROM {}people) AS p": "a subquery",
    "SELECT p.x, q.x AS y FROM {}people AS p, LATERAL (SELECT p.x) AS q": "subquery|joined",
    "WITH q AS (SELECT x FROM {}people) SELECT x, x AS y FROM q": "WITH",
    "WITH RECURSIVE q AS (SELECT x FROM {}people UNION ALL SELECT x + 1 FROM q WHERE x < 9) "
    "SELECT x, x AS y FROM q": "WITH",
    "SELECT x, x AS y FROM {}people UNION ALL SELECT x, x AS y FROM {}people": "UNION",
    "SELECT x, x AS y FROM {}people EXCEPT SELECT y, y FROM {}visits": "UNION",
    "SELECT x, lag(x) OVER (ORDER BY id) AS y FROM {}people": "window",
    "SELECT x, count(*) OVER () AS y FROM {}people": "window",
    "SELECT max(x) AS x, min(x) AS y FROM {}people": "max|aggregate",
    "SELECT x, x AS y FROM {}people GROUP BY x": "GROUP BY",
    "SELECT max(x) AS x, 1 AS y FROM {}people HAVING max(x) > 3": "max|GROUP BY",
    "SELECT DISTINCT x, x AS y FROM {}people": "DISTINCT",
    "SELECT x, x AS y FROM {}people LIMIT 2": "LIMIT",
    "SELECT x, x AS y FROM {}people OFFSET 2": "LIMIT",
    "SELECT x, x AS y FROM {}people ORDER BY id": "ORDER BY",
    "SELECT x, x AS y FROM {}people TABLESAMPLE BERNOULLI (10)": "sample",
    "SELECT x, random() AS y FROM {}people": "'random'",
    "SELECT x, nextval('s') AS y FROM {}people": "'nextval'|names",
    "SELECT x, now() AS y FROM {}people": "'now'",
    "SELECT x, current_date AS y FROM {}people": "current_date|sqlvaluefunction",
    "SELECT x, current_setting('TimeZone') AS y FROM {}people": "'current_setting'",
    "SELECT i AS x, i AS y FROM generate_series(1, 9) AS t(i)": "not a stored table",
    "SELECT x, unnest(ARRAY[1, 2]) AS y FROM {}people": "unnest|several rows",
    "SELECT x, y FROM (VALUES (1, 2)) AS t(x, y)": "not a stored table|subquery",
    "VALUES (1, 2)": "not a stored table",
    "SELECT 1 AS x, 2 AS y": "names no table",
    "SELECT x, y FROM {}people, {}visits": "joined|names",
    "SELECT x, y FROM {}people CROSS JOIN {}visits": "joined",
    "SELECT x, y FROM {}people NATURAL JOIN {}visits": "joined",
    "SELECT x, y FROM {}people FULL JOIN {}visits USING (id)": "joined",
    "SELECT x, y FROM {}people RIGHT JOIN {}visits USING (id)": "joined",
    "SELECT x, y FROM {}people AS p JOIN {}visits AS v ON p.id = v.id OR TRUE": "joined",
    "SELECT x, y FROM {}people AS p JOIN {}visits AS v ON p.id <> v.id": "joined",
    "SELECT x, y FROM {}people AS p JOIN {}visits AS v ON p.id = p.id": "joined",
    "SELECT x, y FROM {}people AS p JOIN {}visits AS v ON p.id = v.id + 1": "joined",
    "SELECT x, y FROM {}people AS p JOIN {}visits AS v ON p.x = v.y": "whole numbers",
    "SELECT x, v.y FROM {}people AS p JOIN ({}visits AS v JOIN {}visits AS w ON v.id = w.id) "
    "ON p.id = v.id": "joined",
    "SELECT x, x AS y FROM {}seen": "no ordinary table",
    "SELECT x, g COLLATE \"C\" AS y FROM {}people": "collate",
    "SELECT x, (ARRAY[x, 1])[1] AS y FROM {}people": "not known to look at one row",
}  # fmt: skip
REFUSED_BY_DUCKDB = {
    "SELECT (SELECT x FROM people WHERE id = 1) AS x, 1 AS y FROM range(1000)": "not a stored",
    "SELECT x, y FROM people POSITIONAL JOIN visits": "joined",
    "SELECT p.x, v.y FROM people AS p ASOF JOIN visits AS v ON p.x >= v.y": "joined",
    "SELECT x, x AS y FROM people SEMI JOIN visits USING (id)": "joined",
    "SELECT x, x AS y FROM people ANTI JOIN visits USING (id)": "joined",
    "SELECT x, x AS y FROM people USING SAMPLE 3": "sample",
    "SELECT x, x AS y FROM people TABLESAMPLE 10%": "sample",
    "SELECT x, x AS y FROM people QUALIFY row_number() OVER () = 1": "window",
    "SELECT x, x AS y FROM people GROUP BY ALL": "aggregate",
    "SELECT x, rowid AS y FROM people": "'rowid'",
    "SELECT x, people AS y FROM people": "no column 'people'",
    "SELECT x, [z FOR z IN (SELECT list(x) FROM people)][1] AS y FROM people": "not known|function",
    "SELECT x, list_transform([1, 2], lambda z: z + 1)[1] AS y FROM people": "not known|function",
    "SELECT COLUMNS(*) FROM people": "alone",
    "SELECT *COLUMNS(*) FROM people": "alone|no name",
    "SELECT * EXCLUDE (g) FROM people": "alone",
    "SELECT * REPLACE ((SELECT max(x) FROM people) AS x) FROM people": "alone",
    "SELECT x, #1 AS y FROM people": "positional",
    "SELECT x, ? AS y FROM people": "parameters",
    "SELECT x, $1 AS y FROM people": "parameters",
    "SELECT x AS a, a + 1 AS y FROM people": "no column 'a'",
    "SELECT unnest(struct_pack(x := 1, y := 2)) FROM people": "no name",
    "SELECT x, struct_pack(y := x).y AS y FROM people": "not known",
    "SELECT x, g.lower() AS y FROM people": "'g.lower'",
    "SELECT x, getenv('HOME') AS y FROM people": "'getenv'",
    "SELECT x, getvariable('v') AS y FROM people": "'getvariable'",
    "SELECT x, try(x) AS y FROM people": "try|'try'",
    "SELECT x, error('no') AS y FROM people": "'error'",
    "SELECT x, max(x) FILTER (WHERE id = 1) AS y FROM people": "aggregate|'max'",
    "SELECT x, g::no_such_type AS y FROM people": "type",
    "SELECT x, lower(g) FROM people": "no name",
    "SELECT x, 1 AS y FROM 'people.csv'": "no table",
    "SELECT x, 1 AS y FROM read_csv('people.csv')": "not a stored table",
    "SELECT x, 1 AS y FROM duckdb_columns()": "not a stored table",
    "SELECT x, 1 AS y FROM information_schema.tables": "no table|no ordinary",
    "SELECT x, 1 AS y FROM people AS p(x)": "not known",
    "PIVOT people ON g USING max(x)": "expected|GROUP BY",
    "FROM (PIVOT people ON g IN ('x') USING max(x))": "subquery|GROUP BY",
    "SUMMARIZE people": "expected|not a stored|aggregate",
    "DESCRIBE people": "expected|not a stored",
    "SELECT x, x AS y FROM people; SELECT 1": "single SELECT",
    "CREATE TABLE z AS FROM people": "single SELECT",
}
REFUSED_BY_POSTGRES = {
    "SELECT x, ctid AS y FROM clinic.people": "ctid",
    "SELECT x, xmin AS y FROM clinic.people": "ctid",
    "SELECT x, p AS y FROM clinic.people AS p": "whole row",
    "SELECT x, x AS y FROM clinic.people FOR UPDATE": "ORDER BY",
    "SELECT DISTINCT ON (id) x, x AS y FROM clinic.people": "DISTINCT",
    "SELECT x, pg_read_file('/etc/hostname') AS y FROM clinic.people": "'pg_read_file'",
    "SELECT x, lo_export(1, '/tmp/x') AS y FROM clinic.people": "'lo_export'",
    "SELECT x, pg_advisory_lock(1) AS y FROM clinic.people": "'pg_advisory_lock'",
    "SELECT x, set_config('a.b', g, false) AS y FROM clinic.people": "'set_config'",
    "SELECT x, txid_current() AS y FROM clinic.people": "'txid_current'",
    "SELECT x, query_to_xml('SELECT 1', true, true, '') AS y FROM clinic.people": "'query_to_xml'",
    "SELECT x, d::text AS y FROM clinic.people": "settings",
    "SELECT x, 'now'::text::timestamp AS y FROM clinic.people": "settings",
    "SELECT x, g::regclass AS y FROM clinic.people": "'regclass'",
    "SELECT relpages AS x, reltuples AS y FROM pg_class": "the database's own",
    "SELECT stanullfrac AS x, stawidth AS y FROM pg_statistic": "the database's own",
    "SELECT chunk_seq AS x, chunk_seq AS y FROM {toast}": "the database's own|no ordinary",
    "SELECT x, x AS y FROM clinic.kept": "no ordinary table",
    "SELECT x, clinic.double_it(x) AS y FROM clinic.people": "'double_it'",
    "SELECT x, OPERATOR(clinic.###) x AS y FROM clinic.people": "'double_it'",
    "SELECT x, (SELECT 1) AS y FROM clinic.people": "a subquery",
    "SELECT i AS x, i AS y FROM json_to_recordset('[]') AS t(i int)": "not a stored table",
    "SELECT p.x, q.i AS y FROM clinic.people AS p CROSS JOIN LATERAL generate_series(1, 2) AS q(i)":
        "joined|not a stored table",
    "SELECT x, generate_series(1, 2) AS y FROM clinic.people": "several rows",
    "SELECT x, ROW(x, 1) AS y FROM clinic.people": "rowexpr",
    "SELECT p.x, r.y FROM ROWS FROM (generate_series(1, 2)) AS p(x), clinic.visits AS r":
        "not a stored table|joined",
}  # fmt: skip


@pytest.fixture
def connection():
    with duckdb.connect() as found:
        found.execute(TABLES)
        yield found


def read(connection, query):
    return in_duckdb.read(query, lambda sql: connection.sql(sql).fetchall())


def content(relation):
    return sorted(map(repr, relation.fetchall()))


@pytest.mark.parametrize("query", TAKEN)
def test_what_is_taken_means_the_same_in_duckdb(query, connection):
    text = query.format(*[""] * 9)
    statement = read(connection, text)
    assert (statement.drops_rows, len(statement.joined_on)) == TAKEN[query]
    given, written = connection.sql(text.split("--", maxsplit=1)[0]), connection.sql(statement.sql)
    assert written.columns == given.columns
    assert written.types == given.types
    assert content(written) == content(given)


@pytest.mark.parametrize(
    ("query", "words"),
    [(query.format(*[""] * 9), words) for query, words in REFUSED.items()]
    + list(REFUSED_BY_DUCKDB.items()),
)
def test_what_is_refused_in_duckdb(query, words, connection):
    with pytest.raises(RequestError, match=words):
        read(connection, query)


def test_files_and_connections_ask_alike(tmp_path):
    path = tmp_path / "d.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute(TABLES)
        for query in ("SELECT (SELECT max(x) FROM people) AS x, x AS y FROM people",):
            with pytest.raises(RequestError, match="a subquery"):
                open_source(made, query=query).column_names()
    for attested in (None, "Ann"):
        source = open_source(path, query=query, query_attested_by=attested)
        if attested is None:
            with pytest.raises(RequestError, match="a subquery"):
                source.column_names()
        else:
            assert source.column_names() == ["x", "y"]


def test_names_in_duckdb_are_the_built_in_ones(connection):
    connection.execute("""
        CREATE MACRO lower(a) AS (SELECT max(g) FROM people);
        CREATE MACRO "+"(a, b) AS (SELECT max(x) FROM people);
        CREATE MACRO "~~"(a, b) AS true;
    """)
    statement = read(connection, "SELECT id, lower(g) AS g, id + 1 AS i FROM people WHERE x > 8")
    assert connection.sql(statement.sql).fetchall() == [(2, "ax", 3)]
    assert read(connection, "SELECT g FROM people WHERE g LIKE 'q'").sql.count("system.main.") == 1


def test_tables_with_expressions_of_their_own_are_refused_in_duckdb(connection):
    connection.execute("CREATE TABLE made (id INTEGER, y AS (random()))")
    with pytest.raises(RequestError, match="generated"):
        read(connection, "SELECT id FROM made")
    connection.execute("ATTACH ':memory:' AS other; CREATE TABLE other.people (id INTEGER)")
    with pytest.raises(RequestError, match="several tables"):
        read(connection, "SELECT id FROM people")
    statement = read(connection, "SELECT id FROM other.people")
    assert '"other"."main"."people"' in statement.sql


@pytest.mark.parametrize(
    ("types", "taken"),
    [
        (("INTEGER", "BIGINT"), True),
        (("VARCHAR", "VARCHAR"), True),
        (("UUID", "UUID"), True),
        (("INTEGER", "VARCHAR"), False),  # '7' and '07' are 7
        (("DOUBLE", "DOUBLE"), False),
        (("VARCHAR", "VARCHAR COLLATE NOCASE"), False),  # 'a' is 'A'
    ],
)
def test_ids_that_are_equal_without_being_the_same_are_not_joined(types, taken, connection):
    for name, kind in zip("ab", types, strict=True):
        connection.execute(f"CREATE TABLE {name} (id {kind}, z INTEGER)")
    query = "SELECT a.id, b.z FROM a JOIN b ON a.id = b.id"
    if taken:
        read(connection, query)
        connection.execute("SET default_collation = 'NOCASE'")
        if types[0] != "VARCHAR":
            read(connection, query)
            return
    with pytest.raises(RequestError, match="both text with the default collation"):
        read(connection, query)


def test_functions_of_the_list_are_scalar_and_consistent_in_duckdb():
    """Internal macros call functions by bare names, which somebody else's could have."""
    rows = duckdb.sql(
        "SELECT function_name, function_type, stability FROM duckdb_functions() WHERE internal"
    ).fetchall()
    known = {name for name, *_ in rows} & ROW_WISE
    assert len(known) > 60
    assert in_duckdb._BY_CASE.keys() <= ROW_WISE
    for name, kind, stability in rows:
        called = name in (ROW_WISE - in_duckdb._BY_CASE.keys()) | in_duckdb._OPERATORS
        if called and kind != "table":  # there is one, `repeat`, which stands after FROM
            assert (name, kind, stability) == (name, "scalar", "CONSISTENT")


def test_a_node_or_field_that_nobody_knows_is_refused(monkeypatch, connection):
    query = "SELECT x AS x FROM people WHERE x > 1"
    known = in_duckdb._parsed(query)

    def with_field(path, name):
        tree = json.loads(json.dumps(known))
        node = tree
        for step in path:
            node = node[step]
        node[name] = "new"
        return tree

    for path, name in (
        ((), "repeat"),
        (("from_table",), "repeat"),
        (("where_clause",), "other_rows"),
        (("select_list", 0), "other_rows"),
        (("where_clause", "left"), "lag"),
        (("where_clause",), "class"),
        (("where_clause",), "type"),
        (("from_table",), "type"),
        (("where_clause",), "left"),
        ((), "select_list"),
    ):
        monkeypatch.setattr(in_duckdb, "_parsed", lambda _, at=(path, name): with_field(*at))
        with pytest.raises(RequestError, match=r"not known|does not show"):
            read(connection, query)


def test_what_is_nested_too_deeply_is_refused(connection):
    with pytest.raises(RequestError, match=r"nested|single SELECT"):
        read(connection, f"SELECT {'-(' * 900}x{')' * 900} AS x FROM people")


# --- what a schema allows -------------------------------------------------------------------------


def checked(schema, *, plain=None, drops_rows=False, joined_on=()):
    Statement("", {"id": "id"} if plain is None else plain, drops_rows, joined_on).check(schema)


def test_a_public_number_of_rows_allows_no_rows_to_be_dropped():
    """It is published as it is: WHERE would make it an exact answer about somebody."""
    public = Schema("d", XY, "replace_one", unit_column="id")
    for schema in (Schema("d", XY, "replace_one"), public):
        checked(schema)
        with pytest.raises(RequestError, match="exact answer"):
            checked(schema, drops_rows=True)
    for schema in (Schema("d", XY, "add_remove_one"), BY_ID):
        checked(schema, drops_rows=True)
    checked(public, joined_on=(("id", "id"),))


def test_joins_need_ids_and_are_by_ids():
    checked(BY_ID, joined_on=(("id", "id"), ("id", "id")))
    for schema, pair in (
        (BY_ID, ("id", "x")),
        (BY_ID, ("other", "other")),
        (Schema("d", XY, "add_remove_one"), ("id", "id")),
        (Schema("d", XY, "add_remove_one", max_rows_per_unit=5), ("id", "id")),
    ):
        with pytest.raises(RequestError, match="repeats rows"):
            checked(schema, joined_on=(("id", "id"), pair))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x AS id, x, x AS y FROM people",
        "SELECT id + 1 AS id, x, x AS y FROM people",
        "SELECT code AS id, y AS x, y FROM visits",
        "SELECT v.id, x, y FROM people AS p LEFT JOIN visits AS v ON p.id = v.id",
        "SELECT x, x AS y FROM people",
    ],
)
def test_ids_are_handed_on_as_they_are(query, connection):
    with pytest.raises(RequestError, match="column 'id' of the result"):
        read(connection, query).check(BY_ID)


def test_every_refusal_has_its_words():
    for kind, (what, remedy) in _REFUSALS.items():
        assert what, kind
        assert remedy, kind


# --- PostgreSQL -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    """A server with the tables in a schema of their own."""
    url = postgres.server_url()
    with postgres.connect() as made:
        made.execute("DROP SCHEMA IF EXISTS clinic CASCADE")
        made.execute("CREATE SCHEMA clinic; SET search_path = clinic")
        made.execute(TABLES)
        made.execute("CREATE MATERIALIZED VIEW kept AS SELECT * FROM people")
        made.execute("""
            CREATE FUNCTION double_it(double precision) RETURNS double precision
            LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
            CREATE OPERATOR ### (RIGHTARG = double precision, FUNCTION = double_it);
        """)
    return url


def statement_of(url, query):
    """What was read of a query, by the engine that would run it."""
    source = open_source(url, query=query)
    return source._reading(lambda rows: rows.statement)


@pytest.mark.parametrize("query", TAKEN)
def test_what_is_taken_in_postgres(query, server):
    statement = statement_of(server, query.format(*["clinic."] * 9))
    assert (statement.drops_rows, len(statement.joined_on)) == TAKEN[query]
    statement.check(BY_ID if "id" in statement.plain else Schema("d", XY, "add_remove_one"))


@pytest.mark.parametrize(
    ("query", "words"), list(REFUSED.items()) + list(REFUSED_BY_POSTGRES.items())
)
def test_what_is_refused_in_postgres(query, words, server):
    toast = ""
    if "{toast}" in query:
        ((toast,),) = postgres.shared().execute(
            "SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'clinic.people'::regclass"
        )
    query = query.replace("{toast}", toast).format(*["clinic."] * 9)
    with pytest.raises(Exception, match=words) as caught:
        statement_of(server, query)
    assert type(caught.value).__name__ in ("RequestError", "DataError")


def test_ids_that_are_equal_without_being_the_same_are_not_joined_in_postgres(server):
    with postgres.connect() as made:
        made.execute("DROP TABLE IF EXISTS clinic.a")
        made.execute("DROP COLLATION IF EXISTS clinic.loose")
        options = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
        made.execute(f"CREATE COLLATION clinic.loose ({options})")
        made.execute("CREATE TABLE clinic.a (id text, t text COLLATE clinic.loose, c char(5))")
    join = "SELECT a.id FROM clinic.a AS a JOIN clinic.a AS b ON {0}.{1} = {2}.{1}".format
    assert statement_of(server, join("a", "id", "b")).joined_on == (("id", "id"),)
    assert statement_of(server, join("b", "id", "a")).joined_on == (("id", "id"),)
    for column in "tc":
        with pytest.raises(RequestError, match="both text with the default collation"):
            statement_of(server, join("a", column, "b"))


def test_row_level_security_is_seen(server):
    with postgres.connect() as made:
        made.execute("""
            DROP TABLE IF EXISTS clinic.guarded; CREATE TABLE clinic.guarded (x float8, y float8);
            ALTER TABLE clinic.guarded ENABLE ROW LEVEL SECURITY;
            CREATE POLICY p ON clinic.guarded USING (x > (SELECT avg(y) FROM clinic.visits));
            CREATE ROLE reader LOGIN;
            GRANT USAGE ON SCHEMA clinic TO reader;
            GRANT SELECT ON clinic.guarded, clinic.visits TO reader;
        """)
    query = "SELECT x, y FROM clinic.guarded"
    assert statement_of(server, query).sql == query  # the owner sees all rows
    with pytest.raises(Exception, match="row-level security"):
        statement_of(server.replace("holder@", "reader@"), query)


@pytest.mark.parametrize(
    "name",
    [
        "Total income of the household, before tax",
        ":rtekind 1",
        ":hasAggs true",
        "[ 1 2",
        "({QUERY",
        "<>",
        "\\",
        '")',
        "{" * 63,
        "(" * 60 + ":x",
        ":" * 63,
    ],
)
def test_names_do_not_pass_for_parts_of_the_tree(name, server):
    """Where the server cuts a long name in two, the statement is refused, and never misread."""
    called = '"' + name.replace('"', '""') + '"'
    shift = "x AS " + "a" * 20  # breaks lines elsewhere
    cut = 0
    for length in range(1, 20):
        select = f"SELECT {shift[:-length]}, VALUE AS {called} FROM clinic.people AS {called}"
        try:
            statement = statement_of(server, select.replace("VALUE", "x"))
        except RequestError as error:
            assert "does not show" in str(error)
            cut += 1
        else:
            assert statement.plain == {shift[5:-length]: "x", name: "x"}
        with pytest.raises(RequestError):
            statement_of(server, select.replace("VALUE", "max(x) OVER ()"))
    escaped = sum(2 if one in " \n\t(){}\\" else 1 for one in name)
    assert cut == 0 or escaped > 77


def test_an_unknown_tree_is_refused(server, monkeypatch):
    from noisewise.holder.engines.statements import postgres as in_postgres

    def changed(old, new, query, connection, execute):
        names, tree = shown(query, connection, execute)
        assert old in tree
        return names, tree.replace(old, new, 1)

    shown = in_postgres._shown
    for old, new in (
        (b"{QUERY", b"{OTHER"),
        (b":hasAggs false", b":hasAggs true"),
        (b":sortClause <>", b":newClause (i 1)"),
        (b":rtekind 0", b":rtekind 7"),
        (b":relkind r", b":relkind v"),
        (b":tablesample <>", b":tablesample {T}"),
        (b":lateral false", b":filter {VAR :varno 1}"),
        (b"{OPEXPR", b"{NEWEXPR"),
        (b":opretset false", b":opretset true"),
        (b":varlevelsup 0", b":varlevelsup 1"),
        (b":varattno 2", b":varattno -1"),
        (b"})", b"}"),
        (b"{VAR :varno 1", b"{VAR :varno 2"),
        (b":opfuncid", b":opfuncid 1 :other"),
    ):
        monkeypatch.setattr(in_postgres, "_shown", partial(changed, old, new))
        with pytest.raises(RequestError):
            statement_of(server, "SELECT x AS x, x * 2 AS y FROM clinic.people")
    monkeypatch.setattr(in_postgres, "_shown", shown)
    assert statement_of(server, "SELECT x AS x, x * 2 AS y FROM clinic.people")


def test_a_server_that_does_not_show_the_tree_is_refused(server, monkeypatch):
    from noisewise.holder.engines.statements import postgres as in_postgres

    monkeypatch.setattr(in_postgres, "_SHOW", "SET LOCAL client_min_messages = 'error'")
    with pytest.raises(RequestError, match="does not show"):
        statement_of(server, "SELECT x, x AS y FROM clinic.people")


def test_reading_a_statement_leaves_a_connection_as_it_was(server):
    import psycopg

    heard = []
    with psycopg.connect(server, autocommit=True) as lent:
        lent.add_notice_handler(heard.append)
        before = lent.execute("SHOW client_min_messages").fetchone()
        assert statement_of(lent, "SELECT x, x AS y FROM clinic.people").plain
        assert lent.execute("SHOW client_min_messages").fetchone() == before
        assert lent.execute("SHOW debug_print_rewritten").fetchone() == ("off",)
        assert not heard
        lent.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
        assert len(heard) == 1


# --- attestations ---------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "d.duckdb"
    with duckdb.connect(str(found)) as made:
        made.execute("CREATE TABLE t AS SELECT i % 10 AS x, i % 7 AS y FROM range(100) AS r(i)")
    return found


SUMMED = "SELECT max(x) AS x, y FROM t GROUP BY y"


def asked(**words):
    return make_request(Schema("d", XY), target="y", features=["x"], epsilon=1, **words)


def test_an_attested_query_is_kept_with_the_name(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    file = ledger_for(tmp_path / "b.db", "d")
    with Ledger(file) as book:
        with pytest.raises(RequestError, match=r"GROUP BY.*--query-attested-by NAME"):
            publish(asked(), path, query=SUMMED, ledger=book)
        assert not book.accounts()[0].charges
        said = {"query": SUMMED, "query_attested_by": "Ann <b>Lee</b>"}
        assert publish(asked(), path, ledger=book, **said).release.n == 7
        publish(asked(label="plain"), path, table="t", ledger=book)
        records = book.accounts()[0].charges
        assert [one.attested_by for one in records] == ["Ann <b>Lee</b>", ""]
        sheet = audit_sheet(book)
    assert [one["attested_by"] for one in sheet["datasets"][0]["releases"]] == [
        "Ann <b>Lee</b>",
        "",
    ]
    markdown = sheet_markdown(sheet)
    assert markdown.count("| Attested |") == 1
    assert r"by Ann &lt;b&gt;Lee&lt;/b&gt;\: that each row" in markdown
    app(["ledger", "show", "--ledger", str(file)], standalone_mode=False)
    assert "attested by" in capsys.readouterr().out


def test_whoever_answers_for_what_was_published_is_kept(path, tmp_path):
    """A charge that was left pending is taken up again, perhaps by somebody else's word."""
    failing = "SELECT max(x) AS x, CASE WHEN count(*) > 1 THEN error('no') ELSE y END AS y "
    query = f"{failing} FROM t GROUP BY y"
    with Ledger(ledger_for(tmp_path / "b.db", "d")) as book:
        with pytest.raises(Exception, match="stays pending"):
            publish(asked(), path, query=query, query_attested_by="Ann", ledger=book)
        (record,) = book.accounts()[0].charges
        assert (record.status, record.attested_by) == ("pending", "Ann")
        with duckdb.connect(str(path)) as made:
            made.execute("CREATE OR REPLACE TABLE t AS SELECT i AS x, i AS y FROM range(7) AS r(i)")
        publish(asked(), path, query=query, query_attested_by="Ben", ledger=book)
        (record,) = book.accounts()[0].charges
        assert (record.status, record.attested_by) == ("published", "Ben")


@pytest.mark.parametrize("name", ["", "  ", " Ann", "A\nnn", "A" * 201])
def test_a_name_is_a_name(name, path, tmp_path):
    with Ledger(ledger_for(tmp_path / "b.db", "d")) as book:
        with pytest.raises((RequestError, LedgerError), match="query_attested_by"):
            publish(asked(), path, query=SUMMED, query_attested_by=name, ledger=book)
        assert not book.accounts()[0].charges


def test_a_file_has_nothing_to_answer_for(tmp_path):
    with pytest.raises(RequestError, match="query_attested_by"):
        open_source({"x": [1.0]}, query_attested_by="Ann")


def test_parts_are_attested_together(path, tmp_path):
    from noisewise.core.schema import Category

    columns = {**XY, "g": Category(("0", "1"), "0")}
    schema = Schema("d", columns, "add_remove_one")
    request = make_request(schema, target="y", features=["x"], epsilon=1, rounds=1)
    query = "SELECT DISTINCT x, y, (x % 2)::VARCHAR AS g FROM t"
    with Ledger(ledger_for(tmp_path / "b.db", "d")) as book:
        parts = Partition(request, "g", schema, query=query)
        with pytest.raises(RequestError, match="DISTINCT"):
            publish_partition(parts, path, ledger=book)
        publish_partition(parts, path, query_attested_by="Ann", ledger=book)
        assert {one.attested_by for one in book.accounts()[0].charges} == {"Ann"}


def test_a_where_clause_is_no_exact_answer_about_somebody(path, tmp_path):
    """Under replace_one n is published as it is: it was one exact bit of one person a Release."""
    query = "SELECT x, y FROM t WHERE NOT (x = 3 AND y = 3)"
    with Ledger(ledger_for(tmp_path / "b.db", "d")) as book:
        with pytest.raises(RequestError, match="exact answer"):
            publish(asked(), path, query=query, ledger=book)
        assert not book.accounts()[0].charges
        private = make_request(
            Schema("d", XY, "add_remove_one"), target="y", features=["x"], epsilon=1
        )
        assert publish(private, path, query=query, ledger=book).release.n is None
