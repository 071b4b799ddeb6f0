"""The challenges of requests in rounds: every run goes through all of them.

What a round sums depends on what earlier rounds have published, so there are no exact sums to start
from: a run reads the rows in every round, as the holder does, without the ledger. The best score is
known all the same. Given the rounds before it, a round is a sum with Gaussian noise, so the log
likelihood ratio of a whole Release is a sum over its rounds, each in its own published coordinates,
and anybody who has both data sets can compute it. A run's output is this ratio, and the noise of
the first measurement and of the last round in units of what is stated.

**The pair of a linear regression.** Rows near the centre of the bounds, so many that there are
rounds, and one unit that is at a corner of the bounds in one data set, and in the other at a corner
at right angles to it (or is absent). Both are far out in every round's coordinates, so they move
its sums by nearly all that the ball allows.

**The pair of a logistic or Poisson regression.** The outcome of the rows that both data sets share
falls steeply with the first number, so that rows with a higher value of it hardly ever have the
event. The unit has a higher value, and the event: its residual is nearly 1. A row further out
counts less, so its score is longest at the edge of the ball, and there the unit is. If it is absent
from the other data set, its first number alone takes it there. Where it is replaced, the other
numbers do, on one side in one data set and on the other side in the other: the constant and the
first number cancel, so that no pair comes nearer to the bound than R/√(c² + R²), 0.8 of it with two
numbers. With fewer than two numbers the unit has the opposite outcome in the other data set, where
that is surprising.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from noisewise._arrays import FloatArray
from noisewise.audit.challenge import (
    Batch,
    Challenge,
    Neighbours,
    NoiseCheck,
    Table,
    check_noise,
    rows_of_one,
    with_ids,
)
from noisewise.core.design import STATISTIC_ONE, Design
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.glm import GlmRelease, Newton, information_entries
from noisewise.core.kinds.regression import Release
from noisewise.core.kinds.rounds import Round, Rounds, Tail, gram_entries, triangle
from noisewise.core.noise import Gaussian
from noisewise.core.rounds.newton import newton_shape
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.core.statistics.ball_moments import COUNT_ONE, PRODUCT_ONE
from noisewise.core.statistics.scores import SCORE_ONE
from noisewise.holder.requests.glm import GlmRequest
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.holder.rows import Plan
from noisewise.holder.rows.rounds import BallPlan, ResidualPlan, TailPlan
from noisewise.holder.rows.scores import ScorePlan

_FEWEST, _MOST = 200, 20_000
_SPREAD = 0.15  # of the rows that both data sets share, on the bounds' own scale

Result = TypeVar("Result")
Part = tuple[FloatArray, FloatArray, FloatArray, FloatArray]  # noisy, exact of A and B, sd


def rounds_challenge(request: RoundsRequest) -> Challenge:
    """Two data sets far apart, and Releases through all rounds."""
    return _challenge(request, _tables(request), _parts)


def _challenge(
    request: Any,
    tables: tuple[Table, Table],
    parts_of: Callable[[Any, Any, Sequence[_Rows]], list[Part]],
) -> Challenge:
    """The challenge of any request in rounds.

    `parts_of` takes the request, a Release and both data sets to all that it publishes, the last
    round last.
    """
    sources = (_Rows(request, tables[0]), _Rows(request, tables[1]))
    # How far apart they are, in units of the noise, with the coordinates of one Release
    found = parts_of(request, _released(request, sources[0]), sources)
    distance = math.sqrt(sum(np.sum(((a - b) / s) ** 2) for _, a, b, s in found))
    pair = Neighbours(*tables, distance * request.event.noise_multiplier)
    size = len(found[0][0]) + len(found[-1][0])

    def run(side: int) -> list[float]:
        parts = parts_of(request, _released(request, sources[side]), sources)
        ratio = sum(
            float(np.sum(((u - b) ** 2 - (u - a) ** 2) / (2 * s**2))) for u, a, b, s in parts
        )
        noise = [(u - (a, b)[side]) / s for u, a, b, s in (parts[0], parts[-1])]
        return [ratio, *np.concatenate(noise).tolist()]

    def check(a: FloatArray, b: FloatArray) -> NoiseCheck:
        return check_noise(np.concatenate([a[:, 1:], b[:, 1:]]), [Gaussian(1.0)] * size)

    def weakened(side: int, factor: float, rng: np.random.Generator) -> Batch:
        def draw(trials: int) -> FloatArray:
            noise = factor * rng.normal(size=(trials, size + 1))
            noise[:, 0] = (1.0, -1.0)[side] * distance**2 / 2 + distance * noise[:, 0]
            return noise

        return draw

    def ratio(outputs: FloatArray) -> FloatArray:
        return outputs[:, 0]

    return Challenge(request, pair, run, (ratio,), check, weakened)


class _Rows:
    """A small table as an engine hands it to accumulators, without the cost of opening it."""

    def __init__(self, request: Any, table: Table) -> None:
        self._columns: dict[str, Any] = {}
        for name in request.sources:
            if name == request.schema.unit_column:
                self._columns[name] = pa.array(table[name], type=pa.int64())
                continue
            column = request.schema.columns[name]
            if isinstance(column, Category):
                codes = [column.levels.index(level) for level in table[name]]
                self._columns[name] = np.array(codes, dtype=np.int32)
            else:
                self._columns[name] = np.array(table[name], dtype=np.float64)

    def sums(self, plan: Plan[Result]) -> Result:
        """One pass over the rows."""
        accumulator = plan.accumulator()
        accumulator.add([self._columns[name] for name in plan.sources])
        return accumulator.result()


def _released(request: Any, source: _Rows) -> Any:
    """Through all rounds, written as text and read back."""
    sums = source.sums(request.plan())
    kept: list[str] = []
    drawn = request.begin(sums.n, sums)
    while isinstance(drawn, str):
        kept.append(drawn)
        step = request.next_step(kept)
        drawn = request.draw(kept, step, source.sums(request.step_plan(step)))
    return release_from_text(drawn.to_text())


def _parts(request: RoundsRequest, release: Release, sources: Sequence[_Rows]) -> list[Part]:
    """All that a Release publishes, with the exact sums of both data sets.

    The last round comes last, together with the residuals.
    """
    first = release.second_moments
    exact = [source.sums(request.plan()).values[SecondMoments.name] for source in sources]
    found = [_scaled(first.values, exact, np.full(len(first.values), first.scale), STATISTIC_ONE)]
    rounds = release.rounds
    if rounds is None:
        return found
    if rounds.tail is not None:
        found.append(_of_tail(request, rounds.tail, sources))
    found += [_of_round(request.design, one, sources) for one in (*rounds.explored, rounds.last)]
    if rounds.residuals is not None:
        found.append(_joined(found.pop(), _of_residuals(request, rounds, sources)))
    return found


def _of_round(design: Design, one: Round, sources: Sequence[_Rows]) -> Part:
    """What a round of Gram matrices publishes, and the exact sums of both data sets."""
    entries = gram_entries(design, one.shape)
    places = tuple(np.array(entries).T)
    exact = []
    for source in sources:
        sums = source.sums(BallPlan(design, one.shape))
        grams = [sums.inside, sums.outside] if len(one.values) > 1 else [sums.inside + sums.outside]
        exact.append(np.concatenate([gram[places] for gram in grams]))
    scale = np.where(places[0] == places[1], one.scale, one.off_diagonal_scale)
    noisy = [value for matrix in one.values for value in matrix]
    return _scaled(noisy, exact, np.tile(scale, len(one.values)), PRODUCT_ONE)


def _of_tail(request: RoundsRequest, tail: Tail, sources: Sequence[_Rows]) -> Part:
    counts = [source.sums(TailPlan(request.design, tail.transform)).counts for source in sources]
    exact = [[count * COUNT_ONE for count in one] for one in counts]
    return _scaled(tail.values, exact, np.full(len(tail.values), tail.scale), COUNT_ONE)


def _of_residuals(request: RoundsRequest, rounds: Rounds, sources: Sequence[_Rows]) -> Part:
    spread, shape = rounds.residuals, rounds.last.shape
    assert spread is not None
    plan = ResidualPlan(request.design, shape, spread.direction, spread.radius)
    places = tuple(np.array(triangle(len(spread.direction))).T)
    exact = [source.sums(plan).inside[places] for source in sources]
    scale = np.where(places[0] == places[1], spread.scale, spread.off_diagonal_scale)
    return _scaled(spread.values, exact, scale, PRODUCT_ONE)


def _joined(one: Part, other: Part) -> Part:
    noisy, a, b, sd = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    return noisy, a, b, sd


def _scaled(noisy: Any, exact: Sequence[Any], scale: Any, unit: int) -> Part:
    """All in units of 1."""
    noisy, a, b, sd = (np.asarray(x, dtype=np.float64) / unit for x in (noisy, *exact, scale))
    return noisy, a, b, sd


def _tables(request: RoundsRequest) -> tuple[Table, Table]:
    schema, setting = request.schema, request.setting
    # So many that residuals are published, if that can be afforded in every run; with room for a
    # noisy number of rows.
    n = max(setting.rows_needed(), setting.rows_for_residuals())
    n = max(_FEWEST, (n if n <= _MOST else setting.rows_needed()) * (1 if setting.replaces else 2))

    # At right angles to the first corner; a coordinate that is left over is on the other side,
    # which makes up for the constant.
    def ends(number: int) -> tuple[float, float]:
        return 1.0, 2.0 * (number % 2) - 1.0

    a, b, _ = _apart(schema, request.design.sources, n, ends, np.random.default_rng(0))
    return with_ids(schema, a, n), with_ids(schema, b, n)


def _apart(
    schema: Schema,
    names: Sequence[str],
    n: int,
    ends: Callable[[int], tuple[float, float]],
    rng: np.random.Generator,
) -> tuple[Table, Table, list[FloatArray]]:
    """Two tables of n rows near the centre of the bounds, and of one unit that is apart.

    `ends` has where the unit is in either table, by number, in half the width of its bounds. The
    spreads of the numbers come third.
    """
    copies = rows_of_one(schema)[1]
    a: Table = {}
    b: Table = {}
    spreads: list[FloatArray] = []
    for name in names:
        column = schema.columns[name]
        if isinstance(column, Category):
            shared: list[Any] = [column.levels[k % len(column.levels)] for k in range(n)]
            own: list[Any] = [column.indicated[0], column.indicated[-1]]
        else:
            own = [column.centre + column.half_width * end for end in ends(len(spreads))]
            spreads.append(np.clip(_SPREAD * rng.normal(size=n), -1, 1))
            shared = (column.centre + column.half_width * spreads[-1]).tolist()
        a[name] = [*shared, *own[:1] * copies]
        b[name] = [*shared, *(own[1:] * copies if schema.n_is_public else [])]
    return a, b, spreads


# --- logistic and Poisson regressions -------------------------------------------------------------


_FEWEST_OUTCOMES = 400
_HIGHER = 0.6  # the unit's first number, in spreads, if others take it to the edge
_EDGE = 0.97  # of the squared radius of the rounds


def glm_challenge(request: GlmRequest) -> Challenge:
    """Two data sets far apart, and Releases through all rounds."""
    return _challenge(request, _glm_tables(request), _glm_parts)


def _glm_parts(request: GlmRequest, release: GlmRelease, sources: Sequence[_Rows]) -> list[Part]:
    """All that a Release publishes, the last round last: with the exact sums of both data sets."""
    looks = [_of_round(request.covariates, one, sources) for one in release.looks]
    newton = [_of_newton(request, release.shape, one, sources) for one in release.newton]
    return [*looks, *newton]


def _of_newton(request: GlmRequest, shape: Shape, one: Newton, sources: Sequence[_Rows]) -> Part:
    sums = [source.sums(ScorePlan(request.design, shape, one.theta)) for source in sources]
    a, b = np.array(information_entries(len(one.theta))).T
    scale = np.where(a == b, one.information_scale, one.off_diagonal_scale)
    own = np.full(len(one.score), one.scale)
    score = _scaled(one.score, [found.score for found in sums], own, SCORE_ONE)
    exact = [found.information[a, b] for found in sums]
    return _joined(score, _scaled(one.information, exact, scale, PRODUCT_ONE))


def _glm_tables(request: GlmRequest) -> tuple[Table, Table]:
    schema, setting = request.schema, request.setting
    n = _FEWEST_OUTCOMES
    if setting.numbers:  # with room for a noisy number of rows
        n = max(n, setting.rows_needed() * (1 if setting.replaces else 2))
    rng, copies = np.random.default_rng(0), rows_of_one(schema)[1]
    radius = newton_shape(setting, request.outcome, Transform.box(setting.numbers), n).radius
    places = _places(setting.numbers, _EDGE * radius**2 / PRODUCT_ONE, replaced=setting.replaces)
    alone = setting.numbers < 2

    def ends(number: int) -> tuple[float, float]:
        at = min(_SPREAD * places[number], 1.0)
        return at, at if number == 0 and not alone else -at

    decides = rng.random(n) < 0.5  # where there is no number, nothing does
    names = request.covariates.sources[:-1]  # the last one is the target
    a, b, spreads = _apart(schema, names, n, ends, rng)
    if spreads:
        decides = spreads[0] < 0
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
