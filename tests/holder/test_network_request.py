"""Requests for networks: what is refused, what is counted, and the whole way through the door."""

import json
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from noisewise.cli.main import main
from noisewise.core.errors import DataError, NoisewiseError, RequestError
from noisewise.core.kinds import load_release
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.networks.counts import CountPlan
from noisewise.holder.publish import publish
from noisewise.holder.requests.network import make_network_request

from ..ledgers import ledger_for

LEVELS = {"smoker": ("no", "yes"), "region": ("north", "south", "west"), "cough": tuple("01234")}
PARENTS = {"cough": ["smoker", "region"], "region": ["smoker"]}
ROWS = 500


def schema(**changes):
    columns = {name: Category(levels, levels[0]) for name, levels in LEVELS.items()}
    return Schema("people", columns, **changes)


def frame(rows=ROWS, seed=1):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({name: rng.choice(levels, rows) for name, levels in LEVELS.items()})


def expected_counts(data):
    network = Network.make(schema(), PARENTS)
    found = {}
    for node in network.nodes:
        table = np.zeros(network.shape(node), dtype=int)
        for row in data[list(network.family(node))].itertuples(index=False):
            cell = [
                network.levels(n).index(v) for n, v in zip(network.family(node), row, strict=True)
            ]
            table[tuple(cell)] += 1
        found[node] = table
    return found


@pytest.fixture
def files(tmp_path):
    data = frame()
    data.to_parquet(tmp_path / "people.parquet")
    data.to_csv(tmp_path / "people.csv", index=False)
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute("create table people as select * from data")
    return tmp_path


def test_every_engine_counts_the_same(files):
    plan = CountPlan(Network.make(schema(), PARENTS))
    exact = expected_counts(frame())
    sources = [
        open_source(frame(), engine="memory"),
        open_source(pl.DataFrame(frame())),
        open_source(files / "people.parquet", engine="stream"),
        open_source(files / "people.csv", engine="stream"),
        open_source(files / "people.duckdb", engine="duckdb", table="people"),
        open_source(files / "people.parquet", engine="duckdb"),
    ]
    for source in sources:
        result = source.sums(plan, None)
        assert result.n == ROWS
        for node, table in exact.items():
            assert (result.tables[node] == table).all(), source.description
        # Of a graph that is to be learned, tables by their columns.
        learned = make_network_request(schema(), network="learn", epsilon=1).plan()
        tables = source.sums(learned, None).tables
        assert (tables["smoker", "region", "cough"] == exact["cough"]).all(), source.description
        assert (tables["smoker", "region"] == exact["region"]).all(), source.description
        assert (tables["smoker",] == exact["smoker"]).all(), source.description


def test_pieces_in_any_order_make_the_same():
    plan = CountPlan(Network.make(schema(), PARENTS))
    codes = [pd.Categorical(frame()[name], LEVELS[name]).codes.astype("i4") for name in LEVELS]
    whole, pieces = plan.accumulator(), plan.accumulator()
    whole.add(codes)
    pieces.add([column[300:] for column in codes])
    pieces.add([column[:300] for column in codes])
    for node, table in whole.result().tables.items():
        assert (pieces.result().tables[node] == table).all()
        assert table.sum() == ROWS
    assert str(ROWS) not in repr(whole.result())  # exact counts stay out of logs


def test_missing_values_are_filled_or_refused():
    data = frame()
    data.loc[3, "region"] = None
    data.loc[4, "cough"] = "99"  # not a declared level
    request = make_network_request(schema(), network=PARENTS, epsilon=1)
    with pytest.raises(DataError, match="region"):
        open_source(data).sums(request.plan(), None)
    filled = schema(fill={"region": "west", "cough": "0"})
    request = make_network_request(filled, network=PARENTS, epsilon=1)
    tables = open_source(data).sums(request.plan(), None).tables
    data = data.fillna({"region": "west"}).replace({"cough": {"99": "0"}})
    assert (tables["cough"] == expected_counts(data)["cough"]).all()


