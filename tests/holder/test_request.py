"""Requests: defaults, refusals before anything is charged, and identity."""

from __future__ import annotations

from fractions import Fraction

import pytest

from noisewise.core.composition import within
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.errors import NoisewiseError, RequestError
from noisewise.core.privacy import ComposedEvent, PureEvent

from ..releases import EXAMPLES, example_request


def test_defaults():
    assert example_request().mechanism == "laplace"
    assert example_request(delta=1e-6).mechanism == "gaussian"
    assert example_request(rho=0.1).mechanism == "gaussian"
    assert example_request(delta=1e-6).layout == "upper"
    assert example_request(delta=1e-6, radius=1).layout == "isometric"
    assert example_request(mechanism="gaussian").claim.delta == Fraction("1e-6")


def test_delta_zero_means_laplace():
    assert example_request(delta=0).mechanism == "laplace"
    assert example_request(epsilon=".5").claim.epsilon == Fraction(1, 2)


def test_laplace_noise_never_spends_a_delta():
    request = example_request(delta=1e-6, mechanism="laplace")
    assert request.claim.is_pure
    assert request.event == PureEvent(Fraction(1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": None}, ["epsilon", "not given"]),
        ({"epsilon": 0}, ["epsilon", "from 1e-09"]),
        ({"epsilon": "a lot"}, ["epsilon", "a lot"]),
        ({"epsilon": 1, "delta": "half"}, ["delta", "half"]),
        ({"epsilon": 1, "delta": 0, "mechanism": "gaussian"}, ["delta", "1e-6"]),
        ({"mechanism": "uniform"}, ["mechanism", "laplace or gaussian"]),
        ({"rho": 1, "mechanism": "laplace"}, ["rho", "gaussian"]),
        ({"rho": 1, "delta": 1e-6}, ["delta", "leave one"]),
        ({"delta": 0.5}, ["delta", "no protection"]),
        ({"radius": 1}, ["radius", "gaussian"]),
        ({"radius": -1, "delta": 1e-6}, ["radius", "-1"]),
        ({"layout": "isometric"}, ["layout", "gaussian"]),
        ({"layout": "round"}, ["layout", "round"]),
        ({"fourth_moments": 1}, ["fourth_moments", "0.01"]),
        ({"features": "age"}, ["features", "list"]),
        ({"features": ["wage"]}, ["'wage'", "age, region, income"]),
        ({"label": "a\nb"}, ["label"]),
        ({"epsilon": "1e-9"}, ["epsilon", "more epsilon"]),
    ],
)
def test_refusals_say_what_to_do(changes, words):
    with pytest.raises(RequestError) as caught:
        _ = example_request(**changes).mechanisms
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_cost_is_within_the_claim_and_not_wasteful(example):
    request = example_request(**EXAMPLES[example])
    charge = request.charge()
    assert within([charge.event], charge.epsilon, charge.delta)
    assert not within([charge.event], charge.epsilon * Fraction(99, 100), charge.delta)


def test_shares_of_the_budget_add_up():
    request = example_request(fourth_moments="0.25")
    assert request.event == ComposedEvent(
        (PureEvent(Fraction("0.75")), PureEvent(Fraction("0.25")))
    )
    second, fourth = request.mechanisms
    whole = example_request().mechanisms[0]
    assert second.scale == pytest.approx(whole.scale / 0.75, rel=1e-9)
    assert fourth.sensitivity / fourth.scale == pytest.approx(0.25, rel=1e-9)


def test_noise_scales_by_hand():
    # Two numbers and one category that changes its level, one row at (1, 1), the other at (a, a):
    # 3(1 - a²) products, 2(1 - a) sums, 2(1 + |a|) products with indicators, 4 for the indicators
    # and their squares: 11 - 3a² - 4a for a < 0, largest at a = -2/3.
    laplace = example_request().mechanisms[0]
    assert laplace.sensitivity / STATISTIC_ONE == pytest.approx(11 + 4 / 3, rel=1e-9)
    gaussian = example_request(delta=1e-6).mechanisms[0]
    assert gaussian.scale / gaussian.sensitivity == pytest.approx(4.2247, abs=1e-4)
    household = example_request(rows=4).mechanisms[0]
    assert household.sensitivity == 4 * laplace.sensitivity


def test_identity():
    keys = [example_request(**changes).key for changes in EXAMPLES.values()]
    assert len(set(keys)) == len(keys)
    assert example_request(epsilon="1.0").key == example_request(epsilon=1).key
    assert example_request(features=["region", "age"]).key != example_request().key
    # Columns that are not used make no difference.
    assert example_request(features=["age"]).key != example_request().key


def test_all_deliberate_errors_have_an_exit_code():
    codes = {
        error.__name__: error.exit_code
        for error in NoisewiseError.__subclasses__()
        if error.__module__ == NoisewiseError.__module__  # others are kinds of these
    }
    assert len(set(codes.values())) == len(codes)
    assert 0 not in codes.values()
