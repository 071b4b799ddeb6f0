"""The Release file: exact round trips, and one clear error for everything else."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from importlib import resources

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core.calibration import discreteness_slack
from noisewise.core.composition import within
from noisewise.core.document import digest_of
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds import load_release
from noisewise.core.kinds.regression import Release
from noisewise.core.privacy import Claim, as_fraction, fraction_text
from noisewise.core.schema import Number, Schema

from ..releases import EXAMPLES, example_request, release_of

JSON_SCHEMA = json.loads(
    resources.files("noisewise.core.kinds").joinpath("release.schema.json").read_text("utf-8")
)


def edited(change):
    """The Laplace example's document after `change`, with a fresh digest."""
    document = copy.deepcopy(release_of(example_request()).document)
    change(document)
    document["digest"] = digest_of(document)
    return json.dumps(document)


@pytest.mark.parametrize("example", EXAMPLES)
def test_round_trip_is_exact_and_fits_the_published_schema(example, tmp_path):
    release = release_of(example_request(**EXAMPLES[example]))
    path = tmp_path / "release.json"
    path.write_text(release.to_text(), encoding="utf-8")
    assert load_release(path) == release
    assert load_release(path).to_text() == release.to_text()
    jsonschema.validate(json.loads(release.to_text()), JSON_SCHEMA)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=13, max_size=13))
@settings(max_examples=50)
def test_every_integer_survives(values):
    release = release_of(example_request(), values=values)
    assert Release.from_text(release.to_text()).second_moments.values == tuple(values)


def test_what_a_reader_gets():
    release = release_of(example_request(delta=1e-6, radius=1.25))
    law, off = release.second_moments.noise, release.second_moments.off_diagonal_noise
    assert off.continuous().variance == pytest.approx(law.continuous().variance / 2, rel=1e-9)
    assert release.noisy_n == 1000
    private = release_of(example_request("add_remove_one"), values=[7 << 32, *range(13)])
    assert private.n is None
    assert private.noisy_n == 7


def set_at(path, value):
    def change(document):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (["format"], "other", "not a noisewise-release"),
        (["format_version"], 2, "version 2 is not known"),
        (["n"], 0, "n must be a whole number"),
        (["n"], 2**31, "n must be a whole number"),
        (["n"], None, "n must be given"),
        (["n"], 10.0, "n must be a whole number"),
        (["features"], ["age"], "design_columns"),
        (["features"], [], "none given"),
        (["features"], "age", "list"),
        (["target"], "region", "target too"),
        (["schema", "columns", "age", "lower"], 95, "below upper"),
        (["schema", "neighbours"], "add_remove_one", "n must be given under replace_one"),
        (["geometry"], {"kind": "ball", "radius": -1}, "radius"),
        (["geometry"], {"kind": "cube"}, "radius"),
        (["measurements"], [], "second moments"),
        (["measurements", 0, "values"], [1, 2, 3], "3 values, expected 13"),
        (["measurements", 0, "values", 3], 1.5, "whole number"),
        (["measurements", 0, "values", 3], 2**63, "whole number"),
        (["measurements", 0, "values", 3], True, "whole number"),
        (["measurements", 0, "statistic"], "third_moments", "unknown statistic"),
        (["measurements", 0, "layout"], "isometric", "isometric"),
        (["measurements", 0, "fraction_bits"], 16, "fraction_bits"),
        (["measurements", 0, "noise", "family"], "uniform", "noise family"),
        (["measurements", 0, "noise", "scale"], 1, "one noise scale"),
        (["measurements", 0, "noise", "scale"], -5, "noise scale"),
        (["measurements", 0, "sensitivity"], 2**62, "too small for the privacy event"),
        (["privacy", "claim"], {"epsilon": "0.5", "delta": "0"}, "does not follow"),
        (["privacy", "claim"], {"epsilon": "-1", "delta": "0"}, "epsilon"),
        (["privacy", "claim"], {"epsilon": 1, "delta": 0}, "text"),
        (["privacy", "claim"], {"rho": "1"}, "zCDP"),
        (["privacy", "event"], {"type": "pure", "epsilon": "1/1000000"}, "too small"),
        (["privacy", "event"], {"type": "free"}, "unknown type"),
        (["privacy", "event", "epsilon"], "1e999999999", "epsilon"),
        (["label"], "x" * 1000, "label"),
        (["surprise"], 1, "unknown key"),
    ],
)
def test_a_wrong_field_is_named_even_with_a_fresh_digest(path, value, word):
    with pytest.raises(ReleaseError) as caught:
        Release.from_text(edited(set_at(path, value)))
    assert word in str(caught.value)


