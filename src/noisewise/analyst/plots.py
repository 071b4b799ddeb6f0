"""Pictures of posteriors: intervals and densities, in original units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import RequestError
from .posterior import Posterior
from .summary import central_interval

FloatArray = NDArray[np.float64]

# Colours that stay apart for colour-blind readers and in grey print (Okabe & Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "D", "^")
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

    def draw(axis: Any, curves: Mapping[str, FloatArray]) -> None:
        for row, (label, draws) in enumerate(curves.items()):
            style: dict[str, Any] = {"color": _COLOURS[row % 4], "label": label}
            low, high = central_interval(draws, level)
            axis.plot([low, high], [-row, -row], linewidth=2.5, solid_capstyle="butt", **style)
            axis.plot(draws.mean(), -row, marker=_MARKERS[row % 4], markersize=6, **style)
        axis.set_ylim(-len(curves) + 0.4, 0.6)

    heading = title or f"{100 * level:g}% credible intervals"
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
    from scipy.stats import gaussian_kde

    def draw(axis: Any, curves: Mapping[str, FloatArray]) -> None:
        ends = [np.quantile(draws, [0.001, 0.999]) for draws in curves.values()]
        grid = np.linspace(min(e[0] for e in ends), max(e[1] for e in ends), 400)
        for row, (label, draws) in enumerate(curves.items()):
            colour = _COLOURS[row % 4]
            density = gaussian_kde(draws.reshape(-1))
            # Heights are scaled: a naive posterior is so narrow that it would flatten the other.
            height = density(grid) / density(grid).max()
            axis.plot(grid, height, color=colour, label=label, linewidth=1.8)
            axis.fill_between(grid, height, color=colour, alpha=0.15)
            for end in central_interval(draws, level):
                axis.plot([end, end], [0, 0.12], color=colour, linewidth=1.8)
        axis.set_ylim(0, 1.1)

    heading = title or f"Posterior densities (scaled), {100 * level:g}% intervals marked"
    _panels(posteriors, path, names, reference, heading, 0.6, draw)


PLOTS = {"intervals": plot_intervals, "marginals": plot_marginals}


def _panels(
    posteriors: Mapping[str, Posterior],
    path: str | Path,
    names: Sequence[str] | None,
    reference: Mapping[str, float] | None,
    title: str,
    height: float,
    draw: Callable[[Any, Mapping[str, FloatArray]], None],
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
        draw(axis, _curves(posteriors, name))
        if reference is not None and name in reference:
            axis.axvline(reference[name], color="black", linewidth=1.2, label="all the rows")
        axis.axvline(0.0, color="grey", linewidth=0.8, linestyle=":")
        axis.set_yticks([])
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        unique.values(), unique, loc="outside lower center", ncols=len(unique), frameon=False
    )
    figure.suptitle(f"{title}\n{first.columns.target}" if title else first.columns.target)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _curves(posteriors: Mapping[str, Posterior], name: str) -> dict[str, FloatArray]:
    """Draws by label; one noise-aware posterior comes with its naive counterpart."""
    if len(posteriors) == 1:
        [(label, posterior)] = posteriors.items()
        if posterior.naive is None:
            return {label: posterior.draws(name)}
        return {_NAIVE: posterior.naive_draws(name), _AWARE: posterior.draws(name)}
    return {label: posterior.draws(name) for label, posterior in posteriors.items()}
