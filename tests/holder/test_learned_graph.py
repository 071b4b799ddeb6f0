"""A graph chosen from the rows: sensitivities hunted, choices enumerated, the door, the readers.

Nothing here trusts the mechanism's own bounds: neighbours are enumerated, and the probabilities of
choices are computed from the law of the noise by summing over it.
"""

import itertools
import json
import math
from fractions import Fraction
from importlib import resources

import jsonschema
import numpy as np
import pytest
import scipy.stats
from typer.testing import CliRunner

import noisewise as nw
from noisewise.cli.main import app
from noisewise.core.composition import within
from noisewise.core.document import digest_of
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import (
    cost_of_learning,
    learned_sensitivities,
    learned_squares,
)
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.networks import learned
from noisewise.holder.networks.counts import CountPlan
from noisewise.holder.networks.learned import (
    ONE_PARENT,
    TWO_PARENTS,
    LearnedGraph,
    counted_families,
    independence_scores,
    noisy_maximum,
    second_parent_gains,
)
from noisewise.holder.publish import publish
from noisewise.holder.requests.file import read_request
from noisewise.holder.requests.network import make_network_request

from ..ledgers import ledger_for


def schema(*arities, **changes):
    levels = [tuple(map(str, range(r))) for r in arities]
    columns = {f"x{i}": Category(own, own[0]) for i, own in enumerate(levels)}
    return Schema("people", columns, **changes)


def empty(declared):
    return Network(declared, dict.fromkeys(declared.columns, ()))


def counts_of(network, rows):
    accumulator = CountPlan(network, counted_families(network)).accumulator()
    accumulator.add(list(np.array(rows, dtype=np.int32).reshape(len(rows), -1).T))
    return accumulator.result()


def simulated(n, seed=1):
    """x0 -> x1 and x0, x1 -> x2, strongly; x3 for itself."""
    rng = np.random.default_rng(seed)
    x0 = rng.random(n) < 0.5
    x1 = rng.random(n) < np.where(x0, 0.9, 0.2)
    x2 = rng.random(n) < np.where(x0 ^ x1, 0.95, 0.05)
    x3 = rng.random(n) < 0.4
    return {f"x{i}": x.astype(int).astype(str) for i, x in enumerate((x0, x1, x2, x3))}


# --- sensitivity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_no_neighbour_moves_a_score_or_count_farther_than_is_claimed(neighbours):
    """All records of 2 x 3 x 2 levels, beside tables of few rows; both scores, any reference."""
    network = empty(schema(2, 3, 2, neighbours=neighbours))
    tree = Network(network.schema, {"x0": (), "x1": ("x0",), "x2": ("x0",)})
    records = list(itertools.product(range(2), range(3), range(2)))
    rng = np.random.default_rng(3)
    farthest_scores, farthest_gains = 0, 0
    for rest in ([records[0]], [records[0], records[-1], records[-1]]):
        public = {v: rng.random(network.arity(v)) * 4 + 0.5 for v in network.nodes}
        noisy = learned.NoisyCounts({"x1": (3, -1, 2, 0, 1, 5), "x2": (1, 2, 0, 4)}, 1.0, 1)
        found = []
        for record in records:
            counts = counts_of(network, [*rest, record])
            found.append(
                (
                    independence_scores(network, counts, public, 4.0),
                    second_parent_gains(tree, counts, noisy, 4.0, 0.1),
                )
            )
        without = counts_of(network, rest)
        base = (
            independence_scores(network, without, public, 4.0),
            second_parent_gains(tree, without, noisy, 4.0, 0.1),
        )
        pairs = (
            itertools.permutations(found, 2)
            if neighbours == "replace_one"
            else ((one, base) for one in found)
        )
        for (s, g), (t, h) in pairs:
            farthest_scores = max(farthest_scores, *(abs(s[k] - t[k]) for k in s))
            farthest_gains = max(farthest_gains, *(abs(g[k] - h[k]) for k in g))
    claimed = network.schema.records_changed
    assert farthest_scores == claimed  # attained, never exceeded
    assert farthest_gains == claimed


