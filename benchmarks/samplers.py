"""How fast the samplers are, beside the same posterior written plainly in NumPyro.

Every cell runs in a process of its own. `us_per_iteration` is one chain on one core (for `exact`
an iteration is one NUTS draw, and the cost of one gradient is given too). `ess_per_s` is the
smallest effective sample size of all coefficients and sigma2, four chains on all cores, per second
of a new process: imports, tuning and just-in-time compilation included, with Numba's on-disk cache
warm. `warm_ess_per_s` leaves out imports and compilation (a second run in the same process).
`exact` is what `fit` does by default: the scale-free prior, independent draws where noise is small,
and NUTS otherwise, run once more and longer where too few draws are effective (not for
`us_per_iteration`). `tail_ess` is its smallest effective sample size in the tails, `cpu_seconds`
the processor time of the warm run.

    python benchmarks/samplers.py              an hour; the peers take most of it
    python benchmarks/samplers.py --quick      a few minutes: no peers beyond d = 2, small sizes

Bars (checked at the end), all for exact, because the others are written for reading: growth of the
gradient's cost at most d^3.3, at least 10 times the effective samples per second of the plain
NumPyro model at d = 2 and 10 with epsilon 1 and 0.1, at least 400 effective draws in bulk and tail
of 4 x 1,000 at d = 11, 30 and 60, and at d = 60 in less than 60 s of the processor;
`noisewise fit` with its defaults on a d = 11 Release below 20 seconds in a new process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np

STARTED = time.perf_counter()
RESULTS = Path(__file__).parent / "results" / "samplers.json"
SIZES = (2, 5, 10, 11, 20, 30, 60)
REGIMES = (1.0, 0.1)
LARGEST = {"gibbs_noisy": 11, "gibbs_noisy_aware": 11, "plain_numpyro": 10}
BARS = ("exact",)  # the methods that have to reach something
TIMEOUT = 1500
PLAIN_DRAWS = 500  # a chain, and as many for warm-up: the plain model is slow


def run(
    method: str,
    problem,
    *,
    chains: int,
    draws: int,
    tune: int,
    seed: int,
    cores: int,
    once: bool = False,
):
    """Draws of theta and sigma2 by one of our methods; `once` is without a second, longer run."""
    from noisewise.analyst.regression.exact import sampler as exact
    from noisewise.analyst.regression.exact.density import CollapsedPosterior
    from noisewise.analyst.regression.exact.independent import draw_independent
    from noisewise.analyst.regression.papers import gibbs
    from noisewise.analyst.regression.papers.moments import CovariateMoments, released_moments
    from noisewise.analyst.regression.papers.shared import sample_naive
    from noisewise.analyst.regression.priors import (
        NIGPrior,
        NIWPrior,
        ScaleFreeCovariates,
        ScaleFreePrior,
    )

    seen = [problem.observation()]
    prior = NIGPrior.weakly_informative(problem.k)
    covariates = NIWPrior.weakly_informative(problem.k)
    words = {"chains": chains, "draws": draws, "tune": tune, "seed": seed, "cores": cores}
    if method == "naive":
        return sample_naive(seen, prior, chains=chains, draws=draws, seed=seed)
    if method == "exact":
        given = seen, ScaleFreePrior(problem.k), ScaleFreeCovariates.default(problem.k)
        drawn = draw_independent(*given, chains=chains, draws=draws, seed=seed)
        if drawn is None and once:
            drawn = exact.sample(*given, keep_covariates=False, **words)
        elif drawn is None:
            collapsed = CollapsedPosterior(*given)
            drawn, _ = exact.sample_enough(collapsed, keep_covariates=False, **words)
    elif method == "gibbs_update":
        drawn = gibbs.sample(seen, prior, covariates, **words)
    elif method == "gibbs_prior":
        known = CovariateMoments.from_niw(NIWPrior.with_fourth_moments(problem.k))
        drawn = gibbs.sample(seen, prior, known, **words)
    elif method == "gibbs_noisy":
        known = released_moments([problem.fourth_moments()])
        drawn = gibbs.sample(seen, prior, known, **words)
    else:
        drawn = gibbs.sample(seen, prior, [problem.fourth_moments()], **words)
    return drawn.theta, drawn.sigma2


def smallest_ess(
    theta: np.ndarray, sigma2: np.ndarray, method: str = "bulk"
) -> tuple[float, float]:
    """Smallest effective sample size and largest R-hat over all parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz as az

        draws = {"theta": theta, "sigma2": sigma2}
        ess, rhat = az.ess(draws, method=method), az.rhat(draws)
    return (
        min(float(ess[name].min()) for name in draws),
        max(float(rhat[name].max()) for name in draws),
    )


