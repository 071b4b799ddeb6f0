"""MCMC-normalX: the covariates are normal, their latent second moments move by Metropolis.

    x ~ N(mu, T),  (mu, T) ~ normal inverse Wishart,  theta ~ N(mu0, V0),  sigma2 ~ IG(a0, b0)

One iteration, with J holders of their own n and noise, costs O(J d³)::

    mu, T          | x̄_j, C_j of all holders      conjugate
    C_j            | the rest                      Metropolis, Wishart proposal
    x̄_j            | the rest                      Metropolis, random walk
    theta          | S_j, sigma2                   equation (12), corrected for û  (`given_s`)
    sigma2         | S_j, theta                    Metropolis, random walk in its logarithm

It is the paper's algorithm for a model with an intercept (its appendix B.2, where the scatter
matrix has n - 1 degrees of freedom and mu needs a prior), with y'y used where it was released. The
one approximation is that y'y is normal (`given_s`). One move for a whole scatter matrix must be
small where d is large: acceptance rates are fine and mixing is poor, as the paper says. `exact` has
the same posterior, without the approximation, and mixes much better; this is for comparison.

A holder's statistics are the mean x̄ of its covariates and the factor L of their scatter matrix
C = LL' about it. Given mu and T they are independent, x̄ ~ N(mu, T/n) and C ~ Wishart(T, n - 1), and

    S = [[n, n x̄'], [n x̄, C + n x̄x̄']].

**Scatter.** C' ~ Wishart(C/α, α) is L' = L B with B lower triangular, B_ii ~ chi(α - i)/√α and
N(0, 1/α) below, i = 0, ...: a factor comes free, |C'|/|C| = Π B_ii², tr(C⁻¹C') = |B|² and
tr(C'⁻¹C) = |B⁻¹|², so that the ratio of proposals

    (|C|/|C'|)^(α - (k+1)/2) exp(α (tr C⁻¹C' - tr C'⁻¹C) / 2)

needs no matrix but B. The prior's factor is (|C'|/|C|)^((n-k-2)/2) exp(-tr T⁻¹(C' - C)/2).

**Mean.** A random walk shaped like what the prior and the released sums alone leave of x̄:
precision n T⁻¹ + n²/(noise variance). It depends on nothing that the move changes.

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778, algorithm 1, appendices A and B.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.chains import Progress
from noisewise.analyst.regression.observation import Observation, named
from noisewise.analyst.regression.papers.conjugate import (
    Covariates,
    Regression,
    draw_covariates,
    prepare_covariates,
    prepare_regression,
    starting_regression,
    starting_scale,
)
from noisewise.analyst.regression.papers.given_s import (
    Draws,
    Holders,
    Trace,
    adapt_steps,
    adapted,
    log_density,
    make_draws,
    move_sigma2,
    move_theta,
    prepare_holders,
)
from noisewise.analyst.regression.papers.sampling import (
    bartlett,
    factor,
    inverse_lower,
    pooled,
    sample_chains,
    solve_upper,
    starting_statistics,
)
from noisewise.analyst.regression.priors import CovariatePrior, RegressionPrior
from noisewise.core.errors import RequestError

# --- model and state ------------------------------------------------------------------------------


class Model(NamedTuple):
    """What does not change in a chain."""

    holders: Holders
    regression: Regression
    covariates: Covariates
    tune: int  # iterations before this one adapt the steps


class State(NamedTuple):
    """What the next iteration needs."""

    theta: FloatArray  # (d,)
    sigma2: float
    mu: FloatArray  # (k,)
    L_T: FloatArray  # (k, k), lower triangular, T = L_T L_T'
    Psi: FloatArray  # (k, k), scale matrix of T; drawn where the prior has it unknown
    mean: FloatArray  # (J, k), x̄_j
    L: FloatArray  # (J, k, k), lower triangular, C_j = L_j L_j'
    log_alpha: FloatArray  # (J,), ln(α - (k - 1)) of the Wishart proposals
    log_step: FloatArray  # (J,), of the random walks of the means
    log_steps: FloatArray  # (2,), ln β of theta and the step of ln sigma2


# --- compiled -------------------------------------------------------------------------------------


@compiled
def statistics(n: float, mean: FloatArray, L: FloatArray) -> FloatArray:
    """S of n rows with this mean and the scatter matrix LL'."""
    k = mean.size
    S = np.zeros((k + 1, k + 1))
    S[0, 0] = n
    S[0, 1:] = n * mean
    S[1:, 0] = n * mean
    S[1:, 1:] = L @ np.ascontiguousarray(L.T) + n * np.outer(mean, mean)
    return S


