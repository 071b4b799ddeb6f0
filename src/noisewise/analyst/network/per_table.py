"""The posterior of each node's table by itself, by enumeration of its true counts.

In a row (a configuration of the parents) with true counts k and sum M, and released counts y,

    P(k | y) ∝ p(M) · DirMult(k | M, α) · Π_x exp(-|y_x - k_x| / λ),

and the row of probabilities given k is Dirichlet(α + k): a Dirichlet mixture, and for two levels a
Beta mixture. DirMult factors into a function of M and one function of each k_x, so the mixture's
weights are a convolution, for any arity.

What is *assumed*: p(M) is flat, given that the rows' sums add up to n where n is public; this
condition is imposed on average, by the tilt exp(-s M) with E ΣM = n (for a root, which has one row,
it is imposed exactly). What is *ignored*: everything that other families say about these counts, so
two families may disagree about a variable that they share. `joint` leaves nothing out. Intervals
hold more than they say where the flat p(M) is far from what the network implies.

Concentrations that are learned (see `prior`; here each table by itself, centre and spread included)
alternate with counts: counts given α by enumeration, α given one draw of the counts. `STATES`
values of α serve all draws in turn.

Counts are enumerated where the noise has all but `TAIL` of its mass. Above a scale of `FINE` the
enumeration takes steps of scale/FINE, with counts spread evenly within a step; the error in
probabilities is of the order of (1/FINE)²/24.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisewise._compiled import compiled_in_order
from noisewise.analyst.chains import available_cores
from noisewise.analyst.network.layout import Floats, Layout, normalised
from noisewise.analyst.network.observed import Measurement, Observed
from noisewise.analyst.network.prior import Concentrations, Learning, draw_tables
from noisewise.core.errors import RequestError

TAIL = 1e-9
FINE = 32
MAX_ROOT_COUNTS = 1_000_000  # of a binary root
MAX_WEIGHTS = 1 << 26  # of one node's rows, in memory
WARMUP, STATES = 15, 40  # values of learned concentrations: left out, and used
UPDATES = 4  # of the concentrations between two of them


@dataclass(frozen=True)
class Row:
    """The enumerated posterior of one row."""

    lows: NDArray[np.int64]  # (r,), smallest count that is enumerated
    step: int
    weights: Floats  # (r, most)
    lengths: NDArray[np.int64]  # (r,), of the weights
    # (r, ...), convolutions of the first weights; the last is the weight of the sum, before p(M)
    prefix: Floats
    log_sum: Floats  # log weight of every lattice sum, DirMult's function of M included
    sums: Floats  # M at every lattice sum

    def law(self, tilt: float) -> Floats:
        """Probabilities of the lattice sums."""
        log_weight = self.log_sum - tilt * self.sums
        weight = np.exp(log_weight - log_weight.max())
        return np.asarray(weight / weight.sum())


def enumerate_row(y: NDArray[np.int64], scale: float, alpha: Floats, n: int | None) -> Row:
    """Weights of a row whose counts were all released."""
    from scipy.signal import fftconvolve
    from scipy.special import gammaln

    step = 1 if scale <= FINE else round(scale / FINE)
    reach = math.ceil(scale * math.log(1 / TAIL))
    low = np.maximum(0, y - reach)
    high = np.maximum(y, 0) + reach
    if n is not None:
        low, high = np.minimum(low, n), np.minimum(high, n)
    lengths = (high - low) // step + 1
    r, most = y.size, int(lengths.max())
    weights = np.zeros((r, most))
    middle = (step - 1) / 2
    for x in range(r):
        k = low[x] + step * np.arange(lengths[x]) + middle
        log_weight = gammaln(k + alpha[x]) - gammaln(k + 1) - np.abs(y[x] - k) / scale
        weights[x, : lengths[x]] = np.exp(log_weight - log_weight.max())
    prefix = np.zeros((r, int(lengths.sum()) - r + 1))
    running = weights[0, : lengths[0]]
    prefix[0, : running.size] = running
    for x in range(1, r):
        running = np.maximum(fftconvolve(running, weights[x, : lengths[x]]), 0.0)
        running = running / running.max()
        prefix[x, : running.size] = running
    sums = low.sum() + step * np.arange(running.size) + r * middle
    with np.errstate(divide="ignore"):
        log_sum = np.log(running) + gammaln(sums + 1) - gammaln(sums + alpha.sum())
    return Row(low, step, weights, lengths, prefix, log_sum, sums)


def find_tilt(rows: list[Row], n: int) -> float:
    """The tilt under which the expected sums of all rows add up to n."""
    from scipy.optimize import brentq

    def excess(tilt: float) -> float:
        return float(sum(row.law(tilt) @ row.sums for row in rows)) - n

    width = 1.0 / max(1.0, n / len(rows))
    low, high = -width, width
    for _ in range(60):
        if excess(low) > 0 > excess(high):
            return float(brentq(excess, low, high, xtol=1e-12))
        low, high = 2 * low, 2 * high
    return 0.0  # n is out of reach of every tilt: the Release contradicts itself


def sample(
    layout: Layout,
    observed: Observed,
    prior: Concentrations,
    *,
    chains: int,
    draws: int,
    seed: int | None,
    progress: Callable[[int, int | None], None] | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Draws of all tables, node by node, and E[theta | counts] at each: (chains, draws, cells).

    With them come the averages of `Learning.moments`, shape (3, cells). Where nothing is learned
    the draws are independent.
    """
    given = np.empty((chains * draws, layout.cells))
    moments = np.zeros((3, layout.cells))
    *streams, last = np.random.SeedSequence(seed).spawn(len(layout.nodes) + 1)

    def run(i: int) -> None:
        # One measurement a node, in their order: `fit.choose` lets no parity counts come here.
        table = _Table(layout, i, observed.measurements[i], observed.n)
        _fill(table, prior, np.random.default_rng(streams[i]), given, moments)
        if progress is not None:
            progress(i + 1, len(layout.nodes))

    with ThreadPoolExecutor(min(len(layout.nodes), available_cores())) as pool:
        list(pool.map(run, range(len(layout.nodes))))
    theta = draw_tables(np.random.default_rng(last), given, layout)
    shape = (chains, draws, layout.cells)
    return theta.reshape(shape), normalised(given, layout).reshape(shape), moments


