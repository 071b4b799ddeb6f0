"""A request by file and by options: the same request, for every kind and every command."""

from __future__ import annotations

import inspect

import pytest
import typer
from typer.testing import CliRunner

import noisewise as nw
from noisewise.cli import options
from noisewise.cli.audit import audited
from noisewise.cli.main import app
from noisewise.core.errors import RequestError
from noisewise.holder.requests.file import KEYS, read_asked

SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  hours: {type: number, lower: 0, upper: 80}
  region: {type: category, levels: [north, south, east], reference: north}
  disease: {type: category, levels: ["no", "yes"], reference: "no"}
  income: {type: number, lower: 0, upper: 200000}
"""
# By kind: the options, and the same by hand in a file.
REQUESTS = {
    "regression": (
        "--target income --features age,region --epsilon 0.1 --delta 1e-6 --radius 1 --label 1e5",
        "release: regression\ntarget: income\nfeatures: [age, region]\nepsilon: 0.1\n"
        "delta: 1e-6\nradius: 1\nlabel: '1e5'\n",
    ),
    "regression, zCDP": (
        "--target income --features age --rho 1/3 --layout isometric --fourth-moments 0.25",
        "release: regression\ntarget: income\nfeatures: [age]\nrho: 1/3\nlayout: isometric\n"
        "fourth_moments: 0.25\n",
    ),
    "summary": (
        "--target income --features age,hours --coefficients hours --quantiles 0.05,0.5 "
        "--bounds hours=-9:9 --blocks 50 --partitions 2 --posterior g_prior --g 30 --epsilon 1",
        "release: summary\ntarget: income\nfeatures: [age, hours]\ncoefficients: [hours]\n"
        "quantiles: [0.05, 0.5]\nbounds: {hours: [-9, 9]}\nblocks: 50\npartitions: 2\n"
        "posterior: g_prior\ng: 30\nepsilon: 1\n",
    ),
    "questions": (
        "--target income --features age,hours --ask hours<0 --ask age>1 --mechanism stouffer "
        "--rows 60 --blocks 10 --clip 4 --epsilon 1",
        "release: summary\ntarget: income\nfeatures: [age, hours]\nask: [hours<0, age>1]\n"
        "mechanism: stouffer\nrows: 60\nblocks: 10\nclip: 4\nepsilon: 1\n",
    ),
    "network": (
        "--edges region>disease --epsilon 1 --mechanism posterior_sample --draws 2 "
        "--concentration 2",
        "release: network\nedges: [region>disease]\nepsilon: 1\nmechanism: posterior_sample\n"
        "draws: 2\nconcentration: 2\n",
    ),
    "naive Bayes": (
        "--naive-bayes disease --features region --epsilon 1 --mechanism map --kind grid "
        "--points 3",
        "release: network\nnaive_bayes: disease\nfeatures: [region]\nepsilon: 1\n"
        "mechanism: map\nkind: grid\npoints: 3\n",
    ),
    "graph": (
        "--graph graph.yaml --epsilon 1",
        "release: network\ngraph:\n  disease: [region]\n  region:\nepsilon: 1\n",
    ),
    "draws": (
        "--target income --features age,region --noise-sd 20000 --epsilon 1 --draws 3 "
        "--largest-norm 0.5",
        "release: draws\ntarget: income\nfeatures: [age, region]\nnoise_sd: 20000\nepsilon: 1\n"
        "draws: 3\nlargest_norm: 0.5\n",
    ),
}
COMMANDS = {
    "regression": "release",
    "summary": "release-summary",
    "network": "release-network",
    "draws": "sample-regression",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "graph.yaml").write_text("disease: [region]\nregion: []\n")
    (tmp_path / "people.csv").write_text(
        "age,hours,region,disease,income\n" + "40,30,south,no,20000\n50,20,north,yes,30000\n" * 30
    )
    CliRunner().invoke(
        app,
        [
            "ledger",
            "cap",
            "--ledger",
            "budget.db",
            "--dataset",
            "people",
            "--epsilon",
            "9",
            "--delta",
            "1e-5",
        ],
    )
    return tmp_path


def audited_by(*words):
    """What `audit` would audit."""
    command = typer.main.get_command(app).commands["audit"]
    context = command.make_context("audit", list(words))
    given = {k: v for k, v in context.params.items() if k not in ("runs", "confidence", "as_json")}
    return audited(**given)


def invoke(*words):
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def publish(command, *words):
    place = ["--data", "people.csv", "--ledger", "budget.db", "--schema", "schema.yaml", "--json"]
    return invoke(command, *place, *words)


@pytest.mark.parametrize("name", REQUESTS)
def test_by_file_and_by_options_it_is_the_same_request(name, folder):
    words, text = REQUESTS[name]
    (folder / "request.yaml").write_text(text)
    schema = nw.read_schema("schema.yaml")
    by_file = nw.read_request("request.yaml", schema)
    if "--label" not in words:  # an audit has none
        by_options = audited_by("--schema", "schema.yaml", *words.split()).make()
        assert by_options.key == by_file.key
    kind = read_asked("request.yaml").kind
    done = publish(COMMANDS[kind], *words.split(), "--dry-run", "--save-request", "saved.yaml")
    assert done.exit_code == 0, done.output
    assert nw.read_request("saved.yaml").key == by_file.key  # it names its schema
    asked = read_asked("saved.yaml")
    nw.write_request("again.yaml", asked.kind, schema="schema.yaml", **asked.words)
    assert (folder / "again.yaml").read_text() == (folder / "saved.yaml").read_text()


@pytest.mark.parametrize("name", ["regression", "questions", "network", "draws"])
def test_a_release_by_file_is_the_stored_one_of_the_options(name, folder):
    words, text = REQUESTS[name]
    (folder / "request.yaml").write_text(text)
    command = COMMANDS[read_asked("request.yaml").kind]
    more = ["--anyway"] if command == "release-summary" else []
    first = publish(command, *words.split(), *more)
    assert '"repeated": false' in first.stdout, first.output
    assert '"repeated": true' in publish(command, "--request", "request.yaml", *more).stdout


def test_options_override_the_file(folder):
    (folder / "request.yaml").write_text(
        "release: regression\nschema: schema.yaml\ntarget: income\nfeatures: [age]\nrho: 0.1\n"
    )
    found = audited_by("--request", "request.yaml", "--epsilon", "2", "--features", "hours")
    schema = nw.read_schema("schema.yaml")
    wanted = nw.make_request(schema, target="income", features=["hours"], epsilon=2)
    assert found.make().key == wanted.key
    (folder / "network.yaml").write_text(
        "release: network\nschema: schema.yaml\nnaive_bayes: disease\nepsilon: 1\n"
    )
    found = audited_by("--request", "network.yaml", "--edges", "region>disease")
    assert "naive_bayes" not in found.words


def test_a_plan_takes_the_request(folder):
    (folder / "request.yaml").write_text(
        "release: regression\nschema: schema.yaml\ntarget: income\nfeatures: [age]\nepsilon: 1/2\n"
        "mechanism: laplace\n"
    )
    by_file = invoke("plan", "--request", "request.yaml", "--n", 500, "--json").stdout
    by_options = invoke(
        *[
            "plan",
            "--schema",
            "schema.yaml",
            "--target",
            "income",
            "--features",
            "age",
            "--epsilon",
            "0.5",
        ],
        *["--mechanism", "laplace", "--n", "500", "--json"],
    ).stdout
    assert by_file == by_options


def test_the_schema_is_beside_the_request(folder):
    (folder / "elsewhere").mkdir()
    done = publish(
        *["release", "--target", "income", "--features", "age", "--epsilon", "1", "--dry-run"],
        *["--save-request", "elsewhere/request.yaml"],
    )
    assert done.exit_code == 0, done.output
    assert "schema: ../schema.yaml\n" in (folder / "elsewhere" / "request.yaml").read_text()
    nw.read_request("elsewhere/request.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("target: income\n", "release: expected what is published"),
        ("release: poem\n", "release: expected what is published"),
        ("release: regression\nepsilom: 1\n", "did you mean 'epsilon'"),
        ("release: regression\nask: [x < 0]\n", "ask: a regression request has no such key"),
        ("release: regression\nfeatures: age\n", "features: expected a list"),
        ("release: regression\nlabel: 7\n", "label: expected text"),
        ("release: regression\nepsilon: true\n", "epsilon: expected a number"),
        ("release: summary\nbounds: {age: 3}\n", "bounds: expected two numbers"),
        ("release: summary\nrows: 1.5\n", "rows: expected a whole number"),
        ("release: network\ngraph: [a]\n", "graph: expected lines"),
        ("- release\n", "expected lines such as"),
        ("release: regression\nepsilon: 1\nepsilon: 2\n", "given twice"),
        ("release: regression\ntarget: income\nfeatures: [age]\nepsilon: 1\n", "schema: not given"),
        ("release: draws\nschema: schema.yaml\ntarget: income\n", "features: not given"),
    ],
)
def test_a_wrong_file_is_refused_with_a_remedy(text, said, folder):
    (folder / "request.yaml").write_text(text)
    with pytest.raises(RequestError, match=said):
        nw.read_request("request.yaml")


def test_a_file_of_another_kind_is_refused(folder):
    (folder / "request.yaml").write_text(REQUESTS["network"][1])
    with pytest.raises(RequestError, match="asks for a network release"):
        publish("release", "--request", "request.yaml")
    with pytest.raises(RequestError, match="there is no file"):
        publish("release", "--request", "nowhere.yaml")


def test_a_label_in_the_file_does_not_make_all_batches_one(folder):
    (folder / "request.yaml").write_text(REQUESTS["regression"][1])
    with pytest.raises(RequestError, match="label: the request file's"):
        publish(*["release", "--request", "request.yaml", "--append", "series", "--batch", "one"])


def test_a_wrong_request_is_not_saved(folder):
    wrong = ["--target", "income", "--features", "height", "--epsilon", "1"]
    with pytest.raises(RequestError, match="height"):
        publish("release", *wrong, "--save-request", "request.yaml")
    assert not (folder / "request.yaml").exists()


def test_a_file_is_not_written_over(folder):
    words = {"schema": "schema.yaml", "target": "income", "features": ["age"], "epsilon": 1}
    nw.write_request("request.yaml", **words)
    nw.write_request("request.yaml", **words)
    with pytest.raises(RequestError, match="exists and says something else"):
        nw.write_request("request.yaml", **{**words, "epsilon": 2})


def test_files_and_commands_have_the_same_words():
    for kind, given in options.KINDS.items():
        assert {each.name for each in given} == set(KEYS[kind])


def test_every_word_of_a_regression_is_in_the_file_but_its_place_in_a_series():
    words = set(inspect.signature(nw.make_request).parameters)
    words |= set(inspect.signature(nw.make_glm_request).parameters)
    assert words - {"schema", "batch", "series"} == set(KEYS["regression"])


@pytest.mark.parametrize("command", ["release", "release-summary", "release-network", "fit"])
def test_help_has_the_experts_options_last(command):
    shown = invoke(command, "--help").stdout
    usual, experts = shown.split("For experts")
    assert "--out" in usual
    assert "--out" not in experts
    if command == "fit":
        assert "gibbs" not in shown
        assert "--chains" in experts


def test_methods_for_newcomers_and_all():
    few, all_of_them = invoke("methods").stdout, invoke("methods", "--all").stdout
    assert "exact_own_laws" in few
    assert "gibbs" not in few
    assert {"gibbs_update", "naive"} < set(all_of_them.split())


def test_a_wrong_command_is_answered_once():
    shown = invoke("releas")
    assert " ".join(shown.output.split()).count("Did you mean") == 1
