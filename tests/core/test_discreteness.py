"""Discrete against continuous noise, in the open: scales so small that the difference shows."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from noisewise.core.calibration import (
    _slack_terms,
    discreteness_slack,
    gaussian_delta,
    lattice_inflation,
)
from noisewise.core.errors import RequestError
from noisewise.core.privacy import precise


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
    above, below = (float(x) for x in _slack_terms(entries, scale, tail))
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
    above, below = _slack_terms(len(shift), scale, tail)
    slack = float(above + below)
    mp = precise()
    mu = mp.sqrt(sum(d * d for d in shift)) / scale
    continuous = float(gaussian_delta(mu, Fraction(epsilon)))
    bound = math.exp(slack) * (continuous + math.exp(epsilon - tail**2 / 2))
    assert discrete_delta(shift, scale, epsilon + slack) <= bound


@pytest.mark.parametrize(
    ("shift", "scale", "epsilon"), [((16,), 16, 0.1), ((1,), 4, 1.0), ((4,), 4, 0.1)]
)
def test_discrete_noise_without_slack_exceeds_the_continuous(
    shift: tuple[int, ...], scale: int, epsilon: float
) -> None:
    """The control: there is something to account for."""
    mp = precise()
    continuous = gaussian_delta(mp.mpf(shift[0]) / scale, Fraction(epsilon))
    assert discrete_delta(shift, scale, epsilon) > float(continuous) * (1 + 1e-5)


def test_slack_shrinks_with_the_square_of_the_scale() -> None:
    assert discreteness_slack(10**4, 2**32) < 1e-12
    assert discreteness_slack(1, 2**20) < 1e-9
    for entries in (1, 10, 10**4):
        slacks = [discreteness_slack(entries, 2**k) for k in range(20, 40)]
        ratios = np.divide(slacks[:-1], slacks[1:])
        np.testing.assert_allclose(ratios, 4, rtol=1e-4)
    assert discreteness_slack(11, 2**20) > discreteness_slack(10, 2**20)


@pytest.mark.parametrize("scale", [1, 2**19, 2**20 - 1])
def test_slack_refuses_coarse_noise(scale: int) -> None:
    with pytest.raises(RequestError, match=r"2\*\*20"):
        discreteness_slack(1, scale)
    discreteness_slack(1, 2**20)


@pytest.mark.parametrize(("entries", "scale"), [(0, 2**30), (1, float(2**30))])
def test_bad_parameters_are_refused(entries: int, scale: int) -> None:
    with pytest.raises(RequestError):
        discreteness_slack(entries, scale)


# --- as Gaussian privacy, without a tail ----------------------------------------------------------


def quantiles(scale: int, reach: int) -> list[mpmath.mpf]:
    """Standard normal quantiles of the discrete Gaussian's distribution function, up to 0."""
    mass = [mpmath.exp(-mpmath.mpf(x * x) / (2 * scale * scale)) for x in range(-3 * reach, 1)]
    total = mpmath.jtheta(3, 0, mpmath.exp(-mpmath.mpf(1) / (2 * scale * scale)))
    below, found = mpmath.mpf(0), []
    for x, p in zip(range(-3 * reach, 1), mass, strict=True):
        below += p / total
        if x >= -reach:
            small = below if below < 0.5 else 1 - below
            start = -mpmath.sqrt(max(mpmath.mpf(0), -2 * mpmath.log(2 * small)))
            z = mpmath.findroot(
                lambda z, small=small: mpmath.log(mpmath.ncdf(z)) - mpmath.log(small), start - 0.05
            )
            found.append(z if below < 0.5 else -z)
    return found


@pytest.mark.parametrize("scale", [8, 16])
def test_discrete_noise_is_gaussian_private(scale: int) -> None:
    """Every step of the quantiles is at most what the lemma says, and at times nearly 1/12 s^2."""
    bound = lattice_inflation(scale)
    with mpmath.workdps(60):
        found = quantiles(scale, 12 * scale)
        steps = [(after - before) ** 2 * scale**2 for before, after in itertools.pairwise(found)]
        largest = Fraction(mpmath.nstr(max(steps), 30))
    assert largest <= bound
    assert largest > 1  # without an inflation it would be false
    assert float((largest - 1) * 12 * scale**2) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("shift", [1, 3, 8, 20])
@pytest.mark.parametrize("scale", [8, 16])
def test_no_epsilon_sees_more_than_the_gaussian(scale: int, shift: int) -> None:
    """The exact delta of discrete noise against that of the Gaussian that stands for it."""
    mp = precise()
    mu = mp.mpf(shift) / scale * mp.sqrt(float(lattice_inflation(scale)))
    tight = 0
    for epsilon in np.linspace(0, 4 * shift / scale, 9):
        attained = discrete_delta((shift,), scale, float(epsilon))
        allowed = float(gaussian_delta(mu, Fraction(float(epsilon))))
        assert attained <= allowed * (1 + 1e-9) + 1e-14
        tight += attained > 0.98 * allowed
    assert tight >= 1  # no other sd was compared


def test_the_lattice_lemma_needs_a_scale() -> None:
    assert lattice_inflation(2**20) == 1 + Fraction(1, 2**41)
    with pytest.raises(RequestError, match="below 8"):
        lattice_inflation(7)
