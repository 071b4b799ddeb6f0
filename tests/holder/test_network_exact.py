"""Exact samplers against laws computed independently, by counts of draws.

The draws have no seed. A right law fails one test with probability 1e-6; every test has a control
that is wrong by a little and must be rejected; its chance to pass was computed, below 1e-6.
"""

import itertools
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from noisewise.core.kinds.network.graph import Network, rows_of_splits
from noisewise.core.schema import Category, Schema
from noisewise.holder.draws import LatticeGaussian, normaliser_ratio
from noisewise.holder.mechanisms import exact
from noisewise.holder.networks import posterior_sample
from noisewise.holder.networks.counts import FamilyCounts
from noisewise.holder.networks.posterior_sample import ONE, PosteriorSample, SplitSampler

from .. import laws

WRONGLY = 1e-6


@pytest.fixture(scope="module", autouse=True)
def holders_noise():
    """Real: its law is what is looked at here."""


def p_value(values, weights):
    """Of draws against weights {value: weight}, exact whatever the counts."""
    assert set(values) <= set(weights)
    total = sum(weights.values())
    return laws.p_value(values, {value: weight / total for value, weight in weights.items()})


def test_bernoulli_exp():
    for gamma in (Fraction(0), Fraction(1, 7), Fraction(1), Fraction(5, 2)):
        hits = sum(exact.bernoulli_exp(gamma) for _ in range(10_000))
        assert stats.binomtest(hits, 10_000, float(np.exp(-float(gamma)))).pvalue > WRONGLY
    assert not exact.bernoulli_exp(Fraction(10**6))
    with pytest.raises(ValueError, match="negative"):
        exact.bernoulli_exp(Fraction(-1))


def test_discrete_laplace():
    draws = [exact.discrete_laplace(3) for _ in range(10_000)]
    grid = range(-80, 81)
    assert p_value(draws, {z: np.exp(-abs(z) / 3) for z in grid}) > WRONGLY
    assert p_value(draws, {z: np.exp(-abs(z) / 2.5) for z in grid}) < WRONGLY


@pytest.mark.parametrize(
    ("variance", "centre"), [("1/3", "1/4"), ("9", "-7/2"), ("50", "31/3"), ("1/500", "2/5")]
)
def test_discrete_gaussian_with_any_centre(variance, centre):
    v, c = Fraction(variance), Fraction(centre)
    draws = [exact.discrete_gaussian(v, c) for _ in range(3000)]
    grid = range(-60, 80)

    def weights(v, c):
        return {z: float(mpmath.exp(-((z - c) ** 2) / (2 * mpmath.mpf(v)))) for z in grid}

    assert p_value(draws, weights(float(v), float(c))) > WRONGLY
    wrong = float(c) + 0.3 * max(0.5, float(v) ** 0.5)
    assert p_value(draws, weights(float(v), wrong)) < WRONGLY


def test_choose_refines_until_it_knows():
    """Bounds that are useless at first: the answer has the right law all the same."""
    asked = []

    def bounds(digits):
        asked.append(digits)
        if digits < 100:
            return [(Decimal(0), Decimal(1))] * 3
        return [(Decimal(w),) * 2 for w in ("0.5", "0.3", "0.2")]

    draws = [exact.choose(bounds) for _ in range(8000)]
    assert max(asked) >= 100
    assert p_value(draws, {0: 0.5, 1: 0.3, 2: 0.2}) > WRONGLY
    assert p_value(draws, {0: 0.45, 1: 0.35, 2: 0.2}) < WRONGLY


# ---------------------------------------------------------------------------------------------
# Splits


@pytest.fixture
def coarse(monkeypatch):
    """A grid of 64 steps, on which every probability can be computed."""
    monkeypatch.setattr(posterior_sample, "ONE", 64)


def split_weights(a, b, lowest, one=64):
    m = np.arange(lowest, one - lowest + 1)
    logs = a * np.log(m) + b * np.log(one - m)
    return dict(zip(m.tolist(), np.exp(logs - logs.max()), strict=True))


CASES = [  # a, b, lowest, and exponents that are wrong
    (0, 0, 1, (0.4, 0)),
    (1.5, 7, 2, (2.2, 7)),
    (30, 20, 4, (35, 20)),
    (0, 200, 8, (0, 150)),
    (300, 0.25, 1, (200, 0.25)),
    (0, 0.25, 3, (0.4, 0.25)),
]


