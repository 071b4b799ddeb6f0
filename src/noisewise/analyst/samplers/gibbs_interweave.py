"""Moves along orbits, so that Gibbs sampling also mixes where noise hides the statistics.

**The problem.** theta is drawn given the latent A, and A is drawn given theta and the release. If
the noise variance is a thousand times the sampling variance of A, the second step moves A by a
thousandth of the posterior's variance only: some 1000 iterations for one effective draw.

**The move.** Let Q be a linear map of the columns w = (1, x, y) that keeps the constant: add a
multiple of one column to a later one, or rescale a column (y: its residual around the regression).
It takes rows to rows of the same model with other parameters phi = (theta, sigma2, mu, T), and A to
QAQ'. The law of A given phi goes with it: p(QAQ' | Q phi) |J_A(Q)| = p(A | phi), for the exact law
and for the normal approximation alike, restricted to positive definite matrices or not. So the
likelihood of A given phi is constant along the orbit of Q, and what remains is

    prior(Q phi) |J_phi(Q)| x noise density(release - QAQ')     with respect to Haar measure

(Liu & Sabatti 2000, theorem 1), sampled here by slice sampling. This is the interweaving of a
centred (A given phi) with a non-centred parametrisation (what of A is left when its dependence on
phi is taken out stays fixed; Yu & Meng 2011), in a form that needs no factor of the covariance.
The whole triangular group is swept, one coordinate after the other.

**The cost.** Given omega2 the log density along every orbit is a polynomial of degree 4 in the
step or the scale factor plus terms in its logarithm and reciprocal. Its coefficients take O(P) a
holder, its values O(1), the sweep O(P^3).

**Slice widths** depend on what the move leaves unchanged only, as they must for a valid kernel.

Coordinates, with i the column that changes and delta or kappa the size of the change:

- ``x_i += delta w_b``, b < i: mu_i += delta mu_b (mu_0 = 1), row i of L += delta row b,
  theta_b -= delta theta_i, so that v'theta and y do not change. All Jacobians are 1.
- ``x_i *= kappa``: mu_i, row i of L times kappa, theta_i divided by it. J: kappa for mu_i,
  kappa^(k+1) for T, 1/kappa for theta_i. With |T|^(-(nu+k+2)/2) of the prior: kappa^-(nu+1) in all.
- ``y += delta w_b``: theta_b += delta.
- ``y - v'theta *= kappa``: sigma2 *= kappa². J kappa²; with the prior of sigma2 (and of theta, if
  it scales with sigma): kappa^-(2 a0 + d), or kappa^-(2 a0) with an independent prior.

References
----------
Liu & Sabatti (2000), Generalised Gibbs sampler and multigrid Monte Carlo, Biometrika 87(2),
doi:10.1093/biomet/87.2.353. Yu & Meng (2011), To center or not to center, JCGS 20(3),
doi:10.1198/jcgs.2011.203main. Neal (2003), Slice sampling, Annals of Statistics 31(3),
doi:10.1214/aos/1056562461.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.samplers.gibbs_linalg import FASTMATH, fill, gram_of_lower, invert_lower
from noisewise.analyst.samplers.gibbs_random import uniform

FloatArray = NDArray[np.float64]

_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)

_WIDTH = 3.0  # initial slice width, in conditional standard deviations
_STEPS_OUT = 20
_SHRINKS = 80


class Orbits(NamedTuple):
    """Scratch space for the sweep, and which columns may move."""

    movable: NDArray[np.bool_]  # (P,), no entry of the column is known exactly
    weight: FloatArray  # (J, P, P), 1 / omega2; 0 if known or not released
    W: FloatArray  # (k, k), inverse of T
    scratch: FloatArray  # (k, k)
    steps: FloatArray  # (k,)
    c: FloatArray  # (8,), coefficients


def prepare_orbits(scale: FloatArray, *, covariates: bool) -> Orbits:
    """Scratch space for noise scales of shape (J, P, P); x moves only if `covariates`."""
    P = scale.shape[1]
    known = (scale == 0).any(axis=0)
    known[0, 0] = False
    movable = ~known.any(axis=1)
    movable[0] = False
    if not covariates:
        movable[:-1] = False
    k = P - 2 if covariates else 0
    return Orbits(
        movable=movable,
        weight=np.zeros_like(scale),
        W=np.zeros((k, k)),
        scratch=np.zeros((k, k)),
        steps=np.zeros(k),
        c=np.zeros(8),
    )


# --- slice sampling in one dimension --------------------------------------------------------------


@_jit
def _log_density(x, c, is_scale):  # type: ignore[no-untyped-def]
    """Along a shear: a quartic in x. Along a scaling: x is the logarithm of the factor."""
    if not is_scale:
        return x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])))
    s = math.exp(x)
    g = 1.0 / s
    return (
        c[0] * x
        + s * (c[1] + s * (c[2] + s * (c[3] + s * c[4])))
        + g * (c[5] + g * c[6])
        - (c[1] + c[2] + c[3] + c[4] + c[5] + c[6])
    )


@_jit
def _slice(rng, c, is_scale, width):  # type: ignore[no-untyped-def]
    """One slice-sampling update of x from x = 0, where the log density is 0."""
    level = math.log(uniform(rng))
    left = -width * uniform(rng)
    right = left + width
    steps_left = int(_STEPS_OUT * uniform(rng))
    steps_right = _STEPS_OUT - 1 - steps_left
    while steps_left > 0 and _log_density(left, c, is_scale) > level:
        left -= width
        steps_left -= 1
    while steps_right > 0 and _log_density(right, c, is_scale) > level:
        right += width
        steps_right -= 1
    for _ in range(_SHRINKS):
        x = left + (right - left) * uniform(rng)
        if _log_density(x, c, is_scale) > level:
            return x
        if x < 0.0:
            left = x
        else:
            right = x
    return 0.0


# --- one coordinate at a time ---------------------------------------------------------------------


@_jit
def _shear_noise(i, b, values, A, weight, c):  # type: ignore[no-untyped-def]
    """Add the noise terms of ``column i += x * column b`` to c; returns the invariant curvature.

    Entry (i, a) moves linearly for a != i and (i, i) quadratically. Row i of A is up to date,
    column i need not be.
    """
    curvature = 0.0
    for j in range(A.shape[0]):
        linear = 0.0
        quadratic = 0.0
        for a in range(A.shape[1]):
            w = weight[j, i, a] * A[j, b, a]
            linear += w * (values[j, i, a] - A[j, i, a])
            quadratic += w * A[j, b, a]
        # The loop's term a = i is not meant, and used a stale entry: take it out again.
        w, stale = weight[j, i, i], A[j, b, i]
        r = values[j, i, i] - A[j, i, i]
        linear -= w * stale * r
        quadratic -= w * stale * stale
        curvature += quadratic
        first, second = 2.0 * A[j, i, b], A[j, b, b]
        c[1] += linear + w * r * first
        c[2] += w * (r * second - 0.5 * first * first) - 0.5 * quadratic
        c[3] -= w * first * second
        c[4] -= 0.5 * w * second * second
    return curvature


@_jit
def _shear_statistics(i, b, x, A):  # type: ignore[no-untyped-def]
    """Row i += x * row b, the diagonal entry twice. Column i is left to `_mirror_row`."""
    for j in range(A.shape[0]):
        diagonal = A[j, i, i] + x * (2.0 * A[j, i, b] + x * A[j, b, b])
        for a in range(A.shape[1]):
            A[j, i, a] += x * A[j, b, a]
        A[j, i, i] = diagonal


@_jit
def _mirror_row(i, A):  # type: ignore[no-untyped-def]
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            A[j, a, i] = A[j, i, a]


@_jit
def _move_y(rng, values, A, weight, prior, theta, sigma2, c):  # type: ignore[no-untyped-def]
    """Shears of y by every column of v, then its residual's scale."""
    d = theta.size
    per_theta = 1.0 if prior.independent else 1.0 / sigma2[()]
    for b in range(d):
        fill(c, 0.0)
        curvature = _shear_noise(d, b, values, A, weight, c)
        gradient = 0.0
        for a in range(d):
            gradient += prior.precision[b, a] * (theta[a] - prior.mu0[a])
        c[1] -= per_theta * gradient
        c[2] -= 0.5 * per_theta * prior.precision[b, b]
        curvature += per_theta * prior.precision[b, b]
        x = _slice(rng, c, False, _WIDTH / math.sqrt(curvature))
        _shear_statistics(d, b, x, A)
        theta[b] += x
    _mirror_row(d, A)
    # Entry (a, d) is fitted_a + s residual_a, entry (d, d) is theta'S theta + 2 s theta'c + s² e'e.
    fill(c, 0.0)
    information = 2.0 * prior.a0 + d
    for j in range(A.shape[0]):
        square = A[j, d, d]
        across = 0.0
        fitted_square = 0.0
        for a in range(d):
            fitted = 0.0
            for b in range(d):
                fitted += A[j, a, b] * theta[b]
            residual = A[j, a, d] - fitted
            fitted_square += theta[a] * fitted
            across += theta[a] * residual
            w = weight[j, a, d]
            c[1] += w * (values[j, a, d] - fitted) * residual
            c[2] -= 0.5 * w * residual * residual
        square -= 2.0 * across + fitted_square
        w = weight[j, d, d]
        r = values[j, d, d] - fitted_square
        across *= 2.0
        c[1] += w * r * across
        c[2] += w * (r * square - 0.5 * across * across)
        c[3] -= w * across * square
        c[4] -= 0.5 * w * square * square
        information += w * values[j, d, d] * values[j, d, d]
    penalty = prior.b0
    c[0] = -2.0 * prior.a0
    if not prior.independent:
        c[0] -= d
        for a in range(d):
            row = 0.0
            for b in range(d):
                row += prior.precision[a, b] * (theta[b] - prior.mu0[b])
            penalty += 0.5 * (theta[a] - prior.mu0[a]) * row
    c[6] = -penalty / sigma2[()]
    s = math.exp(_slice(rng, c, True, _WIDTH / math.sqrt(information)))
    for j in range(A.shape[0]):
        square = A[j, d, d]
        across = 0.0
        fitted_square = 0.0
        for a in range(d):
            fitted = 0.0
            for b in range(d):
                fitted += A[j, a, b] * theta[b]
            residual = A[j, a, d] - fitted
            fitted_square += theta[a] * fitted
            across += theta[a] * residual
            A[j, a, d] = fitted + s * residual
            A[j, d, a] = A[j, a, d]
        square -= 2.0 * across + fitted_square
        A[j, d, d] = fitted_square + s * (2.0 * across + s * square)
    sigma2[()] *= s * s


