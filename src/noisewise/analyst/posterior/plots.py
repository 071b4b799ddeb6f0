"""Pictures of posteriors of any kind: intervals, and densities of draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior.file import check_folder
from noisewise.analyst.posterior.numbers import SIGMA2, central_interval
from noisewise.core.errors import RequestError

PLOTS = ("intervals", "marginals")
AWARE, NAIVE = "noise-aware", "naive (ignores the noise)"
# Colours that stay apart for colour-blind readers and in grey print (Okabe & Ito). What accounts
# for the noise is blue and what doesn't is orange, as in reports.
_IGNORING = "#D55E00"
_COLOURS = ("#0072B2", "#009E73", "#CC79A7")


class Interval(NamedTuple):
    """An interval with its middle."""

    low: float
    centre: float
    high: float


class Drawable(Protocol):
    """What a picture needs of a posterior; see `base.BasePosterior`."""

    # ruff: noqa: D102
    @property
    def heading(self) -> str: ...
    @property
    def is_probability(self) -> bool: ...
    def shown(self, names: Sequence[str] | None = None) -> list[str]: ...
    def bars(self, name: str, level: float) -> dict[str, Interval]: ...
    def curves(self, name: str) -> dict[str, FloatArray]: ...


def plot(
    posteriors: Mapping[str, Drawable],
    path: str | Path,
    *,
    kind: str = "intervals",
    names: Sequence[str] | None = None,
    level: float = 0.95,
    reference: Mapping[str, float] | None = None,
    title: str | None = None,
) -> None:
    """Draw one posterior, or several of the same model side by side.

    Parameters
    ----------
    posteriors : mapping of label to posterior
        A single one is drawn beside what ignoring the noise would have given.
    path : path
        Where to write the picture (.png, .svg or .pdf).
    kind : {"intervals", "marginals"}
        Credible intervals, or densities of the draws with the intervals' ends marked.
    names : sequence of str, optional
        Parameters to show, or nodes of a network; by default all slopes, or all nodes that fit.
    level : float
    reference : mapping of str to float, optional
        Values to mark with a line, such as the truth in a simulation.
    title : str, optional
    """
    level = probability("level", level)
    if not posteriors:
        raise RequestError("posteriors: none given")
    if kind not in PLOTS:
        raise RequestError(f"kind: {kind!r} is unknown; there are {', '.join(PLOTS)}")
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise RequestError(f"out: {path} must end in .png, .svg or .pdf")
    check_folder(path)
    first = next(iter(posteriors.values()))
    shown = first.shown(names)
    if any(other.shown(names) != shown for other in posteriors.values()):
        raise RequestError(
            "posteriors: these files are of different models; compare like with like"
        )
    marks = reference or {}
    size = f"{100 * level:g}%"
    found: dict[str, dict[str, Any]]  # what each panel shows, by the label of a line
    fill: Callable[[Any, str, Mapping[str, Any]], tuple[float, float]]
    if kind == "marginals":
        found = {n: _labelled({k: p.curves(n) for k, p in posteriors.items()}) for n in shown}
        what = f"Posterior densities, each scaled to the same height; {size} intervals marked"
        fill, height = partial(_draw_curves, level), 0.6
    else:
        found = {n: _labelled({k: p.bars(n, level) for k, p in posteriors.items()}) for n in shown}
        what = f"{size} credible intervals"
        fill, height = _draw_bars, 0.28
    heading = title or f"{what}\n{first.heading}"
    if kind == "intervals" and first.is_probability:
        _lines(found, path, marks, heading)
    else:
        _panels(found, path, marks, heading, height * max(len(posteriors), 2), fill)


def _draw_bars(axis: Any, name: str, bars: Mapping[str, Interval]) -> tuple[float, float]:
    """Intervals with ticks at their ends: a dot would hide one that is very narrow."""
    styles = _styles(bars)
    for row, (label, bar) in enumerate(bars.items()):
        style = styles[label]
        axis.plot([bar.low, bar.high], [-row, -row], linewidth=2.5, label=label, **style)
        ends = {"marker": "|", "markersize": 9, "linestyle": "none", "color": style["color"]}
        axis.plot(bar, [-row] * 3, **ends)
    axis.set_ylim(-len(bars) + 0.4, 0.6)
    return min(bar.low for bar in bars.values()), max(bar.high for bar in bars.values())


def _draw_curves(
    level: float, axis: Any, name: str, curves: Mapping[str, FloatArray]
) -> tuple[float, float]:
    """Densities of the draws, with the ends of credible intervals marked."""
    styles = _styles(curves)
    for label, draws in curves.items():
        style = styles[label]
        grid, height = _density(draws.reshape(-1), positive=name == SIGMA2)
        axis.plot(grid, height, label=label, linewidth=1.8, **style)
        if len(curves) <= 2:
            axis.fill_between(grid, height, color=style["color"], alpha=0.15)
        for end in central_interval(draws, level):
            axis.plot([end, end], [0, 0.12], color=style["color"], linewidth=1.8)
    axis.set_ylim(0, 1.1)
    ends = [np.quantile(draws, [0.01, 0.99]) for draws in curves.values()]
    return float(min(end[0] for end in ends)), float(max(end[1] for end in ends))


def _labelled(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of one posterior all that it has, its own first; of several the own of each."""
    if len(found) == 1:
        [alone] = found.values()
        return dict(reversed(list(alone.items())))
    labelled = {}
    for label, each in found.items():
        own, value = list(each.items())[-1]
        labelled[label if own == AWARE or "naive" in label else f"{label}: {own}"] = value
    return labelled


