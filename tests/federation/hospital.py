"""A small holder in a folder: data, schema, ledger with a cap, and policy."""

from __future__ import annotations

from fractions import Fraction

from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.yaml_files import write_schema
from noisewise.federation.protocol import Proposal, Refusal
from noisewise.holder.ledger import Ledger

COLUMNS = {
    "age": Number(18, 100),
    "severity": Number(0, 10),
    "emergency": Category(("no", "yes"), "no"),
    "stay": Number(0, 40),
}
ROWS = [
    (18 + (7 * i) % 80, (3 * i) % 10, "yes" if i % 3 else "no", (5 * i) % 30) for i in range(200)
]
FEATURES = ["age", "severity", "emergency"]


def proposal(target="stay", features=FEATURES, columns=COLUMNS, **words):
    return Proposal(Schema("study", columns), target, tuple(features), **words)


def csv_text(rows=ROWS, header="age,severity,emergency,stay"):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def make_hospital(folder, *, name="north", data=None, epsilon="1", cap=2, rules=None, every=0):
    """Write all files of a holder and return the path of its policy."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "patients.csv").write_text(csv_text() if data is None else data, encoding="utf-8")
    write_schema(Schema(name, COLUMNS), folder / "schema.yaml")
    if cap is not None:
        with Ledger(folder / "budget.db") as ledger:
            ledger.set_cap(name, Fraction(cap), Fraction(0))
    rule = f"- {{target: stay, features: [age, severity, emergency], epsilon: {epsilon}}}"
    policy = folder / "policy.yaml"
    policy.write_text(
        "data: patients.csv\nschema: schema.yaml\nledger: budget.db\n"
        f"rules:\n{rule if rules is None else rules}\nreply_every_seconds: {every}\n",
        encoding="utf-8",
    )
    return policy


def account(folder):
    with Ledger(folder / "budget.db", create=False) as ledger:
        return ledger.accounts()[0]


def charges(folder):
    """Statuses of a holder's charges."""
    return [charge.status for charge in account(folder).charges]


def assert_only_a_release_or_a_refusal(fields):
    """The whole content of an answer: exact keys, plain types, canonical Release or known word."""
    assert all(type(key) is str and type(value) in (str, int) for key, value in fields.items())
    assert fields["version"] == 1
    if fields["status"] == "release":
        assert set(fields) == {"version", "status", "release"}
        assert Release.from_text(fields["release"]).to_text() == fields["release"]
    else:
        assert set(fields) == {"version", "status", "code"}
        assert fields["status"] == "refused"
        assert fields["code"] in {refusal.value for refusal in Refusal}
