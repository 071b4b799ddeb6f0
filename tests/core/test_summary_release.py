"""The summary Release: round trips, and everything that a reader refuses."""

from __future__ import annotations

import json
import math
import random
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from importlib import resources

import pytest

from noisewise.core.design import Design
from noisewise.core.document import digest_of
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    CauchyBase,
    ClippedMean,
    Conjugate,
    Fisher,
    Flat,
    GPrior,
    LocationItem,
    LocationScale,
    QuantileItem,
    Question,
    RescaledNormal,
    Sign,
    Stouffer,
    entries_of,
    sensitivity_of,
)
from noisewise.core.kinds.summary.release import MedianNoise, SummaryRelease, SummedNoise
from noisewise.core.privacy import Claim, ComposedEvent, GaussianEvent, PureEvent
from noisewise.core.schema import Category, Number, Schema, Unbounded

SCHEMA_FILE = json.loads(
    resources.files("noisewise.core.kinds")
    .joinpath("summary_release.schema.json")
    .read_text("utf-8")
)
COLUMNS = {
    "x1": Unbounded(2.0),
    "region": Category(("north", "süd"), "north"),
    "y": Number(-5, 5),
}
ASKED = (Question("x1", 0.0), Question("region[süd]", -1.5), Question("intercept", 1e-9))
MECHANISMS = {
    "sign": Sign(ASKED),
    "stouffer": Stouffer(ASKED[:1], 1.25),
    "rescaled_normal": RescaledNormal(ASKED[:2]),
    "fisher": Fisher(ASKED, 0.2),
    "clipped_mean": ClippedMean((QuantileItem("x1", 0.05, -10, 10.5),)),
    "location_scale": LocationScale(
        (
            LocationItem("x1", CauchyBase(0, 1), CauchyBase(-3, 2.5)),
            LocationItem("intercept", CauchyBase(1.5, 10), CauchyBase(0, 3)),
        )
    ),
}
POSTERIORS = {
    "flat": Flat(),
    "g_n": GPrior("n"),
    "g_number": GPrior(1e4),
    "conjugate": Conjugate((0.0, 1.0, -2.5), (0.0, 0.1, 1.0), 2.0, 0.5),
}


