"""The challenge of a request for block summaries, from rows to the Release's text.

Blocks are drawn anew in every run, and so are the exact values that get noise. They are computed
beside every run from the same sums, so the noise of every run is known; typical ones make the
score. For private medians (`location_scale`) the law of each draw is known in the same way.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.audit.challenge import Batch, Challenge, Run, simulated, through_text
from noisewise.audit.laws import DrawCheck, Steps, check_draws
from noisewise.audit.noise import NoiseCheck, check_noise, spread_out
from noisewise.audit.pairs import Neighbours, Table
from noisewise.audit.scores import Score, likelihood_ratio
from noisewise.audit.summary_pairs import block_fits, summary_neighbours
from noisewise.core.noise import Laplace
from noisewise.core.summary import CELLS, LocationScale
from noisewise.core.summary_posterior import Flat
from noisewise.core.summary_release import MedianNoise, SummedNoise
from noisewise.holder.blocks import location_scale
from noisewise.holder.blocks.mechanisms import exact_values
from noisewise.holder.blocks.plan import BlockSums
from noisewise.holder.blocks.regressions import Fits
from noisewise.holder.engines import open_source
from noisewise.holder.summary_request import SummaryRequest

_PILOTS = 5


def summary_challenge(request: SummaryRequest) -> Challenge:
    """A row that turns a block, among rows that make blocks of the usual size."""
    # The number of rows has decided the number of blocks; fewer rows will do for an audit. (A copy,
    # not a new request, so that what was put into a control stays there.)
    request = copy.copy(request)
    object.__setattr__(request, "rows", None)
    pair = summary_neighbours(request)
    if isinstance(request.mechanism, LocationScale):
        return _medians(request, pair)
    return _sums(request, pair)


def _positions(request: SummaryRequest) -> dict[str, int]:
    return {name: k for k, name in enumerate(request.design.names[:-1])}


def _block_sums(request: SummaryRequest, table: Table) -> BlockSums:
    sums: BlockSums = open_source(table).sums(request.plan(), None)
    return sums


# --- sums over blocks -----------------------------------------------------------------------------


def _sums(request: SummaryRequest, pair: Neighbours) -> Challenge:
    noise = request.noise
    assert isinstance(noise, SummedNoise)

    def exact(sums: BlockSums) -> FloatArray:
        mechanism: Any = request.mechanism
        values = exact_values(mechanism, block_fits(request, sums), _positions(request))
        return np.array(values, dtype=np.float64)

    def typical(table: Table) -> FloatArray:
        pilots = [exact(_block_sums(request, table)) for _ in range(_PILOTS)]
        return np.asarray(np.median(pilots, axis=0))

    tables, usual = (pair.a, pair.b), (typical(pair.a), typical(pair.b))
    laws = [Laplace(float(noise.scale))] * len(usual[0])
    behind: tuple[list[FloatArray], list[FloatArray]] = ([], [])

    def run(side: int) -> Run:
        def once() -> list[float]:
            sums = _block_sums(request, tables[side])
            behind[side].append(exact(sums))
            return [float(value) for value in through_text(request, sums).values]

        return once

    def check(a: FloatArray, b: FloatArray) -> NoiseCheck:
        drawn = [
            outputs - np.array(values[-len(outputs) :])
            for outputs, values in zip((a, b), behind, strict=True)
        ]
        rng = np.random.default_rng(0)
        return check_noise(spread_out(np.concatenate(drawn), float(noise.scale), rng), laws)

    scores = (likelihood_ratio(laws, *usual), None)
    return Challenge(request, pair, (run(0), run(1)), scores, check, simulated(usual, laws))


# --- private medians ------------------------------------------------------------------------------


def _medians(request: SummaryRequest, pair: Neighbours) -> Challenge:
    mechanism, noise = request.mechanism, request.noise
    assert isinstance(mechanism, LocationScale)
    assert isinstance(noise, MedianNoise)
    by_spread = isinstance(request.posterior, Flat)
    positions = _positions(request)
    steps = 4 * request.partitions * noise.sensitivity
    rates = (float(noise.location_epsilon) / steps, float(noise.scale_epsilon) / steps)
    tables = (pair.a, pair.b)
    behind: tuple[list[FloatArray], list[FloatArray]] = ([], [])
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

    def run(side: int) -> Run:
        def once() -> list[float]:
            sums = _block_sums(request, tables[side])
            values = through_text(request, sums).values
            behind[side].append(uniform(block_fits(request, sums), values))
            return [value / CELLS for value in values]

        return once

    def check(a: FloatArray, b: FloatArray) -> DrawCheck:
        kept = [np.array(u[-len(outputs) :]) for outputs, u in zip((a, b), behind, strict=True)]
        return check_draws(*kept)

    def weakened(factor: float, generator: np.random.Generator) -> tuple[Batch, Batch]:
        def batch(table: Table) -> Batch:
            pilots = []
            for _ in range(_PILOTS):
                fits = block_fits(request, _block_sums(request, table))
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

        return batch(pair.a), batch(pair.b)

    scores = (_located(len(mechanism.items)), None)
    return Challenge(request, pair, (run(0), run(1)), scores, check, weakened)


def _located(items: int) -> Score:
    """All locations are moved the same way, or as good as; their sum tells."""
    return lambda outputs: np.asarray(outputs[:, : 2 * items : 2].sum(axis=1))


def median_law(cells: NDArray[np.int64], rate: float) -> Steps:
    """P(x) ∝ exp(-rate d(x)), d(x) = max(0, 2 #{a < x} - N, N - 2 #{a ≤ x}), over 2**52 cells."""
    ordered = np.sort(cells)
    edges = np.unique(np.concatenate([[0, CELLS], ordered, ordered + 1]))
    left = edges[:-1]
    below = np.searchsorted(ordered, left, side="left")
    at_or_below = np.searchsorted(ordered, left, side="right")
    total = len(ordered)
    distance = np.maximum(0, np.maximum(2 * below - total, total - 2 * at_or_below))
    logs = np.log(np.diff(edges).astype(np.float64)) - rate * distance
    return Steps.weighted(edges.astype(np.float64), logs, 1.0)
