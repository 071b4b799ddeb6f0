"""Tables of a calibration study: a line for each cell, method and parameter."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.calibration.trial import Cell, Record, spread_ranks
from studies.uniformity import LEVELS, coverage, coverage_test, outside_band, uniformity_test

Row = dict[str, Any]


def summarise(cell: Cell, records: Sequence[Record]) -> list[Row]:
    """What the trials of one cell say.

    Columns: the cell's factors; `trials` that gave a rank and `failed` that did not; `ks` with its
    standard error, `p_value`; `outside_band`, whether the ranks leave the simultaneous 95% band;
    coverage of central intervals, at 95% with its standard error and the p-value of a binomial
    test; median and smallest effective sample size, and the share of trials `thinned` because it
    was too small even after a longer run; mean squared discrepancy to the non-private posterior
    with its standard error; median seconds of processor time.
    """
    rows = []
    for method in cell.methods:
        outcomes = [record["methods"][method.name] for record in records]
        good = [outcome for outcome in outcomes if "u" in outcome]
        u = spread_ranks(records, method.name)
        common = {
            "cell": cell.name,
            **cell.model.factors(),
            "method": method.name,
            "trials": len(good),
            "failed": len(outcomes) - len(good),
        }
        shared = _shared(good)
        for i, parameter in enumerate(cell.model.parameters if good else ()):
            test = uniformity_test(u[:, i])
            row = {**common, "parameter": parameter}
            row["ks"] = short(test.ks)
            row["ks_error"] = short(test.ks_error)
            row["p_value"] = short(test.p_value)
            row["outside_band"] = int(outside_band(u[:, i]))
            for level in LEVELS:
                row[f"coverage_{round(100 * level)}"] = short(coverage(u[:, i], level))
            row["coverage_95_error"] = short((0.95 * 0.05 / len(good)) ** 0.5)
            row["coverage_95_p"] = short(coverage_test(u[:, i], 0.95))
            sizes = np.array([outcome["ess"][i] for outcome in good])
            row["ess_median"] = float(np.median(sizes))
            row["ess_smallest"] = int(sizes.min())
            row["thinned"] = short(float(np.mean(sizes < cell.ranked)))
            rows.append({**row, **shared})
        if not good:
            rows.append({**common, "parameter": "all"})
    return rows


def _shared(good: Sequence[Record]) -> Row:
    """What does not depend on the parameter."""
    values = np.array([outcome["mmd2"] for outcome in good if "mmd2" in outcome])
    row: Row = {"mmd2": "", "mmd2_error": "", "seconds": ""}
    if len(values) > 1:
        row["mmd2"] = short(float(values.mean()))
        row["mmd2_error"] = short(float(values.std(ddof=1) / len(values) ** 0.5))
    if good:
        row["seconds"] = short(float(np.median([outcome["seconds"] for outcome in good])))
    return row


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write rows as CSV; columns in the order in which they first occur."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_table(path: Path) -> list[Row]:
    """Read what `write_table` wrote; numbers come back as numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: _number(value) for name, value in row.items()} for row in csv.DictReader(file)
        ]


def surprises(rows: Iterable[Row], *, below: float = 0.01) -> dict[str, tuple[int, int]]:
    """For each method, how many p-values are below a level and how many there are."""
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        if isinstance(row.get("p_value"), float | int):
            small, all_ = counts.get(row["method"], (0, 0))
            counts[row["method"]] = (small + (row["p_value"] < below), all_ + 1)
    return counts


def summary_lines(rows: Sequence[Row]) -> list[str]:
    """One line a cell and method: smallest p over the D parameters times D, worst 95% coverage."""
    lines = [
        f"{'cell':34} {'method':18} {'trials':>6} {'failed':>6} {'p × D':>9} {'coverage 95%':>15}"
    ]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["cell"], row["method"]), []).append(row)
    for (cell, method), group in groups.items():
        first = group[0]
        head = f"{cell:34} {method:18} {first['trials']:6d} {first['failed']:6d}"
        if "p_value" not in first:
            lines.append(f"{head}    failed")
            continue
        p = min(1.0, len(group) * min(row["p_value"] for row in group))
        covered = [row["coverage_95"] for row in group]
        lines.append(f"{head} {p:9.2g} {min(covered):7.3f}..{max(covered):.3f}")
    return lines


def _number(value: str) -> Any:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return value


def short(value: Any, digits: int = 4) -> float:
    """As many digits as a table needs."""
    return float(f"{float(value):.{digits}g}")


# --- for people to read ---------------------------------------------------------------------------


SMALL = 0.01


def as_markdown(head: str, lines: Iterable[Sequence[object]], above: str = "") -> str:
    """Markdown of a table, from titles with bars between them and cells; with a text above it."""
    rules = "|".join(["---"] * (head.count(" | ") + 1))
    body = ["| " + " | ".join(map(str, cells)) + " |\n" for cells in lines]
    return f"{above}| {head} |\n|{rules}|\n{''.join(body)}"


def markdown_table(rows: Sequence[Row]) -> str:
    """KS p-value and coverage of 95% intervals, as Markdown.

    Several slopes share a line: the smallest of their K p-values times K, and the range of their
    coverages. p-values below 0.01 are bold.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for cell in dict.fromkeys(row["cell"] for row in rows):
        here = [row for row in rows if row["cell"] == cell]
        for parameter in dict.fromkeys(_group(row) for row in here):
            entries = [
                _entry([r for r in here if _group(r) == parameter and r["method"] == method])
                for method in methods
            ]
            count = max(row["trials"] for row in here)
            lines.append((cell, count, parameter, *entries))
    return as_markdown(" | ".join(("cell", "trials", "parameter", *methods)), lines)


def _group(row: Row) -> str:
    name = str(row["parameter"])
    return "slopes" if name.startswith("slope_") else name


def _entry(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    if any(row.get("p_value", "") == "" for row in rows):
        return "failed"
    p = min(1.0, len(rows) * min(row["p_value"] for row in rows))
    shown = f"{p:.0e}" if p < 0.001 else f"{p:.3f}" if p < SMALL else f"{p:.2f}"
    covered = sorted(row["coverage_95"] for row in rows)
    ends = f"{covered[0]:.3f}" + (f"–{covered[-1]:.3f}" if len(rows) > 1 else "")
    failed = max(row["failed"] for row in rows)
    note = f" ({failed} failed)" if failed else ""
    return f"{f'**{shown}**' if p < SMALL else shown}, {ends}{note}"
