"""Priors stated in original units mean the same on unit scale."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import noisewise as nw
from noisewise.analyst.regression.fit import _priors
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.analyst.regression.original_units import (
    CoefficientPrior,
    coefficients_in_original_units,
    covariates_to_unit,
    error_sd_in_original_units,
    inverse_gamma_between,
    prior_in_words,
    read_prior,
    regression_to_unit,
)
from noisewise.analyst.regression.priors import (
    HierarchicalNIWPrior,
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    ScaleFreePrior,
)
from noisewise.core.errors import RequestError
from noisewise.core.schema import Schema

from ..releases import COLUMNS, example_request, release_of

MEAN = np.array([30_000.0, 500.0, -2_000.0, 3_000.0])


@pytest.fixture
def columns():
    return ModelColumns(Schema("people", COLUMNS), ("age", "region"), "income")


def covariance(seed=1):
    root = np.random.default_rng(seed).normal(size=(4, 4)) * [[1e4], [300.0], [4e3], [5e3]]
    return root @ root.T


def test_a_normal_prior_maps_to_what_its_draws_map_to(columns):
    V = covariance()
    unit = regression_to_unit(NormalInverseGammaIndependent(MEAN, V, 3.0, 4e8), columns)
    # Back again, through the map that posteriors take.
    root = np.linalg.cholesky(unit.V0)
    corners = columns.theta_to_original(unit.mu0 + root.T) - columns.theta_to_original(unit.mu0)
    np.testing.assert_allclose(columns.theta_to_original(unit.mu0), MEAN, rtol=1e-9)
    np.testing.assert_allclose(corners.T @ corners, V, rtol=1e-7, atol=1e-7 * V.max())
    assert columns.sigma2_to_original(np.array(unit.b0)) == pytest.approx(4e8)
    mean, sd = coefficients_in_original_units(unit, columns)
    np.testing.assert_allclose(mean, MEAN, rtol=1e-9)
    np.testing.assert_allclose(sd, np.sqrt(V.diagonal()), rtol=1e-8)


@pytest.mark.parametrize("k", [1, 3])
def test_what_the_scale_free_prior_expects_of_the_error(columns, k):
    """By draws; small sds have R² by one of two beta laws."""
    prior, rng = ScaleFreePrior(k), np.random.default_rng(k)
    omega, sigma = 0.5 * abs(rng.standard_t(4, (2, 400_000)))
    left = sigma**2 / (sigma**2 + omega**2)
    lean = np.exp(prior.log_lean(np.log(left)))
    kept = rng.uniform(size=left.size) * np.exp(prior.log_lean(np.zeros(1))) < lean
    ends = np.sqrt(columns.sigma2_to_original(np.quantile(sigma[kept], [0.05, 0.95]) ** 2))
    np.testing.assert_allclose(error_sd_in_original_units(prior, columns), ends, rtol=0.02)
    assert np.quantile(omega[kept], 0.95) < 1.01 * np.quantile(sigma[kept], 0.95)
    small = 1.0 - left[kept & (omega**2 + sigma**2 < 0.01)]
    laws = stats.beta(0.5, 0.5), stats.beta(0.5, k / 2)
    assert stats.kstest(small, lambda x: (laws[0].cdf(x) + laws[1].cdf(x)) / 2).pvalue > 0.001
    assert (stats.kstest(small, laws[0].cdf).pvalue < 1e-6) == (k > 1)
    assert ("half as likely" in prior_in_words(prior, columns)) == (k > 1)


def test_a_conjugate_prior_keeps_its_ratio_to_the_error(columns):
    V = covariance()
    original = NIGPrior(MEAN, 4e8 * np.linalg.inv(V), 2.0, 8e8)
    unit = regression_to_unit(original, columns)
    mean, sd = coefficients_in_original_units(unit, columns)
    np.testing.assert_allclose(mean, MEAN, rtol=1e-9)
    # At sigma2 = b0 / a0 = 4e8 the covariance is V.
    np.testing.assert_allclose(sd, np.sqrt(V.diagonal()), rtol=1e-7)


def test_covariate_priors_are_scaled_by_the_bounds(columns):
    m, width = np.array([50.0, 0.3, 0.4]), np.array([36.0, 1.0, 1.0])
    Psi = np.diag([900.0, 0.2, 0.3]) + np.full((3, 3), 0.05)
    unit = covariates_to_unit(NIWPrior(m, 2.0, Psi, 7.0), columns)
    np.testing.assert_allclose(unit.m, [(50 - 54) / 36, 0.3, 0.4])
    np.testing.assert_allclose(unit.Psi * np.outer(width, width), Psi)
    hierarchical = covariates_to_unit(
        HierarchicalNIWPrior(m, 2.0, Psi.diagonal(), 7.0, 2.0), columns
    )
    np.testing.assert_allclose(hierarchical.psi, unit.Psi.diagonal())
    half_t = covariates_to_unit(HuangWandPrior(m, 2.0, np.array([18.0, 0.5, 0.5]), 7.0), columns)
    np.testing.assert_allclose(half_t.A, [0.5, 0.5, 0.5])


def test_named_slopes_leave_the_rest_alone(columns):
    default = NormalInverseGammaIndependent.weakly_informative(3)
    unit = CoefficientPrior({"age": (500, 250)}).on_unit_scale(columns)
    mean, sd = coefficients_in_original_units(unit, columns)
    assert (mean[1], sd[1]) == pytest.approx((500, 250))
    np.testing.assert_allclose(unit.V0.diagonal()[[0, 2, 3]], default.V0.diagonal()[[0, 2, 3]])
    assert (unit.a0, unit.b0) == (default.a0, default.b0)


def test_a_named_intercept_is_that_of_a_person_with_zeros(columns):
    unit = CoefficientPrior({"intercept": (30_000, 1_000), "age": (0, 10)}).on_unit_scale(columns)
    mean, sd = coefficients_in_original_units(unit, columns)
    assert (mean[0], sd[0]) == pytest.approx((30_000, 1_000))
    # The intercept is independent of the slopes in original units, hence not on unit scale.
    assert abs(unit.V0[0, 1]) > 0


def test_the_error_lies_where_it_is_said_to_lie(columns):
    unit = CoefficientPrior(error_sd=(5_000, 40_000)).on_unit_scale(columns)
    law = stats.invgamma(unit.a0, scale=columns.sigma2_to_original(np.array(unit.b0)))
    np.testing.assert_allclose(np.sqrt(law.ppf([0.05, 0.95])), [5_000, 40_000], rtol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.01), (1e-6, 1.0), (3.0, 300.0)])
def test_inverse_gamma_between(low, high):
    shape, scale = inverse_gamma_between(low, high)
    np.testing.assert_allclose(
        stats.invgamma(shape, scale=scale).ppf([0.05, 0.95]), [low, high], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: CoefficientPrior({"age": (0, 0)}), "positive"),
        (lambda: CoefficientPrior({"age": 3}), "two numbers"),
        (lambda: CoefficientPrior({"age": (0, np.inf)}), "finite"),
        (lambda: CoefficientPrior(error_sd=(2, 1)), "low < high"),
        (lambda: CoefficientPrior(error_sd=(1, 1 + 1e-9)).on_unit_scale, "low < high|narrow"),
    ],
)
def test_priors_that_make_no_sense(make, word, columns):
    with pytest.raises(RequestError, match=word):
        make()(columns)


def test_unknown_coefficients_and_units_are_refused(columns):
    with pytest.raises(RequestError, match=r"wage.*there are intercept"):
        CoefficientPrior({"wage": (0, 1)}).on_unit_scale(columns)
    with pytest.raises(RequestError, match="prior_units"):
        _priors(None, None, "metric", columns)


def test_the_prior_is_felt_and_remembered():
    """Statistics drowned in noise: the posterior is the prior, in original units."""
    release = release_of(example_request(epsilon=1e-4), n=200)
    prior = CoefficientPrior({"age": (700, 10)})
    posterior = nw.fit(release, prior=prior, seed=1, draws=500)
    row = posterior.summary().rows["age"]
    assert row.mean == pytest.approx(700, abs=5)
    assert row.sd == pytest.approx(10, rel=0.25)
    assert posterior.info.prior["age"] == pytest.approx((700, 10))


def test_both_ways_of_stating_a_prior_give_the_same_draws(columns):
    release = release_of(example_request(), n=200)
    V = covariance()
    original = NormalInverseGammaIndependent(MEAN, V, 3.0, 4e8)
    words = {"seed": 1, "draws": 20, "chains": 1}
    one = nw.fit(release, prior=original, prior_units="original", **words)
    other = nw.fit(release, prior=regression_to_unit(original, columns), **words)
    np.testing.assert_array_equal(one.theta, other.theta)


def test_prior_files(tmp_path):
    path = tmp_path / "prior.yaml"
    path.write_text("coefficients:\n  age: {mean: 0, sd: 500}\nerror_sd: [5e3, 4e4]\n")
    assert read_prior(path) == CoefficientPrior({"age": (0, 500)}, (5e3, 4e4))
    path.write_text("error_sd: [1, 2]\n")
    assert read_prior(path) == CoefficientPrior(error_sd=(1, 2))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("slopes: {}", "nothing else"),
        ("- 1", "nothing else"),
        ("coefficients: [1]", "one line"),
        ("coefficients: {age: 3}", "mean"),
        ("coefficients: {age: {mean: 0, sd: x}}", "two numbers"),
        ("coefficients: {age: {mean: 0, sd: -1}}", "positive"),
        ("error_sd: [1", "YAML"),
        ("error_sd: ab", "two"),
    ],
)
def test_bad_prior_files(tmp_path, text, word):
    path = tmp_path / "prior.yaml"
    path.write_text(text)
    with pytest.raises(RequestError, match=word):
        read_prior(path)
    with pytest.raises(RequestError, match="no file"):
        read_prior(tmp_path / "absent.yaml")
