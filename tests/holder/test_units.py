"""A Release of people: what it says, what is refused and when, and that no id gets out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unicodedata
from fractions import Fraction
from importlib import resources
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import noisewise as nw
from noisewise.analyst.report.words import unit_in_words
from noisewise.audit import audit_release, challenge_of
from noisewise.cli.main import main
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.document import digest_of
from noisewise.core.errors import (
    BudgetError,
    DataError,
    NoisewiseError,
    ReleaseError,
    RequestError,
    SchemaError,
)
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.audit_sheet import audit_sheet
from noisewise.holder.engines import duckdb as duckdb_engine
from noisewise.holder.ledger import Ledger
from noisewise.holder.partition import Partition
from noisewise.holder.publish import publish
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.requests.summary import make_summary_request
from noisewise.holder.rows import grouping, units
from noisewise.holder.rows.sums import Sums
from noisewise.holder.schema_files import check_data, merged_ids
from noisewise.sklearn import PrivateBayesianRegressor

from ..seeded_noise import seeded_noise

COLUMNS = {
    "x": Number(-3, 3),
    "g": Category(("a", "b", "c"), "a"),
    "y": Number(-4, 4),
}
RELEASE_SCHEMA = json.loads(
    resources.files("noisewise.core.kinds").joinpath("release.schema.json").read_text("utf-8")
)
PLANTED = 918273645546372819  # somebody's id


def schema(neighbours="replace_one", **changes):
    return Schema("people", COLUMNS, neighbours, **{"unit_column": "who", **changes})


def request(made_of=None, **words):
    words = {"target": "y", "features": ["x", "g"], "epsilon": 1, **words}
    return make_request(made_of or schema(), **words)


def people(count=300, seed=5):
    """People with 1 to 10 rows, in no order."""
    rng = np.random.default_rng(seed)
    who = np.repeat(rng.permutation(10**6)[:count], rng.integers(1, 11, count))
    who = np.append(who, [PLANTED] * 3)
    rng.shuffle(who)
    n = len(who)
    g = rng.choice(["a", "b", "c"], n)
    x = rng.normal(size=n)
    return {"x": x, "g": g, "y": 0.5 * x + (g == "b") + rng.normal(size=n), "who": who}


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db") as opened:
        opened.set_cap("people", Fraction(50), Fraction("1e-5"))
        yield opened


def spent(ledger):
    return sum(account.spent_epsilon for account in ledger.accounts())


# ---------------------------------------------------------------------------------------------
# What is published


def means_of(data):
    """By ordinary floating point and another way round than the holder's."""
    x, y = np.clip(data["x"], -3, 3) / 3, np.clip(data["y"], -4, 4) / 4
    rows = np.column_stack([x, data["g"] == "b", data["g"] == "c", y])
    return np.array([[1, *rows[data["who"] == one].mean(axis=0)] for one in set(data["who"])])


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_the_sums_are_those_of_people(neighbours):
    data = people()
    asked = request(schema(neighbours))
    sums = nw.holder.engines.open_source(data).sums(asked.plan())
    w = means_of(data)
    assert sums.n == len(w) == 301
    expected = [(w[:, a] * w[:, b]).sum() for a, b in SecondMoments(asked.design).entries]
    found = np.array(sums.values["second_moments"]) / STATISTIC_ONE
    assert found == pytest.approx(np.array(expected), abs=301 * 4e-5)


@pytest.mark.parametrize(
    "words", [{}, {"delta": "1e-6", "rounds": 1}, {"delta": "1e-6", "rounds": 3}]
)
def test_a_release_says_that_its_rows_are_people(words, ledger, tmp_path):
    release = publish(request(**words), people(), ledger=ledger, out=tmp_path / "r.json").release
    assert release.n == 301
    assert release.schema.unit == "replace_one/all rows by who"
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["schema"]["unit"] == {"column": "who"}
    jsonschema.validate(document, RELEASE_SCHEMA)
    assert Release.from_text((tmp_path / "r.json").read_text()) == release
    assert ledger.accounts()[0].unit == "replace_one/all rows by who"
    sheet = audit_sheet(ledger)["datasets"][0]
    assert sheet["privacy_unit"]["max_rows_per_unit"] == "all rows by who"
    assert "people" in sheet["privacy_unit"]["meaning"]


