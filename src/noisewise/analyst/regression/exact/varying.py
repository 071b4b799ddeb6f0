"""Coefficients that vary by holder, learnt together: partial pooling.

::

    y in holder j       ~ N((1, x)' theta_j, sigma_j²)
    phi_j = C theta_j   ~ N(beta, diag tau²)     C: the intercept is that of the average person
    tau_c / u_c         ~ half-t(4, 1/2)
    beta_c / u_c        ~ N(0, 10²)              or the user's prior of the coefficients
    sigma_j             ~ half-t(4, 1/2)         as under the scale-free prior of one regression
    x in holder j       ~ a law of its own, with nothing in common

u_c = sd(y) / sd(x_c), and sd(y) for the intercept: the typical holder's rough sds, so that a spread
is expected on the data's own scale. They only set how far out the half-t law begins to fall.

Given beta and tau each holder is a regression with a normal prior, whose theta_j, mu_j and T_j
integrate out as in `density`. So the joint density of all latent statistics, beta and tau is the
sum of the densities of single holders, and NUTS runs on it: tau may go to 0 without a funnel in the
theta_j, which are drawn afterwards. With E and V the mean and variances of phi_j given its
statistics,

    dlogp_j / dbeta_c = (E_c - beta_c) / tau_c²
    dlogp_j / dtau_c² = (V_c + (E_c - beta_c)²) / (2 tau_c⁴) - 1 / (2 tau_c²).

Coordinates
-----------
Where noise hides a holder's regression, its row F_y of the factor follows beta, tau and its other
rows, a narrow ridge where tau is small; else it follows the Release. Its coordinates are counted
from what both say together (`anchor`). tau_c = u_c |sinh q_c|, and q_c may be negative: the density
is even and smooth there, as in `own_laws`.

Chains start with holders apart, q_c at 1 or beyond. The tails of Laplace noise are long: if a chain
starts at tau_c = 0 though coefficients differ, then statistics of holders give in and follow the
common regression, some with sigma_j near 0, and a chain hardly comes back from there.

References
----------
Gelman (2006), Prior distributions for variance parameters in hierarchical models, Bayesian Analysis
1(3), doi:10.1214/06-BA117A; Papaspiliopoulos, Roberts & Sköld (2007), A general framework for the
parametrization of hierarchical models, Statistical Science 22(1), doi:10.1214/088342307000000014.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise._compiled import compiled, sources_digest
from noisewise.analyst.chains import Progress, available_cores
from noisewise.analyst.regression.categories import FREE
from noisewise.analyst.regression.exact.anchor import (
    BY_G,
    BY_KAPPA,
    KAPPA,
    SPARE,
    G,
    to_plain,
    to_plain_adjoint,
)
from noisewise.analyst.regression.exact.c_callback import C_TABLE, c_density, c_table, pointer
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.factor import BUFFERS_PER_HOLDER, SHARED_BUFFERS
from noisewise.analyst.regression.exact.kernels import workspace
from noisewise.analyst.regression.exact.own_laws import FLOOR
from noisewise.analyst.regression.exact.pooling import pooling
from noisewise.analyst.regression.exact.prior import (
    A0,
    B0_SIGMA2,
    SMOOTHING,
)
from noisewise.analyst.regression.exact.sampler import Kernel, collect, init, run_chains
from noisewise.analyst.regression.nuts import NutsInfo, rounding
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import (
    CovariatePrior,
    NormalInverseGammaIndependent,
    ScaleFreeCovariates,
    ScaleFreePrior,
)
from noisewise.analyst.regression.triangular import cholesky, invert_triangle

SPREAD_SCALE = 0.5  # of the half-t law of tau, in units u
_COMMON_SD = 10.0  # of the normal law of beta, in units u
# Largest mean of y² / sigma²: beyond it, where sigma is less than a millionth of y, sums of squares
# lose the digits that residuals are in, and what comes out for the density is noise.
_SHARPEST = 1e12
_MATRICES = 4  # of one thread, vectors in their rows

_types: Any = types  # Numba's type constructors are not annotated
_STAMP = int(sources_digest(Path(__file__))[:15], 16)  # as in `c_callback`


class Affine(NamedTuple):
    """theta = M theta' + t and sigma2 = v sigma2': from the job's coordinates to unit scale."""

    M: FloatArray  # (d, d)
    t: FloatArray  # (d,)
    v: float


