"""How much the ball clips, from a noisy histogram; and the radius that follows from it.

A wide ball needs much noise, a narrow one shrinks rows and biases the slopes. The noise on a sum
doesn't grow with n and the bias does, so what counts is the number of shrunk rows and by how much
they are shrunk, not their share. Before the last round a histogram of |z|²/q beyond 3 is published
in the last round's coordinates. A power tail is fitted to it, and the radius is where noise and
expected bias balance. What bias may remain is carried in the likelihood as if it were more noise.

With a the squared radius divided by q, N(a) the number of rows beyond it, and

    B(a) = Σ (|z|² - a q)₊ = q ∫_a^∞ N(v) dv

the trace of what shrinking takes from the second moments, the bias of an entry is about g B: g is
how well far rows agree with each other about a slope. Over real and simulated regressions g was
.01 to .17, hence `AGREEMENT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noisewise.core.rounds.transform import Floats
from noisewise.core.statistics.ball_moments import PRODUCT_ONE

EDGES = tuple(3 * 1.2**i for i in range(22))  # of |z|²/q; the last bin is open
AGREEMENT = 0.15
LARGEST_CARRY = 2.0  # times the noise
WARN_FROM = 1.2  # times the noise

_MISFIT = 0.25  # relative error of a power tail in any bin
_POWERS = np.geomspace(1.4, 20, 40)
_HEIGHTS = 60


def grid_edges(numbers: int) -> tuple[int, ...]:
    """The bins' lower edges as squared lengths in units of 2**-20."""
    return tuple(int(edge * numbers * PRODUCT_ONE) for edge in EDGES)


@dataclass(frozen=True)
class TailFit:
    """Expected rows and excess beyond each of `EDGES`.

    Parameters
    ----------
    rows : (22,) array
        N(a).
    excess : (22,) array
        B(a).
    """

    rows: Floats
    excess: Floats

    @classmethod
    def of(
        cls, counts: Sequence[float], sd: float, n: float, rows_per_unit: int, numbers: int
    ) -> TailFit:
        """Posterior means under a power tail N(a) = N₀ (a/3)^-b, flat on a grid of N₀ and b.

        A bin's variance is that of its noise, of counting (in clumps of one unit's rows) and of
        the tail not being a power.

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
        edges = np.array(EDGES)
        survival = (edges / edges[0]) ** -_POWERS[:, None]  # (powers, bins)
        shape = survival - np.append(survival[:, 1:], np.zeros((len(_POWERS), 1)), axis=1)
        heights = np.geomspace(1, max(n, 2.0), _HEIGHTS)
        expected = heights[:, None, None] * shape
        variance = sd**2 + (_MISFIT * expected) ** 2 + rows_per_unit * expected
        misfit = (np.asarray(counts) - expected) ** 2 / variance + np.log(variance)
        score = -misfit.sum(axis=2) / 2
        weight = np.exp(score - score.max())
        by_power = heights @ weight / weight.sum()
        # ∫ N over the bins by trapezoids in log a; beyond the last edge N a / (b - 1), at most N a.
        heights_of_log = survival * edges
        pieces = (heights_of_log[:, 1:] + heights_of_log[:, :-1]) / 2 * np.diff(np.log(edges))
        beyond = heights_of_log[:, -1:] * np.minimum(1 / (_POWERS - 1), 1.0)[:, None]
        inner = np.cumsum(pieces[:, ::-1], axis=1)[:, ::-1]
        integral = np.append(inner, np.zeros((len(_POWERS), 1)), axis=1) + beyond
        return cls(by_power @ survival, numbers * (by_power @ integral))

    def carried(self, index: int, noise: float) -> float:
        """The sd that clipping adds to an off-diagonal entry, for the radius with this index.

        `noise` is the entry's own sd, in units of 1.
        """
        return min(AGREEMENT * float(self.excess[index]), LARGEST_CARRY * noise)

    def warns(self, index: int, noise: float) -> bool:
        """Whether far rows may decide the regression, so that slopes describe the others."""
        return AGREEMENT * float(self.excess[index]) > WARN_FROM * noise


def balanced(fit: TailFit, noise: Floats, allowed: npt.NDArray[np.bool_]) -> int:
    """The index of the radius at which noise and expected bias balance.

    Parameters
    ----------
    fit : TailFit
    noise : (22,) array
        Sd of an off-diagonal entry at each radius.
    allowed : (22,) array of bool
        Which radii may be taken; the first always may.
    """
    error = noise**2 + (AGREEMENT * fit.excess) ** 2
    return int(np.argmin(np.where(allowed, error, np.inf)))
