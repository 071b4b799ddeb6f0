"""Nobody may find neighbours whose Newton rounds are further apart than stated.

First the claim about single rows, over a fine grid of means, for yes or no. Then rows of a table,
through the transform, the weights and the sums that publish, with theta and transform at random.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from noisewise.core.design import Design
from noisewise.core.kinds.glm import longest_of
from noisewise.core.rounds.newton import LARGEST_THETA
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics.scores import (
    OUTCOME_ONE,
    SCORE_ONE,
    information_scale,
    outcome,
    outcome_of,
    score_sensitivity,
)
from noisewise.holder.rows.scores import ScorePlan

LARGE = 1 << 40  # a scale, so that rounding it doesn't show


def make_design(numbers, sizes=(), *, family="logistic", neighbours="replace_one", rows_per_unit=1):
    columns = {f"x{j}": Number(-1.0, 1.0) for j in range(numbers)}
    for k, size in enumerate(sizes):
        columns[f"c{k}"] = Category(tuple("abcdefgh"[: size + 1]), "a")
    features = tuple(columns)
    columns["y"] = Category(("no", "yes"), "no") if family == "logistic" else Number(0.0, 7.0)
    schema = Schema("d", columns, neighbours=neighbours, max_rows_per_unit=rows_per_unit)
    return Design(schema, features, "y", family)


def random_rows(design, count, rng):
    """Columns as an engine gives them: at random, in the corners, on and off the bounds.

    The last two rows are at opposite ends and have the same outcome, the highest. The two before
    them differ in the first number alone and have opposite outcomes.
    """
    columns = []
    for name in design.sources:
        declared = design.schema.columns[name]
        if isinstance(declared, Category):
            column = rng.integers(0, len(declared.levels), count).astype(np.int32)
            column[-4:] = [1, 0, 1, 1] if name == "y" else [1, 1, 0, 0]
        elif name == "y":
            column = rng.choice([0.0, 1.0, 3.0, 7.0, 7.0, 1e9, -4.0], count)
            column[-4:] = [7.0, 0.0, 7.0, 7.0]
        else:
            values = rng.choice([-1.0, 1.0, -3.0, 1e300, -np.inf, 0.0], count)
            column = np.where(rng.random(count) < 0.4, rng.uniform(-1, 1, count), values)
            column[-4:] = [-1.0 if name == "x0" else 1.0, 1.0, 1.0, -1.0]
        columns.append(column)
    return columns


def random_plan(design, rng):
    """Coordinates and theta at random; or made for the last rows of `random_rows`.

    The last two are then at the edge of the ball, where scores are longest. Without slopes they
    have the same residual, and their scores point apart. Or the two before them are, close to each
    other, with a theta so steep that both outcomes are as surprising as can be.
    """
    covariates = design.covariates
    q, aimed = covariates.number_of_numbers, rng.random() < 0.5
    if q and not aimed and rng.random() < 0.5:
        return steep_plan(design, rng)
    radius = int(rng.integers(1500 if aimed else 1, 6000))
    transform = Transform((), (), ())
    if q and aimed:
        transform = Transform.of(np.eye(q) * 1024 * np.sqrt(q) / radius, np.zeros(q))
    elif q:
        spread = rng.normal(size=(q, q)) * 10 ** rng.uniform(-3, 0.3)
        transform = Transform.of(spread, rng.uniform(-1.2, 1.2, q))
    weight = int(rng.integers(1, 3000)) if covariates.category_sizes else 0
    theta = rng.normal(size=len(covariates.columns) + 1) * 10 ** rng.uniform(0, 6)
    if aimed:
        theta = np.append(-abs(theta[0]), np.zeros(len(theta) - 1))
    shape = Shape(transform, int(rng.integers(1, 1400)), weight, radius)
    return ScorePlan(design, shape, tuple(int(v) for v in theta))


def steep_plan(design, rng):
    """The first number is 1/4 or -1/4, and its slope is 64, the largest: η is 16 or -16."""
    covariates = design.covariates
    q, first = covariates.number_of_numbers, 256
    rest = int(rng.integers(1500, 6000)) if q > 1 else 0
    spread = np.diag([1024 / first, *[1024 * np.sqrt(max(q - 1, 1)) / max(rest, 1)] * (q - 1)])
    transform = Transform.of(spread, np.zeros(q))
    weight = int(rng.integers(1000, 3000)) if covariates.category_sizes else 0
    radius = int(np.sqrt(first**2 + rest**2)) + 1
    theta = [0] * (len(covariates.columns) + 1)
    theta[1] = LARGEST_THETA  # numbers come first
    return ScorePlan(design, Shape(transform, 1400, weight, radius), tuple(theta))


def sums(plan, columns):
    accumulator = plan.accumulator()
    accumulator.add(columns)
    return accumulator.result()


def distance(plan, before, after):
    """D in units of the score, by the scales that would be used for both parts."""
    design = plan.design
    longest = longest_of(design, plan.shape)
    ratio = LARGE / information_scale(design.schema, outcome_of(design), longest, LARGE)
    score = np.array(before.score - after.score, dtype=float)
    step = np.array(before.information - after.information, dtype=float)
    squared = 2 * np.sum(np.triu(step, 1) ** 2) + np.sum(np.diag(step) ** 2)
    return np.sqrt(np.sum(score**2) + ratio**2 * squared)


def test_the_information_of_yes_or_no_costs_nothing():
    assert outcome("logistic", 1).largest == OUTCOME_ONE**2
    p = np.linspace(0, 1, 100_001)
    golden = (1 + np.sqrt(5)) / 2

    def largest(kappa):
        return np.max((1 - p) ** 2 * (1 + kappa * p**2))

    assert largest(golden**5) == pytest.approx(1.0, abs=1e-12)
    assert largest(11.2) > 1.0  # a little more would cost


@pytest.mark.parametrize("family", ["logistic", "poisson"])
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_no_two_rows_are_further_apart(family, neighbours):
    """Unit vectors at all angles, all knots and all outcomes: the statement about real numbers."""
    law = outcome(family, 1 if family == "logistic" else 7)
    some = slice(None, None, 97)
    mean, slope = law.mean[some] / OUTCOME_ONE, (law.root[some] / OUTCOME_ONE) ** 2
    levels = np.array([0.0, 1.0])[:, None]
    residual = (levels - mean).ravel()
    slope = np.tile(slope, 2)
    limit = law.largest / OUTCOME_ONE**2
    if neighbours == "add_remove_one":
        found = np.max(residual**2 + law.kappa * slope**2)
        assert found <= limit
        assert found >= 0.999 * limit
        return
    a, b = residual[:, None], residual
    found = 0.0
    for t in np.linspace(-1, 1, 41):
        score = a**2 + b**2 - 2 * a * b * t
        part = slope[:, None] ** 2 + slope**2 - 2 * slope[:, None] * slope * t**2
        found = max(found, float(np.max(score + 2 * law.kappa * part)))
    assert found <= 4 * limit
    assert found >= 0.75 * 4 * limit


@pytest.mark.parametrize("family", ["logistic", "poisson"])
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize(("rows_per_unit", "sizes"), [(1, ()), (3, (1, 3)), (1, (2,))])
def test_no_neighbouring_tables_are_further_apart(family, neighbours, rows_per_unit, sizes):
    rng = np.random.default_rng(20261118)
    worst = 0.0
    for _ in range(20):
        numbers = int(rng.integers(0 if sizes else 1, 4))
        design = make_design(
            numbers, sizes, family=family, neighbours=neighbours, rows_per_unit=rows_per_unit
        )
        plan = random_plan(design, rng)
        stated = score_sensitivity(
            design.schema, outcome_of(design), longest_of(design, plan.shape)
        )
        pool = random_rows(design, 20, rng)
        found = [
            sums(plan, [np.repeat(c[i : i + 1], rows_per_unit) for c in pool]) for i in range(20)
        ]
        none = sums(plan, [c[:0] for c in pool])
        pairs = combinations(found, 2)
        if neighbours == "add_remove_one":
            pairs = ((one, none) for one in found)
        worst = max(worst, *(distance(plan, *pair) / stated for pair in pairs))
    assert worst <= 1
    assert worst > 0.95  # the hunt can come near, so it could have found worse


def test_the_ball_is_never_left():
    """At theta 0 information is the weighted Gram matrix over 4, and its trace at most N / 4."""
    rng = np.random.default_rng(5)
    full = 0.0
    for _ in range(200):
        design = make_design(int(rng.integers(1, 20)), (2,))
        plan = random_plan(design, rng)
        plan = ScorePlan(design, plan.shape, (0,) * len(plan.theta))
        result = sums(plan, [column[:1] for column in random_rows(design, 5, rng)])
        share = 4 * int(np.trace(result.information)) / longest_of(design, plan.shape)
        assert share <= 1
        full = max(full, share)
    assert full > 0.98


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_sums_against_real_numbers(family):
    """The same sums from the formulas, without integers, to within the roundings."""
    rng = np.random.default_rng(3)
    design = make_design(2, (2,), family=family)
    x = [rng.uniform(-1, 1, 400) for _ in range(2)]
    level = rng.integers(0, 3, 400).astype(np.int32)
    y = rng.integers(0, 2 if family == "logistic" else 8, 400)
    shape = Shape(Transform.of(np.array([[0.4, 0.1], [0.0, 0.3]]), np.zeros(2)), 1280, 900, 1500)
    theta = (30_000, -20_000, 11_000, 5_000, -9_000)
    raw = y.astype(np.int32) if family == "logistic" else y.astype(float)
    result = sums(ScorePlan(design, shape, theta), [*x, level, raw])
    w = np.column_stack([np.ones(400), *x, level == 1, level == 2])
    full = shape.map([True, True, False, False])
    u = w @ full.T
    law = outcome_of(design)
    eta = u @ np.array(theta) / 2**16
    if family == "logistic":
        mean = 1 / (1 + np.exp(-eta))
        slope = mean * (1 - mean)
    else:
        from scipy.stats import poisson

        counts = np.arange(7)
        mean = np.sum(poisson.sf(counts, np.exp(eta)[:, None]), axis=1) / 7
        slope = np.exp(eta) * poisson.cdf(6, np.exp(eta)) / 7
    weight = np.minimum(1, longest_of(design, shape) / 2**20 / np.sum(u**2, axis=1))
    assert 0.05 < np.mean(weight < 1) < 0.95
    score = u.T @ (weight * (y / law.bound - mean))
    information = (u.T * (weight * slope)) @ u
    assert result.n == 400
    assert result.score / SCORE_ONE == pytest.approx(score, abs=0.15)
    found = (result.information + np.triu(result.information, 1).T) / 2**20
    assert found == pytest.approx(information, abs=0.8)


def test_pieces_of_any_size_give_the_same_sums():
    rng = np.random.default_rng(9)
    for family, _ in product(["logistic", "poisson"], range(5)):
        design = make_design(3, (2,), family=family)
        plan = random_plan(design, rng)
        table = random_rows(design, 300, rng)
        whole, parts = sums(plan, table), plan.accumulator()
        for part in np.array_split(rng.permutation(300), 7):
            parts.add([column[part] for column in table])
        assert np.array_equal(parts.result().score, whole.score)
        assert np.array_equal(parts.result().information, whole.information)
