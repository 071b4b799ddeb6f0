"""The tables of means: the same integers on every machine, and right."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp

from noisewise.core.design import Covariates, Design
from noisewise.core.errors import RequestError
from noisewise.core.rounds.newton import newton_shape
from noisewise.core.rounds.plan import Setting
from noisewise.core.rounds.transform import Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics.ball_moments import LARGEST_SQUARE, PRODUCT_ONE, longest_square
from noisewise.core.statistics.scores import KNOT_BITS, LARGEST_PREDICTOR, OUTCOME_ONE, outcome

KNOTS = np.arange(-LARGEST_PREDICTOR << KNOT_BITS, (LARGEST_PREDICTOR << KNOT_BITS) + 1)


def test_no_mean_is_near_a_rounding_boundary():
    real = OUTCOME_ONE / (1 + np.exp(-KNOTS / 2**KNOT_BITS))
    assert np.min(np.abs(real - np.floor(real) - 0.5)) > 1e-6  # exp is right to 1e-10 anywhere
    assert np.array_equal(np.floor(real + 0.5), outcome("logistic", 1).mean)


def test_slopes_are_no_larger_than_means_allow():
    law = outcome("logistic", 1)
    assert np.all(law.root**2 <= law.mean * (OUTCOME_ONE - law.mean))
    assert np.all((law.root + 1) ** 2 > law.mean * (OUTCOME_ONE - law.mean))


@pytest.mark.parametrize("bound", [1, 4, 30])
def test_counts_against_many_digits(bound):
    law = outcome("poisson", bound)
    with mp.workdps(40):
        for place in range(0, len(KNOTS), 1511):
            rate = mp.exp(mp.mpf(int(KNOTS[place])) / 2**KNOT_BITS)
            mass = [mp.exp(-rate) * rate**j / mp.factorial(j) for j in range(bound)]
            mean = sum(j * p for j, p in enumerate(mass)) + bound * (1 - sum(mass))
            assert abs(law.mean[place] - mean / bound * OUTCOME_ONE) <= 0.5 + 1e-6
            root = mp.sqrt(rate * sum(mass) / bound) * OUTCOME_ONE
            assert law.root[place] <= root + 1e-6
            assert law.root[place] >= root - 200 * (law.mean[place] < 100) - 1 - 0.01 * root
    assert np.all(law.root**2 <= law.mean * OUTCOME_ONE)


def test_a_target_must_fit_its_family():
    columns = {
        "x": Number(0.0, 1.0),
        "yes": Category(("a", "b"), "a"),
        "three": Category(("a", "b", "c"), "a"),
        "count": Number(0.0, 9.0),
        "half": Number(0.0, 9.5),
        "below": Number(-1.0, 9.0),
    }
    schema = Schema("d", columns)
    assert Design(schema, ("x",), "yes", "logistic").names == ("intercept", "x", "yes[b]")
    assert Design(schema, ("x",), "count", "poisson").names == ("intercept", "x", "count")
    for target, family in [
        ("three", "logistic"),
        ("count", "logistic"),
        ("yes", "poisson"),
        ("half", "poisson"),
        ("below", "poisson"),
        ("yes", "linear"),
    ]:
        with pytest.raises(RequestError, match="target"):
            Design(schema, ("x",), target, family)


def test_covariates_are_a_design_without_its_target():
    columns = {"x": Number(0.0, 1.0), "g": Category(("a", "b"), "a"), "y": Number(0.0, 9.0)}
    found = Design(Schema("d", columns), ("x", "g"), "y", "poisson").covariates
    assert isinstance(found, Covariates)
    assert found.names == ("intercept", "x", "g[b]")
    assert found.sources == ("x", "g", "y")  # read, so that what is missing shows
    assert found.number_of_numbers == 1
    assert found.category_sizes == (1,)


def test_the_ball_grows_with_the_rows_and_never_overflows():
    law = outcome("logistic", 1)
    for numbers, categories in [(1, 0), (5, 2), (399, 3)]:
        setting = Setting(numbers, categories, rows_per_unit=1, replaces=True, mu=0.24)
        found = []
        for rows in (10.0, 1e4, 1e5, 1e9):
            shape = newton_shape(setting, law, Transform.box(numbers), rows)
            longest = longest_square(shape.constant, shape.weight, categories, shape.radius)
            assert longest <= LARGEST_SQUARE * PRODUCT_ONE
            found.append(shape.radius**2 / numbers / PRODUCT_ONE)
        assert found[0] == pytest.approx(1.0, abs=2e-3)  # bounds hold all rows
        assert found == sorted(found)
        assert found[-1] > 5
