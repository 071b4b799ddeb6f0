"""How `fit` and `show` read a Release of block summaries, which is its own posterior."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..analyst.summaries.posterior import SummaryPosterior
    from ..core.summary_release import SummaryRelease


def summary_among(paths: list[Path]) -> SummaryRelease | None:
    """The block summary, if that is what was given; it is read by itself."""
    from ..core.document import read_text
    from ..core.errors import ReleaseError, RequestError
    from ..core.summary_release import FORMAT, SummaryRelease

    found = None
    for path in paths:
        if not mentions(path, FORMAT):
            continue
        try:
            found = SummaryRelease.from_text(read_text(path))
        except ReleaseError as error:
            raise ReleaseError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    if found is not None and len(paths) > 1:
        raise RequestError(
            "releases: a block summary is read by itself; give it alone, and the others without it"
        )
    return found


def mentions(path: Path, form: str) -> bool:
    """Whether a file's first lines name this format; other readers say what is wrong with it."""
    try:
        with path.open("rb") as file:
            return form.encode() in file.read(4096)
    except OSError:
        return False


def say_summary(posterior: SummaryPosterior, level: float = 0.95, as_json: bool = False) -> None:
    """Show what a block summary says."""
    if as_json:
        typer.echo(json.dumps(posterior.to_dict(level), indent=1, allow_nan=False))
        return
    head, *_ = str(posterior).splitlines()
    typer.echo(head)
    typer.echo(str(posterior.summary(level)))
    for warning in posterior.warnings:
        typer.echo(f"Warning: {warning}", err=True)
