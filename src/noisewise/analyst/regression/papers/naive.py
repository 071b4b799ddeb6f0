"""The naive posterior: noisy statistics taken at face value. Not noise-aware.

It is here as the negative control, and to show what ignoring the noise costs. Its intervals are
too narrow by any factor: the more noise, the worse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.conjugate import draw, matched, update
from noisewise.analyst.regression.priors import RegressionPrior


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
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


def project(observation: Observation, *, floor: float = 1e-6) -> FloatArray:
    """A possible Gram matrix near the noisy one: n and the means kept, scatter made positive.

    Eigenvalues of the scatter matrix below ``floor * n`` become that number, which with floor 0 is
    the nearest positive semi-definite matrix in the Frobenius norm (Higham 1988). It is the maximum
    likelihood estimate under Gaussian noise in the isometric layout only.

    Parameters
    ----------
    observation : Observation
        With a public n and every entry released.
    floor : float
        Positive where a conjugate update must exist even if noise has drowned the data.

    Returns
    -------
    array, shape (P, P)

    References
    ----------
    Higham (1988), Computing a nearest symmetric positive semidefinite matrix, Linear Algebra and
    its Applications 103, doi:10.1016/0024-3795(88)90223-6.
    """
    return project_gram(observation.values, observation.n, floor=floor)


def project_gram(A: FloatArray, n: int, *, floor: float = 0.0) -> FloatArray:
    """`project` for any Gram matrix whose first column is that of the intercept, over n rows."""
    mean = A[0, 1:] / n
    scatter = A[1:, 1:] - n * np.outer(mean, mean)
    eigenvalues, vectors = np.linalg.eigh(scatter)
    scatter = (vectors * np.maximum(eigenvalues, floor * n)) @ vectors.T
    possible = np.empty_like(A)
    possible[0, 0] = n
    possible[0, 1:] = possible[1:, 0] = A[0, 1:]
    possible[1:, 1:] = scatter + n * np.outer(mean, mean)
    return 0.5 * (possible + possible.T)
