"""The regression given the covariates' second moments, for `normal_x` and `fixed_s`; compiled.

S_j is the Gram matrix of holder j's design (the intercept is its first column). With y'y released
too (Alparslan, Yıldırım & Birbil 2023 do without it, and then sigma2 is hardly identified by one
holder), the released pair has, given S_j, theta and sigma2,

    mean        (S theta, theta'S theta + n sigma2)
    covariance  [[sigma2 S + D, 2 sigma2 S theta], [., 4 sigma2 theta'S theta + 2 n sigma2² + v]]

where D (diagonal) and v are the variances of the noise. ẑ = X'y + noise is normal exactly, their
proposition 3.1. û = y'y + noise is not: its chi-squared part is taken for normal with the same two
moments. **That is the one approximation**, and gone where y'y was not released. Where noise is
small enough for it to matter at all, it widens the posterior of sigma2 by 15% at n = 30, 10% at 60
and 3% at 200, that of theta by 8%, 3% and 1% (measured beside `exact`).

For any D, and for entries that were not released, work with w ẑ, w = 1 / noise sd or 0: its
covariance is M = sigma2 w S w + I.

With M = LL', H = L⁻¹ w S and r = L⁻¹ w ẑ are all that is needed:

    theta | ẑ         precision H'H + prior, shift H'r + prior         (their equation 12)
    û | ẑ, theta      normal; mean theta'S theta + n sigma2 + 2 sigma2 (H theta)'(r - H theta),
                      variance v + 4 sigma2 theta'S theta + 2 n sigma2² - 4 sigma2² |H theta|²

theta moves by a draw from (12), accepted with the ratio of p(û | ẑ, theta). Where û says much that
ẑ doesn't, such draws are hardly ever accepted. They are then made smaller: theta' = m + √(1 - β²)
(theta - m) + β (draw - m), which keeps (12) for any β in (0, 1] (preconditioned Crank-Nicolson).
β = 1 is the paper's draw. ln sigma2 moves by a random walk. Steps adapt during warm-up only.

References
----------
Alparslan, Yıldırım & Birbil (2023), Differentially private distributed Bayesian linear regression
with MCMC, ICML, arXiv:2301.13778, sections 3.1 and 4. Cotter, Roberts, Stuart & White (2013), MCMC
methods for functions, Statistical Science 28(3), doi:10.1214/13-STS421.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.random_numbers import fill_normal, normal, uniform
from noisewise.analyst.regression.observation import Observation, named
from noisewise.analyst.regression.papers.gibbs_linalg import copy, quadratic_form
from noisewise.analyst.regression.papers.gibbs_triangular import (
    cholesky,
    solve_lower,
    solve_lower_transposed,
)
from noisewise.analyst.regression.papers.given_s_compiled import compiled
from noisewise.core.errors import RequestError

TARGET = 0.25  # acceptance rate that steps adapt to
FEWEST_ROWS = 30  # for y'y to be normal


class Holders(NamedTuple):
    """The observations, in the form the compiled functions take."""

    n: FloatArray  # (J,)
    S: FloatArray  # (J, d, d), released
    S_precision: FloatArray  # (J, d, d), of its noise; 0 if not released or known ([0, 0] is n)
    w: FloatArray  # (J, d), 1 / noise sd of ẑ; 0 if not released
    z: FloatArray  # (J, d), w ẑ
    u: FloatArray  # (J,), û
    u_variance: FloatArray  # (J,), of its noise
    has_u: NDArray[np.bool_]  # (J,), whether y'y was released


def prepare_holders(observations: Sequence[Observation], method: str) -> Holders:
    """Check that the model fits the observations, and put them into arrays."""
    if not observations:
        raise RequestError("give the observation of at least one holder")
    k = observations[0].k
    for name, seen in named(observations):
        where = f"method: {method}: {name}"
        if seen.k != k:
            raise RequestError(
                f"{where} covers {seen.k} covariates, the first {k}: all must cover the same"
            )
        if seen.family != "gaussian":
            raise RequestError(
                f"{where} added Laplace noise, and the method needs Gaussian noise; use exact"
            )
        if seen.n_is_private:
            raise RequestError(
                f"{where} has a private number of rows, and the method needs it public; use exact"
            )
        with_u = bool(np.isfinite(seen.scale[-1, -1]))
        fewest = max(FEWEST_ROWS, 4 * (k + 2)) if with_u else k + 2
        if seen.n < fewest:
            raise RequestError(
                f"{where} has n = {seen.n} rows, too few for {k} covariates: the method needs at "
                f"least {fewest}" + (", because it takes y'y for normal" if with_u else "")
                + "; use exact, or leave it out"
            )  # fmt: skip
        if (seen.scale[:-1, -1] == 0).any():
            raise RequestError(
                f"{where} publishes sums of y without noise, and the method needs noise on them; "
                "use exact"
            )
    J, d = len(observations), k + 1
    values = np.stack([seen.values for seen in observations])
    scale = np.stack([seen.scale for seen in observations])
    precision = np.where(scale > 0, 1.0 / np.where(scale > 0, scale, 1.0) ** 2, 0.0)
    w = np.ascontiguousarray(np.sqrt(precision[:, :d, d]))
    has_u = np.isfinite(scale[:, d, d])
    return Holders(
        n=np.array([float(seen.n) for seen in observations]),
        S=np.ascontiguousarray(values[:, :d, :d]),
        S_precision=np.ascontiguousarray(precision[:, :d, :d]),
        w=w,
        z=w * values[:, :d, d].reshape(J, d),
        u=np.array(values[:, d, d]),
        u_variance=np.where(has_u, scale[:, d, d], 0.0) ** 2,
        has_u=has_u,
    )


# --- densities ------------------------------------------------------------------------------------


@compiled
def log_u(holders, j, sigma2, quadratic, g, r, size):  # type: ignore[no-untyped-def]
    """ln p(û_j | ẑ_j, theta, sigma2), 0 if not released; quadratic = theta'S theta, g = H theta."""
    if not holders.has_u[j]:
        return 0.0
    gg, ge = 0.0, 0.0
    for i in range(size):
        gg += g[i] * g[i]
        ge += g[i] * (r[i] - g[i])
    n = holders.n[j]
    mean = quadratic + sigma2 * (n + 2.0 * ge)
    variance = holders.u_variance[j] + sigma2 * (
        4.0 * max(quadratic - sigma2 * gg, 0.0) + 2.0 * n * sigma2
    )
    away = holders.u[j] - mean
    return -0.5 * math.log(variance) - 0.5 * away * away / variance


