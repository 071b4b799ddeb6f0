"""What the paper does: clamp noisy counts at zero and update the Dirichlet as if they were true.

Zhang, Rubinstein & Dimitrakakis (2016), Algorithms 1 and 2. The privacy noise is ignored, so
credible intervals are too narrow. It is here for comparison, as a start for the samplers, and for
Releases that hold draws of tables, where there is nothing else to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.network.layout import Floats, Layout
from noisewise.core.kinds.network.content import NoisyParities
from noisewise.core.kinds.network.release import NetworkRelease


def clamped_counts(releases: Sequence[NetworkRelease], layout: Layout) -> Floats:
    """Noisy counts of all holders, clamped to [0, n] and added up, shape (layout.cells,).

    Parity counts get the increment that their Release states before they are clamped.
    """
    total = np.zeros(layout.cells)
    for release in releases:
        content = release.content
        more = content.increment if isinstance(content, NoisyParities) else 0.0
        most = np.inf if release.n is None else release.n
        for i, node in enumerate(layout.nodes):
            total[layout.part(i)] += np.clip(
                layout.inward(i, release.counts(node)) + more, 0.0, most
            )
    return total


def draw(
    rng: np.random.Generator, counts: Floats, alpha: Floats, layout: Layout, size: tuple[int, ...]
) -> Floats:
    """Tables as if `counts` were true: every row Dirichlet, shape (*size, layout.cells)."""
    gammas = rng.standard_gamma(alpha + counts, size=(*size, layout.cells))
    return normalised(gammas, layout)


def normalised(cells: NDArray[np.float64], layout: Layout) -> Floats:
    """Rows that add up to one; a row of zeros (all gammas underflowed) becomes uniform."""
    out = np.empty_like(cells)
    for i in range(len(layout.nodes)):
        part, r = layout.part(i), int(layout.arity[i])
        rows = cells[..., part].reshape(*cells.shape[:-1], -1, r)
        total = rows.sum(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(total > 0, rows / total, 1.0 / r)
        out[..., part] = share.reshape(*cells.shape[:-1], -1)
    return out


def released_draws(release: NetworkRelease, layout: Layout) -> Floats:
    """The tables that a Release holds, shape (draws, layout.cells)."""
    out = np.empty((release.draws, layout.cells))
    for k in range(release.draws):
        tables = release.tables(k)
        for i, node in enumerate(layout.nodes):
            out[k, layout.part(i)] = layout.inward(i, tables[node])
    return out
