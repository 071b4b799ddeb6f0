"""A network of 50 nodes and a million records: its Release, and its joint noise-aware posterior.

The network is random: up to 3 parents, 2 to 5 levels, tables drawn from their uniform prior. Rows
are simulated from it, published with the laplace mechanism through the front door (ledger and
all), and fitted with method "joint". Interval coverage is that of the true table entries by 90%
intervals; with one data set it moves by a point or two by chance. The plug-in posterior of the same
Release is the comparison.

    python benchmarks/networks.py            50 nodes, 1 million rows, a few minutes
    python benchmarks/networks.py --nodes 40 another number of nodes, at epsilon = 1; and learned
    python benchmarks/networks.py --quick    12 nodes, 50,000 rows
    python benchmarks/networks.py --coverage small networks, many data sets (an hour)

Bars, in processor time, which a busy machine doesn't lengthen: the Release below 6 seconds, the
posterior (all chains together) below a minute, with 40 nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.analyst.network.fit import fit_network
from noisewise.analyst.network.layout import Floats, Layout, normalised
from noisewise.analyst.network.observed import clamped_counts
from noisewise.analyst.network.queries import places
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Schema
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.network import make_network_request

RESULTS = Path(__file__).parent / "results" / "networks.json"
RELEASE_BAR, POSTERIOR_BAR = 6.0, 60.0
LEVEL = 0.9


def random_network(nodes: int, rng: np.random.Generator) -> Network:
    names = [f"x{i:02d}" for i in range(nodes)]
    arity = rng.integers(2, 6, nodes)
    columns = {
        name: Category(tuple(str(k) for k in range(r)), "0")
        for name, r in zip(names, arity.tolist(), strict=True)
    }
    parents = {
        name: [names[j] for j in rng.choice(i, size=min(i, int(rng.integers(0, 4))), replace=False)]
        for i, name in enumerate(names)
    }
    return Network.make(Schema("benchmark", columns), parents)


def simulated(layout: Layout, theta: Floats, n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Rows from the network, as columns of levels."""
    from noisewise.analyst.network.queries import synthetic_rows

    codes = np.empty((n, len(layout.nodes)), dtype=np.int64)
    synthetic_rows(rng, theta[None], *places(layout), codes)
    return {
        name: np.array(layout.network.levels(name))[codes[:, layout.number[name]]]
        for name in layout.network.nodes
    }


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, {
        "seconds": round(time.perf_counter() - wall, 1),
        "processor_seconds": round(time.process_time() - cpu, 1),
    }


def covered(theta: Floats, truth: Floats) -> float:
    lower, upper = np.quantile(theta, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return float(np.mean((lower <= truth) & (truth <= upper)))


def large(nodes: int, n: int, epsilons: list[float], *, learn: bool = False) -> dict[str, Any]:
    import arviz as az

    rng = np.random.default_rng(7)
    network = random_network(nodes, rng)
    layout = Layout(network)
    truth = normalised(rng.standard_gamma(np.ones(layout.cells)), layout)
    rows = simulated(layout, truth, n, rng)
    _compile(rng)
    found: dict[str, Any] = {"nodes": nodes, "rows": n, "table_cells": layout.cells}
    for epsilon in epsilons:
        request = make_network_request(network.schema, network=network, epsilon=epsilon)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "budget.db"
            Ledger(path).set_cap(network.schema.dataset, epsilon)
            published, releasing = timed(lambda p=path, r=request: publish(r, rows, ledger=p))
        release = published.release
        posterior, fitting = timed(lambda r=release: fit_network(r, seed=1))
        watched = rng.choice(layout.cells, size=min(200, layout.cells), replace=False)
        ess = [float(az.ess(posterior.theta[:, :, cell])) for cell in watched]
        rhat = [float(az.rhat(posterior.theta[:, :, cell])) for cell in watched]
        counts = 1.0 + clamped_counts([release], layout)
        naive = normalised(rng.standard_gamma(counts, (1000, layout.cells)), layout)
        found[f"epsilon={epsilon:g}"] = {
            "release": releasing,
            "joint_posterior": fitting,
            "algorithm": posterior.info.algorithm,
            "draws": list(posterior.theta.shape[:2]),
            "effective_draws_5_percent_and_median": np.quantile(ess, [0.05, 0.5]).round().tolist(),
            "largest_rhat": round(max(rhat), 4),
            "coverage_joint": round(covered(posterior.flat, truth), 4),
            "coverage_plugin": round(covered(naive, truth), 4),
            "rmse_joint": round(_rmse(posterior.flat, truth), 5),
            "rmse_plugin": round(_rmse(naive, truth), 5),
        }
        print(json.dumps(found[f"epsilon={epsilon:g}"], indent=1), flush=True)
    if learn:
        request = make_network_request(network.schema, network="learn", epsilon=1, delta="1e-7")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "budget.db"
            Ledger(path).set_cap(network.schema.dataset, 1, "1e-7")
            published, releasing = timed(lambda: publish(request, rows, ledger=path))
        posterior, fitting = timed(lambda: fit_network(published.release, seed=1))
        found["graph learned, epsilon=1, delta=1e-7"] = {
            "release": releasing,
            "joint_posterior": fitting,
            "algorithm": posterior.info.algorithm,
        }
        print(json.dumps(found["graph learned, epsilon=1, delta=1e-7"], indent=1), flush=True)
    return found


def _rmse(theta: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.mean((theta.mean(axis=0) - truth) ** 2)))


