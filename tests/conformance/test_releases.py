"""One suite that every kind of Release passes: the file, the digest, and what readers refuse."""

from __future__ import annotations

import hashlib
import json
import math
import random
from contextlib import suppress
from dataclasses import replace
from datetime import date
from fractions import Fraction
from importlib import import_module, resources

import jsonschema
import pytest

from noisewise.core.design import Design
from noisewise.core.document import BaseRelease, digest_of
from noisewise.core.errors import ReleaseError, SignatureError
from noisewise.core.kinds import _KINDS, load_release, release_from_text
from noisewise.core.kinds.draws import RegressionLaw, RegressionSampleRelease
from noisewise.core.kinds.glm import GlmRelease, Newton, longest_of
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import NetworkRelease, NoisyCounts
from noisewise.core.kinds.summary.mechanisms import Flat, Question, Sign, sensitivity_of
from noisewise.core.kinds.summary.release import SummaryRelease, SummedNoise
from noisewise.core.privacy import Claim, GaussianEvent, PureEvent
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Schema
from noisewise.core.statistics.scores import outcome_of, score_sensitivity
from noisewise.holder.keys import _key_of

from ..releases import example_request, release_of

PUBLISHED_SCHEMAS = {
    schema["properties"]["format"]["const"]: schema
    for path in resources.files("noisewise.core.kinds").iterdir()
    if path.name.endswith(".schema.json")
    for schema in [json.loads(path.read_text("utf-8"))]
}

COMMON = {
    "claim": Claim(Fraction(1)),
    "event": PureEvent(Fraction(1)),
    "label": "Q3",
    "software": "noisewise test",
}


def sums_release():
    return replace(release_of(example_request()), label="Q3")


def summary_release():
    asked = Sign((Question("age", 0.0),))
    sensitivity = sensitivity_of(asked, 2, 1)
    return SummaryRelease(
        design=example_request().design,
        n=1000,
        blocks=30,
        partitions=2,
        mechanism=asked,
        posterior=Flat(),
        values=(7,),
        noise=SummedNoise(sensitivity, sensitivity),
        **COMMON,
    )


def network_release():
    columns = {name: Category(("no", "yes"), "no") for name in ("smoker", "cough")}
    network = Network.make(Schema("people", columns), {"cough": ["smoker"]})
    content = NoisyCounts({"smoker": (40,), "cough": (1, -2, 3, 4)}, 3.0, 3)
    return NetworkRelease(network=network, n=100, mechanism="laplace", content=content, **COMMON)


def draws_release():
    request = example_request()
    numbers = {"radius": 1, "variance": 1, "prior_precision": 1, "temper": Fraction(1, 32)}
    law = RegressionLaw(
        request.design, request.geometry, **{k: Fraction(v) for k, v in numbers.items()}
    )
    return RegressionSampleRelease(law=law, n=1000, draws=((0, 1, -2, 3),), **COMMON)


def glm_release():
    columns = {name: Category(("no", "yes"), "no") for name in ("smoker", "cough")}
    design = Design(Schema("people", columns), ("smoker",), "cough", "logistic")
    shape = Shape(Transform((), (), ()), 1280, 1024, 1)
    sensitivity = score_sensitivity(design.schema, outcome_of(design), longest_of(design, shape))
    steps = [
        Newton(theta, (7, -3), (900, 400, 300), 20 * sensitivity, 10**8, 8 * 10**7, sensitivity)
        for theta in ((0, 0), (-30_000, 20_000))
    ]
    given = {**COMMON, "claim": Claim(Fraction(1), Fraction(1, 10**6))}
    given["event"] = GaussianEvent(10.0, 1e-12)
    return GlmRelease(design=design, n=100, looks=(), shape=shape, newton=tuple(steps), **given)


# SHA-256 of the files, from before the kinds shared any code: a change here is one of the format.
KINDS = {
    "noisewise-release": (
        sums_release,
        "1a9d92d4f1a4acaf6adaa6e496745d6cc6c5727839d664bb11b499f791c6299e",
    ),
    "noisewise-summary-release": (
        summary_release,
        "aab4e5f1d4646d553133c8653f77271b316deee62a95d7047fd4e6d8b9c29ef5",
    ),
    "noisewise-network-release": (
        network_release,
        "1572df2ec6e5a5b0ca79c41a47d5d18020999e3f138aac183eb0cf911afeebad",
    ),
    "noisewise-regression-sample-release": (
        draws_release,
        "34f9eeb9d58385de70863d0ae06825c18142eefe7f2c6cd8160cd4c523d441dd",
    ),
    "noisewise-glm-release": (
        glm_release,
        "36c47351c0b9b33e8e092b7c20d67dbdb72302a681961cb2ac0657637400af7d",
    ),
}


