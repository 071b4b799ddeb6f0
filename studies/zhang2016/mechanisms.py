"""The laws of the network mechanisms, vectorised for simulation.

These are for repeating experiments on simulated data thousands of times. They draw from NumPy, so
nothing that they make may be published; `holder.networks` has the mechanisms that may be, and
`tests/studies/test_zhang2016.py` checks that the two agree in law.

References
----------
Zhang, Rubinstein & Dimitrakakis (2016), On the differential privacy of Bayesian inference, AAAI,
arXiv:1512.06992.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from noisewise._arrays import FloatArray, IntArray


def discrete_laplace(
    rng: np.random.Generator, scale: float, size: int | tuple[int, ...] | tuple[()]
) -> IntArray:
    """Integers with P(z) ∝ exp(-|z|/scale): the difference of two geometric draws."""
    stop = -math.expm1(-1 / scale)
    return np.asarray(rng.geometric(stop, size) - rng.geometric(stop, size), dtype=np.int64)


# ---------------------------------------------------------------------------------------------
# Posterior sampling


class Truncation(NamedTuple):
    """How a posterior is made private: probabilities within [omega, 1 - omega], tempered counts."""

    omega: float
    temper: float


def widest_truncation(epsilon: float, nodes: int, draws: int = 1) -> Truncation:
    """No tempering: ω such that 2 k |I| log((1-ω)/ω) = ε, for binary nodes under replacement."""
    return Truncation(float(special.expit(-epsilon / (2 * draws * nodes))), 1.0)


def tempered(epsilon: float, nodes: int, omega: float, draws: int = 1) -> Truncation:
    """A chosen ω, and the temper τ ≤ 1 that brings the cost down to ε."""
    full = 2 * draws * nodes * math.log((1 - omega) / omega)
    return Truncation(omega, min(1.0, epsilon / full))


def truncated_beta(
    rng: np.random.Generator, a: ArrayLike, b: ArrayLike, omega: float
) -> FloatArray:
    """Beta(a, b) given that it is within [ω, 1 - ω], by inversion.

    The side with the smaller mean is inverted, where the distribution function keeps its relative
    precision; otherwise both ends could round to one.
    """
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    swap = a < b  # now the mean is at least 1/2: what is cut off most lies above
    p, q = np.where(swap, b, a), np.where(swap, a, b)
    low, high = special.betainc(p, q, omega), special.betainc(p, q, 1 - omega)
    x = special.betaincinv(p, q, low + (high - low) * rng.random(p.shape))
    x = np.clip(x, omega, 1 - omega)  # the inversion's last digits, not the mechanism
    return np.asarray(np.where(swap, 1 - x, x), dtype=np.float64)


def posterior_draw(
    rng: np.random.Generator, ones: ArrayLike, zeros: ArrayLike, how: Truncation, alpha: float = 1.0
) -> FloatArray:
    """One draw of P(x = 1) for every pair of counts, from the tempered and truncated posterior."""
    return truncated_beta(
        rng,
        alpha + how.temper * np.asarray(ones, np.float64),
        alpha + how.temper * np.asarray(zeros, np.float64),
        how.omega,
    )


def grid_map(
    rng: np.random.Generator,
    ones: ArrayLike,
    zeros: ArrayLike,
    factor: float,
    omega: float,
    points: int,
) -> FloatArray:
    """The exponential mechanism on a grid of P(x = 1), scored by posterior probability.

    Uniform priors; see `grid_factor` for the factor of the score.
    """
    v = np.linspace(omega, 1 - omega, points)
    ones, zeros = np.asarray(ones, np.float64)[..., None], np.asarray(zeros, np.float64)[..., None]
    u = special.softmax(ones * np.log(v) + zeros * np.log1p(-v), axis=-1)
    gumbel = rng.gumbel(size=u.shape)  # the largest of scores with Gumbel noise is the draw
    return np.asarray(v[np.argmax(factor * u + gumbel, axis=-1)], dtype=np.float64)


def grid_factor(epsilon: float, nodes: int, omega: float) -> float:
    """η = ε/2Δ with Δ = 2|I| tanh(L/4), L = log((1-ω)/ω), for binary nodes under replacement."""
    return epsilon / (4 * nodes * math.tanh(math.log((1 - omega) / omega) / 4))


# ---------------------------------------------------------------------------------------------
# Linear regression by posterior sampling


class Ball(NamedTuple):
    """Public bounds of a regression: ‖x‖ ≤ R, |y| ≤ B, ‖θ‖ ≤ ρ, known error variance."""

    R: float
    B: float
    rho: float
    sigma2: float


def full_epsilon(ball: Ball) -> float:
    """What one draw from the untempered posterior costs.

    The log ratio of two neighbours' posterior densities at θ is Δ(θ) minus a constant that lies
    between the extremes of Δ = ℓ_z - ℓ_z', so it is at most max Δ - min Δ: the spread of ℓ_z over
    the ball plus that of ℓ_z'. With u = x'θ in [-T, T], T = Rρ, that of (y - u)²/2σ² is 4|y|T/2σ²
    if |y| ≥ T and (|y| + T)²/2σ² otherwise. Two of them, at |y| = B, are the bound.
    """
    T = ball.R * ball.rho
    worst = 4 * ball.B * T if ball.B >= T else (ball.B + T) ** 2
    return worst / ball.sigma2


def regression_temper(ball: Ball, epsilon: float | None, draws: int = 1) -> float:
    """τ = min(1, ε/(k ε_full)); None leaves the posterior as it is, at its own cost."""
    return 1.0 if epsilon is None else min(1.0, epsilon / (draws * full_epsilon(ball)))


def regression_draws(
    rng: np.random.Generator,
    gram: FloatArray,
    moment: FloatArray,
    precision: float,
    ball: Ball,
    temper: float,
    size: int,
) -> FloatArray:
    """Exact draws of θ | ‖θ‖ ≤ ρ, shape (size, d).

    The posterior without the ball is N(μ, P⁻¹), P = τ X'X/σ² + bI. Proposals come from
    N((P + sI)⁻¹Pμ, (P + sI)⁻¹) with s ≥ 0 such that its mean is within the ball. The ratio of the
    two densities is proportional to exp(s‖θ‖²/2), at most exp(sρ²/2) within the ball, so accepting
    there with probability exp(s(‖θ‖² - ρ²)/2) leaves the truncated posterior.

    Parameters
    ----------
    rng : Generator
    gram : array, shape (d, d)
        X'X.
    moment : array, shape (d,)
        X'y.
    precision : float
        b, of the prior N(0, I/b).
    ball : Ball
    temper : float
    size : int
    """
    values, vectors = np.linalg.eigh(temper * gram / ball.sigma2)
    P = values + precision
    linear = vectors.T @ (temper * moment / ball.sigma2)  # Pμ in the eigenbasis
    s = _shift(P, linear, ball.rho)
    mean, sd = linear / (P + s), 1 / np.sqrt(P + s)
    kept: list[FloatArray] = []
    missing = size
    while missing:
        theta = mean + sd * rng.standard_normal((max(2 * missing, 64), len(P)))
        norm2 = np.einsum("ij,ij->i", theta, theta)
        inside = norm2 <= ball.rho**2
        log_u = np.log(rng.random(len(theta)))
        theta = theta[inside & (log_u <= s * (norm2 - ball.rho**2) / 2)][:missing]
        kept.append(theta @ vectors.T)
        missing -= len(theta)
    return np.concatenate(kept)


def _shift(P: FloatArray, linear: FloatArray, rho: float) -> float:
    """The s ≥ 0 at which ‖(P + sI)⁻¹Pμ‖ = ρ, or 0 if it is smaller already."""
    from scipy.optimize import brentq

    def excess(s: float) -> float:
        return float(np.linalg.norm(linear / (P + s))) - rho

    if excess(0.0) <= 0:
        return 0.0
    most = float(np.linalg.norm(linear)) / rho  # there the norm is below ρ
    return float(brentq(excess, 0.0, most))
