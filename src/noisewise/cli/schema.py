"""`noisewise schema`: declare what is public about a table.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise._progress import progress_bar
from noisewise.cli.options import (
    DATA_HELP,
    SOURCE,
    SPARK,
    TABLE,
    option,
    shown,
    start_spark,
    with_options,
)
from noisewise.core.errors import RequestError

app = typer.Typer(no_args_is_help=True, help="Declare what is public about a table.")


@app.command("new")
@with_options(
    option("out", Path, "Where to write the schema.", default=Path("schema.yaml")),
    option(
        "dataset",
        str,
        "Name of the data set's budget. Default: name of the file or table.",
        default="",
    ),
    option("unit", str, "The column that says whose row it is, if people have several."),
    option(
        "codebook",
        Path,
        "Takes bounds, levels, labels and units from a code book: YAML, CSV (columns name, min, "
        "max, levels, label, unit_of_measure), or DDI XML (valid ranges only).",
    ),
    *(TABLE, SPARK),
    option("force", bool, "Overwrite an existing file.", default=False),
)
def schema_new(
    data: Annotated[str, typer.Argument(help=DATA_HELP)],
    out: Path,
    dataset: str,
    unit: str | None,
    codebook: Path | None,
    table: str | None,
    spark_config: list[str] | None,
    force: bool,
) -> None:
    """Write a schema to fill in: column names and types, nothing else of the data.

    Bounds and levels are left empty on purpose. They must be known without looking at the data:
    a legal limit, a physical range, a code book. The largest value in the data is somebody's.
    With --codebook, a file that declares them fills them in.

    Example: noisewise schema new people.csv --out schema.yaml
    """
    from noisewise.holder.codebook import read_codebook
    from noisewise.holder.engines import is_server
    from noisewise.holder.schema_files import schema_template

    if out.exists() and not force:
        raise RequestError(f"out: {out} exists; choose another name, or --force to overwrite it")
    start_spark(spark_config, data)
    book = None if codebook is None else read_codebook(codebook)
    named = (table or "") if is_server(data) else Path(data).stem
    if data.startswith("spark:"):
        named = Path(data.partition(":")[2]).stem
    text = schema_template(data, dataset or named, table=table, unit=unit, codebook=book)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"out: cannot write {out}: {error.strerror}") from None
    check = ["noisewise", "schema", "check", str(out), "--data", shown(data)]
    check += ["--table", table] if table else []
    typer.echo(
        f"Wrote {out}. Fill in public bounds and levels, delete columns you won't use, then:\n"
        f"  {shlex.join(check)}"
    )
    if not is_server(data) and Path(data).suffix.lower() == ".csv":
        typer.echo("Column names come from the file's first line, which must be a header.")


@app.command("check")
@with_options(option("data", str, f"Also check that this fits it: {DATA_HELP}"), *SOURCE)
def schema_check(
    schema: Annotated[Path, typer.Argument(help="The schema file.")],
    data: str | None,
    spark_config: list[str] | None,
    **source: Any,
) -> None:
    """Check a schema, and on request that a file fits it. Spends and publishes nothing.

    With --data it is the rehearsal of a release, for the holder only: it reads the rows and finds
    what a release would fail on, which then would leave its charge pending.

    Example: noisewise schema check schema.yaml --data people.csv
    """
    from noisewise.core.schema import Category
    from noisewise.core.yaml_files import read_schema

    start_spark(spark_config, data)
    declared = read_schema(schema)
    numbers = sum(not isinstance(c, Category) for c in declared.columns.values())
    owned = f"up to {declared.max_rows_per_unit} row(s) per unit"
    if declared.unit_column is not None:
        owned = f"all rows with one '{declared.unit_column}' averaged into one"
    typer.echo(
        f"{schema}: {numbers} numeric and {len(declared.columns) - numbers} categorical columns, "
        f"data set '{declared.dataset}', neighbours {declared.neighbours}, "
        f"{owned}."
    )
    if data is not None:
        from noisewise.holder.schema_files import check_data

        with progress_bar("checking", unit="rows", show=sys.stderr.isatty()) as progress:
            n = check_data(declared, data, progress=progress, **source)
        typer.echo(f"{shown(data)} fits the schema.")
        if declared.n_is_public:
            counted = declared.counted
            typer.echo(
                f"It has {n:,} {counted}: for Gaussian noise give a delta below "
                f"{1 / (10 * n):.0e}, and never one above 1 / (number of {counted})."
            )
