"""Logistic and Poisson regression from Releases: a posterior in original units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import chains_and_draws, seed_or_none
from noisewise.analyst.common_cautions import (
    BAD_RHAT,
    ENOUGH_DRAWS,
    ONE_CHAIN,
    first_few,
    repetition_warnings,
)
from noisewise.analyst.glm.sampler import SLOPE_SD, Draws, NormalPrior, Observed, sample
from noisewise.analyst.posterior.base import Fit, origins
from noisewise.analyst.posterior.glm import GlmPosterior
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.analyst.regression.original_units import CoefficientPrior
from noisewise.core.design import INTERCEPT, Family
from noisewise.core.errors import RequestError
from noisewise.core.kinds.glm import GlmRelease
from noisewise.core.kinds.rounds import is_number
from noisewise.core.rounds.transform import Transform
from noisewise.core.statistics.scores import OUTCOME_ONE, outcome_of

MAX_DRAWS = 1_000_000
METHOD = "newton"

_INTERCEPT = 5.0  # sd of the default prior
_LEAST_BENT = 0.3  # |m''/m'| of yes or no: if half have the event, not all of them have odds of 1


def fit_glm(
    releases: GlmRelease | Sequence[GlmRelease],
    *,
    prior: CoefficientPrior | None = None,
    method: str = "auto",
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
    names: Sequence[str] | None = None,
) -> GlmPosterior:
    """Posterior of a logistic or Poisson regression given one or several Releases.

    Parameters
    ----------
    releases : GlmRelease or sequence of GlmRelease
        Of the same regression and columns that are declared alike; n and epsilon may differ.
    prior : CoefficientPrior, optional
        Of coefficients by name, in original units. By default a slope has sd 2.5 for one standard
        deviation of its column, as the rounds have found it, a level 2.5, and the intercept of a
        row at the centre 5.
    method : {"auto", "newton"}
        There is one; see `analyst.glm.sampler`.
    chains, draws : int
    seed : int, optional
        Makes the result reproducible. It has nothing to do with the privacy noise.
    progress : bool
        Takes seconds; nothing is shown.
    names : sequence of str, optional
        What messages call each Release.

    Returns
    -------
    GlmPosterior
        In original units.
    """
    given = _checked(releases)
    if method not in ("auto", METHOD):
        raise RequestError(
            f"method: {method!r} is not one for a {given[0].family} regression; leave it out"
        )
    chains, draws = chains_and_draws(chains, draws, MAX_DRAWS)
    design = given[0].design
    columns = ModelColumns(design.schema, design.features, design.target, design.family)
    observations = [
        Observed(
            release.last,
            release.shape.map(is_number(release.design.covariates)),
            release.weighted_rows,
            release.row_law,
        )
        for release in given
    ]
    drawn = sample(
        observations,
        prior_of(next(filter(_looked, given), given[0]), columns, prior),
        chains=chains,
        draws=draws,
        seed=seed_or_none(seed),
    )
    law = outcome_of(design)
    steepest = law.bound * float(law.root.max() / OUTCOME_ONE) ** 2
    posterior = GlmPosterior(
        columns,
        columns.theta_to_original(drawn.beta),
        np.minimum(drawn.slope, steepest),
        *_rows_behind(observations, columns),
        Fit(
            method=METHOD,
            reason="score and information of the last round, with the noise on both",
            noise_aware=True,
            seed=seed,
            **origins(given),
        ),
    )
    found = (
        *repetition_warnings([(r.schema.dataset, r.n) for r in given], names),
        *_hidden_warnings(given),
        *_shift_warnings(design.family, drawn),
        *_convergence_warnings(posterior),
    )
    return posterior.with_warnings(found)


def prior_of(
    release: GlmRelease, columns: ModelColumns, given: CoefficientPrior | None
) -> NormalPrior:
    """The prior of coefficients on unit scale.

    Every part of it is an independent normal law of one linear function of them: a slope, or the
    linear predictor of a row at the centre that the rounds have found (at x = 0, if the intercept
    is among the named coefficients).
    """
    named = {} if given is None else dict(given.coefficients)
    for name in named:
        if name not in columns.names:
            raise RequestError(
                f"prior: {name!r} is not a coefficient of this model; there are "
                f"{', '.join(columns.names)}"
            )
    if given is not None and given.error_sd is not None:
        raise RequestError("prior: error_sd is of linear regressions; leave it out")
    size = len(columns.names)
    centre, sds = _centre_and_sds(release)
    to_original = columns.theta_to_original(np.eye(size)).T
    precision, linear, unscaled = np.zeros((size, size)), np.zeros(size), []
    for j, name in enumerate(columns.names):
        if name in named:
            (mean, sd), row = named[name], to_original[j]
        elif name == INTERCEPT:
            mean, sd, row = 0.0, _INTERCEPT, centre
        elif np.isnan(sds[j]):
            unscaled.append(j)
            continue
        else:
            mean, sd, row = 0.0, SLOPE_SD / sds[j], np.eye(size)[j]
        precision += np.outer(row, row) / sd**2
        linear += row * mean / sd**2
    return NormalPrior(precision, linear, tuple(unscaled))


def _looked(release: GlmRelease) -> bool:
    """Whether rounds have found where the numbers are."""
    transform = release.shape.transform
    return transform != Transform.box(len(transform))


def _centre_and_sds(release: GlmRelease) -> tuple[FloatArray, FloatArray]:
    """A row w at the covariates' centre, levels at their reference; and sds, 1 for indicators.

    Sds of numbers are NaN where no round has looked for them.
    """
    numbers = 1 + np.flatnonzero(is_number(release.design.covariates))
    size, transform = len(release.design.columns), release.shape.transform
    centre, sds = np.zeros(size), np.ones(size)
    centre[0] = 1.0
    if len(numbers):
        spread, centre[numbers] = transform.spread_and_centre()
        sds[numbers] = np.linalg.norm(spread, axis=1) if _looked(release) else np.nan
    return centre, sds


def _rows_behind(
    observations: Sequence[Observed], columns: ModelColumns
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of (1, covariates) over the rows of all Releases, in original units."""
    to_unit = columns.theta_to_original(np.eye(len(columns.names)))
    total = np.zeros_like(to_unit)
    for one in observations:
        if one.law is not None:
            back = np.linalg.inv(one.map @ to_unit)
            second = one.law.covariance + np.outer(one.law.centre, one.law.centre)
            total += one.law.mass * back @ second @ back.T
    centre = total[0] / total[0, 0]
    return centre, total / total[0, 0] - np.outer(centre, centre)


