"""The challenge of a network request: noisy counts, noisy parities, or drawn tables.

**The pair.** What a record adds to what is measured is a vector: counts of cells, parity counts, or
for drawn tables the first halves minus the second halves of all splits, in which the loss is
linear. Two records that differ in every column are at the stated sensitivity, or are climbed to,
one column at a time.

**The other rows.** Noise doesn't depend on them. Draws do: the fewer rows, the more one of them
says, but rows at the far end of a split make its other end rare, where the loss is largest. Of some
numbers of them that with the largest divergence is taken, which decides how many runs a test needs
(Stein's lemma).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.audit.challenge import (
    Batch,
    Challenge,
    DrawCheck,
    Neighbours,
    NoiseCheck,
    Steps,
    Table,
    check_draws,
    check_noise,
    noisy_sums,
    spread_out,
    sums_of,
    through_text,
    uniform_numbers,
)
from noisewise.audit.engine import likelihood_ratio
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import split_totals, splits, total_depth
from noisewise.core.kinds.network.release import (
    TABLE_BITS,
    learned_families,
    learned_sensitivities,
    one_is_enough,
    one_level_is_enough,
)
from noisewise.core.noise import Gaussian, Laplace
from noisewise.holder.networks.counts import FamilyCounts, LaplaceCounts
from noisewise.holder.networks.fourier import FourierParities
from noisewise.holder.networks.learned import LearnedGraph, counted
from noisewise.holder.networks.map import GridMap
from noisewise.holder.networks.posterior_sample import PosteriorSample
from noisewise.holder.requests.network import NetworkRequest

Record = tuple[int, ...]
_ONE = 1 << TABLE_BITS
_MOST_CLIMBED = 40  # nodes; with more, climbing takes minutes and gains little
_MOST_VALUES = 20_000
_SWEEPS = 4
_BINS = 1 << 12
_OTHER_ROWS = (0, 1, 3, 10)


def network_challenge(request: NetworkRequest) -> Challenge:
    """Two records that differ in every column, in tables of few rows."""
    records = _Records(request)
    first, second = records.worst()
    if isinstance(request.planned, PosteriorSample | GridMap):
        return _drawn(request, records, first, second)
    if isinstance(request.planned, LearnedGraph):
        return _learned(request, records, first, second)
    return _noisy(request, records, first, second)


# --- noisy counts and parities --------------------------------------------------------------------


def _noisy(request: NetworkRequest, records: _Records, u: Record, v: Record) -> Challenge:
    pair = records.pair(u, v, others=2)
    first, second = sums_of(request, pair.a), sums_of(request, pair.b)
    exact = (records.measured(first), records.measured(second))
    _refuse_too_many(len(exact[0]))
    planned = request.planned
    assert isinstance(planned, LaplaceCounts | FourierParities)
    laws = [Laplace(planned.scale)] * len(exact[0])

    def published(release: Any) -> list[float]:
        values = release.content.values
        by_node = values.values() if isinstance(values, Mapping) else (values,)
        return [float(value) for one in by_node for value in one]

    return noisy_sums(request, pair, (first, second), exact, laws, published, discrete=True)


# --- learned graphs -------------------------------------------------------------------------------


def _learned(request: NetworkRequest, records: _Records, u: Record, v: Record) -> Challenge:
    """Values of the levels, and one number more: what the other tables say by their likelihood.

    Which tables there are is chosen anew in every run, but two records that differ in every column
    change any tree's as much: runs with weaker noise are simulated with one tree.
    """
    pair = records.pair(u, v, others=2)
    first, second = sums_of(request, pair.a), sums_of(request, pair.b)
    planned, network = request.planned, request.network
    assert isinstance(planned, LearnedGraph)
    many = sum(
        1 if one_level_is_enough(network, node) else network.arity(node) for node in network.nodes
    )
    exact = (records.measured(first), records.measured(second))
    scales = planned.scales(planned.star, first.n)
    law = Gaussian if request.claim.delta else Laplace
    laws = [law(scales["levels"])] * many
    levels = likelihood_ratio(laws, exact[0][:many], exact[1][:many])

    def check(a: FloatArray, b: FloatArray) -> NoiseCheck:
        noise = np.concatenate([a[:, :many] - exact[0][:many], b[:, :many] - exact[1][:many]])
        if law is Laplace:
            noise = spread_out(noise, laws[0].scale, np.random.default_rng(0))
        return check_noise(noise, laws)

    def run(side: int) -> list[float]:
        release = through_text(request, (first, second)[side])
        found = [float(x) for values in release.content.levels.values.values() for x in values]
        ratio = 0.0
        for node in network.nodes:
            for names, noisy, _own, stated in release.measured_tables(node)[1:]:
                near, far = (
                    law(stated.scale).logpdf(noisy - counted(network, c, names)).sum()
                    for c in (first, second)
                )
                ratio += float(near - far)
        return [*found, ratio]

    def score(outputs: FloatArray) -> FloatArray:
        return np.asarray(np.round(levels(outputs[:, :many]) + outputs[:, many], 9))

    def weakened(side: int, factor: float, rng: np.random.Generator) -> Batch:
        size = len(exact[side])
        spread = np.repeat([scales["levels"], scales["pairs"]], [many, size - many])
        draw = rng.laplace if law is Laplace else rng.normal

        def sample(trials: int) -> FloatArray:
            noisy = exact[side] + draw(0.0, factor * spread, (trials, size))
            near, far = (
                law(scales["pairs"]).logpdf(noisy[:, many:] - x[many:]).sum(axis=1) for x in exact
            )
            return np.column_stack([noisy[:, :many], near - far])

        return sample

    return Challenge(request, pair, run, (score, None), check, weakened)


# --- drawn tables ---------------------------------------------------------------------------------


def _drawn(request: NetworkRequest, records: _Records, u: Record, v: Record) -> Challenge:
    planned = request.planned
    assert isinstance(planned, PosteriorSample | GridMap)
    draws = planned.draws if isinstance(planned, PosteriorSample) else 1
    # Tables without any row are for nobody to publish.
    fewest = 0 if request.network.schema.n_is_public else 1
    pairs = [records.pair(u, v, others=others) for others in _OTHER_ROWS if others >= fewest]
    pair = max(pairs, key=lambda found: _divergence(planned, records, found))
    counts = (sums_of(request, pair.a), sums_of(request, pair.b))
    laws = [_laws(planned, one) for one in counts]
    _refuse_too_many(draws * len(laws[0]))
    touched = [i for i, (p, q) in enumerate(zip(*laws, strict=True)) if p is not q]

    def score(outputs: FloatArray) -> FloatArray:
        tables = outputs.reshape(len(outputs), draws, -1)
        terms = [
            laws[0][i].logpdf(tables[:, :, i]) - laws[1][i].logpdf(tables[:, :, i]) for i in touched
        ]
        # Grids make ratios with atoms; without rounding, the last bit would split them at random.
        return np.asarray(np.round(np.sum(terms, axis=(0, 2)), 9))

    def check(a: FloatArray, b: FloatArray) -> DrawCheck:
        rng = np.random.default_rng(0)
        return check_draws(uniform_numbers(laws[0], a, rng), uniform_numbers(laws[1], b, rng))

    def run(side: int) -> list[float]:
        """All splits of all draws, in the order of `_laws`."""
        content = through_text(request, counts[side]).content
        return [m / _ONE for draw in content.draws for values in draw.values() for m in values]

    def weakened(side: int, factor: float, rng: np.random.Generator) -> Batch:
        sharper = _laws(planned, counts[side], 1 / factor)

        def sample(trials: int) -> FloatArray:
            drawn = np.ones((trials, draws, len(sharper)))  # what isn't touched isn't looked at
            for i in touched:
                drawn[:, :, i] = sharper[i].draw(trials * draws, rng).reshape(trials, draws)
            return drawn.reshape(trials, -1)

        return sample

    return Challenge(request, pair, run, (score,), check, weakened)


def _divergence(planned: PosteriorSample | GridMap, records: _Records, pair: Neighbours) -> float:
    """How far apart one draw's laws are, the better way round."""
    laws = [_laws(planned, sums_of(records.request, table)) for table in (pair.a, pair.b)]
    changed = [(p, q) for p, q in zip(laws[0], laws[1], strict=True) if p is not q]
    return max(sum(p.divergence(q) for p, q in changed), sum(q.divergence(p) for p, q in changed))


