"""How far noise can move a symmetric matrix: a bound on its operator norm, from its public law."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import bdtrc, gammainccinv

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Family

MISS = 1e-6  # chance that the simulation understates the quantile
LEAST_DRAWS, MOST_DRAWS = 1000, 20_000
MOST_SIMULATED = 64  # columns
_SEED = 20180207  # the noise is simulated, not observed: the same bound every time
_CHUNK_ENTRIES = 2_000_000


def noise_width(scale: FloatArray, family: Family, failure: float) -> float:
    """A w with P(‖E‖ > w) ≤ `failure`, E the symmetric noise with independent entries.

    The law of E is public, so its quantile can be simulated. The r-th smallest of N simulated norms
    is returned, r so large that it is below the true quantile with probability `MISS` at most: the
    number of norms below the quantile is binomial, whatever the law. The closed forms of
    `_closed_form` are 1.5 to 2 times larger for Gaussian noise and 2.3 times for Laplace noise, and
    a ridge that is too large is a bias; they serve matrices too large to simulate.

    Parameters
    ----------
    scale : array, shape (d, d)
        Noise scale of each entry, symmetric; 0 where there is no noise.
    family : {"laplace", "gaussian"}
    failure : float

    Returns
    -------
    float
    """
    largest = float(scale.max())
    if largest == 0:
        return 0.0
    if len(scale) > MOST_SIMULATED:
        return _closed_form(scale, family, failure)
    # Holders often have the same noise up to its scale, and the norm is proportional to that.
    relative = np.ascontiguousarray(scale / largest)
    return largest * _simulated(relative.tobytes(), len(scale), family, failure)


def _closed_form(scale: FloatArray, family: Family, failure: float) -> float:
    """A bound for matrices of any size.

    Gaussian noise: P(‖E‖ > t) ≤ 2d exp(-t²/2v) with v the largest row sum of variances (Tropp
    2012, Theorem 4.1, where E is a sum of independent normals times fixed matrices A_k, and Σ A_k²
    is diagonal with the row sums).

    Laplace noise of scale b is normal given its variance 2b²W, W standard exponential and
    independent. A row's variances add up to at most 2b²Γ with b its largest scale and Γ a gamma
    variable with as many degrees as the row has noisy entries. Half of `failure` pays for v, by a
    union over the d rows, and half for the norm given v.

    References
    ----------
    Tropp (2012), User-friendly tail bounds for sums of random matrices,
        doi:10.1007/s10208-011-9099-z.
    """
    d = len(scale)
    if family == "gaussian":
        v = float((scale**2).sum(axis=1).max())
        return math.sqrt(2 * v * math.log(2 * d / failure))
    entries = np.count_nonzero(scale, axis=1)
    gammas = gammainccinv(np.maximum(entries, 1), failure / (2 * d))
    v = float((2 * scale.max(axis=1) ** 2 * gammas).max())
    return math.sqrt(2 * v * math.log(4 * d / failure))


@lru_cache(maxsize=64)
def _simulated(scale: bytes, d: int, family: Family, failure: float) -> float:
    upper = np.triu(np.frombuffer(scale).reshape(d, d))
    draws = min(MOST_DRAWS, max(LEAST_DRAWS, 4_000_000 // d**2))
    draws = max(draws, math.ceil(-math.log(MISS) / failure) + 1)
    # P(at least r of the norms are below the quantile) for r = 1, 2, ...
    at_least = bdtrc(np.arange(draws), draws, 1 - failure)
    rank = int(np.flatnonzero(at_least <= MISS)[0])
    rng = np.random.default_rng(_SEED)
    norms = []
    chunk = max(1, _CHUNK_ENTRIES // d**2)
    for start in range(0, draws, chunk):
        shape = (min(chunk, draws - start), d, d)
        noise = rng.laplace(size=shape) if family == "laplace" else rng.standard_normal(shape)
        noise *= upper
        noise += np.triu(noise, 1).transpose(0, 2, 1)
        norms.append(np.abs(np.linalg.eigvalsh(noise)[:, [0, -1]]).max(axis=1))
    return float(np.sort(np.concatenate(norms))[rank])
