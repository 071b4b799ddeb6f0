"""An audit of everything between rows and a Release, on the worst pair of neighbouring data sets.

Nothing is mocked: rows go through schema, request, ledger, engine, noise and the Release's text.
The noise can't be seeded, so these tests see new draws every time, and the sound mechanisms are
accused wrongly with probability at most 1 % for each audit by the audit's own promise. In fact it
is below 3e-5, because the region with the best power isn't the one with the largest ratio; the
tests of power compute that, and that broken mechanisms escape with probability below 3e-5.

A publication takes 3 to 12 ms (Laplace) or 6 to 15 ms (Gaussian), depending on how busy the machine
is; most of it is the ledger's durability and the composition of events. Halved Laplace noise needs
thousands of runs to be seen, for any audit: the five sums of one feature and one target share the
change, and the likelihood ratio is near its extremes only when all five noise draws agree. Hence

- the whole path, sound Gaussian noise, with runs that show half of it;
- from sums to the Release's text, sound Laplace noise, with runs that show a quarter of it;
- sums with sound Laplace noise, many at a time, with runs that show half of it;
- broken noise from sums on: it is drawn there, and what is before does not know.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from noisewise.audit import stated_epsilon
from noisewise.audit.engine import (
    audit,
    choose_region,
    distance,
    likelihood_ratio,
    ratio,
)
from noisewise.core.kinds.regression import Release
from noisewise.core.noise import Gaussian, Laplace
from noisewise.core.schema import Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.engines import open_source
from noisewise.holder.publish import publish
from noisewise.holder.requests.base import DEFAULT_DELTA
from noisewise.holder.requests.regression import make_request
from noisewise.holder.rows.sums import SumPlan
from studies.self_audit.broken import noise_scale_halved

from ..audit.power import detection_probability, worst_pair
from ..ledgers import ledger_for

pytestmark = pytest.mark.slow

SCHEMA = Schema(
    "audited",
    {"hours": Number(0, 60), "age": Number(18, 90), "income": Number(-1e4, 2.5e5)},
)
CAUGHT = 1 - 3e-5
WRONGLY = 3e-5  # what the audit promises is 0.01
TRAINING = 0.3


@pytest.fixture(scope="module")
def ledgers():
    """Names for new ledger files, in memory where the system has it: fsync would cost 20 ms each.

    Every run has a ledger of its own. With one ledger for all runs each would be a new label, and
    since every transaction reads the whole log the total would grow with the square of the runs.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield (
            ledger_for(Path(folder) / f"{number}.ledger", "audited") for number in itertools.count()
        )


def neighbours(request, norm_name):
    """Two data sets of four rows that differ in one: the worst pair of the request's design."""
    rest = [
        {"hours": 35.0, "age": 41.0, "income": 3.1e4},
        {"hours": 0.0, "age": 77.0, "income": 1.8e4},
        {"hours": 60.0, "age": 18.0, "income": -1e4},
    ]
    names = request.design.sources
    pair = worst_pair(request.design, norm_name)
    return [pd.DataFrame([*rest[:2], row, rest[2]])[list(names)] for row in pair]


def exact_moments(request, frame):
    """The sums on unit scale, from their definition: no grid, no engine."""
    columns = request.design.columns
    w = np.ones((len(frame), len(columns) + 1))
    for j, c in enumerate(columns):
        w[:, j + 1] = (frame[c.name] - c.centre) / c.half_width
    return np.array([(w[:, i] * w[:, j]).sum() for i, j in SecondMoments(request.design).entries])


def with_less_noise(request, halvings):
    """The same request, but its mechanism draws less noise than it states, unseen by `verify`."""
    broken = replace(request)
    mechanism = request.mechanisms[0]
    drawn = mechanism
    for _ in range(halvings):
        drawn = noise_scale_halved(drawn).drawn
    # `mechanisms` is a cached property; this is its cache.
    broken.__dict__["mechanisms"] = (replace(noise_scale_halved(mechanism), drawn=drawn),)
    return broken


def through_the_door(request, frame, ledgers):
    """Runs of the whole path: rows in, values of the Release that came out."""

    def run():
        published = publish(request, frame, ledger=next(ledgers))
        assert not published.repeated
        return published.release.second_moments.unit_values()

    return run


def from_sums(request, frame):
    """Runs from exact sums on: noise, Release, text, Release."""
    plan = SumPlan(request.design, request.geometry, request.statistics)
    sums = open_source(frame).sums(plan, None)

    def run():
        text = request.release(sums.n, sums).to_text()
        return Release.from_text(text).second_moments.unit_values()

    return run


