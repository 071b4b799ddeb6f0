"""A pending charge remembers which rows it was made for; other ones need a word."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from noisewise.core.errors import DataError, RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import where_rows_are
from noisewise.holder.ledger import Ledger
from noisewise.holder.partition import Partition, publish_partition
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

from ..ledgers import ledger_for

SCHEMA = Schema(
    "people",
    {"age": Number(18, 90), "sex": Category(("f", "m"), "f"), "income": Number(0, 100)},
    "add_remove_one",
)
REQUEST = make_request(SCHEMA, target="income", features=["age"], epsilon=1)
GOOD = "age,sex,income\n30,f,50\n40,m,60\n"
BAD = GOOD.replace("40", "")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def pending(tmp_path):
    """A ledger with a charge that waits for the rows of bad.csv to be repaired."""
    path = ledger_for(tmp_path / "budget.db", epsilon=5)
    with pytest.raises(DataError, match="stays pending"):
        publish(REQUEST, written(tmp_path / "bad.csv", BAD), ledger=path)
    return path


def charge_of(path):
    with Ledger(path) as ledger:
        (account,) = ledger.accounts()
        (charge,) = account.charges
    return charge


def test_another_file_needs_a_word_and_is_not_read(pending, tmp_path, monkeypatch):
    other = written(tmp_path / "other.csv", GOOD)
    before = charge_of(pending)
    assert before.source["data"] == str(tmp_path / "bad.csv")
    assert before.source["bytes"] == len(BAD)
    with monkeypatch.context() as patch:
        from noisewise.holder.engines import files

        patch.setattr(files.CsvSource, "sums", lambda *_: pytest.fail("rows were read"))
        with pytest.raises(RequestError, match="charged for") as error:
            publish(REQUEST, other, ledger=pending)
    text = str(error.value)
    assert str(tmp_path / "bad.csv") in text
    assert str(other) in text
    # Of the remedies the free ones come first.
    assert text.index("no further cost") < text.index("--same-data") < text.index("--label")
    assert charge_of(pending) == before
    published = publish(REQUEST, other, ledger=pending, same_data=True)
    assert published.release.measurements
    after = charge_of(pending)
    assert (after.status, after.charge_id) == ("published", before.charge_id)
    assert after.source["data"] == str(other)
    # What is published is returned for any file, and nothing is read.
    assert publish(REQUEST, written(tmp_path / "third.csv", BAD), ledger=pending).repeated


def test_a_file_that_was_repaired_where_it_is_needs_no_word(pending, tmp_path):
    written(tmp_path / "bad.csv", GOOD)
    publish(REQUEST, tmp_path / "bad.csv", ledger=pending)
    assert charge_of(pending).status == "published"


def test_a_link_to_the_file_is_the_file(pending, tmp_path):
    written(tmp_path / "bad.csv", GOOD)
    (tmp_path / "link.csv").symlink_to(tmp_path / "bad.csv")
    publish(REQUEST, tmp_path / "link.csv", ledger=pending)
    assert charge_of(pending).status == "published"


def test_a_confirmed_move_is_remembered(pending, tmp_path):
    """The next file after that needs a word of its own."""
    moved = written(tmp_path / "moved.csv", BAD)
    with pytest.raises(DataError, match="stays pending"):
        publish(REQUEST, moved, ledger=pending, same_data=True)
    assert charge_of(pending).source["data"] == str(moved)
    with pytest.raises(RequestError, match=r"moved\.csv"):
        publish(REQUEST, tmp_path / "bad.csv", ledger=pending)
    with closing(sqlite3.connect(pending)) as connection:
        kinds = [kind for (kind,) in connection.execute("SELECT kind FROM entry ORDER BY seq")]
    assert kinds == ["cap", "reserve", "source"]


def test_a_rehearsal_says_so_too(pending, tmp_path):
    other = where_rows_are(written(tmp_path / "other.csv", GOOD))
    charge = REQUEST.charge()
    with Ledger(pending) as ledger:
        with pytest.raises(RequestError, match="charged for"):
            ledger.preview(charge, source=other)
        assert ledger.preview(charge, source=other, same_data=True).resumes
        assert ledger.preview(charge).resumes
    assert charge_of(pending).source["data"] == str(tmp_path / "bad.csv")


def test_a_frame_for_a_file_needs_a_word(pending):
    rows = {"age": [30.0], "sex": ["f"], "income": [50.0]}
    with pytest.raises(RequestError, match="a table in memory is given"):
        publish(REQUEST, rows, ledger=pending)
    publish(REQUEST, rows, ledger=pending, same_data=True)


def test_parts_of_a_partition(tmp_path):
    path = ledger_for(tmp_path / "budget.db", epsilon=5)
    parts = Partition(REQUEST, "sex", SCHEMA)
    with pytest.raises(DataError, match="stays pending"):
        publish_partition(parts, written(tmp_path / "bad.csv", BAD), ledger=path)
    other = written(tmp_path / "other.csv", GOOD)
    with pytest.raises(RequestError, match="charged for"):
        publish_partition(parts, other, ledger=path)
    assert len(publish_partition(parts, other, ledger=path, same_data=True)) == 2


def test_a_charge_that_knows_no_source_takes_any(tmp_path):
    """One of an older version; the ledger goes on as it is."""
    path = tmp_path / "budget.db"
    old = Path(__file__).parents[1] / "data" / "written_by_0_1" / "ledgers" / "pending.db"
    shutil.copyfile(old, path)
    path.chmod(0o600)
    with Ledger(path) as ledger:
        (account,) = ledger.accounts()
        charge = next(one for one in account.charges if one.status == "pending")
        assert charge.source is None
        assert ledger.preview(charge.charge, source={"data": "anything"}).resumes


# --- what is written down -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ("postgresql://ann:secret@db.example/people", "PostgreSQL host=db.example dbname=people"),
        (
            "postgres://ann:secret%2F%40secret@h1:5432,h2/people",
            "PostgreSQL host=h1,h2 port=5432, dbname=people",
        ),
        (
            "postgresql:///people?host=/run/pg&password=secret&user=ann&sslkey=secret",
            "PostgreSQL host=/run/pg dbname=people",
        ),
        ("postgresql://[secret", "a PostgreSQL server"),
        ("spark:people", "spark:people"),
        ("spark:s3a://KEY:secret@bucket/people.parquet", "spark:bucket/people.parquet"),
        ({"x": [1.0]}, "a table in memory"),
    ],
)
def test_addresses_are_kept_without_secrets(data, place):
    found = where_rows_are(data, table="t")
    assert found == {"data": place, "table": "t"}
    assert "secret" not in json.dumps(found)


def test_connections_have_no_name():
    with duckdb.connect() as connection:
        assert where_rows_are(connection)["data"] == "a DuckDB connection"


def test_a_missing_file_is_described_too(tmp_path):
    assert where_rows_are(tmp_path / "none.csv") == {"data": str(tmp_path / "none.csv")}
