"""Random numbers and linear algebra that the samplers of the papers share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.regression.papers import gibbs, shared

from .gibbs_problems import p_value


@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 30.0])
def test_laplace_variance_is_the_inverse_gaussian_of_the_paper(q):
    """1 / omega2 is inverse Gaussian with mean 1/q and shape 1 (on unit scale)."""
    rng = np.random.default_rng(1)
    sample = np.array([gibbs.laplace_variance(rng, q) for _ in range(20_000)])
    if q == 0:  # the limit
        assert p_value(sample, stats.chi2(1)) > 1e-3
        return
    law = stats.invgauss(1 / q)  # scipy: mean mu = 1/q, shape 1
    assert p_value(1 / sample, law) > 1e-3
    assert p_value(1 / sample, stats.invgauss(1.5 / q, scale=1.2)) < 1e-3


def test_laplace_is_stationary_under_the_augmentation():
    """r ~ Laplace, t | r, r' | t ~ N(0, t): r' is Laplace again."""
    rng = np.random.default_rng(2)
    r = rng.laplace(size=20_000)
    own = np.random.default_rng(3)
    t = np.array([gibbs.laplace_variance(own, abs(value)) for value in r])
    assert p_value(np.sqrt(t) * rng.standard_normal(t.size), stats.laplace()) > 1e-3


@pytest.mark.parametrize("size", [0, 1, 2, 7, 30])
def test_triangles(size):
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size + 3))
    A, b = root @ root.T, rng.standard_normal(size)
    L, proper = shared.factor(A)
    assert proper
    np.testing.assert_allclose(L @ L.T, A, atol=1e-12)
    np.testing.assert_allclose(L @ shared.solve_lower(L, b), b, atol=1e-10)
    np.testing.assert_allclose(L.T @ shared.solve_upper(L, b), b, atol=1e-10)
    np.testing.assert_allclose(L @ shared.inverse_lower(L), np.eye(size), atol=1e-10)


@pytest.mark.parametrize("bad", [np.diag([1.0, -1.0]), np.diag([1.0, np.nan]), np.zeros((2, 2))])
def test_not_positive_definite_is_noticed(bad):
    assert not shared.factor(bad)[1]


@pytest.mark.parametrize(("degrees", "step"), [(5.0, -1.0), (3.0, 1.0)])
def test_bartlett_factors_are_those_of_a_wishart_law(degrees, step):
    rng = np.random.default_rng(4)
    R = np.array([shared.bartlett(rng, degrees, step, 3) for _ in range(20_000)])
    for i in range(3):
        assert p_value(R[:, i, i] ** 2, stats.chi2(degrees + i * step)) > 1e-3
    assert p_value(R[:, 2, 0], stats.norm()) > 1e-3
    assert p_value(R[:, 0, 0] ** 2, stats.chi2(degrees + 0.3)) < 1e-3
