"""Simulation-based calibration on the design of Bernstein & Sheldon (2019).

Parameters are drawn from the prior, rows from the model (one covariate, not clipped), sums get
Laplace noise of scale 5.33/epsilon (the sensitivity of the box [-1, 1]²), and each method is asked
for its posterior. If a method is calibrated, the share of its draws below the true parameter is
uniform (Talts et al. 2018). Reported: the Kolmogorov-Smirnov distance to uniform, its p-value, and
the coverage of 95% intervals. `non_private` is the conjugate posterior from the exact sums, the
reference; `naive` is the negative control.

    python benchmarks/calibration.py --trials 300      # about ten minutes on one core
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from scipy import stats

from noisewise import __version__
from noisewise.analyst.models.conjugate import draw, update
from noisewise.analyst.observation import Observation
from noisewise.analyst.priors import NIGPrior, NIWPrior
from noisewise.analyst.samplers import exact, gibbs_update, naive

PRIOR = NIGPrior(np.zeros(2), 0.5 * np.eye(2), 3.0, 0.4)
COVARIATES = NIWPrior(np.zeros(1), 1.0, np.array([[0.5]]), 5.0)
PARAMETERS = ("intercept", "slope", "sigma2")
SENSITIVITY = 16 / 3
KEPT = 200  # nearly independent draws that the truth is ranked among


def simulate(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """True (theta, sigma2) from the prior, and the exact Gram matrix of n rows."""
    sigma2 = PRIOR.b0 / rng.gamma(PRIOR.a0)
    theta = rng.multivariate_normal(PRIOR.mu0, sigma2 * np.linalg.inv(PRIOR.Lam0))
    variance = stats.invwishart.rvs(COVARIATES.nu, COVARIATES.Psi, random_state=rng)
    mean = rng.normal(COVARIATES.m[0], np.sqrt(variance / COVARIATES.lam))
    x = rng.normal(mean, np.sqrt(variance), n)
    y = theta[0] + theta[1] * x + rng.normal(0, np.sqrt(sigma2), n)
    w = np.column_stack([np.ones(n), x, y])
    return np.append(theta, sigma2), w.T @ w


def thinned(theta: np.ndarray, sigma2: np.ndarray) -> np.ndarray:
    """KEPT draws of all parameters, evenly spaced over all chains."""
    flat = np.column_stack([theta.reshape(-1, 2), sigma2.reshape(-1)])
    return flat[np.linspace(0, len(flat) - 1, KEPT).astype(int)]


def posteriors(A: np.ndarray, n: int, scale: float, seed: int) -> dict[str, np.ndarray]:
    """Draws of every method for one data set."""
    rng = np.random.default_rng(seed)
    noise = np.triu(rng.laplace(0, scale, A.shape))
    noise = noise + np.triu(noise, 1).T
    noise[0, 0] = 0.0
    scales = np.full(A.shape, scale)
    scales[0, 0] = 0.0
    seen = [Observation(n, A + noise, scales, "laplace")]
    drawn = {"non_private": draw(update(PRIOR, A, n), rng, (1, KEPT))}
    drawn["naive"] = naive.sample(seen, PRIOR, chains=1, draws=KEPT, seed=seed)
    e = exact.sample(
        seen, PRIOR, COVARIATES, chains=2, draws=500, seed=seed, cores=1, keep_covariates=False
    )
    drawn["exact"] = (e.theta, e.sigma2)
    g = gibbs_update.sample(
        seen, PRIOR, COVARIATES, chains=1, draws=20_000, tune=2_000, seed=seed, cores=1
    )
    drawn["gibbs_update"] = (g.theta, g.sigma2)
    return {name: thinned(*pair) for name, pair in drawn.items()}


def main() -> None:
    """Run the grid, print the table as it grows, write JSON and CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--rows", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    words = parser.parse_args()
    table = []
    for n in words.rows:
        for epsilon in words.epsilons:
            start = time.perf_counter()
            ranks: dict[str, list[np.ndarray]] = {}
            covered: dict[str, list[np.ndarray]] = {}
            for trial in range(words.trials):
                # Seeds are the cell and the trial: reproducible, and never chosen by outcome.
                seed = [n, round(1000 * epsilon), trial]
                truth, A = simulate(np.random.default_rng(seed), n)
                number = int(np.random.SeedSequence(seed).generate_state(1)[0])
                for name, d in posteriors(A, n, SENSITIVITY / epsilon, number).items():
                    ranks.setdefault(name, []).append((d < truth).mean(axis=0))
                    low, high = np.quantile(d, [0.025, 0.975], axis=0)
                    covered.setdefault(name, []).append((low < truth) & (truth < high))
            for name, share in ranks.items():
                for i, parameter in enumerate(PARAMETERS):
                    # Ranks are discrete; spreading them over their cell keeps them uniform.
                    jitter = np.random.default_rng(i).uniform(0, 1, words.trials)
                    uniform = (np.array(share)[:, i] * KEPT + jitter) / (KEPT + 1)
                    test = stats.kstest(uniform, "uniform")
                    table.append(
                        {
                            "n": n,
                            "epsilon": epsilon,
                            "method": name,
                            "parameter": parameter,
                            "ks": round(float(test.statistic), 4),
                            "p_value": float(f"{test.pvalue:.2g}"),
                            "coverage_95": round(float(np.mean(np.array(covered[name])[:, i])), 3),
                        }
                    )
            for row in table[-3 * len(ranks) :]:
                print(*row.values(), flush=True)
            print(f"  {time.perf_counter() - start:.0f} s", flush=True)
            document = {
                "command": f"python benchmarks/calibration.py --trials {words.trials}",
                "noisewise": __version__,
                "trials": words.trials,
                "standard_error_of_coverage": round((0.95 * 0.05 / words.trials) ** 0.5, 4),
                "table": table,
            }
            path = words.out / "calibration.json"
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
