"""Moves along orbits, so that Gibbs sampling also mixes where noise hides the statistics.

**The problem.** theta is drawn given the latent A, and A is drawn given theta and the release. If
the noise variance is a thousand times the sampling variance of A, the second step moves A by a
thousandth of the posterior's variance only: some 1000 iterations for one effective draw.

**The move.** Let Q be a linear map of the columns w = (1, x, y) that keeps the constant. It takes
rows to rows of the same model with other parameters phi = (theta, sigma2, mu, T), and A to QAQ'.
The law of A given phi goes with it: p(QAQ' | Q phi) |J_A(Q)| = p(A | phi), for the exact law and
for the normal approximation alike, restricted to positive definite matrices or not. So the
likelihood of A given phi is constant along the orbit of Q, and what remains is

    prior(Q phi) |J_phi(Q)| x noise density(release - QAQ')     with respect to Haar measure

(Liu & Sabatti 2000, theorem 1), sampled here by slice sampling. This is the interweaving of a
centred (A given phi) with a non-centred parametrisation (what of A is left when its dependence on
phi is taken out stays fixed; Yu & Meng 2011).

**Coordinates.** All moves have one form: column i becomes column i + delta u'w, for a vector u of
coefficients. Write w = F t with t standardised and uncorrelated and F lower triangular, as in
`moments`: F = [[1, 0, 0], [mu, L, 0], [., ., sigma]], and f = F⁻¹. The entries of F are the
coordinates, and one after the other moves, row by row:

- *shears*, u = f_b: ``x_i += delta t_b``, b < i, is mu_i (b = 0) or L_ib; ``y += delta t_b`` are
  the coefficients. Jacobians are 1.
- *scalings*, delta = s - 1: u is the residual of column i on the columns before it (u_i = 1), so
  that L_ii, or sigma, is multiplied by s. Jacobian and prior of T in coordinates L give s to the
  power -(nu + 1 + i), those of sigma2 and theta -(2 a0 + d), or -2 a0 with an independent prior.
- y less its mean, times s: no new direction, but many slopes whose prior scales with sigma2 hold
  it, and it holds them. The power is -(2 a0 + 1), or d - 1 - 2 a0 with an independent prior.
  Measured with noise at epsilon = 0.1: 0.38 effective draws of sigma2 an iteration instead of 0.02
  at d = 100, 0.74 instead of 0.08 at d = 11.

When x_i moves, y stays, and with t = delta for a shear and t = 1 - 1/s for a scaling::

    theta -> theta - t theta_i u                W = T⁻¹ -> M'WM,  M = I - t e_i u'
    mu_i  -> mu_i + delta u'(1, mu)             row i of L -> row i of L + delta u'L

so that the log density along an orbit is a polynomial of degree 4 in delta (the noise), one of
degree 2 in t (the priors), and a power of s.

Without standardising (``x_i += delta x_b``) the same moves are right but slow: where the mean of a
covariate is not small compared with its standard deviation, intercept and slope are so correlated
that 150 times more iterations were needed. **Slice widths** and directions depend on what the move
leaves unchanged only, as they must. Of many covariates about a dozen move in a sweep, in turn.

References
----------
Liu & Sabatti (2000), Generalised Gibbs sampler and multigrid Monte Carlo, Biometrika 87(2),
doi:10.1093/biomet/87.2.353. Yu & Meng (2011), To center or not to center, JCGS 20(3),
doi:10.1198/jcgs.2011.203main. Neal (2003), Slice sampling, Annals of Statistics 31(3),
doi:10.1214/aos/1056562461.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise._arrays import BoolArray, FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.papers.conjugate import Covariates, Regression
from noisewise.analyst.regression.papers.sampling import factor, inverse_lower, pooled

_ROWS = 12  # covariates that move in one sweep, about
_WIDTH = 3.0  # initial slice width, in conditional standard deviations
_STEPS_OUT = 20
_SHRINKS = 80


def rows_apart(k: int) -> int:
    """In sweep number t the covariates i with i = t modulo this number move."""
    return max(1, k // _ROWS)


def movable_columns(scale: FloatArray) -> BoolArray:
    """Columns (P,) that may move: no entry is known exactly. `scale` is of shape (J, P, P)."""
    known = (scale == 0).any(axis=0)
    known[0, 0] = False
    movable: BoolArray = ~known.any(axis=1)
    movable[0] = False
    return movable


# --- one move -------------------------------------------------------------------------------------


@compiled
def _slice_step(
    rng: np.random.Generator,
    c: FloatArray,
    q: FloatArray,
    power: float,
    scaling: bool,
    width: float,
) -> tuple[float, float]:
    """One slice-sampling update from delta = 0, where the log density is 0; delta and t."""
    level = math.log(1.0 - rng.random())
    left = -width * rng.random()
    right = left + width
    steps_left = int(_STEPS_OUT * rng.random())
    steps_right = _STEPS_OUT - 1 - steps_left
    while steps_left > 0 and _log_density(left, c, q, power, scaling) > level:
        left -= width
        steps_left -= 1
    while steps_right > 0 and _log_density(right, c, q, power, scaling) > level:
        right += width
        steps_right -= 1
    for _ in range(_SHRINKS):
        x = left + (right - left) * rng.random()
        if _log_density(x, c, q, power, scaling) > level:
            return (math.exp(x) - 1.0, 1.0 - math.exp(-x)) if scaling else (x, x)
        if x < 0.0:
            left = x
        else:
            right = x
    return 0.0, 0.0


@compiled
def _log_density(x: float, c: FloatArray, q: FloatArray, power: float, scaling: bool) -> float:
    """Along an orbit; for a scaling x is the logarithm of s."""
    delta = math.exp(x) - 1.0 if scaling else x
    t = 1.0 - math.exp(-x) if scaling else x
    noise = delta * (c[0] + delta * (c[1] + delta * (c[2] + delta * c[3])))
    value: float = power * x + noise + t * (q[0] + t * q[1])
    return value


@compiled
def _noise_terms(
    i: int, u: FloatArray, values: FloatArray, weight: FloatArray, A: FloatArray
) -> tuple[FloatArray, float]:
    """Coefficients of delta, ..., delta⁴ in the log density of the noise, and the curvature.

    Entry (i, a) moves by delta (uA)_a, and (i, i) by 2 delta (uA)_i + delta² uAu'. The curvature
    is that of the entries a != i, which a shear leaves unchanged.
    """
    c, curvature = np.zeros(4), 0.0
    for j in range(A.shape[0]):
        image = A[j] @ u
        for a in range(u.size):
            w, away = weight[j, i, a], values[j, i, a] - A[j, i, a]
            if a != i:
                c[0] += w * image[a] * away
                c[1] -= 0.5 * w * image[a] * image[a]
                curvature += w * image[a] * image[a]
            else:
                first, second = 2.0 * image[i], u @ image
                c[0] += w * away * first
                c[1] += w * (away * second - 0.5 * first * first)
                c[2] -= w * first * second
                c[3] -= 0.5 * w * second * second
    return c, curvature


@compiled
def _move_statistics(i: int, u: FloatArray, delta: float, A: FloatArray) -> None:
    """Column i += delta u'w, in all A_j in place."""
    for j in range(A.shape[0]):
        image = A[j] @ u
        diagonal = A[j, i, i] + delta * (2.0 * image[i] + delta * (u @ image))
        A[j, i] += delta * image
        A[j, i, i] = diagonal
        A[j, :, i] = A[j, i]


