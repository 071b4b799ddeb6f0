"""Coverage of 90% credible intervals of table entries, with and without a model of the noise.

In every trial tables are drawn from the uniform prior, records from the tables, noise is added to
the counts (or parity counts), and each method's central 90% interval of every free table entry is
compared with the truth. Calibrated intervals hold 90% of the truths, on average over the prior.

Methods: ``plugin`` is what Zhang, Rubinstein & Dimitrakakis (2016) do with the same Release;
``per_table`` and ``joint`` model the noise, with the prior that the tables came from; ``joint,
fourier`` has a Release of parity counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise import __version__, _palette
from noisewise._arrays import FloatArray
from noisewise.analyst.network.fit import fit_network
from noisewise.analyst.network.layout import Layout
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import (
    Content,
    NetworkRelease,
    NoisyCounts,
    NoisyParities,
    one_is_enough,
)
from noisewise.core.privacy import Claim
from noisewise.core.schema import Category, Schema
from noisewise.holder.networks.counts import LaplaceCounts
from noisewise.holder.networks.fourier import FourierParities
from studies.figures import canvas
from studies.report import Options, Report, seed_of
from studies.tables import Row, as_markdown, short, write_table
from studies.zhang2016.mechanisms import discrete_laplace

Tables = dict[str, NDArray[Any]]
Cell = tuple[str, int, float]  # network, n, epsilon
NAME = "zhang2016-coverage"
SIZES = (50, 1000, 100_000)
EPSILONS = (0.1, 1.0, 10.0)
METHODS = ("plugin", "per_table", "joint", "joint, fourier")
TRIALS = 120
DRAWS = 200  # one chain; `joint` thins it, and nearly all of them are independent
LEVEL = 0.9


def networks() -> dict[str, Network]:
    """The graphs of the study: binary and ternary nodes."""
    ternary = ("low", "middle", "high")

    def declare(**arities: int) -> Schema:
        levels = {2: ("no", "yes"), 3: ternary}
        columns = {name: Category(levels[r], levels[r][0]) for name, r in arities.items()}
        return Schema("simulated", columns)

    chain = declare(a=2, b=3, c=2, d=3, e=2)
    bayes = declare(y=2, u=2, v=2, w=3, x=2, z=3)
    three = declare(a=2, b=2, c=3, d=2, e=2)
    return {
        "chain": Network.make(chain, {"b": ["a"], "c": ["b"], "d": ["c"], "e": ["d"]}),
        "naive Bayes": Network.naive_bayes(bayes, "y"),
        "three parents": Network.make(three, {"d": ["a", "b", "c"], "e": ["d"]}),
    }


# ---------------------------------------------------------------------------------------------
# Simulated Releases


def draw_tables(rng: np.random.Generator, network: Network) -> Tables:
    """Every row of every table uniform on its simplex."""
    return {
        node: rng.dirichlet(np.ones(network.arity(node)), network.shape(node)[:-1])
        for node in network.nodes
    }


def count_records(rng: np.random.Generator, network: Network, tables: Tables, n: int) -> Tables:
    """Family counts of n records."""
    codes: dict[str, NDArray[np.int64]] = {}
    for node in network.order:
        rows = tables[node][tuple(codes[parent] for parent in network.parents[node])]
        upper = np.cumsum(rows, axis=-1)[..., :-1]
        codes[node] = (rng.random((n, 1)) > upper).sum(axis=-1)
    counts: Tables = {}
    for node in network.nodes:
        counts[node] = np.zeros(network.shape(node), dtype=np.int64)
        np.add.at(counts[node], tuple(codes[name] for name in network.family(node)), 1)
    return counts


def simulate_release(
    rng: np.random.Generator, network: Network, counts: Tables, n: int, epsilon: float, kind: str
) -> NetworkRelease:
    """What a holder would publish, with NumPy's noise: for simulated records only."""
    exact = Fraction(str(epsilon))
    content: Content
    if kind == "laplace":
        planned = LaplaceCounts(network, exact)
        values = {}
        for node in network.nodes:
            cells = counts[node].ravel()[one_is_enough(network, True, node) :]
            values[node] = tuple(
                (cells + discrete_laplace(rng, planned.scale, len(cells))).tolist()
            )
        content = NoisyCounts(values, planned.scale, planned.sensitivity)
        event = planned.event()
    else:
        fourier = FourierParities(network, exact)
        parities = fourier.parities
        odd = np.zeros(len(parities), dtype=np.int64)
        for node in network.nodes:
            odd[parities.positions(node)] = parities.parity_counts(node, counts[node])
        noisy = odd + discrete_laplace(rng, fourier.scale, len(odd))
        content = NoisyParities(tuple(noisy.tolist()), fourier.scale, fourier.sensitivity, 0.0, 0.9)
        event = fourier.event()
    return NetworkRelease(
        network=network,
        n=n,
        mechanism="laplace" if kind == "laplace" else "fourier",
        content=content,
        claim=Claim(exact),
        event=event,
        label="simulated",
        software=f"noisewise {__version__} studies",
    )


