"""The grammar of terms, their bounds, and their values."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import BSpline, CubicSpline

from noisewise.core.design import Box, Design
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.core.statistics import SecondMoments
from noisewise.core.terms.expressions import (
    _asinh,
    _log,
    _log1p,
    b_spline,
    natural_spline,
    natural_spline_bounds,
)
from noisewise.core.terms.formula import read_formula
from noisewise.core.terms.term import read_term
from noisewise.holder.rows.values import DesignRows, RowGrid

SCHEMA = Schema(
    "d",
    {
        "visits": Number(0, 50),
        "age": Number(18, 90),
        "income": Number(0, 1e6),
        "debt": Number(-500, 500),
        "my col": Number(1, 2),
        "log": Number(1, 9),
        "health": Category(("good", "fair", "poor"), "good"),
        "sex": Category(("f", "m"), "f"),
        "free": Unbounded(),
    },
)


def features(right, target="visits"):
    return read_formula(f"{target} ~ {right}", SCHEMA)[1]


def design(right, target="visits"):
    name, found = read_formula(f"{target} ~ {right}", SCHEMA)
    return Design(SCHEMA, tuple(found), name)


# --- grammar --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ("age + income", ["age", "income"]),
        ("age + age", ["age"]),
        ("age*health", ["age", "health", "age:health"]),
        ("health:age + age + health", ["age", "health", "age:health"]),
        ("(age + income)**2", ["age", "income", "age:income"]),
        ("age + income - income", ["age"]),
        ("log1p( income )", ["log1p(income)"]),
        ("I(age ** 2)", ["I(age**2)"]),
        ("{age + income}", ["I(age + income)"]),
        ("I( (age-54) **2 )", ["I((age - 54)**2)"]),
        ("I(age - (income - 3))", ["I(age - (income - 3))"]),
        ("I(-age)", ["I(-age)"]),
        ("I(age)", ["age"]),
        ("C(health)", ["health"]),
        ("C(health, levels=['poor', 'good', 'fair'])", ["health"]),
        ("cut(age, breaks=(18, 40, 65))", ["cut(age, breaks=(40, 65))"]),
        ("cut(age, [40])", ["cut(age, breaks=(40,))"]),
        ("bs(age, knots=[30, 50], degree=3)", ["bs(age, knots=(30, 50))"]),
        ("bs(age, knots=(30.5,), degree=2)", ["bs(age, knots=(30.5,), degree=2)"]),
        ("ns(age, (30, 50))", ["ns(age, knots=(30, 50))"]),
        ("`my col`", ["my col"]),
        ("log(`my col`)", ["log(`my col`)"]),
        ("`my col`:age", ["`my col`:age"]),
        ("log1p(`my col`)", ["log1p(`my col`)"]),
        ("sqrt(income/1000) + asinh(debt)", ["sqrt(income/1000)", "asinh(debt)"]),
    ],
)
def test_formulas_become_canonical_features(right, expected):
    assert features(right) == expected
    made = Design(SCHEMA, tuple(expected), "visits")
    assert set(made.terms) == {name for name in expected if name not in SCHEMA.columns}


@pytest.mark.parametrize(
    ("right", "says"),
    [
        ("scale(age)", "looks at the data.*public numbers"),
        ("center(age)", "looks at the data"),
        ("poly(age, 2)", r"looks at the data.*I\(\(age - 50\)\*\*2\)"),
        ("cr(age, df=4)", "looks at the data.*knots"),
        ("qcut(age, 4)", "looks at the data.*breaks"),
        ("bs(age, df=5)", "where the data are.*knots"),
        ("bs(age)", "needs public knots"),
        ("bs(age, knots=(30,), extrapolation='clip')", "no argument 'extrapolation'"),
        ("bs(age, knots=(50, 30))", "must increase"),
        ("bs(age, knots=(10,))", "within the public bounds of 'age', 18 to 90"),
        ("bs(age, knots=(30,), degree=9)", "degree"),
        ("bs(age + income, knots=(30,))", "takes a column"),
        ("cut(age)", "needs public breaks"),
        ("cut(age, breaks=(18, 90))", "no break is within"),
        ("cut(age, breaks=(age,))", "expected a number"),
        ("C(age)", "declare it as a category"),
        ("C(health, levels=['good', 'bad'])", "those that the schema declares, good, fair, poor"),
        ("log(income)", "from 0 to 1000000.*log1p"),
        ("log(debt)", "asinh"),
        ("log1p(debt)", "log1p needs more than -1"),
        ("sqrt(debt)", "sqrt needs 0 or more"),
        ("I(age/debt)", "can be 0"),
        ("I(age**1.5)", "whole numbers from 2 to 8"),
        ("I(age**99)", "whole numbers from 2 to 8"),
        ("I(3)", "constant"),
        ("I(0*age)", "constant within the bounds"),
        ("I(1e50*age**8)", "larger than"),
        ("age**2", r"write I\(age\*\*2\)"),
        ("age^2", r"write I\(age\*\*2\)"),
        ("exp(age)", "no function exp; there are log, log1p"),
        ("np.log(age)", r"write log\(\.\.\.\)"),
        ("log(health)", "category"),
        ("log(free)", "no bounds"),
        ("nobody", "not declared"),
        ("log(nobody)", "not declared"),
        ("0 + age", "without an intercept"),
        ("age - 1", "without an intercept"),
        ("1", "no features"),
        ("2:age", "cannot scale"),
        (".", "name those that you mean"),
        ("age | health", "'|' is not supported"),
        ("age +", "cannot be read"),
        ("health + age:health", "add age"),
        ("age + sex:health + sex", "add health"),
        ("I(visits**2)", "as the target is"),
        ("I(age if age else 1)", "cannot be used"),
        ("I(age[0])", "cannot be used"),
        ("I((lambda: age)())", "not a function"),
        ("I(__import__('os'))", "cannot be used within an expression"),
        ("log(age, 2)", "one argument"),
        ("age:income:debt:sex:health + age:income:debt:sex", "at most 4 factors"),
        ("I(" + "(" * 60 + "age" + ")**2" * 60 + ")", "nested too deeply|cannot be read"),
        ("I(" + "+".join(["age"] * 200) + ")", "nested too deeply|longer than"),
    ],
)
def test_refusals_say_what_to_do(right, says):
    with pytest.raises(RequestError, match=says):
        design(right)


@pytest.mark.parametrize(
    "formula", ["", "   ", "age", "~ age", "visits + age ~ income", 7, "a" * 10**5]
)
def test_what_is_no_formula(formula):
    with pytest.raises(RequestError, match="formula"):
        read_formula(formula, SCHEMA)


def test_the_target_may_be_a_term_of_one_number():
    assert design("age", "log1p(visits)").columns[-1].name == "log1p(visits)"
    for wrong in ("bs(visits, knots=(3,))", "health", "health:visits"):
        with pytest.raises(RequestError, match=r"target|category"):
            design("age", wrong)


def test_a_term_that_is_a_columns_name_is_refused():
    schema = Schema("d", {**SCHEMA.columns, "log1p(income)": Number(0, 1)})
    with pytest.raises(RequestError, match="rename the column"):
        read_formula("visits ~ log1p(income)", schema)
    assert not Design(schema, ("log1p(income)",), "visits").terms  # by its name it is the column


@pytest.mark.parametrize(
    "text",
    [
        *("I(age ** 2)", "health:age", "age:age", "bs(age, knots=(30, 50), degree=3)", "`age`"),
        *("I(age)", "C(health)", "log1p((income))", "I(age**2.0)", "I(age+1)", " log1p(income)"),
        *("cut(age, breaks=(18, 40))", "log1p(income):1", "1:log1p(income)", "x" * 500 + "("),
    ],
)
def test_only_the_canonical_spelling_is_read(text):
    with pytest.raises(RequestError):
        read_term(text, SCHEMA)


def test_two_spellings_are_one_request():
    a, b = (features(right) for right in ("age*health", "health + age + health:age"))
    assert set(a) == set(b)


# --- values ---------------------------------------------------------------------------------------


def raw_rows(rng, n):
    table = {}
    for name, column in SCHEMA.columns.items():
        if isinstance(column, Category):
            table[name] = rng.integers(0, len(column.levels), n).astype(np.int32)
        elif isinstance(column, Number):
            inside = rng.uniform(column.lower, column.upper, n)
            ends = rng.choice([column.lower, column.upper], n)
            table[name] = np.where(rng.random(n) < 0.2, ends, inside)
    return table


NUMBER = st.sampled_from(["age", "income", "debt", "`my col`"])


def expressions():
    def grow(inner):
        return st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
                lambda t: f"({t[0]} {t[1]} {t[2]})"
            ),
            st.tuples(inner, st.integers(2, 4)).map(lambda t: f"({t[0]})**{t[1]}"),
            inner.map(lambda e: f"asinh({e})"),
            inner.map(lambda e: f"(-{e})"),
        )

    constants = st.floats(-50, 50, allow_nan=False).map(lambda x: f"({x!r})")
    return st.recursive(st.one_of(NUMBER, constants), grow, max_leaves=5)


@settings(max_examples=150, deadline=None)
@given(text=expressions(), seed=st.integers(0, 2**32 - 1))
def test_values_are_within_the_bounds_and_text_is_canonical(text, seed):
    """Interval arithmetic, and: what a text means does not change when it is written anew."""
    try:
        made = design(f"I({text})")
    except RequestError:
        return
    table = raw_rows(np.random.default_rng(seed), 200)
    column = made.columns[0]
    [values] = [made.terms[column.source].values(SCHEMA, table)[0]] if made.terms else [None]
    if values is None:
        return
    slack = 1e-9 * (column.half_width + abs(column.centre))
    assert (values >= column.centre - column.half_width - slack).all()
    assert (values <= column.centre + column.half_width + slack).all()
    python = text.replace("`my col`", "my_col")
    names = {"asinh": np.arcsinh, "my_col": table["my col"], **table}
    direct = eval(python, {"__builtins__": {}}, names)  # the test's own text
    np.testing.assert_allclose(values, direct, rtol=1e-9, atol=slack)


@pytest.mark.parametrize(
    ("ours", "exact", "low", "high"),
    [
        (_log, mpmath.log, 1e-300, 1e300),
        (_log1p, mpmath.log1p, 1e-14, 1e300),
        (_asinh, mpmath.asinh, 1e-14, 1e60),
    ],
)
def test_functions_are_right_to_the_last_bits(ours, exact, low, high):
    rng = np.random.default_rng(3)
    x = np.exp(rng.uniform(np.log(low), np.log(high), 400))
    x = np.concatenate([x, 1 + rng.uniform(-0.3, 0.3, 200)])
    if ours is not _log:
        x = np.concatenate([x, -rng.uniform(1e-12, 0.99, 200)])
    with mpmath.workdps(40):
        true = np.array([float(exact(mpmath.mpf(float(v)))) for v in x])
    np.testing.assert_allclose(ours(x), true, rtol=1e-15, atol=0)


def test_values_do_not_depend_on_the_length_or_layout_of_a_block():
    """What NumPy's own logarithm does not promise."""
    table = raw_rows(np.random.default_rng(5), 1013)
    right = (
        "log1p(income) + asinh(debt) + log(age) + bs(age, knots=(30, 50)) + ns(income, knots=(5,))"
    )
    for name, term in design(right).terms.items():
        whole = term.values(SCHEMA, table)
        for size in (1, 3, 8, 64):
            parts = [
                term.values(SCHEMA, {k: v[i : i + size] for k, v in table.items()})
                for i in range(0, 1013, size)
            ]
            for j, column in enumerate(whole):
                assert (np.concatenate([part[j] for part in parts]) == column).all(), name
        strided = term.values(SCHEMA, {k: np.repeat(v, 2)[::2] for k, v in table.items()})
        assert all((a == b).all() for a, b in zip(whole, strided, strict=True))


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_b_splines_are_those_of_scipy(degree):
    knots, x = (20.0, 33.0, 70.0), np.linspace(18, 90, 500)
    t = np.r_[[18.0] * (degree + 1), knots, [90.0] * (degree + 1)]
    true = BSpline.design_matrix(x, t, degree).toarray()
    ours = np.column_stack(b_spline(x, (18.0, 90.0), knots, degree))
    np.testing.assert_allclose(ours, true[:, 1:], atol=1e-12)
    assert (ours >= 0).all()


