"""Posterior sampling: k draws of all tables, from a truncated and tempered posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network, split_totals, splits, total_depth
from noisewise.core.kinds.network.release import TABLE_BITS, TableDraws, cost_of_draws, log_odds
from noisewise.core.privacy import PureEvent
from noisewise.holder.mechanisms import randomness
from noisewise.holder.mechanisms.exact import decimals
from noisewise.holder.networks.counts import FamilyCounts, longest_draw

ONE = 1 << TABLE_BITS
DEFAULT_LOWEST = ONE // 32
_TEMPER_BITS = 64


@dataclass(frozen=True)
class PosteriorSample:
    """k independent draws of every split (`splits`) from its tempered posterior.

    A split v takes values m/2²⁴ within [ω, 1-ω]. Given c records in its first half and d in its
    second, P(v) ∝ v^(a-1+τc) (1-v)^(b-1+τd), where Beta(a, b) is the split's prior: the posterior
    with the likelihood to the power τ, truncated, renormalised, on a grid. It is sampled exactly
    (`SplitSampler`), and no other randomness is involved.

    **Claim.** ε-differential privacy with ε = k τ R D log((1-ω)/ω), where D = Σ_i ⌈log2 r_i⌉ over
    the nodes' arities r_i (for binary nodes their number), and R the number of records that a unit
    adds or takes away: 2 where one record is replaced.

    **Proof.** The splits of all tables together are one draw θ from a finite set with
    P(θ|data) = π(θ) Π_z l_z(θ)^τ / Z(data). The likelihood l_z(θ) of a record z is a product over
    the nodes of its probability in one row of one table, which is a product of v or 1-v along a
    path of at most ⌈log2 r_i⌉ splits. All are within [ω, 1-ω], so for j ≤ D factors
    l_z^τ is between ω^(τj) and (1-ω)^(τj). Adding a record multiplies the weight of every θ by
    l_z(θ)^τ and so Z by an average of these; P(θ|data) is multiplied by their ratio, which is at
    most ((1-ω)/ω)^(τj) either way. R such steps and k independent draws give ε. Nothing in this
    depends on the set being a continuum or a grid. ∎

    Clamping draws of the untruncated posterior to [ω, 1-ω] would not do: the probability of the
    end points would be a tail probability, which a record can change by any factor.

    References
    ----------
    Dimitrakakis et al. (2017), "Differential privacy for Bayesian inference through posterior
    sampling"; Zhang, Rubinstein & Dimitrakakis (2016), Theorem 4 (1), for trimmed posteriors.
    """

    network: Network
    epsilon: Fraction
    draws: int
    lowest: int  # ω in units of 2⁻²⁴
    temper: Fraction
    # Dirichlet concentration of every cell of a node, at least 1
    concentration: Mapping[str, Fraction]

    def event(self) -> PureEvent:
        return PureEvent(self.epsilon)

    def verify(self) -> None:
        """The formula in doubles, against what the Release's reader computes to 80 digits."""
        omega = self.lowest / ONE
        spent = float(self.temper) * float(self._records) * math.log((1 - omega) / omega)
        exact = self.temper * self._records * log_odds(self.lowest)
        if exact > self.epsilon or abs(spent - float(exact)) > 1e-9 * spent:
            raise AssertionError(f"draws cost {spent} for a claim of {float(self.epsilon)}")

    def describe(self) -> dict[str, Any]:
        return {
            "draws": self.draws,
            "omega": self.lowest / ONE,
            "temper": float(self.temper),
            "splits": sum(
                self.network.configurations(node) * (self.network.arity(node) - 1)
                for node in self.network.nodes
            ),
        }

    def draw(self, counts: FamilyCounts) -> TableDraws:
        columns: list[dict[str, tuple[int, ...]]] = [{} for _ in range(self.draws)]
        for node in self.network.nodes:
            samplers = split_samplers(
                self.network, node, counts, self.temper, self.concentration[node], self.lowest
            )
            drawn = [[sampler.draw() for sampler in samplers] for _ in range(self.draws)]
            for column, values in zip(columns, drawn, strict=True):
                column[node] = tuple(values)
        content = self._content(tuple(columns))
        if cost_of_draws(self.network, content) > self.epsilon:
            raise AssertionError("the draws cost more than was charged")
        return content

    def longest(self) -> TableDraws:
        """One draw, with its longest integers."""
        return self._content(longest_draw(self.network, self.lowest))

    def _content(self, draws: tuple[Mapping[str, tuple[int, ...]], ...]) -> TableDraws:
        return TableDraws(draws, "posterior", self.lowest, self.temper, self.concentration)

    @cached_property
    def _records(self) -> int:
        touched = total_depth(self.network) * self.network.schema.records_changed
        return touched * self.draws


