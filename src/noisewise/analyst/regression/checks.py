"""What a method can't do, refused with the remedy before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisewise.analyst.regression.job import Job
from noisewise.analyst.regression.observation import named
from noisewise.analyst.regression.priors import CovariatePrior
from noisewise.core.errors import ReleaseError, RequestError

if TYPE_CHECKING:
    from noisewise.analyst.regression.records import Covariates


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


def more_rows_than_columns(job: Job) -> None:
    """Refuse holders with fewer rows than the latent statistics need to be positive definite."""
    columns = job.observations[0].k + 1
    for name, seen in named(job.observations):
        if not seen.n_is_private and seen.n <= columns:
            raise ReleaseError(
                f"{name} has {seen.n} rows and {columns} columns besides the intercept; a "
                "posterior needs more rows than columns: choose fewer features, or leave it out"
            )


def public_n(job: Job, method: str) -> None:
    """Refuse Releases whose number of rows is private."""
    for name, seen in named(job.observations):
        if seen.n_is_private:
            raise RequestError(
                f"method: {method} needs to know the number of rows, which is private in {name} "
                "(neighbours: add_remove_one); use exact"
            )


def gaussian_noise(job: Job, method: str) -> None:
    """Refuse Releases with Laplace noise, for `bs_distributed`."""
    for name, seen in named(job.observations):
        if seen.family != "gaussian":
            raise RequestError(
                f"method: {method} is for Gaussian noise, and {name} has Laplace noise; use "
                "gibbs_update, its like for any noise"
            )


def fourth_moments(job: Job, method: str) -> None:
    """Refuse Releases none of which has fourth moments of the covariates."""
    if not any(job.fourth):
        raise RequestError(
            f"method: {method} needs fourth moments of the covariates, and no Release has them; "
            "use exact (a holder would publish them with --fourth-moments, at a cost that is "
            "better spent on the second moments)"
        )
