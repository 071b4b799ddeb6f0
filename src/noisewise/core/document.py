"""Strict JSON documents: what all kinds of Releases share, and how untrusted ones are read.

A document has a closed set of keys and types, and a digest over its canonical form. The digest
finds accidental damage. It is no signature: anybody can compute a new one. A Release may have a
signature, too (`core.signatures`), which is no part of the digest: the signed Release and the
unsigned one are the same Release.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from noisewise import _html
from noisewise.core.design import MAX_ROWS, Ball, Box, Design, Geometry
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError, SignatureError
from noisewise.core.privacy import (
    Claim,
    Event,
    PureEvent,
    as_fraction,
    event_from_json,
    event_to_json,
)
from noisewise.core.schema import MAX_NAME, Schema
from noisewise.core.signatures import SCHEME, Signature, in_words
from noisewise.core.temporary import write_file
from noisewise.core.terms.term import MAX_FACTORS, MAX_TERM

MAX_BYTES = 64_000_000
MAX_INTEGER = 2**63 - 1
MAX_SCALE = 2**56  # of noise: 128 standard deviations below the largest integer
# Of a design column: a factor of a term, and a level, for each factor.
MAX_DESIGN_NAME = MAX_TERM + MAX_FACTORS * (MAX_NAME + 2)

Read = TypeVar("Read")


def fail(reason: str) -> NoReturn:
    """Refuse a document."""
    raise ReleaseError(f"release: {reason}")


def digest_of(document: dict[str, Any]) -> str:
    """SHA-256 over sorted keys, no white space, ASCII only."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(canonical.encode("ascii")).hexdigest()


