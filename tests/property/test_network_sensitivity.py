"""Hunts for neighbours that move a network's statistics more than the proofs allow, and finds none.

Tiny networks, all pairs of records: the bounds are attained.
"""

import itertools
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from noisewise.core.design import Ball, Box
from noisewise.core.kinds.network.graph import Network, Parities, depth
from noisewise.core.kinds.network.release import log_odds
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.networks import fourier
from noisewise.holder.networks.counts import CountPlan, FamilyCounts, LaplaceCounts
from noisewise.holder.networks.map import GridMap, plan_grid_map
from noisewise.holder.networks.posterior_sample import plan_posterior_sample, split_samplers
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.network import make_network_request

NETWORKS = {
    "one binary": ([2], {"x0": []}),
    "one of three": ([3], {"x0": []}),
    "chain": ([2, 3, 2], {"x1": ["x0"], "x2": ["x1"]}),
    "collider": ([2, 2, 3], {"x2": ["x0", "x1"]}),
    "dense": ([2, 2, 2, 2], {"x1": ["x0"], "x2": ["x0", "x1"], "x3": ["x0", "x1", "x2"]}),
    "naive bayes": ([2, 2, 2, 2], {"x1": ["x0"], "x2": ["x0"], "x3": ["x0"]}),
    "wide": ([5, 3], {"x1": ["x0"]}),
    "apart": ([2, 2, 4], {"x0": [], "x1": [], "x2": []}),
}


def make(name, **changes):
    arities, parents = NETWORKS[name]
    levels = {f"x{i}": tuple(map(str, range(r))) for i, r in enumerate(arities)}
    schema = Schema("d", {n: Category(lv, lv[0]) for n, lv in levels.items()}, **changes)
    return Network.make(schema, parents)


def records(network):
    return list(itertools.product(*(range(network.arity(node)) for node in network.nodes)))


def counted(network, rows):
    accumulator = CountPlan(network).accumulator()
    accumulator.add(list(np.array(rows, dtype=np.int32).reshape(len(rows), -1).T))
    return accumulator.result()


def published(mechanism, rows, monkeypatch):
    """The integers that noise is added to: what the mechanism hands to the noise."""
    seen = []
    monkeypatch.setattr(
        "noisewise.holder.mechanisms.randomness.invoke",
        lambda _, sums: seen.append(np.array(sums)) or tuple(sums),
    )
    mechanism.draw(counted(mechanism.network, rows))
    return seen[0]


def largest_changes(mechanism, monkeypatch):
    """Over all records: the largest L1 change by replacing one, and by adding one."""
    network = mechanism.network
    rest = [records(network)[0], records(network)[-1]]
    base = published(mechanism, rest, monkeypatch)
    with_one = [published(mechanism, [*rest, r], monkeypatch) for r in records(network)]
    replaced = max(np.abs(a - b).sum() for a in with_one for b in with_one)
    added = max(np.abs(a - base).sum() for a in with_one)
    return replaced, added


@pytest.mark.parametrize("name", NETWORKS)
def test_laplace_sensitivity_is_attained(name, monkeypatch):
    replaced, _ = largest_changes(LaplaceCounts(make(name), Fraction(1)), monkeypatch)
    assert replaced == LaplaceCounts(make(name), Fraction(1)).sensitivity
    private = LaplaceCounts(make(name, neighbours="add_remove_one"), Fraction(1))
    assert (
        largest_changes(private, monkeypatch)[1]
        == private.sensitivity
        == len(private.network.nodes)
    )
    several = LaplaceCounts(make(name, max_rows_per_unit=3), Fraction(1))
    assert several.sensitivity == 3 * replaced


def test_laplace_sensitivity_is_the_papers_less_one_a_binary_root():
    network = make("naive bayes")
    assert LaplaceCounts(network, Fraction(1)).sensitivity == 2 * len(network.nodes) - 1


