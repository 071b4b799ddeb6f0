"""Charges, and the budget of one data set: as it is folded, shown, and as a charge would leave it.

One person may be exposed to the worst batch of every series, and to all the rest.

**Declaration.** A charge that names a series s and a batch b (`Charge.series`) rests on the
holder's word that nobody is in two batches of s. Nothing is declared about batches of different
series: a month of one and a week of another may hold the same people. Nor is anything declared by
a charge without a series, whatever it calls its batch.

**Claim.** For every person there is one batch of every series such that the person's loss is
covered by the composition of (1) all charges without a series and (2) for every series, the
charges of that batch. So a budget covers everybody if it covers every choice of one batch from
every series: a maximum within a series, a sum over series and over what has none. For pure
epsilons, with E(s, b) the sum of those charged to batch b of s, and E those without a series,

    spent = sum of E + sum over s of (maximum over b of E(s, b)).

**Proof.** Let two data sets be neighbours: they differ in one person, whose privacy unit is one
row (`Charge` insists on it). By the declaration that row is in at most one batch b(s) of every
series s, and batches are formed without looking at values, so it is in the same one in both data
sets, wherever it is present. The input of any other batch of s is then the same in both. Given all
that was published before, a release of such a batch has the same law under both data sets and
adds nothing to the loss, whatever was chosen adaptively. What is left is an adaptive composition
of releases among (1) and, with b = b(s), (2). If the person is in no batch of s, any b will do:
charges that the person doesn't bear can only be too many. ∎

(`holder.partition` makes batches by a value of the row. That is sound where units are added or
removed: the row is in one of the two data sets only, hence in one batch. The proof is there.)

It is tight: people may be spread such that somebody is in the worst batch of every series at once
(`tests/property/test_parallel_composition.py` tries all ways to spread a few).

**Fewer cases.** The choices multiply with every series, so batches are compared first. Sort the
pure epsilons of a batch from the largest and its Gaussians from the least noise. A batch whose
list is nowhere above that of another batch (missing entries are the smallest) is covered by it:
an epsilon-DP mechanism is epsilon'-DP for every larger epsilon', and every accountant of
`core.composition`, and every sum of `core.privacy_filter`, only grows with an epsilon, with
1/noise_multiplier, with a slack and with the number of events and charges. Where there are still
too many choices, all batches of a series are replaced by their entrywise maximum, which covers each
of them: more is counted then, never less.
"""

from __future__ import annotations

import getpass
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Inexact
from fractions import Fraction
from functools import reduce
from typing import Any, Literal, get_args

from noisewise.core import privacy_filter
from noisewise.core.composition import epsilon_of, leaves_of, within
from noisewise.core.errors import RequestError
from noisewise.core.privacy import (
    LARGEST_LOSS,
    Event,
    GaussianEvent,
    PureEvent,
    as_fraction,
    event_from_json,
    event_to_json,
)
from noisewise.core.privacy_filter import Borne
from noisewise.core.schema import averages

Status = Literal["pending", "published", "void"]

# How a cap is kept. "filter" holds whatever the sizes of charges depend on, `core.privacy_filter`;
# "accountants" holds for sizes that were planned: it is the rule of caps with a delta from before
# there was the other, and of no new one. Without a delta both are the sum of pure epsilons.
Rule = Literal["accountants", "filter"]