@pytest.fixture(params=KINDS)
def form(request):
    return request.param


@pytest.fixture
def release(form):
    return KINDS[form][0]()


def digest_in(document):
    """As anybody can compute it."""
    return digest_of({k: v for k, v in document.items() if k not in ("digest", "signature")})


def refusal(release, change):
    """Why a reader refuses the document after this change to it."""
    document = json.loads(release.to_text())
    change(document)
    document["digest"] = digest_in(document)
    with pytest.raises(ReleaseError) as caught:
        release_from_text(json.dumps(document))
    return str(caught.value)


def test_the_suite_knows_every_kind():
    assert set(KINDS) == set(_KINDS)


def test_the_kind_is_found_by_its_format(form, release):
    module, name = _KINDS[form]
    kind = getattr(import_module(f"noisewise.core.kinds.{module}"), name)
    assert issubclass(kind, BaseRelease)
    assert kind is type(release)
    assert form == kind.FORMAT == release.document["format"]


def test_the_file_is_the_same_as_ever(form, release):
    assert hashlib.sha256(release.to_text().encode("utf-8")).hexdigest() == KINDS[form][1]
    assert json.loads(release.to_text())["digest"] == release.digest


def test_text_and_file_both_ways(release, tmp_path):
    path = tmp_path / "release.json"
    path.write_text(release.to_text(), encoding="utf-8")
    assert load_release(path) == type(release).from_text(release.to_text()) == release


def test_the_keys_are_those_that_are_read(release):
    before = ["format", "format_version", "software", "label", "schema"]
    assert list(release.document) == [*before, *release.KEYS, "privacy"]


def test_every_key_is_needed_and_no_other_known(release):
    for key in ("software", "label", "schema", *release.KEYS, "privacy"):
        assert f"the document lacks '{key}'" in refusal(release, lambda d, key=key: d.pop(key))
    assert "unknown key 'more'" in refusal(release, lambda d: d.update(more=1))
    for key in ("claim", "event"):
        assert "privacy lacks" in refusal(release, lambda d, key=key: d["privacy"].pop(key))


@pytest.mark.parametrize("key", ["label", "software"])
@pytest.mark.parametrize("value", [None, 1, "x" * 201])
def test_common_texts_are_short(release, key, value):
    assert f"{key} must be text" in refusal(release, lambda d: d.update({key: value}))


UNSHOWN = ["\ud800", "a\x00b", "\x1b[2J", "line\nbreak", "\u202egnp.exe", "\u200b", "\x7f"]


