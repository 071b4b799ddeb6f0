"""What the Gibbs samplers of Bernstein & Sheldon (2019) share. The samplers have their own files.

One iteration of every `gibbs_*` method, with A_j the latent Gram matrix of holder j::

    omega2_j            | A_j                  Laplace noise as a scale mixture of normals
    A_j                 | theta, sigma2, moments of x, omega2_j, released values
    theta, sigma2       | sum of A_j           conjugate
    moments of x        | sum of A_j           where the method has them unknown
    all of it           | along orbits         `gibbs_interweave`

`gibbs_statistics` has the draw of A_j, and why it keeps its target; `gibbs_regression` and
`gibbs_covariates` the conjugate draws; `gibbs_interweave` the moves along orbits. Observations
become arrays in `gibbs_holders`, chains start by `gibbs_start`. Here are what their kernels share,
what chains keep, and what the diagnostics mean.

**What is approximate.** A_j | theta by the central limit theorem and theta | A_j by conjugacy are
conditionals of different joint laws. The stationary law is near both for n much larger than the
number P of columns of w; at n = 10 and one covariate it inflates the standard deviation of theta by
about 6%. Measured against `exact` with one covariate and noise about as large as sampling
variation, root mean square over data sets: with one holder means are off by 0.04 posterior standard
deviations (0.02 with interweaving) at n = 30, and by nothing measurable from n = 100 on. With two
holders, whose statistics can disagree, the skewness that the theorem neglects stays visible for
longer: 0.10 (0.05 with interweaving) at n = 300 each, at most 0.2 in a single data set, and nothing
measurable at n = 3000. Much noise hides all of it.

A normal matrix with the moments of a Gram matrix is positive definite with high probability only if
n > 4P or so (its eigenvalues spread over 1 ± 2 sqrt(P/n)): below that nearly all draws are
rejected, and a warning is given.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS,
arXiv:1910.13153, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray, IntArray
from noisewise.analyst.chains import Progress, check_counts
from noisewise.analyst.random_numbers import KeyArray, chain_keys
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import kernels
from noisewise.analyst.regression.papers.gibbs_arrays import Holders
from noisewise.analyst.regression.papers.gibbs_holders import (
    Update,
    prepare_holders,
    wants_interweaving,
)
from noisewise.analyst.regression.papers.gibbs_regression import Regression, prepare_regression
from noisewise.analyst.regression.papers.kernels import StateT
from noisewise.analyst.regression.priors import RegressionPrior


class Info(NamedTuple):
    """Diagnostics of one iteration; of many, as arrays of shape (chains, draws)."""

    rejected: IntArray  # invalid draws of A_j that were rejected, all holders together
    exhausted: IntArray  # holders whose draw ran out of tries (or could not be factored)
    solver_iterations: IntArray  # conjugate-gradient iterations


class Draws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: FloatArray  # (chains, draws, d), E[theta | statistics]; no draws if not kept
    mu: FloatArray  # (chains, draws, k); no draws if not kept or not in the model
    T: FloatArray  # (chains, draws, k, k); likewise
    statistics: FloatArray  # (chains, kept, J, P, P), the latent A_j of evenly spaced draws
    info: Info


class Store(NamedTuple):
    """Where a compiled loop puts one chain's draws. What is not kept has length 0."""

    theta: FloatArray
    sigma2: FloatArray
    conditional_mean: FloatArray
    mu: FloatArray
    T: FloatArray
    statistics: FloatArray
    rejected: IntArray
    exhausted: IntArray
    solver_iterations: IntArray


# --- a kernel -------------------------------------------------------------------------------------


class Kernel(kernels.Kernel[StateT]):
    """See `kernels.Kernel`."""

    holders: Holders
    regression: Regression
    interweave: bool

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior,
        *,
        update: Update,
        interweave: bool | None,
        clt: bool = True,
    ) -> None:
        self.holders = prepare_holders(observations, update=update, clt=clt)
        self.regression = prepare_regression(prior, observations[0].k)
        self.interweave = wants_interweaving(observations) if interweave is None else interweave

    def __call__(self, rng: tuple[KeyArray, int], state: StateT) -> tuple[StateT, Info]:
        """One iteration."""
        key, counter = rng
        new = kernels.copied(state)
        store = make_store(1, *self.holders.values.shape[:2])
        self.advance(key, counter, 1, counter, new, self.workspace(), store)
        return new, Info(*(field[0] for field in store[-3:]))


# --- running chains -------------------------------------------------------------------------------


def sample_chains(
    kernel: Kernel[StateT],
    init: Callable[[KeyArray], StateT],
    *,
    chains: int,
    draws: int,
    tune: int,
    seed: int | None,
    cores: int | None,
    progress: Progress | None,
    conditional_mean: bool = False,
    covariates: bool = False,
    statistics: bool | int = False,
) -> Draws:
    """Run chains in parallel threads, each from the state that `init` makes of its key."""
    check_counts(chains=chains, draws=draws, tune=tune, cores=cores)
    keys = chain_keys(seed, chains)
    states = [init(key) for key in keys]
    J, P = kernel.holders.values.shape[:2]
    stores = [
        make_store(
            draws, J, P,
            conditional_mean=conditional_mean, covariates=covariates, statistics=statistics,
        )
        for _ in keys
    ]  # fmt: skip
    kernels.advance_chains(
        kernel, keys, states, stores, tune=tune, iterations=draws, cores=cores, progress=progress
    )
    all_chains = Store(*(np.stack(parts) for parts in zip(*stores, strict=True)))
    return Draws(*all_chains[:-3], Info(*all_chains[-3:]))


def make_store(
    draws: int,
    J: int,
    P: int,
    *,
    conditional_mean: bool = False,
    covariates: bool = False,
    statistics: bool | int = False,
) -> Store:
    """Empty arrays for one chain's draws."""
    k = P - 2
    kept = draws if covariates else 0
    return Store(
        theta=np.zeros((draws, k + 1)),
        sigma2=np.zeros(draws),
        conditional_mean=np.zeros((draws if conditional_mean else 0, k + 1)),
        mu=np.zeros((kept, k)),
        T=np.zeros((kept, k, k)),
        statistics=np.zeros((draws if statistics is True else int(statistics), J, P, P)),
        rejected=np.zeros(draws, dtype=np.int64),
        exhausted=np.zeros(draws, dtype=np.int64),
        solver_iterations=np.zeros(draws, dtype=np.int64),
    )


# --- diagnostics in words -------------------------------------------------------------------------


def trouble(info: Info) -> tuple[str, ...]:
    """What the diagnostics say against the draws, in plain words; nothing if all is well.

    For the methods that rest on the central limit theorem. In `gibbs_noisy_aware` a Metropolis step
    that stays is no trouble.
    """
    share = float(np.mean(info.exhausted > 0))
    if share < 0.01:
        return ()
    return (
        f"In {share:.0%} of the iterations no possible statistics were found by drawing, and the "
        "chain took small steps instead. There are too few rows for the number of columns, or the "
        "assumed covariates contradict the release. Use the exact method.",
    )