class Arrays(NamedTuple):
    """What is common to all chains; columns in the order of `CollapsedPosterior`."""

    first: IntArray  # (J + 1,), where the coordinates of each holder begin
    anchored: BoolArray  # (J,), whether y's row is counted from the common regression
    order: IntArray  # (d,), of the coefficients: phi_order[b] goes with column b
    U: FloatArray  # (J, d, d), phi_order = U t + offset, t that of the holder's own columns
    offset: FloatArray  # (J, d)
    forward: FloatArray  # (d, d), theta' = forward phi + shift
    shift: FloatArray  # (d,)
    back: FloatArray  # (d, d), the inverse of forward
    unit: FloatArray  # (d,), u
    start: FloatArray  # (d,), beta = start + unit / 5 times its coordinate
    prior_precision: FloatArray  # (d, d), of beta
    prior_centre: FloatArray  # (d,)
    sigma_tail: FloatArray  # (1,), 4 times the squared scale of sigma_j's half-t law, or inf


class Scratch(NamedTuple):
    """Of one thread. Each holder's density is a C function with a table of its own (`c_table`)."""

    tables: IntArray  # (J, .)
    works: FloatArray  # (J, buffers, P, P), to which the tables point
    B0: FloatArray  # (P, P), the normal prior of `kernels`, to which they all point
    spare: FloatArray  # (SPARE, P + 6, P), of `anchor`
    points: FloatArray  # (4, coordinates of all holders): x' and gradients
    matrices: FloatArray  # (_MATRICES, P + 4, P)


def _call_typed(
    typingctx: Any, address: Any, dim: Any, y: Any, grad: Any, logp: Any, table: Any
) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, pointer_ = ir.IntType(64), context.get_value_type(_types.voidptr)
        kind = ir.FunctionType(word, [word, *[pointer_] * 4])
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        given = [builder.inttoptr(each, pointer_) for each in arguments[2:]]
        return builder.call(function, [arguments[1], *given])

    return _types.int64(address, dim, y, grad, logp, table), codegen


# The function of `c_density` at an address, its arrays by theirs. Its machine code is compiled once
# for all regressions, and not again into the functions here.
_call: Any = intrinsic(_call_typed)


@compiled
def _of_holder(
    j: int,
    y: FloatArray,
    density: int,
    first: IntArray,
    anchored: BoolArray,
    order: IntArray,
    U: FloatArray,
    offset: FloatArray,
    sigma_tail: FloatArray,
    tables: IntArray,
    works: FloatArray,
    spare: FloatArray,
    points: FloatArray,
    rows: FloatArray,
    grad: FloatArray,
) -> Any:
    """Log density of holder j's statistics given the common ones; -inf off the support.

    Derivatives by its coordinates into `grad`; those by g and kappa into `spare`.
    """
    begin, end, P = first[j], first[j + 1], works.shape[2]
    d, dim, table = P - 1, end - begin, tables[j]
    n = carray(pointer(table[10]), (1,), dtype=np.float64)
    values = carray(pointer(table[12]), (P, P), dtype=np.float64)
    known = carray(pointer(table[14]), (P, P), dtype=np.int64)
    partial = carray(pointer(table[16]), (P,), dtype=np.bool_)
    centre = carray(pointer(table[23]), (dim,), dtype=np.float64)
    scale = carray(pointer(table[24]), (dim,), dtype=np.float64)
    for b in range(d):
        spare[5, G, b] = rows[0, order[b]] - offset[j, b]
        spare[5, KAPPA, b] = math.sqrt(rows[1, order[b]]) / abs(U[j, b, b])
    x, moved, own = y[begin:end], points[0, :dim], points[1, :dim]
    logp = to_plain(x, n[0], values, known, partial, centre, scale, anchored[j], U[j], spare, moved)
    if not logp > -np.inf:
        return -np.inf
    value = rows[5]
    failed = _call(
        density,
        dim,
        np.int64(moved.ctypes.data),
        np.int64(own.ctypes.data),
        np.int64(value.ctypes.data),
        np.int64(table.ctypes.data),
    )
    work = works[j]
    sigma2 = math.exp(work[20].reshape(P * P)[0])
    if failed != 0 or work[0, d, d] > _SHARPEST * sigma2 * work[SHARED_BUFFERS, 0, 1]:
        return -np.inf
    # sigma's half-t law; ln sigma2 is a coordinate more than ln F_yy²
    ratio = sigma2 / sigma_tail[0]
    slope = -2.5 * ratio / (1.0 + ratio)
    extra = 0 if known[0, 0] else 1
    for a in range(1, P):
        for b in range(a + 1):
            extra += not known[a, b]
    own[extra] += slope * scale[extra]
    to_plain_adjoint(
        x, moved, known, partial, centre, scale, anchored[j], U[j], 2.0 * slope, spare,
        points[2, :dim], points[3, :dim], own,
    )  # fmt: skip
    grad[begin:end] = own
    return logp + value[0] - 2.5 * math.log1p(ratio)


