"""A private median: the exponential mechanism over 2**52 cells, sampled exactly.

Let a_1, ..., a_N be cells (whole numbers below 2**52), one for each of N = r M blocks. For a cell x
let

    d(x) = max(0, 2 #{a < x} - N, N - 2 #{a ≤ x}),

twice the number of values that would have to move for x to be a median. (For another quantile, of
rank t among N, 2t takes the place of N; nothing else changes.) The mechanism draws

    P(x) ∝ q**d(x),    q = exp(-ε / (4 r m)).

**Claim.** ε-differential privacy for a unit of m rows.

**Proof.** Given the assignment, a unit is in at most m blocks of each of r partitions, so at most
r m of the values change (N does not), and either count changes by at most r m. Then d(x) changes by
at most 2 r m for every x, q**d(x) by a factor of at most exp(ε/2), and so does the sum over all
cells. P(x) changes by at most exp(ε). ∎ (It is the exponential mechanism of McSherry & Talwar 2007
with utility -d/2r, whose sensitivity is m.)

**Sampling.** d is constant on the runs of cells between two neighbouring values, and each value's
cell is a run of its own; so ties keep a cell, and no window about them is needed. A run of c cells
weighs c q**d. Weights are enclosed by integers (`exponential`, `powers`), a uniform number is drawn
bit by bit as far as needed to say in which run it falls, and a cell of that run is drawn uniformly.
The enclosures are refined together with the bits, so the draw has exactly the law above: no
floating-point number takes part. The loop ends with probability 1; the first 192 bits suffice but
for a chance of about 2**-100.

The cells are quantiles of a public base law, so the data need no bounds: what is uniform on cells
is that law on the line.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate

import numpy as np

from noisewise.core.kinds.summary.mechanisms import CELLS
from noisewise.holder.mechanisms import randomness
from noisewise.holder.rows import Integers

FIRST_BITS = 192


def median_rate(epsilon: Fraction, partitions: int, rows_per_unit: int) -> Fraction:
    """-log q."""
    return epsilon / (4 * partitions * rows_per_unit)


def runs(cells: Integers, share: float = 0.5) -> tuple[Integers, Integers, Integers]:
    """Starts, lengths and distances d of all runs of cells, from left to right.

    `share` is that of the values below the quantile.
    """
    values, counts = np.unique(cells, return_counts=True)
    most, total = 2 * len(cells), round(2 * share * len(cells))  # 2N, and 2t (N for a median)
    at_or_below = np.cumsum(counts)
    below = at_or_below - counts
    # A gap before each value and one after the last, with the values' own cells in between.
    starts = np.zeros(2 * len(values) + 1, dtype=np.int64)
    ends, distances = np.empty_like(starts), np.empty_like(starts)
    starts[1::2], starts[2::2] = values, values + 1
    ends[:-1], ends[-1] = starts[1:], CELLS
    distances[:-1:2], distances[-1] = np.abs(2 * below - total), most - total
    distances[1::2] = np.maximum(0, np.maximum(2 * below - total, total - 2 * at_or_below))
    kept = ends > starts
    return starts[kept], (ends - starts)[kept], distances[kept]


def draw_median(cells: Integers, rate: Fraction, share: float = 0.5) -> int:
    """One draw of the mechanism.

    `cells` are the blocks' values in any order, `rate` is -log q (see `median_rate`), and `share`
    that of the values below it: another quantile than the median.
    """
    starts, lengths, distances = runs(cells, share)
    chosen = draw_weighted(lengths, distances, rate)
    return int(starts[chosen]) + randomness.below(int(lengths[chosen]))


def draw_weighted(lengths: Integers, distances: Integers, rate: Fraction) -> int:
    """An index with probability proportional to length * exp(-rate * distance), exactly.

    The heaviest distances come first. Let C_i be the cumulative weights in this order and W their
    sum, and let the uniform number lie in [u, u + 1) / 2**bits after its first bits. Its index is
    i if C_{i-1} ≤ W v < C_i for all v in that interval, which holds if high(C_{i-1}) ≤ low(W) u
    and high(W) (u + 1) ≤ low(C_i), scaled by 2**bits. Otherwise more bits of the same number are
    drawn, and all is computed more finely; the order stays, so that the number's index does too.

    Runs beyond a distance where exp(-rate * distance) is below 2**-bits are not looked at: all of
    them together weigh between nothing and their cells times the last power that was computed.
    """
    order = np.argsort(distances, kind="stable")
    sorted_distances = distances[order]
    cells = int(lengths.sum())
    bits, u = FIRST_BITS, randomness.bits(FIRST_BITS)
    while True:
        reach = _reach(rate, bits, int(sorted_distances[-1]))
        lows, highs = powers(exponential(rate, bits), reach + 2, bits)
        near = order[: np.searchsorted(sorted_distances, reach, side="right")]
        pairs = list(zip(lengths[near].tolist(), distances[near].tolist(), strict=True))
        low = [0, *accumulate(count * lows[d] for count, d in pairs)]
        high = [0, *accumulate(count * highs[d] for count, d in pairs)]
        far = cells * highs[reach + 1] if len(near) < len(order) else 0
        index = bisect_right(high, low[-1] * u >> bits) - 1
        at_least = high[index] << bits <= low[-1] * u
        if index < len(pairs) and at_least:
            below = (high[-1] + far) * (u + 1) <= low[index + 1] << bits
            if below:
                return int(near[index])
        u = (u << bits) | randomness.bits(bits)
        bits *= 2


def _reach(rate: Fraction, bits: int, farthest: int) -> int:
    """A distance with exp(-rate * distance) < 2**-(bits + 2), or the farthest there is."""
    if rate * farthest <= bits:
        return farthest
    return min(farthest, math.ceil((bits + 2) / rate))


# ---------------------------------------------------------------------------------------------
# Enclosures of exp(-s) and its powers by integers, rounded outwards. A number x in [0, 1] is
# enclosed by two integers: low ≤ 2**bits x ≤ high. All arithmetic is on Python's integers, floors
# below and ceilings above, so an enclosure is never wrong, only wide.


def exponential(s: Fraction, bits: int) -> tuple[int, int]:
    """Enclose exp(-s), s ≥ 0.

    With h halvings t = s / 2**h ≤ 1. e**t is enclosed by its series, whose terms are positive: the
    terms from k on add up to at most t**k/k! (1 + 1/2 + 1/4 + …) once k ≥ 2. Then 1/e**t is squared
    h times.
    """
    if s < 0:
        raise ValueError("s must not be negative")
    halvings = max(0, (s.numerator // s.denominator).bit_length())
    t = s / 2**halvings
    one = 1 << bits
    low = high = 0
    term_low = term_high = one
    k = 0
    while term_high > 1:
        low, high = low + term_low, high + term_high
        k += 1
        term_low = term_low * t.numerator // (t.denominator * k)
        term_high = -(-term_high * t.numerator // (t.denominator * k))
    high += 2 * term_high
    low, high = one * one // high, min(one, -(-one * one // low))
    for _ in range(halvings):
        low, high = low * low >> bits, -(-high * high >> bits)
    return low, high


def powers(q: tuple[int, int], count: int, bits: int) -> tuple[list[int], list[int]]:
    """Enclose q**0, ..., q**(count - 1)."""
    low, high = 1 << bits, 1 << bits
    lows, highs = [low], [high]
    for _ in range(count - 1):
        low, high = low * q[0] >> bits, -(-high * q[1] >> bits)
        lows.append(low)
        highs.append(high)
    return lows, highs