@_jit
def _shear_x(rng, i, values, A, weight, prior, covariates, theta, sigma2, mu, L, Psi, W, steps, c):  # type: ignore[no-untyped-def]
    """``column i += x * column b`` for covariate i (counted from 1) and every b < i."""
    k = mu.size
    per_theta = 1.0 if prior.independent else 1.0 / sigma2[()]
    for b in range(i):
        fill(c, 0.0)
        curvature = _shear_noise(i, b, values, A, weight, c)
        # theta_b -= x theta_i
        gradient = 0.0
        for a in range(k + 1):
            gradient += prior.precision[b, a] * (theta[a] - prior.mu0[a])
        bend = per_theta * prior.precision[b, b] * theta[i] * theta[i]
        c[1] += per_theta * theta[i] * gradient
        # With r = mu - m: r -> M (r + x m_b e_i), and tr(Psi W) -> quadratic in x for b > 0.
        pull = 0.0
        for a in range(k):
            pull += W[i - 1, a] * (mu[a] - covariates.m[a])
        m_b = covariates.m[b - 1] if b > 0 else 1.0
        c[1] -= covariates.lam * m_b * pull
        bend += covariates.lam * m_b * m_b * W[i - 1, i - 1]
        if b > 0:
            trace = 0.0
            for a in range(k):
                trace += Psi[b - 1, a] * W[i - 1, a]
            c[1] += trace
            bend += Psi[b - 1, b - 1] * W[i - 1, i - 1]
        c[2] -= 0.5 * bend
        x = _slice(rng, c, False, _WIDTH / math.sqrt(curvature + bend))
        _shear_statistics(i, b, x, A)
        theta[b] -= x * theta[i]
        if b == 0:
            mu[i - 1] += x
            continue
        mu[i - 1] += x * mu[b - 1]
        for a in range(b):
            L[i - 1, a] += x * L[b - 1, a]
        W[i - 1, b - 1] -= x * W[i - 1, i - 1]
        steps[b - 1] = x
    _mirror_row(i, A)
    # W -> M⁻ᵀ W M⁻¹ with M = I + e_i steps'. Row i is done; earlier rows are not needed any more.
    for a in range(i, k):
        factor = W[a, i - 1]
        for b in range(i - 1):
            W[a, b] -= factor * steps[b]


