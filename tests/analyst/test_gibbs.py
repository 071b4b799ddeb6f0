"""The gibbs_* methods as wholes: oracles, limits, calibration, reproducibility."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.models.moments import (
    CovariateMoments,
    FourthMomentObservation,
    fourth_monomials,
)
from noisewise.analyst.observation import Observation
from noisewise.analyst.priors import (
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)
from noisewise.analyst.samplers import (
    gibbs,
    gibbs_noisy,
    gibbs_noisy_aware,
    gibbs_prior,
    gibbs_update,
)
from noisewise.analyst.samplers.gibbs_random import chain_keys
from noisewise.core.errors import ReleaseError, RequestError

ORACLES = Path(__file__).parents[3] / "shared" / "oracles" / "open.json"


# --- problems -------------------------------------------------------------------------------------


def rows(rng, n, mu, T, theta, sigma2):
    mu = np.atleast_1d(mu)
    x = mu + rng.standard_normal((n, mu.size)) @ np.linalg.cholesky(np.atleast_2d(T)).T
    y = theta[0] + x @ np.asarray(theta)[1:] + np.sqrt(sigma2) * rng.standard_normal(n)
    return np.column_stack([np.ones(n), x, y])


def release(w, scale, family, rng, isometric=False):
    P = w.shape[1]
    A = w.T @ w
    scales = np.full((P, P), float(scale))
    if isometric:
        scales = np.where(np.eye(P, dtype=bool), scale, scale / np.sqrt(2))
    scales[0, 0] = 0.0
    unit = rng.laplace(size=(P, P)) if family == "laplace" else rng.standard_normal((P, P))
    noisy = np.triu(A + scales * unit)
    noisy += np.triu(noisy, 1).T
    noisy[0, 0] = len(w)
    return Observation(len(w), noisy, scales, family)


def problem(k, n=500, scale=5.0, family="laplace", seed=0, isometric=False):
    rng = np.random.default_rng(seed)
    T = 0.1 * (0.7 * np.eye(k) + 0.3)
    w = rows(rng, n, 0.1 * np.ones(k), T, np.linspace(0.1, 0.6, k + 1), 0.09)
    return release(w, scale, family, rng, isometric)


def defaults(k):
    Lam0 = np.diag(np.full(k + 1, 0.2))
    return NIGPrior(np.zeros(k + 1), Lam0, 2.0, 0.1), NIWPrior(np.zeros(k), 1.0, np.eye(k), k + 4.0)


def flatten(draws):
    return np.concatenate([draws.theta, draws.sigma2[..., None]], axis=-1).reshape(
        -1, draws.theta.shape[-1] + 1
    )


def error_of_mean(draws):
    """Monte Carlo standard error by batch means, 25 for each chain."""
    x = np.concatenate([draws.theta, draws.sigma2[..., None]], axis=-1)
    chains, length, size = x.shape
    batches = x[:, : length - length % 25].reshape(chains * 25, -1, size).mean(axis=1)
    return batches.std(axis=0, ddof=1) / np.sqrt(len(batches))


# --- oracles --------------------------------------------------------------------------------------


def oracle_cases():
    return json.loads(ORACLES.read_text("utf-8")) if ORACLES.exists() else []


@pytest.mark.skipif(not ORACLES.exists(), reason=f"the shared oracles are not at {ORACLES}")
@pytest.mark.parametrize("interweave", [False, True])
@pytest.mark.parametrize("case", oracle_cases(), ids=lambda case: case["name"])
def test_importance_sampling_oracles(case, interweave):
    """n = 10 and 20, one covariate: within the bias that the central limit theorem makes there.

    Stated bias: posterior standard deviations up to 6% too large for theta and 15% for sigma2,
    means off by at most 0.03 (theta) and 0.15 (sigma2) standard deviations, without interweaving;
    a third of that with it.
    """
    p = case["prior"]
    observations = []
    for n, family, scale, (x, y, xx, xy, yy) in zip(
        case["n"], case["noise"], case["scale"], case["observed"], strict=True
    ):
        scales = np.full((3, 3), scale)
        scales[0, 0] = 0.0
        values = np.array([[n, x, y], [x, xx, xy], [y, xy, yy]])
        observations.append(Observation(n, values, scales, family))
    prior = NIGPrior(p["mu0"], np.diag(p["Lam0"]), p["a0"], p["b0"])
    covariates = NIWPrior([p["m"]], p["lam"], [[p["Psi"]]], p["nu"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        draws = gibbs_update.sample(
            observations, prior, covariates, chains=2, draws=80_000, tune=500, seed=1,
            interweave=interweave,
        )  # fmt: skip
    x = flatten(draws)
    sd = np.array(case["sd"])
    error = np.hypot(error_of_mean(draws), case["mcse_mean"])
    bias = np.array([0.03, 0.03, 0.15]) if not interweave else np.array([0.012, 0.012, 0.05])
    assert (np.abs(x.mean(axis=0) - case["mean"]) < 4 * error + bias * sd).all()
    inflation = np.array([1.08, 1.08, 1.17]) if not interweave else np.array([1.04, 1.045, 1.07])
    ratio = x.std(axis=0) / sd
    assert (ratio < inflation).all()
    assert (ratio > 0.985).all()


def collapsed_importance_sampling(observations, prior, covariates, size, seed):
    """Posterior mean and sd of (theta, sigma2) by importance sampling on the latent statistics.

    Proposals are the released values minus fresh noise, weights the marginal density of the
    statistics under the model (items 27 and 28; `covariates` None: flat on the covariates'
    statistics). Plain NumPy, nothing shared with the samplers.
    """
    rng = np.random.default_rng(seed)
    k = observations[0].k
    P, d, p = k + 2, k + 1, k + 1
    total = np.zeros((size, P, P))
    log_weight = np.zeros(size)
    for o in observations:
        unit = rng.laplace if o.family == "laplace" else rng.normal
        noise = np.triu(unit(size=(size, P, P))) * o.scale
        noise += np.triu(noise, 1).transpose(0, 2, 1)
        A = o.values - noise
        total += A
        mean = A[:, 0, 1:] / o.n
        C = A[:, 1:, 1:] - o.n * mean[:, :, None] * mean[:, None, :]
        if covariates is None:
            sign, log_S = np.linalg.slogdet(A[:, :d, :d])
            S = np.where((sign > 0)[:, None, None], A[:, :d, :d], np.eye(d))
            z = A[:, :d, d]
            rho = A[:, d, d] - np.einsum("na,na->n", z, np.linalg.solve(S, z[..., None])[..., 0])
            valid = (np.linalg.eigvalsh(A)[:, 0] > 0) & (rho > 0)
            log_weight += np.where(
                valid,
                -0.5 * log_S + ((o.n - d) / 2 - 1) * np.log(np.where(valid, rho, 1.0)),
                -np.inf,
            )
        else:
            valid = np.linalg.eigvalsh(C)[:, 0] > 0
            C = np.where(valid[:, None, None], C, np.eye(p))
            log_weight += np.where(valid, (o.n - p - 2) / 2 * np.linalg.slogdet(C)[1], -np.inf)
    n = sum(o.n for o in observations)
    keep = np.isfinite(log_weight)
    total, log_weight = total[keep], log_weight[keep]
    if covariates is not None:
        lam, m, nu = covariates.lam, covariates.m, covariates.nu
        m_n = (lam * m + total[:, 0, 1:d]) / (lam + n)
        Psi_n = covariates.Psi + total[:, 1:d, 1:d] + lam * np.outer(m, m)
        Psi_n -= (lam + n) * m_n[:, :, None] * m_n[:, None, :]
        log_weight -= (nu + n) / 2 * np.linalg.slogdet(Psi_n)[1]
    Lam = prior.Lam0 + total[:, :d, :d]
    shift = prior.Lam0 @ prior.mu0 + total[:, :d, d]
    mu_n = np.linalg.solve(Lam, shift[..., None])[..., 0]
    b_n = prior.b0 + 0.5 * (
        total[:, d, d] + prior.mu0 @ prior.Lam0 @ prior.mu0 - (mu_n * shift).sum(axis=1)
    )
    a_n = prior.a0 + n / 2
    log_weight -= 0.5 * np.linalg.slogdet(Lam)[1] + a_n * np.log(b_n)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    effective = 1 / (weight**2).sum()
    sigma2 = b_n / (a_n - 1)
    variance = sigma2[:, None] * np.diagonal(np.linalg.inv(Lam), axis1=1, axis2=2)
    centre = np.append(weight @ mu_n, weight @ sigma2)
    spread = np.append(
        weight @ (variance + (mu_n - centre[:-1]) ** 2),
        weight @ (sigma2**2 / (a_n - 2) + (sigma2 - centre[-1]) ** 2),
    )
    return centre, np.sqrt(spread), effective


def test_two_holders_with_different_rows_and_mechanisms():
    """J = 2 against importance sampling, n = 50 and 90: little is left of the CLT's bias."""
    rng = np.random.default_rng(3)
    law = (0.2, 0.3, [0.3, 0.8], 0.2)
    observations = [
        release(rows(rng, 50, *law), 2.0, "laplace", rng),
        release(rows(rng, 90, *law), 4.0, "gaussian", rng),
    ]
    prior = NIGPrior([0.0, 0.0], np.diag([0.5, 0.5]), 3.0, 0.4)
    covariates = NIWPrior([0.0], 1.0, [[0.5]], 5.0)
    mean, sd, effective = collapsed_importance_sampling(
        observations, prior, covariates, 400_000, seed=4
    )
    assert effective > 4000
    draws = gibbs_update.sample(observations, prior, covariates, chains=2, draws=40_000, seed=5)
    x = flatten(draws)
    error = np.hypot(error_of_mean(draws), sd / np.sqrt(effective))
    assert (np.abs(x.mean(axis=0) - mean) < 4 * error + 0.02 * sd).all()
    np.testing.assert_allclose(x.std(axis=0), sd, rtol=0.07)
    # Negative control: one holder less is another posterior.
    alone, alone_sd, _ = collapsed_importance_sampling(
        observations[:1], prior, covariates, 400_000, seed=4
    )
    assert (np.abs(x.mean(axis=0) - alone) > 0.3 * sd).any() or (alone_sd > 1.2 * sd).any()


