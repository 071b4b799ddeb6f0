"""Compiled kernels of the sampler of counts: contrasts that keep all margins in agreement.

Target (see `entropy` for h): the tables θ are integrated out, which leaves

    h(C) · Π_nodes Π_rows [Π_x Γ(α_x + C_x) / Γ(Σα + M)] · Π exp(-|released - counts| / scale).

A move is proposed from a law that does not look at the state (a row from a fixed pool or at random,
levels, a signed step whose scale is fixed after warm-up), and the same step back is as likely, so
it is accepted with the ratio of targets alone.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise.analyst.networks.compiled import compiled, inlined
from noisewise.analyst.random_numbers import gamma, normal, uniform

MAX_STEP = 1e15


@compiled
def log_gamma(x):  # type: ignore[no-untyped-def]
    """Stirling's series from 10 on, with an error below 1e-10."""
    if x < 10.0:
        return math.lgamma(x)
    r = 1.0 / x
    r2 = r * r
    series = r * (8.333333333333333e-2 - r2 * (2.777777777777778e-3 - r2 * 7.936507936507937e-4))
    return (x - 0.5) * math.log(x) - x + 0.9189385332046727 + series


@compiled
def log_gamma_ratio(x, by):  # type: ignore[no-untyped-def]
    """log Γ(x + by) - log Γ(x)."""
    return log_gamma(x + by) - log_gamma(x)


@inlined
def _corner(base, turn, width, corner):  # type: ignore[no-untyped-def]
    """The cell of a corner, and its sign."""
    cell, sign = base, 1
    for j in range(width):
        if (corner >> j) & 1:
            cell += turn[j]
            sign = -sign
    return cell, sign


@inlined
def _form_weight(weights, base, turn, width):  # type: ignore[no-untyped-def]
    """By how much a measured form changes for a step of one."""
    weight = 0
    for corner in range(1 << width):
        cell, sign = _corner(base, turn, width, corner)
        weight += sign * weights[cell]
    return weight


