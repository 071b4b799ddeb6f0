"""Moves along orbits, so that Gibbs sampling also mixes where noise hides the statistics.

**The problem.** theta is drawn given the latent A, and A is drawn given theta and the release. If
the noise variance is a thousand times the sampling variance of A, the second step moves A by a
thousandth of the posterior's variance only: some 1000 iterations for one effective draw.

**The move.** Let Q be a linear map of the columns w = (1, x, y) that keeps the constant. It takes
rows to rows of the same model with other parameters phi = (theta, sigma2, mu, T), and A to QAQ'.
The law of A given phi goes with it: p(QAQ' | Q phi) |J_A(Q)| = p(A | phi), for the exact law and
for the normal approximation alike, restricted to positive definite matrices or not. So the
likelihood of A given phi is constant along the orbit of Q, and what remains is

    prior(Q phi) |J_phi(Q)| x noise density(release - QAQ')     with respect to Haar measure

(Liu & Sabatti 2000, theorem 1), sampled here by slice sampling. This is the interweaving of a
centred (A given phi) with a non-centred parametrisation (what of A is left when its dependence on
phi is taken out stays fixed; Yu & Meng 2011).

**Coordinates.** Write w = F t with t standardised and uncorrelated and F lower triangular, as in
`moments`: F = [[1, 0, 0], [mu, L, 0], [., ., sigma]]. The entries of F are the coordinates, and one
after the other moves, row by row:

- ``x_i += delta t_b``, b < i: F_ib += delta, which is mu_i (b = 0) or L_ib. theta_c changes by
  -delta theta_i f_bc, f_b the row b of F⁻¹, so that v'theta and y do not change. Jacobians are 1.
- the residual of x_i on the columns before it, times kappa: L_ii times kappa. theta_i is divided by
  kappa and theta_c makes up for it. J: kappa for L_ii, 1/kappa for theta_i. With the prior of T in
  coordinates L, which has L_ii^(k + 1 - i - (nu + k + 2)): kappa^-(nu + 1 + i) in all.
- ``y += delta t_b``: theta_c += delta f_bc.
- the residual of y times kappa: sigma2 times kappa². J kappa²; with the prior of sigma2 (and of
  theta, if it scales with sigma): kappa^-(2 a0 + d), or kappa^-(2 a0) with an independent prior.

Without standardising (``x_i += delta x_b``) the same moves are right but slow: where the mean of a
covariate is not small compared with its standard deviation, intercept and slope are so correlated
that 150 times more iterations were needed.

**The cost.** Given omega2 the log density along every orbit is a polynomial of degree 4 in delta
or kappa, plus terms in log kappa and 1/kappa. Its coefficients take O(P) a holder, its values O(1),
the sweep O(P^3).

**Slice widths** and directions depend on what the move leaves unchanged only, as they must.

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

from noisewise.analyst.samplers.gibbs_linalg import (
    FASTMATH,
    cholesky,
    copy,
    fill,
    gram_of_lower,
    invert_lower,
)
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
    F: FloatArray  # (d, d), factor of E[vv'], lower triangular
    f: FloatArray  # (d, d), inverse of F
    whitened: FloatArray  # (J, d, P), f A: products of each t_b with each column
    length: FloatArray  # (J, d), products of each t_b with itself
    prior_f: FloatArray  # (d, d), rows f_b precision
    prior_length: FloatArray  # (d,), f_b precision f_b'
    gradient: FloatArray  # (d,), precision (theta - mu0)
    W: FloatArray  # (k, k), inverse of T
    Psi_f: FloatArray  # (k, k), rows K_b Psi, K the inverse of L
    Psi_length: FloatArray  # (k,), K_b Psi K_b'
    shift: FloatArray  # (k,), K_b (mu - m)
    steps: FloatArray  # (d,)
    product: FloatArray  # (J, P)
    across: FloatArray  # (J,)
    c: FloatArray  # (8,), coefficients


def prepare_orbits(scale: FloatArray, *, covariates: bool) -> Orbits:
    """Scratch space for noise scales of shape (J, P, P); x moves only if `covariates`."""
    J, P, _ = scale.shape
    known = (scale == 0).any(axis=0)
    known[0, 0] = False
    movable = ~known.any(axis=1)
    movable[0] = False
    if not covariates:
        movable[:-1] = False
    d = P - 1
    k = P - 2 if covariates else 0
    return Orbits(
        movable=movable,
        weight=np.zeros_like(scale),
        F=np.zeros((d, d)),
        f=np.zeros((d, d)),
        whitened=np.zeros((J, d, P)),
        length=np.zeros((J, d)),
        prior_f=np.zeros((d, d)),
        prior_length=np.zeros(d),
        gradient=np.zeros(d),
        W=np.zeros((k, k)),
        Psi_f=np.zeros((k, k)),
        Psi_length=np.zeros(k),
        shift=np.zeros(k),
        steps=np.zeros(d),
        product=np.zeros((J, P)),
        across=np.zeros(J),
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
def _shear_noise(i, b, values, A, orbits):  # type: ignore[no-untyped-def]
    """Add the noise terms of ``column i += x t_b`` to c; returns the invariant curvature.

    Entry (i, a) moves linearly for a != i and (i, i) quadratically. Row i of A is up to date,
    column i and what was whitened from it need not be. The products of t_b with column i are left
    in orbits.across for `_shear_statistics`.
    """
    weight, whitened, c = orbits.weight, orbits.whitened, orbits.c
    curvature = 0.0
    for j in range(A.shape[0]):
        linear = 0.0
        quadratic = 0.0
        for a in range(A.shape[1]):
            w = weight[j, i, a] * whitened[j, b, a]
            linear += w * (values[j, i, a] - A[j, i, a])
            quadratic += w * whitened[j, b, a]
        # The loop's term a = i is not meant, and used a stale entry: take it out again.
        w, stale = weight[j, i, i], whitened[j, b, i]
        r = values[j, i, i] - A[j, i, i]
        linear -= w * stale * r
        quadratic -= w * stale * stale
        curvature += quadratic
        across = 0.0
        for a in range(b + 1):
            across += orbits.f[b, a] * A[j, i, a]
        orbits.across[j] = across
        first, second = 2.0 * across, orbits.length[j, b]
        c[1] += linear + w * r * first
        c[2] += w * (r * second - 0.5 * first * first) - 0.5 * quadratic
        c[3] -= w * first * second
        c[4] -= 0.5 * w * second * second
    return curvature


@_jit
def _shear_statistics(i, b, x, A, orbits):  # type: ignore[no-untyped-def]
    """Row i += x * (row of t_b), the diagonal entry twice. Column i is left to `_mirror_row`."""
    for j in range(A.shape[0]):
        diagonal = A[j, i, i] + x * (2.0 * orbits.across[j] + x * orbits.length[j, b])
        for a in range(A.shape[1]):
            A[j, i, a] += x * orbits.whitened[j, b, a]
        A[j, i, i] = diagonal


@_jit
def _mirror_row(i, A):  # type: ignore[no-untyped-def]
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            A[j, a, i] = A[j, i, a]


@_jit
def _scale_noise(i, values, A, orbits):  # type: ignore[no-untyped-def]
    """Add the noise terms of ``fitted + s (column i - fitted)`` to c; returns the information.

    orbits.steps has the fitted column's coefficients on the columns before i. Products of the
    fitted column with all columns are left in orbits.product, its length in place i.
    """
    weight, product, c = orbits.weight, orbits.product, orbits.c
    information = 0.0
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            product[j, a] = 0.0
        for b in range(i):
            factor = orbits.steps[b]
            for a in range(A.shape[1]):
                product[j, a] += factor * A[j, b, a]
        product[j, i] = 0.0
        across = 0.0
        for b in range(i):
            product[j, i] += orbits.steps[b] * product[j, b]
            across += orbits.steps[b] * A[j, i, b]
        for a in range(A.shape[1]):
            if a != i:
                w, residual = weight[j, i, a], A[j, i, a] - product[j, a]
                c[1] += w * (values[j, i, a] - product[j, a]) * residual
                c[2] -= 0.5 * w * residual * residual
        # Entry (i, i) is length + 2 s (across - length) + s² (A_ii - 2 across + length).
        w, length = weight[j, i, i], product[j, i]
        r = values[j, i, i] - length
        square = A[j, i, i] - 2.0 * across + length
        across = 2.0 * (across - length)
        c[1] += w * r * across
        c[2] += w * (r * square - 0.5 * across * across)
        c[3] -= w * across * square
        c[4] -= 0.5 * w * square * square
        information += w * values[j, i, i] * values[j, i, i]
    return information


@_jit
def _scale_statistics(i, s, A, orbits):  # type: ignore[no-untyped-def]
    for j in range(A.shape[0]):
        length, across = orbits.product[j, i], 0.0
        for b in range(i):
            across += orbits.steps[b] * A[j, i, b]
        square = A[j, i, i] - 2.0 * across + length
        for a in range(A.shape[1]):
            fitted = orbits.product[j, a]
            A[j, i, a] = fitted + s * (A[j, i, a] - fitted)
        A[j, i, i] = length + s * (2.0 * (across - length) + s * square)


@_jit
def _move_theta(b, x, prior, theta, orbits):  # type: ignore[no-untyped-def]
    """theta += x f_b."""
    for a in range(b + 1):
        theta[a] += x * orbits.f[b, a]
    for a in range(b + 1 if prior.diagonal else theta.size):
        orbits.gradient[a] += x * orbits.prior_f[b, a]


@_jit
def _slope_of_prior(b, orbits):  # type: ignore[no-untyped-def]
    """Derivative of theta's quadratic form in the direction f_b."""
    slope = 0.0
    for a in range(b + 1):
        slope += orbits.f[b, a] * orbits.gradient[a]
    return slope


