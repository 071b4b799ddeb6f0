"""Logistic and Poisson regression from the command line, from rows to predictions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app

RUNNER = CliRunner()
SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  region: {type: category, levels: [north, south], reference: north}
  ill: {type: category, levels: ["no", "yes"], reference: "no"}
  visits: {type: number, lower: 0, upper: 8}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    age = np.clip(rng.normal(45, 12, 6000), 18, 90)
    south = rng.random(6000) < 0.4
    eta = -1.0 + 0.06 * (age - 45) + 0.5 * south
    ill = rng.random(6000) < 1 / (1 + np.exp(-eta))
    visits = rng.poisson(np.exp(eta / 2))
    lines = [
        f"{a:.3f},{'south' if s else 'north'},{'yes' if i else 'no'},{v}"
        for a, s, i, v in zip(age, south, ill, visits, strict=True)
    ]
    (tmp_path / "people.csv").write_text("age,region,ill,visits\n" + "\n".join(lines))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    cap = ("--dataset", "people", "--epsilon", "20", "--delta", "1e-5")
    assert run("ledger", "cap", "--ledger", "budget.db", *cap).exit_code == 0
    return tmp_path


def run(*words):
    return RUNNER.invoke(app, list(words))


def released(*words):
    common = ("--data", "people.csv", "--schema", "schema.yaml", "--ledger", "budget.db")
    return run("release", *common, "--features", "age,region", "--epsilon", "2", *words)


@pytest.mark.parametrize(
    ("family", "target", "ratios"),
    [("logistic", "ill", "odds_ratios"), ("poisson", "visits", "rate_ratios")],
)
def test_from_rows_to_predictions(folder, family, target, ratios):
    done = released("--family", family, "--target", target, "--out", "r.json")
    assert done.exit_code == 0, done.output
    assert json.loads((folder / "r.json").read_text())["family"] == family
    fitted = run("fit", "r.json", "--seed", "1", "--draws", "200", "--out", "post.nc")
    assert fitted.exit_code == 0, fitted.output
    assert ratios.replace("_", " ") in fitted.output
    shown = json.loads(run("show", "post.nc", "--json", "--ask", "age > 0").stdout)
    assert shown["probabilities"]["age > 0"] > 0.9
    assert set(shown[ratios]) == {"age", "region[south]"}
    (folder / "new.csv").write_text("age,region\n30,north\n70,south\n")
    predicted = run("predict", "post.nc", "new.csv")
    assert predicted.exit_code == 0, predicted.output
    young, old = (float(line.split(",")[0]) for line in predicted.stdout.splitlines()[1:])
    assert 0 < young < old


def test_a_dry_run_spends_nothing_and_a_file_says_the_same(folder):
    words = ("--family", "logistic", "--target", "ill")
    dry = released(*words, "--dry-run", "--save-request", "request.yaml")
    assert dry.exit_code == 0, dry.output
    assert "Newton rounds" in dry.output
    assert "family: logistic" in (folder / "request.yaml").read_text()
    first = released(*words, "--out", "a.json")
    common = ("--data", "people.csv", "--ledger", "budget.db", "--out", "b.json")
    again = run("release", *common, "--request", "request.yaml")
    assert again.exit_code == 0, again.output
    assert first.exit_code == 0
    assert (folder / "a.json").read_text() == (folder / "b.json").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--family", "probit", "--target", "ill"), "family"),
        (("--family", "logistic", "--target", "visits"), "two levels"),
        (("--family", "logistic", "--target", "ill", "--radius", "1"), "radius"),
        (("--target", "ill"), "category"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, words, message):
    refused = released(*words)
    assert refused.exit_code != 0
    assert message in refused.output + str(refused.exception)
