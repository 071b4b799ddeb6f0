"""The moves of `normal_x` that change the latent second moments of the covariates, compiled.

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
"""

from __future__ import annotations

import math

from noisewise.analyst.samplers.gibbs_linalg import (
    cholesky,
    copy,
    quadratic_form,
    solve_lower,
    solve_lower_transposed,
)
from noisewise.analyst.samplers.gibbs_random import chi, fill_normal, uniform
from noisewise.analyst.samplers.given_s import compiled, log_fit


@compiled
def fill_statistics(n, mean, L, S):  # type: ignore[no-untyped-def]
    """S from n, x̄ and the factor of C, in both triangles."""
    S[0, 0] = n
    for a in range(mean.size):
        S[a + 1, 0] = n * mean[a]
        S[0, a + 1] = S[a + 1, 0]
        for b in range(a + 1):
            value = n * mean[a] * mean[b]
            for c in range(b + 1):
                value += L[a, c] * L[b, c]
            S[a + 1, b + 1] = value
            S[b + 1, a + 1] = value


@compiled
def fill_covariance(w, S, sigma2, M, size):  # type: ignore[no-untyped-def]
    """M <- factor of sigma2 w S w + I; returns ln |M|^(1/2), or inf if there is none."""
    for a in range(size):
        for b in range(a + 1):
            M[a, b] = sigma2 * w[a] * w[b] * S[a, b]
        M[a, a] += 1.0
    if not cholesky(M, size):
        return math.inf
    value = 0.0
    for a in range(size):
        value += math.log(M[a, a])
    return value


@compiled
def log_likelihood(holders, j, S, theta, sigma2, work):  # type: ignore[no-untyped-def]
    """ln p(ẑ_j, û_j | S, theta, sigma2), from nothing."""
    d = theta.size
    M, g, r = work.squares[1], work.vectors[2], work.vectors[3]
    log_root = fill_covariance(holders.w[j], S, sigma2, M, d)
    if log_root == math.inf:
        return -math.inf
    for a in range(d):
        g[a] = 0.0
        for b in range(d):
            g[a] += S[a, b] * theta[b]
    quadratic = 0.0
    for a in range(d):
        quadratic += theta[a] * g[a]
        g[a] *= holders.w[j, a]
        r[a] = holders.z[j, a]
    solve_lower(M, g, d)
    solve_lower(M, r, d)
    return log_fit(holders, j, sigma2, quadratic, log_root, g, r, d)


@compiled
def log_noise(holders, j, S, size):  # type: ignore[no-untyped-def]
    """ln p(Ŝ_j | S): each entry of the upper triangle once."""
    value = 0.0
    for a in range(size):
        for b in range(a + 1):
            e = holders.S[j, a, b] - S[a, b]
            value -= 0.5 * holders.S_precision[j, a, b] * e * e
    return value


@compiled
def trace_of_scatter(W, L, size):  # type: ignore[no-untyped-def]
    """tr(T⁻¹ C) = |W L|² for W the inverse of T's factor; both lower triangular."""
    total = 0.0
    for a in range(size):
        for b in range(a + 1):
            value = 0.0
            for c in range(b, a + 1):
                value += W[a, c] * L[c, b]
            total += value * value
    return total


