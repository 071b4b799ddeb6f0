"""Holders with laws of their own: density, limits, draws and groups against plain formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from noisewise.analyst.regression.exact import groups, own_laws, sampler
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.factor import log_length
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import (
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    ScaleFreeCovariates,
    ScaleFreePrior,
)

from .size_law import log_size_and_law
from .test_collapsed import STENCIL, observe, point_off_the_kinks
from .test_scale_free import log_marginal

LAWS = {
    "scale_free": ScaleFreeCovariates.default,
    "huang_wand": HuangWandPrior.weakly_informative,
    "niw": NIWPrior.weakly_informative,
}
CASES = [
    # k, rows, law, form of coordinates, private n
    (1, (60, 40), "scale_free", None, False),
    (2, (60, 40, 50), "scale_free", 7, False),
    (2, (60, 40, 50), "scale_free", 1, False),
    (2, (60, 40), "niw", 3, False),
    (2, (30, 40), "huang_wand", 5, True),
    (3, (60, 40, 25), "scale_free", 0, True),
]


def posterior_of(case, own=True, family="gaussian"):
    k, rows, law, form, private = case
    rng = np.random.default_rng(3)
    seen = [observe(rng, n, k, 2.0, family, private=private) for n in rows]
    prior = ScaleFreePrior(k)
    return CollapsedPosterior(seen, prior, LAWS[law](k), own_laws=own, relative=form)


def parameters(posterior, x):
    """s, t, m and T (lower triangle) as a vector, from the formulas of the module's opening."""
    a, k = posterior.arrays, posterior.k
    A = posterior.statistics(x)[list(posterior.order)]
    F = np.linalg.cholesky(A / A[:, :1, :1])[:, : k + 1, : k + 1]
    y = (a.centre + a.scale * x)[-own_laws.coordinates(k) :]
    s, t = np.sinh(y[:2])
    lam, nu = 1 / (s**2 + own_laws.FLOOR), k - 1 + 0.5 / (t**2 + own_laws.FLOOR)
    Z = np.zeros((k + 1, k + 1))
    Z[np.tril_indices(k + 1)] = [0.0, *y[2:]]
    Z[:, 0] /= math.sqrt((a.n * lam / (a.n + lam)).sum())
    Z[:, 1:] /= math.sqrt(1 + (a.n * nu / (a.n + nu)).sum())
    Z[np.diag_indices(k + 1)] = np.exp(Z.diagonal())
    H = np.einsum("j,jab->ab", a.n / a.n.sum(), F) @ Z
    T = H[1:, 1:] @ H[1:, 1:].T
    return np.concatenate([[s, t], H[1:, 0], T[np.tril_indices(k)]]), A, lam, nu, H[1:, 0], T


def log_niw(A, m, T, lam, nu):
    """Log density of a holder's covariates: normal inverse Wishart, integrated."""
    n, k = A[0, 0], len(m)
    xbar = A[0, 1:-1] / n
    Psi = nu * T
    S = A[1:-1, 1:-1] - n * np.outer(xbar, xbar)
    Psi_n = Psi + S + n * lam / (n + lam) * np.outer(xbar - m, xbar - m)
    value = special.multigammaln((nu + n) / 2, k) - special.multigammaln(nu / 2, k)
    value += 0.5 * nu * np.linalg.slogdet(Psi)[1] - 0.5 * (nu + n) * np.linalg.slogdet(Psi_n)[1]
    return value + 0.5 * k * math.log(lam / (lam + n)) - 0.5 * k * n * math.log(math.pi)


