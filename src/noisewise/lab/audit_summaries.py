"""Block summaries on a record that turns a block, from rows to the Release's text.

Both tables have the same rows on a rising line but for one, which is far out: its block's line goes
through it, steeply up in table A and steeply down in table B. Blocks are drawn anew in every run.
Powers are in ``tests/statistical/test_summary_audit.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.releases import release_from_text
from ..core.schema import Schema, Unbounded
from ..holder.summary_request import SummaryRequest, make_summary_request
from .audit import AuditResult, audit
from .audit_registry import Subject
from .broken import noise_scale_halved

Array = NDArray[np.float64]
ROWS, BLOCKS, PARTITIONS = 60, 3, 2
ASKING: dict[str, dict[str, Any]] = {
    "sign": {"questions": ["x < 0"]},
    "stouffer": {"questions": ["x < 0"], "clip": 1.0},
    "rescaled_normal": {"questions": ["x < 0"]},
    "fisher": {"questions": ["x < 0"], "p_star": 0.001},
    "clipped_mean": {"coefficients": ["x"], "quantiles": [0.5], "bounds": {"x": (-2, 2)}},
}


def _rows(end: float) -> list[Array]:
    rng = np.random.default_rng(0)  # any line will do
    x = rng.normal(size=ROWS)
    y = 0.1 * x + 0.01 * rng.normal(size=ROWS)
    x[-1], y[-1] = 1e6, end
    return [x, y]


def _request(mechanism: str) -> SummaryRequest:
    schema = Schema("audited", {"x": Unbounded(), "y": Unbounded()})
    return make_summary_request(
        schema,
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
    Subject(
        "summary-half-noise",
        "half of the noise on block summaries",
        partial(_check, partial(_halved, "sign")),
        1500,
        sound=False,
    ),
)
