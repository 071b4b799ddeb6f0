"""The privacy filter: what fits into a cap, and what each event counts as.

That caps hold for adaptive sizes is tested by exact trees in `tests/studies/test_caps.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core.calibration import gaussian_delta, gaussian_noise_multiplier
from noisewise.core.composition import epsilon_of
from noisewise.core.privacy import ComposedEvent, Event, GaussianEvent, PureEvent
from noisewise.core.privacy_filter import (
    PARTS,
    SHARES,
    Borne,
    epsilon_spent,
    fits,
    gaussian_of_pure,
    largest_gaussian,
    largest_pure,
)
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.requests.regression import make_request

ONE, MILLIONTH = Fraction(1), Fraction(1, 10**6)
SCHEMA = Schema("people", {"x": Number(0, 1), "y": Number(0, 1)})


def borne(*events: Event) -> Borne:
    return Borne(len(events), events)


def pure(*epsilons: str) -> Borne:
    return borne(*(PureEvent(Fraction(epsilon)) for epsilon in epsilons))


def gaussian(epsilon: str, slack: float = 0.0) -> GaussianEvent:
    return GaussianEvent(gaussian_noise_multiplier(Fraction(epsilon), MILLIONTH), slack)


def test_the_certificates_share_the_delta() -> None:
    assert sum(SHARES) == 1
    assert len(SHARES) == PARTS
    assert min(SHARES) > 0


def test_a_pure_cap_is_the_exact_sum() -> None:
    three = pure("0.1", "0.1", "0.1")
    for delta in (Fraction(0), MILLIONTH):
        assert fits(three, Fraction(3, 10), delta)
        assert not fits(three, Fraction(3, 10) - Fraction(1, 10**30), delta)
        assert epsilon_spent(three, delta) == Fraction(3, 10)
        assert largest_pure([three], ONE, delta) == Fraction(7, 10)
    assert not fits(borne(GaussianEvent(1e12)), ONE, Fraction(0))
    assert epsilon_spent(borne(GaussianEvent(1e12)), Fraction(0)) == math.inf
    assert fits(borne(), Fraction(0), Fraction(0))
    assert epsilon_spent(borne(), MILLIONTH) == 0


def requests() -> list[Event]:
    """Of the whole cap (1, 1e-6), one request of each kind of noise."""
    words = {"target": "y", "features": ["x"], "epsilon": 1, "delta": "1e-6"}
    labels = {name: Category(("a", "b", "c"), "a") for name in "uvw"}
    learned = make_network_request(
        Schema("people", labels), network="learn", epsilon=1, delta="1e-6"
    )
    return [
        make_request(SCHEMA, target="y", features=["x"], epsilon=1).event,
        make_request(SCHEMA, **words, rounds=1).event,
        make_request(SCHEMA, **words).event,
        make_request(SCHEMA, **words, rounds=1, fourth_moments="0.2").event,
        learned.event,
    ]


@pytest.mark.parametrize("event", requests(), ids=lambda event: type(event).__name__)
def test_one_release_may_have_the_whole_cap_and_nothing_comes_after_it(event: Event) -> None:
    assert fits(borne(event), ONE, MILLIONTH)
    assert epsilon_spent(borne(event), MILLIONTH) <= ONE
    more = borne(event, PureEvent(Fraction(1, 100)))
    assert not fits(more, ONE, MILLIONTH)


def test_two_charges_are_not_one() -> None:
    """What holds for one charge alone, because nothing was seen before it, holds for no two."""
    parts = GaussianEvent(6.1), GaussianEvent(6.1)
    together = Borne(1, (ComposedEvent(parts),))
    assert epsilon_spent(together, MILLIONTH) == pytest.approx(
        float(epsilon_of(parts, MILLIONTH)), rel=1e-9
    )
    assert epsilon_spent(borne(*parts), MILLIONTH) > 1.005 * epsilon_spent(together, MILLIONTH)


def test_gaussians_are_one_gaussian_with_four_fifths_of_delta() -> None:
    events = [GaussianEvent(20.0)] * 9
    spent = Fraction(epsilon_spent(borne(*events), MILLIONTH))
    with mpmath.workdps(50):
        attained = gaussian_delta(mpmath.mpf(9) ** mpmath.mpf("0.5") / 20, spent)
    assert attained == pytest.approx(0.8e-6, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "fitting"), [("0.39", True), ("0.4", True), ("0.41", False), ("0.49", False)]
)
def test_pure_charges_take_whole_tenths_beside_gaussians(epsilon: str, fitting: bool) -> None:
    """By "shared" of k = 4 the Gaussian fits, by k = 5 it doesn't."""
    delta = SHARES[4] * MILLIONTH
    noisy = GaussianEvent(gaussian_noise_multiplier(Fraction("0.6"), delta) * (1 + 1e-9))
    assert fits(borne(noisy, PureEvent(Fraction(epsilon))), ONE, MILLIONTH) == fitting
    assert largest_pure([borne(noisy)], ONE, MILLIONTH) == Fraction("0.4")


