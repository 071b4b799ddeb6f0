"""clipped_mean: block quantiles between public bounds, averaged (Amitai & Reiter 2018, section 4).

**What a block contributes.** The p-quantile Q = m + √v T_ν⁻¹(p) of the posterior with the
likelihood to the power M, which is as narrow as that of all rows, clipped to public bounds and
mapped to ψ = (Q - lower)/(upper - lower) on a grid of 2**-20; 1/2 without a regression.

**Claim.** The K sums over all blocks of all r partitions have L1 sensitivity r K m (in units of ψ)
for a unit of m rows, under either neighbour relation.

**Proof.** As for `sign`: at most r m terms of each sum change, each within [0, 1], clipped as
integers. ∎

Noise is proportional to the width of the bounds, and bounds that are known without looking at the
data are usually hundreds of posterior standard deviations apart. `location_scale` needs none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from noisewise.core.kinds.summary.mechanisms import ClippedMean
from noisewise.holder.blocks.grid import Integers
from noisewise.holder.blocks.regressions import Fits


def terms(mechanism: ClippedMean, fits: Fits, positions: Mapping[str, int]) -> Integers:
    """ψ of every block and quantile; shape (blocks, items)."""
    from scipy.special import stdtrit

    columns = []
    for item in mechanism.items:
        k = positions[item.coefficient]
        with np.errstate(over="ignore", invalid="ignore"):
            reach = stdtrit(fits.full_freedom, item.probability) * np.sqrt(fits.full_variance[:, k])
            quantile = np.clip(fits.mean[:, k] + reach, item.lower, item.upper)
            share = (quantile - item.lower) / (item.upper - item.lower)
        share = np.where(fits.valid & np.isfinite(share), share, 0.5)
        columns.append(np.rint(share * 2.0**mechanism.fraction_bits))
    return np.stack(columns, axis=1).astype(np.int64)
