"""Learned graphs against MST: how far two-way margins are from those of the rows, at epsilon = 1.

Rows are simulated from networks that come with pgmpy (needed, with mbi 2: `pip install pgmpy mbi`).
Both sides get the same rows. noisewise publishes through the front door, ledger and all, and fits
with the defaults but fewer draws; two-way margins are posterior means. MST (McKenna, Miklau &
Sheldon 2021) isn't part of the mbi package, so it is written out here: a third of the budget each
for one-way margins, for the choice of a tree and for the tables of its edges, rare levels merged,
and mbi's estimate of all margins together. It has no intervals.

Neighbours and delta. MST is defined for people who are added or removed, with Gaussian noise at
delta = 1e-9, accounted for by zero-concentrated privacy. Each side is run with that delta and
purely (MST then with Laplace noise), and for people who are added or removed and who are replaced,
for which the noise of both is as much larger as that needs. TV is the total variation distance of a
two-way margin, averaged over all pairs of columns; from that of the rows, and of the truth.

    python benchmarks/learned_networks.py             all settings; adds to what is there
    python benchmarks/learned_networks.py --only asia
    python benchmarks/learned_networks.py --table     print the results as a table
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.analyst.network.fit import fit_network
from noisewise.analyst.network.layout import Floats, Layout
from noisewise.analyst.network.queries import joint_probabilities, places, synthetic_rows
from noisewise.core.kinds.network.graph import Network
from noisewise.holder.ledger import Ledger
from noisewise.holder.networks.learned import rooted, spanning
from noisewise.holder.publish import publish
from noisewise.holder.requests.network import make_network_request
from studies.network_priors import find_file, read_bif

RESULTS = Path(__file__).parent / "results" / "learned_networks.json"
EPSILON, DELTA, LEVEL = 1.0, 1e-9, 0.9
MARGIN_DRAWS = 200
TUNED = ("asia", "sachs", "child")  # by other rows than these, but no constant by others' tables
SETTINGS = [
    *(("asia", 5000, 12), ("sachs", 5000, 8)),
    *(("asia", 2000, 12), ("sachs", 2000, 8), ("child", 2000, 4)),
    *((name, n, 4) for n in (500, 2000) for name in ("survey", "cancer", "earthquake")),
    *((name, 20_000, 2) for name in ("asia", "sachs", "survey")),
    *(("insurance", 2000, 2), ("insurance", 20_000, 1)),  # MST takes minutes
]
PURE = [("asia", 5000), ("sachs", 5000)]  # where MST is run without delta, too
Margins = dict[tuple[str, str], Floats]
Codes = dict[str, np.ndarray]
RELATIONS = ("add_remove_one", "replace_one")


def margins(network: Network, theta: Floats) -> Margins:
    """Two-way margins under every draw, one axis for draws and two for levels."""
    layout = Layout(network)
    found = {}
    for a, b in pairs(network):
        table = joint_probabilities(layout, theta, (layout.number[a], layout.number[b]), {})
        assert table is not None
        found[a, b] = table
    return found


def pairs(network: Network) -> list[tuple[str, str]]:
    names = sorted(network.nodes)
    return list(combinations(names, 2))


def counted(network: Network, codes: Codes, names: tuple[str, ...]) -> np.ndarray:
    shape = tuple(network.arity(name) for name in names)
    cells = np.ravel_multi_index([codes[name] for name in names], shape)
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)


def away(found: Margins, wanted: Margins) -> float:
    """Mean total variation distance."""
    return float(np.mean([np.abs(found[p] - wanted[p]).sum() / 2 for p in wanted]))


# --- noisewise -----------------------------------------------------------------------------------


def learned(
    network: Network, codes: Codes, seed: int, *, delta: float
) -> tuple[Margins, Network, float]:
    """Draws of the margins, the graph, and processor seconds of Release and fit."""
    columns = {name: np.array(network.levels(name))[codes[name]] for name in network.nodes}
    start = time.process_time()
    asked = {"network": "learn", "epsilon": str(EPSILON), "delta": str(delta)}
    request = make_network_request(network.schema, **asked)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "budget.db")
        ledger.set_cap(network.schema.dataset, EPSILON, delta)
        release = publish(request, columns, ledger=ledger).release
    posterior = fit_network(release, chains=2, draws=500, seed=seed)
    seconds = time.process_time() - start
    some = posterior.flat[:: max(1, len(posterior.flat) // MARGIN_DRAWS)]
    return margins(release.network, some), release.network, seconds


def covered(drawn: Margins, truth: Margins, graph: Network) -> dict[str, float]:
    """Share of the true cells of two-way margins in their intervals; ends of [0, 1] left out.

    Of all pairs of columns, and of those that an arrow joins.
    """
    joined = {frozenset(edge) for edge in graph.edges}
    inside: dict[bool, list[bool]] = {True: [], False: []}
    for pair, true in truth.items():
        low, high = np.quantile(drawn[pair], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        inner = (true > 0) & (true < 1)
        inside[frozenset(pair) in joined].extend(((low <= true) & (true <= high))[inner].tolist())
    both = inside[True] + inside[False]
    shares = {"coverage": both, "coverage_of_arrows": inside[True]}
    return {name: round(float(np.mean(found)), 4) for name, found in shares.items()}


# --- MST -----------------------------------------------------------------------------------------


def zcdp(epsilon: float, delta: float) -> float:
    """The largest rho whose zCDP implies (epsilon, delta), by Canonne et al.'s (2020) bound."""
    orders = 1 + np.exp(np.linspace(-10, 12, 20_000))

    def implied(rho: float) -> float:
        logs = (orders - 1) * (orders * rho - epsilon) + (orders - 1) * np.log1p(-1 / orders)
        return float(np.exp((logs - np.log(orders)).min()))

    low, high = 0.0, epsilon
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if implied(middle) <= delta else (low, middle)
    return low


