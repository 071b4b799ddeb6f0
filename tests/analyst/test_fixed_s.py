"""`fixed_s` and `fixed_s_fast` against brute force and the exact method, and what they lose."""

from __future__ import annotations

from dataclasses import replace

import arviz as az
import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.chains import generators
from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import alparslan
from noisewise.analyst.regression.papers.alparslan import equation_12, log_density
from noisewise.analyst.regression.papers.shared import project_gram
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, NormalInverseGammaIndependent
from noisewise.core.errors import RequestError

from . import gibbs_problems

THETA, SIGMA2 = np.array([0.2, 0.5, -0.1, -0.4]), 0.09


def release(rng, k, n, noise, isometric=False, with_u=True, theta=THETA, sigma2=SIGMA2):
    x = 0.1 + rng.normal(0, 0.35, (n, k)) @ (0.9 * np.eye(k) + 0.1)
    y = theta[0] + x @ theta[1 : k + 1] + np.sqrt(sigma2) * rng.normal(size=n)
    w = np.column_stack([np.ones(n), x, y])
    seen = gibbs_problems.release(w, noise, "gaussian", rng, isometric)
    scale = seen.scale.copy()
    if not with_u:
        scale[-1, -1] = np.inf
    return replace(seen, scale=scale)


def prior_for(k):
    return NormalInverseGammaIndependent(np.zeros(k + 1), np.diag([1.0] + [0.5] * k), 3.0, 0.3)


def with_scale(seen, scale, *entries):
    scales = np.array(seen.scale)
    for a, b in entries:
        scales[a, b] = scales[b, a] = scale
    return Observation(seen.n, seen.values, scales, "gaussian")


def noise_covariance(variance, theta):
    """Cov(E theta) for symmetric E with independent entries of the given variances."""
    d = theta.size
    K = np.zeros((d, d))
    for a in range(d):
        for b in range(a + 1):  # the entry (a, b) of E adds theta_b to row a and theta_a to row b
            row = np.zeros(d)
            row[a] += theta[b]
            if a != b:
                row[b] += theta[a]
            K += variance[a, b] * np.outer(row, row)
    return K


def residual_law(S, n, seen, theta, sigma2, account):
    """Mean and covariance of (ẑ, û)."""
    d = theta.size
    mean = np.append(S @ theta, theta @ S @ theta + n * sigma2)
    cov = np.empty((d + 1, d + 1))
    cov[:d, :d] = sigma2 * S + np.diag(seen.scale[:-1, -1] ** 2)
    cov[:d, d] = cov[d, :d] = 2 * sigma2 * S @ theta
    cov[d, d] = 4 * sigma2 * theta @ S @ theta + 2 * n * sigma2**2 + seen.scale[-1, -1] ** 2
    if account:
        both = np.vstack([np.eye(d), theta])
        cov += both @ noise_covariance(seen.scale[:-1, :-1] ** 2, theta) @ both.T
    return mean, cov


# --- parts ----------------------------------------------------------------------------------------


def test_projection_is_the_nearest_possible_matrix():
    rng = np.random.default_rng(0)
    seen = release(rng, 3, 60, 15.0)
    A, n = seen.values, seen.n
    nearest = project_gram(A, n)
    np.testing.assert_array_equal(nearest[0], A[0])

    def scatter(M):
        return M[1:, 1:] - np.outer(M[0, 1:], M[0, 1:]) / n

    assert np.linalg.eigvalsh(scatter(A))[0] < -1
    assert np.linalg.eigvalsh(scatter(nearest))[0] > -1e-9
    away = np.linalg.norm(A - nearest)
    for _ in range(200):  # no other possible scatter matrix nearby is nearer
        root = rng.normal(size=(4, 4))
        other = 0.95 * scatter(nearest) + 0.05 * rng.exponential(20) * root @ root.T
        assert np.linalg.norm(scatter(A) - other) > away
    possible = project_gram(A, n, floor=1e-3)
    np.testing.assert_allclose(project_gram(possible, n), possible, atol=1e-9)
    assert np.linalg.eigvalsh(scatter(possible))[0] == pytest.approx(1e-3 * n)


