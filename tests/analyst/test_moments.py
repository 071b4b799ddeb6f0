"""Moments of the sufficient statistics: against quadrature, simulation and each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from noisewise.analyst.regression.papers import gibbs
from noisewise.analyst.regression.papers.moments import (
    CovariateMoments,
    FourthMomentObservation,
    entry_positions,
    fourth_monomials,
    normal_factor,
    released_moments,
    unique_entries,
)
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.statistics import FourthMoments

from .gibbs_problems import statistic_moments

# A skewed, correlated law of two covariates on five points, so that odd moments do not vanish.
POINTS = np.array([[-0.9, 0.2], [-0.3, -0.8], [0.1, 0.9], [0.7, 0.4], [1.0, -0.5]])
WEIGHTS = np.array([0.35, 0.25, 0.2, 0.15, 0.05])
THETA = np.array([0.3, -0.7, 0.5])
SIGMA2 = 0.2


def products(w):
    rows, columns = unique_entries(w.shape[1])
    return w[:, rows] * w[:, columns]


def discrete_moments():
    v = np.column_stack([np.ones(len(POINTS)), POINTS])
    t = products(v)
    mean = WEIGHTS @ t
    second = (t * WEIGHTS[:, None]).T @ t
    return CovariateMoments((v * WEIGHTS[:, None]).T @ v, second - np.outer(mean, mean))


def by_quadrature():
    """Exact mean and covariance: sums over the points, Gauss-Hermite over the error."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    x = np.repeat(POINTS, nodes.size, axis=0)
    e = np.sqrt(SIGMA2) * np.tile(nodes, len(POINTS))
    weight = np.outer(WEIGHTS, weights / weights.sum()).ravel()
    y = THETA[0] + x @ THETA[1:] + e
    t = products(np.column_stack([np.ones(y.size), x, y]))
    mean = weight @ t
    return mean, (t * weight[:, None]).T @ t - np.outer(mean, mean)


def main_text_covariance(moments, theta, sigma2):
    """The covariance as printed in section 3.4.1 of the paper: xi_ij,kl for Cov(x_i y, x_j y)."""
    _, covariance = statistic_moments(moments, theta, sigma2)
    d = theta.size
    v, w = entry_positions(d), entry_positions(d + 1)
    for i, j in itertools.product(range(d), repeat=2):
        total = sigma2 * moments.eta[i, j]
        for k, m in itertools.product(range(d), repeat=2):
            if v[i, j] >= 0 and v[k, m] >= 0:
                total += theta[k] * theta[m] * moments.xi[v[i, j], v[k, m]]
        covariance[w[i, d], w[j, d]] = total
    return covariance


def test_entries_are_unique_and_leave_out_the_constant():
    rows, columns = unique_entries(4)
    assert list(zip(rows, columns, strict=True)) == [
        (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)
    ]  # fmt: skip
    positions = entry_positions(4)
    assert positions[0, 0] == -1
    assert (positions == positions.T).all()
    assert (positions[rows, columns] == np.arange(9)).all()


def test_general_formula_equals_quadrature():
    mean, covariance = statistic_moments(discrete_moments(), THETA, SIGMA2)
    exact_mean, exact_covariance = by_quadrature()
    np.testing.assert_allclose(mean, exact_mean, atol=1e-13)
    np.testing.assert_allclose(covariance, exact_covariance, atol=1e-13)


def test_the_main_texts_covariance_is_wrong():
    """Negative control: item 9. The printed term differs from the truth, clearly."""
    wrong = main_text_covariance(discrete_moments(), THETA, SIGMA2)
    assert np.abs(wrong - by_quadrature()[1]).max() > 0.01


def test_general_formula_by_simulation():
    """Every entry within Monte Carlo error; the main text's covariance far outside."""
    rng = np.random.default_rng(1)
    size = 400_000
    x = POINTS[rng.choice(len(POINTS), size=size, p=WEIGHTS)]
    y = THETA[0] + x @ THETA[1:] + np.sqrt(SIGMA2) * rng.standard_normal(size)
    t = products(np.column_stack([np.ones(size), x, y]))
    moments = discrete_moments()
    mean, covariance = statistic_moments(moments, THETA, SIGMA2)
    z_mean = (t.mean(axis=0) - mean) / (t.std(axis=0) / np.sqrt(size))
    assert np.abs(z_mean).max() < 4.5
    centred = t - mean

    def worst(candidate):
        scores = []
        for i in range(t.shape[1]):
            product = centred[:, i : i + 1] * centred
            error = product.std(axis=0) / np.sqrt(size)
            scores.append(np.abs(product.mean(axis=0) - candidate[i]) / error)
        return np.max(scores)

    assert worst(covariance) < 4.5  # 64 entries
    assert worst(main_text_covariance(moments, THETA, SIGMA2)) > 10


