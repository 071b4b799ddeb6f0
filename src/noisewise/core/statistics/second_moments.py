"""The second moments A = Σ ww' of w = (1, x, y), and their sensitivity.

Notation. On unit scale a row has q numbers t ∈ [-1,1]^q (the target among them) and G categories,
each of which is either at its reference (all its indicators 0) or has exactly one indicator 1.
Two rows (t, e) and (t', e') are compared. A category is in state

    α  same level in both rows, not the reference,
    β  different levels, neither of them the reference (needs two indicators),
    γ  at the reference in the second row only.

(Both at the reference moves less than α; γ the other way round is covered by symmetry: putting
every γ category at the reference in the same row moves most, see below.) Counts of the states are
written α, β, γ too, α + β + γ = G.

The box without categories is the symmetric case of the general corner theorem: with u = P + Q/2
and v = P - Q/2 every difference of monomials u^a - v^a is a polynomial in (P, Q) with non-negative
coefficients, so taking absolute values of P and Q makes no entry smaller, and stays in the box.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb

from noisewise.core.design import Ball, Design, Geometry, Monomial, row_bits


@dataclass(frozen=True)
class SecondMoments:
    """The Gram matrix A = Σ ww' of w = (1, x, y), upper triangle, row by row.

    Public entries: A₀₀ = n when neighbours replace a row, and products of two indicators of the
    same category, which are zero in every row. An indicator's square equals the indicator, but it
    is released with noise of its own: analysts can then treat all noise as independent.
    """

    design: Design
    name = "second_moments"
    degree = 2

    @cached_property
    def all_entries(self) -> tuple[Monomial, ...]:
        """All of the upper triangle."""
        return tuple(combinations_with_replacement(range(len(self.design.columns) + 1), 2))

    @cached_property
    def entries(self) -> tuple[Monomial, ...]:
        """The entries that get noise, in the order of a Release's values."""
        return tuple(entry for entry in self.all_entries if entry not in self._public)

    @cached_property
    def _public(self) -> frozenset[Monomial]:
        public = set()
        if self.design.schema.neighbours == "replace_one":
            public.add((0, 0))
        columns = self.design.columns
        for a, b in self.all_entries:
            if a == 0 or a == b:
                continue
            left, right = columns[a - 1], columns[b - 1]
            if left.is_indicator and left.source == right.source:
                public.add((a, b))
        return frozenset(public)

    def public_values(self, n: int | None) -> Mapping[Monomial, int]:
        """The public entries with their values (`n` rows; None where n is private)."""
        values = dict.fromkeys(self._public, 0)
        if (0, 0) in values:
            if n is None:
                raise ValueError("n is public under replace_one and must be given")
            values[0, 0] = n
        return values


def l1(statistic: SecondMoments) -> Fraction:
    """Tight L1 sensitivity of the upper triangle for the box.

    Add or remove a row: all |w_a w_b| are largest together, at t = (1,…,1) and no category at its
    reference. Numbers give q(q+1)/2 products and q sums, the constant 1, every category its
    indicator and its square, q products with the numbers, and one product per pair of categories.

    Replace a row: for given states, the corner argument applies to the numbers (every term below
    is non-decreasing in |P| and |Q|: |t| + |t'| = max(2|P|, |Q|)), so t' ≤ t in absolute value and
    then t = (1,…,1), because everything grows with t ≥ 0. What remains is

      Σ_{j≤k} (1 - t'_j t'_k) + (1+α) Σ (1 - t'_j) + β Σ (1 + |t'_j|) + γ q + 4β + 2γ + pairs,
      pairs = 2αβ + αγ + 2·C(β,2) + βγ + C(γ,2),

    to be maximised over t' ∈ [-1,1]^q: `_smallest_form`. A γ category at the reference in the
    first row would contribute Σ|t'_j| ≤ q and products with other γ categories that do not move.
    """
    q, groups = statistic.design.number_of_numbers, len(statistic.design.category_sizes)
    triangle = q * (q + 1) // 2
    if statistic.design.schema.neighbours == "add_remove_one":
        return Fraction(triangle + q + 1 + 2 * groups + q * groups + comb(groups, 2))
    convex = [_smallest_form(q, 1 + same, 0) for same in range(groups + 1)]
    candidates = []
    for same, changed, dropped in _states(statistic):
        pairs = (
            2 * same * changed
            + same * dropped
            + 2 * comb(changed, 2)
            + changed * dropped
            + comb(dropped, 2)
        )
        fixed = triangle + q * (1 + same + changed + dropped) + 4 * changed + 2 * dropped + pairs
        # Without the kink the form is at least `convex`, and the kink lowers it by at most βq.
        candidates.append((fixed - convex[same] + changed * q, fixed, same, changed))
    best = Fraction(0)
    for at_most, fixed, same, changed in sorted(candidates, reverse=True):
        if at_most <= best:
            break
        best = max(best, fixed - _smallest_form(q, 1 + same, changed))
    return best


