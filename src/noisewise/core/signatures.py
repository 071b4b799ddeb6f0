"""Signatures of Releases: who published one, and that nobody has changed it since.

A signature is Ed25519 (RFC 8032) over `signed_bytes`: a prefix that no other use of the key has,
then the whole document as a reader understands it, with the key and the date of the signature in
it. There is one scheme and no choice of algorithms, so that nobody can choose a weaker one.

**Claim.** Whoever has not got the secret key can neither change what a reader makes of a signed
Release nor put its signature under another one, and can change neither its date nor its key.

**Proof.** A reader turns the text into a Release R and then checks the signature over
`signed_bytes(R.document)`. That is JSON text in the order of the document's keys, and JSON text
determines the document: its texts, its whole numbers, its floats (written with all their digits)
and the order of its keys. R is what reading this document gives. So two Releases that are read
differently have different bytes, and a signature of one is a forgery for the other, which Ed25519
excludes. ∎

The order has to be signed, too. The digest sorts keys, and the tables of a Fourier Release follow
the order of the schema's columns: with these in another order the same digest belongs to other
tables (`tests/core/test_signatures.py` has that attack).

**Keys of small order** are refused. Under such a key anybody can make signatures, so its owner
could deny every one of them. On the curve -x² + y² = 1 + d x² y² the points whose order divides 8
are (0, 1) and (0, -1), of order 1 and 2; those with y = 0, of order 4; and those whose double has
y = 0, of order 8. The double of (x, y) has y = 0 where x² = -y², and then the equation of the curve
says d y⁴ + 2 y² - 1 = 0. So they are the points with y (y² - 1) (d y⁴ + 2 y² - 1) = 0 modulo p.
Encodings with a y of p or more are refused as well, so that each key has one text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date
from typing import Any

from noisewise.core.errors import RequestError, SignatureError

SCHEME = "noisewise-ed25519-1"
_PREFIX = b"noisewise: signature of a Release, version 1\n"
_KEY = re.compile(r"ed25519:([0-9a-f]{64})", re.ASCII)
_VALUE = re.compile(r"[0-9a-f]{128}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P


def check_key(text: Any) -> str:
    """A public key, ed25519: and 64 digits, if it can be one; else a RequestError that says why."""
    digits = _KEY.fullmatch(text) if isinstance(text, str) else None
    if digits is None:
        raise RequestError(
            "a public key is written as ed25519: and 64 hexadecimal digits (0-9, a-f)"
        )
    y = int.from_bytes(bytes.fromhex(digits[1]), "little") % 2**255
    if y >= _P or y * (y * y - 1) * (_D * y**4 + 2 * y * y - 1) % _P == 0:
        raise RequestError("this is not a public key under which only its owner can sign")
    return str(text)


def check_date(text: Any) -> str:
    """A date such as 2026-10-05, else a RequestError. Such texts are in the order of the dates."""
    if isinstance(text, str) and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError:
            pass
    raise RequestError("a date is written as year-month-day, such as 2026-10-05")


def signed_bytes(document: dict[str, Any], key: str, dated: str) -> bytes:
    """What a signature is made of: the document in the order of its keys, the key and the date."""
    complete = {**document, "signature": {"scheme": SCHEME, "key": key, "date": dated}}
    text = json.dumps(complete, separators=(",", ":"), allow_nan=False)
    return _PREFIX + text.encode("ascii")


@dataclass(frozen=True)
class Signature:
    """The signature in a Release; what it proves depends on whether the key is its publisher's."""

    key: str  # the public one, as `check_key` has it
    date: str  # the signer's word, no more: a day, because a time would tell how long sums took
    value: str  # 128 hexadecimal digits
    # The name under which a reader trusts the key (`analyst.trust`); not part of the file
    checked_for: str = ""

    def __post_init__(self) -> None:
        try:
            check_key(self.key)
            check_date(self.date)
        except RequestError as error:
            raise SignatureError(f"release: signature: {error}") from None
        if not isinstance(self.value, str) or not _VALUE.fullmatch(self.value):
            raise SignatureError("release: signature: its value is not 128 hexadecimal digits")

    def to_json(self) -> dict[str, Any]:
        """Plain structure."""
        return {"scheme": SCHEME, "key": self.key, "date": self.date, "value": self.value}

    def check(self, document: dict[str, Any]) -> None:
        """Raise a SignatureError unless the owner of the key has signed this document."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.key.partition(":")[2]))
        try:
            public.verify(bytes.fromhex(self.value), signed_bytes(document, self.key, self.date))
        except InvalidSignature:
            raise SignatureError(
                "release: the signature does not match the content: one of them was changed, or "
                "the signature is of another Release"
            ) from None


def in_words(signature: Signature | None) -> str:
    """What is known about who published a Release, after "it is"."""
    if signature is None:
        return "unsigned"
    if signature.checked_for:
        return f"signed by {signature.checked_for} (checked: {signature.key})"
    return f"signed by key {signature.key} (not checked)"
