"""The challenge of a regression request in rounds: every run goes through all of them.

What a round sums depends on what earlier rounds have published, so there are no exact sums to start
from: a run reads the rows in every round, as the holder does, without the ledger. The best score is
known all the same. Given the rounds before it, a round is a sum with Gaussian noise, so the log
likelihood ratio of a whole Release is a sum over its rounds, each in its own published coordinates,
and anybody who has both data sets can compute it. A run's output is this ratio, and the noise of
the first measurement and of the last round in units of what is stated.

**The pair.** Rows near the centre of the bounds, so many that there are rounds, and one unit that
is at a corner of the bounds in one data set, and in the other at a corner at right angles to it (or
is absent). Both are far out in every round's coordinates, so they move its sums by nearly all that
the ball allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from noisewise._arrays import FloatArray
from noisewise.audit.challenge import (
    Batch,
    Challenge,
    Neighbours,
    Run,
    Table,
    rows_of_one,
    with_ids,
)
from noisewise.audit.noise import NoiseCheck, check_noise
from noisewise.core.design import STATISTIC_ONE, Design
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.regression import Release
from noisewise.core.kinds.rounds import Round, Rounds, Tail, gram_entries, triangle
from noisewise.core.noise import Gaussian
from noisewise.core.schema import Category
from noisewise.core.statistics import SecondMoments
from noisewise.core.statistics.ball_moments import COUNT_ONE, PRODUCT_ONE
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.holder.rows.plan import Plan
from noisewise.holder.rows.rounds import BallPlan, ResidualPlan, TailPlan

_FEWEST, _MOST = 200, 20_000
_SPREAD = 0.15  # of the rows that both data sets share, on the bounds' own scale

Result = TypeVar("Result")
Part = tuple[FloatArray, FloatArray, FloatArray, FloatArray]  # noisy, exact of A and B, sd


def rounds_challenge(request: RoundsRequest) -> Challenge:
    """Two data sets far apart, and Releases through all rounds."""
    return challenge_in_rounds(request, _tables(request), _parts)


def challenge_in_rounds(
    request: Any,
    tables: tuple[Table, Table],
    parts_of: Callable[[Any, Any, Sequence[Rows]], list[Part]],
) -> Challenge:
    """The challenge of any request in rounds.

    Parameters
    ----------
    request : InRounds
    tables : two tables
    parts_of : callable
        From the request, a Release and both data sets to all that it publishes, the last round
        last.
    """
    sources = (Rows(request, tables[0]), Rows(request, tables[1]))
    found = parts_of(request, released(request, sources[0]), sources)
    distance = _distance(found)
    pair = Neighbours(*tables, distance * request.event.noise_multiplier)
    size = len(found[0][0]) + len(found[-1][0])

    def run_of(side: int) -> Run:
        def run() -> list[float]:
            parts = parts_of(request, released(request, sources[side]), sources)
            ratio = sum(
                float(np.sum(((u - b) ** 2 - (u - a) ** 2) / (2 * s**2))) for u, a, b, s in parts
            )
            noise = [(u - (a, b)[side]) / s for u, a, b, s in (parts[0], parts[-1])]
            return [ratio, *np.concatenate(noise).tolist()]

        return run

    def check(a: FloatArray, b: FloatArray) -> NoiseCheck:
        return check_noise(np.concatenate([a[:, 1:], b[:, 1:]]), [Gaussian(1.0)] * size)

    def weakened(factor: float, rng: np.random.Generator) -> tuple[Batch, Batch]:
        def simulated(sign: float) -> Batch:
            def draw(trials: int) -> FloatArray:
                noise = factor * rng.normal(size=(trials, size + 1))
                noise[:, 0] = sign * distance**2 / 2 + distance * noise[:, 0]
                return noise

            return draw

        return simulated(1.0), simulated(-1.0)

    def ratio(outputs: FloatArray) -> FloatArray:
        return outputs[:, 0]

    return Challenge(request, pair, (run_of(0), run_of(1)), (ratio,), check, weakened)


class Rows:
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


def released(request: Any, source: Rows) -> Any:
    """Through all rounds, written as text and read back."""
    sums = source.sums(request.plan())
    kept: list[str] = []
    drawn = request.begin(sums.n, sums)
    while isinstance(drawn, str):
        kept.append(drawn)
        step = request.next_step(kept)
        drawn = request.draw(kept, step, source.sums(request.step_plan(step)))
    return release_from_text(drawn.to_text())


def _parts(request: RoundsRequest, release: Release, sources: Sequence[Rows]) -> list[Part]:
    """All that a Release publishes, with the exact sums of both data sets.

    The last round comes last, together with the residuals.
    """
    first = release.second_moments
    exact = [source.sums(request.plan()).values[SecondMoments.name] for source in sources]
    found = [scaled(first.values, exact, np.full(len(first.values), first.scale), STATISTIC_ONE)]
    rounds = release.rounds
    if rounds is None:
        return found
    if rounds.tail is not None:
        found.append(_of_tail(request, rounds.tail, sources))
    found += [of_round(request.design, one, sources) for one in (*rounds.explored, rounds.last)]
    if rounds.residuals is not None:
        pair = zip(found.pop(), _of_residuals(request, rounds, sources), strict=True)
        noisy, a, b, sd = (np.concatenate(both) for both in pair)
        found.append((noisy, a, b, sd))
    return found


def of_round(design: Design, one: Round, sources: Sequence[Rows]) -> Part:
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
    return scaled(noisy, exact, np.tile(scale, len(one.values)), PRODUCT_ONE)


def _of_tail(request: RoundsRequest, tail: Tail, sources: Sequence[Rows]) -> Part:
    counts = [source.sums(TailPlan(request.design, tail.transform)).counts for source in sources]
    exact = [[count * COUNT_ONE for count in one] for one in counts]
    return scaled(tail.values, exact, np.full(len(tail.values), tail.scale), COUNT_ONE)


def _of_residuals(request: RoundsRequest, rounds: Rounds, sources: Sequence[Rows]) -> Part:
    spread, shape = rounds.residuals, rounds.last.shape
    assert spread is not None
    plan = ResidualPlan(request.design, shape, spread.direction, spread.radius)
    places = tuple(np.array(triangle(len(spread.direction))).T)
    exact = [source.sums(plan).inside[places] for source in sources]
    scale = np.where(places[0] == places[1], spread.scale, spread.off_diagonal_scale)
    return scaled(spread.values, exact, scale, PRODUCT_ONE)


def scaled(noisy: Any, exact: Sequence[Any], scale: Any, unit: int) -> Part:
    """All in units of 1."""
    noisy, a, b, sd = (np.asarray(x, dtype=np.float64) / unit for x in (noisy, *exact, scale))
    return noisy, a, b, sd


def _distance(parts: Sequence[Part]) -> float:
    """Of the two data sets, in units of the noise, with the coordinates of one Release."""
    return float(np.sqrt(sum(np.sum(((a - b) / s) ** 2) for _, a, b, s in parts)))


def _tables(request: RoundsRequest) -> tuple[Table, Table]:
    schema, setting = request.schema, request.setting
    # So many that residuals are published, if that can be afforded in every run; with room for a
    # noisy number of rows.
    n = max(setting.rows_needed(), setting.rows_for_residuals())
    n = max(_FEWEST, (n if n <= _MOST else setting.rows_needed()) * (1 if setting.replaces else 2))
    rng, (_, copies) = np.random.default_rng(0), rows_of_one(schema)
    a: Table = {}
    b: Table = {}
    numbers = 0
    for name in request.design.sources:
        column = schema.columns[name]
        if isinstance(column, Category):
            shared = [column.levels[k % len(column.levels)] for k in range(n)]
            ends: tuple[Any, Any] = (column.indicated[0], column.indicated[-1])
        else:
            spread = np.clip(_SPREAD * rng.normal(size=n), -1, 1)
            shared = (column.centre + column.half_width * spread).tolist()
            # At right angles to the first corner; a coordinate that is left over is on the other
            # side, which makes up for the constant.
            sign = 2 * (numbers % 2) - 1
            numbers += 1
            ends = (
                column.centre + column.half_width,
                column.centre + sign * column.half_width,
            )
        a[name] = [*shared, *[ends[0]] * copies]
        b[name] = [*shared, *([ends[1]] * copies if setting.replaces else [])]
    return with_ids(schema, a, n), with_ids(schema, b, n)
