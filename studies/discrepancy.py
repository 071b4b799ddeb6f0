"""Maximum mean discrepancy between two sets of draws: how far two posteriors are apart.

References
----------
Gretton, Borgwardt, Rasch, Schölkopf & Smola (2012), A kernel two-sample test, JMLR 13, 723-773.
"""

from __future__ import annotations

import numpy as np

from noisewise._arrays import FloatArray

_MEDIAN_FROM = 500  # draws that the median distance is taken from


def mmd2_unbiased(p: FloatArray, q: FloatArray, *, batch: int = 1000) -> float:
    """Unbiased estimate of the squared discrepancy; it can be negative when both laws agree.

    The kernel is exp(-|a - b|² / 2h²) on coordinates divided by their pooled standard deviation,
    h the median distance between pooled draws.

    Parameters
    ----------
    p, q : array, shapes (m, D) and (m', D)
        Independent draws, at least two of each.
    batch : int
        Rows of the kernel matrix that are in memory at a time.

    Returns
    -------
    float
    """
    pooled = np.concatenate([p, q])
    spread = pooled.std(axis=0)
    spread[spread == 0] = 1.0
    p, q, pooled = p / spread, q / spread, pooled / spread
    step = max(1, len(pooled) // _MEDIAN_FROM)
    some = pooled[::step]
    distances = _squared_distances(some, some)[np.triu_indices(len(some), 1)]
    width = max(float(np.median(distances)), 1e-300)
    within_p = (_kernel_sum(p, p, width, batch) - len(p)) / (len(p) * (len(p) - 1))
    within_q = (_kernel_sum(q, q, width, batch) - len(q)) / (len(q) * (len(q) - 1))
    return within_p + within_q - 2 * _kernel_sum(p, q, width, batch) / (len(p) * len(q))


def _kernel_sum(a: FloatArray, b: FloatArray, width: float, batch: int) -> float:
    return sum(
        float(np.exp(-_squared_distances(a[i : i + batch], b) / (2 * width)).sum())
        for i in range(0, len(a), batch)
    )


def _squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.maximum(squares, 0.0), dtype=np.float64)
