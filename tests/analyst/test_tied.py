"""Rows of indicators, whose sum of squares is their sum."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from scipy.special import multigammaln

from noisewise.analyst.regression.categories import FREE, TIED
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.independent import _place, draw_independent
from noisewise.analyst.regression.exact.sampler import sample
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import (
    ScaleFreeCovariates,
    ScaleFreePrior,
)

from .size_law import log_size_and_law
from .test_collapsed import point_off_the_kinks

# Levels of the categories, how many numbers stand before and after their indicators, and the terms
# by the categories that each is made of.
LAYOUTS = {
    "yes or no": ((2,), 0, 0, "a"),
    "yes or no among numbers": ((2,), 2, 1, "a"),
    "five levels": ((5,), 1, 0, "a"),
    "two categories": ((3, 3), 1, 1, "a b"),
    "three of two levels": ((2, 2, 2), 0, 1, "a b c"),
    "a*b": ((3, 3), 1, 1, "a b ab"),
    "a*b, levels that exclude each other": ((2, 3), 0, 1, "a b ab"),
    "a*b*c": ((2, 2, 2), 0, 1, "a b c ab ac bc abc"),
    "(a + b + c)**2": ((2, 3, 2), 0, 1, "a b c ab ac bc"),
}


def observe(rng, layout, n=400, scale=20.0, family="laplace", *, private=False, rare=0.1):
    """A noisy Gram matrix of rows with categories, the last level of each the most frequent."""
    levels, before, after, terms = LAYOUTS[layout]
    codes = [
        rng.choice(count, size=n, p=[rare] * (count - 1) + [1 - rare * (count - 1)])
        for count in levels
    ]
    cells = [
        dict(zip(term, chosen, strict=True))
        for term in terms.split()
        for chosen in product(*(range(levels["abc".index(f)] - 1) for f in term))
    ]
    indicators = [
        np.all([codes["abc".index(f)] == level for f, level in cell.items()], axis=0)
        for cell in cells
    ]
    x = rng.normal(0.1, 0.3, (n, before + after))
    columns = [*x[:, :before].T, *indicators, *x[:, before:].T]
    y = 0.3 * np.sum(columns, axis=0) + rng.normal(0.0, 0.2, n)
    w = np.column_stack([np.ones(n), *columns, y])
    scales = np.full((w.shape[1],) * 2, float(scale))
    scales[0, 0] = scale if private else 0.0
    tied = range(before + 1, before + 1 + len(cells))
    for (i, one), (j, other) in combinations(zip(tied, cells, strict=True), 2):
        if any(one[f] != other[f] for f in one.keys() & other.keys()):
            scales[i, j] = scales[j, i] = 0.0
    draw = rng.laplace if family == "laplace" else rng.normal
    noisy = np.triu(w.T @ w + draw(0.0, scales))
    noisy += np.triu(noisy, 1).T
    meant = {
        i: frozenset((("column", f), str(level)) for f, level in cell.items())
        for i, cell in zip(tied, cells, strict=True)
    }
    make = Observation.with_private_n if private else partial(Observation, n)
    return replace(make(noisy, scales, family, indicators=tuple(tied)), cells=meant)


def scale_free(k):
    return ScaleFreePrior(k), ScaleFreeCovariates.default(k)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("private", [False, True])
def test_gradient_against_finite_differences(layout, private):
    rng = np.random.default_rng([5, private])
    seen = observe(rng, layout, private=private)
    posterior = CollapsedPosterior([seen], *scale_free(seen.k))
    assert (posterior.arrays.known == TIED).sum() == len(seen.indicators)
    x = point_off_the_kinks(rng, posterior, 1e-4)
    _, gradient = posterior.logp_and_gradient(x)
    for i in range(posterior.ndim):
        step = np.zeros(posterior.ndim)
        step[i] = 1e-5
        up, down = (posterior.logp_and_gradient(x + s * step)[0] for s in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=2e-5, abs=2e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_statistics_are_those_of_indicators(layout):
    """In the order the columns were given in, numbers first."""
    rng = np.random.default_rng(6)
    seen = observe(rng, layout)
    posterior = CollapsedPosterior([seen], *scale_free(seen.k))
    A = posterior.statistics(point_off_the_kinks(rng, posterior, 1e-4))[0]
    tied = list(seen.indicators)
    np.testing.assert_allclose(A[tied, tied], A[tied, 0], rtol=1e-9)
    assert (A[tied, 0] > 0).all()
    np.linalg.cholesky(A)
    if layout == "(a + b + c)**2":
        return  # cells of a:b and a:c that exclude each other are taken for noisy
    np.testing.assert_allclose(A[seen.scale == 0], seen.values[seen.scale == 0], atol=1e-9)


@pytest.mark.parametrize("layout", ["a*b", "a*b*c", "a*b, levels that exclude each other"])
def test_statistics_are_those_of_a_table_of_counts(layout):
    """Whichever columns state the count of a cell it is the same, and no count is negative."""
    rng = np.random.default_rng(11)
    seen = observe(rng, layout)
    posterior = CollapsedPosterior([seen], *scale_free(seen.k))
    for _ in range(20):
        A = posterior.statistics(rng.normal(0.0, 2.0, posterior.ndim))[0]
        count = {}
        for (i, one), (j, other) in product(seen.cells.items(), repeat=2):
            cell = one | other
            if len(dict(cell)) < len(cell):
                assert abs(A[i, j]) < 1e-9
            assert A[i, j] == pytest.approx(count.setdefault(cell, A[i, j]), rel=1e-9, abs=1e-9)
        levels = [sorted({c for cell in count for c in cell if c[0] == f}) for f in
                  sorted({f for cell in count for f, _ in cell})]  # fmt: skip
        count[frozenset()] = A[0, 0]
        for chosen in product(*([None, *each] for each in levels)):
            # By inclusion and exclusion: at the reference of all categories that are not chosen.
            others = [list(each) for each, c in zip(levels, chosen, strict=True) if c is None]
            at = frozenset(c for c in chosen if c is not None)
            total = sum(
                (-1) ** sum(c is not None for c in more)
                * count[at | frozenset(c for c in more if c is not None)]
                for more in product(*([None, *each] for each in others))
            )
            assert total > -1e-9


def log_density(posterior, x, entries):
    """Log density of these entries of A, by a numeric Jacobian."""
    steps = 1e-5 * np.eye(posterior.ndim)

    def free(point):
        A = posterior.statistics(point)[0]
        size, _ = log_size_and_law(posterior, point)
        return np.array([*(A[at] for at in entries), *size, *point[len(entries) + len(size) :]])

    jacobian = [(free(x + step) - free(x - step)) / 2e-5 for step in steps]
    density = posterior.logp_and_gradient(x)[0] - log_size_and_law(posterior, x)[1]
    return density - np.linalg.slogdet(np.array(jacobian))[1]


def log_block(n, A, psi, nu):
    """Log density of the Gram matrix A / n of (1, x), x normal with a flat mean, in its entries.

    T is inverse Wishart with nu degrees of freedom and psi on the diagonal; n A is n times that.
    """
    k = len(A) - 1
    S = n * (A[1:, 1:] - np.outer(A[0, 1:], A[0, 1:]))
    # The law of S given T is Wishart with n - 1 degrees of freedom, means are flat: d mean.
    logdet, posterior = np.linalg.slogdet(S)[1], np.linalg.slogdet(np.diag(psi) + S)[1]
    total = 0.5 * (n - k - 2) * logdet - 0.5 * (nu + n - 1) * posterior
    total += 0.5 * nu * np.log(psi).sum()
    total += multigammaln(0.5 * (nu + n - 1), k) - multigammaln(0.5 * nu, k)
    total -= multigammaln(0.5 * (n - 1), k)
    total -= 0.5 * k * np.log(np.pi)  # the height of the flat law, as `normalisers` has it
    return total + 0.5 * k * (k + 1) * np.log(n)  # dS = n^(k (k + 1) / 2) d(S / n)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_no_point_is_impossible(layout, spread):
    """Until rows of F are so small that double precision doesn't hold them."""
    rng = np.random.default_rng(12)
    seen = observe(rng, layout)
    posterior = CollapsedPosterior([seen], *scale_free(seen.k))
    last = len(seen.indicators) + 1
    tied = int(np.tril(posterior.arrays.known[0] == FREE)[:last, :last].sum())
    for _ in range(50):
        x = rng.normal(0.0, 0.5, posterior.ndim)
        x[:tied] = rng.normal(0.0, spread, tied)
        logp, gradient = posterior.logp_and_gradient(x)
        assert np.isfinite(logp)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("layout", ["yes or no", "two categories", "three of two levels"])
