"""The distributed methods of Alparslan, Yıldırım & Birbil (2023): `normal_x` and `fixed_s`.

Holder j releases noisy Ŝ_j, ẑ_j and û_j of S_j = X'X (the intercept is X's first column), X'y and
y'y. One iteration, with J holders of their own n and noise, costs O(J d³)::

    mu, T          | x̄_j, C_j of all holders      conjugate                           MCMC-normalX
    C_j            | the rest                      Metropolis, Wishart proposal        MCMC-normalX
    x̄_j            | the rest                      Metropolis, random walk             MCMC-normalX
    theta          | S_j, sigma2                   equation (12), corrected for û
    sigma2         | S_j, theta                    Metropolis, random walk in its logarithm

**MCMC-normalX** (`normal_x`) has x ~ N(mu, T), (mu, T) ~ normal inverse Wishart: the paper's
algorithm 1 for a model with an intercept (its appendix B.2, where the scatter matrix has n - 1
degrees of freedom and mu needs a prior). Where d is large a move of a whole scatter matrix must be
small and mixing is poor, as the paper says. `exact` has the same posterior, without the
approximation below, and mixes much better; this is for comparison.

**MCMC-fixedS** (`fixed_s`, algorithm 2) assumes no law of the covariates and fixes S_j at S̃_j, the
possible Gram matrix nearest to Ŝ_j. It ignores the noise on X'X: slopes are biased towards zero and
intervals too narrow, the more so the more noise there is. `account_for_s` (`fixed_s_aware`, not in
the paper) adds what that noise does to the covariance of the residuals; it is still right only as
far as the projection leaves Ŝ alone. Measured coverage of 90% intervals for slopes, three
covariates with variance 0.1, noise 20 on each entry: .71 for one holder with 2000 rows (.92 with
`account_for_s`), .65 for three with 700 each (.80). Eight covariates, three holders with 3000 rows
each, noise 80: .59 (.82).

**Bayes-fixedS-fast** (`fixed_s_fast`, algorithm 3) fixes sigma2 too: theta ~ N(m, V) with
V⁻¹ = prior + Σ_j S̃_j (sigma2 S̃_j + D_j)⁻¹ S̃_j and V⁻¹m = prior + Σ_j S̃_j (sigma2 S̃_j + D_j)⁻¹ ẑ_j,
where D_j are the variances of the noise on ẑ_j. The paper's estimate of sigma2, the bound of y
divided by three, is dimensionally a standard deviation; ours starts from its square.

**Given S.** With y'y released too (the paper does without it, and then sigma2 is hardly identified
by one holder), the released pair has, given S_j, theta and sigma2,

    mean        (S theta, theta'S theta + n sigma2)
    covariance  [[sigma2 S + D, 2 sigma2 S theta], [., 4 sigma2 theta'S theta + 2 n sigma2² + v]]

with v the variance of the noise on û. ẑ is normal exactly, their proposition 3.1. û is not: its
chi-squared part is taken for normal with the same two moments. **That is the one approximation**,
and gone where y'y was not released. Where noise is small enough for it to matter at all, it widens
the posterior of sigma2 by 15% at n = 30, 10% at 60 and 3% at 200, that of theta by 8%, 3% and 1%
(measured beside `exact`). With Ŝ = S + E in place of S (`account_for_s`) the residuals have the
additional covariance [[K, K theta], [., theta'K theta]], K = Cov(E theta): K_ab = s_ab² theta_a
theta_b off and Σ_c s_ac² theta_c² on the diagonal.

**theta** is proposed from its normal law given ẑ alone, equation (12). With B the inverse root of
the noise's covariance (of D, or of D + K at the closed form's theta), M = LL' = sigma2 B S B' + I,
H = L⁻¹ B S and r = L⁻¹ B ẑ, that law has precision H'H + prior and shift H'r + prior. It is
accepted with the ratio of the whole density to that law's. Where û says much that ẑ doesn't, such
draws are hardly ever accepted. They are then made smaller: theta' = m + √(1 - β²) (theta - m) +
β (draw - m), which keeps (12) for any β in (0, 1] (preconditioned Crank-Nicolson). β = 1 is the
paper's draw. Steps adapt during warm-up only.

**Statistics of normal x.** They are the mean x̄ and the factor L of the scatter matrix C = LL' about
it. Given mu and T they are independent, x̄ ~ N(mu, T/n) and C ~ Wishart(T, n - 1), and
S = [[n, n x̄'], [n x̄, C + n x̄x̄']]. C' ~ Wishart(C/α, α) is L' = L B with B lower triangular,
B_ii ~ chi(α - i)/√α and N(0, 1/α) below, i = 0, ...: a factor comes free, |C'|/|C| = Π B_ii²,
tr(C⁻¹C') = |B|² and tr(C'⁻¹C) = |B⁻¹|², so that the ratio of proposals

    (|C|/|C'|)^(α - (k+1)/2) exp(α (tr C⁻¹C' - tr C'⁻¹C) / 2)

needs no matrix but B. The prior's factor is (|C'|/|C|)^((n-k-2)/2) exp(-tr T⁻¹(C' - C)/2). The
random walk of x̄ is shaped like what the prior and the released sums alone leave of it: precision
n T⁻¹ + n²/(noise variance), which the move doesn't change.

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778. Cotter, Roberts, Stuart & White (2013), MCMC methods for
functions, Statistical Science 28(3), doi:10.1214/13-STS421.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, Rng
from noisewise._compiled import call_with, compiled
from noisewise.analyst.chains import Progress, check_counts, generators
from noisewise.analyst.regression.observation import Observation, common_k, named
from noisewise.analyst.regression.papers import shared
from noisewise.analyst.regression.papers.shared import (
    accepts,
    bartlett,
    factor,
    inverse_lower,
    solve_lower,
    solve_upper,
)
from noisewise.analyst.regression.priors import CovariatePrior, NIWPrior, RegressionPrior
from noisewise.core.errors import RequestError

TARGET = 0.25  # acceptance rate that steps adapt to
FEWEST_ROWS = 30  # for y'y to be normal
WITHOUT_Y_SQUARES = 1.0 / 9.0  # y lies in [-1, 1]: three standard deviations to the bound
SMALLEST, LARGEST = 1e-4, 1.0  # errors of 0.5% of the bounds' width; nothing in [-1, 1] has more


# --- the observations, the model, what chains keep ------------------------------------------------


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


class Model(NamedTuple):
    """What does not change in a chain."""

    holders: Holders
    regression: shared.Regression
    covariates: shared.Covariates  # not used where S is fixed
    S: FloatArray  # (J, d, d), S̃_j where S is fixed
    moving: bool  # whether the S_j move, or stay at S̃_j
    tune: int  # iterations before this one adapt the steps


class State(NamedTuple):
    """What the next iteration needs; mu to L are not used where S is fixed."""

    theta: FloatArray  # (d,)
    sigma2: float
    mu: FloatArray  # (k,)
    L_T: FloatArray  # (k, k), lower triangular, T = L_T L_T'
    Psi: FloatArray  # (k, k), scale matrix of T; drawn where the prior has it unknown
    mean: FloatArray  # (J, k), x̄_j
    L: FloatArray  # (J, k, k), lower triangular, C_j = L_j L_j'
    log_steps: FloatArray  # (2 + 2J,): ln β of theta, steps of ln sigma2, ln 1/α_j, steps of x̄_j


class Info(NamedTuple):
    """Share of moves accepted, arrays of shape (chains, draws); 1 where there is no such move.

    Names differ from those of parameters: both are stored in one file.
    """

    accepted_theta: FloatArray
    accepted_sigma2: FloatArray
    accepted_scatter: FloatArray  # of the holders' scatter matrices
    accepted_mean: FloatArray  # of the holders' means of the covariates


class Draws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    info: Info
    mu: FloatArray  # (chains, kept, k), of evenly spaced draws; none if not asked for
    T: FloatArray  # (chains, kept, k, k); likewise


class Parts(NamedTuple):
    """The steps of an iteration, compiled apart."""

    covariates: Any
    scatter: Any
    mean: Any
    theta: Any
    sigma2: Any


class Trace(NamedTuple):
    """What each of many iterations gave."""

    theta: FloatArray
    sigma2: FloatArray
    accepted: FloatArray  # (count, 4), in the order of Info
    mu: FloatArray
    L: FloatArray  # (count, k, k), factors of T


def prepare_holders(observations: Sequence[Observation], method: str) -> Holders:
    """Check that the model fits the observations, and put them into arrays."""
    k = common_k(observations)
    for name, seen in named(observations):
        where = f"method: {method}: {name}"
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
        known = (seen.scale[0, 1:-1] == 0).any() or (seen.scale[1:-1, 1:-1] == 0).any()
        if method == "normal_x" and known:
            raise RequestError(
                f"{where} has second moments of the covariates that are known exactly (as the "
                "product of two indicators of one category is, always 0), and a scatter matrix "
                "that moves as a whole cannot keep to them; use exact, or leave out categories "
                "of three or more levels"
            )
        if method != "normal_x" and not np.isfinite(seen.scale[:-1, :-1]).all():
            raise RequestError(
                f"{where} did not release all second moments of the covariates, which the method "
                "fixes at their released values; use exact"
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


def fixed_moments(holders: Holders) -> FloatArray:
    """S̃_j of every holder, (J, d, d)."""
    return np.stack(
        [shared.project_gram(S, int(n)) for S, n in zip(holders.S, holders.n, strict=True)]
    )


# --- compiled: the regression given S -------------------------------------------------------------


@compiled
def noise_of_image(precision: FloatArray, theta: FloatArray) -> FloatArray:
    """K = Cov(E theta) for noise E on Ŝ of the given precisions (0: none)."""
    variance = np.where(precision > 0.0, 1.0 / np.where(precision > 0.0, precision, 1.0), 0.0)
    K = variance * np.outer(theta, theta)
    return K + np.diag(variance @ theta**2 - np.diag(K))


@compiled
def log_density(holders: Holders, j: int, S: FloatArray, theta: FloatArray, sigma2: float) -> float:
    """ln p(ẑ_j, û_j | S, theta, sigma2) but for a constant; -inf if it has no covariance.

    ẑ is in units of its noise's sd. What was not released has variance 1 and residual 0.
    """
    d, w, n = theta.size, holders.w[j], holders.n[j]
    image, K = S @ theta, np.zeros((d, d))
    quadratic = theta @ image
    if holders.aware:
        K = noise_of_image(holders.S_precision[j], theta)
    with_K = K @ theta
    C, e = np.eye(d + 1), np.zeros(d + 1)
    for a in range(d):
        for b in range(d):
            C[a, b] += w[a] * w[b] * (sigma2 * S[a, b] + K[a, b])
        e[a] = holders.z[j, a] - w[a] * image[a]
        if holders.has_u[j]:
            C[d, a] = w[a] * (2.0 * sigma2 * image[a] + with_K[a])
    if holders.has_u[j]:
        C[d, d] = holders.u_variance[j] + sigma2 * (4.0 * quadratic + 2.0 * n * sigma2)
        C[d, d] += theta @ with_K
        e[d] = holders.u[j] - quadratic - n * sigma2
    L, proper = factor(C)
    if not proper:
        return -np.inf
    e, value = solve_lower(L, e), 0.0
    for a in range(d + 1):
        value -= 0.5 * e[a] * e[a] + math.log(L[a, a])
    return value


@compiled
def log_prior(prior: shared.Regression, theta: FloatArray, sigma2: float) -> float:
    """ln p(theta, ln sigma2) but for what doesn't depend on sigma2."""
    value = -prior.a0 * math.log(sigma2) - prior.b0 / sigma2
    if not prior.independent:
        away = theta - prior.mu0
        value -= 0.5 * theta.size * math.log(sigma2)
        value -= 0.5 * float(away @ (prior.precision @ away)) / sigma2
    return value


