"""What holders' Releases say: linear forms of the true counts with known noise, or tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.network.layout import Floats, Integers, Layout
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.network.release import (
    LearnedCounts,
    NetworkRelease,
    NoisyCounts,
    NoisyParities,
)
from noisewise.core.noise import Gaussian

IMPOSSIBLE = 20.0  # standard deviations
MAX_COEFFICIENTS = 1 << 25  # of parity counts as forms of cells, in memory
LARGEST = 2**60  # a forged value beyond it would overflow; no true count comes near


@dataclass(frozen=True, eq=False)
class Measurement:
    """Noisy linear forms of one table: values = matrix @ counts + Laplace or Gaussian noise."""

    names: tuple[int, ...]  # its nodes by number (see `Layout`), sorted; its cells are in C order
    values: Integers  # (m,), unclamped, so they may be negative
    scale: Floats  # (m,), of each form's noise; infinite where nothing was released
    matrix: NDArray[np.int64] | None = None  # (m, cells); None where cells were released themselves
    gaussian: bool = False  # whether the noise is Gaussian; only without a matrix

    @property
    def variance(self) -> Floats:
        """Of each form's noise."""
        return self.scale**2 * (1.0 if self.gaussian else 2.0)


@dataclass(frozen=True, eq=False)
class Observed:
    """All that one holder released."""

    n: int | None  # number of rows where it is public
    measurements: tuple[Measurement, ...]


def observe(release: NetworkRelease, layout: Layout) -> Observed:
    """What a Release of noisy counts or parity counts measured."""
    content = release.content
    if isinstance(content, NoisyCounts):
        found = _cells(release, content, layout)
    elif isinstance(content, LearnedCounts):
        found = _learned(release, layout)
    else:
        assert isinstance(content, NoisyParities)  # `fit.choose` refuses to model drawn tables
        found = _parities(release, content, layout)
    return Observed(release.n, tuple(found))


def _cells(release: NetworkRelease, content: NoisyCounts, layout: Layout) -> Iterator[Measurement]:
    for i, node in enumerate(layout.nodes):
        measured = layout.inward(i, release.measured(node))
        scale = np.where(measured, content.scale, np.inf)
        values = np.where(measured, layout.inward(i, release.counts(node)), 0.0)
        whole = np.clip(np.rint(values), -LARGEST, LARGEST).astype(np.int64)
        yield Measurement(layout.families[i], whole, scale)


def _learned(release: NetworkRelease, layout: Layout) -> Iterator[Measurement]:
    """All tables that were measured: levels, pairs and triples."""
    for node in layout.nodes:
        for names, counts, measured, law in release.measured_tables(node):
            numbers = [layout.number[name] for name in names]
            axes = np.argsort(numbers)
            own = np.transpose(measured, axes).reshape(-1)
            values = np.clip(np.transpose(counts, axes).reshape(-1), -LARGEST, LARGEST)
            yield Measurement(
                tuple(sorted(numbers)),
                np.where(own, np.rint(values), 0.0).astype(np.int64),
                np.where(own, law.scale, np.inf),
                gaussian=isinstance(law, Gaussian),
            )


def _parities(
    release: NetworkRelease, content: NoisyParities, layout: Layout
) -> Iterator[Measurement]:
    """One measurement for every set of nodes: the parity counts that involve just those nodes."""
    number = layout.number
    sizes = (layout.size([number[name] for name, _ in digits]) for digits in release.parities.sets)
    if sum(sizes) > MAX_COEFFICIENTS:
        raise RequestError(
            "method: the families of this fourier Release are too large for 'joint' (its parity "
            "counts depend on too many cells); use method='plugin', or ask for a laplace Release"
        )
    values = list(content.values)
    scale = np.array([content.scale])
    if release.n is None:
        ones = np.ones((1, 1), dtype=np.int64)
        yield Measurement((), np.array([_limited(values.pop(0))], dtype=np.int64), scale, ones)
    groups: dict[tuple[int, ...], list[tuple[Integers, int]]] = {}
    for digits, value in zip(release.parities.sets, values, strict=True):
        masks = {layout.number[name]: mask for name, mask in digits}
        names = tuple(sorted(masks))
        levels = np.indices(layout.shape(names)).reshape(len(names), -1)
        odd = np.zeros(levels.shape[1], dtype=np.int64)
        for j, level in zip(names, levels, strict=True):
            odd ^= np.bitwise_count(level & masks[j]).astype(np.int64) & 1
        groups.setdefault(names, []).append((odd, value))
    for names, forms in groups.items():
        yield Measurement(
            names,
            np.array([_limited(value) for _, value in forms], dtype=np.int64),
            np.full(len(forms), content.scale),
            np.stack([odd for odd, _ in forms]),
        )


def _limited(value: int) -> int:
    return max(-LARGEST, min(LARGEST, value))


def check_plausible(observed: Observed, layout: Layout, number: int) -> None:
    """Refuse counts that cannot be within 0 and n, or add up to n, whatever the noise did."""
    n = observed.n
    if n is None:
        return
    for measurement in observed.measurements:
        if measurement.matrix is not None:
            continue
        node, known = layout.nodes[measurement.names[-1]], np.isfinite(measurement.scale)
        total, variance = (int(measurement.values[known].sum()), measurement.variance[known].sum())
        # For one cell with Laplace noise, 20 standard deviations are e^-28.
        room = IMPOSSIBLE * math.sqrt(variance) + 1
        if known.all():
            wrong = abs(total - n) > room
            what = f"the counts of {node!r} do not add up to anything near"
        else:  # a binary root of which one count was released
            wrong = not -room <= total <= n + room
            what = f"the count of {node!r} is nowhere near 0 to {n:,}"
        if wrong:
            raise ReleaseError(
                f"release {number} cannot come from {n:,} rows and the noise that it states, so it "
                f"is damaged, forged or miscomputed: {what}"
            )


# --- without a model of the noise -------------------------------------------------------------


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
            counts = layout.inward(i, release.counts(node)) + more
            total[layout.part(i)] += np.clip(counts, 0.0, most)
    return total


def released_draws(release: NetworkRelease, layout: Layout) -> Floats:
    """The tables that a Release holds, shape (draws, layout.cells)."""
    tables = [release.tables(k) for k in range(release.draws)]
    rows = [[layout.inward(i, t[node]) for i, node in enumerate(layout.nodes)] for t in tables]
    return np.array([np.concatenate(row) for row in rows])