@_jit
def _scale_x(rng, i, values, A, weight, prior, covariates, theta, sigma2, mu, L, Psi, W, c):  # type: ignore[no-untyped-def]
    """``column i *= s`` for covariate i (counted from 1)."""
    k = mu.size
    fill(c, 0.0)
    information = covariates.nu + 1.0
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            if a != i:
                w = weight[j, i, a]
                c[1] += w * values[j, i, a] * A[j, i, a]
                c[2] -= 0.5 * w * A[j, i, a] * A[j, i, a]
                information += w * values[j, i, a] * values[j, i, a]
        w, square = weight[j, i, i], A[j, i, i]
        c[2] += w * values[j, i, i] * square
        c[4] -= 0.5 * w * square * square
        information += 4.0 * w * values[j, i, i] * values[j, i, i]
    # theta_i -> g theta_i with g = 1 / s
    per_theta = 1.0 if prior.independent else 1.0 / sigma2[()]
    others = -prior.precision[i, i] * prior.mu0[i]
    for a in range(k + 1):
        if a != i:
            others += prior.precision[i, a] * (theta[a] - prior.mu0[a])
    c[5] -= per_theta * theta[i] * others
    c[6] -= 0.5 * per_theta * prior.precision[i, i] * theta[i] * theta[i]
    # With r = mu - m: r -> M (r + m_i (1 - g) e_i); row and column i of W are multiplied by g.
    m_i = covariates.m[i - 1]
    pull = 0.0
    trace = 0.0
    for a in range(k):
        pull += W[i - 1, a] * (mu[a] - covariates.m[a])
        if a != i - 1:
            trace += Psi[i - 1, a] * W[i - 1, a]
    w = W[i - 1, i - 1]
    c[5] += covariates.lam * m_i * (pull + m_i * w) - trace
    c[6] -= 0.5 * (covariates.lam * m_i * m_i + Psi[i - 1, i - 1]) * w
    c[0] = -(covariates.nu + 1.0)
    s = math.exp(_slice(rng, c, True, _WIDTH / math.sqrt(information)))
    g = 1.0 / s
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            A[j, i, a] *= s
        A[j, i, i] *= s
    _mirror_row(i, A)
    theta[i] *= g
    mu[i - 1] *= s
    for a in range(i):
        L[i - 1, a] *= s
    for a in range(i, k):  # the rows still to come
        W[a, i - 1] *= g


