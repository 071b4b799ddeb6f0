"""Do intervals of network tables hold skewed truths, also where a row has few records?

Networks: ALARM, Sachs and Asia as they are in pgmpy's example models (their true tables are fixed),
and the graph of ALARM with tables drawn anew in every trial, from Dirichlet(0.3), skewed, and from
Dirichlet(1), for which the old default is right. Child and Insurance, with other n and epsilon, had
no part in the choice of prior and flags. Rows are simulated, noise is added to the counts
as `laplace` does, and the central 90% intervals of all entries are compared with the truth.

Methods, both by `joint`: ``learned`` is the default prior (see `noisewise.analyst.network.prior`),
``dirichlet(1)`` the default up to version 0.1: the negative control. Entries are sorted into bands
by the expected number of records in their row. Entries that are exactly 0 or 1 are left out: no
central interval holds an end of [0, 1]. An entry is flagged where the posterior says itself that
the prior decides. The goal is that intervals hold 86 to 94% of what isn't flagged, in every band.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Sequence
from functools import partial
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
from studies.report import Options, Report, kept_trials, seed_of, write_both
from studies.tables import Row, as_markdown, read_table
from studies.trials import Record
from studies.zhang2016.coverage import Tables, count_records, simulate_release

NAME = "network-priors"
LEVEL = 0.9
BANDS = (0.0, 50.0, 200.0, 1000.0, 5000.0, np.inf)
METHODS: dict[str, float | None] = {"learned": None, "dirichlet(1)": 1.0}  # their priors
GOAL = (0.86, 0.94)  # for what isn't flagged, in every band
FEWEST = 20  # entries that aren't flagged, in all data sets together, to say anything about them
WHAT = ("entries", "covered", "flagged", "covered and not flagged", "sum of widths")


class Setting(NamedTuple):
    """A network, and where its true tables come from."""

    label: str
    file: str
    n: int
    concentration: float | None  # of the law that tables are drawn from; None: the file's own
    trials: int
    epsilon: float = 1.0


SETTINGS = (
    Setting("ALARM", "alarm", 20_000, None, 24),
    Setting("Sachs", "sachs", 5_000, None, 12),
    Setting("Asia", "asia", 5_000, None, 20),
    Setting("Dirichlet(0.3)", "alarm", 20_000, 0.3, 3),
    # Neither prior nor flags were chosen by these.
    Setting("Child", "child", 2_000, None, 6),
    Setting("Child", "child", 2_000, None, 6, 3.0),
    Setting("Child", "child", 20_000, None, 4, 0.3),
    Setting("Child's graph, Dirichlet(0.1)", "child", 20_000, 0.1, 16),
    Setting("Insurance", "insurance", 20_000, None, 2),
    Setting("Dirichlet(1)", "alarm", 20_000, 1.0, 2),
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


def trial(setting: Setting, method: str, number: int) -> Record:
    """One method on one data set: a line of `WHAT` a band."""
    network, truth = read_bif(find_file(setting.file))
    n = setting.n
    rng = np.random.default_rng(seed_of(NAME, setting.label, n, str(setting.epsilon), number))
    if setting.concentration is not None:
        truth = {
            node: rng.dirichlet(
                np.full(network.arity(node), setting.concentration), network.shape(node)[:-1]
            )
            for node in network.nodes
        }
    counts = count_records(rng, network, truth, n)
    release = simulate_release(rng, network, counts, n, setting.epsilon, "laplace")
    layout = Layout(network)
    true = np.concatenate([layout.inward(i, truth[v]) for i, v in enumerate(layout.nodes)])
    inside = (true > 0) & (true < 1)
    band = np.digitize(expected_rows(network, truth, n), BANDS[1:-1])
    posterior = fit_network(
        release, prior=METHODS[method], method="joint", chains=CHAINS, draws=DRAWS, seed=number
    )
    low, high = np.quantile(posterior.flat, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    flags = [layout.inward(i, posterior.prior_decides(node)) for i, node in enumerate(layout.nodes)]
    flagged, covered = np.concatenate(flags), (low <= true) & (true <= high)
    columns = (inside, covered, flagged, covered & ~flagged, high - low)
    bands = [
        [round(float((column * inside)[band == k].sum()), 4) for column in columns]
        for k in range(len(BANDS) - 1)
    ]
    return {"trial": number, "bands": bands}


def summarise(setting: Setting, method: str, records: Sequence[Record]) -> list[Row]:
    """A line for each band, and one for all; standard errors are over data sets."""
    sums = np.array([record["bands"] for record in records])  # (trials, bands, WHAT)
    rows: list[Row] = []
    for name, here in [*zip(_names(), np.moveaxis(sums, 1, 0), strict=True), ("all", sums.sum(1))]:
        entries, covered, flagged, plain, width = here.T
        if not entries.any():
            continue
        coverage, error = _ratio(covered, entries)
        unflagged, error_of_unflagged = _ratio(plain, entries - flagged)
        rows.append(
            {
                "network": setting.label,
                "n": setting.n,
                "epsilon": setting.epsilon,
                "method": method,
                "records_in_row": name,
                "trials": len(records),
                "entries": round(float(entries.mean()), 1),
                "coverage": coverage,
                "se": error,
                "width": round(float(width.sum() / entries.sum()), 4),
                "flagged": round(float(flagged.sum() / entries.sum()), 4),
                "unflagged": round(float((entries - flagged).mean()), 1),
                "coverage_unflagged": unflagged,
                "se_unflagged": error_of_unflagged,
            }
        )
    return rows


def _ratio(part: Floats, whole: Floats) -> tuple[float | str, float | str]:
    """A share over all data sets, and its standard error; nothing where there is nothing."""
    if not whole.any():
        return "", ""
    share = part.sum() / whole.sum()
    many = len(whole)
    error = np.std(part - share * whole, ddof=1) * many**0.5 / whole.sum() if many > 1 else np.nan
    return round(float(share), 4), round(float(error), 4)


def _names() -> list[str]:
    ends = [f"{low:g} to {high:g}" for low, high in pairwise(BANDS[:-1])]
    return [*ends, f"{BANDS[-2]:g} or more"]


def verdict(row: Row) -> str:
    """What became of the goal: 86 to 94% of what isn't flagged, as far as trials can tell."""
    if row["unflagged"] * row["trials"] < FEWEST:
        return "flagged but for a few"
    low, high = GOAL
    share = row["coverage_unflagged"]
    if low <= share <= high:
        return "yes"
    word, edge = ("below", low) if share < low else ("above", high)
    # Few entries that are all covered have no spread between data sets; chance has one.
    chance = (edge * (1 - edge) / (row["unflagged"] * row["trials"])) ** 0.5
    reach = 2 * max(row["se_unflagged"], chance)
    clear = share + reach < low or share - reach > high
    return word if clear else f"{word}, within two standard errors"


