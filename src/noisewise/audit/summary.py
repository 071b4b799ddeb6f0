"""The challenge of a request for block summaries, from rows to the Release's text.

Blocks are drawn anew in every run, and so are the exact values that get noise. They are computed
beside every run from the same sums, so the noise of every run is known; typical ones make the
score. For private medians (`location_scale`, and the ranges of `mean`) the law of each draw is
known in the same way.

**The pair.** Most rows are close together on a line, whose coefficients are on one side of
everything that is asked. One row is so far out that its block's regression goes through it: to the
other side in the first table, and to the same side in the second. Features are moved by D each, and
the line's slopes then change by (the row's height above the line) / (number of moved features) / D.

An indicator can't be far out. But a level that nobody else has makes a row decide the level's
coefficient alone; blocks without the row then have no regression, and count with a constant.

Which features are moved, to which side, and which level is rare, is tried out on one block of the
usual size, and the change is compared with the stated sensitivity.

**Models.** What a block computes is free, so the claim of a request with a model is that of every
function of a block's rows. In the many runs blocks therefore compute what tells most: everything is
at one end of the line or at the other where the odd row is, and in one place where it isn't. (So
an audit doesn't take a thousand fits a run.) The model itself runs where the two data sets are
published for real, and everything but the values must be equal.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.audit.challenge import (
    Batch,
    Challenge,
    DrawCheck,
    Neighbours,
    NoiseCheck,
    Run,
    Steps,
    Table,
    check_draws,
    check_noise,
    simulated,
    spread_out,
    sums_of,
    through_text,
)
from noisewise.audit.engine import likelihood_ratio
from noisewise.core.design import INTERCEPT, Design
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    Flat,
    LocationScale,
    Mean,
    Model,
    QuantileItem,
    Question,
    entries_of,
)
from noisewise.core.kinds.summary.release import MeanNoise, MedianNoise, SummedNoise
from noisewise.core.noise import Laplace
from noisewise.core.schema import Category, Number, Unbounded
from noisewise.holder.blocks import choice, location_scale, mean
from noisewise.holder.blocks.additive import exact_values
from noisewise.holder.blocks.regressions import Fits, fit_blocks
from noisewise.holder.blocks.sums import BlockGrid, BlockPlan, BlockSums
from noisewise.holder.engines import open_source
from noisewise.holder.requests.summary import BlockFunction, SummaryRequest

_PILOTS = 5


def summary_challenge(request: SummaryRequest) -> Challenge:
    """A row that turns a block, among rows that make blocks of the usual size."""
    # The number of rows has decided the number of blocks; fewer rows will do for an audit. (A copy,
    # not a new request, so that what was put into a control stays there.)
    request = copy.copy(request)
    object.__setattr__(request, "rows", None)
    object.__setattr__(request, "design", _with_a_number(request.design))
    run = request if request.model.is_least_squares else _telling(request)
    pair = summary_neighbours(run)
    if isinstance(run.mechanism, LocationScale):
        found = _medians(run, pair)
    elif isinstance(run.mechanism, Mean):
        found = _means(run, run.mechanism, pair)
    else:
        found = _sums(run, pair)
    return replace(found, request=request)


def _with_a_number(design: Design) -> Design:
    """A target of two levels as a number: among levels that all have, an odd row can't be told."""
    if not isinstance(design.schema.columns[design.target], Category):
        return design
    columns = {**design.schema.columns, design.target: Number(0, 1)}
    return replace(design, schema=replace(design.schema, columns=columns), family="linear")


def _positions(request: SummaryRequest) -> dict[str, int]:
    return {name: k for k, name in enumerate(request.coefficients)}


# --- sums over blocks -----------------------------------------------------------------------------