def _laws(
    planned: PosteriorSample | GridMap, counts: FamilyCounts, sharpened: float = 1.0
) -> list[Steps]:
    """The law of every split, nodes in order; equal counts share one."""
    found = []
    for node in planned.network.nodes:
        arity, concentration = planned.network.arity(node), float(planned.concentration[node])
        table = counts.tables[node].reshape(-1, arity)
        halves = split_totals(table, arity)
        for c, d in zip(*halves, strict=True):
            for j, (start, middle, stop) in enumerate(splits(arity)):
                prior = (concentration * (middle - start), concentration * (stop - middle))
                told = (prior, int(c[j]), int(d[j]), planned.lowest)
                if isinstance(planned, GridMap):
                    found.append(_grid_law(*told, planned.grid, sharpened * float(planned.factor)))
                else:
                    found.append(_posterior_law(*told, sharpened * float(planned.temper)))
    return found


@lru_cache(maxsize=4096)
def _posterior_law(prior: tuple[float, float], c: int, d: int, lowest: int, temper: float) -> Steps:
    """v^(a-1+τc) (1-v)^(b-1+τd) between ω and 1-ω."""
    first, second = prior[0] + temper * c, prior[1] + temper * d
    # Where the law is narrow, finer than elsewhere.
    mean, total = first / (first + second), first + second
    near = mean + np.sqrt(mean * (1 - mean) / (total + 1)) * np.linspace(-12, 12, _BINS + 1)
    low, high = lowest / _ONE, (_ONE - lowest + 1) / _ONE
    edges = np.unique(np.concatenate([np.linspace(low, high, _BINS + 1), near.clip(low, high)]))
    middle = (edges[:-1] + edges[1:]) / 2
    logs = (first - 1) * np.log(middle) + (second - 1) * np.log1p(-middle)
    return Steps.weighted(edges, logs + np.log(np.diff(edges)), 1 / _ONE)


