"""The second moments A = Σ ww' of w = (1, x, y), and their sensitivity.

Notation. On unit scale a row has q numbers t ∈ [-1,1]^q (the target among them) and G groups of
columns. Most groups are categories, each of which is either at its reference (all its indicators 0)
or has exactly one indicator 1. Two rows (t, e) and (t', e') are compared. A category is in state

    α  same level in both rows, not the reference,
    β  different levels, neither of them the reference (needs two indicators),
    γ  at the reference in the second row only.

(Both at the reference moves less than α; γ the other way round is covered by symmetry: putting
every γ category at the reference in the same row moves most, see below.) Counts of the states are
written α, β, γ too, α + β + γ = G.

**Groups of terms.** A term with categories or B-splines (`core.terms`) makes a group of columns g
with Σ|g_i| ≤ 1: several may differ from 0, and below 0 where the group is signed. *Such a group of
two columns or more moves no more than a category in state β*, whatever it is:

- in L1, an entry moves by at most |w_a w_b| + |v_a v_b|. In state β a category's entries attain
  this for e = e' = 1, because the two rows have them in different places. For a group the sums of
  it are no larger: Σ|g_i| ≤ 1 with the constant, |t_j| Σ|g_i| with a number, Σ|g_i| Σ|h_k| with
  another group, and within the group Σ_{i≤k} |g_i g_k| = ½((Σ|g_i|)² + Σ g_i²) ≤ 1. All that is
  said below about numbers and categories uses of the others only these sums;
- in L2, the squares a_i = g_i² satisfy Σ a_i ≤ 1, so (a_i) is in the convex hull of 0 and the unit
  vectors. Both layouts are convex in all squares together, but for the term in w·v; their largest
  values are at vertices, where the group is a category. Into w·v an unsigned group brings at least
  0, as a category in state β, and a signed one at least -1, as a number.

A single column that is no indicator is a number. That the columns of several terms are tied to each
other (I(age**2) to age, age:region to both) is not used: it lowers what is attained
(`tests/property/test_terms_sensitivity.py` states by how much), not the bound.

The box without categories is the symmetric case of the general corner theorem: with u = P + Q/2
and v = P - Q/2 every difference of monomials u^a - v^a is a polynomial in (P, Q) with non-negative
coefficients, so taking absolute values of P and Q makes no entry smaller, and stays in the box.

**Averaged rows.** Where a unit's rows are averaged (`Schema.unit_column`), indicators become shares
of levels: a category has s ≥ 0 with Σ s ≤ 1, what is missing being the share of the reference. So
products of two levels are no longer 0 and are released as well, and a share's square isn't the
share. Averages of t stay in the box, and groups of terms stay groups: what is said of both above
holds as it is. (`holder.rows.units` shows that rounding leaves none of these sets.)

*L2, both layouts: the bounds of 0/1 indicators hold as they are.* Write a category's p = |s|²,
c = s·s' and h = Σ (s_a² - s'_a²)². `l2_squared` bounds the numbers as for given levels: its proof
needs |w|² ≥ 1 + t_j² only. What is left to maximise is

    Φ = A² + B² - 2 max(0, 1 - q + Σ c)² + Σ h,   A = 1 + q + Σ p,   B = 1 + q + Σ p',

(without Σ h in the isometric layout), the full matrix included. A category with two indicators or
more: p, p' ≤ 1, c ≥ 0 and h ≤ Σ s⁴ + Σ s'⁴ ≤ 2, and two different levels attain all of these at
once, whatever the other categories do: β. A category with one indicator: Φ is convex in s, because
its second derivative is at least 4A₀ + 24 s² - 8 s'² ≥ 0, where A₀ ≥ 1 + q ≥ 2 is A without it
(max(0, ·)² has a continuous slope, so its kink is no matter); and in s' likewise. So s and s' are
0 or 1. Hence every category is in one of the states, which `l2_squared` compares. Adding or
removing: |w|² and Σ w_a⁴ are convex, so the vertices decide. ∎

*L1, adding or removing.* Σ_{a≤b} |w_a w_b| = ((Σ|w_a|)² + Σ w_a²)/2 is convex: the vertices decide.

*L1, replacing.* A category with two indicators or more is at its worst with different levels,
whatever the rest of the rows: by |s_a r - s'_a r'| ≤ s_a |r| + s'_a |r'| and Σ s, Σ s' ≤ 1 no sum
of its entries exceeds what β has. The single indicators s ∈ [0, 1] are numbers like t, but for the
sign. The corner argument replaces (u_j, v_j) by the larger and the smaller of them in size, the
smaller with the sign of u_j v_j: shares stay shares. So all u_j = 1, and what remains of numbers
and single shares is

    Σ_{j≤k} (1 - v_j v_k) + Σ (1 - v_j) + β Σ (1 + |v_j|) + 4β + 2·C(β,2),

to be maximised over v_j ∈ [-1, 1] for numbers and [0, 1] for shares: `_of_shares`. Here the bound
of 0/1 indicators does *not* hold: with a number, a yes/no column and a category of three levels, a
share of 1/2 moves 1/4 more than 0 or 1. ∎
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import comb
from typing import Any

from noisewise.core.design import STATISTIC_ONE, Ball, Design, Geometry, Monomial, row_bits


@dataclass(frozen=True)
class SecondMoments:
    """The Gram matrix A = Σ ww' of w = (1, x, y), upper triangle, row by row.

    Public entries: A₀₀ = n when neighbours replace a row, and products of two indicators that
    belong to different levels of one category, which are zero in every row (shares in averaged rows
    have no such zeros). An indicator's square equals the indicator, but it is released with noise
    of its own: analysts can then treat all noise as independent.
    """

    design: Design
    name = "second_moments"
    degree = 2

    @property
    def number_of_products(self) -> int:
        """How many entries the upper triangle has, public ones included."""
        return comb(len(self.design.columns) + 2, 2)

    @cached_property
    def entries(self) -> tuple[Monomial, ...]:
        """The entries that get noise, in the order of a Release's values."""
        last = len(self.design.columns)
        found = [
            (a, b)
            for a, zero in enumerate(self._zeros())
            for b in range(a, last + 1)
            if b not in zero
        ]
        return tuple(found[self.design.schema.neighbours == "replace_one" :])

    def _zeros(self) -> Iterator[set[int]]:
        """For every entry of w, indices of those whose product with it is 0 in every row."""
        members: dict[Any, set[int]] = {}
        columns = () if self.design.schema.unit_column is not None else self.design.columns
        for i, column in enumerate(columns, start=1):
            for factor, level in column.cell if column.is_indicator else ():
                members.setdefault(factor, set()).add(i)
                members.setdefault((factor, level), set()).add(i)
        yield set()
        for column in self.design.columns:
            zero: set[int] = set()
            for factor, level in column.cell if column.is_indicator else ():
                zero |= members.get(factor, zero) - members.get((factor, level), zero)
            yield zero

    def public_values(self, n: int | None) -> Mapping[Monomial, int]:
        """The public entries with their values (`n` rows; None where n is private)."""
        values: dict[Monomial, int] = {
            (a, b): 0 for a, zero in enumerate(self._zeros()) for b in zero if b > a
        }
        if self.design.schema.neighbours == "replace_one":
            if n is None:
                raise ValueError("n is public under replace_one and must be given")
            values[0, 0] = n
        return values

    def with_public(self, n: int, sums: Sequence[int]) -> dict[Monomial, int]:
        """All entries of A with a ≤ b in grid units: the exact `sums` and the public ones."""
        known = {entry: value * STATISTIC_ONE for entry, value in self.public_values(n).items()}
        return {**known, **dict(zip(self.entries, sums, strict=True))}


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
    q, groups = statistic.design.single_columns, len(statistic.design.group_sizes)
    triangle = q * (q + 1) // 2
    if statistic.design.schema.neighbours == "add_remove_one":
        return Fraction(triangle + q + 1 + 2 * groups + q * groups + comb(groups, 2))
    if statistic.design.schema.unit_column is not None:
        return _of_shares(q, statistic.design.group_sizes)
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
    q, groups = statistic.design.single_columns, len(statistic.design.group_sizes)
    length = Fraction(1 + q + groups)
    replace = statistic.design.schema.neighbours == "replace_one"
    if replace:
        box = max(
            _replaced(length, q + statistic.design.signed_groups, layout, same, changed, dropped)
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
    length: Fraction, signed: int, layout: str, same: int, changed: int, dropped: int
) -> Fraction:
    inner = max(0, 1 + same - signed)
    frobenius = length**2 + (length - dropped) ** 2 - 2 * inner**2
    if layout == "isometric":
        return frobenius
    return (frobenius + 2 * changed + dropped) / 2