@_jit
def _whiten_prior(b, prior, orbits):  # type: ignore[no-untyped-def]
    """theta's prior in the direction f_b."""
    f = orbits.f
    d = f.shape[0]
    for a in range(d):
        orbits.prior_f[b, a] = 0.0
    for c in range(b + 1):
        factor = f[b, c]
        for a in range(d):
            orbits.prior_f[b, a] += factor * prior.precision[c, a]
    total = 0.0
    for c in range(b + 1):
        total += f[b, c] * orbits.prior_f[b, c]
    orbits.prior_length[b] = total


@_jit
def _whiten(b, A, prior, orbits):  # type: ignore[no-untyped-def]
    """What depends on row b of f: products of t_b with all columns, and theta's prior."""
    _whiten_prior(b, prior, orbits)
    f = orbits.f
    d = f.shape[0]
    for j in range(A.shape[0]):
        for a in range(d + 1):
            orbits.whitened[j, b, a] = 0.0
        for c in range(b + 1):
            factor = f[b, c]
            for a in range(d + 1):
                orbits.whitened[j, b, a] += factor * A[j, c, a]
        total = 0.0
        for c in range(b + 1):
            total += f[b, c] * orbits.whitened[j, b, c]
        orbits.length[j, b] = total


# --- rows -----------------------------------------------------------------------------------------


