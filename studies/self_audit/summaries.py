"""Block summaries on a record that turns a block, from rows to the Release's text.

Both tables have the same rows on a rising line but for one, which is far out: its block's line goes
through it, steeply up in table A and steeply down in table B. Blocks are drawn anew in every run.
Powers are in ``tests/statistical/test_summary_audit.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.audit.engine import AuditResult, audit
from noisewise.core.design import Design
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    CauchyBase,
    Flat,
    LocationItem,
    LocationScale,
    Mean,
    sensitivity_of,
)
from noisewise.core.kinds.summary.release import MedianNoise
from noisewise.core.schema import Schema, Unbounded
from noisewise.holder.blocks import location_scale, mean
from noisewise.holder.blocks.regressions import fit_blocks, fit_with_halves
from noisewise.holder.blocks.sums import BlockGrid, BlockPlan
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.holder.requests.summary import SummaryRequest, make_summary_request
from studies.self_audit.broken import noise_scale_halved
from studies.self_audit.registry import Subject

ROWS, BLOCKS, PARTITIONS = 60, 3, 2
SLOPE = 0.1
ASKING: dict[str, dict[str, Any]] = {
    "sign": {"questions": ["x < 0"]},
    "stouffer": {"questions": ["x < 0"], "clip": 1.0},
    "rescaled_normal": {"questions": ["x < 0"]},
    "fisher": {"questions": ["x < 0"], "p_star": 0.001},
    "clipped_mean": {"coefficients": ["x"], "quantiles": [0.5], "bounds": {"x": (-2, 2)}},
}


def _rows(end: float, error: float = 0.01) -> list[FloatArray]:
    rng = np.random.default_rng(0)  # any line will do
    x = rng.normal(size=ROWS)
    y = SLOPE * x + error * rng.normal(size=ROWS)
    x[-1], y[-1] = 1e6, end
    return [x, y]


def _schema() -> Schema:
    return Schema("audited", {"x": Unbounded(), "y": Unbounded()})


def _request(mechanism: str) -> SummaryRequest:
    return make_summary_request(
        _schema(),
        target="y",
        features=["x"],
        epsilon=1,
        mechanism=mechanism,
        blocks=BLOCKS,
        partitions=PARTITIONS,
        **ASKING[mechanism],
    )


def _halved(mechanism: str) -> SummaryRequest:
    request = _request(mechanism)
    broken = replace(request)
    # `laplace` and `noise` are cached properties; these are their caches.
    broken.__dict__["noise"] = request.noise
    broken.__dict__["laplace"] = noise_scale_halved(request.laplace)
    return broken


def _check(make: Callable[[], SummaryRequest], runs: int, confidence: float) -> AuditResult:
    request = make()

    def outputs(end: float) -> Callable[[], list[float]]:
        columns = _rows(end)

        def run() -> list[float]:
            accumulator = request.plan().accumulator()
            accumulator.add(columns)
            text = request.release(ROWS, accumulator.result()).to_text()
            release: Any = release_from_text(text)
            return [float(value) for value in release.values]

        return run

    return audit(
        *(outputs(end) for end in (1e8, -1e8)),
        trials=runs,
        epsilon=1.0,
        confidence=confidence,
        seed=0,
    )


# Medians: nearly all of the base law is to the left of the line's slope, and the odd record's block
# is at one end or the other. Then the weight of what is to the right and the sum of all weights
# both change by exp(ε/2), against each other, and the ratio comes close to exp(ε).
MEDIAN_EPSILON = 2.0
SLOPE_QUANTILE = 0.9


def _check_median(factor: int, runs: int, confidence: float) -> AuditResult:
    """The location of `location_scale`, which is given `factor` times the epsilon it claims."""
    design = Design(_schema(), ("x",), "y")
    base = CauchyBase(SLOPE - math.tan(math.pi * (SLOPE_QUANTILE - 0.5)), 1.0)
    mechanism = LocationScale((LocationItem("x", base, CauchyBase(0, 1)),))
    noise = MedianNoise(factor * Fraction(MEDIAN_EPSILON), Fraction(1), 1)
    grid, positions = BlockGrid(design), {"intercept": 0, "x": 1}

    def outputs(end: float) -> Callable[[], list[float]]:
        columns = _rows(end, 0.0)

        def run() -> list[float]:
            accumulator = BlockPlan(design, BLOCKS, PARTITIONS).accumulator()
            accumulator.add(columns)
            fits = fit_blocks(accumulator.result(), grid, Flat(), BLOCKS, ROWS)
            sizes = (BLOCKS, noise, PARTITIONS)
            drawn = location_scale.draw(mechanism, fits, positions, *sizes, by_spread=True)
            return [drawn[0] / CELLS]

        return run

    return audit(
        *(outputs(end) for end in (-1e12, 1e12)),
        trials=runs,
        training=0.25,
        epsilon=MEDIAN_EPSILON,
        confidence=confidence,
        seed=0,
        score=lambda values: -values[:, 0],
    )


# Means: in a range that is given (finding it is for the medians above), all blocks but that of the
# odd record are in the middle, and that one is at one end or the other: the sum of a moves by all
# that is claimed for it and the sum of |a| together. In a range that is found, the chance of blocks
# hides a part of that.


def _check_mean(factor: int, runs: int, confidence: float) -> AuditResult:
    """The sums of `mean`, with noise for `factor` times the epsilon they claim."""
    design = Design(_schema(), ("x",), "y")
    mechanism = Mean((LocationItem("x", CauchyBase(SLOPE, 1), CauchyBase(0, 1)),), 0.5, 1.0)
    middle = [(CELLS // 2, CELLS // 2)]  # a range of 1 about the slope
    laplace = LaplaceMechanism(sensitivity_of(mechanism, PARTITIONS, 1), Fraction(factor))
    grid, positions = BlockGrid(design), {"intercept": 0, "x": 1}

    def outputs(end: float) -> Callable[[], list[float]]:
        columns = _rows(end)

        def run() -> list[float]:
            accumulator = BlockPlan(design, 2 * BLOCKS, PARTITIONS).accumulator()
            accumulator.add(columns)
            fits = fit_with_halves(accumulator.result(), grid, Flat())
            sums = laplace.add_noise(mean.exact_sums(mechanism, fits, positions, middle))
            return [float(value) for value in sums]

        return run

    return audit(
        *(outputs(end) for end in (1e8, -1e8)),
        trials=runs,
        training=0.25,
        epsilon=1.0,
        confidence=confidence,
        seed=0,
        score=lambda values: values[:, 0],
    )


SUBJECTS = (
    *(
        Subject(
            f"summary-{name.replace('_', '-')}",
            f"block summaries, {name}",
            partial(_check, partial(_request, name)),
            700,
        )
        for name in ASKING
    ),
    Subject("summary-mean", "block summaries, the sums of mean", partial(_check_mean, 1), 1000),
    Subject(
        "summary-mean-half-noise",
        "half of the noise on the sums of mean, as if sizes of estimates were all that moves",
        partial(_check_mean, 2),
        1000,
        sound=False,
    ),
    Subject(
        "summary-location-scale",
        "block summaries, the private median of location_scale",
        partial(_check_median, 1),
        1400,
    ),
    Subject(
        "summary-median-twice-epsilon",
        "a private median with twice the epsilon that it claims",
        partial(_check_median, 2),
        1400,
        sound=False,
    ),
    Subject(
        "summary-half-noise",
        "half of the noise on block summaries",
        partial(_check, partial(_halved, "sign")),
        1500,
        sound=False,
    ),
)