def summary_release(
    mechanism=MECHANISMS["sign"], posterior=POSTERIORS["flat"], neighbours="replace_one", rows=1
):
    schema = Schema("people", COLUMNS, neighbours, rows)
    epsilon, r = Fraction(1), 30
    if isinstance(mechanism, LocationScale):
        each = epsilon / len(mechanism.items)
        noise = MedianNoise(each * Fraction(9, 10), each / 10, rows)
        values = tuple(CELLS // 3 + i for i in range(2 * len(mechanism.items)))
    else:
        sensitivity = sensitivity_of(mechanism, r, rows)
        noise = SummedNoise(sensitivity, sensitivity)
        values = tuple(range(-1, len(entries_of(mechanism)) - 1))
    return SummaryRelease(
        design=Design(schema, ("x1", "region"), "y"),
        n=10_000 if neighbours == "replace_one" else None,
        blocks=100,
        partitions=r,
        mechanism=mechanism,
        posterior=posterior,
        values=values,
        noise=noise,
        claim=Claim(epsilon),
        event=PureEvent(epsilon),
        label="Q3",
        software="noisewise test",
    )


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.parametrize("posterior", POSTERIORS.values(), ids=POSTERIORS)
def test_a_release_survives_the_file(mechanism, posterior):
    for neighbours, rows in (("replace_one", 1), ("replace_one", 3), ("add_remove_one", 2)):
        if neighbours == "add_remove_one" and posterior == GPrior("n"):
            continue
        release = summary_release(mechanism, posterior, neighbours, rows)
        again = release_from_text(release.to_text())
        assert again == release
        assert again.digest == release.digest


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.parametrize("posterior", POSTERIORS.values(), ids=POSTERIORS)
def test_the_published_json_schema_describes_releases(mechanism, posterior):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(SCHEMA_FILE)
    document = json.loads(summary_release(mechanism, posterior).to_text())
    validator.validate(document)
    for key in document:
        assert not validator.is_valid({k: v for k, v in document.items() if k != key}), key
    assert not validator.is_valid({**document, "values": [0.5]})
    assert not validator.is_valid({**document, "mechanism": {"name": "oracle"}})


def edited(release, change):
    document = json.loads(release.to_text())
    del document["digest"]
    change(document)
    return json.dumps({**document, "digest": digest_of(document)})


def put(*path_and_value):
    *path, key, value = path_and_value

    def change(document):
        for step in path:
            document = document[step]
        document[key] = value

    return change


REFUSED = {
    "less noise": (put("noise", "scale", 179), "too small"),
    "less sensitivity": (put("noise", "sensitivity", 60), "does not follow"),
    "more partitions": (put("partitions", 31), "does not follow"),
    "claim": (put("privacy", "claim", {"epsilon": "0.5", "delta": "0"}), "does not follow"),
    "a delta": (put("privacy", "claim", {"epsilon": "1", "delta": "0.1"}), "pure"),
    "rho": (put("privacy", "claim", {"rho": "1"}), "pure"),
    "event": (put("privacy", "event", {"type": "pure", "epsilon": "1/2"}), "too small"),
    "values": (put("values", [1, 2]), "expected 3"),
    "a float": (put("values", [1, 2, 3.0]), "whole number"),
    "true": (put("values", [1, 2, True]), "whole number"),
    "no blocks": (put("blocks", 0), "blocks must be"),
    "too many": (put("blocks", 2**20), "more than"),
    "coefficient": (put("mechanism", "questions", 0, "coefficient", "y"), "not a coefficient"),
    "threshold": (put("mechanism", "questions", 0, "threshold", 10**400), "release"),
    "mechanism": (put("mechanism", "name", "oracle"), "unknown here"),
    "mechanism type": (put("mechanism", "name", []), "unknown here"),
    "same question": (put("mechanism", "questions", [{"coefficient": "x1", "threshold": 0.0}] * 2),
                      "twice"),
    "posterior": (put("posterior", {"kind": "oracle"}), "unknown here"),
    "noise": (put("noise", {"family": "none"}), "unknown noise"),
    "other noise": (put("noise", {"family": "exponential", "location_epsilon": "1/2",
                                  "scale_epsilon": "1/2", "sensitivity": 1}), "Laplace"),
    "n": (put("n", None), "n must be given"),
    "format": (put("format_version", 2), "format version 2"),
    "surplus": (put("extra", 1), "unknown key"),
    "names": (put("coefficients", ["intercept", "x1"]), "do not follow"),
    "conjugate": (put("posterior", {"kind": "conjugate", "mean": [0], "precision": [1],
                                    "shape": 1, "rate": 1}), "3 coefficients"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_reader_refuses(change, reason):
    with pytest.raises(ReleaseError, match=reason):
        SummaryRelease.from_text(edited(summary_release(), change))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("values", [0, 1, 2, CELLS]), "cell"),
        (put("values", [0, 1, 2, -1]), "cell"),
        (put("noise", "location_epsilon", "1/2"), "too small"),
        (put("noise", "scale_epsilon", "0"), "positive epsilon"),
        (put("noise", "location_epsilon", "1e-390"), "next to nothing"),
        (put("noise", "sensitivity", 2), "one rank"),
        (put("mechanism", "items", 0, "location", "scale", 0.0), "positive"),
        (put("mechanism", "items", 1, "coefficient", "x1"), "twice"),
    ],
)
def test_a_reader_refuses_medians(change, reason):
    release = summary_release(MECHANISMS["location_scale"])
    with pytest.raises(ReleaseError, match=reason):
        SummaryRelease.from_text(edited(release, change))