@compiled
def _common(
    y: FloatArray,
    total: int,
    unit: FloatArray,
    start: FloatArray,
    forward: FloatArray,
    shift: FloatArray,
    back: FloatArray,
    B0: FloatArray,
    rows: FloatArray,
) -> Any:
    """Read beta, tau² and m0 = E theta' into the first rows; the prior of theta' into B0.

    Returns the log density of tau's coordinates; its slopes and dtau² / dq go to the next rows.
    """
    d = unit.size
    beta, tau2, m0, slopes, turn = rows[0], rows[1], rows[2], rows[3], rows[4]
    logp = 0.0
    for c in range(d):
        beta[c] = start[c] + 0.2 * unit[c] * y[total + c]
        q = y[total + d + c]
        s, slope = math.sinh(q), math.cosh(q)
        ratio = 0.25 * (s / SPREAD_SCALE) ** 2
        logp += math.log(slope) - 2.5 * math.log1p(ratio)
        slopes[c] = s / slope - 1.25 * s * slope / (SPREAD_SCALE**2 * (1.0 + ratio))
        tau2[c] = unit[c] * unit[c] * (s * s + FLOOR)
        turn[c] = 2.0 * unit[c] * unit[c] * s * slope
    if not logp > -np.inf:
        return -np.inf
    for a in range(d):
        m0[a] = shift[a]
        for c in range(d):
            m0[a] += forward[a, c] * beta[c]
    B0[d, d] = 0.0
    for a in range(d):
        for b in range(d):
            B0[a, b] = 0.0
            for c in range(d):
                B0[a, b] += back[c, a] * back[c, b] / tau2[c]
    for a in range(d):
        B0[d, a] = 0.0
        for b in range(d):
            B0[d, a] += B0[a, b] * m0[b]
        B0[a, d] = B0[d, a]
        B0[d, d] += B0[d, a] * m0[a]
    return logp


@compiled
def _conditional(
    A: FloatArray, t: float, B0: FloatArray, m0: FloatArray, L: FloatArray, R: FloatArray,
    away: FloatArray,
) -> Any:  # fmt: skip
    """E[theta'] - m0 given the statistics into `away`; R with R'R its covariance."""
    d = m0.size
    for a in range(d):
        for b in range(a + 1):
            L[a, b] = B0[a, b] + t * A[a, b]
    if not cholesky(L, d):
        return False
    invert_triangle(L, d, R)
    pull = L[0]  # the factor has done its work
    for a in range(d):
        total = A[d, a]
        for b in range(d):
            total -= (A[a, b] if b <= a else A[b, a]) * m0[b]
        pull[a] = t * total
    for a in range(d):
        away[a] = 0.0
    for i in range(d):
        along = 0.0
        for a in range(i + 1):
            along += R[i, a] * pull[a]
        for a in range(i + 1):
            away[a] += R[i, a] * along
    return True


