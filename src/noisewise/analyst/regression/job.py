"""What every method is given, and what it gives back; both on unit scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise._progress import progress_bar
from noisewise.analyst.regression.observation import Observation, named, too_few_rows
from noisewise.analyst.regression.priors import (
    AnyCovariatePrior,
    AnyPrior,
    CovariatePrior,
    RegressionPrior,
    ScaleFreeCovariates,
    ScaleFreePrior,
)
from noisewise.core.errors import ReleaseError, RequestError

if TYPE_CHECKING:
    from noisewise.analyst.posterior.regression import Holders
    from noisewise.analyst.regression.agreement import Replication
    from noisewise.analyst.regression.papers.moments import (
        CovariateMoments,
        FourthMomentObservation,
    )
    from noisewise.analyst.regression.records import Covariates


@dataclass(frozen=True)
class Job:
    """What every method is given."""

    observations: Sequence[Observation]
    # Released fourth moments of the covariates, by holder
    fourth: Sequence[FourthMomentObservation | None]
    regression_prior: AnyPrior
    # A callable is a law of the covariates written in NumPyro, for `individual` only, and
    # CovariateMoments are for `gibbs_prior` only. Scale-free priors are for `exact` only.
    covariate_prior: AnyCovariatePrior | CovariateMoments | Covariates
    # Whether rows were clipped to their bounds before they were summed, and the regression is about
    # what they were before. For `individual` only.
    clip: bool
    chains: int
    draws: int
    seed: int | None
    progress: bool
    # (M, t, v): theta = M theta' + t and sigma2 = v sigma2' on unit scale, where the job has
    # coordinates of its own
    affine: tuple[FloatArray, FloatArray, float] | None = None

    @property
    def prior(self) -> RegressionPrior:
        """The regression's prior, for methods that take conjugate ones only."""
        if isinstance(self.regression_prior, ScaleFreePrior):
            raise RequestError("prior: ScaleFreePrior needs method='exact'")
        return self.regression_prior

    @property
    def size(self) -> dict[str, Any]:
        """Chains, draws and seed, as every sampler takes them."""
        return {"chains": self.chains, "draws": self.draws, "seed": self.seed}

    @contextmanager
    def watched(self) -> Iterator[dict[str, Any]]:
        """`size` and where to report progress, for samplers that take a while."""
        said = {"unit": "draws", "at_first": "compiling, once on this machine, for about a minute"}
        with progress_bar("sampling", show=self.progress, **said) as report:
            yield self.size | {"progress": report}


@dataclass(frozen=True)
class Draws:
    """What every method gives back."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    # (chains, draws, d), E[theta | latent statistics] at each draw, for noise-aware methods
    conditional_mean: FloatArray | None = None
    sample_stats: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # (chains, draws)
    # (P, P), by holder, how far its statistics are from what the fitted model would release, in sds
    discrepancies: Sequence[FloatArray] = ()
    replications: Sequence[Replication] = ()  # by holder, what the fitted model would release
    # What these Releases made of the way to draw, to be said with the reason for the method
    how: str = ""
    # By slope, how much its interval changes under a second prior (`exact.run`)
    prior_pull: Sequence[float] = ()
    # What these Releases make of the method; what is always wrong with it is in the registry
    warnings: tuple[str, ...] = ()
    # The variance of x'b over the rows behind all Releases at each draw, shape (chains, draws),
    # given slopes b of shape (chains, draws, k); for methods that draw the rows' statistics
    predictor_variance: Callable[[FloatArray], FloatArray] | None = None
    # What each holder has of its own, where coefficients vary by holder
    holders: Holders | None = None
    # (chains, draws, d), coefficients of all rows, where some were moved (`regression.far_rows`)
    all_rows: FloatArray | None = None


# --- what a method can't do, refused with the remedy before it runs -------------------------------


def exact_covariates(job: Job, method: str) -> AnyCovariatePrior:
    """The covariates' prior, for `exact`."""
    given = job.covariate_prior
    if isinstance(given, ScaleFreeCovariates) and not job.clip:
        return given
    return normal_covariates(job, method)


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
    if isinstance(given, ScaleFreeCovariates):
        raise RequestError(
            f"covariate_prior: ScaleFreeCovariates need method='exact', not {method}"
        )
    if not callable(given) and not isinstance(given, CovariatePrior):
        raise RequestError(
            f"covariate_prior: CovariateMoments need method='gibbs_prior'; {method} learns the "
            "moments from the Releases"
        )
    return given


def more_rows_than_columns(job: Job) -> None:
    """Refuse holders with fewer rows than the latent statistics need to be positive definite."""
    for name, seen in too_few_rows(job.observations):
        raise ReleaseError(
            f"{name} has {seen.n} rows and {seen.k + 1} columns besides the intercept; a posterior "
            "needs more rows than columns: choose fewer features, or leave it out"
        )


def public_n(job: Job, method: str) -> None:
    """Refuse Releases whose number of rows is private."""
    for name, seen in named(job.observations):
        if seen.n_is_private:
            raise RequestError(
                f"method: {method} needs to know the number of rows, which is private in {name} "
                "(neighbours: add_remove_one); use exact"
            )


def gaussian_noise(job: Job, method: str) -> None:
    """Refuse Releases with Laplace noise, for `bs_distributed`."""
    for name, seen in named(job.observations):
        if seen.family != "gaussian":
            raise RequestError(
                f"method: {method} is for Gaussian noise, and {name} has Laplace noise; use "
                "gibbs_update, the same for any noise"
            )


def fourth_moments(job: Job, method: str) -> None:
    """Refuse Releases none of which has fourth moments of the covariates."""
    if not any(job.fourth):
        raise RequestError(
            f"method: {method} needs fourth moments of the covariates, and no Release has them; "
            "use exact (a holder would publish them with --fourth-moments, at a cost that is "
            "better spent on the second moments)"
        )
