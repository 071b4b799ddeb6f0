"""From a value of the table to exact integer sums over the rows.

An engine is asked by a plan: which columns to read, and what to accumulate over the rows. It reads
these columns, turns them into arrays and hands them, in any order and in pieces of any size, to an
accumulator of the plan. What a plan accumulates must not depend on that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from noisewise.core.design import MAX_ROWS, Design
from noisewise.core.errors import DataError
from noisewise.core.schema import Schema

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]
Progress = Callable[[int], None]

Result_co = TypeVar("Result_co", covariant=True)


def check_row_count(n: int) -> None:
    """Refuse more rows than the integers can hold."""
    if n > MAX_ROWS:
        raise DataError(
            f"data: more than {MAX_ROWS:,} rows; the sums could overflow, so publish parts of the "
            "table separately"
        )


def flat(n: int, *arrays: npt.ArrayLike) -> Integers:
    """A state: the number of rows, then all other integers."""
    return np.concatenate([[n], *(np.ravel(array) for array in arrays)]).astype(np.int64)


class Accumulator(Protocol[Result_co]):
    """Takes in rows, piece by piece."""

    n: int

    def add(self, columns: Sequence[Floats | Codes]) -> None:
        """Add rows: one array of shape (rows,) for every source of the plan, in order.

        Numbers are doubles with NaN where missing; categories are positions among the declared
        levels, negative where missing. Ids are an Arrow array of integers or bytes, without nulls.
        """

    def result(self) -> Result_co:
        """What was accumulated so far."""

    def state(self) -> Integers:
        """The same as a flat array of 64-bit integers. It takes no more rows after that."""

    def join(self, state: Integers) -> None:
        """Add what another accumulator of the same plan has: its `state`.

        Where rows are averaged by unit, the other one must have had other units.
        """


class Plan(Protocol[Result_co]):
    """What to read and how to accumulate it. Made of public things only."""

    @property
    def schema(self) -> Schema:
        """Declares the sources."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The table columns to read, in order."""

    def accumulator(self) -> Accumulator[Result_co]:
        """A new, empty accumulator."""


class HasDesign(Protocol):
    """Whatever is about one design."""

    @property
    def design(self) -> Design:
        """Features and target."""


class ReadsDesign:
    """A plan or a request that reads the columns of its design, and whose row it is."""

    @property
    def schema(self: HasDesign) -> Schema:
        """The declared columns that are read, and who is protected."""
        return self.design.schema

    @property
    def sources(self: HasDesign) -> tuple[str, ...]:
        """The table columns to read: those of the features, of the target, and ids if any."""
        ids = self.design.schema.unit_column
        return self.design.sources if ids is None else (*self.design.sources, ids)
