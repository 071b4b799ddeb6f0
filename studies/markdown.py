"""A calibration table for people to read: a line a cell and parameter, a column a method."""

from __future__ import annotations

from collections.abc import Sequence

from studies.tables import Row

SMALL = 0.01


def markdown_table(rows: Sequence[Row]) -> str:
    """KS p-value and coverage of 95% intervals, as Markdown.

    Several slopes share a line: the smallest of their K p-values times K, and the range of their
    coverages. p-values below 0.01 are bold.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [
        "| cell | trials | parameter | " + " | ".join(methods) + " |",
        "|---|---|---|" + "---|" * len(methods),
    ]
    for cell in dict.fromkeys(row["cell"] for row in rows):
        here = [row for row in rows if row["cell"] == cell]
        for parameter in dict.fromkeys(_group(row) for row in here):
            entries = [
                _entry([r for r in here if _group(r) == parameter and r["method"] == method])
                for method in methods
            ]
            count = max(row["trials"] for row in here)
            lines.append(f"| {cell} | {count} | {parameter} | " + " | ".join(entries) + " |")
    return "\n".join(lines) + "\n"


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