@pytest.mark.parametrize("name", NETWORKS)
def test_fourier_sensitivity_is_attained(name, monkeypatch):
    mechanism = fourier.FourierParities(make(name), Fraction(1))
    replaced, _ = largest_changes(mechanism, monkeypatch)
    assert replaced == mechanism.sensitivity <= len(mechanism.parities)
    private = fourier.FourierParities(make(name, neighbours="add_remove_one"), Fraction(1))
    added = largest_changes(private, monkeypatch)[1]
    assert added <= private.sensitivity
    if all(r in (2, 4) for r in NETWORKS[name][0]):  # every bit string is a record
        assert added == private.sensitivity


def test_fourier_sensitivity_of_naive_bayes():
    names = [f"x{i}" for i in range(17)]
    schema = Schema("d", {name: Category(("0", "1"), "0") for name in names})
    parities = Parities(Network.naive_bayes(schema, "x0"))
    assert len(parities) == 2 * 16 + 1
    assert fourier.most_changed(parities) == 2 * 16


@pytest.mark.parametrize("name", NETWORKS)
def test_a_cut_elimination_errs_towards_more_noise(name, monkeypatch):
    parities = Parities(make(name))
    exact = fourier.most_changed(parities)
    for size in (1, 4, 16):
        monkeypatch.setattr(fourier, "_LARGEST_TABLE", size)
        assert exact <= fourier.most_changed(parities) <= len(parities)


def test_fourier_equals_the_full_table(monkeypatch):
    """S_γ from the contingency table over all variables, which the mechanism never builds."""
    network = make("dense")
    rng = np.random.default_rng(5)
    rows = [tuple(r) for r in rng.integers(0, 2, (40, 4))]
    full = np.zeros((2,) * 4, dtype=int)
    for row in rows:
        full[row] += 1
    mechanism = fourier.FourierParities(network, Fraction(1))
    values = published(mechanism, rows, monkeypatch)
    for members, odd in zip(mechanism.parities.sets, values, strict=True):
        chosen = [network.nodes.index(node) for node, _ in members]
        signs = np.ones((2,) * 4)
        for axis in chosen:
            shape = [2 if i == axis else 1 for i in range(4)]
            signs = signs * np.array([1, -1]).reshape(shape)
        assert (signs * full).sum() == len(rows) - 2 * odd
    for node in network.nodes:
        others = tuple(i for i, n in enumerate(network.nodes) if n not in network.family(node))
        marginal = full.sum(axis=others)
        order = [n for n in network.nodes if n in network.family(node)]
        marginal = marginal.transpose([order.index(n) for n in network.family(node)])
        assert mechanism.parities.table(node, len(rows), values) == pytest.approx(marginal)


def test_the_simulated_noise_is_discrete_laplace():
    noise = fourier._public_noise("a", 200_000, 2.5)
    q = np.exp(-1 / 2.5)
    for z in range(-4, 5):
        p = (1 - q) / (1 + q) * q ** abs(z)
        assert abs(np.mean(noise == z) - p) < 5 * np.sqrt(p / 200_000)
    assert (noise == fourier._public_noise("a", 200_000, 2.5)).all()
    assert (noise != fourier._public_noise("b", 200_000, 2.5)).any()


def test_simulated_increment_keeps_its_promise():
    parities = Parities(make("naive bayes"))
    scale, stealth = 6.5, 0.9
    increment = fourier.simulated_increment(parities, scale, stealth)
    rng = np.random.default_rng(6)
    stop = -np.expm1(-1 / scale)
    hits = 0
    for _ in range(2000):
        noise = (rng.geometric(stop, len(parities)) - rng.geometric(stop, len(parities))).astype(
            float
        )
        lowest = min(parities.table(n, 0, noise).min() for n in parities.network.nodes)
        hits += lowest + increment >= 0
    # Two binomial errors: 1000 simulated draws chose it, 2000 judge it.
    spread = np.sqrt(0.09 / 1000 + 0.09 / 2000)
    assert abs(hits / 2000 - stealth) < 5 * spread
    assert increment < 4 * np.log(10) * len(parities) ** 2 * scale / 2**4  # the paper's constant


