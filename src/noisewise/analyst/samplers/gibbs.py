"""What the Gibbs samplers of Bernstein & Sheldon (2019) share. The samplers have their own files.

One iteration of every `gibbs_*` method, with A_j the latent Gram matrix of holder j::

    omega2_j            | A_j                  Laplace noise as a scale mixture of normals
    A_j                 | theta, sigma2, moments of x, omega2_j, released values
    theta, sigma2       | sum of A_j           conjugate
    moments of x        | sum of A_j           where the method has them unknown
    all of it           | along orbits         `gibbs_interweave`

`gibbs_statistics` has the draw of A_j, and why it keeps its target; `gibbs_interweave` the moves
along orbits; here are the conjugate draw of the regression, the preparation of observations and
priors, and the loop over chains.

**What is approximate.** A_j | theta by the central limit theorem and theta | A_j by conjugacy are
conditionals of different joint laws. The stationary law is near both for n much larger than the
number P of columns of w; at n = 10 and one covariate it inflates the standard deviation of theta by
about 6%. A normal matrix with the moments of a Gram matrix is positive definite with high
probability only if n > 4P or so (its eigenvalues spread over 1 ± 2 sqrt(P/n)): below that nearly
all draws are rejected, and a warning is given.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS,
arXiv:1910.13153, Algorithm 1.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.models.moments import unique_entries
from noisewise.analyst.observation import Observation
from noisewise.analyst.priors import NIGPrior, NormalInverseGammaIndependent
from noisewise.analyst.samplers.gibbs_linalg import (
    FASTMATH,
    cholesky,
    copy,
    fill,
    solve_lower_transposed,
)
from noisewise.analyst.samplers.gibbs_random import KeyArray, fill_normal, gamma
from noisewise.analyst.samplers.gibbs_statistics import (
    CG_EIGEN,
    CG_JACOBI,
    DENSE,
    EIGEN,
    Holders,
    Large,
    Work,
)
from noisewise.core.errors import ReleaseError, RequestError

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
Update = Literal["auto", "dense", "eigen", "cg_jacobi", "cg_eigen"]
RegressionPrior = NIGPrior | NormalInverseGammaIndependent
Progress = Callable[[int, int], None]

_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)

_MODES = {"dense": DENSE, "eigen": EIGEN, "cg_jacobi": CG_JACOBI, "cg_eigen": CG_EIGEN}
# Fewest columns of w for which the eigenbasis, and conjugate gradients, beat the dense solution.
EIGEN_FROM, CG_FROM = 8, 13
# Ratio of noise to sampling variance from which moves along orbits pay (see `gibbs_interweave`).
INTERWEAVE_FROM = 0.1


class Regression(NamedTuple):
    """A prior of (theta, sigma2), in the form the compiled functions take."""

    mu0: FloatArray  # (d,)
    precision: FloatArray  # (d, d), of theta; in units of 1 / sigma2 unless `independent`
    bordered: FloatArray  # (P, P), [[precision, precision mu0], [., mu0' precision mu0]]
    a0: float
    b0: float
    independent: bool  # theta and sigma2 a priori independent
    diagonal: bool  # the precision is diagonal


class Info(NamedTuple):
    """Diagnostics of one iteration; of many, as arrays of shape (chains, draws)."""

    rejected: IndexArray  # invalid draws of A_j that were rejected, all holders together
    exhausted: IndexArray  # holders whose draw ran out of tries (or could not be factored)
    solver_iterations: IndexArray  # conjugate-gradient iterations


class Draws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: FloatArray  # (chains, draws, d), E[theta | statistics]; no draws if not kept
    mu: FloatArray  # (chains, draws, k); no draws if not kept or not in the model
    T: FloatArray  # (chains, draws, k, k); likewise
    statistics: FloatArray  # (chains, draws, J, P, P), the latent A_j; no draws if not kept
    info: Info


class Store(NamedTuple):
    """Where a compiled loop puts one chain's draws. What is not kept has length 0."""

    theta: FloatArray
    sigma2: FloatArray
    conditional_mean: FloatArray
    mu: FloatArray
    T: FloatArray
    statistics: FloatArray
    rejected: IndexArray
    exhausted: IndexArray
    solver_iterations: IndexArray


