"""The conjugate draws of the Gibbs kernels, against their laws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.regression.papers import gibbs
from noisewise.analyst.regression.papers.shared import (
    draw_covariates,
    draw_regression,
    prepare_covariates,
    prepare_regression,
)
from noisewise.analyst.regression.priors import (
    HierarchicalNIWPrior,
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)

from .gibbs_problems import MU, SIGMA2, THETA, T, defaults, p_value, problem


def gram(n=60, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(MU, T, size=n)
    y = THETA[0] + x @ THETA[1:] + np.sqrt(SIGMA2) * rng.standard_normal(n)
    w = np.column_stack([np.ones(n), x, y])
    return w.T @ w


def test_regression_is_drawn_from_the_normal_inverse_gamma_law():
    A, rng = gram(), np.random.default_rng(7)
    prior = NIGPrior([0.1, 0.0, -0.2], np.diag([1.0, 2.0, 0.5]), 2.0, 0.5)
    theta, sigma2 = np.zeros(3), 1.0
    arrays = prepare_regression(prior, 2)
    draws = []
    for _ in range(10_000):
        theta, sigma2 = draw_regression(rng, arrays, A, theta, sigma2)
        draws.append([*theta, sigma2])
    draws = np.array(draws)
    Lam = prior.Lam0 + A[:3, :3]
    mu = np.linalg.solve(Lam, prior.Lam0 @ prior.mu0 + A[:3, 3])
    a = prior.a0 + A[0, 0] / 2
    b = prior.b0 + 0.5 * (A[3, 3] + prior.mu0 @ prior.Lam0 @ prior.mu0 - mu @ Lam @ mu)
    assert p_value(draws[:, 3], stats.invgamma(a, scale=b)) > 1e-3
    for i in range(3):
        law = stats.t(2 * a, loc=mu[i], scale=np.sqrt(b / a * np.linalg.inv(Lam)[i, i]))
        assert p_value(draws[:, i], law) > 1e-3
    z = (draws[:, :3] - mu) / np.sqrt(draws[:, 3:])
    np.testing.assert_allclose(z.T @ z / len(z), np.linalg.inv(Lam), atol=0.06 / Lam[0, 0] * 5)


def test_regression_with_an_independent_prior():
    """Two Gibbs steps of the semi-conjugate law: against a grid over sigma2."""
    A, rng = gram(), np.random.default_rng(8)
    prior = NormalInverseGammaIndependent([0.1, 0.0, -0.2], np.diag([0.1, 0.05, 0.2]), 2.0, 0.5)
    theta, sigma2 = np.zeros(3), 1.0
    arrays = prepare_regression(prior, 2)
    draws = []
    for _ in range(20_000):
        theta, sigma2 = draw_regression(rng, arrays, A, theta, sigma2)
        draws.append([*theta, sigma2])
    draws = np.array(draws)[50:]
    grid = np.exp(np.linspace(np.log(0.05), np.log(2.0), 2000))
    n, S, z, u = A[0, 0], A[:3, :3], A[:3, 3], A[3, 3]
    precision = np.linalg.inv(prior.V0)
    log_weight, means = [], []
    for value in grid:
        Lam = precision + S / value
        shift = precision @ prior.mu0 + z / value
        mean = np.linalg.solve(Lam, shift)
        means.append(mean)
        log_weight.append(
            -(prior.a0 + n / 2) * np.log(value) - prior.b0 / value - u / (2 * value)
            - 0.5 * np.linalg.slogdet(Lam)[1] + 0.5 * mean @ shift
        )  # fmt: skip
    weight = np.exp(np.array(log_weight) - max(log_weight))
    weight /= weight.sum()
    expected = np.append(weight @ np.array(means), weight @ grid)
    batches = draws[:19_900].reshape(100, -1, 4).mean(axis=1)
    assert (np.abs(batches.mean(axis=0) - expected) < 4.5 * batches.std(axis=0) / 10).all()


def test_covariates_are_drawn_from_the_normal_inverse_wishart_law():
    A, rng = gram(n=12), np.random.default_rng(9)
    prior = NIWPrior([0.5, -0.5], 3.0, np.array([[1.0, 0.3], [0.3, 2.0]]), 5.0)
    arrays, Psi = prepare_covariates(prior, 2), np.array(prior.Psi)
    mu, L = np.zeros(2), np.zeros((2, 2))
    means, covariances = [], []
    for _ in range(10_000):
        mu, L, Psi = draw_covariates(rng, arrays, A, mu, L, Psi)
        means.append(mu)
        covariances.append(np.tril(L) @ np.tril(L).T)
    means, covariances = np.array(means), np.array(covariances)
    n = A[0, 0]
    lam_n, nu_n = prior.lam + n, prior.nu + n
    m_n = (prior.lam * prior.m + A[0, 1:3]) / lam_n
    Psi_n = (
        prior.Psi + A[1:3, 1:3] + prior.lam * np.outer(prior.m, prior.m)
        - lam_n * np.outer(m_n, m_n)
    )  # fmt: skip
    for c in (np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, -2.0])):
        quadratic = np.einsum("nab,a,b->n", covariances, c, c)
        # c'Tc is inverse gamma with nu - k + 1 degrees of freedom; 1 / c'T⁻¹c with nu.
        law = stats.invgamma((nu_n - 1) / 2, scale=c @ Psi_n @ c / 2)
        assert p_value(quadratic, law) > 1e-3
        inverse = np.einsum("nab,a,b->n", np.linalg.inv(covariances), c, c)
        law = stats.gamma(nu_n / 2, scale=2 * (c @ np.linalg.inv(Psi_n) @ c))
        assert p_value(inverse, law) > 1e-3
        scaled = (means - m_n) @ c * np.sqrt(lam_n / quadratic)
        assert p_value(scaled, stats.norm()) > 1e-3


@pytest.mark.parametrize("kind", ["half-t", "gamma"])
def test_unknown_scales_are_drawn_from_their_law(kind):
    """Without data worth the name the prior of the variances comes back."""
    if kind == "half-t":
        covariates = HuangWandPrior(np.zeros(1), 1.0, np.array([0.5]), 4.0)
        half_t = stats.t(4.0, scale=0.5)  # nu - k + 1 degrees of freedom; folded

        def cdf(variance):
            return 2 * half_t.cdf(np.sqrt(variance)) - 1
    else:
        covariates = HierarchicalNIWPrior(np.zeros(1), 1.0, np.array([0.4]), 6.0, 2.0)

        def cdf(variance):
            # T = psi / chi²(nu) and psi ~ Gamma(shape, rate): a ratio of gammas.
            return stats.betaprime(2.0, 3.0).cdf(2.0 * covariates.rate[0] * variance)

    o = problem(1, n=60, scale=1e5, family="gaussian")
    prior, _ = defaults(1)
    draws = gibbs.sample(
        [o], prior, covariates, chains=4, draws=20_000, seed=15, keep_covariates=True
    )
    variance = draws.T[:, ::20, 0, 0].ravel()  # thinned to nearly independent draws
    assert stats.kstest(variance, cdf).pvalue > 1e-3
    assert stats.kstest(variance, lambda v: cdf(1.3 * v)).pvalue < 1e-3  # it would notice
