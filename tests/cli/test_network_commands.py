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


def test_show_answers_questions(folder):
    bare, wrapped = (
        run("show", folder / "post.nc", "--ask", text).stdout.splitlines()[-1]
        for text in ("smoker=yes | ill=yes", "P(smoker=yes | ill=yes)")
    )
    assert bare == wrapped
    assert bare.startswith("P(smoker=yes | ill=yes) = 0.")
    assert "interval" in bare
    found = json.loads(
        run("show", folder / "post.nc", "--json", "--ask", "P(ill=yes) > 0.01").stdout
    )
    assert found["probabilities"] == {"P(ill=yes) > 0.01": 1.0}


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("", "is not of the form"),
        ("smoker", "is not of the form"),
        ("P(smoker", "is not of the form"),
        ("P(smoker=yes | ill=yes", "is not of the form"),
        ("P(smoker=yes) and more", "is not of the form"),
        ("smoker=yes | ill=yes | ill=no", "is not of the form"),
        ("smoker=yes, smoker=no", "is not of the form"),
        ("P(smoker=maybe | ill=yes)", "is not one of its levels"),
        ("P(age=yes | ill=yes)", "'age' is not a node"),
        ("P(ill=yes | ill=yes)", "is asked about"),
    ],
)
def test_a_question_that_cannot_be_read_is_an_error(folder, question, message):
    done = run("show", folder / "post.nc", "--ask", question)
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert done.stdout == ""


def test_show_has_margins_first_and_one_node(folder):
    lines = run("show", folder / "post.nc").stdout.splitlines()
    assert lines.index("How common each level is:") < lines.index("Tables:")
    one = run("show", folder / "post.nc", "--node", "ill").stdout
    assert "ill=yes" in one
    assert "smoker=" not in one
    wrong = run("show", folder / "post.nc", "--node", "age")
    assert "'age' is not a node" in str(wrong.exception)


def test_show_never_prints_a_long_table(tmp_path):
    """Two nodes of 16 levels: 256 entries of one table."""
    levels = tuple(f"l{k}" for k in range(16))
    schema = Schema("people", {name: Category(levels, "l0") for name in ("a", "b")})
    rng = np.random.default_rng(1)
    rows = {name: rng.choice(levels, 500) for name in ("a", "b")}
    request = make_network_request(schema, network={"a": [], "b": ["a"]}, epsilon=1)
    publish(request, rows, ledger=ledger_for(tmp_path / "b.db"), out=tmp_path / "net.json")
    words = ("--method", "plugin", "--draws", 50, "--seed", 1, "--out", tmp_path / "p.nc")
    assert len(run("fit", tmp_path / "net.json", *words).stdout.splitlines()) < 80
    shown = run("show", tmp_path / "p.nc").stdout
    assert len(shown.splitlines()) < 80
    assert "Tables of 1 more nodes: --node NAME shows one" in shown
    one = run("show", tmp_path / "p.nc", "--node", "b").stdout
    assert len(one.splitlines()) < 80
    assert "... and 216 more entries; --json shows all." in one


def test_the_former_name_of_a_method_is_understood(folder):
    words = ("--method", "exact", "--draws", 20, "--seed", 1, "--out", folder / "old.nc")
    done = run("fit", folder / "net.json", *words)
    assert done.exit_code == 0, done.output
    assert (
        "Method per_table (enumeration by row): chosen by the user under its former" in done.output
    )


def test_synthesize_writes_sets(folder, tmp_path):
    out = tmp_path / "sets"
    words = ("synthesize", folder / "post.nc", "--sets", 3, "--seed", 1, "--out", out)
    done = run(*words, "--columns", "ill,smoker")
    assert done.exit_code == 0, done.output
    assert "Wrote 3 sets of 1,000 rows" in done.stdout
    assert "Warning" not in done.output
    names = sorted(path.name for path in out.iterdir())
    assert names == ["set-1.csv", "set-2.csv", "set-3.csv"]
    rows = list(csv.DictReader((out / "set-2.csv").open()))
    assert len(rows) == 1000
    assert set(rows[0]) == {"ill", "smoker"}
    again = run(*words)
    assert "is there already" in str(again.exception)
    few = run("synthesize", folder / "post.nc", "--sets", 1, "--out", tmp_path / "x")
    assert "sets: expected a whole number from 2" in str(few.exception)
    assert not (tmp_path / "x").exists()
