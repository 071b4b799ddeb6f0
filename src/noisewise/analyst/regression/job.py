"""What every method is given, and what it gives back; both on unit scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise._progress import progress_bar
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import CovariatePrior, RegressionPrior

if TYPE_CHECKING:
    from noisewise.analyst.regression.papers.moments import (
        CovariateMoments,
        FourthMomentObservation,
    )
    from noisewise.analyst.regression.records import Covariates
    from noisewise.analyst.regression.replication import Replication


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

    @property
    def size(self) -> dict[str, Any]:
        """Chains, draws and seed, as every sampler takes them."""
        return {"chains": self.chains, "draws": self.draws, "seed": self.seed}

    @contextmanager
    def watched(self) -> Iterator[dict[str, Any]]:
        """`size` and where to report progress, for samplers that take a while."""
        with progress_bar("sampling", unit="draws", show=self.progress) as report:
            yield self.size | {"progress": report}


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
        What these Releases make of the method; what is always wrong with it is in the registry.
    """

    theta: FloatArray
    sigma2: FloatArray
    conditional_mean: FloatArray | None = None
    sample_stats: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    discrepancies: Sequence[FloatArray] = ()
    replications: Sequence[Replication] = ()
    warnings: tuple[str, ...] = ()
