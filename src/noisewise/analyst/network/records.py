"""The joint posterior of all tables, by latent rows: exact for every network, for small n.

Data augmentation (Ju, Awan, Gong & Rao 2022, "Data augmentation MCMC for Bayesian
inference from privatized data"): latent rows given the tables, tables given the rows' counts (and
concentrations given the counts, where they are learned). The
cost of a sweep is n times the number of nodes, so it is for networks whose families form loops
(where `counts` needs an approximation) and n of up to a few thousand.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise._compiled import compiled_in_order, compiled_inline
from noisewise.analyst.chains import Report
from noisewise.analyst.network.prior import Learning, draw_tables
from noisewise.analyst.network.queries import draw_level
from noisewise.analyst.network.regions import Kept, Problem, start


def chain(
    problem: Problem, warmup: int, thin: int, rng: np.random.Generator, kept: Kept, report: Report
) -> float:
    """Fill in one chain's draws; see `regions.Chain`. Every n must be public."""
    layout = problem.layout
    learning = Learning(layout, problem.prior)
    (counts, _, forms), latent = start(problem, rng)
    accepted = np.zeros(2, dtype=np.int64)
    sweeps = warmup + len(kept.given) * thin
    for t in range(sweeps):
        totals = counts[:, : layout.cells].sum(axis=0)
        k, left = divmod(t - warmup, thin)
        if t >= warmup and left == 0:
            kept.keep(k, learning, totals)
        learning.update(rng, totals)
        tables = draw_tables(rng, learning.alpha + totals, layout)
        np.maximum(tables, 1e-300, out=tables)
        for h, rows in enumerate(latent):
            sweep_rows(rng, problem.regions, tables, rows, counts, forms, h, accepted)
        if t % 64 == 0:
            report(t + 1)
    return float(accepted[0] / (sweeps * sum(len(rows) for rows in latent)))


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
                    new[i] = draw_level(rng, theta, cell, arity[i])
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
