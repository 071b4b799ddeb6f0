"""The conjugate normal inverse gamma update from exact second moments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.priors import NIGPrior, NormalInverseGammaIndependent


class NIG(NamedTuple):
    """Parameters of theta | sigma2 ~ N(mu, sigma2 Lam⁻¹), sigma2 ~ IG(a, b)."""

    mu: FloatArray
    Lam: FloatArray
    a: float
    b: float


def update(prior: NIGPrior, A: FloatArray, n: int) -> NIG:
    """The posterior given A = Σ ww', w = (1, x, y), over n rows.

    Lam_n = Lam0 + S, mu_n = Lam_n⁻¹(Lam0 mu0 + z), a_n = a0 + n/2 and
    b_n = b0 + (u + mu0'Lam0 mu0 - mu_n'Lam_n mu_n)/2, where S, z, u are the blocks of A.
    """
    S, z, u = A[:-1, :-1], A[:-1, -1], A[-1, -1]
    Lam = prior.Lam0 + S
    shift = prior.Lam0 @ prior.mu0 + z
    mu = np.asarray(np.linalg.solve(Lam, shift), dtype=np.float64)
    b = prior.b0 + 0.5 * float(u + prior.mu0 @ prior.Lam0 @ prior.mu0 - mu @ shift)
    return NIG(mu, Lam, prior.a0 + n / 2, b)


def matched(prior: NIGPrior | NormalInverseGammaIndependent) -> NIGPrior:
    """A conjugate prior as wide as the given one, at the error variance b0 / a0."""
    if isinstance(prior, NIGPrior):
        return prior
    typical = prior.b0 / prior.a0
    precision = np.asarray(typical * np.linalg.inv(prior.V0), dtype=np.float64)
    return NIGPrior(prior.mu0, precision, prior.a0, prior.b0)


def draw(
    posterior: NIG, rng: np.random.Generator, size: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Independent draws of theta (…, d) and sigma2 (…)."""
    sigma2 = posterior.b / rng.standard_gamma(posterior.a, size)
    root = np.linalg.cholesky(posterior.Lam)
    normal = rng.standard_normal((*size, len(posterior.mu)))
    # Lam = root root', so root'⁻¹ normal has covariance Lam⁻¹.
    scaled = np.linalg.solve(root.T, normal.reshape(-1, len(posterior.mu)).T).T
    theta = posterior.mu + np.sqrt(sigma2)[..., None] * scaled.reshape(normal.shape)
    return theta, sigma2