def _styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """For every label a colour and a line style that no other of seven has together."""
    styles: dict[str, dict[str, Any]] = {}
    others = 0
    for label in labels:
        if "naive" in label or "ignores the noise" in label:
            styles[label] = {"color": _IGNORING, "linestyle": "-"}
        else:
            line = ("-", "--")[others // 3 % 2]
            styles[label] = {"color": _COLOURS[others % 3], "linestyle": line}
            others += 1
    return styles


def _density(draws: FloatArray, *, positive: bool) -> tuple[FloatArray, FloatArray]:
    """A grid over the draws and their density on it, its peak at 1.

    Every curve has its own grid: a naive posterior may be a thousandth as wide as the other. A
    variance is smoothed on log scale, so that no density is drawn below zero.
    """
    from scipy.stats import gaussian_kde

    values = np.log(draws) if positive else draws
    low, high = np.quantile(values, [0.001, 0.999])
    if not low < high:  # a constant
        return np.array([draws[0], draws[0]]), np.array([0.0, 1.0])
    grid = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), 400)
    height = gaussian_kde(values)(grid)
    if positive:
        grid = np.exp(grid)
        height = height / grid
    return grid, np.asarray(height / height.max())


# --- frames ----------------------------------------------------------------------------------


def _panels(
    found: Mapping[str, Mapping[str, Any]],
    path: str | Path,
    reference: Mapping[str, float],
    title: str,
    height: float,
    draw: Callable[[Any, str, Mapping[str, Any]], tuple[float, float]],
) -> None:
    """One panel a parameter, because units differ; `draw` fills it and says how far it reaches."""
    from matplotlib.figure import Figure

    size = (7, 0.9 + (0.35 + height) * len(found))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(found), 1, squeeze=False)
    for axis, (name, lines) in zip(axes[:, 0], found.items(), strict=True):
        low, high = draw(axis, name, lines)
        if name in reference:
            axis.axvline(reference[name], color="black", linewidth=1.2, label="all the rows")
            low, high = min(low, reference[name]), max(high, reference[name])
        if low - (high - low) < 0.0 < high + (high - low):  # far from zero it would only squeeze
            axis.axvline(0.0, color="grey", linewidth=0.8, linestyle=":")
        axis.set_yticks([])
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    _finish(figure, axes[0, 0], title, path)


def _lines(
    bars: Mapping[str, Mapping[str, Interval]],
    path: str | Path,
    reference: Mapping[str, float],
    title: str,
) -> None:
    """Probabilities: one line each, on one axis from 0 to 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.4 + 0.24 * len(bars)), layout="constrained")
    axis = figure.subplots()
    for y, (name, found) in enumerate(bars.items()):
        styles = _styles(found)
        for row, (label, bar) in enumerate(found.items()):
            colour, place = styles[label]["color"], -y + 0.12 - 0.24 * row / max(len(found) - 1, 1)
            axis.hlines(place, bar.low, bar.high, colour, lw=2.5, label=label)
            axis.plot(bar.centre, place, "|", color=colour, markersize=8)
        if name in reference:
            axis.plot(reference[name], -y, "k|", markersize=10, label="all the rows")
    axis.set_yticks(-np.arange(len(bars)), list(bars), fontsize=8)
    axis.set_xlim(0, 1)
    axis.set_xlabel("probability")
    _finish(figure, axis, title, path)


def _finish(figure: Any, axis: Any, title: str, path: str | Path) -> None:
    handles, labels = axis.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    figure.legend(once.values(), once, loc="outside lower center", ncols=len(once), frameon=False)
    figure.suptitle(title, fontsize="medium")
    figure.savefig(str(path), dpi=150)
