"""Draws of a linear regression: rows and coefficients in balls, and what a draw costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from noisewise.core.design import STATISTIC_ONE, Design
from noisewise.core.kinds.draws import (
    COEFFICIENT_BITS,
    RegressionLaw,
)
from noisewise.core.privacy import PureEvent
from noisewise.core.statistics import SecondMoments
from noisewise.holder.draws.lattice import LatticeGaussian
from noisewise.holder.rows.sums import Sums


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
