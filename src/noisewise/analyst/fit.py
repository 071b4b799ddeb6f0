"""From Releases to a Posterior: methods by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._progress import progress_bar
from ..core.errors import ReleaseError, RequestError
from ..core.release import Release
from .model_columns import ModelColumns, observe, observe_fourth
from .observation import Observation
from .posterior import FitInfo, Posterior
from .priors import HuangWandPrior, NIGPrior, NIWPrior, NormalInverseGammaIndependent

FloatArray = NDArray[np.float64]
if TYPE_CHECKING:
    from .models.moments import FourthMomentObservation

RegressionPrior = NIGPrior | NormalInverseGammaIndependent
CovariatePrior = NIWPrior | HuangWandPrior
MAX_DRAWS = 1_000_000


@dataclass(frozen=True)
class Job:
    """What every method is given."""

    observations: Sequence[Observation]
    fourth: Sequence[FourthMomentObservation | None]
    prior: RegressionPrior
    covariate_prior: CovariatePrior
    chains: int
    draws: int
    seed: int | None
    progress: bool


@dataclass(frozen=True)
class Draws:
    """What every method gives back, on unit scale.

    `conditional_mean` is E[theta | latent statistics] at each draw, for noise-aware methods.
    """

    theta: FloatArray
    sigma2: FloatArray
    conditional_mean: FloatArray | None = None
    sample_stats: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


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
    from .samplers import exact

    with progress_bar("sampling", unit="draws", show=job.progress) as report:
        drawn = exact.sample(
            job.observations,
            job.prior,
            job.covariate_prior,
            chains=job.chains,
            draws=job.draws,
            seed=job.seed,
            keep_covariates=False,
            progress=report,
        )
    return Draws(drawn.theta, drawn.sigma2, drawn.conditional_mean, drawn.info._asdict())


def _gibbs(name: str) -> Callable[[Job], Draws]:
    """Run one of the samplers of Bernstein & Sheldon; they differ in what they know of x."""

    def run(job: Job) -> Draws:
        from .samplers import gibbs_noisy, gibbs_noisy_aware, gibbs_prior, gibbs_update

        if name in ("gibbs_noisy", "gibbs_noisy_aware") and not any(job.fourth):
            raise RequestError(
                f"method: {name} needs fourth moments of the covariates, and no Release has them; "
                "use exact (a holder would publish them with --fourth-moments, at a cost that is "
                "better spent on the second moments)"
            )
        options: dict[str, Any] = {
            "chains": job.chains,
            "draws": job.draws,
            "seed": job.seed,
            "keep_conditional_mean": True,
        }
        with progress_bar("sampling", unit="draws", show=job.progress) as report:
            options["progress"] = report
            if name == "gibbs_update":
                drawn = gibbs_update.sample(
                    job.observations, job.prior, job.covariate_prior, **options
                )
            elif name == "gibbs_prior":
                if not isinstance(job.covariate_prior, NIWPrior):
                    raise RequestError("covariate_prior: gibbs_prior needs an NIWPrior")
                drawn = gibbs_prior.sample(
                    job.observations, job.prior, job.covariate_prior, **options
                )
            elif name == "gibbs_noisy":
                drawn = gibbs_noisy.sample(job.observations, job.prior, job.fourth, **options)
            else:
                drawn = gibbs_noisy_aware.sample(job.observations, job.prior, job.fourth, **options)
        found = []
        if min(observation.n for observation in job.observations) < 4 * (job.observations[0].k + 2):
            found.append(
                "few rows for the central limit theorem that Gibbs methods rest on (at least four "
                "times the number of columns are wanted): intervals may be off; use exact."
            )
        return Draws(
            drawn.theta,
            drawn.sigma2,
            drawn.conditional_mean,
            drawn.info._asdict(),
            tuple(found),
        )

    return run


@dataclass(frozen=True)
class Method:
    """A way to the posterior; `describe` says in a sentence what it is."""

    run: Callable[[Job], Draws]
    noise_aware: bool
    describe: str


METHODS: dict[str, Method] = {
    "exact": Method(
        _exact, True, "NUTS on the latent statistics, no approximation but Monte Carlo error"
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
        "Gibbs sampling with released fourth moments as noisy observations; central limit theorem",
    ),
    "naive": Method(_naive, False, "the noisy statistics taken at face value"),
}


def fit(
    releases: Release | Sequence[Release],
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    prior: RegressionPrior | None = None,
    covariate_prior: CovariatePrior | None = None,
    method: str = "auto",
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
) -> Posterior:
    """Posterior of a linear regression given one or several Releases.

    Parameters
    ----------
    releases : Release or sequence of Release
        From one holder or many; n, epsilon and mechanism may differ.
    target, features : str and sequence of str, optional
        Any released columns; the Release's own by default.
    prior : NIGPrior or NormalInverseGammaIndependent, optional
        On unit scale; `NormalInverseGammaIndependent.weakly_informative` by default.
    covariate_prior : NIWPrior or HuangWandPrior, optional
        On unit scale; `NIWPrior.weakly_informative` by default.
    method : str
        ``auto`` picks the recommended method for these Releases and says why.
    chains, draws : int
    seed : int, optional
        Makes the result reproducible. It has nothing to do with the privacy noise.
    progress : bool
        Show progress on the terminal.

    Returns
    -------
    Posterior
        In original units.
    """
    given = [releases] if isinstance(releases, Release) else list(releases)
    for item in given:
        if not isinstance(item, Release):
            raise RequestError(
                f"releases: expected Releases, got {type(item).__name__}; read files with "
                "load_release"
            )
    columns, observations = observe(given, target, features)
    k = len(columns.covariates)
    job = Job(
        observations,
        observe_fourth(given, columns),
        _checked_prior(prior or NormalInverseGammaIndependent.weakly_informative(k), k, columns),
        _checked_prior(covariate_prior or NIWPrior.weakly_informative(k), k, columns),
        _count("chains", chains, 1, 1000),
        _count("draws", draws, 4, MAX_DRAWS),
        seed,
        progress,
    )
    name, reason = _choose(method, job)
    result = METHODS[name].run(job)
    return _posterior(given, columns, job, name, reason, result)


def _choose(method: str, job: Job) -> tuple[str, str]:
    """The method's name and why it was taken."""
    if method == "auto":
        return _recommended(job)
    if method not in METHODS:
        known = ", ".join(["auto", *METHODS])
        raise RequestError(f"method: {method!r} is unknown; there are {known}")
    return method, METHODS[method].describe


