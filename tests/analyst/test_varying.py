"""Coefficients that vary by holder: density, a sampler with the rows, calibration, whole fits."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import arviz as az
import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import noisewise as nw
from noisewise.analyst.posterior.file import load_posterior
from noisewise.analyst.regression.cautions import spread_warnings
from noisewise.analyst.regression.exact import sampler
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.own_laws import FLOOR
from noisewise.analyst.regression.exact.sampler import init
from noisewise.analyst.regression.exact.varying import (
    SPREAD_SCALE,
    Affine,
    VaryingPosterior,
    sample_varying,
)
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import (
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    ScaleFreeCovariates,
    ScaleFreePrior,
)
from noisewise.cli.main import app
from noisewise.core.errors import RequestError

from .test_collapsed import observe

# k, rows, noise, private n, maps and another affine map, conjugate prior
CASES = [
    (1, (60, 40), 2.0, False, False, False),
    (2, (60, 40, 50), 15.0, False, False, True),
    (2, (60, 40), 3.0, True, False, False),
    (2, (60, 40), 3.0, False, True, True),
]


def given(case, family="gaussian"):
    k, rows, noise, private, mapped, conjugate = case
    rng = np.random.default_rng(3)
    seen = [observe(rng, n, k, noise, family, private=private) for n in rows]
    affine = None
    if mapped:
        K = np.eye(k + 2) + 0.3 * np.tril(rng.standard_normal((k + 2, k + 2)), -1)
        K[np.diag_indices(k + 2)] = [1.0, *rng.uniform(0.5, 2.0, k + 1)]
        values = K @ seen[1].values @ K.T
        seen[1] = Observation(seen[1].n, (values + values.T) / 2, seen[1].scale, family, map=K)
        M = np.eye(k + 1) + 0.2 * np.triu(rng.standard_normal((k + 1, k + 1)), 1)
        affine = Affine(M, 0.1 * rng.standard_normal(k + 1), 0.7)
    prior = ScaleFreePrior(k)
    if conjugate:
        prior = NormalInverseGammaIndependent(
            rng.normal(size=k + 1), np.diag(rng.uniform(0.5, 2.0, k + 1)), 1.5, 0.2
        )
    return seen, prior, ScaleFreeCovariates.default(k), affine


def by_hand(case, y):
    """Log density at y up to a constant: single holders with a normal prior, and the rest."""
    seen, prior, covariates, affine = given(case)
    found = VaryingPosterior(seen, prior, covariates, affine)
    a, d = found.arrays, covariates.k + 1
    total = int(a.first[-1])
    beta = a.start + 0.2 * found.unit * y[total : total + d]
    q = y[total + d :]
    tau2 = found.unit**2 * (np.sinh(q) ** 2 + FLOOR)
    # phi = C (M theta' + t)
    M, t = (np.eye(d), np.zeros(d)) if affine is None else (affine.M, affine.t)
    C = np.eye(d)
    C[0, 1:] = found.average
    to_theta = np.linalg.inv(C @ M)
    mean = to_theta @ (beta - C @ t)
    own = NormalInverseGammaIndependent(mean, to_theta @ np.diag(tau2) @ to_theta.T, 1.5, 0.2)
    value = stats.t(4, scale=SPREAD_SCALE).logpdf(np.sinh(q)).sum() + np.log(np.cosh(q)).sum()
    if isinstance(prior, ScaleFreePrior):
        value += stats.norm(0, 10 * found.unit).logpdf(beta).sum()
    else:
        value += stats.multivariate_normal(prior.mu0, prior.V0).logpdf(mean)
    for j, each in enumerate(seen):
        alone = CollapsedPosterior([each], own, covariates, anchored=True)
        x = y[a.first[j] : a.first[j + 1]].copy()
        centre, scale = alone.arrays.centre, alone.arrays.scale
        K = np.eye(d + 1) if each.map is None else each.map
        free = np.tril(alone.arrays.known[0] == 0)
        last = int(free[:-1].sum())
        places = range(last, last + d)
        # y's length: softplus in units of its scale, with a lighter tail
        i, u = last + d, 1 / scale[last + d]
        soft = np.log1p(np.exp(u + np.log1p(-np.exp(-u)) + x[i] * math.sqrt(1 + x[i] ** 2 / 4)))
        share = -np.expm1(-soft)
        stretch = (1 + x[i] ** 2 / 2) / math.sqrt(1 + x[i] ** 2 / 4)
        value += math.log(share / soft * stretch / scale[i])
        x[i] = math.log(soft / u) / scale[i]
        # rows of the covariates, that length and n don't depend on the rest of y's row
        C_j = alone.pooled_factors(x[None])[0]
        now, now_n = K @ (C_j / C_j[0, 0]), C_j[0, 0] ** 2
        # phi = back (theta' - shift), theta' = (K_x' t - K_y) / K_yy: t from the last to the first
        back = C @ M
        U = back @ K[:d, :d].T / K[d, d]
        g = beta - C @ t + back @ K[d, :d] / K[d, d]
        line = np.zeros(d)
        for b in reversed(range(d)):
            i = places[b]
            later = line @ now[:d, b]
            m = (g[b] - U[b] @ line) / U[b, b] * now[b, b] + later
            v = now[d, d] ** 2 / now_n + tau2[b] * (now[b, b] / U[b, b]) ** 2
            rho = scale[i] ** 2 / (scale[i] ** 2 + v)
            value += 0.5 * math.log(1 - rho)
            x[i] = rho * (m - centre[i]) / scale[i] + math.sqrt(1 - rho) * x[i]
            share = tau2[b] / U[b, b] ** 2 * now[b, b] / v
            e = (g[b] - U[b] @ line) / U[b, b]
            line[b] = e + share * (centre[i] + scale[i] * x[i] - m)
        value += alone.logp_and_gradient(x)[0]
        if isinstance(prior, ScaleFreePrior):  # sigma has a half-t law instead
            _, sigma2, *_ = alone.draw_parameters(np.random.default_rng(1), x[None])
            s = math.log(sigma2[0])
            value -= stats.invgamma(1.5, scale=0.2).logpdf(sigma2[0]) + s
            value += stats.t(4, scale=0.5).logpdf(math.exp(s / 2)) + s / 2
    return found.logp_and_gradient(y)[0] - value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_density_is_that_of_single_holders_with_a_normal_prior(case):
    rng = np.random.default_rng(5)
    ndim = VaryingPosterior(*given(case)).ndim
    gaps = [by_hand(case, 0.7 * rng.standard_normal(ndim)) for _ in range(4)]
    assert np.ptp(gaps) < 1e-6


@pytest.mark.parametrize("case", [*CASES, "a public sum of y"], ids=str)
def test_gradient(case):
    if isinstance(case, str):
        seen, *others = given(CASES[1])
        scale = seen[0].scale.copy()
        scale[0, -1] = scale[-1, 0] = 0.0
        posterior = VaryingPosterior([replace(seen[0], scale=scale), *seen[1:]], *others)
        assert posterior.arrays.anchored.tolist() == [False, True, True]
    else:
        posterior = VaryingPosterior(*given(case))
    y = 0.7 * np.random.default_rng(6).standard_normal(posterior.ndim)
    _, gradient = posterior.logp_and_gradient(y)
    step = 1e-5
    found = [
        (
            posterior.logp_and_gradient(y + step * e)[0]
            - posterior.logp_and_gradient(y - step * e)[0]
        )
        / (2 * step)
        for e in np.eye(posterior.ndim)
    ]
    np.testing.assert_allclose(gradient, found, rtol=2e-5, atol=2e-5)


# --- against a sampler that sees the rows ---------------------------------------------------------


def with_rows(rng, J, n, k, tau):
    theta = np.array([0.1, 0.5, -0.3])[: k + 1] + tau * rng.standard_normal((J, k + 1))
    found = []
    for own in theta:
        x = rng.normal(0.2, 0.4, (n, k))
        y = own[0] + x @ own[1:] + rng.normal(0, 0.3, n)
        found.append((np.column_stack([np.ones(n), x]), y))
    return found


def noisy(rng, rows, noise, family="gaussian", believed=None):
    seen = []
    for X, y in rows:
        w = np.column_stack([X, y])
        scale = np.full((w.shape[1],) * 2, float(noise))
        scale[0, 0] = 0.0
        draw = rng.laplace if family == "laplace" else rng.normal
        added = np.tril(draw(0.0, 1.0, scale.shape) * scale)
        values = w.T @ w + added + np.tril(added, -1).T
        seen.append(Observation(len(y), (values + values.T) / 2, scale, family))
    return seen


def gibbs(rng, rows, average, unit, iterations):
    """Common coefficients, spreads and holders' own, given the rows: plain Gibbs sampling."""
    J, d = len(rows), rows[0][0].shape[1]
    C = np.eye(d)
    C[0, 1:] = average
    rows = [(X @ np.linalg.inv(C), y) for X, y in rows]  # so that coefficients are phi
    phi = np.stack([np.linalg.lstsq(X, y, rcond=None)[0] for X, y in rows])
    beta, tau, sigma2 = phi.mean(axis=0), 0.3 * unit, np.full(J, 0.1)
    gram = np.stack([X.T @ X for X, _ in rows])
    cross = np.stack([X.T @ y for X, y in rows])
    n = np.array([len(y) for _, y in rows])
    square = np.array([y @ y for _, y in rows])
    log_tau = np.linspace(-9.0, 3.0, 600)  # of tau / unit
    log_s2 = np.linspace(-6.0, 2.0, 800)
    law_tau = stats.t(4, scale=SPREAD_SCALE).logpdf(np.exp(log_tau)) + log_tau
    law_s2 = stats.t(4, scale=0.5).logpdf(np.exp(log_s2 / 2)) + log_s2 / 2
    kept = np.empty((iterations, 2 * d + J * d))

    def pick(log_density, grid):
        weight = np.exp(log_density - log_density.max(axis=1, keepdims=True)).cumsum(axis=1)
        aim = rng.uniform(size=len(weight)) * weight[:, -1]
        place = (weight < aim[:, None]).sum(axis=1)
        return grid[place] + (grid[1] - grid[0]) * (rng.uniform(size=len(place)) - 0.5)

    for i in range(iterations):
        precision = gram / sigma2[:, None, None] + np.diag(tau**-2.0)
        mean = np.linalg.solve(precision, (cross / sigma2[:, None] + beta / tau**2)[..., None])
        root = np.linalg.inv(np.linalg.cholesky(precision))
        z = rng.standard_normal((J, d, 1))
        phi = (mean + np.swapaxes(root, 1, 2) @ z)[..., 0]
        variance = 1 / (J / tau**2 + (10 * unit) ** -2.0)
        beta = rng.normal(variance * phi.sum(axis=0) / tau**2, np.sqrt(variance))
        ss = ((phi - beta) ** 2).sum(axis=0) / unit**2
        tau = unit * np.exp(
            pick(law_tau - J * log_tau - 0.5 * ss[:, None] * np.exp(-2 * log_tau), log_tau)
        )
        rss = square - 2 * (phi * cross).sum(axis=1) + np.einsum("ja,jab,jb->j", phi, gram, phi)
        sigma2 = np.exp(
            pick(law_s2 - 0.5 * n[:, None] * log_s2 - 0.5 * rss[:, None] * np.exp(-log_s2), log_s2)
        )
        kept[i] = np.concatenate([beta, tau, phi.reshape(-1)])
    return kept