def _compile(rng: np.random.Generator) -> None:
    """Load compiled code, so that it isn't timed; a user pays for it once an installation."""
    network = random_network(3, rng)
    rows = {name: ["0", "1"] * 20 for name in network.nodes}
    request = make_network_request(network.schema, network=network, epsilon=1)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "budget.db")
        ledger.set_cap(network.schema.dataset, 1)
        release = publish(request, rows, ledger=ledger).release
    fit_network(release, seed=1, draws=10)


# --- coverage of small networks --------------------------------------------------------------

SMALL: dict[str, tuple[dict[str, int], dict[str, list[str]]]] = {
    "naive Bayes": (
        {"c": 3, "x0": 2, "x1": 3, "x2": 4, "x3": 2},
        {"c": [], "x0": ["c"], "x1": ["c"], "x2": ["c"], "x3": ["c"]},
    ),
    "polytree": (
        {"a": 2, "b": 3, "c": 2, "d": 3, "e": 2},
        {"a": [], "b": [], "c": ["a", "b"], "d": ["c"], "e": ["c"]},
    ),
    "diamond": (
        {"a": 2, "b": 2, "c": 2, "d": 2},
        {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]},
    ),
    "loops": (
        {"a": 3, "b": 2, "c": 3, "d": 2, "e": 3, "f": 2},
        {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["c", "a"], "f": ["d", "e"]},
    ),
}


def coverage(data_sets: int, keep: Callable[[dict[str, Any]], None]) -> None:
    """Coverage of 90% intervals over tables from the prior, data and noise."""
    from noisewise.analyst.network import fit

    rng = np.random.default_rng(12345)
    found: dict[str, Any] = {}
    fit.ROWS_PER_SWEEP = 0  # counts only: latent rows are exact
    for name, (arities, parents) in SMALL.items():
        columns = {k: Category(tuple(map(str, range(r))), "0") for k, r in arities.items()}
        network = Network.make(Schema("coverage", columns), parents)
        layout = Layout(network)
        for n, epsilon in ((1000, 0.1), (1000, 0.5), (100_000, 0.05)):
            hits: dict[str, list[float]] = {"joint": [], "per_table": [], "plugin": []}
            for k in range(data_sets):
                truth = normalised(rng.standard_gamma(np.ones(layout.cells)), layout)
                rows = simulated(layout, truth, n, rng)
                request = make_network_request(network.schema, network=network, epsilon=epsilon)
                with tempfile.TemporaryDirectory() as folder:
                    ledger = Ledger(Path(folder) / "b.db")
                    ledger.set_cap(network.schema.dataset, epsilon)
                    release = publish(request, rows, ledger=ledger).release
                for method, listed in hits.items():
                    fitted = fit_network(
                        release, prior=1.0, method=method, chains=1, draws=500, seed=k
                    )
                    listed.append(covered(fitted.flat, truth))
            found[f"{name}, n={n}, epsilon={epsilon:g}"] = {
                method: {
                    "coverage": round(float(np.mean(listed)), 4),
                    "standard_error": round(float(np.std(listed) / np.sqrt(data_sets)), 4),
                }
                for method, listed in hits.items()
            }
            print(name, n, epsilon, found[f"{name}, n={n}, epsilon={epsilon:g}"], flush=True)
            keep(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--data-sets", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    results |= {
        "command": "python benchmarks/networks.py [--coverage]",
        "bars_processor_seconds_40_nodes": {
            "release": RELEASE_BAR,
            "joint_posterior": POSTERIOR_BAR,
        },
        "noisewise": version("noisewise"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }

    def keep(name: str, found: dict[str, Any]) -> None:
        load = round(os.getloadavg()[0], 1)
        results[name] = {**found, "load_average_when_finished": load}
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")

    if arguments.coverage:
        many = arguments.data_sets
        coverage(
            many,
            lambda found: keep("coverage_of_90_percent_intervals", {"data_sets": many, **found}),
        )
    elif arguments.nodes:
        keep(f"{arguments.nodes} nodes", large(arguments.nodes, 1_000_000, [1.0], learn=True))
    elif arguments.quick:
        keep("quick", large(12, 50_000, [1.0, 0.1]))
    else:
        keep("large", large(50, 1_000_000, [1.0, 0.1]))


if __name__ == "__main__":
    main()
