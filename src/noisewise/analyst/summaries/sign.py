"""Average of sign(b - β̂_j): how many blocks have their estimate below b.

At b = β the sign is ±1 with equal probabilities whatever the errors' law, as long as β̂_j has
median β: v = 1. Its covariance with ξ is A = E|ξ| = √(2/π). No block needs a standard error, so
heteroscedastic errors are accounted for without a word. Released is the average plus noise;
reported is the probability that what sampling and noise add to zero falls below it,

    P(β ≤ b) = F_NL(average; √(v_r/M), noise).

References
----------
Amitai & Reiter (2018), doi:10.29012/jpc.686, have averages of probabilities and of logarithms.
"""

from __future__ import annotations

import math
from typing import Any

from noisewise._arrays import FloatArray
from noisewise.analyst.summaries.partitions import Law
from noisewise.core import normal_laplace

LAW = Law(mean=0.0, variance=1.0, slope=math.sqrt(2 / math.pi))


def probability(average: Any, blocks: int, partitions: int, noise: float) -> FloatArray:
    """P(β ≤ b) from noisy averages of signs.

    Parameters
    ----------
    average : array
        Released sums divided by the number of blocks of all partitions.
    blocks, partitions : int
    noise : float
        The Laplace scale in the same units.
    """
    s = math.sqrt(LAW.spread(partitions) / blocks)
    return normal_laplace.cdf(average, s, noise)
