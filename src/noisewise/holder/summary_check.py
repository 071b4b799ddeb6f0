"""What makes a request for block summaries impossible, found before anything is charged or read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import RequestError
from ..core.release import MAX_SCALE
from ..core.schema import MAX_NAME
from ..core.summary import MAX_REGRESSIONS, coefficients_of
from ..core.summary_release import SummedNoise
from .blocks import choice

if TYPE_CHECKING:
    from .summary_request import SummaryRequest


def check_summary_request(request: SummaryRequest) -> None:
    """Refuse what cannot be published, whatever the rows; the error says what to do."""
    if not request.claim.is_pure:
        raise RequestError("delta: block summaries are purely private; leave delta and rho out")
    names = request.design.names[:-1]
    for name in coefficients_of(request.mechanism):
        if name not in names:
            raise RequestError(
                f"coefficient: {name!r} is not one of the regression's: {', '.join(names)}"
            )
    request.posterior.check(len(names), request.schema.neighbours == "replace_one")
    if request.blocks * request.partitions > MAX_REGRESSIONS:
        raise RequestError(
            f"partitions: {request.partitions} times {request.blocks:,} blocks are more than "
            f"{MAX_REGRESSIONS:,} regressions; use fewer partitions"
        )
    if request.plan().memory > choice.MEMORY_LIMIT:
        raise RequestError(
            f"blocks: the sums of {request.blocks:,} blocks x {request.partitions} partitions with "
            f"{len(names)} coefficients need {request.plan().memory / 1e9:.1f} GB; use fewer"
        )
    if len(request.label) > MAX_NAME or not request.label.isprintable():
        raise RequestError(f"label: expected printable text of at most {MAX_NAME} characters")
    noise = request.noise
    if isinstance(noise, SummedNoise) and noise.scale > MAX_SCALE:
        raise RequestError(
            "epsilon: so small that the noise would not fit 64-bit integers and no analyst could "
            "learn anything; ask for more epsilon, or protect fewer rows per unit"
        )