def errors_apart(ours, theirs):
    """How far shares below the 10%, 50% and 90% points are apart, in Monte Carlo errors."""
    apart = []
    for i in range(theirs.shape[-1]):
        for level in (0.1, 0.5, 0.9):
            point = np.quantile(theirs[..., i], level)
            shares = [(draws[..., i] < point).astype(float) for draws in (ours, theirs)]
            error = math.sqrt(sum(level * (1 - level) / float(az.ess(s)) for s in shares))
            apart.append((shares[0].mean() - level) / error)
    return np.array(apart)


def phi_of(drawn, posterior):
    C = np.eye(drawn.tau.shape[-1])
    C[0, 1:] = posterior.average
    own = drawn.theta @ C.T
    parts = [drawn.common @ C.T, drawn.tau, own.reshape(*own.shape[:2], -1)]
    return np.concatenate(parts, axis=-1)


@pytest.mark.parametrize("tau", [0.02, 0.4])
def test_little_noise_gives_what_the_rows_give(tau):
    rng = np.random.default_rng(11)
    rows = with_rows(rng, 4, 60, 2, tau)
    seen = noisy(rng, rows, 1e-3)
    posterior = VaryingPosterior(seen, ScaleFreePrior(2), ScaleFreeCovariates.default(2))
    drawn = sample_varying(posterior, seed=1, cores=1)
    assert drawn.info.diverging.mean() < 0.002
    # Spreads may be 0 here, and are at least a thousandth of their unit there.
    theirs = gibbs(rng, rows, posterior.average, posterior.unit, 4500)[500:].reshape(2, 2000, -1)
    apart = errors_apart(phi_of(drawn, posterior), theirs)
    assert np.abs(apart).max() < 4.5
    # Negative control: one regression for all is far from it, unless holders are alike.
    if tau > 0.1:
        given = seen, ScaleFreePrior(2), ScaleFreeCovariates.default(2)
        pooled = sampler.sample(*given, chains=2, seed=1, cores=1).theta
        assert np.abs(errors_apart(pooled[..., 1:], theirs[..., 1:3])).max() > 10