@compiled
def equation_12(
    holders: Holders, j: int, S: FloatArray, sigma2: float
) -> tuple[FloatArray, FloatArray, bool]:
    """H and r of a holder, and whether it has them."""
    d, w = S.shape[0], holders.w[j]
    B, z, proper = np.eye(d), holders.z[j].copy(), True
    if holders.aware:
        B, proper = factor(B + holders.K[j] * np.outer(w, w))
        B = inverse_lower(B)
        z = B @ z
    B = B * w
    BS = B @ S
    L, possible = factor(np.eye(d) + sigma2 * (BS @ np.ascontiguousarray(B.T)))
    W = inverse_lower(L)
    return W @ BS, W @ z, proper and possible


@compiled
def law_given_z(
    holders: Holders, prior: shared.Regression, S: FloatArray, sigma2: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, bool]:
    """Precision (d, d) and shift (d,) of theta given all ẑ; H (J, d, d) and r (J, d) of it."""
    J, d = S.shape[:2]
    weight = 1.0 if prior.independent else 1.0 / sigma2
    Q, shift = weight * prior.precision, weight * prior.bordered[:d, d]
    H, r, usable = np.zeros((J, d, d)), np.zeros((J, d)), True
    for j in range(J):
        H[j], r[j], proper = equation_12(holders, j, S[j], sigma2)
        usable &= proper
        Q += np.ascontiguousarray(H[j].T) @ H[j]
        shift += r[j] @ H[j]
    return Q, shift, H, r, usable


