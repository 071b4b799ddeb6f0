"""Problems, oracles and Monte Carlo errors for the tests of the Gibbs samplers."""

from __future__ import annotations

import numpy as np
from scipy import stats

from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.moments import (
    FourthMomentObservation,
    fourth_monomials,
    known_moments,
    prepare_moments,
    unique_entries,
)
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior

# A regression on two covariates.
MU, T = np.array([0.2, -0.3]), np.array([[0.3, 0.1], [0.1, 0.4]])
THETA, SIGMA2 = np.array([0.1, 0.5, -0.4]), 0.3


def statistic_moments(moments, theta, sigma2):
    """Mean and covariance of one row's unique entries of ww', shapes (q,) and (q, q)."""
    G, covariance = known_moments(prepare_moments(moments), np.asarray(theta), sigma2)
    return G[unique_entries(moments.k + 2)], covariance


def p_value(sample, law):
    return stats.kstest(sample, law.cdf).pvalue


def rows(rng, n, mu, T, theta, sigma2):
    mu = np.atleast_1d(mu)
    x = mu + rng.standard_normal((n, mu.size)) @ np.linalg.cholesky(np.atleast_2d(T)).T
    y = theta[0] + x @ np.asarray(theta)[1:] + np.sqrt(sigma2) * rng.standard_normal(n)
    return np.column_stack([np.ones(n), x, y])


def release(w, scale, family, rng, isometric=False):
    P = w.shape[1]
    A = w.T @ w
    scales = np.full((P, P), float(scale))
    if isometric:
        scales = np.where(np.eye(P, dtype=bool), scale, scale / np.sqrt(2))
    scales[0, 0] = 0.0
    unit = rng.laplace(size=(P, P)) if family == "laplace" else rng.standard_normal((P, P))
    noisy = np.triu(A + scales * unit)
    noisy += np.triu(noisy, 1).T
    noisy[0, 0] = len(w)
    return Observation(len(w), noisy, scales, family)


def problem(k, n=500, scale=5.0, family="laplace", seed=0, isometric=False):
    rng = np.random.default_rng(seed)
    T = 0.1 * (0.7 * np.eye(k) + 0.3)
    w = rows(rng, n, 0.1 * np.ones(k), T, np.linspace(0.1, 0.6, k + 1), 0.09)
    return release(w, scale, family, rng, isometric)


def defaults(k):
    Lam0 = np.diag(np.full(k + 1, 0.2))
    return NIGPrior(np.zeros(k + 1), Lam0, 2.0, 0.1), NIWPrior(np.zeros(k), 1.0, np.eye(k), k + 4.0)


def flatten(draws):
    return np.concatenate([draws.theta, draws.sigma2[..., None]], axis=-1).reshape(
        -1, draws.theta.shape[-1] + 1
    )


def error_of_mean(draws):
    """Monte Carlo standard error by batch means, 25 for each chain."""
    x = np.concatenate([draws.theta, draws.sigma2[..., None]], axis=-1)
    chains, length, size = x.shape
    batches = x[:, : length - length % 25].reshape(chains * 25, -1, size).mean(axis=1)
    return batches.std(axis=0, ddof=1) / np.sqrt(len(batches))


def fourth_release(w, scale, family, rng):
    v = w[:, :-1]
    sums = np.array([v[:, list(m)].prod(axis=1).sum() for m in fourth_monomials(v.shape[1] - 1)])
    unit = rng.laplace(size=sums.size) if family == "laplace" else rng.standard_normal(sums.size)
    return FourthMomentObservation(len(w), v.shape[1] - 1, sums + scale * unit, scale, family)


