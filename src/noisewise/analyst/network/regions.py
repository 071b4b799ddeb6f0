"""Everything that the samplers of all tables share: a network as flat arrays, starts, chains.

A region is a table over a set of nodes that appears in the posterior: every family, every set of
parents, every table with an exponent in the entropy, every table on which something was measured.
All of them are margins of one latent table of n rows. A move is a contrast: pick a set G of nodes,
two levels for each of them, and levels r for the others; add ±delta, with the sign of the parity,
to the 2^|G| corners in every region that contains all of G (a region without one of them doesn't
change). Such a step is a difference of rows, so margins that regions share go on agreeing; with |G|
= 1 and delta = 1 it is one row changing one value, so every data set can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._compiled import compiled_in_order
from noisewise.analyst.chains import Report, generators, run_chains
from noisewise.analyst.network.entropy import Entropy, Names, Slopes
from noisewise.analyst.network.layout import Floats, Integers, Layout, normalised, strides_of
from noisewise.analyst.network.observed import Observed
from noisewise.analyst.network.prior import Concentrations, Learning, draw_tables
from noisewise.analyst.network.queries import synthetic_rows

MAX_CONTRAST = 4  # nodes in a contrast; larger ones are reached by several
TRIES = 1.0  # of a contrast in one sweep, for every cell that it may move by itself
SINGLES = 3.0  # times as many for single nodes, which move the margins that families share


class Regions(NamedTuple):
    """Tables, exponents, prior and measurements; cells of all regions are numbered through.

    `width` is the number of nodes of a region, `nodes` and `stride` its axes, `start` its first
    cell (with the end of the last). `kappa` is its exponent; `alpha` per cell the concentration,
    where `is_family`; denominators are listed from `den_start`, each with a multiplicity and the
    place of its cells in `den_alpha`. `forms_*` hold the measurements that aren't single cells.
    """

    arity: Integers
    width: Integers
    nodes: NDArray[np.int64]
    stride: NDArray[np.int64]
    start: Integers
    kappa: Floats
    is_family: NDArray[np.bool_]
    cancels: NDArray[np.bool_]
    alpha: Floats
    den_start: Integers
    den_times: Floats
    den_at: Integers
    den_alpha: Floats
    value: NDArray[np.int64]  # (holders, cells)
    precision: Floats  # (holders, cells): 1 / scale of Laplace noise, 0 where there is none
    curvature: Floats  # (holders, cells): 1 / variance of Gaussian noise, 0 where there is none
    form_start: Integers  # (regions + 1,)
    form_at: Integers  # where in `form_weight` the form's coefficients begin
    form_weight: Integers
    form_value: NDArray[np.int64]  # (holders, forms)
    form_precision: Floats  # (holders, forms)


class Moves(NamedTuple):
    """The contrasts: their nodes, the regions that they change, how often they are tried."""

    width: Integers
    nodes: NDArray[np.int64]
    times: Integers
    region_start: Integers
    region: Integers
    stride: NDArray[np.int64]  # (listed regions, MAX_CONTRAST): of the contrast's nodes
    other_start: Integers
    other: Integers  # nodes whose level matters


def make_regions(
    layout: Layout, entropy: Entropy, holders: Sequence[Observed], prior: Concentrations
) -> tuple[Regions, list[Names], Integers]:
    """Regions for holders' measurements and a prior; of every node, its place in `den_at` or -1."""
    alpha, d = prior.alpha, len(layout.nodes)
    private = any(holder.n is None for holder in holders)
    wanted = [*layout.families, *layout.parents, *entropy.kappa]  # families come first, in order
    wanted += [m.names for holder in holders for m in holder.measurements]
    names = [region for region in dict.fromkeys(wanted) if region or private]
    den_of = np.full(d, -1, dtype=np.int64)
    sizes = [layout.size(region) for region in names]
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    cells, most = int(start[-1]), max(1, *(len(region) for region in names))
    nodes = np.zeros((len(names), most), dtype=np.int64)
    stride = np.zeros_like(nodes)
    den_start, at = [0], list[int]()
    times, den_alpha = list[float](), list[Floats]()
    filled = 0
    for number, region in enumerate(names):
        nodes[number, : len(region)] = region
        stride[number, : len(region)] = strides_of(layout.shape(region))
        for row, nodes_of in _denominators(layout, region, prior):
            den_of[nodes_of] = len(times)
            times.append(float(len(nodes_of)))
            at.append(filled)
            den_alpha.append(row)
            filled += row.size
        den_start.append(len(times))
    weights = np.zeros(cells)
    weights[: layout.cells] = alpha
    kappa = np.array([float(entropy.kappa.get(region, 0)) for region in names])
    cancels = (kappa == -1) & (np.arange(len(names)) < d) & (len(holders) == 1)
    for r in np.flatnonzero(cancels):
        cancels[r] = not prior.learned[r] and bool((alpha[layout.part(int(r))] == 1.0).all())
    value = np.zeros((len(holders), cells), dtype=np.int64)
    precision = np.zeros((len(holders), cells))
    curvature = np.zeros((len(holders), cells))
    for h, holder in enumerate(holders):
        for measurement in holder.measurements:
            if measurement.matrix is None:
                k = names.index(measurement.names)
                here = slice(start[k], start[k + 1])
                value[h, here] = measurement.values
                if measurement.gaussian:
                    curvature[h, here] = 1 / measurement.variance
                else:
                    precision[h, here] = 1 / measurement.scale
    regions = Regions(
        layout.arity,
        _integers([len(region) for region in names]),
        nodes,
        stride,
        start,
        kappa,
        np.arange(len(names)) < d,
        cancels,
        weights,
        _integers(den_start),
        np.array(times, dtype=np.float64),
        _integers(at),
        np.concatenate(den_alpha) if den_alpha else np.zeros(0),
        value,
        precision,
        curvature,
        *_forms(names, holders),
    )
    return regions, names, den_of


