"""The covariates' law given everybody's latent statistics."""

from __future__ import annotations

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.priors import NIWPrior


def draw_covariates(
    rng: np.random.Generator, statistics: FloatArray, prior: NIWPrior
) -> tuple[FloatArray, FloatArray]:
    """One draw of mu and T given each of m pooled statistics, by conjugacy.

    T ~ IW(nu + N, Psi_n) and mu | T ~ N(m_n, T / (lam + N)). For samplers that keep the statistics
    and not the covariates' law, or whose law is another than the normal one.

    Parameters
    ----------
    rng : numpy.random.Generator
    statistics : array, shape (m, P, P)
        A = Σ ww', w = (1, x, y), over the N rows of all holders.
    prior : NIWPrior

    Returns
    -------
    mu, T : arrays, shape (m, k) and (m, k, k)
    """
    m, k = len(statistics), prior.k
    N, total = statistics[:, 0, 0], statistics[:, 0, 1:-1]
    weight = prior.lam + N
    centre = (prior.lam * prior.m + total) / weight[:, None]
    Psi = prior.Psi + prior.lam * np.outer(prior.m, prior.m) + statistics[:, 1:-1, 1:-1]
    Psi = Psi - weight[:, None, None] * centre[:, :, None] * centre[:, None, :]
    # T = CC' with C = L Q⁻ᵀ, Psi_n = LL' and Q the Bartlett factor of a Wishart(nu_n, I) draw.
    Q = np.tril(rng.standard_normal((m, k, k)), -1)
    degrees = prior.nu + N[:, None] - np.arange(k)
    Q[:, range(k), range(k)] = np.sqrt(rng.chisquare(degrees))
    L = np.linalg.cholesky(Psi)
    C = np.swapaxes(np.linalg.solve(Q, np.swapaxes(L, 1, 2)), 1, 2)
    step = np.einsum("mab,mb->ma", C, rng.standard_normal((m, k)))
    return centre + step / np.sqrt(weight)[:, None], C @ np.swapaxes(C, 1, 2)