@dataclass(frozen=True)
class Charge:
    """What a request would cost, known before any row is read.

    **The series.** What identifies it is the holder's promise about it, and a promise has no other
    handle than the name it is given. Whatever else a series has may change, or be shared by another
    series that splits the same people differently, without anybody noticing: the folder of its
    Releases, the columns, the names of the batches. So the name is given with every batch, belongs
    to one data set, and is never derived (but by `holder.partition`, which needs no promise). A
    mistaken new name makes a new series, whose cost is added: that costs budget, not privacy. A
    mistaken old name would merge two promises; `holder.series` refuses it unless the folder holds a
    Release of the series, and the ledger finds the same rows under two names.
    """

    # The key of its budget. Unicode is normalised (NFC), since two spellings that look alike must
    # not be two budgets.
    dataset: str
    request_key: str  # hex digest of the canonical request; the same key is the same release
    unit: str  # neighbour relation and privacy unit as one text, such as "replace_one/1"
    event: Event  # what the mechanism does, for composition
    # What was asked for. `event` may not cost more than that.
    epsilon: Fraction
    delta: Fraction
    summary: str  # one line for the audit trail: part of the request, never of the data
    # The batch of a stream that the rows belong to. By itself it declares nothing: a charge with a
    # batch and no series adds up like any other.
    batch: str | None = None
    # The series of the batch, if the holder declares that nobody is in two batches *of it*. Charges
    # of its batches then compose in parallel, and those of different series add up (the proof is
    # above). It needs a privacy unit of one row: whoever may own two may own them in two batches.
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
    attested_by: str = ""  # who answers for the query or table that is read now


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
    # Who answers for the query or table that was read: that its rows are each of one unit's rows
    attested_by: str = ""
    # Of the rows of a batch, or of those that the first part below was made from
    fingerprint: Mapping[str, Any] | None = field(default=None, repr=False)
    kept: tuple[str, ...] = field(default=(), repr=False)  # parts that are drawn, in order
    # Where the rows are that it was made for (`engines.where_rows_are`), if that is known
    source: Mapping[str, Any] | None = None

    @property
    def counts(self) -> bool:
        """Whether the charge is part of what is spent."""
        return self.status != "void"

    def to_json(self) -> dict[str, Any]:
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
            "attested_by": self.attested_by,
            "source": None if self.source is None else dict(self.source),
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


def asked_to_json(purpose: str, attested_by: str = "") -> dict[str, str]:
    """Return who asks, why, and who answers for what is read, for the same entry.

    It says nothing about which request it is.
    """
    purpose = purpose.strip()
    if not purpose.isprintable() or len(purpose) > 500:
        raise RequestError("purpose: give at most 500 printable characters on one line.")
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # no name in the environment, and none for the number
        user = "unknown"
    asked = {"user": user[:100] if user.isprintable() else "unknown", "purpose": purpose}
    # Only where somebody does, so that entries of other charges stay as they were.
    return {**asked, "attested_by": attested_by} if attested_by else asked


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


def rule_from_json(body: Mapping[str, Any]) -> Rule:
    """Read the rule of a cap. One from before there was a choice says nothing."""
    rule = body.get("rule", "accountants")
    if rule not in get_args(Rule):
        raise ValueError(f"rule: {rule!r} is unknown")
    known: Rule = rule
    return known


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


