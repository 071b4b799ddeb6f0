"""A formula the whole way: from the command line to a report, and through every other door."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.cli.main import main
from noisewise.core.document import digest_of
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Category, Number, Schema
from noisewise.federation.policy import NotAllowedError, PolicyError, read_policy
from noisewise.federation.protocol import Proposal, ProposalError
from noisewise.holder.engines import open_source

from ..ledgers import ledger_for
from ..releases import release_of

SCHEMA_TEXT = """\
dataset: people
columns:
  coinsurance: {type: number, lower: 0, upper: 1}
  health: {type: category, levels: [good, fair, poor], reference: good}
  income: {type: number, lower: 0, upper: 100000}
  age: {type: number, lower: 18, upper: 90}
  visits: {type: number, lower: 0, upper: 50}
neighbours: replace_one
max_rows_per_unit: 1
missing: error
"""
SCHEMA = Schema(
    "people",
    {
        "coinsurance": Number(0, 1),
        "health": Category(("good", "fair", "poor"), "good"),
        "income": Number(0, 100_000),
        "age": Number(18, 90),
        "visits": Number(0, 50),
    },
)
FORMULA = "visits ~ coinsurance*health + log1p(income) + bs(age, knots=(30, 50))"
NAMES = (
    "intercept",
    "coinsurance",
    "health[fair]",
    "health[poor]",
    "log1p(income)",
    *(f"bs(age, knots=(30, 50))[{k}]" for k in range(1, 6)),
    "coinsurance:health[fair]",
    "coinsurance:health[poor]",
)
THETA = np.array([12.0, -4.0, 2.0, 5.0, 1.0, 1.0, -3.0, 2.0, 4.0, 6.0, 0.0, 6.0])


def rows(n=20_000, seed=4):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "coinsurance": rng.random(n),
            "health": rng.choice(["good", "fair", "poor"], n, p=[0.5, 0.3, 0.2]),
            "income": np.exp(rng.uniform(0, 11.5, n)),
            "age": rng.uniform(18, 90, n),
        }
    )
    design = nw.make_request(SCHEMA, formula=FORMULA, epsilon=1).design
    from noisewise.analyst.regression.observation import ModelColumns

    x = ModelColumns(design.schema, design.features, design.target).design_matrix(frame)
    frame["visits"] = np.clip(x @ THETA + rng.normal(0, 2, n), 0, 50)
    return frame, x


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yaml").write_text(SCHEMA_TEXT, encoding="utf-8")
    frame, _ = rows()
    frame.to_parquet("people.parquet")
    frame.to_csv("people.csv", index=False)
    ledger_for(tmp_path / "budget.db", epsilon=10_000)
    return tmp_path


@pytest.fixture
def noisewise(monkeypatch, capsys):
    def run(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["noisewise", *map(str, words)])
        found = 0
        try:
            main()
        except SystemExit as stop:
            found = stop.code or 0
        said = capsys.readouterr()
        assert found == code, said.out + said.err
        return said.out + said.err

    return run


PLACE = ("--schema", "schema.yaml", "--formula", FORMULA)
PAID = ("--ledger", "budget.db", "--epsilon", "100")


@pytest.mark.slow
def test_the_whole_way(folder, noisewise):
    data = ("--data", "people.parquet")
    said = noisewise("release", *data, *PLACE, *PAID, "--out", "r.json", "--dry-run")
    for line in (
        "  log1p(income): 0 to 11.5129",
        "  bs(age, knots=(30, 50))[5]: 0 to 1",
        "  coinsurance:health[poor]: 0 to 1",
    ):
        assert line in said
    noisewise("release", *data, *PLACE, *PAID, "--out", "r.json", "--save-request", "ask.yaml")
    release = nw.load_release("r.json")
    assert release.design.names == (*NAMES, "visits")
    assert Release.from_text(release.to_text()) == release
    # The request file is the same request, so it costs nothing and gives the same Release.
    again = ("--request", "ask.yaml", "--ledger", "budget.db", "--out", "again.json")
    noisewise("release", "--data", "people.csv", *again)
    assert nw.load_release("again.json") == release

    noisewise("fit", "r.json", "--seed", "1", "--draws", "500", "--out", "post.nc")
    shown = noisewise("show", "post.nc")
    for name in NAMES:
        assert name in shown
    posterior = nw.load_posterior("post.nc")
    found = posterior.summary().rows
    for name, true in zip(NAMES, THETA, strict=True):
        assert abs(found[name].median - true) < 6 * found[name].spread, name
    noisewise("report", "post.nc", "--out", "report.html")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "log1p(income)" in page
    assert "--formula" in page
    rows(3)[0].drop(columns="visits").to_csv("new.csv", index=False)
    noisewise("predict", "post.nc", "new.csv", "--out", "predicted.csv")
    predicted = pd.read_csv("predicted.csv")["estimate"]
    np.testing.assert_allclose(predicted, rows(3)[1] @ THETA, atol=1.5)

    # Any regression among what was released.
    some = "visits ~ age + log1p(income)"
    assert "no column or term 'age'" in noisewise("fit", "r.json", "--formula", some, code=2)
    noisewise("fit", "r.json", "--formula", "visits ~ log1p(income)+coinsurance", "--seed", "1")
    assert nw.load_posterior("post.nc").columns.names == (
        "intercept",
        "log1p(income)",
        "coinsurance",
    )


def engines(name):
    """A table in every engine."""
    return [
        (pd.read_parquet(f"{name}.parquet"), "memory"),
        (f"{name}.parquet", "stream"),
        (f"{name}.csv", "stream"),
        (f"{name}.parquet", "duckdb"),
        (f"{name}.csv", "duckdb"),
    ]


def test_every_engine_publishes_the_same_integers(folder):
    request = nw.make_request(SCHEMA, formula=FORMULA, epsilon=1)
    found = [
        open_source(data, engine=engine).sums(request.plan()) for data, engine in engines("people")
    ]
    assert all(one == found[0] for one in found)


def test_the_whole_way_with_ids(folder):
    """Terms are computed for each row and then averaged for each person, in every engine."""
    frame, x = rows(seed=5)
    rng = np.random.default_rng(6)
    # A person's row is there 1 to 5 times, in no order. Visits differ between them, and their
    # mean is the person's.
    times = rng.integers(1, 6, len(frame))
    years = frame.loc[frame.index.repeat(times)]
    years["person"] = years.index
    years["visits"] = years["visits"].clip(5, 45) + rng.uniform(-5, 5, len(years))
    years = years.sample(frac=1, random_state=7)
    years.to_parquet("years.parquet", index=False)
    years.to_csv("years.csv", index=False)
    schema = replace(SCHEMA, unit_column="person")
    releases = []
    for number, (data, engine) in enumerate(engines("years")):
        request = nw.make_request(schema, formula=FORMULA, epsilon=100, label=f"{number}")
        sums = open_source(data, engine=engine).sums(request.plan())
        assert sums.n == len(frame)
        releases.append((sums, nw.publish(request, data, ledger="budget.db", engine=engine)))
    assert all(sums == releases[0][0] for sums, _ in releases)
    means = years.groupby("person")["visits"].mean()
    truth, *_ = np.linalg.lstsq(x, means.sort_index(), rcond=None)
    posterior = nw.fit(releases[0][1].release, seed=1, draws=500)
    found = posterior.summary().rows
    for name, true in zip(NAMES, truth, strict=True):
        assert abs(found[name].median - true) < 6 * found[name].spread, name


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("visits ~ scale(age)", "looks at the data"),
        ("visits ~ log(income)", "log1p"),
        ("visits ~ bs(age, df=4)", "knots"),
        ("visits ~ nobody", "not declared"),
        ("visits ~ I(age*0)", "constant"),
        ("visits ~ age:health", "add age"),
        ("visits ~ 0 + age", "intercept"),
    ],
)
def test_what_is_wrong_costs_nothing(folder, noisewise, formula, says):
    words = ("--data", "people.parquet", "--schema", "schema.yaml", "--formula", formula)
    assert says in noisewise("release", *words, *PAID, "--out", "r.json", code=2)
    spent = json.loads(noisewise("ledger", "show", "--ledger", "budget.db", "--json"))
    assert "visits" not in json.dumps(spent)


def test_terms_that_are_never_fitted_together_are_named_before_they_are_paid_for(folder, noisewise):
    formula = "visits ~ I(age**2) + bs(age, knots=(30, 50))"
    words = ("--data", "people.parquet", "--schema", "schema.yaml", "--formula", formula, *PAID)
    note = "Note: bs(age, knots=(30, 50)) contains I(age**2)"
    assert note in noisewise("release", *words, "--out", "r.json", "--dry-run")
    assert note in noisewise("release", *words, "--out", "r.json")
    assert note not in noisewise("release", "--data", "people.parquet", *PLACE, *PAID, "--dry-run")
    # Each alone is a regression of the same Release.
    release = nw.load_release("r.json")
    assert nw.fit(release, "visits ~ I(age**2)", draws=50, chains=2, seed=1).columns.names == (
        "intercept",
        "I(age**2)",
    )


def test_formula_and_features_are_not_mixed():
    with pytest.raises(RequestError, match="leave those out"):
        nw.make_request(SCHEMA, formula=FORMULA, target="visits", epsilon=1)
    with pytest.raises(RequestError, match=r"target: not given.*or a formula"):
        nw.make_request(SCHEMA, features=["age"], epsilon=1)
    release = release_of(nw.make_request(SCHEMA, formula=FORMULA, epsilon=1))
    with pytest.raises(RequestError, match="leave those out"):
        nw.fit(release, FORMULA, target="visits")


def test_a_plan_and_an_audit_take_a_formula(folder, noisewise):
    said = noisewise("plan", *PLACE, "--rows", "5000", "--epsilon", "1", "--mechanism", "laplace")
    assert "bs(age, knots=(30, 50))[3]" in said
    out = ("--epsilon", "1", "--runs", "300", "--json")
    found = json.loads(
        noisewise(
            "audit",
            "--schema",
            "schema.yaml",
            "--formula",
            "visits ~ age*health + sqrt(income)",
            *out,
        )
    )
    assert "PASS" in json.dumps(found).upper()


def test_kinds_that_take_columns_only_say_so():
    words = {"target": "visits", "features": ["log1p(income)"], "epsilon": 1}
    with pytest.raises(RequestError, match="block summary takes columns only"):
        nw.make_summary_request(SCHEMA, questions=["age > 0"], rows=1000, **words)


# --- untrusted Releases ---------------------------------------------------------------------------


def forged(change):
    document = copy.deepcopy(
        release_of(nw.make_request(SCHEMA, formula=FORMULA, epsilon=1)).document
    )
    change(document)
    document["digest"] = digest_of(document)
    return json.dumps(document)


BAD_FEATURES = [
    "__import__('os').system('true')", "exec('1')", "I(age.real)", "I((lambda: 1)())", "log1p(age",
    "I(age**2**9**9**9)", "bs(age, knots=(30, 50), degree=10**9)", "I(" * 200, "(" * 390, "`" * 7,
    "age:" * 50 + "age", "scale(age)", "log1p( income)", "log(income)", "I(nobody**2)",
    "log1p(health)", "cut(age, breaks=(1e999,))", "cut(age, breaks=(40, 30))", "x" * 5000,
    "I(age**2)\n",
]  # fmt: skip


@pytest.mark.parametrize("feature", BAD_FEATURES)
def test_a_forged_term_is_refused_with_one_kind_of_error(feature):
    def change(document):
        document["features"][3] = feature

    with pytest.raises(ReleaseError):
        Release.from_text(forged(change))


def test_a_forged_sensitivity_or_name_is_refused():
    def smaller(document):
        document["measurements"][0]["sensitivity"] -= 1

    def renamed(document):
        document["design_columns"][4] = "log(income)"

    def swapped(document):
        document["features"][3] = "log1p(age)"

    for change in (smaller, renamed, swapped):
        with pytest.raises(ReleaseError):
            Release.from_text(forged(change))


# --- predictions ----------------------------------------------------------------------------------


def test_predictions_compute_the_terms_and_refuse_what_has_none():
    from noisewise.analyst.regression.observation import ModelColumns

    design = nw.make_request(SCHEMA, formula=FORMULA, epsilon=1).design
    columns = ModelColumns(design.schema, design.features, design.target)
    new = {"coinsurance": [0.5], "health": ["poor"], "income": [99.0], "age": [90.0]}
    expected = [1, 0.5, 0, 1, np.log1p(99), 0, 0, 0, 0, 1, 0, 0.5]
    np.testing.assert_allclose(columns.design_matrix(new)[0], expected, atol=1e-12)
    np.testing.assert_allclose(
        columns.design_matrix({**new, "age": [120.0]}), columns.design_matrix(new)
    )
    with pytest.raises(RequestError, match=r"log1p\(income\) is not a number"):
        columns.design_matrix({**new, "income": [-5.0]})
    with pytest.raises(RequestError, match="no column 'age'"):
        columns.design_matrix({k: v for k, v in new.items() if k != "age"})


@pytest.mark.parametrize(
    ("right", "told_apart"),
    [
        ("age + ns(age, knots=(50,))", False),
        ("I(age**2) + bs(age, knots=(50,))", False),
        ("I(age - 50) + bs(age, knots=(50,), degree=1)", False),
        ("bs(age, knots=(50,)) + ns(age, knots=(40,))", False),
        ("I(age**2) + bs(age, knots=(50,), degree=1)", True),
        ("log(age) + bs(age, knots=(50,))", True),
        ("I(income**2) + bs(age, knots=(50,))", True),
        ("I(age**2) + ns(age, knots=(50,))", True),
    ],
)
def test_a_spline_and_what_it_contains_are_not_fitted_together(right, told_apart):
    from noisewise.analyst.regression.observation import choose_columns

    release = release_of(nw.make_request(SCHEMA, formula=f"visits ~ {right}", epsilon=1))
    if told_apart:
        assert choose_columns([release])
        return
    with pytest.raises(RequestError, match="cannot be told apart"):
        choose_columns([release])


def test_another_target_leaves_out_what_is_made_of_it():
    from noisewise.analyst.regression.observation import choose_columns

    release = release_of(
        nw.make_request(SCHEMA, formula="visits ~ age + I(age**2) + income", epsilon=1)
    )
    columns, _ = choose_columns([release], target="age")
    assert columns.features == ("income", "visits")


# --- federation -----------------------------------------------------------------------------------


def test_a_federation_takes_formulas(folder):
    (folder / "policy.yaml").write_text(
        "data: people.parquet\nschema: schema.yaml\nledger: budget.db\nrules:\n"
        f"  - {{formula: '{FORMULA}', epsilon: 1}}\n",
        encoding="utf-8",
    )
    policy = read_policy(folder / "policy.yaml")
    asked = Proposal(SCHEMA, "visits", ("log1p(income)", "coinsurance:health", "coinsurance"))
    assert Proposal.from_text(asked.to_text()).names == asked.names
    assert policy.request_for(asked) is policy.requests[0]
    with pytest.raises(NotAllowedError):
        policy.request_for(Proposal(SCHEMA, "visits", ("I(age**2)",)))
    # A column that is called like a term is not that term.
    trick = Schema("p", {**SCHEMA.columns, "log1p(income)": Number(0, 1)})
    with pytest.raises(NotAllowedError):
        policy.request_for(Proposal(trick, "visits", ("log1p(income)",)))
    with pytest.raises(ProposalError):
        Proposal.from_text(asked.to_text().replace("log1p(income)", "exec(income)"))
    text = (folder / "policy.yaml").read_text().replace("log1p(income)", "scale(income)")
    (folder / "bad.yaml").write_text(text)
    with pytest.raises(PolicyError, match="looks at the data"):
        read_policy(folder / "bad.yaml")
