"""`noisewise sample-regression`: publish posterior draws of a regression's coefficients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import (
    DataOption,
    DryRunOption,
    EngineOption,
    JsonOption,
    LabelOption,
    LedgerOption,
    QueryOption,
    SchemaOption,
    TableOption,
    names_of,
)


def sample_regression(
    data: DataOption,
    schema: SchemaOption,
    target: Annotated[str, typer.Option("--target", help="Numeric column to explain.")],
    features: Annotated[
        str, typer.Option("--features", help="Columns that explain it, separated by commas.")
    ],
    noise_sd: Annotated[
        str, typer.Option("--noise-sd", help="Known standard deviation of the target, in its unit.")
    ],
    ledger: LedgerOption,
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", help="Privacy loss to spend; without it, whatever draws cost."),
    ] = None,
    draws: Annotated[int, typer.Option("--draws", help="Number of posterior draws.")] = 1,
    radius: Annotated[
        float | None, typer.Option("--radius", help="Force rows into a ball, on unit scale.")
    ] = None,
    largest_norm: Annotated[
        str, typer.Option("--largest-norm", help="Of the coefficients, on unit scale.")
    ] = "1",
    prior_precision: Annotated[
        str, typer.Option("--prior-precision", help="Of a coefficient, on unit scale.")
    ] = "1",
    out: Annotated[Path, typer.Option("--out", help="Where to write the Release.")] = Path(
        "sample.json"
    ),
    dry_run: DryRunOption = False,
    label: LabelOption = "",
    engine: EngineOption = "auto",
    table: TableOption = None,
    query: QueryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish draws from the posterior of a linear regression, instead of noisy statistics.

    The draws are private because rows and coefficients are kept within balls, and because the
    likelihood is tempered to the epsilon that you give. For the uncertainty of a whole posterior
    use `noisewise release`: its noise can be modelled, at far less cost than many draws.

    Example: noisewise sample-regression --data people.parquet --schema schema.yaml --target income
    --features age,region --noise-sd 20000 --epsilon 1 --ledger budget.db --out sample.json
    """
    from ..core.schema_file import read_schema
    from ..holder.networks.regression import make_regression_sample_request
    from . import publishing

    request = make_regression_sample_request(
        read_schema(schema),
        target=target,
        features=names_of(features),
        noise_sd=noise_sd,
        epsilon=epsilon,
        draws=draws,
        radius=radius,
        largest_norm=largest_norm,
        prior_precision=prior_precision,
        label=label,
    )
    where: dict[str, Any] = {"ledger": ledger, "engine": engine, "table": table, "query": query}
    if dry_run:
        plan = request.planned.describe()
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.6g}" for name, value in plan.items())
        publishing.dry_run(
            request,
            data,
            out=out,
            lines=[f"Coefficients: {', '.join(request.design.names[:-1])}", f"  {shown}"],
            document={"plan": plan},
            as_json=as_json,
            **where,
        )
        return
    publishing.publish_and_say(request, data, out=out, as_json=as_json, **where)
