"""What a rehearsal approves, the node answers; what the node would refuse, a rehearsal names."""

import json
import subprocess
import sys
from fractions import Fraction

import pytest

from noisewise.core.errors import BudgetError, DataError, LedgerError
from noisewise.core.schema import Schema
from noisewise.core.yaml_files import write_schema
from noisewise.federation import supernode
from noisewise.federation.policy import answer, read_policy, rehearse
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request
from tests.federation.hospital import (
    COLUMNS,
    ROWS,
    account,
    charges,
    csv_text,
    make_hospital,
    proposal,
)

TWO_RULES = """
- {target: stay, features: [age], epsilon: 1, label: small}
- {target: stay, features: [age, severity, emergency], epsilon: 1}
"""
GAUSSIAN = "- {target: stay, features: [age], epsilon: 1, mechanism: gaussian}"


def ask(policy, features):
    """The node's word to a proposal."""
    fields = answer(proposal(features=features).to_text(), str(policy))
    return fields.get("code", "release")


def many_rows(n):
    header, *lines = csv_text().splitlines()
    return "\n".join([header, *(lines * (n // len(lines)))]) + "\n"


def with_delta(folder, policy):
    with Ledger(folder / "budget.db", create=False) as ledger:
        ledger.set_cap("north", Fraction(2), Fraction("1e-5"))
    return policy


def test_it_tells_prices_and_spends_nothing(tmp_path):
    done = rehearse(make_hospital(tmp_path, rules=TWO_RULES, cap=2))
    assert "Rule 1: stay ~ age at epsilon = 1, within the budget." in done.lines[0]
    assert "Rule 2" in done.lines[1]
    assert "within the budget" in done.lines[1]
    assert "The data fit" in done.lines[2]
    assert "age, emergency, severity, stay" in done.lines[3]
    assert done.within_budget
    assert done.exit_code == 0
    assert charges(tmp_path) == []


def test_rules_are_paid_one_after_the_other(tmp_path):
    """Each by itself would fit under the cap; a server may ask for both."""
    policy = make_hospital(tmp_path, rules=TWO_RULES, cap=1)
    done = rehearse(policy)
    assert done.lines[0].endswith("within the budget.")
    assert "NOT within the budget together with the rules above" in done.lines[1]
    assert not done.within_budget
    assert done.exit_code == 5
    assert [ask(policy, ["age"]), ask(policy, ["severity"])] == ["release", "refused"]


def test_a_rule_that_does_not_fit_is_not_counted_against_the_next(tmp_path):
    rules = TWO_RULES.replace("epsilon: 1, label", "epsilon: 3, label")
    done = rehearse(make_hospital(tmp_path, rules=rules, cap=1))
    assert "NOT within the budget: it would be refused" in done.lines[0]
    assert done.lines[1].endswith("within the budget.")
    assert done.exit_code == 5


def test_what_was_published_costs_nothing_more(tmp_path):
    policy = make_hospital(tmp_path, rules=TWO_RULES, cap=1)
    assert ask(policy, ["age"]) == "release"
    done = rehearse(policy)
    assert "published before" in done.lines[0]
    assert "NOT within the budget" in done.lines[1]
    assert account(tmp_path).spent_epsilon == 1


def test_what_a_rule_meant_before_there_were_rounds_costs_nothing_more(tmp_path):
    rule = {"target": "stay", "features": ["age"], "epsilon": 1, "delta": "1e-6"}
    policy = make_hospital(tmp_path, rules=f"- {json.dumps(rule)}", cap=1)
    with_delta(tmp_path, policy)
    schema = read_policy(policy).schema
    former = make_request(schema, **rule, rounds=1)
    publish(former, tmp_path / "patients.csv", ledger=tmp_path / "budget.db")
    assert "published before" in rehearse(policy).lines[0]
    assert ask(policy, ["age"]) == "release"
    assert len(account(tmp_path).charges) == 1


def test_the_default_delta_is_too_weak_for_many_rows(tmp_path):
    """At 150,000 rows the node refuses, and at 10,000 it does not."""
    policy = make_hospital(tmp_path / "many", data=many_rows(150_000), rules=GAUSSIAN)
    with_delta(tmp_path / "many", policy)
    with pytest.raises(DataError, match="delta"):
        rehearse(policy)
    assert ask(policy, ["age"]) == "refused"
    policy = make_hospital(tmp_path / "fewer", data=many_rows(10_000), rules=GAUSSIAN)
    with_delta(tmp_path / "fewer", policy)
    assert rehearse(policy).within_budget
    assert ask(policy, ["age"]) == "release"


def test_what_was_published_is_not_asked_for_its_rows_again(tmp_path):
    """The node answers with the stored Release and reads no row."""
    policy = make_hospital(tmp_path, data=many_rows(10_000), rules=GAUSSIAN)
    with_delta(tmp_path, policy)
    assert ask(policy, ["age"]) == "release"
    (tmp_path / "patients.csv").write_text(many_rows(150_000), "utf-8")
    assert "published before" in rehearse(policy).lines[0]
    assert ask(policy, ["age"]) == "release"


def test_a_file_with_only_a_header_has_no_rows(tmp_path):
    policy = make_hospital(tmp_path, data=csv_text([]))
    with pytest.raises(DataError, match="no rows"):
        rehearse(policy)
    assert ask(policy, ["age"]) == "refused"


def test_a_missing_value_and_a_missing_ledger_are_named(tmp_path):
    with pytest.raises(LedgerError):
        rehearse(make_hospital(tmp_path / "a", cap=None))
    with pytest.raises(DataError):
        rehearse(make_hospital(tmp_path / "b", data=csv_text([("", 1, "no", 3)])))


def test_a_cap_of_another_data_set_is_none(tmp_path):
    """A node with it would refuse every proposal."""
    policy = make_hospital(tmp_path, cap=None)
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.set_cap("south", 2)
    for check in (rehearse, lambda path: supernode.start(path, ["--insecure"])):
        with pytest.raises(BudgetError, match=r"no cap is set for it.*It holds 'south'"):
            check(policy)
    assert ask(policy, ["age"]) == "refused"


@pytest.mark.parametrize("rows", [ROWS, [], [("", 1, "no", 3)]])
def test_data_from_a_query_are_checked_too(tmp_path, rows):
    duckdb = pytest.importorskip("duckdb", reason="needs DuckDB: pip install 'noisewise[duckdb]'")
    policy = make_hospital(tmp_path, data=csv_text(rows))
    with duckdb.connect(str(tmp_path / "patients.duckdb")) as connection:
        connection.execute(
            f"CREATE TABLE visits AS SELECT * FROM read_csv('{tmp_path / 'patients.csv'}', "
            "header=true, columns={'age': 'DOUBLE', 'severity': 'DOUBLE', 'emergency': 'VARCHAR', "
            "'stay': 'DOUBLE'})"
        )
    text = policy.read_text("utf-8").replace("data: patients.csv", "data: patients.duckdb")
    policy.write_text(text + "query: SELECT * FROM visits\n", "utf-8")
    if rows is ROWS:
        assert rehearse(policy).within_budget
        assert ask(policy, ["age"]) == "release"
    else:
        with pytest.raises(DataError):
            rehearse(policy)
        assert ask(policy, ["age"]) == "refused"


def test_a_private_number_of_rows_is_not_judged(tmp_path):
    """Under add_remove_one nothing may depend on it, and the node answers."""
    policy = make_hospital(tmp_path, data=csv_text([]))
    write_schema(Schema("north", COLUMNS, "add_remove_one"), tmp_path / "schema.yaml")
    assert rehearse(policy).within_budget
    assert ask(policy, ["age"]) == "release"


@pytest.mark.parametrize(("cap", "code"), [(1, 5), (2, 0)])
def test_the_exit_code_says_whether_the_budget_pays(tmp_path, cap, code):
    policy = make_hospital(tmp_path, rules=TWO_RULES, cap=cap)
    command = [sys.executable, "-m", "noisewise", "federation", "rehearse", str(policy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Rule 2" in done.stdout
