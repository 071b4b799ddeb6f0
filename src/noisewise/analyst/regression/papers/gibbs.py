"""The Gibbs samplers of Bernstein & Sheldon (2019); they differ in what they know about x.

- Gibbs-SS-Update (`gibbs_update`, and `bs_distributed` for several holders): the covariates are
  normal with unknown mean and covariance, x ~ N(mu, T), (mu, T) ~ normal inverse Wishart. Given the
  latent statistics, (mu, T) and (theta, sigma2) are independent and conjugate: x'x is sufficient
  for (mu, T) whatever y is (their figure 2c).
- Gibbs-SS-Prior (`gibbs_prior`): the rows' covariates are independent draws of a law of which
  E[vv'] and Cov(vv'), v = (1, x), are known (`moments.CovariateMoments`, by formula or simulation).
  The law of the sums of x is then known up to sampling variation, which is a strong assumption:
  with n rows their means are known to about 1/sqrt(n).
- Gibbs-SS-Noisy (`gibbs_noisy`): the same with released fourth moments at face value
  (`moments.released_moments`). Kept because the paper has it. There is no reason to use it: given
  the second moments, fourth moments say nothing about the coefficients, so the budget that pays for
  them is better spent on the second moments (measured posterior sd of a slope: .143 with the whole
  budget on second moments, .204 to .214 with fourth moments), and their noise is ignored (90%
  intervals cover about 87%). With many covariates or much noise the plugged-in moments are not
  those of any law, even after repair: nearly all draws of the statistics are then impossible, and
  `Info.exhausted` says so. `gibbs_noisy_aware` models that noise.

One iteration, with A_j the latent Gram matrix of holder j::

    omega2_j            | A_j                  Laplace noise as a scale mixture of normals
    A_j                 | theta, sigma2, moments of x, omega2_j   `gibbs_statistics`
    theta, sigma2       | sum of A_j           conjugate
    mu, T               | sum of A_j           conjugate, where they are unknown
    all of it           | along orbits         `orbits`

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
arXiv:1910.13153, Algorithm 1 and section 3.4.4.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.chains import Progress, check_counts
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.conjugate import (
    Covariates,
    Regression,
    conditional_mean,
    draw_covariates,
    draw_regression,
    prepare_covariates,
    prepare_regression,
    starting_regression,
    starting_scale,
)
from noisewise.analyst.regression.papers.gibbs_statistics import (
    Moments,
    Statistics,
    draw_noise_variances,
    draw_statistics,
    noise_to_sampling,
    prepare_holders,
    without_constants,
)
from noisewise.analyst.regression.papers.moments import (
    CovariateMoments,
    Law,
    known_moments,
    normal_covariance,
    normal_factor,
    prepare_moments,
    unique_entries,
)
from noisewise.analyst.regression.papers.orbits import (
    movable_columns,
    rows_apart,
    sweep_all,
    sweep_y,
)
from noisewise.analyst.regression.papers.sampling import pooled, sample_chains, starting_statistics
from noisewise.analyst.regression.priors import CovariatePrior, NIWPrior, RegressionPrior
from noisewise.core.errors import RequestError

# Fewest columns of w for which conjugate gradients beat the dense solution.
GRADIENTS_FROM = 13
# Ratio of noise to sampling variance from which moves along orbits pay.
INTERWEAVE_FROM = 0.1


# --- model, state, info ---------------------------------------------------------------------------


class Model(NamedTuple):
    """What does not change in a chain."""

    statistics: Statistics
    regression: Regression
    covariates: Covariates  # not used where their law is known
    interweave: bool
    movable: BoolArray  # (P,), columns that move along orbits
    apart: int  # every so many-th covariate moves in one sweep


class State(NamedTuple):
    """What the next iteration needs. `A` is positive definite for every holder."""

    theta: FloatArray  # (d,)
    sigma2: float
    mu: FloatArray  # (k,)
    L: FloatArray  # (k, k), lower triangular, T = LL'
    Psi: FloatArray  # (k, k), scale matrix of T; drawn where the prior has it unknown
    A: FloatArray  # (J, P, P), latent statistics
    omega2: FloatArray  # (J, P, P), noise variances; drawn for Laplace noise


class Info(NamedTuple):
    """Diagnostics of every draw, arrays of shape (chains, draws)."""

    rejected: IntArray  # invalid draws of A_j that were rejected, all holders together
    exhausted: IntArray  # holders whose draw ran out of tries (or could not be factored)
    solver_iterations: IntArray  # of conjugate gradients


class Draws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: FloatArray  # (chains, draws, d), E[theta | statistics]; no draws if not kept
    mu: FloatArray  # (chains, draws, k); no draws if not kept or not in the model
    T: FloatArray  # (chains, draws, k, k); likewise
    statistics: FloatArray  # (chains, kept, J, P, P), the latent A_j of evenly spaced draws
    info: Info


class Trace(NamedTuple):
    """What each of many iterations gave."""

    theta: FloatArray
    sigma2: FloatArray
    total: FloatArray  # (count, P, P), the sum of the A_j
    mu: FloatArray
    L: FloatArray
    A: FloatArray
    counts: IntArray  # (count, 3), in the order of Info


# --- compiled: an iteration -----------------------------------------------------------------------


@compiled
def step(
    rng: np.random.Generator, model: Model, state: State, number: int
) -> tuple[State, tuple[int, int, int]]:
    """Iteration `number`; the next state, and the numbers of Info."""
    theta, sigma2, mu, L, Psi = state.theta, state.sigma2, state.mu, state.L, state.Psi
    P, holders, known = theta.size + 1, model.statistics.holders, model.statistics.known
    law, dense = model.statistics.law, model.statistics.dense
    omega2 = draw_noise_variances(rng, holders, state.A, state.omega2)
    F, C = np.zeros((P, P)), np.zeros((0, 0))
    V, values = np.zeros((P, P)), np.zeros(P)
    if known:
        G, C = known_moments(law, theta, sigma2)
    else:
        F, G = normal_factor(theta, sigma2, mu, L)
        if dense:
            C = normal_covariance(G, F[:, 0].copy(), law.rows, law.columns)
        else:
            values, vectors = np.linalg.eigh(G)
            V = np.ascontiguousarray(vectors)  # LAPACK counts by columns
    row = Moments(F, G, C, values, V)
    A = state.A.copy()
    rejected, exhausted, iterations = 0, 0, 0
    for j in range(A.shape[0]):
        A[j], r, e, i = draw_statistics(
            rng, model.statistics, j, row, theta, sigma2, state.A[j], omega2[j]
        )
        rejected, exhausted, iterations = rejected + r, exhausted + e, iterations + i
    total = pooled(A)
    theta, sigma2 = draw_regression(rng, model.regression, total, theta, sigma2)
    if known:
        if model.interweave:
            theta, sigma2, A = sweep_y(
                rng, model.regression, model.movable, holders.values, holders.scale, omega2, theta,
                sigma2, A,
            )  # fmt: skip
    else:
        mu, L, Psi = draw_covariates(rng, model.covariates, total, mu, L, Psi)
        if model.interweave:
            theta, sigma2, mu, L, A = sweep_all(
                rng, model.regression, model.covariates, model.movable, number % model.apart,
                model.apart, holders.values, holders.scale, omega2, theta, sigma2, mu, L, Psi, A,
            )  # fmt: skip
    return State(theta, sigma2, mu, L, Psi, A, omega2), (rejected, exhausted, iterations)


@compiled
def run(
    rng: np.random.Generator, model: Model, state: State, first: int, count: int
) -> tuple[State, Trace]:
    """Iterations first, ..., first + count - 1."""
    J, P = state.A.shape[:2]
    k = P - 2
    trace = Trace(
        np.zeros((count, k + 1)), np.zeros(count), np.zeros((count, P, P)), np.zeros((count, k)),
        np.zeros((count, k, k)), np.zeros((count, J, P, P)), np.zeros((count, 3), dtype=np.int64),
    )  # fmt: skip
    for t in range(count):
        state, counts = step(rng, model, state, first + t)
        trace.theta[t] = state.theta
        trace.sigma2[t] = state.sigma2
        trace.total[t] = pooled(state.A)
        trace.mu[t] = state.mu
        trace.L[t] = state.L
        trace.A[t] = state.A
        for i in range(3):
            trace.counts[t, i] = counts[i]
    return state, trace


# --- init, model, top-level call ------------------------------------------------------------------


def init(
    rng: np.random.Generator,
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior | CovariateMoments,
) -> State:
    """A valid starting state, dispersed at random."""
    k = observations[0].k
    A, omega2 = starting_statistics(observations, rng)
    theta, sigma2 = starting_regression(A, prepare_regression(prior, k))
    if isinstance(covariates, CovariateMoments):
        return State(theta, sigma2, np.zeros(k), np.eye(k), np.eye(k), A, omega2)
    n = A[:, 0, 0].sum()
    E = prepare_covariates(covariates, k).bordered + A.sum(axis=0)[:-1, :-1]
    Psi = starting_scale(covariates, E.diagonal()[1:] / n - (E[0, 1:] / n) ** 2)
    E[1:, 1:] += Psi
    root = np.linalg.cholesky(E)
    L = np.ascontiguousarray(root[1:, 1:]) / math.sqrt(covariates.nu + n)
    return State(theta, sigma2, root[1:, 0] / root[0, 0], L, Psi, A, omega2)


def build_model(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior | CovariateMoments,
    *,
    interweave: bool | None = None,
    tries: int = 50,
    dense: bool | None = None,
) -> Model:
    """Put everything into arrays; arguments as for `sample`."""
    check_counts(tries=tries)
    holders = prepare_holders(observations)
    k = observations[0].k
    known = isinstance(covariates, CovariateMoments)
    if isinstance(covariates, CovariateMoments):
        if covariates.k != k:
            raise RequestError(
                f"covariates is for {covariates.k} covariates, the statistics are for {k}"
            )
        law = prepare_moments(covariates)
        holders = without_constants(holders, law)
        learnt = prepare_covariates(NIWPrior.weakly_informative(k), k)
    else:
        law = Law(
            np.eye(k + 1), np.zeros((0, 0)), np.zeros((0, 0)), np.eye(k + 1),
            np.zeros((k + 1, k + 1), dtype=np.int64), *unique_entries(k + 2),
        )  # fmt: skip
        learnt = prepare_covariates(covariates, k)
    dense = known or (k + 2 < GRADIENTS_FROM if dense is None else dense)
    return Model(
        statistics=Statistics(holders, law, known, dense, tries),
        regression=prepare_regression(prior, k),
        covariates=learnt,
        interweave=wants_interweaving(observations) if interweave is None else interweave,
        movable=movable_columns(holders.scale),
        apart=rows_apart(k),
    )


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior | CovariateMoments,
    *,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 500,
    seed: int | None = None,
    cores: int | None = None,
    interweave: bool | None = None,
    tries: int = 50,
    keep_conditional_mean: bool = False,
    keep_covariates: bool = False,
    keep_statistics: bool | int = False,
    progress: Progress | None = None,
) -> Draws:
    """Draw from the posterior, with the covariates' law unknown or known.

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression.
    covariates : NIWPrior, HierarchicalNIWPrior, HuangWandPrior or CovariateMoments
        Prior of the mean and covariance of the covariates, which all holders share
        (Gibbs-SS-Update); or known moments of one row's covariates (Gibbs-SS-Prior and -Noisy):
        `CovariateMoments.normal`, `.from_prior` by simulation, `.from_niw` for independent rows of
        the multivariate t law of an NIWPrior, `released_moments` of released fourth moments.
    chains, draws, tune : int
        Chains, and iterations of each after and during warm-up.
    seed : int, optional
        The same seed gives the same draws, on any number of cores.
    cores : int, optional
        Chains that run at a time. Default: all cores that this process may use.
    interweave : bool, optional
        Move along orbits too (see `orbits`). By default where the noise is not small compared with
        the sampling variation of the statistics.
    tries : int
        Impossible statistics are drawn again up to so many times.
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
    model = build_model(observations, prior, covariates, interweave=interweave, tries=tries)
    warn_of_few_rows(observations)
    kept = draws if keep_statistics is True else int(keep_statistics)
    of_x = draws if keep_covariates and not model.statistics.known else 0
    trace = sample_chains(
        lambda rng: init(rng, observations, prior, covariates),
        lambda rng, state, first, count: run(rng, model, state, first, count),
        chains=chains, draws=draws, tune=tune, seed=seed, cores=cores, progress=progress,
        keep={"A": kept, "total": draws if keep_conditional_mean else 0, "mu": of_x, "L": of_x},
    )  # fmt: skip
    return make_draws(trace, model.regression)


def make_draws(trace: Trace, prior: Regression) -> Draws:
    """Draws from the traces of all chains."""
    kept = trace.total.shape[1]
    return Draws(
        trace.theta,
        trace.sigma2,
        conditional_mean(prior, trace.total, trace.sigma2[:, :kept]),
        trace.mu,
        trace.L @ np.swapaxes(trace.L, -1, -2),
        trace.A,
        Info(*np.moveaxis(trace.counts, -1, 0)),
    )


def wants_interweaving(observations: Sequence[Observation]) -> bool:
    """Whether noise is large enough, for some holder, that moves along orbits pay."""
    return max(noise_to_sampling(observation) for observation in observations) > INTERWEAVE_FROM


def warn_of_few_rows(observations: Sequence[Observation]) -> None:
    """Warn where the central limit theorem is far away."""
    smallest, P = min(seen.n for seen in observations), observations[0].k + 2
    if smallest < 4 * P:
        warnings.warn(
            f"the smallest holder has n = {smallest} rows for {P} columns. The gibbs methods rest "
            f"on the central limit theorem and are unreliable below n = {4 * P}; use the exact "
            "method",
            stacklevel=3,
        )


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
