"""Griffe extension: what is plain in a docstring stays plain in Markdown.

Docstrings introduce an indented block by a double colon, and may begin a line with the number sign;
Markdown would print the colons and make the line a heading.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class PlainDocstrings(griffe.Extension):
    """Rewrite both before anything is parsed."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Look at every object's docstring."""
        if obj.docstring is not None:
            text = re.sub(r"::(\n\s*\n)", r":\1", obj.docstring.value)
            obj.docstring.value = re.sub(r"^(\s*)#", r"\1\\#", text, flags=re.M)
