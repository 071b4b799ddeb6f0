"""Pictures of `alparslan2023_figs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.report import style
from studies.tables import Row


def _figure(width: float, height: float) -> Any:
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _legend(figure: Any, axis: Any, methods: Sequence[str]) -> None:
    handles = [axis.plot([], [], label=name, **style(name))[0] for name in methods]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)


def _methods(rows: Sequence[Row]) -> list[str]:
    return [m for m in dict.fromkeys(row["method"] for row in rows) if m != "non_private"]


def draw_errors(rows: Sequence[Row], path: Path) -> None:
    """Figure 2: errors against epsilon, a column for each J; dotted: without privacy."""
    dimensions = sorted({row["d"] for row in rows})
    holders = sorted({row["J"] for row in rows if row["J"]})
    figure = _figure(3.2 * len(holders), 2.4 * 2 * len(dimensions) + 0.6)
    axes = figure.subplots(2 * len(dimensions), len(holders), squeeze=False, sharex=True)
    for i, d in enumerate(dimensions):
        for half, what in enumerate(("prediction", "estimation")):
            for axis, J in zip(axes[2 * i + half], holders, strict=True):
                here = [row for row in rows if row["d"] == d]
                _lines(axis, [row for row in here if row["J"] == J], what)
                for row in here:
                    if row["method"] == "non_private" and what in row:
                        axis.axhline(row[what], color="0.4", linewidth=0.8, linestyle=":")
                axis.set_title(f"{what}, d = {d}, J = {J}", fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("squared error", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon", fontsize=8)
    _legend(figure, axes[0, 0], _methods(rows))
    figure.savefig(path, dpi=110)


def draw_times(rows: Sequence[Row], path: Path) -> None:
    """Figure 3: time per iteration against d, a column for each J."""
    holders = sorted({row["J"] for row in rows})
    figure = _figure(3.2 * len(holders), 3.2)
    axes = figure.subplots(1, len(holders), squeeze=False, sharey=True)[0]
    for axis, J in zip(axes, holders, strict=True):
        for method in _methods(rows):
            points = [
                (row["d"], row["seconds_per_iteration"])
                for row in rows
                if row["J"] == J and row["method"] == method
            ]
            axis.plot(*zip(*sorted(points), strict=True), **style(method))
        axis.set_yscale("log")
        axis.set_title(f"J = {J}", fontsize=9)
        axis.set_xlabel("d", fontsize=8)
    axes[0].set_ylabel("seconds per iteration", fontsize=8)
    _legend(figure, axes[0], _methods(rows))
    figure.savefig(path, dpi=110)


def draw_discrepancy(rows: Sequence[Row], path: Path) -> None:
    """Figure 4: MMD² to the non-private posterior; above with our kernel, below the paper's."""
    rows = [row for row in rows if row.get("mmd2", "") != ""]
    holders = sorted({row["J"] for row in rows})
    if not holders:
        holders = [1]
    figure = _figure(3.2 * len(holders), 5.2)
    axes = figure.subplots(2, len(holders), squeeze=False, sharex=True)
    kernels = (("mmd2", "median width"), ("mmd2_paper", "the paper's width"))
    for line, (what, label) in zip(axes, kernels, strict=True):
        for axis, J in zip(line, holders, strict=True):
            _lines(axis, [row for row in rows if row["J"] == J], what, log=False)
            axis.set_title(f"MMD², {label}, J = {J}", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon", fontsize=8)
    _legend(figure, axes[0, 0], _methods(rows))
    figure.savefig(path, dpi=110)


def _lines(axis: Any, rows: Sequence[Row], what: str, log: bool = True) -> None:
    for method in _methods(rows):
        points = sorted(
            (float(row["epsilon"]), row[what])
            for row in rows
            if row["method"] == method and row.get(what, "") != ""
        )
        if points:
            axis.plot(*zip(*points, strict=True), **style(method))
    axis.set_xscale("log")
    if log:
        axis.set_yscale("log")
    axis.tick_params(labelsize=7)