def test_normal_moments_by_simulation():
    rng = np.random.default_rng(2)
    size = 300_000
    mu, T = np.array([0.4, -0.2]), np.array([[0.3, 0.1], [0.1, 0.2]])
    x = rng.multivariate_normal(mu, T, size=size)
    y = THETA[0] + x @ THETA[1:] + np.sqrt(SIGMA2) * rng.standard_normal(size)
    t = products(np.column_stack([np.ones(size), x, y]))
    mean, covariance = statistic_moments(CovariateMoments.normal(mu, T), THETA, SIGMA2)
    centred = t - mean
    assert np.abs(t.mean(axis=0) - mean).max() < 4.5 * np.sqrt(covariance.max() / size)
    for i in range(t.shape[1]):
        product = centred[:, i : i + 1] * centred
        error = product.std(axis=0) / np.sqrt(size)
        assert (np.abs(product.mean(axis=0) - covariance[i]) < 4.5 * error).all()


@pytest.mark.parametrize("k", [0, 1, 2, 4])
def test_the_normal_closed_form_is_the_general_formula(k):
    """Item 25: 2n (GYG - (m'Ym) mm') is the covariance of <Y, ww'>, and the factor gives E[ww']."""
    rng = np.random.default_rng(k)
    root = rng.standard_normal((k, k))
    mu, T = rng.standard_normal(k), root @ root.T + np.eye(k)
    theta = rng.standard_normal(k + 1)
    F, G = normal_factor(theta, 0.3, mu, np.linalg.cholesky(T))
    rows, columns = unique_entries(k + 2)
    if k == 0:  # y ~ N(theta_0, 0.3): sums of y and y²
        mean = np.array([theta[0], theta[0] ** 2 + 0.3])
        cross = 2 * theta[0] * 0.3
        covariance = np.array([[0.3, cross], [cross, 2 * 0.3**2 + 4 * theta[0] ** 2 * 0.3]])
    else:
        mean, covariance = statistic_moments(CovariateMoments.normal(mu, T), theta, 0.3)
    np.testing.assert_allclose(G[rows, columns], mean, rtol=1e-12)
    c = rng.standard_normal(rows.size)
    Y = np.zeros(G.shape)
    np.add.at(Y, (rows, columns), c / 2)
    np.add.at(Y, (columns, rows), c / 2)
    applied = gibbs.apply_covariance(7.0, gibbs.Moments(F, G, np.zeros((0, 0))), Y)
    np.testing.assert_allclose(applied[rows, columns], 7.0 * covariance @ c, rtol=1e-9, atol=1e-9)
    assert abs(applied[0, 0]) < 1e-9


def test_moments_of_a_normal_inverse_wishart_row():
    """The multivariate t's fourth moments, by simulating the hierarchy row by row."""
    prior = NIWPrior(np.array([0.3, -0.1]), 2.0, np.array([[4.0, 1.0], [1.0, 3.0]]), 14.0)
    rng = np.random.default_rng(4)
    size = 100_000
    roots = np.linalg.cholesky(np.linalg.inv(prior.Psi))
    wishart = np.einsum("ab,nbc->nac", roots, rng.standard_normal((size, 2, 14)))
    T = np.linalg.inv(wishart @ wishart.transpose(0, 2, 1))
    spread = np.linalg.cholesky(T * (1 + 1 / prior.lam))
    x = prior.m + np.einsum("nab,nb->na", spread, rng.standard_normal((size, 2)))
    v = np.column_stack([np.ones(size), x])
    t = products(v)
    moments = CovariateMoments.from_niw(prior)
    rows, columns = unique_entries(3)
    centred = t - moments.eta[rows, columns]
    assert (np.abs(centred.mean(axis=0)) < 4.5 * t.std(axis=0) / np.sqrt(size)).all()
    for i in range(t.shape[1]):
        product = centred[:, i : i + 1] * centred
        error = product.std(axis=0) / np.sqrt(size)
        assert (np.abs(product.mean(axis=0) - moments.xi[i]) < 4.5 * error).all()
    # Negative control: a normal law of the same mean and covariance has too small fourth moments.
    normal = CovariateMoments.normal(prior.m, moments.eta[1:, 1:] - np.outer(prior.m, prior.m))
    assert np.abs(normal.xi - moments.xi).max() > 0.02


