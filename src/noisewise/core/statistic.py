"""What is summed over the rows: names, order and number of a statistic's entries.

A statistic's entries are monomials in w = (1, x, y) on unit scale, given as sorted tuples of
indices into w; a lower degree is written by repeating the index 0 of the constant. Only unique
entries that really vary are released. The others are public and carry no noise. The smallest
eigenvalue is no sum; its single entry is an empty monomial, which only says that there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb

from noisewise.core.design import Design
from noisewise.core.geometry import Ball, Geometry
from noisewise.core.grid import row_bits

Monomial = tuple[int, ...]

MAX_FOURTH_MOMENTS = 20_000  # no budget pays for more


@dataclass(frozen=True)
class SecondMoments:
    """The Gram matrix A = Σ ww' of w = (1, x, y), upper triangle, row by row.

    Public entries: A₀₀ = n when neighbours replace a row, and products of two indicators of the
    same category, which are zero in every row. An indicator's square equals the indicator, but it
    is released with noise of its own: analysts can then treat all noise as independent.
    """

    design: Design
    name = "second_moments"
    degree = 2

    @cached_property
    def all_entries(self) -> tuple[Monomial, ...]:
        """All of the upper triangle."""
        return tuple(combinations_with_replacement(range(len(self.design.columns) + 1), 2))

    @cached_property
    def entries(self) -> tuple[Monomial, ...]:
        """The entries that get noise, in the order of a Release's values."""
        return tuple(entry for entry in self.all_entries if entry not in self._public)

    @cached_property
    def _public(self) -> frozenset[Monomial]:
        public = set()
        if self.design.schema.neighbours == "replace_one":
            public.add((0, 0))
        columns = self.design.columns
        for a, b in self.all_entries:
            if a == 0 or a == b:
                continue
            left, right = columns[a - 1], columns[b - 1]
            if left.is_indicator and left.source == right.source:
                public.add((a, b))
        return frozenset(public)

    def public_values(self, n: int | None) -> Mapping[Monomial, int]:
        """The public entries with their values (`n` rows; None where n is private)."""
        values = dict.fromkeys(self._public, 0)
        if (0, 0) in values:
            if n is None:
                raise ValueError("n is public under replace_one and must be given")
            values[0, 0] = n
        return values


@dataclass(frozen=True)
class FourthMoments:
    """Sums of all monomials of degree 1 to 4 in the features x.

    These are the unique entries of the fourth-order tensor Σ v⊗v⊗v⊗v of v = (1, x), which the
    Gibbs-SS-Noisy sampler of Bernstein & Sheldon (2019) plugs in. The target takes no part.
    """

    design: Design
    name = "fourth_moments"
    degree = 4

    @property
    def number_of_entries(self) -> int:
        """How many there are, without listing them: there may be a thousand million."""
        return comb(len(self.design.columns) - 1 + 4, 4) - 1

    @cached_property
    def entries(self) -> tuple[Monomial, ...]:
        """All monomials but the constant, in the order of a Release's values."""
        k = len(self.design.columns) - 1
        return tuple(combinations_with_replacement(range(k + 1), 4))[1:]


@dataclass(frozen=True)
class SmallestEigenvalue:
    """λ_min(S) of S = Σ vv', v = (1, x) on unit scale: how well the features tell rows apart.

    One number, computed from the second moments rather than summed. Its value is rounded down to a
    multiple of 2**-16. adaSSP (Wang 2018) chooses its ridge by it. The target takes no part.
    """

    design: Design
    name = "smallest_eigenvalue"
    degree = 2
    entries: tuple[Monomial, ...] = field(default=((),), init=False, repr=False)

    @property
    def size(self) -> int:
        """Number of rows and columns of S."""
        return len(self.design.columns)  # the constant takes the target's place

    def largest_square(self, geometry: Geometry) -> Fraction:
        """The largest possible |v|²: 1, one for every numeric feature, and one for every category.

        At most one indicator of a category is 1. In a ball it is at most 1 + R².
        """
        design = self.design
        box = Fraction(design.number_of_numbers + len(design.category_sizes))
        radius = self.radius(geometry)
        return box if radius is None else min(box, 1 + radius**2)

    def radius(self, geometry: Geometry) -> Fraction | None:
        """The ball's radius as it is on the rows' grid; None for a box."""
        if not isinstance(geometry, Ball):
            return None
        bits = row_bits(self.degree)
        return Fraction(geometry.grid_radius(bits), 1 << bits)


Summed = SecondMoments | FourthMoments
Statistic = SecondMoments | FourthMoments | SmallestEigenvalue
STATISTICS: Mapping[str, type[SecondMoments] | type[FourthMoments] | type[SmallestEigenvalue]] = {
    SecondMoments.name: SecondMoments,
    FourthMoments.name: FourthMoments,
    SmallestEigenvalue.name: SmallestEigenvalue,
}
