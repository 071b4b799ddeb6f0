"""Calibration against oracles that share no formula with it: quadrature and direct summation."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core import calibration
from noisewise.core.errors import RequestError

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
    found = calibration.gaussian_epsilon(1 / calibration.precise().mpf(sigma), d)
    target = mpmath.mpf(d.numerator) / d.denominator
    assert delta_by_quadrature(sigma, Fraction(found)) <= target * (1 + mpmath.mpf("1e-20"))
    if found > 0:
        assert delta_by_quadrature(sigma, Fraction(found) * (1 - Fraction(1, 10**9))) > target
    else:
        assert sigma > 1


def test_gaussian_delta_stays_an_upper_bound_where_80_digits_end() -> None:
    mp = calibration.precise()
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

    mp = calibration.precise()
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


@settings(deadline=None, max_examples=300)
@given(st.fractions(min_value=-(10**400), max_value=10**400))
def test_float_rounding_directions(value: Fraction) -> None:
    up, down = calibration.float_up(value), calibration.float_down(value)
    assert down <= value <= up
    assert up == down or up == math.nextafter(down, math.inf)


# Discrete against continuous noise, in the open: scales so small that the difference shows.


def log_pmf_ratio(x: int, scale: int) -> mpmath.mpf:
    """Return log(p/r) for the discrete Gaussian p and the rounded continuous Gaussian r."""
    s, half = mpmath.mpf(scale), mpmath.mpf("0.5")
    total = mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * s * s)))  # the sum of exp(-k^2 / 2s^2)
    root = s * mpmath.sqrt(2)
    r = (mpmath.erfc((x - half) / root) - mpmath.erfc((x + half) / root)) / 2
    return -mpmath.mpf(x * x) / (2 * s * s) - mpmath.log(total * r)


@pytest.mark.parametrize("scale", [2, 5, 16, 64])
def test_pmf_ratio_bounds_hold_everywhere(scale: int) -> None:
    with mpmath.workdps(60):
        s = mpmath.mpf(scale)
        zeta = 3 * mpmath.exp(-2 * mpmath.pi**2 * s * s)
        for x in range(0, 12 * scale, max(1, scale // 8)):
            log_ratio = log_pmf_ratio(x, scale)
            assert log_ratio <= 1 / (24 * s**2)
            assert -log_ratio <= mpmath.log1p(zeta) + mpmath.mpf(x * x) / (24 * s**4)


@pytest.mark.parametrize("scale", [32, 128, 1024])
@pytest.mark.parametrize("entries", [1, 100])
@pytest.mark.parametrize("tail", [3, 20])
def test_slack_covers_the_worst_noise_and_is_nearly_attained(
    scale: int, entries: int, tail: int
) -> None:
    above, below = (float(x) for x in calibration._slack_terms(entries, scale, tail))
    with mpmath.workdps(60):
        # Above, the worst vector is zero. Below, it is the longest one, here along the diagonal.
        highest = entries * float(log_pmf_ratio(0, scale))
        length = math.floor(scale * (1 + tail / math.sqrt(entries)) + 0.5)
        lowest = -entries * float(log_pmf_ratio(length, scale))
    assert 0.95 * above < highest <= above
    # The proof drops exp(-u^2/2s^2) <= 1 below, worth as much as `above`, and no more than that.
    assert 0.9 * (below - above) < lowest <= below


def discrete_delta(shift: tuple[int, ...], scale: int, epsilon: float) -> float:
    """Sum [p(x - shift) - e^epsilon p(x)]_+ over a box of 13 scales around both centres."""
    axes = [np.arange(-13 * scale, 13 * scale + d + 1) for d in shift]
    log_p = np.zeros([1] * len(shift))
    loss = np.zeros([1] * len(shift))
    for k, (x, d) in enumerate(zip(axes, shift, strict=True)):
        form = [-1 if j == k else 1 for j in range(len(shift))]
        noise = np.arange(-14 * scale, 14 * scale + 1)
        normaliser = math.fsum(np.exp(-(noise**2) / (2 * scale**2)))
        log_p = log_p + (-((x - d) ** 2) / (2 * scale**2) - math.log(normaliser)).reshape(form)
        loss = loss + ((2 * x * d - d * d) / (2 * scale**2)).reshape(form)
    gain = -np.expm1(np.minimum(epsilon - loss, 0.0))
    return math.fsum((np.exp(log_p) * gain).ravel())


CASES = [
    *itertools.product([(1,), (3,), (16,), (40,)], [16], [0.05, 0.5, 1.0, 3.0]),
    *itertools.product([(1,), (9,), (64,), (256,)], [64, 256], [0.1, 1.0]),
    *itertools.product([(3, 5), (1, 1), (0, 7), (16, 11)], [16], [0.05, 0.5, 1.0]),
    *itertools.product([(2, 3, 4)], [4], [0.2, 1.0, 2.0]),
]


@pytest.mark.parametrize(("shift", "scale", "epsilon"), CASES)
def test_discrete_noise_stays_within_the_slack(
    shift: tuple[int, ...], scale: int, epsilon: float
) -> None:
    tail = 8
    above, below = calibration._slack_terms(len(shift), scale, tail)
    slack = float(above + below)
    mp = calibration.precise()
    mu = mp.sqrt(sum(d * d for d in shift)) / scale
    continuous = float(calibration.gaussian_delta(mu, Fraction(epsilon)))
    bound = math.exp(slack) * (continuous + math.exp(epsilon - tail**2 / 2))
    assert discrete_delta(shift, scale, epsilon + slack) <= bound


@pytest.mark.parametrize(
    ("shift", "scale", "epsilon"), [((16,), 16, 0.1), ((1,), 4, 1.0), ((4,), 4, 0.1)]
)
def test_discrete_noise_without_slack_exceeds_the_continuous(
    shift: tuple[int, ...], scale: int, epsilon: float
) -> None:
    """The control: there is something to account for."""
    mp = calibration.precise()
    continuous = calibration.gaussian_delta(mp.mpf(shift[0]) / scale, Fraction(epsilon))
    assert discrete_delta(shift, scale, epsilon) > float(continuous) * (1 + 1e-5)


def test_slack_shrinks_with_the_square_of_the_scale() -> None:
    assert calibration.discreteness_slack(10**4, 2**32) < 1e-12
    assert calibration.discreteness_slack(1, 2**20) < 1e-9
    for entries in (1, 10, 10**4):
        slacks = [calibration.discreteness_slack(entries, 2**k) for k in range(20, 40)]
        ratios = np.divide(slacks[:-1], slacks[1:])
        np.testing.assert_allclose(ratios, 4, rtol=1e-4)
    assert calibration.discreteness_slack(11, 2**20) > calibration.discreteness_slack(10, 2**20)


@pytest.mark.parametrize("scale", [1, 2**19, 2**20 - 1])
def test_slack_refuses_coarse_noise(scale: int) -> None:
    with pytest.raises(RequestError, match=r"2\*\*20"):
        calibration.discreteness_slack(1, scale)
    calibration.discreteness_slack(1, 2**20)


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
        lambda: calibration.discreteness_slack(0, 2**30),
        lambda: calibration.discreteness_slack(1, float(2**30)),
    ],
)
def test_bad_parameters_are_refused(call) -> None:
    with pytest.raises(RequestError):
        call()
