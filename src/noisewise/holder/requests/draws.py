"""A request for posterior draws of a linear regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from noisewise.core.design import MAX_ROWS, Ball, Box, Geometry
from noisewise.core.errors import NoisewiseError, RequestError
from noisewise.core.kinds.draws import (
    COEFFICIENT_BITS,
    MAX_DRAWS,
    RegressionLaw,
    RegressionSampleRelease,
)
from noisewise.core.privacy import MAX_EPSILON, Amount, Claim, PureEvent, as_fraction, as_loss
from noisewise.core.schema import Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.draws import RegressionSample
from noisewise.holder.requests import base
from noisewise.holder.requests.base import AboutRegression
from noisewise.holder.rows.sums import SumPlan, Sums

_TEMPER_BITS = 64


@dataclass(frozen=True, kw_only=True)
class RegressionSampleRequest(AboutRegression[RegressionSampleRelease]):
    """What a holder asks to publish. Use `make_regression_sample_request`."""

    planned: RegressionSample

    @property
    def event(self) -> PureEvent:
        return self.planned.event()

    def verify(self) -> None:
        self.planned.verify()

    def plan(self) -> SumPlan:
        law = self.planned.law
        return SumPlan(law.design, law.geometry, (SecondMoments(law.design),))

    def release(self, n: int, result: Sums) -> RegressionSampleRelease:
        return self._written(n, self.planned.draw(result))

    def longest(self) -> int:
        """With "-4294967296" for every coefficient, ten characters more than the 0 in the ball."""
        origin = (0,) * len(self.design.columns)
        one = self._bytes(self._written(MAX_ROWS, (origin,)))
        draws = self.planned.draws
        another = self._bytes(self._written(MAX_ROWS, (origin, origin))) - one if draws > 1 else 0
        longest = len(str(-1 << COEFFICIENT_BITS))
        return one + (draws - 1) * another + draws * len(origin) * (longest - 1)

    def _written(self, n: int, draws: tuple[tuple[int, ...], ...]) -> RegressionSampleRelease:
        return RegressionSampleRelease(law=self.planned.law, draws=draws, **self._signed(n))

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "request": "regression_sample",
            "law": self.planned.law.to_json(),
            "draws": self.planned.draws,
        }

    @property
    def summary(self) -> str:
        return f"{self.formula}, posterior_sample"


def make_regression_sample_request(
    schema: Schema,
    *,
    target: str,
    features: Sequence[str],
    noise_sd: Amount,
    epsilon: Amount | None = None,
    draws: int = 1,
    radius: float | None = None,
    largest_norm: Amount = 1,
    prior_precision: Amount = 1,
    label: str = "",
    batch: str | None = None,
    series: str | None = None,
) -> RegressionSampleRequest:
    """Check the words of a request and find the temper that epsilon allows.

    Parameters
    ----------
    schema : Schema
    target : str
    features : sequence of str
    noise_sd : number
        Known standard deviation of the target given the features, in the target's own unit.
    epsilon : number or exact text, optional
        Privacy loss. The likelihood is tempered to reach it, never sharpened. Without one, the
        posterior is not tempered, and the request costs what that costs.
    draws : int
    radius : float, optional
        Force the features of every row into a ball of this radius on unit scale.
    largest_norm : number
        The largest norm of the coefficients (with the intercept) on unit scale.
    prior_precision : number
        Of every coefficient on unit scale.
    label, batch, series : str, optional
        As in `Publishable`.
    """
    design = base.restricted_design(schema, features, target)
    base.check_no_terms(design, "a Release of posterior draws")
    base.check_bounded(design)
    column = schema.columns[target]
    assert isinstance(column, Number)  # a Design has no other target
    base.check_draws(draws, MAX_DRAWS)
    geometry: Geometry = Box() if radius is None else Ball(radius)
    sd = as_fraction(noise_sd, "noise_sd") / Fraction(column.half_width)
    if not Fraction(1, 1000) <= sd <= 1000:
        raise RequestError(
            f"noise_sd: expected the standard deviation of {target!r} given the features, between "
            f"{column.half_width / 1000:g} and {column.half_width * 1000:g} for its bounds, got "
            f"{noise_sd}"
        )
    try:
        plain = RegressionLaw(
            design=design,
            geometry=geometry,
            radius=as_fraction(largest_norm, "largest_norm"),
            variance=sd**2,
            prior_precision=as_fraction(prior_precision, "prior_precision"),
            temper=Fraction(1),
        )
    except NoisewiseError as error:
        if isinstance(error, RequestError):
            raise
        reason = str(error).removeprefix("release: ")
        raise RequestError(f"regression: {reason} (radius is largest_norm here)") from None
    full = plain.cost(draws)
    if epsilon is None:
        cost, law = Fraction(math.ceil(full * 10**6), 10**6), plain
        if cost > MAX_EPSILON:
            raise RequestError(
                f"epsilon: draws from the untempered posterior would cost {float(cost):.6g}, which "
                "is no protection; give an epsilon, and the likelihood is tempered to it"
            )
    else:
        cost = as_loss(epsilon, "epsilon")
        share = Fraction(math.floor(cost / full * (1 << _TEMPER_BITS)), 1 << _TEMPER_BITS)
        if share == 0:
            raise RequestError(
                "epsilon: so small that the draws would not depend on the data; ask for more "
                "epsilon, fewer draws, or a smaller largest_norm"
            )
        law = replace(plain, temper=min(Fraction(1), share))
    return RegressionSampleRequest(
        design=design,
        planned=RegressionSample(law, draws, cost),
        claim=Claim(cost),
        label=label,
        batch=batch,
        series=series,
    )
