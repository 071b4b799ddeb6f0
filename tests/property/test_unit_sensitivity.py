"""Nobody may find a worse neighbour among averaged rows than the stated sensitivity.

One hunter knows the set of means (numbers in [-1, 1], shares of levels that add up to at most 1)
and climbs in it. The other knows tables only: it gives one person other rows, publishes nothing,
and compares the exact integers that would get noise.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import minimize

from noisewise.core.design import STATISTIC_ONE, Ball, Box, Design
from noisewise.core.kinds.rounds import gram_entries
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import (
    FourthMoments,
    SecondMoments,
    l1_sensitivity,
    l2_sensitivity,
)
from noisewise.core.statistics.ball_moments import gram_sensitivity, longest_square
from noisewise.holder.engines import open_source
from noisewise.holder.rows import grouping, units
from noisewise.holder.rows.rounds import BallPlan
from noisewise.holder.rows.sums import SumPlan
from noisewise.holder.rows.values import GridColumn, RowGrid


def make_design(numbers, sizes, neighbours="replace_one", ids="id", **rule):
    """`numbers` numeric columns (the first is the target) and categories of these sizes."""
    columns = {f"x{i}": Number(-3.0, 5.0) for i in range(numbers)}
    for g, size in enumerate(sizes):
        columns[f"g{g}"] = Category(tuple(f"l{i}" for i in range(size + 1)), "l0")
    schema = Schema("d", columns, neighbours, unit_column=ids, **rule)
    return Design(schema, tuple(name for name in columns if name != "x0"), "x0")


def stated(statistic, geometry, norm, layout):
    if norm == "l1":
        return l1_sensitivity(statistic) / STATISTIC_ONE
    return l2_sensitivity(statistic, geometry, layout) / STATISTIC_ONE


class Means:
    """Rows of means, and how far replacing (adding) one moves the statistic."""

    def __init__(self, statistic, geometry, norm, layout):
        self.geometry, self.norm = geometry, norm
        design = statistic.design
        self.q, self.sizes = design.number_of_numbers, design.category_sizes
        self.numeric = [i for i, c in enumerate(design.columns, 1) if not c.is_indicator]
        self.shares = [i for i, c in enumerate(design.columns, 1) if c.is_indicator]
        self.entries = np.array(statistic.entries)
        off = self.entries[:, 0] != self.entries[:, -1]
        self.weights = np.where(off & (layout == "isometric"), math.sqrt(2), 1.0)
        self.replace = design.schema.neighbours == "replace_one"

    def row(self, numbers, shares):
        """Shares are cut off at 0, and scaled down where they add up to more than 1."""
        w = np.zeros(1 + self.q + sum(self.sizes))
        w[0], w[self.numeric] = 1.0, np.clip(numbers, -1, 1)
        start, kept = 0, []
        for size in self.sizes:
            own = np.maximum(shares[start : start + size], 0)
            kept += list(own / max(1.0, own.sum()))
            start += size
        w[self.shares] = kept
        if isinstance(self.geometry, Ball):
            radius, length = self.geometry.grid_radius(16) / 2**16, np.linalg.norm(w[1:-1])
            w[1:-1] *= min(1.0, radius / max(length, 1e-300))
        return w

    def change(self, flat):
        size = self.q + len(self.shares)
        u, v = (self.row(x[: self.q], x[self.q :]) for x in (flat[:size], flat[size:]))
        moved = np.prod(u[self.entries], axis=1)
        if self.replace:
            moved = moved - np.prod(v[self.entries], axis=1)
        return np.linalg.norm(self.weights * moved, 1 if self.norm == "l1" else 2)

    def hunt(self, rng, tries=900, climbs=12):
        found = []
        for attempt in range(tries):
            numbers = rng.choice([-1.0, 1.0], (2, self.q))
            if attempt % 3 == 1:
                numbers = np.array([np.ones(self.q), np.full(self.q, rng.uniform(-1, 1))])
            if attempt % 3 == 2:
                numbers = rng.uniform(-1, 1, (2, self.q))
            shares = [[], []]
            for size in self.sizes:
                for side in shares:
                    whole = np.eye(size + 1)[rng.integers(size + 1)]
                    part = rng.dirichlet(np.full(size + 1, 0.5))
                    side += list((whole if rng.random() < 0.6 else part)[1:])
            flat = np.concatenate([numbers[0], shares[0], numbers[1], shares[1]])
            found.append((self.change(flat), attempt, flat))
        found.sort(reverse=True)
        best = found[0][0]
        for _, _, flat in found[:climbs]:
            result = minimize(
                lambda x: -self.change(x), flat, method="Powell", options={"maxiter": 40}
            )
            best = max(best, -result.fun)
        return best


CASES = [
    # numbers, category sizes, geometry, norm, layout, and how much of the bound is attained
    (1, [1], Box(), "l1", "upper", 0.999),
    (1, [1, 2], Box(), "l1", "upper", 0.999),
    (1, [1, 1, 2], Box(), "l1", "upper", 0.99),
    (2, [1, 2, 2], Box(), "l1", "upper", 0.99),
    (2, [3], Box(), "l1", "upper", 0.999),
    (2, [1, 1], Box(), "l2", "upper", 0.90),
    (1, [1, 1, 1], Box(), "l2", "upper", 0.85),
    (3, [2], Box(), "l2", "upper", 0.99),
    (2, [3, 1], Box(), "l2", "upper", 0.93),
    (3, [2], Box(), "l2", "isometric", 0.99),
    (1, [1, 1, 1], Box(), "l2", "isometric", 0.85),
    (3, [2], Ball(0.7), "l2", "isometric", 0.97),
    (2, [2, 1], Ball(1.2), "l2", "isometric", 0.93),
]


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize(("numbers", "sizes", "geometry", "norm", "layout", "attained"), CASES)
def test_second_moments_of_means(numbers, sizes, geometry, norm, layout, attained, neighbours):
    statistic = SecondMoments(make_design(numbers, sizes, neighbours))
    bound = stated(statistic, geometry, norm, layout)
    worst = Means(statistic, geometry, norm, layout).hunt(np.random.default_rng(1))
    assert worst <= bound * (1 + 1e-9)
    assert worst >= attained * bound


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_fourth_moments_of_means(norm):
    statistic = FourthMoments(make_design(2, [2]))
    worst = Means(statistic, Box(), norm, "upper").hunt(np.random.default_rng(1))
    assert worst <= stated(statistic, Box(), norm, "upper") * (1 + 1e-9)


def test_the_bound_of_indicators_would_not_do():
    """Negative control: half a level moves more than a whole one, and the hunter finds it."""
    shares, indicators = (SecondMoments(make_design(1, [1, 2], ids=ids)) for ids in ("id", None))
    worst = Means(shares, Box(), "l1", "upper").hunt(np.random.default_rng(1))
    assert worst > stated(indicators, Box(), "l1", "upper") + 0.2
    assert stated(shares, Box(), "l1", "upper") == pytest.approx(
        stated(indicators, Box(), "l1", "upper") + 0.25
    )


def test_for_gaussian_noise_shares_cost_no_more_than_indicators():
    for numbers, sizes in ((1, [1, 1]), (2, [3, 1]), (4, [2])):
        for neighbours in ("replace_one", "add_remove_one"):
            shares, indicators = (
                SecondMoments(make_design(numbers, sizes, neighbours, ids)) for ids in ("id", None)
            )
            for layout in ("upper", "isometric"):
                assert stated(shares, Box(), "l2", layout) == stated(
                    indicators, Box(), "l2", layout
                )
            assert set(indicators.entries) <= set(shares.entries)


# ---------------------------------------------------------------------------------------------
# Tables: one person has other rows, or is or isn't there


def some_rows(rng, design, count):
    """Rows of one person, many of them at the ends of what is allowed, and beyond."""
    rows = []
    extreme = {n: rng.choice([-9.0, 9.0, -3.0, 5.0, 1.0]) for n in design.sources}
    for _ in range(count):
        row = {}
        for name in design.sources:
            column = design.schema.columns[name]
            if isinstance(column, Category):
                row[name] = column.levels[rng.integers(len(column.levels))]
            else:
                row[name] = extreme[name] if rng.random() < 0.8 else rng.uniform(-4, 6)
        rows.append(row)
    return rows


def table_of(people, names, rng):
    """Columns and ids, in a random order of the rows."""
    rows = [(row, who) for who, own in people.items() for row in own]
    order = rng.permutation(len(rows))
    columns = {name: [rows[i][0][name] for i in order] for name in names}
    return {**columns, "id": pa.array([rows[i][1] for i in order], type=pa.int64())}


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("sizes", [[], [1, 2], [3]])
def test_no_person_moves_the_sums_further(neighbours, sizes):
    rng = np.random.default_rng(3)
    design = make_design(2, sizes, neighbours)
    second = SecondMoments(design)
    plan = SumPlan(design, Box(), (second, FourthMoments(design)))
    off = np.array([a != b for a, b in second.entries])
    for _ in range(25):
        others = {i: some_rows(rng, design, rng.integers(1, 4)) for i in range(3)}
        a = {**others, 9: some_rows(rng, design, rng.integers(1, 30))}
        b = {**others, 7: some_rows(rng, design, rng.integers(1, 30))}
        if neighbours == "add_remove_one":
            b = others
        found = [open_source(table_of(people, design.sources, rng)).sums(plan) for people in (a, b)]
        assert found[0].n == 4
        assert found[1].n == (4 if neighbours == "replace_one" else 3)
        for statistic in plan.statistics:
            x, y = (np.array(one.values[statistic.name], dtype=object) for one in found)
            moved = x - y
            assert sum(abs(moved)) <= l1_sensitivity(statistic)
            assert sum(moved**2) <= l2_sensitivity(statistic, Box(), "upper") ** 2
        moved = np.array(found[0].values["second_moments"], dtype=object) - np.array(
            found[1].values["second_moments"], dtype=object
        )
        assert (
            sum(moved**2 * np.where(off, 2, 1)) <= l2_sensitivity(second, Box(), "isometric") ** 2
        )


def test_rows_that_are_not_averaged_would_move_the_sums_further():
    """Negative control: without ids thirty rows count thirtyfold, and the same hunter sees it."""
    rng = np.random.default_rng(3)
    design = make_design(2, [], ids=None)
    plan = SumPlan(design, Box(), (SecondMoments(design),))
    own = [{"x0": 5.0, "x1": 5.0}] * 30
    tables = [
        {name: [row[name] for row in rows] for name in design.sources}
        for rows in (own, some_rows(rng, design, 30))
    ]
    found = [np.array(open_source(t).sums(plan).values["second_moments"]) for t in tables]
    assert np.abs(found[0] - found[1]).sum() > 5 * l1_sensitivity(plan.statistics[0])


# ---------------------------------------------------------------------------------------------
# Spellings: whose row it is, is decided by a public rule

MERGED = {"unit_type": "integer", "unit_fold": True}


def written(people, names, rng):
    """A table with text for ids: a person's rows are in any spelling of their number, or word."""
    table = table_of(people, names, rng)
    words = {7: "Ann", 8: "ann "}
    ways = ("{}", "{:03}", "+{}", "{}.0", " {} ", "{}.")
    ids = [
        words.get(one) or ways[rng.integers(len(ways))].format(one) for one in table["id"].tolist()
    ]
    return {**table, "id": pa.array(ids)}


