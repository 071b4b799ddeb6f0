"""The gibbs_* methods against `exact`, and against importance sampling with several holders.

What the central limit theorem costs is in the posterior means: with two holders and noise about as
large as sampling variation they are off by up to 0.2 posterior standard deviations at n = 300 in
single data sets, by half of that with interweaving. Where noise is much larger nothing of it is
left, and with one holder little at any n from 100 on: there agreement is asserted within Monte
Carlo error alone.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import gibbs
from noisewise.analyst.regression.papers.moments import CovariateMoments
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior

from .gibbs_problems import (
    collapsed_importance_sampling,
    defaults,
    error_of_mean,
    flatten,
    fourth_release,
    problem,
    release,
    rows,
)

LAW = (0.2, 0.3, [0.3, 0.8], 0.2)  # mu, T, theta, sigma2
PRIOR = NIGPrior([0.0, 0.0], np.diag([0.5, 0.5]), 3.0, 0.4)
COVARIATES = NIWPrior([0.0], 1.0, [[0.5]], 5.0)
KNOWN = np.array([0.2]), np.array([[0.3]])


def gaps(ours, theirs):
    """Gaps between means, and between mean squares about one centre, in standard errors."""
    centre = flatten(theirs).mean(axis=0)

    def features(draws):
        x = np.concatenate([draws.theta, draws.sigma2[..., None]], axis=-1)
        x = np.concatenate([x, (x - centre) ** 2], axis=-1)
        batches = x[:, : x.shape[1] // 25 * 25].reshape(len(x) * 25, -1, x.shape[-1]).mean(axis=1)
        return batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))

    (a, a_error), (b, b_error) = features(ours), features(theirs)
    return (a - b) / np.hypot(a_error, b_error)


def holders(k, n, scale, families):
    return [problem(k, n + 50 * j, scale, family, 20 + j) for j, family in enumerate(families)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("k", "n", "scale", "families"),
    [
        (1, 300, 15.0, ["laplace"]),
        (1, 1000, 30.0, ["gaussian", "laplace"]),
        (3, 500, 25.0, ["laplace", "gaussian"]),
        (3, 1000, 40.0, ["gaussian"]),
    ],
)
def test_much_noise(k, n, scale, families):
    """Where noise hides sampling variation `exact` is reproduced within Monte Carlo error."""
    observations = holders(k, n, scale, families)
    prior, covariates = defaults(k)
    truth = exact.sample(observations, prior, covariates, chains=2, draws=4000, seed=1)
    ours = gibbs.sample(observations, prior, covariates, chains=2, draws=10_000, seed=2)
    assert np.abs(gaps(ours, truth)).max() < 5
    # Negative control: half the noise is another posterior.
    quieter = [Observation(o.n, o.values, o.scale / 2, o.family) for o in observations]
    other = gibbs.sample(quieter, prior, covariates, chains=2, draws=10_000, seed=2)
    assert np.abs(gaps(other, truth)).max() > 8


@cache
def moderate(k, family):
    observations = holders(k, 1000, 5.0, [family])
    return observations, exact.sample(observations, *defaults(k), chains=2, draws=4000, seed=1)


@pytest.mark.parametrize("interweave", [False, True])
@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("k", [1, 3])
def test_moderate_noise(k, family, interweave):
    """With and without moves along orbits: 5 standard errors."""
    observations, truth = moderate(k, family)
    prior, covariates = defaults(k)
    ours = gibbs.sample(
        observations, prior, covariates, chains=2, draws=10_000, seed=2, interweave=interweave
    )
    assert np.abs(gaps(ours, truth)).max() < 5


@cache
def two_holders(method, n):
    """Releases by two mechanisms, and the posterior by importance sampling."""
    rng = np.random.default_rng(30)
    data = [rows(rng, n, *LAW), rows(rng, n + 10, *LAW)]
    size = np.sqrt(n / 30)
    observations = [
        release(data[0], 1.5 * size, "laplace", rng),
        release(data[1], 2.0 * size, "gaussian", rng),
    ]
    fourth = [fourth_release(data[0], 2.0 * size, "laplace", rng), None]
    law = {"update": COVARIATES, "prior": KNOWN, "aware": None}[method]
    oracle = collapsed_importance_sampling(
        observations, PRIOR, law, 400_000, seed=4, fourth=fourth if method == "aware" else ()
    )
    return observations, fourth, oracle


@pytest.mark.long
@pytest.mark.parametrize("interweave", [False, True])
@pytest.mark.parametrize("n", [30, 300])
@pytest.mark.parametrize("method", ["update", "prior", "aware"])
def test_two_holders_and_mechanisms_against_importance_sampling(method, n, interweave):
    """Means within 0.25 sd (0.12 with interweaving) and Monte Carlo error, sds within 8%.

    The tolerances are the largest gaps over eight other data sets of this kind (0.22 and 0.11),
    not this one's. `gibbs_noisy_aware` makes no use of the central limit theorem and has no such
    bias.
    """
    observations, fourth, (mean, sd, effective) = two_holders(method, n)
    assert effective > 4000
    options = {"chains": 2, "draws": 20_000, "seed": 5, "interweave": interweave}
    if method == "update":
        draws = gibbs.sample(observations, PRIOR, COVARIATES, **options)
    elif method == "prior":
        draws = gibbs.sample(observations, PRIOR, CovariateMoments.normal(*KNOWN), **options)
    else:
        draws = gibbs.sample(observations, PRIOR, fourth, **options)
    bias = 0.12 if interweave else 0.25
    if method == "aware":
        bias = 0.0
    error = np.hypot(error_of_mean(draws), sd / np.sqrt(effective))
    x = flatten(draws)
    assert (np.abs(x.mean(axis=0) - mean) < 5 * error + bias * sd).all()
    np.testing.assert_allclose(x.std(axis=0), sd, rtol=0.08)


@pytest.mark.filterwarnings("ignore:the smallest holder has")
@pytest.mark.long
def test_the_number_of_tries_does_not_change_the_posterior():
    """n = 6: a fifth of the draws are impossible. Drawn again or sliced, the target is one."""
    observations = [problem(1, n=6, scale=1.0, seed=7)]
    prior, covariates = defaults(1)
    patient, hasty = (
        gibbs.sample(observations, prior, covariates, chains=2, draws=40_000, seed=8, tries=tries)
        for tries in (500, 1)
    )
    assert patient.info.exhausted.mean() < 1e-3
    assert hasty.info.exhausted.mean() > 0.1
    assert np.abs(gaps(hasty, patient)).max() < 5
