"""Compiled functions of the collapsed posterior: log density, gradient, conjugate draws.

Model, on unit scale, with w = (1, x, y), k covariates, d = k + 1 design columns and p = k + 1
columns of w that are not constant::

    (mu, T)         ~ normal inverse Wishart            covariates
    (theta, sigma2) ~ normal inverse gamma              regression of y on (1, x)
    x | mu, T       ~ N(mu, T)
    y | x           ~ N((1, x)' theta, sigma2)
    A_j              = sum of w w' over the n_j rows of holder j
    released A_j     = A_j + independent noise on each entry

Everything depends on the rows through the A_j alone, and mu, T, theta, sigma2 have closed-form
marginals given the sum of the A_j. Integrating them out leaves the posterior of the latent A_j.
No central limit theorem is involved, so it is right down to n_j = p + 1.

Coordinates
-----------
A_j = n_j F_j F_j' with F_j = [[1, 0], [wbar_j, L_j]] lower triangular: wbar_j are the column means
and L_j L_j' is the covariance (divisor n_j) of (x, y). The volume of the data matrices with a given
A_j is exp(log_volume) prod_i L_ii^(n_j - i) in the coordinates (wbar, log diag L, L below the
diagonal). A sampler sees x = (coordinates - centre) / scale, where the coordinates are those of
a lower triangular K_j, row by row:

- The first holder is the *reference*, with K = F. Another holder may be *relative* to it:
  F_j = F_0 K_j. If noise hides the difference between two holders, F_j and F_0 are nearly equal
  a posteriori, a narrow ridge. K_j is then nearly standardised and nearly independent of F_0: this
  is the collapsed counterpart of the non-centred Bartlett form.
- A *plain* row has coordinates K_a0, ..., K_a,a-1, ln K_aa. A *polar* row has K_a0, the ratios
  K_ab / K_aa, and the logarithm of the length of (K_a1, ..., K_aa). Where noise hides the
  covariances, the released sum of squares still fixes the length, and the prior works on the
  ratios: they are regression coefficients in units of the residual standard deviation.
- An entry of A_j that is known exactly (noise scale 0) is eliminated: the entry of F_j at its
  place is solved for.
- Priors may add coordinates: ln sigma2, and ln psi_j counted from the log variance of column j of
  the reference, from which psi_j is nearly independent.

Gradient
--------
Derived by hand, by reverse accumulation. With dlogp = tr(M dA) and A = n F F': dlogp/dF = 2 n M F.
With E = [[lam, lam m'], [lam m, Psi + lam m m']] + A[:d, :d] and B = [[Lam0, Lam0 mu0],
[., 2 b0 + mu0' Lam0 mu0]] + A one has ln|Psi_n| = ln|E| - ln(lam + N), Lam_n = B[:d, :d] and
2 b_n = |B| / |Lam_n|, so that two Cholesky factorisations do everything. All loops run along rows,
in O(p³), without BLAS and without allocation.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS, for the
noise-aware idea; Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian
linear regression with MCMC, ICML, for the Wishart law of the statistics; Muirhead (1982), Aspects
of Multivariate Statistical Theory, doi:10.1002/9780470316559, theorem 2.1.14, for the volume.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_types: Any = types  # Numba's type constructors are not annotated

# Sums may be re-ordered (vectorised), but infinities and NaN keep their meaning: a bad point must
# come back as -inf, not as an arbitrary number.
_jit = numba.njit(
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz", "arcp"},
)

_SHARED_BUFFERS = 9
_BUFFERS_PER_HOLDER = 3
_SCALARS = 9
_TABLE = 18


class Arrays(NamedTuple):
    """What the compiled functions need; holders in the order reference first."""

    n: FloatArray  # (J,)
    laplace: BoolArray  # (J,)
    values: FloatArray  # (J, P, P)
    precision: FloatArray  # (J, P, P), 1 / scale; 0 if known or not released
    known: BoolArray  # (J, P, P)
    relative: BoolArray  # (J,), never the reference
    polar: BoolArray  # (J, P), by row
    E0: FloatArray  # (d, d)
    B0: FloatArray  # (P, P)
    psi_rate: FloatArray  # (k,), or (0,) if Psi is fixed
    scalars: FloatArray  # constant, nu_n, ln(lam + N), sigma2 kept?, a_n, b0, smoothing, nu, shape
    centre: FloatArray  # (ndim,)
    scale: FloatArray  # (ndim,)


def workspace(J: int, P: int) -> FloatArray:
    """Scratch space for one thread, enough for J holders and P by P statistics."""
    return np.zeros((_SHARED_BUFFERS + _BUFFERS_PER_HOLDER * J, P, P))


# --- dense linear algebra on preallocated buffers, lower triangles only ---------------------------


@_jit
def _cholesky(A, size):  # type: ignore[no-untyped-def]
    """Overwrite the lower triangle of A by its Cholesky factor; False if A is not positive."""
    for i in range(size):
        for j in range(i):
            total = A[i, j]
            for c in range(j):
                total -= A[i, c] * A[j, c]
            A[i, j] = total / A[j, j]
        total = A[i, i]
        for c in range(i):
            total -= A[i, c] * A[i, c]
        if not (total > 0.0 and total < np.inf):
            return False
        A[i, i] = math.sqrt(total)
    return True


@_jit
def _invert_triangle(R, size, W):  # type: ignore[no-untyped-def]
    """W = R⁻¹ for lower triangular R."""
    for i in range(size):
        for b in range(i):
            W[i, b] = 0.0
        for c in range(i):
            r = R[i, c]
            for b in range(c + 1):
                W[i, b] -= r * W[c, b]
        inverse = 1.0 / R[i, i]
        for b in range(i):
            W[i, b] *= inverse
        W[i, i] = inverse


@_jit
def _add_gram(W, size, factor, out):  # type: ignore[no-untyped-def]
    """out += factor W'W for lower triangular W (lower triangle of out)."""
    for i in range(size):
        for a in range(i + 1):
            weight = factor * W[i, a]
            for b in range(a + 1):
                out[a, b] += weight * W[i, b]


