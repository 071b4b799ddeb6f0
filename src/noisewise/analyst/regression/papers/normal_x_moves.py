"""The moves of `normal_x`, compiled.

A holder's statistics are the mean x̄ of its covariates and the factor L of their scatter matrix
C = LL' about it. Given mu and T they are independent, x̄ ~ N(mu, T/n) and C ~ Wishart(T, n - 1), and

    S = [[n, n x̄'], [n x̄, C + n x̄x̄']].

**Scatter.** C' ~ Wishart(C/α, α) is L' = L B with B lower triangular, B_ii ~ chi(α - i)/√α and
N(0, 1/α) below, i = 0, ...: a factor comes free, |C'|/|C| = Π B_ii², tr(C⁻¹C') = |B|² and
tr(C'⁻¹C) = |B⁻¹|², so that the ratio of proposals

    (|C|/|C'|)^(α - (k+1)/2) exp(α (tr C⁻¹C' - tr C'⁻¹C) / 2)

needs no matrix but B. The prior's factor is (|C'|/|C|)^((n-k-2)/2) exp(-tr T⁻¹(C' - C)/2).

**Mean.** A random walk shaped like what the prior and the released sums alone leave of x̄:
precision n T⁻¹ + n²/(noise variance). It depends on nothing that the move changes.

**theta.** Equation (12) needs a holder's H'H and H'r (`given_s`), H = L⁻¹ w S with M = LL' =
sigma2 w S w + I. From w S w = (M - I)/sigma2,

    H   = (L' - L⁻¹) / (sigma2 w)                        an upper and a lower triangle
    H'H = S/sigma2 + (M⁻¹ - 2 I) / (sigma2² w w')

so that L⁻¹ is all the work: a third of that of H. Where there is so much noise on ẑ that M is
almost I, or some entry was not released (w = 0), H is made as it is defined.

What depends on the state only is kept from one move to the next (`Work`): C, S, L, r = L⁻¹ w ẑ
and the logarithms of the densities. A proposal has its own, which replace them if it is accepted.
"""

from __future__ import annotations

import math

from noisewise.analyst.random_numbers import fill_bartlett, fill_normal, uniform
from noisewise.analyst.regression.exact.triangular import mirror
from noisewise.analyst.regression.papers.gibbs_linalg import copy, product
from noisewise.analyst.regression.papers.gibbs_triangular import (
    cholesky,
    copy_lower,
    gram_of_upper,
    invert_transposed,
    multiply_lower,
    solve_lower,
    solve_lower_transposed,
    solve_two,
    square_of_lower,
)
from noisewise.analyst.regression.papers.given_s import (
    add_holder,
    finish_proposal,
    log_prior,
    log_u,
    propose_sigma2,
    start_proposal,
)
from noisewise.analyst.regression.papers.given_s_compiled import compiled

# Columns of `Work.log`: ln p(Ŝ_j | S), ln |M|^(1/2), ln p(û_j | ẑ_j, ...) and ln p(ẑ_j, û_j | ...).
NOISE, ROOT, U, FIT = 0, 1, 2, 3
# Below it, sigma2 w S w is lost in sigma2 w S w + I to more than half of the digits.
_SMALL = 1e-8


# --- densities ------------------------------------------------------------------------------------


@compiled
def fill_statistics(n, mean, C, S):  # type: ignore[no-untyped-def]
    """S, in both triangles, from n, x̄ and the lower triangle of C."""
    S[0, 0] = n
    for a in range(mean.size):
        S[a + 1, 0] = n * mean[a]
        S[0, a + 1] = S[a + 1, 0]
        for b in range(a + 1):
            value = C[a, b] + S[a + 1, 0] * mean[b]
            S[a + 1, b + 1] = value
            S[b + 1, a + 1] = value


