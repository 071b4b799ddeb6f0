"""Impossible statistics are found, possible ones are left alone, and `exact` survives both."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisewise.analyst.regression import plausibility
from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.plausibility import impossible_statistics
from noisewise.analyst.regression.priors import (
    HierarchicalNIWPrior,
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)
from noisewise.core.errors import ReleaseError, RequestError

FAMILIES = ("laplace", "gaussian")


def observation(gram, scale, family="laplace", *, private=False, changes=(), missing=()):
    """An Observation of these values, without noise but where `changes` says so."""
    values = np.array(gram, dtype=float)
    scales = np.full(values.shape, float(scale))
    for (a, b), value in changes:
        values[a, b] = values[b, a] = value
    for a, b in missing:
        scales[a, b] = scales[b, a] = np.inf
    if private:
        return Observation.with_private_n(values, scales, family)
    scales[0, 0] = 0.0
    return Observation(int(values[0, 0]), values, scales, family)


def with_noise(rng, w, scale, family, private):
    draw = rng.laplace if family == "laplace" else rng.normal
    noisy = np.triu(w.T @ w) + np.triu(draw(0, scale, (w.shape[1],) * 2))
    noisy += np.triu(noisy, 1).T
    if not private:
        noisy[0, 0] = len(w)
    return observation(noisy, scale, family, private=private)


GRAM = np.array([[100.0, 10.0, 20.0], [10.0, 30.0, 12.0], [20.0, 12.0, 40.0]])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("private", [False, True])
def test_sound_releases_are_left_alone(family, private):
    """Rows at the edge of the box, where noise crosses every limit half of the time."""
    rng = np.random.default_rng(1)
    for trial in range(300):
        n, p = int(rng.integers(1, 200)), int(rng.integers(1, 12))
        w = np.column_stack([np.ones(n), np.tile(rng.choice((-1.0, 1.0), p), (n, 1))])
        if trial % 2:
            w[:, 1] = rng.integers(0, 2, n)
        seen = with_noise(rng, w, 10.0 ** rng.uniform(-3, 3), family, private)
        assert impossible_statistics(seen, indicators=[1] if trial % 2 else []) == ()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([((1, 1), 1e9)], "sum of squares of 'age' .* is 1e\\+09; about 100 rows allow 0 to 100"),
        ([((2, 2), -80.0)], "sum of squares of 'income'"),
        ([((0, 1), 160.0)], "sum of 'age' .* is 160"),
        ([((1, 2), -170.0)], "sum of products of 'age' and 'income'"),
        ([((1, 2), 95.0)], "like a correlation beyond 1 .*'age' and 'income'"),
    ],
)
def test_what_noise_cannot_explain_is_found(family, changes, words):
    names = ("intercept", "age", "income")
    for private in (False, True):
        seen = observation(GRAM, 0.7, family, private=private, changes=changes)
        assert impossible_statistics(observation(GRAM, 0.7, family, private=private)) == ()
        with pytest.raises(ReleaseError, match=words):
            raise ReleaseError(" ".join(impossible_statistics(seen, names)))
        # The same numbers are possible if the noise is larger, or if they were not released.
        wide = observation(GRAM, 1e9, family, private=private, changes=changes)
        assert impossible_statistics(wide, names) == ()
        gone = observation(
            GRAM, 0.7, family, private=private, changes=changes, missing=[changes[0][0]]
        )
        assert impossible_statistics(gone, names) == ()


def test_the_number_of_rows_and_indicators():
    few = observation(GRAM, 1.0, private=True, changes=[((0, 0), -60.0)])
    assert any("number of rows is -60" in text for text in impossible_statistics(few))
    many = observation(GRAM, 1.0, private=True, changes=[((0, 0), 2e9)])
    assert any("more than a Release can hold" in text for text in impossible_statistics(many))
    # 30 ones make 30 squares; a column of [-1, 1] could have the sum 10 and the squares 30.
    indicator = observation(GRAM, 0.1)
    assert impossible_statistics(indicator) == ()
    (found,) = impossible_statistics(indicator, indicators=[1])
    assert "which is 0 or 1, differ by 20" in found
    negative = observation(GRAM, 0.1, changes=[((0, 1), -30.0)])
    assert impossible_statistics(negative) == ()
    assert any("rows allow 0 to 100" in text for text in impossible_statistics(negative, None, [1]))


def test_a_private_n_widens_the_limits():
    changes = [((1, 1), 130.0)]
    assert impossible_statistics(observation(GRAM, 1.0, changes=changes))
    assert not impossible_statistics(observation(GRAM, 1.0, private=True, changes=changes))


def test_a_hopeless_release_is_told_in_few_words():
    gram = np.full((30, 30), 1e12)
    gram[0, 0] = 100
    found = impossible_statistics(observation(gram, 1.0))
    assert len(found) <= 7
    assert any("more sums are impossible" in text for text in found)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_eigenvalue_limit_bounds_what_noise_does_and_not_by_far(family, monkeypatch):
    """At a chance of 1 in 20 the limit holds in simulation, and is within a factor of three."""
    rng = np.random.default_rng(2)
    for P in (2, 5, 30):
        scale = np.full((P, P), 2.0) - np.eye(P)
        draw = rng.laplace if family == "laplace" else rng.normal
        noise = np.triu(draw(0, scale, (2000, P, P)))
        noise = noise + np.transpose(np.triu(noise, 1), (0, 2, 1))
        lowest = -np.linalg.eigvalsh(noise)[:, 0]
        limit = plausibility._lowest_eigenvalue_of_noise(scale, family == "laplace", 0.05)
        assert np.mean(lowest > limit) < 0.05 + 4 * math.sqrt(0.05 / 2000)
        assert limit < 3 * np.quantile(lowest, 0.95)


# --- exact copes with anything finite -------------------------------------------------------------

SCALES = st.sampled_from((0.0, 1e-300, 1e-12, 1e-3, 1.0, 1e3, 1e12, 1e300, math.inf))
SIZES = st.sampled_from((1e-300, 1e-9, 1.0, 30.0, 1e9, 1e20, 1e150, 1e300))


@st.composite
def any_observation(draw, k):
    P = k + 2
    n = draw(st.sampled_from((1, 2, 3, k + 2, k + 3, 10, 1000, 2**30)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.booleans()):
        w = np.column_stack([np.ones(50), rng.uniform(-1, 1, (50, k + 1))])
        values = w.T @ w * n / 50
    else:
        values = rng.choice((0.0, 1.0, -1.0, 0.3), (P, P)) * draw(SIZES)
    each = draw(st.lists(SCALES, min_size=P * P, max_size=P * P))
    scale = np.array(each if draw(st.booleans()) else each[:1] * (P * P)).reshape(P, P)
    values, scale = (np.where(np.tri(P, k=-1) > 0, m.T, m) for m in (values, scale))
    family = draw(st.sampled_from(FAMILIES))
    if draw(st.booleans()):
        values[0, 0], scale[0, 0] = n, 0.0
        return lambda: Observation(n, values, scale, family)
    return lambda: Observation.with_private_n(values, scale, family)


@settings(
    max_examples=150, deadline=20_000, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(st.data())
def test_any_finite_observations_give_finite_draws_or_a_reason(data):
    k = data.draw(st.integers(0, 3))
    makers = data.draw(st.lists(any_observation(k), min_size=1, max_size=3))
    prior = data.draw(st.sampled_from((NIGPrior, NormalInverseGammaIndependent)))
    covariates = data.draw(st.sampled_from((NIWPrior, HierarchicalNIWPrior, HuangWandPrior)))
    try:
        observations = [make() for make in makers]
        for one in observations:
            assert all(isinstance(text, str) for text in impossible_statistics(one))
        draws = exact.sample(
            observations,
            prior.weakly_informative(k),
            covariates.weakly_informative(k),
            chains=1,
            draws=20,
            tune=40,
            max_depth=6,
            seed=1,
        )
    except (ReleaseError, RequestError) as error:
        assert len(str(error)) > 20
    else:
        assert all(np.isfinite(values).all() for values in draws[:6])
        assert np.isfinite(draws.info.logp).all()


@pytest.mark.parametrize("private", [False, True])
def test_contradictory_holders_are_sampled(private):
    """Two populations in one model: not impossible, only a bad fit, and no reason to hang."""
    left = observation(GRAM, 0.5, private=private)
    right = observation(
        GRAM, 0.5, "gaussian", private=private, changes=[((1, 2), -30.0), ((0, 2), -80.0)]
    )
    assert impossible_statistics(left) == ()
    draws = exact.sample(
        [left, right], NIGPrior.weakly_informative(1), NIWPrior.weakly_informative(1), seed=1
    )
    assert np.isfinite(draws.theta).all()
    assert not draws.info.diverging.all()
