"""The challenge of a logistic or Poisson regression: every run goes through all of its rounds.

As in `audit.rounds`, the log likelihood ratio of a whole Release is a sum over its rounds, each in
its own published coordinates and at its own theta.

**The pair.** The outcome of the rows that both data sets share falls steeply with the first number,
so that rows with a higher value of it hardly ever have the event. The unit has a higher value, and
the event: its residual is nearly 1. A row further out counts less, so its score is longest at the
edge of the ball, and there the unit is. If it is absent from the other data set, its first number
alone takes it there. Where it is replaced, the other numbers do, on one side in one data set and on
the other side in the other: the constant and the first number cancel, so that no pair comes nearer
to the bound than R/√(c² + R²), 0.8 of it with two numbers. With fewer than two numbers the unit has
the opposite outcome in the other data set, where that is surprising.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise.audit.challenge import Challenge, Table, rows_of_one
from noisewise.audit.rounds import Part, Rows, challenge_in_rounds, of_round, scaled
from noisewise.core.kinds.glm import GlmRelease, Newton, information_entries
from noisewise.core.rounds.newton import newton_shape
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category
from noisewise.core.statistics.ball_moments import PRODUCT_ONE
from noisewise.core.statistics.scores import SCORE_ONE
from noisewise.holder.requests.glm import GlmRequest
from noisewise.holder.rows.scores import ScorePlan

_FEWEST = 400
_SPREAD = 0.15  # of the rows that both data sets share, on the bounds' own scale
_HIGHER = 0.6  # the unit's first number, in these spreads, if others take it to the edge
_EDGE = 0.97  # of the squared radius of the rounds


def glm_challenge(request: GlmRequest) -> Challenge:
    """Two data sets far apart, and Releases through all rounds."""
    return challenge_in_rounds(request, _tables(request), _parts)


def _parts(request: GlmRequest, release: GlmRelease, sources: Sequence[Rows]) -> list[Part]:
    """All that a Release publishes, the last round last: with the exact sums of both data sets."""
    looks = [of_round(request.covariates, one, sources) for one in release.looks]
    newton = [_of_newton(request, release.shape, one, sources) for one in release.newton]
    return [*looks, *newton]


def _of_newton(request: GlmRequest, shape: Shape, one: Newton, sources: Sequence[Rows]) -> Part:
    sums = [source.sums(ScorePlan(request.design, shape, one.theta)) for source in sources]
    a, b = np.array(information_entries(len(one.theta))).T
    scale = np.where(a == b, one.information_scale, one.off_diagonal_scale)
    score = scaled(
        one.score, [found.score for found in sums], np.full(len(one.score), one.scale), SCORE_ONE
    )
    information = scaled(
        one.information, [found.information[a, b] for found in sums], scale, PRODUCT_ONE
    )
    joined = [np.concatenate(pair) for pair in zip(score, information, strict=True)]
    return joined[0], joined[1], joined[2], joined[3]


def _tables(request: GlmRequest) -> tuple[Table, Table]:
    schema, setting = request.schema, request.setting
    n = _FEWEST
    if setting.numbers:  # with room for a noisy number of rows
        n = max(n, setting.rows_needed() * (1 if setting.replaces else 2))
    rng, (_, copies) = np.random.default_rng(0), rows_of_one(schema)
    radius = newton_shape(setting, request.outcome, Transform.box(setting.numbers), n).radius
    edge = _EDGE * radius**2 / PRODUCT_ONE
    places = _places(setting.numbers, edge, replaced=setting.replaces)
    alone = setting.numbers < 2
    a: Table = {}
    b: Table = {}
    decides = rng.random(n) < 0.5  # where there is no number, nothing does
    numbers = 0
    for name in request.covariates.sources[:-1]:  # the last one is the target
        column = schema.columns[name]
        if isinstance(column, Category):
            shared: list[Any] = [column.levels[k % len(column.levels)] for k in range(n)]
            ends: tuple[Any, Any] = (column.indicated[0], column.indicated[-1])
        else:
            spread = np.clip(_SPREAD * rng.normal(size=n), -1, 1)
            shared = (column.centre + column.half_width * spread).tolist()
            if numbers == 0:
                decides = spread < 0
            at = min(_SPREAD * places[min(numbers, len(places) - 1)], 1.0)
            other = at if numbers == 0 and not alone else -at
            ends = (
                column.centre + column.half_width * at,
                column.centre + column.half_width * other,
            )
            numbers += 1
        a[name] = [*shared, *[ends[0]] * copies]
        b[name] = [*shared, *([ends[1]] * copies if setting.replaces else [])]
    target = schema.columns[request.design.target]
    no: float | str = 0.0
    yes: float | str = float(request.outcome.bound)
    if isinstance(target, Category):
        no, yes = target.reference, target.indicated[0]
    outcomes = [yes if event else no for event in decides]
    a[request.design.target] = [*outcomes, *[yes] * copies]
    replaced = [no if alone else yes] * copies if setting.replaces else []
    b[request.design.target] = [*outcomes, *replaced]
    return a, b


def _places(numbers: int, edge: float, *, replaced: bool) -> list[float]:
    """Where the unit is, in spreads, by number: at a squared distance of `edge`."""
    if not replaced or numbers < 2:
        return [math.sqrt(edge)] + [0.0] * (numbers - 1)
    rest = math.sqrt((edge - _HIGHER**2) / (numbers - 1))
    return [_HIGHER] + [rest] * (numbers - 1)
