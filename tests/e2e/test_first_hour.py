"""Mistakes that a newcomer makes in the first hour, and what they are told.

Every message names the argument, what was given and what to do, in a line or two, without a
traceback, and with the exit code that scripts rely on.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from noisewise.cli import main as command
from noisewise.core.document import digest_of

from ..ledgers import ledger_for

SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  region: {type: category, levels: [north, south, east], reference: north}
  income: {type: number, lower: 0, upper: 200000}
"""
ROWS = "age,region,income\n" + "".join(
    f"{20 + i},{('north', 'south', 'east')[i % 3]},{30_000 + 500 * i}\n" for i in range(40)
)
RELEASE = (
    "release --data people.csv --schema schema.yaml --target income --features age,region "
    "--epsilon 1 --ledger budget.db --out release.json"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(ROWS)
    Path("schema.yaml").write_text(SCHEMA)
    ledger_for(tmp_path / "budget.db")
    return tmp_path


HINT = "First release of 'people'"  # it isn't a complaint


@pytest.fixture
def noisewise(monkeypatch, capsys):
    """Run the command as the shell would: exit code, what was printed, what was complained."""

    def run(line):
        monkeypatch.setattr(sys, "argv", ["noisewise", *line.split()])
        code = 0
        try:
            command.main()
        except SystemExit as stop:
            code = stop.code or 0
        printed = capsys.readouterr()
        complaints = [  # how to rehearse a first release is advice, no complaint
            one for one in printed.err.splitlines(keepends=True) if not one.startswith("First rel")
        ]
        return code, printed.out, "".join(complaints)

    return run


def complaint(outcome, code, *parts, lines=2):
    """The one message of a failed command; checks its form."""
    found, _, error = outcome
    assert found == code, error
    assert error.startswith("error: ")
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) <= lines, error
    # What is wrong is a line, and what became of the charge is another.
    assert max(map(len, error.splitlines())) < 500
    for part in parts:
        assert part in error, error
    return error


def schema(old, new):
    assert old in SCHEMA
    Path("schema.yaml").write_text(SCHEMA.replace(old, new))


def test_the_way_that_works(folder, noisewise):
    """Negative control: without a mistake nothing complains."""
    code, out, error = noisewise(RELEASE)
    assert (code, error) == (0, "")
    assert "Published release.json with epsilon = 1." in out


def test_a_template_without_bounds(folder, noisewise):
    assert noisewise("schema new people.csv --out fresh.yaml")[0] == 0
    outcome = noisewise("schema check fresh.yaml")
    told = (
        "'age'",
        "'region'",
        "'income'",
        "lower and upper bounds are missing",
        "without looking",
    )
    complaint(outcome, 3, "fresh.yaml", *told, lines=4)  # a line for each of three columns


def test_no_bounds(folder, noisewise):
    schema("lower: 18, upper: 90", "lower: 18")
    complaint(noisewise(RELEASE), 3, "schema.yaml", "'age'", "upper bound is missing", "write a")


def test_bounds_the_wrong_way_round(folder, noisewise):
    schema("lower: 18, upper: 90", "lower: 90, upper: 18")
    complaint(noisewise(RELEASE), 3, "'age'", "lower (90) must be below upper (18)", "swap them")


def test_bounds_that_are_words(folder, noisewise):
    schema("upper: 90", "upper: ninety")
    complaint(noisewise(RELEASE), 3, "'age'", "upper", "'ninety'")


@pytest.mark.parametrize(
    ("old", "new", "argument"),
    [("age,region", "agee,region", "features"), ("target income", "target incme", "target")],
)
def test_a_wrong_column_name(folder, noisewise, old, new, argument):
    wrong = "agee" if argument == "features" else "incme"
    outcome = noisewise(RELEASE.replace(old, new))
    complaint(outcome, 2, argument, repr(wrong), "declared are: age, region, income")


def test_a_column_that_the_data_lack(folder, noisewise):
    schema("age:", "years:")
    outcome = noisewise(RELEASE.replace("age,region", "years,region"))
    complaint(outcome, 4, "data", "'years'", "rename the column in the data, or correct the schema")


def test_a_level_that_is_not_declared(folder, noisewise):
    schema("north, south, east", "north, south")
    error = complaint(noisewise(RELEASE), 4, "'region'", "declare every level", "fill value")
    assert "east" not in error  # what the data say stays unsaid
    assert not Path("release.json").exists()


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("0", ("epsilon = 0", "from 1e-09")),
        ("-1", ("'-1'", "give a positive")),
        ("1000000", ("got 1e+06", "at most 100", "between 0.1 and 10")),
        ("lots", ("'lots'", "such as 0.1")),
        ("nan", ("'nan'", "such as 0.1")),
    ],
)
def test_an_epsilon_that_makes_no_sense(folder, noisewise, given, parts):
    outcome = noisewise(RELEASE.replace("--epsilon 1", f"--epsilon {given}"))
    complaint(outcome, 2, "epsilon", *parts)
    assert "spent epsilon 0" in noisewise("ledger show --ledger budget.db")[1]


