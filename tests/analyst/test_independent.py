"""Independent draws by weighted proposals: against an oracle, NUTS, and when they give up."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

import noisewise as nw
from noisewise.analyst.convergence import effective_for_mean
from noisewise.analyst.regression.exact import independent, sampler
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.priors import (
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    ScaleFreeCovariates,
    ScaleFreePrior,
)

from .test_collapsed import observe
from .test_exact import ORACLES, second_moments

PRIORS = {
    "scale-free": lambda k: (ScaleFreePrior(k), ScaleFreeCovariates.default(k)),
    "independent": lambda k: (
        NormalInverseGammaIndependent.weakly_informative(k),
        HuangWandPrior.weakly_informative(k),
    ),
    "conjugate": lambda k: (NIGPrior.weakly_informative(k), NIWPrior.weakly_informative(k)),
}
CASES = {
    # rows, k, noise scale, family, priors, known, private
    "laplace": (3000, 2, 4.0, "laplace", "scale-free", (), False),
    "gaussian": (3000, 3, 15.0, "gaussian", "scale-free", (), False),
    "private n": (3000, 2, 20.0, "gaussian", "scale-free", (), True),
    "known product": (3000, 3, 10.0, "laplace", "scale-free", ((2, 1),), False),
    "few rows": (40, 1, 0.4, "gaussian", "scale-free", (), False),
    "independent prior": (3000, 2, 15.0, "laplace", "independent", (), False),
    "conjugate prior": (3000, 2, 15.0, "gaussian", "conjugate", (), False),
}


def errors_apart(draws, theta, sigma2):
    """How far chains of another sampler, NUTS, are from independent draws of the same posterior.

    By parameter, sigma2 last, (d + 1, 3): the share of the chains below the 5%, 50% and 95% points
    of the independent draws, less that share, in Monte Carlo standard errors of both.
    """
    ours = np.concatenate([draws.theta, draws.sigma2[..., None]], axis=-1)
    theirs = np.concatenate([theta, sigma2[..., None]], axis=-1)
    apart = np.empty((ours.shape[-1], 3))
    for i in range(len(apart)):
        for at, level in enumerate((0.05, 0.5, 0.95)):
            below = (theirs[..., i] < np.quantile(ours[..., i], level)).astype(np.float64)
            each = 1.0 / draws.effective + 1.0 / max(effective_for_mean(below), 1.0)
            apart[i, at] = (below.mean() - level) / math.sqrt(level * (1.0 - level) * each)
    return apart


def problem(case):
    n, k, scale, family, priors, known, private = CASES[case]
    rng = np.random.default_rng([7, n, k])
    seen = observe(rng, n, k, scale, family, known=known, private=private)
    return [seen], *PRIORS[priors](k)


# 3 levels of up to 5 parameters in 7 cases: beyond 4.7 standard errors once in 3,000 runs of all.
LIMIT = 4.7


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_nuts(case):
    given = problem(case)
    found = independent.draw_independent(*given, seed=1)
    assert found is not None
    assert found.pareto_k < independent.LARGEST_SHAPE
    nuts = sampler.sample(*given, seed=2, keep_covariates=False)
    assert abs(errors_apart(found, nuts.theta, nuts.sigma2)).max() < LIMIT


def test_without_weights_it_disagrees(monkeypatch):
    """Negative control: proposals alone are not draws from the posterior."""
    rng = np.random.default_rng([7, 3000, 2])
    given = [observe(rng, 3000, 2, 20.0, "laplace")], *PRIORS["scale-free"](2)
    assert independent.draw_independent(*given, seed=1) is None  # noise too large to go this way
    monkeypatch.setattr(independent, "_SMALLEST_EVEN", 0.3)
    found = independent.draw_independent(*given, seed=1)
    nuts = sampler.sample(*given, seed=2, keep_covariates=False)
    assert abs(errors_apart(found, nuts.theta, nuts.sigma2)).max() < LIMIT
    monkeypatch.setattr(
        independent, "pareto_smoothed", lambda log_weight: (0.0, np.ones(len(log_weight)))
    )
    found = independent.draw_independent(*given, seed=1)
    assert found is not None
    assert abs(errors_apart(found, nuts.theta, nuts.sigma2)).max() > LIMIT


def test_weighted_proposals_against_an_oracle():
    """Brute force over single records; noise is large there, so that weights matter a lot."""
    (case,) = (c for c in json.loads(ORACLES.read_text()) if c["name"] == "gaussian_n20")
    given = case["prior"]
    seen = [
        second_moments(*holder)
        for holder in zip(case["n"], case["observed"], case["scale"], case["noise"], strict=True)
    ]
    prior = NIGPrior(given["mu0"], np.diag(given["Lam0"]), given["a0"], given["b0"])
    covariates = NIWPrior([given["m"]], given["lam"], [[given["Psi"]]], given["nu"])
    posterior = CollapsedPosterior(seen, prior, covariates, relative=False, partial=False)
    rng = np.random.default_rng(5)
    x, log_weight = independent.weighted_proposals(posterior, rng, 60_000)
    possible = np.isfinite(log_weight)
    x, weight = x[possible], np.exp(log_weight[possible] - log_weight.max())
    weight /= weight.sum()
    effective = 1 / (weight**2).sum()
    assert effective > 500
    theta, sigma2, *_ = posterior.draw_parameters(rng, x, covariates=False)
    unweighted = []
    for i, values in enumerate((theta[:, 0], theta[:, 1], sigma2)):
        for level, at in zip((0.05, 0.5, 0.95), case["q05_q50_q95"][i], strict=True):
            error = math.sqrt(level * (1 - level) * (1 / effective + 1 / case["importance_ess"]))
            assert abs(weight @ (values < at) - level) < 4 * error
            unweighted.append(abs((values < at).mean() - level) / error)
    assert max(unweighted) > 8  # negative control


def test_gives_up_where_noise_is_large():
    rng = np.random.default_rng(3)
    seen = [observe(rng, 300, 3, 60.0, "laplace")]
    assert independent.draw_independent(seen, *PRIORS["scale-free"](3), seed=1) is None


def test_gives_up_where_an_entry_was_not_released():
    rng = np.random.default_rng(3)
    seen = [observe(rng, 3000, 2, 5.0, "laplace", missing=((1, 2),))]
    assert independent.draw_independent(seen, *PRIORS["scale-free"](2), seed=1) is None


def test_copies_are_counted(monkeypatch):
    """A weight that is kept many times costs effective draws, and its copies are neighbours."""
    given = problem("laplace")
    monkeypatch.setattr(independent, "_SMALLEST_SHARE", 0.0)

    def uneven(log_weight):
        weight = np.ones(len(log_weight))
        weight[1000:1010] = 200.0
        return 0.0, weight

    monkeypatch.setattr(independent, "pareto_smoothed", uneven)
    found = independent.draw_independent(*given, seed=1)
    assert found.effective < 0.25 * found.sigma2.size
    x = found.x.reshape(-1, found.x.shape[-1])
    same = (x[1:] == x[:-1]).all(axis=1)
    assert len(np.unique(x, axis=0)) == len(x) - same.sum()
    assert same.sum() > 300


@pytest.mark.parametrize("shape", [-0.2, 0.2, 0.7])
def test_shape_of_a_pareto_tail(shape):
    rng = np.random.default_rng(4)
    weight = stats.genpareto.rvs(shape, size=8000, random_state=rng) + 1.0
    found, smoothed = independent.pareto_smoothed(np.log(weight))
    assert found == pytest.approx(shape, abs=0.2)
    assert smoothed.max() <= 1.0


def test_fit_says_which_way_it_took(tmp_path):
    """Little noise: independent draws. Much: NUTS, with its diagnostics."""
    rng = np.random.default_rng(6)
    schema = nw.Schema("people", {name: nw.Number(-1, 1) for name in ("x", "y")})
    for rows, way in ((20_000, "independent"), (40, "nuts")):
        x = rng.uniform(-1, 1, rows)
        table = {"x": x, "y": 0.4 * x + rng.normal(0, 0.2, rows)}
        request = nw.make_request(schema, target="y", features=["x"], epsilon=1)
        ledger = nw.Ledger(tmp_path / f"{way}.db")
        ledger.set_cap("people", 1)
        posterior = nw.fit(nw.publish(request, table, ledger=ledger).release, draws=500, seed=1)
        assert ("pareto_k" in posterior.sample_stats) is (way == "independent")
        assert ("diverging" in posterior.sample_stats) is (way == "nuts")
        assert ("independent" in posterior.info.reason) is (way == "independent")
