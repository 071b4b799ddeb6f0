"""The command that turns a posterior into a page for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .analyst import PosteriorArgument


def add_to(app: typer.Typer) -> None:
    """Attach the command to the root command."""
    app.command("report")(report)


def report(
    posterior: PosteriorArgument,
    out: Annotated[Path, typer.Option("--out", help="Web page to write, .html.")] = Path(
        "report.html"
    ),
    level: Annotated[float, typer.Option("--level", help="Level of credible intervals.")] = 0.95,
    title: Annotated[
        str | None, typer.Option("--title", help="Heading. Default: the model in words.")
    ] = None,
) -> None:
    """Write a one-page report: what it says, how sure, what privacy cost, what was checked.

    The page is self-contained: no network, no script. It reads on a phone, prints, and may be
    published like the Release that it was made from.

    Example: noisewise report post.nc --out report.html
    """
    from ..analyst.networks.posterior_file import is_network_posterior
    from ..analyst.posterior_file import load_posterior
    from ..analyst.report import write_report
    from ..core.errors import RequestError

    if is_network_posterior(posterior):
        raise RequestError(
            f"posterior: {posterior} is of a network, and reports are of regressions; see its "
            f"tables with: noisewise show {posterior}"
        )
    write_report(load_posterior(posterior), out, level=level, title=title)
    typer.echo(f"Wrote {out}.")
