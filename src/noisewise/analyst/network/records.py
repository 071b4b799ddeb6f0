"""The joint posterior of all tables, by latent rows: exact for every network, for small n.

Data augmentation (Ju, Awan, Gong & Rao 2022, "Data augmentation MCMC for Bayesian
inference from privatized data"): latent rows given the tables, tables given the rows' counts. The
cost of a sweep is n times the number of nodes, so it is for networks whose families form loops
(where `counts` needs an approximation) and n of up to a few thousand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from noisewise._compiled import compiled_in_order, compiled_inline
from noisewise.analyst.chains import Report
from noisewise.analyst.network.counts import draw_tables, simulate, tabulate
from noisewise.analyst.network.layout import Floats, Layout
from noisewise.analyst.network.observed import Observed
from noisewise.analyst.network.plugin import normalised
from noisewise.analyst.network.regions import (
    Problem,
    Sampled,
    forms_of,
    make_problem,
    sample_chains,
)


def sample(
    layout: Layout,
    holders: Sequence[Observed],
    alpha: Floats,
    rough: Floats,
    *,
    chains: int,
    draws: int,
    warmup: int,
    thin: int,
    seed: int | None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Sampled:
    """Draws of all tables; the arguments are those of `counts.sample`. Every n must be public."""
    theta, given, acceptance = sample_chains(
        partial(_chain, make_problem(layout, holders, alpha), rough, warmup, thin), layout.cells,
        chains=chains, draws=draws, sweeps=warmup + draws * thin, seed=seed, progress=progress,
    )  # fmt: skip
    return Sampled(theta, given, acceptance, True, ())


def _chain(
    problem: Problem,
    rough: Floats,
    warmup: int,
    thin: int,
    rng: np.random.Generator,
    theta: Floats,
    given: Floats,
    report: Report,
) -> float:
    """Fill in one chain's draws; see `regions.sample_chains`."""
    layout, regions = problem.layout, problem.regions
    tables = np.empty(layout.cells)
    draw_tables(rng, rough, problem.alpha + 0.5, layout.row_start, tables)
    latent = []
    counts = np.zeros((len(problem.holders), int(regions.start[-1])), dtype=np.int64)
    places = (regions.start, regions.width, regions.nodes, regions.stride)
    for h, holder in enumerate(problem.holders):
        assert holder.n is not None
        rows = np.empty((holder.n, len(layout.nodes)), dtype=np.int64)
        simulate(rng, tables, *places, regions.arity, rows)
        tabulate(rows, np.ones(holder.n, dtype=np.int64), *places, counts[h])
        latent.append(rows)
    forms = forms_of(regions, counts)
    accepted = np.zeros(2, dtype=np.int64)
    for t in range(warmup + theta.shape[0] * thin):
        totals = counts[:, : layout.cells].sum(axis=0).astype(np.float64)
        draw_tables(rng, totals, problem.alpha, layout.row_start, tables)
        k, left = divmod(t - warmup, thin)
        if t >= warmup and left == 0:
            theta[k] = tables
            given[k] = totals
        np.maximum(tables, 1e-300, out=tables)
        for h, rows in enumerate(latent):
            sweep_rows(rng, regions, tables, rows, counts, forms, h, accepted)
        if t % 64 == 0:
            report(t + 1)
    given[:] = normalised(given + problem.alpha, layout)
    n = sum(len(rows) for rows in latent)
    return float(accepted[0] / (n * (warmup + theta.shape[0] * thin)))


# --- the compiled kernel ---------------------------------------------------------------------


@compiled_inline
def _noise_change(value, precision, count, by):  # type: ignore[no-untyped-def]
    away = value - count
    return -precision * (abs(away - by) - abs(away))


@compiled_in_order
def sweep_rows(rng, regions, theta, rows, counts, forms, h, accepted):  # type: ignore[no-untyped-def]
    """Update every latent row of holder h twice: as a whole, then one node of it.

    A whole row is proposed from the network and accepted with the ratio of noise densities (Ju et
    al. 2022); under ε-differential privacy that is at least exp(-ε). One node's level is proposed
    uniformly and accepted with the ratio of network times noise. `counts` and `forms` are kept up
    to date.
    """
    arity, start, width = regions.arity, regions.start, regions.width
    nodes, stride, is_family = regions.nodes, regions.stride, regions.is_family
    value, precision = regions.value, regions.precision
    form_start, form_at, form_weight = regions.form_start, regions.form_at, regions.form_weight
    form_value, form_precision = regions.form_value, regions.form_precision
    d = rows.shape[1]
    new = np.zeros(d, dtype=np.int64)
    old_cell = np.zeros(width.size, dtype=np.int64)
    new_cell = np.zeros(width.size, dtype=np.int64)
    for r in range(rows.shape[0]):
        for turn in range(2):
            # --- propose
            log_ratio = 0.0
            picked = -1
            if turn == 0:
                for i in range(d):
                    cell = start[i]
                    for j in range(width[i] - 1):
                        cell += new[nodes[i, j]] * stride[i, j]
                    u = rng.random()
                    level = 0
                    while level < arity[i] - 1:
                        u -= theta[cell + level]
                        if u < 0.0:
                            break
                        level += 1
                    new[i] = level
            else:
                for i in range(d):
                    new[i] = rows[r, i]
                picked = int(rng.random() * d)
                shift = 1 + int(rng.random() * (arity[picked] - 1))
                new[picked] = (new[picked] + shift) % arity[picked]
            # --- how the log target would change
            for k in range(width.size):
                before = after = start[k]
                for j in range(width[k]):
                    before += rows[r, nodes[k, j]] * stride[k, j]
                    after += new[nodes[k, j]] * stride[k, j]
                old_cell[k], new_cell[k] = before, after
                if before == after:
                    continue
                log_ratio += _noise_change(
                    value[h, before], precision[h, before], counts[h, before], -1
                )
                log_ratio += _noise_change(
                    value[h, after], precision[h, after], counts[h, after], 1
                )
                if turn == 1 and is_family[k]:
                    log_ratio += math.log(theta[after]) - math.log(theta[before])
                for f in range(form_start[k], form_start[k + 1]):
                    at = form_at[f] - start[k]
                    by = form_weight[at + after] - form_weight[at + before]
                    log_ratio += _noise_change(
                        form_value[h, f], form_precision[h, f], forms[h, f], by
                    )
            if not -rng.standard_exponential() < log_ratio:
                continue
            # --- apply
            accepted[turn] += 1
            for k in range(width.size):
                before, after = old_cell[k], new_cell[k]
                counts[h, before] -= 1
                counts[h, after] += 1
                for f in range(form_start[k], form_start[k + 1]):
                    at = form_at[f] - start[k]
                    forms[h, f] += form_weight[at + after] - form_weight[at + before]
            for i in range(d):
                rows[r, i] = new[i]
