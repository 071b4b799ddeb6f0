"""Posterior sampling of a linear regression: rows and coefficients in balls, exact draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from noisewise.core.design import MAX_ROWS, STATISTIC_ONE, Ball, Box, Design, Geometry
from noisewise.core.errors import NoisewiseError, RequestError
from noisewise.core.kinds.draws import (
    COEFFICIENT_BITS,
    MAX_DRAWS,
    RegressionLaw,
    RegressionSampleRelease,
)
from noisewise.core.privacy import MAX_EPSILON, Amount, Claim, PureEvent, as_fraction
from noisewise.core.schema import Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.base_request import BaseRequest
from noisewise.holder.networks.lattice import LatticeGaussian
from noisewise.holder.plan import ReadsDesign
from noisewise.holder.sums import SumPlan, Sums
from noisewise.holder.words import (
    check_bounded,
    check_draws,
    check_label,
    feature_names,
    restricted_design,
)

_TEMPER_BITS = 64


@dataclass(frozen=True)
class RegressionSample:
    """k independent draws of the coefficients from the tempered posterior in a ball.

    The law is `RegressionLaw`: prior N(0, I/λ), likelihood N(y; θ·(1, x), σ²) to the power τ,
    truncated to ‖θ‖ ≤ ρ, on a grid of step ρ/2³², sampled exactly (`lattice`).

    **Claim.** ε-differential privacy with ε = k R τ m/2σ², where R is the number of records that a
    unit adds or takes away (2 where one is replaced), T = ρ max‖(1, x)‖, and m = 4T if T ≤ 1, else
    (1 + T)².

    **Proof.** P(θ|data) = π(θ) Π_z l_z(θ)^τ / Z(data) on a finite set of θ, with
    log l_z = -(y - t)²/2σ², t = θ·(1, x). Rows are forced onto the grid inside their ball before
    anything is summed, and |y| ≤ 1, |t| ≤ T by Cauchy and Schwarz. As θ varies, (y - t)² varies
    by at most (|y| + T)² - max(|y| - T, 0)²: that is (|y| + T)² ≤ (1 + T)² if |y| ≤ T, and
    4|y|T ≤ 4T otherwise, which needs T < 1. For T ≤ 1 the first is at most (2T)² ≤ 4T too. So
    adding a record multiplies the weights by numbers whose ratio is at most exp(τm/2σ²), and hence
    every probability by a factor within exp(±τm/2σ²). R steps and k independent draws give ε. ∎

    A sampler that gives up after some number of rejections, or a Markov chain that has not quite
    converged, does not have this law; this one has neither.

    Parameters
    ----------
    law : RegressionLaw
    draws : int
    epsilon : Fraction

    References
    ----------
    Dimitrakakis et al. (2017); Zhang, Rubinstein & Dimitrakakis (2016), section on regression.
    """

    law: RegressionLaw
    draws: int
    epsilon: Fraction

    def event(self) -> PureEvent:
        """ε-differential privacy."""
        return PureEvent(self.epsilon)

    def verify(self) -> None:
        """The formula in doubles, against the exact one."""
        law, schema = self.law, self.law.design.schema
        reach = float(law.radius) * math.sqrt(float(law.longest_row))
        spread = 4 * reach if reach <= 1 else (1 + reach) ** 2
        steps = (2 if schema.neighbours == "replace_one" else 1) * schema.max_rows_per_unit
        spent = self.draws * steps * float(law.temper) * spread / (2 * float(law.variance))
        exact = law.cost(self.draws)
        if exact > self.epsilon or abs(spent - float(exact)) > 1e-9 * spent:
            raise AssertionError(f"draws cost {spent} for a claim of {float(self.epsilon)}")

    def describe(self) -> dict[str, Any]:
        """The law that is drawn from."""
        return {
            "draws": self.draws,
            "radius": float(self.law.radius),
            "variance": float(self.law.variance),
            "prior_precision": float(self.law.prior_precision),
            "temper": float(self.law.temper),
        }

    def draw(self, sums: Sums) -> tuple[tuple[int, ...], ...]:
        """Fresh draws from the exact second moments."""
        sampler = self.sampler(sums)
        return tuple(sampler.draw() for _ in range(self.draws))

    def sampler(self, sums: Sums) -> LatticeGaussian:
        """The law on the lattice: A = ρ²(τ/σ² X'X + λI) and b = ρτ/σ² X'y, rational."""
        law = self.law
        size = len(law.design.columns)
        moments = _moments(law.design, sums)
        weight = law.temper / law.variance / STATISTIC_ONE
        precision = tuple(
            tuple(
                law.radius**2
                * (weight * moments[i, j] + (law.prior_precision if i == j else Fraction(0)))
                for j in range(size)
            )
            for i in range(size)
        )
        linear = tuple(law.radius * weight * moments[i, size] for i in range(size))
        return LatticeGaussian(precision, linear, 1 << COEFFICIENT_BITS)


def _moments(design: Design, sums: Sums) -> dict[tuple[int, int], int]:
    """All of Σ ww' in units of 2⁻³², the public entries too."""
    statistic = SecondMoments(design)
    found = dict(zip(statistic.entries, sums.values[statistic.name], strict=True))
    moments = {}
    for i, j in statistic.all_entries:
        public = sums.n * STATISTIC_ONE if (i, j) == (0, 0) else 0
        moments[i, j] = moments[j, i] = found.get((i, j), public)
    return moments


@dataclass(frozen=True)
class RegressionSampleRequest(ReadsDesign, BaseRequest):
    """What a holder asks to publish. Use `make_regression_sample_request`."""

    planned: RegressionSample
    claim: Claim
    label: str = ""
    batch: str | None = None
    series: str | None = None

    @property
    def design(self) -> Design:
        """Features and target."""
        return self.planned.law.design

    @property
    def event(self) -> PureEvent:
        """The cost of all draws together."""
        return self.planned.event()

    def verify(self) -> None:
        """Check the draws against their claim."""
        self.planned.verify()

    def plan(self) -> SumPlan:
        """The second moments."""
        law = self.planned.law
        return SumPlan(law.design, law.geometry, (SecondMoments(law.design),))

    def release(self, n: int, result: Sums) -> RegressionSampleRelease:
        """Draw the coefficients."""
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
        return RegressionSampleRelease(
            law=self.planned.law,
            n=self.public_n(n),
            draws=draws,
            claim=self.claim,
            event=self.event,
            label=self.label,
            software=self.software,
        )

    def to_json(self) -> dict[str, Any]:
        """Canonical description; its digest is the request's identity."""
        return {
            "request": "regression_sample",
            "schema": self.schema.to_dict(),
            "features": list(self.design.features),
            "target": self.design.target,
            "law": self.planned.law.to_json(),
            "draws": self.planned.draws,
            "claim": self.claim.to_json(),
            "label": self.label,
            "batch": self.batch,
            **self.series_json,
        }

    @property
    def summary(self) -> str:
        """The regression, and that it is sampled."""
        return f"{self.design.target} ~ {' + '.join(self.design.features)}, posterior_sample"


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
    label : str
    batch : str, optional
        Name of the batch of a stream that the rows belong to.
    series : str, optional
        Name of the series of that batch, if you declare that nobody is in two batches of it. Only
        then the batches don't add up in the budget (`Charge.series`).
    """
    design = restricted_design(schema, feature_names(features), target)
    check_bounded(design)
    column = schema.columns[target]
    assert isinstance(column, Number)  # a Design has no other target
    check_draws(draws, MAX_DRAWS)
    check_label(label)
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
        cost = Fraction(math.ceil(full * 10**6), 10**6)
        if cost > MAX_EPSILON:
            raise RequestError(
                f"epsilon: draws from the untempered posterior would cost {float(cost):.6g}, which "
                "is no protection; give an epsilon, and the likelihood is tempered to it"
            )
        return _request(plain, draws, Claim(cost), label, batch, series)
    claim = Claim(as_fraction(epsilon, "epsilon"))
    assert claim.epsilon is not None
    share = Fraction(math.floor(claim.epsilon / full * (1 << _TEMPER_BITS)), 1 << _TEMPER_BITS)
    if share == 0:
        raise RequestError(
            "epsilon: so small that the draws would not depend on the data; ask for more epsilon, "
            "fewer draws, or a smaller largest_norm"
        )
    tempered = replace(plain, temper=min(Fraction(1), share))
    return _request(tempered, draws, claim, label, batch, series)


def _request(
    law: RegressionLaw, draws: int, claim: Claim, label: str, batch: str | None, series: str | None
) -> RegressionSampleRequest:
    assert claim.epsilon is not None
    planned = RegressionSample(law, draws, claim.epsilon)
    return RegressionSampleRequest(planned, claim, label, batch, series)
