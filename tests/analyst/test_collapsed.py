"""The collapsed log density: gradient, normalisation, coordinates, robustness.

Oracles share no code with the implementation: finite differences, quadrature over the parameters
that were integrated out, and simulation from the prior down to single records.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from noisewise.analyst.regression.exact import kernels as collapsed_kernels
from noisewise.analyst.regression.exact import normalisers
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import (
    HierarchicalNIWPrior,
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)
from noisewise.core.errors import ReleaseError, RequestError

REGRESSION = {
    "nig": NIGPrior.weakly_informative,
    "independent": NormalInverseGammaIndependent.weakly_informative,
}
COVARIATES = {
    "niw": NIWPrior.weakly_informative,
    "hierarchical": HierarchicalNIWPrior.weakly_informative,
    "huang_wand": HuangWandPrior.weakly_informative,
}
# Central differences of order 8.
STENCIL = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])


def observe(rng, n, k, scale, family, *, known=(), missing=(), private=False):
    """A noisy Gram matrix of simulated rows; n is noisy too if it is private."""
    x = rng.normal(rng.uniform(-0.3, 0.3, k), 0.4, (n, k))
    y = x @ rng.normal(0, 0.5, k) + rng.normal(0.1, 0.3, n)
    w = np.column_stack([np.ones(n), x, y])
    gram = w.T @ w
    scales = np.full((k + 2, k + 2), float(scale))
    scales[0, 0] = scale if private else 0.0
    for (a, b), value in itertools.chain(
        zip(known, itertools.repeat(0.0)), zip(missing, itertools.repeat(np.inf))
    ):
        scales[a, b] = scales[b, a] = value
    draw = rng.laplace if family == "laplace" else rng.normal
    noise = np.triu(draw(0.0, np.where(np.isfinite(scales), scales, 1.0)))
    noisy = np.triu(gram) + noise
    noisy = noisy + np.triu(noisy, 1).T
    if private:
        return Observation.with_private_n(noisy, scales, family)
    noisy[0, 0] = n
    return Observation(n, noisy, scales, family)


def residual_signs(posterior, x):
    """Sides of the Laplace kinks on which x lies, up to its unknown noise scale."""
    a = posterior.arrays
    return np.sign(posterior.statistics(x)[list(posterior.order)] - a.values)[a.precision > 0]


def point_off_the_kinks(rng, posterior, reach):
    """A point whose finite-difference stencil crosses no kink."""
    while True:
        x = rng.normal(0.0, 0.5, posterior.ndim)
        signs = residual_signs(posterior, x)
        corners = (x + side * reach * unit for side in (-1, 1) for unit in np.eye(posterior.ndim))
        if all(np.array_equal(signs, residual_signs(posterior, corner)) for corner in corners):
            return x


GRADIENT_CASES = [
    # k, family, J, regression, covariates, relative, partial, known, missing; then holders whose
    # n is private, if any
    (0, "laplace", 1, "nig", "niw", None, None, (), ()),
    (1, "laplace", 1, "nig", "niw", None, None, (), ()),
    (2, "gaussian", 1, "nig", "niw", None, True, (), ((1, 3),)),
    (5, "gaussian", 1, "nig", "niw", None, None, (), ()),
    (2, "laplace", 2, "nig", "niw", False, False, (), ()),
    (2, "gaussian", 2, "nig", "niw", False, True, (), ()),
    (2, "laplace", 2, "nig", "niw", True, True, (), ()),
    (3, "gaussian", 3, "independent", "hierarchical", True, True, (), ((0, 4),)),
    (3, "gaussian", 2, "independent", "niw", True, False, ((1, 2),), ()),
    (3, "gaussian", 2, "nig", "huang_wand", True, True, ((1, 2), (0, 3)), ()),
    (2, "gaussian", 2, "nig", "niw", False, True, ((1, 2), (0, 1), (2, 2)), ()),
    (2, "laplace", 2, "nig", "hierarchical", True, True, ((2, 2), (1, 3)), ()),
    (0, "laplace", 1, "nig", "niw", None, None, (), (), (0,)),
    (1, "gaussian", 1, "nig", "niw", None, None, (), (), (0,)),
    (2, "laplace", 1, "independent", "hierarchical", None, True, (), ((1, 3),), (0,)),
    (5, "gaussian", 2, "nig", "huang_wand", False, None, (), (), (0, 1)),
    (3, "gaussian", 3, "independent", "niw", True, True, ((1, 2),), (), (0, 2)),
    (2, "laplace", 2, "nig", "niw", True, True, ((1, 2), (2, 2)), (), (0, 1)),
    (2, "gaussian", 2, "nig", "niw", False, False, ((1, 2), (0, 1), (3, 3)), (), (0, 1)),
]


@pytest.mark.parametrize(
    "case", GRADIENT_CASES, ids=lambda case: "-".join(map(str, case[:7] + case[9:]))
)
@pytest.mark.parametrize("own_laws", [False, True])
def test_gradient_against_finite_differences(case, own_laws):
    k, family, J, regression, covariates, relative, partial, known, missing, *rest = case
    private = rest[0] if rest else ()
    rng = np.random.default_rng(20240101)
    observations = [
        observe(
            rng, 30 + 5 * j, k, 1.0 + j, family, known=known, missing=missing, private=j in private
        )
        for j in range(J)
    ]
    posterior = CollapsedPosterior(
        observations, REGRESSION[regression](k), COVARIATES[covariates](k),
        own_laws=own_laws, relative=relative, partial=partial,
    )  # fmt: skip
    assert posterior.own_laws == (own_laws and J > 1 and k > 0)
    step = 1e-3
    for _ in range(3):
        x = point_off_the_kinks(rng, posterior, 4 * step)
        logp, gradient = posterior.logp_and_gradient(x)
        assert np.isfinite(logp)
        numeric = np.array(
            [
                sum(
                    weight * posterior.logp_and_gradient(x + (i - 4) * step * unit)[0]
                    for i, weight in enumerate(STENCIL)
                    if weight
                )
                / step
                for unit in np.eye(posterior.ndim)
            ]
        )
        np.testing.assert_allclose(gradient, numeric, rtol=1e-7, atol=1e-6 * abs(gradient).max())


def test_smoothing_changes_the_gradient_near_kinks_only():
    rng = np.random.default_rng(5)
    posterior = CollapsedPosterior(
        [observe(rng, 30, 1, 2.0, "laplace")],
        NIGPrior.weakly_informative(1),
        NIWPrior.weakly_informative(1),
    )
    x = rng.normal(0, 0.5, posterior.ndim)
    distance = (
        abs(posterior.statistics(x) - posterior.arrays.values)[posterior.arrays.precision > 0].min()
        / 2.0
    )
    for amount, same in ((0.9 * distance, True), (1.1 * distance, False)):
        gradient = np.empty(posterior.ndim)
        logp = collapsed_kernels.logp_and_gradient(
            x, gradient, *posterior.smoothed(amount), posterior.workspace()
        )
        exact_logp, exact_gradient = posterior.logp_and_gradient(x)
        assert logp == exact_logp
        assert np.array_equal(gradient, exact_gradient) == same


def test_normalisers_and_their_slopes():
    """Against SciPy and finite differences, from the smallest arguments in use to the largest."""
    for x in (1e-3, 0.25, 0.5, 1.0, 3.3, 9.999, 10.0, 57.3, 1e5, 5e8):
        assert normalisers.digamma(x) == pytest.approx(special.digamma(x), rel=4e-15, abs=4e-15)
    for a, p in ((0.3, 1), (2.6, 5), (40.0, 51)):
        expected = special.multigammaln(a, p)
        assert normalisers.log_multigamma(a, p) == pytest.approx(expected, rel=1e-13)
    pairs = [
        (lambda n: normalisers.log_volume(n, 3), lambda n: normalisers.log_volume_slope(n, 3)),
        (
            lambda n: normalisers.log_covariance(n, 2, 6.0),
            lambda n: normalisers.log_covariance_slope(n, 2, 6.0),
        ),
        (
            lambda n: normalisers.log_mean(n, 2, 0.1),
            lambda n: normalisers.log_mean_slope(n, 2, 0.1),
        ),
        *(
            (
                lambda n, k=keeps: normalisers.log_regression(n, 1.5, k),
                lambda n, k=keeps: normalisers.log_regression_slope(n, 1.5, k),
            )
            for keeps in (False, True)
        ),
    ]
    for n in (3.51, 4.0, 7.7, 60.0, 1e4):
        step = 1e-3 * (n - 3.0)
        for value, slope in pairs:
            numeric = sum(
                weight * value(n + (i - 4) * step) for i, weight in enumerate(STENCIL) if weight
            )
            assert slope(n) == pytest.approx(numeric / step, rel=1e-7)


# --- against brute force --------------------------------------------------------------------------


def log_density_of_rows(x, y, prior, covariates):
    """Log p(x, y) with the parameters integrated out by the trapezoidal rule (k = 1)."""
    mu, log_t = np.linspace(-6, 6, 1201)[:, None], np.linspace(-8, 6, 701)
    t = np.exp(log_t)
    logs = (
        stats.norm.logpdf(mu, covariates.m[0], np.sqrt(t / covariates.lam))
        + stats.invgamma.logpdf(t, covariates.nu / 2, scale=covariates.Psi[0, 0] / 2)
        + log_t
        - 0.5 * len(x) * np.log(2 * np.pi * t)
        - 0.5 * ((x[:, None, None] - mu) ** 2).sum(0) / t
    )
    p_x = integrate.trapezoid(integrate.trapezoid(np.exp(logs), mu[:, 0], axis=0), log_t)
    # theta | sigma2 is normal: y | sigma2 ~ N(X mu0, sigma2 (I + X Lam0⁻¹ X')).
    X = np.column_stack([np.ones_like(x), x])
    spread = np.eye(len(x)) + X @ np.linalg.inv(prior.Lam0) @ X.T
    log_s = np.linspace(-12, 12, 2401)
    logs = [
        stats.multivariate_normal.logpdf(y, X @ prior.mu0, math.exp(value) * spread)
        for value in log_s
    ]
    logs += stats.invgamma.logpdf(np.exp(log_s), prior.a0, scale=prior.b0) + log_s
    return math.log(p_x) + math.log(integrate.trapezoid(np.exp(logs), log_s))


def unique(A):
    """Entries of the lower triangles, flattened over holders."""
    rows, columns = np.tril_indices(A.shape[-1])
    return A[..., rows, columns].reshape(*A.shape[:-3], -1)


def log_density_in_statistics(posterior, target):
    """Log p(A, released) at A = target from the coordinates' density, by a numeric Jacobian."""
    wanted = unique(target)
    free = unique(posterior.arrays.known[np.argsort(posterior.order)]) == 0

    def gap(x):
        return (unique(posterior.statistics(x)) - wanted)[free]

    def jacobian(x):
        step = 1e-3
        columns = [
            sum(
                weight * gap(x + (i - 4) * step * unit)
                for i, weight in enumerate(STENCIL)
                if weight
            )
            / step
            for unit in np.eye(posterior.ndim)
        ]
        return np.stack(columns, axis=1)

    found = optimize.root(gap, np.zeros(posterior.ndim), jac=jacobian, tol=1e-13)
    np.testing.assert_allclose(posterior.statistics(found.x), target, rtol=1e-9, atol=1e-9)
    return posterior.logp_and_gradient(found.x)[0] - np.linalg.slogdet(jacobian(found.x))[1]


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("known", [(), ((1, 2),), ((0, 1), (2, 2))], ids=str)
@pytest.mark.parametrize("private", [(), (1,), (0, 1)], ids=str)
def test_density_of_the_statistics_against_quadrature(family, known, private):
    """Any coordinates, and entries known exactly, must give the same density of n and A."""
    rng = np.random.default_rng(11)
    prior = NIGPrior([0.1, -0.2], [[0.6, 0.1], [0.1, 0.8]], 2.5, 0.3)
    covariates = NIWPrior([0.2], 0.7, [[0.5]], 4.0)
    sizes, scales = (5, 6), (1.5, 2.0)
    rows = [(rng.normal(0.1, 0.4, n), rng.normal(0.2, 0.5, n)) for n in sizes]
    w = [np.column_stack([np.ones_like(x), x, y]) for x, y in rows]
    grams = np.stack([m.T @ m for m in w])

    expected = log_density_of_rows(
        *(np.concatenate(v) for v in zip(*rows, strict=True)), prior, covariates
    )
    observations = []
    for j, (n, b, gram) in enumerate(zip(sizes, scales, grams, strict=True)):
        # Volume of the rows with a given Gram matrix, in the entries of that matrix.
        scatter = gram[1:, 1:] - np.outer(gram[0, 1:], gram[0, 1:]) / n
        expected += (
            (n - 1) * math.log(math.pi)
            - special.multigammaln((n - 1) / 2, 2)
            + (n - 4) / 2 * np.linalg.slogdet(scatter)[1]
            - math.log(n)
        )
        released = np.triu(gram + rng.normal(0, b, (3, 3)))
        released = released + np.triu(released, 1).T
        scale = np.full((3, 3), b)
        for a, c in known if j in private else ((0, 0), *known):
            released[a, c] = released[c, a] = gram[a, c]
            scale[a, c] = scale[c, a] = 0.0
        law = stats.laplace if family == "laplace" else stats.norm
        for a, c in itertools.combinations_with_replacement(range(3), 2):
            if scale[a, c] > 0:
                expected += law.logpdf(released[a, c], gram[a, c], b)
        if j in private:
            observations.append(Observation.with_private_n(released, scale, family))
        else:
            observations.append(Observation(n, released, scale, family))

    for relative, partial in itertools.product((False, True), repeat=2):
        posterior = CollapsedPosterior(
            observations, prior, covariates, relative=relative, partial=partial
        )
        assert log_density_in_statistics(posterior, grams) == pytest.approx(expected, abs=1e-5)


