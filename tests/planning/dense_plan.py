"""The formula of a plan written down as it is defined, with all its large matrices.

`noisewise.planning.width` has the same numbers without them. This is what it is compared with.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.regression.agreement import second_moments
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, RegressionPrior
from noisewise.planning.truths import Truths

FloatArray = NDArray[np.float64]


def private_width(
    truths: Truths, n: int, prior: RegressionPrior, covariates: NIWPrior, noise_sd: FloatArray
) -> FloatArray:
    """Covariance of theta at each truth, by writing down all of V and J."""
    k = truths.mu.shape[1]
    d = k + 1
    n_is_private = noise_sd[0, 0] > 0
    pairs = list(combinations_with_replacement(range(k + 2), 2))[0 if n_is_private else 1 :]
    a, b = np.array(pairs).T
    G = second_moments(*truths)
    J = n * slopes(truths, G)[:, :, a, b]
    precision = prior_precision(truths, prior, covariates)
    if n_is_private:
        J = np.concatenate([J, G[:, None, a, b]], axis=1)
        precision = np.pad(precision, ((0, 0), (0, 1), (0, 1)))
    V = n * covariance_of_products(G, a, b)
    V[:, np.arange(len(a)), np.arange(len(a))] += noise_sd[a, b] ** 2
    information = precision + J @ np.linalg.solve(V, np.swapaxes(J, 1, 2))
    return np.asarray(np.linalg.inv(information)[:, :d, :d])


def slopes(truths: Truths, G: FloatArray) -> FloatArray:
    """∂G/∂φ, shape (m, parameters, P, P): theta, log sigma2, mu, then T's upper triangle."""
    m, k = truths.mu.shape
    d = k + 1
    corners = list(combinations_with_replacement(range(1, d), 2))
    out = np.zeros((m, d + 1 + k + len(corners), d + 1, d + 1))
    S = G[:, :d, :d]
    for j in range(d):
        out[:, j, :d, d] = out[:, j, d, :d] = S[:, j]
        out[:, j, d, d] = 2 * G[:, j, d]
    out[:, d, d, d] = truths.sigma2
    for j in range(1, d):
        dS = out[:, d + j, :d, :d]
        dS[:, 0, j] = dS[:, j, 0] = 1.0
        dS[:, j, 1:] += truths.mu
        dS[:, 1:, j] += truths.mu
    for number, (i, j) in enumerate(corners, d + 1 + k):
        out[:, number, i, j] = out[:, number, j, i] = 1.0
    # What changes S changes z = S theta and theta'S theta with it.
    dS = out[:, d + 1 :, :d, :d]
    dz = np.einsum("mpij,mj->mpi", dS, truths.theta)
    out[:, d + 1 :, :d, d] = out[:, d + 1 :, d, :d] = dz
    out[:, d + 1 :, d, d] = np.einsum("mpi,mi->mp", dz, truths.theta)
    return out


def covariance_of_products(G: FloatArray, a: NDArray[np.int64], b: NDArray[np.int64]) -> FloatArray:
    """Covariances of w_a w_b and w_c w_d for normal w with E[ww'] = G (Isserlis)."""
    mean = G[:, 0]

    def pick(matrix: FloatArray, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> FloatArray:
        return np.asarray(matrix[:, rows[:, None], columns[None, :]])

    # E[..] = G_ac G_bd + G_ad G_bc + G_ab G_cd - 2 m_a m_b m_c m_d for four normal variables.
    fours = pick(G, a, a) * pick(G, b, b) + pick(G, a, b) * pick(G, b, a)
    means = mean[:, a] * mean[:, b]
    out = fours - 2 * means[:, :, None] * means[:, None, :]
    return np.asarray(out)


def prior_precision(truths: Truths, prior: RegressionPrior, covariates: NIWPrior) -> FloatArray:
    """Of theta, log sigma2, mu and T's upper triangle, shape (m, parameters, parameters)."""
    m, k = truths.mu.shape
    d = k + 1
    i, j = np.array(list(combinations_with_replacement(range(k), 2))).T
    out = np.zeros((m, d + 1 + k + len(i), d + 1 + k + len(i)))
    if isinstance(prior, NIGPrior):
        out[:, :d, :d] = prior.Lam0 / truths.sigma2[:, None, None]
    else:
        out[:, :d, :d] = np.linalg.inv(prior.V0)
    out[:, d, d] = prior.a0
    inverse = np.linalg.inv(truths.T)
    out[:, d + 1 : d + 1 + k, d + 1 : d + 1 + k] = covariates.lam * inverse

    def pick(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> FloatArray:
        return np.asarray(inverse[:, rows[:, None], columns[None, :]])

    # tr(T⁻¹ E T⁻¹ F) for E, F symmetric with ones at (i, j) and (k, l): an off-diagonal one has
    # two ones, a diagonal one has one.
    weight = np.where(i == j, 0.5, 1.0)
    trace = 2 * (pick(i, i) * pick(j, j) + pick(i, j) * pick(j, i))
    out[:, d + 1 + k :, d + 1 + k :] = covariates.nu / 2 * trace * np.outer(weight, weight)
    return out