@compiled
def move_theta(
    rng: Rng, model: Model, S: FloatArray, state: State, beta: float
) -> tuple[FloatArray, int]:
    """theta, and 1 if it was proposed here. S is of shape (J, d, d)."""
    holders, theta, sigma2 = model.holders, state.theta, state.sigma2
    Q, shift, H, r, usable = law_given_z(holders, model.regression, S, sigma2)
    L, proper = factor(Q)
    if not (usable and proper):
        return theta, 0
    # With precision Q = LL' the law is that of L⁻ᵀ(L⁻¹ shift + a normal vector).
    keep = math.sqrt(max(1.0 - beta * beta, 0.0))
    normal = rng.standard_normal(theta.size)
    new = keep * theta + solve_upper(L, (1.0 - keep) * solve_lower(L, shift) + beta * normal)
    ratio = 0.0
    for j in range(S.shape[0]):
        for at, sign in ((new, 1.0), (theta, -1.0)):
            e = r[j] - H[j] @ at
            ratio += sign * (log_density(holders, j, S[j], at, sigma2) + 0.5 * (e @ e))
    return (new, 1) if accepts(rng, ratio) else (theta, 0)


@compiled
def move_sigma2(
    rng: Rng, model: Model, S: FloatArray, state: State, width: float
) -> tuple[float, int]:
    """sigma2 by a random walk in its logarithm, kept away from overflow; 1 if it moved."""
    holders, prior, theta, sigma2 = model.holders, model.regression, state.theta, state.sigma2
    step = width * rng.standard_normal()
    new = math.exp(min(max(math.log(sigma2) + step, -600.0), 600.0))
    ratio = log_prior(prior, theta, new) - log_prior(prior, theta, sigma2)
    for j in range(S.shape[0]):
        ratio += log_density(holders, j, S[j], theta, new)
        ratio -= log_density(holders, j, S[j], theta, sigma2)
    return (new, 1) if accepts(rng, ratio) else (sigma2, 0)


