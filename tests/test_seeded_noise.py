"""Noise with a seed has the law of the holder's own, and comes again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.core.noise import DiscreteGaussian, DiscreteLaplace
from noisewise.holder.mechanisms import randomness

from .seeded_noise import SMALL, seeded_noise


def draws(law, scale, count=4000):
    make = randomness.laplace_measurement if law == "laplace" else randomness.gaussian_measurement
    return np.array(randomness.invoke(make(scale), [7] * count)) - 7


@pytest.mark.parametrize("scale", [2, SMALL + 1, 2**35])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_its_law_is_the_stated_one(law, scale):
    stated = DiscreteLaplace(scale) if law == "laplace" else DiscreteGaussian(scale)
    with seeded_noise("law"):
        found = draws(law, scale)
        other = draws(law, 2 * scale)
    # A variance of 4,000 draws of Laplace noise has a relative sd of sqrt(5 / 4,000).
    assert found.var() == pytest.approx(stated.variance, rel=5 * 0.035)
    assert other.var() > 2 * stated.variance
    assert stats.ks_2samp(found, draws(law, scale)).pvalue > 1e-6  # against real noise


def test_it_comes_again_and_never_twice():
    with seeded_noise("a"):
        first, second = draws("laplace", 100), draws("laplace", 100)
        words = randomness.bits(300), randomness.below(10**40), randomness.octets(5)
    with seeded_noise("a"):
        assert np.array_equal(draws("laplace", 100), first)
        assert (randomness.bits(300), randomness.below(10**40), randomness.octets(5)) == words
    with seeded_noise("b"):
        assert not np.array_equal(draws("laplace", 100), first)
    assert not np.array_equal(first, second)
    assert not np.array_equal(draws("laplace", 100), draws("laplace", 100))  # real again


def test_uniform_numbers_are_uniform():
    with seeded_noise("uniform"):
        assert {randomness.below(6) for _ in range(200)} == set(range(6))
        assert max(randomness.bits(3) for _ in range(200)) == 7
        assert np.mean([randomness.bits(64) / 2**64 for _ in range(400)]) == pytest.approx(
            0.5, abs=0.1
        )
