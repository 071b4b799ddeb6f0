"""MCMC-fixedS: the covariates' second moments fixed at the possible ones nearest to the released.

    theta          | S̃_j, sigma2      equation (12), corrected for û  (`given_s`)
    sigma2         | S̃_j, theta       Metropolis, random walk in its logarithm

No law of the covariates is assumed. In the eigenbasis of each S̃_j the covariance of ẑ_j is diagonal
for every sigma2, so that an iteration takes no factorisation but that of theta's precision.

**What it ignores** is the noise on the released X'X: slopes are biased towards zero and intervals
too narrow, the more so the more noise there is. `account_for_s` adds what that noise does to the
covariance of the residuals: with Ŝ = S + E, (ẑ - Ŝ theta, û - theta'Ŝ theta) has the additional
covariance [[K, K theta], [., theta'K theta]], K = Cov(E theta), with K_ab = s_ab² theta_a theta_b
off and Σ_c s_ac² theta_c² on the diagonal. It is still right only as far as the projection leaves Ŝ
alone. `exact` is the method that accounts for all of the noise.

Measured coverage of 90% intervals for slopes, three covariates with variance 0.1, noise 20 on each
entry: .71 for one holder with 2000 rows (.92 with `account_for_s`), .65 for three with 700 each
(.80). Eight covariates, three holders with 3000 rows each, noise 80: .59 (.82).

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778, algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Progress
from noisewise.analyst.random_numbers import KeyArray, seed_stream, uniform
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import fixed_s_fast, given_s_chains
from noisewise.analyst.regression.papers.fixed_s_noise import (
    move_sigma2_with_noise,
    move_theta_with_noise,
)
from noisewise.analyst.regression.papers.gibbs_linalg import quadratic_form
from noisewise.analyst.regression.papers.gibbs_regression import prepare_regression
from noisewise.analyst.regression.papers.given_s import (
    Holders,
    adapt_steps,
    log_fit,
    log_prior,
    move_theta,
    prepare_holders,
    propose_sigma2,
    store_draw,
)
from noisewise.analyst.regression.papers.given_s_chains import Draws, Store, Work
from noisewise.analyst.regression.papers.given_s_compiled import compiled
from noisewise.analyst.regression.priors import RegressionPrior


class State(NamedTuple):
    """What the next iteration needs."""

    theta: FloatArray  # (d,)
    sigma2: FloatArray  # ()
    log_steps: FloatArray  # (2,), ln β of theta and the step of ln sigma2


class Fixed(NamedTuple):
    """S̃_j, and the released X'y in its eigenbasis.

    B ẑ with B the inverse root of the noise's covariance has covariance sigma2 B S̃ B' + I, which is
    V (sigma2 Λ + I) V'.
    """

    S: FloatArray  # (J, d, d)
    eigenvalues: FloatArray  # (J, d), Λ
    G: FloatArray  # (J, d, d), V'B S̃
    z: FloatArray  # (J, d), V'B ẑ
    S_variance: FloatArray  # (J, d, d), of the noise on Ŝ


def prepare_fixed(
    observations: Sequence[Observation], holders: Holders, centre: FloatArray | None = None
) -> Fixed:
    """Project and decompose; with K at theta = `centre` in the noise's covariance if given."""
    S = fixed_s_fast.fixed_moments(observations, holders, "fixed_s")
    J, d = holders.z.shape
    variance = np.stack([seen.scale[:-1, :-1] ** 2 for seen in observations])
    eigenvalues, G, z = np.empty((J, d)), np.empty((J, d, d)), np.empty((J, d))
    for j in range(J):
        w, root = holders.w[j], np.eye(d)
        if centre is not None:
            K = variance[j] * np.outer(centre, centre)
            np.fill_diagonal(K, variance[j] @ centre**2)
            root = np.linalg.inv(np.linalg.cholesky(np.eye(d) + K * np.outer(w, w)))
        B = root * w
        values, vectors = np.linalg.eigh(B @ S[j] @ B.T)
        eigenvalues[j] = np.maximum(values, 0.0)
        G[j] = vectors.T @ B @ S[j]
        z[j] = vectors.T @ root @ holders.z[j]  # which has w in it
    return Fixed(S, eigenvalues, G, z, variance)


# --- compiled -------------------------------------------------------------------------------------


@compiled
def _fill_terms(fixed, sigma2, work):  # type: ignore[no-untyped-def]
    """H and r of `given_s`, all holders."""
    J, d = fixed.z.shape
    for j in range(J):
        for i in range(d):
            root = 1.0 / math.sqrt(sigma2 * fixed.eigenvalues[j, i] + 1.0)
            work.r[j, i] = root * fixed.z[j, i]
            for a in range(d):
                work.H[j, i, a] = root * fixed.G[j, i, a]


