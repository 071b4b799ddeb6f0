"""The fourth moments, all monomials of degree 1 to 4 in the features x, and their sensitivity.

Write N = C(k+4, 4) for the number of monomials of degree at most 4 (the constant included) in the
k feature columns, and h(z) = Σ_{|a|≤4} z^a for their sum: the complete homogeneous symmetric
polynomial of degree 4 in (1, z).

**Lemma** (Hunter 1977). h(z) ≥ (1 + |z|²)²/8 ≥ 1/8 for all real z.
*Proof.* Let ξ_i be independent standard exponentials and X = Σ c_i ξ_i with c = (1, z). The moment
generating function Π 1/(1 - c_i s) shows E X⁴ = 24 h(z). With s = Σ c_i, the cumulants of X being
s, Σc², 2Σc³, 6Σc⁴, E X⁴ = s⁴ + Σ c_i² (6s² + 8 s c_i + 6 c_i²) + 3|c|⁴, and the bracket is
positive because its discriminant 64 - 144 is negative. So E X⁴ ≥ 3|c|⁴. ∎

All columns lie in [-1, 1] (indicators and shares in [0, 1], and a ball only shrinks rows), so the
bounds hold for every design. They ignore that powers of an indicator are equal: with categories
they are valid but not tight.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb

from noisewise.core.design import Design, Monomial

MAX_FOURTH_MOMENTS = 20_000  # no budget pays for more


@dataclass(frozen=True)
class FourthMoments:
    """Sums of all monomials of degree 1 to 4 in the features x.

    These are the unique entries of the fourth-order tensor Σ v⊗v⊗v⊗v of v = (1, x), which the
    Gibbs-SS-Noisy sampler of Bernstein & Sheldon (2019) plugs in. The target takes no part.
    """

    design: Design
    name = "fourth_moments"
    degree = 4

    @property
    def number_of_entries(self) -> int:
        """How many there are, without listing them: there may be a thousand million."""
        return comb(len(self.design.columns) - 1 + 4, 4) - 1

    @cached_property
    def entries(self) -> tuple[Monomial, ...]:
        """All monomials but the constant, in the order of a Release's values."""
        k = len(self.design.columns) - 1
        return tuple(combinations_with_replacement(range(k + 1), 4))[1:]


def l1(statistic: FourthMoments) -> Fraction:
    """L1 sensitivity.

    Add or remove: every monomial is at most 1 in size: N - 1, attained at (1,…,1).
    Replace: by the corner theorem the worst pair has one row at (1,…,1), so the change is
    Σ_{a≠0} (1 - v^a) = N - h(v) ≤ N - 1/8 by the lemma. The row v = 0 attains N - 1.
    """
    count = statistic.number_of_entries + 1
    if statistic.design.schema.neighbours == "add_remove_one":
        return Fraction(count - 1)
    return count - Fraction(1, 8)


def l2_squared(statistic: FourthMoments) -> Fraction:
    """Square of the L2 sensitivity.

    Add or remove: N - 1, attained. Replace: Σ_a (u^a - v^a)² = h(u∘u) + h(v∘v) - 2 h(u∘v), where
    h(u∘u) ≤ N and h(u∘v) ≥ 1/8: at most 2N - 1/4.
    """
    count = statistic.number_of_entries + 1
    if statistic.design.schema.neighbours == "add_remove_one":
        return Fraction(count - 1)
    return 2 * count - Fraction(1, 4)