REQUESTS = {
    "laplace": {},
    "fourier": {"mechanism": "fourier"},
    "posterior_sample": {"mechanism": "posterior_sample", "draws": 3},
    "untempered": {"mechanism": "posterior_sample", "temper": 1},
    "map_counts": {"mechanism": "map"},
    "map_tempered": {"mechanism": "map", "kind": "tempered", "omega": "0.1"},
    "map_grid": {"mechanism": "map", "kind": "grid", "points": 7},
}


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("words", REQUESTS.values(), ids=REQUESTS.keys())
def test_through_the_door_and_again_for_nothing(tmp_path, words, neighbours):
    made = make_network_request(schema(neighbours=neighbours), network=PARENTS, epsilon=2, **words)
    ledger, out = ledger_for(tmp_path / "budget.db"), tmp_path / "network.json"
    first = publish(made, frame(), ledger=ledger, out=out)
    again = publish(made, frame(seed=2), ledger=ledger, out=out)
    assert again.repeated
    assert again.release == first.release == load_release(out)
    release = first.release
    assert release.n == (ROWS if neighbours == "replace_one" else None)
    assert release.claim.epsilon == release.event.epsilon == 2
    for node in release.network.nodes:
        if release.has_counts:
            assert release.counts(node).shape == release.network.shape(node)
        else:
            table = release.tables(release.draws - 1)[node]
            assert table.shape == release.network.shape(node)
            assert table.sum(axis=-1) == pytest.approx(1)
            assert table.min() > 0


def test_with_hardly_any_noise_counts_are_right(tmp_path):
    """At epsilon 100 the noise is small: this catches cells in wrong places."""
    exact = expected_counts(frame())
    for mechanism, few in (("laplace", 2), ("fourier", 40)):
        made = make_network_request(schema(), network=PARENTS, epsilon=100, mechanism=mechanism)
        release = publish(made, frame(), ledger=ledger_for(tmp_path / f"{mechanism}.db")).release
        for node, table in exact.items():
            assert np.abs(release.counts(node) - table).max() < few


def test_tempered_draws_follow_the_data(tmp_path):
    data = pd.DataFrame({"smoker": ["no"] * 9000 + ["yes"] * 1000})
    small = Schema("one", {"smoker": Category(("no", "yes"), "no")})
    for words in ({"mechanism": "posterior_sample"}, {"mechanism": "map", "kind": "tempered"}):
        made = make_network_request(small, network={"smoker": []}, epsilon=7, **words)
        ledger = ledger_for(tmp_path / f"{words['mechanism']}.db", "one")
        release = publish(made, data, ledger=ledger).release
        # Beta(9001, 1001) has a standard deviation of 0.003; 8 of them are never exceeded.
        assert abs(release.tables()["smoker"][0] - 0.9) < 0.024


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"epsilon": None}, "epsilon: not given"),
        ({"epsilon": -1}, "epsilon"),
        ({"mechanism": "magic"}, "posterior_sample or map"),
        ({"kind": "grid"}, "map takes"),
        ({"mechanism": "map", "kind": "best"}, "map takes"),
        ({"draws": 3}, "has no effect on laplace"),
        ({"mechanism": "map", "points": 3}, r"has no effect on map \(counts\)"),
        ({"mechanism": "posterior_sample", "draws": 0}, "draws"),
        ({"mechanism": "posterior_sample", "draws": True}, "draws"),
        ({"mechanism": "posterior_sample", "omega": "0.5"}, "between 0 and 1/2"),
        ({"mechanism": "map", "kind": "grid", "omega": "0.49999999"}, "at most 0.49"),
        ({"mechanism": "posterior_sample", "omega": 0}, "between 0 and 1/2"),
        ({"mechanism": "posterior_sample", "temper": 2}, "at most 1"),
        ({"mechanism": "posterior_sample", "temper": 1, "omega": 0.1}, "one of the two"),
        ({"mechanism": "posterior_sample", "temper": 1, "epsilon": "1e-9"}, "all be uniform"),
        ({"mechanism": "posterior_sample", "epsilon": "1e-30"}, "out of range"),
        ({"mechanism": "map", "kind": "grid", "points": 1}, "points"),
        ({"mechanism": "fourier", "stealth": 1.5}, "stealth"),
        ({"concentration": 0.5}, "from 1 to a million"),
        ({"concentration": {"weight": 1}}, "no node"),
        ({"label": "x" * 300}, "label"),
        ({"network": {"cough": ["weight"]}}, "not declared"),
    ],
)
def test_bad_requests_are_named(words, message):
    with pytest.raises(RequestError, match=message):
        make_network_request(schema(), **{"network": PARENTS, "epsilon": 1, **words})


def test_equal_requests_have_one_identity():
    edges = [("smoker", "cough"), ("region", "cough"), ("smoker", "region")]
    one = make_network_request(schema(), network=PARENTS, epsilon="0.5")
    same = make_network_request(schema(), network=edges, epsilon=0.5)
    assert one.key == same.key
    others = [
        make_network_request(schema(), network=PARENTS, epsilon=1),
        make_network_request(schema(), network=PARENTS, epsilon="0.5", label="b"),
        make_network_request(schema(), network=PARENTS, epsilon="0.5", mechanism="map"),
        make_network_request(schema(), network={"cough": ["smoker"]}, epsilon="0.5"),
        make_network_request(schema(max_rows_per_unit=2), network=PARENTS, epsilon="0.5"),
    ]
    assert len({one.key, *(other.key for other in others)}) == 1 + len(others)
    assert one.charge().request_key != one.charge(table="t").request_key


