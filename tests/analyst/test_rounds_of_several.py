"""Several holders, each with rounds of its own or none: the density with maps, and whole fits."""

from __future__ import annotations

from dataclasses import replace

import arviz as az
import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.fit import fit
from noisewise.analyst.regression.exact.density import CollapsedPosterior, _log_noise_constant
from noisewise.analyst.regression.exact.factor import (
    BELOW_SMALLEST_N,
    PLAIN,
    REGRESSION,
    RELATIVE,
    SPREADS,
)
from noisewise.analyst.regression.exact.groups import MOST_HOLDERS, _sum, added_up, groups_of
from noisewise.analyst.regression.exact.independent import draw_independent
from noisewise.analyst.regression.exact.kernels import logp_and_gradient
from noisewise.analyst.regression.exact.sampler import sample
from noisewise.analyst.regression.job import Draws
from noisewise.analyst.regression.observation import (
    Observation,
    choose_columns,
    mapped_covariance,
    mapped_variance,
)
from noisewise.analyst.regression.priors import (
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    ScaleFreeCovariates,
    ScaleFreePrior,
)
from noisewise.analyst.regression.rounds import InRounds, LastRound
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.holder.publish import publish
from studies.uniformity import spread_rank, thin

from ..ledgers import ledger_for
from .test_rounds import (
    ERROR_SD,
    FEATURES,
    MODELS,
    TRUTH,
    asked,
    check_as_often_as_they_say,
    exact_sums,
    least_squares,
    make_schema,
    slopes_held,
    spreads,
    symmetric_noise,
    with_sums,
)

# By holder: shift and spread of the dose, and how weight goes with it.
PEOPLE = ((0.0, 1.5, 1.6), (5.0, 3.0, 0.5), (-6.0, 1.0, -1.0))


def table_of(holder, n, seed):
    shift, spread, slope = PEOPLE[holder]
    rng = np.random.default_rng([seed, holder])
    dose = rng.normal(70 + shift, spread, n)
    weight = 40 + slope * (dose - 70) + rng.normal(0, 1.5, n)
    region = rng.choice(["n", "s", "w"], p=[0.6, 0.3, 0.1], size=n)
    known = np.column_stack([np.ones(n), dose, weight, region == "s", region == "w"])
    score = known @ TRUTH + rng.normal(0, ERROR_SD, n)
    return {"dose": dose, "weight": weight, "region": region, "score": score}


def together(tables):
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("several")


def published(folder, name, table, *, schema=None, **words):
    request = asked(schema or make_schema(), **words)
    ledger = ledger_for(folder / f"{name}.db")
    return publish(request, table, ledger=ledger, out=folder / f"{name}.json").release


@pytest.fixture(scope="module")
def releases(folder):
    """Two with rounds, the larger second, and one without."""
    words = ({"rounds": "auto"}, {"rounds": "auto"}, {"rounds": 1})
    sizes = (8_000, 20_000, 12_000)
    return [
        published(folder, f"holder{j}", table_of(j, n, seed=1), **own)
        for j, (n, own) in enumerate(zip(sizes, words, strict=True))
    ]


# --- the density with maps ------------------------------------------------------------------------


def random_map(rng, P):
    K = np.tril(rng.normal(0, 0.4, (P, P)), -1) + np.diag(rng.uniform(0.5, 2.0, P))
    K[0] = np.eye(P)[0]
    return K


def observed(rng, n, k, noise, *, family="gaussian", private=False, K=None, shift=0.2):
    x = rng.normal(shift, 0.3, (n, k))
    w = np.column_stack([np.ones(n), x, 0.4 * x.sum(axis=1) + rng.normal(0, 0.2, n)])
    w = w if K is None else w @ K.T
    scale = np.full((k + 2, k + 2), noise)
    error = symmetric_noise(rng, scale)
    values = w.T @ w + error
    values = (values + values.T) / 2
    if private:
        return replace(Observation.with_private_n(values, scale, family), map=K)
    values[0, 0], scale[0, 0] = n, 0.0
    return Observation(n, values, scale, family, map=K)


