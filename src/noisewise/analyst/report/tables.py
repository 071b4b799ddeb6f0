"""Sections and tables that read well on a phone and to a screen reader.

On narrow screens the style sheet turns a row into a card, with the column's name before each cell.
Browsers drop the meaning of table elements that are laid out otherwise, so roles are spelt out.
"""

from __future__ import annotations

from collections.abc import Sequence

from noisewise.analyst.report.markup import Content, Markup, breakable, join, tag


def section(name: str, title: str, *children: Content) -> Markup:
    """A part of the page with a heading that names it."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def _width(cell: Content) -> str | None:
    """Intervals and numbers stay on one line where there is room."""
    return "short" if len(str(cell)) <= 24 else None


def table(caption: str, head: Sequence[str], body: Sequence[Sequence[Content]]) -> Markup:
    """A table whose first column names the rows."""
    headers = [
        tag("th", label, scope="col", role="columnheader")
        if label
        else tag("td", role="cell", class_="corner")
        for label in head
    ]
    rows = [
        tag(
            "tr",
            tag("th", breakable(str(first)), scope="row", role="rowheader"),
            *(
                tag("td", cell, role="cell", data_label=label, class_=_width(cell))
                if cell != ""
                else tag("td", role="cell", class_="corner")
                for label, cell in zip(head[1:], rest, strict=True)
            ),
            role="row",
        )
        for first, *rest in body
    ]
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *headers, role="row"), role="rowgroup"),
        tag("tbody", join(*rows), role="rowgroup"),
        role="table",
    )


def facts(caption: str, known: Sequence[tuple[str, Content]]) -> Markup:
    """A table of what is known about one thing, a line each."""
    rows = [
        tag(
            "tr",
            tag("th", name, scope="row", role="rowheader"),
            tag("td", value, role="cell", class_="fact"),
            role="row",
        )
        for name, value in known
    ]
    body = tag("tbody", join(*rows), role="rowgroup")
    return tag("table", tag("caption", caption), body, role="table")