def test_untempered_draws_truncate_as_the_paper_does():
    binary = Schema("d", {name: Category(("0", "1"), "0") for name in "abcd"})
    made = make_network_request(
        binary, network=Network.naive_bayes(binary, "a"), epsilon=3, mechanism="posterior_sample",
        temper=1, draws=2,
    )  # fmt: skip
    assert made.planned.temper == 1
    assert made.planned.lowest / 2**24 == pytest.approx(1 / (1 + np.exp(3 / (2 * 2 * 4))), abs=1e-7)


def test_default_draws_are_never_tempered_above_one():
    for epsilon in ("0.01", 1, 20, 100):
        made = make_network_request(
            schema(), network=PARENTS, epsilon=epsilon, mechanism="posterior_sample"
        )
        made.verify()
        assert made.planned.temper <= 1
        assert made.planned.lowest <= 2**24 // 32
    assert made.planned.temper > Fraction(999, 1000)  # at 100 the truncation gives way instead


# ---------------------------------------------------------------------------------------------
# Command line

SCHEMA_TEXT = """\
dataset: people
columns:
  smoker: {type: category, levels: ['no', 'yes'], reference: 'no'}
  region: {type: category, levels: [north, south, west], reference: north}
  cough: {type: category, levels: ['0', '1', '2', '3', '4'], reference: '0'}
"""


@pytest.fixture
def command(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    (files / "schema.yaml").write_text(SCHEMA_TEXT)
    ledger_for(files / "budget.db", epsilon=2)
    (files / "graph.yaml").write_text("cough: [smoker, region]\nregion: [smoker]\nsmoker:\n")

    def run(*words, code=0):
        given = ["--data", "people.parquet", "--schema", "schema.yaml", "--ledger", "budget.db"]
        monkeypatch.setattr("sys.argv", ["noisewise", "release-network", *given, *words])
        found = 0
        try:
            main()
        except SystemExit as stop:
            found = stop.code or 0
        captured = capsys.readouterr()
        assert found == code, captured.out + captured.err
        return captured.out + captured.err

    return run


def test_command_publishes_and_repeats(command):
    assert "Published network.json" in command("--graph", "graph.yaml", "--epsilon", "1")
    first = load_release("network.json")
    assert first.network == Network.make(schema(), PARENTS)
    edges = "smoker>cough, region->cough, smoker > region"
    assert "at no cost" in command("--edges", edges, "--epsilon", "1", "--out", "again.json")
    assert load_release("again.json") == first
    said = command("--naive-bayes", "cough", "--epsilon", "1.5", code=5)
    assert "budget" in said.lower() or "cap" in said


def test_command_dry_run_spends_nothing(command, files):
    said = command("--naive-bayes", "cough", "--epsilon", "1", "--dry-run")
    assert "sensitivity 6" in said
    assert "3 nodes" in said
    assert not (files / "network.json").exists()
    shown = json.loads(
        command("--graph", "graph.yaml", "--epsilon", "2", "--mechanism", "posterior_sample",
                "--draws", "5", "--dry-run", "--json")
    )  # fmt: skip
    assert shown["plan"]["draws"] == 5
    assert shown["budget"]["allowed"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--epsilon", "1"), "give one of"),
        (("--epsilon", "1", "--edges", "smoker>cough", "--naive-bayes", "cough"), "give one of"),
        (("--epsilon", "1", "--edges", "smoker"), "parent>child"),
        (("--epsilon", "1", "--edges", "smoker>cough", "--features", "region"), "features"),
        (("--epsilon", "1", "--graph", "none.yaml"), "no file"),
        (("--epsilon", "1", "--graph", "people.csv"), "graph"),
        (("--naive-bayes", "cough"), "epsilon"),
        (("--epsilon", "1", "--edges", "smoker>cough,cough>smoker"), "cycle"),
    ],
)
def test_command_names_mistakes(command, words, message):
    assert message in command(*words, code=2)


def test_every_request_error_is_deliberate():
    for wrong in (None, 7, "abc", [("a", "b", "c")], {"cough": None}, {"cough": [None]}):
        with pytest.raises(NoisewiseError):
            make_network_request(schema(), network=wrong, epsilon=1)