# --- compiled: the statistics of normal covariates ------------------------------------------------


@compiled
def statistics(n: float, mean: FloatArray, L: FloatArray) -> FloatArray:
    """S of n rows with this mean and the scatter matrix LL'."""
    k = mean.size
    S = np.full((k + 1, k + 1), n)
    for a in range(k):
        S[0, a + 1] = S[a + 1, 0] = n * mean[a]
        for b in range(a + 1):
            scatter = L[a, : b + 1] @ L[b, : b + 1]
            S[a + 1, b + 1] = S[b + 1, a + 1] = n * mean[a] * mean[b] + scatter
    return S


@compiled
def _log_released(holders: Holders, state: State, j: int, mean: FloatArray, L: FloatArray) -> float:
    """ln p(Ŝ_j, ẑ_j, û_j | S, theta, sigma2), each entry of a triangle of Ŝ once."""
    S = statistics(holders.n[j], mean, L)
    value = log_density(holders, j, S, state.theta, state.sigma2)
    for a in range(S.shape[0]):
        for b in range(a + 1):
            value -= 0.5 * holders.S_precision[j, a, b] * (holders.S[j, a, b] - S[a, b]) ** 2
    return value


@compiled
def move_scatter(
    rng: Rng, holders: Holders, state: State, j: int, T_inverse: FloatArray, alpha: float
) -> tuple[FloatArray, int]:
    """The factor of holder j's scatter matrix, and 1 if it was proposed here."""
    mean, L = state.mean[j], state.L[j].copy()
    k, n = mean.size, holders.n[j]
    B = bartlett(rng, alpha, -1.0, k) / math.sqrt(alpha)
    new = L @ B
    ratio = (n - k - 2.0 - (2.0 * alpha - (k + 1))) * np.sum(np.log(np.diag(B)))
    ratio += 0.5 * alpha * np.sum(B**2 - inverse_lower(B) ** 2)
    ratio -= 0.5 * np.sum(new * (T_inverse @ new) - L * (T_inverse @ L))
    ratio += _log_released(holders, state, j, mean, new)
    ratio -= _log_released(holders, state, j, mean, L)
    return (new, 1) if accepts(rng, ratio) else (L, 0)


