"""The methods of Alparslan, Yıldırım & Birbil (2023) for several holders: time and mixing.

Time per iteration against d (the intercept is one of the d columns) and the number J of holders, as
in the paper's figure 3: `normal_x`, `fixed_s` and `gibbs_update` (Bernstein & Sheldon's,
distributed), one chain on one core, processor time. The peer is the iteration of `normal_x` written
in NumPy as one would in a paper's code, with BLAS on one thread.
Then the smallest effective sample size per second of `normal_x` and `exact` at d = 10 and J = 5,
for two sizes of noise and both kinds of prior. (With the intercept d = 1 has no covariates and
nothing to compare.)

    python benchmarks/distributed.py              some minutes
    python benchmarks/distributed.py --quick      below a minute
    python benchmarks/distributed.py --write      also writes benchmarks/results/distributed.json

Bars: `normal_x`, written for reading, at least 40 times as fast as NumPy, for each d with the J
where it does worst; at d = 10, J = 5 `exact` at least 10 times as many effective draws a second as
`normal_x`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import alparslan, gibbs
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, NormalInverseGammaIndependent

RESULTS = Path(__file__).parent / "results" / "distributed.json"
ROWS, NOISE = 2000, 20.0  # of each holder; the noise's sd on diagonal entries, isometric layout
MORE_NOISE = 60.0  # about epsilon = 1 with delta = 1e-6 for ten columns in [-1, 1]


def observations(d: int, J: int, noise: float = NOISE) -> list[Observation]:
    rng = np.random.default_rng([31, d, J])
    found = []
    for _ in range(J):
        x = 0.1 + 0.4 * rng.standard_normal((ROWS, d - 1))
        y = 0.2 + x.sum(axis=1) * 0.4 / np.sqrt(max(d - 1, 1)) + 0.25 * rng.standard_normal(ROWS)
        w = np.column_stack([np.ones(ROWS), x, y])
        scale = np.where(np.eye(d + 1, dtype=bool), noise, noise / np.sqrt(2))
        scale[0, 0] = 0.0
        noisy = np.triu(w.T @ w + scale * rng.standard_normal(scale.shape))
        found.append(Observation(ROWS, noisy + np.triu(noisy, 1).T, scale, "gaussian"))
    return found


def priors(d: int) -> tuple[NormalInverseGammaIndependent, NIWPrior]:
    k = d - 1
    return NormalInverseGammaIndependent.weakly_informative(k), NIWPrior.weakly_informative(k)


# --- the peer -------------------------------------------------------------------------------------


class NumpyNormalX:
    """One chain of `normal_x`, iteration by iteration in NumPy and SciPy; steps are fixed."""

    def __init__(self, seen: list[Observation], prior, covariates, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.seen, self.prior, self.covariates = seen, prior, covariates
        start = alparslan.init(np.random.default_rng(seed), seen, prior, covariates)
        self.holders = alparslan.build_model(seen, prior, covariates).holders
        self.V0_inverse = np.linalg.inv(prior.V0)
        self.theta, self.sigma2 = start.theta, float(start.sigma2)
        self.mean, self.C = start.mean, start.L @ start.L.transpose(0, 2, 1)
        self.alpha = np.exp(-start.log_steps[2 : 2 + len(seen)]) * 4
        self.draws: list[np.ndarray] = []

    def statistics(self, n, mean, C):
        k = mean.size
        S = np.empty((k + 1, k + 1))
        S[0, 0] = n
        S[0, 1:] = S[1:, 0] = n * mean
        S[1:, 1:] = C + n * np.outer(mean, mean)
        return S

    def log_fit(self, j, S, theta, sigma2):
        """ln p(ẑ, û | S, theta, sigma2)."""
        h = self.holders
        n, w = h.n[j], h.w[j]
        image = S @ theta
        quadratic = theta @ image
        root = np.linalg.cholesky(sigma2 * S * np.outer(w, w) + np.eye(w.size))
        e, g = solve_triangular(
            root, np.column_stack([h.z[j] - w * image, w * image]), lower=True
        ).T
        variance = h.u_variance[j] + sigma2 * (4 * (quadratic - sigma2 * g @ g) + 2 * n * sigma2)
        away = h.u[j] - quadratic - sigma2 * (n + 2 * g @ e)
        value = -np.log(np.diag(root)).sum() - 0.5 * e @ e
        return value - 0.5 * np.log(variance) - 0.5 * away**2 / variance

    def log_target(self, j, mean, C, mu, T_inverse):
        """ln of the density of a holder's statistics given all else."""
        n, k = self.holders.n[j], mean.size
        S = self.statistics(n, mean, C)
        e = self.holders.S[j] - S
        value = -0.5 * (np.tril(self.holders.S_precision[j]) * e**2).sum()
        value += 0.5 * (n - k - 2) * np.linalg.slogdet(C)[1] - 0.5 * (T_inverse * C).sum()
        value -= 0.5 * n * (mean - mu) @ T_inverse @ (mean - mu)
        return value + self.log_fit(j, S, self.theta, self.sigma2)

    def step(self) -> None:
        rng, cov, prior, h = self.rng, self.covariates, self.prior, self.holders
        J, k = self.mean.shape
        n = h.n.sum()
        total = sum(self.statistics(h.n[j], self.mean[j], self.C[j]) for j in range(J))
        m_n = (cov.lam * cov.m + total[0, 1:]) / (cov.lam + n)
        Psi_n = cov.Psi + total[1:, 1:] + cov.lam * np.outer(cov.m, cov.m)
        Psi_n -= (cov.lam + n) * np.outer(m_n, m_n)
        T = np.atleast_2d(stats.invwishart.rvs(cov.nu + n, Psi_n, random_state=rng))
        T_inverse = np.linalg.inv(T)
        mu = rng.multivariate_normal(m_n, T / (cov.lam + n))
        for j in range(J):
            C, alpha = self.C[j], self.alpha[j]
            new = np.atleast_2d(stats.wishart.rvs(alpha, C / alpha, random_state=rng))
            ratio = self.log_target(j, self.mean[j], new, mu, T_inverse)
            ratio -= self.log_target(j, self.mean[j], C, mu, T_inverse)
            ratio += stats.wishart.logpdf(C, alpha, new / alpha)
            ratio -= stats.wishart.logpdf(new, alpha, C / alpha)
            if np.log(rng.uniform()) < ratio:
                self.C[j] = new
            precision = h.n[j] * T_inverse + h.n[j] ** 2 * np.diag(h.S_precision[j, 0, 1:])
            root = np.linalg.cholesky(precision)
            step = 2.4 / np.sqrt(k) * solve_triangular(root.T, rng.standard_normal(k))
            ratio = self.log_target(j, self.mean[j] + step, self.C[j], mu, T_inverse)
            ratio -= self.log_target(j, self.mean[j], self.C[j], mu, T_inverse)
            if np.log(rng.uniform()) < ratio:
                self.mean[j] = self.mean[j] + step
        S = [self.statistics(h.n[j], self.mean[j], self.C[j]) for j in range(J)]
        precision, shift = self.V0_inverse, self.V0_inverse @ prior.mu0
        for j in range(J):
            M = self.sigma2 * S[j] * np.outer(h.w[j], h.w[j]) + np.eye(k + 1)
            wS = h.w[j][:, None] * S[j]
            solved = np.linalg.solve(M, np.column_stack([wS, h.z[j]]))
            precision = precision + wS.T @ solved[:, :-1]
            shift = shift + wS.T @ solved[:, -1]
        covariance = np.linalg.inv(precision)
        centre = covariance @ shift
        theta = rng.multivariate_normal(centre, covariance, method="cholesky")

        def posterior(theta, sigma2):
            value = -prior.a0 * np.log(sigma2) - prior.b0 / sigma2
            return value + sum(self.log_fit(j, S[j], theta, sigma2) for j in range(J))

        def proposal(theta):
            return -0.5 * (theta - centre) @ precision @ (theta - centre)

        def log_prior(theta):
            return -0.5 * (theta - prior.mu0) @ self.V0_inverse @ (theta - prior.mu0)

        current = posterior(self.theta, self.sigma2)
        proposed = posterior(theta, self.sigma2)
        ratio = proposed + log_prior(theta) - proposal(theta)
        ratio -= current + log_prior(self.theta) - proposal(self.theta)
        if np.log(rng.uniform()) < ratio:
            self.theta, current = theta, proposed
        sigma2 = self.sigma2 * np.exp(0.2 * rng.standard_normal())
        if np.log(rng.uniform()) < posterior(self.theta, sigma2) - current:
            self.sigma2 = sigma2
        self.draws.append(np.append(self.theta, self.sigma2))


