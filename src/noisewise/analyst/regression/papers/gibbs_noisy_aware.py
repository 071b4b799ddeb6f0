"""Released fourth moments as noisy observations: the future work of Bernstein & Sheldon (2019).

Gibbs-SS-Noisy (`gibbs`) plugs noisy fourth moments in as if they were the covariates' law. Here
every released monomial is a noisy observation of a latent sum over the holder's rows, with a flat
prior:

- degree 1 and 2: these sums *are* the entries of S = Σ vv', v = (1, x). So S is observed twice,
  once in each release, with different noise;
- degree 3 and 4: given S they have no influence on y, and their flat prior integrates out. What
  they cost in budget buys nothing.

Given S the regression needs no law of the covariates, and no central limit theorem. With
e = y - v'theta, c = Σ v e and q = Σ e²::

    S                    flat over positive definite matrices (S_00 = n)
    z = S theta + c,       c ~ N(0, sigma2 S)
    u = theta'S theta + 2 theta'c + q,  q - c'S⁻¹c ~ sigma2 chi²(n - d)

so, unlike the other Gibbs methods, all conditionals are those of one joint law. One iteration:

    omega2              | statistics       Laplace noise as a scale mixture of normals
    (c, q)              | S, theta, sigma2   independence Metropolis from the normal approximation
    S                   | c, q, theta      preconditioned Crank-Nicolson Metropolis
    theta, sigma2       | statistics       conjugate
    theta, sigma2, z, u | along orbits     `orbits`, y only

**S | c, q.** Given omega2, c, q and theta, the releases are linear in S with normal noise, so their
conditional for S is normal: a diagonal (the noise of S) and d + 1 further observations (z and u).
What is not normal, v(S) = |S|^(-1/2) (q - c'S⁻¹c)^((n-d)/2 - 1) on positive definite S, is left to
the Metropolis ratio. Proposals mean + r (S - mean) + sqrt(1 - r²) noise, which leave the normal
factor invariant, are made for r = 0 (a new S), 0.8 and 0.98, so that some are accepted in every
regime.

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

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.chains import Progress
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.conjugate import (
    Regression,
    draw_regression,
    prepare_regression,
    starting_regression,
)
from noisewise.analyst.regression.papers.gibbs import (
    Draws,
    Trace,
    make_draws,
    wants_interweaving,
)
from noisewise.analyst.regression.papers.gibbs_statistics import (
    Holders,
    draw_noise_variances,
    prepare_holders,
)
from noisewise.analyst.regression.papers.moments import (
    FourthMomentObservation,
    monomial_positions,
    unique_entries,
)
from noisewise.analyst.regression.papers.orbits import movable_columns, sweep_y
from noisewise.analyst.regression.papers.sampling import (
    factor,
    laplace_variance,
    pooled,
    sample_chains,
    solve_lower,
    solve_upper,
    starting_statistics,
)
from noisewise.analyst.regression.priors import RegressionPrior
from noisewise.core.errors import RequestError

PERSISTENCE = (0.0, 0.8, 0.98)
_HUGE = 1e30  # noise variance that stands for "not released"


# --- model and state ------------------------------------------------------------------------------


class Fourth(NamedTuple):
    """Degree 1 and 2 of the released fourth moments, in the form the compiled functions take."""

    values: FloatArray  # (J, qv), in the order of S's unique entries
    scale: FloatArray  # (J,), inf: the holder released no fourth moments
    laplace: BoolArray  # (J,)
    rows: IntArray  # (qv,)
    columns: IntArray  # (qv,)


class Model(NamedTuple):
    """What does not change in a chain."""

    holders: Holders
    regression: Regression
    fourth: Fourth
    interweave: bool
    movable: BoolArray


class State(NamedTuple):
    """What the next iteration needs. `A` is positive definite for every holder."""

    theta: FloatArray  # (d,)
    sigma2: float
    A: FloatArray  # (J, P, P), latent statistics
    omega2: FloatArray  # (J, P, P), noise variances of the second moments
    omega2_fourth: FloatArray  # (J, qv), noise variances of degree 1 and 2 in the fourth moments


# --- compiled -------------------------------------------------------------------------------------


@compiled
def _parts(A: FloatArray, theta: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """S theta, c and q of A = [[S, z], [z', u]]."""
    d = theta.size
    image, c, q = np.zeros(d), np.zeros(d), A[d, d]
    for a in range(d):
        image[a] = A[a, :d] @ theta
        c[a] = A[a, d] - image[a]
        q -= theta[a] * (image[a] + 2.0 * c[a])
    return image, c, q


@compiled
def _assemble(A: FloatArray, theta: FloatArray, c: FloatArray, q: float) -> FloatArray:
    """A with the S of the given one, and z and u that fit c and q."""
    d, new = theta.size, A.copy()
    new[d, d] = q
    for a in range(d):
        image = A[a, :d] @ theta
        new[a, d] = image + c[a]
        new[d, a] = new[a, d]
        new[d, d] += theta[a] * (image + 2.0 * c[a])
    return new


@compiled
def _log_residual(q: float, c: FloatArray, L: FloatArray) -> tuple[float, float]:
    """rho = q - c'S⁻¹c and its logarithm, -inf if it is not positive; S = LL'."""
    rho = q - np.sum(solve_lower(L, c) ** 2)
    return rho, math.log(rho) if rho > 0.0 else -np.inf


@compiled
def _noise_of_y(scale: FloatArray, omega2: FloatArray) -> FloatArray:
    """Noise variances of (z, u), shape (P,)."""
    d = scale.shape[0] - 1
    return np.where(scale[d] < np.inf, omega2[d], _HUGE)


@compiled
def draw_y(
    rng: np.random.Generator,
    n: float,
    values: FloatArray,
    noise: FloatArray,
    theta: FloatArray,
    sigma2: float,
    A: FloatArray,
) -> tuple[FloatArray, int]:
    """(z, u) | S, theta, sigma2 and the releases: one Metropolis step; 1 if it moved.

    Proposed as if q were N(n sigma2, 2 n sigma2²), independent of c, so that (c, q) and the
    released (z, u) = constant + M (c, q) + noise are normal; accepted by the ratio of q's true
    density to that normal one.
    """
    d = theta.size
    L, possible = factor(A[:d, :d])
    image, old_c, old_q = _parts(A, theta)
    prior = np.zeros((d + 1, d + 1))  # covariance of (c, q)
    prior[:d, :d] = sigma2 * A[:d, :d]
    prior[d, d] = 2.0 * n * sigma2 * sigma2
    M = np.eye(d + 1)
    M[d, :d] = 2.0 * theta
    across = prior @ np.ascontiguousarray(M.T)
    C, proper = factor(M @ across + np.diag(noise))
    if not (possible and proper):
        return A, 0
    # A draw of (c, q), then of the release it would give, then the solution for the difference.
    drawn = np.zeros(d + 1)
    drawn[:d] = math.sqrt(sigma2) * (L @ rng.standard_normal(d))
    drawn[d] = n * sigma2 + math.sqrt(prior[d, d]) * rng.standard_normal()
    away = values[d] - M @ drawn - np.sqrt(noise) * rng.standard_normal(d + 1)
    away[:d] -= image
    away[d] -= theta @ image
    drawn += across @ solve_upper(C, solve_lower(C, away))
    c, q = drawn[:d].copy(), drawn[d]
    ratio = _q_weight(n, q, c, sigma2, L) - _q_weight(n, old_q, old_c, sigma2, L)
    if not math.log(1.0 - rng.random()) < ratio:
        return A, 0
    return _assemble(A, theta, c, q), 1


@compiled
def _q_weight(n: float, q: float, c: FloatArray, sigma2: float, L: FloatArray) -> float:
    """Log ratio of the density of q | c to N(n sigma2, 2 n sigma2²)."""
    rho, log_rho = _log_residual(q, c, L)
    normal = (q - n * sigma2) ** 2 / (4.0 * n * sigma2 * sigma2)
    return (0.5 * (n - c.size) - 1.0) * log_rho - 0.5 * rho / sigma2 + normal


@compiled
def _s_weight(n: float, q: float, c: FloatArray, L: FloatArray) -> float:
    """Log of |S|^(-1/2) (q - c'S⁻¹c)^((n-d)/2 - 1)."""
    _, log_rho = _log_residual(q, c, L)
    value: float = (0.5 * (n - c.size) - 1.0) * log_rho - np.sum(np.log(np.diag(L)))
    return value


@compiled
def draw_s(
    rng: np.random.Generator,
    n: float,
    values: FloatArray,
    scale: FloatArray,
    omega2: FloatArray,
    fourth: Fourth,
    j: int,
    omega2_fourth: FloatArray,
    theta: FloatArray,
    A: FloatArray,
) -> tuple[FloatArray, int]:
    """S | c, q, theta and the releases, by Metropolis steps; and how many were accepted."""
    d, size = theta.size, fourth.rows.size
    _, c, q = _parts(A, theta)
    noise = _noise_of_y(scale, omega2)
    # The two observations of each unique entry of S put together; (z, u) = D S + rest.
    mean, variance, now = np.zeros(size), np.zeros(size), np.zeros(size)
    D, rest = np.zeros((d + 1, size)), np.zeros(d + 1)
    rest[:d] = c
    rest[0] += n * theta[0]
    rest[d] = q + 2.0 * (theta @ c) + n * theta[0] * theta[0]
    for e in range(size):
        a, b = fourth.rows[e], fourth.columns[e]
        now[e] = A[a, b]
        D[a, e] += theta[b]
        D[d, e] += theta[a] * theta[b]
        if a != b:
            D[b, e] += theta[a]
            D[d, e] += theta[a] * theta[b]
        mean[e] = values[a, b]
        if scale[a, b] > 0.0:
            weight = 1.0 / omega2[a, b] if scale[a, b] < np.inf else 0.0
            total = weight * values[a, b]
            if fourth.scale[j] < np.inf:
                weight += 1.0 / omega2_fourth[e]
                total += fourth.values[j, e] / omega2_fourth[e]
            mean[e], variance[e] = total / weight, 1.0 / weight
    across = np.ascontiguousarray((D * variance).T)
    C, proper = factor(D @ across + np.diag(noise))
    L, possible = factor(A[:d, :d])
    if not (proper and possible):
        return A, 0
    away = values[d] - D @ mean - rest
    centre = mean + across @ solve_upper(C, solve_lower(C, away))
    old, accepted = _s_weight(n, q, c, L), 0
    for r in PERSISTENCE:
        # Perturb and solve, as in `gibbs_statistics`: a draw of the normal law less its centre.
        drawn = np.sqrt(variance) * rng.standard_normal(size)
        away = -(D @ drawn) - np.sqrt(noise) * rng.standard_normal(d + 1)
        drawn += across @ solve_upper(C, solve_lower(C, away))
        proposed = centre + r * (now - centre) + math.sqrt(1.0 - r * r) * drawn
        S = np.zeros((d, d))
        S[0, 0] = n
        for e in range(size):
            S[fourth.rows[e], fourth.columns[e]] = proposed[e]
            S[fourth.columns[e], fourth.rows[e]] = proposed[e]
        L, possible = factor(S)
        new = _s_weight(n, q, c, L) if possible else -np.inf
        if math.log(1.0 - rng.random()) < new - old:
            accepted += 1
            old, now = new, proposed
            A = A.copy()
            A[:d, :d] = S
    return _assemble(A, theta, c, q), accepted


@compiled
def step(rng: np.random.Generator, model: Model, state: State) -> tuple[State, tuple[int, int]]:
    """One iteration; and rejected Metropolis proposals, and holders whose S stayed."""
    holders, fourth = model.holders, model.fourth
    theta, sigma2 = state.theta, state.sigma2
    omega2 = draw_noise_variances(rng, holders, state.A, state.omega2)
    omega2_fourth = state.omega2_fourth.copy()
    A = state.A.copy()
    rejected, stayed = 0, 0
    for j in range(A.shape[0]):
        scale = fourth.scale[j]
        if fourth.laplace[j] and scale < np.inf:
            for e in range(fourth.rows.size):
                gap = abs(fourth.values[j, e] - A[j, fourth.rows[e], fourth.columns[e]])
                omega2_fourth[j, e] = scale * scale * laplace_variance(rng, gap / scale)
        n, values = holders.n[j], holders.values[j]
        noise = _noise_of_y(holders.scale[j], omega2[j])
        A[j], moved = draw_y(rng, n, values, noise, theta, sigma2, state.A[j])
        A[j], accepted = draw_s(
            rng, n, values, holders.scale[j], omega2[j], fourth, j, omega2_fourth[j], theta,
            A[j].copy(),
        )  # fmt: skip
        rejected += 1 + len(PERSISTENCE) - moved - accepted
        stayed += 1 if accepted == 0 else 0
    theta, sigma2 = draw_regression(rng, model.regression, pooled(A), theta, sigma2)
    if model.interweave:
        theta, sigma2, A = sweep_y(
            rng, model.regression, model.movable, holders.values, holders.scale, omega2, theta,
            sigma2, A,
        )  # fmt: skip
    return State(theta, sigma2, A, omega2, omega2_fourth), (rejected, stayed)


@compiled
def run(rng: np.random.Generator, model: Model, state: State, count: int) -> tuple[State, Trace]:
    """Many iterations."""
    J, P = state.A.shape[:2]
    trace = Trace(
        np.zeros((count, P - 1)), np.zeros(count), np.zeros((count, P, P)), np.zeros((count, 0)),
        np.zeros((count, 0, 0)), np.zeros((count, J, P, P)), np.zeros((count, 3), dtype=np.int64),
    )  # fmt: skip
    for t in range(count):
        state, counts = step(rng, model, state)
        trace.theta[t] = state.theta
        trace.sigma2[t] = state.sigma2
        trace.total[t] = pooled(state.A)
        trace.A[t] = state.A
        trace.counts[t, 0], trace.counts[t, 1] = counts
    return state, trace


# --- init, model, top-level call ------------------------------------------------------------------


def init(
    rng: np.random.Generator,
    observations: Sequence[Observation],
    prior: RegressionPrior,
    fourth: Sequence[FourthMomentObservation | None],
) -> State:
    """A valid starting state, dispersed at random."""
    k = observations[0].k
    A, omega2 = starting_statistics(observations, rng)
    omega2_fourth = np.zeros((len(observations), unique_entries(k + 1)[0].size))
    for j, f in enumerate(fourth):
        if f is not None:
            omega2_fourth[j] = f.scale**2 * (2.0 if f.family == "laplace" else 1.0)
    theta, sigma2 = starting_regression(A, prepare_regression(prior, k))
    return State(theta, sigma2, A, omega2, omega2_fourth)


def build_model(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    fourth: Sequence[FourthMomentObservation | None],
    *,
    interweave: bool | None = None,
) -> Model:
    """Put everything into arrays; arguments as for `sample`."""
    holders = prepare_holders(observations)
    return Model(
        holders,
        prepare_regression(prior, observations[0].k),
        prepare_fourth(observations, fourth),
        wants_interweaving(observations) if interweave is None else interweave,
        movable_columns(holders.scale),
    )


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
        As for `gibbs.sample`.

    Returns
    -------
    Draws
        Without the covariates' mean and covariance. In `info`, `rejected` counts rejected
        Metropolis proposals, of which each holder has 4 an iteration, and `exhausted` the holders
        whose S stayed.
    """
    model = build_model(observations, prior, fourth, interweave=interweave)
    kept = draws if keep_statistics is True else int(keep_statistics)
    trace = sample_chains(
        lambda rng: init(rng, observations, prior, fourth),
        lambda rng, state, _first, count: run(rng, model, state, count),
        chains=chains, draws=draws, tune=tune, seed=seed, cores=cores, progress=progress,
        keep={"A": kept, "total": draws if keep_conditional_mean else 0, "mu": 0, "L": 0},
    )  # fmt: skip
    return make_draws(trace, model.regression)


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