def test_sensitivities_of_counts_are_attained(monkeypatch):
    """What is handed to the noise, for all pairs of records."""
    for neighbours, rows in (("replace_one", 1), ("add_remove_one", 1), ("replace_one", 3)):
        declared = schema(2, 3, 2, neighbours=neighbours, max_rows_per_unit=rows)
        graph = Network(declared, {"x0": (), "x1": ("x0",), "x2": ("x1", "x0")})
        planned, handed = LearnedGraph(empty(declared), Fraction(1)), []
        monkeypatch.setattr(
            "noisewise.holder.mechanisms.randomness.invoke",
            lambda _, sums, kept=handed: kept.append(np.array(sums)) or tuple(sums),
        )
        records = list(itertools.product(range(2), range(3), range(2)))
        for group, claimed in learned_sensitivities(graph).items():
            handed.clear()
            bases = [()] if neighbours == "add_remove_one" else []
            for copies in [*([r] * rows for r in records), *bases]:
                planned._measured(group, graph, Fraction(1), counts_of(graph, [(0, 0, 0), *copies]))
            far = [np.abs(a - b).sum() for a in handed for b in handed]
            if neighbours == "add_remove_one":
                far = [np.abs(a - handed[-1]).sum() for a in handed]
            assert max(far) == claimed, (group, neighbours)
        # With a delta, squared: the same vectors in steps of the noise's grid.
        gaussian = LearnedGraph(empty(declared), Fraction(1), Fraction("1e-6"))
        for group, claimed in learned_squares(graph).items():
            handed.clear()
            for copies in [*([r] * rows for r in records), *bases]:
                counts = counts_of(graph, [(0, 0, 0), *copies])
                gaussian._measured(group, graph, Fraction(1, 2), counts)
            whole = [sums // learned.STEP for sums in handed]
            others = whole if neighbours == "replace_one" else whole[-1:]
            assert max(((a - b) ** 2).sum() for a in whole for b in others) == claimed


# --- choices --------------------------------------------------------------------------------------


def chances(scores, scale, most=400):
    """P(choice) by summing over the noise: with q = exp(-1/s), P(Z <= z) = 1 - q^(z+1)."""
    q = math.exp(-1 / scale)
    found = []
    for c, own in enumerate(scores):
        total = 0.0
        for z in range(most):
            beaten = 1.0
            for j, other in enumerate(scores):
                if j != c:  # a tie goes to the first
                    reach = own + z - other - (1 if j < c else 0)
                    beaten *= max(0.0, 1 - q ** (reach + 1)) if reach >= 0 else 0.0
            total += (1 - q) * q**z * beaten
        found.append(total)
    return np.array(found)


def test_choices_keep_to_their_claim_and_half_the_noise_does_not():
    """All neighbouring triples of scores within R = 2: at most 2R/s, and nearly that is reached."""
    change, epsilon = 2, 1.0
    scale = 2 * change / epsilon

    def loss(spread):
        worst = 0.0
        for base in ((0, 0, 0), (5, 0, -3), (0, 40, 0)):
            law = np.log(chances(base, spread))
            for moved in itertools.product((-2, 0, 2), repeat=3):
                other = np.log(chances([b + m for b, m in zip(base, moved, strict=True)], spread))
                worst = max(worst, float(np.abs(law - other).max()))
        return worst

    assert 0.95 * epsilon < loss(scale) <= epsilon + 1e-9
    assert loss(scale / 2) > 1.5 * epsilon


def test_choices_follow_the_law():
    """Counts of 4,000 choices; 5 standard deviations are exceeded once in a million times."""
    scores, scale, many = [3, 0, 3, -4], 4.0, 4000
    expected = chances(scores, scale)
    assert expected.sum() == pytest.approx(1)
    drawn = np.bincount([noisy_maximum(scores, scale) for _ in range(many)], minlength=4)
    assert (np.abs(drawn - many * expected) < 5 * np.sqrt(many * expected)).all()
    assert (np.abs(drawn - many * chances(scores, scale / 2)) > 5 * np.sqrt(many)).any()


def test_a_whole_tree_keeps_to_its_claim():
    """Three binary columns, all neighbours of tiny data: P(tree) by all orders of its edges."""
    network = empty(schema(2, 2, 2))
    epsilon = ONE_PARENT.tree
    planned = LearnedGraph(network, Fraction(1))
    scale = 2 * 2 * 2 / float(epsilon)
    margins = {v: np.array([2.0, 2.0]) for v in network.nodes}

    def law(rows):
        scores = independence_scores(network, counts_of(network, rows), margins, 4.0)
        pairs, found = list(scores), {}
        first = chances([scores[p] for p in pairs], scale)
        for k, p in enumerate(pairs):  # any two edges of three make a tree
            rest = [q for q in pairs if q != p]
            for q, chance in zip(rest, chances([scores[r] for r in rest], scale), strict=True):
                tree = frozenset((p, q))
                found[tree] = found.get(tree, 0.0) + first[k] * chance
        return found

    records = list(itertools.product(range(2), repeat=3))
    rest = [(0, 0, 0), (1, 1, 0), (1, 1, 1)]
    laws = [law([*rest, record]) for record in records]
    worst = max(abs(math.log(p[t] / q[t])) for p in laws for q in laws for t in p)
    assert 0 < worst <= float(epsilon)
    # And what is drawn is that law.
    scores = independence_scores(network, counts_of(network, [*rest, records[0]]), margins, 4.0)
    drawn = [frozenset(planned._tree(scores, epsilon)) for _ in range(1500)]
    for tree, chance in laws[0].items():
        assert abs(drawn.count(tree) - 1500 * chance) < 5 * math.sqrt(1500 * chance)


# --- with a delta ---------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 2, 5, 12])
def test_the_claim_follows_from_the_event_and_hardly_less_noise_would_do(many):
    """Whichever steps follow, what they spend is the event's, and the budget is used up."""
    planned = LearnedGraph(empty(schema(*[2, 3] * many)), Fraction(1), Fraction("1e-6"))
    planned.verify()
    assert within([planned.event()], Fraction(1), Fraction("1e-6"))
    more = planned._event(planned.budget * Fraction(1005, 1000))
    assert not within([more], Fraction(1), Fraction("1e-6"))
    counts = planned.event().events[-1]
    for rows in (1, 10**9):
        shares = planned._shares(rows)
        spent = (shares.levels + shares.pairs + shares.triples) * planned.budget
        assert spent <= 1 / Fraction(counts.noise_multiplier) ** 2 <= spent * Fraction(1.000001)
        assert sum(shares) <= 1


def test_gaussian_noise_is_as_stated():
    """Sums of 4,000 squares: beyond these quantiles once in a million times."""
    planned = LearnedGraph(empty(schema(2, 2)), Fraction(1), Fraction("1e-6"))
    noise = np.array(planned._noise([5] * 4000, 3.0)) - 5
    law = scipy.stats.chi2(4000)
    total = (noise**2).sum() / (9 + 1 / 12)  # rounding adds a twelfth
    assert law.ppf(5e-7) < total < law.ppf(1 - 5e-7)
    assert not law.ppf(5e-7) < total * 1.21 < law.ppf(1 - 5e-7)  # a tenth less noise
    assert abs(noise.mean()) < 5 * 3.02 / math.sqrt(4000)


# --- through the door -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neighbours", "delta"),
    [("replace_one", None), ("add_remove_one", None), ("replace_one", "1e-6")],
)
def test_a_strong_graph_is_found_and_its_tables_are_right(tmp_path, neighbours, delta):
    data = simulated(20_000)
    declared = schema(2, 2, 2, 2, neighbours=neighbours)
    request = make_network_request(declared, network="learn", epsilon=4, delta=delta)
    request.verify()
    ledger = ledger_for(tmp_path / "budget.db")
    release = publish(request, data, ledger=ledger).release
    assert release.claim.epsilon == 4
    if delta is None:
        assert cost_of_learning(release.content) <= 4
    with nw.Ledger(ledger) as book:
        assert len(book.published()) == 1  # one charge
    links = {frozenset(edge) for edge in release.network.edges}
    assert {frozenset(("x0", "x1"))} <= links  # the tree's strongest edge
    assert len(release.to_text().encode()) <= request.longest()
    assert release_from_text(release.to_text()) == release
    posterior = nw.fit(release, seed=1, draws=200)
    assert "learned" in " ".join(posterior.info.warnings)
    exact = np.mean(data["x1"][data["x0"] == "1"] == "1")
    answer = posterior.prob("x1=1 | x0=1", level=0.9)
    assert abs(float(answer.mean) - exact) < 0.03
    repeated = publish(request, simulated(20_000, seed=2), ledger=ledger)
    assert repeated.repeated
    assert repeated.release == release