# --- rows -----------------------------------------------------------------------------------------


@compiled
def _move_y(
    rng: np.random.Generator,
    prior: Regression,
    f: FloatArray,
    mean: FloatArray,
    values: FloatArray,
    weight: FloatArray,
    theta: FloatArray,
    sigma2: float,
    A: FloatArray,
) -> float:
    """All coordinates of y: theta, then sigma2, then all of them together; returns sigma2.

    f are the rows of F⁻¹ and mean is E[v]. theta and A are changed in place.
    """
    d = theta.size
    u, none = np.zeros(d + 1), np.zeros(2)
    per_theta = 1.0 if prior.independent else 1.0 / sigma2
    for b in range(d):
        u[:d] = f[b]
        c, curvature = _noise_terms(d, u, values, weight, A)
        pull = prior.precision @ f[b]
        bend = per_theta * (f[b] @ pull)
        c[0] -= per_theta * (pull @ (theta - prior.mu0))
        c[1] -= 0.5 * bend
        delta, _ = _slice_step(rng, c, none, 0.0, False, _WIDTH / math.sqrt(curvature + bend))
        _move_statistics(d, u, delta, A)
        theta += delta * f[b]
    # Scalings. The priors have 1/s² = (1 - t)² and, for theta -> theta + delta v, delta/s = t.
    information = 2.0 * prior.a0 + d
    for j in range(A.shape[0]):
        information += weight[j, d, d] * values[j, d, d] ** 2
    u[d] = 1.0
    for together in (False, True):
        v = np.zeros(d)
        if together:
            u[:d] = 0.0
            u[0] = -(theta @ mean)
            v = theta + u[:d]
        else:
            u[:d] = -theta
        c, _ = _noise_terms(d, u, values, weight, A)
        away, pull = theta - prior.mu0, prior.precision @ v
        Q0 = away @ (prior.precision @ away)
        Q1, Q2 = pull @ away, pull @ v
        q = np.array([2.0 * prior.b0, -prior.b0]) / sigma2
        power = -2.0 * prior.a0
        if prior.independent:
            c[0] -= Q1
            c[1] -= 0.5 * Q2
            power += d - 1.0 if together else 0.0
        else:
            q += 0.5 * np.array([2.0 * (Q0 - Q1), 2.0 * Q1 - Q0 - Q2]) / sigma2
            power -= 1.0 if together else d
        delta, _ = _slice_step(rng, c, q, power, True, _WIDTH / math.sqrt(information))
        _move_statistics(d, u, delta, A)
        sigma2 *= (1.0 + delta) ** 2
        theta += delta * v
    return sigma2


