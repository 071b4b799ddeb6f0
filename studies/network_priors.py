"""Do intervals of network tables hold skewed truths, also where a row has few records?

Networks: ALARM, Sachs and Asia as they are in pgmpy's example models (their true tables are fixed),
and the graph of ALARM with tables drawn anew in every trial, from Dirichlet(0.3), skewed, and from
Dirichlet(1), for which the old default is right. Rows are simulated, noise is added to the counts
as `laplace` does, and the central 90% intervals of all entries are compared with the truth.

Methods: ``learned`` is the default prior (see `noisewise.analyst.network.prior`), ``per_table`` the
same without what tables say about each other, ``dirichlet(1)`` the default up to version 0.1: the
negative control. Entries are sorted into bands by the expected number of records in their row.
Entries that are exactly 0 or 1 are left out: no central interval holds an end of [0, 1]. An entry
is flagged where the posterior says itself that the prior decides.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import defaultdict
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise.analyst.network.fit import fit_network
from noisewise.analyst.network.layout import Floats, Layout
from noisewise.analyst.network.queries import joint_probabilities
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Schema
from studies.experiments import DataAbsentError
from studies.report import Options, Report, seed_of
from studies.tables import Row, write_table
from studies.zhang2016.coverage import Tables, count_records, simulate_release

NAME = "network-priors"
LEVEL = 0.9
EPSILON = 1.0
BANDS = (0.0, 50.0, 200.0, 1000.0, 5000.0, np.inf)
METHODS: dict[str, dict[str, Any]] = {
    "learned": {"method": "joint"},
    "per_table": {"method": "per_table"},
    "dirichlet(1)": {"method": "joint", "prior": 1.0},
}
SETTINGS = (  # name, file, n, concentration of the true tables or None for the file's own, trials
    ("ALARM", "alarm", 20_000, None, 6),
    ("Sachs", "sachs", 5_000, None, 20),
    ("Asia", "asia", 5_000, None, 40),
    ("Dirichlet(0.3)", "alarm", 20_000, 0.3, 6),
    ("Dirichlet(1)", "alarm", 20_000, 1.0, 6),
)
DRAWS, CHAINS = 500, 2
_LEVELS = re.compile(r"variable\s+(\S+)\s*\{\s*type discrete \[\s*\d+\s*\]\s*\{([^}]*)\}")
_TABLE = re.compile(r"probability\s*\(\s*([^|)]+?)\s*(?:\|\s*([^)]*?)\s*)?\)\s*\{([^}]*)\}")
_ROW = re.compile(r"(?:\(([^)]*)\)|table)\s+([^;]+);")


# ---------------------------------------------------------------------------------------------
# Networks from files


def find_file(name: str) -> Path:
    """A BIF file in the folder of NOISEWISE_LAB_DATA, or in an installed pgmpy."""
    folders = [Path(os.environ.get("NOISEWISE_LAB_DATA", "."))]
    found = find_spec("pgmpy")
    if found is not None and found.origin is not None:
        folders.append(Path(found.origin).parent / "utils" / "example_models")
    for folder in folders:
        if (folder / f"{name}.bif.gz").exists():
            return folder / f"{name}.bif.gz"
    raise DataAbsentError(
        f"{name}.bif.gz: not in the folder of NOISEWISE_LAB_DATA, and pgmpy, which has it among "
        "its example models, is not installed"
    )


def read_bif(path: Path) -> tuple[Network, Tables]:
    """A network with its true tables, in the declared order of parents."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    levels = {name: _split(listed) for name, listed in _LEVELS.findall(text)}
    columns = {name: Category(tuple(own), own[0]) for name, own in levels.items()}
    found = {node: (_split(parents), body) for node, parents, body in _TABLE.findall(text)}
    network = Network.make(
        Schema("simulated", columns), {node: parents for node, (parents, _) in found.items()}
    )
    tables: Tables = {}
    for node, (parents, body) in found.items():
        table = np.full(network.shape(node), np.nan)
        for given, numbers in _ROW.findall(body):
            place = [levels[p].index(x) for p, x in zip(parents, _split(given), strict=True)]
            row = np.array([float(x) for x in _split(numbers)])
            table[tuple(place)] = row / row.sum()
        assert np.isfinite(table).all(), node
        tables[node] = table
    return network, tables


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


# ---------------------------------------------------------------------------------------------
# Coverage


class Entry(NamedTuple):
    """What became of all entries of one data set, each of shape (entries,)."""

    band: Any
    covered: Any
    flagged: Any
    width: Any


def expected_rows(network: Network, truth: Tables, n: int) -> Floats:
    """Expected records in the row of every cell, in the order of `Layout`."""
    layout = Layout(network)
    theta = np.concatenate([layout.inward(i, truth[v]) for i, v in enumerate(layout.nodes)])[None]
    found = np.empty(layout.cells)
    for i, parents in enumerate(layout.parents):
        share = np.ones(1)
        if parents:
            joint = joint_probabilities(layout, theta, parents, {})
            assert joint is not None
            share = joint[0].reshape(-1)
        found[layout.part(i)] = n * np.repeat(share, int(layout.arity[i]))
    return found


