"""`noisewise audit` of summaries, networks and draws, as somebody types it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.release import NoisyCounts
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.holder.networks.counts import LaplaceCounts

SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  hours: {type: number, unbounded: true}
  region: {type: category, levels: [north, south, east], reference: north}
  disease: {type: category, levels: ["no", "yes"], reference: "no"}
  income: {type: number, lower: 0, upper: 200000}
"""
REGRESSION = ["--target", "income", "--features", "age,hours"]
SUMMARY = [*REGRESSION, "--ask", "hours < 0", "--mechanism", "stouffer", "--blocks", 50]
NETWORK = ["--edges", "region>disease"]
SAMPLE = ["--target", "income", "--features", "age,region", "--noise-sd", 20_000]
KINDS = {"summary": SUMMARY, "network": NETWORK, "sample": SAMPLE}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return tmp_path


def invoke(*words):
    given = ["audit", "--schema", "schema.yaml", *map(str, words)]
    return CliRunner().invoke(app, given, catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (SUMMARY, "stouffer of 50 blocks."),
        ([*REGRESSION, "--coefficients", "hours", "--quantiles", "0.5", "--bounds", "hours=-9:9",
          "--blocks", 50, "--partitions", 2], "clipped_mean of 50 blocks, 2 times over."),
        ([*REGRESSION, "--ask", "hours < 0", "--model", "poisson", "--mechanism", "sign",
          "--blocks", 20], "sign of 20 blocks."),
        (NETWORK, "laplace for a network of 2 nodes."),
        (["--naive-bayes", "disease", "--features", "region", "--mechanism", "map",
          "--kind", "grid", "--points", 3], "map (grid) for a network of 2 nodes."),
        (SAMPLE, "posterior draws, 1 in all."),
    ],
)  # fmt: skip
def test_an_audit_reads_no_data_and_no_ledger(words, said, folder):
    shown = invoke(*words, "--epsilon", 1, "--runs", 40)
    assert shown.exit_code == 0, shown.output
    assert f"Claim: epsilon = 1, for one row replaced; {said}" in shown.stdout
    assert "Your data and ledger were not opened." in shown.stdout
    assert "Found: epsilon is at least" in shown.stdout
    assert "not proof" in shown.stdout
    assert ("in place of poisson" in shown.stdout) == ("poisson" in words)
    assert [line.split(":")[0] for line in shown.stdout.splitlines()[:2]] == ["Tested", "Worth"]
    assert [path.name for path in folder.iterdir()] == ["schema.yaml"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_as_json(kind):
    shown = invoke(*KINDS[kind], "--epsilon", 1, "--runs", 40, "--json")
    document = json.loads(shown.stdout)
    assert shown.exit_code == 0
    assert document["passed"]
    assert document["noise"]["passed"]
    assert document["epsilon_claimed"] == 1
    assert 0.5 < document["share_of_sensitivity"] <= 1 + 1e-9
    assert set(document["chance_of_catching"]) == {"0.5", "0.25"}


def test_a_summary_with_too_little_noise_fails(monkeypatch):
    """Negative control: an eighth of the noise, drawn where all Laplace noise is drawn."""
    sound = LaplaceMechanism.add_noise
    monkeypatch.setattr(
        LaplaceMechanism,
        "add_noise",
        lambda self, sums: sound(replace(self, epsilon=8 * self.epsilon), sums),
    )
    shown = invoke(*SUMMARY, "--epsilon", 1, "--runs", 200)
    assert shown.exit_code == 8
    assert "VIOLATED: there is less noise than stated." in shown.stdout
    assert "VIOLATED: that is more than claimed." in shown.stdout
    assert "Do not publish" in shown.stdout


def test_a_network_with_too_little_noise_fails(monkeypatch):
    sound = LaplaceCounts.draw

    def draw(self, counts):
        values = sound(replace(self, epsilon=8 * self.epsilon), counts).values
        return NoisyCounts(values, self.scale, self.sensitivity)

    monkeypatch.setattr(LaplaceCounts, "draw", draw)
    shown = invoke(*NETWORK, "--epsilon", 1, "--runs", 200)
    assert shown.exit_code == 8
    assert "VIOLATED: there is less noise than stated." in shown.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*SUMMARY, *NETWORK, "--epsilon", 1], "edges: belongs to `noisewise release-network`"),
        ([*SUMMARY, "--noise-sd", 1, "--epsilon", 1], "noise_sd: belongs to"),
        ([*SUMMARY, "--delta", "1e-6", "--epsilon", 1], "delta: .* because of --ask"),
        ([*NETWORK, "--radius", 1, "--epsilon", 1], "radius: .* because of --edges"),
        ([*SAMPLE, "--mechanism", "laplace", "--epsilon", 1], "mechanism: .* --noise-sd"),
        ([*REGRESSION, "--blocks", 9, "--epsilon", 1], "blocks: .* add --ask or --coefficients"),
        (["--ask", "hours < 0", "--epsilon", 1], "target: not given; a summary request needs it"),
        (SUMMARY, "epsilon: not given"),
        (NETWORK, "epsilon: not given"),
        ([*SUMMARY, "--epsilon", 1, "--posterior", "sharp"], "posterior: 'sharp' is unknown"),
        ([*REGRESSION, "--ask", "wealth < 0", "--blocks", 9, "--epsilon", 1], "wealth"),
        ([*REGRESSION, "--ask", "hours < 0", "--epsilon", 1], "rows: not given"),
        (["--edges", "region", "--epsilon", 1], "write parent>child"),
        (["--graph", "graph.yaml", "--epsilon", 1], "there is no file graph.yaml"),
    ],
)
def test_wrong_words_cost_nothing(words, said, folder):
    with pytest.raises(RequestError, match=said):
        invoke(*words)
    assert [path.name for path in folder.iterdir()] == ["schema.yaml"]


def test_the_words_are_those_of_the_publishing_commands():
    """Every option that describes a request, and no other, is an option of the audit too."""
    import typer

    commands = typer.main.get_command(app).commands
    beside = {
        *("data", "ledger", "out", "dry_run", "label", "engine", "table", "query", "anyway"),
        *("append", "batch", "disjoint", "series", "purpose", "as_json", "help"),
        *("partition", "spark_config", "sign", "passphrase_file", "same_data", "query_attested_by"),
    }
    names = ("release", "release-summary", "release-network", "sample-regression")
    wanted = {p.name for name in names for p in commands[name].params} - beside
    own = {"runs", "confidence", "everything", "as_json", "help"}
    assert {p.name for p in commands["audit"].params} - own == wanted