def _sums(request: SummaryRequest, pair: Neighbours) -> Challenge:
    noise = request.noise
    assert isinstance(noise, SummedNoise)

    def exact(sums: BlockSums) -> FloatArray:
        mechanism: Any = request.mechanism
        values = exact_values(mechanism, block_fits(request, sums), _positions(request))
        return np.array(values, dtype=np.float64)

    def typical(table: Table) -> FloatArray:
        pilots = [exact(sums_of(request, table)) for _ in range(_PILOTS)]
        return np.asarray(np.median(pilots, axis=0))

    tables, usual = (pair.a, pair.b), (typical(pair.a), typical(pair.b))
    laws = [Laplace(float(noise.scale))] * len(usual[0])
    behind: tuple[list[FloatArray], list[FloatArray]] = ([], [])

    def run(side: int) -> list[float]:
        sums = sums_of(request, tables[side])
        behind[side].append(exact(sums))
        return [float(value) for value in through_text(request, sums).values]

    def check(a: FloatArray, b: FloatArray) -> NoiseCheck:
        exact = np.concatenate([behind[0][-len(a) :], behind[1][-len(b) :]])
        rng = np.random.default_rng(0)
        drawn = spread_out(np.concatenate([a, b]) - exact, float(noise.scale), rng)
        return check_noise(drawn, laws)

    scores = (likelihood_ratio(laws, *usual), None)
    return Challenge(request, pair, run, scores, check, simulated(usual, laws))


# --- private medians ------------------------------------------------------------------------------


def _followed(
    request: SummaryRequest,
    pair: Neighbours,
    uniform: Callable[[Fits, tuple[int, ...]], FloatArray],
    units: Sequence[float],
) -> tuple[Run, Callable[[FloatArray, FloatArray], DrawCheck]]:
    """Runs whose values, in `units` (over and over), are kept as uniform numbers too; a check."""
    behind: tuple[list[FloatArray], list[FloatArray]] = ([], [])

    def run(side: int) -> list[float]:
        sums = sums_of(request, (pair.a, pair.b)[side])
        values = through_text(request, sums).values
        behind[side].append(uniform(block_fits(request, sums), values))
        return [value / unit for value, unit in zip(values, cycle(units), strict=False)]

    def check(a: FloatArray, b: FloatArray) -> DrawCheck:
        return check_draws(np.array(behind[0][-len(a) :]), np.array(behind[1][-len(b) :]))

    return run, check


def _medians(request: SummaryRequest, pair: Neighbours) -> Challenge:
    mechanism, noise = request.mechanism, request.noise
    assert isinstance(mechanism, LocationScale)
    assert isinstance(noise, MedianNoise)
    by_spread = isinstance(request.posterior, Flat)
    positions = _positions(request)
    steps = 4 * request.partitions * noise.sensitivity
    rates = (float(noise.location_epsilon) / steps, float(noise.scale_epsilon) / steps)
    rng = np.random.default_rng(0)

    def uniform(fits: Fits, drawn: tuple[int, ...]) -> FloatArray:
        """Every draw through the distribution function of its law, given those before it."""
        centres = [
            item.location.value(c) for item, c in zip(mechanism.items, drawn[::2], strict=True)
        ]
        about = centres if by_spread else None
        cells = location_scale.terms(mechanism, fits, positions, request.blocks, about)
        found = [
            median_law(column, rates[k % 2]).uniform(np.array([float(drawn[k])]), rng)
            for k, column in enumerate(cells.T)
        ]
        return np.concatenate(found)

    def weakened(side: int, factor: float, generator: np.random.Generator) -> Batch:
        pilots = []
        for _ in range(_PILOTS):
            fits = block_fits(request, sums_of(request, (pair.a, pair.b)[side]))
            cells = location_scale.terms(mechanism, fits, positions, request.blocks)
            pilots.append([median_law(column, rates[0] / factor) for column in cells.T[::2]])

        def sample(trials: int) -> FloatArray:
            # The scales of the two tables are alike: they stay zero.
            drawn = np.zeros((trials, 2 * len(mechanism.items)))
            for k in range(len(mechanism.items)):
                each = [laws[k].draw(trials, generator) for laws in pilots]
                drawn[:, 2 * k] = np.choose(generator.integers(_PILOTS, size=trials), each)
            return drawn / CELLS

        return sample

    def located(outputs: FloatArray) -> FloatArray:
        """All locations are moved the same way, or as good as; their sum tells."""
        return np.asarray(outputs[:, : 2 * len(mechanism.items) : 2].sum(axis=1))

    run, check = _followed(request, pair, uniform, [float(CELLS)])
    return Challenge(request, pair, run, (located, None), check, weakened)


