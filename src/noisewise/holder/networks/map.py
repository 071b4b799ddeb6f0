"""MAP estimates by exponential mechanisms: tempered on the whole range, or on a coarse grid.

The third kind, a MAP estimate from noisy counts, is `LaplaceCounts` and arithmetic; at a thousand
records and ε = 1 it is as good as the estimate without privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network, total_depth
from noisewise.core.kinds.network.release import TABLE_BITS, TableDraws, score_change
from noisewise.core.privacy import PureEvent
from noisewise.holder.mechanisms.exact import FIRST_DIGITS, choose, decimals
from noisewise.holder.networks.counts import FamilyCounts, longest_draw
from noisewise.holder.networks.posterior_sample import (
    DEFAULT_LOWEST,
    PosteriorSample,
    SplitSampler,
    plan_posterior_sample,
    split_samplers,
)

ONE = 1 << TABLE_BITS
DEFAULT_POINTS = 31
MAX_POINTS = 1000
_FACTOR_BITS = 64
# Above this factor of the score, exp of a double could overflow for some data.
_LARGEST_DOUBLE_FACTOR = 600


def plan_tempered_map(
    network: Network,
    epsilon: Fraction,
    *,
    concentration: Mapping[str, Fraction],
    omega: Fraction | None = None,
) -> PosteriorSample:
    """One draw θ with P(θ) ∝ π(θ) L(θ)^τ, where τ is as large as epsilon allows.

    This is the exponential mechanism with the log-likelihood as score and the prior as base
    measure. Its sensitivity is Δ = sup |ℓ_z - ℓ_z'| = D log((1-ω)/ω) for splits within [ω, 1-ω],
    and τ = ε/2Δ: the same law as one posterior draw, and the same proof (`PosteriorSample`), but
    τ may exceed 1, which is sharper than the posterior and tends to its mode.

    (With the posterior density itself as score, as in Algorithm 3 of Zhang, Rubinstein &
    Dimitrakakis (2016), the sensitivity they state holds on a finite set only: a change of units
    multiplies a density, and the loss with it. `GridMap` is their mechanism on a finite set.)
    """
    return plan_posterior_sample(
        network, epsilon, draws=1, concentration=concentration, omega=omega, most_temper=None
    )


@dataclass(frozen=True)
class GridMap:
    """The exponential mechanism on a few values of every split, scored by posterior probability.

    A split takes one of G equidistant values within [ω, 1-ω], and
    P(v) ∝ π(v) exp(η u(v)), where u(v) is the posterior probability of v among the G values.

    **Claim.** ε-differential privacy for η = ε/2Δ, Δ = R D tanh(L/4), L = log((1-ω)/ω), with R and
    D as for `PosteriorSample`.

    **Proof.** Adding a record multiplies the posterior of each split on its paths, D of them at
    most, by numbers v or 1-v, whose largest ratio is e^L, and renormalises. A probability p
    becomes at most p e^L/(p e^L + 1 - p), and p e^L/(…) - p is largest at p = 1/(1 + e^(L/2)),
    where it is tanh(L/4); taking a record away is the same backwards. So R steps change the scores
    of all splits, each by its largest change, by at most Δ in sum. P(v) ∝ π(v) exp(η u(v)) changes
    by a factor of at most exp(2η max|Δu|) for each split, and the splits are drawn independently:
    exp(2ηΔ) = e^ε. ∎

    References
    ----------
    Zhang, Rubinstein & Dimitrakakis (2016), Algorithm 3, on a finite set, split by split.
    """

    network: Network
    epsilon: Fraction
    lowest: int  # ω in units of 2⁻²⁴
    points: int  # G
    concentration: Mapping[str, Fraction]

    @cached_property
    def sensitivity(self) -> Fraction:
        """Δ, rounded up."""
        touched = self.network.schema.records_changed * total_depth(self.network)
        return touched * score_change(self.lowest)

    @cached_property
    def factor(self) -> Fraction:
        """η, rounded down."""
        exact = self.epsilon / (2 * self.sensitivity)
        return Fraction(math.floor(exact * (1 << _FACTOR_BITS)), 1 << _FACTOR_BITS)

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """The values that a split may have, in units of 2⁻²⁴."""
        span = ONE - 2 * self.lowest
        return tuple(self.lowest + span * j // (self.points - 1) for j in range(self.points))

    def event(self) -> PureEvent:
        return PureEvent(self.epsilon)

    def verify(self) -> None:
        """The formula, in doubles."""
        omega = self.lowest / ONE
        change = math.tanh(math.log((1 - omega) / omega) / 4)
        touched = self.network.schema.records_changed * total_depth(self.network)
        spent = 2 * float(self.factor) * touched * change
        if not spent <= float(self.epsilon) * (1 + 1e-9):
            raise AssertionError(f"the draw costs {spent} for a claim of {float(self.epsilon)}")

    def describe(self) -> dict[str, Any]:
        return {
            "draws": 1,
            "omega": self.lowest / ONE,
            "points": self.points,
            "sensitivity": float(self.sensitivity),
            "factor": float(self.factor),
        }

    def draw(self, counts: FamilyCounts) -> TableDraws:
        found: dict[str, tuple[int, ...]] = {}
        for node in self.network.nodes:
            concentration = self.concentration[node]
            given = (self.network, node, counts)
            posteriors = split_samplers(*given, Fraction(1), concentration, self.lowest)
            priors = split_samplers(*given, Fraction(0), concentration, self.lowest)
            found[node] = tuple(
                self.draw_split(prior, posterior)
                for prior, posterior in zip(priors, posteriors, strict=True)
            )
        return self._content((found,))

    def longest(self) -> TableDraws:
        return self._content(longest_draw(self.network, self.lowest))

    def _content(self, draws: tuple[Mapping[str, tuple[int, ...]], ...]) -> TableDraws:
        return TableDraws(draws, "grid", self.lowest, self.factor, self.concentration, self.points)

    def draw_split(self, prior: SplitSampler, posterior: SplitSampler) -> int:
        """One of the grid's values, with probability ∝ π(v) exp(η u(v)), exactly."""

        def bounds(digits: int) -> list[tuple[Decimal, Decimal]]:
            # Nearly always enough, and much quicker. Whether it is tried must not depend on the
            # counts, and it must not fail for any: an error is seen.
            if digits <= FIRST_DIGITS and self.factor <= _LARGEST_DOUBLE_FACTOR:
                return self._by_doubles(prior, posterior)
            return self._by_decimals(prior, posterior, digits)

        return self.grid[choose(bounds)]

    def _by_doubles(
        self, prior: SplitSampler, posterior: SplitSampler
    ) -> list[tuple[Decimal, Decimal]]:
        """Bounds of the weights, with room of 1e-9 for the errors of doubles."""
        room = 1e-9
        logs = [posterior.quick_log_ratio(m) for m in self.grid]
        top = max(high for _, high in logs)
        lows = [math.exp(low - top) * (1 - room) for low, _ in logs]
        # exp underflows to 0 below -745, which is no upper bound (here and for `stop`).
        highs = [max(math.exp(high - top), 1e-300) * (1 + room) for _, high in logs]
        factor, least, most = float(self.factor), sum(lows), sum(highs)
        found = []
        for m, low, high in zip(self.grid, lows, highs, strict=True):
            base_low, base_high = prior.quick_log_ratio(m)
            score_low, score_high = low / most, min(1.0, high / least)
            start = math.exp(base_low + factor * score_low * (1 - room)) * (1 - room)
            stop = math.exp(base_high + factor * score_high * (1 + room)) * (1 + room)
            stop = max(stop, 1e-300)
            found.append((Decimal(start), Decimal(stop)))
        return found

    def _by_decimals(
        self, prior: SplitSampler, posterior: SplitSampler, digits: int
    ) -> list[tuple[Decimal, Decimal]]:
        """Bounds of the weights that close in on them."""
        down, up = decimals(digits, ROUND_FLOOR), decimals(digits, ROUND_CEILING)
        room = Decimal(1).scaleb(3 - digits)  # exp is rounded to nearest, whatever the context
        less, more = down.subtract(Decimal(1), room), up.add(Decimal(1), room)
        weights = [posterior.weight(m, digits) for m in self.grid]
        least = most = Decimal(0)
        for low, high in weights:
            least, most = down.add(least, low), up.add(most, high)
        numerator, denominator = map(Decimal, self.factor.as_integer_ratio())
        found = []
        for m, (low, high) in zip(self.grid, weights, strict=True):
            base_low, base_high = prior.weight(m, digits)
            score_low = down.divide(low, most)
            score_high = min(Decimal(1), up.divide(high, least))
            start = down.exp(down.divide(down.multiply(numerator, score_low), denominator))
            stop = up.exp(up.divide(up.multiply(numerator, score_high), denominator))
            found.append(
                (
                    down.multiply(down.multiply(base_low, start), less),
                    up.multiply(up.multiply(base_high, stop), more),
                )
            )
        return found


def plan_grid_map(
    network: Network,
    epsilon: Fraction,
    *,
    concentration: Mapping[str, Fraction],
    omega: Fraction | None = None,
    points: int | None = None,
) -> GridMap:
    """Check the grid; ω is 1/32 and there are 31 points unless given."""
    count = DEFAULT_POINTS if points is None else points
    if isinstance(count, bool) or not isinstance(count, int) or not 2 <= count <= MAX_POINTS:
        raise RequestError(f"points: expected a whole number from 2 to {MAX_POINTS}, got {points}")
    lowest = DEFAULT_LOWEST if omega is None else max(1, math.ceil(omega * ONE))
    return GridMap(network, epsilon, lowest, count, concentration)