def test_no_chain_is_stuck_where_holders_are_apart_and_noise_has_long_tails():
    # Chains that started with spreads near 0 had steps of 1e-15 here, with the same seed.
    rng = np.random.default_rng(2)
    seen = noisy(rng, with_rows(rng, 8, 1000, 2, 0.3), 25.0, "laplace")
    posterior = VaryingPosterior(seen, ScaleFreePrior(2), ScaleFreeCovariates.default(2))
    for seed in range(20):
        assert init(posterior, np.random.default_rng(seed), apart=3).x[-3:].min() >= 1.0
    drawn = sample_varying(posterior, chains=2, tune=250, draws=100, seed=1, cores=1)
    assert drawn.info.step_size.min() > 0.02
    assert drawn.info.diverging.mean() < 0.02
    # Where residuals are beyond what doubles tell there is no density, rather than a wrong one.
    y = np.zeros(posterior.ndim)
    y[posterior.arrays.first[1] - 3] = -1e3  # the first holder's ln sigma2; then come two psi
    assert posterior.logp_and_gradient(np.zeros(posterior.ndim))[0] > -np.inf
    assert posterior.logp_and_gradient(y)[0] == -np.inf


# --- calibration: truths from the prior -----------------------------------------------------------

TRIALS, J, N = 40, 3, 1000
UNIT, AVERAGE = np.array([0.15, 0.25]), np.array([0.1])
LAW = NIWPrior(np.array([0.1]), 5.0, np.array([[0.5]]), 8.0)


