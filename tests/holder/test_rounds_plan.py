"""The plan of rounds, on exact sums with Gaussian noise from a seed: does it find the data?

Slopes come from least squares over the first measurement and the last round, and are compared with
ordinary least squares on the rows, in standard errors. One round with the whole budget is the
control: where rounds help it is off by far more.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.core.design import Design
from noisewise.core.rounds import plan as rounds
from noisewise.core.rounds import tail
from noisewise.core.rounds.estimate import Observed, least_squares, mean_and_covariance
from noisewise.core.rounds.transform import Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics.ball_moments import PRODUCT_ONE, longest_square
from noisewise.holder.rows.rounds import BallPlan, TailPlan

MU = 0.2367  # epsilon = 1, delta = 1e-6


class Trial:
    """Rounds over one table, with noise from a seed in place of the holder's."""

    def __init__(self, design, columns, mu=MU, most=None):
        self.design, self.columns, self.rows = design, columns, len(columns[0])
        schema = design.schema
        self.replaces = schema.neighbours == "replace_one"
        self.setting = rounds.Setting(
            design.number_of_numbers,
            len(design.category_sizes),
            schema.max_rows_per_unit,
            self.replaces,
            mu,
            most,
        )
        self.is_number = [not column.is_indicator for column in design.columns]
        self.w = np.ones((len(self.is_number) + 1, self.rows))
        for row, column in zip(self.w[1:], design.columns, strict=True):
            values = columns[design.sources.index(column.source)]
            if column.is_indicator:
                row[:] = values == schema.columns[column.source].levels.index(column.level)
            else:
                row[:] = np.clip((values - column.centre) / column.half_width, -1, 1)

    def summed(self, plan):
        accumulator = plan.accumulator()
        accumulator.add(self.columns)
        return accumulator.result()

    def noisy(self, gram, off_diagonal, diagonal, rng):
        noise = np.triu(rng.normal(size=gram.shape), 1) * off_diagonal
        noisy = gram + noise + noise.T + np.diag(rng.normal(size=len(gram)) * diagonal)
        precision = np.full(gram.shape, off_diagonal**-2.0)
        np.fill_diagonal(precision, diagonal**-2.0)
        if self.replaces:
            noisy[0, 0] = precision[0, 0] = 0.0
        return noisy, precision

    def first(self, share, rng):
        q, groups = self.setting.numbers, self.setting.categories
        sd = self.setting.noise(1.0 + q + groups, share)
        return Observed(np.eye(len(self.w)), *self.noisy(self.w @ self.w.T, sd, sd, rng))

    def one_round(self, rng):
        return self.slopes([self.first(1.0, rng)], np.eye(len(self.w)))

    def run(self, rng):
        """Slopes, and what happened."""
        setting, groups = self.setting, self.setting.categories
        n = self.rows if self.replaces else None
        left = 1.0 - setting.first_share(n)
        first = self.first(1.0 - left, rng)
        block = np.ix_(*[[0, *(1 + np.flatnonzero(self.is_number))]] * 2)
        numbers = Observed(first.map[block], first.values[block], first.precision[block])
        explored, counted = [], None
        while True:
            step = rounds.next_step(setting, numbers, n, explored, counted)
            if isinstance(step, rounds.CountTail):
                left -= step.share
                relation = math.sqrt(2) if self.replaces else 1.0
                sd = setting.rows_per_unit * relation / (setting.mu * math.sqrt(step.share))
                counts = self.summed(TailPlan(self.design, step.transform)).counts
                noisy = np.array(counts) + sd * rng.normal(size=len(counts))
                counted = step.transform, noisy, sd
                continue
            shape, result = step.shape, self.summed(BallPlan(self.design, step.shape))
            square = longest_square(shape.constant, shape.weight, groups, shape.radius)
            if isinstance(step, rounds.Explore):
                left -= step.share
                sd = math.sqrt(2) * setting.noise(square / PRODUCT_ONE, step.share)
                pair = [
                    self.noisy(_symmetric(gram), sd / math.sqrt(2), sd, rng)[0]
                    for gram in (result.inside, result.outside)
                ]
                explored.append(rounds.Explored(shape, *pair, sd))
                continue
            sd = setting.noise(square / PRODUCT_ONE, left)
            gram = _symmetric(result.inside + result.outside)
            last = Observed(
                shape.map(self.is_number), *self.noisy(gram, sd, sd * math.sqrt(2), rng)
            )
            base = last.map.copy()
            base[0] /= base[0, 0]
            told = {"explored": len(explored), "left": left, "radius": shape.radius / 1024}
            return self.slopes([first, last], base), told

    def slopes(self, observed, base):
        back = np.linalg.inv(base)
        moments = (
            back @ least_squares(observed, base, self.rows if self.replaces else None) @ back.T
        )
        _, covariance = mean_and_covariance(moments)
        return np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])

    def ols(self):
        x, y = self.w[:-1].T, self.w[-1]
        inverse = np.linalg.inv(x.T @ x)
        coefficients = inverse @ x.T @ y
        residual = y - x @ coefficients
        variance = residual @ residual / (len(y) - x.shape[1])
        return coefficients[1:], np.sqrt(variance * np.diag(inverse))[1:]

    def errors(self, draws, seed):
        truth, se = self.ols()
        told = [self.run(np.random.default_rng([seed, k])) for k in range(draws)]
        return np.array([(slopes - truth) / se for slopes, _ in told]), [one for _, one in told]


