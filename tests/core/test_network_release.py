"""Network Releases: text both ways, arrays in the right places, and damage refused."""

import copy
import json
from fractions import Fraction

import numpy as np
import pytest

from noisewise.core.document import digest_of
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.network.graph import (
    Network,
    Parities,
    depth,
    rows_of_splits,
    split_totals,
    splits,
    walsh_hadamard,
)
from noisewise.core.kinds.network.release import (
    TABLE_BITS,
    NetworkRelease,
    NoisyCounts,
    NoisyParities,
    TableDraws,
    cost_of_draws,
)
from noisewise.core.privacy import Claim, PureEvent
from noisewise.core.schema import Category, Schema

LEVELS = {"a": ("0", "1"), "b": ("x", "y", "z"), "c": ("0", "1", "2", "3", "4")}


def schema(neighbours="replace_one"):
    columns = {name: Category(levels, levels[0]) for name, levels in LEVELS.items()}
    return Schema("d", columns, neighbours=neighbours)


def network(neighbours="replace_one"):
    return Network.make(schema(neighbours), {"b": ["a"], "c": ["a", "b"]})


def release(content, mechanism, epsilon=1, neighbours="replace_one", n=100):
    return NetworkRelease(
        network=network(neighbours),
        n=n if neighbours == "replace_one" else None,
        mechanism=mechanism,
        content=content,
        claim=Claim(Fraction(epsilon)),
        event=PureEvent(Fraction(epsilon)),
        label="q1",
        software="noisewise",
    )


def counts_release(**changes):
    values = {"a": (40,), "b": tuple(range(6)), "c": tuple(range(-10, 20))}
    return release(NoisyCounts(values, 5.5, 5), "laplace", **changes)


def parities_release():
    size = len(Parities(network()))
    return release(NoisyParities(tuple(range(size)), 40.25, 40, 3.5, 0.9), "fourier")


