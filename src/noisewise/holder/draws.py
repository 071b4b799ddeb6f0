"""Posterior sampling of a linear regression: the law, its privacy, and exact draws from it.

**The lattice.** Draws are integer vectors in a ball, with Gaussian weights. The law is
P(g) ∝ exp(-½ uᵀAu + bᵀu), u = g/K, over the integer vectors g with ‖g‖ ≤ K. A and b are rational
numbers, A is positive semidefinite. There are finitely many such g and their weights are what the
formula says: no tail is cut off, no weight is rounded.

**How.** Choose a unit lower triangular L, positive D and c (dyadic numbers near those for which
LDLᵀ ≈ A + sI, LDc ≈ b). Draw g_d, …, g_1 in turn from discrete Gaussians on the integers, given the
ones before, so that

    P(g) = exp(-½ Σ D_i (z_i - c_i)²) / Π_i Z_i(g),   z = Lᵀu,

where Z_i(g) = Σ_k exp(-½ D_i (k/K + …)²) is the normaliser of the i-th draw. Accept g if ‖g‖ ≤ K,
with probability

    exp(target - proposal - M) · Π_i Z_i(g) / Z_i^max,

where `target` and `proposal` are the exponents, M bounds their difference on the ball, and Z_i^max
is the normaliser of a discrete Gaussian centred at an integer, which is the largest. Then accepted
g have the law above, exactly (Brakerski et al. 2013, Lemma 2.3, for the second factor).

**M.** target - proposal = ½uᵀ(LDLᵀ - A)u + (b - LDc)ᵀu + ½Σ D_i c_i². With LDLᵀ - A = sI + E and
‖u‖ ≤ 1 that is at most ½ max(s + ‖E‖, 0) + ‖b - LDc‖ + ½Σ D_i c_i². Everything is computed in
rational numbers. Floating point only chooses L, D, c and s, which decide how often a draw is
accepted, not its law.

**s.** 0 if the Gaussian's mass is inside the ball; otherwise such that E‖u‖² = 1 under the
proposal, which moves it to the ball's surface or shrinks it to the ball's size. Where the mass is
far outside, the law hugs the surface and one proposal in about √s is accepted: with a million rows
and coefficients that want to be three times as long as they may, a draw takes a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import isqrt, lcm
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from noisewise.core.design import STATISTIC_ONE
from noisewise.core.kinds.draws import COEFFICIENT_BITS, RegressionLaw
from noisewise.core.privacy import PureEvent
from noisewise.core.statistics import SecondMoments
from noisewise.holder.mechanisms.exact import bernoulli_exp, choose, decimals, discrete_gaussian
from noisewise.holder.rows.sums import Sums


@dataclass(frozen=True)
class RegressionSample:
    """k independent draws of the coefficients from the tempered posterior in a ball.

    The law is `RegressionLaw`: prior N(0, I/λ), likelihood N(y; θ·(1, x), σ²) to the power τ,
    truncated to ‖θ‖ ≤ ρ, on a grid of step ρ/2³², sampled exactly (`LatticeGaussian`).

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

    References
    ----------
    Dimitrakakis et al. (2017); Zhang, Rubinstein & Dimitrakakis (2016), section on regression.
    """

    law: RegressionLaw
    draws: int
    epsilon: Fraction

    def event(self) -> PureEvent:
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
        size, ridge = len(law.design.columns), law.prior_precision
        statistic = SecondMoments(law.design)
        moments = statistic.with_public(sums.n, sums.values[statistic.name])
        weight = law.temper / law.variance / STATISTIC_ONE
        precision = tuple(
            tuple(
                law.radius**2 * (weight * moments[min(i, j), max(i, j)] + (ridge if i == j else 0))
                for j in range(size)
            )
            for i in range(size)
        )
        linear = tuple(law.radius * weight * moments[i, size] for i in range(size))
        return LatticeGaussian(precision, linear, 1 << COEFFICIENT_BITS)


# --- exact draws on the lattice; see the module's notes -------------------------------------------

Matrix = list[list[Fraction]]
Vector = list[Fraction]


@dataclass(frozen=True)
class LatticeGaussian:
    """Draws with P(g) ∝ exp(-½ uᵀAu + bᵀu), u = g/K, ‖g‖ ≤ K; see the module's notes."""

    precision: tuple[tuple[Fraction, ...], ...]  # A, symmetric
    linear: tuple[Fraction, ...]  # b
    size: int  # K

    def draw(self) -> tuple[int, ...]:
        while True:
            g, centres = self._propose()
            if sum(x * x for x in g) > self.size**2:
                continue
            if not bernoulli_exp(self.shortfall(g)):
                continue
            if all(self._keeps(i, centre) for i, centre in enumerate(centres)):
                return tuple(g)

    # --- the proposal -----------------------------------------------------------------------------

    @cached_property
    def _proposal(self) -> tuple[Matrix, Vector, Vector, Fraction]:
        """L, D, c and s: dyadic numbers, chosen by floating point."""
        a = np.array([[float(x) for x in row] for row in self.precision])
        b = np.array([float(x) for x in self.linear])
        s = _tilt(a, b)
        while True:
            shifted = a + s * np.eye(len(b))
            try:
                root = np.linalg.cholesky(shifted)
                break
            except np.linalg.LinAlgError:  # nearly singular: any larger s will do as well
                s = max(4 * s, 1e-12 * float(np.abs(a).max()))
        diagonal = np.diag(root)
        centre = root.T @ np.linalg.solve(shifted, b) / diagonal
        return (
            [[Fraction(float(x)) for x in row] for row in root / diagonal],
            [Fraction(float(x) ** 2) for x in diagonal],
            [Fraction(float(x)) for x in centre],
            Fraction(float(s)),
        )

    def _propose(self) -> tuple[list[int], list[Fraction]]:
        lower, _, c, _ = self._proposal
        g = [0] * len(c)
        centres = [Fraction(0)] * len(c)
        for i in reversed(range(len(c))):
            later = sum((lower[j][i] * g[j] for j in range(i + 1, len(c))), Fraction(0))
            centres[i] = c[i] * self.size - later
            g[i] = discrete_gaussian(self._variance(i), centres[i])
        return g, centres

    def _variance(self, i: int) -> Fraction:
        """Of the i-th draw, in squared grid steps."""
        return self.size**2 / self._proposal[1][i]

    # --- acceptance -------------------------------------------------------------------------------

    @cached_property
    def _difference(self) -> tuple[list[list[int]], list[int], int, Fraction]:
        """LDLᵀ - A and b - LDc as integers, their common denominator, and M - ½ΣDc²."""
        lower, d, c, s = self._proposal
        size = len(c)
        ldc = [
            sum((lower[i][k] * d[k] * c[k] for k in range(i + 1)), Fraction(0)) for i in range(size)
        ]
        rest = [b - x for b, x in zip(self.linear, ldc, strict=True)]
        form = [
            [
                sum((lower[i][k] * d[k] * lower[j][k] for k in range(min(i, j) + 1)), Fraction(0))
                - self.precision[i][j]
                for j in range(size)
            ]
            for i in range(size)
        ]
        error = [
            [x - (s if i == j else 0) for j, x in enumerate(row)] for i, row in enumerate(form)
        ]
        most = max(s + _norm([x for row in error for x in row]), Fraction(0)) / 2 + _norm(rest)
        common = lcm(*(x.denominator for row in form for x in row), *(x.denominator for x in rest))
        whole_form = [[int(x * common) for x in row] for row in form]
        return whole_form, [int(x * common) for x in rest], common, most

    def shortfall(self, g: list[int]) -> Fraction:
        """M - (target - proposal) at a point of the ball: never negative."""
        form, rest, common, most = self._difference
        quadratic = sum(
            x * sum(f * y for f, y in zip(row, g, strict=True))
            for row, x in zip(form, g, strict=True)
        )
        linear = sum(r * x for r, x in zip(rest, g, strict=True))
        total = Fraction(quadratic + 2 * linear * self.size, 2 * common * self.size**2)
        return most - total

    def _keeps(self, i: int, centre: Fraction) -> bool:
        """True with probability Z_i(g) / Z_i^max."""
        variance = self._variance(i)

        def bounds(digits: int) -> list[tuple[Decimal, Decimal]]:
            low, high = normaliser_ratio(variance, centre, digits)
            one, wide = Decimal(1), decimals(digits + 10)
            return [(low, high), (wide.subtract(one, high), wide.subtract(one, low))]

        # At a standard deviation of four steps the ratio is 1 to 136 digits: one comparison.
        return choose(bounds) == 0