# ---------------------------------------------------------------------------------------------
# Coverage


class Outcome(NamedTuple):
    """One trial of one method: share of entries covered, mean width, share above the interval."""

    covered: float
    width: float
    above: float


def judge(rng: np.random.Generator, network: Network, theta: FloatArray, truth: Tables) -> Outcome:
    """Compare draws of all tables, shape (draws, cells), with the truth.

    The last level of every row is left out: it is what the others leave. An entry is covered if
    its rank among the draws, spread over its share of [0, 1], is in the middle 90%: for
    independent draws that is exact, however few they are.
    """
    layout = Layout(network)
    ranks, widths = [], []
    for i, node in enumerate(layout.nodes):
        part = layout.part(i)
        r = network.arity(node)
        draws = theta[:, part].reshape(len(theta), -1, r)[..., : r - 1]
        true = layout.inward(i, truth[node]).reshape(-1, r)[..., : r - 1]
        below = (draws < true).sum(axis=0)
        ranks.append(((below + rng.random(below.shape)) / (len(theta) + 1)).ravel())
        low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        widths.append((high - low).ravel())
    rank = np.concatenate(ranks)
    inside = np.abs(rank - 0.5) <= LEVEL / 2
    return Outcome(
        float(inside.mean()),
        float(np.concatenate(widths).mean()),
        float((rank > 0.5 + LEVEL / 2).mean()),
    )


def trial(
    label: str, network: Network, n: int, epsilon: float, number: int, methods: Iterable[str]
) -> dict[str, Outcome]:
    """All methods on one data set."""
    rng = np.random.default_rng(seed_of(NAME, label, n, str(epsilon), number))
    truth = draw_tables(rng, network)
    counts = count_records(rng, network, truth, n)
    releases = {
        kind: simulate_release(rng, network, counts, n, epsilon, kind)
        for kind in ("laplace", "fourier")
    }
    found = {}
    for method in methods:
        release = releases["fourier" if "fourier" in method else "laplace"]
        posterior = fit_network(
            release, prior=1.0, method=method.split(",")[0], chains=1, draws=DRAWS, seed=number
        )
        found[method] = judge(rng, network, posterior.theta[0], truth)
    return found


def summarise(label: str, n: int, epsilon: float, method: str, outcomes: list[Outcome]) -> Row:
    """A row of the table; standard errors are over trials, whose entries hang together."""
    covered = np.array([outcome.covered for outcome in outcomes])
    return {
        "network": label,
        "n": n,
        "epsilon": epsilon,
        "method": method,
        "trials": len(outcomes),
        "coverage": short(covered.mean()),
        "se": short(covered.std(ddof=1) / len(covered) ** 0.5),
        "width": short(np.mean([outcome.width for outcome in outcomes])),
        "above": short(np.mean([outcome.above for outcome in outcomes])),
    }


# ---------------------------------------------------------------------------------------------
# Report


