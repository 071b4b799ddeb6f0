"""Average of the blocks' own probabilities p_j = P(β ≤ b | block j), with the right noise.

At b = β the p_j are uniform: mean 1/2, v = 1/12, and A = E φ(ξ) = 1/(2√π). Reported is

    P(β ≤ b) = F_NL(average - 1/2; √(v_r/M), noise).

`plug_in` is the paper's equation 2.10 with its multiplier corrected. Given the full data's z-score,
ξ_j is N(z/√M, 1 - 1/M), so that E p̄ = E Φ(ξ_j) = Φ(z/√M / √(2 - 1/M)): the z-score is
√(2M - 1) Φ⁻¹(p̄), not √M Φ⁻¹(p̄). It ignores the noise, which may even push the average out of
(0, 1) with probability exp(-Mε/2)/2 on either side at z = 0; it is then 0 or 1.

References
----------
Amitai & Reiter (2018), doi:10.29012/jpc.686, section 2.1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.summaries.partitions import Law
from noisewise.core import normal_laplace

LAW = Law(mean=0.5, variance=1 / 12, slope=1 / (2 * math.sqrt(math.pi)))


def probability(average: Any, blocks: int, partitions: int, noise: float) -> FloatArray:
    """P(β ≤ b) from noisy averages of probabilities; the arguments are those of `sign`."""
    s = math.sqrt(LAW.spread(partitions) / blocks)
    return normal_laplace.cdf(np.asarray(average, dtype=np.float64) - LAW.mean, s, noise)


def plug_in(average: Any, blocks: int) -> FloatArray:
    """Φ(√(2M - 1) Φ⁻¹(average)), which takes the noisy average at face value."""
    from scipy.special import ndtr, ndtri

    inside = np.clip(np.asarray(average, dtype=np.float64), 0.0, 1.0)
    return np.asarray(ndtr(math.sqrt(2 * blocks - 1) * ndtri(inside)))
