"""Pictures of conditional tables: noise-aware intervals beside those that ignore the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior.network import NetworkPosterior, Table
from noisewise.core.errors import RequestError

MOST_CELLS = 80
# Colours that stay apart for colour-blind readers and in grey print (Okabe & Ito).
AWARE, PLUGIN = "#0072B2", "#D55E00"


def plot_tables(
    posterior: NetworkPosterior,
    path: str | Path,
    *,
    nodes: Sequence[str] | None = None,
    level: float = 0.9,
    reference: Mapping[str, Any] | None = None,
) -> None:
    """Credible intervals of table entries, one line an entry.

    Parameters
    ----------
    posterior : NetworkPosterior
    path : path
        Where to write the picture (.png, .svg or .pdf).
    nodes : sequence of str, optional
        Default: as many as fit.
    level : float
    reference : mapping of str to array, optional
        Tables to mark, such as the truth in a simulation.
    """
    from matplotlib.figure import Figure

    level = probability("level", level)
    shown = _nodes(posterior, nodes)
    lines = sum(posterior.network.cells(node) for node in shown)
    figure = Figure(figsize=(8, 1.4 + 0.24 * lines), layout="constrained")
    axis = figure.subplots()
    y, names = 0, []
    for node in shown:
        _draw(axis, y, posterior.table(node, level), AWARE, 0.12, "noise-aware")
        if posterior.plugin is not None and posterior.info.noise_aware:
            plug = posterior.plugin_table(node, level)
            _draw(axis, y, plug, PLUGIN, -0.12, "plug-in (ignores the noise)")
        if reference is not None and node in reference:
            values = np.asarray(reference[node]).reshape(-1)
            axis.plot(values, -y - np.arange(values.size), "k|", markersize=10, label="reference")
        names += _labels(posterior, node)
        y += posterior.network.cells(node)
    axis.set_yticks(-np.arange(len(names)), names, fontsize=8)
    axis.set_xlim(0, 1)
    axis.set_xlabel(f"probability, with {100 * level:g}% credible interval")
    handles, labels = axis.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    figure.legend(once.values(), once.keys(), loc="outside upper right", ncols=3, fontsize=8)
    figure.savefig(str(path), dpi=150)


def _nodes(posterior: NetworkPosterior, nodes: Sequence[str] | None) -> list[str]:
    wanted = list(posterior.nodes if nodes is None else nodes)
    shown: list[str] = []
    cells = 0
    for node in wanted:
        if node not in posterior.nodes:
            known = ", ".join(posterior.nodes[:20])
            raise RequestError(f"names: {node!r} is not a node; the nodes are {known}")
        cells += posterior.network.cells(node)
        if cells <= MOST_CELLS:
            shown.append(node)
        elif nodes is not None:
            raise RequestError(f"names: more than {MOST_CELLS} table entries; name fewer nodes")
    if not shown:
        raise RequestError(f"names: the first table has more than {MOST_CELLS} entries; name one")
    return shown


def _draw(axis: Any, first: int, table: Table, colour: str, lift: float, label: str) -> None:
    places = -first - np.arange(table.mean.size) + lift
    axis.hlines(
        places, table.lower.reshape(-1), table.upper.reshape(-1), colour, lw=2.5, label=label
    )
    axis.plot(table.mean.reshape(-1), places, "|", color=colour, markersize=8)


def _labels(posterior: NetworkPosterior, node: str) -> list[str]:
    """Entries in words, in the declared order of axes."""
    network = posterior.network
    family = network.family(node)
    labels = []
    for place in np.ndindex(*network.shape(node)):
        words = [f"{name}={network.levels(name)[k]}" for name, k in zip(family, place, strict=True)]
        labels.append(words[-1] + (f" | {', '.join(words[:-1])}" if len(words) > 1 else ""))
    return labels
