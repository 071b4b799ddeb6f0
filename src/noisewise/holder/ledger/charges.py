"""A charge: asked for, reserved, and on record with what became of it."""

from __future__ import annotations

import getpass
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Inexact
from fractions import Fraction
from typing import Any, Literal

from noisewise.core.errors import RequestError
from noisewise.core.privacy import LARGEST_LOSS, Event, as_fraction, event_from_json, event_to_json
from noisewise.core.schema import averages

Status = Literal["pending", "published", "void"]


@dataclass(frozen=True)
class Charge:
    """What a request would cost, known before any row is read.

    Parameters
    ----------
    dataset
        Name of the data set, the key of its budget. Unicode is normalised (NFC), since two
        spellings that look alike must not be two budgets.
    request_key
        Hex digest of the canonical request. The same key is the same release.
    unit
        Neighbour relation and privacy unit as one text, for example ``"replace_one/1"``.
    event
        What the mechanism does, for composition.
    epsilon, delta
        What was asked for. `event` may not cost more than that.
    summary
        One line for the audit trail. Part of the request, never of the data.
    batch
        Name of the batch of a stream that the rows belong to. By itself it declares nothing: a
        charge with a batch and no series adds up like any other.
    series
        Name of the series that the batch belongs to, if the holder declares that nobody is in two
        batches *of this series*. Charges of its batches then compose in parallel, and those of
        different series add up (`accounts` has the proof). It needs a privacy unit of one row:
        whoever may own two rows may own them in two batches.

    Notes
    -----
    What identifies a series is the holder's promise about it, and a promise has no other handle
    than the name it is given. Whatever else a series has may change, or be shared by another
    series that splits the same people differently, without anybody noticing: the folder that its
    Releases are kept in (moved, copied, emptied, made again), the columns (the same in months and
    in weeks), the names of the batches. So the name is given with every batch, belongs to one data
    set, and is never derived (but by `holder.partition`, which needs no promise). A mistaken new
    name makes a new series, whose cost is added: that costs budget, not privacy. A mistaken old
    name would merge two promises; `holder.series` refuses it unless the folder holds a Release of
    the series, and the ledger finds the same rows under two names.
    """

    dataset: str
    request_key: str
    unit: str
    event: Event
    epsilon: Fraction
    delta: Fraction
    summary: str
    batch: str | None = None
    series: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", usable_name("dataset", self.dataset))
        if not re.fullmatch(r"[0-9a-f]{16,128}", self.request_key):
            raise RequestError(
                f"request_key={self.request_key!r} is not a lower-case hex digest of at least 16 "
                "digits: pass the digest of the canonical request."
            )
        if not self.unit or not self.unit.isprintable():
            raise RequestError(
                f"unit={self.unit!r} is not a printable text: pass the neighbour relation and the "
                "privacy unit, for example 'replace_one/1'."
            )
        # Two spellings that look alike must not be two batches: their costs would not add up.
        for what in ("batch", "series"):
            name = getattr(self, what)
            if name is not None:
                object.__setattr__(self, what, usable_name(what, name))
        if self.series is not None:
            self._check_declaration()
        # What is asked for has tighter limits (`Claim`); what an old ledger holds must be readable.
        epsilon, delta = as_fraction(self.epsilon, "epsilon"), as_fraction(self.delta, "delta")
        if not 0 < epsilon <= LARGEST_LOSS:
            raise RequestError(
                f"epsilon={exact(epsilon)} is no price of a release: ask for a positive epsilon "
                f"of at most {LARGEST_LOSS:,}."
            )
        if delta >= 1:
            raise RequestError(f"delta={exact(delta)} promises nothing: give one far below 1.")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    def _check_declaration(self) -> None:
        if self.batch is None:
            raise RequestError(
                f"series: {self.series!r} is a series of batches; name the batch too, or leave the "
                "series out"
            )
        if not (self.unit.endswith("/1") or averages(self.unit)):
            raise RequestError(
                f"series: the privacy unit is {self.unit!r}, so a person may own several rows and "
                "be in several batches; their losses add up. Leave the batches undeclared as "
                "disjoint, or protect one row per person"
            )

    def same_terms(self, other: Charge) -> bool:
        """Whether the other charge pays for exactly this one; the summary is only words."""
        return replace(self, summary="") == replace(other, summary="")


@dataclass(frozen=True)
class Reservation:
    """A charge that counts; hand it back to `Ledger.commit`."""

    charge: Charge  # what was charged
    charge_id: int  # number of the charge in the ledger
    # Text of the Release if this request was already published: hand this out, draw no noise
    published: str | None
    # The charge was left pending by an earlier run, which was interrupted or whose data did not fit
    # (or another process runs it right now)
    resumed: bool


