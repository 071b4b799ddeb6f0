"""Released fourth moments as noisy observations: the future work of Bernstein & Sheldon (2019).

`gibbs_noisy` plugs noisy fourth moments in as if they were the covariates' law. Here every released
monomial is a noisy observation of a latent sum over the holder's rows, with a flat prior:

- degree 1 and 2: these sums *are* the entries of S = Σ vv', v = (1, x). So S is observed twice,
  once in each release, with different noise;
- degree 3 and 4: given S they have no influence on y, and their flat prior integrates out. What
  they cost in budget buys nothing (see `gibbs_noisy`).

Given S the regression needs no law of the covariates, and no central limit theorem::

    S                    flat over positive definite matrices (S_00 = n)
    z = S theta + c,       c ~ N(0, sigma2 S)
    u = theta'S theta + 2 theta'c + q,  q - c'S⁻¹c ~ sigma2 chi²(n - d)

so, unlike the other `gibbs_*` methods, all conditionals are those of one joint law. One iteration:

    omega2              | statistics       Laplace noise as a scale mixture of normals
    (c, q)              | S, theta, sigma2   independence Metropolis from the normal approximation
    S                   | c, q, theta      preconditioned Crank-Nicolson Metropolis
    theta, sigma2       | statistics       conjugate
    theta, sigma2, z, u | along orbits     `gibbs_interweave`, y only

The second and third step are those of `gibbs_flat`.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS, section
3.4.4 ("an interesting avenue for future work"), arXiv:1910.13153.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Progress
from noisewise.analyst.random_numbers import KeyArray, seed_stream
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import gibbs
from noisewise.analyst.regression.papers.gibbs import Draws, Store
from noisewise.analyst.regression.papers.gibbs_arrays import Work, workspace
from noisewise.analyst.regression.papers.gibbs_compiled import compiled
from noisewise.analyst.regression.papers.gibbs_flat import (
    PERSISTENCE,
    Buffers,
    Fourth,
    draw_fourth_variances,
    draw_s,
    draw_y,
    make_buffers,
)
from noisewise.analyst.regression.papers.gibbs_interweave import update_regression
from noisewise.analyst.regression.papers.gibbs_linalg import fill
from noisewise.analyst.regression.papers.gibbs_orbits import Orbits, prepare_orbits
from noisewise.analyst.regression.papers.gibbs_start import starting_regression, starting_statistics
from noisewise.analyst.regression.papers.gibbs_statistics import draw_noise_variances
from noisewise.analyst.regression.papers.moments_formulas import unique_entries
from noisewise.analyst.regression.papers.moments_fourth import (
    FourthMomentObservation,
    monomial_positions,
)
from noisewise.analyst.regression.priors import RegressionPrior
from noisewise.core.errors import RequestError

Scratch = tuple[Work, Orbits, Buffers]


# --- state ----------------------------------------------------------------------------------------


class State(NamedTuple):
    """What the next iteration needs. `A` is positive definite for every holder."""

    theta: FloatArray  # (d,)
    sigma2: FloatArray  # ()
    A: FloatArray  # (J, P, P), latent statistics
    omega2: FloatArray  # (J, P, P), noise variances of the second moments
    omega2_fourth: FloatArray  # (J, qv), noise variances of degree 1 and 2 in the fourth moments


# --- compiled -------------------------------------------------------------------------------------


@compiled
def _run(  # type: ignore[no-untyped-def]
    key, first, count, keep_from, holders, regression, fourth, orbits, interweave, state, work,
    buffers, store
):  # fmt: skip
    """Iterations first, ..., first + count - 1 of a chain; stores those from `keep_from` on."""
    rng, counts = work.rng, work.counts
    for t in range(first, first + count):
        seed_stream(rng, key, t)
        draw_noise_variances(rng, holders, state.A, state.omega2)
        draw_fourth_variances(rng, fourth, state.A, state.omega2_fourth)
        fill(counts, 0)
        for j in range(state.A.shape[0]):
            n, A, omega2 = holders.n[j], state.A[j], state.omega2[j]
            values, scale = holders.values[j], holders.scale[j]
            moved = draw_y(rng, n, values, scale, omega2, state.theta, state.sigma2[()], A, buffers)
            accepted = draw_s(
                rng, n, values, scale, omega2, state.theta, A, j, fourth,
                state.omega2_fourth[j], buffers,
            )  # fmt: skip
            counts[0] += 1 + len(PERSISTENCE) - moved - accepted
            counts[1] += 1 if accepted == 0 else 0
        update_regression(
            rng, t - keep_from, holders, regression, interweave, state, orbits, work, store
        )


# --- init, kernel, top-level call -----------------------------------------------------------------


def init(
    key: KeyArray,
    observations: Sequence[Observation],
    prior: RegressionPrior,
    fourth: Sequence[FourthMomentObservation | None],
) -> State:
    """A valid starting state, dispersed by the two words of `key`."""
    A, omega2 = starting_statistics(observations, np.random.default_rng(list(map(int, key))))
    d = observations[0].k + 1
    omega2_fourth = np.zeros((len(observations), d * (d + 1) // 2 - 1))
    for j, f in enumerate(fourth):
        if f is not None:
            omega2_fourth[j] = f.scale**2 * (2.0 if f.family == "laplace" else 1.0)
    return State(*starting_regression(A, prior), A, omega2, omega2_fourth)


class Kernel(gibbs.Kernel[State]):
    """See `gibbs.Kernel`.

    In `Info`, `rejected` counts rejected Metropolis proposals (4 are made for each holder), and
    `exhausted` the holders whose S stayed.
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior,
        fourth: Sequence[FourthMomentObservation | None],
        interweave: bool | None,
    ) -> None:
        super().__init__(observations, prior, update="dense", interweave=interweave, clt=False)
        self.fourth = prepare_fourth(observations, fourth)

    def workspace(self) -> Scratch:
        """Scratch space for one thread."""
        orbits = prepare_orbits(self.holders.scale, covariates=False)
        return workspace(self.holders)[0], orbits, make_buffers(self.holders.values.shape[1])

    def advance(
        self, key: KeyArray, first: int, count: int, keep_from: int, state: State,
        scratch: Scratch, store: Store,
    ) -> None:  # fmt: skip
        """Run `count` iterations in place, storing those from number `keep_from` on."""
        work, orbits, buffers = scratch
        _run(
            key, first, count, keep_from, self.holders, self.regression, self.fourth, orbits,
            self.interweave, state, work, buffers, store,
        )  # fmt: skip


