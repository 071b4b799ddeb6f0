"""Figures 1 to 6 of Amitai & Reiter (2018): box plots of P(slope ≤ b), theirs beside ours.

Each b has boxes of p(b) from all rows (grey), of the paper's method as printed (orange; what it
really spends stands above the panel), of the same with the noise that ε takes (yellow), and of
`sign` (blue), which spends ε too. Boxes span the quartiles, whiskers 1.5 of their distance, dots
are further out, as in the paper. Figures 3 to 6 have one line more than the paper's: the number of
blocks that noisewise would choose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from studies.amitai2018.methods import recommended_blocks

if TYPE_CHECKING:
    from studies.amitai2018.study import Cell, Outcome

COLOURS = {"p(b)": "#777777", "printed": "#D55E00", "right": "#E6B800", "sign": "#0072B2"}
NAMES = {
    "p(b)": "p(b), all rows",
    "printed": "as printed",
    "right": "with the right noise",
    "sign": "sign (ours)",
}


class Figure(NamedTuple):
    """One figure of the paper: which cells, which printed method."""

    number: int
    method: str
    title: str
    panels: tuple[tuple[int, int, float], ...]  # (n, M, epsilon)
    columns: int


def _figures() -> list[Figure]:
    """The paper's figures."""
    blocks, found = (10, 50, 100), []
    names = {"normal_printed": "rescaled normal", "fisher_printed": "Fisher-derived"}
    for number, (method, name) in enumerate(names.items(), 1):
        panels = tuple((n, M, math.inf) for M in blocks for n in (10_000, 100_000, 1_000_000))
        found.append(Figure(number, method, f"{name}, no noise: NOT PRIVATE", panels, 3))
    number = 3
    for method, name in names.items():
        for n in (100_000, 1_000_000):
            panels = tuple((n, M, epsilon) for M in blocks for epsilon in (0.1, 1.0))
            panels += tuple((n, recommended_blocks(n, e, 1), e) for e in (0.1, 1.0))
            title = f"{name} as printed: NOT PRIVATE; n = {n:,}"
            found.append(Figure(number, method, title, panels, 2))
            number += 1
    return found


def draw(outcomes: Mapping[Cell, Outcome], out: Path) -> list[Path]:
    """Draw the figures of which all panels have been run, or those panels that have."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure as Canvas
    from matplotlib.patches import Patch

    from studies.amitai2018.study import Cell

    paths = []
    for figure in _figures():
        there = [panel for panel in figure.panels if panel in outcomes]
        if not there:
            continue
        columns = figure.columns if len(there) == len(figure.panels) else 1
        lines = math.ceil(len(there) / columns)
        canvas = Canvas(figsize=(5.2 * columns, 2.3 * lines + 0.7), layout="constrained")
        axes = canvas.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for axis, panel in zip(axes, there, strict=True):
            _panel(axis, outcomes[Cell(*panel)], figure.method, figure.number <= 2)
            axis.set_title(_panel_title(figure, *panel), fontsize=8)
        shown = [key for key in NAMES if key != "right" or figure.number > 2]
        handles = [Patch(color=COLOURS[key], label=NAMES[key]) for key in shown]
        canvas.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
        canvas.suptitle(f"Figure {figure.number}. {figure.title}", fontsize=10)
        path = out / f"amitai2018-{figure.number}.png"
        canvas.savefig(path, dpi=70)
        paths.append(path)
    return paths


def _panel_title(figure: Figure, n: int, M: int, epsilon: float) -> str:
    if math.isinf(epsilon):
        return f"n = {n:,}, M = {M}"
    spent = 1 / epsilon if figure.method == "normal_printed" else M * epsilon
    return f"M = {M}, ε = {epsilon:g} (as printed it is {spent:g})"


def _panel(axis: Any, outcome: Outcome, method: str, noiseless: bool) -> None:
    from studies.amitai2018.study import PAPER_B

    cut = len(PAPER_B)
    shown = {
        "p(b)": outcome.truth,
        "printed": outcome.found[method],
        "right": outcome.found[method.replace("printed", "right_noise")],
        "sign": outcome.found["sign"],
    }
    if noiseless:
        del shown["right"]  # the same as printed
    step = 0.8 / len(shown)
    for i, (name, values) in enumerate(shown.items()):
        line = {"color": COLOURS[name], "linewidth": 0.7}
        axis.boxplot(
            values[:, :cut],
            positions=np.arange(cut) + step * (i - (len(shown) - 1) / 2),
            widths=0.8 * step,
            patch_artist=True,
            boxprops={"facecolor": COLOURS[name], "edgecolor": COLOURS[name]},
            medianprops={"color": "white", "linewidth": 0.8},
            whiskerprops=line,
            capprops={"linewidth": 0},
            flierprops={"marker": ".", "markersize": 1, "markeredgecolor": COLOURS[name]},
            manage_ticks=False,
        )
    axis.set_xticks(range(0, cut, 3), [f"{b:.3f}" for b in PAPER_B[::3]], fontsize=6)
    axis.tick_params(axis="y", labelsize=6)
    axis.set_xlim(-0.7, cut - 0.3)
