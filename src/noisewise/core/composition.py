"""What a set of privacy events adds up to.

Three accountants interpret events, each sound on its own, and the tightest counts:

1. *Sum*: pure epsilons add, exactly, as rational numbers; Gaussians compose into one Gaussian.
2. *zCDP*: every event has a rho, the rhos add, and one conversion ends the sum.
3. *Privacy loss*: the exact hockey-stick divergence of the worst case, randomized response for
   every pure event and one Gaussian for all Gaussians.

Rounding always goes towards more privacy, and an accountant that can't decide never says yes.

Known limit. What is asked may depend freely on earlier outputs, but the *sizes* of the charges
are taken as planned without looking at them: these accountants are for the parts of one request,
and for what was planned. When sizes depend on outputs, the plain sum of pure epsilons (Rogers et
al. 2016) and zCDP alone (Feldman and Zrnic 2021) are known to hold; choosing the tightest of three
accountants is not. Caps of ledgers are kept by `core.privacy_filter`, which is.

References
----------
Bun and Steinke (2016), Concentrated differential privacy, doi:10.1007/978-3-662-53641-4_24.
Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy,
    doi:10.29012/jpc.784.
Dong, Roth and Su (2022), Gaussian differential privacy, doi:10.1111/rssb.12454.
Feldman and Zrnic (2021), Individual privacy accounting via a Rényi filter, arXiv:2008.11193.
Kairouz, Oh and Viswanath (2015), The composition theorem for differential privacy,
    arXiv:1311.0776.
Rogers, Roth, Ullman and Vadhan (2016), Privacy odometers and filters, arXiv:1605.08294.
Zhu, Dong and Wang (2022), Optimal accounting of differential privacy via characteristic
    function, arXiv:2106.08567.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisewise.core.calibration import TAIL, gaussian_delta, gaussian_epsilon, zcdp_epsilon
from noisewise.core.errors import RequestError
from noisewise.core.privacy import (
    MARGIN,
    Claim,
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
    float_down,
    float_up,
    precise,
    to_precise,
)


def epsilon_of(events: Sequence[Event], delta: Fraction) -> Fraction | float:
    """Return an epsilon for which all events together are (epsilon, delta)-DP.

    The smallest that any accountant proves, rounded up; `within` agrees to it. The plain sum of
    pure epsilons, which anybody can check by hand, is preferred as long as nothing else saves one
    per cent of it. Infinity if nothing is guaranteed.
    """
    total = _Total.of(events)
    _check_delta(delta)
    best: Fraction | float = math.inf if total.gaussians else total.pure_sum
    if delta == 0 or not (total.pure or total.gaussians):
        return best
    if total.gaussians:
        continuous = total.pure_sum + total.slack
        gaussian = gaussian_epsilon(total.mu, total.continuous_delta(delta))
        if math.isfinite(gaussian):
            candidate = float_up(continuous + Fraction(gaussian))
            if math.isfinite(candidate) and total.by_sum(Fraction(candidate), delta):
                best = candidate
    best = min(best, zcdp_epsilon(total.rho, delta))
    # Without pure events the third accountant is the first one, less precisely.
    if total.pure and math.isfinite(best) and total.by_loss(Fraction(best), delta):
        low, high = 0.0, float_up(Fraction(best))
        while high - low > 1e-10 * high:
            middle = (low + high) / 2
            if total.by_loss(Fraction(middle), delta):
                high = middle
            else:
                low = middle
        best = min(best, high)
    if not total.gaussians and best > total.pure_sum * Fraction(99, 100):
        return total.pure_sum
    return best


def within(events: Sequence[Event], epsilon: Fraction, delta: Fraction) -> bool:
    """Tell whether some accountant proves that all events together are (epsilon, delta)-DP.

    Sums of pure events are compared with epsilon exactly.
    """
    total = _Total.of(events)
    if not isinstance(epsilon, Fraction) or epsilon < 0:
        raise RequestError(
            f"epsilon = {epsilon!r} must be a Fraction of at least 0; convert with as_fraction"
        )
    _check_delta(delta)
    return (
        total.by_sum(epsilon, delta)
        or (delta > 0 and zcdp_epsilon(total.rho, delta) <= epsilon)
        or total.by_loss(epsilon, delta)
    )


def satisfies(events: Sequence[Event], claim: Claim) -> bool:
    """Tell whether all events together are as private as the claim says.

    The rho of Gaussian events is the sum of 1/(2 noise_multiplier^2), discrete noise included
    (Canonne, Kamath and Steinke 2020, Theorem 14); it is compared exactly. A rho-zCDP claim about
    anything else is not supported.
    """
    if claim.rho is None:
        assert claim.epsilon is not None
        return within(events, claim.epsilon, claim.delta)
    spent = Fraction(0)
    for event in leaves_of(events):
        if not isinstance(event, GaussianEvent):
            return False
        spent += 1 / (2 * Fraction(event.noise_multiplier) ** 2)
    return spent <= claim.rho


def _check_delta(delta: Fraction) -> None:
    if not isinstance(delta, Fraction) or not 0 <= delta < 1:
        raise RequestError(
            f"delta = {delta!r} must be a Fraction from 0 to below 1; convert with as_fraction"
        )


def leaves_of(events: Iterable[Event]) -> Iterator[PureEvent | GaussianEvent]:
    """The events that are not composed of others."""
    for event in events:
        if isinstance(event, ComposedEvent):
            yield from leaves_of(event.events)
        elif isinstance(event, PureEvent | GaussianEvent):
            yield event
        else:
            raise RequestError(f"events: {event!r} is not a privacy event")


@dataclass(frozen=True)
class _Total:
    """A composition, sorted for the accountants. Order doesn't matter to any of them."""

    pure: Counter[Fraction]
    gaussians: Counter[GaussianEvent]

    @classmethod
    def of(cls, events: Sequence[Event]) -> _Total:
        leaves = list(leaves_of(events))
        return cls(
            Counter(e.epsilon for e in leaves if isinstance(e, PureEvent)),
            Counter(e for e in leaves if isinstance(e, GaussianEvent)),
        )

    @cached_property
    def pure_sum(self) -> Fraction:
        return sum((epsilon * n for epsilon, n in self.pure.items()), Fraction(0))

    @cached_property
    def slack(self) -> Fraction:
        return sum((Fraction(e.slack) * n for e, n in self.gaussians.items()), Fraction(0))

    @cached_property
    def mu_squared(self) -> Any:
        """Sum of 1/noise_multiplier^2: Gaussians compose into one (Dong et al., Cor. 3.3)."""
        mp = precise()
        terms = (n / mp.mpf(e.noise_multiplier) ** 2 for e, n in self.gaussians.items())
        return mp.fsum(terms) * (1 + to_precise(MARGIN))

    @cached_property
    def mu(self) -> Any:
        return precise().sqrt(self.mu_squared) * (1 + to_precise(MARGIN))

    @cached_property
    def rho(self) -> Any:
        """Concentrated differential privacy (zCDP) of all events together.

        epsilon-DP implies (epsilon^2/2)-zCDP (Bun and Steinke 2016, Proposition 1.4). Discrete
        Gaussian noise has the same rho as continuous noise, v^2/(2 s^2) for a coordinate that
        moves by v (Canonne et al. 2020, Theorem 4); coordinates are independent, so their Rényi
        divergences add up to at most 1/(2 noise_multiplier^2). Slack plays no part.
        """
        squares = precise().fsum(n * to_precise(e) ** 2 for e, n in self.pure.items())
        return (squares + self.mu_squared) / 2 * (1 + to_precise(MARGIN))

    def continuous_delta(self, delta: Fraction) -> Fraction:
        """Delta that continuous noise must attain for discrete noise to attain `delta`.

        `discreteness_slack` asks for exp(slack) (delta' + n exp(epsilon - t^2/2)) <= delta. With
        exp(slack) <= 1/(1 - slack), delta' = delta (1 - slack) (1 - 1e-12) leaves 1e-12 of
        delta (1 - slack) to the tails, which `_tails_fit` checks. A composition whose slack has
        grown to 1/2 or more is beyond this accounting.
        """
        if self.slack == 0:
            return delta
        if self.slack >= Fraction(1, 2):
            return Fraction(0)
        return delta * (1 - self.slack) * (1 - Fraction(1, 10**12))

    def _tails_fit(self, epsilon: Fraction, delta: Fraction) -> bool:
        """Check n exp(epsilon - t^2/2) <= 1e-12 delta/2, in logarithms with room to spare.

        The room is for events that stand for up to 10^5 rounds each (`core.rounds.plan`).
        """
        if self.slack == 0:
            return True
        n = sum(self.gaussians.values())
        budget = to_precise(delta) / (2 * n)
        return bool(to_precise(epsilon) + 40 <= TAIL**2 / 2 + precise().log(budget))

    def by_sum(self, epsilon: Fraction, delta: Fraction) -> bool:
        """Accountant 1: (sum of pure epsilons, 0) composed with the exact Gaussian."""
        if not self.gaussians:
            return self.pure_sum <= epsilon
        rest = epsilon - self.pure_sum - self.slack
        if delta == 0 or rest < 0 or not self._tails_fit(epsilon, delta):
            return False
        allowed = to_precise(self.continuous_delta(delta) * (1 - MARGIN))
        return bool(gaussian_delta(self.mu, rest) <= allowed)

    @cached_property
    def _losses(self) -> tuple[Any, Any, float] | None:
        return _randomized_response_losses(self.pure)

    def by_loss(self, epsilon: Fraction, delta: Fraction) -> bool:
        """Accountant 3: the hockey-stick divergence of a dominating pair of distributions.

        Randomized response dominates every epsilon-DP mechanism (Kairouz et al. 2015) and
        dominating pairs compose (Zhu et al. 2022, Theorem 10). For a product of two pairs, with
        loss L of the first under its first distribution and delta_2 of the second,

            delta(epsilon) = E[delta_2(epsilon - L)],

        since [p1 p2 - e^epsilon q1 q2]_+ = p1 [p2 - e^(epsilon - L) q2]_+. The first pair is all
        randomized responses, whose L takes few values; the second is one Gaussian, in closed
        form. Nothing is discretised unless the values of L are too many, all terms are positive,
        and so delta is accurate *relative* to its size, where a Fourier transform would bury a
        small one in its rounding noise. Both pairs are symmetric, one order of them suffices.
        """
        rest = epsilon - self.slack
        if delta == 0 or rest < 0 or not self._tails_fit(epsilon, delta):
            return False
        losses = self._losses
        if losses is None or self.mu > 100 or rest > 5000:
            return False
        loss, mass, error = losses
        allowed = float_down(self.continuous_delta(delta))
        bound = _expected_delta(loss, mass, float_down(rest) - error, float(self.mu))
        # 1e-290 stands for all that may have underflowed. NaN fails every comparison.
        return bool(bound * (1 + 1e-10) + 1e-290 <= allowed)


