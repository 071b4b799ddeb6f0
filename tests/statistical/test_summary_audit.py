"""An audit of every block summary, from rows to the Release, with a record that turns a block.

Both tables have the same 59 rows on a rising line. The sixtieth is far out, and its block's line
goes through it: steeply up in table A, steeply down in table B. Blocks are drawn anew in every run,
and the noise has no seed; the powers are computed and asserted, so a failure is no accident.

The controls: half of the noise, and the two algorithms that Amitai & Reiter (2018) printed, with
the noise that they printed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from noisewise.audit.engine import audit, likelihood_ratio
from noisewise.core.design import Design
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    CauchyBase,
    Flat,
    LocationItem,
    LocationScale,
)
from noisewise.core.kinds.summary.release import MedianNoise
from noisewise.core.noise import Laplace
from noisewise.core.schema import Schema, Unbounded
from noisewise.holder.blocks import location_scale
from noisewise.holder.blocks.additive import exact_values, probabilities
from noisewise.holder.blocks.regressions import fit_blocks
from noisewise.holder.blocks.sums import BlockGrid, BlockPlan
from noisewise.holder.requests.summary import make_summary_request
from studies.amitai2018 import not_private as printed
from studies.self_audit.broken import noise_scale_halved

from ..audit.power import detection_probability

pytestmark = pytest.mark.slow

SCHEMA = Schema("audited", {"x": Unbounded(), "y": Unbounded()})
DESIGN = Design(SCHEMA, ("x",), "y")
POSITIONS = {"intercept": 0, "x": 1}
EPSILON = 1.0
CONFIDENCE = 0.999
TRIALS = 1000
TRAINING = 0.25
BLOCKS, PARTITIONS = 3, 2
ASKING = {
    "sign": {"questions": ["x < 0"]},
    "stouffer": {"questions": ["x < 0"], "clip": 1.0},
    "rescaled_normal": {"questions": ["x < 0"]},
    "fisher": {"questions": ["x < 0"], "p_star": 0.001},
    "clipped_mean": {"coefficients": ["x"], "quantiles": [0.5], "bounds": {"x": (-2, 2)}},
}


def rows(odd, count=60, noise=0.01):
    rng = np.random.default_rng(20261116)
    x = rng.normal(size=count)
    y = 0.1 * x + noise * rng.normal(size=count)
    x[-1], y[-1] = odd
    return [x, y]


UP, DOWN = (1e6, 1e8), (1e6, -1e8)


def sums(columns, blocks=BLOCKS, partitions=PARTITIONS):
    accumulator = BlockPlan(DESIGN, blocks, partitions).accumulator()
    accumulator.add(columns)
    return accumulator.result()


def request_for(name):
    words = {"target": "y", "features": ["x"], "epsilon": 1, "mechanism": name, **ASKING[name]}
    return make_summary_request(SCHEMA, **words, blocks=BLOCKS, partitions=PARTITIONS)


def audited(request):
    """From rows to the Release, all but the ledger."""

    def runs(columns):
        def run():
            return [float(value) for value in request.release(60, sums(columns)).values]

        return run

    exact = []
    for odd in (UP, DOWN):
        fits = fit_blocks(sums(rows(odd)), BlockGrid(DESIGN), Flat(), BLOCKS, 60)
        assert fits.valid.all()
        exact.append(exact_values(request.mechanism, fits, POSITIONS))
    change = abs(exact[0][0] - exact[1][0])
    assert abs(change / request.noise.sensitivity - 1) < 0.02  # two draws of the blocks
    return audit(
        runs(rows(UP)),
        runs(rows(DOWN)),
        trials=TRIALS,
        training=TRAINING,
        epsilon=EPSILON,
        confidence=CONFIDENCE,
        seed=1,
        score=likelihood_ratio(Laplace(float(request.noise.scale)), *exact),
    )


def halved(request):
    broken = replace(request)
    # `laplace` and `noise` are cached properties; these are their caches.
    broken.__dict__["noise"] = request.noise
    broken.__dict__["laplace"] = noise_scale_halved(request.laplace)
    return broken


def test_power():
    held_out = round(TRIALS * (1 - TRAINING))
    claim = {"held_out": held_out, "epsilon": EPSILON, "confidence": CONFIDENCE}
    assert detection_probability(0.5, 0.5 * math.exp(-1.96), **claim) > 1 - 2e-5
    assert detection_probability(0.5, 0.5 * math.exp(-1), **claim) < 1e-5  # 0.001 is promised


@pytest.mark.parametrize("name", ASKING)
def test_every_mechanism_keeps_its_claim(name):
    result = audited(request_for(name))
    print(result)
    assert result.passed, str(result)


@pytest.mark.parametrize("name", ["sign", "fisher", "clipped_mean"])  # they share the noise
def test_half_of_the_noise_is_caught(name):
    result = audited(halved(request_for(name)))
    print(result)
    assert not result.passed, str(result)


# ---------------------------------------------------------------------------------------------
# Medians: nearly all of the base law is to the left of the line's slope, and the odd record's block
# is at one end or the other. Then the weight of what is to the right and the sum of all weights
# both change by exp(eps/2), against each other, and the ratio comes close to exp(eps).

SLOPE_QUANTILE = 0.9
MEDIAN_EPSILON = 2.0
MEDIAN_TRIALS = 1400
BASE = CauchyBase(0.1 - math.tan(math.pi * (SLOPE_QUANTILE - 0.5)), 1.0)
MEDIAN = LocationScale((LocationItem("x", BASE, CauchyBase(0, 1)),))


def median_runs(odd, epsilon):
    noise = MedianNoise(Fraction(epsilon), Fraction(1), 1)
    columns = rows(odd, noise=0.0)
    sizes = (BLOCKS, noise, PARTITIONS)

    def run():
        fits = fit_blocks(sums(columns), BlockGrid(DESIGN), Flat(), BLOCKS, 60)
        location, _ = location_scale.draw(MEDIAN, fits, POSITIONS, *sizes, by_spread=True)
        return [location / CELLS]

    return run


def audited_median(epsilon):
    return audit(
        median_runs((1e6, -1e12), epsilon),
        median_runs((1e6, 1e12), epsilon),
        trials=MEDIAN_TRIALS,
        training=TRAINING,
        epsilon=MEDIAN_EPSILON,
        seed=1,
        score=lambda outputs: -outputs[:, 0],
    )


def shares(epsilon):
    """Exact chances of being to the right of the slope, with the odd block left and right."""
    high, low = math.exp(epsilon / 2), 1.0  # d = N - 2r on the odd record's side, else N
    a = (1 - SLOPE_QUANTILE) * low / (SLOPE_QUANTILE * high + (1 - SLOPE_QUANTILE) * low)
    b = (1 - SLOPE_QUANTILE) * high / (SLOPE_QUANTILE * low + (1 - SLOPE_QUANTILE) * high)
    return b, a


def test_power_of_the_median_audit():
    claim = {"held_out": round(MEDIAN_TRIALS * (1 - TRAINING)), "epsilon": MEDIAN_EPSILON}
    likelier, rarer = shares(MEDIAN_EPSILON)
    assert 0.85 * MEDIAN_EPSILON < math.log(likelier / rarer) < MEDIAN_EPSILON
    assert detection_probability(*shares(2 * MEDIAN_EPSILON), **claim) > 1 - 1e-5
    assert detection_probability(likelier, rarer, **claim) < 1e-5


def test_the_median_keeps_its_claim():
    result = audited_median(MEDIAN_EPSILON)
    print(result)
    assert result.passed, str(result)
    assert result.epsilon_lower > 0.3 * MEDIAN_EPSILON  # the audit does see something


def test_a_median_with_half_of_the_noise_is_caught():
    result = audited_median(2 * MEDIAN_EPSILON)
    print(result)
    assert not result.passed, str(result)


# ---------------------------------------------------------------------------------------------
# What the paper printed

PAPER_BLOCKS = 100


def block_probabilities(odd):
    columns = rows(odd, count=2_000)
    fits = fit_blocks(
        sums(columns, PAPER_BLOCKS, 1), BlockGrid(DESIGN), Flat(), PAPER_BLOCKS, 2_000
    )
    return probabilities(fits, 1, 0.0)


def audited_paper(statistic, epsilon):
    rng = np.random.default_rng(7)
    up, down = block_probabilities(UP), block_probabilities(DOWN)
    assert np.sum(np.abs(up - down) > 0.5) == 1  # the odd record's block in the second table
    return audit(
        lambda trials: statistic(np.broadcast_to(up, (trials, PAPER_BLOCKS)), rng)[:, None],
        lambda trials: statistic(np.broadcast_to(down, (trials, PAPER_BLOCKS)), rng)[:, None],
        trials=TRIALS,
        epsilon=epsilon,
        seed=1,
        batch=True,
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_fisher_as_printed_is_not_private(epsilon):
    scale = printed.fisher_printed_scale(PAPER_BLOCKS, epsilon, 0.001)
    result = audited_paper(lambda p, rng: printed.fisher_statistic(p, 0.001, scale, rng), epsilon)
    print(result)
    assert not result.passed, str(result)
    assert result.epsilon_lower > 4 * epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_fisher_with_the_right_scale_is(epsilon):
    """The same statistic with M times the noise: what is wrong is the noise, nothing else."""
    scale = printed.fisher_right_scale(epsilon, 0.001)
    result = audited_paper(lambda p, rng: printed.fisher_statistic(p, 0.001, scale, rng), epsilon)
    assert result.passed, str(result)


def test_rescaled_normal_as_printed_is_not_private_below_one():
    epsilon = 0.1
    scale = printed.rescaled_normal_printed_scale(PAPER_BLOCKS, epsilon)
    assert scale == pytest.approx(epsilon / PAPER_BLOCKS)
    result = audited_paper(lambda p, rng: printed.rescaled_normal_statistic(p, scale, rng), epsilon)
    print(result)
    assert not result.passed, str(result)
    right = printed.rescaled_normal_right_scale(PAPER_BLOCKS, epsilon)
    result = audited_paper(lambda p, rng: printed.rescaled_normal_statistic(p, right, rng), epsilon)
    assert result.passed, str(result)