@_jit
def _move_y(rng, values, A, prior, theta, sigma2, orbits):  # type: ignore[no-untyped-def]
    """All coordinates of y: theta, then sigma2."""
    d = theta.size
    c = orbits.c
    per_theta = 1.0 if prior.independent else 1.0 / sigma2[()]
    for b in range(d):
        fill(c, 0.0)
        curvature = _shear_noise(d, b, values, A, orbits)
        bend = per_theta * orbits.prior_length[b]
        c[1] -= per_theta * _slope_of_prior(b, orbits)
        c[2] -= 0.5 * bend
        x = _slice(rng, c, False, _WIDTH / math.sqrt(curvature + bend))
        _shear_statistics(d, b, x, A, orbits)
        _move_theta(b, x, prior, theta, orbits)
    _mirror_row(d, A)
    fill(c, 0.0)
    copy(theta, orbits.steps)
    information = 2.0 * prior.a0 + d + _scale_noise(d, values, A, orbits)
    penalty = prior.b0
    c[0] = -2.0 * prior.a0
    if not prior.independent:
        c[0] -= d
        for a in range(d):
            penalty += 0.5 * (theta[a] - prior.mu0[a]) * orbits.gradient[a]
    c[6] = -penalty / sigma2[()]
    s = math.exp(_slice(rng, c, True, _WIDTH / math.sqrt(information)))
    _scale_statistics(d, s, A, orbits)
    _mirror_row(d, A)
    sigma2[()] *= s * s