@compiled
def _log_released(
    holders: Holders, j: int, S: FloatArray, theta: FloatArray, sigma2: float
) -> float:
    """ln p(Ŝ_j, ẑ_j, û_j | S, theta, sigma2), each entry of a triangle of Ŝ once."""
    value = log_density(holders, j, S, theta, sigma2)
    for a in range(S.shape[0]):
        for b in range(a + 1):
            value -= 0.5 * holders.S_precision[j, a, b] * (holders.S[j, a, b] - S[a, b]) ** 2
    return value


@compiled
def move_scatter(
    rng: np.random.Generator,
    holders: Holders,
    j: int,
    mean: FloatArray,
    L: FloatArray,
    theta: FloatArray,
    sigma2: float,
    T_inverse: FloatArray,
    alpha: float,
) -> tuple[FloatArray, int]:
    """The factor of holder j's scatter matrix, and 1 if it was proposed here."""
    k, n = mean.size, holders.n[j]
    B = bartlett(rng, alpha, -1.0, k) / math.sqrt(alpha)
    log_det = 0.0
    for a in range(k):
        log_det += 2.0 * math.log(B[a, a])
    new = L @ B
    ratio = (0.5 * (n - k - 2.0) - (alpha - 0.5 * (k + 1))) * log_det
    ratio += 0.5 * alpha * (np.sum(B**2) - np.sum(inverse_lower(B) ** 2))
    ratio -= 0.5 * (np.sum(new * (T_inverse @ new)) - np.sum(L * (T_inverse @ L)))
    ratio += _log_released(holders, j, statistics(n, mean, new), theta, sigma2)
    ratio -= _log_released(holders, j, statistics(n, mean, L), theta, sigma2)
    if math.log(1.0 - rng.random()) < ratio:
        return new, 1
    return L, 0


@compiled
def move_mean(
    rng: np.random.Generator,
    holders: Holders,
    j: int,
    mean: FloatArray,
    L: FloatArray,
    theta: FloatArray,
    sigma2: float,
    mu: FloatArray,
    T_inverse: FloatArray,
    width: float,
) -> tuple[FloatArray, int]:
    """Holder j's mean of the covariates, and 1 if it was proposed here."""
    n = holders.n[j]
    Q, proper = factor(n * T_inverse + n * n * np.diag(holders.S_precision[j, 0, 1:]))
    if not proper:
        return mean, 0
    new = mean + width * solve_upper(Q, rng.standard_normal(mean.size))
    ratio = 0.5 * n * ((mean - mu) @ (T_inverse @ (mean - mu)))
    ratio -= 0.5 * n * ((new - mu) @ (T_inverse @ (new - mu)))
    ratio += _log_released(holders, j, statistics(n, new, L), theta, sigma2)
    ratio -= _log_released(holders, j, statistics(n, mean, L), theta, sigma2)
    if math.log(1.0 - rng.random()) < ratio:
        return new, 1
    return mean, 0


@compiled
def step(rng: np.random.Generator, model: Model, state: State, t: int) -> tuple[State, FloatArray]:
    """Iteration number t; the next state, and the shares of Info."""
    holders, prior = model.holders, model.regression
    theta, sigma2, mu, L_T, Psi = state.theta, state.sigma2, state.mu, state.L_T, state.Psi
    mean, L = state.mean.copy(), state.L.copy()
    log_alpha, log_step = state.log_alpha.copy(), state.log_step.copy()
    J, k = mean.shape
    S, accepted = np.zeros((J, k + 1, k + 1)), np.zeros(4)
    for j in range(J):
        S[j] = statistics(holders.n[j], mean[j], L[j])
    if k > 0:
        mu, L_T, Psi = draw_covariates(rng, model.covariates, pooled(S), mu, L_T, Psi)
        K = inverse_lower(L_T)
        T_inverse = np.ascontiguousarray(K.T) @ K
        for j in range(J):
            alpha = k - 1.0 + math.exp(log_alpha[j])
            L[j], by_scatter = move_scatter(
                rng, holders, j, mean[j], L[j].copy(), theta, sigma2, T_inverse, alpha
            )
            mean[j], by_mean = move_mean(
                rng, holders, j, mean[j].copy(), L[j], theta, sigma2, mu, T_inverse,
                math.exp(log_step[j]),
            )  # fmt: skip
            S[j] = statistics(holders.n[j], mean[j], L[j])
            accepted[2] += by_scatter / J
            accepted[3] += by_mean / J
            if t < model.tune:
                # A larger α is a smaller step. Its bounds keep α a number worth computing with.
                log_alpha[j] = min(max(-adapted(-log_alpha[j], by_scatter, t), 0.0), 30.0)
                log_step[j] = adapted(log_step[j], by_mean, t)
    log_steps = state.log_steps
    theta, by_theta = move_theta(rng, holders, prior, S, theta, sigma2, math.exp(log_steps[0]))
    sigma2, by_sigma2 = move_sigma2(rng, holders, prior, S, theta, sigma2, math.exp(log_steps[1]))
    accepted[0], accepted[1] = by_theta, by_sigma2
    if t < model.tune:
        log_steps = adapt_steps(log_steps, by_theta, by_sigma2, t)
    return State(theta, sigma2, mu, L_T, Psi, mean, L, log_alpha, log_step, log_steps), accepted


