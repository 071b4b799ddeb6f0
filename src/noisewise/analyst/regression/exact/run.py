"""`exact` and `exact_own_means`: no approximation but Monte Carlo error."""

from __future__ import annotations

import numpy as np

from noisewise.analyst.regression import agreement
from noisewise.analyst.regression.job import Draws, Job, more_rows_than_columns, normal_covariates


def run_exact(job: Job) -> Draws:
    """One law of the covariates for all holders."""
    return _run(job, "exact", own_means=False)


def run_exact_own_means(job: Job) -> Draws:
    """The covariates of each holder have a mean of their own."""
    return _run(job, "exact_own_means", own_means=True)


def _run(job: Job, method: str, *, own_means: bool) -> Draws:
    """Draw from the collapsed posterior, and compare the Releases with what it would release."""
    from noisewise.analyst.regression.exact import sampler as exact
    from noisewise.analyst.regression.exact.density import CollapsedPosterior

    more_rows_than_columns(job)
    collapsed = CollapsedPosterior(
        job.observations, job.prior, normal_covariates(job, method), own_means=own_means
    )
    with job.watched() as options:
        drawn = exact.sample_posterior(collapsed, keep_covariates=False, **options)
    points = drawn.x.reshape(-1, drawn.x.shape[-1])
    some = np.linspace(0, len(points) - 1, min(agreement.CHECKED, len(points))).astype(int)
    rng = np.random.default_rng(job.seed)
    theta, sigma2, _, mu, T = collapsed.draw_parameters(rng, points[some])
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        **agreement.given_law(job, theta, sigma2, mu, T),
    )
