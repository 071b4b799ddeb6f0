"""One coordinate's move along its orbit: the noise terms, the slice step, the moved statistics.

`gibbs_interweave` says what the moves are and goes through them.

References
----------
Neal (2003), Slice sampling, Annals of Statistics 31(3), doi:10.1214/aos/1056562461.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.random_numbers import uniform
from noisewise.analyst.regression.papers.gibbs_compiled import compiled

WIDTH = 3.0  # initial slice width, in conditional standard deviations
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


@compiled
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


@compiled
def slice_step(rng, c, is_scale, width):  # type: ignore[no-untyped-def]
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


@compiled
def shear_noise(i, b, values, A, orbits):  # type: ignore[no-untyped-def]
    """Add the noise terms of ``column i += x t_b`` to c; returns the invariant curvature.

    Entry (i, a) moves linearly for a != i and (i, i) quadratically. Row i of A is up to date,
    column i and what was whitened from it need not be. The products of t_b with column i are left
    in orbits.across for `shear_statistics`.
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


@compiled
def shear_statistics(i, b, x, A, orbits):  # type: ignore[no-untyped-def]
    """Row i += x * (row of t_b), the diagonal entry twice. Column i is left to `mirror_row`."""
    for j in range(A.shape[0]):
        diagonal = A[j, i, i] + x * (2.0 * orbits.across[j] + x * orbits.length[j, b])
        for a in range(A.shape[1]):
            A[j, i, a] += x * orbits.whitened[j, b, a]
        A[j, i, i] = diagonal


@compiled
def mirror_row(i, A):  # type: ignore[no-untyped-def]
    """Column i from row i."""
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            A[j, a, i] = A[j, i, a]


@compiled
def scale_noise(i, reach, values, A, orbits):  # type: ignore[no-untyped-def]
    """Add the noise terms of ``fitted + s (column i - fitted)`` to c; returns the information.

    orbits.steps has the fitted column's coefficients on the first `reach` columns. Products of the
    fitted column with all columns are left in orbits.product, its length in place i.
    """
    weight, product, c = orbits.weight, orbits.product, orbits.c
    information = 0.0
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            product[j, a] = 0.0
        for b in range(reach):
            factor = orbits.steps[b]
            for a in range(A.shape[1]):
                product[j, a] += factor * A[j, b, a]
        product[j, i] = 0.0
        across = 0.0
        for b in range(reach):
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


@compiled
def scale_statistics(i, reach, s, A, orbits):  # type: ignore[no-untyped-def]
    """Row i of ``fitted + s (column i - fitted)``, after `scale_noise`."""
    for j in range(A.shape[0]):
        length, across = orbits.product[j, i], 0.0
        for b in range(reach):
            across += orbits.steps[b] * A[j, i, b]
        square = A[j, i, i] - 2.0 * across + length
        for a in range(A.shape[1]):
            fitted = orbits.product[j, a]
            A[j, i, a] = fitted + s * (A[j, i, a] - fitted)
        A[j, i, i] = length + s * (2.0 * (across - length) + s * square)


@compiled
def move_theta(b, x, prior, theta, orbits):  # type: ignore[no-untyped-def]
    """theta += x f_b."""
    for a in range(b + 1):
        theta[a] += x * orbits.f[b, a]
    for a in range(b + 1 if prior.diagonal else theta.size):
        orbits.gradient[a] += x * orbits.prior_f[b, a]


@compiled
def slope_of_prior(b, orbits):  # type: ignore[no-untyped-def]
    """Derivative of theta's quadratic form in the direction f_b."""
    slope = 0.0
    for a in range(b + 1):
        slope += orbits.f[b, a] * orbits.gradient[a]
    return slope


@compiled
def whiten_prior(b, prior, orbits):  # type: ignore[no-untyped-def]
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


@compiled
def whiten(b, A, prior, orbits):  # type: ignore[no-untyped-def]
    """What depends on row b of f: products of t_b with all columns, and theta's prior."""
    whiten_prior(b, prior, orbits)
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


@compiled
def prepare_sweep(holders, omega2, prior, theta, orbits):  # type: ignore[no-untyped-def]
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
