"""Pictures of posteriors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import RequestError
from .posterior import Posterior

# Colours that stay apart for colour-blind readers and in grey print (Okabe & Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "D", "^")


def plot_intervals(
    posteriors: Mapping[str, Posterior],
    path: str | Path,
    *,
    level: float = 0.95,
    names: Sequence[str] | None = None,
    reference: Mapping[str, float] | None = None,
    title: str | None = None,
) -> None:
    """Credible intervals side by side, one panel a coefficient, in original units.

    Parameters
    ----------
    posteriors : mapping of label to Posterior
        Of the same model, such as naive and noise-aware.
    path : path
        Where to write the picture (.png, .svg or .pdf).
    level : float
    names : sequence of str, optional
        Coefficients to show; all slopes by default.
    reference : mapping of str to float, optional
        Values to mark with a line, such as the truth in a simulation.
    title : str, optional
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    if not posteriors:
        raise RequestError("posteriors: none given")
    first = next(iter(posteriors.values()))
    shown = list(first.columns.names[1:] if names is None else names)
    height = 0.35 + 0.28 * len(posteriors)
    figure, axes = plt.subplots(
        len(shown), 1, figsize=(7, 0.8 + height * len(shown)), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[:, 0], shown, strict=True):
        for row, (label, posterior) in enumerate(posteriors.items()):
            low, high = posterior.interval(name, level)
            mean = float(np.mean(posterior.draws(name)))
            style: dict[str, Any] = {"color": _COLOURS[row % 4], "label": label}
            axis.plot([low, high], [-row, -row], linewidth=2.5, solid_capstyle="butt", **style)
            axis.plot(mean, -row, marker=_MARKERS[row % 4], color=_COLOURS[row % 4], markersize=6)
        if reference is not None and name in reference:
            axis.axvline(reference[name], color="black", linewidth=1.2, label="all the rows")
        axis.axvline(0.0, color="grey", linewidth=0.8, linestyle=":")
        axis.set_yticks([])
        axis.set_ylim(-len(posteriors) + 0.4, 0.6)
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(title or f"{100 * level:g}% credible intervals for {first.columns.target}")
    figure.savefig(path, dpi=150)
    plt.close(figure)
