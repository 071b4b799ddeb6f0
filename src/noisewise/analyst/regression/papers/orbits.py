"""Moves along orbits, so that Gibbs sampling also mixes where noise hides the statistics.

**The problem.** theta is drawn given the latent A, and A is drawn given theta and the release. If
the noise variance is a thousand times the sampling variance of A, the second step moves A by a
thousandth of the posterior's variance only: some 1000 iterations for one effective draw.

**The move.** Write the columns w = (1, x, y) as w = F t with t standardised and F lower triangular,
F = [[1, 0, 0], [mu, L, 0], [E[y], theta_x'L, sigma]], T = LL'. All parameters phi = (mu, T, theta,
sigma2) are in F: theta solves F_v'theta = F_y, with F_v the rows and columns of v = (1, x) and F_y
the row of y. The sums B = F⁻¹ A F⁻ᵀ of tt' have a law without parameters, for the exact law of A
and for its normal approximation alike, restricted to positive definite matrices or not. So given B
and the release F has the density

    prior(phi) |dphi / dF| x noise density(release - F B F')

and its entries are moved one after the other by slice sampling, B fixed. In terms of A that is a
move along the orbit of a linear map of the columns (Liu & Sabatti 2000, theorem 1); it interweaves
a centred (A given phi) with a non-centred parametrisation (B; Yu & Meng 2011). |dphi / dF| is
2^(k + 1) sigma Π_i L_ii^(k - i + 1) L_ii⁻¹, i = 1, ..., k, the last factor from theta.

Diagonal entries move in their logarithm. One move more multiplies the row of y but E[y] as a whole:
no new direction, but many slopes whose prior scales with sigma2 hold it, and it holds them. Where
the law of x is known, F_v is taken from the latent statistics of x themselves, which y does not
change, and only the row of y moves. Of many covariates about half a dozen move in a sweep, in turn.
(With the entries of A or theta for coordinates the same moves are right but slow, because intercept
and slope are highly correlated.)

**Its density.** A move adds r v to one row of F, which makes F B F' quadratic in r, and changes F⁻¹
by a matrix of rank one. The priors are quadratic in F⁻¹, whose last row is (-theta, 1) / sigma and
whose block of x is L⁻¹. So a few coefficients, O(P²) to find, say all of the density that slice
sampling asks for again and again.

References
----------
Liu & Sabatti (2000), Generalised Gibbs sampler and multigrid Monte Carlo, Biometrika 87(2),
doi:10.1093/biomet/87.2.353. Yu & Meng (2011), To center or not to center, JCGS 20(3),
doi:10.1198/jcgs.2011.203main. Neal (2003), Slice sampling, Annals of Statistics 31(3),
doi:10.1214/aos/1056562461.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, Rng
from noisewise._compiled import compiled
from noisewise.analyst.regression.papers.shared import (
    Covariates,
    Regression,
    inverse_lower,
    solve_upper,
)

_ROWS = 6  # covariates that move in one sweep, about
_WIDTH = 0.5  # of the first slice, for all entries: all are moments on unit scale
_STEPS_OUT = 20
_SHRINKS = 80


class Line(NamedTuple):
    """ln density of F along one move, as polynomials without their constants where these cancel.

    The move adds r times a vector to row i of F and c times a matrix of rank one to F⁻¹.
    """

    scaling: bool  # r = exp x - 1 and c = 1 - exp -x; otherwise both are x
    power: float  # of exp x
    noise: FloatArray  # (4,), coefficients of r to r⁴: sum of squares of the noise
    law: FloatArray  # (2,), of c and c²: lam (mu - m)'T⁻¹(mu - m) + tr(Psi T⁻¹)
    distance: FloatArray  # (3,), of 1, c and c²: (theta - mu0)'precision(theta - mu0) / sigma2
    sigma2: float  # before the move
    b0: float
    with_sigma2: bool  # whether x moves sigma2
    independent: bool  # the prior of theta is


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


@compiled
def regression_of(F: FloatArray) -> tuple[FloatArray, float]:
    """theta and sigma2 of a factor."""
    d = F.shape[0] - 1
    return solve_upper(F[:d, :d], F[d, :d]), F[d, d] ** 2


@compiled
def line(
    prior: Regression,
    covariates: FloatArray,
    nu: float,
    B: FloatArray,
    values: FloatArray,
    weight: FloatArray,
    F: FloatArray,
    f: FloatArray,
    i: int,
    v: FloatArray,
    scaled: int,
) -> Line:
    """The density of a move that adds r v to row i.

    v has an entry 1, or the entries of row i that are multiplied, of which there are `scaled`.
    covariates : (P, P), lam (1, m)(1, m)' + Psi; f : F⁻¹; the others as in `sweep`.
    """
    d, scaling = F.shape[0] - 1, scaled > 0
    noise = np.zeros(4)
    for j in range(B.shape[0]):
        # Row i of F B F' is linear in r but for its entry i, which is quadratic.
        image = B[j] @ F[i]
        w, away, slope = weight[j, i], values[j, i] - F @ image, F @ (B[j] @ v)
        bend = v @ (B[j] @ v)
        slope[i] += v @ image
        noise[0] -= 2.0 * np.sum(w * away * slope)
        noise[1] += np.sum(w * slope * slope) - 2.0 * w[i] * away[i] * bend
        noise[2] += 2.0 * w[i] * slope[i] * bend
        noise[3] += w[i] * bend * bend
    # F⁻¹ becomes f - c p q'. Its last row is (-theta, 1) / sigma, the block of x has that of L⁻¹.
    p, q = f[:, i].copy(), v @ f
    side, last = covariates @ q, prior.bordered @ q
    law = np.array([-2.0 * (p[1:d] @ (f @ side)[1:d]), (p[1:d] @ p[1:d]) * (q @ side)])
    distance = np.array(
        [f[d] @ (prior.bordered @ f[d]), -2.0 * p[d] * (f[d] @ last), p[d] ** 2 * (q @ last)]
    )
    power = 0.0
    if scaling:
        # Of F_ii: in mu's and T's or in theta's and sigma2's law, and in |dphi / dF|.
        own = 2.0 * prior.a0 + 1.0 + (0.0 if prior.independent else d)
        power += scaled - (nu + i + 2.0 if i < d else own)
    return Line(
        scaling, power, noise, law, distance, F[d, d] ** 2, prior.b0, scaling and i == d,
        prior.independent,
    )  # fmt: skip


@compiled
def log_density(line: Line, x: float) -> float:
    """ln density at distance x from where the move began, but for a constant."""
    r, c, sigma2, noise = x, x, line.sigma2, line.noise
    if line.scaling:
        r, c = math.expm1(x), -math.expm1(-x)
    if line.with_sigma2:
        sigma2 *= math.exp(2.0 * x)
    squares = (((noise[3] * r + noise[2]) * r + noise[1]) * r + noise[0]) * r
    squares += (line.law[1] * c + line.law[0]) * c
    distance = (line.distance[2] * c + line.distance[1]) * c + line.distance[0]
    squares += distance * (sigma2 if line.independent else 1.0)
    value: float = line.power * x - line.b0 / sigma2 - 0.5 * squares
    return value


@compiled
def slice_step(rng: Rng, line: Line) -> float:
    """x after one slice-sampling update from 0."""
    level = log_density(line, 0.0) + math.log(1.0 - rng.random())
    left = -_WIDTH * rng.random()
    right = left + _WIDTH
    steps_left = int(_STEPS_OUT * rng.random())
    steps_right = _STEPS_OUT - 1 - steps_left
    while steps_left > 0 and log_density(line, left) > level:
        left -= _WIDTH
        steps_left -= 1
    while steps_right > 0 and log_density(line, right) > level:
        right += _WIDTH
        steps_right -= 1
    for _ in range(_SHRINKS):
        x = left + (right - left) * rng.random()
        if log_density(line, x) > level:
            return x
        if x < 0.0:
            left = x
        else:
            right = x
    return 0.0


@compiled
def sweep(
    rng: Rng,
    prior: Regression,
    covariates: Covariates,
    Psi: FloatArray,
    moves: BoolArray,
    values: FloatArray,
    scale: FloatArray,
    omega2: FloatArray,
    F: FloatArray,
    A: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """(F, A) with the rows of F moved that `moves`, (P,), says."""
    J, P = A.shape[:2]
    F, A, B, weight = F.copy(), A.copy(), np.zeros(A.shape), np.zeros(A.shape)
    f = inverse_lower(F)
    for j in range(J):
        B[j] = f @ A[j] @ np.ascontiguousarray(f.T)
        for a in range(P):
            for b in range(P):
                if 0.0 < scale[j, a, b] < np.inf:
                    weight[j, a, b] = 1.0 / omega2[j, a, b]
    law = np.zeros((P, P))  # lam (1, m)(1, m)' and Psi
    law[: P - 1, : P - 1] = covariates.bordered
    law[1 : P - 1, 1 : P - 1] += Psi
    for i in range(1, P):
        # Entries 0, ..., i - 1 one by one, then the diagonal; the row of y has one move more.
        for b in range(i + (2 if i == P - 1 else 1) if moves[i] else 0):
            v, scaled = np.zeros(P), 0
            if b < i:
                v[b] = 1.0
            else:
                scaled = 1 if b == i else i
                v[i + 1 - scaled : i + 1] = F[i, i + 1 - scaled : i + 1]
            x = slice_step(
                rng, line(prior, law, covariates.nu, B, values, weight, F, f, i, v, scaled)
            )
            r, c = (math.expm1(x), -math.expm1(-x)) if scaled > 0 else (x, x)
            p, q = f[:, i].copy(), v @ f
            for a in range(P):
                F[i, a] += r * v[a]
                for e in range(P):
                    f[a, e] -= c * p[a] * q[e]
    for i in range(1, P):
        if moves[i]:  # all other entries stay as they are, to the last digit
            for j in range(J):
                A[j, i] = F @ (B[j] @ F[i])
                A[j, :, i] = A[j, i]
    return F, A