def log_hyperprior(s, t, m, T, law):
    """Of s, t, m and T."""
    k = len(m)
    value = stats.t(4).logpdf(s) + stats.t(4, scale=0.5).logpdf(t)
    if not isinstance(law, ScaleFreeCovariates):
        value += stats.multivariate_normal(law.m, T / law.lam).logpdf(m)
    if isinstance(law, NIWPrior):
        return value + stats.invwishart(law.nu, law.Psi).logpdf(T)
    # psi integrated out of IW(nu, diag psi) times its gamma laws
    precision = np.linalg.inv(T).diagonal()
    power = law.nu / 2 + law.shape
    value -= 0.5 * (law.nu + k + 1) * np.linalg.slogdet(T)[1]
    value -= 0.5 * law.nu * k * math.log(2) + special.multigammaln(law.nu / 2, k)
    value += (law.shape * np.log(law.rate) - special.gammaln(law.shape)).sum()
    return value + (special.gammaln(power) - power * np.log(law.rate + precision / 2)).sum()


def expected(posterior, x, law):
    """Log density by x: plain formulas, times the Jacobian by differences."""
    values, A, lam, nu, m, T = parameters(posterior, x)
    k, a = posterior.k, posterior.arrays
    p = k + 1
    free = [np.tril(known == 0)[1:] if known[0, 0] else np.tril(known == 0) for known in a.known]

    def everything(point):
        values, A, *_ = parameters(posterior, point)
        entries = [g[-len(f) :][f] for g, f in zip(A, free, strict=True)]
        return np.concatenate([*entries, log_size_and_law(posterior, point)[0], values])

    total = log_hyperprior(*values[:2], m, T, law) + log_size_and_law(posterior, x)[1]
    # The regression alone: the test of the scale-free prior has it with one law for all.
    pooled, one = A.sum(axis=0), ScaleFreeCovariates.default(k)
    psi = np.ones(k)
    total += log_marginal(pooled, psi, ScaleFreePrior(k), one, a.n.sum())
    total -= log_one_law(pooled, psi, one)
    for i, gram in enumerate(A):
        n, mean = gram[0, 0], gram[0, 1:] / gram[0, 0]
        scatter = gram[1:, 1:] - n * np.outer(mean, mean)
        total += log_niw(gram, m, T, lam, nu)
        total += 0.5 * p * (n - 1) * math.log(math.pi) - special.multigammaln((n - 1) / 2, p)
        total += 0.5 * (n - p - 2) * np.linalg.slogdet(scatter)[1] - 0.5 * p * math.log(n)
        noisy = np.tril(a.precision[i]) > 0
        total -= 0.5 * (((a.values[i] - gram) * a.precision[i])[noisy] ** 2).sum()
    step = 1e-5
    jacobian = [
        (everything(x + step * e) - everything(x - step * e)) / (2 * step)
        for e in np.eye(posterior.ndim)
    ]
    return total + np.linalg.slogdet(np.array(jacobian))[1]


def log_one_law(A, psi, law):
    """The covariates' part of `log_marginal`."""
    N, k, nu = A[0, 0], len(psi), law.nu
    xbar = A[0, 1:-1] / N
    S = A[1:-1, 1:-1] - N * np.outer(xbar, xbar)
    value = -0.5 * k * ((N - 1) * math.log(2 * math.pi) + math.log(N))
    value += 0.5 * nu * np.log(psi).sum() - special.multigammaln(nu / 2, k)
    value += 0.5 * k * (N - 1) * math.log(2) + special.multigammaln((nu + N - 1) / 2, k)
    value -= 0.5 * (nu + N - 1) * np.linalg.slogdet(np.diag(psi) + S)[1]
    return value + (stats.gamma.logpdf(psi, 0.5, scale=1 / law.rate) + np.log(psi)).sum()


def gaps(posterior, law):
    rng = np.random.default_rng(2)
    points = 0.7 * rng.standard_normal((4, posterior.ndim))
    return [posterior.logp_and_gradient(x)[0] - expected(posterior, x, law) for x in points]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_density_against_the_formula(case):
    found = gaps(posterior_of(case), LAWS[case[2]](case[0]))
    assert np.isfinite(found).all()
    assert np.ptp(found) < 5e-4


