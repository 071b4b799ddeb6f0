"""Calibration against oracles that share no formula with it: quadrature and direct summation."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core import calibration
from noisewise.core.errors import RequestError
from noisewise.core.privacy import precise

EPSILONS = ["1e-6", "1e-3", "0.1", "1", "20", "1000"]
DELTAS = ["1e-300", "1e-100", "1e-16", "1e-6", "0.5"]


def delta_by_quadrature(sigma: float, epsilon: Fraction) -> mpmath.mpf:
    """Integrate [f1 - e^epsilon f0]_+ for N(1, sigma^2) against N(0, sigma^2)."""
    with mpmath.workdps(36):
        s = mpmath.mpf(sigma)
        e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        start = e * s**2 + mpmath.mpf(1) / 2  # where the two densities are e^epsilon apart
        u = (start - 1) / s
        # Past `reach` standard deviations the integrand has fallen by exp(-120) from its peak.
        reach = mpmath.sqrt(u * u + 240) - u if u > 0 else 16 - u

        # Relative to the density at `start`, since quad judges its error absolutely.
        def integrand(y: mpmath.mpf) -> mpmath.mpf:
            x = start + y * s
            density = mpmath.exp(-((x - 1) ** 2 - (start - 1) ** 2) / (2 * s * s))
            return density * -mpmath.expm1(e - (2 * x - 1) / (2 * s * s))

        return mpmath.npdf(u) * mpmath.quad(integrand, mpmath.linspace(0, reach, 6))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_noise_multiplier_is_certified_and_tight(epsilon: str, delta: str) -> None:
    e, d = Fraction(epsilon), Fraction(delta)
    multiplier = calibration.gaussian_noise_multiplier(e, d)
    target = mpmath.mpf(d.numerator) / d.denominator
    assert delta_by_quadrature(multiplier, e) <= target * (1 + mpmath.mpf("1e-20"))
    # The control: the oracle notices when one part in a billion of the noise is missing.
    assert delta_by_quadrature(multiplier * (1 - 1e-9), e) > target


def test_noise_multiplier_of_the_literature() -> None:
    found = calibration.gaussian_noise_multiplier(Fraction(1), Fraction(1, 10**6))
    assert round(found, 4) == 4.2247
    classic = math.sqrt(2 * math.log(1.25e6))  # Dwork and Roth's sufficient, not necessary, noise
    assert found < 0.9 * classic


def test_dp_accounting_alone_falls_short_of_the_certificate() -> None:
    """The starting point is not enough: at tiny epsilon it is off by 3e-8, to the unsafe side."""
    from dp_accounting.gaussian_mechanism import get_sigma_gaussian

    e, d = Fraction(1, 10**6), Fraction(1, 10**300)
    rough = float(get_sigma_gaussian(float(e), float(d)))
    certified = calibration.gaussian_noise_multiplier(e, d)
    assert rough == pytest.approx(certified, rel=1e-6)
    assert delta_by_quadrature(rough, e) > mpmath.mpf("1e-300")


@pytest.mark.parametrize("start", [1e-12, 1.0, 4.2246, 4.2248, 1e12])
def test_noise_multiplier_survives_any_starting_point(
    monkeypatch: pytest.MonkeyPatch, start: float
) -> None:
    expected = calibration.gaussian_noise_multiplier(Fraction(1), Fraction(1, 10**6))
    monkeypatch.setattr(calibration, "_starting_multiplier", lambda *_: start)
    found = calibration.gaussian_noise_multiplier(Fraction(1), Fraction(1, 10**6))
    assert found == pytest.approx(expected, rel=2e-11)


def test_noise_multiplier_beyond_the_floats() -> None:
    """Arguments that have no float64, or where dp_accounting has nothing to say."""
    tiny = calibration.gaussian_noise_multiplier(Fraction(1, 10**10), Fraction(1, 10**390))
    assert delta_by_quadrature(tiny, Fraction(1, 10**10)) <= mpmath.mpf("1e-390")
    assert delta_by_quadrature(tiny * (1 - 1e-6), Fraction(1, 10**10)) > mpmath.mpf("1e-390")


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 3000),
    st.floats(1e-12, 0.4),
    st.floats(1.001, 3),
)
def test_noise_multiplier_decreases_in_epsilon_and_delta(
    thousandths: int, delta: float, factor: float
) -> None:
    e, d, more = Fraction(thousandths, 1000), Fraction(delta), Fraction(factor)
    base = calibration.gaussian_noise_multiplier(e, d)
    assert calibration.gaussian_noise_multiplier(e * more, d) < base
    assert calibration.gaussian_noise_multiplier(e, min(d * more, Fraction(1, 2))) < base


@pytest.mark.parametrize("sigma", [0.03, 0.5, 4.2247, 1e3, 1e8])
@pytest.mark.parametrize("delta", ["1e-200", "1e-9", "0.2"])
def test_gaussian_epsilon_inverts_delta(sigma: float, delta: str) -> None:
    d = Fraction(delta)
    found = calibration.gaussian_epsilon(1 / precise().mpf(sigma), d)
    target = mpmath.mpf(d.numerator) / d.denominator
    assert delta_by_quadrature(sigma, Fraction(found)) <= target * (1 + mpmath.mpf("1e-20"))
    if found > 0:
        assert delta_by_quadrature(sigma, Fraction(found) * (1 - Fraction(1, 10**9))) > target
    else:
        assert sigma > 1


def test_gaussian_delta_stays_an_upper_bound_where_80_digits_end() -> None:
    mp = precise()
    assert calibration.gaussian_delta(mp.mpf("1e-300"), Fraction(0)) >= mp.mpf("1e-301")
    assert calibration.gaussian_delta(mp.mpf("1e-300"), Fraction(1)) < mp.mpf("1e-1000")
    assert calibration.gaussian_delta(mp.mpf("1e150"), Fraction(1)) == 1
    assert calibration.gaussian_epsilon(mp.mpf("1e150"), Fraction(1, 10)) == math.inf


@settings(deadline=None, max_examples=200)
@given(st.fractions(min_value=Fraction(1, 10**12), max_value=10**9))
def test_zcdp_noise_multiplier_is_the_smallest(rho: Fraction) -> None:
    multiplier = calibration.zcdp_noise_multiplier(rho)
    assert 1 / (2 * Fraction(multiplier) ** 2) <= rho
    assert 1 / (2 * Fraction(math.nextafter(multiplier, 0)) ** 2) > rho


@pytest.mark.parametrize("rho", ["1e-12", "1e-4", "0.1", "3", "400"])
@pytest.mark.parametrize("delta", ["1e-200", "1e-9", "0.2"])
def test_zcdp_epsilon_is_sound_and_near_the_best_order(rho: str, delta: str) -> None:
    """The Gaussian with this rho needs less; no order of a fine search needs notably less."""
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    mp = precise()
    found = calibration.zcdp_epsilon(mp.mpf(rho), Fraction(delta))
    assert found >= calibration.gaussian_epsilon(mp.sqrt(2 * mp.mpf(rho)), Fraction(delta))
    orders = 1 + np.exp(np.linspace(np.log(0.011), 40, 4000))
    best, _ = compute_epsilon(list(orders), list(orders * float(rho)), float(delta))
    # dp_accounting also knows that a tiny divergence needs no epsilon at all; we don't claim it.
    assert best * (1 - 1e-3) <= found
    if best > 0:
        assert found <= best * (1 + 1e-9)
    simple = float(rho) + 2 * math.sqrt(float(rho) * -math.log(float(delta)))
    assert found < simple


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 2**200), st.fractions(min_value=Fraction(1, 10**30), max_value=10**6))
def test_laplace_scale_is_the_smallest_representable(sensitivity: int, epsilon: Fraction) -> None:
    scale = calibration.laplace_scale(sensitivity, epsilon)
    assert int(float(scale)) == scale
    assert Fraction(sensitivity, scale) <= epsilon
    before = scale - 1 if scale <= 2**53 else int(math.nextafter(float(scale), 0))
    assert before == 0 or Fraction(sensitivity, before) > epsilon


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 2**200), st.floats(1e-9, 1e9))
def test_gaussian_scale_is_the_smallest_representable(sensitivity: int, multiplier: float) -> None:
    scale = calibration.gaussian_scale(sensitivity, multiplier)
    wanted = sensitivity * Fraction(multiplier)
    assert int(float(scale)) == scale
    assert scale >= wanted
    before = scale - 1 if scale <= 2**53 else int(math.nextafter(float(scale), 0))
    assert before < wanted


@pytest.mark.parametrize(
    "call",
    [
        lambda: calibration.laplace_scale(0, Fraction(1)),
        lambda: calibration.laplace_scale(True, Fraction(1)),
        lambda: calibration.laplace_scale(1, Fraction(0)),
        lambda: calibration.laplace_scale(1, 0.5),
        lambda: calibration.laplace_scale(2**1023, Fraction(1, 10)),
        lambda: calibration.gaussian_scale(1, math.nan),
        lambda: calibration.gaussian_scale(1, math.inf),
        lambda: calibration.gaussian_scale(1, -1.0),
        lambda: calibration.gaussian_scale(1.0, 1.0),
        lambda: calibration.gaussian_noise_multiplier(Fraction(0), Fraction(1, 2)),
        lambda: calibration.gaussian_noise_multiplier(Fraction(1), Fraction(0)),
        lambda: calibration.gaussian_noise_multiplier(Fraction(1), Fraction(1)),
        lambda: calibration.gaussian_noise_multiplier(1.0, Fraction(1, 2)),
        lambda: calibration.gaussian_noise_multiplier(Fraction(1, 10**320), Fraction(1, 10**9)),
        lambda: calibration.zcdp_noise_multiplier(Fraction(-1)),
    ],
)
def test_bad_parameters_are_refused(call) -> None:
    with pytest.raises(RequestError):
        call()
