"""The scale-free prior: density, gradient and draws against formulas written out plainly."""

from __future__ import annotations

import math
from types import SimpleNamespace

import arviz as az
import numpy as np
import pytest
from scipy import special, stats

from noisewise.analyst.regression.exact import density, sampler, scale_free
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.factor import FEW_ENTRIES, log_length, log_size
from noisewise.analyst.regression.exact.prior import HALF_T, SIZE_AT, scale_free_integral
from noisewise.analyst.regression.exact.sampler import (
    init,
    sample_enough,
    sample_posterior,
    smallest_ess,
)
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import ScaleFreeCovariates, ScaleFreePrior

from .size_law import log_size_and_law
from .test_collapsed import observe

CASES = {
    # k, rows, private n, relative, partial
    "one column": (1, (60,), False, None, None),
    "plain rows": (2, (60,), False, None, False),
    "partial rows": (2, (60,), False, None, None),
    "three columns": (3, (80,), False, None, None),
    "few rows": (2, (6,), False, None, None),
    "two holders": (2, (60, 40), False, False, None),
    "relative holders": (2, (60, 40, 50), False, True, None),
    "private n": (2, (60,), True, None, None),
    "two private n": (1, (60, 40), True, True, None),
    "many columns": (18, (80,), False, None, None),
    "known products": (4, (80,), False, None, None),
    "known products with y": (4, (80,), False, None, None),
}
KNOWN = {
    "known products": ((2, 1), (3, 1), (3, 2)),
    "known products with y": ((5, 1), (5, 3)),
}


def posterior_of(case, family="gaussian", seed=1, centre=None):
    k, rows, private, relative, partial = CASES[case]
    rng = np.random.default_rng(seed)
    known = KNOWN.get(case, ())
    observations = [observe(rng, n, k, 2.0, family, known=known, private=private) for n in rows]
    prior, covariates = ScaleFreePrior(k, centre=centre), ScaleFreeCovariates.default(k)
    return CollapsedPosterior(observations, prior, covariates, relative=relative, partial=partial)


def grid(freedom):
    """Of ln(sigma² N / RSS), far beyond where its law has mass."""
    sd = math.sqrt(2 / freedom)
    return np.linspace(-10 * sd, 10 * sd + 100 / max(freedom - 1, 1.5), 1501)


def log_half_t(u, scale):
    """Of u = ln x², x half-t with 4 degrees of freedom, without its constant."""
    return 0.5 * u - 2.5 * np.log1p(np.exp(u) / (4 * scale**2))


def lean(k, left):
    """Log of Beta(1/2, 1/2) and Beta(1/2, k/2) mixed, over the first, at R² = 1 - left."""
    ratio = special.beta(0.5, 0.5) / special.beta(0.5, 0.5 * k)
    return np.log1p(ratio * left ** (0.5 * (k - 1)))


def log_marginal(A, psi, prior, covariates, guess=None):
    """Density of rows with statistics A, and of ln psi, by a fine grid over both variances.

    `guess` is the number of rows that the prior counts R² by, where it is private.
    """
    N, k = A[0, 0], len(A) - 2
    xbar, ybar = A[0, 1:-1] / N, A[0, -1] / N
    S = A[1:-1, 1:-1] - N * np.outer(xbar, xbar)
    Sxy = A[1:-1, -1] - N * xbar * ybar
    ess = Sxy @ np.linalg.solve(S, Sxy)
    rss = A[-1, -1] - N * ybar**2 - ess
    freedom = N - 1 - k
    s = math.log(rss / N) + grid(freedom)
    u = np.linspace(-60, 14, 401)
    sigma2, omega2 = np.exp(s)[:, None], np.exp(u)
    # y has covariance sigma2 I + (omega2 / k) X (S / N)^-1 X' about a flat intercept.
    tau2 = sigma2 + N * omega2 / k
    logs = -0.5 * ((N - 1) * np.log(2 * np.pi * sigma2) + rss / sigma2 + math.log(N))
    logs = logs - 0.5 * (k * np.log(tau2 / sigma2) + ess / tau2)
    logs += log_half_t(s, prior.scale)[:, None] + log_half_t(u, prior.scale)
    logs += lean(k, 1 / (1 + omega2 / sigma2 * N / (guess or N)))
    regression = special.logsumexp(logs) + math.log((s[1] - s[0]) * (u[1] - u[0]))
    nu = covariates.nu
    law = -0.5 * k * ((N - 1) * math.log(2 * math.pi) + math.log(N))
    law += 0.5 * nu * np.log(psi).sum() - special.multigammaln(nu / 2, k)
    law += 0.5 * k * (N - 1) * math.log(2) + special.multigammaln((nu + N - 1) / 2, k)
    law -= 0.5 * (nu + N - 1) * np.linalg.slogdet(np.diag(psi) + S)[1]
    law += stats.gamma.logpdf(psi, 0.5, scale=1 / covariates.rate).sum() + np.log(psi).sum()
    return regression + law


