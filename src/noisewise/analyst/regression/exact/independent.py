"""Independent draws from the collapsed posterior, where noise is small beside the information.

Released minus a draw of the noise is a draw from the law of the statistics A given the Release
under a flat prior. Those are proposals; the collapsed density of A without the noise, which the
proposal cancels, is their weight. What priors add to the coordinates is proposed from its law given
A for many rows (ln psi: log-gamma; ln sigma2: minus log-gamma), and divided out. For many rows and
little noise the density of A hardly changes over the width of the noise, and all weights are nearly
equal. Nothing is approximate but Monte Carlo: with poor proposals weights are uneven, which the
Pareto shape of their tail tells, and `draw_independent` gives up.

Weights become draws without copies: one of every `_PROPOSALS` proposals is kept, with a chance in
proportion to its weight (systematic resampling in the order of the proposals). That is rejection
sampling where no weight is above `_PROPOSALS` times the mean. A larger one is kept more than once,
and its copies stand side by side in a chain, where effective draws are counted as fewer.

References
----------
Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance sampling, JMLR 25(72);
Zhang & Stephens (2009), A new and efficient estimation method for the generalized Pareto
distribution, Technometrics 51(3), doi:10.1198/tech.2009.08017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.categories import TIED
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.factor import BELOW_SMALLEST_N
from noisewise.analyst.regression.exact.kernels import logp_and_gradient
from noisewise.analyst.regression.exact.prior import (
    A0,
    B0_SIGMA2,
    KEEPS_SIGMA2,
    NU,
    PSI_POWER,
    log_precisions,
)
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import (
    CovariatePrior,
    RegressionPrior,
    ScaleFreeCovariates,
    ScaleFreePrior,
)
from noisewise.analyst.regression.triangular import (
    cholesky,
    gram_entry,
    invert_triangle,
    relative_factor,
)

_density: Any = logp_and_gradient  # its arguments come as a tuple
_PROPOSALS = 4  # for each draw
_PILOT = 400  # proposals, to see whether it is worth the while
# Weights with a Pareto shape below 1/2 have a finite variance: means over them have a central limit
# theorem, and the error of what is kept is the one that is reported.
LARGEST_SHAPE = 0.5
_SMALLEST_SHARE = 0.9  # of effective draws among those kept
# Where an edge of what is possible is near, the scale-free density has a spike there, 1 / sd, which
# few proposals see: their weights look more even than they are, and intervals come out a few
# percent too narrow. So proposals must be good, not merely usable: nearly all of them count.
_SMALLEST_EVEN = 0.8  # of effective proposals
_MOST_IMPOSSIBLE = 0.001  # of proposals


class IndependentDraws(NamedTuple):
    """Draws from the posterior, on unit scale, as of `sampler.ExactDraws`."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: FloatArray  # (chains, draws, d)
    x: FloatArray  # (chains, draws, ndim)
    posterior: CollapsedPosterior  # whose coordinates x are: plain ones
    pareto_k: float  # shape of the tail of the weights
    effective: float  # of chains * draws


def draw_independent(
    observations: Sequence[Observation],
    prior: RegressionPrior | ScaleFreePrior,
    covariates: CovariatePrior | ScaleFreeCovariates,
    *,
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
) -> IndependentDraws | None:
    """Draw from the posterior, or return None where noise is too large for it.

    Parameters
    ----------
    observations, prior, covariates
        As for `sampler.sample`.
    chains, draws : int
        How many draws; there is no warm-up, and chains are parts of one sample.
    seed : int, optional
    """
    if not all(np.isfinite(seen.scale).all() for seen in observations):
        return None  # an entry that was not released has no proposal
    posterior = CollapsedPosterior(observations, prior, covariates, relative=False, partial=False)
    if posterior.ndim == 0 or (posterior.arrays.known == TIED).any():
        return None  # a proposal has two values for the one number of a tied row
    rng, other = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    _, pilot = weighted_proposals(posterior, rng, _PILOT)
    if not _is_even(pilot):
        return None
    wanted = chains * draws
    x, log_weight = weighted_proposals(posterior, rng, max(_PROPOSALS * wanted, _PILOT))
    if not _is_even(log_weight):
        return None
    shape, weight = pareto_smoothed(log_weight)
    copies = wanted * weight / weight.sum()
    effective = wanted**2 / float((copies * np.maximum(copies, 1.0)).sum())
    if not (shape < LARGEST_SHAPE and effective > _SMALLEST_SHARE * wanted):
        return None
    marks = np.cumsum(copies) - rng.uniform()
    kept = np.searchsorted(marks, np.arange(wanted))
    x = x[np.minimum(kept, len(x) - 1)]
    theta, sigma2, mean, _, _ = posterior.draw_parameters(other, x, covariates=False)
    if not all(np.isfinite(values).all() for values in (theta, sigma2, mean)):
        return None
    theta, mean, x = (values.reshape(chains, draws, -1) for values in (theta, mean, x))
    sigma2 = sigma2.reshape(chains, draws)
    return IndependentDraws(theta, sigma2, mean, x, posterior, shape, effective)


