"""From a sampler's coordinates to the factor F_j of each holder's statistics A_j, and back.

A_j = n_j F_j F_j'. The coordinates, and why there are several forms of them, are described in
`kernels`. F's upper triangle is not used, but for F[0, 1], which keeps n_j.

A holder with a map K_j (`Observation`) has the coordinates of F'_j = K_j F_j instead, known entries
and noise included, and the reference is to it K_j F_0. With rows w' = K_j w for w the density of
the rows is that of w by |K_j| to the power of n_j.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.categories import TIED
from noisewise.analyst.regression.exact.normalisers import log_volume, log_volume_slope
from noisewise.analyst.regression.exact.tied import (
    TAIL,
    columns_of_atoms,
    tied_row,
    tied_rows,
    tied_rows_adjoint,
)
from noisewise.analyst.regression.triangular import (
    gram_entry,
    relative_factor,
    triangle_product,
)

SHARED_BUFFERS = 21  # from 10 on: C, M and S of `holders`, those of `own_laws`, extra coordinates
# F, K, the force of the noise, the pull of the holder's own law, and F' where there are maps
BUFFERS_PER_HOLDER = 5
# A private n is at least P = k + 2, a whole number. Reals from P - 1/2 on stand for those.
BELOW_SMALLEST_N = 0.5
# The unit of the log size of y's entries above which they are few (`log_size`).
FEW_ENTRIES = 0.25
_ROOT_HALF, _PHI_0 = math.sqrt(0.5), 1.0 / math.sqrt(2.0 * math.pi)
# What of a holder is counted from the reference: nothing, or a sum of the regression (y's row), the
# covariates' covariance and their means; all of these is RELATIVE.
PLAIN, REGRESSION, SPREADS, MEANS, RELATIVE = 0, 1, 2, 4, 7


@compiled
def narrowed(size: float, unit: float) -> Any:
    """t² = size² / (size² + unit²): an entry of y's row has the unit t unit (`kernels`)."""
    return size * size / (size * size + unit * unit)


@compiled
def log_length(x: float, centre: float, scale: float) -> Any:
    """ln of a partial row's length at x, with slope, log Jacobian and slope of that.

    Where noise hides whether a column varies at all, the length has a flat density down to 0. Its
    logarithm would have a tail to the left that is exponential in units of the prior, and a sampler
    whose steps are of the size of the noise would take very long to come back from it. So the
    length is softplus(y), in units of the noise, whose tail is exponential in these, and y is
    y_0 + x sqrt(1 + TAIL x²), which makes it normal. At x = 0 it is exp(centre), and the slope is
    about `scale`. The Jacobian is in units of `scale`.
    """
    units = 1.0 / scale
    v2 = TAIL * x * x
    root = math.sqrt(1.0 + v2)
    y = units + math.log1p(-math.exp(-units)) + x * root
    e = math.exp(-abs(y))
    if y > 0.0:
        length, share = y + math.log1p(e), 1.0 / (1.0 + e)
    else:
        length, share = math.log1p(e), e / (1.0 + e)
    if not length > 0.0:
        return -np.inf, 0.0, -np.inf, 0.0
    by_y, by_x = share / length, (1.0 + 2.0 * v2) / root
    bend = (1.0 - share - by_y) * by_x + TAIL * x * (4.0 / (1.0 + 2.0 * v2) - 1.0 / (1.0 + v2))
    slope = by_y * by_x
    return centre + math.log(length * scale), slope, math.log(slope * units), bend


