"""One suite that every kind of request passes: which request it is, and what the ledger is asked.

The key is what makes an equal request cost nothing. If it changed between two versions of the
software, everybody's ledger would charge for the same Release again.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from noisewise.core.errors import RequestError
from noisewise.core.privacy import PureEvent
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.requests.summary import make_summary_request

COLUMNS = {
    "age": Number(18, 90),
    "region": Category(("north", "süd", "east"), "north"),
    "smoker": Category(("no", "yes"), "no"),
    "income": Number(0, 200_000),
}
REGRESSION = {"target": "income", "features": ["age", "region"]}
# The keys are from before the kinds shared any code.
KINDS = {
    "sums": (
        make_request,
        REGRESSION,
        "6925dd03fafeae9d43046065f21d5344b9184e4e369a024d956e4affbcb0ddd6",
        "income ~ age + region, laplace",
    ),
    "summary": (
        make_summary_request,
        {**REGRESSION, "questions": ["age < 0"], "blocks": 40},
        "823eb24977ae783e8ce00aa90f0fc2840ca7ee2db6a778ef68521e577714bdbf",
        "income ~ age + region, sign: age < 0",
    ),
    "network": (
        make_network_request,
        {"network": {"smoker": ["region"]}},
        "06f41e78886bafdd6e601cf01c25d07d105a2af3626f42ecb42092c0fdead436",
        "network of 2 nodes (region, smoker), laplace",
    ),
    "draws": (
        make_regression_sample_request,
        {**REGRESSION, "noise_sd": 50_000},
        "d46814bd02f5e0744bded651647309f0f702d539e0d7bd63444aa78108193a08",
        "income ~ age + region, posterior_sample",
    ),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def make(kind):
    maker, words, _, _ = KINDS[kind]

    def with_words(neighbours="replace_one", **changes):
        return maker(Schema("people", COLUMNS, neighbours), **{**words, "epsilon": 1, **changes})

    return with_words


def test_the_key_is_the_same_as_ever(kind, make):
    assert make().key == make(epsilon="1.0").key == KINDS[kind][2]


def test_whatever_matters_makes_another_request(make):
    changed = [
        *(make(epsilon=2), make(label="Q3"), make("add_remove_one")),
        *(make(batch="a"), make(batch="a", series="s"), make(batch="a", series="t")),
    ]
    assert len({make().key, *(request.key for request in changed)}) == 7


def test_another_table_or_query_is_another_request(make):
    request = make()
    charges = [
        request.charge(),
        request.charge(table="t"),
        request.charge(query="t"),
        request.charge(table="u"),
    ]
    assert charges[0].request_key == request.key
    assert len({charge.request_key for charge in charges}) == 4


def test_the_charge_says_what_and_for_whom(kind, make):
    charge = make(batch="a").charge()
    assert (charge.dataset, charge.unit, charge.batch) == ("people", "replace_one/1", "a")
    assert charge.series is None
    assert make(batch="a", series="s").charge().series == "s"
    assert (charge.epsilon, charge.delta) == (1, 0)
    assert charge.event == make().event == PureEvent(Fraction(1))
    assert charge.summary == KINDS[kind][3]
    assert make(label="Q3").charge().summary == f"{KINDS[kind][3]}, label Q3"


def test_the_number_of_rows_is_said_only_where_it_is_public(make):
    assert make().public_n(1000) == 1000
    assert make("add_remove_one").public_n(1000) is None


def test_the_plan_reads_the_columns_of_the_request(make):
    request, plan = make(), make().plan()
    assert plan.sources == request.sources
    assert plan.schema == request.schema
    assert set(request.schema.columns) == set(request.sources)


@pytest.mark.parametrize("label", ["x" * 201, "two\nlines"])
def test_labels_are_short_and_printable(make, label):
    with pytest.raises(RequestError, match="label: expected printable text"):
        make(label=label)


@pytest.mark.parametrize("epsilon", [0, -1, "much", 101])
def test_senseless_epsilons_are_refused(make, epsilon):
    with pytest.raises(RequestError, match="epsilon"):
        make(epsilon=epsilon)