@compiled
def log_diagonal(L, size):  # type: ignore[no-untyped-def]
    """ln of the product of a diagonal, with a logarithm for eight entries."""
    total, product = 0.0, 1.0
    for a in range(size):
        product *= L[a, a]
        if a % 8 == 7:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@compiled
def _fill_image(holders, j, S, theta, g):  # type: ignore[no-untyped-def]
    """g <- w S theta; returns theta'S theta."""
    quadratic = 0.0
    for a in range(theta.size):
        value = 0.0
        for b in range(theta.size):
            value += S[a, b] * theta[b]
        quadratic += theta[a] * value
        g[a] = holders.w[j, a] * value
    return quadratic


@compiled
def _fill_fit(holders, j, sigma2, quadratic, g, r, log):  # type: ignore[no-untyped-def]
    """The last two columns of `log` from g = H theta; returns the last."""
    log[U] = log_u(holders, j, sigma2, quadratic, g, r, r.size)
    value = log[U] - log[ROOT]
    for i in range(r.size):
        e = r[i] - g[i]
        value -= 0.5 * e * e
    log[FIT] = value
    return value


@compiled
def log_likelihood(holders, j, S, theta, sigma2, M, r, g, log):  # type: ignore[no-untyped-def]
    """ln p(ẑ_j, û_j | S, theta, sigma2); leaves L in M, and r and the parts in `log`."""
    d, w = theta.size, holders.w[j]
    for a in range(d):
        scale = sigma2 * w[a]
        for b in range(a + 1):
            M[a, b] = scale * w[b] * S[a, b]
        M[a, a] += 1.0
        r[a] = holders.z[j, a]
    if not cholesky(M, d):
        log[FIT] = -math.inf
        return -math.inf
    quadratic = _fill_image(holders, j, S, theta, g)
    solve_two(M, g, r, d)
    log[ROOT] = log_diagonal(M, d)
    return _fill_fit(holders, j, sigma2, quadratic, g, r, log)


@compiled
def log_noise(holders, j, S, log):  # type: ignore[no-untyped-def]
    """ln p(Ŝ_j | S), each entry of a triangle once; into `log` too."""
    value = 0.0
    for a in range(S.shape[0]):
        for b in range(a + 1):
            e = holders.S[j, a, b] - S[a, b]
            value -= 0.5 * holders.S_precision[j, a, b] * e * e
    log[NOISE] = value
    return value


@compiled
def start_holder(holders, j, mean, L, theta, sigma2, work):  # type: ignore[no-untyped-def]
    """Everything that is kept of holder j, from the state."""
    square_of_lower(L, work.C[j], mean.size)
    fill_statistics(holders.n[j], mean, work.C[j], work.S[j])
    log_noise(holders, j, work.S[j], work.log[j])
    log_likelihood(
        holders, j, work.S[j], theta, sigma2, work.M[j], work.r[j], work.vectors[2], work.log[j]
    )


# --- moves of a holder's statistics ---------------------------------------------------------------


@compiled
def _accept_statistics(rng, holders, j, S, theta, sigma2, ratio, work):  # type: ignore[no-untyped-def]
    """Whether S, proposed with `ratio` of all that isn't data, replaces that of holder j; does so.

    The proposal's M, r and densities are in those of the next proposal of sigma2.
    """
    d, log, log_new = theta.size, work.log[j], work.log_new[j]
    M, r = work.M_new[j], work.r_new[j]
    ratio += log_noise(holders, j, S, log_new) - log[NOISE]
    ratio += log_likelihood(holders, j, S, theta, sigma2, M, r, work.vectors[2], log_new) - log[FIT]
    if not math.log(uniform(rng)) < ratio:
        return 0
    copy(S, work.S[j])
    copy_lower(M, work.M[j], d)
    copy(r, work.r[j])
    copy(log_new, log)
    return 1


