"""Whether Releases agree with the model that was fitted to all of them.

For parameters (theta, sigma2, mu, T), rows w = (1, x, y) are normal with E[ww'] = G and mean m, so
the sum A_ab of n rows has mean n G_ab and variance n (G_aa G_bb + G_ab² - 2 m_a² m_b²). A released
value that is many standard deviations away, noise included, contradicts those parameters. One that
contradicts them at most posterior draws contradicts the model: a holder summed something else, used
other units, or serves other people than the rest.

One holder can hardly contradict itself. Second moments have as many entries as the model has
parameters, so the fit adapts to them; what this finds is one holder against the others. Each draw
is judged by itself: a posterior that is torn between two holders is wide, and that width must not
excuse either of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation


def second_moments(
    theta: FloatArray, sigma2: FloatArray, mu: FloatArray, T: FloatArray
) -> FloatArray:
    """G = E[ww'] for each of m draws of the parameters, shape (m, P, P)."""
    m, k = mu.shape
    G = np.empty((m, k + 2, k + 2))
    G[:, 0, 0] = 1.0
    G[:, 1:-1, 0] = G[:, 0, 1:-1] = mu
    G[:, 1:-1, 1:-1] = T + mu[:, :, None] * mu[:, None, :]
    G[:, -1, :-1] = np.einsum("mab,mb->ma", G[:, :-1, :-1], theta)
    G[:, :-1, -1] = G[:, -1, :-1]
    G[:, -1, -1] = np.einsum("ma,ma->m", G[:, -1, :-1], theta) + sigma2
    return G


def discrepancy(
    observation: Observation,
    theta: FloatArray,
    sigma2: FloatArray,
    mu: FloatArray,
    T: FloatArray,
) -> FloatArray:
    """How far each released value is from what parameters expect, in sds; the median over draws.

    0 where nothing was released. A private n is rough: sums are proportional to it, so its error
    adds to theirs.
    """
    _, mean, variance, noisy = released_law(observation, theta, sigma2, mu, T)
    away = np.abs(observation.values - mean) / np.sqrt(variance)
    return np.where(noisy, np.median(away, axis=0), 0.0)


def released_law(
    observation: Observation,
    theta: FloatArray,
    sigma2: FloatArray,
    mu: FloatArray,
    T: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
    """What a holder of n rows would release under each of m draws of the parameters.

    Returns
    -------
    G, mean, variance : arrays, shape (m, P, P)
        Moments of one row; mean and variance of the released sums, sampling and noise included.
    noisy : array of bool, shape (P, P)
        Where a value was released with noise; elsewhere the variance means nothing.
    """
    n = max(observation.n, observation.k + 2)
    G = second_moments(theta, sigma2, mu, T)
    diagonal, squares = np.einsum("maa->ma", G), G[:, 0] ** 2
    variance = diagonal[:, :, None] * diagonal[:, None, :] + G**2
    variance = n * np.maximum(variance - 2.0 * squares[:, :, None] * squares[:, None, :], 0.0)
    noisy = (observation.scale > 0) & np.isfinite(observation.scale)
    variance += np.where(noisy, observation.sd, 1.0) ** 2 + (G * observation.sd[0, 0]) ** 2
    return G, n * G, variance, noisy
