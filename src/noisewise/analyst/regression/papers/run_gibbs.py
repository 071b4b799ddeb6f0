"""The Gibbs samplers of Bernstein & Sheldon (2019); they differ in what they know of x."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from noisewise.analyst.regression import agreement_of_draws as agreement
from noisewise.analyst.regression.checks import (
    fourth_moments,
    gaussian_noise,
    more_rows_than_columns,
    normal_covariates,
    public_n,
)
from noisewise.analyst.regression.job import Draws, Job
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.analyst.regression.papers import gibbs

ENOUGH_ROWS = 3000  # of each of several holders, for means to be off by nothing measurable


def run_gibbs_update(job: Job) -> Draws:
    """The covariates are normal with unknown mean and covariance."""
    return _update(job, "gibbs_update")


def run_bs_distributed(job: Job) -> Draws:
    """`gibbs_update` under the name it has for several holders, who add Gaussian noise."""
    gaussian_noise(job, "bs_distributed")
    return _update(job, "bs_distributed")


def _update(job: Job, method: str) -> Draws:
    from noisewise.analyst.regression.papers import gibbs_update

    public_n(job, method)
    covariates = normal_covariates(job, method)
    with _sampling(job) as options:
        drawn = gibbs_update.sample(job.observations, job.prior, covariates, **options)
    return _by_central_limit(job, drawn)


def run_gibbs_prior(job: Job) -> Draws:
    """The covariates' moments are known."""
    from noisewise.analyst.regression.papers import gibbs_prior
    from noisewise.analyst.regression.papers.moments import CovariateMoments

    public_n(job, "gibbs_prior")
    known = job.covariate_prior
    if not isinstance(known, NIWPrior | CovariateMoments):
        raise RequestError("covariate_prior: gibbs_prior needs an NIWPrior or CovariateMoments")
    with _sampling(job) as options:
        drawn = gibbs_prior.sample(job.observations, job.prior, known, **options)
    return _by_central_limit(job, drawn)


def run_gibbs_noisy(job: Job) -> Draws:
    """The covariates' moments are released ones, at face value."""
    from noisewise.analyst.regression.papers import gibbs_noisy

    fourth_moments(job, "gibbs_noisy")
    public_n(job, "gibbs_noisy")
    with _sampling(job) as options:
        drawn = gibbs_noisy.sample(job.observations, job.prior, job.fourth, **options)
    return _by_central_limit(job, drawn)


def run_gibbs_noisy_aware(job: Job) -> Draws:
    """Released fourth moments are noisy observations of latent sums."""
    from noisewise.analyst.regression.papers import gibbs_noisy_aware

    fourth_moments(job, "gibbs_noisy_aware")
    public_n(job, "gibbs_noisy_aware")
    with _sampling(job) as options:
        drawn = gibbs_noisy_aware.sample(job.observations, job.prior, job.fourth, **options)
    # Metropolis moves in place of the central limit theorem: a refusal is no trouble.
    return _draws(job, drawn, ())


@contextmanager
def _sampling(job: Job) -> Iterator[dict[str, Any]]:
    more_rows_than_columns(job)
    with job.watched() as options, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # `few_rows` says it in the posterior
        kept = agreement.kept_a_chain(job)
        yield options | {"keep_conditional_mean": True, "keep_statistics": kept}


def _by_central_limit(job: Job, drawn: gibbs.Draws) -> Draws:
    from noisewise.analyst.regression.papers import gibbs

    return _draws(job, drawn, few_rows(job) + gibbs.trouble(drawn.info))


def _draws(job: Job, drawn: gibbs.Draws, found: tuple[str, ...]) -> Draws:
    kept = drawn.statistics.shape[1]
    theta, sigma2 = (agreement.thinned(x, kept) for x in (drawn.theta, drawn.sigma2))
    pooled = drawn.statistics.sum(axis=2).reshape(-1, *drawn.statistics.shape[3:])
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        **agreement.given_statistics(job, theta, sigma2, pooled),
        warnings=found,
    )


def few_rows(job: Job) -> tuple[str, ...]:
    """What is wrong with the central limit theorem for these holders; nothing if all is well."""
    fewest = min(seen.n for seen in job.observations)
    if len(job.observations) > 1 and fewest < ENOUGH_ROWS:
        return (
            "several holders with few rows: the central limit theorem that Gibbs methods rest on "
            f"can shift means by a fifth of a standard deviation there ({ENOUGH_ROWS} rows each "
            "are wanted); use exact.",
        )
    if fewest >= 4 * (job.observations[0].k + 2):
        return ()
    return (
        "few rows for the central limit theorem that Gibbs methods rest on (at least four times "
        "the number of columns are wanted): intervals may be off; use exact.",
    )
