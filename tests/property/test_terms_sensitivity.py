"""Nobody may find a worse neighbour than the stated sensitivity of a design with terms.

Two hunters. One knows what the proofs use: numbers in [-1, 1] and groups of columns whose sizes
add up to at most 1; it must come near every bound. The other has rows of the table, computes the
design's integers as an engine does, and climbs; it shows what the ties between terms (a square to
its column, an interaction to both) leave of the bound. `GAINS` states what knowing the groups is
worth, against a bound that takes every column for a number.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from noisewise.core.design import STATISTIC_ONE, Box, Design
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SecondMoments, l1_sensitivity, l2_sensitivity
from noisewise.core.terms.formula import read_formula
from noisewise.core.terms.term import Arithmetic
from noisewise.holder.rows.sums import SumPlan
from noisewise.holder.rows.values import DesignRows, RowGrid

COLUMNS = {
    "y": Number(-1, 1),
    "x": Number(-1, 1),
    "z": Number(0, 5),
    "g": Category(("a", "b", "c", "d"), "a"),
    "h": Category(("u", "v"), "u"),
}
KINDS = [("l1", "upper"), ("l2", "upper"), ("l2", "isometric")]


def design_of(right, neighbours):
    schema = Schema("d", COLUMNS, neighbours)
    target, features = read_formula(f"y ~ {right}", schema)
    return Design(schema, tuple(features), target)


def stated(statistic, norm, layout):
    grid = l1_sensitivity(statistic) if norm == "l1" else l2_sensitivity(statistic, Box(), layout)
    return grid / STATISTIC_ONE


def moments(statistic, w, layout):
    """What rows w, shape (m, P), add to the statistic: shape (m, entries)."""
    a, b = np.array(statistic.entries).T
    weight = np.where((a != b) & (layout == "isometric"), math.sqrt(2), 1.0)
    return weight * w[:, a] * w[:, b]


def size(change, norm):
    return np.abs(change).sum(-1) if norm == "l1" else np.linalg.norm(change, axis=-1)


# --- the hunter with rows of the table ------------------------------------------------------------


class Rows:
    def __init__(self, design, norm, layout):
        self.design, self.norm, self.layout = design, norm, layout
        self.statistic = SecondMoments(design)
        self.grid = RowGrid.of(design, Box(), 2)
        self.rows = DesignRows(design, self.grid.columns)
        self.replace = design.schema.neighbours == "replace_one"
        self.choices = []
        for name in design.sources:
            kind = COLUMNS[name]
            if isinstance(kind, Category):
                self.choices.append(np.arange(len(kind.levels), dtype=float))
            else:
                self.choices.append(np.linspace(kind.lower, kind.upper, 41))

    def moments(self, rows):
        w = np.empty((len(self.design.columns), len(rows)))
        self.rows.fill([rows[:, j].copy() for j in range(rows.shape[1])], w)
        self.grid.round_block(w, out=w)
        w = np.column_stack([np.ones(len(rows)), w.T / self.grid.one])
        return moments(self.statistic, w, self.layout)

    def hunt(self, rng, starts=60, climbs=6, sweeps=4):
        pairs = np.array(
            [[[rng.choice(c) for c in self.choices] for _ in "uv"] for _ in range(starts)]
        )
        ends = np.array(
            [[[rng.choice(c[[0, -1]]) for c in self.choices] for _ in "uv"] for _ in pairs]
        )
        pairs = np.concatenate([pairs, ends])
        reached = self.change(pairs)
        best = float(reached.max())
        for i in np.argsort(-reached)[:climbs]:
            pair = pairs[i].copy()
            for _, side, j in product(range(sweeps), (0, 1) if self.replace else (0,), self.places):
                trial = np.repeat(pair[None], len(self.choices[j]), axis=0)
                trial[:, side, j] = self.choices[j]
                found = self.change(trial)
                pair = trial[int(np.argmax(found))]
                best = max(best, float(found.max()))
        return best

    @property
    def places(self):
        return range(len(self.choices))

    def change(self, pairs):
        first = self.moments(pairs[:, 0])
        return size(first - self.moments(pairs[:, 1]) if self.replace else first, self.norm)


# Every relation that the sensitivities use, alone and together; and what rows attain of the bound,
# the least over norms, layouts and neighbours.
RELATIONS = {
    "interaction with a category": ("x*g", 0.70),
    "signed interaction": ("x:h + x + h", 0.75),
    "two categories": ("g*h", 0.90),
    "intervals": ("cut(z, breaks=(1, 2, 3))", 0.99),
    "B-splines": ("bs(z, knots=(1, 2, 3))", 0.85),
    "B-splines by a category": ("bs(z, knots=(2,)):h + bs(z, knots=(2,)) + h", 0.70),
    "B-splines by a number": ("x:bs(z, knots=(2,)) + x + bs(z, knots=(2,))", 0.65),
    "natural splines": ("ns(z, knots=(2,)) + x", 0.50),
    "powers": ("x + I(x**2) + I(x**3)", 0.50),
    "all": ("x*g + bs(z, knots=(1, 3)) + cut(z, breaks=(2,))*h + log1p(z)", 0.55),
}


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_rows_of_the_table_never_beat_the_bound(relation, neighbours):
    right, least = RELATIONS[relation]
    for norm, layout in KINDS:
        rows = Rows(design_of(right, neighbours), norm, layout)
        bound = stated(rows.statistic, norm, layout)
        worst = rows.hunt(np.random.default_rng(1))
        assert worst <= bound * (1 + 1e-9), (norm, layout)
        assert worst >= least * bound, (norm, layout, worst / bound)


# --- the hunter that knows what the proofs use ----------------------------------------------------


def free_row(design, rng):
    """A row w within the numbers' and groups' limits, on a vertex or inside."""
    w = np.zeros(len(design.columns) + 1)
    w[0] = 1.0
    inside = rng.random() < 0.3
    grouped = {}
    for i, column in enumerate(design.columns, 1):
        if column.group is None:
            w[i] = rng.uniform(-1, 1) if inside else rng.choice([-1.0, 1.0])
        else:
            grouped.setdefault(column.group, []).append(i)
    for members in grouped.values():
        column = design.columns[members[0] - 1]
        if inside and not column.is_indicator:
            shares = rng.dirichlet(np.ones(len(members) + 1))[:-1]
        else:
            shares = np.eye(len(members) + 1)[rng.integers(len(members) + 1)][:-1]
        sign = rng.choice([-1.0, 1.0], len(members)) if column.signed else 1.0
        w[members] = shares * sign
    return w


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_groups_never_beat_the_bound_and_come_near_it(relation, neighbours):
    rng = np.random.default_rng(2)
    design = design_of(RELATIONS[relation][0], neighbours)
    statistic = SecondMoments(design)
    us, vs = (np.array([free_row(design, rng) for _ in range(3000)]) for _ in "uv")
    if neighbours == "replace_one":  # the theorem's shape: one row at the corner
        us[:1500] = np.abs(us[:1500])
    for norm, layout in KINDS:
        change = moments(statistic, us, layout)
        if neighbours == "replace_one":
            change = change - moments(statistic, vs, layout)
        worst, bound = float(size(change, norm).max()), stated(statistic, norm, layout)
        assert worst <= bound * (1 + 1e-9), (norm, layout)
        assert worst >= 0.7 * bound, (norm, layout, worst / bound)


@pytest.mark.parametrize("relation", RELATIONS)
def test_means_of_a_units_rows_never_beat_the_bound(relation):
    """Rows of one unit are averaged: groups and numbers of means, through the real accumulators."""
    right, _ = RELATIONS[relation]
    schema = Schema("d", COLUMNS, unit_column="who")
    target, features = read_formula(f"y ~ {right}", schema)
    design = Design(schema, tuple(features), target)
    statistic = SecondMoments(design)
    rng = np.random.default_rng(3)

    def unit(m):
        ends = rng.random() < 0.5
        found = []
        for name in design.sources:
            kind = COLUMNS[name]
            if isinstance(kind, Category):
                found.append(rng.integers(0, len(kind.levels), m).astype(np.int32))
            elif ends:
                found.append(rng.choice([kind.lower, kind.upper], m))
            else:
                found.append(rng.uniform(kind.lower, kind.upper, m))
        return [*found, pa.array(np.zeros(m, dtype=np.int64))]

    def sums(columns):
        accumulator = SumPlan(design, Box(), (statistic,)).accumulator()
        accumulator.add(columns)
        return np.array(accumulator.result().values["second_moments"]) / STATISTIC_ONE

    found = [sums(unit(int(rng.integers(1, 5)))) for _ in range(150)]
    changes = np.array([u - v for u in found[:75] for v in found[75:]])
    for norm in ("l1", "l2"):
        assert size(changes, norm).max() <= stated(statistic, norm, "upper") * (1 + 1e-9)


# --- what the relations are worth, and controls ---------------------------------------------------

GAINS = {  # the noise of Laplace and Gaussian Releases if every column were a number, relative
    "interaction with a category": (2.02, 1.73),
    "B-splines": (4.43, 2.53),
    "intervals": (1.80, 1.58),
    "two categories": (2.02, 1.77),
    "powers": (1.0, 1.0),
}


@pytest.mark.parametrize("relation", GAINS)
def test_what_knowing_the_groups_is_worth(relation):
    design = design_of(RELATIONS[relation][0], "replace_one")
    count = len(design.columns)
    schema = Schema("d", {f"c{i}": Number(-1, 1) for i in range(count)})
    plain = SecondMoments(Design(schema, tuple(f"c{i}" for i in range(count - 1)), f"c{count - 1}"))
    statistic = SecondMoments(design)
    gains = [stated(plain, n, "upper") / stated(statistic, n, "upper") for n in ("l1", "l2")]
    assert gains == pytest.approx(GAINS[relation], abs=0.01)


def test_the_hunter_catches_a_group_that_is_none():
    """Negative control: natural splines taken for a group, as B-splines are, are beaten."""
    splines = "ns(z, knots=(1, 2, 3))"
    honest = design_of(splines, "add_remove_one")
    grouped = design_of("bs(z, knots=(1,))", "add_remove_one")  # as many columns, one group
    assert len(honest.columns) == len(grouped.columns)
    wrong = stated(SecondMoments(grouped), "l1", "upper")
    assert Rows(honest, "l1", "upper").hunt(np.random.default_rng(1)) > wrong


# --- whatever floating point makes of an expression -----------------------------------------------

SPLINES = "bs(x, knots=(0,), degree=5):bs(z, knots=(2,), degree=5)"


def changes_of(design, rows, ids=()):
    """What adding each of these rows (a mapping) to no rows changes, by the real accumulator."""
    statistic = SecondMoments(design)
    accumulator = SumPlan(design, Box(), (statistic,)).accumulator()
    accumulator.add([*(np.array([rows[name]]) for name in design.sources), *ids])
    found = np.array(accumulator.result().values["second_moments"]) / STATISTIC_ONE
    return found[None], statistic


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, 64.0])
@pytest.mark.parametrize("people", [False, True])
def test_a_number_that_leaves_its_bounds_is_kept_within_them(monkeypatch, value, people):
    """Alone, and in groups: with B-splines many columns would be at their end at once."""
    unit = {"unit_column": "who"} if people else {}
    schema = Schema("d", COLUMNS, "add_remove_one", **unit)
    ids = [pa.array([7])] if people else []
    row = {"x": 0.1, "z": 2.5, "y": 1.0, "g": np.int32(1)}
    for right in (f"I(z**2):{SPLINES}", "I(z**2)*g", "I(z**2)"):
        target, features = read_formula(f"y ~ {right}", schema)
        design = Design(schema, tuple(features), target)
        with monkeypatch.context() as patch:
            patch.setattr(Arithmetic, "values", lambda self, _, table: [table["z"] * 0 + value])
            change, statistic = changes_of(design, row, ids)
        for norm in ("l1", "l2"):
            assert size(change, norm).max() <= stated(statistic, norm, "upper") * (1 + 1e-9)


def test_bounds_and_values_are_computed_alike():
    """By another order of products the interval was one unit of the last place; this blew it up."""
    right = f"I(((1.187508**8 - 3.9545070350271225)*2251799813685248)**8):{SPLINES}"
    change, statistic = changes_of(
        design_of(right, "add_remove_one"), {"x": 0.0, "z": 2.0, "y": 1.0}
    )
    for norm in ("l1", "l2"):
        assert size(change, norm).max() <= stated(statistic, norm, "upper") * (1 + 1e-9)
    schema = Schema("d", {"y": Number(-1, 1), "x": Number(11.1, 100)})
    with pytest.raises(RequestError, match="sqrt needs 0 or more"):
        Design(schema, ("sqrt(x**5 - 168505.81551)",), "y")
    schema = Schema("d", {"y": Number(-1, 1), "x": Number(1, 1e20)})
    huge = "*".join(["1e+60"] * 5)
    target, features = read_formula(f"y ~ I(x + {huge}*x*(0*x))", schema)
    with pytest.raises(RequestError, match="too large to compute with"):
        Design(schema, tuple(features), target)
