"""Whether Releases agree with the model that was fitted to all of them.

For parameters (theta, sigma2, mu, T), rows w = (1, x, y) are normal with E[ww'] = G and mean m, so
the sum A_ab of n rows has mean n G_ab and variance n (G_aa G_bb + G_ab² - 2 m_a² m_b²). A released
value that is many standard deviations away, noise included, contradicts those parameters. One that
contradicts them at most posterior draws contradicts the model: a holder summed something else, used
other units, or serves other people than the rest.

One holder can hardly contradict itself. Second moments have as many entries as the model has
parameters, so the fit adapts to them; what this finds is one holder against the others. Each draw
is judged by itself: a posterior that is torn between two holders is wide, and that width must not
excuse either of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from noisewise._arrays import BoolArray, FloatArray
from noisewise.analyst.regression.job import Job
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import NIWPrior


def second_moments(
    theta: FloatArray, sigma2: FloatArray, mu: FloatArray, T: FloatArray
) -> FloatArray:
    """G = E[ww'] for each of m draws of the parameters, shape (m, P, P)."""
    m, k = mu.shape
    G = np.empty((m, k + 2, k + 2))
    G[:, 0, 0] = 1.0
    G[:, 1:-1, 0] = G[:, 0, 1:-1] = mu
    G[:, 1:-1, 1:-1] = T + mu[:, :, None] * mu[:, None, :]
    G[:, -1, :-1] = np.einsum("mab,mb->ma", G[:, :-1, :-1], theta)
    G[:, :-1, -1] = G[:, -1, :-1]
    G[:, -1, -1] = np.einsum("ma,ma->m", G[:, -1, :-1], theta) + sigma2
    return G


def discrepancy(observation: Observation, *parameters: FloatArray) -> FloatArray:
    """How far each released value is from what parameters expect, in sds; the median over draws.

    0 where nothing was released. `parameters` are those of `second_moments`.
    """
    _, mean, variance, noisy = released_law(observation, *parameters)
    away = np.abs(observation.values - mean) / np.sqrt(variance)
    return np.where(noisy, np.median(away, axis=0), 0.0)


def released_law(
    observation: Observation, *parameters: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """What a holder of n rows would release under each of m draws of the parameters.

    Returns G, the moments of one row, and mean and variance of the released sums, sampling and
    noise included, each (m, P, P); and where a value was released with noise, (P, P): elsewhere the
    variance means nothing. A private n is rough: sums are proportional to it, so its error adds to
    theirs.
    """
    n = max(observation.n, observation.k + 2)
    G = second_moments(*parameters)
    if observation.map is not None:
        G = observation.map @ G @ observation.map.T  # rows that are normal stay so
    diagonal, squares = np.einsum("maa->ma", G), G[:, 0] ** 2
    variance = diagonal[:, :, None] * diagonal[:, None, :] + G**2
    variance = n * np.maximum(variance - 2.0 * squares[:, :, None] * squares[:, None, :], 0.0)
    noisy = (observation.scale > 0) & np.isfinite(observation.scale)
    variance += np.where(noisy, observation.sd, 1.0) ** 2 + (G * observation.sd[0, 0]) ** 2
    return G, n * G, variance, noisy


# --- the posterior predictive check: what the fitted model would have released --------------------
# Over draws `released_law` is a mixture, whose mean, standard deviation and distribution function
# at the released value are kept.
#
# What this can and cannot find. Second moments have as many entries as the model has parameters, so
# one Release is matched almost by construction, and the released value was used to choose the
# draws: the distribution function at it is less spread than uniform (a posterior predictive p-value
# is conservative). A value far out is still a sure sign of other units or a broken file.
#
# Bounds are not matched by construction: a normal law with the fitted mean and variance may put
# people where the bounds say that nobody is, and then predictive intervals for single people cannot
# be trusted, whatever the coefficients are worth. `outside` measures that.
#
# References
# ----------
# Gelman, Meng & Stern (1996), Posterior predictive assessment of model fitness via realized
#     discrepancies, Statistica Sinica 6, 733-807.


class Replication(NamedTuple):
    """The posterior predictive law of one Release, on unit scale."""

    # (P, P), mean and standard deviation of a replicated release. The spread is 0 where nothing
    # noisy was released.
    expected: FloatArray
    spread: FloatArray
    # (P, P), probability that a replicated value is below the released one; 0.5 where nothing was
    below: FloatArray
    outside: FloatArray  # (P,), share of the model's people outside [-1, 1], by column


def replicate(observation: Observation, *parameters: FloatArray) -> Replication:
    """The law of a replicated Release, over m posterior draws of `parameters`, as above."""
    G, mean, variance, noisy = released_law(observation, *parameters)
    sd = np.sqrt(variance)
    total = np.sqrt(variance.mean(axis=0) + mean.var(axis=0))
    below = ndtr((observation.values - mean) / sd).mean(axis=0)
    centre = G[:, 0]
    width = np.sqrt(np.maximum(np.einsum("maa->ma", G) - centre**2, 1e-300))
    outside = (ndtr((-1.0 - centre) / width) + ndtr((centre - 1.0) / width)).mean(axis=0)
    outside[0] = 0.0
    return Replication(
        np.where(noisy, mean.mean(axis=0), observation.values),
        np.where(noisy, total, 0.0),
        np.where(noisy, below, 0.5),
        outside,
    )


# --- the covariates' law given everybody's latent statistics --------------------------------------


def draw_covariates(
    rng: np.random.Generator, statistics: FloatArray, prior: NIWPrior
) -> tuple[FloatArray, FloatArray]:
    """One draw of mu (m, k) and T (m, k, k) given each of m pooled statistics, by conjugacy.

    T ~ IW(nu + N, Psi_n) and mu | T ~ N(m_n, T / (lam + N)), for samplers that keep the statistics
    (m, P, P), A = Σ ww' over the N rows of all holders, and not the covariates' law.
    """
    m, k = len(statistics), prior.k
    N, total = statistics[:, 0, 0], statistics[:, 0, 1:-1]
    weight = prior.lam + N
    centre = (prior.lam * prior.m + total) / weight[:, None]
    Psi = prior.Psi + prior.lam * np.outer(prior.m, prior.m) + statistics[:, 1:-1, 1:-1]
    Psi = Psi - weight[:, None, None] * centre[:, :, None] * centre[:, None, :]
    # T = CC' with C = L Q⁻ᵀ, Psi_n = LL' and Q the Bartlett factor of a Wishart(nu_n, I) draw.
    Q = np.tril(rng.standard_normal((m, k, k)), -1)
    degrees = prior.nu + N[:, None] - np.arange(k)
    Q[:, range(k), range(k)] = np.sqrt(rng.chisquare(degrees))
    L = np.linalg.cholesky(Psi)
    C = np.swapaxes(np.linalg.solve(Q, np.swapaxes(L, 1, 2)), 1, 2)
    step = np.einsum("mab,mb->ma", C, rng.standard_normal((m, k)))
    return centre + step / np.sqrt(weight)[:, None], C @ np.swapaxes(C, 1, 2)


# --- both asked of some of a method's draws -------------------------------------------------------


CHECKED = 500  # posterior draws that the Releases are compared with
MAX_NUMBERS = 1 << 24  # of latent statistics that are kept for it


def kept_a_chain(job: Job) -> int:
    """Of how many draws of each chain to keep the latent statistics of all holders."""
    P = job.observations[0].k + 2
    affordable = MAX_NUMBERS // (job.chains * len(job.observations) * P * P)
    return min(job.draws, max(4, min(CHECKED // job.chains, affordable)))


def thinned(draws: FloatArray, kept: int) -> FloatArray:
    """The draws (chains, draws, ...) of which samplers keep more, as rows."""
    every = draws.shape[1] // kept
    return draws[:, : kept * every : every].reshape(-1, *draws.shape[2:])


def given_law(
    observations: Sequence[Observation],
    theta: FloatArray,
    sigma2: FloatArray,
    mu: FloatArray,
    T: FloatArray,
) -> dict[str, Any]:
    """What `Draws` says about agreement, from m draws of the regression and the covariates' law.

    mu and T are of shapes (m, k) and (m, k, k), or with J for a second axis where each holder has a
    law of its own.
    """
    J = len(observations)
    means = np.moveaxis(mu, 1, 0) if mu.ndim == 3 else [mu] * J
    covariances = np.moveaxis(T, 1, 0) if T.ndim == 4 else [T] * J
    each = [
        (o, theta, sigma2, m, V) for o, m, V in zip(observations, means, covariances, strict=True)
    ]
    return {
        "discrepancies": [discrepancy(*one) for one in each],
        "replications": [replicate(*one) for one in each],
    }


def predictor_variance(statistics: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """`Draws.predictor_variance` from the statistics (chains, draws, P, P) of all rows."""
    n, total = statistics[..., 0, 0], statistics[..., 0, 1:-1]

    def of(slopes: FloatArray) -> FloatArray:
        squares = np.einsum("...a,...ab,...b->...", slopes, statistics[..., 1:-1, 1:-1], slopes)
        mean = (total * slopes).sum(axis=-1) / n
        return np.asarray(np.maximum(squares / n - mean**2, 0.0))

    return of


def given_statistics(
    job: Job, theta: FloatArray, sigma2: FloatArray, statistics: FloatArray
) -> dict[str, Any]:
    """The same from m draws of the regression and of the statistics of all holders together.

    The covariates' law is drawn given those, under a weak prior: what is asked is whether holders
    agree with each other, whatever a method takes for granted about the covariates.
    """
    rng = np.random.default_rng(job.seed)
    prior = NIWPrior.weakly_informative(job.observations[0].k)
    return given_law(job.observations, theta, sigma2, *draw_covariates(rng, statistics, prior))