def test_the_formula_would_notice_another_law(monkeypatch):
    """Negative control: another prior of the spreads' differences is seen."""
    posterior = posterior_of(CASES[1])
    law = ScaleFreeCovariates.default(2)
    monkeypatch.setattr(f"{__name__}.log_hyperprior", lambda *words: 0.9 * _hyperprior(*words))
    assert np.ptp(gaps(posterior, law)) > 5e-3


_hyperprior = log_hyperprior


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_gradient_against_differences(case, family):
    posterior = posterior_of(case, family=family)
    rng, step = np.random.default_rng(5), 1e-3
    x = point_off_the_kinks(rng, posterior, 4 * step)
    gradient = posterior.logp_and_gradient(x)[1]
    numeric = [
        sum(
            weight * posterior.logp_and_gradient(x + (i - 4) * step * e)[0]
            for i, weight in enumerate(STENCIL)
            if weight
        )
        / step
        for e in np.eye(posterior.ndim)
    ]
    # Nodes of the quadrature move with the point, which the gradient leaves out.
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4 * abs(gradient).max())


def where_length_is(goal, centre, scale):
    return optimize.brentq(lambda v: log_length(v, centre, scale)[0] - goal, -9, 9, xtol=1e-13)


def test_at_no_difference_the_density_is_that_of_one_law():
    """s = t = 0, and m and T integrated out of the one and psi of the other, on grids (k = 1)."""
    rng = np.random.default_rng(1)
    seen = [observe(rng, n, 1, 2.0, "gaussian") for n in (60, 40)]
    words = seen, ScaleFreePrior(1), ScaleFreeCovariates.default(1)
    own, one = (CollapsedPosterior(*words, own_laws=o, relative=7) for o in (True, False))
    assert own.ndim == one.ndim + 3
    steps = np.linspace(-9, 9, 181)
    differences = []
    for _ in range(3):
        x = 0.5 * rng.standard_normal(one.ndim)
        # The same statistics: forms of the coordinates are the same, their centres may not be.
        a, b = own.arrays, one.arrays
        np.testing.assert_array_equal(a.relative, b.relative)
        np.testing.assert_array_equal(a.partial, b.partial)
        first = one.ndim - 1
        y = ((b.centre + b.scale * x)[:first] - a.centre[:first]) / a.scale[:first]
        jacobian = 0.0
        for i in (1, 4):  # the lengths of the reference's rows aren't linear in theirs
            length, slope, *_ = log_length(x[i], b.centre[i], b.scale[i])
            y[i] = where_length_is(length, a.centre[i], a.scale[i])
            jacobian += math.log(log_length(y[i], a.centre[i], a.scale[i])[1] / slope)
        np.testing.assert_allclose(
            own.statistics(np.append(y, np.zeros(4))), one.statistics(x), rtol=1e-8
        )
        none = -a.centre[first : first + 2] / a.scale[first : first + 2]  # s = t = 0
        shared = special.logsumexp(
            [one.logp_and_gradient(np.append(x[:-1], 3 * u))[0] for u in steps]
        )
        apart = special.logsumexp(
            [
                own.logp_and_gradient(np.concatenate([y, none, [u, v]]))[0]
                for u in steps[::3]
                for v in steps[::3]
            ]
        )
        differences.append(apart - shared - jacobian)
    assert np.ptp(differences) < 2e-3


def test_one_holder_has_its_own_law_anyway():
    rng = np.random.default_rng(5)
    seen = [observe(rng, 30, 2, 1.0, "gaussian")]
    words = seen, ScaleFreePrior(2), ScaleFreeCovariates.default(2)
    shared, own = (CollapsedPosterior(*words, own_laws=o) for o in (False, True))
    x = rng.normal(0, 0.5, shared.ndim)
    assert not own.own_laws
    assert shared.logp_and_gradient(x)[0] == own.logp_and_gradient(x)[0]


