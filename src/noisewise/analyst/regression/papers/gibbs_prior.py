"""Gibbs-SS-Prior: the moments of the covariates are known, from a prior by formula or simulation.

The rows' covariates are taken to be independent draws of a fully specified law, of which only
E[vv'] and Cov(vv'), v = (1, x), are needed (`models.moments.CovariateMoments`). The law of the
sums of x is then known up to sampling variation, which is a strong assumption: with n rows their
means are known to about 1/sqrt(n). Where mean and variance of x are uncertain use `gibbs_update`.

See `gibbs` for the draw of the statistics and what is approximate about it. Moves along orbits
(`gibbs_interweave`) are those of y; the covariates' law does not move. The system of equations
is dense: an iteration takes O(d^6).

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS, section
3.4.4, arXiv:1910.13153.
"""

from __future__ import annotations

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
from noisewise.analyst.regression.papers.gibbs_arrays import Fixed, Holders, Work, workspace
from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_interweave import update_regression
from noisewise.analyst.regression.papers.gibbs_linalg import fill
from noisewise.analyst.regression.papers.gibbs_orbits import Orbits, prepare_orbits
from noisewise.analyst.regression.papers.gibbs_start import starting_regression, starting_statistics
from noisewise.analyst.regression.papers.gibbs_statistics import (
    draw_noise_variances,
    draw_statistics,
)
from noisewise.analyst.regression.papers.moments import CovariateMoments
from noisewise.analyst.regression.papers.moments_formulas import (
    entry_positions,
    general_covariance,
    general_mean,
)
from noisewise.analyst.regression.priors import NIWPrior, RegressionPrior
from noisewise.core.errors import RequestError

Scratch = tuple[Work, Orbits]


# --- state ----------------------------------------------------------------------------------------


class State(NamedTuple):
    """What the next iteration needs. `A` is positive definite for every holder."""

    theta: FloatArray  # (d,)
    sigma2: FloatArray  # ()
    A: FloatArray  # (J, P, P), latent statistics
    omega2: FloatArray  # (J, P, P), noise variances; drawn for Laplace noise


# --- compiled -------------------------------------------------------------------------------------


@compiled
def _run(  # type: ignore[no-untyped-def]
    key, first, count, keep_from, holders, regression, fixed, orbits, tries, interweave, state,
    work, store
):  # fmt: skip
    """Iterations first, ..., first + count - 1 of a chain; stores those from `keep_from` on."""
    rng, counts = work.rng, work.counts
    for t in range(first, first + count):
        seed_stream(rng, key, t)
        draw_noise_variances(rng, holders, state.A, state.omega2)
        general_mean(fixed.eta, state.theta, state.sigma2[()], work.G)
        general_covariance(
            fixed.eta, fixed.xi, fixed.positions_v, fixed.positions_w, state.theta,
            state.sigma2[()], work.once, work.g, work.covariance,
        )  # fmt: skip
        fill(counts, 0)
        for j in range(state.A.shape[0]):
            r, e, _ = draw_statistics(
                rng, j, holders, fixed, None, state.theta, state.sigma2[()], state.A[j],
                state.omega2[j], tries, 0.0, work,
            )  # fmt: skip
            counts[0] += r
            counts[1] += e
        update_regression(
            rng, t - keep_from, holders, regression, interweave, state, orbits, work, store
        )


# --- init, kernel, top-level call -----------------------------------------------------------------


def init(key: KeyArray, observations: Sequence[Observation], prior: RegressionPrior) -> State:
    """A valid starting state, dispersed by the two words of `key`."""
    A, omega2 = starting_statistics(observations, np.random.default_rng(list(map(int, key))))
    return State(*starting_regression(A, prior), A, omega2)