def free_statistics(posterior, x):
    """All that the coordinates stand for: free entries of each A_j (n first), ln size and ln psi.

    Columns are in the order of the arrays.
    """
    A = posterior.statistics(x)[:, *np.ix_(posterior.columns, posterior.columns)]
    a = posterior.arrays
    reference = A[posterior.order[0]]
    factor = np.linalg.cholesky(reference / reference[0, 0])[1:-1, 1:-1]
    precision = (np.linalg.inv(factor) ** 2).sum(axis=0)
    extra = a.centre[-posterior.k :] + a.scale[-posterior.k :] * x[-posterior.k :]
    log_psi = extra - np.log(a.psi_rate + precision / 2)
    entries = [
        gram[np.tril(known == 0)]
        for gram, known in ((A[j], a.known[i]) for i, j in enumerate(posterior.order))
    ]
    log_size, _ = log_size_and_law(posterior, x)
    return np.concatenate([*entries, log_size, log_psi]), A, np.exp(log_psi)


def counted_from(centre, A):
    """Statistics of rows whose y is counted from what slopes predict."""
    D = np.eye(len(A))
    D[-1, 1:-1] = -centre
    return D @ A @ D.T


def expected(posterior, x, centre=0.0):
    """Log density by x up to a constant: the formula, times the Jacobian by differences."""
    _, grams, psi = free_statistics(posterior, x)
    centre = np.broadcast_to(centre, posterior.k)[np.array(posterior.columns[1:-1]) - 1]
    prior, covariates = ScaleFreePrior(posterior.k), ScaleFreeCovariates.default(posterior.k)
    law_of_size = log_size_and_law(posterior, x)[1]
    pooled, guess = counted_from(centre, grams.sum(axis=0)), posterior.arrays.n.sum()
    total = log_marginal(pooled, psi, prior, covariates, guess) + law_of_size
    p = posterior.k + 1
    for i, j in enumerate(posterior.order):
        gram, a = grams[j], posterior.arrays
        n, mean = gram[0, 0], gram[0, 1:] / gram[0, 0]
        scatter = gram[1:, 1:] - n * np.outer(mean, mean)
        # Volume of the rows with this Gram matrix, and the noise.
        total += 0.5 * p * (n - 1) * math.log(math.pi) - special.multigammaln((n - 1) / 2, p)
        total += 0.5 * (n - p - 2) * np.linalg.slogdet(scatter)[1] - 0.5 * p * math.log(n)
        noisy = np.tril(a.precision[i]) > 0
        total -= 0.5 * (((a.values[i] - gram) * a.precision[i])[noisy] ** 2).sum()
    step = 1e-5
    jacobian = np.array(
        [
            (
                free_statistics(posterior, x + step * e)[0]
                - free_statistics(posterior, x - step * e)[0]
            )
            / (2 * step)
            for e in np.eye(posterior.ndim)
        ]
    )
    return total + np.linalg.slogdet(jacobian)[1]


@pytest.mark.parametrize("k", [2, 5])
def test_what_the_prior_says_of_spreads_beyond_the_others(k):
    """Flat towards 0 in standard deviations; uniform correlations are flat in variances."""
    rng, found = np.random.default_rng(k), []
    covariates = ScaleFreeCovariates.default(k)
    for _ in range(1000):
        psi = rng.gamma(covariates.shape, 1.0 / covariates.rate)
        T = stats.invwishart.rvs(covariates.nu, np.diag(psi), random_state=rng)
        found.append((math.sqrt(T[0, 0]), 1.0 / (T[0, 0] * np.linalg.inv(T)[0, 0])))
    sd, share = np.transpose(found)
    assert stats.kstest(sd / 0.5, stats.halfcauchy.cdf).pvalue > 0.001
    left = stats.beta(0.5, 0.5 * (k - 1))
    assert stats.kstest(share, left.cdf).pvalue > 0.001
    assert left.pdf(1e-8) * 1e-4 == pytest.approx(left.pdf(1e-6) * 1e-3, rel=1e-3)
    assert stats.kstest(share, stats.beta(1.0, 0.5 * (k - 1)).cdf).pvalue < 1e-6


