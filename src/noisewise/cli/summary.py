"""`noisewise release-summary`: publish answers about regression coefficients without bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli import options, publishing, words

if TYPE_CHECKING:
    from noisewise.core.schema import Schema
    from noisewise.holder.requests.summary import SummaryRequest


def release_summary(
    data: options.DataOption,
    schema: options.SchemaOption,
    target: options.TargetOption,
    features: options.FeaturesOption,
    ledger: options.LedgerOption,
    epsilon: options.EpsilonOption = None,
    ask: Annotated[
        list[str] | None,
        typer.Option("--ask", help="A question such as 'x1 < 0'; may be repeated."),
    ] = None,
    coefficients: Annotated[
        str | None,
        typer.Option("--coefficients", help="Publish location and scale of these, with commas."),
    ] = None,
    quantiles: Annotated[
        str | None,
        typer.Option("--quantiles", help="Instead, these quantiles of them, such as 0.05,0.95."),
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option("--bounds", help="Public bounds of a coefficient, such as x1=-10:10."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", help="Where a coefficient might be: centre and scale, x1=0:100."),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            help="sign, stouffer, rescaled_normal, fisher, location_scale or clipped_mean.",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", help="Number of rows. Default: what a Parquet file says."),
    ] = None,
    blocks: Annotated[int | None, typer.Option("--blocks", help="Number of blocks, M.")] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="How often rows are put into blocks, r.")
    ] = None,
    posterior: Annotated[
        str, typer.Option("--posterior", help="Of a block: flat, or g_prior.")
    ] = "flat",
    g: Annotated[
        float | None, typer.Option("--g", help="Of the g_prior. Default: the number of rows.")
    ] = None,
    clip: Annotated[float | None, typer.Option("--clip", help="Of stouffer.")] = None,
    p_star: Annotated[float | None, typer.Option("--p-star", help="Of fisher.")] = None,
    out: options.OutOption = Path("summary.json"),
    dry_run: options.DryRunOption = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Spend the budget on what is hopeless.")
    ] = False,
    label: options.LabelOption = "",
    purpose: options.PurposeOption = "",
    engine: options.EngineOption = "auto",
    table: options.TableOption = None,
    query: options.QueryOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Publish private answers about regression coefficients of data without known bounds.

    Rows are put into many blocks at random, each block gets a regression of its own, and only an
    aggregate that no single person can move by much is published. Columns may be declared with
    'type: number' and 'unbounded: true'.

    Ask single questions (--ask, repeatable; they share the budget), or publish location and scale
    of coefficients (--coefficients), which answers every question about them and gives intervals.
    --dry-run shows what accuracy to expect.

    Example: noisewise release-summary --data people.parquet --schema schema.yaml --target income
    --features age,hours --ask "hours < 0" --epsilon 1 --ledger budget.db --out summary.json
    """
    from noisewise.core.yaml_files import read_schema

    declared = read_schema(schema)
    if rows is None and blocks is None:
        rows = _known_rows(declared, data, engine, table, query)
    request = words.summary_request(
        declared,
        target=target,
        features=features,
        epsilon=epsilon,
        mechanism=mechanism,
        ask=ask,
        coefficients=coefficients,
        quantiles=quantiles,
        bounds=bounds,
        base=base,
        rows=rows,
        blocks=blocks,
        partitions=partitions,
        posterior=posterior,
        g=g,
        clip=clip,
        p_star=p_star,
        label=label,
    )
    errand = publishing.Errand(data, ledger, out, engine, table, query, as_json, purpose)
    if dry_run:
        plan = _plan(request)
        publishing.dry_run(request, errand, lines=_in_words(request, plan), document=plan)
        return
    if request.warnings and not anyway:
        from noisewise.core.errors import RequestError

        raise RequestError(
            f"{'. '.join(request.warnings)}. Nothing was spent; --dry-run shows what to "
            "expect, and --anyway spends the budget all the same"
        )
    publishing.publish_and_say(request, errand)


def _known_rows(
    schema: Schema, data: Path, engine: str, table: str | None, query: str | None
) -> int | None:
    """The number of rows, if it is public and the source knows it without reading any."""
    from noisewise.holder.engines import open_source

    if schema.neighbours != "replace_one":
        return None
    return open_source(data, engine=engine, table=table, query=query).row_count()


def _plan(request: SummaryRequest) -> dict[str, Any]:
    """What would be published, with what noise, and how accurate it would be."""
    from noisewise.core.kinds.summary.mechanisms import ClippedMean, LocationScale, entries_of
    from noisewise.core.kinds.summary.release import SummedNoise
    from noisewise.holder.blocks import choice as expectation

    mechanism, noise = request.mechanism, request.noise
    plan: dict[str, Any] = {
        "mechanism": mechanism.to_json(),
        "posterior": request.posterior.to_json(),
        "entries": len(entries_of(mechanism)),
        "blocks": request.blocks,
        "partitions": request.partitions,
        "rows": request.rows,
        "kappa": request.kappa,
        "noise": noise.to_json(),
        "warnings": list(request.warnings),
    }
    sizes = (request.blocks, request.partitions)
    if isinstance(mechanism, LocationScale):
        assert not isinstance(noise, SummedNoise)
        each = float(noise.location_epsilon) / noise.sensitivity
        plan["expected_error"] = expectation.median_error(*sizes, each)
        return plan
    assert isinstance(noise, SummedNoise)
    scale = noise.scale * 2.0**-mechanism.fraction_bits / (request.blocks * request.partitions)
    plan["noise_on_mean"] = scale
    if isinstance(mechanism, ClippedMean):
        plan["noise_on_quantiles"] = expectation.quantile_noise(mechanism, scale)
    else:
        plan["expected_error"] = expectation.probability_error(mechanism, *sizes, scale)
    return plan


def _in_words(request: SummaryRequest, plan: dict[str, Any]) -> list[str]:
    from noisewise.core.kinds.summary.mechanisms import ClippedMean, entries_of
    from noisewise.holder.blocks.choice import ALWAYS_HALF

    names = [str(entry) for entry in entries_of(request.mechanism)]
    each = f", about {request.rows // request.blocks} rows each" if request.rows else ""
    lines = [
        f"{request.mechanism.name}: {', '.join(names)}",
        f"Coefficients: {', '.join(request.design.names[:-1])}",
        f"{request.blocks:,} blocks{each}, {request.partitions} partition(s); "
        f"epsilon * sqrt(blocks) = {request.kappa:.3g} for each answer",
    ]
    if request.rows and request.design.category_sizes:
        rare = min(1.0, 3 * request.blocks / request.rows)
        lines.append(
            f"A level that fewer than about {rare:.2g} of all rows have is missing in many blocks, "
            "which then have no regression: merge rare levels"
        )
    if "noise_on_mean" in plan:
        lines.append(f"Laplace noise of scale {plan['noise_on_mean']:.3g} on a mean over blocks")
    if isinstance(request.mechanism, ClippedMean):
        for item, sd in zip(request.mechanism.items, plan["noise_on_quantiles"], strict=True):
            lines.append(f"  {item}: noise with standard deviation {sd:.4g}")
    else:
        lines.append(
            f"Expected error of a probability: {plan['expected_error']:.3f} (root mean square; "
            f"always saying 1/2 has {ALWAYS_HALF:g})"
        )
    return [*lines, *(f"Warning: {warning}." for warning in request.warnings)]
