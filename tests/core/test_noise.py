"""Noise laws against direct summation: no normaliser, no closed form, just the definition."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from noisewise.core.design import STATISTIC_ONE
from noisewise.core.noise import (
    DISCRETE_FAMILIES,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
)

SMALL = [1, 2, 3, 4, 7, 25]


def weight(law: DiscreteLaplace | DiscreteGaussian, x: int) -> mpmath.mpf:
    """The unnormalised probability that the class's docstring promises."""
    z = mpmath.mpf(abs(x)) / law.scale
    return mpmath.exp(-z) if isinstance(law, DiscreteLaplace) else mpmath.exp(-z * z / 2)


def summed(law: DiscreteLaplace | DiscreteGaussian, power: int) -> mpmath.mpf:
    # exp(-100) of the mass lies beyond a hundred scales: below 40 digits of the comparison.
    reach = 100 * law.scale
    return mpmath.fsum(x**power * weight(law, x) for x in range(-reach, reach + 1))


@pytest.mark.parametrize("family", list(DISCRETE_FAMILIES.values()))
@pytest.mark.parametrize("scale", SMALL)
def test_discrete_laws_by_direct_summation(family, scale) -> None:
    law = family(scale)
    with mpmath.workdps(40):
        total = summed(law, 0)
        xs = [0, 1, -1, 2, scale, -3 * scale, 12 * scale]
        expected = [float(mpmath.log(weight(law, x) / total)) for x in xs]
        variance = float(summed(law, 2) / total)
    np.testing.assert_allclose(law.logpmf(xs), expected, rtol=1e-14, atol=1e-14)
    assert law.variance == pytest.approx(variance, rel=1e-13)


@pytest.mark.parametrize("scale", SMALL)
def test_the_summation_tells_scales_and_families_apart(scale) -> None:
    """Negative controls: a scale that is off by one, and the continuous normaliser."""
    laplace, gaussian = DiscreteLaplace(scale), DiscreteGaussian(scale)
    assert abs(float(laplace.logpmf(0) - DiscreteLaplace(scale + 1).logpmf(0))) > 1e-3
    assert abs(float(gaussian.logpmf(0) - DiscreteGaussian(scale + 1).logpmf(0))) > 1e-3
    # On a grid this coarse the Laplace density is visibly not the probability of an integer.
    assert abs(float(laplace.logpmf(0) - Laplace(scale).logpdf(0))) > 1e-4
    if scale == 1:  # the Gaussian's correction is 2 exp(-2π²s²): 5e-9 at s = 1, nothing beyond
        assert float(Gaussian(1).logpdf(0) - gaussian.logpmf(0)) == pytest.approx(5.4e-9, rel=0.02)


@pytest.mark.parametrize("family", list(DISCRETE_FAMILIES.values()))
def test_at_the_scales_of_a_release_the_discrete_law_is_the_continuous_one(family) -> None:
    """On unit scale the pmf is the density times the grid step, and the variances agree."""
    law = family(3 * 2**28 + 1)
    limit = law.continuous()
    x = np.array([0, 1, -1, 2**20, -(2**30), 5 * 2**32])
    density = limit.logpdf(x / STATISTIC_ONE) - math.log(STATISTIC_ONE)
    np.testing.assert_allclose(law.logpmf(x), density, rtol=0, atol=1e-13)
    assert law.variance / STATISTIC_ONE**2 == pytest.approx(limit.variance, rel=1e-15)
    # Negative control: one part in a million of the scale would be seen.
    wrong = type(limit)(limit.scale * (1 + 1e-6)).logpdf(x / STATISTIC_ONE)
    assert np.max(np.abs(wrong - math.log(STATISTIC_ONE) - law.logpmf(x))) > 1e-7


@pytest.mark.parametrize(("law", "reference"), [(Laplace, stats.laplace), (Gaussian, stats.norm)])
@pytest.mark.parametrize("scale", [1e-3, 0.7, 40.0])
def test_densities(law, reference, scale) -> None:
    density = law(scale)
    x = scale * np.array([-8.0, -1.0, -1e-9, 0.0, 0.3, 2.0, 30.0])
    np.testing.assert_allclose(density.logpdf(x), reference.logpdf(x, scale=scale), rtol=1e-13)
    assert density.variance == pytest.approx(reference.var(scale=scale), rel=1e-14)
    half, _ = integrate.quad(lambda z: np.exp(density.logpdf(z)), 0, 40 * scale)
    assert half == pytest.approx(0.5, rel=1e-8)


@pytest.mark.parametrize("family", list(DISCRETE_FAMILIES.values()))
def test_shapes(family) -> None:
    assert family(3).logpmf(np.zeros((2, 5), dtype=np.int64)).shape == (2, 5)
    assert np.ndim(family(3).logpmf(4)) == 0
    assert family(3).continuous().logpdf(np.zeros((4, 1))).shape == (4, 1)
