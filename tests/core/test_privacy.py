"""Events and composition. Exact worst cases decide what an accountant may claim."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core import calibration, composition
from noisewise.core.composition import epsilon_of, within
from noisewise.core.errors import RequestError
from noisewise.core.privacy import (
    Claim,
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
    as_fraction,
    event_from_json,
    event_to_json,
)

MILLIONTH = Fraction(1, 10**6)


def pure(*epsilons: str) -> list[PureEvent]:
    return [PureEvent(Fraction(e)) for e in epsilons]


# Numbers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        (" 0.10 ", Fraction(1, 10)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Decimal("1E-6"), Fraction(1, 10**6)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int64(3), Fraction(3)),
        (1e-300, Fraction(1, 10**300)),
        ("1e-300", Fraction(1, 10**300)),
        ("1E+3", Fraction(1000)),
        ("1/3", Fraction(1, 3)),
        (Fraction(1, 3), Fraction(1, 3)),
        (0, Fraction(0)),
        (-0.0, Fraction(0)),
        (5e-324, Fraction("5e-324")),
        ("2.", Fraction(2)),
    ],
)
def test_as_fraction_means_the_decimal(value, expected: Fraction) -> None:
    result = as_fraction(value, "epsilon")
    assert type(result) is Fraction
    assert result == expected


def test_a_float_would_not_have_meant_the_decimal() -> None:
    assert Fraction(0.1) != Fraction(1, 10)
    assert 0.1 + 0.1 + 0.1 > 0.3


@pytest.mark.parametrize(
    "value",
    [
        *(math.nan, math.inf, -math.inf, -0.1, -1, Fraction(-1, 2), Decimal("-0.1")),
        *(Decimal("NaN"), Decimal("Infinity"), Decimal("1E+999999999"), Decimal("1E-999999999")),
        *("", " ", "nan", "inf", "-1", "+1", "1_000", "0x10", "1/0", "1/-2", "1//2", "ten", "1,5"),
        *("1e999999999", "1e-999999999", "1e" + "9" * 5000, "9" * 5000, "1/" + "9" * 5000),
        *("1e401", "1e-401", "١", "1 / 3", "1e5/3"),
        *(True, False, None, [], {}, 1j, b"1", np.float32(0.1), np.bool_(True), object()),
        *(10**5000, Fraction(1, 10**5000), -(10**5000)),
    ],
    ids=lambda value: type(value).__name__,  # some have no printable form
)
def test_as_fraction_refuses_garbage_quickly(value) -> None:
    start = time.process_time()
    with pytest.raises(RequestError, match="rho_of_the_day") as caught:
        as_fraction(value, "rho_of_the_day")
    assert time.process_time() - start < 0.5
    assert len(str(caught.value)) < 400
    assert "give zero or a positive" in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.floats(0, 1e300))
def test_as_fraction_of_a_float_returns_to_that_float(value: float) -> None:
    assert float(as_fraction(value, "x")) == value


# Events


@pytest.mark.parametrize(
    "build",
    [
        lambda: PureEvent(Fraction(0)),
        lambda: PureEvent(Fraction(-1)),
        lambda: PureEvent(0.1),
        lambda: PureEvent(1),
        lambda: PureEvent(Fraction(1, 10**5000)),
        lambda: PureEvent(Fraction(-(10**5000))),
        lambda: GaussianEvent(0.0),
        lambda: GaussianEvent(-1.0),
        lambda: GaussianEvent(math.nan),
        lambda: GaussianEvent(math.inf),
        lambda: GaussianEvent(1),
        lambda: GaussianEvent(1.0, -1e-9),
        lambda: GaussianEvent(1.0, math.nan),
        lambda: GaussianEvent(1.0, 1.0),
        lambda: ComposedEvent(()),
        lambda: ComposedEvent([PureEvent(Fraction(1))]),
        lambda: ComposedEvent((1,)),
        lambda: event_to_json("pure"),
        lambda: within(["pure"], Fraction(1), MILLIONTH),
        lambda: within([None], Fraction(1), MILLIONTH),
        lambda: within([], 0.5, MILLIONTH),
        lambda: within([], Fraction(-1), MILLIONTH),
        lambda: within([], Fraction(1), Fraction(1)),
        lambda: within([], Fraction(1), Fraction(-1, 2)),
        lambda: within([], Fraction(1), 1e-6),
        lambda: epsilon_of([], Fraction(1)),
        lambda: epsilon_of([], 1e-6),
        lambda: epsilon_of([0], MILLIONTH),
    ],
)
def test_malformed_events_and_questions_are_errors(build) -> None:
    with pytest.raises(RequestError):
        build()


leaf_events = st.one_of(
    st.builds(PureEvent, st.fractions(min_value=Fraction(1, 10**40), max_value=10**6)),
    st.builds(
        GaussianEvent,
        st.floats(0, 1e300, exclude_min=True),
        st.floats(0, 1, exclude_max=True),
    ),
)
any_event = st.recursive(
    leaf_events,
    lambda inner: st.builds(ComposedEvent, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(any_event)
def test_json_round_trip_is_exact(event: Event) -> None:
    text = json.dumps(event_to_json(event), allow_nan=False)
    assert event_from_json(json.loads(text)) == event


def test_json_form() -> None:
    event = ComposedEvent((PureEvent(Fraction(1, 10)), GaussianEvent(4.0, 1e-12)))
    assert event_to_json(event) == {
        "type": "composed",
        "events": [
            {"type": "pure", "epsilon": "1/10"},
            {"type": "gaussian", "noise_multiplier": 4.0, "slack": 1e-12},
        ],
    }
    # Another JSON writer may drop the ".0", or write the fraction as a decimal.
    assert event_from_json({"type": "gaussian", "noise_multiplier": 4, "slack": 0}) == (
        GaussianEvent(4.0)
    )
    assert event_from_json({"type": "pure", "epsilon": "0.1"}) == PureEvent(Fraction(1, 10))


def _nested(depth: int) -> dict[str, object]:
    obj: dict[str, object] = {"type": "pure", "epsilon": "1"}
    for _ in range(depth):
        obj = {"type": "composed", "events": [obj]}
    return obj


@pytest.mark.parametrize(
    "obj",
    [
        *(
            None,
            0,
            "pure",
            [],
            {},
            {"type": "pure"},
            {"type": None},
            {"type": []},
            {"type": "PURE"},
        ),
        {"type": "laplace", "epsilon": "1"},
        {"type": "nothing"},
        {"type": "pure", "epsilon": 1},
        {"type": "pure", "epsilon": 0.1},
        {"type": "pure", "epsilon": "0"},
        {"type": "pure", "epsilon": "-1"},
        {"type": "pure", "epsilon": "1e999999999"},
        {"type": "pure", "epsilon": "1", "note": "x"},
        {"epsilon": "1"},
        {"type": "gaussian", "noise_multiplier": 4.0},
        {"type": "gaussian", "noise_multiplier": "4.0", "slack": 0.0},
        {"type": "gaussian", "noise_multiplier": True, "slack": 0.0},
        {"type": "gaussian", "noise_multiplier": math.inf, "slack": 0.0},
        {"type": "gaussian", "noise_multiplier": math.nan, "slack": 0.0},
        {"type": "gaussian", "noise_multiplier": 0, "slack": 0.0},
        {"type": "gaussian", "noise_multiplier": 10**400, "slack": 0.0},
        {"type": "gaussian", "noise_multiplier": 4.0, "slack": -1.0},
        {"type": "gaussian", "noise_multiplier": 4.0, "slack": None},
        {"type": "composed", "events": []},
        {"type": "composed", "events": {}},
        {"type": "composed", "events": "pure"},
        {"type": "composed", "events": [None]},
        _nested(9),
        _nested(100_000),
    ],
)
def test_json_of_anything_else_is_an_error(obj) -> None:
    with pytest.raises(RequestError):
        event_from_json(obj)


def test_json_nesting_has_room() -> None:
    assert event_to_json(event_from_json(_nested(8))) == _nested(8)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "epsilon", "events", "noise_multiplier", "slack", "x"]),
            inner | st.sampled_from(["pure", "gaussian", "composed", "1/2"]),
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=300)
@given(json_values)
def test_fuzzed_json_is_an_event_or_a_request_error(obj: object) -> None:
    try:
        event = event_from_json(obj)
    except RequestError:
        return
    assert epsilon_of([event], Fraction(0)) > 0


# Exact sums


def test_pure_epsilons_add_exactly() -> None:
    three = pure("0.1", "0.1", "0.1")
    assert within(three, Fraction(3, 10), Fraction(0))
    assert epsilon_of(three, Fraction(0)) == Fraction(3, 10)
    # One part in 1e30 too much, far below any float, no longer fits.
    assert not within([*three, *pure("1e-30")], Fraction(3, 10), Fraction(0))
    assert not within(three, Fraction(3, 10) - Fraction(1, 10**30), Fraction(0))


def test_nothing_costs_nothing() -> None:
    assert within([], Fraction(0), Fraction(0))
    assert epsilon_of([], Fraction(0)) == epsilon_of([], MILLIONTH) == 0
    assert not within(pure("1e-30"), Fraction(0), Fraction(0))


def test_composed_events_count_like_their_parts() -> None:
    parts = [*pure("0.1", "0.2"), GaussianEvent(3.0, 1e-9), GaussianEvent(5.0)]
    nested = [ComposedEvent((parts[0], ComposedEvent((parts[3], parts[1])))), parts[2]]
    assert epsilon_of(nested, MILLIONTH) == epsilon_of(parts, MILLIONTH)
    assert epsilon_of(parts[:3], MILLIONTH) < epsilon_of(parts, MILLIONTH)


def test_gaussian_noise_is_never_pure() -> None:
    quiet = [GaussianEvent(1e12)]
    assert epsilon_of(quiet, Fraction(0)) == math.inf
    assert not within(quiet, Fraction(10**6), Fraction(0))
    assert within(quiet, Fraction(1), Fraction(1, 10**300))


# The exact worst case: what no sound accountant may undercut


def worst_case_delta(
    epsilons: list[Fraction], noise_multipliers: list[float], epsilon: Fraction
) -> mpmath.mpf:
    """Sum over all outcomes of randomized response, with quadrature for the Gaussian part."""
    with mpmath.workdps(40):
        e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        atoms: dict[tuple[int, ...], int] = {}
        values = sorted(set(epsilons))
        counts = [epsilons.count(v) for v in values]
        for ups in itertools.product(*(range(n + 1) for n in counts)):
            atoms[ups] = math.prod(math.comb(n, j) for n, j in zip(counts, ups, strict=True))
        mu = mpmath.sqrt(mpmath.fsum(1 / mpmath.mpf(s) ** 2 for s in noise_multipliers))
        total = mpmath.mpf(0)
        for ups, ways in atoms.items():
            loss, mass = mpmath.mpf(0), mpmath.mpf(ways)
            for v, n, j in zip(values, counts, ups, strict=True):
                x = mpmath.mpf(v.numerator) / v.denominator
                loss += (2 * j - n) * x
                mass *= mpmath.exp(j * x) / (1 + mpmath.exp(x)) ** n
            total += mass * _gaussian_part(mu, e - loss)
        return total


def _gaussian_part(mu: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
    if mu == 0:
        return max(mpmath.mpf(0), -mpmath.expm1(e))

    def integrand(y: mpmath.mpf) -> mpmath.mpf:  # y beyond the point of equal weighted densities
        return mpmath.npdf(e / mu - mu / 2 + y) * -mpmath.expm1(-mu * y)

    return mpmath.quad(integrand, mpmath.linspace(0, 16 + abs(e / mu - mu / 2), 8))


WORST_CASES = [
    (["0.5"] * 20, [], "2.3"),
    (["0.01"] * 400, [], "0.6"),
    (["0.1"] * 50, [], "3.9"),  # a delta of 1e-17, where a Fourier transform sees noise
    (["1"], [], "0.9"),
    (["3"] * 2, [], "4"),
    (["0.1", "0.2", "0.35", "0.4", "0.4", "0.17"], [], "0.9"),
    (["0.5"] * 4 + ["0.3"] * 3, [2.0], "2"),
    (["0.2"], [4.2], "0.7"),
    (["0.2"] * 9, [30.0, 40.0], "0.55"),
    (["0.1"] * 3, [0.3], "9"),
]


@pytest.mark.parametrize(("epsilons", "multipliers", "epsilon"), WORST_CASES)
def test_within_decides_at_the_exact_worst_case(
    epsilons: list[str], multipliers: list[float], epsilon: str
) -> None:
    events = [*pure(*epsilons), *map(GaussianEvent, multipliers)]
    cap = Fraction(epsilon)
    exact = worst_case_delta([Fraction(e) for e in epsilons], multipliers, cap)
    delta = Fraction(str(mpmath.nstr(exact, 25)))
    assert within(events, cap, delta * (1 + MILLIONTH))
    assert not within(events, cap, delta * (1 - MILLIONTH))
    assert epsilon_of(events, delta * (1 + MILLIONTH)) <= cap
    assert epsilon_of(events, delta * (1 - MILLIONTH)) > cap


def test_k_fold_randomized_response_has_the_textbook_delta() -> None:
    """Kairouz, Oh and Viswanath (2015), Theorem 3.3, written with integers only."""
    # exp(epsilon0) = 2: truth has mass 2/3, and delta at loss (k - 2i) log 2 is rational.
    k, i = 7, 1
    numerator = sum(math.comb(k, j) * (2 ** (k - j) - 2 ** (k - 2 * i + j)) for j in range(i))
    delta = Fraction(numerator, 3**k)
    one = Fraction(math.log(2))
    events = [PureEvent(one)] * k
    assert within(events, (k - 2 * i) * one, delta * (1 + MILLIONTH))
    assert not within(events, (k - 2 * i) * one, delta * (1 - MILLIONTH))


@pytest.mark.parametrize("most_losses", [64, 256, 2048])
def test_the_grid_is_pessimistic_and_converges(
    monkeypatch: pytest.MonkeyPatch, most_losses: int
) -> None:
    epsilons = [Fraction(7 + 3 * i, 100) for i in range(11)]
    total = composition._Total.of([PureEvent(e) for e in epsilons] + [GaussianEvent(6.0)])
    loss, mass, _ = composition._randomized_response_losses(total.pure)
    monkeypatch.setattr(composition, "_MOST_LOSSES", most_losses)
    grid_loss, grid_mass, _ = composition._randomized_response_losses(total.pure)
    assert len(loss) == 2**11
    assert len(grid_loss) <= most_losses + 4 * len(epsilons)
    assert math.fsum(grid_mass) == pytest.approx(1, abs=1e-13)
    for mu in (0.0, 1 / 6):
        for epsilon in np.linspace(0, 2.2, 12):
            exact = composition._expected_delta(loss, mass, epsilon, mu)
            grid = composition._expected_delta(grid_loss, grid_mass, epsilon, mu)
            assert grid >= exact * (1 - 1e-11)
            # Second order in the step; rounding the losses up would be off by first order.
            assert grid <= exact + 30 / most_losses**2
    rounded_up = np.ceil(loss / (grid_loss[1] - grid_loss[0])) * (grid_loss[1] - grid_loss[0])
    first_order = composition._expected_delta(rounded_up, mass, 0.5, 0.0)
    assert first_order > composition._expected_delta(grid_loss, grid_mass, 0.5, 0.0)


def test_losses_agree_with_dp_accounting() -> None:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = 1e-3
    response = pld.from_privacy_parameters(
        common.DifferentialPrivacyParameters(0.1, 0), value_discretization_interval=step
    )
    gaussian = pld.from_gaussian_mechanism(5.0, value_discretization_interval=step)
    theirs = response.self_compose(30).compose(gaussian).get_epsilon_for_delta(1e-6)
    ours = epsilon_of([*pure(*["0.1"] * 30), GaussianEvent(5.0)], MILLIONTH)
    assert ours == pytest.approx(theirs, rel=2e-3)
    without = epsilon_of(pure(*["0.1"] * 30), MILLIONTH)
    assert without != pytest.approx(theirs, rel=0.05)


# Accountants against one another


def test_many_small_charges_are_cheaper_together() -> None:
    events = pure(*["0.01"] * 500)
    total = composition._Total.of(events)
    by_zcdp = calibration.zcdp_epsilon(total.rho, MILLIONTH)
    best = epsilon_of(events, MILLIONTH)
    assert best < by_zcdp < total.pure_sum == 5
    assert by_zcdp == pytest.approx(1.0141, abs=1e-3)
    assert best == pytest.approx(0.9375, abs=1e-3)
    # With one large charge it is the other way round, and without delta only the sum counts.
    large = composition._Total.of(pure("3"))
    assert calibration.zcdp_epsilon(large.rho, MILLIONTH) > 3
    assert epsilon_of(events, Fraction(0)) == 5


@pytest.mark.parametrize("count", [2, 9, 100])
def test_gaussians_compose_into_one(count: int) -> None:
    many = epsilon_of([GaussianEvent(20.0)] * count, MILLIONTH)
    one = epsilon_of([GaussianEvent(20.0 / math.sqrt(count))], MILLIONTH)
    assert many == pytest.approx(one, rel=1e-12)
    assert many < 0.9 * count * epsilon_of([GaussianEvent(20.0)], MILLIONTH)
    exact = worst_case_delta([], [20.0] * count, Fraction(many))
    assert exact <= mpmath.mpf("1e-6") * (1 + mpmath.mpf("1e-15"))


def test_hundreds_of_distinct_charges_stay_fast() -> None:
    events = [PureEvent(Fraction(1000 + i, 10**5)) for i in range(400)]
    events += [GaussianEvent(50.0 + i) for i in range(100)]
    start = time.process_time()
    assert not within(events, Fraction(1), MILLIONTH)
    assert time.process_time() - start < 3
    total = composition._Total.of(events)
    ideal = epsilon_of([PureEvent(Fraction(12, 1000))] * 400 + events[400:], MILLIONTH)
    found = epsilon_of(events, MILLIONTH)
    assert found < calibration.zcdp_epsilon(total.rho, MILLIONTH)
    assert found == pytest.approx(ideal, rel=0.02)


def test_too_many_charges_leave_the_third_accountant_silent() -> None:
    total = composition._Total.of(pure("0.0001") * 10_001)
    assert not total.by_loss(Fraction(10**6), MILLIONTH)
    assert within(pure("0.0001") * 10_001, Fraction(1, 10), MILLIONTH)  # zCDP speaks


@pytest.mark.parametrize("answer", [math.nan, math.inf])
def test_a_numerical_failure_is_not_a_pass(monkeypatch: pytest.MonkeyPatch, answer: float) -> None:
    events = pure(*["0.01"] * 500)
    cap, delta = Fraction(96, 100), MILLIONTH
    assert within(events, cap, delta)  # by the third accountant only
    monkeypatch.setattr(composition, "_expected_delta", lambda *_: answer)
    assert not within(events, cap, delta)


def test_what_underflows_is_not_a_pass() -> None:
    """Both delta, about 2^-2000, and the delta asked for are zero as floats."""
    events = pure("0.001") * 2000
    assert not within(events, 2 - Fraction(1, 10**9), Fraction(1, 10**700))
    assert within(events, Fraction(2), Fraction(1, 10**700))


small_events = st.lists(
    st.one_of(
        st.builds(PureEvent, st.fractions(Fraction(1, 1000), 2, max_denominator=1000)),
        st.builds(GaussianEvent, st.floats(0.3, 100), st.sampled_from([0.0, 1e-12, 1e-6])),
    ),
    min_size=1,
    max_size=6,
)
deltas = st.integers(1, 40).map(lambda n: Fraction(1, 2**n))


def test_claims_are_satisfied_exactly_and_no_more() -> None:
    half = GaussianEvent(1.0)  # 1/2-zCDP
    assert composition.satisfies([half, half], Claim(rho=Fraction(1)))
    assert composition.satisfies([ComposedEvent((half, half))], Claim(rho=Fraction(1)))
    assert not composition.satisfies([half, half], Claim(rho=1 - Fraction(1, 10**30)))
    assert composition.satisfies([PureEvent(Fraction(1))], Claim(Fraction(1)))
    assert not composition.satisfies([PureEvent(Fraction(1))], Claim(1 - Fraction(1, 10**30)))
    assert not composition.satisfies([half], Claim(Fraction(1)))  # no delta, no Gaussian noise
    # ε-DP is ε²/2-zCDP, but nobody here plans pure noise for such a claim.
    assert not composition.satisfies([PureEvent(Fraction(1))], Claim(rho=Fraction(1)))


@settings(deadline=None, max_examples=60)
@given(small_events, st.just(PureEvent(Fraction(1, 7))), deltas)
def test_epsilon_is_monotone_and_agrees_with_within(
    events: list[Event], extra: Event, delta: Fraction
) -> None:
    found = epsilon_of(events, delta)
    assert within(events, Fraction(found), delta)
    assert within(events, Fraction(found) + 1, delta)
    # A plain sum is kept while it is less than one per cent from the best.
    loose = 0.01 if all(isinstance(e, PureEvent) for e in events) else 1e-9
    if found > 0:
        assert not within(events, Fraction(found) * (1 - Fraction(loose) - MILLIONTH), delta)
    assert epsilon_of(events, delta / 2) >= found * (1 - loose)
    assert epsilon_of([*events, extra], delta) >= found * (1 - loose)
    assert epsilon_of(events[::-1], delta) == pytest.approx(float(found), rel=1e-9)
    noisier = [
        GaussianEvent(e.noise_multiplier * 1.1, e.slack) if isinstance(e, GaussianEvent) else e
        for e in events
    ]
    assert epsilon_of(noisier, delta) <= found * (1 + 1e-9)


def test_a_plain_sum_is_reported_as_such_while_it_is_nearly_best() -> None:
    assert epsilon_of(pure("1", "1"), Fraction(1, 10**5)) == 2
    many = epsilon_of(pure("0.01") * 500, MILLIONTH)
    assert many < 1


# Discrete Gaussians


def test_slack_is_charged() -> None:
    plain = epsilon_of([GaussianEvent(4.0)], MILLIONTH)
    slack = epsilon_of([GaussianEvent(4.0, 1e-4)], MILLIONTH)
    twice = epsilon_of([GaussianEvent(4.0 * math.sqrt(2), 1e-4)] * 2, MILLIONTH)
    assert slack >= plain + 1e-4
    assert slack <= plain + 2e-4  # the rest is delta's share
    assert twice >= plain + 2e-4
    assert not within([GaussianEvent(4.0, 1e-4)], Fraction(plain), MILLIONTH)


def test_slack_beyond_accounting_leaves_zcdp() -> None:
    events = [GaussianEvent(40.0, 0.3)] * 2
    by_zcdp = calibration.zcdp_epsilon(composition._Total.of(events).rho, MILLIONTH)
    assert epsilon_of(events, MILLIONTH) == by_zcdp
    assert not composition._Total.of(events).by_sum(Fraction(100), MILLIONTH)
    assert composition._Total.of(events[:1]).by_sum(Fraction(100), MILLIONTH)


def test_the_discarded_tail_bounds_epsilon() -> None:
    """exp(epsilon - 8192) must stay below delta: the proof of the slack ends there."""
    total = composition._Total.of([GaussianEvent(1.0, 1e-9)])
    assert total.by_sum(Fraction(8000), MILLIONTH)
    assert not total.by_sum(Fraction(8192), MILLIONTH)
    assert not total.by_loss(Fraction(8192), MILLIONTH)
    assert composition._Total.of([GaussianEvent(1.0)]).by_sum(Fraction(8192), MILLIONTH)


def test_importing_is_light() -> None:
    code = (
        "import sys, noisewise.core.composition; "
        "print(sorted({'numpy', 'scipy', 'mpmath', 'dp_accounting'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