@compiled
def log_fit(holders, j, sigma2, quadratic, log_root, g, r, size):  # type: ignore[no-untyped-def]
    """ln p(ẑ_j, û_j | S_j, theta, sigma2) but for a constant; log_root = ln |M|^(1/2)."""
    value = log_u(holders, j, sigma2, quadratic, g, r, size) - log_root
    for i in range(size):
        e = r[i] - g[i]
        value -= 0.5 * e * e
    return value


@compiled
def log_prior(theta, sigma2, prior, difference, size):  # type: ignore[no-untyped-def]
    """ln p(theta, ln sigma2) but for what doesn't depend on sigma2."""
    value = -prior.a0 * math.log(sigma2) - prior.b0 / sigma2
    if prior.independent:
        return value
    for a in range(size):
        difference[a] = theta[a] - prior.mu0[a]
    square = quadratic_form(difference, prior.precision, size)
    return value - 0.5 * size * math.log(sigma2) - 0.5 * square / sigma2


# --- moves ----------------------------------------------------------------------------------------


@compiled
def start_proposal(prior, sigma2, Q, m):  # type: ignore[no-untyped-def]
    """Precision Q (lower triangle) and shift m of equation (12) without any holder."""
    d = prior.mu0.size
    weight = 1.0 if prior.independent else 1.0 / sigma2
    for a in range(d):
        m[a] = weight * prior.bordered[a, d]
        for b in range(a + 1):
            Q[a, b] = weight * prior.precision[a, b]


