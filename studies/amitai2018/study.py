"""The simulation study of Amitai & Reiter (2018), with their methods and with ours.

x ~ N(0, 1), y = 1 + 2x + e, e ~ N(0, 1); n of 10⁴, 10⁵ and 10⁶; M of 10, 50, 100 and what noisewise
would choose; ε of 0.1, 1 and ∞. For every method, the probability that the slope is at most b,
against p(b), the posterior of all rows (equation 3.1): over b = 1.989, 1.990, ..., 2.010 as in the
paper, and over (b - β)/se = -3, -2.5, ..., 3, where se = 1/√n, for the table. Every b is a release
of its own with the whole ε, as in the paper; `location_scale` has one release for all of them.

Each b has boxes of p(b) from all rows (grey), of the paper's method as printed (orange; what it
really spends stands above the panel), of the same with the noise that ε takes (yellow), and of
`sign` (blue), which spends ε too. Boxes span the quartiles, whiskers 1.5 of their distance, dots
are further out, as in the paper. Figures 3 to 6 have one line more than the paper's: the number of
blocks that noisewise would choose.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise import _palette
from noisewise._arrays import FloatArray
from studies.amitai2018.blocks import fit_all, fit_blocks
from studies.amitai2018.methods import (
    METHODS,
    PRINTED,
    REPAIRED,
    answers,
    prepare,
    recommended_blocks,
    zellner_z,
)
from studies.figures import canvas
from studies.report import Options, Report, seed_of
from studies.tables import Row, as_markdown, write_table

NAME = "amitai2018"
SIZES = (10_000, 100_000, 1_000_000)
BLOCKS = (10, 50, 100)
EPSILONS = (0.1, 1.0, math.inf)
PARTITIONS = 30
SLOPE = 2.0
RUNS, QUICK_RUNS = 500, 20
PAPER_B = np.round(np.arange(1.989, 2.0105, 0.001), 3)
Z = np.arange(-3, 3.01, 0.5)


class Cell(NamedTuple):
    """One combination of the study's factors."""

    n: int
    M: int
    epsilon: float

    @property
    def recommended(self) -> bool:
        """Whether M is what noisewise would choose."""
        return recommended_blocks(self.n, self.epsilon, 1) == self.M


class Outcome(NamedTuple):
    """Probabilities of one cell, with b on the last axis: first the paper's, then those of `Z`."""

    truth: FloatArray  # (runs, b)
    found: Mapping[str, FloatArray]  # by method, (runs, b)


def cells(n: int) -> list[Cell]:
    """All cells of one n."""
    return [
        Cell(n, M, epsilon)
        for epsilon in EPSILONS
        for M in dict.fromkeys((*BLOCKS, recommended_blocks(n, epsilon, 1)))
    ]


def grid(n: int) -> FloatArray:
    """The paper's b, then those at whole and half standard errors."""
    return np.concatenate([PAPER_B, SLOPE + Z / math.sqrt(n)])


def simulate(n: int, rng: np.random.Generator) -> FloatArray:
    """Rows (x, y)."""
    x = rng.standard_normal(n)
    return np.column_stack([x, 1 + SLOPE * x + rng.standard_normal(n)])


def one_run(n: int, run: int) -> tuple[FloatArray, dict[Cell, dict[str, FloatArray]]]:
    """All cells of one simulated data set."""
    from scipy.special import ndtr

    seed = seed_of(NAME, n, run)
    rng = np.random.default_rng(seed)
    rows, b = simulate(n, rng), grid(n)
    truth = np.asarray(ndtr(zellner_z(fit_all(rows), b)))[:, 0]
    todo = cells(n)
    sizes = list(dict.fromkeys(cell.M for cell in todo))
    partition_seed = int(seed.generate_state(1, np.uint64)[0] >> 1)
    found = {}
    for fits in fit_blocks(rows, sizes, PARTITIONS, partition_seed):
        blocks = prepare(fits, b)
        for cell in todo:
            if cell.M == blocks.M:
                found[cell] = answers(blocks, b, cell.epsilon, rng)
    return truth, found


def run_study(sizes: Sequence[int], runs: int) -> dict[Cell, Outcome]:
    """All runs of all cells, in threads: nearly all time is spent in compiled code."""
    outcomes: dict[Cell, Outcome] = {}
    one_run(1000, 0)  # compiles, or finds the compiled code
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for n in sizes:
            done = list(pool.map(lambda run, n=n: one_run(n, run), range(runs)))
            truth = np.array([each for each, _ in done])
            for cell in cells(n):
                methods = done[0][1][cell]
                arrays = {m: np.array([found[cell][m] for _, found in done]) for m in methods}
                outcomes[cell] = Outcome(truth, arrays)
    return outcomes


# --- table ----------------------------------------------------------------------------------------


def rmse(found: FloatArray, truth: FloatArray) -> tuple[float, float]:
    """Root mean squared error over runs and b, and its Monte Carlo standard error."""
    squares = ((found - truth) ** 2).mean(axis=1)
    value = math.sqrt(float(squares.mean()))
    error = float(squares.std(ddof=1)) / math.sqrt(len(squares)) / (2 * max(value, 1e-12))
    return value, error


def privacy_spent(method: str, cell: Cell) -> float:
    """The ε of pure differential privacy that a method really has."""
    if method == "normal_printed":  # Δ/scale = (1/M)/(ε/M)
        return math.inf if math.isinf(cell.epsilon) else 1 / cell.epsilon
    return cell.M * cell.epsilon if method == "fisher_printed" else cell.epsilon


