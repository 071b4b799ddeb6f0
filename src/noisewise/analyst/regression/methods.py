"""Which methods there are, what each is and what is wrong with it, and which one `auto` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from noisewise.analyst.regression.exact.groups import MOST_GROUPS, MOST_HOLDERS
from noisewise.analyst.regression.exact.run import run_exact, run_exact_own_laws, run_exact_varying
from noisewise.analyst.regression.individual import run_individual
from noisewise.analyst.regression.job import (
    Draws,
    Job,
    exact_covariates,
    gaussian_noise,
    learnt_covariates,
    more_rows_than_columns,
    normal_covariates,
    public_n,
)
from noisewise.analyst.regression.papers.run import (
    run_fixed_s,
    run_fixed_s_fast,
    run_gibbs_noisy,
    run_gibbs_noisy_aware,
    run_gibbs_prior,
    run_gibbs_update,
    run_naive,
    run_normal_x,
)
from noisewise.core.errors import RequestError

# --- what a method refuses of one Release, whatever comes with it ---------------------------------
# For those who gather Releases and would rather lose one than all. Every method is asked by the
# checks that it makes itself, so that nothing is refused here that it would take. That a method
# needs fourth moments is no matter of one Release: another may have them.


def _takes_any(_job: Job, _method: str) -> None:
    """Refuse nothing."""


def _exact(job: Job, method: str) -> None:
    from noisewise.analyst.regression.exact.density import CollapsedPosterior

    CollapsedPosterior(job.observations, job.regression_prior, exact_covariates(job, method))


def _individual(job: Job, method: str) -> None:
    from noisewise.analyst.regression.individual import MAX_RECORDS, check_records

    learnt_covariates(job, method)
    check_records(job.observations, job.prior, MAX_RECORDS)


def _gibbs(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers.gibbs import prepare_holders

    public_n(job, method)
    prepare_holders(job.observations)


def _bs_distributed(job: Job, method: str) -> None:
    gaussian_noise(job, method)
    _gibbs(job, method)


def _gibbs_noisy_aware(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers.fourth import prepare_fourth

    _gibbs(job, method)
    prepare_fourth(job.observations, job.fourth)


def _normal_x(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers.alparslan import build_model

    public_n(job, method)
    build_model(job.observations, job.prior, normal_covariates(job, method))


def _fixed_s(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers.alparslan import prepare_holders

    public_n(job, method)
    prepare_holders(job.observations, method)


# --- the registry ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A way to the posterior."""

    run: Callable[[Job], Draws]  # from a `Job` to `Draws`; refuses first what the method can't do
    describe: str  # what it is, in a sentence
    # From (job of one Release, the method's name): raises if the method would refuse any job that
    # this Release is part of
    check: Callable[[Job, str], None] = _takes_any
    # Which part of the privacy noise it doesn't account for, after "ignores"; empty if none
    ignores: str = ""
    # What is wrong with it whatever the Releases are; a warning of every posterior
    caveat: str = ""

    @property
    def noise_aware(self) -> bool:
        """Whether all of the privacy noise is accounted for."""
        return not self.ignores