def test_requests_of_rows_keep_their_identity():
    """A schema without ids is written as it was before there were any."""
    assert "unit" not in schema(unit_column=None).to_dict()
    keys = {request().key, request(schema(unit_column=None)).key}
    assert len(keys | {request(schema(unit_column="other")).key}) == 3


def test_a_release_of_rows_may_not_be_passed_off_as_one_of_people(ledger):
    """The entries differ: shares of one category have products, indicators have none."""
    data = people()
    asked = request(schema(unit_column=None))
    document = publish(asked, data, ledger=ledger).release.document
    document["schema"]["unit"] = {"column": "who"}
    document = json.loads(json.dumps(document))
    text = json.dumps({**document, "digest": digest_of(document)})
    with pytest.raises(ReleaseError, match="values, expected"):
        Release.from_text(text)


def test_the_posterior_is_of_people(ledger):
    """With hardly any noise: least squares of the means, and the variance of their errors."""
    data = people()
    with seeded_noise("people"):  # what is looked at here is the posterior
        release = publish(request(epsilon=40, delta="1e-6", rounds=1), data, ledger=ledger).release
    posterior = nw.fit(release, chains=2, draws=500, seed=1)
    w = means_of(data)
    slope, *_ = np.linalg.lstsq(w[:, :-1], w[:, -1], rcond=None)
    error = w[:, -1] - w[:, :-1] @ slope
    x, sigma2 = posterior.draws("x"), posterior.draws("sigma2")
    assert abs(np.median(x) - slope[1] * 4 / 3) < 3 * np.std(x)
    assert abs(np.median(sigma2) - 16 * np.mean(error**2)) < 3 * np.std(sigma2)
    assert np.std(x) < 0.3
    assert "any number of rows" in unit_in_words(release.schema.unit)


def test_people_and_rows_are_not_fitted_together(tmp_path):
    releases = []
    for name, column in (("one", "who"), ("two", None)):
        made = Schema(name, COLUMNS, unit_column=column)
        with Ledger(tmp_path / f"{name}.db") as own:
            own.set_cap(name, Fraction(1))
            releases.append(publish(request(made), people(), ledger=own).release)
    with pytest.raises(ReleaseError, match="fit them apart"):
        nw.fit(releases, draws=50, chains=1)


def test_draws_are_of_means_too(ledger):
    asked = make_regression_sample_request(
        schema(), target="y", features=["x", "g"], epsilon=1, noise_sd="0.5"
    )
    assert publish(asked, people(), ledger=ledger).release.n == 301


# ---------------------------------------------------------------------------------------------
# What is refused, and that nothing is charged for it where that can be known


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit_column": "x"}, "declared column too"),
        ({"max_rows_per_unit": 5}, "leave max_rows_per_unit out"),
        ({"unit_column": " "}, "a name must be text"),
    ],
)
def test_schemas_that_make_no_sense(changes, words):
    with pytest.raises(SchemaError, match=words):
        schema(**changes)


@pytest.mark.parametrize("unit", ["who", {"columns": "who"}, {"column": "who", "rows": 1}, None])
def test_how_a_unit_is_declared(unit):
    document = {**schema(unit_column=None).to_dict(), "unit": unit}
    with pytest.raises(SchemaError, match="unit"):
        Schema.from_dict(document)
    assert Schema.from_dict({**document, "unit": {"column": "who"}}) == schema()


@pytest.mark.parametrize(
    "rule", [{"type": "number"}, {"type": None}, {"fold": "yes"}, {"fold": 1}, {"case": True}]
)
def test_rules_for_ids_that_are_none(rule):
    document = {**schema(unit_column=None).to_dict(), "unit": {"column": "who", **rule}}
    with pytest.raises(SchemaError, match="unit"):
        Schema.from_dict(document)


def test_a_rule_without_ids_makes_no_sense():
    for rule in ({"unit_type": "integer"}, {"unit_fold": True}):
        with pytest.raises(SchemaError, match="unit"):
            schema(unit_column=None, **rule)


