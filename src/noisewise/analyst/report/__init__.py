"""One self-contained HTML page about a posterior, for whoever has to act on it.

`page` frames what `regression_page`, `summary_page` and `network_page` have to say. `sections` has
what they share, `words` says what numbers mean, `charts` and `graph` draw, `markup` escapes.
Nothing is fetched when the page is read: styles and pictures are inside, there is no script.
"""

from noisewise.analyst.report.page import render, write_report

__all__ = ["render", "write_report"]
