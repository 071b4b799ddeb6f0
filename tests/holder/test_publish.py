"""The door: right values, charge before data, nothing lost, nothing twice."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from noisewise.core.errors import (
    BudgetError,
    DataError,
    NoisewiseError,
    ReleaseError,
    RequestError,
)
from noisewise.core.kinds import load_release
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.engines.files import count_rows
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.base import Publishable
from noisewise.holder.requests.regression import Request, make_request

from ..ledgers import ledger_for

COLUMNS = {
    "age": Number(18, 90),
    "region": Category(("north", "south", "east"), "north"),
    "income": Number(0, 200_000),
}


def schema(**changes):
    return Schema("people", COLUMNS, **changes)


def request(made_of=None, **changes):
    words = {"target": "income", "features": ["age", "region"], "epsilon": 1, **changes}
    if "rho" in changes:
        del words["epsilon"]
    return make_request(made_of or schema(), **words)


def people(n=500):
    rng = np.random.default_rng(5)
    return {
        "age": rng.uniform(10, 100, n),
        "region": rng.choice(["north", "south", "east"], n),
        "income": rng.lognormal(10, 1, n),
    }


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db") as opened:
        opened.set_cap("people", Fraction(3), Fraction("1e-5"))
        yield opened


def spent(ledger):
    return sum(account.spent_epsilon for account in ledger.accounts())


def exact_unit_sums(data, names):
    """Second moments by ordinary floating point, independent of the holder's arithmetic."""
    age = (np.clip(data["age"], 18, 90) - 54) / 36
    income = (np.clip(data["income"], 0, 200_000) - 1e5) / 1e5
    columns = [np.ones(len(age)), age]
    columns += [(data["region"] == level).astype(float) for level in ("south", "east")]
    w = np.column_stack([*columns, income])
    return w.T @ w


@pytest.mark.parametrize("words", [{}, {"delta": 1e-6}, {"rho": 0.05}, {"neighbours": True}])
def test_values_are_the_sums_plus_noise_of_the_stated_size(ledger, words):
    made_of = schema(neighbours="add_remove_one") if words.pop("neighbours", None) else None
    data = people()
    release = publish(request(made_of, **words), data, ledger=ledger).release
    truth = exact_unit_sums(data, release.design.names)
    entries = SecondMoments(release.design).entries
    sd = release.second_moments.noise.continuous().variance ** 0.5
    z = [
        (value - truth[entry]) / sd
        for entry, value in zip(entries, release.second_moments.unit_values(), strict=True)
    ]
    # Each is below 12 standard deviations but for a chance of 1e-7; a wrong column, scale or
    # centre would be off by hundreds.
    assert np.max(np.abs(z)) < 12
    assert np.max(np.abs(z)) > 1e-3  # and noise there is


def test_the_same_request_again_is_the_same_release_at_no_cost(ledger, tmp_path):
    first = publish(request(), people(), ledger=ledger, out=tmp_path / "a.json")
    again = publish(request(), people(), ledger=ledger, out=tmp_path / "b.json")
    assert not first.repeated
    assert again.repeated
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert spent(ledger) == 1
    labelled = publish(request(label="again"), people(), ledger=ledger)
    assert labelled.release.second_moments.values != first.release.second_moments.values
    assert spent(ledger) == 2


def test_the_cap_holds(ledger, tmp_path):
    for label in "abc":
        publish(request(label=label), people(), ledger=ledger)
    with pytest.raises(BudgetError, match="remaining"):
        publish(request(label="d"), people(), ledger=ledger, out=tmp_path / "d.json")
    assert not (tmp_path / "d.json").exists()
    assert spent(ledger) == 3


BAD_DATA = {
    "missing number": lambda d: d["age"].__setitem__(3, np.nan),
    "undeclared level": lambda d: d["region"].__setitem__(3, "west"),
    "absent column": lambda d: d.pop("age"),
    "text for a number": lambda d: d.update(age=np.array(["canary"] * 500)),
    "no rows": lambda d: d.update({k: v[:0] for k, v in d.items()}),
}


KNOWN_WITHOUT_ROWS = ("absent column", "no rows")


