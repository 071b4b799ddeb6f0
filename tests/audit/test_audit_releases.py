"""Audits of a whole request: the noise of its Releases, what they tell apart, what they leak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noisewise.audit import (
    audit_release,
    chance_of_catching,
    stated_epsilon,
    stated_mu,
)
from noisewise.audit import challenge as audit_noise
from noisewise.audit.challenge import check_noise
from noisewise.audit.regression import exact_sums, noise_laws
from noisewise.core.noise import Gaussian, Laplace
from studies.self_audit.broken import (
    noise_scale_halved,
    with_mechanisms,
)
from studies.self_audit.regressions import request_for

CONFIDENCE = 0.9999


def test_half_of_the_gaussian_noise_is_caught_and_all_of_it_is_not():
    """At epsilon = 10 the pair is 1.6 sds apart, which 300 runs see; halved, 3.2."""
    request = request_for("hours+age", epsilon=10, delta="1e-6")
    assert chance_of_catching(request, 0.5, runs=300, confidence=CONFIDENCE) == 1
    assert chance_of_catching(request, 1.0, runs=300, confidence=CONFIDENCE) == 0
    broken = with_mechanisms(request, noise_scale_halved(request.mechanisms[0]))
    found = audit_release(broken, runs=300, confidence=CONFIDENCE)
    assert not found.passed
    assert found.result.mu < found.result.mu_lower < 2 * found.result.mu
    assert found.epsilon_shown > 10
    sound = audit_release(request, runs=300, confidence=CONFIDENCE)
    assert sound.passed
    assert sound.epsilon_shown < 10


@pytest.mark.parametrize("law", [Laplace(3.0), Gaussian(3.0)])
def test_noise_as_stated_passes_and_other_noise_does_not(law):
    rng = np.random.default_rng(6)
    draw = rng.laplace if isinstance(law, Laplace) else rng.normal
    noise = draw(0.0, 3.0, (400, 5))
    sound = check_noise(noise, [law] * 5)
    assert sound.passed
    assert 0.8 < sound.smallest <= sound.largest < 1.2
    assert 0.7 < sound.blind_above < 0.9
    less = noise.copy()
    less[:, 2] *= 0.6
    assert not check_noise(less, [law] * 5).enough
    none = noise.copy()
    none[:, 4] = 0.0
    assert not check_noise(none, [law] * 5).enough
    shared = noise.copy()
    shared[:, 1] = shared[:, 0]
    assert not check_noise(shared, [law] * 5).independent
    assert check_noise(noise[:, :1], [law]).passed


def test_sound_noise_is_hardly_ever_accused(monkeypatch):
    """At a level of 2% instead of 1e-6, so that it can be counted: 300 checks, two tests each."""
    monkeypatch.setattr(audit_noise, "FALSE_ALARMS", 0.02)
    rng = np.random.default_rng(7)
    checks = [check_noise(rng.laplace(size=(300, 4)), [Laplace(1.0)] * 4) for _ in range(300)]
    for found in (sum(not c.enough for c in checks), sum(not c.independent for c in checks)):
        assert found <= 16  # of 300 at 2%: more have probability 3e-4


def test_too_little_noise_is_seen_where_telling_people_apart_shows_nothing():
    request = request_for("hours+age", epsilon=1)
    broken = with_mechanisms(request, noise_scale_halved(request.mechanisms[0]))
    found = audit_release(broken, runs=100, confidence=CONFIDENCE)
    assert found.result.passed
    assert not found.noise.enough
    assert not found.passed
    assert audit_release(request, runs=100, confidence=CONFIDENCE).passed


def test_more_runs_see_more():
    request = request_for(epsilon=2)
    few, many = (chance_of_catching(request, 0.5, runs=runs) for runs in (200, 6000))
    assert few < 0.5
    assert many > 0.9


def test_the_score_is_the_log_likelihood_ratio_of_what_is_published():
    """Its exact values are the engine's, and for the worst pair its largest value is epsilon."""
    from noisewise.audit.regression import neighbours
    from noisewise.holder.engines import open_source

    request = request_for("hours+age", epsilon=2, fourth_moments="0.3")
    pair = neighbours(request)
    a, b = (exact_sums(request, open_source(t).sums(request.plan(), None)) for t in
            (pair.a, pair.b))  # fmt: skip
    scales = np.array([law.scale for law in noise_laws(request)])
    assert np.abs((a - b) / scales).sum() == pytest.approx(2 * pair.attained, rel=1e-3)
    assert stated_epsilon(request) == 2
    assert stated_mu(request.event) is None


def test_a_leak_beside_the_values_is_found(monkeypatch):
    """Negative control: a Release whose label depends on the rows."""
    from noisewise.holder.requests.regression import Request

    request = request_for(epsilon=1)
    assert audit_release(request, runs=40).only_values_differ
    honest = Request.release

    def leaking(self, n, sums):

        first = sums.values["second_moments"][0]
        return replace(honest(self, n, sums), label=f"total {first}")

    monkeypatch.setattr(Request, "release", leaking)
    found = audit_release(request, runs=40)
    assert not found.only_values_differ
    assert not found.passed