@compiled
def move_scatter(  # type: ignore[no-untyped-def]
    rng, holders, j, mean, L, theta, sigma2, T_inverse, alpha, work
):  # fmt: skip
    """Move L, and what is kept of holder j; returns 1 if accepted."""
    k, n = mean.size, holders.n[j]
    B, new, S, C = work.squares[2], work.squares[3], work.H[j], work.squares[4]
    root = 1.0 / math.sqrt(alpha)
    fill_bartlett(rng, B, alpha, -1.0, k, new.reshape(-1))
    square = 0.0
    for a in range(k):
        for b in range(a + 1):
            B[a, b] *= root
        square += product(B[a], B[a], a + 1)
    mirror(B, k)
    log_det = 2.0 * log_diagonal(B, k)
    invert_transposed(B, new, k)
    for a in range(k):
        square -= product(new[a, a:], new[a, a:], k - a)
    multiply_lower(L, B, new, k)
    square_of_lower(new, C, k)
    trace = 0.0  # of T⁻¹(C' - C)
    for a in range(k):
        value = -0.5 * T_inverse[a, a] * (C[a, a] - work.C[j, a, a])
        for b in range(a + 1):
            value += T_inverse[a, b] * (C[a, b] - work.C[j, a, b])
        trace += 2.0 * value
    ratio = 0.5 * alpha * square - (alpha - 0.5 * (k + 1)) * log_det
    ratio += 0.5 * (n - k - 2.0) * log_det - 0.5 * trace
    fill_statistics(n, mean, C, S)
    if not _accept_statistics(rng, holders, j, S, theta, sigma2, ratio, work):
        return 0
    copy_lower(new, L, k)
    copy_lower(C, work.C[j], k)
    return 1


@compiled
def shape_of_mean(holders, j, T_inverse, Q):  # type: ignore[no-untyped-def]
    """Factor of the precision of steps of holder j's mean into Q; False if it has none.

    Q is left as it is where the holder before has the same n and the same noise.
    """
    n, precision = holders.n[j], holders.S_precision[j, 0, 1:]
    k = precision.size
    if j > 0:
        before, same = holders.S_precision[j - 1, 0, 1:], n == holders.n[j - 1]
        for a in range(k):
            same &= precision[a] == before[a]
        if same:
            return Q[0, 0] > 0.0
    for a in range(k):
        for b in range(a + 1):
            Q[a, b] = n * T_inverse[a, b]
        Q[a, a] += n * n * precision[a]
    if not cholesky(Q, k):
        Q[0, 0] = 0.0
        return False
    return True


@compiled
def move_mean(  # type: ignore[no-untyped-def]
    rng, holders, j, mean, theta, sigma2, mu, T_inverse, step, Q, work
):  # fmt: skip
    """Move the mean by a step of shape Q, and what is kept of holder j; returns 1 if accepted."""
    k, n = mean.size, holders.n[j]
    S = work.H[j]
    new, away = work.vectors[4][:k], work.vectors[5]
    fill_normal(rng, new, k)
    solve_lower_transposed(Q, new, k)
    ratio = 0.0  # from the difference of two quadratic forms, the product of sum and difference
    for a in range(k):
        new[a] = mean[a] + step * new[a]
        away[a] = new[a] - mean[a]
    for a in range(k):
        value = 0.0
        for b in range(k):
            value += T_inverse[a, b] * away[b]
        ratio -= 0.5 * n * value * (new[a] + mean[a] - 2.0 * mu[a])
    fill_statistics(n, new, work.C[j], S)
    if not _accept_statistics(rng, holders, j, S, theta, sigma2, ratio, work):
        return 0
    copy(new, mean)
    return 1


# --- moves of the regression ----------------------------------------------------------------------


@compiled
def _add_by_definition(w, S, M, r, H, Q, m):  # type: ignore[no-untyped-def]
    d = r.size
    for a in range(d):
        for b in range(d):
            H[a, b] = w[a] * S[a, b]
        for c in range(a):
            value = M[a, c]
            for b in range(d):
                H[a, b] -= value * H[c, b]
        inverse = 1.0 / M[a, a]
        for b in range(d):
            H[a, b] *= inverse
    add_holder(H, r, Q, m)