@pytest.mark.parametrize("fault", BAD_DATA)
def test_the_charge_of_bad_data_stays_and_pays_for_the_repaired_ones(ledger, tmp_path, fault):
    data = people()
    data["region"] = data["region"].astype(object)
    BAD_DATA[fault](data)
    out = tmp_path / "out.json"
    for _ in range(2):  # the second time under the same charge
        with pytest.raises(DataError) as caught:
            publish(request(), data, ledger=ledger, out=out)
        assert "canary" not in str(caught.value)
        assert "west" not in str(caught.value)
        free = fault in KNOWN_WITHOUT_ROWS
        assert spent(ledger) == (0 if free else 1)
        assert ("epsilon=1 stays pending" in str(caught.value)) != free
        assert ("schema check SCHEMA --data" in str(caught.value)) != free
        assert not out.exists()
    publish(request(), people(), ledger=ledger, out=out)
    assert spent(ledger) == 1
    assert [one.status for one in ledger.accounts()[0].charges] == ["published"]


def test_a_file_without_a_header_keeps_its_first_row_to_itself(ledger, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("canary,north,50000\n41,south,60000\n")
    with pytest.raises(DataError, match="header") as caught:
        publish(request(), path, ledger=ledger)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("place", ["folder", "absent/out.json", ""])
def test_an_output_that_cannot_be_written_is_found_before_charging(ledger, tmp_path, place):
    (tmp_path / "folder").mkdir()
    out = tmp_path / place
    with pytest.raises(RequestError, match="out"):
        publish(request(), people(), ledger=ledger, out=out)
    assert spent(ledger) == 0


def test_an_output_never_destroys_anything_but_an_older_release(ledger, tmp_path):
    precious = tmp_path / "schema.yaml"
    precious.write_text("dataset: people")
    for out in (precious, tmp_path / "budget.db"):
        before = out.read_bytes()
        with pytest.raises(RequestError, match="not a Release"):
            publish(request(), people(), ledger=ledger, out=out)
        assert out.read_bytes() == before
    assert spent(ledger) == 0
    publish(request(), people(), ledger=ledger, out=tmp_path / "r.json")
    other = publish(request(label="b"), people(), ledger=ledger, out=tmp_path / "r.json").release
    assert load_release(tmp_path / "r.json") == other


def test_a_file_that_cannot_be_written_after_all_is_not_lost(ledger, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RequestError, match="costs nothing more"):
        publish(request(), people(), ledger=ledger, out=tmp_path / "r.json")
    monkeypatch.undo()
    assert list(tmp_path.glob("*noisewise-*")) == []
    assert publish(request(), people(), ledger=ledger, out=tmp_path / "r.json").repeated
    assert spent(ledger) == 1


def lent(data):
    """A connection with a table t."""
    connection = duckdb.connect()
    connection.register("given", pa.table({name: list(v) for name, v in data.items()}))
    connection.execute("CREATE TABLE t AS FROM given")
    return connection


def test_another_query_is_another_request(ledger):
    asked, connection = request(schema(neighbours="add_remove_one")), lent(people())
    releases = [
        publish(asked, connection, query=f"SELECT * FROM t WHERE age {sign} 50", ledger=ledger)
        for sign in "<>"
    ]
    assert not releases[1].repeated
    assert releases[0].release != releases[1].release
    assert spent(ledger) == 2


@pytest.mark.parametrize("delta", ["0.01", "0.09"])
def test_a_delta_above_one_in_n_is_refused(ledger, delta):
    ledger.set_cap("people", Fraction(3), Fraction("0.1"))
    with pytest.raises(DataError, match="1 / n"):
        publish(request(delta=delta), people(), ledger=ledger)
    assert spent(ledger) == 0


def test_interruption_leaves_the_charge_for_the_same_request(ledger):
    def interrupt(rows, total):
        assert total == 500
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(request(), people(), ledger=ledger, progress=interrupt)
    assert spent(ledger) == 1
    assert not publish(request(), people(), ledger=ledger).repeated
    assert spent(ledger) == 1


def test_fill_values_stand_in_for_what_is_missing(ledger):
    made_of = schema(fill={"age": 54.0, "region": "south"})
    data = people()
    data["age"][:100] = np.nan
    data["region"] = data["region"].astype(object)
    data["region"][:50] = None
    publish(request(made_of), data, ledger=ledger)
    assert spent(ledger) == 1


def test_a_weak_delta_is_found_before_the_charge_in_a_csv_file(ledger, tmp_path):
    file = tmp_path / "people.csv"
    lines = [f'{20 + i % 60},"north",{1000 * i}' for i in range(100)]
    file.write_text("age,region,income\r\n\r\n" + "\r\n".join(lines))
    with pytest.raises(DataError, match=r"0.01 is not below 1 / n for 100 rows"):
        publish(request(delta="0.01"), file, ledger=ledger)
    assert spent(ledger) == 0


def test_a_weak_delta_that_only_rows_could_tell_says_what_is_left_to_do(ledger, tmp_path):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("t", pa.table({name: list(v) for name, v in people().items()}))
        connection.execute("CREATE TABLE people AS SELECT * FROM t")
    with pytest.raises(DataError, match=r"(?s)pending.*smaller delta.*this charge stays spent"):
        publish(request(delta="0.01"), path, ledger=ledger)
    assert spent(ledger) > 0


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", 0),
        ("a,b", 0),
        ("a,b\n", 0),
        ("\n\na,b\n1,2\n\n3,4", 2),
        ('a,b\r\n"1\n\n2",3\r\n"x""\n""y",2\r\n', 2),
        ("a\r1\r2", 2),
        ("a,b\n" + "1,2\n" * 400_000, 400_000),
        ("a\n" + '"1\n2"\n' * 300_000, 300_000),
    ],
)
def test_rows_of_a_csv_file_are_counted_without_parsing(tmp_path, text, rows):
    file = tmp_path / "rows.csv"
    file.write_bytes(text.encode())
    assert count_rows(file) == rows


