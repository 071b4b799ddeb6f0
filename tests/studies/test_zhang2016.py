"""Experiments of Zhang, Rubinstein & Dimitrakakis (2016): laws, exact posteriors, figures."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import arviz as az
import numpy as np
import pytest
from scipy import special, stats

from noisewise.analyst.network.fit import fit_network
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import TABLE_BITS
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.networks.counts import FamilyCounts, LaplaceCounts
from noisewise.holder.networks.fourier import FourierParities
from noisewise.holder.networks.map import plan_grid_map
from noisewise.holder.networks.posterior_sample import plan_posterior_sample, split_samplers
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.network import make_network_request
from studies import experiments
from studies.__main__ import find
from studies.report import Options
from studies.tables import read_table
from studies.zhang2016 import coverage, fig1, fig2, mechanisms, not_private
from studies.zhang2016 import naive_bayes as nb

# Holders' draws have no seed, so a test fails by chance this often at most.
RARE = 1e-6


@pytest.fixture(scope="module", autouse=True)
def holders_noise():
    """Real: its law is compared."""


def binary_naive_bayes(d):
    columns = {name: Category(("0", "1"), "0") for name in ("y", *(f"x{j}" for j in range(d)))}
    return Network.naive_bayes(Schema("people", columns), "y")


def family_counts(network, counts):
    """The lab's counts as the holder's."""
    tables = {"y": np.array([counts.n - counts.ones, counts.ones], dtype=np.int64)}
    tables.update({f"x{j}": t.astype(np.int64) for j, t in enumerate(counts.tables)})
    assert set(tables) == set(network.nodes)
    return FamilyCounts(int(counts.n), tables)


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(8)
    data, _ = nb.simulate(rng, 40, 3)
    return nb.count(data)


def same_law(one, other, rng):
    """p-value of a two-sample test of integers, spread over their unit intervals."""
    spread = [np.ravel(x) + rng.random(np.size(x)) for x in (one, other)]
    return stats.ks_2samp(*spread).pvalue


# --- Laws -----------------------------------------------------------------------------------------


def test_noisy_counts_agree_with_the_holders(small):
    network = binary_naive_bayes(3)
    planned = LaplaceCounts(network, Fraction(2))
    assert planned.sensitivity == 2 * 3 + 1  # what the figure's noise-aware line uses
    exact = family_counts(network, small)
    rng = np.random.default_rng(1)
    theirs, ours, wrong = [], [], []
    for _ in range(250):
        values = planned.draw(exact).values
        tables = [np.subtract(values[f"x{j}"], small.tables[j].ravel()) for j in range(3)]
        theirs.append(np.concatenate([np.subtract(values["y"], small.ones), *tables]))
        for factor, into in ((1.0, ours), (1.6, wrong)):
            noisy = nb.noisy_counts(rng, small, factor * planned.scale)
            tables = (noisy.tables - small.tables).ravel()
            into.append(np.append(noisy.ones - small.ones, tables))
    assert np.shape(theirs) == np.shape(ours) == (250, 13)
    assert same_law(theirs, ours, rng) > RARE
    assert same_law(theirs, wrong, rng) < RARE


def test_noisy_parities_agree_with_the_holders(small):
    network = binary_naive_bayes(3)
    planned = FourierParities(network, Fraction(2))
    assert planned.sensitivity == 2 * 3
    exact = family_counts(network, small)
    odd = nb.parities(small)
    by_set = {(("y", 1),): odd.y}
    by_set.update({((f"x{j}", 1),): odd.x[j] for j in range(3)})
    by_set.update({(("y", 1), (f"x{j}", 1)): odd.xy[j] for j in range(3)})
    truth = np.array([by_set[s] for s in planned.parities.sets])
    rng = np.random.default_rng(2)
    theirs = np.array([planned.draw(exact).values for _ in range(500)]) - truth
    ours, wrong = [], []
    for _ in range(500):
        for factor, into in ((1.0, ours), (1.6, wrong)):
            noisy = nb.noisy_parities(rng, odd, factor * planned.scale)
            into.append([noisy.y - odd.y, *(noisy.x - odd.x), *(noisy.xy - odd.xy)])
    assert same_law(theirs, ours, rng) > RARE
    assert same_law(theirs, wrong, rng) < RARE
    # and the tables that parities imply are the holder's
    release_counts = planned.parities.table("x1", odd.n, truth)
    np.testing.assert_allclose(release_counts, nb.from_parities(odd).tables[1])
    np.testing.assert_allclose(nb.from_parities(odd).tables, small.tables)


@pytest.mark.parametrize("epsilon", [3, 60])
def test_posterior_draws_agree_with_the_holders(epsilon):
    network = binary_naive_bayes(3)
    given = {"draws": 1, "concentration": dict.fromkeys(network.nodes, Fraction(1))}
    plain = plan_posterior_sample(network, Fraction(epsilon), temper=Fraction(1), **given)
    how = mechanisms.widest_truncation(epsilon, 4)
    assert plain.lowest / 2**TABLE_BITS == pytest.approx(how.omega, rel=2e-4)
    milder = plan_posterior_sample(network, Fraction(epsilon), omega=Fraction(1, 32), **given)
    tempered = mechanisms.tempered(epsilon, 4, 1 / 32)
    assert float(milder.temper) == pytest.approx(tempered.temper)
    rng = np.random.default_rng(3)
    table = np.array([[3, 12], [14, 2]])
    exact = FamilyCounts(31, {"x0": table})
    for planned, setting in ((plain, how), (milder, tempered)):
        samplers = split_samplers(network, "x0", exact, planned.temper, Fraction(1), planned.lowest)
        for row in (0, 1):
            zeros, ones = table[row]
            theirs = 1 - np.array([samplers[row].draw() for _ in range(1500)]) / 2**TABLE_BITS
            ours = mechanisms.posterior_draw(rng, np.full(1500, ones), zeros, setting)
            assert stats.ks_2samp(theirs, ours).pvalue > RARE
            assert ours.min() >= setting.omega
            if epsilon == 60:  # negative control: levels the wrong way round
                assert stats.ks_2samp(1 - theirs, ours).pvalue < RARE


def test_truncated_betas_far_in_their_tails():
    """By quadrature, where nearly all of the untruncated law is cut off."""
    rng = np.random.default_rng(4)
    for a, b, omega in ((300.0, 2.0, 0.3), (2.0, 300.0, 0.3), (1.0, 1.0, 0.49), (40.0, 30.0, 0.01)):
        v = omega + (1 - 2 * omega) * (np.arange(200_000) + 0.5) / 200_000
        weight = special.softmax((a - 1) * np.log(v) + (b - 1) * np.log1p(-v))
        drawn = mechanisms.truncated_beta(rng, np.full(4000, a), b, omega)
        mean, sd = weight @ v, np.sqrt(weight @ v**2 - (weight @ v) ** 2)
        assert abs(drawn.mean() - mean) < 5 * sd / 4000**0.5
        assert drawn.min() >= omega
        assert drawn.max() <= 1 - omega


def test_the_grid_map_agrees_with_the_holders():
    network = binary_naive_bayes(3)
    prior = dict.fromkeys(network.nodes, Fraction(1))
    planned = plan_grid_map(network, Fraction(200), concentration=prior, points=5)
    omega = planned.lowest / 2**TABLE_BITS
    factor = mechanisms.grid_factor(200, 4, omega)
    assert float(planned.factor) == pytest.approx(factor)
    table = np.array([[4, 7], [9, 1]])
    counts = FamilyCounts(21, {"x0": table})
    priors, posteriors = (
        split_samplers(network, "x0", counts, Fraction(t), Fraction(1), planned.lowest)[0]
        for t in (0, 1)
    )
    theirs = [planned.draw_split(priors, posteriors) for _ in range(300)]
    found = np.bincount(np.searchsorted(planned.grid, theirs), minlength=5)
    rng = np.random.default_rng(5)
    ones, zeros = np.full(100_000, 4), np.full(100_000, 7)  # a split's first level is x = 0
    ours = mechanisms.grid_map(rng, ones, zeros, factor, omega, 5)
    share = np.bincount(np.rint((ours - omega) / (1 - 2 * omega) * 4).astype(int), minlength=5)
    assert share.argmax() == 1
    among = int(found[1])
    assert stats.binomtest(among, 300, share[1] / 100_000).pvalue > RARE
    tripled = mechanisms.grid_map(rng, ones, zeros, 3 * factor, omega, 5)
    as_often = np.mean(np.isclose(tripled, omega + (1 - 2 * omega) / 4))
    assert stats.binomtest(among, 300, as_often).pvalue < RARE


def test_regression_draws_are_those_of_the_truncated_posterior():
    """Against rejection from the untruncated posterior, and against leaving the ball out."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(50, 2)) / 4
    y = np.clip(x @ [1.5, -1.0] + 0.2 * rng.normal(size=50), -1, 1)
    gram, moment = x.T @ x, x.T @ y
    ball = mechanisms.Ball(1.0, 1.0, 0.7, 0.3)
    for temper in (1.0, 0.3):
        P = temper * gram / ball.sigma2 + np.eye(2)
        mean = np.linalg.solve(P, temper * moment / ball.sigma2)
        free = rng.multivariate_normal(mean, np.linalg.inv(P), 60_000)
        inside = free[(free**2).sum(axis=1) <= ball.rho**2]
        drawn = mechanisms.regression_draws(rng, gram, moment, 1.0, ball, temper, 4000)
        for i in range(2):
            assert stats.ks_2samp(drawn[:, i], inside[:, i]).pvalue > 1e-4
        assert stats.ks_2samp(drawn[:, 0], free[:, 0]).pvalue < 1e-10
    shifted = mechanisms._shift(np.linalg.eigvalsh(P), np.array([3.0, 1.0]), 0.7)
    assert shifted > 0