# ---------------------------------------------------------------------------------------------
# Posterior draws: the privacy loss itself, computed on a coarse grid


def split_law(a, b, lowest, one):
    """All probabilities of a split on a grid of `one` steps."""
    m = np.arange(lowest, one - lowest + 1)
    logs = a * np.log(m) + b * np.log(one - m)
    return logs - np.logaddexp.reduce(logs)


@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_split_loss_is_attained(tau):
    """One record's loss on one split is at most τ log((1-ω)/ω) times what it touches."""
    one, lowest = 64, 6
    most = tau * np.log((one - lowest) / lowest)
    worst_added = worst_replaced = 0.0
    for c, d in itertools.product((0, 1, 5, 50, 1000), repeat=2):
        base = split_law(tau * c, tau * d, lowest, one)
        first = split_law(tau * (c + 1), tau * d, lowest, one)
        second = split_law(tau * c, tau * (d + 1), lowest, one)
        for added in (first, second):
            worst_added = max(worst_added, np.abs(added - base).max())
        worst_replaced = max(worst_replaced, np.abs(first - second).max())
    assert 0.97 * most < worst_added <= most * (1 + 1e-12)
    assert 0.97 * 2 * most < worst_replaced <= 2 * most * (1 + 1e-12)


@pytest.mark.parametrize("name", ["chain", "wide", "naive bayes"])
def test_a_record_touches_as_many_splits_as_charged(name):
    """Counts of splits before and after: one path a node, and the deepest is charged."""
    network = make(name)
    prior = dict.fromkeys(network.nodes, Fraction(1))
    rest = [records(network)[0]] * 2

    def exponents(rows):
        counts = counted(network, rows)
        return np.array(
            [
                (sampler.a, sampler.b)
                for node in network.nodes
                for sampler in split_samplers(network, node, counts, Fraction(1), prior[node], 5)
            ]
        )

    base = exponents(rest)
    touched = [np.abs(exponents([*rest, r]) - base).sum() for r in records(network)]
    assert max(touched) == sum(depth(network.arity(node)) for node in network.nodes)
    planned = plan_posterior_sample(network, Fraction(2), draws=3, concentration=prior)
    spent = planned.temper * 2 * 3 * int(max(touched)) * log_odds(planned.lowest)
    assert Fraction(199, 100) < spent <= 2


def test_network_draws_lose_at_most_epsilon():
    """All splits of a whole network on a coarse grid: the largest log ratio over all neighbours."""
    network = make("chain")
    one, lowest, tau = 16, 3, Fraction(1, 2)
    laws = {}
    for rows in itertools.combinations_with_replacement(records(network), 2):
        counts = counted(network, rows)
        laws[rows] = [
            split_law(float(s.a), float(s.b), lowest, one)
            for node in network.nodes
            for s in split_samplers(network, node, counts, tau, Fraction(1), lowest)
        ]
    worst = 0.0
    for rows, other in itertools.combinations(laws, 2):
        if set(rows) & set(other):  # one record in common: neighbours
            ratios = [p - q for p, q in zip(laws[rows], laws[other], strict=True)]
            worst = max(worst, sum(r.max() for r in ratios), -sum(r.min() for r in ratios))
    touched = sum(depth(network.arity(node)) for node in network.nodes)
    claimed = 2 * float(tau) * touched * np.log((one - lowest) / lowest)
    assert 0.3 * claimed < worst <= claimed


# ---------------------------------------------------------------------------------------------
# MAP on a grid


