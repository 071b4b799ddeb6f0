"""`noisewise release`: publish the statistics of a regression."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli import options, publishing, words
from noisewise.cli import series as stream

if TYPE_CHECKING:
    from noisewise.holder.request import Request


def release(
    data: options.DataOption,
    schema: options.SchemaOption,
    target: options.TargetOption,
    features: options.FeaturesOption,
    ledger: options.LedgerOption,
    epsilon: options.EpsilonOption = None,
    delta: Annotated[
        str | None,
        typer.Option("--delta", help="For Gaussian noise; well below 1 / (number of people)."),
    ] = None,
    rho: Annotated[
        str | None, typer.Option("--rho", help="zCDP budget instead of epsilon and delta.")
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", help="laplace, or gaussian (default when delta is given)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where to write the Release.", show_default="release.json"),
    ] = None,
    dry_run: options.DryRunOption = False,
    radius: Annotated[
        float | None,
        typer.Option("--radius", help="Force rows into a ball (Gaussian, many features)."),
    ] = None,
    layout: Annotated[
        str | None, typer.Option("--layout", help="upper or isometric (Gaussian).")
    ] = None,
    fourth_moments: Annotated[
        str | None,
        typer.Option("--fourth-moments", help="Share of the budget for fourth moments."),
    ] = None,
    smallest_eigenvalue: Annotated[
        str | None,
        typer.Option(
            "--smallest-eigenvalue", help="Share of the budget for the eigenvalue of adaSSP."
        ),
    ] = None,
    label: options.LabelOption = "",
    purpose: options.PurposeOption = "",
    append: stream.AppendOption = None,
    batch: stream.BatchOption = None,
    disjoint: stream.DisjointOption = False,
    series: stream.SeriesOption = None,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition", help="Public category: one Release a level, for the cost of one."
        ),
    ] = None,
    engine: options.EngineOption = "auto",
    table: options.TableOption = None,
    query: options.QueryOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Publish a differentially private Release of regression statistics.

    Charges the budget first, sums the rows exactly, adds noise, and writes one small file that may
    be published. The same request again returns the stored Release at no cost.

    A stream is published batch by batch with --append and --batch, after which the rows may be
    erased. Batches add up in the budget. With --disjoint and --series NAME you promise that nobody
    is in two batches of that series: of its batches only the costliest counts, while other series
    and all other releases of the data set are added. It needs a schema that protects one row per
    person, and batches that are formed without looking at values.

    Better than a promise is --partition COLUMN: one Release for every declared level of COLUMN,
    read in one pass and disjoint by construction, for the cost of one. --out names their folder.
    It needs neighbours: add_remove_one and one row per person.

    Example: noisewise release --data people.parquet --schema schema.yaml --target income
    --features age,region --epsilon 1 --ledger budget.db --out release.json
    """
    from noisewise.core.errors import RequestError
    from noisewise.core.schema_file import read_schema

    stated = stream.stated_batch(append, batch, series, disjoint, out)
    request = words.regression_request(
        read_schema(schema),
        target=target,
        features=features,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mechanism=mechanism,
        radius=radius,
        layout=layout,
        fourth_moments=fourth_moments,
        smallest_eigenvalue=smallest_eigenvalue,
        label=label or batch or "",
        batch=batch if disjoint else None,
        series=series,
    )
    if partition is not None:
        if stated is not None:
            raise RequestError("partition: its series follows from it; leave --append out")
        errand = publishing.Errand(
            data, ledger, out or Path("releases"), engine, table, query, as_json, purpose
        )
        publishing.partition(request, read_schema(schema), partition, errand, dry_run=dry_run)
        return
    out = out or Path("release.json")
    errand = publishing.Errand(data, ledger, out, engine, table, query, as_json, purpose)
    if stated is not None:
        errand = stated.errand(request, errand)
    if dry_run:
        if stated is not None and not stated.folder.exists():
            errand = replace(errand, out=None)
        lines, document = _plan_in_words(request), {"measurements": _plan(request)}
        lines += [] if stated is None else [stated.in_words()]
        publishing.dry_run(request, errand, lines=lines, document=document)
        return
    unspent = delta is not None and request.claim.delta == 0
    note = "Laplace noise spends no delta." if unspent else ""
    if stated is None:
        publishing.publish_and_say(request, errand, note=note)
        return
    with stated.folder_made():
        publishing.publish_and_say(request, errand, note=note, renewal="give them another --batch")


def _plan(request: Request) -> list[dict[str, Any]]:
    from noisewise.core.grid import STATISTIC_ONE
    from noisewise.core.noise import DISCRETE_FAMILIES

    planned = []
    for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True):
        law = DISCRETE_FAMILIES[mechanism.family](mechanism.scale).continuous()
        planned.append(
            {
                "statistic": statistic.name,
                "entries": len(statistic.entries),
                "sensitivity": mechanism.sensitivity / STATISTIC_ONE,
                "noise": mechanism.family,
                "scale": mechanism.scale / STATISTIC_ONE,
                "standard_deviation": law.variance**0.5,
            }
        )
    return planned


def _plan_in_words(request: Request) -> list[str]:
    lines = [f"Design columns: {', '.join(request.design.names)}"]
    for item in _plan(request):
        lines.append(
            f"  {item['statistic']}: {item['entries']} sums on unit scale, sensitivity "
            f"{item['sensitivity']:.6g}, {item['noise']} scale {item['scale']:.6g} "
            f"(standard deviation {item['standard_deviation']:.6g})"
        )
    return lines