@pytest.mark.parametrize("isometric", [True, False])
def test_the_law_of_theta_is_equation_12(isometric):
    seen = [release(np.random.default_rng(j), 3, 300, 9.0, isometric) for j in range(2)]
    model = alparslan.build_model(seen, prior_for(3))
    sigma2 = 0.2
    for j, one in enumerate(seen):
        S = model.S[j]
        inverse = np.linalg.inv(sigma2 * S + np.diag(one.scale[:-1, -1] ** 2))
        H, r, proper = equation_12(model.holders, j, S, sigma2)
        assert proper
        np.testing.assert_allclose(H.T @ H, S @ inverse @ S, rtol=1e-9)
        np.testing.assert_allclose(H.T @ r, S @ inverse @ one.values[:-1, -1], rtol=1e-9)


@pytest.mark.long
def test_what_noise_on_the_covariates_adds_to_the_covariance():
    rng = np.random.default_rng(2)
    theta, sd = np.array([0.3, -0.5, 0.8]), np.array([[0, 1, 2], [1, 3, 1], [2, 1, 2.0]])
    E = rng.normal(size=(200_000, 3, 3)) * np.triu(sd)
    E = E + np.triu(E, 1).transpose(0, 2, 1)
    np.testing.assert_allclose(
        np.cov((E @ theta).T), noise_covariance(sd**2, theta), atol=0.05, rtol=0.02
    )
    for isometric in (True, False):
        seen = release(rng, 2, 200, 6.0, isometric)
        model = alparslan.build_model([seen], prior_for(2), account_for_s=True)
        S = model.S[0]
        ours, theirs = [], []
        for point, sigma2 in ((theta, 0.2), (-theta, 0.9)):
            mean, cov = residual_law(S, 200, seen, point, sigma2, True)
            theirs.append(stats.multivariate_normal.logpdf(seen.values[:, -1], mean, cov))
            ours.append(log_density(model.holders, 0, S, point, sigma2))
        assert ours[1] - ours[0] == pytest.approx(theirs[1] - theirs[0], rel=1e-9)


# --- the posterior --------------------------------------------------------------------------------