def grid_laws(mechanism, counts, prior=Fraction(1)):
    """The law of every split, in doubles, from the definition."""
    m = np.array(mechanism.grid, dtype=float)
    found = []
    for node in mechanism.network.nodes:
        for s in split_samplers(
            mechanism.network, node, counts, Fraction(1), prior, mechanism.lowest
        ):
            logs = float(s.a) * np.log(m) + float(s.b) * np.log(2**24 - m)
            posterior = np.exp(logs - np.logaddexp.reduce(logs))
            score = float(mechanism.factor) * posterior
            found.append(score - np.logaddexp.reduce(score))
    return found


def test_posterior_probability_moves_by_at_most_the_hyperbolic_tangent():
    one, lowest = 64, 6
    bound = np.tanh(np.log((one - lowest) / lowest) / 4)
    worst = 0.0
    rng = np.random.default_rng(7)
    ends = np.array([lowest, one - lowest]) / one
    for p in np.linspace(0.001, 0.999, 999):
        before = np.array([p, 1 - p])
        after = before * ends / (before @ ends)
        worst = max(worst, np.abs(after - before).max())
    assert 0.999 * bound < worst <= bound
    for _ in range(2000):  # any posterior on any grid
        points = rng.uniform(lowest / one, 1 - lowest / one, 9)
        before = rng.dirichlet(np.full(9, 0.3))
        after = before * points / (before @ points)
        assert np.abs(after - before).max() <= bound


@pytest.mark.parametrize("name", ["one binary", "chain", "naive bayes"])
def test_grid_map_loses_at_most_epsilon(name):
    network = make(name)
    prior = dict.fromkeys(network.nodes, Fraction(1))
    mechanism = plan_grid_map(network, Fraction(2), concentration=prior, points=5)
    mechanism.verify()
    worst = 0.0
    first, last = records(network)[0], records(network)[-1]
    for copies in (0, 1, 3):
        rest = [first] * copies + [last] * copies
        laws = [grid_laws(mechanism, counted(network, [*rest, r])) for r in records(network)]
        for p, q in itertools.combinations(laws, 2):
            ratios = [x - y for x, y in zip(p, q, strict=True)]
            worst = max(worst, sum(r.max() for r in ratios), -sum(r.min() for r in ratios))
    assert 0 < worst <= 2


