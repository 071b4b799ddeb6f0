"""How wide a posterior from a Release in rounds will be: a formula, at each possible truth.

The last round sums u = (c, w · indicators, z), z = L⁻¹(x - m), where the numbers x, the target
among them, have covariance LL'. Its noise is the same whichever way z is turned, so let L be lower
triangular with the target last. Then v' = Mv, v = (1, covariates), has the constant, the
indicators and whitened numbers; y' is what numbers leave open of y, in units of its sd τ. Noise on
Σ v'_j y' has sd s / m_j, with s that of u's off-diagonal entries and m_j = c, w or 1, and that on
Σ v'_j v'_k gets in through the slopes θ'_k of indicators on y', because those of numbers are 0.
To first order

    Cov(theta) = (nS)⁻¹ (sigma2 nS + τ² M⁻¹ D M⁻¹') (nS)⁻¹,    S = E[vv'],
    D_jj = s² / m_j² (1 + Σ_k (1 + 1[j = k]) θ'_k² / m_k²),

and the prior's precision is added to its inverse.

The radius and its noise depend on the data's tails and on how many exploring rounds it takes to
find them. Planned is what normal rows would get after as many rounds as most data need. A long
tail has a larger radius and more noise (`core.rounds.plan` says how much is allowed).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.agreement import second_moments
from noisewise.analyst.regression.priors import RegressionPrior
from noisewise.core.rounds.plan import Setting, last_noise
from noisewise.core.rounds.tail import EDGES
from noisewise.planning.truths import Truths
from noisewise.planning.width import Width, non_private_width, regression_precision

_EXPLORING_ROUNDS = 3  # what most data need


def rounds_width(
    truths: Truths, n: int, prior: RegressionPrior, indicators: NDArray[np.bool_], setting: Setting
) -> Width:
    """Approximate covariance of theta given a Release in rounds of n rows, at each truth.

    Parameters
    ----------
    truths : Truths
    n : int
    prior : prior on unit scale
    indicators : array of bool, shape (k,)
        Which covariates are indicators of categories.
    setting : Setting
        Of the request.
    """
    theta, sigma2 = truths.theta, truths.sigma2
    m, d = theta.shape
    S = n * second_moments(*truths)[:, :d, :d]
    numbers = np.flatnonzero(~indicators) + 1
    levels = np.flatnonzero(indicators) + 1
    noise = last_noise(setting, n, normal_tail(setting.numbers, n).tolist(), _EXPLORING_ROUNDS)
    size = np.ones(d)
    size[0], size[levels] = noise.constant, noise.weight
    # y' is y given the numbers, in units of its own sd.
    beta, T = theta[:, 1:], truths.T
    a, b = numbers - 1, levels - 1
    left_open = _block(T, b, b)
    if len(a):
        across = _block(T, a, b)
        left_open = left_open - np.swapaxes(across, 1, 2) @ np.linalg.solve(_block(T, a, a), across)
    tau2 = sigma2 + np.einsum("mi,mij,mj->m", beta[:, b], left_open, beta[:, b])
    through = np.zeros((m, d))
    through[:, levels] = beta[:, b] ** 2 / tau2[:, None] / noise.weight**2 if len(b) else 0.0
    D = (noise.sd / size) ** 2 * (1 + through.sum(axis=1, keepdims=True) + through)
    M = np.broadcast_to(np.eye(d), (m, d, d)).copy()
    if len(a):
        inverse = np.linalg.inv(np.linalg.cholesky(_block(T, a, a)))
        M[:, numbers[:, None], numbers] = inverse
        M[:, numbers, 0] = -np.einsum("mij,mj->mi", inverse, truths.mu[:, a])
    half = np.linalg.inv(M @ S)
    covariance = sigma2[:, None, None] * np.linalg.inv(S)
    covariance = covariance + tau2[:, None, None] * (half * D[:, None]) @ np.swapaxes(half, 1, 2)
    information = np.linalg.inv(covariance) + regression_precision(truths, prior)
    return Width(np.asarray(np.linalg.inv(information)), non_private_width(truths, n, prior))


def _block(T: FloatArray, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> FloatArray:
    return np.asarray(T[:, rows[:, None], columns], dtype=np.float64)


def normal_tail(numbers: int, n: int) -> FloatArray:
    """How many rows are expected in each bin of the histogram where the numbers are normal."""
    beyond = n * chi2.sf(numbers * np.array(EDGES), numbers)
    return np.asarray(beyond - np.append(beyond[1:], 0.0))
