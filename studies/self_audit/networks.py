"""The network mechanisms and posterior draws on bad pairs of neighbours, and what breaks them.

Powers, from exact probabilities of regions, are in ``tests/statistical/test_network_audit.py``. It
has one control more: drawing again until no cell is negative loses 1.59 for a claim of 1, and many
thousands of runs are needed to see that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.audit.engine import AuditResult, audit
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import TABLE_BITS, learned_squares
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.networks.counts import FamilyCounts, LaplaceCounts
from noisewise.holder.networks.fourier import FourierParities
from noisewise.holder.networks.learned import LearnedGraph, noisy_maximum
from noisewise.holder.networks.map import plan_grid_map
from noisewise.holder.networks.posterior_sample import plan_posterior_sample
from noisewise.holder.requests.draws import make_regression_sample_request
from studies.self_audit.broken import (
    ClampingSampler,
    CountsWithHalfTheNoise,
    GridWithoutSensitivity,
    UntemperedRegression,
)
from studies.self_audit.registry import Subject

_ONE = 1 << TABLE_BITS


def _one_node(levels: int) -> Network:
    names = tuple(map(str, range(levels)))
    return Network(Schema("audited", {"x": Category(names, "0")}), {"x": ()})


def _counts(table: Sequence[int]) -> FamilyCounts:
    return FamilyCounts(sum(table), {"x": np.array(table)})


@lru_cache(maxsize=1)
def _sample() -> Any:
    """Draws within [0.4, 0.6], for two or three records of one kind."""
    epsilon = 2 * Fraction(np.log(1.5)).limit_denominator(10**9)
    prior = {"x": Fraction(1)}
    return plan_posterior_sample(
        _one_node(2), epsilon, draws=1, concentration=prior, temper=Fraction(1)
    )


@lru_cache(maxsize=1)
def _grid() -> Any:
    prior = {"x": Fraction(1)}
    return plan_grid_map(
        _one_node(2), Fraction(1), concentration=prior, omega=Fraction(1, 8), points=2
    )


@lru_cache(maxsize=1)
def _regression() -> Any:
    schema = Schema("audited", {"x": Number(-1, 1), "y": Number(-1, 1)})
    words: dict[str, Any] = {"noise_sd": "0.3", "epsilon": 1, "largest_norm": 1}
    return make_regression_sample_request(schema, target="y", features=["x"], **words)


def _values(content: Any) -> FloatArray:
    """What a mechanism's content says, as numbers."""
    if hasattr(content, "draws"):
        return np.array([v / _ONE for v in content.draws[0]["x"]])
    if isinstance(content.values, Mapping):
        return np.concatenate([np.ravel(v) for v in content.values.values()]).astype(np.float64)
    return np.asarray(content.values, dtype=np.float64)


def _check(
    make: Callable[[], Any],
    pair: tuple[Sequence[int], Sequence[int]],
    epsilon: float,
    runs: int,
    confidence: float,
) -> AuditResult:
    mechanism = make()

    def outputs(table: Sequence[int]) -> Callable[[], FloatArray]:
        counts = _counts(table)
        return lambda: _values(mechanism.draw(counts))

    return audit(
        *(outputs(table) for table in pair),
        trials=runs,
        epsilon=epsilon,
        confidence=confidence,
        seed=0,
        training=0.3,
        score=(None, lambda values: values[:, 0], lambda values: -values[:, 0]),
    )


def _check_regression(make: Callable[[], Any], runs: int, confidence: float) -> AuditResult:
    request, mechanism = _regression(), make()

    def outputs(y: float) -> Callable[[], FloatArray]:
        sums = open_source({"x": [1.0], "y": [y]}).sums(request.plan(), None)
        return lambda: np.array(mechanism.draw(sums)[0]) / 2**32

    return audit(
        *(outputs(y) for y in (1.0, -1.0)),
        trials=runs,
        epsilon=1.0,
        confidence=confidence,
        seed=0,
        training=0.3,
        score=lambda values: values.sum(axis=1),
    )


def _check_choice(share: float, runs: int, confidence: float) -> AuditResult:
    """Two candidates whose scores a neighbour turns round: 2 more of the one, 2 less of the other.

    At epsilon = 1 the noise is to have scale 2 * 2; `share` of it is drawn.
    """

    def outputs(scores: Sequence[int]) -> Callable[[], FloatArray]:
        return lambda: np.array([float(noisy_maximum(scores, 4.0 * share))])

    return audit(
        *(outputs(scores) for scores in ((2, 0), (0, 2))),
        trials=runs,
        epsilon=1.0,
        confidence=confidence,
        seed=0,
        training=0.3,
        score=(lambda values: values[:, 0], lambda values: -values[:, 0]),
    )