@pytest.mark.parametrize("own_laws", [False, True])
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("form", [None, PLAIN, REGRESSION | SPREADS, RELATIVE])
@pytest.mark.parametrize("scale_free", [False, True])
def test_the_gradient_is_that_of_the_density(own_laws, private, form, scale_free):
    rng = np.random.default_rng(1)
    k = 2
    seen = [
        observed(rng, 60 + 10 * j, k, 4.0, private=private and j < 2, K=random_map(rng, k + 2))
        for j in range(2)
    ]
    seen.append(observed(rng, 50, k, 4.0, family="laplace"))
    priors = (
        (ScaleFreePrior(k, centre=np.full(k, 0.3)), ScaleFreeCovariates(np.full(k, 0.5), k + 1.0))
        if scale_free
        else (NormalInverseGammaIndependent.weakly_informative(k), NIWPrior.weakly_informative(k))
    )
    posterior = CollapsedPosterior(seen, *priors, own_laws=own_laws, relative=form)
    for _ in range(100):
        x = 0.5 * rng.standard_normal(posterior.ndim)
        logp, gradient = posterior.logp_and_gradient(x)
        if np.isfinite(logp):
            break
    for i, step in enumerate(np.eye(posterior.ndim)):
        # Richardson: the error of central differences is of the fourth power of the step.
        wide, narrow = (
            (
                posterior.logp_and_gradient(x + h * step)[0]
                - posterior.logp_and_gradient(x - h * step)[0]
            )
            / (2 * h)
            for h in (2e-4, 1e-4)
        )
        assert gradient[i] == pytest.approx((4 * narrow - wide) / 3, rel=1e-5, abs=1e-5)
    # The noise is that of K A K'.
    arrays = posterior.arrays
    still = arrays._replace(precision=np.zeros_like(arrays.precision))
    silent = logp_and_gradient(x, gradient, *still, posterior.workspace())
    noise = 0.0
    for A, one in zip(posterior.statistics(x), seen, strict=True):
        K = np.eye(k + 2) if one.map is None else one.map
        noisy = np.triu(one.scale > 0)
        away = ((one.values - K @ A @ K.T)[noisy]) / one.scale[noisy]
        noise -= np.abs(away).sum() if one.family == "laplace" else 0.5 * (away**2).sum()
    assert logp - silent == pytest.approx(noise, rel=1e-9)


def log_density_of_statistics(posterior, x):
    """Log density of the free entries of A, noise left out, up to a constant."""
    arrays = posterior.arrays
    still = arrays._replace(precision=np.zeros_like(arrays.precision))
    logp = logp_and_gradient(x, np.empty_like(x), *still, posterior.workspace())
    lower = np.tril_indices(posterior.k + 2)
    step = 1e-5
    slopes = [
        (posterior.statistics(x + e)[0][lower] - posterior.statistics(x - e)[0][lower]) / (2 * step)
        for e in step * np.eye(len(x))
    ]
    return logp - np.linalg.slogdet(np.array(slopes))[1]


def test_a_private_number_of_rows_has_the_same_law_in_any_coordinates():
    """The density of A without noise does not know the map, at any n."""
    rng = np.random.default_rng(8)
    k, K = 2, random_map(rng, 4)
    seen = observed(rng, 80, k, 5.0, private=True, K=K)
    prior = NIGPrior(np.zeros(k + 1), np.eye(k + 1), 2.0, 0.5)
    mapped, plain = (
        CollapsedPosterior([one], prior, NIWPrior.weakly_informative(k), partial=False)
        for one in (seen, replace(seen, map=None))
    )
    apart = []
    for _ in range(5):
        x = rng.standard_normal(mapped.ndim)
        (A,) = mapped.statistics(x)
        n = A[0, 0]
        F = np.linalg.cholesky(A / n)
        np.fill_diagonal(F, np.log(np.diag(F)))
        F[0, 0] = np.log(n - (k + 2) + BELOW_SMALLEST_N)
        same = (F[np.tril_indices(k + 2)] - plain.arrays.centre) / plain.arrays.scale
        np.testing.assert_allclose(plain.statistics(same)[0], A, rtol=1e-8)
        found = [log_density_of_statistics(*pair) for pair in ((mapped, x), (plain, same))]
        apart.append(found[0] - found[1])
    np.testing.assert_allclose(apart, apart[0], atol=1e-4)


