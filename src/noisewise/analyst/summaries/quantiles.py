"""Released medians and quantiles of the blocks: intervals with the noise in them.

**location_scale**

A private median of the blocks' estimates and one of their scales: every b, every quantile.

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

**clipped_mean**

Average over blocks of clipped posterior quantiles, with public bounds.

Each block gives its p-quantile of the posterior with the likelihood to the power M, which is as
wide as that of all rows, clipped to public bounds. With ends so wide that they clip nothing the
average is the full posterior's quantile Q(p) up to terms of order 1/n_j (Li, Srivastava & Dunson
2017), and released is Q(p) + Laplace(noise).

`clipped_mean_interval` accounts for the noise. Say β ~ N(m, σ²) is the full posterior and two
quantiles m + σ z_1 and m + σ z_2 are released with noise. Their difference estimates σ, and given σ
the location is a released number minus σ z plus Laplace noise, so that β - released + σ z is
N(0, σ²) + Laplace(noise), and the end that leaves p below itself is released - σ z + F_NL⁻¹(p).

References
----------
Amitai & Reiter (2018), doi:10.29012/jpc.686, section 4. Li, Srivastava & Dunson (2017),
doi:10.1093/biomet/asx033.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core import normal_laplace

_Z = NormalDist().inv_cdf


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


def posterior_sd(low: float, high: float, p_low: float, p_high: float) -> float:
    """σ from two released quantiles; zero where the noise has turned them round."""
    return max(0.0, (high - low) / (_Z(p_high) - _Z(p_low)))


def clipped_mean_interval(
    low: float, high: float, p_low: float, p_high: float, noise: float
) -> tuple[float, float]:
    """The ends that leave `p_low` below and `1 - p_high` above, noise included.

    Where the noise has turned even these round, the smaller one comes first.
    """
    sd = posterior_sd(low, high, p_low, p_high)
    ends = (
        released - sd * _Z(p) + float(normal_laplace.ppf(p, sd, noise))
        for released, p in ((low, p_low), (high, p_high))
    )
    first, second = sorted(ends)
    return first, second
