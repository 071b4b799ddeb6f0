"""The answers of a summary Release as a table, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NEGLIGIBLE = 1e-4


@dataclass(frozen=True)
class SummaryTable:
    """One line an answer.

    Parameters
    ----------
    rows : tuple of mappings
        The same keys in each, in the order of columns.
    """

    rows: tuple[Mapping[str, Any], ...]

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain numbers, for JSON and data frames."""
        return [dict(row) for row in self.rows]

    def __str__(self) -> str:
        columns = list(self.rows[0])
        shown = [[_shown(name, row[name]) for name in columns] for row in self.rows]
        lines = [[name.replace("_", " ") for name in columns], *shown]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


def _shown(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if name.startswith("prob") or name == "ignoring_noise":
        # Nothing in the approximations is right to more than this.
        if value < _NEGLIGIBLE:
            return f"< {_NEGLIGIBLE:g}"
        if value > 1 - _NEGLIGIBLE:
            return f"> {1 - _NEGLIGIBLE:g}"
        return f"{value:.4f}"
    return f"{value:.5g}"