@pytest.mark.parametrize("private", [False, True])
def test_density_is_that_of_any_columns_without_the_law_of_indicators(layout, private):
    """The same rows' density in other coordinates, at the same A; over that of the first block."""
    rng = np.random.default_rng([7, private])
    seen = observe(rng, layout, private=private)
    priors = scale_free(seen.k)
    # Columns in the order that the tied posterior has them in, indicators first.
    seen = seen.in_order(CollapsedPosterior([seen], *priors).columns)
    tied = list(seen.indicators)
    others = [c for c in range(1, seen.k + 1) if c not in tied]
    ours = CollapsedPosterior([seen], *priors)
    plain = CollapsedPosterior([replace(seen, indicators=())], *priors, partial=False)
    entries = [(a, b) for a in range(seen.k + 2) for b in range(a + 1) if seen.scale[a, b] > 0]
    but_squares = [(a, b) for a, b in entries if a != b or a not in seen.indicators]
    block = [0, *seen.indicators]
    for _ in range(3):
        x = point_off_the_kinks(rng, ours, 1e-4)
        A = ours.statistics(x)[0]
        n = A[0, 0]
        F, at = np.linalg.cholesky(A / n), np.zeros(plain.ndim)
        _place(F, n, plain.arrays.known[0], at, 0)
        at = (at - plain.arrays.centre) / plain.arrays.scale
        at[-seen.k :] = x[-seen.k :]
        np.testing.assert_allclose(plain.statistics(at)[0], A, rtol=1e-7, atol=1e-7)
        # psi as `kernels` counts it
        L = F[1:-1, 1:-1]
        rate = priors[1].rate + 0.5 * np.diagonal(np.linalg.inv(L @ L.T))
        end = slice(-seen.k, None)
        psi = np.exp(plain.arrays.centre[end] + plain.arrays.scale[end] * x[end]) / rate
        expected = log_density(plain, at, entries)
        expected -= log_block(
            n, A[np.ix_(block, block)] / n, psi[: len(tied)], priors[1].nu - len(others)
        )
        # From entries of A to those of A / n, in which the law of the indicators is flat.
        all_of_them = len(tied) * (len(tied) + 3) // 2
        free = sum(a in block and b in block for a, b in but_squares if a > 0)
        expected += np.log(n) * (all_of_them - free)
        found = log_density(ours, x, but_squares)
        assert found == pytest.approx(expected, abs=1e-4)


