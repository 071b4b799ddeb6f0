"""HTML that is safe by construction: text becomes markup through `tag` only, which escapes it.

Names of columns, levels and data sets come with a Release from somebody else. They may be
``<script>`` or hold characters that reverse the direction of writing; here they are text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape

VOID = frozenset({"br", "circle", "line", "meta", "path", "rect", "wbr"})


class Markup(str):
    """Finished markup; every other text is escaped when it is put into a tag."""

    __slots__ = ()


Content = str | int | None


def text(value: Content) -> Markup:
    """Escaped text. Control and direction-changing characters are shown, not obeyed."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup()
    return Markup(escape("".join(map(_visible, str(value))), quote=True))


def _visible(character: str) -> str:
    """Controls, invisible format characters and half surrogates become a symbol.

    The two joiners stay: Persian and Indian names are spelt with them.
    """
    if character in "\u200c\u200d":
        return character
    if character == "\n":
        return " "
    kind = unicodedata.category(character)
    return "\N{REPLACEMENT CHARACTER}" if kind in ("Cc", "Cf", "Cs", "Zl", "Zp") else character


def tag(name: str, /, *children: Content, **attributes: Content) -> Markup:
    """An element. A trailing underscore goes and others become hyphens: ``class_``, ``aria_label``.

    Attributes that are None are left out.
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{words}/>")
    return Markup(f"<{name}{words}>{''.join(map(text, children))}</{name}>")


def breakable(name: str) -> Markup:
    """A name that may go on in a new line after an underscore, where there is no room for it."""
    first, *rest = name.split("_")
    return join(first, *(join("_", tag("wbr"), part) for part in rest))


def join(*parts: Content) -> Markup:
    """Elements and texts one after another."""
    return Markup("".join(map(text, parts)))


# --- sections and tables that read well on a phone and to a screen reader ---------------------
#
# On narrow screens the style sheet turns a row into a card, with the column's name before each
# cell. Browsers drop the meaning of table elements that are laid out otherwise, so roles are spelt
# out.


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
