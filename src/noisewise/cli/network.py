"""`noisewise release-network`: publish a Bayesian network's counts or tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from ..core.network import Network
    from ..core.schema import Schema
    from ..holder.network_request import NetworkRequest


def release_network(
    data: DataOption,
    schema: SchemaOption,
    ledger: LedgerOption,
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", help="Privacy loss to spend, such as 1 or 0.5.")
    ] = None,
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
    out: Annotated[Path, typer.Option("--out", help="Where to write the Release.")] = Path(
        "network.json"
    ),
    dry_run: DryRunOption = False,
    label: LabelOption = "",
    engine: EngineOption = "auto",
    table: TableOption = None,
    query: QueryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a differentially private Release of a Bayesian network.

    The graph is yours to declare, and all its columns are categories with public levels. Charges
    the budget first, counts all families in one pass, and publishes noisy counts (laplace),
    noisy counts that agree about common marginals (fourier), tables drawn from the posterior
    (posterior_sample), or one best table (map).

    Example: noisewise release-network --data people.parquet --schema schema.yaml
    --naive-bayes disease --epsilon 1 --ledger budget.db --out network.json
    """
    from ..core.schema_file import read_schema
    from ..holder.network_request import make_network_request
    from . import publishing

    declared = read_schema(schema)
    request = make_network_request(
        declared,
        network=_network(declared, graph, edges, naive_bayes, features),
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
    where: dict[str, Any] = {"ledger": ledger, "engine": engine, "table": table, "query": query}
    if dry_run:
        publishing.dry_run(
            request,
            data,
            out=out,
            lines=_plan_in_words(request),
            document={"nodes": list(request.network.nodes), "plan": request.planned.describe()},
            as_json=as_json,
            **where,
        )
        return
    publishing.publish_and_say(request, data, out=out, as_json=as_json, doing="counting", **where)


def _network(
    schema: Schema,
    graph: Path | None,
    edges: str | None,
    naive_bayes: str | None,
    features: str | None,
) -> Network:
    from ..core.errors import RequestError
    from ..core.network import Network

    if sum(given is not None for given in (graph, edges, naive_bayes)) != 1:
        raise RequestError("graph: give one of --graph, --edges and --naive-bayes")
    if features is not None and naive_bayes is None:
        raise RequestError("features: they go with --naive-bayes; leave them out")
    if naive_bayes is not None:
        names = None if features is None else names_of(features)
        return Network.naive_bayes(schema, naive_bayes, names)
    if edges is not None:
        return Network.make(schema, [_edge(text) for text in names_of(edges, "edges")])
    assert graph is not None
    return Network.make(schema, _read_graph(graph))


def _edge(text: str) -> tuple[str, str]:
    from ..core.errors import RequestError

    parts = [part.strip().rstrip("-").strip() for part in text.split(">")]
    if len(parts) != 2 or not all(parts):
        raise RequestError(
            f"edges: {text!r} is not an edge; write parent>child, separated by commas"
        )
    return parts[0], parts[1]


def _read_graph(path: Path) -> Any:
    from ..core.errors import RequestError
    from ..core.plain_yaml import PlainYamlError, read_yaml

    try:
        graph = read_yaml(path)
    except FileNotFoundError:
        raise RequestError(f"graph: there is no file {path}") from None
    except PlainYamlError as error:
        raise RequestError(f"graph: {path}: {error}") from None
    if not isinstance(graph, dict):
        raise RequestError(f"graph: {path}: expected lines such as 'cough: [smoker, region]'")
    return {node: [] if parents is None else parents for node, parents in graph.items()}


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
