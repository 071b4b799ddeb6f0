"""Methods as a calibration study runs them: from one simulated case to draws."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError
from studies.regression import Case, SimulatedRegression, sample_non_private

Pair = tuple[FloatArray, FloatArray]  # theta (chains, draws, d) and sigma2 (chains, draws)


@dataclass(frozen=True)
class ChainMethod(ABC):
    """A method with the effort that a trial spends on it; what all such methods share.

    Parameters
    ----------
    name : str
        A key of `runners`.
    chains, draws, tune : int
        Of methods with chains; independent samplers take `draws` only.
    """

    name: str
    chains: int = 1
    draws: int = 200
    tune: int = 0

    without_chains: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        if self.name not in self.runners:
            known = ", ".join(self.runners)
            raise RequestError(f"method: {self.name!r} is unknown; use one of {known}")

    @property
    @abstractmethod
    def runners(self) -> Mapping[str, Callable[..., Pair]]:
        """Functions that draw, by name of the method."""

    @property
    def independent(self) -> bool:
        """Whether draws are independent by construction."""
        return self.name in self.without_chains

    def describe(self) -> dict[str, Any]:
        """Everything that decides the draws, as plain data."""
        return asdict(self)

    def options(self, seed: int, longer: int) -> dict[str, Any]:
        """Keyword arguments that all samplers with chains share."""
        return {
            "chains": self.chains,
            "draws": longer * self.draws,
            "tune": longer * self.tune,
            "seed": seed,
            "cores": 1,
        }

    def run(self, *given: Any) -> FloatArray:
        """Draws of (theta, sigma2), shape (chains, draws, d + 1), by the method's function."""
        with warnings.catch_warnings():
            # Few rows for the central limit theorem: what a study is there to measure.
            warnings.simplefilter("ignore", UserWarning)
            theta, sigma2 = self.runners[self.name](*given)
        return np.concatenate([theta, sigma2[..., None]], axis=-1)


@dataclass(frozen=True)
class Sampler(ChainMethod):
    """One of noisewise's methods for one holder."""

    without_chains = ("non_private", "naive")

    @property
    def runners(self) -> Mapping[str, Callable[..., Pair]]:
        """Functions that draw, by name of the method."""
        return RUNNERS

    def sample(
        self, model: SimulatedRegression, case: Case, seed: int, longer: int = 1
    ) -> FloatArray:
        """Draws of (theta, sigma2), shape (chains, draws, d + 1), `longer` times as many."""
        return self.run(self, model, case, seed, longer)


def _non_private(
    method: Sampler, model: SimulatedRegression, case: Case, seed: int, longer: int
) -> Pair:
    return sample_non_private(case.A, model.prior, draws=longer * method.draws, seed=seed)


def _naive(method: Sampler, model: SimulatedRegression, case: Case, seed: int, longer: int) -> Pair:
    from noisewise.analyst.regression.papers.shared import sample_naive

    draws = longer * method.draws
    return sample_naive([case.released], model.prior, chains=1, draws=draws, seed=seed)


def _exact(method: Sampler, model: SimulatedRegression, case: Case, seed: int, longer: int) -> Pair:
    from noisewise.analyst.regression.exact import sampler as exact

    drawn = exact.sample(
        [case.released],
        model.prior,
        model.covariates,
        keep_covariates=False,
        **method.options(seed, longer),
    )
    return drawn.theta, drawn.sigma2


def _gibbs(method: Sampler, model: SimulatedRegression, case: Case, seed: int, longer: int) -> Pair:
    from noisewise.analyst.regression.papers import gibbs
    from noisewise.analyst.regression.papers.moments import CovariateMoments, released_moments

    seen: Any = case.released
    known: Any = model.covariates
    if method.name == "gibbs_prior":
        known = CovariateMoments.from_niw(model.covariates)
    elif method.name != "gibbs_update":  # half of the budget is spent on fourth moments
        if case.released_halved is None or case.fourth is None:
            raise RequestError(f"method: {method.name} needs a simulation with fourth=True")
        seen, known = case.released_halved, [case.fourth]
        if method.name == "gibbs_noisy":
            known = released_moments(known)
    drawn = gibbs.sample([seen], model.prior, known, **method.options(seed, longer))
    return drawn.theta, drawn.sigma2


RUNNERS: dict[str, Callable[..., Pair]] = {
    "non_private": _non_private,
    "naive": _naive,
    "exact": _exact,
    **dict.fromkeys(("gibbs_update", "gibbs_prior", "gibbs_noisy", "gibbs_noisy_aware"), _gibbs),
}
