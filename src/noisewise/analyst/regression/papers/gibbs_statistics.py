"""A holder's latent statistics given everything else, for the Gibbs samplers.

By the central limit theorem A_j ~ N(nE[ww'], nCov[ww']) on its unique
entries; noise is normal given omega2; so the conditional is normal, restricted to the set V of
positive definite matrices. It is drawn by *perturb and solve*: with s ~ N(nE, nCov) and
r = released - s - noise, the draw is s + nCov (nCov + Omega)⁻¹ r. That needs one system of
equations, no inverse of Cov or Omega, and takes exact entries (Omega = 0) and entries that were not
released without special cases. With few columns the system is solved by its Cholesky factor,
O(P^6); with many by conjugate gradients, O(P^3) an iteration.

**Why rejection keeps the target right.** Draws outside V are rejected and drawn again, at most
`tries` times; then one step of elliptical slice sampling from the current A_j, with fresh normal
variables, replaces the draw. Let pi be the normal law restricted to V and p its probability of V,
both given everything but A_j. The kernel is then

    A' ~ (1 - (1 - p)^tries) pi + (1 - p)^tries K(A, .)

where K is the elliptical slice kernel, which leaves pi invariant. The weights depend on what is
conditioned on but *not on the current A_j*, so the mixture leaves pi invariant too, whatever
`tries` is. Three things would break this: a starting A_j outside V (so `init` makes it valid);
letting the number of tries depend on the current A_j; and reusing a rejected proposal as the slice
sampler's normal variable, for given its rejection it is no longer normal. Keeping A_j as it is
would also be right (K the identity), but a chain near the boundary would freeze. Projecting a
draw on V, as the paper does, is not: it puts atoms on the boundary.

References
----------
Papandreou & Yuille (2010), Gaussian sampling by local perturbations, NeurIPS. Murray, Adams &
MacKay (2010), Elliptical slice sampling, AISTATS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import BoolArray, FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.observation import Observation, common_k, named
from noisewise.analyst.regression.papers.moments import Law, draw_known_sums, unique_entries
from noisewise.analyst.regression.papers.sampling import (
    factor,
    laplace_variance,
    rough_population,
    solve_lower,
    solve_upper,
)
from noisewise.core.errors import RequestError

_MAX_SHRINK = 60
_MAX_GRADIENTS = 1000
_TOLERANCE = 1e-8


# --- the observations -----------------------------------------------------------------------------


class Holders(NamedTuple):
    """The observations, in the form the compiled functions take."""

    n: FloatArray  # (J,)
    laplace: BoolArray  # (J,)
    values: FloatArray  # (J, P, P)
    scale: FloatArray  # (J, P, P), 0: known, inf: not released
    seen: BoolArray  # (J, P, P), entries whose released value says something
    noisy: BoolArray  # (J,), noise dominates: conjugate gradients want another preconditioner


class Statistics(NamedTuple):
    """What the draw of the statistics needs and no iteration changes."""

    holders: Holders
    law: Law  # of the covariates, where it is known; otherwise the entries of ww' only
    known: bool
    dense: bool  # how the equations are solved
    tries: int


class Moments(NamedTuple):
    """Moments of one row's ww' given the parameters."""

    F: FloatArray  # (P, P), lower triangular, FF' = G; normal covariates only
    G: FloatArray  # (P, P), E[ww']
    C: FloatArray  # (q, q), covariance of the unique entries; for the dense solution
    values: FloatArray  # (P,), eigenvalues of G; for conjugate gradients
    vectors: FloatArray  # (P, P), its eigenvectors


def prepare_holders(observations: Sequence[Observation]) -> Holders:
    """Check observations and stack them."""
    P = common_k(observations) + 2
    which, fewest = min(named(observations), key=lambda item: item[1].n)
    if fewest.n < P:
        raise RequestError(
            f"{which} with n = {fewest.n} rows is too small for {P - 2} covariates: at least "
            f"k + 2 = {P} rows are needed. Use fewer covariates, or leave the holder out"
        )
    scale = np.stack([observation.scale for observation in observations])
    seen = np.isfinite(scale)
    seen[:, 0, 0] = False
    # Normal noise is nearly isometric in any layout, so that the eigenbasis is good for longer.
    far = [10.0 if observation.family == "gaussian" else 1.0 for observation in observations]
    return Holders(
        n=np.array([float(observation.n) for observation in observations]),
        laplace=np.array([observation.family == "laplace" for observation in observations]),
        values=np.stack([observation.values for observation in observations]),
        scale=scale,
        seen=seen,
        noisy=np.array([noise_to_sampling(o) > f for o, f in zip(observations, far, strict=True)]),
    )


def without_constants(holders: Holders, law: Law) -> Holders:
    """Drop released entries that are known exactly and have no variance: they say nothing.

    An example is the product of two indicators of one category, always 0. With no noise and no
    variance it would make the covariance of the released values singular.
    """
    seen, d = holders.seen.copy(), law.eta.shape[0]
    variance = np.where(law.positions >= 0, law.xi.diagonal()[law.positions], 0.0) if d > 1 else 0.0
    seen[:, :d, :d] &= ~((variance < 1e-14) & (holders.scale[:, :d, :d] == 0))
    return holders._replace(seen=seen)


def noise_to_sampling(observation: Observation) -> float:
    """Median ratio of the noise to the sampling variance of the released entries; inf if none."""
    G = rough_population([observation])
    diagonal = G.diagonal()
    sampling = np.outer(diagonal, diagonal) + G**2 - 2.0 * np.outer(G[0] ** 2, G[0] ** 2)
    ratio = observation.sd**2 / (observation.n * np.maximum(sampling, 1e-12))
    return float(np.median(ratio[unique_entries(observation.k + 2)]))


# --- compiled: the draw of the statistics ---------------------------------------------------------


@compiled
def draw_noise_variances(
    rng: np.random.Generator, holders: Holders, A: FloatArray, omega2: FloatArray
) -> FloatArray:
    """omega2_j | A_j for the holders with Laplace noise (Algorithm 1, line 6)."""
    omega2 = omega2.copy()
    for j in range(A.shape[0]):
        for a in range(A.shape[1]):
            for b in range(a, A.shape[1]):
                scale = holders.scale[j, a, b]
                if holders.laplace[j] and 0.0 < scale < np.inf:
                    q = abs(holders.values[j, a, b] - A[j, a, b]) / scale
                    omega2[j, a, b] = scale * scale * laplace_variance(rng, q)
                    omega2[j, b, a] = omega2[j, a, b]
    return omega2


@compiled
def _draw_normal_sums(
    rng: np.random.Generator, n: float, F: FloatArray, G: FloatArray
) -> FloatArray:
    """A ~ N(nG, nCov) for normal x: nG + sqrt(n) F H F', H symmetric with H_00 = 0.

    H has variance 2 on the diagonal and 1 off it. With F = [m, L] this is
    sqrt(n) (L H L' + m h' + h m'), whose covariance is 2n (GYG - (m'Ym) mm') as an operator.
    """
    P = F.shape[0]
    H = np.zeros((P, P))
    for a in range(1, P):
        for b in range(a):
            H[a, b] = rng.standard_normal()
            H[b, a] = H[a, b]
        H[a, a] = math.sqrt(2.0) * rng.standard_normal()
    return n * G + math.sqrt(n) * (F @ H @ np.ascontiguousarray(F.T))


@compiled
def _apply_covariance(n: float, row: Moments, Y: FloatArray) -> FloatArray:
    """2n (GYG - (m'Ym) mm'): nCov applied to <Y, ww'>, normal x."""
    G, m = row.G, row.F[:, 0].copy()
    return 2.0 * n * (G @ Y @ G - (m @ (Y @ m)) * np.outer(m, m))


@compiled
def _conjugate_gradients(
    n: float,
    row: Moments,
    noise: FloatArray,
    seen: FloatArray,
    noisy: bool,
    R: FloatArray,
) -> tuple[FloatArray, int]:
    """Y with (nCov + noise) Y = R on the released entries, and the number of iterations.

    Y stands for the functional <Y, ww'>. Half of an off-diagonal coefficient sits in each triangle,
    so that its noise term is 2 omega2. `seen` is 1 for released entries. Preconditioners: where
    noise dominates (`noisy`) the diagonal; otherwise nCov plus noise of one size, without the
    rank-one term, which is diagonal in G's eigenbasis (exact but for that term if the noise is
    Gaussian in the isometric layout).
    """
    P, G, m, V = R.shape[0], row.G, row.F[:, 0], row.vectors
    logs = np.sum(np.log(np.where(noise > 0.0, noise, 1.0)))
    typical = math.exp(logs / max(np.sum(noise > 0.0), 1))
    inverse = 1.0 / (2.0 * n * np.outer(row.values, row.values) + typical)
    if noisy:
        for a in range(P):
            for b in range(P):
                sampling = G[a, a] * G[b, b] + G[a, b] ** 2 - 2.0 * (m[a] * m[b]) ** 2
                double = 1.0 if a == b else 2.0
                inverse[a, b] = 1.0 / max(double * n * sampling + noise[a, b], 1e-300)
    transposed = np.ascontiguousarray(V.T)
    Y, r = np.zeros((P, P)), R * seen
    p, size, goal, iterations = np.zeros((P, P)), 0.0, 0.0, 0
    while iterations < _MAX_GRADIENTS:
        z = inverse * r if noisy else V @ (inverse * (transposed @ r @ V)) @ transposed
        z *= seen
        new = np.sum(r * z)
        if iterations == 0:
            goal = _TOLERANCE**2 * new
            p += z
        else:
            p = z + (new / size) * p
        size = new
        if not size > goal:
            break
        image = (_apply_covariance(n, row, p) + noise * p) * seen
        step = size / np.sum(p * image)
        Y += step * p
        r -= step * image
        iterations += 1
    return Y, iterations


@compiled
def draw_statistics(
    rng: np.random.Generator,
    model: Statistics,
    j: int,
    row: Moments,
    theta: FloatArray,
    sigma2: float,
    A: FloatArray,
    omega2: FloatArray,
) -> tuple[FloatArray, int, int, int]:
    """A_j | everything else; with the numbers of Info.

    Attempts 0, ..., tries - 1 are draws that may be accepted. If none is valid, the next gives the
    normal variables of an elliptical slice step, and the last one the mean of the normal law.
    """
    P, n = A.shape[0], model.holders.n[j]
    released, scale = model.holders.values[j], model.holders.scale[j]
    seen, law = model.holders.seen[j], model.law
    which = np.zeros(law.rows.size, dtype=np.int64)
    size = 0
    for e in range(law.rows.size):
        if seen[law.rows[e], law.columns[e]]:
            which[size] = e
            size += 1
    which = which[:size]
    mask, noise = np.zeros((P, P)), np.zeros((P, P))
    for a in range(P):
        for b in range(P):
            if seen[a, b]:
                mask[a, b] = 1.0
                noise[a, b] = omega2[a, b] if a == b else 2.0 * omega2[a, b]
    K = np.zeros((0, 0))
    if model.dense:
        K = np.zeros((size, size))
        for i in range(size):
            for c in range(size):
                K[i, c] = n * row.C[which[i], which[c]]
            K[i, i] += omega2[law.rows[which[i]], law.columns[which[i]]]
        K, proper = factor(K)
        if not proper:
            return A, 0, 1, 0  # keeps A_j: right, because this did not depend on A_j
    candidate, iterations = A, 0
    for attempt in range(model.tries + 2):
        perturb = attempt <= model.tries
        if not perturb:
            S = n * row.G
        elif model.known:
            S = draw_known_sums(rng, law, n, theta, sigma2)
        else:
            S = _draw_normal_sums(rng, n, row.F, row.G)
        R = (released - S) * mask
        if perturb:
            for a in range(1, P):
                for b in range(a + 1):
                    R[a, b] -= mask[a, b] * math.sqrt(omega2[a, b]) * rng.standard_normal()
                    R[b, a] = R[a, b]
        if model.dense:
            x = np.zeros(size)
            for i in range(size):
                x[i] = R[law.rows[which[i]], law.columns[which[i]]]
            x = solve_upper(K, solve_lower(K, x))
            for e in range(law.rows.size):
                a, b = law.rows[e], law.columns[e]
                for i in range(size):
                    S[a, b] += n * row.C[e, which[i]] * x[i]
                S[b, a] = S[a, b]
        else:
            Y, more = _conjugate_gradients(n, row, noise, mask, model.holders.noisy[j], R)
            S += _apply_covariance(n, row, Y)
            S = 0.5 * (S + S.T)  # equal but for rounding
            iterations += more
        for a in range(P):
            for b in range(P):
                if scale[a, b] == 0.0:
                    S[a, b] = released[a, b]
        if attempt < model.tries and factor(S)[1]:
            return S, attempt, 0, iterations
        if perturb:
            candidate = S
    # Elliptical slice sampling: A' = mean + (A - mean) cos + (draw - mean) sin.
    mean = S
    angle = 2.0 * math.pi * rng.random()
    low, high = angle - 2.0 * math.pi, angle
    for _ in range(_MAX_SHRINK):
        S = mean + (A - mean) * math.cos(angle) + (candidate - mean) * math.sin(angle)
        if factor(S)[1]:
            return S, model.tries, 1, iterations
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * rng.random()
    return A, model.tries, 1, iterations