# --- the sweep ------------------------------------------------------------------------------------


@_jit
def _weights(holders, omega2, weight):  # type: ignore[no-untyped-def]
    for j in range(weight.shape[0]):
        for a in range(weight.shape[1]):
            for b in range(weight.shape[1]):
                scale = holders.scale[j, a, b]
                weight[j, a, b] = 1.0 / omega2[j, a, b] if 0.0 < scale < np.inf else 0.0


@_jit
def sweep_regression(rng, holders, prior, theta, sigma2, A, omega2, orbits):  # type: ignore[no-untyped-def]
    """Move (theta, sigma2, A) along the orbits of y, in place."""
    if orbits.movable[theta.size]:
        _weights(holders, omega2, orbits.weight)
        _move_y(rng, holders.values, A, orbits.weight, prior, theta, sigma2, orbits.c)


@_jit
def sweep_all(  # type: ignore[no-untyped-def]
    rng, holders, prior, covariates, theta, sigma2, mu, L, Psi, A, omega2, orbits
):
    """Move (theta, sigma2, mu, T = LL', A) along the orbits of x and y, in place."""
    k = mu.size
    W, c = orbits.W, orbits.c
    values, weight = holders.values, orbits.weight
    _weights(holders, omega2, weight)
    invert_lower(L, orbits.scratch, k)
    gram_of_lower(orbits.scratch, W, k)
    for i in range(1, k + 1):
        if not orbits.movable[i]:
            continue
        _shear_x(
            rng, i, values, A, weight, prior, covariates, theta, sigma2, mu, L, Psi, W,
            orbits.steps, c,
        )  # fmt: skip
        _scale_x(rng, i, values, A, weight, prior, covariates, theta, sigma2, mu, L, Psi, W, c)
    if orbits.movable[k + 1]:
        _move_y(rng, values, A, weight, prior, theta, sigma2, c)