def noise_of_one(document):
    """Tiny noise that is calibrated for a tiny sensitivity."""
    for measurement in document["measurements"]:
        ratio = Fraction(measurement["noise"]["scale"], measurement["sensitivity"])
        scale = max(1, round(ratio))
        measurement["sensitivity"] = 1
        measurement["noise"].update(scale=scale, off_diagonal_scale=scale)


def each_measurement(**changes):
    """Change numbers of every measurement by factors; `scale` stands for both of them."""

    def change(document):
        for measurement in document["measurements"]:
            noise = measurement["noise"]
            for key, factor in changes.items():
                where = measurement if key == "sensitivity" else noise
                for name in ("scale", "off_diagonal_scale") if key == "scale" else (key,):
                    where[name] = math.ceil(where[name] * factor)

    return change


FORGERIES = {
    "many rows": set_at(["schema", "max_rows_per_unit"], 1_000_000),
    "two rows more": lambda d: d["schema"].update(
        max_rows_per_unit=d["schema"]["max_rows_per_unit"] + 2
    ),
    "noise of one": noise_of_one,
    "half of both": each_measurement(sensitivity=Fraction(1, 2), scale=Fraction(1, 2)),
    "half of the sensitivity": each_measurement(sensitivity=Fraction(1, 2)),
    "half of the noise": each_measurement(scale=Fraction(1, 2)),
    "a little less noise": each_measurement(scale=1 - Fraction(1, 10**9)),
    "more noise than paid for": each_measurement(scale=2),
}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("example", EXAMPLES)
def test_noise_that_is_not_what_the_schema_needs_is_refused(example, forgery):
    document = copy.deepcopy(release_of(example_request(**EXAMPLES[example])).document)
    FORGERIES[forgery](document)
    document["digest"] = digest_of(document)
    with pytest.raises(ReleaseError):
        Release.from_text(json.dumps(document))


@pytest.mark.parametrize(
    ("example", "path", "value", "word"),
    [
        ("isometric", ["geometry"], {"kind": "ball", "radius": 2.0}, "unit's influence"),
        ("isometric", ["geometry"], {"kind": "box"}, "unit's influence"),
        ("eigenvalue_ball", ["geometry"], {"kind": "ball", "radius": 0.76}, "unit's influence"),
        ("gaussian", ["privacy", "event", "slack"], 0.0, "too small"),
        ("gaussian", ["privacy", "event", "slack"], 1e-9, "not the one"),
        ("household", ["schema", "max_rows_per_unit"], 5, "unit's influence"),
    ],
)
def test_what_the_sensitivity_depends_on_cannot_be_changed_alone(example, path, value, word):
    document = copy.deepcopy(release_of(example_request(**EXAMPLES[example])).document)
    set_at(path, value)(document)
    document["digest"] = digest_of(document)
    with pytest.raises(ReleaseError, match=word):
        Release.from_text(json.dumps(document))


def test_off_diagonal_noise_is_not_below_what_the_scale_pays_for():
    document = copy.deepcopy(release_of(example_request(**EXAMPLES["isometric"])).document)
    noise = document["measurements"][0]["noise"]
    noise["off_diagonal_scale"] -= 1 + noise["scale"] // 10**9
    document["digest"] = digest_of(document)
    with pytest.raises(ReleaseError, match="off_diagonal_scale"):
        Release.from_text(json.dumps(document))


