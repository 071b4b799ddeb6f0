"""The graph's vocabulary: every spelling gives the same network, and every mistake has an error."""

import numpy as np
import pytest

from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Number, Schema


def category(*levels: str) -> Category:
    return Category(levels, levels[0])


SCHEMA = Schema(
    "people",
    {
        "smoker": category("no", "yes"),
        "age": Number(18, 90),
        "region": category("north", "south", "west"),
        "cough": category("none", "some", "much", "always"),
        "spare": category("a", "b"),
    },
)
PARENTS = {"cough": ["smoker", "region"], "region": ["smoker"]}


class Graph:
    """The part of a networkx or pgmpy graph that is used."""

    def __init__(self, nodes, pairs):
        self.nodes = nodes
        self._pairs = pairs

    def edges(self):
        return self._pairs


def test_every_spelling_gives_the_same_network():
    pairs = [("smoker", "cough"), ("region", "cough"), ("smoker", "region")]
    networks = [
        Network.make(SCHEMA, PARENTS),
        Network.make(SCHEMA, pairs),
        Network.make(SCHEMA, Graph(["cough", "smoker", "region"], pairs)),
        Network(SCHEMA, {"cough": ("smoker", "region"), "region": ("smoker",), "smoker": ()}),
    ]
    assert all(network == networks[0] for network in networks)
    assert Network.make(SCHEMA, networks[0].to_json()) == networks[0]


def test_shapes_put_the_node_last():
    network = Network.make(SCHEMA, PARENTS)
    assert network.nodes == ("smoker", "region", "cough")
    assert network.order == ("smoker", "region", "cough")
    assert network.family("cough") == ("smoker", "region", "cough")
    assert network.shape("cough") == (2, 3, 4)
    assert network.cells("cough") == 24
    assert network.configurations("cough") == 6
    assert network.shape("smoker") == (2,)
    assert network.configurations("smoker") == 1
    assert network.total_cells == 2 + 6 + 24
    assert network.levels("region") == ("north", "south", "west")
    assert tuple(network.schema.columns) == network.nodes
    assert set(network.edges) == {
        ("smoker", "cough"),
        ("region", "cough"),
        ("smoker", "region"),
    }


def test_order_is_topological_on_random_graphs():
    rng = np.random.default_rng(1)
    names = [f"x{i}" for i in range(12)]
    schema = Schema("d", {name: category("0", "1") for name in names})
    for _ in range(50):
        hidden = rng.permutation(12)
        parents = {
            names[hidden[i]]: [names[hidden[j]] for j in range(i) if rng.random() < 0.3][:4]
            for i in range(12)
        }
        network = Network.make(schema, parents)
        place = {node: i for i, node in enumerate(network.order)}
        assert all(place[parent] < place[child] for parent, child in network.edges)


def test_naive_bayes():
    network = Network.naive_bayes(SCHEMA, "cough", ["smoker", "region"])
    assert network.parents == {"smoker": ("cough",), "region": ("cough",), "cough": ()}
    assert network.order == ("cough", "smoker", "region")
    with pytest.raises(RequestError, match="number"):
        Network.naive_bayes(SCHEMA, "cough")  # age is among the features
    with pytest.raises(RequestError, match="target too"):
        Network.naive_bayes(SCHEMA, "cough", ["cough"])


def test_networkx_and_isolated_nodes():
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph([("smoker", "cough")])
    graph.add_node("spare")
    assert Network.make(SCHEMA, graph).nodes == ("smoker", "cough", "spare")


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ({"cough": ["smoker"], "smoker": ["region"], "region": ["cough"]}, "cycle through"),
        ({"cough": ["weight"]}, "'weight' is not declared"),
        ({"cough": ["age"]}, "'age' is a number"),
        ({"cough": ["smoker", "smoker"]}, "given twice"),
        ({"cough": ["cough"]}, "its own parent"),
        ({"cough": "smoker"}, "list of column names"),
        ([("smoker",)], "pairs"),
        (["smoker"], "pairs"),
        ({}, "no nodes"),
        (3, "int"),
        ("smoker", "str"),
        ({7: []}, "column's name"),
        ({"cough": [["smoker"]]}, "column's name"),
        ([("smoker", 3)], "column's name"),
    ],
)
def test_mistakes_are_named(edges, words):
    with pytest.raises(RequestError, match=words):
        Network.make(SCHEMA, edges)


def test_cycle_is_shown_along_its_edges():
    with pytest.raises(RequestError) as caught:
        Network.make(SCHEMA, [("smoker", "cough"), ("cough", "region"), ("region", "smoker")])
    shown = str(caught.value)
    assert "smoker -> cough -> region -> smoker" in shown or (
        "cough -> region -> smoker -> cough" in shown
        or "region -> smoker -> cough -> region" in shown
    )


def test_too_large_tables_are_refused():
    many = [str(i) for i in range(1000)]
    schema = Schema("d", {name: Category(tuple(many), "0") for name in "abc"})
    with pytest.raises(RequestError, match="merge levels"):
        Network.make(schema, {"c": ["a", "b"]})


def test_unknown_node_is_named():
    with pytest.raises(RequestError, match="'age' is not in the network"):
        Network.make(SCHEMA, PARENTS).shape("age")


def test_a_parent_must_be_a_node():
    with pytest.raises(RequestError, match="no node itself"):
        Network(SCHEMA, {"cough": ("smoker",)})
