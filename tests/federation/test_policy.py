import pytest

from noisewise.core.schema import Number
from noisewise.federation.policy import NotAllowedError, PolicyError, read_policy
from noisewise.federation.protocol import Refusal
from tests.federation.hospital import COLUMNS, make_hospital, proposal

TWO_RULES = """
- {target: stay, features: [age], epsilon: 0.5, label: small}
- {target: stay, features: [age, severity, emergency], epsilon: 1}
"""


def test_paths_are_relative_to_the_policy(tmp_path):
    policy = read_policy(make_hospital(tmp_path / "north"))
    assert policy.data == tmp_path / "north" / "patients.csv"
    assert policy.ledger == tmp_path / "north" / "budget.db"


def test_the_first_rule_that_covers_a_proposal_answers_it(tmp_path):
    policy = read_policy(make_hospital(tmp_path, rules=TWO_RULES))
    small, large = policy.requests
    assert policy.request_for(proposal(features=["age"])) == small
    assert policy.request_for(proposal(target="age", features=["stay"])) == small
    assert policy.request_for(proposal(features=["severity"])) == large
    assert policy.request_for(proposal()) == large


def test_a_proposal_picks_a_rule_and_cannot_change_it(tmp_path):
    """Order, subset and cap of a proposal leave the request, and so its identity, as it is."""
    policy = read_policy(make_hospital(tmp_path))
    asked = [
        proposal(),
        proposal(features=["emergency", "age"]),
        proposal(target="age", features=["stay"]),
        proposal(max_epsilon=1),
        proposal(max_epsilon=50),
    ]
    assert {policy.request_for(one).key for one in asked} == {policy.requests[0].key}


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (
            proposal(columns={**COLUMNS, "weight": Number(0, 200)}, features=["weight"]),
            "not_allowed",
        ),
        (proposal(max_epsilon=0.5), "not_allowed"),
        (proposal(columns={**COLUMNS, "age": Number(18, 99)}), "schema_differs"),
    ],
)
def test_refusals(tmp_path, asked, refusal):
    policy = read_policy(make_hospital(tmp_path))
    with pytest.raises(NotAllowedError) as caught:
        policy.request_for(asked)
    assert caught.value.refusal is Refusal(refusal)


def test_a_cap_may_pass_by_an_expensive_rule(tmp_path):
    rules = """
- {target: stay, features: [age, severity, emergency], epsilon: 1}
- {target: stay, features: [age, severity], epsilon: 0.25}
"""
    policy = read_policy(make_hospital(tmp_path, rules=rules, cap=3))
    chosen = policy.request_for(proposal(features=["age"], max_epsilon=0.5))
    assert chosen == policy.requests[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("data: patients.csv\n", ""), "'data' is missing"),
        (("data:", "extra: 1\ndata:"), "unknown key 'extra'"),
        (("rules:", "rules: []\nlabels:"), "unknown key 'labels'"),
        (("epsilon: 1", "epsilon: -1"), "rule 1: epsilon"),
        (("epsilon: 1", "price: 1"), "rule 1: unknown key 'price'"),
        (("target: stay", "target: weight"), "rule 1: the schema does not declare"),
        (("target: stay", "target: emergency"), "rule 1"),
        (("[age, severity, emergency]", "age"), "features must be a list"),
        (("reply_every_seconds: 0", "reply_every_seconds: -1"), "reply_every_seconds"),
        (("reply_every_seconds: 0", "reply_every_seconds: soon"), "reply_every_seconds"),
        (("schema: schema.yaml", "schema: other.yaml"), "no file"),
        (("schema: schema.yaml", "schema: 7"), "schema: expected text"),
        (("data: patients.csv", "data: [1"), "not valid YAML"),
        (("epsilon: 1", "epsilon: 1, batch: a, series: s"), "rule 1: series: .*leave series and"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, change, says):
    path = make_hospital(tmp_path)
    path.write_text(path.read_text("utf-8").replace(*change), "utf-8")
    with pytest.raises(PolicyError, match=says):
        read_policy(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PolicyError, match=r"no file .*policy\.yaml"):
        read_policy(tmp_path / "policy.yaml")


def test_a_rule_may_name_a_request_file(tmp_path):
    (tmp_path / "request.yaml").write_text(
        "release: regression\ntarget: stay\nfeatures: [age]\nepsilon: 2\n"
    )
    rules = "- {request: request.yaml, epsilon: 0.5, label: small}"
    written = "- {target: stay, features: [age], epsilon: 0.5, label: small}"
    by_file = read_policy(make_hospital(tmp_path, rules=rules)).requests
    assert by_file == read_policy(make_hospital(tmp_path, rules=written)).requests
    for text, said in (
        ("release: network\nnaive_bayes: emergency\nepsilon: 1\n", "rule 1: .* regressions"),
        ("release: regression\nseries: a\n", "rule 1: .*series: a regression request has no"),
        ("release: regression\ntarget: stay\n", "rule 1: 'features' is missing"),
    ):
        (tmp_path / "request.yaml").write_text(text)
        with pytest.raises(PolicyError, match=said):
            read_policy(make_hospital(tmp_path, rules=rules))