@pytest.mark.parametrize("case", CASES)
def test_density_against_the_formula(case):
    posterior = posterior_of(case)
    rng = np.random.default_rng(2)
    gaps = []
    for _ in range(5):
        x = 0.7 * rng.standard_normal(posterior.ndim)
        gaps.append(posterior.logp_and_gradient(x)[0] - expected(posterior, x))
    assert np.isfinite(gaps).all()
    assert np.ptp(gaps) < 5e-4


@pytest.mark.parametrize("case", ["three columns", "relative holders", "private n"])
def test_density_around_other_slopes_than_0(case):
    """With its gradient, and the control that slopes of 0 are another prior."""
    centre = np.array([0.9, -0.4, 0.3])[: CASES[case][0]]
    posterior = posterior_of(case, centre=centre)
    rng = np.random.default_rng(2)
    points = 0.7 * rng.standard_normal((5, posterior.ndim))
    found = [posterior.logp_and_gradient(x)[0] for x in points]
    assert np.ptp(found - np.array([expected(posterior, x, centre) for x in points])) < 5e-4
    assert np.ptp(found - np.array([expected(posterior, x) for x in points])) > 5e-3
    gradient = posterior.logp_and_gradient(points[0])[1]
    numeric = [
        (
            posterior.logp_and_gradient(points[0] + e)[0]
            - posterior.logp_and_gradient(points[0] - e)[0]
        )
        / 2e-5
        for e in 1e-5 * np.eye(posterior.ndim)
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6 * abs(gradient).max())


def test_draws_around_other_slopes_than_0():
    """As those of y counted from these slopes, with the slopes added."""
    centre = np.array([0.9, -0.4, 0.3])
    posterior = posterior_of("three columns", centre=centre)
    x = np.zeros((4000, posterior.ndim))
    theta, sigma2, mean, _, _ = posterior.draw_parameters(np.random.default_rng(1), x)
    A = counted_from(centre, posterior.statistics(x[0])[0])
    other, same, middle = scale_free.draw(
        np.random.default_rng(2),
        np.broadcast_to(np.linalg.cholesky(A), (4000, *A.shape)),
        float(posterior.arrays.scalars[HALF_T]),
        posterior._sigma,
        posterior._omega,
    )
    other[:, 1:] += centre
    middle[:, 1:] += centre
    np.testing.assert_allclose(mean[0], middle[0], rtol=1e-9)
    for ours, theirs in zip([*theta.T, sigma2], [*other.T, same], strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-4


@pytest.mark.parametrize("other", ["scale", "law of R²"])
def test_the_formula_would_notice_another_prior(monkeypatch, other):
    """Negative controls: other half-t laws and another law of R² are seen."""
    posterior = posterior_of("three columns")
    rng = np.random.default_rng(2)
    points = 0.7 * rng.standard_normal((5, posterior.ndim))
    if other == "scale":
        narrow = SimpleNamespace(scale=0.1)
        monkeypatch.setattr(f"{__name__}.ScaleFreePrior", lambda k: narrow)
    else:
        monkeypatch.setattr(f"{__name__}.lean", lambda k, left: 0.0)
    gaps = [posterior.logp_and_gradient(x)[0] - expected(posterior, x) for x in points]
    assert np.ptp(gaps) > 5e-3


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_gradient_against_differences(case, family):
    posterior = posterior_of(case, family)
    rng = np.random.default_rng(3)
    step = 1e-5
    for _ in range(3):
        x = 0.7 * rng.standard_normal(posterior.ndim)
        gradient = posterior.logp_and_gradient(x)[1]
        numeric = [
            (
                posterior.logp_and_gradient(x + step * e)[0]
                - posterior.logp_and_gradient(x - step * e)[0]
            )
            / (2 * step)
            for e in np.eye(posterior.ndim)
        ]
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6 * abs(gradient).max())