# --- measurements ---------------------------------------------------------------------------------


def best_time(run, count: int, repeats: int) -> float:
    """Microseconds of processor time per iteration: the best of some runs."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        run(count)
        best = min(best, time.process_time() - start)
    return 1e6 * best / count


def us_per_iteration(method: str, d: int, J: int, seconds: float) -> float:
    seen, (prior, covariates) = observations(d, J), priors(d)
    if method == "numpy":
        chain = NumpyNormalX(seen, prior, covariates)
        chain.step()
        return best_time(lambda count: [chain.step() for _ in range(count)], 10, 6)
    rng = np.random.default_rng(1)
    if method == "fixed_s":
        sampler: Any = alparslan
        model = alparslan.build_model(seen, prior, tune=200)
        state: Any = alparslan.init(rng, seen, prior)
    else:
        sampler = alparslan if method == "normal_x" else gibbs
        options = {"tune": 200} if method == "normal_x" else {}
        model = sampler.build_model(seen, prior, covariates, **options)
        state = sampler.init(rng, seen, prior, covariates)
    state, _ = sampler.run(rng, model, state, 0, 200)

    def run(count: int) -> None:
        sampler.run(rng, model, state, 200, count)

    run(1)
    start = time.perf_counter()
    run(20)
    count = max(20, int(20 * seconds / max(time.perf_counter() - start, 1e-6)))
    return best_time(run, count, 12)


def effective(drawn) -> tuple[float, float, float]:
    """Smallest effective sample size of theta, that of sigma2, and the largest R-hat."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz as az

        draws = {"theta": drawn.theta, "sigma2": drawn.sigma2}
        ess, rhat = az.ess(draws), az.rhat(draws)
    largest = max(float(v.max()) for v in rhat.values())
    return float(ess["theta"].min()), float(ess["sigma2"]), largest


