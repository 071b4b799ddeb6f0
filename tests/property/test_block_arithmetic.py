"""Limbs and double-doubles against Python's integers and fractions, wherever hypothesis looks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.holder.blocks.limbs import (
    add_rows,
    carry,
    from_three_limbs,
    from_two_limbs,
    multiply,
    split_rows,
    subtract,
)
from noisewise.holder.blocks.median import exponential
from noisewise.holder.blocks.sums import exact_sum, limb_count

LARGEST = 2**59
values = st.integers(-LARGEST, LARGEST)
edges = st.sampled_from([0, 1, -1, LARGEST, -LARGEST, 2**30, -(2**30), 2**44 - 1, -(2**44)])
rows = st.lists(st.tuples(values | edges, values | edges), min_size=1, max_size=30)
bounded = settings(max_examples=150, deadline=None)


def exact(pair):
    return Fraction(pair[0]) + Fraction(pair[1])


@bounded
@given(rows, st.randoms(use_true_random=False))
def test_sums_are_exact_in_any_order(table, shuffler):
    totals = []
    for _ in range(2):
        limbs = np.empty((len(table), limb_count(2)), dtype=np.int64)
        split_rows(np.array(table, dtype=np.int64), limbs)
        total = np.zeros((1, 1, limb_count(2)), dtype=np.int64)
        add_rows(limbs, np.zeros((1, len(table)), dtype=np.uint32), total)
        carry(total, 2)
        totals.append(total[0, 0].tolist())
        shuffler.shuffle(table)
    assert totals[0] == totals[1]
    found = totals[0]
    a, b = [row[0] for row in table], [row[1] for row in table]
    assert found[0] == len(table)
    assert exact_sum(found[1:3]) == sum(a)
    assert exact_sum(found[3:5]) == sum(b)
    assert exact_sum(found[5:8]) == sum(x * x for x in a)
    assert exact_sum(found[8:11]) == sum(x * y for x, y in zip(a, b, strict=True))
    assert exact_sum(found[11:14]) == sum(x * x for x in b)
    assert exact(from_two_limbs(*found[1:3])) == sum(a)
    square = sum(x * x for x in a)
    assert abs(exact(from_three_limbs(*found[5:8])) - square) <= Fraction(square, 2**104)


@bounded
@given(st.integers(-(2**89), 2**89), st.integers(-(2**89), 2**89))
def test_double_doubles_keep_a_hundred_bits(a, b):
    def pair(number):
        high = float(number)
        return high, float(number - int(high))

    assert exact(pair(a)) == a
    product = exact(multiply(*pair(a), *pair(b)))
    assert abs(product - a * b) <= Fraction(abs(a * b), 2**100)
    difference = exact(subtract(*pair(a), *pair(b)))
    assert abs(difference - (a - b)) <= Fraction(max(abs(a), abs(b)), 2**102)


@bounded
@given(st.fractions(0, 40), st.fractions(0, 40))
def test_enclosures_multiply(s, t):
    """exp(-s) exp(-t) = exp(-(s + t)): the enclosures of both sides must overlap."""
    bits = 128
    (a, b), (c, d), (e, f) = (exponential(x, bits) for x in (s, t, s + t))
    assert a * c <= f << bits
    assert e << bits <= b * d
    assert a <= b
    if s <= t:
        assert c <= b