@compiled
def _row_of_inverse(i: int, mu: FloatArray, L: FloatArray, f: FloatArray) -> None:
    """Row i of f = F⁻¹ from row i of F = [[1, 0], [mu, L]] and the rows above it, in place."""
    f[i] = 0.0
    f[i, i] = 1.0
    f[i] -= mu[i - 1] * f[0]
    for b in range(1, i):
        f[i] -= L[i - 1, b - 1] * f[b]
    f[i] /= L[i - 1, i - 1]


@compiled
def _move_x(
    rng: np.random.Generator,
    i: int,
    prior: Regression,
    covariates: Covariates,
    f: FloatArray,
    W: FloatArray,
    Psi: FloatArray,
    values: FloatArray,
    weight: FloatArray,
    theta: FloatArray,
    sigma2: float,
    mu: FloatArray,
    L: FloatArray,
    A: FloatArray,
) -> None:
    """All coordinates of covariate i (counted from 1): mu_i, then row i of L; in place."""
    d, x = theta.size, i - 1
    per_theta = 1.0 if prior.independent else 1.0 / sigma2
    u = np.zeros(d + 1)
    for b in range(i + 1):
        scaling = b == i
        if scaling:
            _row_of_inverse(i, mu, L, f)
        u[:d] = f[b] * L[x, x] if scaling else f[b]
        u_x, shift = u[1:d].copy(), u[0] + u[1:d] @ covariates.m
        c, curvature = _noise_terms(i, u, values, weight, A)
        # The priors of theta, of T by tr(Psi W), and of mu by its distance from m.
        v = -theta[i] * u[:d]
        pull, spread, away = prior.precision @ v, Psi @ u_x, W[x] @ (mu - covariates.m)
        first = W[x] @ spread - per_theta * (pull @ (theta - prior.mu0))
        first -= covariates.lam * shift * away
        bend = per_theta * (pull @ v)
        bend += W[x, x] * (u_x @ spread + covariates.lam * shift * shift)
        q, power = np.array([first, -0.5 * bend]), 0.0
        if scaling:
            power = -(covariates.nu + 1.0 + i)
            curvature, bend = -power, 0.0
            for j in range(A.shape[0]):
                curvature += 4.0 * weight[j, i, i] * values[j, i, i] ** 2
        width = _WIDTH / math.sqrt(curvature + bend)
        delta, t = _slice_step(rng, c, q, power, scaling, width)
        _move_statistics(i, u, delta, A)
        theta += t * v
        mu[x] += delta * (u[0] + u_x @ mu)
        L[x] += delta * (u_x @ L)
        column = W[x].copy()
        for a in range(d - 1):
            W[a] -= t * (u_x[a] * column + column[a] * u_x)
            W[a] += t * t * column[x] * u_x[a] * u_x
    _row_of_inverse(i, mu, L, f)