def test_no_epsilon(folder, noisewise):
    complaint(noisewise(RELEASE.replace("--epsilon 1", "")), 2, "epsilon: not given", "such as")


@pytest.mark.parametrize(
    ("line", "code", "parts"),
    [
        (RELEASE.replace("people.csv", "nowhere.csv"), 2, ("data", "check the path")),
        (RELEASE.replace("schema.yaml", "nowhere.yaml"), 3, ("schema", "noisewise schema new")),
        ("fit nowhere.json", 6, ("nowhere.json", "No such file", "check the path")),
        ("show nowhere.nc", 6, ("nowhere.nc", "no such file", "`fit`")),
        ("report nowhere.nc", 6, ("nowhere.nc", "no such file", "`fit`")),
        ("schema new nowhere.csv --out new.yaml", 4, ("data", "check the path")),
        ("ledger show --ledger nowhere.db", 7, ("nowhere.db", "Check the path")),
        (RELEASE.replace("release.json", "no/folder.json"), 2, ("out", "no folder", "make it")),
    ],
)
def test_a_file_that_is_not_there(folder, noisewise, line, code, parts):
    complaint(noisewise(line), code, *parts)


def test_a_file_that_is_something_else(folder, noisewise):
    complaint(noisewise("fit people.csv"), 6, "people.csv", "not a Release")
    complaint(noisewise("report people.csv"), 6, "people.csv", "not a posterior", "`fit`")


@pytest.mark.parametrize("wanted", ["show", "report", "plot"])
def test_a_release_that_was_not_fitted(folder, noisewise, wanted):
    """Nothing is wrong with the file (that would be 6): it is the request that makes no sense."""
    noisewise(RELEASE)
    outcome = noisewise(f"{wanted} release.json")
    remedy = "run `noisewise fit release.json`"
    complaint(outcome, 2, "posterior: release.json is a Release", remedy, "give what it writes")


def test_a_release_from_a_newer_version(folder, noisewise):
    noisewise(RELEASE)
    document = json.loads(Path("release.json").read_text())
    document["format_version"] = 99
    document["digest"] = digest_of({k: v for k, v in document.items() if k != "digest"})
    Path("newer.json").write_text(json.dumps(document))
    complaint(noisewise("fit newer.json"), 6, "newer.json", "version 99", "update noisewise")


def test_a_release_that_was_edited(folder, noisewise):
    noisewise(RELEASE)
    text = Path("release.json").read_text()
    Path("edited.json").write_text(text.replace('"n":40', '"n":41').replace('"n": 40', '"n": 41'))
    complaint(noisewise("fit edited.json"), 6, "edited.json", "digest", "damaged or edited")


def test_two_releases_with_different_schemas(folder, noisewise):
    noisewise("ledger cap --ledger budget.db --dataset people --epsilon 5")
    noisewise(RELEASE)
    schema("upper: 90", "upper: 110")
    noisewise(RELEASE.replace("release.json", "other.json"))
    outcome = noisewise("fit release.json other.json")
    complaint(
        outcome, 6, "other.json", "'age'", "18 to 110 against 18 to 90", "must agree", "alone"
    )


def test_no_budget_yet(folder, noisewise):
    Path("budget.db").unlink()
    error = complaint(noisewise(RELEASE), 5, "There is no ledger", "'people'", "Nothing was read")
    remedy = error.strip().splitlines()[-1]  # works as pasted
    assert noisewise(remedy.removeprefix("  ").removeprefix("noisewise "))[0] == 0
    assert noisewise(RELEASE)[0] == 0


def test_a_budget_that_is_spent(folder, noisewise):
    noisewise("ledger cap --ledger budget.db --dataset people --epsilon 1")
    assert noisewise(RELEASE)[0] == 0
    outcome = noisewise(RELEASE + " --label again")
    error = complaint(
        outcome, 5, "'people'", "epsilon=1", "cap epsilon=1", "remaining epsilon=0",
        "Nothing was read", "Ask for less",
    )  # fmt: skip
    remedy = error.strip().splitlines()[-1]  # works as pasted
    assert noisewise(re.sub("^ *noisewise ", "", remedy))[0] == 0
    assert noisewise(RELEASE + " --label again")[0] == 0


def test_reports_that_cannot_be_written(folder, noisewise):
    noisewise(RELEASE)
    fit = "fit release.json --seed 1 --chains 2 --draws 200 --out post.nc"
    assert noisewise(fit)[0] == 0
    complaint(noisewise("report post.nc --out report.pdf"), 2, "out", "report.pdf", ".html")
    complaint(noisewise("report post.nc --out no/r.html"), 2, "out", "no folder", "make it")
    complaint(noisewise("report post.nc --level 95"), 2, "level", "95", "such as 0.95")
    code, out, error = noisewise("report post.nc --out report.html")
    assert (code, error) == (0, "")
    assert "Wrote report.html." in out


def test_arguments_are_explained(noisewise):
    """Typer and some versions of Click together lose the help of arguments."""
    _, out, _ = noisewise("fit --help")
    assert "Release files, or folders of them." in out
