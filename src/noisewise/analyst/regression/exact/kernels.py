"""Compiled functions of the collapsed posterior: log density, gradient, conjugate draws.

Model, on unit scale, with w = (1, x, y), k covariates, d = k + 1 design columns and p = k + 1
columns of w that are not constant::

    (mu, T)         ~ normal inverse Wishart            covariates
    (theta, sigma2) ~ normal inverse gamma              regression of y on (1, x)
    x | mu, T       ~ N(mu, T)
    y | x           ~ N((1, x)' theta, sigma2)
    A_j              = sum of w w' over the n_j rows of holder j
    released A_j     = A_j + independent noise on each entry, or K_j A_j K_j' + such noise

Everything depends on the rows through the A_j alone, and mu, T, theta, sigma2 have closed-form
marginals given the sum of the A_j. Integrating them out leaves the posterior of the latent A_j.
No central limit theorem is involved, so it is right down to n_j = p + 1. Holders may also have laws
(mu_j, T_j) of their own, drawn from a common one (`own_laws`); theta and sigma2 are those of all.

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
  is the collapsed counterpart of the non-centred Bartlett form. If noise hides some differences and
  others are plain, then only a part is counted from the reference (`factor`): the covariates'
  means, the rest of their rows, or the row of y, F_j,y = beta F_j,x + R_yy K_j,y with beta the
  regression in F_0, which is the same formula for that row. The regression is that of all.
- A *plain* row has coordinates K_a0, ..., K_a,a-1, ln K_aa. A *partial* row has K_a0, the
  length of (K_a1, ..., K_aa), which is the column's standard deviation, and partial correlations
  tanh y_b: K_ab = length tanh(y_b) Π_{c<b} sech(y_c). Where noise hides the covariances, the
  released sum of squares still fixes the length, and tails of y are exponential; so the coordinate
  is v, y = v sqrt(1 + v²/4). Where it hides the length too, that has such a tail (`log_length`).
  Under the scale-free prior y's own row in the reference has one coordinate more, ln g. That prior
  is flat in the length of v = (v_1, ..., v_m), with a spike |v|^-(m-1) at 0 (down to about 1/√N,
  where sampling rounds it off), and where noise hides y's correlations nothing is known as little
  as this length: R² may be near 0 or near 1. A sampler
  can't change the length without all of v. So a *size* g is drawn with it, such that |v| / g is
  chi distributed with m degrees of freedom: this leaves the law of v as it is, and makes it normal
  with standard deviation g, ln g given, as far as the prior goes. If noise of sd s_b leaves v_b
  near c_b, then v_b = t² c_b + t s_b x_b with t² = g² / (g² + s_b²) makes x_b standard normal both
  where the prior rules and where the Release does. With many entries the coordinate isn't ln g
  but one that is standard normal where the prior rules (`log_size`).
- An entry of A_j that is known exactly (noise scale 0) is eliminated: the entry of F_j at its
  place is solved for. A partial row passes it over.
- The row of an indicator may be *tied* (`tied_row`), see below.
- Priors may add coordinates: ln sigma2, counted from the log residual variance of y in the
  reference (given n rows the two differ by about sqrt(2/n), a narrow ridge otherwise), and
  ln psi_j, counted from minus its log rate given the reference's covariance matrix
  (`log_precisions`), so that for many rows it is log-gamma and independent of all else. Holders
  with laws of their own have no psi, but the coordinates of `own_laws`.

Categories
----------
An indicator is 0 or 1, so its sum of squares is its sum, and products of levels of one category are
0. A normal law of such columns, given these equations, is improper: a level that nobody has fulfils
them best. So with one holder and a flat mean, indicators come first, with a law of their own, and
the normal law is that of the numbers given them: p(A) = p(A_11) p(A | A_11) with A_11 the block of
the indicators, and its first factor is replaced by a flat one. Of one category, or of several with
all their interactions (a family, `categories`), that is the law of counts under a flat Dirichlet
prior of its cells; of several, it is flat on what two families at a time can be. (This is the
general location model of Olkin & Tate 1961.) In their coordinates (`tied`) every value is possible.
Since T_11 has an inverse Wishart law as well, the factor that goes is known in closed form
(`_flat_mean`).

Maps
----
A holder who published in rounds has summed w' = K_j w (`rounds`): its noise is on the entries of
K_j A_j K_j', with K_j public and lower triangular. Its coordinates above are then those of the
factor F'_j = K_j F_j of these statistics, where the noise is independent from entry to entry and w'
is near its own mean, however far apart the holders' people are. F_j = K_j⁻¹ F'_j is lower
triangular again. It serves where holders meet: in the sums and in the laws. Known entries are of
columns that K_j leaves alone.

Private n
---------
Under `add_remove_one` n_j itself is released with noise and is latent. Whole numbers are relaxed to
reals: the prior of n_j is flat from k + 3/2 on, so that every whole n_j >= k + 2 has its unit of
length, and the densities above are taken at real n_j. For a sum over whole numbers this is the
midpoint rule, whose error vanishes fast once the posterior of n_j is wider than one row: harmless
from a noise scale of about 1/2 on, and below that wherever n_j is large, because then theta does
not care for a row more or less. The coordinate, first of the holder's, is ln(n_j - k - 3/2).

Gradient
--------
Derived by hand, by reverse accumulation. With dlogp = tr(M dA) and A = n F F': dlogp/dF = 2 n M F
and, where n is private, dlogp/dn = tr(M F F') plus what n does in exponents and normalisers. All
loops run along rows, in O(p³), without BLAS and without allocation.

Files: `factor` for the coordinates, `prior` and `normalisers` for what is integrated out, `holders`
and `own_laws` for its sum over holders, this one for the whole density, `c_callback` for its C
form, and `draws` for draws of what was integrated out.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS, for the
noise-aware idea; Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian
linear regression with MCMC, ICML, for the Wishart law of the statistics; Muirhead (1982), Aspects
of Multivariate Statistical Theory, doi:10.1002/9780470316559, theorem 2.1.14, for the volume; Olkin
& Tate (1961), Multivariate correlation models with mixed discrete and continuous variables, Annals
of Mathematical Statistics 32(2), for categories with numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.exact.factor import (
    BUFFERS_PER_HOLDER,
    PLAIN,
    SHARED_BUFFERS,
    factor,
    factor_adjoint,
    mapped_factor,
    private_n_slope,
    regression_of,
    regression_of_adjoint,
)
from noisewise.analyst.regression.exact.holders import log_prior, pooled_adjoint
from noisewise.analyst.regression.exact.own_laws import own_law_adjoint
from noisewise.analyst.regression.exact.prior import (
    CONSTANT,
    KEEPS_SIGMA2,
    LAM,
    OWN_LAWS,
    SCALE_FREE,
    SIZE_AT,
    SMOOTHING,
    log_precisions,
    log_precisions_adjoint,
    log_residual_variance,
)
from noisewise.analyst.regression.exact.tied import tied_rows
from noisewise.analyst.regression.triangular import add_rows, gram_entry, triangle_product


class Arrays(NamedTuple):
    """What the compiled functions need; holders in the order reference first."""

    n: FloatArray  # (J,); where n is private, rough, and for coordinates only
    laplace: BoolArray  # (J,)
    values: FloatArray  # (J, P, P)
    precision: FloatArray  # (J, P, P), 1 / scale; 0 if known or not released
    known: IntArray  # (J, P, P), codes of `categories`; known[j, 0, 0]: n is public
    relative: IntArray  # (J,), a form of `factor`; PLAIN for the reference
    partial: BoolArray  # (J, P), by row
    E0: FloatArray  # (d, d)
    B0: FloatArray  # (P, P); of the scale-free prior, its centre is in the last row
    psi_rate: FloatArray  # (k,), or (0,) if Psi is fixed
    scalars: FloatArray  # (SCALARS,), see `prior`
    sigma_nodes: FloatArray  # (2, .), of the scale-free prior: see `scale_free_integral`
    omega_nodes: FloatArray  # (3, .)
    centre: FloatArray  # (ndim,)
    scale: FloatArray  # (ndim,)
    maps: FloatArray  # (J, P, P), of `Observation`; (0, P, P) if all are the identity
    # (J, m, m), m = P (P + 1) / 2: makes the noise of all entries independent and of sd 1, where it
    # isn't independent already; (0, m, m) if no one's noise is correlated
    whiteners: FloatArray


def workspace(J: int, P: int) -> FloatArray:
    """Scratch space for one thread, enough for J holders and P by P statistics."""
    return np.zeros((SHARED_BUFFERS + BUFFERS_PER_HOLDER * J, P, P))


@compiled
def _statistics_and_noise(
    laplace: bool,
    smoothing: float,
    values: FloatArray,
    precision: FloatArray,
    F: FloatArray,
    A: FloatArray,
    force: FloatArray,
) -> Any:
    """Add n F F' to A; log density of the noise, and its derivative by each entry of n F F'."""
    P = F.shape[0]
    n = F[0, 1]
    logp = 0.0
    for a in range(P):
        for b in range(a + 1):
            total = n * gram_entry(F, a, b)
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


@compiled
def _correlated_noise(
    values: FloatArray,
    whitener: FloatArray,
    F: FloatArray,
    residual: FloatArray,
    push: FloatArray,
    force: FloatArray,
) -> Any:
    """Log density of normal noise with a covariance, and its derivative by each entry of n F F'.

    With r the residuals and W lower triangular, -|W r|² / 2 and W'W r.
    """
    P, logp, size = F.shape[0], 0.0, 0
    for a in range(P):
        for b in range(a + 1):
            residual[size] = values[a, b] - F[0, 1] * gram_entry(F, a, b)
            push[size] = 0.0
            size += 1
    for i in range(size):
        z = 0.0
        for c in range(i + 1):
            z += whitener[i, c] * residual[c]
        logp -= 0.5 * z * z
        for c in range(i + 1):
            push[c] += whitener[i, c] * z
    size = 0
    for a in range(P):
        for b in range(a + 1):
            force[a, b] = push[size]
            size += 1
    return logp


@compiled
def _add_product(
    S: FloatArray, half: float, F: FloatArray, times: float, row: FloatArray, out: FloatArray
) -> Any:
    """Add `times` S F to `out`, lower triangle from row 1 on; S counts `half` off its diagonal.

    `row` is scratch space.
    """
    P = F.shape[0]
    for a in range(1, P):
        for b in range(P):
            row[b] = times * (S[a, a] if a == b else half * (S[a, b] if b < a else S[b, a]))
        add_rows(row, F, 0, P, a + 1, out[a])


@compiled
def _to_own(map_: FloatArray, Fbar: FloatArray) -> Any:
    """From derivatives by F to those by F' = K F, in place: K⁻ᵀ Fbar, from row 1 on."""
    P = Fbar.shape[0]
    for c in range(P):
        for a in range(P - 1, max(c, 1) - 1, -1):
            total = Fbar[a, c]
            for i in range(a + 1, P):
                total -= map_[i, a] * Fbar[i, c]
            Fbar[a, c] = total / map_[a, a]