# --- means within private ranges ------------------------------------------------------------------


def _means(request: SummaryRequest, mechanism: Mean, pair: Neighbours) -> Challenge:
    noise = request.noise
    assert isinstance(noise, MeanNoise)
    positions, items = _positions(request), len(mechanism.items)
    steps = 4 * request.partitions * noise.medians.sensitivity
    rates = [
        float(x) / steps for x in (noise.medians.location_epsilon, noise.medians.scale_epsilon)
    ]
    scale = float(noise.sums.scale)
    rng = np.random.default_rng(0)

    def uniform(fits: Fits, drawn: tuple[int, ...]) -> FloatArray:
        """Every value through the distribution function of its law, given those before it."""
        ranges = [(drawn[4 * i], drawn[4 * i + 1]) for i in range(items)]
        exact = mean.exact_sums(mechanism, fits, positions, ranges)
        found = []
        for i, item in enumerate(mechanism.items):
            k, (where, wide) = positions[item.coefficient], ranges[i]
            located = mean.location_cells(mechanism, fits, i, k)
            away = mean.distance_cells(mechanism, fits, i, k, item.location.value(where))
            laws = median_law(located, rates[0]), median_law(away, rates[1], 1 - mechanism.tail)
            for law, cell in zip(laws, (where, wide), strict=True):
                found.append(law.uniform(np.array([float(cell)]), rng)[0])
            added = np.array(drawn[4 * i + 2 : 4 * i + 4]) - np.array(exact[2 * i : 2 * i + 2])
            smooth = spread_out(added.astype(np.float64), scale, rng) / scale
            half = 0.5 * np.exp(-np.abs(smooth))
            found += np.where(smooth < 0, half, 1 - half).tolist()
        return np.array(found)

    def weakened(side: int, factor: float, generator: np.random.Generator) -> Batch:
        pilots = []
        for _ in range(_PILOTS):
            fits = block_fits(request, sums_of(request, (pair.a, pair.b)[side]))
            sizes = (noise.medians, request.partitions)
            ranges = mean.draw_ranges(mechanism, fits, positions, *sizes)
            pilots.append(mean.exact_sums(mechanism, fits, positions, ranges)[::2])

        def sample(trials: int) -> FloatArray:
            # Ranges and distances of the two tables are alike: they stay zero.
            drawn = np.zeros((trials, 4 * items))
            chosen = np.array(pilots)[generator.integers(_PILOTS, size=trials)] / scale
            drawn[:, 2::4] = chosen + factor * generator.laplace(size=(trials, items))
            return drawn

        return sample

    def score(outputs: FloatArray) -> FloatArray:
        return np.asarray(outputs[:, 2::4].sum(axis=1))

    run, check = _followed(request, pair, uniform, [float(CELLS)] * 2 + [scale] * 2)
    return Challenge(request, pair, run, (score, None), check, weakened)


def median_law(cells: NDArray[np.int64], rate: float, share: float = 0.5) -> Steps:
    """P(x) ∝ exp(-rate d(x)), d(x) = max(0, 2 #{a < x} - 2t, 2t - 2 #{a ≤ x}), over 2**52 cells.

    t is the rank of the quantile: N times `share`.
    """
    ordered = np.sort(cells)
    edges = np.unique(np.concatenate([[0, CELLS], ordered, ordered + 1]))
    left = edges[:-1]
    below = np.searchsorted(ordered, left, side="left")
    at_or_below = np.searchsorted(ordered, left, side="right")
    total = round(2 * share * len(ordered))
    distance = np.maximum(0, np.maximum(2 * below - total, total - 2 * at_or_below))
    logs = np.log(np.diff(edges).astype(np.float64)) - rate * distance
    return Steps.weighted(edges.astype(np.float64), logs, 1.0)