def test_second_parents_come_where_rows_are_many():
    planned = LearnedGraph(empty(schema(2, 2, 2, 2)), Fraction(1))
    assert planned._shares(100) == ONE_PARENT
    assert planned._shares(100_000) == TWO_PARENTS
    assert sum(ONE_PARENT) == sum(TWO_PARENTS) == 1
    # x2 depends on x0 and x1, which depend on each other: no tree says that. What the best tree
    # leaves is thousands of rows, and the noise of the choice is of tens.
    data, rng = simulated(50_000), np.random.default_rng(2)
    both = (data["x0"] == "1") * 0.4 + (data["x1"] == "1") * 0.4 + 0.1
    data["x2"] = (rng.random(50_000) < both).astype(int).astype(str)
    request = make_network_request(schema(2, 2, 2, 2), network="learn", epsilon=4)
    counts = open_source(data).sums(request.plan(), None)
    release = request.release(counts.n, counts)
    two = {node: given for node, given in release.network.parents.items() if len(given) == 2}
    assert [{node, *given} for node, given in two.items()] == [{"x0", "x1", "x2"}]
    assert nw.fit(release, seed=1, draws=50).info.algorithm == "latent counts"  # no loops


def test_one_and_two_columns_need_no_choice():
    for arities in ((3,), (2, 3)):
        request = make_network_request(schema(*arities), network="learn", epsilon=1)
        request.verify()
        data = {f"x{i}": np.array(["0", "1"] * 40) for i in range(len(arities))}
        counts = open_source(data).sums(request.plan(), None)
        release = request.release(counts.n, counts)
        assert release.content.choice == 0
        assert len(release.network.edges) == len(arities) - 1
        nw.fit(release, seed=1, draws=20)