@compiled
def run(
    rng: np.random.Generator, model: Model, state: State, first: int, count: int
) -> tuple[State, Trace]:
    """Iterations first, ..., first + count - 1."""
    k = state.mu.size
    trace = Trace(
        np.zeros((count, k + 1)), np.zeros(count), np.zeros((count, 4)), np.zeros((count, k)),
        np.zeros((count, k, k)),
    )  # fmt: skip
    for t in range(count):
        state, accepted = step(rng, model, state, first + t)
        trace.theta[t] = state.theta
        trace.sigma2[t] = state.sigma2
        trace.accepted[t] = accepted
        trace.mu[t] = state.mu
        trace.L[t] = state.L_T
    return state, trace


# --- init, model, top-level call ------------------------------------------------------------------


def init(
    rng: np.random.Generator,
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
) -> State:
    """A valid starting state, dispersed at random."""
    A, _ = starting_statistics(observations, rng)
    theta, sigma2 = starting_regression(A, prepare_regression(prior, observations[0].k))
    k, n = theta.size - 1, A[:, 0, 0]
    mean = A[:, 0, 1:-1] / n[:, None]
    C = A[:, 1:-1, 1:-1] - n[:, None, None] * mean[:, :, None] * mean[:, None, :]
    T = C.sum(axis=0) / n.sum()
    return State(
        theta=theta,
        sigma2=sigma2,
        mu=mean.mean(axis=0),
        L_T=np.linalg.cholesky(T),
        Psi=starting_scale(covariates, np.diag(T)),
        mean=mean,
        L=np.linalg.cholesky(C).astype(np.float64),
        log_alpha=np.log(n * max(1.0, k * k / 4.0)),
        log_step=np.full(n.size, math.log(2.4 / math.sqrt(max(k, 1)))),
        log_steps=np.array([0.0, -1.0]),
    )


def build_model(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
    *,
    tune: int = 0,
) -> Model:
    """Check everything and put it into arrays; steps adapt before iteration `tune`."""
    holders, k = prepare_holders(observations, "normal_x"), observations[0].k
    for name, seen in named(observations):
        if (seen.scale[0, 1:-1] == 0).any() or (seen.scale[1:-1, 1:-1] == 0).any():
            raise RequestError(
                f"method: normal_x: {name} has second moments of the covariates that are known "
                "exactly (as the product of two indicators of one category is, always 0), and "
                "a scatter matrix that moves as a whole cannot keep to them; use exact, or "
                "leave out categories of three or more levels"
            )
    return Model(holders, prepare_regression(prior, k), prepare_covariates(covariates, k), tune)


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
    *,
    chains: int = 4,
    draws: int = 5000,
    tune: int = 2000,
    thin: int = 1,
    seed: int | None = None,
    cores: int | None = None,
    keep_covariates: int = 0,
    progress: Progress | None = None,
) -> Draws:
    """Draw from the posterior with unknown normal covariates (MCMC-normalX).

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns, with Gaussian noise and a public n.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression. The paper's is the second.
    covariates : NIWPrior, HierarchicalNIWPrior or HuangWandPrior
        For the mean and covariance of the covariates, which all holders share.
    chains, draws, tune : int
        Chains, and draws of each after and iterations during warm-up.
    thin : int
        Iterations for each draw. Neighbouring iterations are much alike: with several covariates or
        holders it takes hundreds for an independent draw.
    seed : int, optional
        The same seed gives the same draws, on any number of cores.
    cores : int, optional
        Chains that run at a time. Default: all cores that this process may use.
    keep_covariates : int
        Also return mu and T of so many draws of each chain, evenly spaced.
    progress : callable, optional
        Called now and then with (iterations done, iterations in all), from any thread.

    Returns
    -------
    Draws

    Raises
    ------
    RequestError
        If noise is Laplace, a number of rows is private or too small, or priors do not fit.
    """
    model = build_model(observations, prior, covariates, tune=tune)
    trace = sample_chains(
        lambda rng: init(rng, observations, prior, covariates),
        lambda rng, state, first, count: run(rng, model, state, first, count),
        chains=chains, draws=draws, tune=tune, thin=thin, seed=seed, cores=cores,
        progress=progress, keep={"mu": keep_covariates, "L": keep_covariates},
    )  # fmt: skip
    return make_draws(trace)
