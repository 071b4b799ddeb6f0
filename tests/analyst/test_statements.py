"""Statements are read as they are meant, names are taken as they are, and nothing is ever run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from noisewise.analyst.posterior.statements import (
    MAX_LENGTH,
    MAX_PARTS,
    bounds_on_one,
    read_statement,
    statement_probability,
)
from noisewise.core.errors import RequestError

RNG = np.random.default_rng(1)
DRAWS = {
    name: RNG.normal(i, 2.0, (2, 500))
    for i, name in enumerate(
        ("a", "b", "group[<30]", "years of school", "and", "a - b", "2nd", "_0", "abs", "x`y")
    )
}
A, B = DRAWS["a"], DRAWS["b"]


def prob(statement):
    return statement_probability(statement, DRAWS, DRAWS.__getitem__)


@pytest.mark.parametrize(
    ("statement", "holds"),
    [
        ("a > 0", A > 0),
        ("0 < a", A > 0),
        ("a<=b", A <= B),
        ("-0.5 < a < 1.5e0", (A > -0.5) & (A < 1.5)),
        ("a > 0 and b > 0", (A > 0) & (B > 0)),
        ("a > 0 or not b > .5", (A > 0) | ~(B > 0.5)),
        ("a > 0 and b > 0 or a < -1", ((A > 0) & (B > 0)) | (A < -1)),
        ("a > 0 and (b > 0 or a < -1)", (A > 0) & ((B > 0) | (A < -1))),
        ("2*a-b > 0", 2 * A - B > 0),
        ("2 * (a - 3) / 4 > -b", 2 * (A - 3) / 4 > -B),
        ("abs(a) < 1", np.abs(A) < 1),
        ("abs(a*b + 1) < +2", np.abs(A * B + 1) < 2),
        ("group[<30] > 2", DRAWS["group[<30]"] > 2),
        ("1<group[<30]<a", (DRAWS["group[<30]"] > 1) & (DRAWS["group[<30]"] < A)),
        ("years of school > 3", DRAWS["years of school"] > 3),
        ("`years of school` > a", DRAWS["years of school"] > A),
        ("`and` > 4 and a > 0", (DRAWS["and"] > 4) & (A > 0)),
        ("a - b > 5", DRAWS["a - b"] > 5),  # a name, the longest that fits
        ("`a` - `b` > 0", A - B > 0),
        ("2nd > 6", DRAWS["2nd"] > 6),
        ("_0 > 7", DRAWS["_0"] > 7),
        ("`abs` > 8", DRAWS["abs"] > 8),
    ],
)
def test_statements_mean_what_they_say(statement, holds):
    assert prob(statement) == np.mean(holds)
    assert 0 < prob(statement) < 1


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("wage > 0", "'wage' is neither a parameter"),
        ("ab > 0", "'ab' is neither a parameter"),
        ("`wage` > 0", "'wage' is neither a parameter"),
        ("`a > 0", "has no end"),
        ("", "is not a statement such as"),
        (3, "is not a statement such as"),
        (None, "is not a statement such as"),
        ("a", "true or false is wanted"),
        ("a + 1", "true or false is wanted"),
        ("a and b > 0", "true or false is wanted"),
        ("(a > 0) + 1 > 0", "can't be computed"),
        ("(a > 0) > 0", "can't be computed"),
        ("a > ", "not complete"),
        ("a b > 0", "not complete"),
        ("a ** 2 > 0", "not complete"),
        ("a // 2 > 0", "not complete"),
        ("a(b) > 0", "can't be computed"),
        ("abs(a)(b) > 0", "can't be computed"),
        ("abs() > 0", "can't be computed"),
        ("() > 0", "can't be computed"),
        ("a == 0", "'=' is neither|'==' is neither"),
        ("a != 0", "neither a parameter"),
        ("a = 0", "neither a parameter"),
        ("a.real > 0", "neither a parameter"),
        ("a > '1'", "neither a parameter"),
        ("a > 0 if a else b", "'if' is neither"),
        ("lambda: 1", "neither a parameter"),
        ("__import__('os').system('true') > 0", "'__import__' is neither"),
        ("[a for a in b] > 0", "neither a parameter"),
        ("a > 0x10", "neither a parameter"),
        ("a > 1_000", "neither a parameter"),
        ("a > 1e999", "can't be computed"),
        ("a > " + "9" * 900, "can't be computed"),
        ("a > 0 " + " " * MAX_LENGTH, f"at most {MAX_LENGTH} characters"),
        ("(" * 120 + "a" + ")" * 120 + " > 0", f"at most {MAX_PARTS} names"),
        ("a > 0\n; b", "neither a parameter"),
        ("a > 0 # b", "neither a parameter"),
    ],
)
def test_other_texts_are_refused_with_what_to_write(statement, message):
    with pytest.raises(RequestError, match=message):
        prob(statement)


def test_whatever_is_written_ends_in_a_number_or_a_refusal():
    """Pieces in any order: nothing else comes out, and no name outside the list is looked up."""
    asked = []

    def draws(name):
        asked.append(name)
        return DRAWS[name]

    pieces = ("a", "`a - b`", "0", "-", "*", "(", ")", "<", "and", "not", "abs", "`", ".", "zz")
    answers = 0
    for some in itertools.chain(*(itertools.product(pieces, repeat=k) for k in range(1, 4))):
        try:
            answers += 0 <= statement_probability(" ".join(some), DRAWS, draws) <= 1
        except RequestError as error:
            assert "prob: " in str(error)
    assert answers > 5
    assert set(asked) <= {"a", "a - b", "abs", "and"}


def test_deep_statements_are_read_or_refused():
    for statement in (
        "-" * 190 + "a > 0",
        "not " * 190 + "a > 0",
        "(" * 95 + "a" + ")" * 95 + ">0",
    ):
        assert prob(statement) == pytest.approx(np.mean(A > 0))


def test_bounds_on_one_coefficient():
    def found(text):
        return bounds_on_one(read_statement(text, DRAWS))

    assert found("a > 0") == ("a", [(">", 0.0)])
    assert found("0 >= a") == ("a", [("<=", 0.0)])
    assert found("-1 < group[<30] <= 2 * 3") == ("group[<30]", [(">", -1.0), ("<=", 6.0)])
    assert found("3 > a > -1") == ("a", [("<", 3.0), (">", -1.0)])
    for text in ("a > b", "a > 0 and a < 1", "2 * a > 1", "abs(a) < 1", "0 < 1 < a", "a > 0 > -1"):
        assert found(text) is None, text


def test_other_names_between_backticks_may_be_known():
    found = read_statement("`cough=yes | smoker=no` > 0.5", (), lambda name: "=" in name)
    assert found.names == ("cough=yes | smoker=no",)
    with pytest.raises(RequestError, match="'cough' is neither"):
        read_statement("`cough` > 0.5", (), lambda name: "=" in name)
