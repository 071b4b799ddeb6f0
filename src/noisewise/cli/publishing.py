"""From a request to words: what every publishing command does, whatever it publishes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from noisewise._progress import progress_bar
from noisewise.cli.holder import (
    account,
    account_json,
    account_line,
    charges_of,
    quote_json,
    say_quote,
)
from noisewise.cli.options import shown
from noisewise.core.errors import NoisewiseError, RequestError

if TYPE_CHECKING:
    from noisewise.core.schema import Schema
    from noisewise.holder.ledger import Charge, Ledger
    from noisewise.holder.requests.base import Publishable
    from noisewise.holder.requests.regression import Request


@dataclass(frozen=True)
class Publication:
    """Where rows come from, where the Release goes, who pays, and how it is told."""

    # As `publish` takes them
    data: str
    ledger: Path
    out: Path | None
    engine: str
    table: str | None
    query: str | None
    as_json: bool  # say it as JSON
    purpose: str = ""  # as `publish` takes it
    dry_run: bool = False  # only say what it would cost

    @property
    def source(self) -> dict[str, Any]:
        """How the rows are read."""
        return {"engine": self.engine, "table": self.table, "query": self.query}


def publish_and_say(
    request: Publishable[Any],
    publication: Publication,
    *,
    doing: str = "summing",
    note: str = "",
    renewal: str = "give the request a --label",
) -> None:
    """Publish, with a progress bar, and say what happened and what is left of the budget.

    `doing` is what the progress bar says, `note` what is said after a new Release, and `renewal`
    what to do if the rows are new and the request is not.
    """
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.publish import publish

    dataset, out, ledger = request.schema.dataset, publication.out, publication.ledger
    with Ledger(ledger) as budget:
        charge = request.charge(table=publication.table, query=publication.query)
        _say_rehearsal(budget, charge, publication, request)
        with progress_bar(doing, unit="rows", show=sys.stderr.isatty()) as progress:
            outcome = publish(
                request,
                publication.data,
                ledger=budget,
                out=out,
                purpose=publication.purpose,
                progress=progress,
                **publication.source,
            )
        left = account(budget, dataset)
    if publication.as_json:
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


def partition(request: Request, schema: Schema, column: str, publication: Publication) -> None:
    """Publish one Release for every level of a column, or say what that would cost.

    The request is what is asked of every part, the schema declares the column, and the
    publication's `out` is the folder of the Releases.
    """
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.partition import Partition, publish_partition
    from noisewise.holder.publish import check_columns

    assert publication.out is not None
    parts = Partition(request, column, schema, publication.table, publication.query)
    files = parts.files(publication.out)
    levels = dict(zip(parts.levels, map(str, files), strict=True))
    with Ledger(publication.ledger) as budget:
        _say_rehearsal(budget, parts.charges[0], publication, parts.plan())
        if publication.dry_run:
            check_columns(parts.plan(), publication.data, **publication.source)
            # Parts of a series cost as much as the costliest, and all of them cost the same.
            quote = budget.preview(parts.charges[0])
        else:
            with progress_bar("summing", unit="rows", show=sys.stderr.isatty()) as progress:
                outcome = publish_partition(
                    parts,
                    publication.data,
                    ledger=budget,
                    out=publication.out,
                    engine=publication.engine,
                    purpose=publication.purpose,
                    progress=progress,
                )
            left = account(budget, schema.dataset)
    if publication.dry_run:
        if publication.as_json:
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
    if publication.as_json:
        typer.echo(json.dumps({"releases": levels, "repeated": repeated, **account_json(left)}))
        return
    done = "Wrote the stored Releases, at no cost" if repeated else f"Published {request.claim} for"
    typer.echo(f"{done}: {len(levels)} levels of '{column}', together the cost of one:")
    for level, file in levels.items():
        typer.echo(f"  {level}: {file}")
    typer.echo(account_line(left))


def _say_rehearsal(ledger: Ledger, charge: Charge, publication: Publication, columns: Any) -> None:
    """Before the first charge of a data set, say how to find out privately whether it fits.

    Nothing is said where the charge will not come about: the refusal says enough.
    """
    from noisewise.holder.publish import check_columns

    dataset = charge.dataset
    if publication.as_json or any(charges_of(ledger, dataset)):
        return
    try:
        check_columns(columns, publication.data, **publication.source)
        if not ledger.preview(charge).allowed:
            return
    except NoisewiseError:
        return
    command = ["noisewise", "schema", "check", "SCHEMA", "--data", shown(publication.data)]
    command += ["--table", publication.table] if publication.table else []
    command += ["--query", publication.query] if publication.query else []
    typer.echo(
        f"First release of '{dataset}': a charge is final once a row is read. Whether the data fit "
        f"is found out at no cost by: {shlex.join(command)}",
        err=True,
    )


def as_charged(request: Publishable[Any], publication: Publication) -> Publishable[Any]:
    """The request as the ledger knows its words; see `holder.publish.as_charged`."""
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.publish import as_charged

    with Ledger(publication.ledger) as budget:
        return as_charged(request, budget, table=publication.table, query=publication.query)


def dry_run(
    request: Publishable[Any],
    publication: Publication,
    *,
    lines: list[str],
    document: dict[str, Any],
) -> None:
    """Check everything that can be checked, and show plan and cost. Reads no row, spends nothing.

    `lines` and `document` are the plan in words and as JSON. Without an `out` there is no check
    that it can be written.
    """
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.publish import check_columns, check_writable

    request.check_size()
    if publication.out is not None:
        check_writable(publication.out)
    check_columns(request, publication.data, **publication.source)
    with Ledger(publication.ledger) as budget:
        charge = request.charge(table=publication.table, query=publication.query)
        _say_rehearsal(budget, charge, publication, request)
        quote = budget.preview(charge)
    if publication.as_json:
        typer.echo(json.dumps({**document, "budget": quote_json(quote)}))
    else:
        typer.echo(f"Dry run: nothing is read, spent or written. Asked for: {request.claim}.")
        averaged = request.schema.unit_column is not None
        words = " (one person, averaged over all their rows)" if averaged else ""
        typer.echo(f"Privacy unit: {quote.unit}{words}.")
        for line in lines:
            typer.echo(line)
        say_quote(quote)
    if not quote.allowed:
        raise typer.Exit(5)


# --- a batch of a series --------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """A batch, the folder of its series, and the series' name if its batches are disjoint."""

    folder: Path
    name: str
    series: str | None

    def publication(self, request: Request, publication: Publication) -> Publication:
        """The publication with its output in the folder, which is checked; nothing is charged."""
        from noisewise.holder.ledger import Ledger
        from noisewise.holder.series import batch_path

        charge = request.charge(table=publication.table, query=publication.query)
        with Ledger(publication.ledger) as budget:
            out = batch_path(self.folder, self.name, request, charge, ledger=budget)
        return replace(publication, out=out)

    @contextmanager
    def folder_made(self) -> Iterator[None]:
        """Make the folder, unless nothing comes of it."""
        from noisewise.holder.series import made

        with made(self.folder):
            yield

    def in_words(self) -> str:
        """What is declared, and what it does to the budget."""
        if self.series is None:
            return f"Batch {self.name}: not declared disjoint, so its cost is added."
        return (
            f"Batch {self.name} of series {self.series}: you declare that nobody is in two batches "
            "of this series. Of its batches the costliest counts; other series and releases are "
            "added."
        )


def stated_batch(
    append: Path | None, batch: str | None, series: str | None, disjoint: bool, out: Path | None
) -> Batch | None:
    """The batch that the options state, None without any; refuses what only half states one."""
    from noisewise.holder.series import check_name

    if append is None and batch is None and series is None and not disjoint:
        return None
    if append is None or batch is None:
        raise RequestError(
            "append: a series needs both --append FOLDER and --batch NAME (and --disjoint with "
            "--series NAME if nobody is in two batches)"
        )
    if out is not None:
        raise RequestError(
            f"out: a batch is written to {append / f'{batch}.json'}, by its folder and name; leave "
            "--out out, or --append and --batch"
        )
    if disjoint and series is None:
        raise RequestError(
            "series: --disjoint declares that nobody is in two batches of a series; name the "
            "series, such as --series monthly, and keep the name for all its batches. It tells the "
            "ledger which batches are disjoint, wherever the folder is moved to"
        )
    if series is not None and not disjoint:
        raise RequestError(
            "series: the name belongs to the declaration --disjoint, that nobody is in two "
            "batches of the series; give both, or neither and let the costs add up"
        )
    check_name("batch", batch)
    if series is not None:
        check_name("series", series)
    return Batch(append, batch, series)
