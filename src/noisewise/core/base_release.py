"""What every kind of Release is: a strict JSON document with a schema and a privacy claim.

The kinds differ in what their documents say between these two, and in what they check.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from noisewise.core.claim import Claim
from noisewise.core.design import Design
from noisewise.core.document import (
    check_envelope,
    digest_of,
    dumps,
    fail,
    integer,
    reading,
    take,
    text,
    texts,
)
from noisewise.core.geometry import Ball, Box, Geometry
from noisewise.core.grid import MAX_ROWS
from noisewise.core.privacy import Event, PureEvent, event_from_json, event_to_json
from noisewise.core.schema import Schema


class BaseRelease(ABC):
    """The way of a Release into a file and back; each kind is a frozen dataclass.

    Attributes
    ----------
    FORMAT, FORMAT_VERSION
        How a reader knows the kind.
    KEYS
        The keys of this kind's own, in the order of the document.
    n : int or None
        Number of rows where it is public (``replace_one``), else None.
    claim : Claim
        The guarantee that was asked for.
    event : Event
        What composition needs to know; `claim` follows from it.
    label, software : str
    """

    FORMAT: ClassVar[str]
    FORMAT_VERSION: ClassVar[int]
    KEYS: ClassVar[tuple[str, ...]]

    n: int | None
    claim: Claim
    event: Event
    label: str
    software: str

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
        """The JSON document, without its digest."""
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

    def to_text(self) -> str:
        """The JSON text of the file."""
        return dumps(self.document)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read and check a Release; raises ReleaseError and nothing else."""
        return reading(cls._from_document, text)

    @classmethod
    def _from_document(cls, document: Any) -> Self:
        check_envelope(document, cls.FORMAT, cls.FORMAT_VERSION)
        before = ("format", "format_version", "software", "label", "schema")
        take(document, "the document", (*before, *cls.KEYS, "privacy", "digest"))
        take(document["privacy"], "privacy", ("claim", "event"))
        return cls._read(Received(document))


@dataclass(frozen=True)
class Received:
    """A document with the right keys and a digest that matches. Its values are still untrusted.

    ``received[key]`` is a value as it came; properties check what they hand out.
    """

    values: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def schema(self) -> Schema:
        """Of every kind."""
        return Schema.from_dict(self["schema"])

    @property
    def design(self) -> Design:
        """Of the kinds that are about a regression."""
        schema, features = self.schema, texts(self["features"], "features")
        return Design(schema, features, text(self["target"], "target"))

    @property
    def n(self) -> int | None:
        """Of every kind."""
        return None if self["n"] is None else integer(self["n"], "n", 1, MAX_ROWS)

    @property
    def claim(self) -> Claim:
        """Of every kind."""
        return Claim.from_json(self["privacy"]["claim"])

    @property
    def event(self) -> Event:
        """Of every kind."""
        return event_from_json(self["privacy"]["event"])

    @property
    def label(self) -> str:
        """Of every kind."""
        return text(self["label"], "label")

    @property
    def software(self) -> str:
        """Of every kind."""
        return text(self["software"], "software")


def geometry_from_json(document: Any) -> Geometry:
    """Read what `geometry_to_dict` wrote."""
    if document == {"kind": "box"}:
        return Box()
    kind, radius = take(document, "geometry", ("kind", "radius"))
    if kind != "ball":
        fail("geometry must be a box or a ball")
    return Ball(radius)


# ---------------------------------------------------------------------------------------------
# Checks that several kinds make, however a Release was made


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
