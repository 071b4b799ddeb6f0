"""Linear regression from Releases of statistics: a Posterior in original units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import chains_and_draws, seed_or_none
from noisewise.analyst.common_cautions import repetition_warnings
from noisewise.analyst.posterior.base import ALL_ROWS, WITHIN_REACH, origins
from noisewise.analyst.posterior.regression import FitInfo, Holders, Naive, Posterior
from noisewise.analyst.regression.cautions import (
    bounds_warnings,
    contradiction_warnings,
    convergence_warnings,
    prior_warnings,
    spread_warnings,
)
from noisewise.analyst.regression.contradiction import check_agreement
from noisewise.analyst.regression.far_rows import steps_to_all_rows
from noisewise.analyst.regression.job import Job, more_rows_than_columns
from noisewise.analyst.regression.methods import METHODS, check_method, choose
from noisewise.analyst.regression.observation import (
    ModelColumns,
    Observation,
    as_releases,
    check_splines,
    choose_columns,
    named,
    observe,
    observe_fourth,
)
from noisewise.analyst.regression.original_units import (
    SCALE_FREE_METHODS,
    CoefficientPrior,
    coefficients_in_original_units,
    covariates_to_unit,
    default_covariates,
    error_sd_in_original_units,
    prior_in_words,
    regression_to_unit,
)
from noisewise.analyst.regression.plausibility import impossible_statistics
from noisewise.analyst.regression.priors import (
    AnyCovariatePrior,
    AnyPrior,
    NormalInverseGammaIndependent,
    ScaleFreePrior,
)
from noisewise.analyst.regression.residuals import with_residuals, with_skewed_target
from noisewise.analyst.regression.rounds import InRounds, check_method_with_rounds
from noisewise.core.design import Design
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.terms.formula import read_formula

if TYPE_CHECKING:
    from noisewise.analyst.regression.papers.moments import CovariateMoments
    from noisewise.analyst.regression.records import Covariates

MAX_DRAWS = 1_000_000
NAIVE_DRAWS = 4000


def fit_regression(
    releases: Release | Sequence[Release],
    formula: str | None = None,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    prior: AnyPrior | CoefficientPrior | None = None,
    covariate_prior: AnyCovariatePrior | CovariateMoments | Covariates | None = None,
    clip: bool = False,
    prior_units: Literal["unit", "original"] = "unit",
    method: str = "auto",
    varying: bool = False,
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
    names: Sequence[str] | None = None,
) -> Posterior:
    """Posterior of a linear regression given one or several Releases.

    Parameters
    ----------
    releases : Release or sequence of Release
        From one holder or many; n, epsilon and mechanism may differ.
    formula : str, optional
        The regression in place of target and features, such as ``"visits ~ age + I(age**2)"``, of
        released columns and terms.
    target, features : str and sequence of str, optional
        Any released columns and terms; the Release's own by default.
    prior : CoefficientPrior, ScaleFreePrior, NIGPrior or NormalInverseGammaIndependent, optional
        A CoefficientPrior names coefficients in original units. The others are joint priors in
        `prior_units`. Default: `ScaleFreePrior`, and for methods other than ``exact``, which do
        not take it, `NormalInverseGammaIndependent.weakly_informative`.
    covariate_prior : ScaleFreeCovariates, NIWPrior, HuangWandPrior, callable or others, optional
        Of the covariates' mean and covariance, in `prior_units`. Default: `ScaleFreeCovariates`,
        and for other methods `NIWPrior.weakly_informative`, scaled down to what the ball can hold
        where all Releases have rows in a ball (`default_covariates`). A callable is a law of the
        covariates written in NumPyro (`regression.records`), on unit scale, for method
        ``individual``. `CovariateMoments` (`regression.papers.moments`; by formula, or by
        simulation from any law) are for method ``gibbs_prior``, on unit scale.
    clip : bool
        The regression is about the rows before they were clipped to their bounds, and clipping
        is modelled. For method ``individual``.
    prior_units : {"unit", "original"}
        Whether joint priors are stated on unit scale (numbers in [-1, 1]) or in original units.
    method : str
        ``auto`` picks the recommended method for these Releases and says why.
    varying : bool
        Coefficients vary by holder: each has its own, normal about common ones, and how far apart
        they are is learnt (`Posterior.holders`). The same as method ``exact_varying``.
    chains, draws : int
    seed : int, optional
        Makes the result reproducible. It has nothing to do with the privacy noise.
    progress : bool
        Show progress on the terminal.
    names : sequence of str, optional
        What messages call each Release, such as the name of its file. By default its number, with
        its data set and label.

    Returns
    -------
    Posterior
        In original units.
    """
    given = as_releases(releases)
    if varying:
        method = _varying(method, len(given))
    if formula is not None:
        if target is not None or features is not None:
            raise RequestError("formula: it names target and features; leave those out")
        if not given:
            raise RequestError("releases: none given")
        target, features = read_formula(formula, given[0].schema)
    columns, observations, last = _observed(given, target, features, names)
    if last is not None:
        last.check_options(method, covariate_prior, clip=clip)
    if clip:
        _check_clip(columns)
    with_defaults_of = "individual" if clip or callable(covariate_prior) else method
    regression, covariates = _priors(
        prior, covariate_prior, prior_units, columns, given, with_defaults_of
    )
    job = Job(
        observations,
        observe_fourth(given, columns),
        regression,
        covariates,
        clip,
        *chains_and_draws(chains, draws, MAX_DRAWS),
        seed_or_none(seed),
        progress,
    )
    _check_plausible(observations, columns)
    name, reason = choose(method, job)
    if len(given) > 1 and name in ("exact", "exact_own_laws"):
        maps = [np.eye(len(observations[0].values))] * len(given) if last is None else last.maps
        seen = job.observations if last is None else last.observations
        check_agreement(seen, maps, [called for called, _ in named(seen)], columns)
    return _posterior(given, columns, job, last, name, reason, names)


def fit_usable(
    releases: Sequence[Release], *, names: Sequence[str] | None = None, **options: Any
) -> Posterior:
    """`fit_regression` of the Releases that go together; a warning names those that are left out.

    Which they go with is decided by most of them.
    """
    given = as_releases(releases)
    called = list(names or (f"release {number}" for number in range(1, len(given) + 1)))
    target, features = options.get("target"), options.get("features")
    if options.get("formula") is not None:
        target, features = read_formula(options["formula"], given[0].schema)

    def problem(release: Release, name: str, first: Release, of: str) -> str:
        try:
            check_release(release, target=target, features=features, method="auto")
            choose_columns([first, release], target, features, [of, name])
        except (ReleaseError, RequestError) as error:
            return str(error)
        return ""

    best: dict[str, str] = {}
    for first, of in zip(given, called, strict=True):
        problems = [problem(one, name, first, of) for one, name in zip(given, called, strict=True)]
        wrong = {name: why for name, why in zip(called, problems, strict=True) if why}
        if of not in wrong and (not best or len(wrong) < len(best)):
            best = wrong
        if of not in wrong and len(wrong) < len(given) / 2:
            break
    else:
        if not best:
            raise ReleaseError("releases: none of them can be fitted: " + "; ".join(problems))
    kept = [(one, name) for one, name in zip(given, called, strict=True) if name not in best]
    posterior = fit_regression(
        [one for one, _ in kept], names=[name for _, name in kept], **options
    )
    left = tuple(f"left out: {why}" for why in best.values())
    info = replace(posterior.info, warnings=(*left, *posterior.info.warnings))
    return replace(posterior, info=info)


def _varying(method: str, holders: int) -> str:
    """The method for coefficients that vary by holder, if they can."""
    if method not in ("auto", "exact_varying"):
        raise RequestError(
            f"varying: method {method} has one regression for all; leave one of the two out"
        )
    if holders == 1:
        raise RequestError(
            "varying: one Release says nothing about how holders differ; leave it out, or give "
            "the Releases of several holders"
        )
    return "exact_varying"


def check_fit(
    design: Design,
    *,
    prior: AnyPrior | CoefficientPrior | None,
    method: str,
    chains: int,
    draws: int,
    rounds: bool = False,
) -> None:
    """Refuse what `fit_regression` would refuse of any Release of this design, in rounds or not.

    For those who publish and fit in one step: a word that is wrong must not cost anything.
    """
    check_method(method)
    if rounds:
        check_method_with_rounds(method, "the Release")
    chains_and_draws(chains, draws, MAX_DRAWS)
    columns = ModelColumns(design.schema, design.features, design.target)
    check_splines(columns.design)
    _priors(prior, None, "unit", columns)


def check_release(
    release: Release, *, target: str | None, features: Sequence[str] | None, method: str
) -> None:
    """Refuse a Release that `fit_regression` would refuse in whatever company.

    For those who gather Releases from many holders: one that cannot be fitted is left out by
    itself, and does not stop the others.

    Raises
    ------
    ReleaseError, RequestError
        For impossible statistics, fewer rows than columns, and noise or a private number of rows
        that the method does not take.
    """
    _, job, last = _job_of_one(release, target, features, method)
    chosen, _ = choose(method, job)
    METHODS[chosen].check(job if last is None else last.turned(job), chosen)


def default_job(
    release: Release, *, target: str | None = None, features: Sequence[str] | None = None
) -> tuple[ModelColumns, Job, tuple[FloatArray, FloatArray, float]]:
    """What `fit` would run of one Release with all its defaults, for those who run it elsewhere.

    The job has the observation, and both priors in its coordinates. Of the triple (M, t, v), theta
    = M theta' + t and sigma2 = v sigma2' on unit scale; the identity without rounds.
    """
    columns, job, last = _job_of_one(release, target, features, "auto")
    more_rows_than_columns(job)
    if last is not None:
        return columns, last.turned(job), last.affine
    size = len(columns.names)
    return columns, job, (np.eye(size), np.zeros(size), 1.0)


def _job_of_one(
    release: Release, target: str | None, features: Sequence[str] | None, method: str
) -> tuple[ModelColumns, Job, InRounds | None]:
    """The model and the job of a Release by itself, with all defaults, if `method` takes it."""
    columns, observations, last = _observed([release], target, features)
    if last is not None:
        last.check_options(method, None, clip=False)
    fourth = observe_fourth([release], columns)
    priors = _priors(None, None, "unit", columns, [release], method)
    _check_plausible(observations, columns)
    job = Job(observations, fourth, *priors, False, chains=1, draws=1, seed=None, progress=False)
    return columns, job, last


def _observed(
    releases: Sequence[Release],
    target: str | None,
    features: Sequence[str] | None,
    names: Sequence[str] | None = None,
) -> tuple[ModelColumns, list[Observation], InRounds | None]:
    """The model and what is known of it; with rounds, in the coordinates of the last ones."""
    columns, called = choose_columns(releases, target, features, names)
    last = InRounds.of(releases, columns, called)
    seen = observe(releases, target, features, names)[1] if last is None else last.observations
    return columns, [replace(one, cells=columns.cells) for one in seen], last


def _priors(
    prior: AnyPrior | CoefficientPrior | None,
    covariate_prior: AnyCovariatePrior | CovariateMoments | Covariates | None,
    units: str,
    columns: ModelColumns,
    releases: Sequence[Release] = (),
    method: str = "auto",
) -> tuple[AnyPrior, AnyCovariatePrior | CovariateMoments | Covariates]:
    """Both priors on unit scale, checked against the model."""
    if units not in ("unit", "original"):
        raise RequestError(f"prior_units: expected 'unit' or 'original', got {units!r}")
    k = len(columns.covariates)
    if prior is not None and not isinstance(prior, AnyPrior | CoefficientPrior):
        raise RequestError(
            f"prior: expected a CoefficientPrior, ScaleFreePrior, NIGPrior or "
            f"NormalInverseGammaIndependent, got {type(prior).__name__}; "
            "CoefficientPrior({'age': (mean, sd)}) names coefficients, and read_prior reads a file"
        )
    known = covariate_prior is None or isinstance(covariate_prior, AnyCovariatePrior)
    if not (known or callable(covariate_prior) or _is_moments(covariate_prior)):
        raise RequestError(
            "covariate_prior: expected ScaleFreeCovariates, an NIWPrior, HierarchicalNIWPrior, "
            "HuangWandPrior, CovariateMoments or a law written in NumPyro, got "
            f"{type(covariate_prior).__name__}"
        )
    for given in (prior, covariate_prior):
        if isinstance(given, AnyPrior | AnyCovariatePrior) and given.k != k:
            raise RequestError(
                f"prior: it is for {given.k} covariates, but the model has {k}: "
                f"{', '.join(columns.names[1:])}"
            )
    regression: AnyPrior
    if prior is None and method in SCALE_FREE_METHODS:
        regression = ScaleFreePrior(k)
    elif prior is None:
        regression = NormalInverseGammaIndependent.weakly_informative(k)
    elif isinstance(prior, CoefficientPrior):
        regression = prior.on_unit_scale(columns)
    else:
        regression = regression_to_unit(prior, columns) if units == "original" else prior
    if covariate_prior is None:
        return regression, default_covariates(columns, releases, method)
    if units == "original" and isinstance(covariate_prior, AnyCovariatePrior):
        return regression, covariates_to_unit(covariate_prior, columns)
    return regression, covariate_prior


def _check_clip(columns: ModelColumns) -> None:
    """Refuse to model clipping where it wasn't the summed rows that were clipped."""
    if columns.schema.unit_column is not None:
        what = "rows were clipped before those of one person were averaged, and averages are not"
    elif columns.design.terms:
        what = "columns were clipped before terms were made of them, and terms are not"
    else:
        return
    raise RequestError(
        f"clip: {what}: leave it out. The regression is then that of the clipped values"
    )


