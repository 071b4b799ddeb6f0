"""Pictures of posteriors: intervals, densities, pairs, effects of a feature, forests of holders."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from noisewise import _palette
from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior.numbers import R2, SIGMA, SIGMA2, central_interval
from noisewise.core.document import check_folder
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS = ("intervals", "marginals", "pairs", "effect", "forest")
MOST_PAIRED = 6  # parameters in one picture of pairs
_DOTS = 1500  # draws that a panel of pairs shows
_ENDS = {SIGMA2: (0.0, np.inf), SIGMA: (0.0, np.inf), R2: (0.0, 1.0)}  # what is possible
AWARE, NAIVE = "noise-aware", "naive (ignores the noise)"
ALL_ROWS = "all rows (thin line)"
COMMON, NEW = "common", "another holder"  # lines of a forest, besides the holders
_COLOURS = (_palette.AWARE, *_palette.OTHERS[:2])


class Interval(NamedTuple):
    """An interval with its middle, and a wider one around it where there is one."""

    low: float
    centre: float
    high: float
    outer: tuple[float, float] | None = None

    @property
    def reach(self) -> tuple[float, float]:
        """The ends of the widest of them."""
        return self.outer or (self.low, self.high)

    @classmethod
    def of(cls, draws: FloatArray, level: float) -> Interval:
        """The central one of draws, about their median."""
        low, high = central_interval(draws, level)
        return cls(low, float(np.median(draws)), high)


class Effect(NamedTuple):
    """How much more of the target is expected where a feature differs from where it begins.

    Parameters
    ----------
    feature, target : str
    at : list
        Values of the feature: numbers, or levels of a category.
    draws : array, shape (draws, len(at))
        Of the difference from the first value.
    """

    feature: str
    target: str
    at: list[Any]
    draws: FloatArray


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
    def effect(self, feature: str) -> Effect: ...
    def forest(self, name: str, level: float) -> dict[str, Interval]: ...
    def called(self, name: str) -> str: ...
    @property
    def features(self) -> tuple[str, ...]: ...


def plot(
    posteriors: Mapping[str, Drawable],
    path: str | Path | None,
    *,
    kind: str = "intervals",
    names: Sequence[str] | None = None,
    level: float = 0.95,
    reference: Mapping[str, float] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw one posterior, or several of the same model side by side.

    Parameters
    ----------
    posteriors : mapping of label to posterior
        A single one is drawn beside what ignoring the noise would have given.
    path : path, optional
        Where to write the picture (.png, .svg or .pdf). Without it, a notebook shows what comes
        back.
    kind : {"intervals", "marginals", "pairs", "effect", "forest"}
        Credible intervals; densities of the draws with the intervals' ends marked; each parameter
        against each other; how the expected target changes with a feature over its range; or the
        coefficients of each holder, where they vary.
    names : sequence of str, optional
        Parameters to show, or nodes of a network; by default all slopes, or all nodes that fit. Of
        effects, the features.
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
    if path is not None:
        if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
            raise RequestError(f"out: {path} must end in .png, .svg or .pdf")
        check_folder(path)
    figure = _figure(posteriors, kind, names, level, reference or {}, title)
    if path is not None:
        figure.savefig(str(path), dpi=150)
    return figure


def _figure(
    posteriors: Mapping[str, Drawable],
    kind: str,
    names: Sequence[str] | None,
    level: float,
    marks: Mapping[str, float],
    title: str | None,
) -> Figure:
    first = next(iter(posteriors.values()))
    if kind == "effect":
        return _effects(posteriors, names, level, title)
    shown = first.shown(names)
    if any(other.shown(names) != shown for other in posteriors.values()):
        raise RequestError(
            "posteriors: these files are of different models; compare like with like"
        )
    size = f"{100 * level:g}%"
    if kind == "forest":
        return _forest(posteriors, shown, level, marks, title)
    if kind == "pairs":
        return _pairs(posteriors, shown, marks, title)
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
        return _lines(found, marks, heading)
    return _panels(found, marks, heading, height * max(len(posteriors), 2), fill, first.called)


def _draw_bars(axis: Any, name: str, bars: Mapping[str, Interval]) -> tuple[float, float]:
    """Intervals with ticks at their ends: a dot would hide one that is very narrow."""
    styles = _styles(bars)
    for row, (label, bar) in enumerate(bars.items()):
        style = styles[label]
        axis.plot([bar.low, bar.high], [-row, -row], linewidth=2.5, label=label, **style)
        ends = {"marker": "|", "markersize": 9, "linestyle": "none", "color": style["color"]}
        axis.plot(bar[:3], [-row] * 3, **ends)
        if bar.outer is not None:
            axis.plot(bar.outer, [-row, -row], linewidth=0.9, label=ALL_ROWS, **style)
    axis.set_ylim(-len(bars) + 0.4, 0.6)
    reaches = [bar.reach for bar in bars.values()]
    return min(low for low, _ in reaches), max(high for _, high in reaches)


def _draw_curves(
    level: float, axis: Any, name: str, curves: Mapping[str, FloatArray]
) -> tuple[float, float]:
    """Densities of the draws, with the ends of credible intervals marked."""
    styles = _styles(curves)
    for label, draws in curves.items():
        style = styles[label]
        grid, height = _density(draws.reshape(-1), name)
        axis.plot(grid, height, label=label, linewidth=1.8, **style)
        if len(curves) <= 2:
            axis.fill_between(grid, height, color=style["color"], alpha=0.15)
        for end in central_interval(draws, level):
            axis.plot([end, end], [0, 0.12], color=style["color"], linewidth=1.8)
    axis.set_ylim(0, 1.1)
    ends = [np.quantile(draws, [0.01, 0.99]) for draws in curves.values()]
    return float(min(end[0] for end in ends)), float(max(end[1] for end in ends))


def _pairs(
    posteriors: Mapping[str, Drawable],
    shown: Sequence[str],
    marks: Mapping[str, float],
    title: str | None,
) -> Figure:
    """Draws of each parameter against each other below the diagonal, densities on it."""
    from matplotlib.figure import Figure

    if not 2 <= len(shown) <= MOST_PAIRED:
        raise RequestError(
            f"names: pairs need 2 to {MOST_PAIRED} parameters, here are {len(shown)}; name them, "
            f"of {', '.join(shown[:20])}"
        )
    first = next(iter(posteriors.values()))
    heading, called = first.heading, {name: _folded(first.called(name)) for name in shown}
    found = {n: _labelled({k: p.curves(n) for k, p in posteriors.items()}) for n in shown}
    if len(posteriors) == 1:  # draws of the naive posterior are not pairs of these
        found = {n: dict([next(iter(curves.items()))]) for n, curves in found.items()}
    size = len(shown)
    figure = Figure(figsize=(1.2 + 1.9 * size, 1.4 + 1.9 * size), layout="constrained")
    axes = figure.subplots(size, size, squeeze=False)
    styles = _styles(found[shown[0]])
    for i, j in np.ndindex(size, size):
        axis: Any = axes[i, j]
        if j > i:
            axis.set_axis_off()
            continue
        for label, style in styles.items():
            x, y = (found[shown[a]][label].reshape(-1) for a in (j, i))
            if i == j:
                grid, height = _density(x, shown[i])
                axis.plot(grid, height, label=label, linewidth=1.6, **style)
            else:
                some = np.linspace(0, len(x) - 1, min(len(x), _DOTS)).astype(int)
                dots = {"s": 5, "alpha": 0.25, "linewidths": 0, "color": style["color"]}
                axis.scatter(x[some], y[some], label=label, rasterized=True, **dots)
        axis.set_xlim(*_reach(found[shown[j]].values()))
        truth = {"color": _palette.TRUTH, "linewidth": 1.2}
        if shown[j] in marks:
            axis.axvline(marks[shown[j]], label="all the rows", **truth)
        if shown[i] in marks and i != j:
            axis.axhline(marks[shown[i]], **truth)
        axis.set_ylim(*((0, 1.1) if i == j else _reach(found[shown[i]].values())))
        axis.tick_params(labelsize="small", labelleft=j == 0 and i > 0, labelbottom=i == size - 1)
        axis.locator_params(axis="x", nbins=4)
        if i == j:
            axis.set_yticks([])
        if j == 0:
            axis.set_ylabel(called[shown[i]])
        if i == size - 1:
            axis.set_xlabel(called[shown[j]])
    return _finish(figure, axes[0, 0], title or f"Draws, two parameters at a time\n{heading}")


def _reach(curves: Iterable[FloatArray]) -> tuple[float, float]:
    """All but the far ends of the draws: a slope may have very long tails."""
    ends = np.array([np.quantile(draws, [0.005, 0.995]) for draws in curves])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    room = 0.05 * (high - low) or 0.05 * abs(low) or 1.0
    return low - room, high + room


def _effects(
    posteriors: Mapping[str, Drawable], names: Sequence[str] | None, level: float, title: str | None
) -> Figure:
    """One panel a feature: a line with its band over a range, or an interval for each level."""
    first = next(iter(posteriors.values()))
    features = list(first.features if names is None else names)
    found = {f: {label: p.effect(f) for label, p in posteriors.items()} for f in features}
    figure, axes = _grid(len(features), (0.8, 3.2), (1.3, 2.6))
    styles = _styles(posteriors)
    for axis, (feature, effects) in zip(axes, found.items(), strict=False):
        one = next(iter(effects.values()))
        is_number = isinstance(one.at[0], float)
        for number, (label, effect) in enumerate(effects.items()):
            middle = np.median(effect.draws, axis=0)
            low, high = np.quantile(effect.draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
            colour, called = styles[label]["color"], label if len(effects) > 1 else None
            if is_number:
                axis.plot(effect.at, middle, linewidth=1.8, label=called, **styles[label])
                axis.fill_between(effect.at, low, high, color=colour, alpha=0.2, linewidth=0)
            else:
                place = np.arange(len(effect.at)) + 0.16 * (number - (len(effects) - 1) / 2)
                axis.vlines(place, low, high, colour, lw=2.5, label=called)
                axis.plot(place, middle, "_", color=colour, markersize=9)
        if is_number:
            axis.locator_params(axis="x", nbins=5)
            axis.xaxis.set_major_formatter("{x:,.6g}")
        else:
            axis.set_xticks(range(len(one.at)), [str(value) for value in one.at])
            axis.set_xlim(-0.5, len(one.at) - 0.5)
            if sum(len(str(value)) for value in one.at) > 24:
                axis.tick_params(axis="x", labelrotation=30)
        axis.axhline(0.0, color="grey", linewidth=0.8, linestyle=":")
        axis.set_xlabel(_folded(first.called(feature), 36))
        axis.yaxis.set_major_formatter("{x:,.6g}")
        begin = f"{one.at[0]:g}" if is_number else str(one.at[0])
        target = _folded(first.called(one.target), 30)
        axis.set_ylabel(f"{target},\ndifference from {begin}", fontsize="small")
    what = f"Expected {first.called(one.target)} as one feature changes and the others stay"
    said = f"{what}; {100 * level:g}% intervals\n{first.heading}"
    return _finish(figure, axes[0], title or said)


def _forest(
    posteriors: Mapping[str, Drawable],
    shown: Sequence[str],
    level: float,
    reference: Mapping[str, float],
    title: str | None,
) -> Figure:
    """One panel a coefficient, one line a holder, and below them what they have in common."""
    if len(posteriors) > 1:
        raise RequestError("kind: forest is of one posterior; give one file")
    [posterior] = posteriors.values()
    found = {name: posterior.forest(name, level) for name in shown}
    lines = list(next(iter(found.values())))
    figure, axes = _grid(len(shown), (1.6, 2.9), (0.9, 0.9 + 0.22 * len(lines)), sharey=True)
    for axis, (name, bars) in zip(axes, found.items(), strict=False):
        low, high = bars[COMMON].low, bars[COMMON].high
        axis.axvspan(low, high, color=_palette.AWARE, alpha=0.12, linewidth=0)
        for y, (label, bar) in enumerate(bars.items()):
            colour = _palette.AWARE if label in (COMMON, NEW) else _palette.OTHERS[0]
            width, line = (2.8 if label == COMMON else 1.8), (":" if label == NEW else "-")
            axis.hlines(-y, bar.low, bar.high, colour, lw=width, linestyles=line)
            axis.plot(bar.centre, -y, "|", color=colour, markersize=8)
        axis.axhline(2.5 - len(lines), color="grey", linewidth=0.6)
        if name in reference:
            axis.axvline(reference[name], color=_palette.TRUTH, linewidth=1.2)
        ends = [end for bar in bars.values() for end in (bar.low, bar.high)]
        room = max(ends) - min(ends)
        if min(ends) - 0.3 * room < 0.0 < max(ends) + 0.3 * room:
            axis.axvline(0.0, color="grey", linewidth=0.8, linestyle=":")
        axis.set_yticks(-np.arange(len(lines)), [_folded(label) for label in lines], fontsize=8)
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlabel(_folded(posterior.called(name), 32))
    what = f"Coefficients of each holder, {100 * level:g}% credible intervals"
    return _finish(figure, axes[0], title or f"{what}\n{posterior.heading}")


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
    others = cycle(product(("-", "--"), _COLOURS))
    for label in labels:
        naive = "naive" in label or "ignores the noise" in label
        line, colour = ("-", _palette.NAIVE) if naive else next(others)
        styles[label] = {"color": colour, "linestyle": line}
    return styles


def _density(draws: FloatArray, name: str) -> tuple[FloatArray, FloatArray]:
    """A grid over the draws and their density on it, its peak at 1.

    Every curve has its own grid: a naive posterior may be a thousandth as wide as the other. At the
    ends of what is possible, the density beyond is folded back. Long tails don't make the middle
    smoother: the bandwidth goes by the quartiles where these are nearer than the sd.
    """
    from scipy.stats import gaussian_kde

    low, high = np.quantile(draws, [0.001, 0.999])
    if not low < high:  # a constant
        return np.array([draws[0], draws[0]]), np.array([0.0, 1.0])
    first, last = _ENDS.get(name, (-np.inf, np.inf))
    if draws.min() < first or draws.max() > last:  # a column of that name
        first, last = -np.inf, np.inf
    room = 0.1 * (high - low)
    grid = np.linspace(max(low - room, first), min(high + room, last), 400)
    quartiles = float(np.diff(np.quantile(draws, [0.25, 0.75]))[0]) / 1.349
    ratio = quartiles / float(draws.std()) if quartiles > 0 else 1.0
    law = gaussian_kde(draws, min(1.0, ratio) * len(draws) ** -0.2)
    height = law(grid)
    for end in (first, last):
        if np.isfinite(end):
            height = height + law(2 * end - grid)
    return grid, np.asarray(height / height.max())


# --- frames ----------------------------------------------------------------------------------


def _grid(
    count: int, wide: tuple[float, float], high: tuple[float, float], **options: Any
) -> tuple[Figure, Any]:
    """So many panels, three in a row; inches around them and of each."""
    from matplotlib.figure import Figure

    across = min(3, count)
    down = -(-count // across)
    size = (wide[0] + wide[1] * across, high[0] + high[1] * down)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, **options).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes


def _panels(
    found: Mapping[str, Mapping[str, Any]],
    reference: Mapping[str, float],
    title: str,
    height: float,
    draw: Callable[[Any, str, Mapping[str, Any]], tuple[float, float]],
    called: Callable[[str], str],
) -> Figure:
    """One panel a parameter, because units differ; `draw` fills it and says how far it reaches."""
    from matplotlib.figure import Figure

    size = (7, 0.9 + (0.35 + height) * len(found))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(found), 1, squeeze=False)
    for axis, (name, lines) in zip(axes[:, 0], found.items(), strict=True):
        low, high = draw(axis, name, lines)
        if name in reference:
            axis.axvline(reference[name], color=_palette.TRUTH, linewidth=1.2, label="all the rows")
            low, high = min(low, reference[name]), max(high, reference[name])
        if low - (high - low) < 0.0 < high + (high - low):  # far from zero it would only squeeze
            axis.axvline(0.0, color="grey", linewidth=0.8, linestyle=":")
        axis.set_yticks([])
        axis.set_ylabel(_folded(called(name)), rotation=0, ha="right", va="center")
    return _finish(figure, axes[0, 0], title)


def _folded(name: str, width: int = 22) -> str:
    """A long label on several lines."""
    return textwrap.fill(name, width) if " " in name else name


def _lines(
    bars: Mapping[str, Mapping[str, Interval]], reference: Mapping[str, float], title: str
) -> Figure:
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
    return _finish(figure, axis, title)


def _finish(figure: Figure, axis: Any, title: str) -> Figure:
    handles, labels = axis.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if once:
        drawn, size = list(once.values()), len(once)
        figure.legend(drawn, once, loc="outside lower center", ncols=size, frameon=False)
    figure.suptitle(title, fontsize="medium")
    return figure