def split_samplers(
    network: Network,
    node: str,
    counts: FamilyCounts,
    temper: Fraction,
    concentration: Fraction,
    lowest: int,
) -> list[SplitSampler]:
    """The laws of a node's splits, in C order of (parents' levels, split).

    The prior Dirichlet(α, …, α) of a row makes a split into halves of g and h levels
    Beta(gα, hα).
    """
    arity = network.arity(node)
    table = counts.tables[node].reshape(-1, arity)
    first, second = (half.ravel().tolist() for half in split_totals(table, arity))
    prior = [
        ((middle - start) * concentration - 1, (stop - middle) * concentration - 1)
        for start, middle, stop in splits(arity)
    ] * len(table)
    return [
        SplitSampler(a + temper * c, b + temper * d, lowest)
        for (a, b), c, d in zip(prior, first, second, strict=True)
    ]


# --- planning -------------------------------------------------------------------------------------


def plan_posterior_sample(
    network: Network,
    epsilon: Fraction,
    *,
    draws: int,
    concentration: Mapping[str, Fraction],
    omega: Fraction | None = None,
    temper: Fraction | None = None,
    most_temper: Fraction | None = Fraction(1),
) -> PosteriorSample:
    """Choose the truncation, the temper or both so that the draws cost epsilon.

    With `omega` tables are truncated there, and tempered as far as epsilon asks; with `temper` (1
    is the plain posterior) they are tempered by that, and truncated as far as epsilon asks. With
    neither, ω is 1/32, or less if the untempered posterior allows it. The data are never followed
    more closely than by `most_temper`; None is no limit (`map`).
    """
    touched = total_depth(network) * network.schema.records_changed * draws
    if temper is not None:
        lowest = _lowest_within(epsilon / (temper * touched))
    else:
        lowest = DEFAULT_LOWEST if omega is None else max(1, math.ceil(omega * ONE))
        if omega is None and most_temper is not None:
            untempered = epsilon / (most_temper * touched)
            if log_odds(lowest) < untempered:
                lowest = _lowest_within(untempered)
        spent = touched * log_odds(lowest)
        temper = Fraction(math.floor(epsilon / spent * (1 << _TEMPER_BITS)), 1 << _TEMPER_BITS)
        if most_temper is not None:
            temper = min(temper, most_temper)
    if temper <= 0:
        raise RequestError(
            "epsilon: so small that the draws would not depend on the data at all; ask for more "
            "epsilon, or for fewer draws"
        )
    return PosteriorSample(network, epsilon, draws, lowest, temper, concentration)


