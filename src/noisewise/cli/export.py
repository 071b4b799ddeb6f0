"""`noisewise export`: draws for other programs, and a Release as a Stan program."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli.options import names_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def export(
    source: Annotated[
        Path,
        typer.Argument(help="Posterior file, for csv and parquet; Release, for stan."),
    ],
    to: Annotated[str, typer.Option("--to", help="csv, parquet or stan.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File to write. Default: the source's name, ending in .csv, .parquet or .stan.",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Of stan: released column to explain.")
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", help="Of stan: released columns, by commas.")
    ] = None,
) -> None:
    """Write draws for R and other programs, or a Release as a Stan program with its data.

    csv and parquet have one row a draw: .chain, .iteration and .draw, counted from 1 as R's package
    posterior has them, then one column a parameter.

    stan writes a program, its data and starting values (NAME.stan, NAME.data.json,
    NAME.start.json): the posterior of method exact under the default prior, of one Release whose
    number of rows is public.

    Example: noisewise export post.nc --to parquet --out draws.parquet

    Example: noisewise export release.json --to stan --out model.stan
    """
    from noisewise.analyst.posterior.file import check_folder
    from noisewise.core.errors import RequestError

    if to not in ("csv", "parquet", "stan"):
        raise RequestError(f"to: {to!r} is unknown; there are csv, parquet and stan")
    if to != "stan" and (target or features):
        raise RequestError("target and features are for stan; draws have those of their fit")
    path = source.with_suffix(f".{to}") if out is None else out
    if path.suffix != f".{to}":
        raise RequestError(f"out: {path} must end in .{to}")
    check_folder(path)
    if to == "stan":
        _write_stan(source, path, target, None if features is None else names_of(features))
        return
    columns = _draws(source)
    if to == "csv":
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([list(columns), *rows])
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(columns)), path)
    typer.echo(f"Wrote {path}.")


def _draws(source: Path) -> Mapping[str, NDArray[Any]]:
    """Draws as R's package posterior knows them: places are counted from 1."""
    import numpy as np

    from noisewise.cli.analyst import read_posterior

    found = read_posterior(source).parameter_draws()
    chain, iteration = np.indices(next(iter(found.values())).shape).reshape(2, -1) + 1
    places = {".chain": chain, ".iteration": iteration, ".draw": np.arange(chain.size) + 1}
    return places | {name: values.reshape(-1) for name, values in found.items()}


def _write_stan(source: Path, path: Path, target: str | None, features: list[str] | None) -> None:
    from noisewise.analyst.regression.stan import stan_model
    from noisewise.core.kinds import load_release

    made = stan_model(load_release(source), target=target, features=features)  # type: ignore[arg-type]
    path.write_text(made.program, encoding="utf-8")
    data, start = path.with_suffix(".data.json"), path.with_suffix(".start.json")
    for file, content in ((data, made.data), (start, made.start)):
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    typer.echo(f"Wrote {path}, {data} and {start}. In theta are, in this order:")
    typer.echo("  " + ", ".join(made.names))
