"""From rows to the analyst's answer, many times: probabilities and intervals keep their word.

The data have fixed seeds; the blocks and the noise have none, so thresholds are such that a sound
pipeline fails once in a million runs. The controls take the noise for signal.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.core.schema import Schema, Unbounded
from noisewise.holder.requests.summary import make_summary_request

pytestmark = pytest.mark.slow

SCHEMA = Schema("d", {"x1": Unbounded(), "x2": Unbounded(), "y": Unbounded(10.0)})
BETA = 2.0


def posteriors(request, repetitions, rows, heavy):
    for seed in range(repetitions):
        rng = np.random.default_rng([20261116, seed])
        x1 = rng.normal(size=rows)
        x2 = 0.5 * x1 + rng.normal(size=rows)
        errors = (
            rng.standard_t(5, rows) * (1 + 0.5 * np.abs(x1)) if heavy else rng.normal(size=rows)
        )
        accumulator = request.plan().accumulator()
        accumulator.add([x1, x2, 1 + BETA * x1 - x2 + errors])
        yield SummaryPosterior(request.release(rows, accumulator.result()))


@pytest.mark.parametrize("mechanism", ["sign", "stouffer", "rescaled_normal", "fisher"])
def test_probabilities_at_the_truth_are_uniform(mechanism):
    """At b = β a posterior probability is uniform over data sets, noise or no noise."""
    rows, repetitions = 4_500, 200
    request = make_summary_request(
        SCHEMA,
        target="y",
        features=["x1", "x2"],
        epsilon="0.1",
        mechanism=mechanism,
        questions=[("x1", BETA)],
        rows=rows,
        blocks=100,
        partitions=10 if mechanism == "sign" else 1,
    )
    found = list(posteriors(request, repetitions, rows, heavy=False))
    aware = [p.prob("x1", "<", BETA) for p in found]
    plugged = [p.prob("x1", "<", BETA, noise_aware=False) for p in found]
    assert stats.kstest(aware, "uniform").pvalue > 1e-6
    # One in ten is beyond 0.05 or 0.95; without the noise, which widens all, most are.
    most = stats.binom.ppf(1 - 1e-6, repetitions, 0.1)
    assert beyond(aware) <= most
    assert beyond(plugged) > most


def beyond(probabilities):
    return sum(not 0.05 < p < 0.95 for p in probabilities)


def test_intervals_cover_under_heavy_tails_and_unequal_variances():
    rows, repetitions = 15_000, 150
    request = make_summary_request(
        SCHEMA,
        target="y",
        features=["x1", "x2"],
        epsilon=1,
        coefficients=["x1"],
        rows=rows,
        blocks=300,
        partitions=10,
    )
    covered = within_half = 0
    for posterior in posteriors(request, repetitions, rows, heavy=True):
        low, high = posterior.interval("x1", 0.8)
        covered += low < BETA < high
        middle = (low + high) / 2
        within_half += abs(BETA - middle) < (high - low) / 4  # the control: half as wide
    least, most = stats.binom.ppf([1e-6, 1 - 1e-6], repetitions, 0.8)
    assert least <= covered <= most
    assert within_half < least
