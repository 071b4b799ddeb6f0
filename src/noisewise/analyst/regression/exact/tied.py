"""Rows of indicators in a factor F, from coordinates of which every value is possible, and back.

An indicator is 0 or 1, so its sum of squares is its sum. Indicators come in families
(`regression.categories`) of *atoms*, at most one of which is 1 in any row: the levels of a
category, or the cells of a table of several and what these leave of its margins. Let p_1, p_2, ...
be the shares of a family's atoms and rest_a = 1 - p_1 - ... - p_{a-1}. Row a of F, from the
constant on, has the product p_a with the constant and with itself and 0 with earlier rows of its
family. With the m rows of earlier families all products are possible that leave F F' positive
definite.

The coordinates of row a are the log odds of share_a = p_a / rest_a and the partial correlations of
a vector t_a in the unit ball of R^m. Let z be the earlier rows of the family. e_0 - Σ F_z is
orthogonal to all F_z and has the product rest_a with e_0, so that

    F_a = share_a (e_0 - Σ_z F_z) + length_a (B_a t_a + s_a e_a),
    length_a² = p_a (1 - share_a),    s_a² = 1 - |t_a|²

has the right products if B_a is an isometry to the vectors that are orthogonal to e_0 and all F_z.
For the first row of a family these are the columns of earlier families. Then, by induction,

    B_{a+1} v = B_a (v - t_a (t_a·v) / (1 + s_a)) - (t_a·v) e_a,

because B_a x + y e_a is orthogonal to F_a if t_a·x + s_a y = 0, and it is as long as v. Hence every
value of the coordinates is possible, and every positive definite matrix has one. The volume element
from coordinates to p_a and to the products with earlier families, whose rows are b, is

    p_a (1 - share_a) length_a^m Π_z s_z Π_b F_bb |dt_a|,

because v - t (t·v) / (1 + s) is a linear map of v with determinant s.

In the end a column is the sum of the atoms in its cell: its own and NESTED ones before it. This is
a linear map of determinant 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray, IntArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.categories import NESTED, TIED

# Of the map of partial correlations: y = v sqrt(1 + TAIL v²). Exponential tails of y become normal.
TAIL = 0.25


@compiled
def tied_rows(known: IntArray) -> Any:
    """Number of tied rows of a holder, which are 1, 2, ..."""
    count = 0
    while count + 1 < known.shape[0] and known[count + 1, count + 1] == TIED:
        count += 1
    return count


@compiled
def _first_of_family(known: IntArray, a: int) -> Any:
    """Where the family of row a starts; earlier rows are of other families. `known` is its row."""
    first = 1
    while first < a and not known[first]:
        first += 1
    return first


@compiled
def tied_row(K: FloatArray, F: FloatArray, a: int, known: IntArray) -> Any:
    """Row a of F, an atom, from its coordinates in row a of K; the log volume element.

    Column a of K gets t_a, and s_a on the diagonal.
    """
    first = _first_of_family(known, a)
    rest = 1.0
    for z in range(first, a):
        rest -= F[z, 0]
    share = 1.0 / (1.0 + math.exp(-K[a, 0])) if abs(K[a, 0]) < 500.0 else 0.0
    p = rest * share
    if not (p > 0.0 and p < 1.0 and share < 1.0):
        return -np.inf
    length = math.sqrt(p * (1.0 - share))
    logp = (first + 1.0) * math.log(length)
    left, product = 1.0, 1.0  # the latter of Jacobians, one logarithm for many
    for b in range(1, first):
        v2 = TAIL * K[a, b] ** 2
        root = math.sqrt(1.0 + v2)
        y = K[a, b] * root
        if not abs(y) < 300.0:
            return -np.inf
        e = math.exp(-abs(y))
        sech = 2.0 * e / (1.0 + e * e)
        product *= left * sech * sech * (1.0 + 2.0 * v2) / root
        K[b, a] = left * math.copysign((1.0 - e * e) / (1.0 + e * e), y)
        F[a, b] = K[b, a]
        left *= sech
        logp += math.log(F[b, b])
        if not (product > 1e-150 and product < 1e150):
            logp += math.log(product)
            product = 1.0
    logp += math.log(product)
    K[a, a] = left
    for z in range(a - 1, first - 1, -1):
        inner = 0.0
        for b in range(1, first):
            inner += K[b, z] * F[a, b]
        F[a, z] = -inner
        inner /= 1.0 + K[z, z]
        for b in range(1, first):
            F[a, b] -= inner * K[b, z]
        logp += math.log(K[z, z])
    for b in range(1, a):
        F[a, b] *= length
    for z in range(first, a):
        for b in range(1, z + 1):
            F[a, b] -= share * F[z, b]
    F[a, 0], F[a, a] = p, length * left
    if not F[a, a] > 0.0:
        return -np.inf
    return logp


@compiled
def columns_of_atoms(F: FloatArray, known: IntArray, tied: int, sign: float) -> Any:
    """Turn the rows of atoms into those of columns, in place; back again with sign -1."""
    for i in range(tied):
        a = tied - i if sign > 0.0 else i + 1
        for z in range(1, a):
            if known[a, z] == NESTED:
                for b in range(z + 1):
                    F[a, b] += sign * F[z, b]


@compiled
def tied_rows_adjoint(
    K: FloatArray,
    F: FloatArray,
    Fbar: FloatArray,
    Kbar: FloatArray,
    known: IntArray,
    tied: int,
) -> Any:
    """Reverse of all tied rows: derivatives by their coordinates, into these rows of Kbar."""
    columns_of_atoms(F, known, tied, -1.0)
    for z in range(1, tied + 1):
        Kbar[z, z] = 0.0
        for a in range(z + 1, tied + 1):
            Kbar[z, a] = 0.0
            if known[a, z] == NESTED:
                for b in range(z + 1):
                    Fbar[z, b] += Fbar[a, b]
    for a in range(tied, 0, -1):
        _tied_row_adjoint(K, F, Fbar, Kbar, a, known[a])
    columns_of_atoms(F, known, tied, 1.0)


@compiled
def _tied_row_adjoint(
    K: FloatArray, F: FloatArray, Fbar: FloatArray, Kbar: FloatArray, a: int, known: IntArray
) -> Any:
    """Reverse of `tied_row`. Column a of Kbar has what later rows of the family ask of t_a, s_a."""
    first = _first_of_family(known, a)
    m = first - 1
    rest = 1.0
    for z in range(first, a):
        rest -= F[z, 0]
    p = F[a, 0]
    share = p / rest
    length = math.sqrt(p * (1.0 - share))
    # The part along e_0 - Σ F_z. What is left of row a goes, divided by its length, into Kbar.
    for b in range(1, a):
        Kbar[a, b] = F[a, b]
    by_share = 0.0
    for z in range(first, a):
        for b in range(1, z + 1):
            Kbar[a, b] += share * F[z, b]
            by_share -= Fbar[a, b] * F[z, b]
            Fbar[z, b] -= share * Fbar[a, b]
    by_length = Fbar[a, a] * K[a, a] + (m + 2.0) / length
    for b in range(1, a):
        Kbar[a, b] /= length
        by_length += Fbar[a, b] * Kbar[a, b]
        Fbar[a, b] *= length  # from here on by the unit vector
    # The isometry, backwards: the first in the family was the last to act.
    for z in range(first, a):
        inner, asked = -Kbar[a, z], 0.0
        each = 1.0 / (1.0 + K[z, z])
        for b in range(1, first):
            Kbar[a, b] += each * inner * K[b, z]
            asked -= Fbar[a, b] * K[b, z]
        by_inner = each * asked - Fbar[a, z]
        Kbar[z, z] += 1.0 / K[z, z] - asked * inner * each * each
        for b in range(1, first):
            Kbar[b, z] += by_inner * Kbar[a, b] - each * inner * Fbar[a, b]
            Fbar[a, b] += by_inner * K[b, z]
    # The partial correlations of t_a. `tail` is by what is left of the unit after them, times that.
    square = K[a, a] * K[a, a]
    tail = K[a, a] * (Kbar[a, a] + Fbar[a, a] * length)
    for b in range(first - 1, 0, -1):
        t, by_t = K[b, a], Kbar[b, a] + Fbar[a, b]
        after = square
        square += t * t
        left = math.sqrt(square)
        th = t / left
        v2 = TAIL * K[a, b] ** 2
        root2 = 1.0 + v2
        by_y = by_t * after / left - th * (tail + 2.0)
        Kbar[a, b] = by_y * (1.0 + 2.0 * v2) / math.sqrt(root2)
        Kbar[a, b] += TAIL * K[a, b] * (4.0 / (1.0 + 2.0 * v2) - 1.0 / root2)
        tail += by_t * t + 1.0
        Fbar[b, b] += 1.0 / F[b, b]
    by_share += Fbar[a, 0] * rest
    Kbar[a, 0] = share * (1.0 - share) * by_share + by_length * length * (0.5 - share)
    by_rest = Fbar[a, 0] * share + 0.5 * by_length * length / rest
    for z in range(first, a):
        Fbar[z, 0] -= by_rest