@compiled
def log_size(x: float, centre: float, scale: float) -> Any:
    """ln g of y's row (`kernels`) at x, with slope, log Jacobian and slope of that.

    With few entries, m, the coordinate is ln g itself, in units of `scale`: g given v is wide, and
    so are its tails. With more, `scale` is 1 / √m (below `FEW_ENTRIES`), g goes with the length of
    v, and what noise leaves of that is the prior's. Its R² has two humps, near 0 and near 1, and
    the length has nearly the law of |z|, z of standard deviation 1 / √m or 1 with equal
    probability. x is standard normal if |z| = q(x) has it. Sampling leaves a g of 1 / √n at the
    least, which is exp(centre): ln g - centre is u = ln(q / √m) - centre where that is far above 0,
    and u / √m far below, as uncertain as g is given v. The Jacobian is in units of `scale`.
    """
    if scale > FEW_ENTRIES:
        return centre + scale * x, scale, 0.0, 0.0
    length, slope, by_length = _two_humps(x, scale)
    if not slope > 0.0:
        return -np.inf, 0.0, -np.inf, 0.0
    u, by_x = math.log(length * scale) - centre, slope / length
    e = math.exp(-2.0 * abs(u))
    share = 1.0 / (1.0 + e) if u > 0.0 else e / (1.0 + e)
    by_u = scale + (1.0 - scale) * share
    value = centre + scale * u + (1.0 - scale) * (max(u, 0.0) + 0.5 * math.log1p(e))
    bend = 2.0 * (1.0 - scale) * share * (1.0 - share) / by_u * by_x
    bend += -x - by_length * slope - by_x
    return value, by_u * by_x, math.log(by_u * by_x / scale), bend


@compiled
def _two_humps(x: float, narrow: float) -> Any:
    """q with P(|z| < q) = Φ(x), z of sd 1 or `narrow`, each with probability 1/2.

    With its slope by x, and the slope of the log density at q. The slope is 0 where double
    precision doesn't hold Φ(x). Newton's method on log probabilities, between bounds.
    """
    tail = 0.5 * math.erfc(abs(x) * _ROOT_HALF)
    if not tail > 1e-300:
        return 1.0, 0.0, 0.0
    aim = math.log(tail)
    below = 1.0 - tail if x > 0.0 else tail
    # The density is at most 2 φ(0) (1 + 1 / narrow) / 2.
    low = math.log(below / (2.0 * _PHI_0 * 0.5 * (1.0 + 1.0 / narrow)))
    high = math.log1p(max(x, 0.0))
    at = low if x < narrow else math.log(x)
    q, density, falls = 0.0, 0.0, 0.0
    for _ in range(100):
        q = math.exp(at)
        z = q / narrow
        wide_part, narrow_part = _PHI_0 * math.exp(-0.5 * q * q), _PHI_0 * math.exp(-0.5 * z * z)
        density = wide_part + narrow_part / narrow
        falls = q * wide_part + z * narrow_part / (narrow * narrow)
        if x > 0.0:
            share = 0.5 * (math.erfc(q * _ROOT_HALF) + math.erfc(z * _ROOT_HALF))
            off = aim - math.log(share) if share > 0.0 else 1.0
            step = -off * share / (density * q) if density > 0.0 else -1.0
        else:
            share = 0.5 * (math.erf(q * _ROOT_HALF) + math.erf(z * _ROOT_HALF))
            off = aim - math.log(share)
            step = off * share / (density * q)
        if abs(step) < 1e-12:
            break
        if step > 0.0:
            low = at
        else:
            high = at
        at += step
        if not low < at < high:
            at = 0.5 * (low + high)
    return q, _PHI_0 * math.exp(-0.5 * x * x) / density, -falls / density


@compiled
def partial_row(K: FloatArray, a: int, known: IntArray, log_length: float, size: float) -> Any:
    """Row a of K from its partial correlations, which stand at its free entries K_a1 ... K_a,a-1.

    Entries that are known are passed over: the length is that of the others, so that no value of
    the coordinates is impossible. Returns the log Jacobian of (the free K_ab, ln K_aa), -inf off
    the support. Where the row has a size, which is 0 otherwise, the law of its logarithm is added,
    without its constant.
    """
    m, r2 = _free_part(K, a, known)
    logp = m * log_length
    if size > 0.0:
        r2 /= size * size
        logp += 0.5 * (m * math.log(r2 + 1e-300) - r2)
    left = 1.0
    length = math.exp(log_length)
    product = 1.0  # of Jacobians, one logarithm for many
    for b in range(1, a):
        if known[b]:
            continue
        v2 = TAIL * K[a, b] ** 2
        root = math.sqrt(1.0 + v2)
        y = K[a, b] * root
        if not abs(y) < 300.0:
            return -np.inf
        e = math.exp(-abs(y))
        sech = 2.0 * e / (1.0 + e * e)
        # The Jacobian of tanh is sech², of which one half is in ln K_aa.
        product *= left * (1.0 + 2.0 * v2) / root
        K[a, b] = length * left * math.copysign((1.0 - e * e) / (1.0 + e * e), y)
        left *= sech
        if not (product > 1e-150 and product < 1e150):
            logp += math.log(product)
            product = 1.0
    K[a, a] = length * left
    return logp + math.log(product)


