"""Random numbers and linear algebra of the Gibbs kernels, against SciPy and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.samplers import gibbs_eigen, gibbs_linalg
from noisewise.analyst.samplers import gibbs_random as random

from .gibbs_problems import p_value, stream

# --- random numbers -------------------------------------------------------------------------------


def many(function, *arguments, seed=1, size=20_000):
    rng = stream(seed)
    return np.array([function(rng, *arguments) for _ in range(size)])


def test_normals():
    rng, out = stream(1), np.zeros(50_001)
    random.fill_normal(rng, out, out.size)
    assert p_value(out, stats.norm()) > 1e-3
    assert p_value(out, stats.norm(scale=1.06)) < 1e-3  # it would notice
    pairs = out[:-1].reshape(-1, 2)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 4.5 / np.sqrt(len(pairs))


@pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 300.0])
def test_gammas(shape):
    sample = many(random.gamma, shape)
    assert p_value(sample, stats.gamma(shape)) > 1e-3
    assert p_value(sample, stats.gamma(shape, scale=1 + 0.2 / np.sqrt(shape))) < 1e-3


def test_chi():
    assert p_value(many(random.chi, 7.0), stats.chi(7)) > 1e-3


@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 30.0])
def test_laplace_variance_is_the_inverse_gaussian_of_the_paper(q):
    """Item 10: 1 / omega2 is inverse Gaussian with mean 1/q and shape 1 (on unit scale)."""
    sample = many(random.laplace_variance, q)
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
    own = stream(3)
    t = np.array([random.laplace_variance(own, abs(value)) for value in r])
    assert p_value(np.sqrt(t) * rng.standard_normal(t.size), stats.laplace()) > 1e-3


def test_streams_differ_by_key_and_counter():
    words = {tuple(stream(seed, counter)) for seed in range(20) for counter in range(-1, 20)}
    assert len(words) == 20 * 21


# --- linear algebra -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 9, 16, 33])
def test_linear_algebra(size):
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    A = root @ root.T + 0.1 * np.eye(size)
    Y = root + root.T
    L = A.copy()
    assert gibbs_linalg.cholesky(L, size)
    np.testing.assert_allclose(np.tril(L), np.linalg.cholesky(A), atol=1e-12)
    L = np.tril(L)
    x = rng.standard_normal(size)
    for solve, matrix in (
        (gibbs_linalg.solve_lower, L),
        (gibbs_linalg.solve_lower_transposed, L.T),
    ):
        y = x.copy()
        solve(L, y, size)
        np.testing.assert_allclose(matrix @ y, x, atol=1e-9)
    out, scratch = np.zeros((size, size)), np.zeros((size, size))
    for function, expected in (
        (gibbs_linalg.congruence, root @ Y @ root.T),
        (gibbs_linalg.congruence_transposed, root.T @ Y @ root),
    ):
        function(root, Y, out, scratch, size)
        np.testing.assert_allclose(out, expected, atol=1e-10)
    gibbs_linalg.congruence_lower(L, Y, out, scratch, size)
    np.testing.assert_allclose(out, L @ Y @ L.T, atol=1e-10)
    gibbs_linalg.invert_lower(L, scratch, size)
    np.testing.assert_allclose(np.tril(scratch), np.linalg.inv(L), atol=1e-8)
    gibbs_linalg.gram_of_lower(scratch, out, size)
    np.testing.assert_allclose(out, np.linalg.inv(A), rtol=1e-6, atol=1e-8)
    X = np.tril(root)
    expected = X @ np.linalg.inv(L)
    gibbs_linalg.right_solve_lower(X, L, size)
    np.testing.assert_allclose(np.tril(X), expected, atol=1e-8)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 21, 50])
@pytest.mark.parametrize("kind", ["random", "diagonal", "equal", "rank one"])
def test_eigen(size, kind):
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    A = {
        "random": root @ root.T,
        "diagonal": np.diag(rng.uniform(1, 2, size)),
        "equal": np.full((size, size), 0.3) + 0.7 * np.eye(size),
        "rank one": np.outer(root[0], root[0]),
    }[kind]
    V, values = np.zeros((size, size)), np.zeros(size)
    assert gibbs_eigen.eigen(A.copy(), V, values, np.zeros((3, size)), size)
    np.testing.assert_allclose(V @ V.T, np.eye(size), atol=1e-12)
    np.testing.assert_allclose((V.T * values) @ V, A, atol=1e-11 * max(1, np.abs(A).max()))


def test_not_positive_definite_is_noticed():
    assert not gibbs_linalg.cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]), 2)
    assert not gibbs_linalg.cholesky(np.full((5, 5), np.nan), 5)