@compiled
def _mapped_adjoint(
    j: int,
    J: int,
    x: FloatArray,
    end: int,
    n: FloatArray,
    known: IntArray,
    relative: int,
    partial: BoolArray,
    scalars: FloatArray,
    centre: FloatArray,
    scale: FloatArray,
    map_: FloatArray,
    work: FloatArray,
    grad: FloatArray,
) -> Any:
    """The gradient by the coordinates of holder j, which has a map; adds to Rbar of the reference.

    What is due to the priors comes by F, what is due to the noise by F'. Returns where the holder's
    coordinates start.
    """
    base = SHARED_BUFFERS + BUFFERS_PER_HOLDER * j
    F, K, force, own = work[base], work[base + 1], work[base + 2], work[base + 4]
    W, G, Fbar, Kbar, Rbar, rows = work[3], work[4], work[5], work[6], work[7], work[8]
    R, own_Rbar, beta, betabar = work[1], work[2], rows[1], rows[2]
    P, n_j = F.shape[0], F[0, 1]
    size_at = scalars[SIZE_AT] if j == 0 else 0.0
    own_laws = scalars[OWN_LAWS] > 0.0
    for a in range(1, P):
        for c in range(a + 1):
            Fbar[a, c] = Rbar[a, c] if j == 0 else 0.0
    _add_product(G, 1.0, F, 2.0 * n_j, rows[0], Fbar)
    by_rows = force[0, 1]
    if scalars[SCALE_FREE] > 0.0 or (scalars[LAM] == 0.0 and not own_laws):
        by_rows += pooled_adjoint(j, J, work[12], Kbar, W, Fbar, work)
    if own_laws:
        own_law_adjoint(j, n, Fbar, work)
    _to_own(map_, Fbar)
    _add_product(force, 0.5, own, 2.0 * n_j, rows[0], Fbar)
    if relative != PLAIN:
        triangle_product(map_, work[SHARED_BUFFERS], R)
        regression_of(R, beta)
    own_Rbar[:] = 0.0
    betabar[:] = 0.0
    by_rows += factor_adjoint(
        x, end, known, relative, partial, size_at, centre, scale, R, beta, K, own, Fbar,
        Kbar, own_Rbar, betabar, rows[0], grad,
    )  # fmt: skip
    if relative != PLAIN:
        regression_of_adjoint(R, beta, betabar, own_Rbar)
        for a in range(1, P):
            for i in range(a, P):
                for c in range(a + 1):
                    Rbar[a, c] += map_[i, a] * own_Rbar[i, c]
    if not known[0, 0]:
        end -= 1
        for a in range(P):
            for b in range(a + 1):
                by_rows += force[a, b] * gram_entry(own, a, b)
        W[:] = 0.0  # the force is counted already
        grad[end] = private_n_slope(by_rows, tied_rows(known), G, W, F) * scale[end]
    return end