def _is_moments(given: object) -> bool:
    """Whether these are moments of the covariates; they load compiled code, so only then."""
    if type(given).__name__ != "CovariateMoments":
        return False
    from noisewise.analyst.regression.papers.moments import CovariateMoments

    return isinstance(given, CovariateMoments)


def _check_plausible(observations: Sequence[Observation], columns: ModelColumns) -> None:
    """Refuse statistics that no rows within the bounds have, whatever the noise did."""
    entries, shares = (*columns.names, columns.target), columns.schema.unit_column is not None
    indicators = [i for i, c in enumerate(columns.covariates, 1) if c.is_indicator]
    for name, observation in named(observations):
        found = impossible_statistics(observation, entries, indicators, shares=shares)
        if found:
            raise ReleaseError(
                f"{name} cannot come from rows within its bounds and the noise that it "
                f"states, so it is damaged, forged or miscomputed: {'; '.join(found)}"
            )


def _posterior(
    releases: Sequence[Release],
    columns: ModelColumns,
    job: Job,
    last: InRounds | None,
    method: str,
    reason: str,
    names: Sequence[str] | None,
) -> Posterior:
    """Run a job that is stated on unit scale; with rounds, in the coordinates of the last ones."""
    running = job if last is None else last.turned(job)
    if method == "naive":
        running = replace(running, observations=[o.without_map() for o in running.observations])
    drawn = METHODS[method].run(running)
    if last is not None:
        drawn = last.to_unit(drawn)
    if method.startswith("exact"):
        drawn = with_residuals(drawn, releases, columns, job.seed)
        if last is None:
            drawn = with_skewed_target(drawn, job.observations, columns.target, job.seed)
        elif drawn.holders is None:
            shape = drawn.sigma2.shape
            far = steps_to_all_rows(releases, last.observations, last.maps, shape, job.seed)
            drawn = replace(drawn, all_rows=drawn.theta + far)
    if not (np.isfinite(drawn.theta).all() and np.isfinite(drawn.sigma2).all()):
        raise ReleaseError(
            f"method {method!r} could not find a proper posterior for these Releases; their "
            "statistics may be impossible or contradict each other"
        )
    chosen, prior = METHODS[method], job.regression_prior
    holders = None if drawn.holders is None else drawn.holders.in_original_units(columns)
    if holders is not None and names is not None:
        holders = replace(holders, names=tuple(names))
    spreads_in_words = "" if holders is None else _spreads_in_words(holders, columns)
    stated = {}
    if not isinstance(prior, ScaleFreePrior):
        means, sds = (x.tolist() for x in coefficients_in_original_units(prior, columns))
        stated = dict(zip(columns.names, zip(means, sds, strict=True), strict=True))
    info = FitInfo(
        method=method,
        reason="; ".join(filter(None, (reason, drawn.how))),
        noise_aware=chosen.noise_aware,
        ignores=chosen.ignores,
        **origins(releases),
        seed=job.seed,
        noise=tuple(observation.family for observation in job.observations),
        prior=stated,
        prior_words=" ".join(filter(None, (prior_in_words(prior, columns), spreads_in_words))),
        prior_error_sd=error_sd_in_original_units(prior, columns),
        prior_pull=dict(zip(columns.names[1:], drawn.prior_pull, strict=False)),
        estimand=ALL_ROWS if last is None else WITHIN_REACH,
        beyond_reach=tuple(
            (0.0, 0.0) if one.rounds is None else one.rounds.rows_beyond(one.design, one.noisy_n)
            for one in releases
        ),
        reach_of=tuple("" if one.rounds is None else one.rounds.reach_of or "" for one in releases),
    )
    observed: dict[str, FloatArray] = {}
    for j, observation in enumerate(job.observations, 1):
        observed |= {f"values_{j}": observation.values, f"scale_{j}": observation.scale}
    observed |= {f"discrepancy_{j}": away for j, away in enumerate(drawn.discrepancies, 1)}
    if len(drawn.replications) == len(releases):  # and not of sums of very many
        for j, replication in enumerate(drawn.replications, 1):
            observed |= {f"{what}_{j}": value for what, value in replication._asdict().items()}
    mean, spread = drawn.conditional_mean, drawn.predictor_variance
    explained = None if spread is None else spread(drawn.theta[..., 1:])
    posterior = Posterior(
        columns,
        columns.theta_to_original(drawn.theta),
        columns.sigma2_to_original(drawn.sigma2),
        info,
        None if mean is None else columns.theta_to_original(mean),
        drawn.sample_stats,
        observed,
        _naive(running, columns, last) if method != "naive" and holders is None else None,
        None if explained is None else explained / (explained + drawn.sigma2),
        holders,
        None if drawn.all_rows is None else columns.theta_to_original(drawn.all_rows),
    )
    found = (
        *([chosen.caveat] if chosen.caveat else []),
        *drawn.warnings,
        *repetition_warnings(((r.schema.dataset, r.n) for r in releases), names),
        *contradiction_warnings(
            drawn.discrepancies,
            columns,
            [name for name, _ in named(job.observations)],
            own_laws=method == "exact_own_laws",
        ),
        *bounds_warnings(drawn.replications, posterior),
        *convergence_warnings(posterior),
        *prior_warnings(posterior),
        *spread_warnings(posterior),
    )
    return replace(posterior, info=replace(info, warnings=found))


