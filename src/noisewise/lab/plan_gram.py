"""What noisy sums say about S theta, S = Σ vv' of v = (1, x): the part of a plan that is large.

S has d(d + 1)/2 entries and each of them has noise of its own, so the covariance of all that is
unknown about S has d⁴/4 numbers. A plan needs d² of them, those of S theta, and the structure of S
gives them in O(d⁴) operations. To first order around a truth (mu, T),

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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.lab.plan_truths import Truths

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

    Parameters
    ----------
    truths : Truths
    n : int
    covariates : NIWPrior
    noise_sd : array, shape (P, P)
    noise : EntryNoise
        That of the sums of x x'.
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