def _is_even(log_weight: FloatArray) -> bool:
    """Whether noise is small beside the information: the weights of proposals are nearly equal."""
    if np.isinf(log_weight).mean() > _MOST_IMPOSSIBLE:
        return False
    weight = np.exp(log_weight - log_weight.max())
    return float(weight.sum() ** 2 / (weight**2).sum()) > _SMALLEST_EVEN * len(weight)


def weighted_proposals(
    posterior: CollapsedPosterior, rng: np.random.Generator, count: int
) -> tuple[FloatArray, FloatArray]:
    """Proposals and their log weights, -inf for impossible statistics.

    Parameters
    ----------
    posterior : CollapsedPosterior
        In plain coordinates: neither relative nor partial.
    rng : numpy.random.Generator
    count : int

    Returns
    -------
    x, log_weight : arrays, shapes (count, ndim) and (count,)
    """
    a, k = posterior.arrays, posterior.k
    J, P, _ = a.values.shape
    lower = np.tril_indices(P)
    scale = np.where(a.precision > 0, 1.0 / np.where(a.precision > 0, a.precision, 1.0), 0.0)
    A = np.repeat(a.values[None], count, axis=0)
    for j in range(J):
        draw = rng.laplace if a.laplace[j] else rng.normal
        noise = draw(0.0, 1.0, (count, len(lower[0]))) * scale[j][lower]
        A[:, j][:, *lower] -= noise
    N = A[:, :, 0, 0].sum(axis=1)
    shape = np.maximum(a.scalars[A0] + 0.5 * (N - k - 1), 0.5)
    gamma_sigma = rng.standard_gamma(shape)
    gamma_psi = rng.standard_gamma(a.scalars[PSI_POWER], (count, a.psi_rate.size))
    x, log_weight = np.zeros((count, posterior.ndim)), np.empty(count)
    arrays = a._replace(precision=np.zeros_like(a.precision))
    _weigh(A, shape, gamma_sigma, gamma_psi, tuple(arrays), posterior.workspace(), x, log_weight)
    return x, log_weight


@compiled
def _weigh(
    A: FloatArray,
    shape: FloatArray,
    gamma_sigma: FloatArray,
    gamma_psi: FloatArray,
    arrays: Any,
    work: FloatArray,
    x: FloatArray,
    log_weight: FloatArray,
) -> Any:
    """Coordinates of the proposed statistics A (., J, P, P), and log density by log proposal.

    Holders with a map have proposals of K A K', and coordinates of those.
    """
    known, psi_rate, scalars, centre, scale, maps = (
        arrays[4], arrays[9], arrays[10], arrays[13], arrays[14], arrays[15]
    )  # fmt: skip
    J, P = A.shape[1], A.shape[2]
    k = P - 2
    F, C, Q = np.zeros((P, P)), np.zeros((P, P)), np.zeros((P, P))
    mapped, common = maps.shape[0] > 0, np.zeros((P, P))
    first, rate, grad = np.zeros((P, P)), np.zeros(P), np.zeros(x.shape[1])
    for i in range(A.shape[0]):
        log_weight[i] = -np.inf
        C[:] = 0.0
        at, log_proposal = 0, 0.0
        possible = True
        for j in range(J):
            n = A[i, j, 0, 0]
            if not n > P - BELOW_SMALLEST_N:
                possible = False
                break
            for a in range(P):
                for b in range(a + 1):
                    F[a, b] = A[i, j, a, b] / n
                    if not mapped:
                        C[a, b] += A[i, j, a, b]
            if not cholesky(F, P):
                possible = False
                break
            at, volume = _place(F, n, known[j], x[i], at)
            log_proposal += volume
            if mapped:  # F is that of the holder's own statistics K A K'
                relative_factor(maps[j], F, common)
                for a in range(P):
                    for b in range(a + 1):
                        C[a, b] += n * gram_entry(common, a, b)
            if j == 0:
                first[:] = common if mapped else F
        if not possible or not cholesky(C, P):
            continue
        N = C[0, 0] * C[0, 0]
        if scalars[KEEPS_SIGMA2] > 0.0:
            b = scalars[B0_SIGMA2] + 0.5 * C[P - 1, P - 1] ** 2
            log_proposal += shape[i] * math.log(gamma_sigma[i]) - gamma_sigma[i]
            log_proposal -= math.lgamma(shape[i])
            x[i, at] = math.log(b / gamma_sigma[i]) - 2.0 * math.log(first[P - 1, P - 1])
            at += 1
        if psi_rate.size > 0:
            invert_triangle(C[1:, 1:], k, Q)
            log_precisions(first, psi_rate, F, rate)
            for c in range(k):
                total = 0.0
                for a in range(c, k):
                    total += Q[a, c] * Q[a, c]
                log_rate = math.log(psi_rate[c] + 0.5 * (scalars[NU] + N) * total)
                log_gamma = math.log(gamma_psi[i, c])
                log_proposal += scalars[PSI_POWER] * log_gamma - gamma_psi[i, c]
                x[i, at + c] = log_gamma - log_rate + rate[c]
        for c in range(x.shape[1]):
            x[i, c] = (x[i, c] - centre[c]) / scale[c]
        log_weight[i] = _density(x[i], grad, *arrays, work) - log_proposal