def test_rare_levels_are_sampled():
    """Without ties half of the draws diverged here, and chains never met."""
    rng = np.random.default_rng(8)
    seen = observe(rng, "five levels", n=3000, scale=30.0, rare=0.02)
    drawn = sample([seen], *scale_free(seen.k), draws=500, seed=1, keep_covariates=False)
    assert drawn.info.diverging.mean() < 0.02
    spread = drawn.theta.mean(axis=1).std(axis=0) / drawn.theta.std(axis=(0, 1))
    assert spread.max() < 0.3


def test_products_with_a_level_that_may_be_empty_are_left_out_for_several_holders():
    rng = np.random.default_rng(10)
    rare, frequent = (observe(rng, "five levels", n=3000, rare=rare) for rare in (0.01, 0.2))
    posterior = CollapsedPosterior([rare, frequent], *scale_free(rare.k), own_laws=True)
    known = [int(np.tril(of_one, -1).sum()) for of_one in posterior.arrays.known]
    assert [known[posterior.order.index(j)] for j in (0, 1)] == [0, 6]
    drawn = sample([rare, frequent], *scale_free(rare.k), draws=300, seed=1, own_laws=True,
                   keep_covariates=False)  # fmt: skip
    assert drawn.info.diverging.mean() < 0.01


def test_independent_draws_are_left_out():
    rng = np.random.default_rng(9)
    seen = observe(rng, "yes or no", n=4000, scale=0.5)
    assert draw_independent([seen], *scale_free(seen.k), seed=1) is None
