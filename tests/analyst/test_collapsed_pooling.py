"""The linear change of coordinates across holders: it is what it says, and does what it is for."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.exact.c_callback import c_density
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.pooling import (
    from_pooled,
    gradient_to_pooled,
    pooling,
    to_pooled,
)
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import HierarchicalNIWPrior, NIGPrior, NIWPrior


def holder(seed, n, k, noise, known=(), private=False):
    rng = np.random.default_rng([seed, n, k])
    x = 0.1 + 0.4 * rng.standard_normal((n, k))
    y = 0.2 + 0.3 * x.sum(axis=1) + 0.3 * rng.standard_normal(n)
    w = np.column_stack([np.ones(n), x, y])
    scale = np.full((k + 2, k + 2), float(noise))
    if not private:
        scale[0, 0] = 0.0
    for a, b in known:
        scale[a, b] = scale[b, a] = 0.0
    noisy = np.triu(w.T @ w + scale * rng.laplace(size=scale.shape))
    noisy += np.triu(noisy, 1).T
    if private:
        return Observation.with_private_n(noisy, scale, "laplace")
    return Observation(n, noisy, scale, "gaussian")


def posterior(case):
    k, hierarchical, forced = 3, False, {}
    seen = [holder(j, 400, k, 40.0) for j in range(3)]
    if case == "unequal":
        seen = [holder(j, n, k, s) for j, (n, s) in enumerate([(90, 15), (4000, 80), (700, 300)])]
    elif case == "known":
        seen = [
            holder(j, 400, k, 12.0, at) for j, at in enumerate([[(1, 1)], [(2, 2), (0, 1)], []])
        ]
    elif case == "private n":
        seen = [holder(j, 400, k, 40.0, private=True) for j in range(3)]
    elif case == "partial":
        forced = {"partial": True}
    elif case == "hierarchical":
        hierarchical = True
    elif case == "none relative":
        forced = {"relative": False}
    prior = NIGPrior(np.zeros(k + 1), np.eye(k + 1), 3.0, 0.5)
    covariates = (HierarchicalNIWPrior if hierarchical else NIWPrior).weakly_informative(k)
    return CollapsedPosterior(seen, prior, covariates, **forced)


CASES = ["plain", "unequal", "known", "private n", "partial", "hierarchical", "none relative"]


@pytest.mark.parametrize("case", CASES)
def test_the_map_its_inverse_and_its_gradient(case):
    model = posterior(case)
    pooled = pooling(model.arrays)
    assert (pooled.place.size > 0) == (case != "none relative")
    rng = np.random.default_rng(1)
    y = rng.standard_normal(model.ndim)
    x = np.empty_like(y)
    from_pooled(y, x, *pooled)
    np.testing.assert_allclose(to_pooled(x, pooled), y, rtol=1e-12, atol=1e-12)
    image = np.empty((model.ndim, model.ndim))
    for i, unit in enumerate(np.eye(model.ndim)):
        from_pooled(unit, image[i], *pooled)
    np.testing.assert_allclose(y @ image, x, rtol=1e-12, atol=1e-12)  # linear
    gradient = rng.standard_normal(model.ndim)
    ours = gradient.copy()
    gradient_to_pooled(ours, *pooled)
    np.testing.assert_allclose(ours, image @ gradient, rtol=1e-12, atol=1e-12)
    assert np.linalg.cond(image) < 1e3  # nothing is blown up by a poor guess


@pytest.mark.parametrize("case", CASES)
def test_the_engine_sees_the_density_in_the_new_coordinates(case):
    model = posterior(case)
    state = exact.init(model, np.random.default_rng(2))
    kernel = exact.build_kernel(model, state)
    y, gradient, logp = np.array(kernel.start), np.empty(model.ndim), np.empty(1)

    def density(y):
        addresses = (a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in (y, gradient, logp))
        assert c_density().ctypes(model.ndim, *addresses, kernel.table.ctypes.data) == 0
        return logp[0]

    assert density(y) == pytest.approx(state.logp, rel=1e-12)
    by_hand = np.array(gradient)
    direction = np.random.default_rng(3).standard_normal(model.ndim)
    step = 1e-5 * direction
    slope = (density(y + step) - density(y - step)) / 2e-5
    if not model.arrays.laplace.any():  # whose force is rounded off at its kinks
        assert slope == pytest.approx(direction @ by_hand, rel=1e-5, abs=1e-5)


def test_holders_are_nearly_uncorrelated_in_the_new_coordinates():
    seen = [holder(j, 1500, 4, 25.0) for j in range(5)]
    prior = NIGPrior.weakly_informative(4)
    model = CollapsedPosterior(seen, prior, NIWPrior.weakly_informative(4))
    drawn = exact.sample_posterior(model, chains=2, draws=2000, seed=1, keep_covariates=False)
    x = drawn.x.reshape(-1, model.ndim)
    pooled = pooling(model.arrays)
    y = np.array([to_pooled(point, pooled) for point in x])

    def largest(values):
        same = pooled.entry[:, None] == pooled.entry[None, :]
        np.fill_diagonal(same, False)
        among = np.corrcoef(values[:, pooled.place].T)[same]
        own = [
            np.corrcoef(values[:, i], values[:, r])[0, 1]
            for i, r in zip(pooled.place, pooled.reference, strict=True)
        ]
        return np.abs(among).mean(), np.abs(own).mean()

    assert min(largest(x)) > 0.25  # what it is for
    assert max(largest(y)) < 0.1
