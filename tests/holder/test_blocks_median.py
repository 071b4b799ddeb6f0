"""The exponential-mechanism median: enclosures against mpmath, the draw against exact laws."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from noisewise.core.kinds.summary.mechanisms import CELLS, CauchyBase
from noisewise.holder.blocks import median
from noisewise.holder.blocks.location_scale import cells_of
from noisewise.holder.blocks.median import (
    draw_median,
    draw_weighted,
    exponential,
    median_rate,
    powers,
    runs,
)
from noisewise.holder.mechanisms import randomness

RATES = [
    Fraction(t) for t in ("0", "1e-9", "1/120", "1/3", "1", "7/2", "25", "100", "12.345678901")
]


@pytest.fixture(scope="module", autouse=True)
def holders_noise():
    """Real: its law is what is looked at here, each time with a false-alarm rate below 1e-6."""


@pytest.mark.parametrize("s", RATES, ids=str)
@pytest.mark.parametrize("bits", [8, 64, 192, 777])
def test_enclosures_hold_the_truth_and_are_narrow(s, bits):
    low, high = exponential(s, bits)
    with mpmath.workprec(2 * bits + 400):
        truth = mpmath.exp(-mpmath.mpf(s.numerator) / s.denominator) * mpmath.mpf(2) ** bits
        assert low <= truth <= high
    assert 0 <= low <= high <= 1 << bits
    assert high - low <= 2 + 60 * bits  # the roundings of the series, doubled by squarings
    lows, highs = powers((low, high), 40, bits)
    with mpmath.workprec(2 * bits + 400):
        for d in range(40):
            truth = mpmath.exp(-mpmath.mpf(s.numerator) / s.denominator * d) * mpmath.mpf(2) ** bits
            assert lows[d] <= truth <= highs[d]
            assert highs[d] - lows[d] <= (d + 1) * (high - low + 2)


def test_a_negative_rate_is_refused():
    with pytest.raises(ValueError, match="negative"):
        exponential(Fraction(-1), 64)


def distance(cells, x):
    below, at_or_below = sum(a < x for a in cells), sum(a <= x for a in cells)
    return max(0, 2 * below - len(cells), len(cells) - 2 * at_or_below)


@pytest.mark.parametrize(
    "cells", [[0], [15], [3, 3, 3], [0, 15], [1, 2, 3, 4], [5, 5, 9, 9, 9, 15], list(range(16))]
)
def test_runs_cover_all_cells_with_their_distances(cells, monkeypatch):
    monkeypatch.setattr(median, "CELLS", 16)
    covered = {}
    for start, length, d in zip(*runs(np.array(cells)), strict=True):
        for x in range(start, start + length):
            assert x not in covered
            covered[x] = d
    assert covered == {x: distance(cells, x) for x in range(16)}


def cumulative(lengths, distances, rate):
    with mpmath.workdps(80):
        q = mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator)
        weights = [c * q**d for c, d in zip(lengths, distances, strict=True)]
        total = mpmath.fsum(weights)
        shares = [mpmath.fsum(weights[:i]) / total for i in range(len(weights) + 1)]
        shares[-1] = mpmath.mpf(1)
        return shares


@pytest.mark.parametrize("rate", [Fraction(1, 7), Fraction(3, 2)])
def test_the_draw_inverts_the_exact_distribution_function(rate, monkeypatch):
    """Whatever the first bits are: a decision is right for every number that begins with them.

    Then the law is exact, because undecided numbers go on in the same way.
    """
    monkeypatch.setattr(median, "FIRST_BITS", 8)
    lengths, distances = np.array([1000, 1, 3, 1, 70, 1, 5]), np.array([6, 4, 2, 0, 2, 4, 6])
    order = np.argsort(distances, kind="stable")
    shares = cumulative(lengths[order].tolist(), distances[order].tolist(), rate)
    calls = []
    for first in range(256):
        drawn = [first, 171, 44_000, 0, 7]

        def bits(count, drawn=drawn):
            calls.append(count)
            return drawn.pop(0)

        before = len(calls)
        monkeypatch.setattr(randomness, "bits", bits)
        index = order.tolist().index(draw_weighted(lengths, distances, rate))
        used = calls[before:]
        u, total = 0, 0
        for count, part in zip(used, [first, 171, 44_000, 0, 7], strict=False):
            u, total = (u << count) | part, total + count
        with mpmath.workdps(80):
            assert shares[index] <= mpmath.mpf(u) / 2**total
            assert mpmath.mpf(u + 1) / 2**total <= shares[index + 1]
    assert len(calls) > 256  # some needed a second look


def test_runs_that_are_too_light_to_matter_are_still_drawn(monkeypatch):
    """With few bits most runs are beyond reach at first; the law must not notice."""
    monkeypatch.setattr(median, "FIRST_BITS", 4)
    lengths, distances = np.array([50, 1, 400, 3_000]), np.array([0, 2, 9, 30])
    rate = Fraction(1, 2)
    shares = np.diff(
        [float(share) for share in cumulative(lengths.tolist(), distances.tolist(), rate)]
    )
    draws = [draw_weighted(lengths, distances, rate) for _ in range(6_000)]
    counts = np.bincount(draws, minlength=4)
    assert (np.abs(counts - 6_000 * shares) < 6 * np.sqrt(6_000 * shares) + 1).all()
    assert counts[2] > 0  # 7% of the weight, and beyond the reach of four bits
    assert median._reach(rate, 4, 30) < 30


def test_frequencies_agree_with_exact_probabilities(monkeypatch):
    monkeypatch.setattr(median, "CELLS", 64)
    cells = np.array([9, 9, 14, 20, 21, 40, 63, 63])
    rate = median_rate(Fraction(3), 2, 1)
    assert rate == Fraction(3, 8)
    weights = np.array([math.exp(-float(rate) * distance(cells.tolist(), x)) for x in range(64)])
    expected = 4_000 * weights / weights.sum()
    counts = np.bincount([draw_median(cells, rate) for _ in range(4_000)], minlength=64)
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < 63 + 7 * math.sqrt(2 * 63)
    twice = np.exp(-2 * float(rate) * np.array([distance(cells.tolist(), x) for x in range(64)]))
    wrong = 4_000 * twice / twice.sum()  # the control: half of the noise
    assert ((counts - wrong) ** 2 / wrong).sum() > 63 + 7 * math.sqrt(2 * 63)


def test_a_tie_keeps_its_cell():
    """All blocks agree: with enough budget that one cell of 2**52 is drawn."""
    cells = np.full(3_000, 123_456_789)
    assert draw_median(cells, median_rate(Fraction(1), 3, 1)) == 123_456_789


@pytest.mark.parametrize("at", [0, CELLS - 1])
def test_medians_at_the_ends(at):
    cells = np.full(3_000, at, dtype=np.int64)
    assert draw_median(cells, median_rate(Fraction(1), 1, 1)) == at


def test_a_median_of_many_blocks_is_near_the_middle():
    rng = np.random.default_rng(11)
    cells = cells_of(rng.normal(2.0, 0.5, 30_000), CauchyBase(0.0, 1.0))
    drawn = draw_median(cells, median_rate(Fraction(1), 30, 1))
    value = CauchyBase(0.0, 1.0).value(drawn)
    assert abs(value - 2.0) < 0.1  # noise: 2 / (eps phi(0) sqrt(M)) = 0.16 posterior deviations
    ranks = (cells < drawn).mean()
    assert abs(ranks - 0.5) < 0.03


def test_cells_and_values_are_inverse():
    base = CauchyBase(-3.0, 0.25)
    values = np.array([-1e12, -50.0, -3.0, -2.999, 0.0, 7.0, 1e5])
    back = [base.value(int(cell)) for cell in cells_of(values, base)]
    assert np.array(back) == pytest.approx(values, rel=1e-3)
    assert np.array(back[1:]) == pytest.approx(values[1:], rel=1e-8, abs=1e-12)
    ends = cells_of(np.array([-np.inf, np.inf, -1e308, 1e308]), base)
    assert ends.tolist() == [0, CELLS - 1, 0, CELLS - 1]
