"""One self-contained HTML page about a posterior, for whoever has to act on it.

`page` arranges the sections, `words` says what numbers mean, `charts` draws, `markup` escapes.
Nothing is fetched when the page is read: styles and pictures are inside, there is no script.
"""

from .page import render, write_report

__all__ = ["render", "write_report"]
