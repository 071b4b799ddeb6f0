"""`noisewise keys`, `--sign` and `--trust`, as scripts rely on them: files, words, exit codes."""

from __future__ import annotations

import json
import sys

import pytest

from noisewise.cli.main import main
from noisewise.core.kinds import load_release
from noisewise.holder.keys import read_key

from ..ledgers import ledger_for

SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  group: {type: category, levels: [a, b], reference: a}
  income: {type: number, lower: 0, upper: 200}
neighbours: add_remove_one
"""
PUBLISHING = {
    "release": "--target income --features age --epsilon 1 --rounds 1",
    "release-rounds": "--target income --features age --epsilon 3 --delta 1e-6 --rounds 3",
    "release-glm": "--family logistic --target group --features age --epsilon 3 --delta 1e-6",
    "release-summary": "--target income --features age --epsilon 5 --ask age>0 --blocks 20",
    "sample-regression": "--target income --features age --noise-sd 20 --epsilon 1",
}


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    lines = ["age,group,income", *(f"{20 + i % 60},{'ab'[i % 2]},{i % 190}" for i in range(2000))]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    network = "\n".join(line for line in SCHEMA.splitlines() if "number" not in line)
    other = "  other: {type: category, levels: [a, b], reference: a}\n"
    (tmp_path / "network.yaml").write_text(network.replace("  group", f"{other}  group"))
    ledger_for(tmp_path / "budget.db")

    def command(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["noisewise", *map(str, words)])
        found = 0
        try:
            main()
        except SystemExit as stop:
            found = stop.code or 0
        said = capsys.readouterr()
        assert found == code, said.out + said.err
        return said.out + said.err

    command("keys", "new", "--out", "office.key", "--name", "Office")
    return command


def publish(run, kind, *words, code=0):
    command = kind if kind in ("release-summary", "sample-regression") else "release"
    given = ["--data", "people.csv", "--schema", "schema.yaml", "--ledger", "budget.db"]
    return run(command, *given, *PUBLISHING[kind].split(), *words, code=code)


@pytest.mark.parametrize("kind", PUBLISHING)
def test_every_command_that_publishes_can_sign(kind, run):
    publish(run, kind, "--sign", "office.key", "--out", "r.json")
    assert load_release("r.json").signature.key == read_key("office.key").public
    said = run("keys", "verify", "r.json", "--trust", "office.key.pub")
    assert "r.json: signed by Office (checked: ed25519:" in said
    run("keys", "new", "--out", "other.key")
    said = run("keys", "verify", "r.json", "--trust", "other.key.pub", code=6)
    assert "r.json is signed by ed25519:" in said
    assert "not a key that you trust" in said


def test_networks_are_signed(run, tmp_path):
    lines = ["other,group", *(f"{'ab'[i % 2]},{'ab'[i % 3 % 2]}" for i in range(200))]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    words = ["--data", "people.csv", "--schema", "network.yaml", "--ledger", "budget.db"]
    words += ["--naive-bayes", "group", "--epsilon", "1", "--sign", "office.key", "--out", "r.json"]
    run("release-network", *words)
    run("keys", "verify", "r.json", "--trust", "office.key.pub")


def test_from_a_key_to_a_report(run, tmp_path):
    publish(run, "release", "--sign", "office.key", "--out", "a.json")
    publish(run, "release", "--label", "2", "--out", "b.json")
    fit = ["--chains", "1", "--draws", "50", "--seed", "1", "--out", "p.nc"]
    said = run("fit", "a.json", "b.json", "--trust", "office.key.pub", *fit, code=6)
    assert "b.json is not signed" in said
    assert not (tmp_path / "p.nc").exists()
    said = run("fit", "a.json", "--trust", "office.key.pub", *fit)
    assert "The released file is signed by Office (checked: ed25519:" in said
    [signature] = json.loads(run("show", "p.nc", "--json"))["signatures"]
    assert signature.startswith("signed by Office (checked: ")
    run("report", "p.nc", "--out", "p.html")
    assert signature in (tmp_path / "p.html").read_text().partition("<footer>")[2]
    run("fit", "a.json", "b.json", *fit)
    run("report", "p.nc", "--out", "p.html")
    footer = (tmp_path / "p.html").read_text().partition("<footer>")[2]
    assert "(not checked)" in footer
    assert "File 2 is unsigned." in footer


def test_signing_on_another_machine(run, tmp_path):
    publish(run, "release", "--out", "r.json")
    said = run("keys", "verify", "r.json", "--trust", "office.key.pub", code=6)
    assert "r.json is not signed" in said
    plain = load_release("r.json")
    said = run("keys", "sign", "r.json", "--key", "office.key", "--out", "signed.json")
    assert plain.digest in said
    assert load_release("r.json").signature is None
    run("keys", "sign", "r.json", "--key", "office.key")
    assert (tmp_path / "r.json").read_text() == (tmp_path / "signed.json").read_text()
    assert load_release("r.json") == plain
    run("keys", "new", "--out", "new.key", "--name", "Office, new")
    run("keys", "sign", "r.json", "--key", "new.key")
    assert "Office, new" in run("keys", "verify", "r.json", "--trust", "new.key.pub")
    (tmp_path / "mine.txt").write_text("mine")
    run("keys", "sign", "r.json", "--key", "new.key", "--out", "mine.txt", code=2)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_key_that_cannot_be_used_costs_nothing(run, tmp_path):
    (tmp_path / "office.key").chmod(0o644)
    for more in ((), ("--dry-run",)):
        words = ("--sign", "office.key", "--out", "r.json", *more)
        assert "chmod 600" in publish(run, "release", *words, code=2)
    assert '"charges": []' in run("ledger", "show", "--ledger", "budget.db", "--json")
    assert not (tmp_path / "r.json").exists()


def test_a_passphrase_from_a_file(run, tmp_path, monkeypatch):
    (tmp_path / "words").write_text("six words that nobody guesses\n")
    boxed = ("keys", "new", "--out", "boxed.key", "--passphrase-file", "words")
    assert "chmod 600" in run(*boxed, code=2)
    (tmp_path / "words").chmod(0o600)
    run(*boxed)
    assert "needs its passphrase" in run("keys", "show", "boxed.key", code=2)
    shown = run("keys", "show", "boxed.key", "--passphrase-file", "words", "--name", "boxed")
    assert shown == (tmp_path / "boxed.key.pub").read_text()
    words = ("--sign", "boxed.key", "--passphrase-file", "words", "--out", "r.json")
    publish(run, "release", *words)
    run("keys", "verify", "r.json", "--trust", "boxed.key.pub")
    # Asked at a terminal
    monkeypatch.setattr("noisewise.cli.keys.sys.stdin.isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr(
        "noisewise.cli.keys.typer.prompt",
        lambda text, **how: asked.append((text, how)) or "six words that nobody guesses",
    )
    assert run("keys", "show", "boxed.key", "--name", "boxed") == shown
    run("keys", "new", "--out", "third.key", "--passphrase")
    assert [how["hide_input"] for _, how in asked] == [True, True]
    assert asked[1][1]["confirmation_prompt"]


def test_keys_are_not_overwritten(run, tmp_path):
    before = (tmp_path / "office.key").read_bytes()
    assert "never overwritten" in run("keys", "new", "--out", "office.key", code=2)
    assert (tmp_path / "office.key").read_bytes() == before
    # Nor by a Release.
    publish(run, "release", "--sign", "office.key", "--out", "office.key", code=2)
    assert (tmp_path / "office.key").read_bytes() == before


def test_a_partition_and_a_series_are_signed(run, tmp_path):
    words = ["--partition", "group", "--sign", "office.key", "--out", "parts"]
    publish(run, "release", *words)
    for number in (1, 2):
        batch = ["--append", "series", "--batch", f"b{number}", "--sign", "office.key"]
        publish(run, "release", "--disjoint", "--series", "monthly", *batch)
        publish(run, "release", "--disjoint", "--series", "monthly", *batch)  # the stored one
        with (tmp_path / "people.csv").open("a") as rows:
            rows.write("30,a,5\n")
    files = [*(tmp_path / "parts").iterdir(), *(tmp_path / "series").iterdir()]
    assert len(files) == 4
    run("keys", "verify", *files, "--trust", "office.key.pub")
