"""Labels and units: words that reach reports, pictures and tables, and change no identity."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.posterior.plots import plot
from noisewise.analyst.posterior.regression import FitInfo, Posterior
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.analyst.report import render
from noisewise.analyst.report.words import Estimate, findings
from noisewise.core.document import dumps
from noisewise.core.errors import ReleaseError, SchemaError
from noisewise.core.schema import MAX_LABEL, Category, Number, Schema, Words

from .report_pages import Outline, assert_harmless

COLUMNS = {
    "visits": Number(0, 30),
    "age": Number(18, 90),
    "income": Number(0, 200_000),
    "limited": Category(("no", "yes"), "no"),
    "alone": Number(0, 1),
    "health": Category(("good", "poor"), "good"),
}
WORDS = {
    "visits": Words("Visits to a doctor", "visits a year"),
    "age": Words("Age", "years"),
    "income": Words("Income", "euros"),
    "limited": Words("A physical limitation"),
    "alone": Words("Lives alone"),
    "health": Words("Self-rated health"),
}
SCHEMA = Schema("people", COLUMNS, words=WORDS)
FEATURES = tuple(COLUMNS)[1:]


def told(schema, centre, sd=0.1, above=None):
    """The finding of every feature, by its source."""
    columns = ModelColumns(schema, FEATURES, "visits")
    above = float(centre > 0) if above is None else above
    one = Estimate(centre, sd, centre - 2 * sd, centre + 2 * sd, above)
    return {
        c.source: findings([c], schema, "visits", {c.name: one}, 0.95)[0]
        for c in columns.covariates
    }


def test_findings_can_be_printed():
    said = told(SCHEMA, 1.6)
    assert said == {
        "age": "Where age is higher by 1 year, people have about 1.6 more visits a year "
        "(1.4 to 1.8).",
        "income": "Where income is higher by 10,000 euros, people have about 16,000 more visits a "
        "year (14,000 to 18,000).",
        "limited": "People with a physical limitation have about 1.6 more visits a year "
        "(1.4 to 1.8) than people without.",
        "alone": "Where lives alone is 1 rather than 0, people have about 1.6 more visits a year "
        "(1.4 to 1.8).",
        "health": "Where self-rated health is poor rather than good, people have about 1.6 more "
        "visits a year (1.4 to 1.8).",
    }


def test_fewer_and_probably_and_undecided():
    said = told(SCHEMA, -1.6)["limited"]
    assert "have about 1.6 fewer visits a year (1.4 to 1.8) than people without." in said
    likely = told(SCHEMA, 1.6, above=0.95)["limited"]
    assert likely.startswith("People with a physical limitation probably have about 1.6 more")
    undecided = told(SCHEMA, 0.02, above=0.6)
    assert undecided["limited"].startswith(
        "It is undecided whether people with a physical limitation have more or fewer visits a year"
    )
    assert "between −0.2 and 0.2" in undecided["age"]


def test_nobody_has_more_mmhg():
    """Units that can't be counted follow the number."""
    schema = replace(SCHEMA, words=WORDS | {"visits": Words("Blood pressure", "mmHg")})
    said = told(schema, -1.6)
    assert said["age"].endswith("“Blood pressure” is lower by about 1.6 mmHg (1.4 to 1.8).")
    assert said["limited"].startswith("For people with a physical limitation, “Blood pressure” is")
    assert "higher or lower" in told(schema, 0.02, above=0.6)["age"]
    assert told(schema, 0.02, above=0.6)["age"].endswith("between −0.2 and 0.2 mmHg.")


def test_findings_without_words_name_the_columns():
    said = told(replace(SCHEMA, words={}), -1.6)
    assert said["age"] == "Where age is higher by 1, visits is lower by about 1.6 (1.4 to 1.8)."
    assert said["limited"].startswith("Where limited is yes rather than no, visits is lower")


