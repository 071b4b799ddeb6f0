"""The command line as scripts rely on it: files, words, exit codes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from noisewise.cli.main import main
from noisewise.core.kinds import load_release

from ..ledgers import ledger_for

SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  region: {type: category, levels: [north, south, east], reference: north}
  income: {type: number, lower: 0, upper: 200000}
neighbours: replace_one
max_rows_per_unit: 1
missing: error
"""


class Shell:
    """Runs commands in a folder with a small data set, and keeps what they print."""

    def __init__(self, folder, capsys, monkeypatch):
        self.folder, self.capsys, self.monkeypatch = folder, capsys, monkeypatch

    def __call__(self, *words, code=0):
        self.monkeypatch.setattr(sys, "argv", ["noisewise", *map(str, words)])
        exit_code = 0
        try:
            main()
        except SystemExit as stop:
            exit_code = stop.code or 0
        captured = self.capsys.readouterr()
        self.out, self.err = captured.out, captured.err
        assert exit_code == code, self.out + self.err
        return self.out

    def other_rows(self):
        """Other people: the same rows would not be another batch of a series."""
        table = pq.read_table("people.parquet")
        pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), "people.parquet")

    def release(self, *words, code=0):
        return self(
            *("release", "--data", "people.parquet", "--schema", "schema.yaml"),
            *("--target", "income", "--features", "age,region", "--ledger", "budget.db"),
            *words,
            code=code,
        )


