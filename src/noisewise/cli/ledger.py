"""`noisewise ledger`: see and set privacy budgets."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .budget import account, account_json, account_line
from .options import LedgerOption, PrintJsonOption

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
    from ..core.privacy import as_fraction
    from ..holder.ledger import Ledger

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

    Example: noisewise ledger show --ledger budget.db
    """
    from ..holder.ledger import Ledger

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

    console = Console()
    for each in accounts:
        console.print(account_line(each), markup=False, highlight=False)
        table = Table("charged (UTC)", "status", "epsilon", "delta", "what")
        for charge in each.charges:
            table.add_row(
                charge.reserved_at[:19].replace("T", " "),
                charge.status,
                f"{float(charge.charge.epsilon):g}",
                f"{float(charge.charge.delta):g}",
                charge.charge.summary,
            )
        if each.charges:
            console.print(table)