@compiled
def _place(F: FloatArray, n: float, known: IntArray, x: FloatArray, at: int) -> Any:
    """Write a holder's plain coordinates down; the new cursor and ln|dA / d coordinates|.

    Row by row each free A_ab depends on its own coordinate and on those before it:
    dA_ab / dF_ab = n F_bb below the diagonal and dA_aa / d ln F_aa = 2 n F_aa².
    """
    P = F.shape[0]
    volume = 0.0
    if not known[0, 0]:
        x[at] = math.log(n - P + BELOW_SMALLEST_N)
        volume += x[at]
        at += 1
    for a in range(1, P):
        for b in range(a):
            if not known[a, b]:
                x[at] = F[a, b]
                volume += math.log(n * F[b, b])
                at += 1
        if not known[a, a]:
            x[at] = math.log(F[a, a])
            volume += math.log(2.0 * n) + 2.0 * x[at]
            at += 1
    return at, volume


def pareto_smoothed(log_weight: FloatArray) -> tuple[float, FloatArray]:
    """Shape of the weights' tail, and the weights with the largest ones smoothed.

    The largest min(M / 5, 3 sqrt(M)) weights are replaced by quantiles of a generalised Pareto law
    fitted to them, none above the largest there was.
    """
    if not np.isfinite(log_weight).any():
        return math.inf, np.ones_like(log_weight)
    weight = np.exp(log_weight - log_weight.max())
    order = np.argsort(weight)
    size = int(min(0.2 * len(weight), 3.0 * math.sqrt(len(weight))))
    if size < 5:
        return math.inf, weight
    tail, cutoff = order[-size:], weight[order[-size - 1]]
    excess = weight[tail] - cutoff
    if not excess[0] > 0.0:
        return math.inf, weight  # ties: many impossible proposals
    shape, scale = _fit_pareto(excess)
    p = (np.arange(size) + 0.5) / size
    steps = -np.log1p(-p) if abs(shape) < 1e-9 else np.expm1(-shape * np.log1p(-p)) / shape
    weight[tail] = np.minimum(cutoff + scale * steps, 1.0)
    return shape, weight


def _fit_pareto(excess: FloatArray) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto law for sorted values above 0.

    The estimate of Zhang & Stephens: an average over values of b = -shape / scale, weighted by
    their profile likelihood. The shape is drawn towards 1/2 by ten values' worth, as a prior.
    """
    n = len(excess)
    m = 30 + int(math.sqrt(n))
    b = 1.0 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))
    b = b / (3.0 * excess[int(n / 4 + 0.5) - 1]) + 1.0 / excess[-1]
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    profile = n * (np.log(-b / k) - k - 1.0)
    weight = np.exp(profile - profile.max())
    at = float((b * weight).sum() / weight.sum())
    shape = float(np.log1p(-at * excess).mean())
    return (n * shape + 5.0) / (n + 10.0), -shape / at