def fourth_release(w, scale, family, rng):
    v = w[:, :-1]
    sums = np.array([v[:, list(m)].prod(axis=1).sum() for m in fourth_monomials(v.shape[1] - 1)])
    unit = rng.laplace(size=sums.size) if family == "laplace" else rng.standard_normal(sums.size)
    return FourthMomentObservation(len(w), v.shape[1] - 1, sums + scale * unit, scale, family)


@pytest.mark.parametrize("with_fourth", [False, True])
def test_noisy_aware_has_no_clt_bias(with_fourth):
    """gibbs_noisy_aware is a proper Gibbs sampler: right at n = 10, flat prior on S (item 28)."""
    rng = np.random.default_rng(6)
    w = rows(rng, 10, 0.2, 0.3, [0.3, 0.8], 0.2)
    o = release(w, 1.0, "laplace" if with_fourth else "gaussian", rng)
    prior = NIGPrior([0.0, 0.0], np.diag([0.5, 0.5]), 3.0, 0.4)
    fourth = None
    combined = o
    if with_fourth:
        o = release(w, 1.0, "gaussian", rng)
        fourth = fourth_release(w, 1.5, "gaussian", rng)
        # Two normal observations of an entry of S are one with the weighted mean.
        values, scale = o.values.copy(), o.scale.copy()
        where = {m: i for i, m in enumerate(fourth_monomials(1))}
        for a, b in ((0, 1), (1, 1)):
            second = fourth.values[where[0, 0, a, b]]
            weights = np.array([1.0, 1.5**-2])
            mixed = weights @ [values[a, b], second] / weights.sum()
            values[a, b] = values[b, a] = mixed
            scale[a, b] = scale[b, a] = 1 / np.sqrt(weights.sum())
        combined = Observation(o.n, values, scale, "gaussian")
    mean, sd, effective = collapsed_importance_sampling([combined], prior, None, 400_000, seed=7)
    assert effective > 4000
    draws = gibbs_noisy_aware.sample(
        [o], prior, [fourth], chains=2, draws=40_000, seed=8, interweave=True
    )
    x = flatten(draws)
    error = np.hypot(error_of_mean(draws), sd / np.sqrt(effective))
    assert (np.abs(x.mean(axis=0) - mean) < 4 * error).all()
    np.testing.assert_allclose(x.std(axis=0), sd, rtol=0.05)


