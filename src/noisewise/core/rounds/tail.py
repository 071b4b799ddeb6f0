"""How far rows are out, from a noisy histogram; and the radius of the last ball.

Before the last round a histogram of |z|²/q beyond 3 is published in the last round's coordinates.
Rows beyond the last ball are moved onto it, so it decides how near the regression within reach
comes to that of all rows. A wide ball needs much noise: what counts is the number of far rows and
how far out they are, not their share, because noise doesn't grow with n.

**The tail.** With a the squared radius divided by q, the number of rows beyond it is taken for

    N(a) = N₀ ((a/3)^-b - (e/3)^-b) / (1 - (e/3)^-b)  up to e, and 0 beyond it:

a power that ends at e, where e is one of the bins' edges or infinite, all equally likely. Splines,
scores and shares have tails that end soon. No row is farther out than the farthest corner of the
bounds, which is public (`Transform.farthest`), so no tail ends beyond it. Beside such rows none,
half or all of the n rows may be normal ones: a power that has to follow them near the edge falls
too fast to follow few rows far out. And with a prior probability of a tenth some more rows stand
apart, all in one bin, as codes for missing values and other kinds of people do: as many as 1 to n,
each order of magnitude as likely. No power could follow these.

**What far rows may do.** Moving rows onto the ball takes a trace of

    B(a) = Σ (|z|² - a q)₊ = q ∫_a^∞ N(v) dv

from the second moments. If far rows have no preferred direction, the product of two coordinates of
a row has mean 0 and mean square |z|⁴ / (q(q + 2)). If all agreed on the sign, an entry would differ
by about B/√(q(q + 2)) from that of all rows; with random signs by that over √N. That is the unit in
which `analyst.regression.far_rows` states how far rows agree.

**The radius** is where noise² + (B₇₀/√(q(q + 2)))² is least, B₇₀ the 70% point of what the
histogram says of B: the ball is so wide that in seven of ten cases even far rows that all agree
would move a sum by no more than about its noise. It is never smaller than √(4.3 q). Noise hides
long tails from the histogram of a small Release, and with a ball of √(3 q) the rows out of it moved
the slopes of real tables by half as much again, for a quarter less noise (`studies reach`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc

from noisewise.core.rounds.transform import Floats
from noisewise.core.statistics.ball_moments import PRODUCT_ONE

Edges = tuple[float, ...]

# Of |z|²/q; the last bin is open. Bins are narrow where a radius may be, and wide further out:
# these cost nothing, and there a few rows may decide a regression.
_NARROW = 10
EDGES: Edges = tuple(3 * 1.2**i for i in range(_NARROW)) + tuple(
    3 * 1.2 ** (_NARROW - 1) * 2.0**i for i in range(1, 13)
)
FORMER_EDGES: Edges = tuple(3 * 1.2**i for i in range(22))  # of Releases before bins were widened
LEAST = 2  # the index of the smallest radius

_MISFIT = 0.25  # relative error of a fitted tail in any bin
_POWERS = np.geomspace(1.4, 20, 16)
_HEIGHTS = 40
_NORMAL = np.array([0.0, 0.5, 1.0])  # how many of the rows may be normal ones
_POINTS, _WIDEST = 400, 8.0
_STRETCH = 0.125  # of the residual's variance in the last round, for each covariate
_QUANTILE = 0.7
_APART = 0.1  # the prior probability that some rows stand apart
_SIZES = 24  # how many they may be, of the grid
_POINTS_OF_TAIL = 24  # quantiles that stand for the rest of the tail where both are added


def stretch(numbers: int) -> float:
    """How long the residual is in the last round, where other directions are 1."""
    return math.sqrt(1 + _STRETCH * (numbers - 1))


def grid_edges(numbers: int, edges: Edges = EDGES) -> tuple[int, ...]:
    """The bins' lower edges as squared lengths in units of 2**-20."""
    return tuple(int(edge * numbers * PRODUCT_ONE) for edge in edges)


