"""Compiled simulation of rows from posterior draws of a network."""

from __future__ import annotations

import numpy as np

from noisewise.analyst.networks.compiled import compiled, inlined
from noisewise.analyst.random_numbers import uniform


@inlined
def _draw_level(rng, theta, cell, arity):  # type: ignore[no-untyped-def]
    u = uniform(rng)
    level = 0
    while level < arity - 1:
        u -= theta[cell + level]
        if u < 0.0:
            break
        level += 1
    return level


@compiled
def synthetic_rows(rng, theta, start, width, nodes, stride, arity, out):  # type: ignore[no-untyped-def]
    """Rows, each from a draw taken at random; theta has shape (draws, cells)."""
    for r in range(out.shape[0]):
        tables = theta[int(uniform(rng) * theta.shape[0])]
        for i in range(out.shape[1]):
            cell = start[i]
            for j in range(width[i] - 1):
                cell += out[r, nodes[i, j]] * stride[i, j]
            out[r, i] = _draw_level(rng, tables, cell, arity[i])


@compiled
def weigh_rows(  # type: ignore[no-untyped-def]
    rng, theta, start, width, nodes, stride, arity, fixed, wanted, steps, rows, out
):
    """Weighted frequencies of the wanted nodes' levels under every draw, given `fixed` levels."""
    d = width.size
    row = np.zeros(d, dtype=np.int64)
    for t in range(theta.shape[0]):
        for _ in range(rows):
            weight = 1.0
            for i in range(d):
                cell = start[i]
                for j in range(width[i] - 1):
                    cell += row[nodes[i, j]] * stride[i, j]
                if fixed[i] >= 0:
                    row[i] = fixed[i]
                    weight *= theta[t, cell + fixed[i]]
                else:
                    row[i] = _draw_level(rng, theta[t], cell, arity[i])
            place = 0
            for j in range(wanted.size):
                place += row[wanted[j]] * steps[j]
            out[t, place] += weight / rows