@compiled
def _free_part(K: FloatArray, a: int, known: IntArray) -> Any:
    """Number and sum of squares of the free entries K_a1 ... K_a,a-1."""
    m, total = 0, 0.0
    for b in range(1, a):
        if not known[b]:
            m += 1
            total += K[a, b] * K[a, b]
    return m, total


@compiled
def _partial_row_adjoint(
    K: FloatArray,
    Kbar: FloatArray,
    a: int,
    known: IntArray,
    size: float,
    z: FloatArray,
    lengths: FloatArray,
    grad: FloatArray,
) -> Any:
    """Reverse of `partial_row`: derivatives by the m coordinates z and by the log length.

    The correlations are read off K: what is left of the length after each entry, into `lengths`,
    from the last one on.
    """
    m = 0
    square = K[a, a] * K[a, a]
    tail = Kbar[a, a] * K[a, a]  # sum of Kbar K over the entries to the right
    for b in range(a - 1, 0, -1):
        lengths[b] = math.sqrt(square)
        if not known[b]:
            m += 1
            tail += Kbar[a, b] * K[a, b]
            square += K[a, b] * K[a, b]
    left = math.sqrt(square)
    grad[m] = tail + m
    by_square, i = 0.0, 0
    if size > 0.0:
        r2 = 1e-300
        for b in range(m):
            r2 += z[b] * z[b]
        by_square = m / r2 - 1.0 / (size * size)
    for b in range(1, a):
        if known[b]:
            continue
        v = z[i]
        v2 = TAIL * v * v
        root2 = 1.0 + v2
        th, sech = K[a, b] / left, lengths[b] / left
        tail -= Kbar[a, b] * K[a, b]
        by_y = Kbar[a, b] * left * sech * sech - th * (tail + m - i - 1)
        left = lengths[b]
        by_v = by_y * (1.0 + 2.0 * v2) / math.sqrt(root2)
        by_v += TAIL * v * (4.0 / (1.0 + 2.0 * v2) - 1.0 / root2)
        grad[i] = by_v + by_square * v
        i += 1


@compiled
def is_relative(form: int, a: int, b: int, P: int) -> Any:
    """Whether entry (a, b) of K is counted from the reference."""
    if a == P - 1:
        return form & REGRESSION > 0
    return form & (MEANS if b == 0 else SPREADS) > 0