def test_a_rule_for_ids_is_another_request_and_another_unit():
    """What is protected differs, so budgets don't add up; the default is written as ever."""
    rules = [{}, {"unit_type": "integer"}, {"unit_fold": True}]
    rules.append({"unit_type": "integer", "unit_fold": True})
    made = [schema(**rule) for rule in rules]
    made += [schema(unit_column="who", unit_type="text", unit_fold=False)]
    assert made[0] == made[-1]
    assert made[0].to_dict()["unit"] == {"column": "who"}
    assert made[3].to_dict()["unit"] == {"column": "who", "type": "integer", "fold": True}
    assert [Schema.from_dict(one.to_dict()) for one in made] == made
    assert len({one.unit for one in made}) == len({request(one).key for one in made}) == 4
    assert made[3].unit == "replace_one/all rows (integer, folded ids) by who"
    # No name of a column makes one rule look like another.
    for name in (
        " (integer, folded ids) by who",
        "(integer, folded ids) by who",
        "by who",
        " by who",
    ):
        assert schema(unit_column=name).unit not in {one.unit for one in made}


def test_charges_for_people_by_another_rule_do_not_add_up(ledger):
    data = people()
    publish(request(), data, ledger=ledger)
    with pytest.raises(BudgetError, match="cannot be added up"):
        publish(request(schema(unit_fold=True)), data, ledger=ledger)


def test_other_kinds_say_what_to_do():
    with pytest.raises(RequestError, match="max_rows_per_unit"):
        make_network_request(schema(), network={"g": []}, epsilon=1)
    with pytest.raises(RequestError, match="max_rows_per_unit"):
        make_summary_request(
            schema(), target="y", features=["x"], epsilon=1, questions=["x > 0"], blocks=10
        )
    declared = schema("add_remove_one")
    with pytest.raises(RequestError, match="several parts"):
        Partition(request(declared, features=["x"]), "g", declared)


def test_ids_that_cannot_be_are_known_before_the_charge(ledger, tmp_path):
    data = people()
    truths = {**data, "who": np.asarray(data["who"]) > 0}
    for wrong in (truths, {name: values for name, values in data.items() if name != "who"}):
        pq.write_table(pa.table(wrong), tmp_path / "rows.parquet")
        with pytest.raises(DataError, match="'who'"):
            publish(request(), tmp_path / "rows.parquet", ledger=ledger)
    assert spent(ledger) == 0


def test_a_floating_type_is_told_after_the_charge(ledger, tmp_path):
    """It may say that an id is missing: whole numbers are written as doubles then."""
    data = people()
    data["who"] = data["who"] / 2
    pq.write_table(pa.table(data), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"(?s)'who'.*pending"):
        publish(request(), tmp_path / "rows.parquet", ledger=ledger)
    assert spent(ledger) == 1


@pytest.mark.parametrize("engine", ["stream", "duckdb"])
@pytest.mark.parametrize("missing", ["", "  ", "NA", "null"])
def test_ids_of_a_text_file_that_say_they_are_missing(missing, engine, ledger, tmp_path):
    data = people()
    ids = [missing, *map(str, data["who"][1:].tolist())]
    lines = zip(*(data[name].tolist() for name in ("x", "g", "y")), ids, strict=True)
    text = "\n".join(["x,g,y,who", *(",".join(map(str, line)) for line in lines)])
    (tmp_path / "rows.csv").write_text(text + "\n")
    with pytest.raises(DataError, match="missing ids"):
        publish(request(), tmp_path / "rows.csv", ledger=ledger, engine=engine)


def test_another_column_of_ids_is_another_unit(ledger):
    """An id that every row has for itself would protect rows, at the price of people."""
    data = people()
    data["visit"] = np.arange(len(data["who"]))
    publish(request(), data, ledger=ledger)
    with pytest.raises(BudgetError, match="cannot be added up"):
        publish(request(schema(unit_column="visit")), data, ledger=ledger)


def test_missing_ids_leave_the_charge_pending(ledger):
    data = people()
    data["who"] = pa.array([None, *data["who"][1:].tolist()])
    with pytest.raises(DataError, match="missing ids") as caught:
        publish(request(), data, ledger=ledger)
    assert "stays pending" in str(caught.value)
    assert spent(ledger) == 1
    assert not any(str(one) in str(caught.value) for one in people()["who"])


def test_the_number_of_rows_decides_nothing_for_free(ledger):
    """More rows than 1/delta, and far fewer people: how many rows there are is private."""
    data = {name: np.tile(values, 3) for name, values in people().items()}
    rows = len(data["who"])
    delta = Fraction(1, 2 * 301)
    assert delta * rows > 1
    asked = request(delta=delta)
    ledger.set_cap("people", Fraction(50), Fraction(1, 10))
    assert publish(asked, data, ledger=ledger).release.n == 301
    few = {name: values[:1] for name, values in people().items()}
    with pytest.raises(NoisewiseError):  # one person is too few for nothing but the default delta
        publish(request(delta="1"), few, ledger=ledger)