# --- limits and equivalences ----------------------------------------------------------------------


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("method", ["update", "prior", "noisy", "aware"])
def test_tiny_noise_gives_the_conjugate_posterior(family, method):
    rng = np.random.default_rng(9)
    k, n = 2, 300
    mu, T = np.array([0.1, -0.2]), np.array([[0.3, 0.1], [0.1, 0.2]])
    w = rows(rng, n, mu, T, [0.3, 0.8, -0.5], 0.2)
    o = release(w, 1e-3, family, rng)
    prior, covariates = defaults(k)
    options = {"chains": 2, "draws": 4000, "tune": 100, "seed": 10}
    fourth = [fourth_release(w, 1e-3, family, rng)]
    if method == "update":
        draws = gibbs_update.sample([o], prior, covariates, **options)
    elif method == "prior":
        draws = gibbs_prior.sample([o], prior, CovariateMoments.normal(mu, T), **options)
    elif method == "noisy":
        draws = gibbs_noisy.sample([o], prior, fourth, **options)
    else:
        draws = gibbs_noisy_aware.sample([o], prior, fourth, **options)
    A = w.T @ w
    Lam = prior.Lam0 + A[:3, :3]
    mean = np.linalg.solve(Lam, prior.Lam0 @ prior.mu0 + A[:3, 3])
    a = prior.a0 + n / 2
    b = prior.b0 + 0.5 * (A[3, 3] - mean @ Lam @ mean)
    for i in range(3):
        law = stats.t(2 * a, loc=mean[i], scale=np.sqrt(b / a * np.linalg.inv(Lam)[i, i]))
        assert stats.kstest(draws.theta[..., i].ravel(), law.cdf).pvalue > 1e-3
    law = stats.invgamma(a, scale=b)
    assert stats.kstest(draws.sigma2.ravel(), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("o", "updates"),
    [
        (problem(4, family="gaussian", isometric=True), ("eigen", "cg_jacobi", "cg_eigen")),
        (problem(4, family="gaussian", isometric=True, scale=0.01), ("eigen", "cg_eigen")),
        (problem(4, family="laplace"), ("cg_jacobi", "cg_eigen")),
        (problem(4, family="gaussian", scale=50.0), ("cg_jacobi", "cg_eigen")),
    ],
    ids=["isometric", "isometric, little noise", "laplace", "gaussian, much noise"],
)
def test_all_solvers_give_the_same_iteration(o, updates):
    """Item 25: the O(d³) update is the dense one, given the same random numbers."""
    prior, covariates = defaults(4)
    key = chain_keys(11, 1)[0]
    kernels = {
        update: gibbs_update.build_kernel([o], prior, covariates, update=update, interweave=False)
        for update in ("dense", *updates)
    }
    state = gibbs_update.init(key, [o], prior, covariates)
    for t in range(12):
        expected, _ = kernels["dense"]((key, t), state)
        for update in updates:
            other, info = kernels[update]((key, t), state)
            assert (info.solver_iterations > 0) == update.startswith("cg")
            for name in ("A", "theta", "sigma2", "mu", "L"):
                a, b = getattr(expected, name), getattr(other, name)
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * np.abs(a).max())
        state = expected