# Beyond these the third accountant abstains, or moves losses to a grid.
_MOST_PURE_EVENTS = 10_000
_MOST_LOSSES = 2**14


def _randomized_response_losses(pure: Counter[Fraction]) -> tuple[Any, Any, float] | None:
    """Return the privacy losses of composed randomized responses, their masses and an error.

    Each response has loss +-epsilon with masses 1/(1 + exp(-+epsilon)); equal ones make a
    binomial. Masses are products and sums of positive floats, so their relative error stays
    below 1e-11 here, and losses are off by less than the third value returned.

    If the combinations are too many, losses move to a grid: a loss l between grid points a < b
    with mass w is split into w_a + w_b = w with w_a e^-a + w_b e^-b = w e^-l. Merging the two
    outcomes gives back the original pair of distributions, so the split pair dominates it. The
    error is of second order in the grid step.

    None if there are too many events to do this quickly.
    """
    import numpy as np
    from scipy.special import expit

    total = float_up(sum((e * n for e, n in pure.items()), Fraction(0)))
    if sum(pure.values()) > _MOST_PURE_EVENTS or total > 5000:
        return None
    exact = math.prod(n + 1 for n in pure.values()) <= _MOST_LOSSES
    step = 2 * total / _MOST_LOSSES
    loss: Any = np.zeros(1)
    mass: Any = np.ones(1)
    first = 0  # grid index of mass[0]
    for rational, n in pure.items():
        epsilon = float_up(rational)
        group: Any = np.ones(1)
        response = np.array([expit(-epsilon), expit(epsilon)])
        for bit in bin(n)[2:]:
            group = np.convolve(group, group)
            if bit == "1":
                group = np.convolve(group, response)
        values = (2.0 * np.arange(n + 1) - n) * epsilon
        if exact:
            loss = np.add.outer(loss, values).ravel()
            mass = np.multiply.outer(mass, group).ravel()
            continue
        index = np.floor(values / step)
        share = np.clip(np.expm1(index * step - values) / np.expm1(-step), 0.0, 1.0)
        index = index.astype(np.int64)
        gridded = np.zeros(int(index[-1] - index[0]) + 2)
        np.add.at(gridded, index - index[0], group * (1.0 - share))
        np.add.at(gridded, index - index[0] + 1, group * share)
        mass = np.convolve(mass, gridded)
        first += int(index[0])
    if not exact:
        loss = (first + np.arange(len(mass))) * step
    return loss, mass, 1e-12 * (1 + total)


def _expected_delta(loss: Any, mass: Any, epsilon: float, mu: float) -> float:
    """Return an upper bound of E[delta(epsilon - L)] for the Gaussian of `mu`, 0 for none.

    Of the Gaussian's Phi(-u) - exp(e) Phi(-v) the first term is taken 1e-11 too large and the
    second 1e-11 too small, more than scipy's relative error where either matters.
    """
    import numpy as np
    from scipy.special import log_ndtr

    e = epsilon - loss
    if mu == 0:
        return float(mass @ np.maximum(0.0, -np.expm1(np.minimum(e, 0.0))))
    first = np.exp(log_ndtr(mu / 2 - e / mu))
    second = np.exp(e + log_ndtr(-mu / 2 - e / mu))
    return float(mass @ np.maximum(0.0, first * (1 + 1e-11) - second * (1 - 1e-11)))