def _spreads_in_words(holders: Holders, columns: ModelColumns) -> str:
    """What the prior expects of the spreads: 95% points of half-t laws with 4 degrees."""
    from scipy.special import stdtrit

    ends = float(stdtrit(4.0, 0.975)) * holders.expected
    known = ", ".join(f"{n} {end:.3g}" for n, end in zip(columns.names, ends, strict=True))
    return (
        "Coefficients of holders are normal about the common ones, with standard deviations below "
        f"these with probability 0.95, and nothing between that and 0 is preferred: {known} (the "
        "intercept at the average person)."
    )


def _naive(job: Job, columns: ModelColumns, last: InRounds | None) -> Naive:
    """The naive posterior of the same Releases: independent draws, so a few thousand do."""
    prior = job.regression_prior
    if isinstance(prior, ScaleFreePrior):
        prior = NormalInverseGammaIndependent.weakly_informative(prior.k)
    seen = [observation.without_map() for observation in job.observations]
    changes: dict[str, Any] = {"observations": seen, "regression_prior": prior}
    drawn = METHODS["naive"].run(replace(job, **changes, chains=1, draws=NAIVE_DRAWS))
    if last is not None:
        drawn = last.to_unit(drawn)
    return Naive(
        columns.theta_to_original(drawn.theta[0]), columns.sigma2_to_original(drawn.sigma2[0])
    )