@compiled
def factor(
    x: FloatArray,
    start: int,
    n: float,
    known: IntArray,
    values: FloatArray,
    relative: int,
    partial: BoolArray,
    size_at: float,
    centre: FloatArray,
    scale: FloatArray,
    R: FloatArray,
    beta: FloatArray,
    K: FloatArray,
    F: FloatArray,
) -> Any:
    """Fill K and F of one holder from its coordinates.

    Returns the new cursor and the log volume element of the coordinates: -inf outside the support,
    and without its constant where n is public. Where n is private, its coordinate is the first, and
    the argument `n` is not used. `R` is F of the reference, `beta` the regression that is in it.
    """
    P, tied = F.shape[0], tied_rows(known)
    cursor = start
    logp = 0.0
    if not known[0, 0]:
        log_excess = centre[cursor] + scale[cursor] * x[cursor]
        cursor += 1
        n = P - BELOW_SMALLEST_N + math.exp(log_excess)
        if not n < np.inf:
            return cursor, -np.inf
        logp += log_excess + log_volume(n, P - 1) - log_volume(n, tied)
    F[0, 0] = 1.0
    F[0, 1] = n
    K[0, 0] = 1.0
    for a in range(1, P):
        # The coordinates of row a, into row a of K; known entries follow below.
        for b in range(a):
            if not known[a, b]:
                K[a, b] = centre[cursor] + scale[cursor] * x[cursor]
                cursor += 1
        if a <= tied:
            logp += tied_row(K, F, a, known[a])
            if not logp > -np.inf:
                return cursor, -np.inf
            if a == tied:
                columns_of_atoms(F, known, tied, 1.0)
            continue
        if not known[a, a]:
            if partial[a]:
                length, _, log_slope, _ = log_length(x[cursor], centre[cursor], scale[cursor])
                logp += log_slope
                size, i = 0.0, cursor
                if size_at > 0.0 and a == P - 1:
                    at = int(size_at)
                    of_size, _, log_slope, _ = log_size(x[at], centre[at], scale[at])
                    logp += log_slope
                    if not abs(of_size) < 100.0:
                        return cursor, -np.inf
                    size = math.exp(of_size)
                    for b in range(a - 1, 0, -1):
                        if not known[a, b]:
                            i -= 1
                            t2 = narrowed(size, scale[i])
                            K[a, b] = t2 * centre[i] + math.sqrt(t2) * scale[i] * x[i]
                            logp += 0.5 * math.log(t2)
                logp += partial_row(K, a, known[a], length, size)
                if not logp > -np.inf:
                    return cursor, -np.inf
            else:
                K[a, a] = math.exp(centre[cursor] + scale[cursor] * x[cursor])
            cursor += 1
        # F = R K, row a: everything but the last term first. Where not all is relative, y's row
        # has F in place of K and beta in place of R, which is the same.
        by_beta = relative != RELATIVE and a == P - 1
        for b in range(a + 1):
            F[a, b] = 0.0
            if is_relative(relative, a, b, P):
                for c in range(b, a):
                    F[a, b] += beta[c] * F[c, b] if by_beta else R[a, c] * K[c, b]
                if b < a and not known[a, b]:
                    logp += math.log(R[a, a])
        for b in range(a):
            last = R[a, a] if is_relative(relative, a, b, P) else 1.0
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
        last = R[a, a] if is_relative(relative, a, a, P) else 1.0
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