# --- the pair -------------------------------------------------------------------------------------


_TIGHT = 1e-3  # spread of the other rows over D
_ERROR = 0.01  # of the target, over what the spread makes of it
_WIDE = 2.0**19  # units of a column without bounds
_MOST_TRIED = 20  # coefficients one by one
_TRIES = 3  # blocks of random rows


@dataclass(frozen=True)
class _Shape:
    """One way to make tables."""

    moved: tuple[str, ...]  # numeric features in which the odd row is far out
    side: int  # whether it is above the others there, or below
    # The odd row's levels, where they aren't the reference
    levels: dict[str, str] = field(default_factory=dict)
    rare: bool = False  # whether nobody else has these levels


def summary_neighbours(request: SummaryRequest) -> Neighbours:
    """Two data sets for a request, from its public schema."""
    if isinstance(request, _Telling):
        return _told(request)
    rows = _Rows(request)
    best = max(rows.shapes(), key=rows.share)
    count = request.blocks * rows.per_block
    return Neighbours(
        rows.table(best, count, 1.0, seed=0),
        rows.table(best, count, -1.0 if rows.replace else None, seed=0),
        rows.share(best),
    )


def block_fits(request: SummaryRequest, sums: Any) -> Fits:
    """The regressions of all blocks, as the holder's code makes them."""
    n = sums.n if request.schema.neighbours == "replace_one" else None
    with np.errstate(all="ignore"):
        return request.fits(sums, n)


def _changed(request: SummaryRequest, fits: Sequence[Fits]) -> float:
    """How much of the stated change is between two fits of one block."""
    mechanism, noise, positions = request.mechanism, request.noise, _positions(request)
    if isinstance(mechanism, LocationScale):
        assert isinstance(noise, MedianNoise)
        one, other = (
            location_scale.terms(mechanism, f, positions, request.blocks)[0, ::2] for f in fits
        )
        located = noise.location_epsilon / (noise.location_epsilon + noise.scale_epsilon)
        return float(located) * float(np.mean(np.abs(one - other)) / CELLS)
    if isinstance(mechanism, Mean):
        cells = [
            [mean.location_cells(mechanism, f, i, positions[item.coefficient])[0] for f in fits]
            for i, item in enumerate(mechanism.items)
        ]
        return float(np.mean([abs(one - other) for one, other in cells]) / CELLS)
    first, second = (np.array(exact_values(mechanism, f, positions), float) for f in fits)
    return float(np.mean(np.abs(first - second)) / (mechanism.high - mechanism.low))


