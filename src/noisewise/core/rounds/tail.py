"""How much the ball clips, from a noisy histogram; and the radius that follows from it.

A wide ball needs much noise, a narrow one shrinks rows and biases the slopes. The noise on a sum
doesn't grow with n and the bias does, so what counts is the number of shrunk rows and by how much
they are shrunk, not their share. Before the last round a histogram of |z|²/q beyond 3 is published
in the last round's coordinates. A tail is fitted to it, and the radius is where noise and expected
bias together are least. What bias may remain is carried in the likelihood as if it were more noise.

**The tail.** With a the squared radius divided by q, the number of rows beyond it is taken for

    N(a) = N₀ ((a/3)^-b - (e/3)^-b) / (1 - (e/3)^-b)  up to e, and 0 beyond it:

a power that ends at e, where e is one of the bins' edges or infinite, all equally likely. Splines,
scores and shares have tails that end soon. Without an end, most of what is expected of them would
be rows that nobody has. Beside such rows none, half or all of the n rows may be normal ones: a
power that has to follow them near the edge falls too fast to follow few rows far out. But where
noise hides the tail, normal rows explain all of it, and the rest is not known to be empty. So of
the excess that follows the larger counts, with normal rows or without.

**The bias.** Shrinking takes a trace of

    B(a) = Σ (|z|² - a q)₊ = q ∫_a^∞ N(v) dv

from the second moments. If far rows have no preferred direction, the product of two coordinates of
a row has mean 0 and mean square |z|⁴ / (q(q + 2)). If all agreed on the sign, an entry would be
biased by about B/√(q(q + 2)); with random signs by that over √N. How far they agree is a matter of
the data: over real and simulated regressions it was 0 to 0.5 (0.2 in the median), and 1 in one
photograph. `AGREEMENT`, the sd that is carried for it, is a choice: with more, formulas that are
right have intervals that are too wide, and the photograph's far rows would still be too many. The
radius allows for more, `_ALIGNED`, because it is chosen before anybody knows which column is the
target.

B isn't known either: where the histogram's noise hides the tail, its posterior is long, and its
mean says less than half of what there may be. A bias with mean square E[g²] E[B²] is what is to be
carried, so B stands for the root of its posterior mean square.

**What the histogram can't show.** Let the rows beyond the ball be m times the histogram's sd, over
many of its bins, with |z|² about twice the ball's. They are not seen, as long as m is a few units.
By the formulas above they bias an entry by about m g √(2 s/h) / q noises of the last round, where g
is their agreement, and h and s are the histogram's and the last round's shares of the budget: for
four numbers, m = 4 and g = 0.2 by one. Neither n nor epsilon is in it. So where something says that
there is a long tail (the analyst sees the target's mean and spread), what is carried for rows that
nobody sees is stated in units of that noise.
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

EDGES = tuple(3 * 1.2**i for i in range(22))  # of |z|²/q; the last bin is open
AGREEMENT = 0.2
LARGEST_CARRY = 2.0  # times the noise
WARN_FROM = 0.45  # times the noise

_ALIGNED = 0.5  # of far rows, for the choice of the radius
_MISFIT = 0.25  # relative error of a fitted tail in any bin
_POWERS = np.geomspace(1.4, 20, 16)
_HEIGHTS = 40
_NORMAL = (0.0, 0.5, 1.0)  # how many of the rows may be normal ones
_POINTS, _WIDEST = 400, 8.0
_STRETCH = 0.125  # of the residual's variance in the last round, for each covariate


def stretch(numbers: int) -> float:
    """How long the residual is in the last round, where other directions are 1."""
    return math.sqrt(1 + _STRETCH * (numbers - 1))


def grid_edges(numbers: int) -> tuple[int, ...]:
    """The bins' lower edges as squared lengths in units of 2**-20."""
    return tuple(int(edge * numbers * PRODUCT_ONE) for edge in EDGES)


@cache
def _tails() -> tuple[Floats, Floats, Floats]:
    """Of every power and end: N at the edges, N in the bins, and the integral of N; (m, 22) each.

    In units of N₀.
    """
    edges = np.array(EDGES)
    powers, ends = _POWERS[:, None, None], np.append(edges[1:], np.inf)[:, None]
    top = (ends / edges[0]) ** -powers
    beyond = np.maximum((edges / edges[0]) ** -powers - top, 0.0) / (1 - top)
    nothing = np.zeros_like(beyond[..., :1])
    inside = beyond - np.append(beyond[..., 1:], nothing, axis=-1)
    # Trapezoids in log a; beyond the last edge N a / (b - 1), at most N a, where there is no end.
    of_log = beyond * edges
    pieces = (of_log[..., 1:] + of_log[..., :-1]) / 2 * np.diff(np.log(edges))
    integral = np.append(np.cumsum(pieces[..., ::-1], axis=-1)[..., ::-1], nothing, axis=-1)
    integral[:, -1] += of_log[:, -1, -1:] * np.minimum(1 / (_POWERS - 1), 1.0)[:, None]
    shape = (-1, len(edges))
    return beyond.reshape(shape), inside.reshape(shape), integral.reshape(shape)


