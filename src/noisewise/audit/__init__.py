"""An audit of a holder's own request, on data sets that are made from its public schema.

Everything between rows and a published file takes part: two neighbouring synthetic data sets go
once through the one door, `publish`, with a ledger that is thrown away, where all of the file but
the noisy values must be equal; then Releases are made of each, many times, written as text and read
back. The outputs are used twice: how well do they tell the two apart, and is their noise the stated
one? The holder's data and ledger are never opened.

Any request that can be published can be audited: regressions, block summaries, networks, and draws
of a regression's coefficients.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, ndtri

from noisewise.audit.challenge import Challenge, DrawCheck, Neighbours, NoiseCheck
from noisewise.audit.engine import AuditResult, audit
from noisewise.audit.network import network_challenge
from noisewise.audit.regression import draws_challenge, regression_challenge
from noisewise.audit.rounds import glm_challenge, rounds_challenge
from noisewise.audit.summary import summary_challenge
from noisewise.core.composition import epsilon_of
from noisewise.core.errors import RequestError
from noisewise.core.privacy import ComposedEvent, Event, GaussianEvent
from noisewise.core.temporary import private_folder
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.base import DEFAULT_DELTA, Publishable
from noisewise.holder.requests.draws import RegressionSampleRequest
from noisewise.holder.requests.glm import GlmRequest
from noisewise.holder.requests.network import LEARN, NetworkRequest
from noisewise.holder.requests.regression import Request
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.holder.requests.summary import SummaryRequest

Report = Callable[[int, int | None], None]
RUNS = 1000
TRAINING = 0.3  # the best score is nearly always known, so only a threshold has to be found
_MAYBE_GAUSSIAN = (Request, RoundsRequest, GlmRequest, NetworkRequest)
_CHALLENGES: tuple[tuple[type, Callable[[Any], Challenge]], ...] = (
    (Request, regression_challenge),
    (RoundsRequest, rounds_challenge),
    (GlmRequest, glm_challenge),
    (SummaryRequest, summary_challenge),
    (NetworkRequest, network_challenge),
    (RegressionSampleRequest, draws_challenge),
)
# What may differ between the files of two data sets. What rounds say beside their values follows
# from values of earlier ones.
_NOISY = ("values", "draws", "rounds", "looks", "shape", "newton", "digest")


@dataclass(frozen=True)
class ReleaseAudit:
    """What an audit of a request found."""

    request: Publishable[Any]
    pair: Neighbours
    result: AuditResult
    # Whether the noise of the runs is the stated one, or the draws follow their stated law
    # (`challenge.NoiseCheck`); None if that law could not be computed
    noise: NoiseCheck | DrawCheck | None
    # Whether the two published files agree in everything but the noisy values
    only_values_differ: bool

    @property
    def passed(self) -> bool:
        """Whether nothing was found that contradicts the claim."""
        noise = self.noise is None or self.noise.passed
        return self.result.passed and noise and self.only_values_differ

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


def stated_delta(request: Publishable[Any]) -> Any:
    """The claim's delta; for zCDP, the default one."""
    return DEFAULT_DELTA if request.claim.epsilon is None else request.claim.delta


def stated_epsilon(request: Publishable[Any]) -> float:
    """The claim's epsilon; for zCDP, the one at the default delta."""
    if request.claim.epsilon is not None:
        return float(request.claim.epsilon)
    assert isinstance(request, _MAYBE_GAUSSIAN)  # no others have claims without epsilon
    return float(epsilon_of([request.event], DEFAULT_DELTA))


def stated_mu(event: Event) -> float | None:
    """How many standard deviations Gaussian noise lets neighbours be apart; None without any.

    A pure event among Gaussian ones (a choice) counts as μ = 2 Φ⁻¹(e^ε/(1 + e^ε)): where both
    errors of a test are 1/(1 + e^ε) the bounds of ε and μ meet, and elsewhere that of ε is a
    straight line that the convex one of μ is below.
    """
    events = event.events if isinstance(event, ComposedEvent) else (event,)
    if not any(isinstance(e, GaussianEvent) for e in events):
        return None
    apart = [
        1 / e.noise_multiplier
        if isinstance(e, GaussianEvent)
        else 2 * ndtri(expit(float(e.epsilon)))
        for e in events
        if not isinstance(e, ComposedEvent)
    ]
    return float(np.linalg.norm(apart)) if len(apart) == len(events) else None


def challenge_of(request: Publishable[Any]) -> Challenge:
    """Two data sets for a request, and how to run it on them."""
    for kind, make in _CHALLENGES:
        if isinstance(request, kind):
            return make(request)
    raise RequestError(f"request: a {type(request).__name__} cannot be audited")


def audit_release(
    request: Publishable[Any] | Challenge,
    *,
    runs: int = RUNS,
    confidence: float = 0.99,
    seed: int = 0,
    report: Report | None = None,
) -> ReleaseAudit:
    """Bound from below what a request gives away about one person, by trying.

    `runs` are Releases of each of the two data sets, and 1 - `confidence` bounds the probability of
    calling a true claim violated. The seed decides which runs choose the region, as in `audit`; the
    noise takes none. `report` is called with (runs done, runs in all).
    """
    challenge = request if isinstance(request, Challenge) else challenge_of(request)
    outputs: tuple[list[list[float]], list[list[float]]] = ([], [])

    def kept(side: int) -> list[float]:
        outputs[side].append(challenge.run(side))
        if report is not None:
            report(len(outputs[0]) + len(outputs[1]), 2 * runs)
        return outputs[side][-1]

    both, claim = (partial(kept, 0), partial(kept, 1)), _claim(challenge, confidence)
    result = audit(*both, trials=runs, seed=seed, score=challenge.scores, **claim)
    noise = challenge.check(np.array(outputs[0]), np.array(outputs[1]))
    alike = _only_values_differ(challenge)
    return ReleaseAudit(challenge.request, challenge.pair, result, noise, alike)


def chance_of_catching(
    request: Publishable[Any] | Challenge,
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
    challenge = request if isinstance(request, Challenge) else challenge_of(request)
    rng, score = np.random.default_rng(seed), challenge.scores[0]
    both = [challenge.weakened(side, factor, rng) for side in (0, 1)]
    claim = _claim(challenge, confidence)
    found = (
        audit(*both, trials=runs, seed=number, score=score, batch=True, **claim)
        for number in range(audits)
    )
    return sum(not one.passed for one in found) / audits


def _claim(challenge: Challenge, confidence: float) -> dict[str, Any]:
    """What is challenged, in the words of `audit`."""
    request = challenge.request
    return {
        "training": TRAINING,
        "epsilon": stated_epsilon(request),
        "delta": float(stated_delta(request)),
        "mu": stated_mu(request.event) if isinstance(request, _MAYBE_GAUSSIAN) else None,
        "confidence": confidence,
    }


def _only_values_differ(challenge: Challenge) -> bool:
    """Publish both data sets for real and compare what is beside the values."""
    request, documents = challenge.request, []
    price = request.charge()
    for table in (challenge.pair.a, challenge.pair.b):
        with private_folder() as folder, Ledger(folder / "budget.ledger") as budget:
            budget.set_cap(price.dataset, price.epsilon, price.delta)
            text = publish(request, table, ledger=budget).release.to_text()
        document = json.loads(text)
        if document.get("mechanism") == LEARN:
            del document["parents"]  # chosen at random, and looked at by the attack
        documents.append(_without_values(document))
    return bool(documents[0] == documents[1])


def _without_values(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _without_values(p) for name, p in part.items() if name not in _NOISY}
    return [_without_values(p) for p in part] if isinstance(part, list) else part
