"""Releases that are read as they are, without a fit: block summaries and posterior draws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from noisewise.core.releases import AnyRelease


def is_read_as_released(release: AnyRelease) -> bool:
    """Whether there is nothing to fit."""
    from noisewise.core.network_regression import RegressionSampleRelease
    from noisewise.core.summary_release import SummaryRelease

    return isinstance(release, SummaryRelease | RegressionSampleRelease)


def show_release(path: Path, level: float, asked: list[str], as_json: bool) -> bool:
    """Show a Release that needs no fit, if the file is one; others have to be fitted first."""
    from noisewise.core.errors import RequestError
    from noisewise.core.releases import load_release

    if path.suffix.lower() != ".json":
        return False
    release = load_release(path)
    if not is_read_as_released(release):
        raise RequestError(
            f"posterior: {path} is a Release; run `noisewise fit {path}` and show what it writes"
        )
    say([release], level, asked, as_json)
    return True


def say(
    releases: list[AnyRelease],
    level: float = 0.95,
    asked: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """What the Release says, and probabilities of statements; several Releases are refused."""
    from noisewise.analyst.fit import fit
    from noisewise.analyst.posterior.summary import SummaryPosterior
    from noisewise.core.errors import RequestError

    read: Any = fit(releases)  # type: ignore[arg-type]
    is_summary = isinstance(read, SummaryPosterior)
    if asked and not is_summary:
        raise RequestError("ask: posterior draws are too few for a probability; leave it out")
    answers = {statement: read.prob(statement) for statement in asked}
    if as_json:
        document = read.to_dict(level) if is_summary else read.to_dict()
        document = {**document, "probabilities": answers}
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    typer.echo(read.describe(level) if is_summary else read.describe())
    for statement, probability in answers.items():
        typer.echo(f"P({statement}) = {probability:.4f}")
    for warning in read.warnings:
        typer.echo(f"Warning: {warning}", err=True)
