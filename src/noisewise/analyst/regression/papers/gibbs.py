"""The Gibbs samplers of Bernstein & Sheldon (2019); they differ in what they know about x.

- Gibbs-SS-Update (`gibbs_update`, and `bs_distributed` for several holders): the covariates are
  normal with unknown mean and covariance, x ~ N(mu, T), (mu, T) ~ normal inverse Wishart. Given the
  latent statistics, (mu, T) and (theta, sigma2) are independent and conjugate: x'x is sufficient
  for (mu, T) whatever y is (their figure 2c).
- Gibbs-SS-Prior (`gibbs_prior`): the rows' covariates are independent draws of a law of which
  E[vv'] and Cov(vv'), v = (1, x), are known (`moments.CovariateMoments`). The law of the sums of x
  is then known up to sampling variation, which is a strong assumption: with n rows their means are
  known to about 1/sqrt(n).
- Gibbs-SS-Noisy (`gibbs_noisy`): the same with released fourth moments at face value
  (`moments.released_moments`). Kept because the paper has it. There is no reason to use it: given
  the second moments, fourth moments say nothing about the coefficients, so the budget that pays for
  them is better spent on the second moments (measured posterior sd of a slope: .143 with the whole
  budget on second moments, .204 to .214 with fourth moments), and their noise is ignored (90%
  intervals cover about 87%). With many covariates or much noise the plugged-in moments are not
  those of any law, even after repair: `Info.exhausted` then says that nearly all draws of the
  statistics are impossible.
- `gibbs_noisy_aware`, not in the paper, models that noise: `fourth` says how.

One iteration, with A_j the latent Gram matrix of holder j::

    omega2_j            | A_j                  Laplace noise as a scale mixture of normals
    A_j                 | theta, sigma2, moments of x, omega2_j   central limit theorem
    theta, sigma2       | sum of A_j           conjugate
    mu, T               | sum of A_j           conjugate, where they are unknown
    all of it           | along orbits         `orbits`

**The statistics.** By the central limit theorem A_j ~ N(nE[ww'], nCov[ww']) on its unique entries;
noise is normal given omega2; so the conditional is normal, restricted to the set V of positive
definite matrices. It is drawn by *perturb and solve*: with s ~ N(nE, nCov) and
r = released - s - noise, the draw is s + nCov (nCov + Omega)⁻¹ r. That needs one system of
equations, no inverse of Cov or Omega, and takes exact entries (Omega = 0) and entries that were not
released without special cases. With known moments of x it is solved by its Cholesky factor, O(P^6);
with normal x, where nCov is an operator, by conjugate gradients, O(P^3) an iteration.

**Why rejection keeps the target right.** Draws outside V are rejected and drawn again, at most
`tries` times; then one step of elliptical slice sampling from the current A_j, with fresh normal
variables, replaces the draw. Let pi be the normal law restricted to V and p its probability of V,
both given everything but A_j. The kernel is then

    A' ~ (1 - (1 - p)^tries) pi + (1 - p)^tries K(A, .)

where K is the elliptical slice kernel, which leaves pi invariant. The weights *don't depend on the
current A_j*, so the mixture leaves pi invariant too, whatever `tries` is. Three things would break
this: a starting A_j outside V (so `init` makes it valid); a number of tries that depends on the
current A_j; and a rejected proposal as the slice sampler's normal variable, for given its rejection
it is no longer normal. Keeping A_j would be right too (K the identity), but a chain near the
boundary would freeze. Projecting a draw on V, as the paper does, is not: it puts atoms on the
boundary.

**What is approximate.** A_j | theta by the central limit theorem and theta | A_j by conjugacy are
conditionals of different joint laws. The stationary law is near both for n much larger than the
number P of columns of w; at n = 10 and one covariate it inflates the standard deviation of theta by
about 6%. Measured against `exact` with one covariate and noise about as large as sampling
variation, root mean square over data sets: with one holder means are off by 0.04 posterior standard
deviations (0.02 with interweaving) at n = 30, and by nothing measurable from n = 100 on. With two
holders, whose statistics can disagree, the neglected skewness stays visible for longer: 0.10 (0.05
with interweaving) at n = 300 each, at most 0.2 in a single data set, and nothing measurable at
n = 3000. Much noise hides all of it.

A normal matrix with the moments of a Gram matrix is positive definite with high probability only if
n > 4P or so (its eigenvalues spread over 1 ± 2 sqrt(P/n)): below that nearly all draws are
rejected, and a warning is given.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS,
arXiv:1910.13153, Algorithm 1 and section 3.4.4. Papandreou & Yuille (2010), Gaussian sampling by
local perturbations, NeurIPS. Murray, Adams & MacKay (2010), Elliptical slice sampling, AISTATS.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, IntArray, Rng
from noisewise._compiled import call_with, compiled
from noisewise.analyst.chains import Progress, check_counts
from noisewise.analyst.regression.observation import Observation, common_k, named
from noisewise.analyst.regression.papers import orbits, shared
from noisewise.analyst.regression.papers.fourth import (
    HUGE,
    PERSISTENCE,
    Fourth,
    draw_s,
    draw_y,
    prepare_fourth,
)
from noisewise.analyst.regression.papers.moments import (
    CovariateMoments,
    FourthMomentObservation,
    Law,
    draw_known_sums,
    known_moments,
    normal_factor,
    prepare_moments,
    unique_entries,
)
from noisewise.analyst.regression.papers.shared import factor, solve_lower, solve_upper
from noisewise.analyst.regression.priors import CovariatePrior, NIWPrior, RegressionPrior
from noisewise.core.errors import RequestError

# What is known about the covariates: a normal law with a prior, moments, or released moments.
Knowledge = CovariatePrior | CovariateMoments | Sequence[FourthMomentObservation | None]
NORMAL, MOMENTS, RELEASED = 0, 1, 2
INTERWEAVE_FROM = 0.1  # ratio of noise to sampling variance from which moves along orbits pay
_MAX_SHRINK = 60
_MAX_GRADIENTS = 1000
_TOLERANCE = 1e-8


# --- model, state, info ---------------------------------------------------------------------------


class Holders(NamedTuple):
    """The observations, in the form the compiled functions take."""

    n: FloatArray  # (J,)
    laplace: BoolArray  # (J,)
    values: FloatArray  # (J, P, P)
    scale: FloatArray  # (J, P, P), 0: known, inf: not released
    seen: BoolArray  # (J, P, P), entries whose released value says something
    noisy: BoolArray  # (J,), noise dominates: conjugate gradients want another preconditioner


class Model(NamedTuple):
    """What does not change in a chain."""

    holders: Holders
    kind: int  # NORMAL, MOMENTS or RELEASED
    regression: shared.Regression
    covariates: shared.Covariates  # where they are normal
    law: Law  # where moments are known; otherwise the entries of ww' only
    fourth: Fourth  # where they are released
    tries: int
    interweave: bool
    movable: BoolArray  # (P,), columns that move along orbits
    apart: int  # every so many-th covariate moves in one sweep


class Moments(NamedTuple):
    """Moments of one row's ww' given the parameters."""

    F: FloatArray  # (P, P), lower triangular, FF' = G; normal covariates only
    G: FloatArray  # (P, P), E[ww']
    C: FloatArray  # (q, q), covariance of the unique entries; known moments only


class Solver(NamedTuple):
    """What the draw of one holder's statistics needs to solve its system of equations."""

    proper: bool  # whether it can be solved
    root: FloatArray  # (q, q) factor of the covariance; normal covariates: (P, P) eigenvectors
    inverse: FloatArray  # (P, P), preconditioner; normal covariates only
    noise: FloatArray  # (P, P), noise of the functionals <Y, ww'>; normal covariates only


