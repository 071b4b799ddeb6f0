"""Signatures by a second way: Ed25519 written anew from its definition, and forgeries."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from noisewise.core.document import digest_of
from noisewise.core.errors import ReleaseError, RequestError, SignatureError
from noisewise.core.kinds import load_release, release_from_text
from noisewise.core.signatures import Signature, check_date, check_key, in_words, signed_bytes
from noisewise.holder.keys import _key_of

from ..releases import example_request, release_of

KEY = _key_of(bytes(range(32)))
OLD = Path(__file__).parents[1] / "data" / "written_by_0_1" / "releases"

# ---------------------------------------------------------------------------------------------
# Ed25519 from its definition (RFC 8032, section 5.1), slowly

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of -1


def add(one, other):
    (x1, y1), (x2, y2) = one, other
    t = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + t, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - t, -1, P)
    return x % P, y % P


def times(scalar, point):
    found = (0, 1)
    while scalar:
        found = add(found, point) if scalar & 1 else found
        point, scalar = add(point, point), scalar >> 1
    return found


def x_of(y, odd):
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * ROOT % P
    if x * x % P != square:
        return None
    return x if x % 2 == odd or x == 0 else P - x


def decoded(octets):
    number = int.from_bytes(octets, "little")
    y = number % 2**255
    return x_of(y, number >> 255), y


def encoded(point):
    return (point[1] + (point[0] % 2 << 255)).to_bytes(32, "little")


BASE = (x_of(4 * pow(5, -1, P) % P, 0), 4 * pow(5, -1, P) % P)


def verifies(key, value, message):
    r, s = value[:32], int.from_bytes(value[32:], "little")
    h = int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % L
    return s < L and times(s, BASE) == add(decoded(r), times(h, decoded(key)))


def hexadecimal(public):
    return bytes.fromhex(public.partition(":")[2])


def test_the_second_way_knows_the_example_of_the_standard():
    """RFC 8032, 7.1, test 2."""
    key = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    value = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert verifies(key, value, b"\x72")
    assert not verifies(key, value, b"\x73")


# ---------------------------------------------------------------------------------------------
# What is signed


def test_what_is_signed_is_fixed():
    """A change here makes every signature that exists wrong."""
    document = {"b": [1, 0.5, None], "a": "é", "n": 2**60}
    assert signed_bytes(document, KEY.public, "2026-10-05") == (
        b"noisewise: signature of a Release, version 1\n"
        b'{"b":[1,0.5,null],"a":"\\u00e9","n":1152921504606846976,'
        b'"signature":{"scheme":"noisewise-ed25519-1","key":"' + KEY.public.encode() + b'",'
        b'"date":"2026-10-05"}}'
    )
    assert KEY.public == "ed25519:" + (
        "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    )


@pytest.mark.parametrize("name", ["laplace", "network_fourier", "clipped_mean", "draws"])
def test_signatures_are_those_of_the_standard(name):
    signed = KEY.sign(load_release(OLD / f"{name}.json"), date(2026, 10, 5))
    message = signed_bytes(signed.document, KEY.public, "2026-10-05")
    value = bytes.fromhex(signed.signature.value)
    assert verifies(hexadecimal(KEY.public), value, message)
    assert not verifies(hexadecimal(KEY.public), value, message[1:])


def test_the_same_signature_every_time():
    release = release_of(example_request())
    first, second = (KEY.sign(release, date(2026, 10, 5)).to_text() for _ in range(2))
    assert first == second
    assert KEY.sign(release, date(2026, 10, 6)).to_text() != first


# ---------------------------------------------------------------------------------------------
# Forgeries


def test_columns_in_another_order_are_not_what_was_signed():
    """The digest allows it, and the tables of a Fourier Release are then others."""
    release = load_release(OLD / "network_fourier.json")

    def turned(text):
        document = json.loads(text)
        columns = document["schema"]["columns"]
        document["schema"]["columns"] = dict(reversed(columns.items()))
        return json.dumps(document)

    other = release_from_text(turned(release.to_text()))
    assert other.digest == release.digest
    nodes = release.network.nodes
    assert any(not np.array_equal(other.counts(node), release.counts(node)) for node in nodes)
    with pytest.raises(SignatureError, match="does not match"):
        release_from_text(turned(KEY.sign(release).to_text()))


def with_signature(**changes):
    document = json.loads(KEY.sign(release_of(example_request())).to_text())
    for name, value in changes.items():
        if value is None:
            del document["signature"][name]
        else:
            document["signature"][name] = value
    return json.dumps(document)


def test_the_same_signature_in_other_numbers_is_refused():
    """S + L is the same modulo L, and the equation of the curve holds; the standard forbids it."""
    release = release_of(example_request())
    signature = KEY.sign(release).signature
    value = bytes.fromhex(signature.value)
    s = int.from_bytes(value[32:], "little")
    assert s + L < 2**256
    other = value[:32] + (s + L).to_bytes(32, "little")
    assert times(s + L, BASE) == times(s, BASE)
    with pytest.raises(SignatureError, match="does not match"):
        replace(signature, value=other.hex()).check(release.document)
    signature.check(release.document)


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": "noisewise-ed25519-2"},
        {"scheme": "none"},
        {"scheme": None},
        {"key": None},
        {"date": None},
        {"value": None},
        {"algorithm": "hmac"},
        {"key": KEY.public.upper()},
        {"key": KEY.public.replace("ed25519", "ed448")},
        {"key": KEY.public[:-2]},
        {"key": 7},
        {"key": _key_of(bytes(32)).public},
        {"date": "2026-13-01"},
        {"date": "2026-1-01"},
        {"date": "20261001"},
        {"date": 20261001},
        {"date": "2026-10-05T00:00:00"},
        {"value": "00" * 64},
        {"value": "00" * 63},
        {"value": ["00" * 64]},
    ],
)
def test_signatures_that_are_none(changes):
    with pytest.raises(ReleaseError, match="signature"):
        release_from_text(with_signature(**changes))
    assert release_from_text(with_signature()).signature is not None


@pytest.mark.parametrize("signature", [None, [], "x", {}, 1])
def test_a_signature_is_an_object(signature):
    document = json.loads(release_of(example_request()).to_text())
    with pytest.raises(ReleaseError, match="signature"):
        release_from_text(json.dumps({**document, "signature": signature}))


def test_a_key_that_is_given_twice_is_refused():
    """Readers of JSON take the first or the last of two: one signed, the other believed."""
    text = KEY.sign(release_of(example_request())).to_text()
    for name in ('"label": ""', '"n": 1000'):
        assert name in text
        with pytest.raises(ReleaseError, match="given twice"):
            release_from_text(text.replace(name, f"{name}, {name}"))


def test_letters_that_look_alike_are_not_the_same():
    release = replace(release_of(example_request()), label="Caf\u00e9")
    other = replace(release, label="Cafe\u0301")
    text = KEY.sign(release).to_text().replace("Caf\u00e9", "Cafe\u0301")
    with pytest.raises(SignatureError, match="does not match"):
        release_from_text(text.replace(release.digest, other.digest))


# ---------------------------------------------------------------------------------------------
# Keys under which anybody can sign


def torsion():
    """The eight points whose order divides 8."""
    found, y = {(0, 1)}, 2
    while len(found) < 8:
        x = x_of(y, 0)
        if x is not None:
            found.add(times(L, (x, y)))
        y += 1
    return found


def test_under_a_key_of_small_order_anybody_can_sign():
    """What the refusal is for: the same signature of two messages, made without a secret."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    identity = encoded((0, 1))
    public = Ed25519PublicKey.from_public_bytes(identity)
    for message in (b"one", b"another"):
        public.verify(identity + bytes(32), message)  # raises nothing