@pytest.fixture
def shell(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    table = pa.table(
        {
            "age": pa.array([20.0, 40.0, 95.0, 33.5] * 25),
            "region": pa.array(["north", "south", "east", "south"] * 25),
            "income": pa.array([1000, 50000, 30000, 250000] * 25),
        }
    )
    pq.write_table(table, "people.parquet")
    pa_csv.write_csv(table, "people.csv")
    with duckdb.connect("people.duckdb") as connection:
        connection.register("t", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM t")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    ledger_for(tmp_path / "budget.db")
    return Shell(tmp_path, capsys, monkeypatch)


def test_the_contract_end_to_end(shell):
    shell("schema", "new", "people.csv", "--out", "new.yaml")
    shell("schema", "check", "schema.yaml", "--data", "people.csv")
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "3")
    out = shell.release("--epsilon", "1", "--out", "release.json")
    assert "remaining 2" in out
    release = load_release("release.json")
    assert release.n == 100
    assert release.design.names == ("intercept", "age", "region[south]", "region[east]", "income")
    accounts = json.loads(shell("ledger", "show", "--ledger", "budget.db", "--json"))["datasets"]
    assert accounts[0]["dataset"] == "people"
    assert (accounts[0]["cap_epsilon"], accounts[0]["spent_epsilon"]) == (3.0, 1.0)
    assert accounts[0]["remaining_epsilon"] == 2.0
    assert len(accounts[0]["charges"]) == 1
    shown = shell("ledger", "show", "--ledger", "budget.db")
    assert "people" in shown
    assert "published" in shown


@pytest.mark.parametrize(
    "data",
    [
        ["people.csv"],
        ["people.parquet", "--engine", "duckdb"],
        ["people.csv", "--engine", "duckdb"],
        ["people.duckdb", "--table", "people"],
        ["people.duckdb", "--query", "SELECT * FROM people"],
    ],
)
def test_every_kind_of_source(shell, data):
    shell(
        *("release", "--schema", "schema.yaml", "--target", "income", "--features", "region, age"),
        *("--epsilon", "1", "--ledger", "budget.db", "--data", *data),
    )
    assert load_release("release.json").n == 100


def test_a_dry_run_reads_spends_and_writes_nothing(shell):
    out = shell.release("--epsilon", "0.5", "--delta", "1e-6", "--rounds", "1", "--dry-run")
    assert "sensitivity 4.12311" in out  # √((1 + 2 + 1)² + 1): two numbers, one category
    assert "gaussian" in out
    assert spent(shell) == 0
    assert not (shell.folder / "release.json").exists()
    assert "Verdict" not in out  # Gaussian noise in one round is nobody's default
    out = shell.release("--epsilon", "1", "--dry-run")
    assert "Verdict for epsilon = 1 with laplace" in out
    assert f"--epsilon 1 --n {pq.read_metadata('people.parquet').num_rows}" in out
    plan = json.loads(shell.release("--epsilon", "1", "--dry-run", "--json"))
    assert plan["measurements"][0]["entries"] == 13
    assert plan["budget"]["allowed"] is True


def monthly(*words):
    return ("--epsilon", "1", "--append", "series", "--disjoint", "--series", "monthly", *words)


def spent(shell):
    (account,) = json.loads(shell("ledger", "show", "--ledger", "budget.db", "--json"))["datasets"]
    return account["spent_epsilon"]


def cap(shell, epsilon):
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", epsilon)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_series_of_disjoint_batches(shell):
    out = shell.release(*monthly("--batch", "2026-01", "--dry-run"))
    assert "nobody is in two batches of this series" in out
    plan = json.loads(shell.release(*monthly("--batch", "2026-01", "--dry-run", "--json")))
    assert plan["budget"]["allowed"] is True
    assert not (shell.folder / "series").exists()
    for batch in ("2026-01", "2026-02", "2026-03"):
        shell.other_rows()
        shell.release(*monthly("--batch", batch))
    assert sorted(path.name for path in (shell.folder / "series").iterdir()) == [
        "2026-01.json",
        "2026-02.json",
        "2026-03.json",
    ]
    assert load_release("series/2026-02.json").label == "2026-02"
    accounts = json.loads(shell("ledger", "show", "--ledger", "budget.db", "--json"))["datasets"]
    assert accounts[0]["spent_epsilon"] == 1.0
    assert [one["batch"] for one in accounts[0]["charges"]] == ["2026-01", "2026-02", "2026-03"]
    assert {one["series"] for one in accounts[0]["charges"]} == {"monthly"}
    before = files(shell.folder / "series")
    out = shell.release(*monthly("--batch", "2026-03"))
    assert "no cost" in out
    assert "another --batch" in out
    assert "--label" not in out
    assert files(shell.folder / "series") == before


def test_two_series_of_the_same_people_add_up(shell):
    """The same rows by month and by week: whoever is in both loses both."""
    cap(shell, "1")
    shell.release(*monthly("--batch", "2026-09"))
    weekly = ("--epsilon", "1", "--append", "weeks", "--disjoint", "--series", "weekly")
    shell.release(*weekly, "--batch", "week-36", code=5)
    assert not (shell.folder / "weeks").exists()
    other = ("--data", "people.parquet", "--schema", "schema.yaml", "--ledger", "budget.db")
    features = ("--target", "income", "--features", "age")
    shell("release", *other, *features, *weekly, "--batch", "2026-09", code=5)
    assert spent(shell) == 1.0
    cap(shell, "2")
    shell.release(*weekly, "--batch", "week-36")
    shell.other_rows()
    shell.release(*weekly, "--batch", "week-37")
    shell.release(*monthly("--batch", "2026-10"))
    assert spent(shell) == 2.0


def test_a_series_is_known_by_its_name_wherever_its_folder_is(shell):
    cap(shell, "1")
    shell.release(*monthly("--batch", "2026-09"))
    (shell.folder / "series").rename(shell.folder / "moved")
    moved = ("--epsilon", "1", "--disjoint", "--append", "moved")
    shell.other_rows()
    shell.release(*moved, "--series", "monthly", "--batch", "2026-10")
    assert spent(shell) == 1.0
    # A slip of the name, of the folder, or of both never merges two series.
    before = files(shell.folder / "moved")
    shell.release(*moved, "--series", "mnothly", "--batch", "2026-11", code=2)
    assert "--series monthly" in shell.err
    shell.release(*monthly("--batch", "2026-11"), code=2)
    assert "holds none of its Releases" in " ".join(shell.err.split())
    shell.release(*monthly("--batch", "2026-11", "--dry-run"), code=2)
    shell.release(*moved[:-1], "new", "--series", "mnothly", "--batch", "2026-11", code=5)
    assert files(shell.folder / "moved") == before
    assert not (shell.folder / "series").exists()
    assert not (shell.folder / "new").exists()
    assert spent(shell) == 1.0
    # The remedy: an earlier batch, at no cost, and the series goes on in its new folder.
    assert "no cost" in shell.release(*monthly("--batch", "2026-10"))
    shell.other_rows()
    shell.release(*monthly("--batch", "2026-11"))
    assert spent(shell) == 1.0


def test_the_release_of_a_batch_is_not_replaced_by_another(shell):
    cap(shell, "9")
    for words in (monthly(), ("--epsilon", "1", "--append", "plain")):
        shell.release(*words, "--batch", "w37")
        folder = shell.folder / words[words.index("--append") + 1]
        before, cost = files(folder), spent(shell)
        for change in (("--epsilon", "2"), ("--label", "again"), ("--fourth-moments", "0.2")):
            for mode in ((), ("--dry-run",)):
                shell.release(*words, "--batch", "w37", *change, *mode, code=2)
                assert "another --batch" in " ".join(shell.err.split())
        assert files(folder) == before
        assert spent(shell) == cost
    # The same batch from before it was declared disjoint is another request, too.
    shell.release(*monthly("--batch", "w37", "--append", "plain"), code=2)
    # A file that was lost is written again, at no cost.
    (shell.folder / "series" / "w37.json").unlink()
    assert "no cost" in shell.release(*monthly("--batch", "w37"))


def test_a_series_that_is_not_declared_disjoint_adds_up(shell):
    cap(shell, "2")
    words = ("--epsilon", "1", "--append", "series")
    assert "its cost is added" in shell.release(*words, "--batch", "a", "--dry-run")
    shell.release(*words, "--batch", "a")
    assert "remaining 0" in shell.release(*words, "--batch", "b")
    shell.release(*words, "--batch", "c", code=5)


def test_mistakes_with_a_series(shell):
    shell.release("--epsilon", "1", "--append", "series", "--batch", "a")
    shell.release("--epsilon", "1", "--append", "series", code=2)
    shell.release("--epsilon", "1", "--disjoint", code=2)
    shell.release("--epsilon", "1", "--series", "s", code=2)
    shell.release("--epsilon", "1", "--append", "series", "--batch", "../a", code=2)
    shell.release("--epsilon", "1", "--append", "people.csv", "--batch", "a", code=2)
    other = ("--data", "people.csv", "--schema", "schema.yaml", "--ledger", "budget.db")
    words = ("--epsilon", "1", "--append", "series", "--batch", "b")
    shell.release(*words, "--disjoint", code=2)
    assert "--series monthly" in " ".join(shell.err.split())
    shell.release(*words, "--series", "s", code=2)
    assert "give both, or neither" in " ".join(shell.err.split())
    shell.release(*words, "--disjoint", "--series", " s", code=2)
    shell.release(*words, "--out", "x.json", code=2)
    assert "leave --out out" in " ".join(shell.err.split())
    assert not (shell.folder / "x.json").exists()
    shell("release", *other, "--target", "income", "--features", "age", *words, code=2)
    assert "another folder" in shell.err
    (shell.folder / "series" / "notes.json").write_text("{}")
    shell.release(*words, code=2)
    assert sorted(files(shell.folder / "series")) == ["a.json", "notes.json"]


def test_a_refused_series_leaves_no_folder(shell):
    shell.release(*monthly("--batch", "b", "--append", "deep/s2", "--data", "none.csv"), code=2)
    text = SCHEMA.replace("max_rows_per_unit: 1", "max_rows_per_unit: 3")
    assert text != SCHEMA
    (shell.folder / "schema.yaml").write_text(text)
    shell.release(*monthly("--batch", "b", "--append", "deep/s2"), code=2)
    assert "several batches" in " ".join(shell.err.split())
    assert not (shell.folder / "deep").exists()
    (shell.folder / "deep").mkdir()
    shell.release(*monthly("--batch", "b", "--append", "deep/s2"), code=2)
    assert list((shell.folder / "deep").iterdir()) == []


def test_the_ledger_shows_series_and_what_is_added(shell):
    cap(shell, "9")
    shell.release("--epsilon", "1", "--label", "whole")
    out = shell("ledger", "show", "--ledger", "budget.db")
    assert "series" not in out
    assert "batch" not in out
    shell.release(*monthly("--batch", "2026-09"))
    out = shell("ledger", "show", "--ledger", "budget.db")
    header = next(line for line in out.splitlines() if "charged" in line)
    assert header.index("series") < header.index("batch") < header.index("what")
    (row,) = [line for line in out.splitlines() if "monthly" in line]
    assert "2026-09" in row
    said = " ".join(out.split())
    assert "for every series those of its costliest batch" in said
    assert "without a series is not declared" not in said


def test_the_same_command_twice_costs_once(shell):
    shell.release("--epsilon", "1", "--out", "a.json")
    out = shell.release("--epsilon", "1", "--out", "b.json")
    assert "no cost" in out
    assert (shell.folder / "a.json").read_bytes() == (shell.folder / "b.json").read_bytes()


def test_the_budget_is_refused_with_the_remainder_and_the_remedy(shell):
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "1.5")
    shell.release("--epsilon", "1")
    shell.release("--epsilon", "0.6", "--out", "second.json", code=5)
    assert "0.5" in shell.err
    assert "noisewise ledger cap" in shell.err
    assert not (shell.folder / "second.json").exists()
    shell.release("--epsilon", "0.5", "--out", "second.json")
    shell.release("--epsilon", "0.1", "--dry-run", code=5)


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("dataset", "ledger", "said"),
    [
        ("people", "bugdet.db", "There is no ledger at"),
        ("People", "budget.db", "use the name 'people'"),
        ("\uff50eople", "budget.db", "use the name 'people'"),  # full width
        ("\u0440\u0435ople", "budget.db", "CYRILLIC SMALL LETTER"),
        ("poeple", "budget.db", "It holds 'people'"),
    ],
)
def test_a_slip_makes_no_budget(shell, dataset, ledger, said, dry):
    shell.release("--epsilon", "1", "--out", "first.json")
    (shell.folder / "schema.yaml").write_text(SCHEMA.replace("people", dataset))
    before = sorted(shell.folder.iterdir())
    shell.release("--epsilon", "1", "--ledger", ledger, *dry, code=5)
    message = shell.out + shell.err
    assert said in message
    assert "Nothing was read, charged or published" in message
    assert ("noisewise ledger cap" in message) == ("use the name" not in message)
    assert sorted(shell.folder.iterdir()) == before
    assert spent(shell) == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--epsilon", "-1"], 2, "epsilon"),
        (["--epsilon", "nan"], 2, "epsilon"),
        (["--epsilon", "1e400"], 2, "epsilon = 1e+400 is out of range"),
        (["--epsilon", "1", "--delta", "1e309"], 2, "delta = 1e+309 is out of range"),
        (["--epsilon", "1", "--delta", "1e-400", "--mechanism", "laplace"], 2, "delta = 1e-400"),
        (["--rho", "1e400"], 2, "rho = 1e+400 is out of range"),
        (["--epsilon", "1", "--mechanism", "magic"], 2, "mechanism"),
        (["--epsilon", "1", "--target", "wage"], 2, "wage"),
        (["--epsilon", "1", "--features", ""], 2, "features"),
        (["--epsilon", "1", "--features", "age\nregion"], 2, "features"),
        (["--epsilon", "1", "--out", "people.csv"], 2, "not a Release"),
        (["--epsilon", "1", "--engine", "abacus"], 2, "engine"),
        (["--epsilon", "1", "--data", "absent.csv"], 2, "absent.csv"),
        (["--epsilon", "1", "--data", "schema.yaml"], 2, "schema.yaml"),
        (["--epsilon", "1", "--schema", "absent.yaml"], 3, "absent.yaml"),
        (["--epsilon", "1", "--ledger", "people.csv"], 7, "ledger"),
        (["--epsilon", "1", "--out", "nowhere/r.json"], 2, "nowhere"),
        ([], 2, "epsilon"),
    ],
)
def test_mistakes_have_their_exit_code_and_cost_nothing(shell, words, code, message):
    shell.release(*words, code=code)
    assert message in shell.err
    assert "Traceback" not in shell.err
    assert spent(shell) == 0