@compiled
def add_holder(H, r, Q, m):  # type: ignore[no-untyped-def]
    """A holder's part of the precision and the shift: H'H and H'r."""
    d = r.size
    for i in range(d):
        value = r[i]
        for a in range(d):
            h = H[i, a]
            m[a] += h * value
            for b in range(a + 1):
                Q[a, b] += h * H[i, b]


@compiled
def finish_proposal(rng, Q, m, theta, beta, new):  # type: ignore[no-untyped-def]
    """A draw from equation (12), or a part of the way there (beta < 1); False if it has none.

    With precision Q = LL' and shift m that is L⁻ᵀ(L⁻¹m + a normal vector).
    """
    d = theta.size
    if not cholesky(Q, d):
        return False
    solve_lower(Q, m, d)
    fill_normal(rng, new, d)
    keep = math.sqrt(max(1.0 - beta * beta, 0.0))
    for a in range(d):
        new[a] = (1.0 - keep) * m[a] + beta * new[a]
    solve_lower_transposed(Q, new, d)
    for a in range(d):
        new[a] += keep * theta[a]
    return True


@compiled
def propose_theta(rng, H, r, sigma2, prior, theta, beta, Q, m, new):  # type: ignore[no-untyped-def]
    """`finish_proposal` with H and r of all holders given."""
    start_proposal(prior, sigma2, Q, m)
    for j in range(r.shape[0]):
        add_holder(H[j], r[j], Q, m)
    return finish_proposal(rng, Q, m, theta, beta, new)


@compiled
def _all_log_u(holders, S, H, r, sigma2, theta, g):  # type: ignore[no-untyped-def]
    J, d = r.shape
    value = 0.0
    for j in range(J):
        if holders.has_u[j]:
            for i in range(d):
                g[i] = 0.0
                for a in range(d):
                    g[i] += H[j, i, a] * theta[a]
            value += log_u(holders, j, sigma2, quadratic_form(theta, S[j], d), g, r[j], d)
    return value


@compiled
def move_theta(rng, holders, S, H, r, sigma2, prior, theta, beta, work):  # type: ignore[no-untyped-def]
    """Move theta in place; returns 1 if accepted."""
    Q, m, g = work.squares[0], work.vectors[0], work.vectors[2]
    new = work.vectors[1][: theta.size]
    if not propose_theta(rng, H, r, sigma2, prior, theta, beta, Q, m, new):
        return 0
    ratio = _all_log_u(holders, S, H, r, sigma2, new, g)
    ratio -= _all_log_u(holders, S, H, r, sigma2, theta, g)
    if math.log(uniform(rng)) < ratio:
        copy(new, theta)
        return 1
    return 0


@compiled
def propose_sigma2(rng, sigma2, step):  # type: ignore[no-untyped-def]
    """A random walk in the logarithm, kept away from overflow."""
    return math.exp(min(max(math.log(sigma2) + step * normal(rng), -600.0), 600.0))


@compiled
def adapted(log_step, accepted, t, target):  # type: ignore[no-untyped-def]
    """The logarithm of a step after iteration t of warm-up (Robbins-Monro)."""
    return log_step + 2.0 * (accepted - target) / (t + 1.0) ** 0.6


@compiled
def adapt_steps(log_steps, accepted, t):  # type: ignore[no-untyped-def]
    """Adapt ln β of theta, which is at most 0, and the step of ln sigma2, in place."""
    log_steps[0] = min(adapted(log_steps[0], accepted[0], t, TARGET), 0.0)
    log_steps[1] = adapted(log_steps[1], accepted[1], t, TARGET)


@compiled
def store_draw(row, theta, sigma2, accepted, store):  # type: ignore[no-untyped-def]
    """Put one draw into a row of the store."""
    copy(theta, store.theta[row])
    store.sigma2[row] = sigma2
    copy(accepted, store.accepted[row])
