"""From a request to words: what every publishing command does, whatever it publishes."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from noisewise._progress import progress_bar
from noisewise.cli.budget import (
    account,
    account_json,
    account_line,
    charges_of,
    quote_json,
    say_quote,
)

if TYPE_CHECKING:
    from noisewise.core.schema import Schema
    from noisewise.holder.ledger import Charge, Ledger
    from noisewise.holder.requests.base import Publishable
    from noisewise.holder.requests.regression import Request


@dataclass(frozen=True)
class Errand:
    """Where rows come from, where the Release goes, who pays, and how it is told.

    Parameters
    ----------
    data, ledger, out, engine, table, query
        As `publish` takes them.
    as_json : bool
        Say it as JSON.
    purpose : str
        As `publish` takes it.
    """

    data: Path
    ledger: Path
    out: Path | None
    engine: str
    table: str | None
    query: str | None
    as_json: bool
    purpose: str = ""

    @property
    def source(self) -> dict[str, Any]:
        """How the rows are read."""
        return {"engine": self.engine, "table": self.table, "query": self.query}


def publish_and_say(
    request: Publishable[Any],
    errand: Errand,
    *,
    doing: str = "summing",
    note: str = "",
    renewal: str = "give the request a --label",
) -> None:
    """Publish, with a progress bar, and say what happened and what is left of the budget.

    Parameters
    ----------
    request : Publishable
    errand : Errand
    doing : str
        What the progress bar says.
    note : str
        To be said after a new Release.
    renewal : str
        What to do if the rows are new and the request is not.
    """
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.publish import publish

    dataset, out, ledger = request.schema.dataset, errand.out, errand.ledger
    with Ledger(ledger) as budget:
        charge = request.charge(table=errand.table, query=errand.query)
        _say_rehearsal(budget, charge, errand, request)
        with progress_bar(doing, unit="rows", show=sys.stderr.isatty()) as progress:
            outcome = publish(
                request,
                errand.data,
                ledger=budget,
                out=out,
                purpose=errand.purpose,
                progress=progress,
                **errand.source,
            )
        left = account(budget, dataset)
    if errand.as_json:
        document = {"release": str(out), "digest": outcome.release.digest}
        typer.echo(json.dumps({**document, "repeated": outcome.repeated, **account_json(left)}))
        return
    if not outcome.repeated:
        typer.echo(f"Published {out} with {outcome.release.claim}.")
        if note:
            typer.echo(note)
    else:
        typer.echo(
            f"Wrote {out}: the stored Release of this request, at no cost. Nothing was read. A "
            f"second draw of noise would be a second release. If the data are new, {renewal}; "
            "that is then charged."
        )
    typer.echo(account_line(left))


def partition(
    request: Request, schema: Schema, column: str, errand: Errand, *, dry_run: bool
) -> None:
    """Publish one Release for every level of a column, or say what that would cost.

    Parameters
    ----------
    request : Request
        What is asked of every part.
    schema : Schema
        Declares the column.
    column : str
    errand : Errand
        `out` is the folder of the Releases.
    dry_run : bool
    """
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.partition import Partition, publish_partition
    from noisewise.holder.publish import check_columns

    assert errand.out is not None
    parts = Partition(request, column, schema, errand.table, errand.query)
    files = parts.files(errand.out)
    levels = dict(zip(parts.levels, map(str, files), strict=True))
    with Ledger(errand.ledger) as budget:
        _say_rehearsal(budget, parts.charges[0], errand, parts.plan())
        if dry_run:
            check_columns(parts.plan(), errand.data, **errand.source)
            # Parts of a series cost as much as the costliest, and all of them cost the same.
            quote = budget.preview(parts.charges[0])
        else:
            with progress_bar("summing", unit="rows", show=sys.stderr.isatty()) as progress:
                outcome = publish_partition(
                    parts,
                    errand.data,
                    ledger=budget,
                    out=errand.out,
                    engine=errand.engine,
                    purpose=errand.purpose,
                    progress=progress,
                )
            left = account(budget, schema.dataset)
    if dry_run:
        if errand.as_json:
            typer.echo(json.dumps({"releases": levels, "budget": quote_json(quote)}))
        else:
            typer.echo(
                f"Dry run: nothing is read, spent or written. One Release for each of the "
                f"{len(levels)} levels of '{column}', together for {request.claim}."
            )
            say_quote(quote)
        if not quote.allowed:
            raise typer.Exit(5)
        return
    repeated = all(one.repeated for one in outcome.values())
    if errand.as_json:
        typer.echo(json.dumps({"releases": levels, "repeated": repeated, **account_json(left)}))
        return
    done = "Wrote the stored Releases, at no cost" if repeated else f"Published {request.claim} for"
    typer.echo(f"{done}: {len(levels)} levels of '{column}', together the cost of one:")
    for level, file in levels.items():
        typer.echo(f"  {level}: {file}")
    typer.echo(account_line(left))


def _say_rehearsal(ledger: Ledger, charge: Charge, errand: Errand, columns: Any) -> None:
    """Before the first charge of a data set, say how to find out privately whether it fits.

    Nothing is said where the charge will not come about: the refusal says enough.
    """
    from noisewise.core.errors import NoisewiseError
    from noisewise.holder.publish import check_columns

    dataset = charge.dataset
    if errand.as_json or any(charges_of(ledger, dataset)):
        return
    try:
        check_columns(columns, errand.data, **errand.source)
        if not ledger.preview(charge).allowed:
            return
    except NoisewiseError:
        return
    command = ["noisewise", "schema", "check", "SCHEMA", "--data", str(errand.data)]
    command += ["--table", errand.table] if errand.table else []
    command += ["--query", errand.query] if errand.query else []
    typer.echo(
        f"First release of '{dataset}': a charge is final once a row is read. Whether the data fit "
        f"is found out at no cost by: {shlex.join(command)}",
        err=True,
    )


def dry_run(
    request: Publishable[Any], errand: Errand, *, lines: list[str], document: dict[str, Any]
) -> None:
    """Check everything that can be checked, and show plan and cost. Reads no row, spends nothing.

    Parameters
    ----------
    request : Publishable
    errand : Errand
        No `out`, no check that it can be written.
    lines : list of str
        The plan in words.
    document : dict
        The plan as JSON.
    """
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.publish import check_columns, check_writable

    request.check_size()
    if errand.out is not None:
        check_writable(errand.out)
    check_columns(request, errand.data, **errand.source)
    with Ledger(errand.ledger) as budget:
        charge = request.charge(table=errand.table, query=errand.query)
        _say_rehearsal(budget, charge, errand, request)
        quote = budget.preview(charge)
    if errand.as_json:
        typer.echo(json.dumps({**document, "budget": quote_json(quote)}))
    else:
        typer.echo(f"Dry run: nothing is read, spent or written. Asked for: {request.claim}.")
        typer.echo(f"Privacy unit: {quote.unit}.")
        for line in lines:
            typer.echo(line)
        say_quote(quote)
    if not quote.allowed:
        raise typer.Exit(5)