# --- from coordinates to factors ------------------------------------------------------------------


@_jit
def _factor(  # type: ignore[no-untyped-def]
    x, start, n, known, values, relative, polar, centre, scale, R, K, F
):
    """Fill K and F of one holder from its coordinates.

    Returns the new cursor and the log volume element of the coordinates (without its constant):
    -inf outside the support. `R` is F of the reference.
    """
    P = F.shape[0]
    cursor = start
    logp = 0.0
    F[0, 0] = 1.0
    K[0, 0] = 1.0
    for a in range(1, P):
        # The coordinates of row a, into row a of K; known entries follow below.
        free = 0
        squares = 1.0
        for b in range(a):
            if not known[a, b]:
                K[a, b] = centre[cursor] + scale[cursor] * x[cursor]
                cursor += 1
                free += 1
                if b > 0:
                    squares += K[a, b] * K[a, b]
        if not known[a, a]:
            log_diagonal = centre[cursor] + scale[cursor] * x[cursor]
            cursor += 1
            if polar[a]:
                log_diagonal -= 0.5 * math.log(squares)
            K[a, a] = math.exp(log_diagonal)
            if polar[a]:
                for b in range(1, a):
                    if not known[a, b]:
                        K[a, b] *= K[a, a]
                        logp += log_diagonal
        # F = R K, row a: everything but the last term first.
        last = 1.0
        for b in range(a + 1):
            F[a, b] = 0.0
        if relative:
            last = R[a, a]
            logp += free * math.log(last)
            for c in range(a):
                r = R[a, c]
                for b in range(c + 1):
                    F[a, b] += r * K[c, b]
        for b in range(a):
            if known[a, b]:
                total = values[a, b] / n
                for c in range(b):
                    total -= F[a, c] * F[b, c]
                solved = total / F[b, b]
                K[a, b] = (solved - F[a, b]) / last
                F[a, b] = solved
                logp -= math.log(n * F[b, b])
            else:
                F[a, b] += last * K[a, b]
        if known[a, a]:
            total = values[a, a] / n
            for c in range(a):
                total -= F[a, c] * F[a, c]
            if not total > 0.0:
                return cursor, -np.inf
            F[a, a] = math.sqrt(total)
            K[a, a] = F[a, a] / last
            logp -= math.log(2.0 * n * total)
        else:
            F[a, a] = last * K[a, a]
        if not (F[a, a] > 0.0 and F[a, a] < np.inf):
            return cursor, -np.inf
        logp += (n - a) * math.log(F[a, a])
    return cursor, logp