def ranks(trials, *, forget=False):
    """Ranks of slope and error variance; truths from the prior, three holders with maps."""
    rng = np.random.default_rng(9)
    prior = NIGPrior(np.array([0.1, 0.2]), np.diag([4.0, 4.0]), 4.0, 0.3)
    covariates = NIWPrior(np.zeros(1), 2.0, np.array([[0.4]]), 5.0)
    maps = [random_map(rng, 3), None, random_map(rng, 3)]
    found = np.empty((trials, 2))
    for trial in range(trials):
        sigma2 = prior.b0 / rng.standard_gamma(prior.a0)
        theta = prior.mu0 + np.sqrt(sigma2 / np.diag(prior.Lam0)) * rng.standard_normal(2)
        T = covariates.Psi[0, 0] / rng.chisquare(covariates.nu)
        mu = np.sqrt(T / covariates.lam) * rng.standard_normal()
        seen = []
        for n, K in zip((15, 40, 25), maps, strict=True):
            x = rng.normal(mu, np.sqrt(T), n)
            y = theta[0] + theta[1] * x + rng.normal(0, np.sqrt(sigma2), n)
            w = np.column_stack([np.ones(n), x, y]) @ (np.eye(3) if K is None else K.T)
            scale = np.full((3, 3), 3.0)
            scale[0, 0] = 0.0
            A = w.T @ w + symmetric_noise(rng, scale)
            seen.append(Observation(n, (A + A.T) / 2, scale, "gaussian", map=K))
        if forget:
            seen = [replace(one, map=None) for one in seen]
        drawn = sample(seen, prior, covariates, chains=2, draws=300, tune=300, seed=trial)
        for i, (draws, truth) in enumerate(
            ((drawn.theta[..., 1], theta[1]), (drawn.sigma2, sigma2))
        ):
            found[trial, i] = spread_rank(truth, thin(draws, 60), rng)
    return found


@pytest.mark.long
def test_ranks_of_truths_from_the_prior_are_uniform():
    """Simulation-based calibration with maps; forgetting them is the control."""
    good, wrong = ranks(120), ranks(40, forget=True)
    for column in good.T:
        assert stats.kstest(column, "uniform").pvalue > 0.005
    assert min(stats.kstest(column, "uniform").pvalue for column in wrong.T) < 1e-4


def brute_force(rng, seen, prior, covariates, proposals=200_000):
    """Posterior mean and sd of theta, and effective proposals, by importance sampling.

    Released minus noise, weighted by the density of the statistics: |S_j|^((n_j - p - 2) / 2) for
    the scatter S_j of p columns, and what is left of the rows' density given all of them.
    """
    total, log_weight, N = 0.0, np.zeros(proposals), sum(one.n for one in seen)
    for one in seen:
        P = one.k + 2
        lower = np.tril(rng.standard_normal((proposals, P, P)))
        noise = one.scale * (lower + np.swapaxes(np.tril(lower, -1), 1, 2))
        M = np.eye(P) if one.map is None else np.linalg.inv(one.map)
        A = M @ (one.values - noise) @ M.T
        S = A[:, 1:, 1:] - A[:, 1:, :1] * A[:, :1, 1:] / one.n
        possible = np.linalg.eigvalsh(S)[:, 0] > 0
        log_det = np.linalg.slogdet(np.where(possible[:, None, None], S, np.eye(P - 1)))[1]
        log_weight += np.where(possible, 0.5 * (one.n - P - 1) * log_det, -np.inf)
        total = total + A
    xx, xy, yy = total[:, :-1, :-1], total[:, :-1, -1], total[:, -1, -1]
    Lam = prior.Lam0 + xx
    mu = np.linalg.solve(Lam, (prior.Lam0 @ prior.mu0 + xy)[..., None])[..., 0]
    b = prior.b0 + 0.5 * (yy + prior.mu0 @ prior.Lam0 @ prior.mu0)
    b -= 0.5 * np.einsum("ma,mab,mb->m", mu, Lam, mu)
    a = prior.a0 + 0.5 * N
    mean = (covariates.lam * covariates.m + total[:, 0, 1:-1]) / (covariates.lam + N)
    Psi = covariates.Psi + covariates.lam * np.outer(covariates.m, covariates.m)
    Psi = Psi + xx[:, 1:, 1:] - (covariates.lam + N) * mean[:, :, None] * mean[:, None, :]
    good = np.isfinite(log_weight) & (b > 0)
    log_weight[good] -= 0.5 * np.linalg.slogdet(Lam[good])[1] + a * np.log(b[good])
    log_weight[good] -= 0.5 * (covariates.nu + N) * np.linalg.slogdet(Psi[good])[1]
    weight = np.where(good, np.exp(log_weight - log_weight[good].max()), 0.0)
    weight /= weight.sum()
    centre = weight @ mu
    own = np.einsum("m,mab->ab", weight * b / (a - 1), np.linalg.inv(Lam)).diagonal()
    return centre, np.sqrt(weight @ (mu - centre) ** 2 + own), 1 / (weight**2).sum()