class _Rows:
    """Rows of a request's sources."""

    def __init__(self, request: SummaryRequest) -> None:
        self.request, self.design = request, request.design
        self.replace = request.schema.neighbours == "replace_one"
        self.per_block = choice.least_rows(len(self.design.columns))
        self.numbers: dict[str, Number | Unbounded] = {}
        self.categories: dict[str, Category] = {}
        for name in self.design.features:
            kind = request.schema.columns[name]
            if isinstance(kind, Category):
                self.categories[name] = kind
            else:
                self.numbers[name] = kind
        self.thresholds: dict[str, float] = {}  # by coefficient, the largest in size
        for entry in entries_of(request.mechanism):
            known = self.thresholds.get(entry.coefficient, 0.0)
            self.thresholds[entry.coefficient] = max(known, *map(abs, _asked(entry)))
        target = request.schema.columns[self.design.target]
        assert not isinstance(target, Category)
        self.height = 0.5 * _reach(target)
        asked = [
            number
            for entry in entries_of(request.mechanism)
            if entry.coefficient == INTERCEPT
            for number in _asked(entry)
        ]
        # The line's height among the rows: as near as it may be to what is asked of the intercept.
        wanted = float(np.mean(asked)) if asked else target.centre
        low, high = target.centre - self.height, target.centre + self.height
        self.level = min(max(wanted, low), high)
        self.miss = max([abs(self.level - number) for number in asked], default=0.0)
        self.miss += 0.1 * self.height

    # --- what is tried ------------------------------------------------------------------------

    def shapes(self) -> Iterator[_Shape]:
        """All features at once, those that are asked about, one by one, and levels."""
        asked = [name for name in self.numbers if name in self.thresholds]
        moves = dict.fromkeys([tuple(self.numbers), tuple(asked)])
        alone = list(self.numbers) if INTERCEPT in self.thresholds else asked
        moves |= dict.fromkeys((name,) for name in alone[:_MOST_TRIED])
        levels = [
            (column.source, str(column.level))
            for column in self.design.columns
            if column.level is not None and column.name in self.thresholds
        ][:_MOST_TRIED]
        for side in (1, -1):
            for moved in moves:
                yield _Shape(moved, side)
                if levels:
                    yield _Shape(moved, side, dict(levels))
            for source, level in levels:
                yield _Shape((), side, {source: level}, rare=True)

    def share(self, shape: _Shape) -> float:
        """How much of the stated change the odd row makes in one block of the usual size."""
        return float(np.mean([self._share(shape, seed) for seed in range(_TRIES)]))

    def _share(self, shape: _Shape, seed: int) -> float:
        ends = (1.0, -1.0 if self.replace else None)
        fits = [self._fit(self.table(shape, self.per_block, end, seed=seed)) for end in ends]
        return _changed(self.request, fits)

    def _fit(self, table: Table) -> Fits:
        """Of all rows in one block."""
        sums = open_source(table).sums(BlockPlan(self.design, 1, 1), None)
        n = sums.n if self.replace else None
        with np.errstate(all="ignore"):
            return fit_blocks(sums, BlockGrid(self.design), self.request.posterior, 1, n)

    # --- rows ---------------------------------------------------------------------------------

    def table(self, shape: _Shape, count: int, end: float | None, *, seed: int) -> Table:
        """So many rows on the line, and the odd unit's: at this end of the target, or missing."""
        rng = np.random.default_rng(seed)
        odd = self.request.schema.max_rows_per_unit if end is not None else 0
        found: Table = {}
        height = np.full(count, self.level)
        moved = max(len(shape.moved), 1)
        for name, kind in self.numbers.items():
            far = 2 * _reach(kind)
            if self.thresholds.get(name, 0.0) > 0:
                far = min(far, self.height / (4 * moved * self.thresholds[name]))
            start = kind.centre - shape.side * _reach(kind)
            if INTERCEPT in self.thresholds and start != 0:
                # A slope g moves the line at zero by g times the distance from there.
                far = min(far, abs(start) * self.height / (4 * self.miss))
            offset = _TIGHT * far * rng.normal(size=count)
            height -= 0.5 * self.height / (moved * shape.side * far) * offset
            there = start + (shape.side * far if name in shape.moved else 0.0)
            found[name] = [*(start + offset).tolist(), *[there] * odd]
        for name, category in self.categories.items():
            own = shape.levels.get(name, category.reference)
            levels = [v for v in category.levels if not (shape.rare and v == own)] or [own]
            drawn = rng.integers(len(levels), size=count)
            effects = [-self._effect(f"{name}[{level}]") for level in levels]
            height += np.array(effects)[drawn]
            found[name] = [*(levels[i] for i in drawn), *[own] * odd]
        height += _ERROR * _TIGHT * self.height / moved * rng.normal(size=count)
        top = self.level + (end or 0.0) * self.height
        found[self.design.target] = [*height.tolist(), *[top] * odd]
        return found

    def _effect(self, coefficient: str) -> float:
        if coefficient not in self.thresholds:
            return 0.0
        return min(0.25 * self.height, 2 * self.thresholds[coefficient] + 0.01 * self.height)


