import itertools
import json
import logging
from fractions import Fraction

import duckdb
import pytest

import noisewise.federation.policy as module
from noisewise.analyst.fit import fit
from noisewise.analyst.regression.fit import check_release
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release
from noisewise.federation.policy import answer, read_policy
from noisewise.holder.ledger import Ledger
from tests.federation.hospital import (
    COLUMNS,
    FEATURES,
    ROWS,
    account,
    assert_only_a_release_or_a_refusal,
    charges,
    csv_text,
    make_hospital,
    proposal,
)

ASKED = proposal().to_text()
REFUSED = {"version": 1, "status": "refused", "code": "refused"}

# What must never be said: it is in somebody's row, or it is how the data went wrong.
SECRET = "7777"
BAD_DATA = {
    "a missing value": csv_text([*ROWS, ("", 1, "no", 3)]),
    "an undeclared level": csv_text([*ROWS, (20, 1, SECRET, 3)]),
    "text in a number": csv_text([*ROWS, (f"x{SECRET}", 1, "no", 3)]),
    "a missing column": csv_text(header="age,severity,emergency,days"),
    "no header": csv_text(header=f"{SECRET},1,no,3"),
    "no rows": csv_text([]),
    "an empty file": "",
    "a broken line": csv_text() + f'"{SECRET},\n',
    "no CSV at all": "\x00\x01" + SECRET,
}


def test_an_allowed_proposal_gets_a_release(tmp_path):
    fields = answer(ASKED, make_hospital(tmp_path))
    assert_only_a_release_or_a_refusal(fields)
    release = Release.from_text(fields["release"])
    assert release.n == len(ROWS)
    assert charges(tmp_path) == ["published"]
    assert account(tmp_path).spent_epsilon == 1


def test_a_rule_may_name_rounds(tmp_path):
    rule = '- {target: stay, features: [age, severity, emergency], epsilon: 1, delta: "1e-6", '
    rule += "rounds: 3}"
    releases = []
    for name in ("north", "south"):
        path = make_hospital(tmp_path / name, name=name, rules=rule)
        with Ledger(tmp_path / name / "budget.db") as ledger:
            ledger.set_cap(name, 1, "1e-6")
        fields = answer(ASKED, path)
        assert_only_a_release_or_a_refusal(fields)
        releases.append(Release.from_text(fields["release"]))
        assert answer(ASKED, path) == fields
        assert charges(tmp_path / name) == ["published"]
    assert all(release.rounds is not None for release in releases)
    for release in releases:
        check_release(release, target="stay", features=FEATURES, method="auto")
        with pytest.raises(RequestError, match="made in rounds"):
            check_release(release, target="stay", features=FEATURES, method="gibbs_update")
    posterior = fit(releases, chains=1, draws=50, seed=1)
    assert posterior.info.method == "exact_own_laws"


def test_asking_again_returns_the_same_release_at_no_cost(tmp_path):
    policy = make_hospital(tmp_path)
    asked = [ASKED, proposal(features=["emergency", "age"]).to_text(), ASKED]
    answers = [answer(one, policy) for one in asked]
    assert answers[0]["status"] == "release"
    assert answers[0] == answers[1] == answers[2]
    assert account(tmp_path).spent_epsilon == 1
    assert charges(tmp_path) == ["published"]


def test_a_node_that_was_killed_after_its_charge_pays_only_once(tmp_path):
    """What a killed process leaves is a pending charge; the next proposal completes it."""
    path = make_hospital(tmp_path)
    policy = read_policy(path)
    with Ledger(policy.ledger) as ledger:
        ledger.reserve(policy.charge(policy.requests[0]))
    assert charges(tmp_path) == ["pending"]
    assert answer(ASKED, path)["status"] == "release"
    assert charges(tmp_path) == ["published"]
    assert account(tmp_path).spent_epsilon == 1


def test_whatever_is_asked_a_holder_spends_at_most_its_rules(tmp_path):
    rules = """
- {target: stay, features: [age], epsilon: 0.25}
- {target: stay, features: [age, severity, emergency], epsilon: 0.5}
"""
    path = make_hospital(tmp_path, rules=rules, cap=100)
    names = list(COLUMNS)
    for target in ("age", "severity", "stay"):
        others = [name for name in names if name != target]
        for size in (1, 2, 3):
            for features in itertools.permutations(others, size):
                for cap in (None, 1, 10):
                    answer(proposal(target, features, max_epsilon=cap).to_text(), path)
    assert account(tmp_path).spent_epsilon == Fraction(3, 4)
    assert charges(tmp_path) == ["published", "published"]


@pytest.mark.parametrize("kind", BAD_DATA)
def test_every_fault_of_the_data_gets_the_same_answer_and_keeps_its_charge(tmp_path, kind):
    fields = answer(ASKED, make_hospital(tmp_path, data=BAD_DATA[kind]))
    assert fields == REFUSED
    free = kind in (
        "a missing column",
        "no header",
        "no rows",  # their number is public, and counted first
        "an empty file",
        "no CSV at all",
    )  # no row read
    assert account(tmp_path).spent_epsilon == (0 if free else 1)