def moved_by(design, a, b, rng):
    """How far the sums move, over the L2 sensitivity."""
    second = SecondMoments(design)
    plan = SumPlan(design, Box(), (second,))
    found = [open_source(written(one, design.sources, rng)).sums(plan) for one in (a, b)]
    x, y = (np.array(one.values["second_moments"], dtype=object) for one in found)
    return math.sqrt(sum((x - y) ** 2)) / l2_sensitivity(second, Box(), "upper")


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_a_person_in_many_spellings_is_one_unit(neighbours):
    """And the negative control: as they are written, the same people move the sums further."""
    rng = np.random.default_rng(6)
    design, as_written = (make_design(2, [], neighbours, **rule) for rule in (MERGED, {}))
    most, control = 0.0, 0.0
    for _ in range(40):
        others = {i: some_rows(rng, design, rng.integers(1, 4)) for i in range(3)}
        a = {**others, 9: some_rows(rng, design, 30)}
        b = {**others, 9: some_rows(rng, design, 30)} if neighbours == "replace_one" else others
        most = max(most, moved_by(design, a, b, rng))
        control = max(control, moved_by(as_written, a, b, rng))
    assert 0.5 < most <= 1
    assert control > 1.5


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_what_it_costs_two_people_whose_ids_become_one(neighbours):
    """Nothing where rows are replaced; where people come and go, up to twice: a replacement."""
    rng = np.random.default_rng(6)
    design = make_design(4, [], neighbours, **MERGED)
    most = 0.0
    for _ in range(150):
        others = {i: some_rows(rng, design, 1) for i in range(2)}
        ann, other_ann = some_rows(rng, design, 1), some_rows(rng, design, 30)
        a = {**others, 7: ann, 8: other_ann}
        b = {**others, 7: ann}
        if neighbours == "replace_one":
            b[8] = some_rows(rng, design, 30)
        most = max(most, moved_by(design, a, b, rng))
    if neighbours == "replace_one":
        assert 0.5 < most <= 1
    else:
        assert 1.05 < most <= 2


