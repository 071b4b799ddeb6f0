"""The regression mechanisms of noisewise, each on its worst pair, from rows to the file's text.

Designs are small and budgets moderate, where a mistake in the noise shows after a thousand runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from fractions import Fraction
from functools import partial
from typing import Any

from noisewise.audit import audit_release
from noisewise.audit.engine import AuditResult, audit
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.holder.requests.glm import GlmRequest, make_glm_request
from noisewise.holder.requests.regression import Request, make_request
from noisewise.holder.requests.rounds import RoundsRequest
from studies.self_audit.broken import (
    HalfNoiseRounds,
    HalfNoiseScores,
    NoiseDrawnOnce,
    add_remove_passed_off_as_replace_one,
    fourth_moments_without_noise,
    noise_scale_halved,
    with_mechanisms,
)
from studies.self_audit.registry import Subject

_COLUMNS = {
    "hours": Number(0, 60),
    "age": Number(18, 90),
    "region": Category(("north", "south", "east"), "north"),
    "income": Number(-1e4, 2.5e5),
}


def request_for(
    features: str = "hours", neighbours: str = "replace_one", rows: int = 1, **words: Any
) -> Request | RoundsRequest:
    """A request on an invented schema."""
    schema = Schema("audited", _COLUMNS, neighbours=neighbours, max_rows_per_unit=rows)  # type: ignore[arg-type]
    words = {"rounds": 1, **words}
    return make_request(schema, target="income", features=features.split("+"), **words)


def _of_request(
    make: Callable[..., Any], name: str, describe: str, runs: int, sound: bool, **words: Any
) -> Subject:
    def check(runs: int, confidence: float) -> AuditResult:
        return audit_release(make(**words), runs=runs, confidence=confidence).result

    return Subject(name, describe, check, runs, sound)


def _subject(name: str, describe: str, **words: Any) -> Subject:
    return _of_request(request_for, name, describe, 1000, True, **words)


# --- mistakes that have been made in earnest ------------------------------------------------------


def _half_noise(name: str, describe: str, runs: int, **words: Any) -> Subject:
    """A request whose mechanism draws half of the noise that it states."""

    def make(**words: Any) -> Request:
        request = request_for(**words)
        return with_mechanisms(request, noise_scale_halved(request.mechanisms[0]))  # type: ignore[arg-type]

    return _of_request(make, name, describe, runs, False, **words)


def _add_remove() -> Request:
    request = request_for("hours+age", epsilon=4, delta="1e-6", layout="isometric")
    return with_mechanisms(request, add_remove_passed_off_as_replace_one(request))


def half_noise_rounds(**words: Any) -> HalfNoiseRounds:
    """A request in rounds that draws half of its noise."""
    sound = request_for(**words)
    assert isinstance(sound, RoundsRequest)
    return HalfNoiseRounds(**{field.name: getattr(sound, field.name) for field in fields(sound)})


def glm_request(
    family: str = "logistic", neighbours: str = "replace_one", **words: Any
) -> GlmRequest:
    """A logistic or Poisson regression on an invented schema."""
    target = Category(("no", "yes"), "no") if family == "logistic" else Number(0, 9)
    columns = {name: _COLUMNS[name] for name in ("hours", "age", "region")}
    columns = {**columns, "ill": target}
    schema = Schema("audited", columns, neighbours=neighbours)  # type: ignore[arg-type]
    words = {"features": ["hours", "age"], "rho": "2", **words}
    return make_glm_request(schema, family=family, target="ill", **words)  # type: ignore[arg-type]


def half_noise_scores(family: str = "logistic") -> HalfNoiseScores:
    """A logistic or Poisson regression that draws half of its noise."""
    sound = glm_request(family, "add_remove_one")  # where a pair comes near the bound
    return HalfNoiseScores(**{field.name: getattr(sound, field.name) for field in fields(sound)})


def _glm(name: str, describe: str, **words: Any) -> Subject:
    return _of_request(glm_request, name, describe, 500, True, **words)


def _broken(name: str, describe: str, make: Callable[[], Any], runs: int = 500) -> Subject:
    return _of_request(make, name, describe, runs, False)


def _fourth() -> Request:
    return fourth_moments_without_noise(request_for(epsilon=2, fourth_moments="0.5"))


def two_releases(once: bool) -> Subject:
    """Two Releases of different batches, one of which has the person; drawn with the same noise?

    Nobody is in both batches, so both together cost epsilon = 1, once. With one noise vector for
    both, their difference has no noise at all.
    """
    sound = LaplaceMechanism(STATISTIC_ONE, Fraction(1))

    def runs(person: int) -> Callable[[], list[float]]:
        def run() -> list[float]:
            mechanism: Any = NoiseDrawnOnce(sound) if once else sound
            sums: Sequence[int] = (person * STATISTIC_ONE, 0)
            return [mechanism.add_noise([value])[0] / STATISTIC_ONE for value in sums]

        return run

    def check(trials: int, confidence: float) -> AuditResult:
        return audit(runs(1), runs(0), trials=trials, epsilon=1.0, confidence=confidence, seed=0)

    if once:
        return Subject(
            "noise-twice", "the noise of one Release used again", check, 400, sound=False
        )
    return Subject("noise-once", "two Releases with noise of their own", check, 400)


SUBJECTS = (
    _subject("laplace", "Laplace noise, one feature", epsilon=2),
    _subject("laplace-category", "Laplace noise, a category", features="region", epsilon=2),
    _subject("laplace-rows", "Laplace noise, three rows a person", rows=3, epsilon=2),
    _subject(
        "laplace-add-remove",
        "Laplace noise, one row more or less",
        neighbours="add_remove_one",
        epsilon=2,
    ),
    _subject(
        "gaussian", "Gaussian noise, two features", features="hours+age", epsilon=2, delta="1e-6"
    ),
    _subject(
        "gaussian-isometric",
        "Gaussian noise, isometric layout",
        features="hours+age",
        epsilon=2,
        delta="1e-6",
        layout="isometric",
    ),
    _subject("gaussian-ball", "Gaussian noise, rows in a ball", rho="0.5", radius=1.0),
    _subject(
        "fourth-moments",
        "Laplace noise on second and fourth moments",
        epsilon=4,
        fourth_moments="0.5",
    ),
    _subject(
        "eigenvalue",
        "Laplace noise on the smallest eigenvalue too",
        epsilon=2,
        smallest_eigenvalue="0.5",
    ),
    _subject(
        "eigenvalue-gaussian",
        "Gaussian noise on the smallest eigenvalue too",
        rho="0.5",
        smallest_eigenvalue="0.5",
    ),
    _subject(
        "rounds",
        "Gaussian noise in rounds, two features and a category",
        features="hours+age+region",
        epsilon=8,
        delta="1e-6",
        rounds="auto",
    ),
    _subject(
        "rounds-add-remove",
        "Gaussian noise in rounds, one row more or less",
        features="hours+age",
        neighbours="add_remove_one",
        rho="2",
        rounds=3,
    ),
    _glm("logistic", "scores of yes or no, replacing a row"),
    _glm(
        "logistic-category",
        "scores of yes or no, with a category, one row more or less",
        features=["hours", "region"],
        neighbours="add_remove_one",
    ),
    _glm("poisson", "scores of counts", family="poisson"),
    _broken("half-noise-scores", "half of the Gaussian noise on scores", half_noise_scores),
    _broken(
        "half-noise-counts",
        "half of the Gaussian noise on scores of counts",
        partial(half_noise_scores, "poisson"),
    ),
    _half_noise("half-noise", "half of the Laplace noise", 6000, epsilon=2),
    _half_noise(
        "half-noise-gaussian",
        "half of the Gaussian noise",
        2000,
        features="hours+age",
        epsilon=2,
        delta="1e-6",
    ),
    _broken(
        "half-noise-rounds",
        "half of the Gaussian noise in rounds",
        partial(half_noise_rounds, features="hours+age", rho="2", rounds=3),
    ),
    _broken("add-remove", "add/remove noise for a replace-one claim", _add_remove, 3000),
    _broken("fourth-exact", "fourth moments passed on without noise", _fourth),
    two_releases(once=True),
    two_releases(once=False),
)