@pytest.mark.parametrize("log_size", [-90.0, -20.0, 20.0, 90.0])
def test_sizes_far_out(log_size):
    """The gradient there; beyond 100 a point is off the support."""
    posterior = posterior_of("known products with y")
    a, at = posterior.arrays, int(posterior.arrays.scalars[SIZE_AT])
    x = 0.5 * np.random.default_rng(4).standard_normal(posterior.ndim)
    x[at] = (log_size - a.centre[at]) / a.scale[at]
    value, gradient = posterior.logp_and_gradient(x)
    assert np.isfinite(value)
    numeric = [
        (posterior.logp_and_gradient(x + e)[0] - posterior.logp_and_gradient(x - e)[0]) / 2e-4
        for e in 1e-4 * np.eye(posterior.ndim)
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5 * abs(gradient).max())
    x[at] = (math.copysign(110.0, log_size) - a.centre[at]) / a.scale[at]
    assert posterior.logp_and_gradient(x)[0] == -np.inf


def test_digits_are_kept_where_y_is_nearly_explained():
    """Far out, where the residual variance is 1e-20 of y's, the gradient is still right."""
    posterior = posterior_of("one column")
    x = np.zeros(posterior.ndim)
    y_correlation = 3  # coordinates: mean and length of x, mean of y, correlation, length of y
    base = posterior.arrays.centre[y_correlation]
    x[y_correlation] = (6.5 - base) / posterior.arrays.scale[y_correlation]
    A = posterior.statistics(x)[0]
    scatter = A[1:, 1:] - np.outer(A[0, 1:], A[0, 1:]) / A[0, 0]
    assert 1 - scatter[0, 1] ** 2 / (scatter[0, 0] * scatter[1, 1]) < 1e-14
    gradient = posterior.logp_and_gradient(x)[1]
    step = 1e-4 * np.eye(posterior.ndim)
    numeric = [
        (posterior.logp_and_gradient(x + e)[0] - posterior.logp_and_gradient(x - e)[0]) / 2e-4
        for e in step
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("k", "rows"), [(0, 30), (1, 4), (1, 20_000), (5, 500), (59, 3000)])
def test_integral_over_both_variances(k, rows):
    """Against a fine grid, from y all explained to y not at all, and by differences."""
    N, half_t = float(k + rows), 1.0
    sigma, omega = scale_free.sigma_nodes(N, k), scale_free.omega_nodes(ScaleFreePrior(k), N)
    sd = math.sqrt(2 / (N - 1 - k))
    x = np.linspace(-9 * sd, 9 * sd + 80 / (N - 2 - k), 601)
    u = np.linspace(-60, 14, 401)
    errors = []
    for log_rss in (-16.0, -4.0, 0.0):
        for log_ess in (-20.0, -5.0, 0.0):
            rss, ess = N * math.exp(log_rss), N * math.exp(log_ess) if k else 0.0
            found, *given = scale_free_integral(rss, ess, N, k, half_t, sigma, omega)
            s = log_rss + x[:, None]
            tau2 = np.exp(s) + N * np.exp(u) / max(k, 1)
            logs = -0.5 * ((N - 1 - k) * s + rss * np.exp(-s) + k * np.log(tau2) + ess / tau2)
            logs += (
                log_half_t(s, 0.5) + log_half_t(u, 0.5) + lean(max(k, 1), 1 / (1 + np.exp(u - s)))
            )
            expected = special.logsumexp(logs) + math.log((x[1] - x[0]) * (u[1] - u[0]))
            errors.append(found - expected)

            def value(at):
                return scale_free_integral(*at, k, half_t, sigma, omega)[0]

            at = np.array([rss, ess, N])
            slopes = [_slope(value, at, i) for i in range(3)]
            np.testing.assert_allclose(given * at, slopes, rtol=1e-5, atol=1e-5)
    # A constant error is of no concern; it must not depend on where the statistics are.
    assert np.ptp(errors) < 2e-4


def _slope(function, at, which):
    """By the logarithm."""
    step = 1e-5 * at * (np.arange(len(at)) == which)
    return (function(at + step) - function(at - step)) / 2e-5