def test_names_that_look_alike_are_one_budget(shell):
    (shell.folder / "budget.db").unlink()
    decomposed = "cafe\u0301"
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", decomposed, "--epsilon", "1")
    (shell.folder / "schema.yaml").write_text(SCHEMA.replace("people", decomposed))
    assert "remaining 0" in shell.release("--epsilon", "1")
    assert (
        len(json.loads(shell("ledger", "show", "--ledger", "budget.db", "--json"))["datasets"]) == 1
    )


def test_a_dry_run_looks_at_the_columns(shell):
    shell.release("--epsilon", "1", "--dry-run", "--data", "absent.csv", code=2)
    (shell.folder / "other.csv").write_text("a,b\n1,2\n")
    shell.release("--epsilon", "1", "--dry-run", "--data", "other.csv", code=4)
    shell.release("--epsilon", "1", "--dry-run", "--out", "schema.yaml", code=2)


def test_data_that_do_not_fit(shell):
    text = (shell.folder / "people.csv").read_text().replace("95", "canary", 1)
    (shell.folder / "bad.csv").write_text(text)
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "1")
    shell.release("--epsilon", "1", "--data", "bad.csv", code=4)
    assert "age" in shell.err
    assert "canary" not in shell.err
    assert "epsilon=1 stays pending" in shell.err
    shown = " ".join(shell("ledger", "show", "--ledger", "budget.db").split())
    assert "remaining 0." in shown
    assert "Pending: income ~ age + region, laplace (epsilon 1) of /" in shown
    assert "give the same command again: it completes at no further cost" in shown
    assert "schema check SCHEMA --data" in shown
    shell.release("--epsilon", "1", "--label", "another", code=5)  # the budget is spent
    shell.release("--epsilon", "1", code=2)  # the same request, with another file
    assert "it was charged for" in shell.err
    assert "bad.csv" in shell.err
    shell.release("--epsilon", "1", "--dry-run", code=2)
    assert "--same-data" in shell.err
    shell.release("--epsilon", "1", "--same-data")  # it is the repaired one
    assert "Pending" not in shell("ledger", "show", "--ledger", "budget.db")
    shell("schema", "check", "schema.yaml", "--data", "bad.csv", code=4)
    (shell.folder / "west.csv").write_text(text.replace("canary", "30").replace("south", "west"))
    shell("schema", "check", "schema.yaml", "--data", "west.csv", code=4)
    assert "west" not in shell.err.replace("west.csv", "")