# ---------------------------------------------------------------------------------------------
# Rounding: means leave neither the box nor the simplex


def test_rounded_means_stay_in_their_sets():
    rng = np.random.default_rng(4)
    design = make_design(2, [4, 1])
    places = [[i for i, c in enumerate(design.columns) if c.source == g] for g in ("g0", "g1")]
    seen = []

    class Keep:
        n = 0

        def add(self, columns):
            seen.append(np.array(columns))

        def result(self):
            return None

    accumulator = units.ByUnit(design, Keep())
    rows = 5000
    levels = [rng.integers(0, 5, rows), rng.integers(0, 2, rows)]
    values = [rng.choice([-9.0, 9.0, 0.3], rows) for _ in range(2)]
    given = {"x0": values[0], "x1": values[1], "g0": levels[0], "g1": levels[1]}
    columns = [given[name].astype(np.int32 if name[0] == "g" else float) for name in design.sources]
    accumulator.add([*columns, pa.array(rng.integers(0, 900, rows))])
    accumulator.result()
    means = np.hstack(seen)
    assert means.shape == (6 + 1, 900) or means.shape[0] == len(design.columns)
    assert (np.abs(means) <= 2**24).all()
    assert (means == np.floor(means)).all()
    for own in places:
        assert (means[own] >= 0).all()
        assert (means[own].sum(axis=0) <= 2**24).all()
    assert (means[places[0]].sum(axis=0) % 2**24 != 0).any()  # thirds were rounded