@_jit
def _factor_adjoint(  # type: ignore[no-untyped-def]
    start, n, known, relative, polar, scale, R, K, F, Fbar, Kbar, Rbar, row, grad
):
    """Reverse of `_factor`: from dlogp/dF in Fbar to dlogp/dx; adds what is due to R to Rbar."""
    P = F.shape[0]
    for a in range(1, P):
        for b in range(a + 1):
            Kbar[a, b] = 0.0
    for a in range(P - 1, 0, -1):
        last = R[a, a] if relative else 1.0
        lastbar = 0.0
        row[a] = 0.0
        Fbar[a, a] += (n - a) / F[a, a]
        if known[a, a]:
            k = Kbar[a, a] / last
            lastbar -= k * K[a, a]
            f = (Fbar[a, a] + k - 2.0 / F[a, a]) / F[a, a]
            for c in range(a):
                Fbar[a, c] -= f * F[a, c]
        else:
            lastbar += Fbar[a, a] * K[a, a]
            Kbar[a, a] += Fbar[a, a] * last
        for b in range(a - 1, -1, -1):
            if known[a, b]:
                k = Kbar[a, b] / last
                lastbar -= k * K[a, b]
                row[b] = -k
                f = (Fbar[a, b] + k) / F[b, b]
                for c in range(b):
                    Fbar[a, c] -= f * F[b, c]
                    Fbar[b, c] -= f * F[a, c]
                Fbar[b, b] -= f * F[a, b] + 1.0 / F[b, b]
            else:
                row[b] = Fbar[a, b]
                lastbar += row[b] * K[a, b] + 1.0 / last  # the second: the Jacobian of K -> F
                Kbar[a, b] += row[b] * last
        if relative:
            Rbar[a, a] += lastbar
            for c in range(a):
                r = R[a, c]
                total = 0.0
                for b in range(c + 1):
                    total += row[b] * K[c, b]
                    Kbar[c, b] += r * row[b]
                Rbar[a, c] += total
    cursor = start
    for a in range(1, P):
        unit = 1.0  # dK_ab / d(coordinate), ratios held fixed
        log_diagonal_bar = Kbar[a, a] * K[a, a]
        pull = 0.0
        if polar[a]:
            unit = K[a, a]
            squares = unit * unit
            for b in range(1, a):
                if not known[a, b]:
                    squares += K[a, b] * K[a, b]
                    log_diagonal_bar += Kbar[a, b] * K[a, b] + 1.0
            pull = log_diagonal_bar * unit / squares
        for b in range(a):
            if not known[a, b]:
                g = Kbar[a, b]
                if b > 0:
                    g = g * unit - pull * K[a, b]
                grad[cursor] = g * scale[cursor]
                cursor += 1
        if not known[a, a]:
            grad[cursor] = log_diagonal_bar * scale[cursor]
            cursor += 1


# --- the log density ------------------------------------------------------------------------------


@_jit
def _statistics_and_noise(  # type: ignore[no-untyped-def]
    n, laplace, smoothing, values, precision, F, A, force
):
    """Add n F F' to A; log density of the noise, and its derivative by each entry of n F F'."""
    P = F.shape[0]
    logp = 0.0
    A[0, 0] += n
    for a in range(1, P):
        for b in range(a + 1):
            total = 0.0
            for c in range(b + 1):
                total += F[a, c] * F[b, c]
            total *= n
            A[a, b] += total
            weight = precision[a, b]
            force[a, b] = 0.0
            if weight > 0.0:
                residual = (values[a, b] - total) * weight
                if laplace:
                    logp -= abs(residual)
                    if abs(residual) < smoothing:
                        force[a, b] = weight * residual / smoothing
                    else:
                        force[a, b] = weight * np.sign(residual)
                else:
                    logp -= 0.5 * residual * residual
                    force[a, b] = weight * residual
    return logp