class State(NamedTuple):
    """What the next iteration needs. `A` is positive definite for every holder."""

    theta: FloatArray  # (d,)
    sigma2: float
    mu: FloatArray  # (k,)
    L: FloatArray  # (k, k), lower triangular, T = LL'
    Psi: FloatArray  # (k, k), scale matrix of T; drawn where the prior has it unknown
    A: FloatArray  # (J, P, P), latent statistics
    omega2: FloatArray  # (J, P, P), noise variances; drawn for Laplace noise
    omega2_fourth: FloatArray  # (J, qv), of degree 1 and 2 in released fourth moments


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
    total: FloatArray  # (chains, draws, P, P), the sum of the latent A_j; as conditional_mean
    statistics: FloatArray  # (chains, kept, J, P, P), the latent A_j of evenly spaced draws
    info: Info


class Parts(NamedTuple):
    """The steps of an iteration, compiled apart."""

    noise_variances: Any
    moments: Any  # of one row
    statistics: Any
    regression: Any
    covariates: Any
    orbit_start: Any
    sweep: Any


class Trace(NamedTuple):
    """What each of many iterations gave."""

    theta: FloatArray
    sigma2: FloatArray
    total: FloatArray  # (count, P, P), the sum of the A_j
    mu: FloatArray
    L: FloatArray
    A: FloatArray
    counts: IntArray  # (count, 3), in the order of Info


