"""A holder's rehearsal: what would this node answer, at what price? Spends and sends nothing.

    noisewise federation rehearse policy.yaml

Run it before joining. With it, a policy that cannot be answered fails on the holder's own screen
and not in front of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from noisewise.core.errors import BudgetError
from noisewise.federation.policy import Policy, read_policy
from noisewise.holder.ledger import Charge, Ledger, Quote
from noisewise.holder.schema_files import check_data


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal found."""

    lines: Sequence[str]  # for the holder
    within_budget: bool  # whether the budget pays for all rules together

    @property
    def exit_code(self) -> int:
        """For the command line, as of ``noisewise release --dry-run``."""
        return 0 if self.within_budget else BudgetError.exit_code


def rehearse(path: str | Path) -> Rehearsal:
    """Check a policy with its schema, ledger and data, and describe what it allows.

    Raises
    ------
    NoisewiseError
        With whatever would make the node refuse, a spent budget aside. Its message is for the
        holder.
    """
    policy = read_policy(path)
    quotes = _quotes(policy)
    _check_data(policy, quotes)
    lines = [*_prices(policy, quotes), "The data fit the schema and the rules."]
    if policy.unfilled:
        lines.append(
            "Without a fill value, a missing value makes this node refuse, which the server sees: "
            + ", ".join(policy.unfilled)
        )
    return Rehearsal(lines, all(quote.together.allowed for quote in quotes))


@dataclass(frozen=True)
class _Quotes:
    """What the ledger says to a rule by itself, and after the rules above it."""

    alone: Quote
    together: Quote


def _quotes(policy: Policy) -> list[_Quotes]:
    """A server may ask for all rules, so each is paid from what those above it leave."""
    quotes: list[_Quotes] = []
    above: list[Charge] = []
    with Ledger(policy.ledger, create=False) as ledger:
        for request in policy.requests:
            charge = policy.charge(request, ledger)
            quote = _Quotes(ledger.preview(charge), ledger.preview(charge, after=above))
            if quote.alone.refusal and quote.alone.cap_epsilon is None:
                raise BudgetError(quote.alone.refusal)
            if quote.together.allowed:
                above.append(charge)
            quotes.append(quote)
    return quotes


def _check_data(policy: Policy, quotes: Sequence[_Quotes]) -> None:
    """Read the data once, and ask of their number of rows what `publish` would ask."""
    names = {name for request in policy.requests for name in request.design.sources}
    n = check_data(
        policy.schema.restricted_to(tuple(sorted(names))),
        policy.data,
        engine=policy.engine,
        table=policy.table,
        query=policy.query,
    )
    for request, quote in zip(policy.requests, quotes, strict=True):
        if not quote.alone.already_published:
            request.check_rows(n)


def _prices(policy: Policy, quotes: Sequence[_Quotes]) -> list[str]:
    lines = []
    for number, (request, quote) in enumerate(zip(policy.requests, quotes, strict=True), 1):
        if quote.alone.already_published:
            state = "published before; costs nothing more"
        elif quote.together.allowed:
            state = "within the budget"
        elif quote.alone.allowed:
            state = (
                "NOT within the budget together with the rules above: whichever is asked for last "
                "would be refused; raise the cap, or leave a rule out"
            )
        else:
            state = "NOT within the budget: it would be refused; raise the cap, or ask for less"
        what = f"{request.design.target} ~ {' + '.join(request.design.features)}"
        lines.append(f"Rule {number}: {what} at {request.claim}, {state}.")
    return lines
