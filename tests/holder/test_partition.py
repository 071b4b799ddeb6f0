"""Publishing by level: one pass, one cost, all parts or none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from noisewise.core.errors import BudgetError, DataError, RequestError
from noisewise.core.kinds import load_release
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.ledger import Ledger
from noisewise.holder.partition import Partition, publish_partition
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

LEVELS = ("north", "south/west", "..", "nobody's")
SCHEMA = Schema(
    "people",
    {
        "age": Number(18, 90),
        "income": Number(0, 200_000),
        "region": Category(LEVELS, "north"),
    },
    neighbours="add_remove_one",
)


def partition(**words):
    words = {"target": "income", "features": ["age"], "epsilon": 1, **words}
    return Partition(make_request(SCHEMA, **words), "region", SCHEMA)


def people(n=900, seed=3):
    rng = np.random.default_rng(seed)
    return {
        "age": rng.uniform(10, 100, n),
        "income": rng.lognormal(10, 1, n),
        "region": rng.choice(LEVELS[:3], n, p=[0.6, 0.3, 0.1]).astype(object),
    }


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db") as opened:
        opened.set_cap("people", Fraction(2), Fraction(0))
        yield opened


def spent(ledger):
    return sum(account.spent_epsilon for account in ledger.accounts())


def test_one_release_a_level_for_the_cost_of_one(ledger, tmp_path):
    data = people()
    found = publish_partition(partition(), data, ledger=ledger, out=tmp_path / "parts")
    assert tuple(found) == LEVELS
    assert spent(ledger) == 1
    files = sorted((tmp_path / "parts").iterdir())
    assert [file.name for file in files] == [
        "001-north.json",
        "002-south_west.json",
        "003-...json",
        "004-nobody_s.json",
    ]
    for level, file in zip(LEVELS, files, strict=True):
        release = found[level].release
        assert load_release(file) == release
        assert release.label == f"region={level}"
        assert release.n is None
        sd = release.second_moments.noise.continuous().variance ** 0.5
        assert abs(release.noisy_n - (data["region"] == level).sum()) < 15 * sd
    assert len({one.release.second_moments.values for one in found.values()}) == 4


def test_the_same_again_is_stored_and_anything_else_is_added(ledger):
    first = publish_partition(partition(), people(), ledger=ledger)
    again = publish_partition(partition(), people(seed=4), ledger=ledger)
    assert [one.release for one in again.values()] == [one.release for one in first.values()]
    assert all(one.repeated for one in again.values())
    assert spent(ledger) == 1
    publish_partition(partition(label="2026-Q4"), people(seed=4), ledger=ledger)
    assert spent(ledger) == 2
    with pytest.raises(BudgetError):
        publish_partition(partition(label="2027-Q1"), people(), ledger=ledger)
    assert len(ledger.accounts()[0].charges) == 8


def test_all_levels_are_charged_before_a_row_is_read_and_none_is_stored_alone(ledger):
    data = people()
    data["region"][5] = "elsewhere"
    with pytest.raises(DataError, match=r"'region'.*\n.*epsilon=1 stays pending"):
        publish_partition(partition(), data, ledger=ledger)
    (account,) = ledger.accounts()
    assert [one.status for one in account.charges] == ["pending"] * 4
    assert account.spent_epsilon == 1
    publish_partition(partition(), people(), ledger=ledger)
    assert [one.status for one in ledger.accounts()[0].charges] == ["published"] * 4
    assert spent(ledger) == 1


def test_parts_that_were_published_by_themselves_are_not_completed(ledger):
    """They may be of an earlier version of the data, in which people had other levels."""
    asked = partition()
    publish(asked.parts[0], people(), ledger=ledger)
    with pytest.raises(RequestError, match="new label"):
        publish_partition(asked, people(), ledger=ledger)
    statuses = [one.status for one in ledger.accounts()[0].charges]
    assert statuses == ["published"]  # the others were not even charged


def test_a_part_that_is_published_meanwhile_stops_the_others(ledger, monkeypatch):
    asked, summed = partition(), partition().parts[1].release

    def meanwhile(part, n, sums, /):
        if part == asked.parts[-1]:
            monkeypatch.undo()
            publish(asked.parts[0], people(seed=4), ledger=ledger)
        return summed(n, sums)

    monkeypatch.setattr(type(asked.request), "release", meanwhile)
    with pytest.raises(RequestError, match="new label"):
        publish_partition(asked, people(), ledger=ledger)
    statuses = [one.status for one in ledger.accounts()[0].charges]
    assert sorted(statuses) == ["pending"] * 3 + ["published"]


@pytest.mark.parametrize("engine", ["stream", "duckdb", "csv", "database"])
def test_every_engine_gives_the_same_parts(tmp_path, engine):
    data, plan = people(), partition().plan()
    expected = open_source(data).sums(plan)
    tab = pa.table({name: pa.array(values.tolist()) for name, values in data.items()})
    if engine == "csv":
        pa_csv.write_csv(tab, tmp_path / "p.csv")
        source = open_source(tmp_path / "p.csv")
    elif engine == "database":
        with duckdb.connect(str(tmp_path / "p.duckdb")) as connection:
            connection.register("t", tab)
            connection.execute("CREATE TABLE people AS SELECT * FROM t")
        source = open_source(tmp_path / "p.duckdb")
    else:
        pq.write_table(tab, tmp_path / "p.parquet", row_group_size=100)
        source = open_source(tmp_path / "p.parquet", engine=engine)
    assert source.sums(plan) == expected
    assert sum(one.n for one in expected) == 900


KILLED = """
import os, signal, sys
from noisewise.holder.ledger.file import Book
from noisewise.holder.partition import publish_partition
from tests.holder.test_partition import partition, people

step, calls = int(sys.argv[1]), 0

def killer(function):
    def wrapped(*args, **kwargs):
        global calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return wrapped

Book.append = killer(Book.append)
Book.publish = killer(Book.publish)
os.link = killer(os.link)
os.replace = killer(os.replace)
publish_partition(partition(), people(), ledger=sys.argv[2], out=sys.argv[3])
"""


def test_a_killed_run_is_resumed_and_draws_no_stored_level_again(tmp_path):
    """Killed before each write to the ledger, and before each file gets its name."""
    for step in (1, 3, 5, 8, 12, 13, 15):
        budget, out = tmp_path / f"{step}.db", tmp_path / str(step)
        with Ledger(budget) as ledger:
            ledger.set_cap("people", Fraction(1), Fraction(0))
        command = [sys.executable, "-c", KILLED, str(step), str(budget), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == -signal.SIGKILL, done.stderr
        with Ledger(budget) as ledger:
            statuses = {one.status for one in ledger.accounts()[0].charges}
            assert len(statuses) <= 1  # all levels, or none
            files = {path: path.read_text() for path in out.glob("*.json")}
            assert not files or statuses == {"published"}
            # Resumed with other data: whatever was stored is not drawn again.
            found = publish_partition(partition(), people(seed=9), ledger=ledger, out=out)
            assert all(one.repeated == (statuses == {"published"}) for one in found.values())
            assert all(path.read_text() == text for path, text in files.items())
            assert len(list(out.glob("*.json"))) == 4
            assert spent(ledger) == 1