def _states(statistic: SecondMoments) -> Iterator[tuple[int, int, int]]:
    """All counts (α, β, γ) of category states; β only where there are two indicators."""
    sizes = statistic.design.group_sizes
    changeable = sum(size >= 2 for size in sizes)
    for changed in range(changeable + 1):
        for dropped in range(len(sizes) - changed + 1):
            yield len(sizes) - changed - dropped, changed, dropped


def _of_shares(q: int, sizes: Sequence[int]) -> Fraction:
    """The largest L1 change where a row of shares is replaced; see "Averaged rows" above."""
    single = sum(size == 1 for size in sizes)
    changed, free = len(sizes) - single, q + single
    fixed = free * (free + 1) // 2 + free * (1 + changed) + 4 * changed + 2 * comb(changed, 2)
    return fixed - _smallest_form(q, 1, changed, single)


def _smallest_form(q: int, slope: int, kink: int, shares: int = 0) -> Fraction:
    """Smallest value over v of Σ_{j≤k} v_j v_k + slope Σ v_j - kink Σ |v_j|.

    q of the v_j are in [-1, 1], and `shares` of them in [0, 1].

    -kink|v| is the smaller of ±kink·v, so this is the smallest of convex quadratic programs, one
    for each choice of signs; by symmetry only the number m of plus signs matters, and the minimum
    of a symmetric convex program has one value for the m, one for the others and one for shares.
    """
    of_shares = (shares, slope - kink, 0)
    if kink == 0:
        return _smallest_convex((q, slope, -1), of_shares)
    return min(
        _smallest_convex((m, slope + kink, -1), (q - m, slope - kink, -1), of_shares)
        for m in range(q + 1)
    )


