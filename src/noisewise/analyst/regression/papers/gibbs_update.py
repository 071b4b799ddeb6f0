"""Gibbs-SS-Update: the covariates are normal with unknown mean and covariance.

    x ~ N(mu, T),  (mu, T) ~ normal inverse Wishart

Given the latent statistics, (mu, T) and (theta, sigma2) are independent and conjugate: x'x is
sufficient for (mu, T) whatever y is (Bernstein & Sheldon 2019, figure 2c). See `gibbs` for the
draw of the statistics and what is approximate about it.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS, section
3.4.4, arXiv:1910.13153.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Progress, check_counts
from noisewise.analyst.random_numbers import KeyArray, seed_stream
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import gibbs
from noisewise.analyst.regression.papers.gibbs import Draws, Store
from noisewise.analyst.regression.papers.gibbs_arrays import (
    CG_JACOBI,
    DENSE,
    Large,
    Work,
    workspace,
)
from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_covariates import draw_covariates, prepare_covariates
from noisewise.analyst.regression.papers.gibbs_holders import Update
from noisewise.analyst.regression.papers.gibbs_interweave import rows_apart, sweep_all
from noisewise.analyst.regression.papers.gibbs_linalg import copy, fill
from noisewise.analyst.regression.papers.gibbs_orbits import Orbits, prepare_orbits
from noisewise.analyst.regression.papers.gibbs_regression import draw_regression, pool, store_draw
from noisewise.analyst.regression.papers.gibbs_solvers import decompose
from noisewise.analyst.regression.papers.gibbs_start import (
    starting_regression,
    starting_scale,
    starting_statistics,
)
from noisewise.analyst.regression.papers.gibbs_statistics import (
    draw_noise_variances,
    draw_statistics,
)
from noisewise.analyst.regression.papers.moments_formulas import normal_factor
from noisewise.analyst.regression.priors import CovariatePrior, RegressionPrior

Scratch = tuple[Work, Large | None, Orbits]


# --- state ----------------------------------------------------------------------------------------


class State(NamedTuple):
    """What the next iteration needs. `A` is positive definite for every holder."""

    theta: FloatArray  # (d,)
    sigma2: FloatArray  # ()
    mu: FloatArray  # (k,)
    L: FloatArray  # (k, k), lower triangular, T = LL'
    Psi: FloatArray  # (k, k), scale matrix of T; drawn where the prior has it unknown
    A: FloatArray  # (J, P, P), latent statistics
    omega2: FloatArray  # (J, P, P), noise variances; drawn for Laplace noise


# --- compiled -------------------------------------------------------------------------------------


@compiled
def _store_covariates(row, state, store):  # type: ignore[no-untyped-def]
    if row < 0 or store.mu.shape[0] == 0:
        return
    copy(state.mu, store.mu[row])
    for a in range(state.mu.size):
        for b in range(a + 1):
            value = 0.0
            for c in range(b + 1):
                value += state.L[a, c] * state.L[b, c]
            store.T[row, a, b] = value
            store.T[row, b, a] = value


@compiled
def _run(  # type: ignore[no-untyped-def]
    key, first, count, keep_from, holders, regression, covariates, orbits, tries, tolerance,
    needs_eigen, interweave, apart, state, work, large, store
):  # fmt: skip
    """Iterations first, ..., first + count - 1 of a chain; stores those from `keep_from` on.

    `large` is None if every solution is dense.
    """
    rng, counts, total = work.rng, work.counts, work.squares[2]
    for t in range(first, first + count):
        seed_stream(rng, key, t)
        draw_noise_variances(rng, holders, state.A, state.omega2)
        normal_factor(state.theta, state.sigma2[()], state.mu, state.L, work.F, work.G)
        for a in range(work.m.size):
            work.m[a] = work.F[a, 0]
        usable = True
        if large is not None:
            usable = decompose(work, large) if needs_eigen else True
        fill(counts, 0)
        for j in range(state.A.shape[0]):
            if not usable and holders.mode[j] != DENSE and holders.mode[j] != CG_JACOBI:
                counts[1] += 1  # keeps A_j
                continue
            r, e, i = draw_statistics(
                rng, j, holders, None, large, state.theta, state.sigma2[()], state.A[j],
                state.omega2[j], tries, tolerance, work,
            )  # fmt: skip
            counts[0] += r
            counts[1] += e
            counts[2] += i
        pool(state.A, total)
        draw_regression(rng, total, regression, state.theta, state.sigma2, work)
        draw_covariates(rng, total, covariates, state.mu, state.L, state.Psi, work)
        if interweave:
            sweep_all(
                rng, holders, regression, covariates, state.theta, state.sigma2, state.mu,
                state.L, state.Psi, state.A, state.omega2, t % apart, apart, orbits,
            )  # fmt: skip
        store_draw(t - keep_from, state.A, regression, state.theta, state.sigma2, store, work)
        _store_covariates(t - keep_from, state, store)


# --- init, kernel, top-level call -----------------------------------------------------------------


def init(
    key: KeyArray,
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
) -> State:
    """A valid starting state, dispersed by the two words of `key`."""
    A, omega2 = starting_statistics(observations, np.random.default_rng(list(map(int, key))))
    theta, sigma2 = starting_regression(A, prior)
    k = theta.size - 1
    n = A[:, 0, 0].sum()
    E = prepare_covariates(covariates, k).bordered + A.sum(axis=0)[:-1, :-1]
    Psi = starting_scale(covariates, E.diagonal()[1:] / n - (E[0, 1:] / n) ** 2)
    E[1:, 1:] += Psi
    factor = np.linalg.cholesky(E)
    L = np.ascontiguousarray(factor[1:, 1:]) / math.sqrt(covariates.nu + n)
    return State(theta, sigma2, factor[1:, 0] / factor[0, 0], L, Psi, A, omega2)


class Kernel(gibbs.Kernel[State]):
    """See `gibbs.Kernel`."""

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior,
        covariates: CovariatePrior,
        update: Update,
        interweave: bool | None,
        tries: int,
        tolerance: float,
    ) -> None:
        check_counts(tries=tries)
        super().__init__(observations, prior, update=update, interweave=interweave)
        self.covariates = prepare_covariates(covariates, observations[0].k)
        self.tries, self.tolerance = tries, tolerance
        modes = self.holders.mode
        self.needs_eigen = bool(((modes != DENSE) & (modes != CG_JACOBI)).any())

    def workspace(self) -> Scratch:
        """Scratch space for one thread."""
        return *workspace(self.holders), prepare_orbits(self.holders.scale, covariates=True)

    def advance(
        self, key: KeyArray, first: int, count: int, keep_from: int, state: State,
        scratch: Scratch, store: Store,
    ) -> None:  # fmt: skip
        """Run `count` iterations in place, storing those from number `keep_from` on."""
        work, large, orbits = scratch
        _run(
            key, first, count, keep_from, self.holders, self.regression, self.covariates, orbits,
            self.tries, self.tolerance, self.needs_eigen, self.interweave,
            rows_apart(state.mu.size), state, work, large, store,
        )  # fmt: skip


def build_kernel(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
    *,
    update: Update = "auto",
    interweave: bool | None = None,
    tries: int = 50,
    tolerance: float = 1e-8,
) -> Kernel:
    """The kernel for the given releases and priors; arguments as for `sample`."""
    return Kernel(observations, prior, covariates, update, interweave, tries, tolerance)


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
    *,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 500,
    seed: int | None = None,
    cores: int | None = None,
    update: Update = "auto",
    interweave: bool | None = None,
    tries: int = 50,
    keep_conditional_mean: bool = False,
    keep_covariates: bool = False,
    keep_statistics: bool | int = False,
    progress: Progress | None = None,
) -> Draws:
    """Draw from the posterior with unknown normal covariates (Gibbs-SS-Update).

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression.
    covariates : NIWPrior, HierarchicalNIWPrior or HuangWandPrior
        For the mean and covariance of the covariates, which all holders share.
    chains, draws, tune : int
        Chains, and iterations of each after and during warm-up.
    seed : int, optional
        The same seed gives the same draws, on any number of cores.
    cores : int, optional
        Chains that run at a time. Default: all cores that this process may use.
    update : {"auto", "dense", "eigen", "cg_jacobi", "cg_eigen"}
        How the equations of the draw of the statistics are solved (see `gibbs_statistics`).
    interweave : bool, optional
        Move along orbits too (see `gibbs_interweave`). By default where the noise is not small
        compared with the sampling variation of the statistics.
    tries : int
        Impossible statistics are drawn again up to so many times (see `gibbs_statistics`).
    keep_conditional_mean, keep_covariates : bool
        Also return E[theta | statistics], or mu and T.
    keep_statistics : bool or int
        Also return the latent statistics: of every draw, or of so many of each chain, evenly
        spaced.
    progress : callable, optional
        Called now and then with (iterations done, iterations in all), from any thread.

    Returns
    -------
    Draws

    Warns
    -----
    UserWarning
        If a holder has fewer than 4 (k + 2) rows.
    """
    kernel = build_kernel(
        observations, prior, covariates, update=update, interweave=interweave, tries=tries
    )
    start = partial(init, observations=observations, prior=prior, covariates=covariates)
    return gibbs.sample_chains(
        kernel, start, chains=chains, draws=draws, tune=tune, seed=seed, cores=cores,
        progress=progress, conditional_mean=keep_conditional_mean, covariates=keep_covariates,
        statistics=keep_statistics,
    )  # fmt: skip