def table(outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """A line a cell and method."""
    rows: list[Row] = []
    for cell, outcome in outcomes.items():
        for method in METHODS:
            if method not in outcome.found:
                continue
            found, truth, cut = outcome.found[method], outcome.truth, len(PAPER_B)
            value, error = rmse(found[:, cut:], truth[:, cut:])
            on_paper, _ = rmse(found[:, :cut], truth[:, :cut])
            rows.append(
                {
                    "n": cell.n,
                    "epsilon": cell.epsilon,
                    "M": cell.M,
                    "recommended": int(cell.recommended),
                    "method": method,
                    "epsilon_spent": f"{privacy_spent(method, cell):g}",
                    "runs": len(truth),
                    "rmse": round(value, 4),
                    "rmse_error": round(error, 4),
                    "bias_at_beta": round(float((found - truth)[:, cut + len(Z) // 2].mean()), 4),
                    "rmse_paper_b": round(on_paper, 4),
                }
            )
    return rows


def losses(rows: Sequence[Row]) -> tuple[list[Cell], int]:
    """Cells with M ≥ 50 where `sign` doesn't beat every repaired method; and how many there are."""
    by_cell: dict[Cell, dict[str, float]] = {}
    for row in rows:
        cell = Cell(row["n"], row["M"], row["epsilon"])
        by_cell.setdefault(cell, {})[row["method"]] = row["rmse"]
    asked = [cell for cell in by_cell if cell.M >= 50]
    lost = [c for c in asked if by_cell[c]["sign"] >= min(by_cell[c][m] for m in REPAIRED)]
    return lost, len(asked)


def markdown(rows: Sequence[Row]) -> str:
    """The table of errors, a line a cell."""
    error = max(row["rmse_error"] for row in rows)
    lost, asked = losses(rows)
    above = (
        "Root mean squared error of the released P(slope ≤ b) against p(b), over (b - β)/se from "
        f"-3 to 3; {rows[0]['runs']} runs, Monte Carlo standard errors up to {error:.3f}. Always "
        "saying 1/2 would score 0.41.\n\n"
        "† NOT PRIVATE: with the noise as printed. The four columns after these are the paper's "
        "methods with the right noise. ‡ What noisewise would choose. In "
        f"{asked - len(lost)} of {asked} cells with M ≥ 50 `sign` is better than all four.\n\n"
    )
    lines = []
    for key in dict.fromkeys((r["n"], r["epsilon"], r["M"], r["recommended"]) for r in rows):
        n, epsilon, M, chosen = key
        here = {r["method"]: r["rmse"] for r in rows if (r["n"], r["epsilon"], r["M"]) == key[:3]}
        best = min(value for m, value in here.items() if m not in PRINTED)
        shown = [
            "" if m not in here else f"**{here[m]:.3f}**" if here[m] == best else f"{here[m]:.3f}"
            for m in METHODS
        ]
        size = f"10^{round(math.log10(n))}"
        eps = "∞" if math.isinf(epsilon) else f"{epsilon:g}"
        lines.append((size, eps, f"{M}{'‡' if chosen else ''}", *shown))
    titles = ("n", "ε", "M", *(m + ("†" if m in PRINTED else "") for m in METHODS))
    return as_markdown(" | ".join(titles), lines, above)


def write(out: Path, options: Options) -> list[Path]:
    """Table and figures."""
    sizes = SIZES[:1] if options.quick else SIZES
    runs = options.runs or (QUICK_RUNS if options.quick else RUNS)
    outcomes = run_study(sizes, runs)
    rows = table(outcomes)
    csv, readable = out / f"{NAME}.csv", out / f"{NAME}.md"
    write_table(rows, csv)
    readable.write_text(markdown(rows), encoding="utf-8")
    return [csv, readable, *draw(outcomes, out)]


EXPERIMENT = Report(
    NAME,
    "Amitai & Reiter (2018): P(slope ≤ b) from blocks, their methods and ours, errors and figures.",
    write,
)


# --- the figures ----------------------------------------------------------------------------------


COLOURS = {
    "p(b)": _palette.GREY,
    "printed": _palette.NAIVE,
    "right": _palette.OTHERS[2],
    "sign": _palette.AWARE,
}
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
    from matplotlib.patches import Patch

    paths = []
    for figure in _figures():
        there = [panel for panel in figure.panels if panel in outcomes]
        if not there:
            continue
        columns = figure.columns if len(there) == len(figure.panels) else 1
        lines = math.ceil(len(there) / columns)
        picture = canvas(5.2 * columns, 2.3 * lines + 0.7)
        axes = picture.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for axis, panel in zip(axes, there, strict=True):
            _panel(axis, outcomes[Cell(*panel)], figure.method, figure.number <= 2)
            axis.set_title(_panel_title(figure, *panel), fontsize=8)
        shown = [key for key in NAMES if key != "right" or figure.number > 2]
        handles = [Patch(color=COLOURS[key], label=NAMES[key]) for key in shown]
        picture.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
        picture.suptitle(f"Figure {figure.number}. {figure.title}", fontsize=10)
        path = out / f"amitai2018-{figure.number}.png"
        picture.savefig(path, dpi=70)
        paths.append(path)
    return paths


def _panel_title(figure: Figure, n: int, M: int, epsilon: float) -> str:
    if math.isinf(epsilon):
        return f"n = {n:,}, M = {M}"
    spent = 1 / epsilon if figure.method == "normal_printed" else M * epsilon
    return f"M = {M}, ε = {epsilon:g} (as printed it is {spent:g})"


def _panel(axis: Any, outcome: Outcome, method: str, noiseless: bool) -> None:
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
