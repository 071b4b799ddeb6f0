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
leaves open enters the other sums through S theta only (below),

    Σ vy = S theta + Σ ve,    Σ y² = theta'S theta + 2 theta'Σ ve + Σ e²,

and the rest has d + 1 rows and columns. Numbers are the same; a test compares them.

How near this comes to real posteriors is measured by ``python -m studies run plan-check``.

**S theta** is the part of a plan that is large. S has d(d + 1)/2 entries and each of them has noise
of its own, so the covariance of all that is unknown about S has d⁴/4 numbers. A plan needs d² of
them, those of S theta, and the structure of S gives them in O(d⁴) operations. To first order around
a truth (mu, T),

    δS_00 = δn,    δS_0x = mu δn + a,    δS_xx = (T + mu mu') δn + mu a' + a mu' + c,

where a ~ N(0, κ₁ T) and c are independent, <X, c> has variance κ₂ tr(XTXT) for symmetric X, and
κ₁ = n + n²/lam and κ₂ = 2n + 2n²/nu add up what n rows scatter and what the prior doesn't know.
δn is 0 if n is public; otherwise its prior is flat.

Noise acts entry by entry: X ↦ N∘X on symmetric matrices, where off-diagonal entries of N have
twice their variance, because X has each of them twice. Nearly all entries of N are equal to some b;
the others, r of them, are the diagonal or the public zeros of a category. In the eigenvectors of T,
X ↦ κ₂ TXT + bX is diagonal, and the other entries are a correction of rank r (Woodbury). All that
is needed of H⁻¹, H = κ₂ T⊗T + N, are products <Y, H⁻¹Z> between some 2d matrices.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.agreement import second_moments
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, RegressionPrior, ScaleFreePrior
from noisewise.planning.truths import LARGEST_VARIANCE, Truths

_NUMBERS_AT_ONCE = 4_000_000  # in an array
_Z = float(ndtri(0.975))
_NEARLY_FLAT = 1e-6  # precision of an intercept that has no prior


class Width(NamedTuple):
    """Posterior covariance of theta at m truths, shape (m, d, d), with and without noise.

    `unseen`, shape (m, k), is what `unseen_spreads` says.
    """

    private: FloatArray
    non_private: FloatArray
    unseen: FloatArray


def posterior_width(
    truths: Truths,
    n: int,
    prior: RegressionPrior,
    covariates: NIWPrior,
    noise_sd: FloatArray,
    precision: FloatArray | None = None,
) -> Width:
    """Approximate covariance of theta given a release of n rows, at each truth.

    `noise_sd`, (P, P), is that of each entry; ``noise_sd[0, 0]`` is 0 if n is public. `precision`,
    (m, d, d), is of theta in the prior, where that differs from truth to truth; by default that of
    `prior`.
    """
    if precision is None:
        precision = regression_precision(truths, prior)
    noise = entry_noise(noise_sd[1:-1, 1:-1] ** 2)
    chunk = max(1, _NUMBERS_AT_ONCE // largest_array(noise))
    parts = []
    for start in range(0, len(truths.sigma2), chunk):
        which = slice(start, start + chunk)
        known = precision[which], prior.a0
        parts.append(_private(truths.part(which), n, known, covariates, noise_sd, noise))
    unseen = unseen_spreads(truths.T, noise_sd, n)
    return Width(np.concatenate(parts), non_private_width(truths, n, prior), unseen)


def _private(
    truths: Truths,
    n: int,
    known: tuple[FloatArray, float],
    covariates: NIWPrior,
    noise_sd: FloatArray,
    noise: EntryNoise,
) -> FloatArray:
    """`known` is the prior's precision of theta and of log sigma2."""
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
    information[:, :d, :d] += known[0]
    information[:, d, d] += known[1]
    return np.asarray(np.linalg.inv(information)[:, :d, :d])


def non_private_width(truths: Truths, n: int, prior: RegressionPrior) -> FloatArray:
    """Covariance of theta given the exact sums, at each truth, shape (m, d, d)."""
    S = second_moments(*truths)[:, :-1, :-1]
    information = n * S / truths.sigma2[:, None, None] + regression_precision(truths, prior)
    return np.asarray(np.linalg.inv(information))


def regression_precision(truths: Truths, prior: RegressionPrior) -> FloatArray:
    """Of the prior of theta at each truth, shape (m, d, d)."""
    if isinstance(prior, NIGPrior):
        return np.asarray(prior.Lam0 / truths.sigma2[:, None, None])
    return np.broadcast_to(np.linalg.inv(prior.V0), (len(truths.sigma2), *prior.V0.shape))


def scale_free_precision(truths: Truths) -> FloatArray:
    """Of theta in the prior that `fit` has by default, at each truth, shape (m, d, d).

    Slopes have covariance (omega² / k) T⁻¹ there, and the intercept is flat. omega is taken at its
    scale, and T as it is; `unseen_spreads` says what it changes that noise may hide T.
    """
    k = truths.T.shape[1]
    guide = ScaleFreePrior(k).scale
    precision = np.zeros((len(truths.T), k + 1, k + 1))
    precision[:, 1:, 1:] = k * truths.T / guide**2
    precision[:, 0, 0] = _NEARLY_FLAT
    return precision


# --- spreads that noise hides ---------------------------------------------------------------------


def unseen_spreads(
    T: FloatArray, noise_sd: FloatArray, n: int, turn: FloatArray | None = None
) -> FloatArray:
    """By how much slopes are wider because noise hides how much a column varies, shape (m, k).

    Let v be the variance of a column beyond what the others say, and s the standard deviation of
    the noise in it. The default prior of `fit` is flat in r = √v towards 0, so what is seen leaves
    r a density of exp(-(r² - v)² / 2s²), and slopes have a standard deviation in proportion to 1/r.
    The factor is that of the 95% interval of such a slope, over that with r = √v. It is near 1 for
    s < v/4 and as large as 4 where s is near v. More noise than a
    variance can be large counts as that.

    `noise_sd` is of each entry of the sums of (1, x, y); with `turn`, (m, k, k), they are those of
    (turn x) in place of x.
    """
    inverse = np.linalg.inv(T)
    own = np.einsum("mii->mi", inverse)
    rest = inverse / own[:, None, :]  # column j: x_j less what the others say of it
    if turn is not None:
        rest = np.linalg.solve(np.swapaxes(turn, 1, 2), rest)
    variance = noise_sd[1:-1, 1:-1] ** 2 * (2.0 - np.eye(T.shape[1]))
    squares = rest**2
    s = np.sqrt(np.einsum("maj,maj->mj", squares, variance @ squares)) / n
    return np.asarray(np.interp(np.log(np.minimum(s, LARGEST_VARIANCE) * own), *_unseen_factors()))


@cache
def _unseen_factors() -> tuple[FloatArray, FloatArray]:
    """ln(s/v), and the factor there."""
    ratios = np.geomspace(0.02, 1000.0, 80)
    factors = []
    for ratio in ratios:
        r = np.linspace(0.0, math.sqrt(1.0 + 6.0 * ratio), 4001)[1:]
        density = np.exp(-(((r * r - 1.0) / ratio) ** 2) / 2.0)
        density /= density.sum()

        def beyond(factor: float, r: FloatArray = r, density: FloatArray = density) -> float:
            return float(2.0 * ndtr(-_Z * factor * r) @ density) - 0.05

        factors.append(brentq(beyond, 1e-3, 1e3))
    return np.log(ratios), np.array(factors)


# --- the large part: S theta ----------------------------------------------------------------------


# Public entries have no noise, which the correction can't divide by. This share of the others'
# variance is nothing beside what the rows or the prior leave open, unless noise drowns everything.
_LEAST_NOISE = 1e-6


class EntryNoise(NamedTuple):
    """N as b everywhere but at r entries (i, j), i <= j, where it is b + more."""

    N: FloatArray  # (k, k)
    b: float
    i: NDArray[np.intp]  # (r,)
    j: NDArray[np.intp]  # (r,)
    more: FloatArray  # (r,)


def entry_noise(variance: FloatArray) -> EntryNoise:
    """Take variances of noise, shape (k, k), apart into what is common and what isn't."""
    N = np.where(np.eye(len(variance), dtype=bool), 1.0, 2.0) * variance
    N = np.maximum(N, _LEAST_NOISE * N.max())
    i, j = np.triu_indices(len(N))
    # Variances that differ by rounding only are equal.
    values, counts = np.unique(np.round(N[i, j] / N.max(), 12), return_counts=True)
    b = float(values[counts.argmax()] * N.max())
    other = np.abs(N[i, j] / b - 1) > 1e-9
    i, j = i[other], j[other]
    return EntryNoise(N, b, i, j, N[i, j] - b)


def largest_array(noise: EntryNoise) -> int:
    """Numbers in the largest array that one truth needs."""
    k = len(noise.N)
    return (2 * k + 1 + len(noise.i)) * k * k


def unknown_products(
    truths: Truths, n: int, covariates: NIWPrior, noise_sd: FloatArray, noise: EntryNoise
) -> FloatArray:
    """Covariance of (δS theta, δn) given the noisy S, shape (m, d + 1, d + 1).

    `noise` is that of the sums of x x'.
    """
    theta, _, mu, T = truths
    m, k = mu.shape
    d = k + 1
    n_is_private = noise_sd[0, 0] > 0
    beta = theta[:, 1:]
    eye = np.eye(k)
    # <X_j, δS_xx> = (δS_xx beta)_j. It is seen through noise: what remains open of c alone is
    # <X, N∘X> - <N∘X, H⁻¹ N∘X>. Written like this, rounding errors are small beside the noise.
    X = 0.5 * (
        eye[None, :, :, None] * beta[:, None, None, :]
        + beta[:, None, :, None] * eye[None, :, None, :]
    )
    NX = noise.N * X
    # How δS_xx answers to b = (a, δn).
    answers = eye[None, :, :, None] * mu[:, None, None, :]
    answers = answers + np.swapaxes(answers, 2, 3)
    if n_is_private:
        second = T + mu[:, :, None] * mu[:, None, :]
        answers = np.concatenate([answers, second[:, None]], axis=1)
    size = answers.shape[1]
    kappa = 2 * n + 2 * n**2 / covariates.nu
    products = _products(np.concatenate([answers, NX], axis=1), T, kappa, noise)

    information = products[:, :size, :size].copy()
    seen = 1 / np.maximum(noise_sd[0, 1:d] ** 2, _LEAST_NOISE * noise.b)
    information[:, :k, :k] += np.linalg.inv(T) / (n + n**2 / covariates.lam) + np.diag(seen)
    if n_is_private:
        information[:, :k, k] += seen * mu
        information[:, k, :k] += seen * mu
        information[:, k, k] += mu**2 @ seen + noise_sd[0, 0] ** -2
    # How (δS theta, δn) answers to b once δS_xx has been seen.
    slope = np.zeros((m, d + 1, size))
    slope[:, 0, :k] = beta
    slope[:, 1:d, :k] = theta[:, 0, None, None] * eye
    if n_is_private:
        slope[:, 0, k] = theta[:, 0] + np.einsum("mi,mi->m", mu, beta)
        slope[:, 1:d, k] = theta[:, :1] * mu
        slope[:, d, k] = 1.0
    slope[:, 1:d] += products[:, size:, :size]

    out = slope @ np.linalg.solve(information, np.swapaxes(slope, 1, 2))
    flat = (m, k, k * k)
    out[:, 1:d, 1:d] += X.reshape(flat) @ np.swapaxes(NX.reshape(flat), 1, 2)
    out[:, 1:d, 1:d] -= products[:, size:, size:]
    return np.asarray(out)


def _products(Y: FloatArray, T: FloatArray, kappa: float, noise: EntryNoise) -> FloatArray:
    """<Y_p, H⁻¹ Y_q> for symmetric Y, shape (m, p, k, k), with H = kappa T⊗T + N."""
    m, p, k, _ = Y.shape
    values, vectors = np.linalg.eigh(T)
    root = 1 / np.sqrt(kappa * values[:, :, None] * values[:, None, :] + noise.b)
    Q = vectors[:, None]
    rotated = np.swapaxes(Q, 2, 3) @ Y @ Q
    r = len(noise.i)
    if r:
        # Orthonormal matrices with one entry, or two symmetric ones.
        left, right = vectors[:, noise.i], vectors[:, noise.j]
        single = left[:, :, :, None] * right[:, :, None, :]
        share = np.where(noise.i == noise.j, 0.5, 0.5**0.5)[:, None, None]
        rotated = np.concatenate([rotated, share * (single + np.swapaxes(single, 2, 3))], axis=1)
    flat = (rotated * root[:, None]).reshape(m, p + r, k * k)
    gram = flat @ np.swapaxes(flat, 1, 2)
    if not r:
        return np.asarray(gram)
    inner = gram[:, p:, p:] + np.diag(1 / noise.more)
    return np.asarray(gram[:, :p, :p] - gram[:, :p, p:] @ np.linalg.solve(inner, gram[:, p:, :p]))
