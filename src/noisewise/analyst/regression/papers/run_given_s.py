"""The methods of Alparslan, Yıldırım & Birbil (2023): second moments of x that move, or are fixed.

They check themselves that noise is Gaussian.
"""

from __future__ import annotations

from noisewise.analyst.regression import agreement_of_draws as agreement
from noisewise.analyst.regression.checks import normal_covariates, public_n
from noisewise.analyst.regression.job import Draws, Job

NORMAL_X_THIN = 30  # iterations a draw: Metropolis moves of the statistics are slow


def run_normal_x(job: Job) -> Draws:
    """The covariates are normal, and their second moments move by Metropolis."""
    from noisewise.analyst.regression.papers import normal_x

    public_n(job, "normal_x")
    covariates, kept = normal_covariates(job, "normal_x"), agreement.kept_a_chain(job)
    with job.watched() as options:
        drawn = normal_x.sample(
            job.observations,
            job.prior,
            covariates,
            tune=NORMAL_X_THIN * 100,
            thin=NORMAL_X_THIN,
            keep_covariates=kept,
            **options,
        )
    parts = (drawn.theta, drawn.sigma2, drawn.mu, drawn.T)
    theta, sigma2, mu, T = (agreement.thinned(x, kept) for x in parts)
    return Draws(
        drawn.theta,
        drawn.sigma2,
        sample_stats=drawn.info._asdict(),
        **agreement.given_law(job, theta, sigma2, mu, T),
    )


def run_fixed_s(job: Job) -> Draws:
    """Second moments of the covariates fixed at the possible ones nearest to the released."""
    return _fixed_s(job, "fixed_s")


def run_fixed_s_aware(job: Job) -> Draws:
    """The same, with what noise on those moments does to the residuals. Not in the paper."""
    return _fixed_s(job, "fixed_s_aware")


def _fixed_s(job: Job, method: str) -> Draws:
    from noisewise.analyst.regression.papers import fixed_s

    public_n(job, method)
    aware = method == "fixed_s_aware"
    with job.watched() as options:
        drawn = fixed_s.sample(job.observations, job.prior, account_for_s=aware, **options)
    return Draws(drawn.theta, drawn.sigma2, sample_stats=drawn.info._asdict())


def run_fixed_s_fast(job: Job) -> Draws:
    """The same in closed form, with the error variance fixed too."""
    from noisewise.analyst.regression.papers import fixed_s_fast

    public_n(job, "fixed_s_fast")
    drawn = fixed_s_fast.sample(job.observations, job.prior, **job.size)
    return Draws(drawn.theta, drawn.sigma2)