# --- the observations -----------------------------------------------------------------------------


def prepare_holders(observations: Sequence[Observation]) -> Holders:
    """Check observations and stack them."""
    P = common_k(observations) + 2
    which, fewest = min(named(observations), key=lambda item: item[1].n)
    if fewest.n < P:
        raise RequestError(
            f"{which} with n = {fewest.n} rows is too small for {P - 2} covariates: at least "
            f"k + 2 = {P} rows are needed. Use fewer covariates, or leave the holder out"
        )
    scale = np.stack([observation.scale for observation in observations])
    seen = np.isfinite(scale)
    seen[:, 0, 0] = False
    # Normal noise is nearly isometric in any layout, so that the eigenbasis is good for longer.
    far = [10.0 if observation.family == "gaussian" else 1.0 for observation in observations]
    return Holders(
        n=np.array([float(observation.n) for observation in observations]),
        laplace=np.array([observation.family == "laplace" for observation in observations]),
        values=np.stack([observation.values for observation in observations]),
        scale=scale,
        seen=seen,
        noisy=np.array([noise_to_sampling(o) > f for o, f in zip(observations, far, strict=True)]),
    )


def without_constants(holders: Holders, law: Law) -> Holders:
    """Drop released entries that are known exactly and have no variance: they say nothing.

    They would make the covariance singular. The product of two levels of a category is always 0.
    """
    seen, d = holders.seen.copy(), law.eta.shape[0]
    variance = np.where(law.positions >= 0, law.xi.diagonal()[law.positions], 0.0) if d > 1 else 0.0
    seen[:, :d, :d] &= ~((variance < 1e-14) & (holders.scale[:, :d, :d] == 0))
    return holders._replace(seen=seen)


def noise_to_sampling(observation: Observation) -> float:
    """Median ratio of the noise to the sampling variance of the released entries; inf if none."""
    G = shared.rough_population([observation])
    diagonal = G.diagonal()
    sampling = np.outer(diagonal, diagonal) + G**2 - 2.0 * np.outer(G[0] ** 2, G[0] ** 2)
    ratio = observation.sd**2 / (observation.n * np.maximum(sampling, 1e-12))
    return float(np.median(ratio[unique_entries(observation.k + 2)]))


# --- compiled: the draw of the statistics ---------------------------------------------------------


@compiled
def laplace_variance(rng: Rng, q: float) -> float:
    """Draw t given |r| = q, where r | t ~ N(0, t) and t ~ Exponential(mean 2): r is Laplace(1).

    1/t is inverse Gaussian with mean 1/q and shape 1 (Bernstein & Sheldon 2019, Algorithm 1, line
    6). The two roots of Michael, Schucany & Haas (1976, doi:10.1080/00031305.1976.10479147) are
    written here for t itself, so that q = 0 and huge q need no care.
    """
    half = 0.5 * rng.standard_normal() ** 2
    t = q + half + math.sqrt(half * (2.0 * q + half))
    if rng.random() * (t + q) <= t:
        return t
    return q * q / t


