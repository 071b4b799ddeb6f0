"""Compiled kernel of the posterior of one row: latent counts given their sum, one after another."""

from __future__ import annotations

import numpy as np

from noisewise.analyst.networks.compiled import compiled
from noisewise.analyst.random_numbers import uniform


@compiled
def split_sums(rng, weights, lengths, prefix, sums, out):  # type: ignore[no-untyped-def]
    """Draw lattice counts j, shape (draws, r), given their sums.

    P(j) ∝ Π_x weights[x, j_x]. `prefix[x]` is the convolution of weights[0..x], so the last count
    has P(j_x | sum s) ∝ weights[x, j_x] prefix[x-1, s - j_x].
    """
    r = lengths.size
    before = np.zeros(r, dtype=np.int64)  # length of prefix[x]
    before[0] = lengths[0]
    for x in range(1, r):
        before[x] = before[x - 1] + lengths[x] - 1
    for t in range(sums.size):
        s = sums[t]
        for x in range(r - 1, 0, -1):
            low = max(0, s - before[x - 1] + 1)
            high = min(lengths[x] - 1, s)
            total = 0.0
            for j in range(low, high + 1):
                total += weights[x, j] * prefix[x - 1, s - j]
            left = uniform(rng) * total
            j = low
            while j < high:
                left -= weights[x, j] * prefix[x - 1, s - j]
                if left < 0.0:
                    break
                j += 1
            out[t, x] = j
            s -= j
        out[t, 0] = s