@compiled
def log_varying(
    y: FloatArray,
    grad: FloatArray,
    density: int,
    first: IntArray,
    anchored: BoolArray,
    order: IntArray,
    U: FloatArray,
    offset: FloatArray,
    forward: FloatArray,
    shift: FloatArray,
    back: FloatArray,
    unit: FloatArray,
    start: FloatArray,
    prior_precision: FloatArray,
    prior_centre: FloatArray,
    sigma_tail: FloatArray,
    tables: IntArray,
    works: FloatArray,
    B0: FloatArray,
    spare: FloatArray,
    points: FloatArray,
    matrices: FloatArray,
) -> Any:
    """Log density at y, and its gradient into `grad`; -inf and a zero gradient off the support.

    `density` is the address of `c_density`; then come `Arrays`, then `Scratch`.
    """
    J, d = first.size - 1, unit.size
    P, total = d + 1, first[J]
    L, R, rows, more = matrices[0], matrices[1], matrices[2, :, :d], matrices[3, :, :d]
    beta, tau2, m0 = rows[0], rows[1], rows[2]
    by_beta, by_tau2, away = more[0], more[1], more[2]
    logp = _common(y, total, unit, start, forward, shift, back, B0, rows)
    if not logp > -np.inf:
        grad[:] = 0.0
        return -np.inf
    for c in range(d):
        by_beta[c], by_tau2[c] = 0.0, -0.5 * J / tau2[c]
        logp -= 0.5 * J * math.log(tau2[c])
        for e in range(d):
            by_beta[c] -= prior_precision[c, e] * (beta[e] - prior_centre[e])
        logp += 0.5 * (beta[c] - prior_centre[c]) * by_beta[c]
    for j in range(J):
        logp += _of_holder(
            j, y, density, first, anchored, order, U, offset, sigma_tail, tables, works, spare,
            points, rows, grad,
        )  # fmt: skip
        t = math.exp(-works[j, 20].reshape(P * P)[0])
        if not logp > -np.inf or not _conditional(works[j, 0], t, B0, m0, L, R, away):
            grad[:] = 0.0
            return -np.inf
        for c in range(d):
            moved, variance = 0.0, 0.0
            for a in range(d):
                moved += back[c, a] * away[a]
            for i in range(d):
                along = 0.0
                for a in range(i + 1):
                    along += R[i, a] * back[c, a]
                variance += along * along
            by_beta[c] += moved / tau2[c]
            by_tau2[c] += 0.5 * (variance + moved * moved) / (tau2[c] * tau2[c])
        for b in range(d):
            by_beta[order[b]] += spare[5, BY_G, b]
            root = math.sqrt(tau2[order[b]])
            by_tau2[order[b]] += 0.5 * spare[5, BY_KAPPA, b] / (abs(U[j, b, b]) * root)
    for c in range(d):
        grad[total + c] = 0.2 * unit[c] * by_beta[c]
        grad[total + d + c] = rows[3, c] + by_tau2[c] * rows[4, c]
    if not (logp > -np.inf and logp < np.inf):
        grad[:] = 0.0
        return -np.inf
    return logp