def cell(method: str, d: int, epsilon: float, mechanism: str) -> dict[str, float]:
    """Measure one method on one problem; runs in its own process."""
    warnings.simplefilter("ignore")
    from regression_problems import Problem

    problem = Problem(d, epsilon, mechanism)
    draws, cores = 1000, os.cpu_count() or 1
    if method == "plain_numpyro":
        from numpyro_peers import sample_plain

        drawn = sample_plain(problem, PLAIN_DRAWS, seed=1)
        total = time.perf_counter() - STARTED
        ess, rhat = smallest_ess(*drawn)
        return {"ess": ess, "rhat": rhat, "seconds": total, "ess_per_s": ess / total}
    words = {"chains": 4, "draws": draws, "tune": 500, "cores": cores}
    drawn = run(method, problem, seed=1, **words)
    total = time.perf_counter() - STARTED
    ess, rhat = smallest_ess(*drawn)
    start, cpu = time.perf_counter(), time.process_time()
    again = run(method, problem, seed=2, **words)
    warm, cpu = time.perf_counter() - start, time.process_time() - cpu
    found = {
        "ess": ess,
        "rhat": rhat,
        "seconds": total,
        "ess_per_s": ess / total,
        "warm_ess_per_s": smallest_ess(*again)[0] / warm,
    }
    found["us_per_iteration"] = microseconds(method, problem)
    if method == "exact":
        found["us_per_gradient"] = gradient_microseconds(problem)
        found["tail_ess"] = smallest_ess(*drawn, method="tail")[0]
        found["cpu_seconds"] = cpu
    return found


def microseconds(method: str, problem) -> float:
    """Cost of an iteration of one chain on one core: the best of many short runs.

    A virtual machine's cores change speed from second to second; the best run is the code's.
    """
    warm_up = 0 if method.startswith("gibbs") else 500
    words = {"chains": 1, "tune": warm_up, "seed": 3, "cores": 1, "once": True}
    if problem.d > 20 and method == "exact":
        words["draws"] = 20
        start = time.perf_counter()
        run(method, problem, **words)
        return 1e6 * (time.perf_counter() - start) / (20 + warm_up)
    start = time.perf_counter()
    run(method, problem, draws=100, **words)
    each = (time.perf_counter() - start) / (100 + warm_up)
    draws = int(min(max(0.1 / each, 100), 20_000))
    times = []
    for _ in range(40 if each < 1e-4 else 5):
        start = time.perf_counter()
        run(method, problem, draws=draws, **words)
        times.append((time.perf_counter() - start) / (draws + warm_up))
    return 1e6 * min(times)


def gradient_microseconds(problem) -> float:
    """Cost of one log density with its gradient, as the engine calls it."""
    from noisewise.analyst.regression.exact.density import CollapsedPosterior
    from noisewise.analyst.regression.priors import ScaleFreeCovariates, ScaleFreePrior

    prior, covariates = ScaleFreePrior(problem.k), ScaleFreeCovariates.default(problem.k)
    posterior = CollapsedPosterior([problem.observation()], prior, covariates)
    x = 0.1 * np.random.default_rng(1).standard_normal(posterior.ndim)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(200):
            posterior.logp_and_gradient(x)
        best = min(best, (time.perf_counter() - start) / 200)
    return 1e6 * best


def fill_caches() -> None:
    """Compile everything once, so that cells find Numba's on-disk cache warm."""
    warnings.simplefilter("ignore")
    from regression_problems import Problem

    words = {"chains": 1, "draws": 4, "tune": 4, "seed": 1, "cores": 1}
    for mechanism in ("laplace", "gaussian"):
        for d in (2, 20):
            for method in ("exact", "gibbs_update", "gibbs_prior"):
                run(method, Problem(d, 1.0, mechanism), **words)
        for method in ("gibbs_noisy", "gibbs_noisy_aware"):
            run(method, Problem(2, 1.0, mechanism), **words)


def in_new_process(words: list[str]) -> dict[str, float] | None:
    """Run a cell; None if it took too long."""
    command = [sys.executable, __file__, "--cell", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])


def default_fit_seconds() -> float:
    """`noisewise fit` with its defaults on a published d = 11 Release, in a new process."""
    import noisewise as nw

    names = [f"x{j}" for j in range(10)]
    rng = np.random.default_rng(1)
    table = {name: rng.uniform(-1, 1, 20_000) for name in names}
    table["y"] = 0.3 * sum(table.values()) + rng.normal(0, 0.3, 20_000)
    schema = nw.Schema("benchmark", {name: nw.Number(-1, 1) for name in [*names, "y"]})
    with tempfile.TemporaryDirectory() as folder:
        release, out = Path(folder) / "release.json", Path(folder) / "post.nc"
        with nw.Ledger(Path(folder) / "budget.db") as ledger:
            ledger.set_cap("benchmark", 1)
            request = nw.make_request(schema, target="y", features=names, epsilon=1)
            nw.publish(request, table, ledger=ledger, out=release)
        command = [sys.executable, "-m", "noisewise.cli.main", "fit", str(release)]
        times = []
        for seed in ("1", "2"):  # the first run may fill the compilation cache
            start = time.perf_counter()
            subprocess.run(
                [*command, "--seed", seed, "--out", str(out)], check=True, capture_output=True
            )
            times.append(time.perf_counter() - start)
    return times[-1]


