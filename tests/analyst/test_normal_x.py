"""`normal_x` against brute force, the joint-distribution test and the exact method."""

from __future__ import annotations

from dataclasses import replace

import arviz as az
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

from noisewise.analyst.chains import generators
from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import alparslan
from noisewise.analyst.regression.priors import (
    HierarchicalNIWPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)
from noisewise.core.errors import RequestError

from . import gibbs_problems


def problem(k, n, noise, seed, isometric=False, with_u=True, family="gaussian"):
    """One holder's release of n rows with k covariates."""
    rng = np.random.default_rng(seed)
    x = 0.1 + rng.normal(0, 0.4, (n, k)) @ (0.8 * np.eye(k) + 0.2)
    y = 0.2 + x @ np.linspace(0.5, -0.4, k) + rng.normal(0, 0.3, n)
    w = np.column_stack([np.ones(n), x, y])
    seen = gibbs_problems.release(w, noise, "gaussian", rng, isometric)
    scale = seen.scale.copy()
    if not with_u:
        scale[-1, -1] = np.inf
    return replace(seen, scale=scale, family=family)


def priors(k):
    V0 = np.diag([1.0] + [0.5] * k)
    return (
        NormalInverseGammaIndependent(np.zeros(k + 1), V0, 3.0, 0.3),
        NIWPrior.weakly_informative(k),
    )


def parameters(drawn):
    return np.concatenate([drawn.theta, drawn.sigma2[..., None]], axis=-1)


def mean_and_error(values):
    """Mean of each column of (chains, draws, size), and its Monte Carlo standard error."""
    ess = np.array([float(az.ess({"v": values[..., i]})["v"]) for i in range(values.shape[-1])])
    return values.mean((0, 1)), values.std((0, 1)) / np.sqrt(ess)


def assert_same_law(ours, theirs, errors=5.0):
    """Means and mean squares about a common centre within Monte Carlo error."""
    x, y = parameters(ours), parameters(theirs)
    centre = y.mean((0, 1))
    for left, right in ((x, y), ((x - centre) ** 2, (y - centre) ** 2)):
        (a, error_a), (b, error_b) = mean_and_error(left), mean_and_error(right)
        np.testing.assert_array_less(abs(a - b), errors * np.hypot(error_a, error_b))


# --- densities and moves --------------------------------------------------------------------------


@pytest.mark.parametrize("with_u", [True, False])
@pytest.mark.parametrize("isometric", [True, False])
def test_the_density_of_the_released_sums_is_the_joint_normal_one(with_u, isometric):
    seen = problem(3, 50, 4.0, 1, isometric, with_u)
    holders = alparslan.prepare_holders([seen], "normal_x")
    S = seen.values[:-1, :-1] + 30 * np.eye(4)
    n = seen.n

    def brute_force(theta, sigma2):
        mean = np.append(S @ theta, theta @ S @ theta + n * sigma2)
        cov = np.empty((5, 5))
        cov[:4, :4] = sigma2 * S + np.diag(seen.scale[:-1, -1] ** 2)
        cov[:4, 4] = cov[4, :4] = 2 * sigma2 * S @ theta
        cov[4, 4] = 4 * sigma2 * theta @ S @ theta + 2 * n * sigma2**2 + seen.scale[-1, -1] ** 2
        size = 5 if with_u else 4
        return stats.multivariate_normal.logpdf(
            seen.values[:size, -1], mean[:size], cov[:size, :size]
        )

    points = [(np.array([0.1, 0.4, -0.2, 0.3]), 0.2), (np.array([0.5, -0.4, 0.1, 0.0]), 1.3)]
    ours = [alparslan.log_density(holders, 0, S, *point) for point in points]
    theirs = [brute_force(*point) for point in points]
    assert ours[1] - ours[0] == pytest.approx(theirs[1] - theirs[0], rel=1e-10)


