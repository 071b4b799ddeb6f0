"""`noisewise plan`: what a Release would be worth, before any budget is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli.options import JsonOption, SchemaOption, names_of


def plan(
    schema: SchemaOption,
    target: Annotated[str, typer.Option("--target", help="Numeric column to explain.")],
    features: Annotated[
        str, typer.Option("--features", help="Columns that explain it, separated by commas.")
    ],
    n: Annotated[
        int, typer.Option("--rows", "--n", min=1, help="Number of rows that there will be.")
    ],
    epsilon: Annotated[
        str, typer.Option("--epsilon", help="Budgets to compare, separated by commas.")
    ] = "0.1,0.3,1,3,10",
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            help="Of laplace, gaussian, isometric and ball; laplace and gaussian by default, and "
            "ball with --radius.",
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option("--delta", help="Of Gaussian noise; 1e-6 by default.")
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option("--radius", help="Of a ball that rows are forced into, on unit scale."),
    ] = None,
    prior: Annotated[
        Path | None, typer.Option("--prior", help="Prior file, as for `noisewise fit`.")
    ] = None,
    want: Annotated[
        list[str] | None,
        typer.Option("--want", help="Half-width wanted, such as 'age: 0.1'; may be repeated."),
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Of the intervals.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", help="Picture to draw: .png, .svg or .pdf.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the possible truths.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Say how wide posterior intervals will be, and which epsilon a wanted width needs.

    Uses the schema, the number of rows and a prior: public quantities. Reads no rows, opens no
    ledger, spends nothing. Widths are in original units, medians over truths that the prior and
    the bounds allow; say what you know with --prior to make them sharper.

    Example: noisewise plan --schema schema.yaml --target income --features age,region --n 5000
    --want 'age: 100' --out plan.png
    """
    from noisewise.analyst.regression.original_units import read_prior
    from noisewise.core.yaml_files import read_schema
    from noisewise.planning.plan import plan as make_plan

    wanted = dict(_wanted(text) for text in want or [])
    if out is not None:
        _check_format(out)
    made = make_plan(
        read_schema(schema),
        target=target,
        features=names_of(features),
        n=n,
        epsilon=[_number(text, "epsilon") for text in names_of(epsilon, "epsilon")],
        mechanism=None if mechanism is None else names_of(mechanism, "mechanism"),
        delta=delta,
        radius=radius,
        prior=None if prior is None else read_prior(prior),
        want=wanted,
        level=level,
        seed=seed,
    )
    if out is not None:
        from noisewise.planning.result import draw_plan

        draw_plan(made, out)
    if as_json:
        typer.echo(json.dumps(made.to_dict()))
        return
    typer.echo(str(made))
    if out is not None:
        typer.echo(f"Wrote {out}.")


def _wanted(text: str) -> tuple[str, float]:
    from noisewise.core.errors import RequestError

    name, colon, width = text.rpartition(":")
    if not colon:
        raise RequestError(
            f"want: expected a coefficient and a half-width, such as 'age: 0.1', got {text!r}"
        )
    return name.strip(), _number(width, "want")


def _number(text: str, argument: str) -> float:
    from noisewise.core.errors import RequestError

    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{argument}: expected a number, got {text.strip()!r}") from None


def _check_format(out: Path) -> None:
    """Refuse before a minute is spent."""
    from noisewise.core.errors import RequestError
    from noisewise.planning.result import FORMATS

    if out.suffix not in FORMATS:
        raise RequestError(f"out: {out.name!r} must end in {', '.join(FORMATS)}")