def test_a_private_n_cannot_be_a_prior_parameter():
    text = edited(summary_release(neighbours="add_remove_one"),
                  put("posterior", {"kind": "g_prior", "g": "n"}))  # fmt: skip
    with pytest.raises(ReleaseError, match="private"):
        SummaryRelease.from_text(text)


def test_other_events_are_refused():
    release = summary_release()
    for event in (GaussianEvent(5.0), ComposedEvent((PureEvent(Fraction(1)),))):
        with pytest.raises(ReleaseError, match="pure"):
            replace(release, event=event)


def test_damage_ends_in_a_release_error():
    """Every kind of damage is refused by a ReleaseError and nothing else (or is no damage)."""
    rng = random.Random(20261116)
    surprises = [None, True, -1, 0, 2**70, 1e308, "", "n", [], {}, [[]], {"a": 1}, "1/0", 0.5]
    for mechanism in MECHANISMS.values():
        original = summary_release(mechanism, POSTERIORS["conjugate"])
        for _ in range(250):
            document = json.loads(original.to_text())
            del document["digest"]
            place, key = document, rng.choice(list(document))
            while isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
                place = place[key]
                key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if rng.random() < 0.2 and isinstance(place, dict):
                del place[key]
            else:
                place[key] = rng.choice(surprises)
            text = json.dumps({**document, "digest": digest_of(document)})
            try:
                again = SummaryRelease.from_text(text)
            except ReleaseError:
                continue
            assert SummaryRelease.from_text(again.to_text()) == again
        text = original.to_text()
        for _ in range(50):
            at = rng.randrange(len(text))
            with suppress(ReleaseError):
                SummaryRelease.from_text(text[:at] + rng.choice("0{[,\x00é") + text[at + 2 :])


def test_the_mean_undoes_the_grid():
    release = replace(summary_release(), values=(-1500, 0, 3000))
    assert release.mean(0) == -0.5
    assert release.mean_noise_scale == pytest.approx(180 / 3000)
    fisher = summary_release(MECHANISMS["fisher"])
    assert fisher.mean_noise_scale == pytest.approx(3 * -2 * math.log(0.2) / 100, rel=1e-5)


def test_cells_are_quantiles_of_the_base_law():
    from scipy.stats import cauchy

    base = CauchyBase(2.0, 3.0)
    cells = [0, 1, 12345, CELLS // 4, CELLS // 2 - 1, CELLS // 2, CELLS - 7, CELLS - 1]
    values = [base.value(cell) for cell in cells]
    assert values == sorted(values)
    for cell, value in zip(cells, values, strict=True):
        if cell < CELLS // 2:
            assert cauchy.cdf(value, 2, 3) * CELLS == pytest.approx(cell + 0.5, rel=1e-9)
        else:
            assert cauchy.sf(value, 2, 3) * CELLS == pytest.approx(CELLS - cell - 0.5, rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Question("x", math.nan),
        lambda: Question("x", "0"),
        lambda: Question("x", 10**400),
        lambda: Sign(()),
        lambda: Sign([Question("x", 0)]),
        lambda: Stouffer(ASKED, 0.0),
        lambda: Fisher(ASKED, 0.0),
        lambda: Fisher(ASKED, 0.5),
        lambda: QuantileItem("x", 1.0, 0, 1),
        lambda: QuantileItem("x", 0.5, 1, 1),
        lambda: QuantileItem("x", 0.5, -1e308, 1e308),
        lambda: QuantileItem("x", 0.5, 0, 1e308),
        lambda: QuantileItem("x", 0.5, 0, 5e-324),
        lambda: CauchyBase(0, -1),
        lambda: GPrior(0),
        lambda: GPrior("p"),
        lambda: Conjugate((0,), (-1,), 1, 1),
        lambda: Conjugate((0,), (math.inf,), 1, 1),
    ],
)
def test_nonsense_is_refused_with_words(make):
    with pytest.raises(RequestError, match=":"):
        make()
