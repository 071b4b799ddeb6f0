"""Every mechanism keeps its claim under audit, and every mistake is caught.

Runs have new noise every time. Sound mechanisms are accused wrongly with probability at most 1e-4
here, by the audit's own promise; controls are those that are caught with probability near one
within seconds. ``python -m studies audit`` runs them all (results in docs/studies.md); half of the
Laplace noise and sensitivities for add/remove are in tests/statistical and test_audit.py.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from studies.__main__ import app
from studies.self_audit import registry as audit_registry
from studies.self_audit.broken import (
    fourth_moments_without_noise,
)
from studies.self_audit.registry import Subject, examine, subjects
from studies.self_audit.regressions import SUBJECTS as CONTROLS
from studies.self_audit.regressions import request_for

CONFIDENCE = 0.9999
QUICK = {
    "fourth-exact": 300,
    "noise-twice": 300,
    "posterior-clamped": 3500,
    "network-choice-half-noise": 2000,
    "summary-mean-half-noise": 2000,
    "half-noise-scores": 250,
}


@pytest.fixture(scope="module", autouse=True)
def holders_noise():
    """Real: it is what is looked at here."""


@pytest.mark.parametrize("name", QUICK)
def test_mistakes_are_caught(name):
    verdict = examine(subjects()[name], runs=QUICK[name], confidence=CONFIDENCE)
    assert not verdict.subject.sound
    assert not verdict.result.passed, str(verdict.result)
    assert verdict.as_it_should_be


@pytest.mark.parametrize(
    "name",
    ["laplace-category", "laplace-rows", "laplace-add-remove", "gaussian-ball", "fourth-moments",
     "eigenvalue", "noise-once", "posterior-truncated", "summary-mean",
     pytest.param("logistic", marks=pytest.mark.long)],
)  # fmt: skip
def test_sound_mechanisms_keep_their_claims(name):
    subject = subjects()[name]
    verdict = examine(subject, runs=200, confidence=CONFIDENCE)
    assert verdict.subject.sound
    assert verdict.result.passed, str(verdict.result)


def test_every_mistake_that_was_promised_is_there():
    broken = {name for name, subject in subjects().items() if not subject.sound}
    assert {
        *("half-noise", "half-noise-gaussian", "add-remove", "fourth-exact"),
        *("noise-twice", "posterior-clamped", "half-noise-rounds", "half-noise-scores"),
        "half-noise-counts",
    } <= broken
    sound = {name for name, subject in subjects().items() if subject.sound}
    assert {"laplace", "gaussian", "gaussian-isometric", "eigenvalue", "fourth-moments"} <= sound
    assert {"rounds", "rounds-add-remove"} <= sound
    assert {"logistic", "logistic-category", "poisson"} <= sound
    assert {"network-laplace", "network-fourier", "summary-sign", "summary-fisher"} <= sound


def test_exact_fourth_moments_need_fourth_moments():
    from noisewise.core.errors import RequestError

    with pytest.raises(RequestError, match="fourth"):
        fourth_moments_without_noise(request_for(epsilon=1))


def test_names_are_used_once(monkeypatch):
    from noisewise.core.errors import RequestError
    from studies.self_audit import regressions

    twice = (regressions.SUBJECTS[0],) * 2
    monkeypatch.setattr(regressions, "SUBJECTS", twice)
    with pytest.raises(RequestError, match="twice"):
        audit_registry.subjects()


def test_a_verdict_knows_what_should_be():
    passing = CONTROLS[-1]
    control = Subject("x", "x", passing.check, passing.runs, sound=False)
    assert not examine(control, runs=2000, confidence=CONFIDENCE).as_it_should_be


# --- the command --------------------------------------------------------------------------------


def invoke(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_audit_of_everything(monkeypatch):
    chosen = {s.name: s for s in CONTROLS if s.name.startswith("noise")}
    monkeypatch.setattr(audit_registry, "subjects", lambda: chosen)
    sure = ("--confidence", str(CONFIDENCE))
    shown = invoke("audit", *sure)
    assert shown.exit_code == 0, shown.output
    assert "broken on purpose" in shown.stdout
    assert "every broken one was caught" in shown.stdout
    # Something that is called sound and isn't.
    broken_but_called_sound = {n: replace(s, sound=True) for n, s in chosen.items()}
    monkeypatch.setattr(audit_registry, "subjects", lambda: broken_but_called_sound)
    blind = invoke("audit", *sure)
    assert blind.exit_code == 8
    assert "NOT AS IT SHOULD BE" in blind.stdout
    documents = json.loads(invoke("audit", "--json").stdout)
    assert [document["name"] for document in documents] == list(chosen)
