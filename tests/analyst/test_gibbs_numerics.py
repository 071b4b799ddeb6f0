"""Random numbers and linear algebra of the Gibbs kernels, against SciPy and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst import random_numbers as random
from noisewise.analyst.regression.exact import triangular
from noisewise.analyst.regression.papers import gibbs_eigen, gibbs_linalg, gibbs_triangular

from .gibbs_problems import p_value, stream

# --- random numbers -------------------------------------------------------------------------------


def many(function, *arguments, seed=1, size=20_000):
    rng = stream(seed)
    return np.array([function(rng, *arguments) for _ in range(size)])


def test_normals():
    rng, drawn = stream(1), np.zeros(1_000_000)
    random.fill_normal(rng, drawn, drawn.size)
    far = np.abs(drawn) > 3.0  # through the lowest layers, and the tail behind them
    pieces = {
        "all": (drawn, stats.norm.cdf),
        "tails": (np.abs(drawn[far]), lambda x: 1 - stats.norm.sf(x) / stats.norm.sf(3.0)),
        "neighbours": ((drawn[::2] + drawn[1::2]) / np.sqrt(2), stats.norm.cdf),
    }
    for values, cdf in pieces.values():
        assert stats.kstest(values, cdf).pvalue > 1e-3
        assert stats.kstest(1.02 * values, cdf).pvalue < 1e-4  # a scale that is 2% off is noticed
    assert abs(far.sum() - 2e6 * stats.norm.sf(3.0)) < 4 * np.sqrt(2e6 * stats.norm.sf(3.0))


@pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 300.0])
def test_gammas(shape):
    sample = many(random.gamma, shape)
    assert p_value(sample, stats.gamma(shape)) > 1e-3
    assert p_value(sample, stats.gamma(shape, scale=1 + 0.2 / np.sqrt(shape))) < 1e-3


@pytest.mark.parametrize("degrees", [1.3, 2.0, 7.0, 40.0, 1e5])
def test_chi(degrees):
    assert p_value(many(random.chi, degrees), stats.chi(degrees)) > 1e-3


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


SIZES = [1, 2, 3, 4, 5, 6, 7, 9, 16, 33]  # with and without rows beside the blocks of four


@pytest.mark.parametrize("size", SIZES)
def test_linear_algebra(size):
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    Y, L = root + root.T, np.tril(root)
    out, scratch = np.zeros((size, size)), np.zeros((size, size))
    for function, expected in (
        (gibbs_linalg.congruence, root @ Y @ root.T),
        (gibbs_linalg.congruence_transposed, root.T @ Y @ root),
    ):
        function(root, Y, out, scratch, size)
        np.testing.assert_allclose(out, expected, atol=1e-10)
    gibbs_linalg.congruence_lower(L, Y, out, scratch, size)
    np.testing.assert_allclose(out, L @ Y @ L.T, atol=1e-10)


@pytest.mark.parametrize("size", SIZES)
def test_triangles(size):
    """Results have a triangle; what is in the other one must not matter."""
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    A = root @ root.T + 0.1 * np.eye(size)
    L = np.where(np.tri(size, dtype=bool), A, np.nan)
    assert gibbs_triangular.cholesky(L, size)
    L = np.tril(L)
    np.testing.assert_allclose(L, np.linalg.cholesky(A), atol=1e-12)
    x, other = rng.standard_normal((2, size))
    for solve, matrix in (
        (gibbs_triangular.solve_lower, L),
        (gibbs_triangular.solve_lower_transposed, L.T),
    ):
        y = x.copy()
        solve(L, y, size)
        np.testing.assert_allclose(matrix @ y, x, atol=1e-9)
    y, z = x.copy(), other.copy()
    gibbs_triangular.solve_two(L, y, z, size)
    np.testing.assert_allclose(L @ np.column_stack([y, z]), np.column_stack([x, other]), atol=1e-9)
    W, V, out = np.zeros((3, size, size))
    triangular.invert_triangle(L, size, W)
    np.testing.assert_allclose(W, np.linalg.inv(L), atol=1e-8)
    gibbs_triangular.gram_of_lower(W, out, size)
    np.testing.assert_allclose(out, np.linalg.inv(A), rtol=1e-6, atol=1e-8)
    gibbs_triangular.invert_transposed(L, V, size)
    np.testing.assert_allclose(V, np.linalg.inv(L).T, atol=1e-8)
    out[:] = np.nan
    gibbs_triangular.gram_of_upper(V, out, size)
    np.testing.assert_allclose(np.tril(out), np.tril(np.linalg.inv(A)), rtol=1e-6, atol=1e-8)
    gibbs_triangular.square_of_lower(L, out, size)
    np.testing.assert_allclose(np.tril(out), np.tril(A), atol=1e-12)
    B = np.where(np.tri(size, dtype=bool).T, root, np.nan)  # a lower triangle, as its transpose
    product = np.tril(L) @ np.triu(root).T
    gibbs_triangular.multiply_lower(L, B, out, size)
    np.testing.assert_allclose(np.tril(out), product, atol=1e-12)
    gibbs_triangular.multiply_lower(L, B, L, size)
    np.testing.assert_allclose(np.tril(L), product, atol=1e-12)


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


@pytest.mark.parametrize("size", SIZES[:-1])
def test_not_positive_definite_is_noticed(size):
    """Whichever pivot fails, and however."""
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    for at in range(size):
        for bad in (-1e-6, -50.0, np.nan, np.inf):
            A = root @ root.T + np.eye(size)
            L = np.linalg.cholesky(A)
            A[at, at] += bad - L[at, at] ** 2  # what is left of the diagonal at this pivot is `bad`
            assert not gibbs_triangular.cholesky(A, size)
