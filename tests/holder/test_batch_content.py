"""The same rows under two names of a series are found, whatever is asked of them."""

from __future__ import annotations

import json
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from noisewise.core.errors import DataError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.ledger import Ledger
from noisewise.holder.ledger.refusals import fingerprint, is_of
from noisewise.holder.publish import publish
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.requests.summary import make_summary_request
from noisewise.holder.series import content_of

SCHEMA = Schema(
    "people",
    {
        "age": Number(18, 90),
        "height": Number(100, 220),
        "income": Number(0, 200_000),
        "region": Category(("north", "south", "east"), "south"),
        "smokes": Category(("no", "yes"), "no"),
    },
    fill={"age": 40.0, "region": "north"},
)


def rows(seed=1, n=300):
    rng = np.random.default_rng(seed)
    return {
        "age": np.where(rng.random(n) < 0.1, np.nan, rng.uniform(10, 95, n)),
        "height": rng.normal(170, 10, n),
        "income": rng.lognormal(10, 1, n),
        "region": rng.choice(["north", "south", "east", "elsewhere"], n),
        "smokes": rng.choice(["no", "yes"], n),
    }


def regression(features=("age", "region"), target="income", batch=None, **words):
    words = {"epsilon": 1, **words}
    return make_request(
        SCHEMA,
        target=target,
        features=list(features),
        **words,
        batch=batch,
        series="s" if batch else None,
    )


def network(parents, batch=None):
    return make_network_request(
        SCHEMA, network=parents, epsilon=1, batch=batch, series="s" if batch else None
    )


def summary(target="income", features=("height",), batch=None):
    return make_summary_request(
        SCHEMA,
        target=target,
        features=list(features),
        questions=[f"{features[0]} < 0"],
        epsilon=1,
        blocks=8,
        batch=batch,
        series="s" if batch else None,
    )


def draws(batch=None):
    return make_regression_sample_request(
        SCHEMA,
        target="income",
        features=["height"],
        noise_sd=1e5,
        epsilon=1,
        batch=batch,
        series="s" if batch else None,
    )


REQUESTS = {
    "regression": lambda batch: regression(batch=batch),
    "ball": lambda batch: regression(batch=batch, delta="1e-6", radius=1.0),
    "other features": lambda batch: regression(("height", "smokes"), batch=batch),
    "draws": draws,
    "summary": lambda batch: summary(batch=batch),
    "other summary": lambda batch: summary("age", ("income", "region"), batch=batch),
    "network": lambda batch: network({"region": [], "smokes": ["region"]}, batch),
    "other network": lambda batch: network({"region": ["smokes"], "smokes": []}, batch),
}
# Numbers of block summaries are on a grid of their own, a network has no numbers, and a ball leaves
# the target alone: these pairs have no column in common that could be compared.
NOTHING_IN_COMMON = {
    frozenset(pair)
    for pair in [
        ("regression", "summary"),
        ("other features", "summary"),
        ("other features", "other summary"),
        ("draws", "summary"),
        ("draws", "other summary"),
        ("draws", "network"),
        ("draws", "other network"),
        ("summary", "network"),
        ("summary", "other network"),
        ("ball", "summary"),
        ("ball", "other summary"),
        ("ball", "network"),
        ("ball", "other network"),
    ]
}


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db") as opened:
        opened.set_cap("people", Fraction(30), Fraction("1e-4"))
        yield opened


@pytest.fixture(scope="module")
def contents():
    def content(request, data):
        plan = request.plan()
        return content_of(plan, open_source(data).sums(plan))

    return {
        name: (content(make(None), rows()), content(make(None), rows(seed=2)))
        for name, make in REQUESTS.items()
    }


@pytest.mark.parametrize("first", REQUESTS)
@pytest.mark.parametrize("second", REQUESTS)
def test_whatever_is_asked_the_same_rows_are_known_again(contents, first, second):
    kept = fingerprint(contents[first][0])
    assert is_of(kept, contents[second][0]) == ({first, second} not in NOTHING_IN_COMMON)
    assert not is_of(kept, contents[second][1])


def test_twenty_names_for_the_same_rows_do_not_make_twenty_budgets(ledger):
    publish(regression(batch="b0"), rows(), ledger=ledger)
    for number in range(1, 20):
        with pytest.raises(DataError, match=r"b0.*stays pending.*without a series"):
            publish(regression(batch=f"b{number}"), rows(), ledger=ledger)
    (account,) = ledger.accounts()
    assert [one.status for one in account.charges] == ["published"] + ["pending"] * 19


def test_the_pending_batch_completes_with_the_right_rows(ledger):
    publish(regression(batch="b0"), rows(), ledger=ledger)
    with pytest.raises(DataError, match="b0"):
        publish(network({"region": [], "smokes": ["region"]}, "b1"), rows(), ledger=ledger)
    with pytest.raises(DataError, match="b0"):
        publish(regression(batch="b1"), rows(), ledger=ledger)
    publish(regression(batch="b1"), rows(seed=2), ledger=ledger)
    assert ledger.accounts()[0].spent_epsilon == 2  # what batch b1 bears: its pending network, too


def test_another_request_about_the_same_batch_is_no_slip(ledger):
    publish(regression(batch="b0"), rows(), ledger=ledger)
    publish(regression(batch="b0", label="again"), rows(), ledger=ledger)
    assert ledger.accounts()[0].spent_epsilon == 2


def test_series_add_up_so_they_may_share_rows(ledger):
    publish(regression(batch="b0"), rows(), ledger=ledger)
    words = {"target": "income", "features": ["age", "region"], "epsilon": 1}
    publish(make_request(SCHEMA, **words, batch="b0", series="t"), rows(), ledger=ledger)
    publish(make_request(SCHEMA, **words, batch="b9"), rows(), ledger=ledger)
    assert ledger.accounts()[0].spent_epsilon == 3


@pytest.mark.parametrize("name", REQUESTS)
def test_every_engine_and_every_order_of_rows_gives_the_same_content(name, tmp_path, contents):
    data = rows()
    order = np.random.default_rng(9).permutation(len(data["age"]))
    arrays = {k: pa.array(v[order], from_pandas=True) for k, v in data.items()}
    table = pa.table(arrays)
    pq.write_table(table, tmp_path / "people.parquet", row_group_size=37)
    pa_csv.write_csv(table, tmp_path / "people.csv")
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.register("t", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM t")
    plan = REQUESTS[name](None).plan()
    for file, engine in [
        ("people.parquet", "stream"),
        ("people.parquet", "duckdb"),
        ("people.csv", "stream"),
        ("people.duckdb", "duckdb"),
    ]:
        source = open_source(tmp_path / file, engine=engine)
        assert content_of(plan, source.sums(plan)) == contents[name][0], (file, engine)


def test_what_is_kept_is_keyed_and_never_shown(ledger):
    one, two = fingerprint({"a": "[3, 1]"}), fingerprint({"a": "[3, 1]"})
    assert one["key"] != two["key"]
    assert one["texts"] != two["texts"]
    assert "[3, 1]" not in json.dumps(one)
    release = publish(regression(batch="b0"), rows(), ledger=ledger).release
    (account,) = ledger.accounts()
    kept = account.charges[0].fingerprint
    assert kept is not None
    for shown in (json.dumps(account.to_json()), repr(account), release.to_text()):
        assert kept["key"] not in shown
        assert not any(mac in shown for mac in kept["texts"].values())


def test_releases_without_a_series_leave_no_fingerprint(ledger):
    publish(regression(), rows(), ledger=ledger)
    assert ledger.accounts()[0].charges[0].fingerprint is None