# ---------------------------------------------------------------------------------------------
# Report


def write(out: Path, options: Options) -> list[Path]:
    """Run what is missing of every setting, and write the tables after each of them.

    With ``network`` or ``method`` given, only these run; lines of others stay as they are in `out`.
    """
    rows: list[Row] = []
    settings = SETTINGS[2:3] if options.quick else SETTINGS
    if "network" in options.settings:
        settings = tuple(s for s in SETTINGS if s.label == options.settings["network"])
    methods = [m for m in METHODS if options.settings.get("method", m) == m]
    table = out / f"{NAME}.csv"
    before = read_table(table) if options.settings and table.exists() else []
    for setting in settings:
        for method in methods:
            records = kept_trials(
                f"{NAME}-{setting.label}-{setting.n}-{setting.epsilon:g}-{method}",
                partial(trial, setting, method),
                options.runs or (2 if options.quick else setting.trials),
                {**setting._asdict(), "trials": "any", "method": method},
                out,
                options,
            )
            rows.extend(summarise(setting, method, records))
        made = {_key(row) for row in rows}
        all_rows = rows + [row for row in before if _key(row) not in made]
        paths = write_both(sorted(all_rows, key=_place), markdown, NAME, out)
    return paths


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("network", "n", "epsilon", "method", "records_in_row"))


def _place(row: Row) -> tuple[int, int]:
    """Of a line in the table: by setting, then by method."""
    names = [(s.label, s.n, s.epsilon) for s in SETTINGS]
    return names.index(_key(row)[:3]), list(METHODS).index(row["method"])


def markdown(rows: Sequence[Row]) -> str:
    """A line for each network and band: coverage in per cent, and what is flagged."""
    by = ("network", "n", "epsilon", "records_in_row")
    lines = []
    for key in dict.fromkeys(tuple(row[name] for name in by) for row in rows):
        here = {row["method"]: row for row in rows if tuple(row[name] for name in by) == key}
        row, (label, n, epsilon, band) = here["learned"], key
        cells = [f"{label}, n = {n:,}, ε = {epsilon:g}", band, f"{row['entries']:g}"]
        cells += [_share(row, ""), f"{100 * row['flagged']:.0f}%", _share(row, "_unflagged")]
        cells += [verdict(row) if band != "all" else "", _share(here["dirichlet(1)"], "")]
        lines.append(cells)
    return as_markdown(
        "network | records in row | entries | learned | flagged | of what isn't flagged | "
        "86 to 94? | dirichlet(1)",
        lines,
    )


def _share(row: Row, of: str) -> str:
    value = row[f"coverage{of}"]
    return "-" if value == "" else f"{100 * value:.1f} ± {100 * row[f'se{of}']:.1f}"


EXPERIMENT = Report(
    NAME,
    "Coverage of network tables with skewed truths, by how many records a row has",
    write,
    settings=("network", "method"),
)