# --- accounts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """The budget of one data set, with all its charges in order.

    `unit` is None before the first charge; cap, its rule and what remains are None where no cap is
    set.
    """

    dataset: str
    unit: str | None
    cap_epsilon: Fraction | None
    cap_delta: Fraction | None
    rule: Rule | None
    next_rule: Rule  # of the next cap
    # The least epsilon of a cap with this delta that the charges fit into
    spent_epsilon: Fraction
    # What the next charge may cost if it is pure, and if it is Gaussian, at the cap's delta. With
    # the rule "accountants" both are the cap's epsilon less what is spent
    remaining_epsilon: Fraction | None
    remaining_gaussian: Fraction | None
    charges: tuple[ChargeRecord, ...]

    def to_json(self) -> dict[str, Any]:
        return {**_plain(self), "charges": [charge.to_json() for charge in self.charges]}


@dataclass(frozen=True)
class Quote:
    """What `Ledger.reserve` would answer, without any effect."""

    dataset: str
    unit: str
    # The request costs nothing more, since it is published or its charge is still pending
    already_published: bool
    resumes: bool
    allowed: bool  # whether `Ledger.reserve` would accept
    refusal: str | None  # the message of the BudgetError otherwise
    cap_epsilon: Fraction | None  # the cap that was set
    cap_delta: Fraction | None
    rule: Rule | None
    spent_epsilon: Fraction  # at the cap's delta, rounded up, pending charges included
    # What remains as in `Account`, rounded down; None without a cap, the latter also when refused
    remaining_before: Fraction | None
    remaining_after: Fraction | None
    gaussian_before: Fraction | None
    gaussian_after: Fraction | None

    def to_json(self) -> dict[str, Any]:
        return _plain(self)


def _plain(record: Account | Quote) -> dict[str, Any]:
    """What is set is exact; what is spent is rounded up, and what is left down."""

    def shown(name: str, value: Any) -> Any:
        if not isinstance(value, Fraction):
            return value
        if name.startswith("cap"):
            return exact(value)
        return up(value, 12) if name.startswith("spent") else down(value, 12)

    return {name: shown(name, value) for name, value in vars(record).items()}


@dataclass
class OpenAccount:
    """One data set's cap and charges, while they are folded."""

    dataset: str
    cap: tuple[Fraction, Fraction] | None = None
    rule: Rule = "accountants"
    # Whether a charge was let in by another rule than the sum of pure epsilons or the filter
    was_planned: bool = False
    records: dict[int, ChargeRecord] = field(default_factory=dict)

    @property
    def next_rule(self) -> Rule:
        """Return the rule of the next cap.

        What a pure cap let in fits the filter of every larger cap: it goes on under that.
        """
        return "accountants" if self.was_planned else "filter"

    def add(self, record: ChargeRecord) -> None:
        """Take in a charge."""
        delta = record.charge.delta if self.cap is None else self.cap[1]
        if self.rule == "accountants" and delta > 0:
            self.was_planned = True
        self.records[record.charge_id] = record

    def live(self) -> list[ChargeRecord]:
        """Return the charges that count."""
        return [record for record in self.records.values() if record.counts]

    def losses(self, extra: Charge | None = None) -> list[Borne]:
        """Return what one person may be exposed to, in every case that there is."""
        return exposures([one.charge for one in self.live()] + ([extra] if extra else []))

    def delta(self) -> Fraction:
        """Return the delta at which losses are added up: the cap's, else the largest charged.

        A ledger from when a first release could set the cap may hold charges without one.
        """
        if self.cap:
            return self.cap[1]
        return max((one.charge.delta for one in self.live()), default=Fraction(0))

    def find(self, request_key: str) -> ChargeRecord | None:
        """Return the charge of a request that counts; there is never more than one."""
        return next((one for one in self.live() if one.charge.request_key == request_key), None)

    def summary(self) -> Account:
        """Return the account as it stands now."""
        live, losses = self.live(), self.losses()
        remaining: tuple[Fraction | None, Fraction | None] = None, None
        if self.cap is None:
            spent = Fraction(total_epsilon(losses, self.delta(), self.rule))
        else:
            spent = _spent(losses, *self.cap, self.rule)
            remaining = what_remains(losses, *self.cap, self.rule, spent)
        return Account(
            dataset=self.dataset,
            unit=live[0].charge.unit if live else None,
            cap_epsilon=None if self.cap is None else self.cap[0],
            cap_delta=None if self.cap is None else self.cap[1],
            rule=None if self.cap is None else self.rule,
            next_rule=self.next_rule,
            spent_epsilon=spent,
            remaining_epsilon=remaining[0],
            remaining_gaussian=remaining[1],
            charges=tuple(self.records.values()),
        )


def total_epsilon(losses: Sequence[Borne], delta: Fraction, rule: Rule) -> Fraction | float:
    """Return the epsilon spent at `delta` in the worst case, exact or rounded up.

    Infinite if none suffices.
    """
    if rule == "filter":
        totals = [privacy_filter.epsilon_spent(case, delta) for case in losses]
    else:
        totals = [epsilon_of(case.events, delta) for case in losses if case.events]
    if math.inf in totals:
        return math.inf
    return max((Fraction(total) for total in totals), default=Fraction(0))


def fits(losses: Sequence[Borne], epsilon: Fraction, delta: Fraction, rule: Rule) -> bool:
    """Tell whether every case fits into the cap."""
    if rule == "filter":
        return all(privacy_filter.fits(case, epsilon, delta) for case in losses)
    return all(within(case.events, epsilon, delta) for case in losses if case.events)


def what_remains(
    losses: Sequence[Borne],
    epsilon: Fraction,
    delta: Fraction,
    rule: Rule,
    spent: Fraction | float,
) -> tuple[Fraction, Fraction]:
    """Return what the next charge may cost, if it is pure and if it is Gaussian; never too much."""
    if rule == "filter":
        pure = privacy_filter.largest_pure(losses, epsilon, delta)
        return pure, privacy_filter.largest_gaussian(losses, epsilon, delta)
    left = Fraction(0) if spent == math.inf else max(Fraction(0), epsilon - Fraction(spent))
    return left, left if delta else Fraction(0)


