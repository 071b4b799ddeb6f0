"""Noise functions that are broken, or of a version that nobody has tried, are never used."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.core.errors import RequestError
from noisewise.holder.mechanisms import known_answers, randomness
from noisewise.holder.mechanisms.known_answers import check

from ..ledgers import ledger_for

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def holders_noise():
    """Real noise: right noise fails here with probability below 1e-12 a check."""


@pytest.fixture
def fresh():
    """As in a new process, and again as before afterwards."""
    randomness._opendp.cache_clear()
    yield
    randomness._opendp.cache_clear()


class Changed:
    """A mechanism of OpenDP with another noise; the privacy map is the stated one."""

    def __init__(self, scale, make, noise):
        self.map = make(scale).map
        self._noise = noise
        self._scale = scale

    def __call__(self, sums):
        return self._noise(self._scale, list(sums))


LAPLACE, GAUSSIAN = randomness.laplace_measurement, randomness.gaussian_measurement
MAKERS = {"laplace": LAPLACE, "gaussian": GAUSSIAN}


def found_in(law, noise):
    """What the check says of one law's noise when it is replaced."""
    changed = dict(MAKERS)
    changed[law] = lambda scale: Changed(scale, MAKERS[law], noise)
    return check(*changed.values())


def test_right_noise_passes():
    assert check(LAPLACE, GAUSSIAN) == ""


def times(factor):
    """Noise of another scale, but for the one that adds nothing."""

    def noise(scale, sums, make):
        return make(scale if scale < 1 else round(scale * factor))(sums)

    return noise


def same_for_all(scale, sums, make):
    (noise,) = make(scale)([0])
    return [value + noise for value in sums]


def without_low_digits(scale, sums, make):
    """As a rounded double of the continuous law would be."""
    step = 1 if scale < 1000 else 1 << 10
    return [
        value + (noisy - value) // step * step
        for value, noisy in zip(sums, make(scale)(sums), strict=True)
    ]


def rounded_continuous(scale, sums, make):
    """Differs from the discrete law by little at scale 4, but has no zero at scale 1/1024."""
    rng = np.random.default_rng()
    return [value + (1 if scale < 1 else int(rng.laplace(scale=scale))) for value in sums]


FAULTS = {
    "no noise": lambda scale, sums, make: sums,
    "noise where there is none": rounded_continuous,
    "half the scale": times(0.5),
    "twice the scale": times(2),
    "one sign": lambda scale, sums, make: [
        value + abs(noisy - value) for value, noisy in zip(sums, make(scale)(sums), strict=True)
    ],
    "the same noise for all": same_for_all,
    "another order": lambda scale, sums, make: make(scale)(sums)[::-1],
    "even noise": lambda scale, sums, make: [
        value + (noisy - value) // 2 * 2
        for value, noisy in zip(sums, make(scale)(sums), strict=True)
    ],
    "no low digits": without_low_digits,
    "32 bits": lambda scale, sums, make: [
        (noisy + 2**31) % 2**32 - 2**31 for noisy in make(scale)(sums)
    ],
    "every draw twice": lambda scale, sums, make: [
        noisy for noisy in make(scale)(sums[::2]) for _ in range(2)
    ][: len(sums)],
}


