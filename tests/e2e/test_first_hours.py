"""The first hour of four kinds of users: the scripts in examples/first_hours, run as they are.

Three holders by Flower, the other way of the fourth, is tests/federation/test_loopback.py.
"""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.cli.main import app

from ..doc_pages import ROOT

SCRIPTS = ROOT / "examples" / "first_hours"
CODEBOOK = """\
name,min,max,levels,reference,label,unit_of_measure
age,18,90,,,Age,years
region,,,north|south|east,north,Region,
income,0,200000,,,Income,euros a year
"""


def people(path, n=3000, seed=1, older=0.0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(18 + older, 90, n)
    region = rng.choice(["north", "south", "east"], n)
    income = 20_000 + 800 * age + 9_000 * (region == "south") + 12_000 * rng.standard_normal(n)
    columns = {"age": age.round(1), "region": region, "income": income.round()}
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
        return
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("codebook.csv").write_text(CODEBOOK)
    return tmp_path


def play(name):
    """Run a script's commands, in this process; what each printed."""
    text = (SCRIPTS / f"{name}.sh").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    said = []
    for line in lines:
        first, *words = shlex.split(line)
        assert first == "noisewise"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"
        said.append(done.output)
    return said


def test_official_statistics(folder):
    people(folder / "people.csv")
    said = play("official_statistics")
    assert "Verdict" in said[2]
    assert "nothing is read, spent or written" in said[4]
    assert "purpose" in said[6]
    assert Path("plan.png").stat().st_size > 10_000
    assert "income by age, 2026" in Path("audit-sheet.html").read_text("utf-8")
    schema = nw.read_schema("schema.yaml")
    assert schema.columns["age"] == nw.Number(18, 90)
    assert nw.load_release("release.json").schema.label("income") == "Income"


def test_data_science(folder):
    people(folder / "people.parquet", n=20_000)
    said = play("data_science")
    assert len(said) < 10
    page = Path("report.html").read_text("utf-8")
    assert "Where age is higher by 1 year, people have about" in page
    assert "more euros a year" in page
    assert "age: Age (years)" in said[6]


def release(path):
    schema = nw.Schema(
        "people",
        {
            "age": nw.Number(18, 90),
            "region": nw.Category(("north", "south", "east"), "north"),
            "income": nw.Number(0, 200_000),
        },
    )
    people(Path("people.parquet"), n=20_000)
    request = nw.make_request(schema, target="income", features=["age", "region"], epsilon=3)
    ledger = nw.Ledger("budget.db")
    ledger.set_cap("people", epsilon=3)
    nw.publish(request, "people.parquet", ledger=ledger, out=path)


def test_r_and_stan(folder):
    release("release.json")
    said = play("r_and_stan")
    assert said[1].count("P(") == 4
    with Path("draws.csv").open(newline="") as file:
        head, *rows = list(csv.reader(file))
    assert head[:3] == [".chain", ".iteration", ".draw"]
    assert len(rows) == 4000
    for picture in ("effects.png", "pairs.png"):
        assert Path(picture).stat().st_size > 10_000
    assert "parameters {" in Path("model.stan").read_text()
    assert json.loads(Path("model.data.json").read_text())["n"] == 20_000


def test_three_holders(folder):
    Path("releases").mkdir()
    for seed, (holder, older) in enumerate([("north", 0), ("south", 30), ("west", 10)]):
        Path(holder).mkdir()
        people(Path(holder) / "people.csv", 4000, seed, older)
    words = ["--codebook", "codebook.csv", "--dataset", "people", "--out", "schema.yaml"]
    assert CliRunner().invoke(app, ["schema", "new", "north/people.csv", *words]).exit_code == 0
    said = play("three_holders")
    assert "exact_own_laws" in said[-2]
    posterior = nw.load_posterior("all.nc")
    low, high = posterior.interval("age", 0.999)
    assert low < 800 < high
    assert "3 released files" in Path("report.html").read_text("utf-8")