@pytest.mark.parametrize("noise", [0.1, 4.0, 1e3, 1e6, "some not released"])
def test_the_part_of_a_holder_in_the_law_of_theta(noise):
    """Equation (12) by its definition, where there is much, little or no information in z."""
    seen = problem(5, 50, 4.0 if isinstance(noise, str) else noise, 1)
    S = problem(5, 50, 1e-9, 2).values[:-1, :-1]
    scale = np.array(seen.scale)
    if isinstance(noise, str):
        scale[2, -1] = scale[-1, 2] = np.inf
    seen = Observation(seen.n, seen.values, scale, "gaussian")
    holders = alparslan.prepare_holders([seen], "normal_x")
    sigma2 = 0.3
    H, r, proper = alparslan.equation_12(holders, 0, S, sigma2)
    assert proper
    known = np.isfinite(scale[:-1, -1])
    some, z = S[known], seen.values[:-1, -1][known]
    inverse = np.linalg.inv(sigma2 * some[:, known] + np.diag(scale[:-1, -1][known] ** 2))
    expected = some.T @ inverse @ some
    np.testing.assert_allclose(H.T @ H, expected, rtol=1e-7, atol=1e-7 * np.diag(expected).min())
    np.testing.assert_allclose(H.T @ r, some.T @ inverse @ z, rtol=1e-9)


def test_moments_of_the_sums_by_simulation():
    """The two moments behind the density, from rows."""
    rng = np.random.default_rng(3)
    n, theta, sigma2 = 40, np.array([0.2, 0.5]), 0.3
    X = np.column_stack([np.ones(n), rng.normal(0.3, 0.5, n)])
    S = X.T @ X
    y = X @ theta + np.sqrt(sigma2) * rng.normal(size=(200_000, n))
    sums = np.column_stack([y @ X, (y * y).sum(axis=1)])
    cov = np.empty((3, 3))
    cov[:2, :2] = sigma2 * S
    cov[:2, 2] = cov[2, :2] = 2 * sigma2 * S @ theta
    cov[2, 2] = 4 * sigma2 * theta @ S @ theta + 2 * n * sigma2**2
    mean = np.append(S @ theta, theta @ S @ theta + n * sigma2)
    np.testing.assert_allclose(sums.mean(axis=0), mean, rtol=0.005)
    np.testing.assert_allclose(np.cov(sums.T), cov, rtol=0.03)


def regenerate(rng, holders, state):
    """New released values given the state, under the model that the kernel assumes."""
    S_hat, z, u = np.array(holders.S), np.array(holders.z), np.array(holders.u)
    theta, sigma2 = state.theta, float(state.sigma2)
    for j in range(len(z)):
        S = alparslan.statistics(holders.n[j], state.mean[j], state.L[j])
        precision = holders.S_precision[j]
        noise = np.triu(rng.normal(size=S.shape))
        noise = noise + np.triu(noise, 1).T
        S_hat[j] = S + np.where(
            precision > 0, noise / np.sqrt(np.where(precision > 0, precision, 1)), 0
        )
        d = len(theta)
        mean = np.append(S @ theta, theta @ S @ theta + holders.n[j] * sigma2)
        cov = np.empty((d + 1, d + 1))
        cov[:d, :d] = sigma2 * S + np.diag(1 / holders.w[j] ** 2)
        cov[:d, d] = cov[d, :d] = 2 * sigma2 * S @ theta
        cov[d, d] = 4 * sigma2 * theta @ S @ theta + 2 * holders.n[j] * sigma2**2
        cov[d, d] += holders.u_variance[j]
        sums = mean + np.linalg.cholesky(cov) @ rng.normal(size=d + 1)
        z[j], u[j] = holders.w[j] * sums[:d], sums[d]
    return holders._replace(S=S_hat, z=z, u=u)


def prior_state(rng, state, n, prior, covariates):
    """All parameters and latent statistics from the prior, with the steps of `state`."""
    k = covariates.k
    sigma2 = prior.b0 / rng.gamma(prior.a0)
    spread = prior.V0 if isinstance(prior, NormalInverseGammaIndependent) else (
        sigma2 * np.linalg.inv(prior.Lam0)
    )  # fmt: skip
    theta = prior.mu0 + np.linalg.cholesky(spread) @ rng.normal(size=k + 1)
    T = np.atleast_2d(stats.invwishart.rvs(covariates.nu, covariates.Psi, random_state=rng))
    L_T = np.linalg.cholesky(T)
    mu = covariates.m + L_T @ rng.normal(size=k) / np.sqrt(covariates.lam)
    mean = mu + rng.normal(size=(len(n), k)) @ L_T.T / np.sqrt(n)[:, None]
    C = [np.atleast_2d(stats.wishart.rvs(m - 1, T, random_state=rng)) for m in n]
    return state._replace(
        theta=theta, sigma2=sigma2, mu=mu, L_T=L_T, mean=mean, L=np.linalg.cholesky(C)
    )


