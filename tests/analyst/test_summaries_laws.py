"""The reference laws of block summaries, against quadrature and against partitions of rows."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from noisewise.analyst.summaries import laws
from noisewise.core import normal_laplace
from noisewise.core.noise import DiscreteLaplace

P_STAR = (0.001, 0.2, 0.4)
CASES = {
    "sign": (np.sign, laws.SIGN_LAW, (0.0,)),
    "stouffer 1.2": (lambda x: np.clip(x, -1.2, 1.2), laws.stouffer_law(1.2), (-1.2, 1.2)),
    "stouffer 0.3": (lambda x: np.clip(x, -0.3, 0.3), laws.stouffer_law(0.3), (-0.3, 0.3)),
    "rescaled_normal": (stats.norm.cdf, laws.RESCALED_NORMAL_LAW, ()),
} | {
    f"fisher {p}": (
        lambda x, p=p: np.minimum(-2 * stats.norm.logcdf(x), -2 * math.log(p)),
        laws.fisher_moments(p).law,
        (stats.norm.ppf(p),),
    )
    for p in P_STAR
}


def expectation(f, breaks):
    ends = [-12.0, *breaks, 12.0]
    return sum(
        integrate.quad(lambda x: f(x) * stats.norm.pdf(x), a, b, epsabs=1e-12)[0]
        for a, b in pairwise(ends)
    )


@pytest.mark.parametrize("name", CASES)
def test_moments_of_a_block(name):
    psi, law, breaks = CASES[name]
    mean = expectation(psi, breaks)
    assert law.mean == pytest.approx(mean, abs=1e-6)
    assert law.variance == pytest.approx(
        expectation(lambda x: (psi(x) - mean) ** 2, breaks), rel=1e-6
    )
    slope = expectation(lambda x: x * psi(x), breaks)
    assert law.slope == pytest.approx(slope, rel=1e-6)
    assert law.spread(1) == law.variance
    assert law.slope**2 < law.spread(30) < law.variance


def partition_averages(psi, blocks, partitions, trials, seed, rows=600):
    """Averages of ψ over blocks of normal rows, partitioned anew; block sizes vary."""
    rng = np.random.default_rng(seed)
    found = np.zeros(trials)
    for t in range(trials):
        e = rng.standard_normal(rows)
        for _ in range(partitions):
            block = rng.integers(0, blocks, rows)
            size = np.bincount(block, minlength=blocks)
            total = np.bincount(block, e, blocks)
            xi = total / np.sqrt(np.maximum(size, 1))
            found[t] += psi(xi).mean() / partitions
    return found


@pytest.mark.parametrize("name", ["sign", "stouffer 1.2", "rescaled_normal", "fisher 0.2"])
def test_repeated_partitions_narrow_averages_as_said(name):
    psi, law, _ = CASES[name]
    M, r, trials = 20, 8, 2000
    drawn_averages = partition_averages(psi, M, r, trials, seed=5)
    ratio = M * drawn_averages.var(ddof=1) / law.spread(r)
    error = math.sqrt(2 / trials)
    # The formula leaves out terms of relative order 1/M.
    assert abs(ratio - 1) < 4 * error + 0.5 / M
    if name == "sign":  # negative controls: as if partitions were one, or independent
        assert M * drawn_averages.var(ddof=1) < (1 - 4 * error) * law.spread(1)
        assert M * drawn_averages.var(ddof=1) > (1 + 4 * error) * law.variance / r


@pytest.mark.parametrize("p_star", P_STAR)
@pytest.mark.parametrize(("blocks", "tolerance"), [(10, 0.004), (60, 0.0015)])
@pytest.mark.parametrize("relative_noise", [0.0, 0.5])
def test_the_fisher_reference_law(p_star, blocks, tolerance, relative_noise):
    rng = np.random.default_rng(blocks)
    trials, limit = 100_000, -2 * math.log(p_star)
    noise = relative_noise * limit / blocks
    drawn_averages = np.minimum(-2 * np.log(rng.uniform(size=(trials, blocks))), limit).mean(axis=1)
    drawn_averages += rng.laplace(0, noise, trials) if noise else 0.0
    x = np.quantile(drawn_averages, [0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
    exceeds = np.array([(drawn_averages > point).mean() for point in x])
    found = laws.fisher(x, p_star, blocks, 1, noise)
    error = np.sqrt(exceeds * (1 - exceeds) / trials)
    assert (np.abs(found - exceeds) < tolerance + 4 * error).all()
    without_skew = stats.norm.sf(
        x, laws.fisher_moments(p_star).law.mean, math.sqrt(drawn_averages.var())
    )  # the negative control: a normal law is not enough
    if blocks == 10 and p_star == 0.001 and noise == 0:
        assert np.abs(without_skew - exceeds).max() > 5 * tolerance


def test_the_fisher_reference_law_of_repeated_partitions():
    psi, _, _ = CASES["fisher 0.001"]
    M, r, trials = 12, 6, 3000
    drawn_averages = partition_averages(psi, M, r, trials, seed=8)
    u = laws.fisher(drawn_averages, 0.001, M, r, 0.0)
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    found = laws.fisher_moments(0.001)
    away = (drawn_averages - found.law.mean) / math.sqrt(found.law.spread(r) / M)
    assert stats.kstest(stats.norm.sf(away), "uniform").pvalue < 1e-3  # the skewness matters


def test_the_corrected_multiplier_is_unbiased_and_the_printed_one_is_not():
    rng = np.random.default_rng(3)
    M, trials = 50, 4000
    z = rng.normal(0, 2, trials)
    xi = rng.standard_normal((trials, M))
    xi += (z / math.sqrt(M) - xi.mean(axis=1))[:, None]  # given the full data's z-score
    average = stats.norm.cdf(xi).mean(axis=1)
    middle = np.abs(z) < 5  # further out the probabilities are 0 or 1 in double precision
    recovered = stats.norm.ppf(laws.rescaled_normal_plug_in(average[middle], M))
    slope, error = np.polyfit(z[middle], recovered, 1, cov=True)
    assert slope[0] == pytest.approx(1, abs=4 * error[0, 0] ** 0.5 + 0.01)
    printed = math.sqrt(M) * stats.norm.ppf(average)
    assert np.polyfit(z, printed, 1)[0] == pytest.approx(math.sqrt(M / (2 * M - 1)), abs=0.01)
    assert laws.rescaled_normal_plug_in(-0.1, M) == 0
    assert laws.rescaled_normal_plug_in(1.1, M) == 1


@pytest.mark.parametrize("scale", [1, 2, 8, 60])
@pytest.mark.parametrize("s", [3.2, 10.0])
def test_discrete_noise_may_be_taken_for_continuous(scale, s):
    """Signs of ten blocks have s = √10 in grid units; a smaller scale than 1 is not released."""
    k = np.arange(-80 * scale, 80 * scale + 1)
    weight = np.exp(DiscreteLaplace(scale).logpmf(k))
    x = np.linspace(-4, 4, 41) * (s + scale)
    exact = (stats.norm.cdf((x[:, None] - k) / s) * weight).sum(axis=1)
    assert np.abs(exact - normal_laplace.cdf(x, s, scale)).max() < 0.003


def test_a_median_lies_where_signs_balance():
    law = laws.median_law(400, 30, 1.0)
    signs = laws.SIGN_LAW
    assert law.s**2 == pytest.approx(signs.spread(30) / signs.slope**2)
    p = np.array([0.01, 0.2, 0.5, 0.8])
    q = laws.median_quantile(p, 3.0, 0.1, law)
    np.testing.assert_allclose(laws.median_probability(q, 3.0, 0.1, law), p, rtol=1e-9)
    assert (np.diff(q) > 0).all()


def test_intervals_between_noisy_quantiles_cover():
    rng = np.random.default_rng(11)
    noise, trials, level = 0.3, 20_000, 0.9
    p = (0.5 - level / 2, 0.5 + level / 2)
    posterior_mean = rng.standard_normal(trials)  # of a coefficient 0, posterior sd 1
    ends = posterior_mean[:, None] + stats.norm.ppf(p) + rng.laplace(0, noise, (trials, 2))
    covered = naive = 0
    for low, high in ends[:4000]:
        a, b = laws.clipped_mean_interval(low, high, *p, noise)
        covered += a <= 0 <= b
        naive += low <= 0 <= high
    error = math.sqrt(level * (1 - level) / 4000)
    assert abs(covered / 4000 - level) < 4 * error + 0.01
    assert naive / 4000 < level - 4 * error  # the negative control


def test_noise_never_turns_the_ends_of_an_interval_round():
    low, high = laws.clipped_mean_interval(1.0, 0.0, 0.25, 0.75, 0.1)
    assert low < high