# --- compiled: the regression ---------------------------------------------------------------------


@_jit
def pool(A, out):  # type: ignore[no-untyped-def]
    """Sum of all holders' statistics."""
    fill(out, 0.0)
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            for b in range(A.shape[1]):
                out[a, b] += A[j, a, b]


@_jit
def _factor_regression(total, prior, sigma2, B):  # type: ignore[no-untyped-def]
    """Factor B = prior + A, which has all parameters of the conjugate law in it.

    The leading block is the factor of Lambda_n, the last row is (Lambda_n^(1/2) mu_n)', and the
    square of the last entry is 2 b_n.
    """
    d = total.shape[0] - 1
    weight = 1.0 / sigma2 if prior.independent else 1.0
    for a in range(d + 1):
        for b in range(a + 1):
            B[a, b] = prior.bordered[a, b] + weight * total[a, b]
    if not prior.independent:
        B[d, d] += 2.0 * prior.b0
    return cholesky(B, d + 1)


@_jit
def draw_regression(rng, total, prior, theta, sigma2, work):  # type: ignore[no-untyped-def]
    """theta, sigma2 | pooled statistics, in place; left alone if those cannot be factored."""
    d = theta.size
    B, g = work.squares[0], work.vectors[0]
    if not _factor_regression(total, prior, sigma2[()], B):
        return
    a_n = prior.a0 + 0.5 * total[0, 0]
    spread = 1.0
    if not prior.independent:
        sigma2[()] = 0.5 * B[d, d] * B[d, d] / gamma(rng, a_n)
        spread = math.sqrt(sigma2[()])
    fill_normal(rng, g, d)
    for a in range(d):
        theta[a] = B[d, a] + spread * g[a]
    solve_lower_transposed(B, theta, d)
    if prior.independent:
        square = total[d, d]
        for a in range(d):
            row = -2.0 * total[a, d]
            for b in range(d):
                row += total[a, b] * theta[b]
            square += theta[a] * row
        sigma2[()] = (prior.b0 + 0.5 * max(square, 0.0)) / gamma(rng, a_n)


@_jit
def store_draw(row, A, regression, theta, sigma2, store, work):  # type: ignore[no-untyped-def]
    """Put one draw into row `row` of the store, where it is not negative (warm-up)."""
    if row < 0:
        return
    copy(theta, store.theta[row])
    store.sigma2[row] = sigma2[()]
    store.rejected[row] = work.counts[0]
    store.exhausted[row] = work.counts[1]
    store.solver_iterations[row] = work.counts[2]
    if store.conditional_mean.size > 0:
        total, B, d = work.squares[2], work.squares[0], theta.size
        mean = store.conditional_mean[row]
        pool(A, total)
        _factor_regression(total, regression, sigma2[()], B)
        for a in range(d):
            mean[a] = B[d, a]
        solve_lower_transposed(B, mean, d)
    if store.statistics.size > 0:
        copy(A, store.statistics[row])


# --- diagnostics in words -------------------------------------------------------------------------


def trouble(info: Info) -> tuple[str, ...]:
    """What the diagnostics say against the draws, in plain words; nothing if all is well."""
    share = float(np.mean(info.exhausted > 0))
    if share < 0.01:
        return ()
    return (
        f"In {share:.0%} of the iterations no possible statistics were found by drawing, and the "
        "chain took small steps instead. There are too few rows for the number of columns, or the "
        "assumed covariates contradict the release. Use the exact method.",
    )


# --- from observations and priors to arrays -------------------------------------------------------