def _spent(losses: Sequence[Borne], cap: Fraction, delta: Fraction, rule: Rule) -> Fraction:
    """Return what is spent: at most the cap where it is proved that all of it fits.

    It may not fit into the cap of a ledger from before series had names, whose batches add up by
    now. The total is finite all the same: delta was positive when the cap let a Gaussian in.
    """
    total = total_epsilon(losses, delta, rule)
    if total > cap and fits(losses, cap, delta, rule):
        return cap
    return Fraction(total)


# --- what one person may be exposed to ------------------------------------------------------------

MOST_CASES = 16  # the accountants may take a second for each


@dataclass(frozen=True)
class Exposure:
    """The events that the people of a batch bear, the worst of each kind first."""

    charges: int
    pure: tuple[Fraction, ...]
    gaussian: tuple[tuple[float, float], ...]  # noise multiplier, slack

    @classmethod
    def of(cls, events: Sequence[Event]) -> Exposure:
        """Sort the events of charges; how they were composed doesn't matter to any accountant."""
        leaves = list(leaves_of(events))
        pure = (one.epsilon for one in leaves if isinstance(one, PureEvent))
        gaussian = [
            (one.noise_multiplier, one.slack) for one in leaves if isinstance(one, GaussianEvent)
        ]
        return cls(
            len(events),
            tuple(sorted(pure, reverse=True)),
            tuple(sorted(gaussian, key=lambda one: (one[0], -one[1]))),
        )

    def joined(self, other: Exposure) -> Exposure:
        """Return the entrywise maximum: the least exposure in these lists that covers both."""
        pure = itertools.zip_longest(self.pure, other.pure, fillvalue=Fraction(0))
        gaussian = itertools.zip_longest(self.gaussian, other.gaussian, fillvalue=(math.inf, 0.0))
        return Exposure(
            max(self.charges, other.charges),
            tuple(max(pair) for pair in pure),
            tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in gaussian),
        )

    def covers(self, other: Exposure) -> bool:
        """Whether whoever can bear this can bear the other."""
        return self.joined(other) == self

    def events(self) -> list[Event]:
        """Return the exposure as events again."""
        return [*map(PureEvent, self.pure), *(GaussianEvent(*one) for one in self.gaussian)]


def exposures(charges: Sequence[Charge]) -> list[Borne]:
    """Return every case of what one person may be exposed to that no other case covers.

    At least one case, which is empty if there are no charges. A case may be that of several batches
    at once, entry by entry the worst of them: it has the most charges that one of them has.
    """
    everybody = [charge.event for charge in charges if charge.series is None]
    series: dict[str, dict[str, list[Event]]] = {}
    for charge in charges:
        if charge.series is not None:
            assert charge.batch is not None  # Charge insists on it
            batches = series.setdefault(charge.series, {})
            batches.setdefault(charge.batch, []).append(charge.event)
    choices = [
        _uncovered(Exposure.of(events) for events in series[name].values())
        for name in sorted(series)
    ]
    return [
        Borne(
            len(everybody) + sum(batch.charges for batch in chosen),
            (*everybody, *(event for batch in chosen for event in batch.events())),
        )
        for chosen in itertools.product(*_few(choices))
    ]


def _uncovered(batches: Iterable[Exposure]) -> list[Exposure]:
    """Return the batches that no other batch covers; of equal ones, the first."""
    kept: list[Exposure] = []
    for batch in batches:
        if not any(other.covers(batch) for other in kept):
            kept = [other for other in kept if not batch.covers(other)] + [batch]
    return kept


def _few(choices: list[list[Exposure]]) -> list[list[Exposure]]:
    """Merge the batches of a series, the richest first, until there are few combinations.

    The last series that offers a choice keeps it: its batches are cases one by one.
    """
    few = list(choices)
    while math.prod(map(len, few)) > MOST_CASES and sum(len(one) > 1 for one in few) > 1:
        richest = max(range(len(few)), key=lambda index: len(few[index]))
        few[richest] = [reduce(Exposure.joined, few[richest])]
    return few
