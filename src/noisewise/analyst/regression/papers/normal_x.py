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

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778, algorithm 1, appendices A and B.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Progress
from noisewise.analyst.random_numbers import KeyArray, seed_stream
from noisewise.analyst.regression.exact.triangular import mirror
from noisewise.analyst.regression.observation import Observation, named
from noisewise.analyst.regression.papers import given_s_chains
from noisewise.analyst.regression.papers.gibbs_covariates import draw_covariates, prepare_covariates
from noisewise.analyst.regression.papers.gibbs_linalg import copy
from noisewise.analyst.regression.papers.gibbs_regression import pool, prepare_regression
from noisewise.analyst.regression.papers.gibbs_start import (
    starting_regression,
    starting_scale,
    starting_statistics,
)
from noisewise.analyst.regression.papers.gibbs_triangular import gram_of_upper, invert_transposed
from noisewise.analyst.regression.papers.given_s import (
    TARGET,
    adapt_steps,
    adapted,
    prepare_holders,
    store_draw,
)
from noisewise.analyst.regression.papers.given_s_chains import Draws, Store, Work
from noisewise.analyst.regression.papers.given_s_compiled import compiled
from noisewise.analyst.regression.papers.normal_x_moves import (
    FIT,
    move_mean,
    move_scatter,
    move_sigma2,
    move_theta,
    shape_of_mean,
    start_holder,
)
from noisewise.analyst.regression.priors import CovariatePrior, RegressionPrior
from noisewise.core.errors import RequestError

# --- state ----------------------------------------------------------------------------------------


class State(NamedTuple):
    """What the next iteration needs."""

    theta: FloatArray  # (d,)
    sigma2: FloatArray  # ()
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
def _move_holders(rng, holders, state, adapt, t, work):  # type: ignore[no-untyped-def]
    """Scatter matrices and means of all holders; with the steps, if they adapt."""
    k, J = state.mu.size, state.mean.shape[0]
    theta, sigma2 = state.theta, state.sigma2[()]
    V, T_inverse, Q = work.squares[5], work.squares[6], work.squares[7]
    invert_transposed(state.L_T, V, k)
    gram_of_upper(V, T_inverse, k)
    mirror(T_inverse, k)
    for j in range(J):
        alpha = k - 1.0 + math.exp(state.log_alpha[j])
        by_scatter = move_scatter(
            rng, holders, j, state.mean[j], state.L[j], theta, sigma2, T_inverse, alpha, work
        )
        step = math.exp(state.log_step[j])
        by_mean = 0
        if shape_of_mean(holders, j, T_inverse, Q):
            by_mean = move_mean(
                rng, holders, j, state.mean[j], theta, sigma2, state.mu, T_inverse, step, Q, work
            )
        work.accepted[2] += by_scatter / J
        work.accepted[3] += by_mean / J
        if adapt:
            # A larger α is a smaller step. Its bounds keep α a number worth computing with.
            log_alpha = -adapted(-state.log_alpha[j], by_scatter, t, TARGET)
            state.log_alpha[j] = min(max(log_alpha, 0.0), 30.0)
            state.log_step[j] = adapted(state.log_step[j], by_mean, t, TARGET)


@compiled
def _store_covariates(row, state, store):  # type: ignore[no-untyped-def]
    """mu and T of evenly spaced draws, as many as the store has room for."""
    kept = store.mu.shape[0]
    if kept == 0:
        return
    every = store.theta.shape[0] // kept
    if row % every != 0 or row // every >= kept:
        return
    copy(state.mu, store.mu[row // every])
    for a in range(state.mu.size):
        for b in range(state.mu.size):
            value = 0.0
            for c in range(min(a, b) + 1):
                value += state.L_T[a, c] * state.L_T[b, c]
            store.T[row // every, a, b] = value


@compiled
def _run(  # type: ignore[no-untyped-def]
    key, first, count, keep_from, thin, tune, holders, regression, covariates, state, work, store
):  # fmt: skip
    """Iterations first, ..., first + count - 1; stores every `thin`-th from `keep_from` on."""
    rng, accepted = work.rng, work.accepted
    J, k = state.mean.shape
    for j in range(J):
        start_holder(holders, j, state.mean[j], state.L[j], state.theta, state.sigma2[()], work)
    for t in range(first, first + count):
        seed_stream(rng, key, t)
        accepted[:] = 0.0
        if k > 0:
            pool(work.S, work.squares[7])
            draw_covariates(rng, work.squares[7], covariates, state.mu, state.L_T, state.Psi, work)
            _move_holders(rng, holders, state, t < tune, t, work)
        usable = True
        for j in range(J):
            usable &= work.log[j, FIT] > -math.inf
        if usable:
            accepted[0] = move_theta(
                rng, holders, regression, state.theta, state.sigma2[()],
                math.exp(state.log_steps[0]), work,
            )  # fmt: skip
            state.sigma2[()], accepted[1] = move_sigma2(
                rng, holders, regression, state.theta, state.sigma2[()],
                math.exp(state.log_steps[1]), work,
            )  # fmt: skip
        if t < tune:
            adapt_steps(state.log_steps, accepted, t)
        since = t - keep_from
        if since >= 0 and since % thin == thin - 1:
            store_draw(since // thin, state.theta, state.sigma2[()], accepted, store)
            _store_covariates(since // thin, state, store)


# --- init, kernel, top-level call -----------------------------------------------------------------


def init(
    key: KeyArray,
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
) -> State:
    """A valid starting state, dispersed by the two words of `key`."""
    A, _ = starting_statistics(observations, np.random.default_rng(list(map(int, key))))
    theta, sigma2 = starting_regression(A, prior)
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


class Kernel(given_s_chains.Kernel[State]):
    """See `given_s_chains.Kernel`."""

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior,
        covariates: CovariatePrior,
        tune: int,
        thin: int,
    ) -> None:
        self.holders = prepare_holders(observations, "normal_x")
        k = observations[0].k
        for name, seen in named(observations):
            if (seen.scale[0, 1:-1] == 0).any() or (seen.scale[1:-1, 1:-1] == 0).any():
                raise RequestError(
                    f"method: normal_x: {name} has second moments of the covariates that are known "
                    "exactly (as the product of two indicators of one category is, always 0), and "
                    "a scatter matrix that moves as a whole cannot keep to them; use exact, or "
                    "leave out categories of three or more levels"
                )
        self.regression = prepare_regression(prior, k)
        self.covariates = prepare_covariates(covariates, k)
        self.J, self.d = len(observations), k + 1
        self.tune, self.thin = tune, thin

    def advance(
        self, key: KeyArray, first: int, count: int, keep_from: int, state: State, work: Work,
        store: Store,
    ) -> None:  # fmt: skip
        """Run `count` iterations in place, storing those from number `keep_from` on."""
        _run(
            key, first, count, keep_from, self.thin, self.tune, self.holders, self.regression,
            self.covariates, state, work, store,
        )  # fmt: skip


def build_kernel(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
    *,
    tune: int = 0,
    thin: int = 1,
) -> Kernel:
    """The kernel for the given releases and priors; its steps adapt before iteration `tune`."""
    return Kernel(observations, prior, covariates, tune, thin)


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
    kernel = build_kernel(observations, prior, covariates, tune=tune, thin=thin)
    start = partial(init, observations=observations, prior=prior, covariates=covariates)
    return given_s_chains.sample_chains(
        kernel, start, chains=chains, draws=draws, seed=seed, cores=cores, progress=progress,
        keep_covariates=keep_covariates,
    )  # fmt: skip