# --- models: blocks that tell as much as any function can -----------------------------------------


_FAR = 1e9  # where blocks with the odd row are, in units of what is asked
_ROWS = 20  # of a block


class _Telling(SummaryRequest):
    """A request whose blocks are drawn once for each reading of the rows, and so are known."""

    def fits(self, result: Any, n: int | None) -> Fits:
        """As every request; the same again for the same rows."""
        last = self.__dict__.get("last")
        if last is None or last[0] is not result:
            last = self.__dict__["last"] = (result, super().fits(result, n))
        found: Fits = last[1]
        return found


def _telling(request: SummaryRequest) -> SummaryRequest:
    """The same request with blocks that give away the odd row, at either end of its target."""
    target = request.schema.columns[request.design.target]
    assert not isinstance(target, Category)
    middle, reach, name = target.centre, _reach(target), request.design.target
    asked: dict[str, tuple[float, ...]] = {}
    for entry in entries_of(request.mechanism):
        asked[entry.coefficient] = asked.get(entry.coefficient, ()) + _asked(entry)
    centres = [float(np.mean(asked.get(c, (0.0,)))) for c in request.coefficients]
    sizes = [max(map(abs, (1.0, *asked.get(c, ())))) for c in request.coefficients]

    def tell(block: Any) -> list[float]:
        away = (block[name] - middle) / reach
        odd = away[np.argmax(np.abs(away))]
        # The others are on one side of what is asked: their number must not hide the odd one.
        where = _FAR * np.sign(odd) if abs(odd) > 0.5 else -1 + 0.1 * float(away.mean())
        return [c + where * s for c, s in zip(centres, sizes, strict=True)]

    found = copy.copy(request)
    object.__setattr__(found, "__class__", _Telling)
    telling = BlockFunction("what tells most", request.coefficients, tell)
    object.__setattr__(found, "function", telling)
    object.__setattr__(found, "model", Model(telling.name, request.coefficients))
    return found


def _told(request: SummaryRequest) -> Neighbours:
    """Rows about the middle of everything, and the odd unit's at one end of the target."""
    schema, target = request.schema, request.design.target
    replace_one = schema.neighbours == "replace_one"

    def table(count: int, end: float | None) -> Table:
        rng = np.random.default_rng(0)
        odd = schema.max_rows_per_unit if end is not None else 0
        found: Table = {}
        for name in (*request.design.features, target):
            kind = schema.columns[name]
            if isinstance(kind, Category):
                drawn = rng.integers(len(kind.levels), size=count)
                found[name] = [*(kind.levels[i] for i in drawn), *[kind.levels[0]] * odd]
            else:
                near = kind.centre + 0.1 * _reach(kind) * rng.uniform(-1, 1, size=count)
                there = kind.centre + (end or 0.0) * _reach(kind) * (name == target)
                found[name] = [*near.tolist(), *[there] * odd]
        return found

    ends = (1.0, -1.0 if replace_one else None)
    alone = copy.copy(request)
    object.__setattr__(alone, "blocks", 1)
    object.__setattr__(alone, "partitions", 1)
    fits = [block_fits(alone, sums_of(alone, table(_ROWS, end))) for end in ends]
    pair = [table(request.blocks * _ROWS, end) for end in ends]
    return Neighbours(pair[0], pair[1], _changed(request, fits))


def _asked(entry: Any) -> tuple[float, ...]:
    """The numbers that a coefficient is compared with."""
    if isinstance(entry, Question):
        return (entry.threshold,)
    if isinstance(entry, QuantileItem):
        return (entry.lower, entry.upper)
    # The ends of the base law, or as good as: cells are what is moved.
    width = 10 * entry.location.scale
    return (entry.location.centre - width, entry.location.centre + width)


def _reach(kind: Number | Unbounded) -> float:
    """How far from its centre a column goes here."""
    return 0.9 * kind.half_width if isinstance(kind, Number) else _WIDE * kind.unit