@_jit
def _log_variance(F, a):  # type: ignore[no-untyped-def]
    """Log variance of column a of a holder with factor F."""
    total = 0.0
    for b in range(1, a + 1):
        total += F[a, b] * F[a, b]
    return math.log(total)


@_jit
def _trace(G, A):  # type: ignore[no-untyped-def]
    """tr(G A) from lower triangles."""
    total = 0.0
    for a in range(A.shape[0]):
        for b in range(a):
            total += 2.0 * G[a, b] * A[a, b]
        total += G[a, a] * A[a, a]
    return total


@_jit
def _prior_matrices(A, E0, B0, psi, t, E, B):  # type: ignore[no-untyped-def]
    """Cholesky factors of E and B (see the module) into E and B; False if A is impossible."""
    P = A.shape[0]
    for a in range(P):
        for b in range(a + 1):
            B[a, b] = B0[a, b] + t * A[a, b]
            if a < P - 1:
                E[a, b] = E0[a, b] + A[a, b]
    for c in range(psi.size):
        E[c + 1, c + 1] += psi[c]
    return _cholesky(E, P - 1) and _cholesky(B, P)


@_jit
def _collapsed_prior(  # type: ignore[no-untyped-def]
    A, E0, B0, psi_rate, scalars, extra, extra_bar, E, B, W, v, psi, G
):
    """Log marginal density of the rows given their A, and G with dlogp = tr(G dA), lower triangle.

    `extra` are the coordinates that the priors add: ln sigma2 if it is kept, ln psi if Psi is not
    fixed; their derivatives go to `extra_bar`.
    """
    P = A.shape[0]
    d = P - 1
    nu_n, log_lam_n, keeps_sigma2 = scalars[1], scalars[2], scalars[3] > 0.0
    a_n, b0 = scalars[4], scalars[5]
    first_psi = 1 if keeps_sigma2 else 0
    log_sigma2 = extra[0] if keeps_sigma2 else 0.0
    t = math.exp(-log_sigma2)
    logp = 0.5 * nu_n * log_lam_n
    for c in range(psi_rate.size):
        psi[c] = math.exp(extra[first_psi + c])
        logp += (0.5 * scalars[7] + scalars[8]) * extra[first_psi + c] - psi_rate[c] * psi[c]
    if not _prior_matrices(A, E0, B0, psi[: psi_rate.size], t, E, B):
        return -np.inf
    for a in range(d):
        logp -= nu_n * math.log(E[a, a]) + math.log(B[a, a])
    schur = B[d, d] * B[d, d]
    if keeps_sigma2:
        logp -= 0.5 * schur + a_n * log_sigma2 + b0 * t
        weight = 0.5 * t
    else:
        logp -= a_n * math.log(0.5 * schur)
        weight = a_n / schur
    for a in range(P):
        for b in range(a + 1):
            G[a, b] = 0.0
    _invert_triangle(E, d, W)
    _add_gram(W, d, -0.5 * nu_n, G)
    for c in range(psi_rate.size):
        extra_bar[first_psi + c] = (
            psi[c] * (G[c + 1, c + 1] - psi_rate[c]) + 0.5 * scalars[7] + scalars[8]
        )
    if keeps_sigma2:
        extra_bar[0] = b0 * t - a_n + _trace(G, A)
    _invert_triangle(B, d, W)
    _add_gram(W, d, -0.5 * t, G)
    # v = (-mu_n, 1): the last row of B's factor is (R⁻¹ z)', and mu_n = R⁻ᵀ R⁻¹ z.
    for b in range(d):
        v[b] = 0.0
    for a in range(d):
        r = B[d, a]
        for b in range(a + 1):
            v[b] -= r * W[a, b]
    v[d] = 1.0
    for a in range(P):
        scaled = weight * v[a]
        for b in range(a + 1):
            G[a, b] -= scaled * v[b]
    if keeps_sigma2:
        extra_bar[0] -= _trace(G, A)
    return logp


