"""Rounds on the command line and in request files."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from noisewise.cli.main import main
from noisewise.core.kinds import load_release
from noisewise.core.yaml_files import read_schema
from noisewise.holder.requests.file import read_request
from noisewise.holder.requests.regression import make_request

from ..ledgers import ledger_for

SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 0, upper: 200}
  income: {type: number, lower: 0, upper: 200000}
neighbours: replace_one
max_rows_per_unit: 1
missing: error
"""


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    age = rng.normal(45, 9, 4000)
    income = 30_000 + 500 * age + rng.normal(0, 3000, 4000)
    rows = "".join(f"{a:.3f},{b:.2f}\n" for a, b in zip(age, income, strict=True))
    (tmp_path / "people.csv").write_text("age,income\n" + rows)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    ledger_for(tmp_path / "budget.db")

    def run(*words, code=0):
        given = ["release", "--data", "people.csv", "--ledger", "budget.db", *words]
        monkeypatch.setattr(sys, "argv", ["noisewise", *given])
        stopped = 0
        try:
            main()
        except SystemExit as stop:
            stopped = stop.code or 0
        captured = capsys.readouterr()
        assert stopped == code, captured.out + captured.err
        return captured.out + captured.err

    return run


ASKED = ("--schema", "schema.yaml", "--target", "income", "--features", "age", "--epsilon", "1")


def test_a_dry_run_says_what_rounds_will_do(shell, tmp_path):
    said = shell(*ASKED, "--delta", "1e-6", "--rounds", "auto", "--dry-run")
    assert "Rounds: at most 10" in said
    assert "With fewer than 300 rows there is one round" in said
    told = shell(*ASKED, "--delta", "1e-6", "--rounds", "3", "--dry-run", "--json")
    assert json.loads(told)["rounds"] == {"most": 3, "rows_needed": 1}
    assert not (tmp_path / "release.json").exists()


def test_rounds_are_published_and_repeated(shell, tmp_path):
    shell(*ASKED, "--delta", "1e-6", "--rounds", "auto")
    release = load_release(tmp_path / "release.json")
    assert release.rounds is not None
    assert "at no cost" in shell(*ASKED, "--delta", "1e-6", "--rounds", "auto")
    assert load_release(tmp_path / "release.json") == release


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rounds", "auto"), "gaussian mechanism"),
        (("--delta", "1e-6", "--rounds", "many"), "'auto' or a whole number"),
        (("--delta", "1e-6", "--rounds", "12"), "from 2 to 10"),
        (("--delta", "1e-6", "--rounds", "auto", "--radius", "1"), "does not go with rounds"),
    ],
)
def test_what_makes_no_sense_costs_nothing(shell, words, said):
    assert said in shell(*ASKED, *words, code=2)


def test_a_request_file_may_ask_for_rounds(shell, tmp_path):
    text = "release: regression\nschema: schema.yaml\ntarget: income\nfeatures: [age]\n"
    schema = read_schema(tmp_path / "schema.yaml")
    for word, rounds in (("auto", "auto"), ("4", 4)):
        (tmp_path / "asked.yaml").write_text(f"{text}epsilon: 1\ndelta: 1e-6\nrounds: {word}\n")
        same = make_request(
            schema, target="income", features=["age"], epsilon=1, delta="1e-6", rounds=rounds
        )
        assert read_request(tmp_path / "asked.yaml").key == same.key