@cache
def _normal(numbers: int) -> tuple[Floats, Floats, Floats]:
    """As `_tails`, of normal rows in the last round's coordinates, in units of n.

    The residual is stretched there: |z|² is γ² u² with a normal u, and chi-squared with q - 1
    degrees of freedom beside it.
    """
    step = _WIDEST / _POINTS
    u = (np.arange(_POINTS) + 0.5) * step
    density = np.exp(-(u**2) / 2) * math.sqrt(2 / math.pi) * step
    over = stretch(numbers) ** 2 * u**2 - np.array(EDGES)[:, None] * numbers
    left, k = np.maximum(-over, 0.0), numbers - 1
    others = gammaincc(k / 2, left / 2) if k else over > 0.0
    # E(X - c)₊ = k P(X' > c) - c P(X > c), where X' has two degrees of freedom more.
    excess = np.maximum(over, 0.0) + k * gammaincc(k / 2 + 1, left / 2) - left * others
    beyond, excess = others @ density, excess @ density / numbers
    return beyond, beyond - np.append(beyond[1:], 0.0), excess


@dataclass(frozen=True)
class TailFit:
    """Expected rows and excess beyond each of `EDGES`.

    Parameters
    ----------
    rows : (22,) array
        N(a).
    excess : (22,) array
        B(a), the root of its mean square.
    numbers : int
        q.
    """

    rows: Floats
    excess: Floats
    numbers: int

    @classmethod
    def of(
        cls, counts: Sequence[float], sd: float, n: float, rows_per_unit: int, numbers: int
    ) -> TailFit:
        """The posterior that is flat on a grid of log N₀, log b, e and the share of normal rows.

        A bin's variance is that of its noise, of counting (in clumps of one unit's rows) and of
        the tail having another shape.

        Parameters
        ----------
        counts : sequence of 22 floats
            The noisy counts.
        sd : float
            Of their noise.
        n : float
            Number of rows, or an estimate of it.
        rows_per_unit, numbers : int
        """
        beyond, inside, integral = _tails()
        normal = [n * each for each in _normal(numbers)]
        heights = np.geomspace(1, max(n, 2.0), _HEIGHTS)
        score = np.empty((len(_NORMAL), _HEIGHTS, len(inside)))
        for several, share in zip(score, _NORMAL, strict=True):
            for row, height in zip(several, heights, strict=True):
                expected = height * inside + share * normal[1]
                variance = sd**2 + (_MISFIT * expected) ** 2 + rows_per_unit * expected
                misfit = (np.asarray(counts) - expected) ** 2 / variance + np.log(variance)
                row[:] = -misfit.sum(axis=1) / 2
        rows, square = np.zeros(len(EDGES)), np.zeros(len(EDGES))
        weight = np.exp(score - score.max())
        weight /= weight.sum()
        for share, some in zip(_NORMAL, weight, strict=True):
            usual, more = share * some.sum(), heights @ some
            rows += more @ beyond + usual * normal[0]
            square += (heights**2 @ some) @ integral**2 + share * usual * normal[2] ** 2
            square += 2 * share * (more @ integral) * normal[2]
        alone = np.exp(score[0] - score[0].max())
        square = np.maximum(square, (heights**2 @ alone) @ integral**2 / alone.sum())
        return cls(rows, numbers * np.sqrt(square), numbers)

    def bias(self, agreement: float) -> Floats:
        """The sd of what clipping may do to an off-diagonal entry, at each radius, (22,)."""
        return self.excess * (agreement / math.sqrt(self.numbers * (self.numbers + 2)))

    def carried(self, index: int, noise: float, unseen: float = 0.0) -> float:
        """The sd that clipping adds to an off-diagonal entry, for the radius with this index.

        `noise` is the entry's own sd, in units of 1, and `unseen` times that is carried for rows
        that the histogram doesn't show.
        """
        bias = float(self.bias(AGREEMENT)[index])
        return min(math.hypot(bias, unseen * noise), LARGEST_CARRY * noise)

    def warns(self, index: int, noise: float) -> bool:
        """Whether far rows may decide the regression, so that slopes describe the others."""
        return float(self.bias(AGREEMENT)[index]) > WARN_FROM * noise


def balanced(fit: TailFit, noise: Floats, allowed: npt.NDArray[np.bool_]) -> int:
    """The index of the radius at which noise and expected bias together are least.

    Parameters
    ----------
    fit : TailFit
    noise : (22,) array
        Sd of an off-diagonal entry at each radius.
    allowed : (22,) array of bool
        Which radii may be taken; the first always may.
    """
    return int(np.argmin(np.where(allowed, noise**2 + fit.bias(_ALIGNED) ** 2, np.inf)))