@compiled
def draw_noise_variances(rng: Rng, model: Model, state: State) -> tuple[FloatArray, FloatArray]:
    """omega2 of second and of fourth moments | A, for the holders with Laplace noise."""
    holders, fourth, A = model.holders, model.fourth, state.A
    omega2, omega2_fourth = state.omega2.copy(), state.omega2_fourth.copy()
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            for b in range(a, A.shape[1]):
                scale = holders.scale[j, a, b]
                if holders.laplace[j] and 0.0 < scale < np.inf:
                    q = abs(holders.values[j, a, b] - A[j, a, b]) / scale
                    omega2[j, a, b] = scale * scale * laplace_variance(rng, q)
                    omega2[j, b, a] = omega2[j, a, b]
        for e in range(omega2_fourth.shape[1]):
            scale = fourth.scale[j]
            if fourth.laplace[j] and scale < np.inf:
                q = abs(fourth.values[j, e] - A[j, fourth.rows[e], fourth.columns[e]]) / scale
                omega2_fourth[j, e] = scale * scale * laplace_variance(rng, q)
    return omega2, omega2_fourth


@compiled
def draw_normal_sums(rng: Rng, n: float, F: FloatArray, G: FloatArray) -> FloatArray:
    """A ~ N(nG, nCov) for normal x: nG + sqrt(n) F H F', H symmetric with H_00 = 0.

    H has variance 2 on the diagonal and 1 off it. With F = [m, L] this is
    sqrt(n) (L H L' + m h' + h m'), whose covariance is 2n (GYG - (m'Ym) mm') as an operator.
    """
    Z = rng.standard_normal(G.shape)
    H = (Z + Z.T) / math.sqrt(2.0)
    H[0, 0] = 0.0
    return n * G + math.sqrt(n) * (F @ H @ np.ascontiguousarray(F.T))


@compiled
def apply_covariance(n: float, row: Moments, Y: FloatArray) -> FloatArray:
    """2n (GYG - (m'Ym) mm'): nCov applied to <Y, ww'>, normal x."""
    m = row.F[:, 0].copy()
    return 2.0 * n * (row.G @ Y @ row.G - (m @ (Y @ m)) * np.outer(m, m))


@compiled
def solver_for_normal(model: Model, state: State, j: int, row: Moments) -> Solver:
    """Noise and preconditioner of `_conjugate_gradients`.

    Where noise dominates (`noisy`) the diagonal; otherwise nCov plus noise of one size, without the
    rank-one term: diagonal in G's eigenbasis, and exact but for that term in the isometric layout.
    """
    G, n, V, m = row.G, model.holders.n[j], np.eye(row.G.shape[0]), row.F[:, 0].copy()
    twice = 2.0 - V  # entries off the diagonal
    noise = np.where(model.holders.seen[j], state.omega2[j] * twice, 0.0)
    if model.holders.noisy[j]:
        own = np.diag(G)
        sampling = np.outer(own, own) + G**2 - 2.0 * np.outer(m, m) ** 2
        scale = n * twice * sampling + noise
    else:
        values, vectors = np.linalg.eigh(G)
        V = np.ascontiguousarray(vectors)  # LAPACK counts by columns
        there = np.sum(noise > 0.0)
        logs = np.sum(np.log(np.where(noise > 0.0, noise, 1.0))) / max(there, 1)
        scale = 2.0 * n * np.outer(values, values) + math.exp(logs)
    return Solver(True, V, 1.0 / np.maximum(scale, 1e-300), noise)


@compiled
def _conjugate_gradients(
    n: float, row: Moments, solver: Solver, seen: BoolArray, noisy: bool, R: FloatArray
) -> tuple[FloatArray, int]:
    """Y with (nCov + noise) Y = R on the released entries, and the number of iterations.

    Y stands for the functional <Y, ww'>. Half of an off-diagonal coefficient sits in each triangle,
    so that its noise term is 2 omega2.
    """
    V, transposed = solver.root, np.ascontiguousarray(solver.root.T)
    Y, r, p = np.zeros(R.shape), R.copy(), np.zeros(R.shape)
    size, goal, iterations = 1.0, 0.0, 0
    while iterations < _MAX_GRADIENTS:
        if noisy:
            z = r * solver.inverse
        else:
            z = V @ (solver.inverse * (transposed @ r @ V)) @ transposed
        z = np.where(seen, z, 0.0)
        new = np.sum(r * z)
        if iterations == 0:
            goal = _TOLERANCE**2 * new
        if not new > goal:
            break
        p = z + (new / size) * p
        size = new
        image = np.where(seen, apply_covariance(n, row, p) + solver.noise * p, 0.0)
        step = size / np.sum(p * image)
        Y += step * p
        r -= step * image
        iterations += 1
    return Y, iterations


