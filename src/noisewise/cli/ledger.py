"""`noisewise ledger`: see and set privacy budgets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from noisewise.cli.budget import account, account_json, account_line
from noisewise.cli.options import LedgerOption, PrintJsonOption

if TYPE_CHECKING:
    from noisewise.holder.ledger import Account

app = typer.Typer(no_args_is_help=True, help="See and set privacy budgets.")


@app.command("cap")
def ledger_cap(
    ledger: LedgerOption,
    dataset: Annotated[str, typer.Option("--dataset", help="Name of the data set.")],
    epsilon: Annotated[str, typer.Option("--epsilon", help="Largest total privacy loss.")],
    delta: Annotated[
        str, typer.Option("--delta", help="Needed for Gaussian releases; 0 allows pure ones only.")
    ] = "0",
) -> None:
    """Set how much privacy loss a data set may ever cost in total.

    Example: noisewise ledger cap --ledger budget.db --dataset people --epsilon 3 --delta 1e-5
    """
    from noisewise.core.privacy import as_fraction
    from noisewise.holder.ledger import Ledger

    with Ledger(ledger) as budget:
        budget.set_cap(dataset, as_fraction(epsilon, "epsilon"), as_fraction(delta, "delta"))
        line = account_line(account(budget, dataset))
    typer.echo(line)


@app.command("show")
def ledger_show(
    ledger: LedgerOption,
    as_json: PrintJsonOption = False,
) -> None:
    """Show every data set's cap, what is spent and what remains, and all charges.

    Charges add up, pending ones included. Of the batches of a series that is declared disjoint only
    the costliest counts; different series add up.

    Example: noisewise ledger show --ledger budget.db
    """
    from noisewise.holder.ledger import Ledger

    with Ledger(ledger, create=False) as budget:
        accounts = budget.accounts()
    if as_json:
        typer.echo(json.dumps({"datasets": [account_json(a) for a in accounts]}, indent=1))
        return
    if not accounts:
        typer.echo(f"{ledger}: no data set yet.")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for each in accounts:
        console.print(account_line(each), markup=False, highlight=False)
        streams = any(record.charge.batch is not None for record in each.charges)
        columns = ("series", "batch") if streams else ()
        table = Table("charged (UTC)", "status", "epsilon", "delta", *columns, "what")
        for record in each.charges:
            charge = record.charge
            table.add_row(
                record.reserved_at[:19].replace("T", " "),
                record.status,
                f"{float(charge.epsilon):g}",
                f"{float(charge.delta):g}",
                *(Text(getattr(charge, column) or "") for column in columns),
                Text(charge.summary),
            )
        if each.charges:
            console.print(table)
        if streams:
            console.print(_what_is_added(each), markup=False, highlight=False)
        if any(record.status == "pending" for record in each.charges):
            console.print(_what_is_pending(each), markup=False, highlight=False)


def _what_is_pending(account: Account) -> str:
    """Which charges have no Release yet, and what to do."""
    from noisewise.holder.publish import REHEARSAL

    pending = [record for record in account.charges if record.status == "pending"]
    runs = "; ".join(f"{one.charge.summary} (epsilon {one.charge.epsilon})" for one in pending)
    return (
        f"Pending: {runs}. Charged and not published: the run was interrupted, or the data did "
        "not fit. It counts, because rows may have been read, and is never lifted. Repair the "
        "data if need be and give the same command again: it completes at no further cost. "
        f"{REHEARSAL}."
    )


def _what_is_added(account: Account) -> str:
    """How the charges of streams make up what is spent."""
    live = [record.charge for record in account.charges if record.counts]
    words = (
        "Spent: the charges without a series, and for every series those of its costliest batch "
        "(you declared that nobody is in two batches of a series), are added up."
    )
    if any(charge.batch is not None and charge.series is None for charge in live):
        words += " A batch without a series is not declared disjoint from any other: it is added."
    return words
