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

Given omega2, c, q and theta, the releases are linear in S with normal noise, so their conditional
for S is normal: a diagonal (the noise of S) and d + 1 further observations (z and u). What is not
normal, v(S) = |S|^(-1/2) (q - c'S⁻¹c)^((n-d)/2 - 1) on positive definite S, is left to the
Metropolis ratio. Proposals mean + r (S - mean) + sqrt(1 - r²) noise, which leave the normal factor
invariant, are made for r = 0 (a new S), 0.8 and 0.98, so that some are accepted in every regime.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS, section
3.4.4 ("an interesting avenue for future work"), arXiv:1910.13153. Cotter, Roberts, Stuart & White
(2013), MCMC methods for functions, Statistical Science 28(3), doi:10.1214/13-STS421.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.models.moments import (
    FourthMomentObservation,
    monomial_positions,
    unique_entries,
)
from noisewise.analyst.observation import Observation
from noisewise.analyst.samplers.gibbs import (
    Draws,
    Info,
    Progress,
    RegressionPrior,
    Store,
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
from noisewise.analyst.samplers.gibbs_interweave import Orbits, prepare_orbits, sweep_regression
from noisewise.analyst.samplers.gibbs_linalg import (
    FASTMATH,
    cholesky,
    fill,
    solve_lower,
    solve_lower_transposed,
)
from noisewise.analyst.samplers.gibbs_random import (
    KeyArray,
    chain_keys,
    fill_normal,
    laplace_variance,
    seed_stream,
    uniform,
)
from noisewise.analyst.samplers.gibbs_statistics import Holders, Work, draw_noise_variances
from noisewise.core.errors import RequestError

FloatArray = NDArray[np.float64]

_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)

_HUGE = 1e30  # noise variance that stands for "not released"
_PERSISTENCE = (0.0, 0.8, 0.98)


# --- state ----------------------------------------------------------------------------------------


class State(NamedTuple):
    """What the next iteration needs. `A` is positive definite for every holder."""

    theta: FloatArray  # (d,)
    sigma2: FloatArray  # ()
    A: FloatArray  # (J, P, P), latent statistics
    omega2: FloatArray  # (J, P, P), noise variances of the second moments
    omega2_fourth: FloatArray  # (J, qv), noise variances of degree 1 and 2 in the fourth moments


class Fourth(NamedTuple):
    """Degree 1 and 2 of the released fourth moments, in the form the compiled functions take."""

    values: FloatArray  # (J, qv), in the order of S's unique entries
    scale: FloatArray  # (J,), inf: the holder released no fourth moments
    laplace: NDArray[np.bool_]  # (J,)
    rows: NDArray[np.int64]  # (qv,)
    columns: NDArray[np.int64]  # (qv,)


class Buffers(NamedTuple):
    """Scratch space of one thread."""

    L: FloatArray  # (d, d), factor of S
    L_new: FloatArray  # (d, d)
    C: FloatArray  # (P, P)
    mean: FloatArray  # (qv,)
    variance: FloatArray  # (qv,)
    S_mean: FloatArray  # (qv,)
    S_new: FloatArray  # (qv,)
    g: FloatArray  # (max(qv, P),)
    c: FloatArray  # (d,)
    x: FloatArray  # (P,)
    w: FloatArray  # (P,)
    r: FloatArray  # (P,)


Scratch = tuple[Work, Orbits, Buffers]


# --- compiled -------------------------------------------------------------------------------------


@_jit
def _draw_fourth_variances(rng, fourth, A, omega2):  # type: ignore[no-untyped-def]
    for j in range(A.shape[0]):
        scale = fourth.scale[j]
        if fourth.laplace[j] and 0.0 < scale < np.inf:
            for e in range(fourth.rows.size):
                gap = abs(fourth.values[j, e] - A[j, fourth.rows[e], fourth.columns[e]])
                omega2[j, e] = scale * scale * laplace_variance(rng, gap / scale)


@_jit
def _factor_leading(A, L):  # type: ignore[no-untyped-def]
    for a in range(L.shape[0]):
        for b in range(a + 1):
            L[a, b] = A[a, b]
    return cholesky(L, L.shape[0])


@_jit
def _noise_of_y(scale, omega2, a):  # type: ignore[no-untyped-def]
    d = scale.shape[0] - 1
    return omega2[a, d] if scale[a, d] < np.inf else _HUGE


@_jit
def _draw_y(rng, n, values, scale, omega2, theta, sigma2, A, buffers):  # type: ignore[no-untyped-def]
    """(z, u) | S, theta, sigma2 and the releases: one independence Metropolis step. 1 if it moved.

    Proposed as if q were N(n sigma2, 2 n sigma2²), independent of c, so that (z, u) is normal;
    accepted by the ratio of q's true density to that normal one.
    """
    d = theta.size
    L, C, g, x, w = buffers.L, buffers.C, buffers.g, buffers.x, buffers.w
    if not _factor_leading(A, L):
        return 0
    # Row sums S theta into w, and the covariance of (z, u) plus noise into C.
    fitted = 0.0
    for a in range(d):
        total = 0.0
        for b in range(d):
            total += A[a, b] * theta[b]
            if b <= a:
                C[a, b] = sigma2 * A[a, b]
        C[a, a] += _noise_of_y(scale, omega2, a)
        w[a] = total
        fitted += theta[a] * total
        C[d, a] = 2.0 * sigma2 * total
    spread = 2.0 * n * sigma2 * sigma2
    C[d, d] = 4.0 * sigma2 * fitted + spread + _noise_of_y(scale, omega2, d)
    if not cholesky(C, d + 1):
        return 0
    # A draw of (c, q), then of the release it would give, then the solution for the difference.
    fill_normal(rng, g, d + 1)
    q = n * sigma2 + math.sqrt(spread) * g[d]
    c = buffers.c
    across = 0.0
    for a in range(d):
        total = 0.0
        for b in range(a + 1):
            total += L[a, b] * g[b]
        c[a] = math.sqrt(sigma2) * total
        across += theta[a] * c[a]
    fill_normal(rng, g, d + 1)
    for a in range(d):
        x[a] = values[a, d] - w[a] - c[a] - math.sqrt(_noise_of_y(scale, omega2, a)) * g[a]
    x[d] = values[d, d] - fitted - 2.0 * across - q
    x[d] -= math.sqrt(_noise_of_y(scale, omega2, d)) * g[d]
    solve_lower(C, x, d + 1)
    solve_lower_transposed(C, x, d + 1)
    # Cov(c, (z, u)) = sigma2 (S, 2 S theta), Cov(q, (z, u)) = (0, 2 n sigma2²).
    for a in range(d):
        total = 2.0 * w[a] * x[d]
        for b in range(d):
            total += A[a, b] * x[b]
        c[a] += sigma2 * total
    q += spread * x[d]
    old_q = A[d, d] - fitted
    for a in range(d):
        g[a] = A[a, d] - w[a]
        old_q -= 2.0 * theta[a] * g[a]
    ratio = _q_weight(n, d, q, c, sigma2, L, x) - _q_weight(n, d, old_q, g, sigma2, L, x)
    if not math.log(uniform(rng)) < ratio:
        return 0
    u = fitted + q
    for a in range(d):
        A[a, d] = w[a] + c[a]
        A[d, a] = A[a, d]
        u += 2.0 * theta[a] * c[a]
    A[d, d] = u
    return 1


@_jit
def _residual(q, c, L, x):  # type: ignore[no-untyped-def]
    """q - c'S⁻¹c."""
    d = c.size
    for a in range(d):
        x[a] = c[a]
    solve_lower(L, x, d)
    for a in range(d):
        q -= x[a] * x[a]
    return q


@_jit
def _q_weight(n, d, q, c, sigma2, L, x):  # type: ignore[no-untyped-def]
    """Log ratio of the density of q | c to N(n sigma2, 2 n sigma2²)."""
    rho = _residual(q, c[:d], L, x)
    if not rho > 0.0:
        return -np.inf
    normal = (q - n * sigma2) ** 2 / (4.0 * n * sigma2 * sigma2)
    return (0.5 * (n - d) - 1.0) * math.log(rho) - 0.5 * rho / sigma2 + normal


@_jit
def _s_weight(n, d, q, c, L, x):  # type: ignore[no-untyped-def]
    """Log of |S|^(-1/2) (q - c'S⁻¹c)^((n-d)/2 - 1)."""
    rho = _residual(q, c, L, x)
    if not rho > 0.0:
        return -np.inf
    log_determinant = 0.0
    for a in range(d):
        log_determinant += math.log(L[a, a])
    return (0.5 * (n - d) - 1.0) * math.log(rho) - log_determinant


@_jit
def _condition_s(n, values, scale, omega2, theta, q, fourth, perturb, rng, buffers, out):  # type: ignore[no-untyped-def]
    """S | c, q, theta and the releases, were it normal: a draw, or the mean if perturb = 0.

    buffers.C holds the factor of the covariance of the released (z, u) given c and q.
    """
    d = theta.size
    x, g, r, c = buffers.x, buffers.g, buffers.r, buffers.c
    size = fourth.rows.size
    fill_normal(rng, g, size)
    for a in range(d + 1):
        x[a] = 0.0
    x[0] = n * theta[0]
    x[d] = n * theta[0] * theta[0]
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        out[e] = buffers.mean[e] + perturb * math.sqrt(buffers.variance[e]) * g[e]
        x[a] += out[e] * theta[b]
        x[d] += out[e] * theta[a] * theta[b]
        if a != b:
            x[b] += out[e] * theta[a]
            x[d] += out[e] * theta[a] * theta[b]
    fill_normal(rng, r, d + 1)
    across = 0.0
    for a in range(d):
        across += theta[a] * c[a]
        noise = math.sqrt(_noise_of_y(scale, omega2, a))
        x[a] = values[a, d] - x[a] - c[a] - perturb * noise * r[a]
    noise = math.sqrt(_noise_of_y(scale, omega2, d))
    x[d] = values[d, d] - x[d] - 2.0 * across - q - perturb * noise * r[d]
    solve_lower(buffers.C, x, d + 1)
    solve_lower_transposed(buffers.C, x, d + 1)
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        along = theta[b] * x[a] + theta[a] * theta[b] * x[d]
        if a != b:
            along += theta[a] * x[b] + theta[a] * theta[b] * x[d]
        out[e] += buffers.variance[e] * along


@_jit
def _draw_s(  # type: ignore[no-untyped-def]
    rng, n, values, scale, omega2, theta, A, j, fourth, omega2_fourth, buffers
):
    """S | c, q, theta and the releases, by Metropolis steps; returns how many were accepted."""
    d = theta.size
    size = fourth.rows.size
    L, L_new, C, c, x = buffers.L, buffers.L_new, buffers.C, buffers.c, buffers.x
    mean, variance = buffers.mean, buffers.variance
    # The two observations of each entry of S, put together.
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        if scale[a, b] == 0.0:
            mean[e] = values[a, b]
            variance[e] = 0.0
            continue
        weight = 1.0 / omega2[a, b] if scale[a, b] < np.inf else 0.0
        total = weight * values[a, b]
        if fourth.scale[j] < np.inf:
            weight += 1.0 / omega2_fourth[e]
            total += fourth.values[j, e] / omega2_fourth[e]
        mean[e] = total / weight
        variance[e] = 1.0 / weight
    # c and q, which stay fixed.
    q = A[d, d]
    for a in range(d):
        total = 0.0
        for b in range(d):
            total += A[a, b] * theta[b]
        c[a] = A[a, d] - total
        q -= theta[a] * (total + 2.0 * c[a])
    # Covariance of the released (z, u) given c and q.
    for a in range(d + 1):
        for b in range(a):
            C[a, b] = 0.0
        C[a, a] = _noise_of_y(scale, omega2, a)
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        v = variance[e]
        both = theta[a] * theta[b]
        if a == b:
            C[a, a] += v * both
            C[d, a] += v * theta[a] * both
            C[d, d] += v * both * both
        else:
            C[a, a] += v * theta[b] * theta[b]
            C[b, b] += v * theta[a] * theta[a]
            C[b, a] += v * both
            C[d, a] += 2.0 * v * theta[b] * both
            C[d, b] += 2.0 * v * theta[a] * both
            C[d, d] += 4.0 * v * both * both
    if not cholesky(C, d + 1):
        return 0
    _condition_s(n, values, scale, omega2, theta, q, fourth, 0.0, rng, buffers, buffers.S_mean)
    if not _factor_leading(A, L):
        return 0
    old = _s_weight(n, d, q, c, L, x)
    accepted = 0
    for r in _PERSISTENCE:
        _condition_s(n, values, scale, omega2, theta, q, fourth, 1.0, rng, buffers, buffers.S_new)
        spread = math.sqrt(1.0 - r * r)
        L_new[0, 0] = n
        for e in range(size):
            a, b = fourth.rows[e], fourth.columns[e]
            middle = buffers.S_mean[e]
            value = middle + r * (A[a, b] - middle) + spread * (buffers.S_new[e] - middle)
            buffers.S_new[e] = value
            L_new[b, a] = value
        new = _s_weight(n, d, q, c, L_new, x) if cholesky(L_new, d) else -np.inf
        if math.log(uniform(rng)) < new - old:
            accepted += 1
            old = new
            for e in range(size):
                a, b = fourth.rows[e], fourth.columns[e]
                A[a, b] = buffers.S_new[e]
                A[b, a] = buffers.S_new[e]
    u = q
    for a in range(d):
        total = 0.0
        for b in range(d):
            total += A[a, b] * theta[b]
        A[a, d] = total + c[a]
        A[d, a] = A[a, d]
        u += theta[a] * (total + 2.0 * c[a])
    A[d, d] = u
    return accepted


@_jit
def _run(  # type: ignore[no-untyped-def]
    key, first, count, keep_from, holders, regression, fourth, orbits, interweave, state, work,
    buffers, store
):  # fmt: skip
    """Iterations first, ..., first + count - 1 of a chain; stores those from `keep_from` on."""
    rng, counts, total = work.rng, work.counts, work.squares[2]
    for t in range(first, first + count):
        seed_stream(rng, key, t)
        draw_noise_variances(rng, holders, state.A, state.omega2)
        _draw_fourth_variances(rng, fourth, state.A, state.omega2_fourth)
        fill(counts, 0)
        for j in range(state.A.shape[0]):
            n, A, omega2 = holders.n[j], state.A[j], state.omega2[j]
            values, scale = holders.values[j], holders.scale[j]
            moved = _draw_y(
                rng, n, values, scale, omega2, state.theta, state.sigma2[()], A, buffers
            )
            accepted = _draw_s(
                rng, n, values, scale, omega2, state.theta, A, j, fourth,
                state.omega2_fourth[j], buffers,
            )  # fmt: skip
            counts[0] += 1 + len(_PERSISTENCE) - moved - accepted
            counts[1] += 1 if accepted == 0 else 0
        pool(state.A, total)
        draw_regression(rng, total, regression, state.theta, state.sigma2, work)
        if interweave:
            sweep_regression(
                rng, holders, regression, state.theta, state.sigma2, state.A, state.omega2, orbits
            )
        store_draw(t - keep_from, state.A, regression, state.theta, state.sigma2, store, work)


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


class Kernel:
    """The transition ``(rng, state) -> (state, info)``, and the compiled loop over many.

    `rng` is a chain's key of two words and the number of the iteration. A call changes nothing in
    place: with the same arguments it gives the same result. In `Info`, `rejected` counts rejected
    Metropolis proposals (4 are made for each holder), and `exhausted` the holders whose S stayed.
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior,
        fourth: Sequence[FourthMomentObservation | None],
        interweave: bool | None,
    ) -> None:
        self.holders: Holders = prepare_holders(observations, update="dense", clt=False)
        self.regression = prepare_regression(prior, observations[0].k)
        self.fourth = prepare_fourth(observations, fourth)
        self.interweave = wants_interweaving(observations) if interweave is None else interweave

    def __call__(self, rng: tuple[KeyArray, int], state: State) -> tuple[State, Info]:
        """One iteration."""
        key, counter = rng
        new = State(*(np.array(field) for field in state))
        store = make_store(1, *self.holders.values.shape[:2])
        self.advance(key, counter, 1, counter, new, self.workspace(), store)
        return new, Info(*(field[0] for field in store[-3:]))

    def workspace(self) -> Scratch:
        """Scratch space for one thread."""
        P = self.holders.values.shape[1]
        d, size = P - 1, self.fourth.rows.size
        buffers = Buffers(
            L=np.zeros((d, d)), L_new=np.zeros((d, d)), C=np.zeros((P, P)), mean=np.zeros(size),
            variance=np.zeros(size), S_mean=np.zeros(size), S_new=np.zeros(size),
            g=np.zeros(max(size, P)), c=np.zeros(d), x=np.zeros(P), w=np.zeros(P), r=np.zeros(P),
        )  # fmt: skip
        orbits = prepare_orbits(self.holders.scale, covariates=False)
        return workspace(self.holders)[0], orbits, buffers

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
    keep_statistics: bool = False,
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
    check_run(chains=chains, draws=draws, tune=tune, cores=cores)
    kernel = build_kernel(observations, prior, fourth, interweave=interweave)
    keys = chain_keys(seed, chains)
    states = [init(key, observations, prior, fourth) for key in keys]
    stores = [
        make_store(
            draws,
            *kernel.holders.values.shape[:2],
            conditional_mean=keep_conditional_mean,
            statistics=keep_statistics,
        )
        for _ in keys
    ]
    return run_chains(
        kernel, states, keys, stores, draws=draws, tune=tune, cores=cores, progress=progress
    )


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