@compiled
def _draw_all(
    drawn: FloatArray,
    normal: FloatArray,
    density: int,
    first: IntArray,
    anchored: BoolArray,
    order: IntArray,
    U: FloatArray,
    offset: FloatArray,
    forward: FloatArray,
    shift: FloatArray,
    back: FloatArray,
    unit: FloatArray,
    start: FloatArray,
    prior_precision: FloatArray,
    prior_centre: FloatArray,
    sigma_tail: FloatArray,
    tables: IntArray,
    works: FloatArray,
    B0: FloatArray,
    spare: FloatArray,
    points: FloatArray,
    matrices: FloatArray,
    beta: FloatArray,
    tau: FloatArray,
    theta: FloatArray,
    sigma2: FloatArray,
    mean: FloatArray,
) -> Any:
    """At each of the drawn points: beta, tau; one draw of each holder's theta' and its sigma2.

    And into `mean` E[beta] given all statistics, tau and sigma2. With D = diag tau⁻² and V_j the
    covariance of phi_j, statistics of holder j tell D - D V_j D about beta.
    """
    J, d = first.size - 1, unit.size
    total = first[J]
    L, R, rows, more = matrices[0], matrices[1], matrices[2, :, :d], matrices[3, :, :d]
    away, pull, gradient = more[2], more[0], np.empty(total)
    H = np.empty((d, d))
    for q in range(drawn.shape[0]):
        y = drawn[q]
        _common(y, total, unit, start, forward, shift, back, B0, rows)
        for c in range(d):
            beta[q, c], tau[q, c] = rows[0, c], math.sqrt(rows[1, c])
            pull[c] = 0.0
            for e in range(d):
                H[c, e] = prior_precision[c, e]
                pull[c] -= prior_precision[c, e] * (rows[0, e] - prior_centre[e])
        for j in range(J):
            _of_holder(
                j, y, density, first, anchored, order, U, offset, sigma_tail, tables, works, spare,
                points, rows, gradient,
            )  # fmt: skip
            log_sigma2 = works[j, 20].reshape((d + 1) * (d + 1))[0]
            sigma2[q, j] = math.exp(log_sigma2)
            _conditional(works[j, 0], math.exp(-log_sigma2), B0, rows[2], L, R, away)
            for a in range(d):
                theta[q, j, a] = rows[2, a] + away[a]
                for i in range(a, d):
                    theta[q, j, a] += R[i, a] * normal[q, j, i]
            for i in range(d):  # rows of R W', W = back, in L
                for c in range(d):
                    L[i, c] = 0.0
                    for a in range(i + 1):
                        L[i, c] += R[i, a] * back[c, a]
            for c in range(d):
                moved = 0.0
                for a in range(d):
                    moved += back[c, a] * away[a]
                pull[c] += moved / rows[1, c]
                H[c, c] += 1.0 / rows[1, c]
                for e in range(d):
                    for i in range(d):
                        H[c, e] -= L[i, c] * L[i, e] / (rows[1, c] * rows[1, e])
        step = np.linalg.solve(H, pull)
        for c in range(d):
            mean[q, c] = rows[0, c] + step[c]


# --- as C functions -------------------------------------------------------------------------------

_TABLE = 5 + len(Arrays._fields) + len(Scratch._fields) + 1  # stamp, sizes, addresses, counter


def _density_of(stamp: int) -> Any:
    def logp_c(dim: int, y_: Any, grad_: Any, logp_: Any, table_: Any) -> Any:
        table = carray(table_, (_TABLE,), dtype=np.int64)
        if table[0] != stamp:
            return -1
        J, P, total = table[1], table[2], table[3]
        d = P - 1
        buffers = SHARED_BUFFERS + BUFFERS_PER_HOLDER
        logp = log_varying(
            carray(y_, (dim,)),
            carray(grad_, (dim,)),
            table[4],
            carray(pointer(table[5]), (J + 1,), dtype=np.int64),
            carray(pointer(table[6]), (J,), dtype=np.bool_),
            carray(pointer(table[7]), (d,), dtype=np.int64),
            carray(pointer(table[8]), (J, d, d), dtype=np.float64),
            carray(pointer(table[9]), (J, d), dtype=np.float64),
            carray(pointer(table[10]), (d, d), dtype=np.float64),
            carray(pointer(table[11]), (d,), dtype=np.float64),
            carray(pointer(table[12]), (d, d), dtype=np.float64),
            carray(pointer(table[13]), (d,), dtype=np.float64),
            carray(pointer(table[14]), (d,), dtype=np.float64),
            carray(pointer(table[15]), (d, d), dtype=np.float64),
            carray(pointer(table[16]), (d,), dtype=np.float64),
            carray(pointer(table[17]), (1,), dtype=np.float64),
            carray(pointer(table[18]), (J, C_TABLE), dtype=np.int64),
            carray(pointer(table[19]), (J, buffers, P, P), dtype=np.float64),
            carray(pointer(table[20]), (P, P), dtype=np.float64),
            carray(pointer(table[21]), (SPARE, P + 6, P), dtype=np.float64),
            carray(pointer(table[22]), (4, total), dtype=np.float64),
            carray(pointer(table[23]), (_MATRICES, P + 4, P), dtype=np.float64),
        )
        carray(logp_, (1,))[0] = logp
        return 0 if logp > -np.inf else 1

    return logp_c