def test_bounds_of_grid_weights_agree():
    """Doubles and decimals enclose the same weights, also where all of them nearly vanish."""
    network = make("one binary")
    mechanism = GridMap(network, Fraction(9), 2**24 // 8, 6, {"x0": Fraction(2)})
    for zeros, ones in ((0, 0), (3, 1), (40_000, 17_000), (10**7, 9)):
        counts = FamilyCounts(zeros + ones, {"x0": np.array([zeros, ones])})
        given = (network, "x0", counts)
        (prior,) = split_samplers(*given, Fraction(0), Fraction(2), mechanism.lowest)
        (posterior,) = split_samplers(*given, Fraction(1), Fraction(2), mechanism.lowest)
        wide = mechanism._by_doubles(prior, posterior)
        for digits in (60, 120):
            narrow = mechanism._by_decimals(prior, posterior, digits)
            for (low, high), (least, most) in zip(wide, narrow, strict=True):
                assert low <= least <= most <= high
                assert most - least <= most * Decimal(10) ** (25 - digits)


def test_grid_map_fails_for_no_data():
    """An error that only some data raise would be seen, and cost nothing."""
    network = make("one binary")
    mechanism = plan_grid_map(
        network, Fraction(100), concentration={"x0": Fraction(1)}, omega=Fraction(49, 100)
    )
    assert mechanism.factor > 1000  # exp of it is no double
    for table in ([50, 50], [10**6, 0], [0, 10**9]):
        drawn = mechanism.draw(FamilyCounts(sum(table), {"x0": np.array(table)}))
        assert drawn.draws[0]["x0"][0] in mechanism.grid


def test_bounds_of_grid_weights_hold_where_doubles_vanish():
    network = make("one binary")
    mechanism = GridMap(network, Fraction(9), 2**24 // 8, 6, {"x0": Fraction(5000)})
    given = (network, "x0", FamilyCounts(0, {"x0": np.array([0, 0])}))
    (prior,) = split_samplers(*given, Fraction(0), Fraction(5000), mechanism.lowest)
    wide = mechanism._by_doubles(prior, prior)
    narrow = mechanism._by_decimals(prior, prior, 60)
    assert float(narrow[0][1]) == 0.0
    for (low, high), (least, most) in zip(wide, narrow, strict=True):
        assert low <= least <= most <= high


def test_grid_map_draws_its_law():
    network = make("one binary")
    prior = {"x0": Fraction(2)}
    mechanism = GridMap(network, Fraction(40), 2**24 // 8, 4, prior)
    counts = counted(network, [(0,)] * 3 + [(1,)])
    (law,) = grid_laws(mechanism, counts, prior["x0"])
    m = np.array(mechanism.grid) / 2**24
    law = np.exp(law) * m * (1 - m)  # the prior is Beta(2, 2)
    draws = [mechanism.draw(counts).draws[0]["x0"][0] for _ in range(1500)]
    observed = np.array([draws.count(v) for v in mechanism.grid])
    from scipy.stats import binomtest

    # Cell by cell, exactly: a chi-square statistic is no judge of cells with 0.003 expected draws.
    def smallest_p(shares):
        return min(binomtest(n, 1500, p).pvalue for n, p in zip(observed, shares, strict=True))

    assert smallest_p(law / law.sum()) > 1e-7
    assert smallest_p(np.full(4, 0.25)) < 1e-7


# ---------------------------------------------------------------------------------------------
# Regression


@pytest.mark.parametrize("norm", ["0.3", "0.7", "2"])
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_regression_loss_is_bounded_and_attained(norm, neighbours):
    """sup - inf over θ in the ball of a record's log-likelihood, by brute force in the plane."""
    schema = Schema("d", {"x": Number(-1, 1), "y": Number(-1, 1)}, neighbours=neighbours)
    made = make_regression_sample_request(
        schema, target="y", features=["x"], noise_sd=1, largest_norm=norm
    )
    law = made.planned.law
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 721), np.linspace(0, float(norm), 41))
    thetas = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1, 2)
    spreads = []
    for x, y in itertools.product(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9)):
        losses = -((y - thetas @ [1, x]) ** 2) / 2
        spreads.append(losses.max() - losses.min())
    assert 0.99 * float(law.cost_of_one) < max(spreads) <= float(law.cost_of_one) * (1 + 1e-9)
    sides = 2 if neighbours == "replace_one" else 1
    assert law.cost(3) == 3 * sides * law.cost_of_one
    assert made.claim.epsilon >= law.cost(1)


def test_rows_in_a_ball_cost_less():
    columns = {name: Number(0, 10) for name in "abcdefgh"}
    schema = Schema("d", {**columns, "y": Number(0, 1)})
    words = {"target": "y", "features": list(columns), "noise_sd": 1}
    box = make_regression_sample_request(schema, **words).planned.law
    ball = make_regression_sample_request(schema, radius=1.0, **words).planned.law
    assert isinstance(box.geometry, Box)
    assert isinstance(ball.geometry, Ball)
    assert box.longest_row == 9
    assert ball.longest_row == 2
    assert ball.cost(1) < box.cost(1) / 2


def test_requests_plan_what_they_claim():
    network = make("chain")
    for words in (
        {},
        {"mechanism": "fourier"},
        {"mechanism": "posterior_sample", "draws": 4},
        {"mechanism": "map", "kind": "tempered"},
        {"mechanism": "map", "kind": "grid"},
    ):
        made = make_network_request(network.schema, network=network, epsilon="0.7", **words)
        made.verify()
        assert made.planned.event().epsilon == Fraction(7, 10)