@compiled
def factor_adjoint(
    x: FloatArray,
    start: int,
    known: IntArray,
    relative: int,
    partial: BoolArray,
    size_at: float,
    centre: FloatArray,
    scale: FloatArray,
    R: FloatArray,
    beta: FloatArray,
    K: FloatArray,
    F: FloatArray,
    Fbar: FloatArray,
    Kbar: FloatArray,
    Rbar: FloatArray,
    betabar: FloatArray,
    row: FloatArray,
    grad: FloatArray,
) -> Any:
    """Reverse of `factor`: from dlogp/dF in Fbar to dlogp/dx; adds to Rbar and betabar.

    `start` is the coordinate after that of a private n. Returns what n contributes to dlogp by way
    of the known entries, which are solved for with n.
    """
    P = F.shape[0]
    n = F[0, 1]
    nbar = 0.0
    for a in range(1, P):
        for b in range(a + 1):
            Kbar[a, b] = 0.0
    for a in range(P - 1, 0, -1):
        # lastbar: of R_aa, where an entry is relative
        by_beta = relative != RELATIVE and a == P - 1
        inner = is_relative(relative, a, a, P)
        last = R[a, a] if inner else 1.0
        lastbar = 0.0
        row[a] = 0.0
        if known[a, a] == TIED:
            tied_rows_adjoint(K, F, Fbar, Kbar, known, a)
            break
        Fbar[a, a] += (n - a) / F[a, a]
        if known[a, a]:
            k = Kbar[a, a] / last
            if inner:
                lastbar -= k * K[a, a]
            f = (Fbar[a, a] + k - 2.0 / F[a, a]) / F[a, a]
            nbar -= (0.5 * f * gram_entry(F, a, a) + 1.0) / n  # F F' is the known value / n
            for c in range(a):
                Fbar[a, c] -= f * F[a, c]
        else:
            if inner:
                lastbar += Fbar[a, a] * K[a, a]
            Kbar[a, a] += Fbar[a, a] * last
        for b in range(a - 1, -1, -1):
            inner = is_relative(relative, a, b, P)
            last = R[a, a] if inner else 1.0
            if known[a, b]:
                k = Kbar[a, b] / last
                if inner:
                    lastbar -= k * K[a, b]
                row[b] = -k
                f = (Fbar[a, b] + k) / F[b, b]
                nbar -= (f * gram_entry(F, a, b) + 1.0) / n
                for c in range(b):
                    Fbar[a, c] -= f * F[b, c]
                    Fbar[b, c] -= f * F[a, c]
                Fbar[b, b] -= f * F[a, b] + 1.0 / F[b, b]
            else:
                row[b] = Fbar[a, b]
                if inner:
                    lastbar += row[b] * K[a, b] + 1.0 / last  # the second: the Jacobian of K -> F
                Kbar[a, b] += row[b] * last
        if relative == PLAIN:
            continue
        Rbar[a, a] += lastbar
        for c in range(a):
            total = 0.0
            for b in range(c + 1):
                if not is_relative(relative, a, b, P):
                    continue
                if by_beta:
                    total += row[b] * F[c, b]
                    Fbar[c, b] += beta[c] * row[b]
                else:
                    total += row[b] * K[c, b]
                    Kbar[c, b] += R[a, c] * row[b]
            if by_beta:
                betabar[c] += total
            else:
                Rbar[a, c] += total
    cursor = start
    for a in range(1, P):
        if partial[a]:  # its diagonal entry is free
            if not known[a, 0]:
                grad[cursor] = Kbar[a, 0] * scale[cursor]
                cursor += 1
            free = 0
            for b in range(1, a):
                free += not known[a, b]
            size, at = 0.0, int(size_at)
            if size_at > 0.0 and a == P - 1:
                of_size, size_slope, _, size_bend = log_size(x[at], centre[at], scale[at])
                size = math.exp(of_size)
            for i in range(free):
                c, u = centre[cursor + i], scale[cursor + i] * x[cursor + i]
                if size > 0.0:
                    t2 = narrowed(size, scale[cursor + i])
                    c, u = c * t2, u * math.sqrt(t2)
                row[i] = c + u
            # Fbar is of no more use.
            _partial_row_adjoint(K, Kbar, a, known[a], size, row, Fbar[0], grad[cursor:])
            by_size = 0.0
            for i in range(cursor, cursor + free):
                if size > 0.0:
                    t2, v = narrowed(size, scale[i]), row[i - cursor]
                    by_size += (v / size) ** 2 - 1.0
                    by_size += (1.0 - t2) * (1.0 + grad[i] * (v + t2 * centre[i]))
                    grad[i] *= math.sqrt(t2)
                grad[i] *= scale[i]
            if size > 0.0:
                grad[at] = by_size * size_slope + size_bend
            cursor += free
            _, slope, _, bend = log_length(x[cursor], centre[cursor], scale[cursor])
            grad[cursor] = grad[cursor] * slope + bend
            cursor += 1
            continue
        for b in range(a):
            if not known[a, b]:
                grad[cursor] = Kbar[a, b] * scale[cursor]
                cursor += 1
        if not known[a, a]:
            grad[cursor] = Kbar[a, a] * K[a, a] * scale[cursor]
            cursor += 1
    return nbar


@compiled
def regression_of(R: FloatArray, beta: FloatArray) -> Any:
    """Least squares of y, the last row: beta with beta R[:d, :d] = R[d, :d]."""
    d = R.shape[0] - 1
    for a in range(d - 1, -1, -1):
        total = R[d, a]
        for b in range(a + 1, d):
            total -= beta[b] * R[b, a]
        beta[a] = total / R[a, a]


@compiled
def regression_of_adjoint(
    R: FloatArray, beta: FloatArray, betabar: FloatArray, Rbar: FloatArray
) -> Any:
    """Reverse of `regression_of`: adds to Rbar. `betabar` is overwritten."""
    d = R.shape[0] - 1
    for a in range(d):
        total = betabar[a]
        for b in range(a):
            total -= R[a, b] * betabar[b]
        betabar[a] = total / R[a, a]
        Rbar[d, a] += betabar[a]
    for a in range(1, d):
        for b in range(a + 1):
            Rbar[a, b] -= beta[a] * betabar[b]


