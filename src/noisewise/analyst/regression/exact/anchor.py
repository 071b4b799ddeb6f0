"""Coordinates of y's row that are counted from a regression which comes from outside (`varying`).

A holder's row F_y of the factor (`factor`) is plain there: its entries are coordinates. Where noise
hides the holder's regression, they follow the common one and the holder's other rows,
F_y = theta F_x, a narrow ridge. Here x are coordinates without that ridge, and x' those of
`factor`; only those of y's row differ.

Others say that the holder's regression theta has U theta about g, U upper triangular, up to U_bb
kappa_b; and F_yb = Σ_{c>=b} theta_c F_cb up to F_yy / sqrt(n). From the last column to the first,
when b's turn comes, t_c, what is expected of theta_c of later columns, is known. So one expects

    e = (g_b - Σ_{c>b} U_bc t_c) / U_bb of theta_b, and of F_yb  m = e F_bb + Σ_{c>b} t_c F_cb

up to v = kappa_b² F_bb² + F_yy² / n. The Release says c ± s, centre and scale of the coordinate.
Together, with rho = s² / (s² + v),

    F_yb = c + rho (m - c) + sqrt(1 - rho) s x_b
    t_b  = e + kappa_b² F_bb / v (F_yb - m).

F_yy is a length (`log_length`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.exact.factor import (
    BELOW_SMALLEST_N,
    PLAIN,
    factor,
    factor_adjoint,
    log_length,
)

SPARE = 6  # matrices of one thread: F, K, Fbar, Kbar, no reference, vectors in rows
# The vectors: t, g, kappa; derivatives by g and kappa; two of `factor`
T, G, KAPPA, BY_G, BY_KAPPA, ROW, NONE = 0, 1, 2, 3, 4, 5, 6


@compiled
def to_plain(
    x: FloatArray,
    n: float,
    values: FloatArray,
    known: IntArray,
    partial: BoolArray,
    centre: FloatArray,
    scale: FloatArray,
    anchored: bool,
    U: FloatArray,
    spare: FloatArray,
    out: FloatArray,
) -> Any:
    """x' into `out`; the log Jacobian, -inf off the support. g and kappa are in `spare`.

    If not `anchored`, x' = x.
    """
    P = spare.shape[2]
    F, K, none, rows = spare[0, :P], spare[1, :P], spare[4, :P], spare[5]
    y = P - 1
    t, g, kappa = rows[T], rows[G], rows[KAPPA]
    out[:] = x
    form: Any = np.int64(PLAIN)  # no literals: see `kernels.logp_and_gradient`
    start: Any = np.int64(0)
    end, logp = factor(
        x, start, n, known, values, form, partial, 0.0, centre, scale, none, rows[NONE], K, F
    )
    if not logp > -np.inf:
        return -np.inf
    if not anchored:
        return 0.0
    first, last = end - y - 1, end - 1
    length, _, logp, _ = log_length(x[last], centre[last], scale[last])
    out[last] = (length - centre[last]) / scale[last]
    F[y, y] = math.exp(length)
    for b in range(y - 1, -1, -1):
        middle, s = centre[first + b], scale[first + b]
        e, m = _expected(b, U, g, t, F)
        v = (kappa[b] * F[b, b]) ** 2 + F[y, y] ** 2 / F[0, 1]
        away = (s * s * (m - middle) / (s * s + v)) + math.sqrt(v / (s * s + v)) * s * x[first + b]
        out[first + b] = away / s
        t[b] = e + kappa[b] ** 2 * F[b, b] / v * (middle + away - m)
        logp += 0.5 * math.log(v / (s * s + v))
    return logp


@compiled
def _expected(b: int, U: FloatArray, g: FloatArray, t: FloatArray, F: FloatArray) -> Any:
    """e and m."""
    e, later = g[b], 0.0
    for c in range(b + 1, F.shape[0] - 1):
        e -= U[b, c] * t[c]
        later += t[c] * F[c, b]
    e /= U[b, b]
    return e, e * F[b, b] + later


@compiled
def to_plain_adjoint(
    x: FloatArray,
    moved: FloatArray,
    known: IntArray,
    partial: BoolArray,
    centre: FloatArray,
    scale: FloatArray,
    anchored: bool,
    U: FloatArray,
    by_length: float,
    spare: FloatArray,
    once: FloatArray,
    twice: FloatArray,
    grad: FloatArray,
) -> Any:
    """Reverse of `to_plain`, which has been called: derivatives by x' in `grad` become those by x.

    `moved` is x'. `by_length` are further ones, by ln F_yy, which may not be a coordinate. Those by
    g and kappa go to `spare`. `once` and `twice` are scratch space of the size of x.
    """
    P = spare.shape[2]
    F, K, Fbar, Kbar, none = spare[0, :P], spare[1, :P], spare[2, :P], spare[3, :P], spare[4, :P]
    rows = spare[5]
    y, n, nbar = P - 1, F[0, 1], 0.0
    t, g, kappa, by_g, by_kappa = rows[T], rows[G], rows[KAPPA], rows[BY_G], rows[BY_KAPPA]
    Fbar[:] = 0.0
    by_g[:] = 0.0
    by_kappa[:] = 0.0
    form: Any = np.int64(PLAIN)
    start: Any = np.int64(0 if known[0, 0] else 1)
    end = start
    for a in range(1, P):
        for b in range(a + 1):
            end += not known[a, b]
    if anchored:
        end -= y + 1
        first, last = end, end + y
        by_length += grad[last] / scale[last]
        by_t = rows[ROW]
        by_t[:] = 0.0
        for b in range(y):
            middle, s = centre[first + b], scale[first + b]
            e, m = _expected(b, U, g, t, F)
            v = (kappa[b] * F[b, b]) ** 2 + F[y, y] ** 2 / n
            rho, root = s * s / (s * s + v), math.sqrt(v / (s * s + v))
            share = kappa[b] ** 2 * F[b, b] / v
            by_row = grad[first + b] / s + by_t[b] * share
            by_share = by_t[b] * (middle + s * moved[first + b] - m)
            grad[first + b] = root * s * by_row
            by_rho = by_row * (m - middle - 0.5 * s * x[first + b] / root) - 0.5 / (root * root)
            by_v = -by_rho * (rho / s) ** 2 - by_share * share / v
            by_m = rho * by_row - by_t[b] * share
            by_e = (by_t[b] + by_m * F[b, b]) / U[b, b]
            Fbar[b, b] += by_m * e + (by_share / v + 2.0 * by_v * F[b, b]) * kappa[b] ** 2
            by_kappa[b] = 2.0 * kappa[b] * F[b, b] * (by_share / v + by_v * F[b, b])
            by_length += 2.0 * by_v * F[y, y] ** 2 / n
            nbar -= by_v * (F[y, y] / n) ** 2
            by_g[b] = by_e
            for c in range(b + 1, y):
                by_t[c] += by_m * F[c, b] - by_e * U[b, c]
                Fbar[c, b] += by_m * t[c]
        _, slope, _, bend = log_length(x[last], centre[last], scale[last])
        grad[last] = by_length * slope + bend
    else:
        Fbar[y, y] = by_length / F[y, y]
    # What F does to the other coordinates. The adjoint of `factor` has its volume in it, which is
    # in `grad` already: it is taken out as what comes of no derivatives at all.
    nbar += factor_adjoint(
        x, start, known, form, partial, 0.0, centre, scale, none, rows[NONE], K, F, Fbar, Kbar,
        none, rows[NONE], rows[ROW], once,
    )  # fmt: skip
    Fbar[:] = 0.0
    nbar -= factor_adjoint(
        x, start, known, form, partial, 0.0, centre, scale, none, rows[NONE], K, F, Fbar, Kbar,
        none, rows[NONE], rows[ROW], twice,
    )  # fmt: skip
    for i in range(start, end):
        grad[i] += once[i] - twice[i]
    if start == 1:
        grad[0] += nbar * (n - P + BELOW_SMALLEST_N) * scale[0]