@pytest.mark.parametrize("mixed", [False, True])
def test_draws_agree_with_brute_force(mixed):
    """One covariate and two holders; forgetting the maps is the control."""
    rng = np.random.default_rng(2)
    K = [random_map(rng, 3), None if mixed else random_map(rng, 3)]
    noises = (0.8, 0.6)
    seen = [observed(rng, n, 1, s, K=m) for n, s, m in zip((60, 40), noises, K, strict=True)]
    prior = NIGPrior(np.array([0.1, 0.2]), np.diag([1.0, 2.0]), 3.0, 0.2)
    covariates = NIWPrior(np.zeros(1), 1.0, np.array([[0.2]]), 4.0)
    centre, sd, effective = brute_force(rng, seen, prior, covariates)
    assert effective > 2000

    def errors_away(holders):
        """How far means of draws are from brute force, in Monte Carlo standard errors."""
        theta = sample(holders, prior, covariates, chains=4, draws=2000, seed=3).theta
        many = np.array([1 / effective + 1 / float(az.ess(theta[..., i])) for i in range(2)])
        return np.abs(theta.mean((0, 1)) - centre) / (sd * np.sqrt(many)), theta.std((0, 1)) / sd

    away, widths = errors_away(seen)
    assert np.all(away < 4)
    np.testing.assert_allclose(widths, 1.0, atol=0.08)
    away, _ = errors_away([replace(one, map=None) for one in seen])
    assert np.max(away) > 8


def test_independent_draws_agree_with_chains():
    rng = np.random.default_rng(4)
    k = 2
    seen = [
        observed(rng, 3000, k, 0.5, K=random_map(rng, k + 2), private=True),
        observed(rng, 2000, k, 0.5, K=random_map(rng, k + 2)),
    ]
    priors = ScaleFreePrior(k, centre=np.full(k, 0.3)), ScaleFreeCovariates(np.full(k, 0.5), 3.0)
    fast = draw_independent(seen, *priors, seed=1)
    assert fast is not None
    slow = sample(seen, *priors, seed=1)
    for i in range(k + 1):
        mine, others = fast.theta[..., i], slow.theta[..., i]
        error = others.std() * np.sqrt(1 / fast.effective + 1 / float(az.ess(others)))
        assert abs(mine.mean() - others.mean()) < 4 * error
        assert mine.std() == pytest.approx(others.std(), rel=0.08)


def test_a_map_must_be_lower_triangular_and_leave_what_is_known_alone():
    rng = np.random.default_rng(5)
    seen = observed(rng, 50, 2, 1.0)
    for K in (
        np.eye(3),
        np.ones((4, 4)),
        -np.eye(4),
        np.diag([2.0, 1.0, 1.0, 1.0]),
        np.diag([1.0, np.inf, 1.0, 1.0]),
    ):
        with pytest.raises(ReleaseError, match="a map of coordinates"):
            replace(seen, map=K)
    scale = seen.scale.copy()
    scale[1, 2] = scale[2, 1] = 0.0  # a product that is known
    known = replace(seen, scale=scale, map=np.diag([1.0, 1.0, 1.0, 3.0]))
    assert known.without_map().scale[1, 2] == 0.0
    with pytest.raises(ReleaseError, match="a map of coordinates"):
        replace(known, map=np.diag([1.0, 3.0, 1.0, 1.0]))


