"""Audits of a holder's own summaries, networks and draws: sound ones pass, broken ones are caught.

A sound request is accused wrongly with probability 1e-4 by the attack and 2e-6 by the checks of its
noise. Broken ones are so far off that hardly any would escape.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from noisewise.audit import (
    _only_values_differ,
    audit_release,
    challenge_of,
    chance_of_catching,
)
from noisewise.audit import challenge as audit_noise
from noisewise.audit.challenge import Steps, check_draws, check_noise, spread_out
from noisewise.audit.network import _Records
from noisewise.audit.summary import median_law
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.release import NoisyCounts
from noisewise.core.kinds.summary.mechanisms import CELLS
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.holder.blocks import location_scale
from noisewise.holder.blocks.median import draw_median, median_rate
from noisewise.holder.draws import RegressionSample
from noisewise.holder.mechanisms import randomness
from noisewise.holder.networks.counts import LaplaceCounts
from noisewise.holder.networks.fourier import FourierParities
from noisewise.holder.networks.learned import LearnedGraph
from noisewise.holder.networks.map import GridMap
from noisewise.holder.networks.posterior_sample import PosteriorSample
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.network import NetworkRequest, make_network_request
from noisewise.holder.requests.summary import SummaryRequest, make_summary_request
from studies.self_audit.broken import noise_scale_halved

CONFIDENCE = 0.9999
COLUMNS = {
    "age": Number(18, 90),
    "hours": Unbounded(10.0),
    "region": Category(("north", "south", "east"), "north"),
    "disease": Category(("no", "yes"), "no"),
    "smoker": Category(("no", "yes"), "no"),
    "income": Number(0, 200_000),
}


def schema(neighbours="replace_one", rows=1):
    return Schema("audited", COLUMNS, neighbours=neighbours, max_rows_per_unit=rows)


def summary(neighbours="replace_one", rows=1, **words):
    given = {"features": ["age", "hours"], "epsilon": 2, "blocks": 100, "partitions": 2}
    declared = schema(neighbours, rows)
    return make_summary_request(declared, **({"target": "income"} | given | words))


def network(neighbours="replace_one", rows=1, **words):
    given = {"network": {"region": [], "disease": ["region"]}, "epsilon": 2}
    return make_network_request(schema(neighbours, rows), **(given | words))


def draws(neighbours="replace_one", rows=1, **words):
    given = {"features": ["age", "region"], "noise_sd": 50_000, "epsilon": 2}
    declared = schema(neighbours, rows)
    return make_regression_sample_request(declared, target="income", **(given | words))


MEDIANS = {"coefficients": ["hours"], "epsilon": 4, "partitions": 1, "mechanism": "location_scale"}
MEANS = {"coefficients": ["hours"], "epsilon": 4, "partitions": 1, "blocks": 65}
MODEL = {"model": "logistic", "blocks": 20, "partitions": 1, "epsilon": "0.5"}
SOUND = {
    "sign": lambda: summary(questions=["hours < 0"]),
    "stouffer": lambda: summary("add_remove_one", questions=["hours < 5"], mechanism="stouffer"),
    "rescaled_normal": lambda: summary(questions=["age < 0"], mechanism="rescaled_normal"),
    "fisher": lambda: summary(rows=2, questions=["intercept < 100"], mechanism="fisher"),
    "clipped_mean": lambda: summary(
        coefficients=["hours"], quantiles=[0.1, 0.9], bounds={"hours": (-50, 50)}
    ),
    "level": lambda: summary(features=["age", "region"], questions=["region[south] < 0"]),
    "medians": lambda: summary(**MEDIANS),
    "means": lambda: summary(**MEANS),
    "model": lambda: summary("add_remove_one", questions=["hours < 0"], mechanism="sign", **MODEL),
    "counts": network,
    "counts_of_one_more": lambda: network("add_remove_one", epsilon="0.5"),
    "parities": lambda: network(rows=2, mechanism="fourier"),
    "tables": lambda: network(mechanism="posterior_sample", draws=2),
    "tables_of_one_more": lambda: network("add_remove_one", mechanism="posterior_sample"),
    "tables_of_a_firm_prior": lambda: network(mechanism="posterior_sample", concentration=10**5),
    "map": lambda: network(mechanism="map", kind="tempered"),
    "grid": lambda: network(mechanism="map", kind="grid", points=4),
    "learned": lambda: network(network="learn", features=["region", "disease", "smoker"]),
    "learned_with_delta": lambda: network(
        network="learn", features=["region", "disease", "smoker"], delta="1e-6"
    ),
    "coefficients": draws,
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_request_passes(name):
    request = SOUND[name]()
    request.verify()
    found = audit_release(request, runs=60, confidence=CONFIDENCE)
    assert found.passed, (str(found.result), found.noise, found.only_values_differ)
    assert 0.6 < found.pair.attained < 1 + 1e-9


def test_a_target_of_two_levels_is_audited_as_a_number():
    request = summary(target="disease", questions=["hours < 0"], mechanism="sign", **MODEL)
    challenge = challenge_of(request)
    assert challenge.pair.attained == pytest.approx(1, abs=1e-6)
    assert challenge.request.schema.columns["disease"] == Number(0, 1)
    assert _only_values_differ(challenge)


# --- controls -------------------------------------------------------------------------------------


def less_noise(request):
    """Block summaries with a quarter of their noise."""
    stated = request.noise
    drawn = noise_scale_halved(noise_scale_halved(request.laplace).drawn)
    broken = replace(request)
    broken.__dict__.update(noise=stated, laplace=drawn)  # the caches of cached properties
    return broken


@pytest.mark.parametrize("name", ["sign", "stouffer", "clipped_mean", "level"])
def test_summaries_with_a_quarter_of_the_noise_are_caught(name):
    request = SOUND[name]()
    found = audit_release(less_noise(request), runs=100, confidence=CONFIDENCE)
    assert not found.noise.enough
    assert not found.passed
    if request.noise.scale > 100:  # a quarter of few integers is mostly zero, whatever the rest
        assert 0.15 < found.noise.smallest < 0.35


def test_the_attack_on_a_summary_sees_it_too():
    """At four times the claimed epsilon of 1; what it takes is said beforehand."""
    request = summary(questions=["hours < 0"], epsilon=1, blocks=20)
    challenge = challenge_of(request)
    size = {"runs": 400, "confidence": CONFIDENCE}
    assert chance_of_catching(challenge, 0.25, **size) == 1
    assert chance_of_catching(challenge, 1.0, **size) == 0
    assert not audit_release(less_noise(request), **size).result.passed


def test_a_model_with_a_quarter_of_the_noise_is_caught():
    """Blocks that tell most: the attack sees it, and so does what is known of the noise."""
    request = summary(questions=["hours < 0"], mechanism="sign", **MODEL)
    found = audit_release(less_noise(request), runs=400, confidence=CONFIDENCE)
    assert found.pair.attained == 1
    assert not found.noise.enough
    assert not found.result.passed


def test_medians_that_follow_the_blocks_too_closely_are_caught(monkeypatch):
    request = summary(**MEDIANS)
    monkeypatch.setattr(location_scale, "median_rate", lambda *given: 8 * median_rate(*given))
    found = audit_release(request, runs=120)
    assert not found.noise.enough
    assert not found.passed


def test_means_with_a_quarter_of_the_noise_are_caught():
    request = summary(**MEANS)
    assert request.mechanism.name == "mean"
    found = audit_release(less_noise(request), runs=150, confidence=CONFIDENCE)
    assert not found.noise.enough
    assert not found.passed


def test_counts_with_less_noise_are_caught(monkeypatch):
    """An eighth of it: the noise shows it, and the attack alone does too."""
    sound = LaplaceCounts.draw

    def draw(self, counts):
        drawn = sound(replace(self, epsilon=8 * self.epsilon), counts)
        return NoisyCounts(drawn.values, self.scale, self.sensitivity)

    request = network(epsilon=1)
    monkeypatch.setattr(LaplaceCounts, "draw", draw)
    found = audit_release(request, runs=300, confidence=CONFIDENCE)
    assert not found.noise.enough
    assert not found.result.passed, str(found.result)


@pytest.mark.parametrize("share", [2, 8])
def test_a_learned_graph_with_less_noise_is_caught(share, monkeypatch):
    """Half of all its noise shows; with an eighth the attack alone, on all that it publishes, wins.

    The choices have less noise, too: everything comes from one function.
    """
    sound = randomness.laplace_measurement
    monkeypatch.setattr(randomness, "laplace_measurement", lambda scale: sound(scale / share))
    with pytest.raises(AssertionError, match="OpenDP charges"):
        SOUND["learned"]().verify()  # which the door would ask for first
    monkeypatch.setattr(LearnedGraph, "verify", lambda _: None)
    found = audit_release(SOUND["learned"](), runs=300, confidence=CONFIDENCE)
    assert not found.noise.enough
    assert not found.passed
    assert share == 2 or not found.result.passed, str(found.result)


def test_a_learned_graph_with_less_gaussian_noise_is_caught(monkeypatch):
    """An eighth of it: the noise shows it, and the attack sees 3 standard deviations, not .5."""
    sound = randomness.gaussian_measurement
    monkeypatch.setattr(randomness, "gaussian_measurement", lambda scale: sound(scale // 8))
    monkeypatch.setattr(LearnedGraph, "verify", lambda _: None)
    request = SOUND["learned_with_delta"]()
    found = audit_release(request, runs=200, confidence=CONFIDENCE)
    assert not found.noise.enough
    assert found.result.mu_lower > found.result.mu > 0, str(found.result)
    assert not found.passed


def test_parities_that_share_noise_are_caught(monkeypatch):
    sound = FourierParities.draw

    def draw(self, counts):
        drawn = sound(self, counts)
        exact = _Records(network(mechanism="fourier")).measured(counts).astype(int)
        noise = drawn.values[0] - int(exact[0])
        return replace(drawn, values=tuple(int(value) + noise for value in exact))

    request = network(mechanism="fourier")
    monkeypatch.setattr(FourierParities, "draw", draw)
    found = audit_release(request, runs=60)
    assert not found.noise.independent
    assert not found.passed


@pytest.mark.parametrize(
    ("name", "mechanism", "sharper"),
    [
        ("tables", PosteriorSample, lambda planned: {"temper": 60 * planned.temper}),
        ("grid", GridMap, lambda planned: {"epsilon": 60 * planned.epsilon}),
        (
            "coefficients",
            RegressionSample,
            lambda planned: {"law": replace(planned.law, temper=Fraction(1))},
        ),
    ],
)
def test_draws_that_follow_the_rows_too_closely_are_caught(name, mechanism, sharper, monkeypatch):
    request, sound = SOUND[name](), mechanism.draw
    if name == "coefficients":  # noise_sd so small that the plain posterior is far from tempered
        request = draws(noise_sd=2_000)

    def draw(self, rows):
        drawn = sound(replace(self, **sharper(self)), rows)
        return replace(drawn, temper=self.temper) if name == "tables" else drawn

    if name == "tables":  # the cost of what is stated is checked on the way out
        monkeypatch.setattr("noisewise.holder.networks.posterior_sample.cost_of_draws",
                            lambda *_: Fraction(0))  # fmt: skip
    if name == "grid":
        factor = request.planned.factor
        stated = mechanism.draw

        def draw(self, rows):
            return replace(stated(replace(self, **sharper(self)), rows), temper=factor)

    monkeypatch.setattr(mechanism, "draw", draw)
    found = audit_release(request, runs=100)
    assert not found.noise.enough, found.noise
    assert not found.passed


@pytest.mark.parametrize(
    ("kind", "make"), [(SummaryRequest, SOUND["sign"]), (NetworkRequest, SOUND["counts"])]
)
def test_a_leak_beside_the_values_is_found(kind, make, monkeypatch):
    honest, request = kind.release, make()
    assert audit_release(request, runs=40).only_values_differ
    seen = iter(range(10_000))

    def leaking(self, n, result):
        return replace(honest(self, n, result), label=f"release {next(seen)}")

    monkeypatch.setattr(kind, "release", leaking)
    found = audit_release(request, runs=40)
    assert not found.only_values_differ
    assert not found.passed


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("mechanism", ["laplace", "fourier", "posterior_sample"])
def test_no_two_records_are_farther_apart(mechanism, neighbours):
    """Brute force over all pairs of records of a small network."""
    request = network(neighbours, mechanism=mechanism)
    records = _Records(request)
    everybody = list(itertools.product(range(3), range(2)))
    farthest = max(records._distance(u, v) for u, v in itertools.product(everybody, repeat=2))
    found = challenge_of(request).pair
    assert found.attained * records._allowed() == pytest.approx(farthest)
    assert found.attained <= 1


def test_tables_differ_in_one_unit():
    for make in (SOUND["fisher"], SOUND["parities"], lambda: draws(rows=2)):
        pair = challenge_of(make()).pair
        rows = [list(zip(*table.values(), strict=True)) for table in (pair.a, pair.b)]
        assert len(rows[0]) == len(rows[1])
        assert rows[0][:-2] == rows[1][:-2]
        assert rows[0][-2:] != rows[1][-2:]
    pair = challenge_of(SOUND["stouffer"]()).pair
    assert [len(table["age"]) for table in (pair.a, pair.b)] == [4501, 4500]


def test_a_declared_number_of_rows_decides_the_blocks_and_no_more():
    """An audit of a million rows makes do with those that its blocks need."""
    declared = {"questions": ["hours < 0"], "mechanism": "stouffer", "partitions": None}
    request = make_summary_request(
        schema(), target="income", features=["hours"], epsilon=8, rows=10**6, **declared
    )
    challenge = challenge_of(request)
    assert request.rows == 10**6
    assert request.blocks == challenge.request.blocks == 100
    assert len(challenge.pair.a["hours"]) < 4000
    assert audit_release(challenge, runs=40, confidence=CONFIDENCE).passed


def test_a_network_that_is_too_large_is_refused():
    levels = tuple(map(str, range(50)))
    columns = {name: Category(levels, "0") for name in "abc"}
    words = {"network": {"a": [], "b": [], "c": ["a", "b"]}, "epsilon": 1}
    request = make_network_request(Schema("large", columns), **words)
    with pytest.raises(RequestError, match="fewer nodes"):
        challenge_of(request)


# --- laws -----------------------------------------------------------------------------------------


def test_the_law_of_a_median_is_that_of_its_draws():
    rng = np.random.default_rng(1)
    cells = (CELLS * rng.beta(3, 2, 41)).astype(np.int64)
    cells[5:9] = cells[4]  # ties
    rate = Fraction(1, 7)
    drawn = np.array([float(draw_median(cells, rate)) for _ in range(800)]).reshape(2, 400, 1)
    law, narrower = (median_law(cells, factor * float(rate)) for factor in (1, 3))
    assert check_draws(*law.uniform(drawn, rng)).passed
    assert not check_draws(*narrower.uniform(drawn, rng)).passed


def test_uniform_numbers_pass_and_others_do_not():
    rng = np.random.default_rng(2)
    a, b = rng.random((2, 400, 3))
    assert check_draws(a, b).passed
    assert not check_draws(a**2, b).enough
    assert not check_draws(a**2, 1 - b**2).enough  # off in opposite ways
    narrow = check_draws(0.3 + 0.4 * a, 0.3 + 0.4 * b)
    assert not narrow.enough
    twice = [np.column_stack([uniform, uniform[:, 0]]) for uniform in (a, b)]
    assert not check_draws(*twice).independent
    assert check_draws(*twice, independent=False).passed
    assert check_draws(a**2, b, simulated=100).enough  # laws that are known to 0.3 only
    assert not check_draws(a**2, b, simulated=40_000).enough


def test_sound_draws_are_hardly_ever_accused(monkeypatch):
    """At a level of 2% instead of 1e-6, so that it can be counted: 300 checks, two tests each."""
    monkeypatch.setattr(audit_noise, "FALSE_ALARMS", 0.02)
    rng = np.random.default_rng(8)
    checks = [check_draws(*rng.random((2, 150, 4))) for _ in range(300)]
    for found in (sum(not c.enough for c in checks), sum(not c.independent for c in checks)):
        assert found <= 16  # of 300 at 2%: more have probability 3e-4


def test_steps_with_and_without_atoms():
    rng = np.random.default_rng(3)
    edges, logs = np.array([0.0, 1.0, 4.0, 5.0]), np.log([1.0, 2.0, 5.0])
    for unit in (1e-9, None):
        law = Steps.weighted(edges, logs, unit)
        assert check_draws(*law.uniform(law.draw(2000, rng).reshape(2, 1000, 1), rng)).passed
    np.testing.assert_allclose(
        np.exp(law.logpdf(np.array([0.5, 2.0, 4.5]))), [1 / 8, 1 / 12, 5 / 8]
    )
    other = Steps.weighted(edges, np.zeros(3), None)
    assert law.divergence(law) == 0
    expected = sum(p * np.log(3 * p) for p in (1 / 8, 2 / 8, 5 / 8))
    assert law.divergence(other) == pytest.approx(expected)


@pytest.mark.parametrize("scale", [0.4, 3.0, 1e6])
def test_discrete_noise_is_judged_by_its_own_law(scale):
    """At a scale of 0.4 most of it is zero, which is as it should be."""
    from noisewise.core.noise import Laplace

    rng = np.random.default_rng(4)

    def discrete(scale):
        drawn = rng.geometric(-np.expm1(-1 / scale), (2, 2000, 2))
        return (drawn[0] - drawn[1]).astype(float)

    laws = [Laplace(scale)] * 2
    assert check_noise(spread_out(discrete(scale), scale, rng), laws).passed
    assert not check_noise(spread_out(discrete(scale / 2), scale, rng), laws).enough


# --- the way there --------------------------------------------------------------------------------


def test_every_run_is_reported():
    seen = []
    audit_release(network(), runs=40, report=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 80) for done in range(1, 81)]


def test_what_cannot_be_published_cannot_be_audited():
    with pytest.raises(RequestError, match="cannot be audited"):
        challenge_of(object())