# ---------------------------------------------------------------------------------------------
# No id gets out


def everything_under(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def forms_of(number):
    """The ways in which an id could be written down."""
    return [str(number).encode(), int(number).to_bytes(8, "little"), int(number).to_bytes(8, "big")]


def assert_nowhere(contents, number=PLANTED):
    for path, octets in contents.items():
        for form in forms_of(number):
            assert form not in octets, f"an id is in {path.name}"


def test_no_id_is_written(ledger, tmp_path, caplog, capfd, monkeypatch):
    written = tmp_path / "temporary"
    written.mkdir()
    monkeypatch.setenv("TMPDIR", str(written))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("noisewise.holder.rows.units._MEMORY", 0)
    release = publish(request(), people(), ledger=ledger, out=tmp_path / "r.json").release
    posterior = nw.fit(release, chains=2, draws=100, seed=1)
    posterior.save(tmp_path / "p.nc")
    contents = everything_under(tmp_path)
    assert len(contents) >= 3
    assert_nowhere(contents)
    said = capfd.readouterr()
    assert str(PLANTED) not in said.out + said.err + caplog.text + repr(release)


def test_the_hunt_would_find_one(tmp_path):
    (tmp_path / "leak.bin").write_bytes(b"..." + int(PLANTED).to_bytes(8, "little"))
    with pytest.raises(AssertionError, match=r"leak\.bin"):
        assert_nowhere(everything_under(tmp_path))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_no_id_is_left_by_a_killed_process(tmp_path):
    """The file of shelves is in use when the process dies; nothing of it is left by name."""
    data, written = tmp_path / "rows.parquet", tmp_path / "temporary"
    written.mkdir()
    pq.write_table(pa.table(people(3000)), data)
    code = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from noisewise.core.design import Box, Design
        from noisewise.core.schema import Number, Schema
        from noisewise.core.statistics import SecondMoments
        from noisewise.holder.engines import open_source
        from noisewise.holder.rows import units
        from noisewise.holder.rows.sums import SumPlan

        units._MEMORY = 0
        write = units.Shelves._write

        def pausing(self):
            write(self)
            self._file.flush()
            Path({str(tmp_path / "spilled")!r}).touch()
            time.sleep(60)

        units.Shelves._write = pausing
        design = Design(Schema("d", {{"x": Number(0, 1), "y": Number(0, 1)}}, unit_column="who"),
                        ("x",), "y")
        open_source({str(data)!r}).sums(SumPlan(design, Box(), (SecondMoments(design),)))
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(written)}
    )
    try:
        end = time.monotonic() + 60
        while not (tmp_path / "spilled").exists() and time.monotonic() < end:
            assert process.poll() is None
            time.sleep(0.05)
        assert (tmp_path / "spilled").exists()
    finally:
        process.kill()
        process.wait()
    assert_nowhere(everything_under(written))
    assert everything_under(written) == {}


# ---------------------------------------------------------------------------------------------
# The audit


def broken(monkeypatch):
    """Rows that are added up where they should be averaged."""
    averages = units.Shelves.averages

    def summed(self, cut_off):
        for means, rows in averages(self, cut_off):
            yield np.clip(means * rows, -(2**26), 2**26), rows

    monkeypatch.setattr(units.Shelves, "averages", summed)
    monkeypatch.setattr(
        "noisewise.holder.rows.values.RowGrid.round_block",
        lambda self, centred, out: np.floor(np.stack(centred) * self.columns[0].scale, out=out),
    )


