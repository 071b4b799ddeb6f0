"""fit, show and predict on network Releases, from the command line."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Schema
from noisewise.holder.publish import publish
from noisewise.holder.requests.network import make_network_request

from ..ledgers import ledger_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Release, and the posterior that `fit` made of it."""
    path = tmp_path_factory.mktemp("network")
    rng = np.random.default_rng(1)
    ill = rng.random(1000) < 0.3
    smoker = rng.random(1000) < np.where(ill, 0.8, 0.2)
    rows = {"ill": np.where(ill, "yes", "no"), "smoker": np.where(smoker, "yes", "no")}
    columns = {name: Category(("no", "yes"), "no") for name in rows}
    schema = Schema("people", columns)
    request = make_network_request(
        schema, network=Network.naive_bayes(schema, "ill", ["smoker"]), epsilon=2
    )
    publish(request, rows, ledger=ledger_for(path / "budget.db"), out=path / "net.json")
    done = run("fit", path / "net.json", "--out", path / "post.nc", "--seed", 1, "--draws", 100)
    assert done.exit_code == 0, done.output
    assert "Method joint" in done.output
    assert "smoker=yes | ill=yes" in done.output
    return path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_show_prints_tables(folder):
    found = json.loads(run("show", folder / "post.nc", "--json").stdout)
    table = found["tables"]["smoker"]
    assert table["parents"] == ["ill"]
    assert 0.7 < table["mean"][1][1] < 0.9
    assert found["noise_aware"] is True
    assert "Release of 1,000 rows by laplace" in run("show", folder / "post.nc").output


def test_predict_classifies(folder):
    (folder / "new.csv").write_text("smoker\nyes\nno\n", "utf-8")
    done = run("predict", folder / "post.nc", folder / "new.csv", "--target", "ill")
    lines = list(csv.DictReader(done.stdout.splitlines()))
    assert [line["ill"] for line in lines] == ["yes", "no"]
    assert float(lines[0]["lower(yes)"]) < float(lines[0]["p(yes)"]) < float(lines[0]["upper(yes)"])
    without = run("predict", folder / "post.nc", folder / "new.csv")
    assert without.exit_code != 0
    assert "target: name the node" in str(without.exception)


def test_a_prior_file_has_concentrations(folder):
    (folder / "prior.yaml").write_text("concentration: {ill: 2}\n", "utf-8")
    words = ("--method", "plugin", "--out", folder / "other.nc", "--prior", folder / "prior.yaml")
    done = run("fit", folder / "net.json", *words)
    assert done.exit_code == 0, done.output
    (folder / "prior.yaml").write_text("alpha: 2\n", "utf-8")
    assert "must have one line such as" in str(run("fit", folder / "net.json", *words).exception)


def test_plot_draws_tables(folder):
    done = run("plot", folder / "post.nc", "--out", folder / "tables.png")
    assert done.exit_code == 0, done.output
    assert (folder / "tables.png").stat().st_size > 10_000
    wrong = run("plot", folder / "post.nc", "--out", folder / "t.png", "--names", "age")
    assert "'age' is not a node" in str(wrong.exception)
