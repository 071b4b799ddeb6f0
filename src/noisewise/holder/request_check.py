"""What makes a request impossible, found before anything is charged or read."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from noisewise.core.design import Ball
from noisewise.core.errors import RequestError
from noisewise.core.statistics import MAX_FOURTH_MOMENTS, FourthMoments, SmallestEigenvalue
from noisewise.holder.exact_eigenvalue import MAX_SIZE
from noisewise.holder.words import check_bounded, check_label

if TYPE_CHECKING:
    from noisewise.holder.request import Request

MAX_DELTA = Fraction(1, 4)


def check_request(request: Request) -> None:
    """Refuse what cannot be published, whatever the rows; the error says what to do."""
    check_bounded(request.design)
    if request.mechanism == "laplace":
        if isinstance(request.geometry, Ball):
            raise RequestError(
                "radius: a ball lowers the sensitivity for Gaussian noise only; use the gaussian "
                "mechanism, or leave the radius out"
            )
        if request.layout == "isometric":
            raise RequestError("layout: isometric needs the gaussian mechanism; use upper")
        if not request.claim.is_pure:
            raise RequestError("mechanism: Laplace noise makes a pure claim (delta = 0)")
    elif request.claim.rho is None and request.claim.delta == 0:
        raise RequestError(
            "delta: the gaussian mechanism needs a delta above 0, well below 1 / (number of "
            "people), such as 1e-6; for delta = 0 use the laplace mechanism"
        )
    if request.claim.delta > MAX_DELTA:
        raise RequestError(
            f"delta: {float(request.claim.delta):g} is no protection; give one well below "
            "1 / (number of people), such as 1e-6"
        )
    _check_shares(request)
    check_label(request.label)


def _check_shares(request: Request) -> None:
    least = Fraction(1, 100)
    shares = {
        "fourth_moments": request.fourth_share,
        "smallest_eigenvalue": request.eigenvalue_share,
    }
    for name, share in shares.items():
        if share is not None and not least <= share <= 1 - least:
            raise RequestError(f"{name}: expected a share of the budget between 0.01 and 0.99")
    if request.shares[0] < least:
        raise RequestError(
            "smallest_eigenvalue: together with fourth_moments it leaves nothing for the second "
            "moments; the shares may add up to 0.99"
        )
    for statistic in request.statistics[1:]:
        if (
            isinstance(statistic, FourthMoments)
            and statistic.number_of_entries > MAX_FOURTH_MOMENTS
        ):
            raise RequestError(
                f"fourth_moments: {statistic.number_of_entries:,} entries for these features; no "
                "budget can pay for that, use fewer features"
            )
        if isinstance(statistic, SmallestEigenvalue) and statistic.size > MAX_SIZE:
            raise RequestError(
                f"smallest_eigenvalue: the features and the intercept are {statistic.size} "
                f"columns, and it is computed for at most {MAX_SIZE}; use fewer features, or "
                "leave it out"
            )
