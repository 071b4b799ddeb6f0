"""Releases that are read as they are, without a fit: block summaries and posterior draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ..core.releases import AnyRelease


def is_read_as_released(release: AnyRelease) -> bool:
    """Whether there is nothing to fit."""
    from ..core.network_regression import RegressionSampleRelease
    from ..core.summary_release import SummaryRelease

    return isinstance(release, SummaryRelease | RegressionSampleRelease)


def show_release(path: Path, level: float, as_json: bool) -> bool:
    """Show a Release that needs no fit, if the file is one; others have to be fitted first."""
    from ..core.errors import RequestError
    from ..core.releases import load_release

    if path.suffix.lower() != ".json":
        return False
    release = load_release(path)
    if not is_read_as_released(release):
        raise RequestError(
            f"posterior: {path} is a Release; run `noisewise fit {path}` and show what it writes"
        )
    say([release], level, as_json)
    return True


def say(releases: list[AnyRelease], level: float = 0.95, as_json: bool = False) -> None:
    """What the Release says; several are refused with the reason."""
    from ..analyst.fit import fit
    from ..analyst.summaries.posterior import SummaryPosterior

    read: Any = fit(releases)  # type: ignore[arg-type]
    if as_json:
        document = read.to_dict(level) if isinstance(read, SummaryPosterior) else read.to_dict()
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    text = read.describe(level) if isinstance(read, SummaryPosterior) else read.describe()
    typer.echo(text)
    for warning in read.warnings:
        typer.echo(f"Warning: {warning}", err=True)
