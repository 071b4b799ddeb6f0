"""`noisewise export`: draws as R's package posterior takes them, and a Stan program."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.errors import RequestError

from ..analyst.test_report import made
from ..releases import example_request, release_of


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made().save("post.nc")
    return tmp_path


def test_draws_are_the_same_in_both_formats(folder):
    for form in ("csv", "parquet"):
        done = run("export", "post.nc", "--to", form)
        assert done.exit_code == 0, done.output
    with Path("post.csv").open(newline="") as file:
        head, *rows = list(csv.reader(file))
    table = pq.read_table("post.parquet")
    assert head == table.column_names
    assert head[:4] == [".chain", ".iteration", ".draw", "intercept"]
    assert {"region[south]", "sigma2", "sigma"} <= set(head)
    numbers = np.array(rows, dtype=float)
    assert np.array_equal(numbers, np.column_stack([column.to_numpy() for column in table]))
    chain, iteration, draw = numbers[:, :3].T
    assert (chain.min(), chain.max(), iteration.min(), iteration.max()) == (1, 4, 1, 500)
    assert np.array_equal(draw, np.arange(2000) + 1)
    age = numbers[(chain == 2) & (iteration == 3), head.index("age")]
    assert age == made().draws("age")[1, 2]


def test_a_release_becomes_a_stan_program(folder):
    Path("release.json").write_text(release_of(example_request()).to_text(), encoding="utf-8")
    done = run("export", "release.json", "--to", "stan", "--out", "model.stan")
    assert done.exit_code == 0, done.output
    assert "generated quantities" in Path("model.stan").read_text()
    data = json.loads(Path("model.data.json").read_text())
    start = json.loads(Path("model.start.json").read_text())
    assert len(data["released"]) == data["n_entries"] == len(data["noise"])
    assert len(start["psi"]) == data["t"] + data["m"]
    assert "intercept" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("post.nc", "--to", "sav"), "there are csv, parquet and stan"),
        (("post.nc", "--to", "csv", "--out", "draws.txt"), "must end in .csv"),
        (("post.nc", "--to", "csv", "--target", "age"), "are for stan"),
        (("release.json", "--to", "csv"), "run `noisewise fit"),
    ],
)
def test_mistakes_are_named(folder, words, said):
    Path("release.json").write_text(release_of(example_request()).to_text(), encoding="utf-8")
    done = run("export", *words)
    assert isinstance(done.exception, RequestError)
    assert said in str(done.exception)