def _symmetric(upper):
    return (upper + np.triu(upper, 1).T) / PRODUCT_ONE


def rms(errors):
    return float(np.sqrt(np.mean(np.square(errors))))


def tilted(n, k=4, *, wide=1.0, seed=3, **schema):
    """Correlated columns in a small corner of their bounds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k))
    x[:, 1] += 2 * x[:, 0]
    y = x.sum(axis=1) + rng.normal(size=n)
    bounds = [Number(-4 * wide, 20 * wide)] * k + [Number(-10 * wide, 50 * wide)]
    names = [f"x{j}" for j in range(k)] + ["y"]
    declared = Schema("t", dict(zip(names, bounds, strict=True)), **schema)
    return Design(declared, tuple(names[:-1]), "y"), [*np.ascontiguousarray(x.T), y]


@pytest.mark.parametrize("wide", [1.0, 10.0])
def test_rounds_find_a_small_tilted_corner(wide):
    trial = Trial(*tilted(20_000, wide=wide))
    errors, told = trial.errors(12, 5)
    truth, se = trial.ols()
    rng = np.random.default_rng(6)
    control = [(trial.one_round(rng) - truth) / se for _ in range(12)]
    assert rms(errors) < 1.3  # privacy costs about as much as sampling
    assert rms(control) > 10 * rms(errors)
    assert all(1 <= one["explored"] <= 8 and one["left"] > 0.5 for one in told)


@pytest.mark.parametrize(
    "schema", [{"neighbours": "add_remove_one"}, {"max_rows_per_unit": 3}], ids=["add", "three"]
)
def test_the_other_relation_and_several_rows_a_unit(schema):
    trial = Trial(*tilted(30_000, **schema))
    errors, _ = trial.errors(30, 7)
    assert rms(errors) < 2.0


def test_few_rows_where_their_number_is_private():
    """The first measurement says so, and the last one clips nothing."""
    trial = Trial(*tilted(300, neighbours="add_remove_one"))
    _, told = trial.errors(5, 8)
    assert all(one["explored"] == 0 and one["left"] == 0.95 for one in told)
    assert all(one["radius"] >= math.sqrt(5) for one in told)


@pytest.mark.parametrize("share", [0.003, 0.01, 0.05])
def test_rare_levels_do_not_collapse(share):
    n = 40_000
    rng = np.random.default_rng(11)
    level = rng.choice(3, p=[1 - share - 0.3, share, 0.3], size=n).astype(np.int32)
    x = rng.normal(size=n)
    y = x + np.array([0.0, 1.0, -1.0])[level] + rng.normal(size=n)
    schema = Schema(
        "r", {"g": Category(("a", "b", "c"), "a"), "x": Number(-5, 5), "y": Number(-9, 9)}
    )
    errors, _ = Trial(Design(schema, ("g", "x"), "y"), [level, x, y]).errors(12, 12)
    # Noise in standard errors grows as 1/√share, and no faster: nothing has been lost.
    assert rms(errors[:, 0]) * math.sqrt(share) < 0.4
    assert rms(errors[:, 1:]) < 1.3


def test_long_tails_get_a_wide_ball():
    n = 40_000
    rng = np.random.default_rng(13)
    x = np.exp(1.7 * rng.normal(size=(2, n)))
    y = x.sum(axis=0) + np.exp(1.7 * rng.normal(size=n))
    columns = {"a": Number(0, 300), "b": Number(0, 300), "y": Number(0, 700)}
    long = Trial(Design(Schema("l", columns), ("a", "b"), "y"), [*x, y]).errors(24, 14)[1]
    short = Trial(*tilted(40_000, k=2)).errors(6, 14)[1]
    assert np.median([one["radius"] for one in long]) > max(one["radius"] for one in short)


def test_narrow_data_are_found_at_a_small_epsilon():
    """Bounds 100 times too wide with a third of the usual budget; ending early is far off."""
    trial = Trial(*tilted(20_000, wide=100.0), mu=MU / 3)
    errors, told = trial.errors(10, 21)
    assert np.median(np.abs(errors)) < 4
    early = Trial(trial.design, trial.columns, mu=MU / 3, most=5).errors(10, 21)[0]
    assert np.median(np.abs(early)) > 5 * np.median(np.abs(errors))
    assert all(one["left"] > 0.4 for one in told)


@pytest.mark.parametrize("n", [5_000, 2_000_000])
def test_with_very_many_rows_the_last_look_is_from_near(n):
    """A direction stands out at once; with many rows it is looked at again all the same."""
    setting = rounds.Setting(3, 0, 1, True, MU)
    assert (setting.residual_share(n) > 0) == (n > 5_000)
    moments = n * np.diag([1.0, 0.3, 0.3, 0.03])
    precision = np.full((4, 4), 1.0)
    first = Observed(np.eye(4), moments, precision)
    found = rounds.next_step(setting, first, n)
    assert isinstance(found, rounds.Explore) == (n > 5_000)
    if isinstance(found, rounds.Explore):
        near = n * np.diag([1.25**2, 1.0, 1.0, 1.0])
        seen = rounds.Explored(found.shape, near, 0 * near, 1.0)
        assert not isinstance(rounds.next_step(setting, first, n, [seen]), rounds.Explore)
    assert not isinstance(rounds.next_look(setting, first, n, ()), rounds.Explore)  # Newton rounds
    # As plans have it.
    assert rounds.look(setting, n, 0, np.full((1, 3), 50.0))[1].tolist() == [n == 5_000]
    if n > 5_000:
        _, ends = rounds.look(setting, n, 1, np.array([[1.0, 1.0, 0.2], [1.0, 1.0, 0.9]]))
        assert ends.tolist() == [False, True]


def test_the_residual_is_stretched_and_nothing_else():
    spread = np.tril(np.random.default_rng(22).normal(size=(4, 4))) + 2 * np.eye(4)
    covariance = spread @ spread.T
    found = rounds.for_slopes(np.linalg.inv(spread))
    slopes = np.linalg.solve(covariance[:3, :3], covariance[:3, 3])
    residual = np.linalg.solve(found.T, np.append(-slopes, 1.0))  # a·z is y - x·slopes
    residual /= np.linalg.norm(residual)
    expected = np.eye(4) + (tail.stretch(4) ** 2 - 1) * np.outer(residual, residual)
    np.testing.assert_allclose(found @ covariance @ found.T, expected, atol=1e-12)
    assert tail.stretch(4) ** 2 == 1.375


def test_rounds_start_where_they_are_worth_it():
    """At nine of the strength, by public numbers alone; a number of rounds overrules that."""
    setting = rounds.Setting(3, 0, 1, True, MU)
    needed = 9 * math.sqrt(3) * (1.25**2 + 6) / MU
    assert not setting.worthwhile(needed - 1)
    assert setting.worthwhile(needed + 1)
    assert rounds.Setting(3, 0, 1, True, MU, most=2).worthwhile(10)
    assert rounds.Setting(3, 0, 5, True, MU).strength(5000) == pytest.approx(setting.strength(1000))


@pytest.mark.parametrize("most", [2, 3, 5])
def test_so_many_rounds_and_no_more(most):
    _, told = Trial(*tilted(3000, wide=30.0), most=most).errors(3, 15)
    assert max(one["explored"] for one in told) == most - 2


def test_the_shares_never_exceed_the_budget():
    """Over all settings: first, exploring up to its limit, histogram, and something is left."""
    for n in (10, 100, 1000, 10**4, 10**6, 10**9):
        for q in (1, 2, 5, 40):
            for mu in (0.01, MU, 5.0):
                for replaces in (True, False):
                    setting = rounds.Setting(q, 1, 1, replaces, mu, most=10)
                    share = setting.exploring_share(n)
                    assert 0.03 <= share <= 0.10
                    first = setting.first_share(n if replaces else None)
                    assert 0 < first <= 0.10
                    assert 0.4 + setting.tail_share(n) + share <= 0.7


# ---------------------------------------------------------------------------------------------
# The parts


def test_the_transform_rounds_what_is_wanted():
    rng = np.random.default_rng(16)
    for q in (1, 3, 12):
        spread = rng.normal(size=(q, q)) * 0.02
        centre = rng.uniform(-0.9, 0.9, q)
        transform = Transform.of(spread, centre)
        got, middle = transform.spread_and_centre()
        assert np.allclose(got, spread, rtol=1e-4, atol=1e-4 * np.abs(spread).max())
        assert np.allclose(middle, centre, atol=1e-5)
        assert transform.problem(q) is None
    # Too fine a direction is widened, and a centre out of bounds moved to them.
    got, middle = Transform.of(np.diag([1e-12, 0.5]), np.array([3.0, 0.0])).spread_and_centre()
    assert 1e-6 < got[0, 0] < 1e-5
    assert middle[0] == pytest.approx(1.0)


@pytest.mark.parametrize("public", [True, False])
def test_least_squares_against_a_dense_solution(public):
    rng = np.random.default_rng(17)
    size, rounds_ = 4, []
    for _ in range(3):
        to_round = rng.normal(size=(size, size)) + 2 * np.eye(size)
        to_round[0, 1:] = 0
        noise = rng.uniform(0.5, 2.0, (size, size))
        precision = (noise + noise.T) / 2
        if public:
            precision[0, 0] = 0.0
        values = rng.normal(size=(size, size)) * 10
        rounds_.append(Observed(to_round, values + values.T, precision))
    got = least_squares(rounds_, rounds_[-1].map / rounds_[-1].map[0, 0], 50.0 if public else None)
    back = np.linalg.inv(rounds_[-1].map / rounds_[-1].map[0, 0])
    moments = back @ got @ back.T

    places = [(a, b) for a in range(size) for b in range(a, size)]
    rows, wanted = [], []
    for one in rounds_:
        for a, b in places:
            weight = math.sqrt(one.precision[a, b])
            both = np.outer(one.map[a], one.map[b])
            rows.append([weight * (both[i, j] + (i != j) * both[j, i]) for i, j in places])
            wanted.append(weight * one.values[a, b])
    design, wanted = np.array(rows), np.array(wanted)
    if public:
        wanted = wanted - design[:, 0] * 50.0
        solved = np.append(50.0, np.linalg.lstsq(design[:, 1:], wanted, rcond=None)[0])
    else:
        solved = np.linalg.lstsq(design, wanted, rcond=None)[0]
    assert np.allclose([moments[place] for place in places], solved, rtol=1e-6, atol=1e-6)


def middle(fit, index):
    return float(fit.excess(index, 0.5))


def counts_of(rows):
    return rows - np.append(rows[1:], 0)


def test_the_tail_fit_reads_a_power_tail():
    edges = np.array(tail.EDGES)
    rows = 2000 * (edges / 3) ** -2.5
    fit = tail.TailFit.of(counts_of(rows), 5.0, 50_000, 1, 4)
    for index in range(8):
        excess = 4 * edges[index] * rows[index] / 1.5  # q ∫ N
        assert middle(fit, index) == pytest.approx(excess, rel=0.25)
        assert fit.excess(index, 0.025) < excess < fit.excess(index, 0.975)
    nothing = tail.TailFit.of(np.zeros(22), 5.0, 50_000, 1, 4)
    assert middle(nothing, 0) < 0.05 * middle(fit, 0)


@pytest.mark.parametrize("power", [1.5, 3.0])
def test_the_tail_fit_sees_an_end(power):
    """Beyond it there is next to nothing; a power without an end would expect the most there."""
    edges = np.array(tail.EDGES)
    end = edges[8]
    rows = 1500 * np.maximum((edges / 3) ** -power - (end / 3) ** -power, 0)
    noise = np.random.default_rng(23).normal(0, 3, 22)
    fit = tail.TailFit.of(counts_of(rows) + noise, 3.0, 50_000, 1, 4)
    fine = np.linspace(3, end, 10_001)
    beyond = 1500 * ((fine / 3) ** -power - (end / 3) ** -power)
    for index in range(4):
        inside = fine >= edges[index]
        excess = 4 * np.trapezoid(beyond[inside], fine[inside])
        assert middle(fit, index) == pytest.approx(excess, rel=0.3)
    assert fit.excess(10, 0.9) < 0.02 * fit.excess(0, 0.5)


def test_no_tail_is_longer_than_the_bounds_allow():
    """Where noise hides everything, the bounds alone say how far out a row may be."""
    edges = np.array(tail.EDGES)
    noise = np.random.default_rng(24).normal(0, 50, 22)
    free, bound = (
        tail.TailFit.of(noise, 50.0, 50_000, 1, 4, farthest=farthest)
        for farthest in (np.inf, 4 * edges[6] - 0.01)
    )
    assert bound.excess(6, 0.999) == 0 < free.excess(6, 0.999)
    assert bound.excess(0, 0.9) < free.excess(0, 0.9)


@pytest.mark.parametrize("numbers", [1, 3, 14])
def test_the_farthest_corner(numbers):
    rng = np.random.default_rng(numbers)
    transform = Transform.of(
        0.1 * rng.normal(size=(numbers, numbers)) + 0.3 * np.eye(numbers),
        rng.uniform(-0.5, 0.5, numbers),
    )
    full = transform.map()
    corners = rng.choice([-1.0, 1.0], size=(20_000, numbers))
    squares = np.sum((corners @ full[1:, 1:].T + full[1:, 0]) ** 2, axis=1)
    if numbers <= 12:
        assert transform.farthest() == pytest.approx(squares.max())
    assert transform.farthest() >= squares.max()


@pytest.mark.parametrize("numbers", [1, 2, 5])
def test_normal_rows_beyond_every_edge(numbers):
    z = np.random.default_rng(28).standard_normal((1_000_000, numbers))
    z[:, -1] *= tail.stretch(numbers)
    squares = np.sum(z**2, axis=1) / numbers
    beyond = np.cumsum(tail._normal(numbers)[::-1])[::-1]
    for edge, share in zip(tail.EDGES[:4], beyond, strict=False):
        assert share == pytest.approx(np.mean(squares > edge), rel=0.1)


def test_few_rows_far_beyond_normal_ones_are_seen():
    """One power for both would have to fall as fast as the normal rows do."""
    edges, n, sd = np.array(tail.EDGES), 500_000, 30.0
    rng = np.random.default_rng(29)
    normal = n * tail._normal(3)
    rows = 800 * (np.maximum(edges, 12) / 12) ** -2.5
    far = counts_of(rows)
    truth = 3 * edges[8] * rows[8] / 1.5  # q ∫ N
    for _ in range(5):
        fit = tail.TailFit.of(normal + far + sd * rng.standard_normal(22), sd, n, 1, 3)
        assert 0.25 < fit.excess(8, 0.5) / truth < 4
        # Where there are none, next to nothing is expected there.
        clean = tail.TailFit.of(normal + sd * rng.standard_normal(22), sd, n, 1, 3)
        assert clean.excess(8, 0.75) < 0.1 * truth


def test_quantiles_at_random_are_draws():
    rows = 1500 * (np.array(tail.EDGES) / 3) ** -2.0
    fit = tail.TailFit.of(counts_of(rows), 20.0, 50_000, 1, 4)
    drawn = fit.excess(3, np.random.default_rng(1).random(100_000))
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(drawn, share) == pytest.approx(float(fit.excess(3, share)), rel=0.02)


def test_releases_of_before_have_edges_of_their_own():
    rows = 2000 * (np.array(tail.FORMER_EDGES) / 3) ** -2.5
    fit = tail.TailFit.of(counts_of(rows), 5.0, 50_000, 1, 4, tail.FORMER_EDGES)
    excess = 4 * tail.FORMER_EDGES[6] * rows[6] / 1.5
    assert middle(fit, 6) == pytest.approx(excess, rel=0.25)


def test_the_ball_may_need_noise_of_twelve_standard_errors_but_not_more():
    """A heavy tail in few rows: noise and what far rows may do would be least beyond that."""
    n, left = 1000, 0.84
    setting = rounds.Setting(4, 0, 1, True, MU)
    counts = counts_of(1000 * (3 / np.array(tail.EDGES)) ** 0.7)
    fit = tail.TailFit.of(counts, 10.0, n, 1, 4)
    noise = np.array([setting.noise(setting._square(edge * 4), left) for edge in tail.EDGES])
    errors = noise / math.sqrt(n)
    chosen = rounds._radius(setting, fit, n, left)
    assert errors[chosen] <= 12 < errors[chosen + 1]
    assert tail.balanced(fit, noise, np.full(22, True)) > chosen


def test_the_ball_is_never_smaller_than_the_least():
    """Where noise hides the tail, and nothing is expected of it."""
    fit = tail.TailFit.of(np.zeros(22), 1.0, 50_000, 1, 4)
    noise = 1e6 * np.array(tail.EDGES)
    assert tail.balanced(fit, noise, np.full(22, True)) == tail.LEAST
    assert tail.balanced(fit, noise, np.full(22, False)) == tail.LEAST


def test_the_radius_balances_noise_and_what_far_rows_may_do():
    fit = tail.TailFit.of(500 * np.array(tail.EDGES) ** -2.0, 5.0, 50_000, 1, 4)
    noise = 3.0 * np.array(tail.EDGES)
    effects = [float(fit.excess(i, 0.7)) / math.sqrt(24) for i in range(22)]
    total = noise**2 + np.square(effects)
    index = tail.balanced(fit, noise, np.full(22, True))
    assert tail.LEAST < index == np.argmin(total)


def test_a_short_tail_gets_the_ball_that_holds_it():
    """As of the functions of a spline: nearly all far rows are at its ends, and none beyond."""
    setting = rounds.Setting(7, 0, 1, True, MU)
    counts = [259, 142, 68, 51, 169, 23] + 16 * [0]
    n, sd, left = 20_000, 23.0, 0.84
    rng, chosen = np.random.default_rng(24), []
    for _ in range(20):
        fit = tail.TailFit.of(counts + rng.normal(0, sd, 22), sd, n, 1, 7)
        chosen.append(rounds._radius(setting, fit, n, left))
    assert 5 <= np.median(chosen) <= 7