def _integers(values: Sequence[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def _denominators(
    layout: Layout, region: Names, prior: Concentrations
) -> list[tuple[Floats, list[int]]]:
    """The sums of concentrations of every node whose parents are this region.

    Equal ones once, with their nodes; one that is learned stands alone.
    """
    found: list[tuple[Floats, list[int]]] = []
    for i, parents in enumerate(layout.parents):
        if parents != region:
            continue
        sums = prior.alpha[layout.part(i)].reshape(-1, int(layout.arity[i])).sum(axis=1)
        same = [
            nodes
            for other, nodes in found
            if not prior.learned[[i, *nodes]].any() and np.array_equal(other, sums)
        ]
        if same:
            same[0].append(i)
        else:
            found.append((sums, [i]))
    return found


def _forms(
    names: list[Names], holders: Sequence[Observed]
) -> tuple[Integers, Integers, Integers, NDArray[np.int64], Floats]:
    """Measured linear forms, region by region; holders may have measured different ones."""
    starts, at, weights = [0], [0], [np.zeros(0, dtype=np.int64)]
    columns: list[tuple[int, int, float]] = []
    for region in names:
        for h, holder in enumerate(holders):
            for m in holder.measurements:
                if m.names != region or m.matrix is None:
                    continue
                for coefficients, value, scale in zip(m.matrix, m.values, m.scale, strict=True):
                    weights.append(np.asarray(coefficients, dtype=np.int64))
                    at.append(at[-1] + weights[-1].size)
                    columns.append((h, int(value), float(scale)))
        starts.append(len(columns))
    values = np.zeros((len(holders), len(columns)), dtype=np.int64)
    precision = np.zeros((len(holders), len(columns)))
    for k, (h, value, scale) in enumerate(columns):
        values[h, k] = value
        precision[h, k] = 1 / scale
    return _integers(starts), _integers(at[:-1]), np.concatenate(weights), values, precision


def make_moves(layout: Layout, names: list[Names]) -> Moves:
    """Every contrast within a family, tried more often in larger tables."""
    tries: dict[Names, float] = {(): 4.0} if () in names else {}  # where some n is private
    for family in layout.families:
        share = TRIES * layout.size(family) / 2 ** (len(family) - 1)
        for size in range(1, min(MAX_CONTRAST, len(family)) + 1):
            for contrast in combinations(family, size):
                wanted = max(2.0, share * (SINGLES if size == 1 else 1.0))
                tries[contrast] = max(tries.get(contrast, 0.0), wanted)
    nodes = np.zeros((len(tries), MAX_CONTRAST), dtype=np.int64)
    region_start, region, strides = [0], [], []
    other_start, other = [0], []
    for k, contrast in enumerate(tries):
        nodes[k, : len(contrast)] = contrast
        touched: set[int] = set()
        for number, members in enumerate(names):
            if set(members).issuperset(contrast):
                axes = strides_of(layout.shape(members))
                row = np.zeros(MAX_CONTRAST, dtype=np.int64)
                row[: len(contrast)] = [axes[members.index(j)] for j in contrast]
                region.append(number)
                strides.append(row)
                touched.update(members)
        region_start.append(len(region))
        other.extend(sorted(touched))
        other_start.append(len(other))
    return Moves(
        _integers([len(contrast) for contrast in tries]),
        nodes,
        _integers([round(often) for often in tries.values()]),
        _integers(region_start),
        _integers(region),
        np.array(strides, dtype=np.int64).reshape(-1, MAX_CONTRAST),
        _integers(other_start),
        _integers(other),
    )


# --- what the samplers of all tables together share ------------------------------------------


MOST_START_ROWS = 200_000
PRIORS = 100  # states whose moments a chain adds up


@dataclass(frozen=True)
class Problem:
    """What all chains share."""

    layout: Layout
    slopes: Slopes
    regions: Regions
    names: list[tuple[int, ...]]
    moves: Moves
    holders: tuple[Observed, ...]
    prior: Concentrations
    den_of: Integers  # (nodes,): where each node's sum of concentrations is in `regions.den_at`
    rough: Floats  # clamped noisy counts, for the start only

    def own_regions(self) -> Regions:
        """A chain's own: what is learned of the prior changes in it."""
        regions = self.regions
        return regions._replace(alpha=regions.alpha.copy(), den_alpha=regions.den_alpha.copy())

    def set_prior(self, regions: Regions, learning: Learning) -> None:
        """Write what was learned into a chain's regions."""
        regions.alpha[: self.layout.cells] = learning.alpha
        for i in learning.nodes[self.den_of[learning.nodes] >= 0]:
            part, r = self.layout.part(int(i)), int(self.layout.arity[i])
            at = int(regions.den_at[self.den_of[i]])
            totals = learning.alpha[part].reshape(-1, r).sum(axis=1)
            regions.den_alpha[at : at + totals.size] = totals


def make_problem(
    layout: Layout, holders: Sequence[Observed], prior: Concentrations, rough: Floats
) -> Problem:
    """Arrays for these holders and this prior; rough counts have shape (layout.cells,)."""
    slopes = Slopes(layout)
    regions, names, den_of = make_regions(layout, slopes.entropy, holders, prior)
    moves = make_moves(layout, names)
    return Problem(layout, slopes, regions, names, moves, tuple(holders), prior, den_of, rough)


class State(NamedTuple):
    """Counts of one chain, changed in place: by holder, their sum, and the measured forms."""

    counts: NDArray[np.int64]  # (holders, cells)
    totals: NDArray[np.int64]  # (cells,)
    forms: NDArray[np.int64]  # (holders, forms)


def start(problem: Problem, rng: np.random.Generator) -> tuple[State, list[Integers]]:
    """Counts of rows simulated from the plug-in posterior, which agree with each other; the rows.

    Up to 200,000 rows a holder are drawn; where there are more, each stands for several.
    """
    layout, regions = problem.layout, problem.regions
    tables = draw_tables(rng, problem.rough + problem.prior.alpha + 0.5, layout)[None]
    counts = np.zeros((len(problem.holders), int(regions.start[-1])), dtype=np.int64)
    places = (regions.start, regions.width, regions.nodes, regions.stride)
    drawn = []
    for h, holder in enumerate(problem.holders):
        n = _rough_n(holder) if holder.n is None else holder.n
        rows = np.empty((min(n, MOST_START_ROWS), len(layout.nodes)), dtype=np.int64)
        weights = np.full(len(rows), n // max(len(rows), 1), dtype=np.int64)
        weights[: n - int(weights.sum())] += 1
        synthetic_rows(rng, tables, *places, regions.arity, rows)
        tabulate(rows, weights, *places, counts[h])
        drawn.append(rows)
    return State(counts, counts.sum(axis=0), _forms_of(regions, counts)), drawn


def _rough_n(holder: Observed) -> int:
    """A private number of rows, roughly: from the forms, or the median of the tables' sums."""
    for m in holder.measurements:
        if m.names == ():
            return max(1, int(m.values[0]))
    sums = [int(m.values.sum()) for m in holder.measurements if m.matrix is None]
    return max(1, int(np.median(sums)))


def _forms_of(regions: Regions, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The measured forms of every holder's counts, shape (holders, forms)."""
    forms = np.zeros_like(regions.form_value)
    for k in range(regions.width.size):
        cells = slice(int(regions.start[k]), int(regions.start[k + 1]))
        for f in range(int(regions.form_start[k]), int(regions.form_start[k + 1])):
            at = int(regions.form_at[f])
            weight = regions.form_weight[at : at + cells.stop - cells.start]
            forms[:, f] = counts[:, cells] @ weight
    return forms


class Kept(NamedTuple):
    """What a chain keeps, to be filled in."""

    # (draws, cells), concentrations of the tables given the counts: the prior's plus the counts
    given: Floats
    prior: Floats  # (3, cells), `Learning.moments`, averaged over `PRIORS` states

    def keep(self, k: int, learning: Learning, counts: NDArray[np.int64]) -> None:
        """Draw k."""
        self.given[k] = learning.alpha + counts
        many = min(len(self.given), PRIORS)
        if k * many // len(self.given) < (k + 1) * many // len(self.given):
            self.prior[:] += learning.moments(counts) / many


class Sampled(NamedTuple):
    """Draws of all chains."""

    theta: Floats  # (chains, draws, cells)
    given_counts: Floats  # of the same shape: E[theta | counts] at each draw
    prior: Floats  # (3, cells), `Learning.moments`, averaged
    acceptance: float


# Of a problem, sweeps of warm-up and between two draws, a generator and what to fill in. Now and
# then it reports how many sweeps are done. It returns its acceptance rate.
Chain = Callable[[Problem, int, int, np.random.Generator, Kept, Report], float]


def sample(
    chain: Chain,
    problem: Problem,
    *,
    chains: int,
    draws: int,
    warmup: int,
    thin: int,
    seed: int | None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Sampled:
    """Draws of all tables from their joint posterior, by `counts.chain` or `records.chain`.

    Warm-up and thinning are in sweeps.
    """
    rngs = generators(seed, chains)
    cells = problem.layout.cells
    given = np.empty((chains, draws, cells))
    prior = np.zeros((chains, 3, cells))
    rates = run_chains(
        lambda c, report: chain(problem, warmup, thin, rngs[c], Kept(given[c], prior[c]), report),
        chains=chains,
        length=warmup + draws * thin,
        progress=progress,
    )
    drawn = [draw_tables(rng, g, problem.layout) for rng, g in zip(rngs, given, strict=True)]
    means = normalised(given, problem.layout)
    return Sampled(np.stack(drawn), means, prior.mean(axis=0), float(np.mean(rates)))


@compiled_in_order
def tabulate(rows, weights, start, width, nodes, stride, out):  # type: ignore[no-untyped-def]
    """Add weighted rows to the cells of every region."""
    for k in range(width.size):
        for r in range(rows.shape[0]):
            cell = start[k]
            for j in range(width[k]):
                cell += rows[r, nodes[k, j]] * stride[k, j]
            out[cell] += weights[r]