def many_from_sums(request, frame):
    """Runs from exact sums to noisy ones, all in one call of OpenDP."""
    plan = SumPlan(request.design, request.geometry, request.statistics)
    sums = open_source(frame).sums(plan, None).values["second_moments"]

    def run(trials):
        noisy = request.mechanisms[0].add_noise([*sums] * trials)
        return np.reshape(noisy, (trials, len(sums))) / 2**32

    return run


def probability_of_an_accusation(draw_scores, trials, goal, **claim):
    """How probable it is that the audit says "violates" when scores have a certain law.

    The choice of the region is simulated (100 times, `draw_scores(n)` returns scores under A and
    B); given the region, the probability of an accusation is exact up to the region's own
    probabilities, which come from 300,000 draws.
    """
    training = round(trials * TRAINING)
    population = [np.sort(scores) for scores in draw_scores(300_000)]
    found = []
    for _ in range(100):
        alpha = (1 - claim.get("confidence", 0.99)) / 2
        _, direction, t = choose_region(*draw_scores(training), goal, alpha)
        if direction == "a over b":
            p = [1 - np.searchsorted(s, t, "left") / len(s) for s in population]
        else:
            p = [np.searchsorted(s, t, "right") / len(s) for s in population[::-1]]
        found.append(detection_probability(*p, held_out=trials - training, **claim))
    return np.mean(found)


# ---------------------------------------------------------------------------------------------
# Gaussian noise, whole path

# The budget is large for the sake of power: the pair is mu = 2 standard deviations apart, and with
# half of the noise 4. At epsilon = 1 and delta = 1e-5 tens of thousands of runs would be needed.
GAUSSIAN = make_request(SCHEMA, target="income", features=["hours", "age"], rho="2", rounds=1)
GAUSSIAN_CLAIM = {"epsilon": stated_epsilon(GAUSSIAN), "mu": 2.0, "confidence": 0.999}
GAUSSIAN_TRIALS = 300


def gaussian_audit(run_a, run_b):
    frames = neighbours(GAUSSIAN, "l2")
    law = Gaussian(GAUSSIAN.mechanisms[0].scale / 2**32)
    return audit(
        *(run_a, run_b),
        trials=GAUSSIAN_TRIALS,
        training=TRAINING,
        delta=float(DEFAULT_DELTA),
        **GAUSSIAN_CLAIM,
        seed=1,
        # Halving the scale multiplies this score by four, which moves no threshold's region.
        score=likelihood_ratio(law, *(exact_moments(GAUSSIAN, frame) for frame in frames)),
    )


def test_gaussian_power():
    """Effect size: for this pair the score is one Gaussian under A and under B, `apart` standard
    deviations away from each other.
    """
    mechanism = GAUSSIAN.mechanisms[0]
    change = np.subtract(*(exact_moments(GAUSSIAN, f) for f in neighbours(GAUSSIAN, "l2")))
    apart = np.linalg.norm(change) * 2**32 / mechanism.scale
    assert apart == pytest.approx(mechanism.sensitivity / mechanism.scale, rel=1e-9)  # the worst
    assert apart == pytest.approx(2, rel=1e-6)
    rng = np.random.default_rng(1)

    def accused(apart):
        def scores(n):
            return rng.normal(apart, 1, n), rng.normal(0, 1, n)

        return probability_of_an_accusation(scores, GAUSSIAN_TRIALS, distance, **GAUSSIAN_CLAIM)

    assert accused(2 * apart) > CAUGHT
    assert accused(apart) < WRONGLY


def test_gaussian_release_keeps_its_claim(ledgers):
    frames = neighbours(GAUSSIAN, "l2")
    result = gaussian_audit(*(through_the_door(GAUSSIAN, frame, ledgers) for frame in frames))
    print(result)
    assert result.passed, str(result)


def test_gaussian_release_with_half_of_the_noise_is_caught():
    broken = with_less_noise(GAUSSIAN, 1)
    result = gaussian_audit(*(from_sums(broken, f) for f in neighbours(GAUSSIAN, "l2")))
    print(result)
    assert not result.passed, str(result)


# ---------------------------------------------------------------------------------------------
# Laplace noise

LAPLACE = make_request(SCHEMA, target="income", features=["age"], epsilon=1)
LAPLACE_TRIALS = 700
MANY_TRIALS = 14_000


def laplace_audit(run_a, run_b, trials, batch=False):
    law = Laplace(LAPLACE.mechanisms[0].scale / 2**32)
    return audit(
        *(run_a, run_b),
        trials=trials,
        training=TRAINING,
        epsilon=1.0,
        batch=batch,
        seed=1,
        score=likelihood_ratio(
            law, *(exact_moments(LAPLACE, f) for f in neighbours(LAPLACE, "l1"))
        ),
    )