@_jit
def logp_and_gradient(  # type: ignore[no-untyped-def]
    x,
    grad,
    n,
    laplace,
    values,
    precision,
    known,
    relative,
    polar,
    E0,
    B0,
    psi_rate,
    scalars,
    centre,
    scale,
    work,
):
    """Log density at x, and its gradient into `grad`. -inf and a zero gradient off the support.

    The arguments between `grad` and `work` are the fields of `Arrays`; `work` comes from
    `workspace` and belongs to one thread. If the scalar `smoothing` is positive then the kinks of
    the Laplace law are rounded off in the gradient (not in the density) at that distance, in units
    of the noise scale.
    """
    J = n.size
    P = values.shape[1]
    A, E, B, W, G = work[0], work[1], work[2], work[3], work[4]
    Fbar, Kbar, Rbar, rows = work[5], work[6], work[7], work[8]
    R = work[_SHARED_BUFFERS]
    logp = scalars[0]
    A[:] = 0.0
    Rbar[:] = 0.0
    grad[:] = 0.0
    end = 0
    for j in range(J):
        base = _SHARED_BUFFERS + _BUFFERS_PER_HOLDER * j
        F, K, force = work[base], work[base + 1], work[base + 2]
        end, volume = _factor(
            x, end, n[j], known[j], values[j], relative[j], polar[j], centre, scale, R, K, F
        )
        logp += volume
        if not logp > -np.inf:
            return -np.inf
        logp += _statistics_and_noise(
            n[j], laplace[j], scalars[6], values[j], precision[j], F, A, force
        )
    extra = rows[1]
    for i in range(end, x.size):
        extra[i - end] = centre[i] + scale[i] * x[i]
    first_psi = x.size - end - psi_rate.size
    for c in range(psi_rate.size):
        extra[first_psi + c] += _log_variance(R, c + 1)
    logp += _collapsed_prior(
        A, E0, B0, psi_rate, scalars, extra, grad[end:], E, B, W, rows[0], Kbar[0], G
    )
    if not (logp > -np.inf and logp < np.inf):
        grad[:] = 0.0
        return -np.inf
    for c in range(psi_rate.size):
        pull = 2.0 * grad[end + first_psi + c] * math.exp(-_log_variance(R, c + 1))
        for b in range(1, c + 2):
            Rbar[c + 1, b] += pull * R[c + 1, b]
    for i in range(end, x.size):
        grad[i] *= scale[i]

    # Backwards, the reference (j = 0) last: the others add to its adjoint Rbar.
    for j in range(J - 1, -1, -1):
        base = _SHARED_BUFFERS + _BUFFERS_PER_HOLDER * j
        F, K, force = work[base], work[base + 1], work[base + 2]
        for a in range(1, P):
            for b in range(a + 1):
                end -= not known[j, a, b]
        for a in range(1, P):
            for c in range(a + 1):
                Fbar[a, c] = Rbar[a, c] if j == 0 else 0.0
            for b in range(P):
                if b < a:
                    m = G[a, b] + 0.5 * force[a, b]
                elif b == a:
                    m = G[a, a] + force[a, a]
                else:
                    m = G[b, a] + 0.5 * force[b, a]
                m *= 2.0 * n[j]
                for c in range(min(a, b) + 1):
                    Fbar[a, c] += m * F[b, c]
        _factor_adjoint(
            end, n[j], known[j], relative[j], polar[j], scale, R, K, F, Fbar, Kbar, Rbar,
            rows[0], grad,
        )  # fmt: skip
    return logp


# --- the same as a C function ---------------------------------------------------------------------


def _pointer_typed(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(_types.voidptr))

    return _types.voidptr(address), codegen


_pointer: Any = intrinsic(_pointer_typed)  # an integer address as a pointer


