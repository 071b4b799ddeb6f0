"""The methods that the paper compares, by name, with the effort that a run spends on each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import CovariatePrior, RegressionPrior

PAPER_NAMES = {
    "normal_x": "MCMC-normalX",
    "fixed_s": "MCMC-fixedS",
    "fixed_s_fast": "Bayes-fixedS-fast",
    "bs_distributed": "MCMC-B&S",
    "ada_ssp": "adaSSP",
}
SAMPLED = ("normal_x", "fixed_s", "fixed_s_fast", "bs_distributed", "exact")


@dataclass(frozen=True)
class Effort:
    """Iterations after and during warm-up of one chain, for each method.

    The paper runs every chain for 10,000 iterations and drops half. `exact` and `bs_distributed`
    mix so well that far fewer are enough for a posterior mean; `normal_x` does not.
    """

    normal_x: tuple[int, int] = (5000, 5000)
    fixed_s: tuple[int, int] = (5000, 5000)
    bs_distributed: tuple[int, int] = (1000, 500)
    exact: tuple[int, int] = (300, 300)


QUICK = Effort((300, 300), (300, 200), (200, 100), (80, 100))


class Given(NamedTuple):
    """What a method is run on: releases and priors."""

    observations: Sequence[Observation]  # of the methods that do without y'y
    with_y_squares: Sequence[Observation]  # of bs_distributed and exact
    regression: RegressionPrior
    conjugate: RegressionPrior  # of bs_distributed
    covariates: CovariatePrior
    sigma2: float | None  # of fixed_s_fast; None: its own estimate


class Outcome(NamedTuple):
    """Draws of theta and the processor time that they took."""

    theta: FloatArray  # (draws, d)
    mean: FloatArray  # (d,)
    seconds: float


def run(method: str, given: Given, effort: Effort, seed: int) -> Outcome:
    """Run one of `SAMPLED`, one chain."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        theta, mean = _draws(method, given, effort, seed)
    return Outcome(theta, mean, time.process_time() - start)


def _draws(method: str, given: Given, effort: Effort, seed: int) -> tuple[FloatArray, FloatArray]:
    """Draws of theta, (draws, d), and the posterior mean."""
    from noisewise.analyst.regression.exact import sampler as exact
    from noisewise.analyst.regression.papers import alparslan, gibbs

    seen, prior = given.observations, given.regression
    if method == "fixed_s_fast":
        size = {"chains": 1, "draws": effort.fixed_s[0], "seed": seed}
        fast = alparslan.sample_closed_form(seen, prior, sigma2=given.sigma2, **size)
        return fast.theta[0], fast.info.mean
    draws, tune = getattr(effort, method)
    options = {"chains": 1, "draws": draws, "tune": tune, "seed": seed, "cores": 1}
    covariates, with_y = given.covariates, given.with_y_squares
    if method == "exact":
        drawn = exact.sample(with_y, prior, covariates, keep_covariates=False, **options)
        return drawn.theta[0], drawn.conditional_mean[0].mean(axis=0)
    if method == "normal_x":
        theta = alparslan.sample(seen, prior, covariates, **options).theta[0]
    elif method == "fixed_s":
        theta = alparslan.sample(seen, prior, **options).theta[0]
    else:
        theta = gibbs.sample(with_y, given.conjugate, covariates, **options).theta[0]
    return theta, theta.mean(axis=0)