@pytest.mark.parametrize(
    ("n", "k"), [(n, k) for n in (5, 8, 40, 400, 100_000) for k in (0, 1, 3) if n >= k + 3]
)
def test_draws_given_statistics(n, k):
    """Means and quantiles of sigma² and of slopes against sums over a fine grid."""
    rng = np.random.default_rng([n, k])
    x = rng.normal(0.2, 0.3, (n, k))
    rows = np.column_stack([np.ones(n), x, x @ np.full(k, 0.4) + rng.normal(0.1, 0.2, n)])
    A = rows.T @ rows
    half_t = 1.0
    sigma = scale_free.sigma_nodes(float(n), k)
    omega = scale_free.omega_nodes(ScaleFreePrior(k), float(n), fine=4)
    theta, sigma2, mean = scale_free.draw(
        rng, np.broadcast_to(np.linalg.cholesky(A), (20_000, *A.shape)), half_t, sigma, omega
    )
    C = np.linalg.cholesky(A)
    rss, ess, freedom = C[-1, -1] ** 2, (C[-1, 1:-1] ** 2).sum(), n - 1 - k
    s = math.log(rss / n) + grid(freedom)
    u = np.linspace(-50, 12, 801)
    tau2 = np.exp(s)[:, None] + n * np.exp(u) / max(k, 1)
    logs = -0.5 * (freedom * s + rss * np.exp(-s))[:, None] - 0.5 * (k * np.log(tau2) + ess / tau2)
    logs += log_half_t(s, 0.5)[:, None] + log_half_t(u, 0.5)
    logs += lean(max(k, 1), 1 / (1 + np.exp(u - s[:, None])))
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    distribution = np.cumsum(weight.sum(axis=1))
    for level in (0.1, 0.5, 0.9):
        at = math.exp(s[np.searchsorted(distribution, level)])
        assert (sigma2 < at).mean() == pytest.approx(level, abs=0.02)
    if k:
        shrink = (weight * (1 - np.exp(s)[:, None] / tau2)).sum()
        least_squares = np.linalg.solve(C[1:-1, 1:-1].T, C[-1, 1:-1])
        np.testing.assert_allclose(mean[0, 1:], shrink * least_squares, rtol=2e-3)
        error = theta.std(axis=0) / math.sqrt(len(theta))
        assert (abs(theta.mean(axis=0) - mean[0]) < 5 * error).all()


@pytest.mark.parametrize("scale", [0.7, 0.1, 1e-4])
def test_the_map_of_a_length(scale):
    assert log_length(0.0, -2.0, scale)[0] == pytest.approx(-2.0, abs=1e-12)
    for x in (-20.0, -3.0, 0.2, 5.0):
        value, slope, log_slope, bend = log_length(x, -2.0, scale)
        up, down = log_length(x + 1e-4, -2.0, scale), log_length(x - 1e-4, -2.0, scale)
        assert slope == pytest.approx((up[0] - down[0]) / 2e-4, rel=1e-5)
        assert log_slope == pytest.approx(math.log(slope / scale), abs=1e-9)
        assert bend == pytest.approx((up[2] - down[2]) / 2e-4, rel=1e-5, abs=1e-6)
        assert value < up[0]
    assert log_length(-1e4, -2.0, scale)[2] == -np.inf


@pytest.mark.parametrize("scale", [0.7, 0.2, 0.05])
def test_the_map_of_a_size(scale):
    for x in (-20.0, -3.0, -0.4, 0.0, 0.3, 1.0, 5.0):
        value, slope, log_slope, bend = log_size(x, -4.0, scale)
        up, down = log_size(x + 1e-4, -4.0, scale), log_size(x - 1e-4, -4.0, scale)
        assert slope == pytest.approx((up[0] - down[0]) / 2e-4, rel=1e-5)
        assert log_slope == pytest.approx(math.log(slope / scale), abs=1e-9)
        assert bend == pytest.approx((up[2] - down[2]) / 2e-4, rel=1e-5, abs=1e-6)
        if scale < FEW_ENTRIES and value > -1.0:  # where sampling doesn't matter
            length = math.exp(value) / scale
            left = (
                special.erfc(length / math.sqrt(2)),
                special.erfc(length / scale / math.sqrt(2)),
            )
            assert sum(left) / 2 == pytest.approx(special.ndtr(-x), rel=0.01)
    assert log_size(-45.0, -4.0, scale)[2] == (0.0 if scale > FEW_ENTRIES else -np.inf)


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_a_column_that_may_not_vary_at_all_is_explored(family):
    """The first column's variance is two or three sds of the noise from 0: a tail of its log."""
    n, k, noise = 10_000, 6, 160.0
    moments = np.eye(k + 2) * n / 16.0
    moments[0, 0] = n
    scale = np.full_like(moments, noise / (math.sqrt(2.0) if family == "laplace" else 1.0))
    scale[0, 0] = 0.0
    moments[1, 1] = 2.5 * noise
    moments[-1, 2] = moments[2, -1] = 0.5 * n / 16.0
    seen = Observation(n, moments, scale, family)
    posterior = CollapsedPosterior([seen], ScaleFreePrior(k), ScaleFreeCovariates.default(k))
    drawn = sample_posterior(posterior, chains=4, draws=500, tune=400, seed=1)
    own = posterior.own_variances(drawn.x.reshape(-1, posterior.ndim))[:, 0].reshape(4, 500)
    assert np.quantile(own, 0.02) < 0.01 * np.median(own)  # the tail is there
    for values in (np.log(own), drawn.theta[..., 1]):
        assert az.ess(values, method="bulk") > 600  # by ln(length): 350 and 250


