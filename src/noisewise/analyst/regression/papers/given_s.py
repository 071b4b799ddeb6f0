"""The regression given the covariates' second moments, for `normal_x` and `fixed_s`; compiled.

S_j is the Gram matrix of holder j's design (the intercept is its first column). With y'y released
too (Alparslan, Yıldırım & Birbil 2023 do without it, and then sigma2 is hardly identified by one
holder), the released pair has, given S_j, theta and sigma2,

    mean        (S theta, theta'S theta + n sigma2)
    covariance  [[sigma2 S + D, 2 sigma2 S theta], [., 4 sigma2 theta'S theta + 2 n sigma2² + v]]

where D (diagonal) and v are the variances of the noise. ẑ = X'y + noise is normal exactly, their
proposition 3.1. û = y'y + noise is not: its chi-squared part is taken for normal with the same two
moments. **That is the one approximation**, and gone where y'y was not released. Where noise is
small enough for it to matter at all, it widens the posterior of sigma2 by 15% at n = 30, 10% at 60
and 3% at 200, that of theta by 8%, 3% and 1% (measured beside `exact`).

With Ŝ = S + E in place of S (`aware`, not in the paper) the residuals have the additional
covariance [[K, K theta], [., theta'K theta]], K = Cov(E theta): K_ab = s_ab² theta_a theta_b off
and Σ_c s_ac² theta_c² on the diagonal.

**theta** is proposed from its normal law given ẑ alone, their equation (12). With B the inverse
root of the noise's covariance (of D, or of D + K at a fixed theta), M = LL' = sigma2 B S B' + I, H
= L⁻¹ B S and r = L⁻¹ B ẑ, that law has precision H'H + prior and shift H'r + prior. It is accepted
with the ratio of the whole density to that law's. Where û says much that ẑ doesn't, such draws are
hardly ever accepted. They are then made smaller: theta' = m + √(1 - β²) (theta - m) + β (draw - m),
which keeps (12) for any β in (0, 1] (preconditioned Crank-Nicolson). β = 1 is the paper's draw.
**ln sigma2** moves by a random walk. Steps adapt during warm-up only.

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778, sections 3.1 and 4. Cotter, Roberts, Stuart & White (2013), MCMC
methods for functions, Statistical Science 28(3), doi:10.1214/13-STS421.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import BoolArray, FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.observation import Observation, named
from noisewise.analyst.regression.papers.conjugate import Regression
from noisewise.analyst.regression.papers.sampling import (
    factor,
    inverse_lower,
    solve_lower,
    solve_upper,
)
from noisewise.core.errors import RequestError

TARGET = 0.25  # acceptance rate that steps adapt to
FEWEST_ROWS = 30  # for y'y to be normal


# --- the observations, and what chains keep -------------------------------------------------------


class Holders(NamedTuple):
    """The observations, in the form the compiled functions take."""

    n: FloatArray  # (J,)
    S: FloatArray  # (J, d, d), released
    S_precision: FloatArray  # (J, d, d), of its noise; 0 if not released or known ([0, 0] is n)
    w: FloatArray  # (J, d), 1 / noise sd of ẑ; 0 if not released
    z: FloatArray  # (J, d), w ẑ
    u: FloatArray  # (J,), û
    u_variance: FloatArray  # (J,), of its noise
    has_u: BoolArray  # (J,), whether y'y was released
    aware: bool  # whether the noise of Ŝ is in the covariance of the residuals
    K: FloatArray  # (J, d, d), that noise at a fixed theta, for the proposals; 0 unless aware


class Info(NamedTuple):
    """Share of moves accepted, arrays of shape (chains, draws).

    Names differ from those of parameters: both are stored in one file.
    """

    accepted_theta: FloatArray
    accepted_sigma2: FloatArray
    accepted_scatter: FloatArray  # of the holders' scatter matrices; 1 where there is no such move
    accepted_mean: FloatArray  # of the holders' means of the covariates; likewise


class Draws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: None  # E[theta | statistics] has no closed form once y'y is used
    info: Info
    mu: FloatArray  # (chains, kept, k), of evenly spaced draws; none if not asked for
    T: FloatArray  # (chains, kept, k, k); likewise


class Trace(NamedTuple):
    """What each of many iterations gave."""

    theta: FloatArray
    sigma2: FloatArray
    accepted: FloatArray  # (count, 4), in the order of Info
    mu: FloatArray
    L: FloatArray  # (count, k, k), factors of T


def make_draws(trace: Trace) -> Draws:
    """Draws from the traces of all chains."""
    info = Info(*np.moveaxis(trace.accepted, -1, 0))
    T = trace.L @ np.swapaxes(trace.L, -1, -2)
    return Draws(trace.theta, trace.sigma2, None, info, trace.mu, T)


def prepare_holders(observations: Sequence[Observation], method: str) -> Holders:
    """Check that the model fits the observations, and put them into arrays."""
    if not observations:
        raise RequestError("give the observation of at least one holder")
    k = observations[0].k
    for name, seen in named(observations):
        where = f"method: {method}: {name}"
        if seen.k != k:
            raise RequestError(
                f"{where} covers {seen.k} covariates, the first {k}: all must cover the same"
            )
        if seen.family != "gaussian":
            raise RequestError(
                f"{where} added Laplace noise, and the method needs Gaussian noise; use exact"
            )
        if seen.n_is_private:
            raise RequestError(
                f"{where} has a private number of rows, and the method needs it public; use exact"
            )
        with_u = bool(np.isfinite(seen.scale[-1, -1]))
        fewest = max(FEWEST_ROWS, 4 * (k + 2)) if with_u else k + 2
        if seen.n < fewest:
            raise RequestError(
                f"{where} has n = {seen.n} rows, too few for {k} covariates: the method needs at "
                f"least {fewest}" + (", because it takes y'y for normal" if with_u else "")
                + "; use exact, or leave it out"
            )  # fmt: skip
        if (seen.scale[:-1, -1] == 0).any():
            raise RequestError(
                f"{where} publishes sums of y without noise, and the method needs noise on them; "
                "use exact"
            )
    J, d = len(observations), k + 1
    values = np.stack([seen.values for seen in observations])
    scale = np.stack([seen.scale for seen in observations])
    precision = np.where(scale > 0, 1.0 / np.where(scale > 0, scale, 1.0) ** 2, 0.0)
    w = np.ascontiguousarray(np.sqrt(precision[:, :d, d]))
    has_u = np.isfinite(scale[:, d, d])
    return Holders(
        n=np.array([float(seen.n) for seen in observations]),
        S=np.ascontiguousarray(values[:, :d, :d]),
        S_precision=np.ascontiguousarray(precision[:, :d, :d]),
        w=w,
        z=w * values[:, :d, d].reshape(J, d),
        u=np.array(values[:, d, d]),
        u_variance=np.where(has_u, scale[:, d, d], 0.0) ** 2,
        has_u=has_u,
        aware=False,
        K=np.zeros((J, d, d)),
    )


# --- densities ------------------------------------------------------------------------------------


@compiled
def noise_of_image(precision: FloatArray, theta: FloatArray) -> FloatArray:
    """K = Cov(E theta) for noise E on Ŝ of the given precisions (0: none)."""
    d = theta.size
    K = np.zeros((d, d))
    for a in range(d):
        for b in range(d):
            if precision[a, b] > 0.0:
                K[a, a] += theta[b] ** 2 / precision[a, b]
                if a != b:
                    K[a, b] += theta[a] * theta[b] / precision[a, b]
    return K


@compiled
def log_density(holders: Holders, j: int, S: FloatArray, theta: FloatArray, sigma2: float) -> float:
    """ln p(ẑ_j, û_j | S, theta, sigma2) but for a constant; -inf if it has no covariance.

    ẑ is in units of its noise's sd. What was not released has variance 1 and residual 0.
    """
    d, w, n = theta.size, holders.w[j], holders.n[j]
    image = S @ theta
    quadratic = theta @ image
    C = np.eye(d + 1)
    K = noise_of_image(holders.S_precision[j], theta) if holders.aware else np.zeros((d, d))
    K_theta = K @ theta
    e = np.zeros(d + 1)
    for a in range(d):
        for b in range(d):
            C[a, b] += w[a] * w[b] * (sigma2 * S[a, b] + K[a, b])
        e[a] = holders.z[j, a] - w[a] * image[a]
    if holders.has_u[j]:
        C[d, :d] = w * (2.0 * sigma2 * image + K_theta)
        C[d, d] = holders.u_variance[j] + sigma2 * (4.0 * quadratic + 2.0 * n * sigma2)
        C[d, d] += theta @ K_theta
        e[d] = holders.u[j] - quadratic - n * sigma2
    L, proper = factor(C)
    if not proper:
        return -np.inf
    e = solve_lower(L, e)
    value = -0.5 * float(e @ e)
    for a in range(d + 1):
        value -= math.log(L[a, a])
    return value


@compiled
def log_prior(prior: Regression, theta: FloatArray, sigma2: float) -> float:
    """ln p(theta, ln sigma2) but for what doesn't depend on sigma2."""
    value = -prior.a0 * math.log(sigma2) - prior.b0 / sigma2
    if not prior.independent:
        away = theta - prior.mu0
        value -= 0.5 * theta.size * math.log(sigma2)
        value -= 0.5 * float(away @ (prior.precision @ away)) / sigma2
    return value


