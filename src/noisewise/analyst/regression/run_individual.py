"""`individual`: every row a latent variable, with any law of the covariates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisewise.analyst.regression import agreement
from noisewise.analyst.regression.job import Draws, Job, learnt_covariates, public_n

if TYPE_CHECKING:
    from noisewise.analyst.regression import individual


def run_individual(job: Job) -> Draws:
    """Draw latent records along with the regression."""
    from noisewise.analyst.regression import individual
    from noisewise.analyst.regression.released_records import caveats

    public_n(job, "individual")
    covariates = learnt_covariates(job, "individual")
    with job.watched() as options:
        drawn = individual.sample(job.observations, job.prior, covariates, clip=job.clip, **options)
    # Coefficients of rows before clipping say nothing about sums of clipped ones.
    agrees = {} if job.clip else _agreement(job, drawn)
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        **agrees,
        warnings=caveats(job.observations),
    )


def _agreement(job: Job, drawn: individual.IndividualDraws) -> dict[str, Any]:
    kept = agreement.kept_a_chain(job)
    some = (agreement.thinned(x, kept) for x in (drawn.theta, drawn.sigma2, drawn.statistics))
    return agreement.given_statistics(job, *some)
