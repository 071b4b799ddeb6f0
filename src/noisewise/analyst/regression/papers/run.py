"""How the samplers of the papers are run for `fit(method=...)`: checks, lengths, what is kept.

They load a sampler when it runs: all of them compile.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from noisewise.analyst.regression import agreement
from noisewise.analyst.regression.job import (
    Draws,
    Job,
    fourth_moments,
    gaussian_noise,
    more_rows_than_columns,
    normal_covariates,
    public_n,
)
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.analyst.regression.papers import gibbs

NORMAL_X_THIN = 30  # iterations a draw: Metropolis moves of the statistics are slow
ENOUGH_ROWS = 3000  # of each of several holders, for means to be off by nothing measurable


# --- Bernstein & Sheldon (2019) -------------------------------------------------------------------


def run_gibbs_update(job: Job, method: str = "gibbs_update") -> Draws:
    """The covariates are normal with unknown mean and covariance.

    `bs_distributed` is its name for several holders, who add Gaussian noise.
    """
    if method == "bs_distributed":
        gaussian_noise(job, method)
    public_n(job, method)
    return _gibbs(job, normal_covariates(job, method))


def run_gibbs_prior(job: Job) -> Draws:
    """The covariates' moments are known."""
    from noisewise.analyst.regression.papers.moments import CovariateMoments

    public_n(job, "gibbs_prior")
    known = job.covariate_prior
    if isinstance(known, NIWPrior):
        known = CovariateMoments.from_niw(known)
    if not isinstance(known, CovariateMoments):
        raise RequestError("covariate_prior: gibbs_prior needs an NIWPrior or CovariateMoments")
    return _gibbs(job, known)


def run_gibbs_noisy(job: Job) -> Draws:
    """The covariates' moments are released ones, at face value."""
    from noisewise.analyst.regression.papers.moments import released_moments

    fourth_moments(job, "gibbs_noisy")
    public_n(job, "gibbs_noisy")
    return _gibbs(job, released_moments([one for one in job.fourth if one is not None]))


def run_gibbs_noisy_aware(job: Job) -> Draws:
    """Released fourth moments are noisy observations of latent sums."""
    fourth_moments(job, "gibbs_noisy_aware")
    public_n(job, "gibbs_noisy_aware")
    # Metropolis moves in place of the central limit theorem: a refusal is no trouble.
    return replace(_gibbs(job, job.fourth), warnings=())


def _gibbs(job: Job, covariates: gibbs.Knowledge) -> Draws:
    from noisewise.analyst.regression.papers import gibbs

    more_rows_than_columns(job)
    kept = agreement.kept_a_chain(job)
    with job.watched() as options, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # `few_rows` says it in the posterior
        drawn = gibbs.sample(
            job.observations, job.prior, covariates, keep_conditional_mean=True,
            keep_statistics=kept, **options,
        )  # fmt: skip
    kept = drawn.statistics.shape[1]
    theta, sigma2 = (agreement.thinned(x, kept) for x in (drawn.theta, drawn.sigma2))
    pooled = drawn.statistics.sum(axis=2).reshape(-1, *drawn.statistics.shape[3:])
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        **agreement.given_statistics(job, theta, sigma2, pooled),
        warnings=few_rows(job) + gibbs.trouble(drawn.info),
        predictor_variance=agreement.predictor_variance(drawn.total),
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


# --- Alparslan, Yıldırım & Birbil (2023); they check themselves that noise is Gaussian ------------


def run_normal_x(job: Job) -> Draws:
    """The covariates are normal, and their second moments move by Metropolis."""
    from noisewise.analyst.regression.papers import alparslan

    public_n(job, "normal_x")
    covariates, kept = normal_covariates(job, "normal_x"), agreement.kept_a_chain(job)
    thin = NORMAL_X_THIN
    with job.watched() as options:
        drawn = alparslan.sample(
            job.observations, job.prior, covariates, tune=thin * 100, thin=thin,
            keep_covariates=kept, **options,
        )  # fmt: skip
    parts = (drawn.theta, drawn.sigma2, drawn.mu, drawn.T)
    theta, sigma2, mu, T = (agreement.thinned(x, kept) for x in parts)
    stats = drawn.info._asdict()
    agrees = agreement.given_law(job.observations, theta, sigma2, mu, T)
    return Draws(drawn.theta, drawn.sigma2, sample_stats=stats, **agrees)


def run_fixed_s(job: Job, method: str = "fixed_s") -> Draws:
    """Second moments of the covariates fixed at the possible ones nearest to the released.

    `fixed_s_aware`, not in the paper, adds what noise on them does to the residuals.
    """
    from noisewise.analyst.regression.papers import alparslan

    public_n(job, method)
    aware = method == "fixed_s_aware"
    with job.watched() as options:
        drawn = alparslan.sample(job.observations, job.prior, account_for_s=aware, **options)
    return Draws(drawn.theta, drawn.sigma2, sample_stats=drawn.info._asdict())


def run_fixed_s_fast(job: Job) -> Draws:
    """The same in closed form, with the error variance fixed too."""
    from noisewise.analyst.regression.papers import alparslan

    public_n(job, "fixed_s_fast")
    drawn = alparslan.sample_closed_form(job.observations, job.prior, **job.size)
    return Draws(drawn.theta, drawn.sigma2)


# --- the negative control -------------------------------------------------------------------------


def run_naive(job: Job) -> Draws:
    """Take the noisy statistics at face value."""
    from noisewise.analyst.regression.papers.shared import sample_naive

    return Draws(*sample_naive(job.observations, job.prior, **job.size))
