"""Reports go on where they stopped, and never mix trials of different settings."""

from __future__ import annotations

import pytest

from noisewise.core.errors import RequestError
from studies import plan_check
from studies.calibration import power as calibration_power
from studies.report import Options, kept_trials

OPTIONS = Options(quick=True, runs=None, command="test")


def stopping(call, after):
    """The call, interrupted once it has run so often; and what it was called with."""
    seen = []

    def stops(*words, **more):
        if len(seen) == after:
            raise KeyboardInterrupt
        seen.append(words)
        return call(*words, **more)

    return stops, seen


def square(number):
    return {"trial": number, "square": number**2}


def test_trials_that_are_there_are_not_run_again(tmp_path):
    stops, seen = stopping(square, 2)
    with pytest.raises(KeyboardInterrupt):
        kept_trials("squares", stops, 5, {"power": 2}, tmp_path, OPTIONS)
    assert len(seen) == 2
    counts, seen = stopping(square, 99)
    found = kept_trials("squares", counts, 5, {"power": 2}, tmp_path, OPTIONS)
    assert [number for (number,) in seen] == [2, 3, 4]
    assert [record["square"] for record in found] == [0, 1, 4, 9, 16]
    with pytest.raises(RequestError, match="never mixed"):
        kept_trials("squares", square, 5, {"power": 3}, tmp_path, OPTIONS)


def test_an_interrupted_study_of_studies_ends_with_the_same_table(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration_power, "CHUNK", 50)
    options = OPTIONS._replace(runs=150)
    whole = calibration_power.write(tmp_path / "whole", options)
    stops, seen = stopping(calibration_power.ranks, 2)
    with monkeypatch.context() as patch:
        patch.setattr(calibration_power, "ranks", stops)
        with pytest.raises(KeyboardInterrupt):
            calibration_power.write(tmp_path / "part", options)
    part = calibration_power.write(tmp_path / "part", options)
    assert [chunk for (chunk,) in seen] == [0, 1]
    assert [path.read_bytes() for path in part] == [path.read_bytes() for path in whole]


def test_an_interrupted_check_of_plans_ends_with_the_same_table(tmp_path, monkeypatch):
    grid = plan_check.QUICK_GRID[:2]
    monkeypatch.setattr(plan_check, "QUICK_GRID", grid)
    options = OPTIONS._replace(runs=10)
    whole = plan_check.write(tmp_path / "whole", options)
    stops, seen = stopping(plan_check.check, 1)
    with monkeypatch.context() as patch:
        patch.setattr(plan_check, "check", stops)
        with pytest.raises(KeyboardInterrupt):
            plan_check.write(tmp_path / "part", options)
    assert seen == [(grid[0],)]
    counts, seen = stopping(plan_check.check, 99)
    monkeypatch.setattr(plan_check, "check", counts)
    part = plan_check.write(tmp_path / "part", options)
    assert seen == [(grid[1],)]
    assert [path.read_bytes() for path in part] == [path.read_bytes() for path in whole]