def test_the_default_delta_must_suit_the_number_of_rows(ledger, monkeypatch):
    monkeypatch.setattr("noisewise.holder.requests.base.DEFAULT_DELTA", Fraction("0.001"))
    with pytest.raises(DataError, match="delta"):
        publish(request(mechanism="gaussian"), people(), ledger=ledger)
    assert spent(ledger) == 0


def test_bounds_and_rows_never_show_in_a_release_of_private_n(ledger):
    """Under add/remove, nothing but noisy sums depends on the data."""
    made_of = schema(neighbours="add_remove_one")
    documents = []
    for n in (100, 400):
        data = {k: v[:n] for k, v in people().items()}
        release = publish(request(made_of, label=f"{n}"), data, ledger=ledger).release
        document = dict(release.document, label="")
        document["measurements"] = [dict(m, values=None) for m in document["measurements"]]
        documents.append(document)
    assert documents[0] == documents[1]


# --- no answer about the rows is free ---------------------------------------------------------


def test_a_query_that_fails_on_purpose_is_paid_for_each_time(ledger):
    """Bits of somebody's income, one a query: an error tells whether the bit is set."""
    ledger.set_cap("people", Fraction(100), Fraction(0))
    data = people()
    connection, age = lent(data), data["age"][7]
    assert sum(data["age"] == age) == 1
    told = 0
    for bit in range(8):
        odd = f"income::BIGINT // {2**bit} % 2 = 1"
        query = (
            f"SELECT CASE WHEN age = {float(age)!r}::DOUBLE AND {odd} THEN NULL ELSE age END "
            "AS age, region, income FROM t"
        )
        for _ in range(2):  # an equal request doesn't pay twice, and learns nothing new
            try:
                publish(request(), connection, query=query, ledger=ledger)
            except DataError as error:
                told |= 1 << bit
                assert "pending" in str(error)
            assert spent(ledger) == bit + 1
    assert told == round(data["income"][7]) % 256  # the oracle does work