def summary(state):
    """What the joint-distribution test looks at: first and second moments and logarithms."""
    log_det = [np.log(np.diagonal(L)).sum() for L in (*state.L, state.L_T)]
    values = np.concatenate(
        [state.theta, [np.log(state.sigma2)], state.mu, state.mean.ravel(), log_det]
    )
    return np.concatenate([values, values**2, values[:1] * values[1:]])


def joint_test(model, state, prior, covariates, iterations, spoil=lambda holders: holders):
    """Largest z score between the prior and chains that also redraw their data (Geweke 2004).

    Forty chains, each from its own draw of the prior: they start where they must stay, and their
    means are independent, so that the standard error needs no autocorrelation (an effective draw
    of mu takes more than a hundred iterations).
    """
    rng = np.random.default_rng(11)
    truth = model.holders
    direct = np.array(
        [summary(prior_state(rng, state, truth.n, prior, covariates)) for _ in range(3000)]
    )
    means = []
    for own in generators(4, 40):
        now = prior_state(rng, state, truth.n, prior, covariates)
        total = np.zeros(direct.shape[1])
        for t in range(0, iterations, 4):  # data are redrawn after every fourth step
            spoilt = model._replace(holders=spoil(regenerate(rng, truth, now)))
            now, _ = alparslan.run(own, spoilt, now, t, 4)
            total += summary(now)
        means.append(4 * total / iterations)
    error = np.sqrt(np.var(means, axis=0, ddof=1) / 40 + direct.var(axis=0, ddof=1) / len(direct))
    return np.abs((np.mean(means, axis=0) - direct.mean(axis=0)) / error).max()


@pytest.mark.long
@pytest.mark.parametrize("case", ["independent", "conjugate"])
def test_successive_and_marginal_conditional_draws_agree(case):
    """Any error in an acceptance ratio moves the chain's law away from the prior."""
    covariates = NIWPrior(np.array([0.1, -0.2]), 4.0, 3.0 * np.eye(2), 12.0)
    centre = np.array([0.3, 0.2, -0.1])
    prior = {
        "independent": NormalInverseGammaIndependent(centre, 0.1 * np.eye(3), 8.0, 4.0),
        "conjugate": NIGPrior(centre, 5.0 * np.eye(3), 8.0, 4.0),
    }[case]
    seen = [problem(2, n, 2.0, n, isometric) for n, isometric in ((30, True), (32, False))]
    model = alparslan.build_model(seen, prior, covariates)
    # Few rows, so that the latent statistics are wide and the chain is quick: the data are drawn
    # with a normal y'y here, so that nothing is approximate.
    model = model._replace(holders=model.holders._replace(n=np.array([9.0, 12.0])))
    start = alparslan.init(np.random.default_rng(1), seen, prior, covariates)
    start = start._replace(log_steps=np.array([-0.5, -0.3, -np.log(8.0), -np.log(12.0), 0.0, 0.0]))
    assert joint_test(model, start, prior, covariates, 600) < 4.5
    if case == "independent":

        def spoil(holders):
            return holders._replace(S_precision=9.0 * holders.S_precision)  # a third of its sd

        assert joint_test(model, start, prior, covariates, 1000, spoil) > 6