def prior_predictive(rng, observations, prior, covariates, simulations):
    """Density of the released values by simulation from the prior down to the rows."""
    k = covariates.k
    if isinstance(covariates, NIWPrior):
        psi = np.full((simulations, k), covariates.Psi.diagonal())
    else:
        psi = rng.gamma(covariates.shape, 1.0 / covariates.rate, (simulations, k))
    assert k == 1, "the inverse Wishart is drawn as an inverse gamma"
    T = psi[:, 0] / 2 / rng.gamma(covariates.nu / 2, size=simulations)

    mu = covariates.m[0] + np.sqrt(T / covariates.lam) * rng.normal(size=simulations)
    sigma2 = prior.b0 / rng.gamma(prior.a0, size=simulations)
    if isinstance(prior, NIGPrior):
        spread = np.linalg.cholesky(np.linalg.inv(prior.Lam0))
        unit = np.sqrt(sigma2)[:, None]
    else:
        spread, unit = np.linalg.cholesky(prior.V0), 1.0
    theta = prior.mu0 + unit * (rng.normal(size=(simulations, 2)) @ spread.T)
    density = np.zeros(simulations)
    for observation in observations:
        n = observation.n
        x = mu[:, None] + np.sqrt(T)[:, None] * rng.normal(size=(simulations, n))
        y = theta[:, :1] + theta[:, 1:] * x
        y += np.sqrt(sigma2)[:, None] * rng.normal(size=(simulations, n))
        law = stats.laplace if observation.family == "laplace" else stats.norm
        sums = {
            (0, 1): x.sum(1),
            (0, 2): y.sum(1),
            (1, 1): (x * x).sum(1),
            (1, 2): (x * y).sum(1),
            (2, 2): (y * y).sum(1),
        }
        for entry, values in sums.items():
            density += law.logpdf(observation.values[entry], values, observation.scale[entry])
    weights = np.exp(density)
    return weights.mean(), weights.std() / math.sqrt(simulations)