def test_no_fourth_moments_is_an_error():
    with pytest.raises(RequestError, match="nu > k \\+ 3"):
        CovariateMoments.from_niw(NIWPrior(np.zeros(2), 1.0, np.eye(2), 4.0))


def test_monte_carlo_moments_come_near_the_formula():
    def draw(rng, size):
        return rng.multivariate_normal([0.4, -0.2], [[0.3, 0.1], [0.1, 0.2]], size=size)

    exact = CovariateMoments.normal(np.array([0.4, -0.2]), np.array([[0.3, 0.1], [0.1, 0.2]]))
    monte_carlo = CovariateMoments.from_prior(draw, size=200_000, seed=5)
    np.testing.assert_allclose(monte_carlo.eta, exact.eta, atol=0.01)
    np.testing.assert_allclose(monte_carlo.xi, exact.xi, atol=0.02)
    again = CovariateMoments.from_prior(draw, size=200_000, seed=5)
    np.testing.assert_array_equal(monte_carlo.xi, again.xi)


@pytest.mark.parametrize(
    ("eta", "xi", "message"),
    [
        (np.ones((2, 3)), np.eye(2), "square"),
        (np.eye(2), np.eye(3), "xi must be 2 by 2"),
        (np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]]), "positive semi-definite"),
        (np.eye(2), np.array([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (2 * np.eye(2), np.eye(2), "constant 1"),
        (np.eye(2), np.array([[1.0, np.inf], [np.inf, 1.0]]), "finite"),
    ],
)
def test_impossible_moments_are_refused(eta, xi, message):
    with pytest.raises(RequestError, match=message):
        CovariateMoments(eta, xi)


# --- released fourth moments ----------------------------------------------------------------------


def fourth_sums(x):
    v = np.column_stack([np.ones(len(x)), x])
    return np.array([v[:, list(m)].prod(axis=1).sum() for m in fourth_monomials(x.shape[1])])


def test_monomials_have_the_order_of_a_release():
    class Design:
        columns = ("a", "b", "c", "target")

    assert fourth_monomials(3) == FourthMoments(Design()).entries


def test_released_moments_without_noise_are_the_sample_moments():
    x = np.random.default_rng(6).uniform(-1, 1, size=(500, 2)) ** 2
    halves = [
        FourthMomentObservation(len(part), 2, fourth_sums(part), 1.0, "laplace")
        for part in (x[:200], x[200:])
    ]
    released = released_moments(halves)
    sample = CovariateMoments.from_draws(x)
    np.testing.assert_allclose(released.eta, sample.eta, atol=1e-12)
    np.testing.assert_allclose(released.xi, sample.xi, atol=1e-12)


def test_released_moments_are_made_possible():
    rng = np.random.default_rng(7)
    sums = fourth_sums(rng.uniform(-1, 1, size=(50, 3))) + 200 * rng.laplace(size=34)
    moments = released_moments([FourthMomentObservation(50, 3, sums, 200.0, "laplace")])
    mean = moments.eta[0, 1:]
    assert np.linalg.eigvalsh(moments.eta[1:, 1:] - np.outer(mean, mean))[0] > 0
    assert np.linalg.eigvalsh(moments.xi)[0] > 0


@pytest.mark.parametrize(
    "change",
    [{"n": 0}, {"values": np.zeros(3)}, {"values": np.full(4, np.nan)}, {"scale": -1.0},
     {"family": "cauchy"}],
)  # fmt: skip
def test_bad_fourth_moments_are_refused(change):
    good = {"n": 10, "k": 1, "values": np.zeros(4), "scale": 1.0, "family": "laplace"}
    with pytest.raises(ReleaseError):
        FourthMomentObservation(**(good | change))