class Kernel(gibbs.Kernel[State]):
    """See `gibbs.Kernel`."""

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior,
        moments: CovariateMoments,
        interweave: bool | None,
        tries: int,
    ) -> None:
        check_counts(tries=tries)
        super().__init__(observations, prior, update="dense", interweave=interweave)
        self.fixed = prepare_moments(moments, observations[0].k)
        self.holders = _without_constants(self.holders, self.fixed)
        self.tries = tries

    def workspace(self) -> Scratch:
        """Scratch space for one thread."""
        orbits = prepare_orbits(self.holders.scale, covariates=False)
        return workspace(self.holders, normal=False)[0], orbits

    def advance(
        self, key: KeyArray, first: int, count: int, keep_from: int, state: State,
        scratch: Scratch, store: Store,
    ) -> None:  # fmt: skip
        """Run `count` iterations in place, storing those from number `keep_from` on."""
        work, orbits = scratch
        _run(
            key, first, count, keep_from, self.holders, self.regression, self.fixed, orbits,
            self.tries, self.interweave, state, work, store,
        )  # fmt: skip


def build_kernel(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    moments: CovariateMoments,
    *,
    interweave: bool | None = None,
    tries: int = 50,
) -> Kernel:
    """The kernel for the given releases, prior and moments; arguments as for `sample`."""
    return Kernel(observations, prior, moments, interweave, tries)


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariateMoments | NIWPrior,
    *,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 500,
    seed: int | None = None,
    cores: int | None = None,
    interweave: bool | None = None,
    tries: int = 50,
    keep_conditional_mean: bool = False,
    keep_statistics: bool | int = False,
    progress: Progress | None = None,
) -> Draws:
    """Draw from the posterior with known moments of the covariates (Gibbs-SS-Prior).

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression.
    covariates : CovariateMoments or NIWPrior
        Moments of one row's covariates, common to all holders: `CovariateMoments.normal`,
        `.from_prior` (by simulation) and others; an NIWPrior stands for independent rows of its
        multivariate t law.
    chains, draws, tune, seed, cores, interweave, tries, keep_conditional_mean, keep_statistics, \
progress
        As for `gibbs_update.sample`.

    Returns
    -------
    Draws
        Without the covariates' mean and covariance.
    """
    if isinstance(covariates, NIWPrior):
        covariates = CovariateMoments.from_niw(covariates)
    kernel = build_kernel(observations, prior, covariates, interweave=interweave, tries=tries)
    start = partial(init, observations=observations, prior=prior)
    return gibbs.sample_chains(
        kernel, start, chains=chains, draws=draws, tune=tune, seed=seed, cores=cores,
        progress=progress, conditional_mean=keep_conditional_mean, statistics=keep_statistics,
    )  # fmt: skip


def prepare_moments(moments: CovariateMoments, k: int) -> Fixed:
    """Check the moments and put them into arrays."""
    if moments.k != k:
        raise RequestError(f"covariates is for {moments.k} covariates, the statistics are for {k}")
    d = k + 1
    values, vectors = np.linalg.eigh(moments.xi) if k else (np.zeros(0), np.zeros((0, 0)))
    # A whisker more than eta, so that a singular one (dummy columns that add up to 1) has a factor.
    jitter = 1e-12 * np.trace(moments.eta) * np.eye(d)
    return Fixed(
        eta=np.array(moments.eta),
        xi=np.array(moments.xi),
        root=np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0))),
        eta_root=np.linalg.cholesky(moments.eta + jitter),
        positions_v=entry_positions(d),
        positions_w=entry_positions(d + 1),
    )


def _without_constants(holders: Holders, fixed: Fixed) -> Holders:
    """Drop released entries that are known exactly and have no variance: they say nothing.

    An example is the product of two indicators of one category, always 0. With no noise and no
    variance it would make the covariance of the released values singular.
    """
    observed, n_observed = holders.observed.copy(), holders.n_observed.copy()
    d = fixed.eta.shape[0]
    for j in range(len(holders.n)):
        keep = []
        for entry in holders.observed[j, : holders.n_observed[j]]:
            a, b = holders.rows[entry], holders.columns[entry]
            position = fixed.positions_v[a, b] if b < d else -1
            constant = position >= 0 and fixed.xi[position, position] < 1e-14
            if not (constant and holders.scale[j, a, b] == 0):
                keep.append(entry)
        observed[j, : len(keep)] = keep
        n_observed[j] = len(keep)
    return holders._replace(
        observed=observed, n_observed=n_observed, complete=n_observed == holders.rows.size
    )