def posterior(schema=SCHEMA, warnings=()):
    columns = ModelColumns(schema, FEATURES, "visits")
    rng = np.random.default_rng(1)
    theta = rng.normal(1.0, 0.1, (4, 200, len(columns.names)))
    info = FitInfo(method="exact", reason="-", noise_aware=True, n=(100,), claims=("epsilon = 1",),
                   digests=("sha256:0",), warnings=warnings)  # fmt: skip
    return Posterior(columns, theta, np.ones((4, 200)), info)


def test_words_reach_page_table_and_picture():
    made = posterior()
    said = Outline(render(made)).said
    for word in ("Visits to a doctor, explained by Age", "Self-rated health: poor", "Age (years)"):
        assert word in said
    assert "age: Age (years)" in made.describe()
    assert "visits: Visits to a doctor (visits a year)" in made.describe()
    labels = [axis.get_ylabel() for axis in plot({"a": made}, None).axes]
    assert "Age (years)" in labels
    effects = plot({"a": made}, None, kind="effect", names=["age"]).axes[0]
    assert effects.get_xlabel() == "Age (years)"
    assert "Visits to a doctor" in effects.get_ylabel()


def test_findings_come_first_unless_they_must_not_be_used():
    finding = "People with a physical limitation have"
    for warning, forbidden in (
        ("the prior decides on age: more people would tell.", False),
        ("the chains disagree on 'age' (R-hat 1.200): don't use these numbers; run more.", True),
        ("a.json contradicts the model that fits all Releases together, at worst 9.", True),
    ):
        said = Outline(render(posterior(warnings=(warning,)))).said
        assert (said.index("Before you use") < said.index(finding)) == forbidden


def test_hostile_words_are_text():
    bad = Words("A <script>alert(1)</script>", "</style><img src=x>")
    schema = replace(SCHEMA, words=dict.fromkeys(COLUMNS, bad))
    page = render(posterior(schema))
    assert_harmless(page)
    assert "<script>alert" not in page
    assert "<img" not in page


# --- words are public and checked, and no part of what a request is ---------------------------


def document(**words):
    column = {"type": "number", "lower": 0, "upper": 1, **words}
    return {"dataset": "d", "columns": {"x": column, "y": {**column}}}


@pytest.mark.parametrize("bad", [7, None, ["a"], "a" * (MAX_LABEL + 1), "two\nlines", "\x1b[2J"])
@pytest.mark.parametrize("key", ["label", "unit_of_measure"])
def test_words_are_short_and_printable(key, bad):
    with pytest.raises(SchemaError, match=f"column 'x': {key} must be printable text"):
        Schema.from_dict(document(**{key: bad}))


def test_words_go_into_a_file_and_back():
    schema = Schema.from_dict(document(label="Height", unit_of_measure="cm"))
    assert schema.words["x"] == Words("Height", "cm")
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema.restricted_to(("x",)).words == {"x": Words("Height", "cm")}
    assert "label" not in Schema.from_dict(document()).to_dict()["columns"]["x"]


def test_words_do_not_change_a_request_and_a_release_has_them(tmp_path):
    """Whoever mends a label gets the stored Release: no second noise, no second charge."""
    rows = {"x": [0.1, 0.5, 0.7], "y": [0.2, 0.4, 0.9]}
    plain = Schema.from_dict(document())
    named = Schema.from_dict(document(label="Height", unit_of_measure="cm"))
    requests = [nw.make_request(s, target="y", features=["x"], epsilon=1) for s in (named, plain)]
    assert requests[0].key == requests[1].key
    ledger = nw.Ledger(tmp_path / "budget.db")
    ledger.set_cap("d", epsilon=1)
    first, second = (nw.publish(r, rows, ledger=ledger) for r in requests)
    assert second.repeated
    assert second.release.digest == first.release.digest
    release = first.release
    assert release.schema.words["x"] == Words("Height", "cm")
    text = json.loads(release.to_text())
    described = files("noisewise.core.kinds").joinpath("release.schema.json").read_text("utf-8")
    jsonschema.validate(text, json.loads(described))
    text.pop("digest")
    for bad in ("a" * (MAX_LABEL + 1), 7):
        text["schema"]["columns"]["x"]["label"] = bad
        with pytest.raises(ReleaseError, match="label"):
            type(release).from_text(dumps(text))
