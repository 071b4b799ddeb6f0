"""A few tries of every attack; `python -m studies attacks` makes thousands (docs/limits.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from noisewise.core.privacy import Claim, PureEvent
from studies import attacks


@pytest.mark.long
def test_nothing_breaks_in_a_quick_campaign(tmp_path):
    # A process of its own, because it forks: the one that runs the tests has threads.
    command = [sys.executable, "-m", "studies", "attacks", "--quick", "--out", str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "attacks.json").read_text())["attacks"]
    assert [one["tries"] for one in found] == [few for _, _, few in attacks.ATTACKS.values()]


def test_a_wrong_sensitivity_is_noticed(monkeypatch):
    from dataclasses import replace

    from noisewise.holder.requests.regression import Request

    planned = Request.mechanisms.func

    def halved(request):
        return tuple(replace(m, sensitivity=m.sensitivity // 2) for m in planned(request))

    monkeypatch.setattr(Request, "mechanisms", property(halved))
    (found,) = attacks.campaign({"neighbours": 300}, seed=1)
    assert found["breaks"]


def test_a_reader_that_believes_everything_is_noticed(monkeypatch):
    from noisewise.core.kinds import regression

    monkeypatch.setattr(regression, "_check_privacy", lambda release: None)
    (found,) = attacks.campaign({"forgeries": 400}, seed=1)
    assert found["breaks"]


@pytest.mark.parametrize("epsilon", [0.5, 1, 2])
def test_what_is_stronger(epsilon):
    assert attacks._stronger(Claim(epsilon), PureEvent(Fraction(1))) == (epsilon < 1)
