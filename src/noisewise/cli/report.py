"""The command that turns a posterior into a page for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from noisewise.analyst.report.page import AnyPosterior


def add_to(app: typer.Typer) -> None:
    """Attach the command to the root command."""
    app.command("report")(report)


def report(
    posterior: Annotated[
        Path,
        typer.Argument(help="Posterior file that `fit` wrote, or a Release of block summaries."),
    ],
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

    A regression that was fitted:

    Example: noisewise report post.nc --out report.html

    Block summaries, a Release that needs no fit:

    Example: noisewise report summary.json --out summary.html

    A Bayesian network, whose Release is fitted first:

    Example: noisewise fit network.json --out network.nc

    Example: noisewise report network.nc --out network.html
    """
    from noisewise.analyst.report import write_report

    write_report(_read(posterior), out, level=level, title=title)
    typer.echo(f"Wrote {out}.")


def _read(path: Path) -> AnyPosterior:
    """What to report on; a Release that has to be fitted first is refused."""
    from noisewise.analyst.posterior.file import load_posterior
    from noisewise.analyst.posterior.network_file import load_network_posterior
    from noisewise.cli.network_analyst import is_network

    if path.suffix.lower() == ".json":
        return _read_release(path)
    return load_network_posterior(path) if is_network(path) else load_posterior(path)


def _read_release(path: Path) -> AnyPosterior:
    from noisewise.analyst.posterior.summary import SummaryPosterior
    from noisewise.cli.as_released import is_read_as_released
    from noisewise.core.errors import RequestError
    from noisewise.core.releases import load_release
    from noisewise.core.summary_release import SummaryRelease

    release = load_release(path)
    if isinstance(release, SummaryRelease):
        return SummaryPosterior(release)
    if is_read_as_released(release):
        raise RequestError(
            f"posterior: {path} holds posterior draws of a regression, too few for a report; see "
            f"them with: noisewise show {path}"
        )
    raise RequestError(
        f"posterior: {path} is a Release; run `noisewise fit {path}` and report what it writes"
    )