def test_regression_draws_agree_with_the_holders():
    rng = np.random.default_rng(7)
    x1, n = rng.uniform(-1, 1, 60), 60
    y = np.clip(-0.4 + 0.8 * x1 + 0.3 * rng.normal(size=n), -1, 1)
    schema = Schema("people", {"x": Number(-1, 1), "y": Number(-1, 1)})
    request = make_regression_sample_request(
        schema, target="y", features=["x"], noise_sd="0.5", epsilon=5, draws=300,
        largest_norm="0.7", prior_precision=2,
    )  # fmt: skip
    sums = open_source({"x": x1, "y": y}).sums(request.plan())
    law = request.planned.law
    ball = mechanisms.Ball(2**0.5, 1.0, 0.7, 0.25)
    assert float(law.temper) == pytest.approx(mechanisms.regression_temper(ball, 5, 300))
    theirs = np.array(request.planned.draw(sums)) / 2**32 * 0.7
    x = np.column_stack([np.ones(n), x1])
    given = (x.T @ x, x.T @ y, 2.0, ball)
    ours = mechanisms.regression_draws(rng, *given, float(law.temper), 20_000)
    free = mechanisms.regression_draws(rng, *given, 1.0, 20_000)
    for i in range(2):
        assert stats.ks_2samp(theirs[:, i], ours[:, i]).pvalue > RARE
        assert stats.ks_2samp(theirs[:, i], free[:, i]).pvalue < RARE  # negative control