def test_the_fast_update_is_chosen_where_it_pays():
    def mode(o):
        return int(gibbs.prepare_holders([o]).mode[0])

    assert mode(problem(1)) == gibbs.DENSE
    assert mode(problem(1, family="gaussian", isometric=True)) == gibbs.DENSE
    assert mode(problem(12, family="gaussian", isometric=True)) == gibbs.EIGEN
    assert mode(problem(12, scale=50.0)) == gibbs.CG_JACOBI
    assert mode(problem(12, scale=0.1)) == gibbs.CG_EIGEN
    with pytest.raises(RequestError, match="isometric"):
        gibbs.prepare_holders([problem(3)], update="eigen")


@pytest.mark.parametrize("k", [0, 1])
def test_interweaving_leaves_the_posterior_alone_and_mixes(k):
    """Much noise: plain Gibbs hardly moves, interweaving does; both agree where both converge."""
    o = problem(k, n=2000, scale=40.0, seed=12)
    prior, covariates = defaults(k)
    plain, woven = (
        gibbs_update.sample(
            [o], prior, covariates, chains=4, draws=draws, tune=3000, seed=13, interweave=interweave
        )
        for interweave, draws in ((False, 60_000), (True, 6000))
    )
    error = np.hypot(error_of_mean(plain), error_of_mean(woven))
    gap = np.abs(flatten(plain).mean(axis=0) - flatten(woven).mean(axis=0))
    assert (gap < 4.5 * error).all()
    # Variance of the mean times the number of draws: the woven chain needs far fewer.
    cost = [error_of_mean(draws)[-2] ** 2 * draws.theta.shape[1] for draws in (plain, woven)]
    assert cost[0] > 8 * cost[1]