def _record_of(stamp: int) -> Any:
    def record_c(dim: int, size: Any, y_: Any, out_: Any, table_: Any) -> Any:
        table = carray(table_, (_TABLE,), dtype=np.int64)
        if table[0] != stamp:
            return -1
        y, out = carray(y_, (dim,)), carray(out_, (dim,))
        for i in range(dim):
            out[i] = y[i]
        table[_TABLE - 1] += 1
        return 0

    return record_c


@cache
def c_functions() -> tuple[Any, Any]:
    """The density and what records a draw, as nutpie calls them (`c_callback`)."""
    double, whole = _types.CPointer(_types.double), _types.uint64
    density = _types.int64(whole, double, double, double, _types.voidptr)
    record = _types.int64(whole, whole, double, double, _types.voidptr)
    return (
        numba.cfunc(density, cache=True)(_density_of(_STAMP)),
        numba.cfunc(record, cache=True)(_record_of(_STAMP)),
    )


# --- from observations to draws -------------------------------------------------------------------


class VaryingPosterior:
    """The collapsed posterior of all holders' latent statistics, of beta and of tau.

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns.
    prior : ScaleFreePrior or NormalInverseGammaIndependent
        The first gives the law of the sigma_j. Of the second, the law of theta' is that of the
        common coefficients, and the law of sigma2 that of each sigma_j².
    covariates : ScaleFreeCovariates, NIWPrior, HierarchicalNIWPrior or HuangWandPrior
        Of each holder's covariates.
    affine : Affine, optional
        To the coordinates in which spreads of single coefficients are meant.
    scales : (average, unit), optional
        In place of rough ones from the Releases; see the attributes.

    Attributes
    ----------
    arrays : Arrays
    ndim : int
    unit : array, shape (d,)
        u, of phi on unit scale.
    average : array, shape (k,)
        The average person's covariates on unit scale, at which the intercept of phi stands.
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: ScaleFreePrior | NormalInverseGammaIndependent,
        covariates: CovariatePrior | ScaleFreeCovariates,
        affine: Affine | None = None,
        scales: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:
        k = covariates.k
        d = k + 1
        affine = affine or Affine(np.eye(d), np.zeros(d), 1.0)
        tied = sorted(set.intersection(*(set(seen.indicators) for seen in observations)))
        seen = [replace(each, indicators=tuple(tied)) for each in observations]
        # Any prior of the regression does: it only says that ln sigma2 is a coordinate.
        plain = NormalInverseGammaIndependent.weakly_informative(k)
        alone = [CollapsedPosterior([each], plain, covariates, anchored=True) for each in seen]
        order = np.array(alone[0].columns[:-1])
        roots = np.stack([each.pooled_factors(np.zeros((1, each.ndim)))[0] for each in alone])
        F = roots / roots[:, :1, :1]
        self.average, self.unit = scales or _rough_scales(F, order, affine)
        C = np.eye(d)
        C[0, 1:] = self.average
        # phi = C theta = C (M theta' + t), theta' in the order of the columns of `alone`
        back = (C @ affine.M)[:, order]
        forward: FloatArray = np.asarray(np.linalg.inv(back), dtype=np.float64)
        shift = -forward @ C @ affine.t
        guesses = np.stack(
            [np.linalg.solve(f[:d, :d].T, f[d, :d]) for f in F]  # F_y = theta' F_x
        )
        self._regression(prior, order, forward, shift, back)
        U, offset = _own_regressions(alone, order, back, shift)
        parts = [each.arrays for each in alone]
        kinks = sum(int(np.triu(part.precision[0] > 0).sum()) * part.laplace[0] for part in parts)
        self._smoothing = rounding(kinks)
        self.has_laplace = kinks > 0
        self._holders = parts
        self.arrays = Arrays(
            first=np.cumsum([0, *(each.ndim for each in alone)]),
            anchored=np.array([(part.known[0, -1] == FREE).all() for part in parts]),
            order=order,
            U=U,
            offset=offset,
            forward=np.ascontiguousarray(forward),
            shift=shift,
            back=np.ascontiguousarray(back),
            unit=self.unit,
            start=np.median(guesses @ back.T - back @ shift, axis=0),
            prior_precision=self._precision,
            prior_centre=self._centre,
            sigma_tail=np.array([self._sigma[2]]),
        )
        self.ndim = int(self.arrays.first[-1]) + 2 * d
        self._order = order
        self._scratch, self._held = self.scratch(0.0)

    def _regression(
        self,
        prior: ScaleFreePrior | NormalInverseGammaIndependent,
        order: IntArray,
        forward: FloatArray,
        shift: FloatArray,
        back: FloatArray,
    ) -> None:
        """The laws of beta and of sigma_j: a0, b0 and `sigma_tail`."""
        if isinstance(prior, ScaleFreePrior):
            # flat in sigma towards 0, which is a0 = -1/2, b0 = 0
            self._sigma = (-0.5, 0.0, 4.0 * prior.scale**2)
            self._precision = np.diag((_COMMON_SD * self.unit) ** -2.0)
            self._centre = np.zeros(len(self.unit))
            return
        self._sigma = (prior.a0, prior.b0, math.inf)
        precision = np.linalg.inv(prior.V0)[np.ix_(order, order)]
        self._precision = np.ascontiguousarray(forward.T @ precision @ forward)
        self._centre = back @ (prior.mu0[order] - shift)

    def scratch(self, smoothing: float) -> tuple[Scratch, Any]:
        """What one thread needs, and what must be kept alive with it.

        `smoothing` as in `kernels.logp_and_gradient`.
        """
        J, d = self.arrays.offset.shape
        total = int(self.arrays.first[-1])
        works = np.stack([workspace(1, d + 1)] * J)
        B0, x, tables, held = np.zeros((d + 1, d + 1)), np.zeros(total), [], []
        for own, work in zip(self._holders, works, strict=True):
            scalars = own.scalars.copy()
            scalars[[A0, B0_SIGMA2, SMOOTHING]] = *self._sigma[:2], smoothing
            given = own._replace(B0=B0, scalars=scalars), work, pooling(own), x
            held.append(given)
            tables.append(c_table(*given))
        spare, points = np.zeros((SPARE, d + 7, d + 1)), np.zeros((4, total))
        matrices = np.zeros((_MATRICES, d + 5, d + 1))
        return Scratch(np.stack(tables), works, B0, spare, points, matrices), held

    def logp_and_gradient(self, y: FloatArray) -> tuple[float, FloatArray]:
        """Log density of the coordinates y up to a constant, and its gradient."""
        gradient = np.empty(self.ndim)
        point = np.ascontiguousarray(y, dtype=np.float64)
        address = c_density().address
        logp = log_varying(point, gradient, address, *self.arrays, *self._scratch)
        return float(logp), gradient

    def kernel(self, start: FloatArray) -> Kernel:
        """One chain of NUTS that starts there."""
        scratch, held = self.scratch(self._smoothing)
        given = (*self.arrays, *scratch)
        if not all(array.flags.c_contiguous for array in given):
            raise ValueError("the compiled density needs contiguous arrays")
        J, d = self.arrays.offset.shape
        sizes = _STAMP, J, d + 1, int(self.arrays.first[-1]), c_density().address
        table = np.array([*sizes, *(array.ctypes.data for array in given), 0], dtype=np.int64)
        return Kernel((given, held), table, start, *c_functions())

    def draw(
        self, rng: np.random.Generator, points: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Draw what was integrated out, at each of the points (draws, ndim).

        Returns
        -------
        common, tau, theta, sigma2, mean : arrays
            Of shapes (draws, d), (draws, d), (draws, J, d), (draws, J) and (draws, d): the common
            coefficients beta as theta', the spreads of phi on unit scale, each holder's theta' and
            sigma2', and E[common] given all statistics.
        """
        a, draws = self.arrays, len(points)
        J, d = a.offset.shape
        beta, tau, mean = (np.empty((draws, d)) for _ in range(3))
        theta, sigma2 = np.empty((draws, J, d)), np.empty((draws, J))
        normal = rng.standard_normal((draws, J, d))
        points = np.ascontiguousarray(points)
        address, found = c_density().address, (beta, tau, theta, sigma2, mean)
        _draw_all(points, normal, address, *a, *self._scratch, *found)
        place = np.argsort(self._order)
        common, mean = (each @ a.forward.T + a.shift for each in (beta, mean))
        return common[:, place], tau, theta[..., place], sigma2, mean[:, place]