def test_variances_of_mapped_noise():
    rng = np.random.default_rng(6)
    M, sd = rng.standard_normal((3, 3)), rng.uniform(0.5, 2.0, (3, 3))
    sd = (sd + sd.T) / 2
    moved = np.array([M @ symmetric_noise(rng, sd) @ M.T for _ in range(20_000)])
    # A variance of normal values is known to sqrt(2 / draws).
    np.testing.assert_allclose(mapped_variance(M, sd**2), moved.var(axis=0), rtol=5 * 0.01)


def test_covariances_of_mapped_noise():
    rng = np.random.default_rng(6)
    M, sd = rng.standard_normal((3, 3)), rng.uniform(0.5, 2.0, (3, 3))
    sd = (sd + sd.T) / 2
    lower = np.tril_indices(3)
    moved = np.array([(M @ symmetric_noise(rng, sd) @ M.T)[lower] for _ in range(20_000)])
    found = mapped_covariance(M, sd**2)
    np.testing.assert_allclose(found.diagonal(), mapped_variance(M, sd**2)[lower])
    spread = np.sqrt(found.diagonal())
    # A correlation of normal values is known to 1 / sqrt(draws), a variance to sqrt(2 / draws).
    apart = (found - np.cov(moved.T)) / np.outer(spread, spread)
    assert np.abs(apart).max() < 5 * 0.01
    assert np.abs(found / np.outer(spread, spread) - np.eye(6)).max() > 0.5


@pytest.mark.parametrize("private", [False, True])
def test_holders_with_maps_of_their_own_are_added_up_in_common_coordinates(private):
    rng = np.random.default_rng(7)
    shared, count = random_map(rng, 3), MOST_HOLDERS
    seen = [observed(rng, 50, 1, 9.0, private=private, K=shared) for _ in range(count)]
    seen += [observed(rng, 50, 1, 1.0, private=private, K=random_map(rng, 3)) for _ in range(count)]
    sums = added_up(seen)
    for found, part in zip(sums, groups_of(seen), strict=True):
        members = [seen[j] for j in part]
        if found.covariance is None:  # the same coordinates: nothing has to be moved
            assert all(np.array_equal(one.map, shared) for one in members)
            np.testing.assert_array_equal(found.map, shared)
            np.testing.assert_allclose(found.values, sum(one.values for one in members))
            np.testing.assert_allclose(found.scale[1:], 9.0 * np.sqrt(len(members)))
            continue
        back = [np.linalg.inv(one.map) for one in members]
        total = sum(M @ one.values @ M.T for M, one in zip(back, members, strict=True))
        np.testing.assert_allclose(found.values, total)
        noise = [mapped_covariance(M, one.scale**2) for M, one in zip(back, members, strict=True)]
        np.testing.assert_allclose(found.covariance, sum(noise), atol=1e-9)
    assert {found.covariance is None for found in sums} == {False, True}
    if not private:
        assert sum(one.n for one in sums) == 100 * count


def correlated(rng, n, k, *, private):
    """A sum of holders with maps of their own: its noise is correlated."""
    maps = [random_map(rng, k + 2) for _ in range(3)]
    members = [observed(rng, n, k, 4.0, private=private, K=K) for K in maps]
    return _sum(members)