@compiled
def sweep(  # type: ignore[no-untyped-def]
    rng,
    regions,
    moves,
    slopes,
    pool,
    movable,
    counts,
    totals,
    forms,
    log_scale,
    tried,
    taken,
    gain,
    sweeps,
):
    """Try every contrast as often as `moves.times` says, `sweeps` times over.

    `pool`, shape (rows, nodes), are levels that are worth trying; every other move takes levels at
    random. `gain` > 0 adapts the steps' scales towards one acceptance in three. `movable` says of
    every holder whether its number of rows may change.
    """
    # Arrays are taken out of their tuples once: doing it in the loops costs more than the loops.
    arity, start, kappa, alpha = regions.arity, regions.start, regions.kappa, regions.alpha
    is_family, cancels, precision = regions.is_family, regions.cancels, regions.precision
    den_start, den_times, den_at = regions.den_start, regions.den_times, regions.den_at
    den_alpha, value, region_width = regions.den_alpha, regions.value, regions.width
    region_nodes, region_stride, form_start = regions.nodes, regions.stride, regions.form_start
    form_at, form_weight, form_value = regions.form_at, regions.form_weight, regions.form_value
    form_precision, move_width, move_nodes = regions.form_precision, moves.width, moves.nodes
    times, first_region, move_region = moves.times, moves.region_start, moves.region
    move_stride, first_other, others = moves.stride, moves.other_start, moves.other
    row = np.zeros(pool.shape[1], dtype=np.int64)
    turn = np.zeros(move_nodes.shape[1], dtype=np.int64)
    levels = np.zeros(move_nodes.shape[1], dtype=np.int64)
    holders = counts.shape[0]
    for visit in range(sweeps * move_width.size):
        m = visit % move_width.size
        width = move_width[m]
        for _ in range(times[m] * holders):
            h = int(uniform(rng) * holders) if holders > 1 else 0
            if width == 0 and not movable[h]:
                continue
            # --- propose
            which = int(uniform(rng) * 2 * pool.shape[0])
            for e in range(first_other[m], first_other[m + 1]):
                j = others[e]
                row[j] = pool[which, j] if which < pool.shape[0] else int(uniform(rng) * arity[j])
            for j in range(width):
                node = move_nodes[m, j]
                shift = 1 + int(uniform(rng) * (arity[node] - 1))
                levels[j] = (row[node] + shift) % arity[node]
            size = math.exp(log_scale[m] + normal(rng)) * -math.log(uniform(rng))
            step = 1 + np.int64(min(size, MAX_STEP))
            if uniform(rng) < 0.5:
                step = -step
            # --- how the log target would change
            change = 0.0
            possible = True
            for entry in range(first_region[m], first_region[m + 1]):
                k = move_region[entry]
                base = 0
                for j in range(region_width[k]):
                    base += row[region_nodes[k, j]] * region_stride[k, j]
                for j in range(width):
                    turn[j] = (levels[j] - row[move_nodes[m, j]]) * move_stride[entry, j]
                for corner in range(1 << width):
                    local, sign = _corner(base, turn, width, corner)
                    cell, by = start[k] + local, sign * step
                    count, total = counts[h, cell], totals[cell]
                    if count + by < 0:
                        possible = False
                        break
                    change += slopes[cell] * by
                    if not cancels[k]:
                        if kappa[k] != 0.0:
                            change += kappa[k] * log_gamma_ratio(count + 1.0, by)
                        if is_family[k]:
                            change += log_gamma_ratio(alpha[cell] + total, by)
                    for e in range(den_start[k], den_start[k + 1]):
                        concentration = den_alpha[den_at[e] + local]
                        change -= den_times[e] * log_gamma_ratio(concentration + total, by)
                    if precision[h, cell] > 0.0:
                        away = value[h, cell] - count
                        change -= precision[h, cell] * (abs(away - by) - abs(away))
                if not possible:
                    break
                for f in range(form_start[k], form_start[k + 1]):
                    if form_precision[h, f] > 0.0:
                        by = step * _form_weight(form_weight[form_at[f] :], base, turn, width)
                        away = form_value[h, f] - forms[h, f]
                        change -= form_precision[h, f] * (abs(away - by) - abs(away))
            accepted = possible and math.log(uniform(rng)) < change
            # --- apply
            if accepted:
                for entry in range(first_region[m], first_region[m + 1]):
                    k = move_region[entry]
                    base = 0
                    for j in range(region_width[k]):
                        base += row[region_nodes[k, j]] * region_stride[k, j]
                    for j in range(width):
                        turn[j] = (levels[j] - row[move_nodes[m, j]]) * move_stride[entry, j]
                    for corner in range(1 << width):
                        local, sign = _corner(base, turn, width, corner)
                        counts[h, start[k] + local] += sign * step
                        totals[start[k] + local] += sign * step
                    for f in range(form_start[k], form_start[k + 1]):
                        forms[h, f] += step * _form_weight(
                            form_weight[form_at[f] :], base, turn, width
                        )
            tried[m] += 1
            taken[m] += 1 if accepted else 0
            if gain > 0.0:
                log_scale[m] = max(-2.0, log_scale[m] + gain * ((1.0 if accepted else 0.0) - 0.35))


@compiled
def draw_tables(rng, counts, alpha, row_start, out):  # type: ignore[no-untyped-def]
    """Tables given counts: every row is Dirichlet(alpha + counts)."""
    cells = out.size
    first = 0
    while first < cells:
        last = first
        total = 0.0
        while last < cells and row_start[last] == first:
            out[last] = gamma(rng, alpha[last] + counts[last])
            total += out[last]
            last += 1
        for cell in range(first, last):
            out[cell] = out[cell] / total if total > 0.0 else 1.0 / (last - first)
        first = last


@compiled
def simulate(rng, theta, start, width, nodes, stride, arity, out):  # type: ignore[no-untyped-def]
    """Rows from a network, nodes in topological order; the tables are cells of families."""
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            cell = start[i]
            for j in range(width[i] - 1):
                cell += out[r, nodes[i, j]] * stride[i, j]
            u = uniform(rng)
            level = 0
            while level < arity[i] - 1:
                u -= theta[cell + level]
                if u < 0.0:
                    break
                level += 1
            out[r, i] = level


@compiled
def tabulate(rows, weights, start, width, nodes, stride, out):  # type: ignore[no-untyped-def]
    """Add weighted rows to the cells of every region."""
    for k in range(width.size):
        for r in range(rows.shape[0]):
            cell = start[k]
            for j in range(width[k]):
                cell += rows[r, nodes[k, j]] * stride[k, j]
            out[cell] += weights[r]
