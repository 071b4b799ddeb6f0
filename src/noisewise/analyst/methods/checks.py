"""What a method can't do, refused with the remedy before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import RequestError
from ..priors import CovariatePrior
from .job import Job

if TYPE_CHECKING:
    from ..models.records import Covariates


def normal_covariates(job: Job, method: str) -> CovariatePrior:
    """The covariates' prior, for methods that take them for normal and not clipped."""
    given = learnt_covariates(job, method)
    if job.clip or not isinstance(given, CovariatePrior):
        what = "clip" if job.clip else "covariate_prior: a law of your own"
        raise RequestError(f"{what} needs method='individual'; {method} has normal covariates")
    return given


def learnt_covariates(job: Job, method: str) -> CovariatePrior | Covariates:
    """The covariates' law, for methods that learn its parameters from the Releases."""
    given = job.covariate_prior
    if not callable(given) and not isinstance(given, CovariatePrior):
        raise RequestError(
            f"covariate_prior: CovariateMoments need method='gibbs_prior'; {method} learns the "
            "moments from the Releases"
        )
    return given


def public_n(job: Job, method: str) -> None:
    """Refuse Releases whose number of rows is private."""
    if any(seen.n_is_private for seen in job.observations):
        raise RequestError(
            f"method: {method} needs to know the number of rows, which is private in a Release of "
            "add_remove_one; use exact"
        )


def fourth_moments(job: Job, method: str) -> None:
    """Refuse Releases none of which has fourth moments of the covariates."""
    if not any(job.fourth):
        raise RequestError(
            f"method: {method} needs fourth moments of the covariates, and no Release has them; "
            "use exact (a holder would publish them with --fourth-moments, at a cost that is "
            "better spent on the second moments)"
        )
