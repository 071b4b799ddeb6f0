"""Tables of the documentation leave nothing out: every method, every experiment."""

from __future__ import annotations

import json
import re

from noisewise.analyst.regression.methods import METHODS
from studies.__main__ import experiments

from .doc_pages import ROOT


def first_cells(page):
    """Names in backticks in the first cells of a page's tables."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    firsts = [line.split("|")[1] for line in lines if line.startswith("| ")]
    return {name for cell in firsts for name in re.findall(r"`([^`]+)`", cell)}


def test_every_method_has_a_line():
    """On the page that says what each approximates; others recommend, and needn't have all."""
    assert set(METHODS) - first_cells("docs/analyst.md") == set()


def test_every_experiment_has_a_place_where_it_is_discussed():
    assert set(experiments()) - first_cells("docs/studies.md") == set()


def test_every_result_names_the_commit_and_the_command_that_made_it():
    found = [json.loads(path.read_text("utf-8")) for path in (ROOT / "docs/results").glob("*.json")]
    assert len(found) >= len(experiments())
    for origin in found:
        assert re.fullmatch(r"[0-9a-f]{7,}\+?", origin["commit"])
        assert re.fullmatch(
            r"(noisewise lab|python -m studies) (run \S|attacks).*", origin["command"]
        )