@compiled
def private_n_slope(nbar: float, tied: int, G: FloatArray, force: FloatArray, F: FloatArray) -> Any:
    """From dlogp/dn by other ways to dlogp/dln(n - smallest), for a private n.

    Adds A = n F F', whose entries have the derivatives 2 G + force (G + force on the diagonal), the
    volume and its power of the diagonal, and the Jacobian of the coordinate. Of `tied` rows no
    volume depends on n.
    """
    P = F.shape[0]
    n = F[0, 1]
    nbar += log_volume_slope(n, P - 1) - log_volume_slope(n, tied)
    for a in range(P):
        nbar += math.log(F[a, a]) if a > tied else 0.0
        for b in range(a + 1):
            weight = 1.0 if a == b else 2.0
            nbar += (weight * G[a, b] + force[a, b]) * gram_entry(F, a, b)
    return nbar * (n - P + BELOW_SMALLEST_N) + 1.0


@compiled
def mapped_factor(
    j: int,
    x: FloatArray,
    start: int,
    n: float,
    known: IntArray,
    values: FloatArray,
    relative: int,
    partial: BoolArray,
    size_at: float,
    centre: FloatArray,
    scale: FloatArray,
    map_: FloatArray,
    work: FloatArray,
) -> Any:
    """`factor` of holder j with a map, into its buffers; F' is the fifth of them."""
    base = SHARED_BUFFERS + BUFFERS_PER_HOLDER * j
    F, K, own = work[base], work[base + 1], work[base + 4]
    R, beta = work[1], work[8, 1]
    if relative != PLAIN:
        triangle_product(map_, work[SHARED_BUFFERS], R)
        regression_of(R, beta)
    end, logp = factor(
        x, start, n, known, values, relative, partial, size_at, centre, scale, R, beta, K, own
    )
    if logp > -np.inf:
        relative_factor(map_, own, F)
        F[0, 1] = own[0, 1]
        for a in range(1, F.shape[0]):
            logp -= own[0, 1] * math.log(map_[a, a])
    return end, logp


@compiled
def total_statistics(
    x: FloatArray,
    n: FloatArray,
    known: IntArray,
    values: FloatArray,
    relative: IntArray,
    partial: BoolArray,
    size_at: float,
    centre: FloatArray,
    scale: FloatArray,
    maps: FloatArray,
    work: FloatArray,
) -> Any:
    """Sum of the latent A_j at x into work[0] (lower triangle); index of the first extra."""
    A, beta = work[0], work[8, 1]
    A[:] = 0.0
    end: Any = np.int64(0)  # no literal: see `logp_and_gradient`
    for j in range(n.size):
        base = SHARED_BUFFERS + BUFFERS_PER_HOLDER * j
        F, K = work[base], work[base + 1]
        of_row = size_at if j == 0 else 0.0
        if maps.shape[0] > 0:
            end, _ = mapped_factor(
                j, x, end, n[j], known[j], values[j], relative[j], partial[j], of_row, centre,
                scale, maps[j], work,
            )  # fmt: skip
        else:
            end, _ = factor(
                x, end, n[j], known[j], values[j], relative[j], partial[j], of_row, centre, scale,
                work[SHARED_BUFFERS], beta, K, F,
            )  # fmt: skip
            if j == 0:
                regression_of(F, beta)
        for a in range(F.shape[0]):
            for b in range(a + 1):
                A[a, b] += F[0, 1] * gram_entry(F, a, b)
    return end + 1 if size_at > 0.0 else end


@compiled
def statistics(
    x: FloatArray,
    n: FloatArray,
    values: FloatArray,
    known: IntArray,
    relative: IntArray,
    partial: BoolArray,
    size_at: float,
    centre: FloatArray,
    scale: FloatArray,
    maps: FloatArray,
    work: FloatArray,
    out: FloatArray,
) -> Any:
    """The latent A_j at x into `out`, shape (J, P, P), both triangles."""
    total_statistics(x, n, known, values, relative, partial, size_at, centre, scale, maps, work)
    P = values.shape[1]
    for j in range(n.size):
        F = work[SHARED_BUFFERS + BUFFERS_PER_HOLDER * j]
        for a in range(P):
            for b in range(a + 1):
                out[j, a, b] = F[0, 1] * gram_entry(F, a, b)
                out[j, b, a] = out[j, a, b]