# --- moves ----------------------------------------------------------------------------------------


@compiled
def equation_12(
    holders: Holders, j: int, S: FloatArray, sigma2: float
) -> tuple[FloatArray, FloatArray, bool]:
    """H and r of a holder, and whether it has them."""
    d, w = S.shape[0], holders.w[j]
    B, proper = np.diag(w), True
    z = holders.z[j].copy()
    if holders.aware:
        root, proper = factor(np.eye(d) + holders.K[j] * np.outer(w, w))
        inverse = inverse_lower(root)
        B, z = inverse * w, inverse @ z
    BS = B @ S
    L, possible = factor(sigma2 * (BS @ np.ascontiguousarray(B.T)) + np.eye(d))
    W = inverse_lower(L)
    return W @ BS, W @ z, proper and possible


@compiled
def move_theta(
    rng: np.random.Generator,
    holders: Holders,
    prior: Regression,
    S: FloatArray,
    theta: FloatArray,
    sigma2: float,
    beta: float,
) -> tuple[FloatArray, int]:
    """theta, and 1 if it was proposed here. S is of shape (J, d, d)."""
    d, J = theta.size, S.shape[0]
    weight = 1.0 if prior.independent else 1.0 / sigma2
    Q, m = weight * prior.precision, weight * prior.bordered[:d, d]
    H, r, usable = np.zeros((J, d, d)), np.zeros((J, d)), True
    for j in range(J):
        H[j], r[j], proper = equation_12(holders, j, S[j], sigma2)
        usable &= proper
        transposed = np.ascontiguousarray(H[j].T)
        Q += transposed @ H[j]
        m += transposed @ r[j]
    L, proper = factor(Q)
    if not (usable and proper):
        return theta, 0
    # With precision Q = LL' and shift m the law is that of L⁻ᵀ(L⁻¹m + a normal vector).
    keep = math.sqrt(max(1.0 - beta * beta, 0.0))
    new = solve_upper(L, (1.0 - keep) * solve_lower(L, m) + beta * rng.standard_normal(d))
    new += keep * theta
    ratio = 0.0
    for j in range(J):
        for at, sign in ((new, 1.0), (theta, -1.0)):
            e = r[j] - H[j] @ at
            ratio += sign * (log_density(holders, j, S[j], at, sigma2) + 0.5 * (e @ e))
    if math.log(1.0 - rng.random()) < ratio:
        return new, 1
    return theta, 0


