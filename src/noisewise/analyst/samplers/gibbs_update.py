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
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.models.moments import normal_factor
from noisewise.analyst.observation import Observation
from noisewise.analyst.priors import HuangWandPrior, NIWPrior
from noisewise.analyst.samplers.gibbs import (
    Draws,
    Info,
    Progress,
    RegressionPrior,
    Store,
    Update,
    check_run,
    draw_regression,
    make_store,
    pool,
    prepare_holders,
    prepare_regression,
    run_chains,
    starting_regression,
    starting_statistics,
    store_draw,
    wants_interweaving,
    workspace,
)
from noisewise.analyst.samplers.gibbs_interweave import Orbits, prepare_orbits, sweep_all
from noisewise.analyst.samplers.gibbs_linalg import (
    FASTMATH,
    cholesky,
    copy,
    fill,
    invert_lower,
    right_solve_lower,
)
from noisewise.analyst.samplers.gibbs_random import (
    KeyArray,
    chain_keys,
    chi,
    fill_normal,
    gamma,
    seed_stream,
)
from noisewise.analyst.samplers.gibbs_statistics import (
    CG_JACOBI,
    DENSE,
    Large,
    Work,
    decompose,
    draw_noise_variances,
    draw_statistics,
)
from noisewise.core.errors import RequestError

FloatArray = NDArray[np.float64]
Scratch = tuple[Work, Large | None, Orbits]

_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)


# --- state and diagnostics ------------------------------------------------------------------------


class State(NamedTuple):
    """What the next iteration needs. `A` is positive definite for every holder."""

    theta: FloatArray  # (d,)
    sigma2: FloatArray  # ()
    mu: FloatArray  # (k,)
    L: FloatArray  # (k, k), lower triangular, T = LL'
    Psi: FloatArray  # (k, k), scale matrix of T; drawn with a HuangWandPrior
    A: FloatArray  # (J, P, P), latent statistics
    omega2: FloatArray  # (J, P, P), noise variances; drawn for Laplace noise


class Covariates(NamedTuple):
    """The prior of mu and T, in the form the compiled functions take."""

    m: FloatArray  # (k,)
    lam: float
    nu: float
    bordered: FloatArray  # (d, d), lam (1, m)(1, m)'
    rate: FloatArray  # (k,) rates of Psi's diagonal, or (0,) if Psi is fixed
    diagonal: bool  # Psi is diagonal


# --- compiled -------------------------------------------------------------------------------------


@_jit
def draw_covariates(rng, total, prior, mu, L, Psi, work):  # type: ignore[no-untyped-def]
    """mu, T (and Psi) | pooled statistics, in place; left alone if those cannot be factored.

    The factor of prior + A[:d, :d] has sqrt(lam_n) (1, m_n) in its first column and the factor C
    of Psi_n in the rest. With R lower triangular, R_ii ~ chi(nu_n - k + 1 + i) and normal below,
    R'R is Wishart(nu_n, I), so that L = C R⁻¹ is the lower triangular factor of an inverse Wishart
    T directly. Given T, psi_j ~ Gamma((nu + 1) / 2, rate_j + (T⁻¹)_jj / 2).
    """
    k = mu.size
    E, R, g = work.squares[0], work.squares[1], work.vectors[0]
    for a in range(k + 1):
        for b in range(a + 1):
            E[a, b] = prior.bordered[a, b] + total[a, b]
            if b > 0:
                E[a, b] += Psi[a - 1, b - 1]
    if not cholesky(E, k + 1):
        return
    n = total[0, 0]
    for a in range(k):
        fill_normal(rng, R[a], a)
        R[a, a] = chi(rng, prior.nu + n - k + 1.0 + a)
        for b in range(a + 1):
            L[a, b] = E[a + 1, b + 1]
    right_solve_lower(L, R, k)
    fill_normal(rng, g, k)
    inverse = 1.0 / math.sqrt(prior.lam + n)
    for a in range(k):
        value = E[a + 1, 0]
        for b in range(a + 1):
            value += L[a, b] * g[b]
        mu[a] = value * inverse
    if prior.rate.size > 0:
        invert_lower(L, R, k)
        for b in range(k):
            precision = 0.0
            for a in range(b, k):
                precision += R[a, b] * R[a, b]
            Psi[b, b] = gamma(rng, 0.5 * (prior.nu + 1.0)) / (prior.rate[b] + 0.5 * precision)


@_jit
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


@_jit
def _run(  # type: ignore[no-untyped-def]
    key, first, count, keep_from, holders, regression, covariates, orbits, tries, tolerance,
    needs_eigen, interweave, state, work, large, store
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
                state.L, state.Psi, state.A, state.omega2, orbits,
            )  # fmt: skip
        store_draw(t - keep_from, state.A, regression, state.theta, state.sigma2, store, work)
        _store_covariates(t - keep_from, state, store)