@pytest.mark.parametrize("alpha", [6.0, 25.0])
def test_without_data_the_statistics_keep_their_prior(alpha):
    """The ratio of Wishart proposals, far from where it hardly matters."""
    k, n, T = 2, 12, np.array([[0.5, 0.2], [0.2, 0.3]])
    holders = alparslan.prepare_holders([problem(k, 60, 1.0, 0)], "normal_x")
    zero = np.zeros((1, k + 1))
    holders = holders._replace(
        n=np.array([float(n)]), S_precision=np.zeros((1, k + 1, k + 1)), w=zero, z=zero,
        has_u=np.array([False]),
    )  # fmt: skip
    mu, theta, rng = np.array([0.4, -0.1]), np.zeros(k + 1), np.random.default_rng(1)
    L_T = np.linalg.cholesky(T)
    T_inverse = np.linalg.inv(T)
    mean, L = np.array(mu), np.sqrt(n) * L_T
    start = alparslan.State(theta, 1.0, mu, L_T, L_T, mean[None], L[None], np.zeros(4))
    seen = []
    for _ in range(20_000):
        state = start._replace(mean=mean[None], L=L[None])
        L, _ = alparslan.move_scatter(rng, holders, state, 0, T_inverse, alpha)
        state = start._replace(mean=mean[None], L=L[None])
        mean, _ = alparslan.move_mean(rng, holders, state, 0, T_inverse, 1.5)
        C = L @ L.T
        away = mean - mu
        seen.append(
            [*mean, *C[np.tril_indices(2)], 2 * np.log(np.diag(L)).sum(), away[0] * away[1]]
        )
    freedom = (n - 1 - np.arange(k)) / 2
    expected = np.concatenate(
        [
            mu,
            (n - 1) * T[np.tril_indices(2)],
            [digamma(freedom).sum() + k * np.log(2) + np.log(np.linalg.det(T)), T[0, 1] / n],
        ]
    )
    found, error = mean_and_error(np.array(seen)[None])
    assert (abs(found - expected) < 4.5 * error).all()
    assert (error < 0.05 * np.maximum(abs(expected), 0.4)).all()


# --- the posterior --------------------------------------------------------------------------------

