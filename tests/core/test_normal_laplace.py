"""The normal-Laplace law against quadrature in many digits."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

from noisewise.core import normal_laplace

SCALES = [(1, 1), (1, 1e-3), (1, 1e-8), (1e-3, 1), (5, 0.3), (1, 100)]
POINTS = [0, -0.1, -1, -4, -20, 0.5, 3]


def by_quadrature(x, s, lam):
    """log P(N + L ≤ x) by integrating Φ((x - u)/s) against Laplace's density."""
    with mp.workdps(40):
        x, s, lam = (mp.mpf(float(v)) for v in (x, s, lam))
        ends = {-120 * lam, -10 * lam, -lam, mp.mpf(0), lam, 10 * lam, 120 * lam}
        ends |= {x + k * s for k in (-30, -8, -2, 0, 2, 8, 30)}
        inside = sorted(end for end in ends if abs(end) <= 120 * lam)
        density = lambda u: mp.ncdf((x - u) / s) * mp.exp(-abs(u) / lam) / (2 * lam)  # noqa: E731
        return float(mp.log(mp.quad(density, inside)))


def by_formula(x, s, lam):
    """log F by the textbook formula, in enough digits to survive its cancellation."""
    with mp.workdps(80):
        x, s, lam = (mp.mpf(float(v)) for v in (x, s, lam))
        up = mp.exp(s**2 / (2 * lam**2) + x / lam) * mp.ncdf(-x / s - s / lam)
        down = mp.exp(s**2 / (2 * lam**2) - x / lam) * mp.ncdf(x / s - s / lam)
        return float(mp.log(mp.ncdf(x / s) + (up - down) / 2))


@pytest.mark.parametrize(("s", "lam"), [(1, 1), (1, 1e-3), (1e-3, 1), (5, 0.3), (1, 100)])
def test_the_distribution_function_is_the_integral(s, lam):
    for point in (0, -0.1, -1, -4, 0.5, 3):
        x = point * max(s, lam)
        assert normal_laplace.logcdf(x, s, lam) == pytest.approx(
            by_quadrature(x, s, lam), rel=1e-12
        )


@pytest.mark.parametrize(("s", "lam"), [(1, 1), (1, 0.1), (0.01, 1), (5, 0.3), (1, 100)])
@pytest.mark.parametrize("point", [*POINTS, -300])
def test_it_agrees_with_the_formula_far_out(s, lam, point):
    x = point * max(s, lam)
    assert normal_laplace.logcdf(x, s, lam) == pytest.approx(by_formula(x, s, lam), rel=1e-12)


@pytest.mark.parametrize(("s", "lam"), SCALES)
def test_the_density_is_the_derivative_and_integrates_to_one(s, lam):
    scale = np.sqrt(normal_laplace.variance(s, lam))
    x = np.array(POINTS) * scale
    h = 1e-4 * (s if s > lam else min(s, lam))
    slope = (normal_laplace.cdf(x + h, s, lam) - normal_laplace.cdf(x - h, s, lam)) / (2 * h)
    density = np.exp(normal_laplace.logpdf(x, s, lam))
    rounding = 1e-15 / h
    np.testing.assert_allclose(slope, density, rtol=1e-6, atol=rounding)
    mass, _ = integrate.quad(
        lambda u: scale * np.exp(normal_laplace.logpdf(u * scale, s, lam)),
        0,
        60,
        limit=200,
        points=[1e-2],
    )
    assert mass == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize(("s", "lam"), [*SCALES, (2, 0), (0, 3)])
def test_quantiles_invert_the_distribution_function(s, lam):
    p = np.array([1e-30, 1e-9, 0.05, 0.3, 0.5, 0.7, 0.999])
    x = normal_laplace.ppf(p, s, lam)
    np.testing.assert_allclose(normal_laplace.cdf(x, s, lam), p, rtol=1e-9)
    scale = np.sqrt(normal_laplace.variance(s, lam))
    again = normal_laplace.ppf(1 - p[2:], s, lam)
    np.testing.assert_allclose(again, -x[2:], rtol=1e-9, atol=1e-14 * scale)
    assert (np.diff(x) > 0).all()


def test_without_one_part_it_is_the_other():
    x = np.linspace(-9, 9, 37)
    np.testing.assert_allclose(normal_laplace.cdf(x, 2, 0), stats.norm.cdf(x / 2), rtol=1e-12)
    np.testing.assert_allclose(normal_laplace.cdf(x, 0, 2), stats.laplace.cdf(x / 2), rtol=1e-12)
    np.testing.assert_allclose(
        normal_laplace.logpdf(x, 2, 0), stats.norm.logpdf(x, scale=2), rtol=1e-12
    )
    np.testing.assert_allclose(
        normal_laplace.logpdf(x, 0, 2), stats.laplace.logpdf(x, scale=2), rtol=1e-12
    )


def test_nothing_overflows():
    for s, lam in ((1, 1e-12), (1e-12, 1), (1e100, 1), (1, 1e100)):
        for point in (-1e8, -37.0, 0.0, 1e8):
            x = point * max(s, lam) if point > -1e7 else point
            assert np.isfinite(normal_laplace.logpdf(x, s, lam)) or abs(x) > 1e7
            assert not np.isnan(normal_laplace.logcdf(x, s, lam))


@pytest.mark.parametrize(("s", "lam"), [(0, 0), (-1, 1), (1, -1), (float("nan"), 1)])
def test_scales_are_checked(s, lam):
    with pytest.raises(ValueError, match="scales"):
        normal_laplace.cdf(0.0, s, lam)


def test_probabilities_are_checked():
    with pytest.raises(ValueError, match="between 0 and 1"):
        normal_laplace.ppf([0.5, 1.0], 1, 1)