def test_a_wasteful_sensitivity_is_still_read():
    """An older, less tight formula would state more than ours; privacy loses nothing."""
    for example, factor in (("laplace", 2), ("gaussian", 2)):
        document = copy.deepcopy(release_of(example_request(**EXAMPLES[example])).document)
        each_measurement(sensitivity=factor, scale=factor)(document)
        if example == "gaussian":
            scale = document["measurements"][0]["noise"]["scale"]
            document["privacy"]["event"]["slack"] = discreteness_slack(13, scale)
        document["digest"] = digest_of(document)
        Release.from_text(json.dumps(document))


def test_fourth_moments_of_very_many_features_cost_a_reader_nothing():
    columns = {f"x{i}": Number(0, 1) for i in range(399)} | {"y": Number(0, 1)}
    schema = Schema("people", columns)
    document = copy.deepcopy(release_of(example_request(fourth_moments=0.25)).document)
    document["schema"] = schema.to_dict()
    document["features"] = [f"x{i}" for i in range(399)]
    document["target"] = "y"
    document["design_columns"] = ["intercept", *columns]
    document["measurements"][0]["values"] = [0] * (401 * 402 // 2 - 1)
    document["digest"] = digest_of(document)
    with pytest.raises(ReleaseError, match="more than 20,000"):
        Release.from_text(json.dumps(document))


@pytest.mark.parametrize("key", list(release_of(example_request()).document))
def test_a_missing_field_is_an_error(key):
    with pytest.raises(ReleaseError):
        Release.from_text(edited(lambda document: document.pop(key)))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "12", '"x"', "[" * 100_000, '{"a":1,"a":2}', "\x00"),
        '{"format": NaN}',
        '{"format": Infinity}',
        '{"n": ' + "9" * 10_000 + "}",
        '{"format": "noisewise-release", "format_version": 1' + ',"x":[' * 3 + "}",
    ],
)
def test_what_is_not_a_release_at_all(text):
    with pytest.raises(ReleaseError):
        Release.from_text(text)


def test_a_changed_value_breaks_the_digest(tmp_path):
    text = release_of(example_request()).to_text()
    path = tmp_path / "r.json"
    path.write_text(text.replace("1000", "1001", 1))
    with pytest.raises(ReleaseError, match="digest does not match"):
        load_release(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ReleaseError, match="UTF-8"):
        load_release(path)
    with pytest.raises(ReleaseError, match="cannot be read"):
        load_release(tmp_path / "absent.json")
    with pytest.raises(ReleaseError, match="cannot be read"):
        load_release(tmp_path)


# --- claims ---------------------------------------------------------------------------------


@given(st.fractions(min_value=0, max_value=100, max_denominator=10**6))
def test_exact_text_of_fractions(value):
    assert as_fraction(fraction_text(value), "x") == value


def test_decimals_look_like_decimals():
    assert fraction_text(Fraction("0.1")) == "0.1"
    assert fraction_text(Fraction("1e-6")) == "0.000001"
    assert fraction_text(Fraction(3)) == "3"
    assert fraction_text(Fraction(1, 3)) == "1/3"


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"epsilon": 1, "rho": 1},
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": 1000},
        {"epsilon": "one"},
        {"epsilon": True},
        {"epsilon": 1, "delta": 1},
        {"epsilon": 1, "delta": -1e-9},
        {"rho": 0},
        {"rho": 1, "delta": 1e-6},
    ],
)
def test_impossible_claims(words):
    with pytest.raises(RequestError):
        Claim(**words)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_claim_follows_from_the_event(example):
    release = release_of(example_request(**EXAMPLES[example]))
    claim = release.claim
    if claim.rho is None:
        assert within([release.event], claim.epsilon, claim.delta)
        # ... and not from a tenth less epsilon: nothing is wasted either.
        assert not within([release.event], claim.epsilon * Fraction(9, 10), claim.delta)