@dataclass(frozen=True)
class _Table:
    """What was measured of one node."""

    layout: Layout
    i: int
    measured: Measurement
    n: int | None


def _fill(
    table: _Table, prior: Concentrations, rng: np.random.Generator, given: Floats, moments: Floats
) -> None:
    """Write concentrations plus counts of one node for all draws, and its prior's moments."""
    part = table.layout.part(table.i)
    only = prior.learned & (np.arange(len(prior.learned)) == table.i)
    learning = Learning(table.layout, Concentrations(prior.alpha, only))
    seen = np.zeros(table.layout.cells)
    if not prior.learned[table.i]:
        drawn = _counts(table, prior.alpha[part], rng, len(given))
        given[:, part] = prior.alpha[part] + drawn
        seen[part] = drawn.mean(axis=0)
        moments[:, part] = learning.moments(seen)[:, part]
        return
    for state in range(-WARMUP, STATES):
        own = learning.alpha[part]
        places = slice(max(state, 0), None if state >= 0 else 1, STATES)
        drawn = _counts(table, own, rng, max(1, given[places, part].shape[0]))
        if state >= 0:
            seen[part] = drawn.mean(axis=0)
            moments[:, part] += learning.moments(seen)[:, part] / STATES
            given[places, part] = own + drawn[: given[places, part].shape[0]]
        seen[part] = drawn[-1]
        for _ in range(UPDATES):
            learning.update(rng, seen)


