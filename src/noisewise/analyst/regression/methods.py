"""Which methods there are, what each is and what is wrong with it, and which one `auto` takes.

What compiles is loaded when it runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from noisewise.analyst.regression import agreement
from noisewise.analyst.regression.exact.groups import MOST_GROUPS, MOST_HOLDERS
from noisewise.analyst.regression.exact.run import run_exact, run_exact_own_laws, run_exact_varying
from noisewise.analyst.regression.job import (
    Draws,
    Job,
    exact_covariates,
    fourth_moments,
    gaussian_noise,
    learnt_covariates,
    more_rows_than_columns,
    normal_covariates,
    public_n,
)
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.analyst.regression.records import MAX_RECORDS, check_records, run_individual
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.analyst.regression.papers.gibbs import Knowledge

NORMAL_X_THIN = 30  # iterations a draw: Metropolis moves of the statistics are slow
ENOUGH_ROWS = 3000  # of each of several holders, for means to be off by nothing measurable

# --- the methods of the papers, as `fit` runs them ------------------------------------------------


def run_gibbs(method: str, job: Job) -> Draws:
    """Bernstein & Sheldon (2019); the methods differ in what they know about the covariates."""
    from noisewise.analyst.regression.papers import gibbs

    if method == "bs_distributed":
        gaussian_noise(job, method)
    if method.startswith("gibbs_noisy"):
        fourth_moments(job, method)
    public_n(job, method)
    covariates = _knowledge(method, job)
    more_rows_than_columns(job)
    kept = agreement.kept_a_chain(job)
    with job.watched() as options, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # `_few_rows` says it in the posterior
        drawn = gibbs.sample(
            job.observations, job.prior, covariates, keep_conditional_mean=True,
            keep_statistics=kept, **options,
        )  # fmt: skip
    kept = drawn.statistics.shape[1]
    theta, sigma2 = (agreement.thinned(x, kept) for x in (drawn.theta, drawn.sigma2))
    pooled = drawn.statistics.sum(axis=2).reshape(-1, *drawn.statistics.shape[3:])
    # Of gibbs_noisy_aware neither rests on the central limit theorem, and a refusal is no trouble.
    clt = method != "gibbs_noisy_aware"
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        **agreement.given_statistics(job, theta, sigma2, pooled),
        warnings=_few_rows(job) + gibbs.trouble(drawn.info) if clt else (),
        predictor_variance=agreement.predictor_variance(drawn.total),
    )


def _knowledge(method: str, job: Job) -> Knowledge:
    """What a Gibbs sampler knows about the covariates."""
    from noisewise.analyst.regression.papers.moments import CovariateMoments, released_moments

    known = job.covariate_prior
    if method == "gibbs_prior":
        moments = CovariateMoments.from_niw(known) if isinstance(known, NIWPrior) else known
        if not isinstance(moments, CovariateMoments):
            raise RequestError("covariate_prior: gibbs_prior needs an NIWPrior or CovariateMoments")
        return moments
    if method == "gibbs_noisy":
        return released_moments([one for one in job.fourth if one is not None])
    return job.fourth if method == "gibbs_noisy_aware" else normal_covariates(job, method)


def _few_rows(job: Job) -> tuple[str, ...]:
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


def run_normal_x(job: Job) -> Draws:
    """Alparslan et al. (2023), which itself checks that noise is Gaussian, as the next two do."""
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
    agrees = agreement.given_law(job.observations, *(agreement.thinned(x, kept) for x in parts))
    return Draws(drawn.theta, drawn.sigma2, sample_stats=drawn.info._asdict(), **agrees)


def run_fixed_s(method: str, job: Job) -> Draws:
    """Second moments of the covariates fixed at the possible ones nearest to the released."""
    from noisewise.analyst.regression.papers import alparslan

    public_n(job, method)
    if method == "fixed_s_fast":
        drawn = alparslan.sample_closed_form(job.observations, job.prior, **job.size)
        return Draws(drawn.theta, drawn.sigma2)
    aware = method == "fixed_s_aware"
    with job.watched() as options:
        sampled = alparslan.sample(job.observations, job.prior, account_for_s=aware, **options)
    return Draws(sampled.theta, sampled.sigma2, sample_stats=sampled.info._asdict())


def run_naive(job: Job) -> Draws:
    """The noisy statistics at face value: the negative control."""
    from noisewise.analyst.regression.papers.shared import sample_naive

    return Draws(*sample_naive(job.observations, job.prior, **job.size))


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
    learnt_covariates(job, method)
    check_records(job.observations, job.prior, MAX_RECORDS)


def _gibbs(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers import fourth, gibbs

    if method == "bs_distributed":
        gaussian_noise(job, method)
    public_n(job, method)
    gibbs.prepare_holders(job.observations)
    if method == "gibbs_noisy_aware":
        fourth.prepare_fourth(job.observations, job.fourth)


def _alparslan(job: Job, method: str) -> None:
    from noisewise.analyst.regression.papers import alparslan

    public_n(job, method)
    if method == "normal_x":
        alparslan.build_model(job.observations, job.prior, normal_covariates(job, method))
    else:
        alparslan.prepare_holders(job.observations, method)


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
        run_exact, "NUTS on the latent statistics, no approximation but Monte Carlo error", _exact
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
        partial(run_gibbs, "gibbs_update"),
        "Gibbs sampling with a hierarchical normal prior for the covariates; central limit theorem",
        _gibbs,
    ),
    "gibbs_prior": Method(
        partial(run_gibbs, "gibbs_prior"),
        "Gibbs sampling with the covariates' moments fixed by their prior; central limit theorem",
        _gibbs,
        caveat="gibbs_prior fixes the law of the covariates at its prior and learns nothing about "
        "it from the Releases: if that prior is off, so are the intervals; use exact.",
    ),
    "gibbs_noisy": Method(
        partial(run_gibbs, "gibbs_noisy"),
        "Gibbs sampling with released fourth moments taken at face value; central limit theorem",
        _gibbs,
        ignores="the noise on the released fourth moments",
        caveat="gibbs_noisy takes the released fourth moments at face value: its intervals are a "
        "little too narrow; use exact.",
    ),
    "gibbs_noisy_aware": Method(
        partial(run_gibbs, "gibbs_noisy_aware"),
        "Metropolis-within-Gibbs with released fourth moments as noisy observations of x's law",
        _gibbs,
        caveat="gibbs_noisy_aware has a flat prior for the covariates' moments: with few rows or "
        "much noise its intervals for slopes are too narrow; use exact.",
    ),
    "bs_distributed": Method(
        partial(run_gibbs, "bs_distributed"),
        "gibbs_update for holders with Gaussian noise; central limit theorem",
        _gibbs,
    ),
    "normal_x": Method(
        run_normal_x,
        "Metropolis on each holder's second moments (Alparslan et al. 2023); y'y normal",
        _alparslan,
    ),
    "fixed_s": Method(
        partial(run_fixed_s, "fixed_s"),
        "the noise on X'y accounted for, that on X'X ignored (Alparslan et al.)",
        _alparslan,
        ignores="the noise on X'X",
        caveat="fixed_s takes the released second moments of the covariates for the true ones: "
        "its intervals are too narrow; use exact.",
    ),
    "fixed_s_aware": Method(
        partial(run_fixed_s, "fixed_s_aware"),
        "fixed_s with what the noise on X'X does to the residuals added to their covariance",
        _alparslan,
        ignores="that the released X'X was moved to the nearest possible one",
        caveat="fixed_s_aware accounts for the noise on the covariates' second moments only in "
        "part: its intervals are too narrow where there are several holders or much noise; use "
        "exact.",
    ),
    "fixed_s_fast": Method(
        partial(run_fixed_s, "fixed_s_fast"),
        "fixed_s in closed form, with the error variance fixed too",
        _alparslan,
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
