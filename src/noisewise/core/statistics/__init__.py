"""What is summed over the rows, and how far one unit can move it: one file a statistic.

A statistic's entries are monomials in w = (1, x, y) on unit scale, given as sorted tuples of
indices into w; a lower degree is written by repeating the index 0 of the constant. Only unique
entries that really vary are released. The others are public and carry no noise. The smallest
eigenvalue is no sum; its single entry is an empty monomial, which only says that there is one.

Sensitivities stand beside the statistics, with their proofs. They follow from public numbers alone.
The holder calibrates its noise by them, and whoever reads a Release checks what it states against
them.

Every sensitivity is an integer in grid units (2**-32), rounded up, already multiplied by
``max_rows_per_unit``: k rows of one unit can all move the sum in the same direction, so k times
the sensitivity of one row is attained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from noisewise.core.design import STATISTIC_ONE, Box, Geometry, Monomial
from noisewise.core.privacy import ceil_sqrt
from noisewise.core.statistics import fourth_moments, second_moments, smallest_eigenvalue
from noisewise.core.statistics.fourth_moments import MAX_FOURTH_MOMENTS, FourthMoments
from noisewise.core.statistics.second_moments import SecondMoments
from noisewise.core.statistics.smallest_eigenvalue import SmallestEigenvalue

__all__ = [
    "MAX_FOURTH_MOMENTS",
    "STATISTICS",
    "FourthMoments",
    "Layout",
    "Monomial",
    "SecondMoments",
    "SmallestEigenvalue",
    "Statistic",
    "Summed",
    "l1_sensitivity",
    "l2_sensitivity",
]

Layout = Literal["upper", "isometric"]
Summed = SecondMoments | FourthMoments
Statistic = SecondMoments | FourthMoments | SmallestEigenvalue
STATISTICS: Mapping[str, type[SecondMoments] | type[FourthMoments] | type[SmallestEigenvalue]] = {
    SecondMoments.name: SecondMoments,
    FourthMoments.name: FourthMoments,
    SmallestEigenvalue.name: SmallestEigenvalue,
}


def l1_sensitivity(statistic: Statistic) -> int:
    """Largest L1 change of the statistic's entries, in grid units."""
    if isinstance(statistic, SecondMoments):
        bound = second_moments.l1(statistic)
    elif isinstance(statistic, SmallestEigenvalue):
        bound = smallest_eigenvalue.sensitivity(statistic, Box())
    else:
        bound = fourth_moments.l1(statistic)
    return _per_unit(statistic, math.ceil(bound * STATISTIC_ONE))


def l2_sensitivity(statistic: Statistic, geometry: Geometry, layout: Layout) -> int:
    """Largest L2 change in the given layout, in grid units.

    In the ``isometric`` layout off-diagonal entries count √2-fold.
    """
    if not isinstance(statistic, SecondMoments) and layout != "upper":
        raise ValueError("only second moments have the isometric layout")
    if isinstance(statistic, FourthMoments):
        squared = fourth_moments.l2_squared(statistic)
    elif isinstance(statistic, SmallestEigenvalue):
        squared = smallest_eigenvalue.sensitivity(statistic, geometry) ** 2
    else:
        squared = second_moments.l2_squared(statistic, geometry, layout)
    return _per_unit(statistic, ceil_sqrt(squared * STATISTIC_ONE**2))


def _per_unit(statistic: Statistic, one_row: int) -> int:
    return statistic.design.schema.max_rows_per_unit * one_row
