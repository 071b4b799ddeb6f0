"""Parts of the calibration harness against brute force and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.regression.papers.moments import CovariateMoments, unique_entries
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from noisewise.core.errors import RequestError
from noisewise.planning.truths import draw_covariate_law
from studies import regression
from studies.bs2019.fig3 import paper_model
from studies.calibration.grid import broad_model
from studies.regression import (
    SimulatedRegression,
    draw_gram,
    draw_regression,
    noise_scales,
)
from studies.uniformity import (
    coverage,
    coverage_test,
    ecdf_band,
    effective_size,
    mmd2_unbiased,
    outside_band,
    spread_rank,
    thin,
    uniformity_test,
)

MU = np.array([0.3, -0.5])
T = np.array([[0.5, 0.2], [0.2, 0.4]])
THETA = np.array([0.2, 0.7, -0.4])
SIGMA2 = 0.3


def grams(draw, size):
    upper = np.triu_indices(4)
    return np.array([draw()[upper] for _ in range(size)])


def largest_z(a, b, power):
    """Largest difference of the means of all products of `power` entries, in standard errors."""
    if power == 2:
        a, b = ((x - x.mean(axis=0))[:, :, None] * (x - x.mean(axis=0))[:, None, :] for x in (a, b))
    error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
    difference = np.abs(a.mean(axis=0) - b.mean(axis=0))
    return float((difference[error > 0] / error[error > 0]).max())


def from_rows(rng, n):
    x = rng.multivariate_normal(MU, T, n)
    y = THETA[0] + x @ THETA[1:] + rng.normal(0, np.sqrt(SIGMA2), n)
    return regression.gram(x, y)


@pytest.mark.parametrize("n", [5, 12])
def test_bartlett_gram_has_the_moments_of_rows(n):
    rng = np.random.default_rng(n)
    drawn = grams(lambda: draw_gram(rng, n, MU, T, THETA, SIGMA2), 12_000)
    rows = grams(lambda: from_rows(rng, n), 12_000)
    # 9 means, 45 covariances: 4.5 standard errors are exceeded by chance once in 3000 runs.
    assert largest_z(drawn, rows, 1) < 4.5
    assert largest_z(drawn, rows, 2) < 4.5
    assert (drawn[:, 0] == n).all()
    # Negative control: one degree of freedom too many in the errors is noticed.
    wrong = drawn.copy()
    wrong[:, -1] += SIGMA2 * rng.chisquare(1, len(wrong))
    assert largest_z(wrong, rows, 1) > 4.5


def test_bartlett_gram_is_positive_definite_and_needs_enough_rows():
    rng = np.random.default_rng(1)
    for _ in range(100):
        assert np.linalg.eigvalsh(draw_gram(rng, 5, MU, T, THETA, SIGMA2))[0] > 0
    with pytest.raises(RequestError, match="more than 3 rows"):
        draw_gram(rng, 3, MU, T, THETA, SIGMA2)


def test_prior_draws_have_the_prior_moments():
    rng = np.random.default_rng(2)
    covariates = NIWPrior([0.3, -0.2], 2.0, [[1.0, 0.3], [0.3, 0.5]], 12.0)
    laws = [draw_covariate_law(covariates, rng) for _ in range(6000)]
    means, matrices = np.array([mu for mu, _ in laws]), np.array([S for _, S in laws])
    expected = covariates.Psi / (12 - 3)
    error = matrices.std(axis=0) / np.sqrt(6000)
    assert (np.abs(matrices.mean(axis=0) - expected) < 4.5 * error).all()
    np.testing.assert_allclose(np.cov(means.T), expected / 2, rtol=0.12, atol=0.003)
    # T⁻¹ has mean nu Psi⁻¹, whose sampling error is another one.
    inverses = np.linalg.inv(matrices)
    error = inverses.std(axis=0) / np.sqrt(6000)
    assert (np.abs(inverses.mean(axis=0) - 12 * np.linalg.inv(covariates.Psi)) < 4.5 * error).all()
    prior = NIGPrior([0.5, -1.0], [[2.0, 0.5], [0.5, 1.0]], 6.0, 1.5)
    drawn = [draw_regression(prior, rng) for _ in range(6000)]
    theta, sigma2 = np.array([t for t, _ in drawn]), np.array([s for _, s in drawn])
    assert abs(sigma2.mean() - 0.3) < 4.5 * sigma2.std() / np.sqrt(6000)
    np.testing.assert_allclose(np.cov(theta.T), 0.3 * np.linalg.inv(prior.Lam0), rtol=0.15)


def test_independent_rows_have_the_law_that_gibbs_prior_assumes():
    model = paper_model(400, 1.0, independent_rows=True, fourth=False)
    rng = np.random.default_rng(3)
    x = np.concatenate([model._rows(rng) for _ in range(50)])[:, 0]
    moments = CovariateMoments.from_niw(model.covariates)
    sums = np.column_stack([x, x**2])
    rows, columns = unique_entries(2)
    error = sums.std(axis=0) / np.sqrt(len(x))
    assert (np.abs(sums.mean(axis=0) - moments.eta[rows, columns]) < 4.5 * error).all()
    np.testing.assert_allclose(np.cov(sums.T), moments.xi, rtol=0.1, atol=1e-3)


def test_noise_is_what_a_holder_would_plan():
    # Replace one row of [-1, 1]²: 3 + 2 + 2/6 for the second moments, 5 - 1/8 for the fourth.
    whole = noise_scales(1, 0.1, 0.0, "upper", False)
    assert whole.diagonal == pytest.approx(10 * 16 / 3, rel=1e-8)
    assert whole.diagonal == whole.off_diagonal
    halved = noise_scales(1, 0.1, 0.0, "upper", True)
    assert halved.diagonal == pytest.approx(2 * whole.diagonal, rel=1e-8)
    assert halved.fourth == pytest.approx(20 * (5 - 1 / 8), rel=1e-8)
    # Gaussian: multiplier 4.2247 at epsilon = 1, delta = 1e-6; Δ₂ = p + 1 for odd p.
    gaussian = noise_scales(4, 1.0, 1e-6, "upper", False)
    assert gaussian.diagonal == pytest.approx(4.2247 * 6, rel=1e-4)
    isometric = noise_scales(4, 1.0, 1e-6, "isometric", False)
    assert isometric.diagonal == pytest.approx(np.sqrt(2) * gaussian.diagonal, rel=1e-6)
    assert isometric.off_diagonal == pytest.approx(gaussian.diagonal, rel=1e-6)


def test_released_noise_has_the_stated_law():
    for model in (paper_model(10, 0.1), broad_model(1, 10, 1.0, delta=1e-6, layout="isometric")):
        rng = np.random.default_rng(4)
        noise = {"diagonal": [], "off": []}
        for _ in range(800):
            case = model.simulate(rng)
            rest = case.released.values - case.A
            np.testing.assert_array_equal(rest, rest.T)
            noise["diagonal"] += [rest[1, 1], rest[2, 2]]
            noise["off"] += [rest[0, 1], rest[0, 2], rest[1, 2]]
        law = stats.norm if model.family == "gaussian" else stats.laplace
        scale = case.released.scale
        assert stats.kstest(noise["diagonal"], law(scale=scale[1, 1]).cdf).pvalue > 0.001
        assert stats.kstest(noise["off"], law(scale=scale[0, 1]).cdf).pvalue > 0.001
        # Negative control: a scale that is 15% off is noticed.
        assert stats.kstest(noise["off"], law(scale=1.15 * scale[0, 1]).cdf).pvalue < 0.01


def test_fourth_moments_are_of_the_same_rows():
    case = paper_model(1000, 100.0).simulate(np.random.default_rng(5))
    assert case.fourth is not None
    noise = case.fourth.values[:2] - case.A[[0, 1], [1, 1]]
    assert (np.abs(noise) < 12 * case.fourth.scale).all()
    assert case.A[1, 1] > 50 * case.fourth.scale


def test_mismatched_priors_are_refused():
    with pytest.raises(RequestError, match="covariates"):
        SimulatedRegression(
            NIGPrior.weakly_informative(2), NIWPrior.weakly_informative(1), "", 9, 1
        )


# --- uniformity -----------------------------------------------------------------------------------


def test_spread_ranks_are_uniform_for_any_number_of_draws():
    rng = np.random.default_rng(6)
    u = [
        spread_rank(rng.standard_normal(), rng.standard_normal(int(size)), rng)
        for size in rng.integers(1, 30, 4000)
    ]
    assert uniformity_test(np.array(u)).p_value > 0.001
    for level in (0.5, 0.95):
        error = np.sqrt(level * (1 - level) / 4000)
        assert abs(coverage(np.array(u), level) - level) < 4 * error
    assert coverage_test(np.array(u), 0.95) > 0.001
    narrow = stats.norm.cdf(rng.standard_normal(300) / 0.7)
    assert coverage_test(narrow, 0.95) < 0.001


def test_uniformity_test_reports_its_error():
    rng = np.random.default_rng(7)
    found = [uniformity_test(rng.uniform(size=400) ** 1.5) for _ in range(60)]
    actual = np.std([test.ks for test in found])
    assert 0.6 < np.mean([test.ks_error for test in found]) / actual < 1.6


def test_thinning_spaces_draws_evenly():
    draws = np.arange(20.0).reshape(2, 10)
    np.testing.assert_array_equal(thin(draws, 4), [2, 7, 12, 17])
    np.testing.assert_array_equal(thin(draws, 99), np.arange(20))


def test_effective_size_of_an_autoregression():
    rng = np.random.default_rng(8)
    chain = np.zeros((2, 8000))
    shocks = rng.standard_normal(chain.shape)
    for t in range(1, 8000):
        chain[:, t] = 0.8 * chain[:, t - 1] + 0.6 * shocks[:, t]
    assert effective_size(chain) == pytest.approx(16_000 / 9, rel=0.25)
    assert effective_size(shocks) == pytest.approx(16_000, rel=0.1)
    assert effective_size(np.ones((1, 50))) == 1
    with pytest.raises(ArithmeticError):
        effective_size(np.full((1, 50), np.nan))


def test_band_holds_jointly():
    rng = np.random.default_rng(9)
    leaves = sum(outside_band(rng.uniform(size=150)) for _ in range(400))
    assert stats.binom.cdf(leaves, 400, 0.055) > 0.001
    assert stats.binom.sf(leaves - 1, 400, 0.055) > 0.001
    assert outside_band(rng.uniform(size=150) ** 2)
    band = ecdf_band(150)
    assert (band.low < 0).all()
    assert (band.high > 0).all()


# --- discrepancy ----------------------------------------------------------------------------------


def test_mmd_agrees_with_its_definition_and_does_not_depend_on_batches():
    rng = np.random.default_rng(10)
    p, q = rng.normal(size=(40, 3)), rng.normal(0.5, 2, size=(30, 3))
    pooled = np.concatenate([p, q]) / np.concatenate([p, q]).std(axis=0)
    distance = ((pooled[:, None] - pooled) ** 2).sum(axis=-1)
    kernel = np.exp(-distance / (2 * np.median(distance[np.triu_indices(70, 1)])))
    np.fill_diagonal(kernel, 0)
    expected = kernel[:40, :40].sum() / (40 * 39) + kernel[40:, 40:].sum() / (30 * 29)
    expected -= 2 * kernel[:40, 40:].mean()
    assert mmd2_unbiased(p, q) == pytest.approx(expected, rel=1e-10)
    assert mmd2_unbiased(p, q, batch=7) == pytest.approx(expected, rel=1e-10)


def test_mmd_is_unbiased_for_equal_laws_and_positive_for_others():
    rng = np.random.default_rng(11)
    same = [mmd2_unbiased(rng.normal(size=(50, 2)), rng.normal(size=(50, 2))) for _ in range(200)]
    assert abs(np.mean(same)) < 4 * np.std(same) / np.sqrt(200)
    assert min(same) < 0
    other = [mmd2_unbiased(rng.normal(size=(50, 2)), rng.normal(1, 1, (50, 2))) for _ in range(20)]
    assert min(other) > max(same)