@pytest.mark.parametrize("epsilon", ["1e-6", "0.01", "0.5", "1", "3", "12", "700"])
def test_a_pure_event_counts_as_the_gaussian_that_dominates_it(epsilon: str) -> None:
    """No test of randomized response is better than the best one of that Gaussian."""
    mu = gaussian_of_pure(Fraction(epsilon))
    with mpmath.workdps(400):
        e = mpmath.mpf(epsilon)
        middle = 1 / (1 + mpmath.exp(e))  # where both errors are the same

        def second_error(mu: float) -> mpmath.mpf:
            """Of the Gaussian at that first error."""
            high = mpmath.sqrt(2 * (e + 1))
            quantile = mpmath.findroot(
                lambda z: mpmath.log(mpmath.ncdf(-z)) - mpmath.log(middle),
                (mpmath.mpf(mu) / 2, min(high, mpmath.mpf(mu))),
            )
            return mpmath.ncdf(quantile - mu)

        assert second_error(mu) <= middle
        assert second_error(mu * (1 - 1e-9)) > middle  # and no smaller mu would do


small_events = st.lists(
    st.one_of(
        st.builds(PureEvent, st.fractions(Fraction(1, 1000), 2, max_denominator=1000)),
        st.builds(GaussianEvent, st.floats(0.3, 100), st.sampled_from([0.0, 1e-9])),
    ),
    min_size=1,
    max_size=5,
)
deltas = st.integers(1, 40).map(lambda n: Fraction(1, 2**n))


@settings(deadline=None, max_examples=40)
@given(small_events, deltas)
def test_what_is_spent_is_the_least_cap(events: list[Event], delta: Fraction) -> None:
    of_all = borne(*events)
    spent = Fraction(epsilon_spent(of_all, delta))
    if spent:
        assert fits(of_all, spent * (1 + MILLIONTH), delta)
        # One charge is reported by its plain sum where that is within a hundredth of the best.
        assert not fits(of_all, spent * Fraction(98, 100), delta)
    assert fits(of_all, spent + 1, delta)
    # Neither fewer charges, nor noisier ones, nor another order cost more.
    assert fits(borne(*events[1:]), spent * (1 + MILLIONTH), delta)
    assert epsilon_spent(borne(*events[::-1]), delta) == pytest.approx(float(spent), rel=1e-9)
    more = borne(*events, PureEvent(Fraction(1, 7)))
    assert epsilon_spent(more, delta) >= spent * (1 - MILLIONTH)


@settings(deadline=None, max_examples=15)
@given(small_events, st.sampled_from([MILLIONTH, Fraction(1, 1000)]))
def test_what_remains_fits_and_little_more_does_not(events: list[Event], delta: Fraction) -> None:
    cap = Fraction(epsilon_spent(borne(*events), delta)) * 2
    case = borne(*events)
    extra = largest_pure([case], cap, delta)
    if extra:
        assert fits(case.and_also(PureEvent(extra)), cap, delta)
    assert not fits(case.and_also(PureEvent(extra + cap / 10**4)), cap, delta)
    extra = largest_gaussian([case], cap, delta)
    more = GaussianEvent(gaussian_noise_multiplier(extra * Fraction(1001, 1000) + MILLIONTH, delta))
    assert not fits(case.and_also(more), cap, delta)
    if extra > MILLIONTH:
        one = GaussianEvent(gaussian_noise_multiplier(extra * Fraction(999, 1000), delta))
        assert fits(case.and_also(one), cap, delta)


def test_several_cases_leave_what_the_worst_leaves() -> None:
    cases = [pure("0.1"), pure("0.4"), borne(gaussian("0.5"))]
    alone = [largest_pure([case], ONE, MILLIONTH) for case in cases]
    assert largest_pure(cases, ONE, MILLIONTH) == pytest.approx(float(min(alone)), rel=1e-5)
    assert largest_gaussian([borne()], ONE, MILLIONTH) == 1
    assert largest_pure([borne()], ONE, MILLIONTH) == 1