def normaliser_ratio(variance: Fraction, centre: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    """Bounds of Σ_k exp(-(k-c)²/2v) / Σ_k exp(-k²/2v), less than 10^-digits apart at most twice.

    By Poisson summation it is (1 + 2Σ q^(k²) cos 2πkc) / (1 + 2Σ q^(k²)), q = exp(-2π²v), so it is
    at most 1, and at least 1 - 4q/(1-q). Where q is far below 10^-digits that will do. Elsewhere
    the sums are computed with 30 digits more than asked for, up to terms below 10^-20 of that,
    which leaves room for all errors of mpmath's functions.
    """
    context = decimals(digits + 10)
    room = Decimal(1).scaleb(-digits)
    if 2 * math.pi**2 * 0.999 * variance > (digits + 2) * math.log(10):
        return context.subtract(Decimal(1), room), Decimal(1)
    mp = mpmath.MPContext()  # one of our own: the global one belongs to the user
    mp.dps = digits + 30
    q = mp.exp(-2 * mp.pi**2 * variance.numerator / variance.denominator)
    part = centre - math.floor(centre)
    above = below = mp.mpf(1)
    k, term = 0, mp.mpf(1)
    while term > mp.mpf(10) ** (-digits - 20):
        k += 1
        term = 2 * q ** (k * k)
        above += term * mp.cos(2 * mp.pi * k * part.numerator / part.denominator)
        below += term
    ratio = Decimal(mp.nstr(above / below, digits + 15, strip_zeros=False))
    low, high = context.subtract(ratio, room), context.add(ratio, room)
    return max(low, Decimal(0)), min(high, Decimal(1))


def _norm(values: list[Fraction]) -> Fraction:
    """Euclidean norm, rounded up by at most 2⁻⁸⁰."""
    total = sum((x * x for x in values), Fraction(0)) * (1 << 160)
    return Fraction(isqrt(total.numerator // total.denominator) + 1, 1 << 80)


def _tilt(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """s = 0, or the s for which E‖u‖² = 1 under N((A+sI)⁻¹b, (A+sI)⁻¹)."""
    values, vectors = np.linalg.eigh(a)
    values = np.maximum(values, 0)
    along = (vectors.T @ b) ** 2

    def excess(s: float) -> float:
        with np.errstate(divide="ignore"):
            return float((along / (values + s) ** 2 + 1 / (values + s)).sum()) - 1

    floor = 1e-12 * float(values.max())  # keeps the Cholesky factor away from rounding errors
    if values.min() > floor and excess(0.0) <= 0:
        return 0.0
    low, high = floor, floor + 1.0
    if excess(high) > 0 or excess(max(low, 1e-300)) > 0:
        while excess(high) > 0:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return high
    return max(floor, 1e-300)