def collapsed_importance_sampling(observations, prior, covariates, size, seed, fourth=()):
    """Posterior mean and sd of (theta, sigma2) by importance sampling on the latent statistics.

    Proposals are the released values minus fresh noise, weights the marginal density of the
    statistics under the model (an NIWPrior; a pair (mu, T): x ~ N(mu, T); None: flat on the
    covariates' statistics), and of the fourth moments' sums of degree 1 and 2 where there are some.
    Plain NumPy, nothing shared with the samplers.
    """
    rng = np.random.default_rng(seed)
    k = observations[0].k
    P, d, p = k + 2, k + 1, k + 1
    total = np.zeros((size, P, P))
    log_weight = np.zeros(size)
    for j, o in enumerate(observations):
        unit = rng.laplace if o.family == "laplace" else rng.normal
        noise = np.triu(unit(size=(size, P, P))) * o.scale
        noise += np.triu(noise, 1).transpose(0, 2, 1)
        A = o.values - noise
        total += A
        if fourth and fourth[j] is not None:
            law = stats.laplace if fourth[j].family == "laplace" else stats.norm
            sums = zip(fourth[j].values, fourth_monomials(k), strict=True)
            for value, (first, second, a, b) in sums:
                if (first, second) == (0, 0):
                    log_weight += law.logpdf(value, A[:, a, b], fourth[j].scale)
        mean = A[:, 0, 1:] / o.n
        C = A[:, 1:, 1:] - o.n * mean[:, :, None] * mean[:, None, :]
        if covariates is None:
            sign, log_S = np.linalg.slogdet(A[:, :d, :d])
            S = np.where((sign > 0)[:, None, None], A[:, :d, :d], np.eye(d))
            z = A[:, :d, d]
            rho = A[:, d, d] - np.einsum("na,na->n", z, np.linalg.solve(S, z[..., None])[..., 0])
            valid = (np.linalg.eigvalsh(A)[:, 0] > 0) & (rho > 0)
            log_weight += np.where(
                valid,
                -0.5 * log_S + ((o.n - d) / 2 - 1) * np.log(np.where(valid, rho, 1.0)),
                -np.inf,
            )
        else:
            valid = np.linalg.eigvalsh(C)[:, 0] > 0
            C = np.where(valid[:, None, None], C, np.eye(p))
            log_weight += np.where(valid, (o.n - p - 2) / 2 * np.linalg.slogdet(C)[1], -np.inf)
    n = sum(o.n for o in observations)
    keep = np.isfinite(log_weight)
    total, log_weight = total[keep], log_weight[keep]
    if isinstance(covariates, tuple):
        mu, T = covariates
        sums = total[:, 0, 1:d]
        around = total[:, 1:d, 1:d] - mu[:, None] * sums[:, None, :] - sums[:, :, None] * mu
        around = around + n * np.outer(mu, mu)
        log_weight -= 0.5 * np.einsum("nab,ab->n", around, np.linalg.inv(T))
    elif covariates is not None:
        lam, m, nu = covariates.lam, covariates.m, covariates.nu
        m_n = (lam * m + total[:, 0, 1:d]) / (lam + n)
        Psi_n = covariates.Psi + total[:, 1:d, 1:d] + lam * np.outer(m, m)
        Psi_n -= (lam + n) * m_n[:, :, None] * m_n[:, None, :]
        log_weight -= (nu + n) / 2 * np.linalg.slogdet(Psi_n)[1]
    Lam = prior.Lam0 + total[:, :d, :d]
    shift = prior.Lam0 @ prior.mu0 + total[:, :d, d]
    mu_n = np.linalg.solve(Lam, shift[..., None])[..., 0]
    b_n = prior.b0 + 0.5 * (
        total[:, d, d] + prior.mu0 @ prior.Lam0 @ prior.mu0 - (mu_n * shift).sum(axis=1)
    )
    a_n = prior.a0 + n / 2
    log_weight -= 0.5 * np.linalg.slogdet(Lam)[1] + a_n * np.log(b_n)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    effective = 1 / (weight**2).sum()
    sigma2 = b_n / (a_n - 1)
    variance = sigma2[:, None] * np.diagonal(np.linalg.inv(Lam), axis1=1, axis2=2)
    centre = np.append(weight @ mu_n, weight @ sigma2)
    spread = np.append(
        weight @ (variance + (mu_n - centre[:-1]) ** 2),
        weight @ (sigma2**2 / (a_n - 2) + (sigma2 - centre[-1]) ** 2),
    )
    return centre, np.sqrt(spread), effective