@pytest.mark.parametrize("bounds", [(1.0, 0.5), (1.0, 1.0), (0.5, 1.5)])
def test_what_a_regression_draw_costs(bounds):
    """A search over records and coefficients finds the bound attained and never exceeded."""
    B, T = bounds
    ball = mechanisms.Ball(1.0, B, T, 0.4)
    claimed = mechanisms.full_epsilon(ball)
    u, y = np.linspace(-T, T, 201), np.linspace(-B, B, 41)
    spread = np.array([np.ptp((v - u) ** 2 / (2 * ball.sigma2)) for v in y])
    # two records x, x' that are opposite and of length 1: u' = -u, so spreads may add up
    both = [
        np.ptp(((v - u) ** 2 - (w + u * sign) ** 2) / (2 * ball.sigma2))
        for v, w, sign in itertools.product(y[::4], y[::4], (-1, 0, 1))
    ]
    assert max(both) <= claimed * (1 + 1e-12)
    assert 2 * spread.max() == pytest.approx(claimed, rel=1e-4)
    assert max(both) > (0.999 if B >= T else 0.5) * claimed


# --- The exact posterior --------------------------------------------------------------------------


def brute_force(n, d, log_noise, x):
    """P(y, x | released) by adding up all data sets: (2, ) for one record x, normalised."""
    records = list(itertools.product((0, 1), repeat=d + 1))
    total = np.zeros(2)
    for chosen in itertools.combinations_with_replacement(range(len(records)), n):
        rows = np.array([records[i] for i in chosen])
        data = nb.Data(rows[:, 0], rows[:, 1:])
        counts = nb.count(data)
        repeats = np.bincount(chosen)
        orders = special.gammaln(n + 1) - special.gammaln(repeats + 1).sum()
        k = counts.ones
        t = counts.tables
        marginal = special.betaln(k + 1, n - k + 1)
        marginal += special.betaln(t[..., 1] + 1, t[..., 0] + 1).sum()
        weight = np.exp(orders + marginal + log_noise(counts))
        total += weight * np.exp(nb.log_joint(nb.posterior_mean(counts), x[None])[0])
    return total / total.sum()