@cache
def _tails(edges: Edges) -> tuple[Floats, Floats, Floats, npt.NDArray[np.intp]]:
    """Of every power and end: N at the edges, N in the bins, and the integral of N; (m, 22) each.

    In units of N₀. Last, the number of the edge at which each of them ends, (m,).
    """
    a, b = np.array(edges), _POWERS[:, None, None]
    ends = np.append(a[1:], np.inf)[:, None]
    top = (ends / a[0]) ** -b
    beyond = np.maximum((a / a[0]) ** -b - top, 0.0) / (1 - top)
    inside = beyond - np.append(beyond[..., 1:], np.zeros_like(beyond[..., :1]), axis=-1)
    # The integral of (v/3)^-b - top up to the end, or up to the last edge where there is none.
    stop = np.minimum(ends, a[-1])
    start = np.minimum(a, stop)
    power = a[0] ** b * (start ** (1 - b) - stop ** (1 - b)) / (b - 1)
    integral = (power - top * (stop - start)) / (1 - top)
    # Beyond the last edge N a / (b - 1), at most N a.
    open_end = beyond[:, -1:, -1:] * a[-1] * np.minimum(1 / (b - 1), 1.0)
    integral[:, -1:] += open_end
    shape = (-1, len(edges))
    numbers = np.tile(np.arange(1, len(edges) + 1), len(_POWERS))
    return beyond.reshape(shape), inside.reshape(shape), integral.reshape(shape), numbers


@cache
def _normal(numbers: int, edges: Edges = EDGES) -> Floats:
    """Rows in the bins, if rows are normal in the last round's coordinates.

    In units of n. The residual is stretched there: |z|² is γ² u² with a normal u, and chi-squared
    with q - 1 degrees of freedom beside it.
    """
    step = _WIDEST / _POINTS
    u = (np.arange(_POINTS) + 0.5) * step
    density = np.exp(-(u**2) / 2) * math.sqrt(2 / math.pi) * step
    over = stretch(numbers) ** 2 * u**2 - np.array(edges)[:, None] * numbers
    left, k = np.maximum(-over, 0.0), numbers - 1
    beyond = (gammaincc(k / 2, left / 2) if k else over > 0.0) @ density
    return np.asarray(beyond - np.append(beyond[1:], 0.0))


