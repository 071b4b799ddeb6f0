"""The budget of one data set: as it is folded, as it is shown, and as a charge would leave it.

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
`core.composition` only grows with an epsilon, with 1/noise_multiplier, with a slack and with the
number of events. Where there are still too many choices, all batches of a series are replaced by
their entrywise maximum, which covers each of them: more is counted then, never less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any

from noisewise.core.composition import epsilon_of, leaves_of, within
from noisewise.core.privacy import Event, GaussianEvent, PureEvent
from noisewise.holder.ledger.charges import Charge, ChargeRecord, down, exact, up


@dataclass(frozen=True)
class Account:
    """The budget of one data set, with all its charges in order.

    `unit` is None before the first charge, and cap and remainder are None where no cap is set.
    """

    dataset: str
    unit: str | None
    cap_epsilon: Fraction | None
    cap_delta: Fraction | None
    spent_epsilon: Fraction
    remaining_epsilon: Fraction | None
    charges: tuple[ChargeRecord, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; numbers are decimal or fraction text."""
        return {**_plain(self), "charges": [charge.to_json() for charge in self.charges]}


@dataclass(frozen=True)
class Quote:
    """What `Ledger.reserve` would answer, without any effect.

    Parameters
    ----------
    dataset, unit
        Of the charge asked about.
    already_published, resumes
        The request costs nothing more, since it is published or its charge is still pending.
    allowed
        Whether `Ledger.reserve` would accept.
    refusal
        The message of the BudgetError otherwise.
    cap_epsilon, cap_delta
        The cap that was set, or None.
    spent_epsilon
        What is spent at the cap's delta, rounded up, pending charges included.
    remaining_before, remaining_after
        Epsilon left of the cap, rounded down; None without a cap, the latter also when refused.
    """

    dataset: str
    unit: str
    already_published: bool
    resumes: bool
    allowed: bool
    refusal: str | None
    cap_epsilon: Fraction | None
    cap_delta: Fraction | None
    spent_epsilon: Fraction
    remaining_before: Fraction | None
    remaining_after: Fraction | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; numbers are decimal or fraction text."""
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
    records: dict[int, ChargeRecord] = field(default_factory=dict)

    def live(self) -> list[ChargeRecord]:
        """Return the charges that count."""
        return [record for record in self.records.values() if record.counts]

    def losses(self, extra: Charge | None = None) -> list[list[Event]]:
        """Return what one person may be exposed to, in every case that there is."""
        return exposures([one.charge for one in self.live()] + ([extra] if extra else []))

    def delta(self) -> Fraction:
        """Return the delta at which losses are added up: the cap's, else the largest charged.

        A ledger from when a first release could set the cap may hold charges without one.
        """
        return (
            self.cap[1]
            if self.cap
            else max((r.charge.delta for r in self.live()), default=Fraction(0))
        )

    def find(self, request_key: str) -> ChargeRecord | None:
        """Return the charge of a request that counts; there is never more than one."""
        return next((one for one in self.live() if one.charge.request_key == request_key), None)

    def summary(self) -> Account:
        """Return the account as it stands now."""
        live, remaining = self.live(), None
        if self.cap is None:
            spent = Fraction(total_epsilon(self.losses(), self.delta()))
        else:
            spent = _spent(self.losses(), *self.cap)
            remaining = remaining_epsilon(self.cap[0], spent)
        return Account(
            dataset=self.dataset,
            unit=live[0].charge.unit if live else None,
            cap_epsilon=None if self.cap is None else self.cap[0],
            cap_delta=None if self.cap is None else self.cap[1],
            spent_epsilon=spent,
            remaining_epsilon=remaining,
            charges=tuple(self.records.values()),
        )


def total_epsilon(losses: Sequence[Sequence[Event]], delta: Fraction) -> Fraction | float:
    """Return the epsilon spent at `delta` in the worst case, exact or rounded up.

    Infinite if none suffices.
    """
    totals = [epsilon_of(events, delta) for events in losses if events]
    if math.inf in totals:
        return math.inf
    return max((Fraction(total) for total in totals), default=Fraction(0))


def fits(losses: Sequence[Sequence[Event]], epsilon: Fraction, delta: Fraction) -> bool:
    """Tell whether every case is proven to be (epsilon, delta)-DP."""
    return all(within(events, epsilon, delta) for events in losses if events)


def remaining_epsilon(cap: Fraction, spent: Fraction | float) -> Fraction:
    """Return the epsilon left of the cap, never below zero."""
    return Fraction(0) if spent == math.inf else max(Fraction(0), cap - Fraction(spent))


def _spent(losses: Sequence[Sequence[Event]], cap: Fraction, delta: Fraction) -> Fraction:
    """Return what is spent: at most the cap where `within` proves that all of it fits.

    It may not fit into the cap of a ledger from before series had names, whose batches add up by
    now. The total is finite all the same: delta was positive when the cap let a Gaussian in.
    """
    total = total_epsilon(losses, delta)
    if total > cap and fits(losses, cap, delta):
        return cap
    return Fraction(total)


# --- what one person may be exposed to ------------------------------------------------------------

MOST_CASES = 16  # the accountants may take a second for each


@dataclass(frozen=True)
class Exposure:
    """The events that the people of a batch bear, the worst of each kind first."""

    pure: tuple[Fraction, ...]
    gaussian: tuple[tuple[float, float], ...]  # noise multiplier, slack

    @classmethod
    def of(cls, events: Iterable[Event]) -> Exposure:
        """Sort the events; how they were composed doesn't matter to any accountant."""
        leaves = list(leaves_of(events))
        pure = (one.epsilon for one in leaves if isinstance(one, PureEvent))
        gaussian = [
            (one.noise_multiplier, one.slack) for one in leaves if isinstance(one, GaussianEvent)
        ]
        return cls(
            tuple(sorted(pure, reverse=True)),
            tuple(sorted(gaussian, key=lambda one: (one[0], -one[1]))),
        )

    def joined(self, other: Exposure) -> Exposure:
        """Return the entrywise maximum: the least exposure in these lists that covers both."""
        pure = itertools.zip_longest(self.pure, other.pure, fillvalue=Fraction(0))
        gaussian = itertools.zip_longest(self.gaussian, other.gaussian, fillvalue=(math.inf, 0.0))
        return Exposure(
            tuple(max(pair) for pair in pure),
            tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in gaussian),
        )

    def covers(self, other: Exposure) -> bool:
        """Whether whoever can bear this can bear the other."""
        return self.joined(other) == self

    def events(self) -> list[Event]:
        """Return the exposure as events again."""
        return [*map(PureEvent, self.pure), *(GaussianEvent(*one) for one in self.gaussian)]


def exposures(charges: Sequence[Charge]) -> list[list[Event]]:
    """Return every case of what one person may be exposed to that no other case covers.

    At least one case, which is empty if there are no charges.
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
        everybody + [event for batch in chosen for event in batch.events()]
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
