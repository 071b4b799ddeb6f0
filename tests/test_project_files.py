"""Files beside the code say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
import yaml

import noisewise as nw
from noisewise import _palette

from .doc_pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_workflow_runs_the_command_of_the_readme_on_every_python():
    flow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    job = flow["jobs"]["test"]
    told = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert job["strategy"]["matrix"]["python"] == told
    [command] = [step["run"] for step in job["steps"] if "run" in step]
    assert command.startswith("make test PYTHON=python")
    assert "make test" in (ROOT / "README.md").read_text("utf-8")
    assert flow["permissions"] == {"contents": "read"}


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == nw.__version__
    assert cited["license"] == PROJECT["license"]


def test_hooks_run_what_lint_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    entries = {hook["entry"].split()[0] for repo in hooks["repos"] for hook in repo["hooks"]}
    lint = (ROOT / "Makefile").read_text("utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    assert entries == set(re.findall(r"\$\(BIN\)/(\S+)", lint))


@pytest.mark.parametrize("name", ["holder", "node"])
def test_images_run_without_rights_and_keep_the_ledger(name):
    text = (ROOT / "docker" / f"{name}.Dockerfile").read_text("utf-8")
    assert re.search(r"^USER 10001$", text, flags=re.M)
    assert "/ledger" in re.search(r"^VOLUME (.*)$", text, flags=re.M)[1]
    assert text.index("USER 10001") < text.index("ENTRYPOINT")
    page = (ROOT / "docs/docker.md").read_text("utf-8")
    assert f"docker build -f docker/{name}.Dockerfile" in page
    assert page.count(":ro") >= 2


def test_pictures_in_files_have_the_colours_of_the_package():
    drawn = (ROOT / "docs/images/architecture.svg").read_text("utf-8")
    for colour in (_palette.AWARE, _palette.NAIVE):
        assert colour.lower() in drawn


def test_nobody_else_defines_the_two_colours():
    """Pictures of the package take them from the palette."""
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.css")]:
        if path.name == "_palette.py":
            continue
        text = path.read_text("utf-8").lower()
        for colour in (_palette.AWARE, _palette.NAIVE, "#0072b2", "#d55e00"):
            assert colour.lower() not in text, path


def test_the_shell_can_be_taught_the_commands():
    found = subprocess.run(
        [sys.executable, "-m", "noisewise.cli.main", "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "--install-completion" in found
