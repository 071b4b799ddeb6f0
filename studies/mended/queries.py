"""Queries that put one person into many rows, or let one person decide about other people's rows.

Everyone's salary is in a table of 5,000 people. An attack is a query, which is published twice at
epsilon 0.1 or 1: once where person 7 earns 20,000 and once where it is 90,000 (or where person 7
isn't there). Two such Releases may differ by a little more than their noise. An attack works if
they differ by 30 times its scale, which happens by chance less than once in 10^11 pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from noisewise.core.errors import NoisewiseError
from noisewise.core.schema import Number, Schema
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

_PEOPLE = 5_000
_SEVEN = "(SELECT salary FROM people WHERE id = 7)"
_FAR = 30.0  # in scales of the noise; two Laplace draws differ by more with probability 16 exp(-30)


@dataclass(frozen=True)
class Attack:
    """A query for the columns c and y, and whom its schema is about."""

    query: str
    by_id: bool = False
    neighbours: str = "add_remove_one"
    epsilon: float = 0.1
    about_presence: bool = False  # person 7 is there or not, and earns 90,000


ATTACKS = {
    "subqueries in every row of a list": Attack(
        f"SELECT {_SEVEN} AS c, 0 AS y FROM range(1000000)"
    ),
    "a subquery in every row": Attack(f"SELECT {_SEVEN} AS c, 0 AS y FROM people"),
    "a correlated subquery": Attack(
        "SELECT (SELECT sum(q.salary) FROM people AS q WHERE q.id = p.id - p.id + 7) AS c, 0 AS y "
        "FROM people AS p"
    ),
    "a subquery that decides about WHERE": Attack(
        f"SELECT 100000 AS c, 0 AS y FROM people WHERE {_SEVEN} > 50000"
    ),
    "rows by EXISTS": Attack(
        "SELECT 100000 AS c, 0 AS y FROM people WHERE EXISTS "
        "(SELECT 1 FROM people AS q WHERE q.id = 7 AND q.salary > 50000)"
    ),
    "a join that repeats a person": Attack(
        "SELECT q.salary AS c, 0 AS y FROM people AS p JOIN people AS q ON q.id = 7"
    ),
    "a comma that repeats a person": Attack(
        "SELECT q.salary AS c, 0 AS y FROM people AS p, people AS q WHERE q.id = 7"
    ),
    "a join by id that repeats a person": Attack(
        "SELECT p.salary AS c, 0 AS y FROM people AS p JOIN visits AS v ON p.id = v.id"
    ),
    "a lateral join": Attack(
        "SELECT q.salary AS c, 0 AS y FROM people AS p, "
        "LATERAL (SELECT salary FROM people WHERE id = p.id - p.id + 7) AS q"
    ),
    "an ASOF join": Attack(
        "SELECT q.salary AS c, 0 AS y "
        "FROM people AS p ASOF JOIN people AS q ON p.id * 0 + 7 >= q.id"
    ),
    "a positional join": Attack(
        "SELECT CASE WHEN p.id = v.place THEN 100000 ELSE 0 END AS c, 0 AS y "
        "FROM people AS p POSITIONAL JOIN visits AS v",
        about_presence=True,
    ),
    "row numbers": Attack(
        "SELECT CASE WHEN rowid = id - 1 THEN 100000 ELSE 0 END AS c, 0 AS y FROM people",
        about_presence=True,
    ),
    "UNION ALL": Attack(
        " UNION ALL ".join(["SELECT salary AS c, 0 AS y FROM people WHERE id = 7"] * 300),
        epsilon=1.0,
    ),
    "unnest": Attack(
        "SELECT c, 0 AS y "
        "FROM (SELECT salary AS c, unnest(range(1000000)) FROM people WHERE id = 7)"
    ),
    "unnest without a subquery": Attack(
        "SELECT unnest(list_value(salary, salary, salary, salary) || list_resize([salary], "
        "100000, salary)) AS c, 0 AS y FROM people WHERE id = 7"
    ),
    "the value of the first row, in a window": Attack(
        "SELECT first_value(salary) OVER (ORDER BY id = 7 DESC) AS c, 0 AS y FROM people"
    ),
    "lag by as many rows as there are to person 7": Attack(
        "SELECT lag(salary, id - 7) OVER (ORDER BY id) AS c, 0 AS y FROM people QUALIFY c > 0"
    ),
    "QUALIFY": Attack(
        "SELECT 100000 AS c, 0 AS y FROM people "
        "QUALIFY max(CASE WHEN id = 7 THEN salary END) OVER () > 50000"
    ),
    "a common table expression": Attack(
        "WITH s AS (SELECT salary FROM people WHERE id = 7) "
        "SELECT s.salary AS c, 0 AS y FROM people, s"
    ),
    "a recursive one": Attack(
        f"WITH RECURSIVE s AS (SELECT {_SEVEN} AS c, 0 AS y "
        "UNION ALL SELECT c, y + 1 FROM s WHERE y < 20000) SELECT c, 0 AS y FROM s"
    ),
    "a list comprehension": Attack(
        "SELECT [s FOR s IN (SELECT list(salary) FROM people WHERE id = 7)][1] AS c, 0 AS y "
        "FROM people"
    ),
    "a struct taken apart": Attack(
        "SELECT (SELECT {'c': salary} FROM people WHERE id = 7).c AS c, 0 AS y FROM people"
    ),
    "* REPLACE": Attack(
        f"SELECT * REPLACE ({_SEVEN} AS c) FROM (SELECT 0 AS c, 0 AS y FROM people)"
    ),
    "COLUMNS": Attack("SELECT max(COLUMNS('salary')) OVER () AS c, 0 AS y FROM people"),
    "GROUP BY with many groups of one person": Attack(
        "SELECT max(q.salary) AS c, 0 AS y FROM people AS p JOIN people AS q ON q.id = 7 "
        "GROUP BY p.id"
    ),
    "a macro of the file": Attack("SELECT seven() AS c, 0 AS y FROM people"),
    "a macro that is called as a built-in function": Attack(
        "SELECT ascii(g) AS c, 0 AS y FROM people"
    ),
    "a view of the file": Attack("SELECT c, 0 AS y FROM sevens"),
    "rows of one person under many ids": Attack(
        "SELECT place AS id, salary AS c, 0 AS y FROM visits", by_id=True
    ),
    "a join of ids with another column": Attack(
        "SELECT p.id, q.salary AS c, 0 AS y FROM people AS p JOIN people AS q ON p.boss = q.id",
        by_id=True,
    ),
    "the number of rows, published as it is": Attack(
        "SELECT 0 AS c, 0 AS y FROM people WHERE NOT (id = 7 AND salary > 50000)",
        neighbours="replace_one",
    ),
}


def carried_out(folder: Path, attack: Attack, attested_by: str | None = None) -> str | None:
    """Say what broke; None if nothing did, or the query was refused and cost nothing."""
    releases = []
    for name, salary in (("low", 20_000), ("high", 90_000)):
        path, ledger = folder / f"{name}.duckdb", folder / f"{name}.db"
        _write(path, salary, absent=attack.about_presence and name == "low")
        schema = Schema(
            "people",
            {"c": Number(0, 100_000), "y": Number(0, 1)},
            attack.neighbours,  # type: ignore[arg-type]
            unit_column="id" if attack.by_id else None,
            fill={"c": 0.0},
        )
        request: Any = make_request(schema, target="y", features=["c"], epsilon=attack.epsilon)
        with Ledger(ledger) as budget:
            budget.set_cap("people", attack.epsilon)
            try:
                said = {"query": attack.query, "query_attested_by": attested_by}
                releases.append(publish(request, path, ledger=budget, **said).release)
            except NoisewiseError:
                charged = any(account.charges for account in budget.accounts())
                return "a refused query was charged" if charged else None
    low, high = releases
    if low.n != high.n:
        return f"n is {low.n} or {high.n}, exactly, and says what person 7 earns"
    (first, *_), (second, *_) = low.measurements, high.measurements
    differences = zip(first.values, second.values, strict=True)
    apart = max(abs(one - other) for one, other in differences) / first.noise.scale
    if apart < _FAR:
        return None
    return f"one person moves a sum by {apart:,.0f} scales of its noise at epsilon {attack.epsilon}"


def _write(path: Path, salary: int, *, absent: bool) -> None:
    """People, where everyone's boss is 7, and visits: all of person 7, who has as many."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"""
            CREATE TABLE people AS
            SELECT i AS id, CASE WHEN i = 7 THEN {salary} ELSE 50000 END AS salary, 7 AS boss,
                   'a' AS g
            FROM range(1, {_PEOPLE + 1}) AS r(i) WHERE i <> {7 if absent else 0};
            CREATE TABLE visits AS
            SELECT 7 AS id, i AS place, {salary} AS salary FROM range(1, {_PEOPLE + 1}) AS r(i);
            CREATE MACRO seven() AS (SELECT salary FROM people WHERE id = 7);
            CREATE MACRO ascii(a) AS (SELECT salary FROM people WHERE id = 7);
            CREATE VIEW sevens AS SELECT (SELECT salary FROM people WHERE id = 7) AS c FROM people;
        """)


def _scenario(attack: Attack) -> Callable[[Path], str | None]:
    return partial(carried_out, attack=attack)


SCENARIOS = {name: _scenario(attack) for name, attack in ATTACKS.items()}
