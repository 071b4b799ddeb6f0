"""Options that several commands share, and how lists of names are read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer

DataOption = Annotated[Path, typer.Option("--data", help="CSV, Parquet or DuckDB file.")]
SchemaOption = Annotated[Path, typer.Option("--schema", help="Schema file with public bounds.")]
LedgerOption = Annotated[
    Path, typer.Option("--ledger", help="The budget file, made by: noisewise ledger cap.")
]
TargetOption = Annotated[str, typer.Option("--target", help="Numeric column to explain.")]
FeaturesOption = Annotated[
    str, typer.Option("--features", help="Columns that explain it, separated by commas.")
]
EpsilonOption = Annotated[
    str | None, typer.Option("--epsilon", help="Privacy loss to spend, such as 1 or 0.5.")
]
OutOption = Annotated[Path, typer.Option("--out", help="Where to write the Release.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show noise and cost; read no rows, spend nothing.")
]
LabelOption = Annotated[
    str, typer.Option("--label", help="Marks a new release of an equal request; costs anew.")
]
PurposeOption = Annotated[
    str, typer.Option("--purpose", help="Why: kept in the ledger, not in the Release.")
]
EngineOption = Annotated[str, typer.Option("--engine", help="auto, memory, stream or duckdb.")]
TableOption = Annotated[str | None, typer.Option("--table", help="Table in a DuckDB file.")]
QueryOption = Annotated[
    str | None, typer.Option("--query", help="Query on a DuckDB file's own tables, one row a row.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
PrintJsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def names_of(text: str, argument: str = "features") -> list[str]:
    """Column names from comma-separated text; a name with a comma goes in double quotes."""
    try:
        return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:
        from noisewise.core.errors import RequestError

        raise RequestError(f"{argument}: expected names separated by commas, on one line") from None
