"""Budgets in words and as JSON: what a request would cost, and what an account has left."""

from __future__ import annotations

import unicodedata
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from noisewise.holder.ledger import Account, ChargeRecord, Ledger, Quote


def say_quote(quote: Quote) -> None:
    """What a request would cost, and what would be left."""
    if quote.already_published:
        typer.echo("Already published: asking again returns the stored Release at no cost.")
    if quote.refusal:
        typer.echo(quote.refusal)
        return
    if quote.cap_epsilon is None:  # already published, in a ledger from when caps need not be set
        return
    cap = f"epsilon {number(quote.cap_epsilon):g}"
    if quote.cap_delta:
        cap += f" at delta {number(quote.cap_delta):g}"
    typer.echo(f"Budget of '{quote.dataset}': cap {cap}.")
    before, after = quote.remaining_before, quote.remaining_after
    typer.echo(
        f"  spent so far {number(quote.spent_epsilon):.6g}, remaining {_down(before)} now and "
        f"{_down(before if after is None else after)} after this release."
    )


def number(value: Fraction) -> float:
    """The number as a float; a ledger from before caps had limits may hold one beyond floats."""
    return float(min(value, Fraction(10) ** 300))


def _down(value: Any) -> str:
    """Six digits, never more than there is; dust left by outward rounding is nothing."""
    left = number(value)
    if left < 1e-9:
        return "0"
    text = f"{left:.6g}"
    return text if float(text) <= left else f"{left - 1e-6 * abs(left):.6g}"


def account(ledger: Ledger, dataset: str) -> Account:
    """The account of this data set; the ledger keeps names in composed Unicode (NFC)."""
    return next(account for account in ledger.accounts() if account.dataset == _name(dataset))


def charges_of(ledger: Ledger, dataset: str) -> list[ChargeRecord]:
    """All charges of this data set, none if the ledger doesn't know it."""
    accounts = [account for account in ledger.accounts() if account.dataset == _name(dataset)]
    return [record for account in accounts for record in account.charges]


def _name(dataset: str) -> str:
    return unicodedata.normalize("NFC", dataset)


def account_line(account: Account) -> str:
    """Cap, spent and remaining, in a sentence."""
    spent = f"spent epsilon {number(account.spent_epsilon):.6g}"
    if account.cap_epsilon is None:
        return f"Budget of '{account.dataset}': no cap is set, {spent}; set one to go on."
    at = f" at delta {number(account.cap_delta):g}" if account.cap_delta else ""
    return (
        f"Budget of '{account.dataset}': cap epsilon {number(account.cap_epsilon):g}{at}, {spent}, "
        f"remaining {_down(account.remaining_epsilon)}."
    )


def account_json(account: Account) -> dict[str, Any]:
    """Numbers as JSON numbers for scripts; the exact text is in the ledger."""
    return _numbers(account.to_json())


def quote_json(quote: Quote) -> dict[str, Any]:
    """The same as `account_json` for what a request would cost."""
    return _numbers(quote.to_json())


def _numbers(document: dict[str, Any]) -> dict[str, Any]:
    from noisewise.core.privacy import as_fraction

    def convert(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [_numbers(item) if isinstance(item, dict) else item for item in value]
        amount = key.endswith(("epsilon", "delta")) or key.startswith("remaining")
        if amount and isinstance(value, str):
            return number(as_fraction(value, key))
        return value

    return {key: convert(key, value) for key, value in document.items()}