def mixing(
    d: int, J: int, draws: int, noise: float, conjugate: bool
) -> dict[str, dict[str, float]]:
    """Effective sample sizes per second of processor time, warm-up counted, code compiled."""
    seen, (prior, covariates) = observations(d, J, noise), priors(d)
    if conjugate:
        prior = NIGPrior.weakly_informative(d - 1)
    found = {}
    for method, sampler in (("normal_x", alparslan), ("exact", exact)):
        length = draws if method == "normal_x" else max(draws // 50, 500)
        sampler.sample(seen, prior, covariates, chains=1, draws=10, tune=10, seed=1)
        start = time.process_time()
        drawn = sampler.sample(
            seen, prior, covariates, chains=2, draws=length, tune=max(length // 6, 500), seed=1
        )
        seconds = time.process_time() - start
        theta, sigma2, rhat = effective(drawn)
        found[method] = {
            "ess_theta": theta, "ess_sigma2": sigma2, "rhat": rhat, "cpu_seconds": seconds,
            "ess_per_s": min(theta, sigma2) / seconds,
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    sizes = (2, 5, 10) if options.quick else (2, 3, 5, 7, 10, 15, 20)
    holders = (1, 5) if options.quick else (1, 5, 10)
    methods = ("normal_x", "fixed_s", "gibbs_update", "numpy")
    seconds = 0.02 if options.quick else 0.05
    times: dict[str, dict[str, float]] = {}
    print("us per iteration" + "".join(f"{name:>14}" for name in (*methods, "numpy/ours")))
    for J in holders:
        for d in sizes:
            row = {name: us_per_iteration(name, d, J, seconds) for name in methods}
            row["ratio"] = row["numpy"] / row["normal_x"]
            times[f"d={d} J={J}"] = row
            cells = [row.get(name, np.nan) for name in (*methods, "ratio")]
            print(f"  d = {d:2}, J = {J:2} " + "".join(f"{v:14.1f}" for v in cells), flush=True)
    bars = {}
    for d in sizes:
        worst = min(times[f"d={d} J={J}"]["ratio"] for J in holders)
        bars[f"normal_x {worst:.0f} times as fast as NumPy at d = {d}"] = worst >= 40
    mixed = {}
    for noise in (NOISE, MORE_NOISE):
        for conjugate in (False, True):
            case = f"noise {noise:g}, {'conjugate' if conjugate else 'independent'} prior"
            found = mixing(10, 5, 60_000 if options.quick else 300_000, noise, conjugate)
            mixed[case] = found
            for method, row in found.items():
                values = ", ".join(f"{what} {value:.4g}" for what, value in row.items())
                print(f"d = 10, J = 5, {case}, {method}: {values}", flush=True)
            gain = found["exact"]["ess_per_s"] / found["normal_x"]["ess_per_s"]
            bars[f"exact {gain:.1f} times the effective draws a second, {case}"] = gain >= 10
    for bar, held in bars.items():
        print(("held   " if held else "MISSED ") + bar)
    if options.write:
        machine = {"processor": platform.processor(), "cores": os.cpu_count()}
        versions = {name: version(name) for name in ("numpy", "numba", "nutpie")}
        RESULTS.write_text(
            json.dumps(
                {"times_us": times, "mixing": mixed, "bars": bars, "machine": machine} | versions,
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
