"""Networks for other programs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from noisewise.analyst.arguments import whole_number
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.analyst.posterior.network import NetworkPosterior


def to_pgmpy(posterior: NetworkPosterior, draw: int | None = None) -> Any:
    """A pgmpy network with posterior mean tables, or those of one draw.

    The mean tables lose the uncertainty; to keep it, export several draws and use each.
    """
    try:
        discrete: Any = import_module("pgmpy.factors.discrete")
        models: Any = import_module("pgmpy.models")
    except ImportError:
        raise RequestError(
            "to_pgmpy: pgmpy is not installed; install it with 'pip install pgmpy'"
        ) from None
    network = posterior.network
    # The class got a new name in pgmpy 1.0.
    kind = getattr(models, "DiscreteBayesianNetwork", None) or models.BayesianNetwork
    model = kind()
    model.add_nodes_from(network.nodes)
    model.add_edges_from(network.edges)
    for node, values in tables(posterior, draw).items():
        parents = list(network.parents[node])
        cpd = discrete.TabularCPD(
            node,
            network.arity(node),
            values.reshape(-1, network.arity(node)).T,
            evidence=parents or None,
            evidence_card=[network.arity(name) for name in parents] or None,
            state_names={name: list(network.levels(name)) for name in network.family(node)},
        )
        model.add_cpds(cpd)
    model.check_model()
    return model


def tables(posterior: NetworkPosterior, draw: int | None = None) -> dict[str, Any]:
    """Tables by node, of `network.shape(node)`: posterior means, or one draw."""
    flat = posterior.flat
    if draw is None:
        cells = flat.mean(axis=0)
    else:
        cells = flat[whole_number("draw", draw, 0, len(flat) - 1)]
    layout = posterior.layout
    return {
        node: layout.outward(layout.number[node], cells[layout.part(layout.number[node])])
        for node in posterior.nodes
    }