def simulated(rng):
    """Common, spread and holders' own from the prior, and noisy sums of rows."""
    tau = UNIT * SPREAD_SCALE * abs(rng.standard_t(4, 2))
    beta = rng.normal(0, 10 * UNIT)
    rows, own = [], []
    for _ in range(J):
        T = stats.invwishart(LAW.nu, LAW.Psi).rvs(random_state=rng)
        mu = rng.normal(LAW.m, np.sqrt(T / LAW.lam))
        phi = rng.normal(beta, tau)
        theta = np.array([phi[0] - phi[1] * AVERAGE[0], phi[1]])
        x = rng.normal(mu, np.sqrt(T), (N, 1))
        y = theta[0] + x @ theta[1:] + 0.5 * abs(rng.standard_t(4)) * rng.standard_normal(N)
        rows.append((np.column_stack([np.ones(N), x]), y))
        own.append(phi)
    return np.concatenate([beta, tau, *own]), rows


def test_ranks_of_truths_from_the_prior_are_uniform():
    rng = np.random.default_rng(20261118)
    found, control = np.empty((TRIALS, 4 + 2 * J)), np.empty(TRIALS)
    for trial in range(TRIALS):
        truth, rows = simulated(rng)
        seen = noisy(rng, rows, 15.0, "laplace" if trial % 2 else "gaussian")
        posterior = VaryingPosterior(seen, ScaleFreePrior(1), LAW, scales=(AVERAGE, UNIT))
        size = {"chains": 1, "draws": 250, "tune": 250, "seed": trial, "cores": 1}
        draws = phi_of(sample_varying(posterior, **size), posterior)
        found[trial] = (draws < truth).mean(axis=(0, 1))
        A = seen[0].values
        slope = np.linalg.solve(A[:2, :2], A[:2, 2])
        error2 = (A[2, 2] - A[2, :2] @ slope) / N * np.linalg.inv(A[:2, :2])[1, 1]
        control[trial] = stats.norm.cdf((truth[5] - slope[1]) / math.sqrt(max(error2, 1e-9)))
    # Common coefficients, spreads, those of the first holder: where they are, and how far out.
    for ranks in found[:, :6].T:
        assert stats.kstest(ranks, "uniform").pvalue > 5e-4
        assert stats.kstest(abs(2 * ranks - 1), "uniform").pvalue > 5e-4
    # Negative control: the first holder's slope by least squares on what was released.
    assert stats.kstest(abs(2 * control - 1), "uniform").pvalue < 1e-4