def test_keys_of_small_order_are_refused():
    points = torsion()
    assert len(points) == 8
    assert all(times(8, point) == (0, 1) for point in points)
    texts = {encoded(point) for point in points}
    for _, y in points:  # with the other sign, and with a y that was not reduced
        for whole in (y, y + P):
            texts |= {
                (whole + (sign << 255)).to_bytes(32, "little") for sign in (0, 1) if whole < 2**255
            }
    assert len(texts) > 10
    for octets in texts:
        with pytest.raises(RequestError, match="only its owner"):
            check_key(f"ed25519:{octets.hex()}")


def test_keys_of_full_order_are_accepted():
    for seed in range(50):
        public = _key_of(bytes([seed]) * 32).public
        assert check_key(public) == public


def test_a_key_has_one_text():
    """A y of p or more would be a second spelling of a key."""
    with pytest.raises(RequestError):
        check_key(f"ed25519:{(P + 3).to_bytes(32, 'little').hex()}")


def test_dates():
    assert check_date("2026-02-28") == "2026-02-28"
    for wrong in ("2026-02-29", "26-02-28", "", None, 5, "2026-02-28\n", "２０２６-02-28"):
        with pytest.raises(RequestError, match="year-month-day"):
            check_date(wrong)


def test_what_is_said():
    assert in_words(None) == "unsigned"
    signature = Signature(KEY.public, "2026-10-05", "00" * 64)
    assert in_words(signature) == f"signed by key {KEY.public} (not checked)"
    checked = replace(signature, checked_for="Office")
    assert in_words(checked) == f"signed by Office (checked: {KEY.public})"


def test_the_digest_is_that_of_the_unsigned_release():
    release = release_of(example_request())
    assert KEY.sign(release).digest == release.digest == digest_of(release.document)