def _recommended(job: Job) -> tuple[str, str]:
    """What `auto` takes: a method that is calibrated for these Releases, or a clear refusal."""
    columns = job.observations[0].k + 1
    for number, observation in enumerate(job.observations, 1):
        if observation.n <= columns:
            raise ReleaseError(
                f"release {number} has {observation.n} rows and {columns} columns besides the "
                "intercept; a posterior needs more rows than columns: choose fewer features"
            )
    return "exact", "chosen by auto: right for any noise and any number of rows"


def _checked_prior(prior: Any, k: int, columns: ModelColumns) -> Any:
    if prior.k != k:
        raise RequestError(
            f"prior: it is for {prior.k} covariates, but the model has {k}: "
            f"{', '.join(columns.names[1:])}"
        )
    return prior


def _count(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{name}: expected a whole number from {low} to {high}, got {value!r}")
    return value


def _posterior(
    releases: Sequence[Release],
    columns: ModelColumns,
    job: Job,
    method: str,
    reason: str,
    result: Draws,
) -> Posterior:
    if not (np.isfinite(result.theta).all() and np.isfinite(result.sigma2).all()):
        raise ReleaseError(
            f"method {method!r} could not find a proper posterior for these Releases; their "
            "statistics may be impossible or contradict each other"
        )
    info = FitInfo(
        method=method,
        reason=reason,
        noise_aware=METHODS[method].noise_aware,
        n=tuple(observation.n for observation in job.observations),
        claims=tuple(str(release.claim) for release in releases),
        digests=tuple(release.digest for release in releases),
        warnings=result.warnings,
    )
    mean = result.conditional_mean
    posterior = Posterior(
        columns,
        columns.theta_to_original(result.theta),
        columns.sigma2_to_original(result.sigma2),
        info,
        None if mean is None else columns.theta_to_original(mean),
        result.sample_stats,
        {
            f"{what}_{j}": getattr(observation, what)
            for j, observation in enumerate(job.observations, 1)
            for what in ("values", "scale")
        },
    )
    found = convergence_warnings(posterior)
    return replace(posterior, info=replace(info, warnings=info.warnings + found))


def convergence_warnings(posterior: Posterior) -> tuple[str, ...]:
    """What the diagnostics say, in plain words; empty when all is well."""
    rows = posterior.summary().rows
    worst_rhat = max(
        rows, key=lambda name: -np.inf if np.isnan(rows[name].rhat) else rows[name].rhat
    )
    least_ess = min(rows, key=lambda name: rows[name].ess)
    warnings = []
    if rows[worst_rhat].rhat > 1.01:
        warnings.append(
            f"the chains have not agreed yet on {worst_rhat!r} (R-hat "
            f"{rows[worst_rhat].rhat:.3f}, should be below 1.01): don't use these numbers; run "
            "more draws, or method='exact'."
        )
    if rows[least_ess].ess < 400:
        warnings.append(
            f"only about {rows[least_ess].ess:.0f} independent draws of {least_ess!r} (400 are "
            "wanted): interval ends are rough; run more draws."
        )
    diverging = posterior.sample_stats.get("diverging")
    if diverging is not None and np.mean(diverging) > 0.001:
        warnings.append(
            f"{100 * np.mean(diverging):.1f}% of the sampler's steps diverged: parts of the "
            "posterior may be missed; treat the intervals with care."
        )
    return tuple(warnings)