def _logp_c(dim, x_, grad_, logp_, table_):  # type: ignore[no-untyped-def]
    table = carray(table_, (_TABLE,), dtype=np.int64)
    J, P = table[0], table[1]
    buffers = _SHARED_BUFFERS + _BUFFERS_PER_HOLDER * J
    logp = logp_and_gradient(
        carray(x_, (dim,)),
        carray(grad_, (dim,)),
        carray(_pointer(table[3]), (J,), dtype=np.float64),
        carray(_pointer(table[4]), (J,), dtype=np.bool_),
        carray(_pointer(table[5]), (J, P, P), dtype=np.float64),
        carray(_pointer(table[6]), (J, P, P), dtype=np.float64),
        carray(_pointer(table[7]), (J, P, P), dtype=np.bool_),
        carray(_pointer(table[8]), (J,), dtype=np.bool_),
        carray(_pointer(table[9]), (J, P), dtype=np.bool_),
        carray(_pointer(table[10]), (P - 1, P - 1), dtype=np.float64),
        carray(_pointer(table[11]), (P, P), dtype=np.float64),
        carray(_pointer(table[12]), (table[2],), dtype=np.float64),
        carray(_pointer(table[13]), (_SCALARS,), dtype=np.float64),
        carray(_pointer(table[14]), (dim,), dtype=np.float64),
        carray(_pointer(table[15]), (dim,), dtype=np.float64),
        carray(_pointer(table[16]), (buffers, P, P), dtype=np.float64),
    )
    carray(logp_, (1,))[0] = logp
    return 0 if logp > -np.inf else 1


def _record_c(dim, size, x_, out_, table_):  # type: ignore[no-untyped-def]
    x, out = carray(x_, (dim,)), carray(out_, (dim,))
    for i in range(dim):
        out[i] = x[i]
    carray(table_, (_TABLE,), dtype=np.int64)[_TABLE - 1] += 1
    return 0


# These two live in this file because Numba's cache notices changes in a function's own file only.
@cache
def c_density() -> Any:
    """Compiled ``int64 (uint64 dim, double *x, double *gradient, double *logp, void *table)``.

    Returns 0, or 1 off the support. `table` is the array from `c_table`.
    """
    double = _types.CPointer(_types.double)
    signature = _types.int64(_types.uint64, double, double, double, _types.voidptr)
    return numba.cfunc(signature, cache=True)(_logp_c)


@cache
def c_record() -> Any:
    """Compiled ``int64 (uint64 dim, uint64 size, double *x, double *out, void *table)``.

    Copies a draw and counts it, in the last entry of the table.
    """
    double = _types.CPointer(_types.double)
    signature = _types.int64(_types.uint64, _types.uint64, double, double, _types.voidptr)
    return numba.cfunc(signature, cache=True)(_record_c)


def c_table(arrays: Arrays, work: FloatArray) -> NDArray[np.int64]:
    """Sizes, addresses of the arrays (the caller keeps them alive), and a counter of draws."""
    for array in (*arrays, work):
        if not array.flags.c_contiguous:
            raise ValueError("the compiled density needs contiguous arrays")
    J, P, _ = arrays.values.shape
    addresses = [array.ctypes.data for array in (*arrays, work)]
    return np.array([J, P, arrays.psi_rate.size, *addresses, 0], dtype=np.int64)


# --- exact draws of what was integrated out -------------------------------------------------------


@_jit
def _total(x, n, known, values, relative, polar, centre, scale, work):  # type: ignore[no-untyped-def]
    """Sum of the latent A_j at x into work[0] (lower triangle); index of the first extra."""
    A = work[0]
    A[:] = 0.0
    end = 0
    for j in range(n.size):
        base = _SHARED_BUFFERS + _BUFFERS_PER_HOLDER * j
        F, K = work[base], work[base + 1]
        end, _ = _factor(
            x, end, n[j], known[j], values[j], relative[j], polar[j], centre, scale,
            work[_SHARED_BUFFERS], K, F,
        )  # fmt: skip
        for a in range(F.shape[0]):
            for b in range(a + 1):
                total = 0.0
                for c in range(b + 1):
                    total += F[a, c] * F[b, c]
                A[a, b] += n[j] * total
    return end