def _smallest_convex(*groups: tuple[int, int, int]) -> Fraction:
    """min of ½(V² + Σ m v²) + Σ m·slope·v, V = Σ m v, over low ≤ v ≤ 1 for (m, slope, low).

    The minimum of a convex quadratic over a box is where every v is at a bound, or has derivative
    zero: v = -slope - V. All such points are rational, and the smallest of those in the box is it.
    """
    groups = tuple(group for group in groups if group[0])
    found = []
    for ends in product((None, 0, 1), repeat=len(groups)):
        states = [(m, slope, low, end) for (m, slope, low), end in zip(groups, ends, strict=True)]
        held = sum(m * (1 if end else low) for m, _, low, end in states if end is not None)
        pull = sum(m * slope for m, slope, _, end in states if end is None)
        total = Fraction(held - pull, 1 + sum(m for m, _, _, end in states if end is None))
        values = [
            -slope - total if end is None else Fraction(1 if end else low)
            for _, slope, low, end in states
        ]
        if all(low <= v <= 1 for v, (_, _, low) in zip(values, groups, strict=True)):
            linear = sum(m * slope * v for v, (m, slope, _) in zip(values, groups, strict=True))
            squares = sum(m * v * v for v, (m, _, _) in zip(values, groups, strict=True))
            found.append((total * total + squares) / 2 + linear)
    return min(found)