def test_independent_prior_and_unknown_scales():
    """The other priors give nearly the same posterior where data dominate."""
    o = problem(2, n=3000, scale=2.0)
    prior, covariates = defaults(2)
    options = {"chains": 2, "draws": 4000, "seed": 14}
    base = flatten(gibbs_update.sample([o], prior, covariates, **options))
    flat = NormalInverseGammaIndependent(np.zeros(3), np.eye(3), 2.0, 0.1)
    other = gibbs_update.sample([o], flat, HuangWandPrior.weakly_informative(2), **options)
    gap = np.abs(flatten(other).mean(axis=0) - base.mean(axis=0)) / base.std(axis=0)
    assert gap.max() < 0.15
    np.testing.assert_allclose(flatten(other).std(axis=0), base.std(axis=0), rtol=0.1)


def test_unknown_scales_are_drawn_from_their_law():
    """Without data worth the name the half-t law of the standard deviations comes back."""
    covariates = HuangWandPrior(np.zeros(1), 1.0, np.array([0.5]), 4.0)
    o = problem(1, n=60, scale=1e5, family="gaussian")
    prior, _ = defaults(1)
    draws = gibbs_update.sample(
        [o], prior, covariates, chains=4, draws=20_000, seed=15, keep_covariates=True
    )
    sd = np.sqrt(draws.T[:, ::20, 0, 0]).ravel()  # thinned to nearly independent draws
    law = stats.t(4.0, scale=0.5)  # nu - k + 1 degrees of freedom; folded
    assert stats.kstest(sd, lambda q: 2 * law.cdf(q) - 1).pvalue > 1e-3


def test_conditional_mean_and_statistics_are_kept():
    o = problem(2)
    prior, covariates = defaults(2)
    draws = gibbs_update.sample(
        [o, o], prior, covariates, chains=1, draws=50, seed=16,
        keep_conditional_mean=True, keep_statistics=True, keep_covariates=True,
    )  # fmt: skip
    assert draws.statistics.shape == (1, 50, 2, 4, 4)
    assert (np.linalg.eigvalsh(draws.statistics) > 0).all()
    total = draws.statistics.sum(axis=2)
    shift = total[..., :3, 3] + prior.Lam0 @ prior.mu0
    mean = np.linalg.solve(prior.Lam0 + total[..., :3, :3], shift[..., None])[..., 0]
    np.testing.assert_allclose(draws.conditional_mean, mean, rtol=1e-8)
    assert (np.linalg.eigvalsh(draws.T) > 0).all()


# --- calibration ----------------------------------------------------------------------------------