@pytest.mark.parametrize("own_laws", [False, True])
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_the_density_of_correlated_noise(own_laws, private, mapped):
    rng = np.random.default_rng(11)
    k = 2
    seen = [correlated(rng, 30, k, private=private), correlated(rng, 40, k, private=False)]
    seen.append(observed(rng, 50, k, 4.0, K=random_map(rng, k + 2) if mapped else None))
    priors = ScaleFreePrior(k), ScaleFreeCovariates(np.full(k, 0.5), k + 1.0)
    posterior = CollapsedPosterior(seen, *priors, own_laws=own_laws)
    for _ in range(100):
        x = 0.5 * rng.standard_normal(posterior.ndim)
        logp, gradient = posterior.logp_and_gradient(x)
        if np.isfinite(logp):
            break
    for i, step in enumerate(np.eye(posterior.ndim)):
        wide, narrow = (
            (
                posterior.logp_and_gradient(x + h * step)[0]
                - posterior.logp_and_gradient(x - h * step)[0]
            )
            / (2 * h)
            for h in (2e-4, 1e-4)
        )
        assert gradient[i] == pytest.approx((4 * narrow - wide) / 3, rel=1e-5, abs=1e-5)
    # The same without the noise, and the noise by itself, constants included.
    arrays = posterior.arrays
    still = arrays._replace(whiteners=np.zeros_like(arrays.whiteners))
    silent = logp_and_gradient(x, gradient, *still, posterior.workspace())
    lower, noise, constants = np.tril_indices(k + 2), 0.0, 0.0
    for A, one in zip(posterior.statistics(x), seen, strict=True):
        K = np.eye(k + 2) if one.map is None else one.map
        noisy = (one.scale[lower] > 0).nonzero()[0]
        away = (one.values - K @ A @ K.T)[lower][noisy]
        covariance = np.diag(one.scale[lower] ** 2) if one.covariance is None else one.covariance
        law = stats.multivariate_normal(np.zeros(len(noisy)), covariance[np.ix_(noisy, noisy)])
        noise += law.logpdf(away)
        constants += law.logpdf(np.zeros(len(noisy)))
        assert _log_noise_constant(one) == pytest.approx(law.logpdf(np.zeros(len(noisy))))
    assert logp - silent == pytest.approx(noise - constants, rel=1e-8)


def test_columns_in_another_order_keep_their_covariances():
    rng = np.random.default_rng(12)
    seen = correlated(rng, 30, 2, private=False)
    turned = seen.in_order([0, 2, 1, 3])
    back = turned.in_order([0, 2, 1, 3])
    np.testing.assert_array_equal(back.covariance, seen.covariance)
    # Of (1, x1, x2, y) the entries (x1, 1) and (x2, 1) are the second and the fourth.
    assert turned.covariance[1, 1] == seen.covariance[3, 3]
    assert turned.covariance[1, 3] == seen.covariance[3, 1]
    assert turned.covariance[1, 6] == seen.covariance[3, 6]


# --- from Releases to common coordinates ----------------------------------------------------------


def in_rounds(releases, target=None, features=None):
    columns, names = choose_columns(releases, target, features)
    found = InRounds.of(releases, columns, names)
    assert found is not None
    return columns, found


def test_one_release_is_taken_as_it_is(releases):
    columns, found = in_rounds(releases[:1])
    alone = LastRound.of(releases[0], columns, "it")
    (seen,) = found.observations
    assert seen.map is None
    np.testing.assert_array_equal(seen.values, alone.observation.values)
    np.testing.assert_array_equal(found.K, alone.K)
    one, other = (
        fit(releases[0], method=method, seed=1, chains=1, draws=50)
        for method in ("exact", "exact_own_laws")
    )
    np.testing.assert_array_equal(one.theta, other.theta)


def test_the_coordinates_are_those_of_the_largest_holder_with_rounds(releases):
    _, found = in_rounds(releases)
    assert [seen.map is None for seen in found.observations] == [False, True, False]
    np.testing.assert_allclose(found.observations[2].map @ found.K, np.eye(len(found.K)), atol=1e-9)
    _, other = in_rounds([releases[0], releases[2]])
    assert [seen.map is None for seen in other.observations] == [True, False]
    columns, names = choose_columns(releases[2:], None, None)
    assert InRounds.of(releases[2:], columns, names) is None


@pytest.mark.parametrize(("target", "features"), MODELS)
def test_sums_without_noise_give_the_least_squares_of_all_rows(releases, target, features):
    """Of two holders with rounds, any target and any features."""
    tables = [table_of(j, release.n, seed=2) for j, release in enumerate(releases[:2])]
    same = [with_sums(r, exact_sums(r, t)) for r, t in zip(releases, tables, strict=False)]
    columns, found = in_rounds(same, target, features)
    A = sum(seen.without_map().values for seen in found.observations)
    theta = np.linalg.solve(A[:-1, :-1], A[:-1, -1])
    sigma2 = (A[-1, -1] - theta @ A[:-1, -1]) / A[0, 0]
    drawn = found.to_unit(Draws(theta[None, None], np.array([[sigma2]])))
    wanted, left = least_squares(together(tables), target, features)
    moved = columns.theta_to_original(drawn.theta)[0, 0]
    np.testing.assert_allclose(moved, wanted, rtol=1e-5, atol=1e-5)
    assert columns.sigma2_to_original(drawn.sigma2)[0, 0] == pytest.approx(left, rel=1e-5)