@compiled
def move_mean(
    rng: Rng, holders: Holders, state: State, j: int, T_inverse: FloatArray, width: float
) -> tuple[FloatArray, int]:
    """Holder j's mean of the covariates, and 1 if it was proposed here."""
    n, mean, L, mu = holders.n[j], state.mean[j].copy(), state.L[j], state.mu
    Q, proper = factor(n * T_inverse + n * n * np.diag(holders.S_precision[j, 0, 1:]))
    if not proper:
        return mean, 0
    new = mean + width * solve_upper(Q, rng.standard_normal(mean.size))
    ratio = 0.5 * n * ((mean - mu) @ (T_inverse @ (mean - mu)))
    ratio -= 0.5 * n * ((new - mu) @ (T_inverse @ (new - mu)))
    ratio += _log_released(holders, state, j, new, L)
    ratio -= _log_released(holders, state, j, mean, L)
    return (new, 1) if accepts(rng, ratio) else (mean, 0)


# --- compiled: an iteration -----------------------------------------------------------------------


@compiled
def _run(
    parts: Parts, rng: Rng, model: Model, state: State, first: int, count: int
) -> tuple[State, Trace]:
    holders, k = model.holders, state.mu.size
    trace = Trace(
        np.zeros((count, k + 1)), np.zeros(count), np.zeros((count, 4)), np.zeros((count, k)),
        np.zeros((count, k, k)),
    )  # fmt: skip
    theta, sigma2, mu, L_T, Psi = state.theta, state.sigma2, state.mu, state.L_T, state.Psi
    mean, L, S, log_steps = state.mean.copy(), state.L.copy(), model.S.copy(), state.log_steps
    J = mean.shape[0]
    for t in range(count):
        widths, accepted = np.exp(log_steps), np.ones(log_steps.size)
        if model.moving:
            total = np.zeros((k + 1, k + 1))
            for j in range(J):
                S[j] = statistics(holders.n[j], mean[j], L[j])
                total += S[j]
        if model.moving and k > 0:
            mu, L_T, Psi = parts.covariates(rng, model.covariates, total, mu, L_T, Psi)
            K = inverse_lower(L_T)
            T_inverse = np.ascontiguousarray(K.T) @ K
            # mean and L are in it as they are, and change with it.
            state = State(theta, sigma2, mu, L_T, Psi, mean, L, log_steps)
            for j in range(J):
                scatter, walk = 2 + j, 2 + J + j
                alpha = k - 1.0 + 1.0 / widths[scatter]
                L[j], accepted[scatter] = parts.scatter(rng, holders, state, j, T_inverse, alpha)
                mean[j], accepted[walk] = parts.mean(
                    rng, holders, state, j, T_inverse, widths[walk]
                )
                S[j] = statistics(holders.n[j], mean[j], L[j])
        theta, accepted[0] = parts.theta(rng, model, S, state, widths[0])
        state = State(theta, sigma2, mu, L_T, Psi, mean, L, log_steps)
        sigma2, accepted[1] = parts.sigma2(rng, model, S, state, widths[1])
        if first + t < model.tune:  # Robbins-Monro
            log_steps = log_steps.copy()
            for a in range(log_steps.size):
                log_steps[a] += 2.0 * (accepted[a] - TARGET) / (first + t + 1.0) ** 0.6
                if a == 0 or 2 <= a < 2 + J:
                    log_steps[a] = min(log_steps[a], 0.0)
                if 2 <= a < 2 + J:  # so that α stays a number worth computing with
                    log_steps[a] = max(log_steps[a], -30.0)
        trace.theta[t], trace.sigma2[t], trace.mu[t], trace.L[t] = theta, sigma2, mu, L_T
        trace.accepted[t, :2] = accepted[:2]
        for j in range(J):
            trace.accepted[t, 2] += accepted[2 + j] / J
            trace.accepted[t, 3] += accepted[2 + J + j] / J
        state = State(theta, sigma2, mu, L_T, Psi, mean, L, log_steps)
    return state, trace