def build_kernel(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    fourth: Sequence[FourthMomentObservation | None],
    *,
    interweave: bool | None = None,
) -> Kernel:
    """The kernel for the given releases and prior; arguments as for `sample`."""
    return Kernel(observations, prior, fourth, interweave)


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    fourth: Sequence[FourthMomentObservation | None],
    *,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 500,
    seed: int | None = None,
    cores: int | None = None,
    interweave: bool | None = None,
    keep_conditional_mean: bool = False,
    keep_statistics: bool | int = False,
    progress: Progress | None = None,
) -> Draws:
    """Draw from the posterior with fourth moments as noisy observations of latent sums.

    Parameters
    ----------
    observations : sequence of Observation
        Second moments, one for each holder, over the same columns.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression. The covariates need none: their statistics have a flat prior.
    fourth : sequence of FourthMomentObservation or None
        Fourth moments, one for each holder; None if a holder released none.
    chains, draws, tune, seed, cores, interweave, keep_conditional_mean, keep_statistics, progress
        As for `gibbs_update.sample`.

    Returns
    -------
    Draws
        Without the covariates' mean and covariance. In `info`, `rejected` counts rejected
        Metropolis proposals, of which each holder has 4 an iteration.
    """
    kernel = build_kernel(observations, prior, fourth, interweave=interweave)
    start = partial(init, observations=observations, prior=prior, fourth=fourth)
    return gibbs.sample_chains(
        kernel, start, chains=chains, draws=draws, tune=tune, seed=seed, cores=cores,
        progress=progress, conditional_mean=keep_conditional_mean, statistics=keep_statistics,
    )  # fmt: skip


def prepare_fourth(
    observations: Sequence[Observation], fourth: Sequence[FourthMomentObservation | None]
) -> Fourth:
    """Check the fourth moments against the second ones and put them into arrays."""
    if len(fourth) != len(observations):
        raise RequestError(
            f"fourth must have one entry for each holder (None: not released); got {len(fourth)} "
            f"for {len(observations)} holders"
        )
    k = observations[0].k
    rows, columns = unique_entries(k + 1)
    where = monomial_positions(k)[0, 1:]
    values = np.zeros((len(observations), rows.size))
    scale = np.full(len(observations), np.inf)
    laplace = np.zeros(len(observations), dtype=bool)
    for j, (observation, f) in enumerate(zip(observations, fourth, strict=True)):
        if f is None:
            if not np.isfinite(observation.scale[:-1, :-1]).all():
                raise RequestError(
                    "an entry of the covariates' second moments was released neither in the second "
                    "nor in the fourth moments: with a flat prior it cannot be inferred"
                )
            continue
        if f.k != k or f.n != observation.n:
            raise RequestError(
                f"fourth moments are of {f.n} rows and {f.k} covariates, second moments of "
                f"{observation.n} rows and {k} covariates: they must come from the same rows"
            )
        if f.scale == 0:
            raise RequestError("fourth moments have no noise (scale 0): that is no private release")
        values[j], scale[j], laplace[j] = f.values[where], f.scale, f.family == "laplace"
    return Fourth(values, scale, laplace, rows, columns)