def mst(network: Network, codes: Codes, rng: np.random.Generator, *, pure: bool) -> Margins:
    import jax

    jax.config.update("jax_enable_x64", True)
    import mbi

    nodes, many = network.nodes, len(network.nodes)
    public = network.schema.n_is_public
    n = len(codes[nodes[0]])
    change = 2 if public else 1  # in L1, of one table
    third = EPSILON / 3 if pure else zcdp(EPSILON, DELTA) / 3

    def noisy(table: np.ndarray, tables: int) -> tuple[np.ndarray, float]:
        if pure:
            scale = change * tables / third
            return table + rng.laplace(0, scale, table.shape), scale * math.sqrt(2)
        sigma = math.sqrt(change * tables / (2 * third))  # L2 sensitivity: sqrt(change * tables)
        return table + rng.normal(0, sigma, table.shape), sigma

    levels = {v: noisy(counted(network, codes, (v,)), many) for v in nodes}
    merged, sizes = {}, {}
    for v, (values, sigma) in levels.items():
        common = values >= 3 * sigma
        merged[v] = np.where(common, np.cumsum(common) - 1, common.sum())
        sizes[v] = int(merged[v].max()) + 1
    total = float(n if public else max(1.0, np.mean([x.sum() for x, _ in levels.values()])))

    def small(names: tuple[str, ...]) -> np.ndarray:
        table = np.zeros([sizes[v] for v in names])
        np.add.at(table, np.ix_(*(merged[v] for v in names)), counted(network, codes, names))
        return table

    measurements, share = [], {}
    for v, (values, sigma) in levels.items():
        sums = np.bincount(merged[v], values, sizes[v])
        root = np.sqrt(np.bincount(merged[v], minlength=sizes[v]))
        query = mbi.WeightedQuery(1 / root)
        measurements.append(mbi.LinearMeasurement(sums / root, (v,), stddev=sigma, query=query))
        share[v] = np.maximum(sums, 0) / max(np.maximum(sums, 0).sum(), 1e-9)
    scores = {
        (a, b): np.abs(small((a, b)) - total * np.outer(share[a], share[b])).sum()
        for a, b in combinations(nodes, 2)
    }
    each = third / (many - 1) if pure else math.sqrt(8 * third / (many - 1))

    def exponential(values: Any) -> int:
        logits = each * np.array(values) / (2 * change)
        return int(np.argmax(logits + rng.gumbel(size=len(logits))))

    tree = Network(network.schema, rooted(network, spanning(network, scores, exponential)))
    for v in nodes:
        if tree.parents[v]:
            names = (tree.parents[v][0], v)
            values, sigma = noisy(small(names), many - 1)
            measurements.append(mbi.LinearMeasurement(values.ravel(), names, stddev=sigma))
    domain = mbi.Domain(nodes, [sizes[v] for v in nodes])
    model = mbi.estimation.MirrorDescent().estimate(domain, measurements, known_total=total)
    theta = []
    layout = Layout(tree)
    for i, v in enumerate(layout.nodes):
        family = tree.family(v)
        table = np.asarray(model.project(family).datavector()).reshape([sizes[x] for x in family])
        spread = table[np.ix_(*(merged[x] for x in family))] + 1e-12
        # A merged level's records are shared out equally.
        spread = spread / np.bincount(merged[v], minlength=sizes[v])[merged[v]]
        theta.append(layout.inward(i, spread / spread.sum(axis=-1, keepdims=True)))
    return {p: m[0] for p, m in margins(tree, np.concatenate(theta)[None]).items()}