def _counts(table: _Table, alpha: Floats, rng: np.random.Generator, draws: int) -> Floats:
    """Draws of a node's true counts, shape (draws, its cells), given its concentrations."""
    layout, n = table.layout, table.n
    r = int(layout.arity[table.i])
    y = table.measured.values.reshape(-1, r)
    scales = table.measured.scale.reshape(-1, r)
    alphas = alpha.reshape(-1, r)
    if not np.isfinite(scales).all():
        assert n is not None
        return _one_of_two(rng, y[0], scales[0], alphas[0], n, draws)
    # A row of r counts has r convolutions of up to r times as many weights as one count.
    reach = float(scales[0, 0]) * math.log(1 / TAIL) if scales[0, 0] <= FINE else FINE * 21
    if len(y) * r * r * (2 * reach + 1) > MAX_WEIGHTS:
        raise RequestError(
            f"method: the table of {layout.nodes[table.i]!r} is too large to be enumerated; use "
            "method='joint'"
        )
    rows = [enumerate_row(y[j], float(scales[j, 0]), alphas[j], n) for j in range(len(y))]
    tilt = find_tilt(rows, n) if n is not None and len(rows) > 1 else 0.0
    counts = np.empty((draws, y.size))
    for j, row in enumerate(rows):
        if n is not None and len(rows) == 1:
            at = np.argmin(np.abs(row.sums - n))
            sums = np.full(draws, at, dtype=np.int64)
        else:
            law = row.law(tilt)
            sums = rng.choice(law.size, size=draws, p=law).astype(np.int64)
        lattice = np.empty((draws, r), dtype=np.int64)
        split_sums(rng, row.weights, row.lengths, row.prefix, sums, lattice)
        drawn = row.lows + row.step * lattice
        if row.step > 1:
            drawn = drawn + rng.integers(0, row.step, size=drawn.shape)
        counts[:, j * r : j * r + r] = drawn
    return counts


def _one_of_two(
    rng: np.random.Generator, y: NDArray[np.int64], scale: Floats, alpha: Floats, n: int, draws: int
) -> Floats:
    """A binary root of which one count was released: the other is n minus it."""
    from scipy.special import gammaln

    x = int(np.flatnonzero(np.isfinite(scale))[0])
    reach = math.ceil(scale[x] * math.log(1 / TAIL))
    low, high = max(0, min(n, int(y[x]) - reach)), min(n, max(int(y[x]), 0) + reach)
    # Every count up to a million of them: a finer step than FINE asks for, and a bounded memory.
    step = max(1, (high - low) // MAX_ROOT_COUNTS)
    k = np.arange(low, high + 1, step)
    log_weight = gammaln(k + alpha[x]) - gammaln(k + 1) - np.abs(y[x] - k) / scale[x]
    log_weight += gammaln(n - k + alpha[1 - x]) - gammaln(n - k + 1)
    weight = np.exp(log_weight - log_weight.max())
    drawn = rng.choice(k, size=draws, p=weight / weight.sum())
    if step > 1:
        drawn = np.minimum(drawn + rng.integers(0, step, size=draws), high)
    both = np.empty((draws, 2))
    both[:, x], both[:, 1 - x] = drawn, n - drawn
    return both


# --- the compiled kernel: latent counts given their sum, one after another --------------------


@compiled_in_order
def split_sums(rng, weights, lengths, prefix, sums, out):  # type: ignore[no-untyped-def]
    """Draw lattice counts j, shape (draws, r), given their sums.

    P(j) ∝ Π_x weights[x, j_x]. `prefix[x]` is the convolution of weights[0..x], so the last count
    has P(j_x | sum s) ∝ weights[x, j_x] prefix[x-1, s - j_x].
    """
    r = lengths.size
    before = np.zeros(r, dtype=np.int64)  # length of prefix[x]
    before[0] = lengths[0]
    for x in range(1, r):
        before[x] = before[x - 1] + lengths[x] - 1
    for t in range(sums.size):
        s = sums[t]
        for x in range(r - 1, 0, -1):
            low = max(0, s - before[x - 1] + 1)
            high = min(lengths[x] - 1, s)
            total = 0.0
            for j in range(low, high + 1):
                total += weights[x, j] * prefix[x - 1, s - j]
            left = rng.random() * total
            j = low
            while j < high:
                left -= weights[x, j] * prefix[x - 1, s - j]
                if left < 0.0:
                    break
                j += 1
            out[t, x] = j
            s -= j
        out[t, 0] = s
