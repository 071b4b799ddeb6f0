"""The network posterior: from Releases to tables, queries, classification and files."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.network.fit import fit_network
from noisewise.analyst.network.layout import Layout
from noisewise.analyst.network.prior import Concentrations, Learning
from noisewise.analyst.network.queries import blanket
from noisewise.analyst.posterior.file import (
    load_posterior,
)
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import NetworkRelease
from noisewise.core.schema import Category, Schema
from noisewise.holder.publish import publish
from noisewise.holder.requests.network import make_network_request

from ..ledgers import ledger_for
from .network_oracle import network

COLUMNS = {
    "region": Category(("north", "east", "west"), "north"),
    "smoker": Category(("no", "yes"), "no"),
    "cough": Category(("never", "some", "often"), "never"),
    "ill": Category(("no", "yes"), "no"),
}
# The parents of `ill` are declared against topological order, so axes have to be turned.
PARENTS = {"region": [], "smoker": ["region"], "cough": ["smoker"], "ill": ["cough", "region"]}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    region = rng.integers(0, 3, n)
    smoker = (rng.random(n) < np.array([0.2, 0.5, 0.8])[region]).astype(int)
    cough = np.minimum(rng.integers(0, 2, n) + smoker, 2)
    ill = (rng.random(n) < (0.1 + 0.2 * cough + 0.2 * (region == 2))).astype(int)
    codes = {"region": region, "smoker": smoker, "cough": cough, "ill": ill}
    return {name: np.array(COLUMNS[name].levels)[code] for name, code in codes.items()}


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """One Release a mechanism and neighbour relation, of the same 3,000 rows."""
    folder = tmp_path_factory.mktemp("ledger")
    found = {}
    for neighbours in ("replace_one", "add_remove_one"):
        schema = Schema("people", COLUMNS, neighbours)
        for mechanism in ("laplace", "fourier", "posterior_sample", "map"):
            request = make_network_request(
                schema,
                network=Network.make(schema, PARENTS),
                epsilon=2,
                mechanism=mechanism,
                **({"draws": 3} if mechanism == "posterior_sample" else {}),
            )
            ledger = ledger_for(folder / f"{neighbours}-{mechanism}.db")
            found[neighbours, mechanism] = publish(request, rows(3000), ledger=ledger).release
    return found


@pytest.fixture(scope="module")
def posterior(releases):
    return nw.fit(releases["replace_one", "laplace"], seed=1, draws=200)


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("mechanism", ["laplace", "fourier", "posterior_sample", "map"])
def test_every_mechanism_gives_tables(releases, mechanism, neighbours):
    release = NetworkRelease.from_text(releases[neighbours, mechanism].to_text())
    found = fit_network(release, seed=1, draws=50, chains=2)
    for node in found.nodes:
        table = found.table(node)
        assert table.mean.shape == found.network.shape(node)
        np.testing.assert_allclose(table.mean.sum(axis=-1), 1)
    if mechanism == "posterior_sample":
        assert found.info.method == "plugin"
        assert found.theta.shape[:2] == (1, 3)
        assert "3 set(s) of tables that were released" in found.info.warnings[0]
        return
    assert found.info.method == "joint"
    true = np.mean(rows(3000)["smoker"][rows(3000)["region"] == "west"] == "yes")
    table = found.table("smoker")
    assert abs(table.mean[2, 1] - true) < 6 * table.sd[2, 1]


def test_axes_follow_the_declared_parents(posterior):
    """P(ill = yes | cough = often, region = west) is the largest, in the place that says so."""
    table = posterior.table("ill").mean
    assert table.shape == (3, 3, 2)
    assert np.unravel_index(table[..., 1].argmax(), (3, 3)) == (2, 2)
    cell = posterior.layout.part(posterior.layout.number["ill"]).start
    assert posterior.cell_name(cell).startswith("ill=no | ")


def test_noise_aware_is_wider_than_plugin(releases):
    release = releases["replace_one", "laplace"]
    joint = fit_network(release, seed=1, draws=200)
    alone = fit_network(release, seed=1, draws=200, method="per_table")
    for node in ("smoker", "ill"):
        plug = joint.plugin_table(node)
        assert (joint.table(node).sd > 0.9 * plug.sd).mean() > 0.9
        assert alone.table(node).sd.mean() > plug.sd.mean()
        np.testing.assert_allclose(joint.table(node).mean, alone.table(node).mean, atol=0.1)
        assert ((joint.privacy_share(node) >= 0) & (joint.privacy_share(node) <= 1)).all()


def test_a_seed_makes_it_reproducible(releases):
    release = releases["replace_one", "laplace"]
    for method in ("joint", "per_table", "plugin"):
        first, second, third = (
            fit_network(release, method=method, seed=s, chains=2, draws=20).theta for s in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, second)
        assert not np.array_equal(first, third)


# --- queries against the full joint table ----------------------------------------------------


def full_joint(posterior, draw):
    layout = posterior.layout
    shape = tuple(int(r) for r in layout.arity)
    joint = np.ones(shape)
    for i, family in enumerate(layout.families):
        own = posterior.flat[draw, layout.part(i)].reshape(layout.shape(family))
        joint = joint * own[tuple(slice(None) if j in family else None for j in range(len(shape)))]
    return joint


def test_queries_are_sums_over_the_joint_table(posterior):
    number = posterior.layout.number
    answer = posterior.marginal(["ill", "smoker"], given={"region": "west"})
    joint = full_joint(posterior, 17)
    table = np.moveaxis(joint, [number["ill"], number["smoker"], number["region"]], [0, 1, 2])
    expected = table[:, :, 2].sum(axis=-1)
    np.testing.assert_allclose(answer.draws[17], expected / expected.sum(), rtol=1e-10)
    one = posterior.prob({"smoker": "yes", "ill": "no"}, given={"region": "west"})
    np.testing.assert_allclose(one.draws[17], (expected / expected.sum())[0, 1], rtol=1e-10)
    assert one.lower < one.mean < one.upper
    assert "95% interval" in str(one)


def test_rows_are_simulated_where_sums_are_too_large(posterior, monkeypatch):
    from noisewise.analyst.network import queries

    exact = posterior.prob({"smoker": "yes"}, given={"ill": "yes"})
    monkeypatch.setattr(queries, "MAX_TABLE", 1)
    rough = posterior.prob({"smoker": "yes"}, given={"ill": "yes"})
    assert rough.simulated
    assert not exact.simulated
    assert abs(rough.mean - exact.mean) < 0.01


def test_classification_is_bayes_rule(posterior):
    new = {"region": ["west", "north"], "cough": ["often", "never"], "ill": ["yes", "no"]}
    found = posterior.predict(new, target="smoker")
    assert blanket(posterior.layout, posterior.layout.number["smoker"]) == {
        posterior.layout.number[name] for name in ("region", "cough")
    }
    conditional = []
    for draw in range(len(posterior.flat)):
        joint = full_joint(posterior, draw)
        number = posterior.layout.number
        index = [slice(None)] * 4
        index[number["region"]], index[number["cough"]], index[number["ill"]] = 2, 2, 1
        conditional.append(joint[tuple(index)])
    conditional = np.array(conditional)
    expected = conditional.mean(axis=0) / conditional.mean(axis=0).sum()
    # Only the blanket matters; `ill` weighs draws a little, which the blanket leaves out.
    np.testing.assert_allclose(found.probability[0], expected, atol=0.01)
    assert found.most_likely.tolist() == ["yes", "no"]


def test_missing_values_are_summed_out(posterior):
    whole = posterior.predict({"smoker": ["yes"]}, target="ill")
    asked = posterior.marginal("ill", given={"smoker": "yes"})
    np.testing.assert_allclose(whole.probability[0], asked.mean, atol=0.01)
    some = posterior.predict({"smoker": ["yes", None], "cough": [None, "often"]}, target="ill")
    np.testing.assert_allclose(some.probability[0], whole.probability[0], rtol=1e-9)


def test_synthetic_rows_follow_the_tables(posterior):
    made = posterior.synthetic(20_000, seed=3)
    share = np.mean(made["smoker"][made["region"] == "west"] == "yes")
    # Binomial error of some 6,700 rows is 0.005; the draws' own spread averages out.
    assert abs(share - posterior.table("smoker").mean[2, 1]) < 0.03
    again = posterior.synthetic(20_000, seed=3)
    assert all((made[name] == again[name]).all() for name in made)


# --- files and mistakes ------------------------------------------------------------------------


def test_files_keep_everything(posterior, tmp_path):
    path = tmp_path / "post.nc"
    posterior.save(path)
    loaded = load_posterior(path)
    np.testing.assert_array_equal(loaded.theta, posterior.theta)
    np.testing.assert_array_equal(loaded.plugin, posterior.plugin)
    assert loaded.info == posterior.info
    data = posterior.to_arviz()
    assert data.posterior["table_3"].attrs["long_name"] == "ill"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ReleaseError, match="not a posterior file"):
        load_posterior(path)


def test_pgmpy_gets_columns_in_its_own_order(posterior, monkeypatch):
    """With a stand-in for pgmpy: one column a configuration, the first parent slowest."""
    made = {}

    class Cpd:
        def __init__(self, node, arity, values, evidence, evidence_card, state_names):
            made[node] = (arity, np.array(values), evidence, evidence_card, state_names)

    class Model:
        def __getattr__(self, name):
            return lambda *given: None

    discrete, models = ModuleType("pgmpy.factors.discrete"), ModuleType("pgmpy.models")
    discrete.TabularCPD, models.DiscreteBayesianNetwork = Cpd, Model
    for module in (ModuleType("pgmpy"), ModuleType("pgmpy.factors"), discrete, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    posterior.to_pgmpy(draw=5)
    arity, values, evidence, cards, states = made["ill"]
    assert (arity, evidence, cards) == (2, ["cough", "region"], [3, 3])
    assert states["region"] == ["north", "east", "west"]
    draws = posterior.draws("ill").reshape(-1, 3, 3, 2)
    np.testing.assert_array_equal(values[:, 1 * 3 + 2], draws[5, 1, 2])
    assert made["region"][2] is None


def test_pgmpy_is_asked_for_politely(posterior, monkeypatch):
    monkeypatch.setitem(sys.modules, "pgmpy.factors.discrete", None)
    with pytest.raises(RequestError, match="pip install pgmpy"):
        posterior.to_pgmpy()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.table("age"), "'age' is not a node"),
        (lambda p: p.prob({"ill": "maybe"}), "'maybe' is not one of its levels: no, yes"),
        (lambda p: p.prob({"ill": "yes"}, given={"ill": "no"}), "it can't be given too"),
        (lambda p: p.marginal([]), "expected different nodes"),
        (lambda p: p.predict({"age": [1]}, target="ill"), "expected a mapping or data frame"),
        (lambda p: p.predict({"smoker": ["no"], "cough": []}, target="ill"), "the same length"),
        (lambda p: p.synthetic(0), "rows: expected a whole number"),
        (lambda p: p.table("ill", level=90), "expected a probability"),
    ],
)
def test_questions_that_make_no_sense(posterior, ask, message):
    with pytest.raises(RequestError, match=message):
        ask(posterior)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"method": "gibbs"}, "'gibbs' is unknown; use auto, plugin, per_table, joint"),
        ({"prior": -1}, "positive concentrations"),
        ({"prior": {"age": 1}}, "'age' is not a node"),
        ({"prior": {"ill": [1, 2]}}, r"an array of shape \(3, 3, 2\)"),
        ({"chains": 0}, "chains: expected"),
    ],
)
def test_fits_that_make_no_sense(releases, words, message):
    with pytest.raises(RequestError, match=message):
        fit_network(releases["replace_one", "laplace"], **words)


def test_methods_that_a_release_cannot_serve(releases):
    with pytest.raises(RequestError, match="parity counts; use method='joint'"):
        fit_network(releases["replace_one", "fourier"], method="per_table")
    with pytest.raises(RequestError, match="drawn tables instead; use method='plugin'"):
        fit_network(releases["replace_one", "posterior_sample"], method="joint")
    with pytest.raises(RequestError, match="takes one Release"):
        fit_network([releases["replace_one", "laplace"]] * 2, method="per_table")
    with pytest.raises(RequestError, match="target: a network is fitted as a whole"):
        nw.fit(releases["replace_one", "laplace"], target="ill")


def test_the_former_name_of_a_method_is_understood(releases, tmp_path):
    """`exact` was what `per_table` is; a file that says so is read."""
    release = releases["replace_one", "laplace"]
    found = fit_network(release, method="exact", chains=2, draws=20, seed=1)
    assert found.info.method == "per_table"
    assert "under its former name, exact" in found.describe()
    same = fit_network(release, method="per_table", chains=2, draws=20, seed=1)
    np.testing.assert_array_equal(found.theta, same.theta)
    old = replace(found, info=replace(found.info, method="exact"))
    old.save(tmp_path / "old.nc")
    assert load_posterior(tmp_path / "old.nc").info.method == "per_table"


def test_where_the_prior_decides_is_said(releases, tmp_path):
    """A level that nobody has: it can't be told from 0, and as a parent its row is the prior's."""
    schema = Schema("people", {**COLUMNS, "moon": Category(("no", "yes"), "no")})
    data = {**rows(3000), "moon": np.full(3000, "no")}
    made = Network.make(schema, {"region": [], "moon": [], "smoker": ["moon"]})
    request = make_network_request(schema, network=made, epsilon=2)
    release = publish(request, data, ledger=ledger_for(tmp_path / "b.db")).release
    for method in ("joint", "per_table"):
        found = fit_network(release, seed=1, draws=200, method=method)
        assert found.info.learned
        np.testing.assert_array_equal(found.prior_decides("smoker"), [[False, False], [True, True]])
        assert not found.prior_decides("region").any()
        np.testing.assert_array_equal(found.prior_decides("moon"), [False, True])
        assert any("prior decides 3 of 9 probabilities" in w for w in found.info.warnings)
        assert "smoker=yes | moon=yes *" in found.describe()
        assert found.to_dict()["tables"]["smoker"]["prior_share"][1][1] > 0.5
        found.save(tmp_path / "p.nc")
        np.testing.assert_array_equal(load_posterior(tmp_path / "p.nc").prior, found.prior)
    given = fit_network(release, seed=1, draws=200, prior=1)
    assert not given.info.learned
    np.testing.assert_allclose(given.prior[1][given.layout.part(0)], 2 / 9 / 4)
    old = replace(found, prior=None)  # as earlier versions wrote it
    assert "*" not in old.describe()
    with pytest.raises(RequestError, match="does not carry its prior"):
        old.prior_share("smoker")


def test_what_the_prior_decides(posterior):
    """A row where much is left of the prior, and what has too few records under the noise."""
    part = posterior.layout.part(posterior.layout.number["cough"])
    variance, noise = posterior.flat.var(axis=0), np.sqrt(2) * posterior.info.noise_scales[0]
    most = np.quantile(posterior.flat, 0.95, axis=0)
    prior = np.stack([posterior.prior[0], 3 * variance, 2.1 * noise / most])
    assert not replace(posterior, prior=prior).prior_decides("cough").any()
    prior[1, part.start + 1] /= 2  # one entry, and its row is marked
    found = replace(posterior, prior=prior).prior_decides("cough")
    np.testing.assert_array_equal(found, [[True] * 3, [False] * 3])
    prior[2, part.start + 4] *= 1.9 / 2.1  # few records of one level: it alone is marked
    found = replace(posterior, prior=prior).prior_decides("cough")
    np.testing.assert_array_equal(found, [[True] * 3, [False, True, False]])
    prior[2, part.start + 3 : part.stop] = 1.9 * noise  # a row of few records
    assert replace(posterior, prior=prior).prior_decides("cough").all()
    found[1] = False
    old = replace(posterior, prior=prior[:2])  # as an earlier version wrote it
    np.testing.assert_array_equal(old.prior_decides("cough"), found)


def test_moments_are_those_of_the_prior():
    layout = Layout(network({"a": 2, "b": 3}, {"a": [], "b": ["a"]}))
    learned = Concentrations(np.ones(layout.cells), np.array([False, True]))
    learning, rng = Learning(layout, learned), np.random.default_rng(4)
    seen = np.array([90.0, 110.0, 80, 9, 1, 5, 99, 6])
    learning.update(rng, seen)
    base, kappa = np.exp(learning._log[:3]), np.exp(learning._log[3])
    first = rng.choice(4, p=learning._weights, size=40_000)
    drawn = rng.standard_gamma(base + kappa * np.eye(4, 3)[first])
    drawn /= drawn.sum(axis=1, keepdims=True)
    mean, square, records = learning.moments(seen)
    np.testing.assert_allclose(
        mean, [0.5, 0.5, *drawn.mean(axis=0), *drawn.mean(axis=0)], atol=0.01
    )
    np.testing.assert_allclose(square[2:5], (drawn**2).mean(axis=0), atol=0.01)
    np.testing.assert_array_equal(records, [200, 200, 90, 90, 90, 110, 110, 110])


def test_the_same_rows_twice_are_noticed(releases):
    found = fit_network(
        [releases["replace_one", "laplace"], releases["replace_one", "fourier"]],
        chains=2,
        draws=20,
    )
    assert any("people count twice" in warning for warning in found.info.warnings)


def test_a_forged_release_is_refused(releases):
    release = releases["replace_one", "laplace"]
    content = release.content
    for value in (10**6, 2**62, -(2**62)):
        values = {**content.values, "cough": (value, *content.values["cough"][1:])}
        forged = replace(release, content=replace(content, values=values))
        with pytest.raises(ReleaseError, match="the counts of 'cough' do not add up"):
            fit_network(forged)


def test_a_prior_that_rules_is_obeyed(releases):
    strong = {"ill": np.broadcast_to([9e5, 1e5], (3, 3, 2))}
    for method in ("joint", "per_table", "plugin"):
        found = fit_network(
            releases["replace_one", "laplace"], prior=strong, method=method, chains=2, draws=20
        )
        np.testing.assert_allclose(found.table("ill").mean[..., 1], 0.1, atol=0.01)


def test_synthetic_sets_are_of_one_draw_each(posterior):
    """Sets scatter as the posterior does; rows of `synthetic` are of all draws together."""
    sets = list(posterior.synthetic_sets(sets=200, rows=4_000, seed=1))
    shares = [np.mean(rows["smoker"] == "yes") for rows in sets]
    expected = posterior.marginal("smoker").draws[:, 1].std()
    sampling = 0.5 / np.sqrt(4_000)
    # A standard deviation of 200 values is known to about 5%. Sets of all draws would have a third
    # less.
    assert np.std(shares, ddof=1) == pytest.approx(np.hypot(expected, sampling), rel=0.25)
    again = next(posterior.synthetic_sets(sets=200, rows=4_000, seed=1))
    np.testing.assert_array_equal(again["ill"], sets[0]["ill"])
    assert len(next(posterior.synthetic_sets(sets=2))["ill"]) == 3000


def test_analyses_of_unlinked_columns_are_not_congenial(posterior):
    q, u = np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.1, 0.1])
    fine = nw.pool(q, u, rows=3000, posterior=posterior, columns=["ill", "cough"])
    assert fine.warnings == ()
    asked = nw.pool(q, u, rows=3000, posterior=posterior, columns=["ill", "smoker"])
    assert "no arrow between ill and smoker" in asked.warnings[0]
    assert "Warning: not congenial" in str(asked)
    with pytest.raises(RequestError, match="'age' is not a node"):
        posterior.unlinked(["ill", "age"])


def test_layout_turns_tables_both_ways():
    layout = Layout(network({"a": 2, "b": 3, "c": 4}, {"a": [], "b": ["a"], "c": ["b", "a"]}))
    table = np.arange(24).reshape(3, 2, 4)
    cells = layout.inward(2, table)
    np.testing.assert_array_equal(cells.reshape(2, 3, 4), table.transpose(1, 0, 2))
    np.testing.assert_array_equal(layout.outward(2, cells), table)