def test_a_partition_by_a_public_column(shell):
    words = ("--features", "age", "--partition", "region", "--out", "parts")
    shell.release("--epsilon", "1", *words, code=2)
    assert "neighbours: add_remove_one" in shell.err
    private = SCHEMA.replace("replace_one", "add_remove_one")
    (shell.folder / "schema.yaml").write_text(private)
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "1")
    out = shell.release("--epsilon", "1", *words, "--dry-run")
    assert "each of the 3 levels of 'region'" in out
    assert "remaining 1 now and 0 after" in out
    assert not (shell.folder / "parts").exists()
    out = shell.release("--epsilon", "1", *words, "--purpose", "by region, for the yearbook")
    assert "3 levels of 'region', together the cost of one" in out
    charges = json.loads(shell("ledger", "show", "--ledger", "budget.db", "--json"))["datasets"][0]
    assert {one["purpose"] for one in charges["charges"]} == {"by region, for the yearbook"}
    assert "spent epsilon 1, remaining 0" in out
    names = sorted(path.name for path in (shell.folder / "parts").iterdir())
    assert names == ["001-north.json", "002-south.json", "003-east.json"]
    again = json.loads(shell.release("--epsilon", "1", *words, "--json"))
    assert again["repeated"] is True
    assert again["releases"]["east"] == str(Path("parts") / "003-east.json")
    series = ("--append", "s", "--batch", "a", "--disjoint", "--series", "x")
    shell.release("--epsilon", "1", *words[:4], *series, code=2)
    shell.release("--epsilon", "1", *words, "--label", "new", code=5)


