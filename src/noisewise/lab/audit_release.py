"""An audit of a holder's own request, on data sets that are made from its public schema.

Everything between rows and a published file takes part: two neighbouring synthetic data sets
(`audit_pairs`) go once through the one door, `publish`, with a ledger that is thrown away, where
all of the file but the noisy values must be equal; their exact sums come from the holder's engine;
then noise is drawn, written into a Release's text and read back, many times for each. The outputs
are used twice: how well do they tell the two apart, and is their noise the stated one? The holder's
data and ledger are never opened.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.composition import epsilon_of
from ..core.grid import STATISTIC_ONE
from ..core.noise import DISCRETE_FAMILIES, Gaussian, Laplace
from ..core.privacy import ComposedEvent, Event, GaussianEvent
from ..core.releases import release_from_text
from ..core.statistic import SecondMoments, SmallestEigenvalue
from ..holder.engines import open_source
from ..holder.publish import publish
from ..holder.request import DEFAULT_DELTA, Request
from ..holder.statistics.smallest_eigenvalue import value as eigenvalue
from ..holder.sums import Sums
from .audit import AuditResult, audit
from .audit_noise import NoiseCheck, check_noise
from .audit_pairs import Neighbours, Table, neighbours
from .audit_scores import likelihood_ratio

Array = NDArray[np.float64]
Report = Callable[[int, int | None], None]
RUNS = 1000
TRAINING = 0.3  # the likelihood ratio is known, so only a threshold has to be found


@dataclass(frozen=True)
class ReleaseAudit:
    """What an audit of a request found.

    Parameters
    ----------
    request : Request
    pair : Neighbours
    result : AuditResult
    noise : NoiseCheck
        Whether the noise of the runs is the stated one (`audit_noise`).
    only_values_differ : bool
        Whether the two published files agree in everything but the noisy values.
    """

    request: Request
    pair: Neighbours
    result: AuditResult
    noise: NoiseCheck
    only_values_differ: bool

    @property
    def passed(self) -> bool:
        """Whether nothing was found that contradicts the claim."""
        return self.result.passed and self.noise.passed and self.only_values_differ

    @property
    def epsilon_shown(self) -> float:
        """The lower bound on epsilon at the claim's delta.

        For Gaussian noise it follows from the bound on mu, if the outputs' law is Gaussian.
        """
        if self.result.mu is None or self.result.mu_lower == 0:
            return self.result.epsilon_lower
        event = GaussianEvent(1 / self.result.mu_lower)
        from_mu = float(epsilon_of([event], stated_delta(self.request)))
        return max(self.result.epsilon_lower, from_mu)


def stated_delta(request: Request) -> Any:
    """The claim's delta; for zCDP, the default one."""
    return DEFAULT_DELTA if request.claim.epsilon is None else request.claim.delta


def stated_epsilon(request: Request) -> float:
    """The claim's epsilon; for zCDP, the one at the default delta."""
    if request.claim.epsilon is not None:
        return float(request.claim.epsilon)
    return float(epsilon_of([request.event], DEFAULT_DELTA))


def stated_mu(event: Event) -> float | None:
    """How many standard deviations Gaussian noise lets neighbours be apart; None for Laplace."""
    events = event.events if isinstance(event, ComposedEvent) else (event,)
    gaussian = [1 / e.noise_multiplier for e in events if isinstance(e, GaussianEvent)]
    return float(np.linalg.norm(gaussian)) if len(gaussian) == len(events) else None


def audit_release(
    request: Request,
    *,
    runs: int = RUNS,
    confidence: float = 0.99,
    seed: int = 0,
    report: Report | None = None,
) -> ReleaseAudit:
    """Bound from below what a request gives away about one person, by trying.

    Parameters
    ----------
    request : Request
    runs : int
        Releases of each of the two data sets.
    confidence : float
        1 - `confidence` bounds the probability of calling a true claim violated.
    seed : int
        Decides which runs choose the region, as in `audit`. The noise takes no seed.
    report : callable, optional
        Called with (runs done, runs in all).
    """
    pair = neighbours(request)
    sums = [open_source(table).sums(request.plan(), None) for table in (pair.a, pair.b)]
    exact = [exact_values(request, found) for found in sums]
    laws = noise_laws(request)
    counter = _Counter(2 * runs, report)
    kept = [_Kept(published_values(request, found, counter)) for found in sums]
    result = audit(
        *kept,
        trials=runs,
        training=TRAINING,
        epsilon=stated_epsilon(request),
        delta=float(stated_delta(request)),
        mu=stated_mu(request.event),
        confidence=confidence,
        seed=seed,
        score=(likelihood_ratio(laws, *exact), None),
    )
    drawn = [np.array(runs.outputs) - values for runs, values in zip(kept, exact, strict=True)]
    noise = check_noise(np.concatenate(drawn), laws)
    return ReleaseAudit(request, pair, result, noise, _only_values_differ(request, pair))


