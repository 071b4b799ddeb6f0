import json
from fractions import Fraction

import pytest

from noisewise.core.errors import NoisewiseError
from noisewise.federation.protocol import (
    MAX_PROPOSAL,
    MAX_RELEASE,
    REFUSAL_WORDS,
    AnswerError,
    Proposal,
    ProposalError,
    Refusal,
    read_fields,
    refusal_fields,
    release_fields,
)
from tests.federation.hospital import COLUMNS, proposal
from tests.releases import EXAMPLES, example_request, release_of


@pytest.mark.parametrize("cap", [None, Fraction(1), Fraction("0.1"), Fraction(1, 3)])
def test_a_proposal_survives_the_journey(cap):
    sent = proposal(max_epsilon=cap)
    got = Proposal.from_text(sent.to_text())
    assert (got.target, got.features, got.columns) == (sent.target, sent.features, sent.columns)
    assert got.max_epsilon == cap


def test_a_proposal_carries_only_the_columns_of_the_model():
    text = proposal(features=["age"]).to_text()
    assert set(json.loads(text)["columns"]) == {"age", "stay"}


def changed(**changes):
    document = {**json.loads(proposal().to_text()), **changes}
    return json.dumps({key: value for key, value in document.items() if value is not ...})


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        b"{}",
        "",
        "no",
        "[]",
        "{}",
        "[" * 100_000,
        "1" * 10_000,
        "x" * (MAX_PROPOSAL + 1),
        changed(version=2),
        changed(format="other"),
        changed(target=...),
        changed(extra=1),
        changed(target="nobody"),
        changed(target="emergency"),
        changed(target=["stay"]),
        changed(features="age"),
        changed(features=["age", "age"]),
        changed(features=[["age"]]),
        changed(columns={}),
        changed(columns={**json.loads(changed())["columns"], "age": {"type": "number"}}),
        changed(max_epsilon=1),
        changed(max_epsilon="-1"),
        changed(max_epsilon="much"),
        changed(max_epsilon="1e999999999"),
        changed().replace("18.0", "NaN"),
        changed().replace("18.0", "1e400"),
    ],
)
def test_whatever_is_no_proposal_is_one_kind_of_error(text):
    with pytest.raises(ProposalError):
        Proposal.from_text(text)


def test_a_proposal_of_undeclared_columns_is_refused_where_it_is_made():
    with pytest.raises(NoisewiseError, match="'weight'"):
        proposal(features=["weight"])


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_release_survives_the_journey(name):
    release = release_of(example_request(**EXAMPLES[name]))
    assert read_fields(release_fields(release)) == release


@pytest.mark.parametrize("refusal", Refusal)
def test_a_refusal_survives_the_journey_and_has_words(refusal):
    assert read_fields(refusal_fields(refusal)) is refusal
    assert REFUSAL_WORDS[refusal]


def test_refusals_are_a_closed_list():
    """A new word needs thought: may it depend on rows? Then it has to be `refused`."""
    assert {r.value for r in Refusal} == {
        "bad_proposal",
        "not_allowed",
        "schema_differs",
        "refused",
    }


GOOD = release_fields(release_of(example_request()))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"version": 1},
        {**GOOD, "version": 2},
        {**GOOD, "version": True},
        {**GOOD, "version": "1"},
        {**GOOD, "status": "fine"},
        {**GOOD, "rows": "63,7,yes,12"},
        {**GOOD, "release": b"{}"},
        {**GOOD, "release": ""},
        {**GOOD, "release": GOOD["release"][:-30]},
        {**GOOD, "release": GOOD["release"].replace('"n": 1000', '"n": 1001')},
        {**GOOD, "release": "x" * (MAX_RELEASE + 1)},
        {**GOOD, "release": [GOOD["release"]]},
        {"version": 1, "status": "refused"},
        {"version": 1, "status": "refused", "code": "there are 3 missing values"},
        {"version": 1, "status": "refused", "code": ["refused"]},
        {"version": 1, "status": "refused", "code": "refused", "detail": "age of row 7"},
        {"version": 1, "status": "refused", "release": GOOD["release"]},
    ],
)
def test_any_other_answer_is_one_kind_of_error(fields):
    with pytest.raises(AnswerError):
        read_fields(fields)


def test_columns_are_the_models():
    assert proposal().columns == COLUMNS