def _rough_scales(F: FloatArray, order: IntArray, affine: Affine) -> tuple[FloatArray, FloatArray]:
    """The typical holder's mean of x, and u, both on unit scale.

    (1, x', y') = K (1, x, y), and `affine` has what K does to coefficients.
    """
    d = len(order)
    K = np.zeros((d + 1, d + 1))
    K[d, d] = affine.v**-0.5
    K[:d, :d] = affine.M.T * K[d, d]
    K[d, :d] = -affine.t * K[d, d]
    pick = np.argsort(np.append(order, d))
    own = np.linalg.solve(K, F[:, pick])
    sds = np.median(np.sqrt((own[:, 1:, 1:] ** 2).sum(axis=2)), axis=0)
    return np.median(own[:, 1:-1, 0], axis=0), np.append(sds[-1], sds[-1] / sds[:-1])


def _own_regressions(
    alone: Sequence[CollapsedPosterior], order: IntArray, back: FloatArray, shift: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """`U` and `offset` of `Arrays`.

    phi = back (theta' - shift). A holder with a map K has columns K (1, x, y), and t, the
    regression of the last on the others, has theta' = (K_x' t - K_y) / K_yy. All are triangular.
    """
    d = len(shift)
    found = []
    for each in alone:
        K = each.arrays.maps[0] if len(each.arrays.maps) else np.eye(d + 1)
        U = (back @ K[:d, :d].T / K[d, d])[order]
        found.append((U, -(back @ (K[d, :d] / K[d, d] + shift))[order]))
    U, offset = (np.stack(values) for values in zip(*found, strict=True))
    return U, offset


class VaryingDraws(NamedTuple):
    """Draws from the posterior, in the job's coordinates but for the spreads."""

    common: FloatArray  # (chains, draws, d)
    tau: FloatArray  # (chains, draws, d), of phi on unit scale
    theta: FloatArray  # (chains, draws, J, d)
    sigma2: FloatArray  # (chains, draws, J)
    conditional_mean: FloatArray  # (chains, draws, d), of the common coefficients
    info: NutsInfo


def sample_varying(
    posterior: VaryingPosterior,
    *,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 500,
    seed: int | None = None,
    cores: int | None = None,
    progress: Progress | None = None,
) -> VaryingDraws:
    """Draw from the posterior by NUTS; arguments as of `sampler.sample_posterior`."""
    streams = [
        [np.random.default_rng(stream) for stream in chain.spawn(3)]
        for chain in np.random.SeedSequence(seed).spawn(chains)
    ]
    d = posterior.unit.size
    kernels = [posterior.kernel(init(posterior, start, apart=d).x) for start, _, _ in streams]
    settings = {
        "draws": draws,
        "tune": tune,
        "target_accept": 0.8 if posterior.has_laplace else 0.9,
        "maxdepth": 10,
    }
    seeds = [int(engine.integers(2**63)) for _, engine, _ in streams]
    traces = run_chains(kernels, seeds, settings, cores or available_cores(), progress)
    points, info = collect(traces)
    found = [posterior.draw(rng, own) for (_, _, rng), own in zip(streams, points, strict=True)]
    common, tau, theta, sigma2, mean = (np.stack(values) for values in zip(*found, strict=True))
    return VaryingDraws(common, tau, theta, sigma2, mean, info)
