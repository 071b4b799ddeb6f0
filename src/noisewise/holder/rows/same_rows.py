"""Whether two passes have read the same rows, whatever each of them sums.

A release in rounds reads its rows several times, and a table may change in between. Every pass adds
up one more number, the same in all of them. With w = (1, x, y) the integers of a row on the grid of
second moments (`rows.values`, 16 digits) and secret integers k_j, one for each entry,

    check = Σ (Σ_j k_j w_j)²   modulo q = 2**31 - 1.

**No further work in the first pass of linear regressions**, whose sums are A = Σ ww' (`rows.sums`,
in whatever engine): there check = Σ_ij k_i k_j A_ij. Passes over coordinates (`rows.rounds`) round
their rows to that grid, too, and take one product of a matrix and a vector.

**Claim.** Let two tables differ in n or in A, by integers that are not all multiples of q, and let
the k_j be uniform in [0, 2**20) and independent of both. Then (n, check) agrees with a probability
of at most 2**-19. *Proof.* If n agrees, the difference of both checks is a polynomial of degree 2
in the k_j over the field of q elements, Σ E_ii k_i² + Σ 2 E_ij k_i k_j with the differences E. One
of its coefficients isn't 0, as q is odd. Such a polynomial is 0 for at most a share 2 / 2**20 of
the points of a cube with sides of 2**20 (Schwartz and Zippel). ∎ The k_j are expanded from a
random key of 256 bits.

**What isn't noticed**: changes of columns that are not read, or below half a step of the grid; a
change that leaves n, all sums and all sums of products as they are, or that is undone before the
next pass. Within one pass a change is noticed if it is still there in the next one.

**Exact.** |Σ_j k_j w_j| < 2**20 · 2**16 · 2**11 = 2**47 in any order of summation. A multiple of q
is taken off in doubles, exactly; what is left is at most q + 1 in size, and its square fits 63
bits. Two halves of 31 bits are added up, because 2**31 is 1 modulo q: with at most 2**30 rows sums
stay below 2**63.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise.core.design import Box, Covariates, Design
from noisewise.core.statistics import SecondMoments
from noisewise.holder.rows import Codes, Floats
from noisewise.holder.rows.levels import Narrow
from noisewise.holder.rows.sums import SumPlan, Sums
from noisewise.holder.rows.values import DesignRows, RowGrid

MODULUS = (1 << 31) - 1
KEY_BITS = 20


def with_check(plan: Any, key: str) -> Any:
    """The plan, which takes this check as well; `key` is in hexadecimal digits."""
    if isinstance(plan, SumPlan):
        return plan  # its sums are enough
    return replace(plan, hash_keys=secrets_of(key, plan.design))


def check_of(plan: Any, result: Any, key: str) -> int:
    """The check of what such a plan has accumulated. As private as the rows: never show it."""
    if not isinstance(plan, SumPlan):
        return int(result.check)
    assert isinstance(result, Sums)
    statistic, hash_keys = SecondMoments(plan.design), secrets_of(key, plan.design)
    moments = statistic.with_public(result.n, result.values[SecondMoments.name])
    total = sum(
        (1 if a == b else 2) * hash_keys[a] * hash_keys[b] * value
        for (a, b), value in moments.items()
    )
    return total % MODULUS


def secrets_of(key: str, design: Design) -> tuple[int, ...]:
    """One for each entry of w, the target among them."""
    size = len(_whole(design).names)
    octets = hashlib.shake_256(bytes.fromhex(key)).digest(4 * size)
    return tuple(int.from_bytes(octets[4 * i : 4 * i + 4]) >> (32 - KEY_BITS) for i in range(size))


def _whole(design: Design) -> Design:
    """The design with its target."""
    if not isinstance(design, Covariates):
        return design
    return Design(design.schema, design.features, design.target, design.family)


class RowCheck:
    """Adds up the check, block by block."""

    def __init__(self, design: Design, hash_keys: Sequence[int]) -> None:
        whole = _whole(design)
        grid = RowGrid.of(whole, Box(), SecondMoments.degree)
        narrow = Narrow(whole, grid.columns, allowed=whole.schema.unit_column is None)
        self._grid = replace(grid, columns=narrow.columns)
        # Of covariates alone, blocks have no design column for the target.
        self._rows = None if whole is design else DesignRows(whole, narrow.columns)
        constant, *others = narrow.by_row(np.array(hash_keys, dtype=np.float64))
        self._constant = float(constant) * grid.one
        # Categories of many levels by their codes, everything else by a product.
        self._secrets = np.array([0.0 if np.ndim(one) else one for one in others])
        self._narrow = narrow
        self._w = np.empty((len(others), 0))
        self._by_level = {i: one * grid.one for i, one in enumerate(others, 1) if np.ndim(one)}

    def of(self, centred: Floats, block: list[Floats | Codes]) -> int:
        """The check of a block of rows: design columns less their centre, and table columns."""
        if self._rows is not None:
            centred = np.empty((len(self._secrets), len(block[0])))
            self._rows.fill(list(block), centred)
        if self._w.shape[1] < centred.shape[1]:
            self._w = np.empty(centred.shape)
        w = self._w[:, : centred.shape[1]]
        self._grid.round_block(centred, out=w)
        total = self._secrets @ w
        total += self._constant
        if self._by_level:
            codes = self._narrow.codes(block)
            for row, hash_keys in self._by_level.items():
                total += hash_keys[codes[row]]
        total -= np.floor(total * (1 / MODULUS)) * MODULUS
        squares = total.astype(np.int64)
        squares *= squares
        return int((squares & MODULUS).sum() + (squares >> 31).sum())
