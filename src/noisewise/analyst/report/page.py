"""The page: its head, its frame, and which sections are about which kind of posterior."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from noisewise._version import __version__
from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior.file import check_folder
from noisewise.analyst.posterior.network import NetworkPosterior
from noisewise.analyst.posterior.regression import Posterior
from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import network_page, regression_page, summary_page
from noisewise.analyst.report.markup import Markup, tag
from noisewise.analyst.report.sections import Contents
from noisewise.core.errors import RequestError

AnyPosterior = Posterior | SummaryPosterior | NetworkPosterior
# No script, no fetching: even if a name slipped through the escaping, it could do nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_report(
    posterior: AnyPosterior, path: str | Path, *, level: float = 0.95, title: str | None = None
) -> None:
    """Write one self-contained HTML page about a posterior.

    Parameters
    ----------
    posterior : Posterior, SummaryPosterior or NetworkPosterior
        What `noisewise.fit` makes of Releases: of a regression, of block summaries, of a network.
    path : path
        Ends in .html or .htm.
    level : float
        Of credible intervals.
    title : str, optional
        Heading of the page; the model in words by default.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise RequestError(f"out: {path} must end in .html; the report is a web page")
    check_folder(path)
    text = render(posterior, level=level, title=title)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the file system refused"
        raise RequestError(f"out: cannot write {path}: {reason}") from None


def render(posterior: AnyPosterior, *, level: float = 0.95, title: str | None = None) -> str:
    """The page as text; see `write_report`."""
    contents = _contents(posterior, probability("level", level))
    heading = title or contents.heading
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"noisewise {__version__}"),
        tag("title", heading),
        Markup(f"<style>{style}</style>"),
    )
    body = tag(
        "body",
        tag("header", tag("h1", heading), tag("p", contents.lead, class_="lead")),
        tag("main", *contents.sections),
        tag("footer", tag("p", f"Made by noisewise {__version__} from released files alone.")),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _contents(posterior: AnyPosterior, level: float) -> Contents:
    if isinstance(posterior, Posterior):
        return regression_page.contents(posterior, level)
    if isinstance(posterior, SummaryPosterior):
        return summary_page.contents(posterior, level)
    if isinstance(posterior, NetworkPosterior):
        return network_page.contents(posterior, level)
    raise RequestError(
        f"posterior: expected what noisewise.fit makes of Releases (of a regression, of block "
        f"summaries or of a network), got {type(posterior).__name__}"
    )
