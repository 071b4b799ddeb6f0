"""The rows as they counted in a Release, for whoever has them: what its regression is estimated of.

A Release in rounds draws a ball around the data, from noisy looks, and moves rows beyond it onto
the ball before they are summed (`holder.rows.rounds`). Given the Release, the ball is public, so
the regression of the moved rows is a plain functional of the rows: the regression *within reach*.

The map to the last round's coordinates is z = L⁻¹(x - m), so that shrinking z towards 0 moves all
numbers x of a row towards m along a line:

    x' = m + f (x - m),   f = min(1, R / |z|).

Indicators stay. Without rounds, f = 1, and rows counted as they are within their bounds.

Nothing here is private: it is for checks on the holder's own machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from noisewise.core.design import Design
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.kinds.rounds import is_number
from noisewise.core.statistics.ball_moments import ROW_BITS
from noisewise.holder.engines.frame import FrameSource
from noisewise.holder.rows import Codes, Floats, Integers, ReadsDesign
from noisewise.holder.rows.units import averaged
from noisewise.holder.rows.values import MEAN_BITS, DesignRows, RowGrid, filled


def within_reach(release: Release, frame: Any) -> Any:
    """The design columns as they counted in this Release, in original units.

    Rows beyond the Release's reach are moved in, and values are within their bounds. A least
    squares regression of these columns is what `fit` estimates. The result is as private as
    the rows: never publish it.

    Parameters
    ----------
    release : Release
        Of a linear regression, in rounds or not.
    frame : data frame or dict of arrays
        The table that the Release was made from, or another one with the same columns.

    Returns
    -------
    pandas.DataFrame
        One row for every row of the table, in its order; with ids, one for every person, in no
        particular order. One column for every column of the design: a level of a category is a
        column named ``region[north]`` of zeros and ones.
    """
    if not isinstance(release, Release):
        raise RequestError(
            "release: expected the Release of statistics of a linear regression, got a "
            f"{type(release).__name__}"
        )
    rows = design_rows(release.design, frame)
    numbers = is_number(release.design)
    if release.rounds is not None:
        shape = release.rounds.last.shape
        map_ = shape.transform.map()
        x = rows[:, numbers]
        centre = np.linalg.solve(map_[1:, 1:], -map_[1:, 0])
        length = np.linalg.norm((x - centre) @ map_[1:, 1:].T, axis=1)
        radius = shape.radius / (1 << ROW_BITS)
        factor = np.minimum(1.0, radius / np.maximum(length, radius))
        rows[:, numbers] = centre + factor[:, None] * (x - centre)
    columns = release.design.columns
    found = {c.name: c.centre + c.half_width * rows[:, i] for i, c in enumerate(columns)}
    try:
        return import_module("pandas").DataFrame(found)
    except ImportError:
        raise RequestError(
            "within_reach: pandas is not installed; install it with 'pip install pandas'"
        ) from None


def design_rows(design: Design, frame: Any) -> Floats:
    """The design columns of every row (of every person, with ids) on unit scale, (rows, columns).

    Missing values are filled, values clipped to their bounds and terms computed, all by the value
    map (`holder.rows.values`) on its finest grid, of 24 binary digits.
    """
    return FrameSource(frame).sums(_RowsPlan(design))


@dataclass(frozen=True)
class _RowsPlan(ReadsDesign):
    """Keep the rows instead of summing them."""

    design: Design

    def accumulator(self) -> Any:
        return averaged(self.design, _Rows(self.design))


class _Rows:
    """Collects design columns on unit scale; or the means of them, which come on the grid."""

    def __init__(self, design: Design) -> None:
        self.n = 0
        self._design = design
        self._of_means = design.schema.unit_column is not None
        self._grid = RowGrid.with_bits(design, MEAN_BITS)
        self._rows_of = DesignRows(design, self._grid.columns)
        self._blocks: list[Floats] = []

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        rows = len(columns[0])
        block = np.empty((len(self._grid.columns), rows))
        if self._of_means:
            block[:] = columns
        else:
            complete = [
                filled(values, self._design.schema, name)
                for values, name in zip(columns, self._design.sources, strict=True)
            ]
            # Values far out of bounds may overflow on their way to a bound.
            with np.errstate(over="ignore", invalid="ignore"):
                self._rows_of.fill(complete, block)
                self._grid.round_block(block.copy(), out=block)
        self._blocks.append(block.T / self._grid.one)
        self.n += rows

    def result(self) -> Floats:
        empty = np.empty((0, len(self._grid.columns)))
        return np.concatenate([empty, *self._blocks])

    def state(self) -> Integers:
        raise NotImplementedError("rows are collected in one piece")

    def join(self, state: Integers) -> None:
        raise NotImplementedError("rows are collected in one piece")