# --- whole fits -----------------------------------------------------------------------------------

SCHEMA = nw.Schema(
    "clinic",
    {
        "age": nw.Number(18, 90),
        "smoker": nw.Category(("no", "yes"), "no"),
        "visits": nw.Number(0, 20),
    },
)


def table_of(holder, n=3000):
    rng = np.random.default_rng([7, holder])
    age = rng.normal(50 + 3 * holder, 12, n)
    smoker = rng.uniform(size=n) < 0.3
    slope = (0.02, 0.06, 0.10)[holder % 3]
    visits = 8 + slope * (age - 50) + 1.0 * smoker + rng.normal(0, 2, n)
    return {"age": age, "smoker": np.where(smoker, "yes", "no"), "visits": visits}


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    from noisewise.holder.publish import publish

    from ..ledgers import ledger_for

    folder, found = tmp_path_factory.mktemp("varying"), []
    for holder in range(3):
        request = nw.make_request(
            SCHEMA, target="visits", features=["age", "smoker"], epsilon=2,
            **({"delta": 1e-6, "rounds": 2} if holder == 1 else {}),
        )  # fmt: skip
        ledger = ledger_for(folder / f"{holder}.json", "clinic")
        found.append(publish(request, table_of(holder), ledger=ledger).release)
    return found


@pytest.fixture(scope="module")
def posterior(releases):
    return nw.fit(releases, varying=True, seed=1, draws=300, names=["a", "b", "c"])