@_jit
def conjugate_draws(  # type: ignore[no-untyped-def]
    x, normal, gamma, normal_mu, normal_T, chi, n, values, known, relative, polar,
    E0, B0, psi_rate, scalars, centre, scale, work, theta, sigma2, mean, mu, T,
):  # fmt: skip
    """One draw of (theta, sigma2, mu, T) given each row of x, by conjugacy, and mu_n into `mean`.

    theta | sigma2 ~ N(mu_n, sigma2 Lam_n⁻¹), sigma2 ~ IG(a_n, b_n) and T ~ IW(nu_n, Psi_n),
    mu | T ~ N(m_n, T / (lam + N)). The random numbers come from outside: `normal` (draws, d) and
    `normal_mu` (draws, k) standard, `normal_T` (draws, k, k) standard below the diagonal, `gamma`
    (draws,) of shape a_n, `chi` (draws, k) with nu_n - i degrees of freedom in column i. If `mu`
    has no rows, mu and T are not drawn.
    """
    P = values.shape[1]
    d = P - 1
    k = P - 2
    keeps_sigma2 = scalars[3] > 0.0
    A, E, B, C = work[0], work[1], work[2], work[3]
    psi = work[6][0]
    for i in range(x.shape[0]):
        end = _total(x[i], n, known, values, relative, polar, centre, scale, work)
        t = 1.0
        if keeps_sigma2:
            t = math.exp(-(centre[end] + scale[end] * x[i, end]))
            end += 1
        for c in range(psi_rate.size):
            psi[c] = math.exp(
                centre[end + c]
                + scale[end + c] * x[i, end + c]
                + _log_variance(work[_SHARED_BUFFERS], c + 1)
            )
        _prior_matrices(A, E0, B0, psi[: psi_rate.size], t, E, B)
        if keeps_sigma2:
            sigma2[i] = 1.0 / t
            sd = 1.0
        else:
            sigma2[i] = 0.5 * B[d, d] * B[d, d] / gamma[i]
            sd = math.sqrt(sigma2[i])
        # mean = R⁻ᵀ R⁻¹ z and theta = mean + sd R⁻ᵀ normal.
        for a in range(d - 1, -1, -1):
            total, total_mean = B[d, a] + sd * normal[i, a], B[d, a]
            for b in range(a + 1, d):
                total -= B[b, a] * theta[i, b]
                total_mean -= B[b, a] * mean[i, b]
            theta[i, a] = total / B[a, a]
            mean[i, a] = total_mean / B[a, a]
        if i >= mu.shape[0]:
            continue
        # E's factor is [[sqrt(lam + N), 0], [., L]] with Psi_n = L L'. T = C C' with C = L Q⁻ᵀ,
        # Q the Bartlett factor of a Wishart(nu_n, I) draw: row a of C solves C_a Q' = L_a.
        for a in range(k):
            for b in range(k):
                total = E[a + 1, b + 1] if b <= a else 0.0
                for c in range(b):
                    total -= C[a, c] * normal_T[i, b, c]
                C[a, b] = total / chi[i, b]
        for a in range(k):
            total = 0.0
            for b in range(k):
                total += C[a, b] * normal_mu[i, b]
            mu[i, a] = (E[a + 1, 0] + total) / E[0, 0]
            for b in range(a + 1):
                total = 0.0
                for c in range(k):
                    total += C[a, c] * C[b, c]
                T[i, a, b] = total
                T[i, b, a] = total


@_jit
def statistics(x, n, values, known, relative, polar, centre, scale, work, out):  # type: ignore[no-untyped-def]
    """The latent A_j at x into `out`, shape (J, P, P), both triangles."""
    _total(x, n, known, values, relative, polar, centre, scale, work)
    P = values.shape[1]
    for j in range(n.size):
        F = work[_SHARED_BUFFERS + _BUFFERS_PER_HOLDER * j]
        for a in range(P):
            for b in range(a + 1):
                total = 0.0
                for c in range(b + 1):
                    total += F[a, c] * F[b, c]
                out[j, a, b] = n[j] * total
                out[j, b, a] = out[j, a, b]
