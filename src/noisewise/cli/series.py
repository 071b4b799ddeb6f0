"""A batch of a series on the command line: its options, and where its Release goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from noisewise.cli.publishing import Errand
    from noisewise.holder.requests.regression import Request

AppendOption = Annotated[
    Path | None,
    typer.Option("--append", help="Folder of a series: write this batch's Release into it."),
]
BatchOption = Annotated[
    str | None, typer.Option("--batch", help="Name of the batch, such as 2026-09.")
]
DisjointOption = Annotated[
    bool,
    typer.Option(
        "--disjoint",
        help="I declare that nobody is in two batches of the series that --series names.",
    ),
]
SeriesOption = Annotated[
    str | None,
    typer.Option(
        "--series",
        help="Name of the series for --disjoint, the same for all its batches. Costs of other "
        "series of the data set are added.",
    ),
]


@dataclass(frozen=True)
class Batch:
    """A batch, the folder of its series, and the series' name if its batches are disjoint."""

    folder: Path
    name: str
    series: str | None

    def errand(self, request: Request, errand: Errand) -> Errand:
        """The errand with its output in the folder, which is checked; nothing is charged."""
        from noisewise.holder.ledger import Ledger
        from noisewise.holder.series import batch_path

        charge = request.charge(table=errand.table, query=errand.query)
        with Ledger(errand.ledger) as budget:
            out = batch_path(self.folder, self.name, request, charge, ledger=budget)
        return replace(errand, out=out)

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
    from noisewise.core.errors import RequestError
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