def test_a_delta_is_spent_where_it_helps_only():
    """Laplace noise is less for one table, and Gaussian noise for many."""
    few, many = (
        make_network_request(schema(*[3] * k), network="learn", epsilon=1, delta="1e-6")
        for k in (2, 8)
    )
    assert few.claim.is_pure
    assert few.key == make_network_request(schema(3, 3), network="learn", epsilon=1).key
    assert many.claim.delta == Fraction("1e-6")
    pure = make_network_request(schema(*[3] * 8), network="learn", epsilon=1).planned
    scales = (many.planned.scales(pure.star, 1)["pairs"], pure.scales(pure.star, 1)["pairs"])
    assert scales[0] < 2**0.5 * scales[1]


def test_what_makes_no_sense_is_refused():
    mixed = Schema("people", {"age": Number(0, 1), "x": Category(("a", "b"), "a")})
    with pytest.raises(RequestError, match="'age' is a number, and a graph is learned"):
        make_network_request(mixed, network="learn", epsilon=1)
    assert make_network_request(mixed, network="learn", features=["x"], epsilon=1).sources == ("x",)
    for words, message in (
        ({"network": "learn", "mechanism": "fourier"}, "not with fourier"),
        ({"network": {"x0": []}, "mechanism": "learn"}, "unknown"),
        ({"network": {"x0": []}, "features": ["x0"]}, "leave them out"),
        ({"network": "learn", "draws": 2}, "no effect on learn"),
        ({"network": {"x0": []}, "delta": "1e-6"}, "only a graph that is learned"),
        ({"network": "learn", "delta": "0.5"}, "no protection"),
        ({"network": "learn", "delta": "1e-300", "epsilon": "1e-9"}, "more epsilon"),
    ):
        with pytest.raises(RequestError, match=message):
            make_network_request(schema(2, 2), **({"epsilon": 1} | words)).verify()
    release = _release()
    with pytest.raises(RequestError, match="per_table"):
        nw.fit(release, method="per_table")


# --- readers --------------------------------------------------------------------------------------


def _release(n=400, delta=None):
    request = make_network_request(schema(2, 2, 2, 3), network="learn", epsilon=1, delta=delta)
    rng = np.random.default_rng(1)
    data = simulated(n) | {"x3": rng.choice(["0", "1", "2"], n)}
    counts = open_source(data).sums(request.plan(), None)
    return request.release(counts.n, counts)


def _less_noise(document):
    noise = document["result"]["pairs"]["noise"]
    noise["scale"] /= 2


def _cheaper_choice(document):
    document["result"]["choice"] = "0.9"


def _two_roots(document):
    child = next(node for node, given in document["parents"].items() if given)
    document["parents"][child] = []


