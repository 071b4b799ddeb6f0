"""The regressions of all blocks at once, from their exact sums.

A block's regression is a function of that block's sums, by a fixed sequence of operations, and of
nothing else. It never fails: a block whose regression does not exist (too few rows, a constant or
collinear column, overflow) is marked as not valid, and every mechanism counts it with a constant.
Blocks are never dropped and never counted: how many are valid depends on the rows.

Covariates are centred about the block's own means, in 106-bit arithmetic, so that nothing is lost
to large means. In the coordinates (α, β) of the centred regression y = α + β'(x - x̄), X'X is
diag(n, C), and a prior precision Λ₀ of (β₀, β), to the power 1/M, becomes A'Λ₀A/M with
β₀ = α - x̄'β. The matrix is scaled to a unit diagonal before it is factored, and a pivot below 1e-10
(a column that the others explain to that share) means collinear.

The posteriors are those of `noisewise.core.kinds.summary.mechanisms`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise._compiled import compiled_in_order
from noisewise.core.kinds.summary.mechanisms import BlockPosterior, Conjugate, GPrior
from noisewise.holder.blocks.limbs import from_three_limbs, from_two_limbs, multiply, subtract
from noisewise.holder.blocks.sums import BlockGrid, BlockSums
from noisewise.holder.rows import Floats

_FLAT, _G_PRIOR, _CONJUGATE = 0, 1, 2
_PIVOT = 1e-10
_CONSTANT = 2.0**-96

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Fits:
    """Student t posteriors of every coefficient in every block. As private as the rows."""

    # (blocks, coefficients), m and v (the squared scale) in the table's units; the intercept is
    # coefficient 0
    mean: Floats = field(repr=False)
    variance: Floats = field(repr=False)
    freedom: Floats = field(repr=False)  # (blocks,), ν
    # The same with the likelihood to the power M: as narrow as the posterior of all rows
    full_variance: Floats = field(repr=False)
    full_freedom: Floats = field(repr=False)
    valid: Flags = field(repr=False)  # (blocks,)


def fit_blocks(
    sums: BlockSums, grid: BlockGrid, posterior: BlockPosterior, blocks: int, n: int | None
) -> Fits:
    """Fit all blocks of all partitions.

    `grid` is the one that the sums were made with, `blocks` the M of one partition, and n the
    number of rows where it is public; only g = "n" needs it.
    """
    limbs = sums.limbs.reshape(-1, sums.limbs.shape[-1])
    coefficients = len(grid.columns)  # the intercept takes the target's place
    kind, g, shape, rate = _FLAT, 1.0, 0.0, 0.0
    prior_mean, prior_precision = np.zeros(coefficients), np.zeros(coefficients)
    if isinstance(posterior, GPrior):
        kind, g = _G_PRIOR, posterior.value(n)
    elif isinstance(posterior, Conjugate):
        kind, shape, rate = _CONJUGATE, posterior.shape / blocks, posterior.rate / blocks
        prior_mean = np.array(posterior.mean)
        prior_precision = np.array(posterior.precision) / blocks
    mean = np.zeros((len(limbs), coefficients))
    variance = np.ones((len(limbs), coefficients))
    freedom, valid = np.ones(len(limbs)), np.zeros(len(limbs), dtype=np.bool_)
    centre = np.array([column.centre for column in grid.columns])
    step = np.array([column.step for column in grid.columns])
    prior = (prior_mean, prior_precision, shape, rate)
    _fit(limbs, centre, step, kind, g, *prior, mean, variance, freedom, valid)
    if kind == _FLAT:
        full_freedom = blocks * (freedom + coefficients) - coefficients
        full_variance = variance * (freedom / full_freedom)[:, None]
    else:
        full_freedom, full_variance = blocks * freedom, variance / blocks
    return Fits(mean, variance, freedom, full_variance, full_freedom, valid)


def fit_with_halves(sums: BlockSums, grid: BlockGrid, posterior: BlockPosterior) -> Fits:
    """Estimates 2 m(block) - (m(half) + m(other half))/2 of blocks that are pairs of halves.

    A block of k rows is off by about b/k where the true relation isn't a line, and that is bM/√n
    standard errors of the estimate from all rows. The halves are off by twice as much (Quenouille
    1949). It is free: they are parts of one block, so a row still touches one block alone. Where a
    half has no regression, it is m(block).

    The sums are of 2M halves; those of a block are neighbours.
    """
    blocks = sums.limbs.shape[1] // 2
    merged = BlockSums(sums.n, sums.limbs[:, ::2] + sums.limbs[:, 1::2])
    whole = fit_blocks(merged, grid, posterior, blocks, None)
    halves = fit_blocks(sums, grid, posterior, 2 * blocks, None)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = 2 * whole.mean - (halves.mean[::2] + halves.mean[1::2]) / 2
    known = halves.valid[::2] & halves.valid[1::2] & np.isfinite(mean).all(axis=1)
    return replace(whole, mean=np.where(known[:, None], mean, whole.mean))


@compiled_in_order
def _fit(
    limbs: Any,
    centre: Any,
    step: Any,
    kind: int,
    g: float,
    prior_mean: Any,
    prior_precision: Any,
    shape: float,
    rate: float,
    mean: Any,
    variance: Any,
    freedom: Any,
    valid: Any,
) -> None:
    """Fill `mean`, `variance`, `freedom` and `valid`, block by block."""
    size = len(centre)  # columns, and coefficients
    target = size - 1
    averages = np.empty(size)
    scatter = np.empty((size, size))
    precision = np.empty((size, size))
    factor = np.empty((size, size))
    right = np.empty(size)
    diagonal = np.empty(size)
    direction = np.empty(size)
    centred = np.empty(size)
    for j in range(len(limbs)):
        rows = float(limbs[j, 0])
        _moments(limbs[j], centre, step, averages, scatter)
        # Precision and right-hand side in the coordinates (α, β).
        lam, at = prior_precision[0], prior_mean[0]
        precision[0, 0] = rows + lam
        right[0] = rows * averages[target] + lam * at
        for a in range(1, size):
            x = averages[a - 1]
            precision[a, 0] = -lam * x
            right[a] = scatter[a - 1, target] - lam * x * at + prior_precision[a] * prior_mean[a]
            for b in range(1, a + 1):
                precision[a, b] = scatter[a - 1, b - 1] + lam * x * averages[b - 1]
            precision[a, a] += prior_precision[a]
        if not _factor(precision, diagonal, factor):
            continue
        _solve(factor, diagonal, right, centred)
        # Residual sum of squares about the posterior mean, and the prior's share.
        residual = scatter[target, target] + rows * (averages[target] - centred[0]) ** 2
        intercept = centred[0]
        for a in range(1, size):
            residual -= 2 * centred[a] * scatter[a - 1, target]
            intercept -= averages[a - 1] * centred[a]
            for b in range(1, size):
                residual += centred[a] * centred[b] * scatter[a - 1, b - 1]
        residual = max(residual, 0.0)
        shrink = 1.0
        if kind == _FLAT:
            degrees = rows - size
        elif kind == _G_PRIOR:
            degrees = rows if rows >= size else 0.0
            shrink = g / (g + 1)
            explained = rows * averages[target] ** 2 + scatter[target, target] - residual
            residual += max(explained, 0.0) / (g + 1)
        else:
            degrees = rows + 2 * shape
            residual += 2 * rate + prior_precision[0] * (intercept - prior_mean[0]) ** 2
            for a in range(1, size):
                residual += prior_precision[a] * (centred[a] - prior_mean[a]) ** 2
        if not degrees > 0:
            continue
        good = True
        for k in range(size):
            for a in range(size):
                direction[a] = 1.0 if a == k else 0.0
                if k == 0 and a > 0:
                    direction[a] = -averages[a - 1]
            value = shrink * (intercept if k == 0 else centred[k])
            spread = shrink * _quadratic(factor, diagonal, direction) * (residual / degrees)
            good = good and np.isfinite(value) and np.isfinite(spread)
            mean[j, k] = value if good else 0.0
            variance[j, k] = spread if good else 1.0
        freedom[j] = degrees
        valid[j] = good


@compiled_in_order
def _moments(limbs: Any, centre: Any, step: Any, averages: Any, scatter: Any) -> None:
    """Means and centred sums of products in the table's units; zero without rows."""
    size = len(centre)
    rows = float(limbs[0])
    count = max(rows, 1.0)
    at = 1 + 2 * size
    for a in range(size):
        total, rest = from_two_limbs(limbs[1 + 2 * a], limbs[2 + 2 * a])
        averages[a] = centre[a] + step[a] * ((total + rest) / count)
        for b in range(a, size):
            other, other_rest = from_two_limbs(limbs[1 + 2 * b], limbs[2 + 2 * b])
            product, product_rest = from_three_limbs(limbs[at], limbs[at + 1], limbs[at + 2])
            at += 3
            whole, whole_rest = multiply(product, product_rest, rows, 0.0)
            outer, outer_rest = multiply(total, rest, other, other_rest)
            value, value_rest = subtract(whole, whole_rest, outer, outer_rest)
            # What is left of a constant column is rounding.
            if a == b and value <= _CONSTANT * whole:
                value, value_rest = 0.0, 0.0
            scatter[a, b] = ((value + value_rest) / count) * step[a] * step[b]
            scatter[b, a] = scatter[a, b]