def evidence(rng, posterior, draws):
    """Integral of the density over its coordinates, by adaptive importance sampling."""
    mean, root = np.zeros(posterior.ndim), 1.5 * np.eye(posterior.ndim)
    for draw in (draws // 2, draws // 2, draws):
        t = stats.multivariate_t(mean, root @ root.T, df=5)
        x = t.rvs(draw, random_state=rng)
        logs = np.array([posterior.logp_and_gradient(point)[0] for point in x]) - t.logpdf(x)
        weights = np.exp(logs - logs.max())
        share = np.minimum(weights, np.quantile(weights, 0.999))
        share /= share.sum()
        mean = share @ x
        root = np.linalg.cholesky(1.3 * (x - mean).T @ ((x - mean) * share[:, None]))
    scale = math.exp(logs.max())
    return scale * weights.mean(), scale * weights.std() / math.sqrt(draws)


@pytest.mark.parametrize(
    ("regression", "covariates", "sizes", "families", "relative", "partial"),
    [
        ("nig", "niw", (5,), ("laplace",), None, False),
        ("nig", "niw", (5,), ("gaussian",), None, True),
        ("independent", "hierarchical", (4,), ("gaussian",), None, False),
        ("nig", "niw", (4, 6), ("laplace", "gaussian"), True, True),
    ],
)
def test_density_is_normalised(regression, covariates, sizes, families, relative, partial):
    """Its integral is the density of the released values, which simulation knows too."""
    rng = np.random.default_rng(7)
    prior = {
        "nig": NIGPrior([0.0, 0.2], np.diag([1.0, 2.0]), 3.0, 0.6),
        "independent": NormalInverseGammaIndependent([0.0, 0.2], np.diag([0.3, 0.2]), 3.0, 0.6),
    }[regression]
    x_prior = {
        "niw": NIWPrior([0.1], 1.0, [[1.0]], 5.0),
        "hierarchical": HierarchicalNIWPrior([0.1], 1.0, [1.0], 5.0),
    }[covariates]
    observations = [
        observe(rng, n, 1, 2.0, family) for n, family in zip(sizes, families, strict=True)
    ]
    posterior = CollapsedPosterior(observations, prior, x_prior, relative=relative, partial=partial)
    value, error = evidence(rng, posterior, 20_000)
    expected, expected_error = prior_predictive(rng, observations, prior, x_prior, 400_000)
    assert expected_error < 0.03 * expected
    assert error < 0.03 * value
    assert abs(value - expected) < 4 * math.hypot(error, expected_error)


# --- conjugate draws ------------------------------------------------------------------------------


@pytest.mark.parametrize("private", [False, True])
def test_conjugate_draws_have_the_conjugate_moments(private):
    rng = np.random.default_rng(3)
    prior = NIGPrior([0.1, 0.0, -0.1], np.diag([0.5, 1.0, 2.0]), 3.0, 0.4)
    covariates = NIWPrior([0.1, -0.2], 0.8, [[0.5, 0.1], [0.1, 0.4]], 6.0)
    observation = observe(rng, 12, 2, 1.0, "laplace", private=private)
    posterior = CollapsedPosterior([observation], prior, covariates)
    x = np.tile(rng.normal(0, 0.5, posterior.ndim), (200_000, 1))
    theta, sigma2, mean, mu, T = posterior.draw_parameters(rng, x)

    A = posterior.statistics(x[0])[0]
    n, S, z, u = A[0, 0], A[:3, :3], A[:3, 3], A[3, 3]
    assert posterior.rows(x[:2])[:, 0] == pytest.approx(n)
    assert (n != 12) == private
    Lam_n = prior.Lam0 + S
    mu_n = np.linalg.solve(Lam_n, prior.Lam0 @ prior.mu0 + z)
    a_n = prior.a0 + n / 2
    b_n = prior.b0 + (u + prior.mu0 @ prior.Lam0 @ prior.mu0 - mu_n @ Lam_n @ mu_n) / 2
    xbar = S[0, 1:] / n
    gap = xbar - covariates.m
    Psi_n = covariates.Psi + S[1:, 1:] - n * np.outer(xbar, xbar)
    Psi_n = Psi_n + covariates.lam * n / (covariates.lam + n) * np.outer(gap, gap)
    m_n = (covariates.lam * covariates.m + n * xbar) / (covariates.lam + n)
    nu_n = covariates.nu + n

    np.testing.assert_allclose(mean, np.broadcast_to(mu_n, mean.shape), rtol=1e-10)
    draws = np.column_stack([theta, sigma2, mu, T[:, 0], T[:, 1, 1]])
    expected = np.concatenate(
        [mu_n, [b_n / (a_n - 1)], m_n, (Psi_n / (nu_n - 3))[0], [(Psi_n / (nu_n - 3))[1, 1]]]
    )
    error = draws.std(0) / math.sqrt(len(draws))
    assert (abs(draws.mean(0) - expected) < 4.5 * error).all()
    spread = b_n / (a_n - 1) * np.linalg.inv(Lam_n)
    np.testing.assert_allclose(np.cov(theta.T), spread, atol=0.015 * spread.max())
    spread = Psi_n / (nu_n - 3) / (covariates.lam + n)
    np.testing.assert_allclose(np.cov(mu.T), spread, atol=0.015 * spread.max())
    # Marginals: sigma2 is inverse gamma, T_00 inverse gamma((nu_n - k + 1) / 2, Psi_n,00 / 2).
    assert stats.kstest(sigma2[:5000], stats.invgamma(a_n, scale=b_n).cdf).pvalue > 1e-3
    law = stats.invgamma((nu_n - 1) / 2, scale=Psi_n[0, 0] / 2)
    assert stats.kstest(T[:5000, 0, 0], law.cdf).pvalue > 1e-3


# --- robustness -----------------------------------------------------------------------------------


def test_no_point_gives_nan():
    rng = np.random.default_rng(1)
    small = observe(rng, 30, 3, 1.0, "laplace", private=True)
    part = observe(rng, 1000, 3, 1e-3, "gaussian", known=((1, 2), (2, 2)))
    huge = Observation(10**9, 1e6 * part.values, part.scale, "gaussian")
    observations = [small, huge]
    posterior = CollapsedPosterior(
        observations,
        NormalInverseGammaIndependent.weakly_informative(3),
        HierarchicalNIWPrior.weakly_informative(3),
        relative=True,
        partial=True,
    )
    for size in (0.0, 1.0, 30.0, 1e3, 1e6, 1e150, 1e300, np.inf, np.nan):
        for _ in range(20):
            x = rng.standard_normal(posterior.ndim)
            at = rng.integers(posterior.ndim)
            x[at] = size * rng.choice((-1.0, 1.0))
            logp, gradient = posterior.logp_and_gradient(x)
            assert not math.isnan(logp)
            assert logp < np.inf
            if logp == -np.inf:
                assert (gradient == 0).all()


def test_gradient_is_finite_where_the_density_is():
    """Near-singular latent statistics: tiny and huge residual variances."""
    rng = np.random.default_rng(2)
    posterior = CollapsedPosterior(
        [observe(rng, 1000, 4, 5.0, "laplace")],
        NIGPrior.weakly_informative(4),
        NIWPrior.weakly_informative(4),
    )
    for size in (1.0, 10.0, 100.0, 1000.0):
        for _ in range(50):
            logp, gradient = posterior.logp_and_gradient(size * rng.standard_normal(posterior.ndim))
            assert logp == -np.inf or np.isfinite(gradient).all()


def test_what_does_not_fit_is_refused_with_a_reason():
    rng = np.random.default_rng(4)
    prior, covariates = NIGPrior.weakly_informative(2), NIWPrior.weakly_informative(2)
    good = observe(rng, 30, 2, 1.0, "laplace")
    with pytest.raises(RequestError, match="at least one holder"):
        CollapsedPosterior([], prior, covariates)
    with pytest.raises(RequestError, match="k \\+ 2 = 4 rows"):
        CollapsedPosterior([observe(rng, 3, 2, 1.0, "laplace")], prior, covariates)
    with pytest.raises(RequestError, match="k \\+ 2 = 4 rows"):
        CollapsedPosterior([observe(rng, 2, 2, 0.01, "laplace", private=True)], prior, covariates)
    with pytest.raises(RequestError, match="same columns"):
        CollapsedPosterior([good, observe(rng, 30, 1, 1.0, "laplace")], prior, covariates)
    with pytest.raises(RequestError, match="prior is for 1 covariates"):
        CollapsedPosterior([good], NIGPrior.weakly_informative(1), covariates)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "at least 1"),
        ({"n": 2.5}, "whole number"),
        ({"family": "cauchy"}, "'laplace' or 'gaussian'"),
        ({"values": np.full((3, 3), np.nan)}, "finite"),
        ({"values": np.ones((2, 3))}, "square"),
        ({"scale": -np.ones((3, 3))}, "at least 0"),
        ({"n": 11}, "public n"),
        ({"n": 11, "scale": np.ones((3, 3))}, "with_private_n"),
        ({"scale": np.full((3, 3), np.inf)}, "number of rows"),
        ({"scale": np.triu(np.ones((3, 3)))}, "symmetric"),
        ({"values": np.triu(np.ones((3, 3)))}, "symmetric"),
    ],
)
def test_broken_observations_are_refused_with_a_reason(change, message):
    scale = np.ones((3, 3))
    scale[0, 0] = 0.0
    values = np.ones((3, 3))
    values[0, 0] = 10
    good = {"n": 10, "values": values, "scale": scale, "family": "laplace"}
    Observation(**good)
    with pytest.raises(ReleaseError, match=message):
        Observation(**{**good, **change})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NIGPrior([0.0], [[1.0]], -1.0, 1.0), "a0 must be a positive"),
        (lambda: NIGPrior([0.0], [[1.0, 0.0]], 1.0, 1.0), "1 by 1"),
        (lambda: NIGPrior([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], 1.0, 1.0), "smallest eigenvalue"),
        (lambda: NIWPrior([0.0, 0.0], 1.0, np.eye(2), 0.5), "more than k - 1 = 1"),
        (lambda: NIWPrior([0.0], np.inf, [[1.0]], 3.0), "lam must be a positive"),
        (lambda: HierarchicalNIWPrior([0.0], 1.0, [-1.0], 3.0), "psi must have one positive"),
        (lambda: HuangWandPrior([0.0], 1.0, [0.0], 3.0), "A must have one positive"),
    ],
)
def test_senseless_priors_are_refused_with_a_reason(make, message):
    with pytest.raises(RequestError, match=message):
        make()
