"""What may cross: a proposal towards a holder; a Release or one of a few words back.

Both directions are plain text in one flat record, so that a person, a firewall or a test can read
all of it. Each side treats what it receives as untrusted.

A refusal says nothing that depends on rows. The proposal, the holder's policy and its schema are
public or fixed before any row is read, so refusals that follow from them have a word of their own.
Everything that might depend on rows (a missing value, too few rows, a spent budget, a ledger that
is busy) is one word, ``refused``: the holder's log has the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, NoReturn

from noisewise.core.design import Design
from noisewise.core.errors import NoisewiseError
from noisewise.core.kinds.regression import Release
from noisewise.core.privacy import as_loss, fraction_text
from noisewise.core.schema import Column, Schema

RECORD = "noisewise"
VERSION = 1
FORMAT = "noisewise-proposal"
MAX_PROPOSAL = 1_000_000
MAX_RELEASE = 4_000_000  # twice the text of the largest design that noisewise supports

Fields = dict[str, str | int]


class ProposalError(NoisewiseError):
    """A proposal that isn't one."""

    exit_code = 2


class AnswerError(NoisewiseError):
    """An answer that is neither a Release nor a known refusal."""

    exit_code = 6


class Refusal(StrEnum):
    """All that a holder says instead of a Release."""

    BAD_PROPOSAL = "bad_proposal"
    NOT_ALLOWED = "not_allowed"
    SCHEMA_DIFFERS = "schema_differs"
    REFUSED = "refused"


REFUSAL_WORDS = {
    Refusal.BAD_PROPOSAL: "could not read the proposal; its version of noisewise may differ",
    Refusal.NOT_ALLOWED: "its policy does not allow this proposal",
    Refusal.SCHEMA_DIFFERS: "declares the columns with other bounds or levels",
    Refusal.REFUSED: "refused; only its own log says why",
}


@dataclass(frozen=True)
class Proposal:
    """What an analyst would like to learn. What it costs, each holder decides."""

    # Declares the columns; holders that declare them differently refuse before they spend anything,
    # because their Releases could not be combined
    schema: Schema
    target: str
    features: tuple[str, ...]
    # The most that any holder should spend on this. A holder that would spend more refuses.
    max_epsilon: Fraction | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        for name in self.names:
            if name not in self.schema.columns and not set(name) & set("(:`"):
                raise ProposalError(f"proposal: the schema does not declare the column {name!r}")
        _ = self.columns  # a numeric target, no feature twice, known terms
        if self.max_epsilon is not None:
            object.__setattr__(self, "max_epsilon", as_loss(self.max_epsilon, "max_epsilon"))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns and terms of the model, the target last."""
        return (*self.features, self.target)

    @property
    def columns(self) -> dict[str, Column]:
        """The model's columns as they are to be declared."""
        sources = Design(self.schema, self.features, self.target).sources
        return {name: self.schema.columns[name] for name in sources}

    def to_text(self) -> str:
        """JSON text; nothing of the schema but the model's columns."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "target": self.target,
            "features": list(self.features),
            "columns": self.schema.restricted_to(tuple(self.columns)).to_identity()["columns"],
            "max_epsilon": None if self.max_epsilon is None else fraction_text(self.max_epsilon),
        }
        return json.dumps(document, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_text(cls, text: object) -> Proposal:
        """Read and check a proposal; raises ProposalError and nothing else."""
        if not isinstance(text, str) or len(text) > MAX_PROPOSAL:
            raise ProposalError(f"proposal: expected text of at most {MAX_PROPOSAL:,} characters")
        try:
            return _read_proposal(json.loads(text, parse_constant=_no_constant))
        except ProposalError:
            raise
        except (NoisewiseError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise ProposalError(f"proposal: {type(error).__name__}: {error}"[:300]) from None


def _no_constant(name: str) -> NoReturn:
    raise ProposalError(f"proposal: {name} is not a number")


def _read_proposal(document: Any) -> Proposal:
    keys = {"format", "version", "target", "features", "columns", "max_epsilon"}
    if not isinstance(document, dict) or set(document) != keys:
        raise ProposalError(f"proposal: expected an object with the keys {', '.join(sorted(keys))}")
    if (document["format"], document["version"]) != (FORMAT, VERSION):
        raise ProposalError(f"proposal: not a {FORMAT} of version {VERSION}")
    target, features, cap = document["target"], document["features"], document["max_epsilon"]
    if not isinstance(target, str) or not isinstance(features, list):
        raise ProposalError("proposal: target must be text and features a list")
    if not all(isinstance(name, str) for name in features):
        raise ProposalError("proposal: features must be texts")
    if cap is not None and not isinstance(cap, str):
        raise ProposalError("proposal: max_epsilon must be text or null")
    schema = Schema.from_dict({"dataset": "proposal", "columns": document["columns"]})
    most = None if cap is None else as_loss(cap, "max_epsilon")
    return Proposal(schema, target, tuple(features), most)


# ---------------------------------------------------------------------------------------------
# Answers: exactly three fields, whichever of the two kinds it is, and a name if there is one


MAX_HOLDER_NAME = 60


def is_name(value: object) -> bool:
    """Whether it can be what a holder is called."""
    if not isinstance(value, str) or not value.strip():
        return False
    return len(value) <= MAX_HOLDER_NAME and value.isprintable()


def name_in(fields: Mapping[str, Any]) -> str:
    """What a holder calls itself in an answer; empty if it has no name, or none fit to be shown.

    Nobody vouches for it: two holders may have one name.
    """
    name = fields.get("name", "")
    return str(name) if is_name(name) else ""


def release_fields(release: Release) -> Fields:
    """The answer that carries a Release, in the one spelling that `Release.to_text` has.

    White space or the order of keys, as found in a file, could carry what a Release does not.
    """
    return {"version": VERSION, "status": "release", "release": release.to_text()}


def refusal_fields(refusal: Refusal) -> Fields:
    """The answer that carries a refusal."""
    return {"version": VERSION, "status": "refused", "code": refusal.value}


def read_fields(fields: Mapping[str, Any]) -> Release | Refusal:
    """Read an answer that came from somebody else.

    Raises
    ------
    AnswerError
        For anything but exactly a valid Release or exactly a refusal from the closed list.
    """
    version = fields.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version != VERSION:
        raise AnswerError("sent an answer of an unknown version")
    if fields.get("status") == "release" and _has(fields, ("version", "status", "release")):
        return _read_release(fields["release"])
    if fields.get("status") == "refused" and _has(fields, ("version", "status", "code")):
        code = fields["code"]
        if isinstance(code, str) and code in [refusal.value for refusal in Refusal]:
            return Refusal(code)
        raise AnswerError("refused with an unknown code")
    raise AnswerError("sent an answer that is neither a Release nor a refusal")


def _has(fields: Mapping[str, Any], names: Sequence[str]) -> bool:
    return set(fields) - {"name"} == set(names)


def _read_release(text: object) -> Release:
    if not isinstance(text, str):
        raise AnswerError("sent a Release that is not text")
    if len(text) > MAX_RELEASE:
        raise AnswerError(f"sent more than {MAX_RELEASE:,} characters; not a Release")
    try:
        return Release.from_text(text)
    except NoisewiseError as error:
        raise AnswerError(f"sent something that is not a valid Release ({error})") from None
