"""The six panels of figure 3 of Bernstein & Sheldon (2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.calibration.trial import Record, spread_ranks
from studies.figures import style
from studies.tables import Row

PARAMETERS = ("intercept", "slope", "sigma2")


def draw_panels(
    rows: Sequence[Row], qq: Mapping[str, list[Record]], methods: Sequence[str], path: Path
) -> None:
    """Draw 3a to 3f from a table, and from the records of n = 10, epsilon = 0.1 for 3c.

    3a to 3d have one panel a parameter. The paper's caption leaves open what 3d and 3e are drawn
    against; here it is n at epsilon = 0.1 for coverage, and epsilon for the discrepancy.

    Parameters
    ----------
    rows : sequence of Row
        Of the paper's design.
    qq : mapping
        Name of the cell of 3c and its records; empty if it was not run.
    methods : sequence of str
    path : Path
    """
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 13), layout="constrained")
    grid = figure.subplots(6, 3, squeeze=False)
    at_epsilon = [row for row in rows if row["epsilon"] == 0.1]
    at_n = [row for row in rows if row["n"] == 10]
    for j, parameter in enumerate(PARAMETERS):
        _lines(grid[0, j], _of(at_epsilon, parameter), methods, "n", "ks")
        _lines(grid[1, j], _of(at_n, parameter), methods, "epsilon", "ks")
        for records in qq.values():
            _quantiles(grid[2, j], records, methods, j)
        _lines(grid[3, j], _of(at_epsilon, parameter), methods, "n", "coverage_95")
        grid[3, j].axhline(0.95, color="0.6", linewidth=0.8)
        grid[0, j].set_title(parameter)
        for line in (0, 1):
            grid[line, j].set_ylim(0, 0.9)
        grid[3, j].set_ylim(0, 1.02)
    sizes = sorted({row["n"] for row in rows})
    for j, n in enumerate(sizes[:3]):
        chosen = [row for row in rows if row["n"] == n and row["mmd2"] != ""]
        _lines(grid[4, j], _of(chosen, "slope"), methods, "epsilon", "mmd2")
        grid[4, j].set_title(f"n = {n}", fontsize=8)
    _lines(grid[5, 0], _of(at_epsilon, "slope"), methods, "n", "seconds")
    grid[5, 0].set_yscale("log")
    for axis in (*grid[5, 1:], *grid[4, len(sizes) :]):
        axis.set_axis_off()
    labels = (
        "3a: KS\nepsilon = 0.1",
        "3b: KS\nn = 10",
        "3c: QQ\nn = 10, epsilon = 0.1",
        "3d: coverage of 95%\nepsilon = 0.1",
        "3e: MMD² to\nnon-private",
        "3f: seconds of one\nprocess, epsilon = 0.1",
    )
    for axis, label in zip(grid[:, 0], labels, strict=True):
        axis.set_ylabel(label)
    handles = [grid[5, 1].plot([], [], label=name, **style(name))[0] for name in methods]
    grid[5, 1].legend(handles=handles, loc="center", fontsize=9)
    figure.savefig(path, dpi=110)


def _of(rows: Sequence[Row], parameter: str) -> list[Row]:
    return [row for row in rows if row["parameter"] == parameter]


def _lines(axis: Any, rows: Sequence[Row], methods: Sequence[str], x: str, y: str) -> None:
    for method in methods:
        points = sorted((row[x], row[y]) for row in rows if row["method"] == method)
        if points:
            axis.plot(*zip(*points, strict=True), **style(method))
    axis.set_xscale("log")
    axis.set_xlabel(x, fontsize=8)


def _quantiles(axis: Any, records: Sequence[Record], methods: Sequence[str], i: int) -> None:
    axis.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    for method in methods:
        u = np.sort(spread_ranks(records, method)[:, i])
        axis.plot((np.arange(len(u)) + 0.5) / len(u), u, color=style(method)["color"], linewidth=1)
    axis.set_xlabel("uniform quantile", fontsize=8)