def dumps(document: dict[str, Any], signature: Signature | None = None) -> str:
    """The text of a file: the document, its digest and its signature, if it has one."""
    complete = {**document, "digest": digest_of(document)}
    if signature is not None:
        complete["signature"] = signature.to_json()
    return json.dumps(complete, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_text(path: str | Path) -> str:
    """The text of a Release's file, if it can be one."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ReleaseError(f"{path}: larger than {MAX_BYTES:,} bytes; not a Release")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise ReleaseError(f"{path}: not UTF-8 text; not a Release, or damaged") from None
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read: {error.strerror}; check the path") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a file whole or not at all (`write_file`). May raise an OSError."""
    write_file(path, text.encode(), mode=0o644)


def check_folder(path: str | Path, example: str = "") -> None:
    """Refuse a path that can't be written to, before any work is done for it."""
    path = Path(path)
    if path.is_dir():
        such = f"name a file, such as {path / example}" if example else "name a file in it"
        raise RequestError(f"out: {path} is a folder; {such}")
    if not path.parent.is_dir():
        raise RequestError(f"out: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise RequestError(f"out: the folder {path.parent} cannot be written to")


def load(path: str | Path, from_text: Callable[[str], Read]) -> Read:
    """Read a Release's file; a ReleaseError begins with its path."""
    text = read_text(path)
    try:
        return from_text(text)
    except ReleaseError as error:
        raise type(error)(f"{path}: {error}") from None


def reading(read: Callable[[Any], Read], text: str) -> Read:
    """Parse and read a document; raises ReleaseError and nothing else."""
    try:
        return read(parse_json(text))
    except ReleaseError:
        raise
    except (NoisewiseError, ValueError, ArithmeticError) as error:
        raise ReleaseError(f"release: {error}") from None
    except (TypeError, LookupError, AttributeError, RecursionError, MemoryError):
        raise ReleaseError("release: the document is not one that noisewise writes") from None


def parse_json(
    text: str, *, nan: bool = False, longest: int | None = None, unchecked: tuple[str, ...] = ()
) -> Any:
    """JSON without NaN, infinities, repeated keys, or texts that could not be shown or written.

    With `nan` there may be such numbers. Texts under the keys `unchecked` are for others to check.
    """

    def no_constant(name: str) -> NoReturn:
        fail(f"{name} is not a number that a Release may contain")

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = dict(pairs)
        if len(keys) != len(pairs):
            fail("a key is given twice")
        return keys

    if longest is None:
        longest = MAX_BYTES
    if len(text) > longest:
        fail(f"larger than {longest:,} characters")
    constant = float if nan else no_constant
    try:
        document = json.loads(text, parse_constant=constant, object_pairs_hook=no_duplicates)
    except (json.JSONDecodeError, RecursionError):
        fail("not valid JSON; the file is damaged or not a Release")
    except ValueError:
        fail("a number has too many digits")
    if unchecked and isinstance(document, dict):
        _check_texts({key: value for key, value in document.items() if key not in unchecked})
    else:
        _check_texts(document)
    return document


def _check_texts(document: Any) -> None:
    """Refuse controls, invisible characters and halves of a surrogate pair in any text or key.

    They end in file names, reports and terminals; a half of a pair can't even be written again.
    """
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item  # its keys
            waiting += item.values()
        elif isinstance(item, list):
            waiting += [value for value in item if isinstance(value, str | list | dict)]
        elif isinstance(item, str) and not item.isprintable():
            fail("a text has characters that cannot be shown")


def check_envelope(document: Any, form: str, form_version: int) -> None:
    """Check format, version and digest, in this order: a newer version may digest otherwise."""
    if not isinstance(document, dict) or document.get("format") != form:
        fail(f"not a {form} document")
    version = document.get("format_version")
    if version != form_version or isinstance(version, bool) or not isinstance(version, int):
        shown = version if isinstance(version, int) and abs(version) < 10**6 else "unknown"
        fail(
            f"format version {shown} is not known here (this software reads version "
            f"{form_version}); update noisewise"
        )
    try:
        content = {k: v for k, v in document.items() if k not in ("digest", "signature")}
        expected = digest_of(content)
    except RecursionError:
        fail("nested too deeply")
    if "digest" not in document:
        fail("the document lacks 'digest'")
    if document["digest"] != expected:
        fail("the digest does not match the content: the file was damaged or edited")


def take(document: Any, where: str, keys: tuple[str, ...]) -> list[Any]:
    """The values of exactly these keys, in order."""
    if not isinstance(document, dict):
        fail(f"{where} must be an object")
    missing = [key for key in keys if key not in document]
    unknown = [key for key in document if key not in keys]
    if missing:
        fail(f"{where} lacks '{missing[0]}'")
    if unknown:
        fail(f"{where} has the unknown key {unknown[0][:40]!r}")
    return [document[key] for key in keys]


def integer(value: Any, where: str, low: int, high: int) -> int:
    """A whole number within these limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        fail(f"{where} must be a whole number from {low} to {high}")
    return value


def real(value: Any, where: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail(f"{where} must be a number")
    number = float(value)
    if not math.isfinite(number):
        fail(f"{where} must be a finite number")
    return number


def text(value: Any, where: str, limit: int = MAX_NAME) -> str:
    """A short text."""
    if not isinstance(value, str) or len(value) > limit:
        fail(f"{where} must be text of at most {limit} characters")
    return value


def items(value: Any, where: str) -> list[Any]:
    """A list of anything."""
    if not isinstance(value, list):
        fail(f"{where} must be a list")
    return value


def integers(value: Any, where: str, limit: int = MAX_INTEGER) -> tuple[int, ...]:
    """A list of whole numbers of at most this size."""
    return tuple(integer(v, f"each of {where}", -limit - 1, limit) for v in items(value, where))


def fraction(value: Any, where: str) -> Fraction:
    """An exact number, which is written as text."""
    if not isinstance(value, str):
        fail(f"{where} must be a number written as text")
    return as_fraction(value, where)


def texts(value: Any, where: str, limit: int = MAX_NAME) -> tuple[str, ...]:
    """A list of short texts."""
    return tuple(text(item, where, limit) for item in items(value, where))


# ---------------------------------------------------------------------------------------------
# What every kind of Release is: a document with a schema and a privacy claim. The kinds differ in
# what their documents say between these two, and in what they check


@dataclass(frozen=True, kw_only=True)
class BaseRelease(ABC):
    """The way of a Release into a file and back; each kind is a frozen dataclass."""

    # How a reader knows the kind
    FORMAT: ClassVar[str]
    FORMAT_VERSION: ClassVar[int]
    # The keys of this kind's own, in the order of the document, and those that may be absent
    KEYS: ClassVar[tuple[str, ...]]
    OPTIONAL: ClassVar[tuple[str, ...]] = ()

    n: int | None  # number of rows where it is public (``replace_one``), else None
    claim: Claim  # the guarantee that was asked for
    event: Event  # what composition needs to know; `claim` follows from it
    label: str = ""  # distinguishes Releases of otherwise equal requests, such as one a quarter
    software: str = ""
    signature: Signature | None = field(default=None, compare=False, repr=False)

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The declared columns, and who is protected."""

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """What this kind says under its `KEYS`."""

    @classmethod
    @abstractmethod
    def _read(cls, document: Received) -> Self:
        """Read what `_content` wrote. May raise any NoisewiseError, or an error of arithmetic."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The JSON document, without digest and signature."""
        return {
            "format": self.FORMAT,
            "format_version": self.FORMAT_VERSION,
            "software": self.software,
            "label": self.label,
            "schema": self.schema.to_dict(),
            **self._content(),
            "privacy": {"claim": self.claim.to_json(), "event": event_to_json(self.event)},
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the document in canonical form."""
        return digest_of(self.document)

    def _repr_html_(self) -> str:
        """What a notebook shows: what was published, about whom, at what privacy."""
        schema, design = self.schema, getattr(self, "design", None)
        lines = {
            "kind": self.FORMAT,
            "data set": schema.dataset,
            "rows": "a private number" if self.n is None else f"{self.n:,}",
            "privacy": str(self.claim),
            "protects": schema.unit,
            "label": self.label,
            "target": "" if design is None else design.target,
            "columns": ", ".join(schema.columns),
            "digest": self.digest,
            "signature": in_words(self.signature),
        }
        return _html.table(("", ""), [(name, text) for name, text in lines.items() if text])

    def to_text(self) -> str:
        """The JSON text of the file."""
        return dumps(self.document, self.signature)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read and check a Release; raises ReleaseError and nothing else."""
        return reading(cls._from_document, text)

    @classmethod
    def _from_document(cls, document: Any) -> Self:
        check_envelope(document, cls.FORMAT, cls.FORMAT_VERSION)
        before = ("format", "format_version", "software", "label", "schema")
        optional = (key for key in cls.OPTIONAL if key in document)
        signed = ("signature",) if "signature" in document else ()
        keys = (*before, *cls.KEYS, *optional, "privacy", "digest", *signed)
        take(document, "the document", keys)
        take(document["privacy"], "privacy", ("claim", "event"))
        release = cls._read(Received(document))
        if release.signature is not None:
            release.signature.check(release.document)
        return release


class RegressionRelease(BaseRelease):
    """A Release of statistics of a regression."""

    design: Design

    @property
    def schema(self) -> Schema:
        """The declared columns that were read, and who is protected."""
        return self.design.schema


@dataclass(frozen=True)
class Received:
    """A document with the right keys and a digest that matches. Its values are still untrusted.

    ``received[key]`` is a value as it came; properties check what they hand out.
    """

    values: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def __contains__(self, key: str) -> bool:
        return key in self.values

    @property
    def schema(self) -> Schema:
        return Schema.from_dict(self["schema"])

    @property
    def design(self) -> Design:
        """Of the kinds that are about a regression."""
        return self.design_of(text(self.values.get("family", "linear"), "family"))

    def design_of(self, family: Any) -> Design:
        """The same of a family that the document doesn't have by that name."""
        features = texts(self["features"], "features", MAX_TERM)
        design = Design(self.schema, features, text(self["target"], "target", MAX_TERM), family)
        if "design_columns" in self:
            named = texts(self["design_columns"], "design_columns", MAX_DESIGN_NAME)
            if named != design.names:
                fail("design_columns do not follow from the schema and the features")
        return design

    @property
    def common(self) -> dict[str, Any]:
        """The fields that Releases of every kind have, by name."""
        return {
            "n": None if self["n"] is None else integer(self["n"], "n", 1, MAX_ROWS),
            "claim": Claim.from_json(self["privacy"]["claim"]),
            "event": event_from_json(self["privacy"]["event"]),
            "label": text(self["label"], "label"),
            "software": text(self["software"], "software"),
            "signature": _signature(self["signature"]) if "signature" in self else None,
        }


def _signature(document: Any) -> Signature:
    """Read what `Signature.to_json` wrote; it is checked once the Release has been read."""
    scheme, *fields = take(document, "signature", ("scheme", "key", "date", "value"))
    if scheme != SCHEME:
        raise SignatureError("release: the signature is of a kind that is not known here")
    return Signature(*fields)


def geometry_from_json(document: Any) -> Geometry:
    """Read what `geometry_to_dict` wrote."""
    if document == {"kind": "box"}:
        return Box()
    kind, radius = take(document, "geometry", ("kind", "radius"))
    if kind != "ball":
        fail("geometry must be a box or a ball")
    return Ball(radius)


# --- checks that several kinds make, however a Release was made -----------------------------------


def check_n(release: BaseRelease) -> None:
    """The number of rows is either public and there, or private and not there."""
    if release.schema.n_is_public != (release.n is not None):
        fail("n must be given under replace_one and must be absent under add_remove_one")


def pure_event(release: BaseRelease, refusal: str) -> PureEvent:
    """The event of a purely private Release, if the claim follows from it."""
    event, claim = release.event, release.claim
    if not isinstance(event, PureEvent) or not claim.is_pure:
        fail(refusal)
    assert claim.epsilon is not None
    if event.epsilon > claim.epsilon:
        fail("the privacy claim does not follow from the event")
    return event
