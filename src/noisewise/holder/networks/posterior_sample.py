"""Posterior sampling: k draws of all tables, from a truncated and tempered posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.content import (
    TABLE_BITS,
    TableDraws,
    log_odds,
    split_totals,
    splits,
    total_depth,
)
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import cost_of_draws
from noisewise.core.privacy import PureEvent
from noisewise.holder.networks.counts import FamilyCounts, longest_draw
from noisewise.holder.networks.split_sampler import SplitSampler

ONE = 1 << TABLE_BITS
DEFAULT_LOWEST = ONE // 32
_TEMPER_BITS = 64


@dataclass(frozen=True)
class PosteriorSample:
    """k independent draws of every split (`splits`) from its tempered posterior.

    A split v takes values m/2²⁴ within [ω, 1-ω]. Given c records in its first half and d in its
    second, P(v) ∝ v^(a-1+τc) (1-v)^(b-1+τd), where Beta(a, b) is the split's prior: the posterior
    with the likelihood to the power τ, truncated, renormalised, on a grid. It is sampled exactly
    (`split_sampler`), and no other randomness is involved.

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
        """ε-differential privacy."""
        return PureEvent(self.epsilon)

    def verify(self) -> None:
        """The formula in doubles, against what the Release's reader computes to 80 digits."""
        omega = self.lowest / ONE
        spent = float(self.temper) * float(self._records) * math.log((1 - omega) / omega)
        exact = self.temper * self._records * log_odds(self.lowest)
        if exact > self.epsilon or abs(spent - float(exact)) > 1e-9 * spent:
            raise AssertionError(f"draws cost {spent} for a claim of {float(self.epsilon)}")

    def describe(self) -> dict[str, Any]:
        """The law that is drawn from."""
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
        """Fresh draws."""
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