def test_the_same_rows_under_another_name_are_no_batch(shell):
    words = ("--append", "s", "--disjoint", "--series", "monthly", "--epsilon", "1")
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "1")
    shell.release(*words, "--batch", "2026-09")
    shell.release(*words, "--batch", "2026-10", code=4)
    assert "'2026-09'" in shell.err
    assert "stays pending" in shell.err


def test_before_the_first_release_there_is_a_rehearsal(shell):
    hint = "schema check SCHEMA --data people.parquet"
    shell.release("--epsilon", "1", "--dry-run")
    assert hint in shell.err
    shell.release("--epsilon", "1")
    assert hint in shell.err
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "2")
    shell.release("--epsilon", "1", "--label", "second")
    assert hint not in shell.err


def test_the_rehearsal_reads_what_the_release_would(shell):
    source = ("--data", "people.duckdb", "--query")
    check = ("schema", "check", "schema.yaml", *source)
    assert "100 rows" in shell(*check, "SELECT * FROM people")
    shell(*check, "SELECT NULL::DOUBLE AS age, region, income FROM people", code=4)
    assert "age" in shell.err
    shell(*check, "SELECT * FROM people WHERE false", code=2)
    assert "--query-attested-by NAME" in shell.err
    shell(*check, "SELECT * FROM people WHERE false", "--query-attested-by", "Ann", code=4)
    assert "no rows" in shell.err
    assert "spent epsilon 0" in shell("ledger", "show", "--ledger", "budget.db")