# --- whole fits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("method", ["auto", "exact"])
def test_intervals_hold_the_regression_of_all_rows(folder, releases, neighbours, method):
    people = (0, 1, 2) if method == "auto" else (0, 0, 0)
    sizes, words = (8_000, 20_000, 12_000), ({"rounds": "auto"}, {"rounds": "auto"}, {"rounds": 1})
    tables = [
        table_of(p, n, seed=3 + j) for j, (p, n) in enumerate(zip(people, sizes, strict=True))
    ]
    schema = make_schema(neighbours=neighbours)
    given = [
        published(folder, f"{neighbours}{method}{j}", table, schema=schema, **own)
        for j, (table, own) in enumerate(zip(tables, words, strict=True))
    ]
    posterior = fit(given, method=method, seed=1, chains=2, draws=500)
    rows = posterior.summary().rows
    wanted, left = least_squares(together(tables), "score", FEATURES)
    for name, value in zip((*posterior.columns.names, "sigma2"), (*wanted, left), strict=True):
        assert abs(rows[name].median - value) < 6 * rows[name].spread
    alone = fit(given[1], seed=1, chains=2, draws=500).summary().rows
    for name in ("dose", "weight"):
        # 0.6 to 0.8 where people differ; else 0.8 to 1.1, by what the first rounds have found.
        assert rows[name].spread < 1.3 * alone[name].spread
    assert posterior.info.method == ("exact_own_laws" if method == "auto" else "exact")
    assert "of the rounds of each holder the last one is used" in posterior.info.reason
    assert not any("contradict" in text for text in posterior.warnings)


def covered(releases, factor, times):
    """How many 50% and 90% intervals of the slopes hold the truth; noise `factor` times as much."""
    rng = np.random.default_rng(6)
    found = np.zeros(2, dtype=int)
    noise = [spreads(release) for release in releases[:2]]
    for seed in range(times):
        given = []
        for j, release in enumerate(releases[:2]):
            sums = exact_sums(release, table_of(j, release.n, seed=1000 + seed))
            given.append(with_sums(release, sums + factor * symmetric_noise(rng, noise[j])))
        posterior = fit(given, seed=seed, chains=2, draws=300)
        found += slopes_held(posterior)
    return found


@pytest.mark.long
def test_intervals_hold_the_truth_as_often_as_they_say(releases):
    check_as_often_as_they_say(lambda factor: covered(releases, factor, 20), 20)


def test_holders_that_contradict_each_other_are_refused(releases):
    tables = [table_of(j, release.n, seed=2) for j, release in enumerate(releases[:2])]
    tables[0]["score"] = tables[0]["score"] + 3.0 * (tables[0]["dose"] - 70)
    given = [with_sums(r, exact_sums(r, t)) for r, t in zip(releases, tables, strict=False)]
    for method in ("auto", "exact"):
        with pytest.raises(ReleaseError, match=r"contradict each other.* dose is"):
            fit(given, method=method, seed=1, chains=2, draws=300)


def test_what_cannot_be_done_is_refused_with_the_remedy(releases):
    for method in ("gibbs_update", "bs_distributed", "normal_x"):
        with pytest.raises(RequestError, match=f"method: {method} cannot read .*Use exact"):
            fit(releases, method=method)
    with pytest.raises(RequestError, match="covariate_prior"):
        fit(releases, covariate_prior=NIWPrior.weakly_informative(4))


def test_a_level_that_may_be_empty_does_no_harm(folder):
    """Products of levels are left out where noise hides whether a level has people (`density`)."""
    tables = [table_of(j, 8_000, seed=9) for j in range(2)]
    tables[0]["region"] = np.where(tables[0]["region"] == "w", "n", tables[0]["region"])
    given = [published(folder, f"empty{j}", table, rounds="auto") for j, table in enumerate(tables)]
    _, found = in_rounds(given)
    assert all(seen.indicators == (3, 4) for seen in found.observations)
    posterior = fit(given, seed=1, chains=2, draws=500)
    assert posterior.sample_stats["diverging"].mean() < 0.01
    assert max(row.rhat for row in posterior.summary().rows.values()) < 1.05
