"""`noisewise plan` and `noisewise audit` as somebody types them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.errors import RequestError

SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  region: {type: category, levels: [north, south, east], reference: north}
  income: {type: number, lower: 0, upper: 200000}
"""
WORDS = ["--schema", "schema.yaml", "--target", "income", "--features", "age,region"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


# --- plan -----------------------------------------------------------------------------------------


def test_plan_says_which_epsilon_is_needed(folder):
    shown = invoke(
        "plan", *WORDS, "--n", 5000, "--epsilon", "0.5,2", "--mechanism", "laplace",
        "--want", "age: 100", "--want", "region[south]:5000", "--out", "plan.svg",
    )  # fmt: skip
    assert shown.exit_code == 0
    assert "An interval of ±100 on age needs epsilon about" in shown.stdout
    assert "±5000 on region[south]" in shown.stdout
    assert (folder / "plan.svg").read_text().startswith("<?xml")
    assert sorted(path.name for path in folder.iterdir()) == ["plan.svg", "schema.yaml"]


def test_plan_as_json_with_a_prior(folder):
    (folder / "prior.yaml").write_text(
        "coefficients:\n  age: {mean: 0, sd: 100}\nerror_sd: [10000, 30000]\n"
    )
    words = ["plan", *WORDS, "--n", 2000, "--epsilon", "1", "--mechanism", "laplace", "--json"]
    wide = json.loads(invoke(*words).stdout)
    sharp = json.loads(invoke(*words, "--prior", "prior.yaml").stdout)
    assert [row["name"] for row in wide["rows"]] == [row["name"] for row in sharp["rows"]]
    assert sharp["rows"][1]["sd"] < wide["rows"][1]["sd"]


def test_plan_for_rows_in_a_ball():
    shown = invoke("plan", *WORDS, "--n", 2000, "--epsilon", "1", "--radius", 1)
    assert "rows in a ball of radius 1 on unit scale" in shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith("age ")]
    assert [row[1] for row in rows] == ["laplace", "gaussian", "ball"]


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        (["--mechanism", "ball"], "mechanism"),
        (["--mechanism", "laplace", "--radius", "1"], "radius"),
        (["--want", "age"], "want"),
        (["--want", "age: wide"], "want"),
        (["--epsilon", "one"], "epsilon"),
        (["--out", "plan.doc"], "out"),
        (["--mechanism", "magic"], "mechanism"),
    ],
)
def test_plan_names_what_is_wrong(extra, word):
    with pytest.raises(RequestError, match=word):
        invoke("plan", *WORDS, "--n", 100, *extra)


# --- audit ----------------------------------------------------------------------------------------


def test_audit_of_a_request_reads_no_data_and_no_ledger(folder):
    shown = invoke("audit", *WORDS, "--epsilon", 1, "--runs", 100)
    assert shown.exit_code == 0, shown.output
    assert "Claim: epsilon = 1, for one row replaced; laplace noise." in shown.stdout
    assert "Found: epsilon is at least" in shown.stdout
    assert "not proof" in shown.stdout
    assert "of the stated scale would have been noticed" in shown.stdout
    assert [path.name for path in folder.iterdir()] == ["schema.yaml"]


def test_audit_as_json():
    shown = invoke("audit", *WORDS, "--rho", "0.5", "--runs", 60, "--json")
    document = json.loads(shown.stdout)
    assert shown.exit_code == 0
    assert document["passed"]
    assert document["mu_claimed"] == pytest.approx(1.0, rel=1e-6)
    assert document["only_values_differ"]
    assert document["noise"]["passed"]
    assert set(document["chance_of_catching"]) == {"0.5", "0.25"}


def test_a_violation_fails_by_exit_code(monkeypatch):
    """Negative control: requests whose mechanisms draw an eighth of the noise that they state."""
    from noisewise.holder.requests import regression as module
    from studies.self_audit.broken import BrokenMechanism, noise_scale_halved

    honest = module.plan_gaussian

    def broken(request):
        found = []
        for mechanism in honest(request):
            drawn = mechanism
            for _ in range(3):
                drawn = noise_scale_halved(drawn).drawn
            found.append(BrokenMechanism(mechanism, drawn))
        return tuple(found)

    monkeypatch.setitem(module.MECHANISMS, "gaussian", module.Noise(broken, pure=False))
    words = [*WORDS, "--epsilon", 1, "--delta", "1e-6", "--rounds", 1, "--runs", 200]
    shown = invoke("audit", *words)
    assert shown.exit_code == 8
    assert "VIOLATED" in shown.stdout
    assert "Do not publish" in shown.stdout
    document = invoke("audit", *words, "--json")
    assert document.exit_code == 8
    assert not json.loads(document.stdout)["passed"]


def test_audit_needs_a_request():
    with pytest.raises(RequestError, match="schema: not given"):
        invoke("audit", "--epsilon", 1)
    with pytest.raises(RequestError, match="epsilon"):
        invoke("audit", *WORDS)