@dataclass(frozen=True)
class TailFit:
    """What a histogram says about how far out rows are, beyond each of its edges.

    Parameters
    ----------
    tail : (heights, m) array
        The posterior of N₀, and of the power and its end.
    apart : (bins, sizes) array
        The posterior that so many rows stand apart in one bin; what is missing to 1 is of none.
    n : float
    numbers : int
        q.
    edges : tuple of float
    farthest : float
        The largest |z|² that the bounds allow.
    """

    tail: Floats
    apart: Floats
    n: float
    numbers: int
    edges: Edges = EDGES
    farthest: float = math.inf

    @classmethod
    def of(
        cls,
        counts: Sequence[float],
        sd: float,
        n: float,
        rows_per_unit: int,
        numbers: int,
        edges: Edges = EDGES,
        farthest: float = math.inf,
    ) -> TailFit:
        """The posterior that is flat on a grid of log N₀, log b, e and the share of normal rows.

        A bin's variance is that of its noise, of counting (in clumps of one unit's rows) and of
        the tail having another shape. Rows that stand apart are looked for in what the others
        leave on average.

        Parameters
        ----------
        counts : sequence of 22 floats
            The noisy counts.
        sd : float
            Of their noise.
        n : float
            Number of rows, or an estimate of it.
        rows_per_unit, numbers : int
        edges : tuple of float
            Where the bins begin.
        farthest : float
        """
        _, inside, _, end = _tails(edges)
        normal = n * _normal(numbers, edges)
        last = max(int(np.searchsorted(edges, farthest / numbers)), 1)  # bins that rows may be in
        possible = (end <= last) | (last >= len(edges))

        def variance(expected: Floats) -> Floats:
            return sd**2 + (_MISFIT * expected) ** 2 + rows_per_unit * expected

        score = np.empty((len(_NORMAL), _HEIGHTS, len(inside)))
        for of_share, share in zip(score, _NORMAL, strict=True):
            for of_height, height in zip(of_share, _grid(n, _HEIGHTS), strict=True):
                expected = height * inside + share * normal
                spread = variance(expected)
                misfit = (np.asarray(counts) - expected) ** 2 / spread + np.log(spread)
                of_height[:] = -misfit.sum(axis=1) / 2
        weights = np.exp(score - score[..., possible].max()) * possible
        weights /= weights.sum()
        tail = weights.sum(axis=0)
        expected = (_grid(n, _HEIGHTS) @ tail) @ inside + (_NORMAL @ weights.sum((1, 2))) * normal
        left, spread = (counts - expected)[:last, None], variance(expected)[:last, None]
        size = _grid(n, _SIZES)
        more = spread + rows_per_unit * size
        ratio = (left**2 / spread - (left - size) ** 2 / more - np.log(more / spread)) / 2
        odds = _APART / (1 - _APART) / (last * _SIZES) * np.exp(np.minimum(ratio, 300.0))
        return cls(tail, odds / (1 + odds.sum()), n, numbers, edges, farthest)

    def excess(self, index: int, probability: npt.ArrayLike) -> Floats:
        """Quantiles of B of the rows that are not normal, at an edge; random ones are draws."""
        values = self.numbers * _grid(self.n, _HEIGHTS)[:, None] * _tails(self.edges)[2][:, index]
        points = (np.arange(_POINTS_OF_TAIL) + 0.5) / _POINTS_OF_TAIL
        tail = _quantile(values, self.tail, points)
        bins, sizes = self.apart.shape
        starts = np.array(self.edges)[:bins]
        stops = np.append(np.array(self.edges)[1:], 2 * self.edges[-1])[:bins]
        stops = np.minimum(stops, self.farthest / self.numbers)
        beyond = np.maximum(np.sqrt(starts * np.maximum(stops, starts)) - self.edges[index], 0.0)
        apart = self.numbers * beyond[:, None] * _grid(self.n, sizes)
        both = np.append(tail, np.add.outer(apart.ravel(), tail))
        weights = np.append(1 - self.apart.sum(), self.apart)
        return _quantile(
            both, np.repeat(weights, len(points)) / len(points), np.asarray(probability)
        )

    def effect(self, index: int) -> float:
        """What may be missing in an off-diagonal entry if far rows agree: B₇₀/√(q(q + 2))."""
        q = self.numbers
        return float(self.excess(index, _QUANTILE)) / math.sqrt(q * (q + 2))


def balanced(fit: TailFit, noise: Floats, allowed: npt.NDArray[np.bool_]) -> int:
    """The index of the radius at which noise and what far rows may do are least together.

    Parameters
    ----------
    fit : TailFit
    noise : (m,) array
        Sd of an off-diagonal entry at each radius.
    allowed : (m,) array of bool
        Which radii may be taken; the smallest always may.
    """
    effect = np.array([fit.effect(index) for index in range(len(noise))])
    total = np.where(allowed, noise**2 + effect**2, np.inf)
    return LEAST + int(np.argmin(total[LEAST:]))


def _grid(n: float, size: int) -> Floats:
    """Numbers of rows, from 1 to n."""
    return np.geomspace(1, max(n, 2.0), size)


def _quantile(values: Floats, weights: Floats, probability: Floats) -> Floats:
    """Quantiles of a discrete law."""
    order = np.argsort(values, axis=None)
    upto = np.cumsum(weights.ravel()[order])
    places = np.searchsorted(upto, probability * upto[-1])
    return np.asarray(values.ravel()[order][np.minimum(places, len(order) - 1)])
