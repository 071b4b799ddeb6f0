"""`individual`: every row a latent variable, with any law of the covariates."""

from __future__ import annotations

from .checks import learnt_covariates, public_n
from .job import Draws, Job


def run_individual(job: Job) -> Draws:
    """Draw latent records along with the regression."""
    from ..models.released_records import caveats
    from ..samplers import individual

    public_n(job, "individual")
    covariates = learnt_covariates(job, "individual")
    with job.watched() as options:
        drawn = individual.sample(job.observations, job.prior, covariates, clip=job.clip, **options)
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        warnings=caveats(job.observations),
    )