def _check_gaussian(share: float, runs: int, confidence: float) -> AuditResult:
    """Levels of two nodes, for records that differ in both; `share` of the noise is drawn."""
    names = tuple("012")
    schema = Schema("audited", {name: Category(names, "0") for name in ("x", "y")})
    network = Network(schema, {"x": (), "y": ("x",)})
    planned = LearnedGraph(network, Fraction(6), Fraction("1e-6"))
    scale = share * planned.scales(network, 5)["levels"]
    mu = float(np.sqrt(float(learned_squares(network)["levels"]))) / (scale / share)

    def outputs(table: Sequence[int]) -> Callable[[], FloatArray]:
        return lambda: np.array(planned._noise(table, scale), dtype=np.float64)

    return audit(
        *(outputs(table) for table in ((3, 2, 0, 3, 2, 0), (2, 3, 0, 2, 3, 0))),
        trials=runs,
        epsilon=6.0,
        delta=1e-6,
        mu=mu,
        confidence=confidence,
        seed=0,
        training=0.3,
        score=lambda values: values @ np.array([1.0, -1.0, 0.0, 1.0, -1.0, 0.0]),
    )


def _subject(
    name: str,
    describe: str,
    make: Callable[[], Any],
    pair: tuple[Sequence[int], Sequence[int]],
    epsilon: float,
    runs: int,
    sound: bool = True,
) -> Subject:
    return Subject(name, describe, partial(_check, make, pair, epsilon), runs, sound)


def _laplace() -> LaplaceCounts:
    return LaplaceCounts(_one_node(2), Fraction(1))


def _fourier() -> FourierParities:
    return FourierParities(_one_node(4), Fraction(1))


_SAMPLE_EPSILON = 2 * float(np.log(1.5))
_TWO = ((3, 2), (2, 3))
_FOUR = ((6, 0, 0, 0), (5, 1, 0, 0))
_TAIL = ((0, 3), (1, 2))

SUBJECTS = (
    _subject("network-laplace", "noisy counts of a network", _laplace, _TWO, 1.0, 1500),
    _subject("network-fourier", "noisy parities of a network", _fourier, _FOUR, 1.0, 2000),
    _subject(
        "posterior-truncated",
        "a draw of a truncated posterior",
        _sample,
        _TAIL,
        _SAMPLE_EPSILON,
        3000,
    ),
    _subject("network-map", "MAP on a grid", _grid, ((1, 0), (0, 1)), 1.0, 1500),
    Subject("network-choice", "an edge of a learned graph", partial(_check_choice, 1.0), 1500),
    Subject(
        "network-choice-half-noise",
        "an edge chosen with half of the noise",
        partial(_check_choice, 0.5),
        2000,
        sound=False,
    ),
    Subject(
        "network-gaussian",
        "Gaussian counts of a learned graph",
        partial(_check_gaussian, 1.0),
        1000,
    ),
    Subject(
        "network-gaussian-half-noise",
        "half of the Gaussian noise on counts",
        partial(_check_gaussian, 0.5),
        1000,
        sound=False,
    ),
    Subject(
        "regression-draw",
        "a draw of a regression's tempered posterior",
        partial(_check_regression, lambda: _regression().planned),
        400,
    ),
    _subject(
        "network-half-noise",
        "half of the noise on counts",
        lambda: CountsWithHalfTheNoise(_laplace()),
        _TWO,
        1.0,
        2000,
        sound=False,
    ),
    _subject(
        "posterior-clamped",
        "a posterior draw clamped instead of truncated",
        lambda: ClampingSampler(_sample()),
        _TAIL,
        _SAMPLE_EPSILON,
        3000,
        sound=False,
    ),
    _subject(
        "map-without-sensitivity",
        "an exponential mechanism that forgets to divide by the sensitivity",
        lambda: GridWithoutSensitivity(_grid()),
        ((1, 0), (0, 1)),
        1.0,
        1500,
        sound=False,
    ),
    Subject(
        "regression-untempered",
        "a draw of the plain posterior at the price of a tempered one",
        partial(_check_regression, lambda: UntemperedRegression(_regression().planned)),
        400,
        sound=False,
    ),
)