@compiled
def _log_likelihood(holders, fixed, j, sigma2, quadratic, image, g, r):  # type: ignore[no-untyped-def]
    """ln p(ẑ_j, û_j | theta, sigma2), image = G_j theta."""
    d = image.size
    log_root = 0.0
    for i in range(d):
        variance = sigma2 * fixed.eigenvalues[j, i] + 1.0
        root = 1.0 / math.sqrt(variance)
        g[i] = root * image[i]
        r[i] = root * fixed.z[j, i]
        log_root += 0.5 * math.log(variance)
    return log_fit(holders, j, sigma2, quadratic, log_root, g, r, d)


@compiled
def _move_sigma2(rng, holders, fixed, prior, state, work):  # type: ignore[no-untyped-def]
    J, d = fixed.z.shape
    theta, sigma2 = state.theta, state.sigma2[()]
    image, g, r = work.vectors[1][:d], work.vectors[2], work.vectors[3]
    new = propose_sigma2(rng, sigma2, math.exp(state.log_steps[1]))
    ratio = log_prior(theta, new, prior, work.vectors[0], d)
    ratio -= log_prior(theta, sigma2, prior, work.vectors[0], d)
    for j in range(J):
        for i in range(d):
            image[i] = 0.0
            for a in range(d):
                image[i] += fixed.G[j, i, a] * theta[a]
        quadratic = quadratic_form(theta, fixed.S[j], d)
        ratio += _log_likelihood(holders, fixed, j, new, quadratic, image, g, r)
        ratio -= _log_likelihood(holders, fixed, j, sigma2, quadratic, image, g, r)
    if math.log(uniform(rng)) < ratio:
        state.sigma2[()] = new
        return 1
    return 0


@compiled
def _run(  # type: ignore[no-untyped-def]
    key, first, count, keep_from, tune, holders, fixed, account, prior, state, work, store
):  # fmt: skip
    """Iterations first, ..., first + count - 1 of a chain; stores those from `keep_from` on."""
    rng, accepted = work.rng, work.accepted
    accepted[:] = 1.0
    for t in range(first, first + count):
        seed_stream(rng, key, t)
        _fill_terms(fixed, state.sigma2[()], work)
        beta = math.exp(state.log_steps[0])
        if account:
            accepted[0] = move_theta_with_noise(
                rng, holders, fixed, state.sigma2[()], prior, state.theta, beta, work
            )
            accepted[1] = move_sigma2_with_noise(rng, holders, fixed, prior, state, work)
        else:
            accepted[0] = move_theta(
                rng, holders, fixed.S, work.H, work.r, state.sigma2[()], prior, state.theta, beta,
                work,
            )  # fmt: skip
            accepted[1] = _move_sigma2(rng, holders, fixed, prior, state, work)
        if t < tune:
            adapt_steps(state.log_steps, accepted, t)
        if t >= keep_from:
            store_draw(t - keep_from, state.theta, state.sigma2[()], accepted, store)


# --- init, kernel, top-level call -----------------------------------------------------------------


def init(key: KeyArray, centre: fixed_s_fast.Moments) -> State:
    """A starting state around the closed form, dispersed by the two words of `key`."""
    rng = np.random.default_rng(list(map(int, key)))
    away = np.linalg.cholesky(centre.covariance) @ rng.standard_normal(centre.mean.size)
    sigma2 = centre.sigma2 * math.exp(0.3 * rng.standard_normal())
    return State(centre.mean + 1.5 * away, np.array(sigma2), np.array([0.0, -1.0]))


class Kernel(given_s_chains.Kernel[State]):
    """See `given_s_chains.Kernel`."""

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior,
        account_for_s: bool,
        tune: int,
    ) -> None:
        self.holders = prepare_holders(observations, "fixed_s")
        self.regression = prepare_regression(prior, observations[0].k)
        self.centre = fixed_s_fast.moments(observations, prior, method="fixed_s")
        self.fixed = prepare_fixed(
            observations, self.holders, self.centre.mean if account_for_s else None
        )
        self.account_for_s = account_for_s
        self.J, self.d, self.tune = len(observations), observations[0].k + 1, tune

    def advance(
        self, key: KeyArray, first: int, count: int, keep_from: int, state: State, work: Work,
        store: Store,
    ) -> None:  # fmt: skip
        """Run `count` iterations in place, storing those from number `keep_from` on."""
        _run(
            key, first, count, keep_from, self.tune, self.holders, self.fixed, self.account_for_s,
            self.regression, state, work, store,
        )  # fmt: skip


def build_kernel(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    account_for_s: bool = False,
    tune: int = 0,
) -> Kernel:
    """The kernel for the given releases and prior; its steps adapt before iteration `tune`."""
    return Kernel(observations, prior, account_for_s, tune)


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
    kernel = build_kernel(observations, prior, account_for_s=account_for_s, tune=tune)
    return given_s_chains.sample_chains(
        kernel, partial(init, centre=kernel.centre), chains=chains, draws=draws, seed=seed,
        cores=cores, progress=progress,
    )  # fmt: skip