def _small_sensitivity(document):
    part = document["result"]["levels"]
    part["sensitivity" if "sensitivity" in part else "squared_sensitivity"] -= 1


def _missing(document):
    document["result"]["levels"]["values"].pop("x1")


def _as_declared(document):
    document["mechanism"] = "laplace"


def _fewer_choices(document):
    del document["privacy"]["event"]["events"][:2]


def _no_gaussian(document):
    document["privacy"]["event"]["events"].pop()


def _no_delta(document):
    document["privacy"]["claim"]["delta"] = "0"


def _no_slack(document):
    document["privacy"]["event"]["events"][-1]["slack"] = 0.0


def _laplace_levels(document):
    part = document["result"]["levels"]
    part |= {"kind": "counts", "sensitivity": part.pop("squared_sensitivity")}
    part["noise"] = {"family": "discrete_laplace", "scale": part["noise"]["scale"]}


def test_the_published_schema_describes_it():
    described = resources.files("noisewise.core.kinds").joinpath("network_release.schema.json")
    check = jsonschema.Draft202012Validator(json.loads(described.read_text("utf-8")))
    document = json.loads(_release().to_text())
    check.validate(document)
    check.validate(json.loads(_release(delta="1e-6").to_text()))
    for words in ({}, {"mechanism": "fourier"}, {"mechanism": "posterior_sample"}):
        request = make_network_request(schema(2, 3), network={"x1": ["x0"]}, epsilon=1, **words)
        counts = open_source({"x0": ["0", "1"], "x1": ["2", "0"]}).sums(request.plan(), None)
        check.validate(json.loads(request.release(counts.n, counts).to_text()))
    del document["result"]["choice"]
    assert not check.is_valid(document)


EITHER = (_less_noise, _cheaper_choice, _two_roots, _small_sensitivity, _missing, _as_declared)
WITH_DELTA = (_fewer_choices, _no_gaussian, _no_delta, _no_slack, _laplace_levels)


@pytest.mark.parametrize(
    ("forge", "delta"),
    [*((f, None) for f in EITHER), *((f, "1e-6") for f in (*EITHER, *WITH_DELTA))],
)
def test_readers_refuse_what_does_not_follow(forge, delta):
    document = json.loads(_release(delta=delta).to_text())
    document.pop("digest")
    assert release_from_text(json.dumps({**document, "digest": digest_of(document)}))
    forge(document)
    with pytest.raises(ReleaseError):
        release_from_text(json.dumps({**document, "digest": digest_of(document)}))


# --- from the command line ------------------------------------------------------------------------


def test_learn_fit_and_show(tmp_path):
    data = simulated(3000)
    lines = [",".join(data), *(",".join(row) for row in zip(*data.values(), strict=True))]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n", "utf-8")
    one = '{type: category, levels: ["0", "1"], reference: "0"}'
    columns = "\n".join(f"  {name}: {one}" for name in data)
    (tmp_path / "schema.yaml").write_text(f"dataset: people\ncolumns:\n{columns}\n", "utf-8")
    ledger_for(tmp_path / "budget.db")

    def run(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    command = ("release-network", "--data", tmp_path / "people.csv", "--graph", "learn")
    command += ("--schema", tmp_path / "schema.yaml", "--epsilon", 2)
    command += ("--ledger", tmp_path / "budget.db", "--out", tmp_path / "net.json")
    assert "epsilon of tree 0.4" in run(*command, "--dry-run")
    assert "noise gaussian" in run(*command, "--delta", "1e-6", "--dry-run")
    run(*command)
    request = "release: network\nschema: schema.yaml\ngraph: learn\nepsilon: 2\n"
    (tmp_path / "request.yaml").write_text(request, "utf-8")
    again = read_request(tmp_path / "request.yaml")
    assert (
        again.key
        == make_network_request(
            nw.read_schema(tmp_path / "schema.yaml"), network="learn", epsilon=2
        ).key
    )
    fitted = run("fit", tmp_path / "net.json", "--seed", 1, "--draws", 50, "--out",
                 tmp_path / "net.nc")  # fmt: skip
    assert "with a learned graph" in fitted
    shown = run("show", tmp_path / "net.nc")
    assert "Network of 4 nodes: " in shown
    assert ">" in shown.splitlines()[0]