def test_a_new_schema_shows_names_and_types_only(shell):
    for name, more in [
        ("people.csv", []),
        ("people.parquet", []),
        ("people.duckdb", ["--table", "people"]),
    ]:
        shell("schema", "new", name, "--out", "new.yaml", "--force", *more)
        text = (shell.folder / "new.yaml").read_text()
        assert re.search(r"age: \{type: number, lower: , upper: \}", text)
        assert re.search(r"region: \{type: category, levels: \[\], reference: \}", text)
        for secret in ("north", "south", "95", "250000", "1000"):
            assert secret not in text
        # An unfilled schema is refused with the remedy.
        shell("schema", "check", "new.yaml", code=3)
        assert "known without looking" in shell.err
    shell("schema", "new", "people.csv", "--out", "new.yaml", code=2)
    assert "--force" in shell.err


@pytest.mark.parametrize("words", [[], ["schema"], ["release"], ["ledger"], ["ledger", "cap"]])
def test_help_teaches(shell, words):
    out = shell(*words, "--help")
    assert "Usage" in out
    if words and words[-1] in ("release", "cap"):
        assert "Example" in out


def test_version(shell):
    assert re.fullmatch(r"noisewise \d+\.\d+\.\d+\n", shell("--version"))


def test_the_smallest_eigenvalue_has_its_share(shell):
    words = ("--epsilon", "1", "--smallest-eigenvalue")
    out = shell.release(*words, "0.25", "--dry-run")
    assert "smallest_eigenvalue: 1 sums on unit scale, sensitivity 3, discrete_laplace" in out
    shell.release(*words, "0.25", "--out", "r.json")
    release = load_release("r.json")
    assert [m.statistic for m in release.measurements] == ["second_moments", "smallest_eigenvalue"]
    shell.release(*words, "1.5", "--out", "other.json", code=2)
    assert "smallest_eigenvalue" in shell.err