@compiled
def logp_and_gradient(
    x: FloatArray,
    grad: FloatArray,
    n: FloatArray,
    laplace: BoolArray,
    values: FloatArray,
    precision: FloatArray,
    known: IntArray,
    relative: IntArray,
    partial: BoolArray,
    E0: FloatArray,
    B0: FloatArray,
    psi_rate: FloatArray,
    scalars: FloatArray,
    sigma_nodes: FloatArray,
    omega_nodes: FloatArray,
    centre: FloatArray,
    scale: FloatArray,
    maps: FloatArray,
    whiteners: FloatArray,
    work: FloatArray,
) -> Any:
    """Log density at x, and its gradient into `grad`. -inf and a zero gradient off the support.

    The arguments between `grad` and `work` are the fields of `Arrays`; `work` comes from
    `workspace` and belongs to one thread. If the scalar `smoothing` is positive then the kinks of
    the Laplace law are rounded off in the gradient (not in the density) at that distance, in units
    of the noise scale.
    """
    J = n.size
    P = values.shape[1]
    A, W, G, Fbar, Kbar, Rbar = work[0], work[3], work[4], work[5], work[6], work[7]
    rows, Q = work[8], work[9]
    R, beta, betabar = work[SHARED_BUFFERS], rows[1], rows[2]
    logp = scalars[CONSTANT]
    # Not literals, for each of which what is called would be compiled once more.
    private: Any = np.bool_(False)
    end: Any = np.int64(0)
    mapped = maps.shape[0] > 0
    A[:] = 0.0
    grad[:] = 0.0
    for j in range(J):
        base = SHARED_BUFFERS + BUFFERS_PER_HOLDER * j
        F, K, force = work[base], work[base + 1], work[base + 2]
        size_at = scalars[SIZE_AT] if j == 0 else 0.0
        if mapped:
            end, volume = mapped_factor(
                j, x, end, n[j], known[j], values[j], relative[j], partial[j], size_at,
                centre, scale, maps[j], work,
            )  # fmt: skip
        else:
            end, volume = factor(
                x, end, n[j], known[j], values[j], relative[j], partial[j], size_at,
                centre, scale, R, beta, K, F,
            )  # fmt: skip
        logp += volume
        if not logp > -np.inf:
            return -np.inf
        if mapped:  # the noise is on the statistics of w'
            for a in range(P):
                for b in range(a + 1):
                    A[a, b] += F[0, 1] * gram_entry(F, a, b)
            F = work[base + 4]
        elif j == 0:
            regression_of(R, beta)
        noise = _statistics_and_noise(
            laplace[j], scalars[SMOOTHING], values[j], precision[j], F, work[2] if mapped else A,
            force,
        )  # fmt: skip
        if whiteners.shape[0] > 0:
            noise = _correlated_noise(
                values[j], whiteners[j], F, W.reshape(P * P), Q.reshape(P * P), force
            )
        logp += noise
        private = private or not known[j, 0, 0]
    own_laws = scalars[OWN_LAWS] > 0.0
    extra = work[20].reshape(P * P)
    holders_end = end
    end += scalars[SIZE_AT] > 0.0
    for i in range(end, x.size):
        extra[i - end] = centre[i] + scale[i] * x[i]
    first_psi = 1 if scalars[KEEPS_SIGMA2] > 0.0 else 0
    has_psi = psi_rate.size > 0 and not own_laws
    if first_psi > 0:
        extra[0] += log_residual_variance(R)
    if has_psi:
        log_precisions(R, psi_rate, Q, Q[psi_rate.size])
        for c in range(psi_rate.size):
            extra[first_psi + c] -= Q[psi_rate.size, c]
    logp += log_prior(
        n, private, psi_rate, E0, B0, scalars, sigma_nodes, omega_nodes, extra, grad[end:], work
    )
    if not (logp > -np.inf and logp < np.inf):
        grad[:] = 0.0
        return -np.inf
    pooled = scalars[SCALE_FREE] > 0.0 or (scalars[LAM] == 0.0 and not own_laws)
    Rbar[:] = 0.0
    if first_psi > 0:
        Rbar[P - 1, P - 1] += 2.0 * grad[end] / R[P - 1, P - 1]
    if has_psi:
        bar = grad[end + first_psi :]
        for c in range(psi_rate.size):
            bar[c] = -bar[c]
        log_precisions_adjoint(Q, psi_rate, Q[psi_rate.size], bar, W, Rbar)
        for c in range(psi_rate.size):
            bar[c] = -bar[c]
    for i in range(end, x.size):
        grad[i] *= scale[i]

    # Backwards, the reference (j = 0) last: the others add to its adjoint Rbar.
    end = holders_end
    betabar[:] = 0.0
    for j in range(J - 1, -1, -1):
        base = SHARED_BUFFERS + BUFFERS_PER_HOLDER * j
        F, K, force = work[base], work[base + 1], work[base + 2]
        n_j = F[0, 1]
        size_at = scalars[SIZE_AT] if j == 0 else 0.0
        for a in range(1, P):
            for b in range(a + 1):
                end -= not known[j, a, b]
        if mapped:
            end = _mapped_adjoint(
                j, J, x, end, n, known[j], relative[j], partial[j], scalars, centre, scale,
                maps[j], work, grad,
            )  # fmt: skip
            continue
        if j == 0:
            regression_of_adjoint(R, beta, betabar, Rbar)
        for a in range(P):
            for b in range(a + 1):
                Fbar[a, b] = Rbar[a, b] if j == 0 else 0.0
                Kbar[a, b] = G[a, b] + (1.0 if a == b else 0.5) * force[a, b]
        _add_product(Kbar, 1.0, F, 2.0 * n_j, rows[0], Fbar)
        by_rows = force[0, 1]
        if pooled:
            by_rows += pooled_adjoint(j, J, work[12], Kbar, W, Fbar, work)
        if own_laws:
            own_law_adjoint(j, n, Fbar, work)
        by_known = factor_adjoint(
            x, end, known[j], relative[j], partial[j], size_at, centre, scale,
            R, beta, K, F, Fbar, Kbar, Rbar, betabar, rows[0], grad,
        )  # fmt: skip
        if not known[j, 0, 0]:
            end -= 1
            tied = tied_rows(known[j])
            slope = private_n_slope(by_rows + by_known, tied, G, force, F)
            grad[end] = slope * scale[end]
    return logp