@compiled
def residuals(
    rng: Rng, holders: Holders, state: State, j: int, S: FloatArray, perturb: bool
) -> FloatArray:
    """released - S - noise on the released entries, (P, P), symmetric."""
    P, seen, omega2 = S.shape[0], holders.seen[j], state.omega2[j]
    R = np.where(seen, holders.values[j] - S, 0.0)
    for a in range(1, P if perturb else 0):
        for b in range(a + 1):
            noise = math.sqrt(omega2[a, b]) * rng.standard_normal()
            if seen[a, b]:
                R[a, b] -= noise
                R[b, a] = R[a, b]
    return R


@compiled
def solver_for_known(model: Model, state: State, j: int, row: Moments) -> Solver:
    """The factor of the covariance of the released entries, and whether it has one."""
    law, n = model.law, model.holders.n[j]
    K = np.zeros(row.C.shape)
    for e in range(law.rows.size):
        a, b = law.rows[e], law.columns[e]
        if not model.holders.seen[j, a, b]:
            K[e, e] = 1.0  # so that it says nothing
            continue
        for f in range(law.rows.size):
            if model.holders.seen[j, law.rows[f], law.columns[f]]:
                K[e, f] = n * row.C[e, f]
        K[e, e] += state.omega2[j, a, b]
    K, proper = factor(K)
    none = np.zeros((0, 0))
    return Solver(proper, K, none, none)


@compiled
def propose(
    rng: Rng, model: Model, state: State, j: int, row: Moments, solver: Solver, perturb: bool
) -> tuple[FloatArray, int]:
    """A draw of A_j in which impossible ones are possible, or its mean; gradient iterations."""
    holders, law, n = model.holders, model.law, model.holders.n[j]
    if model.kind == NORMAL:
        S = draw_normal_sums(rng, n, row.F, row.G) if perturb else n * row.G
        R = residuals(rng, holders, state, j, S, perturb)
        Y, iterations = _conjugate_gradients(n, row, solver, holders.seen[j], holders.noisy[j], R)
        S += apply_covariance(n, row, Y)
        return 0.5 * (S + S.T), iterations  # symmetric but for rounding
    S = draw_known_sums(rng, law, n, state.theta, state.sigma2) if perturb else n * row.G
    R = residuals(rng, holders, state, j, S, perturb)
    x = np.zeros(law.rows.size)
    for e in range(x.size):
        x[e] = R[law.rows[e], law.columns[e]]
    x = solve_upper(solver.root, solve_lower(solver.root, x))
    for e in range(x.size):
        if not holders.seen[j, law.rows[e], law.columns[e]]:
            x[e] = 0.0
    shift = row.C @ x
    for e in range(x.size):
        S[law.rows[e], law.columns[e]] += n * shift[e]
        S[law.columns[e], law.rows[e]] = S[law.rows[e], law.columns[e]]
    return S, 0


@compiled
def draw_statistics(
    rng: Rng, model: Model, state: State, j: int, row: Moments
) -> tuple[FloatArray, int, int, int]:
    """A_j | everything else by the central limit theorem; with the numbers of Info.

    Attempts 0, ..., tries - 1 are draws that may be accepted. If none is valid, the next gives the
    normal variables of an elliptical slice step, and the last one the mean of the normal law.
    """
    holders, A, iterations = model.holders, state.A[j].copy(), 0
    if model.kind == NORMAL:
        solver = solver_for_normal(model, state, j, row)
    else:
        solver = solver_for_known(model, state, j, row)
    if not solver.proper:
        return A, 0, 1, 0  # keeps A_j: right, because this did not depend on A_j
    candidate, mean = A, A
    for attempt in range(model.tries + 2):
        perturb = attempt <= model.tries
        S, more = propose(rng, model, state, j, row, solver, perturb)
        iterations += more
        S = np.where(holders.scale[j] == 0.0, holders.values[j], S)
        if attempt < model.tries and factor(S)[1]:
            return S, attempt, 0, iterations
        candidate, mean = mean, S
    # Elliptical slice sampling: A' = mean + (A - mean) cos + (draw - mean) sin.
    angle = 2.0 * math.pi * rng.random()
    low, high = angle - 2.0 * math.pi, angle
    for _ in range(_MAX_SHRINK):
        S = mean + (A - mean) * math.cos(angle) + (candidate - mean) * math.sin(angle)
        if factor(S)[1]:
            return S, model.tries, 1, iterations
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * rng.random()
    return A, model.tries, 1, iterations