@pytest.mark.parametrize("kind", ["counts", "parities"])
def test_the_enumerated_posterior_is_that_over_all_data_sets(kind):
    rng = np.random.default_rng(9)
    n, d, scale = 4, 2, 1.7
    exact = nb.count(nb.simulate(rng, n, d)[0])
    x = np.array([1, 0])
    if kind == "counts":
        noisy = nb.noisy_counts(rng, exact, scale)
        found = nb.enumerate_counts(noisy, scale)

        def log_noise(counts, scale=scale):
            away = abs(noisy.ones - counts.ones) + np.abs(noisy.tables - counts.tables).sum()
            return -away / scale
    else:
        odd = nb.noisy_parities(rng, nb.parities(exact), scale)
        found = nb.enumerate_parities(odd, scale)

        def log_noise(counts, scale=scale):
            p = nb.parities(counts)
            away = abs(odd.y - p.y) + np.abs(odd.x - p.x).sum() + np.abs(odd.xy - p.xy).sum()
            return -away / scale

    expected = brute_force(n, d, log_noise, x)
    np.testing.assert_allclose(special.softmax(found.scores(x[None])[0]), expected, rtol=1e-10)
    other = brute_force(n, d, lambda counts: log_noise(counts, 2 * scale), x)
    assert np.abs(other - expected).max() > 1e-3  # negative control: another scale


def test_without_noise_the_enumerated_posterior_is_the_usual_one(small):
    x = np.array(list(itertools.product((0, 1), repeat=3)))
    usual = special.log_softmax(nb.log_joint(nb.posterior_mean(small), x), axis=1)
    counts = nb.enumerate_counts(small, 0.01)
    parities = nb.enumerate_parities(nb.parities(small), 0.01)
    for found in (counts, parities):
        np.testing.assert_allclose(special.log_softmax(found.scores(x), axis=1), usual, rtol=1e-9)


@pytest.mark.parametrize("kind", ["laplace", "fourier"])
def test_joint_samples_what_is_enumerated(kind):
    """Tables' means of `joint` against the enumeration; the plug-in posterior is far from them."""
    rng = np.random.default_rng(12)
    n, d = 20, 3
    network = binary_naive_bayes(d)
    exact = nb.count(nb.simulate(rng, n, d)[0])
    tables = family_counts(network, exact).tables
    release = coverage.simulate_release(rng, network, tables, n, 3.0, kind)
    values, scale = release.content.values, release.content.scale
    if kind == "laplace":
        cells = np.array([np.reshape(values[f"x{j}"], (2, 2)) for j in range(d)], dtype=float)
        found = nb.enumerate_counts(nb.Counts(n, float(values["y"][0]), cells), scale)
    else:
        at = dict(zip(release.parities.sets, values, strict=True))
        x = np.array([at[((f"x{j}", 1),)] for j in range(d)], dtype=float)
        xy = np.array([at[("y", 1), (f"x{j}", 1)] for j in range(d)], dtype=float)
        found = nb.enumerate_parities(nb.ParityCounts(n, at[(("y", 1),)], x, xy), scale)
    weight = special.softmax(found.log_weight)
    expected = np.einsum("k,kjc->jc", weight, found.theta)
    posterior = fit_network(release, method="joint", prior=1, chains=2, draws=1500, seed=1)
    draws = np.stack([posterior.draws(f"x{j}")[..., 1] for j in range(d)], axis=2)
    error = [
        draws[..., j, c].std() / float(az.ess(draws[..., j, c])) ** 0.5
        for j, c in itertools.product(range(d), range(2))
    ]
    away = np.abs(draws.mean(axis=(0, 1)) - expected).ravel() / error
    assert away.max() < 4.5
    plain = np.array([posterior.plugin_table(f"x{j}").mean[:, 1] for j in range(d)])
    assert (np.abs(plain - expected).ravel() / error).max() > 10


def test_accuracy_counts_a_tie_as_half():
    scores = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    assert nb.accuracy(scores, np.array([1, 0, 1])) == 0.5


# --- Figures --------------------------------------------------------------------------------------


