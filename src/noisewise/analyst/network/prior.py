"""Dirichlet priors of the tables: a concentration for everything, for a node, or for a cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from noisewise.analyst.network.layout import Floats, Layout
from noisewise.core.errors import RequestError

Prior = float | Mapping[str, Any]


def concentrations(prior: Prior | None, layout: Layout) -> Floats:
    """The concentration of every cell, shape (layout.cells,); 1 where nothing is said.

    Parameters
    ----------
    prior : float, mapping of str to float or array, or None
        A number is the concentration of every cell of every table: 1 is uniform, 0.5 is
        Jeffreys' for two levels. A mapping gives nodes a number each, or an array of the node's
        shape.
    layout : Layout
    """
    alpha = np.ones(layout.cells)
    if prior is None:
        return alpha
    if not isinstance(prior, Mapping):
        alpha[:] = _positive("prior", prior)
        return alpha
    for name, given in prior.items():
        if name not in layout.number:
            shown = ", ".join(layout.network.nodes[:20])
            raise RequestError(f"prior: {name!r} is not a node; the nodes are {shown}")
        i = layout.number[name]
        values = _positive(f"prior of {name!r}", given)
        shape = layout.network.shape(name)
        if values.ndim and values.shape != shape:
            raise RequestError(
                f"prior of {name!r}: expected one number or an array of shape {shape} (parents' "
                f"levels, then its own), got shape {values.shape}"
            )
        alpha[layout.part(i)] = layout.inward(i, np.broadcast_to(values, shape))
    return alpha


def _positive(where: str, given: Any) -> Floats:
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    if isinstance(given, bool) or not (np.isfinite(values).all() and (values > 0).all()):
        raise RequestError(
            f"{where}: expected positive concentrations, got {str(given)[:60]}; 1 is the uniform "
            "prior"
        )
    return values
