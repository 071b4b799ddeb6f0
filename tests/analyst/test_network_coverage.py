"""Coverage of 90% intervals over tables from the prior, rows and noise; plug-in must fail.

The standard error of a mean over data sets is computed from the data sets themselves, because
entries of one data set are dependent. The band is two points, what was promised, and three
standard errors, what so few data sets can tell. The long version is benchmarks/networks.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.network import counts, per_table
from noisewise.analyst.network.layout import Layout, normalised
from noisewise.analyst.network.regions import make_problem, sample

from .network_oracle import all_cells, discrete_laplace, fixed, network, simulated

DATA_SETS = 80
NAIVE_BAYES = ({"c": 2, "x": 2, "y": 3, "z": 2}, {"c": [], "x": ["c"], "y": ["c"], "z": ["c"]})
POLYTREE = ({"a": 2, "b": 3, "c": 2, "d": 2}, {"a": [], "b": [], "c": ["a", "b"], "d": ["c"]})
DIAMOND = (
    {"a": 2, "b": 2, "c": 2, "d": 2},
    {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]},
)


def covered(draws, truth):
    lower, upper = np.quantile(draws, [0.05, 0.95], axis=0)
    return np.mean((lower <= truth) & (truth <= upper))


@pytest.mark.parametrize(
    ("example", "n", "scale"),
    [
        pytest.param(NAIVE_BAYES, 500, 16.0, id="naive_bayes", marks=pytest.mark.long),
        pytest.param(POLYTREE, 1000, 40.0, id="polytree"),
        pytest.param(DIAMOND, 1000, 30.0, id="diamond", marks=pytest.mark.long),
    ],
)
def test_noise_aware_intervals_cover_and_plugin_does_not(example, n, scale):
    layout = Layout(network(*example))
    alpha = np.ones(layout.cells)
    rng = np.random.default_rng(2016)
    hits = {"joint": [], "per_table": [], "plugin": []}
    for k in range(DATA_SETS):
        truth = normalised(rng.standard_gamma(alpha), layout)
        true, _ = simulated(layout, truth, n, rng)
        released = true + discrete_laplace(rng, scale, true.size)
        observed = all_cells(layout, released, scale, n)
        clamped = np.clip(released, 0, n) * 1.0
        problem = make_problem(layout, [observed], fixed(alpha), clamped)
        joint = sample(counts.chain, problem, chains=1, draws=200, warmup=200, thin=5, seed=k)
        hits["joint"].append(covered(joint.theta[0], truth))
        if k < DATA_SETS // 2:
            alone = per_table.sample(layout, observed, fixed(alpha), chains=1, draws=200, seed=k)[0]
            hits["per_table"].append(covered(alone[0], truth))
        naive = normalised(rng.standard_gamma(alpha + clamped, (400, layout.cells)), layout)
        hits["plugin"].append(covered(naive, truth))
    for method in ("joint", "per_table"):
        error = np.std(hits[method]) / np.sqrt(len(hits[method]))
        assert abs(np.mean(hits[method]) - 0.9) < 0.02 + 3 * error, method
    assert np.mean(hits["plugin"]) < 0.7