def draws_release(mechanism="posterior_sample", **changes):
    one = 1 << TABLE_BITS
    draw = {"a": (one // 4,), "b": (one // 2,) * 4, "c": (one // 4,) * 24}
    given = {
        "draws": (draw, draw),
        "law": "posterior",
        "lowest": one // 32,
        "temper": Fraction(1, 1000),
        "concentration": {"a": Fraction(1), "b": Fraction(1), "c": Fraction(3, 2)},
    }
    return release(TableDraws(**{**given, **changes}), mechanism)


@pytest.mark.parametrize(
    "made",
    [
        counts_release(),
        parities_release(),
        draws_release(),
        draws_release("map", law="grid", points=9),
    ],
    ids=["counts", "parities", "draws", "grid"],
)
def test_text_both_ways(made):
    again = release_from_text(made.to_text())
    assert again == made
    assert again.digest == made.digest
    assert again.to_text() == made.to_text()


def test_a_binary_root_needs_one_count():
    made = counts_release()
    assert made.counts("a").tolist() == [60, 40]
    assert made.measured("a").tolist() == [False, True]
    assert made.measured("b").all()
    assert made.counts("c").shape == (2, 3, 5)
    assert made.counts("c")[1, 2, 4] == 19
    assert made.noise.scale == 5.5
    values = {"a": (60, 40), "b": tuple(range(6)), "c": tuple(range(30))}
    private = release(NoisyCounts(values, 5.5, 5), "laplace", neighbours="add_remove_one")
    assert private.n is None
    assert private.counts("a").tolist() == [60, 40]
    assert private.measured("a").all()


def test_tables_are_products_along_the_splits():
    tables = draws_release().tables(1)
    assert tables["a"].tolist() == [0.25, 0.75]
    for node, table in tables.items():
        assert table.shape == network().shape(node)
        assert np.allclose(table.sum(axis=-1), 1)
    assert tables["c"][0, 0] == pytest.approx([1 / 64, 3 / 64, 12 / 64, 3 / 16, 9 / 16])
    with pytest.raises(ReleaseError, match="no counts"):
        draws_release().counts("a")
    with pytest.raises(ReleaseError, match="counts, not tables"):
        counts_release().tables()


@pytest.mark.parametrize("arity", [2, 3, 4, 5, 8, 13])
def test_splits_divide_down_to_single_levels(arity):
    tree = splits(arity)
    assert len(tree) == arity - 1
    paths = np.zeros(arity, dtype=int)
    for start, middle, stop in tree:
        assert start < middle < stop
        paths[start:stop] += 1
    assert paths.max() == depth(arity) == int(np.ceil(np.log2(arity)))
    rng = np.random.default_rng(1)
    row = rng.dirichlet(np.ones(arity))
    first, second = split_totals(row, arity)
    assert rows_of_splits(first / (first + second), arity) == pytest.approx(row)


def test_parities_rebuild_every_table_from_the_full_table():
    """The oracle is the definition: parities of whole records, one by one."""
    parities = Parities(network())
    rng = np.random.default_rng(2)
    records = {name: rng.integers(len(levels), size=57) for name, levels in LEVELS.items()}
    odd = np.zeros(len(parities), dtype=int)
    for position, members in enumerate(parities.sets):
        bits = sum(
            np.vectorize(lambda x: int(x).bit_count())(records[name] & mask)
            for name, mask in members
        )
        odd[position] = (bits % 2).sum()
    for node in LEVELS:
        table = np.zeros(network().shape(node), dtype=int)
        np.add.at(table, tuple(records[name] for name in network().family(node)), 1)
        assert parities.table(node, 57, odd) == pytest.approx(table, abs=1e-9)
        assert (parities.parity_counts(node, table) == odd[parities.positions(node)]).all()


def test_naive_bayes_closure_has_the_papers_size():
    names = [f"x{i}" for i in range(16)] + ["y"]
    binary = Schema("d", {name: Category(("0", "1"), "0") for name in names})
    assert len(Parities(Network.naive_bayes(binary, "y"))) + 1 == 2 * 16 + 2


def test_noisy_marginals_are_consistent():
    made = parities_release()
    assert made.counts("c").sum(axis=(1, 2)).shape == (2,)
    # Arity 2 has no unused codes, so sums over the other axes are exact marginals.
    binary = Schema("d", {name: Category(("0", "1"), "0") for name in "abc"})
    parities = Parities(Network.make(binary, {"b": ["a"], "c": ["a", "b"]}))
    values = np.random.default_rng(3).integers(0, 50, len(parities))
    pair, triple = (parities.table(node, 80, values) for node in "bc")
    assert triple.sum(axis=2) == pytest.approx(pair)


def test_walsh_hadamard_is_its_definition():
    values = np.random.default_rng(4).integers(-9, 9, (3, 8))
    signs = np.array([[(-1) ** (g & a).bit_count() for a in range(8)] for g in range(8)])
    assert (walsh_hadamard(values) == values @ signs.T).all()
    assert walsh_hadamard(values).dtype == values.dtype


def test_too_many_parities_are_refused():
    wide = Schema("d", {n: Category(tuple(map(str, range(60))), "0") for n in "abc"})
    with pytest.raises(RequestError, match="laplace mechanism"):
        Parities(Network.make(wide, {"c": ["a", "b"]}))


def _with_digest(document):
    document = {key: value for key, value in document.items() if key != "digest"}
    return json.dumps({**document, "digest": digest_of(document)})


DAMAGE = {
    "extra key": lambda d: d.update(more=1),
    "no n": lambda d: d.update(n=None),
    "cycle": lambda d: d["parents"].update(a=["c"]),
    "parents of a stranger": lambda d: d["parents"].update(q=[]),
    "a column too many": lambda d: d["parents"].pop("c"),
    "short": lambda d: d["result"]["values"]["b"].pop(),
    "a float": lambda d: d["result"]["values"]["b"].__setitem__(0, 1.5),
    "a node too few": lambda d: d["result"]["values"].pop("b"),
    "less noise": lambda d: d["result"]["noise"].update(scale=4.9),
    "less influence": lambda d: d["result"].update(
        sensitivity=4, noise={"family": "discrete_laplace", "scale": 4.0}
    ),
    "no noise": lambda d: d["result"]["noise"].update(scale=0),
    "another family": lambda d: d["result"]["noise"].update(family="gaussian"),
    "a better claim": lambda d: d["privacy"]["claim"].update(epsilon="0.5"),
    "a delta": lambda d: d["privacy"]["claim"].update(delta="0.1"),
    "another mechanism": lambda d: d.update(mechanism="fourier"),
    "unknown mechanism": lambda d: d.update(mechanism="magic"),
    "unknown content": lambda d: d["result"].update(kind="magic"),
    "parents as text": lambda d: d.update(parents="abc"),
    "another version": lambda d: d.update(format_version=2),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_documents_are_refused(damage):
    document = copy.deepcopy(counts_release().document)
    NetworkRelease.from_text(_with_digest(document))
    damage(document)
    with pytest.raises(ReleaseError):
        NetworkRelease.from_text(_with_digest(document))


def test_parities_cannot_claim_less_than_half_of_their_influence():
    size = len(Parities(network()))
    for least, private in ((size // 2 + size % 2, False), (size // 2 + size % 2 + 1, True)):
        values = (0,) * (size + private)
        neighbours = "add_remove_one" if private else "replace_one"
        strong = NoisyParities(values, float(size), least, 1.0, 0.9)
        release(strong, "fourier", neighbours=neighbours)
        weak = NoisyParities(values, float(size), least - 1, 1.0, 0.9)
        with pytest.raises(ReleaseError, match="influence"):
            release(weak, "fourier", neighbours=neighbours)


def test_damage_without_a_new_digest_is_found():
    text = counts_release().to_text().replace('"n": 100', '"n": 101')
    with pytest.raises(ReleaseError, match="digest"):
        NetworkRelease.from_text(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"temper": Fraction(1, 10)},
        {"temper": Fraction(0)},
        {"concentration": {"a": Fraction(0), "b": Fraction(1), "c": Fraction(1)}},
        {"lowest": 1 << (TABLE_BITS - 1)},
        {"concentration": {"a": Fraction(1)}},
        {"draws": ()},
        {"points": 3},
        {"law": "magic"},
    ],
    ids=str,
)
def test_draws_must_be_what_they_say(changes):
    with pytest.raises(ReleaseError):
        draws_release(**changes)


def test_cost_of_draws_is_the_formula():
    made = draws_release()
    expected = 2 * 2 * (1 + 2 + 3) * np.log(31) / 1000
    assert float(cost_of_draws(made.network, made.content)) == pytest.approx(expected)
    grid = draws_release("map", law="grid", points=9)
    expected = 2 * 2 * 2 * 6 * np.tanh(np.log(31) / 4) / 1000
    assert float(cost_of_draws(grid.network, grid.content)) == pytest.approx(expected)
    with pytest.raises(ReleaseError, match="more closely"):
        draws_release("map", law="grid", points=9, temper=Fraction(1, 20))