def texts_of(value, path=()):
    """Where texts and keys are in a document."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from texts_of(item, (*path, i))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts_of(item, (*path, key))


@pytest.mark.parametrize("unshown", UNSHOWN)
def test_no_text_has_characters_that_cannot_be_shown(release, unshown):
    paths = [path for path in texts_of(json.loads(release.to_text())) if path != ("digest",)]
    assert ("label",) in paths
    assert ("software",) in paths
    for path in paths:

        def change(document, path=path):
            for key in path[:-1]:
                document = document[key]
            document[path[-1]] += unshown

        why = refusal(release, change)
        assert "cannot be shown" in why
        assert why.isprintable()


def test_no_key_has_characters_that_cannot_be_shown(release):
    assert "cannot be shown" in refusal(release, lambda d: d.update({"\ud800": 1}))


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "1000", 2**31])
def test_n_is_a_whole_number_of_rows(release, n):
    assert "n must be a whole number" in refusal(release, lambda d: d.update(n=n))


def test_n_is_there_exactly_if_it_is_public(release):
    assert "n must be given" in refusal(release, lambda d: d.update(n=None))
    assert "n must be given" in refusal(
        release, lambda d: d["schema"].update(neighbours="add_remove_one")
    )


def test_a_claim_stronger_than_the_event_is_refused(release):
    def boast(document):
        # A pure event is as strong as its claim here; the Gaussian one has room to spare.
        is_pure = isinstance(release.event, PureEvent)
        document["privacy"]["claim"]["epsilon"] = "0.999" if is_pure else "0.3"

    assert "does not follow" in refusal(release, boast)


def test_an_event_stronger_than_the_noise_is_refused(release):
    key, value = "epsilon", "1/100"
    if isinstance(release.event, GaussianEvent):
        key, value = "noise_multiplier", 1000.0

    def boast(document):
        document["privacy"]["event"][key] = value

    assert json.loads(release.to_text())["privacy"]["event"][key] != value
    assert "privacy event" in refusal(release, boast)


def test_more_rows_a_unit_at_unchanged_noise_are_refused(release):
    assert refusal(release, lambda d: d["schema"].update(max_rows_per_unit=1_000_000))


def test_damage_is_noticed(release):
    with pytest.raises(ReleaseError, match="digest does not match"):
        release_from_text(release.to_text().replace('"Q3"', '"Q4"'))


def test_a_newer_version_is_told_from_damage(release):
    text = release.to_text().replace('"format_version": 1', '"format_version": 2')
    with pytest.raises(ReleaseError, match="update noisewise"):
        release_from_text(text)


def test_another_kind_is_refused_by_name(form, release):
    other = next(made() for name, (made, _) in KINDS.items() if name != form)
    with pytest.raises(ReleaseError, match=f"not a {form} document"):
        type(release).from_text(other.to_text())


# --- signatures -----------------------------------------------------------------------------------

KEY = _key_of(bytes(range(32)))


def test_a_signed_release_is_the_same_release(release, tmp_path):
    signed = KEY.sign(release, date(2026, 10, 5))
    assert signed == release
    assert (signed.digest, signed.document) == (release.digest, release.document)
    read = release_from_text(signed.to_text())
    assert read == release
    assert (read.signature.key, read.signature.date) == (KEY.public, "2026-10-05")
    assert read.to_text() == signed.to_text()
    document = json.loads(signed.to_text())
    del document["signature"]
    assert document == json.loads(release.to_text())
    schema = PUBLISHED_SCHEMAS.get(release.FORMAT)
    if schema is not None:
        jsonschema.validate(json.loads(signed.to_text()), schema)


def leaves_of(value, path=()):
    """Where numbers, texts and nothing are in a document."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves_of(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from leaves_of(item, (*path, i))
    else:
        yield path


def changed(text, path):
    """The text with one value changed by a little, and the digest that belongs to it."""
    document = json.loads(text)
    place = document
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    new = {str: f"{old}x", type(None): 1000, bool: not old}.get(type(old))
    if isinstance(old, float):
        new = math.nextafter(old, math.inf)
    elif new is None:
        new = old + 1
    place[path[-1]] = new
    document["digest"] = digest_in(document)
    return json.dumps(document)


def test_nothing_in_a_signed_release_can_be_changed(release):
    """Without a signature, some of these changes are accepted: a label, or noisy values."""
    signed, accepted = KEY.sign(release).to_text(), 0
    for path in leaves_of(json.loads(signed)):
        if path == ("digest",):
            continue
        with pytest.raises(ReleaseError):
            release_from_text(changed(signed, path))
        if path[0] != "signature":
            with suppress(ReleaseError):
                release_from_text(changed(release.to_text(), path))
                accepted += 1
    assert accepted > 1


def test_no_other_order_of_keys_has_the_signature_and_another_meaning(release):
    """Whatever is read under a signature is written as it was signed, in the same order."""
    text, rng = KEY.sign(release).to_text(), random.Random(1)
    seen = set()
    for _ in range(40):
        try:
            read = release_from_text(json.dumps(in_another_order(json.loads(text), rng)))
        except SignatureError:
            seen.add("refused")
        else:
            assert read.to_text() == text
            seen.add("the same")
    assert "refused" in seen


def in_another_order(value, rng):
    if isinstance(value, list):
        return [in_another_order(item, rng) for item in value]
    if not isinstance(value, dict):
        return value
    items = [(key, in_another_order(item, rng)) for key, item in value.items()]
    rng.shuffle(items)
    return dict(items)


def test_a_signature_belongs_to_one_release(form, release):
    signature = KEY.sign(release).to_text()
    for name, (made, _) in KINDS.items():
        other = made() if name != form else replace(release, label="Q4")
        document = json.loads(other.to_text())
        document["signature"] = json.loads(signature)["signature"]
        with pytest.raises(SignatureError, match="does not match"):
            release_from_text(json.dumps(document))


def test_a_label_cannot_be_given_to_a_signed_release(release):
    """`replace` keeps the signature, and whoever reads it finds that it is of another Release."""
    renamed = replace(KEY.sign(release), label="Q4")
    with pytest.raises(SignatureError):
        release_from_text(renamed.to_text())
