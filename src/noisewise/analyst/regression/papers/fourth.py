"""Released fourth moments as noisy observations: the future work of Bernstein & Sheldon (2019).

Gibbs-SS-Noisy (`gibbs`) plugs noisy fourth moments in as if they were the covariates' law. In
`gibbs_noisy_aware` every released monomial is a noisy observation of a latent sum over the holder's
rows, with a flat prior:

- degree 1 and 2: these sums *are* the entries of S = Σ vv', v = (1, x). So S is observed twice,
  once in each release, with different noise;
- degree 3 and 4: given S they have no influence on y, and their flat prior integrates out. What
  they cost in budget buys nothing.

Given S the regression needs no law of the covariates, and no central limit theorem. With
e = y - v'theta, c = Σ v e and q = Σ e²::

    S                    flat over positive definite matrices (S_00 = n)
    z = S theta + c,       c ~ N(0, sigma2 S)
    u = theta'S theta + 2 theta'c + q,  q - c'S⁻¹c ~ sigma2 chi²(n - d)

so, unlike the other Gibbs methods, all conditionals are those of one joint law. In place of the
draw of A_j by the central limit theorem there are two steps:

    (c, q) | S, theta, sigma2   independence Metropolis from the normal approximation
    S      | c, q, theta        preconditioned Crank-Nicolson Metropolis

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

from noisewise._arrays import BoolArray, FloatArray, IntArray, Rng
from noisewise._compiled import compiled
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.moments import (
    FourthMomentObservation,
    monomial_positions,
    unique_entries,
)
from noisewise.analyst.regression.papers.shared import accepts, factor, solve_lower, solve_upper
from noisewise.core.errors import RequestError

PERSISTENCE = (0.0, 0.8, 0.98)
HUGE = 1e30  # noise variance that stands for "not released"


class Fourth(NamedTuple):
    """Degree 1 and 2 of the released fourth moments, in the form the compiled functions take."""

    values: FloatArray  # (J, qv), in the order of S's unique entries
    scale: FloatArray  # (J,), inf: the holder released no fourth moments
    laplace: BoolArray  # (J,)
    rows: IntArray  # (qv,)
    columns: IntArray  # (qv,)


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


# --- compiled -------------------------------------------------------------------------------------


@compiled
def _parts(A: FloatArray, theta: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """S theta, c and q of A = [[S, z], [z', u]]."""
    d = theta.size
    image = A[:d, :d].copy() @ theta
    c = A[:d, d] - image
    return image, c, A[d, d] - theta @ (image + 2.0 * c)


@compiled
def _assemble(S: FloatArray, theta: FloatArray, c: FloatArray, q: float) -> FloatArray:
    """A with this S, and z and u that fit c and q."""
    d = theta.size
    A, image = np.zeros((d + 1, d + 1)), S @ theta
    A[:d, :d] = S
    A[:d, d] = A[d, :d] = image + c
    A[d, d] = q + theta @ (image + 2.0 * c)
    return A


@compiled
def _log_residual(n: float, q: float, c: FloatArray, L: FloatArray) -> tuple[float, float]:
    """rho = q - c'S⁻¹c and the logarithm of rho^((n-d)/2 - 1), -inf if rho <= 0; S = LL'."""
    rho = q - np.sum(solve_lower(L, c) ** 2)
    return rho, (0.5 * (n - c.size) - 1.0) * (math.log(rho) if rho > 0.0 else -np.inf)


@compiled
def _q_weight(n: float, q: float, c: FloatArray, sigma2: float, L: FloatArray) -> float:
    """Log ratio of the density of q | c to N(n sigma2, 2 n sigma2²)."""
    rho, power = _log_residual(n, q, c, L)
    normal = (q - n * sigma2) ** 2 / (4.0 * n * sigma2 * sigma2)
    return power - 0.5 * rho / sigma2 + normal


@compiled
def _s_weight(n: float, q: float, c: FloatArray, L: FloatArray) -> float:
    """ln v(S)."""
    value: float = _log_residual(n, q, c, L)[1] - np.sum(np.log(np.diag(L)))
    return value


@compiled
def draw_y(
    rng: Rng,
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
    density to that normal one. `noise`, (P,), are the noise variances of (z, u).
    """
    d = theta.size
    S = A[:d, :d].copy()
    L, possible = factor(S)
    image, old_c, old_q = _parts(A, theta)
    prior = np.zeros((d + 1, d + 1))  # covariance of (c, q)
    prior[:d, :d] = sigma2 * S
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
    if not accepts(rng, ratio):
        return A, 0
    return _assemble(S, theta, c, q), 1


@compiled
def draw_s(
    rng: Rng,
    n: float,
    values: FloatArray,
    scale: FloatArray,
    omega2: FloatArray,
    noise: FloatArray,
    fourth: Fourth,
    j: int,
    omega2_fourth: FloatArray,
    theta: FloatArray,
    A: FloatArray,
) -> tuple[FloatArray, int]:
    """S | c, q, theta and the releases, by Metropolis steps; and how many were accepted."""
    d, size = theta.size, fourth.rows.size
    _, c, q = _parts(A, theta)
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
    S = A[:d, :d].copy()
    L, possible = factor(S)
    if not (proper and possible):
        return A, 0
    away = values[d] - D @ mean - rest
    centre = mean + across @ solve_upper(C, solve_lower(C, away))
    old, accepted = _s_weight(n, q, c, L), 0
    for r in PERSISTENCE:
        # Perturb and solve, as in `gibbs`: a draw of the normal law less its centre.
        drawn = np.sqrt(variance) * rng.standard_normal(size)
        away = -(D @ drawn) - np.sqrt(noise) * rng.standard_normal(d + 1)
        drawn += across @ solve_upper(C, solve_lower(C, away))
        proposed = centre + r * (now - centre) + math.sqrt(1.0 - r * r) * drawn
        new_S = S.copy()
        for e in range(size):
            new_S[fourth.rows[e], fourth.columns[e]] = proposed[e]
            new_S[fourth.columns[e], fourth.rows[e]] = proposed[e]
        L, possible = factor(new_S)
        new = _s_weight(n, q, c, L) if possible else -np.inf
        if accepts(rng, new - old):
            accepted += 1
            old, now, S = new, proposed, new_S
    return _assemble(S, theta, c, q), accepted
