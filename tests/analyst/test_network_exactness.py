"""Every sampler of networks against brute force over all data sets of a few rows.

Posterior means and mean squares of all table entries are compared in standard errors from batch
means. The negative control is the same comparison with twice the noise scale in the oracle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noisewise.analyst.network import counts, per_table, records
from noisewise.analyst.network.entropy import junction_tree
from noisewise.analyst.network.fit import fit_network, split_rhat
from noisewise.analyst.network.layout import Layout, normalised
from noisewise.analyst.network.observed import Measurement, Observed
from noisewise.analyst.network.regions import make_problem, sample
from studies.zhang2016.coverage import count_records, simulate_release

from .network_oracle import (
    all_cells,
    brute_force,
    discrete_laplace,
    family_counts,
    fixed,
    learned,
    log_evidence,
    network,
    prior_draws,
    simulated,
)

BINARY = {"a": 2, "b": 2, "c": 2}
FOUR = {**BINARY, "d": 2}
NAIVE_BAYES = (BINARY, {"a": [], "b": ["a"], "c": ["a"]}, 5)
COMMON_CHILD = (BINARY, {"a": [], "b": [], "c": ["b", "a"]}, 5)
COMPLETE = (BINARY, {"a": [], "b": ["a"], "c": ["a", "b"]}, 5)
THREE_LEVELS = ({"a": 3, "b": 2}, {"a": [], "b": ["a"]}, 6)
CHAIN = (FOUR, {"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}, 3)
COVERED = (FOUR, {"a": [], "b": ["a"], "c": ["a"], "d": ["a", "b", "c"]}, 3)
DIAMOND = (FOUR, {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}, 4)


def problem(example, scale, seed, alpha=1.0, n=None):
    arities, parents, rows = example
    layout = Layout(network(arities, parents))
    rng = np.random.default_rng(seed)
    concentration = np.full(layout.cells, alpha)
    theta = normalised(rng.standard_gamma(np.ones(layout.cells)), layout)
    true, full = simulated(layout, theta, rows if n is None else n, rng)
    released = true + discrete_laplace(rng, scale, true.size)
    return layout, all_cells(layout, released, scale, int(full.sum())), concentration, full


def rough(layout, observed):
    direct = all(m.matrix is None for m in observed.measurements)
    if direct and len(observed.measurements) == len(layout.nodes):
        return np.concatenate([np.clip(m.values, 0, None) for m in observed.measurements]) * 1.0
    return np.ones(layout.cells)


def gaps(draws, expected):
    """Distance from the expected mean in standard errors, from 40 batches."""
    batches = draws.reshape(40, -1, draws.shape[-1]).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(40)
    return np.abs(batches.mean(axis=0) - expected) / np.maximum(error, 1e-12)


def run(sampler, layout, observed, alpha, draws=4000, thin=4):
    prior = fixed(alpha) if isinstance(alpha, np.ndarray) else alpha
    problem = make_problem(layout, [observed], prior, rough(layout, observed))
    return sample(sampler.chain, problem, chains=2, draws=draws, warmup=300, thin=thin, seed=1)[:2]


@pytest.mark.parametrize(
    ("sampler", "example", "alpha"),
    [
        (counts, NAIVE_BAYES, 1.0),
        (counts, COMMON_CHILD, 1.0),
        (counts, COMPLETE, 0.6),
        (counts, THREE_LEVELS, 1.5),
        (counts, CHAIN, 1.0),
        (counts, COVERED, 1.0),
        (records, NAIVE_BAYES, 1.0),
        (records, DIAMOND, 0.7),
    ],
)
def test_joint_posterior_is_that_of_all_data_sets(sampler, example, alpha):
    layout, observed, concentration, full = problem(example, 2.0, 3, alpha)
    n = int(full.sum())
    theta, given = run(sampler, layout, observed, concentration)
    mean, square = brute_force(layout, observed, concentration, [n])
    assert gaps(given, mean).max() < 5
    assert gaps(theta**2, square).max() < 5
    louder = all_cells(layout, np.concatenate([m.values for m in observed.measurements]), 4.0, n)
    assert gaps(given, brute_force(layout, louder, concentration, [n])[0]).max() > 5


def test_gaussian_noise_on_tables_that_share_cells():
    """Levels and pairs, as of a learned graph; a Laplace law of the same variance is found out."""
    layout, _, alpha, full = problem(CHAIN, 1.0, 5)
    rng = np.random.default_rng(8)
    measured = []
    for names, scale in (((0,), 1.5), ((2,), 1.5), ((0, 1), 1.0), ((1, 2), 1.0), ((2, 3), 1.0)):
        table = full.sum(axis=tuple(j for j in range(4) if j not in names)).reshape(-1)
        values = np.rint(table + rng.normal(0, scale, table.size)).astype(np.int64)
        measured.append(Measurement(names, values, np.full(table.size, scale), gaussian=True))
    measured[0] = replace(measured[0], scale=np.array([np.inf, 1.5]))  # one of a binary node
    observed = Observed(int(full.sum()), tuple(measured))
    theta, given = run(counts, layout, observed, alpha)
    mean, square = brute_force(layout, observed, alpha, [observed.n])
    assert gaps(given, mean).max() < 5
    assert gaps(theta**2, square).max() < 5
    laplace = [replace(m, gaussian=False, scale=m.scale / np.sqrt(2)) for m in measured]
    other = brute_force(layout, Observed(observed.n, tuple(laplace)), alpha, [observed.n])[0]
    assert gaps(given, other).max() > 5


def brute_force_learned(layout, observed, n, seed):
    """The posterior mean of every cell when concentrations are drawn from the hyperprior."""
    from scipy.special import gammaln

    from .network_oracle import compositions, log_noise

    def rising(a):
        """log of a (a + 1) ... (a + m - 1) for m = 0 to n, by entry of a."""
        steps = np.log(a[..., None] + np.arange(n)).cumsum(axis=-1)
        return np.concatenate([np.zeros((*a.shape, 1)), steps], axis=-1)

    alphas = prior_draws(layout, 80_000, np.random.default_rng(seed))
    sums = np.add.reduceat(alphas, row_starts(layout), axis=1)
    by_cell, by_row = rising(alphas), rising(sums)
    total, weight = 0.0, 0.0
    shape = tuple(int(r) for r in layout.arity)
    for cells in compositions(n, int(np.prod(shape))):
        full = np.array(cells).reshape(shape)
        seen = family_counts(layout, full).astype(int)
        rows = np.add.reduceat(seen, row_starts(layout))
        log_weight = gammaln(n + 1) - gammaln(full + 1).sum() + log_noise(observed, layout, full)
        log_weight = log_weight + by_cell[:, np.arange(seen.size), seen].sum(axis=1)
        log_weight = log_weight - by_row[:, np.arange(rows.size), rows].sum(axis=1)
        w = np.exp(log_weight)
        total = total + w @ normalised(alphas + seen, layout)
        weight = weight + w.sum()
    return total / weight


def row_starts(layout):
    """Where the rows of the tables start, each a level for every cell."""
    parts = [layout.part(i) for i in range(len(layout.nodes))]
    return np.concatenate(
        [np.arange(p.start, p.stop, int(r)) for p, r in zip(parts, layout.arity, strict=True)]
    )


@pytest.fixture(scope="module")
def learned_by_force():
    """A problem, and its posterior means twice."""
    example = ({"a": 2, "b": 3}, {"a": [], "b": ["a"]}, 5)
    given = problem(example, 1.0, 11)
    n = int(given[-1].sum())
    return given, [brute_force_learned(*given[:2], n, seed) for seed in (1, 2)]


@pytest.mark.parametrize("sampler", [counts, pytest.param(records, marks=pytest.mark.long)])
def test_learned_concentrations_are_part_of_the_posterior(sampler, learned_by_force):
    """Against all data sets and draws of the hyperprior; a fixed prior is found out."""
    (layout, observed, alpha, full), (expected, again) = learned_by_force
    n = int(full.sum())
    assert np.abs(expected - again).max() < 0.005  # the oracle is sure enough of itself
    _, given = run(sampler, layout, observed, learned(layout), draws=10_000)
    error = np.abs(given.mean(axis=(0, 1)) - (expected + again) / 2)
    batches = given.reshape(40, -1, layout.cells).mean(axis=1).std(axis=0, ddof=1) / np.sqrt(40)
    assert (error < 5 * batches + 0.004).all()
    fixed_mean, _ = brute_force(layout, observed, alpha, [n])
    assert not (np.abs(fixed_mean - expected) < 5 * batches + 0.004).all()


def test_concentrations_do_not_run_away():
    """With many records, doubles can't tell 1e25 from 1e26: such steps must not be taken."""
    from noisewise.analyst.network.prior import FARTHEST, Learning

    layout = Layout(network({"a": 2, "b": 2}, {"a": [], "b": ["a"]}))
    seen = np.array([21_000.0, 9_000.0, 12_600.0, 8_400.0, 7_200.0, 1_800.0])
    learning, rng = Learning(layout, learned(layout)), np.random.default_rng(1)
    largest = []
    for _ in range(20_000):
        learning.update(rng, seen)
        largest.append(learning.alpha.max())
    assert max(largest) <= np.exp(FARTHEST)
    assert np.median(largest) < 100


