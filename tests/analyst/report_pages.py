"""Reading a report as a machine reads it for people: elements, words and tables."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</title></style><svg onload=alert(3)>",
    "&lt;b&gt; 'quoted' `ticks`",
    "x" * 200,
)
# Everything that a page may be made of: nothing that runs, and nothing that fetches.
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "section", "aside",
    "footer", "h1", "h2", "h3", "p", "ul", "li", "strong", "span", "code", "pre", "table",
    "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "details", "summary",
    "svg", "g", "line", "circle", "rect", "path", "text", "wbr",
}  # fmt: skip


def assert_harmless(page):
    """Nothing on the page runs or fetches; gives back its outline."""
    outline = Outline(page)
    assert {name for name, _ in outline.elements} <= ALLOWED
    for name, attributes in outline.elements:
        assert not {"src", "href", "style"} & set(attributes), name
        assert not [key for key in attributes if key.startswith("on")], name
    assert "url(" not in page
    return outline


class Outline(HTMLParser):
    """Elements with their attributes, visible text, tables, and whether tags are balanced."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.tables, self._rows, self._caption = {}, [], ""
        self.feed(page)
        self.close()

    @property
    def said(self):
        """All text, with single spaces."""
        return " ".join("".join(self.words).split())

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in self.VOID:
            self.open.append(name)
        if name == "table":
            self._rows, self._caption = [], ""
        elif name == "tr":
            self._rows.append([])
        elif name in ("th", "td"):
            self._rows[-1].append("")
        elif name in ("p", "li", "h1", "h2", "h3", "summary", "figcaption", "caption"):
            self.words.append(" ")

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name
        if name == "table":
            assert self._caption not in self.tables, "two tables have the same caption"
            self.tables[self._caption] = self._rows
        elif name in ("th", "td", "p", "li", "pre"):
            self.words.append(" ")

    def handle_data(self, data):
        self.words.append(data)
        if "caption" in self.open:
            self._caption += data
        elif {"th", "td"} & set(self.open):
            self._rows[-1][-1] += data

    def all(self, name):
        return [attributes for found, attributes in self.elements if found == name]