# --- trials --------------------------------------------------------------------------------------


def trial(name: str, n: int, number: int, found: dict[str, Any]) -> None:
    """Everybody on the same rows; what is there already stays."""
    network, tables = read_bif(find_file(name))
    layout = Layout(network)
    theta = np.concatenate([layout.inward(i, tables[v]) for i, v in enumerate(layout.nodes)])
    truth = {p: m[0] for p, m in margins(network, theta[None]).items()}
    rng = np.random.default_rng([number, n, *name.encode()])
    rows = np.empty((n, len(layout.nodes)), dtype=np.int64)
    synthetic_rows(rng, theta[None], *places(layout), rows)
    codes = {v: rows[:, layout.number[v]] for v in network.nodes}
    there = {p: counted(network, codes, p) / n for p in truth}
    found["rows_from_truth"] = round(away(there, truth), 5)

    def kept(made: Margins) -> dict[str, Any]:
        distances = {"tv_rows": away(made, there), "tv_truth": away(made, truth)}
        return {name: round(value, 5) for name, value in distances.items()}

    for relation in RELATIONS:
        here = Network(replace(network.schema, neighbours=relation), network.parents)
        for own, delta in (("learn", DELTA), ("learn_pure", 0.0)):
            if f"{relation} {own}" in found:
                continue
            drawn, graph, seconds = learned(here, codes, number, delta=delta)
            found[f"{relation} {own}"] = {
                **kept({p: m.mean(axis=0) for p, m in drawn.items()}),
                **covered(drawn, truth, graph),
                "second_parents": sum(len(p) == 2 for p in graph.parents.values()),
                "processor_seconds": round(seconds, 2),
            }
        for peer in ("mst", "mst_pure") if (name, n) in PURE else ("mst",):
            if f"{relation} {peer}" not in found:
                made = mst(here, codes, rng, pure=peer == "mst_pure")
                found[f"{relation} {peer}"] = kept(made)


def table(results: dict[str, Any], say: Callable[[str], None]) -> None:
    """Means over trials, with the standard error of the difference from MST."""
    say(
        "| network | n | data sets | neighbours | `learn` with δ | MST with δ | difference | "
        "`learn`, pure | pure MST | second parents | coverage | with an arrow |"
    )
    say("|---" * 12 + "|")
    for setting, all_trials in results["trials"].items():
        trials = [found for found in all_trials if found]
        if not trials:
            continue
        name, n = setting.split(", n=")
        for relation in RELATIONS:
            means = {
                way: np.array([t[f"{relation} {way}"]["tv_rows"] for t in trials])
                for way in ("learn", "mst", "learn_pure", "mst_pure")
                if f"{relation} {way}" in trials[-1]
            }
            apart = means["learn"] - means["mst"]
            error = apart.std(ddof=1) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
            second, hold, arrows = (
                np.mean([t[f"{relation} learn"][key] for t in trials])
                for key in ("second_parents", "coverage", "coverage_of_arrows")
            )
            own, peer, pure, pure_peer = (
                f"{means[way].mean():.4f}"[1:] if way in means else ""
                for way in ("learn", "mst", "learn_pure", "mst_pure")
            )
            say(
                f"| {name}{'' if name in TUNED else ' (unseen)'} | {int(n):,} | {len(apart)} | "
                f"{relation} | {own} | {peer} | {apart.mean():+.4f} ± {error:.4f} | {pure} | "
                f"{pure_peer} | {second:.1f} | {100 * hold:.0f}% | {100 * arrows:.0f}% |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="a network's name")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"trials": {}}
    results = {
        "command": "python benchmarks/learned_networks.py",
        "epsilon": EPSILON,
        "delta": DELTA,
        "noisewise": version("noisewise"),
        "trials": results["trials"],
    }
    if not arguments.table:
        results["mbi"] = version("mbi")
        for name, n, trials in SETTINGS:
            if arguments.only not in (None, name):
                continue
            done = results["trials"].setdefault(f"{name}, n={n}", [])
            done.extend({} for _ in range(trials - len(done)))
            for number, found in enumerate(done):
                trial(name, n, number, found)
                print(name, n, number, json.dumps(found), flush=True)
                arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    table(results, print)


if __name__ == "__main__":
    main()