def test_per_table_learns_the_concentrations_of_a_root():
    """One table with a public total: both enumeration and learning leave nothing out."""
    layout, observed, alpha, full = problem(({"a": 3}, {"a": []}, 6), 1.0, 12)
    n = int(full.sum())
    expected = np.mean([brute_force_learned(layout, observed, n, s) for s in (1, 2)], axis=0)
    means = [
        per_table.sample(layout, observed, learned(layout), chains=2, draws=2000, seed=s)[1].mean(
            axis=(0, 1)
        )
        for s in range(24)
    ]
    error = np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
    assert (np.abs(np.mean(means, axis=0) - expected) < 4 * error + 0.004).all()
    fixed_mean, _ = brute_force(layout, observed, alpha, [n])
    assert not (np.abs(np.mean(means, axis=0) - fixed_mean) < 4 * error + 0.004).all()


def test_a_private_number_of_rows_is_part_of_the_posterior():
    layout, observed, alpha, _ = problem(NAIVE_BAYES, 1.0, 4, n=3)
    private = Observed(None, observed.measurements)
    _, given = run(counts, layout, private, alpha)
    # Sizes beyond eight have no weight to speak of: three tables would be off by six each.
    mean, _ = brute_force(layout, private, alpha, range(9))
    assert gaps(given, mean).max() < 5
    assert gaps(given, brute_force(layout, private, alpha, [3])[0]).max() > 5


