"""Score and information of a regression of yes/no or counts: what a Newton round sums.

At a public theta a round sees a row as integers u = (c, w·e, z), as `ball_moments` does, but z is
not shrunk into a ball. With the linear predictor η = theta·u, the mean m(η) of the target and its
slope m'(η), a row adds

    score        ω u (y - m(η)),
    information  ω m'(η) u u',           ω = min(1, N/|u|²),

so rows that are longer than N = c² + G w² + R² count less. They are not moved: under the model
E[y | x] = m(η) with the row's own η, so whatever ω(x) is, the score has mean 0 at the true theta.
Moved rows would bias it. The variance of the score is Σ ω² m' uu' ≤ Σ ω m' uu': the information,
taken for it, overstates it a little.

**What one row adds.** Let v = √ω u, ρ = √ω (y - m) and h = √m' v. The score is ρv, the information
hh', and

    |v|² ≤ N,   |ρ| ≤ |y - m|,   |h|² ≤ m' |v|².                                               (1)

In integers v is cut off towards 0, and so are ρ and h (`holder.rows.scores`): (1) holds for them.
The target is measured in units in which |y - m| ≤ 1: a count is divided by its bound.

**Sensitivity.** Both are published with noise of one multiplier: of sd s on the score, and on the
information of sd s√(N/κ) (s√(N/2κ) off its diagonal, where entries stand for two). In units of s
the squared distance is D² = |Δscore|² + (κ/N) ‖Δinformation‖², with Frobenius norms.

*Add or remove a row.* By (1), D² = ρ²|v|² + (κ/N)|h|⁴ ≤ ρ²|v|² + κ m'² |v|⁴/N ≤ N (ρ² + κ m'²). So
D² ≤ N M with M the maximum of (y - m)² + κ m'² over all η and y.

*Replace a row.* Here κ is twice as large. |ρv - ρ'v'|² ≤ 2ρ²|v|² + 2ρ'²|v'|², and ‖hh' - kk'‖² ≤
|h|⁴ + |k|⁴, because the inner product (h·k)² is not negative. So D² ≤ 2 N M + 2 N M = 4 N M, with
the M of the single κ.

*Several rows of a unit* move at most so many times as far (triangle inequality).

**Yes or no: the information costs nothing.** *Claim.* For m(η) = 1/(1 + exp(-η)) and y in {0, 1},
M = 1 for all κ ≤ φ⁵ = 11.09…, φ the golden ratio. *Proof.* Let a = |y - m| and p = 1 - a. Then
m' = m(1 - m) = a p, and (y - m)² + κ m'² = (1 - p)² (1 + κp²), which is at most 1 exactly if
κ p (1 - p)² ≤ 2 - p (p > 0; at p = 0 it is 1). Now for all p

    φ⁵ p (1 - p)² = 2 - p + φ⁵ (p - φ⁻²)² (p - 2/φ),

and the last term is not positive, because p ≤ 1 < 2/φ. ∎ Hence κ = 11. The score alone would have
the same noise; the information alone, with the whole budget, 0.83 of the noise that it has. On the
grid m is any multiple of 2**-16 and the root of the slope is at most √(m(1 - m)): the proof holds
as it stands.

**Counts.** y is cut off at a bound C, and m(η) is the mean of a Poisson count that is cut off at C,
with m' = μ P(count < C) ≤ m, μ = exp(η). So the score has mean 0 however low C is. Divided by C all
are in [0, 1]; κ = 1, and M is the maximum over the table (m' and m of a knot, y at 0 or at C, where
(y - m)² is largest). The variance of the cut-off count f is at most m': it is Cov(f, f), m' is
Cov(f, count), and count - f grows with the count as f does, so Cov(f, count - f) ≥ 0.

**The table.** η is rounded to a knot, a multiple of 2**-10 from -16 to 16. No mean times 2**16 is
so near to a half that another machine's exponential could round it to another integer
(`tests/core/test_scores.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Design, Family
from noisewise.core.privacy import ceil_sqrt
from noisewise.core.schema import Number, Schema
from noisewise.core.statistics.ball_moments import ROW_BITS

OUTCOME_BITS = 16  # of means, residuals and roots of slopes
OUTCOME_ONE = 1 << OUTCOME_BITS
SCORE_ONE = 1 << (ROW_BITS + OUTCOME_BITS)  # a score is in units of 2**-26, information of 2**-20
KNOT_BITS = 10
LARGEST_PREDICTOR = 16

_KAPPA: dict[Family, int] = {"logistic": 11, "poisson": 1}

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The law of a target, as integers at the knots of η."""

    family: Family
    bound: int  # the unit of the target: 1, or the count at which it is cut off
    mean: Integers  # (32769,), m(η) in units of 2**-16 of the bound
    root: Integers  # (32769,), √m'(η) in the same units, rounded down

    @property
    def kappa(self) -> int:
        """κ where rows are added or removed; twice that where they are replaced."""
        return _KAPPA[self.family]

    def slope_at(self, eta: float) -> float:
        """m'(η) at the knot of η, in units of the bound."""
        last = LARGEST_PREDICTOR << KNOT_BITS
        knot = math.floor(eta * (1 << KNOT_BITS) + 0.5)
        return float(self.root[min(max(knot, -last), last) + last] / OUTCOME_ONE) ** 2

    @cached_property
    def largest(self) -> int:
        """M in units of 2**-32, exact up to rounding up."""
        one = OUTCOME_ONE
        residual = np.maximum(self.mean, one - self.mean)
        squares = residual**2
        slopes = [-(-self.kappa * int(root) ** 4 // one**2) for root in self.root]
        return max(int(square) + slope for square, slope in zip(squares, slopes, strict=True))


def outcome_of(design: Design) -> Outcome:
    """The law of a design's target."""
    column = design.schema.columns[design.target]
    bound = math.floor(column.upper) if isinstance(column, Number) else 1
    return outcome(design.family, bound)


@lru_cache(maxsize=8)
def outcome(family: Family, bound: int) -> Outcome:
    """The table of a family; `bound` is 1 for yes or no."""
    last = LARGEST_PREDICTOR << KNOT_BITS
    eta = np.arange(-last, last + 1) / (1 << KNOT_BITS)
    if family == "logistic":
        mean = np.floor(OUTCOME_ONE / (1 + np.exp(-eta)) + 0.5).astype(np.int64)
        slope = mean * (OUTCOME_ONE - mean)
        root = np.array([math.isqrt(int(square)) for square in slope])
        return Outcome(family, 1, mean, root)
    # P(count = j) for j < C; the mean of the cut-off count is Σ_{j<C} P(count > j).
    below, cumulated = np.zeros_like(eta), np.zeros_like(eta)
    log_mass = -np.exp(eta)
    for j in range(bound):
        cumulated += np.exp(log_mass)
        below += 1 - np.minimum(cumulated, 1.0)
        log_mass = log_mass + eta - math.log(j + 1)
    mean = np.floor(OUTCOME_ONE * (below / bound) + 0.5).astype(np.int64)
    slopes = np.minimum(np.exp(eta) * np.minimum(cumulated, 1.0) / bound, mean / OUTCOME_ONE)
    return Outcome(family, bound, mean, np.floor(OUTCOME_ONE * np.sqrt(slopes)).astype(np.int64))


def score_sensitivity(schema: Schema, outcome: Outcome, longest: int) -> int:
    """Largest D of one unit, in units of 2**-26 as the score is, rounded up.

    `longest` is N in units of 2**-20.
    """
    sides = 1 if schema.neighbours == "add_remove_one" else 2
    return schema.max_rows_per_unit * sides * ceil_sqrt(longest * outcome.largest)


def information_scale(schema: Schema, outcome: Outcome, longest: int, scale: int) -> int:
    """Least scale of the information, in units of 2**-20, beside one of the score in 2**-26.

    (s√(N/κ))² in these units is scale² N / (κ 2**32).
    """
    kappa = outcome.kappa * (1 if schema.neighbours == "add_remove_one" else 2)
    return ceil_sqrt(Fraction(scale**2 * longest, kappa << (2 * OUTCOME_BITS)))
