"""Code books: what is declared fills in a schema; what was observed never does."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.errors import RequestError, SchemaError
from noisewise.core.schema import Category, Number, Words
from noisewise.core.yaml_files import read_schema
from noisewise.holder.schema_files import Entry, read_codebook

ROWS = "age,region,income,limited\n20,north,100,1\n30,south,200,2\n"
CSV = """\
name,min,max,levels,label,unit_of_measure
age,18,90,,Age,years
REGION,,,north|south,"Region, of four",
income,0,1e6,,,euros
limited,,,1|2,A physical limitation,
"""
YAML = """\
age: {min: 18, max: 90, label: Age, unit_of_measure: years}
REGION: {levels: [north, south], label: "Region, of four"}
income: {lower: 0, upper: 1e6, unit_of_measure: euros}
limited: {levels: [1, 2], label: A physical limitation}
"""
DDI = """\
<?xml version="1.0" encoding="UTF-8"?>
<codeBook xmlns="ddi:codebook:2_5"><dataDscr>
<var name="age" measUnit="years"><labl>Age</labl>
 <valrng><range min="18" max="90"/></valrng>
 <sumStat type="min">21</sumStat><sumStat type="max">77</sumStat></var>
<var name="REGION"><labl>Region,
   of four</labl>
 <catgry><catValu>north</catValu><labl>North</labl></catgry>
 <catgry><catValu>south</catValu><labl>South</labl></catgry>
 <catgry missing="Y"><catValu>?</catValu><labl>No answer</labl></catgry></var>
<var name="income" measUnit="euros"><valrng><range min="0" max="1000000"/></valrng></var>
<var name="limited"><labl>A physical limitation</labl><valrng><range min="1" max="2"/></valrng>
 <catgry><catValu>1</catValu><labl>no</labl></catgry>
 <catgry><catValu>2</catValu><labl>yes</labl></catgry></var>
</dataDscr></codeBook>
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(ROWS)
    return tmp_path


@pytest.mark.parametrize(("name", "text"), [("b.csv", CSV), ("b.yaml", YAML), ("b.xml", DDI)])
def test_a_code_book_fills_in_a_schema(folder, name, text):
    Path(name).write_text(text)
    made = CliRunner().invoke(app, ["schema", "new", "people.csv", "--codebook", name])
    assert made.exit_code == 0, made.output
    schema = read_schema("schema.yaml")
    assert schema.columns == {
        "age": Number(18, 90),
        "region": Category(("north", "south"), "north"),
        "income": Number(0, 1e6),
        "limited": Category(("1", "2"), "1"),
    }
    assert schema.words["age"] == Words("Age", "years")
    assert schema.words["region"] == Words("Region, of four")
    assert schema.words["income"] == Words("", "euros")


def test_all_that_is_missing_is_said_at_once(folder):
    assert CliRunner().invoke(app, ["schema", "new", "people.csv"]).exit_code == 0
    with pytest.raises(SchemaError) as error:
        read_schema("schema.yaml")
    said = str(error.value)
    for name in ("age", "region", "income", "limited"):
        assert f"column '{name}'" in said
    assert "the lower and upper bounds are missing" in said
    assert said.count("without looking at the data") == 1  # the remedy once


def variable(inside):
    return f'<codeBook><dataDscr><var name="x">{inside}</var></dataDscr></codeBook>'


def read(tmp_path, text, name="b.xml"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_codebook(path)


def test_observed_values_are_no_bounds(tmp_path):
    seen = '<sumStat type="min">3</sumStat><sumStat type="max">8.50</sumStat>'
    assert read(tmp_path, variable(seen)) == {"x": Entry()}
    copied = '<valrng><range min="3.0" max="8.5"/></valrng>'
    assert read(tmp_path, variable(copied + seen)) == {"x": Entry()}
    half = '<valrng><range min="0" max="8.5"/></valrng>'
    assert read(tmp_path, variable(half + seen)) == {"x": Entry(lower=0.0)}
    declared = '<valrng><range min="0" max="10"/></valrng>'  # the control
    assert read(tmp_path, variable(declared + seen)) == {"x": Entry(0.0, 10.0)}


def test_categories_without_labels_may_have_been_seen_only(tmp_path):
    cells = "".join(f"<catgry><catValu>{v}</catValu>{{}}</catgry>" for v in (1, 2))
    assert read(tmp_path, variable(cells.format("", "")))["x"].levels == ()
    labels = ("<labl>no</labl>", "<labl>yes</labl>")
    assert read(tmp_path, variable(cells.format(*labels)))["x"].levels == ("1", "2")


LAUGHS = b"""<!DOCTYPE codeBook [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>
<codeBook><var name="x"><labl>&b;</labl></var></codeBook>"""
FILE = b"""<!DOCTYPE codeBook [<!ENTITY e SYSTEM "file:///etc/passwd">]>
<codeBook><var name="x"><labl>&e;</labl></var></codeBook>"""
FETCHED = b"""<!DOCTYPE codeBook SYSTEM "http://127.0.0.1:9/never.dtd">
<codeBook><var name="x"><labl>&e;</labl></var></codeBook>"""


@pytest.mark.parametrize("hostile", [LAUGHS, FILE, FETCHED])
def test_entities_are_refused(tmp_path, hostile):
    with pytest.raises(RequestError, match="entities"):
        read(tmp_path, hostile)


def test_a_document_type_by_itself_is_no_harm_and_is_not_fetched(tmp_path):
    plain = FETCHED.replace(b"&e;", b"Age")
    assert read(tmp_path, plain)["x"].label == "Age"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("b.xml", "<a><b></a>", "not well-formed"),
        ("b.xml", "<DDIInstance/>", "XML of another kind"),
        ("b.xml", "<codeBook>" + "<a>" * 200, "nested too deeply"),
        ("b.xml", variable('<valrng><range min="low"/></valrng>'), "no number"),
        ("b.csv", "a,b\n1,2\n", "needs a first line"),
        ("b.csv", "name,min\nage,young\n", "no number"),
        ("b.csv", "name,min\nage,1\nage,2\n", "twice"),
        ("b.yaml", "- 1\n", "no declarations"),
        ("b.yaml", "age: {levels: 7}\n", "no list"),
        ("b.csv", b"name\n\xff\n", "not UTF-8"),
        ("b.sav", "", "ends in none of"),
    ],
)
def test_mistakes_are_named(tmp_path, name, text, said):
    with pytest.raises(RequestError, match=said):
        read(tmp_path, text, name)


def test_hostile_words_stay_words(folder):
    """Whatever stands in a code book, the schema has the file's columns and no others."""
    evil = 'x", lower: 0}\n  other: {type: number'
    Path("b.yaml").write_text(
        "age: {min: 1, max: 2, label: " + repr(evil).replace("\\n", " ") + "}\n"
        "region: {levels: ['a, b', 'c]', 'd: e', 'null', '#f', 'no'], label: '{[}]'}\n"
    )
    made = CliRunner().invoke(app, ["schema", "new", "people.csv", "--codebook", "b.yaml"])
    assert made.exit_code == 0, made.output
    text = Path("schema.yaml").read_text()
    Path("schema.yaml").write_text(text.replace("lower: , upper: ", "lower: 0, upper: 1"))
    schema = read_schema("schema.yaml")
    assert list(schema.columns) == ["age", "region", "income", "limited"]
    assert schema.columns["region"].levels == ("a, b", "c]", "d: e", "null", "#f", "no")