def test_parity_counts_are_linear_in_the_same_counts():
    """A fourier Release: parities of all subsets of families, each measured once."""
    layout, _, alpha, full = problem(NAIVE_BAYES, 1.0, 5)
    rng = np.random.default_rng(6)
    measured = []
    for names in [(0,), (1,), (2,), (0, 1), (0, 2)]:
        table = full.sum(axis=tuple(j for j in range(3) if j not in names)).reshape(-1)
        odd = np.indices((2,) * len(names)).sum(axis=0).reshape(1, -1) % 2
        value = odd @ table + discrete_laplace(rng, 1.5, 1)
        measured.append(Measurement(names, value, np.array([1.5]), odd))
    observed = Observed(int(full.sum()), tuple(measured))
    mean, square = brute_force(layout, observed, alpha, [observed.n])
    for sampler in (counts, records):
        theta, given = run(sampler, layout, observed, alpha)
        assert gaps(given, mean).max() < 5
        assert gaps(theta**2, square).max() < 5


def test_several_holders_share_their_tables():
    """Two holders of two rows each, against brute force over both."""
    arities, parents = {"a": 2, "b": 2}, {"a": [], "b": ["a"]}
    layout = Layout(network(arities, parents))
    alpha = np.ones(layout.cells)
    rng = np.random.default_rng(7)
    holders = [all_cells(layout, rng.integers(-1, 4, layout.cells), 1.5, n) for n in (2, 3)]
    problem = make_problem(layout, holders, fixed(alpha), np.ones(layout.cells))
    found = sample(counts.chain, problem, chains=2, draws=4000, warmup=300, thin=4, seed=1)
    expected = _two_holders(layout, holders, alpha)
    assert gaps(found.given_counts, expected).max() < 5
    alone, _ = brute_force(layout, holders[0], alpha, [2])
    assert gaps(found.given_counts, alone).max() > 5


def _two_holders(layout, holders, alpha):
    from scipy.special import gammaln

    from .network_oracle import compositions, log_noise

    weights, means = [], []
    tables = [[np.array(c).reshape(2, 2) for c in compositions(holder.n, 4)] for holder in holders]
    for first in tables[0]:
        for second in tables[1]:
            total = family_counts(layout, first + second)
            log_weight = log_evidence(layout, total, alpha)
            for holder, full in zip(holders, (first, second), strict=True):
                log_weight += gammaln(full.sum() + 1) - gammaln(full + 1).sum()
                log_weight += log_noise(holder, layout, full)
            weights.append(log_weight)
            means.append(normalised((alpha + total)[None], layout)[0])
    w = np.exp(np.array(weights) - max(weights))
    return (w / w.sum()) @ np.array(means)


@pytest.mark.parametrize("levels", [2, 3])
def test_per_table_is_the_posterior_of_a_root(levels):
    """One row with a public total: enumeration leaves nothing out."""
    layout, observed, alpha, full = problem(({"a": levels}, {"a": []}, 6), 1.5, 8, 0.7)
    theta, given, _ = per_table.sample(layout, observed, fixed(alpha), chains=2, draws=4000, seed=1)
    mean, square = brute_force(layout, observed, alpha, [int(full.sum())])
    assert gaps(given, mean).max() < 5
    assert gaps(theta**2, square).max() < 5