@pytest.mark.long
def test_laplace_power():
    """Effect size: for this pair the score is Σ clip(·) of five Laplace draws. With half of the
    noise the region score >= 0.6 has probabilities 0.185 and 0.041 under A and B, log ratio 1.5;
    with a quarter they are 0.26 and 0.013, log ratio 3.0.
    """
    a, b = (exact_moments(LAPLACE, frame) for frame in neighbours(LAPLACE, "l1"))
    scale = LAPLACE.mechanisms[0].scale / 2**32
    assert np.abs(a - b).sum() == pytest.approx(scale, rel=1e-9)  # epsilon is 1: the worst pair
    score = likelihood_ratio(Laplace(scale), a, b)
    rng = np.random.default_rng(1)

    def scores(factor):
        def draw(n):
            noise = rng.laplace(scale=scale * factor, size=(2, n, len(a)))
            return score(a + noise[0]), score(b + noise[1])

        return draw

    for factor, expected in ((0.5, (0.185, 0.041)), (0.25, (0.26, 0.013))):
        regions = [np.mean(s >= 0.6) for s in scores(factor)(400_000)]
        assert regions == pytest.approx(expected, rel=0.05)
    accused = partial(probability_of_an_accusation, goal=ratio(0.0), epsilon=1.0)
    for factor, trials in ((0.5, MANY_TRIALS), (0.25, LAPLACE_TRIALS)):
        assert accused(scores(factor), trials) > CAUGHT
        assert accused(scores(1.0), trials) < WRONGLY


def test_laplace_release_keeps_its_claim():
    runs = [from_sums(LAPLACE, frame) for frame in neighbours(LAPLACE, "l1")]
    result = laplace_audit(*runs, LAPLACE_TRIALS)
    print(result)
    assert result.passed, str(result)


def test_laplace_release_with_a_quarter_of_the_noise_is_caught():
    broken = with_less_noise(LAPLACE, 2)
    runs = [from_sums(broken, frame) for frame in neighbours(LAPLACE, "l1")]
    result = laplace_audit(*runs, LAPLACE_TRIALS)
    print(result)
    assert not result.passed, str(result)


def test_laplace_values_keep_their_claim():
    runs = [many_from_sums(LAPLACE, frame) for frame in neighbours(LAPLACE, "l1")]
    result = laplace_audit(*runs, MANY_TRIALS, batch=True)
    print(result)
    assert result.passed, str(result)


def test_laplace_values_with_half_of_the_noise_are_caught():
    broken = with_less_noise(LAPLACE, 1)
    runs = [many_from_sums(broken, frame) for frame in neighbours(LAPLACE, "l1")]
    result = laplace_audit(*runs, MANY_TRIALS, batch=True)
    print(result)
    assert not result.passed, str(result)


# ---------------------------------------------------------------------------------------------
# What isn't noisy


@pytest.mark.parametrize("request_", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
def test_only_the_noisy_values_depend_on_the_rows(request_, ledgers):
    """Everything else in the file is the same for both data sets, to the last character.

    (The digest covers the values.) An audit of the values alone would miss a leak beside them.
    """
    documents = []
    for frame in neighbours(request_, "l1"):
        document = publish(request_, frame, ledger=next(ledgers)).release.document
        (measurement,) = document["measurements"]
        values = measurement.pop("values")
        assert len(values) == len(request_.statistics[0].entries)
        documents.append((document, values))
    assert documents[0][0] == documents[1][0]
    assert documents[0][1] != documents[1][1]


def test_the_pair_differs_in_one_row_by_the_whole_sensitivity():
    """The audit's data are real neighbours, and the engine's sums are as far apart as promised."""
    for request_, norm_name in ((LAPLACE, "l1"), (GAUSSIAN, "l2")):
        frames = neighbours(request_, norm_name)
        assert (frames[0] != frames[1]).any(axis=1).sum() == 1
        plan = SumPlan(request_.design, request_.geometry, request_.statistics)
        sums = [open_source(f).sums(plan, None).values["second_moments"] for f in frames]
        change = np.subtract(*(np.array(s, dtype=object) for s in sums))
        size = sum(abs(c) for c in change) if norm_name == "l1" else math.isqrt(sum(change**2))
        sensitivity = request_.mechanisms[0].sensitivity
        assert sensitivity * (1 - 1e-4) < size <= sensitivity  # rows are rounded to 16 bits