@lru_cache(maxsize=4096)
def _grid_law(
    prior: tuple[float, float], c: int, d: int, lowest: int, grid: tuple[int, ...], factor: float
) -> Steps:
    """π(v) exp(η u(v)) on few points, u the posterior probability of v among them."""
    points = np.array(grid) / _ONE
    base = (prior[0] - 1) * np.log(points) + (prior[1] - 1) * np.log1p(-points)
    told = base + c * np.log(points) + d * np.log1p(-points)
    posterior = np.exp(told - told.max())
    logs = base + factor * posterior / posterior.sum()
    return Steps.weighted(np.append(points, 1.0), logs, None)


# --- records --------------------------------------------------------------------------------------


class _Records:
    """Records of a network as codes of levels, and what they add to what is measured."""

    def __init__(self, request: NetworkRequest) -> None:
        self.request, self.network = request, request.network
        self.arities = [self.network.arity(node) for node in self.network.nodes]
        self.replace = self.network.schema.n_is_public
        self._known: dict[Record, FloatArray] = {}

    def worst(self) -> tuple[Record, Record]:
        """Two records that change what is measured as much as climbing finds."""
        last = [arity - 1 for arity in self.arities]
        leading = [1 << (arity - 1).bit_length() - 1 for arity in self.arities]
        starts = [(tuple(0 for _ in last), tuple(other)) for other in (last, leading)]
        starts += [(v, u) for u, v in starts]
        climbed = (self._climb(u, v) for u, v in starts)
        return max(climbed, key=lambda pair: self._distance(*pair))

    def pair(self, u: Record, v: Record, *, others: int) -> Neighbours:
        """Tables with some rows like the second record, and u's record or v's (or none)."""
        schema = self.network.schema
        copies = schema.max_rows_per_unit
        a = [*[v] * others, *[u] * copies]
        b = [*[v] * others, *([v] * copies if self.replace else [])]
        attained = copies * self._distance(u, v) / self._allowed()
        return Neighbours(self._table(a), self._table(b), float(attained))

    def measured(self, counts: FamilyCounts) -> FloatArray:
        """What is published of the counts, without noise; for draws, what the loss is linear in."""
        planned, network = self.request.planned, self.network
        public = network.schema.n_is_public
        if isinstance(planned, FourierParities):
            exact = np.zeros(len(planned.parities))
            for node in network.nodes:
                positions = planned.parities.positions(node)
                exact[positions] = planned.parities.parity_counts(node, counts.tables[node])
            return exact if public else np.concatenate([[float(counts.n)], exact])
        parts = []
        if isinstance(planned, LearnedGraph):  # with one of the trees
            for group, families in learned_families(planned.star).items():
                for node, names in families.items():
                    alone = group == "levels" and one_level_is_enough(network, node)
                    parts.append(counted(network, counts, names).ravel()[1 if alone else 0 :])
            return np.concatenate(parts).astype(np.float64)
        for node in network.nodes:
            table = counts.tables[node]
            if isinstance(planned, PosteriorSample | GridMap):
                arity = network.arity(node)
                first, second = split_totals(table.reshape(-1, arity), arity)
                parts.append((first - second).ravel())
            else:
                parts.append(table.ravel()[1 if one_is_enough(network, public, node) else 0 :])
        return np.concatenate(parts).astype(np.float64)

    def _allowed(self) -> float:
        """The stated sensitivity."""
        planned = self.request.planned
        if isinstance(planned, PosteriorSample | GridMap):
            return float(self.network.schema.records_changed * total_depth(self.network))
        if isinstance(planned, LearnedGraph):
            return float(sum(learned_sensitivities(planned.star).values()))
        assert isinstance(planned, LaplaceCounts | FourierParities)
        return float(planned.sensitivity)

    def _distance(self, u: Record, v: Record) -> float:
        change = self._adds(u) - (self._adds(v) if self.replace else 0.0)
        return float(np.abs(change).sum())

    def _climb(self, u: Record, v: Record) -> tuple[Record, Record]:
        pair = [u, v]
        sides = (0, 1) if self.replace else (0,)
        best = self._distance(u, v)
        most = self._allowed() / self.network.schema.max_rows_per_unit
        for _ in range(_SWEEPS if len(self.arities) <= _MOST_CLIMBED else 0):
            if best >= most:
                break
            before = best
            for side, j in product(sides, range(len(self.arities))):
                for level in range(self.arities[j]):
                    trial = list(pair)
                    trial[side] = (*pair[side][:j], level, *pair[side][j + 1 :])
                    reached = self._distance(trial[0], trial[1])
                    if reached > best:
                        best, pair = reached, trial
            if best == before:
                break
        return pair[0], pair[1]

    def _adds(self, record: Record) -> FloatArray:
        if record not in self._known:
            accumulator = self.request.plan().accumulator()
            accumulator.add([np.array([code], dtype=np.int32) for code in record])
            self._known[record] = self.measured(accumulator.result())
        return self._known[record]

    def _table(self, rows: Sequence[Record]) -> Table:
        levels = {node: self.network.levels(node) for node in self.network.nodes}
        return {n: [levels[n][row[j]] for row in rows] for j, n in enumerate(levels)}


def _refuse_too_many(values: int) -> None:
    if values > _MOST_VALUES:
        raise RequestError(
            f"network: a Release of {values:,} numbers is too large to be drawn a thousand times; "
            f"audit a part of it, with at most {_MOST_VALUES:,}: fewer nodes, parents or draws"
        )
