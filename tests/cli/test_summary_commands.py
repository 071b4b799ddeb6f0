"""Block summaries from the command line: dry run, budget, repetition, errors, fit and show."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from noisewise.core.kinds import load_release
from tests.cli.test_holder_commands import Shell as HolderShell

from ..ledgers import ledger_for

SCHEMA = """\
dataset: people
columns:
  x1: {type: number, unbounded: true}
  hours: {type: number, unbounded: true, unit: 10.0}
  region: {type: category, levels: [north, south], reference: north}
  y: {type: number, unbounded: true}
neighbours: replace_one
max_rows_per_unit: 1
missing: error
"""


class Shell(HolderShell):
    def summary(self, *words, code=0, data="people.parquet", features="x1,hours,region"):
        return self(
            *("release-summary", "--data", data, "--schema", "schema.yaml", "--target", "y"),
            *("--features", features, "--ledger", "budget.db"),
            *words,
            code=code,
        )


@pytest.fixture
def shell(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    rng = np.random.default_rng(1)
    n = 9_000
    x, hours = rng.normal(size=n), rng.normal(40, 10, n)
    y = 1 + 2 * x + 0.1 * hours + rng.normal(size=n)
    region = rng.choice(["north", "south"], n)
    table = pa.table({"x1": x, "hours": hours, "region": region, "y": y})
    pq.write_table(table, "people.parquet")
    pa_csv.write_csv(table, "people.csv")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    ledger_for(tmp_path / "budget.db")
    return Shell(tmp_path, capsys, monkeypatch)


ASK = ("--ask", "x1 < 2", "--ask", "hours < 0", "--epsilon", "1")
MEDIANS = ("--coefficients", "x1", "--epsilon", "2")


def test_from_a_dry_run_to_an_answer(shell):
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "4")
    out = shell.summary(*ASK, "--dry-run")
    assert "nothing is read, spent or written" in out
    assert "sign: x1 < 2, hours < 0" in out
    assert "94 blocks, about 95 rows each, 30 partition(s)" in out
    assert "Expected error of a probability: 0." in out
    assert "Coefficients: intercept, x1, hours, region[south]" in out
    assert not (shell.folder / "summary.json").exists()

    assert "Published summary.json with epsilon = 1" in shell.summary(*ASK)
    release = load_release("summary.json")
    assert release.n == 9_000
    assert "spent epsilon 1, remaining 3" in shell.out

    assert "at no cost" in shell.summary(*ASK, "--out", "again.json")
    assert load_release("again.json") == release

    shell("show", "summary.json")
    assert "hours < 0" in shell.out
    fitted = shell("fit", "summary.json")
    assert "x1 < 2" in fitted
    assert "Wrote post.nc." in fitted
    assert shell("show", "post.nc") in fitted
    answers = json.loads(shell("show", "summary.json", "--json"))["answers"]
    assert {answer["statement"] for answer in answers} == {"x1 < 2", "hours < 0"}


@pytest.mark.parametrize("mechanism", ["mean", "location_scale"])
def test_location_and_scale_answer_everything(shell, mechanism):
    shell.summary(*MEDIANS, *(() if mechanism == "mean" else ("--mechanism", mechanism)))
    assert "Rests on: " in shell("show", "summary.json")
    document = json.loads(shell("show", "summary.json", "--json", "--level", "0.9"))
    (answer,) = document["answers"]
    assert document["rests_on"]
    assert answer["coefficient"] == "x1"
    middle = answer["mean" if mechanism == "mean" else "median"]
    assert 1.5 < middle < 2.5  # ±0.011, and some noise
    assert answer["90%_low"] < middle < answer["90%_high"]
    from noisewise import fit

    posterior = fit(load_release("summary.json"))
    low, high = posterior.interval("x1", 0.9)
    assert (low, high) == pytest.approx((answer["90%_low"], answer["90%_high"]))
    assert posterior.prob("x1", "<", 0) < 0.5


def test_fit_reads_a_summary_by_itself_and_as_it_is(shell):
    from noisewise import fit
    from noisewise.core.errors import RequestError

    shell.summary(*ASK)
    release = load_release("summary.json")
    assert fit(release) == fit([release])
    with pytest.raises(RequestError, match="by itself"):
        fit([release, release])
    for words in ({"target": "y"}, {"features": ["x1"]}, {"prior": "flat"}):
        with pytest.raises(RequestError, match=f"{next(iter(words))}: a block summary is read as"):
            fit(release, **words)


@pytest.mark.parametrize(
    "words",
    [
        (*ASK, "--mechanism", "stouffer", "--clip", "1.2"),
        (*ASK, "--mechanism", "fisher", "--p-star", "0.1"),
        (*ASK, "--mechanism", "rescaled_normal", "--posterior", "g_prior"),
        (*ASK, "--posterior", "g_prior", "--g", "500", "--blocks", "80", "--partitions", "3"),
        (*MEDIANS, "--base", "x1=0:10"),
        (*MEDIANS, "--quantiles", "0.05,0.95", "--bounds", "x1=-9:9"),
    ],
)
def test_every_option_reaches_the_release(shell, words):
    plan = json.loads(shell.summary(*words, "--dry-run", "--json"))
    assert plan["budget"]["allowed"]
    outcome = json.loads(shell.summary(*words, "--json"))
    assert not outcome["repeated"]
    release = load_release(outcome["release"])
    assert release.mechanism.to_json() == plan["mechanism"]
    assert release.posterior.to_json() == plan["posterior"]
    assert (release.blocks, release.partitions) == (plan["blocks"], plan["partitions"])
    assert release.noise.to_json() == plan["noise"]
    shell("show", outcome["release"])


ERRORS = {
    "no epsilon": (("--ask", "x1 < 0"), 2, "epsilon: not given"),
    "no question": (("--epsilon", "1"), 2, "questions: none given"),
    "nonsense": (("--ask", "x1", "--epsilon", "1"), 2, "not a question"),
    "coefficient": (("--ask", "x9 < 0", "--epsilon", "1"), 2, "intercept, x1, hours"),
    "bounds": ((*MEDIANS, "--quantiles", "0.5", "--bounds", "x1=1"), 2, "NAME=NUMBER:NUMBER"),
    "twice": ((*MEDIANS, "--base", "x1=1:1", "--base", "x1=2:1"), 2, "given twice"),
    "quantiles": ((*MEDIANS, "--quantiles", "half", "--bounds", "x1=0:1"), 2, "numbers separated"),
    "g": ((*ASK, "--g", "3"), 2, "flat posterior has none"),
    "posterior": ((*ASK, "--posterior", "horseshoe"), 2, "use flat or g_prior"),
    "rows": ((*ASK, "--rows", "8999"), 4, "8,999 were declared and the data have 9,000"),
    "budget": ((*ASK[:4], "--epsilon", "50"), 5, "does not fit into the privacy budget"),
    "hopeless": (("--coefficients", "x1,hours", "--epsilon", "0.1"), 2, "too little for private"),
}


@pytest.mark.parametrize(("words", "code", "reason"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_to_do_and_cost_nothing(shell, words, code, reason):
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "4")
    shell.summary(*words, code=code)
    assert reason in shell.out + shell.err
    assert not (shell.folder / "summary.json").exists()
    assert "spent epsilon 0," in shell("ledger", "show", "--ledger", "budget.db")


def test_a_csv_file_needs_the_number_of_rows(shell):
    shell.summary(*ASK, data="people.csv", code=2)
    assert "rows: not given" in shell.err
    shell.summary(*ASK, "--rows", "9000", data="people.csv")


def test_a_private_number_of_rows(shell):
    text = SCHEMA.replace("replace_one", "add_remove_one")
    (shell.folder / "schema.yaml").write_text(text)
    shell.summary(*ASK, code=2)
    assert "give blocks" in shell.err
    shell.summary(*ASK, "--blocks", "100")
    assert load_release("summary.json").n is None


def test_summaries_are_read_one_at_a_time(shell):
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "1")
    shell.summary(*ASK)
    shell.summary("--ask", "x1 < 2", "--epsilon", "1", "--label", "b", "--out", "b.json", code=5)
    shell("ledger", "cap", "--ledger", "budget.db", "--dataset", "people", "--epsilon", "4")
    shell.summary("--ask", "x1 < 2", "--epsilon", "1", "--label", "b", "--out", "b.json")
    shell("fit", "summary.json", "b.json", code=2)
    assert "by itself" in shell.err


def test_damaged_files_end_in_one_message(shell):
    """Fuzz: whatever happens to the file, `show` and `fit` say so and exit with a known code."""
    shell.summary(*MEDIANS)
    text = (shell.folder / "summary.json").read_text()
    rng = random.Random(7)
    broken = shell.folder / "broken.json"
    for _ in range(15):
        at = rng.randrange(len(text))
        broken.write_text(text[:at] + rng.choice(["", "0", "{", '"', "-", "null"]) + text[at + 3 :])
        command = rng.choice(["show", "fit"])
        shell.monkeypatch.setattr("sys.argv", ["noisewise", command, "broken.json"])
        code = 0
        try:
            from noisewise.cli.main import main

            main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = shell.capsys.readouterr()
        assert code in (0, 2, 6), captured.err
        assert code == 0 or captured.err.startswith("error: ")
        assert "Traceback" not in captured.err
    broken.write_text(text[:-40])
    shell("show", "broken.json", code=6)


def test_another_file_is_never_overwritten(shell):
    (shell.folder / "summary.json").write_text("{}")
    shell.summary(*ASK, code=2)
    assert "is not a Release" in shell.err


def test_show_answers_what_is_asked(shell):
    shell.summary(*MEDIANS)
    assert "P(x1 < 2) = 0." in shell("show", "summary.json", "--ask", "x1 < 2")
    document = json.loads(shell("show", "summary.json", "--ask", "x1 < 2", "--json"))
    assert 0 < document["probabilities"]["x1 < 2"] < 1
    shell("show", "summary.json", "--ask", "nobody < 2", code=2)
    assert "nobody" in shell.err


def test_a_hopeless_budget_is_not_spent_unless_asked_to(shell):
    hopeless = ("--ask", "x1 < 2", "--epsilon", "0.01")
    shell.summary(*hopeless, code=2)
    assert "drown" in shell.err
    assert "--anyway" in shell.err
    assert not (shell.folder / "summary.json").exists()
    assert "Published" in shell.summary(*hopeless, "--anyway")


def test_another_model(shell):
    words = ("--model", "huber", "--coefficients", "x1", "--epsilon", "4", "--blocks", "75")
    assert "75 blocks" in shell.summary(*words, "--dry-run")
    shell.summary(*words)
    release = load_release("summary.json")
    assert release.model.name == "huber"
    assert "huber" in shell("show", "summary.json")
    shell.summary(*words[2:], "--model", "probit", code=2)
    assert "there are least_squares, logistic" in shell.err


def test_verify_a_published_analysis(shell):
    shell.summary("--ask", "0 < x1 < 4", "--epsilon", "2")
    out = shell("verify", "summary.json", "x1 > 0", "0 < x1 < 4", "x1 < -1")
    assert [line.split()[-1] for line in out.strip().splitlines()[-3:]] == ["holds"] * 2 + ["fails"]
    document = json.loads(shell("verify", "summary.json", "x1 > 0", "--json"))
    assert document["verdicts"][0]["verdict"] == "holds"
    shell("verify", "summary.json", "hours > 0", code=2)
    assert "x1 only" in shell.err
    shell("verify", "people.parquet", "hours > 0", code=6)