def l2_squared(statistic: SecondMoments, geometry: Geometry, layout: str) -> Fraction:
    """Square of the L2 sensitivity.

    Isometric layout: the squared norm of the change is the squared Frobenius norm
    ‖ww' - vv'‖² = |w|⁴ + |v|⁴ - 2(w·v)². Upper layout: half of that plus half of Σ (w_a² - v_a²)².

    *Add or remove a row.* |w|² ≤ M = 1 + q + G, attained: M² (isometric); in the upper layout
    (M² + Σ w_a⁴)/2 ≤ (M² + M)/2, attained.

    *Replace a row, box.* w·v = 1 + t·t' + α ≥ 1 + α - q. Write a_j = t_j², b_j = t'_j². Without
    the term in w·v, both layouts are convex in (a, b), so the largest value has all a_j, b_j in
    {0, 1}; lowering one b_j from 1 to 0 gains at most 1 in Σ(a-b)² and loses at least 3 in |v|⁴.
    So |w|² = M, |v|² = M - γ, and only categories contribute to the differences of squares:
    2β + γ. (Mixed orientation of the γ categories lowers the sum of squares, by convexity.)
    Attained without categories for odd q, where ±1 vectors with w·v = 0 exist.

    *Ball.* The rows also satisfy |x|² ≤ R², so |w|² ≤ 1 + R² + 1 whichever of ball and box binds;
    √2(2 + R²) for replacement is attained by w·v = 0 when there are two numeric features or more.
    In the upper layout the ball's bound is not smaller in general, so the smaller of the two
    sets' bounds is taken.
    """
    q, groups = statistic.design.number_of_numbers, len(statistic.design.category_sizes)
    length = Fraction(1 + q + groups)
    replace = statistic.design.schema.neighbours == "replace_one"
    if replace:
        box = max(
            _replaced(length, q, layout, same, changed, dropped)
            for same, changed, dropped in _states(statistic)
        )
    else:
        box = length**2 if layout == "isometric" else (length**2 + length) / 2
    if not isinstance(geometry, Ball):
        return box
    bits = row_bits(statistic.degree)
    within_ball = 2 + Fraction(geometry.grid_radius(bits), 2**bits) ** 2
    return min(box, (2 if replace else 1) * within_ball**2)


def _replaced(
    length: Fraction, q: int, layout: str, same: int, changed: int, dropped: int
) -> Fraction:
    inner = max(0, 1 + same - q)
    frobenius = length**2 + (length - dropped) ** 2 - 2 * inner**2
    if layout == "isometric":
        return frobenius
    return (frobenius + 2 * changed + dropped) / 2


def _states(statistic: SecondMoments) -> Iterator[tuple[int, int, int]]:
    """All counts (α, β, γ) of category states; β only where there are two indicators."""
    sizes = statistic.design.category_sizes
    changeable = sum(size >= 2 for size in sizes)
    for changed in range(changeable + 1):
        for dropped in range(len(sizes) - changed + 1):
            yield len(sizes) - changed - dropped, changed, dropped


def _smallest_form(q: int, slope: int, kink: int) -> Fraction:
    """Smallest value over v ∈ [-1,1]^q of Σ_{j≤k} v_j v_k + slope Σ v_j - kink Σ |v_j|.

    -kink|v| is the smaller of ±kink·v, so this is the smallest of convex quadratic programs, one
    for each choice of signs; by symmetry only the number m of plus signs matters, and the minimum
    of a symmetric convex program has one value for the m and one for the others.
    """
    if kink == 0:
        return _two_values(q, 0, slope, slope)
    return min(_two_values(m, q - m, slope + kink, slope - kink) for m in range(q + 1))


def _two_values(m: int, rest: int, slope_m: int, slope_rest: int) -> Fraction:
    """min over (a, b) ∈ [-1,1]² of ½((ma + rb)² + ma² + rb²) + m·slope_m·a + r·slope_rest·b.

    A convex quadratic's minimum over a square is its stationary point inside, or a stationary
    point of an edge, or a corner; all are rational, so the minimum is exact.
    """

    def value(a: Fraction, b: Fraction) -> Fraction:
        total = m * a + rest * b
        quadratic = (total * total + m * a * a + rest * b * b) / 2
        return quadratic + m * slope_m * a + rest * slope_rest * b

    def clipped(x: Fraction) -> Fraction:
        return max(Fraction(-1), min(Fraction(1), x))

    # Stationarity: total + a + slope_m = 0 and total + b + slope_rest = 0.
    candidates = []
    total = Fraction(-(m * slope_m + rest * slope_rest), 1 + m + rest)
    inside = (-slope_m - total, -slope_rest - total)
    if all(abs(x) <= 1 for x in inside):
        return value(*inside)
    for edge in (Fraction(-1), Fraction(1)):
        candidates.append(value(edge, clipped(Fraction(-(slope_rest + m * edge)) / (rest + 1))))
        candidates.append(value(clipped(Fraction(-(slope_m + rest * edge)) / (m + 1)), edge))
    return min(candidates)
