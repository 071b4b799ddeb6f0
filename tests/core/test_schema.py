"""Schemas: what is accepted, what is refused and in which words, and exact round trips."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisewise.core.design import Design
from noisewise.core.errors import RequestError, SchemaError
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.core.statistics import FourthMoments, SecondMoments
from noisewise.core.yaml_files import (
    PlainYamlError,
    parse_yaml,
    read_schema,
    schema_text,
    write_schema,
)
from noisewise.holder.requests.regression import make_request

YAML = """
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  region: {type: category, levels: [north, south, east], reference: north}
  income: {type: number, lower: 0, upper: 200000}
neighbours: replace_one
max_rows_per_unit: 1
missing: error
"""


def changed(**changes):
    """The example as a plain structure with some keys replaced."""
    return {**parse_yaml(YAML), **changes}


def with_column(spec):
    return changed(columns={"age": spec, "y": {"type": "number", "lower": 0, "upper": 1}})


def test_the_example_of_the_documentation(tmp_path):
    path = tmp_path / "schema.yaml"
    path.write_text(YAML)
    schema = read_schema(path)
    assert schema.columns["age"] == Number(18.0, 90.0)
    assert schema.columns["region"] == Category(("north", "south", "east"), "north")
    assert (schema.neighbours, schema.max_rows_per_unit, dict(schema.fill)) == (
        "replace_one",
        1,
        {},
    )
    write_schema(schema, path)
    assert read_schema(path) == schema


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, ["mapping"]),
        (changed(colour=1), ["unknown key", "'colour'"]),
        ({"columns": {}}, ["'dataset' is missing"]),
        (changed(dataset=""), ["dataset", "text"]),
        (changed(columns={}), ["at least one column"]),
        (changed(columns={7: {}}), ["quotes round"]),
        (changed(neighbours="both"), ["neighbours", "'both'", "replace_one", "add_remove_one"]),
        (changed(max_rows_per_unit=0), ["max_rows_per_unit", "0"]),
        (changed(max_rows_per_unit=True), ["max_rows_per_unit"]),
        (changed(max_rows_per_unit=1.5), ["max_rows_per_unit", "1.5"]),
        (changed(missing="drop"), ["missing", "'drop'", "fill value"]),
        (changed(missing={"agee": 1}), ["'agee'", "not a declared column"]),
        (changed(missing={"age": 200}), ["'age'", "200", "outside"]),
        (changed(missing={"region": "west"}), ["'region'", "'west'", "levels"]),
        (with_column({"type": "number", "upper": 1}), ["'age'", "lower", "known without looking"]),
        (with_column({"type": "number", "lower": 2, "upper": 1}), ["'age'", "below upper"]),
        (with_column({"type": "number", "lower": 1, "upper": 1}), ["'age'", "below upper"]),
        (with_column({"type": "number", "lower": "a", "upper": 1}), ["'age'", "lower", "'a'"]),
        (with_column({"type": "number", "lower": math.nan, "upper": 1}), ["'age'", "finite"]),
        (with_column({"type": "number", "lower": -math.inf, "upper": 1}), ["'age'", "finite"]),
        (with_column({"type": "number", "lower": 10**400, "upper": 1}), ["'age'", "finite"]),
        (with_column({"type": "number", "lower": 1e16, "upper": 1e16 + 2}), ["too close"]),
        (with_column({"type": "number", "lower": -1e308, "upper": 1.7e308}), ["too far"]),
        (with_column({"type": "number", "lower": 0, "upper": 1e61}), ["too far", "another unit"]),
        (with_column({"type": "number", "lower": 0, "upper": 1e-289}), ["too close", "unit"]),
        (with_column({"type": "number", "lower": 0, "upper": 1, "mean": 2}), ["'age'", "'mean'"]),
        (with_column({"type": "text"}), ["'age'", "'number' or 'category'", "'text'"]),
        (with_column(3), ["'age'", "type: number"]),
        (with_column({"type": "category", "levels": "ab", "reference": "a"}), ["'age'", "list"]),
        (with_column({"type": "category", "levels": ["a"], "reference": "a"}), ["between 2"]),
        (with_column({"type": "category", "levels": ["a", "a"], "reference": "a"}), ["twice"]),
        (with_column({"type": "category", "levels": [1, "1"], "reference": 1}), ["twice"]),
        (with_column({"type": "category", "levels": ["a", "b"]}), ["reference: a"]),
        (with_column({"type": "category", "levels": ["a", "b"], "reference": "c"}), ["'c'"]),
        (with_column({"type": "category", "levels": ["a", None], "reference": "a"}), ["None"]),
    ],
)
def test_errors_name_the_column_what_was_given_and_the_remedy(document, words):
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict(document)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: [1, 2", "line"),
        ("dataset: a\ndataset: b", "twice"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("{" * 2000, "YAML"),
        ("- !!python/object/apply:os.system ['true']", "YAML"),
    ],
)
def test_bad_yaml_is_one_clear_error(text, word):
    with pytest.raises(PlainYamlError, match=word):
        parse_yaml(text)


def test_python_and_yaml_obey_the_same_rules():
    with pytest.raises(SchemaError, match="below upper"):
        Schema("d", {"a": Number(2, 1)})
    with pytest.raises(SchemaError, match="twice"):
        Schema("d", {"a": Category(("x", "x"), "x")})


def test_words_that_yaml_1_1_would_change_stay_as_written():
    document = parse_yaml("levels: [no, yes, on, 2020-01-01, 1e3, 0.5, true, 0100, 02139, 12:30]")
    expected = ["no", "yes", "on", "2020-01-01", 1000.0, 0.5, True, "0100", "02139", "12:30"]
    assert document["levels"] == expected
    assert parse_yaml("[-3, +4, 0, .5, -1.5e-3, 1_000]") == [-3, 4, 0, 0.5, -0.0015, "1_000"]


names = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12
)
numbers = st.builds(
    lambda lower, width: Number(lower, lower + width),
    st.floats(-1e6, 1e6),
    st.floats(0.01, 1e6),
)
categories = st.lists(names, min_size=2, max_size=6, unique=True).map(
    lambda levels: Category(tuple(levels), levels[0])
)


@given(
    dataset=names,
    columns=st.dictionaries(names, numbers | categories, min_size=1, max_size=6),
    neighbours=st.sampled_from(["replace_one", "add_remove_one"]),
    rows=st.integers(1, 1000),
    fill=st.booleans(),
)
def test_round_trip_through_yaml_is_exact(dataset, columns, neighbours, rows, fill):
    values = {k: c.upper if isinstance(c, Number) else c.reference for k, c in columns.items()}
    schema = Schema(dataset, columns, neighbours, rows, values if fill else {})
    assert Schema.from_dict(parse_yaml(schema_text(schema))) == schema


# --- designs and statistics, which follow from a schema --------------------------------------


@pytest.fixture
def schema():
    return Schema.from_dict(parse_yaml(YAML))


def test_a_design_expands_categories_and_puts_the_target_last(schema):
    design = Design(schema, ("region", "age"), "income")
    assert design.names == ("intercept", "region[south]", "region[east]", "age", "income")
    assert (design.number_of_numbers, design.category_sizes) == (2, (2,))
    age = design.columns[2]
    assert (age.centre, age.half_width) == (54.0, 36.0)


@pytest.mark.parametrize(
    ("features", "target", "words"),
    [
        ((), "income", ["features", "none given"]),
        (("agee",), "income", ["'agee'", "age, region, income"]),
        (("age",), "wage", ["target", "'wage'"]),
        (("age", "age"), "income", ["'age'", "twice"]),
        (("income",), "income", ["target too"]),
        (("age",), "region", ["'region'", "numeric target"]),
    ],
)
def test_bad_designs(schema, features, target, words):
    with pytest.raises(RequestError) as caught:
        Design(schema, features, target)
    for word in words:
        assert word in str(caught.value)


def test_reserved_and_colliding_names():
    unit = Number(0, 1)
    with pytest.raises(RequestError, match="reserved"):
        Design(Schema("d", {"sigma2": unit, "y": unit}), ("sigma2",), "y")
    columns = {"a": Category(("x", "y"), "x"), "a[y]": unit, "t": unit}
    with pytest.raises(RequestError, match="twice"):
        Design(Schema("d", columns), ("a", "a[y]"), "t")


def test_public_entries_are_not_released(schema):
    design = Design(schema, ("region", "age"), "income")
    statistic = SecondMoments(design)
    assert statistic.public_values(10) == {(0, 0): 10, (1, 2): 0}
    assert len(statistic.entries) == 15 - 2
    private = Schema("d", schema.columns, "add_remove_one")
    released = SecondMoments(Design(private, ("region", "age"), "income")).entries
    assert released[0] == (0, 0)
    assert (1, 2) not in released


def test_fourth_moments_are_unique_monomials_of_the_features(schema):
    statistic = FourthMoments(Design(schema, ("region", "age"), "income"))
    assert len(statistic.entries) == math.comb(3 + 4, 4) - 1
    assert len(set(statistic.entries)) == len(statistic.entries)
    assert max(max(entry) for entry in statistic.entries) == 3  # never the target


def test_a_number_without_bounds():
    schema = Schema("d", {"x": Unbounded(0.001), "y": Number(0, 1)}, fill={"x": 1e9})
    assert schema.to_dict()["columns"]["x"] == {"type": "number", "unbounded": True, "unit": 0.001}
    assert Schema.from_dict(schema.to_dict()) == schema
    plain = {"type": "number", "unbounded": True}
    read = Schema.from_dict({"dataset": "d", "columns": {"x": plain}})
    assert read.columns["x"] == Unbounded(1.0)
    for wrong in ({"lower": 0}, {"unbounded": False}, {"unit": 0}, {"unit": -1}, {"unit": "big"}):
        with pytest.raises(SchemaError, match="column 'x'"):
            Schema.from_dict({"dataset": "d", "columns": {"x": plain | wrong}})


def test_sums_of_a_number_without_bounds_are_refused():
    schema = Schema("d", {"x": Unbounded(), "y": Number(0, 1)})
    with pytest.raises(RequestError, match=r"'x' has no bounds.*release-summary"):
        make_request(schema, target="y", features=["x"], epsilon=1)