# --- compiled: an iteration -----------------------------------------------------------------------


@compiled
def row_moments(model: Model, state: State) -> Moments:
    """Moments of one row; of no use with released fourth moments, which need none."""
    none = np.zeros((0, 0))
    if model.kind == MOMENTS:
        G, C = known_moments(model.law, state.theta, state.sigma2)
        return Moments(none, G, C)
    F, G = normal_factor(state.theta, state.sigma2, state.mu, state.L)
    return Moments(F, G, none)


@compiled
def draw_released(
    rng: Rng, model: Model, state: State, j: int, row: Moments
) -> tuple[FloatArray, int, int, int]:
    """`draw_statistics` where fourth moments are released; `row` is not looked at."""
    holders, theta, omega2, d = model.holders, state.theta, state.omega2[j], state.theta.size
    n, values, scale = holders.n[j], holders.values[j], holders.scale[j]
    noise = np.where(scale[d] < np.inf, omega2[d], HUGE)
    A, moved = draw_y(rng, n, values, noise, theta, state.sigma2, state.A[j])
    A, accepted = draw_s(
        rng, n, values, scale, omega2, noise, model.fourth, j, state.omega2_fourth[j], theta, A
    )
    return A, 1 + len(PERSISTENCE) - moved - accepted, 1 if accepted == 0 else 0, 0


@compiled
def orbit_start(
    model: Model, total: FloatArray, theta: FloatArray, sigma2: float, mu: FloatArray, L: FloatArray
) -> tuple[FloatArray, bool]:
    """The factor F that moves along orbits, and whether there is one.

    Covariates that aren't normal are standardised by the latent statistics.
    """
    d, proper = theta.size, True
    if model.kind != NORMAL:
        root, proper = factor(total[:d, :d])
        mu, L = root[1:, 0] / root[0, 0], root[1:, 1:] / root[0, 0]
    return normal_factor(theta, sigma2, mu, L)[0], proper


@compiled
def _run(
    parts: Parts, rng: Rng, model: Model, state: State, first: int, count: int
) -> tuple[State, Trace]:
    J, P = state.A.shape[:2]
    d, k, holders = P - 1, P - 2, model.holders
    trace = Trace(
        np.zeros((count, d)), np.zeros(count), np.zeros((count, P, P)), np.zeros((count, k)),
        np.zeros((count, k, k)), np.zeros((count, J, P, P)), np.zeros((count, 3), dtype=np.int64),
    )  # fmt: skip
    theta, sigma2, mu, L, Psi = state.theta, state.sigma2, state.mu, state.L, state.Psi
    for t in range(count):
        omega2, omega2_fourth = parts.noise_variances(rng, model, state)
        state = State(theta, sigma2, mu, L, Psi, state.A, omega2, omega2_fourth)
        row = parts.moments(model, state)
        A, total = state.A.copy(), np.zeros((P, P))
        for j in range(J):
            A[j], rejected, exhausted, iterations = parts.statistics(rng, model, state, j, row)
            total += A[j]
            trace.counts[t, 0] += rejected
            trace.counts[t, 1] += exhausted
            trace.counts[t, 2] += iterations
        theta, sigma2 = parts.regression(rng, model.regression, total, theta, sigma2)
        if model.kind == NORMAL:
            mu, L, Psi = parts.covariates(rng, model.covariates, total, mu, L, Psi)
        if model.interweave:
            moves = model.movable.copy()
            for a in range(1, d):  # of covariates with known moments none moves
                turn = a % model.apart == (first + t) % model.apart
                moves[a] = moves[a] and turn and model.kind == NORMAL
            F, proper = parts.orbit_start(model, total, theta, sigma2, mu, L)
            if proper:
                F, A = parts.sweep(
                    rng, model.regression, model.covariates, Psi, moves, holders.values,
                    holders.scale, omega2, F, A,
                )  # fmt: skip
                theta, sigma2 = orbits.regression_of(F)
                mu, L = F[1:d, 0].copy(), F[1:d, 1:d].copy()
            total = np.sum(A, axis=0)
        trace.theta[t], trace.sigma2[t], trace.total[t] = theta, sigma2, total
        trace.mu[t], trace.L[t], trace.A[t] = mu, L, A
        state = State(theta, sigma2, mu, L, Psi, A, omega2, omega2_fourth)
    return state, trace