def test_a_fit_with_and_without_rounds(posterior):
    assert posterior.info.method == "exact_varying"
    assert posterior.holders.names == ("a", "b", "c")
    own = posterior.holder_summaries(0.99)
    for name, slope in zip("abc", (0.02, 0.06, 0.10), strict=True):
        row = own[name].rows["age"]
        assert row.lower < slope < row.upper
        assert posterior.of_holder(name).interval("age", 0.99) == (row.lower, row.upper)
    assert own["a"].rows["age"].upper < own["c"].rows["age"].lower  # they are told apart
    low, high = posterior.interval("age")
    assert low < 0.06 < high
    assert posterior.prob("`age between holders` > 0.005") > 0.9
    text = posterior.describe()
    assert "age between holders" in text
    assert "own coefficients" in text
    assert "average person" in text  # the prior, in words
    assert posterior.to_dict()["holders"]["a"]["age"]["median"] > 0
    assert "age of a" in posterior.draws_columns()
    share = posterior.privacy_share()
    assert all(0 <= value <= 1 for value in share.values())


def test_a_spread_that_the_prior_decides_is_warned_of(posterior):
    def warned(spread):  # of the prior's scale
        told = posterior.holders.spread * 0 + spread * posterior.holders.expected
        holders = replace(posterior.holders, spread=told)
        return spread_warnings(replace(posterior, holders=holders))

    assert warned(0.2) == ()
    assert "3 holders say little about how far apart holders are in" in warned(3.0)[0]


def test_predictions_are_for_a_holder_who_is_not_among_them(posterior):
    new = {"age": [80.0], "smoker": ["no"]}
    wide = posterior.predict(new, seed=1)
    one = posterior.of_holder("c").predict(new, seed=1)
    assert wide.spread[0] > 1.05 * one.spread[0]
    assert abs(one.estimate[0] - (8 + 0.10 * 30)) < 0.8


def test_files_pictures_and_pages(posterior, tmp_path):
    posterior.save(tmp_path / "post.nc")
    loaded = load_posterior(tmp_path / "post.nc")
    for name in ("theta", "sigma2", "spread", "average", "expected"):
        np.testing.assert_array_equal(
            getattr(loaded.holders, name), getattr(posterior.holders, name)
        )
    assert loaded.holders.names == posterior.holders.names
    figure = loaded.plot(tmp_path / "forest.svg", kind="forest", names=["age"])
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["a", "b", "c", "common", "another holder"]
    bars = loaded.forest("age", 0.95)
    assert bars["another holder"].low < bars["common"].low
    loaded.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "How holders differ" in page
    assert "That of c is the highest and that of a the lowest" in page


def test_commands(releases, tmp_path):
    paths = [tmp_path / f"{name}.json" for name in "abc"]
    for path, release in zip(paths, releases, strict=True):
        path.write_text(release.to_text(), encoding="utf-8")

    def run(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.output

    post = tmp_path / "post.nc"
    size = ("--chains", 2, "--draws", 100, "--seed", 1)
    assert "a.json" in run("fit", *paths, "--varying", *size, "--out", post)
    assert "a.json" in json.loads(run("show", post, "--json"))["holders"]
    run("plot", post, "--kind", "forest", "--out", tmp_path / "forest.png")
    assert (tmp_path / "forest.png").stat().st_size > 5_000


def test_what_is_refused(releases, posterior):
    with pytest.raises(RequestError, match="one Release says nothing about how holders differ"):
        nw.fit(releases[:1], varying=True)
    with pytest.raises(RequestError, match="leave one of the two out"):
        nw.fit(releases, varying=True, method="exact")
    with pytest.raises(RequestError, match="CoefficientPrior"):
        nw.fit(releases, varying=True, prior=NIGPrior.weakly_informative(2))
    with pytest.raises(RequestError, match="there are a, b, c"):
        posterior.of_holder("d")
    plain = posterior.of_holder("a")
    with pytest.raises(RequestError, match="varying"):
        plain.plot(kind="forest")


def test_a_prior_of_the_common_coefficients(releases):
    prior = nw.CoefficientPrior({"age": (0.2, 0.001)})
    found = nw.fit(releases, varying=True, prior=prior, seed=1, chains=2, draws=200)
    assert abs(np.median(found.draws("age")) - 0.2) < 0.005
    assert found.interval("age between holders")[1] > 0.1  # holders are not where it says
