"""Which default prior keeps its word when noise hides the data? Coverage on the RAND health data.

The truth is the regression on all rows. Releases are simulated: exact sums plus Laplace noise of
the scale that epsilon = 1 and five rows per person need. For each prior, how often do the 95%
intervals of the `exact` method cover the truth? With one truth and a proper prior this need not be
95%, but it should not be far below.

    python benchmarks/default_prior.py            # 30 releases, about three minutes
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from noisewise import __version__
from noisewise.analyst.observation import Observation
from noisewise.analyst.priors import NIGPrior, NIWPrior, NormalInverseGammaIndependent
from noisewise.analyst.samplers import exact
from noisewise.core.grid import STATISTIC_ONE
from noisewise.core.schema import Schema
from noisewise.core.schema_file import parse_yaml
from noisewise.holder.engines import open_source
from noisewise.holder.request import make_request
from noisewise.holder.sums import SumPlan

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))
FEATURES = ["lncoins", "physlm", "disea", "plan", "health"]


def exact_statistics():
    """The Gram matrix of all rows, the noise scale of every entry, n and the design."""
    import rand_health

    request = make_request(
        Schema.from_dict(parse_yaml(rand_health.SCHEMA)),
        target="visits",
        features=FEATURES,
        epsilon=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rand_health.parquet"
        rand_health.write_data(path)
        plan = SumPlan(request.design, request.geometry, request.statistics)
        sums = open_source(path).sums(plan)
    size, statistic = len(request.design.names), request.statistics[0]
    A, scale = np.zeros((size, size)), np.zeros((size, size))
    for (a, b), value in statistic.public_values(sums.n).items():
        A[a, b] = A[b, a] = value
    for (a, b), value in zip(statistic.entries, sums.values[statistic.name], strict=True):
        A[a, b] = A[b, a] = value / STATISTIC_ONE
        scale[a, b] = scale[b, a] = request.mechanisms[0].scale / STATISTIC_ONE
    return A, scale, sums.n, request.design


def main():
    """Simulate, fit, count; print a table and write it beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=30)
    releases = parser.parse_args().releases
    A, scale, n, design = exact_statistics()
    theta = np.linalg.solve(A[:-1, :-1], A[:-1, -1])
    sigma2 = (A[-1, -1] - theta @ A[:-1, -1]) / n
    truth = np.append(theta, sigma2)
    k = len(theta) - 1
    priors = {
        "NIGPrior": NIGPrior.weakly_informative(k),
        "NormalInverseGammaIndependent": NormalInverseGammaIndependent.weakly_informative(k),
    }
    results = {}
    for name, prior in priors.items():
        rng = np.random.default_rng(0)  # the same noise for both priors
        covered = np.zeros(len(truth))
        for release in range(releases):
            noise = np.triu(rng.laplace(0, 1, A.shape) * scale)
            noise = noise + np.triu(noise, 1).T
            draws = exact.sample(
                [Observation(n, A + noise, scale, "laplace")],
                prior,
                NIWPrior.weakly_informative(k),
                chains=2,
                draws=500,
                seed=release,
                keep_covariates=False,
            )
            both = np.concatenate(
                [draws.theta.reshape(-1, k + 1), draws.sigma2.reshape(-1, 1)], axis=1
            )
            low, high = np.quantile(both, [0.025, 0.975], axis=0)
            covered += (low < truth) & (truth < high)
        names = [*design.names[:-1], "sigma2"]
        results[name] = dict(zip(names, covered.astype(int).tolist(), strict=True))
        print(name, results[name], flush=True)
    document = {
        "command": "python benchmarks/default_prior.py",
        "noisewise": __version__,
        "releases": releases,
        "noise_scale": float(scale.max()),
        "covered": results,
    }
    path = HERE / "results" / "default_prior.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
