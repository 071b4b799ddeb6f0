"""Categories with many levels: sums by level, in place of products that are nearly all 0.

In a *narrow* block of rows all indicators of such a category are one row, its presence: 0 where the
value is the reference, and elsewhere what the indicator of the value's level is. A sum of products
with an indicator is then a sum over the rows at its level, one addition a row however many levels
there are. With v and v' the presences of two categories, a and b levels of theirs, and w_d any
other entry of a row:

    Σ w_a w_d = Σ v w_d over rows at a,   Σ w_a² = Σ v² over rows at a,
    Σ w_a w_b = Σ v v' over rows at a and b.

Products of two levels of one category are 0 in every row; nothing is kept for them. All sums are of
64-bit integers, so they are those that indicators give: products are at most 2**32 in size, as in
`rows.sums`, and with at most 2**30 rows sums are at most 2**62.

Rows that were averaged have shares of several levels and are never narrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Design
from noisewise.core.schema import Category
from noisewise.holder.rows import Codes, Floats, Integers
from noisewise.holder.rows.values import GridColumn

MANY = 7  # indicators of a category; below, their products take no longer


class Narrow:
    """A design's columns with one for each category of many levels, and where sums then are.

    Unless that is `allowed`, columns stay as they are. The attribute `columns` is of a narrow
    block, whose first row is the constant, which is not among them; `rows`, (p + 1,), has the row
    in a narrow block for each entry of w = (1, x, y); `size` is how many sums there are.
    """

    def __init__(
        self, design: Design, columns: Sequence[GridColumn], *, allowed: bool = True
    ) -> None:
        counts = Counter(column.source for column in columns if column.code is not None)
        groups: dict[int, int] = {}  # source to number
        narrow, rows, of_group, level = [], [0], [-1], [0]
        self.presence: list[int] = []
        self._levels: list[int] = []
        for column in columns:
            grouped = allowed and column.code is not None and counts[column.source] >= MANY
            if grouped and column.source not in groups:
                groups[column.source] = len(groups)
                declared = design.schema.columns[design.sources[column.source]]
                assert isinstance(declared, Category)
                reference = declared.levels.index(declared.reference)
                narrow.append(replace(column, code=reference, but=True))
                self.presence.append(len(narrow))
                self._levels.append(len(declared.levels))
            elif not grouped:
                narrow.append(column)
            group = groups[column.source] if grouped else -1
            rows.append(self.presence[group] if grouped else len(narrow))
            of_group.append(group)
            level.append(column.code or 0)  # read for indicators of these groups alone
        self.columns = tuple(narrow)
        self.rows = np.array(rows)
        self._sources = tuple(groups)
        self._group, self._level = np.array(of_group), np.array(level)
        # First all products of rows of a block; then for each category its levels by rows of a
        # block; then for each pair of categories their levels by each other.
        self._tables: list[int] = []
        self._pairs: dict[tuple[int, int], int] = {}
        self.size = self.width**2
        for count in self._levels:
            self._tables.append(self.size)
            self.size += self.width * count
        for g, h in combinations(range(len(groups)), 2):
            self._pairs[g, h] = self.size
            self.size += self._levels[g] * self._levels[h]

    @property
    def width(self) -> int:
        return len(self.columns) + 1

    def codes(self, columns: Sequence[Floats | Codes]) -> dict[int, npt.NDArray[np.intp]]:
        """By the row of a category's presence, the codes of its values; `columns` are filled."""
        return {
            row: np.asarray(columns[source], dtype=np.intp)
            for row, source in zip(self.presence, self._sources, strict=True)
        }

    def by_row(self, entries: npt.NDArray[Any]) -> list[Any]:
        """What belongs to the entries of w, by rows of a narrow block.

        For a category it is an array by the codes of its levels, 0 at the reference.
        """
        found: list[Any] = [None] * self.width
        for row, count in zip(self.presence, self._levels, strict=True):
            found[row] = np.zeros(count, dtype=entries.dtype)
        for entry, row, group, level in zip(
            entries, self.rows, self._group, self._level, strict=True
        ):
            if group < 0:
                found[row] = entry
            else:
                found[row][level] = entry
        return found

    def add_levels(self, sums: Integers, w: Floats, columns: Sequence[Floats | Codes]) -> None:
        """Add the sums by level of a narrow block; `columns` are the design's sources, filled."""
        if not self.presence:
            return
        rows = w.astype(np.int64)
        codes = list(self.codes(columns).values())
        plain = [d for d in range(self.width) if d not in self.presence]
        for own, start, count, at in zip(
            self.presence, self._tables, self._levels, codes, strict=True
        ):
            table = sums[start : start + self.width * count].reshape(self.width, count)
            for d in (*plain, own):
                np.add.at(table[d], at, rows[d] * rows[own])
        for (g, h), start in self._pairs.items():
            table = sums[start : start + self._levels[g] * self._levels[h]]
            at = codes[g] * self._levels[h] + codes[h]
            np.add.at(table, at, rows[self.presence[g]] * rows[self.presence[h]])

    def positions(self, a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Where among the sums those of w_a w_b are, for indices a ≤ b into w.

        For two levels of one category that is a sum at its reference, which is 0.
        """
        a, b = np.asarray(a), np.asarray(b)
        at: npt.NDArray[np.intp] = self.rows[a] * self.width + self.rows[b]
        if not self.presence:
            return at
        levels, tables = np.array(self._levels), np.array(self._tables)
        g, h = self._group[a], self._group[b]
        for one, other in ((a, b), (b, a)):  # a level and what is none; both, if a = b
            group = self._group[one]
            here = (group >= 0) & ((self._group[other] < 0) | (one == other))
            row = self.rows[other[here]]
            at[here] = tables[group[here]] + row * levels[group[here]] + self._level[one[here]]
        both = (g >= 0) & (h >= 0) & (a != b)
        same, pair = both & (g == h), both & (g != h)
        reference = np.array([self.columns[row - 1].code for row in self.presence])
        at[same] = tables[g[same]] + self.rows[a[same]] * levels[g[same]] + reference[g[same]]
        starts = np.zeros((len(levels), len(levels)), dtype=np.intp)
        for places, start in self._pairs.items():
            starts[places] = start
        g, h = g[pair], h[pair]
        at[pair] = starts[g, h] + self._level[a[pair]] * levels[h] + self._level[b[pair]]
        return at

    def triangle(self, sums: Integers) -> Integers:
        """All sums as an upper triangle of w w'."""
        size = len(self.rows)
        a, b = np.triu_indices(size)
        out = np.zeros((size, size), dtype=np.int64)
        out[a, b] = sums[self.positions(a, b)]
        return out
