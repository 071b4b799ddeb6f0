"""The naive posterior: noisy statistics taken at face value. Not noise-aware.

It is here as the negative control, and to show what ignoring the noise costs. Its intervals are
too narrow by any factor: the more noise, the worse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..models.conjugate import draw, matched, update
from ..observation import Observation
from ..priors import NIGPrior, NormalInverseGammaIndependent

FloatArray = NDArray[np.float64]


def sample(
    observations: Sequence[Observation],
    prior: NIGPrior | NormalInverseGammaIndependent,
    *,
    chains: int,
    draws: int,
    seed: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Independent draws of theta (chains, draws, d) and sigma2 (chains, draws), on unit scale."""
    A = sum(project(observation) for observation in observations)
    n = sum(observation.n for observation in observations)
    posterior = update(matched(prior), np.asarray(A), n)
    return draw(posterior, np.random.default_rng(seed), (chains, draws))


def project(observation: Observation) -> FloatArray:
    """A possible Gram matrix near the noisy one: n and the means kept, scatter made positive.

    Negative eigenvalues of the scatter matrix become a small positive number, so that the
    conjugate update exists (b_n > 0) even when noise has drowned the data.
    """
    n, A = observation.n, observation.values
    mean = A[0, 1:] / n
    scatter = A[1:, 1:] - n * np.outer(mean, mean)
    eigenvalues, vectors = np.linalg.eigh(scatter)
    floor = 1e-6 * n
    scatter = (vectors * np.maximum(eigenvalues, floor)) @ vectors.T
    valid = np.empty_like(A)
    valid[0, 0] = n
    valid[0, 1:] = valid[1:, 0] = n * mean
    valid[1:, 1:] = scatter + n * np.outer(mean, mean)
    return valid
