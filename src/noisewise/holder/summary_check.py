"""What makes a request for block summaries impossible, found before anything is charged or read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import MAX_REGRESSIONS, coefficients_of
from noisewise.core.kinds.summary.release import SummedNoise
from noisewise.holder.blocks import choice
from noisewise.holder.words import check_label, check_scale

if TYPE_CHECKING:
    from noisewise.holder.summary_request import SummaryRequest


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
    request.posterior.check(len(names), request.schema.n_is_public)
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
    check_label(request.label)
    if isinstance(request.noise, SummedNoise):
        check_scale(request.noise.scale)
