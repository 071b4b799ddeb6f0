"""`noisewise release-network`: publish a Bayesian network's counts or tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisewise.cli import options, publishing, words

if TYPE_CHECKING:
    from noisewise.holder.requests.network import NetworkRequest


def release_network(
    data: options.DataOption,
    schema: options.SchemaOption,
    ledger: options.LedgerOption,
    epsilon: options.EpsilonOption = None,
    graph: Annotated[
        Path | None, typer.Option("--graph", help="YAML file: every node and a list of parents.")
    ] = None,
    edges: Annotated[
        str | None, typer.Option("--edges", help="Edges, such as 'smoker>cough, region>cough'.")
    ] = None,
    naive_bayes: Annotated[
        str | None, typer.Option("--naive-bayes", help="Column that is the parent of all others.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option("--features", help="Its children, separated by commas; else all columns."),
    ] = None,
    mechanism: Annotated[
        str, typer.Option("--mechanism", help="laplace, fourier, posterior_sample or map.")
    ] = "laplace",
    kind: Annotated[
        str | None, typer.Option("--kind", help="Of map: counts, tempered or grid.")
    ] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", help="Number of posterior draws; they share epsilon.")
    ] = None,
    omega: Annotated[
        str | None, typer.Option("--omega", help="Smallest split probability of drawn tables.")
    ] = None,
    temper: Annotated[
        str | None, typer.Option("--temper", help="Power of the likelihood, up to 1.")
    ] = None,
    points: Annotated[
        int | None, typer.Option("--points", help="Values of a split, for map with kind grid.")
    ] = None,
    concentration: Annotated[
        str, typer.Option("--concentration", help="Dirichlet prior of drawn tables, a cell.")
    ] = "1",
    out: options.OutOption = Path("network.json"),
    dry_run: options.DryRunOption = False,
    label: options.LabelOption = "",
    purpose: options.PurposeOption = "",
    engine: options.EngineOption = "auto",
    table: options.TableOption = None,
    query: options.QueryOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Publish a differentially private Release of a Bayesian network.

    The graph is yours to declare, and all its columns are categories with public levels. Charges
    the budget first, counts all families in one pass, and publishes noisy counts (laplace),
    noisy counts that agree about common marginals (fourier), tables drawn from the posterior
    (posterior_sample), or one best table (map).

    Example: noisewise release-network --data people.parquet --schema schema.yaml
    --naive-bayes disease --epsilon 1 --ledger budget.db --out network.json
    """
    from noisewise.core.yaml_files import read_schema

    request = words.network_request(
        read_schema(schema),
        graph=graph,
        edges=edges,
        naive_bayes=naive_bayes,
        features=features,
        epsilon=epsilon,
        mechanism=mechanism,
        kind=kind,
        draws=draws,
        omega=omega,
        temper=temper,
        points=points,
        concentration=concentration,
        label=label,
    )
    errand = publishing.Errand(data, ledger, out, engine, table, query, as_json, purpose)
    if dry_run:
        document = {"nodes": list(request.network.nodes), "plan": request.planned.describe()}
        publishing.dry_run(request, errand, lines=_plan_in_words(request), document=document)
        return
    publishing.publish_and_say(request, errand, doing="counting")


def _plan_in_words(request: NetworkRequest) -> list[str]:
    network = request.network
    planned = ", ".join(
        f"{name.replace('_', ' ')} {value:.6g}"
        if isinstance(value, float)
        else f"{name.replace('_', ' ')} {value}"
        for name, value in request.planned.describe().items()
    )
    return [
        f"Network: {len(network.nodes)} nodes, {len(network.edges)} edges, "
        f"{network.total_cells} cells.",
        f"  {request.mechanism}: {planned}",
    ]
