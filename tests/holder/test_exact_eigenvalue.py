"""The rounded smallest eigenvalue, against rational arithmetic and 120 digits."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core.design import STATISTIC_ONE, Design
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import (
    FourthMoments,
    SecondMoments,
    SmallestEigenvalue,
    smallest_eigenvalue,
)
from noisewise.core.statistics.smallest_eigenvalue import (
    STEP,
    is_positive_semidefinite,
    smallest_eigenvalue_floor,
    value,
)
from noisewise.holder.rows.sums import SumPlan

small = st.integers(-6, 6)


def gram_of(rows):
    rows = np.array(rows, dtype=object)
    return [[int(x) for x in row] for row in rows.T @ rows]


def precise_floor(matrix, step):
    """⌊λ_min / step⌋ from 120 digits, refusing to guess next to a whole number."""
    with mpmath.workdps(120):
        smallest = min(mpmath.eigsy(mpmath.matrix(matrix), eigvals_only=True)) / step
        near = mpmath.nint(smallest)
        if abs(smallest - near) < mpmath.mpf(10) ** -60:
            return int(near)  # an exact whole number, as for singular matrices
        return int(mpmath.floor(smallest))


def principal_minors_are_not_negative(matrix):
    """The textbook criterion, all 2^d - 1 minors, by Fractions."""
    d = len(matrix)
    for mask in range(1, 2**d):
        keep = [i for i in range(d) if mask >> i & 1]
        if determinant([[Fraction(matrix[i][j]) for j in keep] for i in keep]) < 0:
            return False
    return True


def determinant(rows):
    rows, result = [list(row) for row in rows], Fraction(1)
    for i in range(len(rows)):
        pivot = next((r for r in range(i, len(rows)) if rows[r][i]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != i:
            rows[i], rows[pivot], result = rows[pivot], rows[i], -result
        result *= rows[i][i]
        for r in range(i + 1, len(rows)):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    return result


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5).flatmap(lambda d: st.lists(small, min_size=d * d, max_size=d * d)))
def test_definiteness_agrees_with_all_principal_minors(entries):
    d = round(len(entries) ** 0.5)
    symmetric = [[entries[min(i, j) * d + max(i, j)] for j in range(d)] for i in range(d)]
    expected = principal_minors_are_not_negative(symmetric)
    assert is_positive_semidefinite(symmetric) is expected
    square = gram_of(np.array(entries).reshape(d, d))  # never indefinite, often singular
    assert is_positive_semidefinite(square)


def test_zero_pivots():
    assert is_positive_semidefinite([[0, 0], [0, 5]])
    assert not is_positive_semidefinite([[0, 1], [1, 5]])
    assert not is_positive_semidefinite([[5, 1], [1, 0]])
    assert is_positive_semidefinite([[4, 2, 0], [2, 1, 0], [0, 0, 0]])
    assert not is_positive_semidefinite([[4, 2, 0], [2, 1, 0], [0, 0, -1]])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 40), st.sampled_from([1, 7, 2**16]), st.integers(0, 2**32 - 1)
)
def test_random_matrices(d, n, step, seed):
    rng = np.random.default_rng(seed)
    matrix = gram_of(rng.integers(-(2**16), 2**16, (n, d)))
    assert smallest_eigenvalue_floor(matrix, step) == precise_floor(matrix, step)


@pytest.mark.parametrize("step", [1, 2**16])
@pytest.mark.parametrize("copies", [1, 10**4, 2**29])
def test_nearly_singular_matrices(step, copies):
    """One column repeats another but for one grid step in one row: doubles see nothing of that."""
    rng = np.random.default_rng(3)
    rows = rng.integers(-(2**16), 2**16, (12, 4))
    rows[:, 3] = rows[:, 1]
    singular = np.array(gram_of(rows), dtype=object) * copies
    rows[0, 3] += 1
    near = np.array(gram_of(rows), dtype=object) + singular
    for matrix in (singular.tolist(), near.tolist()):
        assert smallest_eigenvalue_floor(matrix, step) == precise_floor(matrix, step)
    assert smallest_eigenvalue_floor(singular.tolist(), step) == 0


@pytest.mark.parametrize("guess", [-(10**30), -1, 0, 1, 10**6, 10**13, 10**40])
def test_the_guess_decides_nothing(guess, monkeypatch):
    matrix = gram_of(np.random.default_rng(4).integers(-(2**16), 2**16, (30, 4)))
    expected = precise_floor(matrix, 1)
    monkeypatch.setattr(smallest_eigenvalue, "_guess", lambda _: guess)
    assert smallest_eigenvalue_floor(matrix, 1) == expected


def test_exact_multiples_are_reached():
    """At λ_min = m·step exactly the answer is m, one unit less and it is m - 1."""
    for scale in (1, 3, 2**40):
        diagonal = [[7 * scale, 0], [0, 100 * scale]]
        assert smallest_eigenvalue_floor(diagonal, scale) == 7
        diagonal[0][0] -= 1
        assert smallest_eigenvalue_floor(diagonal, scale) == 6
    assert smallest_eigenvalue_floor([[2, 1], [1, 2]], 1) == 1  # eigenvalues 1 and 3


def test_two_decisions_suffice_with_a_good_guess(monkeypatch):
    calls = []
    original = smallest_eigenvalue.is_positive_semidefinite
    monkeypatch.setattr(
        smallest_eigenvalue,
        "is_positive_semidefinite",
        lambda matrix: calls.append(1) or original(matrix),
    )
    matrix = gram_of(np.random.default_rng(5).integers(-(2**16), 2**16, (10**4, 8)))
    smallest_eigenvalue_floor(matrix, STEP)
    assert len(calls) == 2


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_the_features_are_picked_and_the_target_is_not(neighbours):
    columns = {
        "x": Number(-1, 1),
        "g": Category(("a", "b", "c"), "a"),
        "y": Number(-1, 1),
    }
    design = Design(Schema("d", columns, neighbours), ("x", "g"), "y")
    rng = np.random.default_rng(6)
    w = np.zeros((50, 5), dtype=object)
    w[:, 0] = 2**16
    w[:, 1], w[:, 4] = rng.integers(-(2**16), 2**16 + 1, (2, 50))
    for row, level in zip(w, rng.integers(0, 3, 50), strict=True):
        if level:
            row[1 + level] = 2**16
    gram = w.T @ w
    sums = tuple(int(gram[entry]) for entry in SecondMoments(design).entries)
    statistic = SmallestEigenvalue(design)
    assert statistic.size == 4
    found = value(statistic, 50, sums)
    assert found % STEP == 0
    truth = np.linalg.eigvalsh((gram[:4, :4] / STATISTIC_ONE).astype(float))[0]
    assert 0 <= truth - found / STATISTIC_ONE < 2**-16 + 1e-9


def test_it_is_no_sum_over_rows():
    design = Design(Schema("d", {"x": Number(0, 1), "y": Number(0, 1)}), ("x",), "y")
    from noisewise.core.design import Box

    with pytest.raises(ValueError, match="only sums"):
        SumPlan(design, Box(), (SecondMoments(design), SmallestEigenvalue(design)))
    SumPlan(design, Box(), (SecondMoments(design), FourthMoments(design)))