@pytest.mark.parametrize("kind", ["numbers", "text"])
@pytest.mark.parametrize("memory", [0, 200, 1 << 20])
def test_blocks_without_rows_and_spilled_ones(kind, memory, monkeypatch):
    """Blocks of any size, some of them empty, through memory and file alike."""
    monkeypatch.setattr(units, "_MEMORY", memory)
    rng = np.random.default_rng(7)
    shelves, given = units.Shelves(2), {}
    for size in (0, 4, 1, 0, 7, 0, 90, 3):
        codes = rng.integers(0, 30 if size > 50 else 5, size)
        ids = pa.array(codes if kind == "numbers" else [b"p%d" % c + b"x" * c for c in codes])
        ids = ids.cast(pa.int64() if kind == "numbers" else pa.large_binary())
        grid = rng.integers(-(2**24), 2**24 + 1, (2, size + 5)).astype(np.int32)
        shelves.add(ids, grid)
        for code, row in zip(codes.tolist(), grid.T.tolist(), strict=False):
            given.setdefault(code, []).append(row)
    found = []
    for means, rows in shelves.averages(np.array([False, True])):
        found += zip(*means.tolist(), rows.tolist(), strict=True)
    expected = []
    for rows in given.values():
        (first, second), m = map(sum, zip(*rows, strict=True)), len(rows)
        expected.append(((2 * first + m) // (2 * m), math.trunc(Fraction(second, m)), m))
    assert sorted(found) == sorted(expected)


def test_the_loop_onto_the_grid_is_the_map_of_values():
    """Bit for bit, at ties and where two operations that are fused into one round otherwise."""
    rng = np.random.default_rng(8)
    one = float(1 << units.MEAN_BITS)
    scales, cut_off = one / rng.uniform(0.1, 900, 40), np.arange(40) % 3 == 2
    t = np.append(rng.integers(-one, one, 3000) + 0.5, np.full(1000, -0.5))
    x = t / scales[:, None]
    x += np.spacing(x) * rng.integers(-2, 3, x.shape)
    x[:, :8] = [np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e308, -1e308, 1.0]
    columns = [
        GridColumn(0, None, 0.0, scale, None, cut_off=cut)
        for scale, cut in zip(scales.tolist(), cut_off.tolist(), strict=True)
    ]
    expected, found = np.empty_like(x), np.empty(x.shape, dtype=np.int32)
    with np.errstate(over="ignore"):
        RowGrid(units.MEAN_BITS, tuple(columns), None).round_block(x, out=expected)
    assert not grouping.on_grid(x, x.shape[1], scales, cut_off, one, found)
    assert (found == expected).all()
    fused = np.floor(x[:, 8:] * scales[:, None].astype(np.longdouble) + 0.5)
    assert (fused != expected[:, 8:])[~cut_off].any()  # what is ruled out would be seen
    x[3, 77] = np.nan
    assert grouping.on_grid(x, x.shape[1], scales, cut_off, one, found)
    assert not grouping.on_grid(x, 77, scales, cut_off, one, found)


@pytest.mark.parametrize("weight", range(1, 14))
def test_weighted_shares_stay_in_their_ball(weight):
    """Every way to share out up to 12 parts of the weight among up to five levels."""
    for parts in range(1, 13):
        for shares in combinations_with_replacement(range(parts + 1), 5):
            if sum(shares) <= parts:
                rounded = [math.ceil(Fraction(weight * s, parts) - Fraction(1, 2)) for s in shares]
                assert sum(r * r for r in rounded) <= weight**2


def test_no_person_moves_a_round_further():
    rng = np.random.default_rng(5)
    design = make_design(2, [3, 1])
    one = 1 << 10
    numbers = design.number_of_numbers
    matrix = tuple(tuple(int(i == j) << 3 for j in range(numbers)) for i in range(numbers))
    transform = Transform(matrix, (0,) * numbers, (10,) * numbers)
    shape = Shape(transform, one, 7 * one // 5, 2 * one)
    entries = gram_entries(design, shape)
    root = np.array([math.sqrt(2) if a != b else 1.0 for a, b in entries])
    longest = longest_square(shape.constant, shape.weight, 2, shape.radius)
    allowed, most = gram_sensitivity(design.schema, longest), 0.0
    for _ in range(40):
        others = {i: some_rows(rng, design, 2) for i in range(3)}
        grams = []
        for who in (8, 9):
            people = {**others, who: some_rows(rng, design, rng.integers(1, 9))}
            sums = open_source(table_of(people, design.sources, rng)).sums(BallPlan(design, shape))
            grams.append(
                [np.array([int(g[e]) for e in entries]) for g in (sums.inside, sums.outside)]
            )
        moved = math.hypot(*(np.linalg.norm(root * (a - b)) for a, b in zip(*grams, strict=True)))
        most = max(most, moved)
    assert most <= allowed
    assert most > 0.5 * allowed  # the hunter is not asleep