def trial(
    label: str, network: Network, truth: Tables | None, n: int, concentration: float, number: int
) -> dict[str, Entry]:
    """All methods on one data set."""
    rng = np.random.default_rng(seed_of(NAME, label, n, str(EPSILON), number))
    if truth is None:
        truth = {
            node: rng.dirichlet(
                np.full(network.arity(node), concentration), network.shape(node)[:-1]
            )
            for node in network.nodes
        }
    counts = count_records(rng, network, truth, n)
    release = simulate_release(rng, network, counts, n, EPSILON, "laplace")
    layout = Layout(network)
    true = np.concatenate([layout.inward(i, truth[v]) for i, v in enumerate(layout.nodes)])
    inside = (true > 0) & (true < 1)
    band = np.digitize(expected_rows(network, truth, n), BANDS[1:-1])
    found = {}
    for name, words in METHODS.items():
        posterior = fit_network(release, chains=CHAINS, draws=DRAWS, seed=number, **words)
        low, high = np.quantile(posterior.flat, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        flags = [
            layout.inward(i, posterior.prior_decides(node)) for i, node in enumerate(layout.nodes)
        ]
        covered = (low <= true) & (true <= high)
        columns = (band, covered, np.concatenate(flags), high - low)
        found[name] = Entry(*(column[inside] for column in columns))
    return found


def summarise(label: str, n: int, method: str, entries: list[Entry]) -> list[Row]:
    """A line for each band, and one for all; standard errors are over trials."""
    rows: list[Row] = []
    for k, name in [*enumerate(_names()), (None, "all")]:
        kept = [e.band >= 0 if k is None else e.band == k for e in entries]
        if not any(here.any() for here in kept):
            continue
        shares = [float(e.covered[x].mean()) for e, x in zip(entries, kept, strict=True) if x.any()]
        covered, flagged, width = (
            np.concatenate([getattr(e, what)[x] for e, x in zip(entries, kept, strict=True)])
            for what in ("covered", "flagged", "width")
        )
        error = np.std(shares, ddof=1) / len(shares) ** 0.5 if len(shares) > 1 else float("nan")
        rows.append(
            {
                "network": label,
                "n": n,
                "epsilon": EPSILON,
                "method": method,
                "records_in_row": name,
                "trials": len(entries),
                "entries": round(len(covered) / len(entries), 1),
                "coverage": round(float(covered.mean()), 4),
                "se": round(float(error), 4),
                "width": round(float(width.mean()), 4),
                "flagged": round(float(flagged.mean()), 4),
                "coverage_unflagged": (
                    round(float(covered[~flagged].mean()), 4) if (~flagged).any() else ""
                ),
            }
        )
    return rows


def _names() -> list[str]:
    ends = [f"{low:g} to {high:g}" for low, high in pairwise(BANDS[:-1])]
    return [*ends, f"{BANDS[-2]:g} or more"]


# ---------------------------------------------------------------------------------------------
# Report


def write(out: Path, options: Options) -> list[Path]:
    """Run every setting, and write table and Markdown after each of them."""
    paths = [out / f"{NAME}.csv", out / f"{NAME}.md"]
    rows: list[Row] = []
    settings = SETTINGS[2:3] if options.quick else SETTINGS
    if "network" in options.settings:
        settings = tuple(s for s in SETTINGS if s[0] == options.settings["network"])
    for label, file, n, concentration, trials in settings:
        network, truth = read_bif(find_file(file))
        found: defaultdict[str, list[Entry]] = defaultdict(list)
        for number in range(options.runs or (2 if options.quick else trials)):
            own = truth if concentration is None else None
            for method, entry in trial(label, network, own, n, concentration or 1, number).items():
                found[method].append(entry)
        for method, entries in found.items():
            rows.extend(summarise(label, n, method, entries))
        write_table(rows, paths[0])
        paths[1].write_text(markdown(rows), encoding="utf-8")
    return paths


def markdown(rows: list[Row]) -> str:
    """A line for each network and band: coverage in per cent, and what is flagged."""
    lines = [
        "| network | records in row | entries | learned | flagged | unflagged | per_table | "
        "flagged | unflagged | dirichlet(1) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys((row["network"], row["n"], row["records_in_row"]) for row in rows)
    for label, n, band in keys:
        here = {
            row["method"]: row
            for row in rows
            if (row["network"], row["n"], row["records_in_row"]) == (label, n, band)
        }
        cells = [f"{label}, n = {n:,}", band, f"{here['learned']['entries']:g}"]
        for method in ("learned", "per_table"):
            row = here[method]
            cells += [_with_error(row), f"{100 * row['flagged']:.0f}%", _per_cent(row)]
        cells.append(_with_error(here["dirichlet(1)"]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _with_error(row: Row) -> str:
    return f"{100 * row['coverage']:.1f} ± {100 * row['se']:.1f}"


def _per_cent(row: Row) -> str:
    value = row["coverage_unflagged"]
    return "-" if value == "" else f"{100 * value:.1f}"


EXPERIMENT = Report(
    NAME,
    "Coverage of network tables with skewed truths, by how many records a row has",
    write,
    settings=("network",),
)
