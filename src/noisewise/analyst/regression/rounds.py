"""Releases that were made in rounds, as observations in coordinates of their own.

**What is estimated.** Given all earlier rounds the last one is

    U = M A M' + E,

with a map M that they have fixed and A the moments of the rows within reach: rows beyond its ball
of radius R are moved onto it, all numbers together (`holder.reach`). Map and radius are public
constants, so this likelihood is exact, and the regression of the moved rows is what it informs.
The exploring rounds, or looks, are of rows in other, smaller balls, and say nothing of these rows
that could be added without assuming how rows are distributed. They are left out.

**Which coordinates.** U is about u = (c, w · indicators, z) with z = L⁻¹(x - m), a mixture of all
numbers x. The noise E is symmetric and normal, with sd s on the diagonal and s/√2 off it. So for
orthogonal Q the matrices E and QEQ' have one law. Let the model's own numbers come first, its
target last among them, and then all others. With a Q that makes QL⁻¹ lower triangular the j-th of
z' = Q(z) is a function of the first j numbers alone. Hence the Gram matrix of the model's z' is a
block of the turned one: a regression that leaves columns out, or has another target, is as free as
in the bounds' own coordinates. Divided by the radius every z' is in [-1, 1], and the constant and
the indicators are divided by c and w.

**Which model.** With w' = K w, w = (1, x, y), the last row of K the only one that sees y,

    y' = w'_x · theta' + error'   is   y = (1, x) · theta + error,
    theta = (K_xx' theta' - K_yx) / K_yy,   sigma = sigma' / K_yy.

**Which prior.** That of the regression is the one of any other Release, stated in these
coordinates: a prior of slopes on y is one of slopes on y' with another centre. (A scale-free prior
with slopes of 0 on y' has another meaning: y' is what the earlier rounds have left of y, so it
expects little of every slope, also of those of categories, which those rounds have not seen, and
its intervals of rare levels missed.) The covariates' prior is the scale-free one in these
coordinates, with uniform correlations (nu = k + 1): the earlier rounds have left none near 1. Rows
in a ball of radius 1 have a mean square of at most 1 in all numbers together, so the upper guides
of sds are those of rows in such a ball (`priors.ball_share`): 0.9 to 1.4 sds of a number at the
smallest radius that rounds take, √(3q) sds, and more at larger ones. Since the last round is judged
given the earlier ones, a prior that depends on them uses nothing twice.

**Several holders.** Each with rounds has coordinates K_j w, others have w itself. Where statistics
of holders meet, in the regression and in the law of the covariates, they must be of one vector:
that of the holder with rounds who has most rows, K w. Both priors are stated there. Of another
holder the entries of C_j A C_j', C_j = K_j K⁻¹ (K⁻¹ for one without rounds), have independent
noise, and the sampler takes it there (`Observation.map`, `exact.kernels`): nothing is approximate.
Like populations have been whitened alike, so C_j is near the identity, and the sampler's units fit
all of them. Indicators are the same in all coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.job import Draws, Job
from noisewise.analyst.regression.observation import ModelColumns, Observation, observe_one
from noisewise.analyst.regression.original_units import moved
from noisewise.analyst.regression.priors import (
    ScaleFreeCovariates,
    ball_share,
)
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.kinds.rounds import is_number
from noisewise.core.statistics.ball_moments import ROW_BITS

HOW = "of the rounds the last one is used; the earlier ones have found its coordinates"
HOW_OF_SEVERAL = "of the rounds of each holder the last one is used, in its own coordinates"
# exact_own_means is a former name of exact_own_laws
METHODS_WITH_ROUNDS = (
    "auto",
    "exact",
    "exact_own_laws",
    "exact_own_means",
    "exact_varying",
    "naive",
)
_REMEDY = (
    "{} was made in rounds. Use exact (or exact_own_laws for several holders), as auto does, with "
    "its own prior of the covariates, or ask the holder for a Release with rounds=1"
)


@dataclass(frozen=True, eq=False)
class LastRound:
    """The last round of a Release, turned for one model."""

    observation: Observation  # over w' = (1, x', y')
    K: FloatArray  # (P, P), takes w = (1, x, y) on unit scale to w'
    covariates: ScaleFreeCovariates  # the prior of x'

    @classmethod
    def of(cls, release: Release, columns: ModelColumns, name: str) -> LastRound:
        """Turn the last round of a Release, which messages call `name`, for a model."""
        rounds, design = release.rounds, release.design
        if rounds is None:
            raise ValueError("there are no rounds in this Release")
        last = rounds.last
        observed = last.observed(design)
        # Model columns by their places in the design; the model's numbers first, y last of them.
        numbers = [i for i, number in enumerate(is_number(design), 1) if number]
        place = {known: i for i, known in enumerate(design.names)}
        kept = [place[known] for known in (*columns.names, columns.target)]
        own = [p for p in kept if p in numbers]
        order = [*own, *(p for p in numbers if p not in own)]
        turn, lower = lower_triangular(observed.map[np.ix_(numbers, order)])
        N, K = np.eye(len(observed.map)), observed.map.copy()
        N[np.ix_(numbers, numbers)] = turn
        K[numbers, 0] = turn @ K[numbers, 0]
        K[np.ix_(numbers, order)] = lower
        unit = np.full(len(N), float(last.shape.weight))
        unit[0], unit[numbers] = last.shape.constant, last.shape.radius
        unit = (1 << ROW_BITS) / unit
        published = observed.precision > 0.0
        sd = np.sqrt(np.divide(1.0, observed.precision, where=published, out=np.zeros_like(N)))
        values = N @ observed.values @ N.T * np.outer(unit, unit)
        scale = np.outer(unit, unit) * sd
        # The i-th of the model's numbers is at the place of the i-th of all numbers.
        slot = dict(zip(own, numbers, strict=False))
        pick = [slot.get(p, p) for p in kept]
        values, scale = values[np.ix_(pick, pick)], scale[np.ix_(pick, pick)]
        values = (values + values.T) / 2
        if release.n is None:
            observation = Observation.with_private_n(values, scale, "gaussian", name)
        else:
            values[0, 0] = release.n
            observation = Observation(release.n, values, scale, "gaussian", name)
        guide = 0.5 * float(np.sqrt(ball_share(len(numbers), 1.0)))
        guides = [0.5 if column.is_indicator else guide for column in columns.covariates]
        return cls(
            observation,
            (K * unit[:, None])[np.ix_(pick, kept)],
            ScaleFreeCovariates(np.array(guides), len(guides) + 1.0),
        )


@dataclass(frozen=True, eq=False)
class InRounds:
    """What all Releases say, at least one of them made in rounds."""

    # By Release, as it was published; the map of each is from the common coordinates
    observations: tuple[Observation, ...]
    K: FloatArray  # (P, P), takes w = (1, x, y) on unit scale to the common coordinates w'
    covariates: ScaleFreeCovariates  # the prior of x'
    maps: tuple[FloatArray, ...]  # by Release, from w to the coordinates it was published in
    name: str = ""  # what messages call the Release whose coordinates these are

    @classmethod
    def of(
        cls, releases: Sequence[Release], columns: ModelColumns, names: Sequence[str]
    ) -> InRounds | None:
        """Bring all Releases to common coordinates; None if no one was made in rounds."""
        named = list(zip(releases, names, strict=True))
        turned = [None if r.rounds is None else LastRound.of(r, columns, n) for r, n in named]
        rows, common = 0.0, None
        for release, last in zip(releases, turned, strict=True):
            if last is not None and (common is None or release.noisy_n > rows):
                rows, common = release.noisy_n, last
        if common is None:
            return None
        # The last round moves numbers alone, so indicators are still 0 or 1 (but not in means).
        covariates = columns.covariates if columns.schema.unit_column is None else ()
        levels = tuple(i for i, c in enumerate(covariates, 1) if c.is_indicator)
        seen: list[Observation] = []
        maps: list[FloatArray] = []
        for (release, name), last in zip(named, turned, strict=True):
            own = observe_one(release, columns, name) if last is None else last.observation
            if last is not None:
                own = replace(own, indicators=levels)
            K = np.eye(len(common.K)) if last is None else last.K
            if last is not common:
                own = replace(own, map=_between(K, common.K, columns))
            seen.append(own)
            maps.append(K)
        of = common.observation.name
        return cls(tuple(seen), common.K, common.covariates, tuple(maps), of)

    def check_options(self, method: str, covariate_prior: Any, *, clip: bool) -> None:
        """Refuse what can't be done with a Release that was made in rounds."""
        check_method_with_rounds(method, self.name)
        what = ""
        if clip:
            what = "clip: it needs method individual, which cannot read it"
        elif covariate_prior is not None:
            what = "covariate_prior: none can be given, because its coordinates mix the covariates"
        if what:
            raise RequestError(f"{what}: {_REMEDY.format(self.name)}")

    @property
    def affine(self) -> tuple[FloatArray, FloatArray, float]:
        """M, t and v of theta = M theta' + t and sigma2 = v sigma2'."""
        y = float(self.K[-1, -1])
        return self.K[:-1, :-1].T / y, -self.K[-1, :-1] / y, y**-2

    def turned(self, job: Job) -> Job:
        """The job with its prior of the regression, on unit scale, in these coordinates."""
        M, t, v = self.affine
        prior = moved(job.regression_prior, M, t, v)
        return replace(
            job, regression_prior=prior, covariate_prior=self.covariates, affine=self.affine
        )

    def regression_to_unit(
        self, theta: FloatArray, sigma2: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Coefficients (..., d) and error variances on unit scale."""
        M, t, v = self.affine
        return theta @ M.T + t, sigma2 * v

    def to_unit(self, drawn: Draws) -> Draws:
        """Draws on unit scale. What single sums would be under the model is of no use there.

        A slope is made of several in these coordinates, and gets the largest pull of theirs.
        """
        M, t, _ = self.affine
        theta, sigma2 = self.regression_to_unit(drawn.theta, drawn.sigma2)
        several = len(self.observations) > 1
        mean, pull, holders = drawn.conditional_mean, drawn.prior_pull, drawn.holders
        if holders is not None:  # its spreads are on unit scale already
            own = self.regression_to_unit(holders.theta, holders.sigma2)
            holders = replace(holders, theta=own[0], sigma2=own[1])
        # x' = K x + constants for the covariates alone, so that x'b is K⁻ᵀ b times theirs.
        inner, back = drawn.predictor_variance, np.linalg.inv(self.K[1:-1, 1:-1])
        if pull:
            pull = tuple(np.where(M[1:, 1:] != 0.0, np.array(pull), 0.0).max(axis=1).tolist())
        return replace(
            drawn,
            theta=theta,
            sigma2=sigma2,
            conditional_mean=None if mean is None else mean @ M.T + t,
            discrepancies=drawn.discrepancies if several else (),
            replications=(),
            prior_pull=pull,
            how="; ".join(filter(None, (drawn.how, HOW_OF_SEVERAL if several else HOW))),
            predictor_variance=None if inner is None else lambda b: inner(b @ back),
            holders=holders,
        )


def check_method_with_rounds(method: str, name: str) -> None:
    """Refuse a method that cannot read a Release in rounds, which messages call `name`."""
    if method not in METHODS_WITH_ROUNDS:
        raise RequestError(f"method: {method} cannot read it: {_REMEDY.format(name)}")


def _between(K: FloatArray, common: FloatArray, columns: ModelColumns) -> FloatArray:
    """K common⁻¹, lower triangular as both are. The constant and indicators are left alone."""
    found = np.tril(np.linalg.solve(common.T, K.T).T)
    same = [0, *(i for i, c in enumerate(columns.covariates, 1) if c.is_indicator)]
    found[same] = np.eye(len(K))[same]
    return found


def lower_triangular(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """An orthogonal Q and a lower triangular T with Q matrix = T and a positive diagonal of T."""
    Q, R = np.linalg.qr(matrix[:, ::-1])
    sign = np.where(np.diag(R)[::-1] < 0.0, -1.0, 1.0)[:, None]
    return sign * Q.T[::-1], sign * R[::-1, ::-1]
