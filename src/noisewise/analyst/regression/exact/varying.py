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
rows, F_y = theta F_x, a narrow ridge where tau is small; else it follows the Release. Its
coordinates are counted from what both say together (the form ANCHORED of `factor`).
tau_c = u_c |sinh q_c|, and q_c may be negative: the density is even and smooth there, as in
`own_laws`.

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
from numba import types
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise._compiled import compiled, sources_digest
from noisewise.analyst.chains import Progress, available_cores
from noisewise.analyst.regression.exact.c_callback import pointer
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.factor import (
    ANCHOR,
    BUFFERS_PER_HOLDER,
    FREE,
    SHARED_BUFFERS,
    total_statistics,
)
from noisewise.analyst.regression.exact.kernels import logp_and_gradient, workspace
from noisewise.analyst.regression.exact.own_laws import FLOOR, log_t
from noisewise.analyst.regression.exact.prior import (
    A0,
    B0_SIGMA2,
    HALF_T,
    SCALARS,
    SMOOTHING,
    SPIKE,
    log_residual_variance,
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
_SCRATCH = 5  # matrices, then vectors, of one thread

_types: Any = types  # Numba's type constructors are not annotated
_STAMP = int(sources_digest(Path(__file__))[:15], 16)  # as in `c_callback`


class Affine(NamedTuple):
    """theta = M theta' + t and sigma2 = v sigma2': from the job's coordinates to unit scale."""

    M: FloatArray  # (d, d)
    t: FloatArray  # (d,)
    v: float


class Arrays(NamedTuple):
    """What the compiled functions need, by holder; columns in the order of `CollapsedPosterior`.

    From `n` to `maps` they are those of `kernels.Arrays` for each holder alone.
    """

    first: IntArray  # (J + 1,), where the coordinates of each begin
    anchored: BoolArray  # (J,), whether y's row is counted from the common regression
    n: FloatArray  # (J, 1)
    laplace: BoolArray  # (J, 1)
    values: FloatArray  # (J, 1, P, P)
    precision: FloatArray  # (J, 1, P, P)
    known: IntArray  # (J, 1, P, P)
    relative: IntArray  # (J, 1)
    partial: BoolArray  # (J, 1, P)
    E0: FloatArray  # (J, d, d)
    psi_rate: FloatArray  # (J, k), or (J, 0)
    scalars: FloatArray  # (J, SCALARS)
    centre: FloatArray  # (coordinates of all,)
    scale: FloatArray  # (coordinates of all,)
    maps: FloatArray  # (J, 1 or 0, P, P)
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
        value, slopes[c], s = log_t(y[total + d + c], SPREAD_SCALE)
        logp += value
        tau2[c] = unit[c] * unit[c] * (s * s + FLOOR)
        turn[c] = 2.0 * unit[c] * unit[c] * s * math.cosh(y[total + d + c])
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
def _anchor(
    j: int,
    anchored: bool,
    order: IntArray,
    U: FloatArray,
    offset: FloatArray,
    rows: FloatArray,
    work: FloatArray,
) -> Any:
    """What y's row of holder j is counted from, into `work`: nothing, if it is not `anchored`."""
    d = rows.shape[1]
    for b in range(d):
        work[8, 1, b] = rows[0, order[b]] - offset[j, b]
        for c in range(b, d):
            work[ANCHOR, b, c] = U[j, b, c] if anchored else 0.0
        work[ANCHOR, d, b] = math.sqrt(rows[1, order[b]]) / abs(U[j, b, b])


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
    first: IntArray,
    anchored: BoolArray,
    n: FloatArray,
    laplace: BoolArray,
    values: FloatArray,
    precision: FloatArray,
    known: IntArray,
    relative: IntArray,
    partial: BoolArray,
    E0: FloatArray,
    psi_rate: FloatArray,
    scalars: FloatArray,
    centre: FloatArray,
    scale: FloatArray,
    maps: FloatArray,
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
    work: FloatArray,
    scratch: FloatArray,
) -> Any:
    """Log density at y, and its gradient into `grad`; -inf and a zero gradient off the support.

    `work` and `scratch` belong to one thread.
    """
    J, d = first.size - 1, unit.size
    P, total = d + 1, first[J]
    B0, L, R, rows, more = scratch[0], scratch[1], scratch[2], scratch[3, :, :d], scratch[4, :, :d]
    beta, tau2, m0 = rows[0], rows[1], rows[2]
    by_beta, by_tau2, away = more[0], more[1], more[2]
    nodes, none = np.empty((2, 0)), np.empty((0, 1, 1))
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
        begin, end = first[j], first[j + 1]
        _anchor(j, anchored[j], order, U, offset, rows, work)
        value = logp_and_gradient(
            y[begin:end], grad[begin:end], n[j], laplace[j], values[j], precision[j], known[j],
            relative[j], partial[j], E0[j], B0, psi_rate[j], scalars[j], nodes, nodes,
            centre[begin:end], scale[begin:end], maps[j], none, work,
        )  # fmt: skip
        t = math.exp(-work[20].reshape(P * P)[0])
        if not value > -np.inf or not _conditional(work[0], t, B0, m0, L, R, away):
            grad[:] = 0.0
            return -np.inf
        logp += value
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
            c = order[b]
            by_beta[c] += work[8, 2, b]
            by_kappa = work[2 if maps.shape[1] > 0 else 7, d, b]
            if anchored[j]:
                by_tau2[c] += 0.5 * by_kappa / (abs(U[j, b, b]) * math.sqrt(tau2[c]))
    for c in range(d):
        grad[total + c] = 0.2 * unit[c] * by_beta[c]
        grad[total + d + c] = rows[3, c] + by_tau2[c] * rows[4, c]
    if not (logp > -np.inf and logp < np.inf):
        grad[:] = 0.0
        return -np.inf
    return logp