# --- the sweep ------------------------------------------------------------------------------------


@compiled
def _weights(scale: FloatArray, omega2: FloatArray) -> FloatArray:
    """1 / omega2; 0 where an entry is known or was not released."""
    weight = np.zeros(scale.shape)
    for j in range(scale.shape[0]):
        for a in range(scale.shape[1]):
            for b in range(scale.shape[1]):
                if 0.0 < scale[j, a, b] < np.inf:
                    weight[j, a, b] = 1.0 / omega2[j, a, b]
    return weight


@compiled
def sweep_y(
    rng: np.random.Generator,
    prior: Regression,
    movable: BoolArray,
    values: FloatArray,
    scale: FloatArray,
    omega2: FloatArray,
    theta: FloatArray,
    sigma2: float,
    A: FloatArray,
) -> tuple[FloatArray, float, FloatArray]:
    """(theta, sigma2, A) moved along the orbits of y.

    Columns are standardised by the latent statistics themselves, which y does not change.
    """
    d = theta.size
    total = pooled(A)
    F, proper = factor(total[:d, :d])
    if not (movable[d] and proper):
        return theta, sigma2, A
    theta, A = theta.copy(), A.copy()
    f = inverse_lower(F) * F[0, 0]
    mean, weight = F[:, 0] / F[0, 0], _weights(scale, omega2)
    sigma2 = _move_y(rng, prior, f, mean, values, weight, theta, sigma2, A)
    return theta, sigma2, A


@compiled
def sweep_all(
    rng: np.random.Generator,
    prior: Regression,
    covariates: Covariates,
    movable: BoolArray,
    turn: int,
    apart: int,
    values: FloatArray,
    scale: FloatArray,
    omega2: FloatArray,
    theta: FloatArray,
    sigma2: float,
    mu: FloatArray,
    L: FloatArray,
    Psi: FloatArray,
    A: FloatArray,
) -> tuple[FloatArray, float, FloatArray, FloatArray, FloatArray]:
    """(theta, sigma2, mu, L, A) moved along the orbits of x and y, T = LL'.

    Of the covariates those with i % apart == turn move.
    """
    d = theta.size
    theta, mu, L, A = theta.copy(), mu.copy(), L.copy(), A.copy()
    weight, K = _weights(scale, omega2), inverse_lower(L)
    W = np.ascontiguousarray(K.T) @ K
    f = np.zeros((d, d))
    f[0, 0] = 1.0
    for i in range(1, d):
        if movable[i] and i % apart == turn:
            _move_x(rng, i, prior, covariates, f, W, Psi, values, weight, theta, sigma2, mu, L, A)
        else:
            _row_of_inverse(i, mu, L, f)
    if movable[d]:
        mean = np.ones(d)
        mean[1:] = mu
        sigma2 = _move_y(rng, prior, f, mean, values, weight, theta, sigma2, A)
    return theta, sigma2, mu, L, A
