"""Pictures of calibration studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import _palette
from studies.calibration.trial import Cell, Record, spread_ranks
from studies.uniformity import ecdf_band

# Colours that stay apart for colour-blind readers (Okabe & Ito), and markers.
STYLES: dict[str, tuple[str, str]] = {
    "non_private": (_palette.TRUTH, "o"),
    "naive": (_palette.NAIVE, "s"),
    "exact": (_palette.AWARE, "D"),
    "gibbs_update": (_palette.OTHERS[0], "^"),
    "gibbs_prior": (_palette.OTHERS[1], "v"),
    "gibbs_noisy": (_palette.OTHERS[2], "P"),
    "gibbs_noisy_aware": (_palette.OTHERS[3], "X"),
    "bs_distributed": (_palette.OTHERS[0], "^"),
    "bs_distributed_dense": (_palette.GREY, "<"),
    "normal_x": (_palette.OTHERS[1], "v"),
    "fixed_s": (_palette.OTHERS[2], "s"),
    "fixed_s_aware": (_palette.OTHERS[4], "P"),
    "fixed_s_fast": (_palette.NAIVE, "x"),
    "ada_ssp": (_palette.OTHERS[3], "*"),
}


def style(method: str) -> dict[str, Any]:
    """Colour and marker of a method, the same in every picture."""
    colour, marker = STYLES.get(method, (_palette.GREY, "."))
    return {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2}


def canvas(width: float, height: float) -> Any:
    """An empty figure of this size in inches, for files only."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_ecdf_differences(
    cells: Sequence[Cell], results: Mapping[str, list[Record]], path: Path
) -> None:
    """ECDF of the ranks minus the diagonal, a line of panels a cell, a column a parameter.

    The grey band holds a whole curve of a calibrated method with probability 95% (Säilynoja et
    al. 2022). Where there are several slopes the first stands for them. Curves that leave the
    panel do so by far.
    """
    figure = canvas(8.5, 1.45 * len(cells) + 0.9)
    axes = figure.subplots(len(cells), 3, sharex=True, sharey=True, squeeze=False)
    for line, cell in zip(axes, cells, strict=True):
        names = cell.model.parameters
        for axis, i in zip(line, (0, 1, len(names) - 1), strict=True):
            _panel(axis, cell, results[cell.name], i)
        line[0].set_ylabel(cell.name.replace("-laplace", "\nlaplace", 1), fontsize=6)
    for axis, title in zip(axes[0], ("intercept", "(first) slope", "sigma2"), strict=True):
        axis.set_title(title, fontsize=9)
    axes[0, 0].set_ylim(-0.27, 0.27)
    shown = dict.fromkeys(method.name for cell in cells for method in cell.methods)
    handles = [axes[0, 0].plot([], [], label=name, color=style(name)["color"])[0] for name in shown]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("rank of the truth, as a share of all ranks", fontsize=7)
    figure.savefig(path, dpi=80)


def _panel(axis: Any, cell: Cell, records: Sequence[Record], i: int) -> None:
    band = ecdf_band(len(records))
    axis.fill_between(band.z, band.low, band.high, color="0.85", step="mid")
    axis.axhline(0, color="0.6", linewidth=0.5)
    z = np.linspace(0, 1, 201)
    for method in cell.methods:
        u = spread_ranks(records, method.name)
        if len(u):
            curve = np.searchsorted(np.sort(u[:, i]), z, side="right") / len(u) - z
            axis.plot(z, curve, color=style(method.name)["color"], linewidth=1.0)
    axis.tick_params(labelsize=6)