def run(rng: Rng, model: Model, state: State, first: int, count: int) -> tuple[State, Trace]:
    """Iterations first, ..., first + count - 1."""
    theta, sigma2, mu, L, Psi, A, omega2, _ = state
    holders, none = model.holders, np.zeros((0, 0))
    statistics = draw_released if model.kind == RELEASED else draw_statistics
    priors = model.regression, model.covariates
    steps: list[tuple[Any, Any]] = [
        (draw_noise_variances, (rng, model, state)),
        (row_moments, (model, state)),
        (statistics, (rng, model, state, 0, Moments(none, none, none))),
        (shared.draw_regression, (rng, model.regression, none, theta, sigma2)),
        (shared.draw_covariates, (rng, model.covariates, none, mu, L, Psi)),
        (orbit_start, (model, none, theta, sigma2, mu, L)),
        (orbits.sweep, (rng, *priors, Psi, model.movable, holders.values, holders.scale, omega2,
                        none, A)),
    ]  # fmt: skip
    parts, examples = (Parts(*each) for each in zip(*steps, strict=True))
    result: tuple[State, Trace] = call_with(_run, parts, examples, rng, model, state, first, count)
    return result


# --- init, model, top-level call ------------------------------------------------------------------


def init(
    rng: Rng, observations: Sequence[Observation], prior: RegressionPrior, covariates: Knowledge
) -> State:
    """A valid starting state, dispersed at random."""
    J, k = len(observations), observations[0].k
    A, omega2 = shared.starting_statistics(observations, rng)
    theta, sigma2 = shared.starting_regression(A, shared.prepare_regression(prior, k))
    mu, L, Psi, omega2_fourth = np.zeros(k), np.eye(k), np.eye(k), np.zeros((J, 0))
    if isinstance(covariates, CovariatePrior):
        n = A[:, 0, 0].sum()
        E = shared.prepare_covariates(covariates, k).bordered + A.sum(axis=0)[:-1, :-1]
        Psi = shared.starting_scale(covariates, E.diagonal()[1:] / n - (E[0, 1:] / n) ** 2)
        E[1:, 1:] += Psi
        root = np.linalg.cholesky(E)
        mu = root[1:, 0] / root[0, 0]
        L = np.ascontiguousarray(root[1:, 1:]) / math.sqrt(covariates.nu + n)
    elif not isinstance(covariates, CovariateMoments):
        omega2_fourth = np.zeros((J, unique_entries(k + 1)[0].size))
        for j, f in enumerate(covariates):
            if f is not None:
                omega2_fourth[j] = f.scale**2 * (2.0 if f.family == "laplace" else 1.0)
    return State(theta, sigma2, mu, L, Psi, A, omega2, omega2_fourth)