def test_simulation_based_calibration():
    """n = 100, Laplace noise: ranks of the truth are uniform. The naive posterior's are not."""
    prior = NIGPrior([0.0, 0.0], np.diag([1.0, 1.0]), 5.0, 1.0)
    covariates = NIWPrior([0.0], 1.0, [[1.5]], 8.0)
    rng = np.random.default_rng(17)
    trials, quantiles, naive = 300, [], []
    for trial in range(trials):
        sigma2 = prior.b0 / rng.gamma(prior.a0)
        theta = np.sqrt(sigma2) * rng.standard_normal(2)
        T = 1.5 / rng.chisquare(8)
        mu = np.sqrt(T) * rng.standard_normal()
        o = release(rows(rng, 100, mu, T, theta, sigma2), 6.0, "laplace", rng)
        truth = np.array([*theta, sigma2])
        draws = gibbs_update.sample(
            [o], prior, covariates, chains=1, draws=600, tune=200, seed=trial, cores=1
        )
        quantiles.append((flatten(draws) < truth).mean(axis=0))
        # Naive: the released values as if they were exact, made possible.
        values, vectors = np.linalg.eigh(o.values)
        A = (vectors * np.maximum(values, 1e-3 * o.n)) @ vectors.T
        Lam = prior.Lam0 + A[:2, :2]
        mean = np.linalg.solve(Lam, A[:2, 2])
        a, b = prior.a0 + 50, prior.b0 + 0.5 * (A[2, 2] - mean @ Lam @ mean)
        spread = np.sqrt(b / a * np.diag(np.linalg.inv(Lam)))
        naive.append(
            [*stats.t(2 * a, mean, spread).cdf(theta), stats.invgamma(a, scale=b).cdf(sigma2)]
        )
    p = [stats.kstest(u, "uniform").pvalue for u in np.array(quantiles).T]
    assert min(p) > 1e-3
    assert max(stats.kstest(u, "uniform").pvalue for u in np.array(naive).T) < 1e-6


# --- running --------------------------------------------------------------------------------------


def methods():
    rng = np.random.default_rng(18)
    w = rows(rng, 200, 0.1, 0.3, [0.2, 0.5], 0.1)
    observations = [release(w, 3.0, "laplace", rng), release(w, 3.0, "gaussian", rng)]
    fourth = [fourth_release(w, 5.0, "laplace", rng), None]
    prior, covariates = defaults(1)
    moments = CovariateMoments.normal(np.array([0.1]), np.array([[0.3]]))
    return {
        "update": (gibbs_update, observations, prior, covariates),
        "prior": (gibbs_prior, observations, prior, moments),
        "noisy": (gibbs_noisy, observations, prior, fourth),
        "aware": (gibbs_noisy_aware, observations, prior, fourth),
    }


@pytest.mark.parametrize("name", list(methods()))
def test_draws_depend_on_the_seed_and_nothing_else(name):
    module, *arguments = methods()[name]
    options = {"chains": 3, "draws": 700, "tune": 50}
    one = module.sample(*arguments, seed=1, cores=1, **options)
    three = module.sample(*arguments, seed=1, cores=3, **options)
    np.testing.assert_array_equal(one.theta, three.theta)
    np.testing.assert_array_equal(one.sigma2, three.sigma2)
    np.testing.assert_array_equal(one.info.rejected, three.info.rejected)
    assert not np.array_equal(one.theta, module.sample(*arguments, seed=2, **options).theta)
    assert len(np.unique(one.sigma2[:, -1])) == 3  # chains differ
    fewer = module.sample(*arguments, seed=1, chains=2, draws=100, tune=50)
    np.testing.assert_array_equal(fewer.theta, one.theta[:2, :100])


@pytest.mark.parametrize("name", ["update", "prior", "aware"])
def test_kernels_are_pure(name):
    """(rng, state) -> (state, info): no hidden state, nothing changed in place."""
    module, observations, prior, third = methods()[name]
    kernel = module.build_kernel(observations, prior, third)
    key = chain_keys(3, 1)[0]
    if name == "prior":
        state = module.init(key, observations, prior)
    else:
        state = module.init(key, observations, prior, third)
    copies = [np.array(field) for field in state]
    first, info = kernel((key, 0), state)
    kernel((key, 7), first)
    again, same = kernel((key, 0), state)
    for before, field in zip(copies, state, strict=True):
        np.testing.assert_array_equal(before, field)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert info == same
    assert not np.array_equal(first.theta, state.theta)
    # Step by step is the same chain as the compiled loop.
    draws = module.sample(observations, prior, third, chains=1, draws=3, tune=0, seed=3)
    for t in range(3):
        state, _ = kernel((key, t), state)
        np.testing.assert_array_equal(draws.theta[0, t], state.theta)