@pytest.mark.parametrize(
    "words", [pytest.param({}, marks=pytest.mark.long), {"delta": "1e-3", "rounds": 1}]
)
def test_the_audit_passes_means(words):
    found = audit_release(request(epsilon=2, **words), runs=1000, confidence=0.9999)
    assert found.passed
    assert found.pair.attained > 0.9
    assert len(found.pair.a["who"]) > len(set(found.pair.a["who"]))


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_the_pairs_of_audits_are_people(neighbours):
    """Two data sets differ in one person with several rows, by most of what is allowed."""
    declared = schema(neighbours)
    draws = {"target": "y", "features": ["x", "g"], "epsilon": 1, "noise_sd": "0.5"}
    for asked in (
        request(declared, epsilon=2, delta="1e-3", rounds=3),
        request(declared, epsilon=2, smallest_eigenvalue="0.2"),
        make_regression_sample_request(declared, **draws),
    ):
        pair = challenge_of(asked).pair
        # In rounds the pair is looked for in coordinates that are drawn anew: .97, sd .02.
        assert 0.6 < pair.attained < 1 + 1e-9
        assert len(pair.a["who"]) == len(set(pair.a["who"])) + 2


def test_the_audit_catches_rows_that_are_added_up(monkeypatch):
    broken(monkeypatch)
    found = audit_release(request(epsilon=2), runs=1000, confidence=0.9999)
    assert not found.passed


def test_sums_are_not_shown():
    sums = nw.holder.engines.open_source(people()).sums(request().plan())
    assert isinstance(sums, Sums)
    assert repr(sums) == "Sums()"


# ---------------------------------------------------------------------------------------------
# The command line, the estimator


