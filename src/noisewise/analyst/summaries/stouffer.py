"""Average of clipped z-scores, clip(Φ⁻¹(p_j), ±c), after Stouffer's way of combining tests.

At b = β the p_j are uniform and w = Φ⁻¹(p_j) is standard normal. With a = 2Φ(c) - 1,

    A = E[ξ clip(ξ)] = P(|ξ| < c) = a,
    v = E[clip(ξ)²] = a - 2cφ(c) + c²(1 - a),

the first by Stein's identity (A = E ψ'), the second from ∫_{-c}^{c} x²φ = a - 2cφ(c). Reported is
F_NL(average; √(v_r/M), noise).

References
----------
Stouffer, Suchman, DeVinney, Star & Williams (1949), The American Soldier, volume 1.
"""

from __future__ import annotations

import math
from typing import Any

from noisewise._arrays import FloatArray
from noisewise.analyst.summaries.partitions import Law
from noisewise.core import normal_laplace


def law(clip: float) -> Law:
    """Moments of one block's clipped z-score."""
    inside = math.erf(clip / math.sqrt(2))
    density = math.exp(-0.5 * clip * clip) / math.sqrt(2 * math.pi)
    return Law(0.0, inside - 2 * clip * density + clip * clip * (1 - inside), inside)


def probability(
    average: Any, clip: float, blocks: int, partitions: int, noise: float
) -> FloatArray:
    """P(β ≤ b) from noisy averages of z-scores clipped at ±`clip`; the rest as for `sign`."""
    s = math.sqrt(law(clip).spread(partitions) / blocks)
    return normal_laplace.cdf(average, s, noise)