@compiled_in_order
def _factor(matrix: Any, diagonal: Any, factor: Any) -> bool:
    """Cholesky factor of the matrix scaled to a unit diagonal; False if it is singular."""
    size = len(matrix)
    for a in range(size):
        entry = matrix[a, a]
        if not (entry > 0 and np.isfinite(entry)):
            return False
        diagonal[a] = np.sqrt(entry)
    for a in range(size):
        for b in range(a + 1):
            value = matrix[a, b] / diagonal[a] / diagonal[b]
            for c in range(b):
                value -= factor[a, c] * factor[b, c]
            if a > b:
                factor[a, b] = value / factor[b, b]
            elif value > _PIVOT:
                factor[a, a] = np.sqrt(value)
            else:  # NaN comes here too
                return False
    return True


@compiled_in_order
def _solve(factor: Any, diagonal: Any, right: Any, out: Any) -> None:
    """Solve with the scaled factor."""
    size = len(diagonal)
    for a in range(size):
        value = right[a] / diagonal[a]
        for c in range(a):
            value -= factor[a, c] * out[c]
        out[a] = value / factor[a, a]
    for a in range(size - 1, -1, -1):
        value = out[a]
        for c in range(a + 1, size):
            value -= factor[c, a] * out[c]
        out[a] = value / factor[a, a]
    for a in range(size):
        out[a] /= diagonal[a]


@compiled_in_order
def _quadratic(factor: Any, diagonal: Any, direction: Any) -> float:
    """d'P⁻¹d; overwrites the direction."""
    total = 0.0
    for a in range(len(diagonal)):
        value = direction[a] / diagonal[a]
        for c in range(a):
            value -= factor[a, c] * direction[c]
        value /= factor[a, a]
        direction[a] = value
        total += value * value
    return total
