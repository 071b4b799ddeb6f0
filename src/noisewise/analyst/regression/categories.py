"""Indicators of categories and of their interactions, in families of which at most one atom is 1.

Products of indicators are counts of cells: region[a] and sex[f] are both 1 in the cell (a, f). A
Release of ``region*sex`` states the count of that cell five times, as the product of region[a] and
sex[f] and as every product of region[a]:sex[f] that isn't 0. This is one unknown, not five, and
counts of cells are not negative.

Let every term stand for the set of factors that it is made of. If the union of any two of these
sets is one of them, too, the terms are a *family*: whatever a row is, the terms that are not 0 in
it are those within one of the sets. So there are as many *atoms*, which exclude each other, as
columns ("region a and sex not f", "sex f and region not a", "region a and sex f"), and a column is
the sum of the atoms in its cell. Every category is a family by itself, ``a*b`` and ``a*b*c`` are
families, and ``(a + b + c)**2`` is none, because a:b and a:c are both 1 where a:b:c would be. It is
divided into three: a:b with a and b, a:c with c, and b:c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from noisewise._arrays import FloatArray, IntArray
from noisewise.analyst.regression.observation import Cell, Observation

# How an entry of a holder's statistics is known: not at all; by its value, or because it follows
# from other entries; on the diagonal, as the sum of an indicator, whose square it is; and below it,
# as the sum of an indicator whose cell is part of the row's own.
FREE, KNOWN, TIED, NESTED = 0, 1, 2, 3


@dataclass(frozen=True)
class Families:
    """Indicators in an order in which families are together, and parts of cells come first."""

    columns: tuple[int, ...]  # of w
    family: tuple[int, ...]  # of each, from 1 on
    parts: tuple[tuple[int, ...], ...]  # of each, the places of those whose cells are part of its

    @classmethod
    def of(cls, seen: Observation, columns: Sequence[int]) -> Families:
        """The families of these columns; by their products if it isn't known what they mean."""
        cells = {c: seen.cells.get(c, frozenset()) for c in columns}
        families = _closed(cells) if all(cells.values()) else _exclusive(seen, columns)
        order = [c for family in families for c in family]
        return cls(
            tuple(order),
            tuple(i for i, family in enumerate(families, 1) for _ in family),
            tuple(
                tuple(order.index(d) for d in family if cells[c] < cells[d])
                for family in families
                for c in family
            ),
        )

    def known(self) -> IntArray:
        """How the entries between these columns are known; the lower triangle counts."""
        family = np.array(self.family, dtype=int)
        codes = np.where(family[:, None] == family, KNOWN, FREE)
        for place, parts in enumerate(self.parts):
            codes[place, list(parts)] = NESTED
        np.fill_diagonal(codes, TIED)
        return codes

    def sums(self) -> FloatArray:
        """Which atoms every column is the sum of, 0 or 1; one a column, in the same order."""
        known = self.known()
        return np.asarray((known == TIED) | (known == NESTED), dtype=np.float64)

    def apart(self, seen: Observation) -> Observation:
        """The same Release with noise on what is known exactly of products of two families.

        Cells of two families may exclude each other, and that is no coordinate of theirs. So it is
        used as if it had been released, with as much noise as other products: no more than is true.
        """
        columns, family = np.array(self.columns, dtype=int), np.array(self.family, dtype=int)
        block = np.ix_(columns, columns)
        scale = seen.scale.copy()
        noisy = scale[(scale > 0) & np.isfinite(scale) & ~np.eye(len(scale), dtype=np.bool_)]
        exact = (family[:, None] != family) & (scale[block] == 0)
        if not exact.any() or not noisy.size:
            return seen
        scale[block] = np.where(exact, float(np.median(noisy)), scale[block])
        return replace(seen, scale=scale)


def _closed(cells: Mapping[int, Cell]) -> list[list[int]]:
    """Families by what columns mean; the terms of most factors first."""
    terms: dict[frozenset[object], list[int]] = {}
    for column in sorted(cells):
        terms.setdefault(frozenset(factor for factor, _ in cells[column]), []).append(column)
    left = sorted(terms, key=lambda factors: (-len(factors), terms[factors][0]))
    families = []
    while left:
        family = [left.pop(0)]
        grown = True
        while grown:
            grown = False
            for term in left:
                if all(term | other in (*family, term) for other in family):
                    family.append(term)
                    left.remove(term)
                    grown = True
                    break
        family.sort(key=lambda factors: (-len(factors), terms[factors][0]))
        families.append([column for term in family for column in terms[term]])
    return families


def _exclusive(seen: Observation, columns: Sequence[int]) -> list[list[int]]:
    """Families of columns all of whose products are known to be 0."""
    families: list[list[int]] = []
    for column in columns:
        for family in families:
            if not seen.scale[column, family].any():
                family.append(column)
                break
        else:
            families.append([column])
    return families