def test_rejections_are_counted():
    with pytest.warns(UserWarning, match="below n = 12"):
        few = gibbs_update.sample(
            [problem(1, n=8, scale=1.0)], *defaults(1), chains=1, draws=2000, seed=1, tries=3
        )
    assert few.info.rejected.mean() > 0.05
    assert few.info.exhausted.sum() > 0
    assert (few.info.rejected[few.info.exhausted > 0] >= 3).all()
    assert "no possible statistics" in gibbs.trouble(few.info)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many = gibbs_update.sample([problem(1)], *defaults(1), chains=1, draws=500, seed=1)
    assert many.info.exhausted.sum() == 0
    assert gibbs.trouble(many.info) == ()


def test_progress_is_reported():
    seen = []
    gibbs_update.sample(
        [problem(1)], *defaults(1), chains=2, draws=900, tune=300, seed=1,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[-1] == (2400, 2400)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_impossible_releases_give_a_posterior_all_the_same():
    """Noise can make a sum of squares negative; the posterior is then wide, not broken."""
    values = np.array([[50.0, 300.0, -80.0], [300.0, -400.0, 90.0], [-80.0, 90.0, -200.0]])
    scale = np.full((3, 3), 100.0)
    scale[0, 0] = 0.0
    for family in ("laplace", "gaussian"):
        draws = gibbs_update.sample(
            [Observation(50, values, scale, family)], *defaults(1), chains=2, draws=2000, seed=1
        )
        assert np.isfinite(draws.theta).all()
        assert np.isfinite(draws.sigma2).all()
        assert draws.theta.std() > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chains": 0}, "chains must be"),
        ({"draws": 0}, "draws must be"),
        ({"tune": -1}, "tune must be"),
        ({"tries": 0}, "tries must be"),
        ({"cores": 0}, "cores must be"),
        ({"update": "magic"}, "update must be"),
    ],
)
def test_senseless_requests_are_refused(change, message):
    with pytest.raises(RequestError, match=message):
        gibbs_update.sample([problem(1)], *defaults(1), **change)


def test_what_does_not_fit_together_is_refused():
    prior, covariates = defaults(1)
    with pytest.raises(RequestError, match="at least one holder"):
        gibbs_update.sample([], prior, covariates)
    with pytest.raises(RequestError, match="same columns"):
        gibbs_update.sample([problem(1), problem(2)], prior, covariates)
    with pytest.raises(RequestError, match="prior is for 2"):
        gibbs_update.sample([problem(1)], defaults(2)[0], covariates)
    with pytest.raises(RequestError, match="covariates is for 2"):
        gibbs_update.sample([problem(1)], prior, defaults(2)[1])
    with pytest.raises(RequestError, match="too small"):
        gibbs_update.sample([problem(1, n=2)], prior, covariates)
    with pytest.raises(RequestError, match="at least one holder's released fourth"):
        gibbs_noisy.sample([problem(1)], prior, [])
    with pytest.raises(RequestError, match="one entry for each holder"):
        gibbs_noisy_aware.sample([problem(1)], prior, [])
    other = FourthMomentObservation(7, 1, np.zeros(4), 1.0, "laplace")
    with pytest.raises(RequestError, match="same rows"):
        gibbs_noisy_aware.sample([problem(1)], prior, [other])


def test_entries_known_exactly():
    """Public entries stay what they are; if they contradict each other, that is an error."""
    o = problem(2)
    prior, covariates = defaults(2)

    def with_known(value):
        values, scale = o.values.copy(), o.scale.copy()
        values[1, 2] = values[2, 1] = value
        scale[1, 2] = scale[2, 1] = scale[1, 1] = scale[2, 2] = 0.0
        values[1, 1] = values[2, 2] = 60.0
        return Observation(o.n, values, scale, o.family)

    draws = gibbs_update.sample(
        [with_known(5.0)], prior, covariates, chains=1, draws=300, seed=1, keep_statistics=True
    )
    np.testing.assert_allclose(draws.statistics[..., 1, 2], 5.0, atol=1e-9)
    np.testing.assert_allclose(draws.statistics[..., 1, 1], 60.0, atol=1e-9)
    assert draws.statistics[..., 3, 3].std() > 0
    with pytest.raises(ReleaseError, match="contradict"):
        gibbs_update.sample([with_known(61.0)], prior, covariates)


def test_the_wing_loads_no_compiler_by_itself():
    code = "import sys, noisewise.analyst; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