def test_the_command_line_speaks_of_people(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(words):
        monkeypatch.setattr(sys, "argv", ["noisewise", *words])
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0
        return 0

    pq.write_table(pa.table(people()), "rows.parquet")
    assert run(["schema", "new", "rows.parquet", "--dataset", "people", "--unit", "who"]) == 0
    made = Path("schema.yaml").read_text()
    assert "unit: {column: who}" in made
    assert "who:" not in made
    assert run(["schema", "new", "rows.parquet", "--out", "x.yaml", "--unit", "nobody"]) != 0
    declared = schema().to_dict()
    Path("schema.yaml").write_text(yaml.safe_dump(declared))
    capsys.readouterr()
    assert run(["schema", "check", "schema.yaml", "--data", "rows.parquet"]) == 0
    said = capsys.readouterr().out
    assert "all rows with one 'who' averaged into one" in said
    assert "It has 301 people" in said
    with Ledger("budget.db") as opened:
        opened.set_cap("people", Fraction(1))
    release = "release --data rows.parquet --schema schema.yaml --target y --features x,g"
    words = [*release.split(), "--epsilon", "1", "--ledger", "budget.db", "--out", "r.json"]
    assert run([*words, "--dry-run"]) == 0
    assert "one person, averaged over all their rows" in capsys.readouterr().out
    assert run(words) == 0
    fit = ["fit", "r.json", "--chains", "1", "--draws", "50", "--seed", "1", "--out", "p.nc"]
    assert run(fit) == 0
    assert "Release of 301 people" in capsys.readouterr().out
    assert run(["report", "p.nc", "--out", "report.html"]) == 0
    assert "any number of rows, averaged into one" in Path("report.html").read_text()


def test_people_are_counted_on_shelves_too(tmp_path, monkeypatch):
    monkeypatch.setattr("noisewise.holder.rows.units._MEMORY", 0)
    monkeypatch.setattr("noisewise.holder.engines.batches._MAX_BATCH_ROWS", 50)
    monkeypatch.setattr("noisewise.holder.engines.batches._MIN_BATCH_ROWS", 50)
    pq.write_table(pa.table(people()), tmp_path / "rows.parquet")
    assert check_data(schema(), tmp_path / "rows.parquet") == 301


def test_an_estimator_takes_ids():
    data = people()
    X = np.column_stack([data["x"], data["g"] == "b"])
    model = PrivateBayesianRegressor(
        epsilon=1, bounds=[(-3, 3), (0, 1)], y_bounds=(-4, 4), chains=1, draws=50, random_state=1
    )
    model.fit(X, data["y"], units=data["who"])
    assert model.release_.n == 301
    assert model.release_.schema.unit == "replace_one/all rows by person id"
    assert model.fit(X, data["y"]).release_.n == len(data["who"])


def test_the_same_people_as_two_batches_are_recognised(ledger):
    """The fingerprint of a batch is of means, whatever the order of the rows."""
    data = people()
    publish(request(batch="one", series="visits"), data, ledger=ledger)
    order = np.random.default_rng(1).permutation(len(data["who"]))
    again = {name: values[order] for name, values in data.items()}
    with pytest.raises(NoisewiseError, match="batch"):
        publish(request(batch="two", series="visits"), again, ledger=ledger)
    publish(request(batch="three", series="visits"), people(seed=6), ledger=ledger)
    assert spent(ledger) == 1  # nobody is in two batches


def test_the_rehearsal_counts_people(tmp_path):
    """What a release would ask of n, it asks of people."""
    pq.write_table(pa.table(people()), tmp_path / "rows.parquet")
    declared = schema()
    assert check_data(declared.restricted_to(("x", "y")), tmp_path / "rows.parquet") == 301


def test_duckdb_sorts_in_a_folder_of_its_own(tmp_path, monkeypatch):
    """Rows and ids are in it where memory doesn't hold what is sorted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with duckdb_engine._private_instance() as connection:
        [(folder,)] = connection.execute("SELECT current_setting('temp_directory')").fetchall()
        assert Path(folder).parent == tmp_path
        assert Path(folder).stat().st_mode & 0o077 == 0
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------
# Which spellings are one id


@pytest.mark.parametrize(
    ("number", "spellings"),
    [
        ("7", ["7", "007", "+7", "7.", "7.000", " 7", "7\t", "\t +07.0 "]),
        ("0", ["0", "-0", "+0", "000", "0.0", "-00.00"]),
        ("-12", ["-12", "-012", " -12.0"]),
        ("1" + "0" * 200, ["1" + "0" * 200, "01" + "0" * 200]),
    ],
)
def test_a_whole_number_has_one_spelling(number, spellings):
    assert {units.as_integer(text) for text in spellings} == {number}


@pytest.mark.parametrize(
    "text",
    [
        "7e0",
        "7.5",
        "7,0",
        "1 000",
        "--7",
        "+-7",
        "7-",
        ".0",
        "0x7",
        "٧",
        "７",
        "7\n",
        "",
        " ",
        "+",
        "7_0",
        "7.0.0",
        "nan",
        "\u20037",
        "7\x00",
    ],
)
def test_what_is_no_number_stays_as_it_is(text):
    assert units.as_integer(text) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [("Ab ", "aB"), ("É", "e\u0301"), ("Straße", "STRASSE"), ("\u2003x\n", "X"), ("ﬀ", "FF")],
)
def test_spellings_that_fold(one, other):
    assert one != other
    assert units.folded(one) == units.folded(other)


def test_what_folding_leaves_apart():
    texts = ["a b", "ab", "é", "e", "1", "١", "o", "0", "l", "i", "ı", "a-b", "a\u2010b"]
    assert len({units.folded(text) for text in texts}) == len(texts)


def test_folding_twice_is_folding_once():
    """The property of Unicode's tables that Spark's way of bringing rows together rests on.

    Folding goes through a text letter by letter, but for the order of marks. So it is enough that
    no letter of what is folded is folded further, and that none becomes white space.
    """
    for point in range(sys.maxunicode + 1):
        letter = chr(point)
        inside = unicodedata.normalize("NFD", unicodedata.normalize("NFD", letter).casefold())
        assert inside.casefold() == inside, hex(point)
        if not letter.isspace():
            assert not any(one.isspace() for one in inside), hex(point)
        assert units.folded(units.folded(letter)) == units.folded(letter), hex(point)


ALPHABET = "7 0+-.\tAaÉe\u0301ßẞσΣς\u0345ιİıǅ\u1e9b\u0323\u00a0\u2003x\n"


@given(st.lists(st.text(alphabet=ALPHABET, max_size=7) | st.binary(max_size=6), max_size=30))
@settings(max_examples=300, deadline=None)
def test_few_ids_go_through_python_and_all_are_read_alike(texts):
    """What patterns leave out is what the functions leave as it is; bytes may be no text at all."""
    octets = [one if isinstance(one, bytes) else one.encode() for one in texts]
    array = pa.array([*octets, None], type=pa.large_binary())
    for integer in (False, True):
        for fold in (False, True):
            expected = [one.decode("utf-8", "surrogateescape") for one in octets]
            expected = [units.folded(one) if fold else one for one in expected]
            expected = [units.as_integer(one) if integer else one for one in expected]
            found = units.in_one_spelling(array, integer=integer, fold=fold)
            again = units.in_one_spelling(found, integer=integer, fold=fold)
            assert found.to_pylist() == again.to_pylist()
            assert found.to_pylist()[:-1] == [
                one.encode("utf-8", "surrogateescape") for one in expected
            ]
            part = units.in_one_spelling(array.slice(2, 5), integer=integer, fold=fold)
            assert part.to_pylist() == found.to_pylist()[2:7]


def test_ids_that_are_blank_are_missing_where_blanks_are_left_out(ledger):
    data = people()
    data["who"] = np.array(["   ", *map(str, data["who"][1:])], dtype=object)
    assert publish(request(), data, ledger=ledger).release.n == 302
    data["who"][1] = "\u2003"
    ledger.set_cap("others", 1)
    folded = Schema("others", COLUMNS, unit_column="who", unit_fold=True)
    with pytest.raises(DataError, match="missing ids"):
        publish(request(folded), data, ledger=ledger)


def test_a_very_long_number_is_refused_in_no_time(ledger):
    data = people()
    data["who"] = np.array(["0" * 3_000_000 + "x", *map(str, data["who"][1:])], dtype=object)
    start = time.process_time()
    with pytest.raises(DataError, match="more than 255 bytes"):
        publish(request(schema(unit_type="integer")), data, ledger=ledger)
    assert time.process_time() - start < 20


def spelled(data):
    """Every third row has its id in another spelling."""
    ways = (str, "0{}".format, "+{}.0".format)
    data["who"] = np.array([ways[i % 3](one) for i, one in enumerate(data["who"])], dtype=object)
    return data


def test_the_rehearsal_tells_the_holder_how_many_ids_are_nearly_alike(
    tmp_path, capsys, monkeypatch
):
    data = spelled(people())
    data["who"][0] = " " + data["who"][1]
    lines = zip(*(data[name] for name in ("x", "g", "y", "who")), strict=True)
    rows = "\n".join(",".join(map(str, line)) for line in lines)
    (tmp_path / "rows.csv").write_text(f"x,g,y,who\n{rows}\n")
    numbers = len(set(data["who"])), len({int(float(one)) for one in data["who"]})
    found = {}
    for name, rule in {"as it is": {}, "integer": {"unit_type": "integer"}}.items():
        declared = schema("add_remove_one", **rule)
        n = check_data(declared, tmp_path / "rows.csv")
        found[name] = n, merged_ids(declared, tmp_path / "rows.csv", n)
    plain, known = found["as it is"], found["integer"]
    assert plain[0] == numbers[0]
    assert plain[1]["type: integer"] == numbers[0] - numbers[1] > 300
    assert plain[1]["fold: true"] == numbers[0] - len({one.strip() for one in data["who"]})
    assert plain[1]["type: integer and fold: true"] == numbers[0] - numbers[1]
    assert known == (numbers[1], {})
    # With an id that is blank, folding is no rule for these data, and the other one is told still.
    pq.write_table(pa.table({**data, "who": ["  ", *data["who"][1:]]}), tmp_path / "rows.parquet")
    n = check_data(schema("add_remove_one"), tmp_path / "rows.parquet")
    found = merged_ids(schema("add_remove_one"), tmp_path / "rows.parquet", n)
    assert list(found) == ["type: integer"]

    Path(tmp_path / "s.yaml").write_text(yaml.safe_dump(schema("add_remove_one").to_dict()))
    words = ["schema", "check", str(tmp_path / "s.yaml"), "--data", str(tmp_path / "rows.csv")]
    monkeypatch.setattr(sys, "argv", ["noisewise", *words])
    with pytest.raises(SystemExit, match="0"):
        main()
    said = capsys.readouterr().out
    assert "PRIVATE" in said
    assert f"'type: integer' {numbers[0] - numbers[1]:,}" in said
    assert not any(str(int(float(one))) in said for one in data["who"])


# ---------------------------------------------------------------------------------------------
# Ids as words

TEXTS = [
    "a", "a\0", "a\x01", "a\0\x01", "\0", "\x01", "\0\0", "b", "ab", "ba", "é", "e\u0301",
    *("x" * length for length in (7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 254, 255)),
    "x" * 127 + "\0", "y" * 255, "x" * 254 + "y",
]  # fmt: skip


def array_of(texts):
    return pa.array([text.encode() for text in texts], type=pa.large_binary())


def words_of(texts, start=b""):
    return units.words_of(array_of(texts), start)


@pytest.mark.parametrize("start", [b"", b"x", b"a\0", b"xxxxxxx", b"\x01", b"\x02"])
def test_words_are_equal_just_where_ids_are(start):
    assert len(set(TEXTS)) == len(TEXTS)
    words = words_of(TEXTS * 2, start)
    assert words.shape[1] == 32
    assert len(set(map(bytes, words))) == len(TEXTS)
    hashed = grouping.hashes(words)
    assert len(set(hashed.tolist())) == len(TEXTS)
    # A block of short ids has fewer words, and zeros in the place of the others are no difference.
    for text, those in zip(TEXTS, words, strict=False):
        own = words_of([text], start)
        assert (np.append(own, np.zeros(32 - own.size, dtype=np.uint64)) == those).all()
        assert grouping.hashes(own)[0] == hashed[TEXTS.index(text)]
        left_out = len(start) if text.encode().startswith(start) else 0
        assert grouping.hashes(own)[0] & 63 == (len(text.encode()) - left_out) // 8 + 1


@pytest.mark.parametrize(
    ("texts", "start"),
    [
        (["person 1", "person 22"], b"person "),
        (["person", "person"], b"person"),
        (["a", "b"], b""),
        (["ab", "a"], b"a"),
        (["", "a"], b""),
        (["x" * 9, "x" * 9 + "y"], b"x" * 7),
    ],
)
def test_what_all_texts_begin_with(texts, start):
    assert units.start_of(array_of(["other", *texts, "other"]).slice(1, len(texts))) == start


def test_the_first_rows_decide_what_is_left_out_and_no_more():
    """Ids that begin otherwise, or end where the others go on, are told apart all the same."""
    texts = ["person 1", "person 2", "person ", "person", "1", "2", "\x01", "person person 1"]
    shelves = units.Shelves(0)
    for block in (texts[:2], texts, texts[::-1]):
        shelves.add(array_of(block), np.empty((0, len(block)), dtype=np.int32))
    assert shelves._start == b"person "
    found = [one for _, rows in shelves.averages(np.empty(0, dtype=bool)) for one in rows]
    assert sorted(found) == [2] * 6 + [3] * 2


def test_an_id_that_is_a_whole_page_is_refused(ledger):
    data = people()
    data["who"] = np.array([*map(str, data["who"][1:]), "x" * 256], dtype=object)
    with pytest.raises(DataError, match=r"(?s)more than 255 bytes.*pending") as caught:
        publish(request(), data, ledger=ledger)
    assert "xxx" not in str(caught.value)


def test_a_slice_of_ids_has_its_own_words():
    assert (units.words_of(array_of(TEXTS).slice(3, 6)) == words_of(TEXTS[3:9])).all()


@pytest.mark.parametrize("shelves", ["few", "file"])
def test_ids_that_share_a_hash_are_told_apart(monkeypatch, shelves):
    """As somebody could choose them who knows the hash: it decides nothing but the speed."""
    data = people(100)
    data["who"] = np.array([f"somebody with the number {one}" for one in data["who"]])
    expected = nw.holder.engines.open_source(data).sums(request().plan())
    assert expected.n == 101
    hashes = grouping.hashes
    # All but how many words there are, which its last bits say.
    monkeypatch.setattr(grouping, "hashes", lambda words: hashes(words) & np.uint64(63))
    if shelves == "file":
        monkeypatch.setattr(units, "_MEMORY", 0)
    assert nw.holder.engines.open_source(data).sums(request().plan()) == expected


def test_ids_of_any_length_may_come_in_any_order(monkeypatch):
    """Batches with short and with long ids, so that records of several widths meet."""
    monkeypatch.setattr("noisewise.holder.engines.batches._MAX_BATCH_ROWS", 30)
    monkeypatch.setattr("noisewise.holder.engines.batches._MIN_BATCH_ROWS", 30)
    data = people(100)
    numbers = nw.holder.engines.open_source(data).sums(request().plan())
    order = np.argsort(data["who"] % 3, kind="stable")  # the same person has the same length
    ids = [str(one) + "-" * (70 * (one % 3)) for one in data["who"].tolist()]
    text = {name: values[order] for name, values in data.items()}
    text["who"] = np.array(ids, dtype=object)[order]
    for memory in (1 << 30, 0):
        monkeypatch.setattr(units, "_MEMORY", memory)
        assert nw.holder.engines.open_source(text).sums(request().plan()) == numbers
