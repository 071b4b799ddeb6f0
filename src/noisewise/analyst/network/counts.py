"""The joint posterior of all tables, by moves of counts: any n, all families in agreement.

The state is the true counts of every family, which share margins, and the concentrations that are
learned (see `prior`); tables are integrated out and drawn given both. Its cost doesn't grow with n.
Where the families have a junction tree it is exact; with loops one factor is approximated, see
`entropy`.

Target (see `entropy` for h): the tables θ are integrated out, which leaves

    h(C) · Π_nodes Π_rows [Π_x Γ(α_x + C_x) / Γ(Σα + M)] · Π exp(-|released - counts| / scale),

with -(released - counts)²/2σ² in the exponent where the noise is Gaussian.

A move is a contrast that keeps all margins in agreement (see `regions`). It is proposed from a law
that does not look at the state (a row from a fixed pool or at random, levels, a signed step whose
scale is fixed after warm-up), and the same step back is as likely, so it is accepted with the ratio
of targets alone.

State: `regions.State`. Kernel: `sweep`. Top-level call: `regions.sample` with `chain`.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise._compiled import compiled_in_order, compiled_inline
from noisewise.analyst.chains import Report
from noisewise.analyst.network.prior import Learning, log_gamma_ratio
from noisewise.analyst.network.regions import Kept, Problem, Regions, start

POOL, FEWEST = 4096, 64  # rows that moves are proposed at
WARMUP_BLOCKS = 40  # in each of which steps adapt more slowly than before
REFRESH = 5  # sweeps between two looks at the prior and the network's own expectation


def chain(
    problem: Problem, warmup: int, thin: int, rng: np.random.Generator, kept: Kept, report: Report
) -> float:
    """Fill in one chain's draws; see `regions.Chain`."""
    layout, moves = problem.layout, problem.moves
    learning = Learning(layout, problem.prior)
    regions = problem.own_regions()
    state, rows = start(problem, rng)
    pool = np.ascontiguousarray(rows[-1][:POOL])
    if len(pool) < FEWEST:  # few rows, or none: levels at random serve as well
        pool = rng.integers(layout.arity, size=(FEWEST, len(layout.nodes)))
    slopes = np.zeros(int(regions.start[-1]))
    movable = np.array([holder.n is None for holder in problem.holders])
    widest = _noise_scale(regions)
    log_scale = np.full(moves.width.size, max(0.0, widest - math.log(4)))
    tried = np.zeros(moves.width.size, dtype=np.int64)
    taken = np.zeros_like(tried)
    family = slice(layout.cells)

    looking = problem.slopes.needed or bool(learning.nodes.size)
    left = 0  # sweeps until the next look

    def advance(sweeps: int, gain: float) -> None:
        nonlocal left
        while sweeps > 0:
            if left == 0:
                learning.update(rng, state.totals[family])
                problem.set_prior(regions, learning)
                if problem.slopes.needed:
                    smoothed = state.totals[family] + learning.alpha
                    problem.slopes.fill(slopes, problem.names, regions.start, smoothed)
                left = REFRESH
            now = min(left, sweeps) if looking else sweeps
            sweep(
                rng, regions, moves, slopes, pool, movable, *state, log_scale, widest, tried,
                taken, gain, now,
            )  # fmt: skip
            sweeps -= now
            left = left - now if looking else left

    for block in range(WARMUP_BLOCKS):
        first, last = (warmup * b // WARMUP_BLOCKS for b in (block, block + 1))
        advance(last - first, 0.3 / (1 + 20 * block / WARMUP_BLOCKS))
        report(last)
    tried[:] = taken[:] = 0
    for k in range(len(kept.given)):
        advance(thin, 0.0)
        kept.keep(k, learning, state.totals[family])
        if k % 16 == 15:
            report(warmup + (k + 1) * thin)
    return float(taken.sum() / np.maximum(tried.sum(), 1))


def _noise_scale(regions: Regions) -> float:
    """Twice the scale of the noise, in logs."""
    largest = max(
        float(regions.precision.max(initial=0.0)),
        float(regions.form_precision.max(initial=0.0)),
        math.sqrt(regions.curvature.max(initial=0.0)),
    )
    return float(np.log(max(1.0, 2 / largest)))


# --- compiled kernels ------------------------------------------------------------------------


MAX_STEP = 1e15


@compiled_inline
def _corner(base, turn, width, corner):  # type: ignore[no-untyped-def]
    """The cell of a corner, and its sign."""
    cell, sign = base, 1
    for j in range(width):
        if (corner >> j) & 1:
            cell += turn[j]
            sign = -sign
    return cell, sign


@compiled_inline
def _form_weight(weights, base, turn, width):  # type: ignore[no-untyped-def]
    """By how much a measured form changes for a step of one."""
    weight = 0
    for corner in range(1 << width):
        cell, sign = _corner(base, turn, width, corner)
        weight += sign * weights[cell]
    return weight


@compiled_in_order
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
    widest,
    tried,
    taken,
    gain,
    sweeps,
):
    """Try every contrast as often as `moves.times` says, `sweeps` times over.

    `pool`, shape (rows, nodes), are levels that are worth trying; every other move takes levels at
    random. `gain` > 0 adapts the steps' scales towards one acceptance in three. One contrast has
    rows of all sizes, and rare ones would make the steps of all small: half of the steps are
    therefore of any size up to `widest` (in logs). `movable` says of every holder whether its
    number of rows may change.
    """
    # Arrays are taken out of their tuples once: doing it in the loops costs more than the loops.
    arity, start, kappa, alpha = regions.arity, regions.start, regions.kappa, regions.alpha
    is_family, cancels, precision = regions.is_family, regions.cancels, regions.precision
    curvature = regions.curvature
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
            h = int(rng.random() * holders) if holders > 1 else 0
            if width == 0 and not movable[h]:
                continue
            # --- propose
            which = int(rng.random() * 2 * pool.shape[0])
            for e in range(first_other[m], first_other[m + 1]):
                j = others[e]
                row[j] = pool[which, j] if which < pool.shape[0] else int(rng.random() * arity[j])
            for j in range(width):
                node = move_nodes[m, j]
                shift = 1 + int(rng.random() * (arity[node] - 1))
                levels[j] = (row[node] + shift) % arity[node]
            adapted = rng.random() < 0.5
            spread = log_scale[m] + rng.standard_normal() if adapted else rng.random() * widest
            size = math.exp(spread) * rng.standard_exponential()
            step = 1 + np.int64(min(size, MAX_STEP))
            if rng.random() < 0.5:
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
                    elif curvature[h, cell] > 0.0:
                        away = value[h, cell] - count
                        change -= curvature[h, cell] * by * (0.5 * by - away)
                if not possible:
                    break
                for f in range(form_start[k], form_start[k + 1]):
                    if form_precision[h, f] > 0.0:
                        by = step * _form_weight(form_weight[form_at[f] :], base, turn, width)
                        away = form_value[h, f] - forms[h, f]
                        change -= form_precision[h, f] * (abs(away - by) - abs(away))
            accepted = possible and -rng.standard_exponential() < change
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
            if adapted and gain > 0.0:
                log_scale[m] = max(-2.0, log_scale[m] + gain * ((1.0 if accepted else 0.0) - 0.35))