CASES = [
    # k, rows of each holder, noise, isometric, with y'y
    (1, (200,), 5.0, False, False),
    (1, (300, 200, 1000), 6.0, True, False),
    (3, (1000,), 8.0, True, False),
    (1, (2000,), 30.0, False, True),
    (3, (1500, 2000, 2000), 20.0, True, True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_posterior_is_that_of_the_exact_method(case):
    """With y'y hidden both have one posterior; with y'y, n is large enough for it to be normal."""
    k, sizes, noise, isometric, with_u = case
    seen = [problem(k, n, noise, [k, j], isometric, with_u) for j, n in enumerate(sizes)]
    prior, covariates = priors(k)
    ours = alparslan.sample(seen, prior, covariates, draws=15_000, tune=2000, seed=1)
    theirs = exact.sample(seen, prior, covariates, draws=3000, seed=2, keep_covariates=False)
    assert_same_law(ours, theirs)
    for rate in ours.info[1:]:
        assert 0.1 < rate.mean() < 0.5


def test_other_priors_have_the_exact_posterior_too():
    seen = [problem(2, 800, 8.0, j, True, False) for j in range(2)]
    prior = NIGPrior(np.zeros(3), np.diag([0.3, 0.3, 0.3]), 3.0, 0.3)
    covariates = HierarchicalNIWPrior.weakly_informative(2)
    ours = alparslan.sample(seen, prior, covariates, draws=12_000, tune=2000, seed=1)
    theirs = exact.sample(seen, prior, covariates, draws=3000, seed=2, keep_covariates=False)
    assert_same_law(ours, theirs)


def test_a_wrong_scale_of_the_noise_would_be_noticed():
    """Negative control of the comparison."""
    seen = problem(1, 1000, 20.0, 0, True)
    quieter = Observation(seen.n, seen.values, seen.scale / 1.3, "gaussian")
    prior, covariates = priors(1)
    ours = alparslan.sample([quieter], prior, covariates, draws=15_000, tune=2000, seed=1)
    theirs = exact.sample([seen], prior, covariates, draws=3000, seed=2, keep_covariates=False)
    with pytest.raises(AssertionError):
        assert_same_law(ours, theirs)


# --- the sampler ----------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_draws_on_any_number_of_cores():
    seen = [problem(2, 100, 5.0, j) for j in range(2)]
    progress = []
    runs = [
        alparslan.sample(
            seen, *priors(2), chains=3, draws=200, tune=400, seed=5, cores=cores,
            progress=lambda done, total: progress.append((done, total)),
        )
        for cores in (1, 3)
    ]  # fmt: skip
    np.testing.assert_array_equal(runs[0].theta, runs[1].theta)
    np.testing.assert_array_equal(runs[0].sigma2, runs[1].sigma2)
    assert not np.array_equal(runs[0].theta[0], runs[0].theta[1])
    other = alparslan.sample(seen, *priors(2), chains=3, draws=200, tune=400, seed=6)
    assert not np.array_equal(runs[0].theta, other.theta)
    assert max(progress) == (1800, 1800)


def test_steps_are_pure_and_make_up_the_chain():
    seen = [problem(2, 100, 5.0, j) for j in range(2)]
    model = alparslan.build_model(seen, *priors(2), tune=20)
    (rng,) = generators(9, 1)
    state = alparslan.init(rng, seen, *priors(2))
    before = [np.array(field) for field in state]
    first, trace = alparslan.run(np.random.default_rng(1), model, state, 0, 1)
    again, _ = alparslan.run(np.random.default_rng(1), model, state, 0, 1)
    for left, right, kept, now in zip(first, again, before, state, strict=True):
        np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(kept, now)
    assert 0 <= trace.accepted[0, 2] <= 1
    for t in range(40):
        state, _ = alparslan.run(rng, model, state, t, 1)
        if t == 19:
            tuned = state
    np.testing.assert_array_equal(tuned.log_steps, state.log_steps)  # frozen after warm-up
    drawn = alparslan.sample(seen, *priors(2), chains=1, draws=20, tune=20, seed=9)
    np.testing.assert_array_equal(drawn.theta[0, -1], state.theta)
    thinned = alparslan.sample(seen, *priors(2), chains=1, draws=4, tune=20, thin=5, seed=9)
    np.testing.assert_array_equal(drawn.theta[:, 4::5], thinned.theta)
    np.testing.assert_array_equal(
        drawn.info.accepted_scatter[:, 4::5], thinned.info.accepted_scatter
    )


@pytest.mark.long
def test_no_covariates_and_no_released_sums_of_one_column():
    seen = problem(0, 200, 2.0, 0)
    prior, covariates = priors(0)
    assert_same_law(
        alparslan.sample([seen], prior, covariates, draws=8000, tune=2000, seed=1),
        exact.sample([seen], prior, covariates, draws=3000, seed=2, keep_covariates=False),
    )
    seen = problem(2, 800, 6.0, 4, with_u=False)
    scale = np.array(seen.scale)
    scale[1, -1] = scale[-1, 1] = scale[0, 2] = scale[2, 0] = np.inf
    partial = Observation(seen.n, seen.values, scale, "gaussian")
    # The sign of a mean is hardly known, and single moves seldom change it: chains must be long.
    assert_same_law(
        alparslan.sample([partial], *priors(2), draws=100_000, tune=2000, seed=1),
        exact.sample([partial], *priors(2), draws=3000, seed=2, keep_covariates=False),
    )


# --- errors ---------------------------------------------------------------------------------------


def private(seen):
    scale = np.array(seen.scale)
    scale[0, 0] = 1.0
    return Observation.with_private_n(seen.values, scale, "gaussian")


def known(seen, *entry):
    scale = np.array(seen.scale)
    scale[entry] = scale[entry[::-1]] = 0.0
    return Observation(seen.n, seen.values, scale, "gaussian")


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([], "at least one holder"),
        ([problem(1, 100, 1.0, 0, family="laplace")], "Laplace.*exact"),
        ([private(problem(1, 100, 1.0, 0))], "private.*exact"),
        ([problem(1, 29, 1.0, 0)], "n = 29.*at least 30.*exact"),
        ([problem(6, 31, 1.0, 0)], "n = 31.*at least 32.*exact"),
        ([problem(3, 4, 1.0, 0, with_u=False)], "n = 4.*at least 5.*exact"),
        (
            [problem(1, 100, 1.0, 0), problem(2, 100, 1.0, 0)],
            r"same columns; got \[1, 2\] covariates",
        ),
        ([known(problem(1, 100, 1.0, 0), 1, 2)], "without noise.*exact"),
        (
            [known(problem(1, 100, 1.0, 0), 1, 1)],
            "known exactly.*use exact, or leave out categories",
        ),
    ],
)
def test_what_does_not_fit_is_refused(seen, message):
    with pytest.raises(RequestError, match=message):
        alparslan.sample(seen, *priors(1))


@pytest.mark.parametrize("name", ["chains", "draws", "thin"])
def test_nonsense_counts_are_refused(name):
    with pytest.raises(RequestError, match=name):
        alparslan.sample([problem(1, 100, 1.0, 0)], *priors(1), **{name: 0})
    with pytest.raises(RequestError, match="covariates"):
        alparslan.sample([problem(2, 100, 1.0, 0)], *priors(1))