@compiled
def move_scatter(  # type: ignore[no-untyped-def]
    rng, holders, j, mean, L, S, theta, sigma2, W, alpha, current, work
):  # fmt: skip
    """Move L and S in place; returns ln p(ẑ, û, Ŝ | S) and 1 if accepted. `current`: it before."""
    k, n = mean.size, holders.n[j]
    B, new, S_new, w = work.squares[2], work.squares[3], work.squares[4], work.vectors[4]
    root = 1.0 / math.sqrt(alpha)
    square, log_det = 0.0, 0.0
    for a in range(k):
        fill_normal(rng, B[a], a)
        B[a, a] = chi(rng, alpha - a)
        for b in range(a + 1):
            B[a, b] *= root
            square += B[a, b] * B[a, b]
        log_det += 2.0 * math.log(B[a, a])
    inverse_square = 0.0
    for c in range(k):  # column c of B⁻¹
        for a in range(c, k):
            value = 1.0 if a == c else 0.0
            for b in range(c, a):
                value -= B[a, b] * w[b]
            w[a] = value / B[a, a]
            inverse_square += w[a] * w[a]
    for a in range(k):
        for b in range(a + 1):
            value = 0.0
            for c in range(b, a + 1):
                value += L[a, c] * B[c, b]
            new[a, b] = value
    ratio = 0.5 * alpha * (square - inverse_square) - (alpha - 0.5 * (k + 1)) * log_det
    ratio += 0.5 * (n - k - 2.0) * log_det
    ratio -= 0.5 * (trace_of_scatter(W, new, k) - trace_of_scatter(W, L, k))
    fill_statistics(n, mean, new, S_new)
    proposed = log_noise(holders, j, S_new, k + 1)
    proposed += log_likelihood(holders, j, S_new, theta, sigma2, work)
    if math.log(uniform(rng)) < ratio + proposed - current:
        for a in range(k):
            for b in range(a + 1):
                L[a, b] = new[a, b]
        fill_statistics(n, mean, L, S)
        return proposed, 1
    return current, 0


@compiled
def move_mean(  # type: ignore[no-untyped-def]
    rng, holders, j, mean, L, S, theta, sigma2, mu, T_inverse, step, current, work
):  # fmt: skip
    """Move the mean and S in place; returns as `move_scatter`."""
    k, n = mean.size, holders.n[j]
    Q, S_new = work.squares[2], work.squares[4]
    new, away = work.vectors[4][:k], work.vectors[5]
    for a in range(k):
        for b in range(a + 1):
            Q[a, b] = n * T_inverse[a, b]
        Q[a, a] += n * n * holders.S_precision[j, 0, a + 1]
    if not cholesky(Q, k):
        return current, 0
    fill_normal(rng, new, k)
    solve_lower_transposed(Q, new, k)
    for a in range(k):
        new[a] = mean[a] + step * new[a]
        away[a] = mean[a] - mu[a]
    ratio = 0.5 * n * quadratic_form(away, T_inverse, k)
    for a in range(k):
        away[a] = new[a] - mu[a]
    ratio -= 0.5 * n * quadratic_form(away, T_inverse, k)
    fill_statistics(n, new, L, S_new)
    proposed = log_noise(holders, j, S_new, k + 1)
    proposed += log_likelihood(holders, j, S_new, theta, sigma2, work)
    if math.log(uniform(rng)) < ratio + proposed - current:
        copy(new, mean)
        fill_statistics(n, mean, L, S)
        return proposed, 1
    return current, 0


@compiled
def fill_regression_terms(holders, j, S, sigma2, work):  # type: ignore[no-untyped-def]
    """H_j, r_j and ln |M_j|^(1/2) of `given_s`; False if M cannot be factored."""
    d = S.shape[0]
    M, H, r = work.squares[1], work.H[j], work.r[j]
    log_root = fill_covariance(holders.w[j], S, sigma2, M, d)
    if log_root == math.inf:
        return False
    for a in range(d):
        r[a] = holders.z[j, a]
        for b in range(d):
            H[a, b] = holders.w[j, a] * S[a, b]
    solve_lower(M, r, d)
    for a in range(d):
        for c in range(a):
            value = M[a, c]
            for b in range(d):
                H[a, b] -= value * H[c, b]
        inverse = 1.0 / M[a, a]
        for b in range(d):
            H[a, b] *= inverse
    work.log_root[j] = log_root
    return True


@compiled
def log_likelihood_again(holders, j, S, theta, sigma2, work):  # type: ignore[no-untyped-def]
    """`log_likelihood` where `fill_regression_terms` has been called with the same arguments."""
    d = theta.size
    g = work.vectors[2]
    for a in range(d):
        g[a] = 0.0
        for b in range(d):
            g[a] += work.H[j, a, b] * theta[b]
    quadratic = quadratic_form(theta, S, d)
    return log_fit(holders, j, sigma2, quadratic, work.log_root[j], g, work.r[j], d)
