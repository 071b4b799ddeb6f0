"""The methods that the paper compares, by name, with the effort that a run spends on each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
        theta, mean = _RUNNERS[method](given, effort, seed)
    return Outcome(theta, mean, time.process_time() - start)


def _options(effort: tuple[int, int], seed: int) -> dict[str, Any]:
    return {"chains": 1, "draws": effort[0], "tune": effort[1], "seed": seed, "cores": 1}


def _normal_x(given: Given, effort: Effort, seed: int) -> tuple[FloatArray, FloatArray]:
    from noisewise.analyst.regression.papers import alparslan

    options = _options(effort.normal_x, seed)
    theta = alparslan.sample(
        given.observations, given.regression, given.covariates, **options
    ).theta[0]
    return theta, theta.mean(axis=0)


def _fixed_s(given: Given, effort: Effort, seed: int) -> tuple[FloatArray, FloatArray]:
    from noisewise.analyst.regression.papers import alparslan

    options = _options(effort.fixed_s, seed)
    theta = alparslan.sample(given.observations, given.regression, **options).theta[0]
    return theta, theta.mean(axis=0)


def _fixed_s_fast(given: Given, effort: Effort, seed: int) -> tuple[FloatArray, FloatArray]:
    from noisewise.analyst.regression.papers import alparslan

    drawn = alparslan.sample_closed_form(
        given.observations,
        given.regression,
        chains=1,
        draws=effort.fixed_s[0],
        seed=seed,
        sigma2=given.sigma2,
    )
    return drawn.theta[0], drawn.info.mean


def _bs_distributed(given: Given, effort: Effort, seed: int) -> tuple[FloatArray, FloatArray]:
    from noisewise.analyst.regression.papers import gibbs

    options = _options(effort.bs_distributed, seed)
    drawn = gibbs.sample(given.with_y_squares, given.conjugate, given.covariates, **options).theta[
        0
    ]
    return drawn, drawn.mean(axis=0)


def _exact(given: Given, effort: Effort, seed: int) -> tuple[FloatArray, FloatArray]:
    from noisewise.analyst.regression.exact import sampler as exact

    options = _options(effort.exact, seed)
    drawn = exact.sample(
        given.with_y_squares, given.regression, given.covariates, keep_covariates=False, **options
    )
    return drawn.theta[0], drawn.conditional_mean[0].mean(axis=0)


_RUNNERS: dict[str, Callable[[Given, Effort, int], tuple[FloatArray, FloatArray]]] = {
    "normal_x": _normal_x,
    "fixed_s": _fixed_s,
    "fixed_s_fast": _fixed_s_fast,
    "bs_distributed": _bs_distributed,
    "exact": _exact,
}