def run(rng: Rng, model: Model, state: State, first: int, count: int) -> tuple[State, Trace]:
    """Iterations first, ..., first + count - 1."""
    none = np.zeros((0, 0))
    parts = Parts(shared.draw_covariates, move_scatter, move_mean, move_theta, move_sigma2)
    of_holder, of_all = (rng, model.holders, state, 0, none, 0.0), (rng, model, model.S, state, 0.0)
    of_x = (rng, model.covariates, none, state.mu, state.L_T, state.Psi)
    examples = Parts(of_x, of_holder, of_holder, of_all, of_all)
    result: tuple[State, Trace] = call_with(_run, parts, examples, rng, model, state, first, count)
    return result


# --- the closed form ------------------------------------------------------------------------------


class ClosedForm(NamedTuple):
    """The normal posterior of theta, given the error variance."""

    mean: FloatArray  # (d,)
    covariance: FloatArray  # (d, d)
    sigma2: float


class ClosedFormDraws(NamedTuple):
    """Independent draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws), one number throughout
    info: ClosedForm


def closed_form(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    sigma2: float | None = None,
    method: str = "fixed_s_fast",
) -> ClosedForm:
    """The closed form, with sigma2 as given or estimated from the Releases.

    The estimate is the pooled residual sum of squares (û - 2 theta'ẑ + theta'S̃ theta) / n at the
    closed form's theta, from 1/9 on by a few fixed-point steps, and kept above the standard
    deviation that the noise on û and ẑ gives it. Without y'y it stays at 1/9.
    """
    holders = prepare_holders(observations, method)
    regression = shared.prepare_regression(prior, observations[0].k)
    S = fixed_moments(holders)
    if sigma2 is not None and not 0 < sigma2 < np.inf:
        raise RequestError(f"sigma2 must be a positive finite number; got {sigma2!r}")
    value = WITHOUT_Y_SQUARES if sigma2 is None else float(sigma2)
    use = holders.has_u & (holders.w > 0).all(axis=1)
    for _ in range(5 if sigma2 is None and use.any() else 0):
        precision, shift, *_ = law_given_z(holders, regression, S, value)
        theta = np.linalg.solve(precision, shift)
        n, w, z = holders.n[use].sum(), holders.w[use], holders.z[use]
        squares = (
            holders.u[use] - 2.0 * (z / w) @ theta + np.einsum("jab,a,b", S[use], theta, theta)
        )
        noise = holders.u_variance[use].sum() + 4.0 * ((theta / w) ** 2).sum()
        floor = max(SMALLEST, float(np.sqrt(noise)) / n)
        value = float(np.clip(squares.sum() / n, min(floor, LARGEST), LARGEST))
    precision, shift, *_ = law_given_z(holders, regression, S, value)
    covariance = np.linalg.inv(precision).astype(np.float64)
    return ClosedForm(covariance @ shift, 0.5 * (covariance + covariance.T), value)


def sample_closed_form(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    sigma2: float | None = None,
) -> ClosedFormDraws:
    """Independent draws from the closed form (Bayes-fixedS-fast), sigma2 as in `closed_form`.

    Arguments are those of `sample`; the prior of sigma2 is not used.
    """
    check_counts(chains=chains, draws=draws)
    found = closed_form(observations, prior, sigma2=sigma2)
    root = np.linalg.cholesky(found.covariance)
    size = draws, found.mean.size
    normal = np.stack([rng.standard_normal(size) for rng in generators(seed, chains)])
    constant = np.full((chains, draws), found.sigma2)
    return ClosedFormDraws(found.mean + normal @ root.T, constant, found)


# --- init, model, top-level call ------------------------------------------------------------------


def init(
    rng: Rng,
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior | None = None,
) -> State:
    """A valid starting state, dispersed at random: around the closed form where S is fixed."""
    J, k = len(observations), observations[0].k
    if covariates is None:
        centre = closed_form(observations, prior, method="fixed_s")
        away = np.linalg.cholesky(centre.covariance) @ rng.standard_normal(k + 1)
        sigma2 = centre.sigma2 * math.exp(0.3 * rng.standard_normal())
        none = np.zeros(k), np.eye(k), np.eye(k), np.zeros((J, k)), np.zeros((J, k, k))
        steps = np.zeros(2 + 2 * J)
        steps[1] = -1.0
        return State(centre.mean + 1.5 * away, sigma2, *none, steps)
    A, _ = shared.starting_statistics(observations, rng)
    theta, sigma2 = shared.starting_regression(A, shared.prepare_regression(prior, k))
    n = A[:, 0, 0]
    mean = A[:, 0, 1:-1] / n[:, None]
    C = A[:, 1:-1, 1:-1] - n[:, None, None] * mean[:, :, None] * mean[:, None, :]
    T = C.sum(axis=0) / n.sum()
    walk = np.full(J, math.log(2.4 / math.sqrt(max(k, 1))))
    return State(
        theta=theta,
        sigma2=sigma2,
        mu=mean.mean(axis=0),
        L_T=np.linalg.cholesky(T),
        Psi=shared.starting_scale(covariates, np.diag(T)),
        mean=mean,
        L=np.linalg.cholesky(C).astype(np.float64),
        log_steps=np.concatenate([[0.0, -1.0], -np.log(n * max(1.0, k * k / 4.0)), walk]),
    )


def build_model(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior | None = None,
    *,
    account_for_s: bool = False,
    tune: int = 0,
) -> Model:
    """Check everything and put it into arrays; steps adapt before iteration `tune`."""
    holders = prepare_holders(observations, "fixed_s" if covariates is None else "normal_x")
    k = observations[0].k
    if account_for_s:
        centre = closed_form(observations, prior, method="fixed_s").mean
        K = [noise_of_image(precision, centre) for precision in holders.S_precision]
        holders = holders._replace(aware=True, K=np.stack(K))
    return Model(
        holders=holders,
        regression=shared.prepare_regression(prior, k),
        covariates=shared.prepare_covariates(covariates or NIWPrior.weakly_informative(k), k),
        S=fixed_moments(holders) if covariates is None else holders.S,
        moving=covariates is not None,
        tune=tune,
    )


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior | None = None,
    *,
    account_for_s: bool = False,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 500,
    thin: int = 1,
    seed: int | None = None,
    cores: int | None = None,
    keep_covariates: int = 0,
    progress: Progress | None = None,
) -> Draws:
    """Draw from the posterior with fixed second moments of x, or with normal x.

    Holders have Gaussian noise and a public n. With `covariates`, the prior of their mean and
    covariance, which all holders share, it is MCMC-normalX; without, MCMC-fixedS, where
    `account_for_s` adds what the noise on X'X does to the covariance of the residuals. Of `thin`
    iterations one is a draw: with normal x it can take hundreds for an independent one. Of so many
    draws of each chain as `keep_covariates` says, evenly spaced, mu and T are returned. Other
    arguments are those of `exact.sampler.sample_posterior`.
    """
    model = build_model(observations, prior, covariates, account_for_s=account_for_s, tune=tune)
    trace = shared.sample_chains(
        lambda rng: init(rng, observations, prior, covariates),
        lambda rng, state, first, count: run(rng, model, state, first, count),
        chains=chains, draws=draws, tune=tune, thin=thin, seed=seed, cores=cores,
        progress=progress, keep={"mu": keep_covariates, "L": keep_covariates},
    )  # fmt: skip
    info = Info(*np.moveaxis(trace.accepted, -1, 0))
    T = trace.L @ np.swapaxes(trace.L, -1, -2)
    return Draws(trace.theta, trace.sigma2, info, trace.mu, T)