@compiled
def _draw_all(
    points: FloatArray,
    normal: FloatArray,
    first: IntArray,
    anchored: BoolArray,
    n: FloatArray,
    laplace: BoolArray,
    values: FloatArray,
    precision: FloatArray,
    known: IntArray,
    relative: IntArray,
    partial: BoolArray,
    E0: FloatArray,
    psi_rate: FloatArray,
    scalars: FloatArray,
    centre: FloatArray,
    scale: FloatArray,
    maps: FloatArray,
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
    work: FloatArray,
    scratch: FloatArray,
    beta: FloatArray,
    tau: FloatArray,
    theta: FloatArray,
    sigma2: FloatArray,
    mean: FloatArray,
) -> Any:
    """At each of the points: beta, tau; one draw of each holder's theta' and its sigma2.

    And into `mean` E[beta] given all statistics, tau and sigma2. With D = diag tau⁻² and V_j the
    covariance of phi_j, statistics of holder j tell D - D V_j D about beta.
    """
    J, d = first.size - 1, unit.size
    total = first[J]
    B0, L, R, rows, more = scratch[0], scratch[1], scratch[2], scratch[3, :, :d], scratch[4, :, :d]
    away, pull = more[2], more[0]
    H = np.empty((d, d))
    for q in range(points.shape[0]):
        y = points[q]
        _common(y, total, unit, start, forward, shift, back, B0, rows)
        for c in range(d):
            beta[q, c], tau[q, c] = rows[0, c], math.sqrt(rows[1, c])
            pull[c] = 0.0
            for e in range(d):
                H[c, e] = prior_precision[c, e]
                pull[c] -= prior_precision[c, e] * (rows[0, e] - prior_centre[e])
        for j in range(J):
            begin, end = first[j], first[j + 1]
            _anchor(j, anchored[j], order, U, offset, rows, work)
            extra = begin + total_statistics(
                y[begin:end], n[j], known[j], values[j], relative[j], partial[j],
                scalars[j, SPIKE], centre[begin:end], scale[begin:end], maps[j], work,
            )  # fmt: skip
            log_sigma2 = centre[extra] + scale[extra] * y[extra]
            log_sigma2 += log_residual_variance(work[SHARED_BUFFERS])
            sigma2[q, j] = math.exp(log_sigma2)
            _conditional(work[0], math.exp(-log_sigma2), B0, rows[2], L, R, away)
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

_TABLE = 6 + 25 + 2 + 1  # sizes, Arrays, scratch, a counter