@pytest.mark.parametrize("rows", ["read_csv('{}', skip=1, header=true)", "'{}'", "lines"])
def test_a_query_reads_no_other_file_before_the_charge(ledger, tmp_path, rows):
    """DuckDB takes somebody's cells for names of columns if it is told to."""
    path, file = tmp_path / "people.duckdb", tmp_path / "people.csv"
    file.write_text("name,income\nAda,54321\nBob,1000\n")
    with duckdb.connect(str(path)) as connection:
        table = pa.table({name: list(values) for name, values in people().items()})
        connection.register("t", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM t")
        connection.execute(f"CREATE VIEW lines AS FROM read_csv('{file}', skip=1, header=true)")
    for guess in ("54321", "54322"):  # the right one and a wrong one are told apart by no error
        query = f'SELECT *, "{guess}" FROM people, (FROM {rows.format(file)} LIMIT 0)'
        with pytest.raises(DataError, match="other files"):
            publish(request(), path, query=query, query_attested_by="Eve", ledger=ledger)
        with pytest.raises(RequestError, match="query"):
            publish(request(), path, query=query, ledger=ledger)
    with pytest.raises(DataError, match="no table or view"):
        publish(request(), path, table=str(file), ledger=ledger)
    assert spent(ledger) == 0
    assert publish(request(), path, query="FROM people", ledger=ledger).release.n == 500


def test_whether_anybody_has_a_level_is_not_free(ledger):
    """A schema that leaves a level out, with missing values as errors."""
    without = dict(COLUMNS, region=Category(("north", "south"), "north"))
    with pytest.raises(DataError, match="region"):
        publish(request(Schema("people", without)), people(), ledger=ledger)
    assert spent(ledger) == 1


def test_rows_of_a_query_are_not_counted_before_the_charge(ledger):
    query = "SELECT * FROM t WHERE (SELECT income > 1e9 FROM t LIMIT 1 OFFSET 7)"
    with pytest.raises(DataError, match="no rows"):
        publish(request(), lent(people()), query=query, query_attested_by="Eve", ledger=ledger)
    assert spent(ledger) == 1


def test_a_stored_release_is_handed_out_whatever_became_of_the_rows(ledger):
    publish(request(), people(), ledger=ledger)
    nobody = {name: values[:0] for name, values in people().items()}
    assert publish(request(), nobody, ledger=ledger).repeated


@pytest.mark.parametrize("limit", [10, 1_465, 1_600])
def test_a_size_that_depends_on_the_draws_never_decides(ledger, monkeypatch, limit):
    """With the readers' limit anywhere: refused for free and unseen, or stored."""
    monkeypatch.setattr("noisewise.core.document.MAX_BYTES", limit)
    drawn = []
    release = Request.release
    monkeypatch.setattr(Request, "release", lambda *args: drawn.append(1) or release(*args))
    for label in ("a", "b", "c"):
        try:
            publish(request(label=label), people(), ledger=ledger)
        except RequestError as error:
            assert "bytes" in str(error)
    assert len(drawn) == spent(ledger)
    assert all(one.status == "published" for one in ledger.accounts()[0].charges)


def test_what_is_drawn_is_stored_before_it_is_read_back(ledger, monkeypatch):
    """A Release that a reader refuses, if ever there is one, isn't drawn a second time."""
    monkeypatch.setattr(Publishable, "check_size", lambda self: None)
    monkeypatch.setattr("noisewise.core.document.MAX_BYTES", 100)
    for _ in range(3):
        with pytest.raises(ReleaseError):
            publish(request(), people(), ledger=ledger)
    monkeypatch.undo()
    assert publish(request(), people(), ledger=ledger).repeated
    assert spent(ledger) == 1


# --- crashes --------------------------------------------------------------------------------

CRASH = """
import os, signal, sys
import noisewise.holder.publish as door
from noisewise.holder.ledger import Ledger
from noisewise.holder.requests.regression import Request
from tests.holder.test_publish import people, request

step = int(sys.argv[1])
calls = 0

def killer(name, function):
    def wrapped(*args, **kwargs):
        global calls
        for when in ("before", "after"):
            if when == "after":
                result = function(*args, **kwargs)
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapped

for name in ("_fulfil", "_write_atomically", "open_source"):
    setattr(door, name, killer(name, getattr(door, name)))
Request.release = killer("release", Request.release)
for name in ("reserve", "commit"):
    setattr(Ledger, name, killer(name, getattr(Ledger, name)))
door.os.replace = killer("replace", os.replace)
door.publish(request(), people(), ledger=sys.argv[2], out=sys.argv[3])
print("finished", calls)
"""


def test_killed_at_any_point_never_publishes_without_a_charge(tmp_path):
    killed = finished = 0
    for step in range(1, 40):
        budget, out = ledger_for(tmp_path / f"{step}.db"), tmp_path / f"{step}.json"
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CRASH), str(step), str(budget), str(out)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            finished += 1
        else:
            assert done.returncode == -9, done.stderr
            killed += 1
        with Ledger(budget) as ledger:
            charged = spent(ledger)
            if out.exists():
                load_release(out)
                assert charged == 1
            # Running the same request again completes it, for one charge in all.
            outcome = publish(request(), people(), ledger=ledger, out=out)
            assert spent(ledger) == 1
            assert outcome.release == load_release(out)
        assert not list(tmp_path.glob(".noisewise-*"))
        if finished:
            break
    assert killed >= 12
    assert finished == 1


# --- whatever goes wrong is an error of ours ---------------------------------------------------


@pytest.mark.parametrize("data", [7, None, "absent.parquet", "people.xlsx", [1, 2], object()])
def test_things_that_are_no_data(ledger, data):
    with pytest.raises(NoisewiseError):
        publish(request(), data, ledger=ledger)
    assert spent(ledger) == 0


def test_the_stored_release_is_readable(ledger):
    release = publish(request(), people(), ledger=ledger).release
    assert Release.from_text(release.to_text()) == release