def test_natural_splines_are_those_of_scipy_and_within_their_bounds():
    knots, x = (20.0, 33.0, 70.0), np.linspace(18, 90, 4001)
    points = np.r_[18.0, knots, 90.0]
    ours = natural_spline(x, (18.0, 90.0), knots)
    bounds = natural_spline_bounds((18.0, 90.0), knots)
    for k, (values, (low, high)) in enumerate(zip(ours, bounds, strict=True), 1):
        true = CubicSpline(points, np.eye(5)[k], bc_type="natural")(x)
        np.testing.assert_allclose(values, true, atol=1e-12)
        assert low - 1e-9 <= values.min() <= low + 1e-4
        assert high - 1e-4 <= values.max() <= high + 1e-9


GROUPED = (
    "age*health + sex*health + debt*bs(age, knots=(30, 50)) + bs(age, knots=(30, 50)):health"
    " + cut(age, breaks=(40, 65))*sex + ns(age, knots=(40,)):health + debt*health*sex"
)


@pytest.mark.parametrize("bits", [8, 16, 24])
def test_the_integers_of_a_group_add_up_to_at_most_one(bits):
    """(1) of `core.terms.term`, on the grid, with rows at knots and bounds among them."""
    _, found = read_formula("visits ~ " + GROUPED + " + ns(age, knots=(40,))", SCHEMA)
    made = Design(SCHEMA, tuple(found), "visits")
    rng = np.random.default_rng(bits)
    n = 20_000
    table = raw_rows(rng, n)
    table["age"][:2000] = rng.choice([18, 30, 40, 50, 65, 90], 2000)
    rows, grid = np.empty((len(made.columns), n)), RowGrid.with_bits(made, bits)
    DesignRows(made, grid.columns).fill([table[name] for name in made.sources], rows)
    grid.round_block(rows, out=rows)
    groups = {}
    for i, column in enumerate(made.columns):
        assert (np.abs(rows[i]) <= grid.one).all()
        if column.group is not None:
            groups.setdefault(column.group, []).append(i)
            assert column.signed or (rows[i] >= 0).all()
    assert len(groups) > 8
    for members in groups.values():
        sizes = np.abs(rows[members]).sum(axis=0)
        assert sizes.max() <= grid.one
        if made.columns[members[0]].is_indicator:
            assert set(np.unique(rows[members])) == {0, grid.one}
    zero = SecondMoments(made).public_values(n).keys() - {(0, 0)}
    assert len(zero) == 8
    for a, b in zero:
        assert not (rows[a - 1] * rows[b - 1]).any()


def test_rounding_to_nearest_would_break_the_groups():
    """Negative control of the test above: why B-splines are cut off."""
    x = np.linspace(18, 90, 20_001)
    values = np.array(b_spline(x, (18.0, 90.0), (30.0, 50.0), 3))
    assert np.floor(values * 2**16 + 0.5).sum(axis=0).max() > 2**16
    assert np.trunc(values * 2**16).sum(axis=0).max() <= 2**16


def test_clipping_comes_before_the_term():
    made = design("log1p(income) + debt:age")
    rows = np.empty((len(made.columns), 3))
    grid = RowGrid.of(made, Box(), 2)
    table = {"income": [-9.0, 1e9, math.inf], "debt": [-1e9, 1e9, 0.0], "age": [5.0, 300.0, 18.0]}
    table["visits"] = [0.0, 0.0, 0.0]
    DesignRows(made, grid.columns).fill([np.array(table[name]) for name in made.sources], rows)
    grid.round_block(rows, out=rows)
    one = grid.one
    assert rows[0].tolist() == [-one, one, one]
    assert rows[1].tolist() == [round(-500 * 18 / 45_000 * one), one, 0]
