"""Which default prior keeps its word when noise hides the data? Coverage of fixed truths.

Simulation-based calibration draws truths from the prior. Here truths are fixed, as they are in
life, and a proper prior need not cover them at the nominal rate; but it should not be far below.
For each case and prior, how often do 90% intervals of the `exact` method hold the truth? Cases are
regressions on unit scale with clipped normal rows (generous bounds make everything small there)
and the RAND health data, whose truth is the regression on all rows, at epsilon = 1 for five rows
per person. Sums get Laplace noise of the scale that their epsilon needs.

    python benchmarks/default_prior.py            # 40 releases a case, some minutes
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from noisewise import __version__
from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, NormalInverseGammaIndependent
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.schema import Schema
from noisewise.core.yaml_files import parse_yaml
from noisewise.holder.engines import open_source
from noisewise.holder.requests.regression import make_request

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))

# Rows, epsilon, sd of every covariate, slopes, intercept, sd of the error; on unit scale.
CASES = {
    "generous bounds": (1500, 1.0, 0.2, (0.5, -0.333), 0.067, 0.133),
    "generous bounds, more noise": (1500, 0.5, 0.2, (0.5, -0.333), 0.067, 0.133),
    "tight bounds": (1500, 1.0, 0.5, (0.4, -0.2), 0.1, 0.3),
    "five covariates": (5000, 1.0, 0.3, (0.5, -0.3, 0.2, 0.0, 0.1), 0.1, 0.15),
    "five strong covariates": (5000, 1.0, 0.3, (0.8, -0.6, 0.5, 0.0, 0.3), 0.1, 0.1),
    "ten weak covariates": (20_000, 1.0, 0.35, (0.03,) * 10, -0.3, 0.3),
}


def simulated(case, rng):
    """The Gram matrix of fresh rows, noise scales, n, and the truth."""
    n, epsilon, spread, slopes, intercept, error = CASES[case]
    k, p = len(slopes), len(slopes) + 1
    x = np.clip(rng.normal(0, spread, (n, k)), -1, 1)
    y = np.clip(intercept + x @ slopes + rng.normal(0, error, n), -1, 1)
    w = np.column_stack([np.ones(n), x, y])
    scale = np.full((p + 1, p + 1), (p * (p + 1) / 2 + p + p / (2 * (p + 1))) / epsilon)
    scale[0, 0] = 0.0
    return w.T @ w, scale, n, np.array([intercept, *slopes, error**2])


def rand_health():
    """The Gram matrix of the RAND data, noise scales, n, and the regression on all rows."""
    import rand_health as demo

    request = make_request(
        Schema.from_dict(parse_yaml(demo.SCHEMA)),
        target="visits",
        features=[*demo.FEATURES, "plan", "health"],
        epsilon=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rand_health.parquet"
        demo.write_data(path)
        sums = open_source(path).sums(request.plan())
    size, statistic = len(request.design.names), request.statistics[0]
    A, scale = np.zeros((size, size)), np.zeros((size, size))
    for (a, b), value in statistic.public_values(sums.n).items():
        A[a, b] = A[b, a] = value
    for (a, b), value in zip(statistic.entries, sums.values[statistic.name], strict=True):
        A[a, b] = A[b, a] = value / STATISTIC_ONE
        scale[a, b] = scale[b, a] = request.mechanisms[0].scale / STATISTIC_ONE
    theta = np.linalg.solve(A[:-1, :-1], A[:-1, -1])
    sigma2 = (A[-1, -1] - theta @ A[:-1, -1]) / sums.n
    return A, scale, sums.n, np.append(theta, sigma2)


def covers(prior, A, scale, n, truth, seed):
    """Whether 90% intervals hold the truth, by parameter, for one draw of the noise."""
    rng = np.random.default_rng([seed, 1])
    noise = np.triu(rng.laplace(0, 1, A.shape) * scale)
    noise = noise + np.triu(noise, 1).T
    drawn = exact.sample(
        [Observation(n, A + noise, scale, "laplace")],
        prior,
        NIWPrior.weakly_informative(len(truth) - 2),
        chains=2,
        draws=400,
        seed=seed,
        keep_covariates=False,
    )
    both = np.column_stack([drawn.theta.reshape(-1, len(truth) - 1), drawn.sigma2.reshape(-1)])
    low, high = np.quantile(both, [0.05, 0.95], axis=0)
    return (low < truth) & (truth < high)


def main():
    """Simulate, fit, count; print a table and write it beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=40)
    releases = parser.parse_args().releases
    results = {}
    for case in [*CASES, "RAND health"]:
        fixed = rand_health() if case == "RAND health" else None
        held = {}
        for release in range(releases):
            data = fixed or simulated(case, np.random.default_rng([release, 0]))
            k = len(data[3]) - 2
            for prior in (NormalInverseGammaIndependent, NIGPrior):
                held.setdefault(prior.__name__, []).append(
                    covers(prior.weakly_informative(k), *data, release)
                )
        results[case] = {
            name: {
                "slopes": round(float(np.mean(np.array(found)[:, 1:-1])), 3),
                "intercept": round(float(np.mean(np.array(found)[:, 0])), 3),
                "sigma2": round(float(np.mean(np.array(found)[:, -1])), 3),
            }
            for name, found in held.items()
        }
        print(case, results[case], flush=True)
    document = {
        "command": "python benchmarks/default_prior.py",
        "noisewise": __version__,
        "releases": releases,
        "coverage_of_90_percent_intervals": results,
    }
    path = HERE / "results" / "default_prior.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