def prepare_holders(
    observations: Sequence[Observation], *, update: Update = "auto", clt: bool = True
) -> Holders:
    """Stack observations and choose how each holder's equations are solved.

    Warns about small holders if the method rests on the central limit theorem (`clt`).
    """
    if not observations:
        raise RequestError("give the observation of at least one holder")
    P = observations[0].k + 2
    if any(observation.k + 2 != P for observation in observations):
        raise RequestError(
            "all holders must cover the same columns; got "
            f"{[observation.k for observation in observations]} covariates"
        )
    smallest = min(observation.n for observation in observations)
    if smallest < P:
        raise RequestError(
            f"a holder with n = {smallest} rows is too small for {P - 2} covariates: at least "
            f"k + 2 = {P} rows are needed. Use fewer covariates, or leave the holder out"
        )
    if clt and smallest < 4 * P:
        warnings.warn(
            f"the smallest holder has n = {smallest} rows for {P} columns. The gibbs methods rest "
            f"on the central limit theorem and are unreliable below n = {4 * P}; use the exact "
            "method",
            stacklevel=5,  # the caller of `sample`
        )
    if update != "auto" and update not in _MODES:
        raise RequestError(f"update must be 'auto' or one of {sorted(_MODES)}; got {update!r}")
    rows, columns = unique_entries(P)
    J = len(observations)
    observed = np.zeros((J, rows.size), dtype=np.int64)
    n_observed = np.zeros(J, dtype=np.int64)
    modes = np.zeros(J, dtype=np.int64)
    isometric = np.zeros(J)
    for j, observation in enumerate(observations):
        released = np.flatnonzero(np.isfinite(observation.scale[rows, columns]))
        observed[j, : released.size] = released
        n_observed[j] = released.size
        is_isometric, isometric[j] = _isometric_variance(observation)
        if update == "auto":
            modes[j] = _choose_mode(observation, is_isometric, released.size == rows.size)
        else:
            modes[j] = _MODES[update]
        if modes[j] == EIGEN and not is_isometric:
            raise RequestError(
                "update='eigen' needs Gaussian noise in the isometric layout on every entry"
            )
        if modes[j] == CG_EIGEN and released.size != rows.size:
            raise RequestError("update='cg_eigen' needs a release of every entry")
    return Holders(
        n=np.array([float(observation.n) for observation in observations]),
        laplace=np.array([observation.family == "laplace" for observation in observations]),
        values=np.stack([observation.values for observation in observations]),
        scale=np.stack([observation.scale for observation in observations]),
        mode=modes,
        observed=observed,
        n_observed=n_observed,
        complete=n_observed == rows.size,
        isometric=isometric,
        rows=rows,
        columns=columns,
    )


def wants_interweaving(observations: Sequence[Observation]) -> bool:
    """Whether noise is large enough, for some holder, that moves along orbits pay."""
    return max(noise_to_sampling(observation) for observation in observations) > INTERWEAVE_FROM


def _isometric_variance(observation: Observation) -> tuple[bool, float]:
    P = observation.k + 2
    scale = observation.scale[-1, -1]
    expected = np.where(np.eye(P, dtype=bool), scale, scale / math.sqrt(2.0))
    expected[0, 0] = 0.0
    matches = (
        observation.family == "gaussian"
        and 0 < scale < np.inf
        and np.allclose(observation.scale, expected, rtol=1e-9, atol=0.0)
    )
    return matches, float(scale) ** 2 if matches else 0.0


def _choose_mode(observation: Observation, is_isometric: bool, complete: bool) -> int:
    P = observation.k + 2
    if is_isometric and P >= EIGEN_FROM:
        return EIGEN
    if P < CG_FROM:
        return DENSE
    if not complete:
        return CG_JACOBI
    # Noise that dominates leaves a nearly diagonal system; otherwise Cov dominates. Normal noise
    # is nearly isometric in any layout, so that the eigenbasis is good for longer.
    far = 10.0 if observation.family == "gaussian" else 1.0
    return CG_JACOBI if noise_to_sampling(observation) > far else CG_EIGEN


def noise_to_sampling(observation: Observation) -> float:
    """Median ratio of the noise to the sampling variance of the released entries; inf if none."""
    P = observation.k + 2
    G = rough_population([observation])
    rows, columns = unique_entries(P)
    diagonal = G.diagonal()
    sampling = np.outer(diagonal, diagonal) + G**2 - 2.0 * np.outer(G[0] ** 2, G[0] ** 2)
    ratio = observation.sd**2 / (observation.n * np.maximum(sampling, 1e-12))
    return float(np.median(ratio[rows, columns]))


