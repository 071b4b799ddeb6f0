"""Pictures of posteriors: intervals and densities, in original units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.posterior.numbers import central_interval
from noisewise.analyst.posterior.regression import SIGMA2, Posterior
from noisewise.core.errors import RequestError

# Colours that stay apart for colour-blind readers and in grey print (Okabe & Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_NAIVE, _AWARE = "naive (ignores the noise)", "noise-aware"


def plot_intervals(
    posteriors: Mapping[str, Posterior],
    path: str | Path,
    *,
    level: float = 0.95,
    names: Sequence[str] | None = None,
    reference: Mapping[str, float] | None = None,
    title: str | None = None,
) -> None:
    """Credible intervals side by side, one panel a coefficient.

    Parameters
    ----------
    posteriors : mapping of label to Posterior
        Of the same model. A single noise-aware one is drawn beside the naive one it carries.
    path : path
        Where to write the picture (.png, .svg or .pdf).
    level : float
    names : sequence of str, optional
        Parameters to show; all slopes by default.
    reference : mapping of str to float, optional
        Values to mark with a line, such as the truth in a simulation.
    title : str, optional
    """

    def draw(axis: Any, _name: str, curves: Mapping[str, FloatArray]) -> None:
        for row, (label, draws) in enumerate(curves.items()):
            style = _style(row)
            low, high = central_interval(draws, level)
            axis.plot([low, high], [-row, -row], linewidth=2.5, label=label, **style)
            # Ticks, not dots: a dot would hide an interval that is very narrow.
            ends = {"marker": "|", "markersize": 9, "linestyle": "none", "color": style["color"]}
            axis.plot([low, draws.mean(), high], [-row] * 3, **ends)
        axis.set_ylim(-len(curves) + 0.4, 0.6)

    heading = title or f"{100 * level:g}% credible intervals\n{_what(posteriors)}"
    _panels(posteriors, path, names, reference, heading, 0.28, draw)


def plot_marginals(
    posteriors: Mapping[str, Posterior],
    path: str | Path,
    *,
    level: float = 0.95,
    names: Sequence[str] | None = None,
    reference: Mapping[str, float] | None = None,
    title: str | None = None,
) -> None:
    """Densities of the draws, with the ends of credible intervals marked; see `plot_intervals`."""

    def draw(axis: Any, name: str, curves: Mapping[str, FloatArray]) -> None:
        for row, (label, draws) in enumerate(curves.items()):
            style = _style(row)
            grid, height = _density(draws.reshape(-1), positive=name == SIGMA2)
            axis.plot(grid, height, label=label, linewidth=1.8, **style)
            if len(curves) <= 2:
                axis.fill_between(grid, height, color=style["color"], alpha=0.15)
            for end in central_interval(draws, level):
                axis.plot([end, end], [0, 0.12], color=style["color"], linewidth=1.8)
        axis.set_ylim(0, 1.1)

    heading = title or (
        f"Posterior densities, each scaled to the same height; {100 * level:g}% intervals marked\n"
        f"{_what(posteriors)}"
    )
    _panels(posteriors, path, names, reference, heading, 0.6, draw)


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


PLOTS = {"intervals": plot_intervals, "marginals": plot_marginals}


def _panels(
    posteriors: Mapping[str, Posterior],
    path: str | Path,
    names: Sequence[str] | None,
    reference: Mapping[str, float] | None,
    title: str,
    height: float,
    draw: Callable[[Any, str, Mapping[str, FloatArray]], None],
) -> None:
    """One panel a parameter, with a common legend; `draw` fills a panel."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    if not posteriors:
        raise RequestError("posteriors: none given")
    first = next(iter(posteriors.values()))
    shown = list(first.columns.names[1:] if names is None else names)
    each = 0.35 + height * max(len(posteriors), 2)
    figure, axes = plt.subplots(
        len(shown), 1, figsize=(7, 0.9 + each * len(shown)), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[:, 0], shown, strict=True):
        curves = _curves(posteriors, name)
        draw(axis, name, curves)
        low, high = _range(curves, reference, name)
        if reference is not None and name in reference:
            axis.axvline(reference[name], color="black", linewidth=1.2, label="all the rows")
        if low - (high - low) < 0.0 < high + (high - low):  # far from zero it would only squeeze
            axis.axvline(0.0, color="grey", linewidth=0.8, linestyle=":")
        axis.set_yticks([])
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        unique.values(), unique, loc="outside lower center", ncols=len(unique), frameon=False
    )
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _style(row: int) -> dict[str, Any]:
    """A colour and a line style that no other of eight curves has together."""
    return {"color": _COLOURS[row % 4], "linestyle": ("-", "--")[row // 4 % 2]}


def _what(posteriors: Mapping[str, Posterior]) -> str:
    """The model, and at what privacy its data were published."""
    if not posteriors:
        raise RequestError("posteriors: none given")
    first = next(iter(posteriors.values()))
    claims = {claim for posterior in posteriors.values() for claim in posterior.info.claims}
    at = f", published at {claims.pop()}" if len(claims) == 1 else ""
    return f"Regression for {first.columns.target}{at}"


def _range(
    curves: Mapping[str, FloatArray], reference: Mapping[str, float] | None, name: str
) -> tuple[float, float]:
    ends = [np.quantile(draws, [0.01, 0.99]) for draws in curves.values()]
    marks = [reference[name]] if reference is not None and name in reference else []
    return (
        min([float(end[0]) for end in ends] + marks),
        max([float(end[1]) for end in ends] + marks),
    )


def _curves(posteriors: Mapping[str, Posterior], name: str) -> dict[str, FloatArray]:
    """Draws by label; one posterior comes with its naive counterpart."""
    if len(posteriors) == 1:
        [posterior] = posteriors.values()
        if posterior.naive is None:
            return {_NAIVE: posterior.draws(name)}
        info = posterior.info
        label = _AWARE if info.noise_aware else f"{info.method} (not noise-aware)"
        return {_NAIVE: posterior.naive_draws(name), label: posterior.draws(name)}
    return {
        label if posterior.info.noise_aware or "naive" in label else f"{label} (not noise-aware)":
        posterior.draws(name)
        for label, posterior in posteriors.items()
    }  # fmt: skip
