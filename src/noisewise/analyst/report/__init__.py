"""One self-contained HTML page about a posterior, for whoever has to act on it.

`regression`, `network`, `summary` and `draws` have what is said of each kind. `page` has what they
share, `words` says what numbers mean, `widgets` escapes and draws. Nothing is fetched when the page
is read: styles and pictures are inside, there is no script.
"""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from pathlib import Path

from noisewise import _palette
from noisewise._version import __version__
from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior.base import BasePosterior
from noisewise.analyst.posterior.file import write_text
from noisewise.analyst.report.page import Contents
from noisewise.analyst.report.widgets import Markup, tag
from noisewise.analyst.report.words import signatures_in_words
from noisewise.core.document import check_folder
from noisewise.core.errors import RequestError

__all__ = ["render", "write_report"]

# No script, no fetching: even if a name slipped through the escaping, it could do nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_report(
    posterior: BasePosterior, path: str | Path, *, level: float = 0.95, title: str | None = None
) -> None:
    """Write one self-contained HTML page about a posterior.

    Parameters
    ----------
    posterior : Posterior, NetworkPosterior, SummaryPosterior or DrawsPosterior
        What `noisewise.fit` makes of Releases.
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
    write_text(path, render(posterior, level=level, title=title))


def render(posterior: BasePosterior, *, level: float = 0.95, title: str | None = None) -> str:
    """The page as text; see `write_report`."""
    if not isinstance(posterior, BasePosterior):
        raise RequestError(
            f"posterior: expected what noisewise.fit makes of Releases, got "
            f"{type(posterior).__name__}"
        )
    page = import_module(f"{__name__}.{posterior.kind}")
    contents: Contents = page.contents(posterior, probability("level", level))
    heading = title or contents.heading
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"noisewise {__version__}"),
        tag("title", heading),
        Markup(f"<style>{_palette.css()}\n{style}</style>"),
    )
    said = "".join(f" {one}" for one in signatures_in_words(posterior.signatures))
    body = tag(
        "body",
        tag("header", tag("h1", heading), tag("p", contents.lead, class_="lead")),
        tag("main", *contents.sections),
        tag(
            "footer", tag("p", f"Made by noisewise {__version__} from released files alone.{said}")
        ),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