@compiled
def add_statistics(w, S, sigma2, M, r, V, G, x, Q, m):  # type: ignore[no-untyped-def]
    """Add H'H and H'r to the precision Q (lower triangle) and the shift m; V <- L⁻ᵀ.

    G and x are scratch.
    """
    d = r.size
    invert_transposed(M, V, d)
    for a in range(d):
        if sigma2 * w[a] * w[a] * S[a, a] < _SMALL:
            _add_by_definition(w, S, M, r, G, Q, m)
            return
    for a in range(d):  # H'r = S w L⁻ᵀ r
        x[a] = w[a] * product(V[a, a:], r[a:], d - a)
    gram_of_upper(V, G, d)
    inverse = 1.0 / sigma2
    for a in range(d):
        value = 0.0
        for b in range(d):
            value += S[a, b] * x[b]
        m[a] += value
    for a in range(d):
        # |column a of H|²; in the sum of the docstring the diagonal cancels twice, here once.
        square = (M[a, a] - V[a, a]) ** 2
        square += product(M[a], M[a], a) + product(V[a, a + 1 :], V[a, a + 1 :], d - a - 1)
        x[a] = inverse / w[a]
        for b in range(a):
            Q[a, b] += inverse * S[a, b] + x[a] * x[b] * G[a, b]
        Q[a, a] += square * x[a] * x[a]


@compiled
def move_theta(rng, holders, prior, theta, sigma2, beta, work):  # type: ignore[no-untyped-def]
    """Move theta in place; returns 1 if accepted."""
    d, J = theta.size, work.r.shape[0]
    Q, G, V = work.squares[0], work.squares[1], work.H
    m, new, g, x = work.vectors[0], work.vectors[1][:d], work.vectors[2], work.vectors[3]
    start_proposal(prior, sigma2, Q, m)
    for j in range(J):
        add_statistics(holders.w[j], work.S[j], sigma2, work.M[j], work.r[j], V[j], G, x, Q, m)
    if not finish_proposal(rng, Q, m, theta, beta, new):
        return 0
    ratio = 0.0
    for j in range(J):
        log = work.log_new[j]
        quadratic = _fill_image(holders, j, work.S[j], new, g)
        solve_lower(work.M[j], g, d)
        log[ROOT] = work.log[j, ROOT]
        _fill_fit(holders, j, sigma2, quadratic, g, work.r[j], log)
        ratio += log[U] - work.log[j, U]
    if not math.log(uniform(rng)) < ratio:
        return 0
    copy(new, theta)
    for j in range(J):
        work.log[j, U], work.log[j, FIT] = work.log_new[j, U], work.log_new[j, FIT]
    return 1


@compiled
def move_sigma2(rng, holders, prior, theta, sigma2, step, work):  # type: ignore[no-untyped-def]
    """Returns the next sigma2, and 1 if it was proposed here."""
    d, J = theta.size, work.r.shape[0]
    new = propose_sigma2(rng, sigma2, step)
    ratio = log_prior(theta, new, prior, work.vectors[0], d)
    ratio -= log_prior(theta, sigma2, prior, work.vectors[0], d)
    for j in range(J):
        ratio -= work.log[j, FIT]
        ratio += log_likelihood(
            holders, j, work.S[j], theta, new, work.M_new[j], work.r_new[j], work.vectors[2],
            work.log_new[j],
        )  # fmt: skip
    if not math.log(uniform(rng)) < ratio:
        return sigma2, 0
    for j in range(J):
        copy_lower(work.M_new[j], work.M[j], d)
        copy(work.r_new[j], work.r[j])
        for i in (ROOT, U, FIT):
            work.log[j, i] = work.log_new[j, i]
    return new, 1