@pytest.mark.parametrize("law", MAKERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_gross_faults_are_found(law, fault):
    noise = FAULTS[fault]
    told = found_in(law, lambda scale, sums: noise(scale, sums, MAKERS[law]))
    assert told.startswith(f"{law.capitalize()} noise")


@pytest.mark.parametrize(("law", "name"), [("laplace", "Laplace"), ("gaussian", "Gaussian")])
@pytest.mark.parametrize("factor", [0.5, 0.999, 1.001, 2])
def test_another_privacy_map_is_found(law, name, factor):
    class Other:
        def __init__(self, scale):
            self.map = lambda moved: factor * MAKERS[law](scale).map(moved)

    makers = {**MAKERS, law: Other}
    assert check(*makers.values()) == f"the privacy map of {name} noise is wrong"


@pytest.mark.parametrize("probability", [0.01, 0.125, 0.5, 0.9, 2**-40])
def test_the_chance_of_a_false_alarm(probability):
    """The exact binomial probability of a refusal is within the bound of the proof."""
    n = known_answers.DRAWS
    alarm = 0.0
    for count in range(n + 1):
        if not known_answers._agrees([True] * count + [False] * (n - count), probability):
            log = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
            log += count * math.log(probability) + (n - count) * math.log1p(-probability)
            alarm += math.exp(log)
    assert 0 < alarm <= 2 * known_answers._ALARM
    assert 24 * 2 * known_answers._ALARM < 1e-13


@pytest.mark.parametrize("scale", [known_answers._SMALL, known_answers._LARGE])
@pytest.mark.parametrize("name", ["Laplace", "Gaussian"])
def test_the_probabilities_are_those_of_the_laws(name, scale):
    """Shares of very many draws are where they are said to be, within 6 standard errors each."""
    n = 40_000
    make = MAKERS[name.lower()]
    law = (known_answers._laplace if name == "Laplace" else known_answers._gaussian)(4)
    shares = list(known_answers._shares(make(scale)([0] * n), scale, law, name))
    assert len(shares) == 6
    for what, found, probability in shares:
        sd = math.sqrt(probability * (1 - probability) / len(found))
        assert np.mean(found) == pytest.approx(probability, abs=6 * sd + 1 / n), what


# --- before anything is charged -------------------------------------------------------------------


def test_the_package_asks_for_what_was_tested():
    [asked] = [d for d in PROJECT["project"]["dependencies"] if d.startswith("opendp")]
    assert asked == f"opendp=={','.join(randomness.TESTED)}"


def test_an_untested_version_is_refused_with_a_way_out(fresh, monkeypatch):
    monkeypatch.setattr(randomness, "version", lambda name: "0.99.0")
    with pytest.raises(RequestError, match=r"not tested with version 0\.99\.0.*=0\.99\.0: you"):
        randomness.laplace_measurement(1.0)
    monkeypatch.setenv(randomness.OVERRIDE, "0.98.0")  # of another version
    with pytest.raises(RequestError, match="not tested"):
        randomness.laplace_measurement(1.0)
    monkeypatch.setenv(randomness.OVERRIDE, "0.99.0")
    assert randomness.laplace_measurement(4.0).map(1) == 0.25


def test_an_untested_version_is_tested_briefly_all_the_same(fresh, monkeypatch):
    monkeypatch.setattr(randomness, "version", lambda name: "0.99.0")
    monkeypatch.setenv(randomness.OVERRIDE, "0.99.0")
    monkeypatch.setattr(known_answers, "check", lambda *makers: "it is always 7")
    with pytest.raises(RequestError, match=r"failed a test .*: it is always 7\. Nothing was"):
        randomness.gaussian_measurement(4)


def test_it_is_done_once(fresh, monkeypatch):
    done = []
    monkeypatch.setattr(known_answers, "check", lambda *makers: done.append(1) or "")
    for _ in range(3):
        randomness.laplace_measurement(1.0)
        randomness.gaussian_measurement(1)
    assert done == [1]


YES_NO = nw.Category(("no", "yes"), "no")
PEOPLE = nw.Schema(
    "people",
    {"age": nw.Number(18, 90), "score": nw.Number(0, 10), "smoker": YES_NO, "cough": YES_NO},
)
MODEL = {"target": "score", "features": ["age"], "epsilon": 5}
BLOCKS = {**MODEL, "blocks": 66}


def network_request(**words):
    network = nw.Network.make(PEOPLE, [("smoker", "cough")])
    return nw.make_network_request(PEOPLE, network=network, epsilon=5, **words)


REQUESTS = {
    "sums": lambda: nw.make_request(PEOPLE, **MODEL),
    "sums with normal noise": lambda: nw.make_request(PEOPLE, **MODEL, delta="1e-6", rounds=1),
    "sums in rounds": lambda: nw.make_request(PEOPLE, **MODEL, delta="1e-6"),
    "logistic": lambda: nw.make_glm_request(
        PEOPLE, family="logistic", formula="cough ~ age", epsilon=5
    ),
    "network": network_request,
    "fourier": lambda: network_request(mechanism="fourier"),
    "signs": lambda: nw.make_summary_request(PEOPLE, **BLOCKS, questions=["age < 0"]),
    "means": lambda: nw.make_summary_request(
        PEOPLE, **BLOCKS, mechanism="mean", coefficients=["age"]
    ),
    "a learned graph": lambda: nw.make_network_request(
        PEOPLE.restricted_to(("smoker", "cough")), network="learn", epsilon=5
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_refusal_costs_nothing(name, tmp_path, monkeypatch):
    rng, n = np.random.default_rng(1), 2000
    rows = {"age": rng.uniform(18, 90, n), "score": rng.uniform(0, 10, n)}
    rows |= {name: rng.choice(["no", "yes"], n) for name in ("smoker", "cough")}

    def refuses():
        raise RequestError("opendp: not today")

    monkeypatch.setattr(randomness, "_opendp", refuses)
    ledger = ledger_for(tmp_path / "budget.db")
    with pytest.raises(RequestError, match="not today"):
        nw.publish(REQUESTS[name](), rows, ledger=ledger)
    with nw.Ledger(ledger) as book:
        assert not book.accounts()[0].charges