@_jit
def _move_x(rng, i, values, A, prior, covariates, theta, sigma2, mu, Psi, orbits):  # type: ignore[no-untyped-def]
    """All coordinates of covariate i (counted from 1): mu_i, then row i of L."""
    k = mu.size
    c, F, f, W, steps = orbits.c, orbits.F, orbits.f, orbits.W, orbits.steps
    per_theta = 1.0 if prior.independent else 1.0 / sigma2[()]
    lam, m = covariates.lam, covariates.m
    w_ii = W[i - 1, i - 1]
    pull = 0.0  # (W (mu - m))_i
    for a in range(k):
        pull += W[i - 1, a] * (mu[a] - m[a])
        steps[a] = 0.0
    for b in range(i):
        fill(c, 0.0)
        curvature = _shear_noise(i, b, values, A, orbits)
        # theta moves by -x theta_i f_b.
        bend = per_theta * orbits.prior_length[b] * theta[i] * theta[i]
        c[1] += per_theta * theta[i] * _slope_of_prior(b, orbits)
        # K -> K - x K_.i K_b in tr(Psi K'K) and in |K r|², r = mu - m; for b = 0 r_i moves.
        shift = -1.0
        if b > 0:
            shift = orbits.shift[b - 1]
            trace = 0.0
            for a in range(b if covariates.diagonal else k):
                trace += orbits.Psi_f[b - 1, a] * W[i - 1, a]
            c[1] += trace
            bend += orbits.Psi_length[b - 1] * w_ii
        c[1] += lam * pull * shift
        bend += lam * w_ii * shift * shift
        c[2] -= 0.5 * bend
        x = _slice(rng, c, False, _WIDTH / math.sqrt(curvature + bend))
        _shear_statistics(i, b, x, A, orbits)
        _move_theta(b, -x * theta[i], prior, theta, orbits)
        F[i, b] += x
        pull -= x * w_ii * shift
        if b == 0:
            mu[i - 1] += x
            continue
        for a in range(b):
            W[i - 1, a] -= x * w_ii * f[b, a + 1]
            steps[a] += x * f[b, a + 1]
    # W -> M⁻ᵀ W M⁻¹ with M = I + e_i steps'. Row i is done; earlier rows are not needed any more.
    for a in range(i, k):
        factor = W[a, i - 1]
        for b in range(i - 1):
            W[a, b] -= factor * steps[b]
    _scale_x(rng, i, values, A, prior, covariates, theta, per_theta, mu, Psi, orbits)
    # Row i is settled: bring up to date what depends on it.
    _mirror_row(i, A)
    for j in range(A.shape[0]):
        for b in range(i):
            total = 0.0
            for a in range(b + 1):
                total += f[b, a] * A[j, i, a]
            orbits.whitened[j, b, i] = total
    _whiten(i, A, prior, orbits)


@_jit
def _invert_row(i, mu, m, Psi, orbits):  # type: ignore[no-untyped-def]
    """Row i of f from row i of F, and what the prior of the covariates needs of it."""
    F, f = orbits.F, orbits.f
    k = mu.size
    inverse = 1.0 / F[i, i]
    for a in range(i):
        f[i, a] = 0.0
    for b in range(i):
        factor = F[i, b] * inverse
        for a in range(b + 1):
            f[i, a] -= factor * f[b, a]
    f[i, i] = inverse
    for a in range(k):
        orbits.Psi_f[i - 1, a] = 0.0
    shift = 0.0
    for b in range(i):
        factor = f[i, b + 1]
        shift += factor * (mu[b] - m[b])
        for a in range(k):
            orbits.Psi_f[i - 1, a] += factor * Psi[b, a]
    orbits.shift[i - 1] = shift
    length = 0.0
    for b in range(i):
        length += orbits.Psi_f[i - 1, b] * f[i, b + 1]
    orbits.Psi_length[i - 1] = length