def write(out: Path, options: Options) -> list[Path]:
    """Run all cells in turn, trial by trial, and write table, Markdown and figure.

    They are written after every tenth trial, so that an interrupted study shows what it has.
    """
    paths = [out / f"{NAME}.csv", out / f"{NAME}.md", out / f"{NAME}.png"]
    trials = options.runs or (4 if options.quick else TRIALS)
    cells = [(label, n, e) for label in networks() for n in SIZES for e in EPSILONS]
    if options.quick:
        cells = [("chain", 50, 1.0), ("chain", 1000, 1.0)]
    graphs = networks()
    found: dict[Cell, list[dict[str, Outcome]]] = {cell: [] for cell in cells}
    for number in range(trials):
        for label, n, epsilon in cells:
            outcome = trial(label, graphs[label], n, epsilon, number, METHODS)
            found[label, n, epsilon].append(outcome)
        if number % 10 == 9 or number == trials - 1:
            _write(found, paths)
    return paths


def _write(found: dict[Cell, list[dict[str, Outcome]]], paths: list[Path]) -> None:
    rows = [
        summarise(*cell, method, [outcome[method] for outcome in outcomes])
        for cell, outcomes in found.items()
        for method in METHODS
    ]
    write_table(rows, paths[0])
    paths[1].write_text(markdown(rows), encoding="utf-8")
    draw(rows, paths[2])


def markdown(rows: list[Row]) -> str:
    """A line for each network, n and epsilon; coverage in per cent."""
    lines = []
    cells = dict.fromkeys((row["network"], row["n"], row["epsilon"]) for row in rows)
    for cell in sorted(cells, key=lambda c: (list(networks()).index(c[0]), *c[1:])):
        label, n, epsilon = cell
        where = [row for row in rows if (row["network"], row["n"], row["epsilon"]) == cell]
        here = {row["method"]: row for row in where}
        shown = [
            f"{100 * here[m]['coverage']:.1f} ± {100 * here[m]['se']:.1f}" if m in here else ""
            for m in METHODS
        ]
        lines.append((label, f"{n:,}", f"{epsilon:g}", *shown))
    return as_markdown(" | ".join(("network", "n", "epsilon", *METHODS)), lines)


STYLES = {
    "plugin": (_palette.NAIVE, "x"),
    "per_table": (_palette.OTHERS[0], "^"),
    "joint": (_palette.AWARE, "D"),
    "joint, fourier": (_palette.OTHERS[1], "s"),
}


def draw(rows: list[Row], path: Path) -> None:
    """Coverage against epsilon, a panel for each network and n."""
    labels = [label for label in networks() if any(row["network"] == label for row in rows)]
    sizes = sorted({row["n"] for row in rows})
    figure = canvas(2.5 * len(labels) + 0.6, 2.0 * len(sizes) + 0.5)
    axes = figure.subplots(len(sizes), len(labels), squeeze=False, sharex=True, sharey=True)
    for i, n in enumerate(sizes):
        for j, label in enumerate(labels):
            axis = axes[i, j]
            axis.axhspan(LEVEL - 0.02, LEVEL + 0.02, color="0.88")
            for method, (colour, marker) in STYLES.items():
                here = sorted(
                    (row["epsilon"], row["coverage"], row["se"])
                    for row in rows
                    if (row["network"], row["n"], row["method"]) == (label, n, method)
                )
                if here:
                    x, y, se = zip(*here, strict=True)
                    style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3.5}
                    axis.errorbar(x, y, se, label=method, linewidth=1, **style)
            axis.set_xscale("log")
            axis.set_ylim(0, 1)
            axis.set_title(f"{label}, n = {n:,}", fontsize=8)
            axis.tick_params(labelsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon", fontsize=8)
    axes[len(sizes) // 2, 0].set_ylabel("coverage of 90% intervals", fontsize=8)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=110)


EXPERIMENT = Report(
    NAME,
    "Coverage of credible intervals of network tables: noise-aware against plugging counts in",
    write,
)
