"""What holders would release if the fitted model were right: a check of the Releases.

For every posterior draw of (theta, sigma2, mu, T) new rows are imagined, summed and noised as the
holder did. A released value many standard deviations away from its replicates contradicts the
model: a holder summed something else, used other units, or serves other people than the rest.

One holder can hardly contradict itself. Second moments have as many entries as the model has
parameters, so the fit adapts to them; what the check can find is one holder against the others, or
numbers that no rows have.

Only sums are drawn, never rows (Bartlett's decomposition), in O(k³) whatever n is: with L_T the
factor of T and w = (1, x, y), the factor of A = Σ ww' is, for g, e, B_ab standard normal,
B_aa ~ chi(n - a) for a = 1, ..., k and c ~ chi(n - k - 1)::

    sqrt(n)
    sqrt(n) (mu + L_T g / sqrt(n))    L_T B
    (row above)' theta + sigma e      sigma c

that is, the last row is r' = theta'F + sigma e' for F the rows above it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..observation import Observation

FloatArray = NDArray[np.float64]


def draw_statistics(
    rng: np.random.Generator,
    n: int,
    theta: FloatArray,
    sigma2: FloatArray,
    mu: FloatArray,
    T: FloatArray,
) -> FloatArray:
    """Gram matrices of n rows for each of m draws of the parameters, shape (m, P, P)."""
    m, k = mu.shape
    F = np.zeros((m, k + 2, k + 2))
    below = np.tril(rng.standard_normal((m, k, k)), -1)
    below[:, range(k), range(k)] = np.sqrt(rng.chisquare(n - 1.0 - np.arange(k), (m, k)))
    L = np.linalg.cholesky(T)
    F[:, 0, 0] = np.sqrt(n)
    F[:, 1:-1, 0] = np.sqrt(n) * mu + np.einsum("mab,mb->ma", L, rng.standard_normal((m, k)))
    F[:, 1:-1, 1:-1] = L @ below
    sigma = np.sqrt(sigma2)
    F[:, -1, :-1] = np.einsum("mab,ma->mb", F[:, :-1, :-1], theta)
    F[:, -1, :-1] += sigma[:, None] * rng.standard_normal((m, k + 1))
    F[:, -1, -1] = sigma * np.sqrt(rng.chisquare(n - k - 1.0, m))
    return np.asarray(F @ F.transpose(0, 2, 1))


def discrepancy(
    rng: np.random.Generator,
    observation: Observation,
    theta: FloatArray,
    sigma2: FloatArray,
    mu: FloatArray,
    T: FloatArray,
) -> FloatArray:
    """How far each released value is from its replicates, in their sds; 0 where none was released.

    The noise's variance is added to that of the replicates instead of drawing it. A private n is
    rough: sums are proportional to it, so its error adds to theirs.
    """
    n = max(observation.n, observation.k + 2)
    A = draw_statistics(rng, n, theta, sigma2, mu, T)
    mean = A.mean(axis=0)
    noisy = (observation.scale > 0) & np.isfinite(observation.scale)
    variance = A.var(axis=0) + np.where(noisy, observation.sd, 0.0) ** 2
    variance += (mean / n * observation.sd[0, 0]) ** 2
    away = (observation.values - mean) / np.sqrt(np.where(noisy, variance, 1.0))
    return np.where(noisy, away, 0.0)