def prepare_regression(prior: RegressionPrior, k: int) -> Regression:
    """Check the prior of the regression and put it into arrays."""
    if prior.k != k:
        raise RequestError(f"prior is for {prior.k} covariates, the statistics are for {k}")
    independent = isinstance(prior, NormalInverseGammaIndependent)
    precision = (
        np.linalg.inv(prior.V0) if isinstance(prior, NormalInverseGammaIndependent) else prior.Lam0
    )
    bordered = np.empty((k + 2, k + 2))
    bordered[:-1, :-1] = precision
    bordered[:-1, -1] = bordered[-1, :-1] = precision @ prior.mu0
    bordered[-1, -1] = prior.mu0 @ precision @ prior.mu0
    return Regression(
        mu0=np.array(prior.mu0),
        precision=np.array(precision),
        bordered=bordered,
        a0=float(prior.a0),
        b0=float(prior.b0),
        independent=independent,
        diagonal=bool((precision == np.diag(np.diag(precision))).all()),
    )


def workspace(holders: Holders, *, normal: bool = True) -> tuple[Work, Large | None]:
    """Scratch space for one thread."""
    P = holders.values.shape[1]
    q, qv = holders.rows.size, P * (P - 1) // 2 - 1
    dense = holders.n_observed[holders.mode == DENSE].max(initial=0)
    work = Work(
        rng=np.zeros(4, dtype=np.uint64),
        counts=np.zeros(3, dtype=np.int64),
        F=np.zeros((P, P)),
        G=np.zeros((P, P)),
        m=np.zeros(P),
        squares=np.zeros((6, P, P)),
        vectors=np.zeros((2, P)),
        C=np.zeros((dense, dense)),
        covariance=np.zeros((0, 0) if normal else (q, q)),
        once=np.zeros((0, 0) if normal else (qv, P - 1)),
        x=np.zeros(q),
        g=np.zeros(max(q, P)),
    )
    if (holders.mode == DENSE).all():
        return work, None
    return work, Large(
        V=np.zeros((P, P)),
        values=np.zeros(P),
        squares=np.zeros((7, P, P)),
        vectors=np.zeros((4, P)),
    )


# --- starting points ------------------------------------------------------------------------------


def rough_population(observations: Sequence[Observation]) -> FloatArray:
    """A possible E[ww'] near the released values: only for starting points and choices of solver.

    Entry by entry the precision-weighted mean of the released A_j / n_j and of a guess that suits
    columns in [-1, 1]; then the covariance of (x, y) is made positive definite.
    """
    P = observations[0].k + 2
    guess = np.diag(np.full(P, 0.3))
    guess[0, 0] = 1.0
    weight = np.full((P, P), 4.0)
    total = weight * guess
    for observation in observations:
        own = 1.0 / ((observation.sd / observation.n) ** 2 + 0.3 / observation.n)
        total = total + own * observation.values / observation.n
        weight = weight + own
    return _possible(total / weight, 0.3 * float(np.sqrt(np.mean(1.0 / weight))))


def _possible(G: FloatArray, floor: float) -> FloatArray:
    mean = G[0, 1:]
    values, vectors = np.linalg.eigh(G[1:, 1:] - np.outer(mean, mean))
    values = np.maximum(values, max(min(floor, 0.1), 1e-3 * float(values[-1]), 1e-9))
    result = np.empty_like(G)
    result[0, 0] = 1.0
    result[0, 1:] = result[1:, 0] = mean
    result[1:, 1:] = (vectors * values) @ vectors.T + np.outer(mean, mean)
    return result


def _with_known_entries(G: FloatArray, observation: Observation) -> FloatArray:
    """G with the entries that are known exactly, moved towards a diagonal matrix if need be."""
    known = observation.scale == 0
    known[0, 0] = False
    if not known.any():
        return G
    diagonal = np.diag(np.diag(G))
    for step in np.linspace(0.0, 1.0, 11):
        mixed: FloatArray = (1 - step) * G + step * diagonal
        mixed[known] = observation.values[known] / observation.n
        if np.linalg.eigvalsh(mixed)[0] > 0:
            return mixed
    raise ReleaseError(
        "entries that are known exactly contradict each other: no possible statistics have them "
        "(a covariance beyond its variances)"
    )


