"""The budget of one data set: as it is folded, as it is shown, and as a charge would leave it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from noisewise.core.composition import epsilon_of, within
from noisewise.core.privacy import Event
from noisewise.holder.ledger.amounts import down, exact, optional, up
from noisewise.holder.ledger.charges import Charge, ChargeRecord
from noisewise.holder.ledger.exposure import exposures


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
        return {
            "dataset": self.dataset,
            "unit": self.unit,
            "cap_epsilon": optional(self.cap_epsilon, exact),
            "cap_delta": optional(self.cap_delta, exact),
            "spent_epsilon": up(self.spent_epsilon, 12),
            "remaining_epsilon": optional(self.remaining_epsilon, lambda x: down(x, 12)),
            "charges": [charge.to_json() for charge in self.charges],
        }


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
        return {
            "dataset": self.dataset,
            "unit": self.unit,
            "already_published": self.already_published,
            "resumes": self.resumes,
            "allowed": self.allowed,
            "refusal": self.refusal,
            "cap_epsilon": optional(self.cap_epsilon, exact),
            "cap_delta": optional(self.cap_delta, exact),
            "spent_epsilon": up(self.spent_epsilon, 12),
            "remaining_before": optional(self.remaining_before, lambda x: down(x, 12)),
            "remaining_after": optional(self.remaining_after, lambda x: down(x, 12)),
        }


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
