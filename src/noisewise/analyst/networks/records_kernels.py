"""Compiled kernel of the sampler of latent rows (data augmentation)."""

from __future__ import annotations

import math

import numpy as np

from noisewise.analyst.networks.compiled import compiled, inlined
from noisewise.analyst.random_numbers import uniform


@inlined
def _noise_change(value, precision, count, by):  # type: ignore[no-untyped-def]
    away = value - count
    return -precision * (abs(away - by) - abs(away))


@compiled
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
                    u = uniform(rng)
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
                picked = int(uniform(rng) * d)
                shift = 1 + int(uniform(rng) * (arity[picked] - 1))
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
            if not math.log(uniform(rng)) < log_ratio:
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