@pytest.mark.parametrize("account", [False, True])
@pytest.mark.parametrize("conjugate", [False, True])
def test_the_posterior_by_quadrature(account, conjugate):
    seen = release(np.random.default_rng(5), 1, 150, 8.0, True)
    prior = NIGPrior(np.zeros(2), np.diag([0.2, 0.4]), 3.0, 0.3) if conjugate else prior_for(1)
    S, n = project_gram(seen.values[:2, :2], 150), 150
    drawn = alparslan.sample([seen], prior, account_for_s=account, draws=10_000, tune=1000, seed=1)
    sample = np.column_stack([drawn.theta.reshape(-1, 2), np.log(drawn.sigma2.ravel())])
    centre, sd = sample.mean(axis=0), sample.std(axis=0)
    axes = [np.linspace(c - 6 * s, c + 6 * s, 24) for c, s in zip(centre, sd, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    logs = np.empty(len(points))
    V0 = prior.V0 if isinstance(prior, NormalInverseGammaIndependent) else np.linalg.inv(prior.Lam0)
    for i, (a, b, log_sigma2) in enumerate(points):
        theta, sigma2 = np.array([a, b]), np.exp(log_sigma2)
        mean, cov = residual_law(S, n, seen, theta, sigma2, account)
        away = seen.values[:, -1] - mean
        spread = V0 * sigma2 if conjugate else V0
        logs[i] = -0.5 * np.log(np.linalg.det(cov)) - 0.5 * away @ np.linalg.solve(cov, away)
        logs[i] -= 0.5 * np.log(np.linalg.det(spread)) + 0.5 * theta @ np.linalg.solve(
            spread, theta
        )
        logs[i] -= prior.a0 * log_sigma2 + prior.b0 / sigma2
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    mean = weight @ points
    spread = np.sqrt(weight @ (points - mean) ** 2)
    for i, values in enumerate((*np.moveaxis(drawn.theta, -1, 0), np.log(drawn.sigma2))):
        error = values.std() / np.sqrt(float(az.ess({"v": values})["v"]))
        assert abs(values.mean() - mean[i]) < 4.5 * error
        assert values.std() == pytest.approx(spread[i], rel=0.05)


@pytest.mark.parametrize("k", [1, 3])
def test_if_the_covariates_have_no_noise_it_is_exact(k):
    """Three holders; with y'y hidden nothing is approximate."""
    entries = [(a, b) for a in range(k + 1) for b in range(k + 1)]
    rng = np.random.default_rng(8)
    seen = [with_scale(release(rng, k, n, 15.0, True, False), 0.0, *entries) for n in (60, 90, 200)]
    seen = [Observation(o.n, _clean(o, rng, k), o.scale, "gaussian") for o in seen]
    prior = prior_for(k)
    theirs = exact.sample(
        seen, prior, NIWPrior.weakly_informative(k), draws=3000, seed=2, keep_covariates=False
    )
    for account in (False, True):  # there is nothing to account for
        ours = alparslan.sample(seen, prior, account_for_s=account, draws=10_000, tune=1000, seed=1)
        for i in range(k + 1):
            x, y = ours.theta[..., i], theirs.theta[..., i]
            error = np.hypot(*(v.std() / np.sqrt(float(az.ess({"v": v})["v"])) for v in (x, y)))
            assert abs(x.mean() - y.mean()) < 5 * error
            assert x.std() == pytest.approx(y.std(), rel=0.06)


def _clean(seen, rng, k):
    """The released values with a possible X'X in place of the noisy one."""
    values = np.array(seen.values)
    x = np.column_stack([np.ones(seen.n), 0.1 + rng.normal(0, 0.35, (seen.n, k))])
    S = x.T @ x
    noise = values[:-1, -1] - values[:-1, :-1] @ THETA[: k + 1]
    values[:-1, :-1] = 0.5 * (S + S.T)
    values[0, 0] = seen.n
    values[:-1, -1] = values[-1, :-1] = values[:-1, :-1] @ THETA[: k + 1] + 0.3 * noise
    return values


def test_the_closed_form_is_the_posterior_given_sigma2():
    rng = np.random.default_rng(6)
    seen = [release(rng, 3, n, 10.0, isometric=n > 500, with_u=False) for n in (400, 700)]
    sigma2 = 0.15
    pinned = NormalInverseGammaIndependent(
        np.array([0.1, 0.0, 0.0, 0.2]), 0.3 * np.eye(4), 1e7, 1e7 * sigma2
    )
    slow = alparslan.sample(seen, pinned, draws=10_000, seed=1)
    fast = alparslan.closed_form(seen, pinned, sigma2=sigma2)
    theta = slow.theta.reshape(-1, 4)
    error = np.sqrt(np.diag(fast.covariance) / len(theta))
    assert (abs(theta.mean(axis=0) - fast.mean) < 4.5 * error).all()
    np.testing.assert_allclose(np.cov(theta.T), fast.covariance, atol=0.05 * fast.covariance.max())
    drawn = alparslan.sample_closed_form(seen, pinned, draws=10_000, seed=1, sigma2=sigma2)
    flat = drawn.theta.reshape(-1, 4)
    assert (abs(flat.mean(axis=0) - fast.mean) < 4.5 * error).all()
    np.testing.assert_allclose(np.cov(flat.T), fast.covariance, atol=0.05 * fast.covariance.max())
    assert (drawn.sigma2 == sigma2).all()
    assert drawn.info.sigma2 == sigma2


@pytest.mark.parametrize("conjugate", [False, True])
def test_sigma2_of_the_closed_form(conjugate):
    prior = NIGPrior.weakly_informative(3) if conjugate else prior_for(3)
    seen = [release(np.random.default_rng(j), 3, 3000, 2.0) for j in range(2)]
    assert alparslan.closed_form(seen, prior).sigma2 == pytest.approx(SIGMA2, rel=0.1)
    assert alparslan.closed_form(seen[:1], prior).sigma2 == pytest.approx(SIGMA2, rel=0.1)
    hidden = [with_scale(one, np.inf, (4, 4)) for one in seen]
    assert alparslan.closed_form(hidden, prior).sigma2 == 1 / 9
    # Whatever the noise says, it stays within what y in [-1, 1] can have.
    drowned = [release(np.random.default_rng(j), 3, 100, 1e4) for j in range(4)]
    for one in drowned:
        assert 1e-4 <= alparslan.closed_form([one], prior).sigma2 <= 1.0


# --- what it loses --------------------------------------------------------------------------------


@pytest.mark.long
def test_coverage_with_high_noise():
    """90% intervals of slopes; over 400 trials: .65 and .64, and .90 if S's noise is counted."""
    rng = np.random.default_rng(1)
    prior = prior_for(3)
    trials = 80
    hits = {"fixed_s": 0.0, "account_for_s": 0.0, "fast": 0.0}
    for trial in range(trials):
        theta = rng.normal(prior.mu0, np.sqrt(np.diag(prior.V0)))
        seen = [release(rng, 3, 2000, 20.0, True, theta=theta, sigma2=0.3 / rng.gamma(3.0))]
        for method in hits:
            if method == "fast":
                drawn = alparslan.sample_closed_form(
                    seen, prior, chains=1, draws=2000, seed=trial
                ).theta
            else:
                drawn = alparslan.sample(
                    seen, prior, account_for_s=method == "account_for_s", chains=1, draws=3000,
                    tune=600, seed=trial,
                ).theta  # fmt: skip
            low, high = np.quantile(drawn[0, :, 1:], [0.05, 0.95], axis=0)
            hits[method] += ((low < theta[1:]) & (theta[1:] < high)).mean() / trials
    assert hits["fixed_s"] < 0.8
    assert hits["fast"] < 0.8
    assert hits["account_for_s"] > 0.82


# --- the samplers ---------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_draws_on_any_number_of_cores():
    seen = [release(np.random.default_rng(j), 2, 100, 5.0) for j in range(2)]
    for account in (False, True):
        words = {"account_for_s": account, "chains": 3, "draws": 200, "tune": 400}
        runs = [alparslan.sample(seen, prior_for(2), seed=5, cores=c, **words) for c in (1, 3)]
        np.testing.assert_array_equal(runs[0].theta, runs[1].theta)
        np.testing.assert_array_equal(runs[0].sigma2, runs[1].sigma2)
        assert not np.array_equal(runs[0].theta[0], runs[0].theta[1])
    one, two, other = (alparslan.sample_closed_form(seen, prior_for(2), seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.theta, two.theta)
    assert not np.array_equal(one.theta, other.theta)


def test_steps_are_pure_and_make_up_the_chain():
    seen = [release(np.random.default_rng(j), 2, 100, 5.0) for j in range(2)]
    model = alparslan.build_model(seen, prior_for(2), tune=20)
    (rng,) = generators(9, 1)
    state = alparslan.init(rng, seen, prior_for(2))
    before = [np.array(field) for field in state]
    first, _ = alparslan.run(np.random.default_rng(1), model, state, 0, 1)
    again, trace = alparslan.run(np.random.default_rng(1), model, state, 0, 1)
    for left, right, kept, now in zip(first, again, before, state, strict=True):
        np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(kept, now)
    assert trace.accepted[0, 2] == 1
    for t in range(40):
        state, _ = alparslan.run(rng, model, state, t, 1)
    drawn = alparslan.sample(seen, prior_for(2), chains=1, draws=20, tune=20, seed=9)
    np.testing.assert_array_equal(drawn.theta[0, -1], state.theta)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fixed_s", "fixed_s_fast"])
def test_what_does_not_fit_is_refused(method):
    sample = alparslan.sample if method == "fixed_s" else alparslan.sample_closed_form
    good = release(np.random.default_rng(0), 1, 100, 1.0)
    private = np.array(good.scale)
    private[0, 0] = 1.0
    cases = {
        "at least one holder": [],
        f"{method}: holder 1 added Laplace.*exact": [
            Observation(good.n, good.values, good.scale, "laplace")
        ],
        f"{method}: holder 2 has a private.*exact": [
            good,
            Observation.with_private_n(good.values, private, "gaussian"),
        ],
        "n = 20.*at least 30.*exact": [release(np.random.default_rng(0), 1, 20, 1.0)],
        "did not release all second moments.*exact": [with_scale(good, np.inf, (0, 1))],
        "sums of y without noise.*exact": [with_scale(good, 0.0, (0, 2))],
    }
    for message, seen in cases.items():
        with pytest.raises(RequestError, match=message):
            sample(seen, prior_for(1))
    with pytest.raises(RequestError, match="prior is for 2 covariates"):
        sample([good], prior_for(2))
    for name in ("chains", "draws"):
        with pytest.raises(RequestError, match=name):
            sample([good], prior_for(1), **{name: 0})
    with pytest.raises(RequestError, match="sigma2"):
        alparslan.closed_form([good], prior_for(1), sigma2=-1.0)