@pytest.mark.parametrize(("a", "b", "lowest", "wrong"), CASES)
@pytest.mark.parametrize("by", ["doubles", "decimals"])
def test_split_law(coarse, monkeypatch, a, b, lowest, wrong, by):
    sampler = SplitSampler(Fraction(a), Fraction(b), lowest)
    _ = sampler._stairs
    if by == "decimals":  # doubles decide nothing any more
        monkeypatch.setattr(SplitSampler, "quick_log_ratio", lambda self, m: (-np.inf, np.inf))
    draws = [sampler.draw() for _ in range(8000 if by == "doubles" else 1500)]
    assert p_value(draws, split_weights(a, b, lowest)) > WRONGLY
    if by == "doubles":
        assert p_value(draws, split_weights(*wrong, lowest)) < WRONGLY


def test_split_law_on_the_fine_grid():
    for a, b, lowest in [(3.5, 9, ONE // 32), (4000, 5000, ONE // 32), (0, 40, ONE // 4)]:
        sampler = SplitSampler(Fraction(a), Fraction(b), lowest)
        v = np.array([sampler.draw() for _ in range(4000)]) / ONE
        law = stats.beta(a + 1, b + 1)
        low, high = law.cdf([lowest / ONE, 1 - lowest / ONE])
        assert stats.kstest((law.cdf(v) - low) / (high - low), "uniform").pvalue > WRONGLY
        assert stats.kstest(law.cdf(v) if a == 0 else law.cdf(v) ** 1.3, "uniform").pvalue < WRONGLY


def test_bounds_enclose_the_weights():
    """Doubles and decimals, against 60 digits of mpmath."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        a, b = (Fraction(int(x), 7) for x in rng.integers(0, 10 ** rng.integers(1, 10), 2))
        sampler = SplitSampler(a, b, int(rng.integers(1, ONE // 4)))
        m = int(rng.integers(sampler.lowest, ONE - sampler.lowest))
        with mpmath.workdps(60):
            r = sampler._reference
            exact_log = mpmath.mpf(a.numerator) / a.denominator * mpmath.log(mpmath.mpf(m) / r)
            exact_log += (
                mpmath.mpf(b.numerator)
                / b.denominator
                * mpmath.log(mpmath.mpf(ONE - m) / (ONE - r))
            )
            for low, high in (sampler.quick_log_ratio(m), sampler.log_ratio(m, 40)):
                assert mpmath.mpf(str(low)) <= exact_log <= mpmath.mpf(str(high))
            low, high = sampler.log_ratio(m, 40)
            assert high - low < Decimal("1e-20")


def test_stairs_are_above_the_weights():
    rng = np.random.default_rng(2)
    for a, b in [(0, 0), (3, 5000), (10**6, 10**5), (10**8, 1), (0, 10**9), (0.5, 0)]:
        sampler = SplitSampler(Fraction(a), Fraction(b), ONE // 32)
        stairs, total = sampler._stairs
        covered = sum(stop - start + 1 for start, stop, _ in stairs)
        assert covered == ONE - 2 * (ONE // 32) + 1
        assert total == sum((stop - start + 1) * height for start, stop, height in stairs)
        for start, stop, height in stairs:
            for m in {start, stop, *(int(x) for x in rng.integers(start, stop + 1, 5))}:
                _, high = sampler.weight(m, 40)
                assert high * 2**64 <= height


def test_libm_is_as_good_as_trusted():
    """The only assumption on doubles: log and exp to 40 bits."""
    import math

    rng = np.random.default_rng(3)
    with mpmath.workdps(40):
        for x in rng.integers(2, ONE, 2000).tolist():
            assert abs(math.log(x) / mpmath.log(x) - 1) < 2**-45
        for x in rng.uniform(-700, 1, 2000).tolist():
            assert abs(math.exp(x) / mpmath.exp(mpmath.mpf(x)) - 1) < 2**-45


def test_impossible_splits_are_refused():
    with pytest.raises(ValueError, match="exponents"):
        SplitSampler(Fraction(-1, 2), Fraction(1), 5)
    with pytest.raises(ValueError, match="lowest"):
        SplitSampler(Fraction(1), Fraction(1), ONE // 2)


# ---------------------------------------------------------------------------------------------
# Lattice

LATTICES = {
    "inside": ([[30, 10], [10, 25]], [3, -2], 24),
    "flat": ([[0, 0], [0, 0]], [0, 0], 9),
    "beyond the ball": ([[20, 5], [5, 15]], [30, 5], 24),
    "steps wider than the law": ([[300, 100], [100, 200]], [-10, 40], 4),
    "one dimension": ([[5]], [9], 20),
    "three": ([[9, 1, 2], [1, 7, 0], [2, 0, 5]], [1, 2, -6], 12),
}


def lattice_weights(a, b, size):
    points = itertools.product(range(-size, size + 1), repeat=len(b))
    inside = [g for g in points if sum(x * x for x in g) <= size**2]
    u = np.array(inside) / size
    logs = -0.5 * np.einsum("ni,ij,nj->n", u, np.array(a, float), u) + u @ np.array(b, float)
    return dict(zip(inside, np.exp(logs - logs.max()), strict=True))


def along(axis, weights):
    """The law of one coordinate."""
    found = Counter()
    for g, weight in weights.items():
        found[g[axis]] += weight
    return found


@pytest.mark.parametrize("name", LATTICES)
def test_lattice_law(name):
    a, b, size = LATTICES[name]
    precision = tuple(tuple(Fraction(x) for x in row) for row in a)
    sampler = LatticeGaussian(precision, tuple(map(Fraction, b)), size)
    # Where steps are wide, the normalisers of the proposal matter, and are slow to compute.
    draws = [sampler.draw() for _ in range(150 if name.startswith("steps") else 600)]
    right = lattice_weights(a, b, size)
    for axis in range(len(b)):
        assert p_value([g[axis] for g in draws], along(axis, right)) > WRONGLY
    if not name.startswith("steps"):
        wrong = lattice_weights(a, [b[0] + 1.5 * (3 + a[0][0] ** 0.5), *b[1:]], size)
        assert p_value([g[0] for g in draws], along(0, wrong)) < WRONGLY


def test_shortfall_is_never_negative_and_is_the_difference():
    """At all points of a small ball, against the two exponents in doubles."""
    a, b, size = LATTICES["beyond the ball"]
    precision = tuple(tuple(Fraction(x) for x in row) for row in a)
    sampler = LatticeGaussian(precision, tuple(map(Fraction, b)), size)
    lower, d, c, _ = sampler._proposal
    found = []
    for g in lattice_weights(a, b, size):
        u = np.array(g) / size
        z = np.array(lower, float).T @ u
        target = -0.5 * u @ np.array(a, float) @ u + u @ np.array(b, float)
        proposal = -0.5 * np.sum(np.array(d, float) * (z - np.array(c, float)) ** 2)
        shortfall = sampler.shortfall(list(g))
        assert shortfall >= 0
        found.append(float(shortfall) + target - proposal)
    assert np.ptp(found) < 1e-9


@pytest.mark.parametrize(
    ("variance", "centre"), [("1/20", "1/2"), ("1/4", "1/3"), ("1", "12/5"), ("3", "-1/7")]
)
def test_normaliser_ratio_is_enclosed(variance, centre):
    v, c = Fraction(variance), Fraction(centre)
    with mpmath.workdps(70):

        def normaliser(c):
            return sum(mpmath.exp(-mpmath.mpf((k - c) ** 2) / (2 * v)) for k in range(-60, 61))

        for digits in (10, 40):
            low, high = normaliser_ratio(v, c, digits)
            assert mpmath.mpf(str(low)) <= normaliser(c) / normaliser(0) <= mpmath.mpf(str(high))
            assert high - low <= Decimal(2).scaleb(-digits)


# ---------------------------------------------------------------------------------------------
# Whole tables


def test_untruncated_draws_of_a_row_are_dirichlet():
    """Splits of any tree are a Dirichlet row: means and covariances, in Monte Carlo errors."""
    levels = tuple("abcde")
    network = Network(Schema("d", {"x": Category(levels, "a")}), {"x": ()})
    counts = np.array([7, 0, 12, 3, 1])
    planned = PosteriorSample(network, Fraction(10**9), 1500, 1, Fraction(1), {"x": Fraction(2)})
    drawn = planned.draw(FamilyCounts(23, {"x": counts}))
    rows = rows_of_splits(np.array([draw["x"] for draw in drawn.draws]) / ONE, 5)

    def largest_error(alpha):
        law = stats.dirichlet(alpha)
        scores = (rows - law.mean()) / np.sqrt(law.var())
        return max(
            np.abs(scores.mean(axis=0)).max() * np.sqrt(len(rows)),
            np.abs(scores.std(axis=0) - 1).max() * np.sqrt(2 * len(rows)) / 1.5,
        )

    assert largest_error(counts + 2) < 5.5
    assert largest_error(counts + 1) > 5.5  # another prior
    assert largest_error(counts[::-1] + 2) > 5.5  # levels in another order
