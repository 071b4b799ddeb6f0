"""One Release of a cell, one fit of it, and whether the intervals held the truth.

The noise is continuous, from a seeded generator, and rounded to the Release's grid: the same law as
the mechanism's to double precision (`noisewise.core.noise`), and the same Release for every prior.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from noisewise import __version__
from noisewise._arrays import FloatArray
from noisewise.analyst.regression.fit import fit_regression
from noisewise.analyst.regression.observation import Family
from noisewise.analyst.regression.priors import (
    HuangWandPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.errors import NoisewiseError
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Number, Schema
from noisewise.holder.requests.regression import Request, make_request
from studies.honesty.cells import AnyCell, random_cell
from studies.report import seed_of
from studies.trials import Record

LEVELS = (0.95, 0.8)


class Length(NamedTuple):
    """Of every fit."""

    chains: int
    draws: int


# --- priors ---------------------------------------------------------------------------------------


def _default(k: int) -> dict[str, Any]:
    """Whatever `fit` does when no prior is given."""
    return {}


def _bounds(k: int) -> dict[str, Any]:
    """The former default, which takes bounds for the scale of the data: the negative control."""
    return {
        "prior": NormalInverseGammaIndependent.weakly_informative(k),
        "covariate_prior": NIWPrior.weakly_informative(k),
    }


def _five_times(k: int) -> dict[str, Any]:
    """Coefficients five times as wide, half-t standard deviations: the best of the older ones."""
    usual = NormalInverseGammaIndependent.weakly_informative(k)
    return {
        "prior": NormalInverseGammaIndependent(usual.mu0, 25.0 * usual.V0, usual.a0, usual.b0),
        "covariate_prior": HuangWandPrior.weakly_informative(k),
    }


# By name: from the number of covariates to arguments of `fit`.
PRIORS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "default": _default,
    "bounds": _bounds,
    "x5HW": _five_times,
}


# --- from a cell to a Release ---------------------------------------------------------------------


@lru_cache(maxsize=256)
def request_of(k: int, epsilon: float, noise: Family) -> Request:
    """What a holder of k covariates and a target in [-1, 1] would ask for."""
    features = [f"x{j}" for j in range(1, k + 1)]
    schema = Schema("simulated", {name: Number(-1.0, 1.0) for name in (*features, "y")})
    words = {"epsilon": epsilon, "mechanism": noise, "rounds": 1}
    return make_request(schema, target="y", features=features, **words)


def simulate_release(cell: AnyCell, rng: np.random.Generator) -> Release:
    """What a holder would publish, with NumPy's noise: for simulated and public rows only."""
    request = request_of(cell.k, cell.epsilon, cell.noise)
    [statistic], [mechanism] = request.statistics, request.mechanisms
    A = cell.gram(rng)
    sums = np.array([A[entry] for entry in statistic.entries]) * STATISTIC_ONE
    draw = rng.laplace if cell.noise == "laplace" else rng.normal
    noisy = np.rint(sums + draw(0.0, mechanism.scale, len(sums)))
    return replace(
        request.written(cell.n, [tuple(int(value) for value in noisy)]),
        label="simulated",
        software=f"noisewise {__version__} studies",
    )


# --- from a Release to a record -------------------------------------------------------------------


class Fitted(NamedTuple):
    """What a fit says."""

    draws: FloatArray  # (chains, draws, k + 2): intercept, slopes, sigma2
    ess: float  # the smallest of all parameters, bulk and tail
    diverging: float  # share of the draws
    warnings: tuple[str, ...]
    pull: tuple[float, ...] = ()  # by slope, how much a second prior changes its width


def fit(release: Release, prior: str, length: Length, seed: int) -> Fitted:
    """Fit under the prior of this name, as a user would."""
    k = len(release.design.features)
    posterior = fit_regression(release, seed=seed, **length._asdict(), **PRIORS[prior](k))
    return Fitted(
        np.concatenate([posterior.theta, posterior.sigma2[..., None]], axis=-1),
        min(row.ess for row in posterior.summary().rows.values()),
        float(np.mean(posterior.sample_stats.get("diverging", 0.0))),
        posterior.warnings,
        tuple(posterior.info.prior_pull.values()),
    )


def cell_trial(cell: AnyCell, prior: str, length: Length, trial: int) -> Record:
    """One Release of a cell and its fit."""
    return _trial(cell, prior, length, trial, seed_of("honesty", cell.name, trial))


def random_trial(seed: int, prior: str, length: Length, trial: int) -> Record:
    """One Release of the random configuration of this number, and its fit."""
    cell = random_cell(seed, trial)
    record = _trial(cell, prior, length, trial, seed_of("honesty", seed, trial))
    return {**record, "cell": {**cell.describe(), "k": cell.k}}


def _trial(
    cell: AnyCell, prior: str, length: Length, trial: int, seeds: np.random.SeedSequence
) -> Record:
    of_release, of_fit = seeds.spawn(2)
    release = simulate_release(cell, np.random.default_rng(of_release))
    record = {"trial": trial, "truth": [_short(value) for value in cell.truth]}
    start = time.process_time()
    try:
        found = fit(release, prior, length, int(of_fit.generate_state(1)[0]))
    except (NoisewiseError, ArithmeticError, np.linalg.LinAlgError) as error:
        return {**record, "error": f"{type(error).__name__}: {error}"[:200]}
    seconds = time.process_time() - start
    return {**record, **judge(found, cell.truth), "seconds": round(seconds, 3)}


def judge(found: Fitted, truth: FloatArray) -> Record:
    """Whether each interval held the truth, by parameter, and what else is worth keeping."""
    flat = found.draws.reshape(-1, found.draws.shape[-1])
    record: Record = {}
    for level in LEVELS:
        low, high = np.quantile(flat, [(1 - level) / 2, (1 + level) / 2], axis=0)
        inside = (low <= truth) & (truth <= high)
        record[f"held{round(100 * level)}"] = inside.astype(int).tolist()
        record[f"width{round(100 * level)}"] = [_short(width) for width in high - low]
    return {
        **record,
        "median": [_short(value) for value in np.median(flat, axis=0)],
        "ess": round(found.ess),
        "diverging": _short(found.diverging),
        "pull": [_short(value) for value in found.pull],
        "alarms": sorted({kind_of(text) for text in found.warnings}),
    }


def kind_of(warning: str) -> str:
    """The first words of a warning, without numbers and names of columns, which have one here."""
    words = [word for word in warning.split() if not any(letter.isdigit() for letter in word)]
    return " ".join(words[:4])


def _short(value: float) -> float:
    return float(f"{value:.5g}")
