"""MCMC-fixedS and Bayes-fixedS-fast: the covariates' second moments fixed near the released ones.

They are fixed at the possible Gram matrix S̃_j of each holder's design nearest to the released Ŝ_j.

    theta          | S̃_j, sigma2      equation (12), corrected for û  (`given_s`)
    sigma2         | S̃_j, theta       Metropolis, random walk in its logarithm

No law of the covariates is assumed.

**What it ignores** is the noise on the released X'X: slopes are biased towards zero and intervals
too narrow, the more so the more noise there is. `account_for_s` adds what that noise
does to the covariance of the residuals (`given_s`; proposals have it at the closed form's theta).
It is still right only as far as the projection leaves Ŝ alone. `exact` is the method that accounts
for all of the noise.

Measured coverage of 90% intervals for slopes, three covariates with variance 0.1, noise 20 on each
entry: .71 for one holder with 2000 rows (.92 with `account_for_s`), .65 for three with 700 each
(.80). Eight covariates, three holders with 3000 rows each, noise 80: .59 (.82).

**The closed form** (Bayes-fixedS-fast) fixes sigma2 too, at an estimate:

    theta ~ N(m, V),  V⁻¹ = prior + Σ_j S̃_j (sigma2 S̃_j + D_j)⁻¹ S̃_j,
    m = V (prior mean's share + Σ_j S̃_j (sigma2 S̃_j + D_j)⁻¹ ẑ_j)

with D_j the variances of the noise on ẑ_j = X'y.

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778, algorithms 2 and 3. Their estimate of sigma2, the bound of y
divided by three, is dimensionally a standard deviation; ours starts from its square.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.chains import Progress, check_counts
from noisewise.analyst.regression.observation import Observation, named
from noisewise.analyst.regression.papers.conjugate import Regression, prepare_regression
from noisewise.analyst.regression.papers.given_s import (
    Draws,
    Holders,
    Trace,
    adapt_steps,
    make_draws,
    move_sigma2,
    move_theta,
    noise_of_image,
    prepare_holders,
)
from noisewise.analyst.regression.papers.naive import project_gram
from noisewise.analyst.regression.papers.sampling import sample_chains
from noisewise.analyst.regression.priors import RegressionPrior
from noisewise.core.errors import RequestError

WITHOUT_Y_SQUARES = 1.0 / 9.0  # y lies in [-1, 1]: three standard deviations to the bound
SMALLEST, LARGEST = 1e-4, 1.0  # errors of 0.5% of the bounds' width; nothing in [-1, 1] has more
_STEPS = 5


# --- the closed form ------------------------------------------------------------------------------


class Moments(NamedTuple):
    """The normal posterior of theta, and the error variance that it takes for known."""

    mean: FloatArray  # (d,)
    covariance: FloatArray  # (d, d)
    sigma2: float


class ClosedFormDraws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d), independent
    sigma2: FloatArray  # (chains, draws), one number throughout
    conditional_mean: None
    info: Moments


def fixed_moments(observations: Sequence[Observation], holders: Holders, method: str) -> FloatArray:
    """S̃_j of every holder, (J, d, d): the possible Gram matrix of its design nearest to Ŝ_j."""
    for name, seen in named(observations):
        if not np.isfinite(seen.scale[:-1, :-1]).all():
            raise RequestError(
                f"method: {method}: {name} did not release all second moments of the "
                "covariates, which the method fixes at their released values; use exact"
            )
    return np.stack([project_gram(S, int(n)) for S, n in zip(holders.S, holders.n, strict=True)])


def posterior_moments(
    holders: Holders, S: FloatArray, prior: Regression, sigma2: float
) -> tuple[FloatArray, FloatArray]:
    """Mean (d,) and covariance (d, d) of theta at a given sigma2: equation (12)."""
    weight = 1.0 if prior.independent else 1.0 / sigma2
    precision, shift = weight * prior.precision, weight * prior.bordered[:-1, -1]
    for S_j, w, z in zip(S, holders.w, holders.z, strict=True):
        M = sigma2 * S_j * np.outer(w, w) + np.eye(w.size)
        solved = np.linalg.solve(M, np.column_stack([w[:, None] * S_j, z]))
        precision = precision + (w[:, None] * S_j).T @ solved[:, :-1]
        shift = shift + (w[:, None] * S_j).T @ solved[:, -1]
    covariance: FloatArray = np.linalg.inv(0.5 * (precision + precision.T)).astype(np.float64)
    return covariance @ shift, covariance


def closed_form(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    sigma2: float | None = None,
    method: str = "fixed_s_fast",
) -> Moments:
    """The closed form, with sigma2 as given or estimated from the Releases.

    The estimate is the pooled residual sum of squares (û - 2 theta'ẑ + theta'S̃ theta) / n at the
    closed form's theta, from 1/9 on by a few fixed-point steps. It is kept above the standard
    deviation that the noise on û and ẑ gives it, since it can't tell a smaller error variance from
    none. Without y'y there is no estimate, and it stays at 1/9.
    """
    holders = prepare_holders(observations, method)
    regression = prepare_regression(prior, observations[0].k)
    S = fixed_moments(observations, holders, method)
    if sigma2 is not None:
        if not 0 < sigma2 < np.inf:
            raise RequestError(f"sigma2 must be a positive finite number; got {sigma2!r}")
        return Moments(*posterior_moments(holders, S, regression, sigma2), float(sigma2))
    value = WITHOUT_Y_SQUARES
    use = holders.has_u & (holders.w > 0).all(axis=1)
    for _ in range(_STEPS if use.any() else 0):
        theta, _ = posterior_moments(holders, S, regression, value)
        n = holders.n[use].sum()
        w, z = holders.w[use], holders.z[use]
        squares = (
            holders.u[use] - 2.0 * (z / w) @ theta + np.einsum("jab,a,b", S[use], theta, theta)
        )
        noise = holders.u_variance[use].sum() + 4.0 * ((theta / w) ** 2).sum()
        floor = max(SMALLEST, float(np.sqrt(noise)) / n)
        value = float(np.clip(squares.sum() / n, min(floor, LARGEST), LARGEST))
    return Moments(*posterior_moments(holders, S, regression, value), value)


def sample_closed_form(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    sigma2: float | None = None,
) -> ClosedFormDraws:
    """Independent draws from the closed form; what it ignores is said at the top of this file.

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns, with Gaussian noise and a public n.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression; that of sigma2 is not used.
    chains, draws : int
    seed : int, optional
        The same seed gives the same draws.
    sigma2 : float, optional
        The error variance. Default: estimated, see `closed_form`.

    Returns
    -------
    ClosedFormDraws
    """
    check_counts(chains=chains, draws=draws)
    found = closed_form(observations, prior, sigma2=sigma2)
    root = np.linalg.cholesky(found.covariance)
    normal = np.stack(
        [
            np.random.default_rng(stream).standard_normal((draws, found.mean.size))
            for stream in np.random.SeedSequence(seed).spawn(chains)
        ]
    )
    constant = np.full((chains, draws), found.sigma2)
    return ClosedFormDraws(found.mean + normal @ root.T, constant, None, found)


# --- the sampler ----------------------------------------------------------------------------------


class Model(NamedTuple):
    """What does not change in a chain."""

    holders: Holders
    regression: Regression
    S: FloatArray  # (J, d, d), S̃_j
    tune: int  # iterations before this one adapt the steps


class State(NamedTuple):
    """What the next iteration needs."""

    theta: FloatArray  # (d,)
    sigma2: float
    log_steps: FloatArray  # (2,), ln β of theta and the step of ln sigma2


@compiled
def step(rng: np.random.Generator, model: Model, state: State, t: int) -> tuple[State, FloatArray]:
    """Iteration number t; the next state, and the shares of Info."""
    holders, prior, log_steps = model.holders, model.regression, state.log_steps
    theta, by_theta = move_theta(
        rng, holders, prior, model.S, state.theta, state.sigma2, math.exp(log_steps[0])
    )
    sigma2, by_sigma2 = move_sigma2(
        rng, holders, prior, model.S, theta, state.sigma2, math.exp(log_steps[1])
    )
    if t < model.tune:
        log_steps = adapt_steps(log_steps, by_theta, by_sigma2, t)
    return State(theta, sigma2, log_steps), np.array([by_theta, by_sigma2, 1.0, 1.0])


@compiled
def run(
    rng: np.random.Generator, model: Model, state: State, first: int, count: int
) -> tuple[State, Trace]:
    """Iterations first, ..., first + count - 1."""
    trace = Trace(
        np.zeros((count, state.theta.size)), np.zeros(count), np.zeros((count, 4)),
        np.zeros((count, 0)), np.zeros((count, 0, 0)),
    )  # fmt: skip
    for t in range(count):
        state, accepted = step(rng, model, state, first + t)
        trace.theta[t] = state.theta
        trace.sigma2[t] = state.sigma2
        trace.accepted[t] = accepted
    return state, trace


def init(rng: np.random.Generator, centre: Moments) -> State:
    """A starting state around the closed form, dispersed at random."""
    away = np.linalg.cholesky(centre.covariance) @ rng.standard_normal(centre.mean.size)
    sigma2 = centre.sigma2 * math.exp(0.3 * rng.standard_normal())
    return State(centre.mean + 1.5 * away, sigma2, np.array([0.0, -1.0]))


def build_model(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    account_for_s: bool = False,
    tune: int = 0,
) -> tuple[Model, Moments]:
    """Everything in arrays, steps adapt before iteration `tune`; and the closed form."""
    holders = prepare_holders(observations, "fixed_s")
    centre = closed_form(observations, prior, method="fixed_s")
    if account_for_s:
        K = [noise_of_image(precision, centre.mean) for precision in holders.S_precision]
        holders = holders._replace(aware=True, K=np.stack(K))
    S = fixed_moments(observations, holders, "fixed_s")
    regression = prepare_regression(prior, observations[0].k)
    return Model(holders, regression, S, tune), centre


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    account_for_s: bool = False,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 500,
    seed: int | None = None,
    cores: int | None = None,
    progress: Progress | None = None,
) -> Draws:
    """Draw from the posterior with the covariates' second moments fixed (MCMC-fixedS).

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns, with Gaussian noise and a public n.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression. The paper's is the second.
    account_for_s : bool
        Add what the noise on X'X does to the covariance of the residuals. Not in the paper.
    chains, draws, tune : int
        Chains, and iterations of each after and during warm-up.
    seed : int, optional
        The same seed gives the same draws, on any number of cores.
    cores : int, optional
        Chains that run at a time. Default: all cores that this process may use.
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
    model, centre = build_model(observations, prior, account_for_s=account_for_s, tune=tune)
    trace = sample_chains(
        lambda rng: init(rng, centre),
        lambda rng, state, first, count: run(rng, model, state, first, count),
        chains=chains, draws=draws, tune=tune, seed=seed, cores=cores, progress=progress,
    )  # fmt: skip
    return make_draws(trace)