def growth(table: dict, method: str, key: str, epsilon: float, mechanism: str) -> float:
    """The exponent of d between d = 20 and d = 60."""
    costs = [table[f"{method} {mechanism} {epsilon:g} {d}"][key] for d in (20, 60)]
    return math.log(costs[1] / costs[0]) / math.log(3)


def bars(table: dict, fit_seconds: float) -> list[tuple[str, float, str, float]]:
    """What is asked for: (name, measured, relation, bar)."""
    found = []

    def add(name: str, value: float, relation: str, bar: float) -> None:
        found.append((name, value, relation, bar))

    for epsilon in REGIMES:
        add(
            f"exact laplace epsilon={epsilon:g} gradient growth exponent",
            growth(table, "exact", "us_per_gradient", epsilon, "laplace"), "<", 3.3,
        )  # fmt: skip
        for d in (2, 10):
            ours = table[f"exact laplace {epsilon:g} {d}"]["ess_per_s"]
            peer = table.get(f"plain_numpyro laplace {epsilon:g} {d}")
            if peer is not None:
                add(
                    f"exact / plain NumPyro ESS per s, d={d} epsilon={epsilon:g}",
                    ours / peer["ess_per_s"], ">", 10.0,
                )  # fmt: skip
        for d in (11, 30, 60):
            for mechanism in ("laplace", "gaussian"):
                cell = table.get(f"exact {mechanism} {epsilon:g} {d}")
                if cell is None:
                    continue
                name = f"exact d={d} {mechanism} epsilon={epsilon:g}"
                add(f"{name} effective draws", min(cell["ess"], cell["tail_ess"]), ">", 400.0)
                if d == 60:
                    add(f"{name} processor seconds", cell["cpu_seconds"], "<", 60.0)
    add("noisewise fit, d=11, new process, seconds", fit_seconds, "<", 20.0)
    return found


def main() -> None:
    """Run all cells, print them as they come, write JSON, check the bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, peers at d = 2 only")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", help="methods to measure again, into earlier results")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="with --only")
    words = parser.parse_args()
    if words.cell:
        method, d, epsilon, mechanism = words.cell
        print(json.dumps(cell(method, int(d), float(epsilon), mechanism)))
        return
    cells = [
        (method, d, epsilon, mechanism)
        for d in SIZES
        for epsilon in REGIMES
        for mechanism in ("laplace", "gaussian")
        for method in (
            "exact", "gibbs_update", "gibbs_prior", "gibbs_noisy", "gibbs_noisy_aware", "naive",
        )
        if d <= LARGEST.get(method, max(SIZES))
    ]  # fmt: skip
    peers = [("plain_numpyro", d, epsilon, "laplace") for d in (2, 5, 10) for epsilon in REGIMES]
    if words.quick:
        cells = [c for c in cells if c[1] in (2, 10, 11) or (c[0] in BARS and c[1] in (20, 60))]
        peers = [p for p in peers if p[1] == 2 and p[0] == "plain_numpyro"]
    # What the bars need comes first.
    cells = sorted(cells + peers, key=lambda c: (c[0] not in BARS, c not in peers))
    fill_caches()
    table: dict[str, dict[str, float] | None] = {}
    command = "python benchmarks/samplers.py" + (" --quick" if words.quick else "")
    if words.only:
        earlier = json.loads(words.out.read_text(encoding="utf-8"))
        table = earlier["table"]
        command = f"{earlier['command']}; then --only {' '.join(words.only)} --sizes " + " ".join(
            map(str, words.sizes)
        )
        cells = [c for c in cells if c[0] in words.only and c[1] in words.sizes]
    for method, d, epsilon, mechanism in cells:
        name = f"{method} {mechanism} {epsilon:g} {d}"
        found = in_new_process([method, str(d), str(epsilon), mechanism])
        table[name] = found if found is None else {k: _short(v) for k, v in found.items()}
        print(f"{name:40} {table[name] or 'took too long'}", flush=True)
        write(words.out, command, table, [])  # an interrupted run leaves what it has
    measured = bars({k: v for k, v in table.items() if v is not None}, default_fit_seconds())
    print()
    for name, value, relation, bar in measured:
        holds = value < bar if relation == "<" else value > bar
        print(f"{'ok  ' if holds else 'MISS'} {name}: {value:.3g} (bar {relation} {bar:g})")
    write(words.out, command, table, measured)


def write(path: Path, command: str, table: dict, measured: list) -> None:
    """Results so far, with what made them."""
    document = {
        "command": command,
        "noisewise": version("noisewise"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "python": platform.python_version(),
        "table": table,
        "bars": [
            {"name": n, "measured": _short(v), "bar": f"{r} {b:g}"} for n, v, r, b in measured
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _short(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
