"""The joint posterior of all tables, by moves of counts: any n, all families in agreement.

The state is the true counts of every family, which share margins; tables are integrated out and
drawn given the counts. Its cost doesn't grow with n. Where the families have a junction tree it is
exact; with loops one factor is approximated, see `entropy`.

State: `State`. Kernel: `counts_kernels.sweep`. Top-level call: `sample`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.chains import Report
from noisewise.analyst.networks.counts_kernels import draw_tables, simulate, sweep, tabulate
from noisewise.analyst.networks.layout import Floats, Integers, Layout
from noisewise.analyst.networks.observed import Observed
from noisewise.analyst.networks.plugin import normalised
from noisewise.analyst.networks.problem import (
    Problem,
    Sampled,
    forms_of,
    make_problem,
    sample_chains,
)
from noisewise.analyst.random_numbers import KeyArray, seed_stream

POOL = 4096  # rows that moves are proposed at
MOST_START_ROWS = 200_000
WARMUP_BLOCKS = 40  # in each of which steps adapt more slowly than before
REFRESH = 5  # sweeps between two looks at the network's own expectation


class State(NamedTuple):
    """Counts of one chain, changed in place: by holder, their sum, and the measured forms."""

    counts: NDArray[np.int64]  # (holders, cells)
    totals: NDArray[np.int64]  # (cells,)
    forms: NDArray[np.int64]  # (holders, forms)


def sample(
    layout: Layout,
    holders: Sequence[Observed],
    alpha: Floats,
    rough: Floats,
    *,
    chains: int,
    draws: int,
    warmup: int,
    thin: int,
    seed: int | None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Sampled:
    """Draws of all tables from their joint posterior.

    Parameters
    ----------
    layout : Layout
    holders : sequence of Observed
    alpha : array, shape (layout.cells,)
        Concentrations.
    rough : array, shape (layout.cells,)
        Clamped noisy counts, for the start only.
    chains, draws, warmup, thin : int
        Warm-up and thinning in sweeps.
    seed : int, optional
    progress : callable, optional
    """
    problem = make_problem(layout, holders, alpha)
    theta, given, acceptance = sample_chains(
        partial(_chain, problem, rough, warmup, thin), layout.cells,
        chains=chains, draws=draws, sweeps=warmup + draws * thin, seed=seed, progress=progress,
    )  # fmt: skip
    entropy = problem.slopes.entropy
    return Sampled(theta, given, acceptance, entropy.acyclic, entropy.free)


def _chain(
    problem: Problem,
    rough: Floats,
    warmup: int,
    thin: int,
    key: KeyArray,
    theta: Floats,
    given: Floats,
    report: Report,
) -> float:
    """Fill in one chain's draws; see `problem.sample_chains`."""
    layout, regions, moves = problem.layout, problem.regions, problem.moves
    rng = np.zeros(4, dtype=np.uint64)
    seed_stream(rng, key, 0)
    state, pool = start(problem, rough, rng)
    slopes = np.zeros(int(regions.start[-1]))
    movable = np.array([holder.n is None for holder in problem.holders])
    log_scale = np.full(moves.width.size, _first_scale(problem))
    tried = np.zeros(moves.width.size, dtype=np.int64)
    taken = np.zeros_like(tried)
    alpha, family = problem.alpha, slice(layout.cells)

    def advance(sweeps: int, gain: float) -> None:
        most = REFRESH if problem.slopes.needed else sweeps
        while sweeps > 0:
            if problem.slopes.needed:
                smoothed = state.totals[family] + alpha
                problem.slopes.fill(slopes, problem.names, regions.start, smoothed)
            sweep(
                rng, regions, moves, slopes, pool, movable, *state, log_scale, tried, taken, gain,
                min(most, sweeps),
            )  # fmt: skip
            sweeps -= most

    for block in range(WARMUP_BLOCKS):
        first, last = (warmup * b // WARMUP_BLOCKS for b in (block, block + 1))
        advance(last - first, 0.3 / (1 + 20 * block / WARMUP_BLOCKS))
        report(last)
    tried[:] = taken[:] = 0
    for k in range(len(theta)):
        advance(thin, 0.0)
        given[k] = state.totals[family]
        draw_tables(rng, given[k], alpha, layout.row_start, theta[k])
        if k % 16 == 15:
            report(warmup + (k + 1) * thin)
    given[:] = normalised(given + alpha, layout)
    return float(taken.sum() / max(tried.sum(), 1))


def _first_scale(problem: Problem) -> float:
    largest = max(
        float(problem.regions.precision.max(initial=0.0)),
        float(problem.regions.form_precision.max(initial=0.0)),
    )
    return float(np.log(max(1.0, 0.5 / largest)))


def start(
    problem: Problem, rough: Floats, rng: NDArray[np.uint64]
) -> tuple[State, NDArray[np.int64]]:
    """Counts of rows simulated from the plug-in posterior: they agree with each other.

    Up to 200,000 rows are drawn; where there are more, each stands for several.
    """
    layout, regions = problem.layout, problem.regions
    theta = np.empty(layout.cells)
    draw_tables(rng, rough, problem.alpha + 0.5, layout.row_start, theta)
    counts = np.zeros((len(problem.holders), int(regions.start[-1])), dtype=np.int64)
    places = (regions.start, regions.width, regions.nodes, regions.stride)
    rows: Integers = np.zeros((0, 0), dtype=np.int64)
    for h, holder in enumerate(problem.holders):
        n = _rough_n(problem, holder) if holder.n is None else holder.n
        rows = np.empty((min(n, MOST_START_ROWS), len(layout.nodes)), dtype=np.int64)
        weights = np.full(len(rows), n // max(len(rows), 1), dtype=np.int64)
        weights[: n - int(weights.sum())] += 1
        simulate(rng, theta, *places, regions.arity, rows)
        tabulate(rows, weights, *places, counts[h])
    pool = np.ascontiguousarray(rows[:POOL])
    if len(pool) < 64:  # few rows, or none: levels at random serve as well
        pool = np.empty((64, len(layout.nodes)), dtype=np.int64)
        simulate(rng, theta, *places, regions.arity, pool)
    return State(counts, counts.sum(axis=0), forms_of(regions, counts)), pool


def _rough_n(problem: Problem, holder: Observed) -> int:
    """A private number of rows, roughly: from the forms, or the median of the tables' sums."""
    for m in holder.measurements:
        if m.names == ():
            return max(1, int(m.values[0]))
    sums = [int(m.values.sum()) for m in holder.measurements if m.matrix is None]
    return max(1, int(np.median(sums)))