def published_values(
    request: Request, sums: Sums, count: Callable[[], None] | None = None
) -> Callable[[], list[float]]:
    """Runs from exact sums on: noise, Release, text, Release; all its values on unit scale."""

    def run() -> list[float]:
        release: Any = release_from_text(request.release(sums.n, sums).to_text())
        if count is not None:
            count()
        return [value for part in release.measurements for value in part.unit_values()]

    return run


def exact_values(request: Request, sums: Sums) -> Array:
    """What would be published without noise, on unit scale."""
    values: list[int] = []
    for statistic in request.statistics:
        if isinstance(statistic, SmallestEigenvalue):
            second = sums.values[SecondMoments.name]
            values.append(eigenvalue(statistic, sums.n, second))
        else:
            values += sums.values[statistic.name]
    return np.array([value / STATISTIC_ONE for value in values])


def noise_laws(request: Request) -> list[Laplace | Gaussian]:
    """The stated law of the noise on every published value, on unit scale."""
    laws: list[Laplace | Gaussian] = []
    for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True):
        family = DISCRETE_FAMILIES[mechanism.family]
        for entry in statistic.entries:
            off = isinstance(statistic, SecondMoments) and entry[0] != entry[1]
            scale = mechanism.off_diagonal_scale if off else mechanism.scale
            laws.append(family(scale).continuous())
    return laws


def chance_of_catching(
    request: Request,
    factor: float,
    *,
    runs: int,
    confidence: float = 0.99,
    audits: int = 20,
    seed: int = 1,
) -> float:
    """How often an audit of this size would catch noise that is `factor` times what is stated.

    Simulated: audits of the same pair with noise of the stated family, by NumPy's generator.
    """
    pair = neighbours(request)
    exact = [
        exact_values(request, open_source(table).sums(request.plan(), None))
        for table in (pair.a, pair.b)
    ]
    laws = noise_laws(request)
    scales = factor * np.array([law.scale for law in laws])
    rng = np.random.default_rng(seed)
    draw = rng.laplace if isinstance(laws[0], Laplace) else rng.normal

    def noisy(values: Array) -> Callable[[int], Array]:
        return lambda trials: values + draw(0.0, scales, (trials, len(values)))

    caught = sum(
        not audit(
            *(noisy(values) for values in exact),
            trials=runs,
            training=TRAINING,
            epsilon=stated_epsilon(request),
            delta=float(stated_delta(request)),
            mu=stated_mu(request.event),
            confidence=confidence,
            seed=number,
            score=likelihood_ratio(laws, *exact),
            batch=True,
        ).passed
        for number in range(audits)
    )
    return caught / audits


def _only_values_differ(request: Request, pair: Neighbours) -> bool:
    """Publish both data sets for real and compare what is beside the values."""
    documents = []
    with tempfile.TemporaryDirectory() as folder:
        for name, table in (("a", pair.a), ("b", pair.b)):
            documents.append(_beside_values(request, table, Path(folder) / f"{name}.ledger"))
    return documents[0] == documents[1]


def _beside_values(request: Request, table: Table, ledger: Path) -> dict[str, Any]:
    release: Any = publish(request, table, ledger=ledger).release
    document: dict[str, Any] = copy.deepcopy(release.document)
    for part in document["measurements"]:
        part.pop("values")
    return document


class _Kept:
    """Runs that remember what they returned."""

    def __init__(self, run: Callable[[], list[float]]) -> None:
        self.run = run
        self.outputs: list[list[float]] = []

    def __call__(self) -> list[float]:
        self.outputs.append(self.run())
        return self.outputs[-1]


class _Counter:
    """Counts runs for a progress bar."""

    def __init__(self, total: int, report: Report | None) -> None:
        self.done, self.total, self.report = 0, total, report

    def __call__(self) -> None:
        self.done += 1
        if self.report is not None:
            self.report(self.done, self.total)
