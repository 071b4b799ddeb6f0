"""A Release that was made in rounds, as an ordinary observation in coordinates of its own.

**Which rounds.** The last round U is used alone. Given all earlier ones it is

    U = M A M' + E,

with a map M that they have fixed: its likelihood is exact, whatever they said, and has most of the
budget behind it. What the earlier rounds say about A beyond M is left out. They clip more, and what
their clipping does to slopes is not known.

**Which coordinates.** U is about u = (c, w · indicators, z) with z = L⁻¹(x - m), a mixture of all
numbers x. The noise E is symmetric and normal, with sd s on the diagonal and s/√2 off it; what
clipping may have done is carried as more noise of the same form. So for orthogonal Q the matrices
E and QEQ' have one law. Let the model's own numbers come first, its target last among them, and
then all others. With a Q that makes QL⁻¹ lower triangular the j-th of z' = Q(z) is a function of
the first j numbers alone. Hence the Gram matrix of the model's z' is a block of the turned one: a
regression that leaves columns out, or has another target, is as free as in the bounds' own
coordinates. Divided by the radius every z' is in [-1, 1], and the constant and the indicators are
divided by c and w.

**Which model.** With w' = K w, w = (1, x, y), the last row of K the only one that sees y,

    y' = w'_x · theta' + error'   is   y = (1, x) · theta + error,
    theta = (K_xx' theta' - K_yx) / K_yy,   sigma = sigma' / K_yy.

**Which prior.** That of the regression is the one of any other Release, stated in these
coordinates: a prior of slopes on y is one of slopes on y' with another centre. (A scale-free prior
with slopes of 0 on y' has another meaning: y' is what the earlier rounds have left of y, so it
expects little of every slope, also of those of categories, which those rounds have not seen, and
its intervals of rare levels missed.) The covariates' prior is the scale-free one in these
coordinates. Rows in a ball of radius 1 have a mean square of at most 1 in all numbers together, so
the upper guides of sds are those of rows in such a ball (`priors.ball_share`): 0.9 to 1.4 sds of a
number at the smallest radius that rounds take, √(3q) sds, and more at larger ones. Since the last
round is judged given the earlier ones, a prior that depends on them uses nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.model_columns import ModelColumns
from noisewise.analyst.regression.job import Draws, Job
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.original_units import moved
from noisewise.analyst.regression.priors import (
    ScaleFreeCovariates,
    ball_share,
)
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.kinds.rounds import is_number
from noisewise.core.statistics.ball_moments import ROW_BITS

HOW = "of the rounds the last one is used, the earlier ones have only found its coordinates"
METHODS_WITH_ROUNDS = ("auto", "exact")


@dataclass(frozen=True, eq=False)
class LastRound:
    """The last round of a Release, turned for one model.

    Parameters
    ----------
    observation : Observation
        Over w' = (1, x', y').
    K : array, shape (P, P)
        Takes w = (1, x, y) on unit scale to w'.
    covariates : ScaleFreeCovariates
        The prior of x'.
    warnings : tuple of str
    """

    observation: Observation
    K: FloatArray
    covariates: ScaleFreeCovariates
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, release: Release, columns: ModelColumns, name: str) -> LastRound:
        """Turn the last round of a Release, which messages call `name`, for a model."""
        rounds, design = release.rounds, release.design
        if rounds is None:
            raise ValueError("there are no rounds in this Release")
        last, rows = rounds.last, release.noisy_n
        observed = last.observed(design, rounds.carried(design, rows))
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
        values = N @ observed.values @ N.T * np.outer(unit, unit)
        known = observed.precision == 0.0
        scale = np.where(known, 0.0, np.outer(unit, unit) / np.sqrt(observed.precision + known))
        # The i-th of the model's numbers is at the place of the i-th of all numbers.
        slot = dict(zip(own, numbers, strict=False))
        pick = [slot.get(p, p) for p in kept]
        values, scale = values[np.ix_(pick, pick)], scale[np.ix_(pick, pick)]
        values = (values + values.T) / 2
        if release.n is None:
            seen = Observation.with_private_n(values, scale, "gaussian", name)
        else:
            values[0, 0] = release.n
            seen = Observation(release.n, values, scale, "gaussian", name)
        guide = 0.5 * float(np.sqrt(ball_share(len(numbers), 1.0)))
        guides = [0.5 if column.is_indicator else guide for column in columns.covariates]
        return cls(
            seen,
            (K * unit[:, None])[np.ix_(pick, kept)],
            ScaleFreeCovariates(np.array(guides), len(guides) + 1.0),
            far_rows_warnings(release),
        )

    @property
    def _affine(self) -> tuple[FloatArray, FloatArray, float]:
        """M, t and v of theta = M theta' + t and sigma2 = v sigma2'."""
        y = float(self.K[-1, -1])
        return self.K[:-1, :-1].T / y, -self.K[-1, :-1] / y, y**-2

    def turned(self, job: Job) -> Job:
        """The job with its prior of the regression, on unit scale, in these coordinates."""
        M, t, v = self._affine
        prior = moved(job.regression_prior, M, t, v)
        return replace(job, regression_prior=prior, covariate_prior=self.covariates)

    def to_unit(self, drawn: Draws) -> Draws:
        """Draws on unit scale. How single sums agree with the model is of no use there.

        A slope is made of several in these coordinates, and gets the largest pull of theirs.
        """
        M, t, v = self._affine
        mean, pull = drawn.conditional_mean, drawn.prior_pull
        if pull:
            pull = tuple(np.where(M[1:, 1:] != 0.0, np.array(pull), 0.0).max(axis=1).tolist())
        return replace(
            drawn,
            theta=drawn.theta @ M.T + t,
            sigma2=drawn.sigma2 * v,
            conditional_mean=None if mean is None else mean @ M.T + t,
            discrepancies=(),
            replications=(),
            prior_pull=pull,
            warnings=(*drawn.warnings, *self.warnings),
            how="; ".join(filter(None, (drawn.how, HOW))),
        )


def the_one(
    releases: Sequence[Release], columns: ModelColumns, names: Sequence[str]
) -> LastRound | None:
    """The last round of a single Release; None if no Release has rounds."""
    for release, name in zip(releases, names, strict=True):
        if release.rounds is not None and len(releases) > 1:
            raise RequestError(
                f"{name} was made in rounds, in coordinates of its own, and cannot be fitted "
                "together with other Releases; fit each of them alone and compare"
            )
    first = releases[0]
    return None if first.rounds is None else LastRound.of(first, columns, names[0])


def check_options(name: str, method: str, covariate_prior: Any, *, clip: bool) -> None:
    """Refuse what can't be done with a Release that was made in rounds."""
    what = ""
    if method not in METHODS_WITH_ROUNDS:
        what = f"method: {method} cannot read it"
    elif clip:
        what = "clip: it needs method individual, which cannot read it"
    elif covariate_prior is not None:
        what = "covariate_prior: none can be given, because its coordinates mix the covariates"
    if what:
        raise RequestError(
            f"{what}: {name} was made in rounds. Use exact, which auto takes, with its own prior "
            "of the covariates"
        )


def far_rows_warnings(release: Release) -> tuple[str, ...]:
    """Whether clipping may have moved the slopes by more than intervals account for."""
    rounds, design, n = release.rounds, release.design, release.noisy_n
    if rounds is None or not rounds.warns(design, n):
        return ()
    return (
        f"far rows may decide this regression: about {rounds.shrunk_rows(design, n):,.0f} rows "
        "were so far from the rest that they were moved towards it before they were summed. The "
        "slopes describe the others, and intervals may miss the regression on all rows. Where "
        "amounts or counts have long tails, ask for a Release of their logarithms.",
    )


def lower_triangular(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """An orthogonal Q and a lower triangular T with Q matrix = T and a positive diagonal of T."""
    Q, R = np.linalg.qr(matrix[:, ::-1])
    sign = np.where(np.diag(R)[::-1] < 0.0, -1.0, 1.0)[:, None]
    return sign * Q.T[::-1], sign * R[::-1, ::-1]