@pytest.mark.parametrize("private", [False, True])
def test_laws_are_drawn_from_the_holders_own_statistics(private):
    rng = np.random.default_rng(4)
    # The second is the reference, having the least noise: the order of holders is put to the test.
    seen = [observe(rng, n, 2, b, "laplace", private=private) for n, b in ((12, 9.0), (30, 0.5))]
    law = ScaleFreeCovariates.default(2)
    posterior = CollapsedPosterior(seen, NIGPrior.weakly_informative(2), law, own_laws=True)
    assert posterior.order == (1, 0)
    x = np.tile(rng.normal(0, 0.5, posterior.ndim), (20_000, 1))
    *_, mu, T = posterior.draw_parameters(rng, x)
    _, _, lam, nu, m, common = parameters(posterior, x[0])
    for j, A in enumerate(posterior.statistics(x[0])):
        n, xbar = A[0, 0], A[0, 1:3] / A[0, 0]
        Psi_n = nu * common + A[1:3, 1:3] - n * np.outer(xbar, xbar)
        Psi_n += n * lam / (n + lam) * np.outer(xbar - m, xbar - m)
        centre = (lam * m + n * xbar) / (lam + n)
        assert (abs(mu[:, j].mean(axis=0) - centre) < 4.5 * mu[:, j].std(axis=0) / 141).all()
        mean = Psi_n / (nu + n - 3)
        assert (abs(T[:, j].mean(axis=0) - mean) < 4.5 * T[:, j].std(axis=0) / 141).all()
        np.testing.assert_allclose(np.cov(mu[:, j].T), mean / (lam + n), rtol=0.06, atol=1e-4)


def test_sums_of_many_holders():
    rng = np.random.default_rng(6)
    seen = [observe(rng, 20 + j, 1, 1.0 + j % 3, "laplace") for j in range(120)]
    seen[0] = observe(rng, 20, 1, 1.0, "laplace", missing=((1, 2),))
    sums, parts = groups.added_up(seen), groups.groups_of(seen)
    assert sorted(j for part in parts for j in part) == list(range(120))
    assert len(sums) == len(parts) <= groups.MOST_GROUPS
    assert [0] in parts  # what it didn't release, no sum has
    assert all(len(part) >= groups.MEMBERS for part in parts if part != [0])
    for total, part in zip(sums, parts, strict=True):
        members = [seen[j] for j in part]
        assert total.n == sum(member.n for member in members)
        np.testing.assert_allclose(total.values, sum(member.values for member in members))
        sd = np.sqrt(sum(member.sd**2 for member in members))
        np.testing.assert_allclose(total.scale, sd)
    assert groups.added_up(seen[:30]) == seen[:30]
    assert groups.groups_of(seen[:30]) == [[j] for j in range(30)]


def test_differing_holders_are_fitted_where_one_law_errs():
    """Spreads 1:4 and means apart, little noise: the error variance tells the two models apart."""
    rng = np.random.default_rng(8)
    seen = []
    for mean, sd in ((-0.4, 0.1), (0.0, 0.2), (0.4, 0.4)):
        x = rng.normal(mean, sd, 2000)
        w = np.column_stack([np.ones(2000), x, 0.5 * x + rng.normal(0.1, 0.1, 2000)])
        noise = np.triu(rng.normal(0, 15, (3, 3)))
        noise[0, 0] = 0.0
        scale = np.full((3, 3), 15.0)
        scale[0, 0] = 0.0
        seen.append(Observation(2000, w.T @ w + noise + np.triu(noise, 1).T, scale, "gaussian"))
    beyond = {}
    for own in (True, False):
        drawn = sampler.sample(
            seen, ScaleFreePrior(1), ScaleFreeCovariates.default(1), own_laws=own,
            chains=4, draws=1000, seed=1, keep_covariates=False,
        )  # fmt: skip
        beyond[own] = float(np.mean(drawn.sigma2 > 0.01))  # of the truth
    assert 0.1 < beyond[True] < 0.9
    assert beyond[False] < 0.02