def test_figure_1_quick(tmp_path):
    paths = experiments.run(find("zhang2016-fig1"), tmp_path, quick=True)
    assert [p.name for p in paths] == [
        "zhang2016-fig1.json",
        "zhang2016-fig1.csv",
        "zhang2016-fig1.png",
    ]
    rows = read_table(paths[1])
    assert {row["method"] for row in rows} == set(fig1.METHODS)
    again = fig1.table((30.0,), fig1.accuracies((30.0,), 2))
    assert again == fig1.table((30.0,), fig1.accuracies((30.0,), 2))


def test_what_the_committed_figure_1_shows():
    """The claims of docs/networks.md, from the committed numbers."""
    rows = committed("zhang2016-fig1.csv")
    assert {float(row["epsilon"]) for row in rows} == set(fig1.EPSILONS)
    for row in rows:
        if row["whose"] == "paper" and row["private"] == 1:
            for ours in ("laplace", "fourier"):
                ahead, error = float(row[f"ahead_{ours}"]), float(row[f"ahead_{ours}_se"])
                assert ahead >= -3 * error - 1e-4, (row, ours)
    # what is not private would have won
    printed = [row for row in rows if row["method"].startswith("sampler")]
    assert float(printed[2]["epsilon"]) == 1.0
    assert float(printed[2]["ahead_laplace"]) < -0.1


def test_figure_2_quick(tmp_path):
    paths = experiments.run(find("zhang2016-fig2"), tmp_path, quick=True)
    rows = read_table(paths[1])
    assert {row["line"] for row in rows} == {*fig2.STYLES, "Release, epsilon = 10"}
    assert all(float(row["mse"]) > 0.04 for row in rows)


def test_what_the_committed_figure_2_shows():
    for name in ("census (simulated)", "randhie"):
        rows = [row for row in committed("zhang2016-fig2.csv") if row["data"] == name]
        best = min(row["mse"] for row in rows if row["line"] == "non_private")
        close = [row for row in rows if row["line"] == "full" and row["mse"] < 1.05 * best]
        assert min(row["epsilon"] for row in close) > 150  # what "slightly worse" costs
        for epsilon in (1, 10):
            one = {r["precision"]: r["mse"] for r in rows if r["line"] == f"epsilon = {epsilon}"}
            b = min(one, key=one.get)
            assert 1 < b < 1000  # neither end: too wide a ball costs, and too narrow a one
            (release,) = [r for r in rows if r["line"] == f"Release, epsilon = {epsilon}"]
            assert release["mse"] < one[b]


def committed(name):
    return read_table(Path(__file__).parents[2] / "docs" / "results" / name)


def test_increments_make_nothing_negative_as_often_as_they_say():
    rng = np.random.default_rng(10)
    d, scale = 4, 5.0
    increment = not_private.increment_for(rng, d, scale, 0.9)
    zero = nb.ParityCounts(0, 0.0, np.zeros(d), np.zeros(d))
    lowest = [
        not_private.paper_parities(rng, zero, scale, increment).tables.min() for _ in range(2000)
    ]
    assert np.mean(np.array(lowest) >= 0) == pytest.approx(0.9, abs=5 * (0.09 / 1000) ** 0.5)
    assert not_private.printed_increment(16, 1.0, 0.9) > 10 * not_private.increment_for(
        rng, 16, not_private.paper_scale(16, 1.0), 0.9, 200
    )


def test_only_the_figure_says_not_private():
    """Anything that is not private says so in its name, wherever it is shown."""
    for name, method in fig1.METHODS.items():
        assert method.private == ("NOT PRIVATE" not in name and name != "non_private")


def test_quick_reports_take_runs(tmp_path):
    rows = fig1.write(tmp_path, Options(True, 3, "x"))
    assert {row["repeats"] for row in read_table(rows[0])} == {3}


@pytest.mark.filterwarnings("error")
def test_one_released_table_is_read_without_ado():
    """A MAP estimate is one draw: it has no sd, and says what it was drawn from."""
    network = binary_naive_bayes(2)
    counts = nb.count(nb.simulate(np.random.default_rng(15), 30, 2)[0])
    request = make_network_request(
        network.schema, network=network, epsilon=5, mechanism="map", kind="grid", points=3
    )
    posterior = fit_network(request.release(30, family_counts(network, counts)))
    assert np.isnan(posterior.table("x0").sd).all()
    assert np.isnan(posterior.summary(nodes=["y"]).rows["y=1"].sd)
    (warning,) = posterior.info.warnings
    assert "3 values of a split" in warning
    assert "away from 0 and 1" in warning
    with pytest.raises(RequestError, match="event: 'age' is not a node"):
        posterior.prob({"age": "1"})