def _lowest_within(most: Fraction) -> int:
    """The smallest grid point ω with log((1-ω)/ω) ≤ most; at most just below one half."""
    guess = ONE / (1 + math.exp(min(float(most), 700.0)))
    lowest = max(1, min(ONE // 2 - 1, math.floor(guess) - 1))
    while lowest < ONE // 2 - 1 and log_odds(lowest) > most:
        lowest += 1
    if log_odds(lowest) > most:
        raise RequestError(
            "epsilon: so small that the tables would all be uniform; ask for more epsilon, fewer "
            "draws, or give omega (such as 0.05), which tempers the likelihood instead"
        )
    return lowest


# --- exact draws of splits ------------------------------------------------------------------------


# Where the stairs are, in units of the weight's width: this accepts about four draws in five.
_STEPS = (0.4, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 7.0, 12.0, 24.0)
_STAIR_BITS = 64
_TRUSTED = 2.0**-40
_SMALLEST_LOG = -700.0  # below, doubles lose their precision


@dataclass(frozen=True)
class SplitSampler:
    """Draws of one split.

    They are exact: an integer m with P(m) ∝ m^a (M - m)^b and lowest ≤ m ≤ M - lowest.

    That is a Beta(a + 1, b + 1) on a grid of M = 2**24 steps, truncated and renormalised. The
    weight is log-concave in m and has its mode at M a/(a + b), so on a range of m on one side of
    the mode it is largest at the end nearer to the mode. A draw proposes from a staircase above the
    weight (ranges, with the weight at that end, rounded up, as an integer) and accepts m with
    probability weight(m) / stair(m). The law of accepted m is exact, whatever the stairs; they only
    decide how often one is accepted.

    Weights are relative to the one next to the mode. Doubles are used where they can decide: they
    assume that the system's `log` and `exp` are right to 40 of their 53 bits, and the bounds below
    allow for it. What doubles cannot decide is decided by `decimal`, with as many digits as it
    takes.
    """

    # Exponents, not negative
    a: Fraction
    b: Fraction
    lowest: int  # from 1 to M/2 - 1

    def __post_init__(self) -> None:
        if self.a < 0 or self.b < 0:
            raise ValueError("the exponents of a split must not be negative")
        if not 1 <= self.lowest < ONE // 2:
            raise ValueError("lowest must be from 1 to below one half")

    def draw(self) -> int:
        stairs, total = self._stairs
        while True:
            place = randomness.below(total)
            for start, stop, height in stairs:
                mass = (stop - start + 1) * height
                if place < mass:
                    break
                place -= mass
            m = start + place // height
            if self._accepts(m, height):
                return m

    @cached_property
    def _reference(self) -> int:
        """The grid point at or below the mode, within the limits."""
        highest = ONE - self.lowest
        if self.a + self.b == 0:
            return ONE // 2
        mode = math.floor(ONE * self.a / (self.a + self.b))
        return max(self.lowest, min(highest, mode))

    @cached_property
    def _stairs(self) -> tuple[tuple[tuple[int, int, int], ...], int]:
        """Ranges (start, stop, height) that cover the grid, nearest to the mode first."""
        reference = self._reference
        width = self._width()
        ranges = []
        lower = [reference, *(reference - max(1, round(width * step)) for step in _STEPS)]
        upper = [reference + 1, *(reference + 1 + max(1, round(width * s)) for s in _STEPS)]
        for near, far in zip(lower, [*lower[1:], self.lowest - 1], strict=True):
            start = max(far + 1, self.lowest)
            if start <= near:
                ranges.append((start, near, near))
        highest = ONE - self.lowest
        for near, far in zip(upper, [*upper[1:], highest + 1], strict=True):
            stop = min(far - 1, highest)
            if near <= stop:
                ranges.append((near, stop, near))
        stairs = []
        for start, stop, nearest in ranges:
            _, high = self.quick_log_ratio(nearest)
            height = math.ceil(math.ldexp(math.exp(high) * (1 + 4 * _TRUSTED), _STAIR_BITS)) + 1
            stairs.append((start, stop, height))
        stairs.sort(key=lambda stair: -(stair[1] - stair[0] + 1) * stair[2])
        return tuple(stairs), sum((stop - start + 1) * height for start, stop, height in stairs)

    def _width(self) -> float:
        """How far the weight reaches from its mode: a guess, on which only the speed depends."""
        a, b, m = float(self.a), float(self.b), float(self._reference)
        curvature = a / m**2 + b / (ONE - m) ** 2
        slope = abs(a / m - b / (ONE - m))
        return 1 / (math.sqrt(curvature) + slope + 1 / ONE)

    # --- weights ----------------------------------------------------------------------------------

    @cached_property
    def _floats(self) -> tuple[float, float, float, float]:
        r = self._reference
        return float(self.a), float(self.b), math.log(r), math.log(ONE - r)

    def quick_log_ratio(self, m: int) -> tuple[float, float]:
        """Bounds of log(weight(m) / weight(reference)) by doubles.

        A logarithm of at most 2**24 is below 17, so each of the four is off by at most 17 · 2^-40,
        and the two differences by 2^-34.9 together; all further rounding is far below the 2^-34
        that is allowed for.
        """
        if self.a + self.b > 1 << 24:
            low, high = (float(bound) for bound in self.log_ratio(m, 40))
            room = 2.0**-50 * max(abs(low), abs(high), 1)
            return low - room, high + room
        a, b, log_first, log_second = self._floats
        value = a * (math.log(m) - log_first) + b * (math.log(ONE - m) - log_second)
        room = (a + b + 1) * 2.0**-34
        return value - room, value + room

    def log_ratio(self, m: int, digits: int) -> tuple[Decimal, Decimal]:
        """Bounds of log(weight(m) / weight(reference)) by decimals.

        A logarithm here is below 17 and correctly rounded, so it is off by at most 10^(2-digits);
        so are the differences and the exponents' relative errors times them. With a + b added up,
        10^(5-digits) times (a + b + 1) is more than all of these together.
        """
        context = decimals(digits)
        total = Decimal(0)
        for exponent, x, r in (
            (self.a, m, self._reference),
            (self.b, ONE - m, ONE - self._reference),
        ):
            factor = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
            change = context.subtract(context.ln(Decimal(x)), context.ln(Decimal(r)))
            total = context.add(total, context.multiply(factor, change))
        room = Decimal(math.ceil(self.a + self.b) + 1).scaleb(5 - digits)
        return context.subtract(total, room + room), context.add(total, room + room)

    def weight(self, m: int, digits: int) -> tuple[Decimal, Decimal]:
        """Bounds of weight(m) / weight(reference) by decimals."""
        context = decimals(digits)
        low, high = self.log_ratio(m, digits)
        room = Decimal(1).scaleb(3 - digits)
        return (
            context.multiply(context.exp(low), context.subtract(Decimal(1), room)),
            context.multiply(context.exp(high), context.add(Decimal(1), room)),
        )

    def _accepts(self, m: int, height: int) -> bool:
        """True with probability weight(m) / (height / 2**64)."""
        bits = 64
        u = randomness.bits(bits)
        low, high = self.quick_log_ratio(m)
        if low > _SMALLEST_LOG:
            # u height < weight 2^128, by doubles with room for their errors.
            scaled = math.ldexp(float(height), -_STAIR_BITS)
            if (u + 1) / 2.0**bits * scaled * (1 + 8 * _TRUSTED) <= math.exp(low):
                return True
            if u / 2.0**bits * scaled * (1 - 8 * _TRUSTED) >= math.exp(high):
                return False
        digits = 40
        while True:
            weight_low, weight_high = self.weight(m, digits)
            one = Decimal(1 << (bits + _STAIR_BITS))
            if Decimal((u + 1) * height) <= decimals(digits, ROUND_FLOOR).multiply(weight_low, one):
                return True
            if Decimal(u * height) >= decimals(digits, ROUND_CEILING).multiply(weight_high, one):
                return False
            u = (u << 64) | randomness.bits(64)
            bits += 64
            digits *= 2
