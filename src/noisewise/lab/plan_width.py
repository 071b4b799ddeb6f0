"""How wide a noise-aware posterior will be, before there are any data: a formula.

Rows w = (1, x, y) are taken for normal with E[ww'] = G(φ), φ = (theta, log sigma2, mu, T). The
released upper triangle of A = Σ ww' then has mean nG(φ) and covariance V = nC(φ) + noise, where C
holds the covariances of products of normal variables. Where V is the law of what is seen,
information adds up to

    (precision of the prior) + J'V⁻¹J,    J = n ∂G/∂φ,

and its inverse approximates the posterior's covariance at a truth φ. As many sums are released as
the model has parameters, so nothing is left out by looking at the mean alone. The same with V = nC
would not be the exact posterior without noise, but its block for theta is known: Σ vv'/sigma2 plus
the prior's precision.

Three details. Laplace noise enters by its variance: there is one draw of it in each sum, so its
Fisher information, twice as large, is never reached. The prior of T has the information of nu
rows, nu/2 tr(T⁻¹ dT T⁻¹ dT). Where n is private it is one more parameter with a flat prior, and
its noisy value one more observation.

φ has some d²/2 entries, and V has d⁴/4. Neither is ever written down: what the noisy S = Σ vv'
leaves open enters the other sums through S theta only (`plan_gram`),

    Σ vy = S theta + Σ ve,    Σ y² = theta'S theta + 2 theta'Σ ve + Σ e²,

and the rest has d + 1 rows and columns. Numbers are the same; a test compares them.

How near this comes to real posteriors is measured by ``noisewise lab run plan-check``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.agreement import second_moments
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, RegressionPrior
from noisewise.lab.plan_gram import EntryNoise, entry_noise, largest_array, unknown_products
from noisewise.lab.plan_truths import Truths

_NUMBERS_AT_ONCE = 4_000_000  # in an array


class Width(NamedTuple):
    """Posterior covariance of theta at m truths, shape (m, d, d), with and without noise."""

    private: FloatArray
    non_private: FloatArray


def posterior_width(
    truths: Truths,
    n: int,
    prior: RegressionPrior,
    covariates: NIWPrior,
    noise_sd: FloatArray,
) -> Width:
    """Approximate covariance of theta given a release of n rows, at each truth.

    Parameters
    ----------
    truths : Truths
    n : int
    prior, covariates : priors on unit scale
    noise_sd : array, shape (P, P)
        Standard deviation of the noise of each entry; ``noise_sd[0, 0]`` is 0 if n is public.
    """
    noise = entry_noise(noise_sd[1:-1, 1:-1] ** 2)
    chunk = max(1, _NUMBERS_AT_ONCE // largest_array(noise))
    parts = [
        _private(truths.part(slice(start, start + chunk)), n, prior, covariates, noise_sd, noise)
        for start in range(0, len(truths.sigma2), chunk)
    ]
    return Width(np.concatenate(parts), non_private_width(truths, n, prior))


def _private(
    truths: Truths,
    n: int,
    prior: RegressionPrior,
    covariates: NIWPrior,
    noise_sd: FloatArray,
    noise: EntryNoise,
) -> FloatArray:
    theta, sigma2 = truths.theta, truths.sigma2
    m, d = theta.shape
    S = n * second_moments(*truths)[:, :d, :d]
    S_theta = np.einsum("mij,mj->mi", S, theta)
    # Of Σ vy, S theta is open; of Σ y², theta'S theta and the number of errors, if n is private.
    through = np.zeros((m, d + 1, d + 1))
    through[:, :d, :d] = np.eye(d)
    through[:, d, :d] = theta
    through[:, d, d] = sigma2
    unknown = unknown_products(truths, n, covariates, noise_sd, noise)
    V = through @ unknown @ np.swapaxes(through, 1, 2)
    V[:, :d, :d] += sigma2[:, None, None] * S
    V[:, :d, d] += 2 * sigma2[:, None] * S_theta
    V[:, d, :d] += 2 * sigma2[:, None] * S_theta
    V[:, d, d] += 4 * sigma2 * np.einsum("mi,mi->m", theta, S_theta) + 2 * n * sigma2**2
    V += np.diag(noise_sd[:, d] ** 2)
    J = np.zeros((m, d + 1, d + 1))  # of theta and log sigma2
    J[:, :d, :d] = S
    J[:, d, :d] = 2 * S_theta
    J[:, d, d] = n * sigma2
    information = np.swapaxes(J, 1, 2) @ np.linalg.solve(V, J)
    information[:, :d, :d] += _regression_precision(truths, prior)
    information[:, d, d] += prior.a0
    return np.asarray(np.linalg.inv(information)[:, :d, :d])


def non_private_width(truths: Truths, n: int, prior: RegressionPrior) -> FloatArray:
    """Covariance of theta given the exact sums, at each truth, shape (m, d, d)."""
    S = second_moments(*truths)[:, :-1, :-1]
    information = n * S / truths.sigma2[:, None, None] + _regression_precision(truths, prior)
    return np.asarray(np.linalg.inv(information))


def _regression_precision(truths: Truths, prior: RegressionPrior) -> FloatArray:
    if isinstance(prior, NIGPrior):
        return np.asarray(prior.Lam0 / truths.sigma2[:, None, None])
    return np.broadcast_to(np.linalg.inv(prior.V0), (len(truths.sigma2), *prior.V0.shape))