def test_one_count_of_a_binary_root_is_enough():
    """The other is n minus it: released once, with noise once."""
    layout, observed, alpha, full = problem(({"a": 2, "b": 2}, {"a": [], "b": ["a"]}, 6), 1.5, 9)
    root = observed.measurements[0]
    scale = np.array([np.inf, 1.5])
    half = Observed(observed.n, (Measurement((0,), root.values, scale), observed.measurements[1]))
    mean, _ = brute_force(layout, half, alpha, [int(full.sum())])
    assert gaps(run(counts, layout, half, alpha)[1], mean).max() < 5
    # Of the root alone, enumeration is exact too.
    alone = Layout(network({"a": 2}, {"a": []}))
    only = Observed(observed.n, (half.measurements[0],))
    mean, _ = brute_force(alone, only, alpha[:2], [int(full.sum())])
    _, given, _ = per_table.sample(alone, only, fixed(alpha[:2]), chains=2, draws=4000, seed=1)
    assert gaps(given, mean).max() < 5


def test_per_table_enumerates_all_pairs_of_counts():
    """Weights C(k1+k0, k1) B(a+k1, b+k0) exp(-|y-k|/scale), by brute force over all pairs."""
    from scipy.special import betaln, gammaln

    y, scale, alpha = np.array([7, -2]), 4.0, np.array([0.5, 2.0])
    row = per_table.enumerate_row(y, scale, alpha, None)
    k = np.arange(140)
    k1, k0 = k[:, None], k[None, :]
    log_weight = gammaln(k1 + k0 + 1) - gammaln(k1 + 1) - gammaln(k0 + 1)
    log_weight = log_weight + betaln(alpha[0] + k1, alpha[1] + k0)
    log_weight = log_weight - (np.abs(y[0] - k1) + np.abs(y[1] - k0)) / scale
    weight = np.exp(log_weight - log_weight.max())
    sums = np.bincount((k1 + k0).reshape(-1), weight.reshape(-1))
    law = row.law(0.0)
    expected = sums[: law.size] / sums.sum()
    np.testing.assert_allclose(law[: expected.size], expected, atol=1e-8)


def test_large_scales_take_steps_and_change_little():
    y, alpha = np.array([900, 300, -100]), np.ones(3)
    fine = per_table.FINE
    try:
        per_table.FINE = 10_000
        whole = per_table.enumerate_row(y, 100.0, alpha, None)
    finally:
        per_table.FINE = fine
    coarse = per_table.enumerate_row(y, 100.0, alpha, None)
    assert coarse.step == 3
    means = [row.law(0.0) @ row.sums for row in (whole, coarse)]
    spread = np.sqrt(whole.law(0.0) @ (whole.sums - means[0]) ** 2)
    assert abs(means[0] - means[1]) < 0.005 * spread


def test_which_networks_have_a_junction_tree():
    def acyclic(example):
        return junction_tree(Layout(network(*example[:2])).families) is not None

    assert all(map(acyclic, (NAIVE_BAYES, COMMON_CHILD, COMPLETE, CHAIN, COVERED)))
    assert not acyclic(DIAMOND)


def test_rare_rows_do_not_make_the_steps_of_common_ones_small(monkeypatch):
    """One row has 95% of the records, 39 have the rest: most cells of all chains must agree.

    The control has small steps wherever those that adapt became small.
    """
    levels = 40
    graph = network(
        {"p": levels, "q": 3, "c": 3, "d": 3}, {"q": ["p"], "c": ["p"], "d": ["p", "c"]}
    )
    skewed = [0.9, 0.09, 0.01]
    tables = {
        "p": np.r_[0.95, np.full(levels - 1, 0.05 / (levels - 1))],
        "q": np.tile(skewed, (levels, 1)),
        "c": np.tile(skewed, (levels, 1)),
        "d": np.tile(skewed, (levels, 3, 1)),
    }
    rng = np.random.default_rng(3)
    true = count_records(rng, graph, tables, 20_000)
    release = simulate_release(rng, graph, true, 20_000, 0.1, "laplace")

    def disagreeing():
        posterior = fit_network(release, chains=4, draws=100, seed=1)
        return np.mean(split_rhat(posterior.theta) > 1.5)

    assert disagreeing() < 0.08
    monkeypatch.setattr(counts, "_noise_scale", lambda regions: 0.0)
    assert disagreeing() > 0.08