def narrow_first():
    """A column that noise hides, then one that is well known; y goes with both."""
    n, sds = 3000, np.array([0.03, 0.55, 0.3])
    r = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -0.25], [0.5, -0.25, 1.0]])
    moments = np.zeros((4, 4))
    moments[0, 0], moments[1:, 1:] = n, n * r * np.outer(sds, sds)
    scale = np.full_like(moments, 10.4)
    scale[0, 0] = 0.0
    return Observation(n, moments, scale, "laplace")


def test_the_best_known_column_comes_first(monkeypatch):
    given = [narrow_first()], ScaleFreePrior(2), ScaleFreeCovariates.default(2)

    def effective():
        drawn = sample_posterior(CollapsedPosterior(*given), seed=1, keep_covariates=False)
        return smallest_ess(drawn.theta, drawn.sigma2)

    ordered = effective()
    monkeypatch.setattr(density, "_best_known_first", lambda seen, columns: columns)
    assert effective() < 0.5 * ordered > 150


def test_chains_of_many_columns_start_where_the_posterior_is():
    """Of 59 columns that noise hides: with units of 1, starts were 70,000 below and more."""
    seen = observe(np.random.default_rng(12), 10_000, 59, 19_000.0, "laplace")
    posterior = CollapsedPosterior([seen], ScaleFreePrior(59), ScaleFreeCovariates.default(59))
    best = posterior.logp_and_gradient(np.zeros(posterior.ndim))[0]
    for seed in range(4):
        below = best - init(posterior, np.random.default_rng(seed)).logp
        assert 0.3 < below / posterior.ndim < 2.0  # 1/2 for a standard normal law


def test_many_columns_have_short_trees():
    """Where noise hides nearly everything, an uncut tree of 50 columns has hundreds of steps."""
    seen = observe(np.random.default_rng(11), 4000, 50, 3000.0, "gaussian")
    posterior = CollapsedPosterior([seen], ScaleFreePrior(50), ScaleFreeCovariates.default(50))
    drawn = sample_posterior(posterior, chains=2, draws=200, seed=1, keep_covariates=False)
    assert drawn.info.n_steps.max() <= 32
    assert smallest_ess(drawn.theta, drawn.sigma2) > 20  # of 400, after twelve times fewer steps


def test_draws_that_depend_on_each_other_are_drawn_once_more(monkeypatch):
    monkeypatch.setattr(sampler, "_WANTED", 0.6)
    posterior = CollapsedPosterior(
        [narrow_first()], ScaleFreePrior(2), ScaleFreeCovariates.default(2)
    )
    before, after, told = 0.0, 0.0, []
    for seed in (1, 2, 3):  # effective draws of one short run say little
        words = {"chains": 2, "draws": 500, "seed": seed, "keep_covariates": False}
        once = sample_posterior(posterior, **words)
        enough, how = sample_enough(posterior, **words)
        assert enough.theta.shape == once.theta.shape
        told.append(how)
        before += smallest_ess(once.theta, once.sigma2)
        after += smallest_ess(enough.theta, enough.sigma2)
    assert any("times as long" in how for how in told)
    assert after > 1.15 * before  # twice as long, and half of the draws were effective before
    again, _ = sample_enough(posterior, **words)
    np.testing.assert_array_equal(again.theta, enough.theta)
    monkeypatch.setattr(sampler, "_WANTED", 0.1)
    easy = posterior_of("partial rows")
    drawn, how = sample_enough(easy, **words)
    assert how == ""
    np.testing.assert_array_equal(drawn.theta, sample_posterior(easy, **words).theta)
