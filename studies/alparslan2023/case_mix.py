"""Calibration when holders' covariates have different means: other patients, other regions.

As `alparslan2023_calibration`, but each holder has a mean mu_j ~ N(m, T / lam) of its own (lam = 1:
as far apart as people of one holder are). `exact_own_means` has that model, and its ranks must be
uniform; the methods with one law for all show what ignoring the difference costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from studies.alparslan2023.calibration import (
    RUNNERS,
    DistributedCase,
    FederatedSampler,
    Federation,
    Pair,
    draw,
    federation,
)
from studies.calibration.trial import Cell
from studies.experiments import Experiment
from studies.regression import SimulatedRegression

NAME = "calibration-case-mix"


@dataclass(frozen=True, eq=False)
class DifferentHolders(Federation):
    """J holders with n rows each, whose covariates share a covariance matrix but no mean."""

    def describe(self) -> dict[str, Any]:
        """Everything that decides the law of a simulation."""
        return {**super().describe(), "means": "own"}

    def means(self, rng: np.random.Generator, mu: FloatArray, T: FloatArray) -> FloatArray:
        """A mean for each holder, shape (J, k)."""
        prior = self.one.covariates
        steps = rng.standard_normal((self.J, prior.k)) @ np.linalg.cholesky(T).T
        return np.asarray(prior.m + steps / np.sqrt(prior.lam))


def _exact_own_means(
    one: SimulatedRegression, case: DistributedCase, options: dict[str, Any]
) -> Pair:
    from noisewise.analyst.regression.exact import sampler as exact

    drawn = exact.sample(
        case.released, one.prior, one.covariates, own_means=True, keep_covariates=False, **options
    )
    return drawn.theta, drawn.sigma2


class CaseMixSampler(FederatedSampler):
    """A method for several holders, `exact_own_means` among them."""

    @property
    def runners(self) -> Mapping[str, Callable[..., Pair]]:
        """Functions that draw, by name of the method."""
        return {**RUNNERS, "exact_own_means": _exact_own_means}


METHODS = (
    CaseMixSampler("non_private", draws=100),
    CaseMixSampler("exact_own_means", draws=300, tune=250),
    CaseMixSampler("exact", draws=300, tune=250),
    CaseMixSampler("bs_distributed", draws=1500, tune=500),
)
QUICK_METHODS = (
    CaseMixSampler("non_private", draws=50),
    CaseMixSampler("exact_own_means", draws=120, tune=150),
    CaseMixSampler("exact", draws=120, tune=150),
)


def cells(quick: bool) -> list[Cell]:
    """Different holders, and as a control holders that are alike."""
    if quick:
        differ = DifferentHolders(federation(5, 2, 300, 1.0).one, 5)
        return [Cell("quick-differ", differ, QUICK_METHODS, 10, ranked=40)]
    found = []
    for J, d, n, epsilon in ((5, 2, 1000, 1.0), (5, 2, 1000, 0.1), (3, 5, 5000, 1.0)):
        alike = federation(J, d, n, epsilon)
        for kind, model in (("differ", DifferentHolders(alike.one, J)), ("alike", alike)):
            name = f"{kind}-J{J}-d{d}-n{n}-eps{epsilon:g}"
            found.append(Cell(name, model, METHODS, 300, ranked=60))
    return found


EXPERIMENT = Experiment(
    NAME,
    "Ranks and coverage when holders' covariates have different means: exact_own_means, exact",
    cells,
    partial(draw, name=NAME),
)
