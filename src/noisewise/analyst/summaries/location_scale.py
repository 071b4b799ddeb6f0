"""A private median of the blocks' estimates and one of their scales: every b, every quantile.

The location is the median of β̂_j; the scale is the full data's posterior standard deviation, from
the median of |β̂_j - location| (with the flat posterior: whatever the errors' law) or of √(v_j/M);
all by the exponential mechanism. In units of that standard deviation,

- the average over partitions of the median of M normal variables of standard deviation √M has
  variance v_r/A² of `sign`, which is 1 + (π/2 - 1)/r: a median is where the average of signs is
  zero, and moves by the inverse of its slope;
- the mechanism draws a rank in error by Laplace(2/ε_l) of M blocks, since the utility is minus the
  distance in ranks and has sensitivity 1; around the median there are Mφ(0)/√M blocks a unit, so
  that is Laplace(2/(ε_l φ(0) √M)).

Hence P(β ≤ b) = F_NL((b - location)/scale; √(1 + (π/2 - 1)/r), 2/(ε_l φ(0) √M)), and quantiles are
location + scale F_NL⁻¹(p), which never cross. The scale is taken at face value: its own error, some
per cent at ε_s M = 80, is not in the law.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core import normal_laplace


class Reference(NamedTuple):
    """The law of (β - location)/scale."""

    s: float
    noise: float


def reference(blocks: int, partitions: int, epsilon_location: float) -> Reference:
    """Sampling and noise, in units of the full data's posterior standard deviation."""
    density = 1 / math.sqrt(2 * math.pi)
    noise = 2 / (epsilon_location * density * math.sqrt(blocks))
    return Reference(math.sqrt(1 + (math.pi / 2 - 1) / partitions), noise)


def probability(b: Any, location: Any, scale: Any, law: Reference) -> FloatArray:
    """P(β ≤ b)."""
    with np.errstate(over="ignore", divide="ignore"):  # a wild scale, or hardly any epsilon
        away = (np.asarray(b, dtype=np.float64) - location) / scale
        return normal_laplace.cdf(away, *law)


def quantile(p: Any, location: Any, scale: Any, law: Reference) -> FloatArray:
    """The p-quantile of β."""
    with np.errstate(over="ignore", divide="ignore"):
        return np.asarray(location + scale * normal_laplace.ppf(p, *law))
