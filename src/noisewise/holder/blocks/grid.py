"""The value map of block summaries: how a table's value becomes an integer of at most 59 bits.

number with bounds
    t = rint((x - centre) * s) with s = 2**50 / half_width, clipped to ±2**50.
number without bounds
    t = rint(x * s) with s = 2**29 / unit, clipped to ±2**59: values saturate at 2**30 units.
indicator of a level
    1 where the value is that level, else 0.
missing
    The schema's fill value takes its place, through the same map; without one it is a `DataError`.

Infinities end on the bounds. The statistics of a block are exact sums of these integers, so the
finest rounding is all that the map loses: 2**-51 of a half-width, or 2**-30 of a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Design
from noisewise.core.schema import Category, Unbounded
from noisewise.holder.rows.plan import Codes, Floats
from noisewise.holder.rows.values import fill_codes, filled_codes, filled_numbers

BOUNDED_BITS = 50
UNBOUNDED_BITS = 59
UNIT_BITS = 29

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BlockColumn:
    """How one design column becomes an integer: x ≈ centre + step * t.

    Parameters
    ----------
    source : int
        Position among the design's sources.
    code : int or None
        For an indicator, the position of its level among the declared levels.
    centre, scale : float
    limit : int
        The largest |t|.
    """

    source: int
    code: int | None
    centre: float
    scale: float
    limit: int

    @property
    def step(self) -> float:
        """What one integer step is worth in the table's units."""
        return 1 / self.scale


class BlockGrid:
    """The value map of one design; the target is the last column."""

    def __init__(self, design: Design) -> None:
        self._schema = design.schema
        self._sources = design.sources
        self._fill_codes = fill_codes(design.schema, design.sources)
        self.columns = tuple(_columns(design))

    def integers(self, columns: Sequence[Floats | Codes]) -> Integers:
        """All rows on the grid; shape (rows, columns)."""
        complete: list[Floats | Codes] = []
        for name, values, fill in zip(self._sources, columns, self._fill_codes, strict=True):
            if isinstance(self._schema.columns[name], Category):
                complete.append(filled_codes(values, self._schema, name, fill))
            else:
                complete.append(filled_numbers(values, self._schema, name))
        result = np.empty((len(columns[0]), len(self.columns)), dtype=np.int64)
        for k, column in enumerate(self.columns):
            values = complete[column.source]
            if column.code is not None:
                result[:, k] = values == column.code
                continue
            # Values far out of range may overflow on their way to the limit.
            with np.errstate(over="ignore"):
                on_grid = np.rint((values - column.centre) * column.scale)
            result[:, k] = np.clip(on_grid, -float(column.limit), float(column.limit))
        return result


def _columns(design: Design) -> list[BlockColumn]:
    positions = {name: position for position, name in enumerate(design.sources)}
    columns = []
    for column in design.columns:
        declared = design.schema.columns[column.source]
        source = positions[column.source]
        if isinstance(declared, Category):
            assert column.level is not None
            code = declared.levels.index(column.level)
            columns.append(BlockColumn(source, code, 0.0, 1.0, 1))
        elif isinstance(declared, Unbounded):
            scale = 2.0**UNIT_BITS / declared.unit
            columns.append(BlockColumn(source, None, 0.0, scale, 1 << UNBOUNDED_BITS))
        else:
            scale = 2.0**BOUNDED_BITS / column.half_width
            columns.append(BlockColumn(source, None, column.centre, scale, 1 << BOUNDED_BITS))
    return columns
