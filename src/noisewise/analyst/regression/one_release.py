"""What a method refuses of one Release, whatever comes with it; asked before anything runs.

For those who gather Releases and would rather lose one than all. Every method is asked by the
checks that it makes itself, so that nothing is refused here that it would take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from noisewise.analyst.regression.checks import (
    gaussian_noise,
    learnt_covariates,
    normal_covariates,
    public_n,
)
from noisewise.analyst.regression.job import Job


def check_one_release(job: Job, method: str) -> None:
    """Refuse a job of a single Release that would make the method refuse any job it is part of.

    That a method needs fourth moments is no matter of one Release: another may have them.

    Raises
    ------
    RequestError, ReleaseError
    """
    _CHECKS[method](job, method)


def _exact(job: Job, method: str) -> None:
    from noisewise.analyst.regression.exact.density import CollapsedPosterior

    CollapsedPosterior(job.observations, job.prior, normal_covariates(job, method))


def _individual(job: Job, method: str) -> None:
    from noisewise.analyst.regression.individual import MAX_RECORDS, check_records

    learnt_covariates(job, method)
    check_records(job.observations, job.prior, MAX_RECORDS)


def _gibbs(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers.gibbs_statistics import prepare_holders

    public_n(job, method)
    prepare_holders(job.observations)


def _bs_distributed(job: Job, method: str) -> None:
    gaussian_noise(job, method)
    _gibbs(job, method)


def _gibbs_noisy_aware(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers.gibbs_noisy_aware import prepare_fourth

    _gibbs(job, method)
    prepare_fourth(job.observations, job.fourth)


def _normal_x(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers.normal_x import build_model

    public_n(job, method)
    build_model(job.observations, job.prior, normal_covariates(job, method))


def _fixed_s(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers.fixed_s import fixed_moments
    from noisewise.analyst.regression.papers.given_s import prepare_holders

    public_n(job, method)
    fixed_moments(job.observations, prepare_holders(job.observations, method), method)


def _naive(_job: Job, _method: str) -> None:
    """Takes anything at face value."""


_CHECKS: Mapping[str, Callable[[Job, str], None]] = {
    "exact": _exact,
    "exact_own_means": _exact,
    "individual": _individual,
    "gibbs_update": _gibbs,
    "gibbs_prior": _gibbs,
    "gibbs_noisy": _gibbs,
    "gibbs_noisy_aware": _gibbs_noisy_aware,
    "bs_distributed": _bs_distributed,
    "normal_x": _normal_x,
    "fixed_s": _fixed_s,
    "fixed_s_aware": _fixed_s,
    "fixed_s_fast": _fixed_s,
    "naive": _naive,
}