@dataclass(frozen=True)
class ChargeRecord:
    """One charge and what became of it, for the audit trail; times are UTC in ISO 8601."""

    charge_id: int
    charge: Charge
    reserved_at: str
    status: Status = "pending"
    settled_at: str | None = None
    release_sha256: str | None = None
    void_reason: str | None = None
    user: str = ""  # empty in entries from before these were kept
    purpose: str = ""
    fingerprint: Mapping[str, Any] | None = field(default=None, repr=False)  # of a batch's rows
    kept: tuple[str, ...] = field(default=(), repr=False)  # parts that are drawn, in order

    @property
    def counts(self) -> bool:
        """Whether the charge is part of what is spent."""
        return self.status != "void"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; numbers are decimal or fraction text."""
        return {
            "charge_id": self.charge_id,
            "status": self.status,
            "reserved_at": self.reserved_at,
            "settled_at": self.settled_at,
            "summary": self.charge.summary,
            "request_key": self.charge.request_key,
            "unit": self.charge.unit,
            "series": self.charge.series,
            "batch": self.charge.batch,
            "epsilon": exact(self.charge.epsilon),
            "delta": exact(self.charge.delta),
            "event": event_to_json(self.charge.event),
            "release_sha256": self.release_sha256,
            "void_reason": self.void_reason,
            "user": self.user,
            "purpose": self.purpose,
        }


def charge_to_json(charge: Charge) -> dict[str, Any]:
    """Return the body of the entry that reserves a charge."""
    # Entries of charges without a batch stay as they were before there were batches. Those with
    # one avoid the field "batch" of software from before series had names, which took batches of
    # all series for disjoint: to it, these are charges without a batch, which add up.
    stream = {"series": charge.series, "batch": charge.batch}
    return {
        **({} if charge.batch is None else {"stream": stream}),
        "dataset": charge.dataset,
        "request_key": charge.request_key,
        "unit": charge.unit,
        "event": event_to_json(charge.event),
        "epsilon": exact(charge.epsilon),
        "delta": exact(charge.delta),
        "summary": charge.summary,
        "sets_cap": False,  # for software from before every cap was set by the holder
    }


def asked_to_json(purpose: str) -> dict[str, str]:
    """Return who asks and why, for the same entry. It says nothing about which request it is."""
    purpose = purpose.strip()
    if not purpose.isprintable() or len(purpose) > 500:
        raise RequestError("purpose: give at most 500 printable characters on one line.")
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # no name in the environment, and none for the number
        user = "unknown"
    return {"user": user[:100] if user.isprintable() else "unknown", "purpose": purpose}


def charge_from_json(body: dict[str, Any]) -> Charge:
    """Read what `charge_to_json` wrote.

    An entry from before series had names has a batch and no series. Which promise it was made
    under is unknown, and no two of them need be the same, so it counts as undeclared: it adds up.
    """
    stream = body.get("stream", {"series": None, "batch": body.get("batch")})
    return Charge(
        dataset=body["dataset"],
        request_key=body["request_key"],
        unit=body["unit"],
        event=event_from_json(body["event"]),
        epsilon=Fraction(body["epsilon"]),
        delta=Fraction(body["delta"]),
        summary=body["summary"],
        batch=stream["batch"],
        series=stream["series"],
    )


def usable_name(what: str, name: str) -> str:
    """Return the one spelling of the name of a data set, series or batch, if it is usable."""
    normal = unicodedata.normalize("NFC", name)
    if not normal or normal != normal.strip() or not normal.isprintable() or len(normal) > 200:
        raise RequestError(
            f"{what}={name!r} is not a usable name: give 1 to 200 printable characters without "
            "blanks around them."
        )
    return normal


# ---------------------------------------------------------------------------------------------
# Numbers as text: exact where they are kept, and rounded towards caution where they are shown


def exact(value: Fraction) -> str:
    """Return the number as text that reads back as the same number."""
    # Not core.claim.fraction_text, which is as exact but writes a delta of 1e-10 in full: people
    # read these in refusals and in the audit trail.
    return _short(value, 12, ROUND_FLOOR, lossless=True) or str(value)


def up(value: Fraction | float, digits: int = 6) -> str:
    """Return what is spent or needed, never less than it is."""
    return "infinity" if value == math.inf else _rounded(Fraction(value), digits, ROUND_CEILING)


def down(value: Fraction, digits: int = 6) -> str:
    """Return what is left, never more than it is."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: Fraction, digits: int, rounding: str) -> str:
    """Return short decimals as they are, and long ones rounded to so many digits."""
    return (
        _short(value, 12, rounding, lossless=True)
        or _short(value, digits, rounding, lossless=False)
        or ""
    )


def _short(value: Fraction, digits: int, rounding: str, *, lossless: bool) -> str | None:
    """Return `value` as a decimal of so many digits, or None if it must be exact and isn't."""
    context = Context(prec=digits, rounding=rounding)
    numerator, denominator = Decimal(value.numerator), Decimal(value.denominator)
    decimal = context.divide(numerator, denominator)
    if lossless and context.flags[Inexact]:
        return None
    decimal = decimal.normalize(context)
    small_or_huge = decimal != 0 and not -5 <= decimal.adjusted() < 12
    return str(decimal).lower() if small_or_huge else format(decimal, "f")