def starting_statistics(
    observations: Sequence[Observation], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Valid, dispersed latent A_j, and noise variances; each (J, P, P).

    Chains start from releases with fresh noise added to them, so that they start further apart
    than the posterior is wide.
    """
    shaken = []
    for o in observations:
        noise = rng.laplace(size=o.values.shape) * math.sqrt(0.5)
        noise = np.triu(noise) + np.triu(noise, 1).T
        sd = np.where(np.isfinite(o.sd), o.sd, 0.0)
        shaken.append(Observation(o.n, o.values + sd * noise, o.scale, o.family))
    G = rough_population(shaken)
    A = np.stack([o.n * _with_known_entries(G, o) for o in observations])
    omega2 = np.stack([np.where(np.isfinite(o.sd), o.sd, 0.0) ** 2 for o in observations])
    return A, omega2


def starting_regression(A: FloatArray, prior: RegressionPrior) -> tuple[FloatArray, FloatArray]:
    """Centre of theta and sigma2 given the starting statistics."""
    total = A.sum(axis=0)
    arrays = prepare_regression(prior, total.shape[0] - 2)
    factor = np.linalg.cholesky(total + arrays.bordered)
    theta = np.linalg.solve(factor[:-1, :-1].T, factor[-1, :-1])
    sigma2 = (prior.b0 + 0.5 * factor[-1, -1] ** 2) / (prior.a0 + 0.5 * total[0, 0])
    return theta, np.array(sigma2)


# --- running chains -------------------------------------------------------------------------------


class Kernel(Protocol):
    """What `run_chains` needs of an algorithm."""

    def workspace(self) -> Any:
        """Scratch space for one thread."""

    def advance(
        self, key: KeyArray, first: int, count: int, keep_from: int, state: Any, scratch: Any,
        store: Store,
    ) -> None:  # fmt: skip
        """Run iterations first, ..., first + count - 1, in place."""


def run_chains(
    kernel: Kernel,
    states: Sequence[Any],
    keys: KeyArray,
    stores: Sequence[Store],
    *,
    draws: int,
    tune: int,
    cores: int | None,
    progress: Progress | None = None,
    block: int = 500,
) -> Draws:
    """Run one chain for each state, in parallel threads.

    Iterations come in blocks, so that progress can be shown and an interrupt be obeyed.
    """
    total = tune + draws
    stop = threading.Event()
    lock = threading.Lock()
    done = 0

    def run(chain: int) -> None:
        nonlocal done
        scratch = kernel.workspace()
        for first in range(0, total, block):
            if stop.is_set():
                return
            count = min(block, total - first)
            kernel.advance(keys[chain], first, count, tune, states[chain], scratch, stores[chain])
            if progress is not None:
                with lock:
                    done += count
                    progress(done, total * len(states))

    with ThreadPoolExecutor(min(len(states), cores or available_cores())) as executor:
        futures = [executor.submit(run, chain) for chain in range(len(states))]
        try:
            for future in futures:
                future.result()
        finally:
            stop.set()
    all_chains = Store(*(np.stack(parts) for parts in zip(*stores, strict=True)))
    return Draws(*all_chains[:-3], Info(*all_chains[-3:]))


def make_store(
    draws: int,
    J: int,
    P: int,
    *,
    conditional_mean: bool = False,
    covariates: bool = False,
    statistics: bool = False,
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
        statistics=np.zeros((draws if statistics else 0, J, P, P)),
        rejected=np.zeros(draws, dtype=np.int64),
        exhausted=np.zeros(draws, dtype=np.int64),
        solver_iterations=np.zeros(draws, dtype=np.int64),
    )


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def check_run(**numbers: int | None) -> None:
    """Refuse run lengths that make no sense. None: chosen here."""
    for name, value in numbers.items():
        least = 0 if name == "tune" else 1
        if value is not None and (isinstance(value, bool) or int(value) != value or value < least):
            raise RequestError(f"{name} must be a whole number, at least {least}; got {value!r}")