@_jit
def _scale_x(rng, i, values, A, prior, covariates, theta, per_theta, mu, Psi, orbits):  # type: ignore[no-untyped-def]
    """The residual of covariate i on the columns before it, times s: L_ii times s."""
    k = mu.size
    c, F, f, W, steps = orbits.c, orbits.F, orbits.f, orbits.W, orbits.steps
    _invert_row(i, mu, covariates.m, Psi, orbits)
    # x_i = Σ_b steps_b w_b + residual; f_i is the residual over L_ii.
    for b in range(i):
        steps[b] = -f[i, b] * F[i, i]
    fill(c, 0.0)
    information = covariates.nu + 1.0 + i + 4.0 * _scale_noise(i, values, A, orbits)
    # With t = 1 - 1/s, theta moves by t theta_i (steps - e_i) = -t theta_i L_ii f_i.
    whole = -theta[i] * F[i, i]
    _whiten_prior(i, prior, orbits)
    first = -per_theta * whole * _slope_of_prior(i, orbits)
    second = -0.5 * per_theta * whole * whole * orbits.prior_length[i]
    # K -> K - t L_ii K_.i K_i in the prior of mu and T.
    pull = 0.0
    trace = 0.0
    for a in range(k):
        pull += W[i - 1, a] * (mu[a] - covariates.m[a])
        trace += W[i - 1, a] * orbits.Psi_f[i - 1, a]
    shift, l_ii = orbits.shift[i - 1], F[i, i]
    first += l_ii * (trace + covariates.lam * pull * shift)
    square = orbits.Psi_length[i - 1] + covariates.lam * shift * shift
    second -= 0.5 * l_ii * l_ii * W[i - 1, i - 1] * square
    # first t + second t² with t = 1 - g, up to a constant.
    c[5] = -(first + 2.0 * second)
    c[6] = second
    c[0] = -(covariates.nu + 1.0 + i)
    s = math.exp(_slice(rng, c, True, _WIDTH / math.sqrt(information)))
    t = 1.0 - 1.0 / s
    _scale_statistics(i, s, A, orbits)
    _move_theta(i, t * whole, prior, theta, orbits)
    # W_a for the rows still to come: M⁻¹ = I + e_i q', q = t (steps - e_i).
    for a in range(i, k):
        factor = W[a, i - 1]
        for b in range(i - 1):
            W[a, b] += factor * t * steps[b + 1]
        W[a, i - 1] -= factor * t
    F[i, i] *= s
    _invert_row(i, mu, covariates.m, Psi, orbits)


# --- the sweep ------------------------------------------------------------------------------------


@_jit
def _prepare_sweep(holders, omega2, prior, theta, orbits):  # type: ignore[no-untyped-def]
    """Weights of the noise, and the gradient of theta's quadratic form."""
    weight = orbits.weight
    for j in range(weight.shape[0]):
        for a in range(weight.shape[1]):
            for b in range(weight.shape[1]):
                scale = holders.scale[j, a, b]
                weight[j, a, b] = 1.0 / omega2[j, a, b] if 0.0 < scale < np.inf else 0.0
    for a in range(theta.size):
        total = 0.0
        for b in range(theta.size):
            total += prior.precision[a, b] * (theta[b] - prior.mu0[b])
        orbits.gradient[a] = total


@_jit
def sweep_regression(rng, holders, prior, theta, sigma2, A, omega2, orbits):  # type: ignore[no-untyped-def]
    """Move (theta, sigma2, A) along the orbits of y, in place.

    Columns are standardised by the latent statistics themselves, which y does not change.
    """
    d = theta.size
    if not orbits.movable[d]:
        return
    F = orbits.F
    fill(F, 0.0)
    for j in range(A.shape[0]):
        for a in range(d):
            for b in range(a + 1):
                F[a, b] += A[j, a, b]
    if not cholesky(F, d):
        return
    invert_lower(F, orbits.f, d)
    root = F[0, 0]
    for a in range(d):
        for b in range(a + 1):
            orbits.f[a, b] *= root
    _prepare_sweep(holders, omega2, prior, theta, orbits)
    for b in range(d):
        _whiten(b, A, prior, orbits)
    _move_y(rng, holders.values, A, prior, theta, sigma2, orbits)


@_jit
def sweep_all(  # type: ignore[no-untyped-def]
    rng, holders, prior, covariates, theta, sigma2, mu, L, Psi, A, omega2, orbits
):
    """Move (theta, sigma2, mu, T = LL', A) along the orbits of x and y, in place."""
    k = mu.size
    F, f = orbits.F, orbits.f
    _prepare_sweep(holders, omega2, prior, theta, orbits)
    invert_lower(L, orbits.Psi_f, k)
    gram_of_lower(orbits.Psi_f, orbits.W, k)
    F[0, 0] = 1.0
    f[0, 0] = 1.0
    _whiten(0, A, prior, orbits)
    for i in range(1, k + 1):
        F[i, 0] = mu[i - 1]
        for b in range(i):
            F[i, b + 1] = L[i - 1, b]
        if orbits.movable[i]:
            _move_x(rng, i, holders.values, A, prior, covariates, theta, sigma2, mu, Psi, orbits)
            for b in range(i):
                L[i - 1, b] = F[i, b + 1]
        else:
            _invert_row(i, mu, covariates.m, Psi, orbits)
            _whiten(i, A, prior, orbits)
    if orbits.movable[k + 1]:
        _move_y(rng, holders.values, A, prior, theta, sigma2, orbits)
