"""From the words of a command to a request: the same words make the same request everywhere.

`noisewise release-summary` and `noisewise audit` understand the same questions, `release-network`
and `audit` the same graphs, and so on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisewise.cli.options import names_of

if TYPE_CHECKING:
    from noisewise.core.kinds.network.graph import Network
    from noisewise.core.kinds.summary.posterior import BlockPosterior
    from noisewise.core.schema import Schema
    from noisewise.holder.requests.draws import RegressionSampleRequest
    from noisewise.holder.requests.network import NetworkRequest
    from noisewise.holder.requests.regression import Request
    from noisewise.holder.requests.summary import SummaryRequest


def regression_request(schema: Schema, *, features: str, **words: Any) -> Request:
    """As `noisewise release` has it."""
    from noisewise.holder.requests.regression import make_request

    return make_request(schema, features=names_of(features), **words)


def sample_request(schema: Schema, *, features: str, **words: Any) -> RegressionSampleRequest:
    """As `noisewise sample-regression` has it."""
    from noisewise.holder.requests.draws import make_regression_sample_request

    return make_regression_sample_request(schema, features=names_of(features), **words)


# --- block summaries ------------------------------------------------------------------------------


def summary_request(
    schema: Schema,
    *,
    features: str,
    ask: list[str] | None = None,
    coefficients: str | None = None,
    quantiles: str | None = None,
    bounds: list[str] | None = None,
    base: list[str] | None = None,
    posterior: str = "flat",
    g: float | None = None,
    **words: Any,
) -> SummaryRequest:
    """As `noisewise release-summary` has it."""
    from noisewise.holder.requests.summary import make_summary_request

    return make_summary_request(
        schema,
        features=names_of(features),
        questions=ask or (),
        coefficients=() if coefficients is None else names_of(coefficients, "coefficients"),
        quantiles=() if quantiles is None else _numbers(quantiles, "quantiles"),
        bounds=None if bounds is None else _pairs(bounds, "bounds"),
        bases=None if base is None else _pairs(base, "base"),
        posterior=_posterior(posterior, g),
        **words,
    )


def _posterior(name: str, g: float | None) -> BlockPosterior:
    from noisewise.core.errors import RequestError
    from noisewise.core.kinds.summary.posterior import Flat, GPrior

    if name == "flat" and g is None:
        return Flat()
    if name == "g_prior":
        return GPrior("n" if g is None else g)
    if name == "flat":
        raise RequestError("g: the flat posterior has none; add --posterior g_prior")
    raise RequestError(f"posterior: {name!r} is unknown; use flat or g_prior")


def _numbers(text: str, argument: str) -> list[float]:
    from noisewise.core.errors import RequestError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(
            f"{argument}: expected numbers separated by commas, got {text!r}"
        ) from None


def _pairs(texts: list[str], argument: str) -> dict[str, tuple[float, float]]:
    from noisewise.core.errors import RequestError

    found = {}
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        try:
            first, second = (float(part) for part in numbers.split(":"))
        except ValueError:
            equals = ""
        if not equals:
            raise RequestError(f"{argument}: expected NAME=NUMBER:NUMBER, got {text!r}")
        if name.strip() in found:
            raise RequestError(f"{argument}: {name.strip()!r} is given twice")
        found[name.strip()] = (first, second)
    return found


# --- networks -------------------------------------------------------------------------------------


def network_request(
    schema: Schema,
    *,
    graph: Path | None = None,
    edges: str | None = None,
    naive_bayes: str | None = None,
    features: str | None = None,
    epsilon: str | None = None,
    **words: Any,
) -> NetworkRequest:
    """As `noisewise release-network` has it."""
    from noisewise.holder.requests.network import make_network_request

    network = _network(schema, graph, edges, naive_bayes, features)
    return make_network_request(schema, network=network, epsilon=epsilon, **words)


def _network(
    schema: Schema,
    graph: Path | None,
    edges: str | None,
    naive_bayes: str | None,
    features: str | None,
) -> Network:
    from noisewise.core.errors import RequestError
    from noisewise.core.kinds.network.graph import Network

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
    from noisewise.core.errors import RequestError

    parts = [part.strip().rstrip("-").strip() for part in text.split(">")]
    if len(parts) != 2 or not all(parts):
        raise RequestError(
            f"edges: {text!r} is not an edge; write parent>child, separated by commas"
        )
    return parts[0], parts[1]


def _read_graph(path: Path) -> Any:
    from noisewise.core.errors import RequestError
    from noisewise.core.yaml_files import PlainYamlError, read_yaml

    try:
        graph = read_yaml(path)
    except FileNotFoundError:
        raise RequestError(f"graph: there is no file {path}") from None
    except PlainYamlError as error:
        raise RequestError(f"graph: {path}: {error}") from None
    if not isinstance(graph, dict):
        raise RequestError(f"graph: {path}: expected lines such as 'cough: [smoker, region]'")
    return {node: [] if parents is None else parents for node, parents in graph.items()}