@compiled
def move_sigma2(
    rng: np.random.Generator,
    holders: Holders,
    prior: Regression,
    S: FloatArray,
    theta: FloatArray,
    sigma2: float,
    width: float,
) -> tuple[float, int]:
    """sigma2 by a random walk in its logarithm, kept away from overflow; 1 if it moved."""
    step = width * rng.standard_normal()
    new = math.exp(min(max(math.log(sigma2) + step, -600.0), 600.0))
    ratio = log_prior(prior, theta, new) - log_prior(prior, theta, sigma2)
    for j in range(S.shape[0]):
        ratio += log_density(holders, j, S[j], theta, new)
        ratio -= log_density(holders, j, S[j], theta, sigma2)
    if math.log(1.0 - rng.random()) < ratio:
        return new, 1
    return sigma2, 0


@compiled
def adapted(log_step: float, accepted: float, t: int) -> float:
    """The logarithm of a step after iteration t of warm-up (Robbins-Monro)."""
    value: float = log_step + 2.0 * (accepted - TARGET) / (t + 1.0) ** 0.6
    return value


@compiled
def adapt_steps(log_steps: FloatArray, theta: float, sigma2: float, t: int) -> FloatArray:
    """ln β of theta, which is at most 0, and the step of ln sigma2, after iteration t."""
    return np.array([min(adapted(log_steps[0], theta, t), 0.0), adapted(log_steps[1], sigma2, t)])