def build_model(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: Knowledge,
    *,
    interweave: bool | None = None,
    tries: int = 50,
) -> Model:
    """Put everything into arrays; arguments as for `sample`."""
    check_counts(tries=tries)
    holders = prepare_holders(observations)
    J, k = len(observations), observations[0].k
    learnt: CovariatePrior = NIWPrior.weakly_informative(k)
    law = Law(
        np.eye(k + 1), np.zeros((0, 0)), np.zeros((0, 0)), np.eye(k + 1),
        np.zeros((k + 1, k + 1), dtype=np.int64), *unique_entries(k + 2),
    )  # fmt: skip
    fourth = Fourth(np.zeros((J, 0)), np.zeros(J), np.zeros(J, dtype=bool), *unique_entries(1))
    if isinstance(covariates, CovariatePrior):
        kind, learnt = NORMAL, covariates
    elif isinstance(covariates, CovariateMoments):
        if covariates.k != k:
            raise RequestError(
                f"covariates is for {covariates.k} covariates, the statistics are for {k}"
            )
        kind, law = MOMENTS, prepare_moments(covariates)
        holders = without_constants(holders, law)
    else:
        kind, fourth = RELEASED, prepare_fourth(observations, covariates)
    if interweave is None:
        interweave = max(noise_to_sampling(seen) for seen in observations) > INTERWEAVE_FROM
    return Model(
        holders=holders,
        kind=kind,
        regression=shared.prepare_regression(prior, k),
        covariates=shared.prepare_covariates(learnt, k),
        law=law,
        fourth=fourth,
        tries=tries,
        interweave=interweave,
        movable=orbits.movable_columns(holders.scale),
        apart=orbits.rows_apart(k),
    )


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: Knowledge,
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
    covariates : NIWPrior, HierarchicalNIWPrior, HuangWandPrior, CovariateMoments or sequence
        Prior of the mean and covariance of the covariates, which all holders share
        (Gibbs-SS-Update); known moments of one row's covariates (Gibbs-SS-Prior and -Noisy):
        `CovariateMoments.normal`, `.from_prior` by simulation, `.from_niw` for independent rows of
        the multivariate t law of an NIWPrior, `released_moments` of released fourth moments; or
        for each holder its FourthMomentObservation, or None, to be modelled (`fourth`).
    chains, draws, tune, seed, cores, progress
        As of `exact.sampler.sample_posterior`.
    interweave : bool, optional
        Move along orbits too. By default where the noise is not small compared with the sampling
        variation of the statistics.
    tries : int
        Impossible statistics are drawn again up to so many times.
    keep_conditional_mean, keep_covariates, keep_statistics : bool, bool, bool or int
        Also return E[theta | statistics], mu and T, or the latent statistics: those of every draw,
        or of so many of each chain, evenly spaced.

    Returns
    -------
    Draws
        With fourth moments to be modelled `info.rejected` counts rejected Metropolis proposals, of
        which each holder has 4 an iteration, and `info.exhausted` the holders whose S stayed.

    Warns
    -----
    UserWarning
        If a holder has fewer than 4 (k + 2) rows and the central limit theorem is used.
    """
    model = build_model(observations, prior, covariates, interweave=interweave, tries=tries)
    smallest, P = min(seen.n for seen in observations), observations[0].k + 2
    if smallest < 4 * P and model.kind != RELEASED:
        warnings.warn(
            f"the smallest holder has n = {smallest} rows for {P} columns. The gibbs methods rest "
            f"on the central limit theorem and are unreliable below n = {4 * P}; use the exact "
            "method",
            stacklevel=2,
        )
    kept = draws if keep_statistics is True else int(keep_statistics)
    of_x = draws if keep_covariates and model.kind == NORMAL else 0
    trace = shared.sample_chains(
        lambda rng: init(rng, observations, prior, covariates),
        lambda rng, state, first, count: run(rng, model, state, first, count),
        chains=chains, draws=draws, tune=tune, seed=seed, cores=cores, progress=progress,
        keep={"A": kept, "total": draws if keep_conditional_mean else 0, "mu": of_x, "L": of_x},
    )  # fmt: skip
    with_mean = trace.total.shape[1]
    return Draws(
        trace.theta,
        trace.sigma2,
        shared.conditional_mean(model.regression, trace.total, trace.sigma2[:, :with_mean]),
        trace.mu,
        trace.L @ np.swapaxes(trace.L, -1, -2),
        trace.total,
        trace.A,
        Info(*np.moveaxis(trace.counts, -1, 0)),
    )


def trouble(info: Info) -> tuple[str, ...]:
    """What the diagnostics say against draws by the central limit theorem, in plain words."""
    share = float(np.mean(info.exhausted > 0))
    if share < 0.01:
        return ()
    return (
        f"In {share:.0%} of the iterations no possible statistics were found by drawing, and the "
        "chain took small steps instead. There are too few rows for the number of columns, or the "
        "assumed covariates contradict the release. Use the exact method.",
    )
