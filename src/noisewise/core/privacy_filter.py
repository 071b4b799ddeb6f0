"""A cap that holds when the size and the kind of each charge depend on earlier answers.

The accountants of `core.composition` add up charges that were planned. A ledger is used otherwise:
people look at a Release, and then decide what to ask next and how much to spend on it. A rule that
refuses charges such that the cap holds all the same is called a privacy filter (Rogers et al.
2016). To compose the charges at hand by the best accountant, and to stop where that exceeds the
cap, is *not* one: with the three accountants of `core.composition` the true delta is up to 3.4
times the cap's (`studies.caps`). That rules of this form fail in general is shown in
"f-differential privacy filters" (2026, arXiv:2602.06756).

**Rule.** Let the cap be (E, D). The charges that one person bears fit into it if one of these
certificates holds:

sum
    all of them are pure, and their epsilons add up to at most E;
single
    there is one charge, and an accountant of `core.composition` certifies (E, D) for it;
gaussian
    every charge counts as a Gaussian, and all of them together have delta(E) <= 4/5 D;
shared, for one k of 1, ..., 9
    the epsilons of pure events add up to at most k/10 E, and the Gaussian events together have
    delta((1 - k/10) E) <= D/45.

Gaussian events of noise multipliers s_i are together one Gaussian with mu^2 = sum 1/s_i^2; discrete
noise counts as continuous noise that is smaller by a factor of 1 - 2^-42 or so
(`lattice_inflation`). A pure event counts there as a Gaussian with mu = 2 Phi^-1(e^epsilon/(1 +
e^epsilon)). With D = 0 only the sum is left: a pure cap never had another rule.

**Claim.** Let charges be chosen one after the other, each with an event whose size and kind may
depend on all earlier answers, and let a charge be refused unless the charges so far, and this one,
fit. Then all answers together are (E, D)-differentially private.

**Proof.** Fix two neighbouring data sets; let P and Q be the laws of all answers, X_k the
likelihood ratio of P to Q for the first k answers, and c = e^E. It has to be shown that
E_Q (X - c)_+ <= D at the end, for every such pair, because this is the largest P(S) - c Q(S).

*Likelihood ratios are compared by convex functions.* Let W be that of one answer, given all earlier
ones, so that E_Q W = 1. Of a pure epsilon, W is between e^-epsilon and e^epsilon. Let R_epsilon be
the variable on these two points with mean 1. Then E g(W) <= E g(R_epsilon) for every convex g,
since a chord lies above its function. Of a mechanism that is mu-Gaussian private (Dong, Roth and Su
2022), E (W - a)_+ <= E (Z_mu - a)_+ for all a, with Z_mu = exp(mu N - mu^2/2) and N standard
normal; means are equal, so E g(W) <= E g(Z_mu) for every convex g. (Both are bounds on tests of Q
against P: E (W - a)_+ is the largest of 1 - f(alpha) - a alpha for the trade-off function f.)

*One certificate.* Let e, m >= 0 be fixed beforehand. Let every event be counted in one of two sums,
and which one be decided by the events so far: pure ones with their epsilon in the first, or any as
a Gaussian with its mu^2 in the second. If on every branch the first stays within e and the second
within m^2, then E_Q (X - c)_+ <= E (R_e Z_m - c)_+ with independent R_e and Z_m. *Proof.* Let e_k
and m_k^2 be what is left of e and m^2 after k answers, and

    H_k = E[(X_k R_{e_k} Z_{m_k} - c)_+ | answers],

the expectation over R and Z. It is a convex function of X_k, and grows with e_k and m_k by Jensen's
inequality: R_e' and Z_m' of larger e' and m' are those of e and m times something of mean 1, or
spread further. In the next step X_k becomes X_k W. If the event is counted in the first sum, the
expectation grows when R_epsilon takes the place of W. R_epsilon R_{e_k} has mean 1 and is between
exp(-(epsilon + e_k)) and the inverse of that, so that R_{epsilon + e_k} in its place makes it no
smaller. If the event is counted in the second, Z_mu takes the place of W, and Z_mu Z_{m_k} is
distributed as Z of m_k^2 + mu^2. So E H_k never grows from one answer to the next; at the
beginning it is E (R_e Z_m - c)_+, and at the end, where something may be left over, at least
E_Q (X - c)_+. This is the argument of Smith and Thakurta (2022) and of Koskela, Tobaben and Honkela
(2023) for Gaussians, with a pure share beside them. ∎

R_e is e^e with probability 1/(1 + e^e), so the bound is

    e^e/(1 + e^e) delta_m(E - e) + 1/(1 + e^e) delta_m(E + e) <= delta_m(E - e)

for the delta of a Gaussian, delta_m(epsilon) = E (Z_m - e^epsilon)_+. So the certificates
"gaussian" and "shared" cost 4/5 D and nine times D/45. With m = 0 and e = E nothing is left of the
bound: "sum" costs no delta.

*One of several.* Let certificates cost delta_1, delta_2, ... and let the charges fit on every
branch according to one of them at least, which one depending on the branch. Then E_Q (X - c)_+ is
at most the sum of all these deltas. *Proof.* Let A_j be the set of branches on which j holds to the
end, and X^j the ratio if charges were refused as soon as j would fail. On A_j both are the same, so

    E_Q (X - c)_+ <= sum_j E_Q[(X - c)_+; A_j] <= sum_j E_Q (X^j - c)_+ <= sum_j delta_j.

(Without the sum it is false: on some branches one certificate is used up and on some another. That
is what the attack on the smallest of three accountants does.) So "sum", "gaussian" and "shared"
together cost D.

*A single charge* is chosen before anything is seen: X = 1 until then. If nothing but "single"
holds, no second charge ever fits, as a part of what fits "sum", "gaussian" or "shared" fits it,
too. Then E_Q (X - c)_+ is that of one mechanism, at most D. If one of the others holds, the proof
above applies from the beginning.

*Every person.* Of the batches of a series a person bears one (`holder.ledger.accounts`). The
answers of other batches have the same law under P and Q and leave X as it is, whatever was chosen
in their light; the charges that the person bears fit on every branch, because all cases are
checked. ∎

**Raising a cap.** What fits into a cap fits into every larger one, in both numbers. So while a cap
is changed in the light of answers, what holds is the largest cap that would ever have been set.

**Why these.** In place of "gaussian", a Rényi or zCDP filter (Feldman and Zrnic 2021; Lécuyer 2021;
Whitehouse et al. 2023) would take 5 to 7% from Gaussians, for which a Gaussian filter is exact, and
give about 15% to thirty or more small pure charges; few and large ones need their plain sum in any
case. `studies.caps` has the price of this rule. The four fifths and the tenths were chosen with
that table in view: most ledgers have charges of one kind.

References
----------
Dong, Roth and Su (2022), Gaussian differential privacy, doi:10.1111/rssb.12454.
Feldman and Zrnic (2021), Individual privacy accounting via a Rényi filter, arXiv:2008.11193.
Koskela, Tobaben and Honkela (2023), Individual privacy accounting with Gaussian differential
    privacy, arXiv:2209.15596.
Lécuyer (2021), Practical privacy filters and odometers with Rényi differential privacy and
    applications to differentially private deep learning, arXiv:2103.01379.
Rogers, Roth, Ullman and Vadhan (2016), Privacy odometers and filters, arXiv:1605.08294.
Smith and Thakurta (2022), Fully adaptive composition for Gaussian differential privacy,
    arXiv:2210.17520.
Whitehouse, Ramdas, Rogers and Wu (2023), Fully-adaptive composition in differential privacy,
    arXiv:2203.05481.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from noisewise.core.calibration import (
    SMALLEST_GAUSSIAN_SCALE,
    gaussian_delta,
    gaussian_epsilon,
    lattice_inflation,
)
from noisewise.core.composition import epsilon_of, leaves_of, within
from noisewise.core.privacy import (
    MARGIN,
    Event,
    GaussianEvent,
    PureEvent,
    float_down,
    precise,
    to_precise,
)

PARTS = 10  # of a cap's epsilon, of which pure events have some and Gaussians the rest
# Of delta, for "gaussian" and for each k of "shared"; they add up to 1.
SHARES = (Fraction(4, 5), *[Fraction(1, 45)] * (PARTS - 1))


@dataclass(frozen=True)
class Borne:
    """What one person bears: so many charges, and all their events."""

    charges: int
    events: tuple[Event, ...]

    def and_also(self, event: Event) -> Borne:
        """One charge more."""
        return Borne(self.charges + 1, (*self.events, event))

    @cached_property
    def pure(self) -> list[Fraction]:
        return [one.epsilon for one in leaves_of(self.events) if isinstance(one, PureEvent)]

    @cached_property
    def pure_sum(self) -> Fraction:
        return sum(self.pure, Fraction(0))

    @cached_property
    def mu_squared(self) -> Any:
        """Of the Gaussian events together, rounded up; discrete noise has a scale of 2**20."""
        mp, inflation = precise(), to_precise(lattice_inflation(SMALLEST_GAUSSIAN_SCALE))
        terms = (
            (inflation if one.slack else 1) / mp.mpf(one.noise_multiplier) ** 2
            for one in leaves_of(self.events)
            if isinstance(one, GaussianEvent)
        )
        return mp.fsum(terms) * (1 + to_precise(MARGIN))

    @cached_property
    def mu(self) -> Any:
        """Of the Gaussian events together."""
        return precise().sqrt(self.mu_squared) * (1 + to_precise(MARGIN))

    @cached_property
    def mu_of_all(self) -> Any:
        """Of all events together, pure ones as Gaussians."""
        mp = precise()
        squares = mp.fsum(mp.mpf(gaussian_of_pure(epsilon)) ** 2 for epsilon in self.pure)
        return mp.sqrt(self.mu_squared + squares) * (1 + to_precise(MARGIN))


@lru_cache(maxsize=4096)
def gaussian_of_pure(epsilon: Fraction) -> float:
    """Return a mu for which every epsilon-DP mechanism is mu-Gaussian private, rounded up.

    Claim. mu = 2 z with Phi(-z) <= 1/(1 + e^epsilon), and no smaller one, since randomized response
    needs it. Proof. The trade-off function of epsilon-DP at x is the largest of 0, 1 - e^epsilon x
    and e^-epsilon (1 - x): it is straight between (0, 1), (a, a) with a = 1/(1 + e^epsilon), and
    (1, 0). That of a Gaussian, Phi(Phi^-1(1 - x) - mu), goes through the outer two, and through the
    middle one for z = Phi^-1(1 - a) and mu = 2 z; it is convex, hence below the lines between
    them. ∎

    Ordinary floats find z, and 80 digits check it.
    """
    from scipy.special import ndtri_exp

    mp = precise()
    allowed = (1 - to_precise(MARGIN)) / (1 + mp.exp(to_precise(epsilon)))
    size = float(epsilon)
    z, step = -float(ndtri_exp(-size - math.log1p(math.exp(-size)))), 1e-13
    while not mp.erfc(mp.mpf(z) / mp.sqrt(2)) / 2 <= allowed:
        z, step = z * (1 + step) + 5e-324, 2 * step
    return 2 * z


def fits(
    borne: Borne, epsilon: Fraction, delta: Fraction, shares: Sequence[Fraction] = SHARES
) -> bool:
    """Tell whether the charges that a person bears fit into a cap, by the rule above."""
    if not borne.mu_squared and borne.pure_sum <= epsilon:
        return True
    if delta == 0 or not borne.events:
        return not borne.events
    if borne.charges == 1 and within(borne.events, epsilon, delta):
        return True
    if _attains(borne.mu_of_all, epsilon, shares[0] * delta):
        return True
    # More than that for the pure events would only take from the Gaussians.
    part = math.ceil(PARTS * borne.pure_sum / epsilon)
    rest = epsilon * (PARTS - part) / PARTS
    return 1 <= part < PARTS and _attains(borne.mu, rest, shares[part] * delta)


def _attains(mu: Any, epsilon: Fraction, delta: Fraction) -> bool:
    return bool(gaussian_delta(mu, epsilon) <= to_precise(delta * (1 - MARGIN)))


def epsilon_spent(borne: Borne, delta: Fraction) -> Fraction | float:
    """Return the least epsilon of a cap with this delta into which the charges fit, rounded up.

    Infinite if there is none.
    """
    least: Fraction | float = math.inf if borne.mu_squared else borne.pure_sum
    if delta == 0 or not borne.events:
        return least
    if borne.charges == 1:
        least = min(least, epsilon_of(borne.events, delta))
    least = min(least, gaussian_epsilon(borne.mu_of_all, SHARES[0] * delta))
    if borne.pure and borne.mu_squared:
        gaussian = gaussian_epsilon(borne.mu, SHARES[1] * delta)  # all others are as large
        for part in range(1, PARTS) if math.isfinite(gaussian) else ():
            shares = borne.pure_sum / part, Fraction(gaussian) / (PARTS - part)
            least = min(least, PARTS * max(shares))
    return least


def largest_pure(cases: Sequence[Borne], epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest epsilon of a pure charge that still fits in every case, rounded down.

    Exact where a sum of pure epsilons sets the limit.
    """

    def holds(extra: Fraction) -> bool:
        return all(fits(case.and_also(PureEvent(extra)), epsilon, delta) for case in cases)

    sums = [epsilon - case.pure_sum for case in cases if not case.mu_squared]
    least = max(Fraction(0), min(sums)) if len(sums) == len(cases) else Fraction(0)
    found = Fraction(_largest(lambda extra: holds(Fraction(extra)), float_down(epsilon)))
    exact = [epsilon * part / PARTS - case.pure_sum for case in cases for part in range(1, PARTS)]
    near = [one for one in exact if found < one <= found * (1 + Fraction(1, 10**5)) and holds(one)]
    return max([least, found, *near])


def largest_gaussian(cases: Sequence[Borne], epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the epsilon, at the cap's delta, of the largest Gaussian charge that still fits.

    Rounded down; 0 if none does.
    """
    if delta == 0:
        return Fraction(0)
    if not any(case.events for case in cases):
        return epsilon

    def holds(mu: float) -> bool:
        event = GaussianEvent(1 / mu)
        return all(fits(case.and_also(event), epsilon, delta) for case in cases)

    # Beyond that the delta of a Gaussian is nearly 1.
    mu = _largest(holds, 100 + 4 * math.sqrt(epsilon))
    if not mu:
        return Fraction(0)
    found = Fraction(gaussian_epsilon(mu, delta)) * (1 - Fraction(1, 10**9))
    return min(epsilon, found)


def _largest(holds: Callable[[float], bool], most: float) -> float:
    """Return nearly the largest number up to `most` for which it holds, or 0."""
    if holds(most):
        return most
    low, high = most / 2, most
    while not holds(low):
        low, high = low / 2, low
        if low < 1e-9 * min(most, 1.0):
            return 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