# --- init, kernel, top-level call -----------------------------------------------------------------


def init(
    key: KeyArray,
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: NIWPrior | HuangWandPrior,
) -> State:
    """A valid starting state, dispersed by the two words of `key`."""
    A, omega2 = starting_statistics(observations, np.random.default_rng(list(map(int, key))))
    theta, sigma2 = starting_regression(A, prior)
    k = theta.size - 1
    n = A[:, 0, 0].sum()
    E = prepare_covariates(covariates, k).bordered + A.sum(axis=0)[:-1, :-1]
    if isinstance(covariates, NIWPrior):
        Psi = np.array(covariates.Psi)
    else:
        variance = E.diagonal()[1:] / n - (E[0, 1:] / n) ** 2
        Psi = np.diag(max(covariates.nu - k - 1.0, 1.0) * np.maximum(variance, 1e-6))
    E[1:, 1:] += Psi
    factor = np.linalg.cholesky(E)
    L = np.ascontiguousarray(factor[1:, 1:]) / math.sqrt(covariates.nu + n)
    return State(theta, sigma2, factor[1:, 0] / factor[0, 0], L, Psi, A, omega2)


class Kernel:
    """The transition ``(rng, state) -> (state, info)``, and the compiled loop over many.

    `rng` is a chain's key of two words and the number of the iteration. A call changes nothing in
    place: with the same arguments it gives the same result.
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior,
        covariates: NIWPrior | HuangWandPrior,
        update: Update,
        interweave: bool | None,
        tries: int,
        tolerance: float,
    ) -> None:
        self.holders = prepare_holders(observations, update=update)
        k = observations[0].k
        self.regression = prepare_regression(prior, k)
        self.covariates = prepare_covariates(covariates, k)
        self.interweave = wants_interweaving(observations) if interweave is None else interweave
        self.tries, self.tolerance = tries, tolerance
        modes = self.holders.mode
        self.needs_eigen = bool(((modes != DENSE) & (modes != CG_JACOBI)).any())

    def __call__(self, rng: tuple[KeyArray, int], state: State) -> tuple[State, Info]:
        """One iteration."""
        key, counter = rng
        new = State(*(np.array(field) for field in state))
        store = make_store(1, *self.holders.values.shape[:2])
        self.advance(key, counter, 1, counter, new, self.workspace(), store)
        return new, Info(*(field[0] for field in store[-3:]))

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
            self.tries, self.tolerance, self.needs_eigen, self.interweave, state, work, large,
            store,
        )  # fmt: skip


def build_kernel(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: NIWPrior | HuangWandPrior,
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
    covariates: NIWPrior | HuangWandPrior,
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
    keep_statistics: bool = False,
    progress: Progress | None = None,
) -> Draws:
    """Draw from the posterior with unknown normal covariates (Gibbs-SS-Update).

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression.
    covariates : NIWPrior or HuangWandPrior
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
    keep_conditional_mean, keep_covariates, keep_statistics : bool
        Also return E[theta | statistics], mu and T, or the latent statistics themselves.
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
    check_run(chains=chains, draws=draws, tune=tune, tries=tries, cores=cores)
    kernel = build_kernel(
        observations, prior, covariates, update=update, interweave=interweave, tries=tries
    )
    keys = chain_keys(seed, chains)
    states = [init(key, observations, prior, covariates) for key in keys]
    stores = [
        make_store(
            draws,
            *kernel.holders.values.shape[:2],
            conditional_mean=keep_conditional_mean,
            covariates=keep_covariates,
            statistics=keep_statistics,
        )
        for _ in keys
    ]
    return run_chains(
        kernel, states, keys, stores, draws=draws, tune=tune, cores=cores, progress=progress
    )


def prepare_covariates(prior: NIWPrior | HuangWandPrior, k: int) -> Covariates:
    """Check the prior of the covariates and put it into arrays."""
    if prior.k != k:
        raise RequestError(f"covariates is for {prior.k} covariates, the statistics are for {k}")
    mean = np.concatenate([[1.0], prior.m])
    return Covariates(
        m=np.array(prior.m),
        lam=float(prior.lam),
        nu=float(prior.nu),
        bordered=prior.lam * np.outer(mean, mean),
        rate=np.zeros(0) if isinstance(prior, NIWPrior) else np.array(prior.rate),
        diagonal=not isinstance(prior, NIWPrior)
        or bool((prior.Psi == np.diag(np.diag(prior.Psi))).all()),
    )
