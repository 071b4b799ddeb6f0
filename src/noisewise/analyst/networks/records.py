"""The joint posterior of all tables, by latent rows: exact for every network, for small n.

Data augmentation (Ju, Awan, Gong & Rao 2022, "Data augmentation MCMC for Bayesian
inference from privatized data"): latent rows given the tables, tables given the rows' counts. The
cost of a sweep is n times the number of nodes, so it is for networks whose families form loops
(where `counts` needs an approximation) and n of up to a few thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from noisewise.analyst.chains import Report
from noisewise.analyst.networks.counts_kernels import draw_tables, simulate, tabulate
from noisewise.analyst.networks.layout import Floats, Layout
from noisewise.analyst.networks.observed import Observed
from noisewise.analyst.networks.plugin import normalised
from noisewise.analyst.networks.problem import (
    Problem,
    Sampled,
    forms_of,
    make_problem,
    sample_chains,
)
from noisewise.analyst.networks.records_kernels import sweep_rows
from noisewise.analyst.random_numbers import KeyArray, seed_stream


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
    key: KeyArray,
    theta: Floats,
    given: Floats,
    report: Report,
) -> float:
    """Fill in one chain's draws; see `problem.sample_chains`."""
    layout, regions = problem.layout, problem.regions
    rng = np.zeros(4, dtype=np.uint64)
    seed_stream(rng, key, 0)
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
