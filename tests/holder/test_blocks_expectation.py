"""The choice of M, r, c and budgets, and the expected accuracy against a simulation of blocks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from noisewise.core import normal_laplace
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import (
    ClippedMean,
    Fisher,
    QuantileItem,
    Question,
    RescaledNormal,
    Sign,
    Stouffer,
)
from noisewise.holder.blocks import choice

ASKED = (Question("x", 0.0),)


@pytest.mark.parametrize(
    ("rows", "epsilon", "coefficients", "blocks"),
    [
        (1_000_000, 1, 2, 1000),  # enough for the noise
        (10_000, 1, 2, 333),  # 30 rows a block
        (10_000, 1, 6, 111),  # 15 a coefficient
        (10**9, Fraction(1, 10), 2, 100_000),
        (10**6, 10, 2, 100),  # at least a hundred
    ],
)
def test_blocks(rows, epsilon, coefficients, blocks):
    assert choice.former_blocks(rows, Fraction(epsilon), coefficients) == blocks


@pytest.mark.parametrize(
    ("mechanism", "rows", "epsilon", "blocks"),
    [
        ("mean", 1_000_000, 1, 5_000),
        ("mean", 30_000, 1, 1_000),
        ("sign", 30_000, 1, 173),  # √n
        ("sign", 10**8, 1, 1_000),
        ("clipped_mean", 30_000, 1, 1_000),
        ("location_scale", 30_000, 1, 173),
        ("location_scale", 30_000, Fraction(1, 2), 320),  # what private medians need
    ],
)
def test_blocks_by_default(mechanism, rows, epsilon, blocks):
    assert choice.default_blocks(mechanism, rows, Fraction(epsilon), 2) == blocks


def test_shares_of_a_mean():
    for blocks in (260, 1_000, 100_000):
        shares = choice.mean_shares(Fraction(1), blocks, 1)
        assert sum(shares[:3]) == 1
        assert shares.sums * blocks >= 120
        assert 0.05 <= shares.tail <= 0.25
        # A normal law has this share beyond its quantile, which times reach is 6 deviations.
        from scipy.stats import norm

        assert shares.reach * norm.ppf(1 - shares.tail / 2) == pytest.approx(6, abs=0.02)
    with pytest.raises(RequestError, match="takes 260 blocks"):
        choice.mean_shares(Fraction(1), 259, 1)


def test_too_few_rows_are_refused():
    with pytest.raises(RequestError, match="too few for blocks of 30"):
        choice.default_blocks("mean", 59, Fraction(1), 2)


def test_partitions():
    assert choice.default_partitions("sign", 1000, 2) == 30
    assert choice.default_partitions("stouffer", 1000, 2) == 1
    many = choice.default_partitions("location_scale", 100_000, 40)
    assert 1 <= many < 30


def test_the_best_clip_is_best():
    """Against the cost written with expectations over a fine grid."""
    xi = np.linspace(-9, 9, 20_001)
    weight = np.exp(-0.5 * xi**2)
    weight /= weight.sum()
    for kappa in (0.5, 2.0, 10.0, 40.0):

        def cost(c, kappa=kappa):
            psi = np.clip(xi, -c, c)
            A = weight @ (psi * xi)
            return (weight @ psi**2) / A**2 - 1 + 8 * c**2 / (A**2 * kappa**2)

        best = choice.best_clip(kappa)
        assert cost(best) <= min(cost(c) for c in np.linspace(0.05, 4, 80)) + 1e-6


def test_budgets_of_medians_add_up_and_are_refused_when_hopeless():
    for epsilon, blocks in ((1, 1000), (Fraction(1, 3), 10_000), (2, 100)):
        location, scale = choice.median_epsilons(Fraction(epsilon), blocks, 1, 2)
        assert location + scale == epsilon
        assert location * blocks >= choice.LOCATION_RANKS
        assert scale * blocks >= choice.SCALE_RANKS
        assert scale >= Fraction(epsilon) / 10
    with pytest.raises(RequestError, match="too little for private medians of 100 blocks"):
        choice.median_epsilons(Fraction(1), 100, 1, 2)
    with pytest.raises(RequestError, match="too little"):
        choice.median_epsilons(Fraction(1), 1000, 10, 2)


PSI = {
    "sign": (Sign(ASKED), np.sign),
    "stouffer": (Stouffer(ASKED, 1.0), lambda w: np.clip(w, -1, 1)),
    "rescaled_normal": (RescaledNormal(ASKED), ndtr),
    "fisher": (Fisher(ASKED, 0.2), lambda w: np.minimum(-2 * log_ndtr(w), -2 * math.log(0.2))),
}


@pytest.mark.parametrize(("mechanism", "psi"), PSI.values(), ids=PSI)
@pytest.mark.parametrize(("epsilon", "blocks", "r"), [(0.5, 100, 1), (1.0, 200, 8)])
def test_the_expected_error_is_that_of_simulated_blocks(mechanism, psi, epsilon, blocks, r):
    """Estimates of blocks are drawn here, in every partition, given the same full data."""
    rng = np.random.default_rng(12)
    noise = (mechanism.high - mechanism.low) / 2**mechanism.fraction_bits / (blocks * epsilon)
    found = choice.probability_error(mechanism, blocks, r, noise)
    w = rng.normal(size=400_000)
    mean, slope, variance = psi(w).mean(), (psi(w) * w).mean(), psi(w).var()
    spread = math.sqrt((slope**2 + (variance - slope**2) / r) / blocks)
    squares = []
    for threshold in np.linspace(-3, 3, 13):
        z = threshold + rng.normal(size=60)
        estimates = rng.normal(size=(60, r, blocks))
        estimates -= estimates.mean(axis=2, keepdims=True)
        estimates += z[:, None, None] / math.sqrt(blocks)
        seen = psi(estimates).mean(axis=(1, 2)) - mean + rng.laplace(0, noise, 60)
        answers = normal_laplace.cdf(math.copysign(1, slope) * seen, spread, noise)
        squares.append((answers - ndtr(z)) ** 2)
    squares = np.array(squares)
    error = squares.std() / math.sqrt(squares.size)
    # Four standard errors, and a per cent or two for the grids and for finite M.
    assert abs(found**2 - squares.mean()) < 4 * error + 0.05 * found**2
    # The control: half of the noise is another expectation.
    half = choice.probability_error(mechanism, blocks, r, noise / 2)
    assert half < found


def test_the_error_of_medians_falls_with_the_budget_and_with_blocks():
    errors = [choice.median_error(blocks, 30, 1.0) for blocks in (100, 1000, 10_000)]
    assert errors[0] > errors[1] > errors[2] > 0
    assert choice.median_error(1000, 1, 1.0) > errors[1]
    assert choice.median_error(1000, 30, 0.1) > errors[1]


def test_the_noise_on_quantiles_is_in_the_coefficients_units():
    mechanism = ClippedMean((QuantileItem("x", 0.5, -10, 30),))
    assert choice.quantile_noise(mechanism, 0.001) == pytest.approx([math.sqrt(2) * 0.04])


def test_always_half_is_what_it_says():
    z = choice._z_scores()
    assert np.sqrt(np.mean((0.5 - ndtr(z)) ** 2)) == pytest.approx(choice.ALWAYS_HALF, abs=0.01)
