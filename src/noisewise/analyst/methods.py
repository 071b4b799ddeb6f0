"""Ways to the posterior, by name. Each takes a Job and gives Draws, both on unit scale."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._progress import progress_bar
from ..core.errors import ReleaseError, RequestError
from .observation import Observation
from .priors import CovariatePrior, NIWPrior, RegressionPrior

if TYPE_CHECKING:
    from .models.moments import CovariateMoments, FourthMomentObservation
    from .models.records import Covariates
    from .models.replication import Replication

FloatArray = NDArray[np.float64]
NORMAL_X_THIN = 30  # iterations a draw: Metropolis moves of the statistics are slow
CHECKED = 500  # posterior draws that the Releases are compared with


@dataclass(frozen=True)
class Job:
    """What every method is given.

    Parameters
    ----------
    observations : sequence of Observation
    fourth : sequence of FourthMomentObservation or None
        Released fourth moments of the covariates, by holder.
    prior : NIGPrior or NormalInverseGammaIndependent
    covariate_prior : NIWPrior, HierarchicalNIWPrior, HuangWandPrior or callable
        A callable is a law of the covariates written in NumPyro, for `individual` only, and
        CovariateMoments are for `gibbs_prior` only.
    clip : bool
        Whether rows were clipped to their bounds before they were summed, and the regression is
        about what they were before. For `individual` only.
    chains, draws : int
    seed : int, optional
    progress : bool
    """

    observations: Sequence[Observation]
    fourth: Sequence[FourthMomentObservation | None]
    prior: RegressionPrior
    covariate_prior: CovariatePrior | CovariateMoments | Covariates
    clip: bool
    chains: int
    draws: int
    seed: int | None
    progress: bool


@dataclass(frozen=True)
class Draws:
    """What every method gives back.

    Parameters
    ----------
    theta : array, shape (chains, draws, d)
    sigma2 : array, shape (chains, draws)
    conditional_mean : array, shape (chains, draws, d), optional
        E[theta | latent statistics] at each draw, for noise-aware methods.
    sample_stats : mapping of str to array, shape (chains, draws)
    discrepancies : sequence of array, shape (P, P)
        By holder, how far its statistics are from what the fitted model would release, in sds.
    replications : sequence of Replication
        By holder, what the fitted model would release.
    warnings : tuple of str
    """

    theta: FloatArray
    sigma2: FloatArray
    conditional_mean: FloatArray | None = None
    sample_stats: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    discrepancies: Sequence[FloatArray] = ()
    replications: Sequence[Replication] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method:
    """A way to the posterior; `describe` says in a sentence what it is."""

    run: Callable[[Job], Draws]
    noise_aware: bool
    describe: str


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


def public_n(job: Job, method: str) -> None:
    """Refuse Releases whose number of rows is private."""
    if any(seen.n_is_private for seen in job.observations):
        raise RequestError(
            f"method: {method} needs to know the number of rows, which is private in a Release of "
            "add_remove_one; use exact"
        )


def _naive(job: Job) -> Draws:
    from .samplers import naive

    theta, sigma2 = naive.sample(
        job.observations, job.prior, chains=job.chains, draws=job.draws, seed=job.seed
    )
    return Draws(
        theta,
        sigma2,
        warnings=("naive ignores the privacy noise: its intervals are too narrow.",),
    )


def _exact(job: Job) -> Draws:
    from .models.agreement import discrepancy
    from .models.collapsed import CollapsedPosterior
    from .models.replication import replicate
    from .samplers import exact

    collapsed = CollapsedPosterior(job.observations, job.prior, normal_covariates(job, "exact"))
    with progress_bar("sampling", unit="draws", show=job.progress) as report:
        drawn = exact.sample_posterior(
            collapsed,
            chains=job.chains,
            draws=job.draws,
            seed=job.seed,
            keep_covariates=False,
            progress=report,
        )
    points = drawn.x.reshape(-1, drawn.x.shape[-1])
    some = np.linspace(0, len(points) - 1, min(CHECKED, len(points))).astype(int)
    rng = np.random.default_rng(job.seed)
    theta, sigma2, _, mu, T = collapsed.draw_parameters(rng, points[some])
    away = [discrepancy(seen, theta, sigma2, mu, T) for seen in job.observations]
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        discrepancies=away,
        replications=[replicate(seen, theta, sigma2, mu, T) for seen in job.observations],
    )


def _gibbs(name: str) -> Callable[[Job], Draws]:
    """Run one of the samplers of Bernstein & Sheldon; they differ in what they know of x."""

    def run(job: Job) -> Draws:
        from .models.moments import CovariateMoments
        from .samplers import gibbs, gibbs_noisy, gibbs_noisy_aware, gibbs_prior, gibbs_update

        if name in ("gibbs_noisy", "gibbs_noisy_aware") and not any(job.fourth):
            raise RequestError(
                f"method: {name} needs fourth moments of the covariates, and no Release has them; "
                "use exact (a holder would publish them with --fourth-moments, at a cost that is "
                "better spent on the second moments)"
            )
        public_n(job, name)
        options: dict[str, Any] = {
            "chains": job.chains,
            "draws": job.draws,
            "seed": job.seed,
            "keep_conditional_mean": True,
        }
        with (
            progress_bar("sampling", unit="draws", show=job.progress) as report,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", UserWarning)  # `_few_rows` says it in the posterior
            options["progress"] = report
            if name == "gibbs_update":
                covariates = normal_covariates(job, name)
                drawn = gibbs_update.sample(job.observations, job.prior, covariates, **options)
            elif name == "gibbs_prior":
                known = job.covariate_prior
                if not isinstance(known, NIWPrior | CovariateMoments):
                    raise RequestError(
                        "covariate_prior: gibbs_prior needs an NIWPrior or CovariateMoments"
                    )
                drawn = gibbs_prior.sample(job.observations, job.prior, known, **options)
            elif name == "gibbs_noisy":
                drawn = gibbs_noisy.sample(job.observations, job.prior, job.fourth, **options)
            else:
                drawn = gibbs_noisy_aware.sample(job.observations, job.prior, job.fourth, **options)
        return Draws(
            drawn.theta,
            drawn.sigma2,
            drawn.conditional_mean,
            drawn.info._asdict(),
            warnings=_CAVEATS.get(name, ())
            # Metropolis moves in place of the central limit theorem: a refusal is no trouble.
            + (() if name == "gibbs_noisy_aware" else _few_rows(job) + gibbs.trouble(drawn.info)),
        )

    return run


def _individual(job: Job) -> Draws:
    from .samplers import individual

    public_n(job, "individual")
    with progress_bar("sampling", unit="draws", show=job.progress) as report:
        drawn = individual.sample(
            job.observations,
            job.prior,
            learnt_covariates(job, "individual"),
            clip=job.clip,
            chains=job.chains,
            draws=job.draws,
            seed=job.seed,
            progress=report,
        )
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        warnings=individual.caveats(job.observations),
    )


def _bs_distributed(job: Job) -> Draws:
    if any(seen.family != "gaussian" for seen in job.observations):
        raise RequestError(
            "method: bs_distributed is for Gaussian noise; use gibbs_update, its like for any noise"
        )
    return _gibbs("gibbs_update")(job)


def _normal_x(job: Job) -> Draws:
    from .samplers import normal_x

    public_n(job, "normal_x")
    covariates = normal_covariates(job, "normal_x")
    with progress_bar("sampling", unit="draws", show=job.progress) as report:
        drawn = normal_x.sample(
            job.observations,
            job.prior,
            covariates,
            chains=job.chains,
            draws=job.draws,
            tune=NORMAL_X_THIN * 100,
            thin=NORMAL_X_THIN,
            seed=job.seed,
            progress=report,
        )
    return Draws(drawn.theta, drawn.sigma2, sample_stats=drawn.info._asdict())


def _fixed_s(job: Job) -> Draws:
    from .samplers import fixed_s

    public_n(job, "fixed_s")
    with progress_bar("sampling", unit="draws", show=job.progress) as report:
        drawn = fixed_s.sample(
            job.observations,
            job.prior,
            chains=job.chains,
            draws=job.draws,
            seed=job.seed,
            progress=report,
        )
    return Draws(
        drawn.theta,
        drawn.sigma2,
        sample_stats=drawn.info._asdict(),
        warnings=(
            "fixed_s takes the released second moments of the covariates for the true ones: its "
            "intervals are too narrow; use exact.",
        ),
    )


def _fixed_s_fast(job: Job) -> Draws:
    from .samplers import fixed_s_fast

    public_n(job, "fixed_s_fast")
    drawn = fixed_s_fast.sample(
        job.observations, job.prior, chains=job.chains, draws=job.draws, seed=job.seed
    )
    return Draws(
        drawn.theta,
        drawn.sigma2,
        warnings=(
            "fixed_s_fast takes the released second moments of the covariates for the true ones "
            "and one guess for the error variance: its intervals are too narrow; use exact.",
        ),
    )


_CAVEATS = {
    "gibbs_noisy": (
        "gibbs_noisy takes the released fourth moments at face value: its intervals are a little "
        "too narrow; use exact.",
    ),
    "gibbs_noisy_aware": (
        "gibbs_noisy_aware has a flat prior for the covariates' moments: with few rows or much "
        "noise its intervals for slopes are too narrow; use exact.",
    ),
    "gibbs_prior": (
        "gibbs_prior fixes the law of the covariates at its prior and learns nothing about it "
        "from the Releases: if that prior is off, so are the intervals; use exact.",
    ),
}


def _few_rows(job: Job) -> tuple[str, ...]:
    fewest = min(seen.n for seen in job.observations)
    if len(job.observations) > 1 and fewest < 3000:
        return (
            "several holders with few rows: the central limit theorem that Gibbs methods rest on "
            "can shift means by a fifth of a standard deviation there (3000 rows each are wanted); "
            "use exact.",
        )
    if fewest >= 4 * (job.observations[0].k + 2):
        return ()
    return (
        "few rows for the central limit theorem that Gibbs methods rest on (at least four times "
        "the number of columns are wanted): intervals may be off; use exact.",
    )


METHODS: dict[str, Method] = {
    "exact": Method(
        _exact, True, "NUTS on the latent statistics, no approximation but Monte Carlo error"
    ),
    "individual": Method(
        _individual,
        True,
        "NUTS on every latent record (MCMC-Ind); any law of the covariates, for few rows",
    ),
    "gibbs_update": Method(
        _gibbs("gibbs_update"),
        True,
        "Gibbs sampling with a hierarchical normal prior for the covariates; central limit theorem",
    ),
    "gibbs_prior": Method(
        _gibbs("gibbs_prior"),
        True,
        "Gibbs sampling with the covariates' moments fixed by their prior; central limit theorem",
    ),
    "gibbs_noisy": Method(
        _gibbs("gibbs_noisy"),
        True,
        "Gibbs sampling with released fourth moments taken at face value; central limit theorem",
    ),
    "gibbs_noisy_aware": Method(
        _gibbs("gibbs_noisy_aware"),
        True,
        "Metropolis-within-Gibbs with released fourth moments as noisy observations of x's law",
    ),
    "bs_distributed": Method(
        _bs_distributed, True, "gibbs_update for holders with Gaussian noise; central limit theorem"
    ),
    "normal_x": Method(
        _normal_x,
        True,
        "Metropolis on each holder's second moments (Alparslan et al. 2023); y'y normal",
    ),
    "fixed_s": Method(
        _fixed_s, False, "the noise on X'y accounted for, that on X'X ignored (Alparslan et al.)"
    ),
    "fixed_s_fast": Method(
        _fixed_s_fast, False, "the same in closed form, with the error variance fixed too"
    ),
    "naive": Method(_naive, False, "the noisy statistics taken at face value"),
}


def check_method(method: str) -> None:
    """Refuse a name that no method has."""
    if method != "auto" and method not in METHODS:
        known = ", ".join(["auto", *METHODS])
        raise RequestError(f"method: {method!r} is unknown; there are {known}")


def choose(method: str, job: Job) -> tuple[str, str]:
    """The method's name and why it was taken.

    `auto` takes a method that is calibrated for these Releases, or refuses with the remedy.
    """
    check_method(method)
    if method != "auto":
        return method, METHODS[method].describe
    if callable(job.covariate_prior):
        return "individual", "chosen by auto: the one method with such a law of the covariates"
    if job.clip:
        return "individual", "chosen by auto: the one method that models clipping"
    columns = job.observations[0].k + 1
    for number, observation in enumerate(job.observations, 1):
        if not observation.n_is_private and observation.n <= columns:
            raise ReleaseError(
                f"release {number} has {observation.n} rows and {columns} columns besides the "
                "intercept; a posterior needs more rows than columns: choose fewer features"
            )
    return "exact", "chosen by auto: right for any noise and any number of rows"