def _checked(releases: Any) -> list[GlmRelease]:
    given: list[Any] = list(releases) if isinstance(releases, Sequence) else [releases]
    if not given:
        raise RequestError("releases: none given")
    for item in given:
        if not isinstance(item, GlmRelease):
            raise RequestError(f"releases: expected Releases, got {type(item).__name__}")

    def model(release: GlmRelease) -> tuple[Any, ...]:
        design = release.design
        return design.features, design.target, design.family, dict(design.schema.columns)

    for number, item in enumerate(given[1:], 2):
        if model(item) != model(given[0]):
            raise RequestError(
                f"releases: release {number} is of another regression than the first, or declares "
                "its columns otherwise; fit them apart"
            )
    digests = [item.digest for item in given]
    if len(set(digests)) < len(digests):
        raise RequestError("releases: the same Release is given twice; give it once")
    return given


# --- cautions -------------------------------------------------------------------------------------


def _hidden_warnings(releases: Sequence[GlmRelease]) -> tuple[str, ...]:
    """Directions in which the noise hides how much the rows say."""
    if not any(release.last.hides for release in releases):
        return ()
    return (
        "the noise hides what the rows say in some direction: there intervals lean on the prior "
        "and may be too narrow. More rows, a larger epsilon or fewer columns would help.",
    )


def _shift_warnings(family: Family, drawn: Draws) -> tuple[str, ...]:
    """Coefficients that are far from where the last round looked, for how well they are known.

    The next term of the expansion moves linear predictors by about ρδ²/2, with δ the shift of a
    row's predictor and ρ = |m''/m'|: 1 for counts, |1 - 2m| for yes or no. `sampler` takes it into
    account if rows are normal. For others a part is left, so it should be less than their own
    standard deviation.
    """
    square = float(np.mean(drawn.shift**2))
    spread = np.sqrt(max(square - float(np.mean(drawn.centre_shift)) ** 2, 0.0))
    bent = 1.0
    if family == "logistic":
        bent = np.sqrt(max(1 - 4 * float(np.median(drawn.slope)), _LEAST_BENT**2))
    if bent * square <= 2 * spread:
        return ()
    return (
        f"the coefficients are far from where the last round looked ({np.sqrt(square):.1g} on the "
        "scale of the linear predictor): intervals may miss, because the likelihood is known near "
        "that point only. More rows, a larger epsilon, fewer columns or, for counts, a lower bound "
        "would help.",
    )


def _convergence_warnings(posterior: GlmPosterior) -> tuple[str, ...]:
    """What the diagnostics of the sampler say; empty when all is well."""
    if posterior.theta.shape[0] == 1:
        return (ONE_CHAIN,)
    rows = posterior.summary().rows
    bad = first_few([name for name, row in rows.items() if row.rhat > BAD_RHAT])
    if bad:
        return (f"the chains disagree on {bad}: don't use these numbers; run more draws.",)
    few = [name for name, row in rows.items() if row.ess < ENOUGH_DRAWS]
    if few:
        return (
            f"few independent draws of {first_few(few)} ({ENOUGH_DRAWS} are wanted): interval ends "
            "are rough; run more draws.",
        )
    return ()