def test_a_repaired_node_answers_under_its_pending_charge(tmp_path):
    policy = make_hospital(tmp_path, data=BAD_DATA["a missing value"])
    for _ in range(2):
        assert answer(ASKED, policy) == REFUSED
    make_hospital(tmp_path / "good")
    (tmp_path / "patients.csv").write_bytes((tmp_path / "good" / "patients.csv").read_bytes())
    assert answer(ASKED, policy)["status"] == "release"
    assert account(tmp_path).spent_epsilon == 1


def test_faults_around_the_data_get_that_answer_too(tmp_path):
    spent = make_hospital(tmp_path / "spent", cap="0.5")
    no_ledger = make_hospital(tmp_path / "no-ledger", cap=None)
    broken_ledger = make_hospital(tmp_path / "broken")
    (tmp_path / "broken" / "budget.db").write_bytes(b"not a ledger")
    no_data = make_hospital(tmp_path / "no-data")
    (tmp_path / "no-data" / "patients.csv").unlink()
    bad_policy = tmp_path / "bad.yaml"
    bad_policy.write_text("rules: 7")
    for policy in (spent, no_ledger, broken_ledger, no_data):
        assert answer(ASKED, policy) == REFUSED
    for policy in (bad_policy, tmp_path / "nowhere.yaml", None, 7):
        assert answer(ASKED, policy, sleep=lambda _: None) == REFUSED
    assert not (tmp_path / "no-ledger" / "budget.db").exists()


def test_an_unexpected_error_says_nothing_even_in_the_log(tmp_path, monkeypatch, caplog):
    def fail(*_args, **_kwargs):
        raise ValueError(f"cannot parse {SECRET!r}")

    monkeypatch.setattr(module, "publish", fail)
    with caplog.at_level(logging.DEBUG):
        assert answer(ASKED, make_hospital(tmp_path)) == REFUSED
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("kind", BAD_DATA)
def test_the_log_has_the_reason_and_no_value(tmp_path, caplog, kind):
    with caplog.at_level(logging.DEBUG):
        answer(ASKED, make_hospital(tmp_path, data=BAD_DATA[kind]))
    assert "Error" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("rubbish", "bad_proposal"),
        (None, "bad_proposal"),
        (proposal(max_epsilon=0.1).to_text(), "not_allowed"),
    ],
)
def test_refusals_before_the_data_have_their_own_word_whatever_the_data(tmp_path, asked, code):
    """The same word with good and with bad data: it depends on neither."""
    for name, data in {"good": None, "bad": BAD_DATA["no CSV at all"]}.items():
        fields = answer(asked, make_hospital(tmp_path / name, data=data), sleep=lambda _: None)
        assert fields == {"version": 1, "status": "refused", "code": code}
        assert charges(tmp_path / name) == []


def test_answers_leave_at_fixed_times(tmp_path):
    times = iter([100.0, 107.25])
    slept = []
    answer(ASKED, make_hospital(tmp_path, every=5), clock=lambda: next(times), sleep=slept.append)
    assert slept == [2.75]


def test_a_holder_says_its_name_if_it_has_one(tmp_path):
    policy = make_hospital(tmp_path)
    assert "name" not in answer(proposal().to_text(), policy)
    policy.write_text("name: Hospital north\n" + policy.read_text())
    assert answer(proposal().to_text(), policy)["name"] == "Hospital north"
    assert answer("nonsense", policy)["name"] == "Hospital north"
    policy.write_text(policy.read_text().replace("Hospital north", "n" * 61))
    assert answer(proposal().to_text(), policy)["status"] == "refused"


def test_only_the_holder_answers_for_a_query(tmp_path):
    """In the policy; a proposal that does is none."""
    policy = make_hospital(tmp_path)
    with duckdb.connect(str(tmp_path / "patients.duckdb")) as connection:
        connection.execute(
            f"CREATE TABLE visits AS FROM read_csv('{tmp_path / 'patients.csv'}', header=true, "
            "columns={'age': 'DOUBLE', 'severity': 'DOUBLE', 'emergency': 'VARCHAR', "
            "'stay': 'DOUBLE'})"
        )
    text = policy.read_text("utf-8").replace("data: patients.csv", "data: patients.duckdb")
    text += "query: SELECT DISTINCT * FROM visits\n"
    policy.write_text(text, "utf-8")
    by_stranger = json.dumps({**json.loads(ASKED), "query_attested_by": "Eve"})
    assert answer(ASKED, policy) == REFUSED
    assert answer(by_stranger, policy) == {**REFUSED, "code": "bad_proposal"}
    assert charges(tmp_path) == []
    policy.write_text(f"{text}query_attested_by: Dr. Lee\n", "utf-8")
    assert answer(ASKED, policy)["status"] == "release"
    assert [one.attested_by for one in account(tmp_path).charges] == ["Dr. Lee"]
