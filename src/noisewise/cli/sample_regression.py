"""`noisewise sample-regression`: publish posterior draws of a regression's coefficients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli import options, publishing, words


def sample_regression(
    data: options.DataOption,
    schema: options.SchemaOption,
    target: options.TargetOption,
    features: options.FeaturesOption,
    noise_sd: Annotated[
        str, typer.Option("--noise-sd", help="Known standard deviation of the target, in its unit.")
    ],
    ledger: options.LedgerOption,
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
    out: options.OutOption = Path("sample.json"),
    dry_run: options.DryRunOption = False,
    label: options.LabelOption = "",
    purpose: options.PurposeOption = "",
    engine: options.EngineOption = "auto",
    table: options.TableOption = None,
    query: options.QueryOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Publish draws from the posterior of a linear regression, instead of noisy statistics.

    The draws are private because rows and coefficients are kept within balls, and because the
    likelihood is tempered to the epsilon that you give. For the uncertainty of a whole posterior
    use `noisewise release`: its noise can be modelled, at far less cost than many draws.

    Example: noisewise sample-regression --data people.parquet --schema schema.yaml --target income
    --features age,region --noise-sd 20000 --epsilon 1 --ledger budget.db --out sample.json
    """
    from noisewise.core.yaml_files import read_schema

    request = words.sample_request(
        read_schema(schema),
        target=target,
        features=features,
        noise_sd=noise_sd,
        epsilon=epsilon,
        draws=draws,
        radius=radius,
        largest_norm=largest_norm,
        prior_precision=prior_precision,
        label=label,
    )
    errand = publishing.Errand(data, ledger, out, engine, table, query, as_json, purpose)
    if dry_run:
        plan = request.planned.describe()
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.6g}" for name, value in plan.items())
        lines = [f"Coefficients: {', '.join(request.design.names[:-1])}", f"  {shown}"]
        publishing.dry_run(request, errand, lines=lines, document={"plan": plan})
        return
    publishing.publish_and_say(request, errand)