def _density_of(stamp: int) -> Any:
    def logp_c(dim: int, y_: Any, grad_: Any, logp_: Any, table_: Any) -> Any:
        table = carray(table_, (_TABLE,), dtype=np.int64)
        if table[0] != stamp:
            return -1
        J, P, psi, mapped, total = table[1], table[2], table[3], table[4], table[5]
        d = P - 1
        buffers = SHARED_BUFFERS + BUFFERS_PER_HOLDER
        logp = log_varying(
            carray(y_, (dim,)),
            carray(grad_, (dim,)),
            carray(pointer(table[6]), (J + 1,), dtype=np.int64),
            carray(pointer(table[7]), (J,), dtype=np.bool_),
            carray(pointer(table[8]), (J, 1), dtype=np.float64),
            carray(pointer(table[9]), (J, 1), dtype=np.bool_),
            carray(pointer(table[10]), (J, 1, P, P), dtype=np.float64),
            carray(pointer(table[11]), (J, 1, P, P), dtype=np.float64),
            carray(pointer(table[12]), (J, 1, P, P), dtype=np.int64),
            carray(pointer(table[13]), (J, 1), dtype=np.int64),
            carray(pointer(table[14]), (J, 1, P), dtype=np.bool_),
            carray(pointer(table[15]), (J, d, d), dtype=np.float64),
            carray(pointer(table[16]), (J, psi), dtype=np.float64),
            carray(pointer(table[17]), (J, SCALARS), dtype=np.float64),
            carray(pointer(table[18]), (total,), dtype=np.float64),
            carray(pointer(table[19]), (total,), dtype=np.float64),
            carray(pointer(table[20]), (J, mapped, P, P), dtype=np.float64),
            carray(pointer(table[21]), (d,), dtype=np.int64),
            carray(pointer(table[22]), (J, d, d), dtype=np.float64),
            carray(pointer(table[23]), (J, d), dtype=np.float64),
            carray(pointer(table[24]), (d, d), dtype=np.float64),
            carray(pointer(table[25]), (d,), dtype=np.float64),
            carray(pointer(table[26]), (d, d), dtype=np.float64),
            carray(pointer(table[27]), (d,), dtype=np.float64),
            carray(pointer(table[28]), (d,), dtype=np.float64),
            carray(pointer(table[29]), (d, d), dtype=np.float64),
            carray(pointer(table[30]), (d,), dtype=np.float64),
            carray(pointer(table[31]), (buffers, P, P), dtype=np.float64),
            carray(pointer(table[32]), (_SCRATCH, P + 4, P), dtype=np.float64),
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
        parts = [each.arrays for each in alone]
        U, offset = _own_regressions(alone, order, back, shift)
        first = np.cumsum([0, *(each.ndim for each in alone)])
        scalars = np.stack([part.scalars for part in parts])
        scalars[:, [A0, B0_SIGMA2, HALF_T]] = self._sigma
        kinks = sum(int(np.triu(part.precision[0] > 0).sum()) * part.laplace[0] for part in parts)
        scalars[:, SMOOTHING] = rounding(kinks)
        self._exact_scalars = scalars.copy()
        self._exact_scalars[:, SMOOTHING] = 0.0
        maps = np.zeros((len(seen), 0, d + 1, d + 1))
        if any(len(part.maps) for part in parts):
            maps = np.stack([p.maps if len(p.maps) else np.eye(d + 1)[None] for p in parts])
        self.arrays = Arrays(
            first=first,
            anchored=np.array([(part.known[0, -1] == FREE).all() for part in parts]),
            **{
                name: np.ascontiguousarray(np.stack([getattr(part, name) for part in parts]))
                for name in (
                    "n", "laplace", "values", "precision", "known", "relative", "partial", "E0",
                    "psi_rate",
                )
            },
            scalars=scalars,
            centre=np.concatenate([part.centre for part in parts]),
            scale=np.concatenate([part.scale for part in parts]),
            maps=np.ascontiguousarray(maps),
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
        )  # fmt: skip
        self.ndim = int(first[-1]) + 2 * d
        self._order, self._laplace = order, bool(self.arrays.laplace.any())

    def _regression(
        self,
        prior: ScaleFreePrior | NormalInverseGammaIndependent,
        order: IntArray,
        forward: FloatArray,
        shift: FloatArray,
        back: FloatArray,
    ) -> None:
        """The laws of beta and of sigma_j: a0, b0 and 4 times the squared scale of a half-t law."""
        if isinstance(prior, ScaleFreePrior):
            # flat in sigma towards 0, which is a0 = -1/2, b0 = 0
            self._sigma = (-0.5, 0.0, 4.0 * prior.scale**2)
            self._precision = np.diag((_COMMON_SD * self.unit) ** -2.0)
            self._centre = np.zeros(len(self.unit))
            return
        self._sigma = (prior.a0, prior.b0, 0.0)
        precision = np.linalg.inv(prior.V0)[np.ix_(order, order)]
        self._precision = np.ascontiguousarray(forward.T @ precision @ forward)
        self._centre = back @ (prior.mu0[order] - shift)

    @property
    def has_laplace(self) -> bool:
        """Whether any noise has kinks."""
        return self._laplace

    def scratch(self) -> tuple[FloatArray, FloatArray]:
        """Buffers and matrices of one thread."""
        d = self.unit.size
        return workspace(1, d + 1), np.zeros((_SCRATCH, d + 5, d + 1))

    def logp_and_gradient(self, y: FloatArray) -> tuple[float, FloatArray]:
        """Log density of the coordinates y up to a constant, and its gradient."""
        gradient = np.empty(self.ndim)
        arrays = self.arrays._replace(scalars=self._exact_scalars)
        point = np.ascontiguousarray(y, dtype=np.float64)
        return float(log_varying(point, gradient, *arrays, *self.scratch())), gradient

    def table(self, scratch: tuple[FloatArray, FloatArray]) -> NDArray[np.int64]:
        """What the C functions get; the caller keeps all arrays alive."""
        a = self.arrays
        J, _, P, _ = a.values.shape
        sizes = _STAMP, J, P, a.psi_rate.shape[1], a.maps.shape[1], int(a.first[-1])
        given = [np.ascontiguousarray(array) for array in (*a, *scratch)]
        if any(one is not two for one, two in zip(given, (*a, *scratch), strict=True)):
            raise ValueError("the compiled density needs contiguous arrays")
        return np.array([*sizes, *(array.ctypes.data for array in given), 0], dtype=np.int64)

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
        _draw_all(points, normal, *a, *self.scratch(), beta, tau, theta, sigma2, mean)
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
    kernels = []
    for start, _, _ in streams:
        scratch = posterior.scratch()
        held = posterior.arrays, scratch
        state = init(posterior, start)
        kernels.append(Kernel(held, posterior.table(scratch), state.x, *c_functions()))
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
