"""What a notebook shows: small tables in HTML, with every text escaped.

Names come from files of others, so nothing but `escape` may put a text into a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table; the first column is text, the others are numbers."""
    said = f"<caption style='text-align: left'>{escape(caption)}</caption>" if caption else ""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table>{said}<thead><tr>{cells}</tr></thead><tbody>{_body(rows)}</tbody></table>"


def _body(rows: Iterable[Sequence[str]]) -> str:
    return "".join(
        f"<tr><th style='text-align: left'>{escape(row[0])}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )


def paragraphs(texts: Iterable[str]) -> str:
    """Texts, one below the other."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)