METHODS: dict[str, Method] = {
    "exact": Method(
        run_exact,
        "NUTS on the latent statistics, no approximation but Monte Carlo error",
        _exact,
    ),
    "exact_own_laws": Method(
        run_exact_own_laws,
        "exact for several holders: each has a law of its covariates of its own, and how far apart "
        "these are is learnt",
        _exact,
    ),
    "exact_varying": Method(
        run_exact_varying,
        "exact for several holders whose coefficients may differ too: each has its own, normal "
        "about common ones, and how far apart they are is learnt",
        _exact,
    ),
    "individual": Method(
        run_individual,
        "NUTS on every latent record (MCMC-Ind); any law of the covariates, for few rows",
        _individual,
    ),
    "gibbs_update": Method(
        run_gibbs_update,
        "Gibbs sampling with a hierarchical normal prior for the covariates; central limit theorem",
        _gibbs,
    ),
    "gibbs_prior": Method(
        run_gibbs_prior,
        "Gibbs sampling with the covariates' moments fixed by their prior; central limit theorem",
        _gibbs,
        caveat="gibbs_prior fixes the law of the covariates at its prior and learns nothing about "
        "it from the Releases: if that prior is off, so are the intervals; use exact.",
    ),
    "gibbs_noisy": Method(
        run_gibbs_noisy,
        "Gibbs sampling with released fourth moments taken at face value; central limit theorem",
        _gibbs,
        ignores="the noise on the released fourth moments",
        caveat="gibbs_noisy takes the released fourth moments at face value: its intervals are a "
        "little too narrow; use exact.",
    ),
    "gibbs_noisy_aware": Method(
        run_gibbs_noisy_aware,
        "Metropolis-within-Gibbs with released fourth moments as noisy observations of x's law",
        _gibbs_noisy_aware,
        caveat="gibbs_noisy_aware has a flat prior for the covariates' moments: with few rows or "
        "much noise its intervals for slopes are too narrow; use exact.",
    ),
    "bs_distributed": Method(
        partial(run_gibbs_update, method="bs_distributed"),
        "gibbs_update for holders with Gaussian noise; central limit theorem",
        _bs_distributed,
    ),
    "normal_x": Method(
        run_normal_x,
        "Metropolis on each holder's second moments (Alparslan et al. 2023); y'y normal",
        _normal_x,
    ),
    "fixed_s": Method(
        run_fixed_s,
        "the noise on X'y accounted for, that on X'X ignored (Alparslan et al.)",
        _fixed_s,
        ignores="the noise on X'X",
        caveat="fixed_s takes the released second moments of the covariates for the true ones: "
        "its intervals are too narrow; use exact.",
    ),
    "fixed_s_aware": Method(
        partial(run_fixed_s, method="fixed_s_aware"),
        "fixed_s with what the noise on X'X does to the residuals added to their covariance",
        _fixed_s,
        ignores="that the released X'X was moved to the nearest possible one",
        caveat="fixed_s_aware accounts for the noise on the covariates' second moments only in "
        "part: its intervals are too narrow where there are several holders or much noise; use "
        "exact.",
    ),
    "fixed_s_fast": Method(
        run_fixed_s_fast,
        "fixed_s in closed form, with the error variance fixed too",
        _fixed_s,
        ignores="the noise on X'X",
        caveat="fixed_s_fast takes the released second moments of the covariates for the true ones "
        "and one guess for the error variance: its intervals are too narrow; use exact.",
    ),
    "naive": Method(
        run_naive,
        "the noisy statistics taken at face value",
        ignores="the privacy noise",
        caveat="naive ignores the privacy noise: its intervals are too narrow.",
    ),
}


_FORMER = {"exact_own_means": "exact_own_laws"}  # names of methods that others have replaced


def check_method(method: str) -> None:
    """Refuse a name that no method has."""
    if method not in ("auto", *_FORMER) and method not in METHODS:
        known = ", ".join(["auto", *METHODS])
        raise RequestError(f"method: {method!r} is unknown; there are {known}")


def choose(method: str, job: Job) -> tuple[str, str]:
    """The method's name and why it was taken.

    `auto` takes a method that is calibrated for these Releases, or refuses with the remedy.
    """
    check_method(method)
    method = _FORMER.get(method, method)
    if method != "auto":
        return method, METHODS[method].describe
    if callable(job.covariate_prior):
        return "individual", "chosen by auto: the one method with such a law of the covariates"
    if job.clip:
        return "individual", "chosen by auto: the one method that models clipping"
    more_rows_than_columns(job)
    holders = len(job.observations)
    if holders == 1:
        return "exact", "chosen by auto: no approximation but Monte Carlo error, given its model"
    reason = "chosen by auto: right for holders whose people differ, and for those who are alike"
    if holders > MOST_HOLDERS:
        reason += f"; {holders} holders in at most {MOST_GROUPS} groups of like noise, added up"
        if any(seen.family == "laplace" for seen in job.observations):
            reason += ", and the sum of their Laplace noise taken for normal"
    return "exact_own_laws", reason
